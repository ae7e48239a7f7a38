//! The timers of one thread's handler: see [`Cx::set_timer`](super::Cx::set_timer).

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::time::Instant;

/// Timers in the order in which they are due; those of one time in the order in which they were
/// set.
#[derive(Debug, Default)]
pub(super) struct Timers {
    heap: BinaryHeap<Reverse<(Instant, u64, u64)>>,
    /// How many were set.
    count: u64,
}

impl Timers {
    pub fn set(&mut self, at: Instant, key: u64) {
        self.heap.push(Reverse((at, self.count, key)));
        self.count += 1;
    }

    /// When the next one is due.
    #[inline]
    pub fn next(&self) -> Option<Instant> {
        self.heap.peek().map(|Reverse((at, ..))| *at)
    }

    /// Takes the keys of those that are due.
    pub fn take_due(&mut self, now: Instant) -> Vec<u64> {
        let mut keys = Vec::new();
        while let Some(Reverse((at, _, key))) = self.heap.peek()
            && *at <= now
        {
            keys.push(*key);
            self.heap.pop();
        }
        keys
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    #[test]
    fn timers_are_due_in_order() {
        let start = Instant::now();
        let at = |ms| start + Duration::from_millis(ms);
        let mut timers = Timers::default();
        for (ms, key) in [(20, 1), (10, 2), (10, 3), (30, 4)] {
            timers.set(at(ms), key);
        }
        assert_eq!(timers.next(), Some(at(10)));
        assert_eq!(timers.take_due(at(9)), []);
        assert_eq!(timers.take_due(at(20)), [2, 3, 1]);
        assert_eq!((timers.next(), timers.take_due(at(30))), (Some(at(30)), vec![4]));
        assert_eq!(timers.next(), None);
    }
}

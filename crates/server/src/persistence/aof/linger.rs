//! Staying awake for the next write (`appendfsync always`).
//!
//! A client that is alone writes again as soon as it has its reply. Until then the writer has
//! nothing to do, but to put it to sleep and wake it takes two changes of thread, on a virtual
//! machine with an interrupt from one processor to another: as long as half an fsync, for every
//! request. So it stays awake if the last write came soon, and not for long. It offers its
//! processor to others all the time; when another thread takes it, the writer goes to sleep. The caller
//! asks for it only where one client writes.

use std::time::{Duration, Instant};

/// A write that came this soon makes the writer stay awake for the next one, for as long.
const SOON: Duration = Duration::from_micros(100);
/// Somebody else has work for the processor if he keeps it for longer than a client or a reactor
/// needs for one request.
const TAKEN: Duration = Duration::from_micros(50);

/// Whether it is worth staying awake.
#[derive(Debug, Default)]
pub struct Linger {
    is_worth_it: bool,
}

impl Linger {
    /// Stays awake until `is_idle` says no, if that is likely to be soon.
    pub fn stay(&self, is_idle: impl Fn() -> bool) {
        if !self.is_worth_it {
            return;
        }
        let began = Instant::now();
        let mut before = began;
        while is_idle() {
            std::thread::yield_now();
            let now = Instant::now();
            if now - began > SOON || now - before > TAKEN {
                return;
            }
            before = now;
        }
    }

    /// So long after everything was on the disk there was something to write; `None` if there was
    /// nothing for as long as anybody looked.
    pub fn note(&mut self, gap: Option<Duration>) {
        self.is_worth_it = gap.is_some_and(|gap| gap <= SOON);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::cell::Cell;

    /// Looks that are taken before the writer goes to sleep, if nothing ever comes.
    fn looks(linger: &Linger) -> usize {
        let looks = Cell::new(0);
        linger.stay(|| {
            looks.set(looks.get() + 1);
            true
        });
        looks.get()
    }

    #[test]
    fn it_stays_awake_only_after_a_write_that_came_soon() {
        let mut linger = Linger::default();
        assert_eq!(looks(&linger), 0);
        linger.note(Some(SOON));
        assert!(looks(&linger) > 0);
        linger.note(Some(SOON * 2));
        assert_eq!(looks(&linger), 0);
        linger.note(Some(Duration::ZERO));
        linger.note(None);
        assert_eq!(looks(&linger), 0);
    }

    #[test]
    fn it_stops_looking_when_something_has_come() {
        let mut linger = Linger::default();
        linger.note(Some(Duration::ZERO));
        let looks = Cell::new(0);
        linger.stay(|| {
            looks.set(looks.get() + 1);
            false
        });
        assert_eq!(looks.get(), 1);
    }
}

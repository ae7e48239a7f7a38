//! Arrays that tables have outgrown and that a prefetch may still be looking at.

use crate::world::{Grace, World};
use std::collections::VecDeque;
use std::sync::{Condvar, Mutex};
use std::time::Duration;
use structs::sync::{lock, wait_timeout};
use structs::table::Buckets;

/// Bytes of outgrown arrays beyond which those whose tables grow free some themselves.
const MAX_OUTGROWN_BYTES: usize = 16 << 20;

/// Arrays that tables have outgrown, until no prefetch can be looking at them and they are freed:
/// by an idle thread, or else by the threads that cause the growth.
#[derive(Default)]
pub struct Outgrown {
    waiting: Mutex<Waiting>,
    arrived: Condvar,
}

#[derive(Default)]
struct Waiting {
    arrays: VecDeque<(Grace, Buckets)>,
    bytes: usize,
}

impl Waiting {
    /// The oldest, if every thread has stopped looking at it.
    fn pop(&mut self, world: &World) -> Option<Buckets> {
        let (_, buckets) = self.arrays.pop_front_if(|(grace, _)| world.has_passed(grace))?;
        self.bytes -= buckets.bytes();
        Some(buckets)
    }
}

impl Outgrown {
    /// Takes an array in. Where too many wait, it frees up to two of the oldest: then the work is
    /// spread over the threads that cause it.
    pub(crate) fn add(&self, world: &World, buckets: Buckets) {
        let grace = world.grace();
        let mut waiting = lock(&self.waiting);
        let is_first = waiting.arrays.is_empty();
        waiting.bytes += buckets.bytes();
        waiting.arrays.push_back((grace, buckets));
        let most = if waiting.bytes > MAX_OUTGROWN_BYTES { 2 } else { 0 };
        let free: [_; 2] = std::array::from_fn(|at| (at < most).then(|| waiting.pop(world)));
        drop(waiting);
        drop(free);
        if is_first {
            self.arrived.notify_one();
        }
    }

    /// How many arrays wait, and their bytes.
    #[cfg(test)]
    pub fn waiting(&self) -> (usize, usize) {
        let waiting = lock(&self.waiting);
        (waiting.arrays.len(), waiting.bytes)
    }

    /// Waits until there is an array, for so long at most.
    pub fn wait(&self, timeout: Duration) {
        let waiting = lock(&self.waiting);
        drop(wait_timeout(&self.arrived, waiting, timeout, |waiting| waiting.arrays.is_empty()));
    }

    /// Frees the arrays that every thread has stopped looking at.
    pub fn collect(&self, world: &World) {
        let mut waiting = lock(&self.waiting);
        let free = std::iter::from_fn(|| waiting.pop(world)).collect();
        // A thread that grows a table must not wait until the system has them.
        drop(waiting);
        Buckets::free(free);
    }
}

//! Arrays that tables have outgrown while a prefetch may still be reading them.

use crate::world::{Grace, World};
use std::collections::VecDeque;
use std::sync::{Condvar, Mutex};
use std::time::Duration;
use structs::sync::{lock, wait_timeout};
use structs::table::Buckets;

/// Bytes of outgrown arrays beyond which a thread whose table grows frees some itself.
const MAX_OUTGROWN_BYTES: usize = 16 << 20;

/// Arrays that tables have outgrown. They are freed when no prefetch can be reading them any more,
/// by an idle thread or by the threads that cause the growth.
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
    /// Removes and returns the oldest array, if no thread reads it any more.
    fn pop(&mut self, world: &World) -> Option<Buckets> {
        let (_, buckets) = self.arrays.pop_front_if(|(grace, _)| world.has_passed(grace))?;
        self.bytes -= buckets.bytes();
        Some(buckets)
    }
}

impl Outgrown {
    /// Adds an array. If too many bytes wait, it frees up to two of the oldest arrays, which
    /// spreads the work over the threads that cause it.
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

    /// Returns the number of waiting arrays, and their bytes.
    #[cfg(test)]
    pub fn waiting(&self) -> (usize, usize) {
        let waiting = lock(&self.waiting);
        (waiting.arrays.len(), waiting.bytes)
    }

    /// Waits until there is an array, for `timeout` at most.
    pub fn wait(&self, timeout: Duration) {
        let waiting = lock(&self.waiting);
        drop(wait_timeout(&self.arrived, waiting, timeout, |waiting| waiting.arrays.is_empty()));
    }

    /// Frees the arrays that no thread reads any more.
    pub fn collect(&self, world: &World) {
        let mut waiting = lock(&self.waiting);
        let free = std::iter::from_fn(|| waiting.pop(world)).collect();
        // A thread that grows a table must not wait while the memory returns to the system.
        drop(waiting);
        Buckets::free(free);
    }
}

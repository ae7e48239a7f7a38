//! Figures of active defragmentation.

use super::Counter;
use keyspace::Millis;
use std::sync::atomic::{AtomicI64, AtomicU32, Ordering::Relaxed};

/// What defragmentation has done, and does.
#[derive(Default)]
pub struct Defrag {
    /// The percentage of a processor that it takes now; 0 if it rests.
    pub running_percent: AtomicU32,
    /// Entries that moved.
    pub hits: Counter,
    /// Entries in pages to be emptied that could not.
    pub misses: Counter,
    /// Entries that were looked at.
    pub seen: Counter,
    /// Time that walks have taken, in microseconds.
    pub total_us: Counter,
    /// When the present walk began, milliseconds since the epoch; 0 if there is none.
    pub began_ms: AtomicI64,
}

impl Defrag {
    /// Forgets what has been counted (CONFIG RESETSTAT).
    pub fn reset(&self) {
        for counter in [&self.hits, &self.misses, &self.seen, &self.total_us] {
            counter.set(0);
        }
    }

    /// Returns how long the present walk has taken in milliseconds; 0 if there is none.
    pub fn current_ms(&self, now: Millis) -> i64 {
        match self.began_ms.load(Relaxed) {
            0 => 0,
            began => (now.0 - began).max(0),
        }
    }
}

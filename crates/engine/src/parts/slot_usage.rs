//! What the requests for each slot of a cluster take: their number, time and bytes
//! (`cluster-slot-stats-enabled`).
//!
//! One array of counters that all threads add to. It is made with the first request that is
//! counted: 512 KB. Threads seldom meet at one slot, and nothing is counted by default.

use keyspace::Slot;
use std::sync::OnceLock;
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::Relaxed;

#[derive(Default)]
struct Counters {
    requests: AtomicU64,
    nanoseconds: AtomicU64,
    bytes_in: AtomicU64,
    bytes_out: AtomicU64,
}

impl Counters {
    fn reset(&self) {
        let all = [&self.requests, &self.nanoseconds, &self.bytes_in, &self.bytes_out];
        all.into_iter().for_each(|counter| counter.store(0, Relaxed));
    }
}

/// What requests have taken.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct Used {
    /// How many.
    pub requests: u64,
    /// Time of commands.
    pub nanoseconds: u64,
    /// Bytes of requests.
    pub bytes_in: u64,
    /// Bytes of replies.
    pub bytes_out: u64,
}

/// See the module's documentation.
#[derive(Default)]
pub struct SlotUsage {
    counters: OnceLock<Box<[Counters]>>,
}

impl SlotUsage {
    /// Adds what a request for a slot has taken.
    pub(crate) fn add(&self, slot: u16, used: Used) {
        let counters =
            self.counters.get_or_init(|| (0..Slot::COUNT).map(|_| Counters::default()).collect());
        let of = &counters[usize::from(slot)];
        of.requests.fetch_add(used.requests, Relaxed);
        of.nanoseconds.fetch_add(used.nanoseconds, Relaxed);
        of.bytes_in.fetch_add(used.bytes_in, Relaxed);
        of.bytes_out.fetch_add(used.bytes_out, Relaxed);
    }

    /// What the requests for a slot have taken.
    pub fn of(&self, slot: u16) -> Used {
        self.counters.get().map_or_else(Used::default, |counters| {
            let of = &counters[usize::from(slot)];
            Used {
                requests: of.requests.load(Relaxed),
                nanoseconds: of.nanoseconds.load(Relaxed),
                bytes_in: of.bytes_in.load(Relaxed),
                bytes_out: of.bytes_out.load(Relaxed),
            }
        })
    }

    /// Forgets what was counted for some slots.
    pub(crate) fn reset(&self, is_forgotten: impl Fn(u16) -> bool) {
        let counters = self.counters.get().into_iter().flat_map(|counters| counters.iter());
        let forgotten = (0..).zip(counters).filter(|(slot, _)| is_forgotten(*slot));
        forgotten.for_each(|(_, counters)| counters.reset());
    }
}

/// The slots of the commands that a transaction or a script has run so far.
#[derive(Default)]
pub(crate) struct NestedSlots {
    pub slots: Slots,
    /// Bytes of the requests that were queued.
    pub bytes_in: u64,
}

/// Whether all keys of a request are in one slot.
#[derive(Clone, Copy, Default)]
pub(crate) enum Slots {
    #[default]
    None,
    One(u16),
    Several,
}

impl Slots {
    /// Adds the slot of one more key.
    pub(crate) fn add(&mut self, slot: u16) {
        *self = match *self {
            Slots::None => Slots::One(slot),
            Slots::One(other) if other == slot => Slots::One(slot),
            Slots::One(_) | Slots::Several => Slots::Several,
        };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_slot_has_sums_of_its_own() {
        let usage = SlotUsage::default();
        assert_eq!(usage.of(7), Used::default());
        let used = Used { requests: 1, nanoseconds: 1, bytes_in: 2, bytes_out: 3 };
        usage.add(7, used);
        usage.add(7, used);
        usage.add(16383, used);
        let twice = Used { requests: 2, nanoseconds: 2, bytes_in: 4, bytes_out: 6 };
        assert_eq!(usage.of(7), twice);
        assert_eq!(usage.of(8), Used::default());
        usage.reset(|slot| slot == 7);
        assert_eq!((usage.of(7), usage.of(16383)), (Used::default(), used));
    }
}

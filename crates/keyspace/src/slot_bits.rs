//! A set of slots that many threads read without a lock: one test when it is empty, two loads
//! otherwise.

use crate::types::Slot;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering::*};

const WORDS: usize = Slot::COUNT / 64;

/// The set.
pub struct SlotBits {
    count: AtomicUsize,
    bits: Box<[AtomicU64]>,
}

impl Default for SlotBits {
    fn default() -> SlotBits {
        let bits = (0..WORDS).map(|_| AtomicU64::new(0)).collect();
        SlotBits { count: AtomicUsize::new(0), bits }
    }
}

impl SlotBits {
    /// Whether there is any.
    #[inline]
    pub fn any(&self) -> bool {
        self.count.load(Acquire) > 0
    }

    /// Whether this slot is in the set.
    #[inline]
    pub fn has(&self, slot: Slot) -> bool {
        let (word, bit) = place(slot);
        self.any() && self.bits[word].load(Acquire) & bit != 0
    }

    /// Adds a slot.
    pub fn insert(&self, slot: Slot) {
        let (word, bit) = place(slot);
        if self.bits[word].fetch_or(bit, AcqRel) & bit == 0 {
            self.count.fetch_add(1, AcqRel);
        }
    }

    /// Takes a slot out.
    pub fn remove(&self, slot: Slot) {
        let (word, bit) = place(slot);
        if self.bits[word].fetch_and(!bit, AcqRel) & bit != 0 {
            self.count.fetch_sub(1, AcqRel);
        }
    }

    /// Makes it the set of these slots.
    pub fn assign(&self, is_in: impl Fn(Slot) -> bool) {
        for (at, word) in self.bits.iter().enumerate() {
            let numbers = (at * 64..).take(64).map(|number| Slot::new(number as u16));
            let bits =
                numbers.enumerate().map(|(bit, slot)| u64::from(slot.is_some_and(&is_in)) << bit);
            let new = bits.fold(0, |word, bit| word | bit);
            if word.load(Acquire) == new {
                continue;
            }
            // Readers see a set that is not empty before they see its bits.
            self.count.fetch_add(new.count_ones() as usize, AcqRel);
            let old = word.swap(new, AcqRel);
            self.count.fetch_sub(old.count_ones() as usize, AcqRel);
        }
    }
}

fn place(slot: Slot) -> (usize, u64) {
    let number = usize::from(slot.number());
    (number / 64, 1 << (number % 64))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_set_of_slots_has_what_was_added() {
        let slot = |number| Slot::new(number).expect("it is one");
        let bits = SlotBits::default();
        assert!(!bits.any() && !bits.has(slot(5)));
        [5, 64, 16383, 5].into_iter().for_each(|number| bits.insert(slot(number)));
        assert!(bits.has(slot(5)) && bits.has(slot(16383)) && !bits.has(slot(6)));
        [5, 64, 5].into_iter().for_each(|number| bits.remove(slot(number)));
        assert!(bits.any() && !bits.has(slot(64)));
        bits.assign(|slot| slot.number() == 7);
        assert!(bits.has(slot(7)) && !bits.has(slot(16383)));
        bits.assign(|_| false);
        assert!(!bits.any());
    }
}

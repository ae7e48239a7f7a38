//! The slots of a hash table by open addressing: numbers of 2 bytes as long as they fit, else of 4.
//! 0 is a free slot.

use crate::thin::Thin;

/// The most slots whose numbers have 2 bytes: a table is never full, so each number is smaller.
const MAX_SHORT: usize = 1 << 16;

/// A table of a power of two of slots, or of none.
pub(crate) enum Slots {
    Short(Thin<u16>),
    Long(Thin<u32>),
}

impl Slots {
    /// Returns a table without slots.
    pub(crate) const fn none() -> Slots {
        Slots::Short(Thin::new())
    }

    /// Returns a table of free slots in which so many numbers, from 1 to their count, find place; a
    /// third more do.
    pub(crate) fn free(numbers: usize) -> Slots {
        let slots = (numbers * 4 / 3 + 1).next_power_of_two();
        if slots <= MAX_SHORT {
            Slots::Short(Thin::exact(vec![0; slots].into_iter()))
        } else {
            Slots::Long(Thin::exact(vec![0; slots].into_iter()))
        }
    }

    /// Returns how many slots there are.
    pub(crate) fn len(&self) -> usize {
        match self {
            Slots::Short(slots) => slots.len(),
            Slots::Long(slots) => slots.len(),
        }
    }

    /// Returns whether so many numbers are more than three quarters of the slots.
    pub(crate) fn is_crowded(&self, numbers: usize) -> bool {
        numbers * 4 > self.len() * 3
    }

    #[inline]
    pub(crate) fn get(&self, at: usize) -> u32 {
        match self {
            Slots::Short(slots) => slots.as_slice()[at].into(),
            Slots::Long(slots) => slots.as_slice()[at],
        }
    }

    pub(crate) fn set(&mut self, at: usize, number: u32) {
        match self {
            Slots::Short(slots) => slots.as_mut_slice()[at] = number as u16,
            Slots::Long(slots) => slots.as_mut_slice()[at] = number,
        }
    }

    /// Frees the slot `hole` of a number, and moves those behind it that would not be found any
    /// more. `home` gives the slot at which the search for a number begins.
    pub(crate) fn remove(&mut self, mut hole: usize, home: impl Fn(u32) -> usize) {
        let mask = self.len() - 1;
        let mut at = hole;
        loop {
            at = (at + 1) & mask;
            let number = self.get(at);
            if number == 0 {
                break;
            }
            // It may move to the hole if its home is not between the two.
            let distance = |from: usize| at.wrapping_sub(from) & mask;
            if distance(home(number)) >= distance(hole) {
                self.set(hole, number);
                hole = at;
            }
        }
        self.set(hole, 0);
    }

    /// Returns the bytes of its block.
    pub(crate) fn memory(&self) -> usize {
        match self {
            Slots::Short(slots) => slots.memory(),
            Slots::Long(slots) => slots.memory(),
        }
    }
}

//! The parts of a segment that a snapshot needs: marked records, which it reads later together with
//! others of the segment, and pinned places, which it reads one by one.
//!
//! A *mark* is a bit for each 32 bytes of a segment, because no record is shorter. The bits are
//! allocated while one of them is set. The user of the tier sets and clears marks under the lock of
//! the entry, so the entry of a marked record always exists. A *pin* only keeps the segment from
//! being reused.

use crate::location::Location;
use crate::record::HEADER;
use crate::tier::Tier;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering::*};
use structs::sync::lock;

/// Bytes of a segment per bit.
pub(crate) const GRAIN: u32 = HEADER as u32;

/// What a snapshot needs of one segment.
#[derive(Default)]
pub(crate) struct Needs {
    bits: Mutex<Vec<u64>>,
    /// Number of bits that are set.
    marked: AtomicU32,
    /// Number of pinned places.
    pins: AtomicU32,
    /// Whether a thread reads the marked records.
    pub is_swept: AtomicBool,
}

fn bit_of(location: Location) -> (usize, u64) {
    let grain = location.offset() / GRAIN;
    ((grain / 64) as usize, 1 << (grain % 64))
}

impl Needs {
    pub fn marked(&self) -> u32 {
        self.marked.load(Acquire)
    }

    pub fn is_pinned(&self) -> bool {
        self.pins.load(Acquire) > 0
    }

    /// Returns the first marked grain at or after `from`.
    pub fn next(&self, from: u32) -> Option<u32> {
        let bits = lock(&self.bits);
        let (first, skipped) = ((from / 64) as usize, from % 64);
        let words = bits.iter().enumerate().skip(first);
        let mut words = words.map(|(at, &word)| {
            let word = if at == first { word & (u64::MAX << skipped) } else { word };
            (at as u32, word)
        });
        words.find(|&(_, word)| word != 0).map(|(at, word)| at * 64 + word.trailing_zeros())
    }

    fn clear(&self) {
        *lock(&self.bits) = Vec::new();
        self.marked.store(0, Release);
        self.pins.store(0, Release);
    }
}

impl Tier {
    /// Marks a value, so that a snapshot reads it with the others of its segment. The caller holds
    /// the lock of the value's entry, and clears the mark before the entry is removed.
    pub fn mark(&self, location: Location) {
        let needs = &self.segments.get(location.segment()).needs;
        let (word, bit) = bit_of(location);
        let mut bits = lock(&needs.bits);
        if bits.is_empty() {
            let grains = self.settings.segment_bytes.div_ceil(u64::from(GRAIN));
            *bits = vec![0; grains.div_ceil(64) as usize];
        }
        assert!(bits[word] & bit == 0, "a value was marked twice");
        bits[word] |= bit;
        needs.marked.fetch_add(1, AcqRel);
    }

    /// Clears the mark of a value. Returns whether there was one. The caller holds the lock of the
    /// value's entry.
    pub fn unmark(&self, location: Location) -> bool {
        let needs = &self.segments.get(location.segment()).needs;
        if needs.marked() == 0 {
            return false;
        }
        let (word, bit) = bit_of(location);
        let mut bits = lock(&needs.bits);
        let was = bits.get(word).is_some_and(|word| word & bit != 0);
        if was {
            bits[word] &= !bit;
            if needs.marked.fetch_sub(1, AcqRel) == 1 {
                *bits = Vec::new();
            }
        }
        was
    }

    /// Returns whether a value is marked.
    pub fn is_marked(&self, location: Location) -> bool {
        let needs = &self.segments.get(location.segment()).needs;
        let (word, bit) = bit_of(location);
        needs.marked() > 0 && lock(&needs.bits).get(word).is_some_and(|word| word & bit != 0)
    }

    /// Keeps a referenced value readable until [`Tier::unpin`], even if its entry is removed.
    pub fn pin(&self, location: Location) {
        self.segments.get(location.segment()).needs.pins.fetch_add(1, AcqRel);
    }

    /// Unpins a value that has been read.
    pub fn unpin(&self, location: Location) {
        let before = self.segments.get(location.segment()).needs.pins.fetch_sub(1, AcqRel);
        assert!(before > 0, "a value was unpinned twice");
        if before == 1 {
            self.wake();
        }
    }

    /// Clears all marks and pins. The snapshot has ended, complete or not, and sets no more.
    pub fn forget_snapshot(&self) {
        self.segments.iter().for_each(|(_, segment)| segment.needs.clear());
        self.wake();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn marked_grains_are_found_in_order() {
        let needs = Needs::default();
        assert_eq!(needs.next(0), None);
        *lock(&needs.bits) = vec![0; 8];
        for grain in [3, 64, 200, 511] {
            lock(&needs.bits)[grain / 64] |= 1 << (grain % 64);
        }
        let mut found = Vec::new();
        let mut at = 0;
        while let Some(grain) = needs.next(at) {
            found.push(grain);
            at = grain + 1;
        }
        assert_eq!(found, [3, 64, 200, 511]);
        assert_eq!(needs.next(4096), None);
    }
}

//! The place of a record, in eight bytes.
//!
//! ```text
//!  63        44 43            22 21             0
//! │ segment 20 │ offset / 16  22 │ length / 16  22 │
//! ```
//!
//! A segment has at most 64 MiB, and there are at most a million segments. With the length, a
//! record can be read in one operation, and counted as dead without reading it.

/// Records begin and end at multiples of this number of bytes.
pub(crate) const UNIT: usize = 16;
const OFFSET_BITS: u32 = 22;
const LENGTH_BITS: u32 = 22;
/// Size of the largest segment, in bytes.
pub(crate) const MAX_SEGMENT_BYTES: u64 = (UNIT as u64) << OFFSET_BITS;
/// Greatest number of segments.
pub(crate) const MAX_SEGMENTS: u32 = 1 << (64 - OFFSET_BITS - LENGTH_BITS);

/// The place of a record. Its number is never 0.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Location(u64);

impl Location {
    /// Returns the location of a record of `len` bytes at `offset`. Both are multiples of 16.
    pub(crate) fn new(segment: u32, offset: u32, len: usize) -> Location {
        let (offset_units, len_units) = (offset as usize / UNIT, len / UNIT);
        debug_assert!((offset as usize).is_multiple_of(UNIT) && len.is_multiple_of(UNIT));
        assert!(segment < MAX_SEGMENTS && offset_units < 1 << OFFSET_BITS);
        assert!(len_units > 0 && len_units < 1 << LENGTH_BITS);
        let segment = u64::from(segment) << (OFFSET_BITS + LENGTH_BITS);
        Location(segment | (offset_units as u64) << LENGTH_BITS | len_units as u64)
    }

    /// Returns the number that encodes the location.
    pub fn to_bits(self) -> u64 {
        self.0
    }

    /// Returns the location that a number from [`Location::to_bits`] encodes.
    pub fn from_bits(bits: u64) -> Location {
        Location(bits)
    }

    pub(crate) fn segment(self) -> u32 {
        (self.0 >> (OFFSET_BITS + LENGTH_BITS)) as u32
    }

    /// Returns the offset in bytes.
    pub(crate) fn offset(self) -> u32 {
        (self.0 >> LENGTH_BITS) as u32 % (1 << OFFSET_BITS) * UNIT as u32
    }

    /// Returns the length of the whole record in bytes.
    #[allow(clippy::len_without_is_empty)] // No record is empty.
    pub fn len(self) -> usize {
        self.0 as usize % (1 << LENGTH_BITS) * UNIT
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_part_comes_back() {
        let most = (MAX_SEGMENT_BYTES as u32 - UNIT as u32, MAX_SEGMENT_BYTES as usize - UNIT);
        for segment in [0, 1, 77, MAX_SEGMENTS - 1] {
            for offset in [0, 16, 4096, most.0] {
                for len in [16, 48, 1 << 20, most.1] {
                    let location = Location::new(segment, offset, len);
                    let found = Location::from_bits(location.to_bits());
                    assert_eq!(
                        (found.segment(), found.offset(), found.len()),
                        (segment, offset, len)
                    );
                    assert_ne!(found.to_bits(), 0);
                }
            }
        }
    }
}

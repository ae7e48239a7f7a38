//! Names of commands as numbers, so that one is folded, hashed and compared in a few steps.
//!
//! Every request's first word is looked up. Byte by byte that cost a pipelined command a twentieth
//! of its time.

use std::num::NonZeroU8;

/// Bytes of a name that fit: all of Redis's and Valkey's commands but a few are no longer.
const MAX_LEN: usize = 16;

/// A name of at most 16 bytes as it was written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct WrittenName {
    low: u64,
    high: u64,
    len: NonZeroU8,
}

impl WrittenName {
    /// Packs a name; `None` if it is too long.
    #[inline(always)]
    pub fn new(name: &[u8]) -> Option<WrittenName> {
        let len = name.len();
        // The ends overlap where they must: with the length they still spell one name only.
        let (low, high) = match len {
            1..4 => {
                let (first, middle, last) = (name[0], name[len / 2], name[len - 1]);
                (u64::from(first) | u64::from(middle) << 8 | u64::from(last) << 16, 0)
            }
            4..8 => (four(name, 0) | four(name, len - 4) << 32, 0),
            8 => (eight(name, 0), 0),
            9..=MAX_LEN => (eight(name, 0), eight(name, len - 8)),
            _ => return None,
        };
        let len = NonZeroU8::new(len as u8)?;
        Some(WrittenName { low, high, len })
    }
}

/// A name of at most 16 bytes in lower case.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct PackedName {
    low: u64,
    high: u64,
    len: NonZeroU8,
}

impl PackedName {
    /// Packs a name, written in any case; `None` if it is too long.
    #[inline(always)]
    pub fn new(name: &[u8]) -> Option<PackedName> {
        let WrittenName { low, high, len } = WrittenName::new(name)?;
        let high = if high == 0 { 0 } else { lower(high) };
        Some(PackedName { low: lower(low), high, len })
    }

    /// A number whose upper bits differ from one name to another.
    #[inline]
    pub fn hash(self) -> u64 {
        const ODD: u64 = 0x9e37_79b9_7f4a_7c15;
        let mixed = self.low ^ self.high.rotate_left(23) ^ u64::from(self.len.get());
        (mixed ^ mixed >> 29).wrapping_mul(ODD)
    }
}

#[inline]
fn eight(name: &[u8], at: usize) -> u64 {
    name[at..].first_chunk().map_or(0, |bytes| u64::from_le_bytes(*bytes))
}

#[inline]
fn four(name: &[u8], at: usize) -> u64 {
    name[at..].first_chunk().map_or(0, |bytes| u64::from(u32::from_le_bytes(*bytes)))
}

/// Eight bytes with the letters A to Z among them in lower case.
#[inline]
fn lower(bytes: u64) -> u64 {
    const ONES: u64 = 0x0101_0101_0101_0101;
    let low_bits = bytes & (ONES * 0x7f);
    // A byte's top bit says whether it is at least `A`, and beyond `Z`; no sum leaves its byte.
    let from_a = low_bits + ONES * u64::from(0x80 - b'A');
    let beyond_z = low_bits + ONES * u64::from(0x7f - b'Z');
    let is_upper = (from_a & !beyond_z) & !bytes & (ONES * 0x80);
    bytes | is_upper >> 2
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::HashSet;

    #[test]
    fn folding_is_that_of_ascii() {
        for byte in 0..=u8::MAX {
            for shift in 0..8 {
                let around = 0x4142_5a5b_6061_7a7b_u64.rotate_left(shift * 8);
                let bytes = (around & !(0xff << (shift * 8))) | u64::from(byte) << (shift * 8);
                let expected = bytes.to_le_bytes().map(|b| b.to_ascii_lowercase());
                assert_eq!(lower(bytes).to_le_bytes(), expected, "{bytes:x}");
            }
        }
    }

    #[test]
    fn names_are_equal_if_their_bytes_are() {
        let text = b"abcdefghijklmnopq";
        for len in 1..=MAX_LEN {
            let name = &text[..len];
            let packed = PackedName::new(name).unwrap();
            assert_eq!(PackedName::new(&name.to_ascii_uppercase()), Some(packed));
            for at in 0..len {
                let mut other = name.to_vec();
                other[at] = b'!';
                assert_ne!(PackedName::new(&other), Some(packed), "{len} {at}");
            }
        }
        let lengths = (1..=MAX_LEN).map(|len| PackedName::new(&[b'a'; MAX_LEN][..len]).unwrap());
        assert_eq!(lengths.map(|p| (p.low, p.high, p.len)).collect::<HashSet<_>>().len(), MAX_LEN);
        assert_eq!(PackedName::new(b""), None);
        assert_eq!(PackedName::new(text), None);
    }
}

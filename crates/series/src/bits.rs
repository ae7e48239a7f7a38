//! Strings of bits, the highest of a word first.

/// A string of bits.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Bits {
    words: Vec<u64>,
    len: usize,
}

/// Bits of a word.
const WORD: usize = 64;

impl Bits {
    /// Returns the number of bits.
    pub fn len(&self) -> usize {
        self.len
    }

    /// Returns the bytes of the block.
    pub fn allocated_bytes(&self) -> usize {
        self.words.capacity() * size_of::<u64>()
    }

    /// Appends the lowest `count` bits of a number, at most 64.
    #[inline]
    pub fn push(&mut self, value: u64, count: u32) {
        if count == 0 {
            return;
        }
        let value = if count < u64::BITS { value & ((1 << count) - 1) } else { value };
        let used = (self.len % WORD) as u32;
        if used == 0 {
            self.words.push(value << (u64::BITS - count));
        } else {
            let free = u64::BITS - used;
            let last = self.words.len() - 1;
            if count <= free {
                self.words[last] |= value << (free - count);
            } else {
                self.words[last] |= value >> (count - free);
                self.words.push(value << (u64::BITS - (count - free)));
            }
        }
        self.len += count as usize;
    }

    /// Returns 64 bits from a place on; zeros follow the end.
    #[inline]
    pub fn peek(&self, at: usize) -> u64 {
        let (word, shift) = (at / WORD, (at % WORD) as u32);
        let first = self.words.get(word).copied().unwrap_or(0);
        let second = self.words.get(word + 1).copied().unwrap_or(0);
        // In two steps: a shift by 64 is none.
        first << shift | second >> 1 >> (u64::BITS - 1 - shift)
    }

    /// Returns a number of `count` bits, at most 64, at a place.
    #[inline]
    pub fn read(&self, at: usize, count: u32) -> u64 {
        if count == 0 { 0 } else { self.peek(at) >> (u64::BITS - count) }
    }

    /// Frees what is allocated beyond the bits.
    pub fn shrink(&mut self) {
        self.words.shrink_to_fit();
    }

    /// Returns the bits as bytes; the last is filled with zeros.
    pub fn to_bytes(&self) -> Vec<u8> {
        let mut bytes: Vec<u8> = self.words.iter().flat_map(|word| word.to_be_bytes()).collect();
        bytes.truncate(self.len.div_ceil(8));
        bytes
    }

    /// Returns the first `len` bits of bytes, or nothing if there are fewer or other bytes follow.
    pub fn from_bytes(bytes: &[u8], len: usize) -> Option<Bits> {
        if bytes.len() != len.div_ceil(8) {
            return None;
        }
        let words = bytes.chunks(size_of::<u64>()).map(|part| {
            let mut word = [0; size_of::<u64>()];
            word[..part.len()].copy_from_slice(part);
            u64::from_be_bytes(word)
        });
        let mut words: Vec<u64> = words.collect();
        // What is pushed later is added by `or`.
        let over = (len % WORD) as u32;
        if over != 0
            && let Some(last) = words.last_mut()
        {
            *last &= u64::MAX << (u64::BITS - over);
        }
        Some(Bits { words, len })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn numbers_come_back(numbers in prop::collection::vec((any::<u64>(), 0u32..=64), 0..50)) {
            let mut bits = Bits::default();
            numbers.iter().for_each(|&(value, count)| bits.push(value, count));
            let bits = Bits::from_bytes(&bits.to_bytes(), bits.len()).expect("its own bytes");
            let mut at = 0;
            for (value, count) in numbers {
                let mask = if count == 64 { u64::MAX } else { (1 << count) - 1 };
                prop_assert_eq!(bits.read(at, count), value & mask);
                at += count as usize;
            }
            prop_assert_eq!(at, bits.len());
        }
    }

    #[test]
    fn a_wrong_length_is_refused() {
        assert!(Bits::from_bytes(&[0; 2], 17).is_none());
        assert!(Bits::from_bytes(&[0; 3], 16).is_none());
        assert_eq!(Bits::from_bytes(&[0xFF], 4).map(|bits| bits.peek(0)), Some(0xF << 60));
    }
}

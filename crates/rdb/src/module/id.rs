//! The number by which a file names a type and the version of its encoding.

/// The letters of names, each at the place that is its number.
const LETTERS: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_";
/// Bits of the version.
const VERSION_BITS: u32 = 10;
/// Letters of a name.
const NAME_LEN: usize = 9;

/// The id of a module type with the version of an encoding.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Id(u64);

impl Id {
    /// Returns the id of a type, by its name of nine letters, digits, `-` or `_`.
    ///
    /// # Panics
    /// If the name is another, or the version has more than 10 bits. Names are constants.
    pub const fn new(name: &str, version: u16) -> Id {
        let name = name.as_bytes();
        assert!(name.len() == NAME_LEN, "the name of a module type has nine letters");
        assert!(version < 1 << VERSION_BITS, "a version has 10 bits");
        let mut id = 0;
        let mut at = 0;
        while at < NAME_LEN {
            let mut number = 0;
            while LETTERS[number] != name[at] {
                number += 1;
            }
            id = id << 6 | number as u64;
            at += 1;
        }
        Id(id << VERSION_BITS | version as u64)
    }

    /// Returns the id with this number.
    pub const fn from_bits(bits: u64) -> Id {
        Id(bits)
    }

    /// Returns the number.
    pub const fn bits(self) -> u64 {
        self.0
    }

    /// Returns the version of the encoding.
    pub const fn version(self) -> u16 {
        (self.0 & ((1 << VERSION_BITS) - 1)) as u16
    }

    /// Returns the nine letters.
    pub fn name(self) -> String {
        let letter = |at: usize| {
            let shift = VERSION_BITS as usize + 6 * (NAME_LEN - 1 - at);
            char::from(LETTERS[(self.0 >> shift & 63) as usize])
        };
        (0..NAME_LEN).map(letter).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_and_versions_come_back() {
        for name in ["ReJSON-RL", "MBbloom--", "AAAAAAAAA", "_________"] {
            let id = Id::new(name, 1023);
            assert_eq!((id.name().as_str(), id.version()), (name, 1023));
        }
        // As the documentation of Redis's modules has it: 6 bits a letter, 10 of the version.
        assert_eq!(Id::new("AAAAAAAAB", 3).bits(), 1 << 10 | 3);
    }
}

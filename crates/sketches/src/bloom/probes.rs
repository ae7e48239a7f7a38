//! The hashes of an item, from which its bits follow.

use super::Family;
use siphasher::sip::SipHasher13;
use std::hash::Hasher;
use structs::murmur::{MULTIPLIER, murmur64a};

/// The seed of the first hash of Redis's filters.
pub(crate) const SEED: u64 = MULTIPLIER;

/// The largest prime below 2⁶⁴, by which Valkey's derived hashes are reduced.
const PRIME: u64 = 0xffff_ffff_ffff_ffc5;

/// Two hashes of an item and how more follow from them.
#[derive(Clone, Copy, PartialEq, Debug, Default)]
pub(crate) struct Probes {
    first: u64,
    second: u64,
    is_sip: bool,
}

impl Probes {
    /// Hashes an item.
    pub(crate) fn of(family: &Family, item: &[u8]) -> Probes {
        match family {
            Family::Murmur => {
                let first = murmur64a(item, SEED);
                Probes { first, second: murmur64a(item, first), is_sip: false }
            }
            Family::Sip(sip) => {
                let (keys, _) = sip.seed.as_chunks::<16>();
                let hash = |key: &[u8; 16]| {
                    let mut hasher = SipHasher13::new_with_key(key);
                    // So does the standard library hash a slice.
                    hasher.write(&(item.len() as u64).to_le_bytes());
                    hasher.write(item);
                    hasher.finish()
                };
                Probes { first: hash(&keys[0]), second: hash(&keys[1]), is_sip: true }
            }
        }
    }

    /// Returns the hash of this index.
    #[inline]
    pub(crate) fn at(self, index: u32) -> u64 {
        let sum = self.first.wrapping_add(self.second.wrapping_mul(index.into()));
        if !self.is_sip {
            return sum;
        }
        match index {
            0 => self.first,
            1 => self.second,
            _ => sum % PRIME,
        }
    }
}

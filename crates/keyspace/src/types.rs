//! Newtypes for what would otherwise be bare numbers.

use structs::hashing;

/// The index of a database (SELECT).
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Hash, Default)]
pub struct DbIndex(pub u32);

/// A point in time: milliseconds since the epoch of Unix.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Hash, Default)]
pub struct Millis(pub i64);

impl Millis {
    /// Milliseconds from `now` until then; 0 if it has passed.
    #[inline]
    pub fn left(self, now: Millis) -> i64 {
        self.0.saturating_sub(now.0).max(0)
    }
}

/// A key with its hash, which is computed once when the request is parsed.
#[derive(Clone, Copy, Debug)]
pub struct Key<'a> {
    /// The bytes.
    pub bytes: &'a [u8],
    /// `hashing::hash(bytes)`.
    pub hash: u64,
}

impl<'a> Key<'a> {
    /// Hashes `bytes`.
    #[inline]
    pub fn new(bytes: &'a [u8]) -> Key<'a> {
        Key { bytes, hash: hashing::hash(bytes) }
    }
}

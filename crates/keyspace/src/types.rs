//! Newtypes for values that would otherwise be bare numbers.

use crate::keyspace::STRIPES;
use std::sync::atomic::{AtomicU8, Ordering::Relaxed};
use structs::{crc16, hashing};

/// The index of a database (SELECT).
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Hash, Default)]
pub struct DbIndex(pub u32);

/// A point in time: milliseconds since the Unix epoch.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Hash, Default)]
pub struct Millis(pub i64);

impl Millis {
    /// Returns the milliseconds from `now` until then, or 0 if it has passed.
    #[inline]
    pub fn left(self, now: Millis) -> i64 {
        self.0.saturating_sub(now.0).max(0)
    }
}

/// A hash slot of a cluster, below [`Slot::COUNT`].
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Hash)]
pub struct Slot(u16);

/// The bits of a key's hash that contain its slot, if hashes carry slots.
const SLOT_BITS: u64 = Slot::COUNT as u64 - 1;

const _: () = assert!(Slot::COUNT.is_power_of_two() && STRIPES.is_power_of_two());
const _: () = assert!(STRIPES <= Slot::COUNT, "a slot is in one stripe");

impl Slot {
    /// Number of slots.
    pub const COUNT: usize = crc16::SLOTS as usize;

    /// Returns the slot of this number, if there is one.
    pub fn new(number: u16) -> Option<Slot> {
        (usize::from(number) < Slot::COUNT).then_some(Slot(number))
    }

    /// Returns the slot of a key, computed from its name.
    pub fn of(key: &[u8]) -> Slot {
        Slot(crc16::key_slot(key))
    }

    /// Returns the slot that a key's hash carries, if hashes carry slots. It is always the slot by
    /// the standard rule, whatever rule the database has, because it determines the key's place in
    /// this process.
    #[inline]
    pub fn in_hash(hash: u64) -> Slot {
        Slot((hash & SLOT_BITS) as u16)
    }

    /// Returns its number.
    pub fn number(self) -> u16 {
        self.0
    }

    /// Returns the stripe of its keys, if keys are assigned by slot.
    pub fn stripe(self) -> usize {
        usize::from(self.0) % STRIPES
    }

    /// Returns all slots of a stripe, in ascending order.
    pub fn of_stripe(stripe: usize) -> impl Iterator<Item = Slot> {
        (stripe..Slot::COUNT).step_by(STRIPES).map(|number| Slot(number as u16))
    }
}

const UNDECIDED: u8 = 0;
const PLAIN: u8 = 1;
const WITH_SLOTS: u8 = 2;

/// Whether the hashes of keys carry slots. It is decided once, when the first keyspace is created.
static HASHES: AtomicU8 = AtomicU8::new(UNDECIDED);

#[inline]
fn hashes_carry_slots() -> bool {
    // Unit tests have keyspaces of both kinds in one process.
    cfg!(test) || HASHES.load(Relaxed) == WITH_SLOTS
}

/// Decides for the whole process whether the hashes of keys carry slots.
///
/// # Panics
/// If slots are wanted and a keyspace without slots was created before.
pub(crate) fn decide_hashes(with_slots: bool) {
    let wanted = if with_slots { WITH_SLOTS } else { PLAIN };
    if HASHES.compare_exchange(UNDECIDED, wanted, Relaxed, Relaxed).is_err() {
        let allowed = !with_slots || hashes_carry_slots();
        assert!(allowed, "a keyspace by slot must be the first of its process");
    }
}

/// A key with its hash, which is computed once when the request is parsed.
#[derive(Clone, Copy, Debug)]
pub struct Key<'a> {
    /// The bytes.
    pub bytes: &'a [u8],
    /// `hashing::hash(bytes)`. In cluster mode its lowest bits are the key's slot.
    pub hash: u64,
}

impl<'a> Key<'a> {
    /// Hashes `bytes`.
    #[inline]
    pub fn new(bytes: &'a [u8]) -> Key<'a> {
        let hash = hashing::hash(bytes);
        if hashes_carry_slots() {
            return Key { bytes, hash: with_slot(bytes, hash) };
        }
        Key { bytes, hash }
    }
}

/// Returns the hash with the slot in its lowest bits, which no table uses.
#[inline(never)]
fn with_slot(key: &[u8], hash: u64) -> u64 {
    hashing::position(hash) | u64::from(Slot::of(key).number())
}

//! How a table orders its items.

use crate::hashing;
use std::cell::Cell;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

/// How a table orders its items.
pub trait Order: Copy {
    /// The order of a new table.
    fn new() -> Self;
    /// What takes the place of an item's hash.
    fn apply(self, hash: u64) -> u64;
}

/// By their hashes as they are: every such table has the same order.
#[derive(Clone, Copy, Debug)]
pub struct ByHash;

/// By their hashes times a number of the table's own.
#[derive(Clone, Copy, Debug)]
pub struct Salted(pub(super) u64);

thread_local! {
    /// The number of the next tables, while one is given.
    static GIVEN: Cell<Option<u64>> = const { Cell::new(None) };
}

/// Has the tables that `make` makes order their items as another table does
/// ([`Table::order`](super::Table::order)): a value that is made anew in the same place has to, or
/// a client that scans it meanwhile misses elements.
pub fn in_order_of<R>(order: Option<u64>, make: impl FnOnce() -> R) -> R {
    let before = GIVEN.replace(order);
    let made = make();
    GIVEN.set(before);
    made
}

impl Order for ByHash {
    fn new() -> ByHash {
        ByHash
    }
    #[inline]
    fn apply(self, hash: u64) -> u64 {
        hash
    }
}

impl Order for Salted {
    fn new() -> Salted {
        if let Some(given) = GIVEN.get() {
            return Salted(given | 1);
        }
        static LAST: AtomicU64 = AtomicU64::new(0);
        // Multiples of the golden ratio: no two tables of a process have the same number, and an
        // odd number loses nothing of the hash.
        let salt = LAST.fetch_add(0x9e37_79b9_7f4a_7c16, Relaxed);
        Salted(hashing::hash(&salt.to_ne_bytes()) | 1)
    }
    #[inline]
    fn apply(self, hash: u64) -> u64 {
        hash.wrapping_mul(self.0)
    }
}

//! Which keys of the moving slots are taken: those behind the walk, but for some that are to be
//! taken again.
//!
//! The walk goes from slot to slot, through each database of a slot, in the order of hashes. A
//! position in that order is valid for ever, however a table grows.

use cluster::slots::Slots;
use keyspace::{DbIndex, Slot};
use std::collections::BTreeSet;
use structs::table::ScanPosition;

/// See the head of this file.
pub(super) struct Boundary {
    slots: Slots,
    databases: u32,
    /// The slots that the walk has not left behind, in order; the first is the one where it is.
    left: std::vec::IntoIter<u16>,
    slot: Option<Slot>,
    db: DbIndex,
    at: ScanPosition,
    /// Keys behind the walk that are not taken.
    pending: BTreeSet<(DbIndex, Box<[u8]>)>,
}

impl Boundary {
    pub fn new(slots: &Slots, databases: u32) -> Boundary {
        let mut left = slots.iter().collect::<Vec<u16>>().into_iter();
        let slot = left.next().and_then(Slot::new);
        Boundary {
            slots: slots.clone(),
            databases,
            left,
            slot,
            db: DbIndex(0),
            at: ScanPosition::START,
            pending: BTreeSet::new(),
        }
    }

    /// Whether a slot moves.
    pub fn has(&self, slot: Slot) -> bool {
        self.slots.contains(slot.number())
    }

    pub fn databases(&self) -> u32 {
        self.databases
    }

    /// Where the walk goes on.
    pub fn next(&self) -> Option<(DbIndex, Slot, ScanPosition)> {
        self.slot.map(|slot| (self.db, slot, self.at))
    }

    pub fn is_at_end(&self) -> bool {
        self.slot.is_none()
    }

    /// The walk has come to this position of its table, or to the end.
    pub fn advance(&mut self, to: Option<ScanPosition>) {
        if let Some(at) = to {
            self.at = at;
            return;
        }
        self.at = ScanPosition::START;
        self.db = DbIndex(self.db.0 + 1);
        if self.db.0 == self.databases {
            self.db = DbIndex(0);
            self.slot = self.left.next().and_then(Slot::new);
        }
    }

    /// Whether the walk has passed a key, or its place, if there is no such key.
    fn is_behind(&self, db: DbIndex, slot: Slot, hash: u64) -> bool {
        let Some(present) = self.slot else { return true };
        match (slot, db).cmp(&(present, self.db)) {
            std::cmp::Ordering::Less => true,
            std::cmp::Ordering::Equal => self.at.is_past(hash),
            std::cmp::Ordering::Greater => false,
        }
    }

    /// Whether a key of a moving slot is taken.
    pub fn is_taken(&self, db: DbIndex, slot: Slot, hash: u64, key: &[u8]) -> bool {
        self.is_behind(db, slot, hash)
            && (self.pending.is_empty() || !self.pending.contains(&(db, Box::from(key))))
    }

    /// A key of a moving slot is not taken any more, if it was.
    pub fn untake(&mut self, db: DbIndex, slot: Slot, hash: u64, key: &[u8]) {
        if self.is_behind(db, slot, hash) {
            self.postpone(db, key);
        }
    }

    /// A key behind the walk was not taken.
    pub fn postpone(&mut self, db: DbIndex, key: &[u8]) {
        self.pending.insert((db, Box::from(key)));
    }

    pub fn has_pending(&self) -> bool {
        !self.pending.is_empty()
    }

    /// Some keys of one database that are behind the walk and not taken.
    pub fn pending(&self, most: usize) -> (DbIndex, Vec<Box<[u8]>>) {
        let db = self.pending.first().map_or(DbIndex(0), |(db, _)| *db);
        let of_db = self.pending.iter().take_while(|(other, _)| *other == db);
        (db, of_db.take(most).map(|(_, key)| key.clone()).collect())
    }

    /// It is taken now.
    pub fn settle(&mut self, db: DbIndex, key: &[u8]) {
        self.pending.remove(&(db, Box::from(key)));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_are_taken_when_the_walk_has_passed_them() {
        let slot = |number| Slot::new(number).expect("it is one");
        let slots = Slots::from_fn(|slot| slot == 3 || slot == 9);
        let mut boundary = Boundary::new(&slots, 2);
        let (first, second) = (DbIndex(0), DbIndex(1));
        assert_eq!(boundary.next(), Some((first, slot(3), ScanPosition::START)));
        assert!(!boundary.is_taken(first, slot(3), u64::MAX, b"k"));
        let half = ScanPosition::of_part(1, 2).expect("there are two");
        boundary.advance(Some(half));
        let taken = |boundary: &Boundary, db, slot, hash| boundary.is_taken(db, slot, hash, b"k");
        assert!(taken(&boundary, first, slot(3), 0) && !taken(&boundary, first, slot(3), u64::MAX));
        boundary.postpone(first, b"k");
        boundary.untake(first, slot(3), u64::MAX, b"other");
        assert!(!taken(&boundary, first, slot(3), 0));
        assert_eq!(boundary.pending(9), (first, vec![Box::from(&b"k"[..])]));
        boundary.settle(first, b"k");
        assert!(taken(&boundary, first, slot(3), 0) && !boundary.has_pending());
        boundary.advance(None);
        assert!(
            taken(&boundary, first, slot(3), u64::MAX) && !taken(&boundary, second, slot(3), 0)
        );
        boundary.advance(None);
        assert_eq!(boundary.next(), Some((first, slot(9), ScanPosition::START)));
        assert!(taken(&boundary, second, slot(3), u64::MAX));
        boundary.advance(None);
        boundary.advance(None);
        assert!(boundary.is_at_end() && taken(&boundary, second, slot(9), u64::MAX));
    }
}

//! Moves entries to other blocks, so that pages of the allocator become empty.
//!
//! Nothing else changes: there is no effect, no client is notified, and a snapshot takes the entry
//! in its new place. Entries that a long command holds or a snapshot streams are read without the
//! lock, so they do not move. See `docs/internals/fragmentation.md`.

use crate::collection::{Collection, Layout};
use crate::entry::Entry;
use crate::snapshot::record::Form;
use crate::stripe::StripeData;
use crate::types::{DbIndex, Key};
use std::ops::ControlFlow;
use structs::table::prefetch;

/// Number of a value's blocks that are checked.
const SAMPLE: usize = 16;
/// Values with more bytes do not move, because they are copied under the stripe's lock.
const LARGEST: usize = 64 << 10;

impl Entry {
    /// Prefetches the part of the entry that a following walk reads first.
    pub fn prefetch(&self) {
        prefetch(self.address().as_ptr().cast());
    }

    /// Passes an address in each block that moves with the entry to `show`: its own block and some
    /// of the value's.
    pub fn show_blocks(&self, most_elements: usize, show: &mut dyn FnMut(usize)) {
        show(self.address().as_ptr().addr());
        if self.is_cold() {
            return;
        }
        if let Some(block) = self.string_block() {
            return show(block.addr());
        }
        if let Some(value) =
            self.collection_apart().filter(|value| may_move(self, *value, most_elements))
        {
            show_value(value, show);
        }
    }
}

/// Returns whether a value is copied when its entry moves.
fn may_move(entry: &Entry, value: &dyn Collection, most_elements: usize) -> bool {
    // A hash with expiring fields is listed by the time noted in it.
    let is_listed = entry.noted_time().is_some();
    let is_small = value.allocated_bytes() <= LARGEST;
    let is_quick = match value.layout() {
        Layout::Block(..) => true,
        Layout::Chunks(..) | Layout::Elements(_) => value.len() <= most_elements,
        Layout::Shared(Form::Module, _) => value.len() <= most_elements,
        Layout::Shared(..) => false,
    };
    !is_listed && is_small && is_quick
}

fn show_value(value: &dyn Collection, show: &mut dyn FnMut(usize)) {
    match value.layout() {
        Layout::Block(_, bytes) => show(bytes.as_ptr().addr()),
        Layout::Chunks(_, count) => {
            for chunk in (0..count.min(SAMPLE)).filter_map(|index| value.chunk(index)) {
                show(chunk.bytes.as_ptr().addr());
            }
        }
        Layout::Elements(_) => {
            let mut left = SAMPLE;
            value.visit(&mut |element| {
                show(element.first_bytes().as_ptr().addr());
                left -= 1;
                if left == 0 { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
            });
        }
        Layout::Shared(..) => {}
    }
}

impl StripeData {
    /// Moves an entry to other blocks, with its value if that is small. Returns whether it did.
    pub fn relocate(&mut self, db: DbIndex, key: Key<'_>, most_elements: usize) -> bool {
        if !self.is_free_to_move(db, key.hash) {
            return false;
        }
        self.before_move(db, key.hash);
        let moved = self.rewrite(db, key, |entry| {
            entry.relocate(|entry, value| may_move(entry, value, most_elements));
        });
        moved.is_some()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cold::tests::keep;
    use crate::keyspace::{Assignment, Keyspace, tests::with};
    use crate::kind::Value;
    use crate::thaw::Record;
    use crate::types::Millis;
    use structs::hash::{Hash, HashLimits};
    use structs::list::{End, List, ListLimits};

    const DB: DbIndex = DbIndex(0);

    /// Returns the addresses that are shown.
    fn blocks(data: &StripeData, key: Key<'_>) -> Vec<usize> {
        let mut blocks = Vec::new();
        data.find(DB, key).unwrap().show_blocks(1000, &mut |at| blocks.push(at));
        blocks
    }

    #[test]
    fn all_blocks_of_an_entry_move_and_nothing_else_changes() {
        let keyspace = Keyspace::new(1, Assignment::ByHash);
        let mut list = List::default();
        let mut hash = Hash::new();
        for word in 0..200u32 {
            let word = format!("{word:0100}");
            list.push(End::Right, word.as_bytes(), &ListLimits::default());
            hash.set(word.as_bytes(), b"v", &HashLimits::default());
        }
        let at = Some(Millis(1 << 40));
        let entries = [
            Entry::new_string(b"short", b"value", at, 1),
            Entry::new_string(b"number", b"12", None, 2),
            Entry::new_string(b"long", &[7; 5000], at, 3),
            Entry::new_object(b"list", list, None, 4),
            Entry::new_object(b"hash", hash, at, 5),
        ];
        for entry in entries {
            let name = entry.key().to_vec();
            with(&keyspace, &name, |data, key| {
                let same = entry.duplicate(key.bytes, entry.expiry(), entry.access());
                data.insert_absent(DB, key.hash, entry);
                let before = blocks(data, key);
                assert!(data.relocate(DB, key, 1000));
                let after = blocks(data, key);
                assert_eq!(before.len(), after.len(), "{name:?}");
                assert!(before.iter().all(|block| !after.contains(block)), "{name:?}");
                let entry = data.find(DB, key).unwrap();
                assert_eq!((entry.expiry(), entry.access()), (same.expiry(), same.access()));
                assert_eq!(entry.encoding(), same.encoding());
                assert_eq!(entry.elements(), same.elements());
                assert_eq!(
                    entry.string().map(|string| string.to_vec()),
                    same.string().map(|string| string.to_vec())
                );
                // The index of what expires has the new address.
                assert_eq!(data.remove(DB, key).unwrap().expiry(), same.expiry());
            });
        }
    }

    #[test]
    fn cold_entries_and_copies_keep_their_places() {
        let keyspace = Keyspace::new(1, Assignment::ByHash);
        let mut list = List::default();
        list.push(End::Right, b"element", &ListLimits::default());
        let values = [
            (&b"string"[..], Value::String(vec![b'x'; 100]), None),
            (b"block", Value::String(vec![b'x'; 5000]), Some(Millis(1 << 40))),
            (b"list", list.clone().into(), None),
        ];
        for (name, value, expiry) in values {
            let entry = match &value {
                Value::String(bytes) => Entry::new_string(name, bytes, expiry, 1),
                _ => Entry::new_object(name, list.clone(), expiry, 1),
            };
            with(&keyspace, name, |data, key| {
                data.insert_absent(DB, key.hash, entry);
                let location = keep(name);
                data.make_cold(DB, key, location).expect("it is hot");
                let cold = data.cold(DB, key).unwrap();
                let before = blocks(data, key);
                assert!(data.relocate(DB, key, 1000));
                assert_ne!(blocks(data, key), before);
                assert_eq!(data.cold(DB, key), Some(cold));
                assert!(data.install(DB, key, cold, value, Record::Stays));
                assert!(data.relocate(DB, key, 1000));
                assert_eq!(data.find(DB, key).unwrap().copy(), Some(location));
            });
        }
    }

    #[test]
    fn large_values_and_shared_ones_stay() {
        let keyspace = Keyspace::new(1, Assignment::ByHash);
        let shared = structs::heap_string::HeapString::from_bytes(&[1; 100_000]);
        let mut hash = Hash::new();
        for word in 0..2000u32 {
            hash.set(&word.to_le_bytes(), &[3; 100], &HashLimits::default());
        }
        for entry in [
            Entry::new_heap_string(b"shared", shared.clone(), None, 0),
            Entry::new_object(b"large", hash, None, 0),
        ] {
            let name = entry.key().to_vec();
            with(&keyspace, &name, |data, key| {
                data.insert_absent(DB, key.hash, entry);
                let before = blocks(data, key);
                assert_eq!(before.len(), 1, "only the entry itself moves");
                assert!(data.relocate(DB, key, usize::MAX));
                assert_ne!(before, blocks(data, key));
            });
        }
    }
}

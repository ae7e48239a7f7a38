//! Operations of a cluster on one slot: counting, walking and flushing its keys.
//!
//! All of them work on the slot's tables. These are in one stripe, one for each database.

use crate::entry::Entry;
use crate::keyspace::Taken;
use crate::stripe::StripeData;
use crate::tables::TableId;
use crate::types::{DbIndex, Slot};
use structs::table::ScanPosition;

impl StripeData {
    fn ids_of_slot(&self, slot: Slot) -> Vec<TableId> {
        self.table_ids().filter(|id| id.slot == Some(slot)).collect()
    }

    /// Returns the number of keys of a slot in a database, including expired keys that were not
    /// deleted yet.
    pub fn slot_key_count(&self, db: DbIndex, slot: Slot) -> usize {
        self.table(TableId { db, slot: Some(slot) }).entries().len()
    }

    /// Returns the names of some keys of a slot in a database, at most `most`.
    pub fn slot_keys(&self, db: DbIndex, slot: Slot, most: usize) -> Vec<Box<[u8]>> {
        let entries = self.table(TableId { db, slot: Some(slot) }).entries();
        entries.iter().take(most).map(|entry| Box::from(entry.key())).collect()
    }

    /// Makes one step of a walk over the keys of a slot in a database. Returns where to continue,
    /// or `None` at the end. A hidden slot has no keys.
    pub fn walk_slot(
        &self,
        db: DbIndex,
        slot: Slot,
        from: ScanPosition,
        visit: impl FnMut(&Entry),
    ) -> Option<ScanPosition> {
        let id = TableId { db, slot: Some(slot) };
        match self.is_hidden(id) || self.table(id).entries().is_empty() {
            true => None,
            false => self.scan(id, from, visit),
        }
    }

    /// Returns whether a slot is hidden: see [`crate::Keyspace::hide_slots`].
    pub fn is_slot_hidden(&self, slot: Slot) -> bool {
        self.is_hidden(TableId { db: DbIndex(0), slot: Some(slot) })
    }

    /// Returns the bytes of the keys of a slot in a database with their values, estimated from the
    /// mean of the first `most` keys. It is exact if there are no more. Tables are in the order of
    /// hashes, so the first keys are a random sample.
    pub fn slot_bytes(&self, db: DbIndex, slot: Slot, most: usize) -> u64 {
        let entries = self.table(TableId { db, slot: Some(slot) }).entries();
        let (mut bytes, mut seen) = (0, 0);
        for entry in entries.iter().take(most.max(1)) {
            bytes += (entry.memory_usage() + size_of::<usize>()) as u64;
            seen += 1;
        }
        let scaled = u128::from(bytes) * entries.len() as u128 / u128::from(seen.max(1u64));
        u64::try_from(scaled).unwrap_or(u64::MAX)
    }

    /// Takes away the keys of a slot in all databases. The caller frees them. A running snapshot
    /// keeps those that it still needs. The world must be stopped, and clients must have been
    /// notified.
    pub fn flush_slot(&mut self, slot: Slot) -> Taken {
        let ids = self.ids_of_slot(slot);
        Taken(ids.into_iter().filter_map(|id| self.take_tables(id)).collect())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::entry::Entry;
    use crate::keyspace::tests::with;
    use crate::keyspace::{Assignment, Keyspace, STRIPES};
    use crate::locks::Locks;
    use crate::snapshot::Shared;
    use crate::tables::WalkPlace;
    use crate::types::{Key, Millis};
    use proptest::prelude::*;
    use std::collections::{BTreeMap, BTreeSet};
    use std::sync::Arc;

    const DB: DbIndex = DbIndex(0);

    fn put(keyspace: &Keyspace, db: DbIndex, name: &[u8], expiry: Option<Millis>) {
        let entry = Entry::new_string(name, b"value", expiry, 0);
        with(keyspace, name, |data, key| drop(data.put(db, key.hash, entry)));
    }

    fn count(keyspace: &Keyspace, slot: Slot) -> usize {
        keyspace.stripe(slot.stripe()).lock().slot_key_count(DB, slot)
    }

    #[test]
    fn the_hash_of_a_key_carries_its_slot() {
        let keyspace = Keyspace::new(1, Assignment::BySlot);
        for name in [&b"foo"[..], b"{foo}bar", b"", b"user:1000", b"a{b}c"] {
            let (key, slot) = (Key::new(name), Slot::of(name));
            assert_eq!(keyspace.slot_of(key.hash), Some(slot));
            assert_eq!(keyspace.stripe_of(key), slot.stripe());
            assert!(Slot::of_stripe(slot.stripe()).any(|other| other == slot));
        }
        assert_eq!(Keyspace::new(1, Assignment::ByHash).slot_of(7), None);
        assert_eq!(Slot::of_stripe(3).count(), Slot::COUNT / STRIPES);
        assert_eq!((Slot::new(16383).is_some(), Slot::new(16384)), (true, None));
    }

    #[test]
    fn slots_of_one_stripe_are_apart() {
        let keyspace = Keyspace::new(2, Assignment::BySlot);
        let slot = Slot::of(b"{tag}");
        // A name in another slot of the same stripe.
        let is_neighbour = |name: &String| {
            let other = Slot::of(name.as_bytes());
            other != slot && other.stripe() == slot.stripe()
        };
        let neighbour = (0..).map(|number: u32| number.to_string()).find(is_neighbour);
        let neighbour = neighbour.expect("there are sixteen slots in a stripe");
        let names: Vec<String> = (0..300).map(|number| format!("{{tag}}{number}")).collect();
        names.iter().for_each(|name| put(&keyspace, DB, name.as_bytes(), Some(Millis(5))));
        put(&keyspace, DB, neighbour.as_bytes(), None);
        put(&keyspace, DbIndex(1), b"{tag}", None);
        assert_eq!(
            (count(&keyspace, slot), count(&keyspace, Slot::of(neighbour.as_bytes()))),
            (300, 1)
        );
        let mut data = keyspace.stripe(slot.stripe()).lock();
        assert_eq!((data.key_count(DB), data.expiring_count(DB)), (301, 300));
        assert_eq!(data.table_ids().count(), 3);
        assert_eq!(data.slot_keys(DB, slot, 7).len(), 7);
        let keys: BTreeSet<_> = data.slot_keys(DB, slot, usize::MAX).into_iter().collect();
        assert!(names.iter().all(|name| keys.contains(name.as_bytes())) && keys.len() == 300);
        assert_eq!(data.flush_slot(slot).keys(), 301, "those of the other database, too");
        assert_eq!(
            (data.key_count(DB), data.key_count(DbIndex(1)), data.table_ids().count()),
            (1, 0, 1)
        );
        drop(data);
        assert_eq!(keyspace.used_databases().collect::<Vec<_>>(), [DB]);
    }

    #[test]
    fn bytes_of_a_slot_are_those_of_its_keys() {
        let keyspace = Keyspace::new(1, Assignment::BySlot);
        let slot = Slot::of(b"a");
        let bytes = |most| keyspace.stripe(slot.stripe()).lock().slot_bytes(DB, slot, most);
        assert_eq!(bytes(8), 0);
        (0..50).for_each(|number| put(&keyspace, DB, format!("{{a}}{number}").as_bytes(), None));
        let all = bytes(1000);
        assert!(all >= 50 * 16, "{all}");
        assert!(bytes(10).abs_diff(all) <= all / 4, "a sample is close: {} {all}", bytes(10));
    }

    #[test]
    fn a_snapshot_keeps_a_slot_that_is_flushed() {
        let keyspace = Keyspace::new(1, Assignment::BySlot);
        let slot = Slot::of(b"a");
        (0..50).for_each(|number| put(&keyspace, DB, format!("{{a}}{number}").as_bytes(), None));
        let shared = Arc::new(Shared::new(1 << 20, Box::new(|| {})));
        let mut locks = Locks::new(&keyspace);
        // SAFETY: the test has one thread.
        #[allow(unsafe_code)]
        unsafe {
            locks.hold_world(keyspace.world().stop());
        }
        keyspace.begin_snapshot(&mut locks, &shared);
        drop(locks);
        assert_eq!(keyspace.stripe(slot.stripe()).lock().flush_slot(slot).keys(), 0);
        let mut keys = 0;
        for stripe in keyspace.stripes() {
            while let Some(chunk) = stripe.lock().walk_snapshot() {
                keys += chunk.keys;
            }
        }
        assert_eq!((keys, count(&keyspace, slot)), (50, 0));
        keyspace.end_snapshot();
    }

    /// Returns all keys of a database as SCAN finds them, while `between` changes others.
    fn walked(keyspace: &Keyspace, mut between: impl FnMut()) -> Vec<Box<[u8]>> {
        let mut found = Vec::new();
        for stripe in keyspace.stripes() {
            let mut place = Some(WalkPlace::START);
            while let Some(from) = place {
                place = stripe.lock().walk(DB, from, |entry| found.push(Box::from(entry.key())));
                if !found.is_empty() {
                    between();
                }
            }
        }
        found
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(if cfg!(miri) { 1 } else { 48 }))]
        #[test]
        fn counts_walks_samples_and_flushes_agree_with_a_model(
            ops in proptest::collection::vec((0u8..8, 0u8..6, 0u16..2000), 0..if cfg!(miri) { 40 } else { 3000 }),
        ) {
            let keyspace = Keyspace::new(2, Assignment::BySlot);
            let mut model: BTreeMap<Slot, BTreeSet<Vec<u8>>> = BTreeMap::new();
            for (op, tag, number) in ops {
                // Tags skew the slots: all but one in three keys are in four of them.
                let name = match tag {
                    0..4 => format!("{{{}}}{number}", tag),
                    _ => number.to_string(),
                }.into_bytes();
                let slot = Slot::of(&name);
                match op {
                    0..6 => {
                        put(&keyspace, DB, &name, number.is_multiple_of(3).then_some(Millis(1)));
                        model.entry(slot).or_default().insert(name);
                    }
                    6 => {
                        let is_gone = with(&keyspace, &name, |data, key| data.remove(DB, key).is_some());
                        let keys = model.entry(slot).or_default();
                        prop_assert_eq!(is_gone, keys.remove(&name));
                    }
                    _ if number < 20 => {
                        let gone = keyspace.stripe(slot.stripe()).lock().flush_slot(slot).keys();
                        prop_assert_eq!(gone, model.remove(&slot).unwrap_or_default().len());
                    }
                    _ => {
                        let count = keyspace.stripe(slot.stripe()).lock().slot_key_count(DB, slot);
                        prop_assert_eq!(count, model.get(&slot).map_or(0, BTreeSet::len));
                    }
                }
            }
            model.retain(|_, keys| !keys.is_empty());
            for (&slot, keys) in &model {
                let data = keyspace.stripe(slot.stripe()).lock();
                prop_assert_eq!(data.slot_key_count(DB, slot), keys.len());
                let found: BTreeSet<_> = data.slot_keys(DB, slot, usize::MAX).into_iter().map(Vec::from).collect();
                prop_assert_eq!(&found, keys);
                let mut number = 0u64;
                let sampled = data.sample(DB, || {
                    number = number.wrapping_add(0x9e37_79b9_7f4a_7c15);
                    number
                });
                let name = sampled.expect("the stripe holds keys").key();
                prop_assert!(model[&Slot::of(name)].contains(name));
            }
            let total: usize = keyspace.stripes().iter().map(|stripe| stripe.lock().key_count(DB)).sum();
            prop_assert_eq!(total, model.values().map(BTreeSet::len).sum::<usize>());
            let mut more = 0;
            let found = walked(&keyspace, || {
                more += 1;
                put(&keyspace, DB, format!("{{0}}new{more}").as_bytes(), None);
            });
            let old: Vec<_> = found.iter().filter(|name| !name.windows(3).any(|part| part == b"new")).collect();
            prop_assert_eq!(old.len(), total, "each key that was there all the time, once");
            prop_assert_eq!(old.iter().collect::<BTreeSet<_>>().len(), total);
        }
    }
}

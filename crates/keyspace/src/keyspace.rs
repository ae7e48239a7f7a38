//! The keyspace: all stripes, and the ways to reach them.

use crate::locks::{Locked, Locks};
use crate::memory;
use crate::outgrown::Outgrown;
use crate::slot_bits::SlotBits;
use crate::snapshot::{Shared, StripeSnapshot};
use crate::stripe::{Common, DbTables, Settler, Stripe, StripeData};
use crate::types::{DbIndex, Key, Slot, decide_hashes};
use crate::world::World;
use std::sync::atomic::{AtomicU32, Ordering::Relaxed};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

/// Number of stripes. It is a power of two, much larger than the number of cores, and small enough
/// for the stripes' headers to stay in a core's cache.
pub const STRIPES: usize = if cfg!(miri) { 64 } else { 1024 };

/// How keys are assigned to stripes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Assignment {
    /// By the hash of the whole key.
    ByHash,
    /// By hash slot, so that all keys of a slot are in one stripe, in their own tables (cluster
    /// mode). The first keyspace of the process decides whether keyspaces by slot are possible.
    BySlot,
}

/// The keyspace.
pub struct Keyspace {
    stripes: Box<[Stripe; STRIPES]>,
    databases: u32,
    assignment: Assignment,
    common: Arc<Common>,
}

impl Keyspace {
    /// Creates an empty keyspace of `databases` databases.
    pub fn new(databases: u32, assignment: Assignment) -> Keyspace {
        let has_slots = assignment == Assignment::BySlot;
        decide_hashes(has_slots);
        let common = Arc::new(Common {
            world: World::new(),
            outgrown: Outgrown::default(),
            stripes_with: (0..databases).map(|_| AtomicU32::new(0)).collect(),
            hidden: SlotBits::default(),
            settler: OnceLock::new(),
        });
        let stripes: Box<[Stripe]> =
            (0..STRIPES).map(|_| Stripe::new(Arc::clone(&common), has_slots)).collect();
        let stripes = stripes.try_into().ok().expect("there are as many as were made");
        Keyspace { stripes, databases, assignment, common }
    }

    /// Returns another, empty keyspace in the same world. Data loaded into it can be exchanged with
    /// the contents of this one.
    pub fn beside(&self) -> Keyspace {
        let has_slots = self.has_slots();
        let common = &self.common;
        let stripes: Box<[Stripe]> =
            (0..STRIPES).map(|_| Stripe::new(Arc::clone(common), has_slots)).collect();
        let stripes = stripes.try_into().ok().expect("there are as many as were made");
        Keyspace {
            stripes,
            databases: self.databases,
            assignment: self.assignment,
            common: Arc::clone(common),
        }
    }

    /// Sets what settles a change on which something still depends, as an entry of the journal that
    /// has no place yet. A thread that locks a stripe on which such a change has left a
    /// [mark](crate::Locks::mark) calls it with that mark, before it reads or changes anything
    /// there. It returns whether the mark is needed no longer. It is set once, and must not lock
    /// stripes.
    ///
    /// # Panics
    /// There is one.
    pub fn set_settler(&self, settler: Settler) {
        let is_first = self.common.settler.set(settler).is_ok();
        assert!(is_first, "a keyspace has one settler");
    }

    /// Returns the number of databases.
    pub fn databases(&self) -> u32 {
        self.databases
    }

    /// Returns the first database and those that hold anything. Exact while the world is stopped.
    pub fn used_databases(&self) -> impl Iterator<Item = DbIndex> + '_ {
        let counts = self.common.stripes_with.iter().enumerate();
        let is_used = |(db, stripes): &(usize, &AtomicU32)| *db == 0 || stripes.load(Relaxed) > 0;
        counts.filter(is_used).map(|(db, _)| DbIndex(db as u32))
    }

    /// Returns whether there is any key, also in slots that are hidden.
    pub fn has_keys(&self) -> bool {
        self.stripes().iter().any(|stripe| {
            let data = stripe.lock();
            data.dbs().any(|db| data.key_count(db) > 0)
        })
    }

    /// Hides these slots: this server has keys in them that are another's, because they arrive and
    /// are not owned yet, or have left and are not dropped yet. Walks, counts and samples of a
    /// database pass them over, so nothing in them expires or is evicted unasked. Snapshots and
    /// FLUSHALL take them like all others.
    pub fn hide_slots(&self, is_hidden: impl Fn(Slot) -> bool) {
        self.common.hidden.assign(is_hidden);
    }

    /// Returns the lock that stops the world.
    #[inline]
    pub fn world(&self) -> &World {
        &self.common.world
    }

    /// Returns the stripe of a key. If hashes carry slots, it is the stripe of the key's slot.
    #[inline]
    pub fn stripe_of(&self, key: Key<'_>) -> usize {
        key.hash as usize % STRIPES
    }

    /// Returns the slot of a key with this hash, or `None` unless keys are assigned by slot.
    #[inline]
    pub fn slot_of(&self, hash: u64) -> Option<Slot> {
        self.has_slots().then(|| Slot::in_hash(hash))
    }

    /// Returns whether keys are assigned by slot, so that each slot has its own tables.
    #[inline]
    pub fn has_slots(&self) -> bool {
        self.assignment == Assignment::BySlot
    }

    /// Returns the greatest number of key tables that a stripe has for one database.
    pub fn tables_per_stripe(&self) -> usize {
        match self.assignment {
            Assignment::ByHash => 1,
            Assignment::BySlot => Slot::COUNT / STRIPES,
        }
    }

    /// Returns how keys are assigned to stripes.
    pub fn assignment(&self) -> Assignment {
        self.assignment
    }

    /// Returns a stripe by its number.
    #[inline]
    pub fn stripe(&self, index: usize) -> &Stripe {
        &self.stripes[index]
    }

    /// Returns all stripes.
    pub fn stripes(&self) -> &[Stripe] {
        &*self.stripes
    }

    /// Waits until a table has outgrown an array, for `timeout` at most.
    pub fn wait_for_outgrown(&self, timeout: Duration) {
        self.common.outgrown.wait(timeout);
    }

    /// Frees outgrown arrays that no thread can be reading any more. Called some time after
    /// [`Keyspace::wait_for_outgrown`] has returned.
    pub fn collect_outgrown(&self) {
        self.common.outgrown.collect(&self.common.world);
    }

    /// Begins a snapshot of this moment. There must be none, and `locks` hold the world.
    pub fn begin_snapshot(&self, locks: &mut Locks<'_>, shared: &Arc<Shared>) {
        assert!(*locks.held() == Locked::World, "a snapshot begins in a stopped world");
        for index in 0..STRIPES {
            let hook = StripeSnapshot::new(Arc::clone(shared), index);
            locks.data_mut(index).set_snapshot(Some(Box::new(hook)));
        }
    }

    /// Removes the rest of a snapshot that has ended. The caller is inside the world or has stopped
    /// it.
    pub fn end_snapshot(&self) {
        self.stripes.iter().for_each(|stripe| stripe.lock().abandon_snapshot());
    }

    /// Returns the bytes in use, as counted by the allocator.
    pub fn used_bytes(&self) -> usize {
        memory::used_bytes()
    }
}

/// Tables that were taken out of the keyspace. They are freed by the caller, on any thread.
#[derive(Default)]
pub struct Taken(pub Vec<DbTables>);

impl Taken {
    /// Returns the number of keys in them.
    pub fn keys(&self) -> usize {
        self.0.iter().map(|t| t.entries().len()).sum()
    }

    /// Takes the keys of some databases out of a stripe. The world is stopped.
    pub fn take(&mut self, stripe: &mut StripeData, dbs: impl Iterator<Item = DbIndex>) {
        for db in dbs {
            self.0.extend(stripe.take_db(db));
        }
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use crate::cold::{store, tests::keep};
    use crate::entry::Entry;
    use crate::kind::Value;
    use crate::thaw::Record;
    use crate::types::Millis;
    use proptest::prelude::*;
    use std::collections::BTreeMap;
    use std::ops::Range;

    const DB: DbIndex = DbIndex(0);

    pub(crate) fn with<R>(
        keyspace: &Keyspace,
        key: &[u8],
        run: impl FnOnce(&mut StripeData, Key<'_>) -> R,
    ) -> R {
        let key = Key::new(key);
        run(&mut keyspace.stripe(keyspace.stripe_of(key)).lock(), key)
    }

    /// Reads the value of a key back, if it is cold.
    fn thaw(keyspace: &Keyspace, name: &[u8], record: Record) {
        with(keyspace, name, |data, key| {
            let Some(cold) = data.cold(DB, key) else { return };
            let value = store().expect("it is set").read(cold.location).expect("it is kept");
            assert!(data.install(DB, key, cold, Value::String(value), record));
        });
    }

    fn fill(keyspace: &Keyspace, numbers: Range<u32>) {
        for number in numbers {
            let name = format!("key:{number}").into_bytes();
            let entry = Entry::new_string(&name, b"value", Some(Millis(1)), 0);
            with(keyspace, &name, |s, key| drop(s.put(DB, key.hash, entry)));
        }
    }

    #[test]
    #[cfg_attr(miri, ignore = "asks the system for its memory")]
    fn databases_that_hold_nothing_cost_nothing() {
        let resident = || {
            let pages = std::fs::read_to_string("/proc/self/statm").expect("Linux has it");
            let pages = pages.split(' ').nth(1).and_then(|number| number.parse::<usize>().ok());
            pages.expect("the second number") * 4096
        };
        let before = resident();
        let keyspace = Keyspace::new(100_000, Assignment::ByHash);
        let used = || keyspace.used_databases().map(|db| db.0).collect::<Vec<_>>();
        assert_eq!(used(), [0]);
        assert!(resident() < before + (100 << 20), "a place in each stripe would be 800 MB");
        let put = |db, name: &'static [u8]| {
            with(&keyspace, name, |s, key| {
                drop(s.put(db, key.hash, Entry::new_string(name, b"v", Some(Millis(9)), 0)));
            });
        };
        put(DbIndex(99_999), b"a");
        put(DbIndex(77), b"a");
        put(DbIndex(77), b"b");
        assert_eq!(used(), [0, 77, 99_999]);
        with(&keyspace, b"a", |s, key| {
            assert_eq!(s.table_ids().map(|id| id.db.0).collect::<Vec<_>>(), [0, 77, 99_999]);
            assert_eq!(s.key_count(DbIndex(78)), 0);
            s.swap_dbs(DbIndex(77), DbIndex(0));
            s.swap_dbs(DbIndex(99_999), DbIndex(5));
            assert!(s.find(DbIndex(0), key).is_some() && s.find(DbIndex(77), key).is_none());
            assert!(s.remove(DbIndex(5), key).is_some());
        });
        assert_eq!(used(), [0, 77]);
        with(&keyspace, b"b", |s, _| assert_eq!(s.take_db(DbIndex(77))[0].entries().len(), 1));
        assert_eq!(used(), [0]);
    }

    #[test]
    fn a_keyspace_beside_is_exchanged_with_the_first() {
        let keyspace = Keyspace::new(16, Assignment::ByHash);
        let beside = keyspace.beside();
        let put = |keyspace: &Keyspace, db, name: &'static [u8]| {
            with(keyspace, name, |s, key| {
                drop(s.put(
                    DbIndex(db),
                    key.hash,
                    Entry::new_string(name, b"v", Some(Millis(9)), 0),
                ));
            });
        };
        let has = |keyspace: &Keyspace, db, name: &'static [u8]| {
            with(keyspace, name, |s, key| s.find(DbIndex(db), key).is_some())
        };
        put(&keyspace, 0, b"old");
        put(&keyspace, 3, b"old");
        put(&beside, 0, b"new");
        put(&beside, 7, b"new");
        assert!(!has(&keyspace, 0, b"new") && !has(&beside, 0, b"old"));
        for (stripe, other) in keyspace.stripes().iter().zip(beside.stripes()) {
            stripe.lock().exchange(&mut other.lock());
        }
        for (now, name, other, dbs) in
            [(&keyspace, &b"new"[..], &beside, [0, 7]), (&beside, b"old", &keyspace, [0, 3])]
        {
            assert!(dbs.iter().all(|&db| has(now, db, name) && !has(other, db, name)));
        }
        let mut taken = Taken::default();
        let dbs: Vec<_> = keyspace.used_databases().collect();
        for stripe in beside.stripes() {
            taken.take(&mut stripe.lock(), dbs.iter().copied());
        }
        assert_eq!(taken.keys(), 2);
        assert_eq!(keyspace.used_databases().map(|db| db.0).collect::<Vec<_>>(), [0, 7]);
    }

    #[test]
    #[cfg_attr(miri, ignore = "needs tables of many keys")]
    fn outgrown_arrays_wait_for_readers_and_for_who_frees_them() {
        let keyspace = Keyspace::new(1, Assignment::ByHash);
        let outgrown = &keyspace.common.outgrown;
        fill(&keyspace, 0..10_000);
        let (arrays, bytes) = outgrown.waiting();
        assert!(arrays > 2 && bytes > 0, "those of entries and of what expires");
        let reader = keyspace.world().register();
        reader.enter();
        fill(&keyspace, 10_000..100_000);
        keyspace.wait_for_outgrown(Duration::from_secs(600));
        keyspace.collect_outgrown();
        let (arrays, bytes) = outgrown.waiting();
        assert!(arrays > 2 && bytes > 0, "a reader may be looking at them");
        reader.leave();
        keyspace.collect_outgrown();
        assert_eq!(outgrown.waiting(), (0, 0));
    }

    proptest! {
        #[test]
        fn strings_with_and_without_expiry_agree_with_a_model(
            ops in proptest::collection::vec((0u8..10, 0u8..40, 0usize..700), 0..if cfg!(miri) { 12 } else { 400 }),
            has_slots: bool,
        ) {
            let assignment = if has_slots { Assignment::BySlot } else { Assignment::ByHash };
            let keyspace = Keyspace::new(2, assignment);
            let mut model: BTreeMap<Vec<u8>, (Vec<u8>, Option<i64>)> = BTreeMap::new();
            for (op, number, size) in ops {
                let name = format!("key:{number}").into_bytes();
                let value = if size % 5 == 0 { size.to_string().into_bytes() } else { vec![b'v'; size] };
                match op {
                    0 | 1 => {
                        let expiry = (op == 1).then_some(Millis(size as i64));
                        let entry = Entry::new_string(&name, &value, expiry, 0);
                        with(&keyspace, &name, |s, key| drop(s.put(DB, key.hash, entry)));
                        model.insert(name, (value, expiry.map(|e| e.0)));
                    }
                    2 => {
                        let gone = with(&keyspace, &name, |s, key| s.remove(DB, key).is_some());
                        prop_assert_eq!(gone, model.remove(&name).is_some());
                    }
                    3 => {
                        let expiry = (size % 2 == 0).then_some(size as i64);
                        let done = with(&keyspace, &name, |s, key| s.set_expiry(DB, key, expiry.map(Millis)));
                        prop_assert_eq!(done, model.contains_key(&name));
                        if let Some(entry) = model.get_mut(&name) { entry.1 = expiry; }
                    }
                    6 => {
                        with(&keyspace, &name, |s, key| {
                            let entry = s.find(DB, key).filter(|entry| !entry.is_cold());
                            let bytes = entry.and_then(|entry| entry.string()).map(|s| s.to_vec());
                            let Some(bytes) = bytes else { return };
                            let location = keep(&bytes);
                            let entry = s.make_cold(DB, key, location);
                            // A number stays.
                            if entry.is_none() { store().expect("it is set").release(location); }
                        });
                    }
                    7 => thaw(&keyspace, &name, if size % 2 == 0 { Record::Goes } else { Record::Stays }),
                    9 => with(&keyspace, &name, |s, key| {
                        let copy = s.find(DB, key).and_then(|entry| entry.copy());
                        let left = s.make_cold_again(DB, key);
                        assert_eq!(left.is_some(), copy.is_some());
                        assert_eq!(s.cold(DB, key).filter(|_| copy.is_some()).map(|cold| cold.location), copy);
                    }),
                    8 => {
                        let old = format!("key:{}", size % 40).into_bytes();
                        let entry = with(&keyspace, &old, |s, key| s.remove(DB, key));
                        prop_assert_eq!(entry.is_some(), model.contains_key(&old));
                        if let Some(entry) = entry {
                            let entry = entry.rekeyed(&name);
                            with(&keyspace, &name, |s, key| drop(s.put(DB, key.hash, entry)));
                            let value = model.remove(&old).expect("the model has it");
                            model.insert(name, value);
                        }
                    }
                    4 => {
                        thaw(&keyspace, &name, Record::Stays);
                        let done = with(&keyspace, &name, |s, key| {
                            s.heap_string(DB, key).map(|string| string.extend(&value)).is_some()
                        });
                        prop_assert_eq!(done, model.contains_key(&name));
                        if let Some(entry) = model.get_mut(&name) { entry.0.extend(value); }
                    }
                    _ => {
                        let done = with(&keyspace, &name, |s, key| {
                            s.update(DB, key, |entry| entry.overwrite_string(&value)).unwrap_or(false)
                        });
                        if done && let Some(entry) = model.get_mut(&name) { entry.0 = value; }
                    }
                }
                for (name, (value, expiry)) in &model {
                    with(&keyspace, name, |s, key| {
                        let entry = s.find(DB, key).expect("the model has it");
                        assert_eq!(entry.key(), &name[..]);
                        if let Some(cold) = entry.cold() {
                            let store = store().expect("it is set");
                            assert_eq!(&store.read(cold.location).expect("it is kept"), value);
                            assert_eq!(entry.type_name(), "string");
                            assert!(entry.value_bytes() <= value.len().max(8) * 3);
                        } else {
                            assert_eq!(&entry.string().expect("a string").to_vec(), value);
                        }
                        if let Some(copy) = entry.copy() {
                            let kept = store().expect("it is set").read(copy);
                            assert_eq!(&kept.expect("it is kept"), value);
                        }
                        assert_eq!(entry.expiry().map(|e| e.0), *expiry);
                        let index = s.tables_of(DB, key.hash).expiring().get(key.hash, key.bytes);
                        assert_eq!(index.map(|i| i.entry().key()), expiry.map(|_| key.bytes));
                    });
                }
            }
        }
    }
}

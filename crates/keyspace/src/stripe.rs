//! A stripe: a lock and a small table for each database, or in cluster mode for each slot of each
//! database.
//!
//! The methods of [`StripeData`] are the only way to change an entry. Each calls `before_change`
//! first, in which a running snapshot takes what it has not taken yet. None of them knows about
//! expiry rules, effects or commands. The engine builds on them.
#![allow(unsafe_code)]

mod guards;

use crate::by_slot::BySlot;
use crate::byte_lock::ByteLock;
use crate::entry::Entry;
use crate::field_times::FieldTimes;
use crate::holds::Hold;
use crate::kind::{Kind, Object};
use crate::opened::Opened;
use crate::outgrown::Outgrown;
use crate::slot_bits::SlotBits;
use crate::snapshot::{StripeSnapshot, Touch};
use crate::tables::TableId;
use crate::types::{DbIndex, Key, Millis, Slot};
use crate::world::World;
use rdb::module::Module;
use std::any::Any;
use std::cell::UnsafeCell;
use std::ops::{Deref, DerefMut};
use std::ptr::{self, NonNull};
use std::sync::Arc;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU32, Ordering::*};
use structs::heap_string::HeapString;
use structs::labels::LabelIndex;
use structs::table::{Item, Table};

/// An expiring entry, as the index of such entries stores it: an alias, not an owner.
#[repr(transparent)]
pub struct Expiring(NonNull<u8>);

// SAFETY: only used under the stripe's lock, as the entry itself.
unsafe impl Send for Expiring {}
// SAFETY: as above.
unsafe impl Sync for Expiring {}

// SAFETY: transparent over `NonNull<u8>`; it is removed before its entry is.
unsafe impl Item for Expiring {
    const MAPS_ARRAYS: bool = true;
    fn key(&self) -> &[u8] {
        // SAFETY: the index only holds addresses of live entries, whose keys outlive `self`.
        unsafe { &*ptr::from_ref(Entry::alias(self.0).key()) }
    }
}

impl Expiring {
    /// Returns the entry.
    pub fn entry(&self) -> &Entry {
        // SAFETY: `Entry` is transparent over the same address, and alive as long as the index
        // holds it.
        unsafe { &*ptr::from_ref(&self.0).cast::<Entry>() }
    }
}

/// The contents of a stripe for one database.
#[derive(Default)]
#[repr(C)]
pub struct DbTables {
    pub(crate) entries: Table<Entry>,
    pub(crate) expiring: Table<Expiring>,
    pub(crate) field_times: FieldTimes,
    /// The keys of values that have labels, if there are any.
    pub(crate) labels: Option<Box<LabelIndex>>,
}

impl DbTables {
    /// Returns all entries.
    pub fn entries(&self) -> &Table<Entry> {
        &self.entries
    }
    /// Returns the entries that expire.
    pub fn expiring(&self) -> &Table<Expiring> {
        &self.expiring
    }
    /// Returns the hashes with expiring fields.
    pub fn field_times(&self) -> &FieldTimes {
        &self.field_times
    }
    /// Returns the index of keys by the labels of their values, if there are any.
    pub fn labels(&self) -> Option<&LabelIndex> {
        self.labels.as_deref()
    }

    /// Lists an entry that is here by the labels of its value. One that is not in RAM stays as it
    /// is listed.
    fn list_labels(labels: &mut Option<Box<LabelIndex>>, entry: &Entry) {
        if entry.is_cold() && entry.kind() == Kind::Module {
            return;
        }
        match entry.object::<Module>().and_then(|module| module.value().labels()) {
            Some(of_value) => labels.get_or_insert_default().list(entry.key(), of_value),
            None => Self::unlist_labels(labels, entry.key()),
        }
    }

    fn unlist_labels(labels: &mut Option<Box<LabelIndex>>, key: &[u8]) {
        if let Some(index) = labels {
            index.remove(key);
            if index.is_empty() {
                *labels = None;
            }
        }
    }
}

/// The state that the stripes of one keyspace share.
pub(crate) struct Common {
    pub world: World,
    pub outgrown: Outgrown,
    /// Number of stripes that hold something of each database. The first database is not counted.
    pub stripes_with: Box<[AtomicU32]>,
    /// Slots that walks, counts and samples pass over.
    pub hidden: SlotBits,
    /// What settles a change that a mark tells of.
    pub settler: OnceLock<Settler>,
}

/// Settles the change that a mark tells of. Returns whether the mark is needed no longer.
pub type Settler = Box<dyn Fn(u32) -> bool + Send + Sync>;

/// The contents of a stripe, accessed under its lock. Fields that every command reads come first
/// and share a cache line with the lock.
#[repr(C)]
pub struct StripeData {
    /// Whether there is an attachment. Every write checks it.
    has_attachment: bool,
    /// Whether a snapshot or a hold has to be asked before an entry changes.
    is_guarded: bool,
    /// The tables of database 0, if each slot has its own.
    pub(crate) by_slot: BySlot,
    /// The position in the journal after the last write to this stripe. The engine updates it while
    /// replies wait for the disk.
    pub written: u64,
    /// Database 0, which contains nearly all keys. Empty if each slot has its own tables
    /// (`by_slot`).
    pub(crate) first: DbTables,
    /// The other databases that hold anything, in order. Most servers only use the first database,
    /// and space for a hundred thousand databases in each stripe would be a gigabyte.
    pub(crate) others: Vec<(TableId, Box<DbTables>)>,
    pub(crate) snapshot: Option<Box<StripeSnapshot>>,
    /// Boxed because few stripes have holds at a time.
    #[allow(clippy::box_collection)]
    holds: Option<Box<Vec<Hold>>>,
    /// The long command that has the lock and changes keys that it holds, or 0.
    pub(crate) changer: u64,
    /// The attachment ([`StripeData::attachment`]).
    attachment: Option<Box<dyn Any + Send>>,
    pub(crate) common: Arc<Common>,
    /// The version of the last value that became cold.
    cold_version: u8,
    /// Collections that do not lie in their entries although they might, by database and hash.
    pub(crate) opened: Opened<(DbIndex, u64)>,
}

impl StripeData {
    /// Returns whether the engine keeps anything beside the entries: clients that watch, track or
    /// wait for keys.
    #[inline]
    pub fn has_attachment(&self) -> bool {
        self.has_attachment
    }

    /// Returns the data that the engine keeps beside the entries, under the same lock. The keyspace
    /// does not know its type. There is only one.
    pub fn attachment<T: Any>(&self) -> Option<&T> {
        self.attachment.as_ref()?.downcast_ref()
    }

    /// Changes the attachment. It is created if there is none, and dropped if `is_empty` returns
    /// true afterwards.
    pub fn change_attachment<T: Any + Send + Default, R>(
        &mut self,
        change: impl FnOnce(&mut T) -> R,
        is_empty: impl FnOnce(&T) -> bool,
    ) -> R {
        let any = self.attachment.get_or_insert_with(|| Box::new(T::default()));
        let attachment = any.downcast_mut().expect("there is one type of attachment");
        let result = change(attachment);
        if is_empty(attachment) {
            self.attachment = None;
        }
        self.has_attachment = self.attachment.is_some();
        result
    }

    /// Returns the version of the next value that becomes cold.
    pub(crate) fn next_cold_version(&mut self) -> u8 {
        self.cold_version = self.cold_version.wrapping_add(1);
        self.cold_version
    }

    /// Returns the entry, expired or not.
    #[inline]
    pub fn find(&self, db: DbIndex, key: Key<'_>) -> Option<&Entry> {
        self.tables_of(db, key.hash).entries.get(key.hash, key.bytes)
    }

    /// Returns the entry, expired or not, to change its contents. It must stay in its block.
    #[inline]
    pub fn find_mut(&mut self, db: DbIndex, key: Key<'_>) -> Option<&mut Entry> {
        self.before_change(db, key.hash, Touch::Elements);
        self.held_tables_mut(db, key.hash)?.entries.get_mut(key.hash, key.bytes)
    }

    /// Returns the entry of any database that has this hash and that `same` accepts. The caller may
    /// only change what matters neither to a snapshot nor to a long command that holds the entry.
    pub(crate) fn find_by_hash(
        &mut self,
        hash: u64,
        mut same: impl FnMut(&Entry) -> bool,
    ) -> Option<(DbIndex, &mut Entry)> {
        let slot = self.table_id(DbIndex(0), hash).slot;
        let has = |id: &TableId| {
            id.slot == slot && self.table(*id).entries.find_item(hash, &mut same).is_some()
        };
        let id = { self.table_ids().find(has) }?;
        let entry = self.held_tables_mut(id.db, hash)?.entries.find_mut(hash, same)?;
        Some((id.db, entry))
    }

    /// Lets `change` rewrite the entry. It may move to another block.
    #[inline]
    pub fn update<R>(
        &mut self,
        db: DbIndex,
        key: Key<'_>,
        change: impl FnOnce(&mut Entry) -> R,
    ) -> Option<R> {
        self.before_change(db, key.hash, Touch::Whole);
        self.rewrite(db, key, change)
    }

    #[inline]
    pub(crate) fn rewrite<R>(
        &mut self,
        db: DbIndex,
        key: Key<'_>,
        change: impl FnOnce(&mut Entry) -> R,
    ) -> Option<R> {
        let DbTables { entries, expiring, field_times, labels } =
            self.held_tables_mut(db, key.hash)?;
        let mut slot = entries.occupied(key.hash, key.bytes)?;
        // Look up the index first: afterwards the old address may be invalid.
        let was_expiring = slot.get().expiry().is_some();
        let index = if was_expiring { expiring.occupied(key.hash, key.bytes) } else { None };
        let (result, address, expires) = slot.update(|entry| {
            let noted = entry.noted_time();
            let may_be_listed = entry.kind() == Kind::Module;
            let result = change(entry);
            if may_be_listed || entry.kind() == Kind::Module {
                DbTables::list_labels(labels, entry);
            }
            // Another hash value may have replaced the listed one.
            if noted != entry.noted_time() {
                field_times.remove(key.hash, noted);
            }
            field_times.add(key.hash, entry);
            (result, entry.address(), entry.expiry().is_some())
        });
        match (index, expires) {
            (None, false) => return Some(result),
            (Some(mut slot), true) => slot.update(|alias| *alias = Expiring(address)),
            (Some(slot), false) => drop(slot.remove_hashed(key.hash)),
            (None, true) => expiring.insert_absent(key.hash, Expiring(address)),
        }
        if expiring.has_retired() {
            self.retire(db, key.hash);
        }
        Some(result)
    }

    /// Returns the value, if it is a `T`. It may only be changed through this reference.
    #[inline]
    pub fn object_mut<T: Object>(&mut self, db: DbIndex, key: Key<'_>) -> Option<&mut T> {
        let entry: *mut Entry = self.find_mut(db, key)?;
        // SAFETY: the entry is alive and borrowed through `self`, which nothing has used since.
        let entry = unsafe { &mut *entry };
        if entry.needs_preparation() {
            return self.ready(db, key)?.object_mut::<T>();
        }
        entry.object_mut::<T>()
    }

    /// Returns the string in its own block, to edit it.
    pub fn heap_string(&mut self, db: DbIndex, key: Key<'_>) -> Option<&mut HeapString> {
        self.update(db, key, |entry| entry.heap_string().is_some())?.then_some(())?;
        self.held_tables_mut(db, key.hash)?.entries.get_mut(key.hash, key.bytes)?.heap_string()
    }

    /// Adds an entry whose key is absent.
    #[inline]
    pub fn insert_absent(&mut self, db: DbIndex, hash: u64, mut entry: Entry) {
        self.before_change(db, hash, Touch::Whole);
        let tables = self.tables_mut(db, hash);
        entry.forget_noted_time();
        tables.field_times.add(hash, &mut entry);
        let mut has_retired = false;
        if entry.expiry().is_some() {
            tables.expiring.insert_absent(hash, Expiring(entry.address()));
            has_retired = tables.expiring.has_retired();
        }
        if entry.kind() == Kind::Module {
            DbTables::list_labels(&mut tables.labels, &entry);
        }
        tables.entries.insert_absent(hash, entry);
        if has_retired || tables.entries.has_retired() {
            self.retire(db, hash);
        }
    }

    #[cold]
    fn retire(&mut self, db: DbIndex, hash: u64) {
        let tables = self.tables_mut(db, hash);
        let retired = [tables.entries.take_retired(), tables.expiring.take_retired()];
        for buckets in retired.into_iter().flatten() {
            self.common.outgrown.add(&self.common.world, buckets);
        }
    }

    /// Adds an entry, or replaces the one with the same key. Returns the old one.
    pub fn put(&mut self, db: DbIndex, hash: u64, mut entry: Entry) -> Option<Entry> {
        entry.forget_noted_time();
        let bytes: &[u8] = entry.key();
        // SAFETY: `entry` is not dropped before the last use of the key.
        let key = Key { bytes: unsafe { &*ptr::from_ref(bytes) }, hash };
        if self.find(db, key).is_none() {
            self.insert_absent(db, hash, entry);
            return None;
        }
        let mut entry = Some(entry);
        self.update(db, key, |old| entry.take().map(|new| std::mem::replace(old, new)))?
    }

    /// Removes the entry.
    pub fn remove(&mut self, db: DbIndex, key: Key<'_>) -> Option<Entry> {
        self.before_change(db, key.hash, Touch::Whole);
        let tables = self.held_tables_mut(db, key.hash)?;
        let slot = tables.entries.occupied(key.hash, key.bytes)?;
        let mut has_retired = false;
        if slot.get().expiry().is_some() {
            tables.expiring.remove(key.hash, key.bytes);
            has_retired = tables.expiring.has_retired();
        }
        let slot = tables.entries.occupied(key.hash, key.bytes)?;
        let mut entry = slot.remove_hashed(key.hash);
        if let Some(noted) = entry.noted_time() {
            tables.field_times.remove(key.hash, Some(noted));
            entry.forget_noted_time();
        }
        if entry.kind() == Kind::Module {
            DbTables::unlist_labels(&mut tables.labels, entry.key());
        }
        let is_last = tables.entries.is_empty();
        if has_retired || tables.entries.has_retired() {
            self.retire(db, key.hash);
        }
        if is_last {
            // Expiring keys are also among the entries, so the other table is empty, too.
            self.end_tables(self.table_id(db, key.hash));
        }
        Some(entry)
    }

    /// Sets or clears an entry's expiry. Returns whether there is such an entry.
    pub fn set_expiry(&mut self, db: DbIndex, key: Key<'_>, expiry: Option<Millis>) -> bool {
        self.before_change(db, key.hash, Touch::Elements);
        self.rewrite(db, key, |entry| entry.set_expiry(expiry)).is_some()
    }

    /// Updates the listing of a hash after its fields or their expiry have changed.
    pub fn list_fields(&mut self, db: DbIndex, key: Key<'_>) {
        let Some(tables) = self.held_tables_mut(db, key.hash) else { return };
        if let Some(entry) = tables.entries.get_mut(key.hash, key.bytes) {
            tables.field_times.add(key.hash, entry);
        }
    }

    /// Updates the listing of a value after its labels have changed.
    pub fn list_labels(&mut self, db: DbIndex, key: Key<'_>) {
        let Some(tables) = self.held_tables_mut(db, key.hash) else { return };
        if let Some(entry) = tables.entries.get(key.hash, key.bytes) {
            DbTables::list_labels(&mut tables.labels, entry);
        }
    }

    /// Returns the key of a listed hash whose key has this hash.
    pub fn find_listed(&self, db: DbIndex, hash: u64) -> Option<Box<[u8]>> {
        let entries = &self.tables_of(db, hash).entries;
        let mut found = None;
        entries.scan(entries.position_of(hash), |entry| {
            if entry.noted_time().is_some() && Key::new(entry.key()).hash == hash {
                found = Some(Box::from(entry.key()));
            }
        });
        found
    }

    /// Removes a listing for which there is no hash.
    pub fn unlist(&mut self, db: DbIndex, hash: u64, time: i64) {
        if let Some(tables) = self.held_tables_mut(db, hash) {
            tables.field_times.remove(hash, Some(time));
        }
    }
}

/// A lock and the data that it protects, on their own cache lines.
#[repr(C, align(64))]
pub struct Stripe {
    lock: ByteLock,
    /// A change that is not settled ([`Keyspace::set_settler`](crate::Keyspace::set_settler)), or
    /// 0. Set under the lock.
    mark: AtomicU32,
    data: UnsafeCell<StripeData>,
}

const _: () = assert!(
    std::mem::offset_of!(Stripe, data)
        + std::mem::offset_of!(StripeData, first)
        + Table::<Entry>::HOT_BYTES
        <= 64,
    "lock, flags and the head of the first table are in one cache line"
);

// SAFETY: `data` is only reached under `lock` or while the world stands still.
unsafe impl Sync for Stripe {}

impl Stripe {
    pub(crate) fn new(common: Arc<Common>, has_slots: bool) -> Stripe {
        Stripe {
            lock: ByteLock::default(),
            mark: AtomicU32::new(0),
            data: UnsafeCell::new(StripeData {
                by_slot: BySlot::new(has_slots),
                written: 0,
                first: DbTables::default(),
                others: Vec::new(),
                has_attachment: false,
                is_guarded: false,
                snapshot: None,
                holds: None,
                changer: 0,
                attachment: None,
                common,
                cold_version: 0,
                opened: Opened::default(),
            }),
        }
    }

    /// Locks the stripe for one visit. Spins a little, then tries again now and then. The caller is
    /// inside the world or takes part in stopping it.
    #[inline]
    pub fn lock(&self) -> StripeGuard<'_> {
        self.acquire();
        StripeGuard(self)
    }

    /// Locks the stripe for one visit, unless another thread holds the lock.
    #[inline]
    pub fn try_lock(&self) -> Option<StripeGuard<'_>> {
        self.try_acquire().then(|| StripeGuard(self))
    }

    /// Does the same with a few attempts, because most stripes are locked only for a moment.
    #[inline]
    pub fn try_lock_soon(&self) -> Option<StripeGuard<'_>> {
        crate::locks::try_soon(self).then(|| StripeGuard(self))
    }

    /// Locks until [`Stripe::release`].
    #[inline]
    pub(crate) fn acquire(&self) {
        self.lock.lock();
        self.settle();
    }

    /// Locks if that is possible at once. Returns whether it did.
    #[inline]
    pub(crate) fn try_acquire(&self) -> bool {
        let is_locked = self.lock.try_lock();
        if is_locked {
            self.settle();
        }
        is_locked
    }

    /// Settles what the last change has left. This thread has just locked the stripe.
    #[inline]
    fn settle(&self) {
        let mark = self.mark.load(Acquire);
        if mark != 0 {
            self.settle_change(mark);
        }
    }

    #[cold]
    fn settle_change(&self, mark: u32) {
        // SAFETY: this thread has just locked the stripe, and nothing refers to its contents.
        let common = unsafe { &self.data().common };
        if common.settler.get().is_none_or(|settles| settles(mark)) {
            self.mark.store(0, Relaxed);
        }
    }

    /// Leaves a mark. The caller holds the lock.
    #[inline]
    pub(crate) fn set_mark(&self, mark: u32) {
        self.mark.store(mark, Relaxed);
    }

    /// Removes a mark of a change that is settled, without the lock, if `is_its` says that it is
    /// that mark.
    #[inline]
    pub fn clear_mark(&self, is_its: impl FnOnce(u32) -> bool) {
        let mark = self.mark.load(Relaxed);
        if is_its(mark) {
            // If it fails, another thread has put its own mark there or has settled this one.
            let _ = self.mark.compare_exchange(mark, 0, Release, Relaxed);
        }
    }

    /// Unlocks.
    ///
    /// # Safety
    /// The caller holds the lock and has no reference into the stripe.
    #[inline]
    pub(crate) unsafe fn release(&self) {
        self.lock.unlock();
    }

    /// Returns the contents for reading.
    ///
    /// # Safety
    /// The caller holds the lock or has stopped the world for as long as the reference lives, and
    /// makes no exclusive reference meanwhile.
    #[inline]
    pub(crate) unsafe fn data(&self) -> &StripeData {
        // SAFETY: the caller's contract.
        unsafe { &*self.data.get() }
    }

    /// Returns the contents for changes.
    ///
    /// # Safety
    /// The caller holds the lock or has stopped the world for as long as the reference lives, and
    /// makes no other reference meanwhile.
    #[inline]
    #[allow(clippy::mut_from_ref)]
    pub(crate) unsafe fn data_mut(&self) -> &mut StripeData {
        // SAFETY: the caller's contract.
        unsafe { &mut *self.data.get() }
    }

    /// Prefetches the stripe's head, which leads to the bucket.
    #[inline]
    pub fn prefetch(&self) {
        structs::table::prefetch(ptr::from_ref(self).cast());
    }

    /// The entries of database 0 that a key with this hash belongs to. May run beside a writer.
    ///
    /// # Safety
    /// As for [`Stripe::prefetch_bucket`].
    #[inline]
    unsafe fn entries_of(&self, hash: u64) -> *const Table<Entry> {
        let data = self.data.get();
        // SAFETY: no reference into the contents is made; `first` and the arrays of slots never
        // move while the caller is inside the world.
        unsafe {
            let tables = BySlot::address(&raw const (*data).by_slot, Slot::in_hash(hash));
            let tables = if tables.is_null() { &raw const (*data).first } else { tables };
            &raw const (*tables).entries
        }
    }

    /// Prefetches the head of the table of a key of database `db`, which leads to the bucket. Only
    /// needed if keys are assigned by slot: else it is in the stripe's head. May run beside a
    /// writer.
    ///
    /// # Safety
    /// As for [`Stripe::prefetch_bucket`].
    #[inline]
    pub unsafe fn prefetch_table(&self, db: DbIndex, hash: u64) {
        if db.0 == 0 {
            // SAFETY: the caller's contract.
            structs::table::prefetch(unsafe { self.entries_of(hash) }.cast());
        }
    }

    /// Prefetches the bucket of a key of database `db`. May run beside a writer.
    ///
    /// # Safety
    /// The calling thread must be inside the world, so that no array that it reads is freed.
    #[inline]
    pub unsafe fn prefetch_bucket(&self, db: DbIndex, hash: u64) {
        if db.0 == 0 {
            // SAFETY: the caller's contract; the table's racy reads are atomics.
            unsafe { Table::prefetch(self.entries_of(hash), hash) }
        }
    }

    /// Prefetches the entry itself, once its bucket is in the cache.
    ///
    /// # Safety
    /// As for [`Stripe::prefetch_bucket`].
    #[inline]
    pub unsafe fn prefetch_entry(&self, db: DbIndex, hash: u64) {
        if db.0 == 0 {
            // SAFETY: as above.
            unsafe { Table::prefetch_item(self.entries_of(hash), hash) }
        }
    }
}

/// A stripe that is locked for one visit.
pub struct StripeGuard<'s>(&'s Stripe);

impl Deref for StripeGuard<'_> {
    type Target = StripeData;
    #[inline]
    fn deref(&self) -> &StripeData {
        // SAFETY: the guard has the lock, and gives exclusive access only through `&mut self`.
        unsafe { self.0.data() }
    }
}

impl DerefMut for StripeGuard<'_> {
    #[inline]
    fn deref_mut(&mut self) -> &mut StripeData {
        // SAFETY: the guard has the lock, and is borrowed exclusively.
        unsafe { self.0.data_mut() }
    }
}

impl Drop for StripeGuard<'_> {
    #[inline]
    fn drop(&mut self) {
        // SAFETY: the guard has the lock, and whatever borrowed it is gone.
        unsafe { self.0.release() }
    }
}

//! A stripe: a lock and, for every database and in cluster mode for every slot of it, a small table.
//!
//! The methods of [`StripeData`] are the only way to change an entry, and each calls
//! `before_change` first: that is where a running snapshot takes what it has not yet taken.
//! None of them knows about expiry rules, effects or commands; the engine builds on them.
#![allow(unsafe_code)]

mod guards;

use crate::byte_lock::ByteLock;
use crate::entry::Entry;
use crate::field_times::FieldTimes;
use crate::holds::Hold;
use crate::kind::Object;
use crate::outgrown::Outgrown;
use crate::slot_bits::SlotBits;
use crate::snapshot::{StripeSnapshot, Touch};
use crate::tables::TableId;
use crate::types::{DbIndex, Key, Millis};
use crate::world::World;
use std::any::Any;
use std::cell::UnsafeCell;
use std::ops::{Deref, DerefMut};
use std::ptr::{self, NonNull};
use std::sync::Arc;
use std::sync::atomic::AtomicU32;
use structs::heap_string::HeapString;
use structs::table::{Item, Table};

/// An entry that expires, as the index of such entries holds it: an alias, not an owner.
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
    /// The entry.
    pub fn entry(&self) -> &Entry {
        // SAFETY: `Entry` is transparent over the same address, and alive as long as the index
        // holds it.
        unsafe { &*ptr::from_ref(&self.0).cast::<Entry>() }
    }
}

/// What a stripe holds of one database.
#[derive(Default)]
#[repr(C)]
pub struct DbTables {
    pub(crate) entries: Table<Entry>,
    pub(crate) expiring: Table<Expiring>,
    pub(crate) field_times: FieldTimes,
}

impl DbTables {
    /// All entries.
    pub fn entries(&self) -> &Table<Entry> {
        &self.entries
    }
    /// The entries that expire.
    pub fn expiring(&self) -> &Table<Expiring> {
        &self.expiring
    }
    /// The hashes with fields that expire.
    pub fn field_times(&self) -> &FieldTimes {
        &self.field_times
    }
}

/// What the stripes of one keyspace share.
pub(crate) struct Common {
    pub world: World,
    pub outgrown: Outgrown,
    /// How many stripes hold something of each database; the first is not counted.
    pub stripes_with: Box<[AtomicU32]>,
    /// Slots that walks, counts and samples pass over.
    pub hidden: SlotBits,
}

/// The contents of a stripe; reached through its lock. What every command looks at comes first:
/// it shares a cache line with the lock.
#[repr(C)]
pub struct StripeData {
    /// Whether there is an attachment, which every write asks.
    has_attachment: bool,
    /// A snapshot or a hold has to be asked before an entry changes.
    is_guarded: bool,
    /// 1 where each slot has tables of its own, else 0: together with the number of a database it
    /// tells with one test whether `first` is meant.
    pub(crate) split: u32,
    /// The position in the journal behind the last write here; kept by the engine while replies wait
    /// for the disk.
    pub written: u64,
    /// Database 0, which nearly every key is in; empty where each slot has tables of its own.
    pub(crate) first: DbTables,
    /// Those of the others that hold anything, in order: most servers use only the first database,
    /// and room for a hundred thousand in each stripe would be a gigabyte.
    pub(crate) others: Vec<(TableId, Box<DbTables>)>,
    pub(crate) snapshot: Option<Box<StripeSnapshot>>,
    /// Boxed because hardly any stripe has one at a time.
    #[allow(clippy::box_collection)]
    holds: Option<Box<Vec<Hold>>>,
    /// The long command that has the lock and changes what it holds itself; 0 if none does.
    pub(crate) changer: u64,
    /// See [`StripeData::attachment`].
    attachment: Option<Box<dyn Any + Send>>,
    pub(crate) common: Arc<Common>,
    /// The version of the value that went cold last.
    cold_version: u8,
}

impl StripeData {
    /// Whether the engine keeps anything beside the entries: clients watch, track or wait for keys.
    #[inline]
    pub fn has_attachment(&self) -> bool {
        self.has_attachment
    }

    /// What the engine keeps beside the entries, under the same lock. The keyspace does not know
    /// its type; there is only one.
    pub fn attachment<T: Any>(&self) -> Option<&T> {
        self.attachment.as_ref()?.downcast_ref()
    }

    /// Changes the attachment, which is made where there is none and dropped where `is_empty` says
    /// that nothing is left of it.
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

    /// The version of the next value that goes cold.
    pub(crate) fn next_cold_version(&mut self) -> u8 {
        self.cold_version = self.cold_version.wrapping_add(1);
        self.cold_version
    }

    /// The entry, expired or not.
    #[inline]
    pub fn find(&self, db: DbIndex, key: Key<'_>) -> Option<&Entry> {
        self.tables_of(db, key.hash).entries.get(key.hash, key.bytes)
    }

    /// The entry, expired or not, to change what it holds; it must stay in its block.
    #[inline]
    pub fn find_mut(&mut self, db: DbIndex, key: Key<'_>) -> Option<&mut Entry> {
        self.before_change(db, key.hash, Touch::Elements);
        self.held_tables_mut(db, key.hash)?.entries.get_mut(key.hash, key.bytes)
    }

    /// The entry of any database with this hash that `same` accepts. What is changed of it must not
    /// matter to a snapshot, nor to a long command that holds it.
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

    /// Lets `change` rewrite the entry; it may move to another block.
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
        let DbTables { entries, expiring, field_times } = self.held_tables_mut(db, key.hash)?;
        let mut slot = entries.occupied(key.hash, key.bytes)?;
        // The index is looked up first: afterwards the old address may be no entry any more.
        let was_expiring = slot.get().expiry().is_some();
        let index = if was_expiring { expiring.occupied(key.hash, key.bytes) } else { None };
        let (result, address, expires) = slot.update(|entry| {
            let noted = entry.noted_time();
            let result = change(entry);
            // Another hash may have taken the place of the one that was listed.
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

    /// The value, if it is a `T`; to be changed only through this.
    #[inline]
    pub fn object_mut<T: Object>(&mut self, db: DbIndex, key: Key<'_>) -> Option<&mut T> {
        let entry: *mut Entry = self.find_mut(db, key)?;
        // SAFETY: the entry is alive and borrowed through `self`, which nothing has used since.
        let entry = unsafe { &mut *entry };
        if entry.is_copied() {
            self.drop_copy(db, key);
            return self.find_mut(db, key)?.object_mut::<T>();
        }
        entry.object_mut::<T>()
    }

    /// The string in a block of its own, to edit it.
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

    /// Puts an entry in the place of the one with the same key, if any; returns the old one.
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
        let is_last = tables.entries.is_empty();
        if has_retired || tables.entries.has_retired() {
            self.retire(db, key.hash);
        }
        if is_last && db.0 | self.split > 0 {
            // What expires is among the entries, so nothing is in the other table either.
            self.remove_other(self.table_id(db, key.hash));
        }
        Some(entry)
    }

    /// Sets or clears an entry's expiry.
    pub fn set_expiry(&mut self, db: DbIndex, key: Key<'_>, expiry: Option<Millis>) -> bool {
        self.before_change(db, key.hash, Touch::Elements);
        self.rewrite(db, key, |entry| entry.set_expiry(expiry)).is_some()
    }

    /// Lists a hash anew after its fields, or when they expire, have changed.
    pub fn list_fields(&mut self, db: DbIndex, key: Key<'_>) {
        let Some(tables) = self.held_tables_mut(db, key.hash) else { return };
        if let Some(entry) = tables.entries.get_mut(key.hash, key.bytes) {
            tables.field_times.add(key.hash, entry);
        }
    }

    /// The key of a hash that is listed under the hash of its key.
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

    /// Forgets that fields of such a hash are due, because there is none.
    pub fn unlist(&mut self, db: DbIndex, hash: u64, time: i64) {
        if let Some(tables) = self.held_tables_mut(db, hash) {
            tables.field_times.remove(hash, Some(time));
        }
    }
}

/// A lock and what it protects, on cache lines of their own.
#[repr(C, align(64))]
pub struct Stripe {
    lock: ByteLock,
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
            data: UnsafeCell::new(StripeData {
                split: u32::from(has_slots),
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
            }),
        }
    }

    /// Locks the stripe for one visit; spins a little, then looks again now and then. The caller is
    /// inside the world or has a part in stopping it.
    #[inline]
    pub fn lock(&self) -> StripeGuard<'_> {
        self.acquire();
        StripeGuard(self)
    }

    /// Locks the stripe for one visit, unless another thread has it.
    #[inline]
    pub fn try_lock(&self) -> Option<StripeGuard<'_>> {
        self.try_acquire().then(|| StripeGuard(self))
    }

    /// The same, after a few attempts: most stripes are locked for a moment only.
    #[inline]
    pub fn try_lock_soon(&self) -> Option<StripeGuard<'_>> {
        crate::locks::try_soon(self).then(|| StripeGuard(self))
    }

    /// Locks, until [`Stripe::release`].
    #[inline]
    pub(crate) fn acquire(&self) {
        self.lock.lock();
    }

    /// Locks if that is possible at once.
    #[inline]
    pub(crate) fn try_acquire(&self) -> bool {
        self.lock.try_lock()
    }

    /// Unlocks.
    ///
    /// # Safety
    /// The caller holds the lock and has no reference into the stripe.
    #[inline]
    pub(crate) unsafe fn release(&self) {
        self.lock.unlock();
    }

    /// The contents, to read.
    ///
    /// # Safety
    /// The caller holds the lock or has stopped the world for as long as the reference lives, and
    /// makes no exclusive reference meanwhile.
    #[inline]
    pub(crate) unsafe fn data(&self) -> &StripeData {
        // SAFETY: the caller's contract.
        unsafe { &*self.data.get() }
    }

    /// The contents, to change.
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

    /// Fetches the stripe's head, which leads to the bucket.
    #[inline]
    pub fn prefetch(&self) {
        structs::table::prefetch(ptr::from_ref(self).cast());
    }

    /// Fetches the bucket that a key of database `db` is in. May run beside a writer.
    ///
    /// # Safety
    /// The calling thread must be inside the world, so that no array it looks at is freed.
    #[inline]
    pub unsafe fn prefetch_bucket(&self, db: DbIndex, hash: u64) {
        if db.0 == 0 {
            // SAFETY: `first` never moves; the table's racy reads are atomics.
            unsafe { Table::prefetch(&raw const (*self.data.get()).first.entries, hash) }
        }
    }

    /// Fetches the entry itself, once its bucket is in the cache.
    ///
    /// # Safety
    /// As for [`Stripe::prefetch_bucket`].
    #[inline]
    pub unsafe fn prefetch_entry(&self, db: DbIndex, hash: u64) {
        if db.0 == 0 {
            // SAFETY: as above.
            unsafe { Table::prefetch_item(&raw const (*self.data.get()).first.entries, hash) }
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

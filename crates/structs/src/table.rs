//! A hash table of thin items, kept in the order of their hashes.
//!
//! The keyspace and the big encodings of sets, hashes and sorted sets all use this table. An item
//! is one pointer to an allocation that holds its own key, so a slot costs 8 bytes and one more
//! for a fingerprint:
//!
//! ```text
//!  bucket: one cache line
//!  ┌──────────────────────┬──────────┬───────┬───────┬─ … ─┬───────┐
//!  │ 7 fingerprints (7 B) │ over (1) │ item0 │ item1 │     │ item6 │
//!  └──────────────────────┴──────────┴───────┴───────┴─ … ─┴───────┘
//! ```
//!
//! An item's *home* is `position(hash) * n / 2^64`: the table is an array of `n` buckets (any
//! number, not only powers of two) laid over the range of hashes **in order**. A full bucket
//! overflows into the next one; `over` counts the items that went past this bucket and tells a
//! lookup when it may stop (it saturates at 255 and then stays).
//!
//! Order is what makes the rest simple:
//!
//! - *Growth* lays the same range over more buckets (×1.12 to ×1.38, not ×2, so memory has no
//!   cliff; the step varies with the hash at hand, so that a thousand stripes do not all grow at
//!   the same fill). A cursor sweeps the old array; homes below it live in the new array, the
//!   others in the old. Each insertion moves a few homes, so no operation ever pauses.
//! - *SCAN* walks hash positions: its cursor means the same before, during and after growth, so an
//!   item that stays is returned, and returned once.
//! - *A snapshot* is the same walk, and "already written" is one comparison.
//!
//! Order has one danger: filling a small table with another's items in the other's order puts
//! them all into the same few buckets, and each insertion walks past all those before it. Tables
//! whose items clients and commands copy from one to the other (SUNIONSTORE, or SADD of what
//! SMEMBERS returned) therefore have an order each of their own: [`Salted`].
//!
//! Lookups that run beside a writer are not supported, with one exception: [`Table::prefetch`]
//! reads racily and therefore touches only atomics. It sees the old array until the last home has
//! moved. Old arrays must outlive such readers; the owner collects them with
//! [`Table::take_retired`] and frees them when it knows it may.
//!
//! Cost: 9.14 bytes a slot at a fill between 0.61 and 0.86, about 12 bytes an item. Rejected:
//! chained buckets (a Poisson tail of near-empty overflow buckets), power-of-two doubling (a
//! memory cliff), hashes stored beside the items (8 bytes each to save a re-hash at growth).
#![allow(unsafe_code)]

mod buckets;
mod order;

pub use buckets::{BUCKET_SLOTS, Buckets};
pub use order::{ByHash, Order, Salted, in_order_of};

use crate::hashing::{self, fingerprint, position};
use crate::{give_way, size_class::block_size};
use buckets::{Bucket, Source, first};
use std::marker::PhantomData;
use std::mem::ManuallyDrop;
use std::ptr::{self, NonNull};
use std::sync::atomic::{AtomicPtr, AtomicUsize, Ordering::*};

/// Buckets of a new array that get their pages together, ahead of the items: 20 µs' work.
const BUCKETS_POPULATED: usize = 1024;
/// Bytes at the start of an item that a lookup reads: a header and a short key.
const ITEM_HEAD: usize = 40;
/// Homes that one insertion moves while the table changes its size: some microseconds' work. Until
/// the last has moved both arrays take memory.
const HOMES_PER_STEP: usize = 32;
/// Homes whose items are fetched into the cache together.
const HOMES_FETCHED: usize = 8;

/// What a [`Table`] stores.
///
/// # Safety
/// The type must be `#[repr(transparent)]` over `NonNull<u8>` (or a newtype of it), and the key
/// must not change while the item is in a table.
pub unsafe trait Item: Sized {
    /// Whether large bucket arrays are mappings of their own: for tables of which there are few.
    const MAPS_ARRAYS: bool = false;
    /// The bytes that identify the item.
    fn key(&self) -> &[u8];
}

/// The home bucket of `hash` among `count`.
#[inline]
fn home(hash: u64, count: usize) -> usize {
    ((u128::from(position(hash)) * count as u128) >> 64) as usize
}

/// The first position whose home is `index` among `count`; `None` past the end.
fn boundary(index: usize, count: usize) -> Option<u64> {
    if index >= count {
        return None;
    }
    // Positions are multiples of 2^16: the quotient of 2^64, rounded up to one.
    let index = index as u64;
    let multiple = if index < 1 << 16 {
        (index << 48).div_ceil(count as u64)
    } else {
        // Below `count`, so the quotient is below 2^48, or just that.
        (u128::from(index) << 48).div_ceil(count as u128) as u64
    };
    multiple.checked_mul(1 << 16)
}

/// The new array during a change of size: homes of the old one below `cursor` have moved.
struct Migration {
    new: Buckets,
    cursor: usize,
    /// Buckets of the new array that have their pages.
    populated: usize,
}

impl Migration {
    /// Sees to it that the buckets that the old array's homes below `end` of `count` move to have
    /// their pages.
    fn populate(&mut self, end: usize, count: usize) {
        // Those behind may take what overflows.
        let needed = (end as u128 * self.new.count as u128 / count as u128) as usize + 64;
        while self.populated < needed.min(self.new.count) {
            let to = (self.populated + BUCKETS_POPULATED).min(self.new.count);
            self.new.populate(self.populated, to);
            self.populated = to;
        }
    }
}

/// Where [`Table::scan`] goes on; a position in the order of hashes, valid for ever.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ScanPosition(u64);

impl ScanPosition {
    /// The beginning of part `index` of `count` equal parts of the order; `None` past the end.
    pub fn of_part(index: usize, count: usize) -> Option<ScanPosition> {
        boundary(index, count).map(ScanPosition)
    }
    /// Which of `count` equal parts of the order it is in.
    #[inline]
    pub fn part(self, count: usize) -> usize {
        home(self.0, count)
    }
    /// The beginning.
    pub const START: ScanPosition = ScanPosition(0);
    /// The position as a number of at most 48 bits.
    pub fn to_bits48(self) -> u64 {
        self.0 >> 16
    }
    /// The inverse of [`ScanPosition::to_bits48`]; higher bits are ignored.
    pub fn from_bits48(bits: u64) -> ScanPosition {
        ScanPosition(bits << 16)
    }
    /// The first position from here on of which all but the highest `bits` bits are zero; `None`:
    /// the end.
    pub fn rounded_up(self, bits: u32) -> Option<ScanPosition> {
        self.0.checked_next_multiple_of(1 << (64 - bits)).map(ScanPosition)
    }
    /// Whether the walk that stands here has already passed an item with this hash.
    #[inline]
    pub fn is_past(self, hash: u64) -> bool {
        position(hash) < self.0
    }
}

/// The table; see the module's documentation. What a lookup needs comes first.
#[repr(C)]
pub struct Table<T: Item, O: Order = ByHash> {
    order: O,
    start: AtomicPtr<Bucket>,
    count: AtomicUsize,
    len: usize,
    migration: Option<Box<Migration>>,
    source: Source,
    retired: Option<Buckets>,
    items: PhantomData<T>,
}

impl<T: Item> Table<T, Salted> {
    /// What the order of the items depends on besides their hashes.
    pub fn order(&self) -> u64 {
        self.order.0
    }
}

// SAFETY: the table owns its items; it is as mobile as they are.
unsafe impl<T: Item + Send, O: Order + Send> Send for Table<T, O> {}
// SAFETY: `&self` gives out only `&T`.
unsafe impl<T: Item + Sync, O: Order + Sync> Sync for Table<T, O> {}

/// The slot of an item that is in the table.
pub struct Occupied<'a, T: Item, O: Order = ByHash> {
    table: &'a mut Table<T, O>,
    location: Location,
}

#[derive(Clone, Copy)]
struct Location {
    bucket: NonNull<Bucket>,
    slot: usize,
}

impl Location {
    #[inline]
    fn cell<'a>(self) -> &'a AtomicPtr<u8> {
        // SAFETY: a location is only used while the table is borrowed and not resized.
        unsafe { &self.bucket.as_ref().slots[self.slot] }
    }
}

#[inline]
fn as_item<T: Item>(raw: *mut u8) -> ManuallyDrop<T> {
    const { assert!(size_of::<T>() == size_of::<*mut u8>()) };
    // SAFETY: slots hold the bits of a `T`, which is transparent over a non-null pointer.
    unsafe { std::mem::transmute_copy(&raw) }
}

#[inline]
fn into_raw<T: Item>(item: T) -> *mut u8 {
    let item = ManuallyDrop::new(item);
    // SAFETY: `T` is transparent over a non-null pointer.
    unsafe { std::mem::transmute_copy(&item) }
}

impl<T: Item, O: Order> Default for Table<T, O> {
    fn default() -> Self {
        Table::new()
    }
}

impl<T: Item, O: Order> Table<T, O> {
    /// Bytes at the start of a table that lookups read.
    pub const HOT_BYTES: usize = std::mem::offset_of!(Table<T, O>, source);

    /// An empty table; allocates nothing.
    pub fn new() -> Table<T, O> {
        Table {
            order: O::new(),
            start: AtomicPtr::new(ptr::null_mut()),
            count: AtomicUsize::new(0),
            len: 0,
            migration: None,
            source: Source::Allocator,
            retired: None,
            items: PhantomData,
        }
    }

    /// A table with room for `items` without growing.
    pub fn with_capacity(items: usize) -> Table<T, O> {
        let mut table = Table::new();
        if items > 0 {
            let count = Table::<T, O>::buckets_for(items);
            table.install(Buckets::new(count, T::MAPS_ARRAYS));
        }
        table
    }

    /// Number of items.
    #[inline]
    pub fn len(&self) -> usize {
        self.len
    }

    /// Whether there is no item.
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Slots allocated, those of an array that items are moving to included.
    pub fn slots(&self) -> usize {
        (self.count() + self.new_count()) * BUCKET_SLOTS
    }

    /// Bytes of the bucket arrays, that of an array left behind included. Takes constant time.
    pub fn allocated_bytes(&self) -> usize {
        let retired = self.retired.as_ref().map_or(0, Buckets::bytes);
        let migration = self.migration.as_ref().map_or(0, |_| block_size(size_of::<Migration>()));
        self.slots() / BUCKET_SLOTS * size_of::<Bucket>() + retired + migration
    }

    /// Buckets that the range of hashes is laid over; items of one home are close together.
    pub fn homes(&self) -> usize {
        self.count()
    }

    /// The position in the order of hashes of an item with this hash.
    #[inline]
    pub fn position_of(&self, hash: u64) -> ScanPosition {
        ScanPosition(position(self.order.apply(hash)))
    }

    /// Asks for the items of the home at a position, for a walk that comes there soon.
    pub fn prefetch_items_at(&self, at: ScanPosition) {
        if self.len == 0 {
            return;
        }
        let (start, _, home_index) = self.area_at(at.0);
        // SAFETY: `home_index` is below the array's length.
        let bucket = unsafe { &*start.add(home_index) };
        for slot in bucket.occupied() {
            let item = bucket.item(slot);
            prefetch(item);
            // A walk looks at all of it, not only at the key: another cache line, as long as a
            // bucket.
            prefetch(item.wrapping_add(size_of::<Bucket>()));
        }
    }

    /// Asks for the bucket at a position.
    pub fn prefetch_bucket_at(&self, at: ScanPosition) {
        if self.len > 0 {
            let (start, _, home_index) = self.area_at(at.0);
            prefetch(start.wrapping_add(home_index).cast());
        }
    }

    /// Whether a change of size is under way.
    pub fn is_resizing(&self) -> bool {
        self.migration.is_some()
    }

    fn buckets_for(items: usize) -> usize {
        (items * 7).div_ceil(6 * BUCKET_SLOTS) + 1
    }

    #[inline]
    fn count(&self) -> usize {
        self.count.load(Relaxed)
    }

    #[inline]
    fn bucket(&self, index: usize) -> &Bucket {
        debug_assert!(index < self.count());
        // SAFETY: `start` points to `count` buckets and `index` is below it.
        unsafe { &*self.start.load(Relaxed).add(index) }
    }

    /// The order of the stores lets `prefetch` notice that it saw a mixture of two arrays.
    fn install(&mut self, buckets: Buckets) -> Option<Buckets> {
        let buckets = ManuallyDrop::new(buckets);
        let old = self.start.swap(ptr::null_mut(), AcqRel);
        let old_count = self.count.swap(buckets.count, AcqRel);
        self.start.store(buckets.start.as_ptr(), Release);
        let source = std::mem::replace(&mut self.source, buckets.source);
        NonNull::new(old).map(|start| Buckets { start, count: old_count, source })
    }

    /// The array that holds `hash` now, with its length and the home in it.
    #[inline]
    fn area(&self, hash: u64) -> (*const Bucket, usize, usize) {
        self.area_at(self.order.apply(hash))
    }

    /// [`Table::area`] of a hash that the table's order has been applied to.
    #[inline]
    fn area_at(&self, hash: u64) -> (*const Bucket, usize, usize) {
        let index = home(hash, self.count());
        if let Some(m) = &self.migration
            && index < m.cursor
        {
            return (m.new.start.as_ptr(), m.new.count, home(hash, m.new.count));
        }
        (self.start.load(Relaxed), self.count(), index)
    }

    /// Buckets of the array that items are moving to, if any.
    fn new_count(&self) -> usize {
        self.migration.as_ref().map_or(0, |m| m.new.count)
    }

    #[inline]
    fn find(&self, hash: u64, mut same: impl FnMut(&T) -> bool) -> Option<Location> {
        if self.len == 0 {
            return None;
        }
        let fp = fingerprint(hash);
        let (start, count, mut index) = self.area(hash);
        for _ in 0..count {
            // SAFETY: `index` is below `count`, the length of the array at `start`.
            let bucket = unsafe { &*start.add(index) };
            let mut bits = bucket.matches(fp);
            while bits != 0 {
                let slot = first(bits);
                let raw = bucket.item(slot);
                if !raw.is_null() && same(&as_item::<T>(raw)) {
                    return Some(Location { bucket: NonNull::from(bucket), slot });
                }
                bits &= bits - 1;
            }
            if bucket.over() == 0 {
                return None;
            }
            index = if index + 1 == count { 0 } else { index + 1 };
        }
        None
    }

    /// The item with this key. `hash` must be `hashing::hash(key)`, here and everywhere below.
    #[inline]
    pub fn get(&self, hash: u64, key: &[u8]) -> Option<&T> {
        let location = self.find(hash, |item| item.key() == key)?;
        // SAFETY: the slot holds a `T` that lives as long as the table is not changed.
        Some(unsafe { &*ptr::from_ref(location.cell()).cast::<T>() })
    }

    /// The item with this key, to change what it points to. It must not move to another block:
    /// for that there is [`Occupied::update`].
    #[inline]
    pub fn get_mut(&mut self, hash: u64, key: &[u8]) -> Option<&mut T> {
        let location = self.find(hash, |item| item.key() == key)?;
        let cell = location.bucket.as_ptr();
        // SAFETY: the slot holds a `T`, and `&mut self` is exclusive.
        Some(unsafe { &mut *(&raw mut (*cell).slots[location.slot]).cast::<T>() })
    }

    /// The first item with this hash that `same` accepts.
    pub fn find_item(&self, hash: u64, same: impl FnMut(&T) -> bool) -> Option<&T> {
        let location = self.find(hash, same)?;
        // SAFETY: the slot holds a `T` that lives as long as the table is not changed.
        Some(unsafe { &*ptr::from_ref(location.cell()).cast::<T>() })
    }

    /// The first item with this hash that `same` accepts, to change what it points to, as
    /// [`Table::get_mut`] does.
    pub fn find_mut(&mut self, hash: u64, same: impl FnMut(&T) -> bool) -> Option<&mut T> {
        let location = self.find(hash, same)?;
        let cell = location.bucket.as_ptr();
        // SAFETY: the slot holds a `T`, and `&mut self` is exclusive.
        Some(unsafe { &mut *(&raw mut (*cell).slots[location.slot]).cast::<T>() })
    }

    /// The slot of the item with this key, to replace or remove it.
    #[inline(always)]
    pub fn occupied(&mut self, hash: u64, key: &[u8]) -> Option<Occupied<'_, T, O>> {
        let location = self.find(hash, |item| item.key() == key)?;
        Some(Occupied { table: self, location })
    }

    /// Adds an item whose key is known to be absent.
    pub fn insert_absent(&mut self, hash: u64, item: T) {
        debug_assert!(self.get(hash, item.key()).is_none(), "the key is already there");
        self.make_room(hash);
        let (start, count, index) = self.area(hash);
        Table::<T, O>::place(start, count, index, fingerprint(hash), into_raw(item));
        self.len += 1;
    }

    /// Adds an item unless its key is there; says whether it was added, or gives it back.
    pub fn insert(&mut self, hash: u64, item: T) -> Result<(), T> {
        if self.find(hash, |other| other.key() == item.key()).is_some() {
            return Err(item);
        }
        self.insert_absent(hash, item);
        Ok(())
    }

    fn place(start: *const Bucket, count: usize, home: usize, fp: u8, raw: *mut u8) {
        let mut index = home;
        loop {
            // SAFETY: `index` stays below `count`; the fill is kept below one, so this ends.
            let bucket = unsafe { &*start.add(index) };
            let empties = bucket.empties();
            if empties != 0 {
                bucket.put(first(empties), fp, raw);
                return;
            }
            bucket.add_over();
            index = if index + 1 == count { 0 } else { index + 1 };
        }
    }

    /// Removes and returns the item with this key.
    pub fn remove(&mut self, hash: u64, key: &[u8]) -> Option<T> {
        self.occupied(hash, key).map(Occupied::remove)
    }

    fn take(&mut self, hash: u64, location: Location) -> T {
        let (start, count, mut index) = self.area(hash);
        let raw = loop {
            // SAFETY: `index` stays below `count`.
            let bucket = unsafe { &*start.add(index) };
            if ptr::eq(bucket, location.bucket.as_ptr()) {
                break bucket.clear(location.slot);
            }
            bucket.subtract_over();
            index = if index + 1 == count { 0 } else { index + 1 };
        };
        self.len -= 1;
        if self.len == 0 && self.migration.is_some() {
            self.finish_migration();
        } else {
            self.maybe_shrink();
        }
        ManuallyDrop::into_inner(as_item(raw))
    }

    /// Grows or goes on growing so that one more item fits.
    fn make_room(&mut self, hash: u64) {
        if self.migration.is_some() {
            self.step(HOMES_PER_STEP);
        } else if (self.len + 1) * 7 > self.count() * BUCKET_SLOTS * 6 {
            let count = self.count();
            let lot = (hash as usize >> 3) & 31;
            // Few large tables are kept full, many small ones grow seldom.
            let parts = if T::MAPS_ARRAYS { 32 + lot } else { 51 + lot + lot / 2 };
            let growth = count * parts / 256;
            self.resize(count + growth.max(1));
        }
    }

    fn maybe_shrink(&mut self) {
        if self.migration.is_some() {
            self.step(HOMES_PER_STEP);
        } else if self.count() > 4 && self.len * 4 < self.count() * BUCKET_SLOTS {
            self.resize(Table::<T, O>::buckets_for(self.len + self.len / 4));
        }
    }

    fn resize(&mut self, count: usize) {
        debug_assert!(self.migration.is_none());
        let new = Buckets::new(count, T::MAPS_ARRAYS);
        if self.count() == 0 {
            self.install(new);
        } else {
            self.migration = Some(Box::new(Migration { new, cursor: 0, populated: 0 }));
            self.step(HOMES_PER_STEP);
        }
    }

    /// Moves the next `homes` homes to the new array.
    fn step(&mut self, homes: usize) {
        let Some(mut m) = self.migration.take() else { return };
        let count = self.count();
        let end = (m.cursor + homes).min(count);
        m.populate(end, count);
        while m.cursor < end {
            let next = (m.cursor + HOMES_FETCHED).min(end);
            for index in m.cursor..next {
                let bucket = self.bucket(index);
                for slot in bucket.occupied() {
                    prefetch(bucket.item(slot));
                }
            }
            for index in m.cursor..next {
                self.move_home(index, &m.new);
            }
            m.cursor = next;
        }
        self.migration = Some(m);
        if end == count {
            self.finish_migration();
        }
    }

    fn finish_migration(&mut self) {
        if let Some(m) = self.migration.take() {
            self.retired = self.install(m.new);
        }
    }

    /// Moves every item at home in bucket `home_index` to `new`.
    fn move_home(&self, home_index: usize, new: &Buckets) {
        let count = self.count();
        let mut index = home_index;
        for _ in 0..count {
            let bucket = self.bucket(index);
            for slot in bucket.occupied() {
                let item = as_item::<T>(bucket.item(slot));
                let hash = hashing::hash(item.key());
                let ordered = self.order.apply(hash);
                if home(ordered, count) == home_index {
                    let raw = bucket.clear(slot);
                    let home = home(ordered, new.count);
                    let start = new.start.as_ptr();
                    Table::<T, O>::place(start, new.count, home, fingerprint(hash), raw);
                    self.forget_overflow(home_index, index);
                }
            }
            if bucket.over() == 0 {
                return;
            }
            index = if index + 1 == count { 0 } else { index + 1 };
        }
    }

    /// Takes back what `place` counted for an item between its home and its bucket.
    fn forget_overflow(&self, home_index: usize, found: usize) {
        let mut index = home_index;
        while index != found {
            self.bucket(index).subtract_over();
            index = if index + 1 == self.count() { 0 } else { index + 1 };
        }
    }

    /// The array that the last growth left behind, if any. A table that is never prefetched from
    /// may ignore this: the array is freed at the next growth or with the table.
    pub fn take_retired(&mut self) -> Option<Buckets> {
        self.retired.take()
    }

    /// Whether [`Table::take_retired`] has something.
    #[inline]
    pub fn has_retired(&self) -> bool {
        self.retired.is_some()
    }

    /// Visits the items at `from` and a little beyond; `None` when the walk is at its end.
    ///
    /// An item that is in the table from the walk's start to its end is visited exactly once.
    /// `visit` is called for the items of one home, a handful at most times.
    #[inline]
    pub fn scan(&self, from: ScanPosition, visit: impl FnMut(&T)) -> Option<ScanPosition> {
        self.scan_until(from, None, visit)
    }

    /// [`Table::scan`] that never goes past `end`: what it returns is `end` at most, and `None` is
    /// the end of the table.
    pub fn scan_until(
        &self,
        from: ScanPosition,
        end: Option<ScanPosition>,
        mut visit: impl FnMut(&T),
    ) -> Option<ScanPosition> {
        if self.len == 0 {
            return end;
        }
        let (start, count, home_index) = self.area_at(from.0);
        let mut next = boundary(home_index + 1, count);
        if let Some(m) = &self.migration {
            // A walk in the new array must not run past what has moved there.
            let moved_to = boundary(m.cursor, self.count());
            if ptr::eq(start, m.new.start.as_ptr()) {
                next = match (next, moved_to) {
                    (Some(a), Some(b)) => Some(a.min(b)),
                    (a, b) => a.or(b),
                };
            }
        }
        next = match (next, end) {
            (Some(a), Some(ScanPosition(b))) => Some(a.min(b)),
            (a, b) => a.or(b.map(|end| end.0)),
        };
        let mut index = home_index;
        for _ in 0..count {
            // SAFETY: `index` stays below `count`.
            let bucket = unsafe { &*start.add(index) };
            for slot in bucket.occupied() {
                let item = as_item::<T>(bucket.item(slot));
                let at = position(self.order.apply(hashing::hash(item.key())));
                if home(at, count) == home_index && at >= from.0 && next.is_none_or(|n| at < n) {
                    visit(&item);
                }
            }
            if bucket.over() == 0 {
                break;
            }
            index = if index + 1 == count { 0 } else { index + 1 };
        }
        next.map(ScanPosition)
    }

    /// An item chosen with equal probability from all; `random` yields uniform numbers.
    pub fn sample(&self, mut random: impl FnMut() -> u64) -> Option<&T> {
        if self.len == 0 {
            return None;
        }
        let total = (self.count() + self.new_count()) as u128;
        loop {
            let number = random();
            let index = ((u128::from(number) * total) >> 64) as usize;
            let slot = (number & 0xffff) as usize % 8;
            let bucket = match (&self.migration, index.checked_sub(self.count())) {
                (Some(m), Some(index)) => m.new.bucket(index),
                _ => self.bucket(index),
            };
            if slot < BUCKET_SLOTS && (bucket.meta() >> (slot * 8)) & 0xff != 0 {
                // SAFETY: an occupied slot holds a `T`.
                return Some(unsafe { &*ptr::from_ref(&bucket.slots[slot]).cast::<T>() });
            }
        }
    }

    /// All items, in no particular order.
    pub fn iter(&self) -> impl Iterator<Item = &T> {
        (0..self.count() + self.new_count()).flat_map(move |index| {
            let bucket = match (&self.migration, index.checked_sub(self.count())) {
                (Some(m), Some(index)) => m.new.bucket(index),
                _ => self.bucket(index),
            };
            bucket.occupied().map(move |slot| {
                // SAFETY: an occupied slot holds a `T`.
                unsafe { &*ptr::from_ref(&bucket.slots[slot]).cast::<T>() }
            })
        })
    }

    /// Fetches the home bucket of `hash` into the cache. May run beside a writer.
    ///
    /// # Safety
    /// `table` must be valid; arrays that it retires must not be freed while this runs.
    #[inline]
    pub unsafe fn prefetch(table: *const Table<T, O>, hash: u64) {
        // SAFETY: the fields read are atomics, and the address is only prefetched.
        unsafe {
            let start = (*table).start.load(Relaxed);
            let count = (*table).count.load(Relaxed);
            let hash = (*table).order.apply(hash);
            prefetch(start.wrapping_add(home(hash, count)).cast());
        }
    }

    /// Fetches the item that `hash` probably leads to. May run beside a writer, like `prefetch`.
    ///
    /// # Safety
    /// As for [`Table::prefetch`].
    #[inline]
    pub unsafe fn prefetch_item(table: *const Table<T, O>, hash: u64) {
        // SAFETY: only atomics are read. `install` clears `start` before it stores `count`, so a
        // `start` that is the same before and after belongs to the `count` in between.
        unsafe {
            let start = (*table).start.load(Acquire);
            let count = (*table).count.load(Acquire);
            if start.is_null() || start != (*table).start.load(Acquire) {
                return;
            }
            let bucket = &*start.add(home((*table).order.apply(hash), count));
            let bits = bucket.matches(fingerprint(hash));
            if bits != 0 {
                let item = bucket.item(first(bits)).cast_const();
                prefetch(item);
                // Half of the short items lie across two lines; for the others this is nothing.
                prefetch(item.wrapping_add(ITEM_HEAD));
            }
        }
    }

    /// Checks every invariant; for tests.
    pub fn assert_valid(&self) {
        let mut seen = 0;
        for item in self.iter() {
            let hash = hashing::hash(item.key());
            assert!(self.get(hash, item.key()).is_some_and(|found| ptr::eq(found, item)));
            seen += 1;
        }
        assert_eq!(seen, self.len);
    }
}

impl<T: Item, O: Order> Drop for Table<T, O> {
    fn drop(&mut self) {
        let arrays = [self.migration.take().map(|m| m.new), {
            let count = self.count();
            NonNull::new(self.start.swap(ptr::null_mut(), Relaxed)).map(|start| Buckets {
                start,
                count,
                source: self.source,
            })
        }];
        for array in arrays.into_iter().flatten() {
            for index in 0..array.count {
                let bucket = array.bucket(index);
                for slot in bucket.occupied() {
                    drop(ManuallyDrop::into_inner(as_item::<T>(bucket.item(slot))));
                }
                // Freeing a big table in the background need not be fast.
                if index % 64 == 63 {
                    give_way::give_way();
                }
            }
        }
    }
}

impl<'a, T: Item, O: Order> Occupied<'a, T, O> {
    /// The item.
    #[inline]
    pub fn get(&self) -> &T {
        // SAFETY: the slot holds a `T`, and the table is borrowed.
        unsafe { &*ptr::from_ref(self.location.cell()).cast::<T>() }
    }

    /// Puts `item`, which must have the same key, in the place of the present one.
    #[inline]
    pub fn replace(&mut self, item: T) -> T {
        debug_assert!(self.get().key() == item.key());
        let old = self.location.cell().swap(into_raw(item), Relaxed);
        ManuallyDrop::into_inner(as_item(old))
    }

    /// Lets `change` rewrite the item in place; it may move to another allocation.
    #[inline]
    pub fn update<R>(&mut self, change: impl FnOnce(&mut T) -> R) -> R {
        let mut item = as_item::<T>(self.location.cell().load(Relaxed));
        let result = change(&mut item);
        self.location.cell().store(into_raw(ManuallyDrop::into_inner(item)), Relaxed);
        result
    }

    /// Takes the item out of the table.
    pub fn remove(self) -> T {
        let hash = hashing::hash(self.get().key());
        self.remove_hashed(hash)
    }

    /// [`Occupied::remove`] when the hash is at hand.
    #[inline]
    pub fn remove_hashed(self, hash: u64) -> T {
        self.table.take(hash, self.location)
    }
}

/// Fetches the cache line at `address`, if there is one.
#[inline]
pub fn prefetch(address: *const u8) {
    #[cfg(target_arch = "x86_64")]
    // SAFETY: a prefetch has no effect but on the cache, whatever the address.
    unsafe {
        use std::arch::x86_64::{_MM_HINT_T0, _mm_prefetch};
        _mm_prefetch(address.cast(), _MM_HINT_T0);
    }
    #[cfg(not(target_arch = "x86_64"))]
    let _ = address;
}

#[cfg(test)]
mod tests;

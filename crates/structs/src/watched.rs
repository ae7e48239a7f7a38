//! A table that a snapshot can watch, element by element.
//!
//! A collection of millions of elements cannot be copied in one go, nor may its writers wait until
//! it is. So its table gets a *watch*: cells ([`crate::cells`]) and a function that every element
//! of the moment is given to exactly once, as it was then. Elements of a cell go there when one of
//! them is about to change, come or go; those of the others when the watcher takes a step.
//!
//! There is no way to change the table but through here, so no change can be missed. A table that
//! is dropped gives what it has left first.
//!
//! Readers that hold the collection without a lock may read beside [`Watched::step`]: it changes
//! nothing that they look at.
//!
//! For the same reason the table knows the bytes of its items at any time: every change passes here
//! and is added up.

use crate::cells::Cells;
use crate::size_class::block_size;
use crate::sync::lock;
use crate::table::{Item, Occupied, Salted, Table};
use std::ops::Deref;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::{Mutex, MutexGuard};

/// An item that knows what it takes.
pub(crate) trait Measured: Item {
    /// Bytes of its blocks, rounded as the allocator rounds them. Takes constant time.
    fn allocated_bytes(&self) -> usize;
}

/// Takes an element.
type Take<T> = Box<dyn FnMut(&T) + Send>;

struct Watch<T> {
    cells: Cells,
    take: Take<T>,
    /// Steps that changes may take.
    allowed: usize,
}

/// Steps that a change takes: what it costs a writer is some ten elements' copies.
const STEPS_OF_A_CHANGE: usize = 2;

/// See the module's documentation.
pub(crate) struct Watched<T: Item> {
    table: Table<T, Salted>,
    /// Bytes of all items' blocks.
    item_bytes: usize,
    is_watched: AtomicBool,
    watch: Mutex<Option<Box<Watch<T>>>>,
}

impl<T: Measured> Watched<T> {
    /// A table with room for `items` without growing.
    pub(crate) fn with_capacity(items: usize) -> Watched<T> {
        Watched {
            table: Table::with_capacity(items),
            item_bytes: 0,
            is_watched: AtomicBool::new(false),
            watch: Mutex::new(None),
        }
    }

    /// The slot of the item with this key, to replace or remove it.
    #[inline]
    pub(crate) fn occupied(&mut self, hash: u64, key: &[u8]) -> Option<Slot<'_, T>> {
        self.before_change(hash);
        let occupied = self.table.occupied(hash, key)?;
        Some(Slot { occupied, item_bytes: &mut self.item_bytes })
    }

    /// Bytes allocated, those of the table itself included. Takes constant time.
    pub(crate) fn allocated_bytes(&self) -> usize {
        block_size(size_of::<Self>()) + self.table.allocated_bytes() + self.item_bytes
    }

    /// Adds an item whose key is known to be absent.
    #[inline]
    pub(crate) fn insert_absent(&mut self, hash: u64, item: T) {
        self.before_change(hash);
        self.item_bytes += item.allocated_bytes();
        self.table.insert_absent(hash, item);
        // No thread prefetches from here beside a writer, so what a growth has left behind can go.
        drop(self.table.take_retired());
    }
}

impl<T: Item> Watched<T> {
    /// Drops the array that a change of size has left behind.
    pub(crate) fn forget_retired(&mut self) {
        drop(self.table.take_retired());
    }

    /// An item with this hash is about to change, come or go.
    #[inline]
    pub(crate) fn before_change(&self, hash: u64) {
        if self.is_watched.load(Relaxed) {
            self.take_cell(hash);
        }
    }

    fn lock(&self) -> MutexGuard<'_, Option<Box<Watch<T>>>> {
        lock(&self.watch)
    }

    #[cold]
    fn take_cell(&self, hash: u64) {
        let at = self.table.position_of(hash);
        if let Some(watch) = &mut *self.lock() {
            if !watch.cells.is_done(at) {
                watch.cells.take(&self.table, at, &mut watch.take);
            }
            let steps = watch.allowed.min(STEPS_OF_A_CHANGE);
            watch.allowed -= steps;
            for _ in 0..steps {
                watch.cells.step(&self.table, &mut watch.take);
            }
        }
    }

    /// Lets changes take so many steps from now on; how many they have left of what they were
    /// allowed before.
    pub(crate) fn allow(&self, steps: usize) -> usize {
        self.lock().as_mut().map_or(0, |watch| std::mem::replace(&mut watch.allowed, steps))
    }

    /// Begins to watch: `take` gets every element that is here now, once. A watch that there is
    /// ends.
    pub(crate) fn watch(&self, take: Take<T>) {
        *self.lock() = Some(Box::new(Watch { cells: Cells::of(&self.table), take, allowed: 0 }));
        self.is_watched.store(true, Relaxed);
    }

    /// Takes the elements of the next cell; `false` if nothing is left, which ends the watch.
    pub(crate) fn step(&self) -> bool {
        let mut watch = self.lock();
        let goes_on =
            watch.as_mut().is_some_and(|watch| watch.cells.step(&self.table, &mut watch.take));
        if !goes_on {
            *watch = None;
            self.is_watched.store(false, Relaxed);
        }
        goes_on
    }

    /// Ends the watch without taking what is left.
    pub(crate) fn unwatch(&self) {
        *self.lock() = None;
        self.is_watched.store(false, Relaxed);
    }
}

/// The slot of an item that is in the table.
pub(crate) struct Slot<'a, T: Measured> {
    occupied: Occupied<'a, T, Salted>,
    item_bytes: &'a mut usize,
}

impl<T: Measured> Slot<'_, T> {
    /// The item.
    #[inline]
    pub(crate) fn get(&self) -> &T {
        self.occupied.get()
    }

    /// Lets `change` rewrite the item in place; it may move to another allocation.
    #[inline]
    pub(crate) fn update<R>(&mut self, change: impl FnOnce(&mut T) -> R) -> R {
        let before = self.occupied.get().allocated_bytes();
        let result = self.occupied.update(change);
        *self.item_bytes = *self.item_bytes - before + self.occupied.get().allocated_bytes();
        result
    }

    /// Takes the item, whose hash this is, out of the table.
    #[inline]
    pub(crate) fn remove_hashed(self, hash: u64) -> T {
        let item = self.occupied.remove_hashed(hash);
        *self.item_bytes -= item.allocated_bytes();
        item
    }
}

impl<T: Item> Deref for Watched<T> {
    type Target = Table<T, Salted>;
    #[inline]
    fn deref(&self) -> &Table<T, Salted> {
        &self.table
    }
}

impl<T: Item> Drop for Watched<T> {
    fn drop(&mut self) {
        if self.is_watched.load(Relaxed) {
            while self.step() {}
        }
    }
}

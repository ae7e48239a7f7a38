//! The tables of database 0 for each slot of a stripe, in a place that a prefetch finds without the
//! stripe's lock.
//!
//! They are one array, made for the stripe's first key and freed with the stripe. So a thread that
//! reads the array's address beside a writer reads memory that stays. Threads that exchange or drop
//! arrays have stopped the world.
#![allow(unsafe_code)]

use crate::keyspace::STRIPES;
use crate::stripe::DbTables;
use crate::types::Slot;
use std::ptr;
use std::sync::LazyLock;
use std::sync::atomic::AtomicPtr;
use std::sync::atomic::Ordering::{Acquire, Release};

/// Number of slots of a stripe.
const SLOTS: usize = Slot::COUNT / STRIPES;

/// An index in [`Array`].
#[inline]
fn index_of(slot: Slot) -> usize {
    usize::from(slot.number()) / STRIPES
}

#[repr(C)]
struct Array {
    tables: [DbTables; SLOTS],
    /// Whether the tables of a slot are in use. Those of others hold nothing.
    used: [bool; SLOTS],
    /// The stripe, which is the number of its first slot.
    stripe: usize,
}

impl Array {
    fn new(stripe: usize) -> Array {
        let tables = std::array::from_fn(|_| DbTables::default());
        Array { tables, used: [false; SLOTS], stripe }
    }
}

/// What a stripe has before it holds a key. Never changed.
static EMPTY: LazyLock<Array> = LazyLock::new(|| Array::new(0));

/// The address of [`EMPTY`].
fn empty() -> *mut Array {
    ptr::from_ref(LazyLock::force(&EMPTY)).cast_mut()
}

/// The tables of database 0, if each slot has its own.
///
/// The address is null if keys are assigned by hash, so that there are no such tables, or that of
/// [`EMPTY`], or that of an array which this value owns.
pub(crate) struct BySlot(AtomicPtr<Array>);

impl BySlot {
    /// `is_on`: each slot has its own tables.
    pub(crate) fn new(is_on: bool) -> BySlot {
        BySlot(AtomicPtr::new(if is_on { empty() } else { ptr::null_mut() }))
    }

    #[inline]
    pub(crate) fn is_on(&self) -> bool {
        !self.0.load(Acquire).is_null()
    }

    #[inline]
    fn array(&self) -> Option<&Array> {
        // SAFETY: the address is null or that of an array that lives as long as `self`. It is only
        // changed through `&mut self`.
        unsafe { self.0.load(Acquire).as_ref() }
    }

    fn owned(&mut self) -> Option<&mut Array> {
        let array = *self.0.get_mut();
        // SAFETY: this value owns the array if there is one and it is not `EMPTY`, and `self` is
        // borrowed exclusively.
        unsafe { if array == empty() { None } else { array.as_mut() } }
    }

    /// The tables of a slot, for reading.
    #[inline]
    pub(crate) fn get(&self, slot: Slot) -> Option<&DbTables> {
        self.array().map(|array| &array.tables[index_of(slot)])
    }

    /// The same tables for changes, if they can hold anything.
    #[inline]
    pub(crate) fn get_mut(&mut self, slot: Slot) -> Option<&mut DbTables> {
        self.owned().map(|array| &mut array.tables[index_of(slot)])
    }

    /// The same tables, which are in use from now on.
    #[inline]
    pub(crate) fn begin(&mut self, slot: Slot) -> &mut DbTables {
        if self.owned().is_none() {
            self.allocate(slot.stripe());
        }
        let array = self.owned().expect("it was made");
        array.used[index_of(slot)] = true;
        &mut array.tables[index_of(slot)]
    }

    #[cold]
    fn allocate(&mut self, stripe: usize) {
        self.0.store(Box::into_raw(Box::new(Array::new(stripe))), Release);
    }

    /// These tables hold nothing any more. A prefetch may read their arrays still, so they stay.
    pub(crate) fn end(&mut self, slot: Slot) {
        if let Some(array) = self.owned() {
            array.used[index_of(slot)] = false;
        }
    }

    /// Takes the tables of a slot, if they are in use. The world must be stopped.
    pub(crate) fn take(&mut self, slot: Slot) -> Option<DbTables> {
        let array = self.owned()?;
        std::mem::take(&mut array.used[index_of(slot)])
            .then(|| std::mem::take(&mut array.tables[index_of(slot)]))
    }

    /// Returns the first slot after `after` whose tables are in use.
    pub(crate) fn next_used(&self, after: Option<Slot>) -> Option<Slot> {
        let array = self.array()?;
        let from = after.map_or(0, |slot| index_of(slot) + 1);
        let at = (from..SLOTS).find(|&at| array.used[at])?;
        Slot::new((at * STRIPES + array.stripe) as u16)
    }

    /// Exchanges all tables with those of the same stripe of another keyspace. The world must be
    /// stopped.
    pub(crate) fn exchange(&mut self, other: &mut BySlot) {
        std::mem::swap(self.0.get_mut(), other.0.get_mut());
    }

    /// The address of a slot's tables, or null if keys are assigned by hash. May run beside a
    /// writer.
    ///
    /// # Safety
    /// `this` is valid, and the calling thread is inside the world, so that no array is freed.
    #[inline]
    pub(crate) unsafe fn address(this: *const BySlot, slot: Slot) -> *const DbTables {
        // SAFETY: the address is an atomic; an array that it leads to is not freed meanwhile.
        unsafe {
            let array = (*this).0.load(Acquire);
            if array.is_null() {
                return ptr::null();
            }
            (&raw const (*array).tables).cast::<DbTables>().add(index_of(slot))
        }
    }
}

impl Drop for BySlot {
    fn drop(&mut self) {
        if let Some(array) = self.owned() {
            // SAFETY: it was made by `Box::into_raw`, and this value owns it.
            drop(unsafe { Box::from_raw(ptr::from_mut(array)) });
        }
    }
}

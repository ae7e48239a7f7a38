//! A value to be read, wherever it lies.
//!
//! What lies in an entry is shown as a value of its type, which has the address of the elements
//! and owns nothing. It has to be somewhere while it is read: in a [`View`], or in [`Slots`] if
//! only references are wanted.
#![allow(unsafe_code)] // Keeps values of several types in raw places.

use crate::collection::Collection;
use crate::entry::{COLD, Entry, WIDE};
use crate::kind::{Kind, Object};
use std::cell::{Cell, RefCell, UnsafeCell};
use std::mem::{ManuallyDrop, MaybeUninit};
use std::ops::Deref;
use structs::hash::Hash;
use structs::inline::Inline;
use structs::list::List;
use structs::set::Set;
use structs::zset::Zset;

/// The value of an entry, to be read.
pub struct View<'a, T>(Place<'a, T>);

enum Place<'a, T> {
    /// The value that the entry leads to.
    Apart(&'a T),
    /// What is shown of elements in the entry.
    Shown(ManuallyDrop<T>),
}

impl<T> Deref for View<'_, T> {
    type Target = T;
    #[inline]
    fn deref(&self) -> &T {
        match &self.0 {
            Place::Apart(value) => value,
            Place::Shown(value) => value,
        }
    }
}

/// The same, of any type but the string.
pub struct CollectionView<'a>(CollectionPlace<'a>);

enum CollectionPlace<'a> {
    Apart(&'a dyn Collection),
    List(ManuallyDrop<List>),
    Set(ManuallyDrop<Set>),
    Hash(ManuallyDrop<Hash>),
    Zset(ManuallyDrop<Zset>),
}

impl<'a> Deref for CollectionView<'a> {
    type Target = dyn Collection + 'a;
    #[inline]
    fn deref(&self) -> &(dyn Collection + 'a) {
        match &self.0 {
            CollectionPlace::Apart(value) => *value,
            CollectionPlace::List(value) => &**value,
            CollectionPlace::Set(value) => &**value,
            CollectionPlace::Hash(value) => &**value,
            CollectionPlace::Zset(value) => &**value,
        }
    }
}

impl Entry {
    /// Returns the value to be read, if it is a `T`.
    #[inline]
    pub fn view<T: Object>(&self) -> Option<View<'_, T>> {
        if let Some(value) = self.apart() {
            return Some(View(Place::Apart(value)));
        }
        if self.value_kind() != T::KIND {
            return None;
        }
        self.shown().map(|inline| View(Place::Shown(T::show(inline))))
    }

    /// Returns the value, if it is a `T` that does not lie in the entry.
    #[inline(always)]
    pub fn apart<T: Object>(&self) -> Option<&T> {
        let is_one = self.word() & (15 << 24 | COLD | WIDE) == (T::KIND as u32) << 24;
        // SAFETY: an entry of `T`'s kind that is neither cold nor wide holds a `T`.
        is_one.then(|| unsafe { &*self.payload::<T>() })
    }

    /// Returns a reference to the value to be read, if it is a `T`. What has to be shown is put
    /// into a slot.
    #[inline]
    pub fn view_in<'a, T: Object>(&'a self, slots: &'a Slots) -> Option<&'a T> {
        if let Some(value) = self.apart() {
            return Some(value);
        }
        if self.value_kind() != T::KIND {
            return None;
        }
        self.shown().map(|inline| slots.put(T::show(inline)))
    }

    /// Returns the value as a collection, for all types but the string.
    #[inline]
    pub fn collection(&self) -> Option<CollectionView<'_>> {
        let place = match self.shown() {
            Some(inline) => shown(self.kind(), inline),
            None => CollectionPlace::Apart(self.collection_apart()?),
        };
        Some(CollectionView(place))
    }

    /// Returns the value as a collection, unless it lies in the entry.
    #[inline]
    pub(crate) fn collection_apart(&self) -> Option<&dyn Collection> {
        let kind = self.value_kind();
        if self.is_inline() {
            return None;
        }
        // SAFETY: the payload holds what the kind says, as long as the entry is borrowed.
        kind.collection(self.payload()).map(|value| unsafe { &*value })
    }
}

fn shown(kind: Kind, inline: Inline) -> CollectionPlace<'static> {
    match kind {
        Kind::List => CollectionPlace::List(List::show(inline)),
        Kind::Set => CollectionPlace::Set(Set::show(inline)),
        Kind::Hash => CollectionPlace::Hash(Hash::show(inline)),
        Kind::Zset => CollectionPlace::Zset(Zset::show(inline)),
        _ => unreachable!("no other value lies in its entry"),
    }
}

/// The bytes of the largest value of a type but the string.
const SLOT_BYTES: usize = 16;
/// Slots that need no block of their own.
const FIRST: usize = 4;
/// Slots in each further block.
const BLOCK: usize = 64;
/// Further blocks that are kept.
const KEPT: usize = 4;

#[repr(C, align(8))]
struct Slot(UnsafeCell<MaybeUninit<[u8; SLOT_BYTES]>>);

impl Slot {
    const fn empty() -> Slot {
        Slot(UnsafeCell::new(MaybeUninit::uninit()))
    }
}

/// Places for what is shown of entries, as long as references to it live.
pub struct Slots {
    first: [Slot; FIRST],
    more: RefCell<Vec<Box<[Slot]>>>,
    used: Cell<usize>,
}

impl Default for Slots {
    fn default() -> Slots {
        let first = [const { Slot::empty() }; FIRST];
        Slots { first, more: RefCell::default(), used: Cell::new(0) }
    }
}

impl Slots {
    /// Empties all slots, which nothing refers to.
    #[inline]
    pub fn clear(&mut self) {
        if self.used.replace(0) > FIRST {
            self.more.get_mut().truncate(KEPT);
        }
    }

    #[inline]
    fn put<T: Object>(&self, value: ManuallyDrop<T>) -> &T {
        const { assert!(size_of::<T>() <= SLOT_BYTES && align_of::<T>() <= align_of::<Slot>()) };
        let index = self.used.replace(self.used.get() + 1);
        let slot = match self.first.get(index) {
            Some(slot) => slot.0.get(),
            None => self.further(index - FIRST),
        };
        // SAFETY: the value fits; the slot is used for nothing else until `clear`, and stays where
        // it is until then: neither `self` nor a block moves while it is borrowed.
        unsafe {
            slot.cast::<ManuallyDrop<T>>().write(value);
            &*slot.cast::<T>()
        }
    }

    #[cold]
    fn further(&self, index: usize) -> *mut MaybeUninit<[u8; SLOT_BYTES]> {
        let mut more = self.more.borrow_mut();
        if more.len() == index / BLOCK {
            more.push(Box::new([const { Slot::empty() }; BLOCK]));
        }
        more[index / BLOCK][index % BLOCK].0.get()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kind::Value;

    #[test]
    fn references_stay_valid_until_the_slots_are_cleared() {
        let entry = |number: usize| {
            let mut set = Set::empty();
            set.insert(number.to_string().as_bytes(), &Default::default());
            Entry::new(b"key", Value::Set(set), None, 0)
        };
        let entries: Vec<Entry> = (0..200).map(entry).collect();
        let mut slots = Slots::default();
        for _ in 0..2 {
            let sets: Vec<&Set> =
                entries.iter().map(|entry| entry.view_in::<Set>(&slots).unwrap()).collect();
            for (number, set) in sets.iter().enumerate() {
                assert!(set.contains(number.to_string().as_bytes()) && set.len() == 1);
            }
            slots.clear();
        }
        assert!(entries[0].view_in::<Hash>(&slots).is_none());
        assert!(entries[0].view::<Set>().unwrap().contains(b"0"));
    }
}

//! A vector whose handle is one pointer, and that is empty without a block.
//!
//! ```text
//!   handle ──► │ len u32 │ cap u32 │ item │ item │ … │
//! ```
//!
//! `Vec` has three words beside its block; a node of 8 bytes can hold one. The blocks are aligned
//! to 8 bytes, so items of any type up to that alignment follow the header at once.
#![allow(unsafe_code)]

use std::alloc::{Layout, alloc, dealloc, handle_alloc_error, realloc};
use std::marker::PhantomData;
use std::ptr::NonNull;
use structs::size_class::block_size;

#[repr(C, align(8))]
struct Header {
    len: u32,
    cap: u32,
}

const HEADER: usize = size_of::<Header>();

/// A vector of one pointer.
pub(crate) struct Thin<T> {
    block: Option<NonNull<Header>>,
    items: PhantomData<T>,
}

// SAFETY: it owns its items as a `Vec` does.
unsafe impl<T: Send> Send for Thin<T> {}
// SAFETY: a shared reference gives shared references to items only.
unsafe impl<T: Sync> Sync for Thin<T> {}

impl<T> Default for Thin<T> {
    fn default() -> Self {
        Thin::new()
    }
}

impl<T> Thin<T> {
    const FITS: () = assert!(align_of::<T>() <= 8 && size_of::<T>() > 0);

    /// Returns an empty vector without a block.
    pub(crate) const fn new() -> Thin<T> {
        const { Self::FITS };
        Thin { block: None, items: PhantomData }
    }

    /// Collects items into a block without spare capacity.
    pub(crate) fn exact(items: impl ExactSizeIterator<Item = T>) -> Thin<T> {
        let mut thin = Thin::new();
        if items.len() > 0 {
            thin.resize_block(items.len());
            items.for_each(|item| thin.push(item));
        }
        thin
    }

    fn layout(cap: usize) -> Layout {
        let size = cap.checked_mul(size_of::<T>()).and_then(|size| size.checked_add(HEADER));
        let size = size.expect("a vector is smaller than the address space");
        Layout::from_size_align(size, 8).expect("a vector is smaller than the address space")
    }

    /// Gives the block so many items' capacity, at least its length.
    fn resize_block(&mut self, cap: usize) {
        let cap = u32::try_from(cap).expect("a container has less than 2^32 children");
        debug_assert!(cap as usize >= self.len() && cap > 0);
        let layout = Self::layout(cap as usize);
        // SAFETY: the layout has at least the header's bytes; an old block was made with the layout
        // of its capacity.
        let block = unsafe {
            match self.block {
                None => alloc(layout),
                Some(old) => {
                    let old_layout = Self::layout(old.as_ref().cap as usize);
                    realloc(old.as_ptr().cast(), old_layout, layout.size())
                }
            }
        };
        let Some(block) = NonNull::new(block.cast::<Header>()) else { handle_alloc_error(layout) };
        let len = if self.block.is_some() {
            // SAFETY: the header was moved with the block.
            unsafe { block.as_ref().len }
        } else {
            0
        };
        // SAFETY: the block is ours and as large as the header.
        unsafe { block.write(Header { len, cap }) };
        self.block = Some(block);
    }

    /// Makes place for so many more items. Grows by a quarter at least.
    pub(crate) fn reserve(&mut self, more: usize) {
        let needed = self.len() + more;
        if needed > self.capacity() {
            let wanted = needed.max(self.len() + self.len() / 4);
            let bytes = block_size(HEADER + wanted * size_of::<T>());
            let cap = (bytes - HEADER) / size_of::<T>();
            self.resize_block(cap.min(needed.max(u32::MAX as usize)));
        }
    }

    /// Gives spare capacity back if it is more than half of what is used.
    pub(crate) fn shrink(&mut self) {
        let len = self.len();
        if len == 0 {
            *self = Thin::new();
        } else if self.capacity() - len > len / 2 + 4 {
            self.resize_block(len);
        }
    }

    /// Gives all spare capacity back.
    pub(crate) fn shrink_to_fit(&mut self) {
        let len = self.len();
        if len == 0 {
            *self = Thin::new();
        } else if self.capacity() > len {
            self.resize_block(len);
        }
    }

    /// Returns how many items there are.
    pub(crate) fn len(&self) -> usize {
        // SAFETY: the block is ours and begins with a header.
        self.block.map_or(0, |block| unsafe { block.as_ref().len as usize })
    }

    /// Returns how many items the block can hold.
    pub(crate) fn capacity(&self) -> usize {
        // SAFETY: the block is ours and begins with a header.
        self.block.map_or(0, |block| unsafe { block.as_ref().cap as usize })
    }

    fn set_len(&mut self, len: usize) {
        if let Some(block) = &mut self.block {
            // SAFETY: the block is ours and begins with a header.
            unsafe { block.as_mut().len = len as u32 };
        }
    }

    fn first(&self) -> *mut T {
        match self.block {
            // SAFETY: the items begin behind the header, in the same block.
            Some(block) => unsafe { block.as_ptr().add(1).cast() },
            None => NonNull::dangling().as_ptr(),
        }
    }

    /// Returns the items.
    pub(crate) fn as_slice(&self) -> &[T] {
        // SAFETY: as many items as the length says are initialised.
        unsafe { std::slice::from_raw_parts(self.first(), self.len()) }
    }

    /// Returns the items, to be changed.
    pub(crate) fn as_mut_slice(&mut self) -> &mut [T] {
        // SAFETY: as many items as the length says are initialised, and nothing else refers to
        // them.
        unsafe { std::slice::from_raw_parts_mut(self.first(), self.len()) }
    }

    /// Adds an item at the end.
    pub(crate) fn push(&mut self, item: T) {
        let len = self.len();
        self.reserve(1);
        // SAFETY: there is capacity for one more.
        unsafe { self.first().add(len).write(item) };
        self.set_len(len + 1);
    }

    /// Puts items before the one at `at`, or at the end.
    ///
    /// # Panics
    /// If there are fewer than `at` items.
    pub(crate) fn insert_all(&mut self, at: usize, items: Vec<T>) {
        let (len, more) = (self.len(), items.len());
        assert!(at <= len, "the place is in the vector");
        if more == 0 {
            return;
        }
        self.reserve(more);
        // SAFETY: there is capacity for `more` items beyond `len`. The length is cut first, so that
        // nothing is dropped twice if an iterator were to panic.
        unsafe {
            self.set_len(at);
            let place = self.first().add(at);
            place.copy_to(place.add(more), len - at);
            for (offset, item) in items.into_iter().enumerate() {
                place.add(offset).write(item);
            }
        }
        self.set_len(len + more);
    }

    /// Removes and returns the item at `at`; those behind it move up.
    ///
    /// # Panics
    /// If there is none.
    pub(crate) fn remove(&mut self, at: usize) -> T {
        let len = self.len();
        assert!(at < len, "the item exists");
        // SAFETY: the item is initialised; it is moved out and those behind it close the gap.
        let item = unsafe {
            let place = self.first().add(at);
            let item = place.read();
            place.add(1).copy_to(place, len - at - 1);
            item
        };
        self.set_len(len - 1);
        self.shrink();
        item
    }

    /// Removes and returns the item at `at`, whose place the last one takes.
    ///
    /// # Panics
    /// If there is none.
    pub(crate) fn swap_remove(&mut self, at: usize) -> T {
        let last = self.len().checked_sub(1).expect("the item exists");
        self.as_mut_slice().swap(at, last);
        self.remove(last)
    }

    /// Keeps the items of a range only.
    ///
    /// # Panics
    /// If the range is not within the vector.
    pub(crate) fn keep(&mut self, from: usize, to: usize) {
        let len = self.len();
        assert!(from <= to && to <= len, "the range is in the vector");
        self.set_len(0);
        let first = self.first();
        // SAFETY: the items outside of the range are dropped once and not referred to any more,
        // those inside move to the front.
        unsafe {
            std::ptr::slice_from_raw_parts_mut(first, from).drop_in_place();
            std::ptr::slice_from_raw_parts_mut(first.add(to), len - to).drop_in_place();
            first.add(from).copy_to(first, to - from);
        }
        self.set_len(to - from);
        self.shrink();
    }

    /// Returns the bytes of its block.
    pub(crate) fn memory(&self) -> usize {
        self.block.map_or(0, |_| block_size(HEADER + self.capacity() * size_of::<T>()))
    }

    /// Gives the block away, as a number: 0 if there is none.
    pub(crate) fn into_address(self) -> usize {
        let block = std::mem::ManuallyDrop::new(self).block;
        block.map_or(0, |block| block.as_ptr().expose_provenance())
    }

    /// Returns the vector of a block.
    ///
    /// # Safety
    /// The address came from [`Thin::into_address`] of a vector of the same type, and nothing else
    /// uses it as long as the result lives.
    pub(crate) unsafe fn from_address(address: usize) -> Thin<T> {
        let block = NonNull::new(std::ptr::with_exposed_provenance_mut(address));
        Thin { block, items: PhantomData }
    }
}

impl<T: Copy> Thin<T> {
    /// Adds copies of items at the end.
    pub(crate) fn extend(&mut self, items: &[T]) {
        let len = self.len();
        self.reserve(items.len());
        // SAFETY: there is capacity for the items, and they are not in this block, which is
        // borrowed to be changed.
        unsafe { self.first().add(len).copy_from_nonoverlapping(items.as_ptr(), items.len()) };
        self.set_len(len + items.len());
    }
}

impl<T> Drop for Thin<T> {
    fn drop(&mut self) {
        let Some(block) = self.block else { return };
        let layout = Self::layout(self.capacity());
        // SAFETY: the items are initialised and dropped once; the block was made with this layout.
        unsafe {
            if std::mem::needs_drop::<T>() {
                std::ptr::from_mut(self.as_mut_slice()).drop_in_place();
            }
            dealloc(block.as_ptr().cast(), layout);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[derive(Clone, Debug)]
    enum Change {
        Push(u8),
        Insert(usize, Vec<u8>),
        Remove(usize),
        SwapRemove(usize),
        Keep(usize, usize),
    }

    fn change() -> impl Strategy<Value = Change> {
        prop_oneof![
            any::<u8>().prop_map(Change::Push),
            (any::<usize>(), proptest::collection::vec(any::<u8>(), 0..9))
                .prop_map(|(at, items)| Change::Insert(at, items)),
            any::<usize>().prop_map(Change::Remove),
            any::<usize>().prop_map(Change::SwapRemove),
            (any::<usize>(), any::<usize>()).prop_map(|(from, to)| Change::Keep(from, to)),
        ]
    }

    proptest! {
        #![proptest_config(crate::few_cases(256))]
        #[test]
        fn agrees_with_vec(changes in proptest::collection::vec(change(), 0..60)) {
            // Items that own a block show what is dropped twice or not at all under Miri.
            let mut thin: Thin<Box<u8>> = Thin::new();
            let mut model: Vec<Box<u8>> = Vec::new();
            for change in changes {
                match change {
                    Change::Push(item) => {
                        thin.push(Box::new(item));
                        model.push(Box::new(item));
                    }
                    Change::Insert(at, items) => {
                        let at = at % (model.len() + 1);
                        let items: Vec<Box<u8>> = items.into_iter().map(Box::new).collect();
                        thin.insert_all(at, items.clone());
                        model.splice(at..at, items);
                    }
                    Change::Remove(at) if !model.is_empty() => {
                        let at = at % model.len();
                        prop_assert_eq!(thin.remove(at), model.remove(at));
                    }
                    Change::SwapRemove(at) if !model.is_empty() => {
                        let at = at % model.len();
                        prop_assert_eq!(thin.swap_remove(at), model.swap_remove(at));
                    }
                    Change::Remove(_) | Change::SwapRemove(_) => {}
                    Change::Keep(from, to) => {
                        let to = to % (model.len() + 1);
                        let from = from % (to + 1);
                        thin.keep(from, to);
                        model = model[from..to].to_vec();
                    }
                }
                prop_assert_eq!(thin.as_slice(), &model[..]);
            }
            let address = thin.into_address();
            // SAFETY: the address is of a vector of this type, and is used once.
            let thin: Thin<Box<u8>> = unsafe { Thin::from_address(address) };
            prop_assert_eq!(thin.as_slice(), &model[..]);
        }
    }

    #[test]
    fn a_collected_vector_has_no_spare_capacity() {
        let mut thin: Thin<u16> = Thin::new();
        thin.reserve(200);
        (0..100).for_each(|item| thin.push(item));
        thin.shrink_to_fit();
        assert_eq!((thin.capacity(), thin.as_slice().len()), (100, 100));
        thin.keep(0, 0);
        thin.shrink_to_fit();
        assert_eq!(thin.memory(), 0);
        let thin = Thin::exact(0u16..100);
        assert_eq!((thin.len(), thin.capacity()), (100, 100));
        assert_eq!(thin.memory(), block_size(208));
        assert_eq!(Thin::<u16>::new().memory(), 0);
    }
}

//! A growable byte string behind one pointer: the value of strings that do not fit an entry.
//!
//! ```text
//!  ┌─────────┬──────────┬───────────────┐
//!  │ len u32 │ room u32 │ bytes …       │
//!  └─────────┴──────────┴───────────────┘
//! ```
//!
//! The header is in the block, so a 500-byte value takes one 512-byte block and its owner one
//! pointer. Strings are limited to 4 GiB − 1.
#![allow(unsafe_code)]

use crate::memory::block_size;
use std::alloc::{Layout, alloc, dealloc, handle_alloc_error, realloc};
use std::ptr::NonNull;

const HEADER: usize = 8;

/// The string; see the module's documentation.
#[repr(transparent)]
pub struct HeapString(NonNull<u8>);

// SAFETY: owns its block.
unsafe impl Send for HeapString {}
// SAFETY: `&self` only reads.
unsafe impl Sync for HeapString {}

fn layout(room: usize) -> Layout {
    Layout::from_size_align(HEADER + room, 8).expect("a string of at most 4 GiB")
}

/// The bytes of the block that `len` bytes of content need.
pub const fn block_for(len: usize) -> usize {
    block_size(HEADER + len)
}

impl HeapString {
    /// An empty string with room for `len` bytes.
    pub fn with_capacity(len: usize) -> HeapString {
        let room = block_for(len) - HEADER;
        assert!(room <= u32::MAX as usize, "a string of more than 4 GiB");
        // SAFETY: the layout is not empty; header fields are written before they are read.
        unsafe {
            let Some(at) = NonNull::new(alloc(layout(room))) else {
                handle_alloc_error(layout(room))
            };
            at.cast::<u32>().write(0);
            at.cast::<u32>().add(1).write(room as u32);
            HeapString(at)
        }
    }

    /// A copy of `bytes`.
    pub fn from_bytes(bytes: &[u8]) -> HeapString {
        let mut string = HeapString::with_capacity(bytes.len());
        string.extend(bytes);
        string
    }

    fn header(&self, index: usize) -> usize {
        // SAFETY: both header fields are initialised.
        unsafe { self.0.cast::<u32>().add(index).read() as usize }
    }
    fn set_header(&mut self, index: usize, value: usize) {
        // SAFETY: the header belongs to us.
        unsafe { self.0.cast::<u32>().add(index).write(value as u32) }
    }

    /// Bytes of content.
    #[inline]
    pub fn len(&self) -> usize {
        self.header(0)
    }

    /// Whether there is no content.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Bytes of the block.
    pub fn allocated_bytes(&self) -> usize {
        HEADER + self.header(1)
    }

    /// The content.
    #[inline]
    pub fn as_slice(&self) -> &[u8] {
        // SAFETY: `len` bytes behind the header are initialised.
        unsafe { std::slice::from_raw_parts(self.0.as_ptr().add(HEADER), self.len()) }
    }

    /// The content, to change it.
    pub fn as_mut_slice(&mut self) -> &mut [u8] {
        // SAFETY: as above, and `&mut self` is exclusive.
        unsafe { std::slice::from_raw_parts_mut(self.0.as_ptr().add(HEADER), self.len()) }
    }

    /// Makes room for `len` bytes in total; grows by a quarter at least, so that a string built
    /// by APPEND is not copied each time.
    pub fn reserve(&mut self, len: usize) {
        let room = self.header(1);
        if len <= room {
            return;
        }
        let wanted = len.max((room + room / 4).min(room + (1 << 20)));
        self.reallocate(block_for(wanted) - HEADER);
    }

    fn reallocate(&mut self, room: usize) {
        assert!(room <= u32::MAX as usize, "a string of more than 4 GiB");
        // SAFETY: allocated with this layout; the new size is not zero.
        let at = unsafe { realloc(self.0.as_ptr(), layout(self.header(1)), HEADER + room) };
        match NonNull::new(at) {
            Some(at) => self.0 = at,
            None => handle_alloc_error(layout(room)),
        }
        self.set_header(1, room);
    }

    /// Appends.
    pub fn extend(&mut self, bytes: &[u8]) {
        let len = self.len();
        self.reserve(len + bytes.len());
        // SAFETY: `reserve` made room, and `bytes` cannot overlap our exclusive block.
        unsafe {
            let end = self.0.as_ptr().add(HEADER + len);
            end.copy_from_nonoverlapping(bytes.as_ptr(), bytes.len());
        }
        self.set_header(0, len + bytes.len());
    }

    /// Makes the content `len` bytes long; new bytes are zero.
    pub fn resize(&mut self, len: usize) {
        let old = self.len();
        if len > old {
            self.reserve(len);
            // SAFETY: `reserve` made room.
            unsafe { self.0.as_ptr().add(HEADER + old).write_bytes(0, len - old) };
        }
        self.set_header(0, len);
    }

    /// Gives unused room back.
    pub fn shrink_to_fit(&mut self) {
        let room = block_for(self.len()) - HEADER;
        if room < self.header(1) {
            self.reallocate(room);
        }
    }

    /// Gives up ownership; [`HeapString::from_raw`] takes it back.
    pub fn into_raw(self) -> NonNull<u8> {
        std::mem::ManuallyDrop::new(self).0
    }

    /// Takes ownership.
    ///
    /// # Safety
    /// `raw` must come from [`HeapString::into_raw`] and be used once.
    pub unsafe fn from_raw(raw: NonNull<u8>) -> HeapString {
        HeapString(raw)
    }
}

impl Clone for HeapString {
    fn clone(&self) -> Self {
        HeapString::from_bytes(self.as_slice())
    }
}

impl Drop for HeapString {
    fn drop(&mut self) {
        // SAFETY: allocated with this layout, dropped once.
        unsafe { dealloc(self.0.as_ptr(), layout(self.header(1))) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn agrees_with_a_vector(
            start in proptest::collection::vec(any::<u8>(), 0..80),
            ops in proptest::collection::vec((0u8..7, 0usize..300, any::<u8>()), 0..60),
        ) {
            let mut string = HeapString::from_bytes(&start);
            let mut model = start;
            for (op, size, byte) in ops {
                match op {
                    0 | 1 => {
                        string.extend(&vec![byte; size]);
                        model.resize(model.len() + size, byte);
                    }
                    2 => {
                        // What is new is zero, even where there was something before.
                        string.resize(size);
                        model.resize(size, 0);
                    }
                    3 => string.reserve(size),
                    4 => string.shrink_to_fit(),
                    5 => {
                        if let Some(last) = string.as_mut_slice().last_mut() {
                            *last = byte;
                        }
                        if let Some(last) = model.last_mut() {
                            *last = byte;
                        }
                    }
                    _ => string = HeapString::from_bytes(string.as_slice()),
                }
                prop_assert_eq!(string.as_slice(), &model[..]);
                prop_assert_eq!((string.len(), string.is_empty()), (model.len(), model.is_empty()));
                prop_assert!(string.allocated_bytes() >= model.len());
            }
        }
    }

    #[test]
    fn grows_shrinks_and_keeps_its_bytes() {
        let mut model = Vec::new();
        let mut string = HeapString::from_bytes(b"");
        for i in 0..2000u32 {
            let piece = vec![i as u8; (i % 17) as usize];
            model.extend_from_slice(&piece);
            string.extend(&piece);
        }
        assert_eq!(string.as_slice(), model);
        string.resize(10);
        model.resize(10, 0);
        string.resize(600);
        model.resize(600, 0);
        assert_eq!(string.as_slice(), model);
        string.shrink_to_fit();
        assert_eq!(string.as_slice(), model);
        assert_eq!(HeapString::from_bytes(&[0; 500]).allocated_bytes(), 512);
    }
}

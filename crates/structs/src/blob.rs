//! A byte string of fixed length behind one pointer.
//!
//! ```text
//!   handle ─▶ | len u64 | bytes … |
//! ```
//!
//! A `Box<[u8]>` is two words in its owner; list nodes and hash items have room for one.
#![allow(unsafe_code)] // Owns raw memory.

use crate::size_class::block_size;
use std::alloc::{Layout, alloc, dealloc, handle_alloc_error};
use std::ops::Deref;
use std::ptr::NonNull;

/// An owned byte string; see the module's documentation.
pub struct Blob {
    memory: NonNull<u64>,
}

const HEAD: usize = size_of::<u64>();
const _: () = assert!(size_of::<Option<Blob>>() == size_of::<usize>());

// SAFETY: the allocation is owned and plain bytes.
unsafe impl Send for Blob {}
// SAFETY: a shared blob is only read.
unsafe impl Sync for Blob {}

fn layout(len: usize) -> Layout {
    Layout::from_size_align(HEAD + len, align_of::<u64>()).expect("bytes that fit into memory")
}

impl Blob {
    /// Copies `bytes`.
    pub fn new(bytes: &[u8]) -> Self {
        let layout = layout(bytes.len());
        // SAFETY: the layout is not empty and has room for the length and the bytes.
        unsafe {
            let Some(memory) = NonNull::new(alloc(layout).cast::<u64>()) else {
                handle_alloc_error(layout)
            };
            memory.write(bytes.len() as u64);
            let target = memory.as_ptr().cast::<u8>().add(HEAD);
            std::ptr::copy_nonoverlapping(bytes.as_ptr(), target, bytes.len());
            Self { memory }
        }
    }

    /// Bytes of its block.
    pub fn allocated_bytes(&self) -> usize {
        Blob::block_for(self.len())
    }

    /// Bytes of the block that `len` bytes need.
    pub(crate) fn block_for(len: usize) -> usize {
        block_size(HEAD + len)
    }

    /// Gives up ownership; only [`Blob::from_raw`] takes it back.
    #[inline]
    pub(crate) fn into_raw(self) -> NonNull<u8> {
        std::mem::ManuallyDrop::new(self).memory.cast()
    }

    /// # Safety
    /// `raw` must come from [`Blob::into_raw`], and be used once.
    #[inline]
    pub(crate) unsafe fn from_raw(raw: NonNull<u8>) -> Self {
        Self { memory: raw.cast() }
    }
}

impl Deref for Blob {
    type Target = [u8];

    #[inline]
    fn deref(&self) -> &[u8] {
        // SAFETY: the length and that many bytes are written at allocation.
        unsafe {
            let len = self.memory.read() as usize;
            std::slice::from_raw_parts(self.memory.as_ptr().cast::<u8>().add(HEAD), len)
        }
    }
}

impl Clone for Blob {
    fn clone(&self) -> Self {
        Self::new(self)
    }
}

impl Drop for Blob {
    #[inline]
    fn drop(&mut self) {
        // SAFETY: allocated with this layout, and not used after.
        unsafe { dealloc(self.memory.as_ptr().cast(), layout(self.len())) };
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn keeps_its_bytes(all in proptest::collection::vec(
            proptest::collection::vec(any::<u8>(), 0..100), 0..20,
        )) {
            let blobs: Vec<Blob> = all.iter().map(|bytes| Blob::new(bytes)).collect();
            let copies = blobs.clone();
            // Through a raw pointer and back, as lists keep them.
            let blobs: Vec<Blob> = blobs
                .into_iter()
                // SAFETY: it comes from `into_raw`, once.
                .map(|blob| unsafe { Blob::from_raw(blob.into_raw()) })
                .collect();
            for (bytes, (blob, copy)) in all.iter().zip(blobs.iter().zip(&copies)) {
                prop_assert_eq!(&**blob, &bytes[..]);
                prop_assert_eq!(blob.allocated_bytes(), block_size(bytes.len() + 8));
                prop_assert_ne!(blob.as_ptr(), copy.as_ptr());
            }
            drop(blobs);
            for (bytes, copy) in all.iter().zip(&copies) {
                prop_assert_eq!(&**copy, &bytes[..]);
            }
        }
    }
}

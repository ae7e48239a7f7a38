//! A field of a big hash with its value, in one allocation.
//!
//! ```text
//!   handle ─▶ | SHORT     | field len u8 | value len u8 | field … | value … |
//!   handle ─▶ | 0         | field len u64 | value len u64 | field … | value … |
//!   handle ─▶ | BOXED     | field len u64 | unused u64 | field … | pointer to a Blob |
//!   with TIMED: … lengths | expiry i64 | field …
//! ```
//!
//! The allocation has the size class of what it holds, computed from the lengths, so a new value
//! of nearly the old length is written in place. A value from [`BOXED_FROM`] bytes on has its own
//! allocation: replacing it does not copy the field, and it can be dropped elsewhere.
//!
//! A field that expires has a bit more in its first byte, and the milliseconds since the epoch of
//! Unix behind the lengths.
#![allow(unsafe_code)] // Owns raw memory with a layout that its first bytes describe.

use crate::blob::Blob;
use crate::size_class::block_size;
use crate::table::Item;
use crate::watched::Measured;
use std::alloc::{Layout, alloc, dealloc, handle_alloc_error};
use std::mem::ManuallyDrop;
use std::ptr::NonNull;

/// A field and its value; see the module's documentation.
#[repr(transparent)]
pub(super) struct Field(NonNull<u8>);

/// Both lengths are one byte.
const SHORT: u8 = 1;
/// The value is a pointer to a [`Blob`].
const BOXED: u8 = 2;
/// The field expires.
const TIMED: u8 = 4;

const SHORT_HEAD: usize = 3;
const LONG_HEAD: usize = 1 + 2 * size_of::<u64>();
const EXPIRY: usize = size_of::<i64>();

/// The length from which a value has its own allocation.
const BOXED_FROM: usize = 1024;

// SAFETY: the allocation is owned and plain bytes, and a blob may move between threads.
unsafe impl Send for Field {}
// SAFETY: a shared field is only read.
unsafe impl Sync for Field {}

/// What the first bytes say.
#[derive(Clone, Copy)]
struct Head {
    tag: u8,
    /// Bytes before the field.
    len: usize,
    field: usize,
    /// Bytes of the value here: those of the pointer if it is boxed.
    value: usize,
}

impl Head {
    #[inline]
    fn of(field: usize, value: usize, is_timed: bool) -> Self {
        let mut head = Self::new(field, value);
        if is_timed {
            head.tag |= TIMED;
            head.len += EXPIRY;
        }
        head
    }

    #[inline]
    fn new(field: usize, value: usize) -> Self {
        if value >= BOXED_FROM {
            Self { tag: BOXED, len: LONG_HEAD, field, value: size_of::<usize>() }
        } else if field <= u8::MAX as usize && value <= u8::MAX as usize {
            Self { tag: SHORT, len: SHORT_HEAD, field, value }
        } else {
            Self { tag: 0, len: LONG_HEAD, field, value }
        }
    }

    /// # Safety
    /// `memory` must start with a head.
    #[inline]
    unsafe fn read(memory: NonNull<u8>) -> Self {
        // SAFETY: the tag says which lengths follow.
        unsafe {
            let tag = memory.read();
            let expiry = usize::from(tag & TIMED) * (EXPIRY / TIMED as usize);
            if tag & SHORT != 0 {
                let [field, value] = memory.add(1).cast::<[u8; 2]>().read();
                let len = SHORT_HEAD + expiry;
                return Self { tag, len, field: field as usize, value: value as usize };
            }
            let [field, value] = memory.add(1).cast::<[u64; 2]>().read_unaligned();
            Self { tag, len: LONG_HEAD + expiry, field: field as usize, value: value as usize }
        }
    }

    /// # Safety
    /// `memory` must have room for `self.len` bytes.
    #[inline]
    unsafe fn write(self, memory: NonNull<u8>) {
        // SAFETY: the caller vouches for the room, and `len` is that of the tag.
        unsafe {
            memory.write(self.tag);
            let lengths = memory.add(1);
            if self.tag & SHORT != 0 {
                lengths.cast::<[u8; 2]>().write([self.field as u8, self.value as u8]);
            } else {
                lengths.cast::<[u64; 2]>().write_unaligned([self.field as u64, self.value as u64]);
            }
        }
    }

    #[inline]
    fn layout(self) -> Layout {
        let size = block_size(self.len + self.field + self.value);
        Layout::from_size_align(size, 1).expect("bytes that fit into memory")
    }

    #[inline]
    fn value_at(self) -> usize {
        self.len + self.field
    }

    #[inline]
    fn is_boxed(self) -> bool {
        self.tag & BOXED != 0
    }

    #[inline]
    fn is_timed(self) -> bool {
        self.tag & TIMED != 0
    }

    /// Where the expiry is, if the field has one.
    #[inline]
    fn expiry_at(self) -> usize {
        self.len - EXPIRY
    }
}

impl Field {
    #[inline]
    pub(super) fn new(field: &[u8], value: &[u8]) -> Self {
        Self::with_expiry(field, value, None)
    }

    /// A field that expires, if there is a time.
    #[inline]
    pub(super) fn with_expiry(field: &[u8], value: &[u8], expiry: Option<i64>) -> Self {
        let head = Head::of(field.len(), value.len(), expiry.is_some());
        let layout = head.layout();
        // SAFETY: the layout is not empty and has room for head, field and value.
        unsafe {
            let Some(memory) = NonNull::new(alloc(layout)) else { handle_alloc_error(layout) };
            head.write(memory);
            if let Some(expiry) = expiry {
                memory.add(head.expiry_at()).cast::<i64>().write_unaligned(expiry);
            }
            let target = memory.as_ptr().add(head.len);
            std::ptr::copy_nonoverlapping(field.as_ptr(), target, head.field);
            write_value(memory, head, value);
            Self(memory)
        }
    }

    #[inline]
    fn head(&self) -> Head {
        // SAFETY: the head is written at allocation.
        unsafe { Head::read(self.0) }
    }

    /// Where the pointer of a boxed value is.
    ///
    /// # Safety
    /// The value must be boxed.
    #[inline]
    unsafe fn blob_at(&self, head: Head) -> NonNull<NonNull<u8>> {
        // SAFETY: inside the allocation.
        unsafe { self.0.add(head.value_at()).cast() }
    }

    /// The field's value.
    #[inline]
    pub(super) fn value(&self) -> &[u8] {
        let head = self.head();
        // SAFETY: the value's bytes are behind the field, or a blob is, which lives as long.
        unsafe {
            if head.is_boxed() {
                let blob = ManuallyDrop::new(Blob::from_raw(self.blob_at(head).read_unaligned()));
                let bytes: *const [u8] = &raw const **blob;
                return &*bytes;
            }
            std::slice::from_raw_parts(self.0.as_ptr().add(head.value_at()), head.value)
        }
    }

    /// When the field expires.
    #[inline]
    pub(super) fn expiry(&self) -> Option<i64> {
        let head = self.head();
        // SAFETY: the head says that the expiry is there.
        head.is_timed()
            .then(|| unsafe { self.0.add(head.expiry_at()).cast::<i64>().read_unaligned() })
    }

    /// Lets the field expire then, or never. It is allocated anew where the expiry comes or goes.
    pub(super) fn set_expiry(&mut self, expiry: Option<i64>) {
        let head = self.head();
        match expiry {
            Some(expiry) if head.is_timed() => {
                // SAFETY: the head says that the expiry is there.
                unsafe { self.0.add(head.expiry_at()).cast::<i64>().write_unaligned(expiry) }
            }
            None if !head.is_timed() => {}
            _ => *self = Field::with_expiry(self.key(), self.value(), expiry),
        }
    }

    /// Puts another value in the place of the present one, without moving if it fits. The expiry
    /// stays.
    #[inline]
    pub(super) fn set_value(&mut self, value: &[u8]) {
        let old = self.head();
        let new = Head::of(old.field, value.len(), old.is_timed());
        if old.tag != new.tag || old.layout() != new.layout() {
            *self = Field::with_expiry(self.key(), value, self.expiry());
            return;
        }
        // SAFETY: the same tag and layout mean that the field stays where it is and the new value
        // fits; `value` is no part of this allocation, which is borrowed exclusively.
        unsafe {
            if old.is_boxed() {
                drop(Blob::from_raw(self.blob_at(old).read_unaligned()));
            }
            new.write(self.0);
            write_value(self.0, new, value);
        }
    }
}

impl Measured for Field {
    #[inline]
    fn allocated_bytes(&self) -> usize {
        let head = self.head();
        let blob = if head.is_boxed() { Blob::block_for(self.value().len()) } else { 0 };
        head.layout().size() + blob
    }
}

/// Writes the value, or the pointer to it, behind the field.
///
/// # Safety
/// `memory` must have the layout of `head`, and `value` must be what `head` was made for.
#[inline]
unsafe fn write_value(memory: NonNull<u8>, head: Head, value: &[u8]) {
    // SAFETY: the caller vouches for the room.
    unsafe {
        let target = memory.add(head.value_at());
        if head.is_boxed() {
            target.cast::<NonNull<u8>>().write_unaligned(Blob::new(value).into_raw());
        } else {
            std::ptr::copy_nonoverlapping(value.as_ptr(), target.as_ptr(), value.len());
        }
    }
}

// SAFETY: transparent over `NonNull<u8>`, and the field's bytes never change.
unsafe impl Item for Field {
    #[inline]
    fn key(&self) -> &[u8] {
        let head = self.head();
        // SAFETY: the field's bytes are behind the head.
        unsafe { std::slice::from_raw_parts(self.0.as_ptr().add(head.len), head.field) }
    }
}

impl Drop for Field {
    #[inline]
    fn drop(&mut self) {
        let head = self.head();
        // SAFETY: allocated with this layout, and not used after; the blob is ours.
        unsafe {
            if head.is_boxed() {
                drop(Blob::from_raw(self.blob_at(head).read_unaligned()));
            }
            dealloc(self.0.as_ptr(), head.layout());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keeps_and_replaces_values_of_any_length() {
        let lengths = [0, 1, 5, 12, 13, 14, 29, 200, 255, 256, 300, 1023, 1024, 1025, 5000];
        for field_len in [0, 1, 10, 255, 256, 2000] {
            let name = vec![b'f'; field_len];
            let mut field = Field::new(&name, b"");
            for old in lengths {
                for new in lengths {
                    for (len, byte) in [(old, 1u8), (new, 2)] {
                        let value = vec![byte; len];
                        field.set_value(&value);
                        assert_eq!(field.key(), name);
                        assert_eq!(field.value(), value);
                        assert!(field.allocated_bytes() >= field_len + len);
                    }
                }
            }
        }
    }

    #[test]
    fn an_expiry_comes_and_goes_and_stays_beside_a_new_value() {
        for (name_len, value_len) in [(0, 0), (1, 5), (255, 255), (256, 0), (10, 300), (3, 5000)] {
            let (name, value) = (vec![b'f'; name_len], vec![b'v'; value_len]);
            let mut field = Field::new(&name, &value);
            assert_eq!(field.expiry(), None);
            for expiry in [Some(5), Some(i64::MAX), None, None, Some(-1)] {
                field.set_expiry(expiry);
                assert_eq!((field.expiry(), field.key(), field.value()), (expiry, &*name, &*value));
            }
            for other in [0, 1, 254, 256, 1023, 1024, 3000] {
                field.set_value(&vec![b'w'; other]);
                assert_eq!((field.expiry(), field.value().len()), (Some(-1), other));
                assert_eq!(field.key(), name);
            }
        }
    }

    #[test]
    fn a_value_of_similar_length_stays_in_place() {
        let mut field = Field::new(b"counter", b"9");
        let before = field.value().as_ptr();
        field.set_value(b"10");
        assert_eq!(field.value().as_ptr(), before);
        assert_eq!(field.value(), b"10");
    }
}

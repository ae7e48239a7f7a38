//! Pairs in fewer bytes than a listpack takes: its entries without their backlens.
//!
//! ```text
//!   | tag … payload | tag … payload | …      field, value, field, value
//! ```
//!
//! The backlen is a byte of each short entry, which only walking from the right needs. Nothing
//! walks a hash from the right, so one that lies in the block of its key has its pairs in this
//! form. Entries are at most [`LONGEST`] bytes long, so that each backlen is one byte and can be
//! put back without a look at more than the entry.
#![allow(unsafe_code)] // Walks entries that come from a valid listpack without bounds checks.

use super::{Element, HEADER, Listpack, Needle, entry};
use std::marker::PhantomData;
use std::mem::MaybeUninit;
use std::ptr::NonNull;

/// The longest entry with its backlen that has a backlen of one byte.
const LONGEST: usize = 128;

/// Pairs without backlens; see the module's documentation.
#[derive(Clone)]
pub struct Compact<'a> {
    next: *const u8,
    end: *const u8,
    entries: PhantomData<&'a [u8]>,
}

// SAFETY: it is a shared borrow of bytes.
unsafe impl Send for Compact<'_> {}
// SAFETY: as above.
unsafe impl Sync for Compact<'_> {}

/// Decodes the entry at `at`: the element, and the bytes to the next one.
///
/// # Safety
/// `at` must point at an entry that [`Listpack::write_compact`] has written and that outlives `'a`.
#[inline(always)]
unsafe fn decode<'a>(at: *const u8) -> (Element<'a>, usize) {
    // SAFETY: an entry is read up to its payload's end; its backlen, of one byte, is only counted.
    let (element, len) = unsafe { entry::decode(at) };
    (element, len - 1)
}

impl<'a> Compact<'a> {
    /// # Safety
    /// From `start` to `end` there must be what [`Listpack::write_compact`] wrote for a listpack of
    /// pairs, borrowed for `'a`.
    #[inline]
    pub(crate) unsafe fn new(start: *const u8, end: *const u8) -> Self {
        Self { next: start, end, entries: PhantomData }
    }

    /// The value of the first pair whose field is `field`.
    #[inline]
    pub fn find_value(self, field: &[u8]) -> Option<Element<'a>> {
        let needle = Needle::new(field);
        let mut at = self.next;
        while at != self.end {
            // SAFETY: a pair begins here, so an entry, and behind it another one.
            unsafe {
                let (field, len) = decode(at);
                at = at.add(len);
                let (value, len) = decode(at);
                if needle.matches(field) {
                    return Some(value);
                }
                at = at.add(len);
            }
        }
        None
    }
}

impl<'a> Iterator for Compact<'a> {
    type Item = (Element<'a>, Element<'a>);

    #[inline(always)]
    fn next(&mut self) -> Option<Self::Item> {
        if self.next == self.end {
            return None;
        }
        // SAFETY: a pair begins here, so an entry, and behind it another one.
        unsafe {
            let (field, len) = decode(self.next);
            let (value, more) = decode(self.next.add(len));
            self.next = self.next.add(len + more);
            Some((field, value))
        }
    }
}

impl Listpack {
    /// The bytes that [`Listpack::write_compact`] writes; `None` if an entry is too long for it.
    pub(crate) fn compact_len(&self) -> Option<usize> {
        let mut sum = 0;
        let mut at = HEADER;
        while at < self.end() {
            // SAFETY: an entry begins here.
            let len = unsafe { entry::skip(self.at(at)) };
            if len > LONGEST {
                return None;
            }
            sum += len - 1;
            at += len;
        }
        Some(sum)
    }

    /// Writes the entries without their backlens.
    ///
    /// # Panics
    /// If there is not room for [`Listpack::compact_len`] bytes, or no such length.
    pub(crate) fn write_compact(&self, to: &mut [MaybeUninit<u8>]) {
        assert_eq!(self.compact_len(), Some(to.len()));
        let mut to = to.as_mut_ptr().cast::<u8>();
        let mut at = HEADER;
        while at < self.end() {
            // SAFETY: an entry begins here, and there is room for all of them.
            unsafe {
                let from = self.at(at);
                let len = entry::skip(from);
                std::ptr::copy_nonoverlapping(from, to, len - 1);
                to = to.add(len - 1);
                at += len;
            }
        }
    }

    /// Makes a listpack of pairs without backlens.
    ///
    /// # Safety
    /// At `from` there must be `len` bytes and `count` entries that [`Listpack::write_compact`]
    /// wrote.
    pub(crate) unsafe fn from_compact(from: NonNull<u8>, len: usize, count: u16) -> Listpack {
        let total = HEADER + len + usize::from(count) + 1;
        let mut listpack = Self::allocate(total);
        listpack.set_header(0, total, count);
        let mut from = from.as_ptr().cast_const();
        let mut at = HEADER;
        while at < total - 1 {
            // SAFETY: an entry begins at `from`; the listpack has room for each with its backlen.
            unsafe {
                let (_, body) = decode(from);
                let to = listpack.at(at);
                std::ptr::copy_nonoverlapping(from, to, body);
                *to.add(body) = body as u8;
                from = from.add(body);
                at += body + 1;
            }
        }
        listpack.set_byte(total - 1, entry::EOF);
        listpack
    }

    /// Makes a listpack of the entries of one.
    ///
    /// # Safety
    /// At `from` there must be `len` bytes that are `count` entries of a valid listpack.
    pub(crate) unsafe fn from_entries(from: NonNull<u8>, len: usize, count: u16) -> Listpack {
        let total = HEADER + len + 1;
        let mut listpack = Self::allocate(total);
        listpack.set_header(0, total, count);
        // SAFETY: the new allocation has room for the entries.
        unsafe { std::ptr::copy_nonoverlapping(from.as_ptr(), listpack.at(HEADER), len) };
        listpack.set_byte(total - 1, entry::EOF);
        listpack
    }

    /// The bytes of all entries.
    #[inline]
    pub(crate) fn entries(&self) -> &[u8] {
        &self.as_bytes()[HEADER..self.end()]
    }
}

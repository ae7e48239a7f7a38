//! Pairs in fewer bytes than a listpack takes: its entries without their backlens.
//!
//! ```text
//!   | tag … payload | tag … payload | …      field, value, field, value
//! ```
//!
//! The backlen is a byte of each short entry, which only walking from the right needs. Nothing
//! walks a hash from the right, so one that lies in the block of its key has its pairs in this
//! form. The fields may lie apart from the values, where other hashes have them, too
//! ([`crate::field_names`]). Entries are at most [`LONGEST`] bytes long, so that each backlen is
//! one byte and can be put back without a look at more than the entry.
#![allow(unsafe_code)] // Walks entries that come from a valid listpack without bounds checks.

use super::{Element, HEADER, Listpack, Needle, entry};
use std::marker::PhantomData;
use std::mem::MaybeUninit;
use std::ptr::{NonNull, null};

/// The longest entry with its backlen that has a backlen of one byte.
const LONGEST: usize = 128;

/// Pairs without backlens; see the module's documentation.
#[derive(Clone)]
pub struct Compact<'a> {
    /// The next field, if the fields lie apart, or null.
    field: *const u8,
    /// The next pair, or the next value if the fields lie apart.
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
/// `at` must point at an entry of a valid listpack, without its backlen of one byte, that outlives
/// `'a`.
#[inline(always)]
unsafe fn decode<'a>(at: *const u8) -> (Element<'a>, usize) {
    // SAFETY: an entry is read up to its payload's end; its backlen, of one byte, is only counted.
    let (element, len) = unsafe { entry::decode(at) };
    (element, len - 1)
}

impl<'a> Compact<'a> {
    /// # Safety
    /// From `start` to `end` there must be what [`write_bare`] wrote for the entries of a listpack
    /// of pairs, borrowed for `'a`.
    #[inline]
    pub(crate) unsafe fn new(start: *const u8, end: *const u8) -> Self {
        Self { field: null(), next: start, end, entries: PhantomData }
    }

    /// Pairs whose fields lie apart.
    ///
    /// # Safety
    /// From `start` to `end` there must be values that [`write_bare`] wrote, and from `field` on as
    /// many fields, both borrowed for `'a`.
    #[inline]
    pub(crate) unsafe fn apart(field: *const u8, start: *const u8, end: *const u8) -> Self {
        Self { field, next: start, end, entries: PhantomData }
    }

    /// The entries without their backlens: field, value, field …
    fn bare(mut self) -> impl Iterator<Item = &'a [u8]> {
        let mut is_field = false;
        std::iter::from_fn(move || {
            is_field = !is_field;
            if is_field && self.next == self.end {
                return None;
            }
            let is_apart = is_field && !self.field.is_null();
            let from = if is_apart { &mut self.field } else { &mut self.next };
            // SAFETY: an entry begins here: there is a value for each field.
            unsafe {
                let (_, len) = decode(*from);
                let entry = std::slice::from_raw_parts(*from, len);
                *from = from.add(len);
                Some(entry)
            }
        })
    }
}

/// The value of the first pair whose field is `field`.
///
/// # Safety
/// As for [`Compact::new`].
#[inline]
pub(crate) unsafe fn find_value<'a>(
    start: *const u8,
    end: *const u8,
    field: &[u8],
) -> Option<Element<'a>> {
    let needle = Needle::new(field);
    let mut at = start;
    while at != end {
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

/// The value of the first of `count` pairs whose field is `field`, where the fields lie apart.
///
/// # Safety
/// As for [`Compact::apart`].
#[inline]
pub(crate) unsafe fn find_value_apart<'a>(
    fields: *const u8,
    values: *const u8,
    count: usize,
    field: &[u8],
) -> Option<Element<'a>> {
    let needle = Needle::new(field);
    let mut name = fields;
    for index in 0..count {
        // SAFETY: a field begins here, and there are as many values.
        unsafe {
            let (field, len) = decode(name);
            if needle.matches(field) {
                let value = (0..index).fold(values, |value, _| value.add(decode(value).1));
                return Some(decode(value).0);
            }
            name = name.add(len);
        }
    }
    None
}

impl<'a> Iterator for Compact<'a> {
    type Item = (Element<'a>, Element<'a>);

    #[inline(always)]
    fn next(&mut self) -> Option<Self::Item> {
        if self.next == self.end {
            return None;
        }
        // SAFETY: a pair begins here, so an entry, and behind it another one; or a value, and its
        // field there.
        unsafe {
            let (field, len) = decode(if self.field.is_null() { self.next } else { self.field });
            if self.field.is_null() {
                self.next = self.next.add(len);
            } else {
                self.field = self.field.add(len);
            }
            let (value, len) = decode(self.next);
            self.next = self.next.add(len);
            Some((field, value))
        }
    }
}

impl Listpack {
    /// The entries without their backlens, if those are of one byte ([`Listpack::bare_len`]).
    pub(crate) fn bare(&self) -> impl Iterator<Item = &[u8]> {
        let mut rest = self.entries();
        std::iter::from_fn(move || {
            if rest.is_empty() {
                return None;
            }
            // SAFETY: an entry begins here.
            let len = unsafe { entry::skip(rest.as_ptr()) };
            let (entry, behind) = rest.split_at(len);
            rest = behind;
            Some(&entry[..len - 1])
        })
    }

    /// The bytes that all entries take without their backlens; `None` if one is too long for that.
    pub(crate) fn bare_len(&self) -> Option<usize> {
        self.bare().try_fold(0, |sum, entry| (entry.len() < LONGEST).then_some(sum + entry.len()))
    }

    /// Makes a listpack of pairs without backlens, which are so many entries and bytes.
    pub(crate) fn from_compact(pairs: Compact<'_>, len: usize, count: u16) -> Listpack {
        let total = HEADER + len + usize::from(count) + 1;
        let mut listpack = Self::allocate(total);
        listpack.set_header(0, total, count);
        let mut at = HEADER;
        for entry in pairs.bare() {
            let body = entry.len();
            assert!(
                body < LONGEST && at + body + 1 < total,
                "the entries are longer than they were"
            );
            // SAFETY: there is room for the entry and its backlen.
            unsafe {
                let to = listpack.at(at);
                std::ptr::copy_nonoverlapping(entry.as_ptr(), to, body);
                *to.add(body) = body as u8;
            }
            at += body + 1;
        }
        assert_eq!(at, total - 1);
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

/// Writes entries one behind the other.
///
/// # Panics
/// If there is more or less room.
pub(crate) fn write_bare<'e>(
    entries: impl Iterator<Item = &'e [u8]>,
    mut to: &mut [MaybeUninit<u8>],
) {
    for entry in entries {
        let (here, behind) = to.split_at_mut(entry.len());
        here.write_copy_of_slice(entry);
        to = behind;
    }
    assert!(to.is_empty());
}

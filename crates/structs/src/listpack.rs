//! Redis's listpack: a list of small elements in one run of bytes.
//!
//! All small collections live in listpacks and so do the nodes of big lists; RDB files and DUMP
//! payloads hold the very bytes. One allocation, reached by one pointer:
//!
//! ```text
//!   handle ─▶ | cap u32 | start u32 |  gap  | total u32 | count u16 | entry … | 0xFF |  gap  |
//!             └────── Prefix ───────┘       └──────────── the listpack ──────────────┘
//!                                           ▲ start                                  ▲ start + total
//!             cap counts the bytes behind the prefix, the gaps included
//! ```
//!
//! The bytes between the gaps are always a complete listpack ([`Listpack::as_bytes`]). The gap in
//! *front* is what the reference implementation lacks: pushing and popping on the left moves the
//! six header bytes and nothing else, so both ends cost the same and a queue never shifts its
//! elements. Insertion and deletion in the middle move the shorter side.
//!
//! Costs: push and pop at an end O(1) amortised; everything by position or value O(n), which
//! callers bound by converting to another structure. Growth goes by the allocator's size classes
//! (steps of 1/8 to 1/4), so a listpack wastes little and never crosses a power of two without
//! need: list nodes are filled to just below one.
//!
//! `count` saturates at 65535, which in the format means "count them"; [`Listpack::count`] does.
//!
//! Rejected: a `Vec<u8>` (three words in every owner, no gap in front); decoded elements kept
//! beside the bytes (RAM is what packing is for); positions as plain offsets or pointers (a stale
//! one would corrupt the listpack, so places are always borrows: an [`Iter`] to read at, a
//! [`CursorMut`] to write at, and both walk without checks).
#![allow(unsafe_code)] // Owns raw memory; entries of a valid listpack are walked unchecked.

mod compact;
mod cursor;
mod element;
mod entry;
mod iter;
mod memory;
mod run;
#[cfg(test)]
mod tests;

pub use compact::Compact;
pub(crate) use compact::{find_value, find_value_apart, write_bare};
pub use cursor::CursorMut;
pub use element::{Element, IntBuf, Needle};
use entry::{EOF, Encoded};
pub use iter::{Iter, Pairs};
pub use run::Run;

use std::ptr::NonNull;

/// Bytes of the header: total bytes and number of entries.
const HEADER: usize = 6;
/// The count that means "more than fits, count them".
const COUNT_UNKNOWN: u16 = u16::MAX;
/// Listpacks do not grow past this by [`Listpack::has_room_for`]'s advice.
const MAX_BYTES: usize = 1 << 30;

/// A listpack; see the module's documentation.
pub struct Listpack {
    /// Start of the prefix. The memory belongs to this value alone.
    memory: NonNull<u8>,
}

const _: () = assert!(size_of::<Option<Listpack>>() == size_of::<usize>());

// SAFETY: the allocation is owned and plain bytes.
unsafe impl Send for Listpack {}
// SAFETY: a shared listpack is only read.
unsafe impl Sync for Listpack {}

/// Bytes that are not a well-formed listpack.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Malformed;

impl std::fmt::Display for Malformed {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("malformed packed encoding")
    }
}

impl std::error::Error for Malformed {}

impl Default for Listpack {
    fn default() -> Self {
        Self::new()
    }
}

impl Listpack {
    /// An empty listpack.
    pub fn new() -> Self {
        Self::with_capacity(0)
    }

    /// An empty listpack with room for `bytes` of entries.
    pub fn with_capacity(bytes: usize) -> Self {
        let mut listpack = Self::allocate(HEADER + bytes + 1);
        listpack.set_header(0, HEADER + 1, 0);
        listpack.set_byte(HEADER, EOF);
        listpack
    }

    /// Takes a listpack from bytes of any origin; all of it is checked.
    pub fn from_bytes(bytes: &[u8]) -> Result<Self, Malformed> {
        let count = validate(bytes)?;
        let mut listpack = Self::from_valid(bytes);
        listpack.set_count(count);
        Ok(listpack)
    }

    /// Copies bytes known to be a listpack.
    fn from_valid(bytes: &[u8]) -> Self {
        let listpack = Self::allocate(bytes.len());
        // SAFETY: the allocation has room for `bytes` and is new, so nothing overlaps.
        unsafe {
            std::ptr::copy_nonoverlapping(bytes.as_ptr(), listpack.at(0), bytes.len());
        }
        listpack
    }

    /// The serialized form, as in RDB files.
    #[inline]
    pub fn as_bytes(&self) -> &[u8] {
        // SAFETY: the bytes from start to start + total are initialized and ours.
        unsafe { std::slice::from_raw_parts(self.at(0), self.bytes_len()) }
    }

    /// Bytes of the serialized form.
    #[inline]
    pub fn bytes_len(&self) -> usize {
        // SAFETY: the header is always there and complete.
        u32::from_le_bytes(unsafe { self.at(0).cast::<[u8; 4]>().read() }) as usize
    }

    /// Number of entries. O(1) below 65535 entries, O(n) from there on.
    #[inline]
    pub fn count(&self) -> usize {
        match self.header_count() {
            COUNT_UNKNOWN => self.iter().count(),
            count => count as usize,
        }
    }

    /// Whether there is no entry.
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.bytes_len() == HEADER + 1
    }

    /// Whether `bytes` of elements more keep this listpack within a size that is safe for the
    /// format; a collection that wants more must change its encoding.
    #[inline]
    pub fn has_room_for(&self, bytes: usize) -> bool {
        self.bytes_len().saturating_add(bytes) <= MAX_BYTES
    }

    // Ends.

    /// Adds an element on the left.
    #[inline]
    pub fn push_front(&mut self, element: &[u8]) {
        self.push_front_encoded(&Encoded::of_bytes(element));
    }

    /// Adds an element on the right.
    #[inline]
    pub fn push_back(&mut self, element: &[u8]) {
        self.push_back_encoded(&Encoded::of_bytes(element));
    }

    /// Adds an integer on the right.
    #[inline]
    pub fn push_back_int(&mut self, value: i64) {
        self.push_back_encoded(&Encoded::of_int(value));
    }

    /// Adds an element of another structure on the right.
    #[inline]
    pub fn push_back_element(&mut self, element: Element<'_>) {
        self.push_back_encoded(&Encoded::of_element(element));
    }

    #[inline]
    fn push_front_encoded(&mut self, encoded: &Encoded<'_>) {
        let len = encoded.len();
        let (total, count) = (self.bytes_len(), self.header_count());
        if self.start() < len {
            self.make_room_front(len);
        }
        let start = self.start() - len;
        self.set_header(start, total + len, count.saturating_add(1));
        // SAFETY: the entry goes behind the moved header, into bytes that were gap or old header.
        unsafe { encoded.write(self.at(HEADER)) };
    }

    #[inline]
    fn push_back_encoded(&mut self, encoded: &Encoded<'_>) {
        let len = encoded.len();
        let (total, count) = (self.bytes_len(), self.header_count());
        if self.capacity() - self.start() - total < len {
            self.make_room_back(len);
        }
        self.set_header(self.start(), total + len, count.saturating_add(1));
        // SAFETY: there is room for the entry from the old end byte on, and one byte more.
        unsafe { encoded.write(self.at(total - 1)) };
        self.set_byte(total + len - 1, EOF);
    }

    /// The leftmost element.
    #[inline]
    pub fn front(&self) -> Option<Element<'_>> {
        self.iter().next()
    }

    /// The rightmost element.
    #[inline]
    pub fn back(&self) -> Option<Element<'_>> {
        self.iter().next_back()
    }

    /// Removes the leftmost element after `read` has seen it.
    #[inline]
    pub fn pop_front<R>(&mut self, read: impl FnOnce(Element<'_>) -> R) -> Option<R> {
        if self.is_empty() {
            return None;
        }
        // SAFETY: there is an entry behind the header.
        let (element, len) = unsafe { entry::decode(self.at(HEADER)) };
        let result = read(element);
        let (total, count) = (self.bytes_len(), self.header_count());
        self.set_header(self.start() + len, total - len, count);
        self.removed(1);
        Some(result)
    }

    /// Removes the rightmost element after `read` has seen it.
    #[inline]
    pub fn pop_back<R>(&mut self, read: impl FnOnce(Element<'_>) -> R) -> Option<R> {
        if self.is_empty() {
            return None;
        }
        let total = self.bytes_len();
        // SAFETY: there is an entry in front of the end byte.
        let (element, len) = unsafe { entry::decode(entry::previous(self.at(total - 1))) };
        let result = read(element);
        self.set_header(self.start(), total - len, self.header_count());
        self.set_byte(total - len - 1, EOF);
        self.removed(1);
        Some(result)
    }

    /// Removes the leftmost element; false if there is none.
    #[inline]
    pub fn drop_front(&mut self) -> bool {
        self.pop_front(|_| ()).is_some()
    }

    /// Removes the rightmost element; false if there is none.
    #[inline]
    pub fn drop_back(&mut self) -> bool {
        self.pop_back(|_| ()).is_some()
    }

    // Reading.

    /// The entries, to be read.
    #[inline(always)]
    pub fn run(&self) -> Run<'_> {
        // SAFETY: the entries lie between header and end byte.
        unsafe { Run::new(self.at(HEADER), self.at(self.end()), self.header_count()) }
    }

    /// [`Run::iter`].
    #[inline(always)]
    pub fn iter(&self) -> Iter<'_> {
        self.run().iter()
    }

    /// [`Run::pairs`].
    #[inline(always)]
    pub fn pairs(&self) -> Pairs<'_> {
        self.run().pairs()
    }

    /// [`Run::iter_at`].
    pub fn iter_at(&self, index: i64) -> Option<Iter<'_>> {
        self.run().iter_at(index)
    }

    /// [`Run::iter_up_to`].
    pub fn iter_up_to(&self, index: i64) -> Option<Iter<'_>> {
        self.run().iter_up_to(index)
    }

    /// [`Run::get`].
    pub fn get(&self, index: i64) -> Option<Element<'_>> {
        self.run().get(index)
    }

    /// [`Run::find`].
    #[inline(always)]
    pub fn find(&self, value: &[u8], stride: usize) -> Option<Iter<'_>> {
        self.run().find(value, stride)
    }

    /// [`Run::find_value`].
    #[inline(always)]
    pub fn find_value(&self, field: &[u8]) -> Option<Element<'_>> {
        self.run().find_value(field)
    }

    // Writing anywhere.

    /// A cursor on the first element.
    #[inline]
    pub fn cursor_front_mut(&mut self) -> CursorMut<'_> {
        CursorMut::new(self, HEADER)
    }

    /// A cursor behind the last element.
    #[inline]
    pub fn cursor_end_mut(&mut self) -> CursorMut<'_> {
        let end = self.end();
        CursorMut::new(self, end)
    }

    /// A cursor on the element at `index`, which counts as for [`Run::iter_at`].
    pub fn cursor_at_mut(&mut self, index: i64) -> Option<CursorMut<'_>> {
        let offset = self.offset_of(index)?;
        Some(CursorMut::new(self, offset))
    }

    /// A cursor on the element that [`Listpack::find`] finds.
    #[inline]
    pub fn find_mut(&mut self, value: &[u8], stride: usize) -> Option<CursorMut<'_>> {
        let rest = self.find(value, stride)?.bytes_left();
        let offset = self.end() - rest;
        Some(CursorMut::new(self, offset))
    }

    /// Removes `count` elements from `index` on (which counts as for [`Run::iter_at`]) or as
    /// many as there are; returns how many.
    pub fn delete_range(&mut self, index: i64, count: usize) -> usize {
        self.cursor_at_mut(index).map_or(0, |mut cursor| cursor.delete(count))
    }

    /// Adds copies of all elements of `other` on the right.
    pub fn append(&mut self, other: &Listpack) {
        let entries = &other.as_bytes()[HEADER..other.end()];
        let (total, count) = (self.bytes_len(), self.header_count() as usize);
        let sum = count + other.header_count() as usize;
        if self.capacity() - self.start() - total < entries.len() {
            self.make_room_back(entries.len());
        }
        // A sum that involves an unknown count is unknown as well.
        let count = u16::try_from(sum).unwrap_or(COUNT_UNKNOWN);
        self.set_header(self.start(), total + entries.len(), count);
        // SAFETY: there is room from the old end byte on, and `other` is another allocation.
        unsafe {
            std::ptr::copy_nonoverlapping(entries.as_ptr(), self.at(total - 1), entries.len());
        }
        self.set_byte(total + entries.len() - 1, EOF);
    }

    /// Moves the elements from `index` on into a listpack of their own.
    pub fn split_off(&mut self, index: usize) -> Listpack {
        let Some(offset) = self.offset_of(index as i64) else {
            return Listpack::new();
        };
        let end = self.end();
        let mut right = Self::allocate(HEADER + (end - offset) + 1);
        // Counting what goes is cheap next to copying it, and leaves both counts exact.
        right.set_header(0, HEADER + (end - offset) + 1, COUNT_UNKNOWN);
        // SAFETY: the new allocation has room for the entries and the end byte.
        unsafe {
            std::ptr::copy_nonoverlapping(self.at(offset), right.at(HEADER), end - offset + 1);
        }
        right.set_exact_count();
        self.set_header(self.start(), offset + 1, COUNT_UNKNOWN);
        self.set_byte(offset, EOF);
        self.set_exact_count();
        self.shrink_if_sparse();
        right
    }

    /// Offset of the entry at `index`.
    fn offset_of(&self, index: i64) -> Option<usize> {
        Some(self.end() - self.iter_at(index)?.bytes_left())
    }
}

/// Checks that `bytes` are exactly one well-formed listpack and counts its entries. Reads nothing
/// but `bytes`, whatever is in them.
fn validate(bytes: &[u8]) -> Result<usize, Malformed> {
    let (Some(header), Some(&EOF)) = (bytes.first_chunk::<HEADER>(), bytes.last()) else {
        return Err(Malformed);
    };
    let [a, b, c, d, count @ ..] = *header;
    let total = u32::from_le_bytes([a, b, c, d]) as usize;
    if total != bytes.len() || total < HEADER + 1 {
        return Err(Malformed);
    }
    let mut entries = &bytes[HEADER..total - 1];
    let mut found = 0usize;
    while !entries.is_empty() {
        let len = entry::checked_len(entries).ok_or(Malformed)?;
        entries = &entries[len..];
        found += 1;
    }
    match u16::from_le_bytes(count) {
        COUNT_UNKNOWN => Ok(found),
        count if count as usize == found => Ok(found),
        _ => Err(Malformed),
    }
}

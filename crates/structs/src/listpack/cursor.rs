//! A place in a listpack to change it at.
#![allow(unsafe_code)] // Decodes entries of a valid listpack without bounds checks.

use super::entry::{self, Encoded};
use super::{Element, HEADER, Listpack};

/// A place in a listpack: on an element or behind the last one.
pub struct CursorMut<'a> {
    listpack: &'a mut Listpack,
    /// Offset of an entry, or of the end byte; always an entry boundary.
    offset: usize,
}

impl<'a> CursorMut<'a> {
    /// `offset` must be an entry boundary of `listpack`.
    #[inline]
    pub(super) fn new(listpack: &'a mut Listpack, offset: usize) -> Self {
        debug_assert!(offset >= HEADER && offset <= listpack.end());
        Self { listpack, offset }
    }

    #[inline]
    fn at_end(&self) -> bool {
        self.offset == self.listpack.end()
    }

    /// Bytes of the entry here, 0 at the end.
    #[inline]
    fn entry_len(&self) -> usize {
        if self.at_end() {
            return 0;
        }
        // SAFETY: the cursor is on an entry.
        unsafe { entry::skip(self.listpack.at(self.offset)) }
    }

    /// The element here, or `None` behind the last.
    #[inline]
    pub fn element(&self) -> Option<Element<'_>> {
        if self.at_end() {
            return None;
        }
        // SAFETY: the cursor is on an entry.
        Some(unsafe { entry::decode(self.listpack.at(self.offset)).0 })
    }

    /// Goes one element to the right, at most behind the last.
    #[inline]
    pub fn move_next(&mut self) {
        self.offset += self.entry_len();
    }

    /// Goes one element to the left; false, and nothing happens, on the first.
    #[inline]
    pub fn move_prev(&mut self) -> bool {
        if self.offset == HEADER {
            return false;
        }
        // SAFETY: an entry ends at every boundary but the first.
        unsafe {
            let here = self.listpack.at(self.offset).cast_const();
            self.offset -= here.offset_from(entry::previous(here)) as usize;
        }
        true
    }

    /// Puts an element in front of the one here, on which the cursor stays.
    #[inline]
    pub fn insert_before(&mut self, element: &[u8]) {
        let encoded = Encoded::of_bytes(element);
        self.write(&encoded, 0, 1);
        self.offset += encoded.len();
    }

    /// Puts an element behind the one here, on which the cursor stays; behind the last element,
    /// puts it there and goes on it.
    #[inline]
    pub fn insert_after(&mut self, element: &[u8]) {
        let here = self.offset;
        self.move_next();
        self.write(&Encoded::of_bytes(element), 0, 1);
        self.offset = here;
    }

    /// Puts another element in the place of the one here. Behind the last, adds it.
    #[inline]
    pub fn replace(&mut self, element: &[u8]) {
        let old = self.entry_len();
        self.write(&Encoded::of_bytes(element), old, u16::from(old == 0));
    }

    /// Removes `count` elements from here on, or as many as there are, and returns how many. The
    /// cursor is then on the element behind them.
    pub fn delete(&mut self, count: usize) -> usize {
        let start = self.offset;
        let mut deleted = 0;
        while deleted < count && !self.at_end() {
            self.move_next();
            deleted += 1;
        }
        let len = self.offset - start;
        self.offset = start;
        if deleted > 0 {
            self.listpack.resize_hole(start, len, 0);
            self.listpack.removed(deleted);
        }
        deleted
    }

    /// Puts `encoded` in the place of the `old_len` bytes here.
    #[inline]
    fn write(&mut self, encoded: &Encoded<'_>, old_len: usize, added: u16) {
        let hole = self.listpack.resize_hole(self.offset, old_len, encoded.len());
        // SAFETY: the hole has just the size of the entry, and is ours alone.
        unsafe { encoded.write(hole) };
        self.listpack.added(added);
        if old_len > encoded.len() {
            self.listpack.shrink_if_sparse();
        }
    }
}

//! Walking a listpack from either end.
#![allow(unsafe_code)] // Walks the entries of a valid listpack without bounds checks.

use super::{Element, entry};
use std::iter::FusedIterator;
use std::marker::PhantomData;

/// The elements between two entry boundaries of a listpack.
#[derive(Clone)]
pub struct Iter<'a> {
    next: *const u8,
    end: *const u8,
    listpack: PhantomData<&'a [u8]>,
}

// SAFETY: an iterator is a shared borrow of bytes.
unsafe impl Send for Iter<'_> {}
// SAFETY: as above.
unsafe impl Sync for Iter<'_> {}

impl<'a> Iter<'a> {
    /// # Safety
    /// `next` and `end` must be entry boundaries of one valid listpack, in this order, that is
    /// borrowed for `'a`.
    #[inline]
    pub(super) unsafe fn new(next: *const u8, end: *const u8) -> Self {
        Self { next, end, listpack: PhantomData }
    }

    /// Serialized size of what is still to come.
    #[inline]
    pub(super) fn bytes_left(&self) -> usize {
        self.end as usize - self.next as usize
    }

    /// Takes the last `count` elements off, to be walked by themselves; `None` if there are fewer.
    pub fn take_back(&mut self, count: usize) -> Option<Self> {
        let end = self.end;
        for _ in 0..count {
            if self.next == self.end {
                return None;
            }
            // SAFETY: `end` is an entry boundary behind `next`, so an entry ends here.
            self.end = unsafe { entry::previous(self.end) };
        }
        Some(Self { next: self.end, end, listpack: PhantomData })
    }
}

impl<'a> Iterator for Iter<'a> {
    type Item = Element<'a>;

    #[inline(always)]
    fn next(&mut self) -> Option<Element<'a>> {
        if self.next == self.end {
            return None;
        }
        // SAFETY: `next` is an entry boundary before the end, so an entry begins here and the
        // following boundary is not beyond `end`.
        unsafe {
            let (element, len) = entry::decode(self.next);
            self.next = self.next.add(len);
            Some(element)
        }
    }
}

impl<'a> DoubleEndedIterator for Iter<'a> {
    #[inline(always)]
    fn next_back(&mut self) -> Option<Element<'a>> {
        if self.next == self.end {
            return None;
        }
        // SAFETY: `end` is an entry boundary behind `next`, so an entry ends here.
        unsafe {
            self.end = entry::previous(self.end);
            Some(entry::decode(self.end).0)
        }
    }
}

impl FusedIterator for Iter<'_> {}

/// The elements of a listpack two by two; see [`super::Listpack::pairs`]. An odd element out,
/// which only a listpack that was never a list of pairs can have, is left out.
#[derive(Clone)]
pub struct Pairs<'a>(pub(super) Iter<'a>);

impl<'a> Iterator for Pairs<'a> {
    type Item = (Element<'a>, Element<'a>);

    #[inline(always)]
    fn next(&mut self) -> Option<Self::Item> {
        Some((self.0.next()?, self.0.next()?))
    }
}

impl<'a> DoubleEndedIterator for Pairs<'a> {
    #[inline(always)]
    fn next_back(&mut self) -> Option<Self::Item> {
        let second = self.0.next_back()?;
        Some((self.0.next_back()?, second))
    }
}

impl FusedIterator for Pairs<'_> {}

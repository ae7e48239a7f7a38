//! The entries of a listpack without header and end byte, to be read.
//!
//! All reading goes through here: a listpack shows its entries as a run, and small collections that
//! lie in the block of their key ([`crate::inline`]) are nothing but a run.
#![allow(unsafe_code)] // Walks the entries of a valid listpack without bounds checks.

use super::{COUNT_UNKNOWN, Element, Iter, Needle, Pairs};
use std::marker::PhantomData;

/// Entries that lie one behind the other; see the module's documentation.
#[derive(Clone, Copy)]
pub struct Run<'a> {
    start: *const u8,
    end: *const u8,
    /// As in the header of a listpack.
    count: u16,
    entries: PhantomData<&'a [u8]>,
}

// SAFETY: a run is a shared borrow of bytes.
unsafe impl Send for Run<'_> {}
// SAFETY: as above.
unsafe impl Sync for Run<'_> {}

impl<'a> Run<'a> {
    /// # Safety
    /// From `start` to `end` there must be complete, valid entries, as many as `count` says unless
    /// it is [`COUNT_UNKNOWN`], that are borrowed for `'a`.
    #[inline(always)]
    pub(crate) unsafe fn new(start: *const u8, end: *const u8, count: u16) -> Self {
        Self { start, end, count, entries: PhantomData }
    }

    /// Number of entries. O(1) below 65535 entries, O(n) from there on.
    #[inline]
    pub fn count(self) -> usize {
        match self.count {
            COUNT_UNKNOWN => self.iter().count(),
            count => count as usize,
        }
    }

    /// Whether there is no entry.
    #[inline(always)]
    pub fn is_empty(self) -> bool {
        self.start == self.end
    }

    /// All elements, from both ends.
    #[inline(always)]
    pub fn iter(self) -> Iter<'a> {
        // SAFETY: the entries lie between the two.
        unsafe { Iter::new(self.start, self.end) }
    }

    /// The elements two by two: field and value, member and score.
    #[inline(always)]
    pub fn pairs(self) -> Pairs<'a> {
        Pairs(self.iter())
    }

    /// The elements from `index` on, which counts from the right if negative, -1 being the last;
    /// `None` if there is no such element.
    pub fn iter_at(self, index: i64) -> Option<Iter<'a>> {
        let count = self.count() as i64;
        let index = if index < 0 { index + count } else { index };
        if !(0..count).contains(&index) {
            return None;
        }
        let mut iter = self.iter();
        if index > count / 2 {
            return iter.take_back((count - index) as usize);
        }
        for _ in 0..index {
            iter.next();
        }
        Some(iter)
    }

    /// The elements up to and with the one at `index`, which counts as for [`Run::iter_at`]: to be
    /// walked from the back.
    pub fn iter_up_to(self, index: i64) -> Option<Iter<'a>> {
        let mut rest = self.iter_at(index)?;
        rest.next();
        // SAFETY: what is left begins at the start of an entry or at the end.
        Some(unsafe { Iter::new(self.start, self.end.sub(rest.bytes_left())) })
    }

    /// The element at `index`, which counts as for [`Run::iter_at`].
    pub fn get(self, index: i64) -> Option<Element<'a>> {
        self.iter_at(index)?.next()
    }

    /// The elements from the first one that equals `value` on. Looks at every `stride`-th element:
    /// 1 for all, 2 for the fields of field-value pairs.
    #[inline]
    pub fn find(self, value: &[u8], stride: usize) -> Option<Iter<'a>> {
        let needle = Needle::new(value);
        let mut iter = self.iter();
        loop {
            let here = iter.clone();
            if needle.matches(iter.next()?) {
                return Some(here);
            }
            for _ in 1..stride {
                iter.next()?;
            }
        }
    }

    /// The value of the pair whose field is `field`.
    #[inline]
    pub fn find_value(self, field: &[u8]) -> Option<Element<'a>> {
        self.find(field, 2)?.nth(1)
    }
}

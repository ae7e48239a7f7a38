//! Sorted integers of one width, to be read wherever they lie.
#![allow(unsafe_code)] // Reads integers without bounds checks, aligned or not.

use super::{Word, width_of};
use std::marker::PhantomData;

/// Ascending integers of 2, 4 or 8 bytes each.
#[derive(Clone, Copy)]
pub struct Ints<'a> {
    at: *const u8,
    len: usize,
    width: usize,
    bytes: PhantomData<&'a [u8]>,
}

// SAFETY: it is a shared borrow of bytes.
unsafe impl Send for Ints<'_> {}
// SAFETY: as above.
unsafe impl Sync for Ints<'_> {}

impl<'a> Ints<'a> {
    /// # Safety
    /// At `at` there must be `len` ascending integers of `width` bytes (2, 4 or 8), little endian,
    /// borrowed for `'a`.
    #[inline]
    pub(crate) unsafe fn new(at: *const u8, len: usize, width: usize) -> Self {
        Self { at, len, width, bytes: PhantomData }
    }

    /// Number of integers.
    #[inline]
    pub fn len(self) -> usize {
        self.len
    }

    /// Bytes of each.
    #[inline]
    pub(crate) fn width(self) -> usize {
        self.width
    }

    /// The integers as they lie.
    #[inline]
    pub(crate) fn as_bytes(self) -> &'a [u8] {
        // SAFETY: so many bytes are there.
        unsafe { std::slice::from_raw_parts(self.at, self.len * self.width) }
    }

    /// Whether there is none.
    #[inline]
    pub fn is_empty(self) -> bool {
        self.len == 0
    }

    /// The integer at `index`.
    ///
    /// # Safety
    /// `W` must be of the integers' width, and `index` below their number.
    #[inline(always)]
    unsafe fn read<W: Word>(self, index: usize) -> i64 {
        // SAFETY: the caller's contract.
        unsafe { self.at.cast::<W>().add(index).read_unaligned().to_int() }
    }

    /// The integer at `index`, in ascending order.
    #[inline]
    pub fn get(self, index: usize) -> Option<i64> {
        // SAFETY: the index is below the length, and the type is the integers' own.
        (index < self.len).then(|| unsafe { with_word!(self.width, W => self.read::<W>(index)) })
    }

    /// Index of `value`, or where it would have to be.
    #[inline]
    pub(super) fn search(self, value: i64) -> Result<usize, usize> {
        with_word!(self.width, W => self.search_as::<W>(value))
    }

    #[inline]
    fn search_as<W: Word>(self, value: i64) -> Result<usize, usize> {
        let (mut low, mut high) = (0, self.len);
        // Integers tend to come in order.
        // SAFETY: there is a last one, and `W` is the integers' type.
        if high > 0 && unsafe { self.read::<W>(high - 1) } < value {
            return Err(high);
        }
        while low < high {
            let middle = low + (high - low) / 2;
            // SAFETY: `middle` is below the length, and `W` is the integers' type.
            match unsafe { self.read::<W>(middle) }.cmp(&value) {
                std::cmp::Ordering::Equal => return Ok(middle),
                std::cmp::Ordering::Less => low = middle + 1,
                std::cmp::Ordering::Greater => high = middle,
            }
        }
        Err(low)
    }

    /// Whether `value` is one of them.
    #[inline]
    pub fn contains(self, value: i64) -> bool {
        width_of(value) <= self.width && self.search(value).is_ok()
    }

    /// The integers, ascending.
    #[inline]
    pub fn iter(self) -> impl DoubleEndedIterator<Item = i64> + ExactSizeIterator + use<'a> {
        // SAFETY: every index is below the length, and the type is the integers' own.
        (0..self.len)
            .map(move |index| unsafe { with_word!(self.width, W => self.read::<W>(index)) })
    }
}

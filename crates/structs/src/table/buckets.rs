//! Buckets, and arrays of them.
#![allow(unsafe_code)]

use crate::mapping;
use crate::size_class::block_size;
use std::alloc::{Layout, alloc_zeroed, dealloc, handle_alloc_error};
use std::ptr::{self, NonNull};
use std::sync::atomic::{AtomicPtr, AtomicU64, Ordering::Relaxed};

/// Items a bucket holds.
pub const BUCKET_SLOTS: usize = 7;
/// Bytes from which on an array is a mapping, if its table's items ask for it.
const MAPPED_FROM: usize = mapping::PAGE;
/// `over` counts up to this and then no longer changes.
const OVER_SATURATED: u64 = 255;
const OVER_SHIFT: u32 = 56;
const FINGERPRINTS: u64 = 0x00ff_ffff_ffff_ffff;

#[repr(C, align(64))]
pub(super) struct Bucket {
    pub(super) meta: AtomicU64,
    pub(super) slots: [AtomicPtr<u8>; BUCKET_SLOTS],
}

const _: () = assert!(size_of::<Bucket>() == 64);

impl Bucket {
    #[inline]
    pub(super) fn meta(&self) -> u64 {
        self.meta.load(Relaxed)
    }
    #[inline]
    pub(super) fn over(&self) -> u64 {
        self.meta() >> OVER_SHIFT
    }
    pub(super) fn add_over(&self) {
        if self.over() < OVER_SATURATED {
            self.meta.store(self.meta() + (1 << OVER_SHIFT), Relaxed);
        }
    }
    pub(super) fn subtract_over(&self) {
        if self.over() < OVER_SATURATED {
            debug_assert!(self.over() > 0, "an overflow was counted twice");
            self.meta.store(self.meta() - (1 << OVER_SHIFT), Relaxed);
        }
    }
    /// A bit in the top of each byte whose fingerprint may equal `fp`; a bit above a true match
    /// may be false, so callers compare keys anyway.
    #[inline]
    pub(super) fn matches(&self, fp: u8) -> u64 {
        const ONES: u64 = 0x0001_0101_0101_0101;
        const TOPS: u64 = 0x0080_8080_8080_8080;
        let x = (self.meta() & FINGERPRINTS) ^ (ONES * u64::from(fp));
        x.wrapping_sub(ONES) & !x & TOPS
    }
    /// A bit in the top of each empty byte; exact.
    #[inline]
    pub(super) fn empties(&self) -> u64 {
        const LOWS: u64 = 0x007f_7f7f_7f7f_7f7f;
        const TOPS: u64 = 0x0080_8080_8080_8080;
        let x = self.meta() & FINGERPRINTS;
        !((x & LOWS).wrapping_add(LOWS) | x) & TOPS
    }
    #[inline]
    pub(super) fn item(&self, slot: usize) -> *mut u8 {
        self.slots[slot].load(Relaxed)
    }
    pub(super) fn occupied(&self) -> impl Iterator<Item = usize> + '_ {
        let meta = self.meta();
        (0..BUCKET_SLOTS).filter(move |slot| (meta >> (slot * 8)) & 0xff != 0)
    }
    pub(super) fn put(&self, slot: usize, fp: u8, item: *mut u8) {
        debug_assert_eq!((self.meta() >> (slot * 8)) & 0xff, 0);
        self.slots[slot].store(item, Relaxed);
        self.meta.store(self.meta() | u64::from(fp) << (slot * 8), Relaxed);
    }
    pub(super) fn clear(&self, slot: usize) -> *mut u8 {
        self.meta.store(self.meta() & !(0xff << (slot * 8)), Relaxed);
        self.slots[slot].swap(ptr::null_mut(), Relaxed)
    }
}

#[inline]
pub(super) fn first(bits: u64) -> usize {
    bits.trailing_zeros() as usize / 8
}

/// An owned array of buckets; what a table retires after it has grown.
pub struct Buckets {
    pub(super) start: NonNull<Bucket>,
    pub(super) count: usize,
    pub(super) source: Source,
}

/// Where an array's memory comes from.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Source {
    Allocator,
    Mapping,
}

// SAFETY: an array of plain atomics, owned by its holder.
unsafe impl Send for Buckets {}

impl Buckets {
    pub(super) fn layout(count: usize) -> Layout {
        Layout::array::<Bucket>(count).expect("a bucket array fits the address space")
    }
    /// At least `count` buckets, and as many more as fit into the same memory.
    pub(super) fn new(count: usize, may_map: bool) -> Buckets {
        let bytes = Buckets::layout(count).size();
        if may_map && bytes >= MAPPED_FROM {
            let bytes = bytes.next_multiple_of(mapping::PAGE);
            if let Some(start) = mapping::map_zeroed(bytes) {
                let count = bytes / size_of::<Bucket>();
                return Buckets { start: start.cast(), count, source: Source::Mapping };
            }
        }
        let count = block_size(bytes) / size_of::<Bucket>();
        let layout = Buckets::layout(count);
        // SAFETY: `count` is at least 1, so the layout is not empty; all-zero is a valid Bucket.
        let start = unsafe { alloc_zeroed(layout) }.cast::<Bucket>();
        match NonNull::new(start) {
            Some(start) => Buckets { start, count, source: Source::Allocator },
            None => handle_alloc_error(layout),
        }
    }
    /// Gives a part of a mapping its pages: those from bucket `from`, which begins one, to `to`.
    pub(super) fn populate(&self, from: usize, to: usize) {
        if self.source == Source::Mapping {
            let bytes = (to - from) * size_of::<Bucket>();
            // SAFETY: `from` and `to` are at most `count`, and page boundaries if they are less.
            unsafe { mapping::populate(self.start.add(from).cast(), bytes) }
        }
    }
    /// Frees arrays, those that are mappings in one go as far as the kernel can.
    pub fn free(arrays: Vec<Buckets>) {
        let mapped = arrays.iter().filter(|array| array.source == Source::Mapping);
        // SAFETY: they are owned, and dropped here.
        unsafe { mapping::empty(mapped.map(|array| (array.start.cast(), array.bytes()))) };
        drop(arrays);
    }
    /// Bytes of memory.
    pub fn bytes(&self) -> usize {
        Buckets::layout(self.count).size()
    }
    #[inline]
    pub(super) fn bucket(&self, index: usize) -> &Bucket {
        debug_assert!(index < self.count);
        // SAFETY: `index` is below `count`, the array's length.
        unsafe { &*self.start.as_ptr().add(index) }
    }
}

impl Drop for Buckets {
    fn drop(&mut self) {
        let layout = Buckets::layout(self.count);
        // SAFETY: obtained in `new`, of the same size and from the same source.
        unsafe {
            match self.source {
                Source::Allocator => dealloc(self.start.as_ptr().cast(), layout),
                Source::Mapping => mapping::unmap(self.start.cast(), layout.size()),
            }
        }
    }
}

//! A member with its score in one allocation, reached by one pointer.
//!
//! ```text
//!  pointer ─▶ | score f64 | len u32 | member bytes … |
//! ```
//!
//! The hash table owns the allocation ([`Scored`]); the tree holds copies of the pointer
//! ([`ScoredPtr`]) and is told before the owner goes.
#![allow(unsafe_code)] // One allocation of header and bytes instead of two.

use crate::size_class::block_size;
use crate::table::Item;
use crate::watched::Measured;
use std::alloc::{Layout, alloc, dealloc, handle_alloc_error};
use std::ptr::{self, NonNull};

#[repr(C)]
struct Header {
    score: f64,
    len: u32,
}

/// Where the member begins: right behind `len`, inside the header's tail padding.
const MEMBER: usize = std::mem::offset_of!(Header, len) + size_of::<u32>();

fn layout(len: usize) -> Layout {
    let size = (MEMBER + len).max(size_of::<Header>());
    Layout::from_size_align(size, align_of::<Header>()).expect("a 32-bit length is a valid layout")
}

/// The owner of a member and its score.
#[repr(transparent)]
pub(crate) struct Scored(NonNull<u8>);

// SAFETY: the allocation is owned and plain data.
unsafe impl Send for Scored {}
// SAFETY: shared, it is only read.
unsafe impl Sync for Scored {}

// SAFETY: transparent over `NonNull<u8>`; the member never changes.
unsafe impl Item for Scored {
    #[inline]
    fn key(&self) -> &[u8] {
        // SAFETY: `self` owns the allocation, so it outlives the borrow.
        unsafe { self.as_ptr().member() }
    }
}

impl Scored {
    pub(crate) fn new(member: &[u8], score: f64) -> Self {
        let len = u32::try_from(member.len()).expect("a member is shorter than 4 GiB");
        let layout = layout(member.len());
        // SAFETY: the layout is not empty; it has room for both fields and the member behind them.
        unsafe {
            let Some(start) = NonNull::new(alloc(layout)) else { handle_alloc_error(layout) };
            let header = start.as_ptr().cast::<Header>();
            (&raw mut (*header).score).write(score);
            (&raw mut (*header).len).write(len);
            ptr::copy_nonoverlapping(member.as_ptr(), start.as_ptr().add(MEMBER), member.len());
            Self(start)
        }
    }

    #[inline]
    pub(crate) fn as_ptr(&self) -> ScoredPtr {
        ScoredPtr(self.0.as_ptr())
    }

    #[inline]
    pub(crate) fn score(&self) -> f64 {
        // SAFETY: `self` owns the allocation.
        unsafe { self.as_ptr().score() }
    }
}

impl Measured for Scored {
    #[inline]
    fn allocated_bytes(&self) -> usize {
        block_size(layout(self.key().len()).size())
    }
}

impl Drop for Scored {
    fn drop(&mut self) {
        let layout = layout(self.key().len());
        // SAFETY: allocated in `new` with the same layout, and dropped once.
        unsafe { dealloc(self.0.as_ptr(), layout) }
    }
}

/// A copy of an owner's pointer, or null. A reader must know that the owner lives.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) struct ScoredPtr(*mut u8);

impl ScoredPtr {
    pub(crate) const NULL: Self = Self(ptr::null_mut());

    #[inline]
    fn header(self) -> *mut Header {
        self.0.cast()
    }

    /// # Safety
    /// The owner must live, for as long as the result is used.
    #[inline]
    pub(crate) unsafe fn member<'a>(self) -> &'a [u8] {
        // SAFETY: the owner lives, and `len` bytes follow the header.
        unsafe {
            let len = (&raw const (*self.header()).len).read() as usize;
            std::slice::from_raw_parts(self.0.add(MEMBER), len)
        }
    }

    /// # Safety
    /// The owner must live.
    #[inline]
    pub(crate) unsafe fn score(self) -> f64 {
        // SAFETY: as the caller promises.
        unsafe { (&raw const (*self.header()).score).read() }
    }

    /// # Safety
    /// The owner must live and no other thread may read the score meanwhile.
    #[inline]
    pub(crate) unsafe fn set_score(self, score: f64) {
        // SAFETY: as the caller promises.
        unsafe { (&raw mut (*self.header()).score).write(score) }
    }

    /// Asks for the first cache line; harmless whatever the pointer.
    #[inline]
    pub(crate) fn prefetch(self) {
        Self::prefetch_address(self.0);
    }

    /// Asks for the cache line at any address.
    #[inline]
    pub(crate) fn prefetch_address(address: *const u8) {
        #[cfg(all(target_arch = "x86_64", not(miri)))]
        // SAFETY: a prefetch has no effect but on the cache, whatever the address.
        unsafe {
            use std::arch::x86_64::{_MM_HINT_T0, _mm_prefetch};
            _mm_prefetch(address.cast(), _MM_HINT_T0);
        }
        #[cfg(not(all(target_arch = "x86_64", not(miri))))]
        let _ = address;
    }
}

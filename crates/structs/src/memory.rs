//! Memory accounting by the allocator, at the price of one addition to a thread's own counter.
//!
//! The binary installs [`Counting`] around its allocator. Every thread adds to a counter of its
//! own (no atomic read-modify-write, no shared cache line); [`used_bytes`] sums them. Sizes are
//! rounded as the allocator rounds them, so that the figure is what the process really holds in
//! blocks, without the allocator's own slack, which is "fragmentation".
#![allow(unsafe_code)]

pub use crate::size_class::block_size;
use std::alloc::{GlobalAlloc, Layout};
use std::cell::Cell;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicIsize, AtomicUsize, Ordering::Relaxed};

const SLOTS: usize = 1024;
/// Threads beyond the number of slots share this one and pay for atomic additions.
const SHARED: usize = 0;
const UNASSIGNED: usize = usize::MAX;

#[repr(align(64))]
struct Counter(AtomicIsize);

static COUNTERS: [Counter; SLOTS] = [const { Counter(AtomicIsize::new(0)) }; SLOTS];
static NEXT: AtomicUsize = AtomicUsize::new(SHARED + 1);
static PEAK: AtomicUsize = AtomicUsize::new(0);

thread_local! {
    static SLOT: Cell<usize> = const { Cell::new(UNASSIGNED) };
}

#[inline]
fn add(bytes: isize) {
    let slot = SLOT.get();
    if slot == UNASSIGNED {
        return assign(bytes);
    }
    let counter = &COUNTERS[slot % SLOTS].0;
    if slot == SHARED {
        counter.fetch_add(bytes, Relaxed);
    } else {
        counter.store(counter.load(Relaxed).wrapping_add(bytes), Relaxed);
    }
}

#[cold]
fn assign(bytes: isize) {
    let slot = NEXT.fetch_add(1, Relaxed);
    SLOT.set(if slot < SLOTS { slot } else { SHARED });
    add(bytes);
}

/// Takes bytes of a block that are reserved but not in use out of the count; [`count`] puts them
/// back, as they come into use or before the block is freed.
pub fn discount(bytes: usize) {
    add(-(bytes as isize));
}

/// Counts bytes that were [discounted](discount).
pub fn count(bytes: usize) {
    add(bytes as isize);
}

/// Bytes in allocated blocks, over all threads, and in the mappings of the tables.
pub fn used_bytes() -> usize {
    let threads = NEXT.load(Relaxed).min(SLOTS);
    let sum: isize = COUNTERS[..threads].iter().map(|c| c.0.load(Relaxed)).sum();
    let used = sum.max(0) as usize + crate::mapping::mapped_bytes();
    PEAK.fetch_max(used, Relaxed);
    used
}

/// The highest figure that [`used_bytes`] has returned.
pub fn peak_bytes() -> usize {
    PEAK.load(Relaxed).max(used_bytes())
}

/// A run of blocks of one size that the allocator carves up and gives back as a whole.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Area {
    /// The address of the first block.
    pub start: usize,
    /// Bytes of a block.
    pub block_size: usize,
    /// Blocks that have been in use since the system gave the memory.
    pub touched: usize,
    /// Blocks in use.
    pub used: usize,
    /// Blocks that have room.
    pub reserved: usize,
}

/// How the allocator gives memory back to the system.
#[derive(Clone, Copy, Debug)]
pub struct Purging {
    /// Gives back what it keeps for the calling thread's next blocks, and what no thread keeps.
    pub now: fn(),
    /// Makes pages of the calling thread's in which nothing is left available to all threads.
    pub collect: fn(),
    /// From here on it gives back only in `now`, and no thread finds itself doing so while it
    /// allocates.
    pub only_now: fn(),
    /// Shows every area. Others allocate and free meanwhile, so that figures of an area may be
    /// those of different moments.
    pub census: fn(&mut dyn FnMut(Area)),
}

static PURGING: OnceLock<Purging> = OnceLock::new();

/// Says how the allocator purges; by the program that installs it.
pub fn set_purging(purging: Purging) {
    // The first says it: there is one allocator.
    let _ = PURGING.set(purging);
}

/// Has the allocator give back to the system what it keeps for the calling thread's next blocks,
/// and what no thread keeps.
pub fn purge() {
    if let Some(purging) = PURGING.get() {
        (purging.now)();
    }
}

/// Makes what the allocator keeps for the calling thread's next blocks available to all threads,
/// and to the next [`purge`] of any thread. Short, and without a system call.
pub fn collect() {
    if let Some(purging) = PURGING.get() {
        (purging.collect)();
    }
}

/// Shows every area of the allocator ([`Purging::census`]); none where it is not known.
pub fn census(show: &mut dyn FnMut(Area)) {
    if let Some(purging) = PURGING.get() {
        (purging.census)(show);
    }
}

/// From here on the allocator gives memory back in [`purge`] only: the caller sees to that.
pub fn purge_only_when_asked() {
    if let Some(purging) = PURGING.get() {
        (purging.only_now)();
    }
}

/// An allocator that counts; see the module's documentation.
pub struct Counting<A>(pub A);

// SAFETY: every call is passed on unchanged; counting touches no allocated memory.
unsafe impl<A: GlobalAlloc> GlobalAlloc for Counting<A> {
    #[inline]
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        add(block_size(layout.size()) as isize);
        // SAFETY: the caller's contract.
        unsafe { self.0.alloc(layout) }
    }
    #[inline]
    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        add(block_size(layout.size()) as isize);
        // SAFETY: the caller's contract.
        unsafe { self.0.alloc_zeroed(layout) }
    }
    #[inline]
    unsafe fn dealloc(&self, at: *mut u8, layout: Layout) {
        add(-(block_size(layout.size()) as isize));
        // SAFETY: the caller's contract.
        unsafe { self.0.dealloc(at, layout) }
    }
    #[inline]
    unsafe fn realloc(&self, at: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        add(block_size(size) as isize - block_size(layout.size()) as isize);
        // SAFETY: the caller's contract.
        unsafe { self.0.realloc(at, layout, size) }
    }
}

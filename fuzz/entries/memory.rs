//! How much memory something takes.
#![allow(unsafe_code)] // Counts allocations.

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;

thread_local! {
    static LIVE: Cell<usize> = const { Cell::new(0) };
    static PEAK: Cell<usize> = const { Cell::new(0) };
}

/// Counts what a thread has allocated, and the most of it.
struct Counting;

fn count(added: usize, removed: usize) {
    let live = LIVE.get().wrapping_add(added).wrapping_sub(removed);
    LIVE.set(live);
    // Blocks that another thread allocated may have made it negative.
    if live < usize::MAX / 2 {
        PEAK.set(PEAK.get().max(live));
    }
}

// SAFETY: every call is passed on unchanged; counting touches no allocated memory.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        count(layout.size(), 0);
        // SAFETY: the caller's contract.
        unsafe { System.alloc(layout) }
    }
    unsafe fn dealloc(&self, at: *mut u8, layout: Layout) {
        count(0, layout.size());
        // SAFETY: the caller's contract.
        unsafe { System.dealloc(at, layout) }
    }
    unsafe fn realloc(&self, at: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        count(size, layout.size());
        // SAFETY: the caller's contract.
        unsafe { System.realloc(at, layout, size) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

/// LZF expands a byte to 88 at most, and each two bytes of a packed encoding may become an element
/// with an allocation of its own. A length that is believed is larger by orders of magnitude.
const MOST_PER_BYTE: usize = 5000;
const MOST_AT_ALL: usize = 256 * 1024;

/// Runs something on so many bytes of input, and panics if it takes memory far beyond them.
pub fn bounded<R>(input: usize, run: impl FnOnce() -> R) -> R {
    let before = LIVE.get();
    PEAK.set(before);
    let result = run();
    let peak = PEAK.get().saturating_sub(before);
    let most = MOST_AT_ALL + MOST_PER_BYTE * input;
    assert!(peak <= most, "{input} bytes of input took {peak} of memory");
    result
}

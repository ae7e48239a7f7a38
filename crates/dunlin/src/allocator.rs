//! mimalloc as the process's allocator.
//!
//! Not through the `mimalloc` crate's own adaptor, which names the alignment of every request:
//! asked for 24 bytes aligned to 8, mimalloc hands out 32, because it takes the alignment for an
//! unusual one and makes sure of it with room to spare. Every block is aligned to 8 anyway
//! (`MI_MAX_ALIGN_SIZE` in `.cargo/config.toml`), so requests for no more do not mention it.
#![allow(unsafe_code)]

use keyspace::memory::{Area, Purging};
use libmimalloc_sys as mi;
use std::alloc::{GlobalAlloc, Layout};
use std::ffi::c_void;
use std::ptr;

/// The option for the milliseconds after which a thread that allocates gives back what has been
/// free for so long; the bindings have no name for it.
const PURGE_DELAY: mi::mi_option_t = 15;
/// The option for what becomes of a page that was full when a block of it is freed.
const PAGE_RECLAIM_ON_FREE: mi::mi_option_t = 35;
/// Longer than anybody waits with asking.
const A_DAY_MS: std::ffi::c_long = 86_400_000;
/// A page that was full belongs to no thread until one needs a page of its size: the thread that
/// frees its last block frees the page. By default the thread that filled a page takes it again
/// with the first block that it frees there, and blocks that other threads free afterwards wait for
/// that thread's next allocation of that size.
const NEVER: std::ffi::c_long = -1;

/// How mimalloc gives memory back to the system.
pub const PURGING: Purging = Purging {
    // SAFETY: takes a plain flag.
    now: || unsafe { mi::mi_collect(true) },
    // SAFETY: takes a plain flag.
    collect: || unsafe { mi::mi_collect(false) },
    // SAFETY: takes plain numbers; what the environment (MIMALLOC_PURGE_DELAY) says stays.
    only_now: || unsafe {
        mi::mi_option_set_default(PURGE_DELAY, A_DAY_MS);
        mi::mi_option_set_default(PAGE_RECLAIM_ON_FREE, NEVER);
    },
    census,
};

/// Shows the pages of all threads. mimalloc finds them in bit sets of its own and reads their
/// heads, which stay readable when a page goes meanwhile: such a page shows zeros or what has taken
/// its place.
fn census(show: &mut dyn FnMut(Area)) {
    type Show<'s> = &'s mut dyn FnMut(Area);
    unsafe extern "C" fn visit(
        _heap: *const mi::mi_heap_t,
        area: *const mi::mi_heap_area_t,
        _block: *mut c_void,
        _block_size: usize,
        show: *mut c_void,
    ) -> bool {
        // SAFETY: mimalloc calls with an area on its stack and with what was given to it.
        let (area, show) = unsafe { (&*area, &mut *show.cast::<Show<'_>>()) };
        if area.full_block_size > 0 {
            show(Area {
                start: area.blocks.addr(),
                block_size: area.full_block_size,
                touched: area.committed / area.full_block_size,
                used: area.used,
                reserved: area.reserved / area.full_block_size,
            });
        }
        true
    }
    let mut show: Show<'_> = show;
    // SAFETY: the main heap is that of all threads; single blocks are not visited.
    unsafe {
        mi::mi_heap_visit_blocks(ptr::null_mut(), false, Some(visit), (&raw mut show).cast());
    }
}

/// What every block is aligned to.
const ALIGNMENT: usize = 8;

/// The allocator.
pub struct Mimalloc;

// SAFETY: mimalloc's functions keep the contract of malloc and aligned_alloc; blocks from either
// may be given to `mi_free`.
unsafe impl GlobalAlloc for Mimalloc {
    #[inline]
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        // SAFETY: takes plain numbers.
        unsafe {
            if layout.align() <= ALIGNMENT {
                mi::mi_malloc(layout.size()).cast()
            } else {
                mi::mi_malloc_aligned(layout.size(), layout.align()).cast()
            }
        }
    }

    #[inline]
    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        // SAFETY: takes plain numbers.
        unsafe {
            if layout.align() <= ALIGNMENT {
                mi::mi_zalloc(layout.size()).cast()
            } else {
                mi::mi_zalloc_aligned(layout.size(), layout.align()).cast()
            }
        }
    }

    #[inline]
    unsafe fn dealloc(&self, at: *mut u8, _layout: Layout) {
        // SAFETY: the caller's contract: `at` is a block of this allocator.
        unsafe { mi::mi_free(at.cast()) }
    }

    #[inline]
    unsafe fn realloc(&self, at: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        // SAFETY: as for `dealloc`.
        unsafe {
            if layout.align() <= ALIGNMENT {
                mi::mi_realloc(at.cast(), size).cast()
            } else {
                mi::mi_realloc_aligned(at.cast(), size, layout.align()).cast()
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use keyspace::memory::block_size;

    /// Entries are laid out for these sizes, and memory is accounted with them.
    #[test]
    fn blocks_have_the_sizes_that_the_keyspace_counts_with() {
        for size in (1..=1024).chain([4000, 5000, 10_000, 100_000, 400_000]) {
            let layout = Layout::from_size_align(size, ALIGNMENT).unwrap();
            // SAFETY: allocated and freed here.
            unsafe {
                let at = Mimalloc.alloc(layout);
                assert_eq!(at.addr() % ALIGNMENT, 0);
                assert_eq!(mi::mi_usable_size(at.cast()), block_size(size), "{size} bytes");
                Mimalloc.dealloc(at, layout);
            }
        }
    }

    /// A number is that of another option once the library counts its options differently: the
    /// neighbours' defaults differ.
    #[test]
    fn options_are_those_that_they_are_taken_for() {
        // SAFETY: takes plain numbers.
        let option = |number| unsafe { mi::mi_option_get(number) };
        assert_eq!(option(PURGE_DELAY), 1000);
        let neighbours = [PAGE_RECLAIM_ON_FREE - 1, PAGE_RECLAIM_ON_FREE, PAGE_RECLAIM_ON_FREE + 1];
        assert_eq!(neighbours.map(option), [10_000, 0, 2]);
        (PURGING.only_now)();
        assert_eq!((option(PURGE_DELAY), option(PAGE_RECLAIM_ON_FREE)), (A_DAY_MS, NEVER));
    }

    #[test]
    fn unusual_alignments_hold() {
        for align in [16, 64, 4096] {
            let layout = Layout::from_size_align(align * 3, align).unwrap();
            let bigger = Layout::from_size_align(align * 5, align).unwrap();
            // SAFETY: allocated, moved and freed here.
            unsafe {
                let at = Mimalloc.alloc_zeroed(layout);
                assert_eq!(at.addr() % align, 0);
                let at = Mimalloc.realloc(at, layout, bigger.size());
                assert_eq!(at.addr() % align, 0);
                assert_eq!(*at.add(align * 3 - 1), 0);
                Mimalloc.dealloc(at, bigger);
            }
        }
    }
}

//! RESTORE's payloads: no panic, no memory far beyond the input, and what is accepted is the same
//! after another DUMP and RESTORE.
#![allow(unsafe_code)] // Counts allocations.

#[path = "../../crates/rdb/tests/fixture/mod.rs"]
pub mod fixture;

use rdb::{Compression, Limits, dump, restore};
use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;
use structs::crc64::crc64;
use structs::hash::HashLimits;
use structs::list::ListLimits;
use structs::set::SetLimits;
use structs::zset::ZsetLimits;

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

fn small() -> Limits {
    Limits {
        list: ListLimits::new(3),
        set: SetLimits { max_intset_entries: 2, max_listpack_entries: 2, max_listpack_value: 5 },
        hash: HashLimits { max_listpack_entries: 2, max_listpack_value: 5 },
        zset: ZsetLimits { max_listpack_entries: 2, max_listpack_value: 5 },
    }
}

/// A payload without its footer, which is made here: it would stop nearly every mutation.
pub fn check(body: &[u8]) {
    let mut payload = body.to_vec();
    payload.extend_from_slice(&11u16.to_le_bytes());
    payload.extend_from_slice(&crc64(0, &payload).to_le_bytes());
    for limits in [Limits::default(), small()] {
        let before = LIVE.get();
        PEAK.set(before);
        let restored = restore(&payload, &limits);
        let peak = PEAK.get().saturating_sub(before);
        let most = MOST_AT_ALL + MOST_PER_BYTE * payload.len();
        assert!(peak <= most, "{} bytes of input took {peak} of memory", payload.len());

        let Ok(object) = restored else { continue };
        let contents = fixture::elements(&object);
        for compression in [Compression::Lzf, Compression::Off] {
            let again = dump(object.as_ref(), compression);
            let Ok(copy) = restore(&again, &limits) else {
                panic!("what is dumped cannot be restored: {}", again.escape_ascii())
            };
            assert_eq!(fixture::elements(&copy), contents);
            assert_eq!(fixture::names(&copy), fixture::names(&object));
        }
    }
}

//! The journal's memory: pieces of a mebibyte, found by position.
//!
//! ```text
//!   position   …│ 41 │ 42 │ 43 │ 44 │…       numbers of segments
//!               └────┴────┴────┴────┘
//!   places      [ … ][ptr][ptr][ptr][null]   number mod PLACES
//!                     ▲              ▲
//!                     floor          the next append asks for memory here
//! ```
//!
//! Appenders and readers find a segment with one load. Only asking for one and giving back those
//! below the floor take a lock, once a mebibyte. Segments that were given back are reused once no
//! reader holds them, so that a steady stream of writes touches no fresh page.
#![allow(unsafe_code)]

use std::cell::UnsafeCell;
use std::ops::Range;
use std::sync::atomic::{AtomicPtr, AtomicU64, AtomicUsize, Ordering::*};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;
use structs::sync::lock;

/// Bytes of a segment.
pub(crate) const SEGMENT: usize = 1 << 20;
/// Places for segments: 16 GiB, more than any entry.
const PLACES: usize = 16 << 10;
/// Bytes of a cache line.
const LINE: usize = 64;
/// Segments kept for reuse.
const SPARES: usize = 8;

/// A piece of the journal.
pub(crate) struct Segment {
    number: AtomicU64,
    bytes: Box<[UnsafeCell<u8>]>,
}

// SAFETY: bytes are written by the one appender that reserved them, and read only once they are
// published (`cells.rs`); no byte is written again while a reader may see the segment.
unsafe impl Sync for Segment {}

impl Segment {
    fn new() -> Arc<Segment> {
        let zeroed = vec![0u8; SEGMENT].into_boxed_slice();
        // SAFETY: `UnsafeCell<u8>` has the layout of `u8`.
        let bytes = unsafe { Box::from_raw(Box::into_raw(zeroed) as *mut [UnsafeCell<u8>]) };
        Arc::new(Segment { number: AtomicU64::new(0), bytes })
    }

    /// Copies `from` to its place.
    ///
    /// # Safety
    /// The caller has reserved these bytes, and has not published them.
    pub(crate) unsafe fn write(&self, offset: usize, from: &[u8]) {
        assert!(offset + from.len() <= SEGMENT, "an entry is cut at the segment's end");
        // SAFETY: inside the segment (asserted); no other thread touches bytes that are reserved.
        unsafe {
            let to = self.bytes.as_ptr().add(offset) as *mut u8;
            std::ptr::copy_nonoverlapping(from.as_ptr(), to, from.len());
        }
        // The next entry's cache line is loaded meanwhile: a command takes a lock next, which waits
        // until all earlier writes are in the cache.
        structs::table::prefetch(
            self.bytes.as_ptr().cast::<u8>().wrapping_add(offset + from.len() + LINE),
        );
    }

    /// Returns the number of bytes of the segment.
    ///
    /// # Safety
    /// They have been published.
    pub(crate) unsafe fn read(&self, range: Range<usize>) -> &[u8] {
        let bytes = &self.bytes[range];
        // SAFETY: published bytes do not change while the segment is held.
        unsafe { &*(std::ptr::from_ref(bytes) as *const [u8]) }
    }
}

/// All segments that hold what was appended and not yet given back.
pub(crate) struct Segments {
    places: Box<[AtomicPtr<Segment>]>,
    /// Number of places that are taken.
    taken: AtomicUsize,
    /// Number of segments that there are: those in places and the spares.
    allocated: AtomicUsize,
    shelf: Mutex<Shelf>,
}

#[derive(Default)]
struct Shelf {
    /// Segments that are out of their places. A reader that has moved on may still hold one of
    /// them.
    spares: Vec<Arc<Segment>>,
    /// The lowest segment that may still be there.
    lowest: u64,
}

impl Shelf {
    /// Returns a spare segment that nothing else refers to.
    fn take(&mut self) -> Option<Arc<Segment>> {
        // A segment without a place cannot be found, so a sole reference stays the sole one.
        let at = self.spares.iter_mut().position(|segment| Arc::get_mut(segment).is_some())?;
        Some(self.spares.swap_remove(at))
    }
}

impl Segments {
    pub(crate) fn new() -> Segments {
        let places = (0..PLACES).map(|_| AtomicPtr::default()).collect();
        let (taken, allocated) = Default::default();
        Segments { places, taken, allocated, shelf: Mutex::default() }
    }

    /// Returns the number of bytes of the segments that have not been given back.
    pub(crate) fn bytes(&self) -> usize {
        self.taken.load(Relaxed) * SEGMENT
    }

    /// Returns the number of bytes that all segments take, also those kept for reuse.
    pub(crate) fn allocated_bytes(&self) -> usize {
        self.allocated.load(Relaxed) * SEGMENT
    }

    fn shelf(&self) -> MutexGuard<'_, Shelf> {
        lock(&self.shelf)
    }

    fn place(&self, number: u64) -> &AtomicPtr<Segment> {
        &self.places[number as usize % PLACES]
    }

    fn find(&self, number: u64) -> Option<&Segment> {
        let segment = self.place(number).load(Acquire);
        // SAFETY: a place holds null or what `Arc::into_raw` gave, which stays until the segment is
        // below the floor; the callers are above it.
        let segment = unsafe { segment.as_ref() }?;
        (segment.number.load(Acquire) == number).then_some(segment)
    }

    /// Returns the segment to append to, and whether it had to be made.
    ///
    /// The caller has reserved a place in it, so it is not given back meanwhile.
    #[inline]
    pub(crate) fn for_append(&self, number: u64) -> (&Segment, bool) {
        match self.find(number) {
            Some(segment) => (segment, false),
            None => self.make(number),
        }
    }

    #[cold]
    fn make(&self, number: u64) -> (&Segment, bool) {
        let mut is_new = false;
        loop {
            let mut shelf = self.shelf();
            if let Some(segment) = self.find(number) {
                return (segment, is_new);
            }
            if self.place(number).load(Acquire).is_null() {
                let segment = shelf.take().unwrap_or_else(|| {
                    self.allocated.fetch_add(1, Relaxed);
                    Segment::new()
                });
                segment.number.store(number, Release);
                self.place(number).store(Arc::into_raw(segment).cast_mut(), Release);
                self.taken.fetch_add(1, Relaxed);
                is_new = true;
                continue;
            }
            // The place is taken by a segment 16 GiB back, which a reader has not read yet.
            drop(shelf);
            std::thread::sleep(Duration::from_millis(1));
        }
    }

    /// Returns the segment to read, which the caller keeps while it reads. The caller is a
    /// registered reader whose position is in it.
    pub(crate) fn for_read(&self, number: u64) -> Option<Arc<Segment>> {
        let _shelf = self.shelf();
        self.find(number)?;
        // The pointer itself: the counts of an `Arc` are in front of what a reference may reach.
        let segment = self.place(number).load(Acquire).cast_const();
        // SAFETY: the pointer came from `Arc::into_raw`, and it is given back only under the lock.
        unsafe {
            Arc::increment_strong_count(segment);
            Some(Arc::from_raw(segment))
        }
    }

    /// Gives back everything; the next append is at `position`, which may be lower than before. No
    /// thread appends, and nothing beyond `end` was appended.
    pub(crate) fn restart(&self, end: u64, position: u64) {
        self.give_back(end.next_multiple_of(SEGMENT as u64));
        self.shelf().lowest = position / SEGMENT as u64;
    }

    /// Gives back the segments that lie below this position.
    pub(crate) fn give_back(&self, floor: u64) {
        let end = floor / SEGMENT as u64;
        let mut shelf = self.shelf();
        // Below the first segment that was appended to there is nothing to find.
        let begin = shelf.lowest.max(end.saturating_sub(PLACES as u64));
        for number in begin..end {
            if self.find(number).is_some() {
                let segment = self.place(number).swap(std::ptr::null_mut(), AcqRel);
                self.taken.fetch_sub(1, Relaxed);
                // SAFETY: it came from `Arc::into_raw`; appenders and readers are above the floor.
                let segment = unsafe { Arc::from_raw(segment) };
                if shelf.spares.len() < SPARES {
                    shelf.spares.push(segment);
                } else {
                    drop(segment);
                    self.allocated.fetch_sub(1, Relaxed);
                }
            }
        }
        shelf.lowest = shelf.lowest.max(end);
    }
}

impl Drop for Segments {
    fn drop(&mut self) {
        for place in &self.places {
            let segment = place.load(Acquire);
            if !segment.is_null() {
                // SAFETY: it came from `Arc::into_raw`, and no other reference to the places is
                // left.
                drop(unsafe { Arc::from_raw(segment) });
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_segment_is_reused_once_no_reader_holds_it() {
        let segments = Segments::new();
        segments.for_append(0);
        // A reader may still hold a segment when it has moved on.
        let held = segments.for_read(0).expect("it was made");
        segments.give_back(SEGMENT as u64);
        let address = Arc::as_ptr(&held);
        assert!(!std::ptr::eq(segments.for_append(1).0, address), "it is still read");
        drop(held);
        assert!(std::ptr::eq(segments.for_append(2).0, address), "it was not used again");
        assert_eq!(segments.bytes(), 2 * SEGMENT);
        segments.give_back(3 * SEGMENT as u64);
        assert_eq!(segments.bytes(), 0);
    }

    #[test]
    fn segments_kept_for_reuse_are_counted_and_no_others_stay() {
        let segments = Segments::new();
        let many = 2 * SPARES as u64;
        (0..many).for_each(|number| _ = segments.for_append(number));
        assert_eq!(segments.allocated_bytes(), segments.bytes());
        segments.give_back(many * SEGMENT as u64);
        assert_eq!((segments.bytes(), segments.allocated_bytes()), (0, SPARES * SEGMENT));
        segments.for_append(many);
        assert_eq!((segments.bytes(), segments.allocated_bytes()), (SEGMENT, SPARES * SEGMENT));
    }
}

//! Where each thread is copying an entry into the journal.
//!
//! Entries are copied after their place was reserved, so a later entry may be complete before an
//! earlier one. Each thread notes a lower bound of the bytes that it copies in a cell of its own;
//! bytes below the lowest bound are complete.

use std::cell::{Cell, RefCell};
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering::*};
use structs::sync::lock;

/// Threads that can append at a time.
pub(crate) const THREADS: usize = 1024;

/// The cells of all threads.
pub(crate) struct CopyCells {
    cells: Box<[CopyCell]>,
    /// Only cells below this number were ever used.
    used: AtomicU64,
}

/// Where a thread is copying, plus one; 0 while it does not copy.
#[repr(align(128))]
#[derive(Default)]
pub(crate) struct CopyCell(AtomicU64);

impl CopyCell {
    /// Notes a bound. To be called before the place is reserved: a reader that sees the reservation
    /// sees the bound, too. A reader that sees this bound also sees what this thread copied before.
    #[inline]
    pub(crate) fn begin(&self, bound: u64) {
        self.0.store(bound + 1, Release);
    }

    /// Notes that the bytes are copied.
    #[inline]
    pub(crate) fn end(&self) {
        self.0.store(0, Release);
    }
}

impl CopyCells {
    pub(crate) fn new() -> CopyCells {
        let cells = (0..THREADS).map(|_| CopyCell::default()).collect();
        CopyCells { cells, used: AtomicU64::new(0) }
    }

    /// Returns the cell of the calling thread.
    #[inline]
    pub(crate) fn of_this_thread(&self) -> &CopyCell {
        let number = ThreadNumber::get();
        let cell = &self.cells[number];
        if self.used.load(Relaxed) <= number as u64 {
            self.used.fetch_max(number as u64 + 1, AcqRel);
        }
        cell
    }

    /// Returns the lowest bound that is noted, or `end` if that is lower. `end` must have been
    /// loaded before, as the position behind the last reservation.
    pub(crate) fn lowest(&self, mut end: u64) -> u64 {
        let used = self.used.load(Acquire) as usize;
        for cell in &self.cells[..used] {
            match cell.0.load(Acquire) {
                0 => {}
                copying => end = end.min(copying - 1),
            }
        }
        end
    }
}

/// The number of a thread that appends. Numbers of threads that ended are reused.
pub(crate) struct ThreadNumber(usize);

/// The thread has no number yet.
const NONE: usize = usize::MAX;

/// Numbers that are free, and the first one that was never used.
static NUMBERS: Mutex<(Vec<usize>, usize)> = Mutex::new((Vec::new(), 0));

thread_local! {
    /// Gives the number back when the thread ends.
    static OWNED: RefCell<Option<ThreadNumber>> = const { RefCell::new(None) };
    /// The number, where it is found with one load.
    static NUMBER: Cell<usize> = const { Cell::new(NONE) };
}

impl ThreadNumber {
    /// Returns the number of the calling thread.
    #[inline]
    pub fn get() -> usize {
        match NUMBER.get() {
            NONE => ThreadNumber::take(),
            number => number,
        }
    }

    #[cold]
    fn take() -> usize {
        let mut numbers = lock(&NUMBERS);
        let number = numbers.0.pop().unwrap_or_else(|| {
            numbers.1 += 1;
            numbers.1 - 1
        });
        assert!(number < THREADS, "more than {THREADS} threads write");
        drop(numbers);
        OWNED.set(Some(ThreadNumber(number)));
        NUMBER.set(number);
        number
    }
}

impl Drop for ThreadNumber {
    fn drop(&mut self) {
        NUMBER.set(NONE);
        lock(&NUMBERS).0.push(self.0);
    }
}

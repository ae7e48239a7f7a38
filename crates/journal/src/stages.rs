//! Entries that have no place in the journal yet, because several share one reservation.
//!
//! A thread that runs a batch of requests stages their entries and appends them in one go. Each
//! stripe that it has changed carries a *mark* meanwhile: which thread, and which of its batches.
//! A thread that locks a stripe with another's mark appends that thread's entries before it reads
//! or changes anything, so what it does then comes behind them.
//!
//! ```text
//!   31                       10 9        0
//!  ┌───────────────────────────┬──────────┐
//!  │ batch, never 0            │ thread   │
//!  └───────────────────────────┴──────────┘
//! ```
//!
//! Marks are compared for equality. The number of a batch comes again after four million others:
//! then an old mark makes its reader append entries that could have stayed, and nothing else.

use crate::JournalPos;
use crate::cells::{THREADS, ThreadNumber};
use crate::entry::push_select;
use keyspace::DbIndex;
use std::cell::Cell;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering::*};
use std::sync::{Mutex, MutexGuard, OnceLock};
use structs::own_line::OwnLine;
use structs::sync::lock;

/// The bits of a mark that name the thread.
const THREAD_BITS: u32 = 10;
const THREAD_MASK: u32 = (1 << THREAD_BITS) - 1;
const LAST_BATCH: u32 = u32::MAX >> THREAD_BITS;
/// Bytes of the longest command that is staged. Copying a longer one twice would cost more than
/// its own reservation.
const MAX_COMMAND: usize = 1 << 10;
/// Bytes that are staged at most: about what 32 requests of 256 bytes need.
const MAX_STAGED: usize = 8 << 10;
/// Bytes that a SELECT adds at most.
const MAX_SELECT: usize = 64;

const _: () = assert!(THREADS == 1 << THREAD_BITS, "a mark has room for each thread's number");

thread_local! {
    /// The thread has just appended what another one had staged. Its next entry is not staged: the
    /// two may use the same keys, and would append each other's entries in turn.
    static HAS_MET_OTHERS: Cell<bool> = const { Cell::new(false) };
}

/// The stages of all threads.
pub(crate) struct Stages(Box<[OnceLock<Box<Stage>>]>);

/// The entries of one thread.
pub(crate) struct Stage {
    /// The batch that is staged now, or will be next. Other threads read it; the owner writes it
    /// once a batch.
    batch: OwnLine<AtomicU32>,
    entries: OwnLine<Entries>,
}

#[derive(Default)]
struct Entries {
    /// There are some, as far as the owner knows: another thread may just have appended them.
    is_pending: AtomicBool,
    staged: Mutex<Staged>,
}

pub(crate) struct Staged {
    buffer: Box<[u8; MAX_STAGED]>,
    len: usize,
    first: DbIndex,
    last: DbIndex,
    /// The position behind those that were appended last.
    pub end: JournalPos,
}

impl Default for Staged {
    fn default() -> Staged {
        let (first, last) = (DbIndex(0), DbIndex(0));
        let buffer = Box::new([0; MAX_STAGED]);
        Staged { buffer, len: 0, first, last, end: JournalPos(0) }
    }
}

impl Staged {
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Adds an entry behind the others, if there is room for it. Returns whether there was.
    #[inline]
    pub fn push(&mut self, first: DbIndex, last: DbIndex, bytes: &[u8]) -> bool {
        if self.len + bytes.len() + MAX_SELECT > MAX_STAGED {
            return false;
        }
        if self.len == 0 {
            self.first = first;
        } else if self.last != first {
            let mut line = Vec::new();
            push_select(&mut line, first);
            self.put(&line);
        }
        self.last = last;
        self.put(bytes);
        true
    }

    #[inline]
    fn put(&mut self, bytes: &[u8]) {
        let end = self.len + bytes.len();
        self.buffer[self.len..end].copy_from_slice(bytes);
        self.len = end;
    }
}

impl Stage {
    fn new() -> Box<Stage> {
        let (batch, entries) = (OwnLine::new(AtomicU32::new(1)), OwnLine::default());
        Box::new(Stage { batch, entries })
    }

    /// Locks the entries.
    #[inline]
    pub fn lock(&self) -> MutexGuard<'_, Staged> {
        lock(&self.entries.staged)
    }

    /// Adds an entry of the calling thread, whose stage it is. Returns the mark of its stripe, or
    /// `None` if there is no room for the entry.
    pub fn add(&self, db: DbIndex, command: &[u8]) -> Option<u32> {
        let mut staged = self.lock();
        if !staged.push(db, db, command) {
            return None;
        }
        // Under the lock: another thread may append the entry as soon as it is free.
        self.entries.is_pending.store(true, Relaxed);
        Some(self.batch.load(Relaxed) << THREAD_BITS | ThreadNumber::get() as u32)
    }

    /// Has `append` append what is staged, in one piece: it gets the databases that the first entry
    /// needs and the last one leaves, and the bytes. It returns the position behind them.
    pub fn append(
        &self,
        staged: &mut Staged,
        append: impl FnOnce(DbIndex, DbIndex, &[u8]) -> JournalPos,
    ) {
        if staged.len == 0 {
            return;
        }
        staged.end = append(staged.first, staged.last, &staged.buffer[..staged.len]);
        staged.len = 0;
        self.entries.is_pending.store(false, Relaxed);
        let batch = self.batch.load(Relaxed);
        self.batch.store(batch % LAST_BATCH + 1, Release);
    }
}

impl Stages {
    pub fn new() -> Stages {
        Stages((0..THREADS).map(|_| OnceLock::new()).collect())
    }

    fn of(&self, thread: usize) -> Option<&Stage> {
        self.0[thread].get().map(|stage| &**stage)
    }

    /// Returns the stage of the calling thread for an entry of so many bytes, if such an entry is
    /// to be staged now.
    #[inline]
    pub fn for_entry(&self, bytes: usize) -> Option<&Stage> {
        let is_staged = bytes <= MAX_COMMAND && !HAS_MET_OTHERS.take();
        is_staged.then(|| &**self.0[ThreadNumber::get()].get_or_init(Stage::new))
    }

    /// Returns the stage of the calling thread, if it has one.
    pub fn own(&self) -> Option<&Stage> {
        self.of(ThreadNumber::get())
    }

    /// Makes sure that the entry of a mark is appended by `append`, if another thread has staged
    /// it. Returns `false` if the entry is the calling thread's own and is still staged.
    pub fn settle(
        &self,
        mark: u32,
        append: impl FnOnce(DbIndex, DbIndex, &[u8]) -> JournalPos,
    ) -> bool {
        let (batch, thread) = (mark >> THREAD_BITS, (mark & THREAD_MASK) as usize);
        let Some(stage) = self.of(thread) else { return true };
        if stage.batch.load(Acquire) != batch {
            return true;
        }
        if thread == ThreadNumber::get() {
            return false;
        }
        let mut staged = stage.lock();
        if stage.batch.load(Relaxed) == batch {
            stage.append(&mut staged, append);
            HAS_MET_OTHERS.set(true);
        }
        true
    }

    /// Returns the stage of the calling thread if there may be something on it.
    #[inline]
    pub fn pending(&self) -> Option<&Stage> {
        let stage = self.of(ThreadNumber::get())?;
        stage.entries.is_pending.load(Relaxed).then_some(stage)
    }

    /// Returns whether the calling thread has staged entries, as far as it knows.
    #[inline]
    pub fn is_pending(&self) -> bool {
        self.pending().is_some()
    }

    /// Returns whether nothing is staged. No thread stages meanwhile.
    pub fn are_empty(&self) -> bool {
        let mut stages = self.0.iter().filter_map(OnceLock::get);
        stages.all(|stage| stage.lock().len == 0)
    }
}

/// Returns what tells whether a mark is of the calling thread.
#[inline]
pub(crate) fn own_marks() -> impl Fn(u32) -> bool {
    let thread = ThreadNumber::get() as u32;
    move |mark| mark != 0 && mark & THREAD_MASK == thread
}

#[cfg(test)]
mod tests;

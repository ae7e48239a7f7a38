//! Entries beside a stream: what a replica changes by itself, while its journal is a copy of its
//! primary's stream. They are for the append-only file only. Replicas of the replica do not get
//! them, since they have no place in the stream.
//!
//! Each stands at the position that the copy had when it was made, under the locks of its keys; the
//! thread that applies the stream appends under the locks of an entry's keys as well, where clients
//! may write. So a writer that puts the entries at a position in front of the stream's bytes from
//! there on keeps the order of every key. Those of one position are told apart by their numbers.

use crate::JournalPos;
use crate::journal::{Journal, MAX_PENDING_BYTES, select};
use keyspace::DbIndex;
use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::*};
use std::sync::{Arc, Mutex, MutexGuard};
use structs::sync::lock;

/// An entry beside the stream.
#[derive(Debug, PartialEq, Eq)]
pub struct Aside {
    /// The stream's position.
    pub at: JournalPos,
    /// The database that the stream goes on in there.
    pub stream_db: DbIndex,
    /// The commands, SELECT included.
    pub bytes: Vec<u8>,
    /// Counts all entries beside the stream.
    pub number: u64,
}

/// Those that are not written yet.
#[derive(Default)]
pub(crate) struct Asides {
    /// Whether a reader takes them.
    is_on: AtomicBool,
    /// Number of entries so far.
    next: AtomicU64,
    /// Bytes of those that wait.
    waiting_bytes: AtomicU64,
    waiting: Mutex<VecDeque<Arc<Aside>>>,
}

impl Asides {
    pub fn is_on(&self) -> bool {
        self.is_on.load(Acquire)
    }

    /// Sets whether a reader takes these entries. Without a reader none is kept.
    pub fn set_on(&self, is_on: bool, has_reader: bool) {
        self.is_on.store(is_on, Release);
        if !has_reader {
            self.clear();
        }
    }

    pub fn clear(&self) {
        lock(&self.waiting).clear();
        self.waiting_bytes.store(0, Release);
    }

    /// Keeps new entries out, and the position where it is, for as long as this is held.
    pub fn hold(&self) -> MutexGuard<'_, VecDeque<Arc<Aside>>> {
        lock(&self.waiting)
    }

    /// Adds an entry; how many bytes wait now.
    pub fn add(&self, place: impl FnOnce() -> (JournalPos, DbIndex), bytes: Vec<u8>) -> u64 {
        let mut waiting = self.hold();
        let (at, stream_db) = place();
        let number = self.next.fetch_add(1, AcqRel);
        let len = bytes.len() as u64;
        waiting.push_back(Arc::new(Aside { at, stream_db, bytes, number }));
        self.waiting_bytes.fetch_add(len, AcqRel) + len
    }

    /// Returns the number of the next entry.
    pub fn next(&self) -> u64 {
        self.next.load(Acquire)
    }

    /// Returns the oldest entry if it stands at `upto` or before and its number is lower than
    /// `before`.
    pub fn first(&self, upto: JournalPos, before: u64) -> Option<Arc<Aside>> {
        if self.waiting_bytes.load(Acquire) == 0 {
            return None;
        }
        let waiting = self.hold();
        waiting.front().filter(|aside| aside.at <= upto && aside.number < before).cloned()
    }

    /// Forgets the oldest; how many bytes wait now.
    pub fn forget(&self, aside: &Aside) -> u64 {
        let mut waiting = self.hold();
        let len = aside.bytes.len() as u64;
        match waiting.pop_front_if(|first| first.number == aside.number) {
            Some(_) => self.waiting_bytes.fetch_sub(len, AcqRel) - len,
            None => self.waiting_bytes.load(Acquire),
        }
    }
}

/// Entries [beside](crate::aside) a stream.
impl Journal {
    /// Keeps an entry beside the stream for the append-only file.
    #[cold]
    pub(crate) fn append_aside(&self, first: DbIndex, bytes: &[u8]) -> JournalPos {
        if !self.asides.is_on() {
            return self.position();
        }
        let bytes = [&select(first), bytes].concat();
        let place = || (self.position(), DbIndex(self.copy_db.load(Acquire)));
        if self.asides.add(place, bytes) > MAX_PENDING_BYTES {
            self.is_full.set(true);
        }
        self.position()
    }

    /// Returns whether own entries are kept beside the stream. Where clients may write, the thread
    /// that applies the stream then appends an entry while it holds the locks of its keys.
    #[inline]
    pub fn takes_asides(&self) -> bool {
        self.asides.is_on()
    }

    /// Returns the number of the next entry beside the stream.
    pub fn next_aside(&self) -> u64 {
        self.asides.next()
    }

    /// Returns the oldest entry beside the stream if it stands at `upto` or before and its number
    /// is lower than `before`. Call it after [`Reader::readable`].
    pub fn first_aside(&self, upto: JournalPos, before: u64) -> Option<Arc<Aside>> {
        self.asides.first(upto, before)
    }

    /// Removes the oldest entry beside the stream, which has been written. Returns whether writes
    /// waited for that and may go on.
    pub fn aside_written(&self, aside: &Aside) -> bool {
        let few = self.asides.forget(aside) <= MAX_PENDING_BYTES / 2;
        let register = self.register();
        let position = self.position().0;
        let waited_for = register.slowest_waited_for().unwrap_or(position);
        few && position.saturating_sub(waited_for) <= MAX_PENDING_BYTES / 2
            && self.is_full.set(false)
    }
}

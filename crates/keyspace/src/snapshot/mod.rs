//! Snapshots: the state of one moment, taken while everything else continues.
//!
//! At the moment of the snapshot, each stripe gets a hook ([`StripeSnapshot`]). The stripe's tables
//! are divided into cells ([`structs::cells`]), and a walk takes them one after the other. If a
//! writer is about to change an entry of a cell that was not taken yet, it takes that cell first.
//! So every entry of that moment is taken exactly once, in its old state. Apart from copies in
//! progress, this costs a bit for about six keys. `docs/internals/snapshots.md` describes the
//! whole.

mod big;
mod pieces;
pub mod record;
mod stripe;
#[cfg(test)]
mod tests;

use crate::keyspace::STRIPES;
use crate::types::DbIndex;
pub use big::write_whole;
use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, AtomicIsize, AtomicU64, AtomicUsize, Ordering::*};
use std::sync::{Arc, Mutex};
pub(crate) use stripe::StripeSnapshot;
use structs::sync::lock;

/// Greatest number of bytes that a stripe collects before it hands them over.
const HAND_OVER: usize = 8 << 10;
/// Number of bytes up to which small chunks are written together: some hundred locations of cold
/// values.
const TOGETHER: usize = 16 << 10;

/// Entries that were taken from one database, in the form of [`record`].
pub struct Chunk {
    /// Their database at the snapshot's moment.
    pub db: DbIndex,
    /// The tokens.
    pub bytes: Vec<u8>,
    /// Number of entries.
    pub keys: u64,
}

/// A value that has to be streamed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct BigRef {
    /// The stripe.
    pub stripe: usize,
    /// The database at the snapshot's moment.
    pub db: DbIndex,
    /// The key's hash.
    pub hash: u64,
}

/// What a change concerns.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Touch {
    /// The elements of the value, or the key's expiry.
    Elements,
    /// The whole entry: it may be added, removed or replaced.
    Whole,
}

/// Why a caller asks whether a key can be changed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Urgency {
    /// A client waits, so the key's value is streamed next.
    Waiting,
    /// The change can be made later.
    None,
}

/// The state that the hooks of one snapshot share with the threads that write it.
pub struct Shared {
    /// Greatest number of bytes that writers may have handed over and the snapshot has not written
    /// yet.
    limit: AtomicUsize,
    spent: AtomicUsize,
    /// Unused bytes of the buffers that hold them.
    slack: AtomicIsize,
    /// Bytes that the writing itself takes ([`Workspace`]).
    workspace: AtomicUsize,
    peak: AtomicUsize,
    queue: Mutex<VecDeque<Chunk>>,
    big: Mutex<VecDeque<BigRef>>,
    is_over: AtomicBool,
    has_failed: AtomicBool,
    is_waited_for: AtomicBool,
    is_hurried: AtomicBool,
    keys: AtomicU64,
    /// Number of marked entries, whose values are read later ([`crate::cold::ColdStore::mark`]).
    marked: AtomicUsize,
    /// Makes the waiting writers try again.
    wake: Box<dyn Fn() + Send + Sync>,
}

impl Shared {
    /// Creates the state of a snapshot that may hold `limit` bytes, and at least one, because with
    /// no space at all nothing would ever be returned. It wakes waiting clients with `wake`.
    pub fn new(limit: usize, wake: Box<dyn Fn() + Send + Sync>) -> Shared {
        Shared {
            limit: AtomicUsize::new(limit.max(1)),
            spent: AtomicUsize::new(0),
            slack: AtomicIsize::new(0),
            workspace: AtomicUsize::new(0),
            peak: AtomicUsize::new(0),
            queue: Mutex::default(),
            big: Mutex::default(),
            is_over: AtomicBool::new(false),
            has_failed: AtomicBool::new(false),
            is_waited_for: AtomicBool::new(false),
            is_hurried: AtomicBool::new(false),
            keys: AtomicU64::new(0),
            marked: AtomicUsize::new(0),
            wake,
        }
    }

    /// Changes the limit (CONFIG SET). Waiting commands try again, because there may be space now.
    pub fn set_limit(&self, bytes: usize) {
        self.limit.store(bytes.max(1), SeqCst);
        self.recheck();
    }

    /// Returns the number of bytes that a stripe may collect before it hands them over. Only the
    /// walk fetches collected bytes. So all stripes together may keep back half of the limit, and
    /// the other half remains usable.
    fn kept_back(&self) -> usize {
        (self.limit.load(Relaxed) / 2 / STRIPES).min(HAND_OVER)
    }

    /// Returns the bytes that writers have handed over and that were not written yet.
    pub fn buffered_bytes(&self) -> usize {
        self.spent.load(Relaxed)
    }

    /// Returns the bytes of memory that they and the writing itself take.
    pub fn held_bytes(&self) -> usize {
        let buffers = self.buffered_bytes().saturating_add_signed(self.slack.load(Relaxed));
        buffers + self.workspace.load(Relaxed)
    }

    /// Returns the greatest number of such bytes so far.
    pub fn peak_bytes(&self) -> usize {
        self.peak.load(Relaxed)
    }

    /// Returns the number of keys taken so far.
    pub fn keys(&self) -> u64 {
        self.keys.load(Relaxed)
    }

    /// Returns the number of entries whose values will be read together with their neighbours. An
    /// entry that is no longer counted has been taken. Entries taken by writers were handed over
    /// before the count of their stripe reached 0.
    pub fn marked(&self) -> usize {
        self.marked.load(SeqCst)
    }

    /// Ends the snapshot, complete or not. Nothing more is taken.
    pub fn end(&self) {
        self.is_over.store(true, SeqCst);
        (self.wake)();
    }

    /// Ends the snapshot as a failure of the disk does (DEBUG SNAPSHOT-FAULT).
    pub fn fail(&self) {
        self.has_failed.store(true, SeqCst);
        self.end();
    }

    /// Returns whether it has ended by [`Shared::fail`].
    pub fn has_failed(&self) -> bool {
        self.has_failed.load(SeqCst)
    }

    /// Returns whether it has ended.
    #[inline]
    pub fn is_over(&self) -> bool {
        self.is_over.load(Relaxed)
    }

    fn is_spent(&self) -> bool {
        self.spent.load(SeqCst) >= self.limit.load(SeqCst)
    }

    /// Returns whether clients wait for the snapshot, or soon will.
    pub fn is_pressing(&self) -> bool {
        self.is_hurried() || self.spent.load(Relaxed) >= self.limit.load(Relaxed) / 4
    }

    fn spend(&self, bytes: usize) {
        let spent = self.spent.fetch_add(bytes, SeqCst) + bytes;
        self.peak.fetch_max(spent, Relaxed);
    }

    fn add_slack(&self, bytes: isize) {
        self.slack.fetch_add(bytes, Relaxed);
    }

    /// Gives back the budget of a chunk that was handed over and has been written. It is freed.
    pub fn give_back_chunk(&self, bytes: usize, capacity: usize) {
        self.add_slack(bytes as isize - capacity as isize);
        self.give_back(bytes);
    }

    /// Gives back the budget of bytes that have been written.
    pub fn give_back(&self, bytes: usize) {
        let spent = self.spent.fetch_sub(bytes, SeqCst) - bytes;
        // Wait until there is some space, so that not every chunk wakes all waiting commands.
        let limit = self.limit.load(SeqCst);
        if spent < limit - limit / 4 {
            self.recheck();
        }
    }

    /// Makes waiting commands try again.
    pub fn recheck(&self) {
        if self.is_waited_for.swap(false, SeqCst) {
            (self.wake)();
        }
    }

    /// Records that a command is going to wait. Called before the last check for an obstacle, so
    /// that its end is either seen or notified.
    pub fn wait(&self) {
        self.is_waited_for.store(true, SeqCst);
    }

    /// Returns whether a command has waited since the last time that waiting ones tried again.
    pub fn is_waited_for(&self) -> bool {
        self.is_waited_for.load(Relaxed)
    }

    /// Returns the next entries that writers have handed over. Small chunks are joined.
    pub fn handed_over(&self) -> Option<Chunk> {
        let mut queue = lock(&self.queue);
        let mut chunk = queue.pop_front()?;
        let slack = |chunk: &Chunk| (chunk.bytes.capacity() - chunk.bytes.len()) as isize;
        let mut before = slack(&chunk);
        let fits = |chunk: &Chunk, next: &mut Chunk| {
            next.db == chunk.db && chunk.bytes.len() + next.bytes.len() <= TOGETHER
        };
        while let Some(next) = queue.pop_front_if(|next| fits(&chunk, next)) {
            before += slack(&next);
            chunk.bytes.extend_from_slice(&next.bytes);
            chunk.keys += next.keys;
        }
        drop(queue);
        self.add_slack(slack(&chunk) - before);
        Some(chunk)
    }

    fn hand_over(&self, chunk: Chunk) {
        lock(&self.queue).push_back(chunk);
    }

    /// Returns the next value to stream.
    pub fn next_big(&self) -> Option<BigRef> {
        self.is_hurried.store(false, Relaxed);
        self.lock_big().pop_front()
    }

    /// Returns whether a command waits for the next value to stream.
    pub fn is_hurried(&self) -> bool {
        self.is_hurried.load(Relaxed)
    }

    fn lock_big(&self) -> std::sync::MutexGuard<'_, VecDeque<BigRef>> {
        lock(&self.big)
    }

    fn add_big(&self, value: BigRef) {
        self.lock_big().push_back(value);
    }

    /// Makes a value the next to be streamed, because a client waits for it.
    fn hurry(&self, value: BigRef) {
        let mut big = self.lock_big();
        if let Some(at) = big.iter().position(|other| *other == value)
            && let Some(value) = big.remove(at)
        {
            big.push_front(value);
            self.is_hurried.store(true, Relaxed);
        }
    }
}

/// Memory that writing a snapshot needs in any case. It is counted as part of the snapshot until
/// this is dropped.
pub struct Workspace {
    shared: Arc<Shared>,
    bytes: usize,
}

impl Workspace {
    /// Counts `bytes` bytes. Called before they are allocated, because they might otherwise cause
    /// an eviction.
    pub fn new(shared: &Arc<Shared>, bytes: usize) -> Workspace {
        shared.workspace.fetch_add(bytes, Relaxed);
        Workspace { shared: Arc::clone(shared), bytes }
    }

    /// Changes the number of bytes.
    pub fn set(&mut self, bytes: usize) {
        if bytes != self.bytes {
            // Add first, so that the sum is never too small in between.
            self.shared.workspace.fetch_add(bytes, Relaxed);
            self.shared.workspace.fetch_sub(self.bytes, Relaxed);
            self.bytes = bytes;
        }
    }
}

impl Drop for Workspace {
    fn drop(&mut self) {
        self.shared.workspace.fetch_sub(self.bytes, Relaxed);
    }
}

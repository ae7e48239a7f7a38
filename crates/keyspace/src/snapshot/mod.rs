//! Snapshots: the state of one moment, taken while everything goes on.
//!
//! At the moment of the snapshot every stripe gets a hook ([`StripeSnapshot`]). The stripe's tables
//! are cut into cells ([`structs::cells`]); a walk takes them one after the other. A writer
//! that is about to change an entry of a cell not yet taken takes that cell first. So every entry of
//! that moment is taken exactly once, as it was, and what it costs beyond the copies under way is a
//! bit for some six keys. `docs/internals/snapshots.md` has the whole.

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

/// Bytes that a stripe collects before it hands them over, at most.
const HAND_OVER: usize = 8 << 10;
/// Bytes of small chunks that are written together: some hundred places of cold values.
const TOGETHER: usize = 16 << 10;

/// Entries that were taken from one database, as [`record`] has them.
pub struct Chunk {
    /// The database that they were in at the snapshot's moment.
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

/// What a change is about.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Touch {
    /// The elements of the value, or the key's expiry.
    Elements,
    /// The entry as a whole: it may come, go, or become another one.
    Whole,
}

/// Why a caller asks whether a key can be changed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Urgency {
    /// A client waits: the key's value comes next.
    Waiting,
    /// It can be done some other time.
    None,
}

/// What the hooks of one snapshot share with the threads that write it.
pub struct Shared {
    /// The most bytes that writers may have handed over and the snapshot has not written yet.
    limit: AtomicUsize,
    spent: AtomicUsize,
    /// Bytes by which the buffers that they are in are larger.
    slack: AtomicIsize,
    /// Bytes that the work itself takes ([`Workspace`]).
    workspace: AtomicUsize,
    peak: AtomicUsize,
    queue: Mutex<VecDeque<Chunk>>,
    big: Mutex<VecDeque<BigRef>>,
    is_over: AtomicBool,
    has_failed: AtomicBool,
    is_waited_for: AtomicBool,
    is_hurried: AtomicBool,
    keys: AtomicU64,
    /// Entries that are marked: their values come later ([`crate::cold::ColdStore::mark`]).
    marked: AtomicUsize,
    /// Tells the waiting writers to try again.
    wake: Box<dyn Fn() + Send + Sync>,
}

impl Shared {
    /// A snapshot that may hold so many bytes, but at least one, since no room at all would never be
    /// given back. It wakes waiting clients by `wake`.
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

    /// Changes the limit (CONFIG SET). Waiting commands try again, for there may be room now.
    pub fn set_limit(&self, bytes: usize) {
        self.limit.store(bytes.max(1), SeqCst);
        self.recheck();
    }

    /// The bytes that a stripe may collect before it hands them over: as many as all stripes
    /// together may keep back while the other half of the budget goes on, since only the walk
    /// fetches them.
    fn kept_back(&self) -> usize {
        (self.limit.load(Relaxed) / 2 / STRIPES).min(HAND_OVER)
    }

    /// Bytes handed over by writers and not yet written.
    pub fn buffered_bytes(&self) -> usize {
        self.spent.load(Relaxed)
    }

    /// The memory that they and the work itself take, in bytes.
    pub fn held_bytes(&self) -> usize {
        let buffers = self.buffered_bytes().saturating_add_signed(self.slack.load(Relaxed));
        buffers + self.workspace.load(Relaxed)
    }

    /// The most there ever were.
    pub fn peak_bytes(&self) -> usize {
        self.peak.load(Relaxed)
    }

    /// Keys taken so far.
    pub fn keys(&self) -> u64 {
        self.keys.load(Relaxed)
    }

    /// Entries whose values are still to be read with those beside them. An entry that is counted here no more
    /// has been taken; what writers have taken was handed over before the last one of its stripe went.
    pub fn marked(&self) -> usize {
        self.marked.load(SeqCst)
    }

    /// Ends the snapshot, whether it is complete or not: nothing is taken any more.
    pub fn end(&self) {
        self.is_over.store(true, SeqCst);
        (self.wake)();
    }

    /// Ends it as a failure of the disk does (DEBUG SNAPSHOT-FAULT).
    pub fn fail(&self) {
        self.has_failed.store(true, SeqCst);
        self.end();
    }

    /// Whether it has ended by [`Shared::fail`].
    pub fn has_failed(&self) -> bool {
        self.has_failed.load(SeqCst)
    }

    /// Whether it has ended.
    #[inline]
    pub fn is_over(&self) -> bool {
        self.is_over.load(Relaxed)
    }

    fn is_spent(&self) -> bool {
        self.spent.load(SeqCst) >= self.limit.load(SeqCst)
    }

    /// Whether clients wait for the snapshot, or soon will.
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

    /// A chunk that was handed over has been written, and is freed.
    pub fn give_back_chunk(&self, bytes: usize, capacity: usize) {
        self.add_slack(bytes as isize - capacity as isize);
        self.give_back(bytes);
    }

    /// What was handed over has been written.
    pub fn give_back(&self, bytes: usize) {
        let spent = self.spent.fetch_sub(bytes, SeqCst) - bytes;
        // With a little room to spare, so that not every chunk wakes all waiting commands.
        let limit = self.limit.load(SeqCst);
        if spent < limit - limit / 4 {
            self.recheck();
        }
    }

    /// Lets waiting commands try again.
    pub fn recheck(&self) {
        if self.is_waited_for.swap(false, SeqCst) {
            (self.wake)();
        }
    }

    /// Notes that a command is going to wait. To be called before the last look at what is in the
    /// way, so that its end is either seen or announced.
    pub fn wait(&self) {
        self.is_waited_for.store(true, SeqCst);
    }

    /// The next entries that writers have handed over: those of several, if they are few.
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

    /// The next value to stream.
    pub fn next_big(&self) -> Option<BigRef> {
        self.is_hurried.store(false, Relaxed);
        self.lock_big().pop_front()
    }

    /// Whether a command waits for the next value to stream.
    pub fn is_hurried(&self) -> bool {
        self.is_hurried.load(Relaxed)
    }

    fn lock_big(&self) -> std::sync::MutexGuard<'_, VecDeque<BigRef>> {
        lock(&self.big)
    }

    fn add_big(&self, value: BigRef) {
        self.lock_big().push_back(value);
    }

    /// Somebody waits for this one: it comes next.
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

/// Memory that writing a snapshot needs in any case: counted with it as
/// long as this lives.
pub struct Workspace {
    shared: Arc<Shared>,
    bytes: usize,
}

impl Workspace {
    /// Counts so many bytes; before they are allocated, or they may cost a key.
    pub fn new(shared: &Arc<Shared>, bytes: usize) -> Workspace {
        shared.workspace.fetch_add(bytes, Relaxed);
        Workspace { shared: Arc::clone(shared), bytes }
    }

    /// From now on it is so many.
    pub fn set(&mut self, bytes: usize) {
        if bytes != self.bytes {
            // Never less than there is in between.
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

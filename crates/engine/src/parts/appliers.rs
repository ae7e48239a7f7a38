//! The threads that repeat history beside the thread that reads it, and what they are given.
//! [`crate::lanes`] has how they do it.

use crate::error::Error;
use crate::table::Resolved;
use keyspace::DbIndex;
use replication::Commands;
use std::sync::atomic::AtomicUsize;
use std::sync::{Arc, Condvar, Mutex};

/// Most threads beside the one that reads.
const MAX_THREADS: usize = 15;
/// With fewer commands for each thread it is not worth waking another.
pub(crate) const MIN_JOBS: usize = 64;

/// How many threads there are beside the one that reads, if there are so many reactors.
pub(crate) fn threads_beside(reactors: usize) -> usize {
    reactors.saturating_sub(1).min(MAX_THREADS)
}

/// A command of one key.
#[derive(Clone, Copy)]
pub(crate) struct Job {
    /// Its number in the list of commands.
    pub command: usize,
    pub row: &'static Resolved,
    pub stripe: usize,
    pub hash: u64,
}

/// How history is repeated.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Manner {
    /// The stream of a primary: clients look on, and those that wait are served.
    Stream,
    /// A file that is loaded: nothing is counted, and no client is told.
    File,
}

/// Commands, and the bytes that they are places in. Threads share it.
pub struct SharedCommands {
    /// The bytes.
    pub bytes: Arc<Vec<u8>>,
    /// Places are counted from here.
    pub begin: usize,
    /// The commands.
    pub commands: Commands,
}

impl SharedCommands {
    /// The words of a command, in place of what `into` held.
    #[inline]
    pub(crate) fn words<'s>(&'s self, command: usize, into: &mut Vec<&'s [u8]>) {
        self.commands.words(&self.bytes[self.begin..], command, into);
    }
}

/// A part of the history; see the module's documentation.
pub(crate) struct Part {
    pub(crate) source: Arc<SharedCommands>,
    pub(crate) manner: Manner,
    pub(crate) db: DbIndex,
    pub(crate) lanes: Vec<Vec<Job>>,
    /// The next lane to be taken.
    pub(crate) next: AtomicUsize,
    /// Lanes that were run.
    pub(crate) done: AtomicUsize,
    /// What could not be repeated.
    pub(crate) failures: Mutex<Vec<(usize, Error)>>,
}

/// The threads; see the module's documentation.
pub struct Appliers {
    pub(crate) offer: Mutex<Offer>,
    pub(crate) came: Condvar,
    pub(crate) most: usize,
}

#[derive(Default)]
pub(crate) struct Offer {
    pub(crate) part: Option<Arc<Part>>,
    /// Counts the parts.
    pub(crate) number: u64,
    /// Threads that were started.
    pub(crate) threads: usize,
}

impl Appliers {
    pub(crate) fn new(most: usize) -> Appliers {
        Appliers { offer: Mutex::default(), came: Condvar::new(), most }
    }

    /// Whether it is worth running so many commands here.
    pub(crate) fn are_worth(&self, jobs: usize) -> bool {
        self.most > 0 && jobs >= 2 * MIN_JOBS
    }
}

//! The journal's joint: the one place through which every write passes, in order.
//!
//! The log itself (its memory, its readers, AOF and replication) comes with durability. What is
//! fixed here is what everything else may rely on: entries are appended under the locks of the
//! stripes they changed, a transaction is one entry, an entry holds effects (commands that need
//! neither clock nor chance), and each gets a position. While nobody reads, a write pays for one
//! relaxed load.

use keyspace::DbIndex;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::*};
use std::sync::{Mutex, PoisonError};

/// A place in the journal: bytes of the replication stream before it.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Default)]
pub struct JournalPos(pub u64);

/// Commands that have the effect of one write, each a list of words.
pub type EffectCommands = Vec<Vec<Vec<u8>>>;

type Reader = Box<dyn FnMut(JournalPos, DbIndex, &EffectCommands) + Send>;

/// The journal.
#[derive(Default)]
pub struct Journal {
    is_read: AtomicBool,
    position: AtomicU64,
    reader: Mutex<Option<Reader>>,
}

impl Journal {
    /// Whether anybody reads; if not, nothing needs to be appended.
    #[inline]
    pub fn is_read(&self) -> bool {
        self.is_read.load(Relaxed)
    }

    /// Installs the reader that is told of every entry from now on.
    pub fn set_reader(&self, reader: Option<Reader>) {
        let mut place = self.reader.lock().unwrap_or_else(PoisonError::into_inner);
        self.is_read.store(reader.is_some(), Release);
        *place = reader;
    }

    /// Appends one entry and returns the position behind it.
    pub fn append(&self, db: DbIndex, commands: EffectCommands) -> JournalPos {
        let bytes: usize = commands.iter().flatten().map(|word| word.len() + 16).sum();
        let mut reader = self.reader.lock().unwrap_or_else(PoisonError::into_inner);
        let position = JournalPos(self.position.fetch_add(bytes as u64, AcqRel) + bytes as u64);
        if let Some(reader) = reader.as_mut() {
            reader(position, db, &commands);
        }
        position
    }

    /// The position behind the last entry.
    pub fn position(&self) -> JournalPos {
        JournalPos(self.position.load(Acquire))
    }
}

//! The snapshot that is under way, as all threads know it. Taking one is [`crate::snapshot`].

use crate::journal::{HistoryId, JournalPos};
use crate::scripts::Libraries;
use config::Config;
use keyspace::snapshot::Shared;
use keyspace::world::Reader;
use keyspace::{DbIndex, Millis};
use std::sync::{Arc, Mutex};
use structs::flags::Flag;
use structs::sync::lock;

/// The instant of a snapshot.
#[derive(Clone, Debug)]
pub struct Cut {
    /// What the journal has before it is in the snapshot, what comes after is not.
    pub position: JournalPos,
    /// When it was.
    pub time: Millis,
    /// The history that the position belongs to.
    pub history: HistoryId,
    /// The database in which the journal goes on there without a SELECT; any will do if it goes on
    /// with one. `None` while the journal records nothing: its position stands still then, so it
    /// does not tell this state from others.
    pub stream_db: Option<DbIndex>,
    /// The epoch of the last entry before the position; 0 outside of a cluster.
    pub epoch: u64,
    /// Changes of the data set up to then, of all times.
    pub changes: u64,
    /// The libraries of functions.
    pub libraries: Libraries,
    /// Whether fields of any hash expire.
    pub has_timed_fields: bool,
}

/// The snapshots of an engine: one at a time.
#[derive(Default)]
pub struct Snapshots {
    pub(crate) is_running: Flag,
    pub(crate) current: Mutex<Option<Arc<Shared>>>,
    /// Registrations with the world, which last for ever and are used again.
    pub(crate) readers: Mutex<Vec<Reader<'static>>>,
}

impl Snapshots {
    /// Returns the state without a snapshot. `flag` is its bit among the special states of the
    /// server.
    pub(crate) fn new(flag: Flag) -> Snapshots {
        Snapshots { is_running: flag, ..Snapshots::default() }
    }

    /// Whether a snapshot is under way.
    #[inline]
    pub fn is_running(&self) -> bool {
        self.is_running.is_set()
    }

    /// The snapshot under way, for its figures and to end it.
    pub fn current(&self) -> Option<Arc<Shared>> {
        lock(&self.current).clone()
    }

    /// `CONFIG SET snapshot-buffer-limit` holds for the snapshot under way, too.
    pub fn follow_limit(&self, config: &Config) {
        if let Some(shared) = self.current() {
            shared.set_limit(buffer_limit(config));
        }
    }

    /// Memory of the snapshot under way: what it has yet to write, and what it needs for that, in
    /// bytes.
    pub fn held_bytes(&self) -> usize {
        if !self.is_running() {
            return 0;
        }
        lock(&self.current).as_ref().map_or(0, |shared| shared.held_bytes())
    }

    /// A write is about to see whether the snapshot is in its way, and will wait if so.
    pub(crate) fn wait(&self) {
        if let Some(shared) = &*lock(&self.current) {
            shared.wait();
        }
    }
}

/// `snapshot-buffer-limit`, in bytes. Where there is a tier the data fill `maxmemory`, and what a
/// snapshot takes comes on top of it: so it is an eighth of that at most.
pub fn buffer_limit(config: &Config) -> usize {
    let bytes = match config.maxmemory() {
        limit if limit > 0 && !config.tier_dir().is_empty() => {
            config.snapshot_buffer_limit().min(limit / 8)
        }
        _ => config.snapshot_buffer_limit(),
    };
    usize::try_from(bytes).unwrap_or(usize::MAX)
}

//! Snapshots of the whole data set: their beginning, the clients that wait for them, and their end.
//!
//! [`Snapshots::begin`] stops the world while it installs a hook in every stripe. The [`Snapshot`]
//! it returns is the state of that instant. Any number of threads then call [`Snapshot::write`],
//! which takes the remaining parts of that state from the keyspace, encodes them and passes them to
//! an [`Output`]. Dropping the snapshot ends it, complete or not.
//!
//! `docs/internals/snapshots.md` describes the whole.
#![allow(unsafe_code)]

mod sweep;
mod thaw;
mod walker;

use crate::clock::Ticks;
use crate::engine::Engine;
use crate::journal::JournalPos;
use crate::locks::Locks;
use crate::mailbox::recheck_all;
use crate::persistence::snapshots::buffer_limit;
pub use crate::persistence::snapshots::{Cut, Snapshots};
use crate::scripts::Libraries;
use keyspace::keyspace::STRIPES;
use keyspace::snapshot::Shared;
use keyspace::snapshot::record::Tokens;
use keyspace::{DbIndex, Millis};
use std::io;
use std::sync::atomic::AtomicUsize;
use std::sync::{Arc, Mutex};
use std::time::Duration;
use structs::sync::lock;
use walker::{Walker, ended};

/// Returns whether fields of any hash expire. `locks` hold the world.
fn has_timed_fields(engine: &Engine, locks: &Locks<'_>) -> bool {
    (0..engine.keyspace.stripes().len()).any(|stripe| {
        let data = locks.data(stripe);
        data.table_ids().any(|id| !data.table(id).field_times().is_empty())
    })
}

/// Encodes entries for a file or another consumer of a snapshot. Each thread has its own encoder.
pub trait Encode: Send {
    /// Appends the encoded form of these tokens to `out`. They begin and end between any two tokens
    /// of a value, and continue the previous tokens.
    fn encode(&mut self, tokens: Tokens<'_>, out: &mut Vec<u8>);
    /// Appends everything that was kept back, because a value has ended.
    fn end_of_value(&mut self, out: &mut Vec<u8>);
    /// Returns the bytes of memory that hold what was kept back.
    fn held_bytes(&self) -> usize {
        0
    }
}

/// The destination of a snapshot.
pub trait Output: Send {
    /// Takes the encoded form of some whole entries of a database. While [`Snapshot::write`] of one
    /// thread streams a big value, it takes pieces of that value.
    fn write(&mut self, db: DbIndex, bytes: &[u8]) -> io::Result<()>;
}

/// There is a snapshot already, or data is being loaded.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct AlreadyRunning;

impl Snapshots {
    /// Takes a snapshot of this instant. The caller is outside the world. `at_cut` runs in the
    /// stopped world, before anything else happens.
    pub fn begin(
        engine: &'static Engine,
        at_cut: impl FnOnce(&Cut),
    ) -> Result<Snapshot, AlreadyRunning> {
        let is_loading = || engine.loading.is_on();
        if is_loading() {
            return Err(AlreadyRunning);
        }
        let prepared = Snapshot::prepare(engine)?;
        let stopped = engine.keyspace.world().stop();
        // DEBUG LOADAOF may have come first. Half a data set must not be saved.
        if is_loading() {
            drop(stopped);
            return Err(AlreadyRunning);
        }
        let mut locks = Locks::new(&engine.keyspace);
        // SAFETY: the world of `engine`; `install` has no stripe locked elsewhere.
        unsafe { locks.hold_world(stopped) };
        Ok(prepared.install(&mut locks, at_cut))
    }
}

/// Which other work runs while a snapshot is written.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Beside {
    /// Clients are served by other threads.
    Clients,
    /// The same. The snapshot is for replicas, which have no data until they have received all of
    /// it.
    Replicas,
    /// Nothing else runs: the thread has stopped the world.
    Nobody,
}

/// The state of one instant. The module's documentation describes its use.
pub struct Snapshot {
    engine: &'static Engine,
    shared: Arc<Shared>,
    cut: Cut,
    started: Ticks,
    next_stripe: AtomicUsize,
    /// Number of stripes whose walk has ended.
    walked: AtomicUsize,
    beside: Mutex<Beside>,
}

impl Snapshot {
    /// Does the same as [`Snapshots::begin`] for a command that holds the world with these locks.
    pub(crate) fn begin_in_stopped_world(
        engine: &'static Engine,
        locks: &mut Locks<'_>,
    ) -> Result<Snapshot, AlreadyRunning> {
        Ok(Snapshot::prepare(engine)?.install(locks, |_| {}))
    }

    fn prepare(engine: &'static Engine) -> Result<Snapshot, AlreadyRunning> {
        let snapshots = &engine.snapshots;
        let mut current = lock(&snapshots.current);
        if current.is_some() {
            return Err(AlreadyRunning);
        }
        let wake = || recheck_all(&engine.mailboxes);
        let shared = Arc::new(Shared::new(buffer_limit(&engine.config), Box::new(wake)));
        *current = Some(Arc::clone(&shared));
        let cut = Cut {
            position: JournalPos::default(),
            time: Millis(0),
            history: engine.journal.history().id,
            stream_db: None,
            epoch: 0,
            changes: 0,
            libraries: Libraries::default(),
            has_timed_fields: false,
        };
        Ok(Snapshot {
            engine,
            shared,
            cut,
            started: engine.clock.now(),
            next_stripe: AtomicUsize::new(0),
            walked: AtomicUsize::new(0),
            beside: Mutex::new(Beside::Clients),
        })
    }

    /// Installs the hooks and fills in the cut. `locks` hold the world.
    fn install(mut self, locks: &mut Locks<'_>, at_cut: impl FnOnce(&Cut)) -> Snapshot {
        let engine = self.engine;
        let began = engine.clock.now();
        self.cut = Cut {
            position: engine.journal.position(),
            time: engine.clock.wall(),
            history: engine.journal.history().id,
            stream_db: engine.journal.is_active().then(|| engine.stream_db().unwrap_or_default()),
            epoch: engine.epochs.last().epoch,
            changes: engine.changes(),
            libraries: engine.scripts.functions.all(),
            has_timed_fields: has_timed_fields(engine, locks),
        };
        at_cut(&self.cut);
        engine.keyspace.begin_snapshot(locks, &self.shared);
        engine.snapshots.is_running.set(true);
        engine.persistence.note_cut(engine.clock.elapsed(began));
        self
    }

    /// Returns the snapshot's instant.
    pub fn cut(&self) -> &Cut {
        &self.cut
    }

    /// Returns the time since that instant.
    pub fn elapsed(&self) -> Duration {
        self.engine.clock.elapsed(self.started)
    }

    /// Returns an error, as [`Snapshot::write`] does, if the snapshot was ended after it was
    /// written.
    pub fn ensure_not_cancelled(&self) -> io::Result<()> {
        if self.shared.is_over() { Err(ended(&self.shared)) } else { Ok(()) }
    }

    /// Returns how much of it was written, and how much is in progress.
    pub fn progress(&self) -> &Arc<Shared> {
        &self.shared
    }

    /// Sets what runs beside this snapshot. It must be the first call after the beginning: the
    /// snapshot may end before a byte is written, and its end must not wait for a world that its
    /// owner has stopped.
    pub fn begin_beside(&self, beside: Beside) {
        *lock(&self.beside) = beside;
    }

    /// Returns the number of keys of each database, and of keys that expire. These are present
    /// numbers, so they only approximate those of the snapshot.
    pub fn sizes(&self) -> Vec<(DbIndex, u64, u64)> {
        let engine = self.engine;
        let mut sizes: Vec<_> = engine.keyspace.used_databases().map(|db| (db, 0, 0)).collect();
        let walker = Walker::new(self);
        for stripe in 0..STRIPES {
            walker.with_stripe(stripe, |data| {
                for (db, keys, expiring) in &mut sizes {
                    *keys += data.key_count(*db) as u64;
                    *expiring += data.expiring_count(*db) as u64;
                }
            });
        }
        sizes.retain(|&(_, keys, _)| keys > 0);
        sizes
    }

    /// Takes and writes parts that no other thread takes. Returns when nothing is left for this
    /// thread. The snapshot is complete when all threads have returned without an error. An error
    /// ends the snapshot for all of them.
    pub fn write(
        &self,
        encode: &mut dyn Encode,
        output: &Mutex<&mut dyn Output>,
    ) -> io::Result<()> {
        let mut walker = Walker::new(self);
        let result = walker.run(encode, output);
        if result.is_err() {
            self.shared.end();
        }
        result
    }
}

impl Drop for Snapshot {
    fn drop(&mut self) {
        self.shared.end();
        let walker = Walker::new(self);
        walker.inside(|| self.engine.keyspace.end_snapshot());
        drop(walker);
        if let Some(tier) = self.engine.tier.get() {
            tier.forget_snapshot();
        }
        self.engine.snapshots.is_running.set(false);
        *lock(&self.engine.snapshots.current) = None;
    }
}

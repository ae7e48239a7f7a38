//! Snapshots of the whole data set: their begin, their waiting clients, and their end.
//!
//! [`Snapshots::begin`] stops the world for as long as it takes to put a hook into every stripe;
//! the [`Snapshot`] it returns is the state of that instant. Any number of threads then call
//! [`Snapshot::write`], which takes what is left of it out of the keyspace, encodes it and gives it
//! to an [`Output`]. Dropping the snapshot ends it, complete or not.
//!
//! `docs/internals/snapshots.md` has the whole.
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
use std::sync::atomic::{AtomicUsize, Ordering::*};
use std::sync::{Arc, Mutex};
use std::time::Duration;
use structs::sync::lock;
use walker::{Walker, ended};

/// Whether fields of any hash expire. `locks` hold the world.
fn has_timed_fields(engine: &Engine, locks: &Locks<'_>) -> bool {
    (0..engine.keyspace.stripes().len()).any(|stripe| {
        let data = locks.data(stripe);
        data.table_ids().any(|id| !data.table(id).field_times().is_empty())
    })
}

/// Makes bytes of what a file, or whatever else takes a snapshot, is to have of an entry. Each
/// thread has one of its own.
pub trait Encode: Send {
    /// Appends the form of these tokens to `out`. They begin and end anywhere between two tokens of
    /// a value, and go on where the last ones ended.
    fn encode(&mut self, tokens: Tokens<'_>, out: &mut Vec<u8>);
    /// A value has ended: nothing of it may be kept back.
    fn end_of_value(&mut self, out: &mut Vec<u8>);
    /// Bytes that hold what was kept back.
    fn held_bytes(&self) -> usize {
        0
    }
}

/// Where a snapshot goes.
pub trait Output: Send {
    /// Takes the encoded form of some whole entries of a database, or, from [`Snapshot::write`] of
    /// one thread at a time, of a piece of one.
    fn write(&mut self, db: DbIndex, bytes: &[u8]) -> io::Result<()>;
}

/// There can be one snapshot at a time, and none of a data set that is being loaded.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct AlreadyRunning;

impl Snapshots {
    /// Takes a snapshot of this instant. The caller is outside the world; `at_cut` runs in the
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
        // DEBUG LOADAOF may have come first: half a data set must not be saved.
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

/// The purpose of a snapshot.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Beside {
    /// A thread beside all others.
    Clients,
    /// The same for replicas, which have no data until they have all of it.
    Replicas,
    /// The thread that has stopped the world.
    Nobody,
}

/// The state of one instant; see the module's documentation.
pub struct Snapshot {
    engine: &'static Engine,
    shared: Arc<Shared>,
    cut: Cut,
    started: Ticks,
    next_stripe: AtomicUsize,
    /// Stripes whose walk is at its end.
    walked: AtomicUsize,
    beside: Mutex<Beside>,
}

impl Snapshot {
    /// The same for a command that holds the world, by these locks.
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

    /// `locks` hold the world.
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
        engine.snapshots.is_running.store(true, Relaxed);
        engine.persistence.note_cut(engine.clock.elapsed(began));
        self
    }

    /// The snapshot's instant.
    pub fn cut(&self) -> &Cut {
        &self.cut
    }

    /// How long ago that was.
    pub fn elapsed(&self) -> Duration {
        self.engine.clock.elapsed(self.started)
    }

    /// That it was not ended since it was written; else an error as of [`Snapshot::write`].
    pub fn ensure_not_cancelled(&self) -> io::Result<()> {
        if self.shared.is_over() { Err(ended(&self.shared)) } else { Ok(()) }
    }

    /// How much of it was written, and what is under way.
    pub fn progress(&self) -> &Arc<Shared> {
        &self.shared
    }

    /// Says which snapshot runs beside it, and ends: first of all, for it may end without a byte
    /// written, and must not wait for a world that its owner has stopped.
    pub fn begin_beside(&self, beside: Beside) {
        *lock(&self.beside) = beside;
    }

    /// The keys of each database and how many of them expire, as they are now: about what the
    /// snapshot has.
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

    /// Takes and writes what no other thread does. Returns when there is nothing left for this thread;
    /// when all threads have returned without an error the snapshot is complete. An error ends the
    /// snapshot for all of them.
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
        self.engine.snapshots.is_running.store(false, Relaxed);
        *lock(&self.engine.snapshots.current) = None;
    }
}

//! Snapshots of the whole data set: their begin, their waiting clients, and their end.
//!
//! [`Snapshots::begin`] stops the world for as long as it takes to put a hook into every stripe;
//! the [`Snapshot`] it returns is the state of that instant. Any number of threads then call
//! [`Snapshot::write`], which takes what is left of it out of the keyspace, encodes it and gives it
//! to an [`Output`]. Dropping the snapshot ends it, complete or not.
//!
//! `docs/internals/snapshots.md` has the whole.
#![allow(unsafe_code)]

pub mod load;
pub mod loading;
pub mod persistence;

use crate::clock::Ticks;
use crate::cold;
use crate::engine::Engine;
use crate::journal::{HistoryId, JournalPos};
use crate::locks::Locks;
use crate::mailbox::recheck_all;
use crate::scripts::Libraries;
use config::Config;
use keyspace::keyspace::STRIPES;
use keyspace::memory::block_size;
use keyspace::snapshot::record::Tokens;
use keyspace::snapshot::{BigRef, Chunk, Shared, Workspace};
use keyspace::world::Reader;
use keyspace::{DbIndex, Millis, StripeData};
use std::io;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::*};
use std::sync::{Arc, Mutex};
use std::time::Duration;
use structs::give_way;
use structs::sync::lock;

/// Bytes after which a thread gives what it has encoded to the output.
const FLUSH: usize = 1 << 20;
/// Room for them, and for what comes with the last of them.
const FLUSH_ROOM: usize = FLUSH + (128 << 10);
/// What a thread has beside: entries as they were taken.
const BESIDE_FLUSH: usize = 128 << 10;
/// Bytes of a big value that are taken at a stretch.
const PIECE: usize = 16 << 10;
/// How long a thread works at a stretch while clients are served. Short stretches matter more than
/// the share: a thread that has rested is not put off the processor in the middle of one, with a
/// stripe's lock in its hand.
const STRETCH: Duration = Duration::from_micros(100);
/// How many times as long it rests then, and how many times more for each of its last eight offers of
/// the processor that another thread took.
const REST: u32 = 2;
/// Commands in a second from which on clients are served.
const BUSY: u64 = 1000;

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
    /// with one. `None` while the journal records nothing: its position stands still then, so it does
    /// not tell this state from others.
    pub stream_db: Option<DbIndex>,
    /// Changes of the data set up to then, of all times.
    pub changes: u64,
    /// The libraries of functions.
    pub libraries: Libraries,
    /// Whether fields of any hash expire.
    pub has_timed_fields: bool,
}

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

/// The snapshots of an engine: one at a time.
#[derive(Default)]
pub struct Snapshots {
    is_running: AtomicBool,
    current: Mutex<Option<Arc<Shared>>>,
    /// Registrations with the world, which last for ever and are used again.
    readers: Mutex<Vec<Reader<'static>>>,
}

impl Snapshots {
    /// Whether a snapshot is under way.
    #[inline]
    pub fn is_running(&self) -> bool {
        self.is_running.load(Relaxed)
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

    /// Memory of the snapshot under way: what it has yet to write, and what it needs for that, in bytes.
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

    /// The same for a command that holds the world.
    pub fn begin_in_stopped_world(
        engine: &'static Engine,
        db: &mut crate::db::Db<'_>,
    ) -> Result<Snapshot, AlreadyRunning> {
        let prepared = Snapshot::prepare(engine)?;
        Ok(prepared.install(&mut db.locks, |_| {}))
    }
}

fn buffer_limit(config: &Config) -> usize {
    usize::try_from(config.snapshot_buffer_limit()).unwrap_or(usize::MAX)
}

/// The purpose of a snapshot.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Beside {
    /// A thread beside all others.
    Clients,
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
    beside: Mutex<Beside>,
}

impl Snapshot {
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
        self.engine.snapshots.is_running.store(false, Relaxed);
        *lock(&self.engine.snapshots.current) = None;
    }
}

/// One thread's part in writing a snapshot.
struct Walker<'a> {
    snapshot: &'a Snapshot,
    /// `None` if the thread has stopped the world.
    reader: Option<Reader<'static>>,
    stripe: Option<usize>,
    out: Vec<u8>,
    out_db: DbIndex,
    stretch_began: Ticks,
    /// Which of its last eight offers of the processor were taken: the newest in the lowest bit.
    taken: u8,
    /// What all this takes. Last: it is dropped after the rest.
    workspace: Workspace,
}

fn ended(shared: &Shared) -> io::Error {
    if shared.has_failed() {
        return io::Error::other("a failure was asked for");
    }
    io::Error::new(io::ErrorKind::Interrupted, "the snapshot was ended")
}

impl<'a> Walker<'a> {
    fn new(snapshot: &'a Snapshot) -> Walker<'a> {
        let engine = snapshot.engine;
        let reader = (*lock(&snapshot.beside) == Beside::Clients).then(|| {
            let spare = lock(&engine.snapshots.readers).pop();
            spare.unwrap_or_else(|| engine.keyspace.world().register())
        });
        Walker {
            snapshot,
            reader,
            stripe: None,
            out: Vec::new(),
            out_db: DbIndex(0),
            stretch_began: engine.clock.now(),
            // Scarce until they turn out not to be.
            taken: u8::MAX,
            workspace: Workspace::new(&snapshot.shared, 0),
        }
    }

    /// Does something inside the world.
    fn inside<R>(&self, work: impl FnOnce() -> R) -> R {
        if let Some(reader) = &self.reader {
            reader.enter();
        }
        let result = work();
        if let Some(reader) = &self.reader {
            reader.leave();
        }
        result
    }

    fn with_stripe<R>(&self, index: usize, work: impl FnOnce(&mut StripeData) -> R) -> R {
        self.inside(|| work(&mut self.snapshot.engine.keyspace.stripe(index).lock()))
    }

    fn run(&mut self, encode: &mut dyn Encode, output: &Mutex<&mut dyn Output>) -> io::Result<()> {
        let shared = Arc::clone(&self.snapshot.shared);
        self.count_workspace(FLUSH_ROOM, encode);
        self.out.reserve_exact(FLUSH_ROOM);
        loop {
            if shared.is_over() {
                return Err(ended(&shared));
            }
            self.rest();
            if let Some(chunk) = shared.handed_over() {
                let (bytes, capacity) = (chunk.bytes.len(), chunk.bytes.capacity());
                let written = self.take(chunk, encode, output);
                shared.give_back_chunk(bytes, capacity);
                written?;
            } else if shared.is_hurried() {
                if let Some(value) = shared.next_big() {
                    self.stream(value, encode, output)?;
                }
            } else if let Some(index) = self.next_stripe() {
                match self.with_stripe(index, StripeData::walk_snapshot) {
                    Some(chunk) => self.take(chunk, encode, output)?,
                    None => self.stripe = None,
                }
            } else if let Some(value) = shared.next_big() {
                self.stream(value, encode, output)?;
            } else {
                return self.flush(&mut **lock(output));
            }
        }
    }

    fn next_stripe(&mut self) -> Option<usize> {
        if self.stripe.is_none() {
            let next = self.snapshot.next_stripe.fetch_add(1, Relaxed);
            self.stripe = (next < STRIPES).then_some(next);
        }
        self.stripe
    }

    fn take(
        &mut self,
        chunk: Chunk,
        encode: &mut dyn Encode,
        output: &Mutex<&mut dyn Output>,
    ) -> io::Result<()> {
        if chunk.db != self.out_db {
            self.flush(&mut **lock(output))?;
            self.out_db = chunk.db;
        }
        cold::thaw(self.snapshot.engine, &chunk.bytes, &mut |tokens| {
            self.encode(tokens, encode);
            encode.end_of_value(&mut self.out);
            if self.out.len() >= FLUSH {
                self.flush(&mut **lock(output))?;
            }
            Ok(())
        })?;
        self.delay(chunk.keys);
        Ok(())
    }

    fn encode(&mut self, tokens: &[u8], encode: &mut dyn Encode) {
        encode.encode(Tokens::new(tokens), &mut self.out);
        self.count_workspace(self.out.capacity(), encode);
    }

    fn count_workspace(&mut self, out_bytes: usize, encode: &dyn Encode) {
        self.workspace.set(block_size(out_bytes) + block_size(encode.held_bytes()) + BESIDE_FLUSH);
    }

    fn flush(&mut self, output: &mut dyn Output) -> io::Result<()> {
        if !self.out.is_empty() {
            output.write(self.out_db, &self.out)?;
            self.out.clear();
        }
        Ok(())
    }

    /// Streams a big value; no other thread writes meanwhile.
    fn stream(
        &mut self,
        value: BigRef,
        encode: &mut dyn Encode,
        output: &Mutex<&mut dyn Output>,
    ) -> io::Result<()> {
        let shared = Arc::clone(&self.snapshot.shared);
        let mut output = lock(output);
        self.flush(&mut **output)?;
        self.out_db = value.db;
        // It is exchanged for what writers have filled: with room in it they need not allocate.
        let _room = Workspace::new(&shared, 16 * PIECE);
        let mut tokens = Vec::with_capacity(16 * PIECE);
        loop {
            tokens.clear();
            let goes_on = self
                .with_stripe(value.stripe, |data| data.stream_snapshot(value, &mut tokens, PIECE));
            // Looked at afterwards: from the end on the stripe's hook is not told of changes, so the
            // value may be another one by now, or gone in the middle.
            if shared.is_over() {
                return Err(ended(&shared));
            }
            self.encode(&tokens, encode);
            if !goes_on {
                break;
            }
            if self.out.len() >= FLUSH {
                self.flush(&mut **output)?;
            }
            if tokens.len() < PIECE / 2 && !shared.is_pressing() {
                // Writers take the elements; there will be more of them in a moment.
                self.snapshot.engine.clock.rest(STRETCH);
            }
            self.rest();
        }
        encode.end_of_value(&mut self.out);
        // Commands that wait for this value may go on.
        shared.recheck();
        self.flush(&mut **output)
    }

    /// Leaves the processor to the threads that serve clients, unless clients wait for the snapshot.
    fn rest(&mut self) {
        let clock = &self.snapshot.engine.clock;
        let worked = clock.elapsed(self.stretch_began);
        if worked < STRETCH {
            return;
        }
        let engine = self.snapshot.engine;
        let is_busy = self.reader.is_some() && engine.rates.commands_per_second() >= BUSY;
        if is_busy && !self.snapshot.shared.is_pressing() {
            let away = give_way::offer();
            self.taken = self.taken << 1 | u8::from(away.is_some());
            let times = REST * (1 + self.taken.count_ones());
            let rest = worked.min(STRETCH * 2) * times;
            clock.rest(rest.saturating_sub(away.unwrap_or_default()));
        }
        self.stretch_began = clock.now();
    }

    /// `rdb-key-save-delay`, for tests.
    fn delay(&self, keys: u64) {
        let each = self.snapshot.engine.config.rdb_key_save_delay();
        let Ok(each) = u64::try_from(each) else { return };
        let mut left = Duration::from_micros(each.saturating_mul(keys));
        while !left.is_zero() && !self.snapshot.shared.is_over() {
            let step = left.min(Duration::from_millis(5));
            self.snapshot.engine.clock.rest(step);
            left -= step;
        }
    }
}

impl Drop for Walker<'_> {
    fn drop(&mut self) {
        if let Some(reader) = self.reader.take() {
            lock(&self.snapshot.engine.snapshots.readers).push(reader);
        }
    }
}

//! Applying the stream of a primary: its commands are run, and its bytes appended to the journal as they
//! came, so that the own append-only file and replicas of this replica read the same bytes at the same
//! positions.
//!
//! The commands run as a client's do (with the locks of their keys, statistics, events, invalidations,
//! and clients that waited for what they bring), but pass no gate, do not block, and no key is gone
//! for them because its time has come: the primary says when that is. An entry, which may be a
//! transaction, is run under the locks of all its keys together.
//!
//! Whenever the thread is outside the world, the journal's position is that of what was applied. So
//! a thread that stops the world (a snapshot, a promotion) finds a whole prefix of the stream.

use crate::args::Args;
use crate::background::GAP;
use crate::clients::Client;
use crate::command::Flags;
use crate::commit;
use crate::cx::Cx;
use crate::dispatch::{self, is_held_back};
use crate::engine::Engine;
use crate::error::Error;
use crate::journal::{History, JournalPos};
use crate::locks::Locked;
use crate::request_keys::RequestKeys;
use crate::request_keys::{prefetch_bucket, prefetch_entry};
use crate::scripts::functions::Libraries;
use crate::session::Session;
use crate::table::Resolved;
use crate::thread::ThreadContext;
use crate::tier;
use keyspace::keyspace::Taken;
use keyspace::{DbIndex, Millis};
use replication::replica::framing::{Entry, EntryKind, Framer};
use resp::Output;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;

/// Applies a stream; see the module's documentation.
pub struct Follower<'t> {
    engine: &'static Engine,
    thread: &'t ThreadContext,
    session: Session,
    replies: Output,
}

/// What was applied.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Applied {
    /// Bytes of the input, always whole entries.
    pub bytes: usize,
    /// The primary asks what the replica has, and this is it.
    pub asked_at: Option<JournalPos>,
    /// Another term has begun: nothing more is to be applied.
    pub is_over: bool,
}

/// The words of one command.
type Words<'i> = Vec<&'i [u8]>;

impl<'t> Follower<'t> {
    /// A stream that goes on in this database. The thread must be outside the world.
    pub fn new(engine: &'static Engine, thread: &'t ThreadContext, db: DbIndex) -> Follower<'t> {
        let client = Client::unconnected(0, thread.index, engine.clock.wall());
        let mut session = Session::new(Arc::new(client), engine.acl.default_user(), true);
        session.db = db;
        Follower { engine, thread, session, replies: Output::default() }
    }

    /// The database that the stream goes on in.
    pub fn db(&self) -> DbIndex {
        self.session.db
    }

    /// Applies the entries that the framer has found in the input, in this term.
    pub fn apply(&mut self, term: u64, input: &[u8], framer: &Framer) -> Applied {
        let (engine, thread) = (self.engine, self.thread);
        self.replies.clear();
        thread.reader.enter();
        let now = engine.clock.wall();
        let mut cx = Cx::new(engine, thread, &mut self.session, now, &mut self.replies);
        cx.db.horizon = Millis(i64::MIN);
        let mut run = Run { cx, term, input, appended: 0, at: 0, is_over: false };
        run.check_term();
        let mut asked_at = None;
        run.prefetch(framer);
        let mut words = Vec::new();
        for entry in framer.entries() {
            if run.is_over {
                break;
            }
            match entry.kind {
                EntryKind::Nothing => {}
                EntryKind::GetAck => {
                    run.append();
                    asked_at = Some(run.cx.engine.journal.position());
                }
                EntryKind::Commands { .. } if framer.len_of(entry) == 1 => {
                    framer.words(input, entry, 0, &mut words);
                    run.repeat(std::slice::from_ref(&words), entry);
                }
                EntryKind::Commands { .. } => {
                    let commands: Vec<Words<'_>> = (0..framer.len_of(entry))
                        .map(|command| {
                            let mut words = Vec::new();
                            framer.words(input, entry, command, &mut words);
                            words
                        })
                        .collect();
                    run.repeat(&commands, entry);
                }
            }
            if !run.is_over {
                run.at = entry.end;
            }
        }
        run.append();
        let Run { cx, appended, is_over, .. } = run;
        cx.session.db = cx.db.index;
        engine.tracking.flush_broadcasts(engine);
        drop(cx);
        thread.reader.leave();
        tier::make_room_for_load(engine, Some(&thread.reader));
        Applied { bytes: appended, asked_at, is_over }
    }
}

/// Refuses what no primary sends: a lying one is not to shut this server down, or to subscribe to
/// anything.
fn in_its_place(row: &Resolved) -> Result<&Resolved, Error> {
    let flags = row.command.flags;
    let replicates = flags.any(Flags::WRITE.with(Flags::MAY_REPLICATE));
    if replicates || !flags.any(Flags::NOSCRIPT.with(Flags::ADMIN)) {
        return Ok(row);
    }
    Err(Error::text("ERR This command has no place in a replication stream"))
}

/// A part of a stream while it is applied. The thread is inside the world.
struct Run<'a, 'i> {
    cx: Cx<'a>,
    term: u64,
    input: &'i [u8],
    /// Bytes of the input that are in the journal.
    appended: usize,
    /// Bytes that were applied.
    at: usize,
    is_over: bool,
}

impl<'i> Run<'_, 'i> {
    /// Asks, each time the thread has entered the world, whether it is still this one's turn.
    fn check_term(&mut self) {
        self.is_over |= self.cx.engine.upstream.term() != self.term;
    }

    /// Appends what was applied; before the world is left.
    fn append(&mut self) {
        if self.appended < self.at {
            let bytes = &self.input[self.appended..self.at];
            self.cx.engine.journal.append_verbatim(bytes, self.cx.db.index);
            self.cx.engine.upstream.link().stream_db = self.cx.db.index;
            self.appended = self.at;
        }
    }

    /// Leaves the world for a moment, since something is in the way.
    fn step_back(&mut self) {
        self.append();
        self.cx.thread.reader.leave();
        self.cx.thread.clock.rest(GAP);
        self.cx.thread.reader.enter();
        self.check_term();
    }

    /// Brings the keys of all entries into the cache.
    fn prefetch(&mut self, framer: &Framer) {
        let (engine, mut words) = (self.cx.engine, Vec::new());
        let mut fetched = Vec::new();
        for entry in framer.entries() {
            if framer.len_of(entry) != 1 {
                continue;
            }
            framer.words(self.input, entry, 0, &mut words);
            if let Ok(row) = engine.table.resolve_logged(&words)
                && let Some(key) = crate::batch::fetch_stripe(engine, row, &words)
            {
                fetched.push(key);
            }
        }
        let (keyspace, db) = (&engine.keyspace, self.cx.db.index);
        for &(stripe, hash) in &fetched {
            prefetch_bucket(keyspace.stripe(stripe), db, hash);
        }
        for &(stripe, hash) in &fetched {
            prefetch_entry(keyspace.stripe(stripe), db, hash);
        }
    }

    /// Runs the commands of an entry, as one.
    fn repeat(&mut self, commands: &[Words<'i>], entry: &Entry) {
        let engine = self.cx.engine;
        if self.cx.thread.reader.is_wanted() {
            self.append();
            self.cx.thread.reader.leave();
            self.cx.thread.reader.enter();
            self.check_term();
        }
        if self.is_over {
            return;
        }
        let mut rows: Vec<Option<&'static Resolved>> = Vec::with_capacity(commands.len());
        for words in commands {
            let row = engine.table.resolve_logged(words).and_then(in_its_place);
            rows.push(row.map_err(|error| self.failed(words, &error)).ok());
        }
        let needs_world = |(row, words): (&Option<&'static Resolved>, &Words<'_>)| {
            row.is_some_and(|row| row.command.flags.has(Flags::WALKS) || row.needs_world(words))
        };
        if rows.iter().zip(commands).any(needs_world) {
            self.repeat_in_stopped_world(&rows, commands, entry);
            return;
        }
        let need = self.stripes(&rows, commands);
        loop {
            if self.is_over {
                return;
            }
            if self.cx.db.locks.acquire(need.clone()).is_err() {
                self.step_back();
                continue;
            }
            if !self.is_held_back(&rows, commands) {
                break;
            }
            self.cx.db.locks.release();
            self.step_back();
        }
        self.run(&rows, commands);
        let engine = self.cx.engine;
        if engine.journal.takes_asides() && !engine.config.replica_read_only() {
            // What others do to these keys from now on stands behind it in the append-only file.
            self.at = entry.end;
            self.append();
        }
        dispatch::serve_first(&mut self.cx);
        self.cx.db.locks.release();
        dispatch::serve_first(&mut self.cx);
    }

    fn repeat_in_stopped_world(
        &mut self,
        rows: &[Option<&'static Resolved>],
        commands: &[Words<'i>],
        entry: &Entry,
    ) {
        self.append();
        while dispatch::stop_world(&mut self.cx).is_err() {
            self.step_back();
            if self.is_over {
                return;
            }
        }
        self.check_term();
        if !self.is_over {
            self.run(rows, commands);
            // No thread may see the one without the other.
            self.at = entry.end;
            self.append();
            dispatch::serve_first(&mut self.cx);
        }
        self.cx.db.locks.release_inside(&self.cx.thread.reader);
        self.check_term();
    }

    /// The stripes of all keys.
    fn stripes(&mut self, rows: &[Option<&'static Resolved>], commands: &[Words<'i>]) -> Locked {
        let keyspace = &self.cx.engine.keyspace;
        if let ([Some(row)], [words]) = (rows, commands)
            && row.single_key > 0
        {
            return Locked::One(keyspace.stripe_of(Args::new(words).key(row.single_key)));
        }
        let mut keys = RequestKeys::default();
        for (row, words) in rows.iter().zip(commands) {
            if let Some(row) = row {
                keys.add(keyspace, row.command, words);
            }
        }
        keys.prefetch(keyspace, self.cx.db.index);
        keys.stripes()
    }

    fn is_held_back(&mut self, rows: &[Option<&'static Resolved>], commands: &[Words<'i>]) -> bool {
        let engine = self.cx.engine;
        if !engine.holds.any() && !engine.snapshots.is_running() {
            return false;
        }
        rows.iter().zip(commands).any(|(row, words)| {
            self.cx.keys.clear();
            row.is_some_and(|row| is_held_back(&mut self.cx, row, Args::new(words)))
        })
    }

    /// Runs the commands, whose locks are held.
    fn run(&mut self, rows: &[Option<&'static Resolved>], commands: &[Words<'i>]) {
        let cx = &mut self.cx;
        cx.begin_transaction();
        cx.db.effects.is_stream = true;
        cx.start_timing();
        let mut failures = Vec::new();
        for (row, words) in rows.iter().zip(commands) {
            let Some(row) = row else { continue };
            if let Err(error) = dispatch::run_nested(cx, row, Args::new(words)) {
                failures.push((words, error));
            }
            cx.reply.truncate(0);
        }
        cx.end_transaction();
        // What a transaction has to tell others leaves at its end.
        commit::commit(cx, Args::new(&[]));
        cx.db.effects.is_stream = false;
        for (words, error) in failures {
            self.failed(words, &error);
        }
    }

    /// A command failed that did not on the primary: the two may differ from now on.
    #[cold]
    fn failed(&self, words: &Words<'_>, error: &Error) {
        let engine = self.cx.engine;
        let before = engine.upstream.failures.fetch_add(1, Relaxed);
        if let Some(host) = engine.host().filter(|_| before < 10) {
            let line = String::from_utf8_lossy(&error.line()).replace(char::is_control, " ");
            let name = words.first().map_or(&b""[..], |word| &word[..word.len().min(64)]);
            host.warn(&format!(
                "== CRITICAL == This replica is sending an error to its master: '{line}' after \
                 processing the command '{}'",
                name.escape_ascii()
            ));
        }
    }
}

/// The term in which something was begun is over.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Over;

/// What follows a snapshot: its history and the position of its instant.
#[derive(Clone, Copy, Debug)]
pub struct Beginning {
    /// The history.
    pub history: History,
    /// The position.
    pub position: JournalPos,
    /// Bytes of the snapshot that is going to be loaded; `None`: none is, the data set stays empty.
    pub bytes: Option<u64>,
}

/// Takes all data away, with what depends on it, to load a snapshot of the primary: from then on the
/// journal is at its position, and clients are told that data is being loaded. What was taken is
/// returned, to be freed. The caller is outside the world, and no append-only file is written.
///
/// # Errors
/// Another term has begun. Nothing has happened.
pub fn begin_load(
    engine: &'static Engine,
    thread: &ThreadContext,
    term: u64,
    beginning: &Beginning,
) -> Result<Taken, Over> {
    let client = Client::unconnected(0, thread.index, engine.clock.wall());
    let mut session = Session::new(Arc::new(client), engine.acl.default_user(), true);
    let mut replies = Output::default();
    let mut cx = Cx::new(engine, thread, &mut session, engine.clock.wall(), &mut replies);
    while dispatch::stop_world_from_outside(&mut cx).is_err() {
        thread.clock.rest(GAP);
    }
    if engine.upstream.term() != term {
        return Err(Over);
    }
    let dbs: Vec<DbIndex> = engine.keyspace.used_databases().collect();
    let going: Vec<_> = dbs.iter().map(|&db| (db, None)).collect();
    cx.begin_transaction();
    commit::databases_change(&mut cx, &going);
    engine.tracking.invalidate_all(&mut cx.db);
    let mut taken = Taken::default();
    cx.db.for_each_stripe_mut(|_, stripe| taken.take(stripe, dbs.iter().copied()));
    let emptied = engine.scripts.functions.change(|libraries| {
        *libraries = Libraries::default();
        Ok::<(), Over>(())
    });
    emptied?;
    match beginning.bytes {
        Some(bytes) => engine.loading.begin(bytes, cx.now()),
        None => engine.loading.end(),
    }
    engine.safe.remove_all_copies();
    engine.give_up_all_writes();
    engine.journal.begin_history(beginning.history, beginning.position);
    let mut link = engine.upstream.link();
    link.is_incomplete = true;
    link.stream_db = DbIndex(0);
    drop(link);
    cx.end_transaction();
    commit::commit(&mut cx, Args::new(&[]));
    cx.db.effects.ready.clear();
    cx.db.locks.release();
    engine.disconnect_replicas();
    engine.tracking.flush_broadcasts(engine);
    Ok(taken)
}

/// The snapshot is loaded: the data set is the one that the journal's position names, and the stream goes
/// on in this database.
///
/// # Errors
/// Another term has begun.
pub fn end_load(engine: &Engine, term: u64, stream_db: DbIndex) -> Result<(), Over> {
    let stopped = engine.keyspace.world().stop();
    if engine.upstream.term() != term {
        return Err(Over);
    }
    engine.journal.keep();
    engine.journal.note_db(stream_db);
    let mut link = engine.upstream.link();
    link.is_incomplete = false;
    link.stream_db = stream_db;
    drop(link);
    engine.loading.end();
    drop(stopped);
    Ok(())
}

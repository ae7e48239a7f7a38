//! Applying the stream of a primary: its commands are run, and its bytes appended to the journal as
//! they came, so that the own append-only file and replicas of this replica read the same bytes at
//! the same positions.
//!
//! The commands run as a client's do (with the locks of their keys, statistics, events,
//! invalidations, and clients that waited for what they bring), but pass no gate, do not block, and
//! no key is gone for them because its time has come: the primary says when that is. An entry,
//! which may be a transaction, is run under the locks of all its keys together.
//!
//! Whenever the thread is outside the world, the journal's position is that of what was applied. So
//! a thread that stops the world (a snapshot, a promotion) finds a whole prefix of the stream.

mod load;

use crate::appliers::{Job, Manner, SharedCommands};
use crate::args::Args;
use crate::background::GAP;
use crate::command::{Flags, Streamed};
use crate::commit;
use crate::cx::Cx;
use crate::dispatch::{self, is_held_back};
use crate::engine::Engine;
use crate::error::Error;
use crate::journal::JournalPos;
use crate::lanes::{Lanes, Request, TOGETHER, fetch};
use crate::locks::Locked;
use crate::pause::Purpose;
use crate::request_keys::RequestKeys;
use crate::session::Session;
use crate::table::Resolved;
use crate::thread::ThreadContext;
use crate::tier;
use config::PropagationErrorBehavior as Behavior;
use keyspace::DbIndex;
use replication::promise::{Promise, Question};
use replication::replica::framing::{Entries, Entry, EntryKind};
use resp::Output;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;

pub use load::{Beginning, GoesOn, Over, begin_load, end_load, exchange};

/// Applies a stream; see the module's documentation.
pub struct Follower<'t> {
    engine: &'static Engine,
    thread: &'t ThreadContext,
    session: Session,
    replies: Output,
    lanes: Lanes,
}

/// What was applied.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Applied {
    /// The primary asks what the replica has, and this is it.
    pub asked_at: Option<JournalPos>,
    /// What this copy promises the primary, which has asked for it.
    pub promise: Option<Promise>,
    /// Nothing more is to be applied: another term has begun, or CLIENT PAUSE holds the stream
    /// back.
    pub is_over: bool,
    /// Bytes of the piece that are applied.
    pub bytes: usize,
}

/// The words of one command.
type Words<'i> = Vec<&'i [u8]>;

/// Whole entries of a stream, with the rows and the keys of their commands looked up.
pub struct Piece {
    source: Arc<SharedCommands>,
    entries: Vec<(Entry, Kind)>,
    /// Bytes in front of the first of them.
    begin: usize,
}

/// What an entry is to the applier.
#[derive(Clone, Copy)]
enum Kind {
    /// A command of one key.
    Single(Job),
    /// Nothing is to be done for it.
    Nothing,
    GetAck,
    /// A leadership of this epoch begins.
    Epoch(u64),
    /// The primary asks for a promise.
    Ask(Question),
    /// Anything else.
    Other,
}

impl Kind {
    fn single(&self) -> Option<Job> {
        match *self {
            Kind::Single(job) => Some(job),
            Kind::Nothing | Kind::GetAck | Kind::Epoch(_) | Kind::Ask(_) | Kind::Other => None,
        }
    }
}

impl Piece {
    /// Entries that stand in these bytes from `begin` on.
    pub fn new(engine: &Engine, bytes: &Arc<Vec<u8>>, begin: usize, entries: Entries) -> Piece {
        let (entries, commands) = entries.into_parts();
        let source = SharedCommands { bytes: Arc::clone(bytes), begin, commands };
        let mut words = Vec::new();
        let mut kind_of = |entry: &Entry| match entry.kind {
            EntryKind::Nothing => Kind::Nothing,
            EntryKind::GetAck => Kind::GetAck,
            EntryKind::Epoch(epoch) => Kind::Epoch(epoch),
            EntryKind::Ask(question) => Kind::Ask(question),
            EntryKind::Commands { .. } if entry.commands().len() == 1 => {
                let command = entry.commands().start;
                source.words(command, &mut words);
                let row =
                    engine.table.resolve_logged(&words).map_err(Error::from).and_then(in_its_place);
                let job = row.ok().and_then(|row| Job::of(engine, row, command, &words));
                job.map_or(Kind::Other, Kind::Single)
            }
            EntryKind::Commands { .. } => Kind::Other,
        };
        let entries = entries.iter().map(|entry| (*entry, kind_of(entry))).collect();
        Piece { source: Arc::new(source), entries, begin: 0 }
    }

    /// Leaves only what stands behind so many bytes.
    pub fn skip(&mut self, bytes: usize) {
        self.entries.retain(|(entry, _)| entry.end > bytes);
        self.begin = bytes;
    }

    /// All its bytes.
    pub fn bytes(&self) -> usize {
        self.entries.last().map_or(self.begin, |(entry, _)| entry.end)
    }

    /// Those that are not applied.
    pub fn bytes_left(&self) -> usize {
        self.bytes() - self.begin
    }

    /// The memory that it is in, once it was applied.
    pub fn into_bytes(self) -> Arc<Vec<u8>> {
        Arc::clone(&self.source.bytes)
    }

    fn input(&self) -> &[u8] {
        &self.source.bytes[self.source.begin..]
    }
}

impl<'t> Follower<'t> {
    /// A stream that goes on in this database. The thread must be outside the world.
    pub fn new(engine: &'static Engine, thread: &'t ThreadContext, db: DbIndex) -> Follower<'t> {
        let mut session = engine.own_session(thread);
        session.db = db;
        let lanes = Lanes::new(engine, thread);
        Follower { engine, thread, session, replies: Output::default(), lanes }
    }

    /// The database that the stream goes on in.
    pub fn db(&self) -> DbIndex {
        self.session.db
    }

    /// Applies a piece in this term. If other threads help with its end, this one does something
    /// else `meanwhile`, which must not wait.
    pub fn apply(&mut self, term: u64, piece: &Piece, meanwhile: impl FnOnce()) -> Applied {
        let (engine, thread) = (self.engine, self.thread);
        thread.reader.enter();
        let cx = Manner::Stream.context(engine, thread, &mut self.session, &mut self.replies);
        let (input, at) = (piece.input(), piece.begin);
        let mut run = Run { cx, term, input, appended: at, at, is_over: false };
        run.check_turn();
        let (mut asked_at, mut promise) = (None, None);
        let mut meanwhile = Some(meanwhile);
        let mut rest = piece.entries.as_slice();
        while let Some((entry, kind)) = rest.first()
            && !run.is_over
        {
            let is_single =
                |(_, kind): &(Entry, Kind)| matches!(kind, Kind::Single(_) | Kind::Nothing);
            let singles = rest.iter().take_while(|entry| is_single(entry)).count();
            if singles > 0 {
                let (now, later) = rest.split_at(singles);
                rest = later;
                let meanwhile = meanwhile.take_if(|_| later.is_empty());
                run.repeat_singles(piece, now, &mut self.lanes, meanwhile);
                continue;
            }
            match kind {
                Kind::GetAck => {
                    run.append();
                    asked_at = Some(run.cx.engine.journal.position());
                }
                Kind::Epoch(epoch) => run.begin_epoch(*epoch, entry),
                Kind::Ask(question) => promise = engine.votes.promise(*question).or(promise),
                _ => run.repeat_others(piece, entry),
            }
            if !run.is_over {
                run.at = entry.end;
            }
            rest = &rest[1..];
        }
        run.append();
        let Run { cx, is_over, at: bytes, .. } = run;
        cx.session.db = cx.db.index;
        engine.flush_broadcasts();
        drop(cx);
        thread.reader.leave();
        tier::make_room_for_load(engine, Some(&thread.reader));
        Applied { asked_at, promise, is_over, bytes }
    }
}

/// Refuses what no primary sends: a lying one is not to shut this server down, to subscribe to
/// anything, or to connect to a third server. Scripts are run: primaries before version 5 send them,
/// and a primary may change all data of its replica anyway.
fn in_its_place(row: &Resolved) -> Result<&Resolved, Error> {
    let refused = Flags::NOSCRIPT.with(Flags::ADMIN).with(Flags::ASKS_PEER);
    match row.command.streamed() {
        Streamed::Write | Streamed::Message | Streamed::Script => Ok(row),
        Streamed::Other if !row.command.flags.any(refused) => Ok(row),
        Streamed::Other => {
            Err(Error::text("ERR This command has no place in a replication stream"))
        }
    }
}

/// Whether clients may write keys of the stream, and the append-only file has to have the order of
/// both.
fn appends_under_locks(engine: &Engine) -> bool {
    engine.journal.takes_asides() && !engine.config.replica_read_only()
}

/// Whether CLIENT PAUSE holds the stream back, as it does the commands of any client.
pub fn is_held_by_clients(engine: &Engine) -> bool {
    let pause = engine.pause.is_on().then(|| engine.pause.in_force(engine.clock.wall())).flatten();
    pause.is_some_and(|pause| pause.purpose == Purpose::Client)
}

/// Whether commands may run beside each other: none of them can have to step back, or is to be seen
/// in its place among the others.
fn may_split(engine: &Engine) -> bool {
    !engine.snapshots.is_running()
        && keyspace::cold::entries() == 0
        && !engine.monitors.any()
        && !appends_under_locks(engine)
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
    fn check_turn(&mut self) {
        let engine = self.cx.engine;
        self.is_over |= engine.upstream.term() != self.term || is_held_by_clients(engine);
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

    /// Appends the entry that begins an epoch, and notes that.
    fn begin_epoch(&mut self, epoch: u64, entry: &Entry) {
        self.append();
        self.at = entry.end;
        let engine = self.cx.engine;
        engine.epochs.begin(epoch, || {
            self.append();
            engine.journal.position()
        });
    }

    /// Leaves the world for a moment, since something is in the way.
    fn step_back(&mut self) {
        self.append();
        self.cx.thread.reader.leave();
        self.cx.thread.clock.rest(GAP);
        self.cx.thread.reader.enter();
        self.check_turn();
    }

    /// Leaves the world if a thread waits for that.
    fn let_others_stop_the_world(&mut self) {
        if self.cx.thread.reader.is_wanted() {
            self.append();
            self.cx.thread.reader.leave();
            self.cx.thread.reader.enter();
            self.check_turn();
        }
    }

    /// Runs commands of one key each: beside each other if that is worth it and possible.
    fn repeat_singles(
        &mut self,
        piece: &'i Piece,
        entries: &[(Entry, Kind)],
        lanes: &mut Lanes,
        meanwhile: Option<impl FnOnce()>,
    ) {
        let (thread, engine) = (self.cx.thread, self.cx.engine);
        let jobs = entries.iter().filter_map(|(_, kind)| kind.single());
        self.let_others_stop_the_world();
        if self.is_over {
            return;
        }
        if engine.appliers.are_worth(entries.len()) && may_split(engine) && engine.holds.bar() {
            let (manner, db) = (Manner::Stream, self.cx.db.index);
            let request = Request { manner, db, source: Arc::clone(&piece.source), jobs };
            let failures = engine.appliers.run(engine, thread, lanes, request, || {
                if let Some(meanwhile) = meanwhile {
                    meanwhile();
                }
            });
            engine.holds.unbar();
            let mut words = Vec::new();
            for (command, error) in failures {
                piece.source.words(command, &mut words);
                self.failed(&words, &error);
            }
            self.at = entries.last().map_or(self.at, |(entry, _)| entry.end);
            return;
        }
        let mut fetched = Vec::with_capacity(TOGETHER);
        let mut words = Vec::new();
        for together in entries.chunks(TOGETHER) {
            fetched.clear();
            fetched.extend(together.iter().filter_map(|(_, kind)| kind.single()));
            fetch(engine, self.cx.db.index, &fetched);
            self.cx.start_timing();
            for (entry, kind) in together {
                if let Some(job) = kind.single() {
                    piece.source.words(job.command, &mut words);
                    self.repeat_single(&job, &words, entry);
                }
                if self.is_over {
                    return;
                }
                self.at = entry.end;
            }
        }
    }

    /// Runs a command of one key.
    fn repeat_single(&mut self, job: &Job, words: &Words<'i>, entry: &Entry) {
        let args = Args::new(words).with_hash(job.row.single_key, job.hash);
        self.let_others_stop_the_world();
        loop {
            if self.is_over {
                return;
            }
            if self.cx.db.locks.acquire(Locked::One(job.stripe)).is_err() {
                self.step_back();
                continue;
            }
            let engine = self.cx.engine;
            let may_be_held = engine.holds.any() || engine.snapshots.is_running();
            self.cx.keys.clear();
            if !may_be_held || !is_held_back(&mut self.cx, job.row, args) {
                break;
            }
            self.cx.db.locks.release();
            self.step_back();
        }
        let engine = self.cx.engine;
        let outcome = Manner::Stream.apply(&mut self.cx, job.row, args);
        if appends_under_locks(engine) {
            // What others do to this key from now on stands behind it in the append-only file.
            self.at = entry.end;
            self.append();
        }
        dispatch::serve_first(&mut self.cx);
        self.cx.db.locks.release();
        dispatch::serve_first(&mut self.cx);
        if let Err(error) = outcome {
            self.failed(words, &error);
        }
    }

    /// Runs the commands of an entry, as one.
    fn repeat_others(&mut self, piece: &'i Piece, entry: &Entry) {
        let commands: Vec<Words<'i>> = entry
            .commands()
            .map(|command| {
                let mut words = Vec::new();
                piece.source.words(command, &mut words);
                words
            })
            .collect();
        self.repeat(&commands, entry);
    }

    /// Runs the commands of an entry, as one.
    fn repeat(&mut self, commands: &[Words<'i>], entry: &Entry) {
        let engine = self.cx.engine;
        self.let_others_stop_the_world();
        if self.is_over {
            return;
        }
        let mut rows: Vec<Option<&'static Resolved>> = Vec::with_capacity(commands.len());
        for words in commands {
            let row =
                engine.table.resolve_logged(words).map_err(Error::from).and_then(in_its_place);
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
        if appends_under_locks(self.cx.engine) {
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
        self.check_turn();
        if !self.is_over {
            self.run(rows, commands);
            // No thread may see the one without the other.
            self.at = entry.end;
            self.append();
            dispatch::serve_first(&mut self.cx);
        }
        self.cx.db.locks.release_inside(&self.cx.thread.reader);
        self.check_turn();
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
        cx.in_transaction = true;
        // What a transaction has to tell others leaves at its end.
        commit::commit(cx, Args::new(&[]));
        for (words, error) in failures {
            self.failed(words, &error);
        }
    }

    /// A command failed that did not on the primary: the two may differ from now on.
    #[cold]
    fn failed(&self, words: &Words<'_>, error: &Error) {
        let engine = self.cx.engine;
        let before = engine.upstream.failures.fetch_add(1, Relaxed);
        let name = words.first().map_or(&b""[..], |word| &word[..word.len().min(64)]);
        let name = name.escape_ascii();
        if let Some(host) = engine.host().filter(|_| before < 10) {
            let line = String::from_utf8_lossy(&error.line()).replace(char::is_control, " ");
            host.warn(&format!(
                "== CRITICAL == This replica is sending an error to its master: '{line}' after \
                 processing the command '{name}'"
            ));
        }
        // Where clients may write, the data may differ from the primary's anyway.
        let is_fatal = engine.config.propagation_error_behavior() != Behavior::Ignore;
        assert!(
            !(is_fatal && engine.config.replica_read_only()),
            "This replica panicked sending an error to its master after processing the command '{name}'"
        );
    }
}

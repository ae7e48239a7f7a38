//! One reactor thread's half of the engine: from bytes to commands and back.
//!
//! [`Worker::feed`] is the life of a request: parse a batch, hash its keys and prefetch their
//! buckets, prefetch the entries, then run one command after the other.

mod waiting;

use crate::args::Args;
use crate::batch::{self, Batch, Request};
use crate::blocking::{Ready, Suspension};
use crate::clients::{Client, Departure, Names};
use crate::cx::Cx;
use crate::db::Db;
use crate::dispatch::{self, NotNow};
use crate::engine::Engine;
use crate::evict;
use crate::mailbox::{Push, last_ticket};
use crate::session::{Fate, ReplyMode, Session};
use crate::shedding::Measures;
use crate::staging;
use crate::table::Resolved;
use crate::thread::ThreadContext;
use crate::{cold, cold_values};
use keyspace::Millis;
use resp::{Limits, Output, Parsed, Parser, Reply, plain};
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

/// A new connection: its client and its kind.
#[derive(Clone, Debug, Default)]
pub struct Peer {
    /// `ip:port`, or the path of the Unix socket.
    pub addr: String,
    /// What it connected to.
    pub laddr: String,
    /// File descriptor.
    pub fd: i32,
    /// Unix socket or loopback address.
    pub is_local: bool,
    /// [`crate::clients::flag`] bits of the transport.
    pub transport_flags: u64,
    /// It comes from this process or by `admin-socket`, and is served beyond `maxclients`.
    pub is_insider: bool,
    /// Names of users that it may be, as its certificate says; the first that there is and that is
    /// on.
    pub certified: Vec<String>,
}

/// Values that make room for others before other clients get a turn: a client that fills memory
/// works for it, and with twenty of them the next one would wait for milliseconds.
const DEMOTED_AT_A_TIME: u32 = 4;

/// Bytes that a connection which brings slots may have run in a turn: less than one buffer of the
/// network's, so that it takes turns with clients. Otherwise all that its socket holds would be run
/// before the next of them.
const IMPORT_SHARE: usize = 8 << 10;

/// How long the thread for operators waits for the world to go on.
const PATIENCE: Duration = Duration::from_millis(5);
/// For so long after it has waited in vain it does not wait at all.
const IMPATIENT_FOR: Duration = Duration::from_millis(100);

/// What [`Worker::feed`] did.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FeedResult {
    /// Bytes of the input that are done with.
    pub consumed: usize,
    /// What comes next.
    pub next: Next,
}

/// What the reactor has to do with a connection next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Next {
    /// Wait for at least so many more bytes.
    Read {
        /// A lower bound of the bytes that have to come.
        missing: usize,
    },
    /// The input ends with the first `arrived` bytes of a word: take them away, receive all of the
    /// word into a block of its own, and [supply](crate::Session::supply_word) that.
    ReadWord {
        /// Bytes of the word in the input.
        arrived: usize,
        /// Bytes of the word.
        len: usize,
    },
    /// There is too much output for now, or others should have a turn: feed again in the next turn.
    Again,
    /// The session is suspended: do not feed until it is resumed.
    Suspended,
    /// The next request cannot run yet: feed again when the reason says.
    NotNow(NotNow),
    /// See the session's fate.
    Closing,
}

/// A thread's half of the engine.
pub struct Worker {
    engine: &'static Engine,
    context: ThreadContext,
    argv: Vec<&'static [u8]>,
    batch: Batch,
    /// Sessions that are gone and could not be released yet.
    departed: Vec<Session>,
}

impl Worker {
    /// The worker of thread `index`; to be made on that thread.
    pub fn new(engine: &'static Engine, index: usize) -> Worker {
        let context = engine.context(index);
        Worker { engine, context, argv: Vec::new(), batch: Batch::default(), departed: Vec::new() }
    }

    /// The engine.
    pub fn engine(&self) -> &'static Engine {
        self.engine
    }

    /// The thread's context.
    pub fn context(&self) -> &ThreadContext {
        &self.context
    }

    /// A turn of the thread begins.
    #[inline]
    pub fn begin_turn(&self) {
        self.context.stats().turns.add_own(1);
        if !self.context.is_for_operators {
            let queued_bytes = || self.engine.client_usage.bytes();
            self.context.turns.begin(&self.engine.shedding, &self.engine.clock, queued_bytes);
        }
    }

    /// A turn of the thread has run all its requests. `cpu_time` reads the processor time that the
    /// thread has taken.
    #[inline]
    pub fn end_turn(&self, cpu_time: impl FnOnce() -> Duration) {
        let queued_bytes = || self.engine.client_usage.bytes();
        let measures = Measures { cpu_time, queued_bytes };
        self.context.turns.end(&self.engine.shedding, &self.engine.clock, measures);
    }

    /// A connection was accepted; `None` if that is one more than `maxclients`.
    pub fn connect(&mut self, peer: Peer) -> Option<Session> {
        let engine = self.engine;
        engine.startup_bytes();
        let most = if peer.is_insider { usize::MAX } else { engine.config.maxclients() };
        let client = engine.clients.add(most, |id| Client {
            addr: peer.addr,
            laddr: peer.laddr,
            fd: peer.fd,
            names: std::sync::Mutex::new(Names { user: "default".into(), ..Names::default() }),
            ..Client::unconnected(id, self.context.index, engine.clock.wall())
        })?;
        engine.stats.connections.add(1);
        let mut session = Session::new(client, engine.acl.default_user(), engine.acl.is_open());
        if let Some(user) = peer.certified.iter().find_map(|name| engine.acl.certified(name)) {
            session.log_in(user);
        }
        session.is_local = peer.is_local;
        session.is_insider = peer.is_insider;
        session.transport_flags = peer.transport_flags;
        session.publish(self.engine.clock.wall().0);
        engine.client_usage.count(&session.client, session.memory_bytes());
        Some(session)
    }

    /// Enters the world and ends what those sessions took part in that are gone; `false` if a
    /// script keeps the world stopped for long.
    fn enter(&mut self) -> bool {
        let engine = self.engine;
        if !enter_world(&self.context, engine) {
            return false;
        }
        engine.background.do_chores();
        for mut session in self.departed.drain(..) {
            let now = engine.clock.wall();
            let mut db = Db::new(engine, now, engine.access_policy(), self.context.rng());
            dispatch::release_everything(&mut db, &mut session);
        }
        true
    }

    /// A connection is gone.
    pub fn disconnect(&mut self, mut session: Session, departure: Departure) {
        let engine = self.engine;
        let client = Arc::clone(&session.client);
        client.depart(departure);
        engine.client_usage.forget(&client);
        if session.is_postponed {
            self.end_postponement(&mut session);
        }
        if let Some(suspension) = &session.suspension {
            self.context.forget_deadline(suspension.deadline, session.id(), suspension.token);
        }
        dispatch::end_replica(engine, &mut session);
        self.departed.push(session);
        if self.enter() {
            self.context.reader.leave();
        }
        // Last: a client that is not listed waits for no key any more.
        engine.clients.leave(&client);
    }

    /// Runs the requests at the start of `input`, appending replies to `out`, but begins none when
    /// `out` has more than `most` bytes.
    pub fn feed(
        &mut self,
        session: &mut Session,
        input: &[u8],
        out: &mut Output,
        most: usize,
    ) -> FeedResult {
        let mut argv: Vec<&[u8]> = std::mem::take(&mut self.argv);
        let mut batch = std::mem::take(&mut self.batch);
        let mut inline = Vec::new();
        let told = last_ticket();
        let membership = &self.engine.membership;
        session.is_past_lease = membership.is_on() && !membership.is_alone();
        if session.is_postponed {
            self.end_postponement(session);
        }
        let fed = self.feed_batches(session, input, out, most, &mut argv, &mut batch, &mut inline);
        // A client that waits for a long command to end is not blocked, only late.
        if let Next::NotNow(NotNow::Paused) = fed.next {
            session.is_postponed = true;
            session.publish(self.engine.clock.wall().0);
            self.engine.stats.postponed_clients.fetch_add(1, Relaxed);
        }
        self.engine.flush_broadcasts();
        if last_ticket() != told {
            session.told = last_ticket();
        }
        argv.clear();
        session.parser.shrink();
        if argv.capacity() <= batch::MAX_REQUESTS * resp::KEPT_WORDS {
            // The allocation is kept; there is no element left to convert.
            self.argv = argv.into_iter().map(|_| -> &'static [u8] { unreachable!() }).collect();
        }
        self.batch = batch;
        fed
    }

    fn end_postponement(&self, session: &mut Session) {
        session.is_postponed = false;
        self.engine.stats.postponed_clients.fetch_sub(1, Relaxed);
    }

    #[allow(clippy::too_many_arguments)]
    #[expect(clippy::too_many_lines, reason = "one loop over requests")]
    fn feed_batches<'i>(
        &mut self,
        session: &mut Session,
        input: &'i [u8],
        out: &mut Output,
        most_output: usize,
        argv: &mut Vec<&'i [u8]>,
        batch: &mut Batch,
        inline: &mut Vec<u8>,
    ) -> FeedResult {
        let engine = self.engine;
        let now = self.engine.clock.wall();
        let mut consumed = 0;
        let mut next = Next::Read { missing: 1 };
        let mut is_inside = self.enter();
        if is_inside {
            cold_values::install_arrived(engine);
        }
        let mut cx = Cx::new(self.engine, &self.context, session, now, out);
        cx.is_outside = !is_inside;
        cx.db.is_outside = !is_inside;
        cx.keys = self.context.keys.take();
        loop {
            if cx.session.client.is_killed() {
                // What it still sends is not for this server.
                cx.session.fate = Fate::Close;
                next = Next::Closing;
                break;
            }
            argv.clear();
            batch.clear();
            let limits = limits(cx.session, engine);
            let most = if cx.session.is_authenticated() { batch::MAX_REQUESTS } else { 1 };
            let mut at = consumed;
            let mut stop = None;
            while batch.requests().len() < most {
                let start = argv.len();
                let parser = &mut cx.session.parser;
                let is_begun = parser.is_inside_request() || parser.has_long_words();
                let found = if is_begun { None } else { plain(input, at, argv) };
                if let Some(end) = found {
                    batch.add(engine, argv, start, at..end, true);
                    at = end;
                    continue;
                }
                match cx.session.parser.next(&input[at..], limits) {
                    Parsed::Request { consumed: used } => {
                        if cx.session.parser.is_inline() {
                            if batch.requests().is_empty() {
                                inline.clear();
                                inline.extend_from_slice(cx.session.parser.owned_words());
                                let words: Vec<_> = cx.session.parser.words().to_vec();
                                let words: Vec<&[u8]> =
                                    words.into_iter().map(|word| &inline[word]).collect();
                                let end = at + used;
                                cx.start_timing();
                                cx.session.request_bytes = used;
                                match run(&mut cx, Args::new(&words), None) {
                                    Ok(()) => {
                                        consumed = end;
                                        if cx.reply.len() > most_output {
                                            stop = Some(Next::Again);
                                        }
                                    }
                                    Err(cause) => stop = Some(cause),
                                }
                            }
                            // Behind others it is looked at again when they have run.
                            break;
                        }
                        if cx.session.parser.has_long_words() {
                            match run_with_long_words(&mut cx, &input[at..], used) {
                                Ok(()) => consumed = at + used,
                                Err(cause) => stop = Some(cause),
                            }
                            break;
                        }
                        let words = cx.session.parser.words();
                        argv.extend(words.iter().map(|w| &input[at + w.start..at + w.end]));
                        batch.add(engine, argv, start, at..at + used, false);
                        at += used;
                    }
                    Parsed::Incomplete { missing } => {
                        stop = Some(Next::Read { missing });
                        break;
                    }
                    Parsed::Error(text) => {
                        stop = Some(Next::Closing);
                        if batch.requests().is_empty() {
                            protocol_error(&mut cx, &text);
                        } else {
                            // Found again once the requests before it have run.
                            stop = None;
                        }
                        break;
                    }
                }
            }
            if is_inside {
                batch.fetch(engine, cx.db.index);
            }
            let mut cut = None;
            cx.start_timing();
            let may_stage = batch.requests().len() > 1 && staging::is_possible(&cx);
            let mut is_local = may_stage && batch.requests()[0].is_local();
            for (index, request) in batch.requests().iter().enumerate() {
                cx.session.request_bytes = request.bytes();
                if may_stage {
                    let next = batch.requests().get(index + 1);
                    let is_next_local = next.is_some_and(Request::is_local);
                    staging::begin_request(&mut cx, is_local, is_next_local);
                    is_local = is_next_local;
                }
                match run(&mut cx, request.args(argv, input), request.resolved) {
                    Ok(()) => consumed = request.end,
                    Err(cause) => {
                        if cause == Next::NotNow(NotNow::Cold) {
                            let words: &[&[u8]] = argv;
                            let rest = batch.requests()[index + 1..].iter();
                            let known = |request: &Request| {
                                Some((request.resolved?, request.args(words, input)))
                            };
                            cold::look_ahead(&cx, rest.filter_map(known));
                        }
                        cut = Some(cause);
                        break;
                    }
                }
                if let Some(cause) = halted(cx.session) {
                    cut = Some(cause);
                    break;
                }
                if cx.reply.len() > most_output || has_had_its_turn(&cx, consumed) {
                    cut = Some(Next::Again);
                    break;
                }
            }
            staging::end_batch(&mut cx, batch.stripes());
            let halted = halted(cx.session);
            let cause = cut.or(halted);
            if let Some(cause) = cause {
                // What was parsed beyond this point is parsed again.
                cx.session.parser = resp::Parser::new();
                next = cause;
                break;
            }
            match stop {
                Some(Next::Read { missing }) => {
                    next = read_more(&cx.session.parser, input.len() - consumed, missing);
                    break;
                }
                Some(cause) => {
                    next = cause;
                    break;
                }
                None if consumed == input.len() => break,
                None if is_inside && self.context.reader.is_wanted() => {
                    leave(&self.context, engine, cx.session);
                    is_inside = enter_world(&self.context, engine);
                    cx.is_outside = !is_inside;
                    cx.db.is_outside = !is_inside;
                }
                None => {}
            }
        }
        cx.count_lookups();
        cx.session.publish(now.0);
        cx.keys.shrink();
        self.context.keys.set(std::mem::take(&mut cx.keys));
        if is_inside {
            leave(&self.context, engine, cx.session);
        }
        FeedResult { consumed, next }
    }

    /// Writes an out-of-band message into a client's output, which [may have to
    /// wait](Session::seen) for the disk then. `false` if the message has to wait for the reply of
    /// a command that runs elsewhere: it came after what that has done or read.
    pub fn deliver(&mut self, session: &mut Session, push: &Push, out: &mut Output) -> bool {
        let follows_reply = |suspension: &Suspension| match &suspension.waiter {
            Some(waiter) => waiter.is_done(),
            None => suspension.is_cached && matches!(push, Push::Invalidate { .. }),
        };
        if session.suspension.as_ref().is_some_and(follows_reply) {
            return false;
        }
        let mut reply = Reply::new(out, session.protocol);
        dispatch::write_push(self.engine, session, push, &mut reply);
        if matches!(push, Push::TrackingRedirBroken(_)) {
            session.tracking_broken = true;
            session.publish(self.engine.clock.wall().0);
        }
        true
    }

    /// Gives the memory back that the thread's scripts do not need any more.
    pub fn tidy_scripts(&self) {
        let mut local = self.context.scripts.borrow_mut();
        local.follow(&self.engine.scripts);
        local.note_memory(self.context.stats());
    }

    /// Keeps memory below its limit though no command runs, so that a lower limit takes effect on
    /// an idle server. Whether there is more to do as soon as possible.
    pub fn keep_limit(&mut self) -> bool {
        evict::is_needed(self.engine()) && self.with_db(evict::keep_limit).unwrap_or(false)
    }

    /// A context outside any request, for work on the keyspace in small bites (active expiry).
    /// `None` while a script keeps the world stopped for long.
    pub fn with_db<R>(&mut self, work: impl FnOnce(&mut Db<'_>) -> R) -> Option<R> {
        let engine = self.engine;
        if !self.enter() {
            return None;
        }
        let now = engine.clock.wall();
        let mut db = Db::new(engine, now, engine.access_policy(), self.context.rng());
        let result = work(&mut db);
        let ready = std::mem::take(&mut db.effects.ready);
        drop(db);
        if !ready.is_empty() {
            self.serve_left(ready, now);
        }
        self.context.reader.leave();
        Some(result)
    }

    /// Serves the clients that waited for keys which have gone. The thread is inside the world.
    #[cold]
    fn serve_left(&self, ready: Vec<Ready>, now: Millis) {
        let mut session = self.engine.own_session(&self.context);
        let mut out = Output::default();
        let mut cx = Cx::new(self.engine, &self.context, &mut session, now, &mut out);
        cx.db.effects.ready = ready;
        dispatch::serve_ready(&mut cx);
    }
}

/// Enters the world; `false` if a script keeps it stopped for long, and for operators if anything
/// keeps it stopped.
#[inline]
fn enter_world(context: &ThreadContext, engine: &Engine) -> bool {
    let running = &engine.scripts.running;
    if context.is_for_operators {
        return enter_soon(context, engine);
    }
    context.reader.enter_unless(|| running.is_busy())
}

#[cold]
fn enter_soon(context: &ThreadContext, engine: &Engine) -> bool {
    let clock = engine.clock;
    let gave_up = context.gave_up.get();
    // One request after another must not wait for the same script.
    let patience = match gave_up.is_some_and(|at| clock.elapsed(at) < IMPATIENT_FOR) {
        true => Duration::ZERO,
        false => PATIENCE,
    };
    let began = clock.now();
    let is_inside = context.reader.enter_unless(|| clock.elapsed(began) >= patience);
    if !is_inside && !patience.is_zero() {
        context.gave_up.set(Some(clock.now()));
    }
    is_inside
}

/// How the rest of an unfinished request is to be read, of which `arrived` bytes are there.
fn read_more(parser: &Parser, arrived: usize, missing: usize) -> Next {
    match parser.unfinished_long_word() {
        Some((at, len)) => Next::ReadWord { arrived: arrived - at, len },
        None => Next::Read { missing },
    }
}

/// Runs the request at the start of the input, some of whose words are in blocks. It is the first
/// of its batch.
#[cold]
fn run_with_long_words(cx: &mut Cx<'_>, input: &[u8], used: usize) -> Result<(), Next> {
    let places = cx.session.parser.words().to_vec();
    let long = cx.session.parser.take_long_words();
    let words: Vec<&[u8]> =
        places.into_iter().map(|place| Parser::word(input, &long, place)).collect();
    cx.db.blocks = long.iter().map(|word| word.block().clone()).collect();
    cx.start_timing();
    cx.session.request_bytes = used + long.iter().map(|word| word.block().len()).sum::<usize>();
    let outcome = run(cx, Args::new(&words), None);
    cx.db.blocks = Vec::new();
    if outcome.is_err() {
        // It will be parsed again.
        cx.session.parser = Parser::with_long_words(long);
    }
    outcome
}

/// Leaves the world. Before, notes whether this server was the only primary of its shard until now:
/// a planned switch stops the world before another may lead, so what was done before it may be told
/// after it, and only a server that has stood still past its lease closes connections.
#[inline]
fn leave(context: &ThreadContext, engine: &Engine, session: &mut Session) {
    if session.answered_by_primary && engine.membership.is_alone() {
        session.answered_by_primary = false;
    }
    context.reader.leave();
}

/// Whether the session runs no further command for now.
fn halted(session: &Session) -> Option<Next> {
    if session.suspension.is_some() {
        return Some(Next::Suspended);
    }
    (session.fate != Fate::Open).then_some(Next::Closing)
}

/// Whether others should have a turn before more of this session's input is run, of which so many
/// bytes were.
fn has_had_its_turn(cx: &Cx<'_>, consumed: usize) -> bool {
    let has_brought_enough = cx.session.import().is_some() && consumed >= IMPORT_SHARE;
    cx.db.demoted.get() >= DEMOTED_AT_A_TIME || has_brought_enough
}

fn limits(session: &Session, engine: &Engine) -> Limits {
    if session.is_authenticated() || engine.acl.is_open() {
        let bulk_len = i64::try_from(engine.config.proto_max_bulk_len()).unwrap_or(i64::MAX);
        Limits { words: i64::from(i32::MAX), bulk_len }
    } else {
        Limits::UNAUTHENTICATED
    }
}

#[inline]
fn run(cx: &mut Cx<'_>, args: Args<'_>, resolved: Option<&'static Resolved>) -> Result<(), Next> {
    if args.is_empty() {
        return Ok(());
    }
    if cx.session.is_of_server() {
        return run_of_server(cx, args, resolved);
    }
    dispatch::process(cx, resolved, args).map_err(Next::NotNow)
}

/// Runs a request of a replica, or of a server that brings a copy of slots.
#[cold]
fn run_of_server(
    cx: &mut Cx<'_>,
    args: Args<'_>,
    resolved: Option<&'static Resolved>,
) -> Result<(), Next> {
    let outcome = if cx.session.is_replica() {
        dispatch::process_of_replica(cx, resolved, args)
    } else {
        crate::importing::process_of_import(cx, resolved, args)
    };
    outcome.map_err(Next::NotNow)
}

#[cold]
fn protocol_error(cx: &mut Cx<'_>, text: &str) {
    // A replica would take the error for a part of the stream.
    if cx.session.reply_mode() == ReplyMode::On && !cx.session.is_replica() {
        cx.reply.error(&format!("ERR Protocol error: {text}"));
    }
    cx.session.fate = Fate::CloseAfterReplies;
}

//! Runs long commands on a background thread, so that a reactor continues to serve other clients.
//!
//! The session is parked like a blocked one: its later requests wait, and the reply arrives through
//! the mailbox. What the command may touch meanwhile depends on its keys:
//!
//! - None (KEYS, SCAN): it walks the stripes and locks one at a time. WATCH does so, too: it
//!   watches its keys one by one.
//! - Any number: it *holds* them ([`crate::holds`]), so it reads without any lock. At its first
//!   change, it exchanges the holds for the locks of the stripes.
//! - Very many that it changes (MSET, DEL, EXEC of thousands): it keeps its holds, and locks the
//!   stripe of one key at a time.
//!
//! If its client disconnects, it ends early, unless it has something to change ([`Db::is_wanted`]).
//!
//! `docs/internals/long-commands.md` gives the reasons.

use crate::args::Args;
use crate::blocking::{Choice, Resumption, Suspension, TimeoutReply};
use crate::clients::Unfinished;
pub use crate::clients::late_reply::LateReply;
use crate::commit;
use crate::cx::Cx;
use crate::db::Asker;
use crate::dispatch;
use crate::engine::Engine;
use crate::held_keys::{HeldKeys, NamedKey};
use crate::journal::JournalPos;
use crate::mailbox::Message;
use crate::scripting;
use crate::session::Session;
use crate::staging;
use crate::table::Resolved;
use crate::thread::ThreadContext;
use crate::transaction::Multi;
use crate::words::Words;
use crate::{Error, Flags, KeyUse, RequestKeys};
use resp::{Output, Reply};

/// A command that is passed to a background thread.
struct LongCommand {
    row: &'static Resolved,
    words: Words,
    keys: RequestKeys,
    session: Session,
    touches: bool,
    token: u64,
    /// Dropped when it has ended.
    _unfinished: Option<Unfinished>,
}

/// Parks the session and passes its command to a background thread, which waits for the locks that
/// this thread holds.
#[cold]
pub(crate) fn run_in_background(cx: &mut Cx<'_>, row: &'static Resolved, args: Args<'_>) {
    // What was sent before it comes before what it does.
    staging::end_run(cx);
    let is_cached = cx.session.tracking().is_some() && row.command.flags.has(Flags::READONLY);
    let suspension = Suspension { is_cached, ..Suspension::background(TimeoutReply::Null) };
    let token = cx.session.suspend(cx.thread, suspension);
    let mut session = cx.session.guest();
    session.db = cx.db.index;
    if row.command.flags.has(Flags::WATCHES) {
        session.watching = cx.session.watching.take();
    }
    session.output_room = cx.session.output_room;
    // The guest session counts the command for the statistics. The client's own figures are in this
    // session.
    cx.session.commands += 1;
    cx.session.last_command = row.index + 1;
    if row.command.flags.has(Flags::RUNS_QUEUE) {
        session.set_multi(cx.session.take_multi());
    }
    // If the keys were not found yet, the background thread finds them.
    let keys = std::mem::take(&mut cx.keys);
    let words = Words::new(args.words());
    let engine = cx.engine;
    let _unfinished = may_write(row).then(|| engine.clients.keep(&session.client));
    let touches = cx.db.touches;
    let command = LongCommand { row, words, keys, session, touches, token, _unfinished };
    let job = Box::new(move |thread: &ThreadContext| command.run(engine, thread));
    if row.command.flags.has(Flags::ASKS_PEER) {
        engine.background.run_waiting(job);
    } else {
        engine.background.run(job);
    }
}

/// Returns whether a command may write, as EXEC may. Then it is done though its client has hung up,
/// and its client is listed until it has ended.
pub(crate) fn may_write(row: &Resolved) -> bool {
    let writes = Flags::WRITE.with(Flags::MAY_REPLICATE).with(Flags::RUNS_QUEUE);
    row.command.flags.any(writes)
}

impl Cx<'_> {
    /// Parks the session until a background thread has run `work`, which writes the reply.
    pub fn reply_later(&mut self, work: impl FnOnce(&mut Reply<'_>) + Send + 'static) {
        let suspension = Suspension::background(TimeoutReply::Null);
        let token = self.session.suspend(self.thread, suspension);
        let (client, reactor) = (self.session.id(), self.session.client.thread);
        let (protocol, engine) = (self.reply.protocol(), self.engine);
        let unfinished = engine.clients.keep(&self.session.client);
        // Writes of the command itself are recorded in its session.
        let written = JournalPos(0);
        let job = move |_: &ThreadContext| {
            let mut out = Output::default();
            work(&mut Reply::new(&mut out, protocol));
            drop(unfinished);
            let resumption = Resumption::new(Some(token), out, written);
            engine.mailboxes[reactor].post(Message::Resume(client, resumption));
        };
        engine.background.run(Box::new(job));
    }
}

impl Cx<'_> {
    /// Parks the session. The owner of the returned value writes the reply.
    pub fn late_reply(&mut self) -> LateReply {
        let suspension = Suspension::background(TimeoutReply::Null);
        let token = self.session.suspend(self.thread, suspension);
        LateReply {
            mailbox: &self.engine.mailboxes[self.session.client.thread],
            client: self.session.id(),
            token,
            protocol: self.reply.protocol(),
        }
    }
}

impl LongCommand {
    fn run(mut self, engine: &'static Engine, thread: &ThreadContext) {
        let words = self.words.to_vec();
        let args = Args::new(&words);
        let keys = match self.session.multi() {
            Some(multi) => queued_keys(engine, multi),
            None => {
                if self.keys.is_empty() {
                    self.keys = RequestKeys::of(&engine.keyspace, self.row.command, &words);
                }
                named_keys(self.row, &self.keys, &words)
            }
        };
        let asker = Asker::new(&self.session, &keys);
        if asker.has_gone() {
            // The client disconnected while the command waited for a thread.
            return;
        }
        let mut out = Output::default();
        let mut cx = Cx::new(engine, thread, &mut self.session, engine.clock.wall(), &mut out);
        cx.resolved = self.row;
        cx.keys = self.keys;
        cx.db.touches = self.touches;
        cx.db.asker = Some(&asker);
        if self.row.command.flags.has(Flags::ASKS_PEER) {
            run_to_hold(&mut cx, self.row, args, keys);
        } else if keys.is_empty() || self.row.command.flags.has(Flags::WATCHES) {
            walk(&mut cx, self.row, args);
        } else {
            run_holding(&mut cx, self.row, args, keys);
        }
        cx.count_lookups();
        drop(cx);
        resume(engine, &mut self.session, self.token, out);
    }
}

/// Sends a suspended client the replies of its command, which this thread has run in `session`.
pub(crate) fn resume(engine: &Engine, session: &mut Session, token: u64, out: Output) {
    let (client, reactor) = (session.id(), session.client.thread);
    engine.flush_broadcasts();
    if session.overflows {
        engine.mailboxes[reactor].post(Message::Overflow(client));
        return;
    }
    let mut resumption = Resumption::new(Some(token), out, session.written);
    if engine.safe.holds_replies() {
        // The command may have seen any earlier write.
        resumption.seen = engine.journal.position();
    }
    resumption.watching = session.watching.take();
    resumption.choice = Some(Choice { db: session.db, reads_replica: session.reads_replica });
    engine.mailboxes[reactor].post(Message::Resume(client, resumption));
}

fn named_keys(row: &Resolved, keys: &RequestKeys, words: &[&[u8]]) -> Vec<NamedKey> {
    let writes = may_write(row);
    let named = keys.iter().map(|key| NamedKey {
        bytes: Box::from(key.key(words).bytes),
        hash: key.hash,
        stripe: key.stripe(),
        writes: writes && key.usage() != KeyUse::Read,
    });
    named.collect()
}

/// Returns the keys of a transaction's commands.
fn queued_keys(engine: &Engine, multi: &Multi) -> Vec<NamedKey> {
    let mut keys = Vec::with_capacity(multi.keys().len());
    for queued in multi.queue() {
        let words = queued.words();
        let of_command = RequestKeys::of(&engine.keyspace, queued.row.command, &words);
        keys.extend(named_keys(queued.row, &of_command, &words));
    }
    keys
}

/// Runs a command that visits stripes by itself.
fn walk(cx: &mut Cx<'_>, row: &'static Resolved, args: Args<'_>) {
    let reader = &cx.thread.reader;
    reader.enter();
    cx.db.set_background(reader);
    if let Err(error) = dispatch::check_again(cx, row) {
        reader.leave();
        return dispatch::reject(cx, row, &error);
    }
    cx.start_timing();
    // Any other error is the reply.
    let is_refused = dispatch::call(cx, row, args) == Err(Error::StripeTaken);
    commit::commit(cx, args);
    dispatch::serve_first(cx);
    reader.leave();
    if is_refused {
        dispatch::refuse_busy(cx, row);
    }
}

/// Runs a command that reads its keys without any lock.
fn run_holding(cx: &mut Cx<'_>, row: &'static Resolved, args: Args<'_>, keys: Vec<NamedKey>) {
    let (holds, thread) = (&cx.engine.holds, cx.thread);
    let holder = holds.begin(&cx.engine.clock, || cx.engine.scripts.is_turn_taken());
    let Some(held) = HeldKeys::acquire(cx.engine, cx.db.index, holder, keys, thread) else {
        dispatch::refuse_busy(cx, row);
        return end(cx);
    };
    if !cx.db.is_wanted() {
        held.release();
        return end(cx);
    }
    if let Err(error) = dispatch::check_again(cx, row) {
        held.release();
        dispatch::reject(cx, row, &error);
        return end(cx);
    }
    cx.db.held = Some(held);
    // Slots may have begun to move since its gate.
    cx.session.checks_slot |= cx.engine.membership.moves.any_closed();
    cx.start_timing();
    // An error is the reply.
    let _ = dispatch::call(cx, row, args);
    finish_held(cx, args);
}

/// Runs a command that holds its keys later, when it asks for them.
fn run_to_hold(cx: &mut Cx<'_>, row: &'static Resolved, args: Args<'_>, keys: Vec<NamedKey>) {
    cx.db.to_hold = Some(keys);
    cx.start_timing();
    // An error is the reply.
    let _ = dispatch::call(cx, row, args);
    if cx.db.to_hold.take().is_none() {
        finish_held(cx, args);
    }
}

/// Runs a command of this server itself that asks another server, on this thread. The caller is
/// outside the world.
pub(crate) fn run_for_server(cx: &mut Cx<'_>, row: &'static Resolved, args: Args<'_>) {
    cx.resolved = row;
    cx.find_keys(row, args);
    let keys = named_keys(row, &cx.keys, args.words());
    run_to_hold(cx, row, args, keys);
}

/// Holds keys for this server itself, on this thread, while `look` reads them. The caller is
/// outside the world. `None`: they cannot be held.
pub(crate) fn look_at_held<R>(
    cx: &mut Cx<'_>,
    keys: Vec<NamedKey>,
    look: impl FnOnce(&Cx<'_>) -> R,
) -> Option<R> {
    cx.db.to_hold = Some(keys);
    cx.start_timing();
    let seen = cx.hold_keys().is_ok().then(|| look(cx));
    if cx.db.to_hold.take().is_none() {
        finish_held(cx, Args::new(&[]));
    }
    seen
}

impl Cx<'_> {
    /// Returns whether this thread may wait for another server. A command on such a thread holds
    /// nothing until it asks for it.
    pub fn may_wait(&self) -> bool {
        self.db.to_hold.is_some()
    }

    /// Holds the keys that the request names. Until its end, the command can read them and no other
    /// command can change them. Its own first change locks them. The command's time is set to the
    /// present.
    ///
    /// # Errors
    /// A script has run for long, or this server has become a replica or begun to load meanwhile.
    pub fn hold_keys(&mut self) -> Result<(), Error> {
        let Some(keys) = self.db.to_hold.take() else { return Ok(()) };
        let engine = self.engine;
        let holder = engine.holds.begin(&engine.clock, || engine.scripts.is_turn_taken());
        let Some(held) = HeldKeys::acquire(engine, self.db.index, holder, keys, self.thread) else {
            end(self);
            self.db.to_hold = Some(Vec::new());
            return Err(scripting::busy_error(engine));
        };
        self.db.held = Some(held);
        self.db.set_now(engine.clock.wall());
        // Its keys are about to leave, for whatever request: no row says that.
        if dispatch::refuses_writes_of_clients(engine) {
            return Err(Error::ReadOnlyReplica);
        }
        if engine.loading.is_on() {
            return Err(Error::Loading);
        }
        Ok(())
    }
}

/// Ends a command that has held its keys.
fn finish_held(cx: &mut Cx<'_>, args: Args<'_>) {
    let thread = cx.thread;
    if cx.db.held.as_ref().is_some_and(HeldKeys::is_changing) {
        finish_changing(cx, args);
        thread.reader.leave();
        return end(cx);
    }
    match cx.db.held.take() {
        Some(held) => {
            // Expired keys that it met are held, so another command deletes them.
            cx.db.forget_stale();
            held.release();
            cx.db.outbox.send();
        }
        // The command has changed something, so it holds locks inside the world.
        None => {
            finish_locked(cx, args);
            thread.reader.leave();
        }
    }
    end(cx);
}

/// Commits changes that the command made to one key after the other, and releases the keys.
fn finish_changing(cx: &mut Cx<'_>, args: Args<'_>) {
    commit::commit(cx, args);
    if let Some(held) = cx.db.held.take() {
        held.end_change(&mut cx.db.locks);
    }
    dispatch::serve_ready(cx);
}

/// Commits the command's changes under locks, and releases the locks.
fn finish_locked(cx: &mut Cx<'_>, args: Args<'_>) {
    commit::commit(cx, args);
    dispatch::serve_ready(cx);
    cx.db.locks.release();
    dispatch::serve_ready(cx);
}

/// Ends a command that held keys. Commands that waited for it continue.
fn end(cx: &mut Cx<'_>) {
    cx.engine.holds.end(&cx.engine.mailboxes, &cx.engine.clock);
    serve_unserved(cx);
}

/// Serves the blocked clients that could not be served because of a long command or a script. The
/// caller is outside the world.
pub(crate) fn serve_unserved(cx: &mut Cx<'_>) {
    let unserved = cx.engine.holds.take_unserved();
    if !unserved.is_empty() {
        cx.db.effects.ready.extend(unserved);
        cx.thread.reader.enter();
        dispatch::serve_ready(cx);
        cx.thread.reader.leave();
    }
}

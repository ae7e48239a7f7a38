//! Runs requests: gates, locks, the command itself, commit.
//!
//! If neither the session nor the server is in a special state, one test skips all gates but the
//! first.

mod auditing;
mod call;
mod gates;
mod http;
mod locking;
mod logging;
pub mod notices;
mod one_address;
mod open_slots;
mod permission;
mod pushes;
mod replica_link;
mod serving;
pub(crate) mod slot_noting;
mod slots;

use crate::args::Args;
use crate::background::GAP;
use crate::blocking::{self, Suspension, Until, Waiter};
use crate::cold;
use crate::command::Flags;
use crate::commit;
use crate::cx::Cx;
use crate::db::Db;
use crate::effort::{self, is_long};
use crate::engine::Engine;
use crate::error::Error;
pub use crate::error::NotNow;
use crate::interest::{self, StripeInterest};
use crate::locks::Locked;
use crate::long;
use crate::pubsub::Space;
use crate::scripting;
use crate::session::{ReplyMode, Session, WriteReply};
use crate::special::Special;
use crate::staging;
use crate::table::{Resolved, WorldUse};
use gates::{Refusal, may_write};
pub(crate) use gates::{has_stale_data, refuses_writes_of_clients};
use journal::safe::Gate;
use keyspace::Key;
use keyspace::world::Stopped;
pub(crate) use locking::is_held_back;
pub(crate) use logging::log_command;
use pushes::deliver_own_pushes;
use slots::PlainPlace;
use std::sync::Arc;
use structs::reactor;

pub(crate) use auditing::note_end as note_audited_end;
pub use call::run_nested;
pub(crate) use call::{call, run_row};
pub(crate) use pushes::write_push;
pub(crate) use replica_link::process_of_replica;
pub(crate) use serving::{run_last, serve_ready};

pub use gates::may_script_run;
pub use one_address::View;
pub use permission::{check_queued, is_permitted, may_read, may_read_any_key};
pub use pushes::deliver_last_pushes;

/// Runs one request of the session.
#[inline]
pub(crate) fn process(
    cx: &mut Cx<'_>,
    resolved: Option<&'static Resolved>,
    args: Args<'_>,
) -> Result<(), NotNow> {
    let Some(row) = resolved.or_else(|| resolve(cx, args)) else { return Ok(()) };
    let engine = cx.engine;
    let started = cx.reply.place();
    let written = cx.session.written;
    cx.keys.clear();
    if cx.is_outside {
        return run_outside(cx, row, args);
    }
    let mut is_special = false;
    if cx.session.is_special() || engine.special.any(Special::GATES) {
        match look_at_state(cx, row, args)? {
            Passed::Plainly => {}
            Passed::AllGates => is_special = true,
            Passed::Not => {
                after_reply(cx, row, started);
                return Ok(());
            }
            Passed::Done => return Ok(()),
        }
    }
    let mut is_shown_later = false;
    if row.command.script.is_some() {
        cx.script_was_shown = false;
        scripting::dispatch(cx, row, args)?;
    } else if row.world != WorldUse::Never && needs_world(cx, row, args) {
        // The `protection` gate is checked only here: every protected command needs the stopped
        // world, and other commands do not pay for the check.
        match gates::protection(cx, row, args) {
            Ok(()) if scripting::has_queue_of_scripts(cx, row) => {
                is_shown_later = true;
                scripting::run_queue_in_background(cx, row, args);
            }
            Ok(()) => run_in_stopped_world(cx, row, args)?,
            Err(refusal) => {
                refuse_request(cx, row, refusal)?;
            }
        }
    } else {
        run_with_stripes(cx, row, args)?;
    }
    if is_special {
        if engine.monitors.any() && !is_shown_later {
            staging::end_run(cx);
            crate::monitor::feed(cx, row.command, args.words());
            crate::monitor::feed_failed_script(cx, row, args.words());
        }
        after_reply(cx, row, started);
    }
    if cx.session.written != written {
        note_write_reply(cx, started);
    }
    if is_special {
        deliver_own_pushes(cx);
    }
    // Serve the clients that could not be served while locks were held.
    serve_first(cx);
    Ok(())
}

/// What became of a request at the gates.
enum Passed {
    /// It may run, and no gate was asked but that of its user.
    Plainly,
    /// It may run, and has passed all gates.
    AllGates,
    /// It was answered, or queued.
    Not,
    /// Its user may not send it, and it was answered, or another node answers it.
    Done,
}

/// Looks at the special states of the session and the server before a request runs.
///
/// # Errors
/// The request has to be tried again.
fn look_at_state(
    cx: &mut Cx<'_>,
    row: &'static Resolved,
    args: Args<'_>,
) -> Result<Passed, NotNow> {
    let engine = cx.engine;
    let place = match cx.session.is_special() || engine.is_special() {
        true => PlainPlace::Unclear,
        false if engine.membership.is_on() => slots::plain_place(cx, row, args),
        false => PlainPlace::Here,
    };
    if matches!(place, PlainPlace::Unclear) {
        return Ok(if passes_gates(cx, row, args)? { Passed::AllGates } else { Passed::Not });
    }
    if engine.acl.is_restricting()
        && !permission::is_plainly_allowed(cx, row, args)
        && let Err(refusal) = gates::pass(cx, row, args, gates::RESTRICTED)
    {
        refuse_request(cx, row, refusal)?;
        return Ok(Passed::Done);
    }
    if let PlainPlace::Elsewhere { slot, shard } = place {
        one_address::forward_plainly(cx, row, args, (slot, shard));
        return Ok(Passed::Done);
    }
    Ok(Passed::Plainly)
}

/// Records which part of the output is the reply to a write, for connections whose replies may have
/// to be replaced.
#[inline]
fn note_write_reply(cx: &mut Cx<'_>, started: usize) {
    if cx.engine.safe.holds_at(Gate::Quorum) {
        note_unconfirmed(cx, started);
    }
}

#[cold]
fn note_unconfirmed(cx: &mut Cx<'_>, start: usize) {
    if cx.engine.gate_of(cx.session) != Some(Gate::Quorum) {
        return;
    }
    let (end, position) = (cx.reply.place(), cx.session.written);
    if end > start {
        cx.session.write_replies.push(WriteReply { start, end, position });
    } else if cx.session.suspension.is_some() {
        cx.session.unanswered = position;
    }
}

/// Returns the reason for which a request cannot run now, so that it is tried again, or answers it
/// with BUSY. It is answered with BUSY if a script has run for long, because that script may hold
/// the resources the request waits for.
///
/// # Errors
/// The request has to be tried again.
#[cold]
pub(crate) fn wait_or_refuse(
    cx: &mut Cx<'_>,
    row: &Resolved,
    reason: NotNow,
) -> Result<(), NotNow> {
    if cx.engine.scripts.running.is_busy() && may_watch_unseen(cx, row) {
        crate::watching::watch_unseen(cx);
        cx.reply.ok();
        return Ok(());
    }
    let is_allowed = row.command.flags.has(Flags::ALLOW_BUSY);
    if is_allowed || reason == NotNow::Cold || !cx.engine.scripts.running.is_busy() {
        return Err(reason);
    }
    refuse_busy(cx, row);
    Ok(())
}

/// Returns whether a request is a WATCH outside a transaction. Such a request is answered even
/// while a script has run for long.
fn may_watch_unseen(cx: &Cx<'_>, row: &Resolved) -> bool {
    row.command.flags.has(Flags::WATCHES) && cx.session.multi().is_none()
}

/// Answers a request with BUSY.
#[cold]
pub(crate) fn refuse_busy(cx: &mut Cx<'_>, row: &Resolved) {
    // A refused script does not count as run.
    cx.script_was_shown = true;
    let error = scripting::busy_error(cx.engine);
    reject(cx, row, &error);
}

/// Runs a request while a script keeps the world stopped for long. Only commands that end the
/// script or touch no key are allowed, and WATCH. Others are refused.
///
/// # Errors
/// An operator's request has to be tried again: the world may go on soon.
#[cold]
fn run_outside(cx: &mut Cx<'_>, row: &'static Resolved, args: Args<'_>) -> Result<(), NotNow> {
    if cx.thread.is_for_operators {
        return run_outside_for_operator(cx, row, args);
    }
    run_while_busy(cx, row, args);
    Ok(())
}

/// Runs an operator's request while the world is stopped, if its command never waits for the world.
///
/// # Errors
/// It does, and the world may go on soon.
fn run_outside_for_operator(
    cx: &mut Cx<'_>,
    row: &'static Resolved,
    args: Args<'_>,
) -> Result<(), NotNow> {
    let is_queued = cx.session.multi().is_some();
    if !row.command.flags.has(Flags::OUTSIDE) || is_queued {
        let waits = !row.command.flags.has(Flags::ALLOW_BUSY) || is_queued;
        if waits && !cx.engine.scripts.running.is_busy() {
            return Err(NotNow::Busy);
        }
        run_while_busy(cx, row, args);
        return Ok(());
    }
    let passed = gates::pass(cx, row, args, gates::LOADING);
    if let Err(Refusal::Error(error)) =
        passed.and_then(|()| gates::pass(cx, row, args, gates::OUTSIDE))
    {
        reject(cx, row, &error);
        return Ok(());
    }
    cx.start_timing();
    match call(cx, row, args) {
        // It has come to a key after all, and has done nothing.
        Err(Error::StripeTaken) => Err(NotNow::Busy),
        _ => Ok(()),
    }
}

#[cold]
fn run_while_busy(cx: &mut Cx<'_>, row: &'static Resolved, args: Args<'_>) {
    let flags = row.command.flags;
    let is_watch = may_watch_unseen(cx, row);
    let is_allowed = flags.has(Flags::ALLOW_BUSY)
        && !flags.any(Flags::RUNS_QUEUE.with(Flags::WORLD))
        && (is_watch || row.command.keys.is_empty());
    if !is_allowed {
        // A script in a log that is being loaded may take long, too.
        if let Err(Refusal::Error(error)) = gates::pass(cx, row, args, gates::LOADING) {
            return reject(cx, row, &error);
        }
        return refuse_busy(cx, row);
    }
    if let Err(Refusal::Error(error)) = gates::pass(cx, row, args, gates::OUTSIDE) {
        return reject(cx, row, &error);
    }
    if is_watch {
        crate::watching::watch_unseen(cx);
        return cx.reply.ok();
    }
    // The error, if any, is the reply.
    let _ = call(cx, row, args);
}

/// Returns whether a request in a special state may run now. If not, it was answered or queued.
fn passes_gates(cx: &mut Cx<'_>, row: &'static Resolved, args: Args<'_>) -> Result<bool, NotNow> {
    let flags = scripting::request_flags(cx, row, args);
    cx.request_flags = flags;
    let passed = gates::pass(cx, row, args, gates::CLIENT);
    cx.request_flags = None;
    match passed {
        Ok(()) => {}
        Err(Refusal::Forward(travel)) => {
            let flags = flags.unwrap_or(row.command.flags);
            one_address::forward(cx, row, args, travel, flags)?;
            return Ok(false);
        }
        Err(refusal) => {
            refuse_request(cx, row, refusal)?;
            return Ok(false);
        }
    }
    if cx.session.multi().is_none() || row.command.flags.has(Flags::NOT_QUEUED) {
        return Ok(true);
    }
    if let Some(multi) = cx.session.multi_mut() {
        let flags = flags.unwrap_or(row.command.flags);
        multi.push(&cx.engine.keyspace, row, flags, args.words());
    }
    cx.reply.simple("QUEUED");
    Ok(false)
}

/// Answers a request that a gate refused, unless it has to be tried again.
#[cold]
fn refuse_request(cx: &mut Cx<'_>, row: &Resolved, refusal: Refusal) -> Result<(), NotNow> {
    match refusal {
        Refusal::Error(error) => reject(cx, row, &error),
        Refusal::NotNow(reason) => return Err(reason),
        Refusal::Forward(_) => unreachable!("the gate of a client's request alone forwards"),
    }
    Ok(())
}

/// Returns the row of a request that was not looked up yet. Answers requests with an unknown name
/// or a wrong number of words and returns `None` for them.
#[cold]
fn resolve(cx: &mut Cx<'_>, args: Args<'_>) -> Option<&'static Resolved> {
    let engine = cx.engine;
    match engine.table.resolve(args.words()).map_err(Error::from) {
        Ok(row) => Some(row),
        Err(_) if engine.table.find(args[0]).is_none() && resp::http::is_http(args[0]) => {
            http::reject(cx);
            None
        }
        Err(error) => {
            // An unauthenticated client must not learn which commands exist.
            let row = engine.table.find(args[0]);
            let may_authenticate = row.is_some_and(|row| row.command.flags.has(Flags::NO_AUTH));
            let error = match gates::is_authenticated(cx) || may_authenticate {
                true => error,
                false => Error::NoAuth,
            };
            if let Some(multi) = cx.session.multi_mut() {
                multi.is_broken = true;
            }
            let started = cx.reply.place();
            if row.is_some_and(|row| row.command.flags.has(Flags::RUNS_QUEUE)) {
                abort_exec(cx, &error);
            } else {
                refuse(cx, &error);
            }
            if let Some(row) = row {
                cx.thread.stats().by_command[row.index].rejected.add_own(1);
            }
            if cx.session.reply_mode() != ReplyMode::On {
                silence(cx, started);
            }
            None
        }
    }
}

#[cold]
pub(crate) fn refuse(cx: &mut Cx<'_>, error: &Error) {
    let line = error.line();
    cx.reply.error_bytes(&line);
    cx.engine.count_error(&line);
}

pub(crate) fn reject(cx: &mut Cx<'_>, row: &Resolved, error: &Error) {
    if let Some(multi) = cx.session.multi_mut() {
        multi.is_broken = true;
    }
    cx.thread.stats().by_command[row.index].rejected.add_own(1);
    if row.command.flags.has(Flags::AUDITED) {
        auditing::note_refusal(cx, row, error);
    }
    if row.command.flags.has(Flags::RUNS_QUEUE) {
        abort_exec(cx, error);
    } else {
        refuse(cx, error);
    }
}

/// Refuses an EXEC and ends its transaction.
#[cold]
fn abort_exec(cx: &mut Cx<'_>, error: &Error) {
    cx.session.take_multi();
    crate::watching::unwatch(&mut cx.db, cx.session);
    if matches!(error, Error::Redirect(..) | Error::Elsewhere(_)) {
        // The client repeats the transaction at another server.
        return refuse(cx, error);
    }
    let line = error.line();
    let mut text = b"EXECABORT Transaction discarded because of: ".to_vec();
    text.extend_from_slice(line.strip_prefix(b"ERR ").unwrap_or(&line));
    refuse(cx, &Error::Bytes(text));
}

/// Returns whether this request needs a stopped world. EXEC needs it if a queued command does.
fn needs_world(cx: &Cx<'_>, row: &Resolved, args: Args<'_>) -> bool {
    if row.command.flags.has(Flags::RUNS_QUEUE) {
        return cx.session.multi().is_some_and(|multi| multi.needs_world());
    }
    row.needs_world(args.words())
}

/// Leaves the world and stops it. [`Locks::release_inside`](keyspace::Locks::release_inside)
/// resumes it. Never waits for another thread that stops the world, because that thread may run a
/// script for any time.
///
/// # Errors
/// The world cannot be stopped now. The thread is still inside.
pub(crate) fn stop_world(cx: &mut Cx<'_>) -> Result<(), NotNow> {
    debug_assert!(!cx.engine.journal.has_staged(), "the world is stopped with a staged entry");
    // Stopping the world would make all clients wait for the long command, not only this one.
    if cx.engine.holds.keep_world() {
        return Err(NotNow::Held);
    }
    let (reader, holds) = (&cx.thread.reader, &cx.engine.holds);
    // A long command or script that begins meanwhile may stay inside until it ends.
    let Some(stopped) = reader.try_stop(|| holds.is_in_background()) else {
        return Err(if holds.keep_world() { NotNow::Held } else { NotNow::Busy });
    };
    if holds.keep_world() {
        stopped.resume(reader);
        return Err(NotNow::Held);
    }
    holds.got_world();
    cx.db.hold_world(stopped);
    Ok(())
}

/// Does the same as [`stop_world`] for a thread that is outside the world.
pub(crate) fn stop_world_from_outside(cx: &mut Cx<'_>) -> Result<(), NotNow> {
    let stopped = try_stop_world(cx.engine)?;
    cx.db.hold_world(stopped);
    Ok(())
}

/// Stops the world for a thread that is outside of it, unless a long command or a script runs in
/// the background.
///
/// # Errors
/// The world cannot be stopped now.
pub(crate) fn try_stop_world(engine: &Engine) -> Result<Stopped<'_>, NotNow> {
    let holds = &engine.holds;
    if holds.keep_world() {
        return Err(NotNow::Held);
    }
    let stopped = engine.keyspace.world().try_stop(|| holds.is_in_background());
    let Some(stopped) = stopped else { return Err(NotNow::Busy) };
    if holds.keep_world() {
        // A long command has begun meanwhile.
        drop(stopped);
        return Err(NotNow::Held);
    }
    holds.got_world();
    Ok(stopped)
}

/// Stops the world for a thread that is outside of it, as soon as no long command or script runs in
/// the background.
pub(crate) fn stop_world_patiently(engine: &Engine) -> Stopped<'_> {
    loop {
        match try_stop_world(engine) {
            Ok(stopped) => return stopped,
            Err(_) => engine.clock.rest(GAP),
        }
    }
}

/// Checks again whether the request of a background thread may run. The caller prevents that this
/// server's role changes, or that its data is replaced, until the request ends: it holds keys, or
/// is inside the world.
///
/// # Errors
/// The error for the client.
pub(crate) fn check_again(cx: &mut Cx<'_>, row: &Resolved) -> Result<(), Error> {
    match gates::pass(cx, row, Args::new(&[]), gates::IN_BACKGROUND) {
        Err(Refusal::Error(error)) => Err(error),
        Ok(()) | Err(Refusal::NotNow(_) | Refusal::Forward(_)) => Ok(()),
    }
}

fn run_in_stopped_world(
    cx: &mut Cx<'_>,
    row: &'static Resolved,
    args: Args<'_>,
) -> Result<(), NotNow> {
    if let Err(reason) = stop_world(cx) {
        return wait_or_refuse(cx, row, reason);
    }
    cx.start_timing();
    // An error is the reply. The command may wait for the disk (SAVE). It cannot wait for a script
    // or a long command, since none runs.
    let _ = reactor::waiting("the world is stopped", || call(cx, row, args));
    finish(cx, args);
    serve_first(cx);
    cx.db.locks.release_inside(&cx.thread.reader);
    Ok(())
}

#[inline]
fn run_with_stripes(cx: &mut Cx<'_>, row: &'static Resolved, args: Args<'_>) -> Result<(), NotNow> {
    let keyspace = &cx.engine.keyspace;
    let need = if row.single_key > 0 {
        Locked::One(keyspace.stripe_of(args.key(row.single_key)))
    } else if row.command.keys.is_empty() && !row.command.flags.has(Flags::RUNS_QUEUE) {
        Locked::None
    } else {
        if effort::has_very_many_keys(cx, row, args) {
            long::run_in_background(cx, row, args);
            return Ok(());
        }
        cx.find_keys(row, args);
        cx.keys.prefetch(keyspace, cx.db.index);
        let mut need = cx.keys.stripes();
        if row.command.flags.has(Flags::RUNS_QUEUE)
            && let Some(watching) = &cx.session.watching
        {
            watching.stripes().for_each(|stripe| need.add(stripe));
        }
        need
    };
    if cx.db.locks.acquire(need).is_err() {
        return wait_or_refuse(cx, row, NotNow::Busy);
    }
    // With the locks held: what has begun under them is seen.
    if cx.engine.special.any(Special::KEYS)
        && (may_write(cx, row) || cx.engine.holds.changer() != 0)
        && is_held_back(cx, row, args)
    {
        cx.db.locks.release();
        return Err(NotNow::Held);
    }
    if keyspace::cold::entries() > 0
        && cold::may_miss(cx, row, args)
        && let Some(fetched) = cold::fetch_missing(cx, row, args)
    {
        cx.db.locks.release();
        return wait_for_values(cx, row, fetched);
    }
    if is_long(cx, row, args) {
        cx.db.locks.release();
        long::run_in_background(cx, row, args);
        return Ok(());
    }
    // All other errors are the reply.
    let is_undone = call(cx, row, args) == Err(Error::StripeTaken);
    finish(cx, args);
    serve_first(cx);
    cx.db.locks.release();
    if is_undone { wait_or_refuse(cx, row, NotNow::Busy) } else { Ok(()) }
}

/// Makes the request wait for its cold values. If one of them could not be read, answers with that
/// error.
#[cold]
pub(crate) fn wait_for_values(
    cx: &mut Cx<'_>,
    row: &'static Resolved,
    fetched: Result<(), Error>,
) -> Result<(), NotNow> {
    match fetched {
        Ok(()) => {
            cx.engine.tier.waits.add(1);
            Err(NotNow::Cold)
        }
        Err(error) => {
            reject(cx, row, &error);
            Ok(())
        }
    }
}

/// Serves the clients that waited for what the command has just changed, before other commands see
/// the change.
#[inline]
pub(crate) fn serve_first(cx: &mut Cx<'_>) {
    if !cx.db.effects.ready.is_empty() {
        serve_ready(cx);
    }
}

/// Completes the command while its locks are held: suspends it if it blocks, and commits.
#[inline]
pub(crate) fn finish(cx: &mut Cx<'_>, args: Args<'_>) {
    if cx.block_request.is_some() {
        suspend(cx, args);
    }
    let before = cx.session.written;
    commit::commit(cx, args);
    // A write is ordered after all writes that it has seen, so its own position suffices.
    if cx.engine.safe.holds_replies() && cx.session.written == before {
        commit::note_seen(cx);
    }
}

/// Registers a blocked command with its keys, whose stripes are locked, or with whatever else it
/// waits for.
#[cold]
fn suspend(cx: &mut Cx<'_>, args: Args<'_>) {
    let Some(request) = cx.block_request.take() else { return };
    staging::end_run(cx);
    if let Until::Background = request.until {
        let engine = cx.engine;
        return long::run_in_background(cx, &engine.table.all()[cx.resolved.index], args);
    }
    let as_sent = || args.words().iter().map(|&word| Box::from(word)).collect();
    let words = request.words.unwrap_or_else(as_sent);
    let waiter =
        Arc::new(Waiter::new(cx.session, cx.db.index, words, request.until, request.spent_ns));
    let engine = cx.engine;
    for key in waiter.keys() {
        let stripe = engine.keyspace.stripe_of(Key::new(key));
        let register = |interest: &mut StripeInterest| {
            interest.of_or_new(waiter.db, key).add_waiter(&waiter);
        };
        cx.db.with_stripe_mut(stripe, |data| interest::change(data, register));
    }
    let suspension = Suspension {
        token: 0,
        deadline: request.deadline,
        on_timeout: request.on_timeout,
        waiter: Some(Arc::clone(&waiter)),
        is_silent: false,
        error: None,
        is_cached: false,
        audited: None,
    };
    let token = cx.session.suspend(cx.thread, suspension);
    waiter.set_token(token);
    cx.session.client.begin_wait(&waiter);
    // From here on, another thread can end the wait.
    waiter.count(&engine.stats);
    if let Until::Acks(_) = waiter.until {
        engine.wait_for_acks(&waiter);
    }
}

/// Applies CLIENT REPLY and resets CLIENT CACHING after a reply in a special state.
fn after_reply(cx: &mut Cx<'_>, row: &Resolved, started: usize) {
    let flags = row.command.flags;
    if cx.session.reply_mode() != ReplyMode::On && !flags.has(Flags::SETS_REPLY_MODE) {
        let first = cx.reply.first_since(started);
        if flags.has(Flags::ANSWERS_BY_PUSH) && matches!(first, Some(b'>' | b'*')) {
            end_skipping(cx.session);
        } else {
            silence(cx, started);
        }
    }
    if !flags.has(Flags::SETS_CACHING)
        && cx.session.multi().is_none()
        && let Some(tracking) = cx.session.tracking_mut()
    {
        tracking.caching = None;
    }
}

fn silence(cx: &mut Cx<'_>, started: usize) {
    cx.reply.truncate(started);
    end_skipping(cx.session);
}

fn end_skipping(session: &mut Session) {
    if session.reply_mode() == ReplyMode::Skip {
        session.set_reply_mode(ReplyMode::On);
    }
}

/// Ends the session's role as a replica. It locks no key, so it also works while a script keeps the
/// world stopped.
pub(crate) fn end_replica(engine: &Engine, session: &mut Session) {
    if session.set_replica(false) | std::mem::take(&mut session.may_be_replica) {
        engine.end_replica(session.id());
    }
}

/// Ends all watches, subscriptions, tracking and waits of a session.
pub fn release_everything(db: &mut Db<'_>, session: &mut Session) {
    let engine = db.engine;
    crate::watching::unwatch(db, session);
    session.take_multi();
    if let Some(suspension) = session.suspension.take()
        && let Some(waiter) = suspension.waiter
        && waiter.abandon()
    {
        blocking::end(db, &waiter);
    }
    session.subscribed_bytes = 0;
    let subscriptions = session.change_subscriptions(std::mem::take);
    for (space, names) in [
        (Space::Channels, subscriptions.channels),
        (Space::Patterns, subscriptions.patterns),
        (Space::ShardChannels, subscriptions.shard_channels),
    ] {
        names.iter().for_each(|name| engine.pubsub.unsubscribe(space, name, session.id()));
    }
    if session.set_tracking(None).is_some() {
        engine.tracking.remove(session.id());
    }
    end_replica(engine, session);
    engine.set_commit_mode(session, None);
    if session.set_monitor(false) {
        engine.monitors.remove();
    }
}

#[cfg(test)]
mod tests;

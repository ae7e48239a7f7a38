//! From a request to its effects: gates, locks, the command itself, commit.
//!
//! All gates but the first are skipped with one test when the session and the server are in no
//! special state.

mod gates;
mod locking;
mod pushes;
mod serving;

use crate::args::Args;
use crate::blocking::{self, BlockRequest, Suspension, TimeoutReply, Until, Waiter};
use crate::command::Flags;
use crate::commit;
use crate::cx::Cx;
use crate::db::Db;
use crate::effort::is_long;
use crate::error::Error;
use crate::interest::{self, StripeInterest};
use crate::keys;
use crate::latency::Slow;
use crate::locks::{Busy, Locked};
use crate::long;
use crate::pubsub::Space;
use crate::session::{Fate, ReplyMode, Session};
use crate::table::Resolved;
use crate::transaction::Queued;
use gates::{is_protected, may_write, pass_gates, protected_error};
use keyspace::{Key, Millis};
use locking::{FETCH_FROM, FETCH_UP_TO, fetch, is_held_back};
use pushes::deliver_own_pushes;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;

pub(crate) use locking::{prefetch_bucket, prefetch_entry, stripes_of};
pub(crate) use pushes::write_push;
pub(crate) use serving::serve_ready;

pub use pushes::deliver_last_pushes;

/// Why a request was not run; nothing has happened, and it is to be tried again.
#[derive(Debug)]
pub enum NotNow {
    /// A stripe is held by somebody else.
    Busy(Busy),
    /// CLIENT PAUSE.
    Paused {
        /// End of the pause.
        until: Millis,
    },
    /// A long command is in the way: of a key that it holds, or of stopping the world.
    Held,
}

/// Runs one request of the session.
#[inline]
pub(crate) fn process(
    cx: &mut Cx<'_>,
    resolved: Option<&'static Resolved>,
    args: Args<'_>,
) -> Result<(), NotNow> {
    let Some(row) = resolved.or_else(|| resolve(cx, args)) else { return Ok(()) };
    let engine = cx.engine;
    let started = cx.reply.len();
    let is_special = cx.session.is_special() || engine.is_special();
    if is_special && !pass_gates(cx, row, args)? {
        after_reply(cx, row, started);
        return Ok(());
    }
    let flags = row.command.flags;
    let needs_world = flags.has(Flags::WORLD)
        || (flags.any(Flags::MAYBE_WORLD.with(Flags::NOT_QUEUED)) && wants_world(cx, row, args));
    if needs_world {
        // Every protected command needs the world, so that others do not pay for the question.
        if flags.has(Flags::PROTECTED) && is_protected(cx) {
            reject(cx, row, &protected_error());
        } else {
            run_in_stopped_world(cx, row, args)?;
        }
    } else {
        run_with_stripes(cx, row, args)?;
    }
    if is_special {
        if engine.monitors.load(Relaxed) > 0 {
            crate::monitor::feed(cx, row.command, args.words());
        }
        after_reply(cx, row, started);
        deliver_own_pushes(cx);
    }
    // Whom the locks of others kept from being served.
    serve_first(cx);
    Ok(())
}

/// The row of a request whose name or number of words is wrong, or that was not looked up yet.
#[cold]
fn resolve(cx: &mut Cx<'_>, args: Args<'_>) -> Option<&'static Resolved> {
    let engine = cx.thread.engine;
    match engine.table.resolve(args.words()) {
        Ok(row) => Some(row),
        Err(error) => {
            if let Some(multi) = &mut cx.session.multi {
                multi.is_broken = true;
            }
            let started = cx.reply.len();
            let row = engine.table.find(args[0]);
            if row.is_some_and(|row| row.command.name == "exec") {
                abort_exec(cx, &error);
            } else {
                refuse(cx, &error);
            }
            if let Some(row) = row {
                cx.thread.stats().by_command[row.index].rejected.add_own(1);
            }
            if cx.session.reply_mode != ReplyMode::On {
                silence(cx, started);
            }
            None
        }
    }
}

#[cold]
fn refuse(cx: &mut Cx<'_>, error: &Error) {
    let line = error.line();
    cx.reply.error_bytes(&line);
    cx.engine.count_error(&line);
}

fn reject(cx: &mut Cx<'_>, row: &Resolved, error: &Error) {
    if let Some(multi) = &mut cx.session.multi {
        multi.is_broken = true;
    }
    cx.thread.stats().by_command[row.index].rejected.add_own(1);
    if row.command.name == "exec" {
        abort_exec(cx, error);
    } else {
        refuse(cx, error);
    }
}

/// An EXEC that is refused ends its transaction all the same.
#[cold]
fn abort_exec(cx: &mut Cx<'_>, error: &Error) {
    cx.session.multi = None;
    crate::transaction::unwatch(&mut cx.db, cx.session);
    let line = error.line();
    let mut text = b"EXECABORT Transaction discarded because of: ".to_vec();
    text.extend_from_slice(line.strip_prefix(b"ERR ").unwrap_or(&line));
    refuse(cx, &Error::Bytes(text));
}

fn queued<'c>(cx: &'c Cx<'_>) -> &'c [Queued] {
    cx.session.multi.as_ref().map_or(&[], |multi| multi.queue())
}

/// Whether a command that may need the world does with these arguments: SORT, which is the only
/// one with such a flag, and EXEC if a queued command does.
fn wants_world(cx: &Cx<'_>, row: &Resolved, args: Args<'_>) -> bool {
    if row.command.name == "exec" {
        return queued(cx).iter().any(|queued| {
            let command = cx.engine.table.all()[queued.command].command;
            let flags = command.flags;
            let words: Vec<&[u8]> = queued.argv.iter().map(|word| &**word).collect();
            flags.any(Flags::WORLD.with(Flags::WALKS))
                || (flags.has(Flags::MAYBE_WORLD) && keys::sort_follows_patterns(&words))
        });
    }
    row.command.flags.has(Flags::MAYBE_WORLD) && keys::sort_follows_patterns(args.words())
}

fn run_in_stopped_world(
    cx: &mut Cx<'_>,
    row: &'static Resolved,
    args: Args<'_>,
) -> Result<(), NotNow> {
    // Everybody would wait for the long command's end, not only this client.
    if cx.engine.holds.keep_world() {
        return Err(NotNow::Held);
    }
    cx.thread.reader.leave();
    let stopped = cx.thread.engine.keyspace.world().stop();
    if cx.engine.holds.keep_world() {
        // One has begun meanwhile.
        drop(stopped);
        cx.thread.reader.enter();
        return Err(NotNow::Held);
    }
    cx.db.hold_world(stopped);
    cx.start_timing();
    call(cx, row, args);
    finish(cx, args);
    serve_first(cx);
    cx.db.locks.release();
    cx.thread.reader.enter();
    Ok(())
}

#[inline]
fn run_with_stripes(cx: &mut Cx<'_>, row: &'static Resolved, args: Args<'_>) -> Result<(), NotNow> {
    let keyspace = &cx.engine.keyspace;
    if row.single_key == 0 && (FETCH_FROM + 1..=FETCH_UP_TO).contains(&args.len()) {
        fetch(cx, row, args);
    }
    let need = if row.single_key > 0 {
        Locked::One(keyspace.stripe_of(args.key(row.single_key)))
    } else if row.command.keys.is_empty() && !row.command.flags.has(Flags::NOT_QUEUED) {
        Locked::None
    } else {
        stripes_of(cx, row.command, args)
    };
    cx.db.locks.acquire(need).map_err(NotNow::Busy)?;
    let may_have_to_wait = cx.engine.holds.any() || cx.engine.snapshots.is_running();
    if may_have_to_wait && may_write(cx, row) && is_held_back(cx, row, args) {
        cx.db.locks.release();
        return Err(NotNow::Held);
    }
    if is_long(&cx.db, row, args) {
        cx.db.locks.release();
        long::run_in_background(cx, row, args);
        return Ok(());
    }
    call(cx, row, args);
    finish(cx, args);
    serve_first(cx);
    cx.db.locks.release();
    Ok(())
}

/// Serves who waited for what the command has just changed, before anybody else sees that.
#[inline]
fn serve_first(cx: &mut Cx<'_>) {
    if !cx.db.effects.ready.is_empty() {
        serve_ready(cx);
    }
}

/// Runs a command whose locks are held, and turns its error into its reply.
#[inline]
pub fn call(cx: &mut Cx<'_>, row: &'static Resolved, args: Args<'_>) {
    let started = cx.reply.len();
    let before = cx.last_end;
    cx.resolved = row;
    cx.session.last_command = row.index + 1;
    let outcome = (row.command.run)(cx, args);
    let stats = cx.thread.stats();
    let command_stats = &stats.by_command[row.index];
    if let Err(error) = &outcome {
        cx.reply.truncate(started);
        match error {
            Error::TakesLong => return put_off(cx),
            Error::OverOutputLimit => overflow(cx, started),
            _ => {
                cx.block_request = None;
                command_stats.failed.add_own(1);
                refuse(cx, error);
            }
        }
    }
    let clock = &cx.thread.clock;
    cx.last_end = clock.now();
    let nanoseconds = clock.nanoseconds(before, cx.last_end);
    command_stats.count(nanoseconds, cx.engine.config.latency_tracking());
    let is_fast = row.command.flags.has(Flags::FAST);
    cx.engine.note_latency(if is_fast { Slow::FastCommand } else { Slow::Command }, nanoseconds);
    stats.commands.add_own(1);
    cx.session.commands += 1;
    // EXEC has run others.
    cx.session.last_command = row.index + 1;
    if cx.session.tracking.is_some() && row.command.flags.has(Flags::READONLY) {
        crate::tracking::remember_reads(cx, row.command, args);
    }
    crate::commandlog::note(cx, row, args, nanoseconds, cx.reply.len() - started);
    if cx.is_over_output_limit() {
        overflow(cx, started);
    }
}

/// The command has looked at its key and will look again on a background thread, where it counts.
#[cold]
fn put_off(cx: &mut Cx<'_>) {
    // What a command goes on to change is no hit.
    if cx.resolved.command.flags.has(Flags::READONLY) {
        cx.db.hits.set(cx.db.hits.get().saturating_sub(1));
    }
    let (until, on_timeout) = (Until::Background, TimeoutReply::Null);
    cx.block_request = Some(BlockRequest { until, deadline: None, on_timeout });
}

/// A reply too many: the client is going to be closed without having got it. The rest of a
/// transaction still runs.
#[cold]
fn overflow(cx: &mut Cx<'_>, started: usize) {
    cx.reply.truncate(started);
    cx.session.overflows = true;
    cx.session.fate = Fate::Close;
}

/// Commits one command of a transaction, whose locks stay held.
pub fn commit_queued(cx: &mut Cx<'_>, args: Args<'_>) {
    cx.block_request = None;
    if cx.engine.monitors.load(Relaxed) > 0 {
        crate::monitor::feed(cx, cx.resolved.command, args.words());
    }
    commit::commit(cx, args);
}

/// What follows the command while its locks are held.
#[inline]
fn finish(cx: &mut Cx<'_>, args: Args<'_>) {
    if cx.block_request.is_some() {
        suspend(cx, args);
    }
    let before = cx.session.written;
    commit::commit(cx, args);
    // What was written comes behind all that was seen.
    if cx.engine.safe.holds_replies() && cx.session.written == before {
        commit::note_seen(cx);
    }
}

/// Registers a blocked command with its keys, whose stripes are locked, or with what else it waits
/// for.
#[cold]
fn suspend(cx: &mut Cx<'_>, args: Args<'_>) {
    let Some(request) = cx.block_request.take() else { return };
    if let Until::Background = request.until {
        let engine = cx.thread.engine;
        return long::run_in_background(cx, &engine.table.all()[cx.resolved.index], args);
    }
    let waiter = Arc::new(Waiter::new(cx, args.words(), request.until));
    let engine = cx.engine;
    for key in waiter.keys() {
        let stripe = engine.keyspace.stripe_of(Key::new(key));
        let register = |interest: &mut StripeInterest| {
            let waiters = &mut interest.of_or_new(waiter.db, key).waiters;
            // BLPOP k k waits once.
            if !waiters.iter().any(|other| Arc::ptr_eq(other, &waiter)) {
                waiters.push(Arc::clone(&waiter));
            }
        };
        cx.db.with_stripe_mut(stripe, |data| interest::change(data, register));
    }
    let suspension = Suspension {
        token: 0,
        deadline: request.deadline,
        on_timeout: request.on_timeout,
        waiter: Some(Arc::clone(&waiter)),
        is_silent: false,
        ends_in_error: false,
        is_cached: false,
    };
    let token = cx.thread.suspend(cx.session, suspension);
    waiter.set_token(token);
    cx.session.client.begin_wait(&waiter);
    // Who finds it counted can end the wait.
    waiter.count(engine);
    if let Until::Acks(_) = waiter.until {
        engine.wait_for_acks(&waiter);
    }
}

/// Whether a command answers with out-of-band messages, which CLIENT REPLY does not silence.
fn answers_with_pushes(row: &Resolved) -> bool {
    matches!(
        row.command.name,
        "subscribe" | "psubscribe" | "ssubscribe" | "unsubscribe" | "punsubscribe" | "sunsubscribe"
    )
}

/// CLIENT REPLY and what belongs to the end of a reply in a special state.
fn after_reply(cx: &mut Cx<'_>, row: &Resolved, started: usize) {
    // CLIENT REPLY SKIP is not itself the next command.
    if cx.session.reply_mode != ReplyMode::On && row.full_name != "client|reply" {
        let first = cx.reply.written_since(started).first();
        if answers_with_pushes(row) && matches!(first, Some(b'>' | b'*')) {
            end_skipping(cx.session);
        } else {
            silence(cx, started);
        }
    }
    if row.command.name != "caching"
        && cx.session.multi.is_none()
        && let Some(tracking) = &mut cx.session.tracking
    {
        tracking.caching = None;
    }
}

fn silence(cx: &mut Cx<'_>, started: usize) {
    cx.reply.truncate(started);
    end_skipping(cx.session);
}

fn end_skipping(session: &mut Session) {
    if session.reply_mode == ReplyMode::Skip {
        session.reply_mode = ReplyMode::On;
    }
}

/// Ends everything a session takes part in: watches, subscriptions, tracking, waits.
pub fn release_everything(db: &mut Db<'_>, session: &mut Session) {
    let engine = db.engine;
    crate::transaction::unwatch(db, session);
    session.multi = None;
    if let Some(suspension) = session.suspension.take()
        && let Some(waiter) = suspension.waiter
        && waiter.abandon()
    {
        blocking::end(db, &waiter);
    }
    session.subscribed_bytes = 0;
    let subscriptions = std::mem::take(&mut session.subscriptions);
    for (space, names) in [
        (Space::Channels, subscriptions.channels),
        (Space::Patterns, subscriptions.patterns),
        (Space::ShardChannels, subscriptions.shard_channels),
    ] {
        names.iter().for_each(|name| engine.pubsub.unsubscribe(space, name, session.id()));
    }
    if session.tracking.take().is_some() {
        engine.tracking.remove(session.id());
    }
    if std::mem::take(&mut session.is_monitor) {
        engine.monitors.fetch_sub(1, Relaxed);
    }
}

//! Serves the clients that are blocked on keys which a command has made ready.

use super::gates::Refusal;
use super::locking::is_held_back;
use super::{open_slots, permission, refuse, run_row, slots};
use crate::args::Args;
use crate::blocking::{self, Ready, Resumption, Run, Waiter};
use crate::command::{Command, Flags, Group};
use crate::commit;
use crate::cx::Cx;
use crate::db::Db;
use crate::error::Error;
use crate::interest;
use crate::latency::Slow;
use crate::locks::{Busy, Locked};
use crate::mailbox::Message;
use crate::table::Resolved;
use keyspace::{DbIndex, Entry, Key, Kind};
use resp::Output;
use std::sync::Arc;

/// Serves the clients that wait for keys that became ready. The longest wait is served first.
///
/// The first call is made while the locks of the command that made the keys ready are held, so no
/// other client takes the elements first. If a client needs another stripe that cannot be locked
/// soon, it and all after it are left for a second call, which is made without any locks.
#[cold]
pub(crate) fn serve_ready(cx: &mut Cx<'_>) {
    cx.engine.append_staged();
    let mut ready = std::mem::take(&mut cx.db.effects.ready);
    let mut served = 0;
    while let Some((db, key)) = ready.get(served).cloned() {
        if serve_key(cx, db, &key, &mut ready).is_err() {
            if !cx.db.locks.is_empty() {
                ready.drain(..served);
                cx.db.effects.ready = ready;
                return;
            }
            // A script may hold the stripe for a long time. Its end serves these clients.
            std::thread::yield_now();
            ready.append(&mut cx.engine.holds.serve_later((db, key)));
        }
        served += 1;
    }
}

/// Serves the clients that wait for one key.
///
/// # Errors
/// A needed lock is not available now.
fn serve_key(cx: &mut Cx<'_>, db: DbIndex, key: &[u8], ready: &mut Vec<Ready>) -> Result<(), Busy> {
    for waiter in waiters_of(&cx.db, db, key)? {
        let kind = kind_of(&cx.db, db, key)?;
        serve(cx, &waiter, kind, ready)?;
    }
    Ok(())
}

fn waiters_of(db: &Db<'_>, index: DbIndex, key: &[u8]) -> Result<Vec<Arc<Waiter>>, Busy> {
    let stripe = db.engine.keyspace.stripe_of(Key::new(key));
    let waiters = db.try_visit(stripe, |data| {
        let of_key = interest::of_stripe(data).and_then(|interest| interest.look(index, key));
        of_key.map_or_else(Vec::new, |of_key| of_key.waiters.clone())
    });
    waiters.ok_or(Busy)
}

fn kind_of(db: &Db<'_>, index: DbIndex, key: &[u8]) -> Result<Option<Kind>, Busy> {
    let key = Key::new(key);
    let stripe = db.engine.keyspace.stripe_of(key);
    db.try_visit(stripe, |data| data.find(index, key).map(Entry::kind)).ok_or(Busy)
}

/// Returns whether a key of this type, or a deleted key, wakes a waiting command. A key of another
/// type does not. A reader of a group must be told that the group is gone with its key.
fn is_woken_by(command: &Command, kind: Option<Kind>) -> bool {
    if command.flags.has(Flags::NOTICES_LOSS) {
        return true;
    }
    let Some(kind) = kind else { return false };
    match command.group {
        Group::List => kind == Kind::List,
        Group::SortedSet => kind == Kind::Zset,
        Group::Stream => kind == Kind::Stream,
        _ => true,
    }
}

/// Runs a waiter's command again on its behalf, because a key of this type became ready.
///
/// # Errors
/// The command cannot run while the locks of another command are held.
fn serve(
    cx: &mut Cx<'_>,
    waiter: &Arc<Waiter>,
    kind: Option<Kind>,
    ready: &mut Vec<Ready>,
) -> Result<(), Busy> {
    let Some(row) = row_of(cx, waiter) else { return Ok(()) };
    if !is_woken_by(row.command, kind) || !waiter.is_waiting() {
        return Ok(());
    }
    let is_locked = !cx.db.locks.is_empty();
    match run_again(cx, waiter, Run::Again, ready) {
        Ok(Some(resumption)) => {
            let engine = cx.engine;
            engine.mailboxes[waiter.thread].post(Message::Resume(waiter.client, resumption));
        }
        Ok(None) => {}
        Err(Busy) if is_locked => return Err(Busy),
        Err(Busy) => {
            for key in waiter.keys() {
                ready.append(&mut cx.engine.holds.serve_later((waiter.db, key.clone())));
            }
        }
    }
    Ok(())
}

/// Runs a waiter's command a last time, on the thread of its client, because its time is up.
/// Returns `None` if its fate is decided already, or a lock is not available now. The thread is
/// inside the world, and holds no lock.
#[cold]
pub(crate) fn run_last(cx: &mut Cx<'_>, waiter: &Arc<Waiter>) -> Option<Resumption> {
    let mut ready = Vec::new();
    let resumption = run_again(cx, waiter, Run::Last, &mut ready);
    // A key that it found expired may have been waited for.
    cx.db.effects.ready = ready;
    serve_ready(cx);
    resumption.ok().flatten()
}

fn row_of(cx: &Cx<'_>, waiter: &Waiter) -> Option<&'static Resolved> {
    let words: Vec<&[u8]> = waiter.argv.iter().map(|word| &**word).collect();
    cx.engine.table.resolve(&words).ok()
}

/// Runs a waiter's command in the name of its client, whose locks are taken beside those of `cx`.
/// Returns the reply, or `None` if it waits on or its fate is decided already.
///
/// # Errors
/// A lock is not available now.
fn run_again(
    cx: &mut Cx<'_>,
    waiter: &Arc<Waiter>,
    run: Run,
    ready: &mut Vec<Ready>,
) -> Result<Option<Resumption>, Busy> {
    let engine = cx.engine;
    let words: Vec<&[u8]> = waiter.argv.iter().map(|word| &**word).collect();
    let Some(row) = row_of(cx, waiter) else { return Ok(None) };
    let held = cx.db.locks.take();
    let is_locked = !held.is_empty();
    let args = Args::new(&words);
    let mut session = waiter.guest_session();
    let mut out = Output::default();
    // The command that made the key ready may have run past the key's expiry, so the time is read
    // again.
    let now = engine.clock.wall().max(cx.now());
    let mut guest = Cx::new(engine, cx.thread, &mut session, now, &mut out);
    guest.resolved = row;
    guest.last_end = cx.last_end;
    guest.db.locks = held;
    guest.run = run;
    guest.find_keys(row, args);
    let place = place_of_keys(&mut guest, waiter, args);
    let need = guest.keys.stripes();
    let is_in_doubt = run == Run::Last && matches!(place, Err(Refusal::NotNow(_)));
    if is_in_doubt || !lock_to_serve(&mut guest, need, row, args) {
        cx.db.locks = guest.db.locks.take();
        return Err(Busy);
    }
    // Claim the waiter only after locking, so that a thread that asks whether it is being served
    // need not wait for locks.
    let is_claimed = if run == Run::Last { waiter.claim_last() } else { waiter.claim() };
    let is_served = is_claimed && run_claimed(&mut guest, waiter, args, place);
    let locks = guest.db.locks.take();
    ready.append(&mut guest.db.effects.ready);
    drop(guest);
    if is_locked {
        cx.db.locks = locks;
    } else {
        drop(locks);
    }
    if !is_served {
        return Ok(None);
    }
    engine.flush_broadcasts();
    waiter.uncount(&engine.stats);
    Ok(Some(Resumption::new(waiter.token(), out, session.written)))
}

/// Looks where the keys of a waiter's command are, if its reply would say what is missing. That
/// reply is wrong if they have moved to another node.
fn place_of_keys(guest: &mut Cx<'_>, waiter: &Waiter, args: Args<'_>) -> Result<(), Refusal> {
    match says_what_is_missing(guest) {
        true => slots::of_waiter(guest, &waiter.session_client, args),
        false => Ok(()),
    }
}

fn says_what_is_missing(guest: &Cx<'_>) -> bool {
    guest.run == Run::Last || guest.resolved.command.flags.has(Flags::NOTICES_LOSS)
}

/// Runs the command of a claimed waiter, whose locks are held. Returns `false` if it keeps waiting.
fn run_claimed(
    guest: &mut Cx<'_>,
    waiter: &Arc<Waiter>,
    args: Args<'_>,
    place: Result<(), Refusal>,
) -> bool {
    let (engine, row) = (guest.engine, guest.resolved);
    // The user's permissions may have changed during the wait.
    if let Err(denied) = permission::check(guest, row, args) {
        let error = denied.error(guest, row);
        turn_away(guest, waiter, &error);
        return true;
    }
    let mut found = Ok(());
    if says_what_is_missing(guest) && engine.membership.is_on() {
        found = open_slots::check(guest, row, args);
    }
    if let Err(Refusal::Error(error)) = place {
        found = Err(error);
    }
    if let Err(error) = found {
        turn_away(guest, waiter, &slots::elsewhere_for_waiter(engine, error));
        return true;
    }
    let clock = &guest.thread.clock;
    let started = clock.now();
    let outcome = engine.timed(Slow::CommandUnblocking, || run_row(guest, row, args));
    waiter.note_attempt(clock.nanoseconds(started, clock.now()));
    let goes_on = guest.block_request.take().is_some();
    if goes_on {
        if !waiter.put_back() {
            blocking::end(&mut guest.db, waiter);
        }
    } else {
        if let Err(error) = &outcome {
            guest.thread.stats().by_command[row.index].failed.add_own(1);
            refuse(guest, error);
        }
        blocking::forget(&mut guest.db, waiter);
        waiter.finish();
    }
    commit::commit(guest, args);
    !goes_on
}

/// Ends a claimed wait with an error. Its command does not count as a call.
fn turn_away(guest: &mut Cx<'_>, waiter: &Arc<Waiter>, error: &Error) {
    guest.thread.stats().by_command[guest.resolved.index].rejected.add_own(1);
    refuse(guest, error);
    waiter.note_rejection();
    blocking::forget(&mut guest.db, waiter);
    waiter.finish();
}

/// Locks the stripes of a blocked command, in addition to any locks already held. Returns `false`
/// if a long command holds a key, or the locks are not available soon.
fn lock_to_serve(guest: &mut Cx<'_>, need: Locked, row: &'static Resolved, args: Args<'_>) -> bool {
    /// Number of failed attempts after which a lock counts as held by a long command or a script,
    /// if one runs.
    const MAX_ATTEMPTS: usize = 200;
    /// Number of attempts while other locks are held that other threads may be waiting for.
    const PATIENCE_WITH_LOCKS: usize = 100;
    if !guest.db.locks.is_empty() {
        let is_had = (0..PATIENCE_WITH_LOCKS).any(|_| {
            let extended = guest.db.locks.extend(&need);
            extended.inspect_err(|_| std::thread::yield_now()).is_ok()
        });
        return is_had && !(guest.engine.holds.any() && is_held_back(guest, row, args));
    }
    let mut attempts = 0;
    while guest.db.locks.extend(&need).is_err() {
        attempts += 1;
        if attempts > MAX_ATTEMPTS && guest.engine.holds.is_in_background() {
            return false;
        }
        std::thread::yield_now();
    }
    if guest.engine.holds.any() && is_held_back(guest, row, args) {
        guest.db.locks.release();
        return false;
    }
    true
}

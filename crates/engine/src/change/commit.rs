//! All that follows a change, in one place: journal, WATCH, client-side caches, keyspace events,
//! the count of changes, and waking blocked clients.
//!
//! A command reports changes through [`crate::Db::changed`]; nothing else in the code base calls
//! any of the mechanisms below. `commit` runs after the command and before its stripes are
//! unlocked, so the order of journal entries agrees with the order of changes of every key.

use crate::args::Args;
use crate::command::Flags;
use crate::cx::Cx;
use crate::db::Db;
use crate::effects::{Cause, Change};
use crate::events;
use crate::interest;
use crate::journal::JournalPos;
use crate::locks::Locked;
use crate::outbox::Notification;
use crate::staging;
use keyspace::snapshot::{Touch, Urgency};
use keyspace::{DbIndex, Key};

/// Commits what the command that `cx` has just run did. The stripes are still locked.
#[inline]
pub(crate) fn commit(cx: &mut Cx<'_>, args: Args<'_>) {
    if !cx.db.stale.get_mut().is_empty() {
        remove_stale(cx);
    }
    if cx.db.effects.dirty > 0 {
        let dirty = cx.db.effects.take_dirty();
        if !cx.db.effects.is_replay {
            cx.thread.stats().dirty.add_own(dirty);
        }
        let effects = &cx.db.effects;
        let is_whole = !effects.is_rewritten && !effects.is_muted;
        if dirty > 0 && is_whole && effects.is_recorded(&cx.engine.journal) {
            propagate(cx, args);
        }
    }
    cx.db.effects.is_rewritten = false;
    if !cx.db.effects.entry.is_empty() {
        append(cx);
    }
    if !cx.db.effects.changes.is_empty() {
        let by = cx.session.id();
        apply_changes(&mut cx.db, by);
    }
    tell_others(&mut cx.db);
}

/// Tells others what was done, unless its transaction goes on.
#[inline]
fn tell_others(db: &mut Db<'_>) {
    if !db.outbox.is_empty() && !db.effects.is_transaction {
        db.outbox.send();
    }
}

/// The journal gets the request itself: at once, and as it came, if it is the whole entry.
#[inline]
fn propagate(cx: &mut Cx<'_>, args: Args<'_>) {
    let (index, effects) = (cx.db.index, &mut cx.db.effects);
    let is_whole = effects.entry.is_empty() && !effects.is_transaction && !effects.is_replay;
    if is_whole && !args.sent().is_empty() {
        if staging::stage(cx, index, args.sent()) {
            return;
        }
        let position = cx.engine.journal.append_command(index, args.sent());
        hold_until_safe(cx, position);
    } else {
        effects.entry.command(index, args.words());
    }
}

/// Appends the entry to the journal, unless its transaction goes on.
fn append(cx: &mut Cx<'_>) {
    let effects = &mut cx.db.effects;
    if effects.is_replay {
        effects.entry.clear();
    } else if !effects.is_transaction {
        let position = cx.engine.journal.append(&mut effects.entry, true);
        hold_until_safe(cx, position);
    }
}

/// The reply may have to wait until everything up to here is safe.
#[inline]
fn hold_until_safe(cx: &mut Cx<'_>, position: JournalPos) {
    cx.session.written = position;
    staging::note_appended(cx);
    if cx.engine.safe.holds_replies() {
        note_written(&mut cx.db, position);
    }
}

/// Notes for later reads of the keys which position has to be safe before their replies leave. Out
/// of line, as [`note_seen`] is, so that other policies pay for a test only.
#[cold]
#[inline(never)]
fn note_written(db: &mut Db<'_>, position: JournalPos) {
    match db.locks.held() {
        // A long command has given back the locks of all stripes but one.
        _ if db.held.is_some() => db.engine.safe.note_written_anywhere(position),
        Locked::None | Locked::World => {
            db.engine.safe.note_written_anywhere(position);
        }
        _ => db.locks.for_each_mut(|data| data.written = position.0),
    }
}

/// Notes what the session may have seen of the writes of others: a reply that tells of them waits
/// as their own does. The stripes of the command, which has written nothing, are still locked.
#[cold]
#[inline(never)]
pub(crate) fn note_seen(cx: &mut Cx<'_>) {
    let mut seen = cx.engine.safe.written_anywhere().0;
    match cx.db.locks.held() {
        Locked::None if !cx.resolved.command.flags.has(Flags::READONLY) => return,
        // It has walked over the keys.
        Locked::None | Locked::World => seen = cx.engine.journal.position().0,
        _ => cx.db.locks.for_each(|data| seen = seen.max(data.written)),
    }
    cx.session.seen = cx.session.seen.max(JournalPos(seen));
}

/// Deletes the keys that the command found expired. It has read them before it changed others, so
/// their ends are told of first, also of those that it has deleted since because it writes to them.
#[cold]
fn remove_stale(cx: &mut Cx<'_>) {
    let mut own_changes = std::mem::take(&mut cx.db.effects.changes);
    for stale in std::mem::take(cx.db.stale.get_mut()) {
        let now = cx.db.now();
        cx.db.in_db(stale.db, |db| {
            let key = Key::new(&stale.key);
            let index = db.index;
            // Two reads of one key report it twice, and the command may have replaced it.
            let is_stale = db.with_stripe_mut(db.engine.keyspace.stripe_of(key), |data| {
                data.find(index, key).is_some_and(|entry| entry.is_expired(now))
                    && !data.is_delayed(index, key.hash, Touch::Whole, Urgency::None)
            });
            let is_its_end = |change: &Change| {
                change.cause == Cause::Time && change.db == index && change.key == stale.key
            };
            if is_stale {
                db.expire(key);
            } else if let Some(at) = own_changes.iter().position(is_its_end) {
                db.effects.changes.push(own_changes.remove(at));
            }
            if stale.is_missed {
                db.notify(key, events::KEY_MISS);
            }
        });
    }
    cx.db.effects.changes.extend(own_changes);
}

/// `by` is the client whose command made the changes, 0 if none did.
fn apply_changes(db: &mut Db<'_>, by: u64) {
    let engine = db.engine;
    for change in std::mem::take(&mut db.effects.changes) {
        let by = if change.cause == Cause::Time { 0 } else { by };
        if !change.is_event_only {
            reach_interested(db, &change, by);
        }
        let Some(event) = change.event else { continue };
        if let Some(fields) = change.fields {
            db.outbox.field_event(change.db, &change.key, event, &fields);
        } else if engine.notifies(event.class) {
            db.outbox.event(change.db, &change.key, event);
        }
    }
}

/// Tells the watchers, the caches and the blocked clients of the key.
fn reach_interested(db: &mut Db<'_>, change: &Change, by: u64) {
    let engine = db.engine;
    db.reach(change.stripe);
    let data = db.locks.data_mut(change.stripe);
    if data.has_attachment() {
        interest::change(data, |interest| {
            if let Some(of_key) = interest.of(change.db, &change.key) {
                of_key.watches.iter().for_each(|watch| watch.raise());
                if !of_key.waiters.is_empty() {
                    db.effects.ready.push((change.db, change.key.clone()));
                }
            }
            db.outbox.key_changed(interest, &change.key, by);
        });
    }
    if engine.tracking.is_broadcasting() {
        db.outbox.keep(Notification::Broadcast { key: change.key.clone(), db: change.db, by });
    }
}

/// Tells all clients that watch or wait for keys that whole databases are about to be emptied
/// (FLUSHALL) or to be replaced by another one (SWAPDB). A watched key that is absent before and
/// after has not changed. The world stands still.
pub fn databases_change(cx: &mut Cx<'_>, dbs: &[(DbIndex, Option<DbIndex>)]) {
    let engine = cx.engine;
    remove_stale_replacements(cx, dbs);
    let now = cx.now();
    for stripe in 0..engine.keyspace.stripes().len() {
        let data = cx.db.locks.data(stripe);
        let Some(interest) = interest::of_stripe(data) else { continue };
        for ((db, key), of_key) in &interest.keys {
            let Some(&(_, replacement)) = dbs.iter().find(|(changing, _)| changing == db) else {
                continue;
            };
            let is_there = |db: DbIndex| {
                let key = Key::new(key);
                data.find(db, key).is_some_and(|entry| !entry.is_expired(now))
            };
            if is_there(*db) || replacement.is_some_and(is_there) {
                of_key.watches.iter().for_each(|watch| watch.raise());
            }
            if !of_key.waiters.is_empty() {
                cx.db.effects.ready.push((*db, key.clone()));
            }
        }
    }
}

/// Deletes watched keys that have expired from the databases that are going to be swapped: they
/// must not turn up as expired under a watch that began when there was no such key.
fn remove_stale_replacements(cx: &mut Cx<'_>, dbs: &[(DbIndex, Option<DbIndex>)]) {
    let engine = cx.engine;
    let replacements: Vec<DbIndex> = dbs.iter().filter_map(|(_, other)| *other).collect();
    if replacements.is_empty() {
        return;
    }
    let mut keys: Vec<Box<[u8]>> = Vec::new();
    for stripe in 0..engine.keyspace.stripes().len() {
        let interest = interest::of_stripe(cx.db.locks.data(stripe));
        let of_stripe = interest.into_iter().flat_map(|interest| interest.keys.keys());
        keys.extend(of_stripe.map(|(_, key)| key.clone()));
    }
    for db in replacements {
        cx.db.in_db(db, |db| keys.iter().for_each(|key| db.remove_expired(Key::new(key))));
    }
    commit_outside(&mut cx.db);
}

/// Commits deletions that no command made: active expiry and eviction. No save point counts them.
/// Clients that wait for what is gone (XREADGROUP) are left in `effects.ready`, for the caller's
/// thread to serve when it holds no lock.
pub(crate) fn commit_outside(db: &mut Db<'_>) {
    let engine = db.engine;
    let is_eviction = db.effects.take_dirty() > 0;
    // A transaction's entry waits for its end; that of a replay is dropped there.
    if !db.effects.entry.is_empty() && !db.effects.is_transaction && !db.effects.is_replay {
        let position = engine.journal.append(&mut db.effects.entry, false);
        // After a crash a key that was evicted is back, but not one whose time had come.
        if is_eviction && engine.safe.holds_replies() {
            note_written(db, position);
        }
    }
    apply_changes(db, 0);
    tell_others(db);
}

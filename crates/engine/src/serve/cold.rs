//! Handles requests that need cold values, which are not in RAM (`keyspace::cold`).
//!
//! Before a command runs, dispatch checks the keys whose values it needs. If some are cold, it
//! releases the locks, starts to read all of them at once, and tries the request again when they
//! have been read. Until then this connection waits and other connections go on. The next thread
//! that parses requests installs a value that was read, if its key still refers to it. Values that
//! are no longer wanted are dropped.
//!
//! Some commands cannot be tried again: those inside a transaction or a script, in a stopped world,
//! or for a blocked client. For them [`read_in_place`] waits for the values under the locks. This
//! is rare, because the keys that a transaction declares are checked before it begins.
//!
//! A value that cannot be read fails the requests that asked for it. The next request tries again.

use crate::args::Args;
use crate::cold_reads::{Need, Reader, Wanted};
use crate::cold_values::{fetch, log_failure, read, unreadable};
use crate::command::{Command, Databases, Flags, KeyFlags};
use crate::cx::Cx;
use crate::db::Db;
use crate::error::Error;
use crate::request_keys::{KeyUse, RequestKeys};
use crate::table::Resolved;
use crate::tier;
use keyspace::{Entry, Key, StripeData, access};

/// Returns whether a command needs the value of a key that it names, and not only the key.
fn needs_value(command: &Command, flags: KeyFlags) -> bool {
    let usage = KeyUse::of(flags);
    let looks = matches!(usage, KeyUse::Read | KeyUse::Change) || flags.has(KeyFlags::COMPARES);
    looks && !command.flags.has(Flags::NO_VALUES)
}

/// Returns whether a value is promoted when it has been read. It is if there is headroom, or if the
/// command needs the value in its entry. Otherwise it is promoted on its second use since it was
/// last promoted or since the clock's hand last passed it, unless memory is over the limit.
fn is_admitted(db: &Db<'_>, command: &Command, entry: &Entry) -> bool {
    if !command.flags.has(Flags::READS_STRING) || tier::has_headroom(db.engine) {
        return true;
    }
    let is_used = entry.is_credited() || access::is_warm(db.policy, entry.access(), db.now().0);
    is_used && !db.engine.is_over_limit()
}

/// Returns the cold values that a request needs. For EXEC these are the values of all queued
/// commands.
fn missing(cx: &Cx<'_>, row: &Resolved, args: Args<'_>) -> Vec<Wanted> {
    let mut wanted = Vec::new();
    if row.command.flags.has(Flags::RUNS_QUEUE) {
        for queued in cx.session.multi().map_or(&[][..], |multi| multi.queue()) {
            find_missing(&cx.db, queued.row.command, &queued.words(), &mut wanted);
        }
        // Inside a transaction nothing can be read, so all values are promoted.
        wanted.iter_mut().for_each(|one| one.is_admitted = true);
    } else {
        find_missing(&cx.db, row.command, args.words(), &mut wanted);
    }
    wanted
}

fn find_missing(db: &Db<'_>, command: &Command, words: &[&[u8]], wanted: &mut Vec<Wanted>) {
    for found in RequestKeys::of(&db.engine.keyspace, command, words).iter() {
        if needs_value(command, found.flags) {
            let key = found.key(words);
            wanted.extend(
                db.with_stripe(found.stripe(), |data| wanted_value(data, key, db, command)),
            );
        }
    }
}

/// Returns the value of a key that a command needs, if it is cold. Returns `None` for an expired
/// key, and for a key whose type the command refuses.
fn wanted_value(data: &StripeData, key: Key<'_>, db: &Db<'_>, command: &Command) -> Option<Wanted> {
    let entry = data.find(db.index, key)?;
    let cold = entry.cold()?;
    let is_refused = command.flags.has(Flags::READS_STRING) && !entry.kind().is_string();
    if is_refused || entry.is_expired(db.horizon) {
        return None;
    }
    let is_admitted = is_admitted(db, command, entry);
    let reads = command.flags.has(Flags::READONLY);
    Some(Wanted { db: db.index, key: key.bytes.into(), cold, reads, is_admitted })
}

/// Returns whether a request may need a cold value. The check is exact for commands with one key;
/// others always may. The caller holds the locks of the keys.
#[inline]
pub(crate) fn may_miss(cx: &Cx<'_>, row: &Resolved, args: Args<'_>) -> bool {
    let is_cold = |key| cx.db.lookup_no_effects(key).is_some_and(Entry::is_cold);
    row.single_key == 0 || is_cold(args.key(row.single_key))
}

/// Starts to read the cold values of a request that are not being read yet. Returns `None` if the
/// request needs none. When all values have been read, or one of them cannot be read, the client's
/// thread tries the request again. The caller holds the locks of the keys, so no other thread can
/// release the requested values.
///
/// # Errors
/// The inner error: a value could not be read when this client asked for it before.
#[cold]
pub(crate) fn fetch_missing(
    cx: &mut Cx<'_>,
    row: &Resolved,
    args: Args<'_>,
) -> Option<Result<(), Error>> {
    let wanted = missing(cx, row, args);
    if wanted.is_empty() {
        return None;
    }
    let (engine, reader) = (cx.engine, reader_of(cx));
    if row.command.flags.has(Flags::READS_STRING) && show(&mut cx.db, &wanted, reader) {
        return None;
    }
    if let Err(error) = engine.cold_reads.check(&wanted, reader) {
        return Some(Err(unreadable(&error)));
    }
    fetch(engine, wanted, reader, Need::Now);
    Some(Ok(()))
}

/// Returns the client to notify when values have been read.
fn reader_of(cx: &Cx<'_>) -> Reader {
    let client = &cx.session.client;
    Reader { thread: client.thread, client: client.id }
}

fn is_shown(db: &Db<'_>, one: &Wanted) -> bool {
    db.shown.as_ref().is_some_and(|(cold, _)| *cold == one.cold)
}

/// Makes a value available to the command that reads it, if it has been read and is not promoted.
/// Returns whether it did.
fn show(db: &mut Db<'_>, wanted: &[Wanted], reader: Reader) -> bool {
    let [one] = wanted else { return false };
    if is_shown(db, one) {
        return true;
    }
    let value = db.engine.cold_reads.take_shown(Key::new(&one.key), one.cold, reader);
    let Some(value) = value else { return false };
    db.engine.tier.passed_reads.add(1);
    db.shown = Some((one.cold, value));
    true
}

/// Starts to read the cold values of later requests in a pipeline, so that they are read together
/// with the value that the connection waits for. The caller is inside the world and holds no
/// stripe. Locked stripes are skipped. The request itself meets a failure.
#[cold]
pub(crate) fn look_ahead<'a>(
    cx: &Cx<'_>,
    requests: impl Iterator<Item = (&'static Resolved, Args<'a>)>,
) {
    let (engine, reader) = (cx.engine, reader_of(cx));
    // Stop at a request that may select another database.
    let stays =
        |row: &Resolved| matches!(row.command.databases, Databases::Selected | Databases::All);
    for (row, args) in requests.take_while(|(row, _)| stays(row)) {
        let words = args.words();
        for found in RequestKeys::of(&engine.keyspace, row.command, words).iter() {
            if !needs_value(row.command, found.flags) {
                continue;
            }
            let key = found.key(words);
            let Some(data) = engine.keyspace.stripe(found.stripe()).try_lock() else { continue };
            if let Some(one) = wanted_value(&data, key, &cx.db, row.command) {
                fetch(engine, vec![one], reader, Need::Ahead);
            }
        }
    }
}

/// Waits for the cold values that a command needs. Their stripes are locked.
///
/// # Errors
/// One of them cannot be read.
#[cold]
pub(crate) fn read_in_place(cx: &mut Cx<'_>, row: &Resolved, args: Args<'_>) -> Result<(), Error> {
    if row.command.flags.has(Flags::RUNS_QUEUE) {
        // Each queued command reads its own values.
        return Ok(());
    }
    for one in missing(cx, row, args) {
        // The value may have been read for this command alone.
        if !(row.command.flags.has(Flags::READS_STRING) && is_shown(&cx.db, &one)) {
            read_one(&mut cx.db, &one)?;
        }
    }
    Ok(())
}

/// Reads the cold values that a command met without naming their keys. Returns whether there were
/// any.
///
/// # Errors
/// One of them cannot be read, or its stripe cannot be had now: the command is run again.
pub(crate) fn read_met(db: &mut Db<'_>) -> Result<bool, Error> {
    let met = std::mem::take(db.cold_met.get_mut());
    for (index, name) in &met {
        let key = Key::new(name);
        let stripe = db.engine.keyspace.stripe_of(key);
        let found = db.visit(stripe, |data| data.cold(*index, key)).ok_or(Error::StripeTaken)?;
        if let Some(cold) = found {
            let key = name.clone();
            read_one(db, &Wanted { db: *index, key, cold, reads: true, is_admitted: true })?;
        }
    }
    Ok(!met.is_empty())
}

fn read_one(db: &mut Db<'_>, one: &Wanted) -> Result<(), Error> {
    let key = Key::new(&one.key);
    let stripe = db.engine.keyspace.stripe_of(key);
    let found = db.visit(stripe, |data| data.cold(one.db, key)).ok_or(Error::StripeTaken)?;
    if found != Some(one.cold) {
        // A request that names a key twice finds it read already.
        return Ok(());
    }
    db.engine.tier.misses.add(u64::from(one.reads));
    let value = read(db.engine, one.cold.location);
    let value = value.inspect_err(|error| log_failure(db.engine, &one.key, error));
    let value = value.map_err(|error| unreadable(&error))?;
    let installed =
        db.visit_mut(stripe, |data| data.install(one.db, key, one.cold, value, one.record()));
    if installed.ok_or(Error::StripeTaken)? { Ok(()) } else { Err(Error::Cold) }
}

//! Requests that need values which are not in RAM (`keyspace::cold`).
//!
//! Before a command runs, dispatch looks at the keys whose values it needs. If some are cold it gives
//! the locks back, has all of them read at once and tries the request again when they are there.
//! Until then the connection waits and the others go on. A value that was read is installed if its
//! key still has it, by the next thread that takes requests apart; what is no longer wanted is
//! dropped.
//!
//! Where a command cannot begin again (inside a transaction or a script, in a stopped world, for
//! a blocked client) [`read_in_place`] waits for the values under the locks. That is the rare
//! case: the keys that a transaction declares have been looked at before it began.
//!
//! A value that cannot be read fails the requests that asked for it. The next one tries again.

use crate::command::{Command, Flags, KeyFlags};
use crate::cx::Cx;
use crate::db::Db;
use crate::engine::Engine;
use crate::error::Error;
use crate::mailbox::Message;
use crate::request_keys::{KeyUse, RequestKeys};
use crate::table::Resolved;
use crate::tier::log_failure;
use crate::value::{self, view};
use crate::{Args, limits};
use keyspace::cold::store;
use keyspace::snapshot::record::{ColdHead, Token, Tokens};
use keyspace::snapshot::write_whole;
use keyspace::{ColdError, ColdLocation, ColdRef, DbIndex, Entry, Key, StripeData, Value};
use std::borrow::Cow;
use std::collections::HashMap;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering::*};
use structs::sync::lock;

/// A cold value that a request needs.
#[derive(Clone, Debug)]
pub(crate) struct Wanted {
    db: DbIndex,
    key: Box<[u8]>,
    cold: ColdRef,
}

/// The values that are being read.
#[derive(Default)]
pub struct ColdReads {
    reads: Mutex<HashMap<ColdLocation, Read>>,
    arrived: Mutex<Vec<(Wanted, Value)>>,
    has_arrived: AtomicBool,
}

enum Read {
    /// The threads of the requests that wait for it.
    UnderWay(Vec<usize>),
    /// It failed; as many requests are still to be told.
    Failed(ColdError, usize),
}

/// Whether a command needs the value of a key that it names, not only the key.
fn needs_value(command: &Command, flags: KeyFlags) -> bool {
    let usage = KeyUse::of(flags);
    !command.flags.has(Flags::NO_VALUES) && matches!(usage, KeyUse::Read | KeyUse::Change)
}

/// The cold values that a request needs; for EXEC those of all that is queued.
#[cold]
pub(crate) fn missing(cx: &Cx<'_>, row: &Resolved, args: Args<'_>) -> Vec<Wanted> {
    let mut wanted = Vec::new();
    if row.command.flags.has(Flags::RUNS_QUEUE) {
        for queued in cx.session.multi.as_ref().map_or(&[][..], |multi| multi.queue()) {
            find_missing(&cx.db, queued.row.command, &queued.words(), &mut wanted);
        }
    } else {
        find_missing(&cx.db, row.command, args.words(), &mut wanted);
    }
    wanted
}

fn find_missing(db: &Db<'_>, command: &Command, words: &[&[u8]], wanted: &mut Vec<Wanted>) {
    for found in RequestKeys::of(&db.engine.keyspace, command, words).iter() {
        if needs_value(command, found.flags) {
            let key = found.key(words);
            let cold = db.with_stripe(found.stripe(), |data| cold_value(data, key, db));
            wanted.extend(cold.map(|cold| Wanted { db: db.index, key: key.bytes.into(), cold }));
        }
    }
}

/// Where the value of a key is, if it is cold; of one whose time has come none is needed.
fn cold_value(data: &StripeData, key: Key<'_>, db: &Db<'_>) -> Option<ColdRef> {
    let entry = data.find(db.index, key)?;
    if entry.is_expired(db.horizon) { None } else { entry.cold() }
}

/// Has values read. When they are there, or one of them cannot be read, the thread is told to try
/// again what was put off. The caller holds the locks of their keys.
///
/// # Errors
/// One of them could not be read when it was asked for before.
pub(crate) fn fetch(cx: &Cx<'_>, wanted: Vec<Wanted>) -> Result<(), Error> {
    let engine = cx.thread.engine;
    let mut reads = lock(&engine.cold_reads.reads);
    for one in &wanted {
        if let Some(error) = take_failure(&mut reads, one.cold.location) {
            return Err(unreadable(&error));
        }
    }
    let thread = cx.session.client.thread;
    let mut to_read = Vec::new();
    for one in wanted {
        match reads.get_mut(&one.cold.location) {
            Some(Read::UnderWay(threads)) => threads.push(thread),
            _ => {
                reads.insert(one.cold.location, Read::UnderWay(vec![thread]));
                to_read.push(one);
            }
        }
    }
    drop(reads);
    if !to_read.is_empty() {
        let locations = to_read.iter().map(|one| one.cold.location).collect();
        let done = Box::new(move |results| complete(engine, to_read, results));
        store().expect("entries are cold, so there is a store").fetch(locations, done);
    }
    Ok(())
}

/// The failure of a read that a request waited for; the last of those that waited forgets it.
fn take_failure(
    reads: &mut HashMap<ColdLocation, Read>,
    location: ColdLocation,
) -> Option<ColdError> {
    let Some(Read::Failed(error, waiting)) = reads.get_mut(&location) else { return None };
    let error = error.clone();
    *waiting -= 1;
    if *waiting == 0 {
        reads.remove(&location);
    }
    Some(error)
}

fn unreadable(ColdError(reason): &ColdError) -> Error {
    Error::format(format!("ERR the value of a key could not be read: {reason}"))
}

/// Values have been read; on any thread.
fn complete(engine: &Engine, wanted: Vec<Wanted>, results: Vec<Result<Vec<u8>, ColdError>>) {
    let mut threads = Vec::new();
    for (one, result) in wanted.into_iter().zip(results) {
        let value = result.and_then(|payload| decode(engine, &payload));
        let mut reads = lock(&engine.cold_reads.reads);
        let Some(Read::UnderWay(waiting)) = reads.remove(&one.cold.location) else { continue };
        match value {
            Ok(value) => lock(&engine.cold_reads.arrived).push((one, value)),
            Err(error) => {
                log_failure(engine, &one.key, &error);
                let failed = Read::Failed(error, waiting.len());
                reads.insert(one.cold.location, failed);
            }
        }
        threads.extend(waiting);
    }
    engine.cold_reads.has_arrived.store(true, Release);
    threads.sort_unstable();
    threads.dedup();
    threads.iter().for_each(|&thread| engine.mailboxes[thread].post(Message::Recheck));
}

/// Installs the values that have arrived. The caller is inside the world and holds no stripe.
#[inline]
pub(crate) fn install_arrived(engine: &Engine) {
    if engine.cold_reads.has_arrived.load(Relaxed) {
        install_all(engine);
    }
}

#[cold]
fn install_all(engine: &Engine) {
    engine.cold_reads.has_arrived.store(false, Relaxed);
    for (one, value) in std::mem::take(&mut *lock(&engine.cold_reads.arrived)) {
        let key = Key::new(&one.key);
        let mut stripe = engine.keyspace.stripe(engine.keyspace.stripe_of(key)).lock();
        if stripe.install(one.db, key, one.cold, value) {
            engine.tier.promotions.add(1);
        }
    }
}

/// Waits for the values that a command needs, whose stripes are locked.
///
/// # Errors
/// One of them cannot be read.
#[cold]
pub(crate) fn read_in_place(cx: &mut Cx<'_>, row: &Resolved, args: Args<'_>) -> Result<(), Error> {
    if row.command.flags.has(Flags::RUNS_QUEUE) {
        // Each of its commands comes by itself.
        return Ok(());
    }
    for one in missing(cx, row, args) {
        read_one(&mut cx.db, &one)?;
    }
    Ok(())
}

/// Reads the values that a command has met which it does not name, and says whether there were any.
///
/// # Errors
/// One of them cannot be read.
pub(crate) fn read_met(db: &mut Db<'_>) -> Result<bool, Error> {
    let met = std::mem::take(db.cold_met.get_mut());
    for (index, name) in &met {
        let key = Key::new(name);
        let stripe = db.engine.keyspace.stripe_of(key);
        if let Some(cold) = db.with_stripe(stripe, |data| data.cold(*index, key)) {
            read_one(db, &Wanted { db: *index, key: name.clone(), cold })?;
        }
    }
    Ok(!met.is_empty())
}

fn read_one(db: &mut Db<'_>, one: &Wanted) -> Result<(), Error> {
    let value = read(db.engine, one.cold.location);
    let value = value.inspect_err(|error| log_failure(db.engine, &one.key, error));
    let value = value.map_err(|error| unreadable(&error))?;
    let key = Key::new(&one.key);
    let stripe = db.engine.keyspace.stripe_of(key);
    let installed = db.with_stripe_mut(stripe, |data| data.install(one.db, key, one.cold, value));
    if installed { Ok(()) } else { Err(Error::Cold) }
}

/// Reads the value of an entry of a stripe that is locked, for a hold: what is held is in RAM.
///
/// # Errors
/// It cannot be read.
pub(crate) fn read_for_hold(
    engine: &Engine,
    data: &mut StripeData,
    db: DbIndex,
    key: Key<'_>,
) -> Result<(), ColdError> {
    let Some(cold) = data.cold(db, key) else { return Ok(()) };
    let value = read(engine, cold.location)?;
    data.install(db, key, cold, value);
    Ok(())
}

/// Shows an entry with its value, which is read if need be and not kept.
///
/// # Errors
/// It cannot be read.
pub fn with_value<R>(
    engine: &Engine,
    entry: &Entry,
    look: impl FnOnce(&Entry) -> R,
) -> Result<R, Error> {
    let Some(cold) = entry.cold() else { return Ok(look(entry)) };
    let value = read(engine, cold.location);
    let value = value.inspect_err(|error| log_failure(engine, entry.key(), error));
    let value = value.map_err(|error| unreadable(&error))?;
    Ok(look(&Entry::new(entry.key(), value, entry.expiry(), entry.access())))
}

fn read(engine: &Engine, location: ColdLocation) -> Result<Value, ColdError> {
    let store = store().expect("entries are cold, so there is a store");
    decode(engine, &store.read(location)?)
}

/// The form in which a store keeps a value: DUMP's, with its checksum.
pub fn encode(engine: &Engine, entry: &Entry) -> Vec<u8> {
    rdb::dump(view(entry), value::compression(engine))
}

fn decode(engine: &Engine, payload: &[u8]) -> Result<Value, ColdError> {
    let object = rdb::restore(payload, &limits::all(engine));
    object.map(value::of_object).map_err(|error| ColdError(error.to_string()))
}

/// Takes the value of a key out of RAM; `keep` is given it and says where it is. Says whether it
/// did: not if there is no such key, its value is a number or cold already, or a long command
/// holds it. The caller is inside the world and holds no stripe.
pub fn make_cold(
    engine: &Engine,
    db: DbIndex,
    key: &[u8],
    keep: impl FnOnce(Vec<u8>) -> ColdLocation,
) -> bool {
    let key = Key::new(key);
    let mut stripe = engine.keyspace.stripe(engine.keyspace.stripe_of(key)).lock();
    if !stripe.may_make_cold(db, key) {
        return false;
    }
    let payload = stripe.find(db, key).map(|entry| encode(engine, entry));
    let entry = payload.and_then(|payload| stripe.make_cold(db, key, keep(payload)));
    drop(stripe);
    entry.map(|entry| engine.background.free_entry(entry)).is_some()
}

/// The tokens of a snapshot with the cold values read.
///
/// # Errors
/// One of them cannot be read: the snapshot fails.
pub(crate) fn thaw<'t>(engine: &Engine, tokens: &'t [u8]) -> Result<Cow<'t, [u8]>, ColdError> {
    if store().is_none() {
        return Ok(Cow::Borrowed(tokens));
    }
    let (mut out, mut copied) = (Vec::new(), 0);
    let mut rest = Tokens::new(tokens);
    loop {
        let at = tokens.len() - rest.len();
        match rest.next() {
            None => break,
            Some(Token::Cold(head)) => {
                out.extend_from_slice(&tokens[copied..at]);
                write_whole(&mut out, &entry_of(engine, &head)?);
                copied = tokens.len() - rest.len();
            }
            Some(_) => {}
        }
    }
    if copied == 0 {
        return Ok(Cow::Borrowed(tokens));
    }
    out.extend_from_slice(&tokens[copied..]);
    Ok(Cow::Owned(out))
}

fn entry_of(engine: &Engine, head: &ColdHead<'_>) -> Result<Entry, ColdError> {
    let value = read(engine, head.location);
    let value = value.inspect_err(|error| log_failure(engine, head.key, error))?;
    Ok(Entry::new(head.key, value, head.expiry, head.access))
}

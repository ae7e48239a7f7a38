//! Reads values that are not in RAM, and installs them or shows them to a command.

use crate::cold_reads::{Need, Reader, ToRead, Wanted};
use crate::engine::Engine;
use crate::error::Error;
use crate::limits;
use crate::mailbox::Message;
use crate::value::{self, view};
use keyspace::cold::store;
use keyspace::{ColdError, ColdLocation, DbIndex, Entry, Key, Record, StripeData, Value};
use rdb::Compression;
use structs::table::in_order_of;

/// Logs that a value could not be read, at most once a second, because a broken disk fails with
/// every read. The key may be private, so its hash is logged.
pub(crate) fn log_failure(engine: &Engine, key: &[u8], ColdError(reason): &ColdError) {
    let now_s = engine.clock.wall_s();
    if engine.tier.may_log_failure(now_s)
        && let Some(host) = engine.host()
    {
        let hash = Key::new(key).hash;
        host.warn(&format!("The value of the key with hash {hash:016x} can't be read: {reason}"));
    }
}

/// Starts to read the values that are not being read yet. The reader is notified when all the
/// values it asked for have been read or have failed. The caller holds the locks of the keys.
pub(crate) fn fetch(engine: &'static Engine, wanted: Vec<Wanted>, reader: Reader, need: Need) {
    let ToRead { wanted: to_read, misses, is_arriving } =
        engine.cold_reads.want(wanted, reader, need);
    if is_arriving {
        // The clients that asked for an arriving value may have gone, so this client's thread has
        // to install it.
        tell(engine, vec![reader]);
    }
    engine.tier.misses.add(misses);
    if !to_read.is_empty() {
        let locations = to_read.iter().map(|one| one.cold.location).collect();
        let done = Box::new(move |results| complete(engine, to_read, results));
        store().expect("entries are cold, so there is a store").fetch(locations, done);
    }
}

/// Handles values that have been read. Runs on any thread.
fn complete(engine: &Engine, wanted: Vec<Wanted>, results: Vec<Result<Vec<u8>, ColdError>>) {
    let now_s = engine.clock.wall_s();
    let mut readers = Vec::new();
    for (one, result) in wanted.into_iter().zip(results) {
        let value = result.and_then(|payload| decode(engine, &payload));
        let value = value.inspect_err(|error| log_failure(engine, &one.key, error));
        let ended = engine.cold_reads.end(one, value, now_s);
        readers.extend(ended);
    }
    engine.cold_reads.note_arrival();
    readers.sort_unstable_by_key(|reader| reader.client);
    readers.dedup();
    tell(engine, readers);
}

fn tell(engine: &Engine, readers: Vec<Reader>) {
    for Reader { thread, client } in readers {
        engine.mailboxes[thread].post(Message::Arrived(client));
    }
}

pub(crate) fn unreadable(ColdError(reason): &ColdError) -> Error {
    Error::format(format!("ERR the value of a key could not be read: {reason}"))
}

/// Installs the values that have arrived. The caller is inside the world and holds no stripe.
#[inline]
pub(crate) fn install_arrived(engine: &Engine) {
    for (one, value) in engine.cold_reads.take_arrived() {
        install(engine, &one, value);
    }
}

#[cold]
fn install(engine: &Engine, one: &Wanted, value: Value) {
    let key = Key::new(&one.key);
    let stripe = engine.keyspace.stripe(engine.keyspace.stripe_of(key));
    let data = stripe.try_lock_soon();
    if data.is_none() && !engine.holds.has_scripts() {
        return engine.cold_reads.arrive_later(one.clone(), value);
    }
    // If a script holds the stripe, clients that ask again wait for it and read the value then.
    if data.is_some_and(|mut data| data.install(one.db, key, one.cold, value, one.record())) {
        engine.tier.promotions.add(1);
    }
    tell(engine, engine.cold_reads.end_arrival(one));
}

/// Reads the value of an entry for a hold, because held values must be in RAM. The entry's stripe
/// is locked.
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
    data.install(db, key, cold, value, Record::Stays);
    Ok(())
}

/// Calls `look` with an entry and its value. A cold value is read for this and not promoted.
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

pub(crate) fn read(engine: &Engine, location: ColdLocation) -> Result<Value, ColdError> {
    let store = store().expect("entries are cold, so there is a store");
    decode(engine, &store.read(location)?)
}

/// The last byte of a stored value. Before it lies DUMP's form alone, or DUMP's form and the order
/// of a table.
const WITHOUT_ORDER: u8 = 0;
const WITH_ORDER: u8 = 1;

/// Returns the stored form of a value: DUMP's form with its checksum; the order of its table in 8
/// bytes, if it has one, so that a SCAN continues correctly after promotion; and a byte that says
/// which.
pub fn encode(engine: &Engine, entry: &Entry) -> Vec<u8> {
    encode_as(entry, value::compression(&engine.config))
}

pub(crate) fn encode_as(entry: &Entry, compression: Compression) -> Vec<u8> {
    let mut payload = rdb::dump(view(entry).object(), compression);
    match entry.collection().and_then(|value| value.table_order()) {
        Some(order) => {
            payload.extend(order.to_le_bytes());
            payload.push(WITH_ORDER);
        }
        None => payload.push(WITHOUT_ORDER),
    }
    payload
}

/// Splits a stored value into DUMP's form and the order of its table.
fn parts(payload: &[u8]) -> Option<(&[u8], Option<u64>)> {
    match payload.split_last()? {
        (&WITHOUT_ORDER, dump) => Some((dump, None)),
        (&WITH_ORDER, rest) => {
            let (dump, order) = rest.split_last_chunk()?;
            Some((dump, Some(u64::from_le_bytes(*order))))
        }
        _ => None,
    }
}

pub(crate) fn decode(engine: &Engine, payload: &[u8]) -> Result<Value, ColdError> {
    let damaged = || ColdError("the record has no valid end".to_owned());
    let (payload, order) = parts(payload).ok_or_else(damaged)?;
    let mut limits = limits::all(&engine.config, &engine.debug);
    if payload.first() == Some(&(rdb::Kind::Zset2 as u8)) {
        // A sorted set in this form keeps the big encoding, because the small one has no -0.
        limits.zset.max_listpack_entries = 0;
    }
    let object = in_order_of(order, || rdb::restore(payload, &limits));
    object.map(value::of_object).map_err(|error| ColdError(error.to_string()))
}

/// Takes the value of a key out of RAM. `keep` stores it and returns its location. Returns whether
/// it did: not if there is no such key, its value is a number or already cold, or a long command
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

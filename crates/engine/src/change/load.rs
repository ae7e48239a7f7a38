//! Putting what files hold into the keyspace: one thread's part of a load.
//!
//! Records are decoded and made into entries a few at a time; then their buckets are fetched into
//! the cache, and only then is one stripe after the other locked. A key that comes from a file has
//! no effects: no client watches, tracks or waits for it, and the journal does not see it.
#![allow(unsafe_code)] // Fetches buckets inside the world.

use crate::engine::Engine;
use crate::tier;
use crate::value::entry;
use keyspace::access::{self, Policy};
use keyspace::world::Reader;
use keyspace::{DbIndex, Entry, Key, Keyspace, Millis, Stripe};
use rdb::file::{Access, Record};
use rdb::{Decoder, Kind, Limits, Object};
use structs::stream::Idempotency;

/// Entries that are made before the first of them is inserted; as many misses of the cache are
/// under way together.
const TOGETHER: usize = 32;

/// How a file is to be loaded.
#[derive(Clone, Copy, Debug)]
pub struct Settings {
    /// The thresholds of encodings.
    pub limits: Limits,
    /// Expired keys are loaded too: a follower of a history must have what it had.
    pub keeps_expired: bool,
    /// Expired keys and fields are named in [`Counts`] when they are dropped, since others may have
    /// them.
    pub names_expired: bool,
    /// A key that is there already is replaced; otherwise that is an error.
    pub replaces: bool,
    /// Keys go into the data set beside the one that is served ([`crate::loading::SecondDataSet`]).
    pub is_beside: bool,
    /// The starter of the load has stopped the world.
    pub world_is_stopped: bool,
    /// The time.
    pub now: Millis,
}

/// A record and where it stands in the bytes that come with it.
#[derive(Clone, Debug)]
pub struct Cut {
    /// Its parts, relative to `at`.
    pub record: Record,
    /// Its first byte.
    pub at: usize,
    /// The first byte behind it.
    pub end: usize,
    /// Which messages of producers a stream has, from in front of it.
    pub idempotency: Option<Box<[u8]>>,
}

/// What is wrong with a record.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BadRecord {
    /// Where its value is, in the bytes that came with it.
    pub at: usize,
    /// Its key.
    pub key: Vec<u8>,
    /// Its type.
    pub kind: u8,
    /// Its database.
    pub db: u32,
    /// What is wrong.
    pub why: Why,
}

/// See [`BadRecord`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Why {
    /// It cannot be decoded.
    Malformed(rdb::Error),
    /// The key is there already.
    Duplicate,
    /// There is no such database.
    NoSuchDb,
}

/// Fields of a hash that were dropped because their time had come. Others are left.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ExpiredFields {
    /// The hash's database.
    pub db: DbIndex,
    /// Its key.
    pub key: Box<[u8]>,
    /// The fields' names.
    pub fields: Vec<Box<[u8]>>,
}

/// What became of a file's keys.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// Keys that are there now.
    pub loaded: u64,
    /// Keys that were dropped because their time had come.
    pub expired: u64,
    /// Their names, if these are asked for, and those of hashes all of whose fields were dropped.
    pub expired_keys: Vec<(DbIndex, Box<[u8]>)>,
    /// Fields that were dropped, if their names are asked for.
    pub expired_fields: Vec<ExpiredFields>,
    /// Keys of collections without elements, which old servers wrote by mistake.
    pub empty: u64,
    /// The first few of these.
    pub empty_keys: Vec<Vec<u8>>,
}

/// Empty keys that are kept by name, as many as Redis names in its log.
const EMPTY_NAMED: usize = 10;

impl Counts {
    /// Adds what another thread counted.
    pub fn add(&mut self, other: Counts) {
        self.loaded += other.loaded;
        self.expired += other.expired;
        self.expired_keys.extend(other.expired_keys);
        self.expired_fields.extend(other.expired_fields);
        self.empty += other.empty;
        let room = EMPTY_NAMED.saturating_sub(self.empty_keys.len());
        self.empty_keys.extend(other.empty_keys.into_iter().take(room));
    }
}

/// An entry that is to be inserted.
struct Ready {
    db: DbIndex,
    hash: u64,
    stripe: usize,
    entry: Entry,
}

/// One thread's loader.
pub struct Loader {
    engine: &'static Engine,
    keyspace: &'static Keyspace,
    settings: Settings,
    policy: Policy,
    reader: Option<Reader<'static>>,
    ready: Vec<Ready>,
    counts: Counts,
}

/// The keyspace that is loaded into.
fn target(engine: &Engine, is_beside: bool) -> &Keyspace {
    if is_beside { &engine.loading.beside(&engine.keyspace).keyspace } else { &engine.keyspace }
}

impl Drop for Loader {
    fn drop(&mut self) {
        if let Some(reader) = self.reader.take() {
            self.engine.loading.return_reader(reader);
        }
    }
}

impl Loader {
    /// The calling thread's loader.
    pub fn new(engine: &'static Engine, settings: Settings) -> Loader {
        let reader = (!settings.world_is_stopped)
            .then(|| engine.loading.take_reader(engine.keyspace.world()));
        let policy = engine.access_policy();
        let ready = Vec::with_capacity(TOGETHER);
        let keyspace = target(engine, settings.is_beside);
        Loader { engine, keyspace, settings, policy, reader, ready, counts: Counts::default() }
    }

    /// How it loads.
    pub fn settings(&self) -> &Settings {
        &self.settings
    }

    /// What it has loaded.
    pub fn counts(&self) -> &Counts {
        &self.counts
    }

    /// Loads records, which stand in `bytes`.
    pub fn records(&mut self, bytes: &[u8], cuts: &[Cut]) -> Result<(), BadRecord> {
        for cuts in cuts.chunks(TOGETHER) {
            for cut in cuts {
                self.prepare(bytes, cut)?;
            }
            self.insert()?;
        }
        Ok(())
    }

    /// Loads a key whose value has been built elsewhere.
    pub fn object(&mut self, head: &Head, mut object: Object) -> Result<(), BadRecord> {
        if self.is_dropped(head.expiry_ms, head.db, &head.key)
            || self.drops_fields(head.db, &head.key, &mut object)
        {
            return Ok(());
        }
        let key = Key::new(&head.key);
        self.ready.push(Ready {
            db: DbIndex(head.db),
            hash: key.hash,
            stripe: self.keyspace.stripe_of(key),
            entry: entry(&head.key, object, head.expiry_ms.map(Millis), self.access(head.access)),
        });
        self.insert()
    }

    /// Notes that a key had no elements.
    pub fn skip_empty(&mut self, key: &[u8]) {
        self.counts.empty += 1;
        if self.counts.empty_keys.len() < EMPTY_NAMED {
            self.counts.empty_keys.push(key.to_vec());
        }
    }

    fn is_dropped(&mut self, expiry_ms: Option<i64>, db: u32, key: &[u8]) -> bool {
        let is_dropped =
            !self.settings.keeps_expired && expiry_ms.is_some_and(|at| at < self.settings.now.0);
        self.counts.expired += u64::from(is_dropped);
        if is_dropped && self.settings.names_expired {
            self.counts.expired_keys.push((DbIndex(db), Box::from(key)));
        }
        is_dropped
    }

    /// Drops the fields that have expired; says whether none is left.
    fn drops_fields(&mut self, db: u32, key: &[u8], object: &mut Object) -> bool {
        let Object::Hash(hash) = object else { return false };
        if self.settings.keeps_expired || !hash.is_timed() {
            return false;
        }
        let (now, is_named) = (self.settings.now.0, self.settings.names_expired);
        let mut fields = Vec::new();
        while hash.expiry_bound().is_some_and(|bound| bound < now) {
            hash.remove_expired(now, usize::MAX, |field| {
                if is_named {
                    fields.push(Box::from(field));
                }
            });
        }
        if is_named && hash.is_empty() {
            self.counts.expired_keys.push((DbIndex(db), Box::from(key)));
        } else if !fields.is_empty() {
            let key = Box::from(key);
            self.counts.expired_fields.push(ExpiredFields { db: DbIndex(db), key, fields });
        }
        hash.is_empty()
    }

    fn access(&self, access: Access) -> u32 {
        let now_ms = self.settings.now.0;
        match (self.policy, access) {
            (Policy::Lru | Policy::Clock, Access::IdleSeconds(seconds)) => {
                let seconds = u32::try_from(seconds).unwrap_or(u32::MAX);
                access::with_idle(self.policy, seconds, now_ms)
            }
            (Policy::Lfu { .. }, Access::Frequency(count)) => access::with_frequency(count, now_ms),
            _ => access::fresh(self.policy, now_ms),
        }
    }

    /// Decodes a record and puts its entry among those to insert.
    fn prepare(&mut self, bytes: &[u8], cut: &Cut) -> Result<(), BadRecord> {
        let record = &cut.record;
        let value_at = cut.at + record.value_at;
        let bad = |key: &[u8], error| BadRecord {
            at: value_at,
            key: key.to_vec(),
            kind: record.kind,
            db: record.db,
            why: Why::Malformed(error),
        };
        let name = Decoder::new(&bytes[cut.at + record.key_at..value_at]).string();
        let name = name.map_err(|error| bad(b"", error))?;
        if self.is_dropped(record.expiry_ms, record.db, &name) {
            return Ok(());
        }
        let key = Key::new(&name);
        let (expiry, access) = (record.expiry_ms.map(Millis), self.access(record.access));
        let mut value = Decoder::new(&bytes[value_at..cut.end]);
        let entry = if record.kind == Kind::String as u8 {
            let string = value.string().map_err(|error| bad(&name, error))?;
            Entry::new_string(&name, &string, expiry, access)
        } else {
            let kind = Kind::from_byte(record.kind)
                .ok_or_else(|| bad(&name, rdb::Error::UnsupportedType(record.kind)))?;
            match value.value(kind, &self.settings.limits) {
                Ok(mut object) => {
                    if let (Object::Stream(stream), Some(bytes)) = (&mut object, &cut.idempotency) {
                        let ids = Idempotency::from_bytes(bytes)
                            .map_err(|error| bad(&name, rdb::Error::Corrupt(error.0)))?;
                        stream.set_idempotency(ids);
                    }
                    if self.drops_fields(record.db, &name, &mut object) {
                        return Ok(());
                    }
                    entry(&name, object, expiry, access)
                }
                Err(rdb::Error::Empty) => {
                    self.skip_empty(&name);
                    return Ok(());
                }
                Err(error) => return Err(bad(&name, error)),
            }
        };
        self.ready.push(Ready {
            db: DbIndex(record.db),
            hash: key.hash,
            stripe: self.keyspace.stripe_of(key),
            entry,
        });
        Ok(())
    }

    /// Inserts what is ready.
    fn insert(&mut self) -> Result<(), BadRecord> {
        let keyspace = self.keyspace;
        if let Some(reader) = &self.reader {
            reader.enter();
        }
        for ready in &self.ready {
            // SAFETY: this thread is inside the world, or its owner keeps it stopped.
            unsafe { keyspace.stripe(ready.stripe).prefetch_bucket(ready.db, ready.hash) }
        }
        let mut result = Ok(());
        for ready in self.ready.drain(..) {
            if result.is_ok() {
                let stripe = keyspace.stripe(ready.stripe);
                result = insert_one(stripe, ready, &self.settings, keyspace.databases());
                self.counts.loaded += u64::from(result.is_ok());
            }
        }
        if let Some(reader) = &self.reader {
            reader.leave();
        }
        tier::make_room_for_load(self.engine, self.reader.as_ref());
        result
    }
}

fn insert_one(
    stripe: &Stripe,
    ready: Ready,
    settings: &Settings,
    databases: u32,
) -> Result<(), BadRecord> {
    let Ready { db, hash, entry, .. } = ready;
    let refused =
        |entry: &Entry, why| BadRecord { at: 0, key: entry.key().to_vec(), kind: 0, db: db.0, why };
    if db.0 >= databases {
        return Err(refused(&entry, Why::NoSuchDb));
    }
    let mut data = stripe.lock();
    let is_there = data.find(db, Key { bytes: entry.key(), hash }).is_some();
    let (result, replaced) = if !is_there {
        data.insert_absent(db, hash, entry);
        (Ok(()), None)
    } else if settings.replaces {
        (Ok(()), data.put(db, hash, entry))
    } else {
        (Err(refused(&entry, Why::Duplicate)), None)
    };
    drop(data);
    drop(replaced);
    result
}

/// What stands in front of a value that is built in pieces.
#[derive(Clone, Debug)]
pub struct Head {
    /// The key.
    pub key: Vec<u8>,
    /// The database.
    pub db: u32,
    /// Milliseconds since the epoch of Unix.
    pub expiry_ms: Option<i64>,
    /// Its last use.
    pub access: Access,
}

/// Makes room for so many keys in a database that is empty, so that its tables need not grow. They
/// are spread over the stripes by chance: three standard deviations above the average are enough
/// for nearly all of them.
pub fn reserve(engine: &Engine, db: DbIndex, keys: u64, expiring: u64, settings: &Settings) {
    let stripes = target(engine, settings.is_beside).stripes();
    let share = |count: u64| {
        let mean = count as f64 / stripes.len() as f64;
        if mean < 16.0 { 0 } else { (mean + 3.0 * mean.sqrt()) as usize }
    };
    let (keys, expiring) = (share(keys), share(expiring));
    if db.0 >= engine.keyspace.databases() || keys == 0 {
        return;
    }
    let stopped = (!settings.world_is_stopped).then(|| engine.keyspace.world().stop());
    for stripe in stripes {
        stripe.lock().reserve(db, keys, expiring);
    }
    drop(stopped);
}

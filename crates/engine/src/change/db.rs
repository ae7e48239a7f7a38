//! What a command sees of the keyspace: one database, with Redis's rules of expiry applied.
//!
//! Reading methods take `&self`, so a command may look at many keys at once (SINTER); writing
//! methods take `&mut self`. A key whose time has come is absent to both. Every change must be
//! reported by [`Db::changed`] (or made by a method that says it reports): `commit` turns the
//! reports into journal entries, notifications, invalidations and wake-ups.

mod asker;
mod figures;
mod reporting;
mod undo;
mod walking;
mod writing;

use crate::effects::Effects;
use crate::engine::Engine;
use crate::error::Error;
use crate::events::{self, Class};
use crate::held_keys::{HeldKeys, NamedKey};
use crate::locks::Locks;
use crate::outbox::Outbox;
pub(crate) use asker::Asker;
use keyspace::access::{self, Policy};
use keyspace::{
    ColdRef, DbIndex, Entry, HeapString, Key, Millis, Object, Slots, StringRef, StripeData,
};
use std::cell::{Cell, RefCell};
use structs::random::Rng;
pub(crate) use undo::UndoLog;
pub(crate) use writing::MAX_IN_PLACE;

/// What to do with a key's expiry when its value is replaced.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum SetExpiry {
    /// It no longer expires.
    Clear,
    /// It keeps the expiry it has.
    Keep,
    /// It expires then.
    At(Millis),
}

/// A key that a reading command found expired, which `commit` deletes, or one that it did not find
/// after such a key.
pub(crate) struct Stale {
    pub(crate) db: DbIndex,
    pub(crate) key: Box<[u8]>,
    /// To be published as `keymiss`, after its `expired`.
    pub(crate) is_missed: bool,
}

/// One database, as a command sees it; see the module's documentation.
pub struct Db<'a> {
    /// Everything else, for commands about the server.
    pub engine: &'static Engine,
    /// The selected database.
    pub index: DbIndex,
    pub(crate) now: Millis,
    /// Keys that expire before it are gone. While the history is repeated there are none: keys
    /// that expired then are deleted by the history itself.
    pub(crate) horizon: Millis,
    pub(crate) policy: Policy,
    pub(crate) locks: Locks<'static>,
    /// Whether reading a key counts as using it (CLIENT NO-TOUCH, OBJECT, DEBUG say no).
    pub touches: bool,
    pub(crate) effects: Effects,
    /// A client of a replica writes: keys that end are the replica's own.
    pub(crate) notes_own_keys: bool,
    /// See [`Db::set_import`].
    pub(crate) is_import: bool,
    pub(crate) stale: RefCell<Vec<Stale>>,
    /// Keys whose values a command needs that it does not name, and that are not in RAM.
    pub(crate) cold_met: RefCell<Vec<(DbIndex, Box<[u8]>)>>,
    /// A cold value that was read for a command and is not put back.
    pub(crate) shown: Option<(ColdRef, Vec<u8>)>,
    /// What others are told of it.
    pub(crate) outbox: Outbox<'a>,
    /// A script keeps the world stopped: no stripe may be locked.
    pub(crate) is_outside: bool,
    /// It serves an operator: figures of a moment ago are better than none.
    pub(crate) is_for_operator: bool,
    /// A stripe that the command wanted to visit could not be locked.
    has_missed_stripe: Cell<bool>,
    /// Values that were taken out of RAM to make room.
    pub(crate) demoted: Cell<u32>,
    pub(crate) hits: Cell<u64>,
    pub(crate) misses: Cell<u64>,
    pub(crate) random: RefCell<Rng>,
    /// What the script that runs would have to put back.
    pub(crate) undo: Option<UndoLog>,
    /// The keys of a long command that runs without locks.
    pub(crate) held: Option<HeldKeys<'a>>,
    /// The keys of a long command that takes hold of them itself, until it does.
    pub(crate) to_hold: Option<Vec<NamedKey>>,
    /// The client that waits for this long command.
    pub(crate) asker: Option<&'a Asker>,
    /// Set where no client waits for this thread: then the world may be stopped between stripes.
    background: Option<&'a keyspace::world::Reader<'static>>,
    /// The request's words that came in blocks of their own.
    pub(crate) blocks: Vec<HeapString>,
    /// What the command is shown of values that lie in their entries.
    slots: Slots,
}

#[inline]
fn string_of(entry: Option<&Entry>) -> Result<Option<StringRef<'_>>, Error> {
    entry.map(|entry| hot(entry)?.string().ok_or(Error::WrongType)).transpose()
}

/// The value of a cold entry that was read for this command alone.
#[cold]
fn shown_string<'s>(
    entry: &Entry,
    shown: Option<&'s (ColdRef, Vec<u8>)>,
) -> Result<Option<StringRef<'s>>, Error> {
    if !entry.kind().is_string() {
        return Err(Error::WrongType);
    }
    let same = shown.filter(|(cold, _)| entry.cold() == Some(*cold));
    same.map(|(_, value)| Some(StringRef::Bytes(value))).ok_or(Error::Cold)
}

/// The entry, if its value is in RAM.
#[inline]
fn hot(entry: &Entry) -> Result<&Entry, Error> {
    if entry.is_cold() { Err(Error::Cold) } else { Ok(entry) }
}

#[inline]
fn object_of<'a, T: Object>(
    entry: Option<&'a Entry>,
    slots: &'a Slots,
) -> Result<Option<&'a T>, Error> {
    let Some(entry) = entry else { return Ok(None) };
    match entry.apart() {
        Some(value) => Ok(Some(value)),
        None => hot(entry)?.view_in(slots).map(Some).ok_or(Error::WrongType),
    }
}

impl<'a> Db<'a> {
    pub(crate) fn new(engine: &'static Engine, now: Millis, policy: Policy, random: Rng) -> Db<'a> {
        Db {
            engine,
            index: DbIndex(0),
            now,
            horizon: now,
            policy,
            locks: Locks::new(&engine.keyspace),
            touches: true,
            effects: Effects::default(),
            notes_own_keys: engine.upstream.is_replica(),
            is_import: false,
            stale: RefCell::default(),
            cold_met: RefCell::default(),
            shown: None,
            outbox: Outbox::new(engine),
            is_outside: false,
            is_for_operator: false,
            has_missed_stripe: Cell::new(false),
            demoted: Cell::new(0),
            hits: Cell::new(0),
            misses: Cell::new(0),
            random: RefCell::new(random),
            undo: None,
            held: None,
            to_hold: None,
            asker: None,
            background: None,
            blocks: Vec::new(),
            slots: Slots::default(),
        }
    }

    /// Marks the view as a background job's.
    pub(crate) fn set_background(&mut self, reader: &'a keyspace::world::Reader<'static>) {
        self.background = Some(reader);
    }

    /// The command has waited: its time is now.
    pub(crate) fn set_now(&mut self, now: Millis) {
        self.now = now;
        if !self.is_import {
            self.horizon = now;
        }
    }

    /// The time of this command.
    #[inline]
    pub fn now(&self) -> Millis {
        self.now
    }

    /// Whether a key that expires at this time is to be gone at once.
    #[inline]
    pub fn has_passed(&self, at: Millis) -> bool {
        at <= self.horizon && !self.engine.config.import_mode()
    }

    /// Says whether the commands are those of a client that imports data. With `import-mode` it
    /// deletes keys itself when their time has come.
    pub fn set_import_source(&mut self, is_source: bool) {
        let ignores_expiry = is_source && self.engine.config.import_mode();
        self.horizon = if ignores_expiry { Millis(i64::MIN) } else { self.now };
    }

    /// The commands are those that another server sends for slots that are its own: it says when
    /// keys end, and what happens to them is no event here.
    pub(crate) fn set_import(&mut self) {
        self.horizon = Millis(i64::MIN);
        self.is_import = true;
    }

    /// Whether what was done before is done again: from a file, or as a primary did it, or the
    /// server that had the slots.
    pub fn repeats_history(&self) -> bool {
        self.effects.is_replay || self.effects.is_stream || self.is_import
    }

    /// A uniform random number.
    pub fn random(&self) -> u64 {
        self.random.borrow_mut().next_u64()
    }

    /// What the access bits of entries mean at present.
    pub fn access_policy(&self) -> Policy {
        self.policy
    }

    /// Access bits for a new entry.
    pub fn fresh_access(&self) -> u32 {
        access::fresh(self.policy, self.now.0)
    }

    // ---- reaching a stripe --------------------------------------------------------------

    #[inline]
    fn data(&self, key: Key<'_>) -> &StripeData {
        self.locks.data(self.engine.keyspace.stripe_of(key))
    }

    #[inline]
    fn data_mut(&mut self, key: Key<'_>) -> &mut StripeData {
        if self.held.is_some() {
            self.lock_held(key);
        }
        self.locks.data_mut(self.engine.keyspace.stripe_of(key))
    }

    fn covers(&self, key: Key<'_>) -> bool {
        self.locks.held().covers(self.engine.keyspace.stripe_of(key))
    }

    #[inline]
    fn find(&self, key: Key<'_>) -> Option<&Entry> {
        self.find_in(self.index, key)
    }

    #[inline]
    fn find_in(&self, db: DbIndex, key: Key<'_>) -> Option<&Entry> {
        match &self.held {
            None => self.data(key).find(db, key),
            // The stripe that is locked may have changed since.
            Some(_) if self.covers(key) => self.data(key).find(db, key),
            Some(held) => held.find(db, key),
        }
    }

    // ---- reading ------------------------------------------------------------------------

    /// The entry, for a look that must leave no trace at all.
    pub fn lookup_no_effects(&self, key: Key<'_>) -> Option<&Entry> {
        self.lookup_no_effects_in(self.index, key)
    }

    /// The same in another database than the selected one.
    pub(crate) fn lookup_no_effects_in(&self, db: DbIndex, key: Key<'_>) -> Option<&Entry> {
        self.find_in(db, key).filter(|entry| !entry.is_expired(self.horizon))
    }

    /// The entry, without counting a hit or touching the key.
    #[inline]
    pub fn lookup_no_stats(&self, key: Key<'_>) -> Option<&Entry> {
        let entry = self.find(key)?;
        if entry.is_expired(self.horizon) {
            if self.engine.is_frozen() {
                return None;
            }
            let (db, key) = (self.index, Box::from(key.bytes));
            self.stale.borrow_mut().push(Stale { db, key, is_missed: false });
            return None;
        }
        Some(entry)
    }

    /// The entry, counted as a hit or miss, but not touched, and without an event: what OBJECT
    /// looks at.
    #[inline]
    pub fn lookup_no_notify(&self, key: Key<'_>) -> Option<&Entry> {
        let entry = self.lookup_no_stats(key);
        let counter = if entry.is_some() { &self.hits } else { &self.misses };
        counter.set(counter.get() + 1);
        entry
    }

    /// The entry, counted but not touched: what commands use that look at the key and not at its
    /// value (EXISTS, TTL, TYPE).
    #[inline]
    pub fn lookup_no_touch(&self, key: Key<'_>) -> Option<&Entry> {
        let entry = self.lookup_no_notify(key);
        if entry.is_none() && self.engine.notifies(Class::KEY_MISS) {
            self.miss(key);
        }
        entry
    }

    /// The entry, counted and touched: what ordinary reading commands use.
    #[inline]
    pub fn lookup_read(&self, key: Key<'_>) -> Option<&Entry> {
        let entry = self.lookup_no_touch(key)?;
        self.touch(entry);
        Some(entry)
    }

    /// [`Db::lookup_read`] of a key that the request does not name, for its value (the patterns of
    /// SORT). One whose value is not in RAM is left out: ask [`Db::check_values`] before the result
    /// counts.
    pub fn value(&self, key: Key<'_>) -> Option<&Entry> {
        let entry = self.lookup_read(key)?;
        if entry.is_cold() {
            self.cold_met.borrow_mut().push((self.index, Box::from(key.bytes)));
            return None;
        }
        Some(entry)
    }

    /// # Errors
    /// A value was left out by [`Db::value`]. The command, which must not have changed anything,
    /// is run again when it has been read.
    pub fn check_values(&self) -> Result<(), Error> {
        if self.cold_met.borrow().is_empty() { Ok(()) } else { Err(Error::Cold) }
    }

    /// The entry, touched but not counted: what commands use that go on to change the key.
    #[inline]
    pub fn lookup_write(&self, key: Key<'_>) -> Option<&Entry> {
        let entry = self.lookup_no_stats(key)?;
        self.touch(entry);
        Some(entry)
    }

    #[cold]
    fn miss(&self, key: Key<'_>) {
        let db = self.index;
        let mut stale = self.stale.borrow_mut();
        match stale.last_mut() {
            None => self.outbox.event(db, key.bytes, events::KEY_MISS),
            Some(last) if !last.is_missed && last.db == db && *last.key == *key.bytes => {
                last.is_missed = true;
            }
            Some(_) => stale.push(Stale { db, key: Box::from(key.bytes), is_missed: true }),
        }
    }

    /// Leaves keys that were found expired to the command that finds them next.
    pub(crate) fn forget_stale(&mut self) {
        for stale in std::mem::take(self.stale.get_mut()) {
            if stale.is_missed {
                self.outbox.event(stale.db, &stale.key, events::KEY_MISS);
            }
        }
    }

    #[inline]
    fn touch(&self, entry: &Entry) {
        if !self.touches {
            return;
        }
        let bits = entry.access();
        let touched = access::touched(self.policy, bits, self.now.0, || self.random() as u32);
        if touched != bits {
            entry.set_access(touched);
        }
    }

    /// Whether the key is there; counted, but not touched.
    #[inline]
    pub fn exists(&self, key: Key<'_>) -> bool {
        self.lookup_no_touch(key).is_some()
    }

    /// The value of a string key.
    #[inline]
    pub fn string(&self, key: Key<'_>) -> Result<Option<StringRef<'_>>, Error> {
        let entry = self.lookup_read(key);
        match entry {
            Some(entry) if entry.is_cold() => shown_string(entry, self.shown.as_ref()),
            entry => string_of(entry),
        }
    }

    /// The value of a key of type `T`: `List`, `Set`, `Hash` or `Zset`.
    #[inline]
    pub fn read<T: Object>(&self, key: Key<'_>) -> Result<Option<&T>, Error> {
        object_of(self.lookup_read(key), &self.slots)
    }

    /// [`Db::string`] of a key that the command goes on to change: not counted.
    #[inline]
    pub fn string_for_write(&self, key: Key<'_>) -> Result<Option<StringRef<'_>>, Error> {
        string_of(self.lookup_write(key))
    }

    /// [`Db::read`] of a key that the command goes on to change: not counted.
    #[inline]
    pub fn object_for_write<T: Object>(&self, key: Key<'_>) -> Result<Option<&T>, Error> {
        object_of(self.lookup_write(key), &self.slots)
    }

    /// The value of an entry, if it is a `T`.
    pub fn shown<'e, T: Object>(&'e self, entry: &'e Entry) -> Option<&'e T> {
        entry.view_in(&self.slots)
    }

    /// Forgets what has been shown of entries. Commands begin so.
    #[inline]
    pub(crate) fn clear_slots(&mut self) {
        self.slots.clear();
    }

    /// When the key expires; `None` too if it is absent.
    pub fn expiry(&self, key: Key<'_>) -> Option<Millis> {
        self.lookup_no_stats(key)?.expiry()
    }
}

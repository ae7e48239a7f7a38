//! What a command sees of the keyspace: one database, with Redis's rules of expiry applied.
//!
//! Reading methods take `&self`, so a command may look at many keys at once (SINTER); writing
//! methods take `&mut self`. A key whose time has come is absent to both. Every change must be
//! reported by [`Db::changed`] (or made by a method that says it reports): `commit` turns the
//! reports into journal entries, notifications, invalidations and wake-ups.
#![allow(unsafe_code)]

mod undo;

use crate::commit::{Cause, Change, Effects};
use crate::cx::MAX_IN_PLACE;
use crate::engine::Engine;
use crate::error::Error;
use crate::events::{self, Class, Event};
use crate::holds::{Held, NamedKey};
use crate::journal::Effect;
use crate::latency::Slow;
use crate::locks::{Locked, Locks};
use crate::long::Asker;
use crate::outbox::Outbox;
use keyspace::access::{self, Policy};
use keyspace::world::Stopped;
use keyspace::{
    DbIndex, Entry, HeapString, Key, Kind, Millis, Object, StringRef, StripeData, Value,
};
use std::cell::{Cell, RefCell};
use structs::random::Rng;
pub(crate) use undo::UndoLog;

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
    pub(crate) stale: RefCell<Vec<Stale>>,
    /// Keys whose values a command needs that it does not name, and that are not in RAM.
    pub(crate) cold_met: RefCell<Vec<(DbIndex, Box<[u8]>)>>,
    /// What others are told of it.
    pub(crate) outbox: Outbox<'a>,
    pub(crate) hits: Cell<u64>,
    pub(crate) misses: Cell<u64>,
    pub(crate) random: RefCell<Rng>,
    /// What the script that runs would have to put back.
    pub(crate) undo: Option<UndoLog>,
    /// The keys of a long command that runs without locks.
    pub(crate) held: Option<Held<'a>>,
    /// The keys of a long command that takes hold of them itself, until it does.
    pub(crate) to_hold: Option<Vec<NamedKey>>,
    /// The client that waits for this long command.
    pub(crate) asker: Option<&'a Asker>,
    /// Set where no client waits for this thread: then the world may be stopped between stripes.
    background: Option<&'a keyspace::world::Reader<'static>>,
    /// The request's words that came in blocks of their own.
    pub(crate) blocks: Vec<HeapString>,
}

fn string_of(entry: Option<&Entry>) -> Result<Option<StringRef<'_>>, Error> {
    entry.map(|entry| hot(entry)?.string().ok_or(Error::WrongType)).transpose()
}

/// The entry, if its value is in RAM.
#[inline]
fn hot(entry: &Entry) -> Result<&Entry, Error> {
    if entry.is_cold() { Err(Error::Cold) } else { Ok(entry) }
}

fn object_of<T: Object>(entry: Option<&Entry>) -> Result<Option<&T>, Error> {
    entry.map(|entry| hot(entry)?.object::<T>().ok_or(Error::WrongType)).transpose()
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
            stale: RefCell::default(),
            cold_met: RefCell::default(),
            outbox: Outbox::new(engine),
            hits: Cell::new(0),
            misses: Cell::new(0),
            random: RefCell::new(random),
            undo: None,
            held: None,
            to_hold: None,
            asker: None,
            background: None,
            blocks: Vec::new(),
        }
    }

    /// Marks the view as a background job's.
    pub(crate) fn set_background(&mut self, reader: &'a keyspace::world::Reader<'static>) {
        self.background = Some(reader);
    }

    /// The command has waited: its time is now.
    pub(crate) fn set_now(&mut self, now: Millis) {
        (self.now, self.horizon) = (now, now);
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

    /// Says whether the commands are those of a client that imports data. With `import-mode` it deletes
    /// keys itself when their time has come.
    pub fn set_import_source(&mut self, is_source: bool) {
        let ignores_expiry = is_source && self.engine.config.import_mode();
        self.horizon = if ignores_expiry { Millis(i64::MIN) } else { self.now };
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
        match &self.held {
            None => self.data(key).find(self.index, key),
            // The stripe that is locked may have changed since.
            Some(_) if self.covers(key) => self.data(key).find(self.index, key),
            Some(held) => held.find(self.index, key),
        }
    }

    // ---- reading ------------------------------------------------------------------------

    /// The entry, for a look that must leave no trace at all.
    pub fn glimpse(&self, key: Key<'_>) -> Option<&Entry> {
        self.find(key).filter(|entry| !entry.is_expired(self.horizon))
    }

    /// The entry, without counting a hit or touching the key.
    #[inline]
    pub fn peek(&self, key: Key<'_>) -> Option<&Entry> {
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
    pub fn inspect(&self, key: Key<'_>) -> Option<&Entry> {
        let entry = self.peek(key);
        let counter = if entry.is_some() { &self.hits } else { &self.misses };
        counter.set(counter.get() + 1);
        entry
    }

    /// The entry, counted but not touched: what commands use that look at the key and not at its
    /// value (EXISTS, TTL, TYPE).
    #[inline]
    pub fn look(&self, key: Key<'_>) -> Option<&Entry> {
        let entry = self.inspect(key);
        if entry.is_none() && self.engine.notifies(Class::KEY_MISS) {
            self.miss(key);
        }
        entry
    }

    /// The entry, counted and touched: what ordinary reading commands use.
    #[inline]
    pub fn entry(&self, key: Key<'_>) -> Option<&Entry> {
        let entry = self.look(key)?;
        self.touch(entry);
        Some(entry)
    }

    /// [`Db::entry`] of a key that the request does not name, for its value (the patterns of SORT).
    /// One whose value is not in RAM is left out: ask [`Db::check_values`] before the result counts.
    pub fn value(&self, key: Key<'_>) -> Option<&Entry> {
        let entry = self.entry(key)?;
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
    pub fn target(&self, key: Key<'_>) -> Option<&Entry> {
        let entry = self.peek(key)?;
        self.touch(entry);
        Some(entry)
    }

    #[cold]
    fn miss(&self, key: Key<'_>) {
        let db = self.index;
        let mut stale = self.stale.borrow_mut();
        match stale.last_mut() {
            None => crate::commit::notify(self, db, key.bytes, events::KEY_MISS),
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
                crate::commit::notify(self, stale.db, &stale.key, events::KEY_MISS);
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
        self.look(key).is_some()
    }

    /// The value of a string key.
    #[inline]
    pub fn string(&self, key: Key<'_>) -> Result<Option<StringRef<'_>>, Error> {
        string_of(self.entry(key))
    }

    /// The value of a key of type `T`: `List`, `Set`, `Hash` or `Zset`.
    #[inline]
    pub fn read<T: Object>(&self, key: Key<'_>) -> Result<Option<&T>, Error> {
        object_of(self.entry(key))
    }

    /// [`Db::string`] of a key that the command goes on to change: not counted.
    #[inline]
    pub fn target_string(&self, key: Key<'_>) -> Result<Option<StringRef<'_>>, Error> {
        string_of(self.target(key))
    }

    /// [`Db::read`] of a key that the command goes on to change: not counted.
    #[inline]
    pub fn target_object<T: Object>(&self, key: Key<'_>) -> Result<Option<&T>, Error> {
        object_of(self.target(key))
    }

    /// When the key expires; `None` too if it is absent.
    pub fn expiry(&self, key: Key<'_>) -> Option<Millis> {
        self.peek(key)?.expiry()
    }

    // ---- writing ------------------------------------------------------------------------

    /// The entry, touched, to change it in place; a key whose time has come is removed first,
    /// with all that follows.
    #[inline]
    fn live_mut(&mut self, key: Key<'_>) -> Option<&mut Entry> {
        let (horizon, index) = (self.horizon, self.index);
        let entry: *mut Entry = self.data_mut(key).find_mut(index, key)?;
        // SAFETY: the stripe stays locked and nothing is done to it before the next use. (The
        // borrow checker cannot see that the reference is given up where the key is removed.)
        let found = unsafe { &*entry };
        if found.is_expired(horizon) {
            self.expire(key);
            return None;
        }
        self.touch(found);
        // SAFETY: as above; touching changes only the entry's access bits, which are atomic.
        Some(unsafe { &mut *entry })
    }

    /// Removes the key if its time has come, with all that follows; says whether it is there.
    #[inline]
    fn settle(&mut self, key: Key<'_>) -> bool {
        self.live_mut(key).is_some()
    }

    /// Deletes the key if its time has come; else it is not so much as touched, so that commands
    /// that do not write may ask for it.
    pub fn remove_expired(&mut self, key: Key<'_>) {
        if self.find(key).is_some_and(|entry| entry.is_expired(self.horizon)) {
            self.expire(key);
        }
    }

    /// Deletes a key because its time has come.
    pub(crate) fn expire(&mut self, key: Key<'_>) {
        let index = self.index;
        let is_kept = match &self.held {
            Some(held) if !held.may_change(index, key) => true,
            _ => self.data_mut(key).is_held(key.hash),
        };
        if is_kept {
            // The next command that finds it after the long command deletes it. To this command it
            // is gone already, and so it must be to a reader of the journal.
            self.effects.propagate_deletion(self.engine, index, key.bytes);
            return;
        }
        if let Some(entry) = self.data_mut(key).remove(index, key) {
            self.engine.stats.expired.add(1);
            // A script that is undone puts it back.
            let entry = match &mut self.undo {
                Some(undo) => undo.keep(index, key, entry),
                None => Some(entry),
            };
            if let Some(entry) = entry {
                self.engine.timed(Slow::ExpireDel, || self.discard(entry));
            }
            self.effects.propagate_deletion(self.engine, index, key.bytes);
            self.effects.expired += 1;
            self.effects.dirty += 1;
            self.report(key, Some(events::EXPIRED), Cause::Time);
        }
    }

    /// The value of a key of type `T`, to change it in place. Report with [`Db::changed`], and
    /// call [`Db::remove_if_empty`] after removing elements.
    #[inline]
    pub fn write<T: Object>(&mut self, key: Key<'_>) -> Result<Option<&mut T>, Error> {
        match self.live_mut(key) {
            None => Ok(None),
            Some(entry) if entry.is_cold() => Err(Error::Cold),
            Some(entry) => entry.object_mut::<T>().map(Some).ok_or(Error::WrongType),
        }
    }

    /// The same, made empty if the key is absent; the command must put something in.
    #[inline]
    pub fn write_or_create<T: Object>(&mut self, key: Key<'_>) -> Result<&mut T, Error> {
        let index = self.index;
        if let Some(entry) = self.live_mut(key) {
            let entry: *mut Entry = entry;
            // SAFETY: the stripe stays locked and the entry is not moved; see `live_mut`.
            let entry = unsafe { &mut *entry };
            hot(entry)?;
            return entry.object_mut::<T>().ok_or(Error::WrongType);
        }
        let entry = Entry::new_object(key.bytes, T::empty(), None, self.fresh_access());
        self.data_mut(key).insert_absent(index, key.hash, entry);
        self.created(key);
        self.data_mut(key).object_mut::<T>(index, key).ok_or(Error::WrongType)
    }

    #[inline]
    fn created(&mut self, key: Key<'_>) {
        self.notify(key, events::NEW);
    }

    /// Removes the key, with a `del` event, if its collection is empty; says whether it did.
    #[inline]
    pub fn remove_if_empty<T: Object>(&mut self, key: Key<'_>) -> bool {
        let index = self.index;
        self.reach(self.engine.keyspace.stripe_of(key));
        let is_empty =
            self.data(key).find(index, key).and_then(Entry::object::<T>).is_some_and(T::is_empty);
        if is_empty {
            self.take(key);
            // What emptied it has been counted.
            self.report(key, Some(events::DEL), Cause::Command);
        }
        is_empty
    }

    /// The block that a word of the request came in, if it has one of its own.
    #[inline]
    pub(crate) fn block_of(&self, word: &[u8]) -> Option<HeapString> {
        let is_it = |block: &&HeapString| std::ptr::eq(block.as_slice(), word);
        self.blocks.iter().find(is_it).cloned()
    }

    /// Sets a string. The value is kept as a number if it spells one; a word that came in a block of its
    /// own is kept as that. Reports nothing.
    #[inline]
    pub fn set_string(&mut self, key: Key<'_>, value: &[u8], expiry: SetExpiry) {
        let block = self.block_of(value);
        let make = |expiry, access| match block.clone() {
            Some(block) => Entry::new_heap_string(key.bytes, block, expiry, access),
            None => Entry::new_string(key.bytes, value, expiry, access),
        };
        let (index, horizon, access) = (self.index, self.horizon, self.fresh_access());
        let touches = self.touches;
        let data = self.data_mut(key);
        let mut replaced = None;
        let found = data.update(index, key, |entry| {
            let old = entry.expiry();
            if old.is_some_and(|at| at < horizon) {
                return false;
            }
            let wanted = match expiry {
                SetExpiry::Clear => None,
                SetExpiry::Keep => old,
                SetExpiry::At(at) => Some(at),
            };
            if old == wanted && entry.overwrite_string(value) {
                if touches {
                    entry.set_access(access);
                }
                return true;
            }
            let new = make(wanted, access);
            replaced = Some(std::mem::replace(entry, new));
            true
        });
        if let Some(old) = replaced {
            self.discard(old);
        } else if found != Some(true) {
            if found.is_some() {
                // The old value's time had come: that is reported, and a new key created.
                self.expire(key);
            }
            let expiry = match expiry {
                SetExpiry::At(at) => Some(at),
                SetExpiry::Clear | SetExpiry::Keep => None,
            };
            let entry = make(expiry, access);
            self.data_mut(key).insert_absent(index, key.hash, entry);
            self.created(key);
        }
    }

    /// Replaces a string's number by what `change` makes of it (INCR); an absent key counts as
    /// 0 and is created. The expiry stays. Reports nothing.
    #[inline]
    pub fn update_integer(
        &mut self,
        key: Key<'_>,
        change: impl FnOnce(i64) -> Result<i64, Error>,
    ) -> Result<i64, Error> {
        let index = self.index;
        let Some(entry) = self.live_mut(key) else {
            let number = change(0)?;
            let entry = Entry::new_integer(key.bytes, number, None, self.fresh_access());
            self.data_mut(key).insert_absent(index, key.hash, entry);
            self.created(key);
            return Ok(number);
        };
        let old = hot(entry)?.string().ok_or(Error::WrongType)?;
        let number = change(old.integer().ok_or(Error::NotInteger)?)?;
        if !entry.overwrite_integer(number) {
            // The value is held in another form: another block takes its place.
            self.data_mut(key).update(index, key, |entry| {
                *entry = Entry::new_integer(key.bytes, number, entry.expiry(), entry.access());
            });
        }
        Ok(number)
    }

    /// Whether the command can still be run on a background thread instead.
    pub(crate) fn may_be_put_off(&self) -> bool {
        let is_in_place = matches!(self.locks.held(), Locked::One(_)) && self.asker.is_none();
        is_in_place && !self.effects.is_transaction && !self.effects.is_replay
    }

    /// The string of a key, in a block of its own, to edit it in place (APPEND, SETRANGE,
    /// SETBIT); created empty if the key is absent. Its encoding becomes `raw`.
    ///
    /// # Errors
    /// It is no string; or it is long and others refer to it ([`Error::TakesLong`]).
    pub fn edit_string(&mut self, key: Key<'_>) -> Result<&mut HeapString, Error> {
        let index = self.index;
        if let Some(entry) = self.live_mut(key) {
            hot(entry)?;
        } else {
            let string = HeapString::with_capacity(0);
            let entry = Entry::new_heap_string(key.bytes, string, None, self.fresh_access());
            self.data_mut(key).insert_absent(index, key.hash, entry);
            self.created(key);
        }
        let may_be_put_off = self.may_be_put_off();
        let string = self.data_mut(key).heap_string(index, key).ok_or(Error::WrongType)?;
        // The first change of a string that others refer to copies it.
        if may_be_put_off && string.len() > MAX_IN_PLACE && string.is_shared() {
            return Err(Error::TakesLong);
        }
        Ok(string)
    }

    /// Puts a value of any type into the place of whatever the key holds. Reports nothing.
    pub fn put(&mut self, key: Key<'_>, value: Value, expiry: Option<Millis>) {
        let entry = Entry::new(key.bytes, value, expiry, self.fresh_access());
        self.put_entry(key, entry);
    }

    /// The same with a ready entry, whose key must be this one.
    pub fn put_entry(&mut self, key: Key<'_>, entry: Entry) {
        if !self.replace(key, entry) {
            self.created(key);
        }
    }

    /// The same for a key that is thought of as deleted and created anew (RENAME, COPY, RESTORE).
    pub fn recreate(&mut self, key: Key<'_>, entry: Entry) {
        self.replace(key, entry);
        self.created(key);
    }

    /// Says whether the key held anything.
    fn replace(&mut self, key: Key<'_>, entry: Entry) -> bool {
        self.settle(key);
        let index = self.index;
        let replaced = self.data_mut(key).put(index, key.hash, entry);
        let was_there = replaced.is_some();
        if let Some(old) = replaced {
            self.discard(old);
        }
        was_there
    }

    /// Takes the entry out of the keyspace (RENAME, MOVE, GETDEL). Reports nothing.
    pub fn take(&mut self, key: Key<'_>) -> Option<Entry> {
        if !self.settle(key) {
            return None;
        }
        let index = self.index;
        self.data_mut(key).remove(index, key)
    }

    /// Deletes the key and reports `del`; says whether it was there. A big value is freed in
    /// the background.
    pub fn delete(&mut self, key: Key<'_>) -> bool {
        let Some(entry) = self.take(key) else { return false };
        self.discard(entry);
        self.changed(key, events::DEL);
        true
    }

    /// Frees a value, in the background if that takes long.
    #[inline]
    pub fn discard(&self, entry: Entry) {
        match entry.kind() {
            Kind::InlineString | Kind::Integer => drop(entry),
            _ => self.engine.background.free_entry(entry),
        }
    }

    /// Sets or clears the expiry of a key that is there. Reports nothing.
    pub fn set_expiry(&mut self, key: Key<'_>, expiry: Option<Millis>) -> bool {
        let index = self.index;
        self.settle(key) && self.data_mut(key).set_expiry(index, key, expiry)
    }

    /// Runs `work` with another database selected (MOVE, COPY … DB).
    pub fn in_db<R>(&mut self, db: DbIndex, work: impl FnOnce(&mut Db<'a>) -> R) -> R {
        let selected = std::mem::replace(&mut self.index, db);
        let result = work(self);
        self.index = selected;
        result
    }

    // ---- reporting ----------------------------------------------------------------------

    /// Reports that `key` was changed by this event. Call it once a key and change, after it.
    #[inline]
    pub fn changed(&mut self, key: Key<'_>, event: Event) {
        self.changed_in(key, event, 1);
    }

    /// As [`Db::changed`], in so many elements: each counts as a change since the last save.
    #[inline]
    pub fn changed_in(&mut self, key: Key<'_>, event: Event, elements: u64) {
        self.effects.dirty += elements;
        self.report(key, Some(event), Cause::Command);
    }

    /// Reports a change without an event of its own (the old key's clients must still forget it).
    pub fn changed_silently(&mut self, key: Key<'_>) {
        self.report(key, None, Cause::Command);
    }

    #[inline]
    pub(crate) fn report(&mut self, key: Key<'_>, event: Option<Event>, cause: Cause) {
        let stripe = self.engine.keyspace.stripe_of(key);
        self.reach(stripe);
        if self.locks.data(stripe).has_attachment() || self.engine.has_global_interest() {
            self.effects.changes.push(Change {
                db: self.index,
                key: Box::from(key.bytes),
                stripe,
                event,
                cause,
                is_event_only: false,
            });
        }
    }

    /// A further event of a key whose change is reported by [`Db::changed`] (SET with an expiry
    /// is `set` and `expire`). Events are published in the order they were reported in.
    #[inline]
    pub fn notify(&mut self, key: Key<'_>, event: Event) {
        if self.engine.notifies(event.class) {
            let stripe = self.engine.keyspace.stripe_of(key);
            self.effects.changes.push(Change {
                db: self.index,
                key: Box::from(key.bytes),
                stripe,
                event: Some(event),
                cause: Cause::Command,
                is_event_only: true,
            });
        }
    }

    /// Adds to the count of changes since the last save what no report counts.
    pub fn add_dirty(&mut self, changes: u64) {
        self.effects.dirty += changes;
    }

    /// What goes into the journal in place of the request itself: the same effect in commands
    /// that need no clock and no chance. `write` runs only if the journal has a reader.
    pub fn propagate_as(&mut self, write: impl FnOnce(&mut Effect<'_>)) {
        if self.effects.is_recorded(self.engine) {
            let index = self.index;
            self.effects.propagate_as(index, write);
        }
    }

    /// Whether the command has changed anything so far.
    pub fn is_dirty(&self) -> bool {
        self.effects.dirty > 0
    }

    // ---- walking ------------------------------------------------------------------------

    /// Visits every stripe in turn, locking each for the visit (not if all is locked anyway).
    /// For commands with `Flags::WALKS`, whose own keys, if any, are not locked.
    /// A long command's walk ends early when its result is no longer wanted.
    pub fn for_each_stripe(&self, mut visit: impl FnMut(usize, &StripeData)) {
        for index in 0..self.engine.keyspace.stripes().len() {
            if !self.is_wanted() {
                break;
            }
            self.with_stripe(index, |data| visit(index, data));
        }
    }

    /// Visits every stripe in turn, to change it. The world is stopped.
    pub fn for_each_stripe_mut(&mut self, mut visit: impl FnMut(usize, &mut StripeData)) {
        for index in 0..self.engine.keyspace.stripes().len() {
            visit(index, self.locks.data_mut(index));
        }
    }

    /// Reads one stripe, which is locked for the visit unless it is held.
    pub fn with_stripe<R>(&self, index: usize, visit: impl FnOnce(&StripeData) -> R) -> R {
        if self.locks.held().covers(index) {
            return visit(self.locks.data(index));
        }
        self.begin_visit();
        let result = visit(&self.engine.keyspace.stripe(index).lock());
        self.end_visit();
        result
    }

    /// Changes one stripe, which is locked for the visit unless it is held.
    pub(crate) fn with_stripe_mut<R>(
        &mut self,
        index: usize,
        visit: impl FnOnce(&mut StripeData) -> R,
    ) -> R {
        self.reach(index);
        if self.locks.held().covers(index) {
            return visit(self.locks.data_mut(index));
        }
        self.begin_visit();
        let result = visit(&mut self.engine.keyspace.stripe(index).lock());
        self.end_visit();
        result
    }

    /// A long command that holds its keys is outside the world, where no stripe may be locked.
    /// Whether it is that of a long command, which is outside the world or makes way for others.
    pub(crate) fn is_long(&self) -> bool {
        self.held.is_some() || self.background.is_some()
    }

    fn begin_visit(&self) {
        if let Some(held) = &self.held {
            assert!(!held.is_changing(), "a command that changes its keys one at a time walks");
            held.reader().enter();
        }
    }

    fn end_visit(&self) {
        if let Some(held) = &self.held {
            held.reader().leave();
        } else if let Some(reader) = self.background {
            crate::background::yield_world(reader);
        }
    }

    /// Holds all stripes because the world is stopped, until the locks are released.
    pub(crate) fn hold_world(&mut self, stopped: Stopped<'static>) {
        // SAFETY: threads lock stripes inside the world only, except those that load or save for a
        // command that holds the world, and waits for them.
        unsafe { self.locks.hold_world(stopped) }
    }

    /// Whether the world is stopped for this command.
    pub fn holds_world(&self) -> bool {
        *self.locks.held() == Locked::World
    }
}

//! Changing keys.
#![allow(unsafe_code)]

use super::{Db, SetExpiry, hot};
use crate::effects::Cause;
use crate::error::Error;
use crate::events;
use crate::latency::Slow;
use crate::locks::Locked;
use keyspace::access;
use keyspace::{DbIndex, Entry, Fillable, HeapString, Key, Kind, Millis, Object, Value};

/// More bytes are not copied or cleared by a reactor: it takes some tenths of a millisecond, and
/// several times as long where the memory is new.
pub(crate) const MAX_IN_PLACE: usize = 2 << 20;

impl<'a> Db<'a> {
    /// The entry, touched, to change it in place; a key whose time has come is removed first,
    /// with all that follows.
    #[inline]
    pub(super) fn live_mut(&mut self, key: Key<'_>) -> Option<&mut Entry> {
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

    /// The same, to change the value in place: a copy that it has outside RAM is given up, and a
    /// collection that lies in its entry gets its own block.
    #[inline]
    fn live_value_mut(&mut self, key: Key<'_>) -> Option<&mut Entry> {
        let index = self.index;
        let entry: *mut Entry = self.live_mut(key)?;
        // SAFETY: as in `live_mut`.
        if unsafe { &*entry }.needs_preparation() {
            return self.data_mut(key).ready(index, key);
        }
        // SAFETY: as in `live_mut`.
        Some(unsafe { &mut *entry })
    }

    /// Removes the key if its time has come, with all that follows; says whether it is there.
    #[inline]
    pub(super) fn settle(&mut self, key: Key<'_>) -> bool {
        self.live_mut(key).is_some()
    }

    /// Deletes the key if its time has come; else it is not so much as touched, so that commands
    /// that do not write may ask for it.
    pub fn remove_expired(&mut self, key: Key<'_>) {
        if self.find(key).is_some_and(|entry| entry.is_expired(self.horizon)) {
            self.expire(key);
        }
    }

    fn propagate_expiry(&mut self, index: DbIndex, key: Key<'_>) {
        let is_lazy = self.engine.config.lazyfree_lazy_expire();
        self.effects.propagate_deletion(&self.engine.journal, index, key.bytes, is_lazy);
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
            self.propagate_expiry(index, key);
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
            self.propagate_expiry(index, key);
            self.effects.expired += 1;
            self.effects.dirty += 1;
            self.report(key, Some(events::EXPIRED), Cause::Time);
        }
    }

    /// The value of a key of type `T`, to change it in place. Report with [`Db::changed`], and
    /// call [`Db::remove_if_empty`] after removing elements.
    #[inline]
    pub fn write<T: Object>(&mut self, key: Key<'_>) -> Result<Option<&mut T>, Error> {
        match self.live_value_mut(key) {
            None => Ok(None),
            Some(entry) if entry.is_cold() => Err(Error::Cold),
            Some(entry) => entry.object_mut::<T>().map(Some).ok_or(Error::WrongType),
        }
    }

    /// The same, made empty if the key is absent; the command must put something in.
    #[inline]
    pub fn write_or_create<T: Fillable>(&mut self, key: Key<'_>) -> Result<&mut T, Error> {
        let index = self.index;
        if let Some(entry) = self.live_value_mut(key) {
            let entry: *mut Entry = entry;
            // SAFETY: the stripe stays locked and the entry is not moved; see `live_mut`.
            let entry = unsafe { &mut *entry };
            hot(entry)?;
            return entry.object_mut::<T>().ok_or(Error::WrongType);
        }
        let entry = Entry::new_object(key.bytes, T::empty(), None, self.fresh_access());
        self.data_mut(key).insert_absent(index, key.hash, entry);
        self.data_mut(key).note_opened(index, key.hash);
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
        let is_empty = self
            .data(key)
            .find(index, key)
            .and_then(Entry::view::<T>)
            .is_some_and(|value| value.is_empty());
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

    /// Sets a string. The value is kept as a number if it spells one; a word that came in a block
    /// of its own is kept as that. Reports nothing.
    #[inline]
    pub fn set_string(&mut self, key: Key<'_>, value: &[u8], expiry: SetExpiry) {
        let block = self.block_of(value);
        let make = |expiry, access| match block.clone() {
            Some(block) => Entry::new_heap_string(key.bytes, block, expiry, access),
            None => Entry::new_string(key.bytes, value, expiry, access),
        };
        let (index, horizon, access) = (self.index, self.horizon, self.fresh_access());
        let (touches, policy) = (self.touches, self.policy);
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
                    entry.set_access(access::replaced(policy, entry.access(), access));
                }
                return true;
            }
            let access = match entry.is_cold() {
                true => access,
                false => access::replaced(policy, entry.access(), access),
            };
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
}

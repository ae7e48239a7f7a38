//! What a script would have to put back if it had to begin again.
//!
//! Before a command of the script changes a key for the first time, the key's entry is copied. Only
//! small values in RAM are: a script that changes another one cannot be undone from there on, and
//! needs the [turn](crate::scripts::Scripts) for that.

use super::Db;
use keyspace::{DbIndex, Entry, Key};

/// Elements and bytes of values that are copied.
const MAX_ELEMENTS: usize = 128;
const MAX_BYTES: usize = 16 * 1024;
/// Keys that are remembered.
const MAX_KEYS: usize = 256;

struct Before {
    db: DbIndex,
    key: Box<[u8]>,
    hash: u64,
    entry: Option<Entry>,
}

/// See the module.
#[derive(Default)]
pub(crate) struct UndoLog {
    keys: Vec<Before>,
}

/// The value is too large, or there are too many keys.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct TooMuch;

impl UndoLog {
    fn knows(&self, db: DbIndex, key: Key<'_>) -> bool {
        let is_it = |before: &Before| {
            before.hash == key.hash && before.db == db && *before.key == *key.bytes
        };
        self.keys.iter().any(is_it)
    }

    /// Keeps the entry of a key whose time has come and which was therefore deleted; gives it back
    /// if an earlier one is kept.
    pub(crate) fn keep(&mut self, db: DbIndex, key: Key<'_>, entry: Entry) -> Option<Entry> {
        if self.knows(db, key) {
            return Some(entry);
        }
        self.keys.push(Before {
            db,
            key: Box::from(key.bytes),
            hash: key.hash,
            entry: Some(entry),
        });
        None
    }
}

impl Db<'_> {
    /// Copies the entry of a key that is about to be changed, if a script runs that may be undone.
    ///
    /// # Errors
    /// It cannot be copied in little time; nothing was done.
    pub(crate) fn remember(&mut self, key: Key<'_>) -> Result<(), TooMuch> {
        let index = self.index;
        let Some(undo) = &self.undo else { return Ok(()) };
        if undo.knows(index, key) {
            return Ok(());
        }
        if undo.keys.len() >= MAX_KEYS {
            return Err(TooMuch);
        }
        let stripe = self.engine.keyspace.stripe_of(key);
        let found = self.locks.data(stripe).find(index, key);
        if found.is_some_and(|entry| !is_small(entry)) {
            return Err(TooMuch);
        }
        let entry = found.map(|entry| entry.duplicate(key.bytes, entry.expiry(), entry.access()));
        if let Some(undo) = &mut self.undo {
            undo.keys.push(Before { db: index, key: Box::from(key.bytes), hash: key.hash, entry });
        }
        Ok(())
    }

    /// Puts back what the script has changed, and forgets what was to be told of it.
    pub(crate) fn undo_all(&mut self) {
        let Some(undo) = self.undo.take() else { return };
        for before in undo.keys.into_iter().rev() {
            let key = Key { bytes: &before.key, hash: before.hash };
            let stripe = self.engine.keyspace.stripe_of(key);
            let data = self.locks.data_mut(stripe);
            let changed = match before.entry {
                Some(entry) => data.put(before.db, before.hash, entry),
                None => data.remove(before.db, key),
            };
            if let Some(entry) = changed {
                self.discard(entry);
            }
        }
        self.effects.forget();
        self.stale.get_mut().clear();
        // Caches that were asked to forget a key for nothing read it again.
        self.outbox.drop_messages();
        self.outbox.send();
    }
}

fn is_small(entry: &Entry) -> bool {
    // Two entries cannot refer to one cold value.
    !entry.is_cold() && entry.elements() <= MAX_ELEMENTS && entry.memory_usage() <= MAX_BYTES
}

//! Moves values out of RAM and back, under their stripe's lock.
//!
//! Neither changes the meaning of the key: there is no effect, no client is notified, and a
//! snapshot that has not taken the entry yet takes it in its new state. A value that a snapshot is
//! streaming stays in RAM. So do values that a long command holds, because they are read without a
//! lock.

use crate::cold::{self, ColdLocation, ColdRef};
use crate::entry::Entry;
use crate::kind::{Kind, Value};
use crate::stripe::StripeData;
use crate::types::{DbIndex, Key};
use structs::heap_string::HeapString;
use structs::stream::Stream;

impl StripeData {
    /// Returns where the value of a key is, if it is not in RAM.
    pub fn cold(&self, db: DbIndex, key: Key<'_>) -> Option<ColdRef> {
        self.find(db, key)?.cold()
    }

    /// Takes the value of a key out of RAM. Its cold value is at `location`. Returns an entry with
    /// the old value, or `None` if [`StripeData::may_make_cold`] does not allow it.
    pub fn make_cold(
        &mut self,
        db: DbIndex,
        key: Key<'_>,
        location: ColdLocation,
    ) -> Option<Entry> {
        if !self.may_make_cold(db, key) {
            return None;
        }
        let version = self.next_cold_version();
        self.before_move(db, key.hash);
        self.rewrite(db, key, |entry| {
            let cold = entry.as_cold(ColdRef { location, version });
            std::mem::replace(entry, cold)
        })
    }

    /// Returns whether the value of a key may leave RAM now. It must exist, be no number and not
    /// cold, have no expiring fields, and remember no messages of producers. No long command may
    /// hold the key, and no snapshot may stream the value.
    pub fn may_make_cold(&self, db: DbIndex, key: Key<'_>) -> bool {
        let may = |entry: &Entry| {
            !entry.is_cold()
                && entry.kind() != Kind::Integer
                && entry.noted_time().is_none()
                && entry.object::<Stream>().is_none_or(|stream| stream.idempotency().is_none())
        };
        self.is_free_to_move(db, key.hash) && self.find(db, key).is_some_and(may)
    }

    /// Moves a cold value. If an entry of any database with this hash has its value at `from`,
    /// calls `append` and makes the entry refer to the returned location. The value is unchanged,
    /// so a snapshot's mark moves with it. A copy is given up instead, because writing it now costs
    /// as much as writing it when the value leaves RAM, which may never happen.
    pub fn move_cold<E>(
        &mut self,
        hash: u64,
        from: ColdLocation,
        append: impl FnOnce() -> Result<ColdLocation, E>,
    ) -> Moved<E> {
        let is_held = self.is_held(hash);
        let is_it = |entry: &Entry| entry.location() == Some(from);
        let Some((db, entry)) = self.find_by_hash(hash, is_it) else { return Moved::Gone };
        if is_held {
            return Moved::Held;
        }
        if entry.is_copied() {
            let name: Box<[u8]> = Box::from(entry.key());
            self.drop_copy(db, Key { bytes: &name, hash });
            return Moved::Gone;
        }
        match append() {
            Ok(location) => {
                entry.set_cold_location(location);
                if let Some(store) = cold::store()
                    && store.unmark(from)
                {
                    store.mark(location);
                }
                Moved::Done
            }
            Err(error) => Moved::Failed(error),
        }
    }

    /// Installs a value that was read, if the key still has the requested cold value and no long
    /// command holds it. Returns whether it did.
    pub fn install(
        &mut self,
        db: DbIndex,
        key: Key<'_>,
        was: ColdRef,
        value: Value,
        record: Record,
    ) -> bool {
        if self.cold(db, key) != Some(was) || self.is_held(key.hash) {
            return false;
        }
        self.before_move(db, key.hash);
        let copy = (record == Record::Stays).then_some(was.location);
        let cold = self.rewrite(db, key, |entry| {
            let hot = thawed(entry, value, copy);
            std::mem::replace(entry, hot)
        });
        if copy.is_some() {
            cold::count_copy();
            cold.map(Entry::forget_location).is_some()
        } else {
            cold.is_some()
        }
    }

    /// Takes a value out of RAM that has a copy. Returns an entry with the old value, or `None` if
    /// there is no copy or [`StripeData::may_make_cold`] does not allow it.
    pub fn make_cold_again(&mut self, db: DbIndex, key: Key<'_>) -> Option<Entry> {
        if !self.may_make_cold(db, key) || self.find(db, key)?.copy().is_none() {
            return None;
        }
        let version = self.next_cold_version();
        self.before_move(db, key.hash);
        self.rewrite(db, key, |entry| {
            let location = entry.copy().expect("it was asked whether there is one");
            let cold = entry.as_cold(ColdRef { location, version });
            entry.take_copy();
            cold::uncount_copy();
            std::mem::replace(entry, cold)
        })
    }

    /// Gives up the copy of a value that is about to change.
    #[cold]
    pub fn drop_copy(&mut self, db: DbIndex, key: Key<'_>) {
        self.rewrite(db, key, Entry::drop_copy);
    }
}

/// What happens to the record from which a value was read.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Record {
    /// It stays as a copy.
    Stays,
    /// It is released.
    Goes,
}

/// The result of [`StripeData::move_cold`].
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Moved<E> {
    /// The entry refers to the new location.
    Done,
    /// There is no such entry.
    Gone,
    /// A long command holds the key and may be reading the entry.
    Held,
    /// There is no new location.
    Failed(E),
}

/// Returns the entry with its value, in the form in which it was stored before. Text that spells a
/// number stays text.
fn thawed(cold: &Entry, value: Value, copy: Option<ColdLocation>) -> Entry {
    let (key, expiry, access) = (cold.key(), cold.expiry(), cold.access());
    match (cold.kind(), value) {
        (Kind::HeapString, Value::String(bytes)) => {
            let string = HeapString::from_bytes(&bytes);
            Entry::new_heap_string(key, string, expiry, access).with_copy(copy)
        }
        (_, Value::String(bytes)) => Entry::new_copied_string(key, &bytes, expiry, access, copy),
        (_, value) => Entry::new(key, value, expiry, access).with_copy(copy),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cold::tests::keep;
    use crate::keyspace::{Assignment, Keyspace, tests::with};
    use crate::types::Millis;
    use structs::hash::{Hash, HashLimits};

    const DB: DbIndex = DbIndex(0);
    const LONG: &[u8] = &[b'k'; 300];

    fn put(keyspace: &Keyspace, entry: Entry) {
        let name = entry.key().to_vec();
        with(keyspace, &name, |data, key| drop(data.put(DB, key.hash, entry)));
    }

    fn freeze(keyspace: &Keyspace, name: &[u8]) -> Option<ColdRef> {
        with(keyspace, name, |data, key| {
            let location =
                data.find(DB, key).filter(|entry| !entry.is_cold()).map(|_| keep(name))?;
            data.make_cold(DB, key, location)?;
            data.cold(DB, key)
        })
    }

    #[test]
    fn a_cold_entry_keeps_all_but_its_value() {
        let keyspace = Keyspace::new(2, Assignment::ByHash);
        let mut hash = Hash::new();
        for number in 0..1000 {
            hash.set(format!("f{number}").as_bytes(), &[b'v'; 50], &HashLimits::default());
        }
        for (name, expiry) in
            [(&b"h"[..], None), (LONG, None), (b"e", Some(Millis(5))), (LONG, Some(Millis(9)))]
        {
            put(&keyspace, Entry::new_object(name, hash.clone(), expiry, 77));
            assert!(freeze(&keyspace, name).is_some());
            with(&keyspace, name, |data, key| {
                let entry = data.find(DB, key).expect("it is there");
                assert!(entry.is_cold() && entry.key() == name && entry.expiry() == expiry);
                assert_eq!((entry.kind(), entry.access()), (Kind::Hash, 77));
                assert_eq!((entry.encoding(), entry.elements()), ("hashtable", 512));
                assert!(entry.value_bytes() > 50_000 && entry.memory_usage() < 400);
                assert_eq!(data.expiring_count(DB), usize::from(expiry.is_some()));
            });
        }
    }

    #[test]
    fn a_key_of_16_bytes_takes_32() {
        let entry = Entry::new_string(b"a key of sixteen", &[b'x'; 90], None, 0);
        let cold = entry.as_cold(ColdRef { location: keep(b""), version: 1 });
        assert_eq!((cold.own_bytes(), cold.memory_usage()), (32, 32));
        assert_eq!(cold.encoding(), "embstr");
    }

    #[test]
    fn only_the_value_that_was_asked_for_is_installed() {
        let keyspace = Keyspace::new(1, Assignment::ByHash);
        let install = |was: ColdRef| {
            with(&keyspace, b"k", |data, key| {
                data.install(DB, key, was, Value::String(b"12".to_vec()), Record::Goes)
            })
        };
        put(&keyspace, Entry::new_text(b"k", b"12", Some(Millis(3)), 4));
        let first = freeze(&keyspace, b"k").expect("it was not cold");
        assert!(freeze(&keyspace, b"k").is_none(), "it is cold already");
        put(&keyspace, Entry::new_text(b"k", b"13", None, 0));
        assert!(!install(first), "there is another value");
        let second = freeze(&keyspace, b"k").expect("it was not cold");
        assert!(!install(first), "there is another cold value");
        assert!(!install(ColdRef { location: second.location, ..first }));
        assert!(install(second) && !install(second));
        with(&keyspace, b"k", |data, key| {
            let entry = data.find(DB, key).expect("it is there");
            assert_eq!((entry.kind(), entry.encoding()), (Kind::InlineString, "embstr"));
            assert!(data.remove(DB, key).is_some());
        });
        assert!(!install(second), "the key is gone");
    }

    #[test]
    #[should_panic(expected = "the value of a cold entry was used")]
    fn the_value_of_a_cold_entry_is_not_made_up() {
        let entry = Entry::new_string(b"k", b"v", None, 0);
        let cold = entry.as_cold(ColdRef { location: keep(b""), version: 0 });
        let _ = cold.view::<Hash>();
    }

    #[test]
    fn a_value_moves_while_nobody_holds_its_key() {
        let keyspace = Keyspace::new(1, Assignment::ByHash);
        put(&keyspace, Entry::new_text(b"k", b"v", None, 0));
        let was = freeze(&keyspace, b"k").expect("it was not cold");
        let (from, to) = (was.location, keep(b"v"));
        let move_it = |to| {
            with(&keyspace, b"k", |data, key| data.move_cold(key.hash, from, || Ok::<_, ()>(to)))
        };
        with(&keyspace, b"k", |data, key| {
            assert_eq!(data.move_cold(key.hash, to, || Ok::<_, ()>(from)), Moved::Gone);
            assert_eq!(data.move_cold(key.hash, from, || Err("full")), Moved::Failed("full"));
            let hold = crate::Hold { hash: key.hash, holder: 1, writes: false, is_wanted: false };
            data.hold(DB, key, hold);
        });
        assert_eq!(move_it(to), Moved::Held);
        with(&keyspace, b"k", |data, _| data.end_holds(1));
        assert_eq!((move_it(to), move_it(to)), (Moved::Done, Moved::Gone));
        with(&keyspace, b"k", |data, key| {
            assert_eq!(data.cold(DB, key), Some(ColdRef { location: to, ..was }));
            let value = Value::String(b"v".to_vec());
            assert!(!data.install(DB, key, was, value, Record::Stays), "it was elsewhere");
        });
    }

    #[test]
    fn numbers_and_held_keys_stay() {
        let keyspace = Keyspace::new(1, Assignment::ByHash);
        put(&keyspace, Entry::new_integer(b"n", 5, None, 0));
        assert!(freeze(&keyspace, b"n").is_none());
        put(&keyspace, Entry::new_text(b"k", b"v", None, 0));
        with(&keyspace, b"k", |data, key| {
            let hold = crate::Hold { hash: key.hash, holder: 1, writes: false, is_wanted: false };
            data.hold(DB, key, hold);
        });
        assert!(freeze(&keyspace, b"k").is_none());
        with(&keyspace, b"k", |data, _| data.end_holds(1));
        assert!(freeze(&keyspace, b"k").is_some());
    }
}

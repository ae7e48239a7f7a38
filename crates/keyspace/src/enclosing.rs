//! Small collections that are being changed.
//!
//! A small collection lies in its entry, where it is only read. To be changed it gets a block of
//! its own ([`StripeData::ready`]), and what a command makes has one from the beginning: it is
//! *open*. Changing it costs nothing more as long as it stays open. A stripe remembers what was
//! opened; while little is, a thread takes it into the entries again ([`StripeData::due`],
//! [`StripeData::enclose`]). See `docs/internals/keyspace.md`.

use crate::entry::{Entry, MAX_KEY};
use crate::opened::Due;
use crate::stripe::StripeData;
use crate::types::{DbIndex, Key};

impl StripeData {
    /// Makes the value of an entry ready to be changed: gives up its copy, and opens a collection
    /// that lies in the entry, which moves. Returns the entry.
    #[cold]
    pub fn ready(&mut self, db: DbIndex, key: Key<'_>) -> Option<&mut Entry> {
        let entry = self.find(db, key)?;
        let (is_copied, is_inline) = (entry.is_copied(), entry.is_inline());
        if is_copied {
            self.drop_copy(db, key);
        }
        if is_inline {
            self.rewrite(db, key, Entry::open);
            self.note_opened(db, key.hash);
        }
        self.find_mut(db, key)
    }

    /// Remembers that the collection of a key is open.
    pub fn note_opened(&mut self, db: DbIndex, hash: u64) {
        self.opened.note((db, hash));
    }

    /// Returns whether [`StripeData::due`] has something to look at.
    pub fn has_opened(&self) -> bool {
        !self.opened.is_empty()
    }

    /// Returns what was opened before the last look, and begins the next time. The caller looks
    /// from time to time, and encloses what is due.
    pub fn due(&mut self) -> Due<(DbIndex, u64)> {
        self.opened.due()
    }

    /// Takes the collection of a key into its entry, which moves, if it is small and nothing reads
    /// it without the lock.
    pub fn enclose(&mut self, db: DbIndex, key: Key<'_>) {
        if !self.holds_any(|held| held == key.hash) && self.is_free_to_move(db, key.hash) {
            self.before_move(db, key.hash);
            self.rewrite(db, key, Entry::enclose);
        }
    }

    /// Does the same for an entry whose key has this hash, if there is one with something to take
    /// in.
    pub fn enclose_by_hash(&mut self, db: DbIndex, hash: u64) {
        let mut name = [0; MAX_KEY];
        // Keys may have the same place in a table.
        let is_it = |entry: &Entry| entry.can_be_enclosed() && Key::new(entry.key()).hash == hash;
        let tables = self.held_tables_mut(db, hash);
        let Some(entry) = tables.and_then(|tables| tables.entries.find_mut(hash, is_it)) else {
            return;
        };
        let Some(to) = name.get_mut(..entry.key().len()) else { return };
        to.copy_from_slice(entry.key());
        let key = Key { bytes: to, hash };
        self.enclose(db, key);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::keyspace::{Assignment, Keyspace};
    use crate::types::Millis;
    use structs::set::{Set, SetLimits};

    const DB: DbIndex = DbIndex(0);

    fn add(data: &mut StripeData, name: &[u8], member: &[u8]) {
        let set = data.object_mut::<Set>(DB, Key::new(name)).expect("it is a set");
        set.insert(member, &SetLimits::default());
    }

    fn is_inline(data: &StripeData, name: &[u8]) -> bool {
        data.find(DB, Key::new(name)).expect("it is there").is_inline()
    }

    fn with_sets(run: impl FnOnce(&mut StripeData)) {
        let keyspace = Keyspace::new(1, Assignment::ByHash);
        let mut data = keyspace.stripe(0).lock();
        for name in [b"a", b"b", b"c"] {
            let expiry = (name == b"b").then_some(Millis(9));
            let mut set = Set::empty();
            set.insert(b"1", &SetLimits::default());
            let hash = Key::new(name).hash;
            data.insert_absent(DB, hash, Entry::new(name, set.into(), expiry, 3));
        }
        run(&mut data);
    }

    /// Looks as the thread does.
    fn look(data: &mut StripeData) {
        let Due::These(due) = data.due() else { panic!("they are known") };
        due.into_iter().for_each(|(db, hash)| data.enclose_by_hash(db, hash));
    }

    #[test]
    fn what_was_opened_before_the_last_look_is_enclosed() {
        with_sets(|data| {
            add(data, b"a", b"2");
            add(data, b"b", b"2");
            look(data);
            assert!(!is_inline(data, b"a") && !is_inline(data, b"b"));
            add(data, b"c", b"2");
            look(data);
            assert!(is_inline(data, b"a") && is_inline(data, b"b") && !is_inline(data, b"c"));
            look(data);
            assert!(is_inline(data, b"c") && !data.has_opened());
            let b = data.find(DB, Key::new(b"b")).unwrap();
            assert_eq!((b.expiry(), b.access()), (Some(Millis(9)), 3));
            assert_eq!(b.view::<Set>().unwrap().len(), 2);
            let expiring = data.tables(DB).flat_map(|tables| tables.expiring().iter());
            assert!(expiring.map(|alias| alias.entry().key()).eq([b"b"]));
        });
    }

    #[test]
    fn what_is_held_stays_where_it_is() {
        with_sets(|data| {
            add(data, b"a", b"2");
            let key = Key::new(b"a");
            let hold =
                crate::holds::Hold { hash: key.hash, holder: 1, writes: true, is_wanted: false };
            data.hold(DB, key, hold).expect("it is there");
            let address = data.find(DB, key).unwrap().address();
            data.begin_change(1);
            (0..3).for_each(|_| look(data));
            assert!(!is_inline(data, b"a"));
            assert_eq!(data.find(DB, key).unwrap().address(), address);
            data.end_change();
            data.end_holds(1);
        });
    }

    #[test]
    fn what_is_gone_or_has_another_value_does_not_matter() {
        with_sets(|data| {
            add(data, b"a", b"2");
            data.remove(DB, Key::new(b"a"));
            add(data, b"b", b"2");
            data.put(DB, Key::new(b"b").hash, Entry::new_string(b"b", b"text", None, 0));
            add(data, b"c", b"2");
            (0..3).for_each(|_| look(data));
            assert!(is_inline(data, b"c"));
            assert!(data.find(DB, Key::new(b"b")).unwrap().string().is_some());
        });
    }
}

//! Holds: keys on which a long command works without keeping their stripe's lock.
//!
//! A hold is a promise of the stripe to one long command: the entry, if there is one, stays
//! unchanged in its place until the hold ends. Other commands may read it under the lock as always.
//! A command that changes a held key has to wait. The engine checks this before it runs a command,
//! and [`StripeData`] asserts it at every change. If the holder holds a key for writing, it changes
//! the key itself under the lock, between [`StripeData::begin_change`] and
//! [`StripeData::end_change`]. Its holds remain meanwhile.
//!
//! The holds of a stripe are sorted by hash, so a command may hold very many keys.
//!
//! A hold identifies a key only by its hash, in any database. Two keys with the same hash are
//! extremely rare, and only wait for each other.
#![allow(unsafe_code)]

use crate::entry::Entry;
use crate::stripe::StripeData;
use crate::types::{DbIndex, Key};
use std::ops::Range;
use std::ptr::{self, NonNull};

/// One command's hold of one key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Hold {
    /// The key's hash.
    pub hash: u64,
    /// The command.
    pub holder: u64,
    /// Whether the command will change the key in the end. Then no other command may hold the key.
    pub writes: bool,
    /// Whether a command waits for the hold to end. No further hold of the key is granted until
    /// then.
    pub is_wanted: bool,
}

/// An entry whose key is held. An alias, not an owner.
#[derive(Debug)]
#[repr(transparent)]
pub struct HeldEntry(NonNull<u8>);

// SAFETY: an entry may be read from any thread, and a held entry does not change.
unsafe impl Send for HeldEntry {}

impl HeldEntry {
    /// Returns the entry.
    ///
    /// # Safety
    /// The hold must last as long as the reference is used.
    pub unsafe fn entry(&self) -> &Entry {
        // SAFETY: `Entry` is transparent over the same address, and alive while it is held.
        unsafe { &*ptr::from_ref(&self.0).cast::<Entry>() }
    }
}

impl StripeData {
    /// Returns whether a command may hold a key in addition to its present holders.
    pub fn may_hold(&self, hash: u64, writes: bool) -> bool {
        let mut of_key = self.holds()[self.holds_of(hash)].iter();
        of_key.all(|hold| !writes && !hold.writes && !hold.is_wanted)
    }

    /// Returns the indices of the holds of a key.
    fn holds_of(&self, hash: u64) -> Range<usize> {
        let start = self.holds().partition_point(|hold| hold.hash < hash);
        let count = self.holds()[start..].iter().take_while(|hold| hold.hash == hash).count();
        start..start + count
    }

    /// Grants a hold. Returns the protected entry of the key in `db`, if there is one.
    pub fn hold(&mut self, db: DbIndex, key: Key<'_>, hold: Hold) -> Option<HeldEntry> {
        debug_assert!(self.may_hold(hold.hash, hold.writes));
        let at = self.holds_of(hold.hash).end;
        self.holds_mut().insert(at, hold);
        self.held_entry(db, key)
    }

    /// Returns the entry that a hold of a key protects, if there is one.
    pub fn held_entry(&self, db: DbIndex, key: Key<'_>) -> Option<HeldEntry> {
        self.find(db, key).map(|entry| HeldEntry(entry.address()))
    }

    /// Allows changes of the keys that this command holds, until [`StripeData::end_change`] under
    /// the same lock.
    pub fn begin_change(&mut self, holder: u64) {
        self.changer = holder;
    }

    /// Protects the keys of the command again.
    pub fn end_change(&mut self) {
        self.changer = 0;
    }

    /// Returns whether the key is held by any command but the one that is changing the stripe.
    pub fn is_held(&self, hash: u64) -> bool {
        let mut of_key = self.holds()[self.holds_of(hash)].iter();
        of_key.any(|hold| hold.holder != self.changer)
    }

    /// Returns whether any key is held whose hash is meant.
    pub fn holds_any(&self, is_meant: impl Fn(u64) -> bool) -> bool {
        self.holds().iter().any(|hold| is_meant(hold.hash))
    }

    /// Returns whether this command holds the key.
    pub fn is_held_by(&self, hash: u64, holder: u64) -> bool {
        self.holds()[self.holds_of(hash)].iter().any(|hold| hold.holder == holder)
    }

    /// Returns whether the key is held. If so, records that a command waits for it.
    pub fn want(&mut self, hash: u64) -> bool {
        if self.holds_of(hash).is_empty() {
            return false;
        }
        let of_key = self.holds_of(hash);
        self.holds_mut()[of_key].iter_mut().for_each(|hold| hold.is_wanted = true);
        true
    }

    /// Ends all holds of a command. Returns whether a command waited for one of them.
    pub fn end_holds(&mut self, holder: u64) -> bool {
        let was_wanted = self.holds().iter().any(|hold| hold.holder == holder && hold.is_wanted);
        if !self.holds().is_empty() {
            self.holds_mut().retain(|hold| hold.holder != holder);
            self.drop_empty_holds();
        }
        was_wanted
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::keyspace::{Assignment, Keyspace};

    fn with_stripe(run: impl FnOnce(&mut StripeData)) {
        let keyspace = Keyspace::new(1, Assignment::ByHash);
        run(&mut keyspace.stripe(0).lock());
    }

    fn hold(holder: u64, writes: bool) -> Hold {
        Hold { hash: Key::new(b"key").hash, holder, writes, is_wanted: false }
    }

    #[test]
    fn readers_share_and_writers_do_not() {
        with_stripe(|data| {
            let key = Key::new(b"key");
            data.insert_absent(DbIndex(0), key.hash, Entry::new_string(b"key", b"v", None, 0));
            let held = data.hold(DbIndex(0), key, hold(1, false)).expect("it is there");
            // SAFETY: the hold ends below.
            assert_eq!(unsafe { held.entry() }.key(), b"key");
            assert!(data.may_hold(key.hash, false) && !data.may_hold(key.hash, true));
            assert!(data.hold(DbIndex(0), key, hold(2, false)).is_some());
            assert!(!data.end_holds(1) && data.is_held(key.hash));
            assert!(!data.end_holds(2) && !data.is_held(key.hash));
            assert!(data.hold(DbIndex(0), key, hold(3, true)).is_some());
            assert!(!data.may_hold(key.hash, false));
            data.end_holds(3);
        });
    }

    #[test]
    fn the_holder_changes_what_it_holds_and_no_other_command_does() {
        with_stripe(|data| {
            let key = Key::new(b"key");
            data.hold(DbIndex(0), key, hold(1, true));
            assert!(data.is_held_by(key.hash, 1) && !data.is_held_by(key.hash, 2));
            data.begin_change(1);
            assert!(!data.is_held(key.hash));
            data.insert_absent(DbIndex(0), key.hash, Entry::new_string(b"key", b"v", None, 0));
            data.end_change();
            assert!(data.is_held(key.hash) && data.held_entry(DbIndex(0), key).is_some());
            data.begin_change(2);
            assert!(data.is_held(key.hash));
            data.end_change();
            data.end_holds(1);
        });
    }

    #[test]
    fn many_keys_are_held_at_once() {
        with_stripe(|data| {
            let names: Vec<String> = (0..500).map(|number| format!("key:{number}")).collect();
            for (holder, name) in names.iter().enumerate() {
                let key = Key::new(name.as_bytes());
                let hold = Hold { hash: key.hash, holder: holder as u64 % 3 + 1, ..hold(1, false) };
                data.hold(DbIndex(0), key, hold);
            }
            let is_held =
                |data: &StripeData, name: &String| data.is_held(Key::new(name.as_bytes()).hash);
            assert!(names.iter().all(|name| is_held(data, name)));
            data.end_holds(2);
            let held = names.iter().filter(|name| is_held(data, name)).count();
            assert_eq!(held, 500 - 167);
            data.end_holds(1);
            data.end_holds(3);
        });
    }

    #[test]
    fn who_is_waited_for_shares_no_more() {
        with_stripe(|data| {
            let key = Key::new(b"key");
            assert!(!data.want(key.hash));
            data.hold(DbIndex(0), key, hold(1, false));
            assert!(data.want(key.hash));
            assert!(!data.may_hold(key.hash, false));
            assert!(data.end_holds(1));
            assert!(data.may_hold(key.hash, true));
        });
    }
}

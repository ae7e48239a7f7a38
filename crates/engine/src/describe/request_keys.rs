//! The keys of one request, found once: where each is, how it is used, its hash, its stripe and, in
//! cluster mode, its slot, which is a part of the hash.
//!
//! Everything that asks about a request's keys asks this value: the locks, the prefetch, long
//! commands and their holds, the estimate of a request's effort, client-side caching and COMMAND
//! GETKEYS. For EXEC it is the union of its queue, collected while the commands are queued.
//!
//! A command with exactly one key at a fixed place ([`Resolved::single_key`]) needs no more than
//! that key's stripe as long as nothing special is going on. Its description is made when it is
//! first asked for (`Cx::find_keys`), which is seldom.

use crate::args::Args;
use crate::command::{Command, Flags, Group, KeyFlags};
use crate::locks::Locked;
use crate::table::Resolved;
use keyspace::snapshot::Touch;
use keyspace::{DbIndex, Key, Keyspace, Slot, Stripe};
use spec::keys::{self, InvalidKeys};
use std::ops::Deref;

/// What a command does with a key.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum KeyUse {
    /// It reads the value.
    Read,
    /// It changes the value in place.
    Change,
    /// It replaces the value without reading it.
    Overwrite,
    /// It deletes the key without reading the value.
    Delete,
}

impl KeyUse {
    /// What the flags of a key specification say.
    pub fn of(flags: KeyFlags) -> KeyUse {
        if flags.has(KeyFlags::RO) {
            KeyUse::Read
        } else if flags.has(KeyFlags::OW) {
            KeyUse::Overwrite
        } else if flags.has(KeyFlags::RM) {
            KeyUse::Delete
        } else {
            KeyUse::Change
        }
    }
}

/// A key of a request.
#[derive(Clone, Copy, Debug)]
pub struct RequestKey {
    /// The key's hash.
    pub hash: u64,
    word: u32,
    stripe: u16,
    /// Whether the command's group is about values with elements.
    is_of_elements: bool,
    /// What the specification says of it.
    pub flags: KeyFlags,
}

impl RequestKey {
    fn new(
        keyspace: &Keyspace,
        command: &Command,
        key: Key<'_>,
        word: usize,
        flags: KeyFlags,
    ) -> Self {
        RequestKey {
            hash: key.hash,
            word: word as u32,
            stripe: keyspace.stripe_of(key) as u16,
            is_of_elements: matches!(command.group, Group::Hash | Group::Set | Group::SortedSet),
            flags,
        }
    }

    /// The word that it is.
    #[inline]
    pub fn word(&self) -> usize {
        self.word as usize
    }

    /// The stripe that it is in.
    #[inline]
    pub fn stripe(&self) -> usize {
        usize::from(self.stripe)
    }

    /// Its slot, where keys are assigned by slot. It was computed with the hash.
    pub fn slot(&self, keyspace: &Keyspace) -> Option<Slot> {
        keyspace.slot_of(self.hash)
    }

    /// The key itself, of the request that it was found in.
    #[inline]
    pub fn key<'w>(&self, words: &[&'w [u8]]) -> Key<'w> {
        Key { bytes: words[self.word()], hash: self.hash }
    }

    /// What the command does with it.
    pub fn usage(&self) -> KeyUse {
        KeyUse::of(self.flags)
    }

    /// What the command does to it, for a snapshot that streams its value.
    pub(crate) fn touch(&self) -> Touch {
        let is_partial = self.usage() == KeyUse::Change && self.is_of_elements;
        if is_partial { Touch::Elements } else { Touch::Whole }
    }
}

/// See the module.
#[derive(Default, Debug)]
pub struct RequestKeys {
    keys: Vec<RequestKey>,
    is_found: bool,
    is_incomplete: bool,
}

impl Deref for RequestKeys {
    type Target = [RequestKey];

    fn deref(&self) -> &[RequestKey] {
        &self.keys
    }
}

impl RequestKeys {
    /// The keys of a request of `command`, in the order of its specifications. `words` are as many
    /// as the row's arity asks for.
    pub fn of(keyspace: &Keyspace, command: &Command, words: &[&[u8]]) -> RequestKeys {
        let mut keys = RequestKeys::default();
        keys.add(keyspace, command, words);
        keys
    }

    /// Describes the keys of a request, unless that was done before. A command that runs a queue
    /// has the keys of it.
    pub(crate) fn find(
        &mut self,
        keyspace: &Keyspace,
        row: &Resolved,
        args: Args<'_>,
        queue: Option<&RequestKeys>,
    ) {
        if self.is_found {
            return;
        }
        if row.command.flags.has(Flags::RUNS_QUEUE) {
            self.is_found = true;
            self.keys.extend_from_slice(queue.map_or(&[], |queue| &queue.keys));
        } else {
            self.add(keyspace, row.command, args.words());
        }
    }

    /// Adds the keys of a request.
    pub(crate) fn add(&mut self, keyspace: &Keyspace, command: &Command, words: &[&[u8]]) {
        self.is_found = true;
        let outcome = keys::for_each_key(command, words, |word, flags| {
            let key = RequestKey::new(keyspace, command, Key::new(words[word]), word, flags);
            self.keys.push(key);
        });
        self.is_incomplete |= outcome.is_err();
    }

    /// Whether all keys were found.
    ///
    /// # Errors
    /// The request does not have the form that its command's keys need. It runs with the locks of
    /// those that were found, and answers with a syntax error of its own.
    pub fn check(&self) -> Result<(), InvalidKeys> {
        if self.is_incomplete { Err(InvalidKeys) } else { Ok(()) }
    }

    /// Forgets them: the next request begins.
    #[inline]
    pub(crate) fn clear(&mut self) {
        self.keys.clear();
        self.is_found = false;
        self.is_incomplete = false;
    }

    /// The stripes they are in.
    pub fn stripes(&self) -> Locked {
        let mut need = Locked::None;
        self.keys.iter().for_each(|key| need.add(key.stripe()));
        need
    }

    /// Brings their buckets into the cache and then their entries, many at once instead of one
    /// after the other. The caller is inside the world.
    pub(crate) fn prefetch(&self, keyspace: &Keyspace, db: DbIndex) {
        /// About what a core can have under way.
        const TOGETHER: usize = 32;
        /// Of more keys the first would be gone from the cache before the last has come.
        const MAX_KEYS: usize = 8192;
        if !(2..=MAX_KEYS).contains(&self.keys.len()) {
            return;
        }
        for together in self.keys.chunks(TOGETHER) {
            let keys = together.iter().map(|key| (key.stripe(), key.hash));
            prefetch_keys(keyspace, db, keys);
        }
    }

    /// Gives the memory of a request with very many keys back.
    pub(crate) fn shrink(&mut self) {
        self.clear();
        if self.keys.capacity() > resp::KEPT_WORDS {
            self.keys = Vec::new();
        }
    }
}

/// Brings the entries of some keys, given as stripe and hash, into the cache: what leads to them is
/// asked for step by step, for all of them at once. The stripes' heads are there or on their way.
/// The caller is inside the world.
#[inline(always)]
pub(crate) fn prefetch_keys(
    keyspace: &Keyspace,
    db: DbIndex,
    keys: impl Iterator<Item = (usize, u64)> + Clone,
) {
    if keyspace.has_slots() {
        keys.clone().for_each(|(stripe, hash)| prefetch_table(keyspace.stripe(stripe), db, hash));
    }
    keys.clone().for_each(|(stripe, hash)| prefetch_bucket(keyspace.stripe(stripe), db, hash));
    keys.for_each(|(stripe, hash)| prefetch_entry(keyspace.stripe(stripe), db, hash));
}

/// Brings the head of a key's table into the cache, if each slot has a table of its own: else it is
/// in the stripe's head. The caller is inside the world.
#[inline]
#[allow(unsafe_code)]
fn prefetch_table(stripe: &Stripe, db: DbIndex, hash: u64) {
    // SAFETY: requests are taken apart and run inside the world.
    unsafe { stripe.prefetch_table(db, hash) }
}

/// Brings the bucket of a key into the cache. The caller is inside the world.
#[inline]
#[allow(unsafe_code)]
pub(crate) fn prefetch_bucket(stripe: &Stripe, db: DbIndex, hash: u64) {
    // SAFETY: requests are taken apart and run inside the world.
    unsafe { stripe.prefetch_bucket(db, hash) }
}

/// Brings an entry into the cache whose bucket is there. The caller is inside the world.
#[inline]
#[allow(unsafe_code)]
pub(crate) fn prefetch_entry(stripe: &Stripe, db: DbIndex, hash: u64) {
    // SAFETY: requests are taken apart and run inside the world.
    unsafe { stripe.prefetch_entry(db, hash) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::command::KeySpec;
    use keyspace::keyspace::Assignment;

    static COPY: Command = Command {
        group: Group::Set,
        keys: &[
            KeySpec::at(1, KeyFlags::RO.with(KeyFlags::ACCESS)),
            KeySpec::at(2, KeyFlags::OW.with(KeyFlags::UPDATE)),
            KeySpec::at(3, KeyFlags::RW.with(KeyFlags::UPDATE)),
            KeySpec::at(4, KeyFlags::RM.with(KeyFlags::DELETE)),
        ],
        ..Command::ROW
    };

    #[test]
    fn a_key_is_described_by_its_place_its_hash_its_stripe_and_its_use() {
        let keyspace = Keyspace::new(1, Assignment::ByHash);
        let words: [&[u8]; 5] = [b"x", b"a", b"b", b"c", b"d"];
        let keys = RequestKeys::of(&keyspace, &COPY, &words);
        assert!(keys.check().is_ok());
        let expected = [
            (KeyUse::Read, Touch::Whole),
            (KeyUse::Overwrite, Touch::Whole),
            (KeyUse::Change, Touch::Elements),
            (KeyUse::Delete, Touch::Whole),
        ];
        assert_eq!(keys.len(), expected.len());
        for (index, (key, expected)) in keys.iter().zip(expected).enumerate() {
            let whole = Key::new(words[index + 1]);
            assert_eq!((key.word(), key.hash), (index + 1, whole.hash));
            assert_eq!(key.key(&words).bytes, whole.bytes);
            assert_eq!(key.stripe(), keyspace.stripe_of(whole));
            assert_eq!(key.slot(&keyspace), None, "this keyspace has no slots");
            assert_eq!((key.usage(), key.touch()), expected);
            assert!(keys.stripes().covers(key.stripe()));
        }
    }

    #[test]
    fn keys_that_were_found_before_an_error_are_there() {
        let keyspace = Keyspace::new(1, Assignment::ByHash);
        let keys = RequestKeys::of(&keyspace, &COPY, &[b"x", b"a"]);
        assert_eq!((keys.check(), keys.len()), (Err(InvalidKeys), 1));
    }
}

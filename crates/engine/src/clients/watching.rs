//! What a client watches: its flag, and the keys that it is registered with.

use crate::background::{Background, yield_world};
use crate::clients::Client;
use crate::interest::{self, KeyInterest, Watch};
use crate::locks::Locked;
use crate::session::NAME_OVERHEAD;
use crate::thread::ThreadContext;
use keyspace::{DbIndex, Key, Keyspace, Millis, StripeData};
use std::collections::HashSet;
use std::sync::Arc;

pub(crate) type WatchedKey = (DbIndex, Box<[u8]>);

/// What a client watches; see [`crate::watching`].
pub struct Watching {
    keyspace: &'static Keyspace,
    background: &'static Background,
    pub(crate) watch: Arc<Watch>,
    pub(crate) keys: HashSet<WatchedKey>,
    stripes: Locked,
    /// When the first of the keys expires that had an expiry when it was watched.
    pub(crate) first_expiry: Millis,
    /// Keys that had expired when they were watched and were kept because nothing was to be deleted unasked.
    pub(crate) stale: HashSet<WatchedKey>,
    /// Bytes of the names of the keys.
    bytes: usize,
}

impl Watching {
    /// Of a client that watches nothing yet. What is left at the end is forgotten in the background.
    pub(crate) fn new(
        keyspace: &'static Keyspace,
        background: &'static Background,
        client: &Arc<Client>,
    ) -> Box<Watching> {
        Box::new(Watching {
            keyspace,
            background,
            watch: Arc::new(Watch::new(client)),
            keys: HashSet::new(),
            stripes: Locked::None,
            first_expiry: Millis(i64::MAX),
            stale: HashSet::new(),
            bytes: 0,
        })
    }

    /// Number of keys.
    pub fn len(&self) -> usize {
        self.keys.len()
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.keys.is_empty()
    }

    /// Bytes of memory that they take.
    pub(crate) fn memory_bytes(&self) -> usize {
        self.bytes
    }

    /// The stripes of the keys, for EXEC to lock.
    pub(crate) fn stripes(&self) -> &Locked {
        &self.stripes
    }

    /// Whether a key has changed since it was watched.
    pub(crate) fn is_changed(&self) -> bool {
        self.watch.is_dirty()
    }

    /// The stripe of a key that was not watched before.
    pub(crate) fn add(&mut self, db: DbIndex, key: Key<'_>) -> Option<usize> {
        if !self.keys.insert((db, Box::from(key.bytes))) {
            return None;
        }
        self.bytes += key.bytes.len() + NAME_OVERHEAD;
        let stripe = self.keyspace.stripe_of(key);
        self.stripes.add(stripe);
        Some(stripe)
    }
}

impl Drop for Watching {
    fn drop(&mut self) {
        if self.keys.is_empty() {
            return;
        }
        let (keyspace, watch) = (self.keyspace, Arc::clone(&self.watch));
        let keys = std::mem::take(&mut self.keys);
        let forget_all = move |thread: &ThreadContext| {
            thread.reader.enter();
            for key in keys {
                let stripe = keyspace.stripe_of(Key::new(&key.1));
                forget(&mut keyspace.stripe(stripe).lock(), &key, &watch);
                yield_world(&thread.reader);
            }
            thread.reader.leave();
        };
        self.background.run(Box::new(forget_all));
    }
}

/// Takes a watch out of the registry of a key, whose stripe is locked.
pub(crate) fn forget(data: &mut StripeData, key: &WatchedKey, watch: &Arc<Watch>) {
    let forget =
        |of_key: &mut KeyInterest| of_key.watches.retain(|other| !Arc::ptr_eq(other, watch));
    interest::change(data, |interest| interest.retain(key.0, &key.1, forget));
}

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

/// Keys that are forgotten at once; more are forgotten in the background.
pub(crate) const MAX_IN_PLACE: usize = 1000;

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
    /// Keys that had expired when they were watched and were kept because nothing was to be deleted
    /// unasked.
    pub(crate) stale: HashSet<WatchedKey>,
    /// Bytes of the names of the keys.
    bytes: usize,
}

impl Watching {
    /// Of a client that watches nothing yet. What is left at the end is forgotten later.
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
        let mut keys: Vec<WatchedKey> = std::mem::take(&mut self.keys).into_iter().collect();
        let background = self.background;
        if keys.len() <= MAX_IN_PLACE {
            let forget = move || {
                forget_free(keyspace, &mut keys, &watch, || ());
                keys.is_empty()
            };
            return background.add_chore(Box::new(forget));
        }
        let forget_all = move |thread: &ThreadContext| {
            thread.reader.enter();
            forget_free(keyspace, &mut keys, &watch, || yield_world(&thread.reader));
            thread.reader.leave();
            if !keys.is_empty() {
                let forget = move || {
                    forget_free(keyspace, &mut keys, &watch, || ());
                    keys.is_empty()
                };
                background.add_chore(Box::new(forget));
            }
        };
        background.run(Box::new(forget_all));
    }
}

/// Takes a watch out of the registries of those keys whose stripes can be had, which leave the
/// list. The caller is inside the world and holds no stripe.
fn forget_free(
    keyspace: &Keyspace,
    keys: &mut Vec<WatchedKey>,
    watch: &Arc<Watch>,
    mut after_each: impl FnMut(),
) {
    keys.retain(|key| {
        let stripe = keyspace.stripe(keyspace.stripe_of(Key::new(&key.1)));
        let is_forgotten = stripe.try_lock_soon().map(|mut data| forget(&mut data, key, watch));
        after_each();
        is_forgotten.is_none()
    });
}

/// Takes a watch out of the registry of a key, whose stripe is locked.
pub(crate) fn forget(data: &mut StripeData, key: &WatchedKey, watch: &Arc<Watch>) {
    let forget =
        |of_key: &mut KeyInterest| of_key.watches.retain(|other| !Arc::ptr_eq(other, watch));
    interest::change(data, |interest| interest.retain(key.0, &key.1, forget));
}

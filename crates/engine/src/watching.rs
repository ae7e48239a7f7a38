//! WATCH: what a client watches, and whether any of it has changed.
//!
//! One flag a client ([`Watch`]) is registered with every key that it watches, and the first change of any
//! of them raises it. So EXEC looks at the flag alone, and not at the keys: it locks their stripes, in which a
//! change and the flag's raising are one step. A key whose time comes without a change counts as changed; the
//! first such time is noted when the key is watched, since whatever alters it later raises the flag.
//!
//! A request may name very many keys. Then a background thread registers them, one lock at a time, in a guest
//! session that has taken over what the client watches already, and gives it back with the reply. Likewise
//! very many are forgotten in the background. What is dropped in whatever way is forgotten.

use crate::background::yield_world;
use crate::commit;
use crate::cx::Cx;
use crate::db::Db;
use crate::engine::Engine;
use crate::interest::{self, KeyInterest, Watch};
use crate::locks::Locked;
use crate::session::{NAME_OVERHEAD, Session};
use keyspace::{DbIndex, Entry, Key, Millis, StripeData};
use std::collections::HashSet;
use std::sync::Arc;

/// Keys that are forgotten at once; more are forgotten in the background.
const MAX_IN_PLACE: usize = 1000;

type WatchedKey = (DbIndex, Box<[u8]>);

/// What a client watches; see the module.
pub struct Watching {
    engine: &'static Engine,
    watch: Arc<Watch>,
    keys: HashSet<WatchedKey>,
    stripes: Locked,
    /// When the first of the keys expires that had an expiry when it was watched.
    first_expiry: Millis,
    /// Keys that had expired when they were watched and were kept (see [`Engine::is_frozen`]).
    stale: HashSet<WatchedKey>,
    /// Bytes of the names of the keys.
    bytes: usize,
}

impl Watching {
    fn new(engine: &'static Engine, session: &Session) -> Box<Watching> {
        Box::new(Watching {
            engine,
            watch: Arc::new(Watch::new(&session.client)),
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

    /// Whether a key is there although its time has come. One that was flushed before anything found it
    /// expired counts as absent.
    fn has_expired_key(&self, db: &Db<'_>) -> bool {
        let mut later = self.keys.iter().filter(|key| !self.stale.contains(*key));
        later.any(|(index, key)| {
            let key = Key::new(key);
            let stripe = db.engine.keyspace.stripe_of(key);
            let is_expired = |entry: &Entry| entry.is_expired(db.horizon());
            db.with_stripe(stripe, |data| data.find(*index, key).is_some_and(is_expired))
        })
    }

    /// The stripe of a key that was not watched before.
    fn add(&mut self, db: DbIndex, key: Key<'_>) -> Option<usize> {
        if !self.keys.insert((db, Box::from(key.bytes))) {
            return None;
        }
        self.bytes += key.bytes.len() + NAME_OVERHEAD;
        let stripe = self.engine.keyspace.stripe_of(key);
        self.stripes.add(stripe);
        Some(stripe)
    }
}

impl Drop for Watching {
    fn drop(&mut self) {
        if self.keys.is_empty() {
            return;
        }
        let (engine, watch) = (self.engine, Arc::clone(&self.watch));
        let keys = std::mem::take(&mut self.keys);
        let forget_all = move |thread: &crate::thread::ThreadContext| {
            thread.reader.enter();
            for key in keys {
                let stripe = engine.keyspace.stripe_of(Key::new(&key.1));
                forget(&mut engine.keyspace.stripe(stripe).lock(), &key, &watch);
                yield_world(&thread.reader);
            }
            thread.reader.leave();
        };
        engine.background.run(engine, Box::new(forget_all));
    }
}

/// Adds a key to what the client watches. Its stripe is locked, or nothing is.
pub fn watch(cx: &mut Cx<'_>, key: Key<'_>) {
    let (engine, db) = (cx.thread.engine, cx.db.index);
    if cx.session.watching.is_none() {
        cx.session.watching = Some(Watching::new(engine, cx.session));
    }
    let Some(watching) = &mut cx.session.watching else { return };
    let Some(stripe) = watching.add(db, key) else { return };
    match register(&mut cx.db, stripe, key, &watching.watch) {
        Some(expiry) if expiry < cx.db.horizon() => {
            watching.stale.insert((db, Box::from(key.bytes)));
        }
        Some(expiry) => watching.first_expiry = watching.first_expiry.min(expiry),
        None => {}
    }
}

/// Registers a watch with a key; returns when the key expires.
fn register(db: &mut Db<'_>, stripe: usize, key: Key<'_>, watch: &Arc<Watch>) -> Option<Millis> {
    let (index, horizon) = (db.index, db.horizon());
    let is_expired =
        |data: &StripeData| data.find(index, key).is_some_and(|e| e.is_expired(horizon));
    // An expired key that is still there would count as changed when it is deleted: now, before the
    // watch is there to be raised. A replica keeps it, because its primary is to delete it.
    if !db.engine.is_frozen() && db.with_stripe(stripe, is_expired) {
        let is_locked = !db.locks.is_empty();
        if !is_locked {
            db.locks.acquire_patiently(Locked::One(stripe));
        }
        db.remove_expired(key);
        commit::commit_outside(db);
        if !is_locked {
            db.locks.release();
        }
    }
    db.with_stripe_mut(stripe, |data| {
        interest::change(data, |interest| {
            interest.of_or_new(index, key.bytes).watches.push(Arc::clone(watch));
        });
        data.find(index, key).and_then(Entry::expiry)
    })
}

/// Forgets all that a client watches.
pub fn unwatch(db: &mut Db<'_>, session: &mut Session) {
    let Some(mut watching) = session.watching.take() else { return };
    if watching.len() > MAX_IN_PLACE {
        return;
    }
    for key in std::mem::take(&mut watching.keys) {
        let stripe = db.engine.keyspace.stripe_of(Key::new(&key.1));
        db.with_stripe_mut(stripe, |data| forget(data, &key, &watching.watch));
    }
}

fn forget(data: &mut StripeData, key: &WatchedKey, watch: &Arc<Watch>) {
    let forget =
        |of_key: &mut KeyInterest| of_key.watches.retain(|other| !Arc::ptr_eq(other, watch));
    interest::change(data, |interest| interest.retain(key.0, &key.1, forget));
}

/// Whether a watched key has changed, or its time has come, since it was watched. The stripes of
/// the watched keys are locked.
pub fn is_watch_dirty(db: &Db<'_>, session: &Session) -> bool {
    let watching = session.watching.as_ref();
    watching.is_some_and(|w| w.is_changed() || w.first_expiry <= db.now() && w.has_expired_key(db))
}

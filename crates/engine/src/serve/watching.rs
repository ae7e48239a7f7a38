//! WATCH: what a client watches, and whether any of it has changed.
//!
//! One flag a client ([`Watch`]) is registered with every key that it watches, and the first change
//! of any of them raises it. So EXEC looks at the flag alone, and not at the keys: it locks their
//! stripes, in which a change and the flag's raising are one step. A key whose time comes without a
//! change counts as changed; the first such time is noted when the key is watched, since whatever
//! alters it later raises the flag.
//!
//! A request may name very many keys. Then a background thread registers them, one lock at a time,
//! in a guest session that has taken over what the client watches already, and gives it back with
//! the reply. Likewise very many are forgotten in the background. What is dropped in whatever way
//! is forgotten.

use crate::clients::watching::{MAX_IN_PLACE, Watching, forget};
use crate::commit;
use crate::cx::Cx;
use crate::db::Db;
use crate::interest::{self, Watch};
use crate::session::Session;
use keyspace::{Entry, Key, Millis, StripeData};
use std::sync::Arc;

/// Adds a key to what the client watches. Its stripe is locked, or nothing is.
pub fn watch(cx: &mut Cx<'_>, key: Key<'_>) {
    let (engine, db) = (cx.engine, cx.db.index);
    if cx.session.watching.is_none() {
        let watching = Watching::new(&engine.keyspace, &engine.background, &cx.session.client);
        cx.session.watching = Some(watching);
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

/// Watches without a look at the keys, which a script has locked for long: it counts as if it
/// changed one of them. So EXEC fails, where Valkey's does if the script has changed one.
pub(crate) fn watch_unseen(cx: &mut Cx<'_>) {
    let (engine, session) = (cx.engine, &mut *cx.session);
    let new = || Watching::new(&engine.keyspace, &engine.background, &session.client);
    session.watching.get_or_insert_with(new).watch.raise();
}

/// Registers a watch with a key; returns when the key expires.
fn register(db: &mut Db<'_>, stripe: usize, key: Key<'_>, watch: &Arc<Watch>) -> Option<Millis> {
    let (index, horizon) = (db.index, db.horizon());
    let is_expired =
        |data: &StripeData| data.find(index, key).is_some_and(|e| e.is_expired(horizon));
    // A key that has expired and is still there is deleted now. Its deletion later would raise the
    // flag. A replica keeps it, because its primary has to delete it.
    if !db.engine.is_frozen() && db.visit(stripe, is_expired)? {
        let is_locked = !db.locks.is_empty();
        if is_locked || db.locks.try_acquire(stripe) {
            db.remove_expired(key);
            commit::commit_outside(db);
        }
        if !is_locked {
            db.locks.release();
        }
    }
    let expiry = db.visit_mut(stripe, |data| {
        interest::change(data, |interest| {
            interest.of_or_new(index, key.bytes).watches.push(Arc::clone(watch));
        });
        data.find(index, key).and_then(Entry::expiry)
    });
    expiry.flatten()
}

/// Forgets all that a client watches.
pub fn unwatch(db: &mut Db<'_>, session: &mut Session) {
    if let Some(forwarding) = &mut session.forwarding {
        forwarding.unwatch();
    }
    let Some(mut watching) = session.watching.take() else { return };
    if watching.len() > MAX_IN_PLACE {
        return;
    }
    if db.is_outside {
        // The remaining keys are forgotten when the world goes on.
        return;
    }
    let watch = Arc::clone(&watching.watch);
    watching.keys.retain(|key| {
        let stripe = db.engine.keyspace.stripe_of(Key::new(&key.1));
        db.try_visit_mut(stripe, |data| forget(data, key, &watch)).is_none()
    });
    // A script may hold the remaining stripes. Their keys are forgotten later.
}

/// Returns whether a watched key has changed, or its time has come, since it was watched. The
/// stripes of the watched keys are locked.
pub fn is_watch_dirty(db: &Db<'_>, session: &Session) -> bool {
    let watching = session.watching.as_ref();
    watching.is_some_and(|w| w.is_changed() || w.first_expiry <= db.now() && has_expired_key(w, db))
}

/// Returns whether a key is there although its time has come. One that was flushed before anything
/// found it expired counts as absent.
fn has_expired_key(watching: &Watching, db: &Db<'_>) -> bool {
    let mut later = watching.keys.iter().filter(|key| !watching.stale.contains(*key));
    later.any(|(index, key)| {
        let key = Key::new(key);
        let stripe = db.engine.keyspace.stripe_of(key);
        let is_expired = |entry: &Entry| entry.is_expired(db.horizon());
        db.with_stripe(stripe, |data| data.find(*index, key).is_some_and(is_expired))
    })
}

/// The number of keys that clients are interested in, of all databases.
#[derive(Clone, Copy, Default, Debug, PartialEq, Eq)]
pub struct KeyCounts {
    /// Keys that are watched.
    pub watched: usize,
    /// Keys that blocked clients wait for.
    pub blocking: usize,
    /// Those of them whose deletion ends a wait.
    pub blocking_on_deletion: usize,
}

impl Db<'_> {
    /// Counts the keys that are watched and waited for, but for those in stripes that are locked;
    /// for commands with `Flags::WALKS`.
    pub fn count_interests(&self) -> KeyCounts {
        let mut counts = KeyCounts::default();
        let mut count = |data: &StripeData| {
            let Some(interest) = interest::of_stripe(data) else { return };
            for of_key in interest.keys.values() {
                let is_watched = of_key.watches.iter().any(|watch| !watch.client.is_leaving());
                counts.watched += usize::from(is_watched);
                let mut waiters =
                    of_key.waiters.iter().filter(|waiter| !waiter.is_over()).peekable();
                counts.blocking += usize::from(waiters.peek().is_some());
                counts.blocking_on_deletion +=
                    usize::from(waiters.any(|waiter| waiter.waits_for_deletion()));
            }
        };
        let may_be_left_out = self.is_for_operator || self.engine.holds.has_scripts();
        for index in 0..self.engine.keyspace.stripes().len() {
            if self.try_visit(index, &mut count).is_none() && !may_be_left_out {
                self.visit(index, &mut count);
            }
        }
        counts
    }
}

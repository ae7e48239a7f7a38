//! MULTI's queue and WATCH. The commands themselves are in the commands crate.

use crate::cx::Cx;
use crate::db::Db;
use crate::interest::{self, KeyInterest, Watch};
use crate::session::{NAME_OVERHEAD, Session};
use keyspace::{DbIndex, Key};
use std::sync::Arc;

/// A queued command.
pub struct Queued {
    /// Index of its row.
    pub command: usize,
    /// Its words.
    pub argv: Vec<Box<[u8]>>,
}

/// The queue of a transaction.
#[derive(Default)]
pub struct Multi {
    queue: Vec<Queued>,
    bytes: usize,
    /// A command could not be queued, so EXEC will refuse.
    pub is_broken: bool,
}

impl Multi {
    /// Adds a command.
    pub fn push(&mut self, command: usize, argv: &[&[u8]]) {
        self.bytes += argv.iter().map(|word| word.len() + 16).sum::<usize>();
        let argv = argv.iter().map(|&word| Box::from(word)).collect();
        self.queue.push(Queued { command, argv });
    }
    /// Number of commands.
    pub fn len(&self) -> usize {
        self.queue.len()
    }
    /// Whether nothing is queued.
    pub fn is_empty(&self) -> bool {
        self.queue.is_empty()
    }
    /// Bytes of the queued words.
    pub fn bytes(&self) -> usize {
        self.bytes
    }
    /// The commands in order.
    pub fn queue(&self) -> &[Queued] {
        &self.queue
    }
}

/// Registers the client's watch with a key, whose stripe is locked.
pub fn watch(cx: &mut Cx<'_>, key: Key<'_>) {
    let db = cx.db.index;
    if cx.session.watched.iter().any(|(d, k)| *d == db && **k == *key.bytes) {
        return;
    }
    // An expired key that is still there would count as changed when it is deleted: now, before the
    // watch is there to be raised.
    cx.db.remove_expired(key);
    crate::commit::commit_outside(&mut cx.db);
    let session = &mut *cx.session;
    let watch = session.watch.get_or_insert_with(|| Arc::new(Watch::new(&session.client)));
    let watch = Arc::clone(watch);
    cx.session.watched_bytes += key.bytes.len() + NAME_OVERHEAD;
    cx.session.watched.push((db, Box::from(key.bytes)));
    let engine = cx.engine;
    let stripe = engine.keyspace.stripe_of(key);
    cx.db.with_stripe_mut(stripe, |data| {
        interest::change(data, |interest| interest.of_or_new(db, key.bytes).watches.push(watch));
    });
}

/// Forgets all watches of a client.
pub fn unwatch(db: &mut Db<'_>, session: &mut Session) {
    let Some(watch) = session.watch.take() else { return };
    session.watched_bytes = 0;
    for (index, key) in std::mem::take(&mut session.watched) {
        let stripe = db.engine.keyspace.stripe_of(Key::new(&key));
        let forget =
            |of_key: &mut KeyInterest| of_key.watches.retain(|other| !Arc::ptr_eq(other, &watch));
        db.with_stripe_mut(stripe, |data| {
            interest::change(data, |interest| interest.retain(index, &key, forget));
        });
    }
}

/// Whether a watched key has changed, or its time has come, since it was watched. The stripes of
/// the watched keys are locked.
pub fn is_watch_dirty(db: &mut Db<'_>, session: &Session) -> bool {
    let Some(watch) = &session.watch else { return false };
    watch.is_dirty() || session.watched.iter().any(|(index, key)| is_expired(db, *index, key))
}

fn is_expired(db: &mut Db<'_>, index: DbIndex, key: &[u8]) -> bool {
    let now = db.now();
    let key = Key::new(key);
    let stripe = db.engine.keyspace.stripe_of(key);
    db.with_stripe(stripe, |data| data.find(index, key).is_some_and(|e| e.is_expired(now)))
}

/// The watch of a client that has none yet.
pub type WatchHandle = Arc<Watch>;

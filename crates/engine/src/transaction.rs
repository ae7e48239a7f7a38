//! MULTI's queue and WATCH. The commands themselves are in the commands crate.

use crate::command::Flags;
use crate::cx::Cx;
use crate::db::Db;
use crate::interest::{self, KeyInterest, Watch};
use crate::request_keys::RequestKeys;
use crate::session::{NAME_OVERHEAD, Session};
use crate::table::Resolved;
use crate::words::Words;
use keyspace::{DbIndex, Key, Keyspace};
use std::sync::Arc;

/// A queued command.
pub struct Queued {
    /// Its row.
    pub row: &'static Resolved,
    words: Words,
}

impl Queued {
    /// Its words.
    pub fn words(&self) -> Vec<&[u8]> {
        self.words.to_vec()
    }
}

/// The queue of a transaction, and what EXEC has to know of all its commands.
#[derive(Default)]
pub struct Multi {
    queue: Vec<Queued>,
    keys: RequestKeys,
    /// Flags that any of the commands has.
    flags_of_any: Flags,
    may_not_load: bool,
    needs_world: bool,
    bytes: usize,
    /// A command could not be queued, so EXEC will refuse.
    pub is_broken: bool,
}

impl Multi {
    /// Adds a command.
    pub(crate) fn push(&mut self, keyspace: &Keyspace, row: &'static Resolved, argv: &[&[u8]]) {
        let (words, flags) = (Words::new(argv), row.command.flags);
        self.keys.add(keyspace, row.command, argv);
        self.flags_of_any = self.flags_of_any.with(flags);
        self.may_not_load |= !flags.has(Flags::LOADING);
        self.needs_world |= flags.has(Flags::WALKS) || row.needs_world(argv);
        self.bytes += words.memory_bytes();
        self.queue.push(Queued { row, words });
    }
    /// The keys of all commands.
    pub(crate) fn keys(&self) -> &RequestKeys {
        &self.keys
    }
    /// Whether a command has any of these flags.
    pub(crate) fn has_any(&self, flags: Flags) -> bool {
        self.flags_of_any.any(flags)
    }
    /// Whether a command may not run while the data set is loaded.
    pub(crate) fn may_not_load(&self) -> bool {
        self.may_not_load
    }
    /// Whether a command needs the world stopped.
    pub(crate) fn needs_world(&self) -> bool {
        self.needs_world
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

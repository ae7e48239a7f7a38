//! Client-side caching: telling clients which keys they must forget.
//!
//! In the default mode a stripe's registry remembers which clients read a key; the first change
//! tells them and forgets them. In broadcasting mode a client names prefixes and is told of every
//! change below them.

use crate::args::Args;
use crate::cx::Cx;
use crate::db::Db;
use crate::engine::Engine;
use crate::interest::{self, StripeInterest};
use crate::mailbox::{Message, Push};
use crate::outbox::{Notification, Outbox};
use crate::table::Resolved;
use std::collections::{BTreeMap, HashMap};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::*};
use std::sync::{Arc, Mutex, RwLock};
use structs::sync::{lock, read, write};

/// Readers of a key that are remembered before gone connections are dropped from the list: the
/// list of a key that never changes must not grow for ever.
const MAX_UNCHECKED: usize = 64;

/// A client that caches.
#[derive(Clone, Debug)]
pub struct Cacher {
    /// Its number.
    pub client: u64,
    /// The client that gets the invalidations in its place, which may be itself.
    pub redirect: Option<u64>,
    /// Not for keys it changed itself.
    pub no_loop: bool,
    /// Prefixes, in broadcasting mode.
    pub prefixes: Option<Vec<Box<[u8]>>>,
}

/// The clients that cache.
#[derive(Default)]
pub struct TrackingTable {
    cachers: RwLock<Vec<Cacher>>,
    broadcasting: AtomicUsize,
    /// Keys that changed since the last broadcast, with the client that did it if it was one.
    changed: Mutex<BTreeMap<Box<[u8]>, Option<u64>>>,
    has_changed: AtomicBool,
    /// Keys remembered over all stripes.
    pub keys: AtomicUsize,
    /// Their readers, each counted once for every key.
    pub items: AtomicUsize,
}

impl TrackingTable {
    /// Whether any client wants broadcasts.
    #[inline]
    pub fn is_broadcasting(&self) -> bool {
        self.broadcasting.load(Relaxed) > 0
    }

    /// Adds or replaces a client.
    pub fn set(&self, cacher: Cacher) {
        let mut cachers = write(&self.cachers);
        cachers.retain(|other| other.client != cacher.client);
        cachers.push(cacher);
        self.count_broadcasting(&cachers);
    }

    /// Removes a client.
    pub fn remove(&self, client: u64) {
        let mut cachers = write(&self.cachers);
        cachers.retain(|other| other.client != client);
        self.count_broadcasting(&cachers);
    }

    fn count_broadcasting(&self, cachers: &[Cacher]) {
        let count = cachers.iter().filter(|c| c.prefixes.is_some()).count();
        self.broadcasting.store(count, Relaxed);
    }

    /// Number of different prefixes of the broadcasting clients.
    pub fn prefix_count(&self) -> usize {
        let prefixes = self.all().into_iter().filter_map(|cacher| cacher.prefixes);
        let mut all: Vec<Box<[u8]>> = prefixes.flatten().collect();
        all.sort_unstable();
        all.dedup();
        all.len()
    }

    /// All clients that cache.
    pub fn all(&self) -> Vec<Cacher> {
        read(&self.cachers).clone()
    }

    /// Tells the clients that read a key, whose stripe is locked, that it changed.
    pub(crate) fn key_changed(
        &self,
        outbox: &Outbox<'_>,
        interest: &mut StripeInterest,
        key: &[u8],
        by: u64,
    ) {
        let Some(readers) = interest.trackers.remove(key) else { return };
        self.keys.fetch_sub(1, Relaxed);
        self.items.fetch_sub(readers.len(), Relaxed);
        for reader in readers {
            outbox.keep(Notification::Change { reader, key: key.into(), by });
        }
    }

    /// Tells a client that a key which it has read was changed by another one, or itself.
    pub(crate) fn invalidate(&self, engine: &Engine, reader: u64, key: Box<[u8]>, by: u64) {
        let cachers = read(&self.cachers);
        let Some(cacher) = cachers.iter().find(|c| c.client == reader) else { return };
        if cacher.prefixes.is_none() && !(cacher.no_loop && reader == by) {
            tell(engine, cacher, Some(vec![key]));
        }
    }

    /// Notes that a key changed, for the broadcasting clients; see
    /// [`TrackingTable::flush_broadcasts`].
    pub(crate) fn note_change(&self, key: Box<[u8]>, by: u64) {
        let mut changed = lock(&self.changed);
        let change = changed.entry(key).or_insert(Some(by));
        // A key that two clients changed is news for both.
        if *change != Some(by) {
            *change = None;
        }
        self.has_changed.store(true, Release);
    }

    /// Tells the broadcasting clients which keys changed: once for all requests that were read
    /// together, so that a client gets one message for a transaction or a pipeline.
    #[inline]
    pub fn flush_broadcasts(&self, engine: &Engine) {
        if self.has_changed.load(Acquire) {
            self.tell_broadcasts(engine);
        }
    }

    #[cold]
    fn tell_broadcasts(&self, engine: &Engine) {
        // Held throughout, so that two threads' messages keep the order of the changes.
        let mut noted = lock(&self.changed);
        let changed = std::mem::take(&mut *noted);
        let cachers = read(&self.cachers);
        for cacher in cachers.iter() {
            let Some(prefixes) = &cacher.prefixes else { continue };
            for prefix in prefixes {
                let keys: Vec<Box<[u8]>> = changed
                    .iter()
                    .filter(|(key, by)| {
                        key.starts_with(prefix) && !(cacher.no_loop && **by == Some(cacher.client))
                    })
                    .map(|(key, _)| key.clone())
                    .collect();
                if !keys.is_empty() {
                    tell(engine, cacher, Some(keys));
                }
            }
        }
        // Not before: another thread whose changes these are goes on to reply when it finds it so.
        self.has_changed.store(false, Release);
    }

    /// Has every client told to forget everything, and forgets what they have read (FLUSHALL). The
    /// world stands still.
    pub fn invalidate_all(&self, db: &mut Db<'_>) {
        db.for_each_stripe_mut(|_, data| {
            if data.has_attachment() {
                interest::change(data, |interest| interest.trackers = HashMap::new());
            }
        });
        self.keys.store(0, Relaxed);
        self.items.store(0, Relaxed);
        db.outbox.keep(Notification::AllChanged);
    }

    /// Tells every client to forget everything.
    pub(crate) fn tell_all(&self, engine: &Engine) {
        read(&self.cachers).iter().for_each(|cacher| tell(engine, cacher, None));
    }

    /// Keeps `tracking-table-max-keys`: forgets keys, as if they had changed. Nothing is locked.
    pub fn limit_keys(&self, db: &Db<'_>) {
        let engine = db.engine;
        let limit = engine.config.tracking_table_max_keys();
        if limit == 0 || self.keys.load(Relaxed) <= limit {
            return;
        }
        let stripes = engine.keyspace.stripes().len();
        let start = db.random() as usize % stripes;
        for index in (start..stripes).chain(0..start) {
            let mut data = engine.keyspace.stripe(index).lock();
            if !data.has_attachment() {
                continue;
            }
            interest::change(&mut data, |interest| {
                while self.keys.load(Relaxed) > limit
                    && let Some(key) = interest.trackers.keys().next().cloned()
                {
                    self.key_changed(&db.outbox, interest, &key, 0);
                }
            });
        }
        db.outbox.send();
    }
}

fn tell(engine: &Engine, cacher: &Cacher, keys: Option<Vec<Box<[u8]>>>) {
    let push = Push::Invalidate { keys, is_redirected: cacher.redirect.is_some() };
    let target = cacher.redirect.unwrap_or(cacher.client);
    match engine.clients.get(target) {
        Some(client) => {
            let message = Message::Push(client.id, Arc::new(push));
            engine.mailboxes[client.thread].post(message);
        }
        None => {
            if let Some(client) = engine.clients.get(cacher.client) {
                let push = Push::TrackingRedirBroken(target);
                engine.mailboxes[client.thread].post(Message::Push(client.id, Arc::new(push)));
            }
        }
    }
}

/// Remembers the keys that a client with a cache has just read; their stripes are locked.
#[cold]
pub(crate) fn remember_reads(cx: &mut Cx<'_>, row: &Resolved, args: Args<'_>) {
    let Some(tracking) = &cx.session.tracking else { return };
    let wanted = match tracking.caching {
        _ if tracking.broadcast.is_some() => false,
        Some(caching) => caching && (tracking.opt_in || tracking.opt_out),
        None => !tracking.opt_in,
    };
    if !wanted {
        return;
    }
    let (engine, client) = (cx.engine, cx.session.id());
    cx.find_keys(row, args);
    for key in cx.keys.iter() {
        let name = key.key(args.words()).bytes;
        let remember = |interest: &mut StripeInterest| {
            let readers = interest.trackers.entry(Box::from(name)).or_insert_with(|| {
                engine.tracking.keys.fetch_add(1, Relaxed);
                Vec::new()
            });
            if !readers.contains(&client) {
                if readers.len() >= MAX_UNCHECKED && readers.len() == readers.capacity() {
                    let before = readers.len();
                    readers.retain(|&reader| engine.clients.get(reader).is_some());
                    engine.tracking.items.fetch_sub(before - readers.len(), Relaxed);
                }
                readers.push(client);
                engine.tracking.items.fetch_add(1, Relaxed);
            }
        };
        cx.db.with_stripe_mut(key.stripe(), |data| interest::change(data, remember));
    }
}

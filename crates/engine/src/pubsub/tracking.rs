//! Client-side caching: telling clients which keys they must forget.
//!
//! In the default mode a stripe's registry remembers which clients read a key; the first change
//! tells them and forgets them. In broadcasting mode a client names prefixes and is told of every
//! change below them.

use super::prefixes::PrefixIndex;
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
use std::sync::{Arc, Mutex, OnceLock, RwLock};
use structs::sync::{lock, read, write};

/// Readers of a key that are remembered before gone connections are dropped from the list: the
/// list of a key that never changes must not grow for ever.
const MAX_UNCHECKED: usize = 64;

/// A key that changed, and the client that did it if it was one.
type ChangedKey<'k> = (&'k [u8], Option<u64>);

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

/// The clients that cache, by their numbers.
#[derive(Default)]
struct Cachers {
    all: BTreeMap<u64, Cacher>,
    /// The prefixes of those that want broadcasts. Made when it is needed, as many clients may come
    /// before there is a change to tell.
    prefixes: OnceLock<PrefixIndex>,
}

impl Cachers {
    fn prefixes(&self) -> &PrefixIndex {
        self.prefixes.get_or_init(|| {
            PrefixIndex::new(self.all.values().flat_map(|cacher| {
                let prefixes = cacher.prefixes.iter().flatten();
                prefixes.map(|prefix| (&**prefix, cacher.client))
            }))
        })
    }
}

/// The clients that cache.
#[derive(Default)]
pub struct TrackingTable {
    cachers: RwLock<Cachers>,
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
        self.broadcasting.fetch_add(usize::from(cacher.prefixes.is_some()), Relaxed);
        let before = cachers.all.insert(cacher.client, cacher);
        self.forget(&mut cachers, before);
    }

    /// Removes a client.
    pub fn remove(&self, client: u64) {
        let mut cachers = write(&self.cachers);
        let before = cachers.all.remove(&client);
        self.forget(&mut cachers, before);
    }

    /// Forgets what was known of a client, if it was there.
    fn forget(&self, cachers: &mut Cachers, before: Option<Cacher>) {
        let was_broadcasting = before.is_some_and(|cacher| cacher.prefixes.is_some());
        self.broadcasting.fetch_sub(usize::from(was_broadcasting), Relaxed);
        cachers.prefixes = OnceLock::new();
    }

    /// Number of different prefixes of the broadcasting clients.
    pub fn prefix_count(&self) -> usize {
        read(&self.cachers).prefixes().len()
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
        let Some(cacher) = cachers.all.get(&reader) else { return };
        if cacher.prefixes.is_none() && !(cacher.no_loop && reader == by) {
            tell(engine, cacher, &invalidation(cacher, Some(vec![key])));
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
        let mut below: BTreeMap<usize, Vec<ChangedKey<'_>>> = BTreeMap::new();
        for (key, by) in &changed {
            cachers
                .prefixes()
                .of_key(key, |prefix| below.entry(prefix).or_default().push((&**key, *by)));
        }
        for (prefix, keys) in below {
            tell_prefix(engine, &cachers, prefix, &keys);
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
        for cacher in read(&self.cachers).all.values() {
            tell(engine, cacher, &invalidation(cacher, None));
        }
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

/// Tells the clients that asked for a prefix which keys below it were changed, and by which client. All get
/// the same message but those that made a change themselves and do not want to hear of it.
fn tell_prefix(engine: &Engine, cachers: &Cachers, prefix: usize, keys: &[ChangedKey<'_>]) {
    let mut of_all: [Option<Arc<Push>>; 2] = [None, None];
    for client in cachers.prefixes().clients(prefix) {
        let Some(cacher) = cachers.all.get(client) else { continue };
        let is_own = |by: &Option<u64>| cacher.no_loop && *by == Some(cacher.client);
        if keys.iter().any(|(_, by)| is_own(by)) {
            let others = keys.iter().filter(|(_, by)| !is_own(by));
            let others: Vec<Box<[u8]>> = others.map(|(key, _)| Box::from(*key)).collect();
            if !others.is_empty() {
                tell(engine, cacher, &invalidation(cacher, Some(others)));
            }
            continue;
        }
        let push = of_all[usize::from(cacher.redirect.is_some())].get_or_insert_with(|| {
            let all = keys.iter().map(|(key, _)| Box::from(*key)).collect();
            invalidation(cacher, Some(all))
        });
        tell(engine, cacher, push);
    }
}

fn invalidation(cacher: &Cacher, keys: Option<Vec<Box<[u8]>>>) -> Arc<Push> {
    Arc::new(Push::Invalidate { keys, is_redirected: cacher.redirect.is_some() })
}

fn tell(engine: &Engine, cacher: &Cacher, push: &Arc<Push>) {
    let target = cacher.redirect.unwrap_or(cacher.client);
    match engine.clients.get(target) {
        Some(client) => {
            let message = Message::Push(client.id, Arc::clone(push));
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

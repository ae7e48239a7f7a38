//! Client-side caching: telling clients which keys they must forget.
//!
//! In the default mode a stripe's registry remembers which clients read a key; the first change
//! tells them and forgets them. In broadcasting mode a client names prefixes and is told of every
//! change below them of a key that its user may read at that moment. A client that has read a key
//! knows its name, so the default mode does not ask for rights: the cache would keep what is gone.

use super::prefixes::PrefixIndex;
use crate::acl::{Acl, User};
pub use crate::clients::prefix_list::PrefixList;
use crate::clients::{Client, Clients};
use crate::interest::StripeInterest;
use crate::mailbox::{Mailbox, Message, Push};
use keyspace::DbIndex;
use std::cell::Cell;
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::*};
use std::sync::{Arc, Mutex, OnceLock, RwLock};
use structs::sync::{lock, read, write};

/// Where the clients that cache are found: the registry of all clients, the mailboxes of their
/// threads, and what their users may read.
#[derive(Clone, Copy)]
pub struct Receivers<'r> {
    /// All clients.
    pub clients: &'r Clients,
    /// One a thread.
    pub mailboxes: &'r [Mailbox],
    /// The users.
    pub acl: &'r Acl,
}

impl Receivers<'_> {
    /// The user of a client if it may not do everything. Of a link, that of the client it serves.
    fn restricted_user(&self, client: &Client) -> Option<Arc<User>> {
        if !self.acl.is_restricting() {
            return None;
        }
        let names = client.names();
        let name = names.acts_for.clone().unwrap_or_else(|| names.user.clone());
        drop(names);
        Some(self.acl.rights_of(name.as_bytes())).filter(|user| !user.may_do_everything())
    }
}

/// Readers of a key that are remembered before gone connections are dropped from the list: the
/// list of a key that never changes must not grow for ever.
const MAX_UNCHECKED: usize = 64;

thread_local! {
    /// The calling thread has noted a change for the next broadcast.
    static HAS_NOTED: Cell<bool> = const { Cell::new(false) };
}

/// The number of no client.
const NO_CLIENT: u64 = 0;

/// A key that changed, its database, and the client that did it if it was one.
type ChangedKey<'k> = (&'k [u8], DbIndex, Option<u64>);

/// Keys that changed since the last broadcast, with the client that did it if it was one.
type Changes = BTreeMap<(Box<[u8]>, DbIndex), Option<u64>>;

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
    pub prefixes: Option<Arc<PrefixList>>,
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
            PrefixIndex::new(self.all.values().filter_map(|cacher| {
                cacher.prefixes.as_ref().map(|prefixes| (prefixes, cacher.client))
            }))
        })
    }
}

/// The clients that cache.
#[derive(Default)]
pub struct TrackingTable {
    cachers: RwLock<Cachers>,
    broadcasting: AtomicUsize,
    changed: Mutex<Changes>,
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

    /// Takes the clients that read a key, whose stripe is locked: it has changed.
    pub(crate) fn take_readers(&self, interest: &mut StripeInterest, key: &[u8]) -> Vec<u64> {
        let Some(readers) = interest.trackers.remove(key) else { return Vec::new() };
        self.keys.fetch_sub(1, Relaxed);
        self.items.fetch_sub(readers.len(), Relaxed);
        readers
    }

    /// Remembers that a client has read a key, whose stripe is locked.
    pub(crate) fn remember(
        &self,
        clients: &Clients,
        interest: &mut StripeInterest,
        key: &[u8],
        client: u64,
    ) {
        let readers = interest.trackers.entry(Box::from(key)).or_insert_with(|| {
            self.keys.fetch_add(1, Relaxed);
            Vec::new()
        });
        if !readers.contains(&client) {
            if readers.len() >= MAX_UNCHECKED && readers.len() == readers.capacity() {
                let before = readers.len();
                readers.retain(|&reader| clients.get(reader).is_some());
                self.items.fetch_sub(before - readers.len(), Relaxed);
            }
            readers.push(client);
            self.items.fetch_add(1, Relaxed);
        }
    }

    /// Tells a client that a key which it has read was changed by another one, or itself.
    pub(crate) fn invalidate(
        &self,
        receivers: Receivers<'_>,
        reader: u64,
        key: Box<[u8]>,
        by: u64,
    ) {
        let cachers = read(&self.cachers);
        let Some(cacher) = cachers.all.get(&reader) else { return };
        if cacher.prefixes.is_none() && !(cacher.no_loop && reader == by) {
            tell(receivers, cacher, &invalidation(cacher, Some(vec![key])), by);
        }
    }

    /// Notes that a key changed, for the broadcasting clients; see
    /// [`TrackingTable::flush_broadcasts`].
    pub(crate) fn note_change(&self, key: Box<[u8]>, db: DbIndex, by: u64) {
        let mut changed = lock(&self.changed);
        let change = changed.entry((key, db)).or_insert(Some(by));
        // A key that two clients changed is news for both.
        if *change != Some(by) {
            *change = None;
        }
        self.has_changed.store(true, Release);
        drop(changed);
        HAS_NOTED.set(true);
    }

    /// Tells the broadcasting clients which keys changed: once for all requests that were read
    /// together, so that a client gets one message for a transaction or a pipeline.
    #[inline]
    pub fn flush_broadcasts(&self, receivers: Receivers<'_>) {
        if self.has_changed.load(Acquire) {
            self.tell_broadcasts(receivers);
        }
        if HAS_NOTED.get() {
            HAS_NOTED.set(false);
            // Another thread may have told them.
            receivers.mailboxes[0].share_tickets();
        }
    }

    #[cold]
    fn tell_broadcasts(&self, receivers: Receivers<'_>) {
        // Held throughout, so that two threads' messages keep the order of the changes.
        let mut noted = lock(&self.changed);
        let changed = std::mem::take(&mut *noted);
        let cachers = read(&self.cachers);
        let mut below: BTreeMap<usize, Vec<ChangedKey<'_>>> = BTreeMap::new();
        for ((key, db), by) in &changed {
            let mut note = |prefix| below.entry(prefix).or_default().push((&**key, *db, *by));
            cachers.prefixes().of_key(key, &mut note);
        }
        for (prefix, keys) in below {
            tell_prefix(receivers, &cachers, prefix, &keys);
        }
        // Not before: another thread whose changes these are goes on to reply when it finds it so.
        self.has_changed.store(false, Release);
    }

    /// Tells every client to forget everything.
    pub(crate) fn tell_all(&self, receivers: Receivers<'_>) {
        for cacher in read(&self.cachers).all.values() {
            tell(receivers, cacher, &invalidation(cacher, None), NO_CLIENT);
        }
    }
}

/// Tells the clients that asked for a prefix which keys below it were changed, and by which client.
/// All get the same message but those whose users may not read all keys, and those that made a
/// change themselves and do not want to hear of it.
fn tell_prefix(
    receivers: Receivers<'_>,
    cachers: &Cachers,
    prefix: usize,
    keys: &[ChangedKey<'_>],
) {
    let mut of_all: [Option<Arc<Push>>; 2] = [None, None];
    for client in cachers.prefixes().clients(prefix) {
        let Some(cacher) = cachers.all.get(client) else { continue };
        // Nothing is told in place of a client that has gone.
        let Some(client) = receivers.clients.get(cacher.client) else { continue };
        let is_own = |by: Option<u64>| cacher.no_loop && by == Some(cacher.client);
        let user = receivers.restricted_user(&client);
        if user.is_some() || keys.iter().any(|&(_, _, by)| is_own(by)) {
            let is_told = |&&(key, db, by): &&ChangedKey<'_>| {
                !is_own(by) && user.as_ref().is_none_or(|user| user.may_read(key, db))
            };
            let told = names(keys.iter().filter(is_told));
            if !told.is_empty() {
                tell(receivers, cacher, &invalidation(cacher, Some(told)), NO_CLIENT);
            }
            continue;
        }
        let push = of_all[usize::from(cacher.redirect.is_some())]
            .get_or_insert_with(|| invalidation(cacher, Some(names(keys.iter()))));
        tell(receivers, cacher, push, NO_CLIENT);
    }
}

/// The names of keys. Those of one name, in several databases, stand side by side.
fn names<'k>(keys: impl Iterator<Item = &'k ChangedKey<'k>>) -> Vec<Box<[u8]>> {
    let mut names: Vec<Box<[u8]>> = keys.map(|&(key, ..)| Box::from(key)).collect();
    names.dedup();
    names
}

fn invalidation(cacher: &Cacher, keys: Option<Vec<Box<[u8]>>>) -> Arc<Push> {
    Arc::new(Push::Invalidate { keys, is_redirected: cacher.redirect.is_some() })
}

/// Posts an invalidation. The reply to the client that caused it waits until it is delivered, but
/// for that client's own, which follows its reply.
fn tell(receivers: Receivers<'_>, cacher: &Cacher, push: &Arc<Push>, by: u64) {
    let target = cacher.redirect.unwrap_or(cacher.client);
    match receivers.clients.get(target) {
        Some(client) => {
            let message = Message::Push(client.id, Arc::clone(push));
            let mailbox = &receivers.mailboxes[client.thread];
            if client.id == by { mailbox.post(message) } else { mailbox.post_first(message) }
        }
        None => {
            if let Some(client) = receivers.clients.get(cacher.client) {
                let push = Push::TrackingRedirBroken(target);
                receivers.mailboxes[client.thread].post(Message::Push(client.id, Arc::new(push)));
            }
        }
    }
}

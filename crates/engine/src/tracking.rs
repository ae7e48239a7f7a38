//! Client-side caching: telling clients which keys they must forget.
//!
//! In the default mode a stripe's registry remembers which clients read a key; the first change
//! tells them and forgets them. In broadcasting mode a client names prefixes and is told of every
//! change below them.

use crate::args::Args;
use crate::command::Command;
use crate::cx::Cx;
use crate::engine::Engine;
use crate::interest::StripeInterest;
use crate::keys;
use crate::mailbox::{Message, Push};
use keyspace::Key;
use std::sync::atomic::{AtomicUsize, Ordering::*};
use std::sync::{Arc, PoisonError, RwLock};

/// A client that caches.
#[derive(Clone, Debug)]
pub struct Cacher {
    /// Its number.
    pub client: u64,
    /// The client that gets the invalidations: itself or the one it redirects to.
    pub target: u64,
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
    /// Keys remembered over all stripes.
    pub keys: AtomicUsize,
}

impl TrackingTable {
    /// Whether any client wants broadcasts.
    #[inline]
    pub fn is_broadcasting(&self) -> bool {
        self.broadcasting.load(Relaxed) > 0
    }

    /// Adds or replaces a client.
    pub fn set(&self, cacher: Cacher) {
        let mut cachers = self.cachers.write().unwrap_or_else(PoisonError::into_inner);
        cachers.retain(|other| other.client != cacher.client);
        cachers.push(cacher);
        self.count_broadcasting(&cachers);
    }

    /// Removes a client.
    pub fn remove(&self, client: u64) {
        let mut cachers = self.cachers.write().unwrap_or_else(PoisonError::into_inner);
        cachers.retain(|other| other.client != client);
        self.count_broadcasting(&cachers);
    }

    fn count_broadcasting(&self, cachers: &[Cacher]) {
        let count = cachers.iter().filter(|c| c.prefixes.is_some()).count();
        self.broadcasting.store(count, Relaxed);
    }

    /// All clients that cache.
    pub fn all(&self) -> Vec<Cacher> {
        self.cachers.read().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Tells the clients that read a key, whose stripe is locked, that it changed.
    pub(crate) fn key_changed(
        &self,
        engine: &Engine,
        interest: &mut StripeInterest,
        key: &[u8],
        by: u64,
    ) {
        let Some(readers) = interest.trackers.remove(key) else { return };
        self.keys.fetch_sub(1, Relaxed);
        for client in readers {
            self.invalidate(engine, client, Some(key), by);
        }
    }

    fn invalidate(&self, engine: &Engine, client: u64, key: Option<&[u8]>, by: u64) {
        let cachers = self.cachers.read().unwrap_or_else(PoisonError::into_inner);
        let Some(cacher) = cachers.iter().find(|c| c.client == client) else { return };
        if cacher.prefixes.is_none() && !(cacher.no_loop && client == by) {
            tell(engine, cacher, key);
        }
    }

    /// Tells the broadcasting clients that a key changed.
    pub(crate) fn broadcast(&self, engine: &Engine, key: &[u8], by: u64) {
        if !self.is_broadcasting() {
            return;
        }
        let cachers = self.cachers.read().unwrap_or_else(PoisonError::into_inner);
        for cacher in cachers.iter() {
            let Some(prefixes) = &cacher.prefixes else { continue };
            let wanted = prefixes.is_empty() || prefixes.iter().any(|p| key.starts_with(p));
            if wanted && !(cacher.no_loop && cacher.client == by) {
                tell(engine, cacher, Some(key));
            }
        }
    }

    /// Tells every client to forget everything (FLUSHALL).
    pub fn invalidate_all(&self, engine: &Engine) {
        for cacher in self.all() {
            tell(engine, &cacher, None);
        }
    }
}

fn tell(engine: &Engine, cacher: &Cacher, key: Option<&[u8]>) {
    let push = Push::Invalidate(key.map(|key| vec![Box::from(key)]));
    match engine.clients.get(cacher.target) {
        Some(target) => {
            let message = Message::Push(target.id, Arc::new(push));
            engine.mailboxes[target.thread].post(message);
        }
        None => {
            if let Some(client) = engine.clients.get(cacher.client) {
                let push = Push::TrackingRedirBroken(cacher.target);
                engine.mailboxes[client.thread].post(Message::Push(client.id, Arc::new(push)));
            }
        }
    }
}

/// Remembers the keys that a client with a cache has just read; their stripes are locked.
#[cold]
#[allow(unsafe_code)]
pub(crate) fn remember_reads(cx: &mut Cx<'_>, command: &Command, args: Args<'_>) {
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
    let words = args.words();
    // Keys that cannot be found were not read either.
    let _ = keys::for_each_key(command, words, |index, _| {
        let stripe = engine.keyspace.stripe_of(Key::new(words[index]));
        cx.db.with_stripe(stripe, |data| {
            // SAFETY: `with_stripe` holds the stripe's lock.
            let interest = unsafe { engine.interests.stripe(stripe) };
            let readers = interest.trackers.entry(Box::from(words[index])).or_insert_with(|| {
                engine.tracking.keys.fetch_add(1, Relaxed);
                Vec::new()
            });
            if !readers.contains(&client) {
                readers.push(client);
            }
            data.has_interest = true;
        });
    });
}

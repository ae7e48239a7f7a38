//! The clients that wait for a key to change: WATCH, blocked commands and client-side caches.
//!
//! Each stripe has a registry as its attachment, under the stripe's own lock, so that registering
//! and changing a key exclude each other. A stripe without a registry says so in one byte that
//! every write looks at anyway (`StripeData::has_attachment`).

use super::waiter::Waiter;
use crate::clients::Client;
use keyspace::{DbIndex, StripeData};
use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::*};

/// A client's watch: raised by the first change of any key it watches.
pub struct Watch {
    pub(crate) client: Arc<Client>,
    dirty: AtomicBool,
}

impl Watch {
    /// The watch of a client, which nothing has raised yet.
    pub(crate) fn new(client: &Arc<Client>) -> Watch {
        Watch { client: Arc::clone(client), dirty: AtomicBool::new(false) }
    }

    /// A watched key changed.
    pub fn raise(&self) {
        self.dirty.store(true, Release);
    }
    /// Whether any watched key changed.
    pub fn is_dirty(&self) -> bool {
        self.dirty.load(Acquire)
    }
}

/// The interests in one key of one database.
#[derive(Default)]
pub struct KeyInterest {
    /// Clients that watch it.
    pub watches: Vec<Arc<Watch>>,
    /// Blocked clients, the one that waits longest first. Some do not wait any more.
    pub waiters: Vec<Arc<Waiter>>,
    /// How many of them that are, at most.
    over: usize,
}

impl KeyInterest {
    /// Adds a blocked client, once (BLPOP k k). Nothing else was added since its command began.
    pub fn add_waiter(&mut self, waiter: &Arc<Waiter>) {
        if !self.waiters.last().is_some_and(|last| Arc::ptr_eq(last, waiter)) {
            self.waiters.push(Arc::clone(waiter));
        }
    }

    /// Forgets a blocked client. One that is over stays until they are half of all: to look for
    /// each that goes would take minutes where thousands wait for the same key.
    pub fn forget_waiter(&mut self, waiter: &Arc<Waiter>) {
        self.over += 1;
        if !waiter.is_over() || self.over * 2 >= self.waiters.len() {
            self.waiters.retain(|other| !other.is_over() && !Arc::ptr_eq(other, waiter));
            self.over = 0;
        }
    }
}

/// The interests in the keys of one stripe.
#[derive(Default)]
pub struct StripeInterest {
    /// By database and key.
    pub keys: HashMap<(DbIndex, Box<[u8]>), KeyInterest>,
    /// Clients that may have the key cached, whatever the database (client-side caching).
    pub trackers: HashMap<Box<[u8]>, Vec<u64>>,
}

impl StripeInterest {
    /// Whether no client is interested in anything here.
    pub fn is_empty(&self) -> bool {
        self.keys.is_empty() && self.trackers.is_empty()
    }

    /// The interests in a key, if any.
    pub fn of(&mut self, db: DbIndex, key: &[u8]) -> Option<&mut KeyInterest> {
        if self.keys.is_empty() {
            return None;
        }
        self.keys.get_mut(&(db, Box::from(key)))
    }

    /// The same, to look at.
    pub fn look(&self, db: DbIndex, key: &[u8]) -> Option<&KeyInterest> {
        self.keys.get(&(db, Box::from(key)))
    }

    /// The interests in a key, made if there are none.
    pub fn of_or_new(&mut self, db: DbIndex, key: &[u8]) -> &mut KeyInterest {
        self.keys.entry((db, Box::from(key))).or_default()
    }

    /// Removes the interests in a key that `keep` does not keep.
    pub fn retain(&mut self, db: DbIndex, key: &[u8], keep: impl FnOnce(&mut KeyInterest)) {
        let name = (db, Box::from(key));
        if let Some(interest) = self.keys.get_mut(&name) {
            keep(interest);
            if interest.watches.is_empty() && interest.waiters.is_empty() {
                self.keys.remove(&name);
            }
        }
    }
}

/// The registry of a stripe, if there is anything in it.
pub fn of_stripe(data: &StripeData) -> Option<&StripeInterest> {
    data.attachment()
}

/// Changes the registry of a stripe, which is there as long as there is anything in it.
pub fn change<R>(data: &mut StripeData, change: impl FnOnce(&mut StripeInterest) -> R) -> R {
    data.change_attachment(change, StripeInterest::is_empty)
}

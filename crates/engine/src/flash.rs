//! The flash tier: the store that cold values are in, and figures of what goes there.

use crate::stats::Counter;
use keyspace::cold::{Fetched, set_store};
use keyspace::{ColdError, ColdLocation, ColdStore, Millis};
use std::sync::atomic::{AtomicI64, Ordering::Relaxed};
use std::sync::{Arc, OnceLock};
use tier::{Location, Tier};

/// How long a search in vain is remembered, in milliseconds.
const REMEMBERED_MS: i64 = 50;

/// The tier, if there is one, and what has gone into it.
#[derive(Default)]
pub struct FlashTier {
    tier: OnceLock<Arc<Tier>>,
    /// Until when no search for something to demote makes sense.
    in_vain_until_ms: AtomicI64,
    /// The second in which a value that could not be read was last named in the log.
    failure_logged_s: AtomicI64,
    /// Values that left RAM.
    pub demotions: Counter,
    /// What their entries held, in bytes.
    pub demoted_bytes: Counter,
    /// Values that were put back.
    pub promotions: Counter,
    /// Values that commands which read have found on flash, once for each client that waits for one.
    pub misses: Counter,
    /// Requests that had to wait for a value.
    pub waits: Counter,
    /// Commands that waited because the disk was behind.
    pub throttled: Counter,
}

impl FlashTier {
    /// The tier, if there is one.
    #[inline]
    pub fn get(&self) -> Option<&Arc<Tier>> {
        self.tier.get()
    }

    /// Until when no search for something to demote makes sense.
    pub(crate) fn in_vain_until(&self) -> Millis {
        Millis(self.in_vain_until_ms.load(Relaxed))
    }

    /// Nothing was found to demote.
    pub(crate) fn note_search_in_vain(&self, now: Millis) {
        self.in_vain_until_ms.store(now.0 + REMEMBERED_MS, Relaxed);
    }

    /// Whether a value that could not be read is to be named in the log: once a second at most.
    pub(crate) fn may_log_failure(&self, now_s: i64) -> bool {
        self.failure_logged_s.swap(now_s, Relaxed) != now_s
    }

    /// Begins to use a tier; once in a process, before there are clients. Says whether it did.
    pub fn attach(&self, tier: Arc<Tier>) -> bool {
        set_store(Box::new(Store(Arc::clone(&tier)))) && self.tier.set(tier).is_ok()
    }
}

/// The cold values of the keyspace are in a tier.
struct Store(Arc<Tier>);

fn place(ColdLocation(bits): ColdLocation) -> Location {
    Location::from_bits(bits)
}

/// What stands for a place of the tier in an entry.
pub(crate) fn cold_location(location: Location) -> ColdLocation {
    ColdLocation(location.to_bits())
}

impl ColdStore for Store {
    fn fetch(&self, wanted: Vec<ColdLocation>, done: Fetched) {
        let locations: Vec<Location> = wanted.into_iter().map(place).collect();
        let told = |results: Vec<tier::Payload>| {
            done(results.into_iter().map(|result| result.map_err(unreadable)).collect());
        };
        self.0.fetch(&locations, Box::new(told));
    }

    fn size(&self, location: ColdLocation) -> usize {
        place(location).len()
    }

    fn read(&self, location: ColdLocation) -> Result<Vec<u8>, ColdError> {
        self.0.read(place(location)).map_err(unreadable)
    }

    fn release(&self, location: ColdLocation) {
        self.0.release(place(location));
    }

    fn renamed(&self, location: ColdLocation, hash: u64) {
        self.0.rename(place(location), hash);
    }

    fn mark(&self, location: ColdLocation) -> bool {
        self.0.mark(place(location));
        true
    }

    fn unmark(&self, location: ColdLocation) -> bool {
        self.0.unmark(place(location))
    }

    fn is_marked(&self, location: ColdLocation) -> bool {
        self.0.is_marked(place(location))
    }

    fn pin(&self, location: ColdLocation) {
        self.0.pin(place(location));
    }

    fn unpin(&self, location: ColdLocation) {
        self.0.unpin(place(location));
    }
}

fn unreadable(error: tier::ReadError) -> ColdError {
    ColdError(error.to_string())
}

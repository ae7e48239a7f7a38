//! The flash tier: the store that cold values are in, and figures of what goes there.

use crate::stats::Counter;
use keyspace::cold::{Fetched, set_store};
use keyspace::keyspace::STRIPES;
use keyspace::{ColdError, ColdLocation, ColdStore, Millis};
use std::sync::atomic::{AtomicBool, AtomicI64, AtomicU32, AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, OnceLock};
use tier::{Location, Tier};

/// How long a search that found nothing is remembered, in milliseconds.
const REMEMBERED_MS: i64 = 50;

/// Why values have to leave RAM.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Need {
    /// Less than `maxmemory` is in use. Demotion restores headroom, or compensates for file
    /// buffers.
    Headroom,
    /// More than `maxmemory` is in use. If no value leaves, commands are refused or keys evicted.
    Limit,
}

/// Bound of the allocator's waste that demotion compensates for: a fifth of `maxmemory`, or a
/// quarter if `maxmemory` is small.
const MAX_WASTE_DIVISOR: u64 = 5;
const MAX_WASTE_DIVISOR_SMALL: u64 = 4;
const SMALL_WASTE: u64 = 32 << 20;
/// Share of `maxmemory` that is added to this bound when RSS reaches its own bound.
const PRESSURE_WASTE_DIVISOR: u64 = 8;
/// Number of fruitless visits that one find outweighs, at least.
const VISITS_PER_FIND: u32 = 64;
/// Without pressure the waste approaches its measured value by one part in this many, every 20 ms.
const WASTE_STEPS: u64 = 100;
/// RSS may exceed `maxmemory` by this share of it, or by `MIN_ALLOWANCE_BYTES` bytes if that is
/// more.
const ALLOWANCE_DIVISOR: u64 = 20;
const MIN_ALLOWANCE_BYTES: u64 = 64 << 20;

/// The tier, if there is one, and counters of its use.
#[derive(Default)]
pub struct FlashTier {
    tier: OnceLock<Arc<Tier>>,
    /// The position of the clock's hand in each stripe.
    hands: OnceLock<Box<[AtomicU64]>>,
    /// Set by tests: values are promoted as if memory were full.
    pub filters_always: AtomicBool,
    /// Results of [`FlashTier::note_resident`].
    waste_bytes: AtomicU64,
    pressure: AtomicU32,
    /// Time until which no search for values to demote is begun, for each need.
    no_search_until_ms: [AtomicI64; 2],
    /// Visits to stripes that found nothing, over all searches, less what finds outweigh.
    fruitless_visits: [AtomicU32; 2],
    /// The second in which an unreadable value was last logged.
    failure_logged_s: AtomicI64,
    /// Decides whether values are compressed.
    pub(crate) compressing: Compressing,
    /// Values that left RAM.
    pub demotions: Counter,
    /// Demoted values that had a copy on flash, so nothing was encoded or written.
    pub demotions_without_write: Counter,
    /// Bytes that demotions freed.
    pub demoted_bytes: Counter,
    /// Values that were read back into RAM.
    pub promotions: Counter,
    /// Commands that were answered with a value that was not promoted.
    pub passed_reads: Counter,
    /// Cold values that reading commands met, once for each client that waits for one.
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

    /// Returns the bytes of RSS beyond the bytes in use that demotion compensates for.
    #[inline]
    pub fn waste_bytes(&self) -> u64 {
        self.waste_bytes.load(Relaxed)
    }

    /// Records the process's RSS (`resident`), the bytes in use and the limit. Returns whether RSS
    /// exceeds, or soon exceeds, its bound.
    ///
    /// RSS beyond the bytes in use is mostly free blocks in pages that are partly in use. The
    /// allocator fills such a page again only when an eighth of it is free. Half of RSS's allowance
    /// beyond the limit is left to this waste. Demotion compensates for the rest, up to a bound. If
    /// the waste is much more than an eighth, demotion does not help, and entries have to move to
    /// other pages. While data is loaded no entries move, and no value is hotter than another. The
    /// bound is then half of the limit.
    pub fn note_resident(&self, resident: u64, used: u64, limit: u64, is_loading: bool) -> bool {
        let allowance = (limit / ALLOWANCE_DIVISOR).max(MIN_ALLOWANCE_BYTES);
        let too_much = resident.saturating_sub(limit + allowance / 2);
        let pressure = match self.get() {
            Some(_) if limit > 0 && too_much > 0 => (too_much * 200 / allowance).clamp(1, 100),
            _ => 0,
        };
        self.pressure.store(pressure as u32, Relaxed);
        let beyond = resident.saturating_sub(used).saturating_sub(allowance / 2);
        let most = match is_loading {
            true => limit / 2,
            false => {
                let most = (limit / MAX_WASTE_DIVISOR)
                    .max(SMALL_WASTE.min(limit / MAX_WASTE_DIVISOR_SMALL));
                most + limit / PRESSURE_WASTE_DIVISOR * pressure / 100
            }
        };
        let wanted = if self.get().is_some() { beyond.min(most) } else { 0 };
        let was = self.waste_bytes();
        // Without pressure there is time to empty pages first. A short peak of waste demotes no
        // value.
        let slowly = pressure == 0 && wanted > was && !is_loading;
        let waste = if slowly { was + (wanted - was).div_ceil(WASTE_STEPS) } else { wanted };
        self.waste_bytes.store(waste, Relaxed);
        pressure > 0
    }

    /// Returns how much of the upper half of its allowance RSS takes, in percent.
    pub(crate) fn pressure(&self) -> u32 {
        self.pressure.load(Relaxed)
    }

    /// Returns the time until which no search for values to demote is begun.
    pub(crate) fn no_search_until(&self, need: Need) -> Millis {
        Millis(self.no_search_until_ms[need as usize].load(Relaxed))
    }

    /// Records one visit to a stripe and returns the number of fruitless visits. `found` is the
    /// number of bytes demoted there, or `None` if the visit was fruitless. A search ends early
    /// when its time is up, so visits are counted across searches. A find outweighs 64 fruitless
    /// visits, or one for each KiB if that is more.
    pub(crate) fn note_visit(&self, need: Need, found: Option<usize>) -> usize {
        let fruitless = &self.fruitless_visits[need as usize];
        let was = fruitless.load(Relaxed);
        let now = match found {
            Some(bytes) => was.saturating_sub(VISITS_PER_FIND.max((bytes / 1024) as u32)),
            None => was.saturating_add(1),
        };
        // Concurrent updates may be lost. An approximate count suffices.
        fruitless.store(now, Relaxed);
        now as usize
    }

    /// Records that a search ended after `visits` fruitless visits. Seven eighths of them stay in
    /// the count, so the next search ends soon if it finds nothing either.
    pub(crate) fn end_fruitless_search(&self, need: Need, visits: usize) {
        self.fruitless_visits[need as usize].store((visits - visits / 8) as u32, Relaxed);
    }

    /// Records that a search found nothing to demote.
    pub(crate) fn note_fruitless_search(&self, need: Need, now: Millis) {
        self.no_search_until_ms[need as usize].store(now.0 + REMEMBERED_MS, Relaxed);
    }

    /// Returns the position of the clock's hand in a stripe.
    pub(crate) fn hand(&self, stripe: usize) -> &AtomicU64 {
        &self.hands.get_or_init(|| (0..STRIPES).map(|_| AtomicU64::new(0)).collect())[stripe]
    }

    /// Returns whether an unreadable value may be logged now: once a second at most.
    pub(crate) fn may_log_failure(&self, now_s: i64) -> bool {
        self.failure_logged_s.swap(now_s, Relaxed) != now_s
    }

    /// Begins to use `tier` and returns whether it did. Called once in a process, before there are
    /// clients.
    pub fn attach(&self, tier: Arc<Tier>) -> bool {
        set_store(Box::new(Store(Arc::clone(&tier)))) && self.tier.set(tier).is_ok()
    }
}

/// Decides whether a value is compressed before it is written. Compression takes a tenth of the
/// cost of a demotion, and gains nothing on values that are compressed or random. After `PATIENCE`
/// values in a row that did not become smaller, only one value in `ONE_IN` is tried.
#[derive(Default)]
pub(crate) struct Compressing {
    /// Values in a row that compression did not make smaller.
    unchanged: AtomicU32,
    /// Values that were not tried.
    skipped: AtomicU32,
}

impl Compressing {
    /// Number of values in a row after which compression is tried on one value in `ONE_IN`.
    const PATIENCE: u32 = 64;
    const ONE_IN: u32 = 32;

    /// Returns whether to compress the next value. Concurrent calls may give different answers.
    pub fn is_due(&self) -> bool {
        self.unchanged.load(Relaxed) < Self::PATIENCE
            || self.skipped.fetch_add(1, Relaxed).is_multiple_of(Self::ONE_IN)
    }

    /// Records the size of a value before and after compression. A tenth less counts as smaller.
    pub fn note(&self, before: usize, after: usize) {
        if after < before / 10 * 9 {
            self.unchanged.store(0, Relaxed);
        } else if self.unchanged.load(Relaxed) < Self::PATIENCE {
            self.unchanged.fetch_add(1, Relaxed);
        }
    }
}

/// The keyspace's store of cold values: the tier.
struct Store(Arc<Tier>);

fn place(ColdLocation(bits): ColdLocation) -> Location {
    Location::from_bits(bits)
}

/// Returns the form in which an entry keeps a location of the tier.
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn compression_is_tried_rarely_where_it_is_of_no_use() {
        let compressing = Compressing::default();
        let tried = |count: usize, after: usize| {
            let due = (0..count).filter(|_| {
                let is_due = compressing.is_due();
                if is_due {
                    compressing.note(1000, after);
                }
                is_due
            });
            due.count()
        };
        assert_eq!(tried(500, 800), 500);
        assert_eq!(tried(64 + 320, 1000), 64 + 10);
        assert!(tried(500, 800) > 450, "it is found to be of use again");
    }
}

//! The flash tier: the store that cold values are in, and figures of what goes there.

use crate::stats::Counter;
use keyspace::cold::{Fetched, set_store};
use keyspace::keyspace::STRIPES;
use keyspace::{ColdError, ColdLocation, ColdStore, Millis};
use std::sync::atomic::{AtomicBool, AtomicI64, AtomicU32, AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, OnceLock};
use tier::{Location, Tier};

/// How long a search in vain is remembered, in milliseconds.
const REMEMBERED_MS: i64 = 50;

/// What values are to leave RAM for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Need {
    /// `maxmemory` is kept. Some room is to be left, or what is held for files to be made up for.
    Room,
    /// More is in use than `maxmemory`: commands are refused or keys evicted if nothing goes.
    Limit,
}

/// The allocator's waste makes values leave up to a fifth of `maxmemory`, where that is little up to a quarter.
const MOST_WASTE: u64 = 5;
const MOST_OF_LITTLE: u64 = 4;
const LITTLE_WASTE: u64 = 32 << 20;
/// So much more at most, the nearer RSS is to its bound.
const MORE_WASTE: u64 = 8;
/// Visits in vain that a find makes up for at least.
const FIND_WORTH: u32 = 64;
/// Without pressure waste grows by one in so many of what is found more; it is looked for every 20 ms.
const SLOWLY: u64 = 100;
/// RSS may exceed `maxmemory` by one in so many bytes, or by so many bytes if that is more.
const ALLOWANCE: u64 = 20;
const LEAST_ALLOWANCE: u64 = 64 << 20;

/// The tier, if there is one, and what has gone into it.
#[derive(Default)]
pub struct FlashTier {
    tier: OnceLock<Arc<Tier>>,
    /// Where the hand of the clock is in each stripe.
    hands: OnceLock<Box<[AtomicU64]>>,
    /// For tests: values are put back as if there were no room.
    pub filters_always: AtomicBool,
    /// What [`FlashTier::note_resident`] has found.
    waste_bytes: AtomicU64,
    pressure: AtomicU32,
    /// Until when no search for something to demote makes sense, by what it is for.
    in_vain_until_ms: [AtomicI64; 2],
    /// Visits to stripes without a find, over all searches, less what finds are worth.
    vain_visits: [AtomicU32; 2],
    /// The second in which a value that could not be read was last named in the log.
    failure_logged_s: AtomicI64,
    /// Whether values are worth compressing.
    pub(crate) compressing: Compressing,
    /// Values that left RAM.
    pub demotions: Counter,
    /// Those of them that had a copy on flash, so that nothing was encoded or written.
    pub demotions_without_write: Counter,
    /// What their entries held, in bytes.
    pub demoted_bytes: Counter,
    /// Values that were put back.
    pub promotions: Counter,
    /// Commands that were answered with a value that was not put back.
    pub passed_reads: Counter,
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

    /// The bytes of RAM that the process takes beyond what is in use, as far as values are to make up for it.
    #[inline]
    pub fn waste_bytes(&self) -> u64 {
        self.waste_bytes.load(Relaxed)
    }

    /// What the process takes of RAM while so much is in use and may be, in bytes. Whether it takes more than is allowed,
    /// or will soon.
    ///
    /// The rest is mostly blocks that are free in pages that are not: the allocator fills such a page again only
    /// when an eighth of it is free. Half of what RSS may exceed the limit by is left to it, and what goes beyond that
    /// values make up for. If it is much more than the eighth their leaving does not help, and entries have to move.
    /// While data is loaded no entries move, and no value is hotter than another: then half of the limit counts.
    pub fn note_resident(&self, resident: u64, used: u64, limit: u64, is_loading: bool) -> bool {
        let allowance = (limit / ALLOWANCE).max(LEAST_ALLOWANCE);
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
                let most = (limit / MOST_WASTE).max(LITTLE_WASTE.min(limit / MOST_OF_LITTLE));
                most + limit / MORE_WASTE * pressure / 100
            }
        };
        let wanted = if self.get().is_some() { beyond.min(most) } else { 0 };
        let was = self.waste_bytes();
        // Without pressure there is time to make pages empty first: no value has to leave for a moment's waste.
        let slowly = pressure == 0 && wanted > was && !is_loading;
        let waste = if slowly { was + (wanted - was).div_ceil(SLOWLY) } else { wanted };
        self.waste_bytes.store(waste, Relaxed);
        pressure > 0
    }

    /// How far RSS was beyond half of what it may exceed the limit by lately, in percent of the other half.
    pub(crate) fn pressure(&self) -> u32 {
        self.pressure.load(Relaxed)
    }

    /// Until when no search for something to demote makes sense.
    pub(crate) fn in_vain_until(&self, need: Need) -> Millis {
        Millis(self.in_vain_until_ms[need as usize].load(Relaxed))
    }

    /// Notes a visit to a stripe that has found so many bytes to demote, or none; how many visits have been in vain. A
    /// search is cut off after a while, and a command must not look for a value that the last has brought: so visits are
    /// counted across searches, and a find is worth 64 of them, or one for each KiB.
    pub(crate) fn note_visit(&self, need: Need, found: Option<usize>) -> usize {
        let vain = &self.vain_visits[need as usize];
        let was = vain.load(Relaxed);
        let now = match found {
            Some(bytes) => was.saturating_sub(FIND_WORTH.max((bytes / 1024) as u32)),
            None => was.saturating_add(1),
        };
        // Other threads' visits that get lost do not matter.
        vain.store(now, Relaxed);
        now as usize
    }

    /// So many visits in vain have ended a search. Most of them stay on the count, so that the next ends soon if it finds
    /// nothing, either.
    pub(crate) fn end_vain_visits(&self, need: Need, visits: usize) {
        self.vain_visits[need as usize].store((visits - visits / 8) as u32, Relaxed);
    }

    /// Nothing was found to demote.
    pub(crate) fn note_search_in_vain(&self, need: Need, now: Millis) {
        self.in_vain_until_ms[need as usize].store(now.0 + REMEMBERED_MS, Relaxed);
    }

    /// The hand of a stripe.
    pub(crate) fn hand(&self, stripe: usize) -> &AtomicU64 {
        &self.hands.get_or_init(|| (0..STRIPES).map(|_| AtomicU64::new(0)).collect())[stripe]
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

/// Whether compressing values pays. It takes a tenth of what demotion costs, for nothing where the values are
/// compressed or random already. So after many values in a row that it did not make smaller, a few are tried.
#[derive(Default)]
pub(crate) struct Compressing {
    /// Values in a row that it was of no use for.
    in_vain: AtomicU32,
    /// Values that it was not tried on.
    skipped: AtomicU32,
}

impl Compressing {
    /// Values in a row, after which it is tried on one of so many.
    const PATIENCE: u32 = 64;
    const ONE_IN: u32 = 32;

    /// Whether it is to be tried on the next value. Threads that ask at once need not agree.
    pub fn is_due(&self) -> bool {
        self.in_vain.load(Relaxed) < Self::PATIENCE
            || self.skipped.fetch_add(1, Relaxed).is_multiple_of(Self::ONE_IN)
    }

    /// What it has made of a value's bytes. A tenth less is of use.
    pub fn note(&self, before: usize, after: usize) {
        if after < before / 10 * 9 {
            self.in_vain.store(0, Relaxed);
        } else if self.in_vain.load(Relaxed) < Self::PATIENCE {
            self.in_vain.fetch_add(1, Relaxed);
        }
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

//! Decides which values leave RAM for the flash tier, and when.
//!
//! *Demotion* is paced by the distance to `maxmemory`. From 15/16 of the limit on, each thread
//! spends part of its time on demotion, more as the limit comes nearer. At the limit, a command
//! demotes values itself before anything is evicted. While the disk is behind, writers wait. If the
//! tier takes nothing more, `maxmemory-policy` decides.
//!
//! *Coldness.* Each stripe has a clock hand that goes round in the order of hashes. At each entry
//! it passes, it subtracts one use ([`access::one_use_less`]). An entry with no use left is
//! demoted. Under an LFU policy, the least used of a few entries of a random stripe is demoted.
//!
//! `docs/internals/tier.md` describes the whole.

use crate::clock::Ticks;
use crate::cold_values::encode_as;
use crate::db::Db;
use crate::engine::Engine;
use crate::flash::{Need, cold_location};
use crate::value;
use keyspace::access::{self, Policy};
use keyspace::cold;
use keyspace::keyspace::STRIPES;
use keyspace::tables::WalkPlace;
use keyspace::world::Reader;
use keyspace::{DbIndex, Entry, Key, Kind, Millis, Moved, StripeData};
use rdb::Compression;
use std::cell::{Cell, RefCell};
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;
use structs::random::Rng;
use tier::{Location, Owners, Refused, Relocation, Tier};

/// Number of entries of a stripe that a visit compares, and the greatest number of draws for it.
const SAMPLES: usize = 8;
const DRAWS: usize = 4 * SAMPLES;
/// Buckets that the hand passes at a visit that demotes nothing.
const STRETCH: usize = 16;
/// Number of fruitless visits after which a search ends.
const MAX_FRUITLESS_VISITS: usize = 2 * STRIPES;
/// The same after the tier refused a value. Other values may have copies on flash.
const MAX_REFUSED_VISITS: usize = 16;
/// The share of the limit that is kept free, as a divisor.
const HEADROOM: u64 = 16;
/// Least and greatest time that a thread demotes at a stretch.
const MIN_STRETCH: Duration = Duration::from_micros(50);
const MAX_STRETCH: Duration = Duration::from_micros(400);
/// Pause of a loading thread while the disk is behind, and the number of pauses before it goes on.
const LOAD_PAUSE: Duration = Duration::from_millis(1);
const LOAD_PAUSES: u32 = 5000;
/// Longest time that the tier's thread waits for a stopped world.
const MAX_STOP: Duration = Duration::from_millis(5);
/// Bytes of a cold entry with a short key.
const COLD_BYTES: usize = 32;

/// The entries that hold locations, as the tier's thread sees them.
pub struct Entries {
    engine: &'static Engine,
    reader: Reader<'static>,
}

impl Entries {
    /// Registers the calling thread as a reader.
    pub fn new(engine: &'static Engine) -> Entries {
        Entries { engine, reader: engine.keyspace.world().register() }
    }
}

impl Owners for Entries {
    fn relocate(
        &self,
        hash: u64,
        from: Location,
        append: &mut dyn FnMut() -> Result<Location, Refused>,
    ) -> Relocation {
        let (keyspace, clock) = (&self.engine.keyspace, &self.engine.clock);
        // The thread that stopped the world may be waiting for new segments.
        let began = clock.now();
        if !self.reader.enter_unless(|| clock.elapsed(began) > MAX_STOP) {
            return Relocation::Later;
        }
        // The hash alone determines the stripe. If cluster slots took part in it, records would
        // need the slot.
        let stripe = keyspace.stripe_of(Key { bytes: b"", hash });
        let to = || append().map(cold_location);
        // A script may hold the stripe for a long time, so the wait is bounded.
        let data = keyspace.stripe(stripe).try_lock_soon();
        let moved = data.map(|mut data| data.move_cold(hash, cold_location(from), to));
        self.reader.leave();
        let Some(moved) = moved else { return Relocation::Later };
        match moved {
            Moved::Done => Relocation::Moved,
            Moved::Gone => Relocation::Gone,
            Moved::Held => Relocation::Held,
            Moved::Failed(refused) => Relocation::Refused(refused),
        }
    }
}

/// How an attempt to demote has ended.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Demoted {
    /// Enough values were demoted.
    Enough,
    /// The time was up.
    TimeUp,
    /// The queue of the disk is full.
    DiskIsBehind,
    /// Nothing can be demoted, or the tier takes nothing more.
    Nothing,
}

/// The parameters of a search for values to demote.
struct Search<'s> {
    engine: &'s Engine,
    tier: &'s Arc<Tier>,
    policy: Policy,
    now: Millis,
    random: &'s dyn Fn() -> u64,
    /// The number of values demoted so far.
    demoted: &'s Cell<u32>,
}

/// Returns whether values may be promoted without others having to leave soon.
pub(crate) fn has_headroom(engine: &Engine) -> bool {
    let limit = engine.config.maxmemory();
    let has_headroom = limit == 0 || engine.demotable_bytes() < limit - limit / HEADROOM * 2;
    has_headroom && !engine.tier.filters_always.load(Relaxed)
}

/// Returns the number of bytes in use from which on values leave RAM.
fn begins_at(limit: u64) -> u64 {
    limit - limit / HEADROOM
}

/// Returns whether values have to leave RAM now.
pub(crate) fn is_demoting(engine: &Engine) -> bool {
    let limit = engine.config.maxmemory();
    limit > 0 && engine.demotable_bytes() > begins_at(limit) && engine.tier.get().is_some()
}

/// Demotes until `excess` returns 0 or `longest` has passed since `began`.
pub(crate) fn demote(
    db: &Db<'_>,
    tier: &Arc<Tier>,
    excess: &dyn Fn() -> u64,
    began: Ticks,
    longest: Duration,
) -> Demoted {
    let (engine, random) = (db.engine, || db.random());
    let (policy, now, demoted) = (db.policy, db.now(), &db.demoted);
    let search = Search { engine, tier, policy, now, random: &random, demoted };
    search.demote(excess, began, longest)
}

/// Demotes before the limit is reached, for a time that grows as the limit comes nearer. Returns
/// whether to go on as soon as possible.
pub(crate) fn demote_ahead(db: &Db<'_>, limit: u64) -> bool {
    let engine = db.engine;
    let Some(tier) = engine.tier.get() else { return false };
    let headroom = limit / HEADROOM;
    let excess = || engine.demotable_bytes().saturating_sub(begins_at(limit));
    let share = excess().min(headroom);
    if share == 0 {
        return false;
    }
    let longest =
        MIN_STRETCH + (MAX_STRETCH - MIN_STRETCH).mul_f64(share as f64 / headroom.max(1) as f64);
    let ended = demote(db, tier, &excess, engine.clock.now(), longest);
    matches!(ended, Demoted::TimeUp | Demoted::DiskIsBehind)
}

/// Keeps memory below the limit while data arrives without a client: a file is loaded, or this
/// server follows a primary.
///
/// It demotes the excess and waits for the disk if it must. It returns above the limit if the tier
/// takes nothing more, because loaded data is not evicted. The caller passes the registration with
/// which it is outside the world, or `None` if the world is stopped.
pub(crate) fn make_room_for_load(engine: &'static Engine, reader: Option<&Reader>) {
    let limit = engine.config.maxmemory();
    if limit > 0
        && let Some(tier) = engine.tier.get()
    {
        let wanted = begins_at(limit);
        if engine.demotable_bytes() > wanted {
            demote_for_load(engine, tier, limit, wanted, reader);
        }
    }
}

#[cold]
fn demote_for_load(
    engine: &'static Engine,
    tier: &Arc<Tier>,
    limit: u64,
    wanted: u64,
    reader: Option<&Reader>,
) {
    let random = RefCell::new(Rng::from_entropy());
    let random = || random.borrow_mut().next_u64();
    let (policy, now) = (engine.access_policy(), engine.clock.wall());
    let search = Search { engine, tier, policy, now, random: &random, demoted: &Cell::new(0) };
    let excess = || engine.demotable_bytes().saturating_sub(wanted);
    for _ in 0..LOAD_PAUSES {
        if let Some(reader) = reader {
            reader.enter();
        }
        let ended = search.demote(&excess, engine.clock.now(), MAX_STRETCH);
        if let Some(reader) = reader {
            reader.leave();
        }
        match ended {
            Demoted::Enough | Demoted::Nothing => return,
            // Below the limit, one stretch for every few keys is enough.
            _ if engine.demotable_bytes() <= limit => return,
            Demoted::TimeUp => {}
            Demoted::DiskIsBehind => {
                engine.tier.throttled.add(1);
                engine.clock.rest(LOAD_PAUSE);
            }
        }
    }
}

impl Search<'_> {
    fn demote(&self, excess: &dyn Fn() -> u64, began: Ticks, longest: Duration) -> Demoted {
        let engine = self.engine;
        // A fruitless search for headroom must not stop a search that decides about a refusal.
        let need = if engine.is_over_limit() { Need::Limit } else { Need::Headroom };
        if self.now < engine.tier.no_search_until(need) {
            return Demoted::Nothing;
        }
        // Demoted values may not be freed yet, so their bytes are counted here.
        let (wanted, mut freed, mut without_hope) = (excess(), 0, 0);
        let (mut refused, mut fruitless) = (None, 0);
        while freed < wanted && excess() > 0 {
            let is_time_up = engine.clock.elapsed(began) > longest;
            if is_time_up && (refused.is_none() || freed > 0) {
                return Demoted::TimeUp;
            }
            let visit = self.demote_of_some_stripe(refused.is_some());
            if refused.is_none() {
                let found = visit.freed > 0 || visit.has_hope || visit.refused.is_some();
                fruitless = engine.tier.note_visit(need, found.then_some(visit.freed));
            }
            refused = refused.or(visit.refused);
            if visit.freed > 0 {
                freed += visit.freed as u64;
                self.demoted.update(|count| count.saturating_add(1));
                without_hope = 0;
            } else {
                without_hope = if visit.has_hope { 0 } else { without_hope + 1 };
            }
            // After a refusal only values with a copy can leave, if such are found soon.
            match refused {
                Some(_)
                    if cold::copies() > 0 && !is_time_up && without_hope < MAX_REFUSED_VISITS => {}
                Some(Refused::Busy) => return Demoted::DiskIsBehind,
                Some(_) if is_time_up => return Demoted::Nothing,
                None if fruitless < MAX_FRUITLESS_VISITS => {}
                _ => {
                    if refused.is_none() {
                        engine.tier.end_fruitless_search(need, MAX_FRUITLESS_VISITS);
                    }
                    engine.tier.note_fruitless_search(need, self.now);
                    return Demoted::Nothing;
                }
            }
        }
        Demoted::Enough
    }

    /// Demotes the coldest values of a random stripe, or only those with a copy on flash.
    fn demote_of_some_stripe(&self, only_copies: bool) -> Visit {
        let stripe = (self.random)() as usize % STRIPES;
        let Some(mut data) = self.engine.keyspace.stripe(stripe).try_lock() else {
            return Visit::default();
        };
        let sizes = Sizes { only_copies, ..Sizes::new(self.engine, self.tier) };
        let (mut visit, mut next) = (Visit::default(), Some(DbIndex(0)));
        while let Some(db) = next {
            next = data.next_db(db);
            let (coldest, has_hope) = match self.policy {
                Policy::Clock => self.move_hand(stripe, &data, db, &sizes),
                Policy::Lru | Policy::Lfu { .. } => (self.sample(&data, db, &sizes), false),
            };
            visit.has_hope |= has_hope;
            for key in coldest {
                match demote_value(self.engine, self.tier, &mut data, db, Key::new(&key)) {
                    Ok(bytes) => visit.freed += bytes,
                    Err(refused) => {
                        visit.refused = Some(refused);
                        break;
                    }
                }
            }
        }
        visit
    }

    /// Advances the hand of a stripe to the first bucket with an entry that has no use left.
    /// Returns the keys of such entries, and whether an entry that may leave later lost a use.
    fn move_hand(
        &self,
        stripe: usize,
        data: &StripeData,
        db: DbIndex,
        sizes: &Sizes,
    ) -> (Vec<Box<[u8]>>, bool) {
        let hand = self.engine.tier.hand(stripe);
        let mut at = WalkPlace::from_bits(hand.load(Relaxed));
        let (mut coldest, mut has_hope) = (Vec::new(), false);
        for _ in 0..STRETCH {
            let next = data.walk_all(db, at, |entry| {
                let fits = sizes.fit(entry);
                // Cold entries lose their uses, too, so that the admission filter forgets them.
                match access::one_use_less(entry.access()) {
                    Some(bits) => {
                        has_hope |= fits;
                        entry.set_access(bits);
                    }
                    None if fits => coldest.push(Box::from(entry.key())),
                    None => {}
                }
            });
            at = next.unwrap_or(WalkPlace::START);
            if !coldest.is_empty() || next.is_none() {
                break;
            }
        }
        hand.store(at.to_bits(), Relaxed);
        (coldest, has_hope)
    }

    /// Returns the key of the coldest of some entries that may leave.
    fn sample(&self, data: &StripeData, db: DbIndex, sizes: &Sizes) -> Vec<Box<[u8]>> {
        let drawn = (0..DRAWS).filter_map(|_| data.sample(db, self.random));
        let hot = drawn.filter(|entry| sizes.fit(entry)).take(SAMPLES);
        let score =
            |entry: &&Entry| access::eviction_score(self.policy, entry.access(), self.now.0);
        hot.max_by_key(score).map(|entry| Box::from(entry.key())).into_iter().collect()
    }
}

/// The result of a visit to a stripe.
#[derive(Clone, Copy, Default)]
struct Visit {
    /// Bytes freed.
    freed: usize,
    /// Whether an entry may leave when the hand comes by again.
    has_hope: bool,
    /// Why the tier refused a value.
    refused: Option<Refused>,
}

/// Which values may leave RAM, by their size in bytes.
struct Sizes {
    least: usize,
    most: usize,
    /// Only entries that have a copy on flash.
    only_copies: bool,
}

impl Sizes {
    fn new(engine: &Engine, tier: &Tier) -> Sizes {
        let most = engine.config.tier_max_value_size().min(tier.max_payload() / 2);
        Sizes { least: engine.config.tier_min_value_size(), most, only_copies: false }
    }

    fn fit(&self, entry: &Entry) -> bool {
        let is_hot = !entry.is_cold() && entry.kind() != Kind::Integer;
        let may_go = is_hot && (!self.only_copies || entry.is_copied());
        may_go && (self.least..=self.most).contains(&entry.value_bytes())
    }
}

/// Encodes a value for the tier, compressed if compression has paid lately.
fn encode(engine: &Engine, entry: &Entry) -> Vec<u8> {
    let compression = value::compression(&engine.config);
    if compression == Compression::Off || !engine.tier.compressing.is_due() {
        return encode_as(entry, Compression::Off);
    }
    let payload = encode_as(entry, compression);
    engine.tier.compressing.note(entry.value_bytes(), payload.len());
    payload
}

/// Demotes the value of `key`. Returns the bytes freed, 0 if it has to stay.
///
/// # Errors
/// The tier did not take it.
fn demote_value(
    engine: &Engine,
    tier: &Arc<Tier>,
    data: &mut StripeData,
    db: DbIndex,
    key: Key<'_>,
) -> Result<usize, Refused> {
    if !data.may_make_cold(db, key) {
        return Ok(0);
    }
    let Some(entry) = data.find(db, key) else { return Ok(0) };
    let bytes = entry.memory_usage();
    if entry.copy().is_some() {
        let was = data.make_cold_again(db, key);
        engine.background.free_entry(was.expect("it was asked whether it can"));
        engine.tier.demotions_without_write.add(1);
        return Ok(note_demotion(engine, bytes));
    }
    let (kind, payload) = (entry.kind(), encode(engine, entry));
    let location = match tier.append(key.hash as usize, key.hash, kind as u8, &payload) {
        Err(Refused::TooLong) => return Ok(0),
        result => result?,
    };
    let was = data.make_cold(db, key, cold_location(location));
    engine.background.free_entry(was.expect("it was asked whether it can"));
    Ok(note_demotion(engine, bytes))
}

/// Demotes the value of `key` if it is cold and demotion is active. Returns whether it did. Called
/// to empty a page: any unused value on it will do.
pub(crate) fn demote_if_unused(
    engine: &Engine,
    data: &mut StripeData,
    db: DbIndex,
    key: Key<'_>,
) -> bool {
    let Some(tier) = engine.tier.get().filter(|_| is_demoting(engine)) else { return false };
    let (policy, now) = (engine.access_policy(), engine.clock.wall().0);
    let sizes = Sizes::new(engine, tier);
    let is_unused = data
        .find(db, key)
        .is_some_and(|entry| sizes.fit(entry) && !access::is_warm(policy, entry.access(), now));
    is_unused && demote_value(engine, tier, data, db, key).is_ok_and(|bytes| bytes > 0)
}

/// Records one demotion of an entry of `bytes` bytes and returns the bytes it freed.
fn note_demotion(engine: &Engine, bytes: usize) -> usize {
    let freed = bytes.saturating_sub(COLD_BYTES);
    engine.tier.demotions.add(1);
    engine.tier.demoted_bytes.add(freed as u64);
    freed
}

/// Demotes all values that can be demoted, whatever their size, or those of `keys` (DEBUG TIER
/// DEMOTE). Returns their number. The world is stopped.
///
/// # Errors
/// There is no tier, or it takes nothing more.
pub fn demote_all(db: &mut Db<'_>, keys: &[&[u8]]) -> Result<usize, String> {
    let (engine, policy) = (db.engine, db.policy);
    let Some(tier) = engine.tier.get() else { return Err("There is no tier".to_owned()) };
    let mut wanted: Vec<(DbIndex, Box<[u8]>)> = Vec::new();
    if keys.is_empty() {
        db.for_each_stripe_mut(|_, data| {
            for index in data.dbs() {
                let names = data.entries(index).map(|entry| entry.key().into());
                wanted.extend(names.map(|name| (index, name)));
            }
        });
    } else {
        wanted.extend(keys.iter().map(|&key| (db.index, Box::from(key))));
    }
    let mut count = 0;
    for (index, name) in wanted {
        let key = Key::new(&name);
        let stripe = engine.keyspace.stripe_of(key);
        loop {
            let demoted = db.with_stripe_mut(stripe, |data| {
                // Take all uses away, as the hand would in time.
                if let Some(entry) = data.find(index, key) {
                    entry.set_access(access::without_uses(policy, entry.access()));
                }
                demote_value(engine, tier, data, index, key)
            });
            match demoted {
                Ok(_) => {
                    let is_cold = db.with_stripe(stripe, |data| data.cold(index, key).is_some());
                    count += usize::from(is_cold);
                    break;
                }
                Err(Refused::Busy) => engine.clock.sleep(Duration::from_millis(1)),
                Err(refused) => return Err(format!("The tier takes nothing more: {refused:?}")),
            }
        }
    }
    Ok(count)
}

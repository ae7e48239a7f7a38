//! Active defragmentation: entries leave pages of the allocator that are nearly empty.
//!
//! A thread looks once a second how much of the allocator's pages is free. If that is too much it
//! chooses the emptiest pages of each size of blocks, as many as the free blocks of the others can
//! take in, and walks over the keyspace and moves what lies in them. It works for
//! `active-defrag-cycle-us` at a stretch and rests in between, so that it takes the share of one
//! processor that the options say. `docs/internals/fragmentation.md` has the whole.

use crate::drive::{enclosing, under_lock};
use crate::engine::Engine;
use crate::tier;
use keyspace::keyspace::STRIPES;
use keyspace::memory::{self, Area};
use keyspace::tables::{StripeWalk, WalkPlace};
use keyspace::world::Reader;
use keyspace::{DbIndex, Entry, Key, StripeData};
use std::collections::{BTreeMap, HashSet};
use std::hash::{BuildHasherDefault, Hasher};
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;
use structs::hashing;

/// How often it is asked whether there is something to do.
const EVERY: Duration = Duration::from_secs(1);
const EVERY_WITH_TIER: Duration = Duration::from_millis(100);
/// While RSS is too high beside a tier it tries again so many times sooner, after this time at the
/// latest.
const SOONER: u32 = 5;
const LONGEST_UNDER_PRESSURE: Duration = Duration::from_secs(3);
/// Stripes after which pages are chosen anew then.
const LEG: usize = STRIPES / 8;
/// The order of stripes: each is so many behind the one before. A command that goes from one stripe
/// to the next (INFO) would stay behind a walk in the same order until its end.
const ORDER: usize = 389;
/// The longest time until it tries again after walks that were of no use.
const LONGEST_REST: Duration = Duration::from_secs(300);
/// Buckets of a stripe that are looked at under its lock.
const STRETCH: usize = 16;
/// Pages begin at multiples of so many bytes, and the largest have so many of these.
const SLICE: usize = 64 << 10;
/// A page that is fuller stays: much would have to move for little.
const FULL_EIGHTHS: usize = 6;
/// Up to here the allocator puts blocks into a page that was full once.
const OPEN_EIGHTHS: usize = 7;
/// Walks that move less than one entry for so many blocks that were to go are of no use.
const USEFUL: usize = 8;
/// With a flash tier: the share of `maxmemory` from which waste counts while the process takes more
/// than it should.
const TIER_SHARE: u64 = 32;
/// How many times as much is worth the greatest share of a processor without pressure.
const MUCH_WASTE: u64 = 3;

/// The share of a processor under DEBUG DEFRAG-ALL.
const TEST_PERCENT: u32 = 50;

/// What of the allocator's pages is in use.
#[derive(Clone, Copy, Default, PartialEq, Eq, Debug)]
struct Fill {
    used: u64,
    free: u64,
}

impl Fill {
    fn of(areas: &[Area]) -> Fill {
        let mut fill = Fill::default();
        for area in areas {
            fill.used += (area.used * area.block_size) as u64;
            fill.free += (area.touched.saturating_sub(area.used) * area.block_size) as u64;
        }
        fill
    }

    /// Free bytes for each hundred in use.
    fn percent(self) -> u64 {
        (u128::from(self.free) * 100 / u128::from(self.used.max(1))) as u64
    }
}

/// Which pages are to be emptied.
#[derive(Default)]
struct Plan {
    /// The slices of 64 KiB in them, by number.
    slices: HashSet<usize, BuildHasherDefault<Hashed>>,
    /// Blocks in use there.
    blocks: usize,
    /// For tests: everything moves.
    is_all: bool,
}

impl Plan {
    fn all() -> Plan {
        Plan { is_all: true, ..Plan::default() }
    }

    /// The emptiest pages of each size: those whose blocks find room in the others.
    fn of(areas: &[Area]) -> Plan {
        let mut classes: BTreeMap<usize, Vec<&Area>> = BTreeMap::new();
        for area in areas.iter().filter(|area| area.reserved > 1) {
            classes.entry(area.block_size).or_default().push(area);
        }
        let mut plan = Plan::default();
        for pages in classes.values_mut() {
            pages.sort_unstable_by_key(|area| area.used);
            let open = pages.iter().filter(|area| area.used * 8 < area.reserved * OPEN_EIGHTHS);
            let mut room: usize = open.map(|area| area.reserved - area.used).sum();
            for area in pages {
                // It gives up its own room, and its blocks take some of the others'.
                if area.used * 8 > area.reserved * FULL_EIGHTHS || room < area.reserved {
                    break;
                }
                room -= area.reserved;
                plan.blocks += area.used;
                let first = area.start / SLICE;
                let last = (area.start + area.reserved * area.block_size - 1) / SLICE;
                plan.slices.extend(first..=last);
            }
        }
        plan
    }

    fn has(&self, address: usize) -> bool {
        self.is_all || self.slices.contains(&(address / SLICE))
    }

    /// A page that blocks have moved to is not emptied.
    fn keep(&mut self, address: usize) {
        self.slices.remove(&(address / SLICE));
    }
}

/// Numbers of slices by the hash function of the process, which takes less time than the standard
/// library's.
#[derive(Default)]
struct Hashed(u64);

impl Hasher for Hashed {
    fn finish(&self) -> u64 {
        self.0
    }

    fn write(&mut self, bytes: &[u8]) {
        self.0 ^= hashing::hash(bytes);
    }
}

fn census() -> Vec<Area> {
    let mut areas = Vec::new();
    memory::census(&mut |area| areas.push(area));
    areas
}

/// The percentage of a processor that is due, 0 for nothing.
fn effort(engine: &Engine, fill: Fill, pressure: u32) -> u32 {
    let config = &engine.config;
    let (least, most) = (config.active_defrag_cycle_min(), config.active_defrag_cycle_max());
    let spare = config.maxmemory() / TIER_SHARE;
    if pressure > 0 && fill.free > spare {
        return under_pressure(most, pressure);
    }
    let waste = costly_waste(engine);
    if waste > spare && fill.free > spare {
        return between(least, most, waste - spare, MUCH_WASTE * spare);
    }
    let (lower, upper) =
        (config.active_defrag_threshold_lower(), config.active_defrag_threshold_upper());
    let percent = fill.percent();
    if !config.activedefrag()
        || fill.free < config.active_defrag_ignore_bytes()
        || percent < u64::from(lower)
    {
        return 0;
    }
    between(least, most, percent - u64::from(lower), u64::from(upper.saturating_sub(lower)))
}

/// From `least` to `most`, which is reached when `part` is all of `whole`.
fn between(least: u32, most: u32, part: u64, whole: u64) -> u32 {
    let whole = whole.max(1);
    least + (u64::from(most.saturating_sub(least)) * part.min(whole) / whole) as u32
}

/// What is wasted, in bytes, if values leave RAM for it.
fn costly_waste(engine: &Engine) -> u64 {
    if tier::is_demoting(engine) { engine.tier.waste_bytes() } else { 0 }
}

/// The share of a processor, in percent, beside a tier while RSS is too high: `most` at first, all
/// of it halfway to what RSS may be.
fn under_pressure(most: u32, pressure: u32) -> u32 {
    between(most, 100, u64::from(pressure), 50)
}

/// The body of the thread.
pub fn run(engine: &'static Engine) -> ! {
    let reader = engine.keyspace.world().register();
    // How long it has rested, and is to rest.
    let (mut rested, mut rest) = (Duration::ZERO, EVERY);
    let mut enclosed = engine.clock.now();
    loop {
        if engine.clock.elapsed(enclosed) >= EVERY {
            enclosing::look(engine, &reader);
            enclosed = engine.clock.now();
        }
        let pressure = engine.tier.pressure();
        let tick = if engine.tier.get().is_some() { EVERY_WITH_TIER } else { EVERY };
        if engine.debug.moves_all() {
            Walk::all(engine, &reader).run();
        } else if pressure == 0 && costly_waste(engine) == 0 && !engine.config.activedefrag() {
            rest = EVERY;
        } else if rested >= rest_until_next(rest, pressure) {
            rested = Duration::ZERO;
            // In vain if what lies there does not move.
            let is_useful = defragment(engine, &reader, pressure);
            rest = if is_useful { EVERY } else { (rest * 2).min(LONGEST_REST) };
        }
        engine.clock.rest(tick);
        rested += tick;
    }
}

fn rest_until_next(rest: Duration, pressure: u32) -> Duration {
    if pressure > 0 { (rest / SOONER).min(LONGEST_UNDER_PRESSURE) } else { rest }
}

/// Looks whether too much is free, and makes pages empty. Whether that was of use, or nothing had
/// to be done.
fn defragment(engine: &'static Engine, reader: &Reader<'static>, pressure: u32) -> bool {
    let areas = census();
    let percent = effort(engine, Fill::of(&areas), pressure);
    if percent == 0 {
        return true;
    }
    let plan = Plan::of(&areas);
    drop(areas);
    let (wanted, before) = (plan.blocks, engine.defrag.hits.get());
    if wanted > 0 {
        engine.defrag.running_percent.store(percent, Relaxed);
        engine.defrag.began_ms.store(engine.clock.wall().0, Relaxed);
        Walk { engine, reader, plan, percent, demotes: pressure > 0 }.run();
        engine.defrag.began_ms.store(0, Relaxed);
        engine.defrag.running_percent.store(0, Relaxed);
        memory::purge();
    }
    let moved = engine.defrag.hits.get().saturating_sub(before);
    wanted > 0 && moved >= (wanted / USEFUL) as u64
}

/// A walk over the keyspace.
struct Walk<'w> {
    engine: &'static Engine,
    reader: &'w Reader<'static>,
    plan: Plan,
    percent: u32,
    /// Whether values that have not been used lately leave RAM instead of moving, as long as some
    /// have to.
    demotes: bool,
}

impl<'w> Walk<'w> {
    /// For tests: everything moves.
    fn all(engine: &'static Engine, reader: &'w Reader<'static>) -> Walk<'w> {
        Walk { engine, reader, plan: Plan::all(), percent: TEST_PERCENT, demotes: true }
    }

    fn run(&mut self) {
        let engine = self.engine;
        let has_legs = engine.tier.get().is_some() && !self.plan.is_all;
        let mut began = engine.clock.now();
        for step in 0..STRIPES {
            if has_legs && step > 0 && step.is_multiple_of(LEG) {
                // What was emptied goes, and pages that new values have filled again are left
                // alone.
                memory::purge();
                self.plan = Plan::of(&census());
            }
            let stripe = step * ORDER % STRIPES;
            let (mut walk, mut is_over) = (StripeWalk::default(), false);
            while !is_over {
                is_over = !under_lock(engine, self.reader, stripe, |data| {
                    walk.step(data, |data, db, at| self.visit(data, db, at))
                });
                let busy = engine.clock.elapsed(began);
                if busy.as_micros() >= u128::from(engine.config.active_defrag_cycle_us()) {
                    engine.defrag.total_us.add(busy.as_micros() as u64);
                    self.hurry();
                    let rest = busy * (100 - self.percent.min(100)) / self.percent.max(1);
                    if rest > Duration::ZERO {
                        engine.clock.rest(rest);
                    }
                    if !self.is_wanted() {
                        return;
                    }
                    began = engine.clock.now();
                }
            }
        }
        engine.defrag.total_us.add(engine.clock.elapsed(began).as_micros() as u64);
    }

    /// Takes a greater share of a processor if that has become due.
    fn hurry(&mut self) {
        if self.demotes && !self.plan.is_all {
            let most = self.engine.config.active_defrag_cycle_max();
            self.percent = self.percent.max(under_pressure(most, self.engine.tier.pressure()));
            self.engine.defrag.running_percent.store(self.percent, Relaxed);
        }
    }

    /// Whether it has not been switched off.
    fn is_wanted(&self) -> bool {
        let engine = self.engine;
        engine.config.activedefrag() || engine.tier.get().is_some() || engine.debug.moves_all()
    }

    /// Moves what lies in pages to be emptied, of some buckets; where to go on.
    fn visit(
        &mut self,
        data: &mut StripeData,
        db: DbIndex,
        mut at: WalkPlace,
    ) -> Option<WalkPlace> {
        let (defrag, plan) = (&self.engine.defrag, &mut self.plan);
        let most_elements = self.engine.config.active_defrag_max_scan_fields();
        let (mut found, mut next, mut seen): (Vec<Box<[u8]>>, _, _) = (Vec::new(), None, 0);
        // To wait for one entry after the other is most of what a walk costs.
        let mut ahead = Some(at);
        for _ in 0..STRETCH {
            ahead = ahead.and_then(|at| data.walk_all(db, at, Entry::prefetch));
        }
        for _ in 0..STRETCH {
            next = data.walk_all(db, at, |entry| {
                seen += 1;
                let mut is_there = false;
                entry.show_blocks(most_elements, &mut |address| is_there |= plan.has(address));
                if is_there {
                    found.push(Box::from(entry.key()));
                }
            });
            let Some(further) = next else { break };
            at = further;
        }
        defrag.seen.add(seen);
        for name in found {
            let key = Key::new(&name);
            let is_out = self.demotes && tier::demote_if_unused(self.engine, data, db, key);
            if is_out || data.relocate(db, key, most_elements) {
                defrag.hits.add(1);
                if let Some(entry) = data.find(db, key) {
                    entry.show_blocks(most_elements, &mut |address| plan.keep(address));
                }
            } else {
                defrag.misses.add(1);
            }
        }
        next
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn page(number: usize, block_size: usize, used: usize) -> Area {
        let reserved = SLICE / block_size - 1;
        Area { start: number * SLICE + 128, block_size, touched: reserved, used, reserved }
    }

    #[test]
    fn the_emptiest_pages_go_whose_blocks_find_room_in_others() {
        // Of 31 blocks each: 62 free ones hold what is in two pages.
        let areas = [
            page(1, 2048, 31),
            page(2, 2048, 5),
            page(3, 2048, 16),
            page(4, 2048, 10),
            page(5, 2048, 20),
            page(6, 1024, 1),
        ];
        let plan = Plan::of(&areas);
        let numbers: Vec<usize> = (0..8).filter(|number| plan.has(number * SLICE + 5000)).collect();
        assert_eq!(numbers, [2, 4]);
        assert_eq!(plan.blocks, 5 + 10);
    }

    #[test]
    fn full_pages_and_pages_with_one_block_stay() {
        let single = Area { start: SLICE, block_size: 1 << 20, touched: 1, used: 0, reserved: 1 };
        let areas: Vec<Area> = (10..100).map(|number| page(number, 2048, 26)).collect();
        assert_eq!(Plan::of(&[single]).slices.len() + Plan::of(&areas).slices.len(), 0);
    }

    #[test]
    fn a_page_that_takes_blocks_in_stays() {
        let areas = [page(1, 1024, 3), page(2, 1024, 2)];
        let mut plan = Plan::of(&areas);
        assert!(plan.has(2 * SLICE) && !plan.has(SLICE));
        plan.keep(2 * SLICE + 77);
        assert!(!plan.has(2 * SLICE));
    }

    #[test]
    fn a_large_page_is_found_by_any_address_in_it() {
        let large = |start: usize, used| Area {
            start: start * SLICE + 128,
            block_size: 20 << 10,
            touched: 25,
            used,
            reserved: 25,
        };
        let plan = Plan::of(&[large(8, 1), large(16, 12)]);
        assert!(plan.has(8 * SLICE) && plan.has(15 * SLICE + 300) && !plan.has(16 * SLICE + 300));
    }
}

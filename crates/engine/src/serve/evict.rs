//! Keeps memory below `maxmemory` by evicting keys.
//!
//! For each eviction, `maxmemory-samples` entries are drawn from random stripes, and the one that
//! the policy ranks lowest is evicted. Redis keeps the best candidates of earlier samples in a
//! pool. Here each draw covers the whole keyspace and all databases, and a locked stripe is
//! skipped, so no thread waits.

use crate::db::Db;
use crate::engine::Engine;
use crate::events;
use crate::latency::Slow;
use crate::tier::{self, Demoted};
use config::MaxmemoryPolicy;
use keyspace::access::{self, Policy};
use keyspace::keyspace::STRIPES;
use keyspace::snapshot::{Touch, Urgency};
use keyspace::{DbIndex, Entry, Key, Millis};
use std::time::Duration;

/// Number of failed evictions after which nothing counts as evictable. An eviction fails if the
/// chosen entry is gone or in use.
const MAX_ATTEMPTS: usize = 4 * STRIPES;
/// Number of random stripes that are sampled before all stripes are walked through.
const DRAWS: usize = 256;

/// The result of an attempt to bring memory below the limit.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Reclaimed {
    /// Memory is below the limit.
    Enough,
    /// The time was up. Another thread goes on, and commands are served meanwhile.
    InProgress,
    /// Memory falls below the limit when the tier's disk has caught up.
    DiskIsBehind,
    /// Nothing more can be evicted.
    Nothing,
}

/// Returns the time limit of one attempt for a value of `maxmemory-eviction-tenacity`. It rises
/// linearly to 0.5 ms at 10, then by 15 % a step. At 100 there is no limit.
fn longest(tenacity: u32) -> Duration {
    match tenacity {
        0..=10 => Duration::from_micros(50) * tenacity,
        11..=99 => Duration::from_micros(500).mul_f64(1.15f64.powi(tenacity as i32 - 10)),
        _ => Duration::MAX,
    }
}

/// Time limit of an attempt for a command that needs no memory.
const WITHOUT_CLAIM: Duration = Duration::from_micros(20);

/// An entry that may be evicted.
struct Candidate {
    stripe: usize,
    db: DbIndex,
    key: Box<[u8]>,
    score: u64,
}

/// What the command that reclaims memory needs itself.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Claim {
    /// A command that may need memory.
    Memory,
    /// Another command. If there is a tier, such a command does little work for the commands that
    /// fill memory.
    Nothing,
}

/// Demotes or evicts until memory is below the limit or the time is up. Returns how far it came.
pub(crate) fn reclaim(db: &mut Db<'_>, claim: Claim) -> Reclaimed {
    let engine = db.engine;
    let limit = engine.config.maxmemory();
    if engine.reclaimable_bytes() <= limit {
        return Reclaimed::Enough;
    }
    if engine.evicts_nothing() {
        tier::demote_ahead(db, limit);
        return Reclaimed::Enough;
    }
    let tenacity = engine.config.maxmemory_eviction_tenacity();
    let longest = match claim {
        Claim::Nothing if engine.tier.get().is_some() => WITHOUT_CLAIM,
        _ => longest(tenacity),
    };
    evict_down_to(db, limit, longest)
}

/// Returns whether the memory limit requires work while no command runs.
pub(crate) fn is_needed(engine: &Engine) -> bool {
    if engine.is_over_limit() {
        return true;
    }
    engine.over_limit.note(true, &engine.clock);
    engine.config.maxmemory() > 0 && engine.tier.get().is_some()
}

/// Does the same as [`reclaim`], but outside a command. Returns whether to go on as soon as
/// possible.
pub(crate) fn keep_limit(db: &mut Db<'_>) -> bool {
    let engine = db.engine;
    let limit = engine.config.maxmemory();
    if limit == 0 {
        return false;
    }
    // CLIENT PAUSE stops the world when it begins, so `evicts_nothing` is asked inside the world.
    // Demotion deletes no key and goes on during a pause.
    if engine.reclaimable_bytes() <= limit || engine.evicts_nothing() {
        return tier::demote_ahead(db, limit);
    }
    let longest = longest(engine.config.maxmemory_eviction_tenacity());
    matches!(evict_down_to(db, limit, longest), Reclaimed::InProgress | Reclaimed::DiskIsBehind)
}

fn evict_down_to(db: &mut Db<'_>, limit: u64, longest: Duration) -> Reclaimed {
    let engine = db.engine;
    let reclaimed = engine.timed(Slow::EvictionCycle, || evict_for_a_while(db, limit, longest));
    engine.over_limit.note(reclaimed == Reclaimed::Enough, &engine.clock);
    reclaimed
}

/// Demotes or evicts for at most `longest`.
///
/// The number of bytes to evict is fixed at the start, and evicted entries count with their own
/// size. Invalidation messages to clients that cached a key take memory, too. They must not cause
/// further evictions.
fn evict_for_a_while(db: &mut Db<'_>, limit: u64, longest: Duration) -> Reclaimed {
    let engine = db.engine;
    let began = engine.clock.now();
    let policy = match engine.config.import_mode() {
        true => MaxmemoryPolicy::NoEviction,
        false => engine.config.maxmemory_policy(),
    };
    // Memory that is being freed in the background need not be reclaimed, so an excess is allowed
    // until it is freed. The allowance is smaller while a snapshot reads values from flash and
    // nothing more can be demoted, because a snapshot may last long.
    let excess = || {
        let is_freeing = engine.background.pending_objects() > 0;
        let is_reading = engine.tier.get().is_some() && engine.snapshots.is_running();
        let spare = match (is_freeing, is_reading) {
            (true, false) => limit / 4,
            (_, true) => limit / 16,
            (false, false) => 0,
        };
        engine.limited_bytes().saturating_sub(limit.saturating_add(spare))
    };
    if let Some(tier) = engine.tier.get() {
        // Demotion loses nothing, so it does not wait for memory that is being freed.
        let excess = || engine.reclaimable_bytes().saturating_sub(limit);
        match tier::demote(db, tier, &excess, began, longest) {
            Demoted::Enough => return Reclaimed::Enough,
            Demoted::TimeUp => return Reclaimed::InProgress,
            Demoted::DiskIsBehind => return Reclaimed::DiskIsBehind,
            Demoted::Nothing => {}
        }
    }
    let (wanted, mut freed, mut in_vain) = (excess(), 0, 0);
    let mut is_first = true;
    while freed < wanted && excess() > 0 {
        if !std::mem::take(&mut is_first) && engine.clock.elapsed(began) > longest {
            return Reclaimed::InProgress;
        }
        if policy == MaxmemoryPolicy::NoEviction
            || engine.in_vain.holds(db.now(), engine.changes(), policy)
        {
            return Reclaimed::Nothing;
        }
        let Some(candidate) = choose(db, policy).filter(|_| in_vain < MAX_ATTEMPTS) else {
            // Evicted entries may not be freed yet.
            return if excess() == 0 { Reclaimed::Enough } else { Reclaimed::Nothing };
        };
        match engine.timed(Slow::EvictionDel, || evict(db, &candidate)) {
            0 => in_vain += 1,
            bytes => freed += bytes as u64,
        }
    }
    Reclaimed::Enough
}

fn is_volatile(policy: MaxmemoryPolicy) -> bool {
    matches!(
        policy,
        MaxmemoryPolicy::VolatileLru
            | MaxmemoryPolicy::VolatileLfu
            | MaxmemoryPolicy::VolatileRandom
            | MaxmemoryPolicy::VolatileTtl
    )
}

/// Returns the score of an entry. The entry with the highest score is evicted first.
fn score(policy: MaxmemoryPolicy, bits: Policy, entry: &Entry, now: Millis, luck: u64) -> u64 {
    match policy {
        MaxmemoryPolicy::VolatileTtl => entry.expiry().map_or(0, |at| u64::MAX - at.0 as u64),
        MaxmemoryPolicy::VolatileRandom | MaxmemoryPolicy::AllkeysRandom => luck,
        _ => access::eviction_score(bits, entry.access(), now.0),
    }
}

/// Draws samples and returns the best candidate, or `None` if nothing can be evicted. If entries
/// are rare, the random draws are followed by a walk that visits each stripe once.
fn choose(db: &Db<'_>, policy: MaxmemoryPolicy) -> Option<Candidate> {
    let engine = db.engine;
    let samples = engine.config.maxmemory_samples().max(1);
    let (mut best, mut seen): (Option<Candidate>, usize) = (None, 0);
    let first = (db.random() as usize) % STRIPES;
    let mut is_complete = true;
    for turn in 0..DRAWS + STRIPES {
        let index = if turn < DRAWS { db.random() as usize } else { first + turn } % STRIPES;
        is_complete &= sample(db, engine, policy, index, &mut |candidate| {
            seen += 1;
            if best.as_ref().is_none_or(|best| candidate.score > best.score) {
                best = Some(candidate);
            }
        });
        if seen >= samples {
            break;
        }
    }
    if best.is_none() && is_complete {
        engine.in_vain.note(db.now(), engine.changes(), policy);
    }
    best
}

/// Passes one entry of each database of a stripe to `found`. Returns whether no entry was skipped.
fn sample(
    db: &Db<'_>,
    engine: &Engine,
    policy: MaxmemoryPolicy,
    index: usize,
    found: &mut dyn FnMut(Candidate),
) -> bool {
    let Some(data) = engine.keyspace.stripe(index).try_lock() else { return false };
    let mut is_complete = true;
    for index_of_db in data.dbs() {
        let entry = if is_volatile(policy) {
            data.sample_expiring(index_of_db, || db.random())
        } else {
            data.sample(index_of_db, || db.random())
        };
        let Some(entry) = entry else { continue };
        if data.is_held(Key::new(entry.key()).hash) {
            is_complete = false;
        } else {
            found(Candidate {
                stripe: index,
                db: index_of_db,
                key: Box::from(entry.key()),
                score: score(policy, db.policy, entry, db.now(), db.random()),
            });
        }
    }
    is_complete
}

/// Evicts an entry. Returns its size in bytes, or 0 if it could not be evicted.
fn evict(db: &mut Db<'_>, candidate: &Candidate) -> usize {
    let engine = db.engine;
    if !db.locks.try_acquire(candidate.stripe) {
        // A long command may hold the stripe. There are enough other candidates.
        return 0;
    }
    let mut bytes = 0;
    db.in_db(candidate.db, |db| {
        let key = Key::new(&candidate.key);
        // By now a long command may hold the key, a snapshot may have no memory left to copy the
        // entry, or another client may have deleted it.
        let is_held = db.with_stripe_mut(candidate.stripe, |data| {
            data.is_held(key.hash)
                || data.is_delayed(candidate.db, key.hash, Touch::Whole, Urgency::None)
        });
        if !is_held && let Some(entry) = db.take(key) {
            engine.stats.evicted.add(1);
            bytes = entry.memory_usage();
            db.discard(entry);
            let is_lazy = engine.config.lazyfree_lazy_eviction();
            let (journal, index) = (&engine.journal, candidate.db);
            db.effects.propagate_deletion(journal, index, &candidate.key, is_lazy);
            db.changed(key, events::EVICTED);
        }
    });
    crate::commit::commit_outside(db);
    db.locks.release();
    bytes
}

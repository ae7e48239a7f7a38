//! Active expiry: deleting keys whose time has come although nobody asks for them.
//!
//! Every thread takes its share of the stripes (those whose number leaves its index as remainder),
//! so each stripe has its turn in every round, however few volatile keys it has. Of a stripe the
//! index of volatile entries is walked a little at a time; where more than a tenth of what was
//! seen had expired, the walk goes on at once, within the round's budget of time.
#![allow(unsafe_code)]

use crate::db::Db;
use crate::latency::Slow;
use crate::locks::Locked;
use crate::worker::Worker;
use keyspace::keyspace::STRIPES;
use keyspace::{DbIndex, Key};
use std::sync::atomic::Ordering::Relaxed;
use std::time::{Duration, Instant};
use structs::table::ScanPosition;

/// Entries looked at before a stripe is left unless it is worth staying.
const SAMPLE: usize = 20;

/// One round over this thread's stripes; about ten a second.
pub fn cycle(worker: &mut Worker) {
    let engine = worker.engine();
    if !engine.active_expire.load(Relaxed) || engine.freezes_expiry() {
        return;
    }
    let effort = engine.config.active_expire_effort().clamp(1, 10);
    // Redis's share: a quarter of the time, and two percent more for each step of effort.
    let budget = Duration::from_millis(u64::from(25 + 2 * (effort - 1)));
    let started = Instant::now();
    if !sweep_share(worker, started, budget) {
        engine.stats.expire_cycles_cut_short.add(1);
    }
    let elapsed = started.elapsed();
    engine.stats.expire_cycle_ms.add(elapsed.as_millis() as u64);
    engine.note_latency(Slow::ExpireCycle, elapsed.as_nanos() as u64);
}

/// Sweeps this thread's stripes once; `false` if the time was over before.
fn sweep_share(worker: &mut Worker, started: Instant, budget: Duration) -> bool {
    let engine = worker.engine();
    let (thread, threads) = (worker.context().index, engine.threads());
    for stripe in (thread..STRIPES).step_by(threads) {
        for db in 0..engine.keyspace.databases() {
            while sweep(worker, stripe, DbIndex(db)) {
                if started.elapsed() > budget {
                    return false;
                }
            }
        }
        if started.elapsed() > budget {
            return false;
        }
    }
    true
}

/// Looks at some volatile entries of a stripe and deletes the expired; `true` if it is worth
/// going on.
fn sweep(worker: &mut Worker, stripe: usize, index: DbIndex) -> bool {
    let random = structs::hashing::os_random;
    worker.with_db(|db| {
        let engine = db.engine;
        let held = engine.keyspace.stripe(stripe);
        if !held.try_lock() {
            return false;
        }
        // SAFETY: locked above.
        let data = unsafe { held.data() };
        if data.db(index).expiring().is_empty() {
            // SAFETY: locked above.
            unsafe { held.unlock() };
            return false;
        }
        let (seen, expired) = find_expired(db, data, index, random());
        db.locked = Locked::One(stripe);
        db.index = index;
        for key in &expired {
            db.expire(Key::new(key));
        }
        crate::commit::commit_outside(db);
        db.locked = Locked::None;
        // SAFETY: locked above.
        unsafe { held.unlock() };
        expired.len() * 10 > seen
    })
}

fn find_expired(
    db: &Db<'_>,
    data: &keyspace::StripeData,
    index: DbIndex,
    start: u64,
) -> (usize, Vec<Box<[u8]>>) {
    let expiring = data.db(index).expiring();
    let (mut seen, mut expired) = (0, Vec::new());
    let mut from = ScanPosition::from_bits48(start >> 16);
    let mut wrapped = expiring.len() <= SAMPLE;
    if wrapped {
        from = ScanPosition::START;
    }
    while seen < SAMPLE {
        let next = expiring.scan(from, |item| {
            seen += 1;
            if item.entry().is_expired(db.now()) {
                expired.push(Box::from(item.entry().key()));
            }
        });
        match next {
            Some(next) => from = next,
            None if wrapped => break,
            None => {
                wrapped = true;
                from = ScanPosition::START;
            }
        }
    }
    (seen, expired)
}

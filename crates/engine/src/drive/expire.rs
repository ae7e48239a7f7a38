//! Active expiry: deleting expired keys that no client asks for.
//!
//! Every thread takes its share of the stripes (those whose number leaves its index as remainder),
//! so each stripe has its turn in every round, however few volatile keys it has. Of a stripe the
//! index of volatile entries is walked a little at a time; where more than a tenth of what was
//! seen had expired, the walk goes on at once. When millions of keys expire together, the work is
//! done in slices of a fraction of a millisecond with pauses in between, so that no client waits.

use crate::clock::Ticks;
use crate::db::Db;
use crate::engine::Engine;
use crate::latency::Slow;
use crate::worker::Worker;
use keyspace::keyspace::STRIPES;
use keyspace::snapshot::{Touch, Urgency};
use keyspace::{Entry, Key, TableId};
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;
use structs::table::ScanPosition;

/// Entries looked at before a stripe is left unless it is worth staying.
const SAMPLE: usize = 20;

/// What is done at a stretch; other connections of the thread wait for it.
const SLICE: Duration = Duration::from_micros(300);

/// Stripes that are swept inside the world at a stretch, if there is little to do: entering costs
/// more than looking at a stripe without volatile keys, but a thread that stops the world waits for
/// the whole stretch.
const STRETCH: usize = 64;

/// One thread's walk over its stripes: a round every tenth of a second, in slices.
///
/// A round ends when every stripe has had its turn or when its budget is spent; the next one goes
/// on where it ended, so no stripe is left out however much there is to delete.
#[derive(Default)]
pub struct Cycle {
    /// The stripe whose turn it is, counted among those of the thread.
    turn: usize,
    /// Turns that are left of this round.
    left: usize,
    spent: Duration,
}

impl Cycle {
    /// Begins a round; [`Cycle::step`] does the work.
    pub fn begin(&mut self, worker: &mut Worker) {
        let engine = worker.engine();
        if worker.context().index == 0 && !engine.own_keys.is_empty() {
            worker.with_db(sweep_own_keys);
        }
        if !is_wanted(engine) {
            return;
        }
        if self.left > 0 {
            self.end(worker);
        }
        self.left = STRIPES.div_ceil(engine.threads);
        self.spent = Duration::ZERO;
    }

    /// Goes on with the round for a moment; says after what time to go on again, if there is more.
    pub fn step(&mut self, worker: &mut Worker) -> Option<Duration> {
        if self.left == 0 {
            return None;
        }
        let engine = worker.engine();
        let effort = engine.config.active_expire_effort().clamp(1, 10);
        // Redis's share: a quarter of the time, and two percent more for each step of effort.
        let percent = 25 + 2 * (effort - 1);
        let started = engine.clock.now();
        self.sweep_for(worker, started);
        self.spent += engine.clock.elapsed(started);
        if self.left > 0 && self.spent < Duration::from_millis(u64::from(percent)) {
            return Some(SLICE * (100 - percent) / percent);
        }
        self.end(worker);
        None
    }

    /// Counts what the round did.
    fn end(&mut self, worker: &Worker) {
        let stats = &worker.engine().stats;
        if std::mem::take(&mut self.left) > 0 {
            stats.expire_cycles_cut_short.add(1);
        }
        stats.expire_cycle_ms.add(self.spent.as_millis() as u64);
        if worker.context().index == 0 {
            worker.engine().stale_share.settle();
        }
    }

    fn sweep_for(&mut self, worker: &mut Worker, started: Ticks) {
        let (engine, thread) = (worker.engine(), worker.context().index);
        while self.left > 0 && engine.clock.elapsed(started) <= SLICE {
            // Timed inside, so that waiting for a world that is stopped does not count.
            let sweep = |db: &mut Db<'_>| {
                engine.timed(Slow::ExpireCycle, || self.sweep_stretch(db, thread, started));
            };
            if worker.with_db(sweep).is_none() {
                return;
            }
        }
    }

    /// Sweeps the stripes whose turn is next, until the slice is spent.
    fn sweep_stretch(&mut self, db: &mut Db<'_>, thread: usize, started: Ticks) {
        let (clock, threads) = (db.engine.clock, db.engine.threads);
        for _ in 0..STRETCH.min(self.left) {
            let stripe = thread + self.turn * threads;
            while stripe < STRIPES && sweep_stripe(db, stripe) {
                if clock.elapsed(started) > SLICE {
                    return;
                }
            }
            self.left -= 1;
            self.turn = (self.turn + 1) % STRIPES.div_ceil(threads);
            if clock.elapsed(started) > SLICE {
                return;
            }
        }
    }
}

fn is_wanted(engine: &Engine) -> bool {
    engine.active_expire.load(Relaxed) && !engine.is_frozen()
}

/// Deletes keys that clients of this replica have written, whose time has come. What a snapshot or
/// a long command needs is left to a later round.
fn sweep_own_keys(db: &mut Db<'_>) {
    let engine = db.engine;
    let is_wanted = engine.active_expire.load(Relaxed) && engine.upstream.is_replica();
    if !is_wanted || engine.pause.is_on() || engine.loading.is_on() {
        return;
    }
    let started = engine.clock.now();
    while engine.clock.elapsed(started) < SLICE {
        let due = engine.own_keys.take_due(db.now(), SAMPLE);
        if due.is_empty() {
            return;
        }
        for (index, key) in due {
            db.index = index;
            settle_own_key(db, Key::new(&key));
        }
    }
}

fn settle_own_key(db: &mut Db<'_>, key: Key<'_>) {
    let (index, stripe) = (db.index, db.engine.keyspace.stripe_of(key));
    let mut end = Some(db.now());
    if db.locks.try_acquire(stripe) {
        let data = db.locks.data_mut(stripe);
        end = data.find(index, key).and_then(Entry::expiry);
        let is_needed =
            data.is_held(key.hash) || data.is_delayed(index, key.hash, Touch::Whole, Urgency::None);
        if end.is_some_and(|end| end <= db.now()) && !is_needed {
            db.expire(key);
            crate::commit::commit_outside(db);
            end = None;
        }
        db.locks.release();
    }
    if end.is_some() {
        db.engine.own_keys.note(index, key.bytes, end);
    }
}

/// Looks at some volatile entries of a stripe and deletes the expired. Returns whether it is worth
/// going on.
fn sweep_stripe(db: &mut Db<'_>, stripe: usize) -> bool {
    let engine = db.engine;
    // A round takes many slices, and the world is stopped to end this meanwhile.
    if !is_wanted(engine) {
        return false;
    }
    if !db.locks.try_acquire(stripe) {
        return false;
    }
    if db.locks.data(stripe).is_lasting() {
        db.locks.release();
        return false;
    }
    let mut goes_on = false;
    let mut next = db.locks.data(stripe).first_table();
    while let Some(id) = next {
        let (data, index) = (db.locks.data(stripe), id.db);
        next = data.next_table(id);
        // The primary of the slot tells when its keys end.
        if data.is_hidden(id) {
            continue;
        }
        if data.table(id).field_times().is_due(db.now()) {
            goes_on |= db.expire_fields_of(stripe, id);
            crate::commit::commit_outside(db);
        }
        let data = db.locks.data(stripe);
        if data.table(id).expiring().is_empty() {
            continue;
        }
        let (seen, mut expired) = find_expired(db, data, id, db.random());
        engine.stale_share.note(seen, expired.len());
        // What a snapshot has no room for now is deleted later.
        let data = db.locks.data_mut(stripe);
        expired
            .retain(|key| !data.is_delayed(index, Key::new(key).hash, Touch::Whole, Urgency::None));
        db.index = index;
        for key in &expired {
            db.expire(Key::new(key));
        }
        crate::commit::commit_outside(db);
        goes_on |= expired.len() * 10 > seen;
    }
    db.locks.release();
    goes_on
}

impl Db<'_> {
    /// Deletes keys of the selected database that a walk has met expired in a stripe it does not
    /// hold any more. What another thread, a long command or a snapshot needs is left to a later
    /// one.
    pub fn remove_met(&mut self, stripe: usize, keys: &[Box<[u8]>]) {
        let is_left = keys.is_empty() || self.engine.is_frozen() || self.is_long();
        if is_left || !self.has_passed(self.now()) {
            return;
        }
        let is_held = self.locks.held().covers(stripe);
        if !is_held && !self.locks.try_acquire(stripe) {
            return;
        }
        let index = self.index;
        for key in keys.iter().map(|key| Key::new(key)) {
            let data = self.locks.data_mut(stripe);
            if !data.is_held(key.hash)
                && !data.is_delayed(index, key.hash, Touch::Whole, Urgency::None)
            {
                self.remove_expired(key);
            }
        }
        crate::commit::commit_outside(self);
        if !is_held {
            self.locks.release();
        }
    }
}

fn find_expired(
    db: &Db<'_>,
    data: &keyspace::StripeData,
    id: TableId,
    start: u64,
) -> (usize, Vec<Box<[u8]>>) {
    let expiring = data.table(id).expiring();
    let (mut seen, mut expired) = (0, Vec::new());
    let mut from = ScanPosition::from_bits48(start >> 16);
    let mut wrapped = expiring.len() <= SAMPLE;
    if wrapped {
        from = ScanPosition::START;
    }
    while seen < SAMPLE {
        let next = expiring.scan(from, |item| {
            seen += 1;
            let key = item.entry().key();
            if item.entry().is_expired(db.now()) && !data.is_held(Key::new(key).hash) {
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

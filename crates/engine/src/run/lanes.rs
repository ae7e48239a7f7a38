//! Replays history on several threads: the reading thread and its helpers.
//!
//! The reading thread takes a part of the history whose commands have one key each, and sorts them
//! into *lanes* by stripe. So all commands of a key are in one lane, in their order. All threads
//! take one lane after the other until none is left. The reading thread only waits for lanes that
//! others have taken, so a helper that does not get a core delays no part.
//!
//! The reading thread stays inside the world from the first lane to the last, on behalf of all
//! threads. So a thread that stops the world finds either none or all of a part done. The helpers
//! must not wait for anything that itself waits for the world. So they lock one stripe at a time,
//! no long command begins to hold a key meanwhile ([`crate::holds::Holds::bar`]), and commands that
//! might have to be tried again are not run this way.

use crate::appliers::{Appliers, Job, MIN_JOBS, Manner, Part, SharedCommands};
use crate::args::Args;
use crate::background::Purpose;
use crate::command::Flags;
use crate::commit;
use crate::cx::Cx;
use crate::dispatch;
use crate::engine::Engine;
use crate::error::Error;
use crate::locks::Locked;
use crate::request_keys::prefetch_keys;
use crate::session::Session;
use crate::table::{Resolved, WorldUse};
use crate::thread::ThreadContext;
use keyspace::{DbIndex, Key, Millis};
use resp::Output;
use std::sync::atomic::{AtomicUsize, Ordering::*};
use std::sync::{Arc, Mutex};
use structs::backoff::wait_until;
use structs::sync::{lock, wait};

/// Number of lanes per thread. With more lanes, the wait for the last one is shorter.
const LANES_PER_THREAD: usize = 8;
/// Number of keys that are prefetched together: about the number of cache misses that a core can
/// have in progress.
pub(crate) const TOGETHER: usize = 32;

impl Job {
    /// Returns the facts needed to run a command in a lane, or `None` if it does not have exactly
    /// one key, or touches more than its key.
    pub fn of(
        engine: &Engine,
        row: &'static Resolved,
        command: usize,
        words: &[&[u8]],
    ) -> Option<Job> {
        let is_alone = row.single_key > 0
            && row.world == WorldUse::Never
            && row.command.script.is_none()
            && row.command.flags.has(Flags::WRITE)
            && !row.command.flags.has(Flags::WALKS);
        let key = Key::new(words.get(row.single_key).filter(|_| is_alone)?);
        Some(Job { command, row, stripe: engine.keyspace.stripe_of(key), hash: key.hash })
    }
}

/// Prefetches the keys of some jobs into the cache. The caller is inside the world, or a helper of
/// a thread that is.
pub(crate) fn fetch(engine: &Engine, db: DbIndex, jobs: &[Job]) {
    jobs.iter().for_each(|job| engine.keyspace.stripe(job.stripe).prefetch());
    prefetch_keys(&engine.keyspace, db, jobs.iter().map(|job| (job.stripe, job.hash)));
}

impl Manner {
    /// Returns a context for commands that are replayed in this manner outside of a transaction.
    pub fn context<'a>(
        self,
        engine: &'static Engine,
        thread: &'a ThreadContext,
        session: &'a mut Session,
        replies: &'a mut Output,
    ) -> Cx<'a> {
        replies.clear();
        let mut cx = Cx::new(engine, thread, session, engine.clock.wall(), replies);
        cx.db.horizon = Millis(i64::MIN);
        cx.db.notes_own_keys = false;
        cx.in_transaction = true;
        match self {
            Manner::Stream => cx.db.effects.is_stream = true,
            Manner::File => cx.db.effects.is_replay = true,
        }
        cx
    }

    /// Runs commands with one key each, in order. Returns those that failed, with their errors.
    pub fn run_jobs(
        self,
        cx: &mut Cx<'_>,
        source: &SharedCommands,
        jobs: &[Job],
    ) -> Vec<(usize, Error)> {
        let (mut failures, mut words) = (Vec::new(), Vec::new());
        for jobs in jobs.chunks(TOGETHER) {
            fetch(cx.engine, cx.db.index, jobs);
            cx.start_timing();
            for job in jobs {
                source.words(job.command, &mut words);
                cx.db.locks.acquire_patiently(Locked::One(job.stripe));
                let args = Args::new(&words).with_hash(job.row.single_key, job.hash);
                if let Err(error) = self.run(cx, job.row, args) {
                    failures.push((job.command, error));
                }
            }
        }
        failures
    }

    /// Runs a command whose stripes are locked, and unlocks them.
    pub fn run(self, cx: &mut Cx<'_>, row: &'static Resolved, args: Args<'_>) -> Result<(), Error> {
        let outcome = self.apply(cx, row, args);
        dispatch::serve_first(cx);
        cx.db.locks.release();
        dispatch::serve_first(cx);
        outcome
    }

    /// Runs a command under locks that the caller releases.
    pub fn apply(
        self,
        cx: &mut Cx<'_>,
        row: &'static Resolved,
        args: Args<'_>,
    ) -> Result<(), Error> {
        let outcome = match self {
            Manner::Stream => dispatch::run_nested(cx, row, args),
            Manner::File => {
                cx.resolved = row;
                let outcome = dispatch::run_row(cx, row, args);
                cx.block_request = None;
                commit::commit(cx, args);
                cx.db.effects.ready.clear();
                outcome
            }
        };
        cx.reply.truncate(0);
        outcome
    }
}

/// The state with which a thread runs lanes.
pub(crate) struct Lanes {
    engine: &'static Engine,
    session: Session,
    replies: Output,
}

impl Lanes {
    pub fn new(engine: &'static Engine, thread: &ThreadContext) -> Lanes {
        let session = engine.own_session(thread);
        Lanes { engine, session, replies: Output::default() }
    }

    /// Runs lanes of a part until all are taken.
    fn run(&mut self, thread: &ThreadContext, part: &Part) {
        while let Some(lane) = part.lanes.get(part.next.fetch_add(1, Relaxed)) {
            self.run_lane(thread, part, lane);
            // From here on, the reading thread may leave the world.
            part.done.fetch_add(1, Release);
        }
    }

    fn run_lane(&mut self, thread: &ThreadContext, part: &Part, lane: &[Job]) {
        self.session.db = part.db;
        let mut cx = part.manner.context(self.engine, thread, &mut self.session, &mut self.replies);
        let failures = part.manner.run_jobs(&mut cx, &part.source, lane);
        if !failures.is_empty() {
            lock(&part.failures).extend(failures);
        }
    }
}

/// Jobs to run, in the order of the history.
pub(crate) struct Request<I> {
    pub manner: Manner,
    pub db: DbIndex,
    pub source: Arc<SharedCommands>,
    pub jobs: I,
}

impl Appliers {
    /// Runs jobs on several threads. The jobs of each key keep their order. Runs `meanwhile` on the
    /// calling thread first. Returns the failures in order. The caller is inside the world. If
    /// commands can run, it has [barred](crate::holds::Holds::bar) holds.
    pub(crate) fn run(
        &self,
        engine: &'static Engine,
        thread: &ThreadContext,
        own: &mut Lanes,
        request: Request<impl Iterator<Item = Job> + Clone>,
        meanwhile: impl FnOnce(),
    ) -> Vec<(usize, Error)> {
        let Request { manner, db, source, jobs } = request;
        let count = jobs.clone().count();
        let helpers = (count / MIN_JOBS).saturating_sub(1).min(self.most);
        let mut lanes: Vec<Vec<Job>> = vec![Vec::new(); LANES_PER_THREAD * (helpers + 1)];
        let lane_count = lanes.len();
        lanes.iter_mut().for_each(|lane| lane.reserve(2 * count / lane_count));
        jobs.for_each(|job| lanes[job.stripe % lane_count].push(job));
        let part = Arc::new(Part {
            source,
            manner,
            db,
            lanes,
            next: AtomicUsize::new(0),
            done: AtomicUsize::new(0),
            failures: Mutex::default(),
        });
        self.offer(engine, &part, helpers);
        meanwhile();
        own.run(thread, &part);
        lock(&self.offer).part = None;
        wait_until(|| part.done.load(Acquire) == lane_count);
        let mut failures = std::mem::take(&mut *lock(&part.failures));
        failures.sort_by_key(|(command, _)| *command);
        failures
    }

    fn offer(&self, engine: &'static Engine, part: &Arc<Part>, helpers: usize) {
        let mut offer = lock(&self.offer);
        offer.part = Some(Arc::clone(part));
        offer.number += 1;
        let starts = offer.threads..helpers.max(offer.threads);
        offer.threads = starts.end;
        drop(offer);
        for number in starts {
            let work = move || engine.appliers.work(engine, number);
            engine.background.spawn(format!("applier-{number}"), Purpose::Apply, work);
        }
        for _ in 0..helpers {
            self.came.notify_one();
        }
    }

    /// Runs a helper thread until the end of the process.
    fn work(&self, engine: &'static Engine, number: usize) {
        let thread = engine.context(engine.thread_stats.len() - 2 - number);
        let mut lanes = Lanes::new(engine, &thread);
        let mut seen = 0;
        loop {
            let mut offer = lock(&self.offer);
            let part = loop {
                match &offer.part {
                    Some(part) if offer.number != seen => break Arc::clone(part),
                    _ => offer = wait(&self.came, offer),
                }
            };
            seen = offer.number;
            drop(offer);
            lanes.run(&thread, &part);
        }
    }
}

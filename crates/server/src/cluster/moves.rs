//! The jobs that move slots (CLUSTER MIGRATESLOTS). The topology says what is to be done; so these
//! threads keep nothing that a fail-over would lose. `docs/internals/slot-moves.md` has the whole.

mod job;
pub(super) mod leftovers;
mod link;

use crate::log;
use cluster::change::moves;
use cluster::coordinator::{Coordinator, Outcome};
use cluster::id::Id;
use cluster::view::{Keys, View};
use engine::Engine;
use engine::membership::Published;
use etcd::Client;
use job::Job;
use process::thread;
use std::collections::BTreeMap;
use std::io;
use std::thread::JoinHandle;
use std::time::Duration;

/// How often the thread looks.
const REST: Duration = Duration::from_millis(20);

/// Jobs that are worked at at the same time.
const MAX_AT_ONCE: usize = 4;

/// Seconds since 1970, as the topology has them.
pub(super) fn now_s() -> u64 {
    engine::clock::now_s().max(0).unsigned_abs()
}

/// For how long the source of a copy may be about to hand its slots over while FLUSHALL, or another
/// source, waits.
const DECISION: Duration = Duration::from_secs(2);

/// Reads the newest view. `None`: the coordinator is away.
fn read(client: &mut Client, keys: &Keys, old: &View) -> Option<View> {
    let range = client.range(&keys.database(old.database), None).ok()?;
    View::decode(keys, old.database, &range).ok()?
}

struct Mover {
    engine: &'static Engine,
    connect: Box<dyn Fn() -> Client + Send>,
    keys: Keys,
    me: Id,
    /// The threads that work at them.
    workers: BTreeMap<Id, JoinHandle<()>>,
    /// The thread that drops leftovers.
    leftovers: Option<JoinHandle<()>>,
}

/// Starts the thread. `connect` makes a connection to the coordinator.
///
/// # Errors
/// The system can start no thread.
pub(super) fn start(
    engine: &'static Engine,
    connect: Box<dyn Fn() -> Client + Send>,
    keys: Keys,
    me: Id,
) -> io::Result<()> {
    let workers = BTreeMap::new();
    let mut mover = Mover { engine, connect, keys, me, workers, leftovers: None };
    thread::spawn("cluster-moves", move || {
        loop {
            mover.turn();
            std::thread::sleep(REST);
        }
    })
    .map(drop)
}

impl Mover {
    /// Starts what is to be done and is not under way.
    fn turn(&mut self) {
        let Some(published) = self.engine.membership.newest() else { return };
        self.workers.retain(|_, worker| !worker.is_finished());
        if !published.leads {
            return;
        }
        self.drop_leftovers(&published);
        let undecided = self.engine.membership.moves.undecided(&self.engine.clock, DECISION);
        for job in undecided {
            self.give_up(&published.view, job);
        }
        let tasks = moves::tasks(&published.view, self.me).map(|job| job.id);
        let due: Vec<Id> = tasks.filter(|id| !self.workers.contains_key(id)).collect();
        for id in due {
            if self.workers.len() == MAX_AT_ONCE {
                return;
            }
            let (keys, client) = (self.keys.clone(), (self.connect)());
            let job = Job { engine: self.engine, client, keys, me: self.me, id };
            match thread::spawn("cluster-move", move || job.run()) {
                Ok(worker) => _ = self.workers.insert(id, worker),
                Err(error) => return log!(Warning, "Cluster: no thread for a move: {error}"),
            }
        }
    }

    /// FLUSHALL, or the next primary of its source, waits for the decision about a copy, and the
    /// source does not make it: it has died, perhaps. A transaction makes sure that it never will
    /// for this copy.
    fn give_up(&self, view: &View, job: Id) {
        let mut client = (self.connect)();
        let Some(view) = read(&mut client, &self.keys, view) else { return };
        // Without a transaction it has been decided, which is about to be shown.
        let Some(transaction) = moves::give_up(&view, self.me, job) else { return };
        if let Ok(Outcome::Done(_)) = client.commit(&transaction) {
            log!(
                Notice,
                "Cluster: the copy for the move {job} is given up: its source does not decide"
            );
            self.engine.end_import(job);
        }
    }

    /// Starts the thread that drops keys of slots which are other shards', if there may be any.
    fn drop_leftovers(&mut self, published: &Published) {
        if self.leftovers.as_ref().is_some_and(|thread| !thread.is_finished()) {
            return;
        }
        let moves = &self.engine.membership.moves;
        let slots = moves.stale();
        // While the rules change, keys move by both.
        let has_foreign = moves.expects_foreign() && published.next().is_none();
        if slots.is_empty() && !has_foreign {
            return;
        }
        let engine = self.engine;
        let drop = move || {
            leftovers::drop_all(engine, &slots);
            if has_foreign {
                leftovers::drop_foreign(engine);
            }
        };
        match thread::spawn("cluster-leftovers", drop) {
            Ok(thread) => self.leftovers = Some(thread),
            Err(error) => log!(Warning, "Cluster: no thread for leftovers: {error}"),
        }
    }
}

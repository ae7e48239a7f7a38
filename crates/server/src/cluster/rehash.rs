//! A change of the rule by which keys get their slots, on a thread with a connection of its own to
//! the coordinator. The topology says what the next step is. `docs/internals/hashing.md` has the
//! protocol.

use super::publish::wait_until_shown;
use super::target::Target;
use crate::log;
use cluster::change::rehash::{self, RehashStep};
use cluster::coordinator::{Coordinator, Outcome, Transaction};
use cluster::id::Id;
use cluster::topology::{Phase, Rehash};
use engine::Engine;
use engine::carrying::{Carrier, Routes, Unanswered};
use engine::membership::Published;
use etcd::Client;
use process::thread;
use std::collections::BTreeMap;
use std::io;
use std::sync::Arc;
use std::time::Duration;

/// How long the thread rests when there is nothing to do.
const REST: Duration = Duration::from_millis(20);

/// How long it rests when a step has failed.
const REST_AFTER_FAILURE: Duration = Duration::from_millis(200);

struct Changer {
    engine: &'static Engine,
    client: Client,
    me: Id,
    /// The step that all requests of this server know of: the change, and its phase.
    known: Option<(Rehash, Phase)>,
    /// Keys that were sent, perhaps without an answer.
    unanswered: Vec<Unanswered>,
}

/// Starts the thread.
///
/// # Errors
/// The system can start no thread.
pub(super) fn start(engine: &'static Engine, client: Client, me: Id) -> io::Result<()> {
    let mut changer = Changer { engine, client, me, known: None, unanswered: Vec::new() };
    thread::spawn("cluster-rehash", move || {
        loop {
            let rest = changer.turn();
            std::thread::sleep(rest);
        }
    })
    .map(drop)
}

impl Changer {
    /// Makes the next step, if there is one. Returns how long to rest.
    fn turn(&mut self) -> Duration {
        let Some(published) = self.engine.membership.newest() else { return REST };
        let Some(rehash) = &published.view.topology.value.rehash else {
            if self.known.take().is_some() {
                self.unanswered.clear();
                self.engine.membership.rehash.set_obstacle(String::new());
            }
            return REST;
        };
        let step = published.leads.then(|| rehash::next(&published.view, self.me)).flatten();
        let Some(step) = step else { return REST };
        self.let_all_know(rehash);
        match self.make(&published, rehash.phase, step) {
            Ok(()) => {
                self.engine.membership.rehash.set_obstacle(String::new());
                Duration::ZERO
            }
            Err(why) => {
                if self.engine.membership.rehash.obstacle() != why {
                    log!(Warning, "Cluster: the change of the hashing rules waits: {why}");
                }
                self.engine.membership.rehash.set_obstacle(why);
                REST_AFTER_FAILURE
            }
        }
    }

    /// Waits until no request runs that has seen the phase before.
    fn let_all_know(&mut self, rehash: &Rehash) {
        let reached = BTreeMap::new();
        let now = (Rehash { reached, ..rehash.clone() }, rehash.phase);
        if self.known.as_ref() == Some(&now) {
            return;
        }
        drop(self.engine.keyspace.world().stop());
        // Those that have begun to wait for keys meanwhile.
        self.engine.send_waiters_on();
        self.known = Some(now);
    }

    fn make(
        &mut self,
        published: &Published,
        phase: Phase,
        step: RehashStep,
    ) -> Result<(), String> {
        match step {
            RehashStep::Note(transaction) => {
                if phase == Phase::Turning && !self.unanswered.is_empty() {
                    let routes = self.routes(published, phase)?;
                    self.engine.send_unanswered(&routes, &mut self.unanswered)?;
                }
                self.commit(&transaction)
            }
            RehashStep::Carry(transaction) => {
                let routes = self.routes(published, phase)?;
                let left = self.engine.carry_rehashed(&routes, &mut self.unanswered)?;
                if let Some(key) = left {
                    let key = String::from_utf8_lossy(&key).into_owned();
                    return Err(format!(
                        "key '{}' matches no rule of the new ones: delete it, or cancel the change",
                        key.escape_debug()
                    ));
                }
                self.commit(&transaction)
            }
        }
    }

    /// How keys get to all other shards.
    fn routes(&self, published: &Published, phase: Phase) -> Result<Routes, String> {
        let shards = &published.view.topology.value.shards;
        let mut carriers: BTreeMap<u16, Carrier> = BTreeMap::new();
        let mut own_copies = 0;
        for (at, shard) in (0_u16..).zip(shards) {
            match shard.copy(self.me) {
                Some(_) => own_copies = super::target::replicas(&published.view, shard),
                None => {
                    let target = Target::find(self.engine, &published.view, shard.holder.id)?;
                    carriers.insert(at, target.carrier());
                }
            }
        }
        let is_current: fn(&Published) -> bool = match phase {
            Phase::Turning => |published: &Published| is_in(published, Phase::Turning),
            _ => |published: &Published| is_in(published, Phase::Moving),
        };
        Ok(Routes { carriers: Arc::new(carriers), own_copies, is_current })
    }

    /// Makes a transaction, and waits until clients of this server see it. If others were faster,
    /// the next step is found in what they did.
    fn commit(&mut self, transaction: &Transaction) -> Result<(), String> {
        match self.client.commit(transaction) {
            Ok(Outcome::Done(revision)) => {
                wait_until_shown(self.engine, revision);
                Ok(())
            }
            Ok(_) => {
                std::thread::sleep(REST);
                Ok(())
            }
            Err(_) => Err("the coordinator is away".into()),
        }
    }
}

fn is_in(published: &Published, phase: Phase) -> bool {
    published.leads && published.next().is_some_and(|next| next.phase == phase)
}

//! The jobs that move slots away from this server's shard (CLUSTER MIGRATESLOTS), on a thread with a connection of its own
//! to the coordinator. The topology says what the next step is; so this thread keeps nothing that a fail-over would lose.

use super::publish::wait_until_shown;
use super::target::Target;
use crate::log;
use cluster::change::moves::{self, Step};
use cluster::coordinator::{Coordinator, Outcome, Transaction};
use cluster::id::Id;
use cluster::topology::Move;
use engine::Engine;
use engine::membership::{PastMove, Published};
use etcd::Client;
use keyspace::Slot;
use process::thread;
use std::collections::BTreeMap;
use std::io;
use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};
use structs::crc16::key_slot;

/// How long the thread rests when there is nothing to do.
const REST: Duration = Duration::from_millis(20);

/// How long it rests when a step has failed.
const REST_AFTER_FAILURE: Duration = Duration::from_millis(200);

/// How long the target may take to answer a question.
const QUESTION: Duration = Duration::from_secs(1);

/// Seconds since 1970.
pub(super) fn now_s() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |now| now.as_secs())
}

struct Mover {
    engine: &'static Engine,
    client: Client,
    me: Id,
    /// The publication that was looked at last.
    seen: u64,
    /// The jobs that it had from or to this server's shard.
    known: BTreeMap<Id, Move>,
}

/// Starts the thread.
///
/// # Errors
/// The system can start no thread.
pub(super) fn start(engine: &'static Engine, client: Client, me: Id) -> io::Result<()> {
    let mut mover = Mover { engine, client, me, seen: 0, known: BTreeMap::new() };
    thread::spawn("cluster-moves", move || {
        loop {
            let rest = mover.turn();
            std::thread::sleep(rest);
        }
    })
    .map(drop)
}

impl Mover {
    /// Makes the next step, if there is one. Returns how long to rest.
    fn turn(&mut self) -> Duration {
        let version = self.engine.membership.version();
        let Some(published) = self.engine.membership.newest() else { return REST };
        if self.seen != version {
            self.seen = version;
            self.note_ends(&published);
        }
        let step = published.leads.then(|| moves::next(&published.view, self.me)).flatten();
        let Some(step) = step else { return REST };
        match self.make(&published, step) {
            Ok(()) => {
                self.engine.membership.moves.set_obstacle(String::new());
                Duration::ZERO
            }
            Err(why) => {
                if self.engine.membership.moves.obstacle() != why {
                    log!(Warning, "Cluster: slots that are to move wait: {why}");
                }
                self.engine.membership.moves.set_obstacle(why);
                REST_AFTER_FAILURE
            }
        }
    }

    fn make(&mut self, published: &Published, step: Step) -> Result<(), String> {
        match step {
            Step::Import(transaction) => self.commit(&transaction),
            Step::Leave(node, slot, transaction) => {
                let target = Target::find(self.engine, &published.view, node)?;
                self.ask(&target, slot)?;
                self.commit(&transaction)?;
                // Requests that have begun before do not know that the slots are open.
                drop(self.engine.keyspace.world().stop());
                Ok(())
            }
            Step::Carry(node, slots, transaction) => {
                let carrier = Target::find(self.engine, &published.view, node)?.carrier();
                for slot in slots.iter().filter_map(Slot::new) {
                    self.engine.carry_slot(slot, &carrier)?;
                }
                self.commit(&transaction)
            }
        }
    }

    /// Makes a transaction, and waits until clients of this server see it. If others were faster, the next step is found
    /// in what they did.
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

    /// Asks the target whether it takes keys of a slot: clients are sent there only when it knows that.
    fn ask(&self, target: &Target, slot: u16) -> Result<(), String> {
        let host = self.engine.host().ok_or("the server ends")?;
        let failed = |error: io::Error| format!("the target does not answer: {error}");
        let peer = host.connect(target.host.as_bytes(), target.port.as_bytes(), QUESTION);
        let mut peer = peer.map_err(failed)?;
        let mut request = Vec::new();
        if !target.login.is_empty() {
            let words = &target.login[1..];
            resp::bulk::push_header(&mut request, b'*', words.len() + 1);
            resp::bulk::push_bulk(&mut request, b"AUTH");
            words.iter().for_each(|word| resp::bulk::push_bulk(&mut request, word));
        }
        let answers = if target.login.is_empty() { 3 } else { 4 };
        let in_slot = |number: &u32| key_slot(number.to_string().as_bytes()) == slot;
        let key = (0..).find(in_slot).unwrap_or(0);
        let question = format!("CLIENT CAPA cluster\r\nASKING\r\nEXISTS {key}\r\n");
        request.extend_from_slice(question.as_bytes());
        peer.send(&request).map_err(failed)?;
        for _ in 0..answers {
            let line = peer.line().map_err(failed)?;
            if line.first() == Some(&b'-') {
                let line = String::from_utf8_lossy(&line);
                return Err(format!("the target does not take keys yet: {line}"));
            }
        }
        Ok(())
    }

    /// Remembers the jobs that are over.
    fn note_ends(&mut self, published: &Arc<Published>) {
        let topology = &published.view.topology.value;
        let own = published.own_shard().map(|shard| shard.id);
        let is_own = |job: &&Move| Some(job.from) == own || Some(job.to) == own;
        let present: BTreeMap<Id, Move> =
            topology.moves.iter().filter(is_own).map(|job| (job.id, job.clone())).collect();
        for (_, job) in std::mem::take(&mut self.known) {
            if present.contains_key(&job.id) {
                continue;
            }
            let target = topology.shard(job.to);
            let has_all = target.is_some_and(|shard| job.slots.without(&shard.slots).is_empty());
            let has_source = topology.shard(job.from).is_some();
            let outcome = match (has_all, has_source && target.is_some()) {
                (true, _) => "success",
                (false, true) => "cancelled",
                (false, false) => "failed",
            };
            let nodes = (topology.leader_of(job.from), topology.leader_of(job.to));
            let past = PastMove { job, nodes, until_s: now_s(), outcome };
            self.engine.membership.moves.remember(past);
        }
        self.known = present;
    }
}

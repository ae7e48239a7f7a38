//! Jobs that move slots, in simulation: three shards of two copies each, clients that write and
//! read, and a coordinator whose calls get lost, late or made twice as late as they were given up.
//! Primaries change and crash, connections break, jobs are cancelled and begun, keys are deleted
//! altogether. The transactions and the decision are those of the product; what a server does
//! between them (`server/src/cluster/moves/job.rs`) is told again here, a step at a time.
//!
//! What must hold at every moment:
//! - a request is answered by one shard at most, and sees what was confirmed last: so no confirmed
//!   write is lost, and none is made where a copy has already left;
//! - each slot has one owner.
//!
//! In the end faults stop: jobs end, all that was confirmed is at its owner, and nowhere else.
//!
//! Replication is told as if each write were on both copies of its shard before it is confirmed
//! (`world.rs` has that part), so the copies of a shard share their keys here.

use crate::etcd::Etcd;
use cluster::change::moves::decision::{Decision, Next};
use cluster::change::moves::{self, Attempt};
use cluster::coordinator::{Change, Coordinator, Failure, Outcome, Revision, Transaction};
use cluster::id::{Epoch, Id, Incarnation};
use cluster::slots::Slots;
use cluster::topology::{Address, Holder, Move, MovePhase, Replica, Shard, Topology};
use cluster::view::{Keys, View};
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use structs::random::Rng;

const SHARDS: usize = 3;
const COPIES: usize = 2;

/// The slots that have keys, of all shards.
const USED: [u16; 6] = [10, 20, 6000, 6010, 12000, 12010];

/// Keys of each slot.
const KEYS: u64 = 3;

/// A key is its slot and a number.
type Key = (u16, u64);

/// How often things happened.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Counts {
    confirmed: usize,
    given: usize,
    kept: usize,
    cancelled: usize,
    restarts: usize,
    promotions: usize,
    flushes: usize,
    given_up: usize,
    fences: usize,
}

/// What the source sends.
#[derive(Clone, Copy, Debug)]
enum Message {
    /// A slot's keys follow, some at a time, each of them once more when it changes.
    Set(Key, u64),
    Delete(Key),
    Prepare,
}

/// Where the work at a job is.
#[derive(Debug)]
enum Stage {
    /// These slots are still to be taken.
    Copying(Vec<u16>),
    /// All is taken, and the slots wait. The target is asked whether it has all.
    Pausing,
    Deciding(Box<Decision>, Call),
    /// Until clients see this revision.
    Showing(Revision),
}

/// A call to the coordinator.
#[derive(Debug)]
enum Call {
    None,
    /// It was sent; the number is that of its reply.
    Sent(u64),
}

/// The work of a primary at a job that copies.
#[derive(Debug)]
struct Work {
    job: Id,
    slots: BTreeSet<u16>,
    attempt: Attempt,
    /// The number of the connection at the target.
    number: u64,
    link: VecDeque<Message>,
    taken: BTreeSet<u16>,
    stage: Stage,
}

/// A connection that brings a copy.
#[derive(Debug)]
struct Import {
    job: Id,
    number: u64,
    slots: BTreeSet<u16>,
    is_prepared: bool,
}

/// A copy's process.
struct Node {
    id: Id,
    shard: usize,
    incarnation: Incarnation,
    view: Option<View>,
    /// Its process has just begun.
    is_new: bool,
    work: Vec<Work>,
    imports: Vec<Import>,
    /// FLUSHALL, or another connection for a copy, waits for a decision.
    is_awaited: bool,
}

/// What is on its way to the coordinator, or back.
#[allow(clippy::large_enum_variant)] // A simulation holds few of them.
enum Flight {
    Request { call: u64, node: usize, transaction: Option<Transaction> },
    Reply { call: u64, node: usize, reply: Reply },
}

#[allow(clippy::large_enum_variant)] // A simulation holds few of them.
enum Reply {
    Committed(Result<Outcome, Failure>),
    Read(Option<View>),
}

/// See the head of this file.
pub(crate) struct World {
    rng: Rng,
    seed: u64,
    etcd: Etcd,
    keys: Keys,
    database: Id,
    nodes: Vec<Node>,
    /// What each shard has, its own keys and copies.
    data: Vec<BTreeMap<Key, u64>>,
    /// What clients know to be there.
    confirmed: BTreeMap<Key, u64>,
    flights: Vec<Flight>,
    /// The newest view, read once.
    known: Option<View>,
    has_faults: bool,
    drawn: u64,
    counts: Counts,
}

fn id(at: usize) -> Id {
    Id::new([at as u8 + 1; 20])
}

fn used(slots: &Slots) -> BTreeSet<u16> {
    USED.into_iter().filter(|slot| slots.contains(*slot)).collect()
}

impl World {
    pub(crate) fn new(seed: u64) -> World {
        let keys = Keys::new("moves");
        let database = id(200);
        let node = |at: usize| Node {
            id: id(at),
            shard: at / COPIES,
            incarnation: Incarnation(at as u64 + 1),
            view: None,
            is_new: false,
            work: Vec::new(),
            imports: Vec::new(),
            is_awaited: false,
        };
        let nodes: Vec<Node> = (0..SHARDS * COPIES).map(node).collect();
        let replica = |node: &Node| Replica {
            id: node.id,
            address: Address { host: "10.0.0.1".into(), port: 7000, ..Address::default() },
            member: Some(node.incarnation),
            is_never_promoted: false,
        };
        let shard = |at: usize| {
            let copies: Vec<Replica> =
                nodes.iter().filter(|node| node.shard == at).map(replica).collect();
            let first = &nodes[at * COPIES];
            let slots = Slots::from_fn(|slot| usize::from(slot) / 6000 == at);
            let shard = Shard::new(first.id, copies[0].address.clone(), first.incarnation);
            Shard { id: id(100 + at), slots, copies, ..shard }
        };
        let mut topology = Topology::new(shard(0));
        topology.shards.extend((1..SHARDS).map(shard));
        let mut etcd = Etcd::new();
        let value = topology.encode();
        let put = Change::Put { key: keys.topology(database), value, lease: None };
        let made = etcd.commit(&Transaction { compares: Vec::new(), changes: vec![put] });
        assert!(matches!(made, Ok(Outcome::Done(_))));
        World {
            rng: Rng::seeded(seed),
            seed,
            etcd,
            keys,
            database,
            nodes,
            data: vec![BTreeMap::new(); SHARDS],
            confirmed: BTreeMap::new(),
            flights: Vec::new(),
            known: None,
            has_faults: true,
            drawn: 0,
            counts: Counts::default(),
        }
    }

    fn draw(&mut self) -> u64 {
        self.drawn += 1;
        self.drawn
    }

    /// Whether something happens that happens once in so many times.
    fn once_in(&mut self, times: u64) -> bool {
        self.rng.below(times) == 0
    }

    /// What is true, whether a node can read it or not.
    fn truth(&mut self) -> View {
        if let Some(view) = self.known.as_ref().filter(|it| it.revision == self.etcd.revision) {
            return view.clone();
        }
        let is_down = std::mem::take(&mut self.etcd.is_down);
        let view = self.read().expect("it is there");
        self.etcd.is_down = is_down;
        self.known = Some(view.clone());
        view
    }

    fn read(&mut self) -> Option<View> {
        let range = self.etcd.range(&self.keys.database(self.database), None).ok()?;
        View::decode(&self.keys, self.database, &range).expect("it is valid")
    }

    /// Whether a node leads its shard, as it knows, and as its copies let it: they refuse an epoch
    /// that is over.
    fn leads(&mut self, at: usize) -> bool {
        let epoch = |view: &View, id: Id| -> Option<Epoch> {
            let shard = view.topology.value.shard_of(id)?;
            (shard.holder.id == id).then_some(shard.epoch)
        };
        let node = &self.nodes[at];
        let known = node.view.as_ref().and_then(|view| epoch(view, node.id));
        let id = node.id;
        known.is_some() && epoch(&self.truth(), id) == known
    }

    pub(crate) fn run(&mut self, steps: u32) {
        for _ in 0..steps {
            self.step();
        }
    }

    fn step(&mut self) {
        let at = self.rng.index(self.nodes.len());
        match self.rng.below(16) {
            0..=3 => self.request(at),
            4..=6 => self.fly(),
            7 => self.refresh(at),
            8 | 9 => self.drop_copies(at),
            10..=14 => self.work(at),
            _ if self.has_faults => self.suffer(at),
            _ => {}
        }
        let topology = self.truth().topology.value;
        for slot in USED {
            let owners = topology.shards.iter().filter(|shard| shard.slots.contains(slot)).count();
            assert_eq!(owners, 1, "seed {}: slot {slot} has {owners} owners", self.seed);
        }
    }

    /// A client asks a node to write, read or delete a key.
    fn request(&mut self, at: usize) {
        if !self.leads(at) {
            return;
        }
        let slot = USED[self.rng.index(USED.len())];
        let key = (slot, self.rng.below(KEYS));
        let node = &self.nodes[at];
        let is_own = node.view.as_ref().is_some_and(|view| {
            view.topology.value.shard_of(node.id).is_some_and(|shard| shard.slots.contains(slot))
        });
        let waits = node.work.iter().any(|work| work.slots.contains(&slot) && work.waits());
        if !is_own || waits {
            return;
        }
        let shard = node.shard;
        let (found, known) = (self.data[shard].get(&key), self.confirmed.get(&key));
        assert_eq!(found, known, "seed {}: {key:?} at shard {shard}", self.seed);
        self.counts.confirmed += 1;
        let message = if self.once_in(4) {
            self.data[shard].remove(&key);
            self.confirmed.remove(&key);
            Message::Delete(key)
        } else {
            let value = self.draw();
            self.data[shard].insert(key, value);
            self.confirmed.insert(key, value);
            Message::Set(key, value)
        };
        for work in &mut self.nodes[at].work {
            if work.taken.contains(&slot) {
                work.link.push_back(message);
            }
        }
    }

    /// A node reads the newest view, or what a watch said of it. Now and then not for long.
    fn refresh(&mut self, at: usize) {
        if self.has_faults && self.once_in(3) {
            return;
        }
        let Some(view) = self.read() else { return };
        let id = self.nodes[at].id;
        let mut topology = view.topology.value.clone();
        let epoch = topology.take_epoch();
        let shard = topology.shard_of_mut(id).expect("it is there");
        if self.nodes[at].is_new && shard.holder.id == id {
            // A process that comes back leads in an epoch of its own.
            shard.epoch = epoch;
            self.nodes[at].is_new = !self.change(&view, &topology);
            return;
        }
        self.nodes[at].is_new = false;
        self.publish(at, view);
    }

    fn publish(&mut self, at: usize, view: View) {
        let node = &mut self.nodes[at];
        if node.view.as_ref().is_some_and(|old| old.revision > view.revision) {
            return;
        }
        // A connection for a job that copies no more brings nothing.
        let own = view.topology.value.shard_of(node.id).map(|shard| shard.id);
        let leads = view.topology.value.shard_of(node.id).is_some_and(|it| it.holder.id == node.id);
        node.imports.retain(|import| {
            view.topology.value.moves.iter().any(|job| {
                leads
                    && job.id == import.job
                    && job.phase() == MovePhase::Copying
                    && Some(job.to) == own
            })
        });
        node.view = Some(view);
    }

    // ---- the coordinator --------------------------------------------------------------------

    fn call(&mut self, node: usize, transaction: Option<Transaction>) -> Call {
        let call = self.draw();
        self.flights.push(Flight::Request { call, node, transaction });
        Call::Sent(call)
    }

    /// Something arrives at the coordinator, or comes back from it.
    fn fly(&mut self) {
        if self.flights.is_empty() {
            return;
        }
        let at = self.rng.index(self.flights.len());
        match self.flights.swap_remove(at) {
            Flight::Request { call, node, transaction } => {
                let is_lost = self.has_faults && self.once_in(6);
                let reply = match &transaction {
                    Some(transaction) => Reply::Committed(self.etcd.commit(transaction)),
                    None => Reply::Read(self.read()),
                };
                if !is_lost {
                    self.flights.push(Flight::Reply { call, node, reply });
                } else {
                    let reply = Reply::Committed(Err(Failure::Away("no answer".into())));
                    self.flights.push(Flight::Reply { call, node, reply });
                }
            }
            Flight::Reply { call, node, reply } => self.replied(node, call, reply),
        }
    }

    fn replied(&mut self, node: usize, call: u64, reply: Reply) {
        let awaits = |work: &&mut Work| matches!(&work.stage, Stage::Deciding(_, Call::Sent(sent)) if *sent == call);
        let Some(work) = self.nodes[node].work.iter_mut().find(awaits) else { return };
        let Stage::Deciding(decision, waits_for) = &mut work.stage else { return };
        *waits_for = Call::None;
        match reply {
            Reply::Read(Some(view)) => decision.read(view),
            // A read that failed is made again.
            Reply::Read(None) => {}
            Reply::Committed(outcome) => {
                if !matches!(decision.next(), Next::Read) {
                    decision.committed(outcome);
                }
            }
        }
    }

    /// An operator's change, or a server's that rests on nothing it holds back.
    fn change(&mut self, view: &View, topology: &Topology) -> bool {
        matches!(self.etcd.commit(&view.replace(topology)), Ok(Outcome::Done(_)))
    }

    // ---- the source -------------------------------------------------------------------------

    /// One that is no primary any more, and does not know it, goes on.
    fn work(&mut self, at: usize) {
        let Some(view) = self.nodes[at].view.clone() else { return };
        let due: Vec<Id> = moves::tasks(&view, self.nodes[at].id)
            .filter(|job| job.phase() == MovePhase::Copying)
            .map(|job| job.id)
            .collect();
        for job in due {
            if !self.nodes[at].work.iter().any(|work| work.job == job) {
                self.connect(at, &view, job);
            }
        }
        let count = self.nodes[at].work.len();
        if count == 0 {
            return;
        }
        let index = self.rng.index(count);
        let work = self.nodes[at].work.swap_remove(index);
        if let Some(work) = self.advance(at, work) {
            self.nodes[at].work.push(work);
        }
    }

    fn connect(&mut self, at: usize, view: &View, job: Id) {
        let Some((job, attempt)) = moves::copying(view, self.nodes[at].id, job) else { return };
        let (job, slots) = (job.clone(), used(&job.slots));
        let to =
            self.nodes.iter().position(|node| node.id == attempt.target.id).expect("it is there");
        let expects = |view: &View| {
            let topology = &view.topology.value;
            // Keys of these slots that are being dropped would go together with the copy.
            let drops = topology.dropped_by(job.to, &job.slots).is_some();
            let is_copied = |it: &Move| it.id == job.id && it.phase() == MovePhase::Copying;
            !drops && topology.moves.iter().any(is_copied)
        };
        if !self.leads(to) || !self.nodes[to].view.as_ref().is_some_and(expects) {
            return;
        }
        // Its source may be about to hand the slots over, and be another one than this.
        let is_same = |import: &Import| import.job == job.id && import.is_prepared;
        if self.nodes[to].imports.iter().any(is_same) {
            self.nodes[to].is_awaited = true;
            return;
        }
        let number = self.draw();
        self.data[self.nodes[to].shard].retain(|(slot, _), _| !slots.contains(slot));
        let imports = &mut self.nodes[to].imports;
        imports.retain(|import| import.job != job.id);
        imports.push(Import { job: job.id, number, slots: slots.clone(), is_prepared: false });
        let stage = Stage::Copying(slots.iter().copied().collect());
        self.nodes[at].work.push(Work {
            job: job.id,
            slots,
            attempt,
            number,
            link: VecDeque::new(),
            taken: BTreeSet::new(),
            stage,
        });
        self.counts.restarts += 1;
    }

    /// Does a step of a job. `None`: the attempt is over.
    fn advance(&mut self, at: usize, mut work: Work) -> Option<Work> {
        match &mut work.stage {
            Stage::Copying(left) => {
                let next = left.pop();
                if !self.is_wanted(at, &work) || self.has_faults && self.once_in(40) {
                    return None;
                }
                match next {
                    Some(slot) => {
                        let own = &self.data[self.nodes[at].shard];
                        let keys = own.iter().filter(|((of, _), _)| *of == slot);
                        work.link.extend(keys.map(|(key, value)| Message::Set(*key, *value)));
                        work.taken.insert(slot);
                    }
                    None => {
                        work.link.push_back(Message::Prepare);
                        work.stage = Stage::Pausing;
                    }
                }
                self.deliver(&mut work).then_some(work)
            }
            Stage::Pausing => {
                let is_broken = self.has_faults && self.once_in(20);
                if is_broken || !self.is_wanted(at, &work) || !self.deliver(&mut work) {
                    return None;
                }
                if work.link.is_empty() {
                    let view = self.nodes[at].view.clone().expect("the job is wanted by it");
                    let decision = Decision::new(view, self.nodes[at].id, work.job, work.attempt);
                    work.stage = Stage::Deciding(Box::new(decision), Call::None);
                }
                Some(work)
            }
            Stage::Deciding(decision, Call::None) => {
                match decision.next() {
                    Next::Commit(transaction) => {
                        self.counts.fences +=
                            usize::from(transaction == moves::fence(decision.view()));
                        let call = self.call(at, Some(transaction));
                        if let Stage::Deciding(_, waits) = &mut work.stage {
                            *waits = call;
                        }
                    }
                    Next::Read => {
                        let call = self.call(at, None);
                        if let Stage::Deciding(_, waits) = &mut work.stage {
                            *waits = call;
                        }
                    }
                    Next::Given(revision) => {
                        self.counts.given += 1;
                        work.stage = Stage::Showing(revision);
                    }
                    Next::Kept(revision) => {
                        self.counts.kept += 1;
                        work.stage = Stage::Showing(revision);
                    }
                }
                Some(work)
            }
            Stage::Deciding(decision, Call::Sent(_)) => {
                // An answer does not come: the request may be made all the same, and late.
                if self.has_faults && self.once_in(4) && !matches!(decision.next(), Next::Read) {
                    decision.committed(Err(Failure::Away("no answer".into())));
                    if let Stage::Deciding(_, waits) = &mut work.stage {
                        *waits = Call::None;
                    }
                }
                Some(work)
            }
            Stage::Showing(revision) => {
                let shown = self.nodes[at].view.as_ref().is_some_and(|it| it.revision >= *revision);
                (!shown).then_some(work)
            }
        }
    }

    /// Whether the job is still there, and its target, as the source knows.
    fn is_wanted(&self, at: usize, work: &Work) -> bool {
        let Some(view) = &self.nodes[at].view else { return false };
        moves::copying(view, self.nodes[at].id, work.job)
            .is_some_and(|(_, attempt)| attempt == work.attempt)
    }

    /// The target takes some of what was sent. Returns false if the connection has ended.
    fn deliver(&mut self, work: &mut Work) -> bool {
        let to = self.nodes.iter().position(|node| node.id == work.attempt.target.id);
        let to = to.expect("it is there");
        let leads = self.leads(to);
        for _ in 0..self.rng.below(4) {
            let shard = self.nodes[to].shard;
            let mut imports = self.nodes[to].imports.iter_mut();
            let import = imports.find(|import| import.number == work.number && leads);
            let Some(import) = import else { return false };
            match work.link.pop_front() {
                Some(Message::Set(key, value)) => {
                    assert!(import.slots.contains(&key.0), "seed {}", self.seed);
                    self.data[shard].insert(key, value);
                }
                Some(Message::Delete(key)) => _ = self.data[shard].remove(&key),
                Some(Message::Prepare) => import.is_prepared = true,
                None => break,
            }
        }
        true
    }

    // ---- dropping copies, deleting all ------------------------------------------------------

    /// A primary drops what its jobs say, a slot at a time, and ends them.
    fn drop_copies(&mut self, at: usize) {
        if !self.leads(at) {
            return;
        }
        let node = &self.nodes[at];
        let (id, shard) = (node.id, node.shard);
        let view = node.view.clone().expect("it leads by it");
        let due = moves::tasks(&view, id).find(|job| job.phase() != MovePhase::Copying).cloned();
        let Some(job) = due else { return };
        // The work at it as a source has ended by then.
        if self.nodes[at].work.iter().any(|work| work.job == job.id) {
            return;
        }
        let own = view.topology.value.shard_of(id).expect("it is there").slots.clone();
        let mut left = used(&job.slots.without(&own));
        left.retain(|slot| self.data[shard].keys().any(|(of, _)| of == slot));
        match left.first() {
            Some(slot) => self.data[shard].retain(|(of, _), _| of != slot),
            None => {
                let finish = moves::finish(&view, job.id).expect("it is there");
                drop(self.etcd.commit(&finish));
            }
        }
    }

    /// A client deletes all keys of a shard, or waits until it may.
    fn flush(&mut self, at: usize) {
        if !self.leads(at) {
            return;
        }
        let node = &mut self.nodes[at];
        let (id, shard) = (node.id, node.shard);
        let waits = node.work.iter().any(Work::waits);
        if waits || node.imports.iter().any(|import| import.is_prepared) {
            node.is_awaited = true;
            return;
        }
        node.is_awaited = false;
        self.counts.flushes += 1;
        node.imports.clear();
        node.work.clear();
        let view = node.view.as_ref().expect("it leads by it");
        let own = view.topology.value.shard_of(id).expect("it is there").slots.clone();
        self.data[shard].clear();
        self.confirmed.retain(|(slot, _), _| !own.contains(*slot));
    }

    /// FLUSHALL, or another source, waits for one that does not decide: the target gives the copy
    /// up.
    fn give_up(&mut self, at: usize) {
        if !self.leads(at) || !self.nodes[at].is_awaited {
            return;
        }
        let prepared = self.nodes[at].imports.iter().find(|import| import.is_prepared);
        let Some(job) = prepared.map(|import| import.job) else { return };
        let Some(view) = self.read() else { return };
        let Some(transaction) = moves::give_up(&view, self.nodes[at].id, job) else { return };
        if matches!(self.etcd.commit(&transaction), Ok(Outcome::Done(_))) {
            self.counts.given_up += 1;
            self.nodes[at].imports.retain(|import| import.job != job);
        }
    }

    // ---- faults -----------------------------------------------------------------------------

    fn suffer(&mut self, at: usize) {
        match self.rng.below(12) {
            0..=3 => self.begin_job(),
            4 => self.cancel(at),
            5 => self.promote(at),
            6 => self.crash(at),
            7 => self.flush(at),
            8 => self.give_up(at),
            9 => self.etcd.is_down = self.once_in(2),
            10 => _ = self.nodes[at].work.pop_if(|work| !work.waits()),
            _ => self.etcd.is_down = false,
        }
    }

    fn begin_job(&mut self) {
        let Some(view) = self.read() else { return };
        let slots: BTreeSet<u16> =
            (0..1 + self.rng.index(3)).map(|_| USED[self.rng.index(USED.len())]).collect();
        let slots = Slots::from_fn(|slot| slots.contains(&slot));
        let from = self.rng.index(SHARDS);
        let to = self.rng.index(SHARDS);
        let holder = |shard: usize| view.topology.value.shards[shard].holder.id;
        let own = slots.within(&view.topology.value.shards[from].slots);
        if own.is_empty() || from == to {
            return;
        }
        let mut bytes = [0; 20];
        bytes[..8].copy_from_slice(&self.draw().to_le_bytes());
        let jobs = [(own, holder(to))];
        // It may still drop what it had of them before.
        if let Ok(transaction) = moves::begin(&view, holder(from), &jobs, 0, || Id::new(bytes)) {
            drop(self.etcd.commit(&transaction));
        }
    }

    fn cancel(&mut self, at: usize) {
        let Some(view) = self.read() else { return };
        if let Ok(transaction) = moves::cancel(&view, self.nodes[at].id) {
            let outcome = self.etcd.commit(&transaction);
            self.counts.cancelled += usize::from(matches!(outcome, Ok(Outcome::Done(_))));
        }
    }

    /// The replica of a shard becomes its primary.
    fn promote(&mut self, at: usize) {
        let Some(view) = self.read() else { return };
        let mut topology = view.topology.value.clone();
        let epoch = topology.take_epoch();
        let (id, incarnation) = (self.nodes[at].id, self.nodes[at].incarnation);
        let shard = topology.shard_of_mut(id).expect("it is there");
        if shard.holder.id == id {
            return;
        }
        shard.epoch = epoch;
        shard.holder = Holder { id, incarnation };
        self.counts.promotions += usize::from(self.change(&view, &topology));
    }

    /// A process ends, and another one begins.
    fn crash(&mut self, at: usize) {
        let node = &mut self.nodes[at];
        node.view = None;
        node.is_new = true;
        node.work.clear();
        node.imports.clear();
        node.is_awaited = false;
    }

    /// Faults stop, and jobs end.
    pub(crate) fn settle(&mut self) -> Counts {
        self.has_faults = false;
        self.etcd.is_down = false;
        let mut steps = 0;
        loop {
            self.run(50);
            steps += 1;
            let has_jobs = !self.truth().topology.value.moves.is_empty();
            let has_work = self.nodes.iter().any(|node| !node.work.is_empty());
            if !has_jobs && !has_work {
                break;
            }
            if steps % 20 == 0 {
                (0..self.nodes.len()).for_each(|at| self.give_up(at));
            }
            let jobs = &self.truth().topology.value.moves;
            assert!(steps < 2000, "seed {}: these do not end: {jobs:?}", self.seed);
        }
        let topology = self.truth().topology.value;
        for (at, shard) in topology.shards.iter().enumerate() {
            let own = |(slot, _): &Key| shard.slots.contains(*slot);
            let here: BTreeMap<Key, u64> =
                self.confirmed.iter().filter(|(key, _)| own(key)).map(|(k, v)| (*k, *v)).collect();
            assert_eq!(self.data[at], here, "seed {}: shard {at}", self.seed);
        }
        self.counts
    }
}

impl Work {
    /// Whether requests for its slots wait.
    fn waits(&self) -> bool {
        !matches!(self.stage, Stage::Copying(_))
    }
}

#[test]
fn slots_have_one_owner_that_knows_all_that_is_confirmed_on_any_seed() {
    let seeds = match crate::number("DUNLIN_SEED") {
        Some(seed) => seed..seed + 1,
        None => 1..1 + crate::number("DUNLIN_SEEDS").unwrap_or(100),
    };
    let mut total = Counts::default();
    for seed in seeds.clone() {
        let mut world = World::new(seed);
        world.run(4000);
        total.add(&world.settle());
    }
    println!("{total:?}");
    if seeds.count() >= 100 {
        // The test tests something only if all of it happens.
        let Counts { confirmed, given, kept, cancelled, restarts, .. } = total;
        assert!(confirmed > 10_000 && given > 200 && kept > 20 && cancelled > 50);
        assert!(restarts > given && total.promotions > 200);
        assert!(total.flushes > 50 && total.given_up > 2 && total.fences > 5);
    }
}

impl Counts {
    fn add(&mut self, other: &Counts) {
        self.confirmed += other.confirmed;
        self.given += other.given;
        self.kept += other.kept;
        self.cancelled += other.cancelled;
        self.restarts += other.restarts;
        self.promotions += other.promotions;
        self.flushes += other.flushes;
        self.given_up += other.given_up;
        self.fences += other.fences;
    }
}

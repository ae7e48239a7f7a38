//! All orders of a job that moves a slot: two shards of two copies each, of which the first has the
//! slot and one key in it. Clients write, the operator cancels, primaries change and processes end,
//! connections break, the target gives a copy up, transactions arrive late or after their sender
//! has given them up.
//!
//! The transactions and the decision are those of the product; what a server does between them
//! (`server/src/cluster/moves/job.rs`) is told again here, a step at a time, as in
//! `simulation/moving.rs`. The copies of a shard share their keys: each write is on both before it
//! is confirmed, which `fail_over.rs` has. In each state must hold:
//! - who answers for the slot knows what was confirmed last;
//! - the slot has one owner;
//! - where nothing more can happen, the owner has what was confirmed, and no other shard.
//!
//! `DUNLIN_MODEL_LOSSES` says how many transactions are given up by their senders beside the other
//! events (0).

use crate::{Held, Items, REVISIONS, Words, address, commit, id, view};
use cluster::change::moves::decision::{Decision, Next};
use cluster::change::moves::{self, Attempt};
use cluster::coordinator::{Failure, Outcome, Revision, Transaction};
use cluster::id::{Epoch, Id, Incarnation};
use cluster::slots::Slots;
use cluster::topology::{Holder, Move, MovePhase, Replica, Shard, Topology};
use cluster::view::{Keys, View, plan};
use stateright::{Checker, Model, Property};
use std::collections::VecDeque;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::Arc;

const SHARDS: usize = 2;
const COPIES: usize = 2;
const DATABASE: Id = Id::new([9; 20]);
const JOB: Id = Id::new([50; 20]);
const SLOT: u16 = 10;

/// How often the source connects at most.
const CONNECTIONS: u8 = 3;

/// What the source sends.
#[derive(Clone, Copy, Hash, Debug)]
enum Message {
    Set(u8),
    Prepare,
}

/// What is read at one revision. A view's own hash is its revision, which is none of what it says.
#[derive(Debug)]
struct Seen {
    view: View,
    digest: u64,
}

impl Seen {
    fn new(view: View) -> Arc<Seen> {
        let mut hasher = DefaultHasher::new();
        view.topology.value.encode().hash(&mut hasher);
        Arc::new(Seen { view, digest: hasher.finish() | 1 << 63 })
    }
}

impl Hash for Seen {
    fn hash<H: Hasher>(&self, hasher: &mut H) {
        (self.view.topology.revision, self.digest).hash(hasher);
    }
}

/// A call to the coordinator, or its reply. A request without a transaction reads.
#[derive(Clone, Debug)]
enum Call {
    Request(Option<Held>),
    Committed(Outcome),
    Read(Arc<Seen>),
}

/// Where the work at a job is.
#[derive(Clone, Debug)]
enum Stage {
    Copying {
        is_taken: bool,
    },
    /// All is taken, and requests for the slot wait.
    Pausing,
    Deciding(Box<Decision>, Option<Call>),
    /// Until clients see this revision.
    Showing(Revision),
}

#[derive(Clone, Debug)]
struct Work {
    job: Id,
    attempt: Attempt,
    /// The number of the connection at the target.
    number: u8,
    link: VecDeque<Message>,
    stage: Stage,
}

impl Work {
    fn waits(&self) -> bool {
        !matches!(self.stage, Stage::Copying { .. })
    }
}

/// A connection that brings a copy.
#[derive(Clone, Copy, Hash, Debug)]
struct Import {
    job: Id,
    number: u8,
    is_prepared: bool,
}

/// A copy's process.
#[derive(Clone, Debug, Default)]
struct Node {
    view: Option<Arc<Seen>>,
    /// Its process has just begun.
    is_new: bool,
    work: Option<Work>,
    import: Option<Import>,
}

/// What may still happen.
#[derive(Clone, Copy, Hash, Debug, Default)]
struct Left {
    writes: u8,
    cancels: u8,
    promotions: u8,
    crashes: u8,
    breaks: u8,
    give_ups: u8,
    losses: u8,
}

#[derive(Clone, Debug)]
struct State {
    items: Arc<Items>,
    revision: Revision,
    /// What the items say.
    truth: Arc<Seen>,
    nodes: Vec<Node>,
    /// What each shard has of the key.
    data: [Option<u8>; SHARDS],
    confirmed: u8,
    connections: u8,
    /// A node has answered without what was confirmed.
    is_wrong: bool,
    /// Transactions whose senders believe that they have failed.
    late: Vec<Held>,
    left: Left,
}

/// See [`Words`].
impl PartialEq for State {
    fn eq(&self, other: &State) -> bool {
        self.words() == other.words()
    }
}

impl Hash for State {
    fn hash<H: Hasher>(&self, hasher: &mut H) {
        self.words().hash(hasher);
    }
}

/// What happens next.
#[derive(Clone, Copy, PartialEq, Debug)]
enum Event {
    /// A node reads the newest view.
    Refresh(usize),
    /// A client reads the key and writes it.
    Write(usize),
    /// The source connects to the target.
    Connect(usize),
    /// It does its next step at the job.
    Work(usize),
    /// The target takes a message.
    Deliver(usize),
    /// A call arrives at the coordinator.
    Arrive(usize),
    /// Its reply comes.
    Reply(usize),
    /// The sender gives it up. The transaction was made, or may be made later.
    Lose(usize),
    ArriveLate(usize),
    /// A primary drops what a job leaves behind, or ends the job.
    Clear(usize),
    Cancel,
    Promote(usize),
    Crash(usize),
    Break(usize),
    /// The target gives a copy up that its source was about to hand over, because FLUSHALL or
    /// another source waits.
    GiveUp(usize),
}

fn keys() -> Keys {
    Keys::new("moves")
}

fn shard_of(node: usize) -> usize {
    node / COPIES
}

/// The target of an attempt.
fn target_of(attempt: &Attempt) -> usize {
    (0..SHARDS * COPIES).find(|&at| id(at) == attempt.target.id).expect("it is there")
}

impl State {
    fn first(left: Left) -> State {
        let shard = |at: usize| {
            let copies = (at * COPIES..(at + 1) * COPIES).map(|node| Replica {
                id: id(node),
                address: address(node),
                member: Some(Incarnation(1)),
                is_never_promoted: false,
            });
            let first = at * COPIES;
            let shard = Shard::new(id(first), address(first), Incarnation(1));
            let slots = Slots::from_fn(|slot| usize::from(slot) / 8192 == at);
            Shard { id: id(100 + at), slots, copies: copies.collect(), epoch: Epoch(1), ..shard }
        };
        let mut topology = Topology::planned(COPIES, (0..SHARDS).map(shard).collect());
        topology.epoch = Epoch(1);
        let slots = Slots::from_fn(|slot| slot == SLOT);
        topology.moves.push(Move::new(JOB, &slots, (id(100), id(101)), 0));
        let (mut items, mut revision) = (Arc::default(), REVISIONS);
        commit(&mut items, &mut revision, &plan(&keys(), DATABASE, &topology));
        let truth = Seen::new(view(&keys(), DATABASE, &items, revision));
        let node = Node { view: Some(Arc::clone(&truth)), ..Node::default() };
        State {
            items,
            revision,
            truth,
            nodes: vec![node; SHARDS * COPIES],
            data: [Some(0), None],
            confirmed: 0,
            connections: 0,
            is_wrong: false,
            late: Vec::new(),
            left,
        }
    }

    fn words(&self) -> Vec<u64> {
        let mut words = Words::default();
        let State { items, revision, nodes, data, confirmed, .. } = self;
        (items, revision, data, confirmed, self.connections, self.is_wrong).hash(&mut words);
        (&self.late, self.left).hash(&mut words);
        for node in nodes {
            (node.is_new, node.import, &node.view, &node.work).hash(&mut words);
        }
        words.ranked()
    }

    fn commit(&mut self, transaction: &Transaction) -> Outcome {
        let made = commit(&mut self.items, &mut self.revision, transaction);
        if made != Outcome::Conflict {
            self.truth = Seen::new(view(&keys(), DATABASE, &self.items, self.revision));
        }
        made
    }

    fn owner(&self) -> usize {
        let owns = |shard: &Shard| shard.slots.contains(SLOT);
        self.truth.view.topology.value.shards.iter().position(owns).expect("it has one")
    }

    /// What a node knows.
    fn known(&self, at: usize) -> Option<&View> {
        self.nodes[at].view.as_ref().map(|seen| &seen.view)
    }

    /// Whether a node leads its shard, as it knows, and as its copies let it: they refuse an epoch
    /// that is over.
    fn leads(&self, at: usize) -> bool {
        let epoch = |view: &View| -> Option<Epoch> {
            let shard = view.topology.value.shard_of(id(at))?;
            (shard.holder.id == id(at)).then_some(shard.epoch)
        };
        let known = self.known(at).and_then(epoch);
        known.is_some() && epoch(&self.truth.view) == known
    }

    /// Whether a node answers a client.
    fn answers(&self, at: usize) -> bool {
        let node = &self.nodes[at];
        let owns = |view: &View| {
            let shard = view.topology.value.shard_of(id(at));
            shard.is_some_and(|shard| shard.slots.contains(SLOT))
        };
        let waits = node.work.as_ref().is_some_and(Work::waits);
        self.leads(at) && !waits && self.known(at).is_some_and(owns)
    }

    /// The attempt that a node can begin. While the source of a copy is about to hand the slot
    /// over, its target takes no other connection.
    fn connectable(&self, at: usize) -> Option<(Id, Attempt)> {
        let prepared = |to: usize| self.nodes[to].import.is_some_and(|import| import.is_prepared);
        self.attemptable(at).filter(|(_, attempt)| !prepared(target_of(attempt)))
    }

    /// Whether a source waits until a target has given a copy up.
    fn is_awaited(&self, to: usize) -> bool {
        let targets = (0..self.nodes.len()).filter_map(|at| self.attemptable(at));
        targets.map(|(_, attempt)| target_of(&attempt)).any(|target| target == to)
    }

    /// The attempt that a node begins if its target expects it.
    fn attemptable(&self, at: usize) -> Option<(Id, Attempt)> {
        let view = self.known(at).filter(|_| self.nodes[at].work.is_none())?;
        let job = moves::tasks(view, id(at)).find(|job| job.phase() == MovePhase::Copying)?;
        let (job, attempt) = moves::copying(view, id(at), job.id)?;
        let to = target_of(&attempt);
        let expects = |view: &View| {
            let topology = &view.topology.value;
            let is_copied = |it: &Move| it.id == job.id && it.phase() == MovePhase::Copying;
            topology.dropped_by(job.to, &job.slots).is_none()
                && topology.moves.iter().any(is_copied)
        };
        let is_expected = self.leads(to) && self.known(to).is_some_and(expects);
        is_expected.then_some((job.id, attempt))
    }

    /// Whether the job is still there, and its target, as the source knows.
    fn is_wanted(&self, at: usize, work: &Work) -> bool {
        let Some(view) = self.known(at) else { return false };
        moves::copying(view, id(at), work.job).is_some_and(|(_, attempt)| attempt == work.attempt)
    }

    /// The job whose leavings a node has to drop.
    fn clearable(&self, at: usize) -> Option<Move> {
        let view = self.known(at).filter(|_| self.leads(at))?;
        let job = moves::tasks(view, id(at)).find(|job| job.phase() != MovePhase::Copying)?;
        let works = self.nodes[at].work.as_ref().is_some_and(|work| work.job == job.id);
        (!works).then(|| job.clone())
    }

    fn events(&self) -> Vec<Event> {
        let mut events = Vec::new();
        for (at, node) in self.nodes.iter().enumerate() {
            self.events_of(at, node, &mut events);
            if let Some(work) = &node.work {
                self.events_of_work(at, work, &mut events);
            }
        }
        if self.left.cancels > 0 {
            events.push(Event::Cancel);
        }
        events.extend((0..self.late.len()).map(Event::ArriveLate));
        events
    }

    fn events_of(&self, at: usize, node: &Node, events: &mut Vec<Event>) {
        let left = &self.left;
        let holder = |view: &View| view.topology.value.shards[shard_of(at)].holder.id;
        let is_holder = holder(&self.truth.view) == id(at);
        // What a replica knows changes nothing as long as it is one.
        let is_old = |view: &View| {
            let is_late = view.topology.revision < self.truth.view.topology.revision;
            is_late && (is_holder || holder(view) == id(at))
        };
        let has_prepared = node.import.is_some_and(|import| import.is_prepared);
        let may_give_up = || left.give_ups > 0 || self.is_awaited(at);
        for (may_be, event) in [
            (self.known(at).is_none_or(is_old), Event::Refresh(at)),
            (left.writes > 0 && self.answers(at), Event::Write(at)),
            (self.connectable(at).is_some(), Event::Connect(at)),
            (self.clearable(at).is_some(), Event::Clear(at)),
            (left.promotions > 0 && !is_holder, Event::Promote(at)),
            (left.crashes > 0 && is_holder && node.view.is_some(), Event::Crash(at)),
            (has_prepared && self.leads(at) && may_give_up(), Event::GiveUp(at)),
        ] {
            if may_be {
                events.push(event);
            }
        }
    }

    fn events_of_work(&self, at: usize, work: &Work, events: &mut Vec<Event>) {
        if !work.link.is_empty() {
            events.push(Event::Deliver(at));
        }
        match &work.stage {
            Stage::Copying { .. } | Stage::Pausing => {
                if !work.waits() || work.link.is_empty() {
                    events.push(Event::Work(at));
                }
                if self.left.breaks > 0 {
                    events.push(Event::Break(at));
                }
            }
            Stage::Deciding(_, None) => events.push(Event::Work(at)),
            Stage::Deciding(_, Some(call)) => {
                let is_request = matches!(call, Call::Request(_));
                events.push(if is_request { Event::Arrive(at) } else { Event::Reply(at) });
                let reads = matches!(call, Call::Request(None) | Call::Read(_));
                if self.left.losses > 0 && !reads {
                    events.push(Event::Lose(at));
                }
            }
            Stage::Showing(_) => {}
        }
    }

    fn apply(&mut self, event: Event) {
        match event {
            Event::Refresh(at) => self.refresh(at),
            Event::Write(at) => self.write(at),
            Event::Connect(at) => self.connect(at),
            Event::Work(at) => self.work(at),
            Event::Deliver(at) => self.deliver(at),
            Event::Arrive(at) => self.arrive(at),
            Event::Reply(at) => {
                let Some((decision, call)) = self.decision(at) else { return };
                match call.take() {
                    Some(Call::Committed(outcome)) => decision.committed(Ok(outcome)),
                    Some(Call::Read(seen)) => decision.read(seen.view.clone()),
                    other => *call = other,
                }
            }
            Event::Lose(at) => self.lose(at),
            Event::ArriveLate(at) => {
                let Held(transaction) = self.late.remove(at);
                self.commit(&transaction);
            }
            Event::Clear(at) => self.clear(at),
            Event::Cancel => {
                self.left.cancels -= 1;
                let holder = self.truth.view.topology.value.shards[0].holder.id;
                if let Ok(cancelled) = moves::cancel(&self.truth.view, holder) {
                    self.commit(&cancelled);
                }
            }
            Event::Promote(at) => {
                self.left.promotions -= 1;
                self.lead(at);
            }
            Event::Crash(at) => self.crash(at),
            Event::Break(at) => {
                self.left.breaks -= 1;
                self.nodes[at].work = None;
            }
            Event::GiveUp(at) => self.give_up(at),
        }
    }

    fn lose(&mut self, at: usize) {
        self.left.losses -= 1;
        let Some((decision, call)) = self.decision(at) else { return };
        decision.committed(Err(Failure::Away("no answer".into())));
        if let Some(Call::Request(sent)) = call.take() {
            self.late.extend(sent);
        }
    }

    /// A process ends, and another one begins. What it has sent arrives.
    fn crash(&mut self, at: usize) {
        self.left.crashes -= 1;
        let node = std::mem::take(&mut self.nodes[at]);
        self.nodes[at].is_new = true;
        let Some(Work { stage: Stage::Deciding(_, Some(Call::Request(sent))), .. }) = node.work
        else {
            return;
        };
        self.late.extend(sent);
    }

    fn give_up(&mut self, at: usize) {
        if !self.is_awaited(at) {
            self.left.give_ups -= 1;
        }
        let Some(Import { job, .. }) = self.nodes[at].import else { return };
        if let Some(given_up) = moves::give_up(&self.truth.view, id(at), job) {
            self.commit(&given_up);
            self.nodes[at].import = None;
        }
    }

    /// A node leads its shard from now on, in an epoch of its own.
    fn lead(&mut self, at: usize) {
        let mut topology = self.truth.view.topology.value.clone();
        let epoch = topology.take_epoch();
        let shard = topology.shard_of_mut(id(at)).expect("it is there");
        shard.epoch = epoch;
        shard.holder = Holder { id: id(at), incarnation: Incarnation(1) };
        let led = self.truth.view.replace(&topology);
        self.commit(&led);
    }

    fn refresh(&mut self, at: usize) {
        let seen = Arc::clone(&self.truth);
        let view = &seen.view;
        let own = view.topology.value.shard_of(id(at)).expect("it is there");
        let is_holder = own.holder.id == id(at);
        if std::mem::take(&mut self.nodes[at].is_new) && is_holder {
            return self.lead(at);
        }
        let is_for = |import: &Import| {
            view.topology.value.moves.iter().any(|job| {
                let is_copied = job.id == import.job && job.phase() == MovePhase::Copying;
                is_copied && job.to == own.id && is_holder
            })
        };
        // A connection for a job that copies no more brings nothing.
        self.nodes[at].import = self.nodes[at].import.filter(is_for);
        self.nodes[at].view = Some(seen);
        self.show(at);
    }

    /// Ends work whose outcome clients can see.
    fn show(&mut self, at: usize) {
        let known = self.known(at).map_or(0, |view| view.revision);
        self.nodes[at].work.take_if(|work| matches!(work.stage, Stage::Showing(it) if it <= known));
    }

    fn write(&mut self, at: usize) {
        self.left.writes -= 1;
        let own = &mut self.data[shard_of(at)];
        self.is_wrong |= *own != Some(self.confirmed);
        self.confirmed += 1;
        *own = Some(self.confirmed);
        if let Some(Work { stage: Stage::Copying { is_taken: true }, link, .. }) =
            &mut self.nodes[at].work
        {
            link.push_back(Message::Set(self.confirmed));
        }
    }

    fn connect(&mut self, at: usize) {
        let Some((job, attempt)) = self.connectable(at) else { return };
        self.connections += 1;
        let (to, number) = (target_of(&attempt), self.connections);
        self.data[shard_of(to)] = None;
        self.nodes[to].import = Some(Import { job, number, is_prepared: false });
        let stage = Stage::Copying { is_taken: false };
        self.nodes[at].work = Some(Work { job, attempt, number, link: VecDeque::new(), stage });
    }

    /// The source does its next step, unless the attempt is over.
    fn work(&mut self, at: usize) {
        let Some(mut work) = self.nodes[at].work.take() else { return };
        let decides = matches!(work.stage, Stage::Deciding(..));
        if !decides && !self.is_wanted(at, &work) {
            return;
        }
        match &mut work.stage {
            Stage::Copying { is_taken } if !*is_taken => {
                *is_taken = true;
                work.link.extend(self.data[shard_of(at)].map(Message::Set));
            }
            Stage::Copying { .. } => {
                work.link.push_back(Message::Prepare);
                work.stage = Stage::Pausing;
            }
            Stage::Pausing => {
                let view = self.known(at).cloned().expect("the job is wanted by it");
                let decision = Decision::new(view, id(at), work.job, work.attempt);
                work.stage = Stage::Deciding(Box::new(decision), None);
            }
            Stage::Deciding(decision, call) => match decision.next() {
                Next::Commit(transaction) => *call = Some(Call::Request(Some(Held(transaction)))),
                Next::Read => *call = Some(Call::Request(None)),
                Next::Given(revision) | Next::Kept(revision) => {
                    work.stage = Stage::Showing(revision);
                }
            },
            Stage::Showing(_) => {}
        }
        self.nodes[at].work = Some(work);
        self.show(at);
    }

    /// The target takes a message. A connection that it does not know any more has ended.
    fn deliver(&mut self, at: usize) {
        let Some(mut work) = self.nodes[at].work.take() else { return };
        let to = target_of(&work.attempt);
        let is_known = self.leads(to) && self.is_wanted(at, &work);
        let import = self.nodes[to].import.as_mut();
        let import = import.filter(|import| import.number == work.number && is_known);
        let Some(import) = import else { return };
        match work.link.pop_front() {
            Some(Message::Set(value)) => self.data[shard_of(to)] = Some(value),
            Some(Message::Prepare) => import.is_prepared = true,
            None => {}
        }
        self.nodes[at].work = Some(work);
    }

    fn decision(&mut self, at: usize) -> Option<(&mut Decision, &mut Option<Call>)> {
        match &mut self.nodes[at].work.as_mut()?.stage {
            Stage::Deciding(decision, call) => Some((decision, call)),
            _ => None,
        }
    }

    fn arrive(&mut self, at: usize) {
        let Some((_, call)) = self.decision(at) else { return };
        let Some(Call::Request(sent)) = call.take() else { return };
        let reply = match sent {
            Some(Held(transaction)) => Call::Committed(self.commit(&transaction)),
            None => Call::Read(Arc::clone(&self.truth)),
        };
        if let Some((_, call)) = self.decision(at) {
            *call = Some(reply);
        }
    }

    fn clear(&mut self, at: usize) {
        let Some(job) = self.clearable(at) else { return };
        let view = self.known(at).expect("it leads by it");
        let own = view.topology.value.shard_of(id(at)).expect("it is there");
        let is_own = own.slots.contains(SLOT);
        let finish = moves::finish(view, job.id).expect("it is there");
        if !is_own && self.data[shard_of(at)].take().is_some() {
            return;
        }
        self.commit(&finish);
    }

    /// The owner has what was confirmed, no other shard has it, and no job is left.
    fn is_settled(&self) -> bool {
        let mut wanted = [None; SHARDS];
        wanted[self.owner()] = Some(self.confirmed);
        self.data == wanted && self.truth.view.topology.value.moves.is_empty()
    }
}

impl Hash for Work {
    fn hash<H: Hasher>(&self, hasher: &mut H) {
        let Work { job, attempt, number, link, stage } = self;
        let Attempt { source_epoch, target, target_epoch, given_up } = attempt;
        (job, source_epoch, target, target_epoch, given_up, number, link).hash(hasher);
        match stage {
            Stage::Copying { is_taken } => (0, is_taken).hash(hasher),
            Stage::Pausing => 1.hash(hasher),
            Stage::Showing(revision) => (2, revision).hash(hasher),
            Stage::Deciding(decision, call) => {
                // What it says decides what is next.
                decision.view().topology.revision.hash(hasher);
                match decision.next() {
                    Next::Commit(transaction) => (3, Held(transaction)).hash(hasher),
                    Next::Read => 4.hash(hasher),
                    Next::Given(revision) => (5, revision).hash(hasher),
                    Next::Kept(revision) => (6, revision).hash(hasher),
                }
                match call {
                    None => 0.hash(hasher),
                    Some(Call::Request(sent)) => (1, sent).hash(hasher),
                    Some(Call::Committed(Outcome::Done(revision))) => (2, revision).hash(hasher),
                    Some(Call::Committed(_)) => 3.hash(hasher),
                    Some(Call::Read(seen)) => (4, seen).hash(hasher),
                }
            }
        }
    }
}

/// What may happen from here on.
struct Moving(State);

impl Model for Moving {
    type State = State;
    type Action = Event;

    fn init_states(&self) -> Vec<State> {
        vec![self.0.clone()]
    }

    fn actions(&self, state: &State, actions: &mut Vec<Event>) {
        actions.extend(state.events());
    }

    fn next_state(&self, state: &State, event: Event) -> Option<State> {
        let mut next = state.clone();
        next.apply(event);
        Some(next)
    }

    /// Two primaries of the source, of which one does not know that it is deposed, can take the
    /// connection from each other for ever.
    fn within_boundary(&self, state: &State) -> bool {
        state.connections <= CONNECTIONS
    }

    fn properties(&self) -> Vec<Property<Moving>> {
        vec![
            Property::always("who answers knows what was confirmed", |_, state: &State| {
                !state.is_wrong
            }),
            Property::always("the slot has one owner", |_, state: &State| {
                let shards = &state.truth.view.topology.value.shards;
                shards.iter().filter(|shard| shard.slots.contains(SLOT)).count() == 1
            }),
            Property::always("jobs end with the keys at the owner", |_, state: &State| {
                !state.events().is_empty() || state.is_settled()
            }),
            Property::sometimes("the slot moves, and is written there", |_, state: &State| {
                state.owner() == 1 && state.is_settled() && state.confirmed > 0
            }),
            Property::sometimes(
                "a cancelled job ends, and the slot stays",
                |model, state: &State| {
                    model.0.left.cancels == 0 || state.owner() == 0 && state.is_settled()
                },
            ),
        ]
    }
}

fn check(left: Left) {
    let losses = std::env::var("DUNLIN_MODEL_LOSSES");
    let more: u8 = losses.map_or(0, |text| text.parse().expect("a number"));
    let left = Left { losses: left.losses + more, writes: 2, ..left };
    let checker = Moving(State::first(left)).checker().threads(2).spawn_dfs().join();
    println!("{} states", checker.unique_state_count());
    checker.assert_properties();
}

#[test]
fn no_order_of_a_move_with_a_lost_transaction_and_a_cancellation_loses_a_write() {
    check(Left { losses: 1, cancels: 1, ..Left::default() });
}

#[test]
fn no_order_of_a_move_while_primaries_change_loses_a_write() {
    check(Left { promotions: 1, ..Left::default() });
}

#[test]
fn no_order_of_a_move_while_processes_end_and_connections_break_loses_a_write() {
    check(Left { crashes: 1, breaks: 1, ..Left::default() });
}

#[test]
fn no_order_of_a_move_that_its_target_gives_up_loses_a_write() {
    check(Left { losses: 1, give_ups: 1, ..Left::default() });
}

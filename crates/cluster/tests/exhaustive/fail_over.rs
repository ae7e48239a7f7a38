//! All orders of a small fail-over and of a planned switch: three copies of one shard with a quorum
//! of two, whose leases end, whose transactions arrive late or after their sender has given them up,
//! and one of which writes. Each state that can be reached with a few such events is visited
//! (`stateright`).
//!
//! The decisions are those of servers ([`Copy`]). Time stands still but for lost calls: all times to
//! wait are over, so nothing here is safe because of a clock. In each state must hold:
//! - the primary that the topology names has every write that was confirmed;
//! - as long as no lease has ended, at most one copy believes to be alone.
//!
//! `DUNLIN_MODEL_LOSSES` says how many transactions are given up by their senders during the
//! fail-over (0).

use crate::{Held, Items, REVISIONS, Words, address, id};
use cluster::Moment;
use cluster::change;
use cluster::coordinator::{
    Change, LeaseCall, LeaseId, LeaseReply, Outcome, Revision, Transaction,
};
use cluster::copy::{Action, Call, Copy, Facts, Role, Settings};
use cluster::id::{Epoch, Id, Incarnation, Position};
use cluster::slots::Slots;
use cluster::topology::{Holder, Shard, Topology};
use cluster::view::{Keys, View, plan};
use stateright::{Checker, Model, Property};
use std::hash::{Hash, Hasher};
use std::sync::Arc;

const COPIES: usize = 3;
const QUORUM: usize = 2;
const DATABASE: Id = Id::new([9; 20]);
const LEASE: Moment = Moment::from_secs(4);

/// A copy's leases are numbered from its number times this.
const LEASES: LeaseId = 100;

/// An entry of a copy's stream: the epoch in which it was written, and its number there. 0 begins
/// the epoch.
type Entry = (u64, u8);

#[derive(Clone, Hash, Debug)]
struct Node {
    copy: Copy,
    /// What it read last. A view's own hash is its revision.
    seen: Arc<Items>,
    /// Leases that it was granted, and whether the newest one lives.
    leases: LeaseId,
    has_lease: bool,
    incarnation: u64,
    log: Vec<Entry>,
    frozen: Option<Epoch>,
    /// A transaction whose outcome it waits for.
    sent: Option<Held>,
}

/// What may still happen.
#[derive(Clone, Copy, Hash, Debug)]
struct Left {
    expiries: u8,
    losses: u8,
    switches: u8,
    writes: u8,
    epochs: u64,
}

#[derive(Clone, Debug)]
struct State {
    now: Moment,
    items: Arc<Items>,
    revision: Revision,
    /// What the topology among the items says.
    named: (Epoch, Holder),
    nodes: Vec<Node>,
    /// Transactions whose senders believe that they have failed.
    late: Vec<Held>,
    /// Writes that were confirmed.
    confirmed: Vec<Entry>,
    left: Left,
}

/// States are one if they differ in the numbers of revisions alone, in the same order: revisions
/// are compared with each other, and a new one is greater than all.
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
    /// A copy does what is due.
    Step(usize),
    /// Its transaction takes effect, or is refused.
    Arrive(usize),
    /// The copy gives up waiting. The transaction may take effect later.
    Lose(usize),
    /// A lost transaction takes effect, or is refused.
    ArriveLate(usize),
    /// Its lease ends.
    Expire(usize),
    /// An operator asks that the copy becomes the primary.
    Switch(usize),
    /// It hears of that, or of any change, and reads.
    Hear(usize),
    Write(usize),
    /// The second takes the stream of the first and acknowledges it.
    Follow(usize, usize),
}

fn is_leading(node: &Node) -> bool {
    matches!(node.copy.role(), Role::Leads(_))
}

fn keys() -> Keys {
    Keys::new("model")
}

impl State {
    /// All three are members, and the first one leads.
    fn first(left: Left) -> State {
        let copies = (0..COPIES).map(|at| (id(at), address(at))).collect();
        let mut shard = Shard::planned(DATABASE, Slots::from_fn(|_| true), copies).expect("copies");
        shard.epoch = Epoch(1);
        shard.holder = Holder { id: id(0), incarnation: Incarnation(1) };
        shard.fence = COPIES - QUORUM + 1;
        shard.copies.iter_mut().for_each(|copy| copy.member = Some(Incarnation(1)));
        let named = (shard.epoch, shard.holder);
        let topology = Topology { epoch: Epoch(1), ..Topology::planned(QUORUM, vec![shard]) };
        let mut state = State {
            now: Moment::ZERO,
            items: Arc::default(),
            revision: REVISIONS,
            named,
            nodes: Vec::new(),
            late: Vec::new(),
            confirmed: Vec::new(),
            left,
        };
        state.commit(&plan(&keys(), DATABASE, &topology));
        let settings = Settings {
            ttl: LEASE,
            retry: Moment::ZERO,
            grace: Moment::ZERO,
            comeback: Moment::ZERO,
            promise: Moment::ZERO,
            // It lapses never.
            switch: LEASE,
        };
        for at in 0..COPIES {
            let copy = Copy::new(id(at), Incarnation(1), settings);
            let log = vec![(1, 0)];
            let node = Node {
                copy,
                seen: Arc::default(),
                leases: 0,
                has_lease: false,
                incarnation: 1,
                log,
                frozen: None,
                sent: None,
            };
            state.nodes.push(node);
        }
        // They register and take their roles.
        for _ in 0..8 {
            for at in 0..COPIES {
                state.hear(at);
                // One that reads decides nothing.
                state.step(at);
                state.step(at);
                if state.nodes[at].sent.is_some() {
                    state.arrive(at);
                }
            }
        }
        let (epoch, _) = state.named;
        state.nodes.iter_mut().for_each(|node| node.log = vec![(epoch.0, 0)]);
        assert_eq!(state.nodes[0].copy.role(), Role::Leads(epoch), "the first one leads");
        // A process that has just been started takes no part for two seconds.
        state.now = Moment::from_secs(3);
        for at in 0..COPIES {
            state.hear(at);
            state.step(at);
            let role = state.nodes[at].copy.role();
            assert!(matches!(role, Role::Leads(_) | Role::Follows(..)), "{at}: {role:?}");
        }
        state.left.epochs += epoch.0;
        state
    }

    fn words(&self) -> Vec<u64> {
        let State { now, items, revision, named: _, nodes, late, confirmed, left } = self;
        let mut words = Words::default();
        (now, items, revision, nodes, late, confirmed, left).hash(&mut words);
        words.ranked()
    }

    fn view(&self) -> View {
        crate::view(&keys(), DATABASE, &self.items, self.revision)
    }

    fn is_living(&self, lease: LeaseId) -> bool {
        let node = &self.nodes[(lease / LEASES) as usize];
        node.has_lease && node.leases == lease % LEASES
    }

    fn commit(&mut self, transaction: &Transaction) -> Outcome {
        let has_ended = |change: &Change| match change {
            Change::Put { lease: Some(lease), .. } => !self.is_living(*lease),
            _ => false,
        };
        if transaction.changes.iter().any(has_ended) {
            return Outcome::Conflict;
        }
        let made = crate::commit(&mut self.items, &mut self.revision, transaction);
        if made != Outcome::Conflict {
            let topology = self.view().topology.value;
            self.named = (topology.shards[0].epoch, topology.shards[0].holder);
        }
        made
    }

    fn facts(&self, at: usize) -> Facts {
        let node = &self.nodes[at];
        let position = |log: &Vec<Entry>| Position {
            epoch: Epoch(log.last().map_or(0, |entry| entry.0)),
            offset: log.len() as u64,
        };
        let is_listed = match node.copy.role() {
            Role::Follows(holder, epoch) => self.nodes.iter().any(|other| {
                other.copy.myself() == holder && other.copy.role() == Role::Leads(epoch)
            }),
            _ => false,
        };
        // Who follows this copy in its epoch, and has all of its stream.
        let (mut linked, mut level) = (Vec::new(), Vec::new());
        if let Role::Leads(epoch) = node.copy.role() {
            let follows = Role::Follows(node.copy.myself(), epoch);
            let followers = || self.nodes.iter().filter(|other| other.copy.role() == follows);
            linked.extend(followers().map(|other| other.copy.myself().id));
            let levelled = followers().filter(|other| other.log == node.log);
            level.extend(levelled.map(|other| other.copy.myself()));
        }
        let holding = if is_leading(node) { 1 + level.len() } else { 0 };
        Facts {
            position: position(&node.log),
            is_whole: true,
            frozen: node.frozen,
            is_listed,
            holding,
            linked,
            level,
            ..Facts::default()
        }
    }

    fn step(&mut self, at: usize) {
        let (now, facts) = (self.now, self.facts(at));
        for action in self.nodes[at].copy.step(now, &facts) {
            match action {
                Action::Lease(call) => {
                    let reply = match call {
                        LeaseCall::Renew(lease) if !self.is_living(lease) => LeaseReply::Gone,
                        LeaseCall::Renew(id) => LeaseReply::Held { id, ttl: LEASE },
                        LeaseCall::Grant(_) | LeaseCall::Revoke(_) => {
                            let node = &mut self.nodes[at];
                            (node.leases, node.has_lease) = (node.leases + 1, true);
                            let id = at as LeaseId * LEASES + node.leases;
                            LeaseReply::Held { id, ttl: LEASE }
                        }
                    };
                    self.nodes[at].copy.lease_replied(now, now, reply);
                }
                Action::Read => {
                    // It shows all changes that the copy has heard of.
                    let (view, sent) = (self.view(), now + Moment::from_millis(1));
                    self.nodes[at].seen = Arc::clone(&self.items);
                    self.nodes[at].copy.read(now, sent, Some(view));
                }
                Action::Commit(transaction) => self.nodes[at].sent = Some(Held(transaction)),
                Action::Freeze(epoch) => {
                    self.nodes[at].frozen = self.nodes[at].frozen.max(Some(epoch));
                }
                Action::Lead(epoch) => self.nodes[at].log.push((epoch.0, 0)),
                Action::Follow(..) | Action::Ask(_) => {}
            }
        }
    }

    fn arrive(&mut self, at: usize) {
        let Some(Held(transaction)) = self.nodes[at].sent.take() else { return };
        let outcome = self.commit(&transaction);
        self.nodes[at].copy.committed(self.now, outcome);
    }

    fn hear(&mut self, at: usize) {
        let now = self.now;
        let node = &mut self.nodes[at];
        let lease = node.copy.lease();
        node.copy.changed(now);
        if lease.is_some_and(|lease| !self.is_living(lease)) {
            self.nodes[at].copy.lease_replied(now, now, LeaseReply::Gone);
        }
    }

    /// The copy takes all of its primary's stream, and its acknowledgement counts at once.
    fn follow(&mut self, primary: usize, at: usize) {
        let stream = self.nodes[primary].log.clone();
        let node = &mut self.nodes[at];
        if !stream.starts_with(&node.log) {
            node.incarnation += 1;
            node.copy.reincarnate(Incarnation(node.incarnation));
        }
        node.log.clone_from(&stream);
        let Role::Leads(epoch) = self.nodes[primary].copy.role() else { return };
        let Some(view) = self.nodes[primary].copy.view() else { return };
        // The primary counts members of its view, with the data with which they were enrolled.
        let shard = &view.topology.value.shards[0];
        let counts = |node: &&Node| {
            let member = shard.copy(node.copy.myself().id).and_then(|copy| copy.member);
            member == Some(Incarnation(node.incarnation))
                && node.log == stream
                && node.frozen.is_none_or(|frozen| frozen < epoch)
                && matches!(node.copy.role(), Role::Follows(_, known) if known == epoch)
        };
        let has_begun = stream.contains(&(epoch.0, 0));
        if has_begun && 1 + self.nodes.iter().filter(counts).count() >= QUORUM {
            let writes = stream.into_iter().filter(|entry| entry.1 > 0);
            for write in writes {
                if !self.confirmed.contains(&write) {
                    self.confirmed.push(write);
                }
            }
        }
    }

    /// What may happen in this state.
    fn events(&self) -> Vec<Event> {
        let mut events = Vec::new();
        for (at, node) in self.nodes.iter().enumerate() {
            events.push(Event::Step(at));
            if node.copy.view().is_some_and(|view| view.revision < self.revision) {
                events.push(Event::Hear(at));
            }
            if node.sent.is_some() {
                events.push(Event::Arrive(at));
                if self.left.losses > 0 {
                    events.push(Event::Lose(at));
                }
            }
            if self.left.expiries > 0 && node.has_lease {
                events.push(Event::Expire(at));
            }
            if self.left.switches > 0 && id(at) != self.named.1.id {
                events.push(Event::Switch(at));
            }
            let Role::Leads(epoch) = node.copy.role() else { continue };
            if self.left.writes > 0 && node.copy.may_confirm(self.now) {
                events.push(Event::Write(at));
            }
            for (other, follower) in self.nodes.iter().enumerate() {
                if let Role::Follows(holder, known) = follower.copy.role()
                    && holder == node.copy.myself()
                    && known == epoch
                    && follower.copy.accepts(epoch)
                    && follower.frozen.is_none_or(|frozen| frozen < epoch)
                    && follower.log != node.log
                {
                    events.push(Event::Follow(at, other));
                }
            }
        }
        events.extend((0..self.late.len()).map(Event::ArriveLate));
        events
    }

    fn apply(&mut self, event: Event) {
        match event {
            Event::Step(at) => self.step(at),
            Event::Arrive(at) => self.arrive(at),
            Event::Lose(at) => {
                self.left.losses -= 1;
                self.late.extend(self.nodes[at].sent.take());
                self.nodes[at].copy.failed(self.now, Call::Commit);
                // A failure counts until calls that are sent later succeed.
                self.now += Moment::from_millis(1);
            }
            Event::Switch(at) => {
                self.left.switches -= 1;
                let asked = change::ask_switch(&self.view(), id(at)).expect("both are there");
                self.commit(&asked);
            }
            Event::ArriveLate(at) => {
                let Held(transaction) = self.late.remove(at);
                self.commit(&transaction);
            }
            Event::Expire(at) => {
                self.left.expiries -= 1;
                self.nodes[at].has_lease = false;
                let lease = Some(at as LeaseId * LEASES + self.nodes[at].leases);
                Arc::make_mut(&mut self.items).retain(|_, (_, _, of)| *of != lease);
                self.revision += 1;
            }
            Event::Hear(at) => {
                self.hear(at);
                self.step(at);
            }
            Event::Write(at) => {
                self.left.writes -= 1;
                let Role::Leads(epoch) = self.nodes[at].copy.role() else { return };
                self.nodes[at].log.push((epoch.0, 1));
            }
            Event::Follow(primary, at) => self.follow(primary, at),
        }
    }

    /// The primary that the topology names has all that was confirmed.
    fn keeps_what_was_confirmed(&self) -> bool {
        let named = self.nodes.iter().find(|node| node.copy.myself() == self.named.1);
        named.is_none_or(|node| self.confirmed.iter().all(|write| node.log.contains(write)))
    }

    fn has_one_alone(&self, of: &Left) -> bool {
        let has_ended = self.left.expiries < of.expiries;
        let alone = self.nodes.iter().filter(|node| node.copy.is_alone(self.now));
        has_ended || alone.count() <= 1
    }
}

/// What may happen from here on.
struct FailOver(State);

impl Model for FailOver {
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

    fn within_boundary(&self, state: &State) -> bool {
        state.named.0.0 <= state.left.epochs
    }

    fn properties(&self) -> Vec<Property<FailOver>> {
        vec![
            Property::always("the primary has what was confirmed", |_, state: &State| {
                state.keeps_what_was_confirmed()
            }),
            Property::always("at most one is alone", |model, state: &State| {
                state.has_one_alone(&model.0.left)
            }),
            Property::sometimes("a write is confirmed", |_, state: &State| {
                !state.confirmed.is_empty()
            }),
            Property::sometimes("another leads with a confirmed write", |_, state: &State| {
                !state.confirmed.is_empty() && state.nodes[1..].iter().any(is_leading)
            }),
        ]
    }
}

fn check(expiries: u8, losses: u8, switches: u8) {
    // One epoch more than there are reasons for one.
    let epochs = 1 + u64::from(expiries + switches);
    let left = Left { expiries, losses, switches, writes: 1, epochs };
    let checker = FailOver(State::first(left)).checker().threads(2).spawn_dfs().join();
    println!("{} states", checker.unique_state_count());
    checker.assert_properties();
}

#[test]
fn no_order_of_a_fail_over_loses_a_confirmed_write() {
    let losses = std::env::var("DUNLIN_MODEL_LOSSES");
    check(1, losses.map_or(0, |text| text.parse().expect("a number")), 0);
}

#[test]
fn no_order_of_a_switch_has_two_primaries() {
    check(0, 1, 1);
}

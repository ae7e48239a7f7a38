//! The world around the copies: true time, deliveries and clients.

mod checks;
mod setup;

use crate::etcd::Etcd;
use crate::faults::Faults;
use crate::server::{Server, Stream};
use cluster::Moment;
use cluster::coordinator::{Coordinator, Failure, LeaseCall, LeaseReply, Outcome, Transaction};
use cluster::copy::{Action, Call};
use cluster::id::{Epoch, Id, Incarnation};
use cluster::known::look_back;
use cluster::topology::{Holder, Shard};
use cluster::view::{Keys, View};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use structs::random::Rng;

/// How often things happened.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Counts {
    pub(crate) confirmed: usize,
    pub(crate) promotions: usize,
    pub(crate) retakes: usize,
    pub(crate) switches: usize,
    pub(crate) resyncs: usize,
    pub(crate) recoveries: usize,
    /// A copy that was silent for long is no member any more.
    pub(crate) dismissals: usize,
    /// A copy leads with what its disk had, since all were restarted.
    pub(crate) restored: usize,
    /// A primary was alone by the promises of others, without a lease.
    pub(crate) alone: usize,
    /// The coordinator was started again with older files.
    pub(crate) rollbacks: usize,
    /// A shard has elected a primary since.
    pub(crate) reelections: usize,
}

impl Counts {
    pub(crate) fn add(&mut self, other: &Counts) {
        self.confirmed += other.confirmed;
        self.promotions += other.promotions;
        self.retakes += other.retakes;
        self.switches += other.switches;
        self.resyncs += other.resyncs;
        self.recoveries += other.recoveries;
        self.dismissals += other.dismissals;
        self.restored += other.restored;
        self.alone += other.alone;
        self.rollbacks += other.rollbacks;
        self.reelections += other.reelections;
    }
}

/// What a copy asks the coordinator.
enum Request {
    Lease(LeaseCall),
    Read,
    Commit(Transaction),
}

/// What it answers.
#[allow(clippy::large_enum_variant)] // A simulation holds few of them.
enum Reply {
    Lease(LeaseReply),
    Read(Option<View>),
    Commit(Outcome),
}

/// What one copy says to another.
enum Message {
    Stream(Stream),
    Ack { epoch: Epoch, incarnation: Incarnation, len: usize },
    Ask { epoch: Epoch, sent: Moment, from: Holder },
    Promise { epoch: Epoch, sent: Moment, time: Moment },
}

/// What happens at some moment.
#[allow(clippy::large_enum_variant)] // A simulation holds few of them.
enum Event {
    Step(usize),
    Request { from: usize, run: u64, call: u64, request: Request, is_answered: bool },
    Reply { to: usize, run: u64, call: u64, reply: Result<Reply, Call> },
    Message { from: usize, to: usize, message: Message },
    Faults,
}

/// See the head of this file.
pub(crate) struct World {
    pub(crate) now: Moment,
    pub(crate) rng: Rng,
    pub(crate) etcd: Etcd,
    pub(crate) servers: Vec<Server>,
    pub(crate) faults: Faults,
    pub(crate) counts: Counts,
    queue: BTreeMap<(Moment, u64), Event>,
    /// What paused processes will find when they go on.
    waiting: Vec<Vec<Event>>,
    last_delivery: BTreeMap<(usize, usize), Moment>,
    drawn: u64,
    pub(crate) quorum: usize,
    keys: Keys,
    database: Id,
    /// For each shard.
    confirmed: Vec<BTreeSet<u64>>,
    /// The newest revision that was looked at, and each shard's primary in it.
    seen: (u64, Vec<Option<(Epoch, Holder)>>),
    /// The members that each shard had, with their data.
    members: Vec<BTreeSet<Holder>>,
    /// The shards whose primaries the coordinator has forgotten, perhaps, and that have not elected
    /// one since.
    is_rolled_back: Vec<bool>,
    /// By shard, the epoch in which a copy leads without what the memory of others had.
    given_up: Vec<Epoch>,
    /// When it was rolled back last.
    rolled_back_at: Option<Moment>,
    /// The shard that an operator recovers at this moment.
    recovering: Option<usize>,
    trace: Vec<String>,
    seed: u64,
}

const fn ms(ms: u64) -> Moment {
    Moment::from_millis(ms)
}

impl World {
    pub(crate) fn draw(&mut self) -> u64 {
        self.drawn += 1 + self.rng.below(5000);
        self.drawn
    }

    fn schedule(&mut self, after: Moment, event: Event) {
        let number = self.draw();
        self.queue.insert((self.now + after, number), event);
    }

    /// Runs for so many seconds with faults.
    pub(crate) fn run(&mut self, seconds: u64) {
        self.run_for(Moment::from_secs(seconds));
    }

    /// Runs for this time with faults.
    pub(crate) fn run_for(&mut self, time: Moment) {
        let until = self.now + time;
        while self.next_event(until) {}
        self.now = until;
    }

    /// The first copy that leads.
    pub(crate) fn leader(&self) -> usize {
        let leader = self.servers.iter().position(|server| server.leads().is_some());
        leader.expect("a copy leads")
    }

    pub(crate) fn trace(&self) -> Vec<String> {
        self.trace.clone()
    }

    fn next_event(&mut self, until: Moment) -> bool {
        let Some(entry) = self.queue.first_entry() else { return false };
        let at = entry.key().0;
        if at > until {
            return false;
        }
        let event = entry.remove();
        self.now = at;
        self.etcd.advance(at);
        self.check_topology();
        self.happen(event);
        self.check_topology();
        self.check_alone();
        true
    }

    fn happen(&mut self, event: Event) {
        match event {
            Event::Faults => {
                self.draw_faults();
                self.schedule(ms(200), Event::Faults);
            }
            Event::Step(at) => {
                self.step(at);
                let after = ms(50 + self.rng.below(50));
                self.schedule(after, Event::Step(at));
            }
            Event::Request { from, run, call, request, is_answered } => {
                self.serve(from, run, call, request, is_answered);
            }
            Event::Reply { to, .. } | Event::Message { to, .. } if self.servers[to].is_paused => {
                self.waiting[to].push(event);
            }
            Event::Reply { to, run, call, reply } => self.replied(to, run, call, reply),
            Event::Message { from, to, message } => self.deliver(from, to, message),
        }
    }

    /// A paused process goes on, and finds what has arrived.
    pub(crate) fn resume(&mut self, at: usize) {
        self.servers[at].is_paused = false;
        for event in std::mem::take(&mut self.waiting[at]) {
            self.happen(event);
        }
    }

    /// The process of a copy ends and another begins. Perhaps it has ended in order.
    pub(crate) fn restart(&mut self, at: usize) {
        let is_in_order = self.rng.below(2) == 0;
        self.restart_after(at, is_in_order);
    }

    /// The same, if it is known how the process has ended.
    pub(crate) fn restart_after(&mut self, at: usize, is_in_order: bool) {
        let fresh = self.draw();
        self.waiting[at].clear();
        self.servers[at].restart(fresh, is_in_order);
    }

    /// The coordinator starts again with older files, if there are some. What was under way to it
    /// is lost with its connections.
    pub(crate) fn roll_back(&mut self) {
        let before = self.view_if_up();
        if !self.etcd.roll_back() {
            return;
        }
        self.counts.rollbacks += 1;
        self.trace.push(format!("{:?} etcd is rolled back", self.now));
        self.queue.retain(|_, event| !matches!(event, Event::Request { .. }));
        self.servers.iter_mut().for_each(|server| server.has_connection = false);
        let view = self.view_of(self.database);
        if before.is_none_or(|before| before.topology != view.topology) {
            self.is_rolled_back.fill(true);
        }
        self.rolled_back_at = Some(self.now);
        // Epochs may fall.
        self.seen = (0, vec![None; self.confirmed.len()]);
        self.check_topology();
    }

    fn step(&mut self, at: usize) {
        if !self.servers[at].runs() {
            return;
        }
        self.write(at);
        self.watch(at);
        let server = &mut self.servers[at];
        let clock = server.clock(self.now);
        let facts = server.facts(clock);
        let mut has_called = false;
        for action in server.machine.step(clock, &facts) {
            has_called |= matches!(action, Action::Lease(_) | Action::Read | Action::Commit(_));
            self.act(at, clock, action);
        }
        self.servers[at].has_connection |= has_called;
        self.stream(at);
    }

    /// The watch says that there is something to read, most of the time.
    fn watch(&mut self, at: usize) {
        let is_cut_off = self.draw_delay(self.servers.len(), at).is_none();
        let server = &mut self.servers[at];
        let Some(view) = server.machine.view() else { return };
        if is_cut_off || self.rng.below(4) == 0 {
            return;
        }
        let prefix = self.keys.database(view.database);
        let changes = self.etcd.watch(&prefix, view.revision + 1, Moment::ZERO);
        let is_compacted = matches!(changes, Err(Failure::Compacted(_)));
        if is_compacted || changes.is_ok_and(|changes| !changes.keys.is_empty()) {
            server.machine.changed(server.clock(self.now));
        }
    }

    fn act(&mut self, at: usize, clock: Moment, action: Action) {
        let marker = self.draw();
        let server = &mut self.servers[at];
        let epoch = match action {
            Action::Lease(call) => return self.call(at, Request::Lease(call)),
            Action::Read => return self.call(at, Request::Read),
            Action::Commit(transaction) => return self.call(at, Request::Commit(transaction)),
            Action::Freeze(epoch) => return server.freeze(epoch),
            Action::Lead(epoch) => return server.lead(clock, epoch, marker),
            Action::Follow(holder, epoch) => return server.follow(holder, epoch),
            Action::Ask(epoch) => epoch,
        };
        let from = self.servers[at].machine.myself();
        for to in (0..self.servers.len()).filter(|&to| to != at) {
            self.send(at, to, Message::Ask { epoch, sent: clock, from });
        }
    }

    fn call(&mut self, at: usize, request: Request) {
        let number = self.draw();
        let kind = match request {
            Request::Lease(_) => Call::Lease,
            Request::Read => Call::Read,
            Request::Commit(_) => Call::Commit,
        };
        let clock = self.servers[at].clock(self.now);
        // The connection has ended with the coordinator of before. A server finds that out by its
        // next call, and makes no other in the same turn (`Driver::turn`). So it reads again before
        // it sends a transaction.
        if !self.servers[at].has_connection {
            return self.servers[at].machine.failed(clock, kind);
        }
        self.servers[at].calls.insert(number, clock);
        let run = self.servers[at].run;
        let reply = Err(kind);
        self.schedule(ms(500), Event::Reply { to: at, run, call: number, reply });
        let Some(delay) = self.draw_delay(at, self.servers.len()) else { return };
        let is_answered = !self.is_lost();
        let request = Event::Request { from: at, run, call: number, request, is_answered };
        self.schedule(delay, request);
    }

    /// The coordinator does what it was asked, and answers.
    fn serve(&mut self, from: usize, run: u64, call: u64, request: Request, is_answered: bool) {
        let id = self.servers[from].id;
        let reply = match request {
            Request::Lease(call) => {
                self.etcd.lease(call).map(Reply::Lease).map_err(|_| Call::Lease)
            }
            Request::Commit(it) => {
                self.etcd.commit(&it).map(Reply::Commit).map_err(|_| Call::Commit)
            }
            Request::Read => self.read(id).map(Reply::Read).map_err(|_| Call::Read),
        };
        let delay = self.draw_delay(self.servers.len(), from);
        if let Some(delay) = delay.filter(|_| is_answered) {
            self.schedule(delay, Event::Reply { to: from, run, call, reply });
        }
    }

    fn read(&mut self, copy: Id) -> Result<Option<View>, Failure> {
        let home = self.etcd.range(&self.keys.home(copy), None)?;
        let database: Id = serde_json::from_slice(&home.items[0].value).expect("it is an id");
        let range = self.etcd.range(&self.keys.database(database), None)?;
        let mut view = View::decode(&self.keys, database, &range).expect("it is valid");
        if let Some(view) = &mut view {
            let reader = self.servers.iter().find(|server| server.id == copy);
            look_back(&mut self.etcd, view, reader.and_then(|reader| reader.machine.known()))?;
        }
        Ok(view)
    }

    fn replied(&mut self, to: usize, run: u64, call: u64, reply: Result<Reply, Call>) {
        let server = &mut self.servers[to];
        if !server.is_up || server.run != run {
            return;
        }
        let Some(sent) = server.calls.remove(&call) else { return };
        let clock = server.clock(self.now);
        let machine = &mut server.machine;
        match reply {
            Ok(Reply::Lease(reply)) => machine.lease_replied(clock, sent, reply),
            Ok(Reply::Read(view)) => machine.read(clock, sent, view),
            Ok(Reply::Commit(outcome)) => machine.committed(clock, outcome),
            Err(call) => machine.failed(clock, call),
        }
    }

    fn send(&mut self, from: usize, to: usize, message: Message) {
        let Some(delay) = self.draw_delay(from, to) else { return };
        // A connection keeps the order.
        let last = self.last_delivery.entry((from, to)).or_default();
        let at = (self.now + delay).max(*last);
        *last = at;
        self.schedule(at - self.now, Event::Message { from, to, message });
    }

    fn deliver(&mut self, from: usize, to: usize, message: Message) {
        let sender = self.servers[from].id;
        let (now, fresh) = (self.now, self.draw());
        let server = &mut self.servers[to];
        if !server.is_up {
            return;
        }
        let clock = server.clock(now);
        let answer = match message {
            Message::Stream(stream) => {
                let (acknowledged, is_resync) = server.take(now, (sender, &stream), fresh);
                let (epoch, incarnation) = (stream.epoch, server.incarnation);
                self.counts.resyncs += usize::from(is_resync);
                acknowledged.map(|len| Message::Ack { epoch, incarnation, len })
            }
            Message::Ask { epoch, sent, from } => {
                let time = server.machine.promise(clock, epoch, from);
                time.map(|time| Message::Promise { epoch, sent, time })
            }
            Message::Promise { epoch, sent, time } => {
                server.machine.promised(sender, epoch, sent, time);
                None
            }
            Message::Ack { epoch, incarnation, len } => {
                if server.leads() == Some(epoch) {
                    server.acknowledged(clock, sender, (incarnation, len));
                    self.confirm(to);
                }
                None
            }
        };
        if let Some(answer) = answer {
            self.send(to, from, answer);
        }
    }

    /// A primary sends what it has to all other copies that its view lists, or might list soon.
    fn stream(&mut self, at: usize) {
        let server = &self.servers[at];
        let Some(epoch) = server.leads() else { return };
        let log = server.log.clone();
        if log.last().is_none_or(|&(last, _)| last != epoch) {
            return;
        }
        let view = server.machine.view();
        let (mine, view) = (server.shard, view.map(|view| &view.topology.value));
        let shard = view.and_then(|topology| topology.shard_of(server.id)).cloned();
        for to in (0..self.servers.len()).filter(|&to| to != at) {
            if self.servers[to].shard != mine {
                continue;
            }
            let id = self.servers[to].id;
            let is_listed = shard.as_ref().is_some_and(|shard: &Shard| shard.copy(id).is_some());
            let stream = Stream { epoch, log: Arc::clone(&log), is_listed };
            self.send(at, to, Message::Stream(stream));
        }
    }

    /// A client writes to a server that takes writes.
    fn write(&mut self, at: usize) {
        let number = self.draw();
        let server = &mut self.servers[at];
        let (Some(epoch), clock) = (server.leads(), server.clock(self.now)) else { return };
        if !server.machine.may_confirm(clock) || self.rng.below(2) == 0 {
            return;
        }
        server.append((epoch, number));
        if self.quorum == 0 {
            self.counts.confirmed += 1;
        }
    }

    /// Confirms what a quorum holds.
    fn confirm(&mut self, at: usize) {
        if self.quorum == 0 {
            return;
        }
        let new = self.servers[at].confirm(self.quorum);
        if new.is_empty() {
            return;
        }
        self.counts.confirmed += new.len();
        let shard = self.servers[at].shard;
        // A primary that stood still goes on from acknowledgements whose data are gone with memory.
        if self.servers[at].leads() < Some(self.given_up[shard]) {
            return;
        }
        self.confirmed[shard].extend(new.iter().map(|&(_, number)| number));
        self.check_confirmed(shard, "a write is confirmed");
    }
}

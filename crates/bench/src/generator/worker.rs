//! One thread of the generator: its connections, and the loop that drives them.
//!
//! The thread waits for events, takes in all replies there are, then sends what may be sent next,
//! and a few times a second does what need not be done more often. Nothing is registered or changed
//! per request. Replies come first because sending takes most of the time: a reply that waits for
//! the requests of other connections to be sent would look later than it was.

mod sending;
mod upkeep;

use super::connection::{Connection, LifeState};
use super::os::{self, Epoll};
use super::schedule::Schedule;
use super::{Outcome, Shared};
use crate::generator::cluster::Topology;
use crate::ledger;
use crate::measure::recorder::Recorder;
use crate::options::{Limit, Load, Pacing, Target};
use crate::verify::Checker;
use crate::workload::{Effect, Workload};
use resp::count::Kind;
use std::collections::VecDeque;
use std::io::{self, ErrorKind};
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

/// Bytes received at once.
const INPUT_BYTES: usize = 64 * 1024;

/// How often what was seen is handed over, and other threads' wishes are looked at.
const HOUSEKEEPING_NS: u64 = 50_000_000;

/// How long replies are waited for when the time is over.
const DRAIN_NS: u64 = 1_000_000_000;

const MILLISECOND_NS: u64 = 1_000_000;

/// A thread of the generator.
pub struct Worker<'a> {
    shared: &'a Shared,
    target: &'a Target,
    load: &'a Load,
    workload: &'a Workload,
    index: usize,
    epoll: Epoll,
    connections: Vec<Connection>,
    /// Connections that have not sent all of their own share of the requests.
    shares_left: u64,
    recorder: Recorder,
    input: Vec<u8>,
    topology: Arc<Topology>,
    topology_version: u64,
    schedule: Option<Schedule>,
    /// Not paced: connections whose replies are all there, between the two halves of a turn.
    idle: Vec<usize>,
    /// Paced: connections with room for another request.
    queue: VecDeque<usize>,
    /// Paced: requests were due and no connection had room.
    starved: bool,
    /// Connections that are not there, and how many of them are being made.
    down: Vec<usize>,
    opening: usize,
    /// Connections at work.
    up: usize,
    last_up_ns: u64,
    /// Requests sent and not answered.
    under_way: u64,
    /// No request may follow.
    exhausted: bool,
    exhausted_ns: u64,
    /// The run has begun; before that a lost connection is the end.
    running: bool,
    counted_from_ns: u64,
    end_ns: u64,
    /// When the last whole reply came.
    last_reply_ns: u64,
    /// When no request was under way, the last time that this was looked at.
    asked_ns: u64,
    checker: Option<Checker>,
    /// Scratch: keys drawn for a request; connections with something to send.
    numbers: Vec<u64>,
    touched: Vec<usize>,
    lines: Vec<u8>,
}

impl<'a> Worker<'a> {
    /// Thread `index`, with the connections of these numbers.
    pub fn new(
        shared: &'a Shared,
        target: &'a Target,
        load: &'a Load,
        workload: &'a Workload,
        index: usize,
        numbers: Range<u64>,
    ) -> io::Result<Worker<'a>> {
        let (topology, topology_version) = shared.topology();
        let clients = load.clients as u64;
        let nodes = topology.nodes_for(clients);
        // Parallel patterns divide the keys among the workers that can reach them: per node.
        let mut sharers = vec![0; topology.nodes.len()];
        let mut places = Vec::with_capacity(nodes.len());
        for &node in &nodes {
            places.push(sharers[node]);
            sharers[node] += 1;
        }
        let mut connections = Vec::new();
        for number in numbers {
            let node = nodes[number as usize];
            let share = (places[number as usize], sharers[node]);
            let mut connection = Connection::new(workload, number, node, share, load);
            if let Limit::Requests(total) = load.limit
                && workload.walks()
            {
                connection.left = Some((number + 1) * total / clients - number * total / clients);
            }
            if let Some(ledger) = &shared.ledger {
                connection.versions = Some(ledger::Versions::new(ledger.run, number));
            }
            connections.push(connection);
        }
        Ok(Worker {
            shared,
            target,
            load,
            workload,
            index,
            epoll: Epoll::new(connections.len().clamp(16, 1024))?,
            down: (0..connections.len()).collect(),
            shares_left: connections.iter().filter(|one| one.left.is_some_and(|n| n > 0)).count()
                as u64,
            connections,
            recorder: Recorder::new(workload),
            input: vec![0; INPUT_BYTES],
            topology,
            topology_version,
            schedule: None,
            idle: Vec::new(),
            queue: VecDeque::new(),
            starved: false,
            opening: 0,
            up: 0,
            last_up_ns: 0,
            under_way: 0,
            exhausted: false,
            exhausted_ns: 0,
            running: false,
            counted_from_ns: 0,
            end_ns: u64::MAX,
            last_reply_ns: 0,
            asked_ns: 0,
            checker: load.verify.then(|| Checker::new(workload)),
            numbers: Vec::new(),
            touched: Vec::new(),
            lines: Vec::new(),
        })
    }

    /// Connects, waits for the start, and works until it is over.
    pub fn run(mut self) -> Result<Outcome, String> {
        os::wake_on_time();
        self.last_up_ns = self.shared.now_ns();
        while self.up < self.connections.len() {
            self.turn(Duration::from_millis(1)).map_err(|error| error.to_string())?;
            self.shared.check_failure()?;
            if self.shared.stopped() {
                break;
            }
            let waited_ns = self.shared.now_ns() - self.last_up_ns;
            if waited_ns > self.load.give_up.as_nanos() as u64 {
                let seconds = self.load.give_up.as_secs_f64();
                let missing = self.connections.len() - self.up;
                return Err(format!("{missing} connections were not answered in {seconds} s"));
            }
        }
        let start_ns = self.shared.wait_for_start()?;
        self.begin(start_ns);
        let cpu = os::thread_cpu();
        let mut housekeeping_ns = start_ns;
        loop {
            let now_ns = self.shared.now_ns();
            if now_ns >= housekeeping_ns {
                self.keep_house(now_ns).map_err(|error| error.to_string())?;
                housekeeping_ns = now_ns + HOUSEKEEPING_NS;
            }
            if self.over(now_ns) {
                break;
            }
            let timeout = self.timeout(now_ns, housekeeping_ns);
            self.turn(timeout).map_err(|error| error.to_string())?;
            if self.schedule.is_some() {
                self.dispatch();
            }
        }
        self.shared.check_failure()?;
        self.finish(start_ns, cpu)
    }

    fn begin(&mut self, start_ns: u64) {
        self.running = true;
        self.counted_from_ns = start_ns + self.load.warmup.as_nanos() as u64;
        if let Limit::Time(time) = self.load.limit {
            self.end_ns = self.counted_from_ns + time.as_nanos() as u64;
        }
        self.last_reply_ns = self.counted_from_ns;
        if let Some(rate) = self.load.pacing.rate() {
            let threads = self.shared.threads;
            self.schedule = Some(Schedule::new(rate, start_ns, self.index, threads));
        }
        let now_ns = self.shared.now_ns();
        for index in 0..self.connections.len() {
            if self.connections[index].state == LifeState::Ready {
                self.next_batch(index, now_ns);
            }
        }
        self.send_batches();
    }

    /// Waits for events and handles them.
    fn turn(&mut self, timeout: Duration) -> io::Result<()> {
        let count = self.epoll.wait(timeout)?;
        for index in 0..count {
            let event = self.epoll.event(index);
            let place = event.token as usize;
            match self.connections[place].state {
                LifeState::Down { .. } => {}
                LifeState::Connecting { .. } => self.connected(place),
                LifeState::Greeting(_) | LifeState::Ready => {
                    // There is nearly always room, and nothing that waits for it.
                    if event.writable && self.connections[place].waits_to_send() {
                        self.flush(place);
                    }
                    if event.readable {
                        self.receive(place, event.ended);
                    }
                }
            }
        }
        self.send_batches();
        if !self.down.is_empty() {
            self.reconnect();
        }
        Ok(())
    }

    fn timeout(&self, now_ns: u64, housekeeping_ns: u64) -> Duration {
        let mut until = housekeeping_ns;
        if let Some(schedule) = &self.schedule
            && !self.exhausted
            && !self.queue.is_empty()
        {
            until = until.min(schedule.due_ns());
        }
        if !self.down.is_empty() {
            until = until.min(now_ns + MILLISECOND_NS);
        }
        Duration::from_nanos(until.saturating_sub(now_ns))
    }

    fn over(&mut self, now_ns: u64) -> bool {
        if !self.exhausted {
            // On a schedule, what was due before the end may still be sent a little later.
            let grace_ns = if self.schedule.is_some() { DRAIN_NS } else { 0 };
            if now_ns < self.end_ns.saturating_add(grace_ns) && !self.shared.stopped() {
                return false;
            }
            self.exhaust(now_ns);
        }
        let deadline_ns = match self.load.limit {
            Limit::Requests(_) if !self.shared.stopped() => {
                let silent_since = self.exhausted_ns.max(self.last_reply_ns);
                silent_since + self.load.give_up.as_nanos() as u64
            }
            _ => self.exhausted_ns.min(self.end_ns) + DRAIN_NS,
        };
        self.under_way == 0 || now_ns >= deadline_ns || os::interrupted_again()
    }

    fn exhaust(&mut self, now_ns: u64) {
        if !self.exhausted {
            self.exhausted = true;
            self.exhausted_ns = now_ns;
        }
    }

    fn keep_house(&mut self, now_ns: u64) -> io::Result<()> {
        let second = now_ns.saturating_sub(self.counted_from_ns) / 1_000_000_000;
        if now_ns >= self.counted_from_ns {
            self.recorder.flush(&self.shared.timeline, second);
        }
        if let Some(ledger) = &self.shared.ledger {
            ledger.append(&mut self.lines)?;
        }
        if self.shared.topology_version.load(Ordering::Acquire) != self.topology_version {
            self.follow_topology(now_ns);
        }
        if self.up > 0 {
            self.last_up_ns = now_ns;
        } else if now_ns - self.last_up_ns > self.load.give_up.as_nanos() as u64 {
            self.shared.fail_softly("a connection");
        }
        // A server may be silent, or send a reply without an end.
        let since_ns = self.last_reply_ns.max(self.asked_ns);
        if self.under_way > 0
            && now_ns.saturating_sub(since_ns) > self.load.give_up.as_nanos() as u64
        {
            self.shared.fail_softly("a whole reply");
        }
        if self.under_way == 0 {
            self.asked_ns = now_ns;
        }
        Ok(())
    }

    fn receive(&mut self, index: usize, ended: bool) {
        loop {
            let Some(transport) = &mut self.connections[index].transport else { return };
            let received = match transport.receive(&mut self.input) {
                Ok(0) => return self.lost(index, "the server closed the connection"),
                Ok(received) => received,
                Err(error) if error.kind() == ErrorKind::WouldBlock => return,
                Err(error) if error.kind() == ErrorKind::Interrupted => continue,
                Err(error) => return self.lost(index, &error.to_string()),
            };
            let last = received < self.input.len() && transport.short_read_is_all() && !ended;
            self.recorder.counts.bytes_in += received as u64;
            if let Err(why) = self.take_in(index, received) {
                return self.lost(index, &why);
            }
            if last {
                return;
            }
        }
    }

    /// Looks at bytes received, and goes on with the connection's work.
    fn take_in(&mut self, index: usize, received: usize) -> Result<(), String> {
        let now_ns = self.shared.now_ns();
        let connection = &mut self.connections[index];
        let mut rest = &self.input[..received];
        let before = self.under_way;
        // Replies are not looked at one by one: equal ones are only counted.
        let unseen = self.checker.is_none() && connection.versions.is_none();
        while !rest.is_empty() {
            if unseen && let Some(sent) = connection.under_way.first() {
                let (kind, count, used) = connection.counter.alike(rest, sent.count);
                if count > 0 {
                    rest = &rest[used..];
                    connection.under_way.answered(count);
                    self.under_way -= u64::from(count);
                    if sent.at_ns >= self.counted_from_ns {
                        let operation = sent.operation as usize;
                        let latency_ns = now_ns.saturating_sub(sent.at_ns);
                        self.recorder.replies(operation, latency_ns, count);
                        let reads = self.workload.operations[operation].effect == Effect::Reads;
                        if kind == Kind::Nil && reads {
                            self.recorder.misses(operation, count);
                        }
                    }
                    continue;
                }
            }
            let (used, kind) = connection.counter.next(rest).map_err(|error| {
                if self.running {
                    let address = &self.topology.nodes[connection.node];
                    self.shared.abort(format!("{address}: {error}"));
                }
                error.to_string()
            })?;
            if self.checker.is_some() {
                connection.capture.extend_from_slice(&rest[..used]);
            }
            rest = &rest[used..];
            let Some(kind) = kind else { break };
            let Some(sent) = connection.under_way.first() else {
                greeted(connection, kind)?;
                continue;
            };
            connection.under_way.answered(1);
            self.under_way -= 1;
            let operation = sent.operation as usize;
            let effect = self.workload.operations[operation].effect;
            if let Some(versions) = &mut connection.versions
                && effect == Effect::Writes
                && let Some(entry) = versions.answered()
                && kind == Kind::Value
            {
                ledger::note(&mut self.lines, &entry, now_ns / 1000);
            }
            if let Some(checker) = &mut self.checker {
                checker.check(connection, operation, kind, &mut self.recorder.counts);
            }
            if sent.at_ns < self.counted_from_ns {
                continue;
            }
            self.recorder.replies(operation, now_ns.saturating_sub(sent.at_ns), 1);
            match kind {
                Kind::Value => {}
                Kind::Nil if effect == Effect::Reads => self.recorder.misses(operation, 1),
                Kind::Nil => {}
                Kind::Error => {
                    let text = connection.counter.error();
                    if text.starts_with(b"MOVED ") {
                        self.shared.topology_is_stale.store(true, Ordering::Relaxed);
                    }
                    self.recorder.error(operation, text);
                }
            }
        }
        if self.under_way < before {
            self.last_reply_ns = now_ns;
        }
        self.go_on(index, now_ns);
        Ok(())
    }

    /// Has a connection do what comes next, now that bytes have been taken in.
    fn go_on(&mut self, index: usize, now_ns: u64) {
        let connection = &self.connections[index];
        let (state, waiting) = (connection.state, connection.under_way.len());
        if state == LifeState::Ready && !connection.greeted {
            self.ready(index, now_ns);
        } else if state == LifeState::Ready && waiting == 0 && self.running {
            self.next_batch(index, now_ns);
        } else if state == LifeState::Ready
            && self.schedule.is_some()
            && waiting < self.load.pipeline
            && self.load.reconnect_after.is_none_or(|limit| connection.sent < limit)
        {
            self.enqueue(index);
        }
    }

    /// Notes what is left over, and what it has cost.
    fn finish(mut self, start_ns: u64, cpu_before: Duration) -> Result<Outcome, String> {
        let now_ns = self.shared.now_ns();
        let cpu = os::thread_cpu() - cpu_before;
        for connection in &self.connections {
            for sent in connection.under_way.iter() {
                if sent.at_ns >= self.counted_from_ns {
                    let waited_ns = now_ns.saturating_sub(sent.at_ns);
                    let count = sent.count.into();
                    self.recorder.unfinished(sent.operation as usize, waited_ns, count);
                }
            }
        }
        if let (Some(schedule), Pacing::Open(_)) = (&mut self.schedule, self.load.pacing) {
            // Due and never sent, because no connection had room: the server owes these too.
            let until = self.end_ns.min(self.exhausted_ns);
            while self.starved && schedule.due_ns() < until {
                self.recorder.unfinished(0, now_ns - schedule.due_ns(), 1);
                schedule.advance();
            }
        }
        let second = self.last_reply_ns.saturating_sub(self.counted_from_ns) / 1_000_000_000;
        self.recorder.flush(&self.shared.timeline, second);
        if let Some(ledger) = &self.shared.ledger {
            ledger.append(&mut self.lines).map_err(|error| format!("the ledger: {error}"))?;
        }
        let wall = now_ns.saturating_sub(start_ns).max(1) as f64 / 1e9;
        Ok(Outcome {
            recorder: self.recorder,
            cpu_seconds: cpu.as_secs_f64(),
            busy: cpu.as_secs_f64() / wall,
            last_reply_ns: self.last_reply_ns,
            checker: self.checker,
        })
    }
}

/// A reply that belongs to no request: to AUTH and the like, or it should not be there.
fn greeted(connection: &mut Connection, kind: Kind) -> Result<(), String> {
    connection.capture.clear();
    let LifeState::Greeting(missing) = connection.state else {
        return Err("a reply came that nobody had asked for".into());
    };
    if kind == Kind::Error {
        return Err(String::from_utf8_lossy(connection.counter.error()).into_owned());
    }
    connection.state =
        if missing > 1 { LifeState::Greeting(missing - 1) } else { LifeState::Ready };
    Ok(())
}

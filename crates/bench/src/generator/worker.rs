//! One thread of the generator: its connections, and the loop that drives them.
//!
//! The thread waits for events, takes in replies, sends what may be sent next, and a few times a
//! second does what need not be done more often. Nothing is registered or changed per request, and
//! one reading of the clock serves a connection's replies and the requests that follow them.

mod upkeep;

use super::connection::{Connection, Sent, State};
use super::os::{self, Epoll};
use super::reply::Kind;
use super::schedule::Schedule;
use super::{Outcome, Shared};
use crate::generator::cluster::Topology;
use crate::ledger;
use crate::measure::recorder::Recorder;
use crate::options::{Limit, Load, Pacing, Target};
use crate::verify::Checker;
use crate::workload::template::{Draw, Route, ValueWriter};
use crate::workload::{Effect, Workload};
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

/// What a limited rate may catch up after a pause.
const CATCH_UP_NS: u64 = 20_000_000;

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
    last_reply_ns: u64,
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
        let nodes: Vec<usize> =
            (0..clients).map(|number| topology.node_for(number, clients)).collect();
        let mut connections = Vec::new();
        for number in numbers {
            let node = nodes[number as usize];
            // Parallel patterns divide the keys among those who can reach them: per node.
            let sharers = nodes.iter().filter(|&&other| other == node).count() as u64;
            let before = &nodes[..number as usize];
            let place = before.iter().filter(|&&other| other == node).count() as u64;
            let mut connection = Connection::new(workload, number, node, (place, sharers), load);
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
            if self.connections[index].state == State::Ready {
                self.next_batch(index, now_ns);
            }
        }
    }

    /// Waits for events and handles them.
    fn turn(&mut self, timeout: Duration) -> io::Result<()> {
        let count = self.epoll.wait(timeout)?;
        for index in 0..count {
            let event = self.epoll.event(index);
            let place = event.token as usize;
            match self.connections[place].state {
                State::Down { .. } => {}
                State::Connecting { .. } => self.connected(place),
                State::Greeting(_) | State::Ready => {
                    if event.writable {
                        self.flush(place);
                    }
                    if event.readable {
                        self.receive(place, event.ended);
                    }
                }
            }
        }
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
        self.under_way == 0 || now_ns >= deadline_ns
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
            self.shared.fail_softly();
        }
        Ok(())
    }

    /// The next requests of a connection that has nothing under way.
    fn next_batch(&mut self, index: usize, now_ns: u64) {
        if !self.running {
            return;
        }
        if self.load.reconnect_after.is_some_and(|limit| self.connections[index].sent >= limit) {
            self.renew(index, now_ns);
            return;
        }
        if self.schedule.is_some() {
            self.enqueue(index);
            return;
        }
        let mut batch = self.load.pipeline as u64;
        if self.workload.in_order {
            batch *= self.workload.cycle_length();
        }
        let granted = self.grant(index, batch, now_ns);
        if granted > 0 {
            self.fill(index, granted, now_ns);
            self.flush(index);
        }
    }

    fn enqueue(&mut self, index: usize) {
        let connection = &mut self.connections[index];
        if !connection.queued {
            connection.queued = true;
            self.queue.push_back(index);
        }
    }

    /// How many of `wanted` requests a connection may send. When it may send none, the run may be over.
    fn grant(&mut self, index: usize, wanted: u64, now_ns: u64) -> u64 {
        if self.exhausted || self.shared.stopped() {
            self.exhaust(now_ns);
            return 0;
        }
        let granted = match (self.load.limit, &mut self.connections[index].left) {
            _ if now_ns < self.counted_from_ns => return wanted,
            (Limit::Time(_), _) if self.schedule.is_some() || now_ns < self.end_ns => {
                return wanted;
            }
            (Limit::Time(_), _) => 0,
            (Limit::Requests(_), Some(left)) => {
                let granted = wanted.min(*left);
                *left -= granted;
                self.shared.granted.fetch_add(granted, Ordering::Relaxed);
                self.shares_left -= u64::from(granted > 0 && *left == 0);
                if granted == 0 && self.shares_left > 0 {
                    // Only this one has done its share.
                    return 0;
                }
                granted
            }
            (Limit::Requests(total), None) => {
                let before = self.shared.granted.fetch_add(wanted, Ordering::Relaxed);
                wanted.min(total.saturating_sub(before))
            }
        };
        if granted == 0 {
            self.exhaust(now_ns);
        }
        granted
    }

    /// Paced: sends what is due.
    fn dispatch(&mut self) {
        let now_ns = self.shared.now_ns();
        let open = matches!(self.load.pacing, Pacing::Open(_));
        let batch = if open { 1 } else { self.load.pipeline as u64 };
        let mut touched = std::mem::take(&mut self.touched);
        touched.clear();
        while !self.exhausted {
            let Some(schedule) = &mut self.schedule else { break };
            let due_ns = schedule.due_ns();
            if due_ns >= self.end_ns {
                self.exhaust(now_ns);
                break;
            }
            if due_ns > now_ns {
                self.starved = false;
                break;
            }
            let Some(index) = self.queue.pop_front() else {
                self.starved = true;
                if !open {
                    schedule.forgive(now_ns.saturating_sub(CATCH_UP_NS));
                }
                break;
            };
            self.connections[index].queued = false;
            if self.connections[index].state != State::Ready {
                continue;
            }
            let granted = self.grant(index, batch, now_ns);
            if granted == 0 {
                continue;
            }
            self.fill(index, granted, if open { due_ns } else { now_ns });
            if let Some(schedule) = &mut self.schedule {
                (0..granted).for_each(|_| schedule.advance());
            }
            if open && !self.starved {
                self.recorder.late.saturating_record((now_ns - due_ns).max(1));
            }
            if self.connections[index].under_way.len() < self.load.pipeline {
                self.enqueue(index);
            }
            touched.push(index);
        }
        for &index in &touched {
            self.flush(index);
        }
        self.touched = touched;
    }

    /// Writes requests; sending comes after.
    fn fill(&mut self, index: usize, count: u64, at_ns: u64) {
        let workload = self.workload;
        let connection = &mut self.connections[index];
        connection.sent += count;
        let node = connection.node;
        let Connection { rng, cursors, versions, turn, drawn, under_way, out, .. } = connection;
        let mut left = count;
        while left > 0 {
            // In a cluster every request has a tag of its own.
            let limit = if self.target.cluster { 1 } else { left };
            let (operation, times) = workload.next(turn, limit);
            left -= times;
            let detail = &workload.operations[operation];
            let topology = &self.topology;
            let serves = |key: &[u8]| topology.serves(node, key);
            let route = self
                .target
                .cluster
                .then(|| Route { serves: &serves, tag: topology.tag(node, rng.next_u64()) });
            let noted = self.checker.is_some() && detail.effect != Effect::Other;
            self.numbers.clear();
            let mut write;
            let value: Option<&mut ValueWriter<'_>> = match versions.as_mut() {
                Some(versions) => {
                    let size = workload.places.values.sizes.largest() as usize;
                    write = move |key: u64, out: &mut Vec<u8>| versions.write(out, key, size);
                    Some(&mut write)
                }
                None => None,
            };
            let mut draw = Draw {
                rng,
                cursor: &mut cursors[operation],
                pattern: &detail.pattern,
                route,
                drawn: noted.then_some(&mut self.numbers),
                value,
            };
            detail.template.append(out, &workload.places, &mut draw, times);
            if noted {
                drawn.extend(&self.numbers);
            }
            under_way.push(Sent { at_ns, operation: operation as u32, count: times as u32 });
        }
        self.under_way += count;
    }

    fn flush(&mut self, index: usize) {
        let connection = &mut self.connections[index];
        let before = connection.unsent();
        match connection.flush() {
            Ok(()) => self.recorder.counts.bytes_out += (before - connection.unsent()) as u64,
            Err(error) => self.lost(index, &error.to_string()),
        }
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
        // Nobody looks at replies one by one, so that those that are alike are only counted.
        let unseen = self.checker.is_none() && connection.versions.is_none();
        while !rest.is_empty() {
            if unseen && let Some(sent) = connection.under_way.first() {
                let (kind, count, used) = connection.scanner.alike(rest, sent.count);
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
            let (used, kind) = connection.scanner.next(rest).map_err(|error| error.to_string())?;
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
                    let text = connection.scanner.error();
                    if text.starts_with(b"MOVED ") {
                        self.shared.topology_is_stale.store(true, Ordering::Relaxed);
                    }
                    self.recorder.error(operation, text);
                }
            }
        }
        self.last_reply_ns = now_ns;
        let (state, waiting) = (connection.state, connection.under_way.len());
        if state == State::Ready && !connection.greeted {
            self.ready(index, now_ns);
        } else if state == State::Ready && waiting == 0 && self.running {
            self.next_batch(index, now_ns);
        } else if state == State::Ready
            && self.schedule.is_some()
            && waiting < self.load.pipeline
            && self.load.reconnect_after.is_none_or(|limit| connection.sent < limit)
        {
            self.enqueue(index);
        }
        Ok(())
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
    let State::Greeting(missing) = connection.state else {
        return Err("a reply came that nobody had asked for".into());
    };
    if kind == Kind::Error {
        return Err(String::from_utf8_lossy(connection.scanner.error()).into_owned());
    }
    connection.state = if missing > 1 { State::Greeting(missing - 1) } else { State::Ready };
    Ok(())
}

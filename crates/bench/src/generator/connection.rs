//! One connection of the generator: bytes to send, requests under way, and where it is in its work.

use super::os;
use crate::ledger::Versions;
use crate::options::{Address, Load, Target, resolve};
use crate::workload::keys::{Cursor, Pattern};
use crate::workload::{Turn, Workload};
use client::Stream;
use resp::count::ReplyCounter;
use std::collections::VecDeque;
use std::io::{self, ErrorKind};
use std::os::unix::net::UnixStream;
use structs::random::Rng;

/// Requests under way that have everything in common.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Sent {
    /// When their latency began, in nanoseconds on the run's clock.
    pub at_ns: u64,
    /// Index of their operation.
    pub operation: u32,
    /// How many, at least one.
    pub count: u32,
}

/// Requests under way, the oldest first: a pipelined batch of one operation is one entry.
#[derive(Debug, Default)]
pub struct UnderWay {
    runs: VecDeque<Sent>,
    requests: usize,
}

impl UnderWay {
    /// Notes requests that are about to be sent.
    pub fn push(&mut self, sent: Sent) {
        self.requests += sent.count as usize;
        match self.runs.back_mut() {
            Some(last) if (last.at_ns, last.operation) == (sent.at_ns, sent.operation) => {
                last.count += sent.count;
            }
            _ => self.runs.push_back(sent),
        }
    }

    /// The oldest.
    pub fn first(&self) -> Option<Sent> {
        self.runs.front().copied()
    }

    /// So many of the oldest entry have been answered, at most as many as it has.
    pub fn answered(&mut self, count: u32) {
        let Some(first) = self.runs.front_mut() else { return };
        debug_assert!(count <= first.count);
        first.count -= count;
        self.requests -= count as usize;
        if first.count == 0 {
            self.runs.pop_front();
        }
    }

    /// How many requests.
    pub fn len(&self) -> usize {
        self.requests
    }

    /// The entries, the oldest first.
    pub fn iter(&self) -> impl Iterator<Item = &Sent> {
        self.runs.iter()
    }

    fn clear(&mut self) {
        self.runs.clear();
        self.requests = 0;
    }
}

/// Where a connection is in its life.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LifeState {
    /// Not connected; to be tried again at this time of the run's clock.
    Down {
        /// When, in nanoseconds.
        retry_ns: u64,
    },
    /// The socket is connecting, or agreeing on encryption, since then.
    Connecting {
        /// When, in nanoseconds.
        since_ns: u64,
    },
    /// So many replies to AUTH and the like are awaited.
    Greeting(usize),
    /// At work.
    Ready,
}

/// A connection and its share of the work, which survives the socket.
pub struct Connection {
    /// Its number among all connections of the run.
    pub number: u64,
    /// The socket, unless down.
    pub transport: Option<Stream>,
    /// Its life.
    pub state: LifeState,
    /// The node it leads to, in a cluster.
    pub node: usize,
    /// Requests under way, the oldest first.
    pub under_way: UnderWay,
    /// Finds the ends of replies.
    pub counter: ReplyCounter,
    /// Its random numbers.
    pub rng: Rng,
    /// Where it is in the cycle of operations.
    pub turn: Turn,
    /// Where it is in the keys of each operation.
    pub cursors: Vec<Cursor>,
    /// Requests it may still send, where each connection has its own share.
    pub left: Option<u64>,
    /// Requests sent over this socket.
    pub sent: u64,
    /// Paced: waits in the queue of connections with room.
    pub queued: bool,
    /// Failed attempts to connect since it was last up.
    pub failures: u32,
    /// Verification: the numbers of the keys under way, in order.
    pub drawn: VecDeque<u64>,
    /// Verification: the reply under way, as it came.
    pub capture: Vec<u8>,
    /// Ledger: what it writes.
    pub versions: Option<Versions>,
    /// Its socket has been at work since it was made.
    pub greeted: bool,
    /// Requests that are written and not sent.
    pub out: Vec<u8>,
    out_done: usize,
}

impl Connection {
    /// Connection `number` of `clients`; `index` and `sharers` divide the keys of parallel
    /// patterns.
    pub fn new(
        workload: &Workload,
        number: u64,
        node: usize,
        (index, sharers): (u64, u64),
        load: &Load,
    ) -> Connection {
        let (seed, divided) = (load.seed, load.ledger.is_some());
        let (first, last) = workload.keys;
        // Streams of neighbouring connections must have nothing in common: mixed, not added.
        let mut mixer = Rng::seeded(seed ^ number.wrapping_mul(0x9e37_79b9_7f4a_7c15));
        mixer.next_u64();
        // With a ledger every key has one writer, whatever the pattern.
        let cursor = |operation: &crate::workload::Operation| {
            let pattern = if divided { &Pattern::Parallel } else { &operation.pattern };
            Cursor::new(pattern, first, last, index, sharers)
        };
        Connection {
            number,
            transport: None,
            state: LifeState::Down { retry_ns: 0 },
            node,
            under_way: UnderWay::default(),
            counter: ReplyCounter::default(),
            rng: Rng::seeded(mixer.next_u64()),
            turn: workload.start(number),
            cursors: workload.operations.iter().map(cursor).collect(),
            left: None,
            sent: 0,
            queued: false,
            failures: 0,
            drawn: VecDeque::new(),
            capture: Vec::new(),
            versions: None,
            greeted: false,
            out: Vec::new(),
            out_done: 0,
        }
    }

    /// Starts to connect.
    pub fn open(&mut self, target: &Target, now_ns: u64) -> io::Result<()> {
        self.forget();
        self.transport = Some(start(target)?);
        self.state = LifeState::Connecting { since_ns: now_ns };
        Ok(())
    }

    /// The socket is connected: agrees on encryption, and then says what has to be said first.
    pub fn greet(&mut self, target: &Target) -> io::Result<()> {
        let Some(transport) = &mut self.transport else { return Ok(()) };
        transport.connected()?;
        if !transport.agreed()? {
            return Ok(());
        }
        let (greeting, replies) = target.greeting();
        self.out.extend_from_slice(&greeting);
        self.state = if replies > 0 { LifeState::Greeting(replies) } else { LifeState::Ready };
        self.flush()
    }

    /// Drops the socket; how many requests were under way.
    pub fn close(&mut self, retry_ns: u64) -> u64 {
        let lost = self.under_way.len() as u64;
        self.forget();
        self.transport = None;
        self.state = LifeState::Down { retry_ns };
        lost
    }

    fn forget(&mut self) {
        self.under_way.clear();
        self.drawn.clear();
        self.capture.clear();
        self.counter = ReplyCounter::default();
        if let Some(versions) = &mut self.versions {
            versions.forget_under_way();
        }
        self.out.clear();
        self.out_done = 0;
        self.sent = 0;
    }

    /// Bytes that wait to be sent.
    pub fn unsent(&self) -> usize {
        self.out.len() - self.out_done
    }

    /// Whether anything waits for room to be sent.
    #[inline]
    pub fn waits_to_send(&self) -> bool {
        self.unsent() > 0 || self.transport.as_ref().is_some_and(Stream::holds_output)
    }

    /// Sends what there is, as far as there is room; an event will tell when there is more.
    #[inline]
    pub fn flush(&mut self) -> io::Result<()> {
        match self.try_flush() {
            Err(error) if error.kind() == ErrorKind::WouldBlock => Ok(()),
            result => result,
        }
    }

    fn try_flush(&mut self) -> io::Result<()> {
        let Some(transport) = &mut self.transport else { return Ok(()) };
        while self.out_done < self.out.len() {
            match transport.send(&self.out[self.out_done..]) {
                Ok(sent) => self.out_done += sent,
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        self.out.clear();
        self.out_done = 0;
        transport.push()
    }
}

/// Starts to connect. Nothing waits from here on: [`ErrorKind::WouldBlock`] says that it would.
fn start(target: &Target) -> io::Result<Stream> {
    let mut stream: Stream = match &target.address {
        // A full backlog is reported at once; there is no way to wait for room.
        Address::Unix(path) => UnixStream::connect(path)?.into(),
        Address::Tcp { host, port } => {
            let socket = os::start_connecting(resolve(host, *port)?)?;
            socket.set_nodelay(true)?;
            socket.into()
        }
    };
    stream.set_waiting(false)?;
    if let Some(tls) = &target.tls {
        stream.encrypt(tls)?;
    }
    Ok(stream)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn requests_in_common_are_one_entry() {
        let mut under_way = UnderWay::default();
        let sent = |at_ns, operation, count| Sent { at_ns, operation, count };
        under_way.push(sent(5, 0, 2));
        under_way.push(sent(5, 0, 1));
        under_way.push(sent(5, 1, 1));
        assert_eq!((under_way.len(), under_way.iter().count()), (4, 2));
        under_way.answered(2);
        assert_eq!(under_way.first(), Some(sent(5, 0, 1)));
        under_way.answered(1);
        assert_eq!((under_way.first(), under_way.len()), (Some(sent(5, 1, 1)), 1));
        under_way.answered(1);
        assert_eq!((under_way.first(), under_way.len()), (None, 0));
    }
}

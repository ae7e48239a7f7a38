//! Hubs on a network in memory: every reply belongs to its request, whatever the network does.

use super::{Commands, Common, Hub};
use crate::placement::Member;
use crate::policy::samples::Front;
use crate::pool::Shared;
use crate::settings::{Address, Pool, PoolKind, Server};
use crate::wire::{Id, Stall, Wire};
use resp::{Limits, Parsed, Parser, ReplyLimits, Scanned, Scanner};
use route::raw;
use std::collections::{BTreeMap, VecDeque};
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

const LIMITS: Limits = Limits { words: 1 << 20, bulk_len: 1 << 20 };

/// A network whose every byte is moved by the test.
#[derive(Default)]
pub(super) struct Memory {
    next: u32,
    /// What the hub has sent and the other side has not seen.
    out: BTreeMap<u32, Vec<u8>>,
    pub(super) connecting: Vec<(u32, Address)>,
    gone: Vec<u32>,
    finished: Vec<u32>,
    pub(super) resumed: Vec<u32>,
    pub(super) passed: Duration,
}

pub(super) fn every_command() -> Arc<Commands> {
    let rows: Vec<_> = commands::rows().iter().map(|row| row.described()).collect();
    Commands::new(&rows, commands::REDIS_VERSION)
}

pub(super) fn id(slot: u32) -> Id {
    Id { slot, generation: 1 }
}

fn start() -> Instant {
    static START: OnceLock<Instant> = OnceLock::new();
    *START.get_or_init(Instant::now)
}

impl Memory {
    pub(super) fn open(&mut self) -> u32 {
        self.next += 1;
        self.out.insert(self.next, Vec::new());
        self.next
    }

    pub(super) fn has_got(&self, slot: u32, begin: &[u8]) -> bool {
        self.out.get(&slot).is_some_and(|out| out.starts_with(begin))
    }

    pub(super) fn take(&mut self, slot: u32, most: usize) -> Vec<u8> {
        let Some(out) = self.out.get_mut(&slot) else { return Vec::new() };
        out.drain(..most.min(out.len())).collect()
    }
}

impl Wire for Memory {
    fn send(&mut self, id: Id, bytes: &[u8]) {
        if let Some(out) = self.out.get_mut(&id.slot) {
            out.extend_from_slice(bytes);
        }
    }
    fn backlog(&mut self, id: Id) -> usize {
        self.out.get(&id.slot).map_or(0, Vec::len)
    }
    fn close(&mut self, id: Id) {
        self.out.remove(&id.slot);
        self.gone.push(id.slot);
    }
    fn abort(&mut self, id: Id) {
        self.close(id);
    }
    fn do_not_probe(&mut self, _: Id) {}
    fn probe_within(&mut self, _: Id, _: Duration) {}
    fn finish(&mut self, id: Id) {
        self.finished.push(id.slot);
    }
    fn resume(&mut self, id: Id) {
        self.resumed.push(id.slot);
    }
    fn connect(&mut self, address: &Address, _: Option<net::TlsClient>, _: Duration) -> Id {
        let slot = self.open();
        self.connecting.push((slot, address.clone()));
        id(slot)
    }
    fn now(&self) -> Instant {
        start() + self.passed
    }
}

/// A server that answers GET with its key, MGET with its keys and DEL with the number of its keys,
/// and knows transactions.
#[derive(Default)]
struct FakeServer {
    input: Vec<u8>,
    queued: Option<Vec<Vec<u8>>>,
    replies: Vec<u8>,
    /// Bytes of them that the hub has seen and not taken: what it sees only grows.
    shown: usize,
    /// The hub does not want to read.
    is_held: bool,
}

impl FakeServer {
    fn take(&mut self, bytes: &[u8]) {
        self.input.extend_from_slice(bytes);
        loop {
            let mut parser = Parser::new();
            let Parsed::Request { consumed } = parser.next(&self.input, LIMITS) else { return };
            let request: Vec<u8> = self.input.drain(..consumed).collect();
            let words: Vec<&[u8]> = parser.words().iter().map(|at| &request[at.clone()]).collect();
            let reply = self.answer(&words);
            self.replies.extend_from_slice(&reply);
        }
    }

    fn answer(&mut self, words: &[&[u8]]) -> Vec<u8> {
        match words[0] {
            b"MULTI" => {
                self.queued = Some(Vec::new());
                return b"+OK\r\n".to_vec();
            }
            b"EXEC" => {
                let queued = self.queued.take().unwrap_or_default();
                let mut out = format!("*{}\r\n", queued.len()).into_bytes();
                queued.iter().for_each(|reply| out.extend_from_slice(reply));
                return out;
            }
            b"DISCARD" => {
                self.queued = None;
                return b"+OK\r\n".to_vec();
            }
            _ => {}
        }
        let mut out = Vec::new();
        match words[0] {
            b"GET" | b"BLPOP" | b"SET" => resp::bulk::push_bulk(&mut out, words[1]),
            b"MGET" => {
                resp::bulk::push_header(&mut out, b'*', words.len() - 1);
                words[1..].iter().for_each(|word| resp::bulk::push_bulk(&mut out, word));
            }
            b"DEL" => raw::push_integer(&mut out, words.len() as i64 - 1),
            b"WATCH" | b"CLIENT" => out.extend_from_slice(b"+OK\r\n"),
            other => panic!("{}", String::from_utf8_lossy(other)),
        }
        match &mut self.queued {
            Some(queued) => {
                queued.push(out);
                b"+QUEUED\r\n".to_vec()
            }
            None => out,
        }
    }
}

/// A client that knows what it has to hear.
struct FakeClient {
    slot: u32,
    /// Requests that the hub has not been shown.
    unsent: Vec<u8>,
    /// What the hub was shown and did not take.
    rest: Vec<u8>,
    is_stalled: bool,
    expected: VecDeque<Vec<u8>>,
    input: Vec<u8>,
    scanner: Scanner,
    heard: usize,
}

struct Chance(u64);

impl Chance {
    fn below(&mut self, most: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 % most as u64) as usize
    }
}

struct World {
    hub: Hub<Front>,
    net: Memory,
    servers: BTreeMap<u32, FakeServer>,
    clients: Vec<FakeClient>,
    chance: Chance,
    made: usize,
}

fn pool() -> Pool {
    let server = |n: u16| Server {
        address: Address::Tcp("10.0.0.1".into(), n),
        member: Member { name: format!("s{n}"), weight: 1 },
    };
    let mut pool = Pool::new("p", PoolKind::Servers((1..=3).map(server).collect()));
    pool.timeout = Some(Duration::from_millis(500));
    pool.keys.tag = Some(*b"{}");
    pool
}

impl World {
    fn new(seed: u64, pool: Pool) -> World {
        static COMMANDS: OnceLock<Arc<Commands>> = OnceLock::new();
        let commands = COMMANDS.get_or_init(every_command);
        let common = Common::new(commands, vec![Some(Shared::new(pool))], |_| {});
        World {
            hub: Hub::new(&common),
            net: Memory::default(),
            servers: BTreeMap::new(),
            clients: Vec::new(),
            chance: Chance(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1),
            made: 0,
        }
    }

    fn client(&mut self) {
        let slot = self.net.open();
        self.hub.accepted(&mut self.net, id(slot), 0, "client");
        self.clients.push(FakeClient {
            slot,
            unsent: Vec::new(),
            rest: Vec::new(),
            is_stalled: false,
            expected: VecDeque::new(),
            input: Vec::new(),
            scanner: Scanner::new(ReplyLimits::PEER),
            heard: 0,
        });
    }

    fn tag(&mut self) -> Vec<u8> {
        self.made += 1;
        let size = if self.chance.below(9) == 0 { self.chance.below(3000) } else { 3 };
        format!("{}:{}", self.made, "x".repeat(size)).into_bytes()
    }

    /// Lets a client make some requests.
    fn ask(&mut self, at: usize) {
        let (mut requests, mut expected) = (Vec::new(), Vec::new());
        let tag = self.tag();
        let bulk = |word: &[u8]| {
            let mut out = Vec::new();
            resp::bulk::push_bulk(&mut out, word);
            out
        };
        match self.chance.below(10) {
            0 => {
                let tags: Vec<Vec<u8>> = (0..5).map(|_| self.tag()).collect();
                let mut words: Vec<&[u8]> = vec![b"MGET"];
                words.extend(tags.iter().map(Vec::as_slice));
                raw::push_request(&mut requests, &words);
                let mut reply = b"*5\r\n".to_vec();
                tags.iter().for_each(|tag| reply.extend(bulk(tag)));
                expected.push(reply);
            }
            1 => {
                let tags: Vec<Vec<u8>> = (0..3).map(|_| self.tag()).collect();
                raw::push_request(&mut requests, &[b"DEL", &tags[0], &tags[1], &tags[2]]);
                expected.push(b":3\r\n".to_vec());
            }
            2 => {
                let key = [b"{t}", &tag[..]].concat();
                let words: [&[&[u8]]; 4] =
                    [&[b"WATCH", &key], &[b"MULTI"], &[b"GET", &key], &[b"EXEC"]];
                words.iter().for_each(|words| raw::push_request(&mut requests, words));
                expected.push(b"+OK\r\n".to_vec());
                expected.push(b"+OK\r\n".to_vec());
                expected.push(b"+QUEUED\r\n".to_vec());
                expected.push([b"*1\r\n".to_vec(), bulk(&key)].concat());
            }
            3 => {
                raw::push_request(&mut requests, &[b"BLPOP", &tag, b"0"]);
                expected.push(bulk(&tag));
            }
            4 => {
                let value = vec![b'v'; self.chance.below(4000)];
                raw::push_request(&mut requests, &[b"SET", &tag, &value]);
                expected.push(bulk(&tag));
            }
            5 => {
                requests.extend_from_slice(b"PING\r\n");
                expected.push(b"+PONG\r\n".to_vec());
            }
            _ => {
                raw::push_request(&mut requests, &[b"GET", &tag]);
                expected.push(bulk(&tag));
            }
        }
        let client = &mut self.clients[at];
        client.unsent.extend(requests);
        client.expected.extend(expected);
    }

    /// Shows the hub some bytes of a client.
    fn feed(&mut self, at: usize, most: usize) {
        let client = &mut self.clients[at];
        if client.is_stalled {
            return;
        }
        let take = most.min(client.unsent.len());
        client.rest.extend(client.unsent.drain(..take));
        if client.rest.is_empty() {
            return;
        }
        let done = self.hub.data(&mut self.net, id(client.slot), &client.rest);
        client.rest.drain(..done.bytes);
        client.is_stalled = done.stall != Stall::None;
    }

    /// Compares what a client has heard with what it has to hear.
    fn hear(&mut self, at: usize) {
        let client = &mut self.clients[at];
        client.input.extend(self.net.take(client.slot, usize::MAX));
        while let Ok(Scanned::Reply { len }) = client.scanner.scan(&client.input) {
            let reply: Vec<u8> = client.input.drain(..len).collect();
            let expected = client.expected.pop_front().expect("a reply to no request");
            // A lost connection counts as a change of watched keys.
            let is_given_up = reply == b"*-1\r\n" && expected.starts_with(b"*1\r\n");
            let is_error = reply.starts_with(b"-NOREPLY ") || reply.starts_with(b"-EXECABORT");
            if !is_error && !is_given_up {
                // After a part has failed, EXEC without MULTI is an error of the proxy's own.
                assert_eq!(
                    String::from_utf8_lossy(&reply),
                    String::from_utf8_lossy(&expected),
                    "client {at}"
                );
            }
            client.heard += 1;
        }
    }

    /// Moves bytes between the hub and a server.
    fn serve(&mut self, slot: u32, most: usize) {
        let asked = self.net.take(slot, most);
        let Some(server) = self.servers.get_mut(&slot) else { return };
        server.take(&asked);
        let len = server.shown.saturating_add(most).min(server.replies.len());
        if len == 0 || server.is_held {
            return;
        }
        // The driver keeps what the hub has not taken; here the server does.
        let done = self.hub.data(&mut self.net, id(slot), &server.replies[..len]);
        server.replies.drain(..done.bytes);
        server.shown = len - done.bytes;
        server.is_held = done.stall == Stall::Held;
    }

    fn connect_all(&mut self) {
        for (slot, _) in std::mem::take(&mut self.net.connecting) {
            if self.net.out.contains_key(&slot) {
                self.servers.insert(slot, FakeServer::default());
                self.hub.connected(&mut self.net, id(slot));
            }
        }
    }

    fn settle_turn(&mut self) {
        self.hub.end_of_turn(&mut self.net);
        for slot in std::mem::take(&mut self.net.gone) {
            self.servers.remove(&slot);
            self.clients.retain(|client| client.slot != slot);
        }
        for slot in std::mem::take(&mut self.net.resumed) {
            if let Some(server) = self.servers.get_mut(&slot) {
                server.is_held = false;
            }
            if let Some(at) = self.clients.iter().position(|client| client.slot == slot) {
                self.clients[at].is_stalled = false;
                self.feed(at, 0);
            }
        }
        for slot in std::mem::take(&mut self.net.finished) {
            if let Some(at) = self.clients.iter().position(|client| client.slot == slot) {
                self.hear(at);
                self.clients.remove(at);
                self.hub.closed(&mut self.net, id(slot), None);
                self.net.out.remove(&slot);
            }
        }
    }

    fn fault(&mut self) {
        let slots: Vec<u32> = self.servers.keys().copied().collect();
        match self.chance.below(3) {
            0 if !slots.is_empty() => {
                let slot = slots[self.chance.below(slots.len())];
                self.servers.remove(&slot);
                self.hub.closed(&mut self.net, id(slot), Some("connection reset"));
                self.net.out.remove(&slot);
            }
            1 if self.clients.len() > 1 => {
                let at = self.chance.below(self.clients.len());
                let gone = self.clients.remove(at);
                self.hub.closed(&mut self.net, id(gone.slot), None);
                self.net.out.remove(&gone.slot);
                self.client();
            }
            _ => self.net.passed += Duration::from_millis(200),
        }
    }

    /// Runs without faults until all that was asked is answered.
    fn finish(&mut self) {
        for _ in 0..10_000 {
            self.connect_all();
            for at in (0..self.clients.len()).rev() {
                self.feed(at, usize::MAX);
            }
            for slot in self.servers.keys().copied().collect::<Vec<u32>>() {
                self.serve(slot, usize::MAX);
            }
            self.net.passed += Duration::from_millis(1);
            self.hub.tick(&mut self.net);
            self.settle_turn();
            (0..self.clients.len()).for_each(|at| self.hear(at));
            if self.clients.iter().all(|client| client.expected.is_empty()) {
                return;
            }
        }
        panic!("a request is never answered");
    }
}

fn simulate(seed: u64, faults: bool, pool: Pool) -> usize {
    let mut world = World::new(seed, pool);
    (0..6).for_each(|_| world.client());
    for _ in 0..400 {
        while world.clients.len() < 6 {
            world.client();
        }
        let at = world.chance.below(world.clients.len());
        if world.chance.below(3) > 0 {
            world.ask(at);
        }
        let most = 1 + world.chance.below(400);
        world.feed(at, most);
        if world.chance.below(2) == 0 {
            world.connect_all();
        }
        let slots: Vec<u32> = world.servers.keys().copied().collect();
        if !slots.is_empty() {
            let slot = slots[world.chance.below(slots.len())];
            let most = 1 + world.chance.below(900);
            world.serve(slot, most);
        }
        if faults && world.chance.below(12) == 0 {
            world.fault();
        }
        if world.chance.below(4) == 0 {
            world.hub.tick(&mut world.net);
        }
        world.settle_turn();
        (0..world.clients.len()).for_each(|at| world.hear(at));
    }
    world.finish();
    world.clients.iter().map(|client| client.heard).sum()
}

#[test]
fn every_reply_belongs_to_its_request() {
    let heard: usize = (1..=60).map(|seed| simulate(seed, false, pool())).sum();
    assert!(heard > 10_000, "{heard}");
}

#[test]
fn every_reply_belongs_to_its_request_under_faults() {
    let heard: usize = (1..=200).map(|seed| simulate(seed, true, pool())).sum();
    assert!(heard > 10_000, "{heard}");
}

/// A pool that passes on what is longer than a few hundred bytes, and keeps little.
fn narrow_pool() -> Pool {
    let mut pool = pool();
    pool.limits.long = 400;
    pool.limits.client_backlog = 1000;
    pool
}

#[test]
fn every_reply_belongs_to_its_request_though_it_is_passed_on_in_parts() {
    let heard: usize = (1..=60).map(|seed| simulate(seed, false, narrow_pool())).sum();
    assert!(heard > 10_000, "{heard}");
    let heard: usize = (1..=200).map(|seed| simulate(seed, true, narrow_pool())).sum();
    assert!(heard > 10_000, "{heard}");
}

/// Connects the only connection that the hub has begun. The name is accepted.
fn connect_one(world: &mut World) -> u32 {
    let (slot, _) = world.net.connecting.pop().expect("it connects");
    world.hub.connected(&mut world.net, id(slot));
    assert!(!world.net.take(slot, usize::MAX).is_empty(), "the name");
    world.hub.data(&mut world.net, id(slot), b"+OK\r\n");
    slot
}

#[test]
fn replies_to_clients_that_have_gone_hold_up_others_for_a_while_only() {
    let mut pool = pool();
    pool.kind = PoolKind::Single(Server {
        address: Address::Tcp("10.0.0.1".into(), 1),
        member: Member { name: "s".into(), weight: 1 },
    });
    let mut world = World::new(1, pool);
    let (first, second) = (world.net.open(), world.net.open());
    for client in [first, second] {
        world.hub.accepted(&mut world.net, id(client), 0, "client");
    }
    let get = raw::request(&[b"GET", b"long"]);
    world.hub.data(&mut world.net, id(first), &get.repeat(100));
    world.hub.data(&mut world.net, id(second), &get);
    let link = connect_one(&mut world);
    world.hub.closed(&mut world.net, id(first), None);
    let mut reply = Vec::new();
    resp::bulk::push_bulk(&mut reply, &vec![b'v'; 1 << 20]);
    let mut replies = 0;
    while !world.net.gone.contains(&link) {
        let begin = 100_000;
        let done = world.hub.data(&mut world.net, id(link), &reply[..begin]);
        world.hub.data(&mut world.net, id(link), &reply[done.bytes..]);
        world.hub.end_of_turn(&mut world.net);
        replies += 1;
        assert!(replies < 100, "the other client waits for all of them");
    }
    assert!(replies > 60, "a few megabytes are read");
    let told = world.net.take(second, usize::MAX);
    assert!(told.starts_with(b"-NOREPLY server 10.0.0.1:1: clients that have left"), "{told:?}");
    // The server has not failed, and serves on.
    world.hub.data(&mut world.net, id(second), &get);
    let link = connect_one(&mut world);
    assert_eq!(world.net.take(link, usize::MAX), get);
    let failures = &world.hub.pools[0].shared.failures[0];
    assert_eq!(failures.load(std::sync::atomic::Ordering::SeqCst), 0);
}

#[test]
fn a_server_that_sends_without_end_is_read_in_turns_with_others() {
    let mut world = World::new(1, pool());
    let client = world.net.open();
    world.hub.accepted(&mut world.net, id(client), 0, "client");
    world.hub.data(&mut world.net, id(client), &raw::request(&[b"GET", b"a"]));
    let link = connect_one(&mut world);
    let mut piece = b"*1000000000\r\n".to_vec();
    piece.extend(b":1\r\n".repeat(16_384));
    for _ in 0..3 {
        let mut shown = 0;
        while !matches!(world.hub.data(&mut world.net, id(link), &piece).stall, Stall::Held) {
            shown += piece.len();
            assert!(shown < 2 << 20, "it is read on and on");
            world.net.take(client, usize::MAX);
            piece = b":1\r\n".repeat(16_384);
        }
        world.hub.end_of_turn(&mut world.net);
        assert!(std::mem::take(&mut world.net.resumed).contains(&link));
    }
}

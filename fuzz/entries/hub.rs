//! A thread of the proxy between hostile clients and hostile servers: whatever both send, in
//! whatever pieces, nothing panics, and what each client hears is RESP.

use forward::hub::{Commands, Common, Hub};
use forward::placement::Member;
use forward::pool::Shared;
use forward::settings::{Address, Login, Pool, PoolKind, Server};
use forward::wire::{Id, Stall, Wire};
use proxy::policy::Front;
use resp::decode::{Scanned, Scanner};
use resp::token::ReplyLimits;
use std::collections::BTreeMap;
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

const LONGEST: usize = 8 * 1024;
const CLIENTS: u8 = 3;

/// One end of a connection.
#[derive(Default)]
struct End {
    is_server: bool,
    /// What the hub was shown and has not taken.
    input: Vec<u8>,
    is_stalled: bool,
    /// What the hub has sent.
    output: Vec<u8>,
}

/// A network in memory.
struct Memory {
    began: Instant,
    passed: Duration,
    next: u32,
    ends: BTreeMap<u32, End>,
    connecting: Vec<u32>,
    finished: Vec<u32>,
    resumed: Vec<u32>,
}

fn id(slot: u32) -> Id {
    Id { slot, generation: 1 }
}

impl Memory {
    fn open(&mut self, is_server: bool) -> u32 {
        self.next += 1;
        self.ends.insert(self.next, End { is_server, ..End::default() });
        self.next
    }

    /// The numbers of open connections.
    fn open_ends(&self, is_server: bool) -> Vec<u32> {
        let some = self.ends.iter().filter(|(_, end)| end.is_server == is_server);
        some.map(|(&slot, _)| slot).collect()
    }
}

impl Wire for Memory {
    fn send(&mut self, id: Id, bytes: &[u8]) {
        if let Some(end) = self.ends.get_mut(&id.slot) {
            end.output.extend_from_slice(bytes);
        }
    }
    fn backlog(&mut self, _: Id) -> usize {
        0
    }
    fn close(&mut self, id: Id) {
        self.ends.remove(&id.slot);
    }
    fn abort(&mut self, id: Id) {
        self.close(id);
    }
    fn finish(&mut self, id: Id) {
        self.finished.push(id.slot);
    }
    fn do_not_probe(&mut self, _: Id) {}
    fn probe_within(&mut self, _: Id, _: Duration) {}
    fn resume(&mut self, id: Id) {
        self.resumed.push(id.slot);
    }
    fn connect(&mut self, _: &Address, _: Option<net::TlsClient>, _: Duration) -> Id {
        let slot = self.open(true);
        self.connecting.push(slot);
        id(slot)
    }
    fn now(&self) -> Instant {
        self.began + self.passed
    }
}

/// A pool of two servers that share keys, or of a cluster whose slots they share.
fn shared(is_cluster: bool, needs_password: bool) -> Arc<Shared> {
    let address = |port| Address::Tcp("10.0.0.1".into(), port);
    let server = |port: u16| Server {
        address: address(port),
        member: Member { name: format!("s{port}"), weight: 1 },
    };
    let kind = match is_cluster {
        true => PoolKind::Cluster { seeds: vec![address(1)] },
        false => PoolKind::Servers(vec![server(1), server(2)]),
    };
    let mut pool = Pool::new("p", kind);
    pool.timeout = Some(Duration::from_millis(500));
    pool.limits.long = 400;
    pool.limits.client_backlog = 1000;
    if needs_password {
        pool.client_login = Some(Login { user: None, password: "secret".into() });
    }
    let shared = Shared::new(pool);
    if is_cluster {
        shared.change(|topology| {
            topology.servers = vec![address(1).into(), address(2).into()];
            topology.ejected = vec![None, None];
            topology.slots = (0..route::slots::SLOTS).map(|slot| Some((slot % 2) as u16)).collect();
        });
    }
    shared
}

struct World {
    hub: Hub<Front>,
    net: Memory,
}

impl World {
    fn accept(&mut self) {
        let slot = self.net.open(false);
        self.hub.accepted(&mut self.net, id(slot), 0, "client");
    }

    /// Shows the hub more input of a connection.
    fn show(&mut self, slot: u32, bytes: &[u8]) {
        let Some(end) = self.net.ends.get_mut(&slot) else { return };
        end.input.extend_from_slice(bytes);
        if end.is_stalled || end.input.is_empty() {
            return;
        }
        let input = std::mem::take(&mut end.input);
        let done = self.hub.data(&mut self.net, id(slot), &input);
        assert!(done.bytes <= input.len());
        if let Some(end) = self.net.ends.get_mut(&slot) {
            end.input = input[done.bytes..].to_vec();
            end.is_stalled = done.stall != Stall::None;
        }
    }

    fn close(&mut self, slot: u32) {
        if self.net.ends.remove(&slot).is_some() {
            self.net.connecting.retain(|&other| other != slot);
            self.hub.closed(&mut self.net, id(slot), Some("reset"));
        }
    }

    fn end_turn(&mut self) {
        self.hub.end_of_turn(&mut self.net);
        for slot in std::mem::take(&mut self.net.finished) {
            self.close(slot);
        }
        for slot in std::mem::take(&mut self.net.resumed) {
            if let Some(end) = self.net.ends.get_mut(&slot) {
                end.is_stalled = false;
                self.show(slot, b"");
            }
        }
    }

    fn step(&mut self, what: u8, bytes: &[u8]) {
        let (what, who) = (what & 7, usize::from(what >> 3));
        let pick = |ends: Vec<u32>| (!ends.is_empty()).then(|| ends[who % ends.len()]);
        match what {
            0..3 => {
                if let Some(slot) = pick(self.net.open_ends(false)) {
                    self.show(slot, bytes);
                }
            }
            3..5 => {
                let ends = self.net.open_ends(true);
                let ready = ends.into_iter().filter(|slot| !self.net.connecting.contains(slot));
                if let Some(slot) = pick(ready.collect()) {
                    self.show(slot, bytes);
                }
            }
            5 => {
                for slot in std::mem::take(&mut self.net.connecting) {
                    if self.net.ends.contains_key(&slot) {
                        self.hub.connected(&mut self.net, id(slot));
                        // To the connection's name.
                        self.show(slot, b"+OK\r\n");
                    }
                }
            }
            6 => {
                self.net.passed += Duration::from_millis(10 * bytes.len() as u64);
                self.hub.tick(&mut self.net);
            }
            _ => {
                if let Some(slot) = pick(self.net.open_ends(who % 2 == 0)) {
                    self.close(slot);
                }
                if self.net.open_ends(false).is_empty() {
                    self.accept();
                }
            }
        }
        self.end_turn();
    }

    /// What clients have heard so far is RESP.
    fn check_output(&self) {
        for end in self.net.ends.values().filter(|end| !end.is_server) {
            let (mut at, mut scanner) = (0, Scanner::new(ReplyLimits::PEER));
            loop {
                match scanner.scan(&end.output[at..]) {
                    Ok(Scanned::Reply { len }) => at += len,
                    Ok(Scanned::Incomplete { .. }) => break,
                    Err(why) => panic!("{why:?}: {}", end.output[at..].escape_ascii()),
                }
            }
        }
    }
}

/// The first byte says what is configured. Then come steps: what happens, a length, and as many
/// bytes.
pub fn check(data: &[u8]) {
    static COMMANDS: OnceLock<Arc<Commands>> = OnceLock::new();
    let Some((&first, mut rest)) = data.split_first() else { return };
    if data.len() > LONGEST {
        return;
    }
    let commands = COMMANDS.get_or_init(|| {
        let rows: Vec<_> = commands::rows().iter().map(|row| row.described()).collect();
        Commands::new(&rows, commands::REDIS_VERSION)
    });
    let pools = vec![Some(shared(first & 1 != 0, first & 2 != 0))];
    let common = Common::new(commands, pools, |_| {});
    let net = Memory {
        began: Instant::now(),
        passed: Duration::ZERO,
        next: 0,
        ends: BTreeMap::new(),
        connecting: Vec::new(),
        finished: Vec::new(),
        resumed: Vec::new(),
    };
    let mut world = World { hub: Hub::new(&common), net };
    (0..CLIENTS).for_each(|_| world.accept());
    while let [what, len, bytes @ ..] = rest {
        let (now, later) = bytes.split_at(bytes.len().min(usize::from(*len)));
        world.step(*what, now);
        rest = later;
    }
    world.check_output();
}

//! Servers are killed or hang, and links are cut, at each point of a synchronisation, while clients
//! write. Afterwards offsets meet, contents are equal, and no write that a primary with
//! `appendfsync always` has acknowledged is lost.
//!
//! By default a few rounds for each pair of servers; `DUNLIN_SYNC_ROUNDS=60` (`./test sync-faults
//! 60`) makes more. `DUNLIN_SEED` repeats a run: its faults and points, not the instants of its
//! threads.

use harness::client::{Client, ask, ok};
use harness::environment::{new_seed, variable};
use harness::gate::{Gate, Point};
use harness::info::field;
use harness::replicas::{compare, is_linked, start, try_write, until_linked};
use harness::rng::Rng;
use harness::sentinel::hang;
use harness::server::{Program, Server};
use harness::wait::eventually;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicI64, Ordering::*};
use std::thread::{self, JoinHandle};
use std::time::Duration;

/// Counts what was acknowledged.
const COUNTER: &str = "acknowledged";

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Fault {
    KillPrimary,
    KillReplica,
    HangPrimary,
    HangReplica,
    Cut,
}

const FAULTS: [Fault; 5] =
    [Fault::KillPrimary, Fault::KillReplica, Fault::HangPrimary, Fault::HangReplica, Fault::Cut];

/// Clients that write, and connect again if they must.
struct Writers {
    ends: Arc<AtomicBool>,
    acknowledged: Arc<AtomicI64>,
    threads: Vec<JoinHandle<()>>,
}

impl Writers {
    fn start(address: SocketAddr, seed: u64) -> Writers {
        let (ends, acknowledged) = (Arc::<AtomicBool>::default(), Arc::<AtomicI64>::default());
        let threads = (0..3)
            .map(|number| {
                let (ends, acknowledged) = (Arc::clone(&ends), Arc::clone(&acknowledged));
                thread::spawn(move || {
                    let mut rng = Rng::new(seed * 10 + number);
                    while !ends.load(Relaxed) {
                        let Ok(mut client) = Client::connect(address) else { continue };
                        // An error means that the server is gone: the next round connects again.
                        while !ends.load(Relaxed)
                            && step(&mut client, &mut rng, (number == 0).then_some(&acknowledged))
                                .is_ok()
                        {}
                    }
                })
            })
            .collect();
        Writers { ends, acknowledged, threads }
    }

    /// Ends them; what was acknowledged.
    fn end(self) -> i64 {
        self.ends.store(true, Relaxed);
        for thread in self.threads {
            thread.join().expect("it does not panic");
        }
        self.acknowledged.load(Relaxed)
    }
}

fn step(
    client: &mut Client,
    rng: &mut Rng,
    acknowledged: Option<&Arc<AtomicI64>>,
) -> std::io::Result<()> {
    try_write(client, rng)?;
    if let Some(acknowledged) = acknowledged {
        client.command(&["SELECT", "0"])?;
        if let Some(number) = client.command(&["INCR", COUNTER])?.integer() {
            acknowledged.store(number, Relaxed);
        }
    }
    Ok(())
}

/// A primary, a replica behind a gate, and a replica of that one.
struct Fleet {
    primary: Server,
    replica: Server,
    last: Server,
    gate: Gate,
    rng: Rng,
}

impl Fleet {
    fn start(programs: [&Program; 3], seed: u64) -> Fleet {
        let durable = ["--appendonly", "yes", "--appendfsync", "always"];
        let primary = start(programs[0], &durable);
        let (replica, last) = (start(programs[1], &[]), start(programs[2], &[]));
        let gate = Gate::to(primary.address()).expect("a port");
        let mut fleet = Fleet { primary, replica, last, gate, rng: Rng::new(seed) };
        let mut client = fleet.primary.client();
        (0..2000).for_each(|_| try_write(&mut client, &mut fleet.rng).expect("a reply"));
        fleet.follow();
        let port = fleet.replica.port().to_string();
        ok(&mut fleet.last.client(), &["REPLICAOF", "127.0.0.1", &port]);
        until_linked(&fleet.replica);
        fleet
    }

    fn follow(&self) {
        let port = self.gate.port().to_string();
        ok(&mut self.replica.client(), &["REPLICAOF", "127.0.0.1", &port]);
    }

    /// Has the replica begin from nothing: what it writes now makes its history one of its own.
    fn diverge(&self) {
        let mut client = self.replica.client();
        ok(&mut client, &["REPLICAOF", "NO", "ONE"]);
        ok(&mut client, &["SET", "k1", "diverged"]);
        self.follow();
    }

    fn point(&mut self) -> Point {
        match self.rng.below(6) {
            0 => Point::Answer,
            1 => Point::Header,
            2 => Point::End,
            3 => Point::Snapshot(self.rng.below(20_000)),
            _ => Point::Stream(self.rng.below(100_000)),
        }
    }

    /// Does it while the gate holds, if it does, and mends it.
    fn strike(&mut self, fault: Fault) {
        match fault {
            Fault::KillPrimary => {
                self.primary.kill().expect("it was there");
                self.gate.release();
                self.primary.start_again().expect("it starts");
            }
            Fault::KillReplica => {
                self.replica.kill().expect("it was there");
                self.gate.release();
                self.replica.start_again().expect("it starts");
                self.follow();
            }
            Fault::HangPrimary | Fault::HangReplica => {
                let time = Duration::from_millis(self.rng.between(1, 400) as u64);
                let is_primary = fault == Fault::HangPrimary;
                let server = if is_primary { &self.primary } else { &self.replica };
                hang(server, true).expect("it runs");
                self.gate.release();
                // This long is the fault itself.
                thread::sleep(time);
                hang(server, false).expect("it runs");
            }
            Fault::Cut => {
                self.gate.cut();
                self.gate.release();
            }
        }
    }

    /// One fault at one point of a synchronisation.
    fn round(&mut self, seed: u64) {
        let (point, fault) = (self.point(), *self.rng.pick(&FAULTS));
        println!("{fault:?} at {point:?}");
        let writers = Writers::start(self.primary.address(), seed);
        self.gate.hold_at(point);
        self.diverge();
        self.gate.until_held();
        self.strike(fault);
        until_linked(&self.replica);
        let acknowledged = writers.end();
        let counted = ask(&mut self.primary.client(), &["GET", COUNTER]).shown();
        let counted: i64 = counted.parse().unwrap_or(0);
        assert!(counted >= acknowledged, "{acknowledged} acknowledged, {counted} there");
        self.compare();
    }

    fn compare(&self) {
        until_linked(&self.replica);
        until_linked(&self.last);
        compare(&self.primary, &self.replica);
        compare(&self.primary, &self.last);
    }

    /// The replica is promoted while something happens to its primary, which then follows it, and
    /// back.
    fn promotion(&mut self, seed: u64) {
        let fault = *self.rng.pick(&[Fault::KillPrimary, Fault::HangPrimary, Fault::Cut]);
        println!("{fault:?} at a promotion");
        let writers = Writers::start(self.primary.address(), seed);
        let mut client = self.replica.client();
        thread::scope(|scope| {
            let promotion = scope.spawn(|| ok(&mut client, &["REPLICAOF", "NO", "ONE"]));
            self.strike(fault);
            promotion.join().expect("it is promoted");
        });
        writers.end();
        let port = self.replica.port().to_string();
        ok(&mut self.primary.client(), &["REPLICAOF", "127.0.0.1", &port]);
        until_linked(&self.primary);
        assert_eq!(field(&mut client, "role"), "master");
        (0..200).for_each(|_| try_write(&mut client, &mut self.rng).expect("a reply"));
        until_linked(&self.last);
        compare(&self.replica, &self.primary);
        compare(&self.replica, &self.last);
        ok(&mut self.primary.client(), &["REPLICAOF", "NO", "ONE"]);
        self.follow();
        let mut client = self.replica.client();
        eventually("it follows again", || is_linked(&mut client));
        self.compare();
    }
}

/// Rounds with these servers as primary, replica, and replica of the replica.
fn survives(programs: [&Program; 3], name: &str) {
    let seed = variable("DUNLIN_SEED").unwrap_or_else(new_seed);
    let rounds = variable("DUNLIN_SYNC_ROUNDS").unwrap_or(2);
    println!("{name}: DUNLIN_SEED={seed} DUNLIN_SYNC_ROUNDS={rounds}");
    let mut fleet = Fleet::start(programs, seed);
    for round in 0..rounds {
        fleet.round(seed * 1000 + round);
        if round % 4 == 1 {
            fleet.promotion(seed * 1000 + 500 + round);
        }
    }
}

fn reference() -> Program {
    Program::reference().expect("there is a reference")
}

fn redis_7() -> Program {
    Program::redis_7().expect("there is Redis 7")
}

#[test]
fn dunlins() {
    let dunlin = Program::under_test();
    survives([&dunlin, &dunlin, &dunlin], "Dunlins");
}

#[test]
fn below_valkey() {
    let dunlin = Program::under_test();
    survives([&reference(), &dunlin, &reference()], "Valkey, Dunlin, Valkey");
}

#[test]
fn below_redis() {
    let (dunlin, redis) = (Program::under_test(), reference().beside("redis-server"));
    survives([&redis, &dunlin, &dunlin], "Redis 8, Dunlin, Dunlin");
}

#[test]
fn below_redis_7() {
    let (dunlin, redis) = (Program::under_test(), redis_7());
    survives([&redis, &dunlin, &redis], "Redis 7, Dunlin, Redis 7");
}

#[test]
fn above_valkey() {
    let dunlin = Program::under_test();
    survives([&dunlin, &reference(), &dunlin], "Dunlin, Valkey, Dunlin");
}

#[test]
fn above_redis() {
    let (dunlin, redis) = (Program::under_test(), reference().beside("redis-server"));
    survives([&dunlin, &redis, &redis], "Dunlin, Redis 8, Redis 8");
}

#[test]
fn above_redis_7() {
    let (dunlin, redis) = (Program::under_test(), redis_7());
    survives([&dunlin, &redis, &dunlin], "Dunlin, Redis 7, Dunlin");
}

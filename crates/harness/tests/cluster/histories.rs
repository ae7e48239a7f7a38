//! Histories of registers while servers and etcds are killed, stand still, and come back: each must be explained by one
//! order of all operations, so no confirmed write is lost, no read is stale, and no two primaries confirm.
//!
//! `DUNLIN_CLUSTER_SECONDS` sets how long faults go on (15 by default), `DUNLIN_SEED` which they are.

use crate::faults::{QUORUM, shard_of};
use harness::client::{Client, ask, ok};
use harness::cluster::{Etcd, node_at};
use harness::environment;
use harness::history::{Action, Recorder, State};
use harness::reply::{Protocol, Reply};
use harness::rng::Rng;
use harness::server::{Server, signal};
use harness::wait::eventually;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::SeqCst};
use std::thread;
use std::time::{Duration, Instant};

const WORKERS: usize = 6;

/// How many registers are in use at a time.
const REGISTERS: usize = 4;

/// How long a worker waits for a reply.
const PATIENCE: Duration = Duration::from_secs(2);

/// Longer than a lease.
const STANDSTILL: Duration = Duration::from_secs(6);

/// What the workers share.
struct Work {
    addresses: Vec<SocketAddr>,
    recorder: Recorder,
    began: Instant,
    next: AtomicU64,
    confirmed: AtomicU64,
    is_over: AtomicBool,
}

impl Work {
    /// Registers are left after some seconds, so that a history stays short.
    fn register(&self, rng: &mut Rng) -> String {
        let round = self.began.elapsed().as_secs() / 3;
        format!("r{round}:{}", rng.below(REGISTERS))
    }

    fn connect(&self, rng: &mut Rng) -> Option<Client> {
        let address = self.addresses[rng.below(self.addresses.len())];
        let client = Client::connect(address).ok()?;
        client.stream().set_read_timeout(Some(PATIENCE)).ok()?;
        Some(client)
    }

    fn run(&self, worker: usize, mut rng: Rng) {
        let mut client = None;
        while !self.is_over.load(SeqCst) {
            let Some(connection) = client.as_mut() else {
                client = self.connect(&mut rng);
                continue;
            };
            let register = self.register(&mut rng);
            let is_well = match rng.below(2) {
                0 => self.write(worker, connection, &register),
                _ => self.read(worker, connection, &register),
            };
            if !is_well {
                client = None;
            }
        }
    }

    fn write(&self, worker: usize, client: &mut Client, register: &str) -> bool {
        let value = self.next.fetch_add(1, SeqCst);
        let called = self.recorder.now();
        let reply = client.command(&["SET", register, &value.to_string()]);
        let operation = (register.to_owned(), State::String(None), Action::Set(value));
        match reply {
            Ok(Reply::Simple(_)) => {
                self.recorder.record(worker, called, [operation]);
                self.confirmed.fetch_add(1, SeqCst);
                true
            }
            Ok(Reply::Error(text)) if text.starts_with(b"CLUSTERDOWN") => true,
            // It may have run, whatever the error is.
            other => {
                self.recorder.record_unknown(worker, called, operation);
                other.is_ok()
            }
        }
    }

    fn read(&self, worker: usize, client: &mut Client, register: &str) -> bool {
        let called = self.recorder.now();
        let value = match client.command(&["GET", register]) {
            Ok(Reply::Bulk(text)) => String::from_utf8_lossy(&text).parse().ok(),
            Ok(Reply::Nil) => None,
            Ok(_) => return true,
            Err(_) => return false,
        };
        let operation = (register.to_owned(), State::String(None), Action::Get(value));
        self.recorder.record(worker, called, [operation]);
        true
    }

    /// Waits until more writes are confirmed.
    fn go_on(&self) {
        let before = self.confirmed.load(SeqCst);
        eventually("writes are confirmed", || self.confirmed.load(SeqCst) > before + 20);
    }
}

/// The node that leads, as it says itself.
fn leader(nodes: &[Server]) -> usize {
    let mut found = None;
    eventually("a node leads", || {
        let leads = |node: &Server| {
            let Ok(mut client) = node.connect(Protocol::Resp2) else { return false };
            let _ = client.stream().set_read_timeout(Some(PATIENCE));
            let info = client.command(&["INFO", "replication"]);
            let text = info.ok().and_then(|info| info.text().map(<[u8]>::to_vec));
            text.is_some_and(|text| String::from_utf8_lossy(&text).contains("role:master"))
        };
        found = nodes.iter().position(leads);
        found.is_some()
    });
    found.unwrap_or_default()
}

/// Waits until all copies are members that have everything, so that two of them are enough for a promotion.
fn until_settled(nodes: &[Server]) {
    eventually("all copies are members", || {
        let Ok(mut client) = nodes[leader(nodes)].connect(Protocol::Resp2) else { return false };
        let _ = client.stream().set_read_timeout(Some(PATIENCE));
        let mut ask = |words: &[&str]| client.command(words).ok();
        // Another node of the cluster may wait.
        ask(&["CLIENT", "CAPA", "cluster", "node"]);
        ask(&["SET", "probe", "1"]);
        let members = ask(&["WAIT", "2", "100"]);
        let info = ask(&["INFO", "replication"]);
        let text = info.and_then(|info| info.text().map(<[u8]>::to_vec)).unwrap_or_default();
        members == Some(Reply::Integer(2))
            && String::from_utf8_lossy(&text).contains("cluster_promotion_copies:2")
    });
}

/// A server is killed, and comes back after some work.
fn kill(node: &mut Server, work: &Work) {
    node.kill().expect("it runs");
    work.go_on();
    node.start_again().expect("it starts");
    shows_one_server(node);
}

/// One fault, and its end. Writes go on while it lasts, except where nothing can.
fn break_something(rng: &mut Rng, nodes: &mut [Server], etcds: &mut [Etcd], work: &Work) {
    let member = rng.below(etcds.len());
    let primary = leader(nodes);
    match rng.below(7) {
        0 => {
            println!("the primary stands still");
            signal(nodes[primary].process_id(), "STOP").expect("it runs");
            thread::sleep(STANDSTILL);
            signal(nodes[primary].process_id(), "CONT").expect("it is there");
        }
        1 => {
            println!("the primary is killed");
            kill(&mut nodes[primary], work);
        }
        2 => {
            println!("a replica is killed");
            let replica = (primary + 1) % nodes.len();
            kill(&mut nodes[replica], work);
        }
        3 => {
            println!("an etcd is killed");
            etcds[member].kill();
            work.go_on();
            etcds[member].start_again();
        }
        4 => {
            println!("an etcd stands still");
            etcds[member].stop();
            work.go_on();
            etcds[member].go_on();
        }
        5 => {
            println!("all etcds stand still");
            etcds.iter().for_each(Etcd::stop);
            thread::sleep(STANDSTILL);
            work.go_on();
            etcds.iter().for_each(Etcd::go_on);
        }
        _ => {
            println!("etcds flap");
            for _ in 0..5 {
                etcds.iter().for_each(Etcd::stop);
                thread::sleep(Duration::from_millis(300 + rng.below(500) as u64));
                etcds.iter().for_each(Etcd::go_on);
                thread::sleep(Duration::from_millis(200 + rng.below(500) as u64));
            }
        }
    }
}

/// Ends the workers, also when something fails.
struct SetAtEnd<'a>(&'a AtomicBool);

impl Drop for SetAtEnd<'_> {
    fn drop(&mut self) {
        self.0.store(true, SeqCst);
    }
}

fn shows_one_server(node: &Server) {
    ok(&mut node.client(), "CONFIG SET cluster-endpoint single");
}

#[test]
fn histories_of_registers_have_one_order_whatever_fails() {
    let time = environment::seconds("DUNLIN_CLUSTER_SECONDS").unwrap_or(Duration::from_secs(15));
    let seed = environment::variable("DUNLIN_SEED").unwrap_or(1);
    println!("seed {seed}");
    let mut rng = Rng::new(seed);
    let mut etcds = Etcd::start_members("histories", 3);
    let coordinator = Etcd::coordinator(&etcds);
    let mut nodes = shard_of((0..3).map(|_| node_at(&coordinator, &QUORUM)).collect());
    nodes.iter().for_each(shows_one_server);
    let work = Work {
        addresses: nodes.iter().map(Server::address).collect(),
        recorder: Recorder::new(),
        began: Instant::now(),
        next: AtomicU64::new(1),
        confirmed: AtomicU64::new(0),
        is_over: AtomicBool::new(false),
    };
    thread::scope(|threads| {
        for worker in 0..WORKERS {
            let (work, rng) = (&work, Rng::new(seed ^ (worker as u64 + 1) << 32));
            threads.spawn(move || work.run(worker, rng));
        }
        let _over = SetAtEnd(&work.is_over);
        while work.began.elapsed() < time {
            work.go_on();
            until_settled(&nodes);
            break_something(&mut rng, &mut nodes, &mut etcds, &work);
        }
        work.go_on();
    });
    // What is there in the end belongs to the histories.
    let mut client = nodes[leader(&nodes)].client();
    eventually("reads are answered", || !ask(&mut client, "GET r0:0").is_error());
    for register in work.recorder.objects() {
        assert!(work.read(WORKERS, &mut client, &register), "{register}");
    }
    let confirmed = work.confirmed.load(SeqCst);
    let count = work.recorder.verdict().unwrap_or_else(|why| panic!("seed {seed}: {why}"));
    println!("{count} operations have one order, {confirmed} confirmed writes among them");
}

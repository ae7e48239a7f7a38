//! Histories of registers while servers and etcds are killed, stand still, and come back: each must
//! be explained by one order of all operations, so no confirmed write is lost, no read is stale,
//! and no two primaries confirm.
//!
//! `DUNLIN_CLUSTER_SECONDS` sets how long faults go on (15 by default), `DUNLIN_SEED` which they
//! are.

use crate::shards::faults::{QUORUM, shard_of};
use harness::client::ok;
use harness::cluster::{Etcd, node_at};
use harness::environment;
use harness::registers::{Registers, leader, until_settled};
use harness::rng::Rng;
use harness::server::{Server, signal};
use std::net::SocketAddr;
use std::thread;
use std::time::Duration;

/// Longer than a lease.
const STANDSTILL: Duration = Duration::from_secs(6);

fn addresses(nodes: &[Server]) -> Vec<SocketAddr> {
    nodes.iter().map(Server::address).collect()
}

/// A server is killed, and comes back after some work.
fn kill(node: &mut Server, work: &Registers) {
    node.kill().expect("it runs");
    work.go_on();
    node.start_again().expect("it starts");
    shows_one_server(node);
}

/// One fault, and its end. Writes go on while it lasts, except where nothing can.
fn break_something(rng: &mut Rng, nodes: &mut [Server], etcds: &mut [Etcd], work: &Registers) {
    let member = rng.below(etcds.len());
    let primary = leader(&addresses(nodes));
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
    let work = Registers::new(addresses(&nodes));
    work.during(seed, || {
        while work.elapsed() < time {
            work.go_on();
            until_settled(&addresses(&nodes));
            break_something(&mut rng, &mut nodes, &mut etcds, &work);
        }
        work.go_on();
    });
    let confirmed = work.confirmed();
    let count = work.verdict().unwrap_or_else(|why| panic!("seed {seed}: {why}"));
    println!("{count} operations have one order, {confirmed} confirmed writes among them");
}

//! `dunlin proxy` on a machine of its own in front of two shards: the proxy or a shard's primary is
//! cut off, and the primary is killed or stands still. One order explains what the proxy's clients
//! saw, and what was confirmed to them is there.
//!
//! `./test proxy-network [SECONDS [SEED]]` does it for longer.

use crate::network::machines::{self, CLIENT, ETCDS, Machines, NODES, PROXY, QUORUM, machine_of};
use harness::client::{Client, ask};
use harness::environment;
use harness::ledger::Ledger;
use harness::network::Network;
use harness::proxy::Proxy;
use harness::registers::{Registers, leader};
use harness::reply::Reply;
use harness::rng::Rng;
use harness::server::{Program, free_port, signal};
use harness::wait::eventually;
use std::net::SocketAddr;
use std::thread;
use std::time::{Duration, Instant};

const SHARDS: usize = 2;

/// Longer than a lease.
const LONG: Duration = Duration::from_secs(6);

/// What happens while clients use the registers.
#[derive(Clone, Copy, Debug)]
enum Fault {
    /// The primary is alone; another takes over.
    PrimaryCutOff,
    /// The same, but it still hears all others.
    PrimaryHeardByNone,
    PrimaryKilled,
    PrimaryStopped,
    /// No other takes over, and no request can be served.
    ProxyCutOff,
    ProxyHearsNoPrimary,
    ReplicaCutOffFromProxy,
}

use Fault::*;

const FAULTS: [Fault; 7] = [
    PrimaryCutOff,
    PrimaryHeardByNone,
    PrimaryKilled,
    PrimaryStopped,
    ProxyCutOff,
    ProxyHearsNoPrimary,
    ReplicaCutOffFromProxy,
];

/// A short run has one of those in which another node takes over, and one of the others.
const SHORT: [&[Fault]; 2] =
    [&[PrimaryCutOff, PrimaryHeardByNone, PrimaryKilled], &[ProxyCutOff, ProxyHearsNoPrimary]];

impl Fault {
    /// Whether writes have to be confirmed while it lasts.
    fn lets_writes_pass(self) -> bool {
        !matches!(self, ProxyCutOff | ProxyHearsNoPrimary)
    }
}

/// A proxy in front of the nodes.
fn proxy(network: &Network, machines: &Machines<'_>) -> Proxy {
    network.at(PROXY, || {
        let port = free_port().expect("a port");
        let address = (network.address(PROXY), port).into();
        let seeds: Vec<String> =
            machines.addresses().iter().map(|address| format!("\"{address}\"")).collect();
        let text = format!(
            "[pool.main]\nkind = \"cluster\"\nlisten = [\"{address}\"]\ntimeout_ms = 1500\nseeds = [{}]\n",
            seeds.join(", ")
        );
        let file = machines.nodes[0].directory().join("proxy.toml");
        Proxy::run_at(&Program::under_test(), &file, address, &text)
    })
}

/// Waits until each shard confirms a write that came through the proxy.
fn until_all_confirm(keys: &[String], proxy: SocketAddr) {
    for key in keys {
        eventually("the shard confirms writes", || {
            let written =
                Client::connect(proxy).map(|mut client| ask(&mut client, &["SET", key, "1"]));
            matches!(written, Ok(Reply::Simple(_)))
        });
    }
}

/// Begins a fault of one shard, waits, and ends it.
fn suffer(machines: &mut Machines<'_>, fault: Fault, shard: usize, proxy: SocketAddr) {
    let keys = machines.keys();
    let primary = shard * NODES.len() + leader(&machines.shards()[shard]);
    let machine = machine_of(primary);
    let network = machines.network;
    let all: Vec<usize> = ETCDS.chain(NODES).chain([PROXY]).filter(|&at| at != machine).collect();
    let replica = NODES.into_iter().find(|&at| at != machine).expect("there are three");
    let began = Instant::now();
    match fault {
        PrimaryCutOff => network.divide(&[machine], &all),
        PrimaryHeardByNone => network.mute(machine, &all),
        PrimaryKilled => machines.nodes[primary].kill().expect("it runs"),
        PrimaryStopped => machines.stop(primary),
        ProxyCutOff => network.divide(&[PROXY], &NODES.collect::<Vec<_>>()),
        ProxyHearsNoPrimary => network.cut(machine, PROXY),
        ReplicaCutOffFromProxy => network.divide(&[PROXY], &[replica]),
    }
    if fault.lets_writes_pass() {
        until_all_confirm(&keys, proxy);
        println!("{fault:?}: writes are confirmed after {:?}", began.elapsed());
    }
    thread::sleep(LONG.saturating_sub(began.elapsed()));
    match fault {
        PrimaryKilled => machines.start_again(primary),
        PrimaryStopped => {
            signal(machines.nodes[primary].process_id(), "CONT").expect("it is there")
        }
        _ => network.mend(),
    }
    let mended = Instant::now();
    until_all_confirm(&keys, proxy);
    println!("{fault:?}: over, writes are confirmed after {:?}", mended.elapsed());
}

#[test]
fn confirmed_writes_outlive_faults_behind_the_proxy() {
    let Some(network) = machines::network() else { return };
    network.at(CLIENT, || {
        let long = environment::seconds("DUNLIN_NETWORK_SECONDS");
        let seed = environment::variable("DUNLIN_SEED").unwrap_or_else(environment::new_seed);
        println!("seed {seed}");
        let (mut rng, mut shards) = (Rng::new(seed), Rng::new(seed + 1));
        let mut machines = Machines::start_cluster(&network, &QUORUM, SHARDS);
        let proxy = proxy(&network, &machines);
        let work = Registers::new(vec![proxy.address]);
        let ledger = Ledger::start(proxy.address, long.unwrap_or(Duration::from_secs(15)));
        work.during(seed, || {
            let mut run = |fault, work: &Registers| {
                machines.until_settled(2);
                let shard = shards.below(SHARDS);
                println!("{:?} {fault:?} of shard {shard}", work.elapsed());
                work.go_on();
                suffer(&mut machines, fault, shard, proxy.address);
            };
            match long {
                None => SHORT.iter().for_each(|some| run(some[rng.below(some.len())], &work)),
                Some(time) => {
                    let mut left = Vec::new();
                    while work.elapsed() < time {
                        if left.is_empty() {
                            left = FAULTS.to_vec();
                        }
                        run(left.swap_remove(rng.below(left.len())), &work);
                    }
                }
            }
        });
        let (is_whole, text) = ledger.audit(proxy.address);
        println!("{text}");
        assert!(is_whole, "seed {seed}: confirmed writes are lost\n{}", proxy.log());
        let confirmed = work.confirmed();
        let count = work.verdict_through_proxy();
        let count = count.unwrap_or_else(|why| panic!("seed {seed}: {why}\n{}", proxy.log()));
        println!("{count} operations have one order, {confirmed} confirmed writes among them");
    });
}

//! A shard of three copies, three etcds and clients, each on a machine of its own (a network
//! namespace): machines are cut off from each other in one direction or both, processes are killed
//! and stand still, wall clocks jump, disks are full or stuck.
//!
//! With a quorum, one order explains what all clients saw: no confirmed write is lost, no read is
//! stale. Without one, no two primaries confirm at a time, and what is lost is counted.
//!
//! `DUNLIN_NETWORK_SECONDS` sets how long faults go on, `DUNLIN_OUTAGE_SECONDS` how long etcd is
//! away, `DUNLIN_SEED` which faults there are. Where there can be no namespaces, the tests say so
//! and are skipped.

mod machines;
mod moving;
mod outage;
mod primaries;
mod proxied;

use harness::environment;
use harness::ledger::Ledger;
use harness::registers::{Registers, leader};
use harness::rng::Rng;
use harness::server::signal;
use machines::{CLIENT, ETCDS, Machines, NODES};
use std::thread;
use std::time::{Duration, Instant};

/// Longer than a lease.
const LONG: Duration = Duration::from_secs(6);

/// What happens while clients use the registers.
#[derive(Clone, Copy, Debug)]
enum Fault {
    PrimaryCutOffFromServers,
    PrimaryCutOffFromAll,
    PrimaryHeardByNone,
    PrimaryHearsNone,
    PrimaryCutOffFromEtcd,
    PrimaryCutOffFromReplicas,
    PrimaryKilled,
    PrimaryStopped,
    EtcdCutOff,
    EtcdsFlap,
    EtcdsStopped,
    WallClockJumps,
    DiskFull,
    DiskStuck,
}

use Fault::*;

const FAULTS: [Fault; 14] = [
    PrimaryCutOffFromServers,
    PrimaryCutOffFromAll,
    PrimaryHeardByNone,
    PrimaryHearsNone,
    PrimaryCutOffFromEtcd,
    PrimaryCutOffFromReplicas,
    PrimaryKilled,
    PrimaryStopped,
    EtcdCutOff,
    EtcdsFlap,
    EtcdsStopped,
    WallClockJumps,
    DiskFull,
    DiskStuck,
];

impl Fault {
    /// Whether writes have to be confirmed while it lasts.
    fn lets_writes_pass(self) -> bool {
        // A primary with a lease is no subject of a fail-over, although no quorum hears it.
        !matches!(self, PrimaryCutOffFromReplicas)
    }
}

/// Begins a fault, waits, and ends it.
fn suffer(machines: &mut Machines, fault: Fault, rng: &mut Rng, work: &Registers) {
    let primary = leader(&machines.addresses());
    let machine = NODES.start + primary;
    let etcds: Vec<usize> = ETCDS.collect();
    let others: Vec<usize> = NODES.filter(|&at| at != machine).collect();
    let servers = [&etcds[..], &others].concat();
    let network = &machines.network;
    let began = Instant::now();
    match fault {
        PrimaryCutOffFromServers => network.divide(&[machine], &servers),
        PrimaryCutOffFromAll => network.divide(&[machine], &[&servers[..], &[CLIENT]].concat()),
        PrimaryHeardByNone => network.mute(machine, &servers),
        PrimaryHearsNone => network.deafen(machine, &servers),
        PrimaryCutOffFromEtcd => network.divide(&[machine], &etcds),
        PrimaryCutOffFromReplicas => network.divide(&[machine], &others),
        PrimaryKilled => machines.nodes[primary].kill().expect("it runs"),
        PrimaryStopped => machines.stop(primary),
        EtcdCutOff => {
            let one = rng.below(etcds.len());
            let rest: Vec<usize> = (0..CLIENT).filter(|&at| at != one).collect();
            network.divide(&[one], &rest);
        }
        EtcdsFlap => network.flap(&etcds, &NODES.collect::<Vec<_>>(), rng),
        EtcdsStopped => machines.etcds.iter().for_each(harness::cluster::Etcd::stop),
        WallClockJumps => {
            let hours = rng.below(48) as i64 - 24;
            machines.faults[primary].jump(hours * 3600);
        }
        DiskFull => machines.faults[primary].set_disk("write 28 appendonlydir\n"),
        DiskStuck => machines.faults[primary].set_disk("stuck-fsync 0 appendonlydir\n"),
    }
    if fault.lets_writes_pass() && !matches!(fault, DiskFull | DiskStuck) {
        work.go_on();
        println!("{fault:?}: writes are confirmed after {:?}", began.elapsed());
    }
    thread::sleep(LONG.saturating_sub(began.elapsed()));
    if fault.lets_writes_pass() && !matches!(fault, DiskFull | DiskStuck) {
        work.go_on();
    }
    match fault {
        PrimaryKilled => machines.start_again(primary),
        PrimaryStopped => {
            signal(machines.nodes[primary].process_id(), "CONT").expect("it is there")
        }
        EtcdsStopped => machines.etcds.iter().for_each(harness::cluster::Etcd::go_on),
        WallClockJumps => machines.faults[primary].jump(0),
        DiskFull | DiskStuck => machines.faults[primary].set_disk(""),
        _ => machines.network.mend(),
    }
    let mended = Instant::now();
    work.go_on();
    println!("{fault:?}: over, writes are confirmed after {:?}", mended.elapsed());
}

#[test]
fn no_confirmed_write_is_lost_whatever_the_network_does() {
    let Some(network) = machines::network() else { return };
    network.at(CLIENT, || {
        let time = environment::seconds("DUNLIN_NETWORK_SECONDS");
        let seed = environment::variable("DUNLIN_SEED").unwrap_or_else(environment::new_seed);
        println!("seed {seed}");
        let mut rng = Rng::new(seed);
        let mut machines = Machines::start(&network, &machines::QUORUM);
        let work = Registers::new(machines.addresses());
        let ledger = time.map(|time| Ledger::start(machines.addresses()[0], time));
        work.during(seed, || {
            let mut left = FAULTS.to_vec();
            // A short run has some of the faults, a long one all of them again and again.
            let time = time.unwrap_or(Duration::from_secs(20));
            while work.elapsed() < time {
                work.go_on();
                machines.until_settled(2);
                let fault = left.swap_remove(rng.below(left.len()));
                println!("{:?} {fault:?}", work.elapsed());
                suffer(&mut machines, fault, &mut rng, &work);
                if left.is_empty() {
                    left = FAULTS.to_vec();
                }
            }
            work.go_on();
        });
        machines.until_settled(2);
        if let Some(ledger) = ledger {
            let address = machines.addresses()[leader(&machines.addresses())];
            let (is_whole, text) = ledger.audit(address);
            println!("{text}");
            assert!(is_whole, "seed {seed}: confirmed writes are lost");
        }
        let confirmed = work.confirmed();
        let count = work.verdict().unwrap_or_else(|why| panic!("seed {seed}: {why}"));
        println!("{count} operations have one order, {confirmed} confirmed writes among them");
    });
}

//! All etcds are away for a long time: a shard whose copies answer goes on, with and without a
//! quorum, and no client notices.

use crate::network::machines::{self, CLIENT, Machines, QUORUM};
use harness::environment;
use harness::registers::{Registers, leader, replication};
use std::thread;
use std::time::{Duration, Instant};

/// The line of INFO with the epoch.
fn epoch(machines: &Machines, node: usize) -> String {
    let info = replication(machines.addresses()[node]);
    let line = info.lines().find(|line| line.starts_with("stream_epoch:"));
    line.unwrap_or_default().to_owned()
}

fn go_without_etcd(options: &[&str], time: Duration) {
    let Some(network) = machines::network() else { return };
    network.at(CLIENT, || {
        let mut machines = Machines::start(&network, options);
        let work = Registers::new(machines.addresses());
        let primary = leader(&machines.addresses());
        let before = epoch(&machines, primary);
        work.during(1, || {
            work.go_on();
            machines.etcds.iter_mut().for_each(|etcd| etcd.kill());
            machines.until_coordinator("away");
            let began = Instant::now();
            while began.elapsed() < time {
                work.go_on();
                assert_eq!(work.failures(), (0, None), "after {:?}", began.elapsed());
                thread::sleep(Duration::from_millis(200));
            }
            assert_eq!(epoch(&machines, primary), before, "another epoch has begun");
            machines.start_etcds();
            machines.until_coordinator("up");
            // All leases have ended meanwhile.
            thread::sleep(Duration::from_secs(3));
            work.go_on();
        });
        assert_eq!(work.failures(), (0, None), "after etcd was there again");
        assert_eq!(leader(&machines.addresses()), primary, "another has taken over");
        let count = work.verdict().expect("one order explains what the clients saw");
        println!("{count} operations while etcd was away for {time:?}");
    });
}

fn time() -> Duration {
    environment::seconds("DUNLIN_OUTAGE_SECONDS").unwrap_or(Duration::from_secs(12))
}

#[test]
fn no_client_notices_that_etcd_is_away() {
    go_without_etcd(&[], time());
}

#[test]
fn no_client_of_a_quorum_notices_that_etcd_is_away() {
    go_without_etcd(&QUORUM, time());
}

//! Without a quorum: confirmed writes may be lost with their primary, and are counted here. No two
//! primaries confirm at a time: the confirmations of different nodes, in the order of time, change
//! from one to another no more often than an epoch begins.

use crate::network::machines::{self, CLIENT, ETCDS, Machines, NODES};
use harness::client::Client;
use harness::environment;
use harness::registers::{leader, replication};
use harness::reply::Reply;
use harness::rng::Rng;
use harness::server::signal;
use harness::wait::eventually;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, Ordering::SeqCst};
use std::sync::{Mutex, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

/// Longer than a lease.
const LONG: Duration = Duration::from_secs(6);

const PATIENCE: Duration = Duration::from_secs(2);

/// A write that a node confirmed itself.
#[derive(Clone)]
struct Confirmed {
    node: usize,
    key: String,
    called: Duration,
    returned: Duration,
}

/// How often the confirmations went over from one node to another, at least.
fn changes(confirmed: &[Confirmed]) -> usize {
    let mut all: Vec<&Confirmed> = confirmed.iter().collect();
    all.sort_by_key(|write| write.called);
    let Some(first) = all.first() else { return 0 };
    let (mut node, mut until, mut count) = (first.node, first.returned, 0);
    for write in all {
        if write.node == node {
            until = until.max(write.returned);
        } else if write.called > until {
            (node, until) = (write.node, write.returned);
            count += 1;
        }
    }
    count
}

#[test]
fn changes_are_counted() {
    let write = |node, called, returned| Confirmed {
        node,
        key: String::new(),
        called: Duration::from_secs(called),
        returned: Duration::from_secs(returned),
    };
    assert_eq!(changes(&[]), 0);
    assert_eq!(changes(&[write(1, 1, 2), write(1, 3, 4), write(2, 5, 6), write(1, 7, 8)]), 2);
    assert_eq!(changes(&[write(1, 1, 9), write(2, 5, 6)]), 0, "either may have been the first");
}

/// Writes keys of its own at one node until it is over.
fn write(
    (node, address): (usize, SocketAddr),
    began: Instant,
    confirmed: &Mutex<Vec<Confirmed>>,
    is_over: &AtomicBool,
) {
    let mut number = 0;
    while !is_over.load(SeqCst) {
        let Ok(client) = Client::connect_within(address, PATIENCE) else { continue };
        let mut client = client.with_patience(PATIENCE);
        // A replica answers MOVED instead of forwarding. An answer that comes late would be taken
        // for that of the first write.
        let capa = client.command(&["CLIENT", "CAPA", "cluster", "node"]);
        if !matches!(capa, Ok(Reply::Simple(_))) {
            continue;
        }
        while !is_over.load(SeqCst) {
            number += 1;
            let (key, called) = (format!("{node}:{number}"), began.elapsed());
            match client.command(&["SET", &key, "1"]) {
                Ok(Reply::Simple(_)) => {
                    let write = Confirmed { node, key, called, returned: began.elapsed() };
                    confirmed.lock().unwrap_or_else(PoisonError::into_inner).push(write);
                }
                Ok(_) => {}
                Err(_) => break,
            }
            thread::sleep(Duration::from_millis(1));
        }
    }
}

/// The greatest epoch of all nodes.
fn epoch(machines: &Machines) -> usize {
    let of = |address| {
        let info = replication(address);
        let line = info.lines().find_map(|line| line.strip_prefix("stream_epoch:"));
        line.and_then(|text| text.trim().parse().ok()).unwrap_or(0)
    };
    machines.addresses().into_iter().map(of).max().unwrap_or(0)
}

/// Divides the network, or stops the primary, for longer than a lease.
fn suffer(machines: &Machines, rng: &mut Rng) {
    let primary = leader(&machines.addresses());
    let machine = NODES.start + primary;
    let servers: Vec<usize> = ETCDS.chain(NODES).filter(|&at| at != machine).collect();
    let kind = rng.below(4);
    println!("primary {primary}, fault {kind}");
    match kind {
        0 => machines.network.divide(&[machine], &servers),
        1 => machines.network.mute(machine, &servers),
        2 => machines.network.deafen(machine, &servers),
        _ => machines.stop(primary),
    }
    let addresses = machines.addresses();
    let another = (0..addresses.len()).filter(|&at| at != primary).map(|at| addresses[at]);
    let another: Vec<SocketAddr> = another.collect();
    leader(&another);
    thread::sleep(LONG);
    machines.network.mend();
    if kind == 3 {
        signal(machines.nodes[primary].process_id(), "CONT").expect("it is there");
    }
    eventually("the former primary follows", || {
        let info = replication(addresses[primary]);
        info.contains("role:slave") && info.contains("master_link_status:up")
    });
}

/// How many of the confirmed writes are not there.
fn lost(machines: &Machines, confirmed: &[Confirmed]) -> usize {
    let addresses = machines.addresses();
    let mut client = Client::connect(addresses[leader(&addresses)]).expect("it listens");
    let mut count = 0;
    for some in confirmed.chunks(500) {
        let mut words = vec!["EXISTS"];
        words.extend(some.iter().map(|write| write.key.as_str()));
        match client.command(&words) {
            Ok(Reply::Integer(there)) => count += some.len() - there as usize,
            other => panic!("EXISTS: {other:?}"),
        }
    }
    count
}

#[test]
fn no_two_primaries_confirm_at_a_time() {
    let Some(network) = machines::network() else { return };
    network.at(CLIENT, || {
        let time = environment::seconds("DUNLIN_NETWORK_SECONDS").unwrap_or(Duration::from_secs(8));
        let seed = environment::variable("DUNLIN_SEED").unwrap_or_else(environment::new_seed);
        println!("seed {seed}");
        let mut rng = Rng::new(seed);
        let machines = Machines::start(&network, &[]);
        let (confirmed, is_over) = (Mutex::default(), AtomicBool::new(false));
        let (began, before) = (Instant::now(), epoch(&machines));
        thread::scope(|threads| {
            for node in machines.addresses().into_iter().enumerate() {
                let (confirmed, is_over) = (&confirmed, &is_over);
                threads.spawn(move || write(node, began, confirmed, is_over));
            }
            let _over = harness::wait::SetAtEnd(&is_over);
            while began.elapsed() < time {
                suffer(&machines, &mut rng);
                machines.until_settled(1);
            }
        });
        let confirmed = confirmed.into_inner().unwrap_or_else(PoisonError::into_inner);
        let (changes, epochs) = (changes(&confirmed), epoch(&machines) - before);
        let (count, lost) = (confirmed.len(), lost(&machines, &confirmed));
        println!("{count} confirmed writes, {lost} lost; {epochs} epochs, {changes} changes");
        assert!(
            changes > 0 && changes <= epochs,
            "seed {seed}: {changes} changes, {epochs} epochs"
        );
    });
}

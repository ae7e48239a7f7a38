//! All copies of a shard end at once: what their files have is enough for the best of them to lead,
//! as soon as enough are back.

use crate::shards::faults::{QUORUM, Writers, primary, until_settled};
use harness::client::{ask, ok};
use harness::cluster::{Etcd, node_at, operate, redis_cli};
use harness::registers::make_shard;
use harness::reply::Reply;
use harness::server::{Options, Program, Server};
use harness::wait::eventually;

/// What survives the end of all processes, as the table in `docs/cluster/guarantees.md` has it.
struct Cell {
    options: &'static [&'static str],
    /// Nothing that was confirmed may be lost.
    is_safe: bool,
}

/// How many writes are confirmed before and after. Some of them wait for two disks each.
const FEW: usize = 20;

const CELLS: [Cell; 4] = [
    Cell { options: &["--appendfsync", "always", "--commit-quorum-fsync", "yes"], is_safe: true },
    Cell { options: &["--appendfsync", "everysec"], is_safe: false },
    Cell { options: &["--appendfsync", "no"], is_safe: false },
    // Without a quorum the majority of the copies is enough.
    Cell { options: &["--commit-mode", "fsync", "--appendfsync", "no"], is_safe: false },
];

/// Waits until all three copies are members. With a quorum two of them have to be able to choose.
fn settled(nodes: &[Server], has_quorum: bool) {
    if has_quorum {
        return until_settled(nodes);
    }
    let port = nodes[0].port().to_string();
    eventually("all copies are members", || {
        redis_cli(&["-p", &port, "CLUSTER", "SHARDS"]).matches("online").count() == 3
    });
}

#[test]
fn the_best_of_two_copies_leads_when_all_three_were_killed() {
    let etcd = Etcd::start("all-killed");
    let coordinator = Etcd::coordinator(std::slice::from_ref(&etcd));
    for Cell { options, is_safe } in CELLS {
        println!("{options:?}");
        let has_quorum = !options.contains(&"--commit-mode");
        let quorum: &[&str] = if has_quorum { &QUORUM } else { &[] };
        let all = [&["--appendonly", "yes"], quorum, options].concat();
        let mut nodes: Vec<Server> = (0..3).map(|_| node_at(&coordinator, &all)).collect();
        make_shard(&nodes.iter().map(Server::address).collect::<Vec<_>>());
        settled(&nodes, has_quorum);
        let writers = Writers::start(&nodes);
        writers.go_on_by(FEW);
        nodes.iter_mut().for_each(|node| node.kill().expect("it runs"));
        // The former primary is the one that does not come back yet.
        nodes[1..].iter_mut().for_each(|node| node.start_again().expect("it starts"));
        primary(&nodes, |at| at > 0);
        writers.go_on_by(FEW);
        nodes[0].start_again().expect("it starts");
        settled(&nodes, has_quorum);
        match is_safe {
            true => writers.check(&nodes),
            false => drop(writers.end()),
        }
    }
}

/// Its data were not written in a cluster, so they have no place in a stream.
#[test]
fn a_shards_only_copy_that_was_loaded_from_files_leads() {
    let etcd = Etcd::start("only-copy");
    let coordinator = Etcd::coordinator(std::slice::from_ref(&etcd));
    for log in ["no", "yes"] {
        let options = ["--appendonly", log, "--save", "3600 1"];
        let alone = Server::start(&Program::under_test(), Options::arguments(&options));
        let mut alone = alone.expect("it starts");
        ok(&mut alone.client(), "SET key 1");
        alone.terminate().expect("it ends");
        let folder = alone.directory().to_string_lossy().into_owned();
        let mut node = node_at(&coordinator, &["--dir", &folder, "--appendonly", log]);
        operate(&mut node.client(), "CLUSTER ADDSLOTSRANGE 0 16383");
        for round in 0..2 {
            eventually("it leads", || {
                let reply = ask(&mut node.client(), "GET key");
                reply == Reply::Bulk(b"1".to_vec())
            });
            node.kill().expect("it runs");
            node.start_again().expect("it starts");
            println!("appendonly {log}, round {round}");
        }
        eventually("it takes writes", || {
            ask(&mut node.client(), "SET key 2") == Reply::Simple(b"OK".to_vec())
        });
    }
}

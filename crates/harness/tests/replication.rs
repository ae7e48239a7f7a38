//! Dunlin as the primary of the reference server: what replicas hold is what it holds, after full
//! and partial synchronisations under writes.

use harness::client::{Client, ask, ok};
use harness::contents::contents;
use harness::info::number;
use harness::reply::Reply;
use harness::rng::Rng;
use harness::server::{Options, Program, Server};
use harness::wait::eventually;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

fn primary(arguments: &[&str]) -> Server {
    let all = [&["--save", "", "--repl-diskless-sync-delay", "0"], arguments].concat();
    Server::start(&Program::under_test(), Options::arguments(&all)).expect("it starts")
}

fn replica_of(primary: &Server, arguments: &[&str]) -> Server {
    let port = primary.port().to_string();
    let all = [&["--save", "", "--replicaof", "127.0.0.1", &port], arguments].concat();
    let program = Program::reference().expect("there is a reference");
    Server::start(&program, Options::arguments(&all)).expect("it starts")
}

/// A random write, of every type and in several databases.
fn write(client: &mut Client, rng: &mut Rng) {
    let key = format!("k{}", rng.below(200));
    let (word, number) = (format!("m{}", rng.below(50)), rng.below(1000).to_string());
    let request: Vec<&str> = match rng.below(12) {
        0 => vec!["SET", &key, &number],
        1 => vec!["SADD", &key, &word, &number],
        2 => vec!["RPUSH", &key, &word],
        3 => vec!["HSET", &key, &word, &number],
        4 => vec!["ZADD", &key, &number, &word],
        5 => vec!["DEL", &key],
        6 => vec!["SPOP", &key],
        7 => vec!["LPOP", &key],
        8 => vec!["PEXPIRE", &key, "100000"],
        9 => vec!["APPEND", &key, &word],
        10 => vec!["SELECT", if number.len() == 3 { "0" } else { "5" }],
        _ => vec!["COPY", &key, &word, "REPLACE"],
    };
    // A wrong type is an error, and changes nothing.
    client.command(&request).expect("a reply");
}

/// Waits until the replica has everything, and compares.
fn compare(primary: &Server, replica: &Server) {
    let (mut ours, mut theirs) = (primary.client(), replica.client());
    eventually("the replica has everything", || {
        number(&mut theirs, "master_repl_offset") == number(&mut ours, "master_repl_offset")
    });
    let (ours, theirs) = (contents(&mut ours), contents(&mut theirs));
    assert!(!ours.is_empty() && ours == theirs, "the replica differs");
}

fn is_linked(replica: &mut Client) -> bool {
    harness::info::field(replica, "master_link_status") == "up"
}

/// Writes until told to stop.
fn while_writing(primary: &Server, seed: u64, work: impl FnOnce()) {
    let stops = AtomicBool::new(false);
    std::thread::scope(|scope| {
        for thread in 0..3 {
            let stops = &stops;
            scope.spawn(move || {
                let (mut client, mut rng) = (primary.client(), Rng::new(seed + thread));
                while !stops.load(Relaxed) {
                    write(&mut client, &mut rng);
                }
            });
        }
        work();
        stops.store(true, Relaxed);
    });
}

#[test]
fn three_replicas_synchronise_at_once_and_resume_after_a_cut() {
    let primary = primary(&["--repl-diskless-sync-delay", "1"]);
    let mut client = primary.client();
    let mut rng = Rng::new(7);
    for _ in 0..3000 {
        write(&mut client, &mut rng);
    }
    ok(&mut client, &["SELECT", "0"]);
    let replicas: Vec<Server> = (0..3).map(|_| replica_of(&primary, &[])).collect();
    while_writing(&primary, 100, || {
        for replica in &replicas {
            let mut theirs = replica.client();
            eventually("the link is up", || is_linked(&mut theirs));
        }
        assert_eq!(number(&mut client, "sync_full"), 3);
        let before = number(&mut client, "sync_partial_ok");
        assert_eq!(ask(&mut client, &["CLIENT", "KILL", "TYPE", "replica"]), Reply::Integer(3));
        eventually("all came back", || number(&mut client, "sync_partial_ok") == before + 3);
    });
    replicas.iter().for_each(|replica| compare(&primary, replica));
    assert_eq!(number(&mut client, "sync_full"), 3, "a cut needs no snapshot");
}

#[test]
fn a_snapshot_goes_by_file_where_sockets_are_not_wanted() {
    let primary = primary(&["--repl-diskless-sync", "no"]);
    let mut client = primary.client();
    let mut rng = Rng::new(8);
    for _ in 0..2000 {
        write(&mut client, &mut rng);
    }
    let replica = replica_of(&primary, &[]);
    while_writing(&primary, 200, || {
        let mut theirs = replica.client();
        eventually("the link is up", || is_linked(&mut theirs));
    });
    compare(&primary, &replica);
}

#[test]
fn wait_counts_replicas_and_writes_need_enough_of_them() {
    let primary = primary(&["--min-replicas-to-write", "1", "--repl-ping-replica-period", "1"]);
    let mut client = primary.client();
    let refusal = ask(&mut client, &["SET", "k", "v"]);
    assert!(refusal.is_error(), "{refusal:?}");
    let replica = replica_of(&primary, &["--appendonly", "yes"]);
    eventually("writes are accepted", || !ask(&mut client, &["SET", "k", "v"]).is_error());
    assert_eq!(ask(&mut client, &["WAIT", "1", "5000"]), Reply::Integer(1));
    assert_eq!(ask(&mut client, &["WAIT", "2", "100"]), Reply::Integer(1));
    let acks = ask(&mut client, &["WAITAOF", "0", "1", "9000"]);
    assert_eq!(acks, Reply::Array(vec![Reply::Integer(0), Reply::Integer(1)]));
    let role = ask(&mut client, &["ROLE"]);
    let inside = |reply: &Reply, at: usize| reply.elements().unwrap_or_default()[at].clone();
    let port = inside(&inside(&inside(&role, 2), 0), 1);
    assert_eq!(port, Reply::Bulk(replica.port().to_string().into_bytes()));
    drop(replica);
    eventually("writes are refused", || ask(&mut client, &["SET", "k", "v"]).is_error());
}

#[test]
fn what_is_not_kept_any_more_needs_a_snapshot() {
    let primary = primary(&["--repl-backlog-size", "16kb"]);
    let replica = replica_of(&primary, &[]);
    let (mut client, mut theirs) = (primary.client(), replica.client());
    eventually("the link is up", || is_linked(&mut theirs));
    ok(&mut theirs, &["REPLICAOF", "NO", "ONE"]);
    ok(&mut theirs, &["REPLICAOF", "127.0.0.1", "1"]);
    let value = "v".repeat(100_000);
    ok(&mut client, &["SET", "large", &value]);
    ok(&mut theirs, &["REPLICAOF", "127.0.0.1", &primary.port().to_string()]);
    eventually("a second snapshot", || number(&mut client, "sync_full") == 2);
    eventually("the link is up", || is_linked(&mut theirs));
    compare(&primary, &replica);
}

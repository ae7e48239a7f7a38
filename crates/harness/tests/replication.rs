//! Dunlin as the primary of the reference server: what replicas hold is what it holds, after full
//! and partial synchronisations under writes.

use harness::client::{ask, ok};
use harness::info::number;
use harness::replicas::{compare, is_linked, while_writing, write};
use harness::reply::Reply;
use harness::rng::Rng;
use harness::server::{Options, Program, Server};
use harness::wait::eventually;

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

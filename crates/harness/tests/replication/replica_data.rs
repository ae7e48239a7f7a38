//! What a replica keeps of its data: in its own files, over restarts, and when a synchronisation
//! fails.

use harness::client::{Client, ask, ok};
use harness::contents::contents;
use harness::info::{field, fields, number};
use harness::module_types;
use harness::replicas::{
    compare, dunlin, fill, forget_deleted, lying_primary, start, until_linked, while_writing,
};
use harness::reply::Reply;
use harness::server::{Program, Server};
use harness::wait::{eventually, until_not_rewriting};
use std::fs::OpenOptions;
use std::io::Write as _;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};

fn replica_of(primary: &Server, arguments: &[&str]) -> Server {
    let port = primary.port().to_string();
    let replica = dunlin(&[&["--replicaof", "127.0.0.1", &port], arguments].concat());
    until_linked(&replica);
    replica
}

fn peers() -> [Program; 2] {
    [Program::under_test(), Program::reference().expect("there is a reference")]
}

fn rewrite(client: &mut Client) {
    ask(client, &["BGREWRITEAOF"]);
    until_not_rewriting(client);
}

#[test]
fn a_log_that_goes_on_inside_a_stream_says_in_which_database() {
    for program in peers() {
        let primary = start(&program, &[]);
        let mut ours = primary.client();
        ok(&mut ours, &["SELECT", "5"]);
        ok(&mut ours, &["SET", "before", "1"]);
        let mut replica = dunlin(&["--appendonly", "yes"]);
        let mut theirs = replica.client();
        ok(&mut theirs, &["REPLICAOF", "127.0.0.1", &primary.port().to_string()]);
        until_linked(&replica);
        until_not_rewriting(&mut theirs);
        ok(&mut ours, &["SET", "first", "1"]);
        compare(&primary, &replica);
        rewrite(&mut theirs);
        ok(&mut ours, &["SET", "second", "2"]);
        compare(&primary, &replica);
        let before = contents(&mut theirs);
        replica.restart().expect("it starts again");
        assert_eq!(before, contents(&mut replica.client()));
    }
}

#[test]
fn a_replica_resumes_after_its_own_restart() {
    for program in peers() {
        for arguments in [
            &["--appendonly", "yes", "--appendfsync", "always"][..],
            &["--appendonly", "yes", "--appendfsync", "always", "--aof-use-rdb-preamble", "no"],
        ] {
            // A restart may take long on a busy machine, while others write.
            let primary = start(&program, &["--repl-backlog-size", "1gb"]);
            let mut ours = primary.client();
            fill(&primary, 1, 500);
            let mut replica = replica_of(&primary, arguments);
            until_not_rewriting(&mut replica.client());
            for round in 0..4 {
                while_writing(&primary, 100 * (round + 1), || {
                    if round == 2 {
                        rewrite(&mut replica.client());
                    }
                    if round % 2 == 0 {
                        replica.restart().expect("it starts again");
                    } else {
                        replica.kill().expect("it was there");
                        replica.start_again().expect("it starts again");
                    }
                    until_linked(&replica);
                });
                forget_deleted(&mut ours);
                compare(&primary, &replica);
                assert_eq!(number(&mut ours, "sync_full"), 1, "a restart needs no snapshot");
            }
        }
    }
}

/// Values of these types come with a snapshot and by the stream, and outlast restarts of both.
#[test]
fn values_of_the_types_of_modules_are_those_of_the_primary() {
    for preamble in ["yes", "no"] {
        let log = ["--appendonly", "yes", "--aof-use-rdb-preamble", preamble];
        let mut primary = dunlin(&log);
        let mut ours = primary.client();
        module_types::fill(&mut ours, "");
        let mut replica = replica_of(&primary, &log);
        until_not_rewriting(&mut replica.client());
        module_types::fill(&mut ours, "{later}");
        // What they do next follows from what came with the snapshot, chance included.
        module_types::change(&mut ours, "");
        compare(&primary, &replica);
        let before = contents(&mut ours);
        assert_eq!(before.len(), 2 * module_types::KEYS);
        rewrite(&mut ours);
        replica.restart().expect("it starts again");
        until_linked(&replica);
        compare(&primary, &replica);
        primary.restart().expect("it starts again");
        assert_eq!(contents(&mut primary.client()), before);
    }
}

#[test]
fn a_replica_that_got_no_command_resumes_after_its_restart() {
    for program in peers() {
        for preamble in ["yes", "no"] {
            // The primary sends nothing of its own, so the log is a base alone.
            let primary = start(&program, &["--repl-ping-replica-period", "3600"]);
            fill(&primary, 1, 500);
            let mut replica =
                replica_of(&primary, &["--appendonly", "yes", "--aof-use-rdb-preamble", preamble]);
            until_not_rewriting(&mut replica.client());
            replica.restart().expect("it starts again");
            until_linked(&replica);
            compare(&primary, &replica);
            let full = number(&mut primary.client(), "sync_full");
            assert_eq!(full, 1, "a restart needs no snapshot, preamble {preamble}");
        }
    }
}

#[test]
fn local_writes_of_a_replica_are_in_its_log_and_nowhere_else() {
    let primary = start(&Program::reference().expect("there is a reference"), &[]);
    fill(&primary, 2, 300);
    let arguments = ["--appendonly", "yes", "--replica-read-only", "no"];
    let mut replica = replica_of(&primary, &arguments);
    let mut theirs = replica.client();
    until_not_rewriting(&mut theirs);
    let port = replica.port().to_string();
    let third = dunlin(&["--replicaof", "127.0.0.1", &port]);
    until_linked(&third);
    let local = |client: &mut Client, rounds: u64| {
        ok(client, &["SELECT", "9"]);
        for number in 0..rounds {
            ask(client, &["INCR", "local"]);
            ask(client, &["RPUSH", "list", &number.to_string()]);
            ask(client, &["EVAL", "redis.call('SADD', KEYS[1], ARGV[1])", "1", "set", "m"]);
        }
        ok(client, &["SELECT", "0"]);
    };
    while_writing(&primary, 500, || local(&mut theirs, 300));
    let mut ours = primary.client();
    // What both change has the same order in the log. The primary does not know of the local write.
    ok(&mut ours, &["SET", "both", "1"]);
    eventually("it is there", || ask(&mut theirs, &["GET", "both"]).text() == Some(b"1"));
    ask(&mut theirs, &["APPEND", "both", "2"]);
    ok(&mut ours, &["RENAME", "both", "renamed"]);
    eventually("it is there", || ask(&mut theirs, &["GET", "renamed"]).text() == Some(b"12"));
    compare(&primary, &third);
    rewrite(&mut theirs);
    while_writing(&primary, 600, || local(&mut theirs, 100));
    let position = number(&mut ours, "master_repl_offset");
    eventually("it has everything", || number(&mut theirs, "master_repl_offset") == position);
    ok(&mut theirs, &["SELECT", "9"]);
    assert_eq!(ask(&mut theirs, &["GET", "local"]).text(), Some(&b"400"[..]));
    let before = contents(&mut theirs);
    replica.restart().expect("it starts again");
    let mut theirs = replica.client();
    until_linked(&replica);
    assert!(before == contents(&mut theirs), "the log has everything, in order");
    assert_eq!(number(&mut ours, "sync_full"), 1, "its place in the stream is known");
    compare(&primary, &third);
}

/// Sends a snapshot that is cut off to whatever connects; how often.
fn primary_that_breaks_off() -> (u16, Arc<AtomicUsize>) {
    let id = "a".repeat(40);
    let answer = format!(
        "+PONG\r\n+OK\r\n+OK\r\n+OK\r\n+FULLRESYNC {id} 5\r\n$20\r\nREDIS0011garbage1234*1\r\n"
    );
    lying_primary(answer.into_bytes())
}

#[test]
fn a_failed_synchronisation_leaves_the_files_alone() {
    for (mode, log) in
        [("disabled", "no"), ("flush-before-load", "no"), ("flush-before-load", "yes")]
    {
        // Due at any time.
        let points = ["--save", "1 1", "--appendonly", log, "--repl-diskless-load", mode];
        let mut replica = dunlin(&points);
        let mut theirs = replica.client();
        fill(&replica, 3, 300);
        ok(&mut theirs, &["SELECT", "0"]);
        ok(&mut theirs, &["SAVE"]);
        let before = contents(&mut theirs);
        assert!(before.len() > 20);
        for _ in 0..2 {
            let (port, attempts) = primary_that_breaks_off();
            ok(&mut theirs, &["REPLICAOF", "127.0.0.1", &port.to_string()]);
            eventually("an attempt", || attempts.load(SeqCst) > 0);
        }
        if mode == "disabled" {
            eventually("its end", || field(&mut theirs, "master_sync_in_progress") == "0");
            assert!(before == contents(&mut theirs), "what arrived in full was looked at first");
        } else {
            eventually("its data is gone", || ask(&mut theirs, &["DBSIZE"]) == Reply::Integer(0));
        }
        // It is told to end, and would save.
        replica.restart().expect("it starts again");
        assert!(before == contents(&mut replica.client()), "{mode}: the files are as they were");
    }
}

#[test]
fn an_empty_replica_loads_at_once() {
    let primary = dunlin(&[]);
    fill(&primary, 4, 300);

    let arguments = ["--repl-diskless-load", "on-empty-db"];
    let replica = replica_of(&primary, &arguments);
    replica.logs("to parser");
    let replica = dunlin(&arguments);
    let mut theirs = replica.client();
    ok(&mut theirs, &["SET", "k", "v"]);
    ok(&mut theirs, &["REPLICAOF", "127.0.0.1", &primary.port().to_string()]);
    until_linked(&replica);
    replica.logs("to disk");
    compare(&primary, &replica);
}

#[test]
fn an_epoch_outlives_restarts_rewrites_and_synchronisations() {
    let epoch = |server: &Server| field(&mut server.client(), "stream_epoch");
    for preamble in ["yes", "no"] {
        let arguments = ["--appendonly", "yes", "--aof-use-rdb-preamble", preamble];
        let mut primary = dunlin(&arguments);
        let mut ours = primary.client();
        ok(&mut ours, &["SET", "k", "1"]);
        ask(&mut ours, &["WAITAOF", "1", "0", "0"]);
        primary.kill().expect("it was there");
        let log = primary.directory().join("appendonlydir/appendonly.aof.1.incr.aof");
        let entry = b"*2\r\n$4\r\nPING\r\n$14\r\ndunlin-epoch:7\r\n";
        let mut file = OpenOptions::new().append(true).open(log).expect("it is there");
        file.write_all(entry).expect("there is room");
        primary.start_again().expect("it starts again");
        assert_eq!(epoch(&primary), "7", "from the log");
        rewrite(&mut primary.client());
        primary.restart().expect("it starts again");
        assert_eq!(epoch(&primary), "7", "from the base");
        let mut replica = replica_of(&primary, &["--save", ""]);
        assert_eq!(epoch(&replica), "7", "from a synchronisation");
        ok(&mut replica.client(), &["SAVE"]);
        replica.kill().expect("it was there");
        replica.start_again().expect("it starts again");
        assert_eq!(epoch(&replica), "7", "from a snapshot");
        // The data of a server outside of a cluster take its place.
        let other = dunlin(&[]);
        ok(&mut replica.client(), &["REPLICAOF", "127.0.0.1", &other.port().to_string()]);
        until_linked(&replica);
        assert_eq!(fields(&mut replica.client(), ["master_link_status"]), ["up"]);
        let info = ask(&mut replica.client(), &["INFO", "replication"]);
        assert!(!format!("{info:?}").contains("stream_epoch"), "{info:?}");
    }
}

//! Dunlin as a replica: of the reference servers and of itself, in chains, with links that are cut.

use harness::client::{Client, ask, ok};
use harness::contents::contents;
use harness::info::{field, number};
use harness::replicas::{
    Link, assert_same, change_stream, compare, dunlin, fill, forget_deleted, is_linked,
    lying_primary, start, until_linked, while_writing,
};
use harness::reply::Reply;
use harness::rng::Rng;
use harness::server::Program;
use harness::wait::eventually;
use std::sync::atomic::Ordering::SeqCst;

fn reference() -> Program {
    Program::reference().expect("there is a reference")
}

fn follow(replica: &mut Client, port: u16) {
    ok(replica, &["REPLICAOF", "127.0.0.1", &port.to_string()]);
}

/// The text of an error.
fn error(reply: Reply) -> String {
    let Reply::Error(text) = reply else { panic!("not an error: {reply:?}") };
    String::from_utf8_lossy(&text).into_owned()
}

/// Follows a primary under writes, loading its snapshot in both ways, and cuts the link at random
/// bytes.
fn follows(program: &Program) {
    for (mode, is_diskless) in [("disabled", "yes"), ("flush-before-load", "no")] {
        // What is written while the first snapshot is taken in is kept, however slow that is.
        let options = ["--repl-diskless-sync", is_diskless, "--repl-backlog-size", "64mb"];
        let primary = start(program, &options);
        fill(&primary, 1, 3000);
        let link = Link::to(primary.address()).expect("a link");
        let replica = dunlin(&["--repl-diskless-load", mode]);
        fill(&replica, 2, 100);
        let mut theirs = replica.client();
        let mut rng = Rng::new(3);
        while_writing(&primary, 100, || {
            follow(&mut theirs, link.port());
            until_linked(&replica);
            for _ in 0..5 {
                link.cut_after(rng.below(200_000) as u64);
                eventually("the cut", || !link.is_to_be_cut());
                until_linked(&replica);
            }
        });
        compare(&primary, &replica);
        let mut ours = primary.client();
        assert_eq!(number(&mut ours, "sync_full"), 1, "a cut needs no snapshot");
        assert_eq!(number(&mut theirs, "unexpected_error_replies"), 0);
    }
}

#[test]
fn the_bytes_of_replication_are_counted() {
    let (primary, replica) = (dunlin(&[]), dunlin(&[]));
    let (mut ours, mut theirs) = (primary.client(), replica.client());
    ok(&mut ours, &["CONFIG", "SET", "rdbcompression", "no"]);
    ok(&mut ours, &["SET", "before", &"v".repeat(50_000)]);
    follow(&mut theirs, primary.port());
    until_linked(&replica);
    let (sent, received) = ("total_net_repl_output_bytes", "total_net_repl_input_bytes");
    // The snapshot.
    eventually("it is sent", || number(&mut ours, sent) > 50_000);
    eventually("it has come", || number(&mut theirs, received) > 50_000);
    // The stream.
    ok(&mut ours, &["SET", "k", &"v".repeat(50_000)]);
    eventually("it is sent", || number(&mut ours, sent) > 100_000);
    eventually("it has come", || number(&mut theirs, received) > 100_000);
    assert_eq!(number(&mut theirs, sent), 0);
    for client in [&mut ours, &mut theirs] {
        ok(client, &["CONFIG", "RESETSTAT"]);
        assert!(number(client, sent) < 1000 && number(client, received) < 1000);
    }
}

#[test]
fn a_replica_sends_clients_to_its_primary_that_understand_it() {
    let (primary, replica) = (dunlin(&[]), dunlin(&[]));
    let connect = || {
        let mut client = replica.client();
        ok(&mut client, &["CLIENT", "CAPA", "redirect"]);
        client
    };
    let (mut queueing, mut waiting, mut client) = (connect(), connect(), connect());
    let (mut reading, mut acknowledged) = (connect(), connect());
    ok(&mut queueing, &["MULTI"]);
    ok(&mut queueing, &["SET", "k", "v"]);
    waiting.send(&["BLPOP", "nothing", "0"]).expect("it is sent");
    ok(&mut reading, &["READONLY"]);
    reading.send(&["XREAD", "BLOCK", "0", "STREAMS", "stream", "$"]).expect("it is sent");
    acknowledged.send(&["WAIT", "1", "0"]).expect("it is sent");
    let mut other = replica.client();
    eventually("they wait", || number(&mut other, "blocked_clients") == 3);
    follow(&mut other, primary.port());
    until_linked(&replica);
    let redirection = format!("REDIRECT {}", primary.address());
    assert_eq!(error(waiting.reply().expect("a reply")), redirection);
    let told = error(acknowledged.reply().expect("a reply"));
    assert!(told.starts_with("UNBLOCKED force unblock"), "{told}");
    // What only reads, and may read here, goes on.
    ask(&mut primary.client(), &["XADD", "stream", "*", "field", "value"]);
    assert!(!reading.reply().expect("a reply").is_error());
    assert_eq!(error(ask(&mut queueing, &["EXEC"])), redirection);
    assert_eq!(error(ask(&mut client, &["GET", "k"])), redirection);
    assert_eq!(error(ask(&mut client, &["SET", "k", "v"])), redirection);
    ok(&mut client, &["PING"]);
    ok(&mut client, &["READONLY"]);
    ok(&mut client, &["GET", "k"]);
    assert_eq!(error(ask(&mut client, &["SET", "k", "v"])), redirection);
    ok(&mut client, &["READWRITE"]);
    assert_eq!(error(ask(&mut client, &["GET", "k"])), redirection);
    // A client that does not ask for it reads here, and may not write.
    ok(&mut other, &["GET", "k"]);
    assert!(error(ask(&mut other, &["SET", "k", "v"])).starts_with("READONLY"));
}

/// A primary that takes the replica for an old version has no form for such hashes.
#[test]
fn fields_that_expire_come_with_the_snapshot() {
    for program in [Program::under_test(), reference()] {
        let primary = start(&program, &[]);
        let mut ours = primary.client();
        ok(&mut ours, &["HSET", "h", "a", "1", "b", "2"]);
        ok(&mut ours, &["HPEXPIREAT", "h", "99999999999999", "FIELDS", "1", "a"]);
        let replica = dunlin(&[]);
        let mut theirs = replica.client();
        follow(&mut theirs, primary.port());
        until_linked(&replica);
        let expires = ask(&mut theirs, &["HPEXPIRETIME", "h", "FIELDS", "2", "a", "b"]);
        assert_eq!(expires, ask(&mut ours, &["HPEXPIRETIME", "h", "FIELDS", "2", "a", "b"]));
        compare(&primary, &replica);
    }
}

#[test]
fn a_replica_of_the_reference() {
    follows(&reference());
}

#[test]
fn a_replica_of_redis() {
    follows(&reference().beside("redis-server"));
}

/// What [`compare`] leaves out where one of the two is Redis 8.
#[test]
fn redis_counts_the_lag_of_trimmed_streams_otherwise() {
    let lags = |program: &Program| {
        let server = start(program, &[]);
        let mut client = server.client();
        let mut lag = || {
            let groups = ask(&mut client, &["XINFO", "GROUPS", "s"]);
            let group = groups.elements().expect("groups")[0].elements().expect("fields").to_vec();
            assert_eq!(group[10], Reply::Bulk(b"lag".to_vec()));
            group[11].integer().expect("a lag")
        };
        let mut other = server.client();
        ok(&mut other, &["XGROUP", "CREATE", "s", "g", "0", "MKSTREAM"]);
        for id in ["1", "2", "3", "4", "5", "6"] {
            ask(&mut other, &["XADD", "s", id, "f", "v"]);
        }
        ask(&mut other, &["XREADGROUP", "GROUP", "g", "c", "COUNT", "2", "STREAMS", "s", ">"]);
        ["4", "3", "0"].map(|length| {
            ask(&mut other, &["XTRIM", "s", "MAXLEN", length]);
            lag()
        })
    };
    assert_eq!(lags(&Program::under_test()), [4, 4, 4]);
    assert_eq!(lags(&reference()), [4, 4, 4]);
    assert_eq!(lags(&reference().beside("redis-server")), [4, 3, 0]);
}

#[test]
fn a_replica_of_redis_7() {
    follows(&Program::redis_7().expect("there is Redis 7"));
}

#[test]
fn a_replica_of_dunlin() {
    follows(&Program::under_test());
}

#[test]
fn a_chain_goes_on_after_its_middle_is_promoted() {
    let first = dunlin(&[]);
    fill(&first, 4, 1000);
    let second = dunlin(&["--appendonly", "yes"]);
    follow(&mut second.client(), first.port());
    until_linked(&second);
    let third = start(&reference(), &[]);
    follow(&mut third.client(), second.port());
    until_linked(&third);
    while_writing(&first, 300, || {
        std::thread::sleep(std::time::Duration::from_millis(300));
    });
    compare(&first, &third);
    compare(&first, &second);
    let (mut old, mut new) = (first.client(), second.client());
    ok(&mut new, &["REPLICAOF", "NO", "ONE"]);
    assert_eq!(field(&mut new, "role"), "master");
    follow(&mut old, second.port());
    until_linked(&first);
    until_linked(&third);
    fill(&second, 5, 1000);
    compare(&second, &third);
    compare(&second, &first);
    assert_eq!(number(&mut new, "sync_full"), 1, "the others went on from where they were");
    assert_eq!(number(&mut old, "sync_full"), 1);
    // Its append-only file has the stream as it came.
    let before = contents(&mut new);
    let mut second = second;
    drop(new);
    second.kill().expect("it was there");
    second.start_again().expect("it starts");
    let after = contents(&mut second.client());
    assert!(before == after, "the log has everything");
}

#[test]
fn what_a_replica_refuses_and_shows() {
    let primary = start(&reference(), &["--requirepass", "secret"]);
    let mut ours = primary.client();
    ok(&mut ours, &["AUTH", "secret"]);
    ok(&mut ours, &["SET", "volatile", "v", "EX", "3600"]);
    let replica = dunlin(&["--primaryauth", "secret"]);
    let mut theirs = replica.client();
    let mut waiting = replica.client();
    waiting.send(&["BLPOP", "list", "0"]).expect("it is sent");
    eventually("it waits", || number(&mut theirs, "blocked_clients") == 1);
    follow(&mut theirs, primary.port());
    let told = waiting.reply().expect("a reply");
    assert!(error(told).starts_with("UNBLOCKED force unblock"));
    waiting.reply().expect_err("it is closed, and may look for the primary");
    until_linked(&replica);
    assert_eq!(field(&mut theirs, "role"), "slave");
    assert_eq!(number(&mut theirs, "master_port"), u64::from(primary.port()));
    assert!(error(ask(&mut theirs, &["SET", "k", "v"])).contains("READONLY You can't write"));
    let script = ask(&mut theirs, &["EVAL", "return redis.call('SET', 'k', 'v')", "0"]);
    assert!(error(script).contains("READONLY"));
    assert_eq!(ask(&mut theirs, &["GET", "volatile"]), Reply::Bulk(b"v".to_vec()));
    // The primary alone deletes what has expired; here it is only not seen.
    ok(&mut ours, &["DEBUG", "SET-ACTIVE-EXPIRE", "0"]);
    ask(&mut ours, &["PEXPIRE", "volatile", "100"]);
    eventually("it has expired", || ask(&mut theirs, &["GET", "volatile"]) == Reply::Nil);
    assert_eq!(ask(&mut theirs, &["DBSIZE"]), Reply::Integer(1));
    assert_eq!(ask(&mut ours, &["GET", "volatile"]), Reply::Nil);
    eventually("it is deleted", || ask(&mut theirs, &["DBSIZE"]) == Reply::Integer(0));
    // Readers wait for what the primary brings.
    let mut reader = replica.client();
    reader.send(&["XREAD", "BLOCK", "0", "STREAMS", "s", "$"]).expect("it is sent");
    eventually("it waits", || number(&mut theirs, "blocked_clients") == 1);
    ask(&mut ours, &["XADD", "s", "1-1", "a", "b"]);
    assert!(!reader.reply().expect("a reply").elements().expect("a stream").is_empty());
    assert_eq!(ask(&mut ours, &["WAIT", "1", "5000"]), Reply::Integer(1));
    ok(&mut theirs, &["CONFIG", "SET", "replica-serve-stale-data", "no"]);
    ask(&mut theirs, &["GET", "k"]);
    drop((ours, primary));
    eventually("it has noticed", || !is_linked(&mut theirs));
    assert!(error(ask(&mut theirs, &["GET", "k"])).contains("MASTERDOWN"));
    ok(&mut theirs, &["REPLICAOF", "NO", "ONE"]);
    ok(&mut theirs, &["SET", "k", "v"]);
}

#[test]
fn a_reader_never_sees_half_a_transaction() {
    let primary = dunlin(&[]);
    let replica = dunlin(&[]);
    let (mut ours, mut theirs) = (primary.client(), replica.client());
    ok(&mut ours, &["MSET", "a", "0", "b", "0"]);
    follow(&mut theirs, primary.port());
    until_linked(&replica);
    std::thread::scope(|scope| {
        let writer = scope.spawn(move || {
            for number in 1..2000 {
                let number = number.to_string();
                ok(&mut ours, &["MULTI"]);
                ask(&mut ours, &["SET", "a", &number]);
                ask(&mut ours, &["SET", "b", &number]);
                ask(&mut ours, &["EXEC"]);
            }
        });
        while !writer.is_finished() {
            let both = ask(&mut theirs, &["MGET", "a", "b"]);
            let both = both.elements().expect("two values").to_vec();
            assert_eq!(both[0], both[1]);
        }
    });
}

#[test]
fn a_primary_that_lies_does_no_harm() {
    let (id, mark) = ("a".repeat(40), "m".repeat(40));
    let full = format!("+FULLRESYNC {id} 5\r\n");
    let answers = [
        String::new(),
        "\n\n\n".to_owned(),
        "+FULLRESYNC short 5\r\n$5\r\nhello".to_owned(),
        format!("+FULLRESYNC {id} 9223372036854775807\r\n$0\r\n"),
        format!("+FULLRESYNC {id} -7\r\n"),
        format!("{full}$-1\r\n"),
        format!("{full}$100\r\nREDIS0011 and then nothing"),
        format!("{full}$20\r\nREDIS0011garbage1234*1\r\n$4\r\nPING\r\n"),
        format!("{full}$EOF:{mark}\r\nREDIS0011{mark}"),
        format!("{full}$EOF:{mark}\r\n{mark}"),
        format!("{full}{}", "x".repeat(5000)),
        "+CONTINUE\r\n*1\r\n$-5\r\n".to_owned(),
        "+CONTINUE\r\n*1\r\n$4\r\nEXEC\r\n".to_owned(),
        "+CONTINUE\r\n*1\r\n$5\r\nMULTI\r\n*2\r\n$3\r\nGET\r\n$1\r\n".to_owned(),
        "+CONTINUE\r\n*3\r\n$3\r\nSET\r\n$1\r\nk\r\n$99999999999\r\nv".to_owned(),
        "+CONTINUE\r\n*1\r\n$7\r\nNOTHING\r\n*1\r\n$8\r\nSHUTDOWN\r\n#".to_owned(),
    ];
    for mode in ["disabled", "flush-before-load"] {
        let replica = dunlin(&["--repl-diskless-load", mode]);
        fill(&replica, 6, 50);
        let mut theirs = replica.client();
        for answer in &answers {
            let answer = format!("+PONG\r\n+OK\r\n+OK\r\n+OK\r\n{answer}");
            let (port, connections) = lying_primary(answer.into_bytes());
            follow(&mut theirs, port);
            eventually("an attempt", || connections.load(SeqCst) > 0);
        }
        let primary = dunlin(&[]);
        fill(&primary, 7, 500);
        follow(&mut theirs, primary.port());
        until_linked(&replica);
        compare(&primary, &replica);
    }
}

/// Positions of before say nothing about the history that takes the place of the own one.
#[test]
fn a_replica_with_a_durable_log_answers_after_a_snapshot_of_a_shorter_history() {
    let replica = dunlin(&["--appendonly", "yes", "--appendfsync", "always"]);
    fill(&replica, 12, 2000);
    let mut theirs = replica.client();
    ok(&mut theirs, &["SET", "seen", "before"]);
    let primary = dunlin(&[]);
    ok(&mut primary.client(), &["SET", "seen", "after"]);
    follow(&mut theirs, primary.port());
    until_linked(&replica);
    let mut others = replica.client();
    for client in [&mut theirs, &mut others] {
        eventually("it is there", || {
            ask(client, &["GET", "seen"]) == Reply::Bulk(b"after".to_vec())
        });
    }
}

#[test]
fn messages_reach_listeners_of_replicas() {
    let primary = dunlin(&[]);
    let replica = dunlin(&[]);
    let (mut ours, mut theirs) = (primary.client(), replica.client());
    follow(&mut theirs, primary.port());
    until_linked(&replica);
    let mut listener = replica.client();
    ask(&mut listener, &["SUBSCRIBE", "news"]);
    assert_eq!(ask(&mut ours, &["PUBLISH", "news", "good"]), Reply::Integer(0));
    let message = listener.message().expect("a message");
    assert_eq!(message.elements().expect("words")[2], Reply::Bulk(b"good".to_vec()));
    let list = ask(&mut theirs, &["CLIENT", "LIST", "TYPE", "primary"]);
    assert!(String::from_utf8_lossy(list.text().expect("a list")).contains("flags=M"));
    // Killed, the link comes back without a snapshot.
    assert_eq!(ask(&mut theirs, &["CLIENT", "KILL", "TYPE", "primary"]), Reply::Integer(1));
    eventually("it came back", || number(&mut ours, "sync_partial_ok") == 1);
    until_linked(&replica);
}

#[test]
fn the_reference_hands_over_its_role() {
    let primary = start(&reference(), &[]);
    fill(&primary, 8, 500);
    let replica = dunlin(&[]);
    let (mut ours, mut theirs) = (primary.client(), replica.client());
    follow(&mut theirs, primary.port());
    until_linked(&replica);
    ok(&mut ours, &["FAILOVER"]);
    eventually("roles are exchanged", || {
        field(&mut theirs, "role") == "master" && field(&mut ours, "role") == "slave"
    });
    until_linked(&primary);
    fill(&replica, 9, 500);
    compare(&replica, &primary);
    assert_eq!(number(&mut theirs, "sync_full"), 0);
}

#[test]
fn processes_that_are_killed_come_back() {
    let mut primary = dunlin(&["--appendonly", "yes"]);
    let mut replica = dunlin(&["--appendonly", "yes"]);
    follow(&mut replica.client(), primary.port());
    until_linked(&replica);
    for round in 0..3 {
        fill(&primary, 10 + round, 500);
        let port = primary.port();
        if round % 2 == 0 {
            replica.kill().expect("it was there");
            fill(&primary, 20 + round, 500);
            replica.start_again().expect("it starts");
            follow(&mut replica.client(), port);
        } else {
            primary.kill().expect("it was there");
            // The replica finds it by itself. It may be loading a snapshot already.
            primary.start_again().expect("it starts");
        }
        fill(&primary, 30 + round, 500);
        until_linked(&replica);
        compare(&primary, &replica);
    }
}

#[test]
fn followers_of_a_replica_go_on_in_the_database_of_the_stream() {
    let first = dunlin(&[]);
    let mut ours = first.client();
    ok(&mut ours, &["SELECT", "5"]);
    ok(&mut ours, &["SET", "k", "v"]);
    let second = dunlin(&[]);
    follow(&mut second.client(), first.port());
    until_linked(&second);
    ok(&mut ours, &["SET", "k2", "v"]);
    // Two, since the snapshot for one must not change anything for the next.
    let others = [start(&reference(), &[]), dunlin(&[])];
    for other in &others {
        follow(&mut other.client(), second.port());
        until_linked(other);
    }
    ok(&mut ours, &["SET", "k3", "v"]);
    others.iter().for_each(|other| compare(&first, other));
}

/// Effects of commands that the reference does not have reach it as commands that it has.
#[test]
fn streams_with_groups_reach_the_reference() {
    let primary = dunlin(&["--appendonly", "yes", "--stream-node-max-entries", "5"]);
    let replica = start(&reference(), &[]);
    follow(&mut replica.client(), primary.port());
    until_linked(&replica);
    let (mut client, mut rng) = (primary.client(), Rng::new(11));
    for _ in 0..20_000 {
        change_stream(&mut client, &mut rng);
    }
    compare(&primary, &replica);
    assert_eq!(number(&mut replica.client(), "sync_full"), 0);
    assert_eq!(number(&mut replica.client(), "unexpected_error_replies"), 0);
    // The log has the same, as commands and as a base without RDB.
    let before = contents(&mut client);
    ok(&mut client, &["DEBUG", "LOADAOF"]);
    assert_same(&before, &contents(&mut client));
    forget_deleted(&mut client);
    compare(&primary, &replica);
    let before = contents(&mut client);
    ok(&mut client, &["CONFIG", "SET", "aof-use-rdb-preamble", "no"]);
    ok(&mut client, &["BGREWRITEAOF"]);
    eventually("the rewrite", || number(&mut client, "aof_rewrite_in_progress") == 0);
    ok(&mut client, &["DEBUG", "LOADAOF"]);
    assert_same(&before, &contents(&mut client));
}

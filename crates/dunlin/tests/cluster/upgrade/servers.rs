//! Servers without a cluster: replicas of the other release, and files that it wrote.

use super::before;
use crate::data::fill;
use harness::client::{Client, ask, ok};
use harness::contents::{Contents, contents};
use harness::info::fields;
use harness::module_types;
use harness::server::{Options, Program, Server};
use harness::wait::eventually;

/// Starts a server that writes an append-only file.
fn start(program: &Program) -> Server {
    let words =
        ["--appendonly", "yes", "--appendfsync", "always", "--repl-diskless-sync-delay", "0"];
    Server::start(program, Options::arguments(&words)).expect("it starts")
}

fn follow(replica: &Server, primary: &Server) {
    ok(&mut replica.client(), &*format!("REPLICAOF 127.0.0.1 {}", primary.port()));
    eventually("the replica has its link", || {
        fields(&mut replica.client(), ["master_link_status"]) == ["up"]
    });
}

/// Waits until a replica has all that its primary has; returns that.
fn until_equal(primary: &Server, replica: &Server) -> Contents {
    let mut wanted = contents(&mut primary.client());
    eventually("the replica has all", || {
        wanted = contents(&mut primary.client());
        contents(&mut replica.client()) == wanted
    });
    wanted
}

/// Further writes to keys of all types that are there.
fn write(client: &mut Client, round: usize) {
    for request in [
        format!("SET round:{round} {round} PX 10000000"),
        "INCR number".to_owned(),
        format!("RPUSH list {round}"),
        format!("SADD set {round}"),
        format!("HSET hash {round} x"),
        format!("HPEXPIREAT hash 32503680000000 FIELDS 1 {round}"),
        format!("ZADD zset {round}.5 {round}"),
        "XADD stream * a b".to_owned(),
        "SPOP numbers".to_owned(),
        "SADD numbers 1 2 3 4".to_owned(),
        "MULTI".to_owned(),
        format!("SET in:{round} x"),
        "COPY hash copied REPLACE".to_owned(),
        "EXEC".to_owned(),
        "EVAL redis.call('SET','scripted',ARGV[1]) 0 x".to_owned(),
    ] {
        let reply = ask(client, &*request);
        assert!(!reply.is_error(), "{request}: {reply:?}");
    }
}

/// A primary of one release with a replica of the other, which takes its place.
fn replicate(primary: &Program, replica: &Program) {
    let (primary, replica) = (start(primary), start(replica));
    fill(&mut primary.client());
    follow(&replica, &primary);
    until_equal(&primary, &replica);
    for round in 0..50 {
        write(&mut primary.client(), round);
    }
    until_equal(&primary, &replica);
    // The link is lost, and the rest is sent.
    ask(&mut primary.client(), "CLIENT KILL TYPE replica");
    for round in 50..60 {
        write(&mut primary.client(), round);
    }
    until_equal(&primary, &replica);
    let syncs = fields(&mut primary.client(), ["sync_full", "sync_partial_ok"]);
    assert_eq!(syncs[0], "1", "the rest alone is sent: {syncs:?}");
    // They change their roles.
    ok(&mut replica.client(), "REPLICAOF NO ONE");
    follow(&primary, &replica);
    write(&mut replica.client(), 60);
    until_equal(&replica, &primary);
}

#[test]
fn servers_of_both_releases_replicate_from_each_other() {
    let Some(before) = before() else { return };
    replicate(&Program::under_test(), &before);
    replicate(&before, &Program::under_test());
}

/// Lets a program go on with the files of another one, which was killed, and then the first with
/// those of the second.
fn take_turns(first: &Program, second: &Program, options: &[&str], save: &str) {
    let mut server = Server::start(first, Options::arguments(options)).expect("it starts");
    fill(&mut server.client());
    for (round, next) in [second, first, second].into_iter().enumerate() {
        write(&mut server.client(), round);
        let reply = ask(&mut server.client(), save);
        assert!(!reply.is_error(), "{save}: {reply:?}");
        write_behind(&mut server, save, round);
        let wanted = contents(&mut server.client());
        server.kill().expect("it runs");
        server.start_again_by(next).expect("the other release reads the files");
        assert_eq!(contents(&mut server.client()), wanted, "round {round} of {options:?}");
    }
}

/// Writes behind the base file of a log.
fn write_behind(server: &mut Server, save: &str, round: usize) {
    if save == "SAVE" {
        return;
    }
    harness::wait::until_not_rewriting(&mut server.client());
    write(&mut server.client(), 100 + round);
}

#[test]
fn both_releases_read_each_others_snapshots_and_logs() {
    let Some(before) = before() else { return };
    let new = Program::under_test();
    for (first, second) in [(&new, &before), (&before, &new)] {
        take_turns(first, second, &["--appendonly", "no"], "SAVE");
        let log = ["--appendonly", "yes", "--appendfsync", "always"];
        take_turns(first, second, &log, "BGREWRITEAOF");
    }
}

/// Whether a server of the release before has the types that Redis has in modules.
fn knows_types(program: &Program) -> bool {
    let server = start(program);
    !ask(&mut server.client(), "JSON.SET probe $ 1").is_error()
}

#[test]
fn the_release_before_refuses_files_with_types_that_it_does_not_know() {
    let Some(before) = before() else { return };
    let knows = knows_types(&before);
    for (options, save) in [
        (&["--appendonly", "no"][..], "SAVE"),
        (&["--appendonly", "yes", "--appendfsync", "always"], "PING"),
        (&["--appendonly", "yes", "--appendfsync", "always"], "BGREWRITEAOF"),
    ] {
        let new = Program::under_test();
        let mut server = Server::start(&new, Options::arguments(options)).expect("it starts");
        fill(&mut server.client());
        module_types::fill(&mut server.client(), "");
        ask(&mut server.client(), save);
        harness::wait::until_not_rewriting(&mut server.client());
        let wanted = contents(&mut server.client());
        server.kill().expect("it runs");
        match server.start_again_by(&before) {
            Ok(()) => assert!(knows, "{save}: it reads what it does not know"),
            Err(why) => {
                println!("{save}: {why}");
                assert!(!knows, "{save}: {why}");
                // The files are as they were.
                server.start_again_by(&new).expect("the newer one reads its files");
            }
        }
        assert_eq!(contents(&mut server.client()), wanted, "{save}");
    }
}

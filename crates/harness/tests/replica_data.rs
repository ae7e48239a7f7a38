//! What a replica keeps of its data: in its own files, over restarts, and when a synchronisation fails.

use harness::client::{Client, ask, ok};
use harness::contents::contents;
use harness::info::number;
use harness::replicas::{compare, is_linked, while_writing, write};
use harness::rng::Rng;
use harness::server::{Options, Program, Server};
use harness::wait::{eventually, until_not_rewriting};

fn start(program: &Program, arguments: &[&str]) -> Server {
    let all = [&["--save", "", "--repl-diskless-sync-delay", "0"], arguments].concat();
    Server::start(program, Options::arguments(&all)).expect("it starts")
}

fn dunlin(arguments: &[&str]) -> Server {
    start(&Program::under_test(), arguments)
}

fn replica_of(primary: &Server, arguments: &[&str]) -> Server {
    let port = primary.port().to_string();
    let replica = dunlin(&[&["--replicaof", "127.0.0.1", &port], arguments].concat());
    until_linked(&replica);
    replica
}

fn until_linked(server: &Server) {
    let mut client = server.client();
    eventually("the link is up", || is_linked(&mut client));
}

fn fill(server: &Server, seed: u64, writes: usize) {
    let (mut client, mut rng) = (server.client(), Rng::new(seed));
    (0..writes).for_each(|_| write(&mut client, &mut rng));
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
            let primary = start(&program, &[]);
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
                compare(&primary, &replica);
                assert_eq!(number(&mut ours, "sync_full"), 1, "a restart needs no snapshot");
            }
        }
    }
}

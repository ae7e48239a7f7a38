//! Crashing and restarting on request (DEBUG SEGFAULT, PANIC, ASSERT, OOM, RESTART): the log says
//! what happened and where, and the process ends, or begins anew, as it should.

// A failed step is a failed test, in its helpers too.
#![allow(clippy::unwrap_used)]

use harness::client::Client;
use harness::reply::Reply;
use harness::server::{Options, Program, Server};
use harness::wait::eventually;

fn start() -> Server {
    Server::start(&Program::under_test(), Options::default()).unwrap()
}

/// Sends a request that ends the connection.
fn ask(server: &Server, words: &[&str]) {
    let mut client = server.client();
    assert!(client.command(words).is_err(), "{words:?} was answered");
}

#[test]
fn a_crash_leaves_a_report_with_a_stack_trace() {
    for (subcommand, reason) in [
        ("SEGFAULT", "crashed by signal: 11"),
        ("PANIC", "DEBUG PANIC was called"),
        ("ASSERT", "DEBUG ASSERT was called"),
        ("OOM", "crashed by signal: 6"),
    ] {
        let server = start();
        ask(&server, &["DEBUG", subcommand]);
        server.logs("BUG REPORT END");
        let log = server.log();
        assert!(log.contains(reason), "{subcommand}: {log}");
        assert!(log.contains("STACK TRACE"), "{subcommand}: {log}");
        for part in ["------ CLIENT LIST ------", " addr=", "\n# Server\n", "\n# Commandstats\n"] {
            assert!(log.contains(part), "{subcommand}: no {part:?} in {log}");
        }
    }
}

#[test]
fn a_restart_begins_with_an_empty_keyspace_and_the_same_process() {
    for subcommand in ["RESTART", "CRASH-AND-RECOVER"] {
        let server = start();
        let mut client = server.client();
        assert_eq!(client.command(&["SET", "k", "v"]).unwrap(), Reply::Simple(b"OK".to_vec()));
        ask(&server, &["DEBUG", subcommand, "1"]);
        eventually("the second start", || {
            server.log().matches("Ready to accept connections").count() == 2
        });
        let mut client = Client::connect(server.address()).unwrap();
        assert_eq!(client.command(&["GET", "k"]).unwrap(), Reply::Nil);
        // A signal still ends it: nothing was inherited that stands in the way.
        assert!(server.stop().unwrap().success());
    }
}

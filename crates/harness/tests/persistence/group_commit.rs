//! Many clients wait for one fsync (`appendfsync always`): the thread that serves them gives way to
//! the one that sends their replies, and stops yielding when they have gone.

// A failed step is a failed test, in its helpers too.
#![allow(clippy::unwrap_used)]

use harness::client::Client;
use harness::info::number;
use harness::reply::Reply;
use harness::server::{Backend, Options, Program, Server};
use harness::wait::eventually;
use std::fs;

const CLIENTS: usize = 64;

/// A server with one reactor, and clients to write to it.
fn start(backend: Option<Backend>, arguments: &[&str]) -> (Server, Vec<Client>) {
    let mut all = vec!["--appendonly", "yes", "--appendfsync", "always", "--io-threads", "1"];
    all.extend(arguments);
    let options = Options { backend, ..Options::arguments(&all) };
    let server = Server::start(&Program::under_test(), options).unwrap();
    let connect = |_| server.client();
    let clients = (0..CLIENTS).map(connect).collect();
    (server, clients)
}

/// Each client writes once, all at the same time.
fn round(clients: &mut [Client]) {
    for client in clients.iter_mut() {
        client.send(&["SET", "key", "value"]).unwrap();
    }
    for client in clients {
        assert_eq!(client.reply().unwrap(), Reply::Simple(b"OK".to_vec()));
    }
}

/// The scheduling policy of the reactor: the 41st field, and the second one ends with a
/// parenthesis.
fn policy(server: &Server) -> i32 {
    let tasks = format!("/proc/{}/task", server.process_id());
    let stats = fs::read_dir(tasks).unwrap().map(|task| task.unwrap().path().join("stat"));
    let mut reactors = stats.filter_map(|path| {
        let stat = fs::read_to_string(path).ok()?;
        let (_, rest) = stat.split_once("(reactor-0) ")?;
        rest.split(' ').nth(38)?.parse().ok()
    });
    reactors.next().expect("there is a reactor")
}

#[test]
fn a_reactor_gives_way_while_many_wait_for_the_disk() {
    for backend in Program::under_test().backends() {
        let (server, mut clients) = start(backend, &[]);
        assert_eq!(policy(&server), libc::SCHED_OTHER);
        eventually("a reactor gives way", || {
            round(&mut clients);
            policy(&server) == libc::SCHED_BATCH
        });
        assert!(number(&mut clients[0], "io_periods_yielding") > 0);
        eventually("it does no longer", || policy(&server) == libc::SCHED_OTHER);
    }
}

#[test]
fn nobody_gives_way_if_that_is_switched_off() {
    let (server, mut clients) = start(None, &["--io-coalesce-usec", "0"]);
    for _ in 0..500 {
        round(&mut clients);
    }
    assert_eq!(number(&mut clients[0], "io_periods_yielding"), 0);
    assert_eq!(policy(&server), libc::SCHED_OTHER);
}

//! WATCH of very many keys: it takes time in proportion to their number, and beside it others go
//! on.
#![allow(clippy::unwrap_used)]

use harness::client::{Client, ask, ok};
use harness::info::number;
use harness::replicas::{compare, is_linked};
use harness::reply::Reply;
use harness::server::{Options, Program, Server};
use harness::wait::eventually;
use std::time::{Duration, Instant};

const KEYS: usize = 100_000;

fn server() -> Server {
    Server::start(&Program::under_test(), Options::arguments(&["--io-threads", "1"])).unwrap()
}

fn watch_request() -> Vec<String> {
    std::iter::once("WATCH".to_owned()).chain((0..KEYS).map(|key| format!("key:{key}"))).collect()
}

fn watched_keys(client: &mut Client) -> u64 {
    number(client, "total_watched_keys")
}

/// A transaction's outcome: whether it ran.
fn runs(client: &mut Client) -> bool {
    ask(client, "MULTI");
    ask(client, "PING");
    !ask(client, "EXEC").is_nil()
}

#[test]
fn many_keys_are_watched_in_linear_time_beside_others() {
    let server = server();
    let [mut watching, mut other] = [server.client(), server.client()];
    let began = Instant::now();
    watching.send(&watch_request()).unwrap();
    let mut longest = Duration::ZERO;
    while watched_keys(&mut other) < KEYS as u64 {
        let asked = Instant::now();
        ask(&mut other, "PING");
        longest = longest.max(asked.elapsed());
        assert!(began.elapsed() < Duration::from_secs(60), "they are still not watched");
    }
    assert_eq!(watching.reply().unwrap(), Reply::Simple(b"OK".to_vec()));
    // A reactor that compared each key with all others would be busy for eight seconds.
    assert!(longest < Duration::from_secs(4), "another client waited for {longest:?}");
}

#[test]
fn what_is_watched_in_the_background_is_watched() {
    let server = server();
    let [mut watching, mut other] = [server.client(), server.client()];
    ask(&mut watching, "WATCH before");
    watching.command(&watch_request()).unwrap();
    assert_eq!(watched_keys(&mut other), KEYS as u64 + 1);
    ask(&mut other, "SET key:77777 value");
    assert!(!runs(&mut watching));
    eventually("all are forgotten", || watched_keys(&mut other) == 0);
    assert!(runs(&mut watching));

    // The keys of both requests are watched.
    ask(&mut watching, "WATCH before");
    watching.command(&watch_request()).unwrap();
    ask(&mut other, "SET before value");
    assert!(!runs(&mut watching));

    // One that expires unchanged has changed.
    ask(&mut other, "SET key:5 value PX 5000");
    watching.command(&watch_request()[..10_000]).unwrap();
    eventually("it expires", || ask(&mut other, "EXISTS key:5") == Reply::Integer(0));
    assert!(!runs(&mut watching));
    watching.command(&watch_request()).unwrap();
    assert!(runs(&mut watching));
    eventually("all are forgotten", || watched_keys(&mut other) == 0);
}

#[test]
fn a_client_that_leaves_watches_nothing() {
    let server = server();
    let mut other = server.client();
    for is_early in [true, false] {
        let mut watching = server.client();
        watching.send(&watch_request()).unwrap();
        if !is_early {
            watching.reply().unwrap();
        }
        drop(watching);
        // First it has to have read the request.
        eventually("it is gone", || number(&mut other, "connected_clients") == 1);
        eventually("all are forgotten", || watched_keys(&mut other) == 0);
    }
    ask(&mut other, "WATCH key:1");
    ask(&mut other, "UNWATCH");
    assert_eq!(watched_keys(&mut other), 0);
}

#[test]
fn a_replica_leaves_expired_keys_that_are_watched_to_its_primary() {
    let start = |arguments: &[&str]| {
        let all = [&["--save", "", "--repl-diskless-sync-delay", "0"], arguments].concat();
        Server::start(&Program::under_test(), Options::arguments(&all)).expect("it starts")
    };
    let primary = start(&[]);
    let replica = start(&["--replicaof", "127.0.0.1", &primary.port().to_string()]);
    let (mut ours, mut theirs) = (primary.client(), replica.client());
    eventually("the link is up", || is_linked(&mut theirs));
    ok(&mut ours, "DEBUG SET-ACTIVE-EXPIRE 0");
    ok(&mut ours, "SET key value PX 1");
    eventually("it is there and has expired", || {
        ask(&mut theirs, "DBSIZE").shown() == "1" && ask(&mut theirs, "EXISTS key").shown() == "0"
    });
    ok(&mut theirs, "WATCH key");
    ok(&mut theirs, "MULTI");
    ask(&mut theirs, "DBSIZE");
    let replies = ask(&mut theirs, "EXEC");
    // It had expired when it was watched, so that has not changed.
    assert_eq!(replies.elements().map(|all| all[0].shown()), Some("1".to_owned()));
    ok(&mut ours, "SET other value");
    // A deletion of its own would put the replica's position beyond the primary's.
    compare(&primary, &replica);
}

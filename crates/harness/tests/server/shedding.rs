//! Requests of the least important users are refused while a thread is overloaded, and no others.

// A failed step is a failed test, in its helpers too.
#![allow(clippy::unwrap_used)]

use harness::client::{Client, ask, ok};
use harness::info::{field, number};
use harness::reply::Reply;
use harness::server::{Options, Program, Server};
use harness::wait::eventually;
use harness::way_in::Saturation;

fn text(reply: &Reply) -> String {
    String::from_utf8_lossy(reply.text().unwrap_or_default()).into_owned()
}

fn is_refused(reply: &Reply) -> bool {
    text(reply).starts_with("TRYAGAIN The server is overloaded")
}

/// Keeps the only reactor busy with long turns. Ends without an error if the client is served.
fn load(server: &Server) -> Saturation {
    Saturation::begin(vec![log_in(server, "important")])
}

fn start() -> Server {
    let arguments = ["--io-threads", "1", "--save", ""];
    let server = Server::start(&Program::under_test(), Options::arguments(&arguments)).unwrap();
    let mut client = server.client();
    for name in ["important", "batch"] {
        ok(&mut client, &["ACL", "SETUSER", name, "on", ">secret", "~*", "&*", "+@all"]);
    }
    server
}

fn log_in(server: &Server, user: &str) -> Client {
    let mut client = server.client();
    ok(&mut client, &["AUTH", user, "secret"]);
    client
}

#[test]
fn only_the_named_users_are_refused_and_only_under_load() {
    let server = start();
    let (mut batch, mut important) = (log_in(&server, "batch"), log_in(&server, "important"));
    ok(&mut important, "CONFIG SET shed-users batch shed-turn-usec 1");
    let load = load(&server);
    eventually("the thread is overloaded", || is_refused(&ask(&mut batch, "GET key")));
    eventually("INFO says so", || number(&mut important, "overloaded_threads") == 1);
    assert!(number(&mut important, "shed_requests") > 0);
    assert!(field(&mut important, "errorstat_TRYAGAIN").starts_with("count="));
    ok(&mut important, "SET key value");
    // To log in and to end is possible, and so is a transaction that has begun.
    ok(&mut batch, "AUTH batch secret");
    ok(&mut important, "CONFIG SET shed-turn-usec 0");
    eventually("nothing is refused", || !is_refused(&ask(&mut batch, "GET key")));
    ok(&mut batch, "MULTI");
    ok(&mut important, "CONFIG SET shed-turn-usec 1");
    let mut other = log_in(&server, "batch");
    eventually("the thread is overloaded again", || is_refused(&ask(&mut other, "GET key")));
    assert_eq!(text(&ok(&mut batch, "GET key")), "QUEUED");
    let reply = ask(&mut batch, "EXEC");
    assert!(format!("{reply:?}").contains("118, 97, 108, 117, 101"), "{reply:?}");
    // Writes alone, if that is asked for.
    ok(&mut important, "CONFIG SET shed-requests writes");
    eventually("writes are refused", || is_refused(&ask(&mut other, "SET key other")));
    ok(&mut other, "GET key");
    load.end().unwrap();
}

#[test]
fn a_thread_recovers() {
    let server = start();
    let (mut batch, mut important) = (log_in(&server, "batch"), log_in(&server, "important"));
    // A turn of two thousand requests takes longer, one of one request does not.
    ok(&mut important, "CONFIG SET shed-users batch shed-turn-usec 250");
    let load = load(&server);
    eventually("the thread is overloaded", || is_refused(&ask(&mut batch, "GET key")));
    load.end().unwrap();
    eventually("it has recovered", || number(&mut important, "overloaded_threads") == 0);
    eventually("nothing is refused", || !is_refused(&ask(&mut batch, "GET key")));
}

/// Connects as `user`, with a name and a library.
fn client_of(server: &Server, user: &str, name: &str, library: &str) -> Client {
    let mut client = log_in(server, user);
    ok(&mut client, &["CLIENT", "SETNAME", name]);
    ok(&mut client, &["CLIENT", "SETINFO", "LIB-NAME", library]);
    client
}

#[test]
fn clients_are_refused_by_what_they_call_themselves() {
    let server = start();
    let mut important = log_in(&server, "important");
    let reply = ask(&mut important, &["CONFIG", "SET", "shed-clients", "batch-*"]);
    assert!(text(&reply).contains("shed-clients are words like name:PATTERN"), "{reply:?}");
    ok(&mut important, &["CONFIG", "SET", "shed-clients", "name:batch-* lib:crawler"]);
    ok(&mut important, "CONFIG SET shed-users batch shed-turn-usec 1");
    let mut by_name = client_of(&server, "important", "batch-7", "redis-py");
    let mut by_library = client_of(&server, "important", "", "crawler");
    let mut by_user = client_of(&server, "batch", "batch-8", "redis-py");
    let mut other = client_of(&server, "important", "web", "redis-py");
    let load = load(&server);
    for (what, client) in
        [("name", &mut by_name), ("library", &mut by_library), ("user", &mut by_user)]
    {
        eventually(what, || is_refused(&ask(client, "GET key")));
    }
    ok(&mut other, "SET key value");
    // Another name: the user still counts.
    ok(&mut important, "CONFIG SET shed-turn-usec 0");
    for client in [&mut by_name, &mut by_user] {
        eventually("nothing is refused", || !is_refused(&ask(client, "CLIENT SETNAME web")));
    }
    ok(&mut important, "CONFIG SET shed-turn-usec 1");
    eventually("the library", || is_refused(&ask(&mut by_library, "GET key")));
    assert!(is_refused(&ask(&mut by_user, "GET key")), "another name is no way out");
    ok(&mut by_name, "GET key");
    // And the rules may change.
    ok(&mut important, &["CONFIG", "SET", "shed-clients", "name:we?"]);
    eventually("its new name", || is_refused(&ask(&mut by_name, "GET key")));
    eventually("not its library", || !is_refused(&ask(&mut by_library, "GET key")));
    load.end().unwrap();
}

#[test]
fn a_thread_that_takes_its_core_refuses() {
    let server = start();
    let (mut batch, mut important) = (log_in(&server, "batch"), log_in(&server, "important"));
    // Other programs may have most of the core. No turn takes as long as the other limit.
    ok(&mut important, "CONFIG SET shed-users batch shed-cpu-percent 5 shed-turn-usec 10000000");
    let load = load(&server);
    eventually("the thread is overloaded", || is_refused(&ask(&mut batch, "GET key")));
    eventually("INFO says why", || number(&mut important, "overloaded_threads_cpu") == 1);
    assert_eq!(number(&mut important, "overloaded_threads_turns"), 0);
    load.end().unwrap();
    eventually("nothing is refused", || !is_refused(&ask(&mut batch, "GET key")));
}

#[test]
fn clients_that_do_not_read_overload_all_threads() {
    let server = start();
    let (mut batch, mut important) = (log_in(&server, "batch"), log_in(&server, "important"));
    ok(&mut important, "CONFIG SET shed-users batch shed-queued-bytes 20mb");
    ok(&mut important, &["SET", "long", &"x".repeat(8 << 20)]);
    ok(&mut batch, "GET key");
    let readers: Vec<Client> = (0..8)
        .map(|_| {
            let mut reader = log_in(&server, "important");
            (0..4).for_each(|_| reader.send(&["GET", "long"]).unwrap());
            reader
        })
        .collect();
    eventually("all are overloaded", || is_refused(&ask(&mut batch, "GET key")));
    assert_eq!(number(&mut important, "overloaded_threads_queued_bytes"), 1);
    assert!(number(&mut important, "mem_clients_normal") > 18 << 20);
    ok(&mut important, "GET key");
    drop(readers);
    eventually("nothing is refused", || !is_refused(&ask(&mut batch, "GET key")));
    assert_eq!(number(&mut important, "overloaded_threads"), 0);
}

//! `rate-limits`: requests wait when a user, or an address, has had its share; nothing is refused.
//!
//! Times are lower bounds, which a busy machine can only exceed.

// A failed step is a failed test, in its helpers too.
#![allow(clippy::unwrap_used)]

use harness::client::{Client, ask, encode, ok};
use harness::info::number;
use harness::reply::Reply;
use harness::server::{Options, Program, Server};
use harness::wait::eventually;
use std::time::{Duration, Instant};

const VALUE: usize = 3 << 20;

fn start() -> Server {
    let arguments = ["--save", ""];
    let server = Server::start(&Program::under_test(), Options::arguments(&arguments)).unwrap();
    let mut client = server.client();
    ok(&mut client, "ACL SETUSER batch on nopass ~* &* +@all");
    ok(&mut client, &["SET", "value", &"v".repeat(VALUE)]);
    server
}

fn as_batch(server: &Server) -> Client {
    let mut client = server.client();
    ok(&mut client, "AUTH batch any");
    client
}

fn limit(client: &mut Client, limits: &str) {
    ok(client, &["CONFIG", "SET", "rate-limits", limits]);
}

#[test]
fn a_users_requests_wait_and_no_others() {
    let server = start();
    let mut other = server.client();
    limit(&mut other, "user:batch 100 0");
    // The second that is saved up, and then a hundred a second over both connections.
    let mut clients = [as_batch(&server), as_batch(&server)];
    let began = Instant::now();
    for client in &mut clients {
        client.send_raw(&encode(&["INCR", "number"]).repeat(150)).unwrap();
    }
    eventually("requests wait", || number(&mut other, "rate_limited_requests") > 0);
    (0..1000).for_each(|_| assert_eq!(ok(&mut other, "PING"), Reply::Simple(b"PONG".to_vec())));
    for client in &mut clients {
        for _ in 0..150 {
            assert!(matches!(client.reply().unwrap(), Reply::Integer(_)));
        }
    }
    assert!(began.elapsed() > Duration::from_millis(1900), "{:?}", began.elapsed());
    assert_eq!(ok(&mut other, "GET number"), Reply::Bulk(b"300".to_vec()));
}

#[test]
fn bytes_are_paid_for_afterwards() {
    let server = start();
    let mut other = server.client();
    limit(&mut other, "address:127.0.0.0/8 0 1mb");
    let mut client = server.client();
    let began = Instant::now();
    ok(&mut client, "GET value");
    ok(&mut client, "PING");
    // Three megabytes, of which one was saved up.
    assert!(began.elapsed() > Duration::from_millis(1900), "{:?}", began.elapsed());
    // The address is the same, so another connection has waited as well.
    let began = Instant::now();
    ok(&mut other, "GET value");
    ok(&mut client, "MULTI");
    assert!(began.elapsed() > Duration::from_millis(1900), "{:?}", began.elapsed());
    ok(&mut client, "PING");
    ok(&mut client, "EXEC");
}

#[test]
fn clients_that_wait_follow_the_option_and_can_be_killed() {
    let server = start();
    let mut other = server.client();
    let mut clients = [as_batch(&server), as_batch(&server)];
    let id = ok(&mut clients[1], "CLIENT ID").integer().unwrap();
    limit(&mut other, "user:batch 0 1");
    ok(&mut clients[0], "GET value");
    // They would wait for a month.
    clients.iter_mut().for_each(|client| client.send_raw(&encode(&["PING"])).unwrap());
    eventually("both wait", || number(&mut other, "rate_limited_requests") >= 2);
    ok(&mut other, &["CLIENT", "KILL", "ID", &id.to_string()]);
    assert!(clients[1].reply().is_err());
    limit(&mut other, "");
    assert_eq!(clients[0].reply().unwrap(), Reply::Simple(b"PONG".to_vec()));
    for wrong in ["user:batch 1", "batch 1 1", "address:localhost 1 1", "user:batch x 1"] {
        let reply = ask(&mut other, &["CONFIG", "SET", "rate-limits", wrong]);
        let text = String::from_utf8_lossy(reply.text().unwrap()).into_owned();
        assert!(text.contains("groups of three words"), "{text}");
    }
}

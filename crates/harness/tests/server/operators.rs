//! `admin-socket`: operators are answered while nothing else is.

// A failed step is a failed test, in its helpers too.
#![allow(clippy::unwrap_used)]

use harness::client::{Client, ask, is_gone, ok};
use harness::info::number;
use harness::reply::Reply;
use harness::server::{Options, Program, Server};
use harness::wait::eventually;
use std::net::TcpStream;
use std::os::unix::fs::PermissionsExt;
use std::time::{Duration, Instant};

/// Touches a key that it does not declare, so the world is stopped for it, and does not end.
const STOPS_THE_WORLD: &str = "redis.call('GET', 'undeclared') while true do end";

/// Starts a server with two reactors and the operators' socket.
fn start(more: &[&str]) -> Server {
    let arguments = [
        &["--io-threads", "2", "--save", "", "--admin-socket", "operators.socket"][..],
        &["--unixsocketperm", "700"],
        more,
    ]
    .concat();
    Server::start(&Program::under_test(), Options::arguments(&arguments)).unwrap()
}

fn operator(server: &Server) -> Client {
    Client::unix(&server.directory().join("operators.socket")).unwrap()
}

fn text(reply: &Reply) -> String {
    String::from_utf8_lossy(reply.text().unwrap_or_default()).into_owned()
}

/// Runs a script that has the world stopped, until a client is seen that is not answered. Returns
/// the script's client and that one.
fn stop_the_world(server: &Server, script: &str) -> (Client, Client) {
    let mut running = server.client();
    running.send(&["EVAL", script, "0"]).unwrap();
    let mut waiting = None;
    eventually("the others wait", || {
        let mut client = server.client();
        client.send(&["PING"]).unwrap();
        let began = Instant::now();
        while began.elapsed() < Duration::from_millis(200) {
            if client.has_data().unwrap() {
                return false;
            }
            std::thread::sleep(Duration::from_millis(5));
        }
        waiting = Some(client);
        true
    });
    (running, waiting.unwrap())
}

#[test]
fn operators_are_answered_while_a_script_stops_the_world() {
    // No client is told that the server is busy: all but operators wait.
    let server = start(&["--busy-reply-threshold", "600000"]);
    let mut client = server.client();
    ok(&mut client, &["SET", "key", "value"]);
    let mut operator = operator(&server);
    eventually("the keys are counted", || info_of(&mut operator).contains("db0:keys=1,"));
    let (mut running, mut waiting) = stop_the_world(&server, STOPS_THE_WORLD);

    assert_eq!(text(&ask(&mut operator, "PING")), "PONG");
    let info = info_of(&mut operator);
    assert!(info.contains("db0:keys=1,") && info.contains("used_memory:"), "{info}");
    let list = text(&ask(&mut operator, "CLIENT LIST"));
    assert!(list.contains(" cmd=client|list "), "{list}");
    ok(&mut operator, "CONFIG SET timeout 77");
    let reply = ask(&mut operator, "CONFIG GET timeout");
    assert!(format!("{reply:?}").contains("55, 55"), "{reply:?}");
    for request in
        ["SLOWLOG GET", "LATENCY LATEST", "COMMAND COUNT", "ACL WHOAMI", "ROLE", "CLIENT INFO"]
    {
        let reply = ask(&mut operator, request);
        assert!(!reply.is_error(), "{request}: {reply:?}");
    }
    // Others get in, too, and a connection that ends is not in the way.
    drop(self::operator(&server));
    assert_eq!(text(&ask(&mut self::operator(&server), "PING")), "PONG");
    // Who wants the data waits, and keeps no other operator waiting.
    let mut reader = self::operator(&server);
    reader.send(&["GET", "key"]).unwrap();
    assert_eq!(text(&ask(&mut operator, "PING")), "PONG");
    assert!(!waiting.has_data().unwrap() && !reader.has_data().unwrap(), "the world stands still");

    ok(&mut operator, "SCRIPT KILL");
    assert!(text(&running.reply().unwrap()).contains("Script killed by user"));
    assert_eq!(text(&waiting.reply().unwrap()), "PONG");
    assert_eq!(text(&reader.reply().unwrap()), "value");
}

fn info_of(operator: &mut Client) -> String {
    text(&ask(operator, "INFO"))
}

#[test]
fn operators_run_no_script_on_their_thread() {
    let server = start(&["--busy-reply-threshold", "600000"]);
    let (mut first, mut second) = (operator(&server), operator(&server));
    first.send(&["EVAL", "while true do end", "0"]).unwrap();
    // As soon as it runs it can be killed, and until then another operator is answered.
    eventually("the script runs", || !ask(&mut second, "SCRIPT KILL").is_error());
    assert!(text(&first.reply().unwrap()).contains("Script killed by user"));
}

#[test]
fn operators_end_a_server_whose_script_does_not_end() {
    let server = start(&["--busy-reply-threshold", "100"]);
    let mut operator = operator(&server);
    let mut running = server.client();
    // It has written, so it cannot be killed.
    let script = "redis.call('SET', 'undeclared', 1) while true do end";
    running.send(&["EVAL", script, "0"]).unwrap();
    eventually("the script cannot be killed", || {
        text(&ask(&mut operator, "SCRIPT KILL")).starts_with("UNKILLABLE")
    });
    assert_eq!(text(&ask(&mut operator, "PING")), "PONG");
    operator.send(&["SHUTDOWN", "NOSAVE"]).unwrap();
    eventually("the server ends", || TcpStream::connect(server.address()).is_err());
    operator.expect_closed().unwrap();
}

#[test]
fn operators_get_in_where_clients_do_not_and_end_a_pause() {
    let server = start(&["--requirepass", "secret"]);
    let path = server.directory().join("operators.socket");
    assert_eq!(path.metadata().unwrap().permissions().mode() & 0o777, 0o700);
    let mut client = server.client();
    ok(&mut client, "AUTH secret");
    ok(&mut client, "CONFIG SET maxclients 1");
    let refused = server.client().reply().unwrap();
    assert!(text(&refused).contains("max number of clients"), "{refused:?}");

    let mut operator = operator(&server);
    let reply = ask(&mut operator, "PING");
    assert!(
        text(&reply).starts_with("NOAUTH"),
        "the socket is no way around a password: {reply:?}"
    );
    ok(&mut operator, "AUTH secret");
    ok(&mut operator, "CLIENT PAUSE 600000 ALL");
    client.send(&["PING"]).unwrap();
    assert_eq!(text(&ask(&mut operator, "PING")), "PONG");
    ok(&mut operator, "CLIENT UNPAUSE");
    assert_eq!(text(&client.reply().unwrap()), "PONG");
    ok(&mut operator, &["CLIENT", "KILL", "TYPE", "NORMAL", "SKIPME", "YES"]);
    client.expect_closed().unwrap();
    // Not without a limit of their own.
    let mut others: Vec<Client> = Vec::new();
    eventually("one operator too many", || {
        let mut next = self::operator(&server);
        // Who is refused is told so, and may have lost the connection before the request is sent.
        let is_refused = next.command(&["PING"]).is_err_and(|error| is_gone(&error));
        others.push(next);
        is_refused || number(&mut operator, "rejected_connections") > 1
    });
    assert_eq!(others.len(), 16, "the first of them is one of sixteen");
    assert_eq!(server.stop().unwrap().code(), Some(0));
    assert!(!path.exists());
}

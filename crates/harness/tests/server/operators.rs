//! `admin-socket`: operators are answered while nothing else is.

// A failed step is a failed test, in its helpers too.
#![allow(clippy::unwrap_used)]

use harness::client::{Client, ask, is_gone, ok};
use harness::info::number;
use harness::reply::Reply;
use harness::server::{Options, Program, Server};
use harness::wait::eventually;
use harness::way_in::{self, STOPS_THE_WORLD, Saturation, WayIn};
use std::collections::BTreeMap;
use std::net::TcpStream;
use std::os::unix::fs::PermissionsExt;
use std::time::{Duration, Instant};

/// What an operator waits for at most while other programs have the machine. A request that waits
/// for clients is never answered in these tests.
const MAX_WAIT: Duration = Duration::from_secs(5);

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

fn stop_the_world(server: &Server, script: &str) -> (Client, Client) {
    way_in::stop_the_world(|| server.client(), script)
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

/// Asks all that an operator needs a few times, and prints and asserts what took longest.
fn assert_answered(what: &str, way_in: &mut WayIn) {
    let mut longest = BTreeMap::new();
    for _ in 0..ROUNDS {
        let asked = way_in.ask_all(&mut |name, took| {
            let longest: &mut Duration = longest.entry(name).or_default();
            *longest = took.max(*longest);
        });
        asked.unwrap_or_else(|error| panic!("{what}: {error}"));
    }
    for (name, took) in &longest {
        println!("{what}: {name}: at most {:.1} ms", took.as_secs_f64() * 1e3);
    }
    let slow: Vec<_> = longest.iter().filter(|(_, took)| **took > MAX_WAIT).collect();
    assert!(slow.is_empty(), "{what}: {slow:?}");
}

const ROUNDS: usize = 5;

#[test]
fn operators_and_the_console_are_answered_whatever_clients_do() {
    let (server, admin_port) = Server::with_admin_port(
        &[
            &["--io-threads", "2", "--admin-socket", "operators.socket"][..],
            // No client is told that the server is busy.
            &["--requirepass", "secret", "--busy-reply-threshold", "600000"],
        ]
        .concat(),
    );
    let client = || {
        let mut client = server.client().with_patience(Duration::from_secs(600));
        ok(&mut client, "AUTH secret");
        client
    };
    let path = server.directory().join("operators.socket");
    let victims = (0..2 * 2 * ROUNDS).map(|_| Ok(client()));
    let mut way_in = WayIn::open(&path, admin_port, "secret", victims).unwrap();
    // Four for each reactor, wherever the kernel puts them.
    let saturation = Saturation::begin((0..8).map(|_| client()).collect());
    eventually("they are served", || number(way_in.socket(), "total_commands_processed") > 20_000);
    assert_answered("beside pipelines", &mut way_in);
    let mut running = client();
    running.send(&["EVAL", STOPS_THE_WORLD, "0"]).unwrap();
    eventually("the others wait", || {
        let before = number(way_in.socket(), "total_commands_processed");
        std::thread::sleep(Duration::from_millis(500));
        number(way_in.socket(), "total_commands_processed") < before + 100
    });
    assert_answered("beside a script", &mut way_in);
    ok(way_in.socket(), "SCRIPT KILL");
    assert!(text(&running.reply().unwrap()).contains("Script killed by user"));

    let before = number(way_in.socket(), "total_commands_processed");
    eventually("they are served again", || {
        number(way_in.socket(), "total_commands_processed") > before + 20_000
    });
    let began = Instant::now();
    way_in.socket().send(&["SHUTDOWN", "NOSAVE"]).unwrap();
    way_in.socket().expect_closed().unwrap();
    eventually("the server ends", || TcpStream::connect(server.address()).is_err());
    println!("beside pipelines: SHUTDOWN: {:.1} ms", began.elapsed().as_secs_f64() * 1e3);
    assert!(began.elapsed() < MAX_WAIT, "{:?}", began.elapsed());
    assert!(saturation.end().is_err(), "they were in the midst of it");
}

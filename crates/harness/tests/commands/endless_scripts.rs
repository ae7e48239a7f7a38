//! Beside a script that does not end others are served, or told that the server is busy, and can
//! end it.

// A failed step is a failed test, in its helpers too.
#![allow(clippy::unwrap_used)]

use harness::client::{Client, ask, ok};
use harness::reply::Reply;
use harness::server::{Options, Program, Server};
use harness::wait::eventually;
use std::io::ErrorKind;
use std::time::Duration;

/// Known to touch declared keys only once it has run with an argument.
const ENDLESS: &str = "redis.call('GET', KEYS[1]) while #ARGV == 0 do end return 1";

/// The same, after a write.
const WRITES: &str = "redis.call('SET', KEYS[1], 1) while #ARGV == 0 do end return 1";

fn start(more: &[&str]) -> Server {
    let arguments =
        [&["--io-threads", "2", "--save", "", "--busy-reply-threshold", "100"], more].concat();
    Server::start(&Program::under_test(), Options::arguments(&arguments)).unwrap()
}

/// Begins a script under this key that does not end.
fn begin(server: &Server, script: &str, key: &str) -> Client {
    let mut client = server.client();
    let reply = ask(&mut client, &["EVAL", script, "1", key, "ends"]);
    assert!(matches!(reply, Reply::Integer(1)), "{reply:?}");
    client.send(&["EVAL", script, "1", key]).unwrap();
    client
}

fn text(reply: &Reply) -> String {
    String::from_utf8_lossy(reply.text().unwrap_or_default()).into_owned()
}

fn is_busy(reply: &Reply) -> bool {
    reply.is_error() && text(reply).starts_with("BUSY ")
}

/// Begins an endless script, and waits until others are told that the server is busy.
fn until_busy(server: &Server, script: &str, key: &str) -> Client {
    let running = begin(server, script, key);
    let mut client = server.client();
    eventually("a request for the script's key is refused", || {
        is_busy(&ask(&mut client, &["GET", key]))
    });
    running
}

fn kill(server: &Server) {
    let reply = ask(&mut server.client(), &["SCRIPT", "KILL"]);
    assert_eq!(text(&reply), "OK", "{reply:?}");
}

fn expect_killed(running: &mut Client) {
    let reply = running.reply().unwrap();
    assert!(text(&reply).contains("Script killed by user"), "{reply:?}");
}

#[test]
fn walks_do_not_wait_for_a_script() {
    let server = start(&[]);
    let mut client = server.client();
    for number in 0..500 {
        ok(&mut client, &["SET", &format!("key:{number}"), "value"]);
    }
    let mut running = until_busy(&server, ENDLESS, "key:1");
    // Each reactor gets many of them.
    let mut clients: Vec<Client> = (0..8).map(|_| server.client()).collect();
    for client in &mut clients {
        let info = text(&ask(client, &["INFO"]));
        assert!(info.contains("db0:keys=500,"), "{info}");
        assert!(matches!(ask(client, &["DBSIZE"]), Reply::Integer(500)));
        let stats = ask(client, &["MEMORY", "STATS"]);
        assert!(!stats.is_error(), "{stats:?}");
        let keys = ask(client, &["KEYS", "*"]);
        assert!(is_busy(&keys), "{keys:?}");
        let mut cursor = "0".to_owned();
        let refusal = loop {
            let reply = ask(client, &["SCAN", &cursor, "COUNT", "100"]);
            match &reply {
                Reply::Array(parts) => cursor = text(&parts[0]),
                _ => break reply,
            }
            assert_ne!(cursor, "0", "the walk comes to the script's keys");
        };
        assert!(is_busy(&refusal), "{refusal:?}");
        let key = ask(client, &["RANDOMKEY"]);
        assert!(text(&key).starts_with("key:"), "{key:?}");
        assert_eq!(text(&ask(client, &["PING"])), "PONG");
    }
    kill(&server);
    expect_killed(&mut running);
    assert!(matches!(ask(&mut client, &["KEYS", "*"]), Reply::Array(keys) if keys.len() == 500));
}

#[test]
fn what_needs_the_world_is_refused_or_goes_first() {
    let server = start(&[]);
    let mut running = until_busy(&server, WRITES, "key");
    let mut client = server.client();
    for request in [
        &["FLUSHALL"][..],
        &["SWAPDB", "0", "1"],
        &["BGSAVE"],
        &["EVAL", "return 1 -- not known", "0"],
        &["EVAL", "return redis.call('GET', 'other')", "0"],
    ] {
        // A script that can be undone makes way, and begins again.
        let reply = ask(&mut client, request);
        assert!(is_busy(&reply) || !reply.is_error(), "{request:?}: {reply:?}");
    }
    let reply = ask(&mut client, &["SCRIPT", "KILL"]);
    assert!(text(&reply) == "OK" || text(&reply).starts_with("UNKILLABLE"), "{reply:?}");
    assert_eq!(text(&ask(&mut client, &["PING"])), "PONG");
    running.stream().set_read_timeout(Some(Duration::from_millis(1))).unwrap();
    let has_ended = |reply: std::io::Result<Reply>| match reply {
        Ok(_) => true,
        Err(error) => !matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut),
    };
    let _ = has_ended(running.reply());
}

#[test]
fn endless_scripts_leave_threads_to_other_commands() {
    let server = start(&[]);
    let mut client = server.client();
    let members: Vec<String> = (0..20_000).map(|number| number.to_string()).collect();
    let mut request = vec!["RPUSH", "numbers"];
    request.extend(members.iter().map(String::as_str));
    assert!(matches!(ask(&mut client, &request[..]), Reply::Integer(20_000)));
    let first = begin(&server, ENDLESS, "key:0");
    let begin_next = |number: usize| {
        let mut client = server.client();
        client.send(&["EVAL", ENDLESS, "1", &format!("key:{number}")]).unwrap();
        client
    };
    let mut running: Vec<Client> = std::iter::once(first).chain((1..6).map(begin_next)).collect();
    eventually("a script is overdue", || {
        (0..6).any(|number| is_busy(&ask(&mut client, &["GET", &format!("key:{number}")])))
    });
    // It takes long enough for a background thread.
    let sorted = ask(&mut client, &["SORT", "numbers", "LIMIT", "0", "1"]);
    assert!(matches!(&sorted, Reply::Array(found) if found.len() == 1), "{sorted:?}");
    // What found no thread is refused, and so is what comes now.
    let late = ask(&mut client, &["EVAL", ENDLESS, "1", "late"]);
    assert!(is_busy(&late), "{late:?}");
    kill(&server);
    for client in &mut running {
        let reply = client.reply().unwrap();
        assert!(is_busy(&reply) || text(&reply).contains("killed by user"), "{reply:?}");
    }
}

#[test]
fn nobody_is_refused_after_a_script_was_killed() {
    let server = start(&[]);
    for _ in 0..10 {
        let mut running = until_busy(&server, ENDLESS, "key");
        let mut client = server.client();
        client.send(&["SCRIPT", "KILL"]).unwrap();
        assert_eq!(text(&client.reply().unwrap()), "OK");
        for _ in 0..20 {
            let reply = ask(&mut client, &["GET", "key"]);
            assert!(!reply.is_error(), "{reply:?}");
        }
        expect_killed(&mut running);
    }
}

#[test]
fn a_script_that_waits_for_time_ends() {
    let server = start(&[]);
    let script = "local began = redis.call('TIME')[1] \
                  while redis.call('TIME')[1] - began < 1 do end return 1";
    let mut client = server.client();
    for _ in 0..2 {
        let reply = ask(&mut client, &["EVAL", script, "0"]);
        assert!(matches!(reply, Reply::Integer(1)), "{reply:?}");
    }
}

#[test]
fn sessions_end_beside_a_script() {
    let server = start(&[]);
    let mut running = begin(&server, ENDLESS, "key");
    let mut client = server.client();
    let mut watching = server.client();
    let watched = ask(&mut watching, &["WATCH", "key", "other"]);
    assert_eq!(text(&watched), "OK", "{watched:?}");
    ok(&mut watching, &["UNWATCH"]);
    ok(&mut watching, &["WATCH", "key"]);
    drop(watching);
    eventually("a request for the script's key is refused", || {
        is_busy(&ask(&mut client, &["GET", "key"]))
    });
    ok(&mut client, &["SET", "elsewhere", "1"]);
    kill(&server);
    expect_killed(&mut running);
}

#[test]
fn the_server_ends_beside_a_script() {
    let mut server = start(&[]);
    let _running = until_busy(&server, ENDLESS, "key");
    assert!(server.terminate().unwrap().success());
}

/// The only reactor there is.
fn start_one() -> Server {
    start(&["--io-threads", "1"])
}

fn exec(client: &mut Client, script: &str) {
    ok(client, &["MULTI"]);
    ok(client, &["SET", "other", "1"]);
    ok(client, &["EVAL", script, "1", "key"]);
    client.send(&["EXEC"]).unwrap();
}

/// Waits until a script keeps the world stopped for so long that every request is refused.
fn until_all_busy(client: &mut Client) {
    eventually("every request is refused", || is_busy(&ask(client, &["PING"])));
    assert!(is_busy(&ask(client, &["INFO"])));
    assert!(is_busy(&ask(client, &["GET", "elsewhere"])));
    assert!(is_busy(&ask(client, &["FCALL", "none", "0"])));
}

/// Whether a client is listed, if it is asked about by its number.
fn is_listed(client: &mut Client, id: i64) -> bool {
    !text(&ask(client, &["CLIENT", "LIST", "ID", &id.to_string()])).is_empty()
}

/// A script may write until it has ended: its client is listed so long.
#[test]
fn a_client_that_has_hung_up_is_listed_until_its_script_has_ended() {
    let server = start_one();
    let (mut client, mut later) = (server.client(), server.client());
    let mut running = begin(&server, ENDLESS, "key");
    let newest = ask(&mut client, &["CLIENT", "LIST"]);
    let ids: Vec<i64> = text(&newest)
        .lines()
        .map(|line| line["id=".len()..].split(' ').next().unwrap().parse().unwrap())
        .collect();
    let [_, second, first] = ids[..] else { panic!("{newest:?}") };
    assert_eq!(ask(&mut later, &["CLIENT", "ID"]), Reply::Integer(second));
    eventually("it is busy", || is_busy(&ask(&mut client, &["GET", "key"])));
    assert!(!running.has_data().unwrap());
    drop(running);
    drop(later);
    // The only reactor sees the ends in their order.
    eventually("the second one is gone", || !is_listed(&mut client, second));
    assert!(is_listed(&mut client, first));
    kill(&server);
    eventually("the first one is gone", || !is_listed(&mut client, first));
}

#[test]
fn an_endless_script_inside_exec_can_be_killed() {
    let server = start_one();
    let (mut running, mut client) = (server.client(), server.client());
    exec(&mut running, "while true do end");
    until_all_busy(&mut client);
    ok(&mut client, &["MULTI"]);
    let refused = ask(&mut client, &["GET", "key"]);
    assert!(is_busy(&refused), "{refused:?}");
    let aborted = text(&ask(&mut client, &["EXEC"]));
    assert!(aborted.starts_with("EXECABORT "), "{aborted}");
    kill(&server);
    let Reply::Array(replies) = running.reply().unwrap() else { panic!("EXEC has its replies") };
    assert_eq!(text(&replies[0]), "OK");
    assert!(text(&replies[1]).contains("Script killed by user"), "{replies:?}");
    assert_eq!(text(&ask(&mut client, &["GET", "other"])), "1");
}

#[test]
fn exec_with_scripts_heeds_watches() {
    let server = start_one();
    let (mut watching, mut client) = (server.client(), server.client());
    let script = "return redis.call('INCR', KEYS[1])";
    for is_changed in [false, true] {
        ok(&mut watching, &["WATCH", "key"]);
        if is_changed {
            ok(&mut client, &["INCR", "key"]);
        }
        exec(&mut watching, script);
        let reply = watching.reply().unwrap();
        assert_eq!(matches!(reply, Reply::Array(_)), !is_changed, "{reply:?}");
    }
    // Nothing is watched any longer.
    ok(&mut client, &["INCR", "key"]);
    exec(&mut watching, script);
    assert!(matches!(watching.reply().unwrap(), Reply::Array(_)));
    assert_eq!(text(&ask(&mut client, &["GET", "key"])), "4");
}

/// Scripts that cannot be killed, inside EXEC and outside.
fn begin_unkillable(server: &Server, is_in_exec: bool) -> Client {
    let mut client = server.client();
    if is_in_exec {
        exec(&mut client, "redis.call('SET', KEYS[1], 1) while true do end");
    } else {
        // Too large to be copied, so that what the script does cannot be undone.
        let large = "x".repeat(100_000);
        ok(&mut client, &["SET", "key", &large]);
        let script = "redis.call('APPEND', KEYS[1], 1) while true do end";
        client.send(&["EVAL", script, "1", "key"]).unwrap();
    }
    client
}

/// Ends a server whose script cannot be killed.
fn end_unkillable(server: &mut Server, client: &mut Client, by_signal: bool) {
    let reply = text(&ask(client, &["SCRIPT", "KILL"]));
    assert!(reply.starts_with("UNKILLABLE"), "{reply}");
    if by_signal {
        assert!(server.terminate().unwrap().success());
    } else {
        client.send(&["SHUTDOWN", "NOSAVE"]).unwrap();
        client.expect_closed().unwrap();
    }
}

#[test]
fn a_server_whose_script_cannot_be_killed_can_be_ended() {
    for (is_in_exec, by_signal) in [(true, true), (true, false), (false, true), (false, false)] {
        let mut server = start_one();
        let mut client = server.client();
        let mut running = begin_unkillable(&server, is_in_exec);
        until_all_busy(&mut client);
        end_unkillable(&mut server, &mut client, by_signal);
        if !by_signal {
            running.expect_closed().unwrap();
        }
    }
}

/// Cannot be undone, as `key` is too large to be copied.
const APPENDS: &str = "redis.call('APPEND', KEYS[1], 1) \
    while #ARGV == 0 or ARGV[1] == 'runs' do end return 1";

/// A client for which that script was always short.
fn trusted(server: &Server) -> Client {
    let mut client = server.client();
    ok(&mut client, &["SET", "key", &"x".repeat(100_000)]);
    for _ in 0..10 {
        let reply = ask(&mut client, &["EVAL", APPENDS, "1", "key", "ends"]);
        assert!(matches!(reply, Reply::Integer(1)), "{reply:?}");
    }
    client
}

/// A script that was always short with as many arguments runs on its reactor, also what cannot be
/// undone.
#[test]
fn a_script_that_was_short_leaves_the_other_reactors() {
    for by_signal in [true, false] {
        let mut server = start(&[]);
        let mut clients: Vec<Client> = (0..4).map(|_| server.client()).collect();
        let mut running = trusted(&server);
        running.send(&["EVAL", APPENDS, "1", "key", "runs"]).unwrap();
        // Those of the script's reactor are not answered, once it runs.
        for client in &mut clients {
            client.send(&["GET", "key"]).unwrap();
        }
        let mut is_told = |client: &mut Client| {
            if !client.has_data().unwrap() {
                return false;
            }
            let is_told = is_busy(&client.reply().unwrap());
            client.send(&["GET", "key"]).unwrap();
            is_told
        };
        let mut told = None;
        eventually("a client of the other reactor is told that the server is busy", || {
            told = clients.iter_mut().position(&mut is_told);
            told.is_some()
        });
        let client = &mut clients[told.unwrap()];
        client.reply().unwrap();
        end_unkillable(&mut server, client, by_signal);
    }
}

/// With other arguments than before a script is tried where it holds up no other client.
#[test]
fn a_script_that_was_short_leaves_its_reactor_when_it_is_called_otherwise() {
    for by_signal in [true, false] {
        let mut server = start_one();
        let mut client = server.client();
        let mut running = trusted(&server);
        running.send(&["EVAL", APPENDS, "1", "key"]).unwrap();
        eventually("a request for the script's key is refused", || {
            is_busy(&ask(&mut client, &["GET", "key"]))
        });
        assert_eq!(text(&ask(&mut client, &["PING"])), "PONG");
        assert!(text(&ask(&mut client, &["INFO"])).contains("redis_version"));
        end_unkillable(&mut server, &mut client, by_signal);
        if !by_signal {
            running.expect_closed().unwrap();
        }
    }
}

/// A transaction with a script chooses and tells what one without it does, on whichever thread it
/// runs.
#[test]
fn an_endless_script_beside_select_and_publish_can_be_killed() {
    let server = start_one();
    let (mut running, mut client) = (server.client(), server.client());
    let mut listener = server.client();
    ask(&mut listener, &["SUBSCRIBE", "news"]);
    ok(&mut running, &["MULTI"]);
    for words in [
        &["SELECT", "3"][..],
        &["PUBLISH", "news", "first"],
        &["EVAL", "while true do end", "1", "key"],
        &["SET", "other", "1"],
        &["READONLY"],
    ] {
        assert_eq!(text(&ask(&mut running, words)), "QUEUED");
    }
    running.send(&["EXEC"]).unwrap();
    until_all_busy(&mut client);
    kill(&server);
    let Reply::Array(replies) = running.reply().unwrap() else { panic!("EXEC has its replies") };
    assert!(matches!(replies[1], Reply::Integer(1)), "{replies:?}");
    assert!(text(&replies[2]).contains("Script killed by user"), "{replies:?}");
    let Reply::Array(news) = listener.reply().unwrap() else { panic!("it is a message") };
    assert_eq!(text(&news[2]), "first");
    // What it has chosen stays chosen.
    assert_eq!(text(&ask(&mut running, &["GET", "other"])), "1");
    assert!(text(&ask(&mut running, &["CLIENT", "INFO"])).contains(" db=3 "));
}

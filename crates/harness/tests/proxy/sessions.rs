//! What a client says about its connection holds wherever its requests are sent.

use crate::support::{Proxy, dunlin, in_front_of_three, okay, server, single, text};
use harness::client::{Client, ask};
use harness::reply::{Protocol, Reply};
use harness::server::Server;
use harness::sessions::{self, Worlds};

/// A server that is asked directly, one behind a proxy, and the proxy.
fn beside_a_server() -> Option<(Server, Server, Proxy)> {
    let program = dunlin()?;
    let (reference, behind) = (server(&program, &[]), server(&program, &[]));
    let proxy = single(&program, &behind, "", "");
    Some((reference, behind, proxy))
}

#[test]
fn random_sessions_are_those_of_one_server() {
    let Some((reference, _behind, proxy)) = beside_a_server() else { return };
    let worlds = Worlds {
        reference: &|| reference.client(),
        subject: &|| proxy.client(Protocol::Resp2),
        keys: ["a", "b", "c"],
        selects_in_multi: true,
    };
    sessions::compare(&worlds, 0..40);
}

#[test]
fn what_is_about_the_client_is_queued_and_done_by_exec() {
    let Some((reference, _behind, proxy)) = beside_a_server() else { return };
    let mut clients = [reference.client(), proxy.client(Protocol::Resp2)];
    let sessions: [&[&str]; 7] = [
        &[
            "MULTI",
            "CLIENT SETNAME ann",
            "SET a 1",
            "CLIENT GETNAME",
            "INCR a",
            "EXEC",
            "CLIENT GETNAME",
        ],
        &["MULTI", "CLIENT SETNAME bob", "CLIENT GETREDIR", "DISCARD", "CLIENT GETNAME"],
        &[
            "MULTI",
            "CLIENT SETNAME eve",
            "SELECT 1",
            "EXEC",
            "CLIENT GETNAME",
            "SET a 5",
            "SELECT 0",
            "GET a",
        ],
        &["MULTI", "CLIENT SETNAME kim", "SET a", "EXEC", "CLIENT GETNAME"],
        &["WATCH a", "SET a 7", "MULTI", "CLIENT SETNAME tim", "EXEC", "CLIENT GETNAME"],
        &["MULTI", "AUTH default wrong words", "CLIENT NOSUCH", "EXEC"],
        &[
            "MULTI",
            "AUTH x",
            "AUTH nobody x",
            "HELLO 9",
            "GET a",
            "CLIENT NO-TOUCH OFF",
            "EXEC",
            "PING",
        ],
    ];
    for session in sessions {
        for request in session {
            let words: Vec<&str> = request.split(' ').collect();
            let [expected, got] = clients.each_mut().map(|client| ask(client, &words[..]));
            assert_eq!(got, expected, "{request} of {session:?}");
        }
    }
    // What follows EXEC is in the other protocol.
    let client = &mut proxy.client(Protocol::Resp3);
    assert_eq!(ask(client, &["HGETALL", "none"]), Reply::Map(Vec::new()));
    for request in [&["MULTI"][..], &["HELLO", "2"], &["CLIENT", "ID"]] {
        assert!(!ask(client, request).is_error());
    }
    let Reply::Array(done) = ask(client, &["EXEC"]) else { panic!("it has not run") };
    assert!(matches!(done[..], [Reply::Array(_), Reply::Integer(_)]), "{done:?}");
    assert_eq!(ask(client, &["HGETALL", "none"]), Reply::Array(Vec::new()));
    assert_eq!(ask(client, &["MULTI"]), okay());
    let refused = text(&ask(client, &["CLIENT", "KILL", "ID", "1"]));
    assert!(refused.contains("send it before MULTI or behind EXEC"), "{refused}");
    assert!(text(&ask(client, &["EXEC"])).starts_with("EXECABORT"));
}

#[test]
fn random_sessions_before_several_servers_are_those_of_one() {
    let Some((servers, proxy)) = in_front_of_three("") else { return };
    let program = servers[0].program().clone();
    let reference = server(&program, &[]);
    let worlds = Worlds {
        reference: &|| reference.client(),
        subject: &|| proxy.client(Protocol::Resp2),
        keys: ["{t}a", "{t}b", "{t}c"],
        selects_in_multi: true,
    };
    sessions::compare(&worlds, 100..130);
}

fn integer(client: &mut Client, request: &str) -> i64 {
    match ask(client, request) {
        Reply::Integer(number) => number,
        other => panic!("{request}: {other:?}"),
    }
}

/// The database follows onto connections that a client has for itself already.
#[test]
fn select_takes_effect_while_keys_are_watched_or_tracked() {
    let Some((_reference, behind, proxy)) = beside_a_server() else { return };
    let begin: [&[&str]; 4] = [
        &["WATCH w"],
        &["CLIENT TRACKING ON"],
        &["CLIENT TRACKING ON BCAST"],
        &["WATCH w", "CLIENT TRACKING ON", "CLIENT TRACKING OFF"],
    ];
    for (round, begin) in begin.iter().enumerate() {
        let mut client = proxy.client(Protocol::Resp3);
        let key = format!("key{round}");
        begin.iter().for_each(|request| assert_eq!(ask(&mut client, *request), okay()));
        assert_eq!(ask(&mut client, "SELECT 2"), okay());
        assert_eq!(ask(&mut client, &format!("SET {key} 2")), okay());
        assert_eq!(ask(&mut client, "SELECT 1"), okay());
        assert_eq!(ask(&mut client, "MULTI"), okay());
        assert_eq!(text(&ask(&mut client, &format!("SET {key} 1"))), "QUEUED");
        let done = ask(&mut client, "EXEC");
        assert_eq!(done, Reply::Array(vec![okay()]), "{begin:?}");
        let mut direct = behind.client();
        for (db, expected) in [(0, 0), (1, 1), (2, 1)] {
            assert_eq!(ask(&mut direct, &format!("SELECT {db}")), okay());
            let found = integer(&mut direct, &format!("EXISTS {key}"));
            assert_eq!(found, expected, "{begin:?}: database {db}");
        }
    }
    // A watched key's database is that of the time when it was watched.
    let mut client = proxy.client(Protocol::Resp2);
    for request in ["SELECT 2", "WATCH q", "SELECT 0", "MULTI"] {
        assert_eq!(ask(&mut client, request), okay());
    }
    assert_eq!(text(&ask(&mut client, "SET q 1")), "QUEUED");
    let mut direct = behind.client();
    assert_eq!(ask(&mut direct, "SELECT 2"), okay());
    assert_eq!(ask(&mut direct, "SET q x"), okay());
    assert_eq!(ask(&mut client, "EXEC"), Reply::NilArray);
    // A connection that was used in one database serves another client in its own.
    for db in [0, 2, 1] {
        let mut client = proxy.client(Protocol::Resp2);
        assert_eq!(ask(&mut client, &format!("SELECT {db}")), okay());
        assert_eq!(ask(&mut client, "WATCH r"), okay());
        assert_eq!(ask(&mut client, "SELECT 1"), okay());
        assert_eq!(ask(&mut client, &format!("SET r{db} 1")), okay());
        assert_eq!(ask(&mut client, "UNWATCH"), okay());
    }
    assert_eq!(ask(&mut direct, "SELECT 1"), okay());
    assert_eq!(integer(&mut direct, "EXISTS r0 r1 r2"), 3);
}

/// A database that the server does not have is refused, and the client goes on where it was.
#[test]
fn databases_that_the_server_does_not_have_are_refused() {
    let Some(program) = dunlin() else { return };
    let behind = server(&program, &["--databases", "4"]);
    let proxy = single(&program, &behind, "", "");
    let mut client = proxy.client(Protocol::Resp2);
    assert_eq!(ask(&mut client, "SELECT 3"), okay());
    for number in ["4", "99", "-1", "x", "99999999999999999999"] {
        let request = format!("SELECT {number}");
        assert_eq!(ask(&mut client, &request), ask(&mut behind.client(), &request));
        assert!(ask(&mut client, &request).is_error());
        assert_eq!(ask(&mut client, &format!("SET k {number}")), okay());
    }
    let mut direct = behind.client();
    assert_eq!(ask(&mut direct, "SELECT 3"), okay());
    assert_eq!(integer(&mut direct, "EXISTS k"), 1);
}

/// A name with a blank or a line end would make up fields and lines of CLIENT LIST.
#[test]
fn names_are_checked_wherever_they_come_from() {
    let Some((reference, _behind, proxy)) = beside_a_server() else { return };
    let requests: [&[&str]; 5] = [
        &["HELLO", "3", "SETNAME", "a b"],
        &["HELLO", "3", "SETNAME", "a\nb"],
        &["CLIENT", "SETNAME", "a\nb"],
        &["CLIENT", "SETINFO", "LIB-NAME", "a b"],
        &["CLIENT", "SETINFO", "LIB-VER", "a\nb"],
    ];
    for request in requests {
        let reply = ask(&mut proxy.client(Protocol::Resp2), request);
        assert!(reply.is_error(), "{request:?}: {reply:?}");
        assert_eq!(reply, ask(&mut reference.client(), request), "{request:?}");
    }
}

/// Confirmations and messages come whatever CLIENT REPLY says, in the protocol of the client, and
/// RESET ends subscriptions.
#[test]
fn subscriptions_follow_the_session() {
    let Some((_reference, behind, proxy)) = beside_a_server() else { return };
    let mut client = proxy.client(Protocol::Resp3);
    for mode in ["SKIP", "OFF"] {
        client.send(&["CLIENT", "REPLY", mode]).expect("it is sent");
        client.send(&["SUBSCRIBE", "news"]).expect("it is sent");
        assert!(matches!(client.message().expect("a confirmation"), Reply::Push(_)));
        assert_eq!(integer(&mut behind.client(), "PUBLISH news 1"), 1);
        assert!(matches!(client.message().expect("a message"), Reply::Push(_)));
        client.send(&["UNSUBSCRIBE", "news"]).expect("it is sent");
        assert!(matches!(client.message().expect("a confirmation"), Reply::Push(_)));
        if mode == "OFF" {
            assert_eq!(ask(&mut client, "CLIENT REPLY ON"), okay());
        }
        assert_eq!(text(&ask(&mut client, "PING")), "PONG");
    }
    client.send(&["SUBSCRIBE", "news"]).expect("it is sent");
    assert!(matches!(client.message().expect("a confirmation"), Reply::Push(_)));
    client.set_protocol(Protocol::Resp2);
    assert!(!ask(&mut client, "HELLO 2").is_error());
    assert_eq!(integer(&mut behind.client(), "PUBLISH news 1"), 1);
    let message = client.reply().expect("a message");
    assert_eq!(message.elements().map(<[Reply]>::len), Some(3), "{message:?}");
    assert_eq!(text(&ask(&mut client, "RESET")), "RESET");
    assert_eq!(text(&ask(&mut client, "PING")), "PONG");
    crate::support::until("nobody listens", || {
        integer(&mut behind.client(), "PUBLISH news 1") == 0
    });
    assert_eq!(text(&ask(&mut client, "PING")), "PONG");
}

/// The first page of SCAN has what there is, whichever server has it.
#[test]
fn the_first_page_of_scan_is_filled() {
    let Some((_servers, proxy)) = in_front_of_three("") else { return };
    let mut client = proxy.client(Protocol::Resp2);
    let page = |client: &mut Client, request: &str| {
        let Reply::Array(page) = ask(client, request) else { panic!("no page") };
        let keys = page[1].elements().map_or(0, <[Reply]>::len);
        (text(&page[0]), keys)
    };
    for number in 1..=9 {
        assert_eq!(ask(&mut client, &format!("SET key{number} 1")), okay());
        assert_eq!(page(&mut client, "SCAN 0"), ("0".to_owned(), number));
    }
    assert_eq!(page(&mut client, "SCAN 0 MATCH key3 COUNT 1000"), ("0".to_owned(), 1));
    for number in 10..100 {
        assert_eq!(ask(&mut client, &format!("SET key{number} 1")), okay());
    }
    let (cursor, found) = page(&mut client, "SCAN 0");
    assert!(cursor != "0" && found >= 10, "{cursor} {found}");
}

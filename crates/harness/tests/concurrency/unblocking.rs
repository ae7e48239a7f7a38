//! CLIENT KILL and UNBLOCK of clients that wait on other threads: with the reply the wait is over,
//! and what is pushed then is not for them.

use harness::client::{Client, ask};
use harness::info::{field, find, number};
use harness::reply::Reply;
use harness::server::{Options, Program, Server};
use harness::wait::eventually;

const ROUNDS: usize = 100;

/// What INFO counts of clients that wait.
const COUNTS: [&str; 3] = ["blocked_clients", "total_blocking_keys", "clients_in_timeout_table"];

/// A client that waits for a list, and its number.
fn waiting(server: &Server, client: &mut Client) -> (Client, String) {
    let mut waiting = server.client();
    let id = ask(&mut waiting, &["CLIENT", "ID"]).integer().expect("a number").to_string();
    waiting.send(&["BLPOP", "list", "10000"]).expect("it is sent");
    eventually("it waits", || field(client, "blocked_clients") == "1");
    (waiting, id)
}

fn waits_no_longer(client: &mut Client) {
    eventually("it waits no longer", || field(client, "blocked_clients") == "0");
}

/// Has a client wait for a list on each back-end, again and again, and ends its wait by a request
/// that its number completes; in one go with it comes an element, which has to stay.
fn end_waits(request: &[&str], then: impl Fn(Client)) {
    let program = Program::under_test();
    for backend in program.backends() {
        let options = Options { backend, ..Options::arguments(&["--io-threads", "3"]) };
        let server = Server::start(&program, options).expect("it starts");
        let mut client = server.client();
        for round in 0..ROUNDS {
            let (waiting, id) = waiting(&server, &mut client);
            let request = [request, &[&id]].concat();
            let info = ["INFO", "everything"];
            let push = ["LPUSH", "list", "element"];
            for words in [&request[..], &info, &push, &["LLEN", "list"]] {
                client.send(words).expect("it is sent");
            }
            let ended = client.reply().expect("a reply").integer();
            let info = client.reply().expect("a reply");
            let counts = COUNTS.map(|name| find(&info, name));
            assert_eq!(counts, COUNTS.map(|_| Some("0".to_owned())), "round {round}");
            let replies = [0; 2].map(|_| client.reply().expect("a reply").integer());
            assert_eq!((ended, replies), (Some(1), [Some(1); 2]), "round {round}");
            then(waiting);
            waits_no_longer(&mut client);
            assert_eq!(ask(&mut client, &["DEL", "list"]).integer(), Some(1), "round {round}");
        }
    }
}

#[test]
fn who_is_killed_is_not_served() {
    end_waits(&["CLIENT", "KILL", "ID"], |mut waiting| {
        waiting.expect_closed().expect("it is closed");
    });
}

#[test]
fn who_is_unblocked_is_not_served() {
    end_waits(&["CLIENT", "UNBLOCK"], |mut waiting| {
        assert_eq!(waiting.reply().expect("a reply"), Reply::NilArray);
    });
}

#[test]
fn who_is_unblocked_twice_was_blocked_once() {
    let options = Options::arguments(&["--io-threads", "3"]);
    let server = Server::start(&Program::under_test(), options).expect("it starts");
    let mut client = server.client();
    for _ in 0..ROUNDS {
        let (mut waiting, id) = waiting(&server, &mut client);
        client.send(&["CLIENT", "UNBLOCK", &id, "ERROR"]).expect("it is sent");
        client.send(&["CLIENT", "UNBLOCK", &id]).expect("it is sent");
        let replies = [0; 2].map(|_| client.reply().expect("a reply").integer());
        assert_eq!(replies, [Some(1), Some(0)]);
        assert!(waiting.reply().expect("a reply").is_error());
        waits_no_longer(&mut client);
    }
}

/// An element comes and the wait is ended at the same time: either the one or the other.
#[test]
fn who_is_served_is_not_unblocked() {
    let options = Options::arguments(&["--io-threads", "3"]);
    let server = Server::start(&Program::under_test(), options).expect("it starts");
    let mut clients = [(); 3].map(|()| server.client());
    for round in 0..5 * ROUNDS {
        let [client, pushing, ending] = &mut clients;
        let (mut waiting, id) = waiting(&server, client);
        let (push, end) = (["LPUSH", "list", "element"], ["CLIENT", "UNBLOCK", &id]);
        if round % 2 == 0 {
            pushing.send(&push).expect("it is sent");
            ending.send(&end).expect("it is sent");
        } else {
            ending.send(&end).expect("it is sent");
            pushing.send(&push).expect("it is sent");
        }
        assert_eq!(pushing.reply().expect("a reply").integer(), Some(1), "round {round}");
        let is_unblocked = ending.reply().expect("a reply").integer() == Some(1);
        let is_served = waiting.reply().expect("a reply") != Reply::NilArray;
        assert_ne!(is_unblocked, is_served, "round {round}");
        let left = ask(client, &["LLEN", "list"]).integer();
        assert_eq!(left, Some(i64::from(!is_served)), "round {round}");
        ask(client, &["DEL", "list"]);
    }
}

#[test]
fn who_is_evicted_is_not_served() {
    let options = Options::arguments(&["--io-threads", "3"]);
    let server = Server::start(&Program::under_test(), options).expect("it starts");
    let mut client = server.client();
    let mut watch = vec!["WATCH".to_owned()];
    watch
        .extend((0..5000).map(|number| format!("one of very many keys that are watched {number}")));
    for round in 0..20 {
        let mut waiting = server.client();
        waiting.command(&watch).expect("it answers");
        waiting.send(&["BLPOP", "list", "0"]).expect("it is sent");
        eventually("it waits", || field(&mut client, "blocked_clients") == "1");
        eventually("it is counted", || number(&mut client, "mem_clients_normal") > 250_000);
        let limit = ["CONFIG", "SET", "maxmemory-clients", "200000"];
        for words in [&limit[..], &["LPUSH", "list", "element"], &["LLEN", "list"]] {
            client.send(words).expect("it is sent");
        }
        assert_eq!(client.reply().expect("a reply"), Reply::Simple(b"OK".to_vec()));
        let replies = [0; 2].map(|_| client.reply().expect("a reply").integer());
        assert_eq!(replies, [Some(1); 2], "round {round}");
        waiting.expect_closed().expect("it is closed");
        waits_no_longer(&mut client);
        assert_eq!(ask(&mut client, &["DEL", "list"]).integer(), Some(1), "round {round}");
        ask(&mut client, &["CONFIG", "SET", "maxmemory-clients", "0"]);
    }
}

#[test]
fn a_wait_that_ends_in_an_error_counts_as_one() {
    let server = Server::start(&Program::under_test(), Options::default()).expect("it starts");
    let mut client = server.client();
    let (mut waiting, id) = waiting(&server, &mut client);
    ask(&mut client, &["CLIENT", "UNBLOCK", &id, "ERROR"]);
    assert!(waiting.reply().expect("a reply").is_error());
    assert_eq!(field(&mut client, "errorstat_UNBLOCKED"), "count=1");
    assert_eq!(number(&mut client, "total_error_replies"), 1);
    let calls = field(&mut client, "cmdstat_blpop");
    assert!(calls.ends_with("rejected_calls=1,failed_calls=0"), "{calls}");
    waiting.send(&["BLMOVE", "list", "string", "LEFT", "LEFT", "0"]).expect("it is sent");
    eventually("it waits", || field(&mut client, "blocked_clients") == "1");
    ask(&mut client, &["SET", "string", "x"]);
    ask(&mut client, &["LPUSH", "list", "x"]);
    assert!(waiting.reply().expect("a reply").is_error());
    let calls = field(&mut client, "cmdstat_blmove");
    assert!(calls.ends_with("rejected_calls=0,failed_calls=1"), "{calls}");
}

/// A reader of a group hears that its stream is gone, however that went.
#[test]
fn a_reader_of_a_group_hears_of_the_end_by_time() {
    let server = Server::start(
        &Program::under_test(),
        Options::arguments(&["--io-threads", "2", "--enable-debug-command", "yes"]),
    )
    .expect("it starts");
    let mut client = server.client();
    for is_met in [false, true] {
        ask(&mut client, &["DEBUG", "SET-ACTIVE-EXPIRE", if is_met { "0" } else { "1" }]);
        ask(&mut client, &["XGROUP", "CREATE", "stream", "group", "$", "MKSTREAM"]);
        let mut waiting = server.client();
        let read = ["XREADGROUP", "GROUP", "group", "me", "BLOCK", "0", "STREAMS", "stream", ">"];
        waiting.send(&read).expect("it is sent");
        eventually("it waits", || field(&mut client, "blocked_clients") == "1");
        ask(&mut client, &["PEXPIRE", "stream", "1"]);
        if is_met {
            eventually("a read meets the key", || {
                ask(&mut client, &["EXISTS", "stream"]).integer() == Some(0)
            });
        }
        let reply = waiting.reply().expect("a reply");
        let text = String::from_utf8_lossy(reply.text().unwrap_or_default()).into_owned();
        assert!(text.starts_with("NOGROUP"), "{reply:?}");
    }
}

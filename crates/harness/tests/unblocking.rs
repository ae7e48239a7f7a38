//! CLIENT KILL and UNBLOCK of clients that wait on other threads: with the reply the wait is over,
//! and what is pushed then is not for them.

use harness::client::Client;
use harness::info::field;
use harness::reply::{Protocol, Reply};
use harness::server::{Options, Program, Server};
use harness::wait::eventually;

const ROUNDS: usize = 100;

fn ask(client: &mut Client, words: &[&str]) -> Reply {
    client.command(words).unwrap_or_else(|why| panic!("{words:?}: {why}"))
}

/// Has a client wait for a list on each back-end, again and again, and ends its wait by a request
/// made from its number; in one go with it comes an element, which has to stay.
fn end_waits(request: impl Fn(&str) -> Vec<String>, expected: &Reply, then: impl Fn(Client)) {
    let program = Program::under_test();
    for backend in program.backends() {
        let options = Options { backend, ..Options::arguments(&["--io-threads", "3"]) };
        let server = Server::start(&program, options).expect("it starts");
        let mut client = server.connect(Protocol::Resp2).expect("it answers");
        for round in 0..ROUNDS {
            let mut waiting = server.connect(Protocol::Resp2).expect("it answers");
            let id = ask(&mut waiting, &["CLIENT", "ID"]).integer().expect("a number").to_string();
            waiting.send(&["BLPOP", "list", "0"]).expect("it is sent");
            eventually("it waits", || field(&mut client, "blocked_clients") == "1");
            client.send(&request(&id)).expect("it is sent");
            for words in [&["LPUSH", "list", "element"][..], &["LLEN", "list"]] {
                client.send(words).expect("it is sent");
            }
            let replies = [0; 3].map(|_| client.reply().expect("a reply"));
            let one = Reply::Integer(1);
            assert_eq!(replies, [expected.clone(), one.clone(), one], "round {round}");
            then(waiting);
            eventually("it waits no longer", || field(&mut client, "blocked_clients") == "0");
            assert_eq!(ask(&mut client, &["DEL", "list"]).integer(), Some(1), "round {round}");
        }
    }
}

fn words(request: &[&str]) -> Vec<String> {
    request.iter().map(|&word| word.to_owned()).collect()
}

#[test]
fn who_is_killed_is_not_served() {
    let closed = |mut waiting: Client| waiting.expect_closed().expect("it is closed");
    end_waits(|id| words(&["CLIENT", "KILL", "ID", id]), &Reply::Integer(1), closed);
}

#[test]
fn who_is_unblocked_is_not_served() {
    let told = |mut waiting: Client| {
        assert_eq!(waiting.reply().expect("a reply"), Reply::NilArray);
    };
    end_waits(|id| words(&["CLIENT", "UNBLOCK", id]), &Reply::Integer(1), told);
}

#[test]
fn who_is_unblocked_twice_was_blocked_once() {
    let program = Program::under_test();
    let server =
        Server::start(&program, Options::arguments(&["--io-threads", "3"])).expect("it starts");
    let mut client = server.connect(Protocol::Resp2).expect("it answers");
    for _ in 0..ROUNDS {
        let mut waiting = server.connect(Protocol::Resp2).expect("it answers");
        let id = ask(&mut waiting, &["CLIENT", "ID"]).integer().expect("a number").to_string();
        waiting.send(&["BLPOP", "list", "0"]).expect("it is sent");
        eventually("it waits", || field(&mut client, "blocked_clients") == "1");
        client.send(&["CLIENT", "UNBLOCK", &id, "ERROR"]).expect("it is sent");
        client.send(&["CLIENT", "UNBLOCK", &id]).expect("it is sent");
        let replies = [0; 2].map(|_| client.reply().expect("a reply").integer());
        assert_eq!(replies, [Some(1), Some(0)]);
        assert!(waiting.reply().expect("a reply").is_error());
        eventually("it waits no longer", || field(&mut client, "blocked_clients") == "0");
    }
}

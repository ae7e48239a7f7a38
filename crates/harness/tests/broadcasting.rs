//! Client-side caching in broadcasting mode: a client that has the reply to a change may rely on it that
//! the caches have been told, whichever thread did that.

use harness::client::{Client, ask};
use harness::reply::{Protocol, Reply};
use harness::server::{Options, Program, Server};

const ROUNDS: usize = 200;

/// Caches that make it take a while until the last one is told, and their prefixes.
const OTHERS: usize = 10;
const PREFIXES: usize = 1000;

fn cacher(server: &Server, prefixes: usize) -> Client {
    let mut client = server.connect(Protocol::Resp3).expect("it answers");
    let mut words = vec!["CLIENT".to_owned(), "TRACKING".into(), "ON".into(), "BCAST".into()];
    for number in 0..prefixes {
        words.extend(["PREFIX".into(), format!("of others {number:06}")]);
    }
    assert_eq!(client.command(&words).expect("it answers"), Reply::Simple(b"OK".to_vec()));
    client
}

/// Whether a cache has been told of a key before the reply to its next request.
fn has_been_told(cacher: &mut Client, key: &str) -> bool {
    cacher.send(&["ECHO", "end"]).expect("it is sent");
    let mut is_told = false;
    loop {
        let message = cacher.message().expect("a reply or a message");
        let Reply::Push(items) = &message else { return is_told };
        let keys = items.last().and_then(Reply::elements).unwrap_or_default();
        is_told |= keys.iter().any(|item| item.text() == Some(key.as_bytes()));
    }
}

#[test]
fn caches_are_told_before_anybody_is_answered() {
    let program = Program::under_test();
    let options = Options::arguments(&["--io-threads", "3"]);
    let server = Server::start(&program, options).expect("it starts");
    let _others: Vec<Client> = (0..OTHERS).map(|_| cacher(&server, PREFIXES)).collect();
    let mut cacher = cacher(&server, 0);
    let mut clients: Vec<Client> = (0..6).map(|_| server.client()).collect();
    for round in 0..ROUNDS {
        // Two changes of which one thread tells.
        clients.rotate_left(1);
        let [first, second, ..] = &mut clients[..] else { panic!("there are six") };
        first.send(&["SET", "one", "x"]).expect("it is sent");
        second.send(&["SET", "two", "x"]).expect("it is sent");
        first.reply().expect("it answers");
        assert!(has_been_told(&mut cacher, "one"), "round {round}");
        second.reply().expect("it answers");
        // A change whose client is answered by another thread than the one that made it.
        first.send(&["BLPOP", "list", "0"]).expect("it is sent");
        second.send(&["RPUSH", "list", "x"]).expect("it is sent");
        first.reply().expect("it answers");
        assert!(has_been_told(&mut cacher, "list"), "round {round}");
        second.reply().expect("it answers");
        // What else has been told of this round is not for the next.
        ask(&mut cacher, &["PING"]);
        while cacher.push().is_some() {}
    }
}

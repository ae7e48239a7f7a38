//! Client-side caching: a client that has the reply to a change may rely on it that the caches have
//! been told, whichever thread did that.

use harness::client::{Client, ask, ok};
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

/// Requests that change `k`, each to be answered when the caches have been told of it.
const CHANGES: [&[&str]; 7] = [
    &["SET", "k", "1"],
    &["EVAL", "return redis.call('SET', KEYS[1], ARGV[1])", "1", "k", "2"],
    &["FLUSHALL"],
    &["DEL", "k"],
    &["FLUSHDB"],
    &["SWAPDB", "0", "1"],
    &["EXEC"],
];

/// While one thread is held up, a client of the other one changes what a cache of the first has
/// read: the reply has to wait for that thread.
#[test]
fn replies_wait_until_caches_have_been_told() {
    let program = Program::under_test();
    let server = Server::start(&program, Options::arguments(&["--io-threads", "2"]));
    let server = server.expect("it starts");
    let mut sleeper = server.client();
    let mut caches: Vec<Client> = (0..4)
        .map(|_| {
            let mut cache = server.connect(Protocol::Resp3).expect("it answers");
            ok(&mut cache, &["CLIENT", "TRACKING", "ON"]);
            cache
        })
        .collect();
    // Some are on the other thread than the one that sleeps.
    let mut writers: Vec<Client> = (0..2).map(|_| server.client()).collect();
    for change in CHANGES {
        for writer in &mut writers {
            ok(writer, &["SET", "k", "0"]);
            for cache in &mut caches {
                ok(cache, &["GET", "k"]);
                while cache.push().is_some() {}
            }
            if change[0] == "EXEC" {
                ok(writer, &["MULTI"]);
                ok(writer, &["SET", "k", "3"]);
            }
            sleeper.send(&["DEBUG", "SLEEP", "0.1"]).expect("it is sent");
            ok(writer, change);
            for cache in &mut caches {
                assert!(cache.has_data().expect("it can be looked at"), "{change:?}");
                let told = cache.message().expect("it is whole");
                assert!(matches!(told, Reply::Push(_)), "{change:?}: {told:?}");
            }
            sleeper.reply().expect("it wakes up");
        }
    }
}

//! Leaving channels while others publish to them: nothing follows the reply that says so. To a
//! client under RESP2 a message that comes later would be the reply to its next request.

use harness::client::{Client, ask, encode};
use harness::crowd::Crowd;
use harness::info::find;
use harness::reply::{Protocol, Reply};
use harness::server::{Options, Program, Server};

const PUBLISHERS: usize = 3;
const ROUNDS: usize = 200;

/// Requests that publish to a channel and a shard channel.
fn news() -> (Vec<u8>, usize) {
    let pair = [encode(&["PUBLISH", "news", "a"]), encode(&["SPUBLISH", "local", "b"])].concat();
    (pair.repeat(8), 16)
}

/// Whether this is a message to a subscriber or a line for a monitor.
fn is_news(reply: &Reply) -> bool {
    let kind = match reply {
        Reply::Push(items) | Reply::Array(items) => items.first().and_then(Reply::text),
        Reply::Simple(line) => return line.contains(&b'"'),
        _ => None,
    };
    let kinds: [&[u8]; 4] = [b"message", b"pmessage", b"smessage", b"invalidate"];
    kind.is_some_and(|kind| kinds.contains(&kind))
}

fn next(client: &mut Client) -> Reply {
    client.message().expect("a reply or a message")
}

/// Joins and leaves, again and again; whenever it has left, the next reply is that to ECHO.
fn come_and_go(client: &mut Client, join: &[&str], leave: &[&str]) {
    for round in 0..ROUNDS {
        client.send(join).expect("it is sent");
        while is_news(&next(client)) {}
        while !is_news(&next(client)) {}
        client.send(leave).expect("it is sent");
        while is_news(&next(client)) {}
        client.send(&["ECHO", "only this"]).expect("it is sent");
        assert_eq!(next(client).text(), Some(&b"only this"[..]), "{leave:?}, round {round}");
    }
}

#[test]
fn nothing_comes_once_a_client_has_left() {
    let program = Program::under_test();
    for backend in program.backends() {
        let options = Options { backend, ..Options::arguments(&["--io-threads", "3"]) };
        let server = Server::start(&program, options).expect("it starts");
        let connect = |protocol| server.connect(protocol).expect("it answers");
        let publishers = Crowd::start(&server, PUBLISHERS, news());
        for protocol in [Protocol::Resp2, Protocol::Resp3] {
            let mut client = connect(protocol);
            come_and_go(&mut client, &["SUBSCRIBE", "news"], &["UNSUBSCRIBE"]);
            come_and_go(&mut client, &["PSUBSCRIBE", "n*"], &["PUNSUBSCRIBE", "n*"]);
            come_and_go(&mut client, &["SSUBSCRIBE", "local"], &["SUNSUBSCRIBE", "local"]);
        }
        let mut client = connect(Protocol::Resp2);
        come_and_go(&mut client, &["SUBSCRIBE", "news"], &["RESET"]);
        come_and_go(&mut client, &["MONITOR"], &["RESET"]);
        publishers.stop();
    }
}

#[test]
fn nothing_comes_of_changes_once_it_is_not_asked_for() {
    let options = Options::arguments(&["--io-threads", "3"]);
    let server = Server::start(&Program::under_test(), options).expect("it starts");
    let writers = Crowd::start(&server, PUBLISHERS, (encode(&["SET", "k", "v"]).repeat(32), 32));
    let mut client = server.connect(Protocol::Resp3).expect("it answers");
    let tracking = ["CLIENT", "TRACKING"];
    come_and_go(
        &mut client,
        &[&tracking[..], &["ON", "BCAST"]].concat(),
        &["CLIENT", "TRACKING", "OFF"],
    );
    client.send(&["PSUBSCRIBE", "__key*__:*"]).expect("it is sent");
    assert!(!is_news(&next(&mut client)));
    let events = ["CONFIG", "SET", "notify-keyspace-events"];
    come_and_go(&mut client, &[&events[..], &["KEA"]].concat(), &[&events[..], &[""]].concat());
    writers.stop();
}

#[test]
fn who_is_killed_listens_no_more() {
    let options = Options::arguments(&["--io-threads", "3"]);
    let server = Server::start(&Program::under_test(), options).expect("it starts");
    let mut client = server.client();
    for round in 0..ROUNDS {
        let mut listener = server.client();
        let id = ask(&mut listener, &["CLIENT", "ID"]).integer().expect("a number").to_string();
        for subscribe in [["SUBSCRIBE", "news"], ["PSUBSCRIBE", "n*"], ["SSUBSCRIBE", "local"]] {
            ask(&mut listener, &subscribe);
        }
        let requests: [&[&str]; 5] = [
            &["CLIENT", "KILL", "ID", &id],
            &["PUBLISH", "news", "x"],
            &["SPUBLISH", "local", "x"],
            &["PUBSUB", "NUMSUB", "news"],
            &["PUBSUB", "CHANNELS"],
        ];
        requests.iter().for_each(|words| client.send(words).expect("it is sent"));
        let replies = [0; 5].map(|_| client.reply().expect("a reply"));
        let nobody = Reply::Array(vec![Reply::Bulk(b"news".to_vec()), Reply::Integer(0)]);
        let (none, gone) = (Reply::Integer(0), Reply::Array(Vec::new()));
        assert_eq!(replies, [Reply::Integer(1), none.clone(), none, nobody, gone], "round {round}");
        listener.expect_closed().expect("it is closed");
    }
}

/// The counts of subscribers and watchers.
const COUNTS: [&str; 4] =
    ["pubsub_channels", "pubsub_patterns", "pubsubshard_channels", "total_watched_keys"];

#[test]
fn who_is_killed_is_counted_no_more() {
    let options = Options::arguments(&["--io-threads", "3"]);
    let server = Server::start(&Program::under_test(), options).expect("it starts");
    let mut client = server.connect(Protocol::Resp3).expect("it answers");
    for round in 0..ROUNDS {
        let mut listening = server.connect(Protocol::Resp3).expect("it answers");
        let id = ask(&mut listening, &["CLIENT", "ID"]).integer().expect("a number").to_string();
        ask(&mut listening, &["WATCH", "key"]);
        for join in [["SUBSCRIBE", "news"], ["PSUBSCRIBE", "n*"], ["SSUBSCRIBE", "local"]] {
            listening.send(&join).expect("it is sent");
            next(&mut listening);
        }
        let counts = ask(&mut client, &["INFO", "everything"]);
        assert_eq!(COUNTS.map(|name| find(&counts, name)), COUNTS.map(|_| Some("1".to_owned())));
        for words in
            [&["CLIENT", "KILL", "ID", &id][..], &["PUBSUB", "NUMPAT"], &["INFO", "everything"]]
        {
            client.send(words).expect("it is sent");
        }
        let [killed, patterns] = [0; 2].map(|_| client.reply().expect("a reply").integer());
        assert_eq!((killed, patterns), (Some(1), Some(0)), "round {round}");
        let counts = client.reply().expect("a reply");
        let counts = COUNTS.map(|name| find(&counts, name));
        assert_eq!(counts, COUNTS.map(|_| Some("0".to_owned())), "round {round}");
    }
}

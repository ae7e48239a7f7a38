//! Subscriptions outlive their server.

use crate::support::{Proxy, dunlin, in_front_of_three, servers, stop, until, yml};
use harness::client::{Client, ask, patience};
use harness::reply::{Protocol, Reply};
use harness::server::{free_port, signal};
use std::time::Instant;

fn parts(reply: Reply) -> Vec<String> {
    let (Reply::Array(parts) | Reply::Push(parts)) = reply else { panic!("{reply:?}") };
    let text = |part: &Reply| match part {
        Reply::Integer(number) => number.to_string(),
        part => String::from_utf8_lossy(part.text().unwrap_or_default()).into_owned(),
    };
    parts.iter().map(text).collect()
}

/// Waits for the confirmation that comes a second time.
fn confirmed_again(subscriber: &mut Client, kind: &str, channel: &str) {
    let message = parts(subscriber.message().expect("a message"));
    assert_eq!(message[..2], [kind.to_owned(), channel.to_owned()]);
}

#[test]
fn a_server_that_comes_back_has_its_subscribers() {
    let Some(program) = dunlin() else { return };
    let mut servers = servers(&program);
    let proxy = Proxy::start(&program, &servers[..1], "");
    for (protocol, kind, channel, publish) in [
        (Protocol::Resp2, "subscribe", "news", "PUBLISH"),
        (Protocol::Resp3, "subscribe", "news", "PUBLISH"),
        (Protocol::Resp3, "psubscribe", "new*", "PUBLISH"),
        (Protocol::Resp2, "ssubscribe", "news", "SPUBLISH"),
    ] {
        let mut subscriber = proxy.client(protocol);
        subscriber.send(&[kind, channel]).expect("it is sent");
        assert_eq!(parts(subscriber.message().expect("a confirmation")), [kind, channel, "1"]);
        servers[0].kill().expect("it ends");
        servers[0].start_again().expect("it starts");
        confirmed_again(&mut subscriber, kind, channel);
        let mut client = proxy.client(Protocol::Resp2);
        let deadline = Instant::now() + patience();
        // The shared connection may still be that to the server that was killed.
        while ask(&mut client, &[publish, "news", "x"]) != Reply::Integer(1) {
            assert!(Instant::now() < deadline, "the message reaches no subscriber");
        }
        let message = parts(subscriber.message().expect("a message"));
        assert_eq!(message.last().map(String::as_str), Some("x"));
        // It can be ended as ever.
        let end = kind.replace("sub", "unsub");
        subscriber.send(&[&end[..], channel]).expect("it is sent");
        assert_eq!(parts(subscriber.message().expect("a confirmation")), [&end, channel, "0"]);
    }
}

/// What is not subscribed to, or not any more by then, is confirmed in its turn, and the client goes
/// on.
#[test]
fn each_word_of_an_unsubscription_is_confirmed() {
    let Some(program) = dunlin() else { return };
    let servers = servers(&program);
    let proxy = Proxy::start(&program, &servers[..1], "");
    for (begin, end) in [
        ("subscribe", "unsubscribe"),
        ("psubscribe", "punsubscribe"),
        ("ssubscribe", "sunsubscribe"),
    ] {
        let mut subscriber = proxy.client(Protocol::Resp2);
        let mut said = |request: &[&str]| -> Vec<[String; 2]> {
            subscriber.send(request).expect("it is sent");
            let mut next = || parts(subscriber.message().expect("a confirmation"));
            let channel_and_count = |mut parts: Vec<String>| {
                let count = parts.pop().expect("a count");
                [parts.pop().expect("a channel"), count]
            };
            request[1..].iter().map(|_| channel_and_count(next())).collect()
        };
        assert_eq!(said(&[begin, "a", "b"]), [["a", "1"], ["b", "2"]]);
        let found = said(&[end, "none", "a", "a", "other"]);
        assert_eq!(found, [["none", "2"], ["a", "1"], ["a", "1"], ["other", "1"]], "{end}");
        assert_eq!(said(&[end, "b", "b"]), [["b", "0"], ["b", "0"]]);
        assert_eq!(ask(&mut subscriber, &["PING"]), Reply::Simple(b"PONG".to_vec()));
    }
}

#[test]
fn each_subscription_is_confirmed_as_often_as_it_is_asked_for() {
    let Some((_servers, proxy)) = in_front_of_three("") else { return };
    let mut subscriber = proxy.client(Protocol::Resp2);
    // Patterns are at all servers, and one of them speaks.
    let asked = [
        ("subscribe", vec!["a", "b", "a"], vec!["1", "2", "2"]),
        ("subscribe", vec!["b"], vec!["2"]),
        ("psubscribe", vec!["p*", "p*"], vec!["3", "3"]),
        ("psubscribe", vec!["p*"], vec!["3"]),
        ("ssubscribe", vec!["a", "a"], vec!["1", "1"]),
        ("punsubscribe", vec!["p*"], vec!["2"]),
        ("psubscribe", vec!["q*"], vec!["3"]),
    ];
    for (kind, channels, _) in &asked {
        let words: Vec<&str> = [*kind].into_iter().chain(channels.iter().copied()).collect();
        subscriber.send(&words).expect("it is sent");
    }
    for (kind, channels, counts) in asked {
        for (channel, count) in channels.into_iter().zip(counts) {
            let told = parts(subscriber.message().expect("a confirmation"));
            assert_eq!(told, [kind, channel, count]);
        }
    }
}

#[test]
fn subscriptions_go_over_to_other_servers() {
    let Some(program) = dunlin() else { return };
    let servers = servers(&program);
    let port = free_port().expect("a port");
    let file = servers[0].directory().join("nutcracker.yml");
    let proxy = Proxy::run(&program, &file, port, &yml(port, &servers[..1], ""));
    let mut subscriber = proxy.client(Protocol::Resp3);
    subscriber.send(&["SUBSCRIBE", "news"]).expect("it is sent");
    let confirmation = parts(subscriber.message().expect("a confirmation"));
    assert_eq!(confirmation, ["subscribe", "news", "1"]);
    std::fs::write(&file, yml(port, &servers[1..2], "")).expect("a file");
    signal(proxy.process_id(), "HUP").expect("it runs");
    confirmed_again(&mut subscriber, "subscribe", "news");
    assert_eq!(ask(&mut servers[1].client(), &["PUBLISH", "news", "x"]), Reply::Integer(1));
    assert_eq!(parts(subscriber.message().expect("a message")), ["message", "news", "x"]);
    until("the old server has no subscriber", || {
        ask(&mut servers[0].client(), &["PUBLISH", "news", "y"]) == Reply::Integer(0)
    });
}

#[test]
fn a_repeated_subscription_whose_server_is_lost_is_confirmed() {
    let Some(program) = dunlin() else { return };
    let mut servers = servers(&program);
    let proxy = Proxy::start(&program, &servers[..1], "");
    let mut subscriber = proxy.client(Protocol::Resp2);
    subscriber.send(&["SUBSCRIBE", "news"]).expect("it is sent");
    assert_eq!(parts(subscriber.message().expect("a confirmation")), ["subscribe", "news", "1"]);
    stop(servers[0].process_id());
    // Under way when the server is lost: twice what is there, and one that is new.
    subscriber.send(&["SUBSCRIBE", "news", "news", "sport"]).expect("it is sent");
    // A request of another client on the same thread shows that it was read.
    for _ in 0..8 {
        assert!(!matches!(ask(&mut proxy.client(Protocol::Resp2), &["PING"]), Reply::Error(_)));
    }
    servers[0].kill().expect("it ends");
    servers[0].start_again().expect("it starts");
    let mut told: Vec<Vec<String>> =
        (0..4).map(|_| parts(subscriber.message().expect("a confirmation"))).collect();
    told.sort();
    let news = ["subscribe", "news", "1"].map(str::to_owned).to_vec();
    let of = |channel: &str| told.iter().filter(|parts| parts[1] == channel).count();
    assert_eq!((of("news"), of("sport")), (3, 1), "{told:?}");
    assert!(told.contains(&news) || told.iter().any(|parts| parts[2] == "2"), "{told:?}");
    subscriber.send(&["UNSUBSCRIBE", "news", "sport"]).expect("it is sent");
    assert_eq!(parts(subscriber.message().expect("an end"))[..2], ["unsubscribe", "news"]);
    assert_eq!(parts(subscriber.message().expect("an end")), ["unsubscribe", "sport", "0"]);
}

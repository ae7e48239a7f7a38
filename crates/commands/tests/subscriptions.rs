//! The order of messages and replies on one connection, with an engine in process.

use engine::clock::Clock;
use engine::worker::Peer;
use engine::{Engine, Session, Worker};

fn feed(worker: &mut Worker, session: &mut Session, line: &str) -> String {
    let mut out = resp::Output::default();
    worker.feed(session, format!("{line}\r\n").as_bytes(), &mut out, usize::MAX);
    String::from_utf8_lossy(&out.into_bytes()).into_owned()
}

/// A client that listens already takes the reply to another SUBSCRIBE as the end of what came
/// before it. Nodes do, for keyspace events.
#[test]
fn what_was_posted_before_comes_before_the_reply_to_a_second_subscription() {
    let config = config::load_text(b"").expect("it is valid").config;
    let engine = Engine::new(config, &commands::rows(), &[], 1, Clock::system());
    let mut worker = Worker::new(engine, 0);
    let mut connect = || {
        let peer = Peer { addr: "test".into(), is_local: true, ..Peer::default() };
        worker.connect(peer).expect("there is room")
    };
    let (mut listener, mut publisher) = (connect(), connect());
    feed(&mut worker, &mut listener, "HELLO 3");
    for (join, publish) in [
        ("SUBSCRIBE news", "PUBLISH news before"),
        ("PSUBSCRIBE n*", "PUBLISH news before"),
        ("SSUBSCRIBE news", "SPUBLISH news before"),
    ] {
        feed(&mut worker, &mut listener, join);
        // The server delivers mail in its turns, and there is none here.
        feed(&mut worker, &mut publisher, publish);
        let text = feed(&mut worker, &mut listener, join);
        let (message, reply) = (text.find("before"), text.find("subscribe"));
        assert!(message.is_some() && message < reply, "{join}: {text:?}");
    }
}

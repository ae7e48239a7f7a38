//! A server is killed and comes back under load: what was confirmed is there, and no client gets
//! the reply to another's request.

use crate::support::{Proxy, dunlin, server, text, until};
use harness::client::{Client, ask};
use harness::reply::{Protocol, Reply};
use harness::wait::SetAtEnd;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::SeqCst};

const SERVERS: usize = 3;
const CLIENTS: usize = 6;
const PIPELINE: usize = 8;
/// Confirmed writes between two kills.
const WRITES: usize = 300;

/// Writes keys of its own and reads them back, in pipelines. Returns what was confirmed.
fn work(
    proxy: &Proxy,
    number: usize,
    confirmed: &AtomicUsize,
    is_over: &AtomicBool,
) -> Vec<String> {
    let mut client = proxy.client(Protocol::Resp2);
    let mut written = Vec::new();
    let mut next = 0;
    while !is_over.load(SeqCst) {
        let keys: Vec<String> = (next..next + PIPELINE).map(|n| format!("{number}:{n}")).collect();
        next += PIPELINE;
        for key in &keys {
            client.send(&["SET", key, key]).expect("the proxy stays");
            client.send(&["GET", key]).expect("the proxy stays");
        }
        for key in keys {
            let set = client.reply().expect("a reply");
            let get = client.reply().expect("a reply");
            match get {
                Reply::Error(_) | Reply::Nil => {}
                // A reply that belongs to another request would hold another key.
                get => assert_eq!(text(&get), key),
            }
            match set {
                Reply::Simple(ok) => {
                    assert_eq!(ok, b"OK");
                    confirmed.fetch_add(1, SeqCst);
                    written.push(key);
                }
                set => assert!(matches!(set, Reply::Error(_)), "{set:?}"),
            }
        }
    }
    written
}

fn is_there(client: &mut Client, key: &str) -> bool {
    until("the servers are back", || !matches!(ask(client, &["GET", key]), Reply::Error(_)));
    text(&ask(client, &["GET", key])) == key
}

#[test]
fn what_was_confirmed_outlives_kills() {
    let Some(program) = dunlin() else { return };
    let durable = ["--appendonly", "yes", "--appendfsync", "always"];
    let mut servers: Vec<_> = (0..SERVERS).map(|_| server(&program, &durable)).collect();
    let proxy = Proxy::start(&program, &servers, "  timeout: 5000\n");
    let (confirmed, is_over) = (AtomicUsize::new(0), AtomicBool::new(false));
    let written: Vec<String> = std::thread::scope(|scope| {
        let (proxy, confirmed, is_over) = (&proxy, &confirmed, &is_over);
        let over = SetAtEnd(is_over);
        let start = |n| scope.spawn(move || work(proxy, n, confirmed, is_over));
        let workers: Vec<_> = (0..CLIENTS).map(start).collect();
        for server in &mut servers {
            let goal = confirmed.load(SeqCst) + WRITES;
            until("writes are confirmed", || {
                confirmed.load(SeqCst) >= goal || workers.iter().any(|worker| worker.is_finished())
            });
            server.kill().expect("it ends");
            server.start_again().expect("it starts");
        }
        drop(over);
        workers.into_iter().flat_map(|worker| worker.join().expect("it is content")).collect()
    });
    assert!(written.len() >= SERVERS * WRITES);
    let mut client = proxy.client(Protocol::Resp2);
    let lost: Vec<&String> = written.iter().filter(|key| !is_there(&mut client, key)).collect();
    assert!(lost.is_empty(), "{} of {} are lost: {:?}", lost.len(), written.len(), lost[0]);
}

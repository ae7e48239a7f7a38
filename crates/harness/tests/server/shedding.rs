//! Requests of the least important users are refused while a thread is overloaded, and no others.

// A failed step is a failed test, in its helpers too.
#![allow(clippy::unwrap_used)]

use harness::client::{Client, ask, encode, ok};
use harness::info::{field, number};
use harness::reply::Reply;
use harness::server::{Options, Program, Server};
use harness::wait::eventually;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::SeqCst};
use std::thread::JoinHandle;

fn text(reply: &Reply) -> String {
    String::from_utf8_lossy(reply.text().unwrap_or_default()).into_owned()
}

fn is_refused(reply: &Reply) -> bool {
    text(reply).starts_with("TRYAGAIN The server is overloaded")
}

/// Keeps the only reactor busy with long turns until it is dropped.
struct Load {
    ends: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl Load {
    fn start(server: &Server) -> Load {
        let mut client = server.client();
        ok(&mut client, &["AUTH", "important", "secret"]);
        let ends = Arc::new(AtomicBool::new(false));
        let seen = Arc::clone(&ends);
        let thread = std::thread::spawn(move || {
            let pipeline = encode(&["INCR", "number"]).repeat(2000);
            while !seen.load(SeqCst) {
                client.send_raw(&pipeline).unwrap();
                for _ in 0..2000 {
                    let reply = client.reply().unwrap();
                    assert!(matches!(reply, Reply::Integer(_)), "others are served: {reply:?}");
                }
            }
        });
        Load { ends, thread: Some(thread) }
    }
}

impl Drop for Load {
    fn drop(&mut self) {
        self.ends.store(true, SeqCst);
        if let Some(thread) = self.thread.take() {
            let ended = thread.join();
            assert!(std::thread::panicking() || ended.is_ok());
        }
    }
}

fn start() -> Server {
    let arguments = ["--io-threads", "1", "--save", ""];
    let server = Server::start(&Program::under_test(), Options::arguments(&arguments)).unwrap();
    let mut client = server.client();
    for name in ["important", "batch"] {
        ok(&mut client, &["ACL", "SETUSER", name, "on", ">secret", "~*", "&*", "+@all"]);
    }
    server
}

fn log_in(server: &Server, user: &str) -> Client {
    let mut client = server.client();
    ok(&mut client, &["AUTH", user, "secret"]);
    client
}

#[test]
fn only_the_named_users_are_refused_and_only_under_load() {
    let server = start();
    let (mut batch, mut important) = (log_in(&server, "batch"), log_in(&server, "important"));
    ok(&mut important, "CONFIG SET shed-users batch shed-turn-usec 1");
    let load = Load::start(&server);
    eventually("the thread is overloaded", || is_refused(&ask(&mut batch, "GET key")));
    eventually("INFO says so", || number(&mut important, "overloaded_threads") == 1);
    assert!(number(&mut important, "shed_requests") > 0);
    assert!(field(&mut important, "errorstat_TRYAGAIN").starts_with("count="));
    ok(&mut important, "SET key value");
    // To log in and to end is possible, and so is a transaction that has begun.
    ok(&mut batch, "AUTH batch secret");
    ok(&mut important, "CONFIG SET shed-turn-usec 0");
    eventually("nothing is refused", || !is_refused(&ask(&mut batch, "GET key")));
    ok(&mut batch, "MULTI");
    ok(&mut important, "CONFIG SET shed-turn-usec 1");
    let mut other = log_in(&server, "batch");
    eventually("the thread is overloaded again", || is_refused(&ask(&mut other, "GET key")));
    assert_eq!(text(&ok(&mut batch, "GET key")), "QUEUED");
    let reply = ask(&mut batch, "EXEC");
    assert!(format!("{reply:?}").contains("118, 97, 108, 117, 101"), "{reply:?}");
    // Writes alone, if that is asked for.
    ok(&mut important, "CONFIG SET shed-requests writes");
    eventually("writes are refused", || is_refused(&ask(&mut other, "SET key other")));
    ok(&mut other, "GET key");
    drop(load);
}

#[test]
fn a_thread_recovers() {
    let server = start();
    let (mut batch, mut important) = (log_in(&server, "batch"), log_in(&server, "important"));
    // A turn of two thousand requests takes longer, one of one request does not.
    ok(&mut important, "CONFIG SET shed-users batch shed-turn-usec 250");
    let load = Load::start(&server);
    eventually("the thread is overloaded", || is_refused(&ask(&mut batch, "GET key")));
    drop(load);
    eventually("it has recovered", || number(&mut important, "overloaded_threads") == 0);
    eventually("nothing is refused", || !is_refused(&ask(&mut batch, "GET key")));
}

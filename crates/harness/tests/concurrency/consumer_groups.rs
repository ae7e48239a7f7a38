//! Consumer groups under many readers and writers, scripts among them: each entry comes to one
//! consumer, and none is lost.
//!
//! `DUNLIN_CROSSING_SECONDS` sets how long the test runs on each server (default 1), `DUNLIN_SEED`
//! what it does.

// A failed step is a failed test, in its helpers too.
#![allow(clippy::unwrap_used)]

use harness::client::ok;
use harness::environment;
use harness::reply::Reply;
use harness::rng::Rng;
use harness::server::{Options, Program, Server};
use std::collections::HashSet;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::thread;
use std::time::{Duration, Instant};

fn seconds() -> Duration {
    environment::seconds("DUNLIN_CROSSING_SECONDS").unwrap_or(Duration::from_secs(1))
}

fn seed() -> u64 {
    environment::variable("DUNLIN_SEED").unwrap_or(1)
}

fn start(threads: &str) -> Server {
    let arguments = ["--io-threads", threads, "--save", "", "--appendonly", "yes"];
    Server::start(&Program::under_test(), Options::arguments(&arguments)).unwrap()
}

/// The ids of the entries in a reply of XREADGROUP of one stream.
fn ids(reply: &Reply) -> Vec<String> {
    let Some([stream]) = reply.elements() else { return Vec::new() };
    let [_, entries] = stream.elements().unwrap() else { panic!("{stream:?}") };
    let id =
        |entry: &Reply| String::from_utf8(entry.elements().unwrap()[0].text().unwrap().to_vec());
    entries.elements().unwrap().iter().map(|entry| id(entry).unwrap()).collect()
}

fn text(reply: &Reply) -> String {
    String::from_utf8_lossy(reply.text().unwrap_or_default()).into_owned()
}

#[test]
fn each_entry_comes_to_one_consumer() {
    for threads in ["2", "4"] {
        let server = start(threads);
        let mut client = server.client();
        ok(&mut client, "XGROUP CREATE stream group $ MKSTREAM");
        let (added, delivered) = (Mutex::new(HashSet::new()), Mutex::new(Vec::new()));
        let acked = AtomicU64::new(0);
        let end = Instant::now() + seconds();
        thread::scope(|scope| {
            for number in 0..2_u64 {
                let (server, added) = (&server, &added);
                scope.spawn(move || {
                    let (mut client, mut rng) = (server.client(), Rng::new(seed() * 10 + number));
                    while Instant::now() < end {
                        let script = "return redis.call('XADD', KEYS[1], '*', 'field', ARGV[1])";
                        let id = match rng.below(3) {
                            0 => ok(&mut client, &["EVAL", script, "1", "stream", "v"]),
                            1 => ok(&mut client, "XADD stream * field v"),
                            _ => {
                                ok(&mut client, "MULTI");
                                ok(&mut client, "XADD stream * field v");
                                ok(&mut client, "EXEC").elements().unwrap()[0].clone()
                            }
                        };
                        assert!(added.lock().unwrap().insert(text(&id)), "an id twice");
                    }
                });
            }
            for number in 0..4_u64 {
                let (server, delivered, acked) = (&server, &delivered, &acked);
                scope.spawn(move || {
                    let (mut client, mut rng) = (server.client(), Rng::new(seed() * 20 + number));
                    let read = format!("XREADGROUP GROUP group c{number} COUNT 3");
                    // Beyond the end, for what was added last.
                    while Instant::now() < end + Duration::from_millis(200) {
                        let reply = match rng.below(3) {
                            0 => ok(&mut client, &format!("{read} STREAMS stream >")),
                            1 => ok(&mut client, &format!("{read} BLOCK 5 STREAMS stream >")),
                            _ => {
                                let script = "return redis.call('XREADGROUP', 'GROUP', 'group', \
                                              ARGV[1], 'COUNT', 3, 'STREAMS', KEYS[1], '>')";
                                let consumer = format!("c{number}");
                                ok(&mut client, &["EVAL", script, "1", "stream", &consumer])
                            }
                        };
                        let ids = ids(&reply);
                        for id in &ids {
                            if rng.chance(50) {
                                let done = ok(&mut client, &format!("XACK stream group {id}"));
                                assert_eq!(done, Reply::Integer(1));
                                acked.fetch_add(1, Relaxed);
                            }
                        }
                        delivered.lock().unwrap().extend(ids);
                    }
                });
            }
        });
        let (added, mut delivered) = (added.into_inner().unwrap(), delivered.into_inner().unwrap());
        loop {
            let rest =
                ids(&ok(&mut client, "XREADGROUP GROUP group last COUNT 100 STREAMS stream >"));
            if rest.is_empty() {
                break;
            }
            delivered.extend(rest);
        }
        let once: HashSet<String> = delivered.iter().cloned().collect();
        assert_eq!(once.len(), delivered.len(), "an entry came to two consumers");
        assert!(once == added, "entries were lost, or made up");
        let pending = ok(&mut client, "XPENDING stream group");
        let pending = pending.elements().unwrap()[0].integer().unwrap();
        assert_eq!(pending, delivered.len() as i64 - acked.into_inner() as i64);
        println!("{threads} threads: {} entries", added.len());
    }
}

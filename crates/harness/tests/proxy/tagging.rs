//! Values of every size say what they belong to: while servers are killed and stand still, no
//! client gets another request's reply, or half of one.
//!
//! `./test proxy-network [SECONDS [SEED]]` does it for longer.

use crate::support::{Proxy, dunlin, servers, stop, until};
use harness::client::Client;
use harness::environment;
use harness::reply::{Protocol, Reply};
use harness::rng::Rng;
use harness::server::{Server, signal};
use harness::wait::SetAtEnd;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::SeqCst};
use std::thread;
use std::time::{Duration, Instant};

const CLIENTS: usize = 6;
const KEYS: usize = 8;

/// The value of a key, some bytes more or less than a power of two up to 1 MiB.
fn value(key: &str, rng: &mut Rng) -> Vec<u8> {
    let size = ((1usize << (3 + rng.below(18))) + rng.below(129)).saturating_sub(64);
    let tag = format!("{key}=");
    let mut value: Vec<u8> = tag.bytes().cycle().take(size).collect();
    value.push(b'.');
    value
}

/// Whether it is whole and of this key.
fn belongs(value: &[u8], key: &str) -> bool {
    let tag = format!("{key}=");
    let Some((b'.', tags)) = value.split_last() else { return false };
    tags.chunks(tag.len()).all(|part| tag.as_bytes().starts_with(part))
}

/// Sets and gets keys in pipelines. Other clients do it with the same keys.
fn work(proxy: &Proxy, number: usize, done: &AtomicUsize, is_over: &AtomicBool) {
    let mut rng = Rng::new(number as u64);
    let protocol = if number.is_multiple_of(2) { Protocol::Resp2 } else { Protocol::Resp3 };
    let mut client: Option<Client> = None;
    while !is_over.load(SeqCst) {
        let connection = client.get_or_insert_with(|| proxy.client(protocol));
        let mut asked = Vec::new();
        for _ in 0..4 {
            let key = format!("key:{}", rng.below(KEYS));
            let set = [&b"SET"[..], key.as_bytes(), &value(&key, &mut rng)];
            // A server that ends in the middle of a long value ends the client, too.
            if rng.below(3) == 0 && connection.send(&set).is_ok() {
                asked.push(None);
            }
            if connection.send(&["GET", &key]).is_ok() {
                asked.push(Some(key));
            }
        }
        for key in asked {
            match (connection.reply(), key) {
                (Err(_), _) => {
                    client = None;
                    break;
                }
                (Ok(Reply::Error(_) | Reply::Nil), _) => {}
                (Ok(reply), None) => assert_eq!(reply, Reply::Simple(b"OK".to_vec())),
                (Ok(Reply::Bulk(found)), Some(key)) => {
                    let some = String::from_utf8_lossy(&found[..found.len().min(40)]).into_owned();
                    assert!(belongs(&found, &key), "{} bytes, {some}, for {key}", found.len());
                    done.fetch_add(1, SeqCst);
                }
                (Ok(other), Some(key)) => panic!("{other:?} for {key}"),
            }
        }
    }
}

fn suffer(servers: &mut [Server], rng: &mut Rng) {
    let at = rng.below(servers.len());
    match rng.below(2) {
        0 => {
            servers[at].kill().expect("it runs");
            servers[at].start_again().expect("it starts");
        }
        _ => {
            stop(servers[at].process_id());
            thread::sleep(Duration::from_millis(600));
            signal(servers[at].process_id(), "CONT").expect("it is there");
        }
    }
}

#[test]
fn no_reply_is_another_requests() {
    let Some(program) = dunlin() else { return };
    let time = environment::seconds("DUNLIN_NETWORK_SECONDS").unwrap_or(Duration::from_secs(4));
    let seed = environment::variable("DUNLIN_SEED").unwrap_or_else(environment::new_seed);
    println!("seed {seed}");
    let mut rng = Rng::new(seed);
    let mut servers = servers(&program);
    let proxy = Proxy::start(&program, &servers, "  timeout: 500\n");
    let (done, is_over) = (AtomicUsize::new(0), AtomicBool::new(false));
    thread::scope(|scope| {
        let start = |n| {
            scope.spawn({
                let (proxy, done, is_over) = (&proxy, &done, &is_over);
                move || work(proxy, n, done, is_over)
            })
        };
        let workers: Vec<_> = (0..CLIENTS).map(start).collect();
        let _over = SetAtEnd(&is_over);
        let began = Instant::now();
        while began.elapsed() < time {
            let goal = done.load(SeqCst) + 100;
            until("values are read", || {
                done.load(SeqCst) >= goal || workers.iter().any(|worker| worker.is_finished())
            });
            suffer(&mut servers, &mut rng);
        }
    });
    println!("{} replies were those asked for", done.load(SeqCst));
}

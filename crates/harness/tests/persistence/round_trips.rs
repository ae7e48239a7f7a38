//! Snapshots between servers: what Dunlin saves Valkey 9.1 and Redis 8 load, and the other way
//! round, compared key by key.
//!
//! A server saves random data of every type and encoding; its file is loaded by another, which
//! saves it again for the first. The default run takes one seed; `DUNLIN_ROUND_TRIPS=50` takes so
//! many more from the clock, `DUNLIN_SEED=17` that one.

// A failed step is a failed test, in its helpers too.
#![allow(clippy::unwrap_used)]

use harness::client::Client;
use harness::environment::{new_seed, variable};
use harness::reply::Reply;
use harness::rng::Rng;
use harness::server::{Options, Program, Server};
use std::collections::BTreeMap;
use std::fs;
use std::time::{SystemTime, UNIX_EPOCH};

/// Keys of a run.
const KEYS: usize = 60;
const DATABASES: [&str; 3] = ["0", "3", "9"];

/// A year in milliseconds: no key's time comes during a test.
const YEAR_MS: i64 = 365 * 86_400_000;

/// What a key holds: its type, when it expires, and its contents in an order of their own.
type Contents = (Vec<u8>, i64, Vec<Vec<u8>>);

fn ask<W: AsRef<[u8]>>(client: &mut Client, words: &[W]) -> Reply {
    let reply = client.command(words).unwrap();
    let shown = || String::from_utf8_lossy(words[0].as_ref()).into_owned();
    assert!(!reply.is_error(), "{}: {reply:?}", shown());
    reply
}

/// An element: numbers of all widths, texts that can be compressed and that cannot, long and short.
fn element(rng: &mut Rng) -> Vec<u8> {
    match rng.below(8) {
        0 => rng.between(-200, 200).to_string().into_bytes(),
        1 => rng.between(-(1 << 45), 1 << 45).to_string().into_bytes(),
        2 => (rng.bits() as i64).to_string().into_bytes(),
        3 => b"ab".repeat(rng.below(40) + 1),
        4 => vec![b'x'; rng.below(400)],
        5 => (0..rng.below(90)).map(|_| rng.bits() as u8).collect(),
        6 => Vec::new(),
        _ => format!("item:{}", rng.below(10_000)).into_bytes(),
    }
}

fn score(rng: &mut Rng) -> String {
    match rng.below(5) {
        0 => "inf".into(),
        1 => "-inf".into(),
        2 => format!("{:?}", f64::from_bits(rng.bits() >> 2)),
        3 => "-0".into(),
        _ => rng.between(-100, 100).to_string(),
    }
}

/// The commands that make a key.
fn key(rng: &mut Rng, name: &[u8]) -> Vec<Vec<u8>> {
    let count = *rng.pick(&[1, 3, 20, 130, 600]);
    let mut words = vec![Vec::new(), name.to_vec()];
    let command = match rng.below(6) {
        0 => {
            words.push(element(rng));
            "SET"
        }
        1 => {
            words.extend((0..count).map(|_| element(rng)));
            "RPUSH"
        }
        2 => {
            words.extend((0..count).map(|_| element(rng)));
            "SADD"
        }
        3 => {
            let bits = *rng.pick(&[7, 20, 50]);
            words.extend(
                (0..count).map(|_| rng.between(-(1 << bits), 1 << bits).to_string().into()),
            );
            "SADD"
        }
        4 => {
            words.extend((0..2 * count).map(|_| element(rng)));
            "HSET"
        }
        _ => {
            words.extend((0..count).flat_map(|_| [score(rng).into_bytes(), element(rng)]));
            "ZADD"
        }
    };
    words[0] = command.into();
    words
}

fn fill(client: &mut Client, seed: u64) {
    let mut rng = Rng::new(seed);
    let now = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |now| now.as_millis() as i64);
    for number in 0..KEYS {
        ask(client, &["SELECT", DATABASES[number % DATABASES.len()]]);
        let mut name = element(&mut rng);
        name.truncate(300);
        name.extend_from_slice(number.to_string().as_bytes());
        ask(client, &key(&mut rng, &name));
        if rng.chance(30) {
            let at = (now + YEAR_MS + rng.between(0, 1 << 40)).to_string();
            ask(client, &[b"PEXPIREAT".as_slice(), &name, at.as_bytes()]);
        }
    }
}

fn bytes(reply: &Reply) -> Vec<u8> {
    reply.text().map(<[u8]>::to_vec).unwrap_or_else(|| format!("{reply:?}").into_bytes())
}

/// Everything a server holds, by database and key.
fn contents(client: &mut Client) -> BTreeMap<(String, Vec<u8>), Contents> {
    let mut all = BTreeMap::new();
    for db in DATABASES {
        ask(client, &["SELECT", db]);
        let keys = ask(client, &["KEYS", "*"]);
        for key in keys.elements().unwrap().iter().map(bytes) {
            let kind = bytes(&ask(client, &[b"TYPE".as_slice(), &key]));
            let expiry = ask(client, &[b"PEXPIRETIME".as_slice(), &key]).integer().unwrap();
            let request: &[&[u8]] = match kind.as_slice() {
                b"string" => &[b"GET", &key],
                b"list" => &[b"LRANGE", &key, b"0", b"-1"],
                b"set" => &[b"SMEMBERS", &key],
                b"hash" => &[b"HGETALL", &key],
                _ => &[b"ZRANGE", &key, b"0", b"-1", b"WITHSCORES"],
            };
            let reply = ask(client, request);
            let mut found: Vec<_> = match reply.elements() {
                Some(elements) => elements.iter().map(bytes).collect(),
                None => vec![bytes(&reply)],
            };
            match kind.as_slice() {
                b"set" => found.sort(),
                b"hash" => {
                    let mut pairs: Vec<_> = found.chunks(2).map(<[_]>::concat).collect();
                    pairs.sort();
                    found = pairs;
                }
                _ => {}
            }
            all.insert((db.to_owned(), key), (kind, expiry, found));
        }
    }
    all
}

/// Has `to` load what `from` saves.
fn hand_over(from: &Server, to: &Server) {
    ask(&mut from.client(), &["SAVE"]);
    let file = fs::read(from.directory().join("dump.rdb")).unwrap();
    fs::write(to.directory().join("dump.rdb"), file).unwrap();
    ask(&mut to.client(), &["DEBUG", "RELOAD", "NOSAVE"]);
}

#[track_caller]
fn compare(expected: &BTreeMap<(String, Vec<u8>), Contents>, server: &Server, what: &str) {
    let found = contents(&mut server.client());
    assert_eq!(found.len(), expected.len(), "{what}: keys");
    for (key, value) in expected {
        let name = key.1.escape_ascii();
        assert!(found.get(key) == Some(value), "{what}: key '{name}' is not the same");
    }
}

/// Dunlin's data goes to the other server and comes back, and the other's to Dunlin.
fn exchange(dunlin: &Server, other: &Server, seed: u64) {
    println!("DUNLIN_SEED={seed} {}", other.program().name());
    let name = format!("seed {seed}, {}", other.program().name());
    for first in [dunlin, other] {
        let mut client = first.client();
        ask(&mut client, &["FLUSHALL"]);
        fill(&mut client, seed);
        let expected = contents(&mut client);
        assert_eq!(expected.len(), KEYS);
        let second = if std::ptr::eq(first, dunlin) { other } else { dunlin };
        hand_over(first, second);
        compare(&expected, second, &format!("{name}, there"));
        ask(&mut client, &["FLUSHALL"]);
        hand_over(second, first);
        compare(&expected, first, &format!("{name}, and back"));
    }
}

#[test]
fn snapshots_pass_between_servers() {
    let Some(reference) = Program::reference_or_skip() else { return };
    let start = |program: &Program| Server::start(program, Options::default()).unwrap();
    let dunlin = start(&Program::under_test());
    let others = [start(&reference), start(&reference.beside("redis-server"))];
    let clock = new_seed();
    let more = variable("DUNLIN_ROUND_TRIPS").unwrap_or(0);
    for seed in std::iter::once(variable("DUNLIN_SEED").unwrap_or(1)).chain(clock..clock + more) {
        for other in &others {
            exchange(&dunlin, other, seed);
        }
    }
}

//! What the SCAN commands promise while others write: an element that is there from the first call
//! of an iteration to the last is returned, one that is not there in all that time is not, and the
//! iteration comes to an end.
//!
//! Writers let the collection grow many times over and shrink again while it is walked, so that its
//! tables are resized under the cursors. `DUNLIN_SCAN_SECONDS` sets for how long (default 1).

// A failed step is a failed test, in its helpers too.
#![allow(clippy::unwrap_used)]

use harness::client::Client;
use harness::environment::variable;
use harness::server::{Options, Program, Server};
use harness::wait::eventually;
use std::collections::HashSet;
use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};
use std::thread;
use std::time::{Duration, Instant};

/// Elements that stay.
const LASTING: usize = 3000;
/// What each writer adds, and removes again, in a round.
const PASSING: usize = 40_000;
/// Elements in one request.
const BATCH: usize = 200;
const WRITERS: usize = 2;
/// The calls of an iteration ask for so many elements.
const COUNTS: [&str; 3] = ["10", "100", "1000"];

/// A collection that can be walked.
struct Collection {
    /// Adds elements; the words that follow are made by `added`.
    add: &'static [&'static str],
    /// The words for one element.
    added: fn(&str) -> Vec<String>,
    remove: &'static [&'static str],
    /// The words before the cursor.
    scan: &'static [&'static str],
    /// Words of the reply for one element.
    stride: usize,
}

fn check(collection: &Collection) {
    let seconds = variable("DUNLIN_SCAN_SECONDS");
    let program = Program::under_test();
    let backend = program.backends().first().copied().flatten();
    let options = Options { backend, ..Options::arguments(&["--io-threads", "4"]) };
    let server = Server::start(&program, options).unwrap();

    let mut client = server.client();
    let names = |prefix: &str, count: usize| -> Vec<String> {
        (0..count).map(|index| format!("{prefix}{index}")).collect()
    };
    let lasting = names("lasting:", LASTING);
    let gone = names("gone:", LASTING);
    add(&mut client, collection, &lasting);
    add(&mut client, collection, &gone);
    remove(&mut client, collection, &gone);

    let end = Instant::now() + Duration::from_secs(seconds.unwrap_or(1));
    let walkers = AtomicUsize::new(COUNTS.len());
    let rounds = AtomicUsize::new(0);
    thread::scope(|scope| {
        for writer in 0..WRITERS {
            let (server, walkers, rounds) = (&server, &walkers, &rounds);
            scope.spawn(move || {
                let mut client = server.client();
                let passing = names(&format!("passing:{writer}:"), PASSING);
                while walkers.load(SeqCst) > 0 {
                    for batch in passing.chunks(BATCH).take_while(|_| walkers.load(SeqCst) > 0) {
                        add(&mut client, collection, batch);
                    }
                    for batch in passing.chunks(BATCH) {
                        remove(&mut client, collection, batch);
                    }
                    rounds.fetch_add(1, SeqCst);
                }
            });
        }
        for count in COUNTS {
            let (server, walkers, lasting) = (&server, &walkers, &lasting);
            scope.spawn(move || {
                // However it ends: the writers go on until all have left.
                let _leaving = Leaving(walkers);
                let mut client = server.client();
                let mut iterations = 0;
                while iterations == 0 || Instant::now() < end {
                    let found = walk(&mut client, collection, count);
                    let missing: Vec<_> =
                        lasting.iter().filter(|name| !found.contains(*name)).collect();
                    assert!(missing.is_empty(), "COUNT {count} did not return {missing:?}");
                    let returned = found.iter().find(|name| name.starts_with("gone:"));
                    assert!(returned.is_none(), "COUNT {count} returned {returned:?}");
                    iterations += 1;
                }
                println!("{} COUNT {count}: {iterations} iterations", collection.scan[0]);
            });
        }
    });
    println!("{} rounds of {PASSING} elements", rounds.load(SeqCst));
    assert!(server.stop().unwrap().success());
}

/// Counts a walker out when it ends.
struct Leaving<'a>(&'a AtomicUsize);

impl Drop for Leaving<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, SeqCst);
    }
}

/// The elements that one iteration returns.
fn walk(client: &mut Client, collection: &Collection, count: &str) -> HashSet<String> {
    let mut found = HashSet::new();
    let mut cursor = "0".to_owned();
    // Each call does some work: an iteration over what can be there at most ends before that.
    for _ in 0..(LASTING * 2 + PASSING * WRITERS) * 4 {
        let words: Vec<&str> =
            collection.scan.iter().copied().chain([cursor.as_str(), "COUNT", count]).collect();
        let reply = client.command(&words).unwrap();
        let parts = reply.elements().unwrap_or_else(|| panic!("{words:?}: {reply:?}"));
        let text = |bytes: &[u8]| String::from_utf8(bytes.to_vec()).unwrap();
        let elements = parts[1].elements().unwrap().iter().step_by(collection.stride);
        found.extend(elements.map(|element| text(element.text().unwrap())));
        cursor = text(parts[0].text().unwrap());
        if cursor == "0" {
            return found;
        }
    }
    panic!("{:?} does not end", collection.scan);
}

fn add(client: &mut Client, collection: &Collection, names: &[String]) {
    for batch in names.chunks(BATCH) {
        let words = collection.add.iter().map(|word| (*word).to_owned());
        let words = words.chain(batch.iter().flat_map(|name| (collection.added)(name)));
        ask(client, &words.collect::<Vec<_>>());
    }
}

fn remove(client: &mut Client, collection: &Collection, names: &[String]) {
    for batch in names.chunks(BATCH) {
        let words = collection.remove.iter().map(|word| (*word).to_owned());
        ask(client, &words.chain(batch.iter().cloned()).collect::<Vec<_>>());
    }
}

fn ask(client: &mut Client, words: &[String]) {
    let reply = client.command(words).unwrap();
    assert!(!reply.is_error(), "{}: {reply:?}", words[0]);
}

#[test]
fn keys() {
    check(&Collection {
        add: &["MSET"],
        added: |name| vec![name.to_owned(), "value".to_owned()],
        remove: &["DEL"],
        scan: &["SCAN"],
        stride: 1,
    });
}

const SET: Collection = Collection {
    add: &["SADD", "set"],
    added: |name| vec![name.to_owned()],
    remove: &["SREM", "set"],
    scan: &["SSCAN", "set"],
    stride: 1,
};

#[test]
fn set() {
    check(&SET);
}

const HASH: Collection = Collection {
    add: &["HSET", "hash"],
    added: |name| vec![name.to_owned(), "value".to_owned()],
    remove: &["HDEL", "hash"],
    scan: &["HSCAN", "hash"],
    stride: 2,
};

#[test]
fn hash() {
    check(&HASH);
}

const ZSET: Collection = Collection {
    add: &["ZADD", "zset"],
    // The score depends on the name alone; many members share one.
    added: |name| vec![(name.len() % 7).to_string(), name.to_owned()],
    remove: &["ZREM", "zset"],
    scan: &["ZSCAN", "zset"],
    stride: 2,
};

#[test]
fn zset() {
    check(&ZSET);
}

/// Values leave memory for the flash tier between the calls, and entries move to other blocks.
#[test]
fn values_that_go_and_come_back() {
    const ELEMENTS: usize = 600;
    let program = Program::under_test();
    if !program.is_dunlin() {
        return;
    }
    let arguments = ["--enable-debug-command", "yes", "--tier-dir", "tier"];
    let server = Server::start(&program, Options::arguments(&arguments)).unwrap();
    let mut client = server.client();
    ask(&mut client, &["DEBUG", "DEFRAG-ALL", "1"].map(str::to_owned));
    let names: Vec<String> = (0..ELEMENTS).map(|number| format!("lasting:{number}")).collect();
    let (gone, walkers) = (AtomicUsize::new(0), AtomicUsize::new(1));
    thread::scope(|scope| {
        let demoter = scope.spawn(|| {
            let mut client = server.client();
            while walkers.load(SeqCst) > 0 {
                let reply = client.command(&["DEBUG", "TIER", "DEMOTE"]).unwrap();
                gone.fetch_add(usize::from(!reply.is_error()), SeqCst);
                thread::sleep(Duration::from_millis(1));
            }
        });
        let leaving = Leaving(&walkers);
        for collection in [&SET, &HASH, &ZSET] {
            add(&mut client, collection, &names);
            let (before, mut walks) = (gone.load(SeqCst), 0);
            eventually("values go to flash between the calls of thirty walks", || {
                let found = walk(&mut client, collection, "5");
                let missing: Vec<_> = names.iter().filter(|name| !found.contains(*name)).collect();
                assert!(missing.is_empty(), "{:?} did not return {missing:?}", collection.scan);
                walks += 1;
                walks >= 30 && gone.load(SeqCst) > before
            });
        }
        drop(leaving);
        demoter.join().unwrap();
    });
}

/// A server with keys, and a client of it.
fn seeded(seed: &str, threads: &str) -> (Server, Client) {
    let arguments = ["--hash-seed", seed, "--io-threads", threads];
    let server = Server::start(&Program::under_test(), Options::arguments(&arguments)).unwrap();
    let mut client = server.client();
    let words = (0..1000).flat_map(|number| [format!("key:{number}"), String::new()]);
    ask(&mut client, &std::iter::once("MSET".to_owned()).chain(words).collect::<Vec<_>>());
    (server, client)
}

/// The keys that a walk returns whose calls go to two servers in turn.
fn walk_in_turn<'a>(mut one: &'a mut Client, mut other: &'a mut Client) -> Vec<Vec<u8>> {
    let (mut cursor, mut keys) = ("0".to_owned(), Vec::new());
    loop {
        let reply = one.command(&["SCAN", &cursor]).unwrap();
        let parts = reply.elements().unwrap();
        keys.extend(parts[1].elements().unwrap().iter().map(|key| key.text().unwrap().to_vec()));
        cursor = String::from_utf8(parts[0].text().unwrap().to_vec()).unwrap();
        if cursor == "0" {
            return keys;
        }
        std::mem::swap(&mut one, &mut other);
    }
}

#[test]
fn cursors_mean_the_same_on_servers_with_one_seed() {
    let (_first, mut one) = seeded("a seed", "1");
    let (_second, mut same) = seeded("a seed", "2");
    let (_third, mut other) = seeded("another", "2");
    let keys = walk_in_turn(&mut one, &mut same);
    assert_eq!(keys.len(), 1000);
    assert_eq!(keys.iter().collect::<HashSet<_>>().len(), 1000);
    let keys = walk_in_turn(&mut one, &mut other);
    assert_ne!(keys.iter().collect::<HashSet<_>>().len(), 1000);
}

//! Databases that change while clients write: shards that come and go, slots that are spread, jobs
//! that are cancelled.

use crate::support::{Machine, until_ok};
use harness::client::{Client, ask};
use harness::http;
use harness::reply::Reply;
use harness::wait::eventually;
use serde_json::Value;
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;

fn client(port: u16) -> Client {
    Client::connect(SocketAddr::from((Ipv4Addr::LOCALHOST, port))).expect("a copy listens")
}

/// Clients that count, each its own keys, by one address.
struct Writers {
    port: u16,
    is_over: Arc<AtomicBool>,
    threads: Vec<JoinHandle<Vec<i64>>>,
}

/// Keys of a client.
const KEYS: usize = 400;

fn key(client: usize, number: usize) -> String {
    format!("c{client}:{number}")
}

impl Writers {
    fn start(port: u16, clients: usize) -> Writers {
        let is_over = Arc::new(AtomicBool::new(false));
        let threads = (0..clients).map(|number| {
            let is_over = Arc::clone(&is_over);
            std::thread::spawn(move || count(port, number, &is_over))
        });
        Writers { port, threads: threads.collect(), is_over }
    }

    /// Ends them, and compares each key with what was counted: nothing is lost, nothing is there
    /// twice.
    fn check(self) {
        self.is_over.store(true, Ordering::Relaxed);
        let counted: Vec<Vec<i64>> =
            self.threads.into_iter().map(|thread| thread.join().expect("no error")).collect();
        let mut client = client(self.port);
        let mut keys = 0;
        for (number, counts) in counted.iter().enumerate() {
            for (at, count) in counts.iter().enumerate().filter(|(_, count)| **count > 0) {
                let expected = Reply::Bulk(count.to_string().into_bytes());
                let name = key(number, at);
                assert_eq!(ask(&mut client, &format!("GET {name}")), expected, "{name}");
                keys += 1;
            }
        }
        assert_eq!(ask(&mut client, "DBSIZE"), Reply::Integer(keys), "no key is there twice");
    }
}

/// Counts keys up in turn. Returns how far each is.
fn count(port: u16, number: usize, is_over: &AtomicBool) -> Vec<i64> {
    let mut client = client(port);
    let mut counts = vec![0; KEYS];
    let mut at = 0;
    while !is_over.load(Ordering::Relaxed) {
        counts[at] += 1;
        let name = key(number, at);
        let reply = ask(&mut client, &format!("INCR {name}"));
        assert_eq!(reply, Reply::Integer(counts[at]), "{name}");
        at = (at + 1) % KEYS;
    }
    counts
}

fn shards(machine: &Machine) -> usize {
    machine.json(&["databases", "d"])["shards"].as_array().map_or(0, Vec::len)
}

/// The bytes of each shard, as the map of slots has them.
fn loads(machine: &Machine) -> Vec<u64> {
    let map = http::get(machine.admin_port, "/api/v1/cluster/databases/slots?name=d").text();
    let map: Value = serde_json::from_str(&map).expect("it is JSON");
    let mut loads = vec![0; shards(machine)];
    let numbers = |name: &str| map[name].as_array().cloned().unwrap_or_default();
    for (shard, bytes) in numbers("shards").iter().zip(numbers("bytes")) {
        let shard = shard.as_u64().and_then(|shard| usize::try_from(shard).ok()).unwrap_or(0);
        loads[shard - 1] += bytes.as_u64().unwrap_or(0);
    }
    loads
}

fn update(machine: &Machine, words: &[&str]) {
    let (is_done, text) = machine.ask(&[&["update-db", "d"], words].concat());
    assert!(is_done && text.contains("update d: done"), "{words:?}: {text}");
}

#[test]
fn shards_come_and_go_in_any_number_while_clients_write() {
    let mut first = Machine::first("reshape", "a");
    let other = Machine::beside(&first, "reshape", "b");
    let (port, _) = first.create("d", "0");
    until_ok(&first, "d");
    let writers = Writers::start(port, 3);

    let (is_done, text) = first.ask(&["update-db", "d", "--shards", "5", "--dry-run"]);
    assert!(is_done && text.contains("move from shard 1 to shard"), "{text}");
    assert!(text.contains("Nothing was changed.") && shards(&first) == 3, "{text}");

    // The node that was asked dies in the middle, and the other one goes on.
    let words = ["update-db", "d", "--shards", "5", "--no-wait"];
    assert!(first.ask(&words).0);
    eventually("slots move", || first.ask(&["jobs"]).1.contains("slots are still to move"));
    first.kill_node();
    eventually("another node has done the job", || {
        let job = other.json(&["jobs"])[0].clone();
        assert_ne!(job["state"], "failed", "{job}");
        job["state"] == "done" && job["machine"] == "b"
    });
    assert!(first.start(), "the node starts again");
    until_ok(&first, "d");
    assert_eq!((shards(&first), first.copies("d").len()), (5, 5));

    for wanted in ["4", "3"] {
        update(&first, &["--shards", wanted]);
        until_ok(&first, "d");
        assert_eq!(shards(&first).to_string(), wanted);
    }
    writers.check();
    eventually("the files of copies that went are gone", || {
        [&first, &other].iter().all(|machine| {
            let there = std::fs::read_dir(machine.directory.join("copies")).into_iter().flatten();
            there.flatten().all(|entry| {
                let name = entry.file_name().to_string_lossy().into_owned();
                !name.starts_with("d-4") && !name.starts_with("d-5")
            })
        })
    });
}

#[test]
fn shards_carry_the_same_bytes_after_a_rebalance() {
    let machine = Machine::first("rebalance", "a");
    let (port, _) = machine.create("d", "0");
    until_ok(&machine, "d");
    let mut client = client(port);
    // Most bytes are in a twentieth of the slots, all of the first shard.
    let value = "x".repeat(4000);
    let mut keys: i64 = 0;
    for number in 0u32.. {
        let name = number.to_string();
        if structs::crc16::key_slot(name.as_bytes()) < 800 {
            assert!(!ask(&mut client, &format!("SET {name} {value}")).is_error());
            keys += 1;
        }
        if keys == 4000 {
            break;
        }
    }
    let before = loads(&machine);
    assert!(before[0] > 10 * before[1].max(1), "{before:?}");
    let writers = Writers::start(port, 1);
    let (is_done, text) = machine.ask(&["rebalance", "d"]);
    assert!(is_done && text.contains("rebalance d: done"), "{text}");
    writers.is_over.store(true, Ordering::Relaxed);
    let after = loads(&machine);
    let mean = after.iter().sum::<u64>() / 3;
    assert!(after.iter().all(|load| *load <= mean * 105 / 100), "{after:?}, {mean}");
    let (is_done, text) = machine.ask(&["rebalance", "d", "--dry-run"]);
    assert!(is_done && text.contains("Nothing was changed.") && !text.contains("move"), "{text}");

    let (is_done, text) = machine.ask(&["move", "d", "0-9,16383", "2"]);
    assert!(is_done && text.contains("move d: done"), "{text}");
    let slots = machine.json(&["databases", "d"])["shards"][1]["slots"].clone();
    let slots = slots.as_str().unwrap_or_default();
    assert!(slots.starts_with("0-") && slots.ends_with("16383"), "{slots}");
    until_ok(&machine, "d");
}

#[test]
fn a_change_that_is_cancelled_goes_back() {
    let machine = Machine::first("cancel", "a");
    let (port, _) = machine.create("d", "0");
    until_ok(&machine, "d");
    let writers = Writers::start(port, 2);
    let headers = ["Content-Type: application/json", "Idempotency-Key: one"];
    let body = r#"{"name":"d","shards":5}"#;
    let send = |query: &str| {
        let path = format!("/api/v1/cluster/databases{query}");
        let answer = http::ask(machine.admin_port, "PATCH", &path, &headers, body);
        let answer = answer.expect("it answers");
        assert_eq!(answer.status, 200, "{}", answer.text());
        serde_json::from_str::<Value>(&answer.text()).expect("it is JSON")
    };
    let plan = send("?dry_run=true");
    assert!(plan["job"].is_null() && plan["plan"]["copies"].as_array().map(Vec::len) == Some(2));
    let job = send("")["job"].as_str().expect("it has begun").to_owned();
    assert_eq!(send("")["job"], *job, "a request that is sent again begins nothing");
    let (is_done, text) = machine.ask(&["update-db", "d", "--memory", "200mb"]);
    assert!(!is_done && text.contains(&format!("job {job} changes")), "{text}");
    eventually("slots move", || machine.ask(&["jobs"]).1.contains("slots are still to move"));
    let (is_done, text) = machine.ask(&["cancel", &job]);
    assert!(is_done && text.contains("update d: cancelled"), "{text}");
    until_ok(&machine, "d");
    assert_eq!((shards(&machine), machine.copies("d").len()), (3, 3));
    assert_eq!(machine.json(&["databases", "d"])["settings"]["shards"], 3);
    writers.check();
}

#[test]
fn copies_users_and_zones_change_while_a_database_serves() {
    let first = Machine::first("options", "a");
    let second = Machine::beside(&first, "options", "b");
    let (port, _) = first.create("d", "0");
    until_ok(&first, "d");
    let writers = Writers::start(port, 2);
    assert!(first.ask(&["set-zone", "a", "x"]).0 && first.ask(&["set-zone", "b", "y"]).0);
    update(&first, &["--replicas", "1", "--zones", "yes", "--commit", "quorum"]);
    until_ok(&first, "d");
    let on =
        |machine: &str| first.copies("d").iter().filter(|copy| copy["machine"] == machine).count();
    assert_eq!((on("a"), on("b")), (3, 3), "the copies of a shard are in different zones");
    let (is_done, text) = first.ask(&["drain-node", "b"]);
    assert!(!is_done && text.contains("no room for"), "there is no third zone: {text}");

    let file = first.path("word");
    std::fs::write(&file, "secret").expect("it is written");
    let words = ["user", "d", "app", "--rules", "+@read ~c*", "--password-file", &file];
    assert!(first.ask(&words).0);
    let mut user = client(port);
    assert!(!ask(&mut user, "AUTH app secret").is_error());
    assert!(!ask(&mut user, "GET c0:1").is_error());
    assert!(ask(&mut user, "SET c0:1 x").is_error() && ask(&mut user, "GET x").is_error());
    assert!(first.ask(&["user", "d"]).1.contains("+@read ~c*"));
    let words = ["user", "d", "app", "--rules", "+nothing", "--password-file", &file];
    let (is_done, text) = first.ask(&words);
    assert!(!is_done && text.contains("'+nothing': Unknown command or category"), "{text}");
    assert!(first.ask(&["user", "d"]).1.contains("+@read ~c*"), "the user is as it was");
    assert!(first.ask(&["user", "d", "app", "--delete"]).0);
    assert!(ask(&mut client(port), "AUTH app secret").is_error());

    update(&first, &["--replicas", "0", "--zones", "no", "--commit", "memory"]);
    until_ok(&first, "d");
    assert_eq!(first.copies("d").len(), 3);
    writers.check();
    drop(second);
}

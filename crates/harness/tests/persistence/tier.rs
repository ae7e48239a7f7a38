//! A server whose data are larger than its memory: values of every type on flash.

// A failed step is a failed test, in its helpers too.
#![allow(clippy::unwrap_used)]

use harness::client::{Client, encode, ok};
use harness::contents::contents;
use harness::info::{field, number};
use harness::module_types;
use harness::reply::Reply;
use harness::rng::Rng;
use harness::server::{Options, Program, Server};
use harness::small_disk::SmallDisk;
use harness::wait::eventually;

/// Keys of the tests that fill the memory several times over.
const MANY: usize = 40_000;
const VALUE: usize = 1000;

fn start(arguments: &[&str]) -> Server {
    let base = ["--tier-dir", "tier", "--tier-segment-size", "1mb", "--io-threads", "2"];
    let debug = ["--enable-debug-command", "yes"];
    let all: Vec<&str> = base.into_iter().chain(debug).chain(arguments.iter().copied()).collect();
    Server::start(&Program::under_test(), Options::arguments(&all)).unwrap()
}

fn demote(client: &mut Client) -> i64 {
    client.command(&["DEBUG", "TIER", "DEMOTE"]).unwrap().integer().unwrap()
}

fn segments(server: &Server) -> usize {
    let files = std::fs::read_dir(server.directory().join("tier")).unwrap();
    files.filter(|file| file.as_ref().unwrap().path().extension().is_some()).count()
}

/// A value that does not compress, from which its number can be told.
fn value(number: usize) -> Vec<u8> {
    let mut rng = Rng::new(number as u64 + 1);
    let mut bytes = format!("{number}:").into_bytes();
    bytes.extend(std::iter::repeat_with(|| rng.below(256) as u8).take(VALUE));
    bytes
}

fn key(number: usize) -> Vec<u8> {
    format!("key:{number:012}").into_bytes()
}

/// Sends a request for each number in one pipeline; the replies.
fn pipeline(
    client: &mut Client,
    numbers: std::ops::Range<usize>,
    request: impl Fn(usize) -> Vec<u8>,
) -> Vec<Reply> {
    client.send_raw(&numbers.clone().flat_map(request).collect::<Vec<u8>>()).unwrap();
    numbers.map(|_| client.reply().unwrap()).collect()
}

/// Sets keys in pipelines of 100; the replies that are errors.
fn fill(client: &mut Client, numbers: std::ops::Range<usize>) -> Vec<Reply> {
    let mut errors = Vec::new();
    for first in numbers.clone().step_by(100) {
        let set = |number| encode(&[&b"SET"[..], &key(number), &value(number)]);
        let replies = pipeline(client, first..numbers.end.min(first + 100), set);
        errors.extend(replies.into_iter().filter(Reply::is_error));
    }
    errors
}

fn check(client: &mut Client, number: usize) {
    let reply = client.command(&[&b"GET"[..], &key(number)]).unwrap();
    assert_eq!(reply, Reply::Bulk(value(number)), "key {number}");
}

/// A few values of every type, small and large, some of which expire.
fn every_type(client: &mut Client) {
    for size in [1, 40, 700] {
        let names: Vec<String> = (0..size).map(|at| format!("element-{at}")).collect();
        let with = |command: &str, kind: &str, words: Vec<String>| {
            let mut all = vec![command.to_owned(), format!("{kind}-{size}")];
            all.extend(words);
            all
        };
        let numbers = (0..size).map(|at| at.to_string()).collect();
        let pairs: Vec<String> =
            names.iter().flat_map(|name| [name.clone(), "v".repeat(9)]).collect();
        let scored = names.iter().enumerate().flat_map(|(at, name)| [at.to_string(), name.clone()]);
        for words in [
            with("SET", "string", vec!["x".repeat(size * 30)]),
            with("RPUSH", "list", names.clone()),
            with("SADD", "set", names.clone()),
            with("SADD", "intset", numbers),
            with("HSET", "hash", pairs.clone()),
            with("ZADD", "zset", scored.collect()),
            with("XADD", "stream", ["1-1".to_owned()].into_iter().chain(pairs).collect()),
            with("PEXPIRE", "list", vec!["100000000".to_owned()]),
        ] {
            let reply = client.command(&words).unwrap();
            assert!(!reply.is_error(), "{words:?}: {reply:?}");
        }
    }
}

#[test]
fn values_of_every_type_go_and_come_back() {
    let server = start(&["--maxmemory", "200mb"]);
    let mut client = server.client();
    every_type(&mut client);
    module_types::fill(&mut client, "");
    let digest = client.command(&["DEBUG", "DIGEST"]).unwrap();
    // Numbers stay where they are; there are none.
    let values = (21 + module_types::KEYS) as i64;
    assert_eq!(demote(&mut client), values);
    assert_eq!(number(&mut client, "tier_values") as i64, values);
    assert_eq!(client.command(&["DEBUG", "DIGEST"]).unwrap(), digest);
    assert_eq!(number(&mut client, "tier_values") as i64, values, "a digest promotes nothing");
    // What needs no value causes no read.
    let reads = number(&mut client, "tier_reads");
    for request in [
        "TYPE hash-700",
        "OBJECT ENCODING zset-40",
        "TTL list-1",
        "PERSIST list-40",
        "EXISTS set-1",
        "RENAME set-700 moved",
        "RENAME moved set-700",
        "MOVE string-700 1",
        "COPY nothing set-1",
        "TOUCH list-1",
        "SCAN 0",
        "MEMORY USAGE set-700",
        "EXPIRE list-40 100000",
    ] {
        let reply = client.command(&request.split(' ').collect::<Vec<_>>()).unwrap();
        assert!(!reply.is_error(), "{request}: {reply:?}");
    }
    assert_eq!(number(&mut client, "tier_reads"), reads);
    ok(&mut client, "SELECT 1");
    assert_eq!(client.command(&["STRLEN", "string-700"]).unwrap(), Reply::Integer(21_000));
    client.command(&["MOVE", "string-700", "0"]).unwrap();
    ok(&mut client, "SELECT 0");
    let before = contents(&mut client);
    demote(&mut client);
    ok(&mut client, "SAVE");
    assert_eq!(contents(&mut client), before);
    demote(&mut client);
    ok(&mut client, "FLUSHALL SYNC");
    assert_eq!(number(&mut client, "tier_values"), 0);
    assert_eq!(number(&mut client, "tier_value_bytes"), 0);
}

#[test]
fn data_larger_than_memory_survive_a_restart() {
    let mut server = start(&["--maxmemory", "24mb", "--appendonly", "no"]);
    let mut client = server.client();
    assert_eq!(fill(&mut client, 0..MANY), [], "nothing is refused");
    assert_eq!(client.command(&["DBSIZE"]).unwrap(), Reply::Integer(MANY as i64));
    eventually("memory is below the limit", || number(&mut client, "used_memory") <= 24 << 20);
    assert!(number(&mut client, "tier_value_bytes") > 20 << 20);
    let mut rng = Rng::new(7);
    (0..500).for_each(|_| check(&mut client, rng.below(MANY)));
    ok(&mut client, "SAVE");
    // What is left on flash by a process that was killed is removed by the next.
    server.kill().unwrap();
    assert!(segments(&server) > 20);
    server.start_again().unwrap();
    let mut client = server.client();
    eventually("the data are loaded", || {
        client.command(&["DBSIZE"]).unwrap() == Reply::Integer(MANY as i64)
    });
    let peak = number(&mut client, "used_memory_peak");
    assert!(peak < 32 << 20, "loading went beyond the limit: {peak} bytes");
    (0..500).for_each(|_| check(&mut client, rng.below(MANY)));
    assert_eq!(number(&mut client, "tier_read_errors"), 0);
    server.terminate().unwrap();
    assert_eq!(segments(&server), 0, "an orderly end removes the files");
}

#[test]
fn a_log_larger_than_memory_is_repeated() {
    const LISTS: usize = 20_000;
    let log = ["--appendonly", "yes", "--appendfsync", "always", "--save", ""];
    let mut server = start(&[&["--maxmemory", "16mb"][..], &log].concat());
    let mut client = server.client();
    // The second element meets lists that are on flash, then and when the log is repeated.
    for number in (0..LISTS).chain(0..LISTS) {
        client.send(&[&b"RPUSH"[..], &key(number), &value(number)]).unwrap();
        if number % 100 == 99 {
            (0..100).for_each(|_| assert!(!client.reply().unwrap().is_error()));
        }
    }
    server.kill().unwrap();
    server.start_again().unwrap();
    let mut client = server.client();
    eventually("the log is repeated", || {
        client.command(&["DBSIZE"]).unwrap() == Reply::Integer(LISTS as i64)
    });
    assert!(number(&mut client, "tier_values") > 0);
    let mut rng = Rng::new(3);
    for _ in 0..300 {
        let number = rng.below(LISTS);
        let reply = client.command(&[&b"LRANGE"[..], &key(number), b"0", b"-1"]).unwrap();
        let expected = Reply::Bulk(value(number));
        assert_eq!(reply, Reply::Array(vec![expected.clone(), expected]), "key {number}");
    }
}

/// What is cold at the moment of BGSAVE is in the file as it was then, whatever becomes of it.
#[test]
fn a_snapshot_sweeps_the_segments_while_values_come_and_go() {
    const KEYS: usize = 4000;
    let server = start(&["--maxmemory", "200mb", "--save", "", "--appendonly", "no"]);
    let mut client = server.client();
    assert_eq!(fill(&mut client, 0..KEYS), []);
    every_type(&mut client);
    for number in 0..50 {
        let words = [&b"PEXPIRE"[..], &key(number), b"100000000"];
        assert_eq!(client.command(&words).unwrap(), Reply::Integer(1));
    }
    ok(&mut client, "SELECT 1");
    assert_eq!(fill(&mut client, KEYS..KEYS + 500), []);
    ok(&mut client, "SELECT 2");
    assert_eq!(fill(&mut client, KEYS + 500..KEYS + 800), []);
    ok(&mut client, "SELECT 0");
    let before = contents(&mut client);
    assert_eq!(demote(&mut client), KEYS as i64 + 821);
    // Keys whose names have changed since their values were written.
    for number in 0..50 {
        ok(&mut client, &format!("RENAME key:{number:012} another"));
        ok(&mut client, &format!("RENAME another key:{number:012}"));
    }
    let reads = number(&mut client, "tier_reads");
    let scanned = number(&mut client, "tier_scanned_bytes");
    let buffered = number(&mut client, "tier_buffer_bytes") as f64;
    ok(&mut client, "SAVE");
    assert_eq!(number(&mut client, "tier_reads"), reads, "no value is read by itself");
    // Each segment is read once, but for what is not on the disk yet.
    let scanned = (number(&mut client, "tier_scanned_bytes") - scanned) as f64;
    let values = number(&mut client, "tier_value_bytes") as f64;
    let (read, all) = (scanned / values, (scanned + buffered) / values);
    assert!(read < 1.1 && all > 0.5, "{read} of all bytes are read, {all} with what is in buffers");
    ok(&mut client, "CONFIG SET rdb-key-save-delay 300");
    ok(&mut client, "BGSAVE SCHEDULE");
    let is_saving = |client: &mut Client| number(client, "rdb_bgsave_in_progress") == 1;
    let mut rng = Rng::new(11);
    let mut changes = 0;
    while is_saving(&mut client) {
        let (one, other) = (key(rng.below(KEYS)), key(rng.below(KEYS)));
        let request: Vec<&[u8]> = match rng.below(8) {
            0 => vec![b"SET", &one, b"new"],
            1 => vec![b"DEL", &one],
            2 => vec![b"GET", &one],
            3 => vec![b"RENAME", &one, &other],
            4 => vec![b"EXPIRE", &one, b"1000"],
            5 => vec![b"APPEND", &one, b"more"],
            6 => vec![b"MOVE", &one, b"3"],
            _ => vec![b"COPY", &one, &other, b"REPLACE"],
        };
        // RENAME of a key that is gone is refused.
        client.command(&request).unwrap();
        changes += 1;
        match changes {
            100 => drop(ok(&mut client, "SWAPDB 1 4")),
            200 => {
                ok(&mut client, "SELECT 2");
                ok(&mut client, "FLUSHDB");
                ok(&mut client, "SELECT 0");
            }
            _ if changes % 64 == 0 => drop(demote(&mut client)),
            _ => {}
        }
    }
    assert!(changes > 200, "{changes} changes were no race");
    let info = client.command(&["INFO", "persistence"]).unwrap();
    let info = String::from_utf8_lossy(info.text().unwrap()).into_owned();
    assert!(info.contains("rdb_last_bgsave_status:ok"), "{info}");
    let file = std::fs::read(server.directory().join("dump.rdb")).unwrap();
    let other = Server::start(
        &Program::under_test(),
        Options::arguments(&["--save", "", "--dbfilename", "taken.rdb"]),
    );
    let mut other = other.unwrap();
    other.terminate().unwrap();
    std::fs::write(other.directory().join("taken.rdb"), file).unwrap();
    other.start_again().unwrap();
    let after = contents(&mut other.client());
    assert_eq!(after.len(), before.len());
    for (name, value) in &before {
        assert!(after.get(name) == Some(value), "another value of {name:?}");
    }
    assert_eq!(number(&mut client, "tier_read_errors"), 0);
}

/// Cleaning goes on while a snapshot runs: a tier that is too small for all that is written
/// meanwhile takes it all the same.
#[test]
fn segments_are_cleaned_while_a_snapshot_runs() {
    let limits = ["--maxmemory", "12mb", "--tier-max-size", "64mb", "--save", ""];
    let server = start(&limits);
    let mut client = server.client();
    assert_eq!(fill(&mut client, 0..20_000), []);
    ok(&mut client, "CONFIG SET rdb-key-save-delay 5000");
    ok(&mut client, "BGSAVE SCHEDULE");
    for _ in 0..4 {
        assert_eq!(fill(&mut client, 0..20_000), [], "nothing is refused");
    }
    assert_eq!(number(&mut client, "rdb_bgsave_in_progress"), 1);
    ok(&mut client, "CONFIG SET rdb-key-save-delay 0");
    eventually("the snapshot ends", || number(&mut client, "rdb_bgsave_in_progress") == 0);
    (0..200).for_each(|number| check(&mut client, number * 100));
}

/// A value that changes before a snapshot has read it keeps its segment for a moment only, not
/// until its end.
#[test]
fn a_snapshot_soon_gives_back_the_segments_of_what_has_changed() {
    const KEYS: usize = 10_000;
    let server = start(&["--maxmemory", "64mb", "--save", ""]);
    let mut client = server.client();
    assert_eq!(fill(&mut client, 0..KEYS), []);
    assert_eq!(demote(&mut client), KEYS as i64);
    // These do not change, so that the snapshot takes its time.
    assert_eq!(fill(&mut client, KEYS..KEYS + 2000), []);
    let in_use = |client: &mut Client| {
        number(client, "tier_segments") - number(client, "tier_segments_free")
    };
    assert!(in_use(&mut client) >= 10);
    ok(&mut client, "CONFIG SET rdb-key-save-delay 10000");
    ok(&mut client, "BGSAVE SCHEDULE");
    assert_eq!(fill(&mut client, 0..KEYS), []);
    eventually("the segments are free", || in_use(&mut client) <= 3);
    assert_eq!(number(&mut client, "tier_segments_pinned"), 0);
    assert_eq!(number(&mut client, "rdb_bgsave_in_progress"), 1);
    ok(&mut client, "CONFIG SET rdb-key-save-delay 0");
    eventually("the snapshot ends", || number(&mut client, "rdb_bgsave_in_progress") == 0);
    assert_eq!(field(&mut client, "rdb_last_bgsave_status"), "ok");
    (0..200).for_each(|number| check(&mut client, number * 50));
}

#[test]
fn a_log_is_whole_after_a_kill_at_any_moment() {
    const KEYS: usize = 12_000;
    const BATCH: usize = 50;
    let log = ["--appendonly", "yes", "--appendfsync", "always", "--save", ""];
    let mut server =
        start(&[&["--maxmemory", "8mb", "--tier-max-size", "64mb"][..], &log].concat());
    let mut rng = Rng::new(11);
    // How often each key was set as far as replies tell, and as requests do.
    let (mut confirmed, mut sent) = (vec![0; KEYS], vec![0; KEYS]);
    for round in 0..4 {
        let batches = 20 + rng.below(400);
        let mut client = server.client();
        if round % 2 == 1 {
            client.command(&["BGREWRITEAOF"]).unwrap();
        }
        let mut waiting = Vec::new();
        for batch in 0..batches {
            let mut requests = Vec::new();
            for _ in 0..BATCH {
                let number = rng.below(KEYS);
                sent[number] += 1;
                waiting.push((number, sent[number]));
                let contents = value(number + sent[number] * KEYS);
                requests.extend(encode(&[&b"SET"[..], &key(number), &contents]));
            }
            client.send_raw(&requests).unwrap();
            // The last one is under way when the server is killed.
            if batch + 1 < batches {
                for (number, version) in waiting.drain(..) {
                    let reply = client.reply().unwrap();
                    assert!(!reply.is_error(), "{}", reply.shown());
                    confirmed[number] = version;
                }
            }
        }
        server.kill().unwrap();
        server.start_again().unwrap();
        let mut client = server.client();
        eventually("the log is repeated", || number(&mut client, "loading") == 0);
        for number in 0..KEYS {
            let reply = client.command(&[&b"GET"[..], &key(number)]).unwrap();
            let possible = confirmed[number]..=sent[number];
            let found = possible.clone().find(|&version| match version {
                0 => reply.is_nil(),
                _ => reply == Reply::Bulk(value(number + version * KEYS)),
            });
            let found = found.unwrap_or_else(|| panic!("key {number} is none of {possible:?}"));
            (confirmed[number], sent[number]) = (found, found);
        }
        assert_eq!(number(&mut client, "tier_read_errors"), 0);
    }
    assert!(number(&mut server.client(), "tier_reads") > 0, "most values were on flash");
}

#[test]
fn a_blocked_client_is_served_with_a_cold_destination() {
    let server = start(&["--maxmemory", "200mb"]);
    let (mut waiting, mut client) = (server.client(), server.client());
    client.command(&["RPUSH", "to", "a", &"b".repeat(500)]).unwrap();
    waiting.send(&["BLMOVE", "from", "to", "LEFT", "LEFT", "0"]).unwrap();
    eventually("the client waits", || number(&mut client, "blocked_clients") == 1);
    assert_eq!(demote(&mut client), 1);
    client.command(&["RPUSH", "from", "c"]).unwrap();
    assert_eq!(waiting.reply().unwrap(), Reply::Bulk(b"c".to_vec()));
    assert_eq!(client.command(&["LLEN", "to"]).unwrap(), Reply::Integer(3));
}

#[test]
fn a_pipeline_of_cold_keys_is_answered_in_order() {
    let server = start(&["--maxmemory", "200mb"]);
    let mut client = server.client();
    assert_eq!(fill(&mut client, 0..100), []);
    ok(&mut client, "SELECT 1");
    client.command(&["SET", "other", &"x".repeat(200)]).unwrap();
    ok(&mut client, "SELECT 0");
    assert_eq!(demote(&mut client), 101);
    let get = |number| encode(&[&b"GET"[..], &key(number)]);
    let mut requests: Vec<u8> = (0..40).flat_map(get).collect();
    for words in [&["SELECT", "1"][..], &["STRLEN", "other"], &["SELECT", "0"], &["MULTI"]] {
        requests.extend(encode(words));
    }
    requests.extend((40..60).flat_map(get));
    requests.extend(encode(&["EXEC"]));
    client.send_raw(&requests).unwrap();
    let mut replies = (0..65).map(|_| client.reply().unwrap());
    (0..40).for_each(|number| assert_eq!(replies.next(), Some(Reply::Bulk(value(number)))));
    assert_eq!(replies.nth(1), Some(Reply::Integer(200)));
    let expected = (40..60).map(|number| Reply::Bulk(value(number))).collect();
    assert_eq!(replies.last(), Some(Reply::Array(expected)));
    assert_eq!(number(&mut client, "tier_reads"), 61, "each value is read once");
}

#[test]
fn overwritten_values_make_room_for_others() {
    let server = start(&["--maxmemory", "16mb", "--tier-max-size", "48mb"]);
    let mut client = server.client();
    const KEYS: usize = 30_000;
    assert_eq!(fill(&mut client, 0..KEYS), []);
    // Twice as much is written as the tier can hold; of each segment some values stay.
    let mut rng = Rng::new(9);
    for _ in 0..100 {
        let first = rng.below(KEYS - 1000);
        assert_eq!(fill(&mut client, first..first + 1000), []);
    }
    assert!(number(&mut client, "tier_rewritten_values") > 0, "segments are cleaned");
    (0..500).for_each(|_| check(&mut client, rng.below(KEYS)));
    assert!(number(&mut client, "tier_segments") <= 48);
    assert_eq!(number(&mut client, "tier_read_errors"), 0);
}

#[test]
fn a_full_tier_leaves_it_to_the_policy() {
    let server = start(&["--maxmemory", "16mb", "--tier-max-size", "8mb"]);
    let mut client = server.client();
    let errors = fill(&mut client, 0..MANY);
    assert!(!errors.is_empty(), "memory and tier are full");
    let is_oom = |reply: &Reply| reply.shown().contains("OOM command not allowed");
    assert!(errors.iter().all(is_oom), "{:?}", errors[0]);
    check(&mut client, 1);
    // Deleting makes room again, without a read.
    let reads = number(&mut client, "tier_reads");
    (0..5000).for_each(|number| drop(client.command(&[&b"UNLINK"[..], &key(number)]).unwrap()));
    assert_eq!(number(&mut client, "tier_reads"), reads);
    eventually("there is room again", || fill(&mut client, 0..10).is_empty());
    // With another policy cold keys go.
    ok(&mut client, "CONFIG SET maxmemory-policy allkeys-lru");
    assert_eq!(fill(&mut client, 0..MANY), []);
    assert!(number(&mut client, "evicted_keys") > 0);
}

/// Keys stay in RAM. Where they alone fill it, the value that a command brings is no room for the
/// next.
#[test]
fn keys_that_fill_the_memory_leave_it_to_the_policy() {
    const LIMIT: u64 = 8 << 20;
    const SMALL: [u8; 100] = [b'v'; 100];
    let server = start(&["--maxmemory", "8mb"]);
    let mut client = server.client();
    let set = |number| encode(&[&b"SET"[..], &key(number), &SMALL]);
    let mut errors = Vec::new();
    let mut keys = 0;
    while errors.len() < 1000 {
        assert!(keys < 1_000_000, "no write is refused");
        let replies = pipeline(&mut client, keys..keys + 100, set);
        errors.extend(replies.into_iter().filter(Reply::is_error));
        keys += 100;
    }
    assert!(errors.iter().all(|error| error.shown().contains("OOM command not allowed")));
    let used = number(&mut client, "used_memory");
    assert!(used < LIMIT + LIMIT / 20, "{used} bytes in use");
    let found = (0..200).filter(|&number| {
        let reply = client.command(&[&b"GET"[..], &key(number)]).unwrap();
        reply == Reply::Bulk(SMALL.to_vec())
    });
    assert_eq!(found.count(), 200);
    (0..5000).for_each(|number| drop(client.command(&[&b"UNLINK"[..], &key(number)]).unwrap()));
    eventually("there is room again", || {
        !pipeline(&mut client, 0..100, set).iter().any(Reply::is_error)
    });
}

/// What was read leaves again for its copy, which takes no room on flash.
#[test]
fn reads_from_a_full_tier_keep_the_limit() {
    const LIMIT: u64 = 16 << 20;
    let server = start(&["--maxmemory", "16mb", "--tier-max-size", "24mb"]);
    let mut client = server.client();
    let push = |number| encode(&[&b"RPUSH"[..], &key(number), &value(number)]);
    let mut lists = 0;
    loop {
        let replies = pipeline(&mut client, lists..lists + 100, push);
        if replies.iter().any(Reply::is_error) {
            break;
        }
        lists += 100;
    }
    assert!(number(&mut client, "tier_values") > 10_000, "most are on flash");
    // LRANGE needs a list in its place.
    let read = |list| encode(&[&b"LRANGE"[..], &key(list), b"0", b"-1"]);
    for round in 0..2 {
        for first in (0..lists).step_by(100) {
            client.send_raw(&(first..first + 100).flat_map(read).collect::<Vec<u8>>()).unwrap();
            for list in first..first + 100 {
                let expected = Reply::Array(vec![Reply::Bulk(value(list))]);
                assert_eq!(client.reply().unwrap(), expected, "{list}");
            }
        }
        let used = number(&mut client, "used_memory");
        assert!(used < LIMIT + LIMIT / 4, "{used} bytes after round {round}");
    }
    assert!(number(&mut client, "tier_demotions_without_write") > 10_000);
}

#[test]
fn a_full_disk_leaves_it_to_the_policy_until_it_has_room() {
    let Some(disk) = SmallDisk::new("tier-12m", "12m") else { return };
    let folder = disk.path().join("tier");
    let server = start(&["--maxmemory", "16mb", "--tier-dir", folder.to_str().unwrap()]);
    let mut client = server.client();
    let errors = fill(&mut client, 0..MANY);
    assert!(!errors.is_empty(), "memory and disk are full");
    assert!(errors.iter().all(|error| error.shown().contains("OOM command not allowed")));
    server.logs("The flash tier is full");
    (0..100).for_each(|number| check(&mut client, number));
    assert!(disk.resize("80m"));
    eventually("there is room again", || fill(&mut client, MANY..MANY + 10).is_empty());
    assert_eq!(fill(&mut client, MANY..MANY + 10_000), []);
    (0..100).chain(MANY..MANY + 100).for_each(|number| check(&mut client, number));
    assert_eq!(number(&mut client, "tier_read_errors"), 0);
    server.logs("Flash tier in ");
    server.logs("takes in values again");
}

/// What a small disk had filled goes, in part and as a whole.
#[test]
fn a_small_disk_takes_in_values_again_when_others_go() {
    let Some(disk) = SmallDisk::new("tier-40m", "40m") else { return };
    let folder = disk.path().join("tier");
    // The size of segments is the default.
    let arguments = ["--tier-dir", folder.to_str().unwrap(), "--maxmemory", "16mb"];
    let server = Server::start(&Program::under_test(), Options::arguments(&arguments)).unwrap();
    let mut client = server.client();
    for _ in 0..2 {
        assert!(!fill(&mut client, 0..2 * MANY).is_empty(), "memory and disk are full");
        let unlink = |number: usize| encode(&[&b"UNLINK"[..], &key(number)]);
        pipeline(&mut client, 0..MANY, unlink);
        eventually("there is room for a half", || fill(&mut client, 0..MANY / 4).is_empty());
        ok(&mut client, "FLUSHALL");
        eventually("nothing is left", || number(&mut client, "tier_values") == 0);
        eventually("it is not full", || number(&mut client, "tier_full") == 0);
    }
}

#[test]
fn what_is_on_flash_is_reported() {
    let server = start(&["--maxmemory", "200mb"]);
    let mut client = server.client();
    assert_eq!(fill(&mut client, 0..300), []);
    ok(&mut client, "CONFIG RESETSTAT");
    assert_eq!(demote(&mut client), 300);
    let figure = |client: &mut Client, name: &str| {
        let Reply::Array(words) = client.command(&["MEMORY", "STATS"]).unwrap() else { panic!() };
        let at = words.iter().position(|word| *word == Reply::Bulk(name.into())).unwrap();
        words[at + 1].clone()
    };
    assert_eq!(figure(&mut client, "tier.values"), Reply::Integer(300));
    assert!(figure(&mut client, "tier.value-bytes").integer().unwrap() > 300 * VALUE as i64);
    assert_eq!(number(&mut client, "tier_ram_values"), 0);
    // Of three values that a request looks up one is in memory.
    check(&mut client, 0);
    for first in (1..298).step_by(2) {
        let [a, b] = [key(first), key(first + 1)];
        let reply = client.command(&[&b"MGET"[..], &key(0), &a, &b]).unwrap();
        assert!(matches!(reply, Reply::Array(values) if values.len() == 3));
    }
    // Writing commands, and those that look at no value, count for neither side.
    client.command(&[&b"APPEND"[..], &key(299), b"x"]).unwrap();
    let misses = number(&mut client, "tier_misses");
    assert_eq!((number(&mut client, "keyspace_hits"), misses), (448, 299));
    assert_eq!(field(&mut client, "tier_hit_percent"), format!("{:.2}", 149.0 * 100.0 / 448.0));
    assert_eq!(number(&mut client, "tier_ram_values"), 300);
    let percent = figure(&mut client, "tier.hit-percentage");
    assert!(percent.shown().contains("33.25"), "{percent:?}");
}

#[test]
fn a_value_that_comes_back_unchanged_leaves_again_without_a_write() {
    let server = start(&["--maxmemory", "200mb"]);
    let mut client = server.client();
    every_type(&mut client);
    for name in ["list-1", "list-40", "list-700"] {
        client.command(&["PERSIST", name]).unwrap();
    }
    let digest = client.command(&["DEBUG", "DIGEST"]).unwrap();
    assert_eq!((demote(&mut client), number(&mut client, "tier_copies")), (21, 0));
    let written = number(&mut client, "tier_appended_values");
    // Each command reads one, so that it is put back.
    for size in [1, 40, 700] {
        for request in [
            format!("GET string-{size}"),
            format!("LLEN list-{size}"),
            format!("SCARD set-{size}"),
            format!("SCARD intset-{size}"),
            format!("HLEN hash-{size}"),
            format!("ZCARD zset-{size}"),
            format!("XLEN stream-{size}"),
        ] {
            let reply = client.command(&request.split(' ').collect::<Vec<_>>()).unwrap();
            assert!(!reply.is_error(), "{request}: {reply:?}");
        }
    }
    assert_eq!((number(&mut client, "tier_copies"), number(&mut client, "tier_values")), (21, 0));
    // What is no part of the value does not cost the copy.
    for request in
        ["EXPIRE list-1 999", "EXPIRE hash-40 999", "RENAME zset-40 renamed", "TOUCH set-1"]
    {
        client.command(&request.split(' ').collect::<Vec<_>>()).unwrap();
    }
    client.command(&["RENAME", "renamed", "zset-40"]).unwrap();
    assert_eq!(number(&mut client, "tier_copies"), 21);
    assert_eq!(demote(&mut client), 21);
    assert_eq!(number(&mut client, "tier_appended_values"), written);
    assert_eq!(number(&mut client, "tier_demotions_without_write"), 21);
    client.command(&["PERSIST", "hash-40"]).unwrap();
    client.command(&["PERSIST", "list-1"]).unwrap();
    assert_eq!(client.command(&["DEBUG", "DIGEST"]).unwrap(), digest);
    ok(&mut client, "FLUSHALL SYNC");
    assert_eq!(number(&mut client, "tier_value_bytes"), 0);
}

/// Reads every value, so that it is in memory with a copy on flash.
fn bring_back(client: &mut Client) {
    demote(client);
    contents(client);
}

#[test]
fn a_changed_value_is_never_served_from_its_old_record() {
    let server = start(&["--maxmemory", "200mb"]);
    let mut client = server.client();
    for request in [
        "APPEND string-1 more",
        "SETRANGE string-40 3 other",
        "SETBIT string-700 9 1",
        "SET string-40 an-entirely-other-value-that-is-not-short",
        "GETDEL string-40",
        "DEL string-40",
        "LPUSH list-40 first",
        "LSET list-700 9 other",
        "LPOP list-1",
        "SADD set-40 more",
        "SREM set-700 element-9",
        "SADD intset-40 77777",
        "HSET hash-40 element-1 other",
        "HDEL hash-700 element-9",
        "HINCRBY hash-1 new 5",
        "ZADD zset-40 99 element-1",
        "ZREM zset-700 element-9",
        "XADD stream-40 9-9 field value",
        "XTRIM stream-40 MAXLEN 0",
        "RENAME list-40 list-700",
        "RENAME string-1 elsewhere",
        "COPY hash-40 hash-700 REPLACE",
        "COPY set-40 set-41",
        "SORT list-40 ALPHA STORE list-700",
        "ZUNIONSTORE zset-40 2 zset-1 zset-700",
        "SUNIONSTORE set-40 set-1 intset-40",
        "PEXPIRE string-40 1",
        "FLUSHDB",
        "SWAPDB 0 1",
        "MOVE hash-40 1",
        "EVAL redis.call('APPEND',KEYS[1],'x')return(redis.call('GET',KEYS[1])) 1 string-40",
    ] {
        ok(&mut client, "FLUSHALL SYNC");
        every_type(&mut client);
        bring_back(&mut client);
        assert!(number(&mut client, "tier_copies") >= 21, "{request}");
        let reply = client.command(&request.split(' ').collect::<Vec<_>>()).unwrap();
        assert!(!reply.is_error(), "{request}: {reply:?}");
        eventually("it has expired", || {
            request != "PEXPIRE string-40 1"
                || client.command(&["EXISTS", "string-40"]).unwrap() == Reply::Integer(0)
        });
        let before = client.command(&["DEBUG", "DIGEST"]).unwrap();
        demote(&mut client);
        assert_eq!(client.command(&["DEBUG", "DIGEST"]).unwrap(), before, "{request}");
        // And once more, from copies.
        contents(&mut client);
        demote(&mut client);
        assert_eq!(client.command(&["DEBUG", "DIGEST"]).unwrap(), before, "{request}");
    }
    ok(&mut client, "FLUSHALL SYNC");
    assert_eq!(number(&mut client, "tier_value_bytes"), 0);
    assert_eq!(number(&mut client, "tier_copies"), 0);
}

#[test]
fn a_restored_value_takes_the_place_of_its_copy() {
    let server = start(&["--maxmemory", "200mb"]);
    let mut client = server.client();
    for (key, number) in [(key(1), 1), (key(2), 2)] {
        client.command(&[&b"SET"[..], &key, &value(number)]).unwrap();
    }
    bring_back(&mut client);
    let Reply::Bulk(dump) = client.command(&[&b"DUMP"[..], &key(2)]).unwrap() else { panic!() };
    let restore = [&b"RESTORE"[..], &key(1), b"0", &dump, b"REPLACE"];
    assert_eq!(client.command(&restore).unwrap(), Reply::Simple("OK".into()));
    demote(&mut client);
    let reply = client.command(&[&b"GET"[..], &key(1)]).unwrap();
    assert_eq!(reply, Reply::Bulk(value(2)));
}

#[test]
fn a_damaged_copy_does_no_harm_until_the_value_has_left() {
    let server = start(&["--maxmemory", "200mb"]);
    let mut client = server.client();
    assert_eq!(fill(&mut client, 0..3000), []);
    demote(&mut client);
    (0..3000).for_each(|number| check(&mut client, number));
    assert_eq!(number(&mut client, "tier_copies"), 3000);
    eventually("pieces are on the disk", || number(&mut client, "tier_written_bytes") > 2 << 20);
    for file in std::fs::read_dir(server.directory().join("tier")).unwrap() {
        let path = file.unwrap().path();
        if path.extension().is_some() {
            let length = path.metadata().unwrap().len() as usize;
            std::fs::write(&path, vec![0x5a; length]).unwrap();
            std::fs::File::open(&path).unwrap().sync_all().unwrap();
        }
    }
    (0..3000).for_each(|number| check(&mut client, number));
    assert_eq!(number(&mut client, "tier_read_errors"), 0);
    assert_eq!(demote(&mut client), 3000);
    let mut damaged = Vec::new();
    for number in 0..3000 {
        let reply = client.command(&[&b"GET"[..], &key(number)]).unwrap();
        if reply.is_error() {
            assert!(reply.shown().contains("could not be read"), "{reply:?}");
            damaged.push(number);
        } else {
            assert_eq!(reply, Reply::Bulk(value(number)));
        }
    }
    assert!(damaged.len() > 1000, "{} were damaged", damaged.len());
    for &number in &damaged {
        client.command(&[&b"SET"[..], &key(number), &value(number)]).unwrap();
        check(&mut client, number);
    }
}

#[test]
fn a_value_that_was_read_once_is_shown_and_not_put_back() {
    let server = start(&["--maxmemory", "24mb"]);
    let mut client = server.client();
    assert_eq!(fill(&mut client, 0..MANY), []);
    let figures = |client: &mut Client| {
        ["tier_reads_without_promotion", "tier_promotions", "tier_reads"]
            .map(|name| number(client, name))
    };
    // The first read after a write puts a value back: one pass over the hot part is enough.
    let before = figures(&mut client);
    (0..2000).for_each(|number| check(&mut client, number));
    let warm = figures(&mut client);
    assert!(warm[1] - before[1] > 1000, "{before:?} {warm:?}");
    // Values that have left since, unchanged, are shown the first time.
    (2000..MANY).for_each(|number| check(&mut client, number));
    let scanned = figures(&mut client);
    (0..2000).for_each(|number| check(&mut client, number));
    let shown = figures(&mut client);
    assert!(shown[0] - scanned[0] > 1000, "{scanned:?} {shown:?}");
    // Each is read once.
    assert_eq!(shown[2] - scanned[2], shown[0] + shown[1] - scanned[0] - scanned[1]);
    // All forms of such a read, also of a part, and in a pipeline.
    let requests: Vec<u8> = (0..2000)
        .flat_map(|number| {
            let name = key(number);
            let length = encode(&[&b"STRLEN"[..], &name]);
            let part = encode(&[&b"GETRANGE"[..], &name, b"0", b"4"]);
            let whole = encode(&[&b"GET"[..], &name]);
            [length, part, whole].concat()
        })
        .collect();
    client.send_raw(&requests).unwrap();
    for number in 0..2000 {
        let whole = value(number);
        assert_eq!(client.reply().unwrap(), Reply::Integer(whole.len() as i64));
        assert_eq!(client.reply().unwrap(), Reply::Bulk(whole[..5].to_vec()));
        assert_eq!(client.reply().unwrap(), Reply::Bulk(whole));
    }
    assert!(number(&mut client, "used_memory") <= 24 << 20);
    // A list is of the wrong type, and that needs no read.
    client.command(&["RPUSH", "list", "a", "b"]).unwrap();
    client.command(&["DEBUG", "TIER", "DEMOTE", "list"]).unwrap();
    let reads = number(&mut client, "tier_reads");
    assert!(client.command(&["GET", "list"]).unwrap().shown().contains("WRONGTYPE"));
    assert_eq!(number(&mut client, "tier_reads"), reads);
}

#[test]
fn a_score_keeps_its_sign_on_flash() {
    let server = start(&["--maxmemory", "200mb"]);
    let mut client = server.client();
    for number in 0..200 {
        client.command(&["ZADD", "z", "-0", &format!("m{number:03}")]).unwrap();
    }
    // The first ones were in the small encoding, which has no -0.
    client.command(&["ZREMRANGEBYRANK", "z", "0", "-6"]).unwrap();
    assert_eq!(client.command(&["ZSCORE", "z", "m199"]).unwrap().shown(), "-0");
    assert_eq!(demote(&mut client), 1);
    assert_eq!(client.command(&["ZSCORE", "z", "m199"]).unwrap().shown(), "-0");
}

#[test]
fn keys_on_flash_are_described_without_a_read() {
    for policy in ["allkeys-lru", "allkeys-lfu"] {
        let server = start(&["--maxmemory", "200mb", "--maxmemory-policy", policy]);
        let mut client = server.client();
        every_type(&mut client);
        assert_eq!(demote(&mut client), 21);
        let Reply::Array(keys) = client.command(&["KEYS", "*"]).unwrap() else { panic!() };
        let access = if policy == "allkeys-lru" { "IDLETIME" } else { "FREQ" };
        for key in &keys {
            let Reply::Bulk(key) = key else { panic!("{key:?}") };
            for words in [["OBJECT", "ENCODING"], ["OBJECT", "REFCOUNT"], ["OBJECT", access]] {
                let words = words.map(str::as_bytes);
                let reply = client.command(&[words[0], words[1], key]).unwrap();
                assert!(!reply.is_error() && reply != Reply::Nil, "{reply:?}");
            }
            let usage = client.command(&[&b"MEMORY"[..], b"USAGE", key]).unwrap();
            let usage = usage.integer().unwrap();
            assert!((20..80).contains(&usage), "{usage} bytes of memory");
        }
        assert_eq!(number(&mut client, "tier_reads"), 0);
        assert_eq!(number(&mut client, "tier_values"), 21);
    }
}

#[test]
fn a_folder_serves_one_server() {
    let first = start(&["--maxmemory", "50mb"]);
    let folder = first.directory().join("tier");
    let arguments = ["--tier-dir", folder.to_str().unwrap()];
    let second = Server::start(&Program::under_test(), Options::arguments(&arguments));
    assert!(second.is_err(), "the folder is in use");
}

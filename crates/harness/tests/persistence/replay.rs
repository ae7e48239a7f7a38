//! What the append-only file holds is what happened: random requests, then the file is loaded into
//! an empty data set, which must be the same as before. Some sequences are rewritten half-way. In
//! the end Valkey loads the same files, and Dunlin those that Valkey wrote.
//!
//! `DUNLIN_SEED=17` runs the sequence of that seed, `DUNLIN_REPLAY_SECONDS=600` runs for so long.

use harness::client::{Client, ask, ok};
use harness::contents::{Contents, contents};
use harness::differential::grammar::Generator;
use harness::environment::{has_preallocated_logs, variable};
use harness::replicas::assert_same;
use harness::reply::Reply;
use harness::server::{Options, Program, Server};
use harness::wait::{eventually, until_not_rewriting};
use std::collections::BTreeSet;
use std::fmt::Write as _;
use std::process::Command;
use std::time::{Duration, Instant};

/// Requests per sequence.
const LENGTH: usize = 300;
const SHORT: Duration = Duration::from_secs(8);

/// Keys whose time comes between two looks would differ for no fault of anybody.
fn keep_from_expiring(client: &mut Client) {
    for db in 0..16 {
        ask(client, &["SELECT", &db.to_string()]);
        let keys = ask(client, &["KEYS", "*"]);
        for key in keys.elements().unwrap_or_default() {
            let key = key.text().unwrap_or_default();
            let is_volatile = client
                .command(&[b"PTTL", key])
                .is_ok_and(|ttl| ttl.integer().is_some_and(|ms| (0..60_000).contains(&ms)));
            if is_volatile {
                client.command(&[b"PERSIST", key]).expect("a reply");
            }
        }
    }
    ask(client, &["SELECT", "0"]);
}

#[test]
fn the_log_repeats_what_happened() {
    let options =
        Options::arguments(&["--appendonly", "yes", "--auto-aof-rewrite-percentage", "0"]);
    let server = Server::start(&Program::under_test(), options).expect("it starts");
    let until =
        Instant::now() + variable("DUNLIN_REPLAY_SECONDS").map_or(SHORT, Duration::from_secs);
    let only = variable("DUNLIN_SEED");
    let mut seed = only.unwrap_or(1);
    let mut sequences = 0;
    while Instant::now() < until {
        let mut generator = Generator::new(seed, |_| true);
        let mut clients = [0, 1].map(|_| server.client());
        // A client with an answer has been accepted, and is in CLIENT LIST until it is through.
        clients.iter_mut().for_each(|client| _ = ask(client, &["PING"]));
        for (number, op) in generator.sequence(LENGTH).iter().enumerate() {
            if seed.is_multiple_of(4) && number == LENGTH / 2 {
                clients[1].send(&["BGREWRITEAOF"]).expect("it is sent");
            }
            clients[op.client.min(1)].send(&op.words).expect("it is sent");
            // A reply may never come (a blocked client); the order across clients is not fixed.
            while clients[op.client.min(1)].has_data().is_ok_and(|has| has)
                && clients[op.client.min(1)].reply().is_ok()
            {}
        }
        drop(clients);
        let mut client = server.client();
        wait_to_be_alone(&mut client);
        until_not_rewriting(&mut client);
        keep_from_expiring(&mut client);
        // Not DEBUG DIGEST: it tells −0 from 0, which a rewrite may change with the encoding.
        let held = contents(&mut client);
        assert_eq!(ask(&mut client, &["DEBUG", "LOADAOF"]), Reply::Simple(b"OK".to_vec()));
        let loaded = contents(&mut client);
        assert!(held == loaded, "DUNLIN_SEED={seed}: {}", difference(&held, &loaded, &server));
        let log = server.log();
        assert!(!log.contains(" failed: "), "DUNLIN_SEED={seed}: a command failed again:\n{log}");
        ask(&mut client, &["FLUSHALL"]);
        sequences += 1;
        if only.is_some() {
            break;
        }
        seed += 1;
    }
    println!("{sequences} sequences of {LENGTH} requests were repeated");
}

/// What other clients sent before they closed may still be in their sockets, or being executed.
fn wait_to_be_alone(client: &mut Client) {
    eventually("no other client is there", || {
        let list = ask(client, &["CLIENT", "LIST"]);
        list.text().unwrap_or_default().iter().filter(|byte| **byte == b'\n').count() == 1
    });
}

/// Which keys differ, and the end of the log that should have brought them.
fn difference(held: &Contents, loaded: &Contents, server: &Server) -> String {
    let mut text = String::new();
    for (db, key) in held.keys().chain(loaded.keys()).collect::<BTreeSet<_>>() {
        let pair = (*db, key.clone());
        let (before, after) = (held.get(&pair), loaded.get(&pair));
        if before != after {
            let key = key.escape_ascii();
            _ = writeln!(text, "\n{db} {key}\n  had {before:?}\n  got {after:?}");
        }
    }
    let folder = server.directory().join("appendonlydir");
    let files = std::fs::read_dir(folder).into_iter().flatten().flatten();
    for path in
        files.map(|entry| entry.path()).filter(|path| path.to_string_lossy().contains(".incr."))
    {
        let bytes = std::fs::read(&path).unwrap_or_default();
        let begin = bytes.windows(8).rposition(|word| word == b"FLUSHALL").unwrap_or(0);
        _ = writeln!(text, "\n{}:\n{}", path.display(), bytes[begin..].escape_ascii());
    }
    text
}

/// Which members lie between two others has no answer where scores differ; the log holds the one
/// that was given, however the sorted set is laid out when it is loaded.
#[test]
fn ranges_by_member_are_repeated_as_they_were() {
    let server =
        Server::start(&Program::under_test(), Options::arguments(&["--appendonly", "yes"]))
            .expect("it starts");
    let mut client = server.client();
    ask(&mut client, &["CONFIG", "SET", "zset-max-listpack-entries", "2"]);
    for (number, letter) in ('a'..='z').enumerate() {
        ask(&mut client, &["ZADD", "from", &(number * 7 % 3).to_string(), &letter.to_string()]);
    }
    for low in 'a'..='z' {
        for high in low..='z' {
            let (low, high) = (format!("[{low}"), format!("({high}"));
            let [rest, part] = ["rest", "part"].map(|name| format!("{name}{low}{high}"));
            ask(&mut client, &["COPY", "from", &rest]);
            ask(&mut client, &["COPY", "from", &part]);
            ask(&mut client, &["ZREMRANGEBYLEX", &rest, &low, &high]);
            ask(&mut client, &["ZRANGESTORE", &part, "from", &low, &high, "BYLEX"]);
        }
    }
    let held = contents(&mut client);
    ask(&mut client, &["CONFIG", "SET", "zset-max-listpack-entries", "128"]);
    assert_eq!(ask(&mut client, &["DEBUG", "LOADAOF"]), Reply::Simple(b"OK".to_vec()));
    let loaded = contents(&mut client);
    let differing = held.iter().filter(|(key, value)| loaded.get(*key) != Some(*value)).count();
    assert_eq!((differing, loaded.len()), (0, held.len()));
}

fn fill(client: &mut Client) {
    let long = "x".repeat(5000);
    let requests: &[&[&str]] = &[
        &["SET", "string", "value"],
        &["SET", "number", "42"],
        &["SET", "long", &long],
        &["SET", "expires", "1", "EX", "10000"],
        &["APPEND", "string", "\r\n\0"],
        &["RPUSH", "list", "a", "b", "3", &long],
        &["SADD", "ints", "1", "2", "300000"],
        &["SADD", "set", "a", "b", &long],
        &["HSET", "hash", "f", "v", "g", "1"],
        &["HSET", "long-hash", "f", &long],
        &["ZADD", "zset", "1.5", "a", "-inf", "b"],
        &["INCRBYFLOAT", "float", "1.25"],
        &["HINCRBYFLOAT", "hash", "g", "0.5"],
        &["SPOP", "set"],
        &["GETEX", "string", "PX", "99999999"],
        &["SELECT", "5"],
        &["SET", "elsewhere", "1"],
        &["COPY", "elsewhere", "copied", "DB", "7"],
        &["MULTI"],
        &["INCR", "n"],
        &["INCR", "n"],
        &["EXEC"],
        &["SELECT", "0"],
    ];
    for words in requests {
        ok(client, *words);
    }
    // More than one command of a base, and more than a snapshot takes in one go.
    for number in 0..1200 {
        ask(client, &["ZADD", "big", &format!("{number}.25"), &format!("m{number}")]);
        ask(client, &["HSET", "table", &format!("f{number}"), &number.to_string()]);
        ask(client, &["SADD", "members", &format!("m{number}")]);
        ask(client, &["RPUSH", "chunks", &format!("{number}{}", "y".repeat(100))]);
    }
    ask(client, &["PEXPIREAT", "table", "99999999999999"]);
    ask(client, &["RPUSH", "chunks", &"z".repeat(200_000), ""]);
    ask(client, &["SET", "huge", &"0123456789".repeat(20_000), "PXAT", "99999999999998"]);
}

/// One server writes an append-only directory, with and without rewriting it and in both forms of
/// base; the other one loads it, and has the same keys.
fn hand_over(from: &Program, to: &Program) {
    for (preamble, rewrites) in [("yes", false), ("yes", true), ("no", true)] {
        let arguments = ["--appendonly", "yes", "--aof-use-rdb-preamble", preamble];
        let source = Server::start(from, Options::arguments(&arguments)).expect("it starts");
        let mut client = source.client();
        fill(&mut client);
        if rewrites {
            ask(&mut client, &["BGREWRITEAOF"]);
            until_not_rewriting(&mut client);
            ask(&mut client, &["SET", "after", "1"]);
        }
        let wanted = contents(&mut client);
        let mut target =
            Server::start(to, Options::arguments(&["--appendonly", "yes"])).expect("it starts");
        target.kill().expect("it can be killed");
        ask(&mut client, &["CONFIG", "SET", "appendfsync", "always"]);
        ask(&mut client, &["SET", "flushed", "1"]);
        copy_folder(&source, &target);
        target.start_again().unwrap_or_else(|why| panic!("{preamble} {rewrites}: {why}"));
        let mut loaded = target.client();
        ask(&mut loaded, &["DEL", "flushed"]);
        let found = contents(&mut loaded);
        let differing: Vec<_> = found
            .iter()
            .filter(|(key, value)| wanted.get(*key) != Some(*value))
            .map(|((db, key), _)| format!("{db}: {}", key.escape_ascii()))
            .collect();
        assert!(
            differing.is_empty() && found.len() == wanted.len(),
            "base in RDB: {preamble}, rewritten: {rewrites}: {} keys instead of {}; {differing:?}",
            found.len(),
            wanted.len()
        );
    }
}

fn copy_folder(from: &Server, to: &Server) {
    let target = to.directory().join("appendonlydir");
    std::fs::remove_dir_all(&target).expect("there is one");
    std::fs::create_dir(&target).expect("it can be made");
    let source = from.directory().join("appendonlydir");
    for entry in std::fs::read_dir(source).expect("there is one") {
        let path = entry.expect("a file").path();
        std::fs::copy(&path, target.join(path.file_name().expect("a name"))).expect("a copy");
    }
}

#[test]
fn others_load_our_files_and_we_load_theirs() {
    let Some(reference) = Program::reference_or_skip() else { return };
    let ours = Program::under_test();
    for other in [reference.beside("redis-server"), reference] {
        hand_over(&other, &ours);
        hand_over(&ours, &other);
    }
}

/// A Dunlin with `always` that was killed, in the middle of a rewrite or not, after batches that
/// were written in place and one that was too large for that; and what it had.
fn killed(preamble: &str, is_rewriting: bool) -> (Server, Contents) {
    let arguments = ["--appendonly", "yes", "--appendfsync", "always"];
    let sizes = ["--aof-preallocation-size", "64kb", "--auto-aof-rewrite-percentage", "0"];
    let form = ["--aof-use-rdb-preamble", preamble];
    let options = Options::arguments(&[&arguments[..], &sizes, &form].concat());
    let mut source = Server::start(&Program::under_test(), options).expect("it starts");
    let mut client = source.client();
    fill(&mut client);
    ask(&mut client, &["SET", "too-large", &"l".repeat(300_000)]);
    ask(&mut client, &["SET", "like-room", &"#".repeat(2000)]);
    if is_rewriting {
        ask(&mut client, &["CONFIG", "SET", "rdb-key-save-delay", "1000000"]);
        ask(&mut client, &["BGREWRITEAOF"]);
        eventually("the new increment", || increments(&source).len() == 2);
    }
    // So many that batches are written in place again.
    for number in 0..100 {
        ask(&mut client, &["SET", &format!("after:{number}"), &"v".repeat(7 * number)]);
    }
    let wanted = contents(&mut client);
    eventually("preallocated space", || {
        // A batch makes the log look for space again.
        ask(&mut client, &["SET", "after:0", ""]);
        let last = increments(&source).pop().expect("there is one");
        std::fs::read(last).expect("it can be read").ends_with(b"##\n")
    });
    source.kill().expect("it can be killed");
    let log = std::fs::read(&increments(&source)[0]).expect("it can be read");
    assert!(log.windows(8).any(|bytes| bytes == b"\n#BATCH:"), "nothing was written in place");
    (source, wanted)
}

/// The increments in a server's directory, in their order.
fn increments(server: &Server) -> Vec<std::path::PathBuf> {
    let folder = server.directory().join("appendonlydir");
    let entries = std::fs::read_dir(folder).expect("there is one").flatten();
    let mut paths: Vec<_> = entries.map(|entry| entry.path()).collect();
    paths.retain(|path| path.to_string_lossy().ends_with(".incr.aof"));
    paths.sort();
    paths
}

/// Has another server's tool look at a directory of a log.
fn check_by(other: &Program, server: &Server) -> String {
    let tool = other.name().replace("server", "check-aof");
    let manifest = server.directory().join("appendonlydir/appendonly.aof.manifest");
    let inside = manifest.strip_prefix(other.root()).expect("it is below the root");
    let path = std::path::Path::new("/").join(inside);
    let output = Command::new("chroot").arg(other.root()).arg(&tool).arg(path).output();
    let output = output.expect("there is such a tool");
    let said = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(output.status.success(), "{tool}:\n{said}");
    said
}

#[test]
fn others_load_what_a_killed_server_wrote_in_place() {
    let Some(reference) = Program::reference_or_skip().filter(|_| has_preallocated_logs()) else {
        return;
    };
    for other in [reference.beside("redis-server"), reference] {
        for (preamble, is_rewriting) in [("yes", false), ("yes", true), ("no", true)] {
            let what = format!("{}, base in RDB: {preamble}, {is_rewriting}", other.name());
            let (source, wanted) = killed(preamble, is_rewriting);
            assert_eq!(increments(&source).len(), 1 + usize::from(is_rewriting), "{what}");
            let mut target = Server::start(&other, Options::arguments(&["--appendonly", "yes"]))
                .expect("it starts");
            target.kill().expect("it can be killed");
            copy_folder(&source, &target);
            let said = check_by(&other, &target);
            assert!(said.contains("All AOF files and manifest are valid"), "{what}:\n{said}");
            target.start_again().unwrap_or_else(|why| panic!("{what}: {why}"));
            let mut client = target.client();
            println!("{what}");
            assert_same(&wanted, &contents(&mut client));
        }
    }
}

#[test]
fn we_load_what_others_appended_to_a_log_with_room() {
    let Some(reference) = Program::reference_or_skip() else { return };
    for other in [reference.beside("redis-server"), reference] {
        for is_rewriting in [false, true] {
            for many in [1, 2000] {
                let what = format!("{}, {is_rewriting}, {many} writes", other.name());
                let (mut source, _) = killed("yes", is_rewriting);
                let arguments = ["--appendonly", "yes", "--appendfsync", "always"];
                let mut target =
                    Server::start(&other, Options::arguments(&arguments)).expect("it starts");
                target.kill().expect("it can be killed");
                copy_folder(&source, &target);
                target.start_again().unwrap_or_else(|why| panic!("{what}: {why}"));
                let mut client = target.client();
                for number in 0..many {
                    ask(&mut client, &["SET", &format!("theirs:{number}"), &"t".repeat(200)]);
                }
                let wanted = contents(&mut client);
                target.kill().expect("it can be killed");
                copy_folder(&target, &source);
                let before = source.log().len();
                source.start_again().unwrap_or_else(|why| panic!("{what}: {why}"));
                let mut client = source.client();
                let found = contents(&mut client);
                let said = &source.log()[before..];
                assert!(
                    found == wanted,
                    "{what}: {} of {} keys:\n{said}",
                    found.len(),
                    wanted.len()
                );
            }
        }
    }
}

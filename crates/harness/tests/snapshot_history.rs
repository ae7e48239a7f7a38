//! A snapshot is the history up to its position: random clients write while the log is rewritten
//! again and again, and each base must hold what the base before it and the increment between them
//! make together, as another server loads them. Values of all types and sizes, expiries, FLUSHALL
//! and SWAPDB are among what is written, both forms of base and small and large budgets are taken.
//!
//! `DUNLIN_SEED=17` takes the choices of that seed (clients meet as they will),
//! `DUNLIN_HISTORY_SECONDS=600` runs for so long (10 without it).

// A failed step is a failed test, in its helpers too.
#![allow(clippy::unwrap_used)]

use harness::client::Client;
use harness::contents::{Contents, contents};
use harness::differential::grammar::Generator;
use harness::environment::{new_seed, variable};
use harness::reply::{Protocol, Reply};
use harness::rng::Rng;
use harness::server::{Options, Program, Server};
use std::fmt::Write as _;
use std::fs;
use std::iter;
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::thread;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

const WRITERS: u64 = 3;
const REWRITES: usize = 3;
/// Elements of the big collections: more than a snapshot takes in one go.
const BIG: usize = 2500;

fn ask(client: &mut Client, words: &[&str]) -> Reply {
    client.command(words).unwrap_or_else(|why| panic!("{words:?}: {why}"))
}

#[track_caller]
fn eventually(what: &str, is_so: impl FnMut() -> bool) {
    harness::wait::within(Duration::from_secs(60), what, is_so);
}

fn fill(client: &mut Client) {
    for from in (0..BIG).step_by(500) {
        let elements: Vec<String> = (from..from + 500).map(|number| format!("e{number}")).collect();
        for (name, command) in
            [("hash", "HSET"), ("zset", "ZADD"), ("set", "SADD"), ("list", "RPUSH")]
        {
            let mut words = vec![command.to_owned(), name.to_owned()];
            for element in &elements {
                match command {
                    "HSET" => words.extend([element.clone(), "0".into()]),
                    "ZADD" => words.extend(["1".into(), element.clone()]),
                    _ => words.push(element.clone()),
                }
            }
            client.command(&words).unwrap();
        }
    }
    ask(client, &["SET", "long", &"0123456789".repeat(20_000)]);
    ask(client, &["RPUSH", "list", &"x".repeat(100_000)]);
}

/// A write to one of the big values, or to all of a database.
fn big_write(rng: &mut Rng) -> Vec<String> {
    let element = format!("e{}", rng.below(2 * BIG));
    let number = rng.below(1000).to_string();
    let line = match rng.below(1200) {
        0..200 => format!("HSET hash {element} {number}"),
        200..300 => format!("HDEL hash {element}"),
        300..450 => format!("ZINCRBY zset {number} {element}"),
        450..550 => format!("ZREM zset {element}"),
        550..650 => format!("SADD set {element}"),
        650..750 => format!("SREM set {element}"),
        750..800 => format!("LPUSH list {element}"),
        800..850 => "RPOP list".to_owned(),
        850..900 => format!("LSET list {} {element}", rng.below(BIG)),
        900..950 => format!("SETRANGE long {} {number}", rng.below(200_000)),
        950..1000 => format!("APPEND long {number}"),
        1000..1050 => format!("PEXPIRE {} 100000000", rng.pick(&["hash", "long", "set"])),
        1050..1100 => format!("PSETEX brief:{} {} {number}", rng.below(20), 1 + rng.below(200)),
        1100..1130 => "SPOP set 3".to_owned(),
        1130..1136 => "RENAME hash hash2".to_owned(),
        1136..1142 => "RENAME hash2 hash".to_owned(),
        1142..1148 => "COPY zset zset2 DB 2 REPLACE".to_owned(),
        1148..1154 => "ZUNIONSTORE zset 2 zset zset2".to_owned(),
        1154..1156 => "SWAPDB 0 2".to_owned(),
        1156..1158 => "FLUSHALL".to_owned(),
        1158..1160 => "FLUSHDB".to_owned(),
        1160..1162 => "UNLINK hash".to_owned(),
        1162..1164 => "MOVE set 2".to_owned(),
        _ => "SELECT 0".to_owned(),
    };
    line.split(' ').map(str::to_owned).collect()
}

/// Writes until it is told to stop. Whatever is answered is fine; it is the history that counts.
fn write(server: &Server, seed: u64, stop: &AtomicBool, sent: &AtomicU64) {
    let mut rng = Rng::new(seed);
    let mut generator = Generator::new(seed, |_| true);
    while !stop.load(Relaxed) {
        // A blocked client would hold up what follows; a new one does not.
        let mut client = server.connect(Protocol::Resp2).unwrap();
        if rng.chance(30) {
            fill(&mut client);
        }
        for op in generator.sequence(60) {
            for _ in 0..rng.below(3) {
                client.send(&big_write(&mut rng)).unwrap();
            }
            if client.send(&op.words).is_err() || stop.load(Relaxed) {
                break;
            }
            sent.fetch_add(1, Relaxed);
            while client.has_data().is_ok_and(|has| has) && client.reply().is_ok() {}
        }
    }
}

/// A time until which two servers will have been looked at, in milliseconds since the epoch.
fn soon() -> i64 {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |now| now.as_millis());
    i64::try_from(now).unwrap() + 60_000
}

/// What a server holds that loads these files of a log, but for what does not last until `soon`.
fn load(
    loader: &mut Server,
    from: &Path,
    base: &str,
    increments: &[String],
    soon: i64,
) -> Contents {
    let folder = loader.directory().join("appendonlydir");
    fs::remove_dir_all(&folder).unwrap();
    fs::create_dir(&folder).unwrap();
    let mut manifest = String::new();
    let files = iter::once(base).chain(increments.iter().map(String::as_str));
    for (seq, name) in files.enumerate() {
        fs::copy(from.join(name), folder.join(name)).unwrap();
        let kind = if seq == 0 { 'b' } else { 'i' };
        _ = writeln!(manifest, "file {name} seq {} type {kind}", seq.max(1));
    }
    fs::write(folder.join("appendonly.aof.manifest"), manifest).unwrap();
    loader.start_again().unwrap();
    let mut found = contents(&mut loader.connect(Protocol::Resp2).unwrap());
    found.retain(|_, (_, expiry)| *expiry == -1 || *expiry > soon);
    loader.kill().unwrap();
    found
}

/// The bases of a log in their order, each with the increments that were written from it on: two
/// where a rewrite was begun again, because a FLUSHALL had ended the snapshot.
fn history(folder: &Path) -> Vec<(String, Vec<String>)> {
    let manifest = fs::read_to_string(folder.join("appendonly.aof.manifest")).unwrap();
    let file = |line: &str, wanted: &str| {
        let words: Vec<&str> = line.split(' ').collect();
        (words.last() == Some(&wanted)).then(|| words[1].to_owned())
    };
    // History is named with the newest first.
    let past = manifest.lines().rev().filter_map(|line| file(line, "h"));
    let present = manifest.lines().filter_map(|line| file(line, "b"));
    let mut bases: Vec<(String, Vec<String>)> = Vec::new();
    for name in past.chain(present) {
        match bases.last_mut() {
            Some((_, increments)) if name.ends_with(".incr.aof") => increments.push(name),
            _ => bases.push((name, Vec::new())),
        }
    }
    bases
}

/// What to say of a key whose value differs: both values, and the last that the log has of it.
fn differing(
    key: &(u32, Vec<u8>),
    history: &Contents,
    snapshot: &Contents,
    folder: &Path,
    increments: &[String],
) -> String {
    let parts = increments.iter().map(|name| fs::read(folder.join(name)).unwrap());
    let log = parts.collect::<Vec<_>>().concat();
    let (db, name) = (key.0, key.1.escape_ascii().to_string());
    let text = log.escape_ascii().to_string().replace("\\r\\n", " ");
    let mention = format!(" {name} ");
    let mentions: Vec<usize> = text.match_indices(&mention).map(|(at, _)| at).collect();
    let last = mentions.iter().rev().take(12).rev().map(|&at| {
        let start = text[..at].rfind(" *").unwrap_or(0);
        let end = text[at..].find(" *").map_or(text.len(), |length| at + length);
        let line: String = text[start..end].chars().take(300).collect();
        format!("    @{start}/{}: {line}\n", text.len())
    });
    let short = |found: Option<&_>| {
        let text = format!("{found:?}");
        text.chars().take(1500).collect::<String>()
    };
    format!(
        "database {db}, key {name}:\n  history:  {}\n  snapshot: {}\n  the log:\n{}",
        short(history.get(key)),
        short(snapshot.get(key)),
        last.collect::<String>()
    )
}

/// Tells the writers to stop, even when a step fails.
struct Stopping<'a>(&'a AtomicBool);

impl Drop for Stopping<'_> {
    fn drop(&mut self) {
        self.0.store(true, Relaxed);
    }
}

/// One server's history; how many requests it had, and how many keys were compared.
fn one(seed: u64, loader: &mut Server) -> (u64, usize) {
    let mut rng = Rng::new(seed);
    let preamble = *rng.pick(&["yes", "no"]);
    let budget = *rng.pick(&["64mb", "64kb"]);
    let delay = *rng.pick(&["0", "100", "1000"]);
    println!("DUNLIN_SEED={seed}: base in RDB: {preamble}, budget {budget}, delay {delay}");
    let arguments = [
        ["--appendonly", "yes"],
        ["--aof-use-rdb-preamble", preamble],
        ["--aof-disable-auto-gc", "yes"],
        ["--auto-aof-rewrite-percentage", "0"],
        ["--snapshot-buffer-limit", budget],
        ["--rdb-key-save-delay", delay],
        ["--io-threads", "2"],
    ];
    let options = Options::arguments(&arguments.concat());
    let mut server = Server::start(&Program::under_test(), options).unwrap();
    fill(&mut server.connect(Protocol::Resp2).unwrap());
    let (stop, sent) = (AtomicBool::new(false), AtomicU64::new(0));
    let seeds: Vec<u64> = (0..WRITERS).map(|_| rng.bits()).collect();
    thread::scope(|scope| {
        for &seed in &seeds {
            let (server, stop, sent) = (&server, &stop, &sent);
            scope.spawn(move || write(server, seed, stop, sent));
        }
        let _stopping = Stopping(&stop);
        let mut client = server.connect(Protocol::Resp2).unwrap();
        for rewrite in 1..=REWRITES {
            let before = sent.load(Relaxed);
            eventually("some writes", || sent.load(Relaxed) > before + 100);
            assert!(!ask(&mut client, &["BGREWRITEAOF"]).is_error());
            eventually("the rewrite", || {
                let log = server.log();
                assert!(!log.contains("terminated with error"), "{log}");
                log.matches("AOF rewrite finished successfully").count() == rewrite
            });
        }
    });
    // The log may be far behind the last snapshot yet, which has it all.
    let mut client = server.connect(Protocol::Resp2).unwrap();
    ask(&mut client, &["SET", "end", "1"]);
    assert_eq!(
        ask(&mut client, &["WAITAOF", "1", "0", "0"]).elements().map(<[Reply]>::len),
        Some(2)
    );
    server.kill().unwrap();
    let folder = server.directory().join("appendonlydir");
    let mut compared = 0;
    let bases = history(&folder);
    assert!(bases.len() == REWRITES + 1, "{bases:?}");
    for (number, pair) in bases.windows(2).enumerate() {
        let [(before, increments), (after, _)] = pair else { unreachable!("pairs") };
        let soon = soon();
        let history = load(loader, &folder, before, increments, soon);
        let snapshot = load(loader, &folder, after, &[], soon);
        let differing: Vec<_> = history
            .keys()
            .chain(snapshot.keys())
            .filter(|key| history.get(*key) != snapshot.get(*key))
            .map(|key| differing(key, &history, &snapshot, &folder, increments))
            .collect();
        assert!(
            differing.is_empty(),
            "DUNLIN_SEED={seed}, rewrite {number}: history has {} keys, the snapshot {}:\n{}",
            history.len(),
            snapshot.len(),
            differing.join("\n"),
        );
        compared += snapshot.len();
    }
    let log = loader.log();
    assert!(!log.contains(" failed: "), "DUNLIN_SEED={seed}: a command failed again:\n{log}");
    (sent.load(Relaxed), compared)
}

#[test]
fn a_snapshot_is_the_history_up_to_its_position() {
    let seconds = variable("DUNLIN_HISTORY_SECONDS").unwrap_or(10);
    let arguments = ["--appendonly", "yes", "--auto-aof-rewrite-percentage", "0"];
    let mut loader = Server::start(&Program::under_test(), Options::arguments(&arguments)).unwrap();
    loader.kill().unwrap();
    let until = Instant::now() + Duration::from_secs(seconds);
    let only = variable("DUNLIN_SEED");
    let (mut seed, mut histories, mut sent, mut compared) =
        (only.unwrap_or_else(new_seed), 0, 0, 0);
    while Instant::now() < until {
        let (requests, keys) = one(seed, &mut loader);
        sent += requests;
        compared += keys;
        histories += 1;
        seed += u64::from(only.is_none());
    }
    assert!(compared > 0, "there was never anything in a snapshot");
    println!("{histories} histories of {sent} requests, {compared} keys in their snapshots");
}

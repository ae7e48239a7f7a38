//! Killing the server with SIGKILL at random instants, under writers that know what they wrote.
//!
//! Each writer counts: transaction `n` sets its counter to `n`, one of a hundred keys to `n`, and
//! increments a second counter. After a crash the state of one `n` must be there, whole: every key
//! as transaction `n` left it, and no transaction behind it. With `appendfsync always` that `n` is
//! one that was acknowledged last or later, and no reader has seen a later one; with `everysec` it
//! may be what was acknowledged a second before. Rewrites and snapshots run meanwhile, so that
//! kills meet them too.
//!
//! `DUNLIN_KILLS=500` says how often; the seed is printed, and taken from `DUNLIN_SEED`.

use harness::client::Client;
use harness::environment::variable;
use harness::reply::Reply;
use harness::rng::Rng;
use harness::server::{Options, Program, Server};
use harness::wait::eventually;
use std::collections::VecDeque;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, Ordering::SeqCst};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

const WRITERS: usize = 4;
const KEYS: i64 = 100;
/// Kills of the default run, for each of the two policies.
const SHORT: u64 = 10;

/// What one writer knows when the server is gone.
#[derive(Clone, Debug, Default)]
struct Known {
    /// The last transaction that was sent.
    sent: i64,
    /// Acknowledged transactions of the last moments, with their times.
    acknowledged: VecDeque<(Instant, i64)>,
}

impl Known {
    /// The last one that was acknowledged by then.
    fn acknowledged_by(&self, moment: Instant) -> Option<i64> {
        self.acknowledged.iter().rev().find(|(at, _)| *at <= moment).map(|(_, number)| *number)
    }
}

fn transaction(writer: usize, number: i64) -> Vec<u8> {
    let (value, key) = (number.to_string(), number % KEYS);
    let commands: [&[&str]; 5] = [
        &["MULTI"],
        &["SET", &format!("w{writer}"), &value],
        &["SET", &format!("k{writer}:{key}"), &value],
        &["INCR", &format!("c{writer}")],
        &["EXEC"],
    ];
    commands.iter().flat_map(|words| harness::client::encode(words)).collect()
}

/// Writes until the server is gone, several transactions at a time.
fn write(address: SocketAddr, writer: usize, first: i64, seed: u64) -> Known {
    let mut rng = Rng::new(seed);
    let mut known = Known { sent: first - 1, ..Known::default() };
    let Ok(mut client) = Client::connect(address) else { return known };
    loop {
        let together = 1 + rng.below(8) as i64;
        let batch: Vec<u8> =
            (1..=together).flat_map(|next| transaction(writer, known.sent + next)).collect();
        let begin = known.sent;
        known.sent += together;
        if client.send_raw(&batch).is_err() {
            return known;
        }
        for next in 1..=together {
            for step in 0..5 {
                let Ok(reply) = client.reply() else { return known };
                if step == 4 {
                    assert!(!reply.is_error(), "EXEC: {reply:?}");
                    known.acknowledged.push_back((Instant::now(), begin + next));
                }
            }
        }
        let long_ago = Instant::now() - Duration::from_secs(3);
        while known.acknowledged.front().is_some_and(|(at, _)| *at < long_ago) {
            known.acknowledged.pop_front();
        }
    }
}

/// Reads what the writers count until the server is gone: the last transaction of each that was
/// seen.
fn read(address: SocketAddr, seed: u64) -> [i64; WRITERS] {
    let mut rng = Rng::new(seed);
    let mut seen = [0; WRITERS];
    let Ok(mut client) = Client::connect(address) else { return seen };
    loop {
        let keys: Vec<String> =
            (0..WRITERS).map(|writer| format!("{}{writer}", rng.pick(&["w", "c"]))).collect();
        let mut many = vec!["MGET"];
        many.extend(keys.iter().map(String::as_str));
        let one = rng.below(WRITERS);
        let (requests, is_one): (Vec<Vec<&str>>, bool) = match rng.below(3) {
            0 => (vec![vec!["GET", &keys[one]]], true),
            1 => (vec![many], false),
            _ => (vec![vec!["MULTI"], many, vec!["EXEC"]], false),
        };
        let bytes: Vec<u8> =
            requests.iter().flat_map(|words| harness::client::encode(words)).collect();
        if client.send_raw(&bytes).is_err() {
            return seen;
        }
        let mut last = None;
        for _ in &requests {
            let Ok(reply) = client.reply() else { return seen };
            last = Some(reply);
        }
        let reply = last.expect("there is a request");
        if is_one {
            seen[one] = seen[one].max(number(&reply));
            continue;
        }
        let values = reply.elements().expect("an array");
        // EXEC's has one for each command.
        let values =
            if requests.len() == 1 { values } else { values[0].elements().expect("an array") };
        for (seen, value) in seen.iter_mut().zip(values) {
            *seen = (*seen).max(number(value));
        }
    }
}

/// A counter's value, 0 if it is not there.
fn number(reply: &Reply) -> i64 {
    let text = reply.text().map(|text| String::from_utf8_lossy(text).into_owned());
    text.map_or(0, |text| text.parse().expect("a number"))
}

fn get(client: &mut Client, key: &str) -> i64 {
    number(&client.command(&["GET", key]).expect("the server answers"))
}

/// Checks one writer's keys, and says which transaction was the last.
fn check(client: &mut Client, writer: usize) -> i64 {
    let last = get(client, &format!("w{writer}"));
    let count = get(client, &format!("c{writer}"));
    assert_eq!(count, last, "writer {writer}: the history has a hole, or a torn transaction");
    for key in 0..KEYS {
        let wanted = last - (last - key).rem_euclid(KEYS);
        let wanted = if wanted < 1 { 0 } else { wanted };
        let found = get(client, &format!("k{writer}:{key}"));
        assert_eq!(found, wanted, "writer {writer}, last transaction {last}: key {key} is torn");
    }
    last
}

fn kill_loop(policy: &str, kills: u64, most_lost: Duration) {
    let seed = variable("DUNLIN_SEED").unwrap_or_else(|| {
        SystemTime::now().duration_since(UNIX_EPOCH).map_or(1, |now| now.as_nanos() as u64)
    });
    println!("appendfsync {policy}: DUNLIN_SEED={seed} DUNLIN_KILLS={kills}");
    let mut rng = Rng::new(seed);
    let arguments = [
        "--appendonly",
        "yes",
        "--appendfsync",
        policy,
        "--auto-aof-rewrite-min-size",
        "256kb",
        "--auto-aof-rewrite-percentage",
        "100",
    ];
    let mut server =
        Server::start(&Program::under_test(), Options::arguments(&arguments)).expect("it starts");
    let mut last = [0; WRITERS];
    for kill in 0..kills {
        let address = server.address();
        let is_over = AtomicBool::new(false);
        let seeds: Vec<u64> = (0..WRITERS).map(|_| rng.bits()).collect();
        let pause = Duration::from_millis(20 + rng.below(280) as u64);
        let background = *rng.pick(&["BGREWRITEAOF", "BGSAVE", "PING"]);
        let background_after = Duration::from_millis(rng.below(300) as u64);
        let reader_seed = rng.bits();
        let (known, seen, killed_at) = std::thread::scope(|scope| {
            let reader = scope.spawn(move || read(address, reader_seed));
            let writers: Vec<_> = (0..WRITERS)
                .map(|writer| {
                    let (first, seed) = (last[writer] + 1, seeds[writer]);
                    scope.spawn(move || write(address, writer, first, seed))
                })
                .collect();
            let is_over = &is_over;
            scope.spawn(move || {
                std::thread::sleep(background_after);
                if !is_over.load(SeqCst)
                    && let Ok(mut client) = Client::connect(address)
                {
                    // It may be gone, or busy with one that the growth started.
                    let _ = client.command(&[background]);
                }
            });
            std::thread::sleep(pause);
            let killed_at = Instant::now();
            server.kill().expect("it can be killed");
            is_over.store(true, SeqCst);
            let known: Vec<Known> =
                writers.into_iter().map(|writer| writer.join().expect("it ends")).collect();
            (known, reader.join().expect("it ends"), killed_at)
        });
        server.start_again().unwrap_or_else(|why| panic!("kill {kill}: {why}"));
        let mut client = server.connect(harness::reply::Protocol::Resp2).expect("it answers");
        for (writer, known) in known.iter().enumerate() {
            last[writer] = check(&mut client, writer);
            let safe = match most_lost {
                Duration::ZERO => known.acknowledged.back().map(|(_, number)| *number),
                lost => known.acknowledged_by(killed_at - lost),
            };
            let (found, sent) = (last[writer], known.sent);
            assert!(
                safe.is_none_or(|safe| safe <= found) && found <= sent,
                "kill {kill}, writer {writer}: transaction {safe:?} was safe and {sent} the last \
                 sent, but {found} is the last that is there"
            );
            let was_seen = seen[writer];
            assert!(
                !most_lost.is_zero() || was_seen <= found,
                "kill {kill}, writer {writer}: a reader has seen transaction {was_seen}, but {found} is \
                 the last that is there"
            );
        }
    }
    let log = server.log();
    let cuts = log.matches("loaded anyway because aof-load-truncated").count();
    let rewrites = log.matches("Background AOF rewrite finished").count();
    println!("{kills} kills, {last:?} transactions, {rewrites} rewrites, {cuts} cut tails");
}

#[test]
fn always_loses_nothing_that_was_acknowledged() {
    kill_loop("always", variable("DUNLIN_KILLS").unwrap_or(SHORT), Duration::ZERO);
}

#[test]
fn everysec_loses_at_most_a_second() {
    kill_loop("everysec", variable("DUNLIN_KILLS").unwrap_or(SHORT), Duration::from_secs(1));
}

fn digest(client: &mut Client) -> Reply {
    client.command(&["DEBUG", "DIGEST"]).expect("a digest")
}

/// The log cut at every byte of its last commands: it loads, with everything before the cut, or, if
/// that is not allowed, the server says what is wrong.
#[test]
fn a_log_cut_anywhere_loads_up_to_the_cut() {
    let options = Options::arguments(&["--appendonly", "yes"]);
    let mut server = Server::start(&Program::under_test(), options).expect("it starts");
    let mut client = server.connect(harness::reply::Protocol::Resp2).expect("it answers");
    let file = server.directory().join("appendonlydir/appendonly.aof.1.incr.aof");
    let size = || std::fs::metadata(&file).map_or(0, |facts| facts.len());
    // Where the file ends, and what the data set is there.
    let mut ends = vec![(0, digest(&mut client))];
    let requests: [&[&str]; 4] =
        [&["SET", "a", "1"], &["RPUSH", "l", "x", "y"], &["SELECT", "2"], &["INCR", "a"]];
    for words in requests {
        let before = size();
        assert!(!client.command(words).expect("a reply").is_error());
        if words[0] != "SELECT" {
            eventually("it is in the log", || size() > before);
        }
        ends.push((size(), digest(&mut client)));
    }
    let before = size();
    for words in [&["MULTI"][..], &["SET", "t", "1"], &["SET", "u", "2"], &["EXEC"]] {
        client.command(words).expect("a reply");
    }
    eventually("it is in the log", || size() > before);
    ends.push((size(), digest(&mut client)));
    drop(client);
    server.kill().expect("it can be killed");
    let whole = std::fs::read(&file).expect("the log");
    // Starting takes a while; every third byte in turn meets every kind of place.
    for cut in (0..=whole.len()).rev().filter(|cut| cut % 3 == 0 || *cut + 20 > whole.len()) {
        std::fs::write(&file, &whole[..cut]).expect("it can be written");
        server.start_again().unwrap_or_else(|why| panic!("cut at {cut}: {why}"));
        let mut client = server.connect(harness::reply::Protocol::Resp2).expect("it answers");
        let (end, wanted) = ends.iter().rev().find(|(end, _)| *end <= cut as u64).expect("0");
        assert_eq!(digest(&mut client), *wanted, "cut at {cut}");
        // A SELECT that nothing follows may stay.
        assert!(size() >= *end && size() <= cut as u64, "cut at {cut}");
        server.kill().expect("it can be killed");
    }
}

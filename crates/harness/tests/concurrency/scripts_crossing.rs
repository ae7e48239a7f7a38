//! Scripts that cross: transfers between accounts whose sum stays, over keys that are declared,
//! that are not, and over values too large to be copied, while other scripts are killed.
//!
//! `DUNLIN_CROSSING_SECONDS` sets how long each test runs on each server (default 2), `DUNLIN_SEED`
//! what it does.

// A failed step is a failed test, in its helpers too.
#![allow(clippy::unwrap_used)]

use harness::client::{Client, ask, ok};
use harness::environment;
use harness::reply::Reply;
use harness::rng::Rng;
use harness::server::{Options, Program, Server};
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::thread;
use std::time::{Duration, Instant};

const ACCOUNTS: usize = 8;
const BALANCE: i64 = 1000;
const CLIENTS: usize = 6;

fn seconds() -> Duration {
    environment::seconds("DUNLIN_CROSSING_SECONDS").unwrap_or(Duration::from_secs(2))
}

fn seed() -> u64 {
    environment::variable("DUNLIN_SEED").unwrap_or(1)
}

fn start(threads: &str) -> Server {
    // Beside scripts that want the world, one that does not end is killed when others are answered
    // again.
    let arguments = [
        ["--io-threads", threads],
        ["--save", ""],
        ["--appendonly", "yes"],
        ["--busy-reply-threshold", "20"],
    ]
    .concat();
    Server::start(&Program::under_test(), Options::arguments(&arguments)).unwrap()
}

/// Whether a reply says that the script was killed, which only happens before it has written, or
/// that it did not run because another one has run for long.
fn did_nothing(reply: &Reply) -> bool {
    let text = String::from_utf8_lossy(reply.text().unwrap_or_default());
    let is_refused = text.contains("Script killed by user") || text.starts_with("BUSY ");
    assert!(is_refused || !reply.is_error(), "{text}");
    is_refused
}

/// One transfer, by one of the ways in which scripts reach their keys.
fn transfer(client: &mut Client, rng: &mut Rng) {
    const MOVE: &str =
        "redis.call('DECRBY', from, ARGV[1]) redis.call('INCRBY', to, ARGV[1]) return 1";
    let from = format!("account:{}", rng.below(ACCOUNTS));
    let to = format!("account:{}", rng.below(ACCOUNTS));
    let amount = rng.between(1, 50).to_string();
    // A script that is not known yet is learnt anew.
    let number = rng.below(50);
    let large = format!("large:{}", rng.below(3));
    let (script, words): (String, Vec<&str>) = match rng.below(6) {
        0 | 1 => {
            let script = format!("local from, to = KEYS[1], KEYS[2] {MOVE}");
            (script, vec!["2", &from, &to, &amount])
        }
        // It has written when it comes to the key that is not declared.
        2 => {
            let script = format!("local from, to = KEYS[1], ARGV[2] {MOVE} -- {number}");
            (script, vec!["1", &from, &amount, &to])
        }
        // Seen with a declared key at first, and with another one later.
        3 => {
            let script = format!("local from, to = KEYS[1], ARGV[2] {MOVE} -- {number} and same");
            let to = if rng.chance(60) { &from } else { &to };
            (script, vec!["1", &from, &amount, to])
        }
        // What it changes first cannot be copied, so it cannot begin again.
        4 => {
            let script = format!(
                "redis.call('RPOPLPUSH', KEYS[1], KEYS[1]) local from, to = ARGV[2], ARGV[3] {MOVE} \
                 -- {number}"
            );
            (script, vec!["1", &large, &amount, &from, &to])
        }
        // The same, but seen without any other key at first.
        _ => {
            let script = format!(
                "redis.call('RPOPLPUSH', KEYS[1], KEYS[1]) if ARGV[4] == 'stay' then return 1 end \
                 local from, to = ARGV[2], ARGV[3] {MOVE} -- {number}"
            );
            let stays = if rng.chance(60) { "stay" } else { "go" };
            (script, vec!["1", &large, &amount, &from, &to, stays])
        }
    };
    let words = [&["EVAL", &script][..], &words].concat();
    did_nothing(&ask(client, &words[..]));
}

fn total(replies: &[Reply]) -> i64 {
    replies
        .iter()
        .map(|reply| String::from_utf8_lossy(reply.text().unwrap()).parse::<i64>().unwrap())
        .sum()
}

/// Looks at all accounts at once, in one of three ways.
fn check_sum(client: &mut Client, rng: &mut Rng) {
    let keys: Vec<String> = (0..ACCOUNTS).map(|at| format!("account:{at}")).collect();
    let keys: Vec<&str> = keys.iter().map(String::as_str).collect();
    let read = match rng.below(3) {
        0 => ask(client, &[&["MGET"][..], &keys].concat()[..]),
        1 => {
            let script = "return redis.call('MGET', unpack(KEYS))";
            ask(client, &[&["EVAL_RO", script, "8"][..], &keys].concat()[..])
        }
        _ => {
            let script = "return redis.call('MGET', unpack(ARGV))";
            ask(client, &[&["EVAL", script, "0"][..], &keys].concat()[..])
        }
    };
    if !did_nothing(&read) {
        assert_eq!(
            total(read.elements().unwrap()),
            ACCOUNTS as i64 * BALANCE,
            "half of a transfer"
        );
    }
}

/// Runs scripts that do not end, which hold an account or nothing, until they are killed.
fn run_for_ever(client: &mut Client, rng: &mut Rng, killed: &AtomicU64) {
    let key = format!("account:{}", rng.below(ACCOUNTS));
    let words: Vec<&str> = match rng.below(3) {
        0 => vec!["EVAL", "while true do end", "0"],
        1 => vec!["EVAL", "while true do redis.pcall('GET', KEYS[1]) end", "1", &key],
        _ => vec!["EVAL", "while true do pcall(function() while true do end end) end", "1", &key],
    };
    assert!(did_nothing(&ask(client, &words[..])), "it cannot have ended by itself");
    killed.fetch_add(1, Relaxed);
}

fn crossing(threads: &str) {
    let mut server = start(threads);
    let mut client = server.client();
    for at in 0..ACCOUNTS {
        ok(&mut client, &format!("SET account:{at} {BALANCE}"));
    }
    for at in 0..3 {
        let elements: Vec<String> = (0..400).map(|element| element.to_string()).collect();
        ok(&mut client, &format!("RPUSH large:{at} {}", elements.join(" ")));
    }
    let (transfers, killed) = (AtomicU64::new(0), AtomicU64::new(0));
    let end = Instant::now() + seconds();
    thread::scope(|scope| {
        for number in 0..CLIENTS as u64 {
            let (server, transfers) = (&server, &transfers);
            scope.spawn(move || {
                let (mut client, mut rng) = (server.client(), Rng::new(seed() * 100 + number));
                while Instant::now() < end {
                    if rng.chance(20) {
                        check_sum(&mut client, &mut rng);
                    } else {
                        transfer(&mut client, &mut rng);
                        transfers.fetch_add(1, Relaxed);
                    }
                }
            });
        }
        let endless = scope.spawn(|| {
            let (mut client, mut rng) = (server.client(), Rng::new(seed()));
            while Instant::now() < end {
                run_for_ever(&mut client, &mut rng, &killed);
            }
        });
        // Until the last endless script has ended.
        let mut client = server.client();
        while !endless.is_finished() {
            ask(&mut client, "SCRIPT KILL");
            thread::sleep(Duration::from_millis(3));
        }
    });
    let (transfers, killed) = (transfers.into_inner(), killed.into_inner());
    println!("{threads} threads: {transfers} transfers, {killed} scripts killed");
    assert!(transfers > 0 && killed > 0);
    let mut rng = Rng::new(0);
    check_sum(&mut client, &mut rng);
    // What a script did is one entry of the log.
    let all =
        "MGET account:0 account:1 account:2 account:3 account:4 account:5 account:6 account:7";
    let before = ok(&mut client, all);
    server.restart().unwrap();
    assert_eq!(ok(&mut server.client(), all), before);
}

#[test]
fn transfers_keep_the_sum_on_two_threads() {
    crossing("2");
}

#[test]
fn transfers_keep_the_sum_on_four_threads() {
    crossing("4");
}

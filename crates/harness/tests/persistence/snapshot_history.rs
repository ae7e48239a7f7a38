//! A snapshot is the history up to its position: random clients write while snapshots are taken,
//! and each must hold what the log up to there makes, as other servers load the two. Values of all
//! types and sizes, expiries, FLUSHALL and SWAPDB are among what is written; small and large
//! budgets are taken.
//!
//! `DUNLIN_SEED=17` takes the choices of that seed (clients meet as they will),
//! `DUNLIN_HISTORY_SECONDS=600` runs for so long (10 without it).

// A failed step is a failed test, in its helpers too.
#![allow(clippy::unwrap_used)]

mod compare;
mod rewrites;
mod saves;
mod writers;

use harness::client::ask;
use harness::environment::{new_seed, variable};
use harness::reply::Reply;
use harness::rng::Rng;
use harness::server::{Options, Program, Server};
use std::time::{Duration, Instant};

/// What a history amounted to.
#[derive(Default)]
struct Tally {
    /// Requests of the writers.
    requests: u64,
    /// Keys in the snapshots that were compared.
    keys: usize,
}

fn count_in_log(server: &Server, text: &str) -> usize {
    server.log().matches(text).count()
}

/// A server that keeps all files of its log, with the choices of a seed.
fn start(seed: u64, rng: &mut Rng) -> Server {
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
    Server::start(&Program::under_test(), options).unwrap()
}

/// Waits until the log has what happened up to now.
fn catch_up(server: &Server) {
    let mut client = server.client();
    ask(&mut client, &["SET", "end", "1"]);
    let written = ask(&mut client, &["WAITAOF", "1", "0", "0"]);
    assert_eq!(written.elements().map(<[Reply]>::len), Some(2));
}

/// A server that has ended and is to be started with other files again and again.
fn loader(arguments: &[&str]) -> Server {
    let mut loader = Server::start(&Program::under_test(), Options::arguments(arguments)).unwrap();
    loader.kill().unwrap();
    loader
}

/// A server that is to load logs. A cut in the middle of a command or transaction ends its start.
fn log_loader() -> Server {
    let log = ["--appendonly", "yes", "--aof-load-truncated", "no"];
    loader(&[&log[..], &["--auto-aof-rewrite-percentage", "0"]].concat())
}

/// Runs histories for as long as it is told, which load logs with `loader`.
fn run(mut loader: Server, mut one: impl FnMut(u64, &mut Server) -> Tally) {
    let seconds = variable("DUNLIN_HISTORY_SECONDS").unwrap_or(10);
    let until = Instant::now() + Duration::from_secs(seconds);
    let only = variable("DUNLIN_SEED");
    let (mut seed, mut histories, mut all) = (only.unwrap_or_else(new_seed), 0, Tally::default());
    while Instant::now() < until {
        let Tally { requests, keys } = one(seed, &mut loader);
        let log = loader.log();
        assert!(!log.contains(" failed: "), "DUNLIN_SEED={seed}: a command failed again:\n{log}");
        all.requests += requests;
        all.keys += keys;
        histories += 1;
        seed += u64::from(only.is_none());
    }
    let Tally { requests, keys } = all;
    assert!(keys > 0, "there was never anything in a snapshot");
    println!("{histories} histories of {requests} requests, {keys} keys in their snapshots");
}

#[test]
fn a_base_is_the_history_up_to_its_position() {
    run(log_loader(), rewrites::one);
}

#[test]
fn a_saved_file_is_the_history_up_to_its_position() {
    let mut files = loader(&[]);
    run(log_loader(), |seed, logs| saves::one(seed, logs, &mut files));
}

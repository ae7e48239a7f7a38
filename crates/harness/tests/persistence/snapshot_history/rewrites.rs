//! Rewrites of the log: each base must hold what the base before it and the increment between them
//! make together. Both forms of base are taken.

use super::compare::{assert_same, load, soon};
use super::writers::{beside_writers, fill};
use super::{Tally, ask, catch_up, count_in_log, start};
use harness::client::Client;
use harness::rng::Rng;
use harness::server::Server;
use harness::wait::eventually;
use std::fs;
use std::path::Path;
use std::sync::atomic::Ordering::Relaxed;

const REWRITES: usize = 3;

/// Has the log rewritten, and waits until that is done.
pub fn rewrite(server: &Server, client: &mut Client) {
    let done = || count_in_log(server, "AOF rewrite finished successfully");
    let before = done();
    assert!(!ask(client, &["BGREWRITEAOF"]).is_error());
    eventually("the rewrite", || {
        assert_eq!(count_in_log(server, "terminated with error"), 0, "{}", server.log());
        done() > before
    });
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

/// One server's history.
pub fn one(seed: u64, loader: &mut Server) -> Tally {
    let mut rng = Rng::new(seed);
    let mut server = start(seed, &mut rng);
    fill(&mut server.client());
    let requests = beside_writers(&server, &mut rng, |sent| {
        let mut client = server.client();
        for _ in 0..REWRITES {
            let before = sent.load(Relaxed);
            eventually("some writes", || sent.load(Relaxed) > before + 100);
            rewrite(&server, &mut client);
        }
    });
    // The log may be far behind the last snapshot yet, which has it all.
    catch_up(&server);
    server.kill().unwrap();
    let folder = server.directory().join("appendonlydir");
    let mut keys = 0;
    let bases = history(&folder);
    assert!(bases.len() == REWRITES + 1, "{bases:?}");
    for (number, pair) in bases.windows(2).enumerate() {
        let [(before, increments), (after, _)] = pair else { unreachable!("pairs") };
        let soon = soon();
        let history = load(loader, &folder, before, increments, soon);
        let snapshot = load(loader, &folder, after, &[], soon);
        let log: Vec<Vec<u8>> =
            increments.iter().map(|name| fs::read(folder.join(name)).unwrap()).collect();
        let what = format!("DUNLIN_SEED={seed}, rewrite {number}");
        assert_same(&what, &history, &snapshot, &log.concat());
        keys += snapshot.len();
    }
    Tally { requests, keys }
}

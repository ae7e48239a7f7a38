//! SAVE and BGSAVE: the file names its position, and must hold what the log up to there makes.
//!
//! Where that is in the log's files: the log is on from the start, so its first base is the empty
//! data set of position 0. Increments are the journal's bytes as they are (`aof-timestamp-enabled`,
//! which puts in others, is off), and each begins where the one before it ends. So a position is a
//! place in all of them together, in the order of their numbers. That is checked: their length is
//! the position that INFO has in the end, and a place inside a command could not be loaded.

use super::compare::{assert_same, load, soon, what_lasts};
use super::rewrites::rewrite;
use super::writers::{beside_writers, fill};
use super::{Tally, ask, catch_up, count_in_log, loader, start};
use harness::client::Client;
use harness::info::{field, fields};
use harness::rng::Rng;
use harness::server::{Program, Server};
use harness::wait::eventually;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::atomic::Ordering::Relaxed;

const SAVES: usize = 4;

/// Saves, while clients are served or while they wait. A FLUSHALL ends a save: then another one.
fn save(server: &Server, client: &mut Client, rng: &mut Rng) {
    if rng.chance(25) {
        eventually("a SAVE", || !ask(client, &["SAVE"]).is_error());
        return;
    }
    let done = || count_in_log(server, "Background saving terminated with success");
    let ended = || done() + count_in_log(server, "Background saving was cancelled");
    loop {
        let (done_before, ended_before) = (done(), ended());
        let reply = ask(client, &["BGSAVE"]);
        assert!(!reply.is_error(), "{reply:?}");
        eventually("the end of a save", || ended() > ended_before);
        if done() > done_before {
            return;
        }
    }
}

/// The moment that a file says it is of: the history's name, and a position in it.
fn moment(file: &Path) -> Option<(String, usize)> {
    let output = Program::under_test().subcommand("check").arg("rdb").arg(file).output().unwrap();
    let said = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(output.status.success(), "{said}");
    let field = |name: &str| {
        let (_, rest) = said.split_once(&format!("AUX FIELD {name} = '"))?;
        Some(rest.split_once('\'')?.0.to_owned())
    };
    assert_eq!(field("repl-id").is_some(), field("repl-stream-db").is_some(), "{said}");
    Some((field("repl-id")?, field("repl-offset")?.parse().unwrap()))
}

/// The first base, and all bytes that were ever logged behind it.
fn log_of(folder: &Path) -> (PathBuf, Vec<u8>) {
    let names = fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().file_name());
    let names: Vec<String> = names.map(|name| name.into_string().unwrap()).collect();
    let numbered = |name: &String| {
        let stem = name.strip_prefix("appendonly.aof.")?.strip_suffix(".incr.aof")?;
        Some((stem.parse::<u32>().unwrap(), name.clone()))
    };
    let mut increments: Vec<_> = names.iter().filter_map(numbered).collect();
    increments.sort();
    let base = names.iter().find(|name| name.starts_with("appendonly.aof.1.base.")).unwrap();
    // The first line of each says where in the history the file begins, and is no part of it.
    let history = |file: Vec<u8>| match file.windows(2).position(|bytes| bytes == b"\r\n") {
        Some(end) if file.starts_with(b"#REPL:") => file[end + 2..].to_vec(),
        _ => file,
    };
    let parts = increments.iter().map(|(_, name)| history(fs::read(folder.join(name)).unwrap()));
    (folder.join(base), parts.collect::<Vec<_>>().concat())
}

/// One server's history.
pub fn one(seed: u64, logs: &mut Server, files: &mut Server) -> Tally {
    const BASE: &str = "base";
    const CUT: &str = "cut.incr.aof";
    let mut rng = Rng::new(seed);
    let mut server = start(seed, &mut rng);
    fill(&mut server.client());
    let kept = server.directory().join("kept");
    fs::create_dir(&kept).unwrap();
    let mut choices = Rng::new(rng.bits());
    let requests = beside_writers(&server, &mut rng, |sent| {
        let mut client = server.client();
        for number in 0..SAVES {
            let before = sent.load(Relaxed);
            eventually("some writes", || sent.load(Relaxed) > before + 100);
            if choices.chance(30) {
                rewrite(&server, &mut client);
            }
            save(&server, &mut client, &mut choices);
            fs::copy(server.directory().join("dump.rdb"), kept.join(number.to_string())).unwrap();
        }
    });
    catch_up(&server);
    let mut client = server.client();
    let id = field(&mut client, "master_replid");
    let folder = server.directory().join("appendonlydir");
    // Keys may still expire.
    eventually("a log as long as the history", || {
        field(&mut client, "master_repl_offset") == log_of(&folder).1.len().to_string()
    });
    server.kill().unwrap();
    let (base, log) = log_of(&folder);
    fs::copy(base, kept.join(BASE)).unwrap();
    let (mut keys, mut last) = (0, 0);
    for number in 0..SAVES {
        let file = kept.join(number.to_string());
        let (history, position) = moment(&file).unwrap();
        assert_eq!(history, id);
        assert!(last < position && position <= log.len(), "{last} {position} {}", log.len());
        last = position;
        fs::write(kept.join(CUT), &log[..position]).unwrap();
        fs::copy(file, files.directory().join("dump.rdb")).unwrap();
        let soon = soon();
        let history = load(logs, &kept, BASE, &[CUT.to_owned()], soon);
        let saved = what_lasts(files, soon);
        let what = format!("DUNLIN_SEED={seed}, save {number} at {position}");
        assert_same(&what, &history, &saved, &log[..position]);
        keys += saved.len();
    }
    Tally { requests, keys }
}

#[test]
fn a_file_names_its_position_only_where_there_is_a_history() {
    let mut server = loader(&["--io-threads", "2"]);
    server.start_again().unwrap();
    let file = server.directory().join("dump.rdb");
    let mut client = server.client();
    let saved = |client: &mut Client| {
        ask(client, &["INCR", "n"]);
        assert!(!ask(client, &["SAVE"]).is_error());
        moment(&file)
    };
    let log_is_on = |client: &mut Client| {
        ask(client, &["CONFIG", "SET", "appendonly", "yes"]);
        eventually("a log", || {
            fields(client, ["aof_enabled", "aof_rewrite_in_progress"]) == ["1", "0"]
        });
    };
    assert_eq!(saved(&mut client), None);
    log_is_on(&mut client);
    let (first, at) = saved(&mut client).unwrap();
    let (again, later) = saved(&mut client).unwrap();
    assert_eq!(again, first);
    assert!(later > at);
    // What is not logged is part of no history, and what follows it of another one.
    ask(&mut client, &["CONFIG", "SET", "appendonly", "no"]);
    eventually("no history", || saved(&mut client).is_none());
    log_is_on(&mut client);
    let (second, _) = saved(&mut client).unwrap();
    assert_ne!(second, first);
    assert_eq!(second, field(&mut client, "master_replid"));
}

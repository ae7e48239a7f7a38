//! Saving while clients write, and saving that goes wrong: what a file holds is the state of one
//! instant, the reference server reads it, and whatever fails leaves the last good file.

// A failed step is a failed test, in its helpers too.
#![allow(clippy::unwrap_used)]

use harness::client::{Client, ask, ok};
use harness::info::field;
use harness::reply::Protocol;
use harness::server::{Options, Program, Server, signal};
use harness::wait::{SetAtEnd, eventually};
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::thread;
use std::time::Duration;

const COUNTERS: u64 = 100;
const BIG: u64 = 6_000;

fn start(arguments: &[&str]) -> Server {
    let mut all = vec!["--save", "", "--enable-debug-command", "yes"];
    all.extend(arguments);
    Server::start(&Program::under_test(), Options::arguments(&all)).unwrap()
}

fn number(client: &mut Client, request: &str) -> i64 {
    let reply = ask(client, request);
    reply.integer().or_else(|| reply.shown().parse().ok()).unwrap_or(0)
}

fn wait_for_save(client: &mut Client) {
    eventually("the end of the save", || field(client, "rdb_bgsave_in_progress") == "0");
}

/// Puts together what the writers then only move about.
fn fill(client: &mut Client) {
    for at in 0..COUNTERS {
        ok(client, &format!("SET counter:{at} 0"));
        ok(client, &format!("RPUSH list:{at} a b c d"));
    }
    for from in (0..BIG).step_by(500) {
        let words = |prefix: &str| {
            (from..from + 500).map(|at| format!(" {prefix}{at} 1")).collect::<String>()
        };
        ok(client, &format!("HSET hash{}", words("field:")));
        let pairs: String = (from..from + 500).map(|at| format!(" 1 member:{at}")).collect();
        ok(client, &format!("ZADD zset{pairs}"));
        let members: String = (from..from + 500).map(|at| format!(" member:{at}")).collect();
        ok(client, &format!("SADD left{members}"));
        ok(client, &format!("RPUSH biglist{members}"));
    }
    ok(client, "SADD right first");
}

/// Moves things about, each time in one step that leaves every sum what it was.
fn write(client: &mut Client, seed: u64, stop: &AtomicBool, done: &AtomicU64) {
    let mut state = seed;
    let mut random = |below: u64| {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        (state >> 33) % below
    };
    while !stop.load(Relaxed) {
        let (a, b, f, g) = (random(COUNTERS), random(COUNTERS), random(BIG), random(BIG));
        match random(6) {
            0 | 1 => {
                ok(client, "MULTI");
                ok(client, &format!("INCRBY counter:{a} 5"));
                ok(client, &format!("DECRBY counter:{b} 5"));
                ok(client, "EXEC");
            }
            2 => {
                ok(client, "MULTI");
                ok(client, &format!("HINCRBY hash field:{f} 3"));
                ok(client, &format!("HINCRBY hash field:{g} -3"));
                ok(client, "EXEC");
            }
            3 => {
                ok(client, "MULTI");
                ok(client, &format!("ZINCRBY zset 2 member:{f}"));
                ok(client, &format!("ZINCRBY zset -2 member:{g}"));
                ok(client, "EXEC");
            }
            4 => {
                let (from, to) = if a % 2 == 0 { ("left", "right") } else { ("right", "left") };
                ok(client, &format!("SMOVE {from} {to} member:{f}"));
            }
            _ if f % 50 == 0 => drop(ok(client, "LMOVE biglist biglist LEFT RIGHT")),
            _ => drop(ok(client, &format!("LMOVE list:{a} list:{b} LEFT RIGHT"))),
        }
        done.fetch_add(1, Relaxed);
    }
}

/// Whether all sums are what they were.
#[track_caller]
fn check(client: &mut Client, whose: &str) {
    let sum = |client: &mut Client, prefix: &str, command: &str| -> i64 {
        (0..COUNTERS).map(|at| number(client, &format!("{command} {prefix}:{at}"))).sum()
    };
    assert_eq!(sum(client, "counter", "GET"), 0, "{whose}: counters");
    assert_eq!(sum(client, "list", "LLEN"), 4 * COUNTERS as i64, "{whose}: lists");
    let values = ask(client, "HVALS hash");
    let values = values.elements().unwrap();
    let total: i64 = values.iter().map(|value| value.shown().parse::<i64>().unwrap()).sum();
    assert_eq!((values.len() as u64, total), (BIG, BIG as i64), "{whose}: the hash");
    let members = ask(client, "ZRANGE zset 0 -1 WITHSCORES");
    let scores = members.elements().unwrap().iter().skip(1).step_by(2);
    let total: i64 = scores.map(|score| score.shown().parse::<i64>().unwrap()).sum();
    assert_eq!(total, BIG as i64, "{whose}: the sorted set");
    let moved = number(client, "SCARD left") + number(client, "SCARD right");
    assert_eq!(moved, BIG as i64 + 1, "{whose}: the sets");
    assert_eq!(number(client, "LLEN biglist"), BIG as i64, "{whose}: the big list");
}

/// Loads a file into a server that is running.
fn load_into(server: &Server, file: &Path) {
    std::fs::copy(file, server.directory().join("dump.rdb")).unwrap();
    ok(&mut server.client(), "DEBUG RELOAD NOSAVE");
}

#[test]
fn a_file_is_the_state_of_one_instant_while_clients_write() {
    let readers = [
        Some(start(&[])),
        Program::reference_or_skip().map(|reference| {
            let arguments = Options::arguments(&["--save", "", "--enable-debug-command", "yes"]);
            Server::start(&reference, arguments).unwrap()
        }),
    ];
    // A small budget, so that writers have to wait as well.
    for limit in ["64mb", "16kb"] {
        let server = start(&["--snapshot-buffer-limit", limit, "--io-threads", "2"]);
        let mut client = server.client();
        fill(&mut client);
        let (stop, done) = (AtomicBool::new(false), AtomicU64::new(0));
        thread::scope(|scope| {
            let _over = SetAtEnd(&stop);
            for seed in 0..4 {
                let mut client = server.client();
                let (stop, done) = (&stop, &done);
                scope.spawn(move || write(&mut client, seed, stop, done));
            }
            for round in 0..2 {
                let before = done.load(Relaxed);
                eventually("some writes", || done.load(Relaxed) > before + 50);
                ok(&mut client, "BGSAVE");
                if round == 1 {
                    // A long value's stream is cut short, or a short one's is over already.
                    ask(&mut client, "BGSAVE CANCEL");
                    wait_for_save(&mut client);
                    ok(&mut client, "SAVE");
                }
                wait_for_save(&mut client);
                assert_eq!(field(&mut client, "rdb_last_bgsave_status"), "ok");
                for reader in readers.iter().flatten() {
                    load_into(reader, &server.directory().join("dump.rdb"));
                    check(&mut reader.client(), reader.program().name());
                }
            }
        });
        check(&mut client, "the server itself");
    }
}

#[test]
fn another_budget_holds_for_the_snapshot_under_way() {
    let server = start(&["--snapshot-buffer-limit", "1"]);
    let mut client = server.client();
    ok(&mut client, "DEBUG POPULATE 5000");
    // Its threads write nothing but what they begin with.
    ok(&mut client, "CONFIG SET rdb-key-save-delay 100000000");
    ok(&mut client, "BGSAVE");
    let is_done = AtomicBool::new(false);
    thread::scope(|scope| {
        scope.spawn(|| {
            let mut writer = server.client();
            (0..5000).for_each(|at| drop(ok(&mut writer, &format!("SET key:{at} x"))));
            is_done.store(true, Relaxed);
        });
        eventually("the budget is spent", || field(&mut client, "snapshot_buffer_bytes") != "0");
        ok(&mut client, "CONFIG SET snapshot-buffer-limit 64mb");
        eventually("the writes", || is_done.load(Relaxed));
    });
    ok(&mut client, "BGSAVE CANCEL");
    wait_for_save(&mut client);
}

#[test]
fn nothing_forks() {
    let wrapper = env!("CARGO_BIN_EXE_no_fork");
    let options = Options::arguments(&["--save", "", "--enable-debug-command", "yes"]);
    let mut server = Server::start(&Program::under_test().under(wrapper), options).unwrap();
    let mut client = server.client();
    ok(&mut client, "DEBUG POPULATE 1000");
    ok(&mut client, "BGSAVE");
    wait_for_save(&mut client);
    assert_eq!(field(&mut client, "rdb_last_bgsave_status"), "ok");
    ok(&mut client, "SAVE");
    ok(&mut client, "DEBUG RELOAD");
    server.restart().unwrap();
    assert_eq!(number(&mut server.client(), "DBSIZE"), 1000);
    // The filter does what it says.
    let forks = std::process::Command::new(wrapper).args(["sh", "-c", "ls; ls"]).output().unwrap();
    assert!(!forks.status.success());
}

#[test]
fn a_save_that_fails_leaves_the_last_good_file() {
    let server = start(&["--enable-protected-configs", "yes"]);
    let file = server.directory().join("dump.rdb");
    let temporary = server.directory().join(format!("temp-{}.rdb", server.process_id()));
    let mut client = server.client();
    ok(&mut client, "SET k v");
    ok(&mut client, "SAVE");
    let good = std::fs::read(&file).unwrap();
    ok(&mut client, "SET k w");
    client.command(&["CONFIG", "SET", "save", "3600 1000000"]).unwrap();
    let fails = |client: &mut Client| {
        ok(client, "BGSAVE");
        wait_for_save(client);
        assert_eq!(field(client, "rdb_last_bgsave_status"), "err");
        assert!(ask(client, "SET k x").shown().starts_with("MISCONF"), "writes are refused");
        assert!(ask(client, "PING").shown().starts_with("MISCONF"));
        assert_eq!(ask(client, "GET k").shown(), "w");
        assert_eq!(ask(client, "SAVE").shown(), "ERR");
        assert_eq!(ask(client, "SHUTDOWN").shown(), "ERR Errors trying to SHUTDOWN. Check logs.");
        assert_eq!(std::fs::read(&file).unwrap(), good);
    };
    let recovers = |client: &mut Client| {
        ok(client, "BGSAVE");
        wait_for_save(client);
        assert_eq!(field(client, "rdb_last_bgsave_status"), "ok");
        ok(client, "SET k w");
        std::fs::write(&file, &good).unwrap();
    };
    // The disk is full.
    std::os::unix::fs::symlink("/dev/full", &temporary).unwrap();
    ok(&mut client, "BGSAVE");
    wait_for_save(&mut client);
    assert_eq!(field(&mut client, "rdb_last_bgsave_status"), "err");
    server.logs("No space left on device");
    assert_eq!(std::fs::read(&file).unwrap(), good);
    // What was in the way was removed with the failed file.
    assert!(!temporary.exists());
    recovers(&mut client);
    // The file cannot be made.
    std::fs::create_dir(&temporary).unwrap();
    fails(&mut client);
    std::fs::remove_dir(&temporary).unwrap();
    recovers(&mut client);
    // It cannot be renamed.
    std::fs::create_dir(server.directory().join("folder")).unwrap();
    ok(&mut client, "CONFIG SET dbfilename folder");
    fails(&mut client);
    assert!(!temporary.exists());
    ok(&mut client, "CONFIG SET stop-writes-on-bgsave-error no");
    ok(&mut client, "SET k w");
    ok(&mut client, "CONFIG SET stop-writes-on-bgsave-error yes");
    ok(&mut client, "CONFIG SET dbfilename dump.rdb");
    recovers(&mut client);
}

#[test]
fn a_killed_server_keeps_the_old_file() {
    let server = start(&[]);
    let mut client = server.client();
    ok(&mut client, "SET k v");
    ok(&mut client, "SAVE");
    let file = server.directory().join("dump.rdb");
    let good = std::fs::read(&file).unwrap();
    ok(&mut client, "DEBUG POPULATE 5000");
    ok(&mut client, "CONFIG SET rdb-key-save-delay 10000");
    ok(&mut client, "BGSAVE");
    eventually("a part of the save", || field(&mut client, "current_save_keys_processed") != "0");
    signal(server.process_id(), "KILL").unwrap();
    eventually("the end", || client.command(&["PING"]).is_err());
    assert_eq!(std::fs::read(&file).unwrap(), good);
}

#[test]
fn a_snapshot_that_is_made_to_fail_leaves_nothing_behind() {
    let server = start(&["--save", "3600 1"]);
    let mut client = server.client();
    let temporary = server.directory().join(format!("temp-{}.rdb", server.process_id()));
    let begin = |client: &mut Client| {
        ok(client, "BGSAVE");
        eventually("the file", || temporary.exists());
    };
    assert!(ask(&mut client, "DEBUG SNAPSHOT-FAULT").shown().starts_with("ERR"));
    ok(&mut client, "SET k v");
    ok(&mut client, "CONFIG SET rdb-key-save-delay 100000000");
    begin(&mut client);
    ok(&mut client, "DEBUG SNAPSHOT-FAULT");
    wait_for_save(&mut client);
    assert_eq!(field(&mut client, "rdb_last_bgsave_status"), "err");
    assert!(!temporary.exists());
    assert!(ask(&mut client, "SET k x").shown().starts_with("MISCONF"));
    assert!(ask(&mut client, "INFO stats").shown().contains("total_forks:1\r\n"));
    // A server that goes down at once takes it along too, and no client gets in any more.
    begin(&mut client);
    assert!(client.command(&["SHUTDOWN", "NOSAVE"]).is_err());
    assert!(server.connect(Protocol::Resp2).is_err());
    eventually("the end of the file", || !temporary.exists());
}

#[test]
fn a_save_that_was_put_off_is_made() {
    let server = start(&["--appendonly", "yes", "--io-threads", "2"]);
    let mut client = server.client();
    let mut busy = server.client();
    for saves in 1..=15 {
        for request in ["MULTI", "BGSAVE", "BGREWRITEAOF", "EXEC"] {
            ok(&mut client, request);
        }
        // A snapshot begins when no command runs, so these lengthen the moment at which the rewrite
        // has its place already and is not under way yet. Whether a look at what was put off falls
        // into it is luck, so it is tried often.
        for _ in 0..3 {
            busy.send(&["DEBUG", "SLEEP", "0.1"]).unwrap();
        }
        (0..3).for_each(|_| drop(busy.reply().unwrap()));
        eventually("the save", || field(&mut client, "rdb_saves") == saves.to_string());
        wait_for_save(&mut client);
    }
}

#[test]
fn a_shutdown_saves_if_save_points_are_set() {
    for (save, keys) in [("3600 1", 1), ("", 0)] {
        let options = Options::arguments(&["--save", save]);
        let mut server = Server::start(&Program::under_test(), options).unwrap();
        ok(&mut server.client(), "SET k v");
        server.restart().unwrap();
        assert_eq!(number(&mut server.client(), "DBSIZE"), keys, "save {save:?}");
        ok(&mut server.client(), "CONFIG SET shutdown-on-sigterm nosave");
        ok(&mut server.client(), "SET k2 v");
        server.restart().unwrap();
        assert_eq!(number(&mut server.client(), "DBSIZE"), keys, "save {save:?}, nosave");
    }
}

#[test]
fn a_save_point_saves_and_flushall_saves_nothing() {
    let server = start(&[]);
    let mut client = server.client();
    ok(&mut client, "SET k v");
    assert_eq!(client.command(&["CONFIG", "SET", "save", "1 1"]).unwrap().shown(), "OK");
    eventually("the save", || field(&mut client, "rdb_saves") == "1");
    let full = std::fs::metadata(server.directory().join("dump.rdb")).unwrap().len();
    ok(&mut client, "FLUSHALL");
    eventually("the save of nothing", || field(&mut client, "rdb_saves") == "2");
    let empty = std::fs::metadata(server.directory().join("dump.rdb")).unwrap().len();
    assert!(empty < full, "{empty} bytes after {full}");
}

#[test]
fn flushall_ends_a_save_in_the_middle_of_a_value() {
    let server = start(&["--io-threads", "2", "--rdbcompression", "no"]);
    let mut client = server.client();
    // Of two mebibytes, which are streamed in pieces. The flush is to meet the moment between a
    // look at whether the save has ended and a piece, which takes luck; so it is tried often.
    let value = "0123456789abcdef".repeat(1 << 17);
    for round in 0..120 {
        for number in 0..4 {
            client.command(&["SET", &format!("big:{number}"), &value]).unwrap();
        }
        ok(&mut client, "BGSAVE");
        thread::sleep(Duration::from_millis(round % 10));
        let reply = client.command(&["FLUSHALL"]);
        assert!(reply.is_ok(), "round {round}, {reply:?}:\n{}", server.log());
        eventually("the end of the save", || field(&mut client, "rdb_bgsave_in_progress") == "0");
    }
    server.logs("Background saving was cancelled");
}

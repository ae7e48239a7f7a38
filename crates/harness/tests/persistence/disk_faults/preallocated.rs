//! Preallocated space ahead of the log that cannot be made, written past the page cache, or cut
//! off.

use crate::disk_faults::faults::{EINVAL, EIO, ENOSPC, Faults};
use crate::disk_faults::{check_list, crash, written};
use harness::client::{Client, ask, ok};
use harness::environment::has_preallocated_logs;
use harness::info::field;
use harness::server::Server;
use harness::wait::eventually;
use std::fs;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

fn log_file(server: &Server) -> PathBuf {
    server.directory().join("appendonlydir/appendonly.aof.1.incr.aof")
}

/// Writes until no more space is preallocated.
#[track_caller]
fn wait_for_preallocated(server: &Server, client: &mut Client, count: &mut usize, bytes: u64) {
    let whole = |path: &Path| {
        let log = fs::read(path).unwrap();
        let preallocated = log.iter().rev().take_while(|byte| matches!(byte, b'#' | b'\n')).count();
        preallocated as u64 >= bytes
    };
    eventually("room", || {
        ok(client, &format!("RPUSH list {count}"));
        *count += 1;
        whole(&log_file(server))
    });
}

#[test]
fn a_log_does_without_room_that_cannot_be_written() {
    if !has_preallocated_logs() {
        return;
    }
    const SAID: &str =
        "Can't write preallocated space ahead of the AOF file appendonly.aof.1.incr.aof: No space";
    let faults = Faults::new("no-room");
    faults.set(&[("room", ENOSPC, ".incr.aof")]);
    let began = Instant::now();
    let mut server = faults.start(&["--appendfsync", "always"]);
    let mut client = server.client();
    let mut count = 0;
    eventually(SAID, || {
        ok(&mut client, &format!("RPUSH list {count}"));
        count += 1;
        server.log().contains(SAID)
    });
    // It is tried again every second, without a word.
    let until = Instant::now() + Duration::from_millis(2500);
    while Instant::now() < until {
        ok(&mut client, &format!("RPUSH list {count}"));
        count += 1;
    }
    let (lines, seconds) = (server.log().matches(SAID).count() as u64, began.elapsed().as_secs());
    assert!(lines <= 1 + seconds / 30, "{lines} lines in {seconds} seconds");
    assert_eq!(field(&mut client, "aof_last_write_status"), "ok");
    crash(&mut server);
    check_list(&server, count);
    // The next server tries too.
    let mut client = server.client();
    let before = server.log();
    eventually(SAID, || {
        ok(&mut client, &format!("RPUSH list {count}"));
        count += 1;
        server.log()[before.len()..].contains(SAID)
    });
    faults.set(&[]);
    wait_for_preallocated(&server, &mut client, &mut count, 64 << 10);
    // What there is can be cut off although more of it could not be made a moment ago.
    faults.set(&[("room", ENOSPC, ".incr.aof")]);
    let before = server.log();
    eventually(SAID, || {
        ok(&mut client, &format!("SET large {}", "v".repeat(100_000)));
        server.log()[before.len()..].contains(SAID)
    });
    ok(&mut client, "CONFIG SET aof-preallocation-size 0");
    let log = fs::read(log_file(&server)).unwrap();
    assert!(log.ends_with(b"\r\n"), "there is room");
    crash(&mut server);
    check_list(&server, count);
}

#[test]
fn a_log_without_direct_writes_is_appended_to() {
    let faults = Faults::new("no-direct");
    faults.set(&[("direct", EINVAL, ".incr.aof")]);
    let mut server = faults.start(&["--appendfsync", "always"]);
    let mut client = server.client();
    for count in 0..100 {
        ok(&mut client, &format!("RPUSH list {count}"));
    }
    let log = fs::read(log_file(&server)).unwrap();
    // The first line says where in the history the file begins.
    let annotations = log.iter().filter(|byte| **byte == b'#').count();
    assert!(log.starts_with(b"#REPL:") && annotations == 1, "{}", log.escape_ascii());
    assert!(log.ends_with(b"\r\n"), "{}", log.escape_ascii());
    crash(&mut server);
    check_list(&server, 100);
}

#[test]
fn room_that_cannot_be_cut_off_is_a_failed_write() {
    if !has_preallocated_logs() {
        return;
    }
    let faults = Faults::new("room-stays");
    let mut server = faults.start(&["--appendfsync", "always"]);
    let mut client = server.client();
    let mut count = 0;
    wait_for_preallocated(&server, &mut client, &mut count, 64 << 10);
    faults.set(&[("truncate", EIO, ".incr.aof")]);
    ok(&mut client, "CONFIG SET appendfsync everysec");
    let refusal = loop {
        let reply = ask(&mut client, &format!("RPUSH list {count}"));
        if reply.is_error() {
            break reply.shown();
        }
        count += 1;
    };
    assert!(
        refusal.starts_with("MISCONF Errors writing to the AOF file: Input/output"),
        "{refusal}"
    );
    assert_eq!(field(&mut client, "aof_last_write_status"), "err");
    let before = server.log();
    faults.set(&[]);
    server.logs_after(&before, "AOF write error looks solved");
    ok(&mut client, &format!("RPUSH list {count}"));
    count += 1;
    written(server.directory(), &mut client);
    let log = fs::read(log_file(&server)).unwrap();
    assert!(log.ends_with(b"\r\n"), "the room is behind what was written");
    crash(&mut server);
    check_list(&server, count);
    // With `always` there is no way on for a batch that has to be appended.
    let mut client = server.client();
    wait_for_preallocated(&server, &mut client, &mut count, 64 << 10);
    faults.set(&[("truncate", EIO, ".incr.aof")]);
    let reply = client.command(&["SET", "large", &"v".repeat(300_000)]);
    assert!(reply.is_err(), "{reply:?}");
    let said = "Can't recover from AOF write error when the AOF fsync policy is 'always'";
    server.logs(said);
    faults.set(&[]);
    crash(&mut server);
    check_list(&server, count);
}

#[test]
fn while_there_is_room_nobody_waits_for_more_of_it() {
    if !has_preallocated_logs() {
        return;
    }
    const ROOM: u64 = 1 << 20;
    let faults = Faults::new("stuck-room");
    let arguments = ["--appendfsync", "always", "--aof-preallocation-size", "1mb"];
    let mut server = faults.start(&arguments);
    let mut client = server.client();
    let mut count = 0;
    wait_for_preallocated(&server, &mut client, &mut count, ROOM - (64 << 10));
    faults.set(&[("stuck-room", 0, ".incr.aof")]);
    let size = || fs::metadata(log_file(&server)).unwrap().len();
    let before = size();
    // More is wanted when half of it is used.
    let value = "v".repeat(10_000);
    for number in 0..ROOM * 3 / 4 / 10_000 {
        ok(&mut client, &format!("SET key:{number} {value}"));
    }
    assert_eq!(size(), before, "somebody has made room");
    // Then the writer has to know where that ends which is being made.
    let mut number = 0;
    eventually("it waits", || {
        client.send(&["SET", &format!("more:{number}"), &value]).unwrap();
        let is_answered = client.message_within(Duration::from_millis(500)).is_ok();
        number += u64::from(is_answered);
        !is_answered
    });
    let mut reader = server.client();
    ok(&mut reader, "GET key:0");
    faults.set(&[]);
    assert!(!client.reply().unwrap().is_error());
    crash(&mut server);
    check_list(&server, count);
    let keys = 1 + ROOM * 3 / 4 / 10_000 + number + 1;
    assert_eq!(ask(&mut server.client(), "DBSIZE").shown(), keys.to_string());
}

//! Writes and fsyncs of the log that fail or do not end.

use crate::disk_faults::faults::{EIO, ENOSPC, Faults};
use crate::disk_faults::{DONE, check_list, crash, written};
use harness::client::{ask, ok};
use harness::info::field;
use harness::wait::eventually;
use std::io::{Read, Write};
use std::net::{Shutdown, TcpStream};
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::time::Duration;

#[test]
fn everysec_refuses_writes_while_fsync_fails_and_then_writes_all_anew() {
    let faults = Faults::new("everysec");
    let mut server = faults.start(&[]);
    let mut client = server.client();
    ok(&mut client, "RPUSH list 0");
    let mut acknowledged = 1;
    faults.set(&[("fsync", EIO, ".incr.aof")]);
    let before = server.log();
    let refusal = loop {
        let reply = ask(&mut client, &format!("RPUSH list {acknowledged}"));
        if reply.is_error() {
            break reply.shown();
        }
        acknowledged += 1;
        std::thread::sleep(Duration::from_millis(10));
    };
    assert!(refusal.starts_with("MISCONF Errors writing to the AOF file: "), "{refusal}");
    assert_eq!(ask(&mut client, "LLEN list").shown(), acknowledged.to_string(), "reads go on");
    server
        .logs_after(&before, "Fail to fsync the AOF file appendonly.aof.1.incr.aof: Input/output");
    assert_eq!(field(&mut client, "aof_last_write_status"), "err");
    let before = server.log();
    faults.set(&[]);
    server.logs_after(&before, "The append-only file will be rewritten");
    server.logs_after(&before, DONE);
    ok(&mut client, &format!("RPUSH list {acknowledged}"));
    written(server.directory(), &mut client);
    crash(&mut server);
    check_list(&server, acknowledged + 1);
}

#[test]
fn always_ends_rather_than_acknowledge_what_is_not_on_the_disk() {
    for (call, error, said) in [
        ("fsync", EIO, "Can't persist AOF for fsync error when the AOF fsync policy is 'always'"),
        (
            "write",
            ENOSPC,
            "Can't recover from AOF write error when the AOF fsync policy is 'always'",
        ),
    ] {
        let faults = Faults::new(&format!("always-{call}"));
        let mut server = faults.start(&["--appendfsync", "always"]);
        let mut client = server.client();
        for number in 0..20 {
            ok(&mut client, &format!("RPUSH list {number}"));
        }
        faults.set(&[(call, error, ".incr.aof")]);
        let reply = client.command(&["RPUSH", "list", "20"]);
        assert!(reply.is_err(), "{call}: {reply:?}\n{}", server.log());
        server.logs(said);
        server.logs("appendonly.aof.1.incr.aof");
        faults.set(&[]);
        server.kill().unwrap();
        server.start_again().unwrap();
        // What was not acknowledged may be there: it was written, and an fsync may come too late.
        let there = ask(&mut server.client(), "LLEN list").shown().parse().unwrap();
        assert!((20..=21).contains(&there), "{there}");
        check_list(&server, there);
    }
}

#[test]
fn always_holds_from_the_first_reply_on() {
    let faults = Faults::new("first");
    // Nothing can be written, so nothing may be acknowledged.
    faults.set(&[("write", ENOSPC, ".incr.aof")]);
    for _ in 0..5 {
        let server = faults.start(&["--appendfsync", "always"]);
        let reply = server.client().command(&["SET", "k", "v"]);
        assert!(reply.is_err(), "at start: {reply:?}\n{}", server.log());
    }
    for _ in 0..5 {
        let server = faults.start(&[]);
        let mut client = server.client();
        ok(&mut client, "CONFIG SET appendfsync always");
        let reply = client.command(&["SET", "k", "v"]);
        assert!(reply.is_err(), "CONFIG SET: {reply:?}\n{}", server.log());
    }
}

#[test]
fn with_everysec_writes_wait_for_a_file_that_lags_and_reads_do_not() {
    let faults = Faults::new("lag-everysec");
    let server = faults.start(&[]);
    let (mut writer, mut client) = (server.client(), server.client());
    ok(&mut client, "RPUSH list 0");
    faults.set(&[("stuck-write", 0, ".incr.aof")]);
    let refused = std::thread::scope(|scope| {
        let writes = scope.spawn(move || {
            loop {
                let reply = ask(&mut writer, "RPUSH list x");
                if reply.is_error() {
                    return reply.shown();
                }
            }
        });
        let mut waits = |times: &str| {
            eventually("writes wait", || field(&mut client, "aof_held_writes") == times);
            let len = ask(&mut client, "LLEN list");
            let more = ask(&mut client, "LLEN list");
            assert_eq!(len, more, "writes go on");
            assert_eq!(field(&mut client, "aof_last_write_status"), "ok");
            len
        };
        let before = waits("1");
        faults.set(&[]);
        eventually("writes go on", || ask(&mut server.client(), "LLEN list") != before);
        faults.set(&[("stuck-write", 0, ".incr.aof")]);
        waits("2");
        // What waits is told when the write fails.
        faults.set(&[("write", EIO, ".incr.aof")]);
        writes.join().expect("it is refused")
    });
    assert!(refused.starts_with("MISCONF Errors writing to the AOF file: "), "{refused}");
}

#[test]
fn what_a_client_sent_before_its_end_waits_with_it() {
    let faults = Faults::new("lag-ends");
    let server = faults.start(&[]);
    let mut client = server.client();
    faults.set(&[("stuck-write", 0, ".incr.aof")]);
    let mut other = TcpStream::connect(("127.0.0.1", server.port())).expect("it listens");
    let has_ended = AtomicBool::new(false);
    let mut writer = server.client();
    std::thread::scope(|scope| {
        scope.spawn(|| {
            while !has_ended.load(Relaxed) {
                ok(&mut writer, "RPUSH list x");
            }
        });
        eventually("writes wait", || field(&mut client, "aof_held_writes") == "1");
        other.write_all(b"RPUSH held a\r\nRPUSH held b\r\n").expect("it takes them");
        other.shutdown(Shutdown::Write).expect("it is open");
        eventually("both have come", || {
            let list = ask(&mut client, "CLIENT LIST");
            String::from_utf8_lossy(list.text().unwrap_or_default()).contains(" qbuf=28 ")
        });
        faults.set(&[]);
        let mut replies = String::new();
        other.read_to_string(&mut replies).expect("it is answered");
        has_ended.store(true, Relaxed);
        assert_eq!(replies, ":1\r\n:2\r\n");
    });
}

#[test]
fn with_everysec_nobody_waits_for_a_stuck_disk() {
    let faults = Faults::new("stuck-everysec");
    let mut server = faults.start(&[]);
    let mut client = server.client();
    ok(&mut client, "RPUSH list 0");
    faults.set(&[("stuck-fsync", 0, ".incr.aof")]);
    let before = server.log();
    let mut acknowledged = 1;
    let said = "Asynchronous AOF fsync is taking too long";
    eventually(said, || {
        ok(&mut client, &format!("RPUSH list {acknowledged}"));
        acknowledged += 1;
        server.log()[before.len()..].contains(said)
    });
    assert_eq!(field(&mut client, "aof_delayed_fsync"), "1");
    assert_eq!(field(&mut client, "aof_pending_bio_fsync"), "1");
    assert_eq!(field(&mut client, "aof_last_write_status"), "ok");
    // What is acknowledged is in the file, if not on the disk: the server's end does not take it.
    written(server.directory(), &mut client);
    crash(&mut server);
    check_list(&server, acknowledged);
    // And it is forced to the disk once that is possible again.
    faults.set(&[]);
    let mut client = server.client();
    ok(&mut client, &format!("RPUSH list {acknowledged}"));
    eventually("no fsync under way", || field(&mut client, "aof_pending_bio_fsync") == "0");
}

#[test]
fn a_log_that_cannot_be_completed_is_not_loaded() {
    let faults = Faults::new("loadaof");
    let server = faults.start(&["--enable-debug-command", "local"]);
    let mut client = server.client();
    ok(&mut client, "RPUSH list 0");
    written(server.directory(), &mut client);
    faults.set(&[("write", ENOSPC, ".incr.aof")]);
    ok(&mut client, "RPUSH list 1");
    // Before the server knows of the fault, and when it does.
    for _ in 0..2 {
        let reply = ask(&mut client, "DEBUG LOADAOF");
        assert_eq!(reply.shown(), "ERR Error trying to load the AOF files, check server logs.");
        check_list(&server, 2);
    }
    server.logs("append-only file is incomplete: No space left on device");
    let memory = ask(&mut client, "INFO memory").shown();
    assert!(
        memory.contains("mem_aof_buffer:") && !memory.contains("mem_aof_buffer:0\r"),
        "{memory}"
    );
    faults.set(&[]);
    eventually("written", || field(&mut client, "aof_last_write_status") == "ok");
    ok(&mut client, "DEBUG LOADAOF");
    check_list(&server, 2);
    assert!(ask(&mut client, "INFO memory").shown().contains("mem_aof_buffer:0\r"));
}

#[test]
fn a_server_that_loads_its_log_anew_may_be_stopped() {
    let faults = Faults::new("stop-loadaof");
    let mut server = faults.start(&["--enable-debug-command", "local"]);
    let mut client = server.client();
    faults.set(&[("stuck-write", 0, ".incr.aof")]);
    ok(&mut client, "RPUSH list 0");
    client.send(&["DEBUG", "LOADAOF"]).unwrap();
    let mut other = server.client();
    eventually("loading", || field(&mut other, "loading") == "1");
    let status = std::thread::scope(|scope| {
        let server = &mut server;
        let stopping = scope.spawn(|| server.terminate().unwrap());
        // It is going down, and the log can be loaded only now.
        eventually("no more clients", || other.command(&["PING"]).is_err());
        faults.set(&[]);
        stopping.join().unwrap()
    });
    assert!(status.success(), "{status}, {}", server.log());
    server.start_again().unwrap();
    check_list(&server, 1);
}

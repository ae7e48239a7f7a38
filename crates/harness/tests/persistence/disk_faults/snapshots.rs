//! Saves and rewrites: what cannot be written, forced or renamed changes nothing.

use crate::disk_faults::faults::{EIO, ENOSPC, Faults};
use crate::disk_faults::{DONE, FAILED, check_list, crash, has_file, rewrite, written};
use harness::client::{ask, ok};
use harness::info::field;
use harness::server::Server;
use harness::wait::eventually;
use std::fs;

#[test]
fn a_snapshot_that_cannot_be_forced_to_the_disk_is_none() {
    let faults = Faults::new("snapshot");
    let server = faults.start(&["--appendonly", "no", "--save", "3600 1000000"]);
    let file = server.directory().join("dump.rdb");
    let mut client = server.client();
    ok(&mut client, "SET k old");
    ok(&mut client, "SAVE");
    let good = fs::read(&file).unwrap();
    for (fault, said) in [
        (("fsync", EIO, "temp-"), "Failed writing the temp RDB file"),
        (("write", ENOSPC, "temp-"), "Failed writing the temp RDB file"),
        (("rename", EIO, "dump.rdb"), "Error moving temp DB file"),
    ] {
        let before = server.log();
        ok(&mut client, "SET k new");
        faults.set(&[fault]);
        ok(&mut client, "BGSAVE");
        eventually("the end", || field(&mut client, "rdb_bgsave_in_progress") == "0");
        assert_eq!(field(&mut client, "rdb_last_bgsave_status"), "err", "{fault:?}");
        assert!(ask(&mut client, "SET k x").shown().starts_with("MISCONF"));
        assert_eq!(fs::read(&file).unwrap(), good, "{fault:?}");
        let temporary = server.directory().join(format!("temp-{}.rdb", server.process_id()));
        server.logs_after(&before, &format!("{said} {}", temporary.display()));
        assert!(!temporary.exists(), "{fault:?}");
        faults.set(&[]);
        ok(&mut client, "SAVE");
        fs::write(&file, &good).unwrap();
    }
}

#[test]
fn a_snapshot_that_is_ended_while_it_is_forced_to_the_disk_replaces_nothing() {
    let faults = Faults::new("ended-snapshot");
    let server = faults.start(&["--appendonly", "no", "--save", ""]);
    let folder = server.directory();
    let mut client = server.client();
    ok(&mut client, "SET k old");
    ok(&mut client, "SAVE");
    let good = fs::read(folder.join("dump.rdb")).unwrap();
    let temporary = folder.join(format!("temp-{}.rdb", server.process_id()));
    for end in ["BGSAVE CANCEL", "FLUSHALL"] {
        ok(&mut client, "SET k new");
        faults.set(&[("stuck-fsync", 0, "temp-")]);
        ok(&mut client, "BGSAVE");
        // It has its last bytes.
        eventually("all but the disk", || {
            fs::read(&temporary).is_ok_and(|bytes| bytes.len() >= good.len())
        });
        ok(&mut client, end);
        faults.set(&[]);
        eventually("the end", || field(&mut client, "rdb_bgsave_in_progress") == "0");
        assert!(fs::read(folder.join("dump.rdb")).unwrap() == good, "{end}");
        assert!(!temporary.exists(), "{end}");
        assert_eq!(field(&mut client, "rdb_last_bgsave_status"), "ok", "{end}");
    }
}

/// The directory of the log has the manifest and what that names, and no other file.
#[track_caller]
fn nothing_is_left_behind(server: &Server) {
    let folder = server.directory().join("appendonlydir");
    let manifest = fs::read_to_string(folder.join("appendonly.aof.manifest")).unwrap();
    for entry in fs::read_dir(folder).unwrap().flatten() {
        let name = entry.file_name().into_string().unwrap();
        let is_named = manifest.contains(&format!("file {name} seq"));
        assert!(is_named || name == "appendonly.aof.manifest", "{name} is left behind");
    }
}

#[test]
fn a_rewrite_that_fails_anywhere_changes_nothing() {
    let faults = Faults::new("rewrite");
    let mut server = faults.start(&[]);
    let mut client = server.client();
    let mut count = 0;
    for fault in [
        ("write", ENOSPC, "temp-rewriteaof"),
        ("fsync", EIO, "temp-rewriteaof"),
        ("rename", EIO, "base.rdb"),
        ("write", ENOSPC, "temp-appendonly.aof.manifest"),
        ("fsync", EIO, "temp-appendonly.aof.manifest"),
        ("rename", EIO, "appendonly.aof.manifest"),
        ("fsync", EIO, "appendonlydir$"),
    ] {
        // As the rewrite begins, and when the base is complete.
        for delay in ["0", "100000"] {
            ok(&mut client, &format!("RPUSH list {count}"));
            ok(&mut client, &format!("CONFIG SET rdb-key-save-delay {delay}"));
            count += 1;
            let before = server.log();
            if delay == "0" {
                faults.set(&[fault]);
            }
            ok(&mut client, "BGREWRITEAOF");
            if delay != "0" {
                server.logs_after(&before, "Background append only file rewriting started");
                faults.set(&[fault]);
            }
            server.logs_after(&before, FAILED);
            eventually("over", || field(&mut client, "aof_rewrite_in_progress") == "0");
            nothing_is_left_behind(&server);
            ok(&mut client, &format!("RPUSH list {count}"));
            count += 1;
            faults.set(&[]);
            written(server.directory(), &mut client);
            // Killed there, or going on: rewritten again over what the failure left.
            if count % 4 == 0 {
                crash(&mut server);
                client = server.client();
                check_list(&server, count);
            }
            ok(&mut client, "CONFIG SET rdb-key-save-delay 0");
            rewrite(&server, &mut client, DONE);
            crash(&mut server);
            client = server.client();
            check_list(&server, count);
        }
    }
}

#[test]
fn a_rewrite_whose_log_was_switched_off_has_not_failed() {
    let faults = Faults::new("stuck-base");
    let server = faults.start(&["--io-threads", "2"]);
    let (mut client, mut other) = (server.client(), server.client());
    faults.set(&[("stuck-fsync", 0, "temp-rewriteaof-bg-")]);
    let before = server.log();
    ok(&mut client, "BGREWRITEAOF");
    eventually("the base is written", || has_file(&server, "temp-rewriteaof-bg-"));
    client.send(&["CONFIG", "SET", "appendonly", "no"]).unwrap();
    eventually("switched off", || field(&mut other, "aof_enabled") == "0");
    faults.set(&[]);
    assert_eq!(client.reply().unwrap().shown(), "OK");
    server.logs_after(&before, "Background AOF rewrite was cancelled");
    assert_eq!(field(&mut other, "aof_last_bgrewrite_status"), "ok");
    assert_eq!(field(&mut other, "aof_rewrites_consecutive_failures"), "0");
}

#[test]
fn a_rewrite_that_waits_is_forgotten_when_the_log_is_switched_off() {
    let faults = Faults::new("scheduled");
    let server = faults.start(&["--appendonly", "no"]);
    let mut client = server.client();
    faults.set(&[("stuck-fsync", 0, ".rdb")]);
    ok(&mut client, "SET k v");
    ok(&mut client, "BGSAVE");
    ok(&mut client, "CONFIG SET appendonly yes");
    assert_eq!(field(&mut client, "aof_rewrite_scheduled"), "1");
    ok(&mut client, "CONFIG SET appendonly no");
    assert_eq!(field(&mut client, "aof_rewrite_scheduled"), "0");
    faults.set(&[]);
    eventually("saved", || field(&mut client, "rdb_bgsave_in_progress") == "0");
}

#[test]
fn a_stuck_disk_may_be_two_rewrites_behind() {
    let faults = Faults::new("stuck-write");
    let mut server = faults.start(&[]);
    let mut client = server.client();
    faults.set(&[("stuck-write", 0, ".1.incr.aof")]);
    for number in 0..4 {
        // A write waits until what the file lacks is in a base.
        ok(&mut client, &format!("RPUSH list {number}"));
        rewrite(&server, &mut client, DONE);
    }
    ok(&mut client, "RPUSH list 4");
    faults.set(&[]);
    written(server.directory(), &mut client);
    crash(&mut server);
    check_list(&server, 5);
}

//! A log that is switched on: until the manifest that names its first base is on the disk, it is
//! none.

use crate::disk_faults::faults::{EIO, ENOSPC, Faults};
use crate::disk_faults::{FAILED, has_file, written};
use harness::client::{Client, ask, ok};
use harness::info::field;
use harness::server::Server;
use harness::wait::{eventually, until_not_rewriting};
use std::fs;

/// Switches the log on. Its first base has its name, and the disk is stuck with the manifest.
fn begin_up_to_the_manifest(faults: &Faults, server: &Server, client: &mut Client) {
    faults.set(&[("stuck-fsync", 0, "temp-rewriteaof-bg-")]);
    ok(client, "CONFIG SET appendonly yes");
    eventually("the base is written", || has_file(server, "temp-rewriteaof-bg-"));
    faults.set(&[("stuck-fsync", 0, ".manifest")]);
    eventually("the base is there", || has_file(server, "temp-appendonly.aof.manifest"));
    assert!(has_file(server, "appendonly.aof.1.base.rdb"));
}

#[test]
fn a_log_that_is_killed_as_it_becomes_one_can_begin_again() {
    let faults = Faults::new("killed-beginning");
    for at_start in [false, true] {
        let mut server = faults.start(&["--appendonly", "no"]);
        let mut client = server.client();
        ok(&mut client, "SET k v");
        begin_up_to_the_manifest(&faults, &server, &mut client);
        server.kill().unwrap();
        faults.set(&[]);
        let folder = server.directory().to_str().unwrap();
        let is_on = if at_start { "yes" } else { "no" };
        let next = faults.start(&["--dir", folder, "--appendonly", is_on]);
        client = next.client();
        ok(&mut client, "CONFIG SET appendonly yes");
        until_not_rewriting(&mut client);
        written(server.directory(), &mut client);
        assert!(!has_file(&server, "temp-"), "what says that there is no log yet is gone");
    }
}

#[test]
fn a_log_is_none_before_its_manifest_is_on_the_disk() {
    let faults = Faults::new("unsure-manifest");
    let server = faults.start(&["--appendonly", "no", "--appendfsync", "always"]);
    let mut client = server.client();
    begin_up_to_the_manifest(&faults, &server, &mut client);
    let before = server.log();
    faults.set(&[("fsync", EIO, "appendonlydir$")]);
    server.logs_after(&before, "Fail to fsync AOF directory");
    server.logs_after(&before, FAILED);
    ok(&mut client, "SET k v");
    let is_safe = |client: &mut Client| {
        ask(client, "WAITAOF 1 0 10").elements().unwrap()[0].integer() == Some(1)
    };
    assert!(!is_safe(&mut client), "the machine may lose the log");
    faults.set(&[]);
    eventually("it is one", || {
        // An attempt may be under way already.
        ask(&mut client, "BGREWRITEAOF");
        is_safe(&mut client)
    });
}

#[test]
fn a_log_that_is_switched_off_as_it_becomes_one_can_be_switched_on() {
    for on_again_meanwhile in [false, true] {
        let faults = Faults::new(&format!("stuck-manifest-{on_again_meanwhile}"));
        let server = faults.start(&["--appendonly", "no", "--io-threads", "2"]);
        let (mut client, mut other) = (server.client(), server.client());
        begin_up_to_the_manifest(&faults, &server, &mut client);
        client.send(&["CONFIG", "SET", "appendonly", "no"]).unwrap();
        eventually("switched off", || field(&mut other, "aof_enabled") == "0");
        if on_again_meanwhile {
            ok(&mut other, "CONFIG SET appendonly yes");
        }
        faults.set(&[]);
        assert_eq!(client.reply().unwrap().shown(), "OK");
        if !on_again_meanwhile {
            assert_eq!(field(&mut other, "aof_enabled"), "0");
            ok(&mut other, "CONFIG SET appendonly yes");
        }
        written(server.directory(), &mut client);
    }
}

#[test]
fn a_first_base_that_is_not_installed_leaves_no_file_of_a_log() {
    let faults = Faults::new("first-base");
    for fault in [
        ("rename", EIO, "appendonly.aof.1.incr.aof"),
        ("write", ENOSPC, "temp-appendonly.aof.manifest"),
        ("rename", EIO, "appendonly.aof.manifest"),
    ] {
        let mut server = faults.start(&["--appendonly", "no"]);
        let mut client = server.client();
        ok(&mut client, "SET k v");
        faults.set(&[fault]);
        let before = server.log();
        ok(&mut client, "CONFIG SET appendonly yes");
        server.logs_after(&before, FAILED);
        ok(&mut client, "CONFIG SET appendonly no");
        eventually("over", || field(&mut client, "aof_rewrite_in_progress") == "0");
        faults.set(&[]);
        let entries = fs::read_dir(server.directory().join("appendonlydir")).unwrap().flatten();
        let names: Vec<_> = entries.map(|entry| entry.file_name()).collect();
        let is_part = |name: &str| name.ends_with(".rdb") || name.ends_with(".incr.aof");
        assert!(!names.iter().any(|name| is_part(&name.to_string_lossy())), "{fault:?}: {names:?}");
        // They would keep the next server from starting.
        server.kill().unwrap();
        let folder = server.directory().to_str().unwrap();
        let next = faults.start(&["--dir", folder]);
        ok(&mut next.client(), "SET k v");
    }
}

#[test]
fn a_log_without_its_first_base_says_that_it_waits_for_it() {
    let faults = Faults::new("no-base");
    let server = faults.start(&["--appendonly", "no"]);
    let mut client = server.client();
    faults.set(&[("rename", EIO, "base.rdb")]);
    let before = server.log();
    ok(&mut client, "CONFIG SET appendonly yes");
    server.logs_after(&before, "has repeatedly failed and triggered the limit");
    let fields = ["aof_enabled", "aof_rewrite_in_progress", "aof_rewrite_scheduled"];
    assert_eq!(fields.map(|name| field(&mut client, name)), ["1", "0", "1"]);
    // Where the failures are forgotten, the waits are too.
    for forgets in [&["CONFIG RESETSTAT"][..], &["MULTI", "BGREWRITEAOF", "EXEC"]] {
        let before = server.log();
        for request in forgets {
            ok(&mut client, *request);
        }
        server.logs_after(&before, "has repeatedly failed and triggered the limit");
        assert_eq!(field(&mut client, "aof_rewrites_consecutive_failures"), "3", "{forgets:?}");
    }
    faults.set(&[]);
    ok(&mut client, "BGREWRITEAOF");
    until_not_rewriting(&mut client);
}

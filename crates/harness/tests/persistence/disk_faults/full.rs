//! Full disks, small ones in memory.

use crate::disk_faults::{DONE, FAILED, crash, rewrite, written};
use harness::client::{Client, ask, ok};
use harness::info::field;
use harness::server::{Options, Program, Server};
use harness::small_disk::SmallDisk;
use harness::wait::eventually;
use std::fs;
use std::path::PathBuf;
use std::time::Duration;

fn small_disk(name: &str) -> Option<SmallDisk> {
    SmallDisk::new(name, "6m")
}

/// Takes room, to be given back.
fn ballast(disk: &SmallDisk) -> PathBuf {
    let path = disk.path().join("ballast");
    fs::write(&path, vec![1; 2 << 20]).unwrap();
    path
}

/// Writes until that is refused; how many there are then, and the refusal.
fn write_until_refused(client: &mut Client, mut count: usize) -> (usize, String) {
    let value = "v".repeat(20_000);
    loop {
        match client.command(&["SET", &format!("key:{count}"), &value]) {
            Ok(reply) if reply.is_error() => return (count, reply.shown()),
            Ok(_) => count += 1,
            Err(error) => return (count, format!("gone: {error}")),
        }
        assert!(count < 10_000, "the disk is never full");
        std::thread::sleep(Duration::from_millis(1));
    }
}

#[track_caller]
fn check_keys(server: &Server, count: usize) {
    let mut client = server.client();
    for number in 0..count {
        let length = ask(&mut client, &format!("STRLEN key:{number}")).shown();
        assert_eq!(length, "20000", "key {number} of {count}");
    }
}

fn start_on(disk: &SmallDisk, arguments: &[&str]) -> Server {
    let folder = disk.path().to_str().unwrap();
    let mut all = vec!["--appendonly", "yes", "--rdbcompression", "no", "--dir", folder];
    all.extend(arguments);
    Server::start(&Program::under_test(), Options::arguments(&all)).unwrap()
}

#[test]
fn a_full_disk_refuses_writes_until_there_is_room() {
    let Some(disk) = small_disk("everysec") else { return };
    let ballast = ballast(&disk);
    let mut server = start_on(&disk, &[]);
    let mut client = server.client();
    let (mut count, refusal) = write_until_refused(&mut client, 0);
    assert!(
        refusal.starts_with("MISCONF Errors writing to the AOF file: No space left"),
        "{refusal}"
    );
    server.logs("appendonly.aof.1.incr.aof");
    assert_eq!(field(&mut client, "aof_last_write_status"), "err");
    check_keys(&server, count);
    // Neither a save nor a rewrite has room; both say so, and leave none of it behind.
    ok(&mut client, "BGSAVE");
    eventually("the end", || field(&mut client, "rdb_bgsave_in_progress") == "0");
    assert_eq!(field(&mut client, "rdb_last_bgsave_status"), "err");
    rewrite(&server, &mut client, FAILED);
    assert!(!disk.path().join("dump.rdb").exists());
    let left = || fs::read_dir(disk.path()).unwrap().flatten();
    assert!(left().all(|entry| !entry.file_name().to_string_lossy().ends_with(".rdb")));
    // With room again everything that was acknowledged is written.
    let before = server.log();
    fs::remove_file(&ballast).unwrap();
    server.logs_after(&before, "AOF write error looks solved");
    written(disk.path(), &mut client);
    crash(&mut server);
    check_keys(&server, count);
    // Full again, and killed: what was on the disk is there, and the server starts without room.
    let ballast = disk.path().join("ballast");
    let mut client = server.client();
    ok(&mut client, "SET marker 1");
    written(disk.path(), &mut client);
    let safe = count;
    (count, _) = write_until_refused(&mut client, count);
    let fill = fs::write(&ballast, vec![1; 2 << 20]);
    assert!(fill.is_err(), "there is room left");
    crash(&mut server);
    check_keys(&server, safe);
    let mut client = server.client();
    assert!(count >= safe);
    fs::remove_file(&ballast).unwrap();
    ok(&mut client, "FLUSHALL");
    rewrite(&server, &mut client, DONE);
    let (more, _) = write_until_refused(&mut client, 0);
    assert!(more > 100, "the room was not given back: {more}");
}

#[test]
fn always_keeps_what_it_acknowledged_on_a_full_disk() {
    let Some(disk) = small_disk("always") else { return };
    let ballast = ballast(&disk);
    let mut server = start_on(&disk, &["--appendfsync", "always"]);
    let (count, refusal) = write_until_refused(&mut server.client(), 0);
    assert!(refusal.starts_with("gone: "), "{refusal}");
    let said = "Can't recover from AOF write error when the AOF fsync policy is 'always'";
    server.logs(said);
    fs::remove_file(&ballast).unwrap();
    crash(&mut server);
    check_keys(&server, count);
    ok(&mut server.client(), "SET k v");
}

#[test]
fn a_rewrite_that_makes_room_ends_the_trouble_of_a_full_disk() {
    let Some(disk) = small_disk("rewrite") else { return };
    let ballast = |number: usize| disk.path().join(format!("ballast:{number}"));
    for number in 0..16 {
        fs::write(ballast(number), [1; 16 << 10]).unwrap();
    }
    let mut server = start_on(&disk, &["--auto-aof-rewrite-percentage", "0"]);
    let mut client = server.client();
    // The log would be larger than the disk, the data set is small.
    let value = "v".repeat(4 << 20);
    ok(&mut client, "MULTI");
    for value in [&value, &value, "small"] {
        client.command(&["SET", "k", value]).unwrap();
    }
    ok(&mut client, "EXEC");
    eventually("full", || field(&mut client, "aof_last_write_status") == "err");
    // The base takes a little room. What is given back is too little for what could not be written.
    let is_rewritten = (0..16).any(|number| {
        fs::remove_file(ballast(number)).unwrap();
        ok(&mut client, "BGREWRITEAOF");
        eventually("over", || field(&mut client, "aof_rewrite_in_progress") == "0");
        field(&mut client, "aof_last_bgrewrite_status") == "ok"
    });
    assert!(is_rewritten, "{}", server.log());
    eventually("it writes again", || field(&mut client, "aof_last_write_status") == "ok");
    ok(&mut client, "SET after 1");
    written(disk.path(), &mut client);
    crash(&mut server);
    let mut client = server.client();
    assert_eq!(ask(&mut client, "GET k").shown(), "small");
    assert_eq!(ask(&mut client, "GET after").shown(), "1");
    ok(&mut client, &format!("SET k {value}"));
}

/// Waits until a snapshot has ended. Returns how it has.
fn snapshot(client: &mut Client) -> String {
    ok(client, "BGSAVE");
    eventually("the end", || field(client, "rdb_bgsave_in_progress") == "0");
    field(client, "rdb_last_bgsave_status")
}

#[test]
fn a_snapshot_without_room_leaves_the_old_one_and_stops_writes_until_one_succeeds() {
    let Some(disk) = small_disk("snapshot") else { return };
    let mut server = start_on(&disk, &["--appendonly", "no", "--save", "3600 1000000"]);
    let mut client = server.client();
    let value = "v".repeat(20_000);
    (0..120).for_each(|number| drop(ok(&mut client, &["SET", &format!("key:{number}"), &value])));
    assert_eq!(snapshot(&mut client), "ok");
    let file = disk.path().join("dump.rdb");
    let before = fs::read(&file).unwrap();
    // A second one of this size has no room beside the first.
    let ballast = ballast(&disk);
    let log = server.log();
    assert_eq!(snapshot(&mut client), "err");
    server.logs_after(&log, "No space left on device");
    assert!(fs::read(&file).unwrap() == before, "the old snapshot is whole");
    let refusal = ask(&mut client, "SET k v").shown();
    assert!(refusal.starts_with("MISCONF"), "{refusal}");
    check_keys(&server, 120);
    fs::remove_file(&ballast).unwrap();
    assert_eq!(snapshot(&mut client), "ok");
    ok(&mut client, "SET k v");
    crash(&mut server);
    check_keys(&server, 120);
}

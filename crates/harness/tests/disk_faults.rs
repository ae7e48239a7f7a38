//! Disks that fail while the server runs: full ones (a small tmpfs) and ones that refuse single
//! calls or do not come back from them (a library that is loaded first and does what a file tells it
//! to). Writes are refused and accepted again, what was acknowledged is there after a crash, the log
//! names file and cause, and nobody waits for the disk who was not promised anything.

// A failed step is a failed test, in its helpers too.
#![allow(clippy::unwrap_used)]

use harness::client::Client;
use harness::environment::has_room_ahead_of_logs;
use harness::info::field;
use harness::preload::Preload;
use harness::reply::{Protocol, Reply};
use harness::server::{Options, Program, Server};
use harness::wait::{eventually, until_not_rewriting};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::{AtomicU32, Ordering::Relaxed};
use std::time::{Duration, Instant};

/// The library: a call fails if a line of the file `DISK_FAULTS` has its name, an error number, and
/// a part of the path it is about, at the path's end if a `$` is behind it. As long as there is such
/// a line with `stuck-fsync` or `stuck-write`, whatever the number, such a call does not end. `room` and
/// `stuck-room` are the writes of the thread that makes room ahead of a log, `direct` those past the page cache.
const LIBRARY: &str = r#"
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <unistd.h>

static int fails(const char *call, int fd, const char *path) {
    const char *file = getenv("DISK_FAULTS");
    int saved = errno, number, in;
    char text[2048], target[4096], link[64], name[32], part[512], *line, *rest = text;
    if (!file || (in = syscall(SYS_openat, AT_FDCWD, file, O_RDONLY)) < 0) return errno = saved, 0;
    ssize_t len = syscall(SYS_read, in, text, sizeof text - 1);
    syscall(SYS_close, in);
    text[len < 0 ? 0 : len] = 0;
    if (!path) {
        snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
        len = readlink(link, target, sizeof target - 1);
        target[len < 0 ? 0 : len] = 0;
        path = target;
    }
    while ((line = strsep(&rest, "\n"))) {
        if (sscanf(line, "%31s %d %511s", name, &number, part) != 3 || strcmp(name, call)) continue;
        size_t size = strlen(part), all = strlen(path);
        int at_end = part[size - 1] == '$';
        if (at_end) part[--size] = 0;
        if (at_end ? all >= size && !strcmp(path + all - size, part) : !!strstr(path, part)) {
            errno = number;
            return 1;
        }
    }
    errno = saved;
    return 0;
}

static int force(int fd, long call) {
    while (fails("stuck-fsync", fd, 0)) usleep(5000);
    return fails("fsync", fd, 0) ? -1 : (int)syscall(call, fd);
}

int fsync(int fd) { return force(fd, SYS_fsync); }
int fdatasync(int fd) { return force(fd, SYS_fdatasync); }
ssize_t write(int fd, const void *bytes, size_t count) {
    while (fails("stuck-write", fd, 0)) usleep(5000);
    return fails("write", fd, 0) ? -1 : syscall(SYS_write, fd, bytes, count);
}
static int makes_room(void) {
    char name[16];
    return !prctl(PR_GET_NAME, name) && !strcmp(name, "aof-fsync");
}

ssize_t pwrite(int fd, const void *bytes, size_t count, off_t at) {
    if ((fcntl(fd, F_GETFL) & O_DIRECT) && fails("direct", fd, 0)) return -1;
    if (makes_room()) {
        while (fails("stuck-room", fd, 0)) usleep(5000);
        if (fails("room", fd, 0)) return -1;
    }
    while (fails("stuck-write", fd, 0)) usleep(5000);
    return fails("write", fd, 0) ? -1 : syscall(SYS_pwrite64, fd, bytes, count, at);
}
ssize_t pwrite64(int fd, const void *bytes, size_t count, off_t at) {
    return pwrite(fd, bytes, count, at);
}
int ftruncate(int fd, off_t size) {
    return fails("truncate", fd, 0) ? -1 : (int)syscall(SYS_ftruncate, fd, size);
}
int ftruncate64(int fd, off_t size) { return ftruncate(fd, size); }
int rename(const char *from, const char *to) {
    return fails("rename", 0, to) ? -1 : (int)syscall(SYS_renameat, AT_FDCWD, from, AT_FDCWD, to);
}
"#;

const ENOSPC: i32 = 28;
const EIO: i32 = 5;
const EINVAL: i32 = 22;

/// A disk whose calls can be made to fail.
struct Faults {
    library: Preload,
    program: Program,
}

impl Faults {
    fn new(name: &str) -> Faults {
        let library = Preload::build(&format!("faults-{name}"), LIBRARY);
        let list = library.folder().join("list");
        let program = library.under(&Program::under_test(), &[("DISK_FAULTS", &list)]);
        Faults { library, program }
    }

    /// From now on these calls fail, and no others.
    fn set(&self, lines: &[(&str, i32, &str)]) {
        let text: String =
            lines.iter().map(|(call, error, path)| format!("{call} {error} {path}\n")).collect();
        let new = self.library.folder().join("new");
        fs::write(&new, text).unwrap();
        fs::rename(new, self.library.folder().join("list")).unwrap();
    }

    fn start(&self, arguments: &[&str]) -> Server {
        let mut all = vec!["--appendonly", "yes", "--auto-aof-rewrite-percentage", "0"];
        all.extend(arguments);
        Server::start(&self.program, Options::arguments(&all)).unwrap()
    }
}

fn connect(server: &Server) -> Client {
    server.connect(Protocol::Resp2).unwrap()
}

fn ask(client: &mut Client, request: &str) -> Reply {
    client.command(&request.split(' ').collect::<Vec<_>>()).unwrap()
}

#[track_caller]
fn ok(client: &mut Client, request: &str) {
    let reply = ask(client, request);
    assert!(!reply.is_error(), "{request}: {reply:?}");
}

fn text(reply: &Reply) -> String {
    reply.integer().map_or_else(
        || String::from_utf8_lossy(reply.text().unwrap_or_default()).into_owned(),
        |number| number.to_string(),
    )
}

/// Waits for another line of the log than those there were `before`.
#[track_caller]
fn hears(server: &Server, before: &str, line: &str) {
    eventually(line, || server.log()[before.len()..].contains(line));
}

fn rewrite(server: &Server, client: &mut Client, end: &str) {
    let before = server.log();
    ok(client, "BGREWRITEAOF");
    hears(server, &before, end);
    eventually("over", || field(client, "aof_rewrite_in_progress") == "0");
}

const DONE: &str = "Background AOF rewrite finished successfully";
const FAILED: &str = "Background AOF rewrite terminated with error";

/// The list has an element for each acknowledged write, in order, and none twice.
#[track_caller]
fn check_list(server: &Server, count: usize) {
    let reply = ask(&mut connect(server), "LRANGE list 0 -1");
    let found: Vec<String> = reply.elements().unwrap().iter().map(text).collect();
    let wanted: Vec<String> = (0..count).map(|number| number.to_string()).collect();
    assert_eq!(found, wanted);
}

/// Waits until all that was acknowledged is in the log (not necessarily on the disk).
#[track_caller]
fn written(folder: &Path, client: &mut Client) {
    static COUNT: AtomicU32 = AtomicU32::new(0);
    let token = format!("token:{}.", COUNT.fetch_add(1, Relaxed));
    ok(client, &format!("SET {token} 1"));
    let holds = |path: PathBuf| {
        let bytes = fs::read(path).unwrap_or_default();
        bytes.windows(token.len()).any(|part| part == token.as_bytes())
    };
    eventually("written", || {
        let files = fs::read_dir(folder.join("appendonlydir")).unwrap().flatten();
        files.map(|entry| entry.path()).any(holds)
    });
}

fn crash(server: &mut Server) {
    server.kill().unwrap();
    server.start_again().unwrap();
}

#[test]
fn everysec_refuses_writes_while_fsync_fails_and_then_writes_all_anew() {
    let faults = Faults::new("everysec");
    let mut server = faults.start(&[]);
    let mut client = connect(&server);
    ok(&mut client, "RPUSH list 0");
    let mut acknowledged = 1;
    faults.set(&[("fsync", EIO, ".incr.aof")]);
    let before = server.log();
    let refusal = loop {
        let reply = ask(&mut client, &format!("RPUSH list {acknowledged}"));
        if reply.is_error() {
            break text(&reply);
        }
        acknowledged += 1;
        std::thread::sleep(Duration::from_millis(10));
    };
    assert!(refusal.starts_with("MISCONF Errors writing to the AOF file: "), "{refusal}");
    assert_eq!(text(&ask(&mut client, "LLEN list")), acknowledged.to_string(), "reads go on");
    hears(&server, &before, "Fail to fsync the AOF file appendonly.aof.1.incr.aof: Input/output");
    assert_eq!(field(&mut client, "aof_last_write_status"), "err");
    let before = server.log();
    faults.set(&[]);
    hears(&server, &before, "The append-only file will be rewritten");
    hears(&server, &before, DONE);
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
        let mut client = connect(&server);
        (0..20).for_each(|number| ok(&mut client, &format!("RPUSH list {number}")));
        faults.set(&[(call, error, ".incr.aof")]);
        let reply = client.command(&["RPUSH", "list", "20"]);
        assert!(reply.is_err(), "{call}: {reply:?}\n{}", server.log());
        eventually(said, || server.log().contains(said));
        assert!(server.log().contains("appendonly.aof.1.incr.aof"), "{}", server.log());
        faults.set(&[]);
        server.kill().unwrap();
        server.start_again().unwrap();
        // What was not acknowledged may be there: it was written, and an fsync may come too late.
        let there = text(&ask(&mut connect(&server), "LLEN list")).parse().unwrap();
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
        let reply = connect(&server).command(&["SET", "k", "v"]);
        assert!(reply.is_err(), "at start: {reply:?}\n{}", server.log());
    }
    for _ in 0..5 {
        let server = faults.start(&[]);
        let mut client = connect(&server);
        ok(&mut client, "CONFIG SET appendfsync always");
        let reply = client.command(&["SET", "k", "v"]);
        assert!(reply.is_err(), "CONFIG SET: {reply:?}\n{}", server.log());
    }
}

#[test]
fn with_everysec_nobody_waits_for_a_stuck_disk() {
    let faults = Faults::new("stuck-everysec");
    let mut server = faults.start(&[]);
    let mut client = connect(&server);
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
    let mut client = connect(&server);
    ok(&mut client, &format!("RPUSH list {acknowledged}"));
    eventually("no fsync under way", || field(&mut client, "aof_pending_bio_fsync") == "0");
}

#[test]
fn a_log_that_cannot_be_completed_is_not_loaded() {
    let faults = Faults::new("loadaof");
    let server = faults.start(&["--enable-debug-command", "local"]);
    let mut client = connect(&server);
    ok(&mut client, "RPUSH list 0");
    written(server.directory(), &mut client);
    faults.set(&[("write", ENOSPC, ".incr.aof")]);
    ok(&mut client, "RPUSH list 1");
    // Before the server knows of the fault, and when it does.
    for _ in 0..2 {
        let reply = ask(&mut client, "DEBUG LOADAOF");
        assert_eq!(text(&reply), "ERR Error trying to load the AOF files, check server logs.");
        check_list(&server, 2);
    }
    hears(&server, "", "append-only file is incomplete: No space left on device");
    let memory = text(&ask(&mut client, "INFO memory"));
    assert!(
        memory.contains("mem_aof_buffer:") && !memory.contains("mem_aof_buffer:0\r"),
        "{memory}"
    );
    faults.set(&[]);
    eventually("written", || field(&mut client, "aof_last_write_status") == "ok");
    ok(&mut client, "DEBUG LOADAOF");
    check_list(&server, 2);
    assert!(text(&ask(&mut client, "INFO memory")).contains("mem_aof_buffer:0\r"));
}

#[test]
fn a_server_that_loads_its_log_anew_may_be_stopped() {
    let faults = Faults::new("stop-loadaof");
    let mut server = faults.start(&["--enable-debug-command", "local"]);
    let mut client = connect(&server);
    faults.set(&[("stuck-write", 0, ".incr.aof")]);
    ok(&mut client, "RPUSH list 0");
    client.send(&["DEBUG", "LOADAOF"]).unwrap();
    let mut other = connect(&server);
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

#[test]
fn a_stuck_disk_may_be_two_rewrites_behind() {
    let faults = Faults::new("stuck-write");
    let mut server = faults.start(&[]);
    let mut client = connect(&server);
    faults.set(&[("stuck-write", 0, ".1.incr.aof")]);
    for number in 0..4 {
        ok(&mut client, &format!("RPUSH list {number}"));
        if number > 0 {
            rewrite(&server, &mut client, DONE);
        }
    }
    ok(&mut client, "RPUSH list 4");
    faults.set(&[]);
    written(server.directory(), &mut client);
    crash(&mut server);
    check_list(&server, 5);
}

/// Whether the directory of the log has a file whose name begins so.
fn has_file(server: &Server, name: &str) -> bool {
    let files = fs::read_dir(server.directory().join("appendonlydir"));
    let mut names = files.into_iter().flatten().flatten().map(|entry| entry.file_name());
    names.any(|file| file.to_string_lossy().starts_with(name))
}

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
        let mut client = connect(&server);
        ok(&mut client, "SET k v");
        begin_up_to_the_manifest(&faults, &server, &mut client);
        server.kill().unwrap();
        faults.set(&[]);
        let folder = server.directory().to_str().unwrap();
        let is_on = if at_start { "yes" } else { "no" };
        let next = faults.start(&["--dir", folder, "--appendonly", is_on]);
        client = connect(&next);
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
    let mut client = connect(&server);
    begin_up_to_the_manifest(&faults, &server, &mut client);
    let before = server.log();
    faults.set(&[("fsync", EIO, "appendonlydir$")]);
    hears(&server, &before, "Fail to fsync AOF directory");
    hears(&server, &before, FAILED);
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
        let (mut client, mut other) = (connect(&server), connect(&server));
        begin_up_to_the_manifest(&faults, &server, &mut client);
        client.send(&["CONFIG", "SET", "appendonly", "no"]).unwrap();
        eventually("switched off", || field(&mut other, "aof_enabled") == "0");
        if on_again_meanwhile {
            ok(&mut other, "CONFIG SET appendonly yes");
        }
        faults.set(&[]);
        assert_eq!(text(&client.reply().unwrap()), "OK");
        if !on_again_meanwhile {
            assert_eq!(field(&mut other, "aof_enabled"), "0");
            ok(&mut other, "CONFIG SET appendonly yes");
        }
        written(server.directory(), &mut client);
    }
}

#[test]
fn a_rewrite_whose_log_was_switched_off_has_not_failed() {
    let faults = Faults::new("stuck-base");
    let server = faults.start(&["--io-threads", "2"]);
    let (mut client, mut other) = (connect(&server), connect(&server));
    faults.set(&[("stuck-fsync", 0, "temp-rewriteaof-bg-")]);
    let before = server.log();
    ok(&mut client, "BGREWRITEAOF");
    eventually("the base is written", || has_file(&server, "temp-rewriteaof-bg-"));
    client.send(&["CONFIG", "SET", "appendonly", "no"]).unwrap();
    eventually("switched off", || field(&mut other, "aof_enabled") == "0");
    faults.set(&[]);
    assert_eq!(text(&client.reply().unwrap()), "OK");
    hears(&server, &before, "Background AOF rewrite was cancelled");
    assert_eq!(field(&mut other, "aof_last_bgrewrite_status"), "ok");
    assert_eq!(field(&mut other, "aof_rewrites_consecutive_failures"), "0");
}

#[test]
fn a_rewrite_that_waits_is_forgotten_when_the_log_is_switched_off() {
    let faults = Faults::new("scheduled");
    let server = faults.start(&["--appendonly", "no"]);
    let mut client = connect(&server);
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
fn with_always_only_what_is_not_on_the_disk_waits_for_a_stuck_disk() {
    let faults = Faults::new("stuck-always");
    let mut server = faults.start(&["--appendfsync", "always", "--io-threads", "2"]);
    let mut writers: Vec<Client> = (0..6).map(|_| connect(&server)).collect();
    let mut readers: Vec<Client> = (0..5).map(|_| connect(&server)).collect();
    let mut reader = connect(&server);
    for number in 0..readers.len() {
        ok(&mut reader, &format!("SET before:{number} 1"));
    }
    faults.set(&[("stuck-fsync", 0, ".incr.aof")]);
    for (number, writer) in writers.iter_mut().enumerate() {
        writer.send(&["SET", &format!("key:{number}"), "1"]).unwrap();
    }
    eventually("all writes done", || field(&mut reader, "db0").starts_with("keys=11,"));
    // Who sees what the writers have not been told waits as they do.
    reader.send(&["GET", "key:0"]).unwrap();
    for (number, reader) in readers.iter_mut().enumerate() {
        reader.send(&["GET", &format!("before:{number}")]).unwrap();
    }
    // Of a thousand stripes it is hardly those of three of them that wait.
    eventually("the others are told", || {
        readers.iter_mut().map(|reader| u32::from(reader.has_data().unwrap())).sum::<u32>() > 2
    });
    for _ in 0..20 {
        std::thread::sleep(Duration::from_millis(2));
        assert!(writers.iter_mut().all(|writer| !writer.has_data().unwrap()), "told too early");
        assert!(!reader.has_data().unwrap(), "seen too early");
    }
    // The disk comes back: now they are told, and what they were told lasts.
    faults.set(&[]);
    writers.iter_mut().for_each(|writer| assert_eq!(text(&writer.reply().unwrap()), "OK"));
    readers.iter_mut().for_each(|reader| assert_eq!(text(&reader.reply().unwrap()), "1"));
    assert_eq!(text(&reader.reply().unwrap()), "1");
    crash(&mut server);
    assert_eq!(text(&ask(&mut connect(&server), "DBSIZE")), "11");
}

#[test]
fn with_always_who_waits_for_a_stuck_disk_is_not_idle() {
    let faults = Faults::new("stuck-idle");
    // One thread looks at both clients in the same round.
    let server = faults.start(&["--appendfsync", "always", "--io-threads", "1"]);
    let (mut writer, mut idle) = (connect(&server), connect(&server));
    ok(&mut idle, "CONFIG SET timeout 1");
    faults.set(&[("stuck-fsync", 0, ".incr.aof")]);
    writer.send(&["SET", "k", "v"]).unwrap();
    eventually("done", || field(&mut idle, "rdb_changes_since_last_save") == "1");
    assert!(idle.reply().is_err(), "who waits for nothing and has been here for less long is idle");
    faults.set(&[]);
    assert_eq!(text(&writer.reply().unwrap()), "OK");
}

#[test]
fn with_always_nobody_waits_for_a_log_that_was_switched_off_before() {
    let faults = Faults::new("stuck-off");
    let server = faults.start(&["--appendfsync", "always", "--io-threads", "2"]);
    let (mut writer, mut client, mut other) =
        (connect(&server), connect(&server), connect(&server));
    faults.set(&[("stuck-fsync", 0, ".incr.aof")]);
    writer.send(&["SET", "before", "1"]).unwrap();
    eventually("done", || field(&mut other, "rdb_changes_since_last_save") == "1");
    client.send(&["CONFIG", "SET", "appendonly", "no"]).unwrap();
    eventually("switched off", || field(&mut other, "aof_enabled") == "0");
    ok(&mut other, "SET after 1");
    assert!(!writer.has_data().unwrap() && !client.has_data().unwrap(), "these are in the log");
    faults.set(&[]);
    assert_eq!(text(&writer.reply().unwrap()), "OK");
    assert_eq!(text(&client.reply().unwrap()), "OK");
}

#[test]
fn what_was_written_before_always_is_not_seen_before_it_is_on_the_disk() {
    let faults = Faults::new("before-always");
    let server = faults.start(&["--appendfsync", "no", "--io-threads", "2"]);
    let mut client = connect(&server);
    ok(&mut client, "SET k w");
    written(server.directory(), &mut client);
    faults.set(&[("stuck-fsync", 0, ".incr.aof")]);
    ok(&mut client, "CONFIG SET appendfsync always");
    let mut readers: Vec<Client> = (0..6).map(|_| connect(&server)).collect();
    readers.iter_mut().for_each(|reader| reader.send(&["GET", "k"]).unwrap());
    for _ in 0..20 {
        std::thread::sleep(Duration::from_millis(2));
        assert!(readers.iter_mut().all(|reader| !reader.has_data().unwrap()), "seen too early");
    }
    faults.set(&[]);
    readers.iter_mut().for_each(|reader| assert_eq!(text(&reader.reply().unwrap()), "w"));
}

#[test]
fn with_always_nobody_is_told_of_what_is_not_on_the_disk() {
    let faults = Faults::new("stuck-messages");
    let always = ["--appendfsync", "always", "--io-threads", "2"];
    let server = faults.start(&[&always[..], &["--notify-keyspace-events", "KEA"]].concat());
    let (mut writer, mut observer) = (connect(&server), connect(&server));
    ok(&mut writer, "SET key 1");
    // On both threads: those who hear of events, have read the key, or are told of every key.
    let mut told: Vec<Client> = (0..6).map(|_| server.connect(Protocol::Resp3).unwrap()).collect();
    for (number, client) in told.iter_mut().enumerate() {
        match number % 3 {
            0 => {
                client.send(&["PSUBSCRIBE", "__keyevent*"]).unwrap();
                client.message().unwrap();
            }
            1 => {
                ok(client, "CLIENT TRACKING ON");
                ask(client, "GET key");
            }
            _ => ok(client, "CLIENT TRACKING ON BCAST"),
        }
    }
    let mut monitor = connect(&server);
    ok(&mut monitor, "MONITOR");
    // Changes, and how many messages each kind of listener gets.
    let rounds: [(&[&str], u32, [usize; 3]); 3] = [
        (&["SET key 2"], 1, [1, 1, 1]),
        (&["MULTI", "SET key 3", "DEBUG SLEEP 0.1", "SET key 4", "EXEC"], 2, [2, 1, 1]),
        (&["FLUSHALL"], 1, [0, 1, 1]),
    ];
    for (requests, changes, messages) in rounds {
        let reads = |client: &mut Client| assert!(!ask(client, "GET key").is_error());
        told.iter_mut().skip(1).step_by(3).for_each(reads);
        let writes = |client: &mut Client| {
            field(client, "rdb_changes_since_last_save").parse::<u32>().unwrap()
        };
        let before = writes(&mut observer);
        faults.set(&[("stuck-fsync", 0, ".incr.aof")]);
        for request in requests {
            let words: Vec<&str> = request.split(' ').collect();
            writer.send(&words).unwrap();
        }
        eventually("done", || writes(&mut observer) == before + changes);
        for _ in 0..20 {
            std::thread::sleep(Duration::from_millis(2));
            let hears = told.iter_mut().position(|client| client.has_data().unwrap());
            assert_eq!(hears, None, "told too early of {requests:?}");
        }
        assert!(monitor.has_data().unwrap(), "MONITOR waits for nothing");
        faults.set(&[]);
        for (number, client) in told.iter_mut().enumerate() {
            for _ in 0..messages[number % 3] {
                let message = client.message().unwrap();
                assert!(matches!(message, Reply::Push(_)), "{number} heard {message:?}");
            }
        }
        requests.iter().for_each(|_| drop(writer.reply().unwrap()));
    }
}

#[test]
fn with_always_nobody_sees_an_eviction_that_is_not_on_the_disk() {
    let faults = Faults::new("stuck-eviction");
    let arguments = ["--appendfsync", "always", "--maxmemory-policy", "allkeys-random"];
    let server = faults.start(&arguments);
    let (mut client, mut reader) = (connect(&server), connect(&server));
    ok(&mut client, "SET key value");
    faults.set(&[("stuck-fsync", 0, ".incr.aof")]);
    ok(&mut client, "CONFIG SET maxmemory 1");
    eventually("evicted", || field(&mut client, "evicted_keys") == "1");
    reader.send(&["GET", "key"]).unwrap();
    for _ in 0..20 {
        std::thread::sleep(Duration::from_millis(2));
        assert!(!reader.has_data().unwrap(), "seen too early");
    }
    faults.set(&[]);
    assert_eq!(reader.reply().unwrap(), Reply::Nil);
}

fn log_file(server: &Server) -> PathBuf {
    server.directory().join("appendonlydir/appendonly.aof.1.incr.aof")
}

/// Writes until there is room ahead of the log that nobody makes any more.
#[track_caller]
fn wait_for_room(server: &Server, client: &mut Client, count: &mut usize, bytes: u64) {
    let whole = |path: &Path| {
        let log = fs::read(path).unwrap();
        let room = log.iter().rev().take_while(|byte| matches!(byte, b'#' | b'\n')).count();
        room as u64 >= bytes
    };
    eventually("room", || {
        ok(client, &format!("RPUSH list {count}"));
        *count += 1;
        whole(&log_file(server))
    });
}

#[test]
fn a_log_does_without_room_that_cannot_be_written() {
    if !has_room_ahead_of_logs() {
        return;
    }
    const SAID: &str = "Can't write room ahead of the AOF file appendonly.aof.1.incr.aof: No space";
    let faults = Faults::new("no-room");
    faults.set(&[("room", ENOSPC, ".incr.aof")]);
    let began = Instant::now();
    let mut server = faults.start(&["--appendfsync", "always"]);
    let mut client = connect(&server);
    let mut count = 0;
    eventually(SAID, || {
        ok(&mut client, &format!("RPUSH list {count}"));
        count += 1;
        server.log().contains(SAID)
    });
    for _ in 0..300 {
        ok(&mut client, &format!("RPUSH list {count}"));
        count += 1;
    }
    let (lines, seconds) = (server.log().matches(SAID).count() as u64, began.elapsed().as_secs());
    assert!(lines <= 1 + seconds, "{lines} lines in {seconds} seconds");
    assert_eq!(field(&mut client, "aof_last_write_status"), "ok");
    crash(&mut server);
    check_list(&server, count);
    // It is tried again.
    let mut client = connect(&server);
    let before = server.log();
    eventually(SAID, || {
        ok(&mut client, &format!("RPUSH list {count}"));
        count += 1;
        server.log()[before.len()..].contains(SAID)
    });
    faults.set(&[]);
    wait_for_room(&server, &mut client, &mut count, 64 << 10);
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
    let mut client = connect(&server);
    for count in 0..100 {
        ok(&mut client, &format!("RPUSH list {count}"));
    }
    let log = fs::read(log_file(&server)).unwrap();
    assert!(log.ends_with(b"\r\n") && !log.contains(&b'#'), "{}", log.escape_ascii());
    crash(&mut server);
    check_list(&server, 100);
}

#[test]
fn room_that_cannot_be_cut_off_is_a_failed_write() {
    if !has_room_ahead_of_logs() {
        return;
    }
    let faults = Faults::new("room-stays");
    let mut server = faults.start(&["--appendfsync", "always"]);
    let mut client = connect(&server);
    let mut count = 0;
    wait_for_room(&server, &mut client, &mut count, 64 << 10);
    faults.set(&[("truncate", EIO, ".incr.aof")]);
    ok(&mut client, "CONFIG SET appendfsync everysec");
    let refusal = loop {
        let reply = ask(&mut client, &format!("RPUSH list {count}"));
        if reply.is_error() {
            break text(&reply);
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
    hears(&server, &before, "AOF write error looks solved");
    ok(&mut client, &format!("RPUSH list {count}"));
    count += 1;
    written(server.directory(), &mut client);
    let log = fs::read(log_file(&server)).unwrap();
    assert!(log.ends_with(b"\r\n"), "the room is behind what was written");
    crash(&mut server);
    check_list(&server, count);
    // With `always` there is no way on for a batch that has to be appended.
    let mut client = connect(&server);
    wait_for_room(&server, &mut client, &mut count, 64 << 10);
    faults.set(&[("truncate", EIO, ".incr.aof")]);
    let reply = client.command(&["SET", "large", &"v".repeat(300_000)]);
    assert!(reply.is_err(), "{reply:?}");
    let said = "Can't recover from AOF write error when the AOF fsync policy is 'always'";
    eventually(said, || server.log().contains(said));
    faults.set(&[]);
    crash(&mut server);
    check_list(&server, count);
}

#[test]
fn while_there_is_room_nobody_waits_for_more_of_it() {
    if !has_room_ahead_of_logs() {
        return;
    }
    const ROOM: u64 = 1 << 20;
    let faults = Faults::new("stuck-room");
    let arguments = ["--appendfsync", "always", "--aof-preallocation-size", "1mb"];
    let mut server = faults.start(&arguments);
    let mut client = connect(&server);
    let mut count = 0;
    wait_for_room(&server, &mut client, &mut count, ROOM - (64 << 10));
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
    let mut reader = connect(&server);
    ok(&mut reader, "GET key:0");
    faults.set(&[]);
    assert!(!client.reply().unwrap().is_error());
    crash(&mut server);
    check_list(&server, count);
    let keys = 1 + ROOM * 3 / 4 / 10_000 + number + 1;
    assert_eq!(text(&ask(&mut connect(&server), "DBSIZE")), keys.to_string());
}

#[test]
fn a_rewrite_that_fails_anywhere_changes_nothing() {
    let faults = Faults::new("rewrite");
    let mut server = faults.start(&[]);
    let mut client = connect(&server);
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
                hears(&server, &before, "Background append only file rewriting started");
                faults.set(&[fault]);
            }
            hears(&server, &before, FAILED);
            eventually("over", || field(&mut client, "aof_rewrite_in_progress") == "0");
            nothing_is_left_behind(&server);
            ok(&mut client, &format!("RPUSH list {count}"));
            count += 1;
            faults.set(&[]);
            written(server.directory(), &mut client);
            // Killed there, or going on: rewritten again over what the failure left.
            if count % 4 == 0 {
                crash(&mut server);
                client = connect(&server);
                check_list(&server, count);
            }
            ok(&mut client, "CONFIG SET rdb-key-save-delay 0");
            rewrite(&server, &mut client, DONE);
            crash(&mut server);
            client = connect(&server);
            check_list(&server, count);
        }
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
fn a_first_base_that_is_not_installed_leaves_no_file_of_a_log() {
    let faults = Faults::new("first-base");
    for fault in [
        ("rename", EIO, "appendonly.aof.1.incr.aof"),
        ("write", ENOSPC, "temp-appendonly.aof.manifest"),
        ("rename", EIO, "appendonly.aof.manifest"),
    ] {
        let mut server = faults.start(&["--appendonly", "no"]);
        let mut client = connect(&server);
        ok(&mut client, "SET k v");
        faults.set(&[fault]);
        let before = server.log();
        ok(&mut client, "CONFIG SET appendonly yes");
        hears(&server, &before, FAILED);
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
        ok(&mut connect(&next), "SET k v");
    }
}

#[test]
fn a_log_without_its_first_base_says_that_it_waits_for_it() {
    let faults = Faults::new("no-base");
    let server = faults.start(&["--appendonly", "no"]);
    let mut client = connect(&server);
    faults.set(&[("rename", EIO, "base.rdb")]);
    let before = server.log();
    ok(&mut client, "CONFIG SET appendonly yes");
    hears(&server, &before, "has repeatedly failed and triggered the limit");
    let fields = ["aof_enabled", "aof_rewrite_in_progress", "aof_rewrite_scheduled"];
    assert_eq!(fields.map(|name| field(&mut client, name)), ["1", "0", "1"]);
    // Where the failures are forgotten, the waits are too.
    for forgets in [&["CONFIG RESETSTAT"][..], &["MULTI", "BGREWRITEAOF", "EXEC"]] {
        let before = server.log();
        forgets.iter().for_each(|request| ok(&mut client, request));
        hears(&server, &before, "has repeatedly failed and triggered the limit");
        assert_eq!(field(&mut client, "aof_rewrites_consecutive_failures"), "3", "{forgets:?}");
    }
    faults.set(&[]);
    ok(&mut client, "BGREWRITEAOF");
    until_not_rewriting(&mut client);
}

#[test]
fn a_snapshot_that_cannot_be_forced_to_the_disk_is_none() {
    let faults = Faults::new("snapshot");
    let server = faults.start(&["--appendonly", "no", "--save", "3600 1000000"]);
    let file = server.directory().join("dump.rdb");
    let mut client = connect(&server);
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
        assert!(text(&ask(&mut client, "SET k x")).starts_with("MISCONF"));
        assert_eq!(fs::read(&file).unwrap(), good, "{fault:?}");
        let temporary = server.directory().join(format!("temp-{}.rdb", server.process_id()));
        hears(&server, &before, &format!("{said} {}", temporary.display()));
        assert!(!temporary.exists(), "{fault:?}");
        faults.set(&[]);
        ok(&mut client, "SAVE");
        fs::write(&file, &good).unwrap();
    }
}

/// A small disk, gone with the value.
struct SmallDisk(PathBuf);

impl SmallDisk {
    fn new(name: &str) -> Option<SmallDisk> {
        let path = std::env::temp_dir().join(format!("small-{name}-{}", std::process::id()));
        fs::create_dir_all(&path).unwrap();
        let mounted = Command::new("mount")
            .args(["-t", "tmpfs", "-o", "size=6m", "tmpfs"])
            .arg(&path)
            .stderr(std::process::Stdio::null())
            .status()
            .is_ok_and(|status| status.success());
        if !mounted {
            println!("SKIPPED: no file system can be mounted here");
            fs::remove_dir(&path).unwrap();
            return None;
        }
        Some(SmallDisk(path))
    }

    fn path(&self) -> &Path {
        &self.0
    }

    /// Takes room, to be given back.
    fn ballast(&self) -> PathBuf {
        let path = self.0.join("ballast");
        fs::write(&path, vec![1; 2 << 20]).unwrap();
        path
    }
}

impl Drop for SmallDisk {
    fn drop(&mut self) {
        // What is still mounted is seen by whoever looks; a test must not fail in its end.
        let _ = Command::new("umount").arg("-l").arg(&self.0).status();
        let _ = fs::remove_dir(&self.0);
    }
}

/// Writes until that is refused; how many there are then, and the refusal.
fn write_until_refused(client: &mut Client, mut count: usize) -> (usize, String) {
    let value = "v".repeat(20_000);
    loop {
        match client.command(&["SET", &format!("key:{count}"), &value]) {
            Ok(reply) if reply.is_error() => return (count, text(&reply)),
            Ok(_) => count += 1,
            Err(error) => return (count, format!("gone: {error}")),
        }
        assert!(count < 10_000, "the disk is never full");
        std::thread::sleep(Duration::from_millis(1));
    }
}

#[track_caller]
fn check_keys(server: &Server, count: usize) {
    let mut client = connect(server);
    for number in 0..count {
        let length = text(&ask(&mut client, &format!("STRLEN key:{number}")));
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
    let Some(disk) = SmallDisk::new("everysec") else { return };
    let ballast = disk.ballast();
    let mut server = start_on(&disk, &[]);
    let mut client = connect(&server);
    let (mut count, refusal) = write_until_refused(&mut client, 0);
    assert!(
        refusal.starts_with("MISCONF Errors writing to the AOF file: No space left"),
        "{refusal}"
    );
    assert!(server.log().contains("appendonly.aof.1.incr.aof"), "{}", server.log());
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
    hears(&server, &before, "AOF write error looks solved");
    written(disk.path(), &mut client);
    crash(&mut server);
    check_keys(&server, count);
    // Full again, and killed: what was on the disk is there, and the server starts without room.
    let ballast = disk.path().join("ballast");
    let mut client = connect(&server);
    ok(&mut client, "SET marker 1");
    written(disk.path(), &mut client);
    let safe = count;
    (count, _) = write_until_refused(&mut client, count);
    let fill = fs::write(&ballast, vec![1; 2 << 20]);
    assert!(fill.is_err(), "there is room left");
    crash(&mut server);
    check_keys(&server, safe);
    let mut client = connect(&server);
    assert!(count >= safe);
    fs::remove_file(&ballast).unwrap();
    ok(&mut client, "FLUSHALL");
    rewrite(&server, &mut client, DONE);
    let (more, _) = write_until_refused(&mut client, 0);
    assert!(more > 100, "the room was not given back: {more}");
}

#[test]
fn always_keeps_what_it_acknowledged_on_a_full_disk() {
    let Some(disk) = SmallDisk::new("always") else { return };
    let ballast = disk.ballast();
    let mut server = start_on(&disk, &["--appendfsync", "always"]);
    let (count, refusal) = write_until_refused(&mut connect(&server), 0);
    assert!(refusal.starts_with("gone: "), "{refusal}");
    let said = "Can't recover from AOF write error when the AOF fsync policy is 'always'";
    eventually(said, || server.log().contains(said));
    fs::remove_file(&ballast).unwrap();
    crash(&mut server);
    check_keys(&server, count);
    ok(&mut connect(&server), "SET k v");
}

#[test]
fn a_rewrite_that_makes_room_ends_the_trouble_of_a_full_disk() {
    let Some(disk) = SmallDisk::new("rewrite") else { return };
    let ballast = |number: usize| disk.path().join(format!("ballast:{number}"));
    for number in 0..16 {
        fs::write(ballast(number), [1; 16 << 10]).unwrap();
    }
    let mut server = start_on(&disk, &["--auto-aof-rewrite-percentage", "0"]);
    let mut client = connect(&server);
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
    let mut client = connect(&server);
    assert_eq!(text(&ask(&mut client, "GET k")), "small");
    assert_eq!(text(&ask(&mut client, "GET after")), "1");
    ok(&mut client, &format!("SET k {value}"));
}

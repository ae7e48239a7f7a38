//! Changing one's mind about durability while the server writes: `appendfsync` and the room ahead
//! of the log back and forth, rewrites with and without fsync, the log switched off and on and
//! loaded again, small batches and such as are too large to be written in place. After a kill
//! everything is there that was acknowledged while the policy was `always`; after an orderly end
//! all of it, and no room.
//!
//! `DUNLIN_KILLS=100` lives so many lives; the seed is printed, and taken from `DUNLIN_SEED`.

// A failed step is a failed test, in its helpers too.
#![allow(clippy::unwrap_used)]

use harness::client::{Client, ask, ok};
use harness::environment::{has_preallocated_logs, new_seed, variable};
use harness::info::field;
use harness::reply::Reply;
use harness::rng::Rng;
use harness::server::{Options, Program, Server, signal};
use harness::wait::{SetAtEnd, eventually, until_not_rewriting};
use replication::preallocation::data_before_preallocation;
use std::fs;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::SeqCst};
use std::thread;
use std::time::Duration;

const WRITERS: usize = 3;
/// Lives of the default run.
const SHORT: u64 = 8;
/// Changes of one life.
const CHANGES: usize = 6;
/// A list that is longer begins anew in the next life.
const LONGEST: usize = 50_000;
/// Between writes that are too large to be written in place.
const LARGE_EACH: usize = 100;

/// What everybody knows of a life.
#[derive(Default)]
struct Life {
    /// Odd while replies wait for the disk; it changes whenever that does.
    epoch: AtomicU64,
    stops: AtomicBool,
}

impl Life {
    fn holds(&self) -> bool {
        self.epoch.load(SeqCst) % 2 == 1
    }

    /// From now on what is acknowledged is promised, or not.
    fn set_holds(&self, holds: bool) {
        if self.holds() != holds {
            self.epoch.fetch_add(1, SeqCst);
        }
    }
}

/// Writes of one writer.
#[derive(Clone, Copy, Default)]
struct Written {
    acknowledged: usize,
    /// So many while replies waited for the disk, from the request to the reply.
    promised: usize,
}

/// Appends numbers to a list until the server is gone or the life ends.
fn write(server: &Server, writer: usize, life: &Life) -> Written {
    let mut client = server.client();
    let (list, large) = (format!("list:{writer}"), format!("large:{writer}"));
    // The log may be being loaded.
    let mut length = None;
    eventually("its length", || {
        length = ask(&mut client, &["LLEN", &list]).integer();
        length.is_some()
    });
    let first = usize::try_from(length.unwrap()).unwrap();
    let mut written = Written { acknowledged: first, promised: 0 };
    while !life.stops.load(SeqCst) {
        let number = written.acknowledged;
        let epoch = life.epoch.load(SeqCst);
        let size = if number % LARGE_EACH == LARGE_EACH - 1 { 300_000 } else { 30 * writer };
        let (element, value) = (number.to_string(), format!("{number}:{}", "#".repeat(size)));
        let commands: [&[&str]; 4] =
            [&["MULTI"], &["RPUSH", &list, &element], &["SET", &large, &value], &["EXEC"]];
        if commands.iter().any(|words| client.send(words).is_err()) {
            break;
        }
        let replies = commands.map(|_| client.reply());
        let Ok(reply) = &replies[3] else { break };
        let Some(results) = reply.elements() else {
            // The log is being loaded: nothing was done.
            let refused = replies.iter().flatten().any(|reply| reply.shown().contains("LOADING "));
            assert!(refused, "{replies:?}");
            continue;
        };
        assert_eq!(
            results[0].integer(),
            Some(number as i64 + 1),
            "writes are gone, or twice there"
        );
        written.acknowledged += 1;
        if epoch % 2 == 1 && life.epoch.load(SeqCst) == epoch {
            written.promised = written.acknowledged;
        }
    }
    written
}

/// What an operator does.
struct Operator<'l> {
    server: &'l Server,
    client: Client,
    life: &'l Life,
    is_always: bool,
    done: Vec<&'static str>,
}

impl Operator<'_> {
    fn set_policy(&mut self, request: &'static str) {
        self.is_always = request.ends_with("always");
        if !self.is_always {
            self.life.set_holds(false);
        }
        ok(&mut self.client, request);
        self.life.set_holds(self.is_always);
    }

    fn switch_off_and_on(&mut self) {
        const END: &str = "Background AOF rewrite finished successfully";
        until_not_rewriting(&mut self.client);
        self.life.set_holds(false);
        ok(&mut self.client, "CONFIG SET appendonly no");
        let before = self.server.log();
        ok(&mut self.client, "CONFIG SET appendonly yes");
        self.server.logs_after(&before, END);
        self.life.set_holds(self.is_always);
    }

    fn change(&mut self, rng: &mut Rng) {
        let what = *rng.pick(&[
            "CONFIG SET appendfsync everysec",
            "CONFIG SET appendfsync no",
            "CONFIG SET appendfsync always",
            "CONFIG SET appendfsync always",
            "CONFIG SET aof-preallocation-size 0",
            "CONFIG SET aof-preallocation-size 64kb",
            "CONFIG SET aof-preallocation-size 4mb",
            "CONFIG SET no-appendfsync-on-rewrite yes",
            "CONFIG SET no-appendfsync-on-rewrite no",
            "BGREWRITEAOF",
            "BGREWRITEAOF",
            "DEBUG LOADAOF",
            "off and on",
        ]);
        self.done.push(what);
        match what {
            "off and on" => self.switch_off_and_on(),
            "BGREWRITEAOF" => {
                // One may be under way.
                ask(&mut self.client, &[what]);
            }
            _ if what.contains("appendfsync ") => self.set_policy(what),
            "DEBUG LOADAOF" => {
                let reply = ask(&mut self.client, &["DEBUG", "LOADAOF"]);
                // What is rewritten is deleted, even while it is read.
                let is_refused = reply.shown().contains("rewriting in progress");
                assert!(!reply.is_error() || is_refused, "{reply:?}");
            }
            _ => drop(ok(&mut self.client, what)),
        }
        thread::sleep(Duration::from_millis(rng.below(60) as u64));
    }
}

/// The files of the log that count, base and increments.
fn files(server: &Server) -> Vec<PathBuf> {
    let folder = server.directory().join("appendonlydir");
    let manifest = fs::read_to_string(folder.join("appendonly.aof.manifest")).unwrap();
    let lines = manifest.lines().filter(|line| !line.ends_with("type h"));
    lines.map(|line| folder.join(line.split(' ').nth(1).unwrap())).collect()
}

/// Bytes of data in the files, without room.
fn data_bytes(server: &Server) -> u64 {
    let bytes = files(server).into_iter().map(|path| {
        let bytes = fs::read(&path).unwrap();
        let is_base = path.to_string_lossy().ends_with(".rdb");
        if is_base { bytes.len() } else { data_before_preallocation(&bytes) }
    });
    bytes.sum::<usize>() as u64
}

/// All that is there is a beginning of what was written, and so much of it.
fn check(
    client: &mut Client,
    written: &[Written; WRITERS],
    at_least: [usize; WRITERS],
    what: &str,
) {
    for (writer, count) in at_least.into_iter().enumerate() {
        let reply = ask(client, &["LRANGE", &format!("list:{writer}"), "0", "-1"]);
        let elements: Vec<String> = reply.elements().unwrap().iter().map(Reply::shown).collect();
        let wanted: Vec<String> = (0..elements.len()).map(|number| number.to_string()).collect();
        assert!(elements == wanted, "{what}: writer {writer}: the history has a hole");
        let (there, sent) = (elements.len(), written[writer].acknowledged + 1);
        assert!(
            (count..=sent).contains(&there),
            "{what}: writer {writer}: {there} are there, {count} are promised"
        );
        let large = ask(client, &["GET", &format!("large:{writer}")]).shown();
        let last = large.split(':').next().unwrap_or_default();
        assert!(there == 0 || last == (there - 1).to_string(), "{what}: a transaction is torn");
        if there > LONGEST {
            ok(client, &format!("DEL list:{writer} large:{writer}"));
        }
    }
}

/// One life with writers: what they know in the end, and what was changed meanwhile.
fn live(
    server: &Server,
    life: &Life,
    rng: &mut Rng,
    is_killed: bool,
) -> ([Written; WRITERS], Vec<&'static str>) {
    thread::scope(|scope| {
        let over = SetAtEnd(&life.stops);
        let writers = [0, 1, 2].map(|writer| scope.spawn(move || write(server, writer, life)));
        let client = server.client();
        let mut operator = Operator { server, client, life, is_always: true, done: Vec::new() };
        (0..CHANGES).for_each(|_| operator.change(rng));
        if is_killed {
            signal(server.process_id(), "KILL").unwrap();
        } else {
            drop(over);
        }
        let written = writers.map(|writer| writer.join().unwrap());
        if !is_killed {
            let client = &mut operator.client;
            until_not_rewriting(client);
            eventually("the size is that of the data", || {
                field(client, "aof_current_size") == data_bytes(server).to_string()
            });
        }
        (written, operator.done)
    })
}

#[test]
fn what_was_promised_outlives_every_change_of_mind() {
    let seed = variable("DUNLIN_SEED").unwrap_or_else(new_seed);
    let mut rng = Rng::new(seed);
    let lives = variable("DUNLIN_KILLS").unwrap_or(SHORT);
    println!("DUNLIN_SEED={seed} DUNLIN_KILLS={lives}");
    let arguments = ["--appendonly", "yes", "--appendfsync", "always", "--rdb-key-save-delay"];
    let sizes = ["10000", "--aof-preallocation-size", "64kb", "--auto-aof-rewrite-percentage", "0"];
    let options = Options::arguments(&[arguments, sizes].concat());
    let mut server = Server::start(&Program::under_test(), options).unwrap();
    let mut is_promised = false;
    for number in 0..lives {
        let life = Life::default();
        life.set_holds(true);
        let is_killed = rng.chance(70);
        let (written, done) = live(&server, &life, &mut rng, is_killed);
        let what = format!("DUNLIN_SEED={seed} life {number}, killed: {is_killed}, {done:?}");
        let at_least = if is_killed {
            server.kill().unwrap();
            written.map(|written| written.promised)
        } else {
            assert!(server.terminate().unwrap().success(), "{what}");
            for path in files(&server) {
                let bytes = fs::read(&path).unwrap();
                let is_base = path.to_string_lossy().ends_with(".rdb");
                assert!(
                    is_base || data_before_preallocation(&bytes) == bytes.len(),
                    "{what}: {path:?}"
                );
            }
            written.map(|written| written.acknowledged)
        };
        server.start_again().unwrap_or_else(|why| panic!("{what}: {why}"));
        check(&mut server.client(), &written, at_least, &what);
        is_promised |= at_least.iter().all(|count| *count > 0);
    }
    assert!(is_promised, "no life had anything to keep");
}

#[test]
fn room_that_is_not_wanted_any_more_is_cut_off_without_a_write() {
    if !has_preallocated_logs() {
        return;
    }
    let options = Options::arguments(&["--appendonly", "yes", "--appendfsync", "always"]);
    let server = Server::start(&Program::under_test(), options).unwrap();
    let client = &mut server.client();
    let log = server.directory().join("appendonlydir/appendonly.aof.1.incr.aof");
    let has_room = || {
        let bytes = fs::read(&log).unwrap();
        data_before_preallocation(&bytes) < bytes.len()
    };
    let begin = |client: &mut Client| {
        eventually("room", || {
            ok(client, "INCR n");
            has_room()
        });
    };
    begin(client);
    // With the reply: a copy that begins now contains no space that is written into later.
    ok(client, "CONFIG SET aof-preallocation-size 0");
    assert!(!has_room());
    ok(client, "CONFIG SET aof-preallocation-size 64kb");
    begin(client);
    ok(client, "CONFIG SET appendfsync everysec");
    eventually("no room", || !has_room());
}

//! The machine stops at any instant: whatever of the server's files is left then, the server starts
//! from it, with `always` everything it had acknowledged is there, without a log everything of the
//! last snapshot, and no transaction is there by half.
//!
//! Writers work while the log is rewritten, switched off and on, snapshots are saved and the server
//! is killed and started again. With `always` some of what they write is too large for a batch,
//! there is little room ahead of the log, at times none, and the policy is another one for a while;
//! afterwards servers start from what instants of that history could have left
//! (`harness::power_loss`). `DUNLIN_INSTANTS=2000` looks at so many of a run, `DUNLIN_SEED=17`
//! takes the choices of that seed (clients meet as they will).

// A failed step is a failed test, in its helpers too.
#![allow(clippy::unwrap_used)]

use harness::client::{Client, ok};
use harness::environment::{new_seed, variable};
use harness::power_loss::{Disk, LIBRARY, instants};
use harness::preload::Preload;
use harness::rng::Rng;
use harness::server::{Options, Program, Server};
use harness::wait::SetAtEnd;
use std::fs;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::thread;
use std::time::Duration;

const WRITERS: usize = 3;

/// A list's key; a transaction appends one number to both lists of a writer.
fn lists(writer: usize) -> [String; 2] {
    [format!("list:{writer}:a"), format!("list:{writer}:b")]
}

/// The key of a writer's last large value.
fn large(writer: usize) -> String {
    format!("large:{writer}")
}

/// With `always`, one transaction of so many has a value that is too large to be written in place.
const LARGE_EACH: usize = 150;

/// A writer's transactions that were acknowledged: the number, and where the trace ended then.
type Acknowledged = Vec<(usize, u64)>;

/// Snapshots that were saved: how many transactions of each writer there were before, and where the
/// trace ended when the server said that it is on the disk.
type Saved = Vec<([usize; WRITERS], u64)>;

/// Writes until the server ends or `stop` is set.
fn write(
    server: &Server,
    policy: Policy,
    writer: usize,
    trace: &Path,
    stop: &AtomicBool,
    done: &mut Acknowledged,
) {
    let mut client = server.client();
    let [a, b] = lists(writer);
    let large = large(writer);
    let padding = "x".repeat(50 * writer);
    // The last one before the server was killed may have been done without an answer.
    for number in length(&mut client, writer).. {
        if stop.load(Relaxed) {
            return;
        }
        let element = format!("{number}:{padding}");
        let mut commands: Vec<&[&str]> = vec![&["MULTI"]];
        let more = [["RPUSH", &a, &element], ["RPUSH", &b, &element]];
        commands.extend(more.iter().map(|words| &words[..]));
        let value = format!("{number}:{}", "#".repeat(300_000));
        let set = ["SET", &large, &value];
        if policy == Policy::Always && number % LARGE_EACH == LARGE_EACH - 1 {
            commands.push(&set);
        }
        commands.push(&["EXEC"]);
        if commands.iter().any(|words| client.send(words).is_err()) {
            return;
        }
        let replies: Vec<_> = commands.iter().map(|_| client.reply()).collect();
        match replies.last().unwrap() {
            Err(_) => return,
            Ok(reply) => assert!(reply.elements().is_some(), "{replies:?}"),
        }
        done.push((number, fs::metadata(trace).unwrap().len()));
    }
}

/// Rewrites the log or saves a snapshot, and waits until that is over.
fn disturb(server: &Server, client: &mut Client, command: &str, end: &str) {
    thread::sleep(Duration::from_millis(30));
    let before = server.log();
    ok(client, command);
    server.logs_after(&before, end);
}

fn length(client: &mut Client, writer: usize) -> usize {
    let reply = client.command(&["LLEN", &lists(writer)[0]]).unwrap();
    usize::try_from(reply.integer().unwrap()).unwrap()
}

/// What clients and operators know of a history.
#[derive(Default)]
struct Known {
    done: [Acknowledged; WRITERS],
    saved: Saved,
    /// Where the trace ended before the log was switched off or the policy was another one, and
    /// when it was as before again.
    off: Vec<(u64, u64)>,
}

impl Known {
    /// How many transactions of a writer are sure to be there after the power was lost where the
    /// trace had `end` bytes.
    fn promised(&self, policy: Policy, writer: usize, end: u64) -> usize {
        // A transaction was done between the answer to the one before and its own: nothing was
        // promised if the log was off then. The trace may not grow for a while: with everysec the
        // server answers first.
        let was_off = |begin, end| self.off.iter().any(|(from, to)| begin <= *to && *from <= end);
        let lasts = |pair: &&[(usize, u64)]| pair[1].1 <= end && !was_off(pair[0].1, pair[1].1);
        let done = self.done[writer].windows(2).rfind(lasts).map(|pair| pair[1]);
        let saved = self.saved.iter().rfind(|(_, at)| *at <= end);
        match policy {
            Policy::Always => done.map_or(0, |(number, _)| number + 1),
            Policy::EverySec => 0,
            Policy::NoLog => saved.map_or(0, |(counts, _)| counts[writer]),
        }
    }
}

/// One life of the server, with writers that go on to its end.
fn live(server: &mut Server, trace: &Path, policy: Policy, known: &mut Known) {
    let stop = AtomicBool::new(false);
    // Locked while the server is killed: what it has changed by then is in the trace.
    let lock = fs::File::open(trace).unwrap();
    thread::scope(|scope| {
        let over = SetAtEnd(&stop);
        for (writer, done) in known.done.iter_mut().enumerate() {
            let (server, stop) = (&*server, &stop);
            scope.spawn(move || write(server, policy, writer, trace, stop, done));
        }
        let mut client = server.client();
        let size = || fs::metadata(trace).unwrap().len();
        for _ in 0..2 {
            if policy != Policy::NoLog {
                let end = "Background AOF rewrite finished successfully";
                disturb(server, &mut client, "BGREWRITEAOF", end);
                let from = size();
                disturb(server, &mut client, "CONFIG SET appendonly no", "");
                disturb(server, &mut client, "CONFIG SET appendonly yes", end);
                known.off.push((from, size()));
            }
            if policy == Policy::Always {
                let from = size();
                disturb(server, &mut client, "CONFIG SET appendfsync everysec", "");
                disturb(server, &mut client, "CONFIG SET appendfsync always", "");
                known.off.push((from, size()));
                for room in ["0", "100001", "64kb"] {
                    let command = format!("CONFIG SET aof-preallocation-size {room}");
                    disturb(server, &mut client, &command, "");
                }
            }
            let counts = std::array::from_fn(|writer| length(&mut client, writer));
            disturb(server, &mut client, "BGSAVE", "Background saving terminated with success");
            known.saved.push((counts, size()));
        }
        lock.lock().unwrap();
        harness::server::signal(server.process_id(), "KILL").unwrap();
        drop(over);
    });
    server.kill().unwrap();
    lock.unlock().unwrap();
}

/// How many transactions of a writer a server has; all of them whole and in order.
fn count(client: &mut Client, policy: Policy, writer: usize, place: &str) -> usize {
    let elements = lists(writer).map(|list| {
        let reply = client.command(&["LRANGE", &list, "0", "-1"]).unwrap();
        let elements = reply.elements().unwrap().iter();
        elements.map(|element| element.text().unwrap().to_vec()).collect::<Vec<_>>()
    });
    assert!(elements[0] == elements[1], "{place}: a transaction was torn");
    for (number, element) in elements[0].iter().enumerate() {
        assert!(element.starts_with(format!("{number}:").as_bytes()), "{place}: one is missing");
    }
    let count = elements[0].len();
    let value = client.command(&["GETRANGE", &large(writer), "0", "20"]).unwrap();
    let value = value.shown();
    let last = if policy == Policy::Always { count / LARGE_EACH * LARGE_EACH } else { 0 };
    let wanted = if last == 0 { "" } else { &format!("{}:", last - 1) };
    let is_whole = value.is_empty() == wanted.is_empty() && value.starts_with(wanted);
    assert!(is_whole, "{place}: a transaction was torn: {value} instead of {wanted}");
    count
}

/// Empties a folder.
fn clear(folder: &Path) {
    for entry in fs::read_dir(folder).unwrap().flatten() {
        if entry.file_type().unwrap().is_dir() {
            fs::remove_dir_all(entry.path()).unwrap();
        } else {
            fs::remove_file(entry.path()).unwrap();
        }
    }
}

/// There is so little room ahead of the log that it runs out often.
const ALWAYS: [&str; 6] =
    ["--appendonly", "yes", "--appendfsync", "always", "--aof-preallocation-size", "64kb"];

/// What keeps the data.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Policy {
    Always,
    EverySec,
    NoLog,
}

impl Policy {
    fn arguments(self) -> &'static [&'static str] {
        match self {
            Policy::Always => &ALWAYS,
            Policy::EverySec => &["--appendonly", "yes", "--appendfsync", "everysec"],
            Policy::NoLog => &["--appendonly", "no"],
        }
    }
}

fn run(policy: Policy, preamble: &str) {
    let seed = variable("DUNLIN_SEED").unwrap_or_else(new_seed);
    let mut rng = Rng::new(seed);
    let what = format!("DUNLIN_SEED={seed} {policy:?}, base in RDB: {preamble}");
    let library = Preload::build(&format!("power-{policy:?}-{preamble}"), LIBRARY);
    let (trace, root) = (library.folder().join("trace"), library.folder().join("root"));
    fs::create_dir(&root).unwrap();
    let environment = [("POWER_LOSS_TRACE", &*trace), ("POWER_LOSS_ROOT", &*root)];
    let program = library.under(&Program::under_test(), &environment);
    let mut arguments = policy.arguments().to_vec();
    arguments.extend(["--aof-use-rdb-preamble", preamble, "--auto-aof-rewrite-percentage", "0"]);
    let mut loader = Server::start(&Program::under_test(), Options::arguments(&arguments)).unwrap();
    loader.kill().unwrap();
    arguments.extend(["--dir", root.to_str().unwrap()]);
    let mut server = Server::start(&program, Options::arguments(&arguments)).unwrap();
    let mut known = Known::default();
    live(&mut server, &trace, policy, &mut known);
    server.start_again().unwrap();
    live(&mut server, &trace, policy, &mut known);
    let trace = fs::read(trace).unwrap();
    let all = instants(&trace);
    let about_names: Vec<usize> =
        all.iter().filter(|(_, is_about_names)| *is_about_names).map(|(at, _)| *at).collect();
    assert!(about_names.len() > 10 && known.done.iter().all(|done| done.len() > 10), "{what}");
    let (starts, mut found) = (variable("DUNLIN_INSTANTS").unwrap_or(30), 0);
    for _ in 0..starts {
        let end = if rng.chance(50) { *rng.pick(&about_names) } else { rng.pick(&all).0 };
        let place = format!("{what}, {end} of {} bytes", trace.len());
        clear(loader.directory());
        Disk::new(&trace, end, &root).leave(&mut rng, loader.directory()).unwrap();
        let (files, before) = (listing(loader.directory()), loader.log().len());
        if let Err(why) = loader.start_again() {
            panic!("{place}: it does not start from {files:?}:\n{why}");
        }
        let mut client = loader.client();
        for writer in 0..WRITERS {
            let there = count(&mut client, policy, writer, &place);
            let promised = known.promised(policy, writer, end as u64);
            assert!(
                there >= promised,
                "{place}: {there} of {promised} transactions are there, from {files:?}\n{}",
                &loader.log()[before..]
            );
            found += promised;
        }
        loader.kill().unwrap();
    }
    println!("{policy:?}: {starts} starts, and {found} promised transactions were there");
}

/// The files below a folder and their sizes.
fn listing(folder: &Path) -> Vec<(String, u64)> {
    let entries = fs::read_dir(folder).unwrap().flatten().flat_map(|entry| {
        let path = entry.path();
        if path.is_dir() {
            return listing(&path);
        }
        vec![(path.display().to_string(), entry.metadata().unwrap().len())]
    });
    entries.collect()
}

#[test]
fn always_keeps_what_it_acknowledged() {
    run(Policy::Always, "yes");
}

#[test]
fn always_keeps_what_it_acknowledged_with_a_base_of_commands() {
    run(Policy::Always, "no");
}

#[test]
fn everysec_keeps_the_beginning_of_the_history() {
    run(Policy::EverySec, "yes");
}

#[test]
fn a_snapshot_that_was_saved_stays() {
    run(Policy::NoLog, "yes");
}

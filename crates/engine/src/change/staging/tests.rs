use super::*;
use crate::args::Args;
use crate::clock::{Clock, ManualTime};
use crate::command::{Command, Flags, KeyFlags, KeySpec, Outcome};
use crate::engine::Engine;
use crate::journal::IfBehind;
use crate::session::Session;
use crate::worker::{Peer, Worker};
use config::Config;
use keyspace::{Key, Millis};
use resp::Output;

fn set(cx: &mut Cx<'_>, _: Args<'_>) -> Outcome {
    cx.db.effects.dirty += 1;
    cx.reply.ok();
    Ok(())
}

fn position(cx: &mut Cx<'_>, _: Args<'_>) -> Outcome {
    cx.reply.integer(cx.engine.journal.position().0 as i64);
    Ok(())
}

static SET: Command = Command {
    name: "set",
    arity: 3,
    flags: Flags::WRITE,
    keys: &[KeySpec::one(KeyFlags::RW.with(KeyFlags::UPDATE))],
    run: set,
    ..Command::ROW
};
/// Joins, and says how much the journal has.
static POSITION_AT: Command = Command {
    name: "position.at",
    arity: 2,
    flags: Flags::READONLY,
    keys: &[KeySpec::one(KeyFlags::RO.with(KeyFlags::ACCESS))],
    run: position,
    ..Command::ROW
};
/// Does not join, since it has no key.
static POSITION: Command = Command { name: "position", arity: 1, run: position, ..Command::ROW };
static ROWS: &[&Command] = &[&SET, &POSITION_AT, &POSITION];

/// Bytes of `SET x 1` in the journal, and of the SELECT before the first one.
const ENTRY: i64 = 27;
const SELECT: i64 = 23;

fn engine() -> &'static Engine {
    let time = ManualTime::starting_at(Millis(1));
    Engine::new(Config::new(), ROWS, &[], 2, Clock::manual(time))
}

fn session(worker: &mut Worker) -> Session {
    worker.connect(Peer::default()).expect("there is room")
}

/// Sends requests in one go, and returns the positions that some of them answer.
fn feed(worker: &mut Worker, session: &mut Session, requests: &str) -> Vec<i64> {
    let mut input = String::new();
    for request in requests.split(", ") {
        let words: Vec<&str> = request.split(' ').collect();
        input += &format!("*{}\r\n", words.len());
        words.iter().for_each(|word| input += &format!("${}\r\n{word}\r\n", word.len()));
    }
    let mut out = Output::default();
    let fed = worker.feed(session, input.as_bytes(), &mut out, usize::MAX);
    assert_eq!(fed.consumed, input.len());
    let replies = String::from_utf8(out.into_bytes()).expect("it is text");
    let positions = replies.split("\r\n").filter_map(|line| line.strip_prefix(':'));
    positions.map(|position| position.parse().expect("a number")).collect()
}

#[test]
fn writes_of_a_batch_are_appended_at_its_end() {
    let engine = engine();
    let _reader = engine.journal.read(IfBehind::HoldWriters);
    let mut worker = Worker::new(engine, 0);
    let mut session = session(&mut worker);
    let requests = "SET a 1, POSITION.AT a, SET b 1, POSITION.AT c, SET a 1";
    assert_eq!(feed(&mut worker, &mut session, requests), [0, 0]);
    let end = SELECT + 3 * ENTRY;
    assert_eq!(engine.journal.position().0 as i64, end);
    assert_eq!(session.written, engine.journal.position());
    let marks = ["a", "b"].map(|name| {
        let stripe = engine.keyspace.stripe_of(Key::new(name.as_bytes()));
        let mut is_marked = false;
        engine.keyspace.stripe(stripe).clear_mark(|mark| {
            is_marked = mark != 0;
            false
        });
        is_marked
    });
    assert_eq!(marks, [false; 2]);
    // The last one has none behind it, so it is appended with the others or by itself.
    assert!(feed(&mut worker, &mut session, "SET a 1").is_empty());
    assert_eq!(engine.journal.position().0 as i64, end + ENTRY);
}

#[test]
fn a_request_that_does_not_join_comes_behind_what_was_staged() {
    let engine = engine();
    let _reader = engine.journal.read(IfBehind::HoldWriters);
    let mut worker = Worker::new(engine, 0);
    let mut session = session(&mut worker);
    let requests = "SET a 1, SET b 1, POSITION.AT a, POSITION, SET c 1, POSITION.AT c";
    let staged = SELECT + 2 * ENTRY;
    assert_eq!(feed(&mut worker, &mut session, requests), [0, staged, staged]);
    assert_eq!(session.written.0 as i64, staged + ENTRY);
}

#[test]
fn another_thread_appends_what_it_is_about_to_read() {
    let engine = engine();
    let mut reader = engine.journal.read(IfBehind::HoldWriters);
    let stripe = engine.keyspace.stripe_of(Key::new(b"a"));
    let entry = b"*3\r\n$3\r\nSET\r\n$1\r\na\r\n$1\r\n1\r\n";
    let mut locks = keyspace::Locks::new(&engine.keyspace);
    assert!(locks.try_acquire(stripe));
    locks.mark(stripe, engine.journal.stage(DbIndex(0), entry).expect("it is short"));
    locks.release();
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let mut worker = Worker::new(engine, 1);
            let mut session = session(&mut worker);
            assert_eq!(feed(&mut worker, &mut session, "POSITION.AT b"), [0]);
            let there = SELECT + ENTRY;
            assert_eq!(feed(&mut worker, &mut session, "POSITION.AT a"), [there]);
        });
    });
    let end = reader.readable();
    let bytes = reader.chunk(end).expect("there is an entry").to_vec();
    assert!(bytes.ends_with(entry) && !engine.journal.has_staged());
}

#[test]
fn replies_that_wait_need_the_position_of_each_write() {
    let engine = engine();
    let _reader = engine.journal.read(IfBehind::HoldWriters);
    let mut worker = Worker::new(engine, 0);
    let mut session = session(&mut worker);
    let need = journal::safe::Need { disk: true, replicas: 0, replica_disks: 0 };
    engine.safe.hold_replies(journal::safe::Gate::Disk, Some(need), engine.journal.position());
    let requests = "SET a 1, POSITION.AT a, SET b 1, POSITION.AT b";
    let (first, second) = (SELECT + ENTRY, SELECT + 2 * ENTRY);
    assert_eq!(feed(&mut worker, &mut session, requests), [first, second]);
}

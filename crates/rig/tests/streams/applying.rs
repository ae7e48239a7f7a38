//! The stream of a primary applied by several threads: the order of each key is kept, and a thread
//! that stops the world finds a whole prefix of the stream.

use commands::rows;
use config::Config;
use engine::clock::Clock;
use engine::follow::{Follower, Piece};
use engine::worker::Peer;
use engine::{DbIndex, Engine, Worker};
use harness::wait::SetAtEnd;
use replication::replica::framing::Framer;
use resp::Output;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::SeqCst};

const KEYS: usize = 100;

fn engine(threads: usize) -> &'static Engine {
    let engine = Engine::new(Config::new(), &rows(), &[], threads, Clock::system());
    engine.follow("127.0.0.1", 1);
    engine.journal.keep();
    engine
}

fn entry(words: &[&str]) -> String {
    let words: String = words.iter().map(|w| format!("${}\r\n{w}\r\n", w.len())).collect();
    format!("*{}\r\n{words}", words.matches('$').count())
}

/// Applies a stream in pieces of so many entries.
fn apply(engine: &'static Engine, stream: &str, most: usize) {
    let thread = engine.follower_context();
    let mut follower = Follower::new(engine, &thread, DbIndex(0));
    let bytes = Arc::new(stream.as_bytes().to_vec());
    let (mut framer, mut begin) = (Framer::default(), 0);
    let term = engine.upstream.term();
    while begin < bytes.len() {
        framer.parse(&bytes[begin..], most).expect("it makes sense");
        let entries = framer.take();
        let taken = entries.bytes();
        let piece = Piece::new(engine, &bytes, begin, entries);
        assert!(!follower.apply(term, &piece, || ()).is_over);
        begin += taken;
    }
}

fn ask(worker: &mut Worker, requests: &str) -> String {
    let mut session = worker.connect(Peer::default()).expect("there is room for it");
    let (mut out, mut input) = (Output::default(), requests.as_bytes());
    while !input.is_empty() {
        let fed = worker.feed(&mut session, input, &mut out, usize::MAX);
        input = &input[fed.consumed..];
    }
    worker.disconnect(session, engine::clients::Departure::Closed);
    String::from_utf8(out.into_bytes()).expect("it is text")
}

#[test]
fn keys_have_the_same_history_whatever_the_number_of_threads() {
    let mut stream = String::new();
    for number in 0..20_000 {
        let key = format!("k{}", number * 7919 % KEYS);
        let value = number.to_string();
        stream += &match number % 1009 {
            500 => entry(&["MULTI"]) + &entry(&["RENAME", &key, "other"]) + &entry(&["EXEC"]),
            501 => entry(&["SELECT", &(number % 3).to_string()]),
            502 => entry(&["MSET", "a", &value, "b", &value]),
            503 => entry(&["COPY", "other", &key, "REPLACE"]),
            504 => entry(&["PING"]),
            505 => entry(&["SWAPDB", "0", "1"]),
            506 if number < 5000 => entry(&["FLUSHDB"]),
            number if number % 41 == 7 => entry(&["DEL", &key]),
            _ => entry(&["APPEND", &key, &format!("{value} ")]),
        };
    }
    let mut found_failures = Vec::new();
    let mut contents = |threads, most| {
        let engine = engine(threads);
        apply(engine, &stream, most);
        found_failures.push(engine.upstream.failures.load(SeqCst));
        assert_eq!(engine.journal.position().0, stream.len() as u64);
        let mut worker = Worker::new(engine, 0);
        let mut found = String::new();
        for db in 0..3 {
            let keys = (0..KEYS).map(|key| format!("GET k{key}\r\n")).collect::<String>();
            found +=
                &ask(&mut worker, &format!("SELECT {db}\r\n{keys}GET a\r\nGET b\r\nDBSIZE\r\n"));
        }
        found
    };
    let one = contents(1, 64);
    assert!(one.len() > 20_000, "there is something to compare");
    assert_eq!(contents(4, 1024), one);
    assert_eq!(contents(2, 5000), one);
    // RENAME of what is not there.
    assert!(found_failures.iter().all(|failures| *failures == found_failures[0]));
}

#[test]
fn a_stopped_world_has_a_whole_prefix() {
    let engine = engine(3);
    let one = entry(&["INCR", "k000"]).len();
    let stream: String =
        (0..60_000).map(|number| entry(&["INCR", &format!("k{:03}", number % KEYS)])).collect();
    let is_over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let _over = SetAtEnd(&is_over);
            apply(engine, &stream, 2000);
        });
        let mut worker = Worker::new(engine, 0);
        let keys: String = (0..KEYS).map(|key| format!(" k{key:03}")).collect();
        // KEYS makes the transaction stop the world.
        let question = format!("MULTI\r\nMGET{keys}\r\nKEYS x\r\nINFO replication\r\nEXEC\r\n");
        let mut looks = 0;
        while !is_over.load(SeqCst) || looks < 2 {
            let reply = ask(&mut worker, &question);
            let offset = reply.split("master_repl_offset:").nth(1).expect("it is there");
            let offset: usize =
                offset.lines().next().and_then(|n| n.parse().ok()).expect("a number");
            assert_eq!(offset % one, 0);
            let applied = offset / one;
            let lines: Vec<&str> = reply.lines().collect();
            let begin =
                lines.iter().position(|line| *line == format!("*{KEYS}")).expect("MGET") + 1;
            let mut line = lines[begin..].iter();
            for key in 0..KEYS {
                let expected = (applied + KEYS - 1 - key) / KEYS;
                let found = match *line.next().expect("a reply") {
                    "$-1" => 0,
                    _ => line.next().and_then(|n| n.parse().ok()).expect("a number"),
                };
                assert_eq!(found, expected, "key {key} after {applied} entries");
            }
            looks += 1;
        }
        assert!(looks > 2, "it was looked at while the stream came");
    });
}

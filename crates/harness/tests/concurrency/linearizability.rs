//! Many clients over few keys: what they saw must be explained by one order of all operations, no
//! element may be lost or duplicated, and what is changed together must be seen together.
//!
//! `DUNLIN_LINEARIZABILITY_SECONDS` sets how long each test keeps its clients busy on each server
//! (default 0.5), and `DUNLIN_SEED` what they do.

// A failed step is a failed test, in its helpers too.
#![allow(clippy::unwrap_used)]

use harness::client::{Client, ok};
use harness::environment;
use harness::history::{Action, Recorder, State};
use harness::info;
use harness::list_transactions::{ListTransactions, Outcome};
use harness::reply::{Protocol, Reply};
use harness::rng::Rng;
use harness::server::{Backend, Options, Program, Server};
use harness::wait::{SetAtEnd, eventually};
use std::collections::BTreeMap;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::thread;
use std::time::{Duration, Instant};

const CLIENTS: usize = 8;

fn seconds() -> Duration {
    // The default is short, since there are four servers to each test.
    let half = Duration::from_millis(500);
    environment::seconds("DUNLIN_LINEARIZABILITY_SECONDS").unwrap_or(half)
}

/// Calls `test` with a server of two threads and one of four, on each I/O back-end, and with one of
/// four whose values are sent to flash again and again, while all entries move.
fn with_servers(test: impl Fn(&Server)) {
    let program = Program::under_test();
    for backend in program.backends() {
        for threads in ["2", "4"] {
            let arguments = Options::arguments(&["--io-threads", threads]);
            let server = Server::start(&program, Options { backend, ..arguments }).unwrap();
            let backend = backend.map_or("", Backend::name);
            println!("on {} {backend} with {threads} threads", program.name());
            test(&server);
            end(server);
        }
    }
    if program.is_dunlin() {
        let tier = ["--tier-dir", "tier", "--tier-segment-size", "1mb"];
        let others = ["--io-threads", "4", "--enable-debug-command", "yes"];
        let options = Options::arguments(&[&tier[..], &others].concat());
        let server = Server::start(&program, options).unwrap();
        println!("on {} with a flash tier", program.name());
        let stop = AtomicBool::new(false);
        thread::scope(|scope| {
            scope.spawn(|| demote_until(&server, &stop));
            let _stop = SetAtEnd(&stop);
            test(&server);
        });
        assert_eq!(info::number(&mut server.client(), "tier_read_errors"), 0);
        end(server);
    }
}

fn demote_until(server: &Server, stop: &AtomicBool) {
    let mut client = server.client();
    ok(&mut client, "DEBUG TIER FILTER yes");
    ok(&mut client, "DEBUG DEFRAG-ALL 1");
    while !stop.load(Relaxed) {
        ok(&mut client, "DEBUG TIER DEMOTE");
        // It stops the world, which the test is to have most of the time.
        thread::sleep(Duration::from_millis(2));
    }
}

fn end(mut server: Server) {
    let status = server.terminate().expect("it ends");
    let log = server.log_of_ended();
    assert!(status.success(), "the server ended with {status}:\n{log}");
    // What a sanitizer has to say; it would end the server with a status of its own, too.
    assert!(!log.contains("WARNING: ThreadSanitizer"), "{log}");
}

/// One client of a test: a connection, a stream of random numbers, a source of unique values.
struct Worker {
    index: usize,
    client: Client,
    rng: Rng,
    values: u64,
}

impl Worker {
    fn new(server: &Server, index: usize) -> Worker {
        let protocol = if index.is_multiple_of(2) { Protocol::Resp2 } else { Protocol::Resp3 };
        let seed = environment::variable("DUNLIN_SEED").unwrap_or(1);
        Worker {
            index,
            client: server.connect(protocol).unwrap(),
            rng: Rng::new(seed.wrapping_mul(1000) + index as u64),
            values: 0,
        }
    }

    /// A value that no other client writes.
    fn value(&mut self) -> u64 {
        self.values += 1;
        (self.index as u64 + 1) * 1_000_000_000 + self.values
    }

    /// Sends a request, written as words with blanks between; the reply is not an error.
    fn ask(&mut self, request: &str) -> Reply {
        ok(&mut self.client, request)
    }

    /// Runs requests as a transaction: their replies, or `None` if a watched key had changed.
    fn transaction(&mut self, requests: &[String]) -> Option<Vec<Reply>> {
        self.ask("MULTI");
        for request in requests {
            self.ask(request);
        }
        match self.ask("EXEC") {
            Reply::Array(replies) => Some(replies),
            reply => {
                assert!(reply.is_nil(), "EXEC: {reply:?}");
                None
            }
        }
    }
}

/// Runs a worker in each of `CLIENTS` threads until the time is over.
fn work(server: &Server, step: impl Fn(&mut Worker) + Sync) {
    let end = Instant::now() + seconds();
    thread::scope(|scope| {
        for index in 0..CLIENTS {
            let step = &step;
            scope.spawn(move || {
                let mut worker = Worker::new(server, index);
                while Instant::now() < end {
                    step(&mut worker);
                }
            });
        }
    });
}

fn number(reply: &Reply) -> Option<u64> {
    match reply {
        Reply::Integer(number) => u64::try_from(*number).ok(),
        reply if reply.is_nil() => None,
        reply => {
            let text = std::str::from_utf8(reply.text().expect("a value")).expect("digits");
            // Strings begin with a letter, since the flash tier leaves numbers where they are.
            Some(text.trim_start_matches('v').parse().expect("a number"))
        }
    }
}

fn numbers(reply: &Reply) -> Vec<u64> {
    reply.elements().expect("an array").iter().filter_map(number).collect()
}

fn flag(reply: &Reply) -> bool {
    match reply {
        Reply::Integer(number) => *number == 1,
        Reply::Boolean(flag) => *flag,
        reply => panic!("{reply:?} is neither 0 nor 1"),
    }
}

fn report(recorder: &Recorder) {
    match recorder.verdict() {
        Ok(count) => println!("{count} operations have an order"),
        Err(why) => panic!("{why}"),
    }
}

#[test]
fn strings() {
    with_servers(|server| {
        let recorder = Recorder::new();
        work(server, |worker| {
            let key = format!("s{}", worker.rng.below(3));
            let called = recorder.now();
            let actions = string_step(worker, &key);
            let named = |action| (key.clone(), State::String(None), action);
            recorder.record(worker.index, called, actions.into_iter().map(named));
        });
        report(&recorder);
    });
}

fn string_step(worker: &mut Worker, key: &str) -> Vec<Action> {
    let value = worker.value();
    let action = match worker.rng.below(12) {
        0..=2 => Action::Get(number(&worker.ask(&format!("GET {key}")))),
        3 => {
            worker.ask(&format!("SET {key} v{value}"));
            Action::Set(value)
        }
        4 => Action::SetIfNone(value, !worker.ask(&format!("SET {key} v{value} NX")).is_nil()),
        5 => Action::Swap(value, number(&worker.ask(&format!("SET {key} v{value} GET")))),
        6 => Action::Delete(flag(&worker.ask(&format!("DEL {key}")))),
        7 => Action::Delete(!worker.ask(&format!("GETDEL {key}")).is_nil()),
        8 => {
            let second = worker.value();
            let replies = worker.transaction(&[
                format!("SET {key} v{value}"),
                format!("GET {key}"),
                format!("GETSET {key} v{second}"),
            ]);
            let replies = replies.expect("nothing is watched");
            Action::Together(vec![
                Action::Set(value),
                Action::Get(number(&replies[1])),
                Action::Swap(second, number(&replies[2])),
            ])
        }
        9 => {
            // Pipelined: each request is recorded with the time of both.
            let requests = format!("SET {key} v{value}\r\nGET {key}\r\n");
            worker.client.send_raw(requests.as_bytes()).unwrap();
            worker.client.reply().unwrap();
            return vec![Action::Set(value), Action::Get(number(&worker.client.reply().unwrap()))];
        }
        _ => {
            worker.ask(&format!("WATCH {key}"));
            let seen = number(&worker.ask(&format!("GET {key}")));
            // Called from before WATCH on, which is earlier than it could take effect: weaker than
            // what is promised, never stronger.
            match worker.transaction(&[format!("SET {key} v{value}")]) {
                Some(_) => Action::CompareAndSet(seen, value),
                None => Action::Get(seen),
            }
        }
    };
    vec![action]
}

/// Transactions and scripts over several lists: one order of them explains what all have read.
#[test]
fn transactions() {
    with_servers(|server| {
        let (recorder, transactions) = (Recorder::new(), ListTransactions::default());
        let clock = || recorder.now();
        work(server, |worker| {
            let rng = &mut worker.rng;
            let outcome = transactions.run(worker.index, &mut worker.client, rng, clock);
            assert!(matches!(outcome, Outcome::Confirmed), "{outcome:?}");
        });
        let mut client = server.client();
        let sets = transactions.sets();
        assert!(sets.into_iter().all(|set| transactions.read_all(set, &mut client, clock)));
        match transactions.verdict() {
            Ok(count) => println!("{count} transactions have an order"),
            Err(why) => panic!("{why}"),
        }
    });
}

/// Scripts that swap, or compare and set, on a key that is declared or is not.
#[test]
fn scripts() {
    with_servers(|server| {
        let recorder = Recorder::new();
        work(server, |worker| {
            let key = format!("s{}", worker.rng.below(3));
            let called = recorder.now();
            let action = script_step(worker, &key);
            recorder.record(worker.index, called, [(key, State::String(None), action)]);
        });
        report(&recorder);
    });
}

fn script_step(worker: &mut Worker, key: &str) -> Action {
    const SWAP: &str = "local before = redis.call('GET', k) redis.call('SET', k, v) return before";
    const COMPARE: &str = "local now = redis.call('GET', k) or '' \
        if now ~= ARGV[3] then return now end redis.call('SET', k, v) return {}";
    let value = worker.value();
    let is_declared = worker.rng.chance(70);
    // The number makes a script that the server does not know yet.
    let number_of_script = worker.rng.below(20);
    let script = |body: &str| {
        let k = if is_declared { "KEYS[1]" } else { "ARGV[1]" };
        format!("local k, v = {k}, ARGV[2] {body} -- {number_of_script}")
    };
    let value_text = format!("v{value}");
    let declared = if is_declared { vec!["1", key, key] } else { vec!["0", key] };
    match worker.rng.below(5) {
        0 => Action::Get(number(&worker.ask(&format!("GET {key}")))),
        1 => {
            worker.ask(&format!("SET {key} v{value}"));
            Action::Set(value)
        }
        2 | 3 => {
            let script = script(SWAP);
            let words = [&["EVAL", &script][..], &declared, &[&value_text]].concat();
            Action::Swap(value, number(&ok(&mut worker.client, &words[..])))
        }
        _ => {
            let seen = number(&worker.ask(&format!("GET {key}")));
            let seen_text = seen.map_or(String::new(), |seen| format!("v{seen}"));
            let script = script(COMPARE);
            let words = [&["EVAL", &script][..], &declared, &[&value_text, &seen_text]].concat();
            match ok(&mut worker.client, &words[..]) {
                Reply::Array(_) => Action::CompareAndSet(seen, value),
                reply if reply.text() == Some(b"") => Action::Get(None),
                reply => Action::Get(number(&reply)),
            }
        }
    }
}

#[test]
fn counters() {
    with_servers(|server| {
        let recorder = Recorder::new();
        work(server, |worker| {
            let key = format!("n{}", worker.rng.below(2));
            let called = recorder.now();
            let action = match worker.rng.below(4) {
                0 => Action::Get(number(&worker.ask(&format!("GET {key}")))),
                1 => {
                    let replies =
                        worker.transaction(&[format!("INCR {key}"), format!("INCRBY {key} 1")]);
                    let replies = replies.expect("nothing is watched");
                    let both = replies.iter().map(|reply| number(reply).expect("a count"));
                    Action::Together(both.map(Action::Increment).collect())
                }
                _ => {
                    Action::Increment(number(&worker.ask(&format!("INCR {key}"))).expect("a count"))
                }
            };
            recorder.record(worker.index, called, [(key, State::String(None), action)]);
        });
        report(&recorder);
    });
}

#[test]
fn lists_and_blocking_pops() {
    with_servers(|server| {
        let recorder = Recorder::new();
        work(server, |worker| {
            let key = format!("l{}", worker.rng.below(3));
            let other = format!("l{}", worker.rng.below(3));
            let called = recorder.now();
            let actions = list_step(worker, key, other);
            let named =
                actions.into_iter().map(|(key, action)| (key, State::List([].into()), action));
            recorder.record(worker.index, called, named);
        });
        report(&recorder);
    });
}

fn list_step(worker: &mut Worker, key: String, other: String) -> Vec<(String, Action)> {
    let front = worker.rng.chance(50);
    let side = if front { 'L' } else { 'R' };
    match worker.rng.below(10) {
        0..=2 => {
            let values: Vec<u64> = (0..1 + worker.rng.below(2)).map(|_| worker.value()).collect();
            let words: Vec<String> = values.iter().map(u64::to_string).collect();
            let reply = worker.ask(&format!("{side}PUSH {key} {}", words.join(" ")));
            let length = number(&reply).map(|length| length as usize);
            vec![(key, Action::Push { front, values, length })]
        }
        3 => {
            let value = number(&worker.ask(&format!("{side}POP {key}")));
            vec![(key, Action::Pop { front, value })]
        }
        4 => vec![(key.clone(), Action::All(numbers(&worker.ask(&format!("LRANGE {key} 0 -1")))))],
        5 => {
            let reply = worker.ask(&format!("B{side}POP {key} {other} 0.01"));
            match reply.elements() {
                Some(pair) => {
                    let name = pair[0].text().expect("a key's name").to_vec();
                    let value = number(&pair[1]);
                    vec![(String::from_utf8(name).expect("our own"), Action::Pop { front, value })]
                }
                // Both were empty at the same moment at least once; each alone is checked.
                None => [key, other].map(|key| (key, Action::Pop { front, value: None })).into(),
            }
        }
        6 => {
            let replies = worker.transaction(&[
                format!("LPOP {key}"),
                format!("RPUSH {key} {}", worker.index),
                format!("RPOP {key}"),
            ]);
            let replies = replies.expect("nothing is watched");
            let pushed = worker.index as u64;
            let length = number(&replies[1]).map(|length| length as usize);
            let actions = vec![
                Action::Pop { front: true, value: number(&replies[0]) },
                Action::Push { front: false, values: vec![pushed], length },
                Action::Pop { front: false, value: number(&replies[2]) },
            ];
            vec![(key, Action::Together(actions))]
        }
        7 => vec![(key.clone(), Action::Delete(flag(&worker.ask(&format!("DEL {key}")))))],
        _ => {
            let to_front = worker.rng.chance(50);
            let (from, to) =
                (if front { "LEFT" } else { "RIGHT" }, if to_front { "LEFT" } else { "RIGHT" });
            let blocks = worker.rng.chance(50);
            let (command, timeout) = if blocks { ("BLMOVE", " 0.01") } else { ("LMOVE", "") };
            let value =
                number(&worker.ask(&format!("{command} {key} {other} {from} {to}{timeout}")));
            let pop = Action::Pop { front, value };
            match value {
                None => vec![(key, pop)],
                Some(value) => {
                    let push = Action::Push { front: to_front, values: vec![value], length: None };
                    if key == other {
                        vec![(key, Action::Together(vec![pop, push]))]
                    } else {
                        vec![(key, pop), (other, push)]
                    }
                }
            }
        }
    }
}

#[test]
fn set_members() {
    with_servers(|server| {
        let recorder = Recorder::new();
        work(server, |worker| {
            let (key, other) = (worker.rng.below(2), worker.rng.below(2));
            let member = worker.rng.below(3);
            let named =
                |key: usize, action| (format!("t{key}/{member}"), State::Member(false), action);
            let called = recorder.now();
            let actions = match worker.rng.below(5) {
                0 => vec![named(
                    key,
                    Action::Add(flag(&worker.ask(&format!("SADD t{key} {member}")))),
                )],
                1 => vec![named(
                    key,
                    Action::Remove(flag(&worker.ask(&format!("SREM t{key} {member}")))),
                )],
                2 | 3 => {
                    let reply = worker.ask(&format!("SISMEMBER t{key} {member}"));
                    vec![named(key, Action::Contains(flag(&reply)))]
                }
                _ => {
                    let moved = flag(&worker.ask(&format!("SMOVE t{key} t{other} {member}")));
                    if !moved || key == other {
                        vec![named(key, Action::Contains(moved))]
                    } else {
                        vec![named(key, Action::Remove(true)), named(other, Action::Arrive)]
                    }
                }
            };
            recorder.record(worker.index, called, actions);
        });
        report(&recorder);
    });
}

#[test]
fn what_is_written_together_is_read_together() {
    with_servers(|server| {
        work(server, |worker| {
            let keys = "k1 k2 k3 k4 k5 k6";
            let value = worker.value();
            let pairs: Vec<String> = keys.split(' ').map(|key| format!("{key} {value}")).collect();
            let values = match worker.rng.below(6) {
                0 => {
                    worker.ask(&format!("MSET {}", pairs.join(" ")));
                    return;
                }
                1 => {
                    let sets: Vec<String> =
                        pairs.iter().rev().map(|pair| format!("SET {pair}")).collect();
                    worker.transaction(&sets);
                    return;
                }
                2 => {
                    worker.ask(&format!("DEL {keys}"));
                    return;
                }
                3 => {
                    let gets: Vec<String> =
                        keys.split(' ').map(|key| format!("GET {key}")).collect();
                    Reply::Array(worker.transaction(&gets).expect("nothing is watched"))
                }
                4 => {
                    // Keys come and go together too.
                    let count = number(&worker.ask(&format!("EXISTS {keys}")));
                    assert!(matches!(count, Some(0 | 6)), "{count:?} of the keys exist");
                    return;
                }
                _ => worker.ask(&format!("MGET {keys}")),
            };
            let values = values.elements().expect("an array");
            assert!(values.iter().all(|value| *value == values[0]), "torn: {values:?}");
        });
    });
}

/// Money moves between accounts in every way there is; its sum never changes.
#[test]
fn sums_are_kept() {
    const ACCOUNTS: usize = 4;
    const TOTAL: i64 = 1000 * ACCOUNTS as i64;
    let sum = |replies: &[Reply]| -> i64 {
        let each = replies.iter().map(|reply| match reply {
            Reply::Integer(number) => *number,
            reply => {
                let text = reply.text().map(String::from_utf8_lossy).expect("a balance");
                text.parse().expect("a number")
            }
        });
        each.sum()
    };
    with_servers(|server| {
        let mut setup = Worker::new(server, 0);
        for account in 0..ACCOUNTS {
            setup.ask(&format!("SET a{account} 1000"));
            setup.ask(&format!("HSET h f{account} 1000"));
        }
        work(server, |worker| {
            let (from, to) = (worker.rng.below(ACCOUNTS), worker.rng.below(ACCOUNTS));
            let amount = worker.rng.below(50);
            match worker.rng.below(6) {
                0 | 1 => {
                    worker.transaction(&[
                        format!("DECRBY a{from} {amount}"),
                        format!("INCRBY a{to} {amount}"),
                    ]);
                }
                // Optimistic: reads, computes, and writes if no other client was faster.
                2 if from != to => {
                    worker.ask(&format!("WATCH a{from} a{to}"));
                    let before = worker.ask(&format!("MGET a{from} a{to}"));
                    let before = before.elements().expect("an array").to_vec();
                    let (a, b) = (sum(&before[..1]), sum(&before[1..]));
                    let amount = amount as i64;
                    worker.transaction(&[format!(
                        "MSET a{from} {} a{to} {}",
                        a - amount,
                        b + amount
                    )]);
                }
                3 => {
                    let replies = worker.transaction(&[
                        format!("HINCRBY h f{from} -{amount}"),
                        format!("HINCRBY h f{to} {amount}"),
                        "HVALS h".to_owned(),
                    ]);
                    let replies = replies.expect("nothing is watched");
                    assert_eq!(sum(replies[2].elements().expect("an array")), TOTAL);
                }
                4 => {
                    let values = worker.ask("HVALS h");
                    assert_eq!(sum(values.elements().expect("an array")), TOTAL);
                }
                _ => {
                    let values = worker.ask("MGET a0 a1 a2 a3");
                    assert_eq!(sum(values.elements().expect("an array")), TOTAL);
                }
            }
        });
    });
}

/// One key wanders by RENAME and COPY; a look at all places at once finds it in exactly one of
/// them, and its two halves are always of the same write.
#[test]
fn a_renamed_key_is_in_one_place() {
    with_servers(|server| {
        let mut setup = Worker::new(server, 0);
        setup.ask("SET place0 1");
        setup.ask("HSET pair a 1 b 1");
        work(server, |worker| {
            let (from, to) = (worker.rng.below(3), worker.rng.below(3));
            match worker.rng.below(7) {
                // It fails where the key is not; that is as good.
                0 => drop(worker.client.command(&[
                    "RENAME",
                    &format!("place{from}"),
                    &format!("place{to}"),
                ])),
                1 => drop(worker.client.command(&[
                    "RENAMENX",
                    &format!("place{from}"),
                    &format!("place{to}"),
                ])),
                2 => {
                    let count = worker.ask("EXISTS place0 place1 place2");
                    assert_eq!(count, Reply::Integer(1));
                }
                3 => {
                    let value = worker.value();
                    worker.ask(&format!("HSET pair a {value} b {value}"));
                }
                4 => drop(worker.ask("COPY pair copy REPLACE")),
                5 => {
                    let values = numbers(&worker.ask("HVALS copy"));
                    assert!(values.is_empty() || values[0] == values[1], "torn: {values:?}");
                }
                _ => {
                    let replies = worker.transaction(&[
                        "MGET place0 place1 place2".to_owned(),
                        "HMGET pair a b".to_owned(),
                    ]);
                    let replies = replies.expect("nothing is watched");
                    assert_eq!(numbers(&replies[0]), [1]);
                    let values = numbers(&replies[1]);
                    assert_eq!(values[0], values[1]);
                }
            }
        });
    });
}

/// How long short lives are.
const LIFE: Duration = Duration::from_millis(100);
/// A thread looks at the clock and then may have to wait for a processor.
const SLACK: Duration = Duration::from_millis(60);

/// Asks for what was given a short life between `before` and now until it is gone, and for some
/// time after.
fn outlive(worker: &mut Worker, name: &str, exists: &str, before: Instant) {
    let set = Instant::now();
    let mut gone = false;
    while !gone || set.elapsed() < LIFE + SLACK {
        let asked = Instant::now();
        let there = flag(&worker.ask(exists));
        let answered = Instant::now();
        assert!(!(gone && there), "{name} came back");
        let age = answered - before;
        assert!(there || age + SLACK >= LIFE, "{name} was gone after {age:?}");
        let age = asked.saturating_duration_since(set);
        assert!(!there || age <= LIFE + SLACK, "{name} was there after {age:?}");
        gone = !there;
    }
}

/// Keys with short lives: once a client sees one gone it never sees it again, since none is written
/// twice; no client sees it long after its time, nor finds it gone long before.
#[test]
fn expired_keys_do_not_come_back() {
    with_servers(|server| {
        work(server, |worker| {
            // Its number tells whose it is.
            let name = format!("e{}", worker.value());
            let before = Instant::now();
            match worker.rng.below(3) {
                0 => drop(worker.ask(&format!("SET {name} 1 PX {}", LIFE.as_millis()))),
                1 => {
                    worker.ask(&format!("RPUSH {name} 1"));
                    worker.ask(&format!("PEXPIRE {name} {}", LIFE.as_millis()));
                }
                _ => {
                    worker.transaction(&[
                        format!("SADD {name} 1"),
                        format!("PEXPIRE {name} {}", LIFE.as_millis()),
                    ]);
                }
            }
            outlive(worker, &name, &format!("EXISTS {name}"), before);
        });
        let mut check = Worker::new(server, 0);
        assert_eq!(check.ask("DBSIZE"), Reply::Integer(0));
    });
}

/// The same for fields of one hash, which all clients give short lives, in each of the ways there
/// are.
#[test]
fn expired_fields_do_not_come_back() {
    with_servers(|server| {
        work(server, |worker| {
            let name = format!("f{}", worker.value());
            let before = Instant::now();
            let life = LIFE.as_millis();
            match worker.rng.below(3) {
                0 => drop(worker.ask(&format!("HSETEX hash PX {life} FIELDS 1 {name} 1"))),
                1 => {
                    worker.ask(&format!("HSET hash {name} 1"));
                    worker.ask(&format!("HPEXPIRE hash {life} FIELDS 1 {name}"));
                }
                _ => {
                    worker.transaction(&[
                        format!("HSET hash {name} 1"),
                        format!("HGETEX hash PX {life} FIELDS 1 {name}"),
                    ]);
                }
            }
            outlive(worker, &name, &format!("HEXISTS hash {name}"), before);
        });
        let mut check = Worker::new(server, 0);
        eventually("the hash went with its last field", || {
            check.ask("EXISTS hash") == Reply::Integer(0)
        });
    });
}

/// Tokens wander between lists and sets; in the end each is there exactly once.
#[test]
fn no_element_is_lost_or_duplicated() {
    const TOKENS: usize = 40;
    with_servers(|server| {
        let mut setup = Worker::new(server, 0);
        for token in 0..TOKENS {
            setup.ask(&format!("RPUSH l{} {token}", token % 4));
            setup.ask(&format!("SADD t{} {token}", token % 3));
        }
        work(server, |worker| {
            let (from, to) = (worker.rng.below(4), worker.rng.below(4));
            let token = worker.rng.below(TOKENS);
            match worker.rng.below(9) {
                0 => drop(worker.ask(&format!("LMOVE l{from} l{to} LEFT RIGHT"))),
                1 => drop(worker.ask(&format!("RPOPLPUSH l{from} l{to}"))),
                2 => drop(worker.ask(&format!("BLMOVE l{from} l{to} RIGHT RIGHT 0.01"))),
                3 => {
                    if let Some(pair) = worker.ask(&format!("BLPOP l{from} l{to} 0.01")).elements()
                    {
                        let token = number(&pair[1]).expect("a token");
                        worker.ask(&format!("LPUSH l{to} {token}"));
                    }
                }
                4 => {
                    let reply = worker.ask(&format!("BLMPOP 0.01 2 l{from} l{to} RIGHT COUNT 3"));
                    if let Some(pair) = reply.elements() {
                        for token in numbers(&pair[1]) {
                            worker.ask(&format!("RPUSH l{from} {token}"));
                        }
                    }
                }
                5 => {
                    // In a transaction, while others are blocked on both lists.
                    worker.transaction(&[
                        format!("LMOVE l{from} l{to} LEFT LEFT"),
                        format!("LMOVE l{to} l{from} RIGHT LEFT"),
                    ]);
                }
                6 => {
                    if let Some(token) = number(&worker.ask(&format!("SPOP t{}", from % 3))) {
                        worker.ask(&format!("SADD t{} {token}", to % 3));
                    }
                }
                7 => {
                    let replies = worker.transaction(&[
                        format!("SMOVE t{} t{} {token}", from % 3, to % 3),
                        "SUNION t0 t1 t2".to_owned(),
                        "SINTER t0 t1".to_owned(),
                    ]);
                    let replies = replies.expect("nothing is watched");
                    assert!(numbers(&replies[2]).is_empty(), "in two sets: {:?}", replies[2]);
                }
                _ => drop(worker.ask(&format!("SMOVE t{} t{} {token}", from % 3, to % 3))),
            }
        });
        let lists: Vec<u64> =
            (0..4).flat_map(|key| numbers(&setup.ask(&format!("LRANGE l{key} 0 -1")))).collect();
        let sets: Vec<u64> =
            (0..3).flat_map(|key| numbers(&setup.ask(&format!("SMEMBERS t{key}")))).collect();
        for mut found in [lists, sets] {
            found.sort_unstable();
            assert_eq!(found, (0..TOKENS as u64).collect::<Vec<_>>());
        }
    });
}

/// Producers push, consumers wait: every element arrives once, and each producer's in its order.
#[test]
fn queues_deliver_once_and_in_order() {
    with_servers(|server| {
        let consumed: Mutex<Vec<Vec<u64>>> = Mutex::new(Vec::new());
        let produced: Mutex<BTreeMap<usize, u64>> = Mutex::new(BTreeMap::new());
        let end = Instant::now() + seconds();
        thread::scope(|scope| {
            for index in 0..CLIENTS {
                let (consumed, produced) = (&consumed, &produced);
                scope.spawn(move || {
                    let mut worker = Worker::new(server, index);
                    if index < CLIENTS / 2 {
                        while Instant::now() < end {
                            let values = [worker.value(), worker.value()];
                            worker.ask(&format!("RPUSH queue {} {}", values[0], values[1]));
                        }
                        produced.lock().unwrap().insert(index, worker.values);
                        return;
                    }
                    let mut mine = Vec::new();
                    // Goes on until the queue stays empty after the producers' end.
                    loop {
                        let over = Instant::now() > end + Duration::from_millis(200);
                        match worker.ask("BLPOP queue 0.1").elements() {
                            Some(pair) => mine.push(number(&pair[1]).expect("a value")),
                            None if over => break,
                            None => {}
                        }
                    }
                    consumed.lock().unwrap().push(mine);
                });
            }
        });
        let consumed = consumed.into_inner().unwrap();
        for mine in &consumed {
            let mut last = BTreeMap::new();
            for value in mine {
                let producer = value / 1_000_000_000;
                let before = last.insert(producer, *value);
                assert!(before < Some(*value), "{value} after {before:?}");
            }
        }
        let mut all: Vec<u64> = consumed.concat();
        all.sort_unstable();
        let mut expected: Vec<u64> = Vec::new();
        for (index, count) in produced.into_inner().unwrap() {
            expected.extend((1..=count).map(|n| (index as u64 + 1) * 1_000_000_000 + n));
        }
        assert!(all == expected, "{} produced, {} consumed", expected.len(), all.len());
        println!("{} elements delivered", all.len());
    });
}

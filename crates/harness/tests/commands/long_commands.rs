//! Long commands run beside everybody else: what their client, the others and the data see of it.
//!
//! "Beside" is checked by order, not by time: what others are answered while the long command's
//! reply is not there yet.

// A failed step is a failed test, in its helpers too.
#![allow(clippy::unwrap_used)]

use harness::client::{Client, Request, ask, encode};
use harness::reply::{Protocol, Reply};
use harness::server::{Backend, Options, Program, Server};
use harness::wait::SetAtEnd;
use std::time::Duration;

/// Elements of the big values: a long command on them takes long enough to look around meanwhile,
/// even if the machine is fast.
const ELEMENTS: usize = 200_000;

/// Runs a test on a server with two reactors. Nothing here depends on the back-end, but for how a
/// reactor is woken: `on_both` is for that.
fn on_server(test: impl Fn(&Server)) {
    run(None, &test);
}

fn on_both(test: impl Fn(&Server)) {
    Program::under_test().backends().into_iter().for_each(|backend| run(backend, &test));
}

fn run(backend: Option<Backend>, test: &impl Fn(&Server)) {
    let options = Options { backend, ..Options::arguments(&["--io-threads", "2"]) };
    let server = Server::start(&Program::under_test(), options).unwrap();
    test(&server);
    let status = server.stop().unwrap();
    assert!(status.success(), "the server ended with {status}");
}

fn send(client: &mut Client, request: &str) {
    client.send(&request.words()).unwrap();
}

fn number(client: &mut Client, request: &str) -> i64 {
    let reply = ask(client, request);
    reply.integer().unwrap_or_else(|| panic!("{request}: {reply:?}"))
}

fn fill(client: &mut Client, command: &str, key: &str, prefix: &str, count: usize) {
    let mut pending = 0;
    for start in (0..count).step_by(1000) {
        let mut words = vec![command.to_owned(), key.to_owned()];
        words.extend((start..count.min(start + 1000)).map(|number| format!("{prefix}{number}")));
        client.send(&words).unwrap();
        pending += 1;
    }
    for _ in 0..pending {
        assert!(client.reply().unwrap().integer().is_some());
    }
}

fn two_sets(client: &mut Client) {
    fill(client, "SADD", "a", "a:", ELEMENTS);
    fill(client, "SADD", "b", "b:", ELEMENTS);
}

/// Attempts until a long command is seen at work: on a busy machine it can be over before its
/// observer is scheduled.
const ATTEMPTS: usize = 100;

/// Waits until the command that another client has just sent holds its keys. Returns `false` if it
/// is over.
fn is_held(client: &mut Client, busy: &mut Client) -> bool {
    loop {
        let info = ask(client, "INFO memory");
        if info.shown().contains("long_commands_holding_keys:1") {
            return true;
        }
        if busy.has_data().unwrap() {
            return false;
        }
    }
}

/// Runs a test of what others see of a long command until it says that it has seen that.
fn until_seen(attempt: impl FnMut() -> bool) {
    let mut attempts = std::iter::repeat_with(attempt).take(ATTEMPTS);
    assert!(attempts.any(|is_seen| is_seen), "the command was always over before it was seen");
}

/// Begins a long command, until it is seen to hold its keys. Returns how often it had to be sent.
fn hold(long: &mut Client, other: &mut Client, request: &str) -> usize {
    let mut sent = 0;
    until_seen(|| {
        sent += 1;
        send(long, request);
        let is_held = is_held(other, long);
        if !is_held {
            long.reply().unwrap();
        }
        is_held
    });
    sent
}

/// Sends short commands for a while, but not for longer than another client's long one takes.
/// Returns whether they were served beside it.
fn others_are_served_beside(long: &mut Client, other: &mut Client) -> bool {
    ask(other, "DEL counter");
    let mut served = 0;
    while served < 100 && !long.has_data().unwrap() {
        served += 1;
        assert_eq!(number(other, "INCR counter"), served);
    }
    // The first one may have been answered when the long one was over.
    served > 1
}

#[test]
fn others_go_on_and_the_pipeline_keeps_its_order() {
    on_both(|server| {
        let (mut long, mut other) = (server.client(), server.client());
        two_sets(&mut long);
        let mut requests = encode(&["SUNIONSTORE", "out", "a", "b"]);
        requests.extend(encode(&["SCARD", "out"]));
        requests.extend(encode(&["ECHO", "last"]));
        until_seen(|| {
            ask(&mut other, "UNWATCH");
            ask(&mut other, "DEL out");
            long.send_raw(&requests).unwrap();
            let mut is_seen = is_held(&mut other, &mut long);
            if is_seen {
                // What it reads can be read, what it will write too, and any other key can be
                // changed.
                assert_eq!(number(&mut other, "SCARD a"), ELEMENTS as i64);
                let before = number(&mut other, "EXISTS out");
                // Not writing, and yet more than reading.
                assert_eq!(ask(&mut other, "WATCH a out"), Reply::Simple(b"OK".to_vec()));
                let touched = number(&mut other, "TOUCH a out");
                is_seen = others_are_served_beside(&mut long, &mut other);
                assert!(!is_seen || (before, touched) == (0, 1), "{before}, {touched}");
            }
            assert_eq!(long.reply().unwrap(), Reply::Integer(2 * ELEMENTS as i64));
            assert_eq!(long.reply().unwrap(), Reply::Integer(2 * ELEMENTS as i64));
            assert_eq!(long.reply().unwrap(), Reply::Bulk(b"last".to_vec()));
            is_seen
        });
    });
}

#[test]
fn a_big_payload_is_restored_beside_the_others() {
    on_server(|server| {
        let (mut long, mut other) = (server.client(), server.client());
        two_sets(&mut long);
        let dump = ask(&mut long, "DUMP a");
        let payload = dump.text().unwrap();
        let restore = [&b"RESTORE"[..], b"copy", b"0", payload, b"REPLACE"];
        let mut requests = encode(&restore);
        requests.extend(encode(&["SCARD", "copy"]));
        until_seen(|| {
            long.send_raw(&requests).unwrap();
            let is_held = is_held(&mut other, &mut long);
            let is_seen = is_held && others_are_served_beside(&mut long, &mut other);
            assert_eq!(long.reply().unwrap(), Reply::Simple(b"OK".to_vec()));
            assert_eq!(long.reply().unwrap(), Reply::Integer(ELEMENTS as i64));
            is_seen
        });
        assert_eq!(number(&mut other, "SCARD copy"), ELEMENTS as i64);
        // One that is not to replace, and one that is broken, change nothing.
        let exists = &b"BUSYKEY Target key name already exists."[..];
        assert_eq!(long.command(&restore[..4]).unwrap(), Reply::Error(exists.to_vec()));
        let broken = [&b"RESTORE"[..], b"copy", b"0", &payload[1..], b"REPLACE"];
        let unsound = &b"ERR DUMP payload version or checksum are wrong"[..];
        assert_eq!(long.command(&broken).unwrap(), Reply::Error(unsound.to_vec()));
        assert_eq!(number(&mut other, "SCARD copy"), ELEMENTS as i64);
    });
}

#[test]
fn a_huge_string_is_read_beside_the_others() {
    const BYTES: usize = 128 << 20;
    on_server(|server| {
        let (mut long, mut other) = (server.client(), server.client());
        assert_eq!(number(&mut long, &format!("SETRANGE huge {} x", BYTES - 1)), BYTES as i64);
        ask(&mut long, "CONFIG RESETSTAT");
        send(&mut long, "GET huge");
        send(&mut long, &format!("GETRANGE huge {} -1", BYTES / 2));
        send(&mut long, "ECHO last");
        for count in 1..=100 {
            assert_eq!(number(&mut other, "INCR counter"), count);
        }
        let tail =
            |reply: Reply| (reply.text().unwrap().len(), *reply.text().unwrap().last().unwrap());
        assert_eq!(tail(long.reply().unwrap()), (BYTES, b'x'));
        assert_eq!(tail(long.reply().unwrap()), (BYTES / 2, b'x'));
        assert_eq!(long.reply().unwrap(), Reply::Bulk(b"last".to_vec()));
        // Each is counted once, and as one hit.
        assert_eq!((calls(&mut other, "get"), calls(&mut other, "getrange")), (1, 1));
        let stats = ask(&mut other, "INFO stats");
        let stats = stats.shown();
        assert!(stats.contains("keyspace_hits:2\r\n"), "{stats}");
        // So is a string made longer.
        let (byte, end) = (16 << 20, 32 << 20);
        send(&mut long, &format!("SETBIT bits {} 1", byte * 8));
        send(&mut long, &format!("SETRANGE bits {end} end"));
        send(&mut long, "BITCOUNT bits");
        assert_eq!(long.reply().unwrap(), Reply::Integer(0));
        assert_eq!(long.reply().unwrap(), Reply::Integer(end + 3));
        let ones: u32 = b"end".iter().map(|byte| byte.count_ones()).sum();
        assert_eq!(long.reply().unwrap(), Reply::Integer(1 + i64::from(ones)));
        assert_eq!((calls(&mut other, "setbit"), calls(&mut other, "setrange")), (1, 1));
        ask(&mut long, "DEL bits");
        // A transaction is one step, and does it in place.
        for request in ["MULTI", "GET huge", "INCR counter"] {
            ask(&mut long, request);
        }
        let Reply::Array(replies) = ask(&mut long, "EXEC") else { panic!("no array") };
        assert_eq!(replies[0].text().unwrap().len(), BYTES);
        assert_eq!(replies[1], Reply::Integer(101));
    });
}

/// `NAME`, and for each of so many keys what `each` makes of its number.
fn with_keys(name: &str, count: usize, each: impl Fn(usize) -> Vec<String>) -> Vec<u8> {
    let mut words = vec![name.to_owned()];
    words.extend((0..count).flat_map(each));
    encode(&words)
}

/// MULTI, a command for each of so many keys, and EXEC.
fn transaction(count: usize, each: impl Fn(usize) -> Vec<String>) -> Vec<u8> {
    let mut requests = encode(&["MULTI"]);
    (0..count).for_each(|number| requests.extend(encode(&each(number))));
    requests.extend(encode(&["EXEC"]));
    requests
}

/// Commands that change very many keys, and how many replies come before the last.
fn changes_of_many(count: usize, value: &str) -> [(Vec<u8>, usize); 2] {
    let set = |number: usize| vec!["SET".to_owned(), format!("k{number}"), value.to_owned()];
    let pair = |number: usize| vec![format!("k{number}"), value.to_owned()];
    [(with_keys("MSET", count, pair), 0), (transaction(count, set), 1 + count)]
}

#[test]
fn very_many_keys_change_beside_the_others() {
    const KEYS: usize = 100_000;
    on_both(|server| {
        let (mut long, mut other) = (server.client(), server.client());
        let mut served = 0;
        let key = |number: usize| vec![format!("k{number}")];
        let [mset, exec] = changes_of_many(KEYS, "v");
        let changes = [mset, exec, (with_keys("DEL", KEYS, key), 0)];
        for (requests, before) in changes {
            long.send_raw(&requests).unwrap();
            (0..before).for_each(|_| drop(long.reply().unwrap()));
            let started = served;
            while served < started + 100 && !long.has_data().unwrap() {
                served += 1;
                assert_eq!(number(&mut other, "INCR counter"), served);
            }
            assert!(served > started + 1, "the others had to wait");
            long.reply().unwrap();
        }
        assert_eq!(number(&mut other, "DBSIZE"), 1);
        let stats = ask(&mut other, "INFO commandstats");
        for line in ["cmdstat_mset:calls=1,", "cmdstat_exec:calls=1,", "cmdstat_del:calls=1,"] {
            assert!(stats.shown().contains(line), "{line}");
        }
    });
}

#[test]
fn a_change_of_very_many_keys_is_seen_whole() {
    const KEYS: usize = 8000;
    const ROUNDS: usize = 12;
    on_server(|server| {
        let mut writer = server.client();
        let is_over = std::sync::atomic::AtomicBool::new(false);
        std::thread::scope(|scope| {
            let is_over = &is_over;
            let _over = SetAtEnd(is_over);
            for seed in 1..4 {
                let mut reader = server.client();
                scope.spawn(move || {
                    let (mut at, mut seen) = (seed * 997, -1);
                    while !is_over.load(std::sync::atomic::Ordering::Relaxed) {
                        at = (at * 31 + 7) % KEYS;
                        let (a, b) = (at, (at * 17 + 3) % KEYS);
                        // Together, and one after the other: never a newer value before an older
                        // one.
                        let both = ask(&mut reader, &format!("MGET k{a} k{b}"));
                        let Reply::Array(values) = both else { panic!("{both:?}") };
                        assert_eq!(values[0], values[1]);
                        for key in [a, b] {
                            let value = ask(&mut reader, &format!("GET k{key}"));
                            let text =
                                value.text().map_or("-1", |text| str::from_utf8(text).unwrap());
                            let round: i64 = text.parse().unwrap();
                            assert!(round >= seen, "{seen} was there, now it is {round}");
                            seen = round;
                        }
                    }
                });
            }
            let mut watcher = server.client();
            for round in 0..ROUNDS {
                ask(&mut watcher, "WATCH k77");
                let [mset, exec] = changes_of_many(KEYS, &round.to_string());
                let (requests, before) = if round % 2 == 0 { mset } else { exec };
                writer.send_raw(&requests).unwrap();
                for _ in 0..=before {
                    assert!(!matches!(writer.reply().unwrap(), Reply::Error(_)));
                }
                ask(&mut watcher, "MULTI");
                ask(&mut watcher, "SET k77 never");
                assert_eq!(ask(&mut watcher, "EXEC"), Reply::NilArray, "a watch was not raised");
            }
        });
    });
}

#[test]
fn a_transaction_of_very_many_keys_sees_what_it_has_done() {
    const KEYS: usize = 4000;
    on_server(|server| {
        let mut client = server.client();
        // The odd keys have expired, and nothing but a read has come to them.
        for number in 0..KEYS {
            let expiry = if number % 2 == 1 { " PX 1" } else { "" };
            ask(&mut client, &format!("SET r{number} old{expiry}"));
        }
        ask(&mut client, "DEBUG SLEEP 0.01");
        let commands = |number: usize| {
            let line = match number % 5 {
                0 => format!("RPUSH l{number} a b"),
                1 => format!("LPOP l{}", number - 1),
                2 => format!("RENAME l{} m{number}", number - 2),
                3 => format!("GET r{number}"),
                _ => format!("LLEN m{}", number - 2),
            };
            line.split(' ').map(str::to_owned).collect()
        };
        client.send_raw(&transaction(KEYS, commands)).unwrap();
        (0..=KEYS).for_each(|_| drop(client.reply().unwrap()));
        let Reply::Array(replies) = client.reply().unwrap() else { panic!("no array") };
        for (number, reply) in replies.iter().enumerate() {
            let expected = match number % 5 {
                0 => Reply::Integer(2),
                1 => Reply::Bulk(b"a".to_vec()),
                2 => Reply::Simple(b"OK".to_vec()),
                3 if number % 2 == 1 => Reply::Nil,
                3 => Reply::Bulk(b"old".to_vec()),
                _ => Reply::Integer(1),
            };
            assert_eq!(*reply, expected, "{number}");
        }
        let mut other = server.client();
        assert_eq!(number(&mut other, "LLEN m2"), 1);
        assert_eq!(number(&mut other, "EXISTS l0 l5 r3 r13"), 0);
    });
}

#[test]
fn very_many_keys_are_each_dealt_with_once() {
    const KEYS: i64 = 1000;
    on_server(|server| {
        let mut client = server.client();
        let with_keys = |name: &str, each: &dyn Fn(i64) -> String| {
            (0..KEYS).fold(name.to_owned(), |line, number| line + " " + &each(number))
        };
        let set = with_keys("MSET", &|number| format!("k{number} v{number}"));
        assert_eq!(ask(&mut client, &set), Reply::Simple(b"OK".to_vec()));
        assert_eq!(number(&mut client, "DBSIZE"), KEYS);
        assert_eq!(ask(&mut client, "GET k777"), Reply::Bulk(b"v777".to_vec()));
        // Each name comes twice in a row; half of them are not there.
        let twice =
            |name: &str| with_keys(name, &|number| format!("k{number} k{number} x{number}"));
        assert_eq!(number(&mut client, &twice("EXISTS")), 2 * KEYS);
        assert_eq!(number(&mut client, &twice("TOUCH")), 2 * KEYS);
        assert_eq!(number(&mut client, &twice("DEL")), KEYS);
        assert_eq!(number(&mut client, "DBSIZE"), 0);
    });
}

#[test]
fn who_changes_a_held_key_waits_and_is_not_lost() {
    on_server(|server| {
        let (mut long, mut other) = (server.client(), server.client());
        two_sets(&mut long);
        hold(&mut long, &mut other, "SUNIONSTORE out a b");
        let mut transaction = server.client();
        for request in ["MULTI", "SADD b new", "SET free 1", "EXEC"] {
            send(&mut transaction, request);
        }
        // Its own next requests wait as well, others do not.
        send(&mut other, "SADD a new");
        send(&mut other, "SCARD a");
        assert_eq!(ask(&mut server.client(), "GET free"), Reply::Nil);
        // The union is that of the moment it began.
        assert_eq!(long.reply().unwrap(), Reply::Integer(2 * ELEMENTS as i64));
        assert_eq!(other.reply().unwrap(), Reply::Integer(1));
        assert_eq!(other.reply().unwrap(), Reply::Integer(ELEMENTS as i64 + 1));
        for _ in 0..3 {
            transaction.reply().unwrap();
        }
        let done = Reply::Array(vec![Reply::Integer(1), Reply::Simple(b"OK".to_vec())]);
        assert_eq!(transaction.reply().unwrap(), done);
    });
}

#[test]
fn a_writer_is_not_starved_by_readers() {
    on_server(|server| {
        let mut writer = server.client();
        two_sets(&mut writer);
        let mut readers = [server.client(), server.client(), server.client()];
        for reader in &mut readers {
            for _ in 0..20 {
                send(reader, "SORT a BY nosort LIMIT 0 1");
            }
        }
        assert_eq!(number(&mut writer, "SADD a new"), 1);
        let is_waiting =
            readers.iter_mut().any(|reader| reader.message_within(Duration::ZERO).is_err());
        for reader in readers {
            drop(reader);
        }
        assert!(is_waiting, "the writer came last");
    });
}

#[test]
fn a_transaction_runs_in_place_and_watches_see_long_writes() {
    on_server(|server| {
        let (mut long, mut other) = (server.client(), server.client());
        two_sets(&mut long);
        for (request, expected) in [("WATCH out", "OK"), ("MULTI", "OK"), ("SMEMBERS a", "QUEUED")]
        {
            assert_eq!(ask(&mut other, request), Reply::Simple(expected.into()));
        }
        assert_eq!(number(&mut long, "SUNIONSTORE out a b"), 2 * ELEMENTS as i64);
        assert_eq!(ask(&mut other, "EXEC"), Reply::NilArray);
        // Reading for long dirties nothing.
        for (request, expected) in [("WATCH a", "OK"), ("MULTI", "OK"), ("SMEMBERS a", "QUEUED")] {
            assert_eq!(ask(&mut other, request), Reply::Simple(expected.into()));
        }
        assert!(matches!(ask(&mut long, "SMEMBERS a"), Reply::Array(all) if all.len() == ELEMENTS));
        let Reply::Array(results) = ask(&mut other, "EXEC") else { panic!("no transaction") };
        assert!(matches!(&results[..], [Reply::Array(all)] if all.len() == ELEMENTS));
    });
}

/// Two strings whose longest common subsequence would take days.
fn two_long_strings(client: &mut Client) {
    // What takes so long is refused by default.
    ask(client, "CONFIG SET proto-max-bulk-len 1000gb");
    for key in ["s", "t"] {
        assert_eq!(number(client, &format!("SETRANGE {key} 399999 x")), 400_000);
    }
}

fn calls(client: &mut Client, command: &str) -> usize {
    let stats = ask(client, "INFO commandstats");
    let stats = stats.shown();
    let name = format!("cmdstat_{command}:calls=");
    let found = stats.lines().find_map(|line| line.strip_prefix(&name));
    found.map_or(0, |rest| rest.split(',').next().unwrap().parse().unwrap())
}

#[test]
fn what_only_reads_ends_when_nobody_waits_for_it() {
    on_both(|server| {
        let mut other = server.client();
        two_long_strings(&mut other);
        for is_killed in [true, false] {
            let mut long = server.client();
            let id = number(&mut long, "CLIENT ID");
            send(&mut long, "LCS s t LEN");
            assert!(is_held(&mut other, &mut long), "it takes minutes");
            if is_killed {
                assert_eq!(number(&mut other, &format!("CLIENT KILL ID {id}")), 1);
                long.expect_closed().unwrap();
            } else {
                drop(long);
            }
            // It would be held for minutes.
            assert_eq!(number(&mut other, "APPEND s x"), 400_001);
            ask(&mut other, "SETRANGE s 0 y");
            assert_eq!(number(&mut other, "STRLEN s"), 400_001);
            ask(&mut other, "DEL s");
            two_long_strings(&mut other);
        }
    });
}

/// Begins as many long commands as there are threads for them, and waits until they run.
fn fill_threads(server: &Server, other: &mut Client) -> [Client; 2] {
    let mut running = [server.client(), server.client()];
    for client in &mut running {
        send(client, "LCS s t LEN");
    }
    while !ask(other, "INFO memory").shown().contains("long_commands_holding_keys:2") {}
    running
}

/// Sends a long command for which no thread is free. Returns its client, and the request that lists
/// this client.
fn wait_for_thread(
    server: &Server,
    other: &mut Client,
    request: &str,
    shown: &str,
) -> (Client, String) {
    let mut waiting = server.client();
    let list = format!("CLIENT LIST ID {}", number(&mut waiting, "CLIENT ID"));
    send(&mut waiting, request);
    // Nothing shows that it has come but its client's last command.
    while !ask(other, &list).shown().contains(shown) {}
    (waiting, list)
}

#[test]
fn what_still_waits_for_a_thread_is_not_begun_in_vain() {
    on_server(|server| {
        let mut other = server.client();
        two_long_strings(&mut other);
        let running = fill_threads(server, &mut other);
        let (queued, list) = wait_for_thread(server, &mut other, "LCS s t LEN", "cmd=lcs");
        drop(queued);
        while !ask(&mut other, &list).text().unwrap().is_empty() {}
        drop(running);
        assert_eq!(number(&mut other, "APPEND s x"), 400_001);
        assert_eq!(number(&mut other, "APPEND t x"), 400_001);
        assert_eq!(calls(&mut other, "lcs"), 2);
    });
}

/// Fills all threads for long commands, lets a write wait for one of them, sends a request that
/// must not let it write any more, and frees the threads. The request may come too late; then the
/// write was done before. Returns whether it was refused with this word.
fn is_overtaken(server: &Server, request: &str, word: &str) -> bool {
    let (mut other, mut late) = (server.client(), server.client());
    let running = fill_threads(server, &mut other);
    let store = "SUNIONSTORE out a b";
    let (mut waiting, _) = wait_for_thread(server, &mut other, store, "cmd=sunionstore");
    send(&mut late, request);
    drop(running);
    let write = waiting.reply().unwrap();
    assert_eq!(late.reply().unwrap(), Reply::Simple(b"OK".to_vec()));
    let is_done = write == Reply::Integer(2 * ELEMENTS as i64);
    assert!(is_done || write.shown().contains(word), "{write:?}");
    assert_eq!(number(&mut other, "EXISTS out"), i64::from(is_done));
    !is_done
}

#[test]
fn a_write_that_waits_for_a_thread_is_refused_on_a_replica() {
    on_server(|server| {
        let mut client = server.client();
        two_sets(&mut client);
        two_long_strings(&mut client);
        until_seen(|| {
            let is_refused = is_overtaken(server, "REPLICAOF 127.0.0.1 1", "READONLY");
            ask(&mut client, "REPLICAOF NO ONE");
            ask(&mut client, "DEL out");
            is_refused
        });
    });
}

#[test]
fn a_write_that_waits_for_a_thread_is_refused_while_data_is_loaded() {
    let options = Options::arguments(&["--io-threads", "2", "--appendonly", "yes"]);
    let server = Server::start(&Program::under_test(), options).unwrap();
    let mut client = server.client();
    two_sets(&mut client);
    two_long_strings(&mut client);
    until_seen(|| {
        let is_refused = is_overtaken(&server, "DEBUG LOADAOF", "LOADING");
        assert_eq!(number(&mut client, "SCARD a"), ELEMENTS as i64);
        ask(&mut client, "DEL out");
        is_refused
    });
}

#[test]
fn a_write_is_done_for_a_client_that_has_hung_up() {
    on_both(|server| {
        let (mut long, mut other) = (server.client(), server.client());
        two_sets(&mut long);
        hold(&mut long, &mut other, "SUNIONSTORE out a b");
        drop(long);
        // A client that changes its keys waits for it.
        assert_eq!(number(&mut other, "SADD a new"), 1);
        assert_eq!(number(&mut other, "SCARD out"), 2 * ELEMENTS as i64);
    });
}

/// A client that is not listed changes nothing any more: tools wait for that.
#[test]
fn a_client_that_has_hung_up_is_listed_until_its_write_is_done() {
    on_both(|server| {
        let (mut long, mut other) = (server.client(), server.client());
        two_sets(&mut long);
        let list = format!("CLIENT LIST ID {}", number(&mut long, "CLIENT ID"));
        hold(&mut long, &mut other, "SUNIONSTORE out a b");
        drop(long);
        while !ask(&mut other, &list).text().unwrap().is_empty() {}
        let info = ask(&mut other, "INFO memory").shown();
        assert!(info.contains("long_commands_holding_keys:0"), "it still runs: {info}");
        assert_eq!(number(&mut other, "SCARD out"), 2 * ELEMENTS as i64);
    });
}

#[test]
fn a_client_that_is_killed_leaves_nothing_behind() {
    on_server(|server| {
        let (mut long, mut other) = (server.client(), server.client());
        two_sets(&mut long);
        let id = number(&mut long, "CLIENT ID");
        hold(&mut long, &mut other, "SUNIONSTORE out a b");
        assert_eq!(number(&mut other, &format!("CLIENT UNBLOCK {id}")), 0);
        assert_eq!(number(&mut other, &format!("CLIENT KILL ID {id}")), 1);
        long.expect_closed().unwrap();
        // A client that changes its keys waits for it; it has been done, or has done nothing.
        assert_eq!(number(&mut other, "SADD a new"), 1);
        let stored = number(&mut other, "SCARD out");
        assert!(stored == 0 || stored == 2 * ELEMENTS as i64, "{stored} members");
        assert_eq!(number(&mut other, "SUNIONSTORE out a b"), 2 * ELEMENTS as i64 + 1);
    });
}

#[test]
fn the_server_ends_during_a_long_command() {
    on_server(|server| {
        let (mut long, mut other) = (server.client(), server.client());
        two_sets(&mut long);
        hold(&mut long, &mut other, "SUNIONSTORE out a b");
        // `on_server` stops it now.
    });
}

#[test]
fn it_is_counted_logged_and_shown_once() {
    on_server(|server| {
        let (mut long, mut other) = (server.client(), server.client());
        two_sets(&mut long);
        ask(&mut long, "CONFIG SET slowlog-log-slower-than 0");
        let mut monitor = server.client();
        assert_eq!(ask(&mut monitor, "MONITOR"), Reply::Simple(b"OK".to_vec()));
        let sent = hold(&mut long, &mut other, "SUNIONSTORE out a b");
        // It waits for a while, and is tried several times.
        send(&mut other, "SADD a new");
        long.reply().unwrap();
        other.reply().unwrap();
        ask(&mut other, "ECHO end");
        let (mut unions, mut additions) = (0, 0);
        loop {
            let Reply::Simple(line) = monitor.reply().unwrap() else { panic!("no line") };
            let line = String::from_utf8(line).unwrap();
            unions += usize::from(line.contains("\"SUNIONSTORE\""));
            additions += usize::from(line.contains("\"SADD\""));
            if line.contains("\"end\"") {
                break;
            }
        }
        assert_eq!((unions, additions), (sent, 1));
        let log = format!("{:?}", ask(&mut other, "SLOWLOG GET 100"));
        let name = format!("{:?}", Reply::Bulk(b"SUNIONSTORE".to_vec()));
        assert_eq!(log.matches(&name).count(), sent, "{log}");
        let stats = ask(&mut other, "INFO commandstats");
        let stats = stats.shown();
        assert!(stats.contains(&format!("cmdstat_sunionstore:calls={sent},")), "{stats}");
    });
}

#[test]
fn replies_are_kept_from_a_client_that_wants_none() {
    on_server(|server| {
        let mut long = server.client();
        two_sets(&mut long);
        for request in
            ["CLIENT REPLY SKIP", "SMEMBERS a", "ECHO first", "CLIENT REPLY OFF", "SMEMBERS b"]
        {
            send(&mut long, request);
        }
        send(&mut long, "CLIENT REPLY ON");
        assert_eq!(long.reply().unwrap(), Reply::Bulk(b"first".to_vec()));
        assert_eq!(long.reply().unwrap(), Reply::Simple(b"OK".to_vec()));
    });
}

#[test]
fn what_needs_everything_waits_without_stopping_others() {
    on_server(|server| {
        let (mut long, mut other) = (server.client(), server.client());
        two_sets(&mut long);
        hold(&mut long, &mut other, "SUNIONSTORE out a b");
        let mut flusher = server.client();
        send(&mut flusher, "FLUSHALL");
        assert_eq!(number(&mut other, "SCARD a"), ELEMENTS as i64);
        assert_eq!(long.reply().unwrap(), Reply::Integer(2 * ELEMENTS as i64));
        assert_eq!(flusher.reply().unwrap(), Reply::Simple(b"OK".to_vec()));
        assert_eq!(number(&mut other, "DBSIZE"), 0);
        // What is freed before the reply keeps its place in the pipeline.
        two_sets(&mut other);
        send(&mut other, "FLUSHALL SYNC");
        send(&mut other, "DBSIZE");
        assert_eq!(other.reply().unwrap(), Reply::Simple(b"OK".to_vec()));
        assert_eq!(other.reply().unwrap(), Reply::Integer(0));
    });
}

#[test]
fn blocked_clients_are_served_when_it_is_over() {
    on_server(|server| {
        let (mut long, mut other) = (server.client(), server.client());
        fill(&mut long, "RPUSH", "list", "", ELEMENTS);
        let mut waiter = server.client();
        send(&mut waiter, "BLMOVE source list LEFT LEFT 0");
        while number(&mut other, "LLEN source") != 0 || !is_blocked(&mut other) {}
        hold(&mut long, &mut other, "SORT list");
        // The move would change the list that is being sorted.
        assert_eq!(number(&mut other, "RPUSH source x"), 1);
        assert!(matches!(long.reply().unwrap(), Reply::Array(all) if all.len() == ELEMENTS));
        assert_eq!(waiter.reply().unwrap(), Reply::Bulk(b"x".to_vec()));
        assert_eq!(number(&mut other, "LLEN list"), ELEMENTS as i64 + 1);
    });
}

#[test]
fn a_cache_is_told_of_changes_behind_the_reply_that_they_outdate() {
    on_both(|server| {
        let mut long = server.connect(Protocol::Resp3).unwrap();
        let (mut other, mut writer) = (server.client(), server.client());
        fill(&mut other, "RPUSH", "list", "", ELEMENTS);
        ask(&mut long, "CLIENT TRACKING ON");
        ask(&mut long, "GET key");
        hold(&mut long, &mut other, "SORT_RO list");
        // This one waits until the list has been read, and may be faster than the reply.
        send(&mut writer, "RPUSH list x");
        ask(&mut other, "SET key changed");
        match long.message().unwrap() {
            Reply::Array(all) => assert_eq!(all.len(), ELEMENTS),
            other => panic!("before the reply came {other:?}"),
        }
        let forget = |key: &str| {
            let keys = Reply::Array(vec![Reply::Bulk(key.into())]);
            Reply::Push(vec![Reply::Bulk(b"invalidate".to_vec()), keys])
        };
        let messages = [long.message().unwrap(), long.message().unwrap()];
        // The list may have been read, and so changed, before the key was.
        let [key, list] = ["key", "list"].map(forget);
        assert!(messages == [key.clone(), list.clone()] || messages == [list, key], "{messages:?}");
        assert_eq!(writer.reply().unwrap(), Reply::Integer(ELEMENTS as i64 + 1));
    });
}

fn is_blocked(client: &mut Client) -> bool {
    let info = ask(client, "INFO clients");
    info.shown().contains("blocked_clients:1")
}

#[test]
fn a_held_key_may_expire_meanwhile() {
    on_server(|server| {
        let (mut long, mut other) = (server.client(), server.client());
        two_sets(&mut long);
        send(&mut long, "SUNIONSTORE out a b");
        // Sent at once, so that it is before the union or waits for it; either is fine.
        assert_eq!(number(&mut other, "PEXPIRE a 1"), 1);
        assert!(long.reply().unwrap().integer().is_some_and(|count| count >= ELEMENTS as i64));
        while number(&mut other, "DBSIZE") != 2 {}
        assert_eq!(number(&mut other, "EXISTS a"), 0);
    });
}

#[test]
fn long_writers_of_each_others_keys_do_not_wait_in_a_circle() {
    on_server(|server| {
        let (mut first, mut second) = (server.client(), server.client());
        two_sets(&mut first);
        for _ in 0..3 {
            send(&mut first, "SUNIONSTORE a b a");
            send(&mut second, "SUNIONSTORE b a b");
        }
        for _ in 0..3 {
            assert_eq!(first.reply().unwrap(), Reply::Integer(2 * ELEMENTS as i64));
            assert_eq!(second.reply().unwrap(), Reply::Integer(2 * ELEMENTS as i64));
        }
    });
}

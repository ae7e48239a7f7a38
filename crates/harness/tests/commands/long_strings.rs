//! Long strings are one block that keyspace, replies and messages refer to, and that a long word of
//! a request is received into. On both I/O back-ends.

// A failed step is a failed test, in its helpers too.
#![allow(clippy::unwrap_used)]

use harness::client::{Client, ask, encode};
use harness::info;
use harness::reply::Reply;
use harness::server::{Options, Program, Server};
use harness::wait::eventually;

/// More than sockets take.
const LONG: usize = 12 << 20;
const CLIENTS: usize = 10;
/// What clients and sockets may take beside the strings.
const SLACK: u64 = 4 << 20;

fn on_each_backend(arguments: &[&str], test: impl Fn(&Server)) {
    let program = Program::under_test();
    for backend in program.backends() {
        let options = Options { backend, ..Options::arguments(arguments) };
        let server = Server::start(&program, options).unwrap();
        test(&server);
        assert!(server.stop().unwrap().success());
    }
}

fn used(server: &Server) -> u64 {
    info::number(&mut server.client(), "used_memory")
}

/// Bytes that cannot be mistaken for those of another length or number.
fn value(seed: usize, len: usize) -> Vec<u8> {
    (0..len).map(|at| (at / 7 + at % 251 + seed) as u8).collect()
}

fn set(client: &mut Client, key: &str, value: &[u8]) {
    let reply = client.command(&[b"SET", key.as_bytes(), value]).unwrap();
    assert_eq!(reply, Reply::Simple(b"OK".to_vec()));
}

/// Compares without printing megabytes.
#[track_caller]
fn assert_bulk(reply: Reply, expected: &[u8]) {
    let Reply::Bulk(bytes) = reply else { panic!("no bulk string: {reply:?}") };
    assert!(
        bytes == expected,
        "{} bytes that are not the {} expected",
        bytes.len(),
        expected.len()
    );
}

/// A field of the line of CLIENT LIST of the client with this name.
fn listed(server: &Server, name: &str, field: &str) -> usize {
    let list = ask(&mut server.client(), "CLIENT LIST").shown();
    let line = list.lines().find(|line| line.contains(&format!("name={name} "))).unwrap();
    let value = line.split(' ').find_map(|word| word.strip_prefix(field)?.strip_prefix('='));
    value.unwrap().parse().unwrap()
}

#[test]
fn replies_that_nobody_reads_refer_to_the_value() {
    on_each_backend(&[], |server| {
        let mut client = server.client();
        let old = value(0, LONG);
        set(&mut client, "long", &old);
        let before = used(server);
        let mut readers: Vec<Client> = (0..CLIENTS).map(|_| server.client()).collect();
        ask(&mut readers[0], "CLIENT SETNAME slow");
        for reader in &mut readers {
            reader.send(&["GET", "long"]).unwrap();
            reader.send(&["GETRANGE", "long", "100", "-1"]).unwrap();
            reader.send(&["MGET", "long", "none"]).unwrap();
        }
        let output = || listed(server, "slow", "omem");
        eventually("the output waits", || output() >= LONG);
        assert!(output() < LONG + LONG / 2, "one string counts once: {}", output());
        eventually("all asked", || info::number(&mut server.client(), "keyspace_hits") >= 30);
        let taken = used(server) - before;
        assert!(taken < SLACK, "{taken} bytes for replies");
        // What they get is what was there when they asked.
        client.command(&["SETRANGE", "long", "5", "changed"]).unwrap();
        client.command(&["APPEND", "long", "end"]).unwrap();
        let mut new = [&old[..], b"end"].concat();
        new[5..12].copy_from_slice(b"changed");
        assert_bulk(client.command(&["GETDEL", "long"]).unwrap(), &new);
        for reader in &mut readers {
            assert_bulk(reader.reply().unwrap(), &old);
            assert_bulk(reader.reply().unwrap(), &old[100..]);
            let Reply::Array(mut both) = reader.reply().unwrap() else { panic!("no array") };
            assert_bulk(both.remove(0), &old);
        }
        eventually("the last reader is done", || used(server) < before);
    });
}

#[test]
fn slow_subscribers_refer_to_the_message() {
    let limits = ["--client-output-buffer-limit", "pubsub", "0", "0", "0"];
    on_each_backend(&limits, |server| {
        let before = used(server);
        let mut subscribers: Vec<Client> = (0..CLIENTS).map(|_| server.client()).collect();
        for (number, subscriber) in subscribers.iter_mut().enumerate() {
            let name = if number % 2 == 0 { "SUBSCRIBE" } else { "PSUBSCRIBE" };
            subscriber.command(&[name, "channel"]).unwrap();
        }
        let message = value(1, LONG);
        let mut client = server.client();
        let request: [&[u8]; 3] = [b"PUBLISH", b"channel", &message];
        assert_eq!(client.command(&request).unwrap(), Reply::Integer(CLIENTS as i64));
        ask(&mut client, "PING");
        let taken = used(server) - before;
        assert!(taken < 2 * LONG as u64, "{taken} bytes for {CLIENTS} subscribers");
        for subscriber in &mut subscribers {
            let Reply::Array(mut parts) = subscriber.reply().unwrap() else { panic!("no array") };
            assert_bulk(parts.pop().unwrap(), &message);
        }
        eventually("all have read", || used(server) < before + SLACK);
    });
}

#[test]
fn output_of_long_strings_is_limited() {
    let limit = (2 * LONG + LONG / 2).to_string();
    let limits = ["--client-output-buffer-limit", "normal", &limit, "0", "0"];
    on_each_backend(&limits, |server| {
        let mut client = server.client();
        for number in 0..5 {
            set(&mut client, &format!("{number}"), &value(number, LONG));
        }
        let mut reader = server.client();
        // One string that is asked for again and again counts once.
        for _ in 0..10 {
            reader.send(&["GET", "0"]).unwrap();
        }
        (0..10).for_each(|_| assert_bulk(reader.reply().unwrap(), &value(0, LONG)));
        for number in 0..5 {
            // It may be closed meanwhile.
            let _ = reader.send(&["GET", &format!("{number}")]);
        }
        let closed = "client_output_buffer_limit_disconnections";
        eventually("closed", || info::number(&mut server.client(), closed) == 1);
    });
}

#[test]
fn a_long_word_arrives_in_any_pieces() {
    on_each_backend(&[], |server| {
        let mut client = server.client();
        let (a, b) = (value(2, 300_000), value(3, 70_000));
        let request: [&[u8]; 7] = [b"MSET", b"a", &a, b"b", &b, b"c", b"short"];
        let bytes = [encode(&[b"PING"]), encode(&request), encode(&[b"PING"])].concat();
        for piece in [1000, 16_384, 65_537, 400_000] {
            ask(&mut client, "FLUSHALL");
            bytes.chunks(piece).for_each(|part| client.send_raw(part).unwrap());
            assert_eq!(client.reply().unwrap(), Reply::Simple(b"PONG".to_vec()));
            assert_eq!(client.reply().unwrap(), Reply::Simple(b"OK".to_vec()));
            assert_eq!(client.reply().unwrap(), Reply::Simple(b"PONG".to_vec()));
            assert_bulk(client.command(&["GET", "a"]).unwrap(), &a);
            assert_bulk(client.command(&["GET", "b"]).unwrap(), &b);
            assert_bulk(client.command(&["GET", "c"]).unwrap(), b"short");
        }
        // A request that has to wait finds its word again.
        ask(&mut client, "CLIENT PAUSE 100000 WRITE");
        let mut other = server.client();
        other.send(&[b"SET", &b"a"[..], &b]).unwrap();
        other.send(&["APPEND", "a", "x"]).unwrap();
        eventually("it waits", || info::number(&mut server.client(), "blocked_clients") == 1);
        ask(&mut client, "CLIENT UNPAUSE");
        assert_eq!(other.reply().unwrap(), Reply::Simple(b"OK".to_vec()));
        assert_eq!(other.reply().unwrap(), Reply::Integer(b.len() as i64 + 1));
        // In a transaction, and where a word is not what it is announced to be.
        ask(&mut other, "MULTI");
        other.command(&[b"SET", &b"a"[..], &a]).unwrap();
        ask(&mut other, "EXEC");
        assert_bulk(other.command(&["GET", "a"]).unwrap(), &a);
        other.send_raw(b"*2\r\n$4\r\nECHO\r\n$65536\r\n").unwrap();
        other.send_raw(&[b'x'; 65_540]).unwrap();
        assert!(other.reply().unwrap().is_error());
        other.expect_closed().unwrap();
    });
}

#[test]
fn a_word_that_is_only_announced_takes_no_memory() {
    on_each_backend(&["--maxmemory", "100mb", "--maxmemory-policy", "allkeys-lru"], |server| {
        let mut client = server.client();
        set(&mut client, "kept", b"value");
        let before = used(server);
        let mut liars: Vec<Client> = (0..CLIENTS).map(|_| server.client()).collect();
        for liar in &mut liars {
            liar.send_raw(b"*3\r\n$3\r\nSET\r\n$1\r\nk\r\n$536870912\r\n").unwrap();
            liar.send_raw(&[b'x'; 100_000]).unwrap();
        }
        eventually("it has arrived", || used(server) > before + 90_000 * CLIENTS as u64);
        assert!(used(server) < before + SLACK, "{}", used(server));
        assert_bulk(client.command(&["GET", "kept"]).unwrap(), b"value");
        drop(liars);
        eventually("they are gone", || used(server) < before + SLACK / 4);
        assert_eq!(info::number(&mut client, "evicted_keys"), 0);
    });
}

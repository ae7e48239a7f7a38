//! Commit modes: which replies wait for which copies, what releases them, and what a client is told
//! of a write that is not confirmed.

use harness::client::{Client, ask, encode, ok};
use harness::contents::contents;
use harness::info::{field, number};
use harness::module_types::{self, TYPES};
use harness::replicas::{dunlin, until_linked};
use harness::reply::Reply;
use harness::server::{Options, Program, Server, signal};
use harness::wait::eventually;
use std::io::{Read, Write};
use std::net::TcpStream;
use std::time::{Duration, Instant};

fn primary(arguments: &[&str]) -> Server {
    let all = [&["--save", "", "--repl-diskless-sync-delay", "0"], arguments].concat();
    Server::start(&Program::under_test(), Options::arguments(&all)).expect("it starts")
}

/// A server whose replies wait for a quorum, until a replica acknowledges.
fn patient(arguments: &[&str]) -> Server {
    let quorum = ["--commit-mode", "quorum", "--commit-timeout-ms", "0"];
    primary(&[&quorum, arguments].concat())
}

/// One that gives up at once.
fn impatient() -> Server {
    primary(&["--commit-mode", "quorum", "--commit-timeout-ms", "50"])
}

/// A client whose own replies wait for nothing.
fn observer(server: &Server) -> Client {
    let mut client = server.client();
    ok(&mut client, &["CLIENT", "COMMIT-MODE", "memory"]);
    client
}

/// A replica that acknowledges what the test tells it to.
struct Replica {
    stream: TcpStream,
}

impl Replica {
    /// Synchronises with `server` and acknowledges the snapshot.
    fn of(server: &Server) -> Replica {
        let mut observer = observer(server);
        let before = online(&mut observer);
        let mut stream = TcpStream::connect(server.address()).expect("it connects");
        stream.write_all(b"REPLCONF capa eof capa psync2\r\nPSYNC ? -1\r\n").expect("it sends");
        let mut received = Vec::new();
        let mut piece = [0; 4096];
        loop {
            let read = stream.read(&mut piece).expect("it reads");
            assert!(read > 0, "the primary has closed the link");
            received.extend_from_slice(&piece[..read]);
            let begin = received.windows(5).position(|window| window == b"$EOF:");
            if let Some(mark) = begin.and_then(|at| received.get(at + 5..at + 45))
                && received.len() > begin.unwrap_or(0) + 45
                && received.ends_with(mark)
            {
                break;
            }
        }
        let mut replica = Replica { stream };
        eventually("the replica is online", || {
            // Again and again: the primary may not know yet that it has sent all.
            replica.acknowledge(0, None);
            online(&mut observer) == before + 1
        });
        replica
    }

    fn acknowledge(&mut self, position: u64, synced: Option<u64>) {
        let synced = synced.map_or(String::new(), |synced| format!(" FACK {synced}"));
        let line = format!("REPLCONF ACK {position}{synced}\r\n");
        self.stream.write_all(line.as_bytes()).expect("it sends");
    }
}

fn online(observer: &mut Client) -> usize {
    let info = ask(observer, &["INFO", "replication"]).shown();
    info.matches("state=online").count()
}

fn position(observer: &mut Client) -> u64 {
    number(observer, "master_repl_offset") as u64
}

/// Waits until the primary has heard that a replica is so far.
fn has_acknowledged(observer: &mut Client, position: u64) {
    let text = format!("offset={position},");
    let mut info = || ask(observer, &["INFO", "replication"]).shown();
    eventually("the acknowledgement is there", || info().contains(&text));
}

/// Sends a write and waits until it has run.
#[track_caller]
fn write(client: &mut Client, observer: &mut Client, key: &str, value: &str) -> u64 {
    client.send(&["SET", key, value]).expect("it sends");
    eventually("the write has run", || ask(observer, &["GET", key]).shown().contains(value));
    assert!(!client.has_data().expect("it is open"), "the reply waits");
    position(observer)
}

#[track_caller]
fn not_confirmed(reply: &Reply) {
    assert!(reply.is_error() && reply.shown().contains("NOTCONFIRMED"), "{reply:?}");
}

#[track_caller]
fn next(client: &mut Client) -> Reply {
    client.reply().expect("a reply")
}

fn is_ok(reply: &Reply) -> bool {
    *reply == Reply::Simple(b"OK".to_vec())
}

#[test]
fn a_reply_waits_until_the_replica_has_the_write() {
    let server = patient(&[]);
    let mut observer = observer(&server);
    let mut replica = Replica::of(&server);
    let mut client = server.client();
    let first = write(&mut client, &mut observer, "a", "1");
    let second = write(&mut client, &mut observer, "b", "2");
    // What is read waits for the write that it tells of.
    let mut reader = server.client();
    reader.send(&["GET", "b"]).expect("it sends");
    replica.acknowledge(first, None);
    assert!(is_ok(&next(&mut client)));
    assert!(!client.has_data().expect("it is open"), "the second waits");
    assert!(!reader.has_data().expect("it is open"), "the read waits");
    replica.acknowledge(second, None);
    assert!(is_ok(&next(&mut client)));
    assert_eq!(next(&mut reader), Reply::Bulk(b"2".to_vec()));
    assert_eq!(number(&mut observer, "unconfirmed_writes"), 0);
}

#[test]
fn changes_of_every_type_of_modules_wait_for_the_replica() {
    let server = patient(&["--repl-ping-replica-period", "3600"]);
    let mut observer = observer(&server);
    let mut replica = Replica::of(&server);
    module_types::fill(&mut observer, "");
    let mut client = server.client();
    for request in TYPES.iter().flat_map(|row| row.change) {
        let before = position(&mut observer);
        client.send(&module_types::words(request, "")).expect("it sends");
        eventually("the change has run", || position(&mut observer) > before);
        assert!(!client.has_data().expect("it is open"), "{request} waits");
        replica.acknowledge(position(&mut observer), None);
        let reply = next(&mut client);
        assert!(!reply.is_error(), "{request}: {reply:?}");
    }
    assert_eq!(number(&mut observer, "unconfirmed_writes"), 0);
}

/// What was confirmed is at the replica when the primary is gone.
#[test]
fn confirmed_values_of_every_type_of_modules_outlive_the_primary() {
    let mut server = patient(&[]);
    let replica = dunlin(&["--replicaof", "127.0.0.1", &server.port().to_string()]);
    until_linked(&replica);
    let mut client = server.client();
    module_types::fill(&mut client, "");
    module_types::change(&mut client, "");
    let expected = contents(&mut client);
    server.kill().expect("it was there");
    let mut survivor = replica.client();
    ok(&mut survivor, &["REPLICAOF", "NO", "ONE"]);
    assert_eq!(contents(&mut survivor), expected);
}

#[test]
fn an_acknowledgement_of_the_future_confirms_nothing_to_come() {
    let server = patient(&[]);
    let mut observer = observer(&server);
    let mut replica = Replica::of(&server);
    ok(&mut observer, &["SET", "a", "0"]);
    let end = self::position(&mut observer);
    replica.acknowledge(u64::MAX >> 1, None);
    has_acknowledged(&mut observer, end);
    let mut client = server.client();
    let position = write(&mut client, &mut observer, "a", "1");
    replica.acknowledge(position, None);
    assert!(is_ok(&next(&mut client)));
}

#[test]
fn disks_of_replicas_count_where_they_are_asked_for() {
    let server = patient(&["--commit-quorum-fsync", "yes"]);
    let mut observer = observer(&server);
    let mut replica = Replica::of(&server);
    let mut client = server.client();
    let before = self::position(&mut observer);
    let position = write(&mut client, &mut observer, "a", "1");
    replica.acknowledge(position, Some(before));
    has_acknowledged(&mut observer, position);
    assert!(!client.has_data().expect("it is open"), "the reply waits for the disk");
    replica.acknowledge(position, Some(position));
    assert!(is_ok(&next(&mut client)));
}

/// A replica that has to force a write to its disk says so when it has, and not with the next
/// acknowledgement that is due, a second later.
#[test]
fn a_replica_says_at_once_that_its_disk_has_a_write() {
    const WRITES: u32 = 20;
    let log = ["--appendonly", "yes", "--appendfsync", "always"];
    let server = patient(&[&log[..], &["--commit-quorum-fsync", "yes"]].concat());
    let port = server.port().to_string();
    let replica = primary(&[&log[..], &["--replicaof", "127.0.0.1", &port]].concat());
    until_linked(&replica);
    let mut client = server.client();
    ok(&mut client, &["SET", "a", "0"]);
    let began = Instant::now();
    for number in 0..WRITES {
        ok(&mut client, &["SET", "a", &number.to_string()]);
    }
    let took = began.elapsed();
    assert!(took < Duration::from_millis(500) * WRITES, "{WRITES} writes took {took:?}");
}

#[test]
fn writes_behind_the_choice_of_a_mode_wait_in_its_pipeline() {
    let server = primary(&["--appendonly", "yes", "--commit-timeout-ms", "50"]);
    let mut client = server.client();
    let mut requests = encode(&["CLIENT", "COMMIT-MODE", "quorum"]);
    for number in 0..10 {
        requests.extend(encode(&["SET", &format!("k{number}"), "v"]));
    }
    client.send_raw(&requests).expect("it is sent");
    assert!(is_ok(&next(&mut client)));
    (0..10).for_each(|_| not_confirmed(&next(&mut client)));
}

#[test]
fn each_write_of_a_pipeline_gets_its_own_error() {
    let server = impatient();
    let mut client = server.client();
    let value = "v".repeat(100_000);
    let requests: &[&[&str]] = &[
        &["SET", "k", &value],
        &["GET", "nothing"],
        &["MULTI"],
        &["INCR", "n"],
        &["INCR", "n"],
        &["EXEC"],
        &["GETDEL", "k"],
        &["EVAL", "redis.call('SET', KEYS[1], 'x') return {1, 2}", "1", "s"],
        &["PING"],
        &["GET", "s"],
        &["SET", "s", "y", "NX"],
    ];
    for request in requests {
        client.send(request).expect("it sends");
    }
    not_confirmed(&next(&mut client));
    assert!(next(&mut client).is_nil());
    assert!(is_ok(&next(&mut client)));
    assert_eq!(next(&mut client).shown(), next(&mut client).shown(), "both are queued");
    not_confirmed(&next(&mut client));
    not_confirmed(&next(&mut client));
    not_confirmed(&next(&mut client));
    assert_eq!(next(&mut client), Reply::Simple(b"PONG".to_vec()));
    assert_eq!(next(&mut client), Reply::Bulk(b"x".to_vec()), "it exists");
    assert!(next(&mut client).is_nil(), "what writes nothing is answered");
    let mut observer = observer(&server);
    assert_eq!(number(&mut observer, "unconfirmed_writes"), 4);
    assert!(field(&mut observer, "errorstat_NOTCONFIRMED").contains("count=4"));
    assert_eq!(ask(&mut observer, &["GET", "n"]), Reply::Bulk(b"2".to_vec()));
}

#[test]
fn silent_clients_and_blocked_ones_are_served_as_ever() {
    let server = impatient();
    let (mut silent, mut blocked) = (server.client(), server.client());
    silent.send(&["CLIENT", "REPLY", "OFF"]).expect("it sends");
    silent.send(&["SET", "k", "v"]).expect("it sends");
    silent.send(&["CLIENT", "REPLY", "ON"]).expect("it sends");
    assert!(is_ok(&next(&mut silent)), "the write has no reply that could be replaced");
    blocked.send(&["BLPOP", "list", "0"]).expect("it sends");
    let mut observer = observer(&server);
    eventually("it waits", || number(&mut observer, "blocked_clients") == 1);
    ok(&mut observer, &["RPUSH", "list", "x"]);
    // It has taken an element, which is a write.
    not_confirmed(&next(&mut blocked));
    assert_eq!(ask(&mut observer, &["LLEN", "list"]), Reply::Integer(0));
    assert_eq!(ask(&mut blocked, &["PING"]), Reply::Simple(b"PONG".to_vec()));
}

#[test]
fn a_client_that_leaves_while_its_reply_waits_takes_nothing_along() {
    let server = patient(&[]);
    let mut observer = observer(&server);
    let mut replica = Replica::of(&server);
    let mut client = server.client();
    write(&mut client, &mut observer, "a", "1");
    drop(client);
    let mut client = server.client();
    let position = write(&mut client, &mut observer, "b", "2");
    replica.acknowledge(position, None);
    assert!(is_ok(&next(&mut client)));
    // One that ends in good order gets its replies first.
    client.send(&["SET", "c", "3"]).expect("it sends");
    client.send(&["QUIT"]).expect("it sends");
    eventually("the write has run", || !ask(&mut observer, &["GET", "c"]).is_nil());
    replica.acknowledge(self::position(&mut observer), None);
    assert!(is_ok(&next(&mut client)) && is_ok(&next(&mut client)));
    client.expect_closed().expect("it is closed");
}

#[test]
fn a_server_that_becomes_a_replica_confirms_nothing() {
    let server = patient(&[]);
    let mut observer = observer(&server);
    let mut client = server.client();
    write(&mut client, &mut observer, "a", "1");
    ok(&mut observer, &["REPLICAOF", "127.0.0.1", "1"]);
    not_confirmed(&next(&mut client));
    ok(&mut observer, &["REPLICAOF", "NO", "ONE"]);
    let mut replica = Replica::of(&server);
    let position = write(&mut client, &mut observer, "b", "2");
    replica.acknowledge(position, None);
    assert!(is_ok(&next(&mut client)));
    assert_eq!(number(&mut observer, "unconfirmed_writes"), 1);
}

#[test]
fn options_that_change_reach_replies_that_wait() {
    let server = patient(&["--commit-quorum", "2"]);
    let mut observer = observer(&server);
    let mut replica = Replica::of(&server);
    let mut client = server.client();
    let position = write(&mut client, &mut observer, "a", "1");
    replica.acknowledge(position, None);
    has_acknowledged(&mut observer, position);
    assert!(!client.has_data().expect("it is open"), "one is not enough");
    ok(&mut observer, &["CONFIG", "SET", "commit-quorum", "1"]);
    assert!(is_ok(&next(&mut client)));
    write(&mut client, &mut observer, "b", "2");
    ok(&mut observer, &["CONFIG", "SET", "commit-mode", "memory"]);
    assert!(!client.has_data().expect("it is open"), "it has been promised a quorum");
    assert!(is_ok(&ask(&mut server.client(), &["SET", "c", "3"])), "later ones are not");
    ok(&mut observer, &["CONFIG", "SET", "commit-timeout-ms", "10"]);
    not_confirmed(&next(&mut client));
}

#[test]
fn connections_choose_their_modes() {
    let server = primary(&["--commit-timeout-ms", "50"]);
    let mut client = server.client();
    assert!(is_ok(&ask(&mut client, &["SET", "k", "1"])));
    ok(&mut client, &["CLIENT", "COMMIT-MODE", "quorum"]);
    not_confirmed(&ask(&mut client, &["SET", "k", "2"]));
    assert!(is_ok(&ask(&mut server.client(), &["SET", "k", "3"])), "others are as they were");
    // A change of mode does not take back what was promised before.
    client.send_raw(b"SET k 4\r\nCLIENT COMMIT-MODE memory\r\nSET k 5\r\n").expect("it sends");
    not_confirmed(&next(&mut client));
    assert!(is_ok(&next(&mut client)) && is_ok(&next(&mut client)));
    ok(&mut client, &["CONFIG", "SET", "commit-mode", "quorum"]);
    assert!(is_ok(&ask(&mut client, &["SET", "k", "6"])), "its own mode is memory");
    ok(&mut client, &["CLIENT", "COMMIT-MODE", "default"]);
    not_confirmed(&ask(&mut client, &["SET", "k", "7"]));
    ok(&mut client, &["CLIENT", "COMMIT-MODE", "memory"]);
    assert_eq!(ask(&mut client, &["RESET"]), Reply::Simple(b"RESET".to_vec()));
    not_confirmed(&ask(&mut client, &["SET", "k", "8"]));
    let refusal = ask(&mut client, &["CLIENT", "COMMIT-MODE", "fsync"]);
    assert!(refusal.is_error(), "there is no log: {refusal:?}");
    assert!(ask(&mut client, &["CLIENT", "COMMIT-MODE", "never"]).is_error());
}

#[test]
fn mode_fsync_waits_for_the_disk_whatever_appendfsync_says() {
    let server = primary(&["--appendonly", "yes", "--appendfsync", "no"]);
    let mut client = server.client();
    ok(&mut client, &["CLIENT", "COMMIT-MODE", "fsync"]);
    for number in 0..20 {
        ok(&mut client, &["SET", "k", &number.to_string()]);
        // It takes no time, so it is so already.
        let acks = ask(&mut client, &["WAITAOF", "1", "0", "1"]);
        assert_eq!(acks.elements().map(|acks| acks[0].clone()), Some(Reply::Integer(1)));
    }
}

#[test]
fn a_stopped_replica_of_the_reference_confirms_when_it_goes_on() {
    let server = primary(&["--commit-mode", "quorum", "--commit-timeout-ms", "300"]);
    let port = server.port().to_string();
    let program = Program::reference().expect("there is a reference");
    let options = Options::arguments(&["--save", "", "--replicaof", "127.0.0.1", &port]);
    let replica = Server::start(&program, options).expect("it starts");
    let mut observer = observer(&server);
    eventually("the replica is online", || online(&mut observer) == 1);
    let mut client = server.client();
    eventually("a write is confirmed", || is_ok(&ask(&mut client, &["SET", "k", "0"])));
    for number in 1..50 {
        assert!(is_ok(&ask(&mut client, &["SET", "k", &number.to_string()])));
        let there = ask(&mut replica.client(), &["GET", "k"]);
        assert_eq!(there, Reply::Bulk(number.to_string().into_bytes()), "the replica has it");
    }
    signal(replica.process_id(), "STOP").expect("it runs");
    not_confirmed(&ask(&mut client, &["SET", "k", "stopped"]));
    ok(&mut observer, &["CONFIG", "SET", "commit-timeout-ms", "0"]);
    write(&mut client, &mut observer, "k", "waiting");
    signal(replica.process_id(), "CONT").expect("it runs");
    assert!(is_ok(&next(&mut client)));
    assert_eq!(ask(&mut replica.client(), &["GET", "k"]), Reply::Bulk(b"waiting".to_vec()));
    assert_eq!(number(&mut observer, "unconfirmed_writes"), 1);
}

#[test]
fn mode_fsync_needs_a_log() {
    let refused = |client: &mut Client, request: &[&str]| {
        let reply = ask(client, request);
        assert!(reply.is_error(), "{request:?}: {reply:?}");
    };
    let server = primary(&[]);
    let mut client = server.client();
    refused(&mut client, &["CONFIG", "SET", "commit-mode", "fsync"]);
    ok(&mut client, &["CONFIG", "SET", "commit-mode", "fsync", "appendonly", "yes"]);
    refused(&mut client, &["CONFIG", "SET", "appendonly", "no"]);
    ok(&mut client, &["SET", "k", "1"]);
    assert_eq!(field(&mut client, "aof_enabled"), "1");
    ok(&mut client, &["CONFIG", "SET", "commit-mode", "memory"]);
    ok(&mut client, &["CLIENT", "COMMIT-MODE", "fsync"]);
    refused(&mut client, &["CONFIG", "SET", "appendonly", "no"]);
    ok(&mut client, &["CLIENT", "COMMIT-MODE", "default"]);
    ok(&mut client, &["CONFIG", "SET", "appendonly", "no"]);
    let options = Options::arguments(&["--commit-mode", "fsync"]);
    let started = Server::start(&Program::under_test(), options);
    assert!(started.is_err(), "it confirms what no file has");
}

//! Hostile peers over real sockets: a primary that sends nonsense, lies or never ends, and replicas
//! that say nonsense, never read or go away at any moment. The server beside them serves its
//! clients, loses nothing, takes no memory for promises, and says what is wrong once.
//!
//! `DUNLIN_HOSTILE_ROUNDS` makes more random sessions than the default; `DUNLIN_SEED` repeats them.

use harness::client::{Client, ask, ok};
use harness::environment::{new_seed, variable};
use harness::info::{field, number};
use harness::replicas::{compare, dunlin, fill, lying_primary, until_linked};
use harness::reply::Reply;
use harness::rng::Rng;
use harness::server::{Program, Server};
use harness::wait::eventually;
use std::io::{Read, Write};
use std::net::{Ipv4Addr, TcpListener, TcpStream};
use std::process::Stdio;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};
use std::time::{Duration, Instant};

const MIB: u64 = 1 << 20;

fn follow(client: &mut Client, port: u16) {
    ok(client, &["REPLICAOF", "127.0.0.1", &port.to_string()]);
}

fn is_well(server: &Server) {
    let mut client = server.client();
    assert_eq!(ask(&mut client, &["PING"]), Reply::Simple(b"PONG".to_vec()));
    let used = number(&mut client, "used_memory");
    assert!(used < 128 * MIB, "{used} bytes for promises\n{}", server.log());
}

/// A primary's side of a session, made up.
fn session(rng: &mut Rng) -> Vec<u8> {
    let id = "0123456789".repeat(4);
    let mark = "m".repeat(40);
    let long = "x".repeat(5000);
    let mut bytes = b"+PONG\r\n+OK\r\n+OK\r\n+OK\r\n".to_vec();
    let parts = [
        format!("+FULLRESYNC {id} {}\r\n", rng.bits()),
        format!("+FULLRESYNC {id} 7\r\n"),
        format!("+CONTINUE {id}\r\n"),
        "+CONTINUE\r\n".to_owned(),
        "\n\n\n".to_owned(),
        format!("${}\r\n", rng.bits()),
        "$9223372036854775807\r\nREDIS0011".to_owned(),
        format!("$EOF:{mark}\r\nREDIS0010{mark}\r\n"),
        // The mark in the middle of the data.
        format!("$EOF:{mark}\r\nREDIS0011\u{0}\u{1}k{mark}more{mark}"),
        "$18\r\nREDIS0011\u{fa}\u{9}redis-ver".to_owned(),
        "*1\r\n$5\r\nMULTI\r\n*2\r\n$4\r\nINCR\r\n$1\r\nk\r\n".to_owned(),
        "*1\r\n$4\r\nEXEC\r\n".to_owned(),
        "*1\r\n$5\r\nMULTI\r\n*1\r\n$5\r\nMULTI\r\n".to_owned(),
        "*2147483647\r\n$3\r\nSET\r\n".to_owned(),
        "*3\r\n$3\r\nSET\r\n$1\r\nk\r\n$536870911\r\nv".to_owned(),
        "*-1\r\n*0\r\n$5\r\n".to_owned(),
        "*1\r\n$8\r\nSHUTDOWN\r\n*1\r\n$8\r\nFLUSHALX\r\n".to_owned(),
        "*6\r\n$7\r\nMIGRATE\r\n$9\r\n127.0.0.1\r\n$1\r\n1\r\n$1\r\nk\r\n$1\r\n0\r\n$1\r\n9\r\n"
            .to_owned(),
        "*4\r\n$8\r\nREPLCONF\r\n$6\r\nGETACK\r\n$1\r\n*\r\n$1\r\n*\r\n".to_owned(),
        "-ERR no\r\n-LOADING\r\n-NOMASTERLINK\r\n".to_owned(),
        format!("{long}\r\n"),
        long,
    ];
    for _ in 0..rng.between(1, 6) {
        bytes.extend_from_slice(rng.pick(&parts).as_bytes());
        if rng.chance(20) {
            bytes.extend((0..rng.below(300)).map(|_| rng.bits() as u8).collect::<Vec<u8>>());
        }
        if rng.chance(10) {
            let at = rng.below(bytes.len());
            bytes[at] = rng.bits() as u8;
        }
    }
    bytes
}

#[test]
fn a_replica_outlives_primaries_that_send_nonsense() {
    let seed = variable("DUNLIN_SEED").unwrap_or_else(new_seed);
    let rounds = variable("DUNLIN_HOSTILE_ROUNDS").unwrap_or(40);
    println!("DUNLIN_SEED={seed} DUNLIN_HOSTILE_ROUNDS={rounds}");
    let mut rng = Rng::new(seed);
    let primary = dunlin(&[]);
    fill(&primary, 1, 300);
    for mode in ["disabled", "flush-before-load", "swapdb"] {
        let replica = dunlin(&["--repl-diskless-load", mode, "--repl-timeout", "2"]);
        let mut theirs = replica.client();
        follow(&mut theirs, primary.port());
        until_linked(&replica);
        for _ in 0..rounds {
            let bytes = session(&mut rng);
            let (port, connections) = lying_primary(bytes.clone());
            follow(&mut theirs, port);
            eventually("an attempt", || connections.load(SeqCst) > 0);
            is_well(&replica);
        }
        follow(&mut theirs, primary.port());
        until_linked(&replica);
        compare(&primary, &replica);
        assert!(!replica.log().contains("BUG REPORT"), "{}", replica.log());
    }
}

#[test]
fn what_is_wrong_with_a_primary_is_said_once() {
    let replica = dunlin(&[]);
    let mut theirs = replica.client();
    let answer = b"+PONG\r\n+OK\r\n+OK\r\n+OK\r\n-LOADING not yet\r\n".to_vec();
    let (port, connections) = lying_primary(answer);
    follow(&mut theirs, port);
    eventually("several attempts", || connections.load(SeqCst) > 3);
    let said = replica.log().matches("currently unable to PSYNC").count();
    assert_eq!(said, 1, "{}", replica.log());
    assert_eq!(field(&mut theirs, "master_link_status"), "down");
}

/// The beginning of a session in which a snapshot of so many bytes is promised, with the first key
/// of it.
fn promised(bytes: u64) -> Vec<u8> {
    let id = "0123456789".repeat(4);
    let mut answer =
        format!("+PONG\r\n+OK\r\n+OK\r\n+OK\r\n+FULLRESYNC {id} 7\r\n${bytes}\r\nREDIS0011")
            .into_bytes();
    answer.extend(b"\xfe\x00\x00\x03new\x01v");
    answer
}

#[test]
fn what_is_no_snapshot_leaves_the_data_alone() {
    let id = "0123456789".repeat(4);
    let begin = format!("+PONG\r\n+OK\r\n+OK\r\n+OK\r\n+FULLRESYNC {id} ");
    let mut unknown_type = format!("{begin}7\r\n$22\r\nREDIS0011").into_bytes();
    unknown_type.extend(b"\xfe\x00\x63\x01k\x01v\xff\0\0\0\0\0\0\0\0");
    let mut bad_sum = format!("{begin}7\r\n$18\r\nREDIS0011").into_bytes();
    bad_sum.extend(b"\xff\x01\x02\x03\x04\x05\x06\x07\x08");
    let newer = format!("{begin}7\r\n$19\r\nREDIS9999{}", "\0".repeat(10));
    let answers = [
        (format!("{begin}-5\r\n$0\r\n").into_bytes(), 3),
        (format!("{begin}7\r\n$0\r\n").into_bytes(), 3),
        (newer.into_bytes(), 3),
        // What is loaded while it arrives shows that too late.
        (unknown_type, 2),
        (bad_sum, 2),
    ];
    for (answer, ways) in &answers {
        for way in &["disabled", "swapdb", "flush-before-load"][..*ways] {
            let replica = dunlin(&["--repl-diskless-load", way]);
            let mut theirs = replica.client();
            ok(&mut theirs, &["SET", "old", "1"]);
            let (port, connections) = lying_primary(answer.to_vec());
            follow(&mut theirs, port);
            eventually("an attempt", || connections.load(SeqCst) > 0);
            eventually("its end", || field(&mut theirs, "master_sync_in_progress") == "0");
            let shown = answer.escape_ascii();
            let log = replica.log();
            assert_eq!(ask(&mut theirs, &["DBSIZE"]), Reply::Integer(1), "{way} {shown}\n{log}");
            assert!(!log.contains("Flushing old data"), "{way} {shown}\n{log}");
        }
    }
}

#[test]
fn a_replica_is_promoted_in_the_middle_of_a_load() {
    for (way, keys) in [("flush-before-load", 0), ("swapdb", 1)] {
        let replica = dunlin(&["--repl-diskless-load", way]);
        let mut theirs = replica.client();
        ok(&mut theirs, &["SET", "old", "1"]);
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("a port");
        follow(&mut theirs, listener.local_addr().expect("it has one").port());
        let (mut primary, _) = listener.accept().expect("the replica comes");
        primary.write_all(&promised(1 << 30)).expect("it listens");
        eventually("the load", || field(&mut theirs, "loading") == "1");
        assert!(field(&mut theirs, "role") == "slave");
        let other = ask(&mut theirs, &["REPLICAOF", "127.0.0.1", "1"]);
        assert!(other.is_error(), "{other:?}");
        ok(&mut theirs, &["REPLICAOF", "NO", "ONE"]);
        assert_eq!(field(&mut theirs, "role"), "master");
        eventually("the end of the load", || field(&mut theirs, "loading") == "0");
        assert_eq!(ask(&mut theirs, &["DBSIZE"]), Reply::Integer(keys), "{way}");
        ok(&mut theirs, &["SET", "mine", "1"]);
        // It is a primary like any other.
        let second = dunlin(&[]);
        follow(&mut second.client(), replica.port());
        until_linked(&second);
        compare(&replica, &second);
    }
}

#[test]
fn a_primary_that_sends_garbage_is_asked_ever_more_rarely() {
    let replica = dunlin(&[]);
    let mut theirs = replica.client();
    let id = "0123456789".repeat(4);
    let mut answer =
        format!("+PONG\r\n+OK\r\n+OK\r\n+OK\r\n+FULLRESYNC {id} 7\r\n$18\r\nREDIS0011")
            .into_bytes();
    answer.extend(b"\xff\0\0\0\0\0\0\0\0this is no request\r\n\r\n*x\r\n");
    let (port, connections) = lying_primary(answer);
    let began = Instant::now();
    follow(&mut theirs, port);
    eventually("three attempts", || connections.load(SeqCst) >= 3);
    // One and two seconds lie between them.
    assert!(began.elapsed() >= Duration::from_millis(2500), "{}", replica.log());
}

/// A connection that speaks as a replica does, and what it said first.
fn replica(server: &Server, said: &[u8]) -> TcpStream {
    let mut socket = TcpStream::connect(server.address()).expect("it listens");
    socket.set_read_timeout(Some(Duration::from_secs(10))).expect("it is a socket");
    socket.write_all(said).expect("it is there");
    socket
}

/// What comes until this, which is a part of it.
fn until(socket: &mut TcpStream, end: &[u8]) -> Vec<u8> {
    let (mut got, mut byte) = (Vec::new(), [0]);
    while !got.ends_with(end) {
        socket.read_exact(&mut byte).expect("it comes");
        got.push(byte[0]);
    }
    got
}

#[test]
fn a_primary_outlives_replicas_that_say_nonsense() {
    let seed = variable("DUNLIN_SEED").unwrap_or_else(new_seed);
    let rounds = variable("DUNLIN_HOSTILE_ROUNDS").unwrap_or(40) * 5;
    println!("DUNLIN_SEED={seed}");
    let mut rng = Rng::new(seed);
    let primary = dunlin(&["--repl-timeout", "2", "--min-replicas-max-lag", "1"]);
    fill(&primary, 2, 500);
    let mut client = primary.client();
    let id = field(&mut client, "master_replid");
    let honest = dunlin(&[]);
    follow(&mut honest.client(), primary.port());
    until_linked(&honest);
    let many = "9".repeat(70_000);
    for _ in 0..rounds {
        let position = rng.bits() as i64;
        let lines = [
            "REPLCONF listening-port 70000\r\n".to_owned(),
            "REPLCONF listening-port 7000 ip-address \r\n".to_owned(),
            "REPLCONF capa eof capa psync2 capa nonsense\r\n".to_owned(),
            "REPLCONF version x.y.z rdb-only 2 rdb-filter-only keys\r\n".to_owned(),
            "REPLCONF ACK NaN\r\nREPLCONF ACK -1 FACK -2\r\n".to_owned(),
            format!("REPLCONF ACK {position} FACK {position}\r\n"),
            format!("REPLCONF ip-address {many}\r\n"),
            "REPLCONF GETACK *\r\nREPLCONF\r\nREPLCONF ACK\r\n".to_owned(),
            format!("PSYNC {id} {position}\r\n"),
            format!("PSYNC {id} 1\r\n"),
            format!("PSYNC {id} {position} FAILOVER\r\n"),
            "PSYNC ? -1\r\n".to_owned(),
            "PSYNC ? NaN\r\nPSYNC\r\n".to_owned(),
            "SYNC\r\n".to_owned(),
            "SET k v\r\nMULTI\r\nSUBSCRIBE c\r\n".to_owned(),
            "WAIT 1 0\r\nREPLICAOF NO ONE\r\n".to_owned(),
            "*3\r\n$8\r\nREPLCONF\r\n$3\r\nACK\r\n$99999999999\r\n".to_owned(),
        ];
        let mut said = String::new();
        for _ in 0..rng.between(1, 8) {
            said += rng.pick(&lines).as_str();
        }
        let mut socket = TcpStream::connect(primary.address()).expect("it listens");
        // It may be closed already, for what it said before.
        let _ = socket.write_all(said.as_bytes());
        if rng.chance(50) {
            let mut piece = vec![0; rng.below(5000) + 1];
            let _ = socket.set_read_timeout(Some(Duration::from_millis(20)));
            let _ = socket.read(&mut piece);
        }
    }
    is_well(&primary);
    assert_eq!(field(&mut client, "role"), "master");
    fill(&primary, 3, 300);
    compare(&primary, &honest);
    assert!(!primary.log().contains("BUG REPORT"), "{}", primary.log());
    eventually("the others are gone", || number(&mut client, "connected_slaves") == 1);
}

/// A connection that speaks as a replica does, and has taken its snapshot.
fn replica_with_snapshot(server: &Server) -> TcpStream {
    let mut socket = replica(server, b"REPLCONF capa eof\r\nPSYNC ? -1\r\n");
    until(&mut socket, b"$EOF:");
    let mut mark = [0; 40];
    socket.read_exact(&mut mark).expect("a mark");
    until(&mut socket, &mark);
    socket
}

#[test]
fn acknowledgements_of_what_was_never_sent_confirm_nothing() {
    let primary = dunlin(&["--appendonly", "yes"]);
    let mut client = primary.client();
    ok(&mut client, &["SET", "k", "v"]);
    let mut liar = replica_with_snapshot(&primary);
    for said in ["NaN", "-5", "9223372036854775807"] {
        liar.write_all(format!("REPLCONF ACK {said}\r\n").as_bytes()).expect("it is there");
    }
    eventually("it is online", || {
        ask(&mut client, &["INFO", "replication"]).shown().contains("state=online")
    });
    // None of it says that it has this.
    ok(&mut client, &["SET", "k", "w"]);
    assert_eq!(ask(&mut client, &["WAIT", "1", "50"]), Reply::Integer(0));
    is_well(&primary);
}

#[test]
fn a_replica_that_never_reads_is_cut_off_and_costs_no_memory() {
    let limits = ["--client-output-buffer-limit", "replica 1mb 0 0", "--repl-backlog-size", "1mb"];
    let primary = dunlin(&limits);
    let mut client = primary.client();
    ok(&mut client, &["SET", "k", "v"]);
    let mut deaf = replica_with_snapshot(&primary);
    deaf.write_all(b"REPLCONF ACK 0\r\n").expect("it is there");
    let value = "v".repeat(100_000);
    eventually("it is cut off", || {
        ok(&mut client, &["SET", "large", &value]);
        number(&mut client, "connected_slaves") == 0
    });
    is_well(&primary);
    primary.logs("is too far behind");
}

/// The connection of a replica carries the stream: a reply would become a part of it.
#[test]
fn a_replica_that_asks_for_a_reply_is_disconnected() {
    let primary = dunlin(&[]);
    for (said, line) in [
        ("PING", "Replica generated a reply to command 'ping', disconnecting it: id="),
        ("XINFO HELP", "Replica generated a reply to command 'xinfo|help', disconnecting it: id="),
        ("NONSENSE", "Replica generated a reply to command '<unknown>', disconnecting it: id="),
        ("GET k", "Replica can't interact with the keyspace' after processing the command 'get'"),
        ("*1\r\n$-5", "Replica generated no reply"),
    ] {
        let mut socket = replica_with_snapshot(&primary);
        socket.write_all(format!("REPLCONF ACK 0\r\n{said}\r\n").as_bytes()).expect("it is there");
        let mut rest = Vec::new();
        socket.read_to_end(&mut rest).expect("it is closed");
        let rest = String::from_utf8_lossy(&rest);
        assert!(!rest.contains("PONG") && !rest.contains("ERR"), "{said}: {rest}");
        if !line.ends_with("no reply") {
            primary.logs(line);
        }
    }
    // What waits has no reply later either.
    let mut late = replica_with_snapshot(&primary);
    late.write_all(b"WAIT 5 1\r\n").expect("it is there");
    let mut client = primary.client();
    eventually("it is online", || {
        late.write_all(b"REPLCONF ACK 0\r\n").expect("it is there");
        ask(&mut client, &["INFO", "replication"]).shown().contains("state=online")
    });
    ok(&mut client, &["SET", "k", "v"]);
    let stream = until(&mut late, b"$1\r\nk\r\n$1\r\nv\r\n");
    assert!(stream.starts_with(b"*2\r\n$6\r\nSELECT"), "{}", String::from_utf8_lossy(&stream));
    is_well(&primary);
}

#[test]
fn a_wrong_offset_is_an_error_and_no_synchronisation() {
    let primary = dunlin(&[]);
    let mut client = primary.client();
    let reply = ask(&mut client, &["PSYNC", "?", "offset"]);
    assert_eq!(reply, Reply::Error(b"ERR value is not an integer or out of range".to_vec()));
    assert_eq!(ask(&mut client, &["PING"]), Reply::Simple(b"PONG".to_vec()));
    let said = "asks for synchronization but with a wrong offset";
    primary.logs(said);
}

/// A command of the stream that fails on a replica, which has a string where its primary has none.
fn fail_on_replica(behavior: &str) -> Server {
    let primary = dunlin(&[]);
    let replica = dunlin(&["--propagation-error-behavior", behavior]);
    let mut theirs = replica.client();
    follow(&mut theirs, primary.port());
    until_linked(&replica);
    ok(&mut theirs, &["CONFIG", "SET", "replica-read-only", "no"]);
    ok(&mut theirs, &["SET", "k", "v"]);
    ok(&mut theirs, &["CONFIG", "SET", "replica-read-only", "yes"]);
    assert_eq!(ask(&mut primary.client(), &["LPUSH", "k", "v"]), Reply::Integer(1));
    let said = "This replica is sending an error to its master";
    replica.logs(said);
    replica
}

#[test]
fn a_command_of_the_stream_that_fails_ends_the_replica_on_request() {
    let replica = fail_on_replica("ignore");
    is_well(&replica);
    for behavior in ["panic", "panic-on-replicas"] {
        let mut replica = fail_on_replica(behavior);
        replica.logs("BUG REPORT END");
        let said = "This replica panicked sending an error to its master after processing the command 'LPUSH'";
        assert!(replica.log().contains(said), "{}", replica.log());
        assert!(!replica.terminate().expect("it is gone").success());
    }
}

/// CLIENT KILL closes the connection at once, although the snapshot's threads have the socket, too,
/// and a snapshot without a replica ends although nothing of it is to be written for minutes.
#[test]
fn a_replica_that_is_killed_in_its_snapshot_learns_of_it() {
    let primary = dunlin(&["--rdb-key-save-delay", "100000"]);
    let mut client = primary.client();
    ok(&mut client, &["DEBUG", "POPULATE", "100000"]);
    let mut socket = replica(&primary, b"REPLCONF capa eof\r\nPSYNC ? -1\r\n");
    until(&mut socket, b"$EOF:");
    assert_eq!(ask(&mut client, &["CLIENT", "KILL", "TYPE", "replica"]), Reply::Integer(1));
    let mut rest = Vec::new();
    // The end may look like an error.
    let _ = socket.read_to_end(&mut rest);
    eventually("the snapshot has ended", || number(&mut client, "rdb_bgsave_in_progress") == 0);
    assert_eq!(number(&mut client, "connected_slaves"), 0);
}

/// The same by a file, which only the replica would have had.
#[test]
fn a_file_for_replicas_that_are_gone_is_given_up() {
    let primary = dunlin(&["--rdb-key-save-delay", "100000", "--repl-diskless-sync", "no"]);
    let mut client = primary.client();
    ok(&mut client, &["DEBUG", "POPULATE", "100000"]);
    let socket = replica(&primary, b"REPLCONF capa eof\r\nPSYNC ? -1\r\n");
    primary.logs("Starting sync with target");
    assert_eq!(number(&mut client, "rdb_bgsave_in_progress"), 1);
    drop(socket);
    eventually("the snapshot has ended", || number(&mut client, "rdb_bgsave_in_progress") == 0);
    primary.logs("Synchronization with replica");
}

/// `repl-timeout` holds for a snapshot that is under way when it is set, and other replicas get
/// theirs.
#[test]
fn a_replica_that_is_stopped_in_its_snapshot_is_dropped() {
    let primary = dunlin(&["--repl-diskless-sync-max-replicas", "2", "--rdbcompression", "no"]);
    let mut client = primary.client();
    ok(&mut client, &["CONFIG", "SET", "repl-diskless-sync-delay", "60"]);
    ok(&mut client, &["DEBUG", "POPULATE", "3000", "key", "10000"]);
    // As the other says it: they get the same snapshot.
    let said = b"REPLCONF capa eof version 9.1.0\r\nPSYNC ? -1\r\n";
    let mut stopped = replica(&primary, said);
    let other = dunlin(&[]);
    follow(&mut other.client(), primary.port());
    until(&mut stopped, b"$EOF:");
    ok(&mut client, &["CONFIG", "SET", "repl-timeout", "2"]);
    until_linked(&other);
    compare(&primary, &other);
    assert_eq!(number(&mut client, "connected_slaves"), 1);
    primary.logs("failed: ");
}

/// A replica says nothing but empty lines while it loads, and is kept. A silent one is dropped:
/// what it lacks would be kept for it for ever.
#[test]
fn a_replica_that_is_silent_while_it_loads_is_dropped() {
    let primary = dunlin(&["--repl-timeout", "10", "--repl-diskless-sync-delay", "0"]);
    let mut client = primary.client();
    let [_silent, mut loads] = [(); 2].map(|()| {
        let mut socket = replica(&primary, b"REPLCONF capa eof\r\nPSYNC ? -1\r\n");
        until(&mut socket, b"$EOF:");
        socket
    });
    eventually("both load", || number(&mut client, "connected_slaves") == 2);
    eventually("the silent one is dropped", || {
        loads.write_all(b"\n").expect("it is kept");
        number(&mut client, "connected_slaves") == 1
    });
    primary.logs("Disconnecting timedout replica");
    loads.write_all(b"REPLCONF ACK 0\r\n").expect("it is kept");
    eventually("it is online", || field(&mut client, "slave0").contains("state=online"));
}

/// A replica that lacks too much is cut off in the middle of its snapshot, which would be of no use
/// to it.
#[test]
fn a_snapshot_for_a_replica_that_lacks_too_much_is_given_up() {
    let primary = dunlin(&["--rdb-key-save-delay", "100000", "--repl-backlog-size", "16kb"]);
    let mut client = primary.client();
    ok(&mut client, &["DEBUG", "POPULATE", "100000"]);
    let mut socket = replica(&primary, b"REPLCONF capa eof\r\nPSYNC ? -1\r\n");
    until(&mut socket, b"$EOF:");
    let value = "v".repeat(100_000);
    (0..30).for_each(|_| drop(ok(&mut client, &["SET", "large", &value])));
    let position = number(&mut client, "master_repl_offset");
    let kept = number(&mut client, "repl_backlog_histlen");
    assert!(kept > 2 << 20, "what it lacks is kept, of {position} bytes only {kept} are");
    let limit = ["CONFIG", "SET", "client-output-buffer-limit", "replica 100kb 0 0"];
    ok(&mut client, &limit);
    eventually("it is cut off", || number(&mut client, "connected_slaves") == 0);
    eventually("its bytes are given back", || {
        number(&mut client, "repl_backlog_histlen") < 1 << 20
    });
}

/// A server that answers each piece of input so, and again and again if it is to be endless. Returns
/// its port and a count of its connections.
fn hostile_server(answer: fn(u16) -> Vec<u8>, is_endless: bool) -> (u16, Arc<AtomicUsize>) {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("a port");
    let port = listener.local_addr().expect("an address").port();
    let connections = Arc::new(AtomicUsize::new(0));
    let counted = Arc::clone(&connections);
    std::thread::spawn(move || {
        for mut socket in listener.incoming().flatten() {
            counted.fetch_add(1, SeqCst);
            std::thread::spawn(move || {
                let (mut input, answer) = (vec![0; 1 << 16], answer(port));
                while socket.read(&mut input).is_ok_and(|count| count > 0) {
                    while socket.write_all(&answer).is_ok() && is_endless && !answer.is_empty() {}
                }
            });
        }
    });
    (port, connections)
}

/// Runs one of our programs with a port until it ends. Returns its status, and what it has printed.
fn run(program: &str, port: u16, words: &[&str]) -> (Option<i32>, String) {
    let mut command = Program::under_test().subcommand(program);
    command.args(["-p", &port.to_string()]).args(words);
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn().expect("it starts");
    eventually("it ends", || child.try_wait().expect("a status").is_some());
    let output = child.wait_with_output().expect("its output");
    let told = [output.stdout, output.stderr].concat();
    (output.status.code(), String::from_utf8_lossy(&told).into_owned())
}

#[test]
fn programs_end_with_an_error_at_hostile_servers() {
    if !Program::under_test().is_dunlin() {
        return;
    }
    let (deep, _) = hostile_server(|_| b"*1\r\n".repeat(1_000_000), false);
    let (status, told) = run("cli", deep, &["GET", "a"]);
    assert_eq!((status, told.contains("levels")), (Some(1), true), "{told}");
    let moved = |port: u16| format!("-MOVED 1 127.0.0.1:{port}\r\n").into_bytes();
    let (itself, connections) = hostile_server(moved, false);
    let (status, told) = run("cli", itself, &["-c", "GET", "a"]);
    assert_eq!((status, told.contains("redirected more than 16 times")), (Some(1), true), "{told}");
    assert!(connections.load(SeqCst) <= 18);
    let (number, _) = hostile_server(|_| b":1\r\n".to_vec(), false);
    let (status, told) = run("cli", number, &["--scan"]);
    assert_eq!((status, told.contains("SCAN did not return")), (Some(1), true), "{told}");

    let bench = |port| run("bench", port, &["-t", "get", "-n", "100", "-c", "2", "--give-up", "1"]);
    let (silent, _) = hostile_server(|_| Vec::new(), false);
    let (endless_array, _) = hostile_server(|_| b"*100000000\r\n:1\r\n".to_vec(), true);
    let (endless_string, _) = hostile_server(|_| b"$500000000\r\nabcd".to_vec(), true);
    for port in [silent, endless_array, endless_string] {
        let (_, told) = bench(port);
        assert!(told.contains("without a whole reply"), "{told}");
    }
    let (wrong, _) = hostile_server(|_| b"?what\r\n".to_vec(), false);
    let (status, told) = bench(wrong);
    assert_eq!((status, told.contains("no RESP")), (Some(1), true), "{told}");
}

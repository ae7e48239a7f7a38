//! Dunlin as the primary of the reference server: what replicas hold is what it holds, after full
//! and partial synchronisations under writes.

use harness::client::{ask, ok};
use harness::info::number;
use harness::replicas::{compare, dunlin, is_linked, start, until_linked, while_writing, write};
use harness::reply::Reply;
use harness::rng::Rng;
use harness::server::{Options, Program, Server, free_port};
use harness::tls::Authority;
use harness::wait::eventually;
use std::io::{BufRead as _, BufReader};

fn primary(arguments: &[&str]) -> Server {
    let all = [&["--save", "", "--repl-diskless-sync-delay", "0"], arguments].concat();
    Server::start(&Program::under_test(), Options::arguments(&all)).expect("it starts")
}

fn replica_of(primary: &Server, arguments: &[&str]) -> Server {
    replica_by(&Program::reference().expect("there is a reference"), primary, arguments)
}

fn replica_by(program: &Program, primary: &Server, arguments: &[&str]) -> Server {
    let port = primary.port().to_string();
    let all = [&["--save", "", "--replicaof", "127.0.0.1", &port], arguments].concat();
    Server::start(program, Options::arguments(&all)).expect("it starts")
}

/// Tools that wait for the end of a save look at the field, and Redis counts what is sent to
/// replicas. A replica that has just come gets no PING, so the position stays that of the writes.
#[test]
fn a_snapshot_for_replicas_is_a_save_that_leaves_the_position_alone() {
    let primary = primary(&["--repl-ping-replica-period", "3600"]);
    let mut client = primary.client();
    ok(&mut client, &["DEBUG", "POPULATE", "100"]);
    let before = number(&mut client, "master_repl_offset");
    ok(&mut client, &["CONFIG", "SET", "rdb-key-save-delay", "1000000"]);
    let replica = replica_by(&Program::under_test(), &primary, &[]);
    eventually("it is sent", || number(&mut client, "rdb_bgsave_in_progress") == 1);
    ok(&mut client, &["CONFIG", "SET", "rdb-key-save-delay", "0"]);
    eventually("the link is up", || is_linked(&mut replica.client()));
    eventually("it was sent", || number(&mut client, "rdb_bgsave_in_progress") == 0);
    assert_eq!(number(&mut client, "master_repl_offset"), before);
}

#[test]
fn monitors_of_a_replica_see_where_its_writes_come_from() {
    let primary = primary(&[]);
    let replica = replica_by(&Program::under_test(), &primary, &[]);
    eventually("the link is up", || is_linked(&mut replica.client()));
    let mut monitor = replica.client();
    ok(&mut monitor, &["MONITOR"]);
    ok(&mut primary.client(), &["SET", "key", "1"]);
    let line = loop {
        let Reply::Simple(line) = monitor.reply().expect("it comes") else { panic!("no line") };
        let line = String::from_utf8_lossy(&line).into_owned();
        if line.contains("\"key\"") {
            break line;
        }
    };
    assert!(line.contains(&format!("[0 127.0.0.1:{}]", primary.port())), "{line}");
}

#[test]
fn three_replicas_synchronise_at_once_and_resume_after_a_cut() {
    synchronise_and_resume(&Program::reference().expect("there is a reference"));
}

#[test]
fn three_replicas_of_redis_7_synchronise_at_once_and_resume_after_a_cut() {
    synchronise_and_resume(&Program::redis_7().expect("there is Redis 7"));
}

fn synchronise_and_resume(program: &Program) {
    // A replica that loads for long on a busy machine has to find the backlog that it needs.
    let options = ["--repl-diskless-sync-delay", "1", "--repl-backlog-size", "256mb"];
    let primary = primary(&options);
    let mut client = primary.client();
    let mut rng = Rng::new(7);
    for _ in 0..3000 {
        write(&mut client, &mut rng);
    }
    ok(&mut client, &["SELECT", "0"]);
    let replicas: Vec<Server> = (0..3).map(|_| replica_by(program, &primary, &[])).collect();
    while_writing(&primary, 100, || {
        for replica in &replicas {
            let mut theirs = replica.client();
            eventually("the link is up", || is_linked(&mut theirs));
        }
        assert_eq!(number(&mut client, "sync_full"), 3);
        let before = number(&mut client, "sync_partial_ok");
        assert_eq!(ask(&mut client, &["CLIENT", "KILL", "TYPE", "replica"]), Reply::Integer(3));
        eventually("all came back", || number(&mut client, "sync_partial_ok") == before + 3);
    });
    replicas.iter().for_each(|replica| compare(&primary, replica));
    assert_eq!(number(&mut client, "sync_full"), 3, "a cut needs no snapshot");
    let log = primary.log();
    assert_eq!(log.matches("asks for synchronization").count(), 6, "{log}");
    assert_eq!(log.matches("Partial resynchronization request from").count(), 3, "{log}");
}

#[test]
fn a_snapshot_goes_by_file_where_sockets_are_not_wanted() {
    let primary = primary(&["--repl-diskless-sync", "no"]);
    let mut client = primary.client();
    let mut rng = Rng::new(8);
    for _ in 0..2000 {
        write(&mut client, &mut rng);
    }
    let replica = replica_of(&primary, &[]);
    while_writing(&primary, 200, || {
        let mut theirs = replica.client();
        eventually("the link is up", || is_linked(&mut theirs));
    });
    compare(&primary, &replica);
}

#[test]
fn wait_counts_replicas_and_writes_need_enough_of_them() {
    let primary = primary(&["--min-replicas-to-write", "1", "--repl-ping-replica-period", "1"]);
    let mut client = primary.client();
    let refusal = ask(&mut client, &["SET", "k", "v"]);
    assert!(refusal.is_error(), "{refusal:?}");
    let replica = replica_of(&primary, &["--appendonly", "yes"]);
    eventually("writes are accepted", || !ask(&mut client, &["SET", "k", "v"]).is_error());
    assert_eq!(ask(&mut client, &["WAIT", "1", "5000"]), Reply::Integer(1));
    assert_eq!(ask(&mut client, &["WAIT", "2", "100"]), Reply::Integer(1));
    let acks = ask(&mut client, &["WAITAOF", "0", "1", "9000"]);
    assert_eq!(acks, Reply::Array(vec![Reply::Integer(0), Reply::Integer(1)]));
    let role = ask(&mut client, &["ROLE"]);
    let inside = |reply: &Reply, at: usize| reply.elements().unwrap_or_default()[at].clone();
    let port = inside(&inside(&inside(&role, 2), 0), 1);
    assert_eq!(port, Reply::Bulk(replica.port().to_string().into_bytes()));
    drop(replica);
    eventually("writes are refused", || ask(&mut client, &["SET", "k", "v"]).is_error());
}

#[test]
fn what_is_not_kept_any_more_needs_a_snapshot() {
    let primary = primary(&["--repl-backlog-size", "16kb"]);
    let replica = replica_of(&primary, &[]);
    let (mut client, mut theirs) = (primary.client(), replica.client());
    eventually("the link is up", || is_linked(&mut theirs));
    ok(&mut theirs, &["REPLICAOF", "NO", "ONE"]);
    ok(&mut theirs, &["REPLICAOF", "127.0.0.1", "1"]);
    let value = "v".repeat(100_000);
    ok(&mut client, &["SET", "large", &value]);
    ok(&mut theirs, &["REPLICAOF", "127.0.0.1", &primary.port().to_string()]);
    eventually("a second snapshot", || number(&mut client, "sync_full") == 2);
    eventually("the link is up", || is_linked(&mut theirs));
    compare(&primary, &replica);
}

/// Restarts the primary, on whose file or log the replica's partial resynchronisation rests.
fn resumes_after_a_restart(arguments: &[&str], ends: impl Fn(&mut Server)) {
    let mut primary = primary(&[arguments, &["--repl-ping-replica-period", "1000"]].concat());
    let mut client = primary.client();
    let mut rng = Rng::new(9);
    for _ in 0..1000 {
        write(&mut client, &mut rng);
    }
    let replica = replica_of(&primary, &[]);
    let mut theirs = replica.client();
    eventually("the link is up", || is_linked(&mut theirs));
    for round in 0..2 {
        for _ in 0..1000 {
            write(&mut client, &mut rng);
        }
        // A GETACK stands in the stream, too.
        assert_eq!(ask(&mut client, &["WAIT", "1", "9000"]), Reply::Integer(1));
        ok(&mut client, &["SET", "last", "1"]);
        compare(&primary, &replica);
        let before = number(&mut client, "master_repl_offset");
        ends(&mut primary);
        client = primary.client();
        assert_eq!(number(&mut client, "master_repl_offset"), before, "round {round}");
        eventually("the replica resumes", || number(&mut client, "sync_partial_ok") == 1);
        assert_eq!(number(&mut client, "sync_full"), 0, "round {round}");
        eventually("the link is up", || is_linked(&mut theirs));
    }
    for _ in 0..1000 {
        write(&mut client, &mut rng);
    }
    compare(&primary, &replica);
}

fn restart(primary: &mut Server) {
    primary.restart().expect("it starts again");
}

#[test]
fn a_replica_resumes_after_a_restart_from_an_rdb_file() {
    resumes_after_a_restart(&["--save", "1000 1"], restart);
}

#[test]
fn a_replica_resumes_after_a_restart_from_an_append_only_file() {
    resumes_after_a_restart(&["--appendonly", "yes"], restart);
    resumes_after_a_restart(&["--appendonly", "yes", "--aof-use-rdb-preamble", "no"], restart);
}

#[test]
fn a_replica_resumes_after_a_rewrite_and_a_restart() {
    resumes_after_a_restart(&["--appendonly", "yes"], |primary| {
        let mut client = primary.client();
        ask(&mut client, &["BGREWRITEAOF"]);
        harness::wait::until_not_rewriting(&mut client);
        restart(primary);
    });
}

#[test]
fn a_replica_resumes_after_a_kill_that_lost_nothing() {
    let arguments = ["--appendonly", "yes", "--appendfsync", "always"];
    resumes_after_a_restart(&arguments, |primary| {
        primary.kill().expect("it ends");
        primary.start_again().expect("it starts again");
    });
}

#[test]
fn a_replica_that_has_more_than_the_log_gets_a_snapshot() {
    let mut primary = primary(&["--appendonly", "yes"]);
    let replica = replica_of(&primary, &[]);
    let (mut client, mut theirs) = (primary.client(), replica.client());
    eventually("the link is up", || is_linked(&mut theirs));
    ok(&mut client, &["SET", "k", "1"]);
    assert_eq!(
        ask(&mut client, &["WAITAOF", "1", "0", "9000"]).elements().map(<[_]>::len),
        Some(2)
    );
    compare(&primary, &replica);
    // What the log does not get, the replica has.
    ok(&mut client, &["CONFIG", "SET", "appendonly", "no"]);
    ok(&mut client, &["SET", "k", "2"]);
    compare(&primary, &replica);
    primary.kill().expect("it ends");
    primary.start_again().expect("it starts again");
    client = primary.client();
    eventually("a snapshot", || number(&mut client, "sync_full") == 1);
    eventually("the link is up", || is_linked(&mut theirs));
    assert_eq!(ask(&mut client, &["GET", "k"]), Reply::Bulk(b"1".to_vec()));
    compare(&primary, &replica);
}

/// What has expired while the primary was down, replicas that go on from its file still have.
#[test]
fn keys_that_expire_between_a_file_and_its_load_are_gone_from_replicas() {
    let options = ["--save", "3600 1", "--repl-ping-replica-period", "1000"];
    let mut primary = primary(&options);
    let mut client = primary.client();
    let replica = replica_of(&primary, &[]);
    let mut theirs = replica.client();
    eventually("the link is up", || is_linked(&mut theirs));
    ok(&mut client, &["DEBUG", "SET-ACTIVE-EXPIRE", "0"]);
    for number in 0..100 {
        ok(&mut client, &["SET", &format!("k{number}"), "v", "PX", "1"]);
    }
    ok(&mut client, &["SET", "stays", "v"]);
    for key in ["part", "whole"] {
        ask(&mut client, &["HSETEX", key, "PX", "1", "FIELDS", "2", "f", "v", "g", "v"]);
    }
    ask(&mut client, &["HSET", "part", "stays", "v"]);
    // To look at the keys would delete them.
    eventually("it has all", || ask(&mut theirs, &["DBSIZE"]) == Reply::Integer(103));
    restart(&mut primary);
    client = primary.client();
    assert_eq!(number(&mut client, "rdb_last_load_keys_expired"), 100);
    eventually("it goes on", || number(&mut client, "sync_partial_ok") == 1);
    eventually("they are gone", || ask(&mut theirs, &["DBSIZE"]) == Reply::Integer(2));
    compare(&primary, &replica);
    assert_eq!(ask(&mut theirs, &["HLEN", "part"]), Reply::Integer(1));
    assert_eq!(number(&mut client, "expired_fields"), 0, "they were deleted later");
}

#[test]
fn a_replica_synchronises_by_tls() {
    let authority = Authority::new("replica");
    authority.sign("server");
    let tls_port = free_port().expect("a port");
    let options = authority.options(tls_port, "server");
    let options: Vec<&str> = options.iter().map(String::as_str).collect();
    let primary = primary(&options);
    let mut client = primary.client();
    let mut rng = Rng::new(10);
    for _ in 0..3000 {
        write(&mut client, &mut rng);
    }
    // More than a window of output, and than a pair of sockets holds.
    for number in 0..400 {
        ok(&mut client, &["SET", &format!("large{number}"), &"v".repeat(20_000)]);
    }
    let program = Program::reference().expect("there is a reference");
    // The reference has a root of its own.
    let folder = format!("tls-replica-{}", std::process::id());
    let inside = program.root().join("tmp").join(&folder);
    std::fs::create_dir_all(&inside).expect("a folder");
    let mut arguments = vec!["--save".to_owned(), String::new()];
    for (option, file) in
        [("ca-cert-file", "ca.crt"), ("cert-file", "server.crt"), ("key-file", "server.key")]
    {
        std::fs::copy(authority.path(file), inside.join(file)).expect("it is copied");
        arguments.extend([format!("--tls-{option}"), format!("/tmp/{folder}/{file}")]);
    }
    let address = ["127.0.0.1".to_owned(), tls_port.to_string()];
    arguments.extend(["--tls-replication".to_owned(), "yes".to_owned(), "--replicaof".to_owned()]);
    arguments.extend(address);
    let replica = Server::start(&program, Options::arguments(&arguments)).expect("it starts");
    let mut theirs = replica.client();
    while_writing(&primary, 300, || {
        eventually("the link is up", || is_linked(&mut theirs));
        let cut = ask(&mut client, &["CLIENT", "KILL", "TYPE", "replica"]);
        assert_eq!(cut, Reply::Integer(1));
        eventually("it came back", || number(&mut client, "sync_partial_ok") == 1);
    });
    compare(&primary, &replica);
    assert_eq!(number(&mut client, "sync_full"), 1);
    std::fs::remove_dir_all(inside).expect("it is ours");
}

#[test]
fn subscribers_of_a_replica_get_what_is_published_here() {
    let primary = primary(&[]);
    let replica = replica_of(&primary, &[]);
    let (mut client, mut theirs) = (primary.client(), replica.client());
    eventually("the link is up", || is_linked(&mut theirs));
    theirs.send(&["SUBSCRIBE", "news"]).expect("it sends");
    theirs.message().expect("it is confirmed");
    assert_eq!(ask(&mut client, &["PUBLISH", "news", "first"]), Reply::Integer(0));
    ok(&mut client, &["MULTI"]);
    ask(&mut client, &["SET", "k", "v"]);
    ask(&mut client, &["PUBLISH", "news", "second"]);
    ask(&mut client, &["EXEC"]);
    for text in ["first", "second"] {
        let message = theirs.message().expect("a message");
        assert_eq!(message.elements().map(|words| words[2].shown()), Some(text.to_owned()));
    }
    compare(&primary, &replica);
}

/// Takes a snapshot with `--rdb` of a command-line client, or returns what the client says.
fn snapshot_by(program: &Program, primary: &Server) -> Result<Vec<u8>, String> {
    let file = format!("dunlin-{}-{}.rdb", std::process::id(), primary.port());
    let outside = program.root().join("tmp").join(&file);
    let port = primary.port().to_string();
    let mut command = program.command();
    let output = command.args(["-p", &port, "--rdb", &format!("/tmp/{file}")]).output();
    let output = output.expect("it runs");
    let rdb = std::fs::read(&outside);
    // A client that is refused may have made no file.
    let _ = std::fs::remove_file(outside);
    match output.status.success() {
        true => Ok(rdb.expect("there is a file")),
        false => Err([output.stdout, output.stderr]
            .map(|it| String::from_utf8_lossy(&it).into_owned())
            .concat()),
    }
}

/// A tool keeps a snapshot as a file, so fields of hashes that expire are no reason to refuse it. A
/// replica that cannot read them is told so.
#[test]
fn snapshots_with_fields_that_expire_are_for_tools_and_others_hear_why_not() {
    let primary = primary(&[]);
    let mut client = primary.client();
    let valkey = Program::reference().expect("there is a reference").beside("valkey-cli");
    let redis = Program::redis_8().expect("there is one").beside("redis-cli");
    let ours = Program::under_test().beside("cli");
    ok(&mut client, &["HSET", "h", "a", "1"]);
    let version = |program: &Program| {
        let rdb = snapshot_by(program, &primary).expect("it gets one");
        String::from_utf8_lossy(&rdb[..9]).into_owned()
    };
    assert_eq!([&valkey, &redis, &ours].map(version), ["REDIS0010", "REDIS0010", "REDIS0011"]);
    ok(&mut client, &["HPEXPIREAT", "h", "4000000000123", "FIELDS", "1", "a"]);
    assert_eq!([&valkey, &redis, &ours].map(version), ["VALKEY080"; 3]);
    ok(&mut client, &["CONFIG", "SET", "rdb-version", "12"]);
    assert_eq!([&valkey, &redis, &ours].map(version), ["REDIS0012", "REDIS0012", "VALKEY080"]);
    ok(&mut client, &["CONFIG", "SET", "replica-rdb-version", "11"]);
    for program in [&valkey, &redis] {
        let said = snapshot_by(program, &primary).expect_err("it is refused");
        assert!(
            said.contains("fields that expire") && said.contains("set replica-rdb-version 12"),
            "{said}"
        );
    }
    assert_eq!(version(&ours), "VALKEY080");
    ok(&mut client, &["CONFIG", "SET", "replica-rdb-version", "auto"]);
    for request in ["SYNC\r\n", "REPLCONF capa eof capa psync2\r\nPSYNC ? -1\r\n"] {
        let mut replica = primary.client();
        replica.send_raw(request.as_bytes()).expect("it sends");
        let mut stream = BufReader::new(replica.stream());
        // What REPLCONF is answered, and empty lines while the snapshot is not begun yet.
        let mut said = String::new();
        while said.trim().is_empty() || said.starts_with("+OK") {
            said.clear();
            assert!(stream.read_line(&mut said).expect("a reply") > 0, "{request}: no reply");
        }
        assert!(said.contains("ERR there are hashes with fields that expire"), "{request}: {said}");
        assert_eq!(stream.read_line(&mut said).unwrap_or_default(), 0, "the connection ends");
    }
    // One that is refused neither counts nor waits for more.
    eventually("they have left", || number(&mut client, "connected_slaves") == 0);
    ask(&mut client, &["HPERSIST", "h", "FIELDS", "1", "a"]);
    let replica = replica_by(&Program::under_test(), &primary, &[]);
    eventually("the link is up", || is_linked(&mut replica.client()));
}

#[test]
fn a_client_that_wants_a_snapshot_alone_gets_one() {
    let primary = primary(&["--repl-backlog-ttl", "3600"]);
    let mut client = primary.client();
    for number in 0..1000 {
        ok(&mut client, &["SET", &format!("k{number}"), "v"]);
    }
    let program = Program::reference().expect("there is a reference").beside("valkey-cli");
    let rdb = snapshot_by(&program, &primary).expect("it gets one");
    assert!(rdb.starts_with(b"REDIS00") && rdb.len() > 1000, "{} bytes", rdb.len());
    eventually("it has left", || number(&mut client, "connected_slaves") == 0);
    // The same request, and nothing that closes the connection but the primary.
    let mut replica = primary.client();
    replica.send_raw(b"REPLCONF rdb-only 1\r\nREPLCONF capa eof\r\nSYNC\r\n").expect("it sends");
    eventually("it was there, and is gone", || {
        number(&mut client, "sync_full") == 2 && number(&mut client, "connected_slaves") == 0
    });
}

#[test]
fn a_script_that_keeps_the_world_stopped_sees_that_a_replica_is_gone() {
    let primary = primary(&["--busy-reply-threshold", "10"]);
    let mut client = primary.client();
    let replica = replica_of(&primary, &[]);
    eventually("the link is up", || is_linked(&mut replica.client()));
    let script = "redis.call('SET', KEYS[1], 'begun') \
                  repeat local info = redis.call('INFO', 'replication') \
                  until string.find(info, 'connected_slaves:0') \
                  return 'seen'";
    let waiting = primary.client();
    let thread = std::thread::spawn(move || {
        let mut waiting = waiting;
        ask(&mut waiting, &["EVAL", script, "1", "k"])
    });
    eventually("the script runs for long", || ask(&mut client, "PING").is_error());
    drop(replica);
    assert_eq!(thread.join().expect("it ends"), Reply::Bulk(b"seen".to_vec()));
}

/// Hashes with fields that expire have one form in Valkey and another in Redis.
#[test]
fn redis_8_gets_its_own_form_of_fields_that_expire() {
    let primary = dunlin(&["--replica-rdb-version", "12", "--rdb-version", "12"]);
    let mut ours = primary.client();
    let long = "v".repeat(20_000);
    for key in ["small", "large"] {
        ok(&mut ours, &["CONFIG", "SET", "hash-max-listpack-entries", "4"]);
        let fields = if key == "small" { 3 } else { 50 };
        for field in 0..fields {
            let (name, value) = (format!("f{field}"), if field == 1 { &long } else { "1" });
            ask(&mut ours, &["HSET", key, &name, value]);
        }
        ask(&mut ours, &["HPEXPIREAT", key, "4000000000123", "FIELDS", "2", "f0", "f1"]);
    }
    let redis = start(&Program::redis_8().expect("there is one"), &[]);
    let mut theirs = redis.client();
    ok(&mut theirs, &["REPLICAOF", "127.0.0.1", &primary.port().to_string()]);
    until_linked(&redis);
    for (key, len) in [("small", 3), ("large", 50)] {
        assert_eq!(ask(&mut theirs, &["HLEN", key]), Reply::Integer(len));
        let times = ask(&mut theirs, &["HPEXPIRETIME", key, "FIELDS", "3", "f0", "f1", "f2"]);
        let times: Vec<String> =
            times.elements().expect("an array").iter().map(Reply::shown).collect();
        assert_eq!(times, ["4000000000123", "4000000000123", "-1"]);
        assert_eq!(ask(&mut theirs, &["HGET", key, "f1"]), Reply::Bulk(long.clone().into_bytes()));
    }
    // A file is of the same form, and can be read again; an older version cannot hold it.
    ok(&mut ours, &["SAVE"]);
    let file = std::fs::read(primary.directory().join("dump.rdb")).expect("there is a file");
    assert!(file.starts_with(b"REDIS0012"));
    ok(&mut ours, &["DEBUG", "RELOAD"]);
    let times = ask(&mut ours, &["HPEXPIRETIME", "small", "FIELDS", "1", "f0"]);
    assert_eq!(times, Reply::Array(vec![Reply::Integer(4_000_000_000_123)]));
    ok(&mut ours, &["CONFIG", "SET", "rdb-version", "11"]);
    assert!(matches!(ask(&mut ours, &["SAVE"]), Reply::Error(_)));
    ask(&mut ours, &["DEL", "small", "large"]);
    ok(&mut ours, &["CONFIG", "SET", "rdb-version", "10"]);
    ok(&mut ours, &["SAVE"]);
    let file = std::fs::read(primary.directory().join("dump.rdb")).expect("there is a file");
    assert!(file.starts_with(b"REDIS0010"));
}

/// What a stream knows of its producers survives: in files of each form, in logs, on replicas.
#[test]
fn messages_are_added_once_wherever_the_stream_goes() {
    let add = ["XADD", "s", "MAXLEN", "~", "1000", "IDMP", "p", "m", "*", "a", "1"];
    let auto = ["XADD", "s", "IDMPAUTO", "q", "*", "b", "2"];
    for preamble in ["yes", "no"] {
        let log = ["--appendonly", "yes", "--appendfsync", "always"];
        let mut primary = dunlin(&[&log[..], &["--aof-use-rdb-preamble", preamble]].concat());
        let mut client = primary.client();
        let early = ask(&mut client, &["XADD", "s", "IDMP", "p", "early", "*", "a", "1"]);
        ok(&mut client, &["XCFGSET", "s", "IDMP-DURATION", "1000", "IDMP-MAXSIZE", "50"]);
        let found = |client: &mut harness::client::Client, first: &Reply, second: &Reply| {
            assert_eq!((&ask(client, &add), &ask(client, &auto)), (first, second));
            assert_eq!(ask(client, &["XLEN", "s"]), Reply::Integer(3));
        };
        let (first, second) = (ask(&mut client, &add), ask(&mut client, &auto));
        assert!(early != first && first != second);
        found(&mut client, &first, &second);
        // By the commands of the log.
        primary.kill().expect("it ends");
        primary.start_again().expect("it starts again");
        let mut client = primary.client();
        found(&mut client, &first, &second);
        // By the base of the log.
        ask(&mut client, &["BGREWRITEAOF"]);
        harness::wait::until_not_rewriting(&mut client);
        primary.kill().expect("it ends");
        primary.start_again().expect("it starts again");
        let mut client = primary.client();
        found(&mut client, &first, &second);
        // By a snapshot and by the stream of a primary.
        let port = primary.port().to_string();
        let replica = dunlin(&["--replicaof", "127.0.0.1", &port]);
        until_linked(&replica);
        let third = ask(&mut client, &["XADD", "s", "IDMPAUTO", "q", "*", "c", "3"]);
        assert_eq!(ask(&mut client, &["WAIT", "1", "0"]), Reply::Integer(1));
        let mut theirs = replica.client();
        ok(&mut theirs, &["REPLICAOF", "NO", "ONE"]);
        let again = ask(&mut theirs, &["XADD", "s", "IDMPAUTO", "q", "*", "c", "3"]);
        assert_eq!((again, ask(&mut theirs, &add)), (third, first));
        assert_eq!(ask(&mut theirs, &["XLEN", "s"]), Reply::Integer(4));
    }
}

/// Other servers pass over what a stream knows of its producers.
#[test]
fn other_servers_load_streams_that_know_their_producers() {
    for program in [Program::redis_7(), Program::redis_8(), Program::reference()] {
        let program = program.expect("there is one");
        let primary = dunlin(&[]);
        let mut client = primary.client();
        ask(&mut client, &["XADD", "s", "IDMP", "p", "m", "5-5", "a", "1"]);
        ask(&mut client, &["PEXPIREAT", "s", "4000000000000"]);
        let replica = start(&program, &[]);
        let mut theirs = replica.client();
        ok(&mut theirs, &["REPLICAOF", "127.0.0.1", &primary.port().to_string()]);
        until_linked(&replica);
        let range = ["XRANGE", "s", "5-5", "5-5"];
        assert_eq!(ask(&mut theirs, &range), ask(&mut client, &range));
        assert_eq!(ask(&mut theirs, &["XLEN", "s"]), Reply::Integer(1));
        assert_eq!(ask(&mut theirs, &["PEXPIRETIME", "s"]), Reply::Integer(4_000_000_000_000));
    }
}

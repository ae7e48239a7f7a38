//! Libraries of functions outlive the process: in snapshots, in the append-only file, at replicas,
//! and in files that go between Dunlin, Valkey and Redis. And what scripts say of replication.

use harness::client::{Client, ask, ok};
use harness::info::field;
use harness::reply::Reply;
use harness::server::{Options, Program, Server};
use harness::wait::{eventually, until_not_rewriting};
use std::path::Path;
use std::process::Command;

const COUNTER: &str = "#!lua name=counter\n\
    redis.register_function('count', function(keys) return redis.call('INCR', keys[1]) end)\n\
    redis.register_function{function_name = 'peek', callback = function(keys) return \
    redis.call('GET', keys[1]) end, flags = {'no-writes'}, description = 'reads it'}";
const OTHER: &str = "#!lua name=other\nredis.register_function('other', function() return 1 end)";
const REPLACED: &str =
    "#!lua name=other\nredis.register_function('another', function() return 2 end)";

fn start(program: &Program, arguments: &[&str]) -> Server {
    Server::start(program, Options::arguments(arguments)).expect("it starts")
}

fn libraries(client: &mut Client) -> Reply {
    ok(client, &["FUNCTION", "LIST", "WITHCODE"])
}

/// The order of libraries, and of the functions of one, means nothing.
fn sorted(reply: &Reply) -> Reply {
    let Reply::Array(elements) = reply else { return reply.clone() };
    let mut elements: Vec<Reply> = elements.iter().map(sorted).collect();
    elements.sort_by_key(|element| format!("{element:?}"));
    Reply::Array(elements)
}

fn count(client: &mut Client) -> i64 {
    ok(client, &["FCALL", "count", "1", "k"]).integer().expect("a number")
}

/// The words that follow `FUNCTION`.
fn function(client: &mut Client, words: &[&str]) {
    ok(client, &[&["FUNCTION"][..], words].concat()[..]);
}

#[test]
fn a_snapshot_has_them() {
    let mut server =
        start(&Program::under_test(), &["--save", "", "--enable-debug-command", "yes"]);
    let mut client = server.client();
    function(&mut client, &["LOAD", COUNTER]);
    function(&mut client, &["LOAD", OTHER]);
    assert_eq!(count(&mut client), 1);
    let before = libraries(&mut client);
    ok(&mut client, "SAVE");
    server.restart().expect("it starts again");
    let mut client = server.client();
    assert_eq!(libraries(&mut client), before);
    assert_eq!(count(&mut client), 2);

    ok(&mut client, "DEBUG RELOAD");
    assert_eq!(libraries(&mut client), before);
    assert_eq!(count(&mut client), 3);
    // What is there already is an error, or is replaced.
    assert!(ask(&mut client, "DEBUG RELOAD NOSAVE NOFLUSH").is_error());
    ok(&mut client, "SAVE");
    ok(&mut client, "DEBUG RELOAD NOSAVE NOFLUSH MERGE");
    assert_eq!(libraries(&mut client), before);

    ok(&mut client, "FLUSHALL");
    assert_eq!(libraries(&mut client), before, "they are no keys");
    function(&mut client, &["FLUSH"]);
    ok(&mut client, "SAVE");
    server.restart().expect("it starts again");
    assert_eq!(libraries(&mut server.client()), Reply::Array(Vec::new()));
}

#[test]
fn the_append_only_file_has_them() {
    for preamble in ["yes", "no"] {
        let arguments = ["--appendonly", "yes", "--aof-use-rdb-preamble", preamble, "--save", ""];
        let mut server = start(&Program::under_test(), &arguments);
        let mut client = server.client();
        // In an increment.
        function(&mut client, &["LOAD", COUNTER]);
        function(&mut client, &["LOAD", OTHER]);
        function(&mut client, &["LOAD", "REPLACE", REPLACED]);
        assert_eq!(count(&mut client), 1);
        let before = libraries(&mut client);
        server.restart().expect("it starts again");
        let mut client = server.client();
        assert_eq!(libraries(&mut client), before);

        // In a base, and deleted behind it.
        ok(&mut client, "BGREWRITEAOF");
        until_not_rewriting(&mut client);
        server.restart().expect("it starts again");
        let mut client = server.client();
        assert_eq!(libraries(&mut client), before);
        assert_eq!(count(&mut client), 2);
        function(&mut client, &["DELETE", "other"]);
        server.restart().expect("it starts again");
        let mut client = server.client();
        assert!(ask(&mut client, &["FCALL", "another", "0"]).is_error());
        assert_eq!(count(&mut client), 3);

        // Restored, and all forgotten.
        let Reply::Bulk(payload) = ok(&mut client, "FUNCTION DUMP") else { panic!("no payload") };
        function(&mut client, &["LOAD", OTHER]);
        let words = [&b"FUNCTION"[..], b"RESTORE", &payload, b"FLUSH"];
        assert!(!client.command(&words).expect("a reply").is_error());
        let before = libraries(&mut client);
        server.restart().expect("it starts again");
        let mut client = server.client();
        assert_eq!(libraries(&mut client), before);
        function(&mut client, &["FLUSH", "ASYNC"]);
        server.restart().expect("it starts again");
        assert_eq!(libraries(&mut server.client()), Reply::Array(Vec::new()));
    }
}

#[test]
fn replicas_get_them() {
    for diskless in ["yes", "no"] {
        let primary = start(
            &Program::under_test(),
            &["--save", "", "--repl-diskless-sync", diskless, "--repl-diskless-sync-delay", "0"],
        );
        let mut client = primary.client();
        function(&mut client, &["LOAD", COUNTER]);
        let port = primary.port().to_string();
        let reference = Program::reference().expect("there is a reference");
        let replica = start(&reference, &["--save", "", "--replicaof", "127.0.0.1", &port]);
        let mut theirs = replica.client();
        eventually("the link is up", || field(&mut theirs, "master_link_status") == "up");
        assert_eq!(sorted(&libraries(&mut theirs)), sorted(&libraries(&mut client)));
        function(&mut client, &["LOAD", OTHER]);
        function(&mut client, &["LOAD", "REPLACE", REPLACED]);
        ok(&mut client, &["FCALL", "count", "1", "k"]);
        assert_eq!(ok(&mut client, "WAIT 1 0"), Reply::Integer(1));
        assert_eq!(sorted(&libraries(&mut theirs)), sorted(&libraries(&mut client)));
        assert_eq!(ask(&mut theirs, "GET k"), Reply::Bulk(b"1".to_vec()));
        function(&mut client, &["FLUSH"]);
        assert_eq!(ok(&mut client, "WAIT 1 0"), Reply::Integer(1));
        assert_eq!(libraries(&mut theirs), Reply::Array(Vec::new()));
    }
}

/// Has `to` load the snapshot that `from` wrote, and compares.
fn hand_over(from: &Program, to: &Program) {
    let arguments = ["--save", "", "--dbfilename", "dump.rdb"];
    let giver = start(from, &arguments);
    let mut client = giver.client();
    function(&mut client, &["LOAD", COUNTER]);
    // Long enough to be compressed.
    let long = format!("{OTHER}\n--{}", " and so on".repeat(1000));
    function(&mut client, &["LOAD", &long]);
    assert_eq!(count(&mut client), 1);
    ok(&mut client, "SAVE");
    let mut taker = start(to, &arguments);
    taker.terminate().expect("it stops");
    let file = |server: &Server| server.directory().join("dump.rdb");
    std::fs::copy(file(&giver), file(&taker)).expect("it is copied");
    check(&file(&giver));
    taker.start_again().expect("it loads the file");
    let mut theirs = taker.client();
    let (ours, theirs_list) = (libraries(&mut client), libraries(&mut theirs));
    assert_eq!(sorted(&ours), sorted(&theirs_list), "{} to {}", from.name(), to.name());
    assert_eq!(count(&mut theirs), 2);
}

/// `dunlin check rdb` counts them.
fn check(file: &Path) {
    let mut command: Command = Program::under_test().subcommand("check");
    let output = command.arg("rdb").arg(file).output().expect("it runs");
    let said = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(output.status.success() && said.contains("[info] 2 functions\n"), "{said}");
    assert!(!said.contains("can't load"), "{said}");
}

#[test]
fn snapshots_go_both_ways() {
    let ours = Program::under_test();
    if !ours.is_dunlin() {
        return;
    }
    let valkey = Program::reference().expect("there is a reference");
    let redis = valkey.beside("redis-server");
    for other in [&valkey, &redis] {
        hand_over(other, &ours);
        hand_over(&ours, other);
    }
}

/// `redis.set_repl`: what is not to be replicated is not in the log.
#[test]
fn a_script_says_what_is_replicated() {
    let arguments = ["--appendonly", "yes", "--save", ""];
    let mut server = start(&Program::under_test(), &arguments);
    let mut client = server.client();
    let script = "redis.set_repl(redis.REPL_NONE) redis.call('SET', 'hidden', 1) \
                  redis.call('SPOP', 'set') redis.set_repl(redis.REPL_ALL) \
                  return redis.call('SET', 'shown', 1)";
    ok(&mut client, "SADD set a b c");
    ok(&mut client, &["EVAL", script, "0"]);
    // It says so for itself only.
    ok(&mut client, &["EVAL", "redis.set_repl(redis.REPL_NONE)", "0"]);
    ok(&mut client, "SET later 1");
    assert_eq!(ok(&mut client, "EXISTS hidden shown later"), Reply::Integer(3));
    assert_eq!(ok(&mut client, "SCARD set"), Reply::Integer(2));
    server.restart().expect("it starts again");
    let mut client = server.client();
    assert_eq!(ok(&mut client, "EXISTS hidden"), Reply::Integer(0));
    assert_eq!(ok(&mut client, "EXISTS shown later"), Reply::Integer(2));
    assert_eq!(ok(&mut client, "SCARD set"), Reply::Integer(3));
}

#[test]
fn a_library_that_is_damaged_is_named() {
    let ours = Program::under_test();
    if !ours.is_dunlin() {
        return;
    }
    let mut server = start(&ours, &["--save", "", "--rdbchecksum", "no", "--rdbcompression", "no"]);
    let mut client = server.client();
    function(&mut client, &["LOAD", OTHER]);
    ok(&mut client, "SAVE");
    drop(client);
    server.terminate().expect("it stops");
    let path = server.directory().join("dump.rdb");
    let mut bytes = std::fs::read(&path).expect("it is there");
    let at = bytes.windows(8).position(|bytes| bytes == b"register").expect("it has the source");
    bytes[at] = b'R';
    std::fs::write(&path, bytes).expect("it is written");
    let refusal = server.start_again().expect_err("it does not start").to_string();
    assert!(refusal.contains("a library of functions that cannot be loaded: ERR "), "{refusal}");
}

#[test]
fn scripts_in_a_log_are_repeated_by_a_replica_too() {
    // Its primary is not there. What the log says has happened is no write of a client.
    let arguments = ["--appendonly", "yes", "--replicaof", "127.0.0.1", "1"];
    let mut server = start(&Program::under_test(), &arguments);
    server.kill().expect("it is killed");
    let log = server.directory().join("appendonlydir/appendonly.aof.1.incr.aof");
    let mut file = std::fs::OpenOptions::new().append(true).open(log).expect("it is there");
    let scripts =
        ["return redis.call('SET', KEYS[1], '100')", "#!lua\nreturn redis.call('INCR', KEYS[1])"];
    for script in scripts {
        let request = harness::client::encode(&["EVAL", script, "1", "key"]);
        std::io::Write::write_all(&mut file, &request).expect("there is room");
    }
    drop(file);
    server.start_again().expect("it starts again");
    assert_eq!(ok(&mut server.client(), "GET key").shown(), "101");
}

/// Bytes of all interpreters, and of those of functions, when they stand in INFO.
fn interpreters(client: &mut Client) -> (u64, u64) {
    let mut number = |name| field(client, name).parse().expect("a number");
    (number("used_memory_vm_total"), number("used_memory_vm_functions"))
}

#[test]
fn libraries_that_are_replaced_or_refused_leave_nothing_behind() {
    let server = start(&Program::under_test(), &["--io-threads", "2"]);
    let mut client = server.client();
    function(&mut client, &["LOAD", COUNTER]);
    let load = |client: &mut Client, number: usize| {
        let replaced = format!(
            "#!lua name=other\nlocal text = '{number}' \
             redis.register_function('other', function() return text end)"
        );
        // Its function is one of another library's, so it is loaded and not added.
        let refused = format!(
            "#!lua name=refused\nlocal text = '{number}' \
             redis.register_function('count', function() return text end)"
        );
        let broken = format!("return 'text {number}' +");
        function(client, &["LOAD", "REPLACE", &replaced]);
        assert!(ask(client, &["FUNCTION", "LOAD", &refused]).is_error());
        assert!(ask(client, &["FUNCTION", "LOAD", &format!("#!lua name=b\n{broken}")]).is_error());
        assert!(ask(client, &["EVAL", &broken, "0"]).is_error());
    };
    (0..200).for_each(|number| load(&mut client, number));
    eventually("the figures of functions are there", || interpreters(&mut client).1 > 0);
    let (total, functions) = interpreters(&mut client);
    assert!(functions < total, "scripts were compiled, too: {functions} of {total}");
    (200..3000).for_each(|number| load(&mut client, number));
    let (after, _) = interpreters(&mut client);
    assert!(after < total + 300_000, "{total} bytes became {after}");
}

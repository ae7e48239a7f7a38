//! What commands do to files, where that can be seen only from outside.

use harness::client::{Client, ask, ok};
use harness::info::{field, fields, find};
use harness::reply::Reply;
use harness::rng::Rng;
use harness::server::{Options, Program, Server, signal};
use harness::wait::{eventually, until_not_rewriting};
use std::time::Instant;

fn start(arguments: &[&str]) -> Server {
    Server::start(&Program::under_test(), Options::arguments(arguments)).expect("it starts")
}

/// Asks until the reply is no error.
fn insist(client: &mut Client, words: &[&str]) {
    eventually(&words.join(" "), || !ask(client, words).is_error());
}

/// The microseconds of the server's clock.
fn clock(client: &mut Client) -> u64 {
    let time = ask(client, &["TIME"]);
    let parts = time.elements().expect("seconds and microseconds").iter();
    let numbers = parts.map(|part| part.shown().parse::<u64>().expect("a number"));
    numbers.fold(0, |sum, number| sum * 1_000_000 + number)
}

#[test]
fn a_shutdown_is_taken_back_while_it_saves() {
    let server = start(&["--save", "3600 1000000"]);
    let [mut going, mut other] = [0; 2].map(|_| server.client());
    ask(&mut other, &["DEBUG", "POPULATE", "50"]);
    ask(&mut other, &["CONFIG", "SET", "rdb-key-save-delay", "1000000"]);
    assert!(ask(&mut other, &["SHUTDOWN", "ABORT"]).is_error(), "there is none");
    going.send(&["SHUTDOWN"]).expect("it is sent");
    insist(&mut other, &["SHUTDOWN", "ABORT"]);
    let reply = going.reply().expect("it goes on");
    assert_eq!(reply.text(), Some(&b"ERR Errors trying to SHUTDOWN. Check logs."[..]));
    // Writes waited for the end.
    assert!(!ask(&mut going, &["SET", "k", "v"]).is_error());
    signal(server.process_id(), "TERM").expect("it is sent");
    insist(&mut other, &["SHUTDOWN", "ABORT"]);
    insist(&mut going, &["SET", "k", "w"]);
    assert!(ask(&mut other, &["SHUTDOWN", "ABORT"]).is_error(), "it is over");
    assert!(!server.directory().join("dump.rdb").exists());
    ask(&mut other, &["CONFIG", "SET", "rdb-key-save-delay", "0"]);
    drop((going, other));
    assert!(server.stop().expect("it stops").success());
}

/// A server whose last save takes long, and a client of it.
fn slow_to_save() -> (Server, Client) {
    let server = start(&["--save", "3600 1000000"]);
    let mut client = server.client();
    ask(&mut client, &["DEBUG", "POPULATE", "50"]);
    ask(&mut client, &["CONFIG", "SET", "rdb-key-save-delay", "1000000"]);
    (server, client)
}

/// Waits until the log has a line so often.
fn wait_for_lines(server: &Server, line: &str, count: usize) {
    let what = format!("{count} times {line:?}");
    eventually(&what, || server.log().matches(line).count() >= count);
}

#[test]
fn an_abort_that_meets_a_signal_on_its_way_leaves_no_shutdown() {
    const ROUNDS: usize = 100;
    let (server, mut client) = slow_to_save();
    for _ in 0..ROUNDS {
        std::thread::scope(|scope| {
            scope.spawn(|| signal(server.process_id(), "TERM").expect("it is sent"));
            let deadline = Instant::now() + harness::client::patience();
            // Without a rest, so that some meet a signal that was not handled yet.
            while ask(&mut client, &["SHUTDOWN", "ABORT"]).is_error() {
                assert!(Instant::now() < deadline, "the signal is lost: {}", server.log());
            }
        });
        // A shutdown that goes on all the same would hold it back.
        assert!(!ask(&mut client, &["SET", "k", "v"]).is_error());
        assert!(ask(&mut client, &["SHUTDOWN", "ABORT"]).is_error(), "it is over");
    }
    ask(&mut client, &["CONFIG", "SET", "rdb-key-save-delay", "0"]);
    drop(client);
    assert!(server.stop().expect("it stops").success());
}

#[test]
fn a_signal_counts_from_the_instant_an_abort_is_answered() {
    const ROUNDS: usize = 50;
    let (server, mut client) = slow_to_save();
    for round in 1..=ROUNDS {
        // The save of the round before is still ending.
        signal(server.process_id(), "TERM").expect("it is sent");
        wait_for_lines(&server, "Saving the final RDB snapshot before exiting.", round);
        assert!(!ask(&mut client, &["SHUTDOWN", "ABORT"]).is_error());
    }
    ask(&mut client, &["CONFIG", "SET", "rdb-key-save-delay", "0"]);
    drop(client);
    assert!(server.stop().expect("it stops").success());
}

/// Which pause is in force, by INFO.
fn paused(client: &mut Client) -> [String; 2] {
    fields(client, ["paused_reason", "paused_actions"])
}

#[test]
fn a_shutdown_that_is_taken_back_leaves_the_pause_of_clients_as_they_want_it() {
    let by_client = ["client_pause", "write"];
    let by_shutdown = ["shutdown_in_progress", "write"];
    let (server, mut client) = slow_to_save();
    let mut writer = server.client();
    let begin = |client: &mut Client| {
        signal(server.process_id(), "TERM").expect("it is sent");
        eventually("a last save", || paused(client) == by_shutdown);
    };
    let abort = |client: &mut Client, then: [&str; 2]| {
        assert!(!ask(client, &["SHUTDOWN", "ABORT"]).is_error());
        eventually("no save", || paused(client) != by_shutdown);
        assert_eq!(paused(client), then);
    };

    // One that is set meanwhile stays.
    begin(&mut client);
    writer.send(&["SET", "k", "v"]).expect("it is sent");
    eventually("it waits", || field(&mut client, "blocked_clients") == "1");
    ask(&mut client, &["CLIENT", "PAUSE", "1000000", "WRITE"]);
    abort(&mut client, by_client);
    eventually("it waits", || field(&mut client, "blocked_clients") == "1");

    // One that was there before stays.
    begin(&mut client);
    abort(&mut client, by_client);

    // One that is ended meanwhile is gone, and until then the snapshot is the last word.
    begin(&mut client);
    ask(&mut client, &["CLIENT", "UNPAUSE"]);
    eventually("it waits", || field(&mut client, "blocked_clients") == "1");
    assert_eq!(ask(&mut client, &["EXISTS", "k"]).integer(), Some(0));
    abort(&mut client, ["none", "none"]);
    assert!(!writer.reply().expect("a reply").is_error());

    // One of everything that ends meanwhile lets go what does not write.
    begin(&mut client);
    ask(&mut client, &["CLIENT", "PAUSE", "50", "ALL"]);
    assert_eq!(paused(&mut client), by_shutdown);
    abort(&mut client, ["none", "none"]);
    ask(&mut client, &["CONFIG", "SET", "rdb-key-save-delay", "0"]);
    drop((client, writer));
    assert!(server.stop().expect("it stops").success());
}

#[test]
fn a_second_signal_saves_where_the_first_could_not() {
    let server = start(&["--save", "3600 1000000"]);
    let mut client = server.client();
    let target = server.directory().join("dump.rdb");
    std::fs::create_dir(&target).expect("a folder, which no file replaces");
    signal(server.process_id(), "TERM").expect("it is sent");
    wait_for_lines(&server, "Error trying to save the DB, can't exit.", 1);
    assert!(ask(&mut client, &["SHUTDOWN", "ABORT"]).is_error(), "it is over");
    assert!(!ask(&mut client, &["SET", "k", "v"]).is_error());
    // The second signal would end it without a snapshot, too, but it tries.
    std::fs::remove_dir(&target).expect("it is empty");
    drop(client);
    signal(server.process_id(), "TERM").expect("it is sent");
    eventually("the snapshot", || target.is_file());
    assert!(server.stop().expect("it stops").success());
}

#[test]
fn restore_is_logged_as_valkey_does() {
    let server = start(&["--appendonly", "yes", "--appendfsync", "always"]);
    let mut client = server.client();
    ask(&mut client, &["SET", "k", "v"]);
    let payload = ask(&mut client, &["DUMP", "k"]).text().expect("a payload").to_vec();
    let mut restore = |words: &str| {
        let mut words: Vec<&[u8]> = words.split(' ').map(str::as_bytes).collect();
        words.insert(3, &payload);
        assert!(!client.command(&words).expect("a reply").is_error(), "{words:?}");
    };
    restore("restore a 0");
    restore("Restore b 100000");
    restore("RESTORE b 200000 replace IDLETIME 5");
    restore("RESTORE c 99999999999999 absttl");
    restore("RESTORE c 1 REPLACE ABSTTL");
    ask(&mut client, &["DEBUG", "SET-ACTIVE-EXPIRE", "0"]);
    ask(&mut client, &["PSETEX", "e", "1", "v"]);
    // Its time is over, and nothing has looked at it.
    let set_at = clock(&mut client);
    eventually("it expires", || clock(&mut client) > set_at + 2000);
    let mut words: Vec<&[u8]> = vec![b"RESTORE", b"e", b"0"];
    words.push(&payload);
    assert!(!client.command(&words).expect("a reply").is_error());
    let file = server.directory().join("appendonlydir/appendonly.aof.1.incr.aof");
    let log = std::fs::read(file).expect("the log");
    let lines: Vec<String> = log
        .split(|&byte| byte == b'\n')
        .map(|line| String::from_utf8_lossy(line).trim_end().to_owned())
        .filter(|line| !line.starts_with(['$', '*', '#']))
        .map(
            |line| {
                if line.parse::<i64>().is_ok_and(|n| n > 1 << 40) { "TIME".into() } else { line }
            },
        )
        .collect();
    let text = lines.join(" ");
    let payload = String::from_utf8_lossy(&payload).into_owned();
    let wanted = [
        "SELECT 0 SET k v",
        "restore a 0 PAYLOAD",
        "Restore b TIME PAYLOAD ABSTTL",
        "RESTORE b TIME PAYLOAD replace IDLETIME 5 ABSTTL",
        "RESTORE c TIME PAYLOAD absttl",
        "UNLINK c",
        "SET e v PXAT TIME",
        "MULTI UNLINK e RESTORE e 0 PAYLOAD EXEC",
    ];
    assert_eq!(text.replace(&payload, "PAYLOAD").trim(), wanted.join(" "));
}

#[test]
fn what_follows_appendonly_no_is_not_in_the_log() {
    const ROUNDS: usize = 10;
    let arguments = ["--appendonly", "yes", "--save", "", "--aof-disable-auto-gc", "yes"];
    let server = start(&arguments);
    let mut client = server.client();
    let log_of = |round: usize| {
        let name = format!("appendonlydir/appendonly.aof.{}.incr.aof", round + 1);
        let bytes = std::fs::read(server.directory().join(name)).expect("it is kept");
        String::from_utf8(bytes).expect("it is text")
    };
    for round in 0..ROUNDS {
        ask(&mut client, &["SET", "before", &round.to_string()]);
        // In one turn with what follows it, so that the stop of the log comes too late; and in
        // a transaction, which does not wait for the log's end.
        client.send(&["MULTI"]).expect("it is sent");
        client.send(&["CONFIG", "SET", "appendonly", "no"]).expect("it is sent");
        client.send(&["EXEC"]).expect("it is sent");
        for i in 0..200 {
            client.send(&["SET", "after", &i.to_string()]).expect("it is sent");
        }
        for _ in 0..3 + 200 {
            assert!(!client.reply().expect("a reply").is_error());
        }
        ask(&mut client, &["CONFIG", "SET", "appendonly", "yes"]);
        let is_done = || server.log().matches("rewrite finished").count() > round;
        eventually("the log begins", is_done);
        let log = log_of(round);
        assert!(log.contains("before"), "round {round}: {log}");
        assert!(!log.contains("after"), "round {round}: {log}");
    }
}

#[test]
fn appendonly_no_is_answered_when_the_log_is_complete_and_closed() {
    for policy in ["always", "everysec", "no"] {
        let server = start(&["--appendonly", "yes", "--appendfsync", policy, "--save", ""]);
        let mut client = server.client();
        ask(&mut client, &["SET", "first", "v"]);
        // What is not needed any more is ended and gone by then, too: four seconds' work.
        ask(&mut client, &["DEBUG", "POPULATE", "200"]);
        ask(&mut client, &["CONFIG", "SET", "rdb-key-save-delay", "20000"]);
        ask(&mut client, &["BGREWRITEAOF"]);
        eventually("a rewrite", || field(&mut client, "aof_rewrite_in_progress") == "1");
        // From now on each write to the file takes so many microseconds.
        ask(&mut client, &["DEBUG", "AOF-FLUSH-SLEEP", "100000"]);
        ask(&mut client, &["SET", "last", "v"]);
        let reply = ask(&mut client, &["CONFIG", "SET", "appendonly", "no"]);
        assert_eq!(reply, Reply::Simple(b"OK".to_vec()), "{policy}");
        let folder = server.directory().join("appendonlydir");
        assert_eq!(field(&mut client, "aof_rewrite_in_progress"), "0");
        // The second is there if the rewrite had come that far.
        let log: Vec<u8> = (1..=2)
            .filter_map(|n| std::fs::read(folder.join(format!("appendonly.aof.{n}.incr.aof"))).ok())
            .flatten()
            .collect();
        let last = b"*3\r\n$3\r\nSET\r\n$4\r\nlast\r\n$1\r\nv\r\n";
        assert!(log.ends_with(last), "{policy}: {}", String::from_utf8_lossy(&log));
        let descriptors = format!("/proc/{}/fd", server.process_id());
        for descriptor in std::fs::read_dir(descriptors).expect("it runs") {
            // Connections may come and go.
            let file = std::fs::read_link(descriptor.expect("an entry").path());
            assert!(!file.is_ok_and(|file| file.starts_with(&folder)), "{policy}");
        }
    }
}

#[test]
fn a_rewrite_that_has_hardly_begun_is_over_with_the_log() {
    const ROUNDS: usize = 30;
    let server = start(&["--appendonly", "yes", "--save", ""]);
    let mut client = server.client();
    // Were it not ended, it would take a second.
    ask(&mut client, &["DEBUG", "POPULATE", "50"]);
    for round in 0..ROUNDS {
        ask(&mut client, &["CONFIG", "SET", "rdb-key-save-delay", "20000"]);
        client.send(&["BGREWRITEAOF"]).expect("it is sent");
        client.send(&["CONFIG", "SET", "appendonly", "no"]).expect("it is sent");
        for _ in 0..2 {
            assert!(!client.reply().expect("a reply").is_error());
        }
        assert_eq!(field(&mut client, "aof_rewrite_in_progress"), "0", "round {round}");
        ask(&mut client, &["CONFIG", "SET", "rdb-key-save-delay", "0"]);
        ask(&mut client, &["CONFIG", "SET", "appendonly", "yes"]);
        until_not_rewriting(&mut client);
    }
}

#[test]
fn rewrites_are_counted_from_the_last_reset_on() {
    let server = start(&["--appendonly", "yes", "--auto-aof-rewrite-percentage", "0"]);
    let mut client = server.client();
    for before_reset in ["1", "2"] {
        insist(&mut client, &["BGREWRITEAOF"]);
        until_not_rewriting(&mut client);
        assert_eq!(field(&mut client, "aof_rewrites"), before_reset);
    }
    insist(&mut client, &["CONFIG", "RESETSTAT"]);
    assert_eq!(field(&mut client, "aof_rewrites"), "0");
    insist(&mut client, &["BGREWRITEAOF"]);
    until_not_rewriting(&mut client);
    assert_eq!(field(&mut client, "aof_rewrites"), "1");
}

#[test]
fn what_a_save_has_to_write_is_known_with_its_reply() {
    const ROUNDS: usize = 30;
    let server = start(&["--save", ""]);
    let mut client = server.client();
    ask(&mut client, &["DEBUG", "POPULATE", "200"]);
    for round in 0..ROUNDS {
        ask(&mut client, &["CONFIG", "SET", "rdb-key-save-delay", "20000"]);
        client.send(&["BGSAVE"]).expect("it is sent");
        client.send(&["INFO", "persistence"]).expect("it is sent");
        assert!(!client.reply().expect("a reply").is_error());
        let info = client.reply().expect("a reply");
        assert_eq!(find(&info, "current_save_keys_total").as_deref(), Some("200"), "round {round}");
        ask(&mut client, &["CONFIG", "SET", "rdb-key-save-delay", "0"]);
        eventually("saved", || field(&mut client, "rdb_bgsave_in_progress") == "0");
    }
}

#[test]
fn a_save_that_had_to_wait_does_not_begin_while_the_log_is_loaded() {
    let server = start(&["--appendonly", "yes", "--save", ""]);
    let connect = || server.client();
    let [mut first, mut second, mut loading, mut other] = [0; 4].map(|_| connect());
    ask(&mut other, &["DEBUG", "POPULATE", "100"]);
    insist(&mut other, &["BGREWRITEAOF"]);
    until_not_rewriting(&mut other);
    // Minutes' work both, unless the delay is taken back.
    ask(&mut other, &["CONFIG", "SET", "rdb-key-save-delay", "1000000"]);
    ask(&mut other, &["CONFIG", "SET", "key-load-delay", "1000000"]);
    first.send(&["SAVE"]).expect("it is sent");
    eventually("the first saves", || field(&mut other, "current_save_keys_total") == "100");
    second.send(&["SAVE"]).expect("it is sent");
    eventually("the second waits", || {
        let calls = find(&ask(&mut other, &["INFO", "commandstats"]), "cmdstat_save");
        calls.is_some_and(|calls| calls.starts_with("calls=2,"))
    });
    loading.send(&["DEBUG", "LOADAOF"]).expect("it is sent");
    eventually("some keys are there", || {
        let keys = find(&ask(&mut other, &["INFO", "keyspace"]), "db0");
        keys.is_some_and(|keys| !keys.starts_with("keys=100,"))
    });
    ask(&mut other, &["CONFIG", "SET", "rdb-key-save-delay", "0"]);
    assert_eq!(first.reply().expect("a reply"), Reply::Simple(b"OK".to_vec()));
    // Time for the second, if it did not wait for the load.
    for _ in 0..100 {
        assert_eq!(field(&mut other, "loading"), "1");
    }
    ask(&mut other, &["CONFIG", "SET", "key-load-delay", "0"]);
    for client in [&mut loading, &mut second] {
        assert_eq!(client.reply().expect("a reply"), Reply::Simple(b"OK".to_vec()));
    }
    ask(&mut other, &["DEBUG", "RELOAD", "NOSAVE"]);
    assert_eq!(ask(&mut other, &["DBSIZE"]), Reply::Integer(100));
}

#[test]
fn keys_that_had_expired_are_not_forgotten_by_the_log_with_debug_reload() {
    let server = start(&["--appendonly", "yes", "--save", ""]);
    let mut client = server.client();
    ask(&mut client, &["DEBUG", "SET-ACTIVE-EXPIRE", "0"]);
    for key in ["list", "seen"] {
        ask(&mut client, &["RPUSH", key, "old"]);
        ask(&mut client, &["PEXPIRE", key, "1"]);
    }
    // The other one is not looked at, so it is not deleted.
    eventually("expired", || ask(&mut client, &["EXISTS", "seen"]) == Reply::Integer(0));
    for request in [&["DEBUG", "RELOAD"][..], &["RPUSH", "list", "new"], &["DEBUG", "LOADAOF"]] {
        assert!(!ask(&mut client, request).is_error(), "{request:?}");
    }
    let list = ask(&mut client, &["LRANGE", "list", "0", "-1"]);
    assert_eq!(list, Reply::Array(vec![Reply::Bulk(b"new".to_vec())]));
}

#[test]
fn a_save_in_the_background_goes_where_files_went_when_it_began() {
    let server = start(&["--enable-protected-configs", "yes"]);
    let mut client = server.client();
    let other = server.directory().join("other");
    std::fs::create_dir(&other).expect("it can be made");
    let set = |client: &mut Client, option: &str, value: &str| {
        assert_eq!(ask(client, &["CONFIG", "SET", option, value]).text(), Some(&b"OK"[..]));
    };
    ask(&mut client, &["DEBUG", "POPULATE", "50"]);
    set(&mut client, "rdb-key-save-delay", "20000");
    for (option, value) in [("dbfilename", "later.rdb"), ("dir", other.to_str().expect("ASCII"))] {
        let file = server.directory().join(if option == "dir" { "later.rdb" } else { "dump.rdb" });
        client.send(&["BGSAVE"]).expect("it is sent");
        client.send(&["CONFIG", "SET", option, value]).expect("it is sent");
        assert!(!client.reply().expect("it begins").is_error());
        assert!(!client.reply().expect("it is set").is_error());
        set(&mut client, "rdb-key-save-delay", "0");
        eventually("the save ends", || field(&mut client, "rdb_bgsave_in_progress") == "0");
        assert_eq!(field(&mut client, "rdb_last_bgsave_status"), "ok", "{}", server.log());
        assert!(file.exists(), "{option}: {}", server.log());
    }
    let left: Vec<_> = std::fs::read_dir(server.directory()).expect("it can be read").collect();
    let is_left = |name: &str| left.iter().flatten().any(|e| e.file_name() == *name);
    assert!(!is_left(&format!("temp-{}.rdb", server.process_id())), "{left:?}");
    assert_eq!(std::fs::read_dir(&other).expect("it can be read").count(), 0);
}

#[test]
fn keys_whose_time_has_come_and_keys_evicted_are_no_changes_to_save() {
    let server = start(&[]);
    let mut client = server.client();
    let changes = |client: &mut Client| field(client, "rdb_changes_since_last_save");
    ask(&mut client, &["DEBUG", "SET-ACTIVE-EXPIRE", "0"]);
    for key in ["a", "b", "c"] {
        assert!(!ask(&mut client, &["SET", key, "v", "PX", "1"]).is_error());
    }
    eventually("a time has come", || ask(&mut client, &["EXISTS", "a", "b"]).integer() == Some(0));
    assert_eq!(changes(&mut client), "3");
    eventually("c's time has come", || ask(&mut client, &["TTL", "c"]).integer() == Some(-2));
    // Over a key whose time has come: one change.
    assert!(!ask(&mut client, &["SET", "c", "v"]).is_error());
    assert_eq!(changes(&mut client), "4");
    for key in ["d", "e"] {
        assert!(!ask(&mut client, &["SET", key, "v", "PX", "1"]).is_error());
    }
    ask(&mut client, &["DEBUG", "SET-ACTIVE-EXPIRE", "1"]);
    eventually("they are gone", || ask(&mut client, &["DBSIZE"]).integer() == Some(1));
    assert_eq!(changes(&mut client), "6");
    ask(&mut client, &["CONFIG", "SET", "maxmemory-policy", "allkeys-lru", "maxmemory", "1"]);
    eventually("it is evicted", || ask(&mut client, &["DBSIZE"]).integer() == Some(0));
    assert_eq!(field(&mut client, "evicted_keys"), "1");
    assert_eq!(changes(&mut client), "6");
}

#[test]
fn each_element_that_is_removed_is_a_change_to_save() {
    let server = start(&[]);
    let mut client = server.client();
    for (command, changes) in [
        ("HSET h a 1 b 2 c 3", "3"),
        ("HDEL h a b none", "5"),
        ("HDEL h none", "5"),
        ("SADD s a b c d", "9"),
        ("SPOP s", "10"),
        ("SPOP s 2", "12"),
        ("SPOP s 5", "13"),
        ("SADD s a b c", "16"),
        ("SREM s a b c", "19"),
        ("ZADD z 1 a 2 b", "21"),
        ("ZREM z a b", "23"),
        ("RPUSH l a a b", "26"),
        ("LREM l 0 a", "28"),
        ("LPOP l", "29"),
    ] {
        ok(&mut client, command);
        assert_eq!(field(&mut client, "rdb_changes_since_last_save"), changes, "{command}");
    }
}

#[test]
fn a_reload_that_cannot_save_is_answered_and_nothing_is_gone() {
    let server = start(&["--enable-protected-configs", "yes", "--dbfilename", "taken"]);
    let mut client = server.client();
    assert!(!ask(&mut client, &["SET", "k", "v"]).is_error());
    // No file can be made under the name that it has until it is complete.
    let temporary = format!("temp-{}.rdb", server.process_id());
    std::fs::create_dir(server.directory().join(temporary)).expect("it can be made");
    assert!(ask(&mut client, &["DEBUG", "RELOAD"]).is_error());
    assert_eq!(ask(&mut client, &["GET", "k"]).text(), Some(&b"v"[..]));
}

#[test]
fn a_reload_that_has_nothing_to_load_throws_nothing_away() {
    let server = start(&[]);
    let mut client = server.client();
    ok(&mut client, "SET k v");
    let reload = "DEBUG RELOAD NOSAVE";
    for content in [None, Some("not a snapshot"), Some(""), Some("REDIS9999")] {
        if let Some(content) = content {
            std::fs::write(server.directory().join("dump.rdb"), content).expect("it is written");
        }
        assert!(ask(&mut client, reload).is_error(), "{content:?}");
        assert_eq!(ask(&mut client, "GET k").shown(), "v", "{content:?}");
    }
    ok(&mut client, "SAVE");
    ok(&mut client, "SET k w");
    ok(&mut client, reload);
    assert_eq!(ask(&mut client, "GET k").shown(), "v");
}

#[test]
fn a_log_whose_manifest_is_gone_is_not_loaded_again() {
    let server = start(&["--appendonly", "yes"]);
    let mut client = server.client();
    let manifest = server.directory().join("appendonlydir/appendonly.aof.manifest");
    insist(&mut client, &["SET", "k", "v"]);
    let text = std::fs::read(&manifest).expect("it is there");
    for left in [None, Some(&b"nonsense\n"[..])] {
        std::fs::remove_file(&manifest).expect("it is there");
        left.into_iter().for_each(|text| std::fs::write(&manifest, text).expect("there is room"));
        let lines = server.log().lines().count();
        let reply = client.command(&["DEBUG", "LOADAOF"]).expect("a reply");
        assert!(reply.is_error(), "{reply:?}");
        let name = "appendonly.aof.manifest";
        eventually(name, || server.log().lines().skip(lines).any(|line| line.contains(name)));
        let reply = client.command(&["GET", "k"]).expect("a reply");
        assert_eq!(reply.text(), Some(&b"v"[..]), "nothing is gone");
        std::fs::write(&manifest, &text).expect("there is room");
    }
    insist(&mut client, &["DEBUG", "LOADAOF"]);
    let reply = client.command(&["GET", "k"]).expect("a reply");
    assert_eq!(reply.text(), Some(&b"v"[..]));
}

#[test]
fn a_log_that_is_switched_off_leaves_nothing_of_its_beginning() {
    let server = start(&["--save", ""]);
    let temporary = server.directory().join("appendonlydir/temp-appendonly.aof.incr");
    std::thread::scope(|scope| {
        let switching = scope.spawn(|| {
            let mut client = server.client();
            for _ in 0..20 {
                for _ in 0..20 {
                    ok(&mut client, "CONFIG SET appendonly yes");
                    ok(&mut client, "CONFIG SET appendonly no");
                }
                eventually("it is gone", || !temporary.exists());
            }
        });
        let (mut client, mut rng) = (server.client(), Rng::new(1));
        ok(&mut client, "SET k v");
        while !switching.is_finished() {
            // Some of them are refused beside others.
            ask(&mut client, *rng.pick(&["BGSAVE", "SAVE", "BGREWRITEAOF", "BGSAVE CANCEL"]));
        }
    });
}

#[test]
fn a_server_does_not_start_where_what_it_is_to_save_cannot_be_written() {
    // Of the kernel: not even root makes files there.
    let folder = "/sys/kernel";
    let program = Program::under_test();
    for saving in [["--save", "60 1"], ["--appendonly", "yes"]] {
        let options = Options::arguments(&[&["--dir", folder], &saving[..]].concat());
        let Err(error) = Server::start(&program, options) else { panic!("{saving:?}: it started") };
        let text = error.to_string();
        assert!(text.contains(&format!("Can't write in '{folder}'")), "{saving:?}: {text}");
        assert!(text.contains("--save '' --appendonly no"), "{saving:?}: {text}");
    }
    let server = start(&["--dir", folder]);
    ok(&mut server.client(), &["SET", "a", "b"]);
}

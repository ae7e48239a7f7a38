//! Fields of hashes that expire: without a read, and through files of our own and of others.

use harness::client::{Client, ask, ok};
use harness::info::{field, number};
use harness::reply::Reply;
use harness::server::{Options, Program, Server};
use harness::wait::{eventually, until_not_rewriting};

fn start(arguments: &[&str]) -> Server {
    Server::start(&Program::under_test(), Options::arguments(arguments)).expect("it starts")
}

fn fill(client: &mut Client) {
    ok(client, &["HSET", "small", "a", "1", "b", "2", "never", "3"]);
    ok(client, &["HPEXPIREAT", "small", "33177117420123", "FIELDS", "2", "a", "b"]);
    for number in 0..2000 {
        ok(client, &["HSET", "large", &format!("f{number}"), &"v".repeat(number % 300)]);
    }
    ok(client, &["HPEXPIREAT", "large", "33177117420456", "FIELDS", "3", "f1", "f77", "f1999"]);
    ok(client, &["HSET", "short", "a", "1", "b", "2"]);
    ok(client, &["HPEXPIRE", "short", "200", "FIELDS", "1", "a"]);
}

/// Everything but the hash one of whose fields goes.
fn times(client: &mut Client) -> Vec<Reply> {
    vec![
        ask(client, &["HPEXPIRETIME", "small", "FIELDS", "4", "a", "b", "never", "none"]),
        ask(client, &["HPEXPIRETIME", "large", "FIELDS", "4", "f1", "f77", "f1999", "f2"]),
        ask(client, &["HLEN", "large"]),
        ask(client, &["HGET", "large", "f1999"]),
    ]
}

fn until_short_is_one(client: &mut Client) {
    eventually("the field vanishes", || ask(client, &["HLEN", "short"]) == Reply::Integer(1));
    assert_eq!(ask(client, &["HEXISTS", "short", "b"]), Reply::Integer(1));
}

#[test]
fn fields_vanish_on_an_idle_server_and_the_last_takes_the_key_with_it() {
    let server = start(&[]);
    let mut client = server.client();
    for key in 0..50 {
        let key = format!("k{key}");
        ok(&mut client, &["HSET", &key, "a", "1", "b", "2"]);
        ok(&mut client, &["HPEXPIRE", &key, "50", "FIELDS", "2", "a", "b"]);
    }
    // Looks at no hash.
    eventually("every key goes", || ask(&mut client, &["DBSIZE"]) == Reply::Integer(0));
    assert_eq!(number(&mut client, "expired_fields"), 100);
    assert_eq!(number(&mut client, "expired_keys"), 0);
}

#[test]
fn the_stripe_forgets_hashes_that_go_or_have_no_such_fields_any_more() {
    let server = start(&[]);
    let mut client = server.client();
    let listed = |client: &mut Client| {
        let line = field(client, "db0");
        line.rsplit_once("keys_with_volatile_items=").expect("it is the last").1.to_owned()
    };
    for key in ["deleted", "renamed", "persisted", "overwritten", "emptied", "kept"] {
        ok(&mut client, &["HSETEX", key, "EX", "100", "FIELDS", "1", "a", "1"]);
        ok(&mut client, &["HSET", key, "b", "1"]);
    }
    assert_eq!(listed(&mut client), "6");
    ok(&mut client, &["RENAME", "renamed", "other"]);
    ok(&mut client, &["COPY", "kept", "copy"]);
    assert_eq!(listed(&mut client), "7");
    ok(&mut client, &["DEL", "deleted"]);
    ok(&mut client, &["HPERSIST", "persisted", "FIELDS", "1", "a"]);
    ok(&mut client, &["SET", "overwritten", "v"]);
    ok(&mut client, &["HDEL", "emptied", "a"]);
    assert_eq!(listed(&mut client), "3");
    ok(&mut client, &["HSET", "kept", "a", "2"]);
    assert_eq!(listed(&mut client), "2");
}

#[test]
fn an_rdb_file_keeps_the_times() {
    let mut server = start(&["--save", "3600 1000000"]);
    let mut client = server.client();
    fill(&mut client);
    let before = times(&mut client);
    ok(&mut client, &["SAVE"]);
    drop(client);
    server.restart().expect("it starts again");
    let mut client = server.client();
    assert_eq!(times(&mut client), before);
    until_short_is_one(&mut client);
    ok(&mut client, &["DEBUG", "RELOAD"]);
    assert_eq!(times(&mut client), before);
}

#[test]
fn a_log_keeps_the_times_with_and_without_a_preamble() {
    for preamble in ["yes", "no"] {
        let arguments = ["--appendonly", "yes", "--aof-use-rdb-preamble", preamble];
        let mut server = start(&arguments);
        let mut client = server.client();
        fill(&mut client);
        until_short_is_one(&mut client);
        let before = times(&mut client);
        ok(&mut client, &["DEBUG", "LOADAOF"]);
        assert_eq!(times(&mut client), before, "out of the log");
        assert_eq!(ask(&mut client, &["HLEN", "short"]), Reply::Integer(1));
        ok(&mut client, &["BGREWRITEAOF"]);
        until_not_rewriting(&mut client);
        drop(client);
        server.restart().expect("it starts again");
        let mut client = server.client();
        assert_eq!(times(&mut client), before, "out of a base, preamble {preamble}");
        assert_eq!(ask(&mut client, &["HLEN", "short"]), Reply::Integer(1));
    }
}

/// What a clock decided on the way is in the log as what it came to.
#[test]
fn what_found_expired_fields_is_repeated_to_the_same_end() {
    let server = start(&["--appendonly", "yes"]);
    let mut client = server.client();
    ok(&mut client, &["DEBUG", "SET-ACTIVE-EXPIRE", "0"]);
    let fields = ["a", "b", "c", "d", "e"];
    for name in fields {
        ok(&mut client, &["HSET", "h", name, "10"]);
    }
    ok(&mut client, &["HPEXPIRE", "h", "1", "FIELDS", "5", "a", "b", "c", "d", "e"]);
    eventually("they expire", || ask(&mut client, &["HGET", "h", "e"]) == Reply::Nil);
    ok(&mut client, &["HINCRBY", "h", "a", "1"]);
    ok(&mut client, &["HINCRBYFLOAT", "h", "b", "1.5"]);
    ok(&mut client, &["HSETNX", "h", "c", "7"]);
    ok(&mut client, &["HSETEX", "h", "KEEPTTL", "FIELDS", "1", "d", "8"]);
    ok(&mut client, &["HSETEX", "h", "FNX", "EX", "10000", "FIELDS", "1", "e", "9"]);
    ok(&mut client, &["HINCRBYFLOAT", "h", "e", "0.5"]);
    let state = |client: &mut Client| {
        let request = ["HPEXPIRETIME", "h", "FIELDS", "5", "a", "b", "c", "d", "e"];
        (ask(client, &["HMGET", "h", "a", "b", "c", "d", "e"]), ask(client, &request))
    };
    let before = state(&mut client);
    ok(&mut client, &["DEBUG", "LOADAOF"]);
    assert_eq!(state(&mut client), before);
}

/// Valkey 9 loads what is saved here, and the reverse.
#[test]
fn files_and_payloads_are_those_of_the_reference() {
    let Some(reference) = Program::reference_or_skip() else { return };
    let ours = start(&[]);
    let theirs = Server::start(&reference, Options::arguments(&["--save", ""])).expect("it starts");
    let [mut own, mut other] = [&ours, &theirs].map(Server::client);
    fill(&mut own);
    for (from, to) in [(0, 1), (1, 0)] {
        let clients = [&mut own, &mut other];
        for key in ["small", "large"] {
            let reply = ask(clients[from], &["DUMP", key]);
            let payload = reply.text().expect("there is a payload");
            let request = [b"RESTORE", key.as_bytes(), b"0", payload, b"REPLACE"];
            let restored = clients[to].command(&request).expect("it answers");
            assert!(!restored.is_error(), "{key}: {restored:?}");
        }
        assert_eq!(times(&mut other), times(&mut own));
    }
}

/// The file of a server whose hashes have no such fields is one that older servers load.
#[test]
fn only_a_file_with_such_fields_needs_a_new_version() {
    let server = start(&["--save", "3600 1000000"]);
    let mut client = server.client();
    let header = |client: &mut Client| {
        ok(client, &["SAVE"]);
        let file = std::fs::read(server.directory().join("dump.rdb")).expect("it was written");
        file[..9].to_vec()
    };
    ok(&mut client, &["HSET", "h", "a", "1", "b", "2"]);
    assert_eq!(header(&mut client), b"REDIS0011");
    ok(&mut client, &["HEXPIRE", "h", "100", "FIELDS", "1", "a"]);
    assert_eq!(header(&mut client), b"VALKEY080");
    let greatest = i64::MAX.to_string();
    ok(&mut client, &["HPEXPIREAT", "h", &greatest, "FIELDS", "1", "a"]);
    assert_eq!(header(&mut client), b"VALKEY080");
    ok(&mut client, &["HPERSIST", "h", "FIELDS", "1", "a"]);
    assert_eq!(header(&mut client), b"REDIS0011");
}

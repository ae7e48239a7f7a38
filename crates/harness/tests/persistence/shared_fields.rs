//! Hashes with the same field names keep these names once, and no client, file, payload or replica
//! tells.

use harness::client::{Client, ask, ok};
use harness::info::field;
use harness::reply::Reply;
use harness::server::{Options, Program, Server};
use harness::wait::{eventually, eventually_within, until_not_rewriting};
use std::time::Duration;

const HASHES: usize = 300;

fn start(arguments: &[&str]) -> Server {
    let options = Options::arguments(&[&["--save", ""], arguments].concat());
    Server::start(&Program::under_test(), options).expect("it starts")
}

fn shown(client: &mut Client, command: &str) -> String {
    ask(client, command).shown()
}

/// All texts and numbers of a reply.
fn words(reply: &Reply) -> Vec<String> {
    match reply.elements() {
        Some(elements) => elements.iter().flat_map(words).collect(),
        None => vec![reply.shown()],
    }
}

fn number(client: &mut Client, name: &str) -> usize {
    field(client, name).parse().expect("a number")
}

/// Loads the data anew until nearly all hashes share their names: each thread meets some before it
/// shares them.
fn share(client: &mut Client) {
    eventually("hashes share their names", || {
        ok(client, "DEBUG RELOAD");
        number(client, "shared_field_hashes") > HASHES - 50
    });
    assert!(number(client, "shared_field_lists") >= 2);
    assert!(number(client, "shared_field_bytes") >= 50);
}

/// Waits for the thread that takes hashes into their entries, which leaves the processor to others.
fn eventually_by_the_way(what: &str, is_so: impl FnMut() -> bool) {
    eventually_within(Duration::from_secs(300), what, is_so);
}

/// Records of two kinds, and some of their own.
fn fill(client: &mut Client) {
    for key in 0..HASHES {
        let request = if key % 3 == 0 {
            format!("HSET order:{key} number {key} customer c{key} total 9{key}.50 state open 17 x")
        } else {
            format!("HSET user:{key} name n{key} city town{key} age {} visits 0", key % 90)
        };
        ok(client, &request);
    }
    for key in 0..20 {
        ok(client, &format!("HSET own:{key} field-of-{key} 1 other-of-{key} 2"));
    }
}

#[test]
fn names_that_are_kept_once_are_seen_by_no_client() {
    let server = start(&[]);
    let mut client = server.client();
    fill(&mut client);
    let (digest, payload) =
        (shown(&mut client, "DEBUG DIGEST"), shown(&mut client, "DUMP user:202"));
    share(&mut client);
    assert_eq!(shown(&mut client, "DEBUG DIGEST"), digest);
    assert_eq!(shown(&mut client, "DUMP user:202"), payload);
    for (request, reply) in [
        ("OBJECT ENCODING user:202", "listpack"),
        ("HGET user:202 city", "town202"),
        ("HGET user:202 town", ""),
        ("HGET order:201 17", "x"),
        ("HSTRLEN user:202 name", "4"),
        ("HEXISTS user:202 visits", "1"),
        ("HLEN order:201", "5"),
        ("HSET user:202 city Rome", "0"),
        ("HSET user:203 email e@x", "1"),
        ("HINCRBY user:205 visits 5", "5"),
        ("HDEL user:206 age", "1"),
        ("HSETNX user:208 name no", "0"),
        ("COPY user:202 order:1000", "1"),
        ("RENAME user:202 user:1001", "OK"),
        ("MOVE user:209 3", "1"),
        ("EXPIRE user:211 10000", "1"),
        ("HLEN user:206", "3"),
    ] {
        assert_eq!(shown(&mut client, request), reply, "{request}");
    }
    let of_user = ["name", "n202", "city", "Rome", "age", "22", "visits", "0"];
    assert_eq!(words(&ask(&mut client, "HGETALL user:1001")), of_user);
    assert_eq!(words(&ask(&mut client, "HGETALL order:1000")), of_user);
    let of_order =
        ["number", "201", "customer", "c201", "total", "9201.50", "state", "open", "17", "x"];
    assert_eq!(words(&ask(&mut client, "HGETALL order:201")), of_order);
    assert_eq!(words(&ask(&mut client, "HSCAN order:201 0"))[1..], of_order);
    let mut fields = words(&ask(&mut client, "HRANDFIELD order:201 5"));
    fields.sort();
    assert_eq!(fields, ["17", "customer", "number", "state", "total"]);
    assert_eq!(words(&ask(&mut client, "HMGET order:201 state 17")), ["open", "x"]);
    assert_eq!(words(&ask(&mut client, "HVALS user:206")), ["n206", "town206", "0"]);
    assert!(!ask(&mut client, "HEXPIRE user:212 1000 FIELDS 1 name").is_error());
    assert_eq!(shown(&mut client, "OBJECT ENCODING user:212"), "hashtable");
    // What was changed shares its names again.
    let digest = shown(&mut client, "DEBUG DIGEST");
    // Its names in its block would take 16 bytes more.
    let before = shown(&mut client, "MEMORY USAGE user:214");
    ok(&mut client, "HSET user:214 city Rome");
    ok(&mut client, "HSET user:214 city town214");
    eventually_by_the_way("the hash that was changed shares its names", || {
        shown(&mut client, "MEMORY USAGE user:214") == before
    });
    assert_eq!(shown(&mut client, "DEBUG DIGEST"), digest);
    // All is given up.
    ok(&mut client, "FLUSHALL");
    eventually_by_the_way("no lists", || number(&mut client, "shared_field_lists") == 0);
    assert_eq!(number(&mut client, "shared_field_hashes"), 0);
    assert_eq!(number(&mut client, "shared_field_bytes"), 0);
}

#[test]
fn files_payloads_and_replicas_have_all_names() {
    let mut server = start(&["--appendonly", "yes"]);
    let mut client = server.client();
    fill(&mut client);
    let digest = shown(&mut client, "DEBUG DIGEST");
    share(&mut client);
    assert_eq!(shown(&mut client, "DEBUG DIGEST"), digest);

    let dump = ask(&mut client, "DUMP user:1").text().expect("a payload").to_vec();
    let restore = [&b"RESTORE"[..], b"user:1", b"0", &dump, b"REPLACE"];
    assert!(!client.command(&restore).expect("it answers").is_error());
    assert_eq!(shown(&mut client, "DEBUG DIGEST"), digest);

    ok(&mut client, "BGREWRITEAOF");
    until_not_rewriting(&mut client);
    server.restart().expect("it starts again");
    let mut client = server.client();
    assert_eq!(shown(&mut client, "DEBUG DIGEST"), digest);
    share(&mut client);

    let port = server.port().to_string();
    let replica = start(&["--replicaof", "127.0.0.1", &port]);
    let mut follower = replica.client();
    eventually("the replica has all", || {
        field(&mut follower, "master_link_status") == "up"
            && shown(&mut follower, "DEBUG DIGEST") == digest
    });
    ok(&mut client, "HSET user:1 visits 9");
    let digest = shown(&mut client, "DEBUG DIGEST");
    eventually("the replica has the change", || shown(&mut follower, "DEBUG DIGEST") == digest);
}

#[test]
fn without_the_option_no_hash_shares_its_names() {
    let server = start(&["--hash-shared-fields", "no"]);
    let mut client = server.client();
    fill(&mut client);
    let digest = shown(&mut client, "DEBUG DIGEST");
    ok(&mut client, "DEBUG RELOAD");
    assert_eq!(number(&mut client, "shared_field_lists"), 0);
    let usage = |client: &mut Client| {
        ask(client, "MEMORY USAGE user:202").integer().expect("a number of bytes")
    };
    let alone = usage(&mut client);
    ok(&mut client, "CONFIG SET hash-shared-fields yes");
    share(&mut client);
    let sharing = usage(&mut client);
    assert!(sharing <= alone - 16, "{sharing} bytes instead of {alone}");
    ok(&mut client, "CONFIG SET hash-shared-fields no");
    ok(&mut client, "DEBUG RELOAD");
    eventually_by_the_way("no lists", || number(&mut client, "shared_field_lists") == 0);
    assert_eq!(shown(&mut client, "DEBUG DIGEST"), digest);
    assert_eq!(usage(&mut client), alone);
}

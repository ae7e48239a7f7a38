//! What a node says of its slots: their keys one after the other (CLUSTERSCAN), and what requests for
//! them take (SLOT-STATS).

use harness::client::{Client, ask, ok};
use harness::cluster::{Etcd, error, list, operate, text};
use harness::reply::{Protocol, Reply};
use harness::server::Server;
use harness::wait::eventually;
use std::collections::BTreeMap;

/// Two nodes, each with half of the slots.
fn halves(etcd: &Etcd) -> [Server; 2] {
    let nodes = [etcd.node(), etcd.node()];
    ok(&mut nodes[1].client(), &format!("CLUSTER MEET 127.0.0.1 {}", nodes[0].port()));
    for (node, range) in nodes.iter().zip(["0 8191", "8192 16383"]) {
        operate(&mut node.client(), &format!("CLUSTER ADDSLOTSRANGE {range}"));
    }
    eventually("both know all slots", || {
        nodes
            .iter()
            .all(|node| text(ask(&mut node.client(), "CLUSTER INFO")).contains("cluster_state:ok"))
    });
    nodes
}

/// Sends a request to the first node, and to the other one if it is told so.
fn anywhere(clients: &mut [Client; 2], request: &str) -> Reply {
    let reply = ask(&mut clients[0], request);
    match &reply {
        Reply::Error(text) if text.starts_with(b"MOVED") => ask(&mut clients[1], request),
        _ => reply,
    }
}

/// The cursor and the keys.
fn page(reply: &Reply) -> (String, Vec<String>) {
    let [cursor, keys] = list(reply) else { panic!("no page: {reply:?}") };
    (text(cursor.clone()), list(keys).iter().cloned().map(text).collect())
}

#[test]
fn all_keys_of_a_cluster_are_found_by_one_walk() {
    let etcd = Etcd::start("clusterscan");
    let nodes = halves(&etcd);
    let mut clients = [nodes[0].client(), nodes[1].client()];
    let mut expected: Vec<String> = (0..200).map(|at| format!("key:{at}")).collect();
    expected.extend((0..100).map(|at| format!("many{{5L5}}{at}")));
    for key in &expected {
        assert!(!anywhere(&mut clients, &format!("SET {key} 1")).is_error());
    }
    expected.sort();
    for options in ["", "COUNT 1", "COUNT 1000", "TYPE string"] {
        let (mut cursor, mut found) = ("0".to_owned(), Vec::new());
        loop {
            let reply = anywhere(&mut clients, format!("CLUSTERSCAN {cursor} {options}").trim());
            let (next, keys) = page(&reply);
            found.extend(keys);
            if next == "0" {
                break;
            }
            cursor = next;
        }
        found.sort();
        found.dedup();
        assert_eq!(found, expected, "{options}");
    }
    // One slot by its number, and by a pattern of its tag.
    for options in ["SLOT 2 COUNT 1000", "MATCH many{5L5}* COUNT 1000"] {
        let (cursor, keys) = page(&ask(&mut clients[0], &format!("CLUSTERSCAN 0 {options}")));
        assert_eq!((cursor.as_str(), keys.len()), ("0-{5L5}-0", 0));
        let request = format!("CLUSTERSCAN {cursor} {options}");
        let (cursor, keys) = page(&ask(&mut clients[0], &request));
        assert_eq!((cursor.as_str(), keys.len()), ("0", 100));
    }
    // What is in no slot, or in one that is over.
    let (cursor, _) = page(&ask(&mut clients[0], "CLUSTERSCAN 0 SLOT 0 MATCH {Qi}*"));
    assert_eq!(cursor, "0");
    let (cursor, _) = page(&ask(&mut clients[0], "CLUSTERSCAN 0-{Qi}-0 MATCH {06S}*"));
    assert_eq!(cursor, "0");
    let refusals = [
        ("CLUSTERSCAN invalid", "ERR Invalid cursor"),
        ("CLUSTERSCAN 0-{06S}-0 SLOT 1", "ERR Cursor slot mismatch with SLOT argument"),
        ("CLUSTERSCAN 0 SLOT 16384", "ERR Invalid or out of range slot"),
        ("CLUSTERSCAN 0 SLOT 1 SLOT 1", "ERR SLOT option can only be specified once"),
    ];
    for (request, refusal) in refusals {
        assert_eq!(error(&ask(&mut clients[0], request)), refusal, "{request}");
    }
    assert!(error(&ask(&mut clients[0], "CLUSTERSCAN 0-{6ZJ}-0")).starts_with("MOVED 16383 "));
}

/// The figures of a slot, by their names.
fn figures(client: &mut Client, slot: u16) -> BTreeMap<String, i64> {
    let reply = ask(client, &format!("CLUSTER SLOT-STATS SLOTSRANGE {slot} {slot}"));
    let of_slot = list(&list(&list(&reply)[0])[1]).to_vec();
    let pair = |pair: &[Reply]| (text(pair[0].clone()), pair[1].integer().expect("a number"));
    of_slot.chunks_exact(2).map(pair).collect()
}

#[test]
fn what_requests_take_is_counted_by_slot() {
    const SLOT: u16 = 12182;
    let etcd = Etcd::start("slot-stats");
    let node = etcd.node();
    let mut client = node.client();
    operate(&mut client, "CLUSTER ADDSLOTSRANGE 0 16383");
    eventually("the node leads", || !ask(&mut client, "SET foo 1").is_error());
    assert_eq!(figures(&mut client, SLOT).len(), 1, "nothing is counted by default");
    let by_time = "CLUSTER SLOT-STATS ORDERBY cpu-usec LIMIT 1";
    assert!(ask(&mut client, by_time).is_error());
    ok(&mut client, "CONFIG SET cluster-slot-stats-enabled yes");

    let after = |what: &str, bytes_in: i64, bytes_out: i64| {
        let found = figures(&mut node.client(), SLOT);
        let bytes = (found["network-bytes-in"], found["network-bytes-out"]);
        assert_eq!(bytes, (bytes_in, bytes_out), "{what}");
        assert!(found["cpu-usec"] >= 0, "{what}");
        ok(&mut node.client(), "CONFIG RESETSTAT");
        assert_eq!(figures(&mut node.client(), SLOT)["network-bytes-in"], 0);
    };
    ok(&mut client, "SET foo value");
    after("SET", 33, 5);
    ok(&mut client, "MULTI");
    client.command(&["SET", "foo", "value"]).expect("it is queued");
    client.command(&["EXEC"]).expect("it is answered");
    after("EXEC", 15 + 33 + 14, 4 + 5);
    let script = ["EVAL", "return redis.call('GET', 'foo')", "0"];
    let request = harness::client::encode(&script).len() as i64;
    client.command(&script).expect("it is answered");
    after("a script that names no key", request, 11);
    ok(&mut client, "INFO");
    ok(&mut client, "SET bar 1");
    after("other slots and none", 0, 0);

    let mut waiting = node.connect(Protocol::Resp2).expect("it listens");
    waiting.send(&["BLPOP", "{foo}l", "0"]).expect("it is sent");
    eventually("it waits", || {
        text(ask(&mut client, "INFO clients")).contains("blocked_clients:1\r")
    });
    assert_eq!(figures(&mut client, SLOT)["network-bytes-in"], 0, "it is not over");
    ask(&mut client, "LPUSH {foo}l v");
    waiting.reply().expect("it is answered");
    let pushed = harness::client::encode(&["LPUSH", "{foo}l", "v"]).len();
    let popped = harness::client::encode(&["BLPOP", "{foo}l", "0"]).len();
    let replies = b":1\r\n*2\r\n$6\r\n{foo}l\r\n$1\r\nv\r\n".len();
    after("a command that waited", (pushed + popped) as i64, replies as i64);

    for _ in 0..100 {
        ok(&mut client, "SET foo value");
    }
    for by in ["network-bytes-in", "network-bytes-out", "cpu-usec"] {
        let reply = ask(&mut client, &format!("CLUSTER SLOT-STATS ORDERBY {by} LIMIT 1"));
        assert_eq!(list(&list(&reply)[0])[0], Reply::Integer(SLOT.into()), "{by}");
    }
    let all = format!("CLUSTER SLOT-STATS SLOTSRANGE {SLOT} {SLOT} MEMORY-BYTES REQUESTS");
    let reply = ask(&mut client, &all);
    let words: Vec<String> =
        list(&list(&list(&reply)[0])[1]).iter().map(harness::reply::Reply::shown).collect();
    let at = words.iter().position(|word| word.contains("requests")).expect("they are counted");
    assert!(words[at + 1].contains("100"), "{words:?}");
    // The figures of a slot leave with it.
    ok(&mut client, &format!("CLUSTER DELSLOTS {SLOT}"));
    ok(&mut client, &format!("CLUSTER ADDSLOTS {SLOT}"));
    assert_eq!(figures(&mut client, SLOT)["network-bytes-in"], 0);
}

/// What a shard sends counts where it is sent from, and on a replica where it comes to.
#[test]
fn the_stream_and_messages_are_counted_by_slot() {
    const SLOT: u16 = 12182;
    let etcd = Etcd::start("slot-stream");
    let nodes = super::away::pair(&etcd, &["--cluster-slot-stats-enabled", "yes"]);
    let [mut primary, mut replica] = [nodes[0].client(), nodes[1].client()];
    ok(&mut primary, "SET foo value");
    let found = figures(&mut primary, SLOT);
    let bytes = (found["network-bytes-in"], found["network-bytes-out"]);
    assert_eq!(bytes, (33, 5 + 33), "the reply, and the replica's part of the stream");
    eventually("the replica counts what comes", || {
        let found = figures(&mut replica, SLOT);
        (found["network-bytes-in"], found["network-bytes-out"]) == (33, 0)
    });
    ok(&mut primary, "CONFIG RESETSTAT");
    let mut listener = nodes[0].connect(Protocol::Resp2).expect("it listens");
    listener.command(&["SSUBSCRIBE", "foo"]).expect("it is confirmed");
    ok(&mut primary, "CONFIG RESETSTAT");
    assert_eq!(ask(&mut primary, "SPUBLISH foo hello"), Reply::Integer(1));
    let message = harness::client::encode(&["smessage", "foo", "hello"]).len() as i64;
    assert_eq!(figures(&mut primary, SLOT)["network-bytes-out"], 4 + message);
}

//! Keyspace events: a client hears those of all shards, whichever node it is connected to.

use super::{alone, bulk, node_of, one_address};
use harness::client::{Client, ask, ok};
use harness::cluster::{Etcd, text};
use harness::reply::{Protocol, Reply};
use harness::server::{Server, signal};
use harness::wait::eventually;
use std::collections::BTreeSet;

/// Keys of three shards, and one more of each.
const KEYS: [&str; 6] = ["b", "c", "a", "{b}2", "{c}2", "{a}2"];

fn listener(node: &Server, verb: &str, name: &str) -> Client {
    let mut client = node.connect(Protocol::Resp3).expect("it listens");
    client.send(&[verb, name]).expect("it is sent");
    let confirmed = client.message().expect("it is confirmed");
    assert!(matches!(&confirmed, Reply::Push(parts) if parts[2] == Reply::Integer(1)));
    client
}

/// The payloads of the next messages, which may come in any order.
fn payloads(client: &mut Client, count: usize) -> BTreeSet<String> {
    let payload = |_| match client.message().expect("it comes") {
        Reply::Push(mut parts) => text(parts.pop().expect("a message has a payload")),
        other => panic!("no message: {other:?}"),
    };
    (0..count).map(payload).collect()
}

fn is_same(client: &mut Client, expected: &Reply) -> bool {
    ask(client, "CONFIG GET notify-keyspace-events") == *expected
}

/// An option that ends the log waits for its end, whatever is set with it.
fn the_log_ends_first(nodes: &[Server]) {
    let node = node_of(nodes, KEYS[0]);
    let folder = format!("/proc/{}/fd", node.process_id());
    let has_log = || {
        let files = std::fs::read_dir(&folder).expect("it runs");
        let targets = files.filter_map(|file| std::fs::read_link(file.ok()?.path()).ok());
        targets.into_iter().any(|target| target.to_string_lossy().ends_with(".incr.aof"))
    };
    ok(&mut node.client(), "CONFIG SET appendonly yes");
    eventually("the log begins", has_log);
    // It is written for longer than etcd takes to answer.
    let mut client = node.client();
    let long = "x".repeat(64 << 20);
    client.send(&["SET", KEYS[0], &long]).expect("it is sent");
    let end = ["CONFIG", "SET", "appendonly", "no", "notify-keyspace-events", "AKE"];
    client.send(&end).expect("it is sent");
    for _ in 0..2 {
        assert_eq!(client.reply().expect("it is answered"), Reply::Simple(b"OK".to_vec()));
    }
    assert!(!has_log());
}

#[test]
fn events_of_all_shards_are_heard_at_every_node() {
    let _alone = alone();
    let etcd = Etcd::start("events");
    let mut nodes = one_address(&etcd, &["--repl-diskless-sync-delay", "0"]);

    // What one client sets holds at all nodes when it is confirmed.
    ok(&mut nodes[6].client(), "CONFIG SET notify-keyspace-events KEA");
    let set = Reply::Array(vec![bulk("notify-keyspace-events"), bulk("AKE")]);
    assert!(nodes.iter().all(|node| is_same(&mut node.client(), &set)));

    the_log_ends_first(&nodes);

    let mut by_name: Vec<Client> =
        nodes.iter().map(|node| listener(node, "SUBSCRIBE", "__keyevent@0__:set")).collect();
    let mut by_pattern: Vec<Client> =
        nodes.iter().map(|node| listener(node, "PSUBSCRIBE", "__keyspace@*__:*")).collect();
    let all: BTreeSet<String> = KEYS.map(str::to_owned).into();
    for key in KEYS {
        ok(&mut nodes[1].client(), &format!("SET {key} 1"));
    }
    for client in &mut by_name {
        assert_eq!(payloads(client, KEYS.len()), all);
    }
    for client in &mut by_pattern {
        assert_eq!(payloads(client, KEYS.len()), ["set".to_owned()].into());
    }

    // Each comes once: the next message is that of the next change. A message that a client
    // publishes on such a channel comes once, too.
    for key in &KEYS[..3] {
        assert_eq!(ask(&mut nodes[3].client(), &format!("DEL {key}")), Reply::Integer(1));
        for client in &mut by_pattern {
            assert_eq!(payloads(client, 1), ["del".to_owned()].into(), "{key}");
        }
    }
    ask(&mut nodes[2].client(), "PUBLISH __keyevent@0__:set mine");
    for client in &mut by_name {
        assert_eq!(payloads(client, 1), ["mine".to_owned()].into());
    }

    // What expires is told by the primary alone, at its time.
    let mut expired: Vec<Client> =
        nodes.iter().map(|node| listener(node, "PSUBSCRIBE", "__keyevent@*__:expired")).collect();
    for key in &KEYS[..3] {
        ok(&mut nodes[4].client(), &format!("SET {key} 1 PX 1"));
    }
    for client in &mut expired {
        assert_eq!(payloads(client, 3), KEYS[..3].iter().map(|&key| key.to_owned()).collect());
    }

    // Another primary is listened to as soon as it leads. What happens before is missed, as by a
    // client that has to connect again.
    signal(nodes[0].process_id(), "KILL").expect("it runs");
    nodes.remove(0);
    drop((by_name.remove(0), by_pattern.remove(0), expired.remove(0)));
    for (at, client) in by_name.iter_mut().enumerate() {
        let mut writer = nodes[at].client();
        let mut written = 0;
        eventually("events of the new primary come", || {
            written += 1;
            // The shard of this key has lost its primary, and its replica may not lead yet.
            let _ = ask(&mut writer, &format!("SET b {written}"));
            let mut is_told = false;
            while client.has_data().expect("its node lives") {
                let message = client.message().expect("it comes");
                is_told |= matches!(message, Reply::Push(parts) if parts[2] == bulk("b"));
            }
            is_told
        });
    }
}

#[test]
fn nodes_listen_to_each_other_only_while_a_client_does() {
    let _alone = alone();
    let etcd = Etcd::start("listening");
    let nodes = one_address(&etcd, &[]);
    // Clients of one server see no connections of other nodes.
    let listening = |node: &Server| {
        let mut operator = node.client();
        ok(&mut operator, "CLIENT CAPA cluster");
        let list = text(ask(&mut operator, "CLIENT LIST"));
        list.lines().filter(|line| line.contains(" sub=1 ") || line.contains(" psub=1 ")).count()
    };
    let primaries = &nodes[..3];
    let mut news = listener(&nodes[6], "PSUBSCRIBE", "news.*");
    assert!(primaries.iter().all(|node| listening(node) == 0));
    let events = listener(&nodes[6], "PSUBSCRIBE", "__key*");
    assert!(primaries.iter().all(|node| listening(node) == 1), "confirmed by each of them");
    drop(events);
    eventually("nothing is listened to", || primaries.iter().all(|node| listening(node) == 0));
    ask(&mut nodes[0].client(), "PUBLISH news.1 x");
    assert_eq!(payloads(&mut news, 1), ["x".to_owned()].into());

    // Behind the addresses of a cluster a node tells what happens there.
    for node in &nodes {
        ok(&mut node.client(), "CONFIG SET notify-keyspace-events KEA");
        ok(&mut node.client(), "CONFIG SET cluster-endpoint cluster");
    }
    let mut locals: Vec<Client> =
        nodes[..3].iter().map(|node| listener(node, "SUBSCRIBE", "__keyevent@0__:set")).collect();
    for (at, node) in primaries.iter().enumerate() {
        // The one of these keys that is here.
        for key in ["b", "c", "a"] {
            let _ = ask(&mut node.client(), &format!("SET {key} {at}"));
        }
    }
    let told: Vec<String> = locals.iter_mut().flat_map(|client| payloads(client, 1)).collect();
    let told: BTreeSet<String> = told.into_iter().collect();
    assert_eq!(told, ["b", "c", "a"].map(str::to_owned).into());
}

/// Another client's link brings the events already: those from before a client's SUBSCRIBE do not
/// follow its reply.
#[test]
fn events_from_before_a_subscription_do_not_follow_it() {
    let _alone = alone();
    let etcd = Etcd::start("events-before");
    let nodes = one_address(&etcd, &[]);
    let node = &nodes[6];
    let mut writer = node.client();
    ok(&mut writer, "CONFIG SET notify-keyspace-events KEA");
    let _first = listener(node, "PSUBSCRIBE", "__keyevent@*");
    let many: Vec<String> = (0..200).map(|number| format!("SET b {number}\r\n")).collect();
    for round in 0..30 {
        writer.send_raw(many.concat().as_bytes()).expect("it is sent");
        many.iter().for_each(|_| assert!(!writer.reply().expect("it is answered").is_error()));
        let mut late = listener(node, "PSUBSCRIBE", "__keyevent@*");
        let key = format!("{{b}}{round}");
        ok(&mut writer, &format!("SET {key} x"));
        assert_eq!(payloads(&mut late, 1), [key].into());
    }
}

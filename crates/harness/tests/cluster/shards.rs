//! Servers that form a cluster at a real etcd, made with the stock redis-cli: where requests are
//! answered, and what happens when a primary is killed.

mod adopting;
mod away;
mod command_line;
mod faults;
mod histories;
mod leave;
mod operators;
mod restarts;
mod rollback;
mod slots;

use harness::client::{Client, ask, ok};
use harness::cluster::{Etcd, error, list, operate, redis_cli, six, text};
use harness::reply::{Protocol, Reply};
use harness::server::{Options, Program, Server};
use harness::wait::{SetAtEnd, eventually};
use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, Ordering::*};

/// Waits until each node answers for all slots.
fn wait_until_serving(nodes: &[Server]) {
    eventually("all nodes serve", || {
        let info = |node: &Server| text(ask(&mut node.client(), "CLUSTER INFO"));
        nodes.iter().all(|node| info(node).contains("cluster_state:ok"))
    });
}

/// The port to which a node sends the client for a key.
fn moved_to(client: &mut Client, key: &str) -> u16 {
    let error = error(&ask(client, &format!("GET {key}")));
    assert!(error.starts_with("MOVED "), "{error}");
    error
        .rsplit(':')
        .next()
        .and_then(|port| port.parse().ok())
        .expect("an address ends with a port")
}

#[test]
fn six_servers_form_a_cluster_and_a_replica_takes_over() {
    let etcd = Etcd::start("six");
    let mut nodes = six(&etcd);
    let first = nodes[0].port().to_string();
    for key in ["a", "b", "c", "foo", "bar", "{x}1"] {
        assert_eq!(redis_cli(&["-c", "-p", &first, "SET", key, "value"]).trim(), "OK");
        assert_eq!(redis_cli(&["-c", "-p", &first, "GET", key]).trim(), "value");
    }

    // Where requests are answered: slot 12182 is the third primary's.
    let mut client = nodes[0].client();
    let third = nodes[2].port();
    let moved = format!("MOVED 12182 127.0.0.1:{third}");
    assert_eq!(error(&ask(&mut client, "SET foo 1")), moved);
    let crossing = error(&ask(&mut client, "MSET a 1 b 2"));
    assert_eq!(crossing, "CROSSSLOT Keys in request don't hash to the same slot");
    ok(&mut client, "MULTI");
    assert_eq!(error(&ask(&mut client, "GET foo")), moved);
    assert!(error(&ask(&mut client, "EXEC")).starts_with("EXECABORT"));
    assert_eq!(ask(&mut client, "PING"), Reply::Simple(b"PONG".to_vec()));

    // A replica sends clients to its primary unless they have said READONLY, and writers even then.
    let is_replica_of_third = |node: &Server| {
        let reply = ask(&mut node.client(), "ROLE");
        let words = list(&reply);
        words.len() > 2
            && words[0] == Reply::Bulk(b"slave".to_vec())
            && words[2] == Reply::Integer(third.into())
    };
    let replica = (3..6).find(|&at| is_replica_of_third(&nodes[at])).expect("it has a replica");
    let mut reader = nodes[replica].client();
    assert_eq!(moved_to(&mut reader, "foo"), third);
    ok(&mut reader, "READONLY");
    eventually("the replica has the value", || {
        ok(&mut reader, "GET foo").text() == Some(&b"value"[..])
    });
    assert_eq!(error(&ask(&mut reader, "SET foo 1")), moved);

    // Shard channels have slots as well, and what the primary publishes reaches its replica.
    assert_eq!(error(&ask(&mut client, "SSUBSCRIBE foo")), moved);
    assert_eq!(error(&ask(&mut client, "SPUBLISH foo 1")), moved);
    let crossing = error(&ask(&mut client, "SSUBSCRIBE a b"));
    assert_eq!(crossing, "CROSSSLOT Keys in request don't hash to the same slot");
    let mut subscriber = nodes[replica].client();
    assert!(!ask(&mut subscriber, "SSUBSCRIBE foo").is_error());
    assert_eq!(ask(&mut nodes[2].client(), "SPUBLISH foo 1"), Reply::Integer(0));
    let message = subscriber.message().expect("it arrives");
    assert_eq!(list(&message).last(), Some(&Reply::Bulk(b"1".to_vec())));
    // A replica takes messages, too: they come back to it from its primary.
    assert_eq!(ask(&mut nodes[replica].client(), "SPUBLISH foo 2"), Reply::Integer(1));
    let message = subscriber.message().expect("it arrives");
    assert_eq!(list(&message).last(), Some(&Reply::Bulk(b"2".to_vec())));

    // The primary is killed; its replica has all it had, and takes writes.
    nodes[2].kill().expect("it runs");
    eventually("the replica takes over", || {
        let reply = ask(&mut reader, "SET foo again");
        reply == Reply::Simple(b"OK".to_vec())
    });
    let port = nodes[replica].port();
    eventually("the others know", || {
        let reply = ask(&mut client, "GET foo");
        matches!(&reply, Reply::Error(text) if text.ends_with(format!(":{port}").as_bytes()))
    });
    nodes[2].start_again().expect("it starts");
    eventually("the former primary follows", || {
        let info = text(ask(&mut nodes[2].client(), "INFO replication"));
        info.contains("role:slave") && info.contains("master_link_status:up")
    });
    let mut former = nodes[2].client();
    ok(&mut former, "READONLY");
    eventually("it has what was written meanwhile", || {
        ask(&mut former, "GET foo") == Reply::Bulk(b"again".to_vec())
    });
}

/// What is published anywhere is heard everywhere, once: at primaries and at replicas.
#[test]
fn messages_reach_the_clients_of_all_nodes() {
    let etcd = Etcd::start("messages");
    let nodes = six(&etcd);
    let listening = |node: &Server| {
        let mut subscriber = node.client();
        ok(&mut subscriber, "SUBSCRIBE news");
        subscriber
    };
    let mut subscribers: Vec<Client> = nodes.iter().map(listening).collect();
    for (at, node) in nodes.iter().enumerate() {
        let mut client = node.client();
        let publish = |name: &str| format!("PUBLISH news {name}-{at}");
        assert!(!ask(&mut client, &publish("single")).is_error());
        ok(&mut client, "MULTI");
        ask(&mut client, &publish("queued"));
        assert!(!ask(&mut client, "EXEC").is_error());
        let script = "return redis.call('PUBLISH', 'news', ARGV[1])";
        let reply = client.command(&["EVAL", script, "0", &format!("script-{at}")]);
        assert!(!reply.expect("it answers").is_error());
        for name in ["single", "queued", "script"] {
            let expected = format!("message news {name}-{at}");
            for (heard_at, subscriber) in subscribers.iter_mut().enumerate() {
                let message = words(&subscriber.message().expect("it hears it"));
                assert_eq!(message, expected, "at node {heard_at}");
            }
        }
    }
}

#[test]
fn a_node_says_what_it_lacks() {
    let server = |arguments: &[&str]| {
        let started = Server::start(&Program::under_test(), Options::arguments(arguments));
        started.err().expect("it does not start").to_string()
    };
    let without = server(&["--cluster-enabled", "yes"]);
    assert!(without.contains("cluster-coordinator is not. Name the etcd"), "{without}");
    let wrong = server(&["--cluster-enabled", "yes", "--cluster-coordinator", "redis://a"]);
    assert!(wrong.contains("no address of etcd"), "{wrong}");
}

#[test]
fn a_lone_node_is_made_a_cluster_and_refuses_what_redis_refuses() {
    let etcd = Etcd::start("lone");
    let node = etcd.node();
    let mut client = node.connect(Protocol::Resp3).expect("it listens");
    let refusals = [
        ("SET a 1", "CLUSTERDOWN Hash slot not served"),
        ("REPLICAOF 127.0.0.1 1", "ERR REPLICAOF not allowed in cluster mode."),
        (
            "FAILOVER",
            "ERR FAILOVER not allowed in cluster mode. Use CLUSTER FAILOVER command instead.",
        ),
        ("SELECT 1", "ERR DB index is out of range"),
        ("CLUSTER ADDSLOTS 16384", "ERR Invalid or out of range slot"),
        ("SWAPDB 0 1", "ERR SWAPDB is not allowed in cluster mode"),
        ("CLUSTER FORGET x", "ERR Unknown node x"),
        ("CLUSTER DELSLOTS 1", "ERR Slot 1 is already unassigned"),
    ];
    for (request, refusal) in refusals {
        assert_eq!(error(&ask(&mut client, request)), refusal, "{request}");
    }
    operate(&mut client, "CLUSTER ADDSLOTSRANGE 0 16382");
    eventually("the node leads", || {
        error(&ask(&mut client, "SET foo 1")) == "CLUSTERDOWN The cluster is down"
    });
    ok(&mut client, "CLUSTER ADDSLOTS 16383");
    ok(&mut client, "SET foo 1");
    assert_eq!(ask(&mut client, "CLUSTER COUNTKEYSINSLOT 12182"), Reply::Integer(1));
    let keys = ask(&mut client, "CLUSTER GETKEYSINSLOT 12182 10");
    assert_eq!(keys, Reply::Array(vec![Reply::Bulk(b"foo".to_vec())]));
    let stats = ask(&mut client, "CLUSTER SLOT-STATS SLOTSRANGE 12182 12182");
    assert_eq!(Reply::Integer(12182), list(&list(&stats)[0])[0]);
    let script = "#!lua\nredis.call('SET', KEYS[1], 'x') return redis.call('GET', 'bar')";
    let refusal = error(&client.command(&["EVAL", script, "1", "foo"]).expect("it answers"));
    let expected = "ERR Script attempted to access keys that do not hash to the same slot";
    assert!(refusal.starts_with(expected), "{refusal}");
    let script = script.replace("#!lua\n", "");
    let reply = client.command(&["EVAL", &script, "1", "foo"]).expect("it answers");
    assert!(!reply.is_error(), "{reply:?}");
    calls_keep_to_a_slot(&mut client);
    sort_keeps_to_a_slot(&mut client);
    assert_eq!(error(&ask(&mut client, "CLUSTER ADDSLOTS 5")), "ERR Slot 5 is already busy");
    // Of two keys, the one whose slot is named is counted.
    ok(&mut client, "HOTKEYS START METRICS 1 CPU SLOTS 2 5061 5062");
    ok(&mut client, "SET bar 1");
    ok(&mut client, "GET foo");
    ok(&mut client, "HOTKEYS STOP");
    let counted = words(&ask(&mut node.client(), "HOTKEYS GET"));
    assert!(counted.contains("bar") && !counted.contains("foo"), "{counted}");
    assert!(counted.contains("all-commands-selected-slots-us"), "{counted}");
    let refused = ask(&mut client, "HOTKEYS START METRICS 1 CPU SLOTS 1 16384");
    assert_eq!(error(&refused), "ERR Invalid or out of range slot");
    assert_eq!(text(ask(&mut client, "CLUSTER MYID")).len(), 40);
    assert!(text(ok(&mut client, "CLUSTER INFO")).contains("cluster_state:ok"));
    let mut waiting = node.client();
    waiting.send(&["BLPOP", "{foo}list", "0"]).expect("it is sent");
    eventually("it waits", || {
        text(ask(&mut client, "INFO clients")).contains("blocked_clients:1\r")
    });
    // FLUSHSLOT takes the keys of one slot, and those that have read one are told.
    ok(&mut client, "SET bar 1");
    let mut reader = node.connect(Protocol::Resp3).expect("it listens");
    ok(&mut reader, "CLIENT TRACKING ON");
    assert_eq!(text(ok(&mut reader, "GET foo")), "x");
    ok(&mut client, "CLUSTER FLUSHSLOT 12182 SYNC");
    let message = reader.message().expect("it is told");
    assert_eq!(words(&message), "invalidate foo");
    assert_eq!(ask(&mut client, "CLUSTER COUNTKEYSINSLOT 12182"), Reply::Integer(0));
    assert_eq!(text(ok(&mut client, "GET bar")), "1");
    assert_eq!(error(&ask(&mut client, "CLUSTER FLUSHSLOT 12182 LATER")), "ERR syntax error");
    ok(&mut client, "CLUSTER DELSLOTS 12182");
    let reply = waiting.reply().expect("the connection stays");
    assert_eq!(error(&reply), "CLUSTERDOWN Hash slot not served");
    assert_eq!(error(&ask(&mut client, "GET foo")), "CLUSTERDOWN Hash slot not served");
}

/// One call of a script has its keys in one slot, whatever the script's flags are, though this node
/// has all slots.
fn calls_keep_to_a_slot(client: &mut Client) {
    let expected = "ERR Script attempted to access keys that do not hash to the same slot";
    let library = "#!lua name=crossing\nredis.register_function{function_name='crossing', \
        flags={'allow-cross-slot-keys'}, callback=function(keys, words) \
        return redis.call(unpack(words)) end}";
    assert!(!ask(client, &["FUNCTION", "LOAD", library][..]).is_error());
    let flagged = "#!lua flags=allow-cross-slot-keys\nreturn redis.call(unpack(ARGV))";
    let scripts = [
        ["EVAL", "return redis.call(unpack(ARGV))", "0"],
        ["EVAL", flagged, "0"],
        ["FCALL", "crossing", "0"],
    ];
    for script in scripts {
        for call in
            [&["MGET", "foo", "bar"][..], &["RENAME", "foo", "bar"], &["COPY", "foo", "bar"]]
        {
            let refusal = error(&ask(client, &[&script[..], call].concat()[..]));
            assert!(refusal.starts_with(expected), "{refusal}");
        }
        let reply = ask(client, &[&script[..], &["MGET", "foo", "{foo}1"]].concat()[..]);
        assert!(!reply.is_error(), "{reply:?}");
    }
}

/// SORT looks only at keys of the slot of the key that it sorts, though this node has all slots.
fn sort_keeps_to_a_slot(client: &mut Client) {
    let refusal = |option: &str| {
        format!(
            "ERR {option} option of SORT denied in Cluster mode when keys formed by the pattern may \
             be in different slots."
        )
    };
    ok(client, "RPUSH {s}list 1 2 3");
    ok(client, "MSET {s}w1 3 {s}w2 2 {s}w3 1");
    ok(client, "HSET {s}h1 f 1");
    let sorted =
        |words: &[&str]| Reply::Array(words.iter().map(|&word| Reply::Bulk(word.into())).collect());
    for name in ["SORT", "SORT_RO"] {
        let mut run = |options: &str| ask(client, &format!("{name} {{s}}list {options}"));
        for pattern in ["w*", "*", "w*{s}", "{t}w*", "{}{s}w*", "w*->f"] {
            assert_eq!(error(&run(&format!("BY {pattern}"))), refusal("BY"));
            assert_eq!(error(&run(&format!("BY {{s}}w* GET # GET {pattern}"))), refusal("GET"));
        }
        assert_eq!(run("BY {s}w*"), sorted(&["3", "2", "1"]));
        assert_eq!(run("BY nosort"), sorted(&["1", "2", "3"]));
        assert_eq!(run("BY x{s}w* LIMIT 0 1 GET #"), sorted(&["1"]));
        assert_eq!(run("BY nosort GET {s}w*"), sorted(&["3", "2", "1"]));
        assert_eq!(run("LIMIT 0 1 GET {s}h*->f"), sorted(&["1"]));
    }
    assert_eq!(error(&ask(client, "SORT {s}list BY w* STORE {s}to")), refusal("BY"));
    assert_eq!(error(&ask(client, "SORT nothing BY w*")), refusal("BY"));
    let script = "return redis.call('SORT', KEYS[1], 'BY', 'w*')";
    let refused = error(&ask(client, &["EVAL", script, "1", "{s}list"][..]));
    assert!(refused.starts_with(&refusal("BY")), "{refused}");
    ok(client, "MULTI");
    ok(client, "SORT {s}list BY w*");
    let done = ask(client, "EXEC");
    assert_eq!(error(&list(&done)[0]), refusal("BY"));
    assert_eq!(ask(client, "DEL {s}list {s}w1 {s}w2 {s}w3 {s}h1"), Reply::Integer(5));
}

/// The strings and numbers in a reply, with blanks between them.
fn words(reply: &Reply) -> String {
    match reply {
        Reply::Integer(number) => number.to_string(),
        Reply::Array(elements) | Reply::Push(elements) => {
            elements.iter().map(words).collect::<Vec<_>>().join(" ")
        }
        other => String::from_utf8_lossy(other.text().unwrap_or_default()).into_owned(),
    }
}

/// What CLUSTER SLOTS says of the first node of the first range.
fn first_node(client: &mut Client) -> String {
    words(&list(&list(&ask(client, "CLUSTER SLOTS"))[0])[2])
}

#[test]
fn a_node_announces_other_addresses_while_it_runs() {
    let etcd = Etcd::start("announcing");
    let (node, other) = (etcd.node(), etcd.node());
    let (mut client, mut elsewhere) = (node.client(), other.client());
    operate(&mut client, "CLUSTER ADDSLOTSRANGE 0 16383");
    ok(&mut elsewhere, &format!("CLUSTER MEET 127.0.0.1 {}", node.port()));
    eventually("they meet", || list(&ask(&mut elsewhere, "CLUSTER SLOTS")).len() == 1);
    // Its own clients are told at once, others when the coordinator has told their node.
    let announced = [
        ("cluster-announce-hostname", "one.example", "hostname one.example"),
        ("availability-zone", "zone-a", "availability-zone zone-a"),
        ("cluster-announce-client-ipv4", "192.0.2.1", "192.0.2.1"),
        ("cluster-announce-client-port", "6399", "6399"),
    ];
    for (option, value, shown) in announced {
        ok(&mut client, &format!("CONFIG SET {option} {value}"));
        let told = first_node(&mut client);
        assert!(told.contains(shown), "{option}: {told}");
        eventually("the other node says so, too", || first_node(&mut elsewhere).contains(shown));
    }
    assert_eq!(error(&ask(&mut elsewhere, "GET foo")), "MOVED 12182 192.0.2.1:6399");
    let nodes = text(ask(&mut elsewhere, "CLUSTER NODES"));
    assert!(nodes.contains(" 192.0.2.1:6399@16399,one.example "), "{nodes}");
    // What others could not read is refused, and the old value stays.
    let refused = client.command(&["CONFIG", "SET", "availability-zone", "a zone"]);
    let refused = error(&refused.expect("it answers"));
    assert!(refused.contains("availability zone has characters"), "{refused}");
    assert!(first_node(&mut client).contains("zone-a"));
}

/// Counts up a key as fast as it can, going where MOVED says, until it is stopped. Returns how
/// often that was confirmed, and how often a request was lost with its connection or refused.
fn count_up(address: SocketAddr, key: &str, is_over: &AtomicBool) -> (i64, i64) {
    let (mut confirmed, mut failed) = (0, 0);
    let mut client = Client::connect(address).expect("it listens");
    while !is_over.load(Relaxed) {
        match client.command(&["INCR", key]) {
            Ok(Reply::Integer(_)) => confirmed += 1,
            Ok(Reply::Error(text)) if text.starts_with(b"MOVED ") => {
                let text = String::from_utf8(text).expect("it is text");
                let to = text.rsplit(' ').next().and_then(|to| to.parse().ok());
                client = Client::connect(to.expect("it names an address")).expect("it listens");
            }
            Ok(Reply::Error(text)) if text.starts_with(b"CLUSTERDOWN") => failed += 1,
            other => panic!("INCR {key}: {other:?}"),
        }
    }
    (confirmed, failed)
}

/// While clients write, a replica takes over from its primary and back: everything that was
/// confirmed is there, and no client sees an error but MOVED.
#[test]
fn a_planned_switch_loses_nothing_and_refuses_nothing() {
    let etcd = Etcd::start("switch");
    let nodes = six(&etcd);
    let node = |port: u16| nodes.iter().find(|node| node.port() == port).expect("it is one");
    let primary_of_foo = || {
        let reply = ask(&mut nodes[0].client(), "CLUSTER SLOTS");
        // The last shard has the slot.
        let range = list(&reply).last();
        let Some(Reply::Integer(port)) = range.map(|range| &list(&list(range)[2])[1]) else {
            panic!("no range with its port: {reply:?}")
        };
        u16::try_from(*port).expect("a port")
    };
    let replica_of = |port: u16| {
        let is_replica = |node: &&Server| {
            let reply = ask(&mut node.client(), "ROLE");
            list(&reply).get(2) == Some(&Reply::Integer(port.into()))
        };
        nodes.iter().find(is_replica).map(Server::port)
    };
    let refusal = error(&ask(&mut node(primary_of_foo()).client(), "CLUSTER FAILOVER"));
    assert_eq!(refusal, "ERR You should send CLUSTER FAILOVER to a replica");
    let mut waiting = node(primary_of_foo()).client();
    waiting.send(&["BLPOP", "{foo}list", "0"]).expect("it is sent");
    let mut reading = node(primary_of_foo()).client();
    reading.send(&["TS.READ", "{foo}s", "-", "BLOCK", "0", "1"]).expect("it is sent");
    let is_over = AtomicBool::new(false);
    let address = node(primary_of_foo()).address();
    std::thread::scope(|threads| {
        let over = SetAtEnd(&is_over);
        let clients: Vec<_> = (0..4)
            .map(|at| {
                let (key, is_over) = (format!("{{foo}}{at}"), &is_over);
                threads.spawn(move || (key.clone(), count_up(address, &key, is_over)))
            })
            .collect();
        for _ in 0..3 {
            let primary = primary_of_foo();
            let mut replica = None;
            eventually("the primary has a replica that is in step", || {
                replica = replica_of(primary);
                let client = replica.map(|port| node(port).client());
                client.is_some_and(|mut client| ask(&mut client, "CLUSTER FAILOVER") == simple_ok())
            });
            eventually("the replica takes over", || Some(primary_of_foo()) == replica);
        }
        for client in [&mut waiting, &mut reading] {
            let reply = error(&client.reply().expect("the connection stays"));
            assert!(reply.starts_with("MOVED 12182 "), "{reply}");
        }
        drop(over);
        for client in clients {
            let (key, (confirmed, refused)) = client.join().expect("it ends");
            let port = nodes[0].port().to_string();
            let counted = redis_cli(&["-c", "-p", &port, "GET", &key]);
            assert_eq!((counted.trim(), refused), (confirmed.to_string().as_str(), 0), "{key}");
        }
    });
}

fn simple_ok() -> Reply {
    Reply::Simple(b"OK".to_vec())
}

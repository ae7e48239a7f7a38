//! One address: clients of a cluster with `cluster-endpoint single` see one ordinary server,
//! whichever node they are connected to.

mod clients;
mod events;
mod permissions;

use harness::client::{Client, ask, ok};
use harness::cluster::{Etcd, create, error, operate, redis_cli, text};
use harness::reply::{Protocol, Reply};
use harness::server::{Server, signal};
use harness::wait::eventually;
use std::sync::{Mutex, MutexGuard, PoisonError};

/// One cluster at a time: each is seven servers, which make each other late on few processors.
pub(crate) fn alone() -> MutexGuard<'static, ()> {
    static ALONE: Mutex<()> = Mutex::new(());
    ALONE.lock().unwrap_or_else(PoisonError::into_inner)
}

/// A cluster of six servers that clients see as one, and a seventh node that has nothing.
pub(crate) fn one_address(etcd: &Etcd, options: &[&str]) -> Vec<Server> {
    let mut nodes: Vec<Server> = (0..6).map(|_| etcd.node_with(options)).collect();
    create(&nodes);
    let idle = etcd.node_with(options);
    let first = format!("127.0.0.1:{}", nodes[0].port());
    redis_cli(&["--cluster", "add-node", &format!("127.0.0.1:{}", idle.port()), &first]);
    nodes.push(idle);
    eventually("all nodes know each other", || {
        nodes.iter().all(|node| {
            text(ask(&mut node.client(), "CLUSTER INFO")).contains("cluster_known_nodes:7")
        })
    });
    for node in &nodes {
        ok(&mut node.client(), "CONFIG SET cluster-endpoint single");
    }
    nodes
}

/// Keys of three shards.
pub(crate) const KEYS: [&str; 3] = ["a", "b", "foo"];

pub(crate) fn bulk(text: &str) -> Reply {
    Reply::Bulk(text.into())
}

/// Sends requests in one write, and reads their replies.
fn pipeline(client: &mut Client, requests: &[&str]) -> Vec<Reply> {
    let mut bytes = Vec::new();
    for request in requests {
        bytes.extend_from_slice(request.as_bytes());
        bytes.extend_from_slice(b"\r\n");
    }
    client.send_raw(&bytes).expect("it is sent");
    requests.iter().map(|_| client.reply().expect("it is answered")).collect()
}

/// What clients are told of the role: some drivers refuse writes to what calls itself a replica.
fn every_copy_is_the_primary_to_clients(nodes: &[Server]) {
    let is_replica = |node: &Server| {
        text(ask(&mut node.node_client(), "INFO replication")).contains("role:slave")
    };
    assert_eq!(nodes.iter().filter(|node| is_replica(node)).count(), 3);
    for node in nodes {
        let mut client = node.client();
        let info = text(ask(&mut client, "INFO replication"));
        assert!(info.contains("role:master\r\n"), "{info}");
        assert!(!info.contains("master_host"), "{info}");
        let own = if is_replica(node) { "replica" } else { "primary" };
        assert!(info.contains(&format!("cluster_copy_role:{own}\r\n")), "{info}");
        let Reply::Array(role) = ask(&mut client, "ROLE") else { panic!("ROLE is an array") };
        assert_eq!((role.len(), &role[0]), (3, &bulk("master")));
    }
}

#[test]
fn any_node_answers_for_any_key_in_order() {
    let _alone = alone();
    let etcd = Etcd::start("one-address");
    let nodes = one_address(&etcd, &[]);
    every_copy_is_the_primary_to_clients(&nodes);
    for (number, node) in nodes.iter().enumerate() {
        for protocol in [Protocol::Resp2, Protocol::Resp3] {
            let mut client = node.connect(protocol).expect("it listens");
            for key in KEYS {
                ok(&mut client, &format!("SET {key} {number}"));
                assert_eq!(ask(&mut client, &format!("GET {key}")), bulk(&number.to_string()));
            }
            assert!(error(&ask(&mut client, "LPUSH a x")).starts_with("WRONGTYPE"));
            // Requests for all shards and for none, in one write.
            let requests: Vec<String> = (0..200)
                .map(|at| match at % 5 {
                    0 => format!("ECHO {at}"),
                    1 => format!("SET {{a}}{at} {at}"),
                    2 => format!("INCR {}{{foo}}", at % 7),
                    3 => format!("GETSET {{b}} {at}"),
                    _ => format!("STRLEN {{a}}{}", at - 3),
                })
                .collect();
            let before: Vec<i64> = (0..7)
                .map(|at| text_or_zero(ask(&mut client, &format!("GET {at}{{foo}}"))))
                .collect();
            let mut counts = before;
            ok(&mut client, "SET {b} -2");
            let requests: Vec<&str> = requests.iter().map(String::as_str).collect();
            let replies = pipeline(&mut client, &requests);
            for (at, reply) in replies.into_iter().enumerate() {
                let expected = match at % 5 {
                    0 => bulk(&at.to_string()),
                    1 => Reply::Simple(b"OK".to_vec()),
                    2 => {
                        counts[at % 7] += 1;
                        Reply::Integer(counts[at % 7])
                    }
                    3 => bulk(&(at as i64 - 5).to_string()),
                    _ => Reply::Integer((at - 3).to_string().len() as i64),
                };
                assert_eq!(reply, expected, "{at}: {}", requests[at]);
            }
        }
    }
}

fn text_or_zero(reply: Reply) -> i64 {
    reply.text().map_or(0, |text| String::from_utf8_lossy(text).parse().expect("a number"))
}

#[test]
fn clients_see_no_cluster() {
    let _alone = alone();
    let etcd = Etcd::start("no-cluster");
    let node = etcd.node();
    let mut client = node.client();
    operate(&mut client, "CLUSTER ADDSLOTSRANGE 0 16383");
    ok(&mut client, "CONFIG SET cluster-endpoint single");
    eventually("the node leads", || !ask(&mut client, "SET foo 1").is_error());
    assert!(text(ask(&mut client, "INFO cluster")).contains("cluster_enabled:0"));
    assert!(text(ask(&mut client, "INFO server")).contains("redis_mode:standalone"));
    let disabled = "ERR This instance has cluster support disabled";
    for request in ["CLUSTER INFO", "CLUSTER SLOTS", "CLUSTER MEET 127.0.0.1 1", "ASKING"] {
        assert_eq!(error(&ask(&mut client, request)), disabled, "{request}");
    }
    // Keys of several slots are together here.
    ok(&mut client, "MSET a 1 b 2");
    assert_eq!(ask(&mut client, "EXISTS a b foo x"), Reply::Integer(3));
    let eval = ["EVAL", "return redis.call('MGET', 'a', 'b')", "0"];
    assert_eq!(ask(&mut client, &eval[..]), Reply::Array(vec![bulk("1"), bulk("2")]));
    // But what SORT looks at would be elsewhere, and missed, if there were more shards.
    let denied = error(&ask(&mut client, "SORT a BY w*"));
    assert!(denied.starts_with("ERR BY option of SORT denied in Cluster mode"), "{denied}");
    // A connection that says that it understands the protocol has it.
    ok(&mut client, "CLIENT CAPA cluster");
    assert!(text(ask(&mut client, "CLUSTER INFO")).contains("cluster_state:ok"));
    ok(&mut client, "CONFIG SET cluster-endpoint cluster");
    let crossing = error(&ask(&mut node.client(), "MSET a 1 b 2"));
    assert_eq!(crossing, "CROSSSLOT Keys in request don't hash to the same slot");
}

/// The node of a key, by its port.
fn node_of<'n>(nodes: &'n [Server], key: &str) -> &'n Server {
    let mut client = nodes[6].client();
    ok(&mut client, "CLIENT CAPA cluster");
    let moved = error(&ask(&mut client, &format!("GET {key}")));
    let port = moved.rsplit(':').next().and_then(|port| port.parse().ok());
    let port: u16 = port.expect("an address ends with a port");
    nodes.iter().find(|node| node.port() == port).expect("it is one of them")
}

fn strings(reply: Reply) -> Vec<String> {
    let items = match reply {
        Reply::Array(items) => items,
        other => panic!("no array: {other:?}"),
    };
    let mut texts: Vec<String> = items.into_iter().map(text).collect();
    texts.sort();
    texts
}

#[test]
fn requests_for_many_shards_transactions_scripts_and_waits() {
    let _alone = alone();
    let etcd = Etcd::start("many-shards");
    let nodes = one_address(&etcd, &[]);
    for node in [&nodes[0], &nodes[4], &nodes[6]] {
        let mut client = node.client();
        ok(&mut client, "FLUSHALL");
        split_and_joined(&mut client);
        transactions(&mut client, &nodes[1]);
        scripts(&mut client);
        waits(&mut client, node, &nodes);
        assert!(!ask(&mut client, "WAIT 0 0").is_error());
    }
}

fn split_and_joined(client: &mut Client) {
    ok(client, "MSET a 1 b 2 foo 3");
    let values = Reply::Array(vec![bulk("1"), Reply::Nil, bulk("2"), bulk("3")]);
    assert_eq!(ask(client, "MGET a nothing b foo"), values);
    assert_eq!(ask(client, "EXISTS a b foo foo nothing"), Reply::Integer(4));
    assert_eq!(ask(client, "TOUCH a b foo"), Reply::Integer(3));
    assert_eq!(ask(client, "DBSIZE"), Reply::Integer(3));
    assert_eq!(strings(ask(client, "KEYS *")), ["a", "b", "foo"]);
    assert!(KEYS.contains(&text(ask(client, "RANDOMKEY")).as_str()));
    assert_eq!(ask(client, "DEL a b nothing"), Reply::Integer(2));
    assert_eq!(ask(client, "UNLINK a foo"), Reply::Integer(1));
    let crossing = error(&ask(client, "MSETNX a 1 b 2"));
    assert!(
        crossing.starts_with("CROSSSLOT Keys 'a' and 'b' are on different shards"),
        "{crossing}"
    );
    for key in ["a", "b", "foo"] {
        ok(client, &format!("TS.CREATE {key} LABELS kind heat room {}", key.len()));
        assert_eq!(ask(client, &format!("TS.ADD {key} 1 2")), Reply::Integer(1));
    }
    let grouped = "TS.MRANGE - + FILTER kind=heat GROUPBY room REDUCE sum";
    let shown = format!("{:?}", ask(client, grouped));
    let sums: Vec<&str> = shown.matches("Simple").collect();
    assert_eq!(sums.len(), 2, "a and b are on different shards, and in one group: {shown}");
    assert_eq!(ask(client, "DEL a b foo"), Reply::Integer(3));
    set_with_expiry(client);
    for at in 0..100 {
        ok(client, &format!("SET key{at} {at}"));
    }
    let (mut cursor, mut found) = ("0".to_owned(), Vec::new());
    loop {
        let Reply::Array(mut page) = ask(client, &format!("SCAN {cursor} COUNT 7")) else {
            panic!("a page is an array")
        };
        found.extend(strings(page.pop().expect("it has two elements")));
        cursor = text(page.pop().expect("it has two elements"));
        if cursor == "0" {
            break;
        }
    }
    found.retain(|key| key.starts_with("key"));
    found.sort();
    assert!(found.len() == 100 && found.windows(2).all(|pair| pair[0] != pair[1]), "{found:?}");
}

/// MSETEX goes to several shards, as its tips say, unless it depends on which keys exist.
fn set_with_expiry(client: &mut Client) {
    assert_eq!(ask(client, "MSETEX 3 a 1 b 2 foo 3 EX 1000"), Reply::Integer(1));
    for (key, value) in [("a", "1"), ("b", "2"), ("foo", "3")] {
        assert_eq!(text(ask(client, &format!("GET {key}"))), value);
        let ttl = ask(client, &format!("TTL {key}"));
        assert!(matches!(ttl, Reply::Integer(900..=1000)), "{key}: {ttl:?}");
    }
    for condition in ["NX", "XX"] {
        let crossing = error(&ask(client, &format!("MSETEX 2 a 1 b 2 {condition}")));
        assert!(
            crossing.starts_with("CROSSSLOT Keys 'a' and 'b' are on different shards"),
            "{crossing}"
        );
    }
    assert_eq!(ask(client, "MSETEX 2 {a}1 1 {a}2 2 NX"), Reply::Integer(1));
    assert_eq!(ask(client, "MSETEX 2 {a}1 1 {a}2 2 NX"), Reply::Integer(0));
    assert_eq!(ask(client, "DEL a b foo {a}1 {a}2"), Reply::Integer(5));
}

fn transactions(client: &mut Client, other: &Server) {
    ok(client, "MULTI");
    for request in ["SET {foo}1 x", "INCR {foo}2", "GET {foo}1"] {
        assert_eq!(ask(client, request), Reply::Simple(b"QUEUED".to_vec()));
    }
    let done = vec![Reply::Simple(b"OK".to_vec()), Reply::Integer(1), bulk("x")];
    assert_eq!(ask(client, "EXEC"), Reply::Array(done));
    ok(client, "MULTI");
    ask(client, "SET a 1");
    ask(client, "SET b 1");
    let crossing = error(&ask(client, "EXEC"));
    assert!(crossing.starts_with("CROSSSLOT Keys 'a' and 'b'"), "{crossing}");
    assert_eq!(ask(client, "GET a"), Reply::Nil);
    for (key, changes) in KEYS.iter().flat_map(|key| [(key, false), (key, true)]) {
        ok(client, &format!("WATCH {key}"));
        let before = text_or_zero(ask(client, &format!("GET {key}")));
        if changes {
            ok(&mut other.client(), &format!("SET {key} 7"));
        }
        ok(client, "MULTI");
        ask(client, &format!("INCR {key}"));
        let expected = match changes {
            true => Reply::NilArray,
            false => Reply::Array(vec![Reply::Integer(before + 1)]),
        };
        assert_eq!(ask(client, "EXEC"), expected, "{key} {changes}");
    }
    ok(client, "WATCH foo");
    ok(&mut other.client(), "SET foo 8");
    ok(client, "UNWATCH");
    ok(client, "MULTI");
    ask(client, "GET foo");
    assert_eq!(ask(client, "EXEC"), Reply::Array(vec![bulk("8")]));
}

/// Every node knows them.
fn scripts(client: &mut Client) {
    let eval = ["EVAL", "return redis.call('INCRBY', KEYS[1], ARGV[1])", "1", "foo", "2"];
    assert_eq!(client.command(&eval).expect("a reply"), Reply::Integer(10));
    let loaded = client.command(&["SCRIPT", "LOAD", "return KEYS[1]"]).expect("a reply");
    let sha = text(loaded);
    for key in KEYS {
        assert_eq!(ask(client, &format!("EVALSHA {sha} 1 {key}")), bulk(key));
    }
    let missing = error(&ask(client, &format!("EVALSHA {} 1 foo", "0".repeat(40))));
    assert!(missing.starts_with("NOSCRIPT"), "{missing}");
    let crossing = error(&ask(client, &format!("EVALSHA {sha} 2 a b")));
    assert!(crossing.starts_with("CROSSSLOT Keys 'a' and 'b'"), "{crossing}");
    // Keys that a script does not declare may be on other shards than those that it does.
    for call in
        [["MGET", "foo", "b"], ["MGET", "b", "foo"], ["RENAME", "foo", "b"], ["COPY", "foo", "b"]]
    {
        let eval = ["EVAL", "return redis.call(unpack(ARGV))", "1", "foo"];
        let refused = error(&ask(client, &[&eval[..], &call].concat()[..]));
        assert!(refused.contains("attempted to access a non local key"), "{refused}");
    }
    for (key, other) in [("{foo}s", "{a}w*"), ("{a}s", "w*"), ("{b}s", "{foo}w*->f")] {
        for request in ["BY {pattern}", "GET {pattern}", "BY {pattern} STORE {key}d"] {
            let request = request.replace("{pattern}", other).replace("{key}", key);
            let denied = error(&ask(client, &format!("SORT {key} {request}")));
            assert!(denied.contains("option of SORT denied in Cluster mode"), "{denied}");
        }
    }
    ok(client, "RPUSH {foo}s 1 2");
    ok(client, "MSET {foo}w1 2 {foo}w2 1");
    let sorted = ask(client, "SORT {foo}s BY {foo}w* GET # GET {foo}w*");
    assert_eq!(sorted, Reply::Array(Vec::from(["2", "1", "1", "2"].map(bulk))));
    assert_eq!(ask(client, "DEL {foo}s {foo}w1 {foo}w2"), Reply::Integer(3));
}

/// Commands that wait: requests behind them wait, too, and a client that leaves waits no more.
fn waits(client: &mut Client, node: &Server, nodes: &[Server]) {
    for key in ["{a}l", "{b}l", "{foo}l"] {
        client.send(&["BLPOP", key, "0"]).expect("it is sent");
        client.send(&["ECHO", "behind"]).expect("it is sent");
        let primary = node_of(nodes, key);
        eventually("it waits", || {
            text(ask(&mut primary.client(), "INFO clients")).contains("blocked_clients:1\r\n")
        });
        ok(&mut nodes[3].client(), &format!("RPUSH {key} x"));
        let popped = Reply::Array(vec![bulk(key), bulk("x")]);
        assert_eq!(client.reply().expect("it is answered"), popped);
        assert_eq!(client.reply().expect("it is answered"), bulk("behind"));
        // A client that leaves waits no more.
        let mut leaving = node.client();
        leaving.send(&["BLPOP", key, "0"]).expect("it is sent");
        eventually("it waits", || {
            text(ask(&mut primary.client(), "INFO clients")).contains("blocked_clients:1\r\n")
        });
        drop(leaving);
        eventually("it waits no more", || {
            text(ask(&mut primary.client(), "INFO clients")).contains("blocked_clients:0\r\n")
        });
        // What is there when the time is up.
        assert_eq!(ask(client, &format!("TS.ADD {key}s 7 1")), Reply::Integer(7));
        let Reply::Array(samples) = ask(client, &format!("TS.READ {key}s + BLOCK 1 2")) else {
            panic!("samples are an array")
        };
        assert_eq!(samples.len(), 1);
    }
}

#[test]
fn messages_caches_and_users_of_one_address() {
    let _alone = alone();
    let etcd = Etcd::start("messages-forwarded");
    let nodes = one_address(&etcd, &[]);
    let mut listeners: Vec<Client> =
        nodes.iter().map(|node| node.connect(Protocol::Resp3).expect("it listens")).collect();
    for listener in &mut listeners {
        listener.send(&["SUBSCRIBE", "news"]).expect("it is sent");
        listener.message().expect("it is confirmed");
        listener.send(&["SSUBSCRIBE", "shard"]).expect("it is sent");
        listener.message().expect("it is confirmed");
    }
    for node in &nodes {
        for request in ["PUBLISH news x", "SPUBLISH shard y"] {
            let reply = ask(&mut node.client(), request);
            assert!(matches!(reply, Reply::Integer(3..)), "{request}: {reply:?}");
        }
        for listener in &mut listeners {
            for (kind, channel, word) in [("message", "news", "x"), ("smessage", "shard", "y")] {
                let message = listener.message().expect("it comes");
                assert_eq!(message, Reply::Push(vec![bulk(kind), bulk(channel), bulk(word)]));
            }
        }
    }

    // A script that one node has run is known to the node that a client is connected to, also in a
    // transaction.
    for (at, node) in [(0, &nodes[0]), (1, &nodes[3]), (2, &nodes[6])] {
        let mut client = node.client();
        let script = format!("return {{KEYS[1], {at}}}");
        let digest = "return redis.sha1hex(ARGV[1])";
        let sha = text(client.command(&["EVAL", digest, "0", &script]).expect("it answers"));
        let result = |key: &str| Reply::Array(vec![bulk(key), Reply::Integer(at)]);
        let first = KEYS[at as usize];
        let reply = client.command(&["EVAL", &script, "1", first]).expect("it answers");
        assert_eq!(reply, result(first));
        for key in KEYS {
            assert_eq!(ask(&mut client, &format!("EVALSHA {sha} 1 {key}")), result(key));
        }
        ok(&mut client, "SCRIPT FLUSH");
        let missing = error(&ask(&mut client, &format!("EVALSHA {sha} 1 foo")));
        assert!(missing.starts_with("NOSCRIPT"), "{missing}");
        let reply = client.command(&["EVAL", &script, "1", first]).expect("it answers");
        assert_eq!(reply, result(first));
        for key in KEYS {
            let requests = ["MULTI", &format!("EVALSHA {sha} 1 {key}"), "EXEC"];
            let replies = pipeline(&mut client, &requests);
            assert_eq!(replies[2], Reply::Array(vec![result(key)]));
        }
    }

    // What a client has cached, wherever the key is.
    for node in [&nodes[0], &nodes[6]] {
        let mut client = node.connect(Protocol::Resp3).expect("it listens");
        ok(&mut client, "CLIENT TRACKING ON");
        for key in KEYS {
            ok(&mut nodes[2].client(), &format!("SET {key} 1"));
            assert_eq!(ask(&mut client, &format!("GET {key}")), bulk("1"));
            ok(&mut nodes[1].client(), &format!("SET {key} 2"));
            let message = client.message().expect("it comes");
            let keys = Reply::Array(vec![bulk(key)]);
            assert_eq!(message, Reply::Push(vec![bulk("invalidate"), keys]));
        }
        ok(&mut client, "CLIENT TRACKING OFF");
        chosen_caches(&mut client, &nodes[1]);
        let refusal = error(&ask(&mut node.client(), "CLIENT TRACKING ON"));
        assert!(refusal.contains("HELLO 3"), "{refusal}");
    }

    // The node that a client is connected to knows its user; links log in as replicas do.
    let idle = &nodes[6];
    ok(&mut idle.client(), "ACL SETUSER reader on >pw ~a ~{foo}* +get +auth");
    let mut reader = idle.client();
    ok(&mut reader, "AUTH reader pw");
    assert_eq!(ask(&mut reader, "GET a"), bulk("2"));
    assert!(error(&ask(&mut reader, "GET b")).starts_with("NOPERM"));
    assert!(error(&ask(&mut reader, "SET a 1")).starts_with("NOPERM"));
}

/// CLIENT CACHING is for the next request, or transaction, wherever its keys are.
fn chosen_caches(client: &mut Client, other: &Server) {
    for (mode, word, is_told) in [("OPTIN", "yes", true), ("OPTOUT", "no", false)] {
        ok(client, &format!("CLIENT TRACKING ON {mode}"));
        for key in KEYS {
            let read = |client: &mut Client, how: &[&str], is_told: bool| {
                let requests: Vec<String> =
                    how.iter().map(|request| request.replace("KEY", key)).collect();
                let requests: Vec<&str> = requests.iter().map(String::as_str).collect();
                for reply in pipeline(client, &requests) {
                    assert!(!reply.is_error(), "{reply:?}");
                }
                ok(&mut other.client(), &format!("SET {key} 2"));
                // A request to the same node comes behind what it has to tell.
                ask(client, &format!("CLIENT CACHING {word}"));
                ask(client, &format!("STRLEN {{{key}}}none"));
                let messages = std::iter::from_fn(|| client.push()).count();
                assert_eq!(messages, usize::from(is_told), "{mode} {how:?}");
            };
            let chosen = format!("CLIENT CACHING {word}");
            let chosen = chosen.as_str();
            for _ in 0..2 {
                read(client, &[chosen, "GET KEY"], is_told);
                read(client, &["GET KEY"], !is_told);
                read(client, &[chosen, "PING", "GET KEY"], !is_told);
                read(client, &[chosen, "MULTI", "GET KEY", "EXEC"], is_told);
                read(client, &[chosen, "EXISTS KEY {KEY}none"], is_told);
            }
        }
        ok(client, "CLIENT TRACKING OFF");
    }
    assert!(error(&ask(client, "CLIENT CACHING yes")).starts_with("ERR CLIENT CACHING"));
}

/// Waits until the first replica of a primary has everything.
fn until_replicated(primary: &Server) {
    eventually("its replica has the keys", || {
        let info = text(ask(&mut primary.node_client(), "INFO replication"));
        let value = |name: &str| {
            let at = info.find(name)? + name.len();
            info[at..].split([',', '\r']).next()?.parse::<u64>().ok()
        };
        value("offset=").is_some_and(|offset| Some(offset) == value("master_repl_offset:"))
    });
}

/// A process that stands still keeps its connections.
#[test]
fn requests_to_a_primary_that_hangs_end_when_another_takes_over() {
    let _alone = alone();
    let etcd = Etcd::start("one-address-hangs");
    let nodes = one_address(&etcd, &[]);
    let mut client = nodes[6].client();
    ok(&mut client, "SET foo 1");
    let mut waiting = nodes[6].client();
    waiting.send(&["BLPOP", "{foo}list", "0"]).expect("it is sent");
    let victim = node_of(&nodes, "foo");
    eventually("it waits there", || {
        text(ask(&mut victim.client(), "INFO clients")).contains("blocked_clients:1\r")
    });
    until_replicated(victim);
    signal(victim.process_id(), "STOP").expect("it runs");
    // Both wait for a process that does not run.
    let reply = error(&ask(&mut client, "SET foo 2"));
    assert!(reply.starts_with("NOREPLY server 127.0.0.1:"), "{reply}");
    assert!(reply.ends_with("whether it has carried the request out is unknown"), "{reply}");
    assert!(waiting.reply().map_or(true, |reply| reply.is_error()));
    eventually("another answers", || ask(&mut client, "GET foo") == bulk("1"));
    ok(&mut client, "SET foo 3");
    signal(victim.process_id(), "CONT").expect("it is there");
    eventually("it follows", || {
        text(ask(&mut victim.node_client(), "INFO replication")).contains("master_link_status:up")
    });
    assert_eq!(ask(&mut client, "GET foo"), bulk("3"));
}

#[test]
fn a_primary_that_dies_may_cost_errors_and_no_wrong_reply() {
    let _alone = alone();
    let etcd = Etcd::start("one-address-dies");
    let mut nodes = one_address(&etcd, &[]);
    let mut client = nodes[6].client();
    for at in 0..50 {
        ok(&mut client, &format!("SET {{foo}}{at} {at}"));
    }
    let port = node_of(&nodes, "foo").port();
    let victim = nodes.iter().position(|node| node.port() == port).expect("it is one");
    let requests: Vec<String> = (0..50).map(|at| format!("GET {{foo}}{at}")).collect();
    let requests: Vec<&str> = requests.iter().map(String::as_str).collect();
    until_replicated(&nodes[victim]);
    nodes[victim].kill().expect("it runs");
    eventually("a replica takes over", || {
        let replies = pipeline(&mut client, &requests);
        let mut is_whole = true;
        for (at, reply) in replies.iter().enumerate() {
            if let Reply::Error(_) = reply {
                let line = error(reply);
                let is_clear = line.starts_with("NOREPLY server 127.0.0.1:")
                    || line.starts_with("CLUSTERDOWN ");
                assert!(is_clear, "{line}");
                is_whole = false;
            } else {
                assert_eq!(*reply, bulk(&at.to_string()));
            }
        }
        is_whole
    });
    assert_ne!(node_of(&nodes, "foo").port(), port, "another node leads");
}

/// The node that a client talks to knows who it is, the others know that node.
#[test]
fn the_audit_log_has_the_client_of_what_is_forwarded() {
    let _alone = alone();
    let path = std::env::temp_dir().join(format!("dunlin-forwarded-{}.log", std::process::id()));
    let etcd = Etcd::start("one-address-audit");
    let nodes = one_address(&etcd, &["--audit-log", path.to_str().expect("it is text")]);
    let mut client = nodes[6].client();
    let id = text(ask(&mut client, "CLIENT INFO"));
    let address = id.split_whitespace().find_map(|word| word.strip_prefix("addr="));
    let mine = format!("\"user\":\"default\",\"address\":\"{}\"", address.expect("it has one"));
    ok(&mut client, "MULTI");
    ask(&mut client, "SET foo 1");
    ask(&mut client, "EXEC");
    ok(&mut client, "FLUSHALL");
    eventually("its node has recorded it", || {
        let log = std::fs::read_to_string(&path).unwrap_or_default();
        let its = log.lines().filter(|line| line.contains(&mine)).collect::<Vec<_>>();
        assert!(its.iter().all(|line| line.contains("flushall")), "{its:?}");
        its.iter().any(|line| line.contains("\"begun\""))
    });
    let _ = std::fs::remove_file(&path);
}

#[test]
fn wait_concerns_the_shards_that_were_written_to() {
    let _alone = alone();
    let etcd = Etcd::start("one-address-wait");
    let nodes = one_address(&etcd, &[]);
    let idle = &nodes[6];
    let mut client = idle.client();
    // Without a write, all shards; each has one replica.
    eventually("all replicas acknowledge", || ask(&mut client, "WAIT 1 500") == Reply::Integer(1));
    let [a, b, foo] = KEYS.map(|key| node_of(&nodes, key));
    // The keys `a` and `foo` are on one shard.
    ok(&mut client, "SET a 1");
    ok(&mut client, "SET b 1");
    assert_eq!(ask(&mut client, "WAIT 1 5000"), Reply::Integer(1));
    // At the primary of a key itself, and for a disk that there is not.
    for node in [a, b] {
        let mut client = node.client();
        ok(&mut client, "SET a 2");
        assert_eq!(ask(&mut client, "WAIT 1 5000"), Reply::Integer(1));
    }
    assert!(error(&ask(&mut client, "WAITAOF 1 0 100")).contains("appendonly is disabled"));
    let none = Reply::Array(vec![Reply::Integer(0), Reply::Integer(0)]);
    assert_eq!(ask(&mut client, "WAITAOF 0 1 50"), none);
    assert_eq!(ask(&mut client, "WAIT 1"), ask(&mut a.client(), "WAIT 1"));

    // In a transaction it waits for nothing, wherever that runs. Replicas acknowledge once a second
    // without being asked.
    for (node, key) in [(idle, "a"), (a, "a"), (b, "a"), (idle, "b")] {
        let (mut client, get) = (node.client(), format!("GET {key}"));
        eventually("a transaction counts the replica", || {
            let replies = pipeline(&mut client, &["MULTI", &get, "WAIT 9 0", "EXEC"]);
            let Reply::Array(done) = &replies[3] else { panic!("{replies:?}") };
            done[1] == Reply::Integer(1)
        });
    }

    // The replica of one shard stands still: that matters to who wrote there, and to nobody else.
    let primary = foo.port().to_string();
    let is_of = |node: &&Server| {
        let info = text(ask(&mut node.node_client(), "INFO replication"));
        info.contains(&format!("master_port:{primary}\r\n"))
    };
    let replica = nodes[3..6].iter().find(is_of).expect("it has a replica");
    signal(replica.process_id(), "STOP").expect("it runs");
    ok(&mut client, "SET b 3");
    assert_eq!(ask(&mut client, "WAIT 1 5000"), Reply::Integer(1));
    let requests = ["SET b 4", "SET foo 1", "WAIT 1 100", "GET foo", "WAIT 0 0"];
    let replies = pipeline(&mut client, &requests);
    assert_eq!(replies[2..], [Reply::Integer(0), bulk("1"), Reply::Integer(0)]);
    // It ends when the replica goes on.
    client.send_raw(b"WAIT 1 0\r\n").expect("it is sent");
    signal(replica.process_id(), "CONT").expect("it is there");
    assert_eq!(client.reply().expect("it comes"), Reply::Integer(1));
}

/// Writes in front of a request that another node answers are told of when they are confirmed, as
/// they would be without it.
#[test]
fn what_is_written_in_front_of_a_forwarded_request_is_confirmed_first() {
    let _alone = alone();
    let etcd = Etcd::start("in-front");
    let nodes = one_address(&etcd, &["--commit-timeout-ms", "500"]);
    let mut client = node_of(&nodes, "b").client();
    ok(&mut client, "CONFIG SET commit-quorum 1 commit-mode quorum");
    eventually("its replica confirms", || !ask(&mut client, "SET b 0").is_error());
    let leads = ["a", "b", "c"].map(|key| node_of(&nodes, key).process_id());
    let replicas = || nodes.iter().filter(|node| !leads.contains(&node.process_id()));
    replicas().for_each(|node| signal(node.process_id(), "STOP").expect("it runs"));
    let replies = pipeline(&mut client, &["SET b 1", "SET b 2", "SET b 3", "GET c", "GET b"]);
    replicas().for_each(|node| signal(node.process_id(), "CONT").expect("it runs"));
    for reply in &replies[..3] {
        assert!(error(reply).starts_with("NOTCONFIRMED"), "{replies:?}");
    }
    assert_eq!(replies[3], Reply::Nil, "{replies:?}");
    assert_eq!(ask(&mut client, "PING"), Reply::Simple(b"PONG".to_vec()));
}

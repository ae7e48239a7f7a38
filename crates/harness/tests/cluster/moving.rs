//! Slots that move key by key, as `redis-cli --cluster reshard` does it, under clients that write.

use harness::client::{Client, ask, ok};
use harness::cluster::{Etcd, error, list, operate_unless, redis_cli, six, text};
use harness::reply::Reply;
use harness::server::{Server, signal};
use harness::wait::{SetAtEnd, eventually};
use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, Ordering::*};

/// Three primaries that share all slots.
fn three(etcd: &Etcd) -> Vec<Server> {
    three_with(etcd, &[])
}

fn three_with(etcd: &Etcd, options: &[&str]) -> Vec<Server> {
    let nodes: Vec<Server> = (0..3).map(|_| etcd.node_with(options)).collect();
    let addresses: Vec<String> =
        nodes.iter().map(|node| format!("127.0.0.1:{}", node.port())).collect();
    let mut words = vec!["--cluster", "create"];
    words.extend(addresses.iter().map(String::as_str));
    words.extend(["--cluster-replicas", "0", "--cluster-yes"]);
    assert!(redis_cli(&words).contains("All 16384 slots covered"));
    eventually("all nodes serve", || {
        nodes.iter().all(|node| {
            let info = text(ask(&mut node.client(), "CLUSTER INFO"));
            info.contains("cluster_state:ok") && info.contains("cluster_size:3")
        })
    });
    nodes
}

fn id_of(node: &Server) -> String {
    let mut client = node.client();
    ok(&mut client, "CLIENT CAPA cluster");
    text(ask(&mut client, "CLUSTER MYID"))
}

/// A client that goes where it is sent.
struct Routed {
    clients: BTreeMap<u16, Client>,
    first: u16,
    places: BTreeMap<String, u16>,
}

impl Routed {
    fn new(first: u16) -> Routed {
        Routed { clients: BTreeMap::new(), first, places: BTreeMap::new() }
    }

    fn at(&mut self, port: u16) -> &mut Client {
        let connect = || Client::connect(SocketAddr::from(([127, 0, 0, 1], port)));
        self.clients.entry(port).or_insert_with(|| connect().expect("it listens"))
    }

    /// Sends a request whose first key is its second word, until it is answered.
    fn request(&mut self, words: &[&str]) -> Reply {
        let mut asking = None;
        loop {
            let known = self.places.get(words[1]).copied().unwrap_or(self.first);
            let is_asking = asking.is_some();
            let client = self.at(asking.take().unwrap_or(known));
            if is_asking {
                ok(client, "ASKING");
            }
            let reply = client.command(words).expect("it answers");
            let Reply::Error(line) = &reply else { return reply };
            let line = String::from_utf8_lossy(line).into_owned();
            let port = || line.rsplit(':').next().and_then(|port| port.parse().ok());
            if line.starts_with("MOVED ") {
                self.places.insert(words[1].into(), port().expect("a port"));
            } else if line.starts_with("ASK ") {
                asking = port();
            } else if !line.starts_with("TRYAGAIN") {
                return reply;
            }
        }
    }
}

/// Something that answers requests for any key.
trait Cluster {
    fn send(&mut self, words: &[&str]) -> Reply;
}

impl Cluster for Routed {
    fn send(&mut self, words: &[&str]) -> Reply {
        self.request(words)
    }
}

/// A node that clients take for one server.
impl Cluster for Client {
    fn send(&mut self, words: &[&str]) -> Reply {
        self.command(words).expect("it answers")
    }
}

/// Writes values of every type, and checks each reply, until it is told to stop. Returns how many
/// rounds it did.
fn write(name: &str, cluster: &mut dyn Cluster, stop: &AtomicBool) -> i64 {
    let mut rounds = 0;
    while !stop.load(SeqCst) || rounds == 0 {
        rounds += 1;
        let number = rounds.to_string();
        for key in 0..KEYS {
            let key = |kind: &str| format!("{name}:{kind}:{key}");
            let mut expect = |words: &[&str], reply: Reply| {
                assert_eq!(cluster.send(words), reply, "{words:?}");
            };
            let one = Reply::Integer(1);
            expect(&["INCR", &key("string")], Reply::Integer(rounds));
            expect(&["RPUSH", &key("list"), &number], Reply::Integer(rounds));
            expect(&["HSET", &key("hash"), &number, "v"], one.clone());
            expect(&["SADD", &key("set"), &number], one.clone());
            expect(&["ZADD", &key("zset"), &number, &number], one);
            let id = format!("{rounds}-1");
            expect(&["XADD", &key("stream"), &id, "f", "v"], Reply::Bulk(id.clone().into()));
        }
    }
    rounds
}

/// Keys of each type and writer.
const KEYS: usize = 40;

/// All that a writer has written is there, once.
fn verify(name: &str, cluster: &mut dyn Cluster, rounds: i64) {
    for key in 0..KEYS {
        let key = |kind: &str| format!("{name}:{kind}:{key}");
        let value = cluster.send(&["GET", &key("string")]);
        assert_eq!(value, Reply::Bulk(rounds.to_string().into()), "{}", key("string"));
        let lengths = [
            ("LLEN", "list"),
            ("HLEN", "hash"),
            ("SCARD", "set"),
            ("ZCARD", "zset"),
            ("XLEN", "stream"),
        ];
        for (command, kind) in lengths {
            let length = cluster.send(&[command, &key(kind)]);
            assert_eq!(length, Reply::Integer(rounds), "{}", key(kind));
        }
    }
}

#[test]
fn a_reshard_under_writers_loses_no_key() {
    let _alone = crate::forwarding::alone();
    let etcd = Etcd::start("reshard");
    let nodes = three(&etcd);
    let single = etcd.node();
    let (first, last) = (nodes[0].port(), nodes[2].port());
    let first_address = format!("127.0.0.1:{first}");
    let added = format!("127.0.0.1:{}", single.port());
    redis_cli(&["--cluster", "add-node", &added, &first_address]);
    ok(&mut single.client(), "CONFIG SET cluster-endpoint single");
    eventually("it serves", || !ask(&mut single.client(), "GET foo").is_error());
    let stop = AtomicBool::new(false);
    let (routed, forwarded) = std::thread::scope(|scope| {
        let over = SetAtEnd(&stop);
        let routed = scope.spawn(|| write("routed", &mut Routed::new(first), &stop));
        let forwarded = scope.spawn(|| write("forwarded", &mut single.client(), &stop));
        let (from, to) = (id_of(&nodes[0]), id_of(&nodes[2]));
        let words = ["--cluster", "reshard", &first_address, "--cluster-from", &from];
        let more = ["--cluster-to", &to, "--cluster-slots", "150", "--cluster-yes"];
        redis_cli(&[&words[..], &more].concat());
        drop(over);
        (routed.join().expect("it has written"), forwarded.join().expect("it has written"))
    });
    let check = redis_cli(&["--cluster", "check", &first_address]);
    assert!(check.contains("All 16384 slots covered") && !check.contains("WARNING"), "{check}");
    let slots: usize = {
        let nodes = text(ask(&mut nodes[1].client(), "CLUSTER NODES"));
        let line =
            nodes.lines().find(|line| line.contains(&format!(":{last}@"))).expect("it is there");
        let ranges =
            line.split(' ').skip(8).map(|range| range.split_once('-').unwrap_or((range, range)));
        let slot = |text: &str| text.parse::<usize>().expect("a slot");
        ranges.map(|(first, last)| slot(last) - slot(first) + 1).sum()
    };
    assert_eq!(slots, 16384 / 3 + 150);
    for (name, rounds) in [("routed", routed), ("forwarded", forwarded)] {
        verify(name, &mut Routed::new(first), rounds);
        verify(name, &mut single.client(), rounds);
    }
    assert_eq!(database_size(&nodes), 2 * 6 * KEYS as i64);
}

/// Asks for a change until it is made. A busy machine's etcd may have made it, and answered too
/// late.
fn change(client: &mut Client, request: &str) {
    operate_unless(client, request, |why, _| {
        why.contains("already migr") || why.contains("No migrations")
    });
}

fn database_size(nodes: &[Server]) -> i64 {
    let size = |node: &Server| match ask(&mut node.client(), "DBSIZE") {
        Reply::Integer(keys) => keys,
        other => panic!("{other:?}"),
    };
    nodes.iter().map(size).sum()
}

#[test]
fn fix_closes_a_slot_of_which_no_key_has_moved_and_rebalance_moves_slots() {
    let _alone = crate::forwarding::alone();
    let etcd = Etcd::start("fix");
    let nodes = three(&etcd);
    let [mut source, mut target] = [nodes[0].client(), nodes[1].client()];
    for key in ["b", "{b}1", "{b}2"] {
        ok(&mut source, &format!("SET {key} {key}"));
    }
    let (from, to) = (id_of(&nodes[0]), id_of(&nodes[1]));
    change(&mut target, &format!("CLUSTER SETSLOT 3300 IMPORTING {from}"));
    change(&mut source, &format!("CLUSTER SETSLOT 3300 MIGRATING {to}"));
    let address = format!("127.0.0.1:{}", nodes[0].port());
    redis_cli(&["--cluster", "fix", &address]);
    redis_cli(&[
        "--cluster",
        "rebalance",
        &address,
        "--cluster-threshold",
        "1",
        "--cluster-weight",
        &format!("{from}=0.98"),
    ]);
    let check = redis_cli(&["--cluster", "check", &address]);
    assert!(check.contains("All 16384 slots covered") && !check.contains("WARNING"), "{check}");
    let mut client = Routed::new(nodes[0].port());
    for key in ["b", "{b}1", "{b}2"] {
        assert_eq!(client.request(&["GET", key]), Reply::Bulk(key.into()));
    }
}

/// A tool has died after some keys had moved. `fix` gives the slot to the end with more of them,
/// and fetches the others from the other end, which it makes importing.
fn fix_half_moved(name: &str, moved: usize) {
    let _alone = crate::forwarding::alone();
    let etcd = Etcd::start(name);
    let nodes = three(&etcd);
    let [mut source, mut target] = [nodes[0].client(), nodes[1].client()];
    let keys: Vec<String> = (0..20).map(|number| format!("{{b}}{number}")).collect();
    keys.iter().for_each(|key| _ = ok(&mut source, &format!("SET {key} {key}")));
    let (from, to) = (id_of(&nodes[0]), id_of(&nodes[1]));
    change(&mut target, &format!("CLUSTER SETSLOT 3300 IMPORTING {from}"));
    change(&mut source, &format!("CLUSTER SETSLOT 3300 MIGRATING {to}"));
    let port = nodes[1].port();
    for key in &keys[..moved] {
        ok(&mut source, &format!("MIGRATE 127.0.0.1 {port} {key} 0 5000"));
    }
    // The end that imports sends keys on, too.
    assert_eq!(
        ask(&mut target, &format!("MIGRATE 127.0.0.1 {} {{b}}none 0 5000", nodes[0].port())),
        Reply::Simple("NOKEY".into())
    );
    let address = format!("127.0.0.1:{}", nodes[2].port());
    let fixed = redis_cli(&["--cluster", "fix", &address]);
    let check = redis_cli(&["--cluster", "check", &address]);
    assert!(
        check.contains("All 16384 slots covered") && !check.contains("WARNING"),
        "{fixed}\n{check}"
    );
    let mut client = Routed::new(nodes[2].port());
    for key in &keys {
        assert_eq!(client.request(&["GET", key]), Reply::Bulk(key.clone().into()), "{fixed}");
    }
    assert_eq!(database_size(&nodes), keys.len() as i64, "{fixed}");
}

#[test]
fn fix_closes_a_slot_with_most_keys_at_its_source() {
    fix_half_moved("fix-source", 6);
}

#[test]
fn fix_closes_a_slot_with_most_keys_at_its_target() {
    fix_half_moved("fix-target", 14);
}

#[test]
fn requests_for_a_slot_that_moves_key_by_key() {
    let _alone = crate::forwarding::alone();
    let etcd = Etcd::start("set-slot");
    let nodes = three(&etcd);
    let [mut source, mut target] = [nodes[0].client(), nodes[1].client()];
    let (from, to) = (id_of(&nodes[0]), id_of(&nodes[1]));
    // Slot 3300 is that of `b`, and of the first primary.
    for key in ["b", "{b}1", "{b}2", "{b}3"] {
        ok(&mut source, &format!("SET {key} 1"));
    }
    let refusals = [
        (
            &mut target,
            format!("CLUSTER SETSLOT 3300 MIGRATING {from}"),
            "ERR I'm not the owner of hash slot 3300",
        ),
        (
            &mut source,
            format!("CLUSTER SETSLOT 3300 IMPORTING {to}"),
            "ERR I'm already the owner of hash slot 3300",
        ),
    ];
    for (client, request, refusal) in refusals {
        assert_eq!(error(&ask(client, &request)), refusal);
    }
    let refusal = error(&ask(&mut source, "CLUSTER SETSLOT 3300 MIGRATING x"));
    assert_eq!(refusal, "ERR I don't know about node x");
    let keys = format!("CLUSTER SETSLOT 3300 NODE {to}");
    let refusal = "ERR Can't assign hashslot 3300 to a different node while I still hold keys for this hash slot.";
    assert_eq!(error(&ask(&mut source, &keys)), refusal);
    change(&mut target, &format!("CLUSTER SETSLOT 3300 IMPORTING {from}"));
    change(&mut source, &format!("CLUSTER SETSLOT 3300 MIGRATING {to}"));
    let told = |client: &mut Client| text(ask(client, "CLUSTER NODES"));
    assert!(told(&mut source).contains(&format!(" [3300->-{to}]")));
    assert!(told(&mut target).contains(&format!(" [3300-<-{from}]")));

    // One key moves.
    let port = nodes[1].port();
    let words = ["MIGRATE", "127.0.0.1", &port.to_string(), "", "0", "5000", "KEYS", "b", "{b}1"];
    assert_eq!(source.command(&words).expect("it answers"), Reply::Simple(b"OK".to_vec()));
    let sent_on = format!("ASK 3300 127.0.0.1:{port}");
    let moved = format!("MOVED 3300 127.0.0.1:{}", nodes[0].port());
    let again = "TRYAGAIN Multiple keys request during rehashing of slot";
    for request in ["GET b", "SET b 2", "MGET b {b}1", "LPUSH {b}new x"] {
        assert_eq!(error(&ask(&mut source, request)), sent_on, "{request}");
    }
    let eval = source.command(&["EVAL", "return 1", "1", "b"]).expect("it answers");
    assert_eq!(error(&eval), sent_on);
    assert_eq!(text(ask(&mut source, "GET {b}2")), "1");
    assert_eq!(error(&ask(&mut source, "MGET b {b}2")), again);
    assert_eq!(error(&ask(&mut source, "RENAME {b}2 {b}new")), again);

    transactions_and_scripts(&nodes, &mut source, &sent_on);

    // The target answers those that ask.
    assert_eq!(error(&ask(&mut target, "GET b")), moved);
    ok(&mut target, "ASKING");
    assert_eq!(text(ask(&mut target, "GET b")), "1");
    assert_eq!(error(&ask(&mut target, "GET b")), moved);
    ok(&mut target, "ASKING");
    assert_eq!(error(&ask(&mut target, "MGET b {b}3")), again);
    ok(&mut target, "ASKING");
    ok(&mut target, "MULTI");
    ok(&mut target, "INCR b");
    ok(&mut target, "SET {b}1 2");
    assert_eq!(list(&ask(&mut target, "EXEC")).len(), 2);
    assert_eq!(error(&ask(&mut target, "GET b")), moved);

    // A client that waits at the source is sent away when the slot has moved.
    let words = ["MIGRATE", "127.0.0.1", &port.to_string(), "{b}3", "0", "5000"];
    assert_eq!(source.command(&words).expect("it answers"), Reply::Simple(b"OK".to_vec()));
    assert_eq!(ask(&mut source, "CLUSTER COUNTKEYSINSLOT 3300"), Reply::Integer(0));
    change(&mut target, &format!("CLUSTER SETSLOT 3300 NODE {to}"));
    change(&mut source, &format!("CLUSTER SETSLOT 3300 NODE {to}"));
    ok(&mut nodes[2].client(), &format!("CLUSTER SETSLOT 3300 NODE {to}"));
    assert_eq!(text(ask(&mut target, "GET b")), "2");
    assert_eq!(error(&ask(&mut source, "GET b")), format!("MOVED 3300 127.0.0.1:{port}"));
    assert!(!told(&mut source).contains("->-") && !told(&mut target).contains("-<-"));
}

/// The keys `b` and `{b}1` have moved from the source to the second node; `{b}2` and `{b}3` have
/// not.
fn transactions_and_scripts(nodes: &[Server], source: &mut Client, sent_on: &str) {
    let port = nodes[1].port();
    // A transaction: all its keys are here, none, or some.
    for (key, reply) in [("{b}2", None), ("b", Some(sent_on))] {
        ok(source, "MULTI");
        ok(source, &format!("DEL {key}"));
        ok(source, &format!("SET {key} 1"));
        let found = ask(source, "EXEC");
        match reply {
            None => assert_eq!(list(&found).len(), 2),
            Some(line) => assert_eq!(error(&found), line),
        }
        assert_eq!(error(&ask(source, "EXEC")), "ERR EXEC without MULTI");
    }
    ok(source, "WATCH {b}2");
    let words = ["MIGRATE", "127.0.0.1", &port.to_string(), "{b}2", "0", "5000"];
    assert_eq!(
        nodes[0].client().command(&words).expect("it answers"),
        Reply::Simple(b"OK".to_vec())
    );
    ok(source, "MULTI");
    ok(source, "SET {b}3 2");
    let reply = ask(source, "EXEC");
    assert!(!matches!(&reply, Reply::Array(_)), "{reply:?}");

    // A script's declared keys were here when it began.
    let words =
        ["EVAL", "redis.call('DEL', KEYS[1]) return redis.call('INCR', KEYS[1])", "1", "{b}3"];
    assert_eq!(source.command(&words).expect("it answers"), Reply::Integer(1));
    let words = ["EVAL", "return redis.call('GET', 'b')", "1", "{b}3"];
    let refusal = error(&source.command(&words).expect("it answers"));
    assert!(refusal.contains("non local key"), "{refusal}");
}

/// Keys of a transaction are looked for in the databases that it selects. What makes a key in
/// another database waits: whether it is there already, at the other end, is not known.
#[test]
fn requests_for_several_databases_of_a_slot_that_moves_key_by_key() {
    let _alone = crate::forwarding::alone();
    let etcd = Etcd::start("set-slot-databases");
    let nodes = three_with(&etcd, &["--cluster-databases", "4"]);
    let [mut source, mut target] = [nodes[0].client(), nodes[1].client()];
    let (from, to) = (id_of(&nodes[0]), id_of(&nodes[1]));
    ok(&mut source, "SET b 1");
    ok(&mut source, "SELECT 1");
    ok(&mut source, "SET {b}1 1");
    ok(&mut source, "SELECT 0");
    change(&mut target, &format!("CLUSTER SETSLOT 3300 IMPORTING {from}"));
    change(&mut source, &format!("CLUSTER SETSLOT 3300 MIGRATING {to}"));
    let exec = |client: &mut Client, requests: &[&str]| {
        ok(client, "MULTI");
        requests.iter().for_each(|request| _ = ok(client, *request));
        ask(client, "EXEC")
    };
    let again = "TRYAGAIN Multiple keys request during rehashing of slot";
    let replies = exec(&mut source, &["EXISTS b", "SELECT 1", "EXISTS {b}1"]);
    assert_eq!(list(&replies)[0], Reply::Integer(1));
    assert_eq!(list(&replies)[2], Reply::Integer(1));
    ok(&mut source, "SELECT 0");
    let replies = exec(&mut source, &["EXISTS b", "SELECT 2", "EXISTS {b}1"]);
    assert_eq!(error(&replies), again);
    assert_eq!(text(ask(&mut source, "GET b")), "1", "the selected database is that of before");
    for request in ["MOVE b 2", "COPY b {b}2 DB 2", "COPY b b REPLACE DB 1"] {
        assert_eq!(error(&ask(&mut source, request)), again, "{request}");
    }
    assert_eq!(error(&ask(&mut source, "COPY b {b}2 DB")), again, "one of the keys is absent");
    ok(&mut source, "SET b 2");
    change(&mut source, "CLUSTER SETSLOT 3300 STABLE");
    change(&mut target, "CLUSTER SETSLOT 3300 STABLE");
    assert_eq!(ask(&mut source, "MOVE b 2"), Reply::Integer(1));

    // While a slot has no node, channels of others can be used, and keys cannot.
    change(&mut source, "CLUSTER DELSLOTS 3301");
    assert!(error(&ask(&mut source, "EXISTS b")).starts_with("CLUSTERDOWN "));
    let mut listener = nodes[0].client();
    assert!(!ask(&mut listener, "SSUBSCRIBE b").is_error());
    ok(&mut source, "CONFIG SET cluster-allow-pubsubshard-when-down no");
    let refused = error(&ask(&mut nodes[0].client(), "SSUBSCRIBE b"));
    assert!(refused.starts_with("CLUSTERDOWN "), "{refused}");
}

/// Another server would answer for its own shard twice.
#[test]
fn what_concerns_all_shards_is_not_answered_without_one_of_them() {
    let _alone = crate::forwarding::alone();
    let etcd = Etcd::start("without-one");
    let mut nodes = three(&etcd);
    let single = etcd.node();
    let added = format!("127.0.0.1:{}", single.port());
    redis_cli(&["--cluster", "add-node", &added, &format!("127.0.0.1:{}", nodes[0].port())]);
    ok(&mut single.client(), "CONFIG SET cluster-endpoint single");
    eventually("it serves", || !ask(&mut single.client(), "GET foo").is_error());
    let mut client = single.client();
    (0..100).for_each(|number| _ = ok(&mut client, &format!("SET {number} {number}")));
    assert_eq!(ask(&mut client, "DBSIZE"), Reply::Integer(100));
    nodes[2].kill().expect("it runs");
    for request in ["DBSIZE", "KEYS *", "FLUSHALL"] {
        let reply = ask(&mut single.client(), request);
        assert!(reply.is_error(), "{request}: {reply:?}");
    }
    let mut cursor = "0".to_owned();
    let walked = (0..1000).any(|_| {
        let reply = ask(&mut single.client(), &format!("SCAN {cursor} COUNT 1000"));
        if reply.is_error() {
            return false;
        }
        cursor = list(&reply)[0].shown();
        cursor == "0"
    });
    assert!(!walked, "SCAN has passed a shard over");
}

pub(super) mod jobs;
mod phases;
mod waiting;

/// As `redis-cli --cluster fix` gives a slot to the node that is to have it.
#[test]
fn owners_of_slots_change_in_a_transaction() {
    let _alone = crate::forwarding::alone();
    let etcd = Etcd::start("move-together");
    let nodes = three(&etcd);
    let [mut source, mut target] = [nodes[0].client(), nodes[2].client()];
    let exec = |client: &mut Client, requests: &[&str]| {
        ok(client, "MULTI");
        requests.iter().for_each(|request| _ = ok(client, *request));
        ask(client, "EXEC")
    };
    // Slot 3300 is that of `b`.
    ok(&mut source, "SET b 1");
    let take = ["CLUSTER DELSLOTS 3300", "CLUSTER ADDSLOTS 3300", "CLUSTER BUMPEPOCH"];
    for client in [&mut source, &mut target] {
        let replies = exec(client, &take);
        let [first, second, Reply::Simple(epoch)] = list(&replies) else { panic!("{replies:?}") };
        assert!(!first.is_error() && !second.is_error() && epoch.starts_with(b"STILL "));
        ok(client, "SET b 2");
    }
    // Its view may be a moment behind.
    eventually("the former owner knows", || match ask(&mut source, "GET b") {
        Reply::Error(line) => line.starts_with(b"MOVED 3300 "),
        _ => false,
    });
    // One that is refused leaves the others as they are.
    let replies = exec(&mut source, &["CLUSTER ADDSLOTS 3300", "CLUSTER SETSLOT 3300 STABLE"]);
    let [refused, done] = list(&replies) else { panic!("{replies:?}") };
    assert_eq!(error(refused), "ERR Slot 3300 is already busy");
    assert!(!done.is_error());
}

//! What one client does to others and to scripts, whichever nodes these are connected to, and
//! wherever their commands wait or run.

use super::{KEYS, alone, bulk, node_of, one_address};
use harness::client::{Client, ask, ok};
use harness::cluster::{Etcd, error, text};
use harness::reply::{Protocol, Reply};
use harness::server::{Server, signal};
use harness::wait::eventually;
use std::collections::BTreeSet;

/// A client of a node, and its number.
fn numbered(node: &Server) -> (Client, i64) {
    let mut client = node.client();
    match ask(&mut client, "CLIENT ID") {
        Reply::Integer(id) => (client, id),
        other => panic!("no number: {other:?}"),
    }
}

fn until_blocked(node: &Server, clients: usize) {
    let line = format!("blocked_clients:{clients}\r\n");
    eventually("clients wait", || text(ask(&mut node.client(), "INFO clients")).contains(&line));
}

fn is_closed(client: &mut Client) -> bool {
    client.reply().is_err()
}

#[test]
fn clients_of_all_nodes_are_listed_unblocked_and_closed_by_any_client() {
    let _alone = alone();
    let etcd = Etcd::start("clients");
    // A node that stands still for some seconds stays what it is.
    let nodes = one_address(&etcd, &["--cluster-lease", "30"]);
    let numbers: BTreeSet<i64> = nodes.iter().map(|node| numbered(node).1).collect();
    assert_eq!(numbers.len(), nodes.len(), "no number is of two clients");
    assert!(numbers.iter().all(|&number| number < 1 << 53));
    listed(&nodes);
    for key in KEYS {
        let key = format!("{{{key}}}list");
        let primary = node_of(&nodes, &key);
        // A node that leads, a replica, and one without a slot.
        for home in [&nodes[0], &nodes[3], &nodes[6]] {
            for asker in [home, &nodes[1], &nodes[5], &nodes[6]] {
                unblocked(home, asker, primary, &key);
            }
            for asker in [home, &nodes[4], &nodes[6]] {
                closed(home, asker, primary, &key);
            }
        }
    }
    filters(&nodes);
    unblocked_everywhere(&nodes);
    for hung in [1, 5] {
        one_stands_still(&nodes, hung);
    }
}

fn listed(nodes: &[Server]) {
    let mut clients: Vec<(Client, i64)> = nodes.iter().map(numbered).collect();
    let expected: BTreeSet<String> = clients.iter().map(|(_, id)| format!("id={id} ")).collect();
    for protocol in [Protocol::Resp2, Protocol::Resp3] {
        let mut asker = nodes[6].connect(protocol).expect("it listens");
        let all = text(ask(&mut asker, "CLIENT LIST"));
        assert!(expected.iter().all(|id| all.contains(id)), "{all}");
        let ids: Vec<String> = clients.iter().map(|(_, id)| id.to_string()).collect();
        let some = text(ask(&mut asker, &format!("CLIENT LIST ID {}", ids[1..].join(" "))));
        assert_eq!(some.lines().count(), ids.len() - 1, "{some}");
        assert!(some.lines().all(|line| expected.iter().any(|id| line.starts_with(id))), "{some}");
    }
    let (client, id) = &mut clients[0];
    assert!(text(ask(client, "CLIENT LIST SKIPME yes")).lines().count() >= nodes.len() - 1);
    assert!(!text(ask(client, "CLIENT LIST SKIPME yes")).contains(&format!("id={id} ")));
}

/// Clients of one node that wait for a key are unblocked by one of another.
fn unblocked(home: &Server, asker: &Server, primary: &Server, key: &str) {
    let (mut waiting, id) = numbered(home);
    let mut asker = asker.client();
    for (reason, expected) in [("", None), (" TIMEOUT", None), (" ERROR", Some("UNBLOCKED"))] {
        waiting.send(&["BLPOP", key, "0"]).expect("it is sent");
        until_blocked(primary, 1);
        let line = text(ask(&mut asker, &format!("CLIENT LIST ID {id}")));
        assert!(line.contains(" flags=b"), "{line}");
        assert_eq!(ask(&mut asker, &format!("CLIENT UNBLOCK {id}{reason}")), Reply::Integer(1));
        let reply = waiting.reply().expect("it is answered");
        match expected {
            None => assert_eq!(reply, Reply::NilArray),
            Some(code) => assert!(error(&reply).starts_with(code), "{reply:?}"),
        }
        // From the reply to CLIENT UNBLOCK on the key is for others.
        assert_eq!(ask(&mut asker, &format!("CLIENT UNBLOCK {id}")), Reply::Integer(0));
        assert_eq!(ask(&mut waiting, "PING"), Reply::Simple(b"PONG".to_vec()));
    }
    assert!(error(&ask(&mut asker, &format!("CLIENT UNBLOCK {id} x"))).starts_with("ERR CLIENT"));
}

/// A client that waits is closed, and what is pushed then stays.
fn closed(home: &Server, asker: &Server, primary: &Server, key: &str) {
    let (mut waiting, id) = numbered(home);
    waiting.send(&["BLPOP", key, "0"]).expect("it is sent");
    until_blocked(primary, 1);
    let mut asker = asker.client();
    assert_eq!(ask(&mut asker, &format!("CLIENT KILL ID {id}")), Reply::Integer(1));
    assert_eq!(ask(&mut primary.client(), &format!("RPUSH {key} x")), Reply::Integer(1));
    assert_eq!(ask(&mut asker, &format!("LPOP {key}")), bulk("x"));
    assert!(is_closed(&mut waiting));
    until_blocked(primary, 0);
    assert_eq!(ask(&mut asker, &format!("CLIENT KILL ID {id}")), Reply::Integer(0));
}

fn filters(nodes: &[Server]) {
    let mut asker = nodes[6].client();
    let mut named: Vec<Client> = nodes.iter().map(|node| node.client()).collect();
    for client in &mut named {
        ok(client, "CLIENT SETNAME victim");
    }
    let all = Reply::Integer(nodes.len() as i64);
    assert_eq!(ask(&mut asker, "CLIENT KILL NAME victim"), all);
    assert!(named.iter_mut().all(is_closed));
    // A user that only this node knows. Others have no clients of it.
    ok(&mut asker, "ACL SETUSER bob on nopass +@all ~*");
    let mut bob = nodes[6].client();
    ok(&mut bob, "AUTH bob any");
    let line = text(ask(&mut asker, "CLIENT LIST USER bob"));
    assert!(line.contains(" user=bob ") && line.lines().count() == 1, "{line}");
    assert_eq!(ask(&mut asker, "CLIENT KILL USER bob"), Reply::Integer(1));
    assert!(is_closed(&mut bob));
    assert_eq!(ask(&mut asker, "ACL DELUSER bob"), Reply::Integer(1));
    let mut victim = nodes[2].client();
    let line = text(ask(&mut victim, "CLIENT INFO"));
    let addr = line.split(' ').find_map(|word| word.strip_prefix("addr=")).expect("an address");
    ok(&mut asker, &format!("CLIENT KILL {addr}"));
    assert!(is_closed(&mut victim));
    assert_eq!(error(&ask(&mut asker, &format!("CLIENT KILL {addr}"))), "ERR No such client");
    // Links between nodes are no clients: all goes on.
    let mut other = nodes[1].client();
    let killed = ask(&mut asker, "CLIENT KILL TYPE normal");
    assert!(matches!(killed, Reply::Integer(1..)), "{killed:?}");
    assert!(is_closed(&mut other));
    for key in KEYS {
        ok(&mut asker, &format!("SET {key} 1"));
    }
    for word in ["", " ERROR"] {
        let (mut waiting, id) = numbered(&nodes[0]);
        waiting.send(&["WAIT", "5", "0"]).expect("it is sent");
        let unblock = format!("CLIENT UNBLOCK {id}{word}");
        eventually("it is unblocked", || ask(&mut asker, &unblock) == Reply::Integer(1));
        let reply = waiting.reply().expect("it is answered");
        assert_eq!(reply.is_error(), !word.is_empty(), "{reply:?}");
        assert_eq!(ask(&mut waiting, "PING"), Reply::Simple(b"PONG".to_vec()));
    }
}

/// WAIT is on its way to a primary that stands still when CLIENT UNBLOCK ends it at the others.
fn unblocked_everywhere(nodes: &[Server]) {
    let late = node_of(nodes, KEYS[1]);
    let others = [KEYS[0], KEYS[2]].map(|key| node_of(nodes, key));
    let home = others[0];
    let mut asker = home.client();
    for request in ["WAIT 5 0", "WAITAOF 0 5 0"] {
        let (mut waiting, id) = numbered(home);
        assert_eq!(ask(&mut asker, &format!("CLIENT UNBLOCK {id}")), Reply::Integer(0));
        signal(late.process_id(), "STOP").expect("it runs");
        waiting.send(&request.split(' ').collect::<Vec<_>>()).expect("it is sent");
        until_blocked(others[1], 1);
        asker.send(&["CLIENT", "UNBLOCK", &id.to_string()]).expect("it is sent");
        until_blocked(others[1], 0);
        signal(late.process_id(), "CONT").expect("it is there");
        assert_eq!(asker.reply().expect("it is answered"), Reply::Integer(1));
        let reply = waiting.reply().expect("it is answered");
        assert!(!reply.is_error(), "{reply:?}");
        until_blocked(late, 0);
    }
}

/// The answers are those of the nodes that answer, unless what is asked about may be at the other.
fn one_stands_still(nodes: &[Server], hung: usize) {
    let clients: Vec<(Client, i64)> = nodes.iter().map(numbered).collect();
    let mut victims = [nodes[0].client(), nodes[hung].client()];
    for victim in &mut victims {
        ok(victim, "CLIENT SETNAME victim");
    }
    let mut asker = nodes[6].client();
    let listed = |asker: &mut Client, at: usize| {
        text(ask(asker, "CLIENT LIST")).contains(&format!("id={} ", clients[at].1))
    };
    assert!((0..nodes.len()).all(|at| listed(&mut asker, at)));
    signal(nodes[hung].process_id(), "STOP").expect("it runs");
    eventually("the others' clients are listed", || {
        (0..nodes.len()).filter(|&at| at != hung).all(|at| listed(&mut asker, at))
    });
    assert!(!listed(&mut asker, hung));
    assert_eq!(ask(&mut asker, "CLIENT KILL NAME victim"), Reply::Integer(1));
    for request in ["CLIENT KILL ID 7", "CLIENT KILL 10.0.0.1:7", "CLIENT UNBLOCK 7"] {
        let unknown = error(&ask(&mut asker, request));
        assert!(unknown.starts_with("NOREPLY server "), "{request}: {unknown}");
    }
    let idle = error(&ask(&mut asker, "SCRIPT KILL"));
    assert!(idle.starts_with("NOTBUSY"), "{idle}");
    signal(nodes[hung].process_id(), "CONT").expect("it is there");
    eventually("all are listed again", || (0..nodes.len()).all(|at| listed(&mut asker, at)));
    assert_eq!(ask(&mut asker, "CLIENT KILL NAME victim"), Reply::Integer(1));
}

/// Begins a script that does not end, and waits until others are told so.
fn begin(node: &Server, primary: &Server, script: &str, key: &str) -> Client {
    let mut client = node.client();
    // From the first run on it is known that it touches its key alone.
    client.command(&["EVAL", script, "1", key, "ends"]).expect("it is answered");
    client.send(&["EVAL", script, "1", key]).expect("it is sent");
    eventually("a request for the script's key is refused", || {
        error_or_none(&ask(&mut primary.client(), &format!("GET {key}"))).starts_with("BUSY")
    });
    client
}

fn error_or_none(reply: &Reply) -> String {
    if reply.is_error() { error(reply) } else { String::new() }
}

const ENDLESS: &str = "redis.call('GET', KEYS[1]) while #ARGV == 0 do end return 1";
const WRITES: &str = "redis.call('SET', KEYS[1], 1) while #ARGV == 0 do end return 1";

#[test]
fn scripts_are_ended_at_whatever_node_they_run() {
    let _alone = alone();
    let etcd = Etcd::start("kill-scripts");
    let nodes = one_address(&etcd, &["--busy-reply-threshold", "100", "--cluster-databases", "2"]);
    let mut asker = nodes[6].client();
    ok(&mut asker, "SELECT 1");
    for request in ["SCRIPT KILL", "FUNCTION KILL"] {
        let idle = error(&ask(&mut asker, request));
        assert!(idle.starts_with("NOTBUSY"), "{request}: {idle}");
    }
    for key in KEYS {
        let primary = node_of(&nodes, key);
        for home in [&nodes[0], &nodes[3]] {
            let mut running = begin(home, primary, ENDLESS, key);
            let wrong = error(&ask(&mut asker, "FUNCTION KILL"));
            assert!(wrong.starts_with("BUSY"), "{wrong}");
            ok(&mut asker, "SCRIPT KILL");
            let killed = error(&running.reply().expect("it is answered"));
            assert!(killed.contains("Script killed by user"), "{killed}");
        }
    }
    // Without a key it runs where its client is, here at a replica.
    let replica = nodes.iter().find(|node| {
        text(ask(&mut node.client(), "INFO replication")).contains("cluster_copy_role:replica")
    });
    let replica = replica.expect("three are replicas");
    let mut running = replica.client();
    running.send(&["EVAL", "while true do end", "0"]).expect("it is sent");
    eventually("it is ended", || ask(&mut asker, "SCRIPT KILL") == Reply::Simple(b"OK".to_vec()));
    assert!(error(&running.reply().expect("it is answered")).contains("Script killed by user"));

    let library = "#!lua name=l\nredis.register_function('f', function() while true do end end)";
    assert_eq!(asker.command(&["FUNCTION", "LOAD", library]).expect("a reply"), bulk("l"));
    let mut running = nodes[0].client();
    running.send(&["FCALL", "f", "1", "foo"]).expect("it is sent");
    let is_ended = || ask(&mut asker, "FUNCTION KILL") == Reply::Simple(b"OK".to_vec());
    eventually("it is ended", is_ended);
    assert!(error(&running.reply().expect("it is answered")).contains("Script killed by user"));

    // The last: only a restart ends it.
    let _running = begin(&nodes[6], node_of(&nodes, "foo"), WRITES, "foo");
    let refused = error(&ask(&mut asker, "SCRIPT KILL"));
    assert!(refused.starts_with("UNKILLABLE"), "{refused}");
}

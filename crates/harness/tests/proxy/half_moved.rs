//! Transactions at a real Valkey Cluster while their slot stands half moved.

use crate::clusters::Cluster;
use crate::support::{dunlin, okay, text};
use harness::client::{Client, ask};
use harness::reply::{Protocol, Reply};

const NODE_TIMEOUT: &str = "60000";

/// Sends MULTI, requests, and EXEC. Returns EXEC's reply.
fn transact(client: &mut Client, requests: &[&str]) -> Reply {
    assert_eq!(ask(client, &["MULTI"]), okay());
    for request in requests {
        let words: Vec<&str> = request.split(' ').collect();
        let queued = ask(client, &words[..]);
        assert_eq!(text(&queued), "QUEUED", "{request}: {queued:?}");
    }
    ask(client, &["EXEC"])
}

fn array(replies: &[Reply]) -> Reply {
    Reply::Array(replies.to_vec())
}

fn bulk(text: &str) -> Reply {
    Reply::Bulk(text.as_bytes().to_vec())
}

#[test]
fn a_transaction_whose_slot_stands_half_moved_runs_or_says_to_try_again() {
    if dunlin().is_none() {
        return;
    }
    let Some(cluster) = Cluster::start(NODE_TIMEOUT) else { return };
    let proxy = cluster.proxy("");
    let mut client = proxy.client(Protocol::Resp2);
    for (key, value) in [("{h}gone", "1"), ("{h}here", "2")] {
        assert_eq!(ask(&mut client, &["SET", key, value]), okay());
    }
    let slot = ask(&mut cluster.nodes[0].client(), &["CLUSTER", "KEYSLOT", "{h}"]);
    let Reply::Integer(slot) = slot else { panic!("{slot:?}") };
    let slot = slot.to_string();
    let mut nodes: Vec<(Client, String, u16)> = cluster
        .nodes
        .iter()
        .filter_map(|node| {
            let mut client = node.client();
            let role = ask(&mut client, &["INFO", "replication"]);
            let id = text(&ask(&mut client, &["CLUSTER", "MYID"]));
            text(&role).contains("role:master").then_some((client, id, node.port()))
        })
        .collect();
    let has_keys = |node: &mut (Client, String, u16)| {
        ask(&mut node.0, &["CLUSTER", "COUNTKEYSINSLOT", &slot]) == Reply::Integer(2)
    };
    let at = nodes.iter_mut().position(has_keys).expect("a primary has the keys");
    let (mut old, old_id, _) = nodes.swap_remove(at);
    let (mut new, new_id, new_port) = nodes.remove(0);
    assert_eq!(ask(&mut new, &["CLUSTER", "SETSLOT", &slot, "IMPORTING", &old_id]), okay());
    assert_eq!(ask(&mut old, &["CLUSTER", "SETSLOT", &slot, "MIGRATING", &new_id]), okay());
    let port = new_port.to_string();
    let mut migrate = |key: &str| ask(&mut old, &["MIGRATE", "127.0.0.1", &port, key, "0", "5000"]);
    assert_eq!(migrate("{h}gone"), okay());

    // Each key by itself is at one of the two.
    assert_eq!(transact(&mut client, &["GET {h}gone"]), array(&[bulk("1")]));
    assert_eq!(transact(&mut client, &["INCR {h}here"]), array(&[Reply::Integer(3)]));
    assert_eq!(transact(&mut client, &["INCR {h}new"]), array(&[Reply::Integer(1)]));
    // Both together are nowhere. EXEC says so in words that a client knows, and nothing has run.
    let both: [&[&str]; 2] =
        [&["INCR {h}here", "INCR {h}gone"], &["SET {h}other 1", "MGET {h}here {h}gone"]];
    for requests in both {
        let told = text(&transact(&mut client, requests));
        assert!(told.starts_with("TRYAGAIN "), "{requests:?}: {told}");
    }
    assert_eq!(text(&ask(&mut client, &["GET", "{h}here"])), "3");
    assert_eq!(text(&ask(&mut client, &["GET", "{h}gone"])), "1");
    assert!(ask(&mut client, &["GET", "{h}other"]).is_nil());

    // When the slot has moved as a whole, they run.
    assert_eq!(migrate("{h}here"), okay());
    for node in [&mut new, &mut old] {
        assert_eq!(ask(node, &["CLUSTER", "SETSLOT", &slot, "NODE", &new_id]), okay());
    }
    let done = transact(&mut client, both[0]);
    assert_eq!(done, array(&[Reply::Integer(4), Reply::Integer(2)]));
}

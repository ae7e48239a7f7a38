//! SCAN over all shards whose pages are asked of different nodes, while other copies come to lead.

use harness::client::{ask, ok};
use harness::cluster::{Etcd, list, six, text};
use harness::server::Server;
use harness::wait::eventually;
use std::collections::BTreeSet;

/// Returns whether a node's copy is a replica.
fn is_replica(node: &Server) -> bool {
    text(ask(&mut node.client(), "INFO replication")).contains("cluster_copy_role:replica")
}

/// Hands the shard of a replica over to it.
fn switch(replica: &Server) {
    let mut client = replica.client();
    ok(&mut client, "CLIENT CAPA cluster");
    // A switch is given up if etcd does not answer in time; an order during one is refused.
    eventually("the replica leads", || {
        ask(&mut client, "CLUSTER FAILOVER");
        !is_replica(replica)
    });
}

#[test]
fn a_walk_goes_on_at_other_nodes_and_through_switches() {
    let _alone = crate::forwarding::alone();
    let etcd = Etcd::start("scanning");
    let nodes = six(&etcd);
    for node in &nodes {
        ok(&mut node.client(), "CONFIG SET cluster-endpoint single");
    }
    let expected: BTreeSet<String> = (0..300).map(|at| format!("key:{at}")).collect();
    let pairs: Vec<String> = expected.iter().map(|key| format!("{key} 1")).collect();
    ok(&mut nodes[0].client(), &format!("MSET {}", pairs.join(" ")));
    for first in 0..3 {
        let replicas: Vec<&Server> = nodes.iter().filter(|node| is_replica(node)).collect();
        let (mut cursor, mut found) = ("0".to_owned(), BTreeSet::new());
        for page in 0.. {
            // Each shard has about fifteen pages, so it is switched before, in and after its own.
            if page % 15 == 2
                && let Some(at) = (0..3).nth(page / 15)
            {
                switch(replicas[(first + at) % 3]);
            }
            let mut client = nodes[page % nodes.len()].client();
            let reply = ask(&mut client, &format!("SCAN {cursor} COUNT 7"));
            let [next, keys] = list(&reply) else { panic!("no page: {reply:?}") };
            found.extend(list(keys).iter().cloned().map(text));
            cursor = text(next.clone());
            if cursor == "0" {
                break;
            }
        }
        let missed: Vec<_> = expected.difference(&found).collect();
        assert!(missed.is_empty(), "{} missed: {missed:?}", missed.len());
    }
}

//! What operators ask of single nodes: to stand alone, to begin anew, to go down.

use harness::client::{Client, ask, ok};
use harness::cluster::{Etcd, error, list, operate, six, text};
use harness::reply::Reply;
use harness::server::Server;
use harness::wait::eventually;

/// The node at which a replica's primary is, and the replica.
fn primary_and_replica(nodes: &[Server]) -> (&Server, &Server) {
    let replica = &nodes[3];
    let role = ask(&mut replica.client(), "ROLE");
    let Reply::Integer(port) = list(&role)[2] else { panic!("{role:?}") };
    let primary = nodes.iter().find(|node| i64::from(node.port()) == port);
    (primary.expect("it is one of them"), replica)
}

fn role(client: &mut Client) -> String {
    text(list(&ask(client, "ROLE"))[0].clone())
}

/// A node that has all slots and serves, and a client of it.
fn whole(etcd: &Etcd) -> (Server, Client) {
    let node = etcd.node_with(&[]);
    let mut client = node.client();
    operate(&mut client, "CLUSTER ADDSLOTSRANGE 0 16383");
    eventually("it serves", || !ask(&mut client, "SET foo 1").is_error());
    (node, client)
}

#[test]
fn a_replica_stands_alone_and_begins_anew() {
    let etcd = Etcd::start("alone");
    let nodes = six(&etcd);
    let (primary, replica) = primary_and_replica(&nodes);
    let [mut first, mut second] = [primary.client(), replica.client()];
    let key = ["a", "b", "c"]
        .into_iter()
        .find(|key| !ask(&mut first, &format!("SET {key} 1")).is_error());
    let key = key.expect("they are on three shards");
    let id = text(ask(&mut first, "CLUSTER MYID"));
    let shard = text(ask(&mut first, "CLUSTER MYSHARDID"));
    assert!(
        error(&ask(&mut second, "CLUSTER REPLICATE NO TWO")).starts_with("ERR unknown subcommand")
    );
    ok(&mut first, "CLUSTER REPLICATE NO ONE");
    for request in ["CLUSTER REPLICATE NO ONE", "CLUSTER RESET"] {
        eventually("the replica has the key", || ask(&mut second, "DBSIZE") == Reply::Integer(1));
        ok(&mut second, request);
        assert_eq!(role(&mut second), "master", "{request}");
        assert_eq!(ask(&mut second, "DBSIZE"), Reply::Integer(0), "{request}");
        assert_ne!(text(ask(&mut second, "CLUSTER MYSHARDID")), shard, "{request}");
        assert_eq!(ask(&mut first, &format!("GET {key}")), Reply::Bulk(b"1".to_vec()));
        // FORGET of a node that has left by itself has nothing to do.
        let name = text(ask(&mut second, "CLUSTER MYID"));
        ok(&mut nodes[4].client(), &format!("CLUSTER FORGET {name}"));
        ok(&mut second, &format!("CLUSTER MEET 127.0.0.1 {}", primary.port()));
        ok(&mut second, &format!("CLUSTER REPLICATE {id}"));
    }
    eventually("it is a replica again", || role(&mut second) == "slave");
}

#[test]
fn a_transaction_has_its_keys_and_shard_channels_in_one_slot() {
    let etcd = Etcd::start("channels");
    let (_node, mut client) = whole(&etcd);
    let mut run = |requests: &[&str]| {
        ok(&mut client, "MULTI");
        for &request in requests {
            assert_eq!(ask(&mut client, request), Reply::Simple(b"QUEUED".to_vec()));
        }
        ask(&mut client, "EXEC")
    };
    for crossing in [&["SPUBLISH ch1 x", "GET foo"], &["SPUBLISH ch1 x", "SPUBLISH foo x"]] {
        let refused = error(&run(crossing));
        assert!(refused.starts_with("CROSSSLOT"), "{crossing:?}: {refused}");
    }
    let one = run(&["SPUBLISH foo x", "GET foo", "SPUBLISH {foo}1 x"]);
    assert_eq!(
        one,
        Reply::Array(vec![Reply::Integer(0), Reply::Bulk(b"1".to_vec()), Reply::Integer(0),])
    );
}

/// valkey-cli of Valkey 9.1 sends a keyword with the zero behind it.
#[test]
fn jobs_of_valkey_cli_are_read() {
    let etcd = Etcd::start("zero");
    let (_node, mut client) = whole(&etcd);
    let id = text(ask(&mut client, "CLUSTER MYID"));
    let mut refused = |keyword: &str| {
        let request = ["CLUSTER", "MIGRATESLOTS", keyword, "0", "0", "NODE", &id];
        error(&client.command(&request).expect("it is answered"))
    };
    let expected = refused("SLOTSRANGE");
    assert!(!expected.contains("syntax"), "{expected}");
    assert_eq!(refused("SLOTSRANGE\0"), expected);
    assert!(refused("SLOTSRANGES").contains("syntax"));
}

#[test]
fn a_primary_with_slots_is_not_shut_down_safely_unless_it_can_hand_over() {
    let etcd = Etcd::start("safe");
    let node = etcd.node_with(&[]);
    let mut client = node.client();
    operate(&mut client, "CLUSTER ADDSLOTSRANGE 0 16383");
    let refused = error(&ask(&mut client, "SHUTDOWN SAFE"));
    assert!(refused.starts_with("ERR Errors trying to SHUTDOWN"), "{refused}");
    ok(&mut client, "CLUSTER FLUSHSLOTS");
    client.send(&["SHUTDOWN", "SAFE", "FAILOVER"]).expect("it is sent");
    assert!(client.reply().is_err(), "it has ended");
}

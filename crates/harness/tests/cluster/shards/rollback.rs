//! etcd is started again with the files of a backup: it has forgotten the last primary, and
//! which shard had which slots.

use crate::shards::faults::{QUORUM, Writers, primary, shard_of};
use harness::client::{ask, ok};
use harness::cluster::{Etcd, error, operate, text};
use harness::reply::Reply;
use harness::server::Server;
use harness::wait::eventually;

/// Whether a node has found out.
fn knows(node: &Server) -> bool {
    text(ask(&mut node.client(), "CLUSTER INFO")).contains("cluster_coordinator_rolled_back:")
}

fn serves(node: &Server) -> bool {
    text(ask(&mut node.client(), "CLUSTER INFO")).contains("cluster_state:ok")
}

#[test]
fn a_shard_whose_fail_over_etcd_has_forgotten_elects_again_and_loses_nothing() {
    let mut etcd = Etcd::start("rolled-back");
    let mut nodes = shard_of((0..3).map(|_| etcd.node_with(&QUORUM)).collect());
    let writers = Writers::start(&nodes);
    writers.go_on();
    etcd.back_up();
    writers.go_on();
    nodes[0].kill().expect("it runs");
    primary(&nodes, |at| at > 0);
    writers.go_on();
    nodes[0].start_again().expect("it starts");
    eventually("all copies are members", || {
        let at = primary(&nodes, |_| true);
        ask(&mut nodes[at].client(), "WAIT 2 100") == Reply::Integer(2)
    });
    writers.go_on();

    etcd.roll_back();
    eventually("all nodes know", || nodes.iter().all(knows));
    primary(&nodes, |_| true);
    writers.go_on();
    eventually("all nodes serve", || nodes.iter().all(serves));
    writers.check(&nodes);
    // The next fail-over is an ordinary one.
    let writers = Writers::start(&nodes);
    writers.go_on();
    let leader = primary(&nodes, |_| true);
    eventually("the others have everything", || {
        ask(&mut nodes[leader].client(), "WAIT 2 100") == Reply::Integer(2)
    });
    nodes[leader].kill().expect("it runs");
    primary(&nodes, |at| at != leader);
    writers.go_on();
    nodes[leader].start_again().expect("it starts");
    writers.check(&nodes);
}

/// Its files are of before the fail-over, and the process that was the primary then starts in that
/// moment.
#[test]
fn a_former_primary_does_not_lead_because_etcd_has_forgotten_its_successor() {
    let mut etcd = Etcd::start("former");
    let options = [&["--appendonly", "yes"], &QUORUM[..]].concat();
    let mut nodes = shard_of((0..3).map(|_| etcd.node_with(&options)).collect());
    etcd.back_up();
    let writers = Writers::start(&nodes);
    writers.go_on();
    // It hands over, so its data keep their name.
    nodes[0].terminate().expect("it ends");
    primary(&nodes, |at| at > 0);
    writers.go_on();
    etcd.roll_back();
    nodes[0].start_again().expect("it starts");
    eventually("all nodes know", || nodes.iter().all(knows));
    eventually("all nodes serve", || nodes.iter().all(serves));
    primary(&nodes, |_| true);
    writers.go_on();
    writers.check(&nodes);
}

#[test]
fn keys_of_a_move_that_etcd_has_forgotten_stay_where_they_are() {
    let mut etcd = Etcd::start("moved-back");
    let mut nodes: Vec<Server> = (0..2).map(|_| etcd.node_with(&["--appendonly", "yes"])).collect();
    let mut first = nodes[0].client();
    operate(&mut first, "CLUSTER ADDSLOTSRANGE 0 16383");
    ok(&mut first, &format!("CLUSTER MEET 127.0.0.1 {}", nodes[1].port()));
    eventually("both serve", || nodes.iter().all(serves));
    // Slot 12182.
    ok(&mut first, "SET foo 1");
    etcd.back_up();
    let target = text(ask(&mut nodes[1].client(), "CLUSTER MYID"));
    let begin = format!("CLUSTER MIGRATESLOTS SLOTSRANGE 12182 12182 NODE {target}");
    eventually("the move begins", || !ask(&mut nodes[0].client(), &begin).is_error());
    let value = || Reply::Bulk(b"1".to_vec());
    eventually("the keys have moved", || ask(&mut nodes[1].client(), "GET foo") == value());
    eventually("the source has dropped its copy", || {
        let slots = ask(&mut nodes[0].client(), "CLUSTER COUNTKEYSINSLOT 12182");
        slots == Reply::Integer(0)
    });

    etcd.roll_back();
    eventually("both know", || nodes.iter().all(knows));
    eventually("both serve", || nodes.iter().all(serves));
    // etcd says that the first node has the slot; the second one keeps the keys, also over a start.
    eventually("the first node has no key", || {
        ask(&mut nodes[0].client(), "GET foo") == Reply::Nil
    });
    eventually("no move begins", || {
        error(&ask(&mut nodes[0].client(), &begin)).contains("etcd was rolled back")
    });
    nodes[1].terminate().expect("it ends");
    nodes[1].start_again().expect("it starts");
    eventually("both serve", || nodes.iter().all(serves));
    let give = format!("CLUSTER SETSLOT 12182 NODE {target}");
    eventually("the slot is the second node's", || {
        ask(&mut nodes[0].client(), &give) == Reply::Simple(b"OK".to_vec())
    });
    eventually("the keys are there", || ask(&mut nodes[1].client(), "GET foo") == value());

    // An operator has looked: slots move again.
    let info = text(ask(&mut nodes[0].client(), "CLUSTER INFO"));
    let key = info.lines().find_map(|line| line.strip_prefix("cluster_coordinator_rolled_back:"));
    let key = key.and_then(|line| line.split_once("key=")).expect("it names the key").1;
    etcd.remove(key.trim());
    eventually("both know", || nodes.iter().all(|node| !knows(node)));
    let back = text(ask(&mut nodes[0].client(), "CLUSTER MYID"));
    let begin = format!("CLUSTER MIGRATESLOTS SLOTSRANGE 12182 12182 NODE {back}");
    eventually("the move begins", || !ask(&mut nodes[1].client(), &begin).is_error());
    eventually("the keys have moved", || ask(&mut nodes[0].client(), "GET foo") == value());
}

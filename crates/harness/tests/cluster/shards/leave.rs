//! A primary that is told to go down hands its shard over first.

use crate::shards::away::pair;
use crate::shards::faults::{QUORUM, shard_of};
use harness::client::{Client, ask, ok};
use harness::cluster::{Etcd, error, text};
use harness::reply::{Protocol, Reply};
use harness::server::{Server, signal};
use harness::wait::eventually;

fn role(client: &mut Client) -> String {
    let info = text(ask(client, "INFO replication"));
    info.lines().find_map(|line| line.strip_prefix("role:")).unwrap_or_default().to_owned()
}

#[test]
fn a_primary_hands_its_shard_over_before_it_goes_down() {
    let etcd = Etcd::start("leave");
    let mut nodes = pair(&etcd, &[]);
    let [mut first, mut second] = [nodes[0].client(), nodes[1].client()];
    // A replica that is a member can take over. After a switch both are.
    eventually("the replica can lead", || !ask(&mut second, "CLUSTER FAILOVER").is_error());
    eventually("it leads", || role(&mut second) == "master" && role(&mut first) == "slave");
    eventually("the other has the data", || ask(&mut second, "WAIT 1 100") == Reply::Integer(1));
    for number in 0..100 {
        assert_eq!(ask(&mut second, &format!("SET {number} x")), Reply::Simple(b"OK".to_vec()));
    }
    assert!(nodes[1].terminate().expect("it ends").success());
    let log = nodes[1].log();
    assert!(log.contains("another copy takes over this server's shard"), "{log}");
    assert!(log.contains("the planned switch is over"), "{log}");
    // Nothing waits for the lease of the one that is gone.
    assert_eq!(role(&mut first), "master");
    assert_eq!(ask(&mut first, "DBSIZE"), Reply::Integer(101));
    assert_eq!(ask(&mut first, "SET last 1"), Reply::Simple(b"OK".to_vec()));

    // One that has no other copy to hand over to goes down as before.
    assert!(nodes[0].terminate().expect("it ends").success());
    assert!(!nodes[0].log().contains("another copy takes over"));
}

/// The lease is so long that only a hand-over makes another copy lead in time.
#[test]
fn a_replica_that_stands_still_does_not_hold_the_hand_over_up() {
    let etcd = Etcd::start("leave-stopped");
    let options = [&QUORUM[..], &["--cluster-lease", "60"]].concat();
    let mut nodes = shard_of((0..3).map(|_| etcd.node_with(&options)).collect());
    let mut client = nodes[0].client();
    ok(&mut client, "SET key 1");
    let mut third = nodes[2].client();
    signal(nodes[1].process_id(), "STOP").expect("it runs");
    assert!(nodes[0].terminate().expect("it ends").success());
    let log = nodes[0].log();
    assert!(log.contains("the planned switch is over"), "{log}");
    assert_eq!(role(&mut third), "master", "{log}");
    assert_eq!(ask(&mut third, "GET key"), Reply::Bulk(b"1".to_vec()));
    signal(nodes[1].process_id(), "CONT").expect("it is there");
}

#[test]
fn a_primary_that_goes_down_waits_for_a_copy_that_is_in_step_but_no_member_yet() {
    let etcd = Etcd::start("leave-early");
    let mut nodes = pair(&etcd, &[]);
    let mut first = nodes[0].client();
    ok(&mut first, "SET key 1");
    nodes[1].kill().expect("it runs");
    nodes[1].start_again().expect("it starts");
    let mut second = nodes[1].client();
    eventually("it is linked", || {
        text(ask(&mut second, "INFO replication")).contains("master_link_status:up")
    });
    assert!(nodes[0].terminate().expect("it ends").success());
    assert_eq!(role(&mut second), "master", "{}", nodes[0].log());
    assert_eq!(ask(&mut second, "GET key"), Reply::Bulk(b"1".to_vec()));
}

#[test]
fn a_primary_that_went_down_sends_clients_on_until_they_ask_the_other() {
    let etcd = Etcd::start("leave-slowly");
    let mut nodes = pair(&etcd, &[]);
    let [mut first, mut second] = [nodes[0].client(), nodes[1].client()];
    eventually("the replica can lead", || !ask(&mut second, "CLUSTER FAILOVER").is_error());
    eventually("it leads", || role(&mut second) == "master" && role(&mut first) == "slave");
    eventually("the other has the data", || ask(&mut second, "WAIT 1 100") == Reply::Integer(1));
    signal(nodes[1].process_id(), "TERM").expect("it runs");
    // A client that does not read the slots anew until it has been sent on a hundred times.
    let mut times = 0;
    while times < 100 {
        match ask(&mut second, "SET key 1") {
            Reply::Simple(_) => assert_eq!(times, 0, "it leads again"),
            refused => {
                let moved = format!("MOVED 12539 127.0.0.1:{}", nodes[0].port());
                assert_eq!(error(&refused), moved);
                times += 1;
            }
        }
    }
    assert_eq!(ask(&mut first, "SET key 1"), Reply::Simple(b"OK".to_vec()));
    assert!(nodes[1].terminate().expect("it ends").success());
}

/// The next notice of a client, which asked for them: its name, and the rest.
fn notice(client: &mut Client) -> (String, Vec<Reply>) {
    let Reply::Push(mut words) = client.message().expect("it comes") else { panic!("no push") };
    let name = words.remove(0);
    (text(name), words)
}

fn told(node: &Server, kind: &str) -> Client {
    let mut client = node.connect(Protocol::Resp3).expect("it listens");
    ok(&mut client, &format!("CLIENT MAINT_NOTIFICATIONS ON moving-endpoint-type {kind}"));
    client
}

#[test]
fn clients_that_ask_are_told_of_switches_beforehand() {
    let etcd = Etcd::start("notices");
    let nodes = pair(&etcd, &[]);
    let refused = ask(&mut nodes[0].client(), "CLIENT MAINT_NOTIFICATIONS ON");
    assert!(error(&refused).contains("HELLO 3"));
    let ports = [nodes[0].port(), nodes[1].port()];
    let mut second = nodes[1].client();

    // Who speaks the cluster's protocol learns which slots go, and where.
    let mut clients = [told(&nodes[0], "internal-ip"), told(&nodes[1], "none")];
    let mut silent = told(&nodes[0], "none");
    ok(&mut silent, "CLIENT MAINT_NOTIFICATIONS OFF");
    eventually("the replica can lead", || !ask(&mut second, "CLUSTER FAILOVER").is_error());
    let triplet = Reply::Array(vec![
        Reply::Bulk(format!("127.0.0.1:{}", ports[0]).into()),
        Reply::Bulk(format!("127.0.0.1:{}", ports[1]).into()),
        Reply::Bulk(b"0-16383".to_vec()),
    ]);
    // The primary knows of the switch before it is made; another node may see it when it is over.
    let (name, words) = notice(&mut clients[0]);
    assert_eq!((&*name, &words[1]), ("SMIGRATING", &Reply::Bulk(b"0-16383".to_vec())));
    let ends = clients.each_mut().map(|client| {
        let (mut name, mut words) = notice(client);
        if name == "SMIGRATING" {
            (name, words) = notice(client);
        }
        assert_eq!((&*name, &words[1]), ("SMIGRATED", &Reply::Array(vec![triplet.clone()])));
        words[0].clone()
    });
    assert_eq!(ends[0], ends[1], "a client that hears it twice acts once");

    // Who sees one server learns that it takes longer, and then that it does not.
    for node in &nodes {
        ok(&mut node.client(), "CONFIG SET cluster-endpoint single");
    }
    eventually("the first is a replica in step", || {
        role(&mut nodes[0].node_client()) == "slave"
            && ask(&mut second, "WAIT 1 100") == Reply::Integer(1)
    });
    let mut first = nodes[0].client();
    ok(&mut first, "CLIENT CAPA cluster");
    ok(&mut first, "CLUSTER FAILOVER");
    let (name, words) = notice(&mut clients[1]);
    assert_eq!((&*name, &words[1]), ("FAILING_OVER", &Reply::Integer(10)));
    assert_eq!(notice(&mut clients[1]).0, "FAILED_OVER");

    // A node that goes down says where to go, and waits until its clients are there.
    eventually("it leads", || role(&mut nodes[0].client()) == "master");
    let [mut stays, mut leaves] = clients;
    ok(&mut stays, "SET key 1");
    let process = nodes[0].process_id();
    signal(process, "TERM").expect("it runs");
    let (name, words) = loop {
        match notice(&mut stays) {
            (name, _) if name.starts_with("FAIL") => {}
            moving => break moving,
        }
    };
    assert_eq!((&*name, &words[1]), ("MOVING", &Reply::Integer(4)));
    assert_eq!(words[2], Reply::Bulk(format!("127.0.0.1:{}", ports[1]).into()));
    // It still answers, by way of the node that leads now.
    assert_eq!(ask(&mut stays, "INCR key"), Reply::Integer(2));
    assert_eq!(ask(&mut leaves, "INCR key"), Reply::Integer(3));
    drop(stays);
    drop(silent);
    eventually("it ends", || nodes[0].connect(Protocol::Resp2).is_err());
}

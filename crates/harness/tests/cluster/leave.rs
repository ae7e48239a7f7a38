//! A primary that is told to go down hands its shard over first.

use crate::away::pair;
use harness::client::{Client, ask};
use harness::cluster::{Etcd, text};
use harness::reply::Reply;
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

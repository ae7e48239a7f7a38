//! What happens to a shard with a quorum when its primary is killed or stopped: no confirmed write is lost, and a primary
//! that has stood still tells nothing that is not so any more.

use harness::client::{Client, ask, ok};
use harness::cluster::{Etcd, error, text};
use harness::reply::{Protocol, Reply};
use harness::server::{Options, Program, Server, signal};
use harness::wait::eventually;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::SeqCst};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;

/// How long a writer waits for a reply.
const PATIENCE: Duration = Duration::from_secs(2);

const QUORUM: [&str; 4] = ["--commit-mode", "quorum", "--commit-quorum", "1"];

/// Makes a cluster of one shard with three copies, two of which confirm a write. The first leads.
fn shard(etcd: &Etcd) -> Vec<Server> {
    let nodes: Vec<Server> = (0..3).map(|_| etcd.node_with(&QUORUM)).collect();
    let mut first = nodes[0].client();
    ok(&mut first, "CLUSTER ADDSLOTSRANGE 0 16383");
    let id = text(ask(&mut first, "CLUSTER MYID"));
    for node in &nodes[1..] {
        let mut client = node.client();
        ok(&mut client, &format!("CLUSTER MEET 127.0.0.1 {}", nodes[0].port()));
        ok(&mut client, &format!("CLUSTER REPLICATE {id}"));
    }
    until_settled(&nodes);
    nodes
}

fn replication(node: &Server) -> Option<String> {
    let mut client = node.connect(Protocol::Resp2).ok()?;
    client.stream().set_read_timeout(Some(PATIENCE)).ok()?;
    let info = client.command(&["INFO", "replication"]).ok()?;
    Some(String::from_utf8_lossy(info.text()?).into_owned())
}

/// The copy that takes writes, among those that `counts` names.
fn primary(nodes: &[Server], counts: impl Fn(usize) -> bool) -> usize {
    let takes_writes = |at: usize| {
        let Ok(mut client) = nodes[at].connect(Protocol::Resp2) else { return false };
        let _ = client.stream().set_read_timeout(Some(PATIENCE));
        let reply = client.command(&["SET", "probe", "1"]);
        reply.is_ok_and(|reply| reply == Reply::Simple(b"OK".to_vec()))
    };
    let mut found = None;
    eventually("a copy takes writes", || {
        found = (0..nodes.len()).filter(|&at| counts(at)).find(|&at| takes_writes(at));
        found.is_some()
    });
    found.unwrap_or_default()
}

/// Waits until all three copies are members that have everything, so that two of them are enough for a promotion.
fn until_settled(nodes: &[Server]) {
    eventually("all copies are members", || {
        let at = primary(nodes, |_| true);
        let mut client = nodes[at].client();
        let replicas = ask(&mut client, "WAIT 2 100");
        replicas == Reply::Integer(2)
            && replication(&nodes[at])
                .is_some_and(|info| info.contains("cluster_promotion_copies:2"))
    });
}

/// Clients that write keys of their own, one after the other, wherever the cluster says.
struct Writers {
    is_over: Arc<AtomicBool>,
    confirmed: Arc<Mutex<Vec<String>>>,
    count: Arc<AtomicUsize>,
    threads: Vec<JoinHandle<()>>,
}

impl Writers {
    fn start(nodes: &[Server]) -> Writers {
        let addresses: Vec<SocketAddr> = nodes.iter().map(Server::address).collect();
        let is_over = Arc::new(AtomicBool::new(false));
        let confirmed: Arc<Mutex<Vec<String>>> = Arc::default();
        let count = Arc::new(AtomicUsize::new(0));
        let write = |writer: usize| {
            let (is_over, addresses) = (Arc::clone(&is_over), addresses.clone());
            let (confirmed, count) = (Arc::clone(&confirmed), Arc::clone(&count));
            std::thread::spawn(move || {
                let (mut number, mut at) = (0, 0);
                while !is_over.load(SeqCst) {
                    at = (at + 1) % addresses.len();
                    let Ok(mut client) = Client::connect(addresses[at]) else { continue };
                    let _ = client.stream().set_read_timeout(Some(PATIENCE));
                    while !is_over.load(SeqCst) {
                        number += 1;
                        let key = format!("{writer}:{number}");
                        match client.command(&["SET", &key, &key]) {
                            Ok(Reply::Simple(_)) => {
                                let mut all =
                                    confirmed.lock().unwrap_or_else(PoisonError::into_inner);
                                all.push(key);
                                count.fetch_add(1, SeqCst);
                            }
                            // Another node, and another key: this one may exist.
                            _ => break,
                        }
                    }
                    std::thread::yield_now();
                }
            })
        };
        let threads = (0..3).map(write).collect();
        Writers { is_over, confirmed, count, threads }
    }

    /// Waits until some more writes are confirmed.
    fn go_on(&self) {
        let before = self.count.load(SeqCst);
        eventually("writes are confirmed", || self.count.load(SeqCst) > before + 200);
    }

    /// Ends them, and looks for everything that was confirmed.
    fn check(self, nodes: &[Server]) {
        self.is_over.store(true, SeqCst);
        self.threads.into_iter().for_each(|thread| thread.join().expect("it writes"));
        let confirmed = self.confirmed.lock().unwrap_or_else(PoisonError::into_inner);
        let mut client = nodes[primary(nodes, |_| true)].client();
        let is_there = |key: &&String| {
            ask(&mut client, &format!("GET {key}")) != Reply::Bulk(key.as_bytes().to_vec())
        };
        let lost: Vec<&String> = confirmed.iter().filter(is_there).collect();
        assert!(
            lost.is_empty(),
            "of {} confirmed writes {} are lost: {lost:?}",
            confirmed.len(),
            lost.len()
        );
    }
}

#[test]
fn no_confirmed_write_is_lost_when_primaries_are_killed() {
    let etcd = Etcd::start("killed");
    let mut nodes = shard(&etcd);
    let writers = Writers::start(&nodes);
    for _ in 0..3 {
        let at = primary(&nodes, |_| true);
        writers.go_on();
        nodes[at].kill().expect("it runs");
        primary(&nodes, |other| other != at);
        writers.go_on();
        nodes[at].start_again().expect("it starts");
        until_settled(&nodes);
    }
    writers.check(&nodes);
}

#[test]
fn a_primary_that_stood_still_tells_nothing_old() {
    let etcd = Etcd::start("stopped");
    let nodes = shard(&etcd);
    let writers = Writers::start(&nodes);
    for round in 0..2 {
        let at = primary(&nodes, |_| true);
        let mut old = nodes[at].client();
        ok(&mut old, &format!("SET told before{round}"));
        writers.go_on();
        signal(nodes[at].process_id(), "STOP").expect("it runs");
        let new = primary(&nodes, |other| other != at);
        ok(&mut nodes[new].client(), &format!("SET told after{round}"));
        // They wait in the socket of a server that believes to be the primary.
        old.send(&["GET", "told"]).expect("the socket takes it");
        old.send(&["SET", "told", "lost"]).expect("the socket takes it");
        signal(nodes[at].process_id(), "CONT").expect("it is there");
        for _ in 0..2 {
            match old.reply() {
                Ok(reply) => drop(error(&reply)),
                Err(_) => break,
            }
        }
        eventually("it follows", || {
            let info = replication(&nodes[at]);
            info.is_some_and(|info| info.contains("role:slave") && info.contains("link_status:up"))
        });
        until_settled(&nodes);
        let told = ask(&mut nodes[new].client(), "GET told");
        assert_eq!(told, Reply::Bulk(format!("after{round}").into_bytes()));
    }
    writers.check(&nodes);
}

#[test]
fn a_replica_that_is_no_member_confirms_nothing() {
    let etcd = Etcd::start("outsider");
    let node = etcd.node_with(&[&QUORUM[..], &["--commit-timeout-ms", "500"]].concat());
    let mut client = node.client();
    ok(&mut client, "CLUSTER ADDSLOTSRANGE 0 16383");
    let outsider = Server::start(&Program::under_test(), Options::arguments(&["--save", ""]));
    let outsider = outsider.expect("it starts");
    ok(&mut outsider.client(), &format!("REPLICAOF 127.0.0.1 {}", node.port()));
    eventually("it follows", || {
        replication(&outsider).is_some_and(|info| info.contains("master_link_status:up"))
    });
    eventually("the node leads", || {
        error(&ask(&mut client, "SET a 1")).starts_with("NOTCONFIRMED")
    });
    eventually("it has what it does not confirm", || {
        ask(&mut outsider.client(), "GET a") == Reply::Bulk(b"1".to_vec())
    });
    assert!(error(&ask(&mut client, "SET a 2")).starts_with("NOTCONFIRMED"));
}

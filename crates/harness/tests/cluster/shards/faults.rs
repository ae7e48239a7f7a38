//! What happens to a shard with a quorum when its primary is killed or stopped: no confirmed write
//! is lost, and a primary that has stood still tells nothing that is not so any more.

use harness::client::{Client, ask, ok};
use harness::cluster::{Etcd, error, operate, text};
use harness::registers::make_shard;
use harness::reply::{Protocol, Reply};
use harness::server::{Options, Program, Server, signal};
use harness::wait::eventually;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::SeqCst};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;

/// How long a writer waits for a reply.
const PATIENCE: Duration = Duration::from_secs(2);

pub(crate) const QUORUM: [&str; 4] = ["--commit-mode", "quorum", "--commit-quorum", "1"];

/// Makes a cluster of one shard with three copies, two of which confirm a write. The first leads.
fn shard(etcd: &Etcd) -> Vec<Server> {
    shard_of((0..3).map(|_| etcd.node_with(&QUORUM)).collect())
}

/// Makes a cluster of one shard of these nodes. The first leads.
pub(crate) fn shard_of(nodes: Vec<Server>) -> Vec<Server> {
    make_shard(&nodes.iter().map(Server::address).collect::<Vec<_>>());
    until_settled(&nodes);
    nodes
}

fn replication(node: &Server) -> Option<String> {
    let mut client = node.connect(Protocol::Resp2).ok()?.with_patience(PATIENCE);
    let _ = client.command(&["CLIENT", "CAPA", "cluster"]).ok()?;
    let info = client.command(&["INFO", "replication"]).ok()?;
    Some(String::from_utf8_lossy(info.text()?).into_owned())
}

/// The copy that takes writes, among those that `counts` names.
pub(crate) fn primary(nodes: &[Server], counts: impl Fn(usize) -> bool) -> usize {
    let takes_writes = |at: usize| {
        let Ok(client) = nodes[at].connect(Protocol::Resp2) else { return false };
        let mut client = client.with_patience(PATIENCE);
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

/// Waits until all three copies are members that have everything, so that two of them are enough
/// for a promotion.
pub(crate) fn until_settled(nodes: &[Server]) {
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
pub(crate) struct Writers {
    is_over: Arc<AtomicBool>,
    confirmed: Arc<Mutex<Vec<String>>>,
    count: Arc<AtomicUsize>,
    threads: Vec<JoinHandle<()>>,
}

impl Writers {
    pub(crate) fn start(nodes: &[Server]) -> Writers {
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
                    let Ok(client) = Client::connect(addresses[at]) else { continue };
                    let mut client = client.with_patience(PATIENCE);
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
    pub(crate) fn go_on(&self) {
        self.go_on_by(200);
    }

    /// Waits until more than so many further writes are confirmed.
    pub(crate) fn go_on_by(&self, count: usize) {
        let before = self.count.load(SeqCst);
        eventually("writes are confirmed", || self.count.load(SeqCst) > before + count);
    }

    /// Ends them. Returns what was confirmed.
    pub(crate) fn end(self) -> Vec<String> {
        self.is_over.store(true, SeqCst);
        self.threads.into_iter().for_each(|thread| thread.join().expect("it writes"));
        std::mem::take(&mut *self.confirmed.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// Ends them, and looks for everything that was confirmed.
    pub(crate) fn check(self, nodes: &[Server]) {
        let confirmed = self.end();
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

/// A primary whose replica cannot reach it takes some writes.
fn write_alone(nodes: &[Server]) {
    let [mut first, mut second] = [nodes[0].client(), nodes[1].client()];
    ok(&mut first, "SET shared 1");
    eventually("the replica has it", || ask(&mut first, "WAIT 1 100") == Reply::Integer(1));
    // The replica does not know the password.
    ok(&mut first, "CONFIG SET requirepass secret");
    assert!(!ask(&mut first, "CLIENT KILL TYPE replica").is_error());
    for request in ["SET alone 1", "MULTI", "SET alone 2", "LPUSH {alone}list x", "EXEC"] {
        assert!(!ask(&mut first, request).is_error(), "{request}");
    }
    // Without a log that is an error.
    ask(&mut first, "WAITAOF 1 0 0");
    ok(&mut second, "READONLY");
    assert_eq!(ask(&mut second, "EXISTS alone"), Reply::Integer(0));
}

/// Waits until a server follows. Returns its INFO.
fn until_following(node: &Server) -> String {
    let mut info = String::new();
    eventually("it follows", || {
        let Ok(mut client) = node.connect(Protocol::Resp2) else { return false };
        let _ = client.command(&["AUTH", "secret"]);
        let _ = client.command(&["CLIENT", "CAPA", "cluster"]);
        let reply = client.command(&["INFO", "replication"]);
        info = reply.map_or_else(|_| String::new(), text);
        info.contains("role:slave") && info.contains("link_status:up")
    });
    info
}

/// What a server has rescued, a file or a folder.
fn rescued(node: &Server) -> PathBuf {
    let files = std::fs::read_dir(node.directory()).expect("it has a directory").flatten();
    let is_rescue = |path: &PathBuf| {
        path.file_name().is_some_and(|name| name.to_string_lossy().starts_with("rescue-"))
    };
    files.map(|file| file.path()).find(is_rescue).expect("there is such a file")
}

#[test]
fn what_a_former_primary_had_alone_is_kept_in_a_file() {
    let etcd = Etcd::start("rescue");
    let nodes = crate::shards::away::pair(&etcd, &[]);
    write_alone(&nodes);
    let mut second = nodes[1].client();
    signal(nodes[0].process_id(), "STOP").expect("it runs");
    eventually("the replica takes over", || {
        ask(&mut second, "SET other 1") == Reply::Simple(b"OK".to_vec())
    });
    signal(nodes[0].process_id(), "CONT").expect("it is there");
    let info = until_following(&nodes[0]);
    assert!(info.contains("cluster_rescue_files:1\r\ncluster_rescued_writes:2\r\n"), "{info}");
    let file = rescued(&nodes[0]);
    assert!(file.extension().is_some_and(|kind| kind == "resp"), "{file:?}");
    let commands = std::fs::read(file).expect("it can be read");

    // As `redis-cli --pipe` does.
    assert!(!ask(&mut second, "DEL alone {alone}list").is_error());
    second.send_raw(&commands).expect("it is sent");
    for _ in 0..String::from_utf8_lossy(&commands).matches('*').count() {
        assert!(!second.reply().expect("it is answered").is_error());
    }
    assert_eq!(ask(&mut second, "GET alone"), Reply::Bulk(b"2".to_vec()));
    assert_eq!(ask(&mut second, "LLEN {alone}list"), Reply::Integer(1));
}

/// A process that was killed has its stream no more, but its log.
#[test]
fn what_a_former_primary_has_alone_on_its_disk_is_kept() {
    let etcd = Etcd::start("rescue-files");
    let mut nodes = crate::shards::away::pair(&etcd, &["--appendonly", "yes"]);
    write_alone(&nodes);
    nodes[0].kill().expect("it runs");
    let mut second = nodes[1].client();
    eventually("the replica takes over", || {
        ask(&mut second, "SET other 1") == Reply::Simple(b"OK".to_vec())
    });
    nodes[0].start_again().expect("it starts");
    let info = until_following(&nodes[0]);
    assert!(info.contains("cluster_rescue_files:1\r\n"), "{info}");
    let folder = rescued(&nodes[0]);
    let files = std::fs::read_dir(folder).expect("it is a folder").flatten();
    let has_write = files
        .map(|file| std::fs::read(file.path()).expect("it can be read"))
        .any(|file| String::from_utf8_lossy(&file).contains("{alone}list"));
    assert!(has_write);
}

/// The same where clients see one server.
#[test]
fn one_address_tells_nothing_old_either() {
    let etcd = Etcd::start("stopped-single");
    let nodes = crate::shards::away::pair(&etcd, &[]);
    for node in &nodes {
        ok(&mut node.client(), "CONFIG SET cluster-endpoint single");
    }
    let mut clients: Vec<Client> = (0..20).map(|_| nodes[0].client()).collect();
    ok(&mut clients[0], "SET told before");
    eventually("the replica has it", || {
        let mut client = nodes[1].client();
        ask(&mut client, "CLIENT CAPA cluster node");
        ok(&mut client, "READONLY");
        ask(&mut client, "GET told") == Reply::Bulk(b"before".to_vec())
    });
    signal(nodes[0].process_id(), "STOP").expect("it runs");
    primary(&nodes, |at| at == 1);
    ok(&mut nodes[1].client(), "SET told after");
    for client in &mut clients {
        client.send(&["GET", "told"]).expect("the socket takes it");
    }
    signal(nodes[0].process_id(), "CONT").expect("it is there");
    for client in &mut clients {
        let reply = client.reply();
        assert!(!reply.is_ok_and(|reply| reply == Reply::Bulk(b"before".to_vec())));
    }
}

#[test]
fn a_replica_that_is_no_member_confirms_nothing() {
    let etcd = Etcd::start("outsider");
    let node = etcd.node_with(&[&QUORUM[..], &["--commit-timeout-ms", "500"]].concat());
    let mut client = node.client();
    operate(&mut client, "CLUSTER ADDSLOTSRANGE 0 16383");
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
    ok(&mut client, "CONFIG SET min-replicas-to-write 1");
    eventually("it is none of the replicas that a write needs", || {
        error(&ask(&mut client, "SET a 3")).starts_with("NOREPLICAS")
    });
}

//! The machines: three etcds, three machines of servers, each of which has a disk and a wall clock
//! of its own, and the clients.

use harness::client::{Client, ask};
use harness::cluster::{Etcd, node_of};
use harness::environment::skipped;
use harness::faults::Faults;
use harness::network::Network;
use harness::registers::{make_shards, replication, until_settled_with};
use harness::reply::Reply;
use harness::server::{Program, Server, signal};
use harness::wait::eventually;
use std::net::SocketAddr;
use std::ops::Range;
use std::thread;

/// The machines of etcd.
pub(crate) const ETCDS: Range<usize> = 0..3;

/// Those of servers. Each has one server of each shard.
pub(crate) const NODES: Range<usize> = 3..6;

/// That of clients.
pub(crate) const CLIENT: usize = 6;

/// That of a proxy.
pub(crate) const PROXY: usize = 7;

/// What makes a server wait for one other, and longer than a primary's lease lasts: a read may tell
/// of a write that was given up.
pub(crate) const QUORUM: [&str; 6] =
    ["--commit-mode", "quorum", "--commit-quorum", "1", "--commit-timeout-ms", "10000"];

/// See the head of this file.
pub(crate) struct Machines<'n> {
    pub(crate) network: &'n Network,
    pub(crate) etcds: Vec<Etcd>,
    pub(crate) nodes: Vec<Server>,
    /// Those of each server's disk and clock.
    pub(crate) faults: Vec<Faults>,
    shards: usize,
    /// Whether a server that starts again forwards requests.
    is_one_server: bool,
}

/// Returns the machine that a server is on.
pub(crate) fn machine_of(node: usize) -> usize {
    NODES.start + node % NODES.len()
}

/// Makes the network, or says why the test is skipped.
pub(crate) fn network() -> Option<Network> {
    let network = Network::new(PROXY + 1);
    network.inspect_err(|why| skipped(format_args!("no network namespaces: {why}"))).ok()
}

impl<'n> Machines<'n> {
    /// Starts all, and makes the three servers one shard, the first of them its primary. Clients
    /// see one server.
    pub(crate) fn start(network: &'n Network, options: &[&str]) -> Machines<'n> {
        Machines::start_sharded(network, options, 1)
    }

    /// The same with some shards.
    pub(crate) fn start_sharded(
        network: &'n Network,
        options: &[&str],
        shards: usize,
    ) -> Machines<'n> {
        let mut machines = Machines::start_cluster(network, options, shards);
        machines.is_one_server = true;
        machines.show_one_server();
        machines
    }

    /// The same, and clients see the nodes of a cluster.
    pub(crate) fn start_cluster(
        network: &'n Network,
        options: &[&str],
        shards: usize,
    ) -> Machines<'n> {
        let options = [options, &["--cluster-endpoint", "cluster"]].concat();
        let machines = Machines::made(network, &options, shards);
        make_shards(&machines.addresses(), shards);
        let fence = if options.contains(&"quorum") { 2 } else { 1 };
        machines.until_settled(fence);
        machines
    }

    fn made(network: &'n Network, options: &[&str], shards: usize) -> Machines<'n> {
        let etcds = Etcd::start_on(network, ETCDS);
        let coordinator = Etcd::coordinator(&etcds);
        let mut faults = Vec::new();
        let start = |node: usize| {
            let at = machine_of(node);
            let host = network.address(at).to_string();
            let below = Faults::new(&format!("{}-{node}", network.name()));
            let program = below.under(&Program::under_test());
            let mut words = vec!["--bind", &host, "127.0.0.1", "--protected-mode", "no"];
            words.extend(["--appendonly", "yes"]);
            words.extend(options);
            let node = network.at(at, || node_of(&program, &coordinator, &words));
            faults.push(below);
            node
        };
        let nodes = (0..shards * NODES.len()).map(start).collect();
        Machines { network, etcds, nodes, faults, shards, is_one_server: false }
    }

    /// The servers, as clients reach them.
    pub(crate) fn addresses(&self) -> Vec<SocketAddr> {
        let address = |(at, node): (usize, &Server)| {
            (self.network.address(machine_of(at)), node.port()).into()
        };
        self.nodes.iter().enumerate().map(address).collect()
    }

    /// The addresses of each shard's servers.
    pub(crate) fn shards(&self) -> Vec<Vec<SocketAddr>> {
        self.addresses().chunks(NODES.len()).map(<[SocketAddr]>::to_vec).collect()
    }

    /// A key of each shard.
    pub(crate) fn keys(&self) -> Vec<String> {
        let mut client = Client::connect(self.addresses()[0]).expect("it listens");
        let mut slot = |key: &str| match ask(&mut client, &["CLUSTER", "KEYSLOT", key]) {
            Reply::Integer(slot) => slot as usize,
            other => panic!("{other:?}"),
        };
        let mut key_of = |shard: usize| {
            let mut keys = (0..).map(|number| format!("shard-key{number}"));
            keys.find(|key| slot(key) * self.shards / 16384 == shard).expect("there is one")
        };
        (0..self.shards).map(&mut key_of).collect()
    }

    /// Waits until all copies are members that have everything, so that `fence` of them are enough
    /// for a promotion.
    pub(crate) fn until_settled(&self, fence: usize) {
        self.shards().iter().for_each(|one| until_settled_with(one, fence));
    }

    fn show_one_server(&mut self) {
        (0..self.nodes.len()).for_each(|node| self.shows_one_server(node));
    }

    fn shows_one_server(&self, node: usize) {
        self.network.at(machine_of(node), || {
            let mut client = self.nodes[node].client();
            harness::client::ok(&mut client, "CONFIG SET cluster-endpoint single");
        });
    }

    /// The server's process stands still.
    pub(crate) fn stop(&self, node: usize) {
        signal(self.nodes[node].process_id(), "STOP").expect("it runs");
    }

    /// Starts a server that was killed.
    pub(crate) fn start_again(&mut self, node: usize) {
        let network = self.network;
        let server = &mut self.nodes[node];
        network.at(machine_of(node), || server.start_again().expect("it starts"));
        if self.is_one_server {
            self.shows_one_server(node);
        }
    }

    /// Starts all etcds, which were killed. Most of them have to be there before the first one
    /// answers.
    pub(crate) fn start_etcds(&mut self) {
        let network = self.network;
        thread::scope(|threads| {
            for (at, etcd) in ETCDS.zip(&mut self.etcds) {
                threads.spawn(move || network.at(at, || etcd.start_again()));
            }
        });
    }

    /// Waits until all servers say of the coordinator that it is so.
    pub(crate) fn until_coordinator(&self, is: &str) {
        let wanted = format!("cluster_coordinator:{is}");
        eventually(&format!("the coordinator is {is}"), || {
            self.addresses().into_iter().all(|it| replication(it).contains(&wanted))
        });
    }
}

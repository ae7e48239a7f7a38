//! A pool of kind `sentinel` with stock sentinels, servers, the proxy and clients on machines of
//! their own (network namespaces): sentinels and the master are killed, stopped and cut off.
//!
//! A write is confirmed when both replicas have it, so whichever the sentinels promote has it, and
//! an audit has to find it. `./test proxy-network [SECONDS [SEED]]` does it for longer.

use crate::support::{Proxy, okay, stop};
use harness::client::{Client, ask};
use harness::environment::{self, skipped};
use harness::info::find;
use harness::ledger::Ledger;
use harness::network::Network;
use harness::reply::Protocol;
use harness::rng::Rng;
use harness::sentinel::{NAME, Sentinels};
use harness::server::{Options, Program, Server, free_port, signal};
use harness::wait::eventually;
use std::net::SocketAddr;
use std::ops::Range;
use std::thread;
use std::time::{Duration, Instant};

const SERVERS: Range<usize> = 0..3;
const SENTINELS: Range<usize> = 3..6;
const PROXY: usize = 6;
const CLIENT: usize = 7;

/// Longer than sentinels wait for a master, and than the proxy waits for a reply.
const LONG: Duration = Duration::from_secs(2);

const CONFIG: &str = "protected-mode no\nappendonly yes\nrepl-diskless-sync-delay 0\n\
                      repl-ping-replica-period 1\ncommit-mode quorum\ncommit-quorum 2\n\
                      commit-timeout-ms 1000\n";

/// What happens while a load writes.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Fault {
    OneSentinelKilled,
    SentinelsKilled,
    SentinelsCutOffFromProxy,
    /// Another server takes over, here and below.
    MasterKilled,
    MasterStopped,
    MasterCutOff,
    /// The sentinels are cut off from the proxy meanwhile.
    MasterKilledUnheard,
    /// One sentinel hears only the proxy, and goes on to name the old master.
    MasterKilledAndSentinelCutOff,
}

use Fault::*;

const QUIET: [Fault; 3] = [OneSentinelKilled, SentinelsKilled, SentinelsCutOffFromProxy];

const SWITCHING: [Fault; 5] =
    [MasterKilled, MasterStopped, MasterCutOff, MasterKilledUnheard, MasterKilledAndSentinelCutOff];

struct Machines<'n> {
    network: &'n Network,
    servers: Vec<Server>,
    sentinels: Sentinels,
    proxy: Proxy,
}

fn network() -> Option<(Network, Program)> {
    if !Program::under_test().is_dunlin() {
        return None;
    }
    let sentinel = Program::reference_or_skip()?;
    let network = Network::new(CLIENT + 1);
    let network = network.inspect_err(|why| skipped(format_args!("no network namespaces: {why}")));
    Some((network.ok()?, sentinel))
}

impl<'n> Machines<'n> {
    fn start(network: &'n Network, sentinel: &Program) -> Machines<'n> {
        let program = Program::under_test();
        let start = |at: usize| {
            let host = network.address(at).to_string();
            let bind = Options::arguments(&["--bind", &host, "127.0.0.1"]);
            let options = Options { config: Some(CONFIG.to_owned()), ..bind };
            network.at(at, || Server::start(&program, options).expect("it starts"))
        };
        let servers: Vec<Server> = SERVERS.map(start).collect();
        let master: SocketAddr = (network.address(0), servers[0].port()).into();
        for (at, server) in servers.iter().enumerate().skip(1) {
            follow(&(network.address(at), server.port()).into(), &master);
        }
        let lines =
            ["sentinel failover-timeout NAME 3000", "sentinel down-after-milliseconds NAME 1000"];
        let sentinels = Sentinels::start_on(sentinel, network, SENTINELS, master, &lines);
        let sentinels = sentinels.expect("they start");
        sentinels.until_they_know(2);
        let proxy = network.at(PROXY, || {
            let address = (network.address(PROXY), free_port().expect("a port")).into();
            let known: Vec<String> =
                (0..3).map(|number| format!("\"{}\"", sentinels.address(number))).collect();
            let text = format!(
                "[pool.main]\nkind = \"sentinel\"\nlisten = [\"{address}\"]\ntimeout_ms = 1500\n\
                 master = \"{NAME}\"\nsentinels = [{}]\n",
                known.join(", ")
            );
            Proxy::run_at(&program, &servers[0].directory().join("proxy.toml"), address, &text)
        });
        Machines { network, servers, sentinels, proxy }
    }

    fn address(&self, at: usize) -> SocketAddr {
        (self.network.address(at), self.servers[at].port()).into()
    }

    /// The machine of the master that a sentinel names.
    fn named_by(&self, sentinel: usize) -> usize {
        let port = self.sentinels.primary(sentinel);
        SERVERS.into_iter().find(|&at| self.servers[at].port() == port).expect("it is one of ours")
    }

    /// The port of the server that the proxy sends requests to.
    fn behind_proxy(&self) -> Option<u16> {
        let mut client = Client::connect(self.proxy.address).ok()?;
        find(&client.command(&["INFO", "server"]).ok()?, "tcp_port")?.parse().ok()
    }

    fn until_proxy_uses(&self, at: usize) {
        let port = Some(self.servers[at].port());
        eventually("the proxy uses the new master", || self.behind_proxy() == port);
    }

    fn until_writes_are_confirmed(&self) {
        let mut client = self.proxy.client(Protocol::Resp2);
        eventually("writes are confirmed", || ask(&mut client, &["SET", "one", "1"]) == okay());
    }

    fn kill_sentinels(&mut self, numbers: Range<usize>) {
        numbers.for_each(|number| self.sentinels.kill(number).expect("it runs"));
    }

    fn start_sentinels(&mut self, numbers: Range<usize>) {
        let (network, sentinels) = (self.network, &mut self.sentinels);
        for number in numbers {
            network.at(SENTINELS.start + number, || {
                sentinels.start_again(number).expect("it starts");
            });
        }
    }

    fn begin(&mut self, fault: Fault, master: usize) {
        let network = self.network;
        let watchers: Vec<usize> = SENTINELS.collect();
        let others = |at: usize| -> Vec<usize> {
            SERVERS.chain(SENTINELS).filter(|&other| other != at).collect()
        };
        match fault {
            OneSentinelKilled => self.kill_sentinels(0..1),
            SentinelsKilled => self.kill_sentinels(0..3),
            SentinelsCutOffFromProxy => network.divide(&watchers, &[PROXY]),
            MasterKilled => self.servers[master].kill().expect("it runs"),
            MasterStopped => stop(self.servers[master].process_id()),
            MasterCutOff => {
                network.divide(&[master], &[&others(master)[..], &[PROXY]].concat());
            }
            MasterKilledUnheard => {
                network.divide(&watchers, &[PROXY]);
                self.servers[master].kill().expect("it runs");
            }
            MasterKilledAndSentinelCutOff => {
                network.divide(&[SENTINELS.end - 1], &others(SENTINELS.end - 1));
                self.servers[master].kill().expect("it runs");
            }
        }
    }

    fn end(&mut self, fault: Fault, master: usize) {
        let network = self.network;
        match fault {
            OneSentinelKilled => self.start_sentinels(0..1),
            SentinelsKilled => self.start_sentinels(0..3),
            MasterStopped => {
                signal(self.servers[master].process_id(), "CONT").expect("it is there");
            }
            _ => network.mend(),
        }
        if matches!(fault, MasterKilled | MasterKilledUnheard | MasterKilledAndSentinelCutOff) {
            let server = &mut self.servers[master];
            network.at(master, || server.start_again().expect("it starts"));
        }
    }

    fn suffer(&mut self, fault: Fault) {
        if SWITCHING.contains(&fault) {
            self.sentinels.until_they_know(2);
        }
        let old = self.named_by(0);
        let began = Instant::now();
        self.begin(fault, old);
        if SWITCHING.contains(&fault) {
            // The third may be cut off.
            for sentinel in 0..2 {
                eventually("another master is named", || self.named_by(sentinel) != old);
            }
            let new = self.named_by(0);
            if fault != MasterKilledUnheard {
                self.until_proxy_uses(new);
                println!("{fault:?}: the proxy uses the new master after {:?}", began.elapsed());
            }
            self.end(fault, old);
            // The sentinels do it, too, but after eight seconds.
            follow(&self.address(old), &self.address(new));
            self.until_proxy_uses(new);
        } else {
            self.until_writes_are_confirmed();
            thread::sleep(LONG);
            self.until_writes_are_confirmed();
            self.end(fault, old);
        }
        self.until_writes_are_confirmed();
    }
}

/// Makes a server a replica, and waits until it follows.
fn follow(replica: &SocketAddr, master: &SocketAddr) {
    let mut client = Client::connect(*replica).expect("it listens");
    let (host, port) = (master.ip().to_string(), master.port().to_string());
    // A sentinel that does it closes all connections.
    let _ = client.command(&["REPLICAOF", &host, &port]);
    let is_linked = || {
        let info = Client::connect(*replica).ok()?.command(&["INFO", "replication"]).ok()?;
        Some(find(&info, "master_link_status")? == "up" && find(&info, "master_port")? == port)
    };
    eventually("the link is up", || is_linked() == Some(true));
}

#[test]
fn confirmed_writes_outlive_what_happens_to_sentinels_and_masters() {
    let Some((network, sentinel)) = network() else { return };
    network.at(CLIENT, || {
        let long = environment::seconds("DUNLIN_NETWORK_SECONDS");
        let seed = environment::variable("DUNLIN_SEED").unwrap_or_else(environment::new_seed);
        println!("seed {seed}");
        let mut rng = Rng::new(seed);
        let mut machines = Machines::start(&network, &sentinel);
        let time = long.unwrap_or(Duration::from_secs(8));
        let ledger = Ledger::start(machines.proxy.address, time);
        let began = Instant::now();
        // The last one is the first.
        let mut left = vec![SWITCHING[rng.below(SWITCHING.len())], QUIET[rng.below(QUIET.len())]];
        while let Some(fault) = left.pop() {
            println!("{:?} {fault:?}", began.elapsed());
            machines.suffer(fault);
            if left.is_empty() && long.is_some_and(|time| began.elapsed() < time) {
                left = [&QUIET[..], &SWITCHING].concat();
                (1..left.len()).for_each(|at| left.swap(at, rng.below(at + 1)));
            }
        }
        let (is_whole, text) = ledger.audit(machines.proxy.address);
        println!("{text}");
        assert!(is_whole, "seed {seed}: confirmed writes are lost\n{}", machines.proxy.log());
    });
}

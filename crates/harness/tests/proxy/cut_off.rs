//! Servers and the proxy on machines of their own (network namespaces) that are cut off from each
//! other, killed and stopped: one order explains what clients saw, what was confirmed is there, and
//! what was given up does not happen later.
//!
//! `./test proxy-network [SECONDS [SEED]]` does it for longer. Where there can be no namespaces, the
//! tests say so and are skipped.

use crate::support::{Proxy, okay, stop, text};
use harness::client::{Client, ask};
use harness::environment::{self, skipped};
use harness::ledger::Ledger;
use harness::network::Network;
use harness::registers::Registers;
use harness::reply::{Protocol, Reply};
use harness::rng::Rng;
use harness::server::{Options, Program, Server, free_port, signal};
use harness::wait::eventually;
use std::thread;
use std::time::{Duration, Instant};

const SERVERS: usize = 3;
const PROXY: usize = 3;
const CLIENT: usize = 4;

/// How long a server may take to answer.
const TIMEOUT: Duration = Duration::from_secs(1);

/// Servers whose confirmed writes outlive them, and a proxy in front of them.
struct Machines<'n> {
    network: &'n Network,
    servers: Vec<Server>,
    proxy: Proxy,
}

fn network() -> Option<Network> {
    if !Program::under_test().is_dunlin() {
        return None;
    }
    let network = Network::new(CLIENT + 1);
    network.inspect_err(|why| skipped(format_args!("no network namespaces: {why}"))).ok()
}

impl<'n> Machines<'n> {
    fn start(network: &'n Network) -> Machines<'n> {
        let program = Program::under_test();
        let server = |at| {
            let host = network.address(at).to_string();
            let words = ["--bind", &host, "127.0.0.1", "--protected-mode", "no"];
            let durable = ["--appendonly", "yes", "--appendfsync", "always"];
            let options = Options::arguments(&[&words[..], &durable].concat());
            network.at(at, || Server::start(&program, options).expect("it starts"))
        };
        let servers: Vec<Server> = (0..SERVERS).map(server).collect();
        let proxy = network.at(PROXY, || {
            let address = (network.address(PROXY), free_port().expect("a port")).into();
            let server = |at: usize| {
                let (host, port) = (network.address(at), servers[at].port());
                format!("{{ address = \"{host}:{port}\", name = \"server{at}\" }}")
            };
            let text = format!(
                "[pool.main]\nkind = \"servers\"\nlisten = [\"{address}\"]\nhash = \"murmur\"\n\
                 timeout_ms = {}\nservers = [{}]\n",
                TIMEOUT.as_millis(),
                (0..SERVERS).map(server).collect::<Vec<_>>().join(", ")
            );
            let file = servers[0].directory().join("proxy.toml");
            Proxy::run_at(&program, &file, address, &text)
        });
        Machines { network, servers, proxy }
    }

    fn restart(&mut self, at: usize) {
        let server = &mut self.servers[at];
        server.kill().expect("it runs");
        self.network.at(at, || server.start_again().expect("it starts"));
    }

    /// Waits until all servers answer.
    fn until_well(&self) {
        let mut client = self.proxy.client(Protocol::Resp2);
        eventually("all servers answer", || !ask(&mut client, &["DBSIZE"]).is_error());
    }
}

/// What happens while clients use the registers.
#[derive(Clone, Copy, Debug)]
enum Fault {
    CutOff,
    NotHeard,
    HearsNothing,
    Killed,
    Stopped,
    AllCutOff,
}

use Fault::*;

const FAULTS: [Fault; 6] = [CutOff, NotHeard, HearsNothing, Killed, Stopped, AllCutOff];

/// Begins a fault of one server, waits for longer than the proxy does, and ends it.
fn suffer(machines: &mut Machines<'_>, fault: Fault, rng: &mut Rng, work: &Registers) {
    let at = rng.below(SERVERS);
    let network = machines.network;
    match fault {
        CutOff => network.divide(&[at], &[PROXY]),
        NotHeard => network.cut(at, PROXY),
        HearsNothing => network.cut(PROXY, at),
        Killed => machines.restart(at),
        Stopped => stop(machines.servers[at].process_id()),
        AllCutOff => network.divide(&[PROXY], &[0, 1, 2]),
    }
    let began = Instant::now();
    if !matches!(fault, AllCutOff) {
        work.go_on();
    }
    thread::sleep((2 * TIMEOUT).saturating_sub(began.elapsed()));
    match fault {
        Stopped => signal(machines.servers[at].process_id(), "CONT").expect("it is there"),
        Killed => {}
        _ => network.mend(),
    }
    work.go_on();
    machines.until_well();
}

#[test]
fn no_confirmed_write_is_lost_whatever_the_network_does() {
    let Some(network) = network() else { return };
    network.at(CLIENT, || {
        let time = environment::seconds("DUNLIN_NETWORK_SECONDS").unwrap_or(Duration::from_secs(9));
        let seed = environment::variable("DUNLIN_SEED").unwrap_or_else(environment::new_seed);
        println!("seed {seed}");
        let mut rng = Rng::new(seed);
        let mut machines = Machines::start(&network);
        let work = Registers::without_transactions(machines.proxy.address);
        let ledger = Ledger::start(machines.proxy.address, time);
        work.during(seed, || {
            let mut left = Vec::new();
            while work.elapsed() < time {
                if left.is_empty() {
                    left = FAULTS.to_vec();
                }
                let fault = left.swap_remove(rng.below(left.len()));
                println!("{:?} {fault:?}", work.elapsed());
                work.go_on();
                suffer(&mut machines, fault, &mut rng, &work);
            }
        });
        let mut client = machines.proxy.client(Protocol::Resp2);
        // It is answered by all servers, and the last one may just be coming back.
        eventually("all servers are there", || !ask(&mut client, &["DBSIZE"]).is_error());
        let log = machines.proxy.log();
        let (is_whole, text) = ledger.audit(machines.proxy.address);
        println!("{text}");
        assert!(is_whole, "seed {seed}: confirmed writes are lost\n{log}");
        let confirmed = work.confirmed();
        let count = work.verdict_through_proxy();
        let count = count.unwrap_or_else(|why| panic!("seed {seed}: {why}\n{log}"));
        println!("{count} operations have one order, {confirmed} confirmed writes among them");
    });
}

/// The kernel sends again what was not acknowledged, for minutes, also of a connection that was
/// closed. So an old write could overwrite a newer one.
#[test]
fn a_write_that_was_given_up_does_not_happen_later() {
    /// Longer than the kernel's pause between two attempts after a few seconds.
    const LATER: Duration = Duration::from_secs(6);
    let Some(network) = network() else { return };
    network.at(CLIENT, || {
        let machines = Machines::start(&network);
        let mut client = machines.proxy.client(Protocol::Resp2);
        assert_eq!(ask(&mut client, &["SET", "key", "first"]), okay());
        let direct = |at: usize| {
            let address = (network.address(at), machines.servers[at].port()).into();
            Client::connect(address).expect("it listens")
        };
        let holds = |at: &usize| ask(&mut direct(*at), &["EXISTS", "key"]) == Reply::Integer(1);
        let at = (0..SERVERS).find(holds).expect("a server has the key");
        network.divide(&[PROXY], &[at]);
        let reply = ask(&mut client, &["SET", "key", "given up"]);
        assert!(reply.is_error(), "{reply:?}");
        network.mend();
        eventually("the server is back", || ask(&mut client, &["SET", "key", "last"]) == okay());
        let until = Instant::now() + LATER;
        while Instant::now() < until {
            assert_eq!(text(&ask(&mut client, &["GET", "key"])), "last");
            thread::sleep(Duration::from_millis(20));
        }
    });
}

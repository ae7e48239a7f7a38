//! Slots move between two shards while machines are cut off from each other: the source's primary,
//! the target's, or etcd, at each phase of the move. One order explains what clients saw, and the
//! job is carried out in the end.
//!
//! `./test cluster-network SECONDS [SEED]` does it for longer.

use crate::network::machines::{self, CLIENT, ETCDS, Machines, NODES, QUORUM, machine_of};
use harness::client::{Client, ask, ok};
use harness::cluster::{Etcd, list, text};
use harness::environment;
use harness::registers::{Registers, leader};
use harness::reply::Reply;
use harness::rng::Rng;
use harness::slot_jobs::Phase::{self, *};
use harness::wait::eventually;
use std::net::SocketAddr;
use std::thread;
use std::time::{Duration, Instant};

/// Longer than a lease.
const LONG: Duration = Duration::from_secs(6);

/// How long a reply is waited for that may be kept back.
const HELD_REPLY: Duration = Duration::from_secs(2);

/// Slots that move together: a quarter of all, so that both shards always have others.
const BLOCK: (u16, u16) = (0, 4095);

/// Which machines cannot reach each other.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Fault {
    SidesFromEachOther,
    SourceFromServers,
    TargetFromServers,
    SourceHeardByNone,
    SourceHearsNone,
    TargetHeardByNone,
    TargetHearsNone,
    SourceFromEtcd,
    TargetFromEtcd,
    EtcdsStopped,
    EtcdsFlap,
}

use Fault::*;

const FAULTS: [Fault; 11] = [
    SidesFromEachOther,
    SourceFromServers,
    TargetFromServers,
    SourceHeardByNone,
    SourceHearsNone,
    TargetHeardByNone,
    TargetHearsNone,
    SourceFromEtcd,
    TargetFromEtcd,
    EtcdsStopped,
    EtcdsFlap,
];

/// Those of the short run.
const SHORT: [(Phase, Fault); 2] = [(Copied, TargetFromServers), (Paused, SourceFromServers)];

/// Two shards of three copies, as clients reach them.
struct Sides<'m, 'n> {
    machines: &'m Machines<'n>,
    addresses: Vec<SocketAddr>,
}

impl Sides<'_, '_> {
    /// Connects as a client that sees the nodes of the cluster.
    fn client(&self, node: usize) -> Option<Client> {
        let client = Client::connect_within(self.addresses[node], LONG).ok()?;
        let mut client = client.with_patience(LONG);
        client.command(&["CLIENT", "CAPA", "cluster", "node"]).ok()?;
        Some(client)
    }

    /// The primary of each shard.
    fn primaries(&self) -> [usize; 2] {
        let shards = self.machines.shards();
        [0, 1].map(|shard| shard * NODES.len() + leader(&shards[shard]))
    }

    /// The number of the shard that owns the block.
    fn owner(&self) -> usize {
        let mut found = None;
        eventually("the block has an owner", || {
            found = (0..self.addresses.len()).find_map(|node| {
                let reply = self.client(node)?.command(&["CLUSTER", "SLOTS"]).ok()?;
                let ranges = reply.elements()?;
                let first = ranges.iter().find(|range| list(range)[0] == Reply::Integer(0))?;
                let Reply::Integer(port) = list(&list(first)[2])[1] else { return None };
                let is_owner = |it: &SocketAddr| i64::from(it.port()) == port;
                Some(self.addresses.iter().position(is_owner)? / NODES.len())
            });
            found.is_some()
        });
        found.expect("it was waited for")
    }

    /// The primaries of the block's shard and of the other one, on two machines.
    fn apart(&self) -> (usize, usize) {
        loop {
            let (primaries, owner) = (self.primaries(), self.owner());
            let (source, target) = (primaries[owner], primaries[1 - owner]);
            if machine_of(source) != machine_of(target) {
                return (source, target);
            }
            let replica = (1 - owner) * NODES.len() + (target + 1) % NODES.len();
            println!("{replica} takes over from {target}");
            eventually("a replica takes over", || {
                let Some(mut client) = self.client(replica) else { return false };
                drop(client.command(&["CLUSTER", "FAILOVER"]));
                text(ask(&mut client, "INFO replication")).contains("role:master")
            });
            self.machines.until_settled(2);
        }
    }

    /// The states of the jobs that a node tells of; `None` if it does not answer.
    fn states(&self, node: usize) -> Option<Vec<String>> {
        let reply = self.client(node)?.command(&["CLUSTER", "GETSLOTMIGRATIONS"]).ok()?;
        let state = |job: &Reply| {
            let words: Vec<String> = list(job).iter().map(Reply::shown).collect();
            let at = words.iter().position(|word| word == "state")?;
            words.get(at + 1).cloned()
        };
        Some(reply.elements()?.iter().filter_map(state).collect())
    }

    /// Waits until no job is under way.
    fn settle(&self) {
        self.machines.until_settled(2);
        eventually("no job is under way", || {
            let is_over = |state: &String| ["success", "cancelled", "failed"].contains(&&**state);
            (0..self.addresses.len())
                .all(|node| self.states(node).is_some_and(|states| states.iter().all(is_over)))
        });
    }

    /// Holds the jobs of a source at a phase, or lets them go on. Returns whether it says that it
    /// does so: one that leads no more does it, and keeps its reply back.
    fn hold(&self, phase: Phase, source: usize, holds: bool) -> bool {
        let Some(words) = phase.hold(holds) else { return true };
        let Some(client) = self.client(source) else { return false };
        let reply = client.with_patience(HELD_REPLY).command(&words);
        reply.is_ok_and(|reply| !reply.is_error())
    }

    /// Asks for the move, and waits until it has come so far.
    fn begin(&self, phase: Phase, source: usize, target: usize) {
        let mut client = self.client(target).expect("clients are not cut off");
        let id = text(ask(&mut client, "CLUSTER MYID"));
        let (first, last) = BLOCK;
        let request = format!("CLUSTER MIGRATESLOTS SLOTSRANGE {first} {last} NODE {id}");
        let mut client = self.client(source).expect("clients are not cut off");
        eventually("the job is noted", || match ask(&mut client, &request) {
            Reply::Error(why) => String::from_utf8_lossy(&why).contains("already migrating"),
            _ => true,
        });
        let is_at = |state: &str| {
            self.states(source).is_some_and(|states| states.iter().any(|it| it == state))
        };
        match phase.state() {
            Some(state) => eventually("it is held", || is_at(state)),
            None if phase == Given => {
                eventually("the slots are given", || self.owner() == target / NODES.len());
            }
            None => {}
        }
    }

    /// Moves the block, cuts machines off at this phase, and mends the network.
    fn suffer(&self, (phase, fault): (Phase, Fault), rng: &mut Rng, work: &Registers) {
        self.settle();
        work.go_on();
        let (source, target) = self.apart();
        println!("{:?} {phase:?}, {fault:?}: from {source} to {target}", work.elapsed());
        eventually("the job will be held", || self.hold(phase, source, true));
        self.begin(phase, source, target);
        let began = Instant::now();
        self.cut(fault, source, target, rng);
        // In some runs the job goes on during the fault, in others after it.
        if rng.below(2) == 0 {
            self.hold(phase, source, false);
        }
        work.go_on();
        println!("writes are confirmed after {:?}", began.elapsed());
        thread::sleep(LONG.saturating_sub(began.elapsed()));
        if fault == EtcdsStopped {
            self.machines.etcds.iter().for_each(Etcd::go_on);
        }
        self.machines.network.mend();
        self.hold(phase, source, false);
        work.go_on();
        self.settle();
        let wanted = target / NODES.len();
        eventually("the job is carried out", || self.owner() == wanted);
    }

    fn cut(&self, fault: Fault, source: usize, target: usize, rng: &mut Rng) {
        let network = self.machines.network;
        let (source, target) = (machine_of(source), machine_of(target));
        let etcds: Vec<usize> = ETCDS.collect();
        let beside = |machine: usize| -> Vec<usize> {
            ETCDS.chain(NODES).filter(|&at| at != machine).collect()
        };
        match fault {
            SidesFromEachOther => network.divide(&[source], &[target]),
            SourceFromServers => network.divide(&[source], &beside(source)),
            TargetFromServers => network.divide(&[target], &beside(target)),
            SourceHeardByNone => network.mute(source, &beside(source)),
            SourceHearsNone => network.deafen(source, &beside(source)),
            TargetHeardByNone => network.mute(target, &beside(target)),
            TargetHearsNone => network.deafen(target, &beside(target)),
            SourceFromEtcd => network.divide(&[source], &etcds),
            TargetFromEtcd => network.divide(&[target], &etcds),
            EtcdsStopped => self.machines.etcds.iter().for_each(Etcd::stop),
            EtcdsFlap => network.flap(&etcds, &NODES.collect::<Vec<_>>(), rng),
        }
    }
}

#[test]
fn slots_move_whatever_the_network_does_to_either_side() {
    let Some(network) = machines::network() else { return };
    network.at(CLIENT, || {
        let long = environment::seconds("DUNLIN_NETWORK_SECONDS");
        let seed = environment::variable("DUNLIN_SEED").unwrap_or_else(environment::new_seed);
        println!("seed {seed}");
        let mut rng = Rng::new(seed);
        let options = [&QUORUM[..], &["--enable-debug-command", "yes"]].concat();
        let machines = Machines::start_sharded(&network, &options, 2);
        let addresses = machines.addresses();
        let sides = Sides { machines: &machines, addresses: addresses.clone() };
        let work = Registers::new(addresses.clone());
        work.during(seed, || match long {
            None => SHORT.iter().for_each(|event| sides.suffer(*event, &mut rng, &work)),
            Some(time) => {
                while work.elapsed() < time {
                    let event = (*rng.pick(&Phase::ALL), *rng.pick(&FAULTS));
                    sides.suffer(event, &mut rng, &work);
                }
            }
        });
        let confirmed = work.confirmed();
        let count = work.verdict_through_proxy().unwrap_or_else(|why| panic!("seed {seed}: {why}"));
        println!("{count} operations have one order, {confirmed} confirmed writes among them");
        // One copy of each key is shown.
        let mut client = Client::connect(addresses[0]).expect("it listens");
        let Reply::Integer(size) = ask(&mut client, "DBSIZE") else { panic!("it is a number") };
        assert_eq!(list(&ask(&mut client, "KEYS *")).len() as i64, size);
        ok(&mut client, "FLUSHALL");
        assert_eq!(ask(&mut client, "DBSIZE"), Reply::Integer(0));
    });
}

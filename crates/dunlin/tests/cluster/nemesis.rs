//! Everything fails at once, in the manner of Jepsen: five machines with nodes and etcd, a database
//! of three shards, and faults on five tracks beside each other: the network, kills, pauses, disks
//! and clocks, and changes that operators make. Clients change and read registers, counters, lists
//! and sets, and run transactions over lists, through the addresses of all machines.
//!
//! One order has to explain what they saw. After each round of faults all is mended, and the
//! database has to become whole by itself.
//!
//! `./test cluster-nemesis [MINUTES [SEED]]` runs it. The schedule of faults follows from the seed;
//! which copy is the primary of a shard then, does not.

mod schedule;
mod site;

use harness::environment::{self, skipped};
use harness::network::{BadLink, Network};
use harness::registers::Registers;
use harness::rng::Rng;
use schedule::{Event, Fault, MACHINES, ROUND, schedule};
use site::{CLIENT, Copy, Site, signal_all};
use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::{Mutex, PoisonError};
use std::thread;
use std::time::Instant;

use Fault::*;

/// Hashing rules that the database gets. Keys in braces stay together by all of them.
const RULES: [&[&str]; 3] = [
    &["--hashing-rule", "[{](?<tag>[^}]*)[}].*", "--hashing-rule", "(?<tag>.*)"],
    &["--hashing-rule", "[{](?<tag>[^}]*)[}].*", "--hashing-rule", ".*(?<tag>.)"],
    &["--hashing", "standard"],
];

/// Slots that move at a time.
const BLOCK: usize = 1500;

/// What ends a fault.
enum End {
    Nothing,
    Mend,
    Quicken,
    Continue(Vec<u32>),
    Start(usize),
    Remove(PathBuf),
    Disk(usize),
    Clock(usize),
}

/// How often each fault came, and what it could not do.
#[derive(Default)]
struct Counts {
    begun: BTreeMap<String, usize>,
    missed: BTreeMap<String, usize>,
}

/// The faults of a run.
struct Nemesis<'s, 'n> {
    site: &'s Site<'n>,
    began: Instant,
    counts: Mutex<Counts>,
}

impl Nemesis<'_, '_> {
    /// Runs a track of a round.
    fn run(&self, events: &[Event], mut rng: Rng) {
        for event in events {
            thread::sleep(event.after);
            let begun = self.begin(event.fault, &mut rng);
            let text = match &begun {
                Ok((text, _)) => text.clone(),
                Err(why) => format!("not begun: {why}"),
            };
            println!("{:.1?} {:?}, {:.1?}: {text}", self.began.elapsed(), event.fault, event.lasts);
            let mut counts = self.counts.lock().unwrap_or_else(PoisonError::into_inner);
            let Counts { begun: done, missed } = &mut *counts;
            *if begun.is_ok() { done } else { missed }.entry(event.fault.kind()).or_default() += 1;
            drop(counts);
            let Ok((_, end)) = begun else { continue };
            if !matches!(end, End::Nothing) {
                thread::sleep(event.lasts);
            }
            self.end(end);
        }
    }

    /// Begins a fault. Returns what it is about and what ends it.
    fn begin(&self, fault: Fault, rng: &mut Rng) -> Result<(String, End), String> {
        match fault {
            Alone(_) | AloneWithClients(_) | Divided(_) | Bridge(_) | Ring | HeardByNone(_)
            | HearsNone(_) | OneWay(_) | Flapping(_) | SlowLink(_) => self.disturb(fault, rng),
            DiskFull(_) | LogWritesFail(_) | LogFsyncsFail(_) | LogFsyncsStuck(_)
            | ClockJumps(_) => Ok(self.spoil(fault, rng)),
            SlotsMove(_) | RulesChange(_) | Switch(_) => self.change(fault, rng),
            PrimaryKilled(_) | ReplicaKilled(_) | NodeKilled(_) | EtcdKilled(_)
            | MachineKilled(_) => self.kill(fault),
            PrimaryStopped(_) | ReplicaStopped(_) | NodeStopped(_) | EtcdStopped(_)
            | MachineStopped(_) => {
                let (text, processes) = self.victims(fault)?;
                signal_all(&processes, "STOP");
                Ok((text, End::Continue(processes)))
            }
        }
    }

    /// Cuts machines off from each other.
    fn disturb(&self, fault: Fault, rng: &mut Rng) -> Result<(String, End), String> {
        let network = self.site.network;
        let others = |at: usize| -> Vec<usize> { (0..MACHINES).filter(|&it| it != at).collect() };
        let next = |at: usize, by: usize| (at + by) % MACHINES;
        match fault {
            Alone(at) => network.divide(&[at], &[&others(at)[..], &[CLIENT]].concat()),
            AloneWithClients(at) => network.divide(&[at], &others(at)),
            Divided(at) => {
                network.divide(&[at, next(at, 1)], &[2, 3, 4].map(|by| next(at, by)));
            }
            Bridge(at) => {
                network.divide(&[1, 2].map(|by| next(at, by)), &[3, 4].map(|by| next(at, by)));
            }
            Ring => (0..MACHINES).for_each(|at| network.divide(&[at], &[next(at, 2)])),
            HeardByNone(at) => network.mute(at, &others(at)),
            HearsNone(at) => network.deafen(at, &others(at)),
            OneWay(at) => network.cut(at, next(at, 1)),
            Flapping(at) => network.flap(&[at], &others(at), rng),
            SlowLink(at) => {
                let link = BadLink { bytes_per_second: 250_000, lost_percent: 5, late_ms: 100 };
                let how = network.slow(at, link)?;
                return Ok((how.to_owned(), End::Quicken));
            }
            other => unreachable!("{other:?} is none of the network's"),
        }
        Ok((String::new(), End::Mend))
    }

    /// Lets the disk or the clock of a machine fail.
    fn spoil(&self, fault: Fault, rng: &mut Rng) -> (String, End) {
        let set = |at: usize, list: &str| {
            self.site.faults[at].set_disk(list);
            (list.trim().to_owned(), End::Disk(at))
        };
        match fault {
            DiskFull(at) => {
                let path = self.site.fill_disk(at);
                (String::new(), End::Remove(path))
            }
            LogWritesFail(at) => set(at, "write 28 appendonlydir\n"),
            LogFsyncsFail(at) => set(at, "fsync 5 appendonlydir\n"),
            LogFsyncsStuck(at) => set(at, "stuck-fsync 0 appendonlydir\n"),
            ClockJumps(at) => {
                let seconds = rng.between(-24 * 3600, 24 * 3600);
                self.site.faults[at].jump(seconds);
                (format!("{seconds} s"), End::Clock(at))
            }
            other => unreachable!("{other:?} is none of a disk"),
        }
    }

    /// Changes the database as an operator does. It may be refused, as while another change runs.
    fn change(&self, fault: Fault, rng: &mut Rng) -> Result<(String, End), String> {
        let at = rng.below(MACHINES);
        let first = rng.below(16384 - BLOCK);
        let slots = format!("{first}-{}", first + BLOCK - 1);
        let (is_done, text) = match fault {
            SlotsMove(shard) => {
                let shard = (shard + 1).to_string();
                self.site.change(at, &["move", "d", &slots, &shard, "--no-wait"])
            }
            RulesChange(rules) => {
                let update = ["update-db", "d", "--no-wait"];
                self.site.change(at, &[&update[..], RULES[rules]].concat())
            }
            Switch(shard) => {
                let shard = (shard + 1).to_string();
                self.site.change(at, &["failover", "d", "--shard", &shard])
            }
            other => unreachable!("{other:?} is no change"),
        };
        let text = text.replace('\n', "; ");
        if is_done { Ok((text, End::Nothing)) } else { Err(text) }
    }

    fn kill(&self, fault: Fault) -> Result<(String, End), String> {
        let (text, processes) = self.victims(fault)?;
        let (NodeKilled(at) | MachineKilled(at)) = fault else {
            signal_all(&processes, "KILL");
            return Ok((text, End::Nothing));
        };
        // First the node, which would start the others again.
        self.site.machine(at).kill_node();
        if matches!(fault, MachineKilled(_)) {
            signal_all(&processes, "KILL");
        }
        Ok((text, End::Start(at)))
    }

    /// The processes that a fault is about, and what they are.
    fn victims(&self, fault: Fault) -> Result<(String, Vec<u32>), String> {
        let one = |copy: Option<Copy>| {
            let copy = copy.ok_or("no copy leads")?;
            let process = self.site.process_of(&copy).ok_or("it does not run")?;
            Ok((format!("machine {}", copy.machine), vec![process]))
        };
        let of = |at: usize| self.site.machine(at);
        let is_there = |processes: Vec<u32>| match processes.is_empty() {
            true => Err("it does not run".to_owned()),
            false => Ok((format!("processes {processes:?}"), processes)),
        };
        match fault {
            PrimaryKilled(shard) | PrimaryStopped(shard) => one(self.site.copy(shard, true)),
            ReplicaKilled(shard) | ReplicaStopped(shard) => one(self.site.copy(shard, false)),
            EtcdKilled(at) | EtcdStopped(at) => is_there(of(at).etcds()),
            NodeKilled(at) | NodeStopped(at) => is_there(of(at).node_process()),
            MachineKilled(at) | MachineStopped(at) => {
                let machine = of(at);
                is_there([machine.supervised(), machine.node_process()].concat())
            }
            other => unreachable!("{other:?} is about no process"),
        }
    }

    fn end(&self, end: End) {
        let site = self.site;
        match end {
            End::Nothing => {}
            End::Mend => site.network.mend(),
            End::Quicken => site.network.quicken(),
            End::Continue(processes) => signal_all(&processes, "CONT"),
            End::Start(at) => site.machine(at).start_again(),
            End::Remove(path) => std::fs::remove_file(path).expect("it is there"),
            End::Disk(at) => site.faults[at].set_disk(""),
            End::Clock(at) => site.faults[at].jump(0),
        }
    }
}

#[test]
fn one_order_explains_all_whatever_fails_at_once() {
    let Some(time) = environment::seconds("DUNLIN_NEMESIS_SECONDS") else {
        return skipped("./test cluster-nemesis runs it, alone");
    };
    let network = match Network::new(MACHINES + 1) {
        Ok(network) => network,
        Err(why) => return skipped(format_args!("no network namespaces: {why}")),
    };
    network.at(CLIENT, || {
        let seed = environment::variable("DUNLIN_SEED").unwrap_or_else(environment::new_seed);
        println!("seed {seed}");
        let rounds = time.as_secs().div_ceil(ROUND.as_secs()).max(1);
        let rounds = schedule(seed, usize::try_from(rounds).expect("it is a short time"));
        let Some(site) = Site::start(&network) else { return };
        let nemesis = Nemesis { site: &site, began: Instant::now(), counts: Mutex::default() };
        let work = Registers::of_all_kinds(site.entries());
        work.during(seed, || {
            for (number, tracks) in rounds.iter().enumerate() {
                work.go_on();
                thread::scope(|threads| {
                    for (track, events) in tracks.iter().enumerate() {
                        let rng = Rng::new(seed ^ (number as u64 + 1) << 8 ^ (track as u64) << 4);
                        let nemesis = &nemesis;
                        threads.spawn(move || nemesis.run(events, rng));
                    }
                });
                let mended = Instant::now();
                site.until_whole();
                work.go_on();
                println!(
                    "{:.1?} whole {:.1?} after the faults",
                    nemesis.began.elapsed(),
                    mended.elapsed()
                );
            }
        });
        report(&nemesis, &work, seed);
    });
}

/// Checks what the clients saw, and prints what was counted.
fn report(nemesis: &Nemesis, work: &Registers, seed: u64) {
    let counts = nemesis.counts.lock().unwrap_or_else(PoisonError::into_inner);
    let shown = |counts: &BTreeMap<String, usize>| {
        counts.iter().map(|(kind, count)| format!("{count} {kind}")).collect::<Vec<_>>().join(", ")
    };
    let begun: usize = counts.begun.values().sum();
    println!("{begun} faults began: {}", shown(&counts.begun));
    println!("not begun, as no copy led or another change ran: {}", shown(&counts.missed));
    let mut jobs = BTreeMap::new();
    for job in nemesis.site.jobs() {
        *jobs.entry(job).or_default() += 1;
    }
    println!("jobs: {}", shown(&jobs));
    let confirmed = work.confirmed();
    for (what, count) in work.tally() {
        println!("operations: {what} {count}");
    }
    let count = work.verdict_through_proxy();
    let count = count.unwrap_or_else(|why| panic!("seed {seed}: an anomaly: {why}"));
    println!("anomalies: none");
    println!("{count} operations have one order, {confirmed} confirmed writes among them");
}

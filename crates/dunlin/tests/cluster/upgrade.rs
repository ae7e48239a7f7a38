//! The release before beside this one: a cluster of both, an upgrade and the way back.
//!
//! `./test upgrade` runs these tests for minutes, with the programs of earlier commits or with the
//! one that `BEFORE` names.

mod servers;

use crate::bus::work;
use crate::support::{Machine, row_of_ports, until_ok};
use harness::client::{Client, ask, ok};
use harness::environment::skipped;
use harness::ledger::Ledger;
use harness::server::{Program, signal};
use harness::wait::eventually;
use serde_json::Value;
use std::net::{Ipv4Addr, SocketAddr};
use std::path::PathBuf;

/// The program of the release before, if these tests are asked for.
fn before() -> Option<Program> {
    let path = std::env::var("DUNLIN_BEFORE").ok();
    if path.is_none() {
        skipped("./test upgrade runs it, alone");
    }
    Some(Program::from_command(&format!("{} server", path?)))
}

fn file_of(program: &Program) -> PathBuf {
    let path = PathBuf::from(program.subcommand("").get_program());
    path.canonicalize().expect("the program is there")
}

/// Three machines of a cluster, of which each has a program.
fn machines(test: &str, programs: [&Program; 3]) -> [Machine; 3] {
    let first = Machine::first_of_program(programs[0], test, "a");
    let second = Machine::join_of_program(programs[1], &first, test, "b");
    let third = Machine::beside_of_program(programs[2], &first, test, "c");
    [first, second, third]
}

/// Creates the database `d` of two shards with a copy on each machine.
fn create(machine: &Machine) {
    let mut text = String::new();
    for _ in 0..5 {
        let port = row_of_ports().to_string();
        let words = ["create-db", "d", "--memory", "96mb", "--shards", "2", "--replicas", "2"];
        let more = ["--commit", "quorum", "--port", &port];
        let asked = machine.ask(&[&words[..], &more].concat());
        if asked.0 {
            return until_ok(machine, "d");
        }
        text = asked.1;
        // Another process has taken one of the ports.
        machine.ask(&["delete-db", "d", "--confirm", "d"]);
    }
    panic!("the database is not created: {text}");
}

/// The copy of a shard on a machine.
fn copy(machine: &Machine, shard: usize, on: &Machine) -> Value {
    let copies = machine.copies("d");
    let found = copies.iter().find(|copy| copy["shard"] == shard && copy["machine"] == *on.name);
    found.unwrap_or_else(|| panic!("shard {shard} has no copy on {}: {copies:?}", on.name)).clone()
}

fn address(copy: &Value) -> SocketAddr {
    let port = copy["port"].as_u64().and_then(|port| u16::try_from(port).ok());
    (Ipv4Addr::LOCALHOST, port.expect("a copy has a port")).into()
}

/// The process of the copy of a shard on a machine.
fn process(shard: usize, on: &Machine) -> u32 {
    on.process_of(&copy(on, shard, on)).expect("it runs")
}

/// Asserts that the copies of a machine run its program.
fn expect_copies_run_its_program(machine: &Machine) {
    for shard in [1, 2] {
        let link = format!("/proc/{}/exe", process(shard, machine));
        let runs = std::fs::read_link(link).expect("it runs");
        assert_eq!(runs, file_of(&machine.program), "shard {shard} on {}", machine.name);
    }
}

/// Hands a shard over to its copy on a machine, unless that leads already.
fn hand_over(asked: &Machine, shard: usize, to: &Machine) {
    let copy = || copy(asked, shard, to);
    if copy()["role"] != "primary" {
        let id = copy()["id"].as_str().expect("a copy has an id").to_owned();
        let mut text = String::new();
        eventually("the replica is in step", || {
            let (is_done, said) = asked.ask(&["failover", "d", "--copy", &id]);
            text = said;
            is_done || copy()["role"] == "primary"
        });
        eventually(&format!("it leads: {text}"), || copy()["role"] == "primary");
    }
    until_ok(asked, "d");
}

/// Moves slots to a shard.
fn move_slots(asked: &Machine, slots: &str, shard: &str) {
    let (is_done, text) = asked.ask(&["move", "d", slots, shard]);
    assert!(is_done && text.contains("move d: done"), "{slots} to {shard}: {text}");
    until_ok(asked, "d");
}

/// Starts the copies again one by one, as the guide says. An etcd that has no leader for a moment
/// ends the command, not the job.
fn restart(asked: &Machine) {
    eventually("the copies are started again", || {
        let (is_done, text) = asked.ask(&["restart", "d"]);
        let is_busy = text.contains("etcd is away") || text.contains(" changes ");
        assert!(is_done || is_busy, "{text}");
        is_done
    });
    until_ok(asked, "d");
}

/// Loads with ledgers, one at each machine.
struct Ledgers {
    machines: [&'static str; 3],
    ledgers: Vec<Ledger>,
}

/// Where the copies of shard 2 listen, which no test stands still.
fn addresses(machines: &[Machine; 3]) -> [SocketAddr; 3] {
    machines.each_ref().map(|machine| address(&copy(machine, 2, machine)))
}

impl Ledgers {
    fn start(machines: &[Machine; 3]) -> Ledgers {
        let names = ["a", "b", "c"];
        let start = |(at, address)| Ledger::start_endless(address, names[at]);
        let ledgers = addresses(machines).into_iter().enumerate().map(start).collect();
        let ledgers = Ledgers { machines: names, ledgers };
        ledgers.until_confirmed();
        ledgers
    }

    /// Waits until writes are confirmed at each machine.
    fn until_confirmed(&self) {
        let before: Vec<u64> = self.ledgers.iter().map(Ledger::noted).collect();
        for (at, ledger) in self.ledgers.iter().enumerate() {
            let what = format!("writes are confirmed at machine {}", self.machines[at]);
            eventually(&what, || ledger.noted() > before[at] + 4096);
        }
    }

    /// Ends the loads, and asserts that what each of them was told to be written is there, by each
    /// machine.
    fn expect_all(mut self, machines: &[Machine; 3]) {
        self.until_confirmed();
        self.ledgers.iter_mut().for_each(Ledger::end);
        for (at, address) in addresses(machines).into_iter().enumerate() {
            for (ledger, by) in self.ledgers.iter().zip(&self.machines) {
                let (is_whole, text) = ledger.compare(address);
                println!("written at {by}, read at {}: {text}", machines[at].name);
                assert!(is_whole, "written at {by}, read at {}: {text}", machines[at].name);
            }
        }
    }
}

/// Stands the primary of shard 1, which is on the first machine, still until another copy leads.
/// That is the one on the second machine, since that on the third lacks writes.
fn fail_over([from, to, behind]: [&Machine; 3], ledgers: &Ledgers) {
    let shard = 1;
    let late = process(shard, behind);
    signal(late, "STOP").expect("it runs");
    // What was sent to it already it would still read.
    let mut client = Client::connect(address(&copy(from, shard, from))).expect("it listens");
    ok(&mut client, "CLIENT CAPA cluster node");
    ask(&mut client, "CLIENT KILL TYPE replica");
    ledgers.until_confirmed();
    let stopped = process(shard, from);
    signal(stopped, "STOP").expect("it runs");
    signal(late, "CONT").expect("it runs");
    let led = || {
        let leads = |on: &&Machine| copy(to, shard, on)["role"] == "primary";
        [to, behind].into_iter().find(leads).map(|it| it.name.clone())
    };
    let mut leader = None;
    eventually("another copy leads", || {
        leader = led();
        leader.is_some()
    });
    assert_eq!(leader.as_ref(), Some(&to.name), "the one with all writes leads");
    signal(stopped, "CONT").expect("it runs");
    until_ok(to, "d");
}

/// A cluster of which the machine with this number runs the release before.
fn beside_one_of_the_release_before(old: usize, test: &str) {
    let Some(before) = before() else { return };
    let new = Program::under_test();
    let programs = [0, 1, 2].map(|at| if at == old { &before } else { &new });
    let machines = machines(test, programs);
    let (old, [one, other]) = match &machines {
        [a, b, c] if old == 0 => (a, [b, c]),
        [a, b, c] => (c, [a, b]),
    };
    // From either side.
    for machine in [one, old] {
        create(machine);
        for seen_by in &machines {
            until_ok(seen_by, "d");
            expect_copies_run_its_program(seen_by);
        }
        work(old, "old");
        work(one, "new");
        if machine.name == one.name {
            let (is_done, text) = machine.ask(&["delete-db", "d", "--confirm", "d"]);
            assert!(is_done, "{text}");
        }
    }
    let ledgers = Ledgers::start(&machines);
    for asked in [old, one] {
        hand_over(asked, 1, one);
        fail_over([one, old, other], &ledgers);
        work(one, "led-by-the-old-one");
        fail_over([old, one, other], &ledgers);
        work(old, "led-by-the-new-one");
        // Shard 1 is led by the one side, shard 2 by the other.
        for (source, target, there, back) in
            [(old, one, "0-1999", "8192-9999"), (one, old, "0-999", "8192-8999")]
        {
            hand_over(asked, 1, source);
            hand_over(asked, 2, target);
            move_slots(asked, there, "2");
            move_slots(asked, back, "1");
            move_slots(asked, there, "1");
            move_slots(asked, back, "2");
        }
        work(asked, "moved");
    }
    for asked in [one, old] {
        restart(asked);
    }
    ledgers.expect_all(&machines);
}

#[test]
fn the_release_before_takes_machines_of_this_one() {
    beside_one_of_the_release_before(0, "upgrade-old");
}

#[test]
fn a_machine_of_the_release_before_joins_this_one() {
    beside_one_of_the_release_before(2, "upgrade-new");
}

/// Lets the machines run a program, one after the other, under writers.
fn roll(machines: &mut [Machine; 3], program: &Program, ledgers: &Ledgers) {
    for at in 0..machines.len() {
        machines[at].replace_program(program);
        restart(&machines[at]);
        for machine in &*machines {
            until_ok(machine, "d");
            expect_copies_run_its_program(machine);
        }
        work(&machines[at], &format!("machine-{}", machines[at].name));
        ledgers.until_confirmed();
    }
    let (is_done, text) = machines[0].ask(&["status"]);
    assert!(is_done, "{text}");
    println!("all run {}: {text}", file_of(program).display());
}

#[test]
fn an_upgrade_machine_by_machine_is_rolled_back_and_made_again() {
    let Some(before) = before() else { return };
    let mut machines = machines("upgrade-roll", [&before; 3]);
    create(&machines[0]);
    let ledgers = Ledgers::start(&machines);
    for program in [&Program::under_test(), &before, &Program::under_test()] {
        roll(&mut machines, program, &ledgers);
    }
    ledgers.expect_all(&machines);
}

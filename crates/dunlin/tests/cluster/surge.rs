//! Restarts during which no shard has fewer copies than before.

use crate::data::{WRITERS, under_writers};
use crate::support::{Machine, row_of_ports, until_ok};
use harness::client::{Client, ask};
use harness::environment::skipped;
use harness::http;
use harness::reply::Reply;
use harness::server::Program;
use harness::wait::{SetAtEnd, eventually};
use serde_json::Value;
use std::collections::BTreeSet;
use std::fs::Permissions;
use std::net::{Ipv4Addr, SocketAddr};
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

/// Returns whether tests with writers run, which take both processors for a minute: on a busy
/// machine leases of copies end, and writers see what a restart has not done.
fn is_asked_for() -> bool {
    let is_asked_for = std::env::var_os("DUNLIN_SURGE").is_some();
    if !is_asked_for {
        skipped("./test cluster-surge runs it, alone");
    }
    is_asked_for
}

/// Creates the database `d` of two shards, and returns the ports at which its copies may listen.
fn create(machine: &Machine, options: &[&str]) -> Vec<u16> {
    let port = row_of_ports();
    let number = port.to_string();
    let words = ["create-db", "d", "--shards", "2", "--port", &number];
    let (is_done, text) = machine.ask(&[&words[..], options].concat());
    assert!(is_done, "{text}");
    until_ok(machine, "d");
    (port..port + 12).collect()
}

/// The copies of each shard, as the node shows them.
fn shards(machine: &Machine) -> Vec<Vec<Value>> {
    let answer = http::ask(machine.admin_port, "GET", "/api/v1/cluster/databases", &[], "");
    let Ok(answer) = answer else { return Vec::new() };
    // A node whose etcd is slow says so.
    let Ok(Value::Array(databases)) = serde_json::from_str(&answer.text()) else {
        return Vec::new();
    };
    let of = |value: &Value, name: &str| value[name].as_array().cloned().unwrap_or_default();
    let shards = databases.first().map(|database| of(database, "shards")).unwrap_or_default();
    shards.iter().map(|shard| of(shard, "copies")).collect()
}

fn is(copy: &Value, name: &str) -> bool {
    copy[name] == true
}

fn ids(machine: &Machine) -> BTreeSet<String> {
    let id = |copy: &Value| copy["id"].as_str().map(str::to_owned);
    machine.copies("d").iter().filter_map(id).collect()
}

/// The processes of all copies, by any of the machines.
fn processes(machines: &[&Machine]) -> BTreeSet<u32> {
    let copies = machines[0].copies("d");
    let of = |copy: &Value| machines.iter().find_map(|machine| machine.process_of(copy));
    copies.iter().map(|copy| of(copy).expect("it runs")).collect()
}

/// Looks at the members of each shard until it is over. Returns how often it looked, and what was
/// too little.
fn watch_members(machine: &Machine, least: usize, is_over: &AtomicBool) -> (usize, Vec<String>) {
    let (mut looks, mut wrong) = (0, Vec::new());
    while !is_over.load(Relaxed) {
        let shards = shards(machine);
        looks += usize::from(!shards.is_empty());
        // Without an answer of etcd the node knows no roles.
        for copies in shards.into_iter().filter(|it| it.iter().any(|copy| copy["role"] != "none")) {
            if copies.iter().filter(|copy| is(copy, "is_member")).count() < least {
                wrong.push(format!("{copies:?}"));
            }
        }
    }
    (looks, wrong)
}

/// Restarts `d` under writers, and checks that all processes are new and no shard ever had fewer
/// members than before.
fn restart(machines: &[&Machine], ports: &[u16], confirmed: &mut [u64; WRITERS]) {
    let first = machines[0];
    let (before, old) = (processes(machines), ids(first));
    let is_over = AtomicBool::new(false);
    let (looks, wrong) = std::thread::scope(|scope| {
        let over = SetAtEnd(&is_over);
        let watcher = scope.spawn(|| watch_members(first, 2, &is_over));
        under_writers(first, ports, confirmed, || {
            let (is_done, text) = first.ask(&["restart", "d", "--surge"]);
            assert!(is_done && text.contains("restart d: done"), "{text}");
            until_ok(first, "d");
        });
        drop(over);
        watcher.join().expect("it watches")
    });
    assert_eq!(wrong, Vec::<String>::new(), "a shard had fewer members");
    assert!(looks > 10, "it was watched {looks} times");
    let after = processes(machines);
    assert!(before.is_disjoint(&after) && after.len() == 4, "{before:?} {after:?}");
    let new = ids(first);
    assert_eq!(new.difference(&old).count(), 2, "a copy of each shard stays: {old:?} {new:?}");
    assert!(shards(first).iter().flatten().all(|copy| !is(copy, "is_surge")), "none is left over");
}

#[test]
fn no_shard_has_fewer_members_while_copies_restart() {
    if !is_asked_for() {
        return;
    }
    let first = Machine::first("surge", "a");
    let [second, third] = ["b", "c"].map(|name| Machine::beside(&first, "surge", name));
    let ports = create(&first, &["--memory", "96mb", "--replicas", "1"]);
    let machines = [&first, &second, &third];
    let mut confirmed = [0; WRITERS];
    let (before, old) = (processes(&machines), ids(&first));
    let (is_done, text) = first.ask(&["restart", "d", "--surge", "--dry-run"]);
    assert!(is_done && text.contains("A copy of shard 2 goes from machine"), "{text}");
    assert_eq!((processes(&machines), ids(&first)), (before, old), "nothing was changed");
    restart(&machines, &ports, &mut confirmed);
    let (is_done, text) = first.ask(&["update-db", "d", "--commit", "quorum"]);
    assert!(is_done, "{text}");
    until_ok(&first, "d");
    restart(&machines, &ports, &mut confirmed);
}

/// Begins a restart of `d` that is not waited for, and returns the job.
fn begin(machine: &Machine) -> String {
    let begun = machine.json(&["restart", "d", "--surge", "--no-wait"]);
    begun["job"].as_str().expect("it has begun").to_owned()
}

fn job(machine: &Machine, id: &str) -> Value {
    let jobs = machine.json(&["jobs"]);
    let jobs = jobs.as_array().cloned().unwrap_or_default();
    jobs.into_iter().find(|job| job["id"] == id).expect("the job is kept")
}

fn until_added(machine: &Machine) {
    eventually("a copy is added", || {
        shards(machine).iter().flatten().any(|copy| is(copy, "is_surge"))
    });
}

#[test]
fn another_node_goes_on_with_the_restart_and_a_cancel_takes_the_copy_out() {
    if !is_asked_for() {
        return;
    }
    let first = Machine::first("surge-goes-on", "a");
    let mut second = Machine::beside(&first, "surge-goes-on", "b");
    let ports = create(&first, &["--memory", "96mb", "--replicas", "1", "--commit", "quorum"]);
    let mut confirmed = [0; WRITERS];
    let before = processes(&[&first, &second]);
    under_writers(&first, &ports, &mut confirmed, || {
        let id = begin(&second);
        until_added(&first);
        second.kill_node();
        eventually("another node has the job", || job(&first, &id)["machine"] == "a");
        let (is_done, text) = first.ask(&["update-db", "d", "--memory", "200mb"]);
        assert!(!is_done && text.contains(&format!("job {id} changes")), "{text}");
        assert!(second.start_with(&second.words()), "the node starts again");
        eventually("the job is done", || job(&first, &id)["state"] == "done");
        until_ok(&first, "d");
    });
    let after = processes(&[&first, &second]);
    assert!(before.is_disjoint(&after) && after.len() == 4, "{before:?} {after:?}");

    // On two machines the copy that stays is on the other one than that of its shard.
    for copies in shards(&first) {
        let machines: BTreeSet<&str> =
            copies.iter().filter_map(|it| it["machine"].as_str()).collect();
        assert_eq!(machines.len(), 2, "{copies:?}");
    }

    let old = ids(&first);
    under_writers(&first, &ports, &mut confirmed, || {
        let id = begin(&first);
        until_added(&first);
        let (is_done, text) = first.ask(&["cancel", &id]);
        assert!(is_done && text.contains("restart d: cancelled"), "{text}");
        until_ok(&first, "d");
    });
    assert_eq!(ids(&first).len(), 4);
    // Unless the shard's primary had gone already, its copies are those of before.
    assert!(ids(&first).difference(&old).count() <= 1);
    assert!(shards(&first).iter().flatten().all(|copy| !is(copy, "is_surge")));
}

/// Lets the program of the copies that start from now on be another one.
fn replace(link: &Path, program: &Path) {
    let new = link.with_extension("new");
    std::os::unix::fs::symlink(program, &new).expect("it is made");
    std::fs::rename(&new, link).expect("it is replaced");
}

#[test]
fn a_program_that_does_not_start_ends_the_restart_at_the_copy_that_was_added() {
    let folder = std::env::temp_dir().join(format!("dunlin-surge-{}", std::process::id()));
    std::fs::create_dir_all(&folder).expect("it is made");
    let link = folder.join("dunlin");
    let good = Program::under_test().subcommand("server").get_program().to_owned();
    replace(&link, Path::new(&good));
    let mut machine = Machine::new("surge-bad", "a", "");
    machine.copy_program = Some(link.clone());
    machine.etcd_port = Some(row_of_ports());
    assert!(machine.start(), "the node starts");
    let ports = create(&machine, &["--memory", "96mb", "--replicas", "1"]);
    let (before, old) = (processes(&[&machine]), ids(&machine));

    let bad = folder.join("bad");
    std::fs::write(&bad, "#!/bin/sh\necho this program is broken >&2\nexit 3\n").expect("written");
    std::fs::set_permissions(&bad, Permissions::from_mode(0o755)).expect("it may run");
    replace(&link, &bad);
    let mut confirmed = [0; WRITERS];
    under_writers(&machine, &ports, &mut confirmed, || {
        let (is_done, text) = machine.ask(&["restart", "d", "--surge"]);
        let says = text.contains("does not run, and was taken out") && text.contains("is broken");
        assert!(!is_done && says, "{text}");
    });
    assert_eq!((processes(&[&machine]), ids(&machine)), (before, old), "nothing was touched");
    until_ok(&machine, "d");
    replace(&link, Path::new(&good));
    restart(&[&machine], &ports, &mut confirmed);
    std::fs::remove_dir_all(&folder).expect("it is removed");
}

#[test]
fn a_restart_that_has_no_room_for_a_copy_is_refused() {
    let machine = Machine::first("surge-room", "a");
    let options = ["--memory", "6gb", "--replicas", "0", "--persistence", "none"];
    let ports = create(&machine, &options);
    let old = ids(&machine);
    let refused = |words: &[&str], part: &str| {
        let (is_done, text) = machine.ask(&[&["restart", "d"], words].concat());
        assert!(!is_done && text.contains(part), "{text}");
    };
    refused(&["--surge"], "--surge needs room for one copy more at a time");
    refused(&["--surge", "--dry-run"], "a copy needs 3.0 GiB of free memory; a has 2.0 GiB");
    refused(&[], "Add --surge");
    assert_eq!(ids(&machine), old, "nothing was changed");

    // With room it keeps what is in memory alone: the data go to the copy that was added.
    let (is_done, text) = machine.ask(&["update-db", "d", "--memory", "96mb"]);
    assert!(is_done, "{text}");
    let address = SocketAddr::from((Ipv4Addr::LOCALHOST, ports[0]));
    let mut client = Client::connect(address).expect("a copy listens");
    for key in 0..32 {
        assert_eq!(ask(&mut client, &format!("SET {key} x")), Reply::Simple(b"OK".to_vec()));
    }
    let (is_done, text) = machine.ask(&["restart", "d", "--surge"]);
    assert!(is_done && text.contains("restart d: done"), "{text}");
    until_ok(&machine, "d");
    assert!(ids(&machine).is_disjoint(&old));
    let copies = machine.copies("d");
    let port = copies[0]["port"].as_u64().and_then(|port| port.try_into().ok()).expect("a port");
    let mut client =
        Client::connect(SocketAddr::from((Ipv4Addr::LOCALHOST, port))).expect("a copy listens");
    for key in 0..32 {
        assert_eq!(ask(&mut client, &format!("GET {key}")), Reply::Bulk(b"x".to_vec()));
    }
}

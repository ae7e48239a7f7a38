//! A machine gives its copies away: before it goes, and when it is gone.

use crate::support::{Machine, run, until_ok};
use harness::client::{Client, ask};
use harness::http;
use harness::reply::Reply;
use harness::wait::eventually;
use std::net::{Ipv4Addr, SocketAddr};

/// The machines of a database's copies.
fn homes(machine: &Machine) -> Vec<String> {
    let copies = machine.copies("d");
    copies.iter().filter_map(|copy| copy["machine"].as_str().map(str::to_owned)).collect()
}

/// Waits until the keys are there, whichever copy is asked.
fn until_there(machine: &Machine) {
    for copy in machine.copies("d") {
        let port = copy["port"].as_u64().and_then(|port| port.try_into().ok()).unwrap_or(0);
        eventually("the keys are there", || {
            let client = Client::connect(SocketAddr::from((Ipv4Addr::LOCALHOST, port)));
            client.is_ok_and(|mut client| {
                (0..32).all(|key| {
                    ask(&mut client, &format!("GET {key}")) == Reply::Bulk(b"x".to_vec())
                })
            })
        });
    }
}

#[test]
fn copies_move_off_a_machine_that_is_drained_and_off_one_that_is_lost() {
    let first = Machine::first("drain", "a");
    let [second, mut third] = ["b", "c"].map(|name| Machine::join(&first, "drain", name));
    let (port, _) = first.create("d", "1");
    until_ok(&first, "d");
    let mut client =
        Client::connect(SocketAddr::from((Ipv4Addr::LOCALHOST, port))).expect("a copy listens");
    for key in 0..32 {
        assert_eq!(ask(&mut client, &format!("SET {key} x")), Reply::Simple(b"OK".to_vec()));
    }
    assert!(homes(&first).iter().any(|home| home == "b"));

    // What it leads goes, its replicas stay.
    let (is_done, text) = first.ask(&["drain-node", "b", "--switch-only"]);
    assert!(is_done && text.contains("switch b: done"), "{text}");
    let leads = |copy: &serde_json::Value| copy["machine"] == "b" && copy["role"] == "primary";
    assert!(!first.copies("d").iter().any(leads), "{:?}", first.copies("d"));
    assert!(homes(&first).iter().any(|home| home == "b"));

    let probe =
        |path: &str| http::ask(second.admin_port, "GET", path, &[], "").expect("it answers");
    assert_eq!(probe("/availability?database=d").status, 503, "load balancers send nothing");
    assert_eq!((probe("/readyz").status, probe("/healthz").status), (503, 200));

    let (is_done, text) = first.ask(&["drain-node", "b"]);
    assert!(is_done && text.contains("drain b: done"), "{text}");
    let homes_now = homes(&first);
    assert!(homes_now.len() == 6 && homes_now.iter().all(|home| home != "b"), "{homes_now:?}");
    eventually("its files are gone", || {
        std::fs::read_dir(second.directory.join("copies")).is_ok_and(|it| it.count() == 0)
    });
    until_ok(&first, "d");
    until_there(&first);
    let nodes = first.ask(&["nodes"]).1;
    assert!(nodes.contains("draining"), "{nodes}");
    assert!(first.ask(&["drain-node", "b", "--undo"]).0);
    eventually("the machine is ready again", || probe("/readyz").status == 200);

    // A machine that does not come back.
    let (is_done, text) = run(&["down", "--dir", &third.path("")]);
    assert!(is_done, "{text}");
    third.kill_node();
    eventually("its lease has ended", || {
        let machines = first.json(&["nodes"]);
        let machines = machines.as_array().cloned().unwrap_or_default();
        machines.iter().any(|machine| machine["name"] == "c" && machine["is_alive"] == false)
    });
    let (is_done, text) = first.ask(&["forget", "c"]);
    assert!(!is_done && text.contains("--replace"), "{text}");
    let (is_done, text) = first.ask(&["forget", "c", "--replace"]);
    assert!(is_done && text.contains("replace c: done"), "{text}");
    let homes_now = homes(&first);
    assert!(homes_now.len() == 6 && homes_now.iter().all(|home| home != "c"), "{homes_now:?}");
    assert_eq!(first.json(&["nodes"]).as_array().map(Vec::len), Some(2));
    until_ok(&first, "d");
    until_there(&first);
}

#[test]
fn the_node_of_a_machine_that_is_removed_ends_by_itself() {
    let first = Machine::first("removed", "a");
    let mut second = Machine::join(&first, "removed", "b");
    let (is_done, text) = first.ask(&["remove-node", "b"]);
    assert!(is_done, "{text}");
    eventually("the node ends", || second.has_ended());
    assert_eq!(first.json(&["nodes"]).as_array().map(Vec::len), Some(1));
}

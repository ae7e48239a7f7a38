//! What etcd has lost, and what it has of others.

use crate::lives::at_home;
use crate::support::{Machine, base64, until_ok};
use harness::reply::Reply;
use harness::wait::eventually;

/// A key of the nodes, with what comes behind it in their order, for etcd.
fn range(name: &str) -> String {
    let key = format!("/dunlin/t/site/{name}");
    let end = format!("{key}\x7f");
    let (key, end) = (base64(key.as_bytes()), base64(end.as_bytes()));
    format!(r#""key":"{key}","range_end":"{end}""#)
}

fn says(machine: &Machine, text: &str) -> bool {
    machine.json(&["status"])["problems"].to_string().contains(text)
}

#[test]
fn copies_of_a_database_that_etcd_has_lost_are_left_alone_until_an_order() {
    let mut machine = Machine::with_plain_etcd("unplaced", "a");
    let (port, _) = machine.create("d", "0");
    let (is_done, text) = machine.ask(&["update-db", "d", "--persistence", "none"]);
    assert!(is_done, "{text}");
    assert_eq!(at_home(port, "SET k v"), Reply::Simple(b"OK".to_vec()));
    let copies = machine.copies("d");
    let processes = |machine: &Machine| -> Vec<Option<u32>> {
        copies.iter().map(|copy| machine.process_of(copy)).collect()
    };
    let before = processes(&machine);
    assert!(before.iter().all(Option::is_some), "{copies:?}");

    let lose = |machine: &Machine| {
        machine.ask_etcd("kv/deleterange", &format!("{{{}}}", range("database/d")));
        eventually("status names the copies", || says(machine, "Copies of database 'd' run"));
    };
    lose(&machine);
    assert!(machine.ask(&["events"]).1.contains("unplaced take-up d"));
    assert_eq!(at_home(port, "GET k"), Reply::Bulk(b"v".to_vec()));
    // The next node finds them as well.
    machine.kill_node();
    assert!(machine.start(), "the node starts again");
    eventually("it names the copies", || says(&machine, "Copies of database 'd' run"));
    assert_eq!(processes(&machine), before);
    assert_eq!(at_home(port, "SET k w"), Reply::Simple(b"OK".to_vec()));

    let (is_done, text) = machine.ask(&["unplaced", "take-up", "d"]);
    assert!(is_done, "{text}");
    eventually("the database is there", || machine.ask(&["databases", "d"]).0);
    until_ok(&machine, "d");
    assert!(!says(&machine, "Copies of database"));
    assert_eq!(processes(&machine), before);
    assert_eq!(at_home(port, "GET k"), Reply::Bulk(b"w".to_vec()));
    let (is_done, text) = machine.ask(&["unplaced", "take-up", "d"]);
    assert!(!is_done && text.contains("etcd has the database"), "{text}");
    let (is_done, text) = machine.ask(&["unplaced", "end", "d", "--confirm", "d"]);
    assert!(!is_done && text.contains("are placed by it"), "{text}");

    // The topology is lost as well, with all that etcd had of the copies.
    let topologies = base64(b"/dunlin/t/db/");
    let behind = base64(b"/dunlin/t/db0");
    let all = format!(r#"{{"key":"{topologies}","range_end":"{behind}"}}"#);
    machine.ask_etcd("kv/deleterange", &all);
    let homes = base64(b"/dunlin/t/node/");
    let behind = base64(b"/dunlin/t/node0");
    machine.ask_etcd("kv/deleterange", &format!(r#"{{"key":"{homes}","range_end":"{behind}"}}"#));
    lose(&machine);
    let (is_done, text) = machine.ask(&["unplaced", "take-up", "d"]);
    assert!(is_done, "{text}");
    eventually("the database is there", || machine.ask(&["databases", "d"]).0);
    eventually("all shards have a primary", || {
        machine.json(&["databases", "d"])["is_available"] == true
    });
    assert_eq!(processes(&machine), before);
    eventually("the data are there", || at_home(port, "GET k") == Reply::Bulk(b"w".to_vec()));
    assert!(says(&machine, "accept-rollback d"));
    let (is_done, text) = machine.ask(&["accept-rollback", "d"]);
    assert!(is_done, "{text}");
    until_ok(&machine, "d");

    lose(&machine);
    let (is_done, text) = machine.ask(&["unplaced", "end", "d"]);
    assert!(!is_done && text.contains("--confirm d"), "{text}");
    let (is_done, text) = machine.ask(&["unplaced", "end", "d", "--confirm", "d"]);
    assert!(is_done, "{text}");
    eventually("the copies have ended", || processes(&machine).iter().all(Option::is_none));
    let folder = machine.directory.join("copies");
    eventually("their files are gone", || {
        std::fs::read_dir(&folder).expect("it is there").count() == 0
    });
    eventually("the orders are gone", || {
        let body = format!(r#"{{{},"count_only":true}}"#, range("gone/"));
        !machine.ask_etcd("kv/range", &body).contains("\"count\"")
    });
}

#[test]
fn keys_of_others_at_etcd_hold_up_nothing() {
    let machine = Machine::with_plain_etcd("foreign", "a");
    let put = |key: &[u8], value: &str| {
        let key = base64(key);
        machine.ask_etcd("kv/put", &format!(r#"{{"key":"{key}","value":"{value}"}}"#));
    };
    // No text, below a folder that is read.
    put(b"/dunlin/t/site/job/\xff\xfe", "");
    put(b"/dunlin/t/site/\xff", "");
    // More than a node takes in an answer.
    let value = "A".repeat(1 << 20);
    for number in 0..70 {
        put(format!("/dunlin/t/site/other/{number}").as_bytes(), &value);
    }
    // No values of ours.
    for number in 0..20 {
        put(format!("/dunlin/t/site/database/x{number}").as_bytes(), "AAAA");
    }
    eventually("status says so", || says(&machine, "that this version does not know"));
    let problems = machine.json(&["status"])["problems"].to_string();
    assert!(problems.contains("database/x1 at etcd is not readable"), "{problems}");
    assert!(!problems.contains("database/x19"), "not each of them: {problems}");
    assert!(machine.ask(&["events"]).1.contains("that this version does not know"));
    machine.create("d", "0");
    until_ok(&machine, "d");
    let log = std::fs::read_to_string(machine.path("logs/node.log")).expect("it is there");
    assert!(!log.contains("etcd is away"), "{log}");
}

//! A node's etcd is started again with older files.

use crate::lives::at_home;
use crate::support::{Machine, row_of_ports, until_ok};
use harness::reply::Reply;
use harness::server::signal;
use harness::wait::eventually;
use std::path::{Path, PathBuf};
use std::process::Command;

impl Machine {
    fn etcd_data(&self) -> PathBuf {
        self.directory.join("etcd/data")
    }

    /// Ends the node and its etcd. The copies go on.
    fn end_etcd(&mut self) {
        self.kill_node();
        let found = self.etcds();
        assert_eq!(found.len(), 1, "one etcd is there");
        signal(found[0], "KILL").expect("it runs");
        eventually("etcd has ended", || self.etcds().is_empty());
    }
}

fn copy_folder(from: &Path, to: &Path) {
    let _ = std::fs::remove_dir_all(to);
    let copied = Command::new("cp").arg("-a").args([from, to]).status();
    assert!(copied.expect("cp starts").success());
}

#[test]
fn status_names_a_rollback_until_an_operator_accepts_it() {
    let mut machine = Machine::with_plain_etcd("rollback", "a");
    let port = row_of_ports();
    let number = port.to_string();
    let words = ["create-db", "d", "--memory", "64mb", "--replicas", "1", "--port", &number];
    let (is_done, text) = machine.ask(&words);
    assert!(is_done, "{text}");
    until_ok(&machine, "d");
    let backup = machine.directory.join("backup");
    machine.end_etcd();
    copy_folder(&machine.etcd_data(), &backup);
    // An etcd that was killed may have its port for a moment.
    eventually("the node starts again", || machine.start());
    until_ok(&machine, "d");

    let (is_done, text) = machine.ask(&["accept-rollback", "d"]);
    assert!(!is_done && text.contains("no copy of 'd' has found out"), "{text}");
    let (is_done, text) = machine.ask(&["failover", "d", "--shard", "1"]);
    assert!(is_done, "{text}");
    until_ok(&machine, "d");
    assert_eq!(at_home(port, "SET k v"), Reply::Simple(b"OK".to_vec()));
    machine.end_etcd();
    copy_folder(&backup, &machine.etcd_data());
    eventually("the node starts again", || machine.start());

    let says = |machine: &Machine| machine.json(&["status"])["problems"].to_string();
    eventually("status says what has happened, and what to do", || {
        let said = says(&machine);
        said.contains("older files") && said.contains("dunlin cluster accept-rollback d")
    });
    eventually("the shard has a primary again", || {
        machine.json(&["databases", "d"])["is_available"] == true
    });
    eventually("nothing is lost", || at_home(port, "GET k") == Reply::Bulk(b"v".to_vec()));
    let (is_done, text) = machine.ask(&["accept-rollback", "d"]);
    assert!(is_done, "{text}");
    until_ok(&machine, "d");
    assert!(!says(&machine).contains("older files"));
    assert!(machine.ask(&["events"]).1.contains("by order"));
    assert_eq!(at_home(port, "SET k w"), Reply::Simple(b"OK".to_vec()));
}

//! A node whose directory is on a full disk: it goes on, its copies serve what is in memory, and it
//! says what is wrong.

use crate::lives::at_home;
use crate::support::{Machine, until_ok};
use harness::reply::Reply;
use harness::server::signal;
use harness::small_disk::SmallDisk;
use harness::wait::eventually;
use std::fs;
use std::path::{Path, PathBuf};

/// Room for two pieces of etcd's log of 64 MB each, and what is written beside them.
const SIZE: &str = "300m";

/// Writes a file until there is no room.
fn fill(folder: &Path) -> PathBuf {
    let path = folder.join("ballast");
    let mut file = fs::File::create(&path).expect("it is made");
    let piece = vec![1; 1 << 20];
    while std::io::Write::write_all(&mut file, &piece).is_ok() {}
    path
}

/// Kills the etcd of a machine, which its node starts again.
fn kill_etcd(machine: &Machine) {
    for id in machine.etcds() {
        signal(id, "KILL").expect("it runs");
    }
}

#[test]
fn a_node_on_a_full_disk_goes_on_and_says_so() {
    let Some(disk) = SmallDisk::new("node", SIZE) else { return };
    let mut machine = Machine::first_in(disk.path(), "a");
    let (port, _) = machine.create("d", "0");
    until_ok(&machine, "d");
    assert_eq!(at_home(port, "SET k v"), Reply::Simple(b"OK".to_vec()));
    let problems = |machine: &Machine| machine.ask(&["status"]).1;

    let ballast = fill(disk.path());
    eventually("status names the disk", || problems(&machine).contains("is full"));
    assert_eq!(at_home(port, "GET k"), Reply::Bulk(b"v".to_vec()));

    // It may start again with the room that it has taken before, or wait for more.
    kill_etcd(&machine);
    eventually("the disk is named with etcd or without it", || {
        problems(&machine).contains("is full")
    });
    assert_eq!(at_home(port, "GET k"), Reply::Bulk(b"v".to_vec()));

    fs::remove_file(ballast).expect("it is there");
    eventually("etcd is there again, and nothing is wrong", || {
        let (is_done, text) = machine.ask(&["status"]);
        is_done && !text.contains("is full")
    });
    until_ok(&machine, "d");
    assert_eq!(at_home(port, "SET k w"), Reply::Simple(b"OK".to_vec()));
    assert!(!machine.has_ended());
    drop(machine);
    drop(disk);
}

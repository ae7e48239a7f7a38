//! A node whose directory is on a full disk: it goes on, its copies serve what is in memory, and it
//! says what is wrong.

use crate::lives::at_home;
use crate::support::{Machine, until_ok};
use harness::environment::skipped;
use harness::reply::Reply;
use harness::wait::eventually;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

/// A small disk in memory, gone with the value.
struct SmallDisk(PathBuf);

impl SmallDisk {
    /// Room for two pieces of etcd's log of 64 MB each, and what is written beside them.
    fn at(path: &Path) -> Option<SmallDisk> {
        fs::create_dir_all(path).expect("it is made");
        let mut mount = Command::new("mount");
        mount.args(["-t", "tmpfs", "-o", "size=300m", "tmpfs"]).arg(path);
        if mount.output().is_ok_and(|output| output.status.success()) {
            return Some(SmallDisk(path.to_owned()));
        }
        skipped("no file system can be mounted here");
        fs::remove_dir(path).expect("it is empty");
        None
    }
}

impl Drop for SmallDisk {
    fn drop(&mut self) {
        // What is still mounted stays visible; a test must not fail at its end.
        let _ = Command::new("umount").arg("-l").arg(&self.0).status();
        let _ = fs::remove_dir(&self.0);
    }
}

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
    let folder = machine.directory.join("etcd");
    let entries = fs::read_dir("/proc").expect("there is /proc").flatten();
    let ids = entries.filter_map(|entry| entry.file_name().to_str()?.parse::<u32>().ok());
    let is_there = |id: &u32| fs::read_link(format!("/proc/{id}/cwd")).is_ok_and(|it| it == folder);
    for id in ids.filter(is_there) {
        harness::server::signal(id, "KILL").expect("it runs");
    }
}

#[test]
fn a_node_on_a_full_disk_goes_on_and_says_so() {
    let folder = std::env::temp_dir().join(format!("small-node-{}", std::process::id()));
    let Some(disk) = SmallDisk::at(&folder) else { return };
    let mut machine = Machine::first_in(&folder, "a");
    let (port, _) = machine.create("d", "0");
    until_ok(&machine, "d");
    assert_eq!(at_home(port, "SET k v"), Reply::Simple(b"OK".to_vec()));
    let problems = |machine: &Machine| machine.ask(&["status"]).1;

    let ballast = fill(&folder);
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

//! Five machines, each in a network namespace with a small disk of its own: nodes as users start
//! them, three of them with an etcd, and a database of three shards with three copies each. Clients
//! have a machine more.

use super::schedule::{MACHINES, SHARDS};
use crate::support::Machine;
use harness::faults::Faults;
use harness::network::Network;
use harness::registers::{epoch_led, replication};
use harness::server::{Program, signal};
use harness::small_disk::SmallDisk;
use harness::wait::{eventually, eventually_within};
use serde_json::Value;
use std::fs;
use std::net::{Ipv4Addr, SocketAddr};
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

/// The machine of the clients.
pub const CLIENT: usize = MACHINES;

/// The port of the database.
const PORT: u16 = 12000;

/// Room for etcd's log in pieces of 64 MB, and for logs and snapshots of copies.
const DISK: &str = "500m";

/// How long all may take to be whole again.
const SETTLING: Duration = Duration::from_secs(240);

/// What copies are started with beside what their nodes write. So nothing that was confirmed is
/// lost, whichever copies are killed at the same time, and no read tells of a write that is given
/// up.
const OPTIONS: &str = "--appendfsync always --commit-quorum-fsync yes --commit-timeout-ms 0";

/// A copy of the database.
#[derive(Clone, Debug)]
pub struct Copy {
    /// As nodes show it.
    shown: Value,
    pub machine: usize,
    shard: usize,
}

impl Copy {
    fn port(&self) -> u16 {
        self.shown["port"].as_u64().and_then(|port| port.try_into().ok()).expect("it has a port")
    }
}

/// See the head of this file. What is first ends first.
pub struct Site<'n> {
    machines: Vec<Mutex<Machine>>,
    pub faults: Vec<Faults>,
    disks: Vec<SmallDisk>,
    copies: Vec<Copy>,
    pub network: &'n Network,
    /// It has the program of the copies.
    folder: PathBuf,
}

impl<'n> Site<'n> {
    /// Starts all, and waits until the database is whole. `None` where there are no file systems to
    /// be mounted.
    pub fn start(network: &'n Network) -> Option<Site<'n>> {
        let folder = std::env::temp_dir().join(format!("{}-program", network.name()));
        let program = copy_program(&folder);
        let mut site = Site {
            machines: Vec::new(),
            faults: Vec::new(),
            disks: Vec::new(),
            copies: Vec::new(),
            network,
            folder,
        };
        for at in 0..MACHINES {
            let disk = SmallDisk::new(&format!("{}-{at}", network.name()), DISK)?;
            let faults = Faults::new(&format!("{}-{at}", network.name()));
            let name = char::from(b'a' + u8::try_from(at).expect("there are few")).to_string();
            let mut machine = Machine::at(network.place(at), disk.path(), &name);
            machine.copy_program = Some(program.clone());
            machine.environment = faults.environment().to_vec();
            let is_started = match site.machines.first() {
                None => machine.start(),
                Some(first) => machine.start_joining(&lock(first)),
            };
            assert!(is_started, "machine {name} starts");
            site.machines.push(Mutex::new(machine));
            site.faults.push(faults);
            site.disks.push(disk);
        }
        site.create();
        Some(site)
    }

    fn create(&mut self) {
        let [shards, port] = [SHARDS.to_string(), PORT.to_string()];
        let create =
            ["create-db", "d", "--memory", "300mb", "--shards", &shards, "--replicas", "2"];
        let more = ["--commit", "quorum", "--endpoint", "all", "--port", &port];
        let (is_done, text) = self.machine(0).ask(&[&create[..], &more].concat());
        assert!(is_done, "{text}");
        self.until_whole();
        let shards = self.machine(0).json(&["databases", "d"])["shards"].clone();
        for (shard, shown) in shards.as_array().into_iter().flatten().enumerate() {
            for copy in shown["copies"].as_array().into_iter().flatten() {
                let is_its = |at: &usize| copy["machine"] == *self.machine(*at).name;
                let machine = (0..MACHINES).find(is_its).expect("it is on one of them");
                self.copies.push(Copy { shown: copy.clone(), machine, shard });
            }
        }
        assert_eq!(self.copies.len(), 3 * SHARDS, "{shards}");
    }

    pub fn machine(&self, at: usize) -> MutexGuard<'_, Machine> {
        lock(&self.machines[at])
    }

    /// Where clients reach the database: an address of each machine.
    pub fn entries(&self) -> Vec<SocketAddr> {
        (0..MACHINES).map(|at| (self.network.address(at), PORT).into()).collect()
    }

    /// A copy of a shard: its primary, as the copies say now, or another one. `None`: no copy says
    /// that it leads.
    pub fn copy(&self, shard: usize, is_primary: bool) -> Option<Copy> {
        let copies: Vec<&Copy> = self.copies.iter().filter(|copy| copy.shard == shard).collect();
        let epoch = |copy: &Copy| {
            let address = (Ipv4Addr::LOCALHOST, copy.port()).into();
            epoch_led(&self.network.at(copy.machine, || replication(address)))
        };
        let leading = (0..copies.len()).filter_map(|at| Some((epoch(copies[at])?, at))).max()?.1;
        let at = if is_primary { leading } else { (leading + 1) % copies.len() };
        Some(copies[at].clone())
    }

    /// The process of a copy.
    pub fn process_of(&self, copy: &Copy) -> Option<u32> {
        self.machine(copy.machine).process_of(&copy.shown)
    }

    /// Fills the disk of a machine. Returns the file that did it.
    pub fn fill_disk(&self, at: usize) -> PathBuf {
        let path = self.disks[at].path().join("ballast");
        let mut file = fs::File::create(&path).expect("it is made");
        let piece = vec![1; 1 << 20];
        while std::io::Write::write_all(&mut file, &piece).is_ok() {}
        path
    }

    /// Begins a change of the database at a node. Returns whether it was begun, and what the node
    /// said.
    pub fn change(&self, at: usize, words: &[&str]) -> (bool, String) {
        let (command, place) = {
            let machine = self.machine(at);
            (machine.command_within(20, words), self.network.place(at))
        };
        let output = place.at(|| { command }.output().expect("it starts"));
        let text = [output.stdout, output.stderr].concat();
        (output.status.success(), String::from_utf8_lossy(&text).trim().to_owned())
    }

    /// What a node says of something, as long as any of them says it.
    fn shown(&self, words: &[&str]) -> Option<Value> {
        (0..MACHINES).find_map(|at| {
            let (is_done, text) = self.change(at, &[words, &["--json"]].concat());
            serde_json::from_str(&text).ok().filter(|_| is_done)
        })
    }

    /// Starts nodes that have ended, and waits until all machines are there, the database is whole
    /// and no job runs.
    pub fn until_whole(&self) {
        let mut said = Value::Null;
        eventually_within(SETTLING, "the database is whole and no job runs", || {
            std::thread::sleep(Duration::from_millis(500));
            for at in 0..MACHINES {
                let mut machine = self.machine(at);
                if machine.has_ended() {
                    println!("node {at} has ended and is started again");
                    machine.start_again();
                }
            }
            let is = |list: &Value, is: &dyn Fn(&Value) -> bool| {
                list.as_array().is_some_and(|list| list.iter().all(is))
            };
            let Some(nodes) = self.shown(&["nodes"]) else { return false };
            let Some(database) = self.shown(&["databases", "d"]) else { return false };
            let Some(jobs) = self.shown(&["jobs"]) else { return false };
            let running = jobs.as_array().into_iter().flatten();
            let running = running.filter(|job| job["state"] == "running").cloned();
            let state = Value::from(vec![
                database["health"].clone(),
                Value::from(running.collect::<Vec<_>>()),
            ]);
            let is_whole = is(&nodes, &|node| node["is_alive"] == true)
                && database["health"] == "ok"
                && is(&database["shards"], &|shard| {
                    is(&shard["copies"], &|copy| copy["is_member"] == true)
                })
                && is(&jobs, &|job| job["state"] != "running");
            if !is_whole && state != said {
                // For the reader of a failure.
                println!("{state}");
                said = state;
            }
            is_whole
        });
    }

    /// How many jobs ended in which way.
    pub fn jobs(&self) -> Vec<String> {
        let mut jobs = None;
        eventually("a node tells of the jobs", || {
            jobs = self.shown(&["jobs"]);
            jobs.is_some()
        });
        let jobs = jobs.unwrap_or_default();
        let state = |job: &Value| job["state"].as_str().unwrap_or_default().to_owned();
        let failed = |job: &Value| {
            let is_done = job["state"] == "done";
            if is_done { state(job) } else { format!("{}: {}", state(job), job["text"]) }
        };
        jobs.as_array().into_iter().flatten().map(failed).collect()
    }
}

impl Drop for Site<'_> {
    fn drop(&mut self) {
        if std::thread::panicking() {
            let kept = std::env::temp_dir().join(format!("{}-logs", self.network.name()));
            eprintln!("what the processes logged is kept in {}", kept.display());
            for (at, machine) in self.machines.iter().enumerate() {
                let folder = kept.join(at.to_string());
                let made = fs::create_dir_all(&folder).and_then(|()| {
                    let logs = lock(machine).directory.join("logs");
                    Command::new("cp").arg("-a").args([&logs, &folder]).status()
                });
                // The test has failed already.
                made.map_or_else(|why| eprintln!("{why}"), drop);
            }
        }
        // It is harmless.
        let _ = fs::remove_dir_all(&self.folder);
    }
}

/// Makes a program with the name of the server's that adds options.
fn copy_program(folder: &Path) -> PathBuf {
    fs::create_dir_all(folder).expect("it is made");
    let path = folder.join("dunlin");
    let server = Program::under_test().subcommand("server");
    let server = server.get_program().to_string_lossy().into_owned();
    fs::write(&path, format!("#!/bin/sh\nexec {server} \"$@\" {OPTIONS}\n"))
        .expect("it is written");
    fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).expect("it may run");
    path
}

/// Sends a signal to processes, of which some may have ended.
pub fn signal_all(processes: &[u32], name: &str) {
    for &process in processes {
        if let Err(why) = signal(process, name) {
            println!("process {process}, {name}: {why}");
        }
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

//! Servers of etcd on machines that are named beforehand: they begin together, the list grows, and
//! the first of it is down or has lost its disk. There is never a second etcd.

use crate::support::{Machine, row_of_ports, run, until_ok};
use harness::client::{Client, ask};
use harness::reply::Reply;
use harness::wait::eventually;
use std::net::{Ipv4Addr, SocketAddr};
use std::path::Path;

/// Machines that share a list.
struct Named {
    test: &'static str,
    port: String,
    secret: String,
}

impl Named {
    fn new(test: &'static str) -> Named {
        let secret = std::env::temp_dir().join(format!("dunlin-{test}-{}", std::process::id()));
        std::fs::write(&secret, "a secret of more than 32 characters").expect("it is written");
        let secret = secret.to_string_lossy().into_owned();
        Named { test, port: row_of_ports().to_string(), secret }
    }

    fn machine(&self, name: &str) -> Machine {
        Machine::new(self.test, name, "")
    }

    /// What a machine is started with if these are named.
    fn words(&self, machine: &Machine, names: &[&str]) -> Vec<String> {
        let hosts = names.iter().map(|name| format!("{name}=127.0.0.{}", 1 + index(name)));
        let list = hosts.collect::<Vec<_>>().join(",");
        let mut words = machine.words();
        for (option, value) in
            [("--etcd-members", &list), ("--etcd-port", &self.port), ("--token-file", &self.secret)]
        {
            words.extend([option.to_owned(), value.clone()]);
        }
        words
    }

    /// Starts machines at the same time, and does something while they are about to.
    fn start(&self, machines: &mut [&mut Machine], names: &[&str], meanwhile: impl FnOnce()) {
        std::thread::scope(|scope| {
            let starting = machines.iter_mut().map(|machine| {
                let words = self.words(machine, names);
                scope.spawn(move || (machine.start_with(&words), machine.name.clone()))
            });
            let starting: Vec<_> = starting.collect();
            meanwhile();
            for start in starting {
                let (is_ready, name) = start.join().expect("no panic");
                assert!(is_ready, "machine {name} does not start");
            }
        });
    }
}

impl Drop for Named {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.secret);
    }
}

fn index(name: &str) -> usize {
    ["a", "b", "c"].iter().position(|known| *known == name).expect("one of them")
}

/// Ends everything on a machine, as when its pod is stopped.
fn down(machine: &mut Machine) {
    let (is_done, text) = run(&["down", "--dir", &machine.path("")]);
    assert!(is_done, "{text}");
    machine.kill_node();
}

/// Waits until a machine that has no data says that it waits for another one.
fn until_waiting(directory: &Path, other: &str) {
    let log = directory.join("logs/node.log");
    let says = format!("etcd is not started yet: machine '{other}'");
    eventually("the machine waits for another one", || {
        std::fs::read_to_string(&log).is_ok_and(|text| text.contains(&says))
    });
    assert!(!directory.join("etcd/data/member").exists(), "it has started an etcd");
}

fn members(machine: &Machine) -> Option<usize> {
    machine.json(&["status"])["etcd_members"].as_array().map(Vec::len)
}

#[test]
fn one_machine_becomes_three_with_one_etcd() {
    let named = Named::new("growing");
    let [mut a, mut b, mut c] = ["a", "b", "c"].map(|name| named.machine(name));
    named.start(&mut [&mut a], &["a"], || {});
    let port = row_of_ports();
    let number = port.to_string();
    let (is_done, text) = a.ask(&["create-db", "d", "--memory", "32mb", "--port", &number]);
    assert!(is_done, "{text}");
    until_ok(&a, "d");
    let address = SocketAddr::from((Ipv4Addr::LOCALHOST, port));
    let client = || Client::connect(address).expect("it listens");
    assert_eq!(ask(&mut client(), "SET k v"), Reply::Simple(b"OK".to_vec()));
    down(&mut a);

    // The new ones are two of three. They are no etcd without the one that has the data.
    let all = ["a", "b", "c"];
    let places = [&b, &c].map(|machine| machine.directory.clone());
    named.start(&mut [&mut b, &mut c], &all, || {
        places.iter().for_each(|place| until_waiting(place, "a"));
        named.start(&mut [&mut a], &all, || {});
    });
    for machine in [&a, &b, &c] {
        assert_eq!(members(machine), Some(3));
        let names = machine.json(&["databases"]);
        assert_eq!(names.as_array().map(Vec::len), Some(1), "{names}");
        assert_eq!(names[0]["name"], "d");
        until_ok(machine, "d");
    }
    let (is_done, text) = c.ask(&["create-db", "d", "--memory", "32mb", "--port", &number]);
    assert!(!is_done, "a second database of the same name: {text}");
    eventually("the data are there", || ask(&mut client(), "GET k") == Reply::Bulk(b"v".to_vec()));
    // A list that has a member no longer takes no vote away.
    down(&mut c);
    named.start(&mut [&mut c], &["a", "b"], || {});
    assert_eq!(members(&c), Some(3));
}

#[test]
fn the_first_machine_founds_no_second_etcd_when_its_disk_is_lost() {
    let named = Named::new("founding");
    let all = ["a", "b", "c"];
    let [mut a, mut b, mut c] = all.map(|name| named.machine(name));
    named.start(&mut [&mut a, &mut b, &mut c], &all, || {});
    assert_eq!(members(&a), Some(3));
    let (_, text) = b.create("d", "0");
    until_ok(&b, "d");
    let place = a.directory.clone();
    let (is_done, drained) = b.ask(&["drain-node", "a"]);
    assert!(is_done, "{text}{drained}");

    for machine in [&mut a, &mut b, &mut c] {
        down(machine);
    }
    std::fs::remove_dir_all(&place).expect("it is there");
    named.start(&mut [&mut a], &all, || {
        until_waiting(&place, "b");
        named.start(&mut [&mut b, &mut c], &all, || {});
    });
    for machine in [&a, &b, &c] {
        assert_eq!(members(machine), Some(3));
        assert_eq!(machine.json(&["databases"])[0]["name"], "d");
    }
}

//! The copies of a database with plain clients, on three machines: they speak TLS with each other
//! by a port of their own, and machines that have none keep the database plain.

use crate::encrypted::NOT_TLS;
use crate::lives::{at_home, try_at_home};
use crate::support::{Machine, run, until_ok};
use harness::client::Client;
use harness::reply::Reply;
use harness::server::{Program, signal};
use harness::wait::eventually;
use serde_json::Value;
use std::io::{Read as _, Write as _};
use std::net::{Ipv4Addr, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::SeqCst};
use std::thread::{self, JoinHandle};

/// The bus port is the port of clients and this number.
const OFFSET: u16 = 10_000;

/// What a machine is started with whose copies have no bus, as those of the release before.
const WITHOUT_BUS: [&str; 2] = ["--bus-port-offset", "0"];

pub fn ports(machine: &Machine) -> Vec<u16> {
    let port = |copy: &Value| copy["port"].as_u64().and_then(|port| u16::try_from(port).ok());
    machine.copies("d").iter().filter_map(port).collect()
}

/// What a copy says of itself.
fn info(port: u16) -> String {
    let mut client = Client::connect(([127, 0, 0, 1], port).into()).expect("it listens");
    harness::client::ok(&mut client, "CLIENT CAPA cluster node");
    harness::cluster::text(harness::client::ask(&mut client, "INFO replication"))
}

fn until_bus_is(machine: &Machine, is: u8) {
    let line = format!("cluster_bus_tls:{is}\r\n");
    eventually("all copies say so", || {
        ports(machine).iter().all(|&port| info(port).contains(&line))
    });
    eventually("replicas have their links", || {
        let texts = ports(machine).into_iter().map(info);
        texts
            .filter(|text| text.contains("role:slave"))
            .all(|text| text.contains("master_link_status:up"))
    });
}

/// Writes and reads keys of all shards by all copies.
pub fn work(machine: &Machine, name: &str) {
    let ports = ports(machine);
    for port in &ports {
        for key in ["a", "b", "foo"] {
            eventually("it is written", || {
                let reply = try_at_home(*port, &format!("SET {key} {name}"));
                reply.is_ok_and(|reply| reply == Reply::Simple(b"OK".to_vec()))
            });
            for other in &ports {
                eventually("it is read", || {
                    let reply = try_at_home(*other, &format!("GET {key}"));
                    reply.is_ok_and(|reply| reply == Reply::Bulk(name.into()))
                });
            }
        }
    }
}

/// What `dunlin cli` gets by TLS at a port, with a machine's certificates or without its own.
fn by_tls(machine: &Machine, port: u16, shows_own: bool) -> String {
    let mut cli = Program::under_test().subcommand("cli");
    cli.args(["--tls", "--cacert", &machine.path("tls/ca.pem"), "-p", &port.to_string()]);
    if shows_own {
        let own = machine.path("tls/machine.pem");
        cli.args(["--cert", &own, "--key", &own]);
    }
    let output = cli.arg("PING").output().expect("it starts");
    String::from_utf8_lossy(&output.stdout).trim().to_owned()
}

#[test]
fn copies_of_plain_clients_speak_tls_with_each_other() {
    let first = Machine::first("bus", "a");
    let second = Machine::join(&first, "bus", "b");
    let third = Machine::beside(&first, "bus", "c");
    let (_, text) = first.create_with("d", &["--replicas", "1"]);
    assert!(!text.contains("TLS"), "{text}");
    until_ok(&first, "d");
    until_bus_is(&first, 1);
    work(&first, "one");

    let bus = ports(&first)[0] + OFFSET;
    let mut plain = TcpStream::connect((Ipv4Addr::LOCALHOST, bus)).expect("it listens");
    plain.write_all(b"*1\r\n$4\r\nPING\r\n").expect("it is sent");
    let mut answer = Vec::new();
    plain.read_to_end(&mut answer).expect("the server ends the connection in order");
    assert_eq!(answer, NOT_TLS);
    assert_eq!(by_tls(&first, bus, true), "PONG");
    assert_eq!(by_tls(&second, bus, true), "PONG");
    assert_eq!(by_tls(&first, bus, false), "");

    // Switches under a writer, the end of a primary's process, slots that move to another number of
    // shards.
    let writer = Writer::start(ports(&first));
    for shard in ["1", "2", "3"] {
        let (is_done, text) = first.ask(&["failover", "d", "--shard", shard]);
        assert!(is_done, "{text}");
        until_ok(&first, "d");
    }
    work(&first, "two");
    writer.end();
    let copies = first.copies("d");
    let leads = |copy: &&Value| copy["role"] == "primary";
    let primary = copies.iter().find(leads).expect("a shard has one");
    let process = [&first, &second, &third].iter().find_map(|machine| machine.process_of(primary));
    signal(process.expect("it runs"), "KILL").expect("it runs");
    until_ok(&first, "d");
    work(&first, "three");
    let (is_done, text) = first.ask(&["update-db", "d", "--shards", "4"]);
    assert!(is_done, "{text}");
    until_ok(&first, "d");
    until_bus_is(&first, 1);
    work(&first, "four");
    // A copy that redirects names a port of clients.
    for machine in [&first, &second, &third] {
        let log = logs(machine);
        assert!(log.contains("Cluster: "), "there are no logs of copies");
        assert!(!log.contains("TLS: received corrupt message"), "{log}");
    }
}

/// What the copies on a machine have logged.
fn logs(machine: &Machine) -> String {
    let files = std::fs::read_dir(machine.directory.join("logs")).expect("there are logs");
    let texts = files.flatten().map(|file| std::fs::read_to_string(file.path()));
    texts.collect::<Result<String, _>>().expect("they are text")
}

/// Starts the node of a machine again, and then the copies of the database one by one.
fn roll(asked: &Machine, machine: &mut Machine, words: &[String]) {
    machine.kill_node();
    assert!(machine.start_with(words), "machine {} does not start again", machine.name);
    let (is_done, text) = asked.ask(&["restart", "d"]);
    assert!(is_done, "{text}");
    until_ok(asked, "d");
}

/// A client that writes one key after the other, by one copy or another, until it is told to end.
struct Writer {
    is_over: Arc<AtomicBool>,
    thread: JoinHandle<u64>,
    ports: Vec<u16>,
}

impl Writer {
    fn start(ports: Vec<u16>) -> Writer {
        let is_over = Arc::new(AtomicBool::new(false));
        let (ended, all) = (Arc::clone(&is_over), ports.clone());
        let thread = thread::spawn(move || {
            let mut next = 0;
            for port in all.iter().cycle() {
                let Ok(mut client) = Client::connect((Ipv4Addr::LOCALHOST, *port).into()) else {
                    continue;
                };
                // Until the connection ends, or the copy is about to.
                while !ended.load(SeqCst)
                    && client
                        .command(&["SET", &format!("{{w}}:{next}"), &next.to_string()])
                        .is_ok_and(|reply| reply == Reply::Simple(b"OK".to_vec()))
                {
                    next += 1;
                }
                if ended.load(SeqCst) {
                    break;
                }
            }
            next
        });
        Writer { is_over, thread, ports }
    }

    /// Asserts that all that was confirmed is there.
    fn end(self) {
        self.is_over.store(true, SeqCst);
        let confirmed = self.thread.join().expect("it has written");
        assert!(confirmed > 100, "{confirmed} writes");
        for number in 0..confirmed {
            let reply = at_home(self.ports[0], &format!("GET {{w}}:{number}"));
            assert_eq!(reply, Reply::Bulk(number.to_string().into()), "of {confirmed}");
        }
    }
}

/// The lines of `status` about TLS between copies, as text and as JSON.
fn warned(machine: &Machine) -> [Vec<String>; 2] {
    let is_about = |line: &&str| line.contains("without TLS between");
    let (_, text) = machine.ask(&["status"]);
    let lines = text.lines().filter(is_about).map(|line| line.trim_start_matches("! ").to_owned());
    let (_, json) = machine.ask(&["status", "--json"]);
    let json: Value = serde_json::from_str(&json).expect("it is JSON");
    let problems = json["problems"].as_array().expect("it is a list");
    let problems = problems.iter().filter_map(Value::as_str).filter(is_about).map(str::to_owned);
    [lines.collect(), problems.collect()]
}

#[test]
fn a_machine_without_a_bus_keeps_the_database_plain() {
    let first = Machine::first("plain", "a");
    let mut second = Machine::new("plain", "b", "");
    let place = format!("127.0.0.1:{}", first.etcd_port.expect("it has an etcd"));
    let mut words = second.words();
    words.extend(["--join".to_owned(), place, "--token-file".to_owned()]);
    words.push(first.path("tls/join-token"));
    words.extend(["--etcd-port".to_owned(), crate::support::row_of_ports().to_string()]);
    let without = [&words[..], &WITHOUT_BUS.map(str::to_owned)].concat();
    assert!(second.start_with(&without), "machine b does not start");
    let (_, text) = first.create_with("d", &["--replicas", "1"]);
    assert!(text.contains("Copies on machine b have no port for each other"), "{text}");
    until_ok(&first, "d");
    until_bus_is(&first, 0);
    work(&first, "mixed");
    eventually("status names the machine, and an event does", || {
        let begins = "Copies on machine 'b' have no port for each other";
        let is_said = |lines: &Vec<String>| lines.iter().any(|line| line.starts_with(begins));
        let (_, events) = first.ask(&["events"]);
        warned(&first).iter().all(is_said) && events.contains(begins)
    });
    let writer = Writer::start(ports(&first));
    // It gets the new release: its node, and then its copies.
    roll(&first, &mut second, &words);
    until_bus_is(&first, 1);
    work(&first, "whole");
    eventually("nothing is said any more", || warned(&first).iter().all(Vec::is_empty));
    // And goes back.
    roll(&first, &mut second, &without);
    until_bus_is(&first, 0);
    work(&first, "back");
    writer.end();
}

#[test]
fn a_copy_whose_port_for_others_is_taken_goes_on_without_and_says_so() {
    let first = Machine::first("taken", "a");
    let port = crate::support::row_of_ports();
    let taken = TcpListener::bind((Ipv4Addr::UNSPECIFIED, port + OFFSET)).expect("it is free");
    let words = ["create-db", "d", "--memory", "64mb", "--shards", "1", "--replicas", "1"];
    let (is_done, text) = first.ask(&[&words[..], &["--port", &port.to_string()]].concat());
    assert!(is_done, "{text}");
    until_ok(&first, "d");
    work(&first, "taken");
    eventually("status says which and what to do", || {
        let line = format!("its port for other copies, {}, cannot be had", port + OFFSET);
        let begins = "Database 'd' is without TLS between its copies: copy ";
        let is_said = |it: &String| it.starts_with(begins) && it.contains(&line);
        warned(&first).iter().all(|lines| lines.iter().any(is_said))
    });
    drop(taken);
    let (is_done, text) = first.ask(&["restart", "d"]);
    assert!(is_done, "{text}");
    until_ok(&first, "d");
    until_bus_is(&first, 1);
    eventually("nothing is said any more", || warned(&first).iter().all(Vec::is_empty));
}

#[test]
fn ports_that_would_be_one_are_refused() {
    let machine = Machine::new("offsets", "a", "");
    let mut words = machine.words();
    let file = std::env::temp_dir().join("no-certificate").to_string_lossy().into_owned();
    for (option, value) in
        [("--tls-cert-file", &*file), ("--tls-key-file", &*file), ("--tls-port-offset", "10000")]
    {
        words.extend([option.to_owned(), value.to_owned()]);
    }
    let asked = |words: &[String]| run(&words.iter().map(String::as_str).collect::<Vec<_>>());
    let refusal = "--bus-port-offset and --tls-port-offset are both 10000";
    let with_bus = ["--bus-port-offset", "10000"].map(str::to_owned);
    let (is_ready, text) = asked(&[&words[..], &with_bus].concat());
    assert!(!is_ready && text.contains(refusal), "{text}");
    // Without it another one is chosen; what is in the way then is the file.
    let (is_ready, text) = asked(&words);
    assert!(!is_ready && !text.contains(refusal) && text.contains("no-certificate"), "{text}");
}

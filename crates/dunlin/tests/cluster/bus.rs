//! The copies of a database with plain clients, on three machines: they speak TLS with each other
//! by a port of their own, and machines that have none keep the database plain.

use crate::encrypted::NOT_TLS;
use crate::lives::try_at_home;
use crate::support::{Machine, run, until_ok};
use harness::reply::Reply;
use harness::server::{Program, signal};
use harness::wait::eventually;
use serde_json::Value;
use std::io::{Read as _, Write as _};
use std::net::{Ipv4Addr, TcpStream};

/// The bus port is the port of clients and this number.
const OFFSET: u16 = 10_000;

/// What machines are started with: without it there is no bus.
const WITH_BUS: [&str; 2] = ["--bus-port-offset", "10000"];

fn ports(machine: &Machine) -> Vec<u16> {
    let port = |copy: &Value| copy["port"].as_u64().and_then(|port| u16::try_from(port).ok());
    machine.copies("d").iter().filter_map(port).collect()
}

/// What a copy says of itself.
fn info(port: u16) -> String {
    let mut client =
        harness::client::Client::connect(([127, 0, 0, 1], port).into()).expect("it listens");
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
fn work(machine: &Machine, name: &str) {
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
    let first = Machine::first_with("bus", "a", &WITH_BUS);
    let second = Machine::join_with(&first, "bus", "b", &WITH_BUS);
    let third = Machine::beside_with(&first, "bus", "c", &WITH_BUS);
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

    // A switch, the end of a primary's process, slots that move to another number of shards.
    let (is_done, text) = first.ask(&["failover", "d", "--shard", "1"]);
    assert!(is_done, "{text}");
    until_ok(&first, "d");
    work(&first, "two");
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
}

#[test]
fn a_machine_without_a_bus_keeps_the_database_plain() {
    let first = Machine::first_with("plain", "a", &WITH_BUS);
    // It has none by default, as a machine of the release before.
    let mut second = Machine::new("plain", "b", "");
    let place = format!("127.0.0.1:{}", first.etcd_port.expect("it has an etcd"));
    let mut words = second.words();
    words.extend(["--join".to_owned(), place, "--token-file".to_owned()]);
    words.push(first.path("tls/join-token"));
    words.extend(["--etcd-port".to_owned(), crate::support::row_of_ports().to_string()]);
    let with_bus = [&words[..], &WITH_BUS.map(str::to_owned)].concat();
    assert!(second.start_with(&words), "machine b does not start");
    first.create("d", "1");
    until_ok(&first, "d");
    until_bus_is(&first, 0);
    work(&first, "mixed");
    // It gets the new release: its node, and then its copies.
    second.kill_node();
    assert!(second.start_with(&with_bus), "machine b does not start again");
    let (is_done, text) = first.ask(&["restart", "d"]);
    assert!(is_done, "{text}");
    until_ok(&first, "d");
    until_bus_is(&first, 1);
    work(&first, "whole");
    // And goes back.
    second.kill_node();
    assert!(second.start_with(&words), "machine b does not start again");
    let (is_done, text) = first.ask(&["restart", "d"]);
    assert!(is_done, "{text}");
    until_ok(&first, "d");
    until_bus_is(&first, 0);
    work(&first, "back");
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
    let (is_ready, text) = asked(&[&words[..], &WITH_BUS.map(str::to_owned)].concat());
    assert!(!is_ready && text.contains(refusal), "{text}");
    // Without a bus it is a port as any other; what is in the way then is the file.
    let (is_ready, text) = asked(&words);
    assert!(!is_ready && !text.contains(refusal) && text.contains("no-certificate"), "{text}");
}

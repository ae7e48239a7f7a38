//! Processes of a machine that get no more memory, each in its turn: the others go on, and it is
//! started again.

use crate::lives::at_home;
use crate::support::{Machine, until_ok};
use harness::client::Client;
use harness::memory_limit::{SMALL_PIECES, has_ended, limit_address_space};
use harness::reply::Reply;
use harness::wait::eventually;
use std::io::Write as _;
use std::net::{Ipv4Addr, TcpStream};

const OK: &[u8] = b"OK";

fn machine(test: &str) -> Machine {
    Machine::first_in_environment(test, &[SMALL_PIECES])
}

#[test]
fn a_copy_without_memory_is_started_again_and_said_to_have_ended() {
    let machine = machine("copy");
    let (port, _) = machine.create_with("d", &["--replicas", "0", "--commit", "fsync"]);
    until_ok(&machine, "d");
    let copies = machine.copies("d");
    let process = machine.process_of(&copies[0]).expect("it runs");
    let its_port = copies[0]["port"].as_u64().and_then(|port| u16::try_from(port).ok());
    let its_port = its_port.expect("a port");
    let mut client =
        Client::connect((Ipv4Addr::LOCALHOST, its_port).into()).expect("the copy listens");
    let mut confirmed = Vec::new();
    for key in (0..30).map(|number| format!("key:{number}")) {
        // Those of other shards are refused.
        if client.command(&["SET", &key, "v"]).expect("a reply") == Reply::Simple(OK.to_vec()) {
            confirmed.push(key);
        }
    }
    assert!(!confirmed.is_empty());
    limit_address_space(process, 16 << 20);
    // Clients that ask for what they have sent, and read nothing.
    let value = "v".repeat(1 << 20);
    let mut greedy = Vec::new();
    eventually("the copy ends", || {
        if let Ok(mut client) = Client::connect((Ipv4Addr::LOCALHOST, its_port).into()) {
            (0..16).for_each(|_| drop(client.send(&["ECHO", &value])));
            greedy.push(client);
        }
        has_ended(process)
    });
    drop(greedy);
    eventually("an event tells of it", || {
        let (_, text) = machine.ask(&["events"]);
        text.contains("of database 'd' has ended") && text.contains("signal")
    });
    println!("{}", machine.ask(&["events"]).1);
    println!("{}", machine.ask(&["databases", "d"]).1);
    println!("{}", machine.ask(&["status"]).1);
    until_ok(&machine, "d");
    for key in confirmed {
        assert_eq!(at_home(port, &format!("GET {key}")), Reply::Bulk(b"v".to_vec()), "{key}");
    }
}

#[test]
fn a_node_without_memory_ends_and_its_copies_go_on() {
    let mut machine = machine("node");
    let (port, _) = machine.create("d", "0");
    until_ok(&machine, "d");
    assert_eq!(at_home(port, "SET k v"), Reply::Simple(OK.to_vec()));
    let mut before = machine.supervised();
    limit_address_space(machine.process_id(), 0);
    // Requests that do not end.
    let mut greedy = Vec::new();
    eventually("the node ends", || {
        if let Ok(mut stream) = TcpStream::connect((Ipv4Addr::LOCALHOST, machine.admin_port)) {
            let head =
                "POST /api/v1/databases HTTP/1.1\r\nHost: x\r\nContent-Length: 900000\r\n\r\n";
            let _ = stream.write_all(head.as_bytes());
            let _ = stream.write_all(&vec![b' '; 800_000]);
            greedy.push(stream);
        }
        machine.has_ended()
    });
    assert_eq!(at_home(port, "GET k"), Reply::Bulk(b"v".to_vec()));
    assert_eq!(at_home(port, "SET k w"), Reply::Simple(OK.to_vec()));
    // What systemd does.
    machine.kill_node();
    machine.start_again();
    until_ok(&machine, "d");
    let mut now = machine.supervised();
    before.sort_unstable();
    now.sort_unstable();
    assert_eq!(now, before, "copies and etcd are the processes that they were");
    assert_eq!(at_home(port, "GET k"), Reply::Bulk(b"w".to_vec()));
}

#[test]
fn an_etcd_without_memory_is_started_again() {
    let machine = Machine::with_plain_etcd("memory-etcd", "a");
    let (port, _) = machine.create("d", "0");
    until_ok(&machine, "d");
    assert_eq!(at_home(port, "SET k v"), Reply::Simple(OK.to_vec()));
    let etcds = machine.etcds();
    let [etcd] = etcds[..] else { panic!("one etcd: {etcds:?}") };
    limit_address_space(etcd, 0);
    let value = crate::support::base64(&vec![b'v'; 900_000]);
    let etcd_port = machine.etcd_port.expect("it has one");
    let mut number = 0;
    eventually("etcd ends", || {
        let key = crate::support::base64(format!("ballast/{}", number % 64).as_bytes());
        number += 1;
        let body = format!(r#"{{"key":"{key}","value":"{value}"}}"#);
        crate::support::ask_etcd(etcd_port, "kv/put", &body);
        assert_eq!(at_home(port, "GET k"), Reply::Bulk(b"v".to_vec()));
        has_ended(etcd)
    });
    eventually("it is started again", || machine.etcds().iter().any(|&other| other != etcd));
    until_ok(&machine, "d");
    assert_eq!(at_home(port, "GET k"), Reply::Bulk(b"v".to_vec()));
}

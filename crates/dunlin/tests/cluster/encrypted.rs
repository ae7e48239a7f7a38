//! A database with TLS and users: nothing of it goes over the network in clear, whichever machine a
//! client reaches.

use crate::support::{Machine, row_of_ports, until_ok};
use harness::server::Program;
use harness::wait::eventually;
use serde_json::Value;
use std::io::{Read as _, Write as _};
use std::net::{Ipv4Addr, SocketAddr, TcpStream};

/// What a client without TLS gets, and then the end of the connection: an alert of TLS 1.2's form
/// that is fatal (2) and says `decode_error` (50).
pub const NOT_TLS: [u8; 7] = [0x15, 3, 3, 0, 2, 2, 50];

/// A request by TLS, with the certificate of the cluster's authority.
fn by_tls(machine: &Machine, port: u64, words: &[&str]) -> String {
    let mut cli = Program::under_test().subcommand("cli");
    cli.args([
        "--no-auth-warning",
        "--tls",
        "--cacert",
        &machine.path("tls/ca.pem"),
        "-p",
        &port.to_string(),
    ]);
    let output =
        cli.args(["--user", "app", "--pass", "pw"]).args(words).output().expect("it starts");
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    format!("{text}{}", String::from_utf8_lossy(&output.stderr)).trim().to_owned()
}

fn create(machine: &Machine) {
    for _ in 0..5 {
        let port = row_of_ports().to_string();
        let words = ["create-db", "safe", "--memory", "64mb", "--shards", "2", "--replicas", "1"];
        let more =
            ["--port", &port, "--tls", "--user", "app on >pw ~* +@all", "--password", "word"];
        let (is_done, text) = machine.ask(&[&words[..], &more].concat());
        if is_done {
            return;
        }
        eprintln!("{text}");
        machine.ask(&["delete-db", "safe", "--confirm", "safe"]);
    }
    panic!("the database is not created");
}

#[test]
fn a_database_with_tls_has_no_port_without() {
    let machine = Machine::first("encrypted", "a");
    create(&machine);
    until_ok(&machine, "safe");
    let copies = machine.copies("safe");
    let ports: Vec<u64> = copies.iter().filter_map(|copy| copy["port"].as_u64()).collect();
    assert_eq!(ports.len(), 4);
    // Any key at any copy: forwarding and replication have TLS, too.
    for port in &ports {
        for key in ["a", "b", "foo"] {
            assert_eq!(by_tls(&machine, *port, &["SET", key, &port.to_string()]), "OK");
            assert_eq!(by_tls(&machine, *port, &["GET", key]), port.to_string());
        }
        assert_eq!(by_tls(&machine, *port, &["WAIT", "1", "5000"]), "1");
    }
    // In clear there is no answer.
    let address = SocketAddr::from((Ipv4Addr::LOCALHOST, ports[0] as u16));
    let mut plain = TcpStream::connect(address).expect("it listens");
    plain.write_all(b"*1\r\n$4\r\nPING\r\n").expect("it is sent");
    let mut answer = Vec::new();
    plain.read_to_end(&mut answer).expect("the server ends the connection in order");
    assert_eq!(answer, NOT_TLS);

    // Users are the same at all copies, and known to etcd by hashes of their passwords alone.
    assert_eq!(by_tls(&machine, ports[3], &["ACL", "SETUSER", "other", "on", ">x", "+ping"]), "OK");
    let users: Vec<String> =
        ports.iter().map(|port| by_tls(&machine, *port, &["ACL", "LIST"])).collect();
    let shared = |list: &String| {
        list.lines()
            .filter(|line| !line.contains("user dunlin-internal "))
            .map(str::to_owned)
            .collect()
    };
    let lists: Vec<Vec<String>> = users.iter().map(shared).collect();
    assert!(lists.iter().all(|list| list.len() == 4 && *list == lists[0]), "{lists:?}");
    let shown = machine.json(&["databases", "safe"]);
    assert_eq!(shown["settings"]["users"], Value::from(vec!["app"]));

    // A switch, a new password and the end of a copy go by TLS as well.
    let (is_done, text) = machine.ask(&["failover", "safe", "--shard", "1"]);
    assert!(is_done, "{text}");
    let (is_done, text) = machine.ask(&["update-db", "safe", "--password", "new"]);
    assert!(is_done, "{text}");
    eventually("the default user has the new password", || {
        let list = by_tls(&machine, ports[1], &["ACL", "GETUSER", "default"]);
        list.contains("11507a0e2f5e69d5dfa40a62a1bd7b6ee57e6bcd85c67c9b8431b36fff21c437")
    });
    until_ok(&machine, "safe");
    assert_eq!(by_tls(&machine, ports[0], &["GET", "a"]), ports[3].to_string());
    let (is_done, text) = machine.ask(&["delete-db", "safe", "--confirm", "safe"]);
    assert!(is_done, "{text}");
}

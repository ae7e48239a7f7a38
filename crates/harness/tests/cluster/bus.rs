//! Copies of a database whose clients are plain: what they send each other is encrypted, once all
//! of them announce a bus port. Each copy announces ports of a tap, so all that others send it is
//! seen.

use crate::moving::jobs::jobs;
use harness::client::{ask, ok};
use harness::cluster::{Etcd, text};
use harness::reply::Reply;
use harness::server::{Options, Program, Server, free_port};
use harness::tap::Tap;
use harness::tls::Authority;
use harness::wait::eventually;
use std::io::{Read as _, Write as _};
use std::net::{Ipv4Addr, TcpStream};
use std::path::PathBuf;
use std::time::{Duration, SystemTime};

/// What a client without TLS gets, and then the end of the connection: an alert of TLS 1.2's form
/// that is fatal (2) and says `decode_error` (50).
const NOT_TLS: [u8; 7] = [0x15, 3, 3, 0, 2, 2, 50];

/// A word that is in no byte sequence by chance.
const SECRET: &str = "fourteen-herons-on-a-weir";

/// A server, and what others reach it by.
struct Copy {
    server: Server,
    /// In front of its port for clients.
    plain: Tap,
    /// In front of its bus port.
    bus: Tap,
    bus_port: u16,
}

impl Copy {
    /// Starts one that shows the certificate `name`. `None`: one of a release without a bus.
    fn start(etcd: &Etcd, authority: &Authority, name: Option<&str>) -> Copy {
        let (plain, bus) = (Tap::new(), Tap::new());
        let bus_port = free_port().expect("a port is free");
        bus.lead_to(bus_port);
        let coordinator = Etcd::coordinator(std::slice::from_ref(etcd));
        let announced = [plain.port(), bus.port()].map(|port| port.to_string());
        let arguments = [
            ["--bind", "127.0.0.1"],
            ["--io-threads", "2"],
            ["--save", ""],
            ["--cluster-enabled", "yes"],
            ["--cluster-endpoint", "single"],
            ["--cluster-coordinator", &coordinator],
            ["--cluster-announce-ip", "127.0.0.1"],
            ["--cluster-announce-port", &announced[0]],
            ["--cluster-announce-bus-port", &announced[1]],
            ["--repl-diskless-sync-delay", "0"],
        ];
        let config = Some(name.map_or_else(String::new, |it| options(authority, it, bus_port)));
        let options = Options { config, ..Options::arguments(&arguments.concat()) };
        let server = Server::start(&Program::under_test(), options).expect("a node starts");
        plain.lead_to(server.port());
        let copy = Copy { server, plain, bus, bus_port };
        eventually("the node has a view", || !copy.id().is_empty());
        copy
    }

    /// Starts it again, with a bus or as one of a release without.
    fn restart(&mut self, authority: &Authority, name: Option<&str>) {
        let file: PathBuf = self.server.directory().join("server.conf");
        let text = name.map_or_else(String::new, |it| options(authority, it, self.bus_port));
        std::fs::write(file, text).expect("it is written");
        self.server.restart().expect("it starts again");
        self.plain.lead_to(self.server.port());
    }

    fn id(&self) -> String {
        let reply = ask(&mut self.server.node_client(), "CLUSTER MYID");
        if reply.is_error() { String::new() } else { text(reply) }
    }

    /// What a request of a client gets that knows nothing of copies.
    fn ask(&self, request: &str) -> Reply {
        ask(&mut self.server.client(), request)
    }

    /// The connection of its replica, as CLIENT LIST names it; empty if it has none.
    fn link_of_replica(&self) -> String {
        let mut client = self.server.client();
        ok(&mut client, "CLIENT CAPA cluster node");
        let list = text(ask(&mut client, "CLIENT LIST TYPE replica"));
        list.split(' ').next().unwrap_or_default().trim().to_owned()
    }

    /// A section of INFO, of this copy itself.
    fn says(&self, line: &str) -> bool {
        let mut client = self.server.client();
        ok(&mut client, "CLIENT CAPA cluster node");
        text(ask(&mut client, "INFO replication")).contains(line)
    }
}

fn options(authority: &Authority, name: &str, bus_port: u16) -> String {
    let file = |name: &str| authority.path(name);
    let (cert, key) = (file(&format!("{name}.crt")), file(&format!("{name}.key")));
    let ca = file("ca.crt");
    format!(
        "cluster-port {bus_port}\ncluster-bus-cert-file {cert}\ncluster-bus-key-file {key}\n\
         cluster-bus-ca-cert-file {ca}\ntls-auto-reload-interval 1\n"
    )
}

/// Makes a database of three copies: the first leads the lower half of the slots and the second the
/// upper one; the third is a replica of the first.
fn join(copies: &[Copy; 3]) {
    let [first, second, third] = copies;
    operate(first, "CLUSTER ADDSLOTSRANGE 0 8191");
    for other in [second, third] {
        operate(other, &format!("CLUSTER MEET 127.0.0.1 {}", first.plain.port()));
        eventually("they know each other", || {
            let nodes = text(ask(&mut first.server.node_client(), "CLUSTER NODES"));
            nodes.contains(&other.id())
        });
    }
    operate(second, "CLUSTER ADDSLOTSRANGE 8192 16383");
    operate(third, &format!("CLUSTER REPLICATE {}", first.id()));
    eventually("the replica is a member", || {
        copies.iter().all(|copy| {
            let info = text(ask(&mut copy.server.node_client(), "CLUSTER INFO"));
            info.contains("cluster_state:ok") && info.contains("cluster_known_nodes:3")
        }) && first.says("cluster_members:2\r\n")
    });
}

/// Makes a change of the topology.
fn operate(copy: &Copy, request: &str) {
    eventually("the coordinator takes it", || {
        let Reply::Error(why) = ask(&mut copy.server.node_client(), request) else { return true };
        assert!(why.starts_with(b"AWAY "), "{request}: {}", why.escape_ascii());
        false
    });
}

fn all_say(copies: &[Copy], line: &str) {
    eventually(line, || copies.iter().all(|copy| copy.says(line)));
}

/// Writes by each copy keys of both shards, and reads them by each.
fn work(copies: &[&Copy], name: &str) {
    let value = format!("{SECRET}-{name}");
    for (at, copy) in copies.iter().enumerate() {
        // Slots 3300 and 12182 are in different halves.
        for key in ["b", "foo"] {
            let key = format!("{{{key}}}-{name}-{at}");
            eventually("it is written", || {
                copy.ask(&format!("SET {key} {value}")) == Reply::Simple(b"OK".to_vec())
            });
            for reader in copies {
                let read = || reader.ask(&format!("GET {key}"));
                eventually("it is read", || read() == Reply::Bulk(value.clone().into()));
            }
        }
    }
}

/// Asserts that nothing of what was written has passed in clear.
fn assert_unseen(copies: &[&Copy]) {
    for copy in copies {
        for tap in [&copy.plain, &copy.bus] {
            assert!(!tap.has_seen(SECRET.as_bytes()), "a value has passed in clear");
        }
    }
}

/// What comes back for a request in clear.
fn in_clear(port: u16) -> Vec<u8> {
    let mut plain = TcpStream::connect((Ipv4Addr::LOCALHOST, port)).expect("it listens");
    plain.write_all(b"*1\r\n$4\r\nPING\r\n").expect("it is sent");
    let mut answer = Vec::new();
    plain.read_to_end(&mut answer).expect("the server ends the connection in order");
    answer
}

/// Whether a client that shows this certificate is answered.
fn is_let_in(authority: &Authority, port: u16, name: Option<&str>) -> bool {
    let mut stream = match name {
        Some(name) => authority.open_as(port, name),
        None => authority.open(port),
    };
    let sent = stream.write_all(b"*1\r\n$4\r\nPING\r\n").and_then(|()| stream.flush());
    sent.and_then(|()| stream.read_exact(&mut [0; 7])).is_ok()
}

#[test]
fn nothing_passes_between_copies_in_clear() {
    let etcd = Etcd::start("bus");
    let authority = Authority::new("bus");
    authority.sign_nameless("copy");
    let mut copies = [(); 3].map(|()| Copy::start(&etcd, &authority, Some("copy")));
    join(&copies);
    all_say(&copies, "cluster_bus_tls:1\r\n");
    let [first, second, third] = &copies;
    eventually("the replica has a link by the bus", || {
        first.bus.connections() > 0 && third.says("master_link_status:up\r\n")
    });
    // Forwarding, replication.
    work(&[first, second, third], "before");
    let mut client = second.server.client();
    ok(&mut client, &format!("SET {{b}} {SECRET}"));
    assert_eq!(ask(&mut client, "WAIT 1 5000"), Reply::Integer(1));

    // Slots that move, with their keys.
    let before = second.bus.connections();
    let request = format!("CLUSTER MIGRATESLOTS SLOTSRANGE 3000 4000 NODE {}", second.id());
    ok(&mut first.server.node_client(), &request);
    eventually("the slots have moved", || {
        jobs(&first.server).first().is_some_and(|job| job["state"] == "success")
    });
    assert!(second.bus.connections() > before, "the slots came by another port");
    work(&[first, second, third], "moved");

    // A fail-over.
    copies[0].server.kill().expect("it runs");
    let [_, second, third] = &copies;
    eventually("the replica leads", || third.says("role:master\r\n"));
    work(&[second, third], "after");
    let [first, ..] = &copies;
    assert_unseen(&[first, second, third]);
    assert!([first, second].iter().all(|copy| copy.bus.has_seen(&[0x16, 3, 1])), "no TLS is seen");
}

#[test]
fn the_bus_lets_in_certificates_of_the_authority_alone() {
    let etcd = Etcd::start("bus-doors");
    let (authority, other) = (Authority::new("doors"), Authority::new("other"));
    authority.sign_nameless("copy");
    authority.sign("client");
    let copy = Copy::start(&etcd, &authority, Some("copy"));
    assert_eq!(in_clear(copy.bus_port), NOT_TLS);
    assert!(is_let_in(&authority, copy.bus_port, Some("client")));
    assert!(!is_let_in(&authority, copy.bus_port, None));
    // It shows one of the authority's, and refuses those of others.
    other.sign("client");
    for file in ["client.crt", "client.key"] {
        let text = std::fs::read_to_string(other.path(file)).expect("it is there");
        authority.write(file, &text);
    }
    assert!(!is_let_in(&authority, copy.bus_port, Some("client")));
    assert_eq!(copy.ask("PING"), Reply::Simple(b"PONG".to_vec()), "clients are plain");
}

#[test]
fn a_copy_of_a_release_without_a_bus_keeps_the_database_plain() {
    let etcd = Etcd::start("bus-mixed");
    let authority = Authority::new("mixed");
    authority.sign_nameless("copy");
    let start = |name| Copy::start(&etcd, &authority, name);
    let mut copies = [start(Some("copy")), start(Some("copy")), start(None)];
    join(&copies);
    all_say(&copies[..2], "cluster_bus_tls:0\r\n");
    let all = |copies: &[Copy; 3], name: &str| work(&copies.iter().collect::<Vec<_>>(), name);
    all(&copies, "mixed");
    let links = copies[0].bus.connections();
    assert_eq!(links, 0, "nothing goes by the bus");
    // It gets the new release.
    copies[2].restart(&authority, Some("copy"));
    all_say(&copies, "cluster_bus_tls:1\r\n");
    eventually("the link to the primary is by the bus", || {
        copies[0].bus.connections() > 0 && copies[2].says("master_link_status:up\r\n")
    });
    all(&copies, "whole");
    // And goes back.
    copies[2].restart(&authority, None);
    all_say(&copies, "cluster_bus_tls:0\r\n");
    all(&copies, "back");
    // Another one, which leads, and has a link to its replica that goes on.
    copies[2].restart(&authority, Some("copy"));
    all_say(&copies, "cluster_bus_tls:1\r\n");
    all(&copies, "again");
}

#[test]
fn a_shard_whose_bus_port_is_not_known_is_not_left_out() {
    let etcd = Etcd::start("bus-unknown");
    let authority = Authority::new("unknown");
    authority.sign_nameless("copy");
    let mut copies = [(); 3].map(|()| Copy::start(&etcd, &authority, Some("copy")));
    join(&copies);
    all_say(&copies, "cluster_bus_tls:1\r\n");
    work(&copies.iter().collect::<Vec<_>>(), "before");
    // The one that leads the upper half goes. A replica that is started then has never heard of its
    // bus port.
    let gone = copies[1].id();
    copies[1].server.kill().expect("it runs");
    eventually("its lease has ended", || {
        let nodes = text(ask(&mut copies[0].server.node_client(), "CLUSTER NODES"));
        nodes.lines().any(|line| line.starts_with(&*gone) && line.contains("fail"))
    });
    copies[2].restart(&authority, Some("copy"));
    let asked = &copies[2];
    eventually("it uses the bus", || {
        asked.says("cluster_bus_tls:1\r\n") && asked.says("master_link_status:up\r\n")
    });
    for copy in [&copies[0], asked] {
        ok(&mut copy.server.node_client(), "CONFIG SET cluster-require-full-coverage no");
    }
    eventually("it reaches the shard that is there", || !asked.ask("GET {b}").is_error());
    for request in ["DBSIZE", "KEYS *", "FLUSHALL", "GET foo"] {
        let reply = asked.ask(request);
        assert!(reply.is_error(), "{request}: {reply:?}");
    }
    let mut cursor = "0".to_owned();
    let walked = (0..20).any(|_| {
        let Reply::Array(reply) = asked.ask(&format!("SCAN {cursor} COUNT 1000")) else {
            return false;
        };
        cursor = reply[0].shown();
        cursor == "0"
    });
    assert!(!walked, "SCAN has passed a shard over");
    assert_unseen(&copies.iter().collect::<Vec<_>>());
}

#[test]
fn links_outlive_the_certificates_that_they_began_with() {
    let etcd = Etcd::start("bus-renewed");
    let authority = Authority::new("renewed");
    let end = SystemTime::now() + Duration::from_secs(12);
    authority.sign_until("copy", end);
    let copies = [(); 3].map(|()| Copy::start(&etcd, &authority, Some("copy")));
    join(&copies);
    all_say(&copies, "cluster_bus_tls:1\r\n");
    let [first, second, third] = &copies;
    eventually("the link is up", || third.says("master_link_status:up\r\n"));
    work(&[first, second, third], "before");
    for file in ["crt", "key"] {
        let path = |name: &str| authority.path(&format!("{name}.{file}"));
        std::fs::copy(path("copy"), path("old")).expect("it is copied");
    }
    let link = first.link_of_replica();
    authority.sign_nameless("copy");
    eventually("the new certificate is used", || {
        let is_told = |copy: &Copy| copy.server.log().contains("Certificates have changed");
        copies.iter().all(is_told)
    });
    eventually("the old certificate has ended", || {
        SystemTime::now() > end && !is_let_in(&authority, first.bus_port, Some("old"))
    });
    work(&[first, second, third], "after");
    assert!(third.says("master_link_status:up\r\n"));
    assert_eq!(first.link_of_replica(), link, "it has gone on");
    // New ones have the new certificate.
    ok(&mut third.server.node_client(), "CLIENT KILL TYPE master SKIPME no");
    eventually("the link is made anew", || {
        !["", &*link].contains(&&*first.link_of_replica())
            && third.says("master_link_status:up\r\n")
    });
    work(&[first, second, third], "new");
    assert_unseen(&[first, second, third]);
}

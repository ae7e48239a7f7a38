//! Copies of a database whose clients are plain: what they send each other is encrypted, once all
//! of them announce a bus port. Each copy announces ports of a tap, so all that others send it is
//! seen.

use crate::moving::jobs::jobs;
use harness::client::{Client, ask, encode, ok};
use harness::cluster::{Etcd, operate, text};
use harness::reply::Reply;
use harness::server::{Options, Program, Server, free_port};
use harness::tap::Tap;
use harness::tls::Authority;
use harness::wait::eventually;
use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject as _;
use std::io::{Read as _, Write as _};
use std::net::{Ipv4Addr, TcpStream};
use std::path::PathBuf;

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

/// A database of three copies that use the bus, as [`join`] makes it.
struct Trio {
    copies: [Copy; 3],
    authority: Authority,
    _etcd: Etcd,
}

impl Trio {
    fn start(name: &str) -> Trio {
        let (etcd, authority) = begin(name);
        let copies = [(); 3].map(|()| Copy::start(&etcd, &authority, Some("copy")));
        join(&copies);
        all_say(&copies, "cluster_bus_tls:1\r\n");
        // The link of before goes on in clear for a moment.
        let before = copies[0].bus.connections();
        copies[0].renew_link_of(&copies[2]);
        assert!(copies[0].bus.connections() > before, "the replica has a link by the bus");
        Trio { copies, authority, _etcd: etcd }
    }
}

/// An etcd, and an authority that has signed the certificate `copy`.
fn begin(name: &str) -> (Etcd, Authority) {
    let authority = Authority::new(name);
    authority.sign_nameless("copy");
    (Etcd::start(&format!("bus-{name}")), authority)
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
        first_link(&mut client)
    }

    /// Ends the link of its replica, and waits until there is another one.
    fn renew_link_of(&self, replica: &Copy) {
        let link = self.link_of_replica();
        ok(&mut replica.server.node_client(), "CLIENT KILL TYPE master SKIPME no");
        eventually("the link is made anew", || {
            !["", &*link].contains(&&*self.link_of_replica())
                && replica.says("master_link_status:up\r\n")
        });
    }

    /// Whether it leads its shard.
    fn leads(&self) -> bool {
        self.says("role:master\r\n")
    }

    /// A section of INFO, of this copy itself.
    fn says(&self, line: &str) -> bool {
        let mut client = self.server.client();
        ok(&mut client, "CLIENT CAPA cluster node");
        text(ask(&mut client, "INFO replication")).contains(line)
    }
}

/// The first connection of a replica, as CLIENT LIST names it; empty: there is none.
fn first_link(client: &mut Client) -> String {
    let list = text(ask(client, "CLIENT LIST TYPE replica"));
    list.split(' ').next().unwrap_or_default().trim().to_owned()
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
    operate(&mut first.server.node_client(), "CLUSTER ADDSLOTSRANGE 0 8191");
    for other in [second, third] {
        operate(
            &mut other.server.node_client(),
            &format!("CLUSTER MEET 127.0.0.1 {}", first.plain.port()),
        );
        eventually("they know each other", || {
            let nodes = text(ask(&mut first.server.node_client(), "CLUSTER NODES"));
            nodes.contains(&other.id())
        });
    }
    operate(&mut second.server.node_client(), "CLUSTER ADDSLOTSRANGE 8192 16383");
    operate(&mut third.server.node_client(), &format!("CLUSTER REPLICATE {}", first.id()));
    eventually("the replica is a member", || {
        copies.iter().all(|copy| {
            let info = text(ask(&mut copy.server.node_client(), "CLUSTER INFO"));
            info.contains("cluster_state:ok") && info.contains("cluster_known_nodes:3")
        }) && first.says("cluster_members:2\r\n")
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
    for (number, copy) in copies.iter().enumerate() {
        for (port, tap) in [("clients", &copy.plain), ("others", &copy.bus)] {
            let has_seen = tap.has_seen(SECRET.as_bytes());
            assert!(!has_seen, "a value has passed in clear by copy {number}'s port for {port}");
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
    let mut trio = Trio::start("clear");
    let copies = &mut trio.copies;
    let [first, second, third] = &*copies;
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
    let [first, second, third] = &*copies;
    eventually("the replica leads", || third.says("role:master\r\n"));
    work(&[second, third], "after");
    assert_unseen(&[first, second, third]);
    assert!([first, second].iter().all(|copy| copy.bus.has_seen(&[0x16, 3, 1])), "no TLS is seen");
}

#[test]
fn the_bus_lets_in_certificates_of_the_authority_alone() {
    let ((etcd, authority), other) = (begin("doors"), Authority::new("other"));
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
    let (etcd, authority) = begin("mixed");
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
    let Trio { mut copies, authority, _etcd } = Trio::start("unknown");
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

/// Puts the files of another authority in the place of those that copies have, as a renewal does.
/// Those of before are `old.crt` and `old.key`.
fn renew(authority: &Authority) -> Authority {
    let other = Authority::new("renewal");
    other.sign_nameless("copy");
    for file in ["crt", "key"] {
        let path = |name: &str| authority.path(&format!("{name}.{file}"));
        std::fs::copy(path("copy"), path("old")).expect("it is copied");
    }
    for file in ["ca.crt", "copy.crt", "copy.key"] {
        std::fs::copy(other.path(file), authority.path(file)).expect("it is copied");
    }
    for file in ["old.crt", "old.key"] {
        std::fs::copy(authority.path(file), other.path(file)).expect("it is copied");
    }
    other
}

#[test]
fn links_outlive_the_certificates_that_they_began_with() {
    let trio = Trio::start("renewed");
    let copies = &trio.copies;
    let [first, second, third] = copies;
    work(&[first, second, third], "before");
    let link = first.link_of_replica();
    let other = renew(&trio.authority);
    eventually("all have the new certificates, and let in no old ones", || {
        copies.iter().all(|copy| {
            is_let_in(&other, copy.bus_port, Some("copy"))
                && !is_let_in(&other, copy.bus_port, Some("old"))
        })
    });
    work(&[first, second, third], "after");
    assert!(third.says("master_link_status:up\r\n"));
    assert_eq!(first.link_of_replica(), link, "it has gone on");
    // New ones have the new certificate.
    first.renew_link_of(third);
    work(&[first, second, third], "new");
    assert_unseen(&[first, second, third]);
}

#[test]
fn a_password_passes_by_the_bus_alone() {
    const PASSWORD: &str = "seven-otters-below-a-bridge";
    let trio = Trio::start("password");
    let [first, second, third] = &trio.copies;
    let set = |copy: &Copy, option: &str| {
        ok(&mut copy.server.node_client(), &format!("CONFIG SET {option} {PASSWORD}"));
    };
    trio.copies.iter().for_each(|copy| set(copy, "masterauth"));
    trio.copies.iter().for_each(|copy| set(copy, "requirepass"));
    let client = |copy: &Copy| {
        let mut client = copy.server.client();
        ok(&mut client, &format!("AUTH {PASSWORD}"));
        client
    };
    let node = |copy: &Copy| {
        let mut client = client(copy);
        ok(&mut client, "CLIENT CAPA cluster node");
        client
    };
    let says =
        |copy: &Copy, line: &str| text(ask(&mut node(copy), "INFO replication")).contains(line);
    let link = first_link(&mut node(first));
    ok(&mut node(third), "CLIENT KILL TYPE master SKIPME no");
    eventually("the link is made anew", || !["", &*link].contains(&&*first_link(&mut node(first))));
    eventually("the replica has logged in", || says(third, "master_link_status:up\r\n"));
    for (copy, key) in [(first, "foo"), (second, "b"), (third, "b"), (third, "foo")] {
        eventually("it is written", || {
            ask(&mut client(copy), &format!("SET {key} {SECRET}")) == Reply::Simple(b"OK".to_vec())
        });
    }
    assert_eq!(ask(&mut client(second), "GET b"), Reply::Bulk(SECRET.into()));
    assert!(ask(&mut third.server.client(), "GET b").is_error(), "it asks for the password");
    assert!(trio.copies.iter().all(|copy| says(copy, "cluster_bus_tls:1\r\n")));
    assert_unseen(&[first, second, third]);
    for tap in trio.copies.iter().flat_map(|copy| [&copy.plain, &copy.bus]) {
        assert!(!tap.has_seen(PASSWORD.as_bytes()), "the password has passed in clear");
    }
}

#[test]
fn a_port_for_others_can_be_announced_anew_while_a_copy_leads() {
    let trio = Trio::start("moved");
    let [first, second, third] = &trio.copies;
    let epoch = |copy: &Copy| {
        let info = text(ask(&mut copy.server.node_client(), "INFO replication"));
        info.lines().find(|line| line.starts_with("stream_epoch:")).map(str::to_owned)
    };
    let before = epoch(first);
    let moved = Tap::new();
    moved.lead_to(first.bus_port);
    let request = format!("CONFIG SET cluster-announce-bus-port {}", moved.port());
    ok(&mut first.server.node_client(), &request);
    // What it answers for its shard meanwhile: its lease goes on.
    for number in 0..100 {
        let reply = ask(&mut first.server.client(), &format!("SET {{b}} {SECRET}-{number}"));
        assert_eq!(reply, Reply::Simple(b"OK".to_vec()), "request {number}");
    }
    first.bus.lead_to(0);
    ok(&mut third.server.node_client(), "CLIENT KILL TYPE master SKIPME no");
    eventually("the link is made anew by the new port", || {
        moved.connections() > 0 && third.says("master_link_status:up\r\n")
    });
    work(&[first, second, third], "moved");
    assert_eq!(epoch(first), before, "another leadership has begun");
    assert_unseen(&[first, second, third]);
    assert!(!moved.has_seen(SECRET.as_bytes()), "a value has passed in clear");
}

#[test]
fn a_port_of_clients_that_is_the_one_for_others_is_refused() {
    let (etcd, authority) = begin("ports");
    authority.sign("client");
    let copy = Copy::start(&etcd, &authority, Some("copy"));
    let mut client = copy.server.node_client();
    for option in ["port", "tls-port"] {
        let reply = ask(&mut client, &format!("CONFIG SET {option} {}", copy.bus_port));
        let Reply::Error(why) = reply else { panic!("{option}: {reply:?}") };
        let why = String::from_utf8_lossy(&why).into_owned();
        assert!(why.contains("is a port of clients as well: set another cluster-port"), "{why}");
    }
    assert_eq!(copy.ask("PING"), Reply::Simple(b"PONG".to_vec()));
    assert!(is_let_in(&authority, copy.bus_port, Some("client")));
}

#[test]
fn certificates_that_cannot_be_used_keep_no_others_from_being_renewed() {
    let (etcd, authority) = begin("sets");
    let first = authority.sign("server");
    authority.sign("client");
    let copy = Copy::start(&etcd, &authority, Some("copy"));
    let port = free_port().expect("a port is free");
    let file = |name: &str| authority.path(name);
    let (cert, key, ca) = (file("server.crt"), file("server.key"), file("ca.crt"));
    let mut client = copy.server.node_client();
    // Those of the bus are broken before the others are set, and when these are renewed.
    authority.write("copy.key", "no key");
    let request = format!(
        "CONFIG SET tls-cert-file {cert} tls-key-file {key} tls-ca-cert-file {ca} \
         tls-auth-clients no tls-port {port}"
    );
    ok(&mut client, &request);
    assert_eq!(authority.connect(port).certificate(), first);
    let second = authority.sign("server");
    eventually("a new connection has the new certificate", || {
        authority.connect(port).certificate() == second
    });
    eventually("the log says which are not used", || {
        copy.server.log().contains("the old ones stay: Failed to configure the bus")
    });
    assert!(is_let_in(&authority, copy.bus_port, Some("client")), "the old ones have stayed");
    // The other way round.
    authority.write("server.key", "no key");
    authority.sign_nameless("copy");
    eventually("the new certificate of the bus is used", || {
        let mut stream = authority.open_as(copy.bus_port, "client");
        let sent = stream.write_all(b"PING\r\n").and_then(|()| stream.flush());
        let shown = sent.and_then(|()| stream.read_exact(&mut [0; 7])).map(|()| {
            stream.conn.peer_certificates().expect("it has shown one")[0].clone().into_owned()
        });
        let pem = std::fs::read(file("copy.crt")).expect("it is there");
        let wanted = CertificateDer::from_pem_slice(&pem).expect("it is one");
        shown.is_ok_and(|shown| shown == wanted)
    });
    assert_eq!(authority.connect(port).certificate(), second);
}

#[test]
fn copies_that_do_not_reach_each_other_by_the_bus_go_on_without() {
    let (etcd, authority) = begin("closed");
    let mut copies = [(); 3].map(|()| Copy::start(&etcd, &authority, None));
    join(&copies);
    // A firewall lets no more through than before.
    copies.iter().for_each(|copy| copy.bus.lead_to(0));
    for copy in &mut copies {
        copy.restart(&authority, Some("copy"));
        eventually("it is back", || copy.says("master_link_status:up\r\n") || copy.leads());
    }
    let [first, second, third] = &copies;
    all_say(&copies, "cluster_bus_unreached:127.0.0.1:");
    work(&[first, second, third], "closed");
    all_say(&copies, "cluster_bus_tls:0\r\n");
    // Two of three paths are no good.
    first.bus.lead_to(first.bus_port);
    second.bus.lead_to(second.bus_port);
    eventually("the third reaches the others", || third.says("cluster_bus_announced:1\r\n"));
    all_say(&copies[..2], &format!("cluster_bus_unreached:127.0.0.1:{}\r\n", third.bus.port()));
    work(&[first, second, third], "half");
    all_say(&copies, "cluster_bus_tls:0\r\n");
    third.bus.lead_to(third.bus_port);
    all_say(&copies, "cluster_bus_tls:1\r\n");
    work(&[first, second, third], "open");
    assert!(!text(ask(&mut first.server.node_client(), "INFO replication")).contains("unreached"));
}

/// What a server answers a client with TLS: the text of a bulk reply, or a line. `is_node`: of this
/// node itself.
fn by_tls(authority: &Authority, port: u16, is_node: bool, request: &str) -> String {
    let mut stream = authority.open(port);
    let capable = is_node.then_some("CLIENT CAPA cluster node");
    let mut answer = String::new();
    for request in capable.into_iter().chain([request]) {
        let words: Vec<&str> = request.split(' ').collect();
        stream.write_all(&encode(&words)).expect("it is sent");
        let (mut line, mut byte) = (Vec::new(), [0]);
        while !line.ends_with(b"\r\n") {
            stream.read_exact(&mut byte).expect("an answer");
            line.push(byte[0]);
        }
        answer = String::from_utf8_lossy(&line).trim_end().to_owned();
    }
    let Some(len) = answer.strip_prefix('$').and_then(|len| len.parse::<usize>().ok()) else {
        return answer;
    };
    let mut text = vec![0; len];
    stream.read_exact(&mut text).expect("all of it");
    String::from_utf8_lossy(&text).into_owned()
}

#[test]
fn copies_whose_clients_have_tls_alone_follow_each_other_by_the_bus() {
    let trio = Trio::start("tls-alone");
    let authority = &trio.authority;
    authority.sign("server");
    let file = |name: &str| authority.path(name);
    let (cert, key, ca) = (file("server.crt"), file("server.key"), file("ca.crt"));
    // Neither tls-replication nor tls-cluster is set.
    let ports = trio.copies.each_ref().map(|copy| {
        let port = free_port().expect("a port is free");
        let mut client = copy.server.node_client();
        let request = format!(
            "CONFIG SET tls-cert-file {cert} tls-key-file {key} tls-ca-cert-file {ca} \
             tls-auth-clients no tls-port {port}"
        );
        ok(&mut client, &request);
        ok(&mut client, "CONFIG SET port 0 cluster-announce-port 0");
        port
    });
    let [first, _, third] = ports;
    let says = |port: u16, line: &str| {
        let shown = by_tls(authority, port, true, "INFO replication");
        shown.contains(line)
    };
    eventually("all see the new addresses", || {
        ports.iter().all(|&port| {
            let nodes = by_tls(authority, port, true, "CLUSTER NODES");
            ports.iter().all(|other| nodes.contains(&format!("127.0.0.1:{other}@")))
        })
    });
    // A replica says its port when it connects.
    by_tls(authority, third, true, "CLIENT KILL TYPE master SKIPME no");
    // The primary of before has to follow one that it knows by its port with TLS.
    eventually("the replica takes over", || {
        let _ = by_tls(authority, third, true, "CLUSTER FAILOVER");
        says(third, "role:master\r\n")
    });
    eventually("the other one follows", || {
        says(first, "role:slave\r\n") && says(first, "master_link_status:up\r\n")
    });
    for port in ports {
        for key in ["b", "foo"] {
            let request = format!("SET {key} {SECRET}-{port}");
            eventually("it is written", || by_tls(authority, port, false, &request) == "+OK");
        }
    }
    assert_unseen(&trio.copies.each_ref());
}

#[test]
fn migrate_finds_a_copy_by_the_names_that_clients_are_told() {
    let trio = Trio::start("names");
    let [first, second, _] = &trio.copies;
    let mut client = second.server.node_client();
    ok(&mut client, "CONFIG SET cluster-announce-hostname localhost");
    eventually("others know the name", || {
        let nodes = text(ask(&mut first.server.node_client(), "CLUSTER NODES"));
        nodes.contains(&format!(":{}@{},localhost ", second.plain.port(), second.bus.port()))
    });
    // The slot moves key by key; the key goes by the bus, although the tap in front of the port of
    // clients would take it in clear.
    work(&[first], "before");
    let slot = ask(&mut first.server.node_client(), "CLUSTER KEYSLOT b");
    let Reply::Integer(slot) = slot else { panic!("{slot:?}") };
    for (copy, what) in [(second, "IMPORTING"), (first, "MIGRATING")] {
        let other = if what == "IMPORTING" { first.id() } else { second.id() };
        operate(&mut copy.server.node_client(), &format!("CLUSTER SETSLOT {slot} {what} {other}"));
    }
    let before = (second.plain.connections(), second.bus.connections());
    let request = format!("MIGRATE localhost {} {{b}}-before-0 0 5000", second.plain.port());
    eventually("the key moves", || {
        let reply = ask(&mut first.server.node_client(), &request);
        reply == Reply::Simple(b"OK".to_vec())
    });
    assert!(second.bus.connections() > before.1, "it went by another port");
    assert_eq!(second.plain.connections(), before.0, "it went by the port of clients");
    assert_unseen(&[first, second]);
}

//! Connections that Dunlin makes by TLS, to the reference and to itself, with certificates on both
//! sides: as a replica (`tls-replication yes`), with links that are cut, authorities that do not
//! fit and two channels, and as the source of MIGRATE (`tls-cluster yes`).

use harness::client::{ask, ok};
use harness::info::{field, number};
use harness::replicas::{Link, compare, fill, is_linked, until_linked, while_writing, write};
use harness::reply::Reply;
use harness::rng::Rng;
use harness::server::{Options, Program, Server, free_port};
use harness::tls::Authority;
use harness::wait::eventually;
use std::fs;
use std::net::Ipv4Addr;
use std::path::PathBuf;
use std::sync::atomic::{AtomicU32, Ordering::Relaxed};

/// The files of an authority, where a program sees them.
struct Files {
    outside: PathBuf,
    inside: PathBuf,
}

impl Files {
    fn of(program: &Program, authority: &Authority, name: &str) -> Files {
        let base =
            if program.is_dunlin() { std::env::temp_dir() } else { program.root().join("tmp") };
        // Two tests have servers of the same name.
        static COUNT: AtomicU32 = AtomicU32::new(0);
        let (process, count) = (std::process::id(), COUNT.fetch_add(1, Relaxed));
        let outside = base.join(format!("tls-files-{name}-{process}-{count}"));
        fs::create_dir_all(&outside).expect("a folder");
        for file in ["ca.crt", "primary.crt", "primary.key", "replica.crt", "replica.key"] {
            fs::copy(authority.path(file), outside.join(file)).expect("it is copied");
        }
        let inside = program.inside(&outside);
        Files { outside, inside }
    }

    fn path(&self, file: &str) -> String {
        self.inside.join(file).display().to_string()
    }
}

impl Drop for Files {
    fn drop(&mut self) {
        // What is left is for the system to clean up.
        let _ = fs::remove_dir_all(&self.outside);
    }
}

fn start(program: &Program, arguments: &[String]) -> Server {
    let common = ["--repl-diskless-sync-delay", "0"].map(str::to_owned);
    let all = [&common[..], arguments].concat();
    Server::start(program, Options::arguments(&all)).expect("it starts")
}

fn words(pairs: &[(&str, String)]) -> Vec<String> {
    pairs.iter().flat_map(|(name, value)| [format!("--{name}"), value.clone()]).collect()
}

/// A server with a port for TLS that asks for certificates, its authority and files, and that port.
fn peer(program: &Program, name: &str) -> (Authority, Files, u16, Server) {
    let authority = Authority::new(name);
    ["primary", "replica"].iter().for_each(|name| drop(authority.sign(name)));
    let files = Files::of(program, &authority, name);
    let port = free_port().expect("a port");
    let server = start(
        program,
        &words(&[
            ("tls-port", port.to_string()),
            ("tls-cert-file", files.path("primary.crt")),
            ("tls-key-file", files.path("primary.key")),
            ("tls-ca-cert-file", files.path("ca.crt")),
            ("tls-auth-clients", "yes".to_owned()),
        ]),
    );
    (authority, files, port, server)
}

fn follows_by_tls(program: &Program, name: &str, load: &str) {
    let (authority, _files, port, primary) = peer(program, &format!("upstream-{name}"));
    let (mut ours, mut rng) = (primary.client(), Rng::new(1));
    (0..3000).for_each(|_| write(&mut ours, &mut rng));
    ok(&mut ours, &["SELECT", "0"]);
    // More than a record and than what a socket holds.
    (0..100).for_each(|number| {
        ok(&mut ours, &["SET", &format!("large{number}"), &"v".repeat(50_000)]);
    });
    let replica = start(
        &Program::under_test(),
        &words(&[
            ("tls-replication", "yes".to_owned()),
            ("tls-ca-cert-file", authority.path("ca.crt")),
            ("tls-client-cert-file", authority.path("replica.crt")),
            ("tls-client-key-file", authority.path("replica.key")),
            ("repl-diskless-load", load.to_owned()),
        ]),
    );
    let mut theirs = replica.client();
    while_writing(&primary, 100, || {
        // The certificate is for another name, which does not matter.
        ok(&mut theirs, &["REPLICAOF", "127.0.0.1", &port.to_string()]);
        eventually("the link is up", || is_linked(&mut theirs));
        for round in 1..4 {
            eventually("it is cut", || {
                ask(&mut ours, &["CLIENT", "KILL", "TYPE", "replica"]) == Reply::Integer(1)
            });
            eventually("it came back", || number(&mut ours, "sync_partial_ok") >= round);
            eventually("the link is up", || is_linked(&mut theirs));
        }
    });
    compare(&primary, &replica);
    assert_eq!(number(&mut ours, "sync_full"), 1, "a cut needs no snapshot");
    assert_eq!(ask(&mut ours, &["WAIT", "1", "9000"]), Reply::Integer(1));
}

#[test]
fn a_replica_of_dunlin() {
    follows_by_tls(&Program::under_test(), "dunlin", "disabled");
    follows_by_tls(&Program::under_test(), "dunlin", "flush-before-load");
}

#[test]
fn a_replica_of_the_reference() {
    let reference = Program::reference().expect("there is a reference");
    follows_by_tls(&reference, "reference", "disabled");
    follows_by_tls(&reference, "reference", "flush-before-load");
}

/// The options of two channels.
const VALKEY: &str = "dual-channel-replication-enabled";
const REDIS: &str = "repl-rdb-channel";

/// Two servers that talk by TLS and take two channels, the first of them with more data than
/// sockets hold, and the link between them. The replica does not follow yet.
struct TwoChannels {
    primary: Server,
    replica: Server,
    link: Link,
    _files: Vec<Files>,
}

impl TwoChannels {
    fn start(primary: &Program, replica: &Program, option: &str, load: &str) -> TwoChannels {
        let name = format!("{}-{}-{option}-{load}", primary.name(), replica.name());
        println!("{name}");
        let authority = Authority::new(&name);
        ["primary", "replica"].iter().for_each(|name| drop(authority.sign(name)));
        let mut all_files = Vec::new();
        let mut begin = |program: &Program, role: &str| {
            let files = Files::of(program, &authority, &format!("{name}-{role}"));
            let port = free_port().expect("a port");
            // What the file-less way is called differs.
            let load = if program.is_dunlin() { load } else { "disabled" };
            let options = [
                ("tls-port", port.to_string()),
                ("tls-cert-file", files.path(&format!("{role}.crt"))),
                ("tls-key-file", files.path(&format!("{role}.key"))),
                ("tls-ca-cert-file", files.path("ca.crt")),
                ("tls-replication", "yes".to_owned()),
                ("rdbcompression", "no".to_owned()),
                ("repl-diskless-load", load.to_owned()),
                (option, "yes".to_owned()),
            ];
            let server = start(program, &words(&options));
            all_files.push(files);
            (server, port)
        };
        let (primary, port) = begin(primary, "primary");
        let (replica, _) = begin(replica, "replica");
        let (mut client, value) = (primary.client(), "x".repeat(20_000));
        for number in 0..1000 {
            ok(&mut client, &["SET", &format!("large:{number}"), &value]);
        }
        let link = Link::to((Ipv4Addr::LOCALHOST, port).into()).expect("a port");
        TwoChannels { primary, replica, link, _files: all_files }
    }

    fn follow(&self) {
        let port = self.link.port().to_string();
        ok(&mut self.replica.client(), &["REPLICAOF", "127.0.0.1", &port]);
    }

    fn replica_clients(&self) -> Vec<u64> {
        let list = ask(&mut self.primary.client(), &["CLIENT", "LIST", "TYPE", "replica"]);
        let text = String::from_utf8_lossy(list.text().expect("a list")).into_owned();
        let id = |line: &str| line.strip_prefix("id=")?.split(' ').next()?.parse().ok();
        let mut ids: Vec<u64> = text.lines().filter_map(id).collect();
        ids.sort_unstable();
        ids
    }

    /// The data came by so many attempts, and the stream goes on.
    fn is_whole_after(&self, attempts: u64) {
        until_linked(&self.replica);
        compare(&self.primary, &self.replica);
        let mut ours = self.primary.client();
        assert_eq!(number(&mut ours, "sync_full"), attempts, "{}", self.primary.log());
        assert_eq!(self.link.connections() as u64, 2 * attempts);
        eventually("one connection", || number(&mut ours, "connected_slaves") == 1);
        fill(&self.primary, 50, 200);
        compare(&self.primary, &self.replica);
    }
}

fn come_over_two_channels(primary: &Program, replica: &Program, option: &str, load: &str) {
    let pair = TwoChannels::start(primary, replica, option, load);
    fill(&pair.primary, 3, 500);
    while_writing(&pair.primary, 100, || {
        pair.follow();
        until_linked(&pair.replica);
    });
    // A first attempt with Redis 8 as primary has been seen to lose its main connection at the
    // snapshot's end.
    let attempts = number(&mut pair.primary.client(), "sync_full");
    let most = if primary.is_dunlin() { 1 } else { 2 };
    assert!(attempts <= most, "{attempts} attempts: {}", pair.primary.log());
    pair.is_whole_after(attempts);
}

#[test]
fn two_channels_between_dunlins() {
    let dunlin = Program::under_test();
    for option in [VALKEY, REDIS] {
        for load in ["disabled", "flush-before-load", "swapdb"] {
            come_over_two_channels(&dunlin, &dunlin, option, load);
        }
    }
}

#[test]
fn two_channels_with_others() {
    let dunlin = Program::under_test();
    let valkey = Program::reference().expect("there is a reference");
    let redis = Program::redis_8().expect("it is installed with the reference");
    for (other, option) in [(valkey, VALKEY), (redis, REDIS)] {
        come_over_two_channels(&dunlin, &other, option, "disabled");
        come_over_two_channels(&other, &dunlin, option, "disabled");
        come_over_two_channels(&other, &dunlin, option, "flush-before-load");
    }
}

#[test]
fn either_of_two_channels_is_killed() {
    let dunlin = Program::under_test();
    for option in [VALKEY, REDIS] {
        for which in 0..2 {
            let pair = TwoChannels::start(&dunlin, &dunlin, option, "flush-before-load");
            pair.link.hold_after(1 << 20);
            pair.follow();
            eventually("both connections", || pair.replica_clients().len() == 2);
            fill(&pair.primary, 4, 100);
            let victim = pair.replica_clients()[which].to_string();
            ask(&mut pair.primary.client(), &["CLIENT", "KILL", "ID", &victim]);
            pair.link.release();
            pair.is_whole_after(2);
        }
    }
}

#[test]
fn what_does_not_fit_is_said_and_can_be_mended() {
    let (right, wrong) = (Authority::new("upstream-right"), Authority::new("upstream-wrong"));
    ["primary", "replica"].iter().for_each(|name| drop((right.sign(name), wrong.sign(name))));
    let port = free_port().expect("a port");
    let primary = start(
        &Program::under_test(),
        &words(&[
            ("tls-port", port.to_string()),
            ("tls-cert-file", right.path("primary.crt")),
            ("tls-key-file", right.path("primary.key")),
            ("tls-ca-cert-file", right.path("ca.crt")),
        ]),
    );
    ok(&mut primary.client(), &["SET", "k", "v"]);
    let replica = start(&Program::under_test(), &words(&[("tls-replication", "yes".to_owned())]));
    let mut theirs = replica.client();
    ok(&mut theirs, &["REPLICAOF", "127.0.0.1", &port.to_string()]);
    let set = |client: &mut harness::client::Client, pairs: &[(&str, String)]| {
        let mut request = vec!["CONFIG", "SET"];
        pairs.iter().for_each(|(name, value)| request.extend([*name, value.as_str()]));
        ok(client, request.as_slice());
    };
    replica.logs("tls-ca-cert-file");
    set(&mut theirs, &[("tls-ca-cert-file", wrong.path("ca.crt"))]);
    replica.logs("invalid peer certificate");
    set(&mut theirs, &[("tls-ca-cert-file", right.path("ca.crt"))]);
    replica.logs("CertificateRequired");
    assert_eq!(field(&mut theirs, "master_link_status"), "down");
    set(
        &mut theirs,
        &[
            ("tls-client-cert-file", right.path("replica.crt")),
            ("tls-client-key-file", right.path("replica.key")),
        ],
    );
    eventually("the link is up", || is_linked(&mut theirs));
    compare(&primary, &replica);
    // A primary without TLS is no primary by TLS: the attempt ends, and the next one is another.
    ok(&mut theirs, &["REPLICAOF", "127.0.0.1", &primary.port().to_string()]);
    eventually("it does not talk TLS", || !is_linked(&mut theirs));
    set(&mut theirs, &[("tls-replication", "no".to_owned())]);
    eventually("the link is up", || is_linked(&mut theirs));
}

fn moves_keys_by_tls(program: &Program, name: &str) {
    let (authority, _files, port, target) = peer(program, &format!("migrate-{name}"));
    let source = start(
        &Program::under_test(),
        &words(&[
            ("tls-cluster", "yes".to_owned()),
            ("tls-cert-file", authority.path("replica.crt")),
            ("tls-key-file", authority.path("replica.key")),
            ("tls-ca-cert-file", authority.path("ca.crt")),
        ]),
    );
    let (mut ours, mut theirs) = (source.client(), target.client());
    let large = "x".repeat(3_000_000);
    ok(&mut ours, &["MSET", "a", "1", "b", &large, "c", "3"]);
    let migrate = |client: &mut _, port: u16, key: &str| {
        ask(client, &format!("MIGRATE 127.0.0.1 {port} {key} 0 5000"))
    };
    let moved = Reply::Simple(b"OK".to_vec());
    assert_eq!(migrate(&mut ours, port, "a"), moved);
    // On the connection that is kept.
    assert_eq!(number(&mut ours, "migrate_cached_sockets"), 1);
    assert_eq!(migrate(&mut ours, port, "b"), moved);
    assert_eq!(number(&mut ours, "migrate_cached_sockets"), 1);
    assert_eq!(ask(&mut theirs, "GET a"), Reply::Bulk(b"1".to_vec()));
    assert_eq!(ask(&mut theirs, "STRLEN b"), Reply::Integer(3_000_000));
    // The other port knows no TLS.
    assert!(migrate(&mut ours, target.port(), "c").is_error());
    ok(&mut ours, "CONFIG SET tls-cluster no");
    assert_eq!(migrate(&mut ours, target.port(), "c"), moved);
    assert_eq!(ask(&mut ours, "DBSIZE"), Reply::Integer(0));
}

#[test]
fn migrate_to_dunlin() {
    moves_keys_by_tls(&Program::under_test(), "dunlin");
}

#[test]
fn migrate_to_the_reference() {
    let Some(reference) = Program::reference_or_skip() else { return };
    moves_keys_by_tls(&reference, "reference");
}

//! FAILOVER on Dunlin: the role goes to a replica of any kind, and no write that was acknowledged
//! is lost.

use harness::client::{Client, ask, ok};
use harness::info::{field, find, number};
use harness::replicas::{compare, is_linked};
use harness::reply::Reply;
use harness::sentinel::hang;
use harness::server::{Options, Program, Server, free_port};
use harness::wait::{SetAtEnd, eventually};
use std::fs;
use std::net::Ipv4Addr;
use std::path::PathBuf;
use std::process::Child;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::SeqCst};

fn start(program: &Program, primary: Option<&Server>) -> Server {
    let arguments = ["--repl-diskless-sync-delay", "0", "--repl-ping-replica-period", "1"];
    let server = Server::start(program, Options::arguments(&arguments)).expect("it starts");
    if let Some(primary) = primary {
        let mut client = server.client();
        ok(&mut client, &["REPLICAOF", "127.0.0.1", &primary.port().to_string()]);
        eventually("the link is up", || is_linked(&mut client));
        // It is a candidate only from its first acknowledgement on.
        let mut theirs = primary.client();
        eventually("it is online", || {
            let replicas = ask(&mut theirs, &["INFO", "replication"]).shown();
            field(&mut theirs, "connected_slaves") != "0"
                && !["wait_bgsave", "send_bulk"].iter().any(|state| replicas.contains(state))
        });
    }
    server
}

fn dunlin() -> Server {
    start(&Program::under_test(), None)
}

fn reference() -> Program {
    Program::reference().expect("there is a reference")
}

fn error(reply: &Reply) -> String {
    assert!(reply.is_error(), "{reply:?}");
    reply.shown()
}

/// A client that waits for a list.
fn blocked(server: &Server) -> Client {
    let (mut waiting, mut observer) = (server.client(), server.client());
    waiting.send(&["BLPOP", "list", "0"]).expect("it is sent");
    eventually("it waits", || number(&mut observer, "blocked_clients") == 1);
    waiting
}

/// Counts as fast as replies come, until the server refuses; returns how far it got.
fn count(client: &mut Client, key: &str, done: &AtomicU64) -> u64 {
    let mut acknowledged = 0;
    loop {
        match ask(client, &["INCR", key]) {
            Reply::Integer(number) => acknowledged = number as u64,
            refusal => {
                assert!(error(&refusal).starts_with("READONLY"), "{refusal:?}");
                return acknowledged;
            }
        }
        done.fetch_add(1, SeqCst);
    }
}

/// Hands over while clients write, to `target` if it is named.
fn hands_over_to(program: &Program, names_target: bool) {
    let primary = dunlin();
    let successor = start(program, Some(&primary));
    let (mut ours, mut theirs) = (primary.client(), successor.client());
    let port = successor.port().to_string();
    let done = AtomicU64::new(0);
    // One of them may not get to write.
    (0..3).for_each(|number| drop(ok(&mut ours, &["SET", &format!("counter{number}"), "0"])));
    let counts: Vec<u64> = std::thread::scope(|scope| {
        let writers: Vec<_> = (0..3)
            .map(|number| {
                let (mut client, done) = (primary.client(), &done);
                scope.spawn(move || count(&mut client, &format!("counter{number}"), done))
            })
            .collect();
        eventually("they write", || done.load(SeqCst) > 1000);
        if names_target {
            ok(&mut ours, &["FAILOVER", "TO", "127.0.0.1", &port, "TIMEOUT", "30000"]);
        } else {
            ok(&mut ours, &["FAILOVER"]);
        }
        writers.into_iter().map(|writer| writer.join().expect("it counts")).collect()
    });
    assert_eq!(field(&mut ours, "role"), "slave");
    assert_eq!(field(&mut theirs, "role"), "master");
    assert_eq!(field(&mut ours, "master_port"), port);
    eventually("it is over", || field(&mut ours, "master_failover_state") == "no-failover");
    assert_eq!(field(&mut ours, "paused_reason"), "none");
    for (number, acknowledged) in counts.into_iter().enumerate() {
        let value = ask(&mut theirs, &["GET", &format!("counter{number}")]);
        assert_eq!(value.shown(), acknowledged.to_string(), "every acknowledged write, no other");
    }
    eventually("the old primary follows", || is_linked(&mut ours));
    ok(&mut theirs, &["SET", "after", "1"]);
    compare(&successor, &primary);
    assert_eq!(number(&mut theirs, "sync_full"), 0, "it went on from where it was");
}

#[test]
fn the_role_goes_to_a_dunlin() {
    hands_over_to(&Program::under_test(), true);
    hands_over_to(&Program::under_test(), false);
}

#[test]
fn the_role_goes_to_the_reference() {
    hands_over_to(&reference(), true);
    hands_over_to(&reference(), false);
}

#[test]
fn the_role_goes_to_redis() {
    hands_over_to(&reference().beside("redis-server"), true);
    hands_over_to(&Program::redis_7().expect("there is Redis 7"), false);
}

#[test]
fn other_replicas_stay_with_the_old_primary() {
    let primary = dunlin();
    let successor = start(&Program::under_test(), Some(&primary));
    let other = start(&reference(), Some(&primary));
    let (mut ours, mut theirs) = (primary.client(), successor.client());
    ok(&mut ours, &["SET", "before", "1"]);
    ok(&mut ours, &["FAILOVER", "TO", "127.0.0.1", &successor.port().to_string()]);
    eventually("roles are exchanged", || field(&mut theirs, "role") == "master");
    eventually("the old primary follows", || is_linked(&mut ours));
    ok(&mut theirs, &["SET", "after", "1"]);
    let mut third = other.client();
    eventually("the chain is whole", || is_linked(&mut third));
    compare(&successor, &other);
    assert_eq!(number(&mut theirs, "sync_full"), 0);
    assert_eq!(number(&mut ours, "sync_full"), 2, "those of the beginning");
    // And back again.
    ok(&mut theirs, &["FAILOVER", "TIMEOUT", "30000"]);
    eventually("roles are exchanged", || field(&mut ours, "role") == "master");
    ok(&mut ours, &["SET", "back", "1"]);
    compare(&primary, &other);
    compare(&primary, &successor);
}

#[test]
fn without_a_replica_that_has_everything_it_is_given_up() {
    let primary = dunlin();
    let replica = start(&Program::under_test(), Some(&primary));
    let (mut ours, mut writer) = (primary.client(), primary.client());
    hang(&replica, true).expect("it runs");
    // What it never had.
    ok(&mut ours, &["SET", "k", "1"]);
    ok(&mut ours, &["FAILOVER", "TIMEOUT", "500"]);
    assert_eq!(field(&mut ours, "master_failover_state"), "waiting-for-sync");
    assert_eq!(field(&mut ours, "paused_reason"), "failover_in_progress");
    writer.send(&["SET", "k", "2"]).expect("it is sent");
    let busy = error(&ask(&mut ours, &["FAILOVER"]));
    assert_eq!(busy, "ERR FAILOVER already in progress.");
    let refused = error(&ask(&mut ours, &["REPLICAOF", "127.0.0.1", "1"]));
    assert_eq!(refused, "ERR REPLICAOF not allowed while failing over.");
    let refused = error(&ask(&mut ours, &["PSYNC", "?", "-1"]));
    assert_eq!(refused, "NOMASTERLINK Can't SYNC while failing over");
    // Sentinels may talk to each other all the time.
    assert_eq!(ask(&mut ours, &["PUBLISH", "__sentinel__:hello", "x"]), Reply::Integer(0));
    eventually("it is given up", || field(&mut ours, "master_failover_state") == "no-failover");
    assert!(!writer.reply().expect("a reply").is_error());
    eventually("the log says why", || {
        primary.log().contains("Replica never caught up before timeout")
    });
    // By hand.
    ok(&mut ours, &["FAILOVER"]);
    writer.send(&["SET", "k", "3"]).expect("it is sent");
    ok(&mut ours, &["FAILOVER", "ABORT"]);
    assert!(!writer.reply().expect("a reply").is_error());
    primary.logs("Failover manually aborted");
    hang(&replica, false).expect("it is there");
    compare(&primary, &replica);
}

#[test]
fn a_successor_that_is_forced_takes_over_with_what_it_has() {
    let primary = dunlin();
    let successor = start(&reference(), Some(&primary));
    let (mut ours, mut theirs) = (primary.client(), successor.client());
    let mut waiting = blocked(&primary);
    hang(&successor, true).expect("it runs");
    ok(&mut ours, &["SET", "k", "1"]);
    let port = successor.port().to_string();
    ok(&mut ours, &["FAILOVER", "TO", "127.0.0.1", &port, "FORCE", "TIMEOUT", "300"]);
    eventually("this one follows", || {
        field(&mut ours, "master_failover_state") == "failover-in-progress"
    });
    assert_eq!(field(&mut ours, "role"), "slave");
    assert_eq!(number(&mut ours, "blocked_clients"), 1);
    // It can be called off even now.
    ok(&mut ours, &["FAILOVER", "ABORT"]);
    assert_eq!(field(&mut ours, "role"), "master");
    ok(&mut ours, &["SET", "k", "2"]);
    hang(&successor, false).expect("it is there");
    eventually("it is back", || is_linked(&mut theirs));
    compare(&primary, &successor);
    eventually("it is online", || {
        ask(&mut ours, &["INFO", "replication"]).shown().contains("state=online")
    });
    hang(&successor, true).expect("it runs");
    ok(&mut ours, &["FAILOVER", "TO", "127.0.0.1", &port, "FORCE", "TIMEOUT", "300"]);
    eventually("this one follows", || {
        field(&mut ours, "master_failover_state") == "failover-in-progress"
    });
    hang(&successor, false).expect("it is there");
    eventually("it has taken over", || field(&mut theirs, "role") == "master");
    eventually("the old primary follows", || is_linked(&mut ours));
    assert!(error(&waiting.reply().expect("a reply")).starts_with("UNBLOCKED force unblock"));
    compare(&successor, &primary);
}

/// Clients that can be sent on are when the successor has taken over; one that may read from
/// replicas goes on waiting for the stream.
#[test]
fn readers_of_replicas_go_on_waiting() {
    for program in [Program::under_test(), reference()] {
        let primary = dunlin();
        let successor = start(&program, Some(&primary));
        let (mut ours, mut theirs) = (primary.client(), successor.client());
        let wait = |server: &Server, words: &[&[&str]]| {
            let mut client = server.client();
            let (last, first) = words.split_last().expect("there is one");
            first.iter().for_each(|words| drop(ok(&mut client, *words)));
            client.send(last).expect("it is sent");
            client
        };
        let capable = &["CLIENT", "CAPA", "redirect"][..];
        let xread = |key: &'static str| ["XREAD", "BLOCK", "0", "STREAMS", key, "0"];
        let mut sent_on = wait(&primary, &[capable, &["BLPOP", "list", "0"]]);
        let mut reader = wait(&primary, &[capable, &["READONLY"], &xread("a")]);
        let mut other = wait(&primary, &[&xread("a")]);
        let mut at_successor = wait(&successor, &[capable, &["READONLY"], &xread("b")]);
        eventually("they wait", || {
            number(&mut ours, "blocked_clients") == 3 && number(&mut theirs, "blocked_clients") == 1
        });
        ok(&mut ours, &["FAILOVER"]);
        let redirection = format!("REDIRECT 127.0.0.1:{}", successor.port());
        assert_eq!(error(&sent_on.reply().expect("a reply")), redirection);
        assert!(error(&other.reply().expect("a reply")).starts_with("UNBLOCKED force unblock"));
        eventually("it has taken over", || field(&mut theirs, "role") == "master");
        assert_eq!(number(&mut ours, "blocked_clients"), 1);
        assert_eq!(number(&mut theirs, "blocked_clients"), 1);
        for (key, client) in [("a", &mut reader), ("b", &mut at_successor)] {
            ok(&mut theirs, &["XADD", key, "1-1", "f", "v"]);
            let reply = client.reply().expect("it is served");
            let streams = reply.elements().unwrap_or_else(|| panic!("no streams: {reply:?}"));
            let stream = streams[0].elements().expect("a name and entries");
            assert_eq!(stream[0].shown(), key);
            assert_eq!(stream[1].elements().map(<[Reply]>::len), Some(1));
        }
    }
}

#[test]
fn a_successor_that_refuses_leaves_the_role_here() {
    for program in [Program::under_test(), reference()] {
        let primary = dunlin();
        let successor = start(&program, Some(&primary));
        let (mut ours, mut theirs) = (primary.client(), successor.client());
        ok(&mut theirs, &["ACL", "SETUSER", "default", "-psync"]);
        // Its writer may not get to write.
        ok(&mut ours, &["SET", "counter", "0"]);
        let mut waiting = blocked(&primary);
        let stops = AtomicBool::new(false);
        std::thread::scope(|scope| {
            let over = SetAtEnd(&stops);
            let writer = scope.spawn(|| {
                let mut client = primary.client();
                while !stops.load(SeqCst) {
                    // Between the hand-over and the refusal this server is a replica, but writes
                    // wait.
                    ok(&mut client, &["INCR", "counter"]);
                }
            });
            ok(&mut ours, &["FAILOVER"]);
            eventually("it is refused", || {
                primary.log().contains("Failover target rejected psync request")
                    && field(&mut ours, "master_failover_state") == "no-failover"
            });
            assert_eq!(field(&mut ours, "role"), "master");
            drop(over);
            writer.join().expect("it wrote");
        });
        // A client that was blocked before is so still.
        assert_eq!(ask(&mut ours, &["RPUSH", "list", "a"]), Reply::Integer(1));
        let served = [&b"list"[..], b"a"].map(|text| Reply::Bulk(text.to_vec()));
        assert_eq!(waiting.reply().expect("it is served"), Reply::Array(served.to_vec()));
        eventually("the replica is back", || is_linked(&mut theirs));
        compare(&primary, &successor);
    }
}

/// HAProxy with the usual check of the role, in front of servers.
struct Proxy {
    child: Child,
    port: u16,
    folder: PathBuf,
}

impl Proxy {
    fn before(servers: &[&Server]) -> Proxy {
        let program = Program::redis_7().expect("there are Debian's programs").beside("haproxy");
        let folder =
            program.root().join("tmp").join(format!("dunlin-proxy-{}", std::process::id()));
        fs::create_dir_all(&folder).expect("a folder");
        let port = free_port().expect("a port");
        let mut config = format!(
            "defaults\n mode tcp\n timeout connect 1s\n timeout client 60s\n timeout server 60s\n\
             listen primary\n bind 127.0.0.1:{port}\n option tcp-check\n tcp-check connect\n \
             tcp-check send PING\\r\\n\n tcp-check expect string +PONG\n \
             tcp-check send info\\ replication\\r\\n\n tcp-check expect string role:master\n \
             tcp-check send QUIT\\r\\n\n tcp-check expect string +OK\n"
        );
        for (number, server) in servers.iter().enumerate() {
            config += &format!(
                " server s{number} {} check inter 200ms fall 1 rise 1 on-marked-down shutdown-sessions\n",
                server.address()
            );
        }
        let file = folder.join("haproxy.cfg");
        fs::write(&file, config).expect("it is written");
        let child = program
            .command()
            .args(["-db", "-f"])
            .arg(program.inside(&file))
            .spawn()
            .expect("it starts");
        Proxy { child, port, folder }
    }

    /// The port of the server that a new client gets to; `None` if there is none at present.
    fn leads_to(&self) -> Option<u64> {
        let address = (Ipv4Addr::LOCALHOST, self.port).into();
        let mut client = Client::connect(address).ok()?;
        let reply = client.command(&["INFO", "server"]).ok()?;
        find(&reply, "tcp_port")?.parse().ok()
    }
}

impl Drop for Proxy {
    fn drop(&mut self) {
        // Errors mean that it has ended already.
        let _ = self.child.kill();
        let _ = self.child.wait();
        let _ = fs::remove_dir_all(&self.folder);
    }
}

#[test]
fn haproxy_follows_the_role() {
    let primary = dunlin();
    let successor = start(&Program::under_test(), Some(&primary));
    let proxy = Proxy::before(&[&primary, &successor]);
    // HAProxy takes every server for good until its first check.
    let leads_to = |server: &Server| {
        let port = Some(u64::from(server.port()));
        (0..10).all(|_| proxy.leads_to() == port)
    };
    eventually("it leads to the primary", || leads_to(&primary));
    ok(&mut primary.client(), &["FAILOVER", "TIMEOUT", "30000"]);
    eventually("it leads to the successor", || leads_to(&successor));
    ok(&mut successor.client(), &["FAILOVER", "TIMEOUT", "30000"]);
    eventually("it leads back", || leads_to(&primary));
}

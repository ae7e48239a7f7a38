//! Snapshots over a connection of their own, with the stream beside it: Dunlin with itself, with
//! Valkey and with Redis 8, on either side.

use harness::client::{Client, ask, ok};
use harness::info::{field, number};
use harness::replicas::{Link, compare, fill, is_linked, start, until_linked, while_writing};
use harness::server::{Program, Server};
use harness::wait::eventually;

const VALKEY: &str = "--dual-channel-replication-enabled";
const REDIS: &str = "--repl-rdb-channel";
/// Bytes of a snapshot after which a test holds it back; less than what sockets hold.
const BEGUN: u64 = 1 << 20;

/// Two programs, and what has them use two channels.
struct Pair {
    primary: Program,
    replica: Program,
    option: &'static str,
}

fn pairs() -> Vec<Pair> {
    let dunlin = Program::under_test;
    let valkey = || Program::reference().expect("there is a reference");
    let redis = || Program::redis_8().expect("it is installed with the reference");
    let pair = |primary, replica, option| Pair { primary, replica, option };
    vec![
        pair(dunlin(), dunlin(), VALKEY),
        pair(dunlin(), dunlin(), REDIS),
        pair(dunlin(), valkey(), VALKEY),
        pair(valkey(), dunlin(), VALKEY),
        pair(dunlin(), redis(), REDIS),
        pair(redis(), dunlin(), REDIS),
    ]
}

impl Pair {
    fn name(&self) -> String {
        format!("{} of {} with {}", self.replica.name(), self.primary.name(), self.option)
    }

    /// Both, and the link between them. The replica does not follow yet.
    fn start(&self, load: &str) -> (Server, Server, Link) {
        println!("{}, {load}", self.name());
        let primary = start(&self.primary, &[self.option, "yes", "--rdbcompression", "no"]);
        // What the file-less way is called differs.
        let load = if self.replica.is_dunlin() { load } else { "disabled" };
        let replica = start(&self.replica, &[self.option, "yes", "--repl-diskless-load", load]);
        let link = Link::to(primary.address()).expect("a port");
        (primary, replica, link)
    }
}

fn follow(replica: &Server, port: u16) {
    ok(&mut replica.client(), &["REPLICAOF", "127.0.0.1", &port.to_string()]);
}

/// More than sockets hold.
fn fill_with_much(server: &Server) {
    let (mut client, value) = (server.client(), "x".repeat(20_000));
    for number in 0..1500 {
        ok(&mut client, &["SET", &format!("large:{number}"), &value]);
    }
}

/// The connections of replicas at a primary, the first one first.
fn replica_clients(primary: &mut Client) -> Vec<u64> {
    let list = ask(primary, &["CLIENT", "LIST", "TYPE", "replica"]);
    let text = String::from_utf8_lossy(list.text().expect("a list")).into_owned();
    let id = |line: &str| line.strip_prefix("id=")?.split(' ').next()?.parse().ok();
    let mut ids: Vec<u64> = text.lines().filter_map(id).collect();
    ids.sort_unstable();
    ids
}

#[test]
fn data_come_over_two_channels_under_writes() {
    let loads = ["disabled", "flush-before-load", "swapdb"];
    for (round, pair) in pairs().iter().enumerate() {
        // Dunlins load in every way.
        for load in if round < 2 { &loads[..] } else { &loads[round % 3..][..1] } {
            let (primary, replica, link) = pair.start(load);
            fill(&primary, round as u64, 500);
            while_writing(&primary, 10 + round as u64, || {
                follow(&replica, link.port());
                until_linked(&replica);
            });
            compare(&primary, &replica);
            assert_eq!(link.connections(), 2, "{}", pair.name());
            assert_eq!(number(&mut primary.client(), "sync_full"), 1, "{}", pair.name());
            // The second connection is gone, and the first goes on.
            let mut ours = primary.client();
            eventually("one connection", || number(&mut ours, "connected_slaves") == 1);
            fill(&primary, 20 + round as u64, 200);
            compare(&primary, &replica);
            assert_eq!(number(&mut replica.client(), "unexpected_error_replies"), 0);
        }
    }
}

#[test]
fn a_connection_that_is_killed_ends_the_attempt_and_no_more() {
    let loads = ["swapdb", "flush-before-load", "disabled"];
    for (round, pair) in pairs().iter().enumerate() {
        for which in 0..2 {
            let (primary, replica, link) = pair.start(loads[round % 3]);
            let mut ours = primary.client();
            fill_with_much(&primary);
            link.hold_after(BEGUN);
            follow(&replica, link.port());
            eventually("both connections", || replica_clients(&mut ours).len() == 2);
            fill(&primary, 1, 100);
            let victim = replica_clients(&mut ours)[which];
            ask(&mut ours, &["CLIENT", "KILL", "ID", &victim.to_string()]);
            link.release();
            until_linked(&replica);
            compare(&primary, &replica);
            // A child of the other servers may send the rest before the replica knows of the loss:
            // then the stream goes on where the snapshot ends.
            let whole = number(&mut ours, "sync_full");
            let is_resumed = !pair.primary.is_dunlin() && whole == 1;
            let expected = if is_resumed { (1, 3) } else { (2, 4) };
            assert_eq!((whole, link.connections()), expected, "{}", pair.name());
        }
    }
}

#[test]
fn what_is_shown_meanwhile() {
    let shown = |option: &'static str, is_as_expected: fn(&str) -> bool| {
        let (primary, replica) = (Program::under_test(), Program::under_test());
        let (primary, replica, link) = Pair { primary, replica, option }.start("flush-before-load");
        let mut ours = primary.client();
        fill_with_much(&primary);
        link.hold_after(BEGUN);
        follow(&replica, link.port());
        eventually("both connections", || replica_clients(&mut ours).len() == 2);
        eventually("what is expected", || {
            let info = ask(&mut ours, &["INFO", "replication"]);
            is_as_expected(&String::from_utf8_lossy(info.text().expect("a text")))
        });
        // It does not count before it has the snapshot.
        assert_eq!(ask(&mut ours, &["WAIT", "1", "1"]).integer(), Some(0));
        link.release();
        until_linked(&replica);
        assert_eq!(ask(&mut ours, &["WAIT", "1", "0"]).integer(), Some(1));
        let state = field(&mut ours, "slave0");
        assert!(state.contains("state=online") && state.contains("type=replica"), "{state}");
    };
    shown(REDIS, |info| {
        info.contains("connected_slaves:1\r\n") && info.contains("state=send_bulk_and_stream")
    });
    shown(VALKEY, |info| {
        let is_any = |wanted: &str| info.lines().any(|line| line.ends_with(wanted));
        info.contains("connected_slaves:2\r\n")
            && info.contains("replicas_waiting_psync:0\r\n")
            && is_any("state=bg_transfer,offset=0,lag=0,type=main-channel")
            && is_any("type=rdb-channel")
            && info.contains("state=wait_bgsave")
    });
}

#[test]
fn a_replica_keeps_no_more_of_the_stream_than_it_may() {
    const LIMIT: u64 = 1 << 20;
    for option in [REDIS, VALKEY] {
        let (primary, replica) = (Program::under_test(), Program::under_test());
        let (primary, replica, link) = Pair { primary, replica, option }.start("flush-before-load");
        let (mut ours, mut theirs) = (primary.client(), replica.client());
        ok(&mut theirs, &["CONFIG", "SET", "replica-full-sync-buffer-limit", &LIMIT.to_string()]);
        fill_with_much(&primary);
        link.hold_after(10 * BEGUN);
        follow(&replica, link.port());
        eventually("both connections", || replica_clients(&mut ours).len() == 2);
        eventually("it loads", || number(&mut theirs, "loading") == 1);
        let value = "y".repeat(20_000);
        for number in 0..200 {
            ok(&mut ours, &["SET", &format!("late:{number}"), &value]);
        }
        eventually("it is full", || number(&mut theirs, "replicas_repl_buffer_size") == LIMIT);
        assert_eq!(number(&mut theirs, "mem_replicas_repl_buffer"), LIMIT);
        assert!(number(&mut theirs, "used_memory_overhead") > LIMIT);
        eventually("the log says so", || {
            replica.log().contains("Replication buffer limit reached (1048576 bytes)")
        });
        // The primary keeps what the replica has left unread.
        for number in 200..400 {
            ok(&mut ours, &["SET", &format!("late:{number}"), &value]);
        }
        link.release();
        until_linked(&replica);
        compare(&primary, &replica);
        assert_eq!(number(&mut theirs, "replicas_repl_buffer_peak"), LIMIT);
        assert_eq!(number(&mut theirs, "replicas_repl_buffer_size"), 0);
        assert_eq!(number(&mut ours, "sync_full"), 1);
    }
}

#[test]
fn it_is_switched_on_and_off_while_servers_run() {
    let (primary, replica) = (Program::under_test(), Program::under_test());
    let (primary, replica) = (start(&primary, &[]), start(&replica, &[]));
    let (mut ours, mut theirs) = (primary.client(), replica.client());
    fill(&primary, 1, 300);
    let mut synchronise = |on_primary: &[&str], on_replica: &[&str]| {
        for (client, on) in [(&mut ours, on_primary), (&mut theirs, on_replica)] {
            for option in [REDIS, VALKEY] {
                let value = if on.contains(&option) { "yes" } else { "no" };
                ok(client, &["CONFIG", "SET", option.trim_start_matches('-'), value]);
            }
        }
        // As a primary it goes another way, so the old history is of no use.
        ok(&mut theirs, &["REPLICAOF", "NO", "ONE"]);
        fill(&replica, 2, 20);
        let link = Link::to(primary.address()).expect("a port");
        follow(&replica, link.port());
        eventually("the link is up", || is_linked(&mut theirs));
        compare(&primary, &replica);
        link.connections()
    };
    assert_eq!(synchronise(&[], &[]), 1);
    assert_eq!(synchronise(&[VALKEY], &[VALKEY]), 2);
    assert_eq!(synchronise(&[VALKEY], &[]), 1);
    assert_eq!(synchronise(&[], &[VALKEY, REDIS]), 1);
    assert_eq!(synchronise(&[VALKEY], &[REDIS]), 1);
    assert_eq!(synchronise(&[REDIS, VALKEY], &[REDIS]), 2);
    assert_eq!(synchronise(&[REDIS], &[REDIS, VALKEY]), 2);
    ok(&mut primary.client(), &["CONFIG", "SET", "repl-diskless-sync", "no"]);
    assert_eq!(synchronise(&[REDIS, VALKEY], &[REDIS, VALKEY]), 1);
    replica.logs("The master takes no second connection for the snapshot");
}

#[test]
fn with_the_protocol_of_the_other_kind_one_channel_is_used() {
    let valkey = Program::reference().expect("there is a reference");
    let redis = Program::redis_8().expect("it is installed with the reference");
    for (other, its, ours) in [(valkey, VALKEY, REDIS), (redis, REDIS, VALKEY)] {
        let dunlin = Program::under_test();
        for (primary, at_primary, replica, at_replica) in
            [(&other, its, &dunlin, ours), (&dunlin, ours, &other, its)]
        {
            let primary = start(primary, &[at_primary, "yes"]);
            let replica = start(replica, &[at_replica, "yes"]);
            fill(&primary, 1, 300);
            let link = Link::to(primary.address()).expect("a port");
            follow(&replica, link.port());
            until_linked(&replica);
            compare(&primary, &replica);
            assert_eq!(link.connections(), 1);
        }
    }
}

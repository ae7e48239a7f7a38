//! The replica class of `client-output-buffer-limit`: a replica that takes nothing is cut off by
//! the soft limit when its time is over, but not while the backlog has what it lacks.

use harness::client::{Client, ask, ok};
use harness::info::number;
use harness::replicas::{compare, dunlin, until_linked};
use harness::sentinel::hang;
use harness::server::Server;
use harness::wait::eventually;

const MIB: u64 = 1 << 20;

/// A primary, a client of it and a replica that takes nothing any more.
fn with_hanging_replica(limit: &str, backlog: u64) -> (Server, Client, Server) {
    let limits =
        ["--repl-backlog-size", &backlog.to_string(), "--client-output-buffer-limit", limit];
    // However long the test takes: only the limit cuts it off.
    let primary = dunlin(&[&limits[..], &["--repl-timeout", "3600"]].concat());
    let port = primary.port().to_string();
    let replica = dunlin(&["--replicaof", "127.0.0.1", &port]);
    let mut client = primary.client();
    // Until it has said that it has loaded its snapshot the soft limit does not apply.
    eventually("it is online", || {
        ask(&mut client, &["INFO", "replication"]).shown().contains("state=online")
    });
    hang(&replica, true).expect("it hangs");
    (primary, client, replica)
}

/// What the sockets of a connection hold at most: see tcp(7).
fn most_in_sockets() -> u64 {
    let most = |name: &str| -> u64 {
        let sizes = std::fs::read_to_string(format!("/proc/sys/net/ipv4/{name}"));
        let sizes = sizes.expect("the kernel says it");
        sizes.split_whitespace().last().and_then(|most| most.parse().ok()).expect("three numbers")
    };
    most("tcp_rmem") + most("tcp_wmem")
}

/// More than sockets hold and the soft limit.
fn much() -> u64 {
    most_in_sockets() + 16 * MIB
}

fn write_much(client: &mut Client) {
    let value = "x".repeat(MIB as usize);
    (0..much() / MIB).for_each(|_| drop(ok(client, &["SET", "large", &value])));
}

fn replicas(client: &mut Client) -> u64 {
    // So that there is something to send.
    ask(client, &["INCR", "counter"]);
    number(client, "connected_slaves")
}

#[test]
fn the_soft_limit_cuts_off_after_its_time_and_only_behind_the_backlog() {
    // The time of the one that is to be cut off begins last.
    let (kept, mut of_kept, _hangs) = with_hanging_replica("replica 0 4mb 1", 2 * much());
    write_much(&mut of_kept);
    let (long, mut of_long, _hangs_too) = with_hanging_replica("replica 0 4mb 3600", MIB);
    write_much(&mut of_long);
    let (primary, mut client, replica) = with_hanging_replica("replica 0 4mb 1", MIB);
    write_much(&mut client);
    eventually("it is cut off", || replicas(&mut client) == 0);
    assert_eq!(replicas(&mut of_kept), 1, "the backlog has what it lacks");
    assert_eq!(replicas(&mut of_long), 1, "its time is not over");
    assert_eq!(number(&mut client, "client_output_buffer_limit_disconnections"), 1);
    primary.logs("is too far behind");
    drop((kept, long));
    // It comes back, by a snapshot, and stays.
    hang(&replica, false).expect("it goes on");
    eventually("it is back", || number(&mut client, "sync_full") == 2);
    until_linked(&replica);
    compare(&primary, &replica);
}

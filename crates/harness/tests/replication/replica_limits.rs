//! The replica class of `client-output-buffer-limit`: a replica that takes nothing is cut off by
//! the soft limit when its time is over, but not while the backlog has what it lacks.

use harness::client::{Client, ask, ok};
use harness::info::{field, number};
use harness::replicas::{compare, dunlin, until_linked};
use harness::sentinel::hang;
use harness::server::Server;
use harness::wait::eventually;

/// A primary, a client of it and a replica that takes nothing any more.
fn with_hanging_replica(limit: &str, backlog: &str) -> (Server, Client, Server) {
    let primary = dunlin(&["--repl-backlog-size", backlog, "--client-output-buffer-limit", limit]);
    let port = primary.port().to_string();
    let replica = dunlin(&["--replicaof", "127.0.0.1", &port]);
    let mut client = primary.client();
    // Until it has said that it has loaded its snapshot the soft limit does not apply.
    eventually("it is online", || field(&mut client, "slave0").contains("state=online"));
    hang(&replica, true).expect("it hangs");
    (primary, client, replica)
}

/// More than sockets hold and the soft limit.
fn write_much(client: &mut Client) {
    let value = "x".repeat(1 << 20);
    (0..40).for_each(|_| drop(ok(client, &["SET", "large", &value])));
}

fn replicas(client: &mut Client) -> u64 {
    // So that there is something to send.
    ask(client, &["INCR", "counter"]);
    number(client, "connected_slaves")
}

#[test]
fn the_soft_limit_cuts_off_after_its_time_and_only_behind_the_backlog() {
    // The time of the one that is to be cut off begins last.
    let (kept, mut of_kept, _hangs) = with_hanging_replica("replica 0 4mb 1", "100mb");
    write_much(&mut of_kept);
    let (long, mut of_long, _hangs_too) = with_hanging_replica("replica 0 4mb 3600", "1mb");
    write_much(&mut of_long);
    let (primary, mut client, replica) = with_hanging_replica("replica 0 4mb 1", "1mb");
    write_much(&mut client);
    eventually("it is cut off", || replicas(&mut client) == 0);
    assert_eq!(replicas(&mut of_kept), 1, "the backlog has what it lacks");
    assert_eq!(replicas(&mut of_long), 1, "its time is not over");
    assert_eq!(number(&mut client, "client_output_buffer_limit_disconnections"), 1);
    assert!(primary.log().contains("is too far behind"));
    drop((kept, long));
    // It comes back, by a snapshot, and stays.
    hang(&replica, false).expect("it goes on");
    eventually("it is back", || number(&mut client, "sync_full") == 2);
    until_linked(&replica);
    compare(&primary, &replica);
}

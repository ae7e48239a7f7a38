//! A primary that shuts down waits for its replicas.

use harness::client::{Client, ask, encode, ok};
use harness::info::{field, fields, find, number};
use harness::replicas::{dunlin, is_linked};
use harness::sentinel::hang;
use harness::server::{Server, signal};
use harness::wait::eventually;
use std::fs;

const FAILED: &[u8] = b"ERR Errors trying to SHUTDOWN. Check logs.";

/// Whether each thread of a process has obeyed SIGSTOP.
fn stands_still(process_id: u32) -> bool {
    let threads = fs::read_dir(format!("/proc/{process_id}/task")).expect("Linux has it");
    threads.flatten().all(|thread| {
        let stat = fs::read_to_string(thread.path().join("stat")).expect("it is there");
        stat.rsplit(')').next().is_some_and(|rest| rest.starts_with(" T"))
    })
}

/// A primary, and a replica that hangs and lacks a write.
fn lagging() -> (Server, Server, Client) {
    let (primary, replica) = (dunlin(&["--shutdown-timeout", "600"]), dunlin(&[]));
    let mut theirs = replica.client();
    ok(&mut theirs, &["REPLICAOF", "127.0.0.1", &primary.port().to_string()]);
    eventually("the link is up", || is_linked(&mut theirs));
    let mut client = primary.client();
    ok(&mut client, &["SET", "k", "1"]);
    assert_eq!(ask(&mut client, &["WAIT", "1", "0"]).integer(), Some(1));
    hang(&replica, true).expect("it hangs");
    eventually("all its threads stand still", || stands_still(replica.process_id()));
    ok(&mut client, &["SET", "k", "2"]);
    (primary, replica, client)
}

fn waits(client: &mut Client) -> bool {
    find(&ask(client, &["INFO", "server"]), "shutdown_in_milliseconds").is_some()
}

fn until_it_waits(client: &mut Client) {
    eventually("it waits for the replica", || waits(client));
    let left = number(client, "shutdown_in_milliseconds");
    assert!((1..=600_000).contains(&left), "{left}");
    assert_eq!(
        fields(client, ["paused_reason", "paused_actions"]),
        ["shutdown_in_progress", "write"]
    );
}

fn until_gone(mut server: Server) -> String {
    until_ended(&mut server)
}

fn until_ended(server: &mut Server) -> String {
    let mut log = String::new();
    eventually("it is gone", || {
        log = server.log();
        log.contains("ready to exit, bye bye")
    });
    assert!(server.terminate().expect("it has ended").success());
    log
}

#[test]
fn it_goes_down_once_the_replica_has_everything() {
    for by_signal in [false, true] {
        let (primary, replica, mut client) = lagging();
        let mut going = primary.client();
        if by_signal {
            signal(primary.process_id(), "TERM").expect("it is sent");
        } else {
            going.send(&["SHUTDOWN"]).expect("it is sent");
        }
        until_it_waits(&mut client);
        client.send(&["SET", "k", "3"]).expect("it is sent");
        hang(&replica, false).expect("it goes on");
        let log = until_gone(primary);
        assert!(log.contains("1 of 1 replicas are in sync when shutting down."), "{log}");
        assert!(!log.contains("Lagging replica"), "{log}");
        // The write that waited was neither answered nor done.
        assert!(client.reply().is_err());
        assert_eq!(ask(&mut replica.client(), &["GET", "k"]).shown(), "2");
    }
}

#[test]
fn it_goes_down_without_the_replica_in_the_end() {
    for is_urgent in [false, true] {
        let (primary, replica, mut client) = lagging();
        if is_urgent {
            // It need not wait any longer.
            let mut going = primary.client();
            going.send(&["SHUTDOWN"]).expect("it is sent");
            until_it_waits(&mut client);
            client.send(&["SHUTDOWN", "NOW"]).expect("it is sent");
        } else {
            ok(&mut client, &["CONFIG", "SET", "shutdown-timeout", "1"]);
            signal(primary.process_id(), "TERM").expect("it is sent");
        }
        let log = until_gone(primary);
        assert!(log.contains("behind master, lag="), "{log}");
        assert!(log.contains("0 of 1 replicas are in sync when shutting down."), "{log}");
        hang(&replica, false).expect("it goes on");
    }
}

#[test]
fn it_goes_on_when_the_shutdown_is_taken_back() {
    let (primary, replica, mut client) = lagging();
    let mut going = [(); 2].map(|()| primary.client());
    for client in &mut going {
        client.send(&["SHUTDOWN"]).expect("it is sent");
    }
    until_it_waits(&mut client);
    eventually("both wait", || number(&mut client, "blocked_clients") == 2);
    let mut writer = primary.client();
    writer.send(&["SET", "k", "3"]).expect("it is sent");
    eventually("the write waits", || number(&mut client, "blocked_clients") == 3);
    ok(&mut client, &["SHUTDOWN", "ABORT"]);
    for client in &mut going {
        assert_eq!(client.reply().expect("it goes on").text(), Some(FAILED));
    }
    assert!(!writer.reply().expect("it goes on").is_error());
    assert!(!waits(&mut client));
    assert_eq!(field(&mut client, "paused_reason"), "none");
    primary.logs("Shutdown manually aborted.");
    assert!(ask(&mut client, &["SHUTDOWN", "ABORT"]).is_error(), "it is over");
    hang(&replica, false).expect("it goes on");
}

#[test]
fn a_first_log_that_is_not_complete_keeps_it_from_going() {
    let (primary, replica, mut client) = lagging();
    let mut going = primary.client();
    going.send(&["SHUTDOWN"]).expect("it is sent");
    until_it_waits(&mut client);
    ok(&mut client, &["CONFIG", "SET", "rdb-key-save-delay", "30000000"]);
    ok(&mut client, &["CONFIG", "SET", "appendonly", "yes"]);
    hang(&replica, false).expect("it goes on");
    assert_eq!(going.reply().expect("it goes on").text(), Some(FAILED));
    primary.logs("1 of 1 replicas are in sync when shutting down.");
    primary.logs("Writing initial AOF, can't exit.");
    client.send(&["SHUTDOWN", "NOSAVE", "FORCE"]).expect("it is sent");
    assert!(until_gone(primary).contains("Writing initial AOF. Exit anyway."));
}

/// Sends that request together with a script that writes and has no end, and ends the server
/// meanwhile.
fn end_with_script_beside(server: &Server, client: &mut Client, request: &[&str]) {
    let script = "redis.call('set', KEYS[1], 'y') while true do end";
    let both = [encode(request), encode(&["EVAL", script, "1", "x"])];
    client.send_raw(&both.concat()).expect("it is sent");
    let mut other = server.client();
    eventually("the script takes long", || {
        ask(&mut other, &["PING"]).text().is_some_and(|text| text.starts_with(b"BUSY"))
    });
    other.send(&["SHUTDOWN", "NOSAVE"]).expect("it is sent");
}

/// The first log waits for the script, whose keys are locked.
#[test]
fn without_a_save_it_goes_from_a_script_that_keeps_the_first_log_waiting() {
    let server = dunlin(&["--lua-time-limit", "10"]);
    let mut client = server.client();
    ok(&mut client, &["SET", "x", "1"]);
    end_with_script_beside(&server, &mut client, &["CONFIG", "SET", "appendonly", "yes"]);
    until_gone(server);
}

/// The log has everything from before the script, which is not over and so is not in it.
#[test]
fn without_a_save_it_goes_from_a_script_that_keeps_a_rewrite_waiting() {
    let options = ["--lua-time-limit", "10", "--appendonly", "yes", "--appendfsync", "no"];
    let mut server = dunlin(&options);
    let mut client = server.client();
    ok(&mut client, &["SET", "x", "1"]);
    end_with_script_beside(&server, &mut client, &["BGREWRITEAOF"]);
    let log = until_ended(&mut server);
    assert!(log.contains("Calling fsync() on the AOF file."), "{log}");
    server.start_again().expect("it starts");
    assert_eq!(ask(&mut server.client(), &["GET", "x"]).text(), Some(&b"1"[..]));
}

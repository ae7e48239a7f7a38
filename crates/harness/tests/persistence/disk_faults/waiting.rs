//! With `always`: which clients wait for a stuck disk, which do not, and which are told nothing
//! meanwhile.

use crate::disk_faults::faults::Faults;
use crate::disk_faults::{crash, hear_nothing, written};
use harness::client::{Client, Request, ask, ok};
use harness::info::field;
use harness::reply::{Protocol, Reply};
use harness::server::{Backend, Program, free_port};
use harness::tls::Authority;
use harness::wait::eventually;
use std::time::Duration;

#[test]
fn with_always_only_what_is_not_on_the_disk_waits_for_a_stuck_disk() {
    let faults = Faults::new("stuck-always");
    let mut server = faults.start(&["--appendfsync", "always", "--io-threads", "2"]);
    let mut writers: Vec<Client> = (0..6).map(|_| server.client()).collect();
    let mut readers: Vec<Client> = (0..5).map(|_| server.client()).collect();
    let mut reader = server.client();
    for number in 0..readers.len() {
        ok(&mut reader, &format!("SET before:{number} 1"));
    }
    faults.set(&[("stuck-fsync", 0, ".incr.aof")]);
    for (number, writer) in writers.iter_mut().enumerate() {
        writer.send(&["SET", &format!("key:{number}"), "1"]).unwrap();
    }
    eventually("all writes done", || field(&mut reader, "db0").starts_with("keys=11,"));
    // A reader of unconfirmed writes waits as their writers do.
    reader.send(&["GET", "key:0"]).unwrap();
    for (number, reader) in readers.iter_mut().enumerate() {
        reader.send(&["GET", &format!("before:{number}")]).unwrap();
    }
    // Of a thousand stripes it is hardly those of three of them that wait.
    eventually("the others are told", || {
        readers.iter_mut().map(|reader| u32::from(reader.has_data().unwrap())).sum::<u32>() > 2
    });
    hear_nothing(&server, &mut writers, "told too early");
    hear_nothing(&server, std::slice::from_mut(&mut reader), "seen too early");
    // The disk comes back: now they are told, and what they were told lasts.
    faults.set(&[]);
    writers.iter_mut().for_each(|writer| assert_eq!(writer.reply().unwrap().shown(), "OK"));
    readers.iter_mut().for_each(|reader| assert_eq!(reader.reply().unwrap().shown(), "1"));
    assert_eq!(reader.reply().unwrap().shown(), "1");
    crash(&mut server);
    assert_eq!(ask(&mut server.client(), "DBSIZE").shown(), "11");
}

#[test]
fn with_always_who_waits_for_a_stuck_disk_is_not_idle() {
    let faults = Faults::new("stuck-idle");
    // One thread looks at both clients in the same round.
    let server = faults.start(&["--appendfsync", "always", "--io-threads", "1"]);
    let (mut writer, mut idle) = (server.client(), server.client());
    ok(&mut idle, "CONFIG SET timeout 1");
    faults.set(&[("stuck-fsync", 0, ".incr.aof")]);
    writer.send(&["SET", "k", "v"]).unwrap();
    eventually("done", || field(&mut idle, "rdb_changes_since_last_save") == "1");
    assert!(idle.reply().is_err(), "who waits for nothing and has been here for less long is idle");
    faults.set(&[]);
    assert_eq!(writer.reply().unwrap().shown(), "OK");
}

#[test]
fn with_always_nobody_waits_for_a_log_that_was_switched_off_before() {
    let faults = Faults::new("stuck-off");
    let server = faults.start(&["--appendfsync", "always", "--io-threads", "2"]);
    let (mut writer, mut client, mut other) = (server.client(), server.client(), server.client());
    faults.set(&[("stuck-fsync", 0, ".incr.aof")]);
    writer.send(&["SET", "before", "1"]).unwrap();
    eventually("done", || field(&mut other, "rdb_changes_since_last_save") == "1");
    client.send(&["CONFIG", "SET", "appendonly", "no"]).unwrap();
    eventually("switched off", || field(&mut other, "aof_enabled") == "0");
    ok(&mut other, "SET after 1");
    assert!(!writer.has_data().unwrap() && !client.has_data().unwrap(), "these are in the log");
    faults.set(&[]);
    assert_eq!(writer.reply().unwrap().shown(), "OK");
    assert_eq!(client.reply().unwrap().shown(), "OK");
}

#[test]
fn what_was_written_before_always_is_not_seen_before_it_is_on_the_disk() {
    let faults = Faults::new("before-always");
    let server = faults.start(&["--appendfsync", "no", "--io-threads", "2"]);
    let mut client = server.client();
    ok(&mut client, "SET k w");
    written(server.directory(), &mut client);
    faults.set(&[("stuck-fsync", 0, ".incr.aof")]);
    ok(&mut client, "CONFIG SET appendfsync always");
    let mut readers: Vec<Client> = (0..6).map(|_| server.client()).collect();
    readers.iter_mut().for_each(|reader| reader.send(&["GET", "k"]).unwrap());
    hear_nothing(&server, &mut readers, "seen too early");
    faults.set(&[]);
    readers.iter_mut().for_each(|reader| assert_eq!(reader.reply().unwrap().shown(), "w"));
}

#[test]
fn with_always_nobody_is_told_of_what_is_not_on_the_disk() {
    let faults = Faults::new("stuck-messages");
    let always = ["--appendfsync", "always", "--io-threads", "2"];
    let server = faults.start(&[&always[..], &["--notify-keyspace-events", "KEA"]].concat());
    let (mut writer, mut observer) = (server.client(), server.client());
    ok(&mut writer, "SET key 1");
    // On both threads: clients that hear of events, have read the key, or are told of every key.
    let mut told: Vec<Client> = (0..6).map(|_| server.connect(Protocol::Resp3).unwrap()).collect();
    for (number, client) in told.iter_mut().enumerate() {
        match number % 3 {
            0 => {
                client.send(&["PSUBSCRIBE", "__keyevent*"]).unwrap();
                client.message().unwrap();
            }
            1 => {
                ok(client, "CLIENT TRACKING ON");
                ask(client, "GET key");
            }
            _ => drop(ok(client, "CLIENT TRACKING ON BCAST")),
        }
    }
    let mut monitor = server.client();
    ok(&mut monitor, "MONITOR");
    // Changes, and how many messages each kind of listener gets.
    let rounds: [(&[&str], u32, [usize; 3]); 3] = [
        (&["SET key 2"], 1, [1, 1, 1]),
        (&["MULTI", "SET key 3", "DEBUG SLEEP 0.1", "SET key 4", "EXEC"], 2, [2, 1, 1]),
        (&["FLUSHALL"], 1, [0, 1, 1]),
    ];
    for (requests, changes, messages) in rounds {
        let reads = |client: &mut Client| assert!(!ask(client, "GET key").is_error());
        told.iter_mut().skip(1).step_by(3).for_each(reads);
        let writes = |client: &mut Client| {
            field(client, "rdb_changes_since_last_save").parse::<u32>().unwrap()
        };
        let before = writes(&mut observer);
        faults.set(&[("stuck-fsync", 0, ".incr.aof")]);
        for request in requests {
            writer.send(&request.words()).unwrap();
        }
        eventually("done", || writes(&mut observer) == before + changes);
        hear_nothing(&server, &mut told, &format!("told too early of {requests:?}"));
        assert!(monitor.has_data().unwrap(), "MONITOR waits for nothing");
        faults.set(&[]);
        for (number, client) in told.iter_mut().enumerate() {
            for _ in 0..messages[number % 3] {
                let message = client.message().unwrap();
                assert!(matches!(message, Reply::Push(_)), "{number} heard {message:?}");
            }
        }
        requests.iter().for_each(|_| drop(writer.reply().unwrap()));
    }
}

#[test]
fn with_always_nobody_sees_an_eviction_that_is_not_on_the_disk() {
    let faults = Faults::new("stuck-eviction");
    let arguments = ["--appendfsync", "always", "--maxmemory-policy", "allkeys-random"];
    let server = faults.start(&arguments);
    let (mut client, mut reader) = (server.client(), server.client());
    ok(&mut client, "SET key value");
    faults.set(&[("stuck-fsync", 0, ".incr.aof")]);
    ok(&mut client, "CONFIG SET maxmemory 1");
    eventually("evicted", || field(&mut client, "evicted_keys") == "1");
    reader.send(&["GET", "key"]).unwrap();
    hear_nothing(&server, std::slice::from_mut(&mut reader), "seen too early");
    faults.set(&[]);
    assert_eq!(reader.reply().unwrap(), Reply::Nil);
}

#[test]
fn with_always_who_speaks_by_tls_waits_too() {
    let faults = Faults::new("stuck-tls");
    let authority = Authority::new("stuck");
    authority.sign("server");
    for backend in Program::under_test().backends() {
        let port = free_port().unwrap();
        let mut arguments =
            vec!["--appendfsync", "always", "--io-backend", backend.map_or("auto", Backend::name)];
        let tls = authority.options(port, "server");
        arguments.extend(tls.iter().map(String::as_str));
        let mut server = faults.start(&arguments);
        let mut observer = server.client();
        let mut clients = [authority.connect(port), authority.connect(port)];
        faults.set(&[("stuck-fsync", 0, ".incr.aof")]);
        let value = "v".repeat(100_000);
        // A reply of many records is behind one that is held.
        clients[0].send(&["SET", "k", &value]);
        clients[0].send(&["GET", "k"]);
        eventually("done", || field(&mut observer, "rdb_changes_since_last_save") == "1");
        clients[1].send(&["STRLEN", "k"]);
        for client in &mut clients {
            assert!(client.is_silent(Duration::from_millis(20)), "told too early");
        }
        faults.set(&[]);
        clients[0].receives(format!("+OK\r\n$100000\r\n{value}\r\n").as_bytes());
        clients[1].receives(b":100000\r\n");
        crash(&mut server);
        assert_eq!(ask(&mut server.client(), "STRLEN k").integer(), Some(100_000));
    }
}

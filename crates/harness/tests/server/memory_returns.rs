//! Memory that the keys no longer need goes back to the system by itself or by active
//! defragmentation, and a server that may use little memory takes it in small pages.

// A failed step is a failed test, in its helpers too.
#![allow(clippy::unwrap_used)]

use harness::client::{Client, ok};
use harness::info;
use harness::rng::Rng;
use harness::server::{Options, Program, Server};
use harness::wait::eventually;

/// Bytes of values in one round.
const ROUND: usize = 30 << 20;
/// Of so many keys one stays.
const KEPT: usize = 10;
/// What may be left beside what the empty server takes.
const REST_KB: u64 = 24 << 10;

/// The resident memory in KB.
fn resident_kb(server: &Server) -> u64 {
    server.resident_bytes() >> 10
}

/// Values of 10 bytes to 100 KB, as many of 10 to 100 bytes as of 10 to 100 KB.
fn fill(client: &mut Client, rng: &mut Rng, round: usize) -> Vec<String> {
    let (mut keys, mut bytes) = (Vec::new(), 0);
    while bytes < ROUND {
        let decade = 10_usize.pow(1 + rng.below(4) as u32);
        let len = decade + rng.below(9 * decade);
        let key = format!("{round}:{}", keys.len());
        client.command(&["SET", &key, &"x".repeat(len)]).unwrap();
        keys.push(key);
        bytes += len;
    }
    keys
}

#[test]
fn pages_that_were_emptied_go_back_to_the_system() {
    let options = Options::arguments(&["--io-threads", "2"]);
    let server = Server::start(&Program::under_test(), options).unwrap();
    let before = resident_kb(&server);
    // With one thread's clients writing and the other's deleting, and with one client alone.
    let mut clients = [server.client(), server.client(), server.client()];
    let mut rng = Rng::new(1);
    for round in 0..3 {
        let keys = fill(&mut clients[round], &mut rng, round);
        for (number, key) in keys.iter().enumerate().filter(|(number, _)| number % KEPT != 0) {
            clients[number % 2].command(&["DEL", key]).unwrap();
        }
    }
    clients[0].command(&["FLUSHALL"]).unwrap();
    eventually("the memory is back", || resident_kb(&server) < before + REST_KB);
}

/// What DEL leaves of many small values lies in pages of which each holds something; `activedefrag`
/// moves it together.
#[test]
fn entries_move_out_of_pages_that_are_nearly_empty() {
    const KEYS: usize = 100_000;
    let options = Options::arguments(&["--enable-debug-command", "yes"]);
    let server = Server::start(&Program::under_test(), options).unwrap();
    let mut client = server.client();
    let mut rng = Rng::new(1);
    for first in (0..KEYS).step_by(100) {
        for key in first..first + 100 {
            let (name, value) = (format!("key:{key}"), "x".repeat(450 + key % 10));
            match key % 4 {
                0 => client.send(&["SET", &name, &value]),
                1 => client.send(&["RPUSH", &name, &value, "b", "c"]),
                2 => client.send(&["HSET", &name, "field", &value]),
                _ => client.send(&["ZADD", &name, "1.5", &value]),
            }
            .unwrap();
        }
        (0..100).for_each(|_| drop(client.reply().unwrap()));
    }
    let mut gone: Vec<String> = Vec::new();
    for key in (0..KEYS).filter(|_| rng.below(5) > 0) {
        gone.push(format!("key:{key}"));
        if gone.len() == 1000 {
            client.command(&[&["DEL".to_owned()], &gone[..]].concat()).unwrap();
            gone.clear();
        }
    }
    let digest = client.command(&["DEBUG", "DIGEST"]).unwrap();
    let before = resident_kb(&server);
    ok(&mut client, "CONFIG SET active-defrag-ignore-bytes 1mb");
    ok(&mut client, "CONFIG SET activedefrag yes");
    eventually("a third is back", || resident_kb(&server) < before / 3 * 2 + (8 << 10));
    assert!(info::number(&mut client, "active_defrag_hits") > 0);
    assert_eq!(client.command(&["DEBUG", "DIGEST"]).unwrap(), digest);
}

#[test]
fn a_small_server_takes_small_pages() {
    let small = Options::arguments(&["--maxmemory", "60mb"]);
    let server = Server::start(&Program::under_test(), small).unwrap();
    assert_eq!(server.status("THP_enabled").as_deref(), Some("0"));
    let mut client = server.client();
    client.command(&["CONFIG", "SET", "maxmemory", "0"]).unwrap();
    assert_eq!(server.status("THP_enabled").as_deref(), Some("1"));
    client.command(&["CONFIG", "SET", "maxmemory", "60mb"]).unwrap();
    assert_eq!(server.status("THP_enabled").as_deref(), Some("0"));
}

//! Memory that the keys no longer need goes back to the system by itself, and a server that may use
//! little memory takes it in small pages.

// A failed step is a failed test, in its helpers too.
#![allow(clippy::unwrap_used)]

use harness::client::Client;
use harness::rng::Rng;
use harness::server::{Options, Program, Server};
use harness::wait::eventually;

/// Bytes of values in one round.
const ROUND: usize = 30 << 20;
/// Of so many keys one stays.
const KEPT: usize = 10;
/// What may be left beside what the empty server takes.
const REST_KB: u64 = 24 << 10;

/// A number of the process's status.
fn status(server: &Server, name: &str) -> u64 {
    let path = format!("/proc/{}/status", server.process_id());
    let text = std::fs::read_to_string(path).unwrap();
    let line = text.lines().find(|line| line.starts_with(name)).unwrap();
    line.split_whitespace().nth(1).unwrap().parse().unwrap()
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
    let before = status(&server, "VmRSS");
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
    eventually("the memory is back", || status(&server, "VmRSS") < before + REST_KB);
}

#[test]
fn a_small_server_takes_small_pages() {
    let small = Options::arguments(&["--maxmemory", "60mb"]);
    let server = Server::start(&Program::under_test(), small).unwrap();
    assert_eq!(status(&server, "THP_enabled"), 0);
    let mut client = server.client();
    client.command(&["CONFIG", "SET", "maxmemory", "0"]).unwrap();
    assert_eq!(status(&server, "THP_enabled"), 1);
    client.command(&["CONFIG", "SET", "maxmemory", "60mb"]).unwrap();
    assert_eq!(status(&server, "THP_enabled"), 0);
}

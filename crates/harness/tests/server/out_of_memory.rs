//! A server that gets no more memory: it ends, says why, and has what it has confirmed when it is
//! started again.

// A failed step is a failed test, in its helpers too.
#![allow(clippy::unwrap_used)]

use harness::client::ask;
use harness::memory_limit::{MemoryGroup, has_ended, in_small_pieces, limit_address_space};
use harness::reply::Reply;
use harness::server::{Options, Program, Server};
use harness::wait::eventually;
use std::os::unix::process::ExitStatusExt as _;

const VALUE_BYTES: usize = 1 << 20;
/// What a server may take beyond what it has.
const MORE: u64 = 200 << 20;

fn start(more: &[&str]) -> Server {
    let arguments = [&["--io-threads", "1", "--appendonly", "yes"][..], more].concat();
    let program = in_small_pieces(&Program::under_test());
    Server::start(&program, Options::arguments(&arguments)).unwrap()
}

/// Writes until the server has ended. Returns how many values it has confirmed.
fn write_until_the_end(server: &Server) -> u64 {
    let mut client = server.client();
    let value = "v".repeat(VALUE_BYTES);
    for number in 0.. {
        match client.command(&["SET", &format!("key:{number}"), &value]) {
            Ok(reply) => assert_eq!(reply, Reply::Simple(b"OK".to_vec())),
            Err(_) => {
                eventually("the server ends", || has_ended(server.process_id()));
                return number;
            }
        }
        assert!(number < 1000, "the limit does not hold");
    }
    unreachable!("numbers have no end")
}

/// Starts the server again, without a limit, and asserts that nothing is lacking.
fn assert_has_all(server: &mut Server, confirmed: u64) {
    server.start_again().unwrap();
    let mut client = server.client();
    eventually("it has loaded", || !ask(&mut client, "GET key:0").is_error());
    let Reply::Integer(keys) = ask(&mut client, "DBSIZE") else { panic!("no number") };
    let keys = u64::try_from(keys).unwrap();
    assert!((confirmed..=confirmed + 1).contains(&keys), "{keys} keys of {confirmed}");
}

#[test]
fn a_server_without_address_space_ends_and_says_so() {
    let mut server = start(&["--appendfsync", "always"]);
    limit_address_space(server.process_id(), MORE);
    let confirmed = write_until_the_end(&server);
    assert!(confirmed > 20, "{confirmed} values were too many");
    let status = server.terminate().unwrap();
    assert_eq!(status.signal(), Some(6), "SIGABRT: {status}");
    let log = server.log_of_ended();
    assert!(log.contains("memory allocation of "), "{log}");
    assert_has_all(&mut server, confirmed);
}

#[test]
fn a_server_in_a_full_container_is_killed() {
    let Some(group) = MemoryGroup::new("server", MORE) else { return };
    let mut server = start(&["--appendfsync", "always"]);
    group.add(server.process_id());
    let confirmed = write_until_the_end(&server);
    let status = server.terminate().unwrap();
    assert_eq!(status.signal(), Some(9), "SIGKILL: {status}");
    assert!(group.kills().is_none_or(|kills| kills == 1));
    assert_has_all(&mut server, confirmed);
}

/// The limit that keeps a server from that.
#[test]
fn a_server_with_a_limit_of_its_own_goes_on() {
    let Some(group) = MemoryGroup::new("limited", MORE) else { return };
    let server = start(&["--appendfsync", "no", "--maxmemory", "64mb"]);
    group.add(server.process_id());
    let mut client = server.client();
    let value = "v".repeat(VALUE_BYTES);
    let set = |client: &mut _, number| ask(client, &["SET", &format!("key:{number}"), &value]);
    let first_refused = (0..1000).find(|number| set(&mut client, *number).is_error());
    assert!(first_refused.is_some_and(|number| number > 20), "{first_refused:?}");
    let refused = set(&mut client, 1000);
    assert!(String::from_utf8_lossy(refused.text().unwrap()).starts_with("OOM "), "{refused:?}");
    assert!(!ask(&mut client, "GET key:0").is_error());
    ask(&mut client, "DEL key:0 key:1");
    eventually("there is room again", || !set(&mut client, 1001).is_error());
    assert!(!has_ended(server.process_id()));
}

//! A proxy that gets no more memory: it ends, clients see a closed connection, and servers go on.

use crate::support::{dunlin, server, single, until};
use harness::client::{Client, ask};
use harness::memory_limit::{has_ended, in_small_pieces, limit_address_space};
use harness::reply::{Protocol, Reply};
use std::os::unix::process::ExitStatusExt as _;

const MORE: u64 = 100 << 20;

#[test]
fn a_proxy_without_memory_ends_and_servers_go_on() {
    let Some(program) = dunlin() else { return };
    let server = server(&program, &[]);
    let mut proxy = single(&in_small_pieces(&program), &server, "", "");
    let mut client = proxy.client(Protocol::Resp2);
    let value = "v".repeat(8 << 20);
    assert_eq!(ask(&mut client, &["SET", "long", &value]), Reply::Simple(b"OK".to_vec()));
    limit_address_space(proxy.process_id(), MORE);
    // Clients that ask for much and read nothing.
    let mut greedy = Vec::new();
    until("the proxy ends", || {
        if let Ok(mut client) = Client::connect(proxy.address()) {
            (0..8).for_each(|_| drop(client.send(&["GET", "long"])));
            greedy.push(client);
        }
        has_ended(proxy.process_id())
    });
    // Standard error says why.
    assert_eq!(proxy.wait().signal(), Some(6), "SIGABRT");
    assert!(client.command(&["PING"]).is_err(), "its connection is closed");
    let mut direct = server.client();
    assert_eq!(ask(&mut direct, "STRLEN long"), Reply::Integer(8 << 20));
    // What its supervisor does.
    drop(proxy);
    let again = single(&program, &server, "", "");
    let mut client = again.client(Protocol::Resp2);
    assert_eq!(ask(&mut client, "STRLEN long"), Reply::Integer(8 << 20));
}

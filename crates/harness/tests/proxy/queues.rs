//! Servers that do not read: memory stays bounded, and clients are told.

use crate::support::{Proxy, okay, server, single, stop, until};
use harness::client::{Client, ask, encode};
use harness::http;
use harness::reply::{Protocol, Reply};
use harness::server::{Program, Server, free_port, signal};
use std::io::Write;
use std::net::TcpStream;

const LIMIT: usize = 2 << 20;

/// The longest requests that are kept whole are a little longer.
const VALUE: usize = 60_000;

fn figure(admin: u16, name: &str) -> u64 {
    let text = http::ask(admin, "GET", "/metrics", &[], "").expect("an answer").text();
    let line = text.lines().find(|line| line.starts_with(&format!("dunlin_proxy_{name}{{")));
    let figure = line.and_then(|line| line.rsplit(' ').next()).expect("a figure");
    figure.parse::<f64>().expect("a number") as u64
}

/// A server that has stopped reading, with its pool.
struct Stopped {
    server: Server,
    proxy: Proxy,
    admin: u16,
    /// A client that was answered before.
    client: Client,
}

/// A pool with this limit in front of one server, which is stopped. `None` if the tests are for
/// another server.
fn stopped(limit: &str) -> Option<Stopped> {
    let program = Program::under_test();
    if !program.is_dunlin() {
        return None;
    }
    let server = server(&program, &[]);
    let admin = free_port().expect("a port");
    let proxy = single(&program, &server, &format!("admin = \"127.0.0.1:{admin}\""), limit);
    let mut client = proxy.client(Protocol::Resp2);
    assert_eq!(ask(&mut client, &["SET", "key", "x"]), okay());
    stop(server.process_id());
    Some(Stopped { server, proxy, admin, client })
}

#[test]
fn what_waits_for_a_server_is_bounded() {
    let Some(stopped) = stopped(&format!("server_queue_bytes = {LIMIT}")) else { return };
    let Stopped { server, proxy, admin, mut client } = stopped;

    // One client alone is not read when half of the limit waits.
    let value = "v".repeat(VALUE);
    let request = encode(&["SET", "key", &value]);
    let mut flood = TcpStream::connect(proxy.address).expect("it connects");
    flood.set_nonblocking(true).expect("a socket");
    // More than the buffers of two sockets take.
    let bytes = request.repeat(1000);
    let mut written = 0;
    let write = |flood: &mut TcpStream, written: &mut usize| {
        if let Ok(len) = flood.write(&bytes[*written..]) {
            *written += len;
        }
    };
    until("the queue is half full", || {
        write(&mut flood, &mut written);
        figure(admin, "queue_bytes") > LIMIT as u64 / 2
    });
    assert_eq!(figure(admin, "refused_total"), 0);

    // Others are refused when it is full. Their number is more than the rest of the limit.
    let mut clients: Vec<_> = (0..128).map(|_| proxy.client(Protocol::Resp2)).collect();
    for client in &mut clients {
        client.send_raw(&request).expect("it is sent");
    }
    until("requests are refused", || figure(admin, "refused_total") > 0);
    let limit = (LIMIT + 2 * request.len()) as u64 * 2;
    assert!(figure(admin, "queue_bytes") < limit, "two threads have one connection each");
    assert!(written < bytes.len(), "the flood is not read");

    // All goes on, and each is answered once.
    signal(server.process_id(), "CONT").expect("it goes on");
    let mut refused = 0;
    for client in &mut clients {
        match client.reply().expect("a reply") {
            Reply::Error(why) => {
                assert!(String::from_utf8_lossy(&why).contains("server_queue_bytes"), "{why:?}");
                refused += 1;
            }
            reply => assert_eq!(reply, okay()),
        }
    }
    assert_eq!(figure(admin, "refused_total"), refused);
    until("the flood is written", || {
        write(&mut flood, &mut written);
        written == bytes.len()
    });
    until("nothing waits", || figure(admin, "queue_bytes") == 0);
    assert_eq!(ask(&mut client, &["STRLEN", "key"]), Reply::Integer(value.len() as i64));
}

#[test]
fn all_queues_together_are_bounded() {
    let Some(stopped) = stopped(&format!("queue_bytes = {}", 1 << 20)) else { return };
    let Stopped { server, proxy, admin, .. } = stopped;
    let request = encode(&["SET", "key", &"v".repeat(VALUE)]);
    let mut clients: Vec<_> = (0..64).map(|_| proxy.client(Protocol::Resp2)).collect();
    for client in &mut clients {
        client.send_raw(&request).expect("it is sent");
    }
    until("requests are refused", || figure(admin, "refused_total") > 0);
    signal(server.process_id(), "CONT").expect("it goes on");
    for client in &mut clients {
        match client.reply().expect("a reply") {
            Reply::Error(why) => {
                let why = String::from_utf8_lossy(&why).into_owned();
                assert!(why.contains("the limit is queue_bytes"), "{why}");
            }
            reply => assert_eq!(reply, okay()),
        }
    }
    until("nothing waits", || figure(admin, "queue_bytes") == 0);
}

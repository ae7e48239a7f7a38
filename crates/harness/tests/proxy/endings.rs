//! A client that closes its side gets all replies to what it sent before.

use crate::support::{Proxy, in_front_of_three, until};
use harness::client::{ask, encode, patience};
use harness::reply::{Protocol, Reply};
use std::io::{Read, Write};
use std::net::{Shutdown, TcpStream};

/// What comes back for these requests when the client closes its side behind them.
fn answers(proxy: &Proxy, requests: &[u8]) -> Vec<u8> {
    let mut stream = TcpStream::connect(proxy.address).expect("it listens");
    stream.set_read_timeout(Some(patience())).expect("a time to wait");
    stream.write_all(requests).expect("they are sent");
    stream.shutdown(Shutdown::Write).expect("it is open");
    let mut replies = Vec::new();
    stream.read_to_end(&mut replies).expect("replies, and an end");
    replies
}

#[test]
fn replies_reach_a_client_that_has_closed_its_side() {
    let Some((_servers, proxy)) = in_front_of_three("") else { return };
    for _ in 0..20 {
        assert_eq!(answers(&proxy, b"SET a 1\r\nGET a\r\n"), b"+OK\r\n$1\r\n1\r\n");
        assert_eq!(answers(&proxy, b"MGET a nothing\r\n"), b"*2\r\n$1\r\n1\r\n$-1\r\n");
    }
    // Requests that have to wait for those before them: a transaction, then a plain one.
    let requests = b"SET {t}a 1\r\nMULTI\r\nINCR {t}a\r\nEXEC\r\nSELECT 0\r\nGET {t}a\r\n";
    let replies = b"+OK\r\n+OK\r\n+QUEUED\r\n*1\r\n:2\r\n+OK\r\n$1\r\n2\r\n";
    assert_eq!(answers(&proxy, requests), replies);
    // A subscription is confirmed.
    let confirmation = b"*3\r\n$9\r\nsubscribe\r\n$4\r\nnews\r\n:1\r\n";
    assert_eq!(answers(&proxy, b"SUBSCRIBE news\r\n"), confirmation);
    // A command that no table has: the servers are asked about it first.
    let unknown = answers(&proxy, b"NOSUCHCOMMAND\r\nPING\r\n");
    assert!(unknown.starts_with(b"-ERR") && unknown.ends_with(b"+PONG\r\n"), "{unknown:?}");
    // More than the sockets hold, so that the client's input is held back.
    let value = "v".repeat(100_000);
    let mut requests = encode(&["SET", "big", &value]);
    requests.extend(b"GET big\r\n".repeat(300));
    let replies = answers(&proxy, &requests);
    assert_eq!(replies.len(), 5 + 300 * (value.len() + 11));
}

#[test]
fn a_client_that_closes_its_side_does_not_wait_for_an_element() {
    let Some((servers, proxy)) = in_front_of_three("") else { return };
    let mut other = proxy.client(Protocol::Resp2);
    // What came before is answered, and the command that waits ends with the client.
    assert_eq!(answers(&proxy, b"SET a 1\r\nBLPOP queue 0\r\n"), b"+OK\r\n");
    assert_eq!(answers(&proxy, b"BLPOP queue 0\r\n"), b"");
    until("no server has a blocked client", || {
        servers.iter().all(|server| {
            let info = ask(&mut server.client(), &["INFO", "clients"]);
            let info = String::from_utf8_lossy(info.text().unwrap_or_default()).into_owned();
            info.contains("blocked_clients:0\r\n")
        })
    });
    assert_eq!(ask(&mut other, &["LPUSH", "queue", "x"]), Reply::Integer(1));
    assert_eq!(ask(&mut other, &["LLEN", "queue"]), Reply::Integer(1));
}

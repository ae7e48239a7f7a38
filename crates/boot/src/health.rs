//! The health check of the image: whether the server has loaded and answers.
//!
//! The port is asked in plain text first. One that answers by an alert of TLS is asked again by
//! TLS, without a look at its certificate: what is asked is in the same container. One that wants a
//! certificate of its clients cannot be asked more; a Unix socket or the admin port can.

use crate::environment;
use client::tls::{TlsOptions, lacks_certificate};
use client::{Address, Connector, Patience};
use net::TlsClient;
use std::ffi::OsString;
use std::io::{self, ErrorKind};
use std::process::ExitCode;
use std::time::{Duration, Instant};

/// How long a healthy server takes to answer all that it is asked. The image's own limit
/// (`deploy/image/build`) is longer, so that the check can say what is wrong.
const PATIENCE: Duration = Duration::from_secs(4);

/// The longest answer that is looked at.
const MAX_ANSWER: usize = 4096;

const PING: &[u8] = b"PING\r\n";
const READY: &[u8] = b"GET /readyz HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n";

/// The first byte of an alert, by which a port with TLS answers plain text.
const TLS_ALERT: u8 = 21;

/// Asks the server's Unix socket (`DUNLIN_HEALTH_SOCKET`) or port (`DUNLIN_HEALTH_PORT`), or port
/// 6379 if the container is one of a server. Others are healthy while they run.
pub fn check(is_server: bool) -> ExitCode {
    let variable = |name: &str| std::env::var_os(name).filter(|value| !value.is_empty());
    let port = variable("DUNLIN_HEALTH_PORT").and_then(|port| port.to_str()?.parse().ok());
    let socket = variable("DUNLIN_HEALTH_SOCKET");
    if port.is_none() && socket.is_none() && !is_server {
        return ExitCode::SUCCESS;
    }
    let tcp = || Address::tcp("127.0.0.1", port.unwrap_or(6379));
    let address = socket.map_or_else(tcp, |path| Address::Unix(path.into()));
    // A password that cannot be read is one that the server has not got either.
    let password = environment::password(&variable).ok().flatten();
    match find_trouble(&address, password, Instant::now() + PATIENCE) {
        Ok(None) => ExitCode::SUCCESS,
        Ok(Some(why)) => {
            eprintln!("dunlin: {address}: {why}");
            ExitCode::FAILURE
        }
        Err(error) => {
            eprintln!("dunlin: {address}: {error}");
            ExitCode::FAILURE
        }
    }
}

/// Returns why a server is not ready. All its answers have to be there at the deadline.
fn find_trouble(
    address: &Address,
    password: Option<OsString>,
    deadline: Instant,
) -> io::Result<Option<String>> {
    let mut tls = None;
    let mut answer = ask(address, None, (PING, 1), deadline)?;
    if answer.first() == Some(&TLS_ALERT) {
        let options = TlsOptions { insecure: true, ..TlsOptions::default() };
        let rules = tls.insert(options.client("localhost").map_err(io::Error::other)?);
        answer = match ask(address, Some(&*rules), (PING, 1), deadline) {
            Err(error) if lacks_certificate(&error) => {
                println!(
                    "dunlin: {address} wants a certificate of its clients, so whether the server \
                     has loaded is not known: set DUNLIN_HEALTH_SOCKET, or DUNLIN_HEALTH_PORT to \
                     that of admin-port"
                );
                return Ok(None);
            }
            asked => asked?,
        };
    }
    if answer.starts_with(b"HTTP/") {
        // An admin port, which knows more than the server's own.
        answer = ask(address, tls.as_ref(), (READY, 1), deadline)?;
    } else if answer.starts_with(b"-NOAUTH")
        && let Some(password) = password
    {
        // What is not logged in is not told that the server loads.
        let mut request = Vec::new();
        resp::bulk::push_request(&mut request, &[&b"AUTH"[..], password.as_encoded_bytes()][..]);
        request.extend_from_slice(PING);
        answer = ask(address, tls.as_ref(), (&request[..], 2), deadline)?;
        // The second line is that of PING.
        let end = answer.iter().position(|byte| *byte == b'\n').map_or(answer.len(), |at| at + 1);
        answer.drain(..end);
    }
    Ok(trouble(&answer))
}

/// Returns so many lines of the answer, or what there is of it when the server closes the
/// connection. An alert, which has no lines, is an answer.
fn ask(
    address: &Address,
    tls: Option<&TlsClient>,
    (request, lines): (&[u8], usize),
    deadline: Instant,
) -> io::Result<Vec<u8>> {
    let connector = Connector { tls, ..Connector::plain(Patience::Until(deadline)) };
    let mut client = connector.open(address)?;
    client.queue_raw(request);
    // If that fails the other side has closed, and may have said why.
    let sent = client.flush();
    loop {
        let answer = client.bytes();
        let has_all = answer.iter().filter(|byte| **byte == b'\n').count() >= lines;
        if has_all || answer.first() == Some(&TLS_ALERT) || answer.len() > MAX_ANSWER {
            return Ok(answer.to_vec());
        }
        let left = deadline.saturating_duration_since(Instant::now());
        let received = match left {
            Duration::ZERO => Ok(false),
            left => client.receive(Some(left)),
        };
        match received {
            Ok(true) => {}
            Ok(false) => return Err(io::Error::new(ErrorKind::TimedOut, "it does not answer")),
            Err(error) if error.kind() == ErrorKind::UnexpectedEof => {
                return sent.map(|()| client.bytes().to_vec());
            }
            Err(error) => return Err(error),
        }
    }
}

/// Returns why a server that answers so is not ready. An error is an answer: what asks may lack the
/// password.
fn trouble(answer: &[u8]) -> Option<String> {
    let line = String::from_utf8_lossy(answer).trim_end().to_owned();
    if answer.is_empty() {
        return Some("the server closed the connection".into());
    }
    let is_loading = ["-LOADING", "-BUSYLOADING"].iter().any(|code| line.starts_with(code));
    let is_unready = line.starts_with("HTTP/") && line.split(' ').nth(1) != Some("200");
    (is_loading || is_unready).then_some(line)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::{Read as _, Write as _};
    use std::net::TcpListener;

    #[test]
    fn a_server_that_loads_is_not_healthy() {
        for healthy in ["+PONG\r\n", "-NOAUTH Authentication required.\r\n", "-ERR x\r\n"] {
            assert_eq!(trouble(healthy.as_bytes()), None, "{healthy}");
        }
        for sick in ["", "-LOADING it is loading the dataset in memory\r\n", "HTTP/1.1 503 x\r\n"] {
            assert!(trouble(sick.as_bytes()).is_some(), "{sick}");
        }
        assert_eq!(trouble(b"HTTP/1.1 200 OK\r\n"), None);
    }

    #[test]
    fn lines_are_read_however_they_come() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let port = listener.local_addr().unwrap().port();
        let address = Address::tcp("127.0.0.1", port);
        let cases: [(&[&str], usize, &[u8]); 5] = [
            (&["-LOAD", "ING x\r\n"], 1, b"-LOADING x\r\n"),
            (&["+OK\r\n", "+PONG\r", "\n"], 2, b"+OK\r\n+PONG\r\n"),
            (&["+OK\r\n"], 2, b"+OK\r\n"),
            (&["\x15\x03"], 1, b"\x15\x03"),
            (&[], 1, b""),
        ];
        for (parts, lines, expected) in cases {
            std::thread::scope(|scope| {
                scope.spawn(|| {
                    let (mut stream, _) = listener.accept().unwrap();
                    let mut request = [0; 6];
                    stream.read_exact(&mut request).unwrap();
                    parts.iter().for_each(|part| stream.write_all(part.as_bytes()).unwrap());
                });
                let deadline = Instant::now() + PATIENCE;
                assert_eq!(ask(&address, None, (PING, lines), deadline).unwrap(), expected);
            });
        }
    }

    #[test]
    fn all_connections_have_one_deadline() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = Address::tcp("127.0.0.1", listener.local_addr().unwrap().port());
        let begun = Instant::now();
        std::thread::scope(|scope| {
            // The second connection is not accepted, so it gets no answer.
            scope.spawn(|| {
                let (mut stream, _) = listener.accept().unwrap();
                stream.read_exact(&mut [0; 6]).unwrap();
                stream.write_all(b"HTTP/1.1 400 Bad Request\r\n").unwrap();
            });
            let deadline = begun + Duration::from_millis(500);
            let error = find_trouble(&address, None, deadline).unwrap_err();
            assert_eq!(error.kind(), ErrorKind::TimedOut, "{error}");
        });
        assert!(begun.elapsed() < PATIENCE, "{:?}", begun.elapsed());
    }
}

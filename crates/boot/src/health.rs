//! The health check of the image: whether the server has loaded and answers.

use std::io::{self, Read as _, Write as _};
use std::net::{Ipv4Addr, SocketAddr, TcpStream};
use std::process::ExitCode;
use std::time::Duration;

/// How long a healthy server takes to answer.
const PATIENCE: Duration = Duration::from_secs(3);

/// The longest answer that is looked at.
const MAX_ANSWER: u64 = 256;

/// Asks the server's port: `DUNLIN_HEALTH_PORT`, or 6379 if the container is one of a server.
/// Others are healthy while they run.
pub fn check(is_server: bool) -> ExitCode {
    let port = std::env::var("DUNLIN_HEALTH_PORT").ok().and_then(|port| port.parse().ok());
    if port.is_none() && !is_server {
        return ExitCode::SUCCESS;
    }
    let address = SocketAddr::from((Ipv4Addr::LOCALHOST, port.unwrap_or(6379)));
    let answer = ask(address, b"PING\r\n").and_then(|answer| {
        // An admin port, which knows more than the server's own.
        let is_http = answer.starts_with(b"HTTP/");
        if is_http { ask(address, READY) } else { Ok(answer) }
    });
    match answer.map(|answer| trouble(&answer)) {
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

const READY: &[u8] = b"GET /readyz HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n";

/// Returns the first line of the answer, or what there is of it.
fn ask(address: SocketAddr, request: &[u8]) -> io::Result<Vec<u8>> {
    let mut stream = TcpStream::connect_timeout(&address, PATIENCE)?;
    stream.set_read_timeout(Some(PATIENCE))?;
    stream.write_all(request)?;
    let mut answer = Vec::new();
    let mut stream = stream.take(MAX_ANSWER);
    let mut byte = [0; 1];
    while !answer.contains(&b'\n') && stream.read(&mut byte)? == 1 {
        answer.push(byte[0]);
        // TLS, whose alerts have no lines.
        if answer[0] == TLS_ALERT {
            break;
        }
    }
    Ok(answer)
}

/// The first byte of an alert, by which a port with TLS answers.
const TLS_ALERT: u8 = 21;

/// Returns why a server that answers so is not ready. An error is an answer: what asks has no
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
    use std::net::TcpListener;

    #[test]
    fn a_server_that_loads_is_not_healthy() {
        for healthy in
            ["+PONG\r\n", "-NOAUTH Authentication required.\r\n", "-ERR x\r\n", "\x15\x03\x03"]
        {
            assert_eq!(trouble(healthy.as_bytes()), None, "{healthy}");
        }
        for sick in ["", "-LOADING it is loading the dataset in memory\r\n", "HTTP/1.1 503 x\r\n"] {
            assert!(trouble(sick.as_bytes()).is_some(), "{sick}");
        }
        assert_eq!(trouble(b"HTTP/1.1 200 OK\r\n"), None);
    }

    #[test]
    fn the_first_line_is_read_however_it_comes() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        for parts in [&["-LOAD", "ING x\r\n", "more"][..], &["\x15\x03"], &[]] {
            std::thread::scope(|scope| {
                scope.spawn(|| {
                    let (mut stream, _) = listener.accept().unwrap();
                    let mut request = [0; 6];
                    stream.read_exact(&mut request).unwrap();
                    for part in parts {
                        // It may have read enough already.
                        let _ = stream.write_all(part.as_bytes());
                    }
                });
                let answer = ask(address, b"PING\r\n").unwrap();
                let expected: &[u8] = match parts.len() {
                    3 => b"-LOADING x\r\n",
                    1 => b"\x15",
                    _ => b"",
                };
                assert_eq!(answer, expected);
            });
        }
    }
}

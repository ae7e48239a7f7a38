//! A small HTTP client: one request a connection.

use crate::client::patience;
use std::io::{self, Read as _, Write as _};
use std::net::{Ipv4Addr, TcpStream};

/// Requests of HTTP with commands behind them, as a page elsewhere can make a browser send them. None of the
/// commands, which set the key `http`, may be carried out.
pub const WITH_COMMANDS: [&[u8]; 6] = [
    b"POST / HTTP/1.1\r\nHost: x\r\n\r\nSET http 1\r\n",
    b"GET / HTTP/1.1\r\nHost: x\r\nSET http 1\r\n",
    b"post\r\nSET http 1\r\n",
    b"hOsT:x\r\nSET http 1\r\n",
    b"*2\r\n$5\r\nhost:\r\n$1\r\nx\r\n*3\r\n$3\r\nSET\r\n$4\r\nhttp\r\n$1\r\n1\r\n",
    b"MULTI\r\nPOST /\r\nSET http 1\r\nEXEC\r\n",
];

/// An answer.
#[derive(Clone, Debug)]
pub struct Answer {
    /// Its status.
    pub status: u16,
    headers: Vec<(String, String)>,
    /// Its body.
    pub body: Vec<u8>,
}

impl Answer {
    /// A header's value; the first of that name.
    pub fn header(&self, name: &str) -> Option<&str> {
        let found = self.headers.iter().find(|(other, _)| other.eq_ignore_ascii_case(name));
        found.map(|(_, value)| value.as_str())
    }

    /// The body, as text.
    pub fn text(&self) -> String {
        String::from_utf8_lossy(&self.body).into_owned()
    }

    /// Reads an answer whose end is the end of the input.
    ///
    /// # Errors
    /// It is none.
    pub fn parse(bytes: &[u8]) -> io::Result<Answer> {
        let broken = || io::Error::other(format!("no answer: {}", String::from_utf8_lossy(bytes)));
        let end = bytes.windows(4).position(|four| four == b"\r\n\r\n").ok_or_else(broken)?;
        let head = String::from_utf8_lossy(&bytes[..end]).into_owned();
        let mut lines = head.split("\r\n");
        let status = lines.next().and_then(|line| line.split(' ').nth(1)?.parse().ok());
        let headers: Vec<(String, String)> = lines
            .filter_map(|line| line.split_once(": "))
            .map(|(name, value)| (name.to_owned(), value.to_owned()))
            .collect();
        let is_chunked = headers.iter().any(|(name, value)| {
            name.eq_ignore_ascii_case("transfer-encoding") && value == "chunked"
        });
        let body = &bytes[end + 4..];
        let body = if is_chunked { unchunked(body).ok_or_else(broken)? } else { body.to_vec() };
        Ok(Answer { status: status.ok_or_else(broken)?, headers, body })
    }
}

fn unchunked(mut rest: &[u8]) -> Option<Vec<u8>> {
    let mut body = Vec::new();
    loop {
        let line = rest.windows(2).position(|two| two == b"\r\n")?;
        let len = usize::from_str_radix(std::str::from_utf8(&rest[..line]).ok()?, 16).ok()?;
        let chunk = rest.get(line + 2..line + 2 + len)?;
        if len == 0 {
            return Some(body);
        }
        body.extend_from_slice(chunk);
        rest = rest.get(line + 4 + len..)?;
    }
}

/// The bytes of a request; `headers` are whole lines without their ends.
pub fn request(method: &str, path: &str, headers: &[&str], body: &str) -> Vec<u8> {
    let mut text = format!("{method} {path} HTTP/1.1\r\nConnection: close\r\n");
    if !headers.iter().any(|line| line.starts_with("Host:")) {
        text += "Host: localhost\r\n";
    }
    for line in headers {
        text += line;
        text += "\r\n";
    }
    if !body.is_empty() {
        text += &format!("Content-Type: application/json\r\nContent-Length: {}\r\n", body.len());
    }
    (text + "\r\n" + body).into_bytes()
}

/// Bytes as etcd's gateway wants them: in base64.
pub fn base64(bytes: &[u8]) -> String {
    const DIGITS: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    let mut text = String::new();
    for part in bytes.chunks(3) {
        let at = |place: usize| u32::from(part.get(place).copied().unwrap_or(0));
        let number = at(0) << 16 | at(1) << 8 | at(2);
        for place in 0..4 {
            let digit = DIGITS[(number >> (18 - 6 * place) & 63) as usize];
            text.push(if place <= part.len() { char::from(digit) } else { '=' });
        }
    }
    text
}

/// Sends a request to a port of the loopback and reads the answer.
///
/// # Errors
/// The connection cannot be made, breaks, or what comes is no answer.
pub fn ask(
    port: u16,
    method: &str,
    path: &str,
    headers: &[&str],
    body: &str,
) -> io::Result<Answer> {
    let mut stream = TcpStream::connect((Ipv4Addr::LOCALHOST, port))?;
    stream.set_read_timeout(Some(6 * patience()))?;
    stream.write_all(&request(method, path, headers, body))?;
    let mut bytes = Vec::new();
    stream.read_to_end(&mut bytes)?;
    Answer::parse(&bytes)
}

/// As [`ask`], a GET without headers of its own, in tests to which no answer is a failure.
///
/// # Panics
/// There is no answer.
#[track_caller]
pub fn get(port: u16, path: &str) -> Answer {
    ask(port, "GET", path, &[], "").unwrap_or_else(|error| panic!("GET {path}: {error}"))
}

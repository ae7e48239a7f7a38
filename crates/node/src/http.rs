//! A request to a node's admin port, for the commands of `dunlin cluster`.

use crate::settings::Wrong;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::Value;
use std::io::{Read as _, Write as _};
use std::net::{TcpStream, ToSocketAddrs as _};
use std::time::Duration;

/// The longest answer.
const MAX_BYTES: u64 = 64 << 20;

/// How long a connection and an answer may take.
const LIMIT: Duration = Duration::from_secs(30);

/// Why a node did not do something.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Refusal {
    /// For the user.
    pub text: String,
    /// It may be done a little later: etcd is away, or the node is about to start again.
    pub is_temporary: bool,
}

impl From<Refusal> for Wrong {
    fn from(refusal: Refusal) -> Wrong {
        Wrong(refusal.text)
    }
}

/// A node's admin port.
#[derive(Clone, Debug)]
pub struct Node {
    /// `HOST:PORT`.
    pub address: String,
    /// The password of its interface.
    pub password: Option<String>,
    /// The name of a request that is to be made once; empty is none.
    pub request_id: String,
}

impl Node {
    /// Reads something.
    ///
    /// # Errors
    /// What the node says, or why it does not answer.
    pub fn get<T: DeserializeOwned>(&self, path: &str) -> Result<T, Refusal> {
        self.ask("GET", path, "")
    }

    /// Sends something by a method.
    ///
    /// # Errors
    /// Likewise.
    pub fn send<T: DeserializeOwned>(
        &self,
        method: &str,
        path: &str,
        body: &impl Serialize,
    ) -> Result<T, Refusal> {
        let body = serde_json::to_string(body).map_err(|error| lasting(error.to_string()))?;
        self.ask(method, path, &body)
    }

    fn ask<T: DeserializeOwned>(&self, method: &str, path: &str, body: &str) -> Result<T, Refusal> {
        let away = |why: String| Refusal {
            text: format!(
                "no node answers at {} ({why}). Start one with dunlin cluster up, or name one with --node HOST:PORT",
                self.address
            ),
            is_temporary: true,
        };
        let bytes = self.exchange(method, path, body).map_err(|error| away(error.to_string()))?;
        let (status, body) = split(&bytes).ok_or_else(|| away("this is not HTTP".into()))?;
        if status == 200 {
            return serde_json::from_slice(&body)
                .map_err(|error| lasting(format!("the node's answer cannot be read: {error}")));
        }
        let error: Value = serde_json::from_slice(&body).unwrap_or_default();
        let text = error["error"]["message"].as_str().map(str::to_owned);
        let text = text.unwrap_or_else(|| format!("the node answers with status {status}"));
        let text = match status {
            401 => format!("{text}. Set DUNLIN_ADMIN_PASSWORD"),
            _ => text,
        };
        Err(Refusal { text, is_temporary: status == 503 })
    }

    fn exchange(&self, method: &str, path: &str, body: &str) -> std::io::Result<Vec<u8>> {
        let mut error = std::io::Error::other("the host has no address");
        for address in self.address.to_socket_addrs()? {
            match TcpStream::connect_timeout(&address, LIMIT) {
                Err(failed) => error = failed,
                Ok(mut stream) => {
                    stream.set_read_timeout(Some(LIMIT))?;
                    stream.set_write_timeout(Some(LIMIT))?;
                    stream.write_all(self.request(method, path, body).as_bytes())?;
                    let mut bytes = Vec::new();
                    stream.take(MAX_BYTES).read_to_end(&mut bytes)?;
                    return Ok(bytes);
                }
            }
        }
        Err(error)
    }

    fn request(&self, method: &str, path: &str, body: &str) -> String {
        let login = self.password.as_ref().map(|password| {
            let pair = STANDARD.encode(format!("{}:{password}", crate::rest::USER));
            format!("Authorization: Basic {pair}\r\n")
        });
        let request_id = match &*self.request_id {
            "" => String::new(),
            name => format!("Idempotency-Key: {}\r\n", name.replace(['\r', '\n'], " ")),
        };
        // A name may be an alias of the machine; an address is always let in.
        format!(
            "{method} /api/v1/cluster{path} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n{}{request_id}\
             Content-Type: application/json\r\nContent-Length: {}\r\n\r\n{body}",
            login.unwrap_or_default(),
            body.len()
        )
    }
}

fn lasting(text: String) -> Refusal {
    Refusal { text, is_temporary: false }
}

/// The status and the body of an answer.
fn split(bytes: &[u8]) -> Option<(u16, Vec<u8>)> {
    let end = bytes.windows(4).position(|four| four == b"\r\n\r\n")?;
    let head = std::str::from_utf8(&bytes[..end]).ok()?;
    let status = head.strip_prefix("HTTP/1.1 ")?.get(..3)?.parse().ok()?;
    let body = &bytes[end + 4..];
    let is_chunked = head.to_ascii_lowercase().contains("transfer-encoding: chunked");
    Some((status, if is_chunked { joined(body)? } else { body.to_vec() }))
}

fn joined(mut rest: &[u8]) -> Option<Vec<u8>> {
    let mut body = Vec::new();
    loop {
        let line = rest.windows(2).position(|pair| pair == b"\r\n")?;
        let len = usize::from_str_radix(std::str::from_utf8(&rest[..line]).ok()?, 16).ok()?;
        if len == 0 {
            return Some(body);
        }
        let begin = line + 2;
        let end = begin.checked_add(len)?;
        body.extend_from_slice(rest.get(begin..end)?);
        rest = rest.get(end + 2..)?;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn answers_are_split() {
        let plain = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n{}";
        assert_eq!(split(plain), Some((200, b"{}".to_vec())));
        let chunked =
            b"HTTP/1.1 404 x\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nab\r\n1\r\nc\r\n0\r\n\r\n";
        assert_eq!(split(chunked), Some((404, b"abc".to_vec())));
        let hostile: [&[u8]; 4] = [
            b"",
            b"-ERR unknown command\r\n\r\n",
            b"HTTP/1.1 2\r\n\r\n",
            b"HTTP/1.1 200 x\r\nTransfer-Encoding: chunked\r\n\r\nffffffffffffffff\r\n",
        ];
        assert!(hostile.iter().all(|bytes| split(bytes).is_none()));
    }
}

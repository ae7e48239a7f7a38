//! As much of HTTP/1.1 as etcd needs: POST with JSON, GET of what peers know, bodies with a length
//! or in chunks, one connection.

use crate::Endpoint;
use client::{Dial, Stream, dial};
use cluster::Moment;
use net::TlsClient;
use rustls::ClientConfig;
use serde_json::Value;
use std::io::{self, Read as _, Write as _};
use std::sync::Arc;
use std::time::Instant;

/// The longest head of an answer.
const MAX_HEAD_LEN: usize = 16 << 10;

/// The longest body of an answer. A database's keys are some hundred kilobytes at most.
pub(crate) const MAX_BODY_LEN: usize = 64 << 20;

/// What is read of a refusal that is no JSON.
const MAX_WORDS: usize = 300;

/// The shortest limit that a socket takes.
const SHORTEST: Moment = Moment::from_millis(1);

/// An answer.
pub(crate) struct Response {
    pub(crate) status: u16,
    pub(crate) body: Value,
    /// The connection can take another request.
    pub(crate) may_go_on: bool,
}

impl Response {
    pub(crate) fn is_ok(&self) -> bool {
        self.status == 200
    }

    /// gRPC's code of an error, 0 if it is none.
    pub(crate) fn code(&self) -> i64 {
        if self.is_ok() { 0 } else { self.body["code"].as_i64().unwrap_or(0) }
    }
}

/// How a body is delimited.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Delimiter {
    Length(usize),
    Chunks,
}

/// The head of an answer.
struct Head {
    status: u16,
    delimiter: Delimiter,
    closes: bool,
}

/// The time until then, as a limit that a socket takes.
fn left(deadline: Instant) -> Moment {
    deadline.saturating_duration_since(Instant::now()).max(SHORTEST)
}

/// A connection, and what has arrived on it.
pub(crate) struct Connection {
    stream: Stream,
    host: String,
    /// What has arrived and was not used.
    arrived: Vec<u8>,
}

/// Why an answer is not read.
const TOO_LONG: &str =
    "the answer is longer than 64 MiB: are there keys of other programs below /dunlin/?";

/// Returns a length that may be read.
fn bounded(len: usize) -> io::Result<usize> {
    if len > MAX_BODY_LEN { Err(broken(TOO_LONG)) } else { Ok(len) }
}

/// An error of the other side.
fn broken(why: &str) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, why.to_owned())
}

impl Connection {
    /// Connects. `rules` are those of TLS, where the endpoint wants it.
    pub(crate) fn open(
        endpoint: &Endpoint,
        rules: Option<&Arc<ClientConfig>>,
        timeout: Moment,
    ) -> io::Result<Connection> {
        let deadline = Some(Instant::now() + timeout);
        let how = Dial { deadline, ..Dial::default() };
        let mut stream = Stream::from(dial(&endpoint.host, endpoint.port, &how)?);
        if let Some(rules) = rules {
            stream.set_write_timeout(Some(timeout.max(SHORTEST)))?;
            stream.encrypt(&TlsClient::new(Arc::clone(rules), &endpoint.host)?)?;
            stream.shake_hands(deadline, || true)?;
        }
        Ok(Connection { stream, host: endpoint.to_string(), arrived: Vec::new() })
    }

    /// Sends a request and reads the answer.
    pub(crate) fn post(
        &mut self,
        path: &str,
        body: &Value,
        token: Option<&str>,
        timeout: Moment,
    ) -> io::Result<Response> {
        let deadline = Instant::now() + timeout;
        self.send(path, body, token, timeout)?;
        self.response(deadline)
    }

    /// Asks for what is at a path.
    pub(crate) fn get(&mut self, path: &str, timeout: Moment) -> io::Result<Response> {
        let deadline = Instant::now() + timeout;
        let request = format!("GET {path} HTTP/1.1\r\nHost: {}\r\n\r\n", self.host);
        self.write(&request, timeout)?;
        self.response(deadline)
    }

    fn response(&mut self, deadline: Instant) -> io::Result<Response> {
        let head = self.head(deadline)?;
        let body = match head.delimiter {
            Delimiter::Length(len) => self.take(len, deadline)?,
            Delimiter::Chunks => {
                let mut body = Vec::new();
                while let Some(mut chunk) = self.chunk(deadline)? {
                    body.append(&mut chunk);
                    if body.len() > MAX_BODY_LEN {
                        return Err(broken(TOO_LONG));
                    }
                }
                body
            }
        };
        let body = match serde_json::from_slice(&body) {
            // Some refusals are words, and not the gateway's.
            Err(_) if head.status != 200 => {
                let text = String::from_utf8_lossy(&body[..body.len().min(MAX_WORDS)]);
                Value::String(text.trim().to_owned())
            }
            body => body?,
        };
        Ok(Response { status: head.status, body, may_go_on: !head.closes })
    }

    /// Sends a request whose answer never ends, and reads its head.
    pub(crate) fn subscribe(
        &mut self,
        path: &str,
        body: &Value,
        token: Option<&str>,
        timeout: Moment,
    ) -> io::Result<()> {
        self.send(path, body, token, timeout)?;
        let head = self.head(Instant::now() + timeout)?;
        match (head.status, head.delimiter) {
            (200, Delimiter::Chunks) => Ok(()),
            (status, _) => Err(broken(&format!("the answer has status {status}"))),
        }
    }

    fn send(
        &mut self,
        path: &str,
        body: &Value,
        token: Option<&str>,
        timeout: Moment,
    ) -> io::Result<()> {
        let body = body.to_string();
        let token = token.map(|token| format!("Authorization: {token}\r\n")).unwrap_or_default();
        let request = format!(
            "POST {path} HTTP/1.1\r\nHost: {}\r\nContent-Type: application/json\r\n{token}\
             Content-Length: {}\r\n\r\n{body}",
            self.host,
            body.len()
        );
        self.write(&request, timeout)
    }

    fn write(&mut self, request: &str, timeout: Moment) -> io::Result<()> {
        self.stream.set_write_timeout(Some(timeout.max(SHORTEST)))?;
        self.stream.write_all(request.as_bytes()).and_then(|()| self.stream.flush())
    }

    fn head(&mut self, deadline: Instant) -> io::Result<Head> {
        let status_line = self.line(deadline)?;
        let status = status_line.strip_prefix("HTTP/1.1 ").and_then(|rest| rest.get(..3));
        let status = status.and_then(|digits| digits.parse().ok());
        let status = status.ok_or_else(|| broken("this is not HTTP/1.1"))?;
        let mut head = Head { status, delimiter: Delimiter::Length(0), closes: false };
        let mut len = status_line.len();
        loop {
            let line = self.line(deadline)?;
            len += line.len();
            if len > MAX_HEAD_LEN {
                return Err(broken("the head is too long"));
            }
            if line.is_empty() {
                return Ok(head);
            }
            let Some((name, value)) = line.split_once(':') else { continue };
            let value = value.trim();
            match name.to_ascii_lowercase().as_str() {
                "content-length" => {
                    let len = value.parse().map_err(|_| broken("the length is wrong"))?;
                    head.delimiter = Delimiter::Length(bounded(len)?);
                }
                "transfer-encoding" if value.eq_ignore_ascii_case("chunked") => {
                    head.delimiter = Delimiter::Chunks;
                }
                "connection" if value.eq_ignore_ascii_case("close") => head.closes = true,
                _ => {}
            }
        }
    }

    /// Reads the next chunk. `None`: there is no more. If the time is over in the middle of one, it
    /// is read again from its beginning the next time.
    pub(crate) fn chunk(&mut self, deadline: Instant) -> io::Result<Option<Vec<u8>>> {
        let head = self.find_line(deadline)?;
        let digits = std::str::from_utf8(&self.arrived[..head]).unwrap_or_default();
        let digits = digits.split(';').next().unwrap_or_default().trim();
        let len = usize::from_str_radix(digits, 16);
        let len = bounded(len.map_err(|_| broken("a chunk has no length"))?)?;
        let begin = head + 2;
        if len == 0 {
            self.arrived.drain(..begin);
            // Errors have trailers.
            while !self.line(deadline)?.is_empty() {}
            return Ok(None);
        }
        while self.arrived.len() < begin + len + 2 {
            self.fill(deadline)?;
        }
        let chunk = self.arrived[begin..begin + len].to_vec();
        self.arrived.drain(..begin + len + 2);
        Ok(Some(chunk))
    }

    fn line(&mut self, deadline: Instant) -> io::Result<String> {
        let end = self.find_line(deadline)?;
        let line = String::from_utf8_lossy(&self.arrived[..end]).into_owned();
        self.arrived.drain(..end + 2);
        Ok(line)
    }

    /// Returns where the first line that has arrived ends.
    fn find_line(&mut self, deadline: Instant) -> io::Result<usize> {
        loop {
            if let Some(end) = self.arrived.windows(2).position(|pair| pair == b"\r\n") {
                return Ok(end);
            }
            if self.arrived.len() > MAX_HEAD_LEN {
                return Err(broken("a line is too long"));
            }
            self.fill(deadline)?;
        }
    }

    fn take(&mut self, len: usize, deadline: Instant) -> io::Result<Vec<u8>> {
        while self.arrived.len() < len {
            self.fill(deadline)?;
        }
        let rest = self.arrived.split_off(len);
        Ok(std::mem::replace(&mut self.arrived, rest))
    }

    /// Reads what there is. An error of the kind `TimedOut` says that the time is over.
    fn fill(&mut self, deadline: Instant) -> io::Result<()> {
        if Instant::now() >= deadline {
            return Err(io::ErrorKind::TimedOut.into());
        }
        self.stream.set_read_timeout(Some(left(deadline)))?;
        let mut buffer = [0; 16 << 10];
        match self.stream.read(&mut buffer) {
            Ok(0) => Err(io::ErrorKind::UnexpectedEof.into()),
            Ok(len) => {
                self.arrived.extend_from_slice(&buffer[..len]);
                Ok(())
            }
            Err(error) if error.kind() == io::ErrorKind::Interrupted => Ok(()),
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                Err(io::ErrorKind::TimedOut.into())
            }
            Err(error) => Err(error),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    #[test]
    fn a_refusal_may_be_words() {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").expect("a port is free");
        let address = listener.local_addr().expect("it is bound").to_string();
        let server = std::thread::spawn(move || {
            let (mut stream, _) = listener.accept().expect("it is asked");
            let _ = stream.read(&mut [0; 4096]).expect("there is a request");
            let answer = "HTTP/1.1 400 Bad Request\r\nContent-Length: 12\r\n\r\nCommonName.\n";
            stream.write_all(answer.as_bytes()).expect("it waits");
        });
        let endpoint = address.parse().expect("it is one");
        let limit = Moment::from_secs(30);
        let mut connection = Connection::open(&endpoint, None, limit).expect("it listens");
        let response = connection.post("/v3/x", &Value::Null, None, limit).expect("it answers");
        assert_eq!((response.status, response.body.as_str()), (400, Some("CommonName.")));
        server.join().expect("it ends");
    }
}

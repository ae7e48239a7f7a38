//! Requests to etcd: JSON by POST to its gateway, and by GET what its peers know.

use crate::Endpoint;
use client::http::{Connection as Http, Error, Feed, Request, Server};
use net::TlsClient;
use rustls::ClientConfig;
use serde_json::Value;
use std::io;
use std::sync::Arc;
use std::time::Instant;

/// The longest body of an answer. A database's keys are some hundred kilobytes at most.
const MAX_BODY_LEN: usize = 64 << 20;

/// What is read of a refusal that is no JSON.
const MAX_WORDS: usize = 300;

/// Why an answer is not read.
const TOO_LONG: &str =
    "the answer is longer than 64 MiB: are there keys of other programs below /dunlin/?";

/// An answer.
pub(crate) struct Response {
    pub(crate) status: u16,
    pub(crate) body: Value,
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

/// A connection to a server, made when it is used.
pub(crate) struct Connection(Http);

/// Returns an error of the connection as one of etcd.
fn explained(error: Error) -> io::Error {
    match error {
        Error::Unsent(why) | Error::Unanswered(why) => why,
        Error::TooLong => io::Error::new(io::ErrorKind::InvalidData, TOO_LONG),
    }
}

impl Connection {
    /// Returns a connection. `rules` are those of TLS, where the endpoint wants it.
    pub(crate) fn new(
        endpoint: &Endpoint,
        rules: Option<Arc<ClientConfig>>,
    ) -> io::Result<Connection> {
        let tls = rules.map(|rules| TlsClient::new(rules, &endpoint.host));
        let server = Server {
            host: endpoint.host.clone(),
            port: endpoint.port,
            name: endpoint.to_string(),
            tls: tls.transpose()?,
        };
        Ok(Connection(Http::new(server)?))
    }

    /// Sends a request and reads the answer.
    pub(crate) fn post(
        &mut self,
        path: &str,
        body: &Value,
        token: Option<&str>,
        deadline: Instant,
    ) -> io::Result<Response> {
        posted(path, body, token, |request| self.ask(request, deadline))
    }

    /// Asks for what is at a path.
    pub(crate) fn get(&mut self, path: &str, deadline: Instant) -> io::Result<Response> {
        self.ask(&Request::get(path), deadline)
    }

    fn ask(&mut self, request: &Request<'_>, deadline: Instant) -> io::Result<Response> {
        let answer = self.0.ask(request, deadline, MAX_BODY_LEN).map_err(explained)?;
        let body = match serde_json::from_slice(&answer.body) {
            // Some refusals are words, and not the gateway's.
            Err(_) if answer.status != 200 => {
                let words = &answer.body[..answer.body.len().min(MAX_WORDS)];
                Value::String(String::from_utf8_lossy(words).trim().to_owned())
            }
            body => body?,
        };
        Ok(Response { status: answer.status, body })
    }

    /// Sends a request whose answer never ends. Returns when its head has come.
    pub(crate) fn subscribe(
        self,
        path: &str,
        body: &Value,
        token: Option<&str>,
        deadline: Instant,
    ) -> io::Result<Lines> {
        let begin = |request: &Request<'_>| self.0.subscribe(request, deadline).map_err(explained);
        let feed = posted(path, body, token, begin)?;
        match feed.status {
            200 => Ok(Lines { feed, arrived: Vec::new() }),
            status => Err(io::Error::other(format!("the answer has status {status}"))),
        }
    }
}

/// An answer that comes line by line, each of JSON.
pub(crate) struct Lines {
    feed: Feed,
    /// What has come and was not used.
    arrived: Vec<u8>,
}

impl Lines {
    /// Returns the next line. `None`: there is no more.
    ///
    /// # Errors
    /// The connection is lost, or a line is too long. `TimedOut`: no line has come until then; what
    /// has come of it is kept.
    pub(crate) fn next(&mut self, deadline: Instant) -> io::Result<Option<Vec<u8>>> {
        let mut searched = 0;
        loop {
            let end = self.arrived[searched..].iter().position(|&byte| byte == b'\n');
            if let Some(end) = end {
                let rest = self.arrived.split_off(searched + end + 1);
                return Ok(Some(std::mem::replace(&mut self.arrived, rest)));
            }
            searched = self.arrived.len();
            if searched > MAX_BODY_LEN {
                return Err(explained(Error::TooLong));
            }
            match self.feed.next(deadline)? {
                Some(part) => self.arrived.extend_from_slice(&part),
                None => return Ok(None),
            }
        }
    }
}

/// Makes a request and lets `send` send it.
fn posted<T>(
    path: &str,
    body: &Value,
    token: Option<&str>,
    send: impl FnOnce(&Request<'_>) -> io::Result<T>,
) -> io::Result<T> {
    let mut headers = vec![("Content-Type", "application/json")];
    headers.extend(token.map(|token| ("Authorization", token)));
    let body = body.to_string();
    send(&Request { method: "POST", path, headers: &headers, body: body.as_bytes() })
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::{Read as _, Write as _};
    use std::time::Duration;

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
        let deadline = Instant::now() + Duration::from_secs(30);
        let mut connection = Connection::new(&endpoint, None).expect("there are descriptors");
        let response = connection.post("/v3/x", &Value::Null, None, deadline).expect("it answers");
        assert_eq!((response.status, response.body.as_str()), (400, Some("CommonName.")));
        server.join().expect("it ends");
    }
}

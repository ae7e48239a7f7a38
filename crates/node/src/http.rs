//! A request to a node's admin port, for the commands of `dunlin cluster`.

use crate::authority;
use crate::settings::Wrong;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use client::http::{Answer, Connection, Error, Request, Server};
use client::tls::TlsOptions;
use net::TlsClient;
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::Value;
use std::io;
use std::path::PathBuf;
use std::time::{Duration, Instant};

/// The longest answer.
const MAX_BYTES: usize = 64 << 20;

/// How long an answer may take, connecting included.
const LIMIT: Duration = Duration::from_secs(30);

/// Why a node did not do something.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Refusal {
    /// For the user.
    pub text: String,
    /// The request can be sent again: etcd is away, or the node is about to start again.
    pub is_temporary: bool,
}

impl From<Refusal> for Wrong {
    fn from(refusal: Refusal) -> Wrong {
        Wrong(refusal.text)
    }
}

/// What the certificate of a node that speaks TLS must come from.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Authority {
    /// An authority that the system knows; the certificate has the name of the host.
    System,
    /// One in this file, likewise.
    File(PathBuf),
    /// That of the token or secret in this file; the certificate is one of any machine.
    Token(PathBuf),
}

impl Authority {
    /// Makes what a connection to a host needs.
    fn client(&self, host: &str) -> io::Result<TlsClient> {
        let of_files = |cacert: Option<PathBuf>| {
            TlsOptions { cacert, ..TlsOptions::default() }.client(host).map_err(io::Error::other)
        };
        match self {
            Authority::System => of_files(None),
            Authority::File(path) => of_files(Some(path.clone())),
            Authority::Token(path) => {
                let made = authority::secret_in(path)
                    .and_then(|secret| authority::client_of(&secret, host));
                made.map_err(|why| io::Error::other(why.to_string()))
            }
        }
    }
}

/// A node's admin port.
#[derive(Clone, Debug)]
pub struct Node {
    /// `HOST:PORT`, or `https://HOST:PORT` of one that speaks TLS.
    pub address: String,
    /// What its certificate must come from.
    pub authority: Authority,
    /// The password of its interface.
    pub password: Option<String>,
    /// The name of a request that is to be made once; empty is none.
    pub request_id: String,
}

impl Node {
    /// Reads what is at a path.
    ///
    /// # Errors
    /// What the node says, or why it does not answer.
    pub fn get<T: DeserializeOwned>(&self, path: &str) -> Result<T, Refusal> {
        self.ask("GET", path, "")
    }

    /// Sends something by a method, and returns the answer.
    ///
    /// # Errors
    /// What the node says, or why it does not answer.
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
        let Answer { status, body } = self.exchange(method, path, body)?;
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

    fn exchange(&self, method: &str, path: &str, body: &str) -> Result<Answer, Refusal> {
        let mut headers = vec![("Content-Type", "application/json")];
        let login = self.password.as_ref().map(|password| {
            let pair = STANDARD.encode(format!("{}:{password}", crate::rest::USER));
            format!("Basic {pair}")
        });
        headers.extend(login.as_ref().map(|login| ("Authorization", &**login)));
        let request_id = self.request_id.replace(['\r', '\n'], " ");
        if !request_id.is_empty() {
            headers.push(("Idempotency-Key", &request_id));
        }
        let path = format!("/api/v1/cluster{path}");
        let request = Request { method, path: &path, headers: &headers, body: body.as_bytes() };
        let deadline = Instant::now() + LIMIT;
        let server = self.server().map_err(|why| lasting(format!("{}: {why}", self.address)))?;
        Connection::new(server)
            .map_err(Error::Unsent)
            .and_then(|mut connection| connection.ask(&request, deadline, MAX_BYTES))
            .map_err(|why| self.away(&why))
    }

    fn server(&self) -> io::Result<Server> {
        let text = "this is not HOST:PORT or https://HOST:PORT";
        let wrong = || io::Error::new(io::ErrorKind::InvalidInput, text);
        let (is_tls, place) = match self.address.split_once("://") {
            Some(("https", place)) => (true, place),
            Some(("http", place)) => (false, place),
            Some(_) => return Err(wrong()),
            None => (false, &*self.address),
        };
        let place = place.strip_suffix('/').unwrap_or(place);
        let (host, port) = place.rsplit_once(':').ok_or_else(wrong)?;
        let host = host.strip_prefix('[').and_then(|host| host.strip_suffix(']')).unwrap_or(host);
        let port = port.parse().map_err(|_| wrong())?;
        if !is_tls && matches!(self.authority, Authority::Token(_)) {
            let text = "--token-file is for a node that speaks TLS: name it as https://HOST:PORT";
            return Err(io::Error::new(io::ErrorKind::InvalidInput, text));
        }
        let tls = is_tls.then(|| self.authority.client(host)).transpose()?;
        Ok(Server {
            host: host.to_owned(),
            port,
            // The name in the header Host. Without a password a node answers under this one and
            // addresses only, whatever the machine is called.
            name: "localhost".to_owned(),
            tls,
        })
    }

    /// Returns what to do if the two sides do not agree about TLS.
    fn hint(&self, error: &io::Error) -> Option<&'static str> {
        let of_tls = error.get_ref().and_then(|why| why.downcast_ref::<rustls::Error>());
        let is_tls = self.address.starts_with("https://");
        match of_tls {
            Some(rustls::Error::InvalidMessage(_)) => Some("speaks no TLS: leave out https://"),
            Some(rustls::Error::InvalidCertificate(_)) => Some(
                "shows a certificate of another authority than is known here, or for another \
                 name: name its authority with --cacert or --token-file",
            ),
            None if !is_tls && error.kind() == io::ErrorKind::InvalidData => {
                Some("speaks no HTTP: name it as https://HOST:PORT if it speaks TLS")
            }
            _ => None,
        }
    }

    /// Says why there is no answer.
    fn away(&self, why: &Error) -> Refusal {
        let address = &self.address;
        if let Error::Unsent(error) | Error::Unanswered(error) = why
            && let Some(hint) = self.hint(error)
        {
            // A roll may be about to give the node the other kind.
            return Refusal { text: format!("{address} {hint} ({error})"), is_temporary: true };
        }
        match why {
            Error::Unsent(_) => Refusal {
                text: format!(
                    "no node answers at {address} ({why}). Start one with dunlin cluster up, or \
                     name one with --node HOST:PORT"
                ),
                is_temporary: true,
            },
            Error::Unanswered(_) => Refusal {
                text: format!(
                    "the node at {address} has not answered ({why}), and may have done what it \
                     was asked for"
                ),
                is_temporary: true,
            },
            Error::TooLong => lasting(format!("the node at {address} says too much: {why}")),
        }
    }
}

fn lasting(text: String) -> Refusal {
    Refusal { text, is_temporary: false }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_are_read() {
        let read = |address: &str| {
            let address = address.to_owned();
            let (authority, request_id) = (Authority::System, String::new());
            let node = Node { address, authority, password: None, request_id };
            let read = |server: Server| (server.host, server.port, server.tls.is_some());
            node.server().map(read).map_err(|why| why.to_string())
        };
        assert_eq!(read("a.example:80"), Ok(("a.example".into(), 80, false)));
        assert_eq!(read("[::1]:7480"), Ok(("::1".into(), 7480, false)));
        assert_eq!(read("http://a:80/"), Ok(("a".into(), 80, false)));
        let wrong = "this is not HOST:PORT or https://HOST:PORT";
        for address in ["a", "a:", "a:x", "a:70000", "ftp://a:80", "https://a"] {
            assert_eq!(read(address), Err(wrong.into()), "{address}");
        }
    }
}

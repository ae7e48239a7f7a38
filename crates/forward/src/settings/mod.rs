//! What a hub is told about a pool: the servers, how keys get to them, limits, log-ins.

mod tls;

pub use tls::{ListenerTls, ServerTls};

use crate::placement::{Distribution, Keys, Member};
use std::fmt;
use std::path::PathBuf;
use std::time::Duration;

/// An address to listen on or to connect to.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Address {
    /// A host, which may be a name, and a port.
    Tcp(String, u16),
    /// A Unix socket and, where we listen, its mode.
    Unix(PathBuf, Option<u32>),
}

impl Address {
    /// Reads `host:port`, `[host]:port`, `host:port` with the colons of IPv6, or `/path [mode]`.
    pub fn parse(text: &str) -> Option<Address> {
        if text.starts_with('/') {
            let mut words = text.split_whitespace();
            let path = PathBuf::from(words.next()?);
            let mode = match words.next() {
                None => None,
                Some(mode) => {
                    Some(u32::from_str_radix(mode, 8).ok().filter(|mode| *mode <= 0o777)?)
                }
            };
            return Some(Address::Unix(path, mode));
        }
        let (host, port) = text.rsplit_once(':')?;
        let host = host.strip_prefix('[').and_then(|host| host.strip_suffix(']')).unwrap_or(host);
        let port = port.parse().ok().filter(|port| *port > 0)?;
        (!host.is_empty()).then(|| Address::Tcp(host.to_owned(), port))
    }
}

impl fmt::Display for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Address::Tcp(host, port) if host.contains(':') => write!(f, "[{host}]:{port}"),
            Address::Tcp(host, port) => write!(f, "{host}:{port}"),
            Address::Unix(path, _) => write!(f, "{}", path.display()),
        }
    }
}

/// A server of a pool.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Server {
    /// Where it is.
    pub address: Address,
    /// Its name and share.
    pub member: Member,
}

/// What a pool stands in front of.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum PoolKind {
    /// Servers that share the keys.
    Servers(Vec<Server>),
    /// One server.
    Single(Server),
    /// The master that sentinels name.
    Sentinel {
        /// The sentinels.
        sentinels: Vec<Address>,
        /// The master's name.
        master: String,
    },
    /// A Redis Cluster.
    Cluster {
        /// Some of its nodes.
        seeds: Vec<Address>,
    },
}

/// When a server is taken out, as Twemproxy does it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ejection {
    /// Whether keys of a server that fails move to the others.
    pub is_on: bool,
    /// After so many failures in a row.
    pub failure_limit: u32,
    /// For so long.
    pub retry_after: Duration,
}

/// A user and its password.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Login {
    /// The name, if it is not the default user.
    pub user: Option<String>,
    /// The password.
    pub password: String,
}

/// Which servers answer requests that only read.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Reads {
    /// The primary.
    #[default]
    Primary,
    /// Replicas; the primary if none can be used.
    Replicas,
    /// The primary and its replicas, in turn.
    All,
}

/// What a client may take.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Clients of the pool.
    pub clients: Option<usize>,
    /// Connections that one client has for itself, all threads together.
    pub exclusive: usize,
    /// Bytes of replies that wait for a client before no more of its requests are read.
    pub client_backlog: usize,
    /// Bytes of replies that wait for a client before it is disconnected.
    pub client_output: usize,
    /// Bytes of requests that wait on one connection to a server before more are refused.
    pub server_queue: usize,
    /// The same of all connections of the pool.
    pub queue: usize,
    /// Bytes of one request.
    pub request: usize,
    /// Requests and replies of more bytes are passed on as they come.
    pub long: usize,
}

impl Default for Limits {
    fn default() -> Limits {
        Limits {
            clients: None,
            exclusive: 512,
            client_backlog: 1 << 20,
            client_output: 1 << 30,
            server_queue: 64 << 20,
            queue: 1 << 30,
            request: 512 << 20,
            long: 64 << 10,
        }
    }
}

/// One pool.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Pool {
    /// Its name.
    pub name: String,
    /// Where clients connect.
    pub listen: Vec<Address>,
    /// Where clients connect by TLS.
    pub listen_tls: Vec<Address>,
    /// The certificate that they see.
    pub tls: Option<ListenerTls>,
    /// TLS towards servers.
    pub server_tls: Option<ServerTls>,
    /// Whether sentinels speak TLS, too.
    pub sentinel_tls: bool,
    /// What we say to sentinels.
    pub sentinel_login: Option<Login>,
    /// What is behind it.
    pub kind: PoolKind,
    /// How keys become hashes.
    pub keys: Keys,
    /// How servers share the keys.
    pub distribution: Distribution,
    /// How long a reply may take.
    pub timeout: Option<Duration>,
    /// How long connecting may take.
    pub connect_timeout: Duration,
    /// Connections that the kernel keeps for us.
    pub backlog: u32,
    /// Whether the kernel probes idle connections to servers.
    pub keepalive: bool,
    /// Shared connections of a thread to one server.
    pub server_connections: u16,
    /// Where reads go.
    pub reads: Reads,
    /// Bytes that a replica may be behind and still be read.
    pub max_lag: u64,
    /// Whether servers are connected to at the start.
    pub preconnect: bool,
    /// What we say to servers.
    pub login: Option<Login>,
    /// What clients have to say to us.
    pub client_login: Option<Login>,
    /// The database that clients begin with.
    pub db: u32,
    /// When servers are taken out.
    pub ejection: Ejection,
    /// Whether what cannot be atomic over several servers is refused.
    pub is_strict: bool,
    /// Whether clients' connections begin with a PROXY header.
    pub proxy_protocol: bool,
    /// Limits.
    pub limits: Limits,
    /// If not empty, only these commands are let through. In capitals; a subcommand as
    /// `CONFIG|SET`, a command that only servers know as `=PUT`.
    pub allow: Vec<String>,
    /// These commands are refused; written as the others.
    pub deny: Vec<String>,
}

impl Pool {
    /// Sets the timeout for connecting and for replies.
    pub fn set_timeout(&mut self, timeout: Option<Duration>) {
        self.timeout = timeout;
        self.connect_timeout = timeout.unwrap_or(self.connect_timeout);
    }

    /// A pool with defaults.
    pub fn new(name: &str, kind: PoolKind) -> Pool {
        Pool {
            name: name.to_owned(),
            listen: Vec::new(),
            listen_tls: Vec::new(),
            tls: None,
            server_tls: None,
            sentinel_tls: false,
            sentinel_login: None,
            kind,
            keys: Keys::default(),
            distribution: Distribution::default(),
            timeout: None,
            connect_timeout: Duration::from_secs(5),
            backlog: 512,
            keepalive: true,
            server_connections: 1,
            reads: Reads::Primary,
            max_lag: 1 << 20,
            preconnect: false,
            login: None,
            client_login: None,
            db: 0,
            ejection: Ejection {
                is_on: false,
                failure_limit: 2,
                retry_after: Duration::from_secs(30),
            },
            is_strict: false,
            proxy_protocol: false,
            limits: Limits::default(),
            allow: Vec::new(),
            deny: Vec::new(),
        }
    }
}

/// Why a configuration cannot be used.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Invalid(pub String);

impl fmt::Display for Invalid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_are_read() {
        let tcp = |host: &str, port| Some(Address::Tcp(host.into(), port));
        assert_eq!(Address::parse("127.0.0.1:6379"), tcp("127.0.0.1", 6379));
        assert_eq!(Address::parse("[::1]:6379"), tcp("::1", 6379));
        assert_eq!(Address::parse("fe80::1:6379"), tcp("fe80::1", 6379));
        assert_eq!(
            Address::parse("/run/a.sock 0660"),
            Some(Address::Unix("/run/a.sock".into(), Some(0o660)))
        );
        for wrong in ["", "a", "a:", ":1", "a:0", "a:70000", "/a 9"] {
            assert_eq!(Address::parse(wrong), None, "{wrong}");
        }
    }
}

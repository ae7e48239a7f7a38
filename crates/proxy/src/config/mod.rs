//! What a configuration says. Two formats lead here: Twemproxy's YAML and our own TOML.

pub mod native;
pub mod nutcracker;
mod tls;

pub use tls::{ListenerTls, ServerTls};

use crate::hub::Commands;
use crate::placement::{Distribution, Keys, Member};
use std::fmt;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// A whole configuration.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Config {
    /// Threads that serve clients; 0 for one a processor.
    pub threads: usize,
    /// Where `/metrics`, `/healthz` and `/readyz` are answered.
    pub admin: Option<Admin>,
    /// The pools, in the file's order.
    pub pools: Vec<Pool>,
}

/// The admin port.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Admin {
    /// A host and a port.
    pub address: String,
    /// Whether other machines may see more than probes.
    pub is_open: bool,
    /// Names under which it answers beside addresses and localhost; one that begins with a dot stands
    /// for all that end so.
    pub names: Vec<String>,
}

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
pub enum Kind {
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
    pub kind: Kind,
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
    /// We are a node of this cluster ourselves: links say so, and a request may be for several
    /// slots of a shard.
    pub is_node: bool,
    /// Limits.
    pub limits: Limits,
    /// If not empty, only these commands are let through. In capitals; a subcommand as `CONFIG|SET`, a
    /// command that only servers know as `=PUT`.
    pub allow: Vec<String>,
    /// These commands are refused; written as the others.
    pub deny: Vec<String>,
}

impl Pool {
    /// Sets the timeout for connecting and for replies.
    fn set_timeout(&mut self, timeout: Option<Duration>) {
        self.timeout = timeout;
        self.connect_timeout = timeout.unwrap_or(self.connect_timeout);
    }

    /// A pool with defaults.
    pub fn new(name: &str, kind: Kind) -> Pool {
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
            is_node: false,
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

/// Reads a file: TOML if its name ends in `.toml`, else Twemproxy's YAML.
///
/// # Errors
/// What is wrong with it.
pub fn read(path: &Path, commands: &Commands) -> Result<Config, Invalid> {
    let text = std::fs::read_to_string(path).map_err(|why| Invalid(why.to_string()))?;
    let config = if path.extension().is_some_and(|ending| ending == "toml") {
        native::parse(&text)
    } else {
        nutcracker::parse(&text)
    }?;
    check(&config)?;
    for pool in &config.pools {
        check_commands(pool, commands)
            .map_err(|why| Invalid(format!("pool '{}': {why}", pool.name)))?;
    }
    Ok(config)
}

const NO_REPLICAS: &str = "'reads' is for kinds that know replicas, sentinel and cluster";

/// What both formats have to observe.
fn check(config: &Config) -> Result<(), Invalid> {
    if config.pools.is_empty() {
        return Err(Invalid("there is no pool".into()));
    }
    let mut listens = Vec::new();
    for pool in &config.pools {
        let refuse = |why: String| Err(Invalid(format!("pool '{}': {why}", pool.name)));
        if pool.listen.is_empty() && pool.listen_tls.is_empty() {
            return refuse("it listens nowhere; set 'listen' or 'listen_tls'".into());
        }
        check_tls(pool).or_else(|Invalid(why)| refuse(why))?;
        for address in pool.listen.iter().chain(&pool.listen_tls) {
            if listens.contains(&address) {
                return refuse(format!("another pool listens on {address}, too"));
            }
            listens.push(address);
        }
        match &pool.kind {
            Kind::Servers(servers) => {
                if servers.is_empty() {
                    return refuse("it has no servers".into());
                }
                let mut names: Vec<&str> = servers.iter().map(|s| &s.member.name[..]).collect();
                names.sort_unstable();
                if pool.reads != Reads::Primary {
                    return refuse(NO_REPLICAS.into());
                }
                if let Some(pair) = names.windows(2).find(|pair| pair[0] == pair[1]) {
                    return refuse(format!("two servers are called '{}'", pair[0]));
                }
            }
            Kind::Sentinel { sentinels, .. } if sentinels.is_empty() => {
                return refuse("it has no sentinels".into());
            }
            Kind::Cluster { seeds } if seeds.is_empty() => return refuse("it has no seeds".into()),
            Kind::Single(_) if pool.reads != Reads::Primary => return refuse(NO_REPLICAS.into()),
            _ => {}
        }
    }
    Ok(())
}

/// Refuses names in `allow` and `deny` that would have no effect.
fn check_commands(pool: &Pool, commands: &Commands) -> Result<(), String> {
    for (key, names) in [("allow", &pool.allow), ("deny", &pool.deny)] {
        for name in names {
            let why = match commands.has(name) {
                true => continue,
                false if name.starts_with('=') => continue,
                false if name.starts_with('@') => "is a category; name its commands",
                false if name.contains('|') => "is no subcommand",
                // The names of modules' commands have a dot.
                false if name.contains('.') => continue,
                false => "is no command; put = before the name of one that only the servers know",
            };
            return Err(format!("'{key}': '{}' {why}", name.to_lowercase()));
        }
    }
    Ok(())
}

/// Returns whether all files of certificates can be used.
fn check_tls(pool: &Pool) -> Result<(), Invalid> {
    match &pool.tls {
        Some(tls) => drop(tls.load()?),
        None if pool.listen_tls.is_empty() => {}
        None => return Err(Invalid("'listen_tls' needs a certificate; set 'tls'".into())),
    }
    if let Some(path) = pool.listen_tls.iter().find(|at| matches!(at, Address::Unix(..))) {
        return Err(Invalid(format!("{path}: a Unix socket does not speak TLS")));
    }
    if let Some(tls) = &pool.server_tls {
        let rules = tls.load()?;
        let servers: &[Server] = match &pool.kind {
            Kind::Servers(servers) => servers,
            Kind::Single(server) => std::slice::from_ref(server),
            _ => &[],
        };
        for server in servers {
            tls.client(&rules, &server.address)?;
        }
    }
    if pool.sentinel_tls && pool.server_tls.is_none() {
        return Err(Invalid("'sentinel_tls' needs 'server_tls'".into()));
    }
    Ok(())
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

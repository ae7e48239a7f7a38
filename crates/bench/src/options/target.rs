//! Where a server is, and how to enter.

use super::args::{ConnectionArgs, TlsArgs};
use crate::generator::tls::TlsSettings;
use crate::sentinel::Sentinels;
use std::fmt;
use std::io;
use std::net::{SocketAddr, ToSocketAddrs};
use std::path::PathBuf;
use std::sync::Arc;

/// Where a server listens.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Address {
    /// A host and a port.
    Tcp {
        /// Name or address.
        host: String,
        /// The port.
        port: u16,
    },
    /// A Unix socket.
    Unix(PathBuf),
}

impl Address {
    /// The socket address, looked up.
    pub fn resolve(&self) -> io::Result<SocketAddr> {
        match self {
            Address::Tcp { host, port } => {
                let mut found = (host.as_str(), *port).to_socket_addrs()?;
                found.next().ok_or_else(|| io::Error::other(format!("{host} has no address")))
            }
            Address::Unix(_) => Err(io::Error::other("a Unix socket has no such address")),
        }
    }
}

impl fmt::Display for Address {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Address::Tcp { host, port } if host.contains(':') => write!(out, "[{host}]:{port}"),
            Address::Tcp { host, port } => write!(out, "{host}:{port}"),
            Address::Unix(path) => write!(out, "{}", path.display()),
        }
    }
}

/// A server and how its connections begin.
#[derive(Clone, Debug)]
pub struct Target {
    /// Where.
    pub address: Address,
    /// For AUTH.
    pub user: Option<String>,
    /// For AUTH.
    pub password: Option<String>,
    /// For SELECT.
    pub database: u32,
    /// HELLO 3 first.
    pub resp3: bool,
    /// Encryption.
    pub tls: Option<Arc<TlsSettings>>,
    /// Ask it for the other nodes.
    pub cluster: bool,
    /// Ask these where it is.
    pub sentinels: Option<Arc<Sentinels>>,
}

impl PartialEq for Target {
    fn eq(&self, other: &Target) -> bool {
        self.address == other.address && self.database == other.database
    }
}

impl Target {
    /// A server that is entered without further ado.
    pub fn plain(address: Address) -> Target {
        Target {
            address,
            user: None,
            password: None,
            database: 0,
            resp3: false,
            tls: None,
            cluster: false,
            sentinels: None,
        }
    }

    /// What the arguments say.
    pub fn new(connection: &ConnectionArgs, tls: &TlsArgs) -> Result<Target, String> {
        let mut target = Target {
            address: match &connection.socket {
                Some(path) => Address::Unix(path.clone()),
                None => Address::Tcp { host: connection.host.clone(), port: connection.port },
            },
            user: connection.user.clone(),
            password: connection.password.clone(),
            database: connection.dbnum,
            resp3: connection.resp3,
            tls: None,
            cluster: connection.cluster,
            sentinels: None,
        };
        let mut tls = tls.clone();
        if let Some(url) = &connection.uri {
            target.enter(url, &mut tls)?;
        }
        if target.user.is_some() && target.password.is_none() {
            return Err("--user needs a password (-a)".into());
        }
        if target.cluster && target.database != 0 {
            return Err("a cluster has no databases but 0".into());
        }
        if let Some(list) = &connection.sentinel {
            let sentinels = Sentinels::parse(list, &connection.sentinel_name)?;
            target.address = sentinels.primary().map_err(|error| error.to_string())?;
            target.sentinels = Some(Arc::new(sentinels));
        }
        target.encrypt(&tls)?;
        Ok(target)
    }

    /// Another server, from its URL; what the URL does not say is as with this one.
    pub fn other(&self, url: &str, tls: &TlsArgs) -> Result<Target, String> {
        let mut target = Target {
            user: None,
            password: None,
            database: 0,
            tls: None,
            sentinels: None,
            ..self.clone()
        };
        let mut tls = TlsArgs { tls: false, ..tls.clone() };
        target.enter(url, &mut tls)?;
        target.encrypt(&tls)?;
        Ok(target)
    }

    /// The same server's way in, at another node's address.
    pub fn at(&self, address: Address) -> Target {
        Target { address, ..self.clone() }
    }

    fn encrypt(&mut self, tls: &TlsArgs) -> Result<(), String> {
        if tls.tls {
            let host = match &self.address {
                Address::Tcp { host, .. } => host.as_str(),
                Address::Unix(_) => return Err("--tls does not go with a Unix socket".into()),
            };
            self.tls = Some(Arc::new(TlsSettings::new(tls, host)?));
        }
        Ok(())
    }

    fn enter(&mut self, url: &str, tls: &mut TlsArgs) -> Result<(), String> {
        let refuse = |why: &str| format!("{url}: {why}");
        let Some((scheme, rest)) = url.split_once("://") else {
            // A bare host:port is what people type.
            return self.enter(&format!("redis://{url}"), tls);
        };
        match scheme {
            "redis" | "valkey" => {}
            "rediss" | "valkeys" => tls.tls = true,
            "unix" => {
                self.address = Address::Unix(PathBuf::from(rest));
                return Ok(());
            }
            _ => return Err(refuse("the schemes are redis, rediss, valkey, valkeys and unix")),
        }
        let (login, place) = match rest.rsplit_once('@') {
            Some((login, place)) => (Some(login), place),
            None => (None, rest),
        };
        if let Some(login) = login {
            // Without a colon redis-benchmark takes it for the password.
            let (user, password) = login.split_once(':').unwrap_or(("", login));
            let decode = |text: &str| {
                percent_decoded(text).ok_or_else(|| refuse("a % is not followed by two hex digits"))
            };
            self.user = Some(decode(user)?).filter(|user| !user.is_empty());
            self.password = Some(decode(password)?);
        }
        let (place, database) = place.split_once('/').unwrap_or((place, ""));
        if !database.is_empty() {
            self.database = database
                .parse()
                .map_err(|_| refuse("after the / comes the number of a database"))?;
        }
        // An IPv6 address stands in brackets.
        let (host, port) = match place.strip_prefix('[').and_then(|place| place.split_once(']')) {
            Some((host, rest)) => (host, rest.strip_prefix(':').unwrap_or("")),
            None => place.split_once(':').unwrap_or((place, "")),
        };
        self.address = Address::Tcp {
            host: if host.is_empty() { "127.0.0.1" } else { host }.into(),
            port: match port {
                "" => 6379,
                port => port.parse().map_err(|_| refuse("after the : comes a port"))?,
            },
        };
        Ok(())
    }

    /// The requests that open a connection, and how many replies they get.
    pub fn greeting(&self) -> (Vec<u8>, usize) {
        let mut out = Vec::new();
        let mut replies = 0;
        let mut push = |words: &[&str]| {
            crate::client::encode(&mut out, words);
            replies += 1;
        };
        let login = self.password.as_deref().map(|password| (self.user.as_deref(), password));
        match (self.resp3, login) {
            (true, Some((user, password))) => {
                push(&["HELLO", "3", "AUTH", user.unwrap_or("default"), password]);
            }
            (true, None) => push(&["HELLO", "3"]),
            (false, Some((Some(user), password))) => push(&["AUTH", user, password]),
            (false, Some((None, password))) => push(&["AUTH", password]),
            (false, None) => {}
        }
        if self.database != 0 {
            push(&["SELECT", &self.database.to_string()]);
        }
        (out, replies)
    }
}

fn percent_decoded(text: &str) -> Option<String> {
    let mut bytes = Vec::new();
    let mut rest = text.as_bytes();
    while let Some((&first, tail)) = rest.split_first() {
        if first == b'%' {
            let hex = std::str::from_utf8(tail.get(..2)?).ok()?;
            bytes.push(u8::from_str_radix(hex, 16).ok()?);
            rest = &tail[2..];
        } else {
            bytes.push(first);
            rest = tail;
        }
    }
    String::from_utf8(bytes).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn target() -> Target {
        Target::plain(Address::Unix("/".into()))
    }

    #[test]
    fn urls() {
        let parse = |url: &str| {
            let (mut target, mut tls) = (target(), TlsArgs::default());
            target.enter(url, &mut tls).map(|()| {
                let login = (target.user.unwrap_or_default(), target.password.unwrap_or_default());
                format!(
                    "{} {} {} {} {}",
                    target.address, login.0, login.1, target.database, tls.tls
                )
            })
        };
        assert_eq!(parse("redis://a:1/2").unwrap(), "a:1   2 false");
        assert_eq!(parse("rediss://me:p%40s@a").unwrap(), "a:6379 me p@s 0 true");
        assert_eq!(parse("valkey://secret@[::1]:7").unwrap(), "[::1]:7  secret 0 false");
        assert_eq!(parse("unix:///tmp/x").unwrap(), "/tmp/x   0 false");
        assert_eq!(parse("host:7001").unwrap(), "host:7001   0 false");
        for wrong in ["http://a", "redis://a:b", "redis://a/b", "redis://%g@a"] {
            assert!(parse(wrong).unwrap_err().starts_with(wrong));
        }
    }

    #[test]
    fn greetings() {
        let mut target = target();
        assert_eq!(target.greeting(), (Vec::new(), 0));
        target.password = Some("p".into());
        target.database = 3;
        let text =
            |target: &Target| String::from_utf8(target.greeting().0).unwrap().replace("\r\n", " ");
        assert_eq!(text(&target), "*2 $4 AUTH $1 p *2 $6 SELECT $1 3 ");
        target.resp3 = true;
        assert_eq!(target.greeting().1, 2);
        assert!(text(&target).starts_with("*5 $5 HELLO $1 3 $4 AUTH $7 default $1 p "));
    }
}

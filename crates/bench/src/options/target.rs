//! Where a server is, and how to enter.

use super::args::{ConnectionArgs, TlsArgs};
use crate::sentinel::Sentinels;
use client::{Address, Client, Connector, Credentials, Patience, Scheme, Url};
use net::TlsClient;
use resp::Value;
use resp::bulk::push_request;
use std::io;
use std::net::{SocketAddr, ToSocketAddrs};
use std::sync::Arc;
use std::time::Duration;

/// How long to wait for a server that does not answer what is asked beside the load.
const PATIENCE: Patience = Patience::Each(Duration::from_secs(10));

/// Looks up the address of a host.
pub fn resolve(host: &str, port: u16) -> io::Result<SocketAddr> {
    let found = (host, port).to_socket_addrs()?.next();
    found.ok_or_else(|| io::Error::other(format!("{host} has no address")))
}

/// Says that a reply is not what was asked for.
pub fn unexpected(name: &str, reply: &Value) -> io::Error {
    match reply.error() {
        Some(text) => io::Error::other(text.into_owned()),
        None => io::Error::other(format!("{name} was answered by {reply:?}")),
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
    pub tls: Option<TlsClient>,
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
                None => Address::tcp(&connection.host, connection.port),
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
            self.tls = Some(tls.options().client(host)?);
        }
        Ok(())
    }

    fn enter(&mut self, url: &str, tls: &mut TlsArgs) -> Result<(), String> {
        let refuse = |why: &str| format!("{url}: {why}");
        if !url.contains("://") {
            // A bare host:port is what people type.
            return self.enter(&format!("redis://{url}"), tls);
        }
        let parsed = Url::parse(url).map_err(|why| refuse(&why.to_string()))?;
        if parsed.scheme == Scheme::Sentinel || parsed.hosts.len() > 1 {
            return Err(refuse("one server is meant; sentinels have --sentinel"));
        }
        self.address = parsed.address("127.0.0.1", 6379);
        tls.tls |= parsed.is_tls;
        if parsed.scheme == Scheme::Unix {
            return Ok(());
        }
        if !parsed.path.is_empty() {
            self.database = parsed
                .path
                .parse()
                .map_err(|_| refuse("after the / comes the number of a database"))?;
        }
        // Without a colon redis-benchmark takes it for the password.
        if let Some((user, password)) = parsed.credentials.map(Credentials::user_and_password) {
            self.user = user;
            self.password = Some(password);
        }
        Ok(())
    }

    /// Connects, logs in and selects the database: for what has to be asked beside the load (INFO,
    /// CLUSTER SLOTS, reading back).
    pub fn connect(&self) -> io::Result<Client> {
        let connector = Connector { tls: self.tls.as_ref(), ..Connector::plain(PATIENCE) };
        let mut client = connector.open(&self.address)?;
        let (greeting, replies) = self.greeting();
        client.queue_raw(&greeting);
        client.flush()?;
        for _ in 0..replies {
            if let Some(text) = client.reply()?.error() {
                return Err(io::Error::other(text.into_owned()));
            }
        }
        Ok(client)
    }

    /// The requests that open a connection, and how many replies they get.
    pub fn greeting(&self) -> (Vec<u8>, usize) {
        let mut out = Vec::new();
        let mut replies = 0;
        let mut push = |words: &[&str]| {
            push_request(&mut out, words);
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

//! Where servers are, as users write it: `redis://[user:password@]host:port[,host:port…]`.
//!
//! `rediss` is TLS. `redis-sentinel://host:port,…/name` names a primary that sentinels know;
//! `redis-sentinels` is the same with TLS to all of them. The password of sentinels is
//! `sentinel-password=` behind a question mark. `cacert=FILE` names the authorities of TLS,
//! `insecure=1` accepts a certificate of any name.

use client::{Client, Connector, Credentials, Patience, Scheme, Url, UrlError, decoded};
use net::{NameCheck, TlsClient, TlsSettings, client_rules};
use rustls::ClientConfig;
use std::fmt;
use std::io;
use std::net::{IpAddr, Ipv6Addr};
use std::sync::Arc;
use std::time::Duration;

/// The authorities that are asked for if none are named.
const SYSTEM_AUTHORITIES: &str = "/etc/ssl/certs/ca-certificates.crt";

/// The port of a server that is named without one.
const PORT: u16 = 6379;

/// The port of a sentinel that is named without one.
const SENTINEL_PORT: u16 = 26379;

/// A host and its port.
pub type Address = (String, u16);

/// How to log in.
#[derive(Clone, PartialEq, Eq, Default)]
pub struct Login {
    /// Empty for the default user.
    pub user: String,
    /// Empty for none.
    pub password: String,
}

/// See the head of this file.
#[derive(Clone, PartialEq, Eq)]
pub struct ServersUrl {
    /// Servers, or sentinels.
    pub hosts: Vec<Address>,
    /// How to log in to servers.
    pub login: Login,
    /// How to log in to sentinels.
    pub sentinel_password: String,
    /// The name by which sentinels know the primary; `None` if the hosts are servers.
    pub primary: Option<String>,
    /// Whether connections use TLS.
    pub is_tls: bool,
    /// The file with the authorities of TLS.
    pub authorities: String,
    /// A certificate of any name is accepted.
    pub accepts_any_name: bool,
}

impl fmt::Display for ServersUrl {
    /// Without passwords.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let hosts: Vec<String> =
            self.hosts.iter().map(|(host, port)| format!("{host}:{port}")).collect();
        let tls = if self.is_tls { "s" } else { "" };
        match &self.primary {
            Some(name) => write!(f, "redis-sentinel{tls}://{}/{name}", hosts.join(",")),
            None => write!(f, "redis{tls}://{}", hosts.join(",")),
        }
    }
}

impl ServersUrl {
    /// Reads what a user has written.
    ///
    /// # Errors
    /// What is wrong with it.
    pub fn parse(text: &str) -> Result<ServersUrl, String> {
        let (text, query) = text.split_once('?').unwrap_or((text, ""));
        let url = Url::parse(text).map_err(|why| match why {
            UrlError::NoScheme => {
                format!("'{}' is no address: write redis://host:port", without_password(text))
            }
            UrlError::Scheme(_) => {
                format!("{why}: write redis://, rediss:// or redis-sentinel://")
            }
            why => why.to_string(),
        })?;
        let (is_sentinel, usual) = match url.scheme {
            Scheme::Redis => (false, PORT),
            Scheme::Sentinel => (true, SENTINEL_PORT),
            Scheme::Unix => {
                return Err("'unix://' is not known here: write redis:// or rediss://".into());
            }
        };
        let (user, password) =
            url.credentials.map(Credentials::user_and_password).unwrap_or_default();
        let host = |(host, port): (String, Option<u16>)| match host.is_empty() {
            true => Err("a host is missing: write redis://host:port".to_owned()),
            false => Ok((host, port.unwrap_or(usual))),
        };
        let hosts: Result<Vec<Address>, String> = url.hosts.into_iter().map(host).collect();
        let (path, is_tls) = (url.path, url.is_tls);
        let mut place = ServersUrl {
            hosts: hosts?,
            login: Login { user: user.unwrap_or_default(), password },
            sentinel_password: String::new(),
            primary: is_sentinel.then(|| path.clone()),
            is_tls,
            authorities: SYSTEM_AUTHORITIES.into(),
            accepts_any_name: false,
        };
        if is_sentinel && path.is_empty() {
            return Err(
                "the name of the primary is missing: redis-sentinel://host:port/NAME".into()
            );
        }
        if !is_sentinel && !matches!(&*path, "" | "0") {
            return Err(format!("'/{path}': all databases of the server are taken, leave it out"));
        }
        for pair in query.split('&').filter(|pair| !pair.is_empty()) {
            let (name, value) = pair.split_once('=').unwrap_or((pair, ""));
            match name {
                "cacert" => place.authorities = decode(value)?,
                "insecure" => place.accepts_any_name = value == "1",
                "sentinel-password" => place.sentinel_password = decode(value)?,
                _ => {
                    return Err(format!(
                        "'{name}' is not known behind '?': write cacert, insecure or sentinel-password"
                    ));
                }
            }
        }
        Ok(place)
    }

    /// A server without TLS.
    pub fn plain(address: Address, login: Login) -> ServersUrl {
        ServersUrl {
            hosts: vec![address],
            login,
            sentinel_password: String::new(),
            primary: None,
            is_tls: false,
            authorities: String::new(),
            accepts_any_name: false,
        }
    }

    /// The rules of TLS, if connections use it.
    ///
    /// # Errors
    /// The authorities cannot be read.
    pub fn rules(&self) -> Result<Option<Arc<ClientConfig>>, String> {
        if !self.is_tls {
            return Ok(None);
        }
        let names = if self.accepts_any_name { NameCheck::Any } else { NameCheck::Same };
        let settings =
            TlsSettings { ca_cert_file: self.authorities.clone(), ..TlsSettings::default() };
        client_rules(&settings, names).map(Some).map_err(|error| error.to_string())
    }
}

/// Hides what may be a password in a text that is no address.
fn without_password(text: &str) -> &str {
    text.rsplit_once('@').map_or(text, |(_, rest)| rest)
}

fn decode(text: &str) -> Result<String, String> {
    decoded(text).map_err(|why| why.to_string())
}

/// What AWS answers at beside 169.254.169.254.
const METADATA: Ipv6Addr = Ipv6Addr::new(0xfd00, 0xec2, 0, 0, 0, 0, 0, 0x254);

/// Returns whether an address is one of the link. No server or storage of users is there: clouds
/// give keys to their machines at such addresses.
pub fn is_of_link(address: IpAddr) -> bool {
    match address.to_canonical() {
        IpAddr::V4(address) => address.is_link_local(),
        IpAddr::V6(address) => address.is_unicast_link_local() || address == METADATA,
    }
}

/// Connects and logs in. `limit`: how long that, and later each reply, may take. The name is looked
/// up once: what is checked is what is connected to.
///
/// # Errors
/// The server cannot be reached, or refuses the login, or its address is one of the link.
pub fn connect(
    (host, port): &Address,
    login: &Login,
    rules: Option<&Arc<ClientConfig>>,
    limit: Duration,
) -> io::Result<Client> {
    let tls = rules.map(|rules| TlsClient::new(Arc::clone(rules), host)).transpose()?;
    let connector = Connector {
        tls: tls.as_ref(),
        login: client::Login { user: &login.user, password: &login.password },
        check: Some(|address| match is_of_link(address) {
            true => Err(io::Error::other(format!(
                "{address} is an address of the link, and no server's"
            ))),
            false => Ok(()),
        }),
        ..Connector::plain(Patience::Each(limit))
    };
    connector.open(&client::Address::tcp(host, *port))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_of_the_link_are_not_connected_to() {
        let limit = Duration::from_secs(5);
        for host in ["169.254.169.254", "fe80::1", "::ffff:169.254.1.1", "fd00:ec2::254"] {
            let refused = connect(&(host.into(), 1), &Login::default(), None, limit);
            let why = refused.err().expect("it is refused").to_string();
            assert!(why.contains("an address of the link"), "{host}: {why}");
        }
        // Others are tried.
        let refused = connect(&("127.0.0.1".into(), 1), &Login::default(), None, limit);
        assert!(!refused.err().expect("nothing listens").to_string().contains("link"));
    }

    #[test]
    fn addresses_are_read() {
        let place = ServersUrl::parse("redis://u:p%40w@h:7001,[::1]:7002,k").unwrap();
        assert_eq!(place.hosts, [("h".into(), 7001), ("::1".into(), 7002), ("k".into(), 6379)]);
        assert_eq!((&*place.login.user, &*place.login.password), ("u", "p@w"));
        assert!(!place.is_tls && !place.to_string().contains("p@w"));
        let place = ServersUrl::parse("redis-sentinel://a,b:1/main?sentinel-password=x").unwrap();
        assert_eq!((place.primary.as_deref(), &*place.sentinel_password), (Some("main"), "x"));
        assert_eq!(place.hosts[0], ("a".into(), 26379));
        let place = ServersUrl::parse("rediss://:word@h?cacert=/x&insecure=1").unwrap();
        assert!(place.is_tls && place.accepts_any_name && place.login.password == "word");
    }

    #[test]
    fn nonsense_is_refused_without_passwords() {
        for text in [
            "h:1",
            "http://h",
            "redis://h:x",
            "redis://h/3",
            "redis-sentinel://h",
            "redis://",
            "redis://h?x=1",
        ] {
            assert!(ServersUrl::parse(text).is_err(), "{text}");
        }
        assert!(!ServersUrl::parse("u:secret@h").err().unwrap().contains("secret"));
    }
}

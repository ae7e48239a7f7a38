//! Where servers are, as users write it: `redis://[user:password@]host:port[,host:port…]`.
//!
//! `rediss` is TLS. `redis-sentinel://host:port,…/name` names a primary that sentinels know;
//! `redis-sentinels` is the same with TLS to all of them. The password of sentinels is
//! `sentinel-password=` behind a question mark. `cacert=FILE` names the authorities of TLS,
//! `insecure=1` accepts a certificate of any name.

use net::{NameCheck, TlsSettings, client_rules};
use rustls::ClientConfig;
use std::fmt;
use std::sync::Arc;

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
pub struct Place {
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

impl fmt::Display for Place {
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

impl Place {
    /// Reads what a user has written.
    ///
    /// # Errors
    /// What is wrong with it.
    pub fn parse(text: &str) -> Result<Place, String> {
        let (scheme, rest) = text.split_once("://").ok_or_else(|| {
            format!("'{}' is no address: write redis://host:port", without_password(text))
        })?;
        let (is_sentinel, is_tls) = match scheme {
            "redis" | "valkey" => (false, false),
            "rediss" | "valkeys" => (false, true),
            "redis-sentinel" => (true, false),
            "redis-sentinels" => (true, true),
            _ => {
                return Err(format!(
                    "'{scheme}://' is not known: write redis://, rediss:// or redis-sentinel://"
                ));
            }
        };
        let (rest, query) = rest.split_once('?').unwrap_or((rest, ""));
        let (login, rest) = rest.rsplit_once('@').unwrap_or(("", rest));
        let (hosts, path) = rest.split_once('/').unwrap_or((rest, ""));
        let (user, password) = match login.split_once(':') {
            Some((user, password)) => (decode(user)?, decode(password)?),
            None => (String::new(), decode(login)?),
        };
        let usual = if is_sentinel { SENTINEL_PORT } else { PORT };
        let hosts: Result<Vec<Address>, String> =
            hosts.split(',').map(|host| address(host, usual)).collect();
        let mut place = Place {
            hosts: hosts?,
            login: Login { user, password },
            sentinel_password: String::new(),
            primary: is_sentinel.then(|| path.to_owned()),
            is_tls,
            authorities: SYSTEM_AUTHORITIES.into(),
            accepts_any_name: false,
        };
        if is_sentinel && path.is_empty() {
            return Err(
                "the name of the primary is missing: redis-sentinel://host:port/NAME".into()
            );
        }
        if !is_sentinel && !matches!(path, "" | "0") {
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
    pub fn plain(address: Address, login: Login) -> Place {
        Place {
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

fn address(text: &str, usual: u16) -> Result<Address, String> {
    let wrong = || format!("'{text}' is no host and port");
    // An address of version 6 is in brackets.
    let (host, port) = match text.strip_prefix('[').and_then(|rest| rest.split_once(']')) {
        Some((host, rest)) => (host, rest.strip_prefix(':')),
        None => text.rsplit_once(':').map_or((text, None), |(host, port)| (host, Some(port))),
    };
    let port = port.map_or(Ok(usual), |port| port.parse().map_err(|_| wrong()))?;
    if host.is_empty() { Err(wrong()) } else { Ok((host.to_owned(), port)) }
}

/// Replaces `%40` and its like.
fn decode(text: &str) -> Result<String, String> {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.as_bytes();
    while let [first, behind @ ..] = rest {
        rest = behind;
        if *first != b'%' {
            bytes.push(*first);
            continue;
        }
        let digits = behind.get(..2).and_then(|digits| std::str::from_utf8(digits).ok());
        let byte = digits.and_then(|digits| u8::from_str_radix(digits, 16).ok());
        bytes.push(byte.ok_or("a '%' is followed by two hexadecimal digits")?);
        rest = &behind[2..];
    }
    String::from_utf8(bytes).map_err(|_| "user and password are UTF-8".into())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_are_read() {
        let place = Place::parse("redis://u:p%40w@h:7001,[::1]:7002,k").unwrap();
        assert_eq!(place.hosts, [("h".into(), 7001), ("::1".into(), 7002), ("k".into(), 6379)]);
        assert_eq!((&*place.login.user, &*place.login.password), ("u", "p@w"));
        assert!(!place.is_tls && !place.to_string().contains("p@w"));
        let place = Place::parse("redis-sentinel://a,b:1/main?sentinel-password=x").unwrap();
        assert_eq!((place.primary.as_deref(), &*place.sentinel_password), (Some("main"), "x"));
        assert_eq!(place.hosts[0], ("a".into(), 26379));
        let place = Place::parse("rediss://:word@h?cacert=/x&insecure=1").unwrap();
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
            assert!(Place::parse(text).is_err(), "{text}");
        }
        assert!(!Place::parse("u:secret@h").err().unwrap().contains("secret"));
    }
}

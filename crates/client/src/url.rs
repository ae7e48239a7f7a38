//! Addresses as users write them: `redis://[user:password@]host[:port][,host…][/path]`.
//!
//! They are read by hand, not by the rules for URLs: several hosts stand between commas, and a
//! password may have a slash or an @ in it, as Redis's own tools take it.

use percent_encoding::percent_decode_str;
use std::fmt;
use std::path::PathBuf;

/// What a URL leads to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Scheme {
    /// Servers: `redis`, `valkey`, and with TLS `rediss`, `valkeys`.
    Redis,
    /// Sentinels that know a server: `redis-sentinel`, and with TLS `redis-sentinels`.
    Sentinel,
    /// A Unix socket: `unix`.
    Unix,
}

/// The words in front of the @.
#[derive(Clone, PartialEq, Eq)]
pub enum Credentials {
    /// One word: tools take it for a password, some for a user.
    Word(String),
    /// A user, which may be empty, and a password.
    Pair(String, String),
}

impl Credentials {
    /// Returns the user, if there is one, and the password. One word is a password.
    pub fn user_and_password(self) -> (Option<String>, String) {
        match self {
            Credentials::Word(password) => (None, password),
            Credentials::Pair(user, password) => (Some(user).filter(|it| !it.is_empty()), password),
        }
    }
}

/// See the head of this file.
#[derive(Clone, PartialEq, Eq)]
pub struct Url {
    /// What it leads to.
    pub scheme: Scheme,
    /// Whether connections use TLS.
    pub is_tls: bool,
    /// How to log in.
    pub credentials: Option<Credentials>,
    /// Hosts, which may be empty, with their ports. At least one; none of a Unix socket.
    pub hosts: Vec<(String, Option<u16>)>,
    /// What is behind the slash: a database, or the name by which sentinels know a server. Of a
    /// Unix socket: its path.
    pub path: String,
}

/// What is wrong with a URL. The texts have no password.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum UrlError {
    /// There is no `://`.
    NoScheme,
    /// The scheme is not known.
    Scheme(String),
    /// A % is not followed by two hexadecimal digits.
    Percent,
    /// What is encoded is no UTF-8.
    Utf8,
    /// What stands for a port is none.
    Port(String),
}

impl fmt::Display for UrlError {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            UrlError::NoScheme => out.write_str("it does not begin with redis://"),
            UrlError::Scheme(scheme) => write!(out, "'{scheme}://' is not known"),
            UrlError::Percent => out.write_str("a '%' is not followed by two hexadecimal digits"),
            UrlError::Utf8 => out.write_str("what is encoded with '%' is no UTF-8"),
            UrlError::Port(port) => write!(out, "'{port}' is no port"),
        }
    }
}

impl Url {
    /// Reads a URL.
    ///
    /// # Errors
    /// What is wrong with it.
    pub fn parse(text: &str) -> Result<Url, UrlError> {
        let (scheme, rest) = text.split_once("://").ok_or(UrlError::NoScheme)?;
        let (scheme, is_tls) = match &*scheme.to_ascii_lowercase() {
            "redis" | "valkey" => (Scheme::Redis, false),
            "rediss" | "valkeys" => (Scheme::Redis, true),
            "redis-sentinel" => (Scheme::Sentinel, false),
            "redis-sentinels" => (Scheme::Sentinel, true),
            "unix" => (Scheme::Unix, false),
            other => return Err(UrlError::Scheme(other.to_owned())),
        };
        if scheme == Scheme::Unix {
            let path = rest.to_owned();
            return Ok(Url { scheme, is_tls, credentials: None, hosts: Vec::new(), path });
        }
        let (login, rest) = match rest.rsplit_once('@') {
            Some((login, rest)) => (Some(login), rest),
            None => (None, rest),
        };
        let (hosts, path) = rest.split_once('/').unwrap_or((rest, ""));
        Ok(Url {
            scheme,
            is_tls,
            credentials: login.map(credentials).transpose()?,
            hosts: hosts.split(',').map(host).collect::<Result<_, _>>()?,
            path: path.to_owned(),
        })
    }

    /// Returns the address of the first host, or of the Unix socket, with these in place of what is
    /// left out.
    pub fn address(&self, host: &str, port: u16) -> crate::Address {
        match self.hosts.first() {
            None => crate::Address::Unix(PathBuf::from(&self.path)),
            Some((found, own)) => {
                let host = if found.is_empty() { host } else { found };
                crate::Address::tcp(host, own.unwrap_or(port))
            }
        }
    }
}

fn credentials(text: &str) -> Result<Credentials, UrlError> {
    Ok(match text.split_once(':') {
        Some((user, password)) => Credentials::Pair(decoded(user)?, decoded(password)?),
        None => Credentials::Word(decoded(text)?),
    })
}

fn host(text: &str) -> Result<(String, Option<u16>), UrlError> {
    // An address of version 6 is in brackets.
    let (host, port) = match text.strip_prefix('[').and_then(|rest| rest.split_once(']')) {
        Some((host, "")) => (host, None),
        Some((host, rest)) => (host, Some(rest.strip_prefix(':').unwrap_or("]"))),
        None => text.rsplit_once(':').map_or((text, None), |(host, port)| (host, Some(port))),
    };
    let number = |port: &str| port.parse().map_err(|_| UrlError::Port(port.to_owned()));
    Ok((decoded(host)?, port.map(number).transpose()?))
}

/// Replaces `%40` and its like.
///
/// # Errors
/// A % is followed by something else, or bytes are no UTF-8.
pub fn decoded(text: &str) -> Result<String, UrlError> {
    let is_encoded = |rest: &str| {
        rest.as_bytes().get(..2).is_some_and(|two| two.iter().all(u8::is_ascii_hexdigit))
    };
    if !text.split('%').skip(1).all(is_encoded) {
        return Err(UrlError::Percent);
    }
    let decoded = percent_decode_str(text).decode_utf8().map_err(|_| UrlError::Utf8)?;
    Ok(decoded.into_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn hosts(text: &str) -> Result<Vec<(String, Option<u16>)>, UrlError> {
        Url::parse(text).map(|url| url.hosts)
    }

    fn login(text: &str) -> (Option<String>, String) {
        Url::parse(text).ok().and_then(|url| url.credentials).unwrap().user_and_password()
    }

    #[test]
    fn every_part_is_taken() {
        let url = Url::parse("REDISS://bob:a%3ab@10.0.0.1:7000/3").ok().unwrap();
        assert_eq!((url.scheme, url.is_tls, &*url.path), (Scheme::Redis, true, "3"));
        assert_eq!(url.address("h", 1), crate::Address::tcp("10.0.0.1", 7000));
        let url = Url::parse("valkey://").ok().unwrap();
        assert_eq!(url.address("h", 1), crate::Address::tcp("h", 1));
        let url = Url::parse("unix:///run/a@b.sock").ok().unwrap();
        assert_eq!(url.address("h", 1), crate::Address::Unix("/run/a@b.sock".into()));
        let several = vec![("h".into(), Some(7001)), ("::1".into(), Some(7)), ("k".into(), None)];
        assert_eq!(hosts("redis-sentinel://h:7001,[::1]:7,k/main"), Ok(several));
        assert_eq!(hosts("redis://[::1]"), Ok(vec![("::1".into(), None)]));
    }

    #[test]
    fn passwords_have_what_they_have() {
        assert_eq!(login("redis://bob:a%3ab@h"), (Some("bob".into()), "a:b".into()));
        assert_eq!(login("redis://:pw@h"), (None, "pw".into()));
        assert_eq!(login("redis://pw@h"), (None, "pw".into()));
        assert_eq!(login("redis://u:p@s/s:w@h:1"), (Some("u".into()), "p@s/s:w".into()));
        assert_eq!(login("redis://u:%C3%A4@h").1, "ä");
    }

    #[test]
    fn nonsense_is_refused() {
        assert_eq!(hosts("h:1"), Err(UrlError::NoScheme));
        assert_eq!(hosts("http://a"), Err(UrlError::Scheme("http".into())));
        assert_eq!(hosts("redis://a:b"), Err(UrlError::Port("b".into())));
        assert_eq!(hosts("redis://[::1]7"), Err(UrlError::Port("]".into())));
        for wrong in ["redis://%g@a", "redis://a%4:b@h", "redis://a%@h", "redis://%+1@h"] {
            assert_eq!(hosts(wrong), Err(UrlError::Percent), "{wrong}");
        }
        assert_eq!(hosts("redis://%ff@a"), Err(UrlError::Utf8));
    }
}

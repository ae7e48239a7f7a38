//! Where an etcd is: `etcd://host:port` or `https://host:port`, several of them with commas.

use std::fmt;
use std::str::FromStr;

/// The port of etcd's clients, if none is named.
pub const DEFAULT_PORT: u16 = 2379;

/// A server of an etcd.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Endpoint {
    /// Its host.
    pub host: String,
    /// Its port.
    pub port: u16,
    /// It is spoken to by TLS (`https://`).
    pub is_tls: bool,
}

/// Why an address cannot be used.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Unusable(pub(crate) String);

impl fmt::Display for Unusable {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for Unusable {}

impl fmt::Display for Endpoint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.host.contains(':') {
            true => write!(f, "[{}]:{}", self.host, self.port),
            false => write!(f, "{}:{}", self.host, self.port),
        }
    }
}

impl FromStr for Endpoint {
    type Err = Unusable;

    fn from_str(text: &str) -> Result<Endpoint, Unusable> {
        let wrong = |why: &str| Unusable(format!("'{text}' is no address of etcd: {why}"));
        let (is_tls, rest) = match text.split_once("://") {
            None => (false, text),
            Some(("etcd" | "http", rest)) => (false, rest),
            Some(("etcds" | "https", rest)) => (true, rest),
            Some(_) => return Err(wrong("it begins with etcd://, http:// or https://")),
        };
        // Addresses are copied from browsers and from the list of members.
        let rest = rest.strip_suffix('/').unwrap_or(rest);
        if rest.contains('@') {
            return Err(Unusable(
                "an address of etcd has no user and password in it: they have options of their own"
                    .into(),
            ));
        }
        let (host, port) = match rest.strip_prefix('[') {
            Some(rest) => rest.split_once(']').ok_or_else(|| wrong("a ] is missing"))?,
            None => rest.split_at(rest.find(':').unwrap_or(rest.len())),
        };
        let is_plain = |host: &str| {
            host.bytes().all(|byte| byte.is_ascii_alphanumeric() || b".-_:%".contains(&byte))
        };
        if host.is_empty() || !is_plain(host) {
            return Err(wrong("the host is not plain"));
        }
        let port = match port.strip_prefix(':') {
            None if port.is_empty() => DEFAULT_PORT,
            Some(digits) => digits.parse().map_err(|_| wrong("the port is not a number"))?,
            None => return Err(wrong("only a port follows the host")),
        };
        Ok(Endpoint { host: host.into(), port, is_tls })
    }
}

impl Endpoint {
    /// Its address as etcd writes it: `http://host:port` or `https://host:port`.
    pub fn url(&self) -> String {
        format!("{}://{self}", if self.is_tls { "https" } else { "http" })
    }

    /// Reads a list with commas.
    pub fn list(text: &str) -> Result<Vec<Endpoint>, Unusable> {
        text.split(',').map(|part| part.trim().parse()).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_are_read() {
        for (text, expected) in [
            ("etcd://a:1", "a:1"),
            ("http://10.0.0.1:2379", "10.0.0.1:2379"),
            ("b.example", "b.example:2379"),
            ("etcd://[::1]:7", "[::1]:7"),
            ("[fe80::1%eth0]", "[fe80::1%eth0]:2379"),
            ("https://a:1/", "a:1"),
        ] {
            let read = text.parse::<Endpoint>().map(|endpoint| endpoint.to_string());
            assert_eq!(read.as_deref(), Ok(expected));
        }
        assert_eq!(Endpoint::list("etcd://a:1, b:2").map(|list| list.len()), Ok(2));
        let url = |text: &str| text.parse::<Endpoint>().map(|endpoint| endpoint.url());
        assert_eq!(url("etcds://[::1]"), Ok("https://[::1]:2379".into()));
        assert_eq!(url("a:1"), Ok("http://a:1".into()));
        let is_tls = |text: &str| text.parse::<Endpoint>().map(|endpoint| endpoint.is_tls);
        assert_eq!(
            [is_tls("https://a"), is_tls("etcds://a"), is_tls("http://a")],
            [Ok(true), Ok(true), Ok(false)]
        );
    }

    #[test]
    fn what_is_no_address_is_refused() {
        for (text, why) in [
            ("redis://a:1", "it begins with"),
            ("etcd://", "the host"),
            ("etcd://a:x", "the port"),
            ("etcd://a:1/name", "the port"),
            ("etcd://[::1", "a ] is missing"),
            ("a b:1", "the host"),
            ("etcd://user:word@a:1", "options of their own"),
            ("a:1,", "the host"),
        ] {
            let refusal = Endpoint::list(text).expect_err("it is wrong").to_string();
            assert!(refusal.contains(why), "{refusal}");
        }
    }
}

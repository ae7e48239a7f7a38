//! An etcd as it is configured: its servers, and files and words that let a client in. Clients are
//! made of it.

use crate::{Access, Client, Endpoint, Unusable};
use client::Renewed;
use cluster::Moment;
use net::{NameCheck, TlsSettings};
use std::fmt;
use std::sync::Arc;

/// What a client shows, as options have it. All may be empty.
#[derive(Clone, PartialEq, Eq, Default)]
pub struct Credentials {
    /// A file with the authorities that etcd's certificate must come from.
    pub ca_cert_file: String,
    /// A file with the certificate that is shown.
    pub cert_file: String,
    /// A file with its key.
    pub key_file: String,
    /// The user's name.
    pub user: String,
    /// The user's password.
    pub password: String,
}

impl fmt::Debug for Credentials {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Credentials { ca_cert_file, cert_file, key_file, user, password: _ } = self;
        let files = [ca_cert_file, cert_file, key_file];
        f.debug_struct("Credentials").field("files", &files).field("user", user).finish()
    }
}

/// See the head of this file.
#[derive(Clone, Debug)]
pub struct Way {
    endpoints: Vec<Endpoint>,
    access: Access,
}

impl Way {
    /// To these servers. The files are read now, and again when they change.
    ///
    /// # Errors
    /// There is no server; a file cannot be used; a server wants TLS and there is no authority; or
    /// a user has no password.
    pub fn new(endpoints: Vec<Endpoint>, credentials: &Credentials) -> Result<Way, Unusable> {
        let Credentials { ca_cert_file, cert_file, key_file, user, password } = credentials;
        let wrong = |why: &str| Err(Unusable(why.to_owned()));
        if endpoints.is_empty() {
            return wrong("there is no address of etcd");
        }
        if user.is_empty() != password.is_empty() {
            return wrong("a user of etcd has a name and a password, and one of them is missing");
        }
        if cert_file.is_empty() != key_file.is_empty() {
            return wrong("a certificate for etcd has a key, and one of the files is missing");
        }
        let wants_tls = endpoints.iter().any(|endpoint| endpoint.is_tls);
        let tls = match wants_tls && !ca_cert_file.is_empty() {
            false => None,
            true => {
                let settings = TlsSettings {
                    ca_cert_file: ca_cert_file.clone(),
                    cert_file: cert_file.clone(),
                    key_file: key_file.clone(),
                    ..TlsSettings::default()
                };
                let rules = Renewed::read(settings, NameCheck::Same);
                Some(Arc::new(rules.map_err(|why| Unusable(format!("TLS to etcd: {why}")))?))
            }
        };
        let user = (!user.is_empty()).then(|| (user.clone(), password.clone()));
        let access = Access { tls, user };
        for endpoint in &endpoints {
            access.rules_for(endpoint)?;
        }
        Ok(Way { endpoints, access })
    }

    /// The servers, at least one.
    pub fn endpoints(&self) -> &[Endpoint] {
        &self.endpoints
    }

    /// A client with a limit for each call.
    pub fn client(&self, limit: Moment) -> Client {
        Client { access: self.access.clone(), ..Client::new(self.endpoints.clone(), limit) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_half_is_refused() {
        let refusal = |address: &str, change: fn(&mut Credentials)| {
            let mut credentials = Credentials::default();
            change(&mut credentials);
            let list = Endpoint::list(address).expect("it is one");
            Way::new(list, &credentials).map(|_| ()).unwrap_err().to_string()
        };
        assert!(refusal("a", |it| it.user = "u".into()).contains("a name and a password"));
        assert!(refusal("https://a", |it| it.cert_file = "f".into()).contains("has a key"));
        assert!(refusal("https://a", |_| ()).contains("no authority"));
        let missing = refusal("https://a", |it| it.ca_cert_file = "/none".into());
        assert!(missing.contains("/none"), "{missing}");
        let secret = Credentials { password: "word".into(), ..Credentials::default() };
        assert!(!format!("{secret:?}").contains("word"));
    }
}

//! TLS on both sides: the certificate that clients see, and what servers have to show.

use super::{Address, Invalid};
use net::{ClientAuth, NameCheck, TlsClient, TlsContext, TlsSettings, client_rules};
use rustls::ClientConfig;
use serde::Deserialize;
use std::sync::Arc;

/// TLS of listeners: the table `[pool.NAME.tls]`. Keys are named as the server's `tls-` directives.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(default, deny_unknown_fields)]
#[expect(missing_docs, reason = "named as the server's directives")]
pub struct ListenerTls {
    pub cert_file: String,
    pub key_file: String,
    pub ca_cert_file: String,
    pub ca_cert_dir: String,
    pub auth_clients: Option<Auth>,
    pub protocols: String,
    pub ciphers: String,
    pub ciphersuites: String,
    pub prefer_server_ciphers: bool,
}

/// Whether clients must show a certificate.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Auth {
    /// They are not asked.
    No,
    /// They must.
    Yes,
    /// They may.
    Optional,
}

impl ListenerTls {
    /// Reads the files.
    ///
    /// # Errors
    /// What is wrong with them.
    pub fn load(&self) -> Result<Arc<TlsContext>, Invalid> {
        let has_authority = !(self.ca_cert_file.is_empty() && self.ca_cert_dir.is_empty());
        let auth_clients = match self.auth_clients {
            Some(Auth::No) => ClientAuth::No,
            Some(Auth::Yes) => ClientAuth::Yes,
            Some(Auth::Optional) => ClientAuth::Optional,
            None if has_authority => ClientAuth::Yes,
            None => ClientAuth::No,
        };
        let settings = TlsSettings {
            cert_file: self.cert_file.clone(),
            key_file: self.key_file.clone(),
            ca_cert_file: self.ca_cert_file.clone(),
            ca_cert_dir: self.ca_cert_dir.clone(),
            auth_clients,
            protocols: self.protocols.clone(),
            ciphers: self.ciphers.clone(),
            ciphersuites: self.ciphersuites.clone(),
            prefer_server_ciphers: self.prefer_server_ciphers,
            session_cache_size: Some(20_480),
            ..TlsSettings::default()
        };
        TlsContext::load(&settings).map_err(|why| Invalid(format!("tls: {why}")))
    }
}

/// TLS towards servers: the table `[pool.NAME.server_tls]`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct ServerTls {
    /// Authorities whose certificates servers may show.
    pub ca_cert_file: String,
    /// The same, a folder of them.
    pub ca_cert_dir: String,
    /// The certificate that the proxy shows, if servers ask for one.
    pub cert_file: String,
    /// Its key.
    pub key_file: String,
    /// The name that is asked for (SNI) and that the certificate has to be for, instead of the
    /// address.
    pub name: Option<String>,
    /// Lets certificates pass that are for another name.
    pub any_name: bool,
    /// As `tls-protocols`.
    pub protocols: String,
}

impl ServerTls {
    /// Reads the files.
    ///
    /// # Errors
    /// What is wrong with them.
    pub fn load(&self) -> Result<Arc<ClientConfig>, Invalid> {
        let settings = TlsSettings {
            ca_cert_file: self.ca_cert_file.clone(),
            ca_cert_dir: self.ca_cert_dir.clone(),
            cert_file: self.cert_file.clone(),
            key_file: self.key_file.clone(),
            protocols: self.protocols.clone(),
            ..TlsSettings::default()
        };
        let names = if self.any_name { NameCheck::Any } else { NameCheck::Same };
        client_rules(&settings, names).map_err(|why| Invalid(format!("server_tls: {why}")))
    }

    /// The name to ask a server at this address for.
    fn name_of(&self, address: &Address) -> String {
        match (&self.name, address) {
            (Some(name), _) => name.clone(),
            (None, Address::Tcp(host, _)) => host.clone(),
            (None, Address::Unix(..)) => "localhost".to_owned(),
        }
    }

    /// What a connection to a server at this address needs.
    ///
    /// # Errors
    /// The name is none.
    pub fn client(
        &self,
        rules: &Arc<ClientConfig>,
        address: &Address,
    ) -> Result<TlsClient, Invalid> {
        let name = self.name_of(address);
        TlsClient::new(rules.clone(), &name)
            .map_err(|why| Invalid(format!("server_tls: '{name}' is no name: {why}")))
    }
}

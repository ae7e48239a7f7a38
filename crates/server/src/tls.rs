//! From the `tls-*` options to a context for the network layer.

use config::{Config, Text, TlsAuthClients};
use net::{self, ClientAuth, Net, Tag, TlsContext, TlsSettings};
use rustls::ClientConfig;
use std::sync::Arc;

fn text(text: Text) -> String {
    text.to_string_lossy().into_owned()
}

/// The options as the network layer wants them.
fn settings(config: &Config) -> TlsSettings {
    TlsSettings {
        cert_file: text(config.tls_cert_file()),
        key_file: text(config.tls_key_file()),
        key_file_pass: text(config.tls_key_file_pass()),
        client_cert_file: text(config.tls_client_cert_file()),
        client_key_file: text(config.tls_client_key_file()),
        client_key_file_pass: text(config.tls_client_key_file_pass()),
        ca_cert_file: text(config.tls_ca_cert_file()),
        ca_cert_dir: text(config.tls_ca_cert_dir()),
        auth_clients: match config.tls_auth_clients() {
            TlsAuthClients::Yes => ClientAuth::Yes,
            TlsAuthClients::No => ClientAuth::No,
            TlsAuthClients::Optional => ClientAuth::Optional,
        },
        protocols: text(config.tls_protocols()),
        ciphers: text(config.tls_ciphers()),
        ciphersuites: text(config.tls_ciphersuites()),
        prefer_server_ciphers: config.tls_prefer_server_ciphers(),
        session_cache_size: config.tls_session_caching().then(|| config.tls_session_cache_size()),
    }
}

/// The options that connections to other nodes of a cluster depend on.
pub type OutgoingOptions = (bool, TlsSettings);

/// Returns those options as they are now.
pub fn outgoing_options(config: &Config) -> OutgoingOptions {
    (config.tls_cluster(), settings(config))
}

/// The rules of connections that this server makes, read from the files as they are now.
///
/// # Errors
/// The first option that does not work, and why.
pub fn outgoing(config: &Config) -> Result<Arc<ClientConfig>, String> {
    net::client_rules(&settings(config), net::NameCheck::Any)
        .map_err(|error| format!("Failed to configure TLS: {error}"))
}

/// Loads the certificates if there is a TLS port, for connections accepted from now on.
///
/// # Errors
/// The first option that does not work, and why; nothing has changed.
pub fn apply(config: &Config, net: &Net) -> Result<(), String> {
    if config.tls_port() == 0 {
        net.set_tls(Tag::default(), None);
        return Ok(());
    }
    let context = TlsContext::load(&settings(config))
        .map_err(|error| format!("Failed to configure TLS: {error}"))?;
    net.set_tls(Tag::default(), Some(context));
    Ok(())
}

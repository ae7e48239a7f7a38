//! From the options about certificates to a context for the network layer.

use crate::log;
use config::{Config, Text, TlsAuthClients};
use engine::Engine;
use net::{self, ClientAuth, Net, Tag, TlsContext, TlsError, TlsSettings};
use process::thread;
use rustls::ClientConfig;
use std::fs;
use std::hash::{DefaultHasher, Hash as _, Hasher as _};
use std::io;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::time::{Duration, Instant};

fn text(text: Text) -> String {
    text.to_string_lossy().into_owned()
}

/// Which certificates a server shows, and whose it accepts.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Certificates {
    /// Those of `tls-cert-file` and the options beside it.
    Server,
    /// Those of `cluster-bus-cert-file` and the options beside it.
    Bus,
}

/// The options as the network layer wants them.
fn settings(config: &Config, of: Certificates) -> TlsSettings {
    if of == Certificates::Bus {
        return TlsSettings {
            cert_file: text(config.cluster_bus_cert_file()),
            key_file: text(config.cluster_bus_key_file()),
            ca_cert_file: text(config.cluster_bus_ca_cert_file()),
            auth_clients: ClientAuth::Yes,
            ..TlsSettings::default()
        };
    }
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

/// How often files of certificates were found changed.
static RENEWALS: AtomicU64 = AtomicU64::new(0);

/// What connections to other nodes of a cluster depend on: options, and [`RENEWALS`].
pub type OutgoingOptions = (Option<Certificates>, TlsSettings, u64);

/// Returns those options as they are now. `of`: the certificates that connections use, if they are
/// encrypted.
pub fn outgoing_options(config: &Config, of: Option<Certificates>) -> OutgoingOptions {
    let settings = settings(config, of.unwrap_or(Certificates::Server));
    (of, settings, RENEWALS.load(Relaxed))
}

/// Returns a number that changes with the content of the files that the options name. One that
/// cannot be read counts as empty.
fn content(config: &Config) -> u64 {
    let [server, bus] = [Certificates::Server, Certificates::Bus].map(|of| settings(config, of));
    let mut hasher = DefaultHasher::new();
    let mut add = |path: &Path| fs::read(path).unwrap_or_default().hash(&mut hasher);
    for settings in [&server, &bus] {
        for file in [
            &settings.cert_file,
            &settings.key_file,
            &settings.client_cert_file,
            &settings.client_key_file,
            &settings.ca_cert_file,
        ] {
            add(Path::new(file));
        }
    }
    let folder = fs::read_dir(&server.ca_cert_dir).into_iter().flatten().flatten();
    let mut authorities: Vec<_> = folder.map(|entry| entry.path()).collect();
    authorities.sort();
    authorities.iter().for_each(|path| add(path));
    hasher.finish()
}

/// Starts the thread that looks for new certificates, once `tls-auto-reload-interval` asks for it.
/// The options have been applied a moment ago.
///
/// # Errors
/// There can be no thread.
pub fn watch(engine: &'static Engine, net: &Arc<Net>) -> io::Result<()> {
    static IS_STARTED: AtomicBool = AtomicBool::new(false);
    if engine.config.tls_auto_reload_interval() == 0 || IS_STARTED.swap(true, Relaxed) {
        return Ok(());
    }
    let (net, mut known) = (Arc::clone(net), content(&engine.config));
    let mut looked = Instant::now();
    let mut refused = None;
    thread::spawn("tls-reload", move || {
        loop {
            std::thread::sleep(ROUND);
            let seconds = engine.config.tls_auto_reload_interval();
            let interval = Duration::from_secs(seconds.try_into().unwrap_or(u64::MAX));
            if seconds == 0 || looked.elapsed() < interval {
                continue;
            }
            looked = Instant::now();
            let found = content(&engine.config);
            if found == known {
                continue;
            }
            match apply(&engine.config, &net) {
                Ok(()) => {
                    known = found;
                    RENEWALS.fetch_add(1, Relaxed);
                    log!(Notice, "Certificates have changed: new connections have the new ones");
                }
                // Perhaps one file is written and the next is not. That is said once.
                Err(why) if refused != Some(found) => {
                    refused = Some(found);
                    log!(Warning, "Certificates have changed, and the old ones stay: {why}");
                }
                Err(_) => (),
            }
        }
    })
    .map(drop)
}

/// Time between two looks at the interval.
const ROUND: Duration = Duration::from_secs(1);

/// The rules of connections that this server makes, read from the files as they are now.
///
/// # Errors
/// The first option that does not work, and why.
pub fn outgoing(config: &Config, of: Certificates) -> Result<Arc<ClientConfig>, String> {
    net::client_rules(&settings(config, of), net::NameCheck::Any)
        .map_err(|error| failed(of, &error))
}

/// The tag of connections by the port for other copies.
pub const BUS: Tag = Tag(4);

/// Returns whether there is a port for other copies.
pub fn has_bus(config: &Config) -> bool {
    config.cluster_enabled() && !config.cluster_bus_cert_file().is_empty()
}

/// Loads the certificates of the ports with TLS, for connections accepted from now on.
///
/// # Errors
/// The first option that does not work, and why; nothing has changed.
pub fn apply(config: &Config, net: &Net) -> Result<(), String> {
    let load = |of| TlsContext::load(&settings(config, of)).map_err(|error| failed(of, &error));
    let server = (config.tls_port() != 0).then(|| load(Certificates::Server)).transpose()?;
    let bus = has_bus(config).then(|| load(Certificates::Bus)).transpose()?;
    net.set_tls(Tag::default(), server);
    net.set_tls(BUS, bus);
    Ok(())
}

fn failed(of: Certificates, error: &TlsError) -> String {
    match of {
        Certificates::Server => format!("Failed to configure TLS: {error}"),
        // The options have other names than those that the error has.
        Certificates::Bus => format!("Failed to configure the bus (cluster-bus-…): {error}"),
    }
}

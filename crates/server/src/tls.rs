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

/// All of them.
pub const ALL: [Certificates; 2] = [Certificates::Server, Certificates::Bus];

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

/// How often files of certificates were found changed: those of [`Certificates`], by their order.
static RENEWALS: [AtomicU64; 2] = [AtomicU64::new(0), AtomicU64::new(0)];

/// What connections to other nodes of a cluster depend on: options, and [`RENEWALS`].
pub type OutgoingOptions = (Option<Certificates>, TlsSettings, u64);

/// Returns those options as they are now. `of`: the certificates that connections use, if they are
/// encrypted.
pub fn outgoing_options(config: &Config, of: Option<Certificates>) -> OutgoingOptions {
    let which = of.unwrap_or(Certificates::Server);
    (of, settings(config, which), RENEWALS[which as usize].load(Relaxed))
}

/// Returns a number that changes with the content of the files that the options name. One that
/// cannot be read counts as empty.
fn content(config: &Config, of: Certificates) -> u64 {
    let settings = settings(config, of);
    let mut hasher = DefaultHasher::new();
    let mut add = |path: &Path| fs::read(path).unwrap_or_default().hash(&mut hasher);
    for file in [
        &settings.cert_file,
        &settings.key_file,
        &settings.client_cert_file,
        &settings.client_key_file,
        &settings.ca_cert_file,
    ] {
        add(Path::new(file));
    }
    let folder = fs::read_dir(&settings.ca_cert_dir).into_iter().flatten().flatten();
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
    let net = Arc::clone(net);
    let mut watched = ALL.map(|of| Watched::new(&engine.config, of));
    let mut looked = Instant::now();
    thread::spawn("tls-reload", move || {
        loop {
            std::thread::sleep(ROUND);
            let seconds = engine.config.tls_auto_reload_interval();
            let interval = Duration::from_secs(seconds.try_into().unwrap_or(u64::MAX));
            if seconds != 0 && looked.elapsed() >= interval {
                looked = Instant::now();
                watched.iter_mut().for_each(|it| it.look(&engine.config, &net));
            }
        }
    })
    .map(drop)
}

/// Certificates whose files are looked at. Those that cannot be used keep no others from being
/// renewed.
struct Watched {
    of: Certificates,
    /// The content of the files that are in use.
    known: u64,
    /// The content that was refused last.
    refused: Option<u64>,
}

impl Watched {
    /// Certificates that were applied a moment ago.
    fn new(config: &Config, of: Certificates) -> Watched {
        Watched { of, known: content(config, of), refused: None }
    }

    /// Applies the files if they have changed.
    fn look(&mut self, config: &Config, net: &Net) {
        let found = content(config, self.of);
        if found == self.known {
            return;
        }
        match apply(config, net, self.of) {
            Ok(()) => {
                (self.known, self.refused) = (found, None);
                RENEWALS[self.of as usize].fetch_add(1, Relaxed);
                log!(Notice, "Certificates have changed: new connections have the new ones");
            }
            // Perhaps one file is written and the next is not. That is said once.
            Err(why) if self.refused != Some(found) => {
                self.refused = Some(found);
                log!(Warning, "Certificates have changed, and the old ones stay: {why}");
            }
            Err(_) => (),
        }
    }
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

/// Loads certificates of ports with TLS, for connections accepted from now on.
///
/// # Errors
/// The first option that does not work, and why; nothing has changed.
pub fn apply(config: &Config, net: &Net, of: Certificates) -> Result<(), String> {
    let (is_wanted, tag) = match of {
        Certificates::Server => (config.tls_port() != 0, Tag::default()),
        Certificates::Bus => (has_bus(config), BUS),
    };
    let load = || TlsContext::load(&settings(config, of)).map_err(|error| failed(of, &error));
    net.set_tls(tag, is_wanted.then(load).transpose()?);
    Ok(())
}

fn failed(of: Certificates, error: &TlsError) -> String {
    match of {
        Certificates::Server => format!("Failed to configure TLS: {error}"),
        // The options have other names than those that the error has.
        Certificates::Bus => format!("Failed to configure the bus (cluster-bus-…): {error}"),
    }
}

//! The bus: a port for other copies of the database alone, by TLS, where both sides show a
//! certificate. `docs/internals/node.md` has the design.
//!
//! A copy is named by its id, its host and the port of its clients. When a connection is made to a
//! copy, it goes to its present host and bus port as long as the bus is used. A user's MIGRATE
//! names a host and a port alone: those of a copy, or of a server that is none.

use crate::tls::{self, Certificates};
use cluster::id::Id;
use config::Config;
use engine::Engine;
use engine::membership::Published;
use rustls::ClientConfig;
use std::sync::Arc;

/// The bus port is the port of clients and this number, unless `cluster-port` names one.
const OFFSET: u16 = 10_000;

/// Returns the port for other copies; 0: there is none.
pub fn port(config: &Config) -> u16 {
    if !tls::has_bus(config) {
        return 0;
    }
    match config.cluster_port() {
        0 => port_of_clients(config).checked_add(OFFSET).unwrap_or(0),
        port => port,
    }
}

/// Returns the bus port that other copies are told; 0: there is none.
pub fn announced_port(config: &Config) -> u16 {
    match (port(config), config.cluster_announce_bus_port()) {
        (0, _) => 0,
        (port, 0) => port,
        (_, announced) => announced,
    }
}

/// Returns the bus port that CLUSTER NODES shows; 0: the one that Redis derives.
pub fn shown_port(config: &Config) -> u16 {
    let derived = port_of_clients(config).checked_add(OFFSET);
    match announced_port(config) {
        0 => config.cluster_announce_bus_port(),
        port if Some(port) == derived && config.cluster_announce_bus_port() == 0 => 0,
        port => port,
    }
}

fn port_of_clients(config: &Config) -> u16 {
    if config.port() != 0 { config.port() } else { config.tls_port() }
}

/// Refuses options about the bus that do not go together.
///
/// # Errors
/// What to do.
pub fn check(config: &Config) -> Result<(), String> {
    let files = [
        config.cluster_bus_cert_file(),
        config.cluster_bus_key_file(),
        config.cluster_bus_ca_cert_file(),
    ];
    let given = files.iter().filter(|file| !file.is_empty()).count();
    if given == 0 {
        return Ok(());
    }
    if given < files.len() {
        return Err("cluster-bus-cert-file, cluster-bus-key-file and cluster-bus-ca-cert-file \
                    belong together: set all three, or none"
            .into());
    }
    match port(config) {
        0 => Err(format!(
            "cluster-port: {} and {OFFSET} is no port: set cluster-port",
            port_of_clients(config)
        )),
        port if [config.port(), config.tls_port()].contains(&port) => Err(format!(
            "cluster-port {port} is a port of clients as well: set another cluster-port"
        )),
        _ => Ok(()),
    }
}

/// Returns what the coordinator said last, if the bus is used.
fn published(engine: &Engine) -> Option<Arc<Published>> {
    if port(&engine.config) == 0 {
        return None;
    }
    engine.membership.newest().filter(|published| published.bus.is_whole())
}

/// Returns whether copies are reached by the bus.
pub fn is_used(engine: &Engine) -> bool {
    published(engine).is_some()
}

/// Returns the bus port of the copy that clients reach at this place. `None`: the bus is not used,
/// or no copy of this database is there.
///
/// # Errors
/// The bus is used, and the copy has not said yet where it has it. Without TLS it is not reached.
fn port_at(engine: &Engine, host: &str, port: u16) -> Result<Option<u16>, String> {
    let Some(published) = published(engine) else { return Ok(None) };
    let mut copies = published.view.topology.value.copies();
    let found = copies.find(|copy| copy.address.host == host && copy.address.has_port(port));
    let Some(copy) = found else { return Ok(None) };
    match published.bus.port_of(copy.id) {
        None => Err(unknown(copy.id)),
        port => Ok(port),
    }
}

/// How a server is reached.
#[derive(PartialEq, Eq)]
pub struct Way {
    /// Its host.
    pub host: String,
    /// Its port.
    pub port: u16,
    /// By which certificates. `None`: without TLS.
    pub of: Option<Certificates>,
}

impl Way {
    /// Returns the rules of TLS.
    ///
    /// # Errors
    /// The first option that does not work, and why.
    pub fn rules(&self, config: &Config) -> Result<Option<Arc<ClientConfig>>, String> {
        self.of.map(|of| tls::outgoing(config, of)).transpose()
    }

    /// To a port of clients. `is_encrypted`: they speak TLS.
    fn plain(host: &str, port: u16, is_encrypted: bool) -> Way {
        let of = is_encrypted.then_some(Certificates::Server);
        Way { host: host.to_owned(), port, of }
    }
}

/// Returns how the server is reached that clients reach at this place, which may be no copy.
/// `is_encrypted`: servers that are not reached by the bus speak TLS, too.
///
/// # Errors
/// Those of [`port_at`].
pub fn way(engine: &Engine, host: &str, port: u16, is_encrypted: bool) -> Result<Way, String> {
    Ok(match port_at(engine, host, port)? {
        Some(port) => Way { host: host.to_owned(), port, of: Some(Certificates::Bus) },
        None => Way::plain(host, port, is_encrypted),
    })
}

/// Returns how a copy is reached: while the bus is used at its present place, and otherwise at the
/// given one. `copy`: `None` for a server that may be no copy.
///
/// # Errors
/// The bus is used, and the copy is not there, or has not said where it has it. Without TLS it is
/// not reached.
pub fn way_to(
    engine: &Engine,
    copy: Option<Id>,
    (host, port): (&str, u16),
    is_encrypted: bool,
) -> Result<Way, String> {
    let Some(published) = published(engine) else {
        return Ok(Way::plain(host, port, is_encrypted));
    };
    let Some(copy) = copy else { return way(engine, host, port, is_encrypted) };
    let mut copies = published.view.topology.value.copies();
    let Some(place) = copies.find(|there| there.id == copy) else {
        return Err(format!("{host}:{port} is no node of this database any more"));
    };
    let port = published.bus.port_of(place.id);
    let port = port.ok_or_else(|| unknown(place.id))?;
    Ok(Way { host: place.address.host.clone(), port, of: Some(Certificates::Bus) })
}

/// Returns whether [`way_to`] leads by the bus, or nowhere.
pub fn is_way_to(engine: &Engine, copy: Option<Id>, place: (&str, u16)) -> bool {
    way_to(engine, copy, place, false).map_or(true, |way| way.of.is_some())
}

/// Returns where clients reach a copy now, if the bus is used; port 0 if it is not there any more.
pub fn address_of(engine: &Engine, copy: Id) -> Option<(String, u16)> {
    let published = published(engine)?;
    let mut copies = published.view.topology.value.copies();
    let address =
        copies.find(|there| there.id == copy).map(|copy| copy.address.clone()).unwrap_or_default();
    let ports = [address.port, address.tls_port];
    Some((address.host, ports.into_iter().find(|&port| port > 0).unwrap_or(0)))
}

fn unknown(copy: Id) -> String {
    format!("node {copy} has not announced its port for other nodes yet")
}

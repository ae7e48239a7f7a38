//! The bus: a port for other copies of the database alone, by TLS, where both sides show a
//! certificate. `docs/internals/node.md` has the design.
//!
//! Nothing else knows of it: a copy is named by its host and the port of its clients. When a
//! connection is made to such a place, it goes to the copy's bus port as long as the bus is used.

use crate::tls::{self, Certificates};
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
pub fn port_at(engine: &Engine, host: &str, port: u16) -> Result<Option<u16>, String> {
    let Some(published) = published(engine) else { return Ok(None) };
    let mut copies = published.view.topology.value.copies();
    let found = copies.find(|copy| copy.address.host == host && copy.address.has_port(port));
    let Some(copy) = found else { return Ok(None) };
    match published.bus.port_of(copy.id) {
        None => Err(format!("node {} has not announced its port for other nodes yet", copy.id)),
        port => Ok(port),
    }
}

/// Returns the port to connect to instead of the one of a server's clients, and the rules of TLS.
/// `is_encrypted`: servers that are not reached by the bus speak TLS, too.
///
/// # Errors
/// Those of [`port_at`], or the first option about certificates that does not work, and why.
pub fn way(
    engine: &Engine,
    (host, port): (&str, u16),
    is_encrypted: bool,
) -> Result<(u16, Option<Arc<ClientConfig>>), String> {
    let bus = port_at(engine, host, port)?;
    let of = match bus {
        Some(_) => Some(Certificates::Bus),
        None => is_encrypted.then_some(Certificates::Server),
    };
    let rules = of.map(|of| tls::outgoing(&engine.config, of)).transpose()?;
    Ok((bus.unwrap_or(port), rules))
}

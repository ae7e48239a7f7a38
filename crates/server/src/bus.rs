//! The bus: a port for other copies of the database alone, by TLS, where both sides show a
//! certificate. `docs/internals/node.md` has the design.
//!
//! A copy is named by its id, its host and the port of its clients. When a connection is made to a
//! copy, it goes to its present host and bus port as long as the bus is used. A user's MIGRATE
//! names a host and a port alone: those of a copy, or of a server that is none.

use crate::tls::{self, Certificates};
use cluster::bus::OFFSET;
use cluster::id::Id;
use cluster::topology::Replica;
use config::Config;
use engine::Engine;
use engine::membership::Published;
use rustls::ClientConfig;
use std::sync::Arc;

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

/// Returns the bus port that CLUSTER NODES shows; 0: the one that Redis derives from the port of
/// clients that is announced.
pub fn shown_port(config: &Config) -> u16 {
    let announced = [config.cluster_announce_port(), config.port()];
    let announced_tls = [config.cluster_announce_tls_port(), config.tls_port()];
    let mut ports = announced.into_iter().chain(announced_tls);
    let derived = ports.find(|&port| port > 0).and_then(|port| port.checked_add(OFFSET));
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
    if given == 0 || !config.cluster_enabled() {
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

/// Returns by which certificates copies are reached. `None`: without TLS. `is_encrypted`: they
/// speak TLS while the bus is not used, too.
pub fn certificates(engine: &Engine, is_encrypted: bool) -> Option<Certificates> {
    match published(engine) {
        Some(_) => Some(Certificates::Bus),
        None => is_encrypted.then_some(Certificates::Server),
    }
}

/// Returns the copy that clients reach at this place, or by a name there that it announces to them
/// alone. `None`: none is there, or several announce the same, and it is not known which is meant.
pub fn copy_at<'a>(published: &'a Published, host: &str, port: u16) -> Option<&'a Replica> {
    let copies = || published.view.topology.value.copies();
    let exact = copies().find(|copy| copy.address.is_at(host, port));
    exact.or_else(|| {
        let mut told = copies().filter(|copy| copy.address.is_told_as(host, port));
        told.next().filter(|_| told.next().is_none())
    })
}

/// Returns a copy of the database. `None`: it is none any more.
fn copy_of(published: &Published, copy: Id) -> Option<&Replica> {
    published.view.topology.value.copies().find(|there| there.id == copy)
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

    /// To a copy by these certificates. Port 0: it has none for them.
    ///
    /// # Errors
    /// It is by the bus, and the copy has not said yet where it has it. Without TLS it is not
    /// reached.
    pub fn to(
        published: &Published,
        copy: &Replica,
        of: Option<Certificates>,
    ) -> Result<Way, String> {
        let host = &copy.address.host;
        if of != Some(Certificates::Bus) {
            return Ok(Way { host: host.clone(), port: copy.address.port_for(of.is_some()), of });
        }
        let port = published.bus.port_of(copy.id);
        let port = port.ok_or_else(|| {
            format!("node {} has not announced its port for other nodes yet", copy.id)
        })?;
        Ok(Way::by_bus_at(host, port))
    }

    /// To a copy by the bus.
    fn by_bus(published: &Published, copy: &Replica) -> Result<Way, String> {
        Way::to(published, copy, Some(Certificates::Bus))
    }

    /// To a bus port.
    pub fn by_bus_at(host: &str, port: u16) -> Way {
        Way { host: host.to_owned(), port, of: Some(Certificates::Bus) }
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
/// The bus is used, and the copy has not said yet where it has it. Without TLS it is not reached.
pub fn way(engine: &Engine, host: &str, port: u16, is_encrypted: bool) -> Result<Way, String> {
    let plain = || Way::plain(host, port, is_encrypted);
    let Some(published) = published(engine) else { return Ok(plain()) };
    match copy_at(&published, host, port) {
        Some(copy) => Way::by_bus(&published, copy),
        None => Ok(plain()),
    }
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
    match copy_of(&published, copy) {
        Some(copy) => Way::by_bus(&published, copy),
        None => Err(format!("{host}:{port} is no node of this database any more")),
    }
}

/// Returns whether [`way_to`] leads by the bus, or nowhere.
pub fn is_way_to(engine: &Engine, copy: Option<Id>, place: (&str, u16)) -> bool {
    way_to(engine, copy, place, false).map_or(true, |way| way.of.is_some())
}

/// Returns where clients reach a copy now, if the bus is used; port 0 if it is not there any more.
pub fn address_of(engine: &Engine, copy: Id) -> Option<(String, u16)> {
    let published = published(engine)?;
    let address = copy_of(&published, copy).map(|copy| copy.address.clone()).unwrap_or_default();
    let port = address.naming_port(false);
    Some((address.host, port))
}

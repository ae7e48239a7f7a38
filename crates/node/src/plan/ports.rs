//! The ports of copies: which are free on a host, and which a new database cannot have.
//!
//! A copy takes that of its clients, the one with TLS, and the one for other copies. The last is
//! left out if a database has it for its clients, which all nodes pass on, or if a node or an etcd
//! of the host has it: the copy is started without (`copies`). Such databases come from a release
//! that had no ports for other copies, or are older than the machine.

use crate::settings::{Settings, Wrong};
use crate::site::{Machine, Site};
use std::collections::{BTreeMap, BTreeSet};

/// See the head of this file.
pub(super) struct Ports {
    /// The ports of all databases.
    of_databases: BTreeSet<u16>,
    /// The ports of nodes and their etcds, by host.
    of_nodes: BTreeMap<String, BTreeSet<u16>>,
    /// The ports that cannot be given to a copy, by host.
    used: BTreeMap<String, BTreeSet<u16>>,
}

impl Ports {
    /// Returns those of a site.
    pub(super) fn of(site: &Site) -> Ports {
        let of_databases = site.databases.values().map(|at| at.value.settings.port).collect();
        let mut of_nodes = BTreeMap::<String, BTreeSet<u16>>::new();
        for machine in site.machines.values().map(|known| &known.spec.value) {
            of_nodes.entry(machine.host.clone()).or_default().extend(machine.own_ports());
        }
        let mut ports = Ports { of_databases, used: of_nodes.clone(), of_nodes };
        for placed in site.databases.values().flat_map(|at| &at.value.copies) {
            ports.of_host(&placed.host).insert(placed.port);
            if let Some(known) = site.machines.get(&placed.machine) {
                ports.use_of_copy(&placed.host, &known.spec.value, placed.port);
            }
        }
        ports
    }

    fn of_host(&mut self, host: &str) -> &mut BTreeSet<u16> {
        self.used.entry(host.to_owned()).or_default()
    }

    /// Takes the first free port from a wanted one on, and those that the copy has beside it.
    ///
    /// # Errors
    /// There is none.
    pub(super) fn take(&mut self, machine: &Machine, wanted: u16) -> Result<u16, Wrong> {
        let used = self.used.get(&machine.host);
        let is_used = |port: u16| used.is_some_and(|used| used.contains(&port));
        let is_free = |&port: &u16| {
            let bus = bus_port(machine, port);
            let lacks_bus = bus.is_some_and(|bus| self.is_no_bus(machine, bus));
            // Clients expect a copy at the database's own port. At others it has a bus.
            let is_bus_free = if lacks_bus { port == wanted } else { !bus.is_some_and(is_used) };
            is_bus_free && !ports_of_clients(machine, port).any(is_used)
        };
        let free = (wanted..=u16::MAX).find(is_free);
        let free = free.ok_or_else(|| {
            Wrong(format!("there are not enough ports from {wanted} on: take a smaller --port"))
        })?;
        self.use_of_copy(&machine.host, machine, free);
        Ok(free)
    }

    /// Notes what a copy has.
    fn use_of_copy(&mut self, host: &str, machine: &Machine, port: u16) {
        let bus = bus_port(machine, port).filter(|&bus| !self.is_no_bus(machine, bus));
        self.of_host(host).extend(ports_of_clients(machine, port).chain(bus));
    }

    /// Returns whether a copy on a machine is started without this port for other copies.
    fn is_no_bus(&self, machine: &Machine, bus: u16) -> bool {
        let of_nodes = self.of_nodes.get(&machine.host);
        of_nodes.is_some_and(|own| own.contains(&bus)) || self.is_of_database(machine, bus)
    }

    /// Returns whether it is a port of clients of a database, which nodes pass on.
    fn is_of_database(&self, machine: &Machine, port: u16) -> bool {
        let plain = port.checked_sub(machine.tls_port_offset);
        [Some(port), plain].into_iter().flatten().any(|port| self.of_databases.contains(&port))
    }
}

/// Returns the port and an offset. `None`: there is none.
fn beside(port: u16, offset: u16) -> Option<u16> {
    port.checked_add(offset).filter(|&beside| beside != port)
}

/// From this port on Linux has those of outgoing connections, unless it is told otherwise
/// (`net.ipv4.ip_local_port_range`).
pub(super) const FIRST_OUTGOING: u16 = 32_768;

/// Returns the port for other copies of a copy on a machine. `None`: there is none.
pub(super) fn bus_port(machine: &Machine, port: u16) -> Option<u16> {
    beside(port, machine.bus_port_offset)
}

/// Returns the ports of clients of a copy on a machine: with and without TLS.
fn ports_of_clients(machine: &Machine, port: u16) -> impl Iterator<Item = u16> {
    std::iter::once(port).chain(beside(port, machine.tls_port_offset))
}

/// Refuses a database with a port that another database, a copy or a node has. `places`: the
/// machines that can take copies.
///
/// # Errors
/// What has it.
pub(super) fn refuse_used<'a>(
    site: &Site,
    settings: &Settings,
    mut places: impl Iterator<Item = (&'a str, &'a Machine)> + Clone,
) -> Result<(), Wrong> {
    let port = settings.port;
    for (name, at) in &site.databases {
        let is_used = at.value.settings.port == port
            || at.value.copies.iter().any(|placed| placed.port == port);
        if is_used {
            return Err(Wrong(format!(
                "port {port} is used by database '{name}': take another --port"
            )));
        }
    }
    refuse_bus_port_of_others(site, port, places.clone())?;
    places.try_for_each(|(name, machine)| refuse_port_of_node(port, name, machine))
}

/// Refuses a port that is a copy's port for others, or whose port for others is one of a database
/// or of its copies. A node passes on the ports of all databases.
fn refuse_bus_port_of_others<'a>(
    site: &Site,
    port: u16,
    places: impl Iterator<Item = (&'a str, &'a Machine)> + Clone,
) -> Result<(), Wrong> {
    for (name, at) in &site.databases {
        let copies = || at.value.copies.iter();
        for (machine, it) in places.clone() {
            let here = copies().filter(|placed| placed.host == it.host).map(|placed| placed.port);
            let used = || here.clone().chain([at.value.settings.port]);
            let mut of_others = used().filter_map(|used| bus_port(it, used));
            if of_others.any(|bus| ports_of_clients(it, port).any(|own| own == bus)) {
                return Err(Wrong(format!(
                    "port {port} is one that copies of database '{name}' have for each other, on \
                     machine '{machine}': take another --port"
                )));
            }
            let Some(bus) = bus_port(it, port) else { continue };
            if used().any(|used| ports_of_clients(it, used).any(|used| used == bus)) {
                return Err(Wrong(format!(
                    "port {bus}, which the copies would have for each other on machine \
                     '{machine}', is used by database '{name}': take another --port, or start the \
                     nodes with another --bus-port-offset"
                )));
            }
        }
    }
    Ok(())
}

/// Refuses a port if a copy's would be one of a node or of its etcd.
fn refuse_port_of_node(port: u16, name: &str, machine: &Machine) -> Result<(), Wrong> {
    let what = |own: u16| match own == machine.admin_port {
        true => format!("the admin port of machine '{name}'"),
        false => format!("a port of the etcd of machine '{name}'"),
    };
    let own_ports = machine.own_ports().collect::<BTreeSet<u16>>();
    if let Some(own) = ports_of_clients(machine, port).find(|port| own_ports.contains(port)) {
        return Err(Wrong(format!("port {own} is {}: take another --port", what(own))));
    }
    match bus_port(machine, port).filter(|bus| own_ports.contains(bus)) {
        Some(bus) => Err(Wrong(format!(
            "port {bus}, which the copies would have for each other, is {}: take another --port, \
             or start the nodes with another --bus-port-offset",
            what(bus)
        ))),
        None => Ok(()),
    }
}

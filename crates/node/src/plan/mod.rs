//! Where the copies of a new database go. A pure function of what is known of the machines.
//!
//! Shard by shard, each copy goes to the machine that has no copy of the shard yet, in a zone
//! without one, with the fewest primaries (for a primary) and copies of the database, and the most
//! free memory. What cannot be done says why.

use crate::settings::{Commit, Settings, Wrong};
use crate::site::{Database, Known, Machine, Site};
use cluster::id::Id;
use process::memory::Bytes;
use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};

/// A copy that is to be.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Planned {
    /// The shard, counted from 0.
    pub shard: usize,
    /// It is the shard's first primary.
    pub is_primary: bool,
    /// The machine.
    pub machine: String,
    /// Where others reach the machine.
    pub host: String,
    /// The machine's zone.
    pub zone: String,
    /// The port.
    pub port: u16,
    /// The bytes that it may have.
    pub memory_bytes: u64,
    /// Reactor threads.
    pub threads: usize,
}

/// Where all copies of a database go.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Plan {
    /// By shard, the primary first.
    pub copies: Vec<Planned>,
    /// What the user should know.
    pub warnings: Vec<String>,
}

/// A machine that can take copies.
struct Place<'a> {
    name: &'a str,
    machine: &'a Machine,
    zone: &'a str,
    free: u64,
    free_flash: u64,
    /// The shards of this database that it has a copy of.
    shards: Vec<usize>,
    /// How many of these copies lead.
    primaries: usize,
}

/// Plans a database.
///
/// # Errors
/// Why it cannot be placed.
pub fn place(site: &Site, settings: &Settings) -> Result<Plan, Wrong> {
    settings.check()?;
    let mut places = places(site);
    if places.is_empty() {
        return Err(Wrong("no machine of the cluster has a node that is alive".into()));
    }
    let mut ports = used_ports(site);
    refuse_used_port(site, settings, &places)?;
    let mut plan = Plan::default();
    let need = Need {
        memory_bytes: settings.copy_bytes(),
        flash_bytes: settings.copy_flash_bytes(),
        zones: settings.zones,
        replicas: settings.replicas,
    };
    for shard in 0..settings.shards {
        for number in 0..=settings.replicas {
            let at = choose(&places, &need, shard, number)?;
            let place = &mut places[at];
            place.free -= settings.copy_bytes();
            place.free_flash = place.free_flash.saturating_sub(settings.copy_flash_bytes());
            place.primaries += usize::from(number == 0);
            place.shards.push(shard);
            let machine = place.machine;
            let port =
                free_port(ports.entry(machine.host.clone()).or_default(), machine, settings.port)?;
            plan.copies.push(Planned {
                shard,
                is_primary: number == 0,
                machine: place.name.to_owned(),
                host: machine.host.clone(),
                zone: place.zone.to_owned(),
                port,
                memory_bytes: settings.copy_bytes(),
                threads: 1,
            });
        }
    }
    for copy in &mut plan.copies {
        let place = places.iter().find(|place| place.name == copy.machine);
        copy.threads = place.map_or(1, |place| threads(place.machine.cores, place.shards.len()));
    }
    plan.warnings = warnings(&plan, settings, &places);
    Ok(plan)
}

/// Plans one more copy of a shard, on a machine that has none of it.
///
/// # Errors
/// Why it cannot be placed.
pub fn place_another(site: &Site, database: &Database, shard: usize) -> Result<Planned, Wrong> {
    let mut places = places_beside(site, database, &BTreeSet::new());
    places.retain(|place| !place.shards.contains(&shard));
    take(site, database, &mut places, (shard, 1))
}

/// Plans one more copy of a shard on a certain machine.
///
/// # Errors
/// Why it cannot be placed there.
pub fn place_on(
    site: &Site,
    database: &Database,
    shard: usize,
    machine: &str,
) -> Result<Planned, Wrong> {
    let mut places = places_beside(site, database, &BTreeSet::new());
    places.retain(|place| place.name == machine && !place.shards.contains(&shard));
    take(site, database, &mut places, (shard, 1))
}

/// Plans copies of shards of a database that is there, each by its shard and 0 for the shard's
/// first primary. `leaders` are the copies that lead. Copies of a shard share a machine only if
/// there are too few.
///
/// # Errors
/// Why they cannot be placed.
pub fn extend(
    site: &Site,
    database: &Database,
    leaders: &BTreeSet<Id>,
    wanted: &[(usize, usize)],
) -> Result<Vec<Planned>, Wrong> {
    let mut places = places_beside(site, database, leaders);
    let mut site = site.clone();
    let mut planned = Vec::new();
    for &copy in wanted {
        let taken = take(&site, database, &mut places, copy)?;
        // Its ports are taken.
        for known in site.machines.values_mut().filter(|it| it.spec.value.host == taken.host) {
            known.ports.extend(ports_of(&known.spec.value, taken.port));
        }
        planned.push(taken);
    }
    Ok(planned)
}

/// Returns the machines that can take copies, with what they have of a database.
fn places_beside<'a>(
    site: &'a Site,
    database: &Database,
    leaders: &BTreeSet<Id>,
) -> Vec<Place<'a>> {
    let mut places = places(site);
    for place in &mut places {
        let here =
            || database.copies.iter().filter(|it| it.machine == place.name && !it.is_leaving);
        (place.shards, place.primaries) = (
            here().map(|placed| placed.shard).collect(),
            here().filter(|placed| leaders.contains(&placed.copy)).count(),
        );
    }
    places
}

/// Plans a copy of a shard on the best of the places, and takes its room there. `number` is 0 for
/// the shard's first primary.
fn take(
    site: &Site,
    database: &Database,
    places: &mut [Place<'_>],
    (shard, number): (usize, usize),
) -> Result<Planned, Wrong> {
    let settings = &database.settings;
    let need = Need {
        memory_bytes: database.copy_bytes(shard),
        flash_bytes: database.copy_flash_bytes(shard),
        zones: settings.zones,
        replicas: settings.replicas,
    };
    let at = choose(places, &need, shard, number)?;
    let place = &mut places[at];
    let machine = place.machine;
    let mut ports = used_ports(site);
    let port = free_port(ports.entry(machine.host.clone()).or_default(), machine, settings.port)?;
    place.free = place.free.saturating_sub(need.memory_bytes);
    place.free_flash = place.free_flash.saturating_sub(need.flash_bytes);
    place.primaries += usize::from(number == 0);
    place.shards.push(shard);
    Ok(Planned {
        shard,
        is_primary: number == 0,
        machine: place.name.to_owned(),
        host: machine.host.clone(),
        zone: place.zone.to_owned(),
        port,
        memory_bytes: need.memory_bytes,
        threads: threads(machine.cores, place.shards.len()),
    })
}

/// Returns the reactor threads of a copy on a machine that has so many of the database.
pub fn threads(cores: usize, copies: usize) -> usize {
    (cores / copies.max(1)).clamp(1, 16)
}

/// Returns the machines that can take copies, as if they had none of the database.
fn places(site: &Site) -> Vec<Place<'_>> {
    let is_there = |known: &Known| known.alive.is_some() && !known.is_draining;
    let alive = site.machines.iter().filter(|(_, known)| is_there(known));
    alive
        .map(|(name, known)| {
            let machine = &known.spec.value;
            let flash = site.placed_on(name).map(|(_, it, here)| it.copy_flash_bytes(here.shard));
            Place {
                name,
                machine,
                zone: known.zone(),
                free: machine.memory_bytes.saturating_sub(site.used_bytes(name)),
                free_flash: machine.flash_bytes.saturating_sub(flash.sum()),
                shards: Vec::new(),
                primaries: 0,
            }
        })
        .collect()
}

/// What a copy needs.
struct Need {
    memory_bytes: u64,
    flash_bytes: u64,
    /// It has to be in a zone without a copy of the shard.
    zones: bool,
    /// How many copies a shard has beside its primary.
    replicas: usize,
}

/// Returns the best place for a copy of a shard. `number` is 0 for the shard's first primary.
fn choose(places: &[Place<'_>], need: &Need, shard: usize, number: usize) -> Result<usize, Wrong> {
    let has_room = |place: &&Place<'_>| {
        place.free >= need.memory_bytes && place.free_flash >= need.flash_bytes
    };
    let zones: BTreeSet<&str> =
        places.iter().filter(|place| place.shards.contains(&shard)).map(|it| it.zone).collect();
    let rank = |place: &Place<'_>| {
        let here = place.shards.iter().filter(|&&other| other == shard).count();
        let shares_zone = zones.contains(place.zone);
        let primaries = if number == 0 { place.primaries } else { 0 };
        (here, shares_zone, primaries, place.shards.len(), Reverse(place.free))
    };
    let candidates = places.iter().enumerate().filter(|(_, place)| has_room(place));
    let best = candidates.min_by_key(|(_, place)| rank(place));
    let Some((at, best)) = best else { return Err(no_room(places, need, shard, number)) };
    let shares_zone = zones.contains(best.zone);
    if need.zones && number > 0 && shares_zone {
        let all: BTreeSet<&str> = places.iter().map(|place| place.zone).collect();
        let all: Vec<&str> =
            all.into_iter().map(|zone| if zone.is_empty() { "(none)" } else { zone }).collect();
        return Err(Wrong(format!(
            "the {} copies of shard {} cannot be in different zones: machines with room are in {}. Start a node \
             with another --zone, or leave out --zones",
            need.replicas + 1,
            shard + 1,
            all.join(", ")
        )));
    }
    Ok(at)
}

fn no_room(places: &[Place<'_>], need: &Need, shard: usize, number: usize) -> Wrong {
    let what = if number == 0 { "the primary".to_owned() } else { format!("replica {number}") };
    let free = |place: &Place<'_>| match need.flash_bytes {
        0 => format!("{} has {}", place.name, Bytes(place.free)),
        _ => format!(
            "{} has {} and {} of flash",
            place.name,
            Bytes(place.free),
            Bytes(place.free_flash)
        ),
    };
    let free: Vec<String> = places.iter().map(free).collect();
    let free = if free.is_empty() { "no machine can take one".into() } else { free.join(", ") };
    let flash = match need.flash_bytes {
        0 => String::new(),
        bytes => format!(" and {} of flash", Bytes(bytes)),
    };
    Wrong(format!(
        "there is no room for {what} of shard {}: a copy needs {}{flash} of free memory; {free}. Add a machine \
         (dunlin cluster up --join), take less --memory, or start nodes with --memory if copies may have more",
        shard + 1,
        Bytes(need.memory_bytes),
    ))
}

/// Returns the ports that cannot be given to a copy, by host.
fn used_ports(site: &Site) -> BTreeMap<String, BTreeSet<u16>> {
    let mut ports: BTreeMap<String, BTreeSet<u16>> = BTreeMap::new();
    for known in site.machines.values() {
        let Machine { host, admin_port, .. } = &known.spec.value;
        let of_host = ports.entry(host.clone()).or_default();
        of_host.insert(*admin_port);
        of_host.extend(&known.ports);
    }
    for placed in site.databases.values().flat_map(|at| &at.value.copies) {
        let of_host = ports.entry(placed.host.clone()).or_default();
        of_host.insert(placed.port);
        if let Some(known) = site.machines.get(&placed.machine) {
            of_host.extend(ports_of(&known.spec.value, placed.port));
        }
    }
    ports
}

/// Returns the port and an offset. `None`: there is none.
fn beside(port: u16, offset: u16) -> Option<u16> {
    port.checked_add(offset).filter(|&beside| beside != port)
}

/// Returns the ports that a copy on a machine has, or may have: that of clients, the one with TLS,
/// and the one for other copies.
fn ports_of(machine: &Machine, port: u16) -> impl Iterator<Item = u16> {
    ports_of_clients(machine, port).chain(beside(port, machine.bus_port_offset))
}

/// Returns the ports of clients of a copy on a machine: with and without TLS.
fn ports_of_clients(machine: &Machine, port: u16) -> impl Iterator<Item = u16> {
    std::iter::once(port).chain(beside(port, machine.tls_port_offset))
}

/// Refuses a database whose port another database, a copy or a node has.
fn refuse_used_port(site: &Site, settings: &Settings, places: &[Place<'_>]) -> Result<(), Wrong> {
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
    refuse_used_bus_port(site, port, places)?;
    match places.iter().find(|place| place.machine.admin_port == port) {
        Some(place) => Err(Wrong(format!(
            "port {port} is the admin port of machine '{}': take another --port",
            place.name
        ))),
        None => Ok(()),
    }
}

/// Refuses a port that is a copy's port for others, or whose port for others is one of a database
/// or of its copies. A node passes on the ports of all databases.
fn refuse_used_bus_port(site: &Site, port: u16, places: &[Place<'_>]) -> Result<(), Wrong> {
    let bus_port = |machine: &Machine, port| beside(port, machine.bus_port_offset);
    let all = || places.iter().map(|place| (place.name, place.machine));
    for (name, at) in &site.databases {
        let copies = || at.value.copies.iter();
        for (machine, it) in all() {
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

/// Takes the first free port from a wanted one on, and those that the copy has beside it.
fn free_port(used: &mut BTreeSet<u16>, machine: &Machine, wanted: u16) -> Result<u16, Wrong> {
    let is_free = |&port: &u16| ports_of(machine, port).all(|port| !used.contains(&port));
    let free = (wanted..=u16::MAX).find(is_free);
    let free = free.ok_or_else(|| {
        Wrong(format!("there are not enough ports from {wanted} on: take a smaller --port"))
    })?;
    used.extend(ports_of(machine, free));
    Ok(free)
}

/// Returns what the user should know of a plan that can be carried out.
fn warnings(plan: &Plan, settings: &Settings, places: &[Place<'_>]) -> Vec<String> {
    let mut warnings = Vec::new();
    let doubled: Vec<String> = (0..settings.shards)
        .filter(|&shard| {
            let of_shard = plan.copies.iter().filter(|copy| copy.shard == shard);
            let machines: BTreeSet<&str> = of_shard.map(|copy| &*copy.machine).collect();
            machines.len() <= settings.replicas
        })
        .map(|shard| (shard + 1).to_string())
        .collect();
    if !doubled.is_empty() {
        warnings.push(format!(
            "Copies of shard {} share a machine: it can take all of them with it. The cluster has {} \
             machine{} for {} copies of a shard.",
            doubled.join(", "),
            places.len(),
            if places.len() == 1 { "" } else { "s" },
            settings.replicas + 1
        ));
    }
    if settings.commit == Commit::Quorum && settings.replicas == 1 {
        let text = "A quorum of two copies is both: while one is away, writes of its shard are not confirmed. \
                    With --replicas 2 they go on.";
        warnings.push(text.into());
    }
    let is_open = |copy: &Planned| !matches!(&*copy.host, "127.0.0.1" | "::1" | "localhost");
    if !settings.has_password() && plan.copies.iter().any(is_open) {
        warnings.push(format!(
            "There is no password: everything that reaches port {} reads and writes.",
            settings.port
        ));
    }
    warnings.extend(without_bus(plan, places));
    warnings
}

/// Says that copies have no port for others although some of the plan have one.
fn without_bus(plan: &Plan, places: &[Place<'_>]) -> Option<String> {
    let is_used = |place: &&Place<'_>| plan.copies.iter().any(|copy| copy.machine == place.name);
    let (with, without): (Vec<_>, Vec<_>) = places
        .iter()
        .filter(is_used)
        .partition::<Vec<&Place<'_>>, _>(|place| place.machine.bus_port_offset > 0);
    let names: Vec<&str> = without.iter().map(|place| place.name).collect();
    (!with.is_empty() && !names.is_empty()).then(|| {
        format!(
            "Copies on machine {} have no port for each other (--bus-port-offset): all copies of \
             the database go without TLS between them.",
            names.join(", ")
        )
    })
}

#[cfg(test)]
pub(crate) mod tests;

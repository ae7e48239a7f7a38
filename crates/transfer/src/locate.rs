//! Where the primaries of a source or target are: a server, a Sentinel group, or a Redis Cluster.

use crate::apply::{Ranges, slot_map};
use crate::place::{Address, Login, ServersUrl, connect};
use crate::source::Problem;
use crate::target::{Route, Target};
use client::{Client, Range, parse_slots};
use metrics::info::{Fields, part};
use resp::Value;
use rustls::ClientConfig;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

/// How long a server may take to answer.
const LIMIT: Duration = Duration::from_secs(10);

/// How long a target may take to confirm: a request may be a collection of gigabytes.
const TARGET_LIMIT: Duration = Duration::from_secs(120);

/// A primary, and its slots if there are others.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Part {
    /// Where it is.
    pub address: Address,
    /// Its slots.
    pub slots: Option<Ranges>,
}

/// Finds primaries again and again, since they change.
pub trait Locate: Sync {
    /// All primaries, in an order that a change of primaries keeps.
    ///
    /// # Errors
    /// They cannot be found, or slots are on their way from one to another.
    fn parts(&self) -> Result<Vec<Part>, Problem>;

    /// How to log in.
    fn login(&self) -> Login;

    /// The rules of TLS.
    ///
    /// # Errors
    /// They cannot be made.
    fn rules(&self) -> Result<Option<Arc<ClientConfig>>, Problem>;
}

/// Opens a connection to a part.
///
/// # Errors
/// It cannot be reached, or refuses the login.
pub fn open(locate: &dyn Locate, address: &Address, limit: Duration) -> Result<Client, Problem> {
    let rules = locate.rules()?;
    let link = connect(address, &locate.login(), rules.as_ref(), limit);
    let mut link = link.map_err(|error| {
        let (host, port) = address;
        Problem::Again(format!("{host}:{port}: {error}"))
    })?;
    // A copy of Dunlin that answers for all keys tells only connections that say so which keys are
    // its own.
    link.ask(&["CLIENT", "CAPA", "cluster"])?;
    Ok(link)
}

/// The keys of each database that has some.
pub type Keyspace = BTreeMap<u32, u64>;

/// Adds what INFO says of a server's databases: `db3:keys=7,expires=0,…`.
pub fn add_keyspace(sum: &mut Keyspace, info: &str) {
    for (db, line) in Fields::parse(info).databases() {
        if let Some(keys) = part(line, "keys").and_then(|keys| keys.parse::<u64>().ok()) {
            let count = sum.entry(db).or_default();
            *count = count.saturating_add(keys);
        }
    }
}

/// Asks each of these primaries for its keys.
///
/// # Errors
/// One does not answer, or refuses to say it.
pub fn keyspace(locate: &dyn Locate, parts: &[Part], limit: Duration) -> Result<Keyspace, Problem> {
    let mut sum = Keyspace::new();
    for part in parts {
        let mut link = open(locate, &part.address, limit)?;
        let info = link.order(&["INFO", "keyspace"]).map_err(|error| {
            let (host, port) = &part.address;
            Problem::Again(format!("{host}:{port}: {error}"))
        })?;
        add_keyspace(&mut sum, &info.text());
    }
    Ok(sum)
}

/// Servers that a user names.
pub struct Servers {
    place: ServersUrl,
    rules: Option<Arc<ClientConfig>>,
}

impl Servers {
    /// At this place.
    ///
    /// # Errors
    /// The rules of TLS cannot be made.
    pub fn new(place: ServersUrl) -> Result<Servers, String> {
        let rules = place.rules()?;
        Ok(Servers { place, rules })
    }

    fn ask_first<T>(
        &self,
        addresses: &[Address],
        ask: impl Fn(&Address) -> Result<T, Problem>,
    ) -> Result<T, Problem> {
        let mut last = Problem::Final("no address is given".into());
        for address in addresses {
            match ask(address) {
                Ok(found) => return Ok(found),
                Err(problem) => last = problem,
            }
        }
        Err(last)
    }

    /// Asks sentinels for the primary.
    fn primary(&self, name: &str) -> Result<Address, Problem> {
        let login = Login { user: String::new(), password: self.place.sentinel_password.clone() };
        self.ask_first(&self.place.hosts, |address| {
            let at = |error: std::io::Error| {
                Problem::Again(format!("sentinel {}:{}: {error}", address.0, address.1))
            };
            let mut link = connect(address, &login, self.rules.as_ref(), LIMIT).map_err(at)?;
            let words = ["SENTINEL", "GET-MASTER-ADDR-BY-NAME", name];
            let Value::Array(parts) = link.order(&words).map_err(at)? else {
                return Err(Problem::Again(format!("the sentinels know no primary '{name}'")));
            };
            let nonsense = || Problem::Again("the sentinel's answer makes no sense".into());
            let [host, port] = &parts[..] else { return Err(nonsense()) };
            let port = port.integer().and_then(|port| u16::try_from(port).ok());
            Ok((host.text(), port.ok_or_else(nonsense)?))
        })
    }

    fn parts_of_servers(&self) -> Result<Vec<Part>, Problem> {
        self.ask_first(&self.place.hosts, |address| {
            let mut link = open(self, address, LIMIT)?;
            parts(&mut link, address)
        })
    }
}

impl Locate for Servers {
    fn parts(&self) -> Result<Vec<Part>, Problem> {
        match &self.place.primary {
            Some(name) => Ok(vec![Part { address: self.primary(name)?, slots: None }]),
            None => self.parts_of_servers(),
        }
    }

    fn login(&self) -> Login {
        self.place.login.clone()
    }

    fn rules(&self) -> Result<Option<Arc<ClientConfig>>, Problem> {
        Ok(self.rules.clone())
    }
}

/// Asks a server whether it is part of a cluster, and of which primaries.
fn parts(link: &mut Client, address: &Address) -> Result<Vec<Part>, Problem> {
    let info = link.order(&["INFO", "cluster"])?.text();
    if !info.lines().any(|line| line.trim_end() == "cluster_enabled:1") {
        return Ok(vec![Part { address: address.clone(), slots: None }]);
    }
    let nodes = link.order(&["CLUSTER", "NODES"])?.text();
    // Slots that move are listed as [93->-… or [93-<-….
    if nodes.contains(" [") {
        return Err(Problem::Moving(
            "slots are being moved between the nodes of the cluster".into(),
        ));
    }
    let nonsense = || Problem::Again("the answer to CLUSTER SLOTS makes no sense".into());
    let ranges = parse_slots(&link.order(&["CLUSTER", "SLOTS"])?).ok_or_else(nonsense)?;
    let mut parts: Vec<(Address, Ranges)> = Vec::new();
    for Range { first, last, nodes } in ranges {
        let mut at = nodes.into_iter().next().ok_or_else(nonsense)?;
        if at.0.is_empty() {
            at.0.clone_from(&address.0);
        }
        match parts.iter_mut().find(|(known, _)| *known == at) {
            Some((_, ranges)) => ranges.push((first, last)),
            None => parts.push((at, vec![(first, last)])),
        }
    }
    if parts.is_empty() {
        return Err(Problem::Moving("the cluster has no slots".into()));
    }
    for (_, ranges) in &mut parts {
        ranges.sort_unstable();
    }
    // By slots, which stay when another node leads.
    parts.sort_by(|(_, one), (_, other)| one.cmp(other));
    Ok(parts.into_iter().map(|(address, slots)| Part { address, slots: Some(slots) }).collect())
}

/// Connects to all primaries of a target that speaks the cluster's protocol, or to the one server.
/// `name`: the name of the connections.
///
/// # Errors
/// One cannot be reached.
pub fn target(locate: &dyn Locate, name: &str) -> Result<Target, Problem> {
    let parts = locate.parts()?;
    let mut links = Vec::new();
    for part in &parts {
        links.push((part.address.clone(), named(locate, &part.address, name)?));
    }
    let slots: Option<Vec<Ranges>> = parts.into_iter().map(|part| part.slots).collect();
    let route = match slots {
        Some(slots) => Route::Slots(slot_map(&slots).map_err(Problem::Again)?),
        None => Route::One { is_one_shard: true, is_by_slot: true },
    };
    Ok(Target::new(links, route))
}

/// Opens a connection to a target.
///
/// # Errors
/// It cannot be reached.
pub fn named(locate: &dyn Locate, address: &Address, name: &str) -> Result<Client, Problem> {
    let rules = locate.rules()?;
    let link = connect(address, &locate.login(), rules.as_ref(), TARGET_LIMIT);
    let mut link = link.map_err(|error| {
        let (host, port) = address;
        Problem::Again(format!("{host}:{port}: {error}"))
    })?;
    link.ask(&["CLIENT", "SETNAME", name])?;
    Ok(link)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_of_databases_are_added_up() {
        let mut sum = Keyspace::new();
        add_keyspace(
            &mut sum,
            "# Keyspace\r\ndb0:keys=2,expires=0,avg_ttl=0\r\ndb3:keys=7,expires=1\r\n",
        );
        add_keyspace(&mut sum, "db3:keys=1\r\ndbx:keys=1\r\ndb4:expires=1\r\n");
        assert_eq!(sum, [(0, 2), (3, 8)].into());
    }
}

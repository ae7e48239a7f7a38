//! A node with its connection, and what it says about itself.

use super::SLOTS;
use crate::flavor::Flavor;
use crate::options::Options;
use crate::session::Session;
use crate::session::describe;
use client::{Address, Family};
use resp::Value;
use std::net::{SocketAddr, ToSocketAddrs};
use std::thread;
use std::time::{Duration, Instant};

/// How long nodes may take until they know each other.
pub const PATIENCE: Duration = Duration::from_secs(300);

/// A node.
pub struct Node {
    pub session: Session,
    pub host: String,
    pub port: u16,
    /// The port of the bus, if it is not the usual one.
    bus_port: Option<u16>,
    pub id: String,
    /// The primary that it follows.
    pub primary: Option<String>,
    /// Without `myself`.
    pub flags: Vec<String>,
    /// Sorted.
    pub slots: Vec<u16>,
    /// Slots that it gives to another, with its name.
    pub migrating: Vec<(u16, String)>,
    /// Slots that it gets from another, with its name.
    pub importing: Vec<(u16, String)>,
    pub epoch: u64,
    /// Whether it is a Dunlin.
    pub is_dunlin: bool,
    /// Its view of who has which slots, the same text for the same view.
    pub view: String,
    /// Nodes that it knows.
    pub known: usize,
}

/// A line of CLUSTER NODES.
pub struct Line<'a> {
    pub id: &'a str,
    address: &'a str,
    flags: &'a str,
    primary: &'a str,
    epoch: &'a str,
    slots: Vec<&'a str>,
}

/// The lines of CLUSTER NODES.
pub fn lines(text: &str) -> impl Iterator<Item = Line<'_>> {
    text.lines().filter_map(|line| {
        let words: Vec<&str> = line.split_ascii_whitespace().collect();
        let [id, address, flags, primary, _, _, epoch, _, slots @ ..] = &words[..] else {
            return None;
        };
        Some(Line { id, address, flags, primary, epoch, slots: slots.to_vec() })
    })
}

impl Line<'_> {
    /// Whether a flag is set.
    pub fn has(&self, flag: &str) -> bool {
        self.flags.split(',').any(|other| other == flag)
    }

    /// Whether it follows another.
    pub fn is_replica(&self) -> bool {
        self.primary != "-"
    }

    /// Whether it has a slot.
    pub fn has_slots(&self) -> bool {
        self.slots.iter().any(|word| !word.starts_with('['))
    }

    /// Host, port and port of the bus of `HOST:PORT@BUS,…`.
    pub fn address(&self) -> Option<(&str, u16, Option<u16>)> {
        let plain = self.address.split(',').next()?;
        let (place, bus) = plain.split_once('@').unwrap_or((plain, ""));
        let (host, port) = place.rsplit_once(':')?;
        let port = port.parse().ok().filter(|port| *port != 0)?;
        (!host.is_empty()).then_some((host, port, bus.parse().ok()))
    }

    /// Slots of words such as `5` and `0-5460`, sorted.
    fn slots(&self) -> Vec<u16> {
        let mut slots = Vec::new();
        for word in &self.slots {
            let (first, last) = word.split_once('-').unwrap_or((word, word));
            if let (Ok(first), Ok(last)) = (first.parse::<u16>(), last.parse::<u16>()) {
                slots.extend(first..=last.min(SLOTS as u16 - 1));
            }
        }
        slots.sort_unstable();
        slots
    }

    /// Open slots of words such as `[5->-ID]` and `[5-<-ID]`.
    fn open(&self, arrow: &str) -> Vec<(u16, String)> {
        let inner = |word: &&str| {
            let (slot, id) = word.strip_prefix('[')?.strip_suffix(']')?.split_once(arrow)?;
            Some((slot.parse().ok()?, id.to_owned()))
        };
        self.slots.iter().filter_map(inner).collect()
    }
}

/// Ranges of sorted slots.
pub fn ranges(slots: &[u16]) -> Vec<(u16, u16)> {
    let mut ranges: Vec<(u16, u16)> = Vec::new();
    for &slot in slots {
        match ranges.last_mut() {
            Some((_, last)) if *last + 1 == slot => *last = slot,
            _ => ranges.push((slot, slot)),
        }
    }
    ranges
}

/// Slots as they are listed: `[0-5460],[7000]`.
pub fn listed(slots: &[u16]) -> String {
    let shown = ranges(slots).into_iter().map(|(first, last)| match first == last {
        true => format!("[{first}]"),
        false => format!("[{first}-{last}]"),
    });
    shown.collect::<Vec<_>>().join(",")
}

impl Node {
    /// Connects to a node and asks it about itself.
    pub fn connect(options: &Options, host: &str, port: u16) -> Result<Node, String> {
        let mut session = Session::new(options.clone());
        session.place = Address::tcp(host, port);
        let mut node = Node {
            session,
            host: host.to_owned(),
            port,
            bus_port: None,
            id: String::new(),
            primary: None,
            flags: Vec::new(),
            slots: Vec::new(),
            migrating: Vec::new(),
            importing: Vec::new(),
            epoch: 0,
            is_dunlin: false,
            view: String::new(),
            known: 0,
        };
        let info = node.text(&["INFO"])?;
        if !info.contains("cluster_enabled:1") {
            return Err(format!("[ERR] Node {node} is not configured as a cluster node."));
        }
        node.is_dunlin = info.contains("dunlin_version:");
        node.look()?;
        Ok(node)
    }

    /// Asks the node. An error of the server is one here.
    pub fn ask(&mut self, words: &[impl AsRef<[u8]>]) -> Result<Value, String> {
        let reply = self.ask_any(words)?;
        if reply.is_error() { Err(self.refused(&reply)) } else { Ok(reply) }
    }

    /// The text for an error of the server.
    pub fn refused(&self, reply: &Value) -> String {
        format!("Node {self} replied with error:\n{}", reply.text_or_error())
    }

    /// Asks the node, and returns its errors, too.
    pub fn ask_any(&mut self, words: &[impl AsRef<[u8]>]) -> Result<Value, String> {
        if self.session.link.is_none() {
            // It says by itself why it cannot connect.
            if !self.session.connect() {
                return Err(String::new());
            }
            // A Dunlin that hides its cluster from clients shows it to those that say this.
            if let Some(link) = &mut self.session.link {
                link.ask(&["CLIENT", "CAPA", "cluster"]).map_err(|error| describe(&error))?;
            }
        }
        let link = self.session.link.as_mut().ok_or_else(String::new)?;
        let reply = link.ask(words).map_err(|error| describe(&error));
        if reply.is_err() {
            self.session.link = None;
        }
        reply.map_err(|why| format!("Node {self}: {why}"))
    }

    /// The same for a text.
    pub fn text(&mut self, words: &[&str]) -> Result<String, String> {
        Ok(self.ask(words)?.text_or_error())
    }

    /// The same for a number.
    pub fn number(&mut self, words: &[&str]) -> Result<usize, String> {
        let reply = self.ask(words)?;
        let number = reply.integer().and_then(|number| usize::try_from(number).ok());
        number.ok_or_else(|| format!("Node {self} did not reply with a number."))
    }

    /// Asks for its view of the cluster. Returns CLUSTER NODES.
    pub fn look(&mut self) -> Result<String, String> {
        let text = self.text(&["CLUSTER", "NODES"])?;
        let me = lines(&text).find(|line| line.has("myself"));
        let me = me.ok_or_else(|| format!("[ERR] Node {self} does not name itself."))?;
        self.id = me.id.to_owned();
        self.primary = me.is_replica().then(|| me.primary.to_owned());
        self.bus_port = me.address().and_then(|(_, port, bus)| {
            bus.filter(|bus| *bus != 0 && u32::from(*bus) != u32::from(port) + 10_000)
        });
        let flags = me.flags.split(',').filter(|flag| *flag != "myself");
        self.flags = flags.map(str::to_owned).collect();
        self.epoch = me.epoch.parse().unwrap_or_default();
        self.slots = me.slots();
        self.migrating = me.open("->-");
        self.importing = me.open("-<-");
        let mut view: Vec<String> = lines(&text)
            .filter(Line::has_slots)
            .map(|line| format!("{}:{}", line.id, listed(&line.slots())))
            .collect();
        view.sort();
        self.view = view.join("|");
        self.known = lines(&text).count();
        Ok(text)
    }

    /// Whether it has a slot.
    pub fn has(&self, slot: u16) -> bool {
        self.slots.binary_search(&slot).is_ok()
    }

    /// How many keys of a slot it has.
    pub fn count_keys(&mut self, slot: u16) -> Result<usize, String> {
        self.number(&["CLUSTER", "COUNTKEYSINSLOT", &slot.to_string()])
    }

    /// Notes that it has a slot, or that it has it no more.
    pub fn note(&mut self, slot: u16, has_it: bool) {
        match (self.slots.binary_search(&slot), has_it) {
            (Err(at), true) => self.slots.insert(at, slot),
            (Ok(at), false) => drop(self.slots.remove(at)),
            _ => {}
        }
    }

    /// Refuses a node that knows others, or has keys.
    pub fn ensure_empty(&mut self) -> Result<(), String> {
        let is_alone = self.text(&["CLUSTER", "INFO"])?.contains("cluster_known_nodes:1\r");
        if is_alone && !self.text(&["INFO", "keyspace"])?.contains("db0:") {
            return Ok(());
        }
        Err(format!(
            "[ERR] Node {self} is not empty. Either the node already knows other nodes (check with \
             CLUSTER NODES) or contains some key in database 0."
        ))
    }

    /// The address for CLUSTER MEET, which takes no names of hosts, and the port of the bus if it
    /// has to be said.
    pub fn meeting_place(&self) -> Result<Vec<String>, String> {
        let wrong = || format!("Invalid IP address or hostname specified: {}", self.host);
        let found: Vec<SocketAddr> =
            (self.host.as_str(), self.port).to_socket_addrs().map_err(|_| wrong())?.collect();
        let preferred = |address: &&SocketAddr| match self.session.options.family {
            Family::Any => true,
            Family::V4 => address.is_ipv4(),
            Family::V6 => address.is_ipv6(),
        };
        let address = found.iter().find(preferred).or(found.first()).ok_or_else(wrong)?;
        let mut words = vec![address.ip().to_string(), self.port.to_string()];
        words.extend(self.bus_port.map(|port| port.to_string()));
        Ok(words)
    }

    /// Makes it know another, of this address.
    pub fn meet(&mut self, place: &[String]) -> Result<(), String> {
        let mut words = vec!["CLUSTER", "MEET"];
        words.extend(place.iter().map(String::as_str));
        self.ask(&words).map(drop)
    }

    /// Makes it a replica, as soon as it knows the primary.
    pub fn replicate(&mut self, primary: &str) -> Result<(), String> {
        let deadline = Instant::now() + PATIENCE;
        loop {
            let reply = self.ask_any(&["CLUSTER", "REPLICATE", primary])?;
            if !reply.is_error() {
                self.primary = Some(primary.to_owned());
                return Ok(());
            }
            if !reply.text_or_error().starts_with("ERR Unknown node") || Instant::now() > deadline {
                return Err(self.refused(&reply));
            }
            thread::sleep(Duration::from_millis(200));
        }
    }

    /// The lines that `check` and `create` have for it, behind some spaces.
    pub fn describe(&self, replicas: usize, indent: usize) -> String {
        let space = " ".repeat(indent);
        let letter = if self.primary.is_some() { 'S' } else { 'M' };
        let mut text = format!(
            "{space}{letter}: {} {self}\n{space}   slots:{} ({} slots) {}",
            self.id,
            listed(&self.slots),
            self.slots.len(),
            self.flags.join(",")
        );
        match &self.primary {
            Some(primary) => text += &format!("\n{space}   replicates {primary}"),
            None if replicas > 0 => {
                text += &format!("\n{space}   {replicas} additional replica(s)")
            }
            None => {}
        }
        text
    }

    /// The word for a node that others follow, of the program that is imitated.
    pub fn primary_word(&self) -> &'static str {
        primary_word(self.session.options.flavor)
    }
}

/// What redis-cli calls a master is a primary to valkey-cli.
pub fn primary_word(flavor: Flavor) -> &'static str {
    if flavor == Flavor::Redis { "master" } else { "primary" }
}

/// The same for several.
pub fn primaries_word(flavor: Flavor) -> &'static str {
    if flavor == Flavor::Redis { "masters" } else { "primaries" }
}

impl std::fmt::Display for Node {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(out, "{}:{}", self.host, self.port)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_of_cluster_nodes_are_read() {
        let text = "07c3 ::1:30004@31004,host4,shard-id=x slave e7d1 0 1426238317239 4 connected\n\
                    e7d1 10.0.0.1:30001@41001 myself,master - 0 0 1 connected 0-2 5 [5->-292f] \
                    [7-<-07c3]\n\
                    gone :0@0 master,noaddr - 0 0 2 disconnected\n";
        let found: Vec<Line<'_>> = lines(text).collect();
        assert_eq!(found[0].address(), Some(("::1", 30004, Some(31004))));
        assert!(found[0].has("slave") && found[0].primary == "e7d1" && !found[0].has_slots());
        assert_eq!(found[1].slots(), [0, 1, 2, 5]);
        assert_eq!(found[1].open("->-"), [(5, "292f".to_owned())]);
        assert_eq!(found[1].open("-<-"), [(7, "07c3".to_owned())]);
        assert_eq!(listed(&found[1].slots()), "[0-2],[5]");
        assert_eq!(found[2].address(), None);
    }
}

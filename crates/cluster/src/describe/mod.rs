//! What clients and tools are told of a database: CLUSTER SLOTS, SHARDS, NODES and INFO, and where
//! a slot is.
//!
//! Clients read these forms strictly, each its own part. What they have in common decides:
//! - a host is always there, and is one that others can connect to;
//! - a shard without a primary keeps the address of its last one: clients try again, where a hole
//!   would end them;
//! - ranges are merged and in the order of slots, the primary is first, then replicas by id;
//! - a replica without a lease is not named to clients that route by SLOTS;
//! - NODES says `master` and `slave`, SHARDS `master` and `replica`.

use crate::bus;
use crate::id::Id;
use crate::slots::COUNT;
use crate::topology::{Address, Holder, Replica, Shard};
use crate::view::View;
use std::fmt::Write;

/// For whom the answer is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Asker {
    /// The connection has TLS, so ports with TLS are named.
    pub is_tls: bool,
    /// The connection is by IPv6.
    pub is_ipv6: bool,
    /// Host names are preferred to addresses.
    pub wants_hostname: bool,
}

/// A server, as SLOTS names it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Node {
    /// The host to connect to.
    pub endpoint: String,
    /// The port.
    pub port: u16,
    /// Its name.
    pub id: Id,
    /// `ip` or `hostname`, whichever is not the endpoint, and `availability-zone`.
    pub metadata: Vec<(&'static str, String)>,
}

/// An element of the reply to CLUSTER SLOTS.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Range {
    /// The first slot.
    pub first: u16,
    /// The last slot.
    pub last: u16,
    /// The primary, then the replicas.
    pub nodes: Vec<Node>,
}

/// A copy's health, as SHARDS says it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Health {
    /// It has a lease and the shard's data.
    Online,
    /// It has a lease, and no data yet.
    Loading,
    /// It has no lease.
    Fail,
}

impl Health {
    /// The word for it.
    pub fn name(self) -> &'static str {
        match self {
            Health::Online => "online",
            Health::Loading => "loading",
            Health::Fail => "fail",
        }
    }
}

/// A copy, with all that the answers say of it.
struct Told<'a> {
    copy: &'a Replica,
    shard: &'a Shard,
    is_primary: bool,
    is_alive: bool,
}

impl View {
    /// Returns what CLUSTER SLOTS answers.
    pub fn slot_ranges(&self, asker: Asker) -> Vec<Range> {
        let shards = self.topology.value.shards.iter();
        let ranges = shards.flat_map(|shard| {
            let nodes = self.nodes_of(shard, asker);
            let range = move |&(first, last)| Range { first, last, nodes: nodes.clone() };
            shard.slots.ranges().iter().map(range)
        });
        let mut ranges: Vec<Range> = ranges.collect();
        ranges.sort_by_key(|range| range.first);
        ranges
    }

    /// Returns a copy's health.
    pub fn health_of(&self, shard: &Shard, copy: &Replica) -> Health {
        let Some(at) = self.alive.get(&copy.id) else { return Health::Fail };
        let incarnation = at.value.incarnation;
        let leads = shard.holder == Holder { id: copy.id, incarnation };
        match leads || copy.member == Some(incarnation) {
            true => Health::Online,
            false => Health::Loading,
        }
    }

    /// Returns what CLUSTER NODES answers at the copy `me`.
    pub fn nodes_text(&self, me: Id, asker: Asker) -> String {
        let mut told: Vec<Told<'_>> = self.told().collect();
        told.sort_by_key(|told| told.copy.id);
        let mut text = String::new();
        for Told { copy, shard, is_primary, is_alive } in told {
            let node = asker.node(copy);
            let Replica { id, address, .. } = copy;
            let bus = match address.bus_port {
                0 => node.port.checked_add(bus::OFFSET).unwrap_or(0),
                announced => announced,
            };
            let _ = write!(text, "{id} {}:{}@{bus}", asker.host(address), node.port);
            if !address.hostname.is_empty() {
                let _ = write!(text, ",{}", address.hostname);
            }
            let flags = [
                (copy.id == me, "myself"),
                (true, if is_primary { "master" } else { "slave" }),
                (!is_alive, "fail"),
                (copy.is_never_promoted, "nofailover"),
            ];
            let flags: Vec<&str> =
                flags.iter().filter(|(is_set, _)| *is_set).map(|&(_, flag)| flag).collect();
            let primary = if is_primary { "-".into() } else { shard.holder.id.to_string() };
            let link = if is_alive { "connected" } else { "disconnected" };
            let (flags, epoch) = (flags.join(","), shard.epoch.0);
            let _ = write!(text, " {flags} {primary} 0 0 {epoch} {link}");
            for &(first, last) in shard.slots.ranges().iter().filter(|_| is_primary) {
                let _ = match first == last {
                    true => write!(text, " {first}"),
                    false => write!(text, " {first}-{last}"),
                };
            }
            if copy.id == me {
                self.tell_open_slots(shard, &mut text);
            }
            text.push('\n');
        }
        text
    }

    /// The slots that move key by key, with the nodes at the other end.
    fn tell_open_slots(&self, shard: &Shard, text: &mut String) {
        let topology = &self.topology.value;
        let leaving = shard.migrating.iter().map(|(&slot, &to)| (slot, "->-", to));
        let coming = shard.importing.iter().map(|(&slot, &from)| (slot, "-<-", from));
        let mut open: Vec<_> = leaving.chain(coming).collect();
        open.sort_by_key(|&(slot, ..)| slot);
        for (slot, arrow, other) in open {
            let _ = write!(text, " [{slot}{arrow}{}]", topology.leader_of(other));
        }
    }

    /// Returns whether requests are answered: each slot's shard has a living primary, or, without
    /// `cluster-require-full-coverage`, there is a slot at all.
    pub fn is_ok(&self, requires_full_coverage: bool) -> bool {
        let slots = self.slot_counts();
        match requires_full_coverage {
            true => slots.served == usize::from(COUNT),
            false => slots.assigned > 0,
        }
    }

    /// Returns what CLUSTER INFO answers at the copy `me`.
    pub fn info_text(&self, me: Id, requires_full_coverage: bool) -> String {
        let topology = &self.topology.value;
        let state = if self.is_ok(requires_full_coverage) { "ok" } else { "fail" };
        let slots = self.slot_counts();
        let failed = || self.told().filter(|told| !told.is_alive);
        let has_slots = |told: &Told<'_>| told.is_primary && !told.shard.slots.is_empty();
        let own_epoch = topology.shard_of(me).map_or(0, |shard| shard.epoch.0);
        let size = topology.shards.iter().filter(|shard| !shard.slots.is_empty()).count();
        let lines: [(&str, u64); 15] = [
            ("cluster_slots_assigned", slots.assigned as u64),
            ("cluster_slots_ok", slots.served as u64),
            ("cluster_slots_pfail", 0),
            ("cluster_slots_fail", (slots.assigned - slots.served) as u64),
            ("cluster_nodes_pfail", 0),
            ("cluster_nodes_fail", failed().count() as u64),
            ("cluster_voting_nodes_pfail", 0),
            ("cluster_voting_nodes_fail", failed().filter(has_slots).count() as u64),
            ("cluster_known_nodes", topology.copies().count() as u64),
            ("cluster_size", size as u64),
            ("cluster_current_epoch", topology.epoch.0),
            ("cluster_my_epoch", own_epoch),
            ("cluster_stats_messages_sent", 0),
            ("cluster_stats_messages_received", 0),
            ("total_cluster_links_buffer_limit_exceeded", 0),
        ];
        let mut text = format!("cluster_state:{state}\r\n");
        for (name, value) in lines {
            let _ = write!(text, "{name}:{value}\r\n");
        }
        if let Some(at) = &self.rolled_back {
            let crate::view::RolledBack { known, found, .. } = &at.value;
            let key = self.keys.rolled_back(self.database);
            let _ = write!(
                text,
                "cluster_coordinator_rolled_back:from={known},to={found},key={key}\r\n"
            );
        }
        text
    }

    fn slot_counts(&self) -> SlotCounts {
        let mut counts = SlotCounts { assigned: 0, served: 0 };
        for shard in &self.topology.value.shards {
            counts.assigned += shard.slots.len();
            counts.served += if self.is_alive(shard.holder) { shard.slots.len() } else { 0 };
        }
        counts
    }

    fn told(&self) -> impl Iterator<Item = Told<'_>> {
        self.topology.value.shards.iter().flat_map(move |shard| {
            shard.copies.iter().map(move |copy| Told {
                copy,
                shard,
                is_primary: copy.id == shard.holder.id,
                is_alive: self.health_of(shard, copy) != Health::Fail,
            })
        })
    }

    /// The primary, then the replicas that can be read.
    fn nodes_of(&self, shard: &Shard, asker: Asker) -> Vec<Node> {
        let is_read = |copy: &&Replica| {
            copy.id != shard.holder.id && self.health_of(shard, copy) == Health::Online
        };
        let mut replicas: Vec<&Replica> = shard.copies.iter().filter(is_read).collect();
        replicas.sort_by_key(|copy| copy.id);
        let primary = shard.copy(shard.holder.id);
        primary.into_iter().chain(replicas).map(|copy| asker.node(copy)).collect()
    }
}

/// How many slots have a shard, and one with a living primary.
struct SlotCounts {
    assigned: usize,
    served: usize,
}

impl Asker {
    /// The address that this client is told.
    pub fn host(self, address: &Address) -> &str {
        let announced = &address.for_clients;
        let own = if self.is_ipv6 { &announced.ipv6 } else { &announced.ipv4 };
        if own.is_empty() { &address.host } else { own }
    }

    /// The ports that this client is told, without and with TLS; 0: there is none.
    pub fn ports(self, address: &Address) -> (u16, u16) {
        let told =
            |announced: u16, own: u16| if announced > 0 && own > 0 { announced } else { own };
        let announced = &address.for_clients;
        (told(announced.port, address.port), told(announced.tls_port, address.tls_port))
    }

    /// How a copy is named to this client.
    pub fn node(self, copy: &Replica) -> Node {
        let address = &copy.address;
        let host = self.host(address);
        let port = match (self.is_tls, self.ports(address)) {
            (true, (port, 0)) | (false, (port, _)) if port > 0 => port,
            (_, (_, tls_port)) => tls_port,
        };
        let Address { hostname, zone, .. } = address;
        let by_name = self.wants_hostname && !hostname.is_empty();
        let (endpoint, other) = match by_name {
            true => (hostname.as_str(), ("ip", host)),
            false => (host, ("hostname", hostname.as_str())),
        };
        let metadata = [other, ("availability-zone", zone)].into_iter();
        let metadata = metadata.filter(|(_, value)| !value.is_empty());
        let metadata = metadata.map(|(name, value)| (name, value.to_owned())).collect();
        Node { endpoint: endpoint.to_owned(), port, id: copy.id, metadata }
    }
}

#[cfg(test)]
mod tests;

//! Which node of a cluster serves which slot.

use crate::options::{Address, Target};
use client::{Range, parse_slots};
use std::io;
use std::sync::OnceLock;
use structs::crc16::{SLOTS, key_slot};

/// A cluster as one of its nodes described it.
#[derive(Clone, Debug, PartialEq)]
pub struct Topology {
    /// The primaries.
    pub nodes: Vec<Address>,
    /// By slot, the index of its primary; [`NO_PRIMARY`] if there is none.
    pub slots: Vec<u16>,
}

/// The primary of a slot that has none.
pub const NO_PRIMARY: u16 = u16::MAX;

impl Topology {
    /// A single server, which serves every slot.
    pub fn single(target: &Target) -> Topology {
        Topology { nodes: vec![target.address.clone()], slots: vec![0; usize::from(SLOTS)] }
    }

    /// Asks a node of a cluster, or the sentinels of a server.
    pub fn ask(target: &Target) -> io::Result<Topology> {
        if let Some(sentinels) = &target.sentinels {
            return Ok(Topology::single(&target.at(sentinels.primary()?)));
        }
        let reply = target.connect()?.order(&["CLUSTER", "SLOTS"])?;
        parse_slots(&reply)
            .and_then(|ranges| Topology::read(ranges, &target.address))
            .ok_or_else(|| io::Error::other("CLUSTER SLOTS has an unexpected form or no slots"))
    }

    fn read(ranges: Vec<Range>, asked: &Address) -> Option<Topology> {
        let mut topology =
            Topology { nodes: Vec::new(), slots: vec![NO_PRIMARY; usize::from(SLOTS)] };
        for range in ranges {
            let (host, port) = range.nodes.into_iter().next()?;
            let host = match (&*host, asked) {
                // A node that does not know its own address: the one it was asked at.
                ("", Address::Tcp { host, .. }) => host.clone(),
                ("", Address::Unix(_)) => return None,
                _ => host,
            };
            let address = Address::tcp(host, port);
            let index = match topology.nodes.iter().position(|node| *node == address) {
                Some(index) => index,
                None => {
                    topology.nodes.push(address);
                    topology.nodes.len() - 1
                }
            };
            let index = u16::try_from(index).ok()?;
            topology.slots[usize::from(range.first)..=usize::from(range.last)].fill(index);
        }
        (!topology.nodes.is_empty()).then_some(topology)
    }

    /// Whether a node serves a key.
    #[inline]
    pub fn serves(&self, node: usize, key: &[u8]) -> bool {
        usize::from(self.slots[usize::from(key_slot(key))]) == node
    }

    /// A tag of one of the node's slots, chosen by a random number.
    #[inline]
    pub fn tag(&self, node: usize, random: u64) -> [u8; 3] {
        let start = (random % u64::from(SLOTS)) as usize;
        let (before, after) = self.slots.split_at(start);
        let slot = after
            .iter()
            .chain(before)
            .position(|&owner| usize::from(owner) == node)
            .map_or(0, |steps| (start + steps) % usize::from(SLOTS));
        tags()[slot]
    }

    /// The nodes of `clients` connections, as many for each as it has slots.
    pub fn nodes_for(&self, clients: u64) -> Vec<usize> {
        let mut counts = vec![0u64; self.nodes.len()];
        for &owner in &self.slots {
            if let Some(count) = counts.get_mut(usize::from(owner)) {
                *count += 1;
            }
        }
        let total: u64 = counts.iter().sum();
        let node = |number: u64| {
            let mut place = (2 * number + 1) * total / (2 * clients);
            for (node, &count) in counts.iter().enumerate() {
                if place < count {
                    return node;
                }
                place -= count;
            }
            0
        };
        (0..clients).map(node).collect()
    }
}

/// Three characters for every slot.
fn tags() -> &'static [[u8; 3]] {
    static TAGS: OnceLock<Vec<[u8; 3]>> = OnceLock::new();
    TAGS.get_or_init(|| {
        let letters: Vec<u8> = (b'0'..=b'9').chain(b'a'..=b'z').chain(b'A'..=b'Z').collect();
        let mut tags = vec![[0; 3]; usize::from(SLOTS)];
        let mut missing = tags.len();
        'all: for &first in &letters {
            for &second in &letters {
                for &third in &letters {
                    let tag = [first, second, third];
                    let place = &mut tags[usize::from(key_slot(&tag))];
                    if *place == [0; 3] {
                        *place = tag;
                        missing -= 1;
                        if missing == 0 {
                            break 'all;
                        }
                    }
                }
            }
        }
        tags
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_slot_has_a_tag() {
        for (slot, tag) in tags().iter().enumerate() {
            assert_eq!(usize::from(key_slot(tag)), slot);
        }
    }

    #[test]
    fn slots_are_read_and_connections_follow_them() {
        let range =
            |first, last, host: &str, port| Range { first, last, nodes: vec![(host.into(), port)] };
        let asked = Address::tcp("h", 1);
        let ranges = vec![range(0, 4095, "", 1), range(4096, 16383, "b", 2)];
        let topology = Topology::read(ranges, &asked).unwrap();
        assert_eq!(topology.nodes[0], asked);
        let nodes = topology.nodes_for(100);
        assert_eq!(nodes, [[0; 25].as_slice(), &[1; 75]].concat());
        for random in [0, 5, 4096, 16383, 99_999] {
            assert!(topology.serves(0, &topology.tag(0, random)));
            assert!(topology.serves(1, &topology.tag(1, random)));
        }
        assert!(Topology::read(Vec::new(), &asked).is_none());
    }
}

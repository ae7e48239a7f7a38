//! A cluster of Redis or Valkey that starts again from its files: what `nodes.conf` says, and the
//! topology that it becomes.
//!
//! Each server has a file of its own, and one that was away when another took over has an old one.
//! So each tells the coordinator what its file says (a *claim*), and the topology is made of the
//! file with the greatest epoch, when all nodes that it lists have told theirs. Then no later file
//! can turn up.

use crate::coordinator::{Change, Compare, Range, Transaction};
use crate::id::Id;
use crate::slots::{COUNT, Slots};
use crate::topology::{Address, Shard, Topology};
use crate::view::{self, Keys};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// A node as a file lists it.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Listed {
    /// Its name.
    pub id: Id,
    /// The primary that it follows; `None` if it is one.
    pub follows: Option<Id>,
    /// It was found to have failed.
    pub has_failed: bool,
    /// Its slots.
    pub slots: Slots,
}

/// What a file says.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Layout {
    /// The greatest epoch that the node had heard of.
    pub epoch: u64,
    /// All nodes.
    pub nodes: Vec<Listed>,
}

/// What a server tells the coordinator.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Claim {
    /// Its file.
    pub layout: Layout,
    /// Where it is now.
    pub address: Address,
}

/// What a server that starts from a file has to do.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum FileStep {
    /// Wait until these have told what their files say.
    Waits(Vec<Id>),
    /// Wait for a server with a newer file.
    Yields(Id),
    /// Make the topology.
    Makes(Box<Topology>),
    /// The file makes no topology, for a reason.
    Unusable(String),
}

impl Layout {
    /// Reads a file. `None`: it lists no other nodes, or no slots, so it is no cluster's.
    ///
    /// # Errors
    /// A line makes no sense.
    pub fn parse(text: &str) -> Result<Option<Layout>, String> {
        let mut layout = Layout { epoch: 0, nodes: Vec::new() };
        for line in text.lines().filter(|line| !line.trim().is_empty()) {
            let words: Vec<&str> = line.split_ascii_whitespace().collect();
            let wrong = || format!("the line '{line}' makes no sense");
            if words[0] == "vars" {
                let epoch = words.iter().position(|word| *word == "currentEpoch");
                let epoch = epoch.and_then(|at| words.get(at + 1)?.parse().ok());
                layout.epoch = epoch.ok_or_else(wrong)?;
                continue;
            }
            let [id, _, flags, follows, _, _, _, _, slots @ ..] = &words[..] else {
                return Err(wrong());
            };
            let flags: Vec<&str> = flags.split(',').collect();
            if flags.contains(&"handshake") {
                continue;
            }
            let id: Id = id.parse().map_err(|_| wrong())?;
            let follows = match *follows {
                "-" => None,
                primary => Some(primary.parse().map_err(|_| wrong())?),
            };
            let slots = read_slots(slots).ok_or_else(wrong)?;
            let has_failed = flags.contains(&"fail") || flags.contains(&"noaddr");
            layout.nodes.push(Listed { id, follows, has_failed, slots });
        }
        let has_slots = layout.nodes.iter().any(|node| !node.slots.is_empty());
        Ok((layout.nodes.len() > 1 && has_slots).then_some(layout))
    }

    /// Says what a server with this file does, which has told so already.
    pub fn step(&self, own: Id, claims: &BTreeMap<Id, Claim>) -> FileStep {
        // Replicas that have failed may never come back; a primary's slots are nowhere else.
        let is_needed = |node: &&Listed| !node.has_failed || !node.slots.is_empty();
        let missing: Vec<Id> = self
            .nodes
            .iter()
            .filter(is_needed)
            .map(|node| node.id)
            .filter(|id| !claims.contains_key(id))
            .collect();
        let rank = |(id, claim): (&Id, &Claim)| (claim.layout.epoch, std::cmp::Reverse(*id));
        let listed = claims.iter().filter(|(id, _)| self.nodes.iter().any(|node| node.id == **id));
        let newest = listed.max_by_key(|(id, claim)| rank((id, claim)));
        match newest {
            _ if !missing.is_empty() => FileStep::Waits(missing),
            Some((id, _)) if *id != own => FileStep::Yields(*id),
            _ => match self.topology(claims) {
                Ok(topology) => FileStep::Makes(Box::new(topology)),
                Err(why) => FileStep::Unusable(why),
            },
        }
    }

    /// Returns the primary that has the slots which a node without slots believes to have: another
    /// took over while it was away, and it follows that one now.
    fn successor(&self, node: &Listed, claims: &BTreeMap<Id, Claim>) -> Option<Id> {
        if !node.slots.is_empty() {
            return None;
        }
        let claim = claims.get(&node.id)?;
        let believed = claim.layout.nodes.iter().find(|it| it.id == node.id)?;
        let slot = believed.slots.iter().next()?;
        let owner = self.nodes.iter().find(|it| it.slots.contains(slot))?;
        Some(owner.id)
    }

    fn topology(&self, claims: &BTreeMap<Id, Claim>) -> Result<Topology, String> {
        let place = |id: Id| claims.get(&id).map(|claim| (id, claim.address.clone()));
        let follows = |node: &Listed| node.follows.or_else(|| self.successor(node, claims));
        let shards = self.nodes.iter().filter(|node| follows(node).is_none()).filter_map(|node| {
            let replicas = self.nodes.iter().filter(|it| follows(it) == Some(node.id));
            let mut copies = vec![place(node.id)?];
            copies.extend(replicas.filter_map(|replica| place(replica.id)));
            // The name of a shard can be any that no other has.
            Shard::planned(node.id, node.slots.clone(), copies)
        });
        let topology = Topology::planned(0, shards.collect());
        topology.check().map(|()| topology)
    }
}

/// Reads `0-5460 93 [94->-…]`. Slots that move are those of the node that the line is about, or of
/// another.
fn read_slots(words: &[&str]) -> Option<Slots> {
    let mut all = vec![false; usize::from(COUNT)];
    for word in words.iter().filter(|word| !word.starts_with('[')) {
        let (first, last) = word.split_once('-').unwrap_or((word, word));
        let (first, last): (usize, usize) = (first.parse().ok()?, last.parse().ok()?);
        all.get_mut(first..=last)?.fill(true);
    }
    Some(Slots::from_fn(|slot| all[usize::from(slot)]))
}

/// Reads what has been told. A value that is not readable counts as not told.
pub fn read_claims(keys: &Keys, range: &Range) -> BTreeMap<Id, Claim> {
    let claims = range.items.iter().filter_map(|item| {
        let id = item.key.strip_prefix(&keys.claims())?.parse().ok()?;
        Some((id, serde_json::from_slice(&item.value).ok()?))
    });
    claims.collect()
}

/// The transaction that tells what a server's file says.
pub fn tell(keys: &Keys, own: Id, claim: &Claim) -> Transaction {
    let value = view::encode(claim);
    let changes = vec![Change::Put { key: keys.claim(own), value, lease: None }];
    // A server that has a home needs no claim.
    Transaction { compares: vec![Compare { key: keys.home(own), revision: 0 }], changes }
}

/// The transaction that makes the topology, and forgets the claims.
pub fn make(keys: &Keys, topology: &Topology, claims: &BTreeMap<Id, Claim>) -> Transaction {
    // The database's name is that of a shard: it is the same, whoever makes it.
    let first = topology.shards.iter().map(|shard| shard.id).min();
    let database = first.unwrap_or_else(|| Id::draw(structs::hashing::os_random));
    let mut transaction = view::plan(keys, database, topology);
    let told = claims.keys().map(|id| Change::Delete { key: keys.claim(*id) });
    transaction.changes.extend(told);
    transaction
}

#[cfg(test)]
mod tests {
    use super::*;

    fn id(digit: char) -> Id {
        digit.to_string().repeat(40).parse().expect("it has 40 digits")
    }

    fn file(epoch: u64, primary: char, replica: char) -> Layout {
        let text = format!(
            "{} 127.0.0.1:1@2,host master - 0 1 3 connected 0-8191 [8192->-{}]\n\
             {} :0@0 slave,noaddr {} 0 1 2 disconnected\n\
             {} 127.0.0.1:5@6 myself,master - 0 0 1 connected 8192-16382 16383\n\
             {} 127.0.0.1:7@8 slave,fail {} 0 0 1 connected\n\
             vars currentEpoch {epoch} lastVoteEpoch 0\n",
            id(primary),
            id('3'),
            id(replica),
            id(primary),
            id('3'),
            id('4'),
            id('3'),
        );
        Layout::parse(&text).expect("it is sound").expect("it is a cluster's")
    }

    fn claims(layouts: &[(char, &Layout)]) -> BTreeMap<Id, Claim> {
        let claim = |(own, layout): &(char, &Layout)| {
            let address = Address { host: "h".into(), port: 9, ..Address::default() };
            (id(*own), Claim { layout: (*layout).clone(), address })
        };
        layouts.iter().map(claim).collect()
    }

    #[test]
    fn the_newest_file_makes_the_topology_when_all_are_there() {
        let (old, new) = (file(5, '2', '1'), file(6, '1', '2'));
        assert_eq!(old.step(id('2'), &claims(&[('2', &old)])), FileStep::Waits(vec![id('3')]));
        let all = claims(&[('1', &new), ('2', &old), ('3', &new)]);
        assert_eq!(old.step(id('2'), &all), FileStep::Yields(id('1')));
        assert_eq!(new.step(id('3'), &all), FileStep::Yields(id('1')));
        let FileStep::Makes(topology) = new.step(id('1'), &all) else { panic!("it is the newest") };
        let slots: Vec<_> = topology.shards.iter().map(|it| it.slots.ranges().to_vec()).collect();
        assert_eq!(slots, [vec![(0, 8191)], vec![(8192, 16383)]]);
        // The one that has failed and told nothing is left out.
        assert_eq!(topology.shards[0].copies.len(), 2);
        assert_eq!(topology.shards[1].copies.len(), 1);
        assert_eq!(topology.shards[0].holder.id, id('1'));
    }

    #[test]
    fn a_primary_that_was_replaced_follows_its_successor() {
        let old = file(5, '2', '1');
        let text = format!(
            "{} h:1@2 myself,master - 0 1 3 connected 0-8191\n{} h:1@2 master,fail - 0 1 3 connected\n\
             {} h:1@2 master - 0 1 3 connected 8192-16383\nvars currentEpoch 7 lastVoteEpoch 7\n",
            id('1'),
            id('2'),
            id('3'),
        );
        let new = Layout::parse(&text).expect("it is sound").expect("it is a cluster's");
        let all = claims(&[('1', &new), ('2', &old), ('3', &new)]);
        let FileStep::Makes(topology) = new.step(id('1'), &all) else { panic!("it is the newest") };
        let copies: Vec<Id> = topology.shards[0].copies.iter().map(|copy| copy.id).collect();
        assert_eq!((topology.shards.len(), copies), (2, vec![id('1'), id('2')]));
    }

    #[test]
    fn a_file_of_one_node_is_no_cluster() {
        let line = format!("{} h:1@2 myself,master - 0 0 0 connected 0-16383\n", id('1'));
        assert_eq!(Layout::parse(&line), Ok(None));
        assert!(Layout::parse("what is this").is_err());
        let line = format!("{} h:1@2 myself,master - 0 0 0 connected 0-99999\n", id('1'));
        assert!(Layout::parse(&line).is_err());
    }
}

//! A database: its shards, their slots and copies, and which copy leads each of them since which
//! epoch.
//!
//! It is one value in etcd, as JSON. One value means that a change is one compare-and-set, that
//! every reader sees all slots of the same moment, and that 16384 slots need no more than a few
//! ranges of one transaction. What is read was perhaps written by hand or by another version, so
//! [`Topology::decode`] checks all that the code relies on.

use crate::id::{Epoch, Id, Incarnation};
use crate::slots::{COUNT, Slots};
use crate::stored::Later;
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

/// The version of the encoding. A reader refuses others.
pub const VERSION: u32 = 1;

/// The longest host name: 253 bytes, as DNS has it.
const MAX_HOST_LEN: usize = 253;

/// Where clients and other copies reach a copy.
#[derive(Clone, PartialEq, Eq, Default, Debug, Serialize, Deserialize)]
pub struct Address {
    /// A host that others can connect to: never empty, never a wildcard.
    pub host: String,
    /// The port, 0 if the copy has only one with TLS.
    pub port: u16,
    /// The port with TLS, 0 if there is none.
    pub tls_port: u16,
    /// The host name that it announces beside its address; perhaps empty.
    pub hostname: String,
    /// The availability zone that it announces; perhaps empty.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub zone: String,
    /// What clients are told instead.
    #[serde(default, skip_serializing_if = "ForClients::is_empty")]
    pub for_clients: ForClients,
    /// The port that CLUSTER NODES shows behind `@`; 0: as Redis derives it.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub bus_port: u16,
}

/// Tells a field that is left out.
pub(crate) fn is_zero(port: &u16) -> bool {
    *port == 0
}

/// Where clients reach a copy, where it is not where copies reach each other. Empty: the same.
#[derive(Clone, PartialEq, Eq, Default, Debug, Serialize, Deserialize)]
#[serde(default)]
pub struct ForClients {
    /// The host for clients that came by IPv4.
    pub ipv4: String,
    /// The host for clients that came by IPv6.
    pub ipv6: String,
    /// The port.
    pub port: u16,
    /// The port with TLS.
    pub tls_port: u16,
}

impl ForClients {
    fn is_empty(&self) -> bool {
        *self == ForClients::default()
    }
}

impl Address {
    /// Returns the port with TLS or the one without; 0: there is none.
    pub fn port_for(&self, by_tls: bool) -> u16 {
        if by_tls { self.tls_port } else { self.port }
    }

    /// Returns the port that names the copy to others: [`Self::port_for`], or else the other one.
    pub fn naming_port(&self, by_tls: bool) -> u16 {
        match self.port_for(by_tls) {
            0 => self.port_for(!by_tls),
            port => port,
        }
    }

    /// Whether it is one of the ports, with or without TLS.
    pub fn has_port(&self, port: u16) -> bool {
        port != 0 && [self.port, self.tls_port].contains(&port)
    }

    /// Returns whether other copies reach it at this place.
    pub fn is_at(&self, host: &str, port: u16) -> bool {
        self.host == host && self.has_port(port)
    }

    /// Returns whether clients reach it at this place, by a name or port that it announces to them.
    pub fn is_told_as(&self, host: &str, port: u16) -> bool {
        let ForClients { ipv4, ipv6, port: plain, tls_port } = &self.for_clients;
        let hosts = [&self.host, &self.hostname, ipv4, ipv6];
        let ports = [self.port, self.tls_port, *plain, *tls_port];
        !host.is_empty() && hosts.iter().any(|it| *it == host) && port != 0 && ports.contains(&port)
    }
}

/// A server with the data of a shard.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Replica {
    /// Its name.
    pub id: Id,
    /// Where it is.
    pub address: Address,
    /// The data with which it became a member, which can acknowledge for a quorum and be promoted.
    /// `None`: it has never been in step with a primary.
    pub member: Option<Incarnation>,
    /// It is never promoted.
    #[serde(default)]
    pub is_never_promoted: bool,
}

/// The copy that leads a shard. A copy that comes back with other data is not the same holder.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Serialize, Deserialize)]
pub struct Holder {
    /// The copy.
    pub id: Id,
    /// The data with which it leads.
    pub incarnation: Incarnation,
}

/// The data of a leader that has not been there yet: see [`Shard::planned`].
pub const UNBORN: Incarnation = Incarnation(0);

/// The data of the leader of a shard whose copies have found out that etcd was rolled back. No copy
/// ever has it: see [`crate::promotion::tell_rollback`].
pub const ROLLED_BACK: Incarnation = Incarnation(u64::MAX);

/// A part of the slots, and its copies.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Shard {
    /// Its name.
    pub id: Id,
    /// The epoch of its present leadership.
    pub epoch: Epoch,
    /// The leader. It stays here when it is dead, until another is promoted.
    pub holder: Holder,
    /// How many members a promotion has to fence. Every confirmed write is held by more than
    /// `members - fence`.
    pub fence: usize,
    /// Its slots.
    pub slots: Slots,
    /// Those of its slots that move key by key, and the shards that they move to (CLUSTER SETSLOT
    /// MIGRATING).
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub migrating: BTreeMap<u16, Id>,
    /// Slots that arrive key by key, and the shards that they come from (CLUSTER SETSLOT
    /// IMPORTING).
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub importing: BTreeMap<u16, Id>,
    /// Its copies, the leader among them.
    pub copies: Vec<Replica>,
}

/// A job that moves slots from one shard to another, all at one moment. [`Move::phase`] says how
/// far it is.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Move {
    /// Its name.
    pub id: Id,
    /// All that was asked for.
    pub slots: Slots,
    /// Those that are to move: all of them, or none when they have moved or the job is cancelled.
    pub left: Slots,
    /// The shard that they leave.
    pub from: Id,
    /// The shard that they go to.
    pub to: Id,
    /// When it was asked for, in seconds since 1970.
    pub since_s: u64,
    /// It is over when the target has dropped what it was sent.
    #[serde(default)]
    pub is_cancelled: bool,
    /// How often the target has given up a copy whose source was about to hand the slots over.
    #[serde(default, skip_serializing_if = "is_none")]
    pub given_up: u32,
    /// Bytes per second that the source sends at most; 0 is no limit.
    #[serde(default, skip_serializing_if = "is_unlimited")]
    pub rate: u64,
    /// Of the jobs of a source, those with a greater number come first.
    #[serde(default, skip_serializing_if = "is_usual")]
    pub priority: i32,
}

fn is_none(count: &u32) -> bool {
    *count == 0
}

fn is_unlimited(rate: &u64) -> bool {
    *rate == 0
}

fn is_usual(priority: &i32) -> bool {
    *priority == 0
}

/// How far the change of a database's rule is. Each primary says in the topology when it has got
/// there; the last one to do so takes all of them to the next phase.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Phase {
    /// Primaries learn to take keys that are theirs by the new rule.
    Opening,
    /// Keys move. One that is not where it was is where the new rule has it.
    Moving,
    /// As `Moving`, but what is on its way arrives and nothing else is sent: the change is about to
    /// go back.
    Turning,
    /// All keys are where the new rule has them, and primaries learn to answer for them unasked.
    Settling,
}

impl Phase {
    /// Its name.
    pub fn name(self) -> &'static str {
        match self {
            Phase::Opening => "opening",
            Phase::Moving => "moving",
            Phase::Turning => "turning",
            Phase::Settling => "settling",
        }
    }
}

/// Another rule that takes the place of a database's, while it serves. `docs/internals/hashing.md`
/// has the protocol.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Rehash {
    /// The rules that it is to have; none is the standard rule.
    pub rules: Vec<String>,
    /// The slots that shards are to have; none is those that they have.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub slots: BTreeMap<Id, Slots>,
    /// How far the change is.
    pub phase: Phase,
    /// The shards whose primaries are through with this phase, and the epochs in which they were.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub reached: BTreeMap<Id, Epoch>,
    /// When it was asked for, in seconds since 1970.
    pub since_s: u64,
    /// It goes back to the rules of before.
    #[serde(default, skip_serializing_if = "is_false")]
    pub is_cancelled: bool,
}

/// Tells a field that is left out.
#[expect(clippy::trivially_copy_pass_by_ref, reason = "the derived code passes a reference")]
fn is_false(flag: &bool) -> bool {
    !flag
}

/// How far a job is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum MovePhase {
    /// The source's primary sends the target a copy, and what changes meanwhile.
    Copying,
    /// The slots are the target's. The source's primary drops its copy.
    Trimming,
    /// The slots stay. The target's primary drops what it was sent.
    Clearing,
}

impl Move {
    /// Makes a job that moves slots from one shard to another.
    pub fn new(id: Id, slots: &Slots, (from, to): (Id, Id), since_s: u64) -> Move {
        Move {
            id,
            slots: slots.clone(),
            left: slots.clone(),
            from,
            to,
            since_s,
            is_cancelled: false,
            given_up: 0,
            rate: 0,
            priority: 0,
        }
    }

    /// Returns how far the job is.
    pub fn phase(&self) -> MovePhase {
        match (self.left.is_empty(), self.is_cancelled) {
            (_, true) => MovePhase::Clearing,
            (true, false) => MovePhase::Trimming,
            (false, false) => MovePhase::Copying,
        }
    }

    /// Cancels the job: the slots stay where they are.
    pub fn cancel(&mut self) {
        self.left = Slots::default();
        self.is_cancelled = true;
    }
}

/// All shards of a database.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Topology {
    /// See [`VERSION`].
    pub version: u32,
    /// The greatest epoch that was ever given to a shard.
    pub epoch: Epoch,
    /// How many copies, the primary among them, hold a write before it is confirmed in the commit
    /// mode `quorum`. 0: no quorum is promised, and leases alone decide.
    pub quorum: usize,
    /// The shards.
    pub shards: Vec<Shard>,
    /// Slots that are to move.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub moves: Vec<Move>,
    /// The rules by which keys get their slots; none is the standard rule.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub hashing: Vec<String>,
    /// The change to other rules.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rehash: Option<Rehash>,
    /// The least [`crate::stored::WRITER`] of versions that may change it.
    #[serde(default, skip_serializing_if = "is_none")]
    pub least_writer: u32,
    /// What a later version has written, which stays.
    #[serde(skip)]
    pub later: Later,
}

/// Why a value in etcd cannot be used.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Invalid(pub String);

impl fmt::Display for Invalid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for Invalid {}

impl Shard {
    /// Makes the shard of a server that has just been started: no slots, no other copy.
    pub fn new(id: Id, address: Address, incarnation: Incarnation) -> Shard {
        let member = Some(incarnation);
        Shard {
            id,
            epoch: Epoch(0),
            holder: Holder { id, incarnation },
            fence: 1,
            slots: Slots::default(),
            migrating: BTreeMap::new(),
            importing: BTreeMap::new(),
            copies: vec![Replica { id, address, member, is_never_promoted: false }],
        }
    }

    /// Makes a shard of copies that have not been started yet, the first of them its leader.
    /// `None`: there is no copy.
    ///
    /// Nothing can have been confirmed in epoch 0 by a leader without data, so the copy that is
    /// named takes the shard with the data that it has when it registers.
    pub fn planned(id: Id, slots: Slots, copies: Vec<(Id, Address)>) -> Option<Shard> {
        let holder = Holder { id: copies.first()?.0, incarnation: UNBORN };
        let replica =
            |(id, address)| Replica { id, address, member: None, is_never_promoted: false };
        let copies = copies.into_iter().map(replica).collect();
        let open = BTreeMap::new;
        let (migrating, importing) = (open(), open());
        let epoch = Epoch(0);
        Some(Shard { id, epoch, holder, fence: 1, slots, migrating, importing, copies })
    }

    /// Returns whether its leader has never been there.
    pub fn is_unborn(&self) -> bool {
        self.epoch == Epoch(0) && self.holder.incarnation == UNBORN
    }

    /// Returns whether etcd was rolled back, and no primary has been elected since.
    pub fn is_rolled_back(&self) -> bool {
        self.holder.incarnation == ROLLED_BACK
    }

    /// Returns the copy with this name.
    pub fn copy(&self, id: Id) -> Option<&Replica> {
        self.copies.iter().find(|copy| copy.id == id)
    }

    /// Returns the copies that count for quorums and promotions.
    pub fn members(&self) -> impl Iterator<Item = &Replica> {
        self.copies.iter().filter(|copy| copy.member.is_some())
    }

    /// Returns how many members have to be fenced when each confirmed write is on `quorum` of them.
    pub fn wanted_fence(&self, quorum: usize) -> usize {
        match quorum {
            0 => 1,
            _ => (self.members().count() + 1).saturating_sub(quorum).max(1),
        }
    }

    fn check(&self, newest: Epoch) -> Result<(), String> {
        if self.copy(self.holder.id).is_none() {
            return Err("the holder is no copy of the shard".into());
        }
        if self.epoch > newest {
            return Err("the shard's epoch is greater than the database's".into());
        }
        if self.fence == 0 {
            return Err("a promotion would fence no copy".into());
        }
        if self.migrating.keys().chain(self.importing.keys()).any(|&slot| slot >= COUNT) {
            return Err("a slot that does not exist is open".into());
        }
        self.copies.iter().try_for_each(|copy| copy.address.check())
    }
}

impl Address {
    /// Returns what is wrong with it.
    ///
    /// # Errors
    /// Others cannot connect to it, or cannot read it.
    pub fn check(&self) -> Result<(), String> {
        let is_plain = |host: &str| {
            host.len() <= MAX_HOST_LEN
                && host.bytes().all(|byte| byte.is_ascii_alphanumeric() || b".-_:%".contains(&byte))
        };
        let ForClients { ipv4, ipv6, .. } = &self.for_clients;
        if ![&self.host, &self.hostname, ipv4, ipv6].iter().all(|host| is_plain(host)) {
            return Err("a host has characters that are not allowed".into());
        }
        if self.zone.len() > MAX_HOST_LEN || !self.zone.bytes().all(|byte| byte.is_ascii_graphic())
        {
            return Err("an availability zone has characters that are not allowed".into());
        }
        if matches!(&*self.host, "" | "0.0.0.0" | "::" | "?") {
            return Err(format!("others cannot connect to the host '{}'", self.host));
        }
        if self.port == 0 && self.tls_port == 0 {
            return Err("a copy has no port".into());
        }
        Ok(())
    }
}

impl Topology {
    /// Makes the database of a server that has just been started.
    pub fn new(shard: Shard) -> Topology {
        Topology {
            version: VERSION,
            epoch: shard.epoch,
            quorum: 0,
            shards: vec![shard],
            moves: Vec::new(),
            hashing: Vec::new(),
            rehash: None,
            least_writer: 0,
            later: Later::default(),
        }
    }

    /// Makes a database of shards that have not been started yet.
    pub fn planned(quorum: usize, shards: Vec<Shard>) -> Topology {
        Topology {
            version: VERSION,
            epoch: Epoch(0),
            quorum,
            shards,
            moves: Vec::new(),
            hashing: Vec::new(),
            rehash: None,
            least_writer: 0,
            later: Later::default(),
        }
    }

    /// Reads a value of etcd.
    pub fn decode(value: &[u8]) -> Result<Topology, Invalid> {
        let mut topology: Topology = serde_json::from_slice(value)
            .map_err(|error| Invalid(format!("the topology is not readable: {error}")))?;
        topology.later = Later::read::<Topology>(value);
        topology.check().map_err(|why| Invalid(format!("the topology is not valid: {why}")))?;
        Ok(topology)
    }

    /// Returns the value for etcd.
    pub fn encode(&self) -> Vec<u8> {
        debug_assert_eq!(self.check(), Ok(()));
        let value = serde_json::to_vec(self).expect("numbers, texts and lists can be written");
        self.later.keep(value)
    }

    /// Returns the shard of a copy.
    pub fn shard_of(&self, copy: Id) -> Option<&Shard> {
        self.shards.iter().find(|shard| shard.copy(copy).is_some())
    }

    /// Returns the shard of a copy, to change it.
    pub fn shard_of_mut(&mut self, copy: Id) -> Option<&mut Shard> {
        self.shards.iter_mut().find(|shard| shard.copy(copy).is_some())
    }

    /// Returns the shard with this name.
    pub fn shard(&self, id: Id) -> Option<&Shard> {
        self.shards.iter().find(|shard| shard.id == id)
    }

    /// Returns the leader of a shard; the shard's own name if it is not there any more.
    pub fn leader_of(&self, shard: Id) -> Id {
        self.shard(shard).map_or(shard, |shard| shard.holder.id)
    }

    /// Returns the shard that has a slot.
    pub fn shard_with(&self, slot: u16) -> Option<&Shard> {
        self.shards.iter().find(|shard| shard.slots.contains(slot))
    }

    /// Returns all copies.
    pub fn copies(&self) -> impl Iterator<Item = &Replica> {
        self.shards.iter().flat_map(|shard| &shard.copies)
    }

    /// Takes a new epoch, which no leadership has had.
    pub fn take_epoch(&mut self) -> Epoch {
        self.epoch = self.epoch.next();
        self.epoch
    }

    /// Returns a slot that a shard still drops its copy of. It must not be given to that shard
    /// meanwhile.
    pub fn dropped_by(&self, shard: Id, slots: &Slots) -> Option<u16> {
        let is_dropped = |job: &&Move| match job.phase() {
            MovePhase::Copying => false,
            MovePhase::Trimming => job.from == shard,
            MovePhase::Clearing => job.to == shard,
        };
        self.moves.iter().filter(is_dropped).find_map(|job| job.slots.first_common(slots))
    }

    /// Ends the moves of slots whose shards are not there, or that have arrived.
    pub fn close_slots(&mut self) {
        let there: BTreeSet<Id> = self.shards.iter().map(|shard| shard.id).collect();
        for shard in &mut self.shards {
            let slots = &shard.slots;
            shard.migrating.retain(|&slot, to| slots.contains(slot) && there.contains(to));
            shard.importing.retain(|&slot, from| !slots.contains(slot) && there.contains(from));
        }
        let shards = &self.shards;
        self.moves.retain_mut(|job| {
            let from = shards.iter().find(|shard| shard.id == job.from);
            let is_whole = from.is_some_and(|from| job.left.without(&from.slots).is_empty());
            if job.phase() == MovePhase::Copying && !(is_whole && there.contains(&job.to)) {
                job.cancel();
            }
            match job.phase() {
                MovePhase::Copying => true,
                MovePhase::Trimming => from.is_some(),
                MovePhase::Clearing => there.contains(&job.to),
            }
        });
    }

    /// Returns what is wrong with it, whatever wrote it.
    pub fn check(&self) -> Result<(), String> {
        if self.version != VERSION {
            return Err(format!("it has version {}, this server reads {VERSION}", self.version));
        }
        if self.quorum > 64 {
            return Err("the quorum is greater than 64".into());
        }
        let (mut ids, mut shard_ids) = (BTreeSet::new(), BTreeSet::new());
        let mut owned = vec![false; usize::from(COUNT)];
        for shard in &self.shards {
            shard.check(self.epoch)?;
            if !shard_ids.insert(shard.id) {
                return Err(format!("shard {} is there twice", shard.id));
            }
            if let Some(twice) = shard.copies.iter().find(|copy| !ids.insert(copy.id)) {
                return Err(format!("copy {} is there twice", twice.id));
            }
            for &(first, last) in shard.slots.ranges() {
                for slot in first..=last {
                    if std::mem::replace(&mut owned[usize::from(slot)], true) {
                        return Err(format!("slot {slot} has two shards"));
                    }
                }
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    pub(super) fn address(port: u16) -> Address {
        Address { host: "10.0.0.1".into(), port, ..Address::default() }
    }

    fn two_shards() -> Topology {
        let shard = |n: u8, slots| Shard {
            slots,
            ..Shard::new(Id::new([n; 20]), address(7000 + u16::from(n)), Incarnation(n.into()))
        };
        let mut topology = Topology::new(shard(1, Slots::from_fn(|slot| slot < 8192)));
        topology.shards.push(shard(2, Slots::from_fn(|slot| slot >= 8192)));
        topology
    }

    #[test]
    fn what_is_written_is_read() {
        let topology = two_shards();
        assert_eq!(Topology::decode(&topology.encode()), Ok(topology));
    }

    #[test]
    fn what_a_later_version_wrote_is_kept_wherever_it_is() {
        let mut whole = two_shards();
        whole.moves.push(Move::new(
            Id::new([9; 20]),
            &Slots::from_fn(|slot| slot == 1),
            (whole.shards[0].id, whole.shards[1].id),
            7,
        ));
        let rules = vec!["(?<tag>.*)".to_owned()];
        let (slots, reached) = (BTreeMap::new(), BTreeMap::new());
        let (phase, is_cancelled) = (Phase::Opening, false);
        whole.rehash = Some(Rehash { rules, slots, phase, reached, since_s: 1, is_cancelled });
        whole.shards[0].copies[0].address.for_clients.port = 1;
        let mut value: serde_json::Value = serde_json::from_slice(&whole.encode()).unwrap();
        // Each stored type gets a field too many.
        for place in [
            "",
            "/shards/1",
            "/shards/1/holder",
            "/shards/0/copies/0",
            "/shards/0/copies/0/address",
            "/shards/0/copies/0/address/for_clients",
            "/moves/0",
            "/rehash",
        ] {
            value.pointer_mut(place).unwrap()["colour"] = "red".into();
        }
        let mut read = Topology::decode(value.to_string().as_bytes()).expect("it is readable");
        read.take_epoch();
        read.shards.reverse();
        let written: serde_json::Value = serde_json::from_slice(&read.encode()).unwrap();
        value["epoch"] = written["epoch"].clone();
        value["shards"].as_array_mut().unwrap().reverse();
        assert_eq!(written, value);
        // What belongs to another leader is no field of this one.
        let other = Holder { id: read.shards[0].id, incarnation: Incarnation(5) };
        read.shards[0].holder = Holder { id: Id::new([7; 20]), ..other };
        read.shards[0].copies[0].id = Id::new([7; 20]);
        let written: serde_json::Value = serde_json::from_slice(&read.encode()).unwrap();
        assert!(written["shards"][0]["holder"].get("colour").is_none());
    }

    #[test]
    fn values_of_the_first_release_are_read_and_written_alike() {
        let kept = include_str!("../../../tests/releases/0.1/etcd.json");
        let kept: BTreeMap<String, String> = serde_json::from_str(kept).unwrap();
        let value = kept.iter().find(|(key, _)| key.ends_with("/topology")).unwrap().1;
        let topology = Topology::decode(value.as_bytes()).expect("it is readable");
        assert!(
            topology.later.is_empty() && crate::stored::check_writer(topology.least_writer).is_ok()
        );
        assert_eq!(String::from_utf8(topology.encode()).as_ref(), Ok(value));
    }

    #[test]
    fn what_cannot_be_is_refused() {
        let refusal = |change: fn(&mut Topology)| {
            let mut topology = two_shards();
            change(&mut topology);
            let value = serde_json::to_vec(&topology).expect("it is plain");
            Topology::decode(&value).map_err(|invalid| invalid.0).expect_err("it is wrong")
        };
        type Case = (fn(&mut Topology), &'static str);
        let cases: [Case; 9] = [
            (|it| it.version = 2, "version 2"),
            (|it| it.shards[1].slots = Slots::from_fn(|slot| slot == 7), "slot 7 has two shards"),
            (|it| it.shards[1].epoch = Epoch(9), "greater than the database's"),
            (|it| it.shards[0].copies.clear(), "the holder is no copy"),
            (|it| it.shards[0].fence = 0, "would fence no copy"),
            (|it| it.shards[0].copies[0].address.host = "0.0.0.0".into(), "'0.0.0.0'"),
            (|it| it.shards[0].copies[0].address.host = "a b".into(), "not allowed"),
            (|it| it.shards[0].copies[0].address.port = 0, "no port"),
            (|it| it.shards[1].id = it.shards[0].id, "is there twice"),
        ];
        for (change, expected) in cases {
            let found = refusal(change);
            assert!(found.contains(expected), "{found}: {expected}");
        }
    }

    proptest! {
        #[test]
        fn hostile_bytes_are_an_error_and_no_panic(at in any::<prop::sample::Index>(), byte: u8, cut in any::<prop::sample::Index>()) {
            let mut value = two_shards().encode();
            let position = at.index(value.len());
            value[position] = byte;
            if let Ok(read) = Topology::decode(&value) {
                prop_assert_eq!(read.check(), Ok(()));
            }
            let len = cut.index(value.len());
            prop_assert!(Topology::decode(&value[..len]).is_err());
        }
    }
}

//! All keys of one database, read at one revision, and the transactions that rest on it.
//!
//! | key, behind `/dunlin/<cluster>/` | value | ends |
//! |---|---|---|
//! | `node/<copy>` | the id of the database that the copy belongs to | by RESET |
//! | `claim/<copy>` | [`crate::nodes_conf::Claim`] | when all have a home |
//! | `db/<database>/topology` | [`Topology`] | with its last copy |
//! | `db/<database>/alive/<copy>` | [`Alive`] | with the copy's lease |
//! | `db/<database>/fence/<shard>/<copy>` | [`Fence`] | is overwritten |
//! | `db/<database>/switch/<shard>` | [`Switch`] | is overwritten |
//! | `db/<database>/rolled-back` | [`RolledBack`] | by an operator |
//! | `db/<database>/write-again` | nothing: an order, if the topology is gone | with the topology |

use crate::coordinator::{Change, Compare, Item, LeaseId, Range, Revision, Transaction};
use crate::id::{Epoch, Id, Incarnation, Position};
use crate::stored::check_writer;
use crate::topology::{Holder, Invalid, ROLLED_BACK, Topology, is_zero};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::hash::{Hash, Hasher};
use structs::crc64::crc64;

/// Where a cluster's keys are.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Keys {
    root: String,
}

impl Keys {
    /// Returns the keys of the cluster with this name.
    pub fn new(cluster: &str) -> Keys {
        Keys { root: format!("/dunlin/{cluster}/") }
    }

    /// Returns the key that says which database a copy belongs to.
    pub fn home(&self, copy: Id) -> String {
        format!("{}node/{copy}", self.root)
    }

    /// Returns the beginning of the keys of servers that start from files.
    pub fn claims(&self) -> String {
        format!("{}claim/", self.root)
    }

    /// Returns the key of what a server says that starts from files.
    pub fn claim(&self, copy: Id) -> String {
        format!("{}{copy}", self.claims())
    }

    /// Returns the beginning of all keys of all databases.
    pub fn databases(&self) -> String {
        format!("{}db/", self.root)
    }

    /// Returns the database that a key below [`Keys::databases`] belongs to.
    pub fn database_of(&self, key: &str) -> Option<Id> {
        key.strip_prefix(&self.databases())?.split('/').next()?.parse().ok()
    }

    /// Returns the beginning of all keys of a database.
    pub fn database(&self, database: Id) -> String {
        format!("{}db/{database}/", self.root)
    }

    /// Returns the key of a database's topology.
    pub fn topology(&self, database: Id) -> String {
        format!("{}topology", self.database(database))
    }

    /// Returns the key that is there while a copy's lease is.
    pub fn alive(&self, database: Id, copy: Id) -> String {
        format!("{}alive/{copy}", self.database(database))
    }

    /// Returns the key of the switch that is asked for in a shard.
    pub fn switch(&self, database: Id, shard: Id) -> String {
        format!("{}switch/{shard}", self.database(database))
    }

    /// Returns the key that says that the coordinator was rolled back.
    pub fn rolled_back(&self, database: Id) -> String {
        format!("{}rolled-back", self.database(database))
    }

    /// Returns the key by which an operator asks the copies to write the topology again.
    pub fn write_again(&self, database: Id) -> String {
        format!("{}write-again", self.database(database))
    }

    /// Returns the beginning of the keys of what all copies of a database have alike: see
    /// [`crate::shared`].
    pub fn shared(&self, database: Id) -> String {
        format!("{}shared/{database}/", self.root)
    }

    /// Returns the key that says that a copy refuses an epoch.
    pub fn fence(&self, database: Id, shard: Id, copy: Id) -> String {
        format!("{}fence/{shard}/{copy}", self.database(database))
    }
}

/// A copy whose process has a lease.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Alive {
    /// The data that it holds.
    pub incarnation: Incarnation,
    /// Its lease.
    pub lease: LeaseId,
    /// Its port for other copies: see [`crate::bus`]. 0: it has none.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub bus_port: u16,
}

/// A copy's word that it has stopped following `epoch` and will acknowledge nothing more of it. It
/// is never taken back.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Fence {
    /// The epoch that the copy refuses, and all older ones.
    pub epoch: Epoch,
    /// The data that it holds.
    pub incarnation: Incarnation,
    /// How far the data goes.
    pub position: Position,
    /// There is at least one key. Data that were not written in a cluster have no position.
    #[serde(default)]
    pub has_keys: bool,
    /// The name of the data before a restart, if the copy was a member with them and a log brought
    /// them back. They may lack the last moments.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub restored: Option<Incarnation>,
}

/// An operator's request that a copy becomes the primary. The primary of `epoch` carries it out, or
/// leaves it. In a later epoch it says nothing.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Switch {
    /// The epoch that it ends.
    pub epoch: Epoch,
    /// The successor.
    pub to: Id,
    /// The primary is about to end: any member that has everything may be the successor.
    #[serde(default)]
    pub is_for_any: bool,
}

/// Copies of the database have found out that the coordinator was started again with older files.
/// Slots may be with other shards than it says. Until an operator has looked, no key is dropped
/// because another shard has its slot, and no move of slots begins.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct RolledBack {
    /// The revision of the newest topology that a copy knew.
    pub known: Revision,
    /// The revision of the one that was found instead.
    pub found: Revision,
    /// What a later version has written, which stays.
    #[serde(flatten)]
    pub later: BTreeMap<String, serde_json::Value>,
}

impl RolledBack {
    /// Makes the note of a copy that has found this out.
    pub(crate) fn new(known: Revision, found: Revision) -> RolledBack {
        RolledBack { known, found, later: BTreeMap::new() }
    }

    /// Returns the note with what another copy knew.
    pub(crate) fn with(&self, other: &RolledBack) -> RolledBack {
        let (known, found) = (self.known.max(other.known), self.found.min(other.found));
        RolledBack { known, found, later: self.later.clone() }
    }
}

/// A value that was read.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct At<T> {
    /// The value.
    pub value: T,
    /// The revision of its last change.
    pub revision: Revision,
}

/// What was read.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct View {
    /// Where the cluster's keys are.
    pub keys: Keys,
    /// The database.
    pub database: Id,
    /// The revision of the read.
    pub revision: Revision,
    /// The topology.
    pub topology: At<Topology>,
    /// The copies with a lease.
    pub alive: BTreeMap<Id, At<Alive>>,
    /// The fences, by shard and copy.
    pub fences: BTreeMap<(Id, Id), At<Fence>>,
    /// The switches that operators have asked for, by shard.
    pub switches: BTreeMap<Id, At<Switch>>,
    /// The coordinator was rolled back, and no operator has said yet that all is right.
    pub rolled_back: Option<At<RolledBack>>,
    /// How the topology continues what the reader knew.
    pub history: History,
}

/// How a topology that was read continues one that was known before. See
/// [`crate::known::look_back`].
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct History {
    /// The digest of the topology's value, as it was read.
    pub digest: u64,
    /// The coordinator never had the topology that was known: it is one of another history.
    pub is_another: bool,
}

/// Hashes the revision only: it decides what a database contains.
impl Hash for View {
    fn hash<H: Hasher>(&self, state: &mut H) {
        (self.database, self.revision).hash(state);
    }
}

impl View {
    /// Reads the keys of a database. `None`: the database does not exist.
    pub fn decode(keys: &Keys, database: Id, range: &Range) -> Result<Option<View>, Invalid> {
        let prefix = keys.database(database);
        let mut topology = None;
        let (mut alive, mut fences) = (BTreeMap::new(), BTreeMap::new());
        let mut switches = BTreeMap::new();
        let mut rolled_back = None;
        let mut history = History::default();
        for item in &range.items {
            let Some(name) = item.key.strip_prefix(&prefix) else {
                return Err(Invalid(format!("{} is no key of the database", item.key)));
            };
            let parts: Vec<&str> = name.split('/').collect();
            // A name that is no id is none of ours.
            let is_id = |text: &str| id(text).is_ok();
            match parts[..] {
                ["topology"] => {
                    let value = Topology::decode(&item.value)?;
                    topology = Some(At { value, revision: item.revision });
                    history.digest = digest(&item.value);
                }
                ["alive", copy] if is_id(copy) => {
                    alive.insert(id(copy)?, read(item)?);
                }
                ["fence", shard, copy] if is_id(shard) && is_id(copy) => {
                    fences.insert((id(shard)?, id(copy)?), read(item)?);
                }
                ["switch", shard] if is_id(shard) => {
                    switches.insert(id(shard)?, read(item)?);
                }
                ["rolled-back"] => rolled_back = Some(read(item)?),
                // A later version may have more.
                _ => {}
            }
        }
        let (keys, revision) = (keys.clone(), range.revision);
        Ok(topology.map(|topology| View {
            keys,
            database,
            revision,
            topology,
            alive,
            fences,
            switches,
            rolled_back,
            history,
        }))
    }

    /// Returns whether a copy has a lease and these very data.
    pub fn is_alive(&self, holder: Holder) -> bool {
        self.alive.get(&holder.id).is_some_and(|at| at.value.incarnation == holder.incarnation)
    }

    /// Returns whether a copy is a member that has a lease and the data with which it became one.
    pub fn has_member(&self, copy: Id) -> bool {
        let shard = self.topology.value.shard_of(copy);
        let member = shard.and_then(|shard| shard.copy(copy)?.member);
        member.is_some_and(|incarnation| self.is_alive(Holder { id: copy, incarnation }))
    }

    /// Returns a transaction that replaces the topology if it is still the one that was read. If
    /// only later versions may change it, the transaction is one that always conflicts.
    pub fn replace(&self, topology: &Topology) -> Transaction {
        let mut topology = topology.clone();
        topology.close_slots();
        let change = Change::Put {
            key: self.keys.topology(self.database),
            value: topology.encode(),
            lease: None,
        };
        let mut compares = vec![self.unchanged()];
        if check_writer(self.topology.value.least_writer).is_err() {
            compares.push(Compare { key: self.keys.topology(self.database), revision: 0 });
        }
        Transaction { compares, changes: vec![change] }
    }

    /// Returns the condition that the topology is the one that was read.
    pub fn unchanged(&self) -> Compare {
        let key = self.keys.topology(self.database);
        Compare { key, revision: self.topology.revision }
    }

    /// Returns the condition that a copy's lease is as it was read, or still absent.
    pub fn alive_unchanged(&self, copy: Id) -> Compare {
        let revision = self.alive.get(&copy).map_or(0, |at| at.revision);
        Compare { key: self.keys.alive(self.database, copy), revision }
    }

    /// Returns the change that says that a copy has a lease.
    pub fn put_alive(&self, copy: Id, alive: Alive) -> Change {
        put_alive(&self.keys, self.database, copy, alive)
    }
}

/// Makes the transaction that creates a database whose copies have not been started yet. It
/// conflicts if any key of it is there.
pub fn plan(keys: &Keys, database: Id, topology: &Topology) -> Transaction {
    let absent = |key| Compare { key, revision: 0 };
    let homes = || topology.copies().map(|copy| keys.home(copy.id));
    let put = |key, value| Change::Put { key, value, lease: None };
    let mut compares: Vec<Compare> = homes().map(absent).collect();
    compares.push(absent(keys.topology(database)));
    let mut changes: Vec<Change> = homes().map(|key| put(key, encode(&database))).collect();
    changes.push(put(keys.topology(database), topology.encode()));
    Transaction { compares, changes }
}

/// Makes the transaction by which a copy writes the topology of its database again, as it knew it
/// last: the coordinator has lost it, and an operator has given the order of this revision. The
/// shards elect their primaries by what their copies have.
pub fn write_again(known: &View, order: Revision) -> Transaction {
    let (keys, database) = (&known.keys, known.database);
    let mut topology = known.topology.value.clone();
    topology.moves.clear();
    for at in 0..topology.shards.len() {
        // One that was never led is begun by the copy that is to lead it.
        if topology.shards[at].is_unborn() {
            continue;
        }
        let epoch = topology.take_epoch();
        let shard = &mut topology.shards[at];
        (shard.epoch, shard.holder.incarnation) = (epoch, ROLLED_BACK);
    }
    let put = |key, value| Change::Put { key, value, lease: None };
    let homes = topology.copies().map(|copy| put(keys.home(copy.id), encode(&database)));
    let mut changes: Vec<Change> = homes.collect();
    let at = RolledBack::new(known.topology.revision, 0);
    changes.push(put(keys.topology(database), topology.encode()));
    changes.push(put(keys.rolled_back(database), encode(&at)));
    changes.push(Change::Delete { key: keys.write_again(database) });
    let compares = vec![
        Compare { key: keys.topology(database), revision: 0 },
        Compare { key: keys.write_again(database), revision: order },
    ];
    Transaction { compares, changes }
}

/// Reads the value of [`Keys::home`].
pub fn read_home(value: &[u8]) -> Result<Id, Invalid> {
    serde_json::from_slice(value)
        .map_err(|error| Invalid(format!("a node's database is not readable: {error}")))
}

/// Returns the change that says that a copy of a database has a lease.
pub(crate) fn put_alive(keys: &Keys, database: Id, copy: Id, alive: Alive) -> Change {
    Change::Put { key: keys.alive(database, copy), value: encode(&alive), lease: Some(alive.lease) }
}

/// Returns the digest of a topology's value. Files have it ([`crate::known::Known::digest`]), so it
/// stays as it is.
pub(crate) fn digest(value: &[u8]) -> u64 {
    crc64(0, value)
}

/// Returns a value for etcd.
pub(crate) fn encode<T: Serialize>(value: &T) -> Vec<u8> {
    serde_json::to_vec(value).expect("numbers and texts can be written")
}

fn id(text: &str) -> Result<Id, Invalid> {
    text.parse().map_err(|_| Invalid(format!("a key names '{text}', which is no id")))
}

fn read<T: for<'a> Deserialize<'a>>(item: &Item) -> Result<At<T>, Invalid> {
    let value = serde_json::from_slice(&item.value)
        .map_err(|error| Invalid(format!("{} is not readable: {error}", item.key)))?;
    Ok(At { value, revision: item.revision })
}

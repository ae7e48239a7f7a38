//! What operators and their tools ask of a server (CLUSTER MEET, ADDSLOTS, REPLICATE, FORGET …), as
//! transactions. The refusals are the replies that Redis gives.
//!
//! A server that has just been started is a database of its own, with one shard that has no slots.
//! MEET joins two databases; FORGET and RESET make a copy a
//! database of its own again.

use crate::coordinator::{Change, Compare, LeaseId, Revision, Transaction};
use crate::id::{Epoch, Id};
use crate::slots::{COUNT, Slots};
use crate::topology::{Holder, Replica, Shard, Topology};
use crate::view::{Alive, Keys, Switch, View, encode, put_alive};
use std::fmt;

mod copies;
pub mod moves;
mod moving;
pub mod rehash;

pub use copies::{add_copy, add_shard, remove_copy, remove_shard};

pub use moving::{Setting, set_slot};

/// Why nothing is changed: the error that the client gets, without `ERR`.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Refused {
    /// It cannot be.
    Wrong(String),
    /// The coordinator does not answer: it may be tried again.
    Away(String),
}

impl Refused {
    /// Returns the code by which clients tell whether to ask again (`docs/errors.md`).
    pub fn code(&self) -> &'static str {
        match self {
            Refused::Wrong(_) => "ERR",
            Refused::Away(_) => "AWAY",
        }
    }
}

impl From<String> for Refused {
    fn from(why: String) -> Refused {
        Refused::Wrong(why)
    }
}

impl From<&str> for Refused {
    fn from(why: &str) -> Refused {
        Refused::Wrong(why.into())
    }
}

impl fmt::Display for Refused {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (Refused::Wrong(why) | Refused::Away(why)) = self;
        f.write_str(why)
    }
}

impl std::error::Error for Refused {}

fn refused<T>(why: impl Into<String>) -> Result<T, Refused> {
    Err(Refused::Wrong(why.into()))
}

/// The transaction of a server that starts for the first time: a database with it alone.
pub fn found(keys: &Keys, database: Id, copy: Replica, alive: Alive) -> Transaction {
    let shard = Shard::new(copy.id, copy.address, alive.incarnation);
    let absent = |key| Compare { key, revision: 0 };
    Transaction {
        compares: vec![absent(keys.home(copy.id)), absent(keys.topology(database))],
        changes: vec![
            put_home(keys, copy.id, database),
            put_topology(keys, database, &Topology::new(shard)),
            put_alive(keys, database, copy.id, alive),
        ],
    }
}

/// The transaction of a server that has a new lease, or other data than before. It leads nothing by
/// that.
pub fn register(view: &View, copy: Id, alive: Alive) -> Transaction {
    Transaction {
        compares: vec![view.unchanged(), view.alive_unchanged(copy)],
        changes: vec![view.put_alive(copy, alive)],
    }
}

/// Reads slots as CLUSTER ADDSLOTS and DELSLOTS name them.
pub fn read_slots(words: &[&[u8]]) -> Result<Slots, Refused> {
    read_ranges(&words.iter().map(|&word| (word, word)).collect::<Vec<_>>())
}

/// Reads slots as CLUSTER ADDSLOTSRANGE and DELSLOTSRANGE name them.
pub fn read_ranges(words: &[(&[u8], &[u8])]) -> Result<Slots, Refused> {
    let slot = |word: &[u8]| {
        let number = std::str::from_utf8(word).ok().and_then(|text| text.parse::<u16>().ok());
        number
            .filter(|&slot| slot < COUNT)
            .ok_or(Refused::Wrong("Invalid or out of range slot".into()))
    };
    let mut named = vec![false; usize::from(COUNT)];
    for &(first, last) in words {
        let (first, last) = (slot(first)?, slot(last)?);
        if first > last {
            return refused(format!(
                "start slot number {first} is greater than end slot number {last}"
            ));
        }
        for slot in first..=last {
            if std::mem::replace(&mut named[usize::from(slot)], true) {
                return refused(format!("Slot {slot} specified multiple times"));
            }
        }
    }
    Ok(Slots::from_fn(|slot| named[usize::from(slot)]))
}

/// CLUSTER ADDSLOTS, ADDSLOTSRANGE: slots that no shard has become those of the shard that `me`
/// leads.
pub fn add_slots(view: &View, me: Id, slots: &Slots) -> Result<Transaction, Refused> {
    let mut topology = view.topology.value.clone();
    if let Some(busy) =
        topology.shards.iter().filter_map(|shard| slots.first_common(&shard.slots)).min()
    {
        return refused(format!("Slot {busy} is already busy"));
    }
    let shard = led_by(&mut topology, me)?.id;
    moves::ensure_not_dropped(&topology, shard, slots)?;
    let shard = led_by(&mut topology, me)?;
    shard.slots = shard.slots.with(slots);
    Ok(view.replace(&topology))
}

/// CLUSTER DELSLOTS, DELSLOTSRANGE: slots of the shard that `me` leads become those of none.
/// `given_up` are those that this server has given up before. Slots that others have may be named
/// by a tool that sends the request to all nodes, since elsewhere each node has its own view; when
/// they have no owner any more there is nothing to change. Nor is there for slots that this server has
/// `had` or imported, and another owns: `redis-cli --cluster fix` sends the request to both ends of
/// an open slot. `None`: that is so for all of them.
pub fn delete_own_slots(
    view: &View,
    me: Id,
    slots: &Slots,
    (given_up, had): (&Slots, &Slots),
) -> Result<Option<Transaction>, Refused> {
    let topology = &view.topology.value;
    let own = topology.shard_of(me).filter(|shard| shard.holder.id == me);
    for slot in slots.ranges().iter().flat_map(|&(first, last)| first..=last) {
        match topology.shard_with(slot) {
            Some(shard) if own.is_none_or(|own| own.id != shard.id) && !had.contains(slot) => {
                return refused(format!(
                    "Slot {slot} is owned by node {}, which alone can give it up",
                    shard.holder.id
                ));
            }
            None if given_up.contains(slot) || topology.shards.len() == 1 => {
                return refused(format!("Slot {slot} is already unassigned"));
            }
            Some(_) | None => {}
        }
    }
    let mut topology = topology.clone();
    let shard = topology.shard_of_mut(me);
    let Some(shard) = shard.filter(|shard| shard.slots.first_common(slots).is_some()) else {
        return Ok(None);
    };
    shard.slots = shard.slots.without(slots);
    Ok(Some(view.replace(&topology)))
}

/// Slots of any shard become those of none: a transaction gives them to another at once.
pub fn delete_slots(view: &View, slots: &Slots) -> Result<Transaction, Refused> {
    let mut topology = view.topology.value.clone();
    let is_owned = |slot| topology.shard_with(slot).is_some();
    let mut named = slots.ranges().iter().flat_map(|&(first, last)| first..=last);
    if let Some(unassigned) = named.find(|&slot| !is_owned(slot)) {
        return refused(format!("Slot {unassigned} is already unassigned"));
    }
    for shard in &mut topology.shards {
        shard.slots = shard.slots.without(slots);
    }
    Ok(view.replace(&topology))
}

/// CLUSTER FAILOVER: the transaction that asks the primary of `to`'s shard to hand over to it. The
/// primary does it when `to` has everything, within [`crate::copy::Settings::switch`].
pub fn ask_switch(view: &View, to: Id) -> Result<Transaction, Refused> {
    switch(view, to, false)
}

/// The same of a primary that is about to end: whichever member has everything first leads.
pub fn ask_leave(view: &View, to: Id) -> Result<Transaction, Refused> {
    switch(view, to, true)
}

fn switch(view: &View, to: Id, is_for_any: bool) -> Result<Transaction, Refused> {
    let Some(shard) = view.topology.value.shard_of(to) else {
        return refused(format!("Unknown node {to}"));
    };
    if shard.holder.id == to {
        return refused("You should send CLUSTER FAILOVER to a replica");
    }
    if !view.is_alive(shard.holder) {
        return refused("Master is down or failed, please use CLUSTER FAILOVER FORCE");
    }
    let is_member = shard.copy(to).is_some_and(|copy| {
        copy.member.is_some_and(|incarnation| view.is_alive(Holder { id: to, incarnation }))
    });
    if !is_member {
        return refused("This replica has not synchronised with its primary yet, try again");
    }
    let key = view.keys.switch(view.database, shard.id);
    let value = encode(&Switch { epoch: shard.epoch, to, is_for_any });
    Ok(Transaction {
        compares: vec![view.unchanged(), view.alive_unchanged(to)],
        changes: vec![Change::Put { key, value, lease: None }],
    })
}

/// CLUSTER SET-CONFIG-EPOCH.
pub fn set_config_epoch(view: &View, me: Id, epoch: Epoch) -> Result<Transaction, Refused> {
    let mut topology = view.topology.value.clone();
    if topology.copies().count() > 1 {
        return refused(
            "The user can assign a config epoch only when the node does not know any other node.",
        );
    }
    let shard = led_by(&mut topology, me)?;
    // The coordinator may have given it one when its lease had ended.
    if shard.epoch != Epoch(0) && epoch <= shard.epoch {
        return refused("Node config epoch is already non-zero");
    }
    shard.epoch = epoch;
    topology.epoch = epoch.max(topology.epoch);
    Ok(view.replace(&topology))
}

/// CLUSTER MEET, with the views of both databases: all copies of the smaller one, those of `mine` if
/// they are as large, join the other. `None`: they are one already. `home` is the revision of a
/// joining copy's [`Keys::home`].
pub fn meet(
    mine: &View,
    theirs: &View,
    mut home: impl FnMut(Id) -> Result<Revision, Refused>,
) -> Result<Option<Transaction>, Refused> {
    if mine.database == theirs.database {
        return Ok(None);
    }
    let count = |view: &View| view.topology.value.copies().count();
    let (from, to) = if count(mine) <= count(theirs) { (mine, theirs) } else { (theirs, mine) };
    let joining = &from.topology.value;
    let mut topology = to.topology.value.clone();
    let is_busy = |database: &Topology| !database.moves.is_empty() || database.rehash.is_some();
    if is_busy(joining) || is_busy(&topology) || joining.hashing != topology.hashing {
        return refused("Slots move in one of the clusters, or their keys have other rules");
    }
    topology.epoch = topology.epoch.max(joining.epoch);
    for shard in &joining.shards {
        if let Some(busy) =
            topology.shards.iter().filter_map(|other| shard.slots.first_common(&other.slots)).min()
        {
            return refused(format!("Slot {busy} is already busy"));
        }
        let mut shard = shard.clone();
        let has_its_epoch = |other: &Shard| other.epoch == shard.epoch && shard.epoch != Epoch(0);
        if topology.shards.iter().any(has_its_epoch) {
            shard.epoch = topology.take_epoch();
        }
        topology.shards.push(shard);
    }
    promise(&mut topology, joining.quorum);
    let mut transaction = to.replace(&topology);
    transaction.compares.push(from.unchanged());
    for copy in joining.copies() {
        transaction.compares.push(from.alive_unchanged(copy.id));
        leave(&mut transaction, from, copy.id, to.database, home(copy.id)?);
    }
    transaction.changes.push(Change::Delete { key: from.keys.topology(from.database) });
    Ok(Some(transaction))
}

/// CLUSTER REPLICATE: `me`, which is a replica or a primary without slots and keys, becomes a copy
/// of the shard that `primary` leads.
pub fn replicate(view: &View, me: Id, primary: Id, has_keys: bool) -> Result<Transaction, Refused> {
    let mut topology = view.topology.value.clone();
    let Some(target) = topology.shard_of(primary) else {
        return refused(format!("Unknown node {primary}"));
    };
    if primary == me {
        return refused("Can't replicate myself");
    }
    if target.holder.id != primary {
        return refused("I can only replicate a master, not a replica.");
    }
    let Some(present) = topology.shard_of(me) else { return unknown(me) };
    if present.id == target.id {
        return Ok(view.replace(&topology));
    }
    let is_primary = present.holder.id == me;
    if is_primary && (has_keys || !present.slots.is_empty() || present.copies.len() > 1) {
        return refused("To set a master the node must be empty and without assigned slots.");
    }
    let copy = remove(&mut topology, me).expect("the copy is in its shard");
    // Acknowledgements name the epoch, and in epoch 0 there is nothing to name.
    let is_first = topology.shard_of(primary).is_some_and(|shard| shard.epoch == Epoch(0));
    let epoch = is_first.then(|| topology.take_epoch());
    let shard = topology.shard_of_mut(primary).expect("it was found above");
    shard.epoch = epoch.unwrap_or(shard.epoch);
    shard.copies.push(Replica { member: None, ..copy });
    Ok(view.replace(&topology))
}

/// CLUSTER REPLICATE NO ONE: `me`, which is a replica, leads a shard of its own in the same database,
/// named `fresh`, without slots. The caller drops the data. `None`: it leads a shard already.
pub fn stand_alone(view: &View, me: Id, fresh: Id) -> Result<Option<Transaction>, Refused> {
    let mut topology = view.topology.value.clone();
    let Some(present) = topology.shard_of(me) else { return unknown(me) };
    if present.holder.id == me {
        return Ok(None);
    }
    let Some(alive) = view.alive.get(&me) else {
        return refused("This server has no lease at the coordinator, try again");
    };
    let copy = remove(&mut topology, me).expect("the copy is in its shard");
    let epoch = topology.take_epoch();
    let alone = Shard::new(me, copy.address, alive.value.incarnation);
    topology.shards.push(Shard { id: fresh, epoch, ..alone });
    let mut transaction = view.replace(&topology);
    transaction.compares.push(view.alive_unchanged(me));
    Ok(Some(transaction))
}

/// The transaction after which confirmed writes of the commit mode `quorum` are on so many copies.
/// It never lowers that number: another primary may have been told the greater one.
pub fn promise_quorum(view: &View, quorum: usize) -> Transaction {
    let mut topology = view.topology.value.clone();
    promise(&mut topology, quorum);
    view.replace(&topology)
}

fn promise(topology: &mut Topology, quorum: usize) {
    topology.quorum = topology.quorum.max(quorum);
    for shard in &mut topology.shards {
        shard.fence = shard.fence.max(shard.wanted_fence(topology.quorum));
    }
}

/// CLUSTER FORGET: another copy leaves the database, and is one of its own named `fresh`.
pub fn forget(
    view: &View,
    me: Id,
    copy: Id,
    fresh: Id,
    home: Revision,
) -> Result<Transaction, Refused> {
    let topology = &view.topology.value;
    let Some(shard) = topology.shard_of(copy) else {
        return refused(format!("Unknown node {copy}"));
    };
    if copy == me {
        return refused("I tried hard but I can't forget myself...");
    }
    if shard.holder.id == copy && shard.copy(me).is_some() {
        return refused("Can't forget my master!");
    }
    if shard.holder.id == copy && (shard.copies.len() > 1 || !shard.slots.is_empty()) {
        return refused("The node leads a shard that has slots or replicas");
    }
    depart(view, copy, fresh, home)
}

/// CLUSTER RESET: `me` leaves the database, and is one of its own named `fresh`.
pub fn reset(
    view: &View,
    me: Id,
    fresh: Id,
    home: Revision,
    has_keys: bool,
) -> Result<Transaction, Refused> {
    let Some(shard) = view.topology.value.shard_of(me) else { return unknown(me) };
    if shard.holder.id == me && has_keys {
        return refused("CLUSTER RESET can't be called with master nodes containing keys");
    }
    if shard.holder.id == me && shard.copies.len() > 1 {
        return refused("The node leads a shard that has replicas");
    }
    depart(view, me, fresh, home)
}

fn unknown<T>(me: Id) -> Result<T, Refused> {
    refused(format!("Node {me} is not in the cluster any more"))
}

/// Returns the shard that `me` leads.
fn led_by(topology: &mut Topology, me: Id) -> Result<&mut Shard, Refused> {
    match topology.shard_of_mut(me) {
        Some(shard) if shard.holder.id == me => Ok(shard),
        Some(_) => refused("The node is a replica; only a primary has slots"),
        None => unknown(me),
    }
}

/// Takes a copy out of its shard, and the shard out of the topology if it was the last one.
fn remove(topology: &mut Topology, copy: Id) -> Option<Replica> {
    let shard = topology.shard_of_mut(copy)?;
    let at = shard.copies.iter().position(|other| other.id == copy)?;
    let removed = shard.copies.remove(at);
    topology.shards.retain(|shard| !shard.copies.is_empty());
    Some(removed)
}

/// A copy leaves its database for one of its own.
fn depart(view: &View, copy: Id, fresh: Id, home: Revision) -> Result<Transaction, Refused> {
    let mut topology = view.topology.value.clone();
    let Some(departing) = remove(&mut topology, copy) else { return unknown(copy) };
    let mut transaction = view.replace(&topology);
    if topology.shards.is_empty() {
        let key = view.keys.topology(view.database);
        transaction.changes = vec![Change::Delete { key }];
    }
    let alive = view.alive.get(&copy).map(|at| at.value.incarnation);
    let incarnation = alive.or(departing.member).unwrap_or(crate::id::Incarnation(0));
    let alone = Topology::new(Shard::new(copy, departing.address, incarnation));
    let absent = view.keys.topology(fresh);
    transaction.compares.push(Compare { key: absent, revision: 0 });
    transaction.compares.push(view.alive_unchanged(copy));
    transaction.changes.push(put_topology(&view.keys, fresh, &alone));
    leave(&mut transaction, view, copy, fresh, home);
    Ok(transaction)
}

/// Moves a copy's home, and what its lease holds, from the database of `from` to the database `to`.
fn leave(transaction: &mut Transaction, from: &View, copy: Id, to: Id, home: Revision) {
    transaction.compares.push(Compare { key: from.keys.home(copy), revision: home });
    transaction.changes.push(put_home(&from.keys, copy, to));
    if let Some(at) = from.alive.get(&copy) {
        let key = from.keys.alive(from.database, copy);
        transaction.changes.push(Change::Delete { key });
        transaction.changes.push(put_alive(&from.keys, to, copy, at.value));
    }
}

fn put_home(keys: &Keys, copy: Id, database: Id) -> Change {
    Change::Put { key: keys.home(copy), value: encode(&database), lease: None::<LeaseId> }
}

fn put_topology(keys: &Keys, database: Id, topology: &Topology) -> Change {
    Change::Put { key: keys.topology(database), value: topology.encode(), lease: None::<LeaseId> }
}

#[cfg(test)]
mod tests;

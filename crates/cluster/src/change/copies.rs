//! Copies that are added to a shard and taken from it while it serves, and shards that come and go.

use super::{put_home, remove};
use crate::coordinator::{Change, Compare, Transaction};
use crate::id::{Epoch, Id};
use crate::topology::{Address, Replica, Shard};
use crate::view::View;

/// The transaction that gives a shard another copy, which has no data yet. `None`: there is no such
/// shard.
pub fn add_copy(view: &View, shard: Id, copy: Id, address: Address) -> Option<Transaction> {
    let mut topology = view.topology.value.clone();
    let at = topology.shards.iter().position(|other| other.id == shard)?;
    // Acknowledgements name the epoch, and in epoch 0 there is nothing to name.
    if topology.shards[at].epoch == Epoch(0) && !topology.shards[at].is_unborn() {
        topology.shards[at].epoch = topology.take_epoch();
    }
    let replica = Replica { id: copy, address, member: None, is_never_promoted: false };
    topology.shards[at].copies.push(replica);
    let mut transaction = view.replace(&topology);
    transaction.compares.push(Compare { key: view.keys.home(copy), revision: 0 });
    transaction.changes.push(put_home(&view.keys, copy, view.database));
    Some(transaction)
}

/// The transaction that takes a copy which has no lease out of its shard, for good. The primary has
/// to be there: it lowers the number of copies that a promotion fences when it is safe. `None`: the
/// copy leads, or it has a lease, or the primary has none.
pub fn remove_copy(view: &View, copy: Id) -> Option<Transaction> {
    let shard = view.topology.value.shard_of(copy)?;
    if shard.holder.id == copy || view.alive.contains_key(&copy) || !view.is_alive(shard.holder) {
        return None;
    }
    let mut topology = view.topology.value.clone();
    remove(&mut topology, copy)?;
    let mut transaction = view.replace(&topology);
    transaction.compares.push(view.alive_unchanged(copy));
    transaction.changes.push(Change::Delete { key: view.keys.home(copy) });
    if view.fences.contains_key(&(shard.id, copy)) {
        let key = view.keys.fence(view.database, shard.id, copy);
        transaction.changes.push(Change::Delete { key });
    }
    Some(transaction)
}

/// The transaction that adds a shard whose copies have not been started yet. It has no slots.
pub fn add_shard(view: &View, shard: Shard) -> Transaction {
    let mut topology = view.topology.value.clone();
    let copies: Vec<Id> = shard.copies.iter().map(|copy| copy.id).collect();
    topology.shards.push(shard);
    let mut transaction = view.replace(&topology);
    for copy in copies {
        transaction.compares.push(Compare { key: view.keys.home(copy), revision: 0 });
        transaction.changes.push(put_home(&view.keys, copy, view.database));
    }
    transaction
}

/// The transaction that takes a shard away for good, with all its copies. `None`: it has slots, or
/// slots are on their way to it, or one of its copies has a lease.
pub fn remove_shard(view: &View, shard: Id) -> Option<Transaction> {
    let topology = &view.topology.value;
    let there = topology.shard(shard)?;
    let is_busy = topology.moves.iter().any(|job| job.from == shard || job.to == shard)
        || topology.shards.iter().any(|other| other.migrating.values().any(|to| *to == shard));
    let has_lease = there.copies.iter().any(|copy| view.alive.contains_key(&copy.id));
    if !there.slots.is_empty() || !there.importing.is_empty() || is_busy || has_lease {
        return None;
    }
    let mut changed = topology.clone();
    changed.shards.retain(|other| other.id != shard);
    let mut transaction = view.replace(&changed);
    transaction.compares.extend(there.copies.iter().map(|copy| view.alive_unchanged(copy.id)));
    let homes = there.copies.iter().map(|copy| view.keys.home(copy.id));
    let fences = view.fences.keys().filter(|(of, _)| *of == shard);
    let fences = fences.map(|(of, copy)| view.keys.fence(view.database, *of, *copy));
    let switch = view.switches.contains_key(&shard).then(|| view.keys.switch(view.database, shard));
    let gone = homes.chain(fences).chain(switch);
    transaction.changes.extend(gone.map(|key| Change::Delete { key }));
    Some(transaction)
}

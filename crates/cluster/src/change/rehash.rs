//! A change of the rule by which keys get their slots, or of the slots of shards in a database with
//! such rules: its steps, as transactions. `docs/internals/hashing.md` has the protocol.

use super::{Refused, refused};
use crate::coordinator::Transaction;
use crate::hashing::Hashing;
use crate::id::Id;
use crate::slots::Slots;
use crate::topology::{Phase, Rehash, Shard, Topology};
use crate::view::View;
use std::collections::BTreeMap;

/// What the primary of a shard does next.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum RehashStep {
    /// Commits this transaction as soon as no request runs that has seen the phase before. It notes
    /// that the primary is through with the phase.
    Note(Transaction),
    /// Sends the keys away that belong to others by the new rule. Then commits this transaction.
    Carry(Transaction),
}

/// Begins a change to other rules and slots. Without rules the standard rule holds afterwards;
/// without slots shards keep theirs.
///
/// # Errors
/// Slots move, another change is under way, or there is nothing to change.
pub fn begin(
    view: &View,
    rules: &[String],
    slots: BTreeMap<Id, Slots>,
    since_s: u64,
) -> Result<Transaction, Refused> {
    let mut topology = view.topology.value.clone();
    Hashing::new(rules).map_err(|flaw| Refused::Wrong(flaw.to_string()))?;
    super::moves::ensure_not_rolled_back(view)?;
    if topology.rehash.is_some() {
        return refused("a change of the hashing rules is under way already");
    }
    let has_open = |shard: &Shard| !shard.migrating.is_empty() || !shard.importing.is_empty();
    if !topology.moves.is_empty() || topology.shards.iter().any(has_open) {
        return refused("slots move: wait until they have, or cancel that first");
    }
    if topology.hashing == rules && slots.is_empty() {
        return refused("the database has these hashing rules already");
    }
    let rehash = Rehash {
        rules: rules.to_vec(),
        slots,
        phase: Phase::Opening,
        reached: BTreeMap::new(),
        since_s,
        is_cancelled: false,
    };
    let (mut outcome, mut back) = (topology.clone(), rehash.clone());
    exchange(&mut outcome, &mut back);
    let count = |topology: &Topology| -> usize {
        topology.shards.iter().map(|shard| shard.slots.iter().count()).sum()
    };
    if let Err(why) = outcome.check() {
        return refused(why);
    }
    if count(&outcome) != count(&topology) {
        return refused("slots would be left over");
    }
    topology.rehash = Some(rehash);
    Ok(view.replace(&topology))
}

/// Goes back to the rules of before.
///
/// # Errors
/// No change is under way, or it goes back already.
pub fn cancel(view: &View) -> Result<Transaction, Refused> {
    let mut topology = view.topology.value.clone();
    let Some(mut rehash) = topology.rehash.take() else {
        return refused("no change of the hashing rules is under way");
    };
    if rehash.is_cancelled {
        return refused("the change of the hashing rules is cancelled already");
    }
    match rehash.phase {
        // Nothing has moved yet.
        Phase::Opening => return Ok(view.replace(&topology)),
        Phase::Moving => rehash.phase = Phase::Turning,
        Phase::Turning => {}
        // All keys have moved. The primaries that are to take them back learn it first.
        Phase::Settling => {
            rehash.phase = Phase::Opening;
            exchange(&mut topology, &mut rehash);
        }
    }
    rehash.reached.clear();
    rehash.is_cancelled = true;
    topology.rehash = Some(rehash);
    Ok(view.replace(&topology))
}

/// Gives the database the rules and slots of the change, and the change those of the database.
fn exchange(topology: &mut Topology, rehash: &mut Rehash) {
    std::mem::swap(&mut topology.hashing, &mut rehash.rules);
    if rehash.slots.is_empty() {
        return;
    }
    for shard in &mut topology.shards {
        let slots = rehash.slots.remove(&shard.id).unwrap_or_default();
        let before = std::mem::replace(&mut shard.slots, slots);
        rehash.slots.insert(shard.id, before);
    }
}

/// Returns what the primary `me` does next. `None`: nothing, or it waits for others.
pub fn next(view: &View, me: Id) -> Option<RehashStep> {
    let topology = &view.topology.value;
    let rehash = topology.rehash.as_ref()?;
    let own = topology.shard_of(me).filter(|shard| shard.holder.id == me)?;
    let is_through = |shard: &Shard| rehash.reached.get(&shard.id) == Some(&shard.epoch);
    let mut after = topology.clone();
    let mut changed = rehash.clone();
    changed.reached.insert(own.id, own.epoch);
    if topology.shards.iter().all(|shard| shard.id == own.id || is_through(shard)) {
        changed.reached.clear();
        match rehash.phase {
            Phase::Opening => changed.phase = Phase::Moving,
            Phase::Moving => changed.phase = Phase::Settling,
            Phase::Turning => {
                exchange(&mut after, &mut changed);
                changed.phase = Phase::Moving;
            }
            Phase::Settling => {
                exchange(&mut after, &mut changed);
                after.rehash = None;
                return Some(RehashStep::Note(view.replace(&after)));
            }
        }
    } else if is_through(own) {
        return None;
    }
    after.rehash = Some(changed);
    let transaction = view.replace(&after);
    Some(match rehash.phase {
        Phase::Moving if !is_through(own) => RehashStep::Carry(transaction),
        _ => RehashStep::Note(transaction),
    })
}

/// Checks that slots may move one by one, without a change of the rules.
///
/// # Errors
/// The rule changes, or the database has rules of its own, so that the keys of a slot are not
/// listed.
pub fn allows_moves(topology: &Topology) -> Result<(), Refused> {
    match (&topology.rehash, topology.hashing.is_empty()) {
        (Some(_), _) => {
            refused("The hashing rules of the database change; try again when they have")
        }
        (None, false) => refused("Slots of a database with hashing rules do not move one by one"),
        (None, true) => Ok(()),
    }
}

#[cfg(test)]
mod tests;

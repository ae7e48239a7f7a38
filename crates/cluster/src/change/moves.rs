//! Jobs that move slots (CLUSTER MIGRATESLOTS): each step is a transaction, and the topology says which is the next. So a
//! primary that takes over goes on where the one before it stopped.
//!
//! Some slots at a time are open at both ends, first at the target, and belong to the target when their keys are there.

use super::{Refused, led_by, refused};
use crate::coordinator::Transaction;
use crate::id::Id;
use crate::slots::Slots;
use crate::topology::{Move, Topology};
use crate::view::View;

/// How many slots are open at a time.
const BATCH: usize = 64;

/// What the primary of a shard does next for one of its jobs.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Step {
    /// Makes this transaction, by which the target is to take keys.
    Import(Transaction),
    /// Waits until the target knows that it takes keys in this slot, and makes this transaction, by which keys that are not
    /// here any more are asked for there.
    Leave(Id, u16, Transaction),
    /// Sends the keys of these slots to this node, and makes this transaction, by which the slots are the target's.
    Carry(Id, Slots, Transaction),
}

/// CLUSTER MIGRATESLOTS: all these jobs, or none.
pub fn begin(
    view: &View,
    me: Id,
    jobs: &[(Slots, Id)],
    since_s: u64,
    mut name: impl FnMut() -> Id,
) -> Result<Transaction, Refused> {
    let mut topology = view.topology.value.clone();
    let own = led_by(&mut topology, me)
        .map_err(|_| Refused("Slot migration can only be used on primary nodes.".into()))?
        .clone();
    super::rehash::allows_moves(&topology)?;
    for (slots, node) in jobs {
        let Some(target) = topology.shard_of(*node).filter(|shard| shard.holder.id == *node) else {
            return refused(format!("Unknown node name: {node}"));
        };
        let to = target.id;
        if to == own.id {
            return refused("Target node can not be this node.");
        }
        if !slots.without(&own.slots).is_empty() {
            return refused("Slots are not served by this node.");
        }
        let is_moving = |slot: u16| {
            own.migrating.contains_key(&slot)
                || topology.moves.iter().any(|job| job.left.contains(slot))
        };
        if slots.iter().any(is_moving) {
            return refused("I am already migrating some of these slots, please try again later.");
        }
        let (slots, left) = (slots.clone(), slots.clone());
        let (id, from) = (name(), own.id);
        topology.moves.push(Move { id, slots, left, from, to, since_s, is_cancelled: false });
    }
    Ok(view.replace(&topology))
}

/// CLUSTER CANCELSLOTMIGRATIONS: slots that have not begun to move stay. Those whose keys are at both ends go on.
pub fn cancel(view: &View, me: Id) -> Result<Transaction, Refused> {
    let mut topology = view.topology.value.clone();
    let own = led_by(&mut topology, me)?.clone();
    let mut cancelled = Vec::new();
    for job in topology.moves.iter_mut().filter(|job| job.from == own.id && !job.is_cancelled) {
        let stay = job.left.without(&open_of(&own.migrating, job));
        job.left = job.left.without(&stay);
        job.is_cancelled = true;
        cancelled.push((job.to, stay));
    }
    if cancelled.is_empty() {
        return refused("No migrations ongoing");
    }
    for (to, stay) in cancelled {
        for shard in topology.shards.iter_mut().filter(|shard| shard.id == to) {
            shard.importing.retain(|&slot, _| !stay.contains(slot));
        }
    }
    Ok(view.replace(&topology))
}

/// The slots of a job that are open at the source.
fn open_of(migrating: &std::collections::BTreeMap<u16, Id>, job: &Move) -> Slots {
    Slots::from_fn(|slot| job.left.contains(slot) && migrating.get(&slot) == Some(&job.to))
}

/// Returns what the primary `me` does next. `None`: there is no job for it.
pub fn next(view: &View, me: Id) -> Option<Step> {
    let topology = &view.topology.value;
    let own = topology.shard_of(me).filter(|shard| shard.holder.id == me)?;
    let job = topology.moves.iter().find(|job| job.from == own.id)?;
    let target = topology.shard(job.to)?;
    let (node, mut after) = (target.holder.id, topology.clone());
    let open = open_of(&own.migrating, job);
    if !open.is_empty() {
        give(&mut after, job, &open);
        return Some(Step::Carry(node, open, view.replace(&after)));
    }
    let batch = job.left.first(BATCH);
    let is_known = batch.iter().all(|slot| target.importing.get(&slot) == Some(&own.id));
    let shard = after
        .shards
        .iter_mut()
        .find(|shard| shard.id == if is_known { own.id } else { target.id })?;
    let first = batch.iter().next()?;
    if is_known {
        shard.migrating.extend(batch.iter().map(|slot| (slot, target.id)));
        return Some(Step::Leave(node, first, view.replace(&after)));
    }
    shard.importing.extend(batch.iter().map(|slot| (slot, own.id)));
    Some(Step::Import(view.replace(&after)))
}

/// Gives slots of a job to its target.
fn give(topology: &mut Topology, job: &Move, slots: &Slots) {
    for shard in &mut topology.shards {
        if shard.id == job.from {
            shard.slots = shard.slots.without(slots);
        } else if shard.id == job.to {
            shard.slots = shard.slots.with(slots);
        }
    }
}

#[cfg(test)]
mod tests;

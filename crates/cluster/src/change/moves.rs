//! Jobs that move slots (CLUSTER MIGRATESLOTS). What is to be done next follows from the topology
//! alone, so a primary that takes over goes on with it.
//!
//! ```text
//!  Copying ──hand_over──▶ Trimming ──finish──▶ gone       the source's primary copies, hands over and trims
//!     └─────cancel──────▶ Clearing ──finish──▶ gone       the target's primary clears
//! ```

use super::{Refused, led_by, refused};
use crate::coordinator::Transaction;
use crate::id::Id;
use crate::slots::Slots;
use crate::topology::{Holder, Move, MovePhase, Shard, Topology};
use crate::view::View;

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
            topology.moves.iter().any(|job| job.left.contains(slot))
                || topology.shards.iter().any(|shard| is_open(shard, slot))
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

/// CLUSTER MIGRATION IMPORT: a job with this name that moves slots of one shard to the one that
/// `me` leads.
pub fn import(
    view: &View,
    me: Id,
    slots: &Slots,
    id: Id,
    since_s: u64,
) -> Result<Transaction, Refused> {
    let mut topology = view.topology.value.clone();
    let to = led_by(&mut topology, me)?.clone();
    super::rehash::allows_moves(&topology)?;
    if let Some(slot) = slots.first_common(&to.slots) {
        return refused(format!("this node is already the owner of slot {slot}"));
    }
    let is_moving = |slot: &u16| {
        topology.moves.iter().any(|job| job.left.contains(*slot))
            || topology.shards.iter().any(|shard| is_open(shard, *slot))
    };
    if let Some(slot) = slots.iter().find(is_moving) {
        return refused(format!("slot {slot} is already being migrated"));
    }
    let mut owners =
        topology.shards.iter().filter(|shard| shard.slots.first_common(slots).is_some());
    let Some(from) = owners.next() else { return refused("the slots have no owner") };
    if owners.next().is_some() {
        return refused("slots belong to different source nodes");
    }
    if let Some(slot) = slots.without(&from.slots).iter().next() {
        return refused(format!("slot {slot} has no owner"));
    }
    let (slots, left) = (slots.clone(), slots.clone());
    let (from, to) = (from.id, to.id);
    topology.moves.push(Move { id, slots, left, from, to, since_s, is_cancelled: false });
    Ok(view.replace(&topology))
}

/// Whether a slot moves key by key, as this shard knows.
fn is_open(shard: &Shard, slot: u16) -> bool {
    shard.migrating.contains_key(&slot) || shard.importing.contains_key(&slot)
}

/// Whether slots can be given to a shard.
///
/// # Errors
/// It still drops what it had of one of them, and would drop what clients write.
pub fn ensure_not_dropped(topology: &Topology, shard: Id, slots: &Slots) -> Result<(), Refused> {
    match topology.dropped_by(shard, slots) {
        Some(slot) => refused(format!(
            "The node still drops its old copy of slot {slot}, please try again later."
        )),
        None => Ok(()),
    }
}

/// CLUSTER CANCELSLOTMIGRATIONS: the jobs that take slots away from the shard that `me` leads end.
/// Their slots stay.
pub fn cancel(view: &View, me: Id) -> Result<Transaction, Refused> {
    let mut topology = view.topology.value.clone();
    let own = led_by(&mut topology, me)?.id;
    let is_meant = |job: &Move| job.from == own;
    match cancel_where(&mut topology, is_meant) {
        0 => refused("No migrations ongoing"),
        _ => Ok(view.replace(&topology)),
    }
}

/// CLUSTER MIGRATION CANCEL: the jobs with these names end that move slots from or to the shard
/// that `me` leads. `None`: there is none.
pub fn cancel_named(view: &View, me: Id, names: &[Id]) -> Result<Option<Transaction>, Refused> {
    let mut topology = view.topology.value.clone();
    let own = led_by(&mut topology, me)?.id;
    let is_meant = |job: &Move| (job.to == own || job.from == own) && names.contains(&job.id);
    Ok((cancel_where(&mut topology, is_meant) > 0).then(|| view.replace(&topology)))
}

fn cancel_where(topology: &mut Topology, is_meant: impl Fn(&Move) -> bool) -> usize {
    let meant = topology.moves.iter_mut();
    let meant = meant.filter(|job| job.phase() == MovePhase::Copying && is_meant(job));
    meant.map(Move::cancel).count()
}

/// The jobs that the primary `me` has something to do for. Returns none if `me` is a replica.
pub fn tasks(view: &View, me: Id) -> impl Iterator<Item = &Move> {
    let topology = &view.topology.value;
    let own = topology.shard_of(me).filter(|shard| shard.holder.id == me).map(|shard| shard.id);
    topology.moves.iter().filter(move |job| match job.phase() {
        MovePhase::Copying | MovePhase::Trimming => Some(job.from) == own,
        MovePhase::Clearing => Some(job.to) == own,
    })
}

/// Returns the job with this name, if it is copied by the shard that `me` leads, and the primary of
/// its target.
pub fn copying(view: &View, me: Id, job: Id) -> Option<(&Move, Holder)> {
    let job =
        tasks(view, me).find(|other| other.id == job && other.phase() == MovePhase::Copying)?;
    Some((job, view.topology.value.shard(job.to)?.holder))
}

/// Returns the transaction by which the slots of a job become the target's. `None`: it is
/// cancelled, or `me` does not lead its source, or the target has another primary than `target`,
/// which has not got the copy.
pub fn hand_over(view: &View, me: Id, job: Id, target: Holder) -> Option<Transaction> {
    let (job, holder) = copying(view, me, job)?;
    if holder != target {
        return None;
    }
    let (id, from, to, slots) = (job.id, job.from, job.to, job.left.clone());
    let mut topology = view.topology.value.clone();
    for shard in &mut topology.shards {
        if shard.id == from {
            shard.slots = shard.slots.without(&slots);
        } else if shard.id == to {
            shard.slots = shard.slots.with(&slots);
        }
    }
    for job in topology.moves.iter_mut().filter(|job| job.id == id) {
        job.left = Slots::default();
    }
    Some(view.replace(&topology))
}

/// Returns a transaction that changes nothing. When it has been made, no other that was prepared
/// before can be.
pub fn fence(view: &View) -> Transaction {
    view.replace(&view.topology.value)
}

/// Returns the transaction that removes a job whose copy is dropped.
pub fn finish(view: &View, job: Id) -> Option<Transaction> {
    let mut topology = view.topology.value.clone();
    let before = topology.moves.len();
    topology.moves.retain(|other| other.id != job || other.phase() == MovePhase::Copying);
    (topology.moves.len() < before).then(|| view.replace(&topology))
}

/// The slots of which a shard has keys that are not its own yet, or not any more. `SCAN` and its
/// like pass them over.
pub fn hidden(topology: &Topology, shard: Id) -> Slots {
    let mut hidden = Slots::default();
    for job in &topology.moves {
        let has_copy = match job.phase() {
            MovePhase::Copying | MovePhase::Clearing => job.to == shard,
            MovePhase::Trimming => job.from == shard,
        };
        if has_copy {
            hidden = hidden.with(&job.slots);
        }
    }
    match topology.shard(shard) {
        Some(shard) => hidden.without(&shard.slots),
        None => hidden,
    }
}

#[cfg(test)]
mod tests;

//! Jobs that move slots (CLUSTER MIGRATESLOTS). What is to be done next follows from the topology
//! alone, so a primary that takes over goes on with it.
//!
//! ```text
//!  Copying ──hand_over──▶ Trimming ──finish──▶ gone       the source's primary copies, hands over and trims
//!     └─────cancel──────▶ Clearing ──finish──▶ gone       the target's primary clears
//! ```

pub mod decision;

use super::{Refused, led_by, refused};
use crate::coordinator::Transaction;
use crate::id::{Epoch, Id};
use crate::slots::{COUNT, Slots};
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
        .map_err(|_| Refused::Wrong("Slot migration can only be used on primary nodes.".into()))?
        .clone();
    super::rehash::allows_moves(&topology)?;
    ensure_not_rolled_back(view)?;
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
        let moves = |slot: &u16| topology.moves.iter().any(|job| job.left.contains(*slot));
        if let Some(slot) = slots.iter().find(moves) {
            return refused(format!("I am already migrating slot {slot}."));
        }
        let is_open = |slot: &u16| topology.shards.iter().any(|shard| is_open(shard, *slot));
        if let Some(slot) = slots.iter().find(is_open) {
            return refused(format!(
                "Slots are being manually migrated: slot {slot} is open, see CLUSTER SETSLOT."
            ));
        }
        topology.moves.push(Move::new(name(), slots, (own.id, to), since_s));
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
    ensure_not_rolled_back(view)?;
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
    let sides = (from.id, to.id);
    topology.moves.push(Move::new(id, slots, sides, since_s));
    Ok(view.replace(&topology))
}

/// Whether moves may begin, whose targets drop what they have of the slots before.
///
/// # Errors
/// The coordinator was rolled back: what they have may be all that there is.
pub(super) fn ensure_not_rolled_back(view: &View) -> Result<(), Refused> {
    match view.rolled_back {
        Some(_) => refused(
            "etcd was rolled back, so keys may be at other shards than their slots: see \"How \
             failures look\" in the guide of the cluster",
        ),
        None => Ok(()),
    }
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

/// The jobs that the primary `me` has something to do for, those with a greater priority first.
/// Returns none if `me` is a replica.
pub fn tasks(view: &View, me: Id) -> impl Iterator<Item = &Move> {
    let topology = &view.topology.value;
    let own = topology.shard_of(me).filter(|shard| shard.holder.id == me).map(|shard| shard.id);
    let is_due = |job: &&Move| match job.phase() {
        MovePhase::Copying | MovePhase::Trimming => Some(job.from) == own,
        MovePhase::Clearing => Some(job.to) == own,
    };
    let mut due: Vec<&Move> = topology.moves.iter().filter(is_due).collect();
    // The order of those with the same priority stays.
    due.sort_by_key(|job| std::cmp::Reverse(job.priority));
    due.into_iter()
}

/// What a copy rests on: of another primary nothing is known that was done under this one.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Attempt {
    /// The epoch in which the source's primary leads.
    pub source_epoch: Epoch,
    /// The target's primary.
    pub target: Holder,
    /// The epoch in which it leads.
    pub target_epoch: Epoch,
    /// How often the target had given up a copy before.
    pub given_up: u32,
}

/// Returns the job with this name, if it is copied by the shard that `me` leads, and what a copy
/// rests on that begins now.
pub fn copying(view: &View, me: Id, job: Id) -> Option<(&Move, Attempt)> {
    let job =
        tasks(view, me).find(|other| other.id == job && other.phase() == MovePhase::Copying)?;
    let topology = &view.topology.value;
    let (source, target) = (topology.shard(job.from)?, topology.shard(job.to)?);
    let attempt = Attempt {
        source_epoch: source.epoch,
        target: target.holder,
        target_epoch: target.epoch,
        given_up: job.given_up,
    };
    Some((job, attempt))
}

/// Returns the transaction by which the slots of a job become the target's. `None`: it is
/// cancelled, or `me` does not lead its source, or what the copy rests on is not so any more.
pub fn hand_over(view: &View, me: Id, job: Id, attempt: &Attempt) -> Option<Transaction> {
    let (job, present) = copying(view, me, job)?;
    if present != *attempt {
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

/// Returns the transaction by which the target gives up the copy of a job that its source was about
/// to hand over. `None`: it is not copied to the shard that `me` leads.
///
/// What the source has sent for the decision counts no more when this is made.
pub fn give_up(view: &View, me: Id, job: Id) -> Option<Transaction> {
    let mut topology = view.topology.value.clone();
    let own = led_by(&mut topology, me).ok()?.id;
    let is_meant = |other: &&mut Move| {
        other.id == job && other.to == own && other.phase() == MovePhase::Copying
    };
    topology.moves.iter_mut().find(is_meant)?.given_up += 1;
    Some(view.replace(&topology))
}

/// CLUSTER MIGRATION SET: how fast, and in which order, jobs are done that move slots from or to the
/// shard that `me` leads. No names: all of them. `None`: there is no such job.
///
/// # Errors
/// `me` leads no shard.
pub fn pace(
    view: &View,
    me: Id,
    names: &[Id],
    (rate, priority): (Option<u64>, Option<i32>),
) -> Result<Option<Transaction>, Refused> {
    let mut topology = view.topology.value.clone();
    let own = led_by(&mut topology, me)?.id;
    let is_meant = |job: &&mut Move| {
        let is_named = names.is_empty() || names.contains(&job.id);
        is_named && (job.to == own || job.from == own) && job.phase() == MovePhase::Copying
    };
    let mut count = 0;
    for job in topology.moves.iter_mut().filter(is_meant) {
        job.rate = rate.unwrap_or(job.rate);
        job.priority = priority.unwrap_or(job.priority);
        count += 1;
    }
    Ok((count > 0).then(|| view.replace(&topology)))
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

/// Returns the slots whose keys a shard may have without owning them. `SCAN` and its like pass them
/// over.
pub fn hidden(topology: &Topology, shard: Id) -> Slots {
    let mut hidden = foreign(topology, shard);
    for job in &topology.moves {
        if has_copy(job, shard) {
            hidden = hidden.with(&job.slots);
        }
    }
    match topology.shard(shard) {
        Some(shard) => hidden.without(&shard.slots),
        None => hidden,
    }
}

/// Returns whether a shard has keys of a job's slots that are not its own yet, or not any more. The
/// job drops them.
fn has_copy(job: &Move, shard: Id) -> bool {
    match job.phase() {
        MovePhase::Copying | MovePhase::Clearing => job.to == shard,
        MovePhase::Trimming => job.from == shard,
    }
}

/// Returns the slots that another shard owns, without those whose keys arrive one by one.
fn foreign(topology: &Topology, shard: Id) -> Slots {
    if !decides_by_slot(topology) {
        return Slots::default();
    }
    let mut is_foreign = [false; COUNT as usize];
    for other in topology.shards.iter().filter(|other| other.id != shard) {
        for &(first, last) in other.slots.ranges() {
            is_foreign[usize::from(first)..=usize::from(last)].fill(true);
        }
    }
    let own = topology.shard(shard);
    for slot in own.iter().flat_map(|own| own.importing.keys()) {
        is_foreign[usize::from(*slot)] = false;
    }
    Slots::from_fn(|slot| is_foreign[usize::from(slot)])
}

/// Returns whether the slot of a key's table says which shard has the key.
fn decides_by_slot(topology: &Topology) -> bool {
    topology.hashing.is_empty() && topology.rehash.is_none()
}

/// Returns the slots whose keys are leftovers if a shard has any: another shard owns them, and
/// neither SETSLOT nor a job brings or drops them. A file that is older than a move has such keys.
pub fn stale(topology: &Topology, shard: Id) -> Slots {
    let jobs = topology.moves.iter().filter(|job| has_copy(job, shard));
    jobs.fold(foreign(topology, shard), |stale, job| stale.without(&job.slots))
}

#[cfg(test)]
mod tests;

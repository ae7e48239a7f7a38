//! CLUSTER SETSLOT: slots that move key by key.

use super::{Refused, led_by, refused};
use crate::coordinator::Transaction;
use crate::id::Id;
use crate::slots::Slots;
use crate::topology::Topology;
use crate::view::View;

/// What CLUSTER SETSLOT says of a slot.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Setting {
    /// It arrives from the shard that this node leads.
    Importing(Id),
    /// It moves to the shard that this node leads.
    Migrating(Id),
    /// It belongs to the shard that this node leads.
    Node(Id),
    /// It does not move.
    Stable,
}

/// CLUSTER SETSLOT. `None`: it is so already. `has_keys`: `me` has keys in the slot.
///
/// The state of a slot belongs to its shard, so it outlives a fail-over. Both ends of a move are
/// closed by the one transaction that gives the slot to its new shard; the same request to the
/// other nodes finds nothing to do.
pub fn set_slot(
    view: &View,
    me: Id,
    slot: u16,
    setting: Setting,
    has_keys: bool,
) -> Result<Option<Transaction>, Refused> {
    let mut topology = view.topology.value.clone();
    let leads = topology.shard_of(me).is_some_and(|shard| shard.holder.id == me);
    let mine = topology.shard_of(me).map(|shard| shard.id);
    let owner = topology.shard_with(slot).map(|shard| shard.id);
    if !leads {
        return refused("Please use SETSLOT only with masters.");
    }
    let is_mine = owner.is_some() && owner == mine;
    let named = |id: Id, unknown: &str| match topology.shard_of(id) {
        None => refused(format!("{unknown} {id}")),
        Some(shard) if shard.holder.id != id => refused("Target node is not a master"),
        Some(shard) => Ok(shard.id),
    };
    if matches!(setting, Setting::Migrating(_) | Setting::Importing(_)) {
        super::rehash::allows_moves(&topology)?;
    }
    if setting != Setting::Stable && topology.moves.iter().any(|job| job.left.contains(slot)) {
        return refused(format!("Slot {slot} moves by a job; cancel that first"));
    }
    match setting {
        Setting::Migrating(_) if !is_mine => {
            return refused(format!("I'm not the owner of hash slot {slot}"));
        }
        Setting::Importing(_) if is_mine => {
            return refused(format!("I'm already the owner of hash slot {slot}"));
        }
        Setting::Migrating(to) => {
            let to = named(to, "I don't know about node")?;
            if Some(to) == mine {
                return refused("Target node is myself");
            }
            led_by(&mut topology, me)?.migrating.insert(slot, to);
        }
        Setting::Importing(from) => {
            let from = named(from, "I don't know about node")?;
            let one = Slots::from_fn(|other| other == slot);
            let own = led_by(&mut topology, me)?.id;
            if from == own {
                return refused("Target node is myself");
            }
            super::moves::ensure_not_dropped(&topology, own, &one)?;
            led_by(&mut topology, me)?.importing.insert(slot, from);
        }
        Setting::Stable => {
            let shard = led_by(&mut topology, me)?;
            shard.migrating.remove(&slot);
            shard.importing.remove(&slot);
        }
        Setting::Node(to) => {
            let to = named(to, "Unknown node")?;
            if is_mine && Some(to) != mine && has_keys {
                return refused(format!(
                    "Can't assign hashslot {slot} to a different node while I still hold keys for this \
                     hash slot."
                ));
            }
            if owner == Some(to) && !has_keys {
                // Its owner keeps it: nothing is on the way any more, as far as `me` is concerned.
                let shard = led_by(&mut topology, me)?;
                shard.migrating.remove(&slot);
                shard.importing.remove(&slot);
            }
            assign(&mut topology, mine, slot, to)?;
        }
    }
    topology.close_slots();
    Ok((topology != view.topology.value).then(|| view.replace(&topology)))
}

/// Gives a slot to a shard, as a node of the shard `mine` asks for.
fn assign(topology: &mut Topology, mine: Option<Id>, slot: u16, to: Id) -> Result<(), Refused> {
    let one = Slots::from_fn(|other| other == slot);
    super::moves::ensure_not_dropped(topology, to, &one)?;
    if let Some(from) = topology.shards.iter_mut().find(|shard| shard.slots.contains(slot)) {
        if from.id == to {
            return Ok(());
        }
        // Only the slot's own primary knows whether it has keys; and the one that imports it has
        // been told that they have arrived.
        let is_agreed = Some(from.id) == mine || from.migrating.get(&slot) == Some(&to);
        if !is_agreed {
            return refused(format!(
                "Hash slot {slot} does not move to that node: say CLUSTER SETSLOT {slot} MIGRATING at its \
                 primary first"
            ));
        }
        from.slots = from.slots.without(&one);
        from.migrating.remove(&slot);
    }
    for shard in &mut topology.shards {
        shard.importing.remove(&slot);
        if shard.id == to {
            shard.slots = shard.slots.with(&one);
        }
    }
    Ok(())
}

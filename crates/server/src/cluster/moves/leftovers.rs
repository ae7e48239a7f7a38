//! Keys of slots that other shards own. A file that was loaded is perhaps older than a move, and so
//! is what a former primary had. They are hidden from the moment at which the file is loaded; the
//! primary drops them when it begins to lead, before SETSLOT can take them for keys that arrive.

use crate::log;
use cluster::change::moves::stale;
use cluster::slots::{COUNT, Slots};
use engine::Engine;

/// Drops the keys that other shards have by the database's hashing rules.
pub(super) fn drop_foreign(engine: &'static Engine) {
    let Some(dropped) = engine.drop_foreign() else { return };
    engine.membership.moves.set_expects_foreign(false);
    if dropped > 0 {
        log!(
            Notice,
            "Cluster: dropped {dropped} keys that other shards have: the data were older than a change of the hashing rules"
        );
    }
}

/// Drops the keys of these slots, as long as this server leads and they are leftovers.
pub(super) fn drop_all(engine: &'static Engine, slots: &Slots) {
    let mut dropped = 0;
    for slot in slots.iter() {
        let keys = engine.slot_keys(slot);
        if keys > 0 {
            let one = Slots::from_fn(|other| other == slot);
            let is_dropped = engine.drop_slots(&one, move || is_due(engine, slot) == Some(true));
            if !is_dropped && is_due(engine, slot) != Some(false) {
                // The thread is started again when this server leads.
                return;
            }
            dropped += if is_dropped { keys } else { 0 };
        }
        engine.membership.moves.end_stale(slot);
    }
    if dropped > 0 {
        log!(
            Notice,
            "Cluster: dropped {dropped} keys of slots that other shards have: the data were older than a move"
        );
    }
}

/// Drops the keys of all slots that this server does not own: it has left its shard, or its cluster,
/// and leads one of its own. As long as it does not lead nothing is dropped.
pub(in crate::cluster) fn drop_all_unowned(engine: &'static Engine) {
    for slot in (0..COUNT).filter(|&slot| engine.slot_keys(slot) > 0) {
        let one = Slots::from_fn(|other| other == slot);
        if !engine.drop_slots(&one, move || is_unowned(engine, slot)) {
            log!(Warning, "Cluster: the keys of slot {slot} are kept: the slot is this node's now");
        }
    }
}

/// Returns whether this server leads and does not own a slot.
fn is_unowned(engine: &Engine, slot: u16) -> bool {
    let Some(published) = engine.membership.newest() else { return false };
    published.leads && published.own_shard().is_some_and(|own| !own.slots.contains(slot))
}

/// Returns whether the keys of a slot are leftovers. `None`: this server does not lead.
fn is_due(engine: &Engine, slot: u16) -> Option<bool> {
    let published = engine.membership.newest().filter(|published| published.leads)?;
    let own = published.own_shard()?;
    if published.view.rolled_back.is_some() {
        return Some(false);
    }
    Some(stale(&published.view.topology.value, own.id).contains(slot))
}

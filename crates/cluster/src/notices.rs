//! What changes for clients between two views of a database: shards that fail over or are handed
//! over, and slots that move.
//!
//! Every node computes the same notices from the views that it reads. So nothing that begins a
//! switch or a move has to know the clients.

use crate::id::Id;
use crate::slots::Slots;
use crate::topology::{Replica, Shard};
use crate::view::View;

/// Slots that have another primary.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Moved {
    /// The primary before.
    pub from: Replica,
    /// The primary now.
    pub to: Replica,
    /// The slots.
    pub slots: Slots,
}

/// See the head of this file.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Notices {
    /// Shards that get another primary soon.
    pub failing_over: Vec<Id>,
    /// Shards that have a living primary again.
    pub failed_over: Vec<Id>,
    /// Slots that begin to move, by the shard that they leave.
    pub leaving: Vec<(Id, Slots)>,
    /// Moves of slots have ended.
    pub has_ended_move: bool,
    /// Slots that have another primary.
    pub moved: Vec<Moved>,
}

impl Notices {
    /// Returns whether nothing has changed for clients.
    pub fn is_empty(&self) -> bool {
        *self == Notices::default()
    }
}

/// Returns what has changed between two views.
pub fn between(before: &View, after: &View) -> Notices {
    let mut notices = Notices::default();
    let unchanged = before.topology.revision == after.topology.revision
        && before.alive == after.alive
        && before.switches == after.switches;
    if before.database != after.database || unchanged {
        return notices;
    }
    for shard in &after.topology.value.shards {
        let Some(earlier) = before.topology.value.shard(shard.id) else { continue };
        match (loses_primary(before, earlier), loses_primary(after, shard)) {
            (false, true) => notices.failing_over.push(shard.id),
            (true, false) => notices.failed_over.push(shard.id),
            _ => {}
        }
    }
    let (leaving, still_leaving) = (leaving(before), leaving(after));
    for (shard, slots) in &still_leaving {
        let earlier = leaving.iter().find(|(id, _)| id == shard);
        let new = earlier.map_or_else(|| slots.clone(), |(_, earlier)| slots.without(earlier));
        if !new.is_empty() {
            notices.leaving.push((*shard, new));
        }
    }
    notices.has_ended_move =
        leaving.iter().any(|(shard, _)| !still_leaving.iter().any(|(id, _)| id == shard));
    notices.moved = moved(before, after);
    notices
}

/// Returns whether a shard with slots is to be handed over, or its primary has no lease.
fn loses_primary(view: &View, shard: &Shard) -> bool {
    let is_asked = view.switches.get(&shard.id).is_some_and(|at| at.value.epoch == shard.epoch);
    !shard.slots.is_empty() && !shard.is_unborn() && (is_asked || !view.is_alive(shard.holder))
}

/// Returns the slots that are to leave each shard.
fn leaving(view: &View) -> Vec<(Id, Slots)> {
    let topology = &view.topology.value;
    let of_shard = |shard: &Shard| {
        let open = Slots::from_fn(|slot| shard.migrating.contains_key(&slot));
        let jobs = topology.moves.iter().filter(|job| job.from == shard.id && !job.is_cancelled);
        let slots = jobs.fold(open, |slots, job| slots.with(&job.left));
        (shard.id, slots)
    };
    topology.shards.iter().map(of_shard).filter(|(_, slots)| !slots.is_empty()).collect()
}

/// Returns the slots whose primary is another, by the pair of primaries.
fn moved(before: &View, after: &View) -> Vec<Moved> {
    let mut moved = Vec::new();
    for earlier in &before.topology.value.shards {
        let Some(from) = earlier.copy(earlier.holder.id) else { continue };
        for shard in &after.topology.value.shards {
            let is_same = shard.holder.id == earlier.holder.id;
            let slots = earlier.slots.within(&shard.slots);
            let to = shard.copy(shard.holder.id).filter(|_| !is_same && !slots.is_empty());
            if let Some(to) = to {
                moved.push(Moved { from: from.clone(), to: to.clone(), slots });
            }
        }
    }
    moved
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::id::{Epoch, Incarnation};
    use crate::topology::{Address, Holder, Move, Topology};
    use crate::view::{Alive, At, Keys, Switch};

    fn id(n: u8) -> Id {
        Id::new([n; 20])
    }

    fn shard(n: u8, first: u16, last: u16) -> Shard {
        let address = |n: u8| Address {
            host: "10.0.0.1".into(),
            port: 7000 + u16::from(n),
            ..Address::default()
        };
        let mut shard = Shard::new(id(n), address(n), Incarnation(n.into()));
        shard.slots = Slots::from_fn(|slot| (first..=last).contains(&slot));
        let member = Some(Incarnation(u64::from(n) + 10));
        let replica =
            Replica { id: id(n + 10), address: address(n + 10), member, is_never_promoted: false };
        shard.copies.push(replica);
        shard
    }

    /// Two shards, of which all copies are alive.
    fn view() -> View {
        let mut topology = Topology::new(shard(1, 0, 99));
        topology.shards.push(shard(2, 100, 16383));
        let alive = topology.copies().map(|copy| {
            let incarnation = copy.member.expect("all are members");
            (copy.id, At { value: Alive { incarnation, lease: 1, bus_port: 0 }, revision: 1 })
        });
        let alive = alive.collect();
        View {
            keys: Keys::new("c"),
            database: id(1),
            revision: 1,
            topology: At { value: topology, revision: 1 },
            alive,
            fences: Default::default(),
            switches: Default::default(),
            rolled_back: None,
            history: Default::default(),
        }
    }

    fn change(view: &View, change: impl FnOnce(&mut Topology)) -> View {
        let mut changed = view.clone();
        change(&mut changed.topology.value);
        changed.topology.revision += 1;
        changed
    }

    #[test]
    fn a_switch_has_a_beginning_and_an_end() {
        let before = view();
        assert!(between(&before, &before).is_empty());
        let mut asked = before.clone();
        let value = Switch { epoch: Epoch(0), to: id(11), is_for_any: false };
        asked.switches.insert(id(1), At { value, revision: 2 });
        let begin = between(&before, &asked);
        assert_eq!(begin, Notices { failing_over: vec![id(1)], ..Notices::default() });
        let after = change(&asked, |topology| {
            topology.epoch = Epoch(1);
            topology.shards[0].epoch = Epoch(1);
            topology.shards[0].holder = Holder { id: id(11), incarnation: Incarnation(11) };
        });
        let end = between(&asked, &after);
        assert_eq!((end.failed_over, end.failing_over), (vec![id(1)], vec![]));
        let [Moved { from, to, slots }] = &end.moved[..] else { panic!("{:?}", end.moved) };
        assert_eq!((from.id, to.id, slots.ranges()), (id(1), id(11), &[(0, 99)][..]));
        assert!(between(&after, &after).is_empty());
    }

    #[test]
    fn a_lease_that_ends_is_a_beginning_only_of_a_primary_with_slots() {
        let before = view();
        let without = |dead: u8| {
            let mut after = before.clone();
            after.alive.remove(&id(dead));
            after
        };
        assert_eq!(between(&before, &without(2)).failing_over, [id(2)]);
        assert_eq!(between(&without(2), &before).failed_over, [id(2)]);
        assert!(between(&before, &without(12)).is_empty());
        let slotless = change(&before, |topology| topology.shards[1].slots = Slots::default());
        let mut dead = slotless.clone();
        dead.alive.remove(&id(2));
        assert!(between(&slotless, &dead).is_empty());
    }

    #[test]
    fn slots_leave_and_arrive() {
        let before = view();
        let slots = Slots::from_fn(|slot| slot < 10);
        let job = |left: &Slots| Move {
            left: left.clone(),
            ..Move::new(id(9), &slots, (id(1), id(2)), 0)
        };
        let begun = change(&before, |topology| topology.moves.push(job(&slots)));
        let begin = between(&before, &begun);
        assert_eq!(begin, Notices { leaving: vec![(id(1), slots.clone())], ..Notices::default() });
        let opened = change(&begun, |topology| {
            topology.shards[0].migrating.insert(3, id(2));
        });
        assert!(between(&begun, &opened).is_empty(), "it was said before");
        let half = Slots::from_fn(|slot| slot < 5);
        let moved = change(&begun, |topology| {
            topology.moves[0].left = half.clone();
            topology.shards[0].slots = topology.shards[0].slots.without(&slots.without(&half));
            topology.shards[1].slots = topology.shards[1].slots.with(&slots.without(&half));
        });
        let notices = between(&begun, &moved);
        assert_eq!(notices.moved[0].slots.ranges(), [(5, 9)]);
        assert!(!notices.has_ended_move && notices.leaving.is_empty());
        let over = change(&moved, |topology| topology.moves.clear());
        assert!(between(&moved, &over).has_ended_move);
    }
}

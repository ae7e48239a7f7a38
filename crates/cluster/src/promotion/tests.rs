//! Elections, by what copies have said.

use super::*;
use crate::id::{Epoch, Incarnation};
use crate::slots::Slots;
use crate::topology::{Address, Topology};
use crate::view::{At, Keys};
use std::collections::BTreeMap;

const EPOCH: Epoch = Epoch(5);

fn id(copy: u8) -> Id {
    Id::new([copy; 20])
}

/// What one of the copies has: where its data come from, and how far they go. `None`: it has not
/// said so.
type Said = Option<(Origin, u64)>;

/// A quorum, the fence, what the copies have said, the copy that leads, and whether it waits for
/// others.
type Case = (usize, usize, &'static [Said], Option<u8>, bool);

/// A shard whose primary was the first of these copies. All that have said something are alive.
fn view(quorum: usize, fence: usize, said: &[Said]) -> View {
    let address = Address { host: "10.0.0.1".into(), port: 7000, ..Address::default() };
    let mut shard = Shard::new(id(1), address.clone(), Incarnation(1));
    (shard.epoch, shard.fence, shard.slots) = (EPOCH, fence, Slots::from_fn(|_| true));
    let copies = 1..=u8::try_from(said.len()).expect("they are few");
    let member = |copy: u8| Some(Incarnation(copy.into()));
    let replica = |copy| {
        let address = address.clone();
        Replica { id: id(copy), address, member: member(copy), is_never_promoted: false }
    };
    shard.copies = copies.clone().map(replica).collect();
    let (mut alive, mut fences) = (BTreeMap::new(), BTreeMap::new());
    for (copy, &(origin, offset)) in
        copies.zip(said).filter_map(|(copy, it)| Some((copy, it.as_ref()?)))
    {
        let kept = member(copy).expect("it is one");
        let incarnation = if origin == Origin::Kept { kept } else { Incarnation(100) };
        let position = match offset {
            0 => Position::default(),
            offset => Position { epoch: EPOCH, offset },
        };
        let fence = Fence {
            epoch: EPOCH,
            incarnation,
            position,
            has_keys: false,
            restored: (origin == Origin::Log).then_some(kept),
        };
        fences.insert((id(1), id(copy)), At { value: fence, revision: 9 });
        alive.insert(
            id(copy),
            At { value: Alive { incarnation, lease: 7, bus_port: 0 }, revision: 9 },
        );
    }
    let mut topology = Topology { epoch: EPOCH, ..Topology::new(shard) };
    topology.quorum = quorum;
    View {
        keys: Keys::new("test"),
        database: id(1),
        revision: 9,
        topology: At { value: topology, revision: 9 },
        alive,
        fences,
        switches: BTreeMap::new(),
        rolled_back: None,
        history: Default::default(),
    }
}

fn elected(view: &View) -> (Option<u8>, bool) {
    match elect(view, &view.topology.value.shards[0]) {
        Election::Won(holder) => ((1..9).find(|&copy| id(copy) == holder.id), false),
        Election::Restored(holder) => ((1..9).find(|&copy| id(copy) == holder.id), true),
        Election::Waiting { .. } | Election::Lost => (None, false),
    }
}

#[test]
fn the_best_of_enough_leads() {
    use Origin::{Kept, Log, Other};
    const NONE: Said = None;
    let cases: [Case; 14] = [
        // Copies that were not restarted.
        (2, 2, &[NONE, Some((Kept, 7)), Some((Kept, 9))], Some(3), false),
        (2, 2, &[NONE, Some((Kept, 7)), NONE], None, false),
        // All that are there were restarted.
        (2, 2, &[NONE, Some((Log, 7)), Some((Log, 9))], Some(3), true),
        (2, 2, &[NONE, NONE, Some((Log, 9))], None, false),
        (0, 1, &[NONE, Some((Log, 9)), Some((Log, 7))], Some(2), true),
        (0, 1, &[NONE, Some((Log, 9))], None, false),
        // The one that is not there may have in memory what the restarted one has lost.
        (2, 2, &[NONE, Some((Kept, 7)), Some((Log, 9))], None, false),
        // Nothing more can come.
        (2, 2, &[Some((Log, 8)), Some((Kept, 7)), Some((Log, 9))], Some(3), false),
        (2, 2, &[Some((Other, 9)), Some((Other, 8)), Some((Other, 7))], Some(1), false),
        // A snapshot may be of any age, and what a synchronisation has left, too.
        (2, 2, &[NONE, Some((Other, 7)), Some((Log, 9))], None, false),
        (0, 1, &[NONE, Some((Other, 7)), Some((Other, 9))], None, false),
        // No copy has anything.
        (2, 2, &[NONE, Some((Log, 0)), Some((Log, 0))], None, false),
        (2, 2, &[Some((Log, 0)), Some((Log, 0)), Some((Log, 0))], None, false),
        // Each confirmed write is on all three disks.
        (3, 1, &[NONE, NONE, Some((Log, 9))], Some(3), true),
    ];
    for (quorum, fence, said, leads, waits) in cases {
        let view = view(quorum, fence, said);
        assert_eq!(elected(&view), (leads, waits), "quorum {quorum}: {said:?}");
    }
}

#[test]
fn keys_without_a_position_are_better_than_nothing() {
    let mut view = view(0, 1, &[Some((Origin::Other, 0))]);
    assert_eq!(elected(&view), (None, false));
    view.fences.values_mut().for_each(|at| at.value.has_keys = true);
    assert_eq!(elected(&view), (Some(1), false));
}

#[test]
fn what_would_be_given_up_is_what_the_best_copy_has() {
    let view = view(2, 3, &[None, Some((Origin::Log, 7)), Some((Origin::Log, 9))]);
    let shard = &view.topology.value.shards[0];
    let better = |copy| better_than(&view, shard, id(copy)).map(|vote| vote.holder.id);
    assert_eq!([better(1), better(2), better(3)], [Some(id(3)), Some(id(3)), None]);
}

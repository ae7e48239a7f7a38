//! A job step by step, with cancels and changes of primaries in between.

use super::*;
use crate::id::Incarnation;
use crate::topology::{Address, Shard};
use crate::view::{At, Keys};
use std::collections::BTreeMap;

fn id(n: u8) -> Id {
    Id::new([n; 20])
}

fn view() -> View {
    let address = |port| Address { host: "10.0.0.1".into(), port, ..Address::default() };
    let shard = |n: u8, slots| Shard {
        slots,
        ..Shard::new(id(n), address(7000 + u16::from(n)), Incarnation(n.into()))
    };
    let mut topology = Topology::new(shard(1, Slots::from_fn(|slot| slot < 8192)));
    topology.shards.push(shard(2, Slots::from_fn(|slot| slot >= 8192)));
    View {
        keys: Keys::new("test"),
        database: id(9),
        revision: 1,
        topology: At { value: topology, revision: 1 },
        alive: BTreeMap::new(),
        fences: BTreeMap::new(),
        switches: BTreeMap::new(),
    }
}

/// The view after a transaction.
fn after(view: &View, transaction: &Transaction) -> View {
    let crate::coordinator::Change::Put { value, .. } = &transaction.changes[0] else {
        panic!("a topology is put")
    };
    let value = Topology::decode(value).expect("it is valid");
    View { topology: At { value, revision: view.topology.revision + 1 }, ..view.clone() }
}

fn range(first: u16, last: u16) -> Slots {
    Slots::from_fn(|slot| (first..=last).contains(&slot))
}

fn begun(slots: Slots) -> View {
    let view = view();
    let begun = begin(&view, id(1), &[(slots, id(2))], 5, || id(7)).expect("it is allowed");
    after(&view, &begun)
}

fn step(view: &View) -> View {
    match next(view, id(1)).expect("there is a job") {
        Step::Import(transaction)
        | Step::Leave(_, _, transaction)
        | Step::Carry(_, _, transaction) => after(view, &transaction),
    }
}

#[test]
fn slots_open_at_the_target_first_and_change_hands_together() {
    let mut view = begun(range(0, 99));
    assert!(matches!(next(&view, id(1)), Some(Step::Import(_))));
    assert_eq!(next(&view, id(2)), None);
    for batch in [range(0, 63), range(64, 99)] {
        view = step(&view);
        let first = batch.iter().next();
        assert!(
            matches!(next(&view, id(1)), Some(Step::Leave(node, slot, _)) if node == id(2) && Some(slot) == first)
        );
        view = step(&view);
        assert!(matches!(next(&view, id(1)), Some(Step::Carry(_, slots, _)) if slots == batch));
        view = step(&view);
        let shards = &view.topology.value.shards;
        assert!(batch.iter().all(|slot| shards[1].slots.contains(slot)));
        assert!(
            shards.iter().all(|shard| shard.importing.is_empty() && shard.migrating.is_empty())
        );
    }
    assert_eq!(next(&view, id(1)), None);
    assert!(view.topology.value.moves.is_empty());
}

#[test]
fn a_cancelled_job_ends_with_the_slots_that_are_open() {
    let refusal = cancel(&view(), id(1)).expect_err("there is none");
    assert_eq!(refusal.0, "No migrations ongoing");
    // Nothing is open at the source.
    let open = step(&begun(range(0, 99)));
    let cancelled = after(&open, &cancel(&open, id(1)).expect("there is a job"));
    assert!(cancelled.topology.value.moves.is_empty());
    assert!(cancelled.topology.value.shards[1].importing.is_empty());
    // Some slots are.
    let open = step(&open);
    let cancelled = after(&open, &cancel(&open, id(1)).expect("there is a job"));
    let ended = step(&cancelled);
    assert!(ended.topology.value.moves.is_empty());
    assert_eq!(ended.topology.value.shards[0].slots, range(64, 8191));
}

#[test]
fn what_cannot_move_is_refused() {
    let refusal = |view: &View, me, slots, to| {
        begin(view, id(me), &[(slots, id(to))], 5, || id(7)).expect_err("it is refused").0
    };
    let first = view();
    assert_eq!(refusal(&first, 1, range(0, 1), 3), format!("Unknown node name: {}", id(3)));
    assert_eq!(refusal(&first, 1, range(0, 1), 1), "Target node can not be this node.");
    assert_eq!(refusal(&first, 1, range(8191, 8192), 2), "Slots are not served by this node.");
    let busy = begun(range(0, 9));
    assert!(refusal(&busy, 1, range(9, 10), 2).contains("already migrating"));
}

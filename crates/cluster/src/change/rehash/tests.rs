//! A change of the rule step by step, with cancels and changes of primaries in between.

use super::*;
use crate::id::{Epoch, Incarnation};
use crate::topology::{Address, Shard};
use crate::view::{At, Keys};

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
        rolled_back: None,
        history: Default::default(),
    }
}

fn after(view: &View, transaction: &Transaction) -> View {
    let crate::coordinator::Change::Put { value, .. } = &transaction.changes[0] else {
        panic!("a topology is put")
    };
    let value = Topology::decode(value).expect("it is valid");
    View { topology: At { value, revision: view.topology.revision + 1 }, ..view.clone() }
}

fn rules() -> Vec<String> {
    vec!["(?<tag>.).*".to_owned()]
}

fn begun() -> View {
    let view = view();
    let begun = begin(&view, &rules(), BTreeMap::new(), 5).expect("it is allowed");
    after(&view, &begun)
}

/// A primary makes its next step. Returns whether it had to carry keys.
fn step(view: &mut View, me: u8) -> bool {
    let (carries, transaction) = match next(view, id(me)).expect("there is a step") {
        RehashStep::Note(transaction) => (false, transaction),
        RehashStep::Carry(transaction) => (true, transaction),
    };
    *view = after(view, &transaction);
    carries
}

fn phase(view: &View) -> Option<Phase> {
    view.topology.value.rehash.as_ref().map(|rehash| rehash.phase)
}

#[test]
fn all_shards_pass_each_phase_together() {
    let mut view = begun();
    assert!(!step(&mut view, 1));
    assert_eq!((phase(&view), next(&view, id(1))), (Some(Phase::Opening), None));
    assert!(!step(&mut view, 2));
    assert_eq!(phase(&view), Some(Phase::Moving));
    assert!(step(&mut view, 2) && step(&mut view, 1));
    assert_eq!(phase(&view), Some(Phase::Settling));
    assert!(!step(&mut view, 1) && !step(&mut view, 2));
    let topology = &view.topology.value;
    assert_eq!((&topology.hashing, &topology.rehash), (&rules(), &None));
    assert_eq!(next(&view, id(1)), None);
}

#[test]
fn a_new_primary_looks_for_itself() {
    let mut view = begun();
    step(&mut view, 1);
    step(&mut view, 2);
    step(&mut view, 1);
    let topology = &mut view.topology.value;
    topology.epoch = Epoch(7);
    topology.shards[0].epoch = Epoch(7);
    assert!(step(&mut view, 2), "the last one does not end the phase");
    assert_eq!(phase(&view), Some(Phase::Moving));
    assert!(step(&mut view, 1), "it carries again");
    assert_eq!(phase(&view), Some(Phase::Settling));
}

#[test]
fn a_change_is_cancelled_in_each_phase() {
    let view = begun();
    let dropped = after(&view, &cancel(&view).expect("it is under way"));
    assert_eq!(dropped.topology.value.rehash, None);

    let mut view = begun();
    step(&mut view, 1);
    step(&mut view, 2);
    let mut back = after(&view, &cancel(&view).expect("it is under way"));
    assert!(cancel(&back).is_err(), "once");
    assert!(back.topology.value.hashing.is_empty(), "what is on its way arrives first");
    assert!(!step(&mut back, 1) && !step(&mut back, 2));
    assert_eq!(back.topology.value.hashing, rules(), "these decide on the way back");
    assert!(step(&mut back, 1) && step(&mut back, 2));
    assert!(!step(&mut back, 1) && !step(&mut back, 2));
    assert_eq!((&back.topology.value.hashing, phase(&back)), (&Vec::new(), None));

    step(&mut view, 1);
    step(&mut view, 2);
    assert_eq!(phase(&view), Some(Phase::Settling));
    let back = after(&view, &cancel(&view).expect("it is under way"));
    assert_eq!(phase(&back), Some(Phase::Opening), "those who take keys back learn it first");
}

#[test]
fn slots_are_exchanged_with_the_rules_and_back() {
    let view = view();
    let slots: BTreeMap<Id, Slots> =
        [(id(1), Slots::from_fn(|slot| slot < 100)), (id(2), Slots::from_fn(|slot| slot >= 100))]
            .into();
    let begun = begin(&view, &[], slots.clone(), 5).expect("it is allowed");
    let mut view = after(&view, &begun);
    for _ in 0..3 {
        step(&mut view, 1);
        step(&mut view, 2);
    }
    assert!(view.topology.value.shards.iter().all(|shard| slots[&shard.id] == shard.slots));
    let lost: BTreeMap<Id, Slots> = [(id(1), Slots::from_fn(|slot| slot < 100))].into();
    assert!(begin(&view, &[], lost, 5).is_err(), "no slot is left over");
}

#[test]
fn one_change_at_a_time() {
    let view = begun();
    assert!(begin(&view, &[], BTreeMap::new(), 5).is_err());
    assert!(allows_moves(&view.topology.value).is_err());
    assert!(begin(&self::view(), &[], BTreeMap::new(), 5).is_err(), "nothing to change");
    assert!(begin(&self::view(), &["(".to_owned()], BTreeMap::new(), 5).is_err());
}

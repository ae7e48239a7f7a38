//! A job step by step, with cancels and changes of primaries in between.

use super::*;
use crate::change::{self, Setting};
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
        rolled_back: None,
        history: Default::default(),
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

fn phases(view: &View) -> Vec<MovePhase> {
    view.topology.value.moves.iter().map(Move::phase).collect()
}

/// What a copy rests on for which this one leads the second shard.
fn rests_on(view: &View, target: Holder, given_up: u32) -> Attempt {
    let epoch = |shard| view.topology.value.shard(id(shard)).expect("it is there").epoch;
    Attempt { source_epoch: epoch(1), target, target_epoch: epoch(2), given_up }
}

fn holder(view: &View, shard: u8) -> Holder {
    view.topology.value.shard(id(shard)).expect("it is there").holder
}

#[test]
fn slots_change_hands_together_and_the_copy_goes_afterwards() {
    let begun = begun(range(0, 99));
    let target = holder(&begun, 2);
    assert_eq!(phases(&begun), [MovePhase::Copying]);
    assert_eq!((tasks(&begun, id(1)).count(), tasks(&begun, id(2)).count()), (1, 0));
    // What another shard owns is hidden, whether a job brings it or not.
    assert_eq!(hidden(&begun.topology.value, id(2)), range(0, 8191));
    assert_eq!(hidden(&begun.topology.value, id(1)), range(8192, 16383));
    assert!(
        hand_over(&begun, id(2), id(7), &rests_on(&begun, target, 0)).is_none(),
        "the source hands over"
    );
    let other = Holder { incarnation: Incarnation(99), ..target };
    assert!(
        hand_over(&begun, id(1), id(7), &rests_on(&begun, other, 0)).is_none(),
        "another has got the copy"
    );
    assert!(finish(&begun, id(7)).is_none(), "it is under way");
    let over = after(
        &begun,
        &hand_over(&begun, id(1), id(7), &rests_on(&begun, target, 0)).expect("it may"),
    );
    let shards = &over.topology.value.shards;
    assert_eq!(
        (&shards[0].slots, &shards[1].slots),
        (&range(100, 8191), &range(8192, 16383).with(&range(0, 99)))
    );
    assert_eq!(phases(&over), [MovePhase::Trimming]);
    assert_eq!(hidden(&over.topology.value, id(1)), range(8192, 16383).with(&range(0, 99)));
    assert_eq!(hidden(&over.topology.value, id(2)), range(100, 8191));
    assert_eq!((tasks(&over, id(1)).count(), tasks(&over, id(2)).count()), (1, 0));
    assert!(cancel(&over, id(1)).is_err(), "the slots have moved");
    let ended = after(&over, &finish(&over, id(7)).expect("it may"));
    assert!(phases(&ended).is_empty() && finish(&ended, id(7)).is_none());
}

#[test]
fn a_cancelled_job_is_over_when_the_target_has_dropped_its_copy() {
    assert_eq!(
        cancel(&view(), id(1)).expect_err("there is none").to_string(),
        "No migrations ongoing"
    );
    let begun = begun(range(0, 99));
    let cancelled = after(&begun, &cancel(&begun, id(1)).expect("there is a job"));
    assert_eq!(phases(&cancelled), [MovePhase::Clearing]);
    assert_eq!(cancelled.topology.value.shards[0].slots, range(0, 8191));
    assert_eq!(hidden(&cancelled.topology.value, id(2)), range(0, 8191));
    assert_eq!((tasks(&cancelled, id(1)).count(), tasks(&cancelled, id(2)).count()), (0, 1));
    assert!(
        hand_over(&cancelled, id(1), id(7), &rests_on(&cancelled, holder(&cancelled, 2), 0))
            .is_none()
    );
    let ended = after(&cancelled, &finish(&cancelled, id(7)).expect("it may"));
    assert!(phases(&ended).is_empty());
}

#[test]
fn a_job_ends_when_its_slots_or_a_shard_are_taken_away() {
    let begun = begun(range(0, 99));
    let mut topology = begun.topology.value.clone();
    topology.shards[0].slots = range(50, 8191);
    topology.close_slots();
    assert_eq!(topology.moves[0].phase(), MovePhase::Clearing, "it was to move all of them");
    let mut topology = begun.topology.value.clone();
    topology.shards.remove(0);
    topology.close_slots();
    assert_eq!(topology.moves[0].phase(), MovePhase::Clearing);
    let mut topology = begun.topology.value;
    topology.shards.remove(1);
    topology.close_slots();
    assert!(topology.moves.is_empty());
}

#[test]
fn a_target_asks_a_source_for_its_slots() {
    let view = view();
    let refusal =
        |slots| import(&view, id(1), &slots, id(7), 5).expect_err("it is refused").to_string();
    assert_eq!(refusal(range(0, 1)), "this node is already the owner of slot 0");
    let begun = import(&view, id(1), &range(9000, 9010), id(7), 5).expect("it may");
    let begun = after(&view, &begun);
    assert_eq!(tasks(&begun, id(2)).map(|job| job.id).collect::<Vec<_>>(), [id(7)]);
    let again =
        import(&begun, id(1), &range(9010, 9011), id(8), 5).expect_err("it moves").to_string();
    assert_eq!(again, "slot 9010 is already being migrated");
    assert_eq!(cancel_named(&begun, id(1), &[id(6)]).expect("it leads"), None);
    let cancelled = cancel_named(&begun, id(1), &[id(7)]).expect("it leads").expect("one ends");
    assert_eq!(phases(&after(&begun, &cancelled)), [MovePhase::Clearing]);
}

#[test]
fn what_cannot_move_is_refused() {
    let refusal = |view: &View, me, slots, to| {
        begin(view, id(me), &[(slots, id(to))], 5, || id(7)).expect_err("it is refused").to_string()
    };
    let first = view();
    assert_eq!(refusal(&first, 1, range(0, 1), 3), format!("Unknown node name: {}", id(3)));
    assert_eq!(refusal(&first, 1, range(0, 1), 1), "Target node can not be this node.");
    assert_eq!(refusal(&first, 1, range(8191, 8192), 2), "Slots are not served by this node.");
    let busy = begun(range(0, 9));
    assert!(refusal(&busy, 1, range(9, 10), 2).contains("already migrating"));
}

#[test]
fn a_slot_that_is_still_dropped_is_not_given_back() {
    let begun = begun(range(0, 99));
    let over =
        hand_over(&begun, id(1), id(7), &rests_on(&begun, holder(&begun, 2), 0)).expect("it may");
    let over = after(&begun, &over);
    let one = |view: &View, me, setting| change::set_slot(view, id(me), 5, setting, false);
    assert!(one(&over, 1, Setting::Importing(id(2))).is_err());
    let migrating = one(&over, 2, Setting::Migrating(id(1))).expect("it may").expect("it is new");
    assert!(one(&after(&over, &migrating), 2, Setting::Node(id(1))).is_err());
    let free = after(&over, &change::delete_slots(&over, &range(0, 99)).expect("they are owned"));
    assert!(change::add_slots(&free, id(1), &range(5, 5)).is_err());
    assert!(change::add_slots(&free, id(2), &range(5, 5)).is_ok());
    let ended = after(&free, &finish(&free, id(7)).expect("it may"));
    assert!(change::add_slots(&ended, id(1), &range(5, 5)).is_ok());
}

#[test]
fn a_slot_moves_by_a_job_or_key_by_key() {
    let begun = begun(range(0, 99));
    let set = |view: &View, me, setting| change::set_slot(view, id(me), 5, setting, false);
    let settings =
        [(2, Setting::Importing(id(1))), (1, Setting::Migrating(id(2))), (1, Setting::Node(id(2)))];
    for (me, setting) in settings {
        assert!(set(&begun, me, setting).is_err(), "{setting:?}");
        assert!(set(&view(), me, setting).is_ok(), "{setting:?}");
    }
    let importing = set(&view(), 2, Setting::Importing(id(1))).expect("it may").expect("it is new");
    let open = after(&view(), &importing);
    assert!(begin(&open, id(1), &[(range(0, 9), id(2))], 5, || id(7)).is_err());
    assert!(import(&open, id(2), &range(0, 9), id(7), 5).is_err());
}

#[test]
fn a_slot_that_is_said_to_stay_moves_no_more() {
    let set = |view: &View, me, setting, has_keys| {
        change::set_slot(view, id(me), 5, setting, has_keys).expect("it may")
    };
    let mut open = view();
    for (me, setting) in [(2, Setting::Importing(id(1))), (1, Setting::Migrating(id(2)))] {
        open = after(&open, &set(&open, me, setting, false).expect("it is new"));
    }
    let moves = |view: &View| {
        let of =
            |shard: &Shard| shard.migrating.contains_key(&5) || shard.importing.contains_key(&5);
        view.topology.value.shards.iter().filter(|shard| of(shard)).count()
    };
    assert_eq!(moves(&open), 2);
    let stay = Setting::Node(id(1));
    assert_eq!(set(&open, 1, stay, true), None, "as in Redis, keys keep the move open");
    let mut closed = open;
    for me in [1, 2] {
        closed = after(&closed, &set(&closed, me, stay, false).expect("it is new"));
    }
    assert_eq!(moves(&closed), 0);
    assert_eq!(set(&closed, 1, stay, false), None);
}

#[test]
fn keys_of_slots_that_neither_setslot_nor_a_job_brings_are_stale() {
    let stale_of = |view: &View, shard| stale(&view.topology.value, id(shard));
    assert_eq!(stale_of(&view(), 2), range(0, 8191));
    let begun = begun(range(0, 99));
    assert_eq!((stale_of(&begun, 2), stale_of(&begun, 1)), (range(100, 8191), range(8192, 16383)));
    let over =
        hand_over(&begun, id(1), id(7), &rests_on(&begun, holder(&begun, 2), 0)).expect("it may");
    let over = after(&begun, &over);
    assert_eq!(stale_of(&over, 1), range(8192, 16383), "the job drops what has left");
    let ended = after(&over, &finish(&over, id(7)).expect("it may"));
    assert_eq!(stale_of(&ended, 1), range(8192, 16383).with(&range(0, 99)));
    // Keys that SETSLOT brings are shown, and kept.
    let importing = change::set_slot(&view(), id(2), 5, Setting::Importing(id(1)), false);
    let open = after(&view(), &importing.expect("it may").expect("it is new"));
    assert!(!stale_of(&open, 2).contains(5) && !hidden(&open.topology.value, id(2)).contains(5));
    // So are those of slots without an owner, as in Redis.
    let free = change::delete_slots(&view(), &range(0, 9)).expect("they are owned");
    assert_eq!(stale_of(&after(&view(), &free), 2), range(10, 8191));
    // Rules say by a key's name where it is.
    let mut ruled = view();
    ruled.topology.value.hashing = vec!["(?<tag>.*)".into()];
    assert!(stale_of(&ruled, 2).is_empty() && hidden(&ruled.topology.value, id(2)).is_empty());
}

#[test]
fn what_was_about_to_be_handed_over_is_not_when_the_target_has_given_it_up() {
    let begun = begun(range(0, 99));
    let target = holder(&begun, 2);
    assert!(give_up(&begun, id(1), id(7)).is_none(), "the target does");
    let given_up = after(&begun, &give_up(&begun, id(2), id(7)).expect("it is copied"));
    assert!(hand_over(&given_up, id(1), id(7), &rests_on(&given_up, target, 0)).is_none());
    assert!(
        hand_over(&given_up, id(1), id(7), &rests_on(&given_up, target, 1)).is_some(),
        "a later copy"
    );
}

#[test]
fn jobs_are_done_in_the_order_of_their_priority() {
    let mut names = [id(7), id(8), id(9)].into_iter();
    let jobs = [0, 10, 20].map(|first| (range(first, first + 9), id(2)));
    let begun = begin(&view(), id(1), &jobs, 5, || names.next().expect("a name"));
    let begun = after(&view(), &begun.expect("it is allowed"));
    let order = |view: &View| tasks(view, id(1)).map(|job| job.id).collect::<Vec<_>>();
    assert_eq!(order(&begun), [id(7), id(8), id(9)]);
    assert_eq!(pace(&begun, id(2), &[id(6)], (Some(5), None)).expect("it leads"), None);
    let paced = pace(&begun, id(2), &[id(9)], (Some(5), Some(1))).expect("it leads");
    let paced = after(&begun, &paced.expect("there is one"));
    assert_eq!(order(&paced), [id(9), id(7), id(8)]);
    assert_eq!(tasks(&paced, id(1)).map(|job| job.rate).collect::<Vec<_>>(), [5, 0, 0]);
    let again = pace(&paced, id(1), &[], (None, Some(0))).expect("it leads");
    assert_eq!(order(&after(&paced, &again.expect("there are some"))), [id(7), id(8), id(9)]);
}

//! Operators' requests, against a coordinator that keeps keys and revisions.

use super::*;
use crate::coordinator::{Item, Range};
use crate::id::Incarnation;
use crate::promotion;
use crate::topology::{Address, Holder};
use std::collections::BTreeMap;

/// Keys with their values and revisions.
#[derive(Default)]
struct Store {
    items: BTreeMap<String, (Vec<u8>, Revision)>,
    revision: Revision,
}

impl Store {
    /// Makes a transaction. Returns whether its conditions held.
    fn commit(&mut self, transaction: &Transaction) -> bool {
        let revision = |key: &str| self.items.get(key).map_or(0, |item| item.1);
        if !transaction.compares.iter().all(|it| revision(&it.key) == it.revision) {
            return false;
        }
        self.revision += 1;
        for change in transaction.changes.clone() {
            match change {
                Change::Put { key, value, .. } => self.items.insert(key, (value, self.revision)),
                Change::Delete { key } => self.items.remove(&key),
            };
        }
        true
    }

    fn home(&self, copy: Id) -> (Id, Revision) {
        let (value, revision) = &self.items[&keys().home(copy)];
        (serde_json::from_slice(value).expect("it is an id"), *revision)
    }

    fn view(&self, copy: Id) -> View {
        let database = self.home(copy).0;
        let prefix = keys().database(database);
        let items = self.items.iter().filter(|(key, _)| key.starts_with(&prefix));
        let item = |(key, (value, revision)): (&String, &(Vec<u8>, Revision))| Item {
            key: key.clone(),
            value: value.clone(),
            revision: *revision,
        };
        let range = Range { items: items.map(item).collect(), revision: self.revision };
        View::decode(&keys(), database, &range).expect("it is valid").expect("it is there")
    }

    fn start(&mut self, copy: u8) {
        let address =
            Address { host: "10.0.0.1".into(), port: 7000 + u16::from(copy), ..Address::default() };
        let replica = Replica { id: id(copy), address, member: None, is_never_promoted: false };
        let alive =
            Alive { incarnation: Incarnation(copy.into()), lease: copy.into(), bus_port: 0 };
        assert!(self.commit(&found(&keys(), id(copy), replica, alive)));
    }

    /// Does what an operator asks. Returns the refusal.
    fn ask(&mut self, transaction: Result<Transaction, Refused>) -> Result<(), String> {
        let transaction = transaction.map_err(|refused| refused.to_string())?;
        assert!(self.commit(&transaction), "nothing changed meanwhile");
        Ok(())
    }

    fn meet(&mut self, copy: u8, other: u8) -> Result<(), String> {
        let (mine, theirs) = (self.view(id(copy)), self.view(id(other)));
        match meet(&mine, &theirs, |joining| Ok(self.home(joining).1))
            .map_err(|it| it.to_string())?
        {
            Some(transaction) => self.ask(Ok(transaction)),
            None => Ok(()),
        }
    }

    fn add(&mut self, copy: u8, first: u16, last: u16) -> Result<(), String> {
        let slots = Slots::from_fn(|slot| (first..=last).contains(&slot));
        self.ask(add_slots(&self.view(id(copy)), id(copy), &slots))
    }

    fn replicate(&mut self, copy: u8, primary: u8) -> Result<(), String> {
        self.ask(replicate(&self.view(id(copy)), id(copy), id(primary), false))
    }
}

fn keys() -> Keys {
    Keys::new("test")
}

fn id(copy: u8) -> Id {
    Id::new([copy; 20])
}

/// Six servers become three primaries with a replica each, in the order of `redis-cli --cluster
/// create`.
fn six() -> Store {
    let mut store = Store::default();
    (1..=6).for_each(|copy| store.start(copy));
    for (copy, first, last) in [(1, 0, 5460), (2, 5461, 10922), (3, 10923, 16383)] {
        store.add(copy, first, last).expect("the slots are free");
    }
    for copy in 1..=6 {
        let view = store.view(id(copy));
        store.ask(set_config_epoch(&view, id(copy), Epoch(copy.into()))).expect("it is alone");
    }
    (2..=6).for_each(|copy| store.meet(copy, 1).expect("it is alone"));
    for (copy, primary) in [(4, 1), (5, 2), (6, 3)] {
        store.replicate(copy, primary).expect("it is empty");
    }
    store
}

#[test]
fn six_servers_become_a_cluster() {
    let store = six();
    let view = store.view(id(5));
    let topology = &view.topology.value;
    assert_eq!(topology.check(), Ok(()));
    assert_eq!((topology.shards.len(), topology.epoch), (3, Epoch(6)));
    assert!((0..COUNT).all(|slot| topology.shard_with(slot).is_some()));
    assert_eq!(topology.shard_of(id(5)).map(|shard| shard.holder.id), Some(id(2)));
    let epochs: Vec<u64> = topology.shards.iter().map(|shard| shard.epoch.0).collect();
    assert_eq!(epochs, [1, 2, 3]);
    assert_eq!(view.alive.len(), 6, "leases moved with their copies");
    let databases = store.items.keys().filter(|key| key.ends_with("topology"));
    assert_eq!(databases.count(), 1);
}

#[test]
fn slots_have_one_shard() {
    let mut store = six();
    assert_eq!(store.add(2, 100, 200), Err("Slot 100 is already busy".into()));
    let some = Slots::from_fn(|slot| slot == 5460 || slot == 5461);
    store.ask(delete_slots(&store.view(id(1)), &some)).expect("they are owned");
    let again = store.ask(delete_slots(&store.view(id(1)), &some));
    assert_eq!(again, Err("Slot 5460 is already unassigned".into()));
    store.add(3, 5460, 5461).expect("they are free");
    assert_eq!(
        store.view(id(3)).topology.value.shards[2].slots.ranges(),
        [(5460, 5461), (10923, 16383)]
    );
    assert!(store.add(4, 0, 0).expect_err("it is busy").contains("busy"));
}

#[test]
fn words_become_slots() {
    let words = |words: &[&str]| {
        let words: Vec<&[u8]> = words.iter().map(|word| word.as_bytes()).collect();
        read_slots(&words).map(|slots| slots.len()).map_err(|refused| refused.to_string())
    };
    assert_eq!(words(&["0", "16383", "7"]), Ok(3));
    for wrong in ["16384", "-1", "x", "", "1.0"] {
        assert_eq!(words(&[wrong]), Err("Invalid or out of range slot".into()), "{wrong}");
    }
    assert_eq!(words(&["5", "6", "5"]), Err("Slot 5 specified multiple times".into()));
    let ranges = read_ranges(&[(b"3", b"1")]).map_err(|refused| refused.to_string());
    assert_eq!(ranges, Err("start slot number 3 is greater than end slot number 1".into()));
}

#[test]
fn meet_joins_databases_whose_slots_differ() {
    let mut store = six();
    store.start(7);
    store.start(8);
    store.add(7, 0, 0).expect("it is alone, so the slot is free");
    assert_eq!(store.meet(7, 1), Err("Slot 0 is already busy".into()));
    store.meet(8, 7).expect("both are alone");
    store.meet(8, 7).expect("they are one already");
    assert_eq!(store.meet(8, 1), Err("Slot 0 is already busy".into()));
    // The cluster joins the single copy as well as the other way round.
    store.start(9);
    store.meet(1, 9).expect("one of them is alone");
    assert_eq!(store.home(id(9)).0, store.home(id(1)).0);
    // Shards with replicas join as a whole, as some tools make their clusters.
    let mut store = Store::default();
    (1..=5).for_each(|copy| store.start(copy));
    for (primary, replica, first, last) in [(1, 2, 0, 99), (3, 4, 100, 16383)] {
        store.add(primary, first, last).expect("the slots are free");
        store.meet(replica, primary).expect("it is alone");
        store.replicate(replica, primary).expect("it is empty");
    }
    store.ask(Ok(promise_quorum(&store.view(id(3)), 2))).expect("nothing else is done");
    store.meet(1, 4).expect("their slots differ");
    let view = store.view(id(2));
    let topology = &view.topology.value;
    assert_eq!(topology.check(), Ok(()));
    assert_eq!((topology.shards.len(), topology.copies().count(), view.alive.len()), (2, 4, 4));
    assert_eq!((view.database, topology.quorum), (store.view(id(4)).database, 2));
    assert_ne!(topology.shards[0].epoch, topology.shards[1].epoch);
    assert!((1..=4).all(|copy| store.home(id(copy)).0 == store.home(id(1)).0));
}

#[test]
fn a_slot_is_given_up_by_its_owner_only() {
    let store = six();
    let view = store.view(id(1));
    let some = |slots: &[u16]| Slots::from_fn(|slot| slots.contains(&slot));
    let delete = |view: &View, me, slots: &[u16], given_up: &[u16]| {
        let before = (&some(given_up), &Slots::default());
        delete_own_slots(view, id(me), &some(slots), before).map_err(|why| why.to_string())
    };
    for me in [2, 4, 5] {
        let why = delete(&view, me, &[0], &[]).expect_err("it is no owner");
        assert!(why.starts_with(&format!("Slot 0 is owned by node {}", id(1))), "{why}");
    }
    assert!(delete(&view, 1, &[0, 5461], &[]).is_err(), "one of them is another's");
    let had = (&Slots::default(), &some(&[0]));
    let taken = delete_own_slots(&view, id(2), &some(&[0]), had);
    assert_eq!(
        taken.map_err(|why| why.to_string()),
        Ok(None),
        "another has taken it from this one"
    );
    let mut store = store;
    let asked =
        delete(&view, 1, &[0], &[]).map(|it| it.expect("it is owned")).map_err(Refused::Wrong);
    store.ask(asked).expect("nothing else is done");
    let view = store.view(id(1));
    assert!(view.topology.value.shard_with(0).is_none());
    assert_eq!(delete(&view, 1, &[0], &[0]), Err("Slot 0 is already unassigned".into()));
    assert_eq!(delete(&view, 2, &[0], &[]), Ok(None), "a tool sends it to all nodes");
}

#[test]
fn a_copy_that_is_forgotten_or_reset_is_alone_again() {
    let mut store = six();
    let forget_by = |store: &mut Store, me, copy| {
        let home = store.items.get(&keys().home(id(copy))).map_or(0, |item| item.1);
        store.ask(forget(&store.view(id(me)), id(me), id(copy), id(100 + copy), home))
    };
    assert!(forget_by(&mut store, 1, 9).expect_err("it is unknown").starts_with("Unknown node"));
    assert!(forget_by(&mut store, 1, 1).expect_err("it is itself").starts_with("I tried hard"));
    assert_eq!(forget_by(&mut store, 4, 1), Err("Can't forget my master!".into()));
    assert!(forget_by(&mut store, 4, 2).expect_err("it leads").contains("leads a shard"));
    assert_eq!(forget_by(&mut store, 1, 4), Ok(()));
    let view = store.view(id(4));
    assert_eq!(view.topology.value.shards.len(), 1);
    assert!(view.is_alive(Holder { id: id(4), incarnation: Incarnation(4) }));
    assert_eq!(store.view(id(1)).topology.value.copies().count(), 5);

    let reset_of = |store: &mut Store, me, has_keys| {
        let home = store.home(id(me)).1;
        store.ask(reset(&store.view(id(me)), id(me), id(200 + me), home, has_keys))
    };
    assert!(reset_of(&mut store, 2, false).expect_err("it has a replica").contains("replicas"));
    assert_eq!(reset_of(&mut store, 5, true), Ok(()), "a replica's keys are its primary's");
    let refusal = "CLUSTER RESET can't be called with master nodes containing keys";
    assert_eq!(reset_of(&mut store, 2, true), Err(refusal.into()));
    assert_eq!(reset_of(&mut store, 2, false), Ok(()));
    assert_eq!(store.view(id(1)).topology.value.shard_with(5461), None, "its slots are free");
}

#[test]
fn replicas_are_made_of_empty_servers() {
    let mut store = six();
    assert!(store.replicate(1, 9).expect_err("it is unknown").starts_with("Unknown node"));
    assert_eq!(store.replicate(1, 1), Err("Can't replicate myself".into()));
    let refusal = "I can only replicate a master, not a replica.";
    assert_eq!(store.replicate(1, 5), Err(refusal.into()));
    let refusal = "To set a master the node must be empty and without assigned slots.";
    assert_eq!(store.replicate(1, 2), Err(refusal.into()));
    store.replicate(4, 2).expect("a replica may change its primary");
    let view = store.view(id(4));
    assert_eq!(view.topology.value.shard_of(id(2)).map(|shard| shard.copies.len()), Some(3));
    let epoch = set_config_epoch(&view, id(1), Epoch(9)).map_err(|it| it.to_string());
    assert!(epoch.expect_err("it knows others").contains("does not know any other node"));
}

#[test]
fn a_replica_of_no_one_leads_an_empty_shard() {
    let mut store = six();
    let view = store.view(id(1));
    assert_eq!(stand_alone(&view, id(1), id(77)), Ok(None), "it leads already");
    let before = view.topology.value.shard_of(id(4)).expect("it is a replica").clone();
    let alone = stand_alone(&view, id(4), id(77)).map(|it| it.expect("it is a replica"));
    store.ask(alone).expect("it is possible");
    let topology = store.view(id(4)).topology.value;
    let shard = topology.shard_of(id(4)).expect("it is there");
    assert_eq!((shard.id, shard.holder.id, shard.copies.len()), (id(77), id(4), 1));
    assert!(shard.slots.is_empty() && shard.epoch > before.epoch);
    let left = topology.shard(before.id).expect("it is there");
    assert_eq!((left.copies.len(), &left.slots), (before.copies.len() - 1, &before.slots));
}

/// A member that leaves may be one of those that hold a write: as many have to be fenced as before.
#[test]
fn who_leaves_takes_no_fence_along() {
    let mut store = six();
    let mut topology = store.view(id(1)).topology.value.clone();
    topology.quorum = 2;
    let replace = store.view(id(1)).replace(&topology);
    assert!(store.commit(&replace));
    let fences = |store: &Store| {
        let view = store.view(id(1));
        let shard = view.topology.value.shard_of(id(1)).expect("it is there").clone();
        (shard.fence, shard.members().count())
    };
    for copy in [4, 5] {
        store.replicate(copy, 1).expect("it is empty");
        let view = store.view(id(copy));
        let shard = view.topology.value.shard_of(id(copy)).expect("it is there").clone();
        let holder = Holder { id: id(copy), incarnation: Incarnation(copy.into()) };
        assert!(store.commit(&promotion::enrol(&view, &shard, holder)));
    }
    assert_eq!(fences(&store), (3, 3));
    let settle = |store: &mut Store, holding| {
        let view = store.view(id(1));
        let shard = view.topology.value.shard_of(id(1)).expect("it is there").clone();
        promotion::settle(&view, &shard, holding).is_some_and(|it| store.commit(&it))
    };
    assert!(!settle(&mut store, 1), "only the primary has everything");
    assert!(settle(&mut store, 2));
    assert_eq!(fences(&store), (2, 3));
    assert!(!settle(&mut store, 3), "writes need only two of three");
    store.replicate(5, 2).expect("a replica may change its primary");
    assert_eq!(fences(&store), (2, 2));
    assert!(settle(&mut store, 2));
    assert_eq!(fences(&store), (1, 2));
}

#[test]
fn a_switch_is_asked_for_by_a_replica_that_is_in_step() {
    let mut store = six();
    let ask = |store: &mut Store, copy: u8| {
        let view = store.view(id(copy));
        store.ask(ask_switch(&view, id(copy)))
    };
    assert_eq!(ask(&mut store, 1).unwrap_err(), "You should send CLUSTER FAILOVER to a replica");
    let early = ask(&mut store, 4).unwrap_err();
    assert!(early.starts_with("This replica has not synchronised"), "{early}");
    let view = store.view(id(4));
    let shard = view.topology.value.shard_of(id(4)).expect("it has one");
    let holder = Holder { id: id(4), incarnation: Incarnation(4) };
    assert!(store.commit(&promotion::enrol(&view, shard, holder)));
    ask(&mut store, 4).expect("it is in step");
    let view = store.view(id(4));
    let shard = view.topology.value.shard_of(id(4)).expect("it has one");
    let asked = view.switches.get(&shard.id).map(|at| at.value);
    assert_eq!(asked, Some(Switch { epoch: shard.epoch, to: id(4), is_for_any: false }));
}

#[test]
fn a_quorum_is_only_raised_and_raises_the_fences_with_it() {
    let mut store = six();
    for copy in [5, 6] {
        store.replicate(copy, 1).expect("a replica may change its primary");
    }
    for copy in [4, 5, 6] {
        let view = store.view(id(copy));
        let shard = view.topology.value.shard_of(id(copy)).expect("it has one");
        let holder = Holder { id: id(copy), incarnation: Incarnation(copy.into()) };
        assert!(store.commit(&promotion::enrol(&view, shard, holder)));
    }
    let promised = |store: &mut Store, quorum| {
        let transaction = promise_quorum(&store.view(id(1)), quorum);
        assert!(store.commit(&transaction));
        let topology = store.view(id(1)).topology.value;
        (topology.quorum, topology.shard_of(id(1)).expect("it has one").fence)
    };
    let before = store.view(id(1)).topology.value.shard_of(id(1)).expect("it has one").fence;
    assert_eq!(before, 1);
    assert_eq!(promised(&mut store, 2), (2, 3), "three of four: one of them has the write");
    assert_eq!(promised(&mut store, 3), (3, 3), "what two have confirmed stays safe");
    assert_eq!(promised(&mut store, 2), (3, 3), "another primary may count on three");
}

#[test]
fn a_shard_with_replicas_has_an_epoch_that_acknowledgements_can_name() {
    let mut store = Store::default();
    (1..=2).for_each(|copy| store.start(copy));
    store.meet(2, 1).expect("it is alone");
    store.replicate(2, 1).expect("it is empty");
    let topology = store.view(id(1)).topology.value;
    assert_eq!((topology.check(), topology.shards[0].epoch), (Ok(()), Epoch(1)));
}

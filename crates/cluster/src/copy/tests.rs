//! What a copy does in moments that the simulation meets seldom.

use super::*;
use crate::change;
use crate::coordinator::Change;
use crate::slots::Slots;
use crate::topology::{Address, Replica, Topology};
use crate::view::{At, Fence, Keys, Switch};

const ME: Id = Id::new([2; 20]);
const OTHER: Id = Id::new([1; 20]);
const MINE: Incarnation = Incarnation(2);
const EPOCH: Epoch = Epoch(5);
const LEASE: LeaseId = 7;

const fn ms(ms: u64) -> Moment {
    Moment::from_millis(ms)
}

fn settings() -> Settings {
    let (grace, comeback) = (ms(500), ms(8000));
    Settings { ttl: ms(4000), retry: ms(200), grace, comeback, promise: ms(2000), switch: ms(300) }
}

/// The other copy as the primary.
const PRIMARY: Holder = Holder { id: OTHER, incarnation: Incarnation(1) };

/// A shard with two members, led by `holder`; both have leases.
fn view(holder: Id) -> View {
    let copy = |id: Id, incarnation: u64| {
        let (host, hostname) = ("10.0.0.1".to_owned(), String::new());
        let address = Address { host, port: 7000, hostname, ..Address::default() };
        let member = Some(Incarnation(incarnation));
        Replica { id, address, member, is_never_promoted: false }
    };
    let incarnation = Incarnation(if holder == ME { 2 } else { 1 });
    let mut shard = Shard::new(OTHER, copy(OTHER, 1).address, Incarnation(1));
    shard.epoch = EPOCH;
    shard.slots = Slots::from_fn(|_| true);
    shard.holder = Holder { id: holder, incarnation };
    shard.copies = vec![copy(OTHER, 1), copy(ME, 2)];
    let topology = Topology { epoch: EPOCH, ..Topology::new(shard) };
    let alive = |id: Id, incarnation: Incarnation, lease| {
        (id, At { value: Alive { incarnation, lease, bus_port: 0 }, revision: 3 })
    };
    View {
        keys: Keys::new("test"),
        database: OTHER,
        revision: 9,
        topology: At { value: topology, revision: 8 },
        alive: [alive(OTHER, Incarnation(1), 6), alive(ME, MINE, LEASE)].into(),
        fences: BTreeMap::new(),
        switches: BTreeMap::new(),
        rolled_back: None,
        history: Default::default(),
    }
}

fn facts() -> Facts {
    let position = Position { epoch: EPOCH, offset: 10 };
    let linked = vec![OTHER];
    Facts { position, is_whole: true, is_listed: true, linked, ..Facts::default() }
}

/// A copy that has a lease, and has read `view`.
fn started(view: View) -> Copy {
    let mut copy = Copy::new(ME, MINE, settings());
    assert_eq!(
        copy.step(ms(0), &facts()),
        [Action::Lease(LeaseCall::Grant(ms(4000))), Action::Read]
    );
    copy.lease_replied(ms(1), ms(0), LeaseReply::Held { id: LEASE, ttl: ms(4000) });
    copy.read(ms(1), ms(0), Some(view));
    copy
}

/// Reads a later view, as the copy asks for it.
fn read(copy: &mut Copy, now: Moment, mut view: View) {
    view.revision = copy.view().map_or(0, |view| view.revision) + 1;
    copy.changed(now);
    copy.step(now, &facts());
    copy.read(now + ms(2), now + ms(1), Some(view));
}

fn transaction(actions: &[Action]) -> Option<&Transaction> {
    actions.iter().find_map(|action| match action {
        Action::Commit(transaction) => Some(transaction),
        _ => None,
    })
}

/// The fence of a copy that has kept its data.
fn kept(incarnation: Incarnation, offset: u64) -> Fence {
    let position = Position { epoch: EPOCH, offset };
    Fence { epoch: EPOCH, incarnation, position, has_keys: true, restored: None }
}

fn without_primary() -> View {
    let mut view = view(OTHER);
    view.alive.remove(&OTHER);
    view
}

#[test]
fn a_copy_follows_the_primary_of_the_view() {
    let mut copy = started(view(OTHER));
    let holder = Holder { id: OTHER, incarnation: Incarnation(1) };
    assert_eq!(copy.step(ms(2), &facts()), [Action::Follow(holder, EPOCH)]);
    assert!(copy.accepts(EPOCH) && copy.accepts(EPOCH.next()) && !copy.accepts(Epoch(4)));
}

#[test]
fn the_first_role_waits_for_the_registration() {
    let mut unregistered = view(OTHER);
    unregistered.alive.remove(&ME);
    let mut copy = started(unregistered);
    let actions = copy.step(ms(2), &facts());
    assert!(transaction(&actions).is_some() && actions.len() == 1, "{actions:?}");
    assert!(!copy.accepts(EPOCH));
}

/// What a copy has refused it refuses after a restart, too: its data still are the same.
#[test]
fn a_fence_outlives_the_process() {
    let mut fenced = view(OTHER);
    let fence = kept(MINE, 10);
    fenced.fences.insert((OTHER, ME), At { value: fence, revision: 9 });
    let mut copy = started(fenced);
    assert_eq!(copy.step(ms(2), &facts()), []);
    assert!(!copy.accepts(EPOCH) && copy.accepts(EPOCH.next()));
    assert_eq!(copy.promise(ms(3), EPOCH, PRIMARY), None);
}

/// It says again what it refuses when the coordinator has forgotten that, although this process has
/// not frozen yet.
#[test]
fn a_fence_that_is_forgotten_is_written_again() {
    let mut fenced = view(OTHER);
    fenced.fences.insert((OTHER, ME), At { value: kept(MINE, 10), revision: 9 });
    let mut copy = started(fenced);
    copy.step(ms(2), &facts());
    read(&mut copy, ms(10), view(OTHER));
    let actions = copy.step(ms(13), &facts());
    assert!(actions.iter().any(is_freeze) && transaction(&actions).is_none(), "{actions:?}");
    let frozen = Facts { frozen: Some(EPOCH), ..facts() };
    assert!(transaction(&copy.step(ms(14), &frozen)).is_some());
}

#[test]
fn a_copy_without_a_primary_freezes_before_it_fences() {
    let mut copy = started(without_primary());
    // It may have promised something before it was restarted.
    let actions = copy.step(ms(2), &facts());
    assert!(!actions.iter().any(is_freeze) && copy.accepts(EPOCH), "{actions:?}");
    read(&mut copy, ms(2001), without_primary());
    let actions = copy.step(ms(2002), &facts());
    assert!(actions.contains(&Action::Freeze(EPOCH)) && transaction(&actions).is_none());
    assert!(!copy.accepts(EPOCH));
    let frozen = Facts { frozen: Some(EPOCH), ..facts() };
    let actions = copy.step(ms(2003), &frozen);
    let fence = transaction(&actions).expect("it fences");
    let compared: Vec<u64> = fence.compares.iter().map(|compare| compare.revision).collect();
    assert_eq!(compared, [8, 3], "the topology, and its own lease and data");
    // A copy that synchronises has nothing to say.
    let mut copy = started(without_primary());
    assert_eq!(copy.step(ms(2), &Facts { is_whole: false, ..facts() }).len(), 1);
}

#[test]
fn a_promise_is_kept() {
    let mut copy = started(view(OTHER));
    copy.step(ms(2), &facts());
    assert_eq!(copy.promise(ms(10), EPOCH, PRIMARY), Some(ms(2000)));
    read(&mut copy, ms(20), without_primary());
    assert_eq!(copy.step(ms(2009), &facts()).iter().filter(|it| is_freeze(it)).count(), 0);
    read(&mut copy, ms(2010), without_primary());
    let actions = copy.step(ms(2013), &facts());
    assert!(actions.iter().any(is_freeze), "{actions:?}");
    assert_eq!(copy.promise(ms(2014), EPOCH, PRIMARY), None, "it has stopped following");
}

/// The primary leads on in an epoch that one of the two has not read yet.
#[test]
fn a_promise_is_to_the_primary_whatever_its_epoch() {
    let mut copy = started(view(OTHER));
    copy.step(ms(2), &facts());
    assert_eq!(copy.promise(ms(10), EPOCH.next(), PRIMARY), Some(ms(2000)));
    assert_eq!(copy.promise(ms(10), Epoch(EPOCH.0 - 1), PRIMARY), Some(ms(2000)));
    let others = [Holder { id: ME, ..PRIMARY }, Holder { incarnation: Incarnation(7), ..PRIMARY }];
    for other in others {
        assert_eq!(copy.promise(ms(10), EPOCH, other), None);
    }
}

/// The coordinator has gone between the reply to the copy's read and the one to the primary's
/// request: the primary asks in the epoch that the copy has fenced.
#[test]
fn a_copy_that_has_fenced_the_epoch_before_promises_in_the_next_one() {
    let mut fenced = view(OTHER);
    let fence = kept(MINE, 10);
    fenced.fences.insert((OTHER, ME), At { value: fence, revision: 9 });
    let mut copy = started(fenced.clone());
    copy.step(ms(2), &facts());
    assert_eq!(copy.promise(ms(3), EPOCH, PRIMARY), None);
    fenced.topology.value.shards[0].epoch = EPOCH.next();
    read(&mut copy, ms(10), fenced);
    copy.step(ms(11), &facts());
    assert_eq!(copy.promise(ms(12), EPOCH, PRIMARY), Some(ms(2000)));
}

/// The reply may be lost, and the transaction made.
#[test]
fn a_primary_that_lowers_the_fence_counts_with_the_lower_one() {
    let mut three = view(ME);
    let shard = &mut three.topology.value.shards[0];
    let mut third = shard.copies[0].clone();
    third.id = Id::new([9; 20]);
    shard.copies.push(third);
    shard.fence = 3;
    three.topology.value.quorum = 2;
    let mut copy = started(three);
    // Two others are less than three fences.
    copy.step(ms(2), &Facts { holding: 1, ..facts() });
    assert!(copy.is_alone(ms(9000)));
    let actions = copy.step(ms(3), &Facts { holding: 3, ..facts() });
    assert!(transaction(&actions).is_some());
    copy.failed(ms(1000), Call::Commit);
    assert!(copy.is_alone(ms(3999)) && !copy.is_alone(ms(4000)));
}

/// A copy that has been silent for long would be promoted with old data. With a quorum it would not.
#[test]
fn a_primary_dismisses_copies_that_are_silent_where_no_quorum_is_promised() {
    let mut view = view(ME);
    let shard = &mut view.topology.value.shards[0];
    assert!(shard.members().any(|copy| copy.id == OTHER));
    view.topology.value.quorum = 0;
    let silent = Facts { silent: vec![ME, OTHER], ..facts() };
    let written = |view: View| {
        let mut copy = started(view);
        let actions = copy.step(ms(2), &silent);
        transaction(&actions).cloned()
    };
    let dismissal = written(view.clone()).expect("one is silent");
    let Some(Change::Put { value, .. }) = dismissal.changes.first() else {
        panic!("{dismissal:?}")
    };
    let topology = Topology::decode(value).expect("it is valid");
    let members: Vec<Id> = topology.shards[0].members().map(|copy| copy.id).collect();
    assert!(members.contains(&ME) && !members.contains(&OTHER), "{members:?}");
    view.topology.value.quorum = 2;
    assert_eq!(written(view), None);
}

fn is_freeze(action: &Action) -> bool {
    matches!(action, Action::Freeze(_))
}

#[test]
fn a_copy_is_enrolled_when_it_is_in_step_and_listed() {
    let mut new = view(OTHER);
    new.topology.value.shards[0].copies[1].member = None;
    let is_enrolled = |facts: Facts| {
        let mut copy = started(new.clone());
        transaction(&copy.step(ms(2), &facts)).is_some()
    };
    assert!(is_enrolled(facts()));
    assert!(!is_enrolled(Facts { is_listed: false, ..facts() }));
    assert!(!is_enrolled(Facts { is_whole: false, ..facts() }));
    let behind = Position { epoch: Epoch(4), offset: 99 };
    assert!(!is_enrolled(Facts { position: behind, ..facts() }));
}

#[test]
fn a_primary_is_alone_by_its_lease_or_by_promises() {
    let mut copy = started(view(ME));
    assert_eq!(copy.step(ms(2), &facts()), [Action::Lead(EPOCH)]);
    assert!(copy.is_alone(ms(3999)) && copy.may_confirm(ms(3999)));
    assert!(!copy.is_alone(ms(4000)) && !copy.may_confirm(ms(4000)));
    copy.failed(ms(100), Call::Read);
    assert!(copy.step(ms(101), &facts()).contains(&Action::Ask(EPOCH)));
    copy.promised(OTHER, Epoch(4), ms(3900), ms(2000));
    assert!(!copy.is_alone(ms(4000)), "the promise was about another epoch");
    copy.promised(OTHER, EPOCH, ms(3900), ms(2000));
    assert!(copy.is_alone(ms(5899)) && !copy.is_alone(ms(5900)));
}

/// A failure ends, and the primary may need longer to find the coordinator than its copy did.
#[test]
fn a_copy_that_finds_the_coordinator_again_gives_its_primary_time() {
    let mut copy = started(view(OTHER));
    copy.step(ms(2), &facts());
    copy.failed(ms(5000), Call::Read);
    copy.step(ms(5001), &facts());
    copy.lease_replied(ms(5300), ms(5299), LeaseReply::Held { id: LEASE, ttl: ms(4000) });
    read(&mut copy, ms(5300), without_primary());
    let actions = copy.step(ms(5302), &facts());
    assert!(!actions.iter().any(is_freeze), "{actions:?}");
    read(&mut copy, ms(7301), without_primary());
    let actions = copy.step(ms(7302), &facts());
    assert!(actions.iter().any(is_freeze), "{actions:?}");
}

#[test]
fn a_primary_that_leads_on_in_a_new_epoch_is_alone_throughout() {
    let mut copy = started(view(ME));
    copy.step(ms(2), &facts());
    let mut retaken = view(ME);
    retaken.revision = 10;
    retaken.topology.value.shards[0].epoch = EPOCH.next();
    read(&mut copy, ms(100), retaken);
    assert!(copy.is_alone(ms(102)), "the view is ahead of the role");
    assert!(copy.step(ms(102), &facts()).contains(&Action::Lead(EPOCH.next())));
    assert!(copy.is_alone(ms(103)));
}

#[test]
fn a_new_lease_counts_when_the_view_shows_it() {
    let mut copy = started(view(ME));
    copy.step(ms(2), &facts());
    copy.step(ms(1000), &facts());
    copy.lease_replied(ms(9000), ms(1000), LeaseReply::Gone);
    copy.step(ms(9000), &facts());
    copy.lease_replied(ms(9010), ms(9000), LeaseReply::Held { id: 8, ttl: ms(4000) });
    assert!(!copy.is_alone(ms(9011)), "another may have been promoted");
    let mut retaken = view(ME);
    retaken
        .alive
        .insert(ME, At { value: Alive { incarnation: MINE, lease: 8, bus_port: 0 }, revision: 11 });
    retaken.topology.value.epoch = EPOCH.next();
    retaken.topology.value.shards[0].epoch = EPOCH.next();
    read(&mut copy, ms(9020), retaken);
    assert!(copy.step(ms(9023), &facts()).contains(&Action::Lead(EPOCH.next())));
    assert!(copy.is_alone(ms(9023)));
}

#[test]
fn another_port_for_other_copies_is_announced_under_the_same_lease() {
    let mut copy = started(view(ME));
    copy.step(ms(2), &facts());
    copy.listens_on_bus(17_000);
    copy.reached_all();
    assert!(copy.is_alone(ms(3)), "its lease is the one that the view shows");
    let told = |actions: Vec<Action>| {
        actions.into_iter().find_map(|action| match action {
            Action::Commit(transaction) => Some(transaction),
            _ => None,
        })
    };
    // Nothing is under way any more.
    copy.committed(ms(3), Outcome::Done(9));
    let mut same = view(ME);
    read(&mut copy, ms(4), same.clone());
    let alive = Alive { incarnation: MINE, lease: LEASE, bus_port: 17_000 };
    let expected = change::register(copy.view().expect("it has one"), ME, alive);
    assert_eq!(told(copy.step(ms(7), &facts())), Some(expected));
    assert!(copy.is_alone(ms(8)) && copy.may_confirm(ms(8)));
    copy.committed(ms(9), Outcome::Done(11));
    same.alive.insert(ME, At { value: alive, revision: 11 });
    read(&mut copy, ms(10), same);
    assert_eq!(told(copy.step(ms(13), &facts())), None);
    assert_eq!(copy.role(), Role::Leads(EPOCH));
}

/// What there was of a copy before its process.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Past {
    /// It is new.
    Nothing,
    /// It was a member, and has left nothing that says more.
    Member,
    /// It has left what it knew: whether it had announced a port for others.
    Known(bool),
}

/// Registers a copy that listens on a port for others, beside one that announces `other`; `None`:
/// that one is not alive. Returns the copy, and the port that it announces.
fn registered(past: Past, other: Option<u16>) -> (Copy, u16) {
    let mut copy = Copy::new(ME, MINE, settings());
    copy.listens_on_bus(17_000);
    let mut view = view(OTHER);
    if past == Past::Nothing {
        let shard = view.topology.value.shard_of_mut(ME).expect("it is there");
        let me = shard.copies.iter_mut().find(|copy| copy.id == ME);
        me.expect("it is there").member = None;
    }
    let known = match past {
        Past::Known(has_bus) => Some(has_bus),
        Past::Nothing | Past::Member => None,
    };
    copy.remember(known.and_then(|has_bus| {
        let known = Known::of(&view, ME, None)?;
        Some(Known { has_bus, ..known })
    }));
    view.alive.remove(&ME);
    match other {
        Some(port) => view.alive.get_mut(&OTHER).expect("it is there").value.bus_port = port,
        None => _ = view.alive.remove(&OTHER),
    }
    copy.step(ms(0), &facts());
    copy.lease_replied(ms(1), ms(0), LeaseReply::Held { id: LEASE, ttl: ms(4000) });
    copy.read(ms(1), ms(0), Some(view.clone()));
    let said = copy.alive().expect("it has a lease");
    view.alive.insert(ME, At { value: said, revision: 10 });
    read(&mut copy, ms(10), view);
    assert_eq!(copy.alive(), Some(said), "the view alone changes nothing");
    (copy, said.bus_port)
}

#[test]
fn a_port_for_others_is_announced_when_theirs_are_reached_or_in_use() {
    // A new copy, one that had announced it, and one of before or behind a firewall.
    for other in [Some(17_001), None] {
        assert_eq!(registered(Past::Nothing, other).1, 17_000);
        assert_eq!(registered(Past::Known(true), other).1, 17_000);
        assert_eq!(registered(Past::Known(false), other).1, 0);
        assert_eq!(registered(Past::Member, other).1, 0);
    }
    for (past, other) in [
        (Past::Known(false), 17_001),
        (Past::Member, 17_001),
        (Past::Known(true), 0),
        (Past::Nothing, 0),
    ] {
        let (mut copy, port) = registered(past, Some(other));
        assert_eq!(port, 0, "{past:?} {other}");
        let doors = copy.unreached().expect("it waits");
        // One that announces none has it, if at all, where Redis would have it.
        let expected = if other == 0 { 17_000 } else { other };
        assert_eq!((doors.len(), doors[0].copy, doors[0].port), (1, OTHER, expected));
        assert!(!copy.known().expect("it knows").has_bus);
        copy.reached_all();
        assert_eq!(copy.alive().map(|alive| alive.bus_port), Some(17_000));
        assert_eq!(copy.unreached(), None);
    }
    // That of another does not change what this one has reached itself.
    let (mut copy, _) = registered(Past::Known(true), Some(0));
    let mut view = copy.view().expect("it has one").clone();
    view.alive.get_mut(&OTHER).expect("it is there").value.bus_port = 17_001;
    read(&mut copy, ms(20), view);
    assert_eq!(copy.alive().map(|alive| alive.bus_port), Some(0));
}

/// A view in which a switch to the other copy is asked for.
fn asked(epoch: Epoch) -> View {
    let mut view = view(ME);
    let value = Switch { epoch, to: OTHER, is_for_any: false };
    view.switches.insert(OTHER, At { value, revision: 9 });
    view
}

#[test]
fn a_switch_is_given_up_while_nothing_of_it_was_sent() {
    let mut copy = started(asked(EPOCH));
    copy.step(ms(2), &facts());
    assert!(copy.is_switching() && !copy.may_confirm(ms(3)));
    let end = settings().switch + ms(3);
    copy.step(end, &facts());
    assert!(!copy.is_switching(), "its time is over");
    copy.step(end + ms(1), &facts());
    assert!(!copy.is_switching(), "it is begun once");

    let mut copy = started(asked(EPOCH));
    let unlinked = Facts { linked: Vec::new(), ..facts() };
    copy.step(ms(2), &unlinked);
    assert!(!copy.is_switching(), "writes do not pause for a link");
    copy.step(ms(3), &facts());
    assert!(copy.is_switching());
    let mut copy = started(asked(EPOCH));
    copy.step(ms(2), &unlinked);
    copy.step(end, &facts());
    assert!(!copy.is_switching(), "it has lapsed");

    let mut copy = started(asked(Epoch(EPOCH.0 - 1)));
    copy.step(ms(2), &facts());
    assert!(!copy.is_switching(), "it was asked for in another epoch");
}

/// One that stands still must not hold it up.
#[test]
fn a_primary_that_ends_hands_over_to_whichever_member_is_in_step() {
    const THIRD: Id = Id::new([3; 20]);
    let third = Holder { id: THIRD, incarnation: Incarnation(3) };
    for (is_for_any, is_sent) in [(true, true), (false, false)] {
        let mut view = asked(EPOCH);
        let copies = &mut view.topology.value.shards[0].copies;
        copies.push(Replica { id: THIRD, member: Some(Incarnation(3)), ..copies[0].clone() });
        let alive = Alive { incarnation: Incarnation(3), lease: 9, bus_port: 0 };
        view.alive.insert(THIRD, At { value: alive, revision: 3 });
        let value = Switch { epoch: EPOCH, to: OTHER, is_for_any };
        view.switches.insert(OTHER, At { value, revision: 9 });
        let mut copy = started(view);
        copy.step(ms(2), &facts());
        assert!(copy.is_switching());
        let level = Facts { level: vec![third], ..facts() };
        assert_eq!(transaction(&copy.step(ms(3), &level)).is_some(), is_sent);
    }
}

#[test]
fn a_switch_is_sent_when_the_successor_has_everything_and_only_another_epoch_ends_it() {
    let successor = Holder { id: OTHER, incarnation: Incarnation(1) };
    let level = Facts { level: vec![successor], ..facts() };
    let mut copy = started(asked(EPOCH));
    copy.step(ms(2), &facts());
    assert!(copy.is_switching());
    assert_eq!(copy.step(ms(3), &facts()), [], "the successor lacks something");
    assert!(!copy.may_confirm(ms(3)) && copy.is_alone(ms(3)), "writes pause, reads go on");
    assert!(transaction(&copy.step(ms(4), &level)).is_some());
    assert!(!copy.is_alone(ms(4)), "the switch may have been made");
    copy.failed(ms(500), Call::Commit);
    copy.step(ms(501), &facts());
    assert!(copy.is_switching() && !copy.may_confirm(ms(501)), "no timer ends it");
    // etcd is back, and the view is as before: the switch may still arrive.
    copy.step(ms(700), &facts());
    copy.lease_replied(ms(701), ms(700), LeaseReply::Held { id: LEASE, ttl: ms(4000) });
    copy.read(ms(702), ms(700), Some(asked(EPOCH)));
    let actions = copy.step(ms(703), &level);
    let cancel = transaction(&actions).expect("it cancels");
    assert!(!copy.may_confirm(ms(703)) && cancel.compares[0].revision == 8);
    copy.committed(ms(704), Outcome::Conflict);
    assert!(!copy.is_alone(ms(704)), "the switch may be what the cancellation conflicts with");
    read(&mut copy, ms(705), asked(EPOCH));
    assert!(transaction(&copy.step(ms(708), &level)).is_some(), "it cancels again");
    let mut cancelled = asked(EPOCH);
    cancelled.topology.value.epoch = EPOCH.next();
    cancelled.topology.value.shards[0].epoch = EPOCH.next();
    copy.committed(ms(709), Outcome::Done(12));
    read(&mut copy, ms(710), cancelled);
    copy.step(ms(713), &facts());
    assert!(!copy.is_switching() && copy.may_confirm(ms(713)));
}

#[test]
fn the_first_copy_of_a_planned_shard_takes_it_with_the_data_that_it_has() {
    let planned = |first: Id, second: Id| {
        let mut view = view(OTHER);
        let address = view.topology.value.shards[0].copies[0].address.clone();
        let copies = vec![(first, address.clone()), (second, address)];
        let slots = Slots::from_fn(|_| true);
        let shard = Shard::planned(OTHER, slots, copies).expect("it has copies");
        assert!(shard.is_unborn());
        view.topology.value = Topology::planned(0, vec![shard]);
        view.alive.clear();
        view
    };
    let topology = |actions: &[Action]| {
        let mut changes = transaction(actions)?.changes.iter();
        changes.find_map(|change| match change {
            Change::Put { key, value, .. } if key.ends_with("/topology") => {
                Topology::decode(value).ok()
            }
            _ => None,
        })
    };
    let actions = started(planned(ME, OTHER)).step(ms(2), &facts());
    let born = topology(&actions).expect("the first copy takes the shard");
    let shard = &born.shards[0];
    assert_eq!((shard.holder, shard.epoch), (Holder { id: ME, incarnation: MINE }, Epoch(1)));
    assert_eq!(shard.members().map(|copy| copy.id).collect::<Vec<_>>(), [ME]);
    let actions = started(planned(OTHER, ME)).step(ms(2), &facts());
    assert!(
        transaction(&actions).is_some() && topology(&actions).is_none(),
        "the second one waits"
    );
}

/// A view of before the copy's leadership, as a coordinator with older files has it.
fn rolled_back() -> View {
    let mut older = view(OTHER);
    older.topology.revision = 5;
    older.topology.value.epoch = Epoch(3);
    let shard = &mut older.topology.value.shards[0];
    (shard.epoch, shard.copies[1].member) = (Epoch(3), None);
    older
}

/// The topology that a transaction writes.
fn written(transaction: &Transaction) -> Topology {
    let is_topology = |key: &str| key.ends_with("/topology");
    let value = transaction.changes.iter().find_map(|change| match change {
        Change::Put { key, value, .. } if is_topology(key) => Some(value),
        _ => None,
    });
    Topology::decode(value.expect("it writes the topology")).expect("it is valid")
}

#[test]
fn a_primary_that_the_coordinator_has_forgotten_leads_no_more_and_says_so() {
    let mut copy = started(view(ME));
    assert_eq!(copy.step(ms(2), &facts()), [Action::Lead(EPOCH)]);
    assert!(copy.is_alone(ms(3)));
    copy.changed(ms(3));
    copy.step(ms(4), &facts());
    copy.read(ms(6), ms(5), Some(rolled_back()));
    assert!(copy.is_store_behind() && copy.role() == Role::Nothing && !copy.is_alone(ms(7)));
    assert!(!copy.accepts(EPOCH) && !copy.accepts(EPOCH.next()));
    let told = transaction(&copy.step(ms(7), &facts())).cloned().expect("it says so");
    let topology = written(&told);
    let shard = &topology.shards[0];
    assert!(shard.is_rolled_back() && shard.epoch > EPOCH && topology.epoch == shard.epoch);
    assert_eq!(shard.copies[1].member, Some(MINE), "it was a member");
    assert!(told.changes.iter().any(|change| matches!(
        change,
        Change::Put { key, .. } if key.ends_with("/rolled-back")
    )));
    // A read that was sent before shows the same again.
    copy.committed(ms(8), Outcome::Done(6));
    copy.step(ms(8), &facts());
    assert_eq!(copy.role(), Role::Nothing, "the newest view is of before");
    copy.read(ms(9), ms(7), Some(rolled_back()));
    assert!(copy.is_store_behind() && copy.role() == Role::Nothing);
    let mut after = rolled_back();
    (after.topology.revision, after.topology.value) = (6, topology.clone());
    read(&mut copy, ms(10), after.clone());
    let again = transaction(&copy.step(ms(13), &facts())).map(written);
    assert_eq!(again.expect("it says so again").epoch, topology.epoch, "nothing is undone by it");
    copy.committed(ms(14), Outcome::Done(7));
    assert!(copy.is_store_behind());
    after.topology.revision = 7;
    read(&mut copy, ms(15), after);
    assert!(!copy.is_store_behind());
    assert!(matches!(copy.step(ms(18), &facts())[..], [Action::Follow(..), ..]));
}

/// A copy that the coordinator names, and that has lost its lease, may have a successor that is
/// forgotten.
#[test]
fn a_primary_begins_no_epoch_by_itself_while_it_is_not_known_what_is_forgotten() {
    for is_rolled_back in [false, true] {
        let mut named = view(ME);
        named.alive.remove(&ME);
        if is_rolled_back {
            let at = crate::view::RolledBack::new(7, 5);
            named.rolled_back = Some(At { value: at, revision: 9 });
        }
        let mut copy = started(named.clone());
        let told = transaction(&copy.step(ms(2), &facts())).cloned().expect("it has no lease yet");
        let (topology, before) = (written(&told), named.topology.value);
        assert_eq!(topology.shards[0].is_rolled_back(), is_rolled_back);
        assert!(topology.shards[0].epoch > before.shards[0].epoch);
        let note = told.changes.iter().find_map(|change| match change {
            Change::Put { key, value, .. } if key.ends_with("/rolled-back") => Some(value),
            _ => None,
        });
        let noted = named.rolled_back.map(|at| crate::view::encode(&at.value));
        assert_eq!(note, noted.as_ref(), "it knows nothing new");
    }
}

/// What it knew is kept over a start.
#[test]
fn a_process_that_is_started_later_finds_out_as_well() {
    let known = started(view(ME)).known().cloned();
    let mut copy = Copy::new(ME, Incarnation(77), settings());
    copy.remember(Known::parse(&known.expect("it has read a view").line()));
    copy.step(ms(0), &facts());
    copy.lease_replied(ms(1), ms(0), LeaseReply::Held { id: LEASE, ttl: ms(4000) });
    copy.read(ms(1), ms(0), Some(rolled_back()));
    assert!(copy.is_store_behind());
    let told = transaction(&copy.step(ms(2), &facts())).cloned().expect("it says so");
    // Its data have another name since.
    assert_eq!(written(&told).shards[0].copies[1].member, None);
}

#[test]
fn who_is_elected_after_a_rollback_waits_for_the_leases_of_before() {
    for (have_all_said, patience) in [(true, settings().ttl), (false, settings().comeback)] {
        let mut waiting = view(OTHER);
        waiting.topology.value.shards[0].holder.incarnation = crate::topology::ROLLED_BACK;
        waiting.fences.insert((OTHER, ME), At { value: kept(MINE, 10), revision: 9 });
        if have_all_said {
            let other = kept(Incarnation(1), 9);
            waiting.fences.insert((OTHER, OTHER), At { value: other, revision: 9 });
        }
        let mut copy = started(waiting.clone());
        let facts = Facts { frozen: Some(EPOCH), has_keys: true, ..facts() };
        let mut seen = None;
        for at in (2500..15_000).step_by(500) {
            copy.lease_replied(ms(at), ms(at), LeaseReply::Held { id: LEASE, ttl: ms(4000) });
            read(&mut copy, ms(at), waiting.clone());
            if let Some(promotion) = transaction(&copy.step(ms(at + 3), &facts)) {
                seen = Some((at, written(promotion).shards[0].clone()));
                break;
            }
        }
        let (at, shard) = seen.expect("it is elected");
        assert!(ms(at) >= patience, "{at} ms");
        assert_eq!((shard.holder.id, shard.fence), (ME, 2), "of the other it is not known");
    }
}

#[test]
fn a_copy_that_cannot_read_goes_on_as_it_is_and_changes_nothing() {
    let mut copy = started(view(ME));
    assert_eq!(copy.role(), Role::Nothing);
    copy.step(ms(2), &facts());
    assert_eq!((copy.role(), copy.held_by_version()), (Role::Leads(EPOCH), None));
    copy.changed(ms(10));
    assert!(copy.step(ms(10), &facts()).contains(&Action::Read));
    copy.read_unreadable(ms(12), ms(11), "the topology is not readable".into());
    // It is not away, and what would be due waits.
    assert!(copy.is_coordinator_present() && copy.is_alone(ms(13)));
    assert_eq!(copy.role(), Role::Leads(EPOCH));
    assert!(copy.held_by_version().is_some_and(|why| why.ends_with("it is left alone")));
    assert_eq!(transaction(&copy.step(ms(13), &facts())), None);
    // A value that it can read, and may not change.
    let mut later = view(OTHER);
    later.alive.remove(&OTHER);
    later.topology.value.least_writer = crate::stored::WRITER + 1;
    read(&mut copy, ms(5000), later.clone());
    let waited = ms(60_000);
    let frozen = Facts { frozen: Some(EPOCH), ..facts() };
    assert_eq!(due(&mut copy, waited, &frozen), None);
    assert!(copy.held_by_version().is_some_and(|why| why.contains("later versions only")));
    // The same view without the number has something due.
    later.topology.value.least_writer = 0;
    read(&mut copy, waited + ms(5000), later);
    assert!(due(&mut copy, waited + ms(6000), &frozen).is_some());
}

/// The first transaction of forty turns in which the view stays as it is.
fn due(copy: &mut Copy, from: Moment, facts: &Facts) -> Option<Transaction> {
    (0..40).find_map(|turn| {
        let now = from + ms(100 * turn);
        copy.lease_replied(now, now, LeaseReply::Held { id: LEASE, ttl: ms(4000) });
        copy.changed(now);
        copy.step(now, facts);
        let view = copy.view().cloned().expect("it has one");
        copy.read(now + ms(2), now + ms(1), Some(view));
        transaction(&copy.step(now + ms(3), facts)).cloned()
    })
}

#[test]
fn a_topology_that_later_versions_change_is_replaced_by_none_of_now() {
    let mut view = view(ME);
    let plain = view.replace(&view.topology.value);
    assert_eq!(plain.compares, [view.unchanged()]);
    view.topology.value.least_writer = crate::stored::WRITER + 1;
    let refused = view.replace(&view.topology.value);
    assert!(refused.compares.iter().any(|compare| compare.revision == 0));
}

//! The answers for a cluster of two shards, in the words that clients read.

use super::*;
use crate::id::{Epoch, Incarnation};
use crate::slots::Slots;
use crate::topology::{Address, ForClients, Topology};
use crate::view::{Alive, At, Keys};

const PLAIN: Asker = Asker { is_tls: false, is_ipv6: false, wants_hostname: false };

fn id(copy: u8) -> Id {
    Id::new([copy; 20])
}

fn replica(copy: u8) -> Replica {
    let hostname = if copy == 2 { "two.example".into() } else { String::new() };
    let port = 7000 + u16::from(copy);
    let host = format!("10.0.0.{copy}");
    let address = Address { host, port, tls_port: port + 100, hostname, ..Address::default() };
    let member = Some(Incarnation(copy.into()));
    Replica { id: id(copy), address, member, is_never_promoted: copy == 4 }
}

/// Copies 1 and 2 lead; 3 and 4 are replicas of 1, and 5 of 2, not yet in step.
fn view() -> View {
    let shard = |leader: u8, epoch, slots| Shard {
        epoch: Epoch(epoch),
        slots,
        ..Shard::new(id(leader), replica(leader).address, Incarnation(leader.into()))
    };
    let mut first = shard(1, 3, Slots::from_fn(|slot| slot < 100 || slot == 200));
    first.copies.extend([replica(4), replica(3)]);
    let mut second = shard(2, 4, Slots::from_fn(|slot| (100..200).contains(&slot) || slot > 200));
    second.copies.push(Replica { member: None, ..replica(5) });
    let mut topology = Topology::new(first);
    topology.shards.push(second);
    topology.epoch = Epoch(4);
    assert_eq!(topology.check(), Ok(()));
    let alive = |copy: u8| {
        let value =
            Alive { incarnation: Incarnation(copy.into()), lease: copy.into(), bus_port: 0 };
        (id(copy), At { value, revision: 1 })
    };
    View {
        keys: Keys::new("test"),
        database: id(9),
        revision: 1,
        topology: At { value: topology, revision: 1 },
        alive: [1, 2, 3, 4, 5].map(alive).into(),
        fences: Default::default(),
        switches: Default::default(),
        rolled_back: None,
        history: Default::default(),
    }
}

fn ports(range: &Range) -> (u16, u16, Vec<u16>) {
    (range.first, range.last, range.nodes.iter().map(|node| node.port).collect())
}

#[test]
fn slots_are_in_order_and_without_holes() {
    let mut view = view();
    let ranges = view.slot_ranges(PLAIN);
    let expected: [(u16, u16, Vec<u16>); 4] = [
        (0, 99, vec![7001, 7003, 7004]),
        (100, 199, vec![7002]),
        (200, 200, vec![7001, 7003, 7004]),
        (201, 16383, vec![7002]),
    ];
    assert_eq!(ranges.iter().map(ports).collect::<Vec<_>>(), expected);
    // A dead primary keeps its place, a dead replica is not named.
    view.alive.remove(&id(1));
    view.alive.remove(&id(3));
    assert_eq!(ports(&view.slot_ranges(PLAIN)[0]), (0, 99, vec![7001, 7004]));
}

#[test]
fn a_node_is_named_as_the_client_reaches_it() {
    let named = |asker: Asker, copy| {
        let node = asker.node(&replica(copy));
        (node.endpoint, node.port, node.metadata)
    };
    let hostname = |name: &str| vec![("hostname", name.to_owned())];
    assert_eq!(named(PLAIN, 1), ("10.0.0.1".into(), 7001, vec![]));
    assert_eq!(named(PLAIN, 2), ("10.0.0.2".into(), 7002, hostname("two.example")));
    let tls = Asker { is_tls: true, is_ipv6: false, wants_hostname: true };
    let ip = vec![("ip", "10.0.0.2".to_owned())];
    assert_eq!(named(tls, 2), ("two.example".into(), 7102, ip));
    assert_eq!(named(tls, 1), ("10.0.0.1".into(), 7101, vec![]), "there is no name");
    // Clients are told another address, by the kind of theirs, and the zone.
    let mut apart = replica(1);
    apart.address.zone = "a".into();
    let ipv4 = "192.0.2.1".into();
    apart.address.for_clients = ForClients { ipv4, port: 80, ..ForClients::default() };
    let node = PLAIN.node(&apart);
    assert_eq!((node.endpoint.as_str(), node.port), ("192.0.2.1", 80));
    assert_eq!(node.metadata, [("availability-zone", "a".to_owned())]);
    let node = Asker { is_ipv6: true, ..tls }.node(&apart);
    assert_eq!((node.endpoint.as_str(), node.port), ("10.0.0.1", 7101));
    // A copy with one port has that one for all.
    let mut copy = replica(1);
    copy.address.tls_port = 0;
    assert_eq!(tls.node(&copy).port, 7001);
    (copy.address.port, copy.address.tls_port) = (0, 7101);
    assert_eq!(PLAIN.node(&copy).port, 7101);
}

#[test]
fn nodes_are_lines() {
    let mut view = view();
    view.alive.remove(&id(2));
    let name = |digits: &str| digits.repeat(20);
    let (one, two, three, four, five) =
        (name("01"), name("02"), name("03"), name("04"), name("05"));
    let expected = format!(
        "{one} 10.0.0.1:7001@17001 master - 0 0 3 connected 0-99 200\n\
         {two} 10.0.0.2:7002@17002,two.example master,fail - 0 0 4 disconnected 100-199 201-16383\n\
         {three} 10.0.0.3:7003@17003 myself,slave {one} 0 0 3 connected\n\
         {four} 10.0.0.4:7004@17004 slave,nofailover {one} 0 0 3 connected\n\
         {five} 10.0.0.5:7005@17005 slave {two} 0 0 4 connected\n"
    );
    assert_eq!(view.nodes_text(id(3), PLAIN), expected);
    // Slots that leave and slots that come, in one order.
    let other = view.topology.value.shards[1].id;
    let shard = &mut view.topology.value.shards[0];
    shard.migrating.extend([(3, other), (99, other)]);
    shard.importing.insert(101, other);
    shard.importing.insert(50, other);
    let open = format!("0-99 200 [3->-{two}] [50-<-{two}] [99->-{two}] [101-<-{two}]\n");
    let text = view.nodes_text(id(1), PLAIN);
    assert!(text.lines().any(|line| format!("{line}\n").ends_with(&open)), "{text}");
}

#[test]
fn health_says_who_has_the_data() {
    let mut view = view();
    let health = |view: &View, copy| {
        let shard = view.topology.value.shard_of(id(copy)).expect("it is there");
        view.health_of(shard, shard.copy(id(copy)).expect("it is there")).name()
    };
    assert_eq!([1, 3, 5].map(|copy| health(&view, copy)), ["online", "online", "loading"]);
    view.alive.remove(&id(3));
    assert_eq!(health(&view, 3), "fail");
}

#[test]
fn the_state_is_ok_while_every_slot_has_a_living_primary() {
    let mut view = view();
    let line = |view: &View, name: &str| {
        let text = view.info_text(id(1), true);
        let value = text.split("\r\n").find_map(|line| line.strip_prefix(name)?.strip_prefix(':'));
        value.expect("the line is there").to_owned()
    };
    for (name, value) in [
        ("cluster_state", "ok"),
        ("cluster_slots_assigned", "16384"),
        ("cluster_slots_ok", "16384"),
        ("cluster_slots_fail", "0"),
        ("cluster_known_nodes", "5"),
        ("cluster_size", "2"),
        ("cluster_current_epoch", "4"),
        ("cluster_my_epoch", "3"),
    ] {
        assert_eq!(line(&view, name), value, "{name}");
    }
    view.alive.remove(&id(1));
    view.alive.remove(&id(3));
    for (name, value) in [
        ("cluster_state", "fail"),
        ("cluster_slots_ok", "16283"),
        ("cluster_slots_fail", "101"),
        ("cluster_nodes_fail", "2"),
        ("cluster_voting_nodes_fail", "1"),
    ] {
        assert_eq!(line(&view, name), value, "{name}");
    }
    assert!(!view.is_ok(true) && view.is_ok(false));
}

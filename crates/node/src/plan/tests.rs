//! Plans for sites of one to four machines.

use super::*;
use crate::change::tests::with_database;
use crate::settings::tests::settings;
use crate::site::{Known, MachineAlive, Stage};
use cluster::view::At;

pub(crate) fn site(machines: &[(&str, &str, u64)]) -> Site {
    let mut site = Site::default();
    for (at, &(name, zone, gib)) in machines.iter().enumerate() {
        let id = format!("id-{at}");
        let machine = Machine {
            id: id.clone(),
            host: format!("10.0.0.{at}"),
            zone: zone.into(),
            memory_bytes: gib << 30,
            cores: 4,
            flash_bytes: 0,
            admin_port: 8380,
            version: String::new(),
            ..Machine::default()
        };
        let machine = machine.of_this_version(false);
        let alive = MachineAlive {
            id,
            lease: 1,
            copies: Vec::new(),
            is_ending: false,
            disk_error: String::new(),
            has_webhook: false,
        };
        let spec = At { value: machine, revision: 1 };
        let alive = Some(At { value: alive, revision: 1 });
        let known = Known {
            spec,
            alive,
            is_draining: false,
            is_removed: false,
            zone: None,
            ports: BTreeSet::new(),
        };
        site.machines.insert(name.into(), known);
    }
    site
}

fn machines(plan: &Plan, shard: usize) -> Vec<&str> {
    plan.copies.iter().filter(|copy| copy.shard == shard).map(|copy| &*copy.machine).collect()
}

#[test]
fn three_machines_get_a_primary_and_a_replica_each() {
    let plan =
        place(&site(&[("a", "", 8), ("b", "", 8), ("c", "", 8)]), &settings()).expect("it fits");
    assert_eq!(plan.copies.len(), 6);
    for name in ["a", "b", "c"] {
        let here: Vec<_> = plan.copies.iter().filter(|copy| copy.machine == name).collect();
        assert_eq!(here.iter().filter(|copy| copy.is_primary).count(), 1, "{plan:?}");
        let ports: Vec<u16> = here.iter().map(|copy| copy.port).collect();
        assert_eq!(ports, [12000, 12001], "the first copy of a host has the database's port");
        assert!(here.iter().all(|copy| copy.threads == 2));
    }
    assert!((0..3).all(|shard| machines(&plan, shard)[0] != machines(&plan, shard)[1]));
    assert_eq!(plan.warnings.len(), 1, "there is no password: {:?}", plan.warnings);
}

#[test]
fn a_quorum_of_two_copies_comes_with_a_warning() {
    let machines = site(&[("a", "", 8), ("b", "", 8), ("c", "", 8)]);
    let warns = |replicas| {
        let asked = Settings { commit: Commit::Quorum, replicas, ..settings() };
        let plan = place(&machines, &asked).expect("it fits");
        plan.warnings.iter().any(|text| text.contains("both"))
    };
    assert!(warns(1) && !warns(2));
}

#[test]
fn copies_of_a_shard_are_in_different_zones() {
    let wide = site(&[("a", "x", 99), ("b", "x", 99), ("c", "y", 9), ("d", "y", 9)]);
    let asked = Settings { zones: true, ..settings() };
    let plan = place(&wide, &asked).expect("it fits");
    let zone = |name: &str| if name < "c" { "x" } else { "y" };
    for shard in 0..3 {
        let [first, second] = machines(&plan, shard)[..] else { panic!("{plan:?}") };
        assert_ne!(zone(first), zone(second), "{plan:?}");
    }
    let narrow = site(&[("a", "x", 9), ("b", "x", 9)]);
    let why = place(&narrow, &asked).expect_err("there is one zone").0;
    assert!(why.contains("cannot be in different zones") && why.contains("in x."), "{why}");
    assert!(place(&narrow, &settings()).is_ok(), "without --zones it is a wish");
}

#[test]
fn one_machine_takes_all_with_a_warning() {
    let plan = place(&site(&[("a", "", 8)]), &settings()).expect("it fits");
    let ports: Vec<u16> = plan.copies.iter().map(|copy| copy.port).collect();
    assert_eq!(ports, [12000, 12001, 12002, 12003, 12004, 12005]);
    assert!(plan.warnings[0].starts_with("Copies of shard 1, 2, 3 share a machine"), "{plan:?}");
}

#[test]
fn what_does_not_fit_says_what_there_is() {
    let why = |machines: &[_]| place(&site(machines), &settings()).expect_err("it does not fit").0;
    assert!(why(&[]).contains("no machine"), "{}", why(&[]));
    let text = why(&[("a", "", 3), ("b", "", 2)]);
    assert!(text.contains("replica 1 of shard 3") && text.contains("needs 1.0 GiB"), "{text}");
    assert!(text.contains("a has 0 B, b has 0 B") && text.contains("--join"), "{text}");
}

#[test]
fn ports_of_the_bus_are_kept_free() {
    let mut one = site(&[("a", "", 8)]);
    one.machines.get_mut("a").expect("it is there").spec.value.bus_port_offset = 2;
    let plan = place(&one, &settings()).expect("it fits");
    let ports: Vec<u16> = plan.copies.iter().map(|copy| copy.port).collect();
    assert_eq!(ports, [12000, 12001, 12004, 12005, 12008, 12009]);
}

#[test]
fn a_port_for_other_copies_is_no_port_of_clients() {
    let (mut two, _) = with_database(Stage::Ready);
    for known in two.machines.values_mut() {
        known.spec.value.bus_port_offset = 10_000;
    }
    let why = |port| place(&two, &Settings { port, ..settings() }).expect_err("it is taken").0;
    let text = why(22_000);
    assert!(text.starts_with("port 22000 is one that copies of database 'd' have"), "{text}");
    let text = why(2000);
    assert!(text.contains("port 12000") && text.contains("--bus-port-offset"), "{text}");
    assert!(why(12_000).contains("port 12000 is used by database 'd'"));
    // A node passes on the port of a database that it has no copy of, and its port with TLS.
    let known = two.machines["a"].clone();
    let (mut far, mut placed) = (known, two.databases["d"].value.clone());
    far.spec.value.host = "10.9.9.9".into();
    far.spec.value.tls_port_offset = 1000;
    placed.copies.clear();
    let mut three = two.clone();
    three.machines.insert("far".into(), far);
    three.databases.get_mut("d").expect("it is there").value = placed;
    let why = |port| place(&three, &Settings { port, ..settings() }).expect_err("it is taken").0;
    for port in [22_000, 21_000, 2000, 3000] {
        let text = why(port);
        assert!(text.contains("database 'd'") && text.contains("for each other"), "{text}");
    }
    assert!(place(&three, &Settings { port: 12_100, ..settings() }).is_ok());
    assert!(place(&two, &Settings { port: 12_100, ..settings() }).is_ok());
}

#[test]
fn a_plan_says_that_machines_have_no_bus() {
    let mut two = site(&[("a", "", 8), ("b", "", 8)]);
    let asked = || Settings { password: "x".into(), ..settings() };
    let said = |site: &Site| {
        let plan = place(site, &asked()).expect("it fits");
        plan.warnings.into_iter().filter(|it| it.contains("--bus-port-offset")).collect::<Vec<_>>()
    };
    assert_eq!(said(&two), [""; 0], "none has one");
    two.machines.get_mut("a").expect("it is there").spec.value.bus_port_offset = 10_000;
    assert!(said(&two)[0].starts_with("Copies on machine b have no port"), "{:?}", said(&two));
    two.machines.get_mut("b").expect("it is there").spec.value.bus_port_offset = 10_000;
    assert_eq!(said(&two), [""; 0]);
}

#[test]
fn a_port_in_use_is_refused() {
    let asked = Settings { port: 8380, ..settings() };
    let why = place(&site(&[("a", "", 8)]), &asked).expect_err("it is the node's").0;
    assert!(why.contains("admin port of machine 'a'"), "{why}");
}

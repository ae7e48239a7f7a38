//! Many databases on many machines with one etcd: whether leases are renewed in time, and how long
//! it takes until all shards of a machine that ends have another primary. A machine is a set of
//! copies that end at the same moment. `DUNLIN_DATABASES` (24) have a primary and a replica each,
//! on `DUNLIN_MACHINES` (8); leases are looked at for `DUNLIN_QUIET_SECONDS` (5).

use crate::copies::{Cluster, Shown, keys};
use cluster::Moment;
use cluster::coordinator::{Coordinator, Outcome};
use cluster::copy::Role;
use cluster::id::{Epoch, Id};
use cluster::slots::Slots;
use cluster::topology::{Address, Shard, Topology};
use cluster::view::plan;
use std::collections::{BTreeMap, BTreeSet};
use std::time::{Duration, Instant};

const DEFAULT_DATABASES: u32 = 24;
const DEFAULT_MACHINES: u32 = 8;

/// As `dunlin server` does by default.
const TTL: Moment = Moment::from_secs(4);
/// Longer than a server's, which has no thousand others beside it.
const LOOK: Moment = Moment::from_millis(250);

fn given(name: &str, default: u32) -> u32 {
    std::env::var(name).map_or(default, |text| text.parse().expect("a number"))
}

/// Copy 0 or 1 of a database.
fn id(database: u32, copy: u8) -> Id {
    let mut bytes = [copy + 1; 20];
    bytes[..4].copy_from_slice(&database.to_be_bytes());
    Id::new(bytes)
}

fn topology(database: u32) -> Topology {
    let address = Address { host: "127.0.0.1".into(), port: 7000, ..Address::default() };
    let copies = [0, 1].map(|copy| (id(database, copy), address.clone()));
    let all = Slots::from_fn(|_| true);
    let shard = Shard::planned(id(database, 2), all, copies.to_vec()).expect("two copies");
    Topology::planned(0, vec![shard])
}

/// The epoch in which this copy leads and may confirm.
fn leads(shown: &BTreeMap<Id, Shown>, copy: Id) -> Option<Epoch> {
    let shown = shown.get(&copy).filter(|shown| shown.is_alone)?;
    match shown.role {
        Some(Role::Leads(epoch)) => Some(epoch),
        _ => None,
    }
}

#[test]
fn leases_of_many_databases_are_renewed_and_a_dead_machine_is_replaced() {
    let databases = given("DUNLIN_DATABASES", DEFAULT_DATABASES);
    let machines = given("DUNLIN_MACHINES", DEFAULT_MACHINES);
    let quiet = Duration::from_secs(u64::from(given("DUNLIN_QUIET_SECONDS", 5)));
    let machine_of =
        |database: u32, copy: u32| (database + copy * (1 + database / machines)) % machines;

    let mut cluster = Cluster::new("many", TTL, LOOK);
    cluster.patience += Duration::from_secs(databases.into());
    let mut client = cluster.etcd.client();
    let begun = Instant::now();
    for database in 0..databases {
        let transaction = plan(&keys(), id(database, 2), &topology(database));
        let outcome = client.commit(&transaction).expect("etcd is there");
        assert!(matches!(outcome, Outcome::Done(_)), "nothing of it was there");
        (0..2).for_each(|copy| cluster.start(id(database, copy), 1));
    }
    let epochs: BTreeMap<u32, Epoch> = cluster.until("all have a primary and a replica", |shown| {
        let epoch = |database| {
            let has_replica = shown.get(&id(database, 1)).is_some_and(|shown| shown.is_member);
            Some((database, leads(shown, id(database, 0)).filter(|_| has_replica)?))
        };
        (0..databases).map(epoch).collect()
    });
    println!("{databases} databases on {machines} machines stand after {:.1?}", begun.elapsed());

    // No lease is late, so no other takes over and none stops to confirm.
    let used = cluster.etcd.cpu();
    let begun = Instant::now();
    let (mut looks, mut late) = (0_u32, 0_u32);
    while begun.elapsed() < quiet {
        let shown = cluster.shared.lock();
        for database in 0..databases {
            let is_leading = leads(&shown, id(database, 0)) == Some(epochs[&database]);
            (looks, late) = (looks + 1, late + u32::from(!is_leading));
        }
        drop(shown);
        std::thread::sleep(Duration::from_millis(200));
    }
    let share = (cluster.etcd.cpu() - used).as_secs_f64() / begun.elapsed().as_secs_f64();
    println!(
        "primaries that did not lead when looked at: {late} of {looks}; etcd uses {share:.2} of a core"
    );
    assert_eq!(
        epochs,
        cluster.until("all lead", |shown| {
            let epoch = |database| Some((database, leads(shown, id(database, 0))?));
            (0..databases).map(epoch).collect()
        }),
        "another has taken over while nothing failed"
    );

    let mut dead = BTreeSet::new();
    let mut orphans = Vec::new();
    for database in 0..databases {
        let lost = [0, 1].map(|copy: u8| machine_of(database, copy.into()) == 0);
        assert_ne!(lost, [true, true], "the copies of a database are on two machines");
        dead.extend((0..2).filter(|&copy| lost[usize::from(copy)]).map(|copy| id(database, copy)));
        orphans.extend(lost[0].then_some(database));
    }
    assert!(!orphans.is_empty(), "the machine has primaries");
    let begun = Instant::now();
    cluster.end(&dead);
    cluster.until("all shards of the machine have another primary", |shown| {
        let has = |&database: &u32| leads(shown, id(database, 1)) > Some(epochs[&database]);
        orphans.iter().all(has).then_some(())
    });
    println!(
        "{} shards of a machine that ended have another primary after {:.1?}",
        orphans.len(),
        begun.elapsed()
    );
}

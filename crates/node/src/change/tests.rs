//! What transactions of users rest on and change.

use super::*;
use crate::plan::tests::site;
use crate::settings::tests::settings;
use crate::site::JobKind;

fn owner() -> Owner {
    Owner { machine: "a".into(), lease: 7 }
}

fn keys() -> (SiteKeys, Keys) {
    (SiteKeys::new("t"), Keys::new("t"))
}

fn put_at<'a>(transaction: &'a Transaction, key: &str) -> Option<&'a [u8]> {
    transaction.changes.iter().find_map(|change| match change {
        Change::Put { key: other, value, .. } if other == key => Some(&**value),
        _ => None,
    })
}

/// A site with a database in this stage, and its job.
fn with_database(stage: Stage) -> (Site, String) {
    let mut site = site(&[("a", "", 8), ("b", "", 8)]);
    let (keys, copies) = keys();
    let asked = ("d", &settings());
    let (job, transaction) = create(&site, (&keys, &copies), asked, &owner()).expect("it fits");
    let read = |key: String| put_at(&transaction, &key).expect("it is written").to_vec();
    let database: Database = serde_json::from_slice(&read(keys.database("d"))).expect("it is read");
    let value = Database { stage, ..database };
    site.databases.insert("d".into(), At { value, revision: 5 });
    let value: Job = serde_json::from_slice(&read(keys.job(&job))).expect("it is read");
    site.jobs.insert(job.clone(), At { value, revision: 5 });
    (site, job)
}

#[test]
fn a_machine_with_another_address_takes_its_copies_along() {
    let (site, _) = with_database(Stage::Ready);
    let (keys, _) = keys();
    let old = &site.machines["a"].spec.value.host;
    assert_eq!(relocate(&site, &keys, "a", old), None);
    let transaction = relocate(&site, &keys, "a", "10.9.9.9").expect("it has copies");
    assert!(transaction.compares.contains(&unchanged(keys.database("d"), 5)));
    let database = put_at(&transaction, &keys.database("d")).expect("it is written");
    let database: Database = serde_json::from_slice(database).expect("it is read");
    assert!(database.copies.iter().any(|placed| placed.machine == "a"));
    for placed in &database.copies {
        assert_eq!(placed.host == "10.9.9.9", placed.machine == "a");
    }
}

#[test]
fn a_database_is_made_by_one_transaction() {
    let site = Site { placement: 3, ..site(&[("a", "", 8), ("b", "", 8), ("c", "", 8)]) };
    let (keys, copies) = keys();
    let (_, transaction) =
        create(&site, (&keys, &copies), ("d", &settings()), &owner()).expect("it fits");
    let database = put_at(&transaction, &keys.database("d")).expect("it is written");
    let database: Database = serde_json::from_slice(database).expect("it is read");
    let topology = put_at(&transaction, &copies.topology(database.id)).expect("it is written");
    let topology = Topology::decode(topology).expect("it is sound");
    let slots: Vec<usize> = topology.shards.iter().map(|shard| shard.slots.len()).collect();
    assert_eq!(slots, [5461, 5461, 5462]);
    assert!(topology.shards.iter().all(|shard| shard.is_unborn() && shard.copies.len() == 2));
    for placed in &database.copies {
        assert!(put_at(&transaction, &copies.home(placed.copy)).is_some());
        let shard = topology.shard_of(placed.copy).expect("it is in the topology");
        assert_eq!(shard.id, topology.shards[placed.shard].id);
    }
    let rests_on = |key: String, revision| transaction.compares.contains(&unchanged(key, revision));
    assert!(rests_on(keys.placement(), 3) && rests_on(keys.database("d"), 0));
    assert!(transaction.changes.len() < 128 && transaction.compares.len() < 128);
}

#[test]
fn the_largest_database_fits_into_a_transaction_of_etcd() {
    let site = site(&[("a", "", 900)]);
    let (keys, copies) = keys();
    let large = Settings { shards: 50, ..settings() };
    let (_, transaction) =
        create(&site, (&keys, &copies), ("d", &large), &owner()).expect("it fits");
    assert!(transaction.changes.len() <= 120 && transaction.compares.len() <= 120);
}

#[test]
fn a_deletion_ends_other_jobs_of_the_database() {
    let (site, job) = with_database(Stage::Creating);
    let (keys, _) = keys();
    let (_, transaction) = delete(&site, &keys, "d", &owner()).expect("it is there");
    let old = put_at(&transaction, &keys.job(&job)).expect("it is written");
    let old: Job = serde_json::from_slice(old).expect("it is read");
    assert_eq!(old.state, JobState::Cancelled);
    assert!(matches!(delete(&site, &keys, "x", &owner()), Err(Problem::Missing(_))));
}

#[test]
fn options_that_copies_cannot_change_are_refused() {
    let (site, _) = with_database(Stage::Ready);
    let database = &site.databases["d"].value;
    let why = |settings: &Settings| {
        check_update(&site, "d", database, settings).err().map(|why| why.to_string())
    };
    assert_eq!(why(&Settings { eviction: "allkeys-lru".into(), ..settings() }), None);
    let text = why(&Settings { shards: 4, ..settings() }).expect("it is refused");
    assert!(text.contains("shards cannot be changed"), "{text}");
    let text = why(&Settings { memory_bytes: 90 << 30, ..settings() }).expect("it is refused");
    assert!(text.contains("need 87.0 GiB more"), "{text}");
    let (creating, _) = with_database(Stage::Creating);
    let database = &creating.databases["d"].value;
    assert!(check_update(&creating, "d", database, &settings()).is_err());
}

#[test]
fn only_a_creation_that_runs_can_be_cancelled() {
    let (mut site, job) = with_database(Stage::Creating);
    let (keys, _) = keys();
    assert!(cancel(&site, &keys, &job).is_ok());
    let at = site.jobs.get_mut(&job).expect("it is there");
    at.value.kind = JobKind::Delete;
    assert!(matches!(cancel(&site, &keys, &job), Err(Problem::Wrong(_))));
    assert!(matches!(cancel(&site, &keys, "x"), Err(Problem::Missing(_))));
}

#[test]
fn a_machine_with_copies_is_not_forgotten() {
    let (mut site, _) = with_database(Stage::Ready);
    let (keys, _) = keys();
    let why = |site: &Site| forget(site, &keys, "a").err().map(|why| why.to_string());
    assert!(why(&site).is_some_and(|why| why.contains("is alive")));
    site.machines.get_mut("a").expect("it is there").alive = None;
    assert!(why(&site).is_some_and(|why| why.contains("copies of database 'd'")));
    site.databases.clear();
    assert_eq!(why(&site), None);
}

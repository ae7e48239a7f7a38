//! What transactions of users rest on and change.

use super::*;
use crate::plan::tests::site;
use crate::settings::tests::settings;
use crate::site::{CopyReport, JobKind, Placed, ProcessState};

fn owner() -> Owner {
    Owner { machine: "a".into(), lease: 7, request_id: String::new() }
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
pub(crate) fn with_database(stage: Stage) -> (Site, String) {
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

/// What a node says of a copy that runs and is well.
pub(crate) fn report(placed: &Placed) -> CopyReport {
    CopyReport {
        copy: placed.copy,
        database: "d".into(),
        state: ProcessState::Running,
        process_id: 0,
        restarts: 0,
        early_ends: 0,
        note: String::new(),
        disk_error: String::new(),
        link_error: String::new(),
        bus_error: String::new(),
    }
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
fn a_database_is_changed_by_one_job_at_a_time() {
    let (mut site, job) = with_database(Stage::Ready);
    let database = site.databases["d"].value.clone();
    let why = |site: &Site, settings: &Settings| {
        let changed = with_settings(&database, settings);
        check_update(site, "d", &database, &changed).err().map(|why| why.to_string())
    };
    let text = why(&site, &settings()).expect("the job of its creation runs");
    assert!(text.contains(&format!("job {job} changes the database")), "{text}");
    site.jobs.clear();
    assert_eq!(why(&site, &Settings { eviction: "allkeys-lru".into(), ..settings() }), None);
    assert_eq!(why(&site, &Settings { shards: 4, replicas: 0, ..settings() }), None);
    let text = why(&site, &Settings { port: 4, ..settings() }).expect("it is refused");
    assert!(text.contains("port cannot be changed"), "{text}");
    let (mut creating, _) = with_database(Stage::Creating);
    creating.jobs.clear();
    let old = &creating.databases["d"].value;
    assert!(check_update(&creating, "d", old, &with_settings(old, &settings())).is_err());
}

#[test]
fn copies_keep_their_memory_until_slots_have_moved() {
    let (mut site, _) = with_database(Stage::Ready);
    site.jobs.clear();
    let old = &site.databases["d"].value;
    let changed = with_settings(old, &Settings { shards: 6, ..settings() });
    assert_eq!([0, 2, 3].map(|shard| changed.copy_bytes(shard) >> 20), [1024, 1024, 512]);
    assert_eq!(with_settings(old, &settings()).floor, None);
    let flash = with_settings(old, &Settings { flash_bytes: 1 << 30, ..settings() });
    assert_eq!((old.layout, flash.layout), (0, 1), "copies are replaced");
}

#[test]
fn a_request_that_is_sent_again_finds_its_job() {
    let (mut site, _) = with_database(Stage::Ready);
    site.jobs.clear();
    let (keys, _) = keys();
    let owner = Owner { request_id: "r1".into(), ..owner() };
    let changed = with_settings(&site.databases["d"].value, &settings());
    let find = |site: &Site, kind| begun_before(site, &owner, kind, ("d", ""));
    assert_eq!(find(&site, JobKind::Update), Ok(None));
    let (job, transaction) = update(&site, &keys, ("d", &changed), &owner).expect("it can be");
    let value = put_at(&transaction, &keys.job(&job)).expect("it is written");
    let value: Job = serde_json::from_slice(value).expect("it is read");
    assert_eq!(value.aim.before, Some(settings().sealed()));
    site.jobs.insert(job.clone(), At { value, revision: 6 });
    assert_eq!(find(&site, JobKind::Update), Ok(Some(job)));
    assert!(find(&site, JobKind::Rebalance).is_err(), "it was another request");
}

#[test]
fn a_request_without_a_job_is_served_once() {
    let (mut site, job) = with_database(Stage::Ready);
    let (keys, _) = keys();
    site.jobs.get_mut(&job).expect("it is there").value.request_id = "of-a-job".into();
    let (first, other) = (("r1", "POST /zone 1"), ("r1", "POST /zone 2"));
    assert_eq!(served_before(&site, first), Ok(false));
    for number in 0..150 {
        let mut transaction = Transaction::default();
        let id = if number == 149 { "r1".to_owned() } else { number.to_string() };
        note_served(&site, &keys, (&id, first.1), &mut transaction);
        let value = put_at(&transaction, &keys.requests()).expect("it is written");
        site.requests = serde_json::from_slice(value).expect("it is read");
    }
    assert_eq!(site.requests.len(), MAX_REQUESTS);
    assert_eq!(served_before(&site, first), Ok(true));
    assert!(served_before(&site, other).is_err(), "it was another request");
    assert!(served_before(&site, ("of-a-job", first.1)).is_err(), "it was a job");
    let owner = Owner { request_id: "r1".into(), ..owner() };
    assert!(begun_before(&site, &owner, JobKind::Update, ("d", "")).is_err(), "it was no job");
    assert_eq!(served_before(&site, ("", first.1)), Ok(false), "it has no name");
}

#[test]
fn a_job_can_be_cancelled_but_not_a_deletion() {
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

//! The client against a real etcd, which each test starts and ends. `tests/etcd` finds it.

mod access;
mod copies;
mod leader;
mod many;
mod process;

use cluster::Moment;
use cluster::coordinator::{
    Change, Compare, Coordinator, Failure, LeaseCall, LeaseReply, Outcome, Transaction,
};
use etcd::{Client, Endpoint};
use process::{PATIENCE, TIMEOUT, free_ports, start};

fn put(key: &str, value: &[u8]) -> Change {
    Change::Put { key: key.into(), value: value.to_vec(), lease: None }
}

fn commit(client: &mut Client, compares: &[(&str, u64)], changes: Vec<Change>) -> Outcome {
    let compare = |&(key, revision): &(&str, u64)| Compare { key: key.into(), revision };
    let compares = compares.iter().map(compare).collect();
    client.commit(&Transaction { compares, changes }).expect("etcd is there")
}

fn done(outcome: Outcome) -> u64 {
    let Outcome::Done(revision) = outcome else { panic!("a conflict") };
    revision
}

#[test]
fn transactions_compare_revisions() {
    let etcd = start("transactions");
    let mut client = etcd.client();
    let bytes: Vec<u8> = (0..=255).collect();
    let first = done(commit(&mut client, &[("/a/1", 0)], vec![put("/a/1", &bytes)]));
    assert_eq!(commit(&mut client, &[("/a/1", 0)], vec![put("/a/1", b"x")]), Outcome::Conflict);
    let both = vec![put("/a/2", b""), Change::Delete { key: "/a/1".into() }, put("/b", b"y")];
    let second = done(commit(&mut client, &[("/a/1", first), ("/a/2", 0)], both));
    assert!(second > first);

    let now = client.range("/a/", None).expect("etcd is there");
    let keys: Vec<&str> = now.items.iter().map(|item| item.key.as_str()).collect();
    assert_eq!((keys, now.revision), (vec!["/a/2"], second));
    assert_eq!((now.items[0].value.len(), now.items[0].revision), (0, second));

    let before = client.range("/a/", Some(first)).expect("etcd is there");
    assert_eq!((before.items.len(), &before.items[0].value), (1, &bytes));
    assert_eq!(client.range("/none/", None).expect("etcd is there").items, []);
}

#[test]
fn a_large_value_comes_back_whole() {
    let etcd = start("large");
    let mut client = etcd.client();
    let value: Vec<u8> = (0..1_000_000_u32).map(|at| (at % 251) as u8).collect();
    for _ in 0..3 {
        commit(&mut client, &[], vec![put("/large", &value)]);
        let read = client.range("/large", None).expect("etcd is there");
        assert!(read.items[0].value == value, "it is another one");
    }
}

#[test]
fn keys_go_with_their_lease() {
    let etcd = start("leases");
    let mut client = etcd.client();
    let reply = client.lease(LeaseCall::Grant(Moment::from_millis(59_100)));
    let Ok(LeaseReply::Held { id, ttl }) = reply else { panic!("{reply:?}") };
    assert_eq!(ttl, Moment::from_secs(60));
    let key = || Change::Put { key: "/alive".into(), value: b"1".to_vec(), lease: Some(id) };
    done(commit(&mut client, &[], vec![key()]));
    assert_eq!(client.lease(LeaseCall::Renew(id)), Ok(LeaseReply::Held { id, ttl }));
    assert_eq!(client.lease(LeaseCall::Revoke(id)), Ok(LeaseReply::Gone));
    assert_eq!(client.range("/alive", None).expect("etcd is there").items, []);
    assert_eq!(client.lease(LeaseCall::Renew(id)), Ok(LeaseReply::Gone));
    assert_eq!(client.lease(LeaseCall::Revoke(id)), Ok(LeaseReply::Gone));
    assert_eq!(commit(&mut client, &[], vec![key()]), Outcome::Conflict);

    // Without a renewal it ends by itself.
    let reply = client.lease(LeaseCall::Grant(Moment::from_secs(2)));
    let Ok(LeaseReply::Held { id, .. }) = reply else { panic!("{reply:?}") };
    let change = Change::Put { key: "/alive".into(), value: b"2".to_vec(), lease: Some(id) };
    let put = done(commit(&mut client, &[], vec![change]));
    let changes = client.watch("/alive", put + 1, PATIENCE).expect("etcd is there");
    assert_eq!(changes.keys, ["/alive"]);
}

#[test]
fn a_watch_misses_nothing_and_goes_on() {
    let etcd = start("watch");
    let mut client = etcd.client();
    let mut writer = etcd.client();
    let first = done(commit(&mut writer, &[], vec![put("/a/1", b"1"), put("/b/1", b"1")]));
    let changes = client.watch("/a/", first, PATIENCE).expect("etcd is there");
    assert_eq!((changes.keys, changes.revision), (vec!["/a/1".to_owned()], first));
    let none = client.watch("/a/", first + 1, Moment::from_millis(50)).expect("etcd is there");
    assert_eq!((none.keys.len(), none.revision), (0, first));

    let mut last = first;
    for at in 0..100 {
        last = done(commit(&mut writer, &[], vec![put(&format!("/a/{at}"), b"2")]));
    }
    let mut seen = Vec::new();
    let mut from = first + 1;
    while from <= last {
        let changes = client.watch("/a/", from, PATIENCE).expect("etcd is there");
        assert!(!changes.keys.is_empty(), "the watch waits for what is there");
        seen.extend(changes.keys);
        from = changes.revision + 1;
    }
    assert_eq!(seen, (0..100).map(|at| format!("/a/{at}")).collect::<Vec<_>>());
}

#[test]
fn what_is_compacted_is_said_so() {
    let etcd = start("compaction");
    let mut client = etcd.client();
    let first = done(commit(&mut client, &[], vec![put("/a", b"1")]));
    let last = done(commit(&mut client, &[], vec![put("/a", b"2")]));
    client.compact(last).expect("etcd is there");
    assert_eq!(client.watch("/a", first, PATIENCE), Err(Failure::Compacted(last)));
    assert_eq!(client.range("/a", Some(first)), Err(Failure::Compacted(first)));
    assert_eq!(client.range("/a", None).expect("etcd is there").items[0].value, b"2");
}

#[test]
fn a_dead_etcd_is_away_and_the_next_endpoint_is_asked() {
    let [dead, _] = free_ports();
    let dead = Endpoint { host: "127.0.0.1".into(), port: dead, is_tls: false };
    let mut etcd = start("away");
    let mut client = Client::new(vec![dead, etcd.endpoint.clone()], TIMEOUT);
    assert!(matches!(client.health(), Err(Failure::Away(_))));
    let health = client.health().expect("the second one is there");
    assert!(health.has_leader && health.size_bytes > 0 && health.version.starts_with("3."));
    let members = client.members().expect("etcd is there");
    assert_eq!(members.iter().map(|it| it.name.as_str()).collect::<Vec<_>>(), ["one"]);
    assert_eq!(members[0].client_urls, [format!("http://{}", etcd.endpoint)]);
    let mut watcher = etcd.client();
    watcher.watch("/a", 1, Moment::from_millis(1)).expect("etcd is there");

    etcd.kill();
    assert!(matches!(client.health(), Err(Failure::Away(_))));
    assert!(matches!(client.range("/a", None), Err(Failure::Away(_))));
    assert!(matches!(watcher.watch("/a", 1, PATIENCE), Err(Failure::Away(_))));
}

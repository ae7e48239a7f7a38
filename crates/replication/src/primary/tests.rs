//! The primary's machine on a clock of its own.

use super::*;
use journal::HistoryId;
use journal::safe::SafePositions;

const SETTINGS: Settings =
    Settings { diskless: true, delay_s: 5, max_replicas: 0, ping_period_s: 10, timeout_s: 60 };

fn kept(first: Option<u64>, position: u64) -> Kept {
    let (first, position) = (first.map(JournalPos), JournalPos(position));
    Kept { history: History::new().branch(JournalPos(500)), first, position }
}

/// A machine with replicas that wait since the given times.
fn waiting(since_ms: &[i64], capa: &[u8]) -> Primary {
    let mut primary = Primary::default();
    for (client, &at) in (1..).zip(since_ms) {
        primary.configure(client, "10.0.0.1", b"capa", capa, Millis(at));
        let sync = primary.sync(client, "10.0.0.1", Wanted::Everything, &kept(None, 0), Millis(at));
        assert_eq!(sync, Sync::Full { was_partial: false });
        primary.link_mut(client).unwrap().has_socket = true;
    }
    primary
}

fn groups(primary: &mut Primary, settings: &Settings, at: i64) -> Vec<Group> {
    let sends = |action| if let Action::Send(group) = action { Some(group) } else { None };
    primary.tick(settings, Millis(at)).into_iter().filter_map(sends).collect()
}

#[test]
fn who_has_what_is_kept_continues() {
    let kept = kept(Some(100), 900);
    let mut client = 0;
    let mut ask = |id: HistoryId, at: u64| {
        client += 1;
        let wanted = Wanted::From(id, JournalPos(at));
        Primary::default().sync(client, "10.0.0.1", wanted, &kept, Millis(0))
    };
    let (id, second) = (kept.history.id, kept.history.second.unwrap().0);
    let full = Sync::Full { was_partial: true };
    assert_eq!(ask(id, 100), Sync::Continue(JournalPos(100)));
    assert_eq!(ask(id, 900), Sync::Continue(JournalPos(900)));
    assert_eq!(ask(id, 99), full);
    assert_eq!(ask(id, 901), full, "a position that this server has not reached");
    assert_eq!(ask(second, 500), Sync::Continue(JournalPos(500)));
    assert_eq!(ask(second, 501), full, "the histories differ from there on");
    assert_eq!(ask(HistoryId::random(), 200), full);
}

#[test]
fn a_snapshot_waits_for_more_replicas() {
    let mut primary = waiting(&[0, 3000], b"eof");
    assert_eq!(groups(&mut primary, &SETTINGS, 4999), []);
    let [group] = groups(&mut primary, &SETTINGS, 5000).try_into().unwrap();
    assert_eq!((group.clients.as_slice(), group.transfer), (&[1, 2][..], Transfer::Direct));
    assert_eq!(group.rdb_version, OLDEST_RDB);
    // The next one waits for the end of this one.
    primary.sync(3, "10.0.0.1", Wanted::Everything, &kept(None, 0), Millis(5000));
    primary.link_mut(3).unwrap().has_socket = true;
    assert_eq!(groups(&mut primary, &SETTINGS, 30_000), []);
    primary.sent(&group, Millis(30_000));
    let [next] = groups(&mut primary, &SETTINGS, 30_000).try_into().unwrap();
    assert_eq!((next.clients.as_slice(), next.transfer), (&[3][..], Transfer::File));
}

#[test]
fn enough_replicas_end_the_wait() {
    let mut primary = waiting(&[0, 100], b"eof");
    let settings = Settings { max_replicas: 2, ..SETTINGS };
    assert_eq!(groups(&mut primary, &settings, 100).len(), 1);
}

#[test]
fn the_form_is_one_that_all_of_a_group_take() {
    let mut primary = waiting(&[0, 0, 0], b"eof");
    primary.configure(2, "", b"version", b"9.1.0", Millis(0));
    let [group] = groups(&mut primary, &SETTINGS, 5000).try_into().unwrap();
    assert_eq!((group.clients.as_slice(), group.rdb_version), (&[1, 3][..], OLDEST_RDB));
    primary.postponed(&group);
    primary.disconnected(1);
    primary.disconnected(3);
    let [group] = groups(&mut primary, &SETTINGS, 5000).try_into().unwrap();
    assert_eq!((group.clients.as_slice(), group.rdb_version), (&[2][..], NEWEST_RDB));
}

#[test]
fn the_stream_begins_with_the_first_acknowledgement() {
    let safe = SafePositions::default();
    let mut primary = waiting(&[0], b"eof");
    primary.link_mut(1).unwrap().copy = Some(safe.add_copy(JournalPos(0)));
    let [group] = groups(&mut primary, &SETTINGS, 5000).try_into().unwrap();
    assert_eq!(primary.link(1).unwrap().stage, Stage::Receiving);
    primary.sent(&group, Millis(6000));
    assert_eq!(primary.link(1).unwrap().stage, Stage::Loading);
    assert_eq!(primary.good_replicas(Millis(6000), 10), 0);
    assert!(primary.acknowledge(1, JournalPos(7), Some(JournalPos(5)), Millis(8000)));
    assert!(!primary.acknowledge(1, JournalPos(9), None, Millis(9000)));
    assert_eq!((safe.count_received(JournalPos(9)), safe.count_synced(JournalPos(6))), (1, 0));
    assert_eq!(primary.good_replicas(Millis(19_000), 10), 1);
    assert_eq!(primary.good_replicas(Millis(20_000), 10), 0);
}

#[test]
fn a_silent_replica_is_disconnected_and_pings_are_regular() {
    let mut primary = Primary::default();
    assert_eq!(primary.tick(&SETTINGS, Millis(0)), []);
    let kept = kept(Some(0), 10);
    primary.sync(1, "", Wanted::From(kept.history.id, JournalPos(3)), &kept, Millis(0));
    assert_eq!(primary.tick(&SETTINGS, Millis(0)), [Action::Ping]);
    assert_eq!(primary.tick(&SETTINGS, Millis(9999)), []);
    assert_eq!(primary.tick(&SETTINGS, Millis(10_000)), [Action::Ping]);
    primary.acknowledge(1, JournalPos(3), None, Millis(20_000));
    assert!(!primary.tick(&SETTINGS, Millis(80_000)).contains(&Action::Disconnect(1)));
    assert!(primary.tick(&SETTINGS, Millis(80_001)).contains(&Action::Disconnect(1)));
}

#[test]
fn options_are_checked() {
    let mut primary = Primary::default();
    let mut set =
        |option: &[u8], value: &[u8]| primary.configure(1, "ip", option, value, Millis(0));
    assert_eq!(set(b"Listening-Port", b"7000"), Configured::Noted);
    assert_eq!(set(b"listening-port", b"70000"), Configured::Invalid);
    assert_eq!(set(b"capa", b"zstd-of-the-future"), Configured::Noted);
    assert_eq!(set(b"version", b"nine"), Configured::Invalid);
    assert_eq!(set(b"colour", b"red"), Configured::Unknown);
    assert_eq!(set(b"ip-address", b"host"), Configured::Noted);
    assert!(!primary.link(1).unwrap().is_replica());
    assert_eq!(primary.link(1).unwrap().shown_ip(), "host");
    assert_eq!(primary.link(1).unwrap().facts.port, 7000);
}

//! A hostile replica: whatever it says and in whatever order, the primary's machine does not panic,
//! grants only bytes that are kept, never has two snapshots under way, and knows no link of a
//! client that is gone.

use replication::primary::{
    Acknowledged, Action, Group, Kept, Primary, RdbVersions, Settings, Stage, Sync,
};
use replication::wire::{Answer, DualChannels, EndOffset, SnapshotEnd, Wanted};
use std::collections::BTreeSet;

use journal::{History, HistoryId, JournalPos};
use keyspace::Millis;

/// The id of the history, which a replica may guess.
const ID: &[u8; 40] = b"0123456789012345678901234567890123456789";

/// A client is gone, and the next one of this number, which a server would not give out again, is
/// another.
fn leave(sending: &mut Option<Group>, client: u64) {
    if let Some(group) = sending {
        group.clients.retain(|other| *other != client);
    }
}

/// Lines: the first byte says what happens, the second to which client, and words follow.
#[expect(clippy::too_many_lines, reason = "an arm for each kind of line")]
pub fn check(input: &[u8]) {
    let id = HistoryId::parse(ID).expect("it is one");
    let history = History { id, second: None };
    let kept = Kept { history, first: Some(JournalPos(100)), position: JournalPos(900) };
    let cut = (id, JournalPos(500));
    let mut primary = Primary::default();
    let mut clients: BTreeSet<u64> = BTreeSet::new();
    let mut sending: Option<Group> = None;
    let mut now = Millis(0);
    for line in input.split(|&byte| byte == b'\n') {
        // What a primary answers is read by other servers' replicas, and what they answer by this
        // one.
        let _ = (Answer::parse(line), SnapshotEnd::parse(line), EndOffset::parse(line));
        let [what, whose, rest @ ..] = line else { continue };
        let client = u64::from(whose % 8);
        let mut words = rest.split(|&byte| byte == b' ');
        let (first, second) = (words.next().unwrap_or_default(), words.next().unwrap_or_default());
        match what % 8 {
            0 | 1 => {
                primary.configure(client, "ip", first, second, now);
                clients.insert(client);
            }
            2 => {
                let Some(wanted) = Wanted::parse(first, second) else { continue };
                // The command ignores a replica that asks again.
                if primary.link(client).is_some_and(|link| link.is_replica()) {
                    continue;
                }
                clients.insert(client);
                let offered = DualChannels { valkey: whose & 16 != 0, redis: whose & 8 != 0 };
                match primary.sync(client, "ip", wanted, &kept, offered, now) {
                    Sync::Continue(from) => {
                        assert!((100..=900).contains(&from.0), "bytes that are not kept");
                        assert_eq!(wanted, Wanted::From(id, from));
                    }
                    Sync::Full { .. } => {
                        primary.link_mut(client).expect("it has one").has_socket = true;
                    }
                    Sync::OwnChannel { .. } => {}
                    Sync::Join(second) => {
                        assert_eq!(primary.link(second).and_then(|link| link.cut), Some(cut));
                    }
                }
            }
            3 => {
                let position = structs::numbers::parse_i64(first).unwrap_or_default() as u64;
                let stage = primary.link(client).map(|link| link.stage);
                let said = primary.acknowledge(client, JournalPos(position), None, now);
                let begins = said == Acknowledged::Begins;
                assert!(!begins || stage == Some(Stage::Loading), "a stream in a snapshot");
                let counts = said == Acknowledged::Counts;
                assert!(!counts || stage == Some(Stage::Parallel), "a copy without a stream");
            }
            4 => {
                primary.cut_off(client);
                primary.disconnected(client);
                clients.remove(&client);
                leave(&mut sending, client);
            }
            5 => {
                if let Some(group) = sending.take() {
                    primary.sent(&group, now);
                }
            }
            6 => {
                if let Some(group) = sending.take() {
                    primary.postponed(&group);
                }
            }
            _ => {
                now.0 += i64::from(*whose) * 100;
                let settings = Settings {
                    diskless: *whose & 1 == 0,
                    delay_s: 1,
                    max_replicas: 2,
                    ping_period_s: 1,
                    timeout_s: 5,
                    rdb: RdbVersions::OLDEST,
                    rdb_of_files: RdbVersions::VALKEY,
                };
                for action in primary.tick(&settings, now) {
                    match action {
                        Action::Send(group) => {
                            for &client in &group.clients {
                                if let Some(main) = primary.begin_parallel(client, cut) {
                                    assert!(clients.contains(&main), "a stream for nothing");
                                }
                            }
                            assert!(sending.replace(group).is_none(), "two snapshots at once");
                        }
                        Action::Disconnect(client) => {
                            primary.disconnected(client);
                            clients.remove(&client);
                            leave(&mut sending, client);
                        }
                        Action::Keepalive(client) => {
                            let group = sending.as_ref();
                            let is_sent =
                                group.is_some_and(|group| group.clients.contains(&client));
                            assert!(!is_sent, "a byte in a snapshot");
                        }
                        Action::CallOff => {
                            let group = sending.as_ref().expect("a snapshot is on its way");
                            let is_gone = |client| !clients.contains(client);
                            assert!(group.clients.iter().all(is_gone), "one waits for it");
                        }
                        Action::Ping => {}
                    }
                }
            }
        }
        assert!(primary.replicas().all(|link| clients.contains(&link.client)));
        assert!(primary.allowance(client, u64::MAX, u64::MAX) == u64::MAX);
    }
}

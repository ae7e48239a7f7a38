//! The replica's machine on a clock of its own.

use super::*;

fn around(has: Option<(HistoryId, JournalPos)>) -> Surroundings {
    let identity = Identity { port: 7000, version: "9.1.0".into(), ..Identity::default() };
    Surroundings { identity, has, timeout_ms: 60_000, hands_over: false }
}

/// What the machine sends, and what else it does, in words.
fn told(actions: &[Action]) -> Vec<String> {
    let text = |bytes: &[u8]| {
        let words = String::from_utf8_lossy(bytes).into_owned();
        let is_word = |line: &&str| !line.is_empty() && !line.starts_with(['*', '$']);
        words.split("\r\n").filter(is_word).collect::<Vec<_>>().join(" ")
    };
    let tell = |action: &Action| match action {
        Action::Send(bytes) => Some(format!("> {}", text(bytes))),
        Action::Log(_) => None,
        Action::Warn(why) => Some(format!("! {why}")),
        other => Some(format!("{other:?}")),
    };
    actions.iter().filter_map(tell).collect()
}

/// A machine that has presented itself at 0 ms and asks for the stream.
fn asking(around: &Surroundings) -> (Replica, Vec<String>) {
    let mut replica = Replica::default();
    replica.restart(Millis(0));
    assert_eq!(replica.tick(around, Millis(0)), [Action::Connect]);
    assert_eq!(told(&replica.connected(Millis(0))), ["> PING"]);
    let mut last = told(&replica.line(b"+PONG", around, Millis(0)));
    while replica.stage() == Stage::Presenting {
        last = told(&replica.line(b"+OK", around, Millis(0)));
    }
    (replica, last)
}

#[test]
fn it_presents_itself_and_asks() {
    let id = HistoryId::random();
    let mut around = around(Some((id, JournalPos(41))));
    around.identity.user = b"me".to_vec();
    around.identity.password = b"secret".to_vec();
    around.identity.announced_ip = b"10.0.0.1".to_vec();
    let mut replica = Replica::default();
    replica.tick(&around, Millis(0));
    replica.connected(Millis(0));
    let said = told(&replica.line(b"-NOAUTH Authentication required.", &around, Millis(0)));
    let expected = "> AUTH me secret REPLCONF listening-port 7000 REPLCONF ip-address 10.0.0.1 \
                    REPLCONF capa eof capa psync2 REPLCONF version 9.1.0";
    assert_eq!(said, [expected]);
    let refused = told(&replica.line(b"-WRONGPASS invalid", &around, Millis(0)));
    assert_eq!(refused, ["Close", "! Unable to AUTH to MASTER: -WRONGPASS invalid"]);
    assert_eq!(replica.stage(), Stage::Waiting, "AUTH was refused");
    let (_, asked) = asking(&around);
    assert_eq!(asked, [format!("> PSYNC {id} 42")]);
}

#[test]
fn what_a_primary_does_not_know_of_replconf_does_no_harm() {
    let around = around(None);
    let mut replica = Replica::default();
    replica.tick(&around, Millis(0));
    replica.connected(Millis(0));
    replica.line(b"+PONG", &around, Millis(0));
    let mut last = Vec::new();
    for _ in 0..3 {
        last = told(&replica.line(b"-ERR Unrecognized REPLCONF option", &around, Millis(0)));
    }
    assert_eq!(last, ["> PSYNC ? -1"]);
}

#[test]
fn a_snapshot_and_then_the_stream() {
    let around = around(None);
    let (mut replica, _) = asking(&around);
    assert_eq!(told(&replica.line(b"", &around, Millis(10))), [""; 0], "kept alive");
    let id = HistoryId::random();
    replica.line(format!("+FULLRESYNC {id} 77").as_bytes(), &around, Millis(20));
    let promise = Promise { end: SnapshotEnd::Length(9), from: Some((id, JournalPos(77))) };
    assert_eq!(replica.line(b"$9", &around, Millis(30)), [Action::Receive(promise)]);
    assert_eq!(replica.tick(&around, Millis(900_000)), [], "loading may take long");
    assert_eq!(replica.loaded(Millis(900_000)), [Action::Acknowledge]);
    assert_eq!(replica.tick(&around, Millis(900_999)), []);
    assert_eq!(replica.tick(&around, Millis(901_000)), [Action::Acknowledge]);
    assert_eq!(told(&replica.tick(&around, Millis(960_001))).len(), 2, "it has timed out");
}

#[test]
fn a_history_may_get_another_id() {
    let around = around(Some((HistoryId::random(), JournalPos(0))));
    let (mut replica, _) = asking(&around);
    let id = HistoryId::random();
    let actions = replica.line(format!("+CONTINUE {id}").as_bytes(), &around, Millis(0));
    assert_eq!(told(&actions), [format!("{:?}", Action::Follow(Some(id))), "Acknowledge".into()]);
    assert_eq!(replica.stage(), Stage::Following);
}

#[test]
fn an_old_primary_is_asked_by_sync() {
    let around = around(None);
    let (mut replica, _) = asking(&around);
    let actions = replica.line(b"-ERR unknown command 'PSYNC'", &around, Millis(0));
    assert_eq!(actions.last(), Some(&Action::Send(b"SYNC\r\n".to_vec())));
    let promise = Promise { end: SnapshotEnd::Length(3), from: None };
    assert_eq!(replica.line(b"$3", &around, Millis(0)), [Action::Receive(promise)]);
}

#[test]
fn failures_are_retried_later_and_later_and_told_once() {
    let around = around(None);
    let mut replica = Replica::default();
    let (mut now, mut waits, mut warnings) = (0, Vec::new(), 0);
    for _ in 0..6 {
        while replica.tick(&around, Millis(now)).is_empty() {
            now += 10;
        }
        let actions = replica.lost("Connection refused", Millis(now));
        warnings += actions.iter().filter(|action| matches!(action, Action::Warn(_))).count();
        waits.push(replica.due.0 - now);
    }
    assert_eq!((waits.as_slice(), warnings), (&[100, 200, 400, 800, 1000, 1000][..], 1));
    // A snapshot costs more than an attempt to connect.
    let (mut replica, _) = asking(&around);
    replica.line(format!("+FULLRESYNC {} 1", HistoryId::random()).as_bytes(), &around, Millis(0));
    replica.line(b"$9", &around, Millis(0));
    replica.lost("the RDB is corrupt", Millis(0));
    assert_eq!(replica.due, Millis(1000));
}

#[test]
fn a_successor_takes_over_or_refuses() {
    let id = HistoryId::random();
    let around = Surroundings { hands_over: true, ..around(Some((id, JournalPos(7)))) };
    let answered = |line: &str| {
        let (mut replica, actions) = asking(&around);
        assert_eq!(actions, [format!("> PSYNC {id} 8 FAILOVER")]);
        let actions = replica.line(line.as_bytes(), &around, Millis(0));
        let ends: Vec<bool> = actions
            .iter()
            .filter_map(|action| match action {
                Action::HandedOver { is_accepted } => Some(*is_accepted),
                _ => None,
            })
            .collect();
        (ends, replica.stage())
    };
    assert_eq!(answered(&format!("+CONTINUE {id}")), (vec![true], Stage::Following));
    assert_eq!(answered(&format!("+FULLRESYNC {id} 9")), (vec![true], Stage::Heading));
    assert_eq!(answered("-NOPERM no permissions"), (vec![false], Stage::Waiting));
    assert_eq!(answered("-NOMASTERLINK not now"), (vec![false], Stage::Waiting));
    let already = "-ERR PSYNC FAILOVER can't be sent to a master.";
    assert_eq!(answered(already), (vec![true], Stage::Waiting));
    assert_eq!(answered(""), (vec![], Stage::Asking));
}

#[test]
fn nonsense_ends_the_link() {
    let around = around(None);
    for line in ["-ERR no", "*3", "hello"] {
        let mut replica = Replica::default();
        replica.tick(&around, Millis(0));
        replica.connected(Millis(0));
        replica.line(line.as_bytes(), &around, Millis(0));
        assert_eq!(replica.stage(), Stage::Waiting, "{line}");
    }
    let (mut replica, _) = asking(&around);
    replica.line(b"+CONTINUE", &around, Millis(0));
    assert_eq!(replica.stage(), Stage::Waiting, "it has nothing to go on from");
    let (mut replica, _) = asking(&around);
    replica.line(format!("+FULLRESYNC {} 1", HistoryId::random()).as_bytes(), &around, Millis(0));
    replica.line(b"$EOF:short", &around, Millis(0));
    assert_eq!(replica.stage(), Stage::Waiting);
}

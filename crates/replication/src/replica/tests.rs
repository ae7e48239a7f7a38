//! The replica's machine on a clock of its own.

use super::*;

fn around(has: Option<(HistoryId, JournalPos)>) -> Surroundings {
    let identity = Identity { port: 7000, version: "9.1.0".into(), ..Identity::default() };
    Surroundings {
        identity,
        has,
        timeout_ms: 60_000,
        hands_over: false,
        dual: DualChannels::default(),
    }
}

/// Returns what the machine sends, and what else it does, in words.
fn told(actions: &[Action]) -> Vec<String> {
    let text = |bytes: &[u8]| {
        let words = String::from_utf8_lossy(bytes).into_owned();
        let is_word = |line: &&str| !line.is_empty() && !line.starts_with(['*', '$']);
        words.split("\r\n").filter(is_word).collect::<Vec<_>>().join(" ")
    };
    let tell = |action: &Action| match action {
        Action::Send(channel, bytes) => {
            let over = if *channel == Channel::Rdb { "rdb " } else { "" };
            Some(format!("{over}> {}", text(bytes)))
        }
        Action::Log(_) => None,
        Action::Warn(why) => Some(format!("! {why}")),
        other => Some(format!("{other:?}")),
    };
    actions.iter().filter_map(tell).collect()
}

/// Returns a machine that has presented itself at 0 ms and asks for the stream.
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
    let promise = Promise {
        end: SnapshotEnd::Length(19),
        from: Some((id, JournalPos(77))),
        is_parallel: false,
    };
    assert_eq!(replica.line(b"$19", &around, Millis(30)), [Action::Receive(promise)]);
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
    assert_eq!(actions.last(), Some(&Action::Send(Channel::Main, b"SYNC\r\n".to_vec())));
    let promise = Promise { end: SnapshotEnd::Length(13), from: None, is_parallel: false };
    assert_eq!(replica.line(b"$13", &around, Millis(0)), [Action::Receive(promise)]);
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
    replica.line(b"$19", &around, Millis(0));
    replica.lost("the RDB is corrupt", Millis(0));
    assert_eq!(replica.due, Millis(1000));
}

#[test]
fn a_stream_that_ends_is_asked_for_at_once() {
    let id = HistoryId::random();
    let around = around(Some((id, JournalPos(7))));
    for (lasted, wait) in [(0, 10), (99, 10), (100, 0), (5000, 0)] {
        let (mut replica, _) = asking(&around);
        replica.line(format!("+CONTINUE {id}").as_bytes(), &around, Millis(0));
        replica.lost("Connection with master lost.", Millis(lasted));
        assert_eq!(replica.due, Millis(lasted + wait), "after {lasted} ms");
        // What follows is a failure to connect.
        replica.tick(&around, replica.due);
        let now = replica.due;
        replica.lost("Connection refused", now);
        assert!(replica.due.0 - now.0 >= 100);
    }
}

/// A machine whose snapshot is loaded at this time.
fn loaded(replica: &mut Replica, around: &Surroundings, now: Millis) {
    while replica.stage() != Stage::Asking {
        if replica.stage() == Stage::Waiting {
            assert!(!replica.tick(around, now).is_empty(), "it is due");
            replica.connected(now);
        }
        replica.line(b"+OK", around, now);
    }
    replica.line(format!("+FULLRESYNC {} 1", HistoryId::random()).as_bytes(), around, now);
    replica.line(b"$19", around, now);
    replica.loaded(now);
}

#[test]
fn snapshots_in_vain_are_asked_for_ever_more_rarely() {
    let around = around(None);
    let (mut replica, _) = asking(&around);
    let (mut now, mut waits) = (Millis(0), Vec::new());
    for _ in 0..8 {
        loaded(&mut replica, &around, now);
        let end = Millis(now.0 + 500);
        replica.corrupt("Protocol error from MASTER: no request", end);
        waits.push(replica.due.0 - end.0);
        now = replica.due;
    }
    assert_eq!(waits, [1000, 2000, 4000, 8000, 16_000, 32_000, 60_000, 60_000]);
    // The link is lost, time after time.
    let (mut replica, _) = asking(&around);
    let (mut now, mut waits) = (Millis(0), Vec::new());
    for _ in 0..3 {
        loaded(&mut replica, &around, now);
        let end = Millis(now.0 + 300);
        replica.lost("Connection with master lost.", end);
        waits.push(replica.due.0 - end.0);
        now = replica.due;
    }
    assert_eq!(waits, [0, 700, 700]);
}

#[test]
fn an_answer_that_is_none_is_a_failure() {
    let around = around(None);
    for answer in [format!("+FULLRESYNC {} -5", HistoryId::random()), "+CONTIN".to_owned()] {
        let (mut replica, _) = asking(&around);
        let actions = replica.line(answer.as_bytes(), &around, Millis(0));
        assert_eq!(actions[0], Action::Close, "{answer}");
    }
    for length in ["$0", "$9", "$-1"] {
        let (mut replica, _) = asking(&around);
        let answer = format!("+FULLRESYNC {} 5", HistoryId::random());
        replica.line(answer.as_bytes(), &around, Millis(0));
        assert_eq!(replica.line(length.as_bytes(), &around, Millis(0))[0], Action::Close);
    }
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

/// Returns a machine that knows both protocols of two channels, and has been told to open the
/// second connection.
fn branching(answer: &[u8]) -> (Surroundings, Replica, Vec<String>) {
    let mut around = around(None);
    around.dual = DualChannels { valkey: true, redis: true };
    around.identity.password = b"secret".to_vec();
    let (mut replica, _) = asking(&around);
    let told_first = told(&replica.line(answer, &around, Millis(0)));
    assert_eq!(told_first, ["ConnectRdbChannel"]);
    assert_eq!((replica.stage(), replica.listens_to()), (Stage::Branching, Channel::Rdb));
    let said = told(&replica.rdb_channel_connected(&around, Millis(0)));
    (around, replica, said)
}

#[test]
fn two_channels_by_the_protocol_of_valkey() {
    let (around, mut replica, said) = branching(b"+DUALCHANNELSYNC");
    let presented = "rdb > AUTH secret REPLCONF capa eof rdb-only 1 rdb-channel 1 version 9.1.0 \
                     listening-port 7000";
    assert_eq!(said, [presented]);
    let id = HistoryId::random();
    assert_eq!(told(&replica.line(b"+OK", &around, Millis(1))), [""; 0]);
    assert_eq!(told(&replica.line(b"+OK", &around, Millis(1))), ["rdb > SYNC"]);
    assert_eq!(told(&replica.line(b"", &around, Millis(2))), [""; 0], "kept alive");
    let end = format!("$ENDOFF:77 {id} -1 12");
    let said = told(&replica.line(end.as_bytes(), &around, Millis(3)));
    assert_eq!(said, ["> REPLCONF set-rdb-client-id 12"]);
    assert_eq!((replica.stage(), replica.listens_to()), (Stage::Joining, Channel::Main));
    let said = told(&replica.line(b"+OK", &around, Millis(4)));
    assert_eq!(said, [format!("> PSYNC {id} 78")]);
    replica.line(format!("+CONTINUE {id}").as_bytes(), &around, Millis(4));
    assert_eq!((replica.stage(), replica.listens_to()), (Stage::Heading, Channel::Rdb));
    let actions = replica.line(b"$19", &around, Millis(5));
    let from = Some((id, JournalPos(77)));
    let promise = Promise { end: SnapshotEnd::Length(19), from, is_parallel: true };
    assert_eq!(actions, [Action::Receive(promise)]);
    assert_eq!(replica.loaded(Millis(6)), [Action::Acknowledge]);
}

#[test]
fn two_channels_by_the_protocol_of_redis() {
    let (around, mut replica, said) = branching(b"+RDBCHANNELSYNC 5");
    let presented = "rdb > AUTH secret REPLCONF capa eof rdb-only 1 rdb-channel 1 main-ch-client-id 5 \
                     listening-port 7000";
    assert_eq!(said, [presented]);
    let id = HistoryId::random();
    replica.line(b"+OK", &around, Millis(1));
    assert_eq!(told(&replica.line(b"+OK", &around, Millis(1))), ["rdb > PSYNC ? -1"]);
    let full = format!("+FULLRESYNC {id} 77");
    assert_eq!(told(&replica.line(full.as_bytes(), &around, Millis(2))), [""; 0]);
    assert_eq!((replica.stage(), replica.listens_to()), (Stage::Heading, Channel::Rdb));
    let actions = replica.line(b"$19", &around, Millis(5));
    let from = Some((id, JournalPos(77)));
    let promise = Promise { end: SnapshotEnd::Length(19), from, is_parallel: true };
    assert_eq!(actions, [Action::Receive(promise)]);
}

#[test]
fn a_second_channel_that_fails_ends_the_attempt() {
    for lie in [&b"-ERR no"[..], b"+CONTINUE", b"$9", b"$ENDOFF:1 2 3 4"] {
        for answer in [&b"+DUALCHANNELSYNC"[..], b"+RDBCHANNELSYNC 5"] {
            let (around, mut replica, _) = branching(answer);
            replica.line(b"+OK", &around, Millis(1));
            replica.line(b"+OK", &around, Millis(1));
            assert_eq!(replica.line(lie, &around, Millis(1))[0], Action::Close);
            assert_eq!(replica.stage(), Stage::Waiting);
        }
    }
    let (around, mut replica, _) = branching(b"+DUALCHANNELSYNC");
    let refused = told(&replica.line(b"-NOAUTH", &around, Millis(1)));
    assert_eq!(refused[0], "Close");
    // One that was not offered.
    let (mut replica, _) = asking(&super::tests::around(None));
    let lost = replica.line(b"+DUALCHANNELSYNC", &around, Millis(1));
    assert_eq!(lost[0], Action::Close);
}

#[test]
fn a_primary_that_uses_one_channel_is_told_of() {
    let mut around = around(None);
    around.dual.redis = true;
    let (mut replica, _) = asking(&around);
    let id = HistoryId::random();
    let actions = replica.line(format!("+FULLRESYNC {id} 1").as_bytes(), &around, Millis(0));
    let is_said = |action: &Action| matches!(action, Action::Log(line) if line.contains("second"));
    assert!(actions.iter().any(is_said));
    assert_eq!(replica.listens_to(), Channel::Main);
}

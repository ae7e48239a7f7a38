//! Every special state is seen by a request: its bit is set and cleared with it, and the bit leads
//! to the slow path.

use super::*;
use crate::append_log::LogState;
use crate::clients::Client;
use crate::clock::{Clock, ManualTime};
use crate::command::{Command, KeyFlags, KeySpec, Outcome};
use crate::hotkeys::{CpuMs, Wanted};
use crate::journal::IfBehind;
use crate::latency::Slow;
use crate::mailbox::{Message, Push};
use crate::pause::Actions;
use crate::persistence::Outcome as SaveOutcome;
use crate::persistence::snapshots::Snapshots;
use crate::session::Tracking;
use crate::special::Special;
use crate::transaction::Multi;
use cluster::id::Id;
use cluster::slots::Slots;
use config::{Config, SetContext};
use keyspace::{DbIndex, Millis};
use std::sync::atomic::Ordering::SeqCst;
use std::time::Duration;

fn ok(cx: &mut Cx<'_>, _: Args<'_>) -> Outcome {
    cx.reply.ok();
    Ok(())
}

static GET: Command = Command {
    name: "get",
    arity: 2,
    flags: Flags::READONLY,
    keys: &[KeySpec::one(KeyFlags::RO.with(KeyFlags::ACCESS))],
    run: ok,
    ..Command::ROW
};
static SET: Command = Command {
    name: "set",
    arity: 2,
    flags: Flags::WRITE.with(Flags::DENYOOM),
    keys: &[KeySpec::one(KeyFlags::RW.with(KeyFlags::UPDATE))],
    run: ok,
    ..Command::ROW
};
static PUBLISH: Command =
    Command { name: "publish", arity: 2, flags: Flags::PUBSUB, run: ok, ..Command::ROW };
static SCAN: Command = Command {
    name: "scan",
    arity: 2,
    flags: Flags::READONLY.with(Flags::WALKS),
    run: ok,
    ..Command::ROW
};
static ROWS: &[&Command] = &[&GET, &SET, &PUBLISH, &SCAN];

/// An engine and what a thread of it has.
struct Bench {
    engine: &'static Engine,
    thread: crate::thread::ThreadContext,
    session: Session,
    time: &'static ManualTime,
}

impl Bench {
    fn new() -> Bench {
        let time = ManualTime::starting_at(Millis(1));
        let engine = Engine::new(Config::new(), ROWS, &[], 1, Clock::manual(time));
        let thread = engine.context(0);
        let client = Arc::new(Client::unconnected(1, 0, Millis(1)));
        let session = Session::new(client, engine.acl.default_user(), true);
        Bench { engine, thread, session, time }
    }

    fn set(&self, option: &str, value: &str) {
        let wanted = [(option.as_bytes(), value.as_bytes())];
        let set = self.engine.config.set(&wanted, SetContext::default(), &mut |_| Ok(()));
        set.expect("the option can be set");
    }

    /// Returns the reply to a request for one key, or why it cannot run now.
    fn ask(&mut self, name: &str) -> String {
        let mut out = resp::Output::default();
        let now = self.engine.clock.wall();
        self.thread.reader.enter();
        let mut cx = Cx::new(self.engine, &self.thread, &mut self.session, now, &mut out);
        cx.start_timing();
        let words: [&[u8]; 2] = [name.as_bytes(), b"key"];
        let outcome = process(&mut cx, None, Args::new(&words));
        drop(cx);
        self.thread.reader.leave();
        match outcome {
            Ok(()) => String::from_utf8_lossy(&out.into_bytes()).trim_end().to_owned(),
            Err(reason) => format!("{reason:?}"),
        }
    }

    /// Asserts that the word has no other bit than these.
    #[track_caller]
    fn check_bits(&self, expected: &[Special]) {
        let mask = expected.iter().fold(0, |mask, state| mask | state.mask());
        let seen = self.engine.special.bits();
        let of = |bits: u64| Special::ALL.into_iter().filter(move |it| bits & it.mask() != 0);
        let names = |bits| of(bits).map(|it| format!("{it:?}")).collect::<Vec<_>>();
        assert_eq!(names(seen), names(mask));
    }
}

/// Asserts that a state sets its bit alone, that it changes what a request is told, and that both
/// end with it.
#[track_caller]
fn check(
    state: Special,
    begin: impl FnOnce(&mut Bench),
    (request, told): (&str, &str),
    end: impl FnOnce(&mut Bench),
) {
    let mut bench = Bench::new();
    bench.check_bits(&[]);
    assert_eq!(bench.ask(request), "+OK", "{state:?} has not begun");
    begin(&mut bench);
    bench.check_bits(&[state]);
    let reply = bench.ask(request);
    assert!(reply.contains(told) && reply != "+OK", "{state:?}: {reply}");
    end(&mut bench);
    bench.check_bits(&[]);
    assert_eq!(bench.ask(request), "+OK", "{state:?} has ended");
}

#[test]
fn each_bit_has_a_place_and_a_test_that_looks_at_it() {
    let mut seen = 0;
    for state in Special::ALL {
        assert_eq!(seen & state.mask(), 0, "{state:?} has its own bit");
        seen |= state.mask();
    }
    assert_eq!(seen, Special::GATES | Special::KEYS | Special::USAGE);
    assert_eq!(Special::GATES & Special::SERVER, Special::SERVER);
}

#[test]
fn options_are_seen() {
    let least =
        |count: &'static str| move |bench: &mut Bench| bench.set("min-replicas-to-write", count);
    check(Special::MinReplicas, least("1"), ("set", "NOREPLICAS"), least("0"));
    let bench = Bench::new();
    // Without the server's allocator no memory is counted, so that requests are refused is tested
    // with a server, as is what is noted of slots, in a cluster.
    bench.set("maxmemory", "1");
    bench.check_bits(&[Special::MemoryLimit]);
    assert!(bench.engine.is_special());
    bench.set("maxmemory", "0");
    bench.check_bits(&[]);
    bench.set("cluster-slot-stats-enabled", "yes");
    bench.check_bits(&[Special::SlotStats]);
    bench.set("cluster-slot-stats-enabled", "no");
    bench.check_bits(&[]);
    // What was recorded, as at the start, is seen as well.
    bench.engine.config.record("maxmemory", b"100mb").expect("it can be set");
    bench.check_bits(&[Special::MemoryLimit]);
}

#[test]
fn pauses_are_seen() {
    let begin = |bench: &mut Bench| bench.engine.pause.begin(Actions::All, Millis(9), Millis(1));
    check(Special::Pause, begin, ("get", "Paused"), |bench| bench.engine.pause.end());
    let over = |bench: &mut Bench| {
        bench.time.advance(Duration::from_millis(10));
        assert!(bench.engine.pause.end_if_over(bench.engine.clock.wall()));
    };
    check(Special::Pause, begin, ("get", "Paused"), over);
    let begin = |bench: &mut Bench| bench.engine.pause.begin_failover();
    check(Special::Pause, begin, ("set", "Paused"), |bench| bench.engine.pause.end_failover());
    let begin = |bench: &mut Bench| bench.engine.pause.begin_shutdown();
    check(Special::Pause, begin, ("set", "Paused"), |bench| bench.engine.pause.end_shutdown());
}

#[test]
fn a_load_and_a_primary_are_seen() {
    let begin = |bench: &mut Bench| bench.engine.loading.begin(1, Millis(1));
    check(Special::Loading, begin, ("get", "LOADING"), |bench| bench.engine.loading.end());
    let primary = Some(("127.0.0.1".to_owned(), 1));
    let begin = |bench: &mut Bench| bench.engine.upstream.begin_term(primary, None, Millis(1));
    let end = |bench: &mut Bench| bench.engine.upstream.begin_term(None, None, Millis(2));
    check(Special::Replica, begin, ("set", "READONLY"), end);
}

#[test]
fn failures_of_the_disk_are_seen() {
    let fail = |bench: &mut Bench| {
        bench.set("save", "3600 1");
        bench.engine.persistence.ended(SaveOutcome::Failed, 0);
    };
    let succeed = |bench: &mut Bench| {
        let snapshot = Snapshots::begin(bench.engine, |_| {}).expect("none runs");
        bench.engine.persistence.saved(snapshot.cut());
    };
    check(Special::SaveFailed, fail, ("set", "MISCONF"), succeed);
    let fail = |bench: &mut Bench| bench.engine.append_log.set_broken("No space left on device");
    let mend = |bench: &mut Bench| assert!(bench.engine.append_log.set_sound());
    check(Special::LogBroken, fail, ("set", "MISCONF"), mend);
}

#[test]
fn what_is_far_behind_is_seen() {
    let post = |bench: &mut Bench| {
        let line = vec![b'x'; 5 << 20].into_boxed_slice();
        bench.engine.mailboxes[0].post(Message::Push(1, Arc::new(Push::Monitor(line))));
    };
    let take = |bench: &mut Bench| assert_eq!(bench.engine.mailboxes[0].take().len(), 1);
    check(Special::OverdueMail, post, ("publish", "Busy"), take);

    let mut bench = Bench::new();
    let journal = &bench.engine.journal;
    let mut reader = journal.read(IfBehind::HoldWriters);
    let value = vec![b'v'; 5 << 20];
    for _ in 0..60 {
        if !journal.is_full() {
            journal.append_command(DbIndex(0), &value);
        }
    }
    bench.check_bits(&[Special::JournalFull]);
    assert_eq!(bench.ask("set"), "Held");
    let end = reader.readable();
    while let Some(chunk) = reader.chunk(end) {
        reader.advance(chunk.len());
    }
    bench.check_bits(&[]);
    assert_eq!(bench.ask("set"), "+OK");
}

#[test]
fn a_log_that_lags_is_seen() {
    let mut bench = Bench::new();
    let (engine, time) = (bench.engine, bench.time);
    let log = &engine.append_log;
    let _reader = engine.journal.read(IfBehind::HoldWriters);
    log.set_state(LogState::On);
    let written = || log.written.store(engine.journal.position().0, SeqCst);
    let look_after = |ms| {
        time.advance(Duration::from_millis(ms));
        engine.look_at_log();
    };
    let append = || engine.journal.append_command(DbIndex(0), b"*1\r\n$4\r\nPING\r\n");
    // What is written in time lets others wait for nothing, however long ago it was.
    append();
    look_after(0);
    written();
    look_after(10_000);
    append();
    look_after(399);
    bench.check_bits(&[]);
    look_after(399);
    bench.check_bits(&[]);
    let looked_at = engine.journal.position().0;
    append();
    look_after(2);
    bench.check_bits(&[Special::LogLags]);
    assert_eq!(bench.ask("set"), "Held");
    assert_eq!(bench.ask("get"), "+OK");
    // What was appended before writes were held has to be there, too.
    log.written.store(looked_at, SeqCst);
    assert!(!log.catch_up());
    written();
    assert!(log.catch_up());
    bench.check_bits(&[]);
    assert_eq!(bench.ask("set"), "+OK");
    // What is in a base, refused, or not to be written does not count.
    let lag = || {
        append();
        look_after(0);
        look_after(500);
        assert!(log.lags());
    };
    lag();
    log.in_base.store(engine.journal.position().0, SeqCst);
    look_after(0);
    bench.check_bits(&[]);
    lag();
    log.is_closing.store(true, SeqCst);
    look_after(0);
    bench.check_bits(&[]);
    log.is_closing.store(false, SeqCst);
    written();
    look_after(0);
    lag();
    log.set_broken("No space left on device");
    assert!(log.catch_up());
    log.set_sound();
    look_after(0);
    look_after(500);
    log.set_state(LogState::Off);
    look_after(0);
    bench.check_bits(&[]);
}

#[test]
fn a_monitor_is_seen() {
    let mut bench = Bench::new();
    let mail = || bench.engine.mailboxes[0].take().len();
    let monitor = bench.engine.clients.add(9, |id| Client::unconnected(id, 0, Millis(1)));
    let monitor = monitor.expect("a client may come");
    let mut session = Session::new(monitor, bench.engine.acl.default_user(), true);
    session.set_monitor(true);
    session.publish(1);
    bench.engine.add_monitor();
    bench.check_bits(&[Special::Monitors]);
    assert_eq!(mail(), 0);
    assert_eq!(bench.ask("get"), "+OK");
    assert_eq!(bench.engine.mailboxes[0].take().len(), 1);
    bench.engine.monitors.remove();
    bench.check_bits(&[]);
    assert_eq!(bench.ask("get"), "+OK");
    assert_eq!(bench.engine.mailboxes[0].take().len(), 0);
}

#[test]
fn a_cluster_and_restricted_users_are_seen() {
    let mut bench = Bench::new();
    bench.engine.membership.join(Id::new([1; 20]));
    bench.check_bits(&[Special::Cluster]);
    assert_ne!(bench.ask("get"), "+OK");

    let mut bench = Bench::new();
    bench.session.act_as(bench.engine.acl.user_of_link(b"nobody"));
    bench.check_bits(&[Special::RestrictedUsers]);
    assert!(bench.ask("get").starts_with("-NOPERM"));
}

#[test]
fn what_holds_keys_is_seen() {
    let mut bench = Bench::new();
    let (holds, clock) = (&bench.engine.holds, &bench.engine.clock);
    let holder = holds.begin(clock, || false);
    bench.check_bits(&[Special::Holds]);
    holds.begin_change(holder, clock);
    assert_eq!(bench.ask("scan"), "Held");
    holds.end_change();
    holds.end(&bench.engine.mailboxes, clock);
    bench.check_bits(&[]);
    assert_eq!(bench.ask("scan"), "+OK");

    // That a write waits for a snapshot without memory is tested with a server.
    let snapshot = Snapshots::begin(bench.engine, |_| {}).expect("none runs");
    bench.check_bits(&[Special::Snapshot]);
    assert!(bench.engine.snapshots.is_running() && bench.engine.special.any(Special::KEYS));
    drop(snapshot);
    bench.check_bits(&[]);
}

#[test]
fn what_counts_usage_is_seen() {
    let mut bench = Bench::new();
    let wanted = Wanted {
        cpu: true,
        net: true,
        count: 1,
        duration_ms: None,
        sample: 1,
        slots: Slots::default(),
    };
    assert!(bench.engine.hotkeys.start(wanted, 1, CpuMs::default()));
    bench.check_bits(&[Special::HotKeys]);
    bench.ask("get");
    assert!(bench.engine.hotkeys.stop(2, CpuMs::default()));
    bench.check_bits(&[]);
    bench.ask("get");
    let report = bench.engine.hotkeys.report(3, CpuMs::default()).expect("a session ran");
    assert_eq!(report.total_bytes, b"getkey+OK\r\n".len() as u64);

    bench.set("latency-monitor-threshold", "1");
    bench.check_bits(&[Special::LatencyMonitor]);
    assert!(bench.engine.latency.all().is_empty());
    bench.engine.note_latency(Slow::Command, 2_000_000);
    assert_eq!(bench.engine.latency.all().len(), 1);
}

#[test]
fn the_session_says_what_is_special_about_it() {
    let mut bench = Bench::new();
    let session = &mut bench.session;
    let mut check = |change: &dyn Fn(&mut Session, bool)| {
        assert!(!session.is_special());
        change(session, true);
        assert!(session.is_special());
        change(session, false);
        assert!(!session.is_special());
    };
    check(&|session, on| drop(session.set_multi(on.then(Box::<Multi>::default))));
    check(&|session, on| session.set_authenticated(!on));
    check(&|session, on| {
        session.set_reply_mode(if on { ReplyMode::Skip } else { ReplyMode::On });
    });
    check(&|session, on| drop(session.set_tracking(on.then(Box::<Tracking>::default))));
    check(&|session, on| assert_ne!(session.set_monitor(on), on));
    check(&|session, on| assert_ne!(session.set_replica(on), on));
    check(&|session, on| {
        session.change_subscriptions(|all| match on {
            true => all.patterns.extend([Box::from(&b"*"[..])]),
            false => all.patterns.clear(),
        });
    });
    assert!(!session.is_of_server());
    session.set_import(Some(1));
    assert!(session.is_of_server() && session.import() == Some(1));
    session.set_import(None);
    session.set_replica(true);
    assert!(session.is_of_server());
}

//! A thread that judges itself, on a clock that the test advances; and which clients are meant.

use super::*;
use crate::clock::ManualTime;
use keyspace::Millis;
use structs::flags::FlagWord;

/// A thread whose turns, processor time and buffers are what a test says.
struct Bench {
    config: Arc<Config>,
    word: Arc<FlagWord>,
    shedding: Shedding,
    time: &'static ManualTime,
    clock: Clock,
    turns: Turns,
    cpu_time: Cell<Duration>,
    queued_bytes: Cell<u64>,
}

impl Bench {
    fn new() -> Bench {
        let config = Config::new();
        let word = Arc::<FlagWord>::default();
        let shedding = Shedding::new(&config, word.flag(3));
        let time = ManualTime::starting_at(Millis(1));
        Bench {
            config,
            word,
            shedding,
            time,
            clock: Clock::manual(time),
            turns: Turns::default(),
            cpu_time: Cell::default(),
            queued_bytes: Cell::default(),
        }
    }

    fn set(&self, name: &str, value: &str) {
        self.config.record(name, value.as_bytes()).unwrap();
    }

    fn begin(&self) {
        self.turns.begin(&self.shedding, &self.clock, || self.queued_bytes.get());
    }

    /// Runs turns of this length, in each of which the thread takes its core for `busy`.
    fn run(&self, turns: u32, length: Duration, busy: Duration) {
        for _ in 0..turns {
            self.begin();
            self.time.advance(length);
            self.cpu_time.set(self.cpu_time.get() + busy);
            let measures = Measures {
                cpu_time: || self.cpu_time.get(),
                queued_bytes: || self.queued_bytes.get(),
            };
            self.turns.end(&self.shedding, &self.clock, measures);
        }
    }

    fn turns_of(&self, turns: u32, microseconds: u64) {
        self.run(turns, Duration::from_micros(microseconds), Duration::ZERO);
    }

    /// Asserts what the thread is overloaded by, and that everything says so.
    fn assert_over(&self, causes: &[Overload]) {
        let is_over = !causes.is_empty();
        assert_eq!(self.turns.is_overloaded(), is_over, "{causes:?}");
        assert_eq!(self.word.any(1 << 3), is_over, "{causes:?}");
        assert_eq!(self.shedding.overloaded_threads(), u32::from(is_over), "{causes:?}");
        for cause in Overload::ALL {
            let expected = u32::from(causes.contains(&cause));
            assert_eq!(self.shedding.threads_over(cause), expected, "{cause:?} of {causes:?}");
        }
    }
}

#[test]
fn a_thread_is_overloaded_until_its_turns_are_half_as_long() {
    let bench = Bench::new();
    bench.turns_of(20, 9000);
    bench.assert_over(&[]);
    bench.set("shed-turn-usec", "1000");
    bench.turns_of(20, 900);
    bench.assert_over(&[]);
    bench.turns_of(20, 1100);
    bench.assert_over(&[Overload::Turns]);
    bench.turns_of(40, 600);
    bench.assert_over(&[Overload::Turns]);
    bench.turns_of(40, 400);
    bench.assert_over(&[]);
    // A pause ends it, too.
    bench.turns_of(20, 1100);
    bench.assert_over(&[Overload::Turns]);
    bench.time.advance(Duration::from_secs(1));
    bench.begin();
    bench.assert_over(&[]);
}

#[test]
fn a_thread_is_overloaded_while_it_takes_its_core() {
    let bench = Bench::new();
    let percent = |busy: u64| {
        // A second of turns of one millisecond.
        bench.run(1000, Duration::from_millis(1), Duration::from_micros(busy * 10));
    };
    percent(100);
    bench.assert_over(&[]);
    bench.set("shed-cpu-percent", "80");
    percent(79);
    bench.assert_over(&[]);
    percent(82);
    bench.assert_over(&[Overload::Cpu]);
    percent(74);
    bench.assert_over(&[Overload::Cpu]);
    percent(70);
    bench.assert_over(&[]);
    // One turn that takes the core for longer than a window of turns is not a busy thread.
    bench.run(1, Duration::from_millis(30), Duration::from_millis(30));
    bench.assert_over(&[]);
    percent(20);
    bench.assert_over(&[]);
    // Without the limit it is over at once.
    percent(100);
    bench.assert_over(&[Overload::Cpu]);
    bench.set("shed-cpu-percent", "0");
    bench.begin();
    bench.assert_over(&[]);
}

#[test]
fn all_clients_buffers_overload_a_thread_however_idle_it_is() {
    let bench = Bench::new();
    bench.set("shed-queued-bytes", "1000");
    bench.queued_bytes.set(1000);
    bench.turns_of(20, 1000);
    bench.assert_over(&[]);
    bench.queued_bytes.set(1001);
    bench.turns_of(20, 1000);
    bench.assert_over(&[Overload::QueuedBytes]);
    bench.queued_bytes.set(901);
    bench.turns_of(20, 1000);
    bench.assert_over(&[Overload::QueuedBytes]);
    // Neither does a pause end it, nor does it take a busy thread to see it.
    bench.time.advance(Duration::from_secs(1));
    bench.begin();
    bench.assert_over(&[Overload::QueuedBytes]);
    bench.queued_bytes.set(900);
    bench.turns_of(20, 1000);
    bench.assert_over(&[]);
    bench.time.advance(Duration::from_secs(1));
    bench.queued_bytes.set(5000);
    bench.begin();
    bench.assert_over(&[Overload::QueuedBytes]);
}

#[test]
fn a_thread_has_recovered_when_it_keeps_all_limits() {
    let bench = Bench::new();
    bench.set("shed-turn-usec", "1000");
    bench.set("shed-queued-bytes", "1000");
    bench.queued_bytes.set(2000);
    bench.turns_of(20, 2000);
    bench.assert_over(&[Overload::Turns, Overload::QueuedBytes]);
    bench.queued_bytes.set(0);
    bench.turns_of(20, 2000);
    bench.assert_over(&[Overload::Turns]);
    bench.turns_of(200, 100);
    bench.assert_over(&[]);
}

#[test]
fn rules_name_users_and_attributes_of_clients() {
    let config = Config::new();
    let shedding = Shedding::new(&config, Arc::<FlagWord>::default().flag(3));
    let is_least = |user: &str, name: &str, library: &str| {
        shedding.is_least_important(user.as_bytes(), name.as_bytes(), library.as_bytes())
    };
    assert!(shedding.refuses_reads());
    config.record("shed-requests", b"writes").unwrap();
    assert!(!shedding.refuses_reads());
    assert!(!is_least("batch", "batch-1", "lib"));
    let before = shedding.generation();
    config.record("shed-users", b"batch reports").unwrap();
    assert_ne!(shedding.generation(), before, "what sessions have noted is not true any more");
    assert!(is_least("batch", "", "") && is_least("reports", "other", "other"));
    assert!(!is_least("default", "batch", "batch") && !is_least("", "", ""));
    config.record("shed-clients", b"name:batch-* lib:slow").unwrap();
    assert!(is_least("default", "batch-1", "") && is_least("default", "", "slow"));
    assert!(is_least("batch", "other", ""), "another name is no way out for a user");
    assert!(!is_least("default", "slow", "batch-1"));
}

//! Puts a workload on a server and measures.

pub mod cluster;
pub mod connection;
pub mod os;
mod schedule;
mod worker;

use crate::ledger::Ledger;
use crate::measure::recorder::Recorder;
use crate::measure::timeline::{Second, Timeline};
use crate::measure::{Measured, OwnCost, Tally, cost, latencies};
use crate::options::{Limit, Load, Pacing, Target};
use crate::verify::Checker;
use crate::workload::Workload;
use cluster::Topology;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::thread::{self, Thread};
use std::time::Duration;
use structs::sync::lock;
use worker::Worker;

/// How often the run is looked at from outside.
const LOOK: Duration = Duration::from_millis(100);

/// From the last connection to the first request: time for all threads to see it.
const HEAD_START_NS: u64 = 3_000_000;

/// What the threads of a run share.
pub struct Shared {
    /// The run second by second.
    pub timeline: Timeline,
    /// Requests that threads were allowed to send, of a limited number.
    pub granted: AtomicU64,
    /// Threads.
    pub threads: usize,
    /// Where acknowledged writes are noted.
    pub ledger: Option<Ledger>,
    /// A reply said that the topology is not what we think.
    pub topology_is_stale: AtomicBool,
    /// Rises with every change.
    pub topology_version: AtomicU64,
    topology: Mutex<Arc<Topology>>,
    epoch_ns: u64,
    stop: AtomicBool,
    /// What there was not for some time.
    gave_up: Mutex<Option<&'static str>>,
    ready: AtomicUsize,
    start_ns: AtomicU64,
    failure: Mutex<Option<String>>,
    main: Thread,
}

impl Shared {
    /// Nanoseconds on the run's clock.
    #[inline]
    pub fn now_ns(&self) -> u64 {
        os::monotonic_ns() - self.epoch_ns
    }

    /// Whether the run is to end early.
    #[inline]
    pub fn stopped(&self) -> bool {
        self.stop.load(Ordering::Relaxed)
    }

    /// The nodes, and the version of this knowledge.
    pub fn topology(&self) -> (Arc<Topology>, u64) {
        let topology = lock(&self.topology);
        (Arc::clone(&topology), self.topology_version.load(Ordering::Acquire))
    }

    /// Notes why the run cannot begin, or go on.
    pub fn fail(&self, why: String) {
        lock(&self.failure).get_or_insert(why);
    }

    /// Ends the run because for some time there was no connection, or no reply; what was measured
    /// stays.
    pub fn fail_softly(&self, without: &'static str) {
        lock(&self.gave_up).get_or_insert(without);
        self.stop.store(true, Ordering::Relaxed);
    }

    /// Ends the run because it cannot go on.
    pub fn abort(&self, why: String) {
        self.fail(why);
        self.stop.store(true, Ordering::Relaxed);
    }

    /// The reason why the run cannot begin, or go on, if there is one.
    pub fn check_failure(&self) -> Result<(), String> {
        match &*lock(&self.failure) {
            Some(why) => Err(why.clone()),
            None => Ok(()),
        }
    }

    /// Says that a thread's connections are there, and waits for the start: when it is.
    pub fn wait_for_start(&self) -> Result<u64, String> {
        self.ready.fetch_add(1, Ordering::AcqRel);
        self.main.unpark();
        loop {
            self.check_failure()?;
            let start_ns = self.start_ns.load(Ordering::Acquire);
            if start_ns != 0 && start_ns <= self.now_ns() {
                return Ok(start_ns);
            }
            thread::sleep(Duration::from_micros(200));
        }
    }

    fn look_up_topology(&self, target: &Target) {
        let Ok(found) = Topology::ask(target) else { return };
        let mut topology = lock(&self.topology);
        if **topology != found {
            *topology = Arc::new(found);
            self.topology_version.fetch_add(1, Ordering::AcqRel);
        }
    }
}

/// What a thread comes back with.
pub struct Outcome {
    recorder: Recorder,
    cpu_seconds: f64,
    busy: f64,
    last_reply_ns: u64,
    checker: Option<Checker>,
}

/// A run under way, as it is shown while it goes on.
pub struct View<'a> {
    /// The workload's name.
    pub name: &'a str,
    /// Seconds since counting began; negative before.
    pub seconds: f64,
    /// The last whole second, if there is one.
    pub last: Option<Second>,
    /// The share of the run that is over, if that can be known.
    pub done: Option<f64>,
}

/// Watches a run.
pub type Watch<'a> = dyn FnMut(&View<'_>) + 'a;

/// Puts a workload on a server and measures. The error says why it could not begin.
pub fn run(
    target: &Target,
    load: &Load,
    workload: &Workload,
    pids: &[u32],
    watch: &mut Watch<'_>,
) -> Result<(Measured, Option<Checker>), String> {
    os::allow_descriptors(load.clients as u64 + 100).map_err(|error| error.to_string())?;
    let topology = if target.cluster {
        Topology::ask(target).map_err(|error| format!("{}: {error}", target.address))?
    } else {
        Topology::single(target)
    };
    if topology.nodes.len() > load.clients {
        let nodes = topology.nodes.len();
        return Err(format!("the cluster has {nodes} primaries, which needs as many clients (-c)"));
    }
    let places = &workload.places;
    let ledger = match &load.ledger {
        Some(path) => {
            let run = (load.seed ^ unix_ns()) >> 16;
            Some(
                Ledger::create(path, run, &places.prefix, places.padded)
                    .map_err(|error| format!("{}: {error}", path.display()))?,
            )
        }
        None => None,
    };
    let mut source = cost::Source::find(target, pids);
    if let Some(source) = source.as_mut().filter(|_| load.counts_cycles) {
        source.count_cycles();
    }
    let threads = load.threads.clamp(1, load.clients);
    let shared = Shared {
        timeline: Timeline::default(),
        granted: AtomicU64::new(0),
        threads,
        ledger,
        topology_is_stale: AtomicBool::new(false),
        topology_version: AtomicU64::new(0),
        topology: Mutex::new(Arc::new(topology)),
        epoch_ns: os::monotonic_ns(),
        stop: AtomicBool::new(false),
        gave_up: Mutex::new(None),
        ready: AtomicUsize::new(0),
        start_ns: AtomicU64::new(0),
        failure: Mutex::new(None),
        main: thread::current(),
    };
    let mut server = None;
    let outcomes = thread::scope(|scope| {
        let handles: Vec<_> = (0..threads)
            .map(|index| {
                let part = |index: usize| (index * load.clients / threads) as u64;
                let numbers = part(index)..part(index + 1);
                let shared = &shared;
                scope.spawn(move || {
                    let result = Worker::new(shared, target, load, workload, index, numbers)
                        .map_err(|error| error.to_string())
                        .and_then(Worker::run);
                    if let Err(why) = &result {
                        shared.fail(why.clone());
                    }
                    shared.main.unpark();
                    result
                })
            })
            .collect();
        let finished = || handles.iter().all(thread::ScopedJoinHandle::is_finished);
        server = attend(&shared, target, load, workload, source.as_mut(), &finished, watch);
        let join = |handle: thread::ScopedJoinHandle<'_, Result<Outcome, String>>| {
            handle.join().unwrap_or_else(|_| Err("a thread of the generator panicked".into()))
        };
        handles.into_iter().map(join).collect::<Result<Vec<Outcome>, String>>()
    })?;
    Ok(summed(shared, load, workload, outcomes, server))
}

/// Starts the run when all is ready, and looks at it until it is over; what it cost the server.
fn attend(
    shared: &Shared,
    target: &Target,
    load: &Load,
    workload: &Workload,
    mut source: Option<&mut cost::Source>,
    finished: &dyn Fn() -> bool,
    watch: &mut Watch<'_>,
) -> Option<cost::ServerCost> {
    while shared.ready.load(Ordering::Acquire) < shared.threads && !finished() {
        thread::park_timeout(LOOK);
        if os::interrupted() {
            shared.stop.store(true, Ordering::Relaxed);
        }
    }
    let start_ns = shared.now_ns() + HEAD_START_NS;
    shared.start_ns.store(start_ns, Ordering::Release);
    let counted_from_ns = start_ns + load.warmup.as_nanos() as u64;
    let mut meter = Meter::default();
    let mut seconds = 0;
    let mut looked_up_ns = 0;
    while !finished() {
        if os::interrupted() {
            shared.stop.store(true, Ordering::Relaxed);
        }
        let now_ns = shared.now_ns();
        let elapsed = (now_ns as f64 - counted_from_ns as f64) / 1e9;
        if now_ns >= counted_from_ns && (meter.readings.is_empty() || elapsed as u64 > seconds) {
            seconds = elapsed as u64;
            meter.read(&mut source, elapsed);
        }
        // A primary that was cut off says nothing, so sentinels are asked all the time.
        let is_stale = target.sentinels.is_some()
            || (target.cluster && shared.topology_is_stale.load(Ordering::Relaxed));
        if is_stale && now_ns > looked_up_ns + 500_000_000 {
            shared.topology_is_stale.store(false, Ordering::Relaxed);
            shared.look_up_topology(target);
            looked_up_ns = now_ns;
        }
        let done = match load.limit {
            Limit::Time(time) => Some(elapsed / time.as_secs_f64()),
            Limit::Requests(total) => {
                Some(shared.granted.load(Ordering::Relaxed) as f64 / total.max(1) as f64)
            }
        };
        let last = (elapsed >= 1.0).then(|| shared.timeline.peek(elapsed as u64 - 1)).flatten();
        watch(&View { name: &workload.name, seconds: elapsed, last, done });
        let until_counting = Duration::from_nanos(counted_from_ns.saturating_sub(now_ns));
        let wait = if until_counting.is_zero() { LOOK } else { until_counting.min(LOOK) };
        thread::park_timeout(wait);
    }
    let elapsed = (shared.now_ns() as f64 - counted_from_ns as f64) / 1e9;
    meter.read(&mut source, elapsed);
    meter.cost(source?)
}

/// Collects readings of the server's CPU and memory.
#[derive(Default)]
struct Meter {
    first: Option<cost::Sample>,
    readings: Vec<(f64, f64, u64)>,
    cycles: u64,
}

impl Meter {
    fn read(&mut self, source: &mut Option<&mut cost::Source>, elapsed: f64) {
        // A server that is gone for now has no reading; the next one may succeed.
        let Some(Ok(sample)) = source.as_mut().map(|source| source.sample()) else { return };
        let first = *self.first.get_or_insert(sample);
        let used = (sample.cpu_seconds - first.cpu_seconds).max(0.0);
        self.readings.push((elapsed.max(0.0), used, sample.rss_bytes));
        self.cycles = sample.cycles.saturating_sub(first.cycles);
    }

    fn cost(self, source: &cost::Source) -> Option<cost::ServerCost> {
        if self.readings.len() < 2 {
            return None;
        }
        let &(_, cpu_seconds, rss_bytes) = self.readings.last()?;
        let rss_peak_bytes = self.readings.iter().map(|&(.., rss)| rss).max()?;
        Some(cost::ServerCost {
            cpu_seconds,
            rss_bytes,
            rss_peak_bytes,
            from: source.name(),
            cycles: source.cycles(self.cycles),
            readings: self.readings,
        })
    }
}

fn summed(
    shared: Shared,
    load: &Load,
    workload: &Workload,
    outcomes: Vec<Outcome>,
    server: Option<cost::ServerCost>,
) -> (Measured, Option<Checker>) {
    let start_ns = shared.start_ns.load(Ordering::Relaxed) + load.warmup.as_nanos() as u64;
    let end_ns = outcomes.iter().map(|outcome| outcome.last_reply_ns).max().unwrap_or(start_ns);
    let mut counts = crate::measure::Counts::default();
    let mut tallies: Vec<Tally> = workload
        .operations
        .iter()
        .map(|operation| {
            Tally::new(&operation.name, operation.effect == crate::workload::Effect::Reads)
        })
        .collect();
    let mut own = OwnCost::default();
    let mut late = latencies();
    let mut checker: Option<Checker> = None;
    for outcome in outcomes {
        for (tally, other) in tallies.iter_mut().zip(&outcome.recorder.tallies) {
            tally.merge(other);
        }
        counts.merge(&outcome.recorder.counts);
        late.add(&outcome.recorder.late).expect("the bounds are the same");
        own.cpu_seconds += outcome.cpu_seconds;
        own.busiest = own.busiest.max(outcome.busy);
        match (&mut checker, outcome.checker) {
            (Some(checker), Some(other)) => checker.merge(&other),
            (None, other) => checker = other,
            (Some(_), None) => {}
        }
    }
    if matches!(load.pacing, Pacing::Open(_)) && !late.is_empty() {
        own.late_p99_ns = Some(late.value_at_quantile(0.99));
    }
    if let Some(without) = *lock(&shared.gave_up) {
        let seconds = load.give_up.as_secs_f64();
        let given_up = format!("given up after {seconds} s without {without}");
        let why = counts.first_loss.take().map_or_else(String::new, |why| format!("; {why}"));
        counts.first_loss = Some(format!("{given_up}{why}"));
        counts.given_up = Some(given_up);
    }
    let measured = Measured {
        name: workload.name.clone(),
        seconds: end_ns.saturating_sub(start_ns) as f64 / 1e9,
        tallies,
        counts,
        seconds_of_run: shared.timeline.finish(),
        own,
        server,
        interrupted: os::interrupted(),
    };
    (measured, checker)
}

/// The system's clock, for what must differ between runs.
pub fn unix_ns() -> u64 {
    std::time::SystemTime::now()
        .duration_since(std::time::UNIX_EPOCH)
        .map_or(0, |time| time.as_nanos() as u64)
}

//! The figures of a session as they stand in files. `docs/bench.md` describes the fields; `format`
//! rises when one changes its meaning, and new ones may come at any time.

use super::machine::Machine;
use crate::generator::unix_ns;
use crate::measure::cost::ServerCost;
use crate::measure::cycles::Cycles;
use crate::measure::{Measured, Tally};
use crate::options::{Limit, Load, Pacing, Target};
use hdrhistogram::Histogram;
use serde::Serialize;
use std::collections::BTreeMap;

/// The version of the form.
pub const FORMAT: u32 = 1;

/// Everything one invocation measured.
#[derive(Debug, Serialize)]
pub struct Document {
    pub format: u32,
    pub tool: String,
    pub command: String,
    /// Seconds since 1970.
    pub started: u64,
    pub machine: Machine,
    pub runs: Vec<Run>,
    pub comparisons: Vec<Compared>,
    pub sweeps: Vec<Sweep>,
    pub experiment: Option<Experiment>,
    pub notes: Vec<String>,
}

/// One run of one workload on one server.
#[derive(Debug, Serialize)]
pub struct Run {
    pub name: String,
    pub server: String,
    pub clients: usize,
    pub threads: usize,
    pub pipeline: usize,
    /// `closed`, `limited` or `open`.
    pub pacing: &'static str,
    /// Requests a second that were asked for.
    pub asked_rate: Option<f64>,
    pub asked_requests: Option<u64>,
    pub asked_seconds: Option<f64>,
    pub seed: u64,
    pub seconds: f64,
    pub interrupted: bool,
    pub total: Figures,
    pub operations: Vec<Figures>,
    pub error_texts: BTreeMap<String, u64>,
    pub moved: u64,
    pub ask: u64,
    pub lost_connections: u64,
    pub first_loss: Option<String>,
    pub reconnections: u64,
    pub lost_requests: u64,
    pub unfinished: u64,
    pub values_checked: u64,
    pub values_wrong: u64,
    pub bytes_sent: u64,
    pub bytes_received: u64,
    pub generator: Generator,
    pub server_cost: Option<Server>,
    pub series: Vec<Point>,
}

/// What became of one kind of request, or of all.
#[derive(Debug, Serialize)]
pub struct Figures {
    pub name: String,
    pub requests: u64,
    /// Requests a second; none if every reply was an error, as latencies then.
    pub rate: Option<f64>,
    pub errors: u64,
    /// Why there is no rate.
    pub refused: Option<String>,
    /// Of reads: how many had no value.
    pub misses: Option<u64>,
    pub latency_ms: Option<Latency>,
    /// Pairs of a percentile and its latency in milliseconds.
    pub curve: Vec<(f64, f64)>,
}

/// Latencies in milliseconds.
#[derive(Debug, Serialize, Default, Clone)]
pub struct Latency {
    pub mean: f64,
    pub min: f64,
    pub p50: f64,
    pub p90: f64,
    pub p95: f64,
    pub p99: f64,
    #[serde(rename = "p99.9")]
    pub p999: f64,
    #[serde(rename = "p99.99")]
    pub p9999: f64,
    pub max: f64,
}

/// What the generator used.
#[derive(Debug, Serialize)]
pub struct Generator {
    pub cpu_seconds: f64,
    pub cpu_us_per_request: f64,
    /// The busiest thread's share of the run.
    pub busiest_thread: f64,
    pub was_the_limit: bool,
    /// Open loop: 99th percentile of how late requests were sent though a connection had room.
    pub late_p99_ms: Option<f64>,
}

/// What the server used.
#[derive(Debug, Serialize)]
pub struct Server {
    /// `/proc` or `INFO`.
    pub from: &'static str,
    pub cpu_seconds: f64,
    pub cpu_us_per_request: f64,
    pub rss_bytes: u64,
    pub rss_peak_bytes: u64,
    /// Processor cycles, if they were asked for and can be counted.
    pub cycles_per_request: Option<f64>,
    /// What the cycles leave out, or why there are none.
    pub cycles_remark: Option<String>,
    /// Seconds since the start, cores used since the reading before, resident bytes.
    pub readings: Vec<(f64, f64, u64)>,
}

/// One second.
#[derive(Debug, Serialize)]
pub struct Point {
    pub second: u64,
    pub requests: u64,
    pub errors: u64,
    pub p50_ms: f64,
    pub p99_ms: f64,
    pub max_ms: f64,
}

/// One figure of one server against that of the first.
#[derive(Debug, Serialize)]
pub struct Compared {
    pub workload: String,
    pub figure: String,
    pub server: String,
    pub first_server: String,
    pub first_median: f64,
    pub median: f64,
    pub ratio: f64,
    pub ratio_low: f64,
    pub ratio_high: f64,
    pub noise: f64,
    pub within_noise: bool,
    pub generator_was_the_limit: bool,
}

/// Latency over throughput.
#[derive(Debug, Serialize)]
pub struct Sweep {
    pub workload: String,
    pub steps: Vec<RateStep>,
    /// The index of the last step that the server kept up with.
    pub knee: Option<usize>,
    pub verdict: String,
}

/// One rate of a sweep.
#[derive(Debug, Serialize, Clone)]
pub struct RateStep {
    pub asked_rate: f64,
    pub rate: f64,
    pub p50_ms: f64,
    pub p99_ms: f64,
    pub p999_ms: f64,
    pub max_ms: f64,
    pub server_cpu_us: Option<f64>,
    pub kept_up: bool,
    pub generator_was_the_limit: bool,
}

/// A published experiment repeated.
#[derive(Debug, Serialize)]
pub struct Experiment {
    pub name: String,
    pub title: String,
    pub published_by: String,
    pub scale: f64,
    pub sizes: String,
    pub rows: Vec<Row>,
    pub memory: Vec<MemoryLine>,
    pub curves: Vec<Curve>,
}

/// A picture of lines.
#[derive(Debug, Serialize)]
pub struct Curve {
    pub title: String,
    /// What stands below and beside it.
    pub x: String,
    pub y: String,
    pub lines: Vec<Line>,
}

/// One line of a picture.
#[derive(Debug, Serialize)]
pub struct Line {
    pub name: String,
    pub points: Vec<(f64, f64)>,
}

/// A server's memory over time, beside its limit.
#[derive(Debug, Serialize)]
pub struct MemoryLine {
    pub server: String,
    pub limit_bytes: u64,
    /// Seconds since the first step began, resident bytes.
    pub readings: Vec<(f64, u64)>,
}

/// One row of an experiment.
#[derive(Debug, Serialize)]
pub struct Row {
    pub what: String,
    /// What the figures are, such as `requests/s`.
    pub unit: String,
    /// As it was published.
    pub published: Option<String>,
    /// Of the trials: mean, lowest, highest; none if it could not be measured.
    pub measured: Option<(f64, f64, f64)>,
    /// Whatever has to be said.
    pub remark: String,
}

const NS_PER_MS: f64 = 1e6;

/// The remark where the kernel's work is not counted.
const USER_ONLY: &str = "user space alone: kernel.perf_event_paranoid forbids more";

/// Nanoseconds as milliseconds.
pub fn ms(ns: u64) -> f64 {
    ns as f64 / NS_PER_MS
}

impl Latency {
    /// The usual figures of a histogram.
    pub fn new(latencies: &Histogram<u64>) -> Latency {
        if latencies.is_empty() {
            return Latency::default();
        }
        let at = |quantile| ms(latencies.value_at_quantile(quantile));
        Latency {
            mean: latencies.mean() / NS_PER_MS,
            min: ms(latencies.min()),
            p50: at(0.5),
            p90: at(0.9),
            p95: at(0.95),
            p99: at(0.99),
            p999: at(0.999),
            p9999: at(0.9999),
            max: ms(latencies.max()),
        }
    }
}

impl Figures {
    fn new(tally: &Tally, requests: u64, seconds: f64) -> Figures {
        let refusal = tally.refusal();
        let measured = refusal.is_none();
        let rate = if seconds > 0.0 { requests as f64 / seconds } else { 0.0 };
        Figures {
            name: tally.name.clone(),
            requests,
            rate: measured.then_some(rate),
            errors: tally.errors,
            refused: refusal.map(|refusal| refusal.to_string()),
            misses: tally.reads.then_some(tally.misses),
            latency_ms: measured.then(|| Latency::new(&tally.latencies)),
            curve: if measured { curve(&tally.latencies, 2) } else { Vec::new() },
        }
    }
}

/// Percentiles closer and closer to 100: `steps` of them, then the distance to 100 is half.
pub fn curve(latencies: &Histogram<u64>, steps: u32) -> Vec<(f64, f64)> {
    if latencies.is_empty() {
        return Vec::new();
    }
    let steps = latencies.iter_quantiles(steps);
    let mut curve: Vec<(f64, f64)> = steps
        .map(|step| (step.quantile_iterated_to() * 100.0, ms(step.value_iterated_to())))
        .collect();
    if let Some(last) = curve.last_mut() {
        *last = (100.0, ms(latencies.max()));
    }
    curve
}

impl Run {
    /// From what was measured.
    pub fn new(target: &Target, load: &Load, measured: &Measured) -> Run {
        let counts = &measured.counts;
        let seconds = measured.seconds;
        let (pacing, asked_rate) = match load.pacing {
            Pacing::Closed => ("closed", None),
            Pacing::Limited(rate) => ("limited", Some(rate)),
            Pacing::Open(rate) => ("open", Some(rate)),
        };
        let (asked_requests, asked_seconds) = match load.limit {
            Limit::Requests(requests) => (Some(requests), None),
            Limit::Time(time) => (None, Some(time.as_secs_f64())),
        };
        let operations = measured.tallies.iter();
        Run {
            name: measured.name.clone(),
            server: target.address.to_string(),
            clients: load.clients,
            threads: load.threads,
            pipeline: load.pipeline,
            pacing,
            asked_rate,
            asked_requests,
            asked_seconds,
            seed: load.seed,
            seconds,
            interrupted: measured.interrupted,
            total: Figures::new(&measured.total(), measured.requests(), seconds),
            operations: operations
                .map(|tally| Figures::new(tally, tally.requests(), seconds))
                .collect(),
            error_texts: counts.error_texts.clone(),
            moved: counts.moved,
            ask: counts.ask,
            lost_connections: counts.lost_connections,
            first_loss: counts.first_loss.clone(),
            reconnections: counts.reconnections,
            lost_requests: counts.lost_requests,
            unfinished: counts.unfinished,
            values_checked: counts.checked,
            values_wrong: counts.wrong,
            bytes_sent: counts.bytes_out,
            bytes_received: counts.bytes_in,
            generator: Generator {
                cpu_seconds: measured.own.cpu_seconds,
                cpu_us_per_request: measured.own_us(),
                busiest_thread: measured.own.busiest,
                was_the_limit: measured.generator_was_the_limit(),
                late_p99_ms: measured.own.late_p99_ns.map(ms),
            },
            server_cost: measured.server.as_ref().map(|cost| Server::new(cost, measured)),
            series: measured
                .seconds_of_run
                .iter()
                .map(|second| Point {
                    second: second.at,
                    requests: second.requests,
                    errors: second.errors,
                    p50_ms: ms(second.p50_ns),
                    p99_ms: ms(second.p99_ns),
                    max_ms: ms(second.max_ns),
                })
                .collect(),
        }
    }
}

impl Server {
    fn new(cost: &ServerCost, measured: &Measured) -> Server {
        let mut readings = Vec::new();
        let mut before = (0.0, 0.0);
        for &(at, cpu, rss) in &cost.readings {
            let cores = if at > before.0 { (cpu - before.1) / (at - before.0) } else { 0.0 };
            readings.push((at, cores, rss));
            before = (at, cpu);
        }
        Server {
            from: cost.from,
            cpu_seconds: cost.cpu_seconds,
            cpu_us_per_request: measured.server_us().unwrap_or(0.0),
            rss_bytes: cost.rss_bytes,
            rss_peak_bytes: cost.rss_peak_bytes,
            cycles_per_request: measured.server_cycles(),
            cycles_remark: match &cost.cycles {
                Some(Cycles::Uncounted(why)) => Some(why.clone()),
                Some(Cycles::Counted { with_kernel: false, .. }) => Some(USER_ONLY.into()),
                _ => None,
            },
            readings,
        }
    }
}

impl Document {
    /// Nothing measured yet.
    pub fn new(command_line: &str) -> Document {
        Document {
            format: FORMAT,
            tool: format!("dunlin bench {}", env!("CARGO_PKG_VERSION")),
            command: command_line.into(),
            started: unix_ns() / 1_000_000_000,
            machine: Machine::this(),
            runs: Vec::new(),
            comparisons: Vec::new(),
            sweeps: Vec::new(),
            experiment: None,
            notes: Vec::new(),
        }
    }
}

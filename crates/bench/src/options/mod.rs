//! What a run is to do: the arguments, and what follows from them.

pub mod args;
pub mod ranges;
pub mod resolve;
pub mod target;
mod work;

pub use client::Address;
pub use target::{Target, resolve, unexpected};

use crate::workload::Workload;
use std::path::PathBuf;
use std::time::Duration;

/// When requests are sent.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Pacing {
    /// As soon as the replies to those before have come.
    Closed,
    /// Like this, but at most so many a second.
    Limited(f64),
    /// So many a second, whatever the server does.
    Open(f64),
}

impl Pacing {
    /// Requests a second, if there is a schedule.
    pub fn rate(self) -> Option<f64> {
        match self {
            Pacing::Closed => None,
            Pacing::Limited(rate) | Pacing::Open(rate) => Some(rate),
        }
    }
}

/// When a run is over.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Limit {
    /// After so many requests.
    Requests(u64),
    /// After so long.
    Time(Duration),
}

/// How a workload is put on a server.
#[derive(Clone, Debug)]
pub struct Load {
    /// Connections.
    pub clients: usize,
    /// Threads, at most as many as connections.
    pub threads: usize,
    /// Requests under way on one connection.
    pub pipeline: usize,
    /// When it is over.
    pub limit: Limit,
    /// Time before anything counts.
    pub warmup: Duration,
    /// When requests are sent.
    pub pacing: Pacing,
    /// A new connection after so many requests.
    pub reconnect_after: Option<u64>,
    /// How long to do without any connection.
    pub give_up: Duration,
    /// Where all random numbers come from.
    pub seed: u64,
    /// Count the server's processor cycles.
    pub counts_cycles: bool,
    /// Compare what is read.
    pub verify: bool,
    /// Note acknowledged writes here.
    pub ledger: Option<PathBuf>,
}

/// The rates of a sweep.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct SweepRates {
    /// The lowest, in requests a second.
    pub from: f64,
    /// The highest.
    pub to: f64,
    /// How many.
    pub steps: u32,
}

/// What kind of answer is wanted.
#[derive(Clone, Debug, PartialEq)]
pub enum Mode {
    /// Each workload so many times.
    Plain(u32),
    /// Each workload until Ctrl-C.
    Forever,
    /// Latency over throughput.
    Sweep(Option<SweepRates>),
    /// Other servers in alternation, so many rounds.
    Against(Vec<Target>, u32),
}

/// Where results go.
#[derive(Clone, Debug, Default)]
pub struct Output {
    /// One line a test.
    pub quiet: bool,
    /// Comma-separated values.
    pub csv: bool,
    /// Digits of latencies.
    pub precision: usize,
    /// Percentiles of the table.
    pub percentiles: Vec<f64>,
    /// The distribution below the table.
    pub histogram: bool,
    /// Instead of standard output.
    pub file: Option<PathBuf>,
    /// JSON.
    pub json: Option<PathBuf>,
    /// HdrHistogram's formats.
    pub hdr_prefix: Option<String>,
    /// HTML.
    pub report: Option<PathBuf>,
}

/// Everything that `dunlin bench` was asked for.
#[derive(Clone, Debug)]
pub struct Job {
    /// The server.
    pub target: Target,
    /// How it is loaded.
    pub load: Load,
    /// With what, one after the other.
    pub workloads: Vec<Workload>,
    /// These are the usual tests; no single test was asked for.
    pub usual: bool,
    /// To what end.
    pub mode: Mode,
    /// The server's processes, if given.
    pub pids: Vec<u32>,
    /// What becomes of the results.
    pub output: Output,
    /// The command line, for reports.
    pub command_line: String,
}

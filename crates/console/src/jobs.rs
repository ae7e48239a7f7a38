//! Work in the background on behalf of a user: counting and deleting the keys of a prefix, looking
//! for big and hot keys, summing memory and expiries by prefix. A job can be watched and cancelled.

use crate::analysis::{self, Analysis};
use crate::api::prefix_pattern;
use crate::auth::Session;
use crate::blob::Blob;
use crate::link::{Failure, Words};
use crate::words;
use resp::Value;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::sync::atomic::{AtomicBool, Ordering::SeqCst};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};
use structs::sync::lock;

/// Jobs that run at a time.
const MAX_RUNNING: usize = 4;
/// Jobs that are remembered.
const MAX_KEPT: usize = 50;
/// Keys that a step looks at.
const STEP: usize = 500;
/// Keys that a sample shows.
const TOP: usize = 50;
const PATIENCE: Duration = Duration::from_secs(30);
/// Between two times that the findings of an analysis are shown: all its groups are sorted for it.
const SHOW: Duration = Duration::from_millis(500);

/// What a job does.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(tag = "kind", rename_all = "kebab-case")]
pub enum Task {
    /// Counts the keys that begin with a prefix.
    Count { db: u32, prefix: Blob },
    /// Deletes the keys that begin with a prefix.
    Delete { db: u32, prefix: Blob },
    /// Looks for keys that take much memory.
    BigKeys { db: u32 },
    /// Looks for keys that are used often; with an LFU policy by frequency, else by idle time.
    HotKeys { db: u32 },
    /// Sums memory and expiries of the keys that begin with a prefix, by the next part of their
    /// names, which ends with the separator.
    Analyse { db: u32, prefix: Blob, separator: String },
}

/// How a job stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum Status {
    /// It runs.
    Running,
    /// It is over.
    Done,
    /// It was cancelled.
    Cancelled,
    /// It cannot go on.
    Failed,
}

/// A key that a sample found.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub struct Found {
    /// The key.
    key: Blob,
    /// Its type.
    #[serde(rename = "type")]
    kind: String,
    /// Bytes, or how often or how lately it is used: more is more.
    amount: i64,
}

/// A job, as it stands.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub struct Progress {
    /// Its number.
    pub id: u64,
    /// What it does.
    pub task: Task,
    /// How it stands.
    pub status: Status,
    /// Keys of the database when it began.
    pub total: u64,
    /// Keys that it has looked at, or a lower bound.
    pub looked_at: u64,
    /// Keys that it has counted or deleted.
    pub done: u64,
    /// What a sample has found, the most first.
    pub found: Vec<Found>,
    /// What amounts are: `bytes`, `frequency` or `idle`.
    pub unit: &'static str,
    /// What an analysis has found.
    pub analysis: Option<analysis::Found>,
    /// Why it failed.
    pub error: Option<String>,
}

struct Job {
    /// The user that it runs for.
    user: String,
    is_cancelled: AtomicBool,
    progress: Mutex<Progress>,
}

/// All jobs.
#[derive(Default)]
pub struct Jobs(Mutex<(u64, Vec<Arc<Job>>)>);

impl Jobs {
    /// The jobs of a user.
    pub fn of(&self, user: &str) -> Vec<Progress> {
        let jobs = lock(&self.0);
        let own = jobs.1.iter().filter(|job| job.user == user);
        own.map(|job| lock(&job.progress).clone()).collect()
    }

    /// Asks a job of a user to end; whether there is one.
    pub fn cancel(&self, user: &str, id: u64) -> bool {
        let jobs = lock(&self.0);
        let job = jobs.1.iter().find(|job| job.user == user && lock(&job.progress).id == id);
        job.is_some_and(|job| {
            job.is_cancelled.store(true, SeqCst);
            true
        })
    }

    /// Begins a job; none if too many run.
    pub fn begin(&self, session: Arc<Session>, task: Task) -> Option<Progress> {
        let mut jobs = lock(&self.0);
        let is_running = |job: &Arc<Job>| lock(&job.progress).status == Status::Running;
        if jobs.1.iter().filter(|job| is_running(job)).count() >= MAX_RUNNING {
            return None;
        }
        while jobs.1.len() >= MAX_KEPT {
            let at = jobs.1.iter().position(|job| !is_running(job)).unwrap_or(0);
            jobs.1.remove(at);
        }
        jobs.0 += 1;
        let progress = Progress {
            id: jobs.0,
            task: task.clone(),
            status: Status::Running,
            total: 0,
            looked_at: 0,
            done: 0,
            found: Vec::new(),
            unit: "",
            analysis: None,
            error: None,
        };
        let job = Arc::new(Job {
            user: session.user.clone(),
            is_cancelled: AtomicBool::new(false),
            progress: Mutex::new(progress.clone()),
        });
        jobs.1.push(Arc::clone(&job));
        tokio::spawn(async move {
            let outcome = Run { job: &job, session: &session }.run(task).await;
            let mut progress = lock(&job.progress);
            progress.status = match outcome {
                Ok(()) if job.is_cancelled.load(SeqCst) => Status::Cancelled,
                Ok(()) => Status::Done,
                Err(why) => {
                    progress.error = Some(why);
                    Status::Failed
                }
            };
        });
        Some(progress)
    }
}

/// A job at work.
struct Run<'a> {
    job: &'a Job,
    session: &'a Session,
}

fn text(failure: Failure) -> String {
    failure.to_string()
}

impl Run<'_> {
    async fn ask(&self, db: u32, requests: &[Words]) -> Result<Vec<Value>, String> {
        self.session.access.run_all_in(db, requests, PATIENCE).await.map_err(text)
    }

    async fn run(&self, task: Task) -> Result<(), String> {
        let (db, pattern) = match &task {
            Task::Count { db, prefix }
            | Task::Delete { db, prefix }
            | Task::Analyse { db, prefix, .. } => (*db, Some(prefix_pattern(&prefix.bytes))),
            Task::BigKeys { db } | Task::HotKeys { db } => (*db, None),
        };
        let total = self.ask(db, &[words!["DBSIZE"]]).await?;
        lock(&self.job.progress).total =
            total.first().map_or(0, |total| total.integer().unwrap_or(0).max(0) as u64);
        let mut analysis = match &task {
            Task::Analyse { prefix, separator, .. } => {
                Some(Analysis::new(&prefix.bytes, separator.as_bytes()))
            }
            _ => None,
        };
        let outcome = self.scan((&task, db, pattern), &mut analysis).await;
        // What was found before a failure is worth to be seen.
        if let Some(analysis) = analysis {
            self.show(&analysis);
        }
        outcome
    }

    /// Looks at all keys, a page after the other.
    async fn scan(
        &self,
        (task, db, pattern): (&Task, u32, Option<Vec<u8>>),
        analysis: &mut Option<Analysis>,
    ) -> Result<(), String> {
        let (mut cursor, mut shown) = (b"0".to_vec(), Instant::now());
        while !self.job.is_cancelled.load(SeqCst) {
            let mut request = words!["SCAN", cursor, "COUNT", STEP.to_string()];
            if let Some(pattern) = &pattern {
                request.extend(words!["MATCH", pattern.as_slice()]);
            }
            let replies = self.ask(db, &[request]).await?;
            let reply = replies.into_iter().next().unwrap_or(Value::Null);
            if let Some(error) = reply.error() {
                return Err(error.into_owned());
            }
            let [next, keys] = reply.items() else { return Err("SCAN has no cursor".to_owned()) };
            let keys: Vec<&[u8]> = keys.items().iter().filter_map(Value::bytes).collect();
            if let Some(analysis) = analysis {
                let replies = self.ask(db, &Analysis::requests(&keys)).await?;
                analysis.take(&keys, &replies)?;
                if shown.elapsed() >= SHOW {
                    self.show(analysis);
                    shown = Instant::now();
                }
            }
            self.step(task, db, &keys).await?;
            let mut progress = lock(&self.job.progress);
            progress.looked_at = (progress.looked_at + STEP as u64).min(progress.total);
            cursor = next.text().into_bytes();
            if cursor == b"0" {
                progress.looked_at = progress.total;
                break;
            }
        }
        Ok(())
    }

    async fn step(&self, task: &Task, db: u32, keys: &[&[u8]]) -> Result<(), String> {
        if keys.is_empty() {
            return Ok(());
        }
        let done = match task {
            Task::Count { .. } | Task::Analyse { .. } => keys.len() as u64,
            Task::Delete { .. } => {
                let mut request = words!["UNLINK"];
                request.extend(keys.iter().map(|key| key.to_vec()));
                let replies = self.ask(db, &[request]).await?;
                let reply = replies.first().unwrap_or(&Value::Null);
                if let Some(error) = reply.error() {
                    return Err(error.into_owned());
                }
                reply.integer().unwrap_or(0).max(0) as u64
            }
            Task::BigKeys { .. } => self.measure(db, keys, "bytes").await?,
            Task::HotKeys { .. } => self.measure(db, keys, "frequency").await?,
        };
        lock(&self.job.progress).done += done;
        Ok(())
    }

    /// Shows what an analysis has found so far.
    fn show(&self, analysis: &Analysis) {
        let found = analysis.found();
        lock(&self.job.progress).analysis = Some(found);
    }

    /// Measures keys and keeps those with the largest amounts.
    async fn measure(&self, db: u32, keys: &[&[u8]], unit: &'static str) -> Result<u64, String> {
        let mut requests: Vec<Words> = Vec::with_capacity(2 * keys.len());
        for key in keys {
            requests.push(words!["TYPE", *key]);
            requests.push(match unit {
                "bytes" => words!["MEMORY", "USAGE", *key],
                _ => words!["OBJECT", "FREQ", *key],
            });
        }
        let mut replies = self.ask(db, &requests).await?;
        let mut unit = unit;
        // Without an LFU policy there is no frequency, but an idle time.
        if unit == "frequency" && replies.get(1).is_some_and(|reply| reply.error().is_some()) {
            unit = "idle";
            let idle: Vec<Words> =
                keys.iter().map(|key| words!["OBJECT", "IDLETIME", *key]).collect();
            for (at, reply) in self.ask(db, &idle).await?.into_iter().enumerate() {
                replies[2 * at + 1] = reply;
            }
        }
        let mut progress = lock(&self.job.progress);
        progress.unit = unit;
        for (key, pair) in keys.iter().zip(replies.chunks_exact(2)) {
            if let Some(error) = pair[1].error().filter(|error| error.starts_with("NOPERM")) {
                return Err(error.into_owned());
            }
            let amount = pair[1].integer().unwrap_or(0);
            progress.found.push(Found { key: Blob::from(*key), kind: pair[0].text(), amount });
        }
        // The shorter a key was idle, the hotter it is.
        let sign = if unit == "idle" { 1 } else { -1 };
        progress.found.sort_by_key(|found| sign * found.amount);
        progress.found.truncate(TOP);
        Ok(keys.len() as u64)
    }
}

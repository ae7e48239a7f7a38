//! Looks at the server each second: a sample for the history, the document of now, and events.

use crate::app::App;
use crate::history::{COLUMNS, Groups, Histograms, Rates, Sample, groups};
use crate::host::ThreadTime;
use crate::info::Info;
use crate::link::Failure;
use crate::progress::{Paces, Progress};
use crate::words;
use resp::Value;
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime};
use tokio::time::MissedTickBehavior;

/// Between two looks.
const PERIOD: Duration = Duration::from_secs(1);
/// Looks between two readings of what rarely changes.
const RARELY: u32 = 30;

/// What was seen at one moment.
#[derive(Clone, Default)]
pub struct Seen {
    /// Seconds since 1970.
    pub at: u64,
    /// INFO.
    pub info: Info,
    /// Values of the columns; empty at first.
    pub values: Vec<f32>,
    /// Latencies since the last look.
    pub latencies: Histograms,
    /// Processor time of threads, in cores.
    pub threads: Vec<ThreadTime>,
    /// Why the server cannot be seen.
    pub failure: Option<String>,
    /// `save`, as configured.
    pub save_points: String,
    /// What takes long.
    pub progress: Vec<Progress>,
}

/// Seconds since 1970.
pub fn now() -> u64 {
    let since = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH);
    since.map_or(0, |since| since.as_secs())
}

/// What is kept between two looks.
#[derive(Default)]
struct Looker {
    groups: Groups,
    histograms: Histograms,
    threads: Vec<ThreadTime>,
    save_points: String,
    paces: Paces,
    last: Option<(Instant, Info)>,
    looks: u32,
}

/// Looks until the process ends.
pub async fn run(app: Arc<App>) {
    let mut looker = Looker::default();
    let mut ticks = tokio::time::interval(PERIOD);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        ticks.tick().await;
        let seen = match looker.look(&app).await {
            Ok(seen) => seen,
            Err(failure) => {
                looker.last = None;
                // What was known stays visible, with the reason why it is old.
                Seen { failure: Some(failure), ..app.seen.borrow().as_ref().clone() }
            }
        };
        app.events.notice(&app.seen.borrow(), &seen);
        app.seen.send_replace(Arc::new(seen));
    }
}

impl Looker {
    async fn look(&mut self, app: &App) -> Result<Seen, String> {
        if self.looks.is_multiple_of(RARELY) {
            self.look_rarely(app).await.map_err(|failure| failure.to_string())?;
        }
        let requests = [words!["INFO", "everything"], words!["LATENCY", "HISTOGRAM"]];
        let replies = app.watch.run_all(&requests).await.map_err(|failure| failure.to_string())?;
        let [info, histogram] = &replies[..] else { return Err("replies are missing".to_owned()) };
        if let Some(error) = info.error() {
            return Err(error.into_owned());
        }
        self.looks = self.looks.wrapping_add(1);
        let at = Instant::now();
        let info = Info::parse(&info.text());
        let histograms = Histograms::parse(histogram, &self.groups);
        let latencies = histograms.since(&self.histograms);
        let mut seen = Seen {
            at: now(),
            info: info.clone(),
            save_points: self.save_points.clone(),
            progress: self.paces.look(&info, at),
            ..Seen::default()
        };
        if let Some((before_at, before)) = &self.last {
            let seconds = at.duration_since(*before_at).as_secs_f64().max(0.001);
            let rates = Rates { now: &info, before, histograms: &latencies, seconds };
            seen.values = COLUMNS.iter().map(|column| (column.read)(&rates) as f32).collect();
            app.history.add(&Sample { at: seen.at, values: seen.values.clone() });
            seen.threads = self.busy_threads(app, seconds);
            seen.latencies = latencies;
        } else {
            self.threads = app.host.threads();
        }
        self.histograms = histograms;
        self.last = Some((at, info));
        Ok(seen)
    }

    async fn look_rarely(&mut self, app: &App) -> Result<(), Failure> {
        let requests = [words!["COMMAND"], words!["CONFIG", "GET", "save"]];
        let replies = app.watch.run_all(&requests).await?;
        if let [commands, save] = &replies[..] {
            if commands.error().is_none() {
                self.groups = groups(commands);
            }
            self.save_points = save.get("save").map(Value::text).unwrap_or_default();
        }
        Ok(())
    }

    /// The share of a core that each thread used since the last look.
    fn busy_threads(&mut self, app: &App, seconds: f64) -> Vec<ThreadTime> {
        let now = app.host.threads();
        let before = std::mem::replace(&mut self.threads, now.clone());
        let mut busy: Vec<ThreadTime> = Vec::new();
        // Threads of one name are shown as one.
        for thread in now {
            match busy.iter_mut().find(|other| other.name == thread.name) {
                Some(other) => other.seconds += thread.seconds,
                None => busy.push(thread),
            }
        }
        for thread in &mut busy {
            let same = before.iter().filter(|other| other.name == thread.name);
            let earlier: f64 = same.map(|other| other.seconds).sum();
            thread.seconds = ((thread.seconds - earlier) / seconds).max(0.0);
        }
        busy
    }
}

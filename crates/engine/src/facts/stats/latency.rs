//! The latency monitor: what took longer than `latency-monitor-threshold`, by kind of event.
//!
//! Each kind has a ring of the last [`SAMPLES`] samples, at most one a second: the longest of that
//! second. What is timed anyway (a command) compares its time with the threshold; what is
//! not (eviction, expiry) asks `Engine::timed`, which looks at the clock only while the monitor
//! is on. The lock is taken only once something was slow.

use std::collections::{BTreeMap, VecDeque};
use std::sync::{Mutex, MutexGuard};
use std::time::Duration;
use structs::sync::lock;

/// Samples kept of each kind of event.
pub const SAMPLES: usize = 160;

/// What can be slow.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Slow {
    /// A command.
    Command,
    /// Serving a client that was blocked.
    CommandUnblocking,
    /// A round of evictions for one command.
    EvictionCycle,
    /// Deleting one key in it.
    EvictionDel,
    /// A round of active expiry.
    ExpireCycle,
    /// Deleting one key whose time has come.
    ExpireDel,
    /// A command that should never take long.
    FastCommand,
}

impl Slow {
    /// Returns the name of the event.
    pub fn name(self) -> &'static str {
        match self {
            Slow::Command => "command",
            Slow::CommandUnblocking => "command-unblocking",
            Slow::EvictionCycle => "eviction-cycle",
            Slow::EvictionDel => "eviction-del",
            Slow::ExpireCycle => "expire-cycle",
            Slow::ExpireDel => "expire-del",
            Slow::FastCommand => "fast-command",
        }
    }
}

/// The longest event of one second.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Sample {
    /// Seconds since the epoch.
    pub at_s: i64,
    /// How long it took.
    pub latency_ms: u64,
}

/// What is known of one kind of event.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Series {
    /// Oldest first.
    pub samples: VecDeque<Sample>,
    /// The longest ever.
    pub max_ms: u64,
    /// The sum over all events, sampled or not.
    pub sum_ms: u64,
    /// The number of all events.
    pub count: u64,
}

impl Series {
    fn add(&mut self, at_s: i64, latency_ms: u64) {
        self.max_ms = self.max_ms.max(latency_ms);
        self.sum_ms += latency_ms;
        self.count += 1;
        match self.samples.back_mut() {
            Some(last) if last.at_s == at_s => last.latency_ms = last.latency_ms.max(latency_ms),
            _ => {
                if self.samples.len() == SAMPLES {
                    self.samples.pop_front();
                }
                self.samples.push_back(Sample { at_s, latency_ms });
            }
        }
    }
}

/// All kinds of events that have been slow.
#[derive(Default)]
pub struct LatencyMonitor {
    series: Mutex<BTreeMap<Slow, Series>>,
}

impl LatencyMonitor {
    fn series(&self) -> MutexGuard<'_, BTreeMap<Slow, Series>> {
        lock(&self.series)
    }

    /// Notes that something took so long, whatever the threshold.
    pub fn add(&self, event: Slow, at_s: i64, latency: Duration) {
        self.series().entry(event).or_default().add(at_s, latency.as_millis() as u64);
    }

    /// Returns the kinds of events that have been slow, with what is known of each.
    pub fn all(&self) -> Vec<(Slow, Series)> {
        self.series().iter().map(|(&event, series)| (event, series.clone())).collect()
    }

    /// Returns what is known of the event of this name. Case matters.
    pub fn get(&self, name: &[u8]) -> Option<(Slow, Series)> {
        self.all().into_iter().find(|(event, _)| event.name().as_bytes() == name)
    }

    /// Forgets the events of this name, in any case, or all; says how many kinds those were.
    pub fn reset(&self, name: Option<&[u8]>) -> usize {
        let mut series = self.series();
        let before = series.len();
        series.retain(|event, _| {
            name.is_some_and(|name| !name.eq_ignore_ascii_case(event.name().as_bytes()))
        });
        before - series.len()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn add(monitor: &LatencyMonitor, at_s: i64, latency_ms: u64) {
        monitor.add(Slow::Command, at_s, Duration::from_millis(latency_ms));
    }

    #[test]
    fn a_second_has_one_sample_its_longest() {
        let monitor = LatencyMonitor::default();
        for (at_s, latency_ms) in [(7, 10), (7, 30), (7, 20), (8, 5)] {
            add(&monitor, at_s, latency_ms);
        }
        let (event, series) = monitor.get(b"command").unwrap();
        assert_eq!(event, Slow::Command);
        let expected = [Sample { at_s: 7, latency_ms: 30 }, Sample { at_s: 8, latency_ms: 5 }];
        assert_eq!(series.samples, expected);
        assert_eq!((series.max_ms, series.sum_ms, series.count), (30, 65, 4));
    }

    #[test]
    fn old_samples_make_room() {
        let monitor = LatencyMonitor::default();
        (0..SAMPLES as i64 + 3).for_each(|at_s| add(&monitor, at_s, 1));
        let (_, series) = monitor.get(b"command").unwrap();
        assert_eq!(series.samples.len(), SAMPLES);
        assert_eq!(series.samples[0].at_s, 3);
        assert_eq!(series.count, SAMPLES as u64 + 3);
    }

    #[test]
    fn a_reset_forgets_by_name_in_any_case() {
        let monitor = LatencyMonitor::default();
        add(&monitor, 1, 1);
        monitor.add(Slow::ExpireCycle, 1, Duration::from_millis(1));
        assert!(monitor.get(b"COMMAND").is_none());
        assert_eq!(monitor.reset(Some(b"other")), 0);
        assert_eq!(monitor.reset(Some(b"Command")), 1);
        assert_eq!(monitor.reset(None), 1);
        assert!(monitor.all().is_empty());
    }
}

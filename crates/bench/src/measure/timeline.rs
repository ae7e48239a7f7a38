//! The run second by second. Threads add slices of a fraction of a second; a second that no thread
//! can add to any more is reduced to its figures, so that a run of hours does not fill the memory
//! with histograms.

use super::LONGEST_NS;
use hdrhistogram::Histogram;
use std::sync::{Mutex, PoisonError};
use structs::sync::lock;

/// What a thread has seen since it last handed over.
pub struct Slice {
    /// Latencies in nanoseconds, two digits: enough for a curve, an eighth of the memory.
    pub latencies: Histogram<u32>,
    /// Error replies.
    pub errors: u64,
}

impl Default for Slice {
    fn default() -> Slice {
        Slice { latencies: coarse(), errors: 0 }
    }
}

fn coarse() -> Histogram<u32> {
    Histogram::new_with_bounds(1, LONGEST_NS, 2).expect("the bounds are valid")
}

/// One second of a run.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Second {
    /// Counted from the start, 0 is the first.
    pub at: u64,
    /// Replies.
    pub requests: u64,
    /// Error replies.
    pub errors: u64,
    /// Latencies in nanoseconds; 0 where there was no reply.
    pub p50_ns: u64,
    /// See above.
    pub p99_ns: u64,
    /// See above.
    pub max_ns: u64,
}

struct Open {
    at: u64,
    slice: Slice,
}

/// Seconds that can still grow, and those that cannot.
#[derive(Default)]
struct Seconds {
    done: Vec<Second>,
    open: Vec<Open>,
}

/// The seconds of one run, shared by its threads.
#[derive(Default)]
pub struct Timeline(Mutex<Seconds>);

/// A second is left open so long: threads hand over much more often.
const OPEN_SECONDS: u64 = 3;

impl Timeline {
    /// Adds a slice to a second and empties the slice.
    pub fn add(&self, at: u64, slice: &mut Slice) {
        if slice.latencies.is_empty() && slice.errors == 0 {
            return;
        }
        let mut seconds = lock(&self.0);
        // A thread that was held up for so long adds to the oldest second that is open.
        let oldest = seconds.done.last().map_or(0, |second| second.at + 1);
        let at = at.max(oldest);
        let index = match seconds.open.iter().position(|open| open.at == at) {
            Some(index) => index,
            None => {
                seconds.open.push(Open { at, slice: Slice::default() });
                seconds.open.len() - 1
            }
        };
        let open = &mut seconds.open[index].slice;
        open.latencies.add(&slice.latencies).expect("the bounds are the same");
        open.errors += slice.errors;
        slice.latencies.reset();
        slice.errors = 0;
        seconds.close(at.saturating_sub(OPEN_SECONDS));
    }

    /// The figures of second `at` so far.
    pub fn peek(&self, at: u64) -> Option<Second> {
        let seconds = lock(&self.0);
        let done = seconds.done.iter().rev().take(8).find(|second| second.at == at);
        done.cloned().or_else(|| seconds.open.iter().find(|open| open.at == at).map(Open::figures))
    }

    /// All seconds, without gaps: one without replies is there with zeros.
    pub fn finish(self) -> Vec<Second> {
        let mut seconds = self.0.into_inner().unwrap_or_else(PoisonError::into_inner);
        let end = seconds.open.iter().map(|open| open.at + 1).max().unwrap_or(0);
        seconds.close(end);
        seconds.done
    }
}

impl Seconds {
    /// Reduces all seconds before `end`.
    fn close(&mut self, end: u64) {
        let next = self.done.last().map_or(0, |second| second.at + 1);
        for at in next..end {
            let found = self.open.iter().position(|open| open.at == at);
            self.done.push(match found {
                Some(index) => self.open.swap_remove(index).figures(),
                None => Second { at, ..Second::default() },
            });
        }
    }
}

impl Open {
    fn figures(&self) -> Second {
        let latencies = &self.slice.latencies;
        let at_quantile = |quantile| {
            if latencies.is_empty() { 0 } else { latencies.value_at_quantile(quantile) }
        };
        Second {
            at: self.at,
            requests: latencies.len(),
            errors: self.slice.errors,
            p50_ns: at_quantile(0.5),
            p99_ns: at_quantile(0.99),
            max_ns: latencies.max(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn add(timeline: &Timeline, at: u64, latency: u64) {
        let mut slice = Slice::default();
        slice.latencies.record(latency).unwrap();
        timeline.add(at, &mut slice);
        assert!(slice.latencies.is_empty());
    }

    #[test]
    fn seconds_come_in_order_without_gaps() {
        let timeline = Timeline::default();
        add(&timeline, 1, 100);
        add(&timeline, 0, 200);
        add(&timeline, 9, 300);
        // Too late for second 2: it counts where there is still room.
        add(&timeline, 2, 400);
        assert_eq!(timeline.peek(0).unwrap().max_ns / 10, 20);
        let counts: Vec<u64> = timeline.finish().iter().map(|second| second.requests).collect();
        assert_eq!(counts, [1, 1, 0, 0, 0, 0, 1, 0, 0, 1]);
    }

    #[test]
    fn nothing_measured_has_no_seconds() {
        assert_eq!(Timeline::default().finish(), []);
    }
}

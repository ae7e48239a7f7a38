//! What one thread notes while it runs. Nothing here is shared, so noting costs no lock; a few
//! times a second what is new goes to the common time line.

use super::timeline::{Slice, Timeline};
use super::{Counts, LONGEST_NS, Tally, latencies};
use crate::workload::{Effect, Workload};
use hdrhistogram::Histogram;

/// A thread's notes.
pub struct Recorder {
    /// By operation.
    pub tallies: Vec<Tally>,
    /// What is counted once.
    pub counts: Counts,
    /// Open loop: how late requests left although a connection had room.
    pub late: Histogram<u64>,
    slice: Slice,
    /// Replies with the same operation and latency, not entered yet: all of a pipelined batch.
    same: (usize, u64, u32),
}

impl Recorder {
    /// For a workload.
    pub fn new(workload: &Workload) -> Recorder {
        let tally = |operation: &crate::workload::Operation| {
            Tally::new(&operation.name, operation.effect == Effect::Reads)
        };
        Recorder {
            tallies: workload.operations.iter().map(tally).collect(),
            counts: Counts::default(),
            late: latencies(),
            slice: Slice::default(),
            same: (0, 0, 0),
        }
    }

    /// Notes replies of the same latency.
    #[inline]
    pub fn replies(&mut self, operation: usize, latency_ns: u64, count: u32) {
        if self.same.0 == operation && self.same.1 == latency_ns {
            self.same.2 += count;
        } else {
            self.enter();
            self.same = (operation, latency_ns, count);
        }
    }

    /// Notes that the reply was an error.
    pub fn error(&mut self, operation: usize, text: &[u8]) {
        self.tallies[operation].error(text);
        self.slice.errors += 1;
        self.counts.note_error(text);
    }

    /// Notes reads without a value.
    pub fn misses(&mut self, operation: usize, count: u32) {
        self.tallies[operation].misses += u64::from(count);
    }

    /// Notes requests that were not answered before the end of the run.
    pub fn unfinished(&mut self, operation: usize, waited_ns: u64, count: u64) {
        self.enter();
        let waited_ns = waited_ns.clamp(1, LONGEST_NS);
        self.tallies[operation].latencies.saturating_record_n(waited_ns, count);
        self.tallies[operation].unfinished += count;
        self.counts.unfinished += count;
    }

    /// Hands what is new to the time line, as of second `second` of the run.
    pub fn flush(&mut self, timeline: &Timeline, second: u64) {
        self.enter();
        timeline.add(second, &mut self.slice);
    }

    fn enter(&mut self) {
        let (operation, latency, count) = self.same;
        if count > 0 {
            let latency = latency.clamp(1, LONGEST_NS);
            self.tallies[operation].latencies.saturating_record_n(latency, count.into());
            self.slice.latencies.saturating_record_n(latency, count);
            self.same.2 = 0;
        }
    }
}

//! Connects the latency monitor to the engine's clock and threshold.

use crate::engine::Engine;
use crate::latency::Slow;
use std::time::Duration;

impl Engine {
    /// Records a time that was measured anyway, if it exceeds the threshold.
    #[inline]
    pub(crate) fn note_latency(&self, event: Slow, nanoseconds: u64) {
        let threshold_ms = self.config.latency_monitor_threshold();
        if threshold_ms > 0 && nanoseconds / 1_000_000 >= threshold_ms {
            self.add_latency(event, nanoseconds);
        }
    }

    #[cold]
    fn add_latency(&self, event: Slow, nanoseconds: u64) {
        let at_s = self.clock.wall_s();
        self.latency.add(event, at_s, Duration::from_nanos(nanoseconds));
    }

    /// Runs `work`. Records its duration if the monitor is on.
    #[inline]
    pub(crate) fn timed<R>(&self, event: Slow, work: impl FnOnce() -> R) -> R {
        if self.config.latency_monitor_threshold() == 0 {
            return work();
        }
        let started = self.clock.now();
        let result = work();
        self.note_latency(event, self.clock.nanoseconds(started, self.clock.now()));
        result
    }
}

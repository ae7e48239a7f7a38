//! How long what is no command takes: writes and fsyncs of the journal's file, replies that wait
//! for a copy, acknowledgements of replicas.
//!
//! Each is a histogram of microseconds. All of them are added to by slow paths alone, so plain
//! atomics do.

use crate::clock::monotonic;
use crate::journal::JournalPos;
use crate::stats::powers::{Powers, Spread};
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering::*};
use std::time::{Duration, Instant};
use structs::sync::lock;

/// A sample that is not met within this time is one of a gate that was opened or of a history that
/// has ended, and counts for nothing.
const MAX_WAIT: Duration = Duration::from_mins(1);

/// How long something took, in microseconds.
#[derive(Default)]
pub struct Timing(Powers);

impl Timing {
    /// Adds one duration.
    pub fn note(&self, took: Duration) {
        self.0.note(u64::try_from(took.as_micros()).unwrap_or(u64::MAX).max(1));
    }

    /// Runs something and counts how long it takes.
    pub fn time<T>(&self, run: impl FnOnce() -> T) -> T {
        let began = monotonic();
        let outcome = run();
        self.note(began.elapsed());
        outcome
    }

    /// Returns what was counted.
    pub fn spread(&self) -> Spread {
        self.0.spread()
    }

    fn reset(&self) {
        self.0.reset();
    }
}

/// How long it takes until a position of the journal is reached by something that moves along
/// behind it. One position at a time is followed, so a histogram is of samples.
#[derive(Default)]
pub struct Wait {
    timing: Timing,
    /// The position of the sample; 0 if there is none. Positions of waits are never 0.
    position: AtomicU64,
    /// Everything before this has arrived.
    reached: AtomicU64,
    began: Mutex<Option<Instant>>,
}

impl Wait {
    /// Begins a sample at a position that something waits for, if there is no other sample and the
    /// position has not been reached.
    #[inline]
    pub fn begin(&self, position: JournalPos) {
        if self.position.load(Relaxed) == 0 && position.0 > self.reached.load(Relaxed) {
            self.begin_sample(position);
        }
    }

    #[cold]
    fn begin_sample(&self, position: JournalPos) {
        let mut began = lock(&self.began);
        if began.is_none() {
            *began = Some(monotonic());
            self.position.store(position.0, SeqCst);
            // It may have been reached before the position was there to be seen.
            if self.reached.load(SeqCst) >= position.0 {
                *began = None;
                self.position.store(0, Relaxed);
            }
        }
    }

    /// Notes that everything before a position has arrived.
    pub fn reached(&self, position: JournalPos) {
        self.reached.fetch_max(position.0, SeqCst);
        let waited_for = self.position.load(SeqCst);
        if waited_for == 0 || position.0 < waited_for {
            return;
        }
        let mut began = lock(&self.began);
        // Another thread may have begun the next sample meanwhile.
        if position.0 >= self.position.load(Relaxed)
            && let Some(began) = began.take()
        {
            self.position.store(0, Relaxed);
            let took = monotonic().duration_since(began);
            if took <= MAX_WAIT {
                self.timing.note(took);
            }
        }
    }

    /// Positions have changed their meaning, or are not waited for any longer.
    pub fn forget(&self) {
        let mut began = lock(&self.began);
        *began = None;
        self.position.store(0, Relaxed);
        self.reached.store(0, Relaxed);
    }
}

/// All of them.
#[derive(Default)]
pub struct Timings {
    /// Writes to the append-only file.
    pub journal_write: Timing,
    /// Its fsyncs.
    pub journal_fsync: Timing,
    /// Replies that wait for this server's disk.
    pub commit_fsync: Wait,
    /// Replies that wait for a quorum.
    pub commit_quorum: Wait,
    /// From the question for acknowledgements to the first replica's answer.
    pub replica_ack: Wait,
}

impl Timings {
    /// Returns all of them with their names.
    pub fn all(&self) -> [(&'static str, &Timing); 5] {
        [
            ("journal_write", &self.journal_write),
            ("journal_fsync", &self.journal_fsync),
            ("commit_fsync", &self.commit_fsync.timing),
            ("commit_quorum", &self.commit_quorum.timing),
            ("replica_ack", &self.replica_ack.timing),
        ]
    }

    /// Forgets what began to wait, because the journal's positions change their meaning.
    pub(crate) fn forget_waits(&self) {
        for wait in [&self.commit_fsync, &self.commit_quorum, &self.replica_ack] {
            wait.forget();
        }
    }

    /// Forgets all durations (CONFIG RESETSTAT).
    pub(crate) fn reset(&self) {
        self.all().iter().for_each(|(_, timing)| timing.reset());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_duration_is_a_microsecond_at_least() {
        let timing = Timing::default();
        for us in [0, 1, 3] {
            timing.note(Duration::from_micros(us));
        }
        let spread = timing.spread();
        assert_eq!((spread.sum, spread.counts[0], spread.counts[1]), (5, 2, 1));
        timing.reset();
        assert_eq!(timing.spread(), Spread::default());
    }

    #[test]
    fn one_position_at_a_time_is_followed() {
        let wait = Wait::default();
        let samples = || wait.timing.spread().counts.iter().sum::<u64>();
        wait.begin(JournalPos(0));
        wait.reached(JournalPos(9));
        assert_eq!(samples(), 0, "nothing waited");
        wait.begin(JournalPos(10));
        wait.begin(JournalPos(5));
        wait.reached(JournalPos(9));
        assert_eq!(samples(), 0, "it is not there yet");
        wait.reached(JournalPos(10));
        wait.reached(JournalPos(11));
        assert_eq!(samples(), 1);
        wait.begin(JournalPos(11));
        wait.reached(JournalPos(12));
        assert_eq!(samples(), 1, "it had been reached");
        wait.begin(JournalPos(20));
        wait.forget();
        wait.reached(JournalPos(30));
        assert_eq!(samples(), 1);
    }
}

//! What is known of the snapshots on the disk: when the last one was made, whether it went well,
//! and what has changed since. INFO, LASTSAVE, the save points and the refusal of writes while
//! snapshots fail all look here; the server's files do the work.

pub mod loading;
pub mod snapshots;

use crate::clock::Clock;
use crate::stats::Counter;
use keyspace::snapshot::Shared;
use snapshots::Cut;
use std::sync::atomic::{AtomicBool, AtomicI64, AtomicU64, Ordering::*};
use std::sync::{Arc, Mutex};
use std::time::Duration;
use structs::flags::Flag;
use structs::sync::lock;

/// The state of saving.
pub struct Persistence {
    clock: Clock,
    /// Changes that the last good file has, of all times.
    pub(crate) saved_changes: AtomicU64,
    last_save_s: AtomicI64,
    last_failed: Flag,
    last_try_s: AtomicI64,
    last_seconds: AtomicI64,
    saves: Counter,
    /// Snapshots that were begun in the background, for whatever purpose.
    forks: Counter,
    /// For how long the world stood still when the last snapshot began, in microseconds.
    cut_us: AtomicU64,
    /// When the one that runs in the background began, in seconds; 0 if there is none.
    running_since_s: AtomicI64,
    /// The snapshot that it writes.
    running: Mutex<Option<Arc<Shared>>>,
    keys_total: AtomicU64,
    last_peak: AtomicU64,
    is_scheduled: AtomicBool,
}

impl Persistence {
    /// Nothing has been saved or tried yet. `flag` is the bit of a failure among the special states
    /// of the server.
    pub(crate) fn new(clock: Clock, flag: Flag) -> Persistence {
        Persistence {
            clock,
            saved_changes: AtomicU64::new(0),
            last_save_s: AtomicI64::new(clock.wall_s()),
            last_failed: flag,
            last_try_s: AtomicI64::new(0),
            last_seconds: AtomicI64::new(-1),
            saves: Counter::default(),
            forks: Counter::default(),
            cut_us: AtomicU64::new(0),
            running_since_s: AtomicI64::new(0),
            running: Mutex::default(),
            keys_total: AtomicU64::new(0),
            last_peak: AtomicU64::new(0),
            is_scheduled: AtomicBool::new(false),
        }
    }
}

impl Persistence {
    /// Seconds since the epoch of the last good file, or of the start (LASTSAVE).
    pub fn last_save_s(&self) -> i64 {
        self.last_save_s.load(Relaxed)
    }

    /// Whether the last save in the background went wrong.
    pub fn last_failed(&self) -> bool {
        self.last_failed.is_set()
    }

    /// When the last save in the background was tried, in seconds since the epoch; 0 if never.
    pub fn last_try_s(&self) -> i64 {
        self.last_try_s.load(Relaxed)
    }

    /// How long the last save in the background took; −1 if there was none.
    pub fn last_seconds(&self) -> i64 {
        self.last_seconds.load(Relaxed)
    }

    /// Good files so far.
    pub fn saves(&self) -> u64 {
        self.saves.get()
    }

    /// Snapshots begun in the background so far, for each of which Redis forks.
    pub fn forks(&self) -> u64 {
        self.forks.get()
    }

    /// One more has begun.
    pub fn count_fork(&self) {
        self.forks.add(1);
    }

    /// How long the beginning of the last snapshot took, in microseconds: what takes the place of
    /// Redis's fork, during which no client is served either. 0 if there was none.
    pub fn cut_us(&self) -> u64 {
        self.cut_us.load(Relaxed)
    }

    /// Notes it.
    pub fn note_cut(&self, took: Duration) {
        self.keys_total.store(0, Relaxed);
        self.cut_us.store((took.as_micros() as u64).max(1), Relaxed);
    }

    /// Forgets these figures (CONFIG RESETSTAT).
    pub fn reset_saves(&self) {
        self.saves.set(0);
        self.forks.set(0);
        self.cut_us.store(0, Relaxed);
    }

    /// For how many seconds a save has been running in the background.
    pub fn running_seconds(&self) -> Option<i64> {
        let since = self.running_since_s.load(Relaxed);
        (since > 0).then(|| (self.clock.wall_s() - since).max(0))
    }

    /// Keys that the snapshot under way has to write, about; 0 before they are counted.
    pub fn keys_total(&self) -> u64 {
        self.keys_total.load(Relaxed)
    }

    /// The most bytes that writers had handed over and that were not written, during the last save.
    pub fn last_peak_bytes(&self) -> u64 {
        self.last_peak.load(Relaxed)
    }

    /// A save is to begin as soon as it can (BGSAVE SCHEDULE).
    pub fn schedule(&self) {
        self.is_scheduled.store(true, Relaxed);
    }

    /// Whether one is to begin; takes the request back.
    pub fn take_scheduled(&self) -> bool {
        self.is_scheduled.swap(false, AcqRel)
    }

    /// Whether one is to begin.
    pub fn is_scheduled(&self) -> bool {
        self.is_scheduled.load(Relaxed)
    }

    /// A save in the background begins.
    pub fn begins(&self, snapshot: &Arc<Shared>) {
        self.set_running(Some(Arc::clone(snapshot)));
        self.last_try_s.store(self.clock.wall_s(), Relaxed);
        self.running_since_s.store(self.clock.wall_s().max(1), Relaxed);
    }

    fn set_running(&self, snapshot: Option<Arc<Shared>>) {
        *lock(&self.running) = snapshot;
    }

    /// Ends the save in the background, if there is one, but no other snapshot.
    pub fn end_running(&self) {
        if let Some(running) = &*lock(&self.running) {
            running.end();
        }
    }

    /// How many keys it has to write.
    pub fn set_keys_total(&self, keys: u64) {
        self.keys_total.store(keys, Relaxed);
    }

    /// A file was written, in the background or not.
    pub fn saved(&self, cut: &Cut) {
        self.saved_changes.store(cut.changes, Relaxed);
        self.last_save_s.store(self.clock.wall_s(), Relaxed);
        self.last_failed.set(false);
        self.saves.add(1);
    }

    /// A save in the background has ended. One that was cancelled is not a failure.
    pub fn ended(&self, outcome: Outcome, peak_bytes: usize) {
        self.last_seconds.store(self.running_seconds().unwrap_or(0), Relaxed);
        self.set_running(None);
        self.running_since_s.store(0, Relaxed);
        self.last_peak.store(peak_bytes as u64, Relaxed);
        if outcome == Outcome::Failed {
            self.last_failed.set(true);
        }
    }

    /// All data was loaded from files, so nothing has changed.
    pub fn set_unchanged(&self, changes: u64) {
        self.saved_changes.store(changes, Relaxed);
    }
}

/// How a save has ended.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Outcome {
    /// The file is there.
    Saved,
    /// It is not, and the old one still is.
    Failed,
    /// Somebody ended it.
    Cancelled,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_began_behind_a_save_is_not_ended_in_its_place() {
        let [save, rewrite] = [0; 2].map(|_| Arc::new(Shared::new(0, Box::new(|| {}))));
        let persistence = Persistence::new(Clock::system(), Flag::default());
        persistence.begins(&save);
        persistence.end_running();
        assert!(save.is_over() && !rewrite.is_over());
        persistence.ended(Outcome::Cancelled, 0);
        persistence.begins(&rewrite);
        persistence.ended(Outcome::Saved, 0);
        persistence.end_running();
        assert!(!rewrite.is_over(), "it has ended by itself");
    }
}

//! The state of being loaded: the gate that clients meet meanwhile, and what INFO says of it.

use crate::scripts::Libraries;
use crate::stats::Counter;
use keyspace::keyspace::Taken;
use keyspace::world::{Reader, World};
use keyspace::{DbIndex, Keyspace, Millis};
use std::sync::atomic::{AtomicBool, AtomicI64, AtomicU64, Ordering::*};
use std::sync::{Mutex, OnceLock};
use structs::flags::Flag;
use structs::sync::lock;

/// A second data set, into which a snapshot is loaded while the first one is served.
pub struct SecondDataSet {
    /// Its keys.
    pub keyspace: Keyspace,
    /// Its libraries of functions.
    pub libraries: Mutex<Libraries>,
}

impl SecondDataSet {
    /// Takes everything out of it, to be freed. The thread is outside the world of `served`, the
    /// first data set.
    pub fn take(&self, served: &Keyspace) -> Taken {
        let stopped = served.world().stop();
        *lock(&self.libraries) = Libraries::default();
        let dbs: Vec<DbIndex> = served.used_databases().collect();
        let mut taken = Taken::default();
        for stripe in self.keyspace.stripes() {
            taken.take(&mut stripe.lock(), dbs.iter().copied());
        }
        drop(stopped);
        taken
    }
}

/// Whether, what and how far.
#[derive(Default)]
pub struct Loading {
    is_on: Flag,
    /// Something is loaded beside the data set, which is served.
    is_beside: AtomicBool,
    beside: OnceLock<SecondDataSet>,
    is_cancelled: AtomicBool,
    started_ms: AtomicI64,
    total_bytes: AtomicU64,
    loaded_bytes: AtomicU64,
    /// What the file says its server used, in bytes; 0 if it does not say.
    pub rdb_used_bytes: AtomicU64,
    /// Keys of the last file that were loaded.
    pub keys_loaded: Counter,
    /// Keys of the last file whose time had come.
    pub keys_expired: Counter,
    /// What of the last file was passed over, because it is of no type that is known here.
    pub skipped: Counter,
    /// Registrations of threads that have finished: there is no giving them back to the world.
    readers: Mutex<Vec<Reader<'static>>>,
}

/// How far a load is.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Progress {
    /// When it began, in milliseconds since the epoch of Unix.
    pub started_ms: i64,
    /// Bytes of all files.
    pub total_bytes: u64,
    /// Those that have been read.
    pub loaded_bytes: u64,
    /// The same in percent.
    pub percent: f64,
    /// Seconds that are left, if it goes on at this pace.
    pub eta_seconds: i64,
}

impl Loading {
    /// Returns the state without a load. `flag` is its bit among the special states of the server.
    pub(crate) fn new(flag: Flag) -> Loading {
        Loading { is_on: flag, ..Loading::default() }
    }

    /// Closes the gate: commands that do not say otherwise are refused until [`Loading::end`].
    /// `total_bytes` are those of all files to come.
    pub fn begin(&self, total_bytes: u64, now: Millis) {
        self.begin_figures(total_bytes, now);
        self.is_on.set(true);
    }

    /// Something is loaded beside the data set from now on, until [`Loading::end`]. Few commands
    /// are refused.
    pub fn begin_beside(&self, total_bytes: u64, now: Millis) {
        self.begin_figures(total_bytes, now);
        self.is_beside.store(true, SeqCst);
    }

    fn begin_figures(&self, total_bytes: u64, now: Millis) {
        self.started_ms.store(now.0, Relaxed);
        self.total_bytes.store(total_bytes, Relaxed);
        self.loaded_bytes.store(0, Relaxed);
        self.rdb_used_bytes.store(0, Relaxed);
    }

    /// Opens the gate.
    pub fn end(&self) {
        self.is_on.set(false);
        self.is_beside.store(false, SeqCst);
    }

    /// Whether something is loaded beside the data set, which is served.
    #[inline]
    pub fn is_beside(&self) -> bool {
        self.is_beside.load(Relaxed)
    }

    /// The second data set, which is made when it is first needed.
    pub fn beside(&self, served: &Keyspace) -> &SecondDataSet {
        self.beside.get_or_init(|| SecondDataSet {
            keyspace: served.beside(),
            libraries: Mutex::default(),
        })
    }

    /// Whether a load is under way.
    #[inline]
    pub fn is_on(&self) -> bool {
        self.is_on.is_set()
    }

    /// Asks every load, now or later, to give up: the server is to stop. There is no way back.
    pub fn cancel(&self) {
        self.is_cancelled.store(true, SeqCst);
    }

    /// Whether the server is to stop.
    pub fn is_cancelled(&self) -> bool {
        self.is_cancelled.load(Relaxed)
    }

    /// So many more bytes have been read.
    pub fn advance(&self, bytes: u64) {
        self.loaded_bytes.fetch_add(bytes, Relaxed);
    }

    /// So many bytes will be read again.
    pub fn retract(&self, bytes: u64) {
        self.loaded_bytes.fetch_sub(bytes, Relaxed);
    }

    /// How far the load is; `None` if there is none.
    pub fn progress(&self, now: Millis) -> Option<Progress> {
        if !self.is_on() && !self.is_beside() {
            return None;
        }
        let started_ms = self.started_ms.load(Relaxed);
        let total_bytes = self.total_bytes.load(Relaxed).max(1);
        // A file that grows while it is read must not make nonsense of the rest.
        let loaded_bytes = self.loaded_bytes.load(Relaxed).min(total_bytes);
        let elapsed = (now.0 - started_ms).max(0) / 1000;
        let left = (total_bytes - loaded_bytes) as i64;
        let eta_seconds = if elapsed == 0 || loaded_bytes == 0 {
            1
        } else {
            (elapsed as f64 * left as f64 / loaded_bytes as f64) as i64
        };
        let percent = loaded_bytes as f64 / total_bytes as f64 * 100.0;
        Some(Progress { started_ms, total_bytes, loaded_bytes, percent, eta_seconds })
    }

    /// A registration with the world for the calling thread, to be given back by
    /// [`Loading::return_reader`].
    pub(crate) fn take_reader(&self, world: &'static World) -> Reader<'static> {
        let spare = lock(&self.readers).pop();
        spare.unwrap_or_else(|| world.register())
    }

    /// Keeps a registration for the next thread; it must be outside.
    pub(crate) fn return_reader(&self, reader: Reader<'static>) {
        lock(&self.readers).push(reader);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_load_that_begins_after_it_was_cancelled_is_cancelled() {
        let loading = Loading::default();
        loading.cancel();
        loading.begin(1000, Millis(5_000));
        assert!(loading.is_cancelled());
        loading.end();
        assert!(loading.is_cancelled());
    }

    #[test]
    fn progress_estimates_what_is_left() {
        let loading = Loading::default();
        assert_eq!(loading.progress(Millis(0)), None);
        loading.begin(1000, Millis(5_000));
        assert_eq!(loading.progress(Millis(5_000)).map(|p| p.eta_seconds), Some(1));
        loading.advance(250);
        let progress = loading.progress(Millis(15_000)).expect("it goes on");
        assert_eq!((progress.eta_seconds, progress.percent), (30, 25.0));
        loading.advance(10_000);
        assert_eq!(loading.progress(Millis(16_000)).map(|p| p.eta_seconds), Some(0));
        loading.end();
        assert_eq!(loading.progress(Millis(16_000)), None);
    }
}

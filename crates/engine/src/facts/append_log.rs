//! The state of the append-only file for commands, gates and INFO. The file itself and the threads
//! that write it are in the server. The position that is on the disk is a source of
//! [`journal::safe`].

use crate::clock::{Clock, Ticks};
use crate::journal::{Journal, JournalPos};
use std::sync::atomic::{AtomicBool, AtomicI64, AtomicU8, AtomicU64, Ordering::*, fence};
use std::sync::{Mutex, OnceLock};
use std::time::Duration;
use structs::flags::Flag;
use structs::sync::lock;

/// After so long without the file having what was there at a look, writes wait. What is appended
/// just behind a look may be overdue only at the look after the next, and looks are 100 ms apart:
/// at worst that is twice 500 ms.
const MAX_LAG: Duration = Duration::from_millis(400);

/// Whether there is an append-only file.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u8)]
pub enum LogState {
    /// There is none.
    Off = 0,
    /// The log was switched on and its first base file is being written. The log is not complete
    /// before that.
    Beginning = 1,
    /// It is written.
    On = 2,
}

type Nudge = Box<dyn Fn() + Send + Sync>;

/// The append-only file's state; see the module's documentation.
#[derive(Default)]
pub struct AppendLog {
    state: AtomicU8,
    /// Writes are refused: the last write or fsync failed.
    is_broken: Flag,
    /// Writes wait, because the file lags.
    lags: Flag,
    /// Where the journal ended at a look that the file has not reached, and when that was.
    last_look: Mutex<Option<(u64, Ticks)>>,
    error: Mutex<String>,
    /// Everything before this position was written to the file, but perhaps not to the disk.
    pub written: AtomicU64,
    /// Everything before this position is in a base, whether it was written to the file or not.
    pub in_base: AtomicU64,
    /// The writing thread forces a file to the disk that is complete, and writes no other one.
    pub is_closing: AtomicBool,
    lapses: AtomicU64,
    repaired_lapses: AtomicU64,
    /// The writing thread sleeps until it is nudged.
    pub is_asleep: AtomicBool,
    nudge: OnceLock<Nudge>,
    /// Figures for INFO.
    pub figures: Figures,
}

/// What INFO says about the append-only file.
#[derive(Default)]
pub struct Figures {
    /// Bytes of all files that would be loaded.
    pub current_size: AtomicU64,
    /// Bytes of them when the last rewrite ended, or at the start.
    pub base_size: AtomicU64,
    /// A rewrite is under way, or must not begin because the log is being loaded anew.
    pub is_rewriting: AtomicBool,
    /// A rewrite begins when a snapshot that is under way ends.
    pub is_scheduled: AtomicBool,
    /// Seconds that the last rewrite took; −1 before the first.
    pub last_rewrite_s: AtomicI64,
    /// When the rewrite under way began, seconds since the epoch.
    pub rewrite_began_s: AtomicI64,
    /// The last rewrite failed.
    pub rewrite_failed: AtomicBool,
    /// Rewrites that were begun; the number of the last one.
    pub rewrites: AtomicU64,
    /// Those of them that INFO does not count any more (CONFIG RESETSTAT).
    pub forgotten_rewrites: AtomicU64,
    /// Failures in a row, which slow down the attempts.
    pub consecutive_failures: AtomicU64,
    /// An fsync is under way on its own thread.
    pub pending_fsyncs: AtomicU64,
    /// Times that writes had to wait because the file lagged.
    pub lags: AtomicU64,
    /// Times that data was written although an fsync took more than two seconds.
    pub delayed_fsyncs: AtomicU64,
    /// Bytes that memory grew by during the last rewrite.
    pub last_cow_bytes: AtomicU64,
}

impl Figures {
    /// Forgets what CONFIG RESETSTAT forgets.
    pub(crate) fn reset(&self) {
        self.forgotten_rewrites.store(self.rewrites.load(Relaxed), Relaxed);
        self.delayed_fsyncs.store(0, Relaxed);
        self.lags.store(0, Relaxed);
        self.consecutive_failures.store(0, Relaxed);
    }
}

impl AppendLog {
    /// Returns the state without a log. The flags are the bits of a broken one and of one that lags
    /// among the special states of the server.
    pub(crate) fn new(broken: Flag, lags: Flag) -> AppendLog {
        AppendLog { is_broken: broken, lags, ..AppendLog::default() }
    }

    /// Returns whether there is a log.
    pub fn state(&self) -> LogState {
        match self.state.load(Acquire) {
            0 => LogState::Off,
            1 => LogState::Beginning,
            _ => LogState::On,
        }
    }

    /// Sets whether there is one.
    pub fn set_state(&self, state: LogState) {
        self.state.store(state as u8, Release);
    }

    /// Returns whether writes are refused.
    #[inline]
    pub fn is_broken(&self) -> bool {
        self.is_broken.is_set()
    }

    /// Refuses writes from now on, for this reason.
    pub fn set_broken(&self, error: &str) {
        *lock(&self.error) = error.to_owned();
        self.is_broken.set(true);
    }

    /// Accepts writes again; `true` if they were refused.
    pub fn set_sound(&self) -> bool {
        self.is_broken.set(false)
    }

    /// Returns whether writes have to wait, because the file lags.
    #[inline]
    pub fn lags(&self) -> bool {
        self.lags.is_set()
    }

    /// Looks whether the file lags behind the journal, which ends at `end` now, and makes writes
    /// wait if so. Called often by each thread that writes, because one without a processor, as the
    /// file's may be, cannot say that it lags. `counts`: clients are told of writes that are not in
    /// the file. Returns whether writes waited and may go on.
    pub fn look(&self, end: JournalPos, counts: bool, clock: &Clock) -> bool {
        let Ok(mut last) = self.last_look.try_lock() else { return false };
        // A new history may end before a look at the one before.
        let missing = last.filter(|&look| counts && look.0 <= end.0 && self.is_missing(look));
        *last = missing.or_else(|| Some((end.0, clock.now())));
        let Some((_, since)) = missing else { return self.lags.set(false) };
        if clock.elapsed(since) > MAX_LAG && !self.lags.set(true) {
            // All that clients were told until now has to be there before they go on.
            *last = Some((end.0, since));
            self.figures.lags.fetch_add(1, Relaxed);
        }
        false
    }

    /// Lets writes go on if they waited and the file has what it lacked. Returns whether they did.
    pub fn catch_up(&self) -> bool {
        if !self.lags.is_set() {
            return false;
        }
        let last = lock(&self.last_look);
        !last.is_some_and(|look| self.is_missing(look)) && self.lags.set(false)
    }

    /// Returns whether the files should have what was in the journal at a look, and have not.
    fn is_missing(&self, (place, _): (u64, Ticks)) -> bool {
        let is_kept = self.state() == LogState::On && !self.is_broken();
        is_kept
            && !self.is_closing.load(Relaxed)
            && place > self.written.load(Acquire).max(self.in_base.load(Acquire))
    }

    /// Returns why writes are refused.
    pub fn error(&self) -> String {
        lock(&self.error).clone()
    }

    /// Begins the log at this position: it has nothing from before.
    pub fn begin_at(&self, position: JournalPos) {
        self.written.store(position.0, Release);
        self.in_base.store(0, Release);
    }

    /// Returns whether the log has all data, so that what was forced to the disk would be there
    /// after a crash of the machine.
    pub fn is_complete(&self) -> bool {
        self.state() == LogState::On && !self.needs_rewrite()
    }

    /// Notes that an fsync failed and works again. The disk may lack its data although they are in
    /// memory, so everything has to be written anew. Called before the disk's position advances.
    pub fn note_lapse(&self) {
        self.lapses.fetch_add(1, SeqCst);
    }

    /// Returns how often an fsync has failed and worked again.
    pub fn lapses(&self) -> u64 {
        self.lapses.load(SeqCst)
    }

    /// Notes that everything was written anew by a rewrite that began after so many lapses.
    pub fn repair(&self, lapses: u64) {
        self.repaired_lapses.fetch_max(lapses, SeqCst);
    }

    /// Returns whether everything is to be written anew because of a lapse.
    pub fn needs_rewrite(&self) -> bool {
        self.repaired_lapses.load(SeqCst) < self.lapses()
    }

    /// Returns whether a rewrite is under way, and whether one is to come: because it was put off,
    /// because there is no log without it, or because the log may lack something. While a rewrite
    /// is about to begin, or the log is about to be ready, one of both is true.
    pub fn rewrites(&self) -> (bool, bool) {
        // Each changes after the next one does.
        let is_put_off = self.figures.is_scheduled.load(Acquire);
        let is_under_way = self.figures.is_rewriting.load(Acquire);
        let is_needed = self.state() == LogState::Beginning || self.needs_rewrite();
        (is_under_way, is_put_off || (is_needed && !is_under_way))
    }

    /// Says how to wake the writing thread; once.
    pub fn set_nudge(&self, nudge: Nudge) {
        assert!(self.nudge.set(nudge).is_ok(), "there is one writing thread");
    }

    /// Wakes the writing thread if it sleeps and there is something to write. Called at the end of
    /// a turn.
    #[inline]
    pub fn nudge(&self, journal: &Journal) {
        // Either this thread sees that the writing thread sleeps, or the writing thread sees what
        // was appended.
        fence(SeqCst);
        if self.is_asleep.load(Relaxed) && journal.position().0 > self.written.load(Relaxed) {
            self.wake_writer();
        }
    }

    /// Wakes the writing thread if it sleeps.
    #[cold]
    pub fn wake_writer(&self) {
        if self.is_asleep.swap(false, SeqCst)
            && let Some(nudge) = self.nudge.get()
        {
            nudge();
        }
    }
}

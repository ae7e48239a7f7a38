//! What DEBUG changes in a running server, for the sake of tests.

use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU64, AtomicUsize, Ordering::Relaxed};
use std::time::Duration;

/// A failure of the disk that is made up (DEBUG AOF-FAULT).
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
#[repr(u8)]
pub enum DiskFault {
    /// None.
    #[default]
    None = 0,
    /// Writes fail: the disk is full.
    Write = 1,
    /// Writes write half of what they are given, then fail.
    ShortWrite = 2,
    /// Forcing to the disk fails.
    Sync = 3,
}

/// The switches; all off in production.
#[derive(Default)]
pub struct DebugSettings {
    packed_threshold: AtomicUsize,
    skips_checksums: AtomicBool,
    pauses_cron: AtomicBool,
    moves_all: AtomicBool,
    scripts_may_all: AtomicBool,
    enforces_reply_list: AtomicBool,
    disk_fault: AtomicU8,
    log_delay_us: AtomicU64,
    holds_before_pause: AtomicBool,
    holds_before_decision: AtomicBool,
}

impl DebugSettings {
    /// List elements of at least so many bytes are stored alone; 0: as the configuration says.
    #[inline]
    pub fn packed_threshold(&self) -> usize {
        self.packed_threshold.load(Relaxed)
    }

    /// DEBUG QUICKLIST-PACKED-THRESHOLD.
    pub fn set_packed_threshold(&self, bytes: usize) {
        self.packed_threshold.store(bytes, Relaxed);
    }

    /// Whether RESTORE takes a payload without looking at its version and checksum.
    pub fn skips_checksums(&self) -> bool {
        self.skips_checksums.load(Relaxed)
    }

    /// DEBUG SET-SKIP-CHECKSUM-VALIDATION.
    pub fn set_skips_checksums(&self, skips: bool) {
        self.skips_checksums.store(skips, Relaxed);
    }

    /// The failure of the disk that is to be made up.
    #[inline]
    pub fn disk_fault(&self) -> DiskFault {
        match self.disk_fault.load(Relaxed) {
            1 => DiskFault::Write,
            2 => DiskFault::ShortWrite,
            3 => DiskFault::Sync,
            _ => DiskFault::None,
        }
    }

    /// DEBUG AOF-FAULT.
    pub fn set_disk_fault(&self, fault: DiskFault) {
        self.disk_fault.store(fault as u8, Relaxed);
    }

    /// How long to wait before the append-only file is written.
    pub fn log_delay(&self) -> Duration {
        Duration::from_micros(self.log_delay_us.load(Relaxed))
    }

    /// DEBUG AOF-FLUSH-SLEEP.
    pub fn set_log_delay(&self, microseconds: u64) {
        self.log_delay_us.store(microseconds, Relaxed);
    }

    /// Whether all output counts against the limit of clients that have never authenticated.
    pub fn enforces_reply_list(&self) -> bool {
        self.enforces_reply_list.load(Relaxed)
    }

    /// DEBUG CLIENT-ENFORCE-REPLY-LIST.
    pub fn set_enforces_reply_list(&self, enforces: bool) {
        self.enforces_reply_list.store(enforces, Relaxed);
    }

    /// Whether periodic work (expiry, limits of clients) is suspended.
    pub fn pauses_cron(&self) -> bool {
        self.pauses_cron.load(Relaxed)
    }

    /// DEBUG PAUSE-CRON.
    pub fn set_pauses_cron(&self, pauses: bool) {
        self.pauses_cron.store(pauses, Relaxed);
    }

    /// Whether jobs that move slots go on copying, and do not let requests for the slots wait.
    pub fn holds_before_pause(&self) -> bool {
        self.holds_before_pause.load(Relaxed)
    }

    /// DEBUG SLOTMIGRATION PREVENT-PAUSE.
    pub fn set_holds_before_pause(&self, holds: bool) {
        self.holds_before_pause.store(holds, Relaxed);
    }

    /// Whether jobs that move slots do not hand them over although requests wait.
    pub fn holds_before_decision(&self) -> bool {
        self.holds_before_decision.load(Relaxed)
    }

    /// DEBUG SLOTMIGRATION PREVENT-FAILOVER.
    pub fn set_holds_before_decision(&self, holds: bool) {
        self.holds_before_decision.store(holds, Relaxed);
    }

    /// Whether defragmentation moves every entry again and again.
    pub fn moves_all(&self) -> bool {
        self.moves_all.load(Relaxed)
    }

    /// DEBUG DEFRAG-ALL.
    pub fn set_moves_all(&self, moves: bool) {
        self.moves_all.store(moves, Relaxed);
    }

    /// Whether scripts may run commands that are not for scripts.
    pub fn scripts_may_all(&self) -> bool {
        self.scripts_may_all.load(Relaxed)
    }

    /// Says so, or takes it back.
    pub fn set_scripts_may_all(&self, may: bool) {
        self.scripts_may_all.store(may, Relaxed);
    }
}

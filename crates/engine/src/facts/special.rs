//! The special states of the server: one bit each in one word, so that a request to a server in no
//! special state pays for one test of many (`docs/internals/execution.md`, "One word of flags").
//!
//! A bit is set before the state can concern a request that the word is tested for, and cleared
//! when the state has ended. It may be set while the exact condition is not met (`MinReplicas`);
//! then the slow path finds nothing to do. It is never clear while the condition is met.

use std::sync::Arc;
use structs::flags::{Flag, FlagWord};

/// A state in which requests need more than the fast path. The comment names the owner of the bit,
/// which alone sets and clears it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
pub enum Special {
    /// `maxmemory` is set. Owner: [`OptionBits`].
    MemoryLimit,
    /// `min-replicas-to-write` and `min-replicas-max-lag` are set. Owner: [`OptionBits`].
    MinReplicas,
    /// Requests are held back. Owner: `clients::pause::Pause`.
    Pause,
    /// The data set is being loaded. Owner: `persistence::loading::Loading`.
    Loading,
    /// There are clients in MONITOR. Owner: `Engine::monitors`.
    Monitors,
    /// A thread has very many messages to read. Owner: `clients::mailbox::Shared`.
    OverdueMail,
    /// The last save in the background failed. Owner: `persistence::Persistence`.
    SaveFailed,
    /// The append-only file cannot be written. Owner: `append_log::AppendLog`.
    LogBroken,
    /// Writes wait for a reader of the journal. Owner: `journal::Journal`.
    JournalFull,
    /// Writes wait, because the append-only file lags. Owner: `append_log::AppendLog`.
    LogLags,
    /// This server follows a primary. Owner: `upstream::Upstream`.
    Replica,
    /// This server is a node of a cluster. Owner: `membership::Membership`.
    Cluster,
    /// There is, or was, a user that may not do everything. Owner: `acl::Acl`.
    RestrictedUsers,
    /// Long commands hold keys. Owner: `holds::Holds`.
    Holds,
    /// A snapshot is under way. Owner: `persistence::snapshots::Snapshots`.
    Snapshot,
    /// Keys are counted for HOTKEYS. Owner: `hotkeys::HotKeys`.
    HotKeys,
    /// `cluster-slot-stats-enabled` is set. Owner: [`OptionBits`].
    SlotStats,
    /// `latency-monitor-threshold` is set. Owner: [`OptionBits`].
    LatencyMonitor,
    /// `size-tracking` is set. Owner: [`OptionBits`].
    SizeTracking,
    /// A thread is overloaded. Owner: `shedding::Shedding`.
    Overload,
    /// `rate-limits` is set. Owner: `rate_limits::RateLimits`.
    RateLimits,
}

impl Special {
    /// What is looked at before a request runs: whether gates apply to it.
    pub const GATES: u64 =
        Special::SERVER | Special::Cluster.mask() | Special::RestrictedUsers.mask();
    /// The states in which every session passes all gates. Restricted users and nodes of a cluster
    /// have shorter ways, because most of their requests need no more.
    pub const SERVER: u64 = Special::MemoryLimit.mask()
        | Special::MinReplicas.mask()
        | Special::Pause.mask()
        | Special::Loading.mask()
        | Special::Monitors.mask()
        | Special::OverdueMail.mask()
        | Special::SaveFailed.mask()
        | Special::LogBroken.mask()
        | Special::JournalFull.mask()
        | Special::LogLags.mask()
        | Special::Replica.mask()
        | Special::Overload.mask()
        | Special::RateLimits.mask();
    /// What is looked at when the locks of the keys are held: what may hold a key back. Only then
    /// is it certain that a state that began before is seen.
    pub const KEYS: u64 = Special::Holds.mask() | Special::Snapshot.mask();
    /// What is looked at when a command has run: what counts it besides the statistics.
    pub const USAGE: u64 = Special::HotKeys.mask()
        | Special::SlotStats.mask()
        | Special::LatencyMonitor.mask()
        | Special::SizeTracking.mask()
        | Special::RateLimits.mask();

    /// All states.
    #[cfg(test)]
    pub(crate) const ALL: [Special; 21] = [
        Special::MemoryLimit,
        Special::MinReplicas,
        Special::Pause,
        Special::Loading,
        Special::Monitors,
        Special::OverdueMail,
        Special::SaveFailed,
        Special::LogBroken,
        Special::JournalFull,
        Special::LogLags,
        Special::Replica,
        Special::Cluster,
        Special::RestrictedUsers,
        Special::Holds,
        Special::Snapshot,
        Special::HotKeys,
        Special::SlotStats,
        Special::LatencyMonitor,
        Special::SizeTracking,
        Special::Overload,
        Special::RateLimits,
    ];

    /// Returns the bit.
    pub const fn mask(self) -> u64 {
        1 << self as u32
    }

    /// Returns the flag for the owner of the bit.
    pub(crate) fn flag(self, word: &Arc<FlagWord>) -> Flag {
        word.flag(self as u32)
    }
}

/// The owner of the bits that follow from the configuration.
struct OptionBits {
    memory_limit: Flag,
    min_replicas: Flag,
    slot_stats: Flag,
    latency_monitor: Flag,
    size_tracking: Flag,
}

/// Makes the bits that are options follow the configuration, now and after each change.
pub(crate) fn follow_options(word: &Arc<FlagWord>, config: &config::Config) {
    let options = OptionBits {
        memory_limit: Special::MemoryLimit.flag(word),
        min_replicas: Special::MinReplicas.flag(word),
        slot_stats: Special::SlotStats.flag(word),
        latency_monitor: Special::LatencyMonitor.flag(word),
        size_tracking: Special::SizeTracking.flag(word),
    };
    config.watch(Box::new(move |config| {
        options.memory_limit.follow(|| config.maxmemory() > 0);
        let needs_replicas =
            || config.min_replicas_to_write() > 0 && config.min_replicas_max_lag() > 0;
        options.min_replicas.follow(needs_replicas);
        options.slot_stats.follow(|| config.cluster_slot_stats_enabled());
        options.size_tracking.follow(|| config.size_tracking());
        options.latency_monitor.follow(|| config.latency_monitor_threshold() > 0);
    }));
}

//! Access to an engine's parts for other crates, by subject. Each part has its own interface. The
//! fields are private to the engine.

use super::Engine;
use crate::acl::Acl;
use crate::append_log::AppendLog;
use crate::background::Background;
use crate::clients::Clients;
use crate::clients::usage::ClientUsage;
use crate::clock::Clock;
use crate::commandlog::CommandLogs;
use crate::debug::DebugSettings;
use crate::epochs::Epochs;
use crate::failover::Handover;
use crate::flash::FlashTier;
use crate::holds::Holds;
use crate::hotkeys::HotKeys;
use crate::journal::Journal;
use crate::journal::safe::SafePositions;
use crate::last_wait::LastWait;
use crate::latency::LatencyMonitor;
use crate::loading::Loading;
use crate::mailbox::Mailbox;
use crate::membership::Membership;
use crate::own_keys::OwnKeys;
use crate::pause::Pause;
use crate::persistence::Persistence;
use crate::persistence::snapshots::Snapshots;
use crate::pressure::OverLimit;
use crate::pubsub::PubSub;
use crate::rates::{Rates, StaleShare};
use crate::scripts::Scripts;
use crate::session::Session;
use crate::shedding::Shedding;
use crate::slot_usage::SlotUsage;
use crate::special::Special;
use crate::stats::defrag::Defrag;
use crate::stats::timings::Timings;
use crate::stats::{Stats, ThreadStats};
use crate::table::CommandTable;
use crate::tracking::TrackingTable;
use crate::upstream::Upstream;
use crate::votes::Votes;
use config::Config;
use keyspace::Keyspace;
use std::collections::BTreeMap;
use std::sync::atomic::AtomicBool;
use std::sync::{Arc, Mutex};

/// The data and its memory.
impl Engine {
    /// The data.
    #[inline]
    pub fn keyspace(&self) -> &Keyspace {
        &self.keyspace
    }

    /// Keys that long commands hold.
    #[inline]
    pub fn holds(&self) -> &Holds {
        &self.holds
    }

    /// Figures of defragmentation, which moves entries so that pages become empty.
    #[inline]
    pub fn defrag(&self) -> &Defrag {
        &self.defrag
    }

    /// Share of keys that have expired but still exist.
    #[inline]
    pub fn stale_share(&self) -> &StaleShare {
        &self.stale_share
    }

    /// How long memory has exceeded the limit.
    #[inline]
    pub fn over_limit(&self) -> &OverLimit {
        &self.over_limit
    }

    /// The flash tier with the cold values.
    #[inline]
    pub fn tier(&self) -> &FlashTier {
        &self.tier
    }

    /// Snapshots.
    #[inline]
    pub fn snapshots(&self) -> &Snapshots {
        &self.snapshots
    }

    /// State of snapshot files.
    #[inline]
    pub fn persistence(&self) -> &Persistence {
        &self.persistence
    }

    /// Progress of files that are being loaded.
    #[inline]
    pub fn loading(&self) -> &Loading {
        &self.loading
    }
}

/// Options, commands, users and scripts.
impl Engine {
    /// The configuration.
    #[inline]
    pub fn config(&self) -> &Arc<Config> {
        &self.config
    }

    /// The commands.
    #[inline]
    pub fn table(&self) -> &'static CommandTable {
        self.table
    }

    /// Users and their credentials.
    #[inline]
    pub fn acl(&self) -> &Acl {
        &self.acl
    }

    /// Scripts and functions.
    #[inline]
    pub fn scripts(&self) -> &Scripts {
        &self.scripts
    }
}

/// Clients, and the channels and keys they listen to.
impl Engine {
    /// Connected clients.
    #[inline]
    pub fn clients(&self) -> &Clients {
        &self.clients
    }

    /// Memory of the clients.
    #[inline]
    pub fn client_usage(&self) -> &ClientUsage {
        &self.client_usage
    }

    /// One mailbox per thread.
    #[inline]
    pub fn mailboxes(&self) -> &[Mailbox] {
        &self.mailboxes
    }

    /// Subscriptions.
    #[inline]
    pub fn pubsub(&self) -> &PubSub {
        &self.pubsub
    }

    /// Client-side caches.
    #[inline]
    pub fn tracking(&self) -> &TrackingTable {
        &self.tracking
    }

    /// Counts a client that is in MONITOR from now on.
    pub fn add_monitor(&self) {
        self.monitors.add();
    }

    /// Pauses of requests: CLIENT PAUSE, a last snapshot.
    #[inline]
    pub fn pause(&self) -> &Pause {
        &self.pause
    }

    /// The wait for replicas before a shutdown.
    #[inline]
    pub fn last_wait(&self) -> &LastWait {
        &self.last_wait
    }
}

/// Copies of the data: the log, replicas, the primary, the cluster.
impl Engine {
    /// The journal.
    #[inline]
    pub fn journal(&self) -> &Journal {
        &self.journal
    }

    /// The append-only file.
    #[inline]
    pub fn append_log(&self) -> &AppendLog {
        &self.append_log
    }

    /// Positions up to which writes have enough copies.
    #[inline]
    pub fn safe(&self) -> &SafePositions {
        &self.safe
    }

    /// The replicas of this server.
    #[inline]
    pub fn replicas(&self) -> &crate::replicas::Replicas {
        &self.replicas
    }

    /// The primary of this server, if it is a replica.
    #[inline]
    pub fn upstream(&self) -> &Upstream {
        &self.upstream
    }

    /// Keys that clients of a replica have written, and when they expire.
    #[inline]
    pub fn own_keys(&self) -> &OwnKeys {
        &self.own_keys
    }

    /// Handover of the primary role.
    #[inline]
    pub fn failover(&self) -> &Handover {
        &self.failover
    }

    /// The cluster.
    #[inline]
    pub fn membership(&self) -> &Membership {
        &self.membership
    }

    /// The epoch of the last entry, in a cluster.
    #[inline]
    pub fn epochs(&self) -> &Epochs {
        &self.epochs
    }

    /// Votes sent with acknowledgements in a cluster, and the rule by which they count.
    #[inline]
    pub fn votes(&self) -> &Votes {
        &self.votes
    }
}

/// Figures and logs for operators.
impl Engine {
    /// Counters of all threads.
    #[inline]
    pub fn stats(&self) -> &Stats {
        &self.stats
    }

    /// Returns what is refused while threads are overloaded.
    pub fn shedding(&self) -> &Shedding {
        &self.shedding
    }

    /// Returns whether the next request of a session may begin under `rate-limits`.
    pub fn is_within_rate(&self, session: &mut Session) -> bool {
        self.rate_limits.is_open(&self.clock, session)
    }

    /// Counts for `rate-limits` what other nodes do for a client: requests that they get, bytes of
    /// requests and replies.
    pub fn charge_forwarded(&self, session: &mut Session, requests: usize, bytes: usize) {
        if self.special.any(Special::RateLimits.mask()) {
            self.rate_limits.charge(&self.clock, session, requests as u64, bytes as u64);
        }
    }

    /// Counters of each thread, including those of long commands.
    #[inline]
    pub fn thread_stats(&self) -> &[ThreadStats] {
        &self.thread_stats
    }

    /// Errors by code.
    #[inline]
    pub fn errors(&self) -> &Mutex<BTreeMap<String, u64>> {
        &self.errors
    }

    /// Durations of what is no command.
    #[inline]
    pub fn timings(&self) -> &Timings {
        &self.timings
    }

    /// Rates of the last moments.
    #[inline]
    pub fn rates(&self) -> &Rates {
        &self.rates
    }

    /// The keys that take most resources, while they are counted.
    #[inline]
    pub fn hotkeys(&self) -> &HotKeys {
        &self.hotkeys
    }

    /// What the requests for each slot take, while that is counted.
    pub fn slot_usage(&self) -> &SlotUsage {
        &self.slot_usage
    }

    /// Slow and large commands.
    #[inline]
    pub fn commandlogs(&self) -> &CommandLogs {
        &self.commandlogs
    }

    /// Slow events.
    #[inline]
    pub fn latency(&self) -> &LatencyMonitor {
        &self.latency
    }

    /// Time of the server's start in milliseconds since the epoch.
    #[inline]
    pub fn started_ms(&self) -> i64 {
        self.started_ms
    }
}

/// Time, threads and switches for tests.
impl Engine {
    /// The source of time.
    #[inline]
    pub fn clock(&self) -> Clock {
        self.clock
    }

    /// Background threads.
    #[inline]
    pub fn background(&self) -> &Background {
        &self.background
    }

    /// Whether expired keys are deleted actively (DEBUG SET-ACTIVE-EXPIRE).
    #[inline]
    pub fn active_expire(&self) -> &AtomicBool {
        &self.active_expire
    }

    /// Other switches of DEBUG.
    #[inline]
    pub fn debug(&self) -> &DebugSettings {
        &self.debug
    }
}

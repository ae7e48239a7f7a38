//! The struct [`Engine`]: everything that all threads share, as commands see it.

mod figures;
mod host;
mod memory;
mod timing;

use crate::acl::log::Refused;
use crate::acl::{Acl, Request};
use crate::append_log::AppendLog;
use crate::appliers::{Appliers, threads_beside};
use crate::background::{Background, all_threads, job_threads};
use crate::clients::acks::AckWaiters;
use crate::clients::usage::ClientUsage;
use crate::clients::{Client, Clients};
use crate::clock::Clock;
use crate::cold_reads::ColdReads;
use crate::command::Command;
use crate::commandlog::CommandLogs;
use crate::commits::Commits;
use crate::debug::DebugSettings;
use crate::epochs::Epochs;
use crate::events::Class;
use crate::failover::Handover;
use crate::flash::FlashTier;
use crate::holds::Holds;
use crate::hotkeys::HotKeys;
use crate::journal::Journal;
use crate::journal::safe::SafePositions;
use crate::last_wait::LastWait;
use crate::latency::LatencyMonitor;
use crate::loading::Loading;
use crate::mailbox::{self, Mailbox, Message};
use crate::membership::Membership;
use crate::own_keys::OwnKeys;
use crate::pause::Pause;
use crate::persistence::Persistence;
use crate::persistence::snapshots::Snapshots;
use crate::pressure::{InVain, OverLimit};
use crate::pubsub::{PubSub, Space};
use crate::rate_limits::RateLimits;
use crate::rates::{Rates, StaleShare};
use crate::request_keys::RequestKeys;
use crate::scripts::Scripts;
use crate::session::Session;
use crate::shedding::Shedding;
use crate::slot_usage::SlotUsage;
use crate::special::{Special, follow_options};
use crate::stats::defrag::Defrag;
use crate::stats::timings::Timings;
use crate::stats::{Stats, ThreadStats};
use crate::table::CommandTable;
use crate::thread::ThreadContext;
use crate::tracking::{Receivers, TrackingTable};
use crate::upstream::Upstream;
use crate::votes::Votes;
use config::{ClusterEndpoint, Config, MaxmemoryPolicy};
use keyspace::access::Policy;
use keyspace::keyspace::Assignment;
use keyspace::{Keyspace, Millis};
use std::collections::BTreeMap;
use std::sync::atomic::AtomicBool;
use std::sync::{Arc, Mutex, OnceLock};
use structs::flags::{CountedFlag, FlagWord};

pub use host::{
    AppendLogFiles, AuditOutcome, Audited, ConfigFiles, ConnectedClients, Host, OnConflict,
    OtherServers, ProcessControl, Restart, SaveDone, ServerLog, ShutdownRequest, SnapshotFiles,
};

/// Returns 40 random hexadecimal digits, the form of run and replication ids.
pub fn random_hex_40() -> String {
    (0..5).map(|_| format!("{:08x}", structs::hashing::os_random() as u32)).collect()
}

/// Everything that threads share. Other crates reach the parts that are public by their names;
/// each part has its own interface.
pub struct Engine {
    /// The data.
    pub keyspace: Keyspace,
    /// The special states, one bit each; the owners have the flags.
    pub(crate) special: Arc<FlagWord>,
    /// The configuration.
    pub config: Arc<Config>,
    /// Users and their credentials.
    pub acl: Acl,
    /// The commands.
    pub table: &'static CommandTable,
    /// Connected clients.
    pub clients: Clients,
    /// Memory of the clients.
    pub client_usage: ClientUsage,
    /// Reactor threads that serve clients. The thread for operators, if there is one, comes behind
    /// them and has a mailbox, too.
    pub threads: usize,
    /// One mailbox per thread.
    pub mailboxes: Box<[Mailbox]>,
    /// Number of mailboxes whose threads do not keep up, and the tickets of messages.
    pub(crate) shared_by_mailboxes: Arc<mailbox::Shared>,
    /// Counters of each thread, including those of long commands.
    pub thread_stats: Box<[ThreadStats]>,
    /// Counters of all threads.
    pub stats: Stats,
    /// Errors by code.
    pub errors: Mutex<BTreeMap<String, u64>>,
    /// Progress of files that are being loaded.
    pub loading: Loading,
    /// Scripts and functions.
    pub scripts: Scripts,
    /// Subscriptions.
    pub pubsub: PubSub,
    /// Client-side caches.
    pub tracking: TrackingTable,
    /// The keys that take most resources, while they are counted.
    pub hotkeys: HotKeys,
    /// What the requests for each slot take, while that is counted.
    pub slot_usage: SlotUsage,
    /// Rates of the last moments.
    pub rates: Rates,
    /// Durations of what is no command.
    pub timings: Timings,
    /// Share of keys that have expired but still exist.
    pub stale_share: StaleShare,
    /// The journal.
    pub journal: Journal,
    /// Positions up to which writes have enough copies.
    pub safe: SafePositions,
    /// The replicas of this server.
    pub replicas: crate::replicas::Replicas,
    /// The primary of this server, if it is a replica.
    pub upstream: Upstream,
    /// Keys that clients of a replica have written, and when they expire.
    pub own_keys: OwnKeys,
    /// Handover of the primary role.
    pub failover: Handover,
    /// The cluster.
    pub membership: Membership,
    /// The append-only file.
    pub append_log: AppendLog,
    /// Clients that wait for acknowledgements of their writes.
    pub(crate) acks: AckWaiters,
    /// Which replies wait for which copies.
    pub(crate) commits: Commits,
    /// The epoch of the last entry, in a cluster.
    pub epochs: Epochs,
    /// Votes sent with acknowledgements in a cluster, and the rule by which they count.
    pub votes: Votes,
    /// Slow and large commands.
    pub commandlogs: CommandLogs,
    /// Slow events.
    pub latency: LatencyMonitor,
    /// Background threads.
    pub background: Background,
    /// Threads that replay history beside the thread that reads it.
    pub(crate) appliers: Appliers,
    /// Keys that long commands hold.
    pub holds: Holds,
    /// Values that are being read because a request needs them.
    pub(crate) cold_reads: ColdReads,
    /// The flash tier with the cold values.
    pub tier: FlashTier,
    /// Figures of defragmentation, which moves entries so that pages become empty.
    pub defrag: Defrag,
    /// Snapshots.
    pub snapshots: Snapshots,
    /// The last search for an evictable entry that found nothing.
    pub(crate) in_vain: InVain,
    /// How long memory has exceeded the limit.
    pub over_limit: OverLimit,
    /// State of snapshot files.
    pub persistence: Persistence,
    /// Pauses of requests: CLIENT PAUSE, a last snapshot.
    pub pause: Pause,
    /// The wait for replicas before a shutdown.
    pub last_wait: LastWait,
    /// Requests that are refused while threads are overloaded.
    pub shedding: Shedding,
    /// What users and addresses may ask for in a second.
    pub rate_limits: RateLimits,
    /// Clients in MONITOR.
    pub(crate) monitors: CountedFlag,
    /// Whether expired keys are deleted actively (DEBUG SET-ACTIVE-EXPIRE).
    pub active_expire: AtomicBool,
    /// Other switches of DEBUG.
    pub debug: DebugSettings,
    /// The source of time.
    pub clock: Clock,
    /// Time of the server's start in milliseconds since the epoch.
    pub started_ms: i64,
    startup_bytes: OnceLock<usize>,
    host: OnceLock<Box<dyn Host>>,
}

impl Engine {
    /// Creates an engine for `threads` reactor threads that serve clients, and one more for
    /// operators where the configuration has one. Some commands may be renamed
    /// (`rename-command`). It takes its time from `clock` and lives as long as the process.
    pub fn new(
        config: Arc<Config>,
        rows: &[&'static Command],
        renamed: &[(String, String)],
        threads: usize,
        clock: Clock,
    ) -> &'static Engine {
        let table: &'static CommandTable = Box::leak(Box::new(CommandTable::build(rows, renamed)));
        let commands = table.all().len();
        let is_in_cluster = config.cluster_enabled();
        let databases = if is_in_cluster { config.cluster_databases() } else { config.databases() };
        let databases = u32::try_from(databases).unwrap_or(16);
        let assignment = if is_in_cluster { Assignment::BySlot } else { Assignment::ByHash };
        let special = Arc::<FlagWord>::default();
        follow_options(&special, &config);
        let flag = |state: Special| state.flag(&special);
        let reactors = threads + usize::from(config.has_operator_thread());
        let shared_by_mailboxes = Arc::new(mailbox::Shared::new(flag(Special::OverdueMail)));
        let journal = Journal::new(flag(Special::JournalFull));
        journal.set_backlog(config.repl_backlog_size());
        let engine = Box::leak(Box::new(Engine {
            keyspace: Keyspace::new(databases, assignment),
            shedding: Shedding::new(&config, flag(Special::Overload)),
            rate_limits: RateLimits::new(&config, flag(Special::RateLimits), clock),
            acl: Acl::with_flag(table, &config, flag(Special::RestrictedUsers)),
            config,
            table,
            clients: if is_in_cluster { Clients::of_node() } else { Clients::default() },
            client_usage: ClientUsage::default(),
            threads,
            mailboxes: (0..reactors).map(|_| Mailbox::new(&shared_by_mailboxes)).collect(),
            shared_by_mailboxes,
            // The last counters belong to the thread that follows a primary. Those before belong to
            // the appliers.
            thread_stats: (0..reactors + all_threads(threads))
                .chain(0..threads_beside(threads) + 1)
                .map(|_| ThreadStats::new(commands))
                .collect(),
            stats: Stats::default(),
            errors: Mutex::default(),
            loading: Loading::new(flag(Special::Loading)),
            scripts: Scripts::default(),
            pubsub: PubSub::default(),
            tracking: TrackingTable::default(),
            hotkeys: HotKeys::new(flag(Special::HotKeys)),
            slot_usage: SlotUsage::default(),
            rates: Rates::default(),
            stale_share: StaleShare::default(),
            journal,
            safe: SafePositions::default(),
            replicas: crate::replicas::Replicas::default(),
            upstream: Upstream::new(flag(Special::Replica)),
            own_keys: OwnKeys::default(),
            failover: Handover::default(),
            membership: Membership::new(flag(Special::Cluster)),
            append_log: AppendLog::new(flag(Special::LogBroken), flag(Special::LogLags)),
            acks: AckWaiters::default(),
            commits: Commits::default(),
            epochs: Epochs::default(),
            votes: Votes::default(),
            commandlogs: CommandLogs::default(),
            latency: LatencyMonitor::default(),
            background: Background::new(job_threads(threads)),
            appliers: Appliers::new(threads_beside(threads)),
            holds: Holds::new(flag(Special::Holds)),
            cold_reads: ColdReads::default(),
            tier: FlashTier::default(),
            snapshots: Snapshots::new(flag(Special::Snapshot)),
            in_vain: InVain::default(),
            over_limit: OverLimit::default(),
            timings: Timings::default(),
            defrag: Defrag::default(),
            persistence: Persistence::new(clock, flag(Special::SaveFailed)),
            pause: Pause::new(flag(Special::Pause)),
            last_wait: LastWait::default(),
            monitors: CountedFlag::new(flag(Special::Monitors)),
            active_expire: AtomicBool::new(true),
            debug: DebugSettings::default(),
            started_ms: clock.wall().0,
            clock,
            startup_bytes: OnceLock::new(),
            host: OnceLock::new(),
            special,
        }));
        let engine: &'static Engine = engine;
        engine.keyspace.set_settler(Box::new(move |mark| engine.settle_change(mark)));
        engine.background.set_contexts(move |job_thread| engine.context(reactors + job_thread));
        engine
    }

    /// Returns a session of the server itself, which serves no client.
    pub(crate) fn own_session(&self, thread: &ThreadContext) -> Session {
        let client = Client::unconnected(0, thread.index, self.clock.wall());
        Session::new(Arc::new(client), self.acl.default_user(), true)
    }

    /// Returns a context for the calling thread. `index` is the index of its counters.
    pub(crate) fn context(&'static self, index: usize) -> ThreadContext {
        let reader = self.keyspace.world().register();
        let is_for_operators = (self.threads..self.mailboxes.len()).contains(&index);
        let stats = &self.thread_stats[index];
        ThreadContext::new(index, is_for_operators, stats, self.clock, reader)
    }

    /// Adds a refusal to ACL LOG, with the client's last published state.
    pub fn note_refusal(&self, client: &Client, refused: Refused) {
        let now = Millis(refused.updated_ms);
        let host = self.host();
        let client = host.map_or_else(String::new, |host| host.client_line(self, client, now));
        let refused = Refused { client: client.trim_end().to_owned(), ..refused };
        self.acl.log.add(refused, self.config.acllog_max_len());
    }

    /// Adds a log-in that failed to ACL LOG and to the audit log. `why` is the error.
    pub fn note_failed_login(&self, client: &Client, refused: Refused, why: &str) {
        if let Some(host) = self.host().filter(|host| host.audits()) {
            let action = String::from_utf8_lossy(&refused.object).to_ascii_lowercase();
            let (user, target) = (&*refused.user, &[][..]);
            let outcome = AuditOutcome::Refused(why.as_bytes());
            host.audit(&Audited { user, client, action: &action, target, outcome });
        }
        self.note_refusal(client, refused);
    }

    /// Closes the connection of a client that another thread serves.
    pub fn close_client(&self, client: &Client) {
        client.kill(&self.stats);
        self.clients.remove(client.id);
        self.mailboxes[client.thread].post(Message::Kill(client.id));
    }

    /// Returns the clients that are subscribed to channels which their users may no longer access.
    pub fn denied_subscribers(&self) -> Vec<Arc<Client>> {
        let mut denied = Vec::new();
        self.pubsub.for_each_listener(|space, name, client| {
            let user = self.acl.user(client.names().user.as_bytes());
            let is_pattern = space == Space::Patterns;
            if user.is_some_and(|user| !user.allows_subscription(name, is_pattern)) {
                denied.push(Arc::clone(client));
            }
        });
        denied
    }

    /// Returns the clients that wait at other nodes for what their users may not do any more. Their
    /// waits are to be ended there, and then the clients get an error that says so.
    pub fn forbidden_waits(&self) -> Vec<u64> {
        let mut forbidden = Vec::new();
        for client in self.clients.all().into_iter().filter(|client| client.waits_elsewhere()) {
            let user = self.acl.user(client.names().user.as_bytes());
            let mut waiting = client.waits_for();
            let (Some(user), Some(waiting)) = (user, waiting.as_mut()) else { continue };
            if waiting.error.is_none() {
                let words: Vec<&[u8]> = waiting.words.iter().map(|word| &**word).collect();
                let Ok(row) = self.table.resolve(&words) else { continue };
                let keys = RequestKeys::of(&self.keyspace, row.command, &words);
                let (db, databases) = (waiting.db, self.keyspace.databases());
                let request = Request { row, words: &words, keys: &keys, db, databases };
                let denied = user.check(&request).err();
                let text = denied.map(|(denial, _)| denial.text(&user.name, row));
                waiting.error = text.map(|text| route::raw::error(&format!("NOPERM {text}")));
            }
            forbidden.extend(waiting.error.is_some().then_some(client.id));
        }
        forbidden
    }

    /// Connects the I/O side. Called once.
    pub fn set_host(&self, host: Box<dyn Host>) {
        assert!(self.host.set(host).is_ok(), "an engine has one host");
    }

    /// Returns the I/O side, or `None` in tests of the engine alone.
    pub fn host(&self) -> Option<&dyn Host> {
        self.host.get().map(Box::as_ref)
    }

    /// Returns the bytes of memory in use when this was first called, at the first client: threads
    /// and their buffers, but no data.
    pub fn startup_bytes(&self) -> usize {
        *self.startup_bytes.get_or_init(keyspace::memory::used_bytes)
    }

    /// Counts a client that is in MONITOR from now on.
    pub fn add_monitor(&self) {
        self.monitors.add();
    }

    /// Returns whether events of a class are published.
    #[inline]
    pub fn notifies(&self, class: Class) -> bool {
        let wanted = self.config.notify_keyspace_events();
        !wanted.is_empty() && wanted.contains(class)
    }

    /// Returns whether every change must be reported, whatever its key.
    #[inline]
    pub fn has_global_interest(&self) -> bool {
        !self.config.notify_keyspace_events().is_empty() || self.tracking.is_broadcasting()
    }

    /// Returns the present meaning of entries' access bits.
    pub fn access_policy(&self) -> Policy {
        if matches!(
            self.config.maxmemory_policy(),
            MaxmemoryPolicy::AllkeysLfu | MaxmemoryPolicy::VolatileLfu
        ) {
            Policy::Lfu {
                log_factor: self.config.lfu_log_factor(),
                decay_minutes: self.config.lfu_decay_time(),
            }
        } else if self.tier.get().is_some() {
            Policy::Clock
        } else {
            Policy::Lru
        }
    }

    /// Returns whether the gates beyond the first must be checked for every session. Restricted
    /// users are handled separately, because most of their requests only need to pass that first
    /// gate, and so are nodes of a cluster, because most requests there are for their own slots.
    pub(crate) fn is_special(&self) -> bool {
        self.special.any(Special::SERVER & !Special::MinReplicas.mask()) || self.lacks_replicas()
    }

    /// Returns whether expired keys are not deleted on this server's own initiative: writes are
    /// paused, data is being loaded, or deletions come from the primary or from the source of an
    /// import.
    pub fn is_frozen(&self) -> bool {
        self.pause.is_on()
            || self.loading.is_on()
            || self.upstream.is_replica()
            || self.config.import_mode()
    }

    /// Returns whether nothing is evicted: writes are paused, data is being loaded, or this is a
    /// replica without a memory limit of its own.
    pub fn evicts_nothing(&self) -> bool {
        let leaves_it = self.upstream.is_replica() && self.config.replica_ignore_maxmemory();
        self.pause.is_on() || self.loading.is_on() || leaves_it
    }

    /// Returns whether writes are refused because there are too few replicas.
    #[inline]
    pub fn lacks_replicas(&self) -> bool {
        let least = self.config.min_replicas_to_write() as usize;
        least > 0
            && !self.upstream.is_replica()
            && self.config.min_replicas_max_lag() > 0
            && self.replicas.good() < least
    }

    /// Returns the way to the clients that cache keys.
    pub fn receivers(&self) -> Receivers<'_> {
        Receivers { clients: &self.clients, mailboxes: &self.mailboxes, acl: &self.acl }
    }

    /// Returns the [ticket](mailbox) up to which all messages have been delivered. While a long
    /// script keeps a thread from delivering, all issued messages count as delivered.
    pub fn told(&self) -> u64 {
        match self.scripts.running.is_busy() {
            true => mailbox::issued(&self.mailboxes),
            false => mailbox::delivered(&self.mailboxes),
        }
    }

    /// Returns whether clients that say nothing would see one server if this is a node of a cluster.
    #[inline]
    pub(crate) fn has_single_endpoint(&self) -> bool {
        self.config.cluster_endpoint() == ClusterEndpoint::Single || self.membership.has_rules()
    }

    /// Returns whether this server is a node of a cluster whose clients see one server.
    pub fn is_one_address(&self) -> bool {
        self.membership.is_on() && self.has_single_endpoint()
    }

    /// Returns whether this server's clients hear keyspace events from the primary. Where clients
    /// see one server they listen at all primaries, and the stream repeats what these have told.
    pub(crate) fn leaves_events_to_primary(&self) -> bool {
        self.upstream.is_replica() && self.is_one_address()
    }

    /// Sends a message to all other nodes that lead a shard. Their replicas get it with the stream.
    /// As on one server, clients that do not listen at this moment miss it.
    #[cold]
    pub(crate) fn tell_other_nodes(&self, request: Box<[u8]>) {
        // One thread sends all messages, so their order is kept.
        self.mailboxes[0].post(Message::Spread(request));
    }

    /// Notifies the clients with broadcast tracking of the keys that have changed since the last
    /// call.
    #[inline]
    pub fn flush_broadcasts(&self) {
        self.tracking.flush_broadcasts(self.receivers());
    }
}

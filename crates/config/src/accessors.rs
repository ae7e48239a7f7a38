//! The typed accessors: how the rest of the server reads the configuration.
//!
//! Each is named after its option. Where the name of an option and its row disagree about the
//! type, or there is no such row, the crate does not compile.

use std::path::PathBuf;
use std::sync::Arc;

use crate::checks::decimal;
use crate::choices::*;
use crate::events::KeyspaceEvents;
use crate::limits::{ClientClass, OutputLimit};
use crate::store::Config;
use crate::table::{index_of, number_index, text_index};
use crate::value::{Primary, SavePoint, Text, Value};

/// Declares accessors of one type: the method, the option it reads, and the conversion from the
/// stored number.
macro_rules! numbers {
    ($($method:ident: $type:ty = $option:literal as $convert:expr;)+) => {
        impl Config {$(
            #[doc = concat!("`", $option, "`.")]
            #[inline]
            pub fn $method(&self) -> $type {
                const AT: usize = number_index($option);
                ($convert)(self.number(AT))
            }
        )+}
    };
}

/// The same for options that are text.
macro_rules! texts {
    ($($method:ident = $option:literal;)+) => {
        impl Config {$(
            #[doc = concat!("`", $option, "`; empty if it is not set.")]
            pub fn $method(&self) -> Text {
                const AT: usize = text_index($option);
                match self.load(AT) {
                    Value::Text(text) => text,
                    _ => unreachable!("the kind is checked by the compiler"),
                }
            }
        )+}
    };
}

#[inline]
fn yes(number: u64) -> bool {
    number != 0
}

#[inline]
fn unsigned(number: u64) -> u64 {
    number
}

#[inline]
fn count(number: u64) -> usize {
    usize::try_from(number).unwrap_or(usize::MAX)
}

#[inline]
fn small(number: u64) -> u32 {
    u32::try_from(number).unwrap_or(u32::MAX)
}

#[inline]
fn port(number: u64) -> u16 {
    u16::try_from(number).unwrap_or(0)
}

#[inline]
fn short(number: u64) -> u16 {
    u16::try_from(number).unwrap_or(u16::MAX)
}

#[inline]
fn signed(number: u64) -> i64 {
    number as i64
}

numbers! {
    port: u16 = "port" as port;
    tls_port: u16 = "tls-port" as port;
    unixsocketperm: u32 = "unixsocketperm" as small;
    tcp_backlog: u32 = "tcp-backlog" as small;
    tcp_keepalive: u32 = "tcp-keepalive" as small;
    timeout: u64 = "timeout" as unsigned;
    admin_port: u16 = "admin-port" as port;
    protected_mode: bool = "protected-mode" as yes;
    protected_mode_private_networks: bool = "protected-mode-private-networks" as yes;
    maxclients: usize = "maxclients" as count;
    max_new_connections_per_cycle: u32 = "max-new-connections-per-cycle" as small;
    shed_turn_usec: u32 = "shed-turn-usec" as small;
    shed_cpu_percent: u32 = "shed-cpu-percent" as small;
    shed_queued_bytes: u64 = "shed-queued-bytes" as unsigned;
    max_waiting_tls_handshakes: u32 = "max-waiting-tls-handshakes" as small;
    max_new_tls_connections_per_cycle: u32 = "max-new-tls-connections-per-cycle" as small;
    io_threads: usize = "io-threads" as count;
    io_backend: IoBackend = "io-backend" as IoBackend::from_number;
    io_busy_poll_usec: u32 = "io-busy-poll-usec" as small;
    io_coalesce_usec: u32 = "io-coalesce-usec" as small;
    client_query_buffer_limit: usize = "client-query-buffer-limit" as count;
    proto_max_bulk_len: usize = "proto-max-bulk-len" as count;
    tracking_table_max_keys: usize = "tracking-table-max-keys" as count;

    tls_auth_clients: TlsAuthClients = "tls-auth-clients" as TlsAuthClients::from_number;
    tls_auth_clients_user: TlsAuthClientsUser = "tls-auth-clients-user" as TlsAuthClientsUser::from_number;
    tls_replication: bool = "tls-replication" as yes;
    tls_cluster: bool = "tls-cluster" as yes;
    tls_prefer_server_ciphers: bool = "tls-prefer-server-ciphers" as yes;
    tls_session_caching: bool = "tls-session-caching" as yes;
    tls_session_cache_size: usize = "tls-session-cache-size" as count;
    tls_auto_reload_interval: usize = "tls-auto-reload-interval" as count;
    tls_session_cache_timeout: u32 = "tls-session-cache-timeout" as small;

    daemonize: bool = "daemonize" as yes;
    supervised: Supervised = "supervised" as Supervised::from_number;
    databases: usize = "databases" as count;
    loglevel: LogLevel = "loglevel" as LogLevel::from_number;
    log_format: LogFormat = "log-format" as LogFormat::from_number;
    log_timestamp_format: LogTimestampFormat = "log-timestamp-format" as LogTimestampFormat::from_number;
    hide_user_data_from_log: bool = "hide-user-data-from-log" as yes;
    syslog_enabled: bool = "syslog-enabled" as yes;
    syslog_facility: SyslogFacility = "syslog-facility" as SyslogFacility::from_number;
    always_show_logo: bool = "always-show-logo" as yes;
    set_proc_title: bool = "set-proc-title" as yes;
    crash_log_enabled: bool = "crash-log-enabled" as yes;
    shutdown_on_sigint: ShutdownOptions = "shutdown-on-sigint" as ShutdownOptions::from_number;
    shutdown_on_sigterm: ShutdownOptions = "shutdown-on-sigterm" as ShutdownOptions::from_number;
    shutdown_timeout: u32 = "shutdown-timeout" as small;
    oom_score_adj: OomScoreAdj = "oom-score-adj" as OomScoreAdj::from_number;
    disable_thp: bool = "disable-thp" as yes;
    hz: u32 = "hz" as small;
    dynamic_hz: bool = "dynamic-hz" as yes;
    activerehashing: bool = "activerehashing" as yes;
    busy_reply_threshold: u64 = "busy-reply-threshold" as unsigned;
    acllog_max_len: usize = "acllog-max-len" as count;
    acl_pubsub_default: AclPubsubDefault = "acl-pubsub-default" as AclPubsubDefault::from_number;
    enable_protected_configs: ProtectedAction = "enable-protected-configs" as ProtectedAction::from_number;
    enable_debug_command: ProtectedAction = "enable-debug-command" as ProtectedAction::from_number;
    enable_module_command: ProtectedAction = "enable-module-command" as ProtectedAction::from_number;
    commandlog_execution_slower_than: i64 = "commandlog-execution-slower-than" as signed;
    commandlog_slow_execution_max_len: usize = "commandlog-slow-execution-max-len" as count;
    commandlog_request_larger_than: i64 = "commandlog-request-larger-than" as signed;
    commandlog_large_request_max_len: usize = "commandlog-large-request-max-len" as count;
    commandlog_reply_larger_than: i64 = "commandlog-reply-larger-than" as signed;
    commandlog_large_reply_max_len: usize = "commandlog-large-reply-max-len" as count;
    latency_monitor_threshold: u64 = "latency-monitor-threshold" as unsigned;
    latency_tracking: bool = "latency-tracking" as yes;
    size_tracking: bool = "size-tracking" as yes;
    cluster_slot_stats_enabled: bool = "cluster-slot-stats-enabled" as yes;
    notify_keyspace_events: KeyspaceEvents = "notify-keyspace-events" as KeyspaceEvents::from_number;
    extended_redis_compatibility: bool = "extended-redis-compatibility" as yes;

    maxmemory: u64 = "maxmemory" as unsigned;
    maxmemory_from_limit: bool = "maxmemory-from-limit" as yes;
    shed_requests: ShedRequests = "shed-requests" as ShedRequests::from_number;
    maxmemory_policy: MaxmemoryPolicy = "maxmemory-policy" as MaxmemoryPolicy::from_number;
    maxmemory_samples: usize = "maxmemory-samples" as count;
    maxmemory_eviction_tenacity: u32 = "maxmemory-eviction-tenacity" as small;
    lfu_log_factor: u32 = "lfu-log-factor" as small;
    lfu_decay_time: u32 = "lfu-decay-time" as small;
    active_expire_effort: u32 = "active-expire-effort" as small;
    lazyfree_lazy_eviction: bool = "lazyfree-lazy-eviction" as yes;
    lazyfree_lazy_expire: bool = "lazyfree-lazy-expire" as yes;
    lazyfree_lazy_server_del: bool = "lazyfree-lazy-server-del" as yes;
    lazyfree_lazy_user_del: bool = "lazyfree-lazy-user-del" as yes;
    lazyfree_lazy_user_flush: bool = "lazyfree-lazy-user-flush" as yes;
    activedefrag: bool = "activedefrag" as yes;
    active_defrag_ignore_bytes: u64 = "active-defrag-ignore-bytes" as unsigned;
    active_defrag_threshold_lower: u32 = "active-defrag-threshold-lower" as small;
    active_defrag_threshold_upper: u32 = "active-defrag-threshold-upper" as small;
    active_defrag_cycle_min: u32 = "active-defrag-cycle-min" as small;
    active_defrag_cycle_max: u32 = "active-defrag-cycle-max" as small;
    active_defrag_cycle_us: u64 = "active-defrag-cycle-us" as unsigned;
    active_defrag_max_scan_fields: usize = "active-defrag-max-scan-fields" as count;
    import_mode: bool = "import-mode" as yes;

    hash_max_listpack_entries: usize = "hash-max-listpack-entries" as count;
    hash_max_listpack_value: usize = "hash-max-listpack-value" as count;
    hash_shared_fields: bool = "hash-shared-fields" as yes;
    list_max_listpack_size: i64 = "list-max-listpack-size" as signed;
    list_compress_depth: u32 = "list-compress-depth" as small;
    set_max_intset_entries: usize = "set-max-intset-entries" as count;
    set_max_listpack_entries: usize = "set-max-listpack-entries" as count;
    set_max_listpack_value: usize = "set-max-listpack-value" as count;
    zset_max_listpack_entries: usize = "zset-max-listpack-entries" as count;
    zset_max_listpack_value: usize = "zset-max-listpack-value" as count;
    hll_sparse_max_bytes: usize = "hll-sparse-max-bytes" as count;
    stream_node_max_bytes: usize = "stream-node-max-bytes" as count;
    stream_node_max_entries: usize = "stream-node-max-entries" as count;
    bf_max_memory: usize = "bf-max-memory" as count;
    bf_initial_size: u64 = "bf-initial-size" as unsigned;
    bf_expansion_factor: u32 = "bf-expansion-factor" as small;
    cf_initial_size: u64 = "cf-initial-size" as unsigned;
    cf_bucket_size: u16 = "cf-bucket-size" as short;
    cf_max_iterations: u16 = "cf-max-iterations" as short;
    cf_expansion_factor: u16 = "cf-expansion-factor" as short;
    ts_duplicate_policy: SeriesPolicy = "ts-duplicate-policy" as SeriesPolicy::from_number;
    ts_encoding: SeriesEncoding = "ts-encoding" as SeriesEncoding::from_number;
    ts_retention_policy: u64 = "ts-retention-policy" as unsigned;
    ts_chunk_size_bytes: usize = "ts-chunk-size-bytes" as count;
    ts_ignore_max_time_diff: u64 = "ts-ignore-max-time-diff" as unsigned;

    rdbcompression: bool = "rdbcompression" as yes;
    rdb_save_incremental_fsync: bool = "rdb-save-incremental-fsync" as yes;
    cluster_slot_migration_log_max_len: usize = "cluster-slot-migration-log-max-len" as count;
    rdb_key_save_delay: i64 = "rdb-key-save-delay" as signed;
    snapshot_buffer_limit: u64 = "snapshot-buffer-limit" as unsigned;
    tier_max_size: u64 = "tier-max-size" as unsigned;
    tier_segment_size: u64 = "tier-segment-size" as unsigned;
    tier_min_value_size: usize = "tier-min-value-size" as count;
    tier_max_value_size: usize = "tier-max-value-size" as count;
    snapshot_threads: usize = "snapshot-threads" as count;
    rdbchecksum: bool = "rdbchecksum" as yes;
    rdb_skip_unknown_types: bool = "rdb-skip-unknown-types" as yes;
    key_load_delay: i64 = "key-load-delay" as signed;
    rdb_version: ReplicaRdbVersion = "rdb-version" as ReplicaRdbVersion::from_number;
    rdb_version_check: RdbVersionCheck = "rdb-version-check" as RdbVersionCheck::from_number;
    stop_writes_on_bgsave_error: bool = "stop-writes-on-bgsave-error" as yes;
    sanitize_dump_payload: SanitizeDumpPayload = "sanitize-dump-payload" as SanitizeDumpPayload::from_number;
    appendonly: bool = "appendonly" as yes;
    no_appendfsync_on_rewrite: bool = "no-appendfsync-on-rewrite" as yes;
    auto_aof_rewrite_percentage: u32 = "auto-aof-rewrite-percentage" as small;
    auto_aof_rewrite_min_size: u64 = "auto-aof-rewrite-min-size" as unsigned;
    aof_preallocation_size: u64 = "aof-preallocation-size" as unsigned;
    aof_load_truncated: bool = "aof-load-truncated" as yes;
    aof_use_rdb_preamble: bool = "aof-use-rdb-preamble" as yes;
    aof_timestamp_enabled: bool = "aof-timestamp-enabled" as yes;
    aof_rewrite_incremental_fsync: bool = "aof-rewrite-incremental-fsync" as yes;
    aof_disable_auto_gc: bool = "aof-disable-auto-gc" as yes;
    appendfsync: AppendFsync = "appendfsync" as AppendFsync::from_number;
    replica_read_only: bool = "replica-read-only" as yes;
    replica_serve_stale_data: bool = "replica-serve-stale-data" as yes;
    replica_ignore_maxmemory: bool = "replica-ignore-maxmemory" as yes;
    replica_lazy_flush: bool = "replica-lazy-flush" as yes;
    replica_announced: bool = "replica-announced" as yes;
    replica_announce_port: u16 = "replica-announce-port" as port;
    replica_priority: u32 = "replica-priority" as small;
    min_replicas_to_write: u32 = "min-replicas-to-write" as small;
    min_replicas_max_lag: u32 = "min-replicas-max-lag" as small;
    replica_rdb_version: ReplicaRdbVersion = "replica-rdb-version" as ReplicaRdbVersion::from_number;
    commit_mode: CommitMode = "commit-mode" as CommitMode::from_number;
    commit_quorum: u32 = "commit-quorum" as small;
    commit_quorum_fsync: bool = "commit-quorum-fsync" as yes;
    commit_timeout_ms: u64 = "commit-timeout-ms" as unsigned;
    repl_backlog_size: u64 = "repl-backlog-size" as unsigned;
    repl_backlog_ttl: u64 = "repl-backlog-ttl" as unsigned;
    repl_rdb_channel: bool = "repl-rdb-channel" as yes;
    dual_channel_replication_enabled: bool = "dual-channel-replication-enabled" as yes;
    replica_full_sync_buffer_limit: u64 = "replica-full-sync-buffer-limit" as unsigned;
    repl_diskless_sync: bool = "repl-diskless-sync" as yes;
    repl_diskless_sync_delay: u32 = "repl-diskless-sync-delay" as small;
    repl_diskless_sync_max_replicas: u32 = "repl-diskless-sync-max-replicas" as small;
    repl_ping_replica_period: u32 = "repl-ping-replica-period" as small;
    repl_timeout: u32 = "repl-timeout" as small;
    repl_diskless_load: ReplDisklessLoad = "repl-diskless-load" as ReplDisklessLoad::from_number;
    propagation_error_behavior: PropagationErrorBehavior = "propagation-error-behavior" as PropagationErrorBehavior::from_number;
    cluster_preferred_endpoint_type: ClusterEndpointType = "cluster-preferred-endpoint-type" as ClusterEndpointType::from_number;
    cluster_endpoint: ClusterEndpoint = "cluster-endpoint" as ClusterEndpoint::from_number;
    cluster_config_save_behavior: ClusterConfigSaveBehavior = "cluster-config-save-behavior" as ClusterConfigSaveBehavior::from_number;
    cluster_share_users: bool = "cluster-share-users" as yes;
    cluster_enabled: bool = "cluster-enabled" as yes;
    cluster_databases: usize = "cluster-databases" as count;
    cluster_lease: u32 = "cluster-lease" as small;
    cluster_replica_validity_factor: u32 = "cluster-replica-validity-factor" as small;
    cluster_require_full_coverage: bool = "cluster-require-full-coverage" as yes;
    cluster_allow_pubsubshard_when_down: bool = "cluster-allow-pubsubshard-when-down" as yes;
    cluster_allow_reads_when_down: bool = "cluster-allow-reads-when-down" as yes;
    cluster_replica_no_failover: bool = "cluster-replica-no-failover" as yes;
    cluster_announce_port: u16 = "cluster-announce-port" as port;
    cluster_announce_tls_port: u16 = "cluster-announce-tls-port" as port;
    cluster_port: u16 = "cluster-port" as port;
    cluster_announce_bus_port: u16 = "cluster-announce-bus-port" as port;
    cluster_announce_client_port: u16 = "cluster-announce-client-port" as port;
    cluster_announce_client_tls_port: u16 = "cluster-announce-client-tls-port" as port;
}

/// The same for options that are text, and a number with a fraction.
macro_rules! decimals {
    ($($method:ident = $option:literal;)+) => {
        impl Config {$(
            #[doc = concat!("`", $option, "`.")]
            pub fn $method(&self) -> f64 {
                const AT: usize = text_index($option);
                match self.load(AT) {
                    Value::Text(text) => decimal(&text).unwrap_or(0.0),
                    _ => unreachable!("the kind is checked by the compiler"),
                }
            }
        )+}
    };
}

decimals! {
    bf_error_rate = "bf-error-rate";
    ts_ignore_max_val_diff = "ts-ignore-max-val-diff";
}

texts! {
    ts_compaction_policy = "ts-compaction-policy";
    hash_seed = "hash-seed";
    unixsocket = "unixsocket";
    unixsocketgroup = "unixsocketgroup";
    admin_socket = "admin-socket";
    shed_users = "shed-users";
    shed_clients = "shed-clients";
    rate_limits = "rate-limits";
    admin_hosts = "admin-hosts";
    alert_webhook = "alert-webhook";
    server_cpulist = "server-cpulist";
    bio_cpulist = "bio-cpulist";
    bind_source_addr = "bind-source-addr";
    tls_cert_file = "tls-cert-file";
    tls_key_file = "tls-key-file";
    tls_key_file_pass = "tls-key-file-pass";
    tls_client_cert_file = "tls-client-cert-file";
    tls_client_key_file = "tls-client-key-file";
    tls_client_key_file_pass = "tls-client-key-file-pass";
    tls_ca_cert_file = "tls-ca-cert-file";
    tls_ca_cert_dir = "tls-ca-cert-dir";
    tls_protocols = "tls-protocols";
    tls_ciphers = "tls-ciphers";
    tls_ciphersuites = "tls-ciphersuites";
    pidfile = "pidfile";
    logfile = "logfile";
    audit_log = "audit-log";
    syslog_ident = "syslog-ident";
    proc_title_template = "proc-title-template";
    ignore_warnings = "ignore-warnings";
    requirepass = "requirepass";
    aclfile = "aclfile";
    tier_dir = "tier-dir";
    availability_zone = "availability-zone";
    dbfilename = "dbfilename";
    appendfilename = "appendfilename";
    appenddirname = "appenddirname";
    primaryuser = "primaryuser";
    primaryauth = "primaryauth";
    replica_announce_ip = "replica-announce-ip";
    cluster_bus_cert_file = "cluster-bus-cert-file";
    cluster_bus_key_file = "cluster-bus-key-file";
    cluster_bus_ca_cert_file = "cluster-bus-ca-cert-file";
    cluster_coordinator = "cluster-coordinator";
    cluster_coordinator_ca_cert_file = "cluster-coordinator-ca-cert-file";
    cluster_coordinator_cert_file = "cluster-coordinator-cert-file";
    cluster_coordinator_key_file = "cluster-coordinator-key-file";
    cluster_coordinator_user = "cluster-coordinator-user";
    cluster_coordinator_password = "cluster-coordinator-password";
    cluster_name = "cluster-name";
    cluster_config_file = "cluster-config-file";
    cluster_announce_ip = "cluster-announce-ip";
    cluster_announce_hostname = "cluster-announce-hostname";
    cluster_announce_client_ipv4 = "cluster-announce-client-ipv4";
    cluster_announce_client_ipv6 = "cluster-announce-client-ipv6";
}

/// What `maxmemory-clients` allows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ClientMemory {
    /// No limit.
    Unlimited,
    /// So many bytes.
    Bytes(u64),
    /// A percentage of `maxmemory`; no limit while that has none.
    Percent(u8),
}

impl Config {
    /// `dir`: the working directory, absolute once a configuration was loaded.
    pub fn dir(&self) -> PathBuf {
        const AT: usize = text_index("dir");
        match self.load(AT) {
            Value::Text(text) => text.as_path().to_path_buf(),
            _ => unreachable!("the kind is checked by the compiler"),
        }
    }

    /// Returns whether a thread of its own serves operators: connections by `admin-socket`, and
    /// the admin port's requests.
    pub fn has_operator_thread(&self) -> bool {
        !self.admin_socket().is_empty() || self.admin_port() > 0
    }

    /// `admin-bind`: the addresses that the admin port listens on, in order.
    pub fn admin_bind(&self) -> Arc<[Text]> {
        const AT: usize = index_of("admin-bind");
        match self.load(AT) {
            Value::Addresses(addresses) => addresses,
            _ => unreachable!("admin-bind holds addresses"),
        }
    }

    /// `bind`: the addresses to listen on, in order.
    pub fn bind(&self) -> Arc<[Text]> {
        const AT: usize = index_of("bind");
        match self.load(AT) {
            Value::Addresses(addresses) => addresses,
            _ => unreachable!("bind holds addresses"),
        }
    }

    /// `save`: the save points, in order.
    pub fn save_points(&self) -> Arc<[SavePoint]> {
        const AT: usize = index_of("save");
        match self.load(AT) {
            Value::Save(points) => points,
            _ => unreachable!("save holds save points"),
        }
    }

    /// `replicaof`: the primary, if this server is a replica.
    pub fn replicaof(&self) -> Option<Primary> {
        const AT: usize = index_of("replicaof");
        match self.load(AT) {
            Value::ReplicaOf(primary) => primary,
            _ => unreachable!("replicaof holds a primary"),
        }
    }

    /// `latency-tracking-info-percentiles`, in order.
    pub fn latency_tracking_info_percentiles(&self) -> Arc<[f64]> {
        const AT: usize = index_of("latency-tracking-info-percentiles");
        match self.load(AT) {
            Value::Percentiles(percentiles) => percentiles,
            _ => unreachable!("the option holds percentiles"),
        }
    }

    /// `oom-score-adj-values`: the scores of a primary, a replica and a background child.
    pub fn oom_score_adj_values(&self) -> [i32; 3] {
        const AT: usize = index_of("oom-score-adj-values");
        match self.load(AT) {
            Value::OomScores(scores) => scores,
            _ => unreachable!("the option holds scores"),
        }
    }

    /// `client-output-buffer-limit` of a class.
    #[inline]
    pub fn client_output_buffer_limit(&self, class: ClientClass) -> OutputLimit {
        self.output_limit(class as usize)
    }

    /// `maxmemory-clients`.
    pub fn maxmemory_clients(&self) -> ClientMemory {
        const AT: usize = number_index("maxmemory-clients");
        match self.number(AT) as i64 {
            0 => ClientMemory::Unlimited,
            bytes @ 1.. => ClientMemory::Bytes(bytes.unsigned_abs()),
            percent => ClientMemory::Percent(percent.unsigned_abs().min(100) as u8),
        }
    }
}

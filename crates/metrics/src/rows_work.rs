//! Rows of INFO's sections that say what the server does, and those of other servers.

use crate::rows::Unit::{
    Bytes, KibPerSecond, Microseconds, Milliseconds, PerSecond, Percent, Ratio, Seconds,
};
use crate::rows::{Row, counter, gauge, text};

pub(crate) static TIER: [Row; 42] = [
    gauge("tier_enabled", "", "Whether there is a flash tier."),
    gauge("tier_full", "", "Whether flash is full."),
    gauge("tier_values", "", "Values that are only on flash."),
    gauge("tier_value_bytes", "", "Bytes of the values that are only on flash.").unit(Bytes),
    gauge("tier_copies", "", "Values in memory of which flash has a copy."),
    gauge("tier_ram_values", "", "Values that are in memory."),
    gauge("tier_ram_bytes", "", "Bytes of the data in memory.").unit(Bytes),
    gauge("tier_segments", "", "Segments of the file on flash."),
    gauge("tier_segments_free", "", "Segments that nothing uses."),
    gauge(
        "tier_segments_pinned",
        "",
        "Segments that cannot be used again yet, because something reads them.",
    ),
    gauge("tier_segment_bytes", "", "Bytes of all segments.").unit(Bytes),
    gauge("tier_buffer_bytes", "", "Bytes that wait to be written to flash.").unit(Bytes),
    gauge("tier_waste_bytes", "", "Bytes on flash that no key uses any more.").unit(Bytes),
    counter("tier_demotions", "", "Values that were moved from memory to flash."),
    counter(
        "tier_demotions_without_write",
        "",
        "Values that were dropped from memory, as flash had them unchanged.",
    ),
    counter("tier_demoted_bytes", "", "Bytes of the values that were moved from memory to flash.")
        .unit(Bytes),
    counter("tier_promotions", "", "Values that were read from flash and kept in memory."),
    counter(
        "tier_reads_without_promotion",
        "",
        "Values that were read from flash and not kept in memory.",
    ),
    counter("tier_misses", "", "Values that a command needed and memory did not have."),
    counter("tier_waits", "", "Commands that waited for a read of flash."),
    counter("tier_throttled_commands", "", "Commands that waited, because flash was behind."),
    counter("tier_reads", "", "Reads of flash."),
    counter(
        "tier_reads_from_buffers",
        "",
        "Reads of values that still waited to be written to flash.",
    ),
    gauge("tier_reads_in_flight", "", "Reads of flash that are under way."),
    counter("tier_read_bytes", "", "Bytes that commands have read from flash.").unit(Bytes),
    counter("tier_scanned_bytes", "", "Bytes that were read from flash to make segments free.")
        .unit(Bytes),
    counter("tier_read_usec", "", "Microseconds that all reads of flash took.").unit(Microseconds),
    gauge(
        "tier_read_usec_p50",
        "",
        "Half of the reads of flash took at most so many microseconds.",
    )
    .unit(Microseconds),
    gauge(
        "tier_read_usec_p99",
        "",
        "99 % of the reads of flash took at most so many microseconds.",
    )
    .unit(Microseconds),
    gauge(
        "tier_read_usec_p999",
        "",
        "99.9 % of the reads of flash took at most so many microseconds.",
    )
    .unit(Microseconds),
    counter("tier_appended_values", "", "Values that were appended to segments."),
    counter("tier_appended_bytes", "", "Bytes of the values that were appended to segments.")
        .unit(Bytes),
    counter("tier_written_bytes", "", "Bytes that were written to the disk.").unit(Bytes),
    counter(
        "tier_rewritten_values",
        "",
        "Values that were moved to another segment, to make theirs free.",
    ),
    counter("tier_rewritten_bytes", "", "Bytes of the values that were moved to another segment.")
        .unit(Bytes),
    counter("tier_segments_cleaned", "", "Segments that were made free."),
    counter("tier_read_errors", "", "Values that could not be read from flash."),
    counter("tier_checksum_errors", "", "Values on flash whose checksums were wrong."),
    counter("tier_write_errors", "", "Writes to flash that failed."),
    gauge("tier_writes_failing", "", "Whether writes to flash fail at present."),
    gauge("tier_hit_percent", "", "Percent of the values that commands needed and memory had.")
        .unit(Percent),
    gauge("tier_write_amplification", "", "Bytes written to the disk divided by bytes appended.")
        .unit(Ratio),
];

pub(crate) static STATS: [Row; 79] = [
    counter(
        "total_connections_received",
        "connections_received_total",
        "Connections that were accepted.",
    )
    .summed(),
    counter(
        "total_commands_processed",
        "commands_processed_total",
        "Commands that were carried out.",
    )
    .summed(),
    gauge("instantaneous_ops_per_sec", "", "Commands each second.").unit(PerSecond).summed(),
    counter("total_net_input_bytes", "net_input_bytes_total", "Bytes from clients.")
        .unit(Bytes)
        .summed(),
    counter("total_net_output_bytes", "net_output_bytes_total", "Bytes to clients.")
        .unit(Bytes)
        .summed(),
    counter("total_net_repl_input_bytes", "net_repl_input_bytes_total", "Bytes from the primary.")
        .unit(Bytes),
    counter("total_net_repl_output_bytes", "net_repl_output_bytes_total", "Bytes to replicas.")
        .unit(Bytes),
    gauge("instantaneous_input_kbps", "", "KiB from clients each second.").unit(KibPerSecond),
    gauge("instantaneous_output_kbps", "", "KiB to clients each second.").unit(KibPerSecond),
    gauge("instantaneous_input_repl_kbps", "", "KiB from the primary each second.")
        .unit(KibPerSecond),
    gauge("instantaneous_output_repl_kbps", "", "KiB to replicas each second.").unit(KibPerSecond),
    counter("rejected_connections", "rejected_connections_total", "Connections beyond maxclients.")
        .summed(),
    counter(
        "rate_limited_requests",
        "",
        "Times that a request had to wait because of rate-limits.",
    )
    .summed(),
    counter(
        "shed_requests",
        "",
        "Requests of shed-users and shed-clients refused because a thread was overloaded.",
    )
    .summed(),
    gauge("overloaded_threads", "", "Threads that are over a limit of shed-*."),
    gauge("overloaded_threads_turns", "", "Threads whose turns are over shed-turn-usec."),
    gauge("overloaded_threads_cpu", "", "Threads that are over shed-cpu-percent."),
    gauge("overloaded_threads_queued_bytes", "", "Threads that are over shed-queued-bytes."),
    gauge(
        "sync_full",
        "replica_resyncs_full",
        "Synchronisations that sent a replica the whole snapshot.",
    ),
    gauge(
        "sync_partial_ok",
        "replica_partial_resync_accepted",
        "Synchronisations that sent a replica only what it lacked.",
    ),
    gauge(
        "sync_partial_err",
        "replica_partial_resync_denied",
        "Synchronisations that began anew, as the backlog did not reach far enough.",
    ),
    counter(
        "unconfirmed_writes",
        "",
        "Writes that were not confirmed in time, as their commit mode asks.",
    ),
    counter("expired_keys", "expired_keys_total", "Keys that expired.").summed(),
    counter("expired_fields", "", "Fields of hashes that expired."),
    gauge(
        "expired_stale_perc",
        "expired_stale_percentage",
        "Percent of the keys that have expired and are not removed yet; an estimate.",
    )
    .unit(Percent),
    counter(
        "expired_time_cap_reached_count",
        "expired_time_cap_reached_total",
        "Rounds of active expiry that their time limit ended.",
    ),
    counter(
        "expire_cycle_cpu_milliseconds",
        "expire_cycle_cpu_time_ms_total",
        "Milliseconds that active expiry took.",
    )
    .unit(Milliseconds),
    counter("evicted_keys", "evicted_keys_total", "Keys that were evicted at maxmemory.").summed(),
    counter(
        "evicted_clients",
        "evicted_clients_total",
        "Clients that were disconnected at maxmemory-clients.",
    ),
    counter(
        "evicted_scripts",
        "evicted_scripts_total",
        "Cached scripts that were dropped, because there were too many.",
    ),
    counter(
        "total_eviction_exceeded_time",
        "eviction_exceeded_time_ms_total",
        "Milliseconds that memory was above maxmemory.",
    )
    .unit(Milliseconds),
    gauge(
        "current_eviction_exceeded_time",
        "current_eviction_exceeded_time_ms",
        "Milliseconds since memory went above maxmemory; 0 if it is below.",
    )
    .unit(Milliseconds),
    counter("keyspace_hits", "keyspace_hits_total", "Reads of keys that were there.").summed(),
    counter("keyspace_misses", "keyspace_misses_total", "Reads of keys that were not there.")
        .summed(),
    gauge("pubsub_channels", "pubsub_channels", "Channels that have subscribers."),
    gauge("pubsub_patterns", "pubsub_patterns", "Patterns that have subscribers."),
    gauge("pubsubshard_channels", "pubsubshard_channels", "Shard channels that have subscribers."),
    // In seconds under the exporter's name; the writer knows.
    gauge(
        "latest_fork_usec",
        "latest_fork_seconds",
        "Microseconds that the start of the last snapshot took. Nothing forks.",
    )
    .unit(Microseconds),
    counter("total_forks", "", "Snapshots that were begun. Nothing forks."),
    gauge(
        "migrate_cached_sockets",
        "migrate_cached_sockets_total",
        "Connections that MIGRATE keeps.",
    ),
    gauge(
        "slave_expires_tracked_keys",
        "slave_expires_tracked_keys",
        "Keys with an expiry that were written on a replica that takes writes.",
    ),
    gauge("active_defrag_hits", "defrag_hits", "Values that defragmentation has moved."),
    gauge(
        "active_defrag_misses",
        "defrag_misses",
        "Values that defragmentation has looked at and not moved.",
    ),
    gauge(
        "active_defrag_key_hits",
        "defrag_key_hits",
        "Keys of which defragmentation has moved something.",
    ),
    gauge(
        "active_defrag_key_misses",
        "defrag_key_misses",
        "Keys of which defragmentation has moved nothing.",
    ),
    counter("total_active_defrag_time", "", "Milliseconds that defragmentation took.")
        .unit(Milliseconds),
    gauge(
        "current_active_defrag_time",
        "",
        "Milliseconds since the running defragmentation began.",
    )
    .unit(Milliseconds),
    gauge("tracking_total_keys", "tracking_total_keys", "Keys that clients have cached."),
    gauge(
        "tracking_total_items",
        "tracking_total_items",
        "Pairs of a client and a key that it has cached.",
    ),
    gauge(
        "tracking_total_prefixes",
        "tracking_total_prefixes",
        "Prefixes of keys whose changes clients are told.",
    ),
    counter(
        "unexpected_error_replies",
        "unexpected_error_replies",
        "Errors of commands that came from the primary.",
    ),
    counter("total_error_replies", "total_error_replies", "Errors that were replied.").summed(),
    counter(
        "dump_payload_sanitizations",
        "dump_payload_sanitizations",
        "Payloads of RESTORE that were checked in depth.",
    ),
    counter("total_reads_processed", "total_reads_processed", "Reads from connections."),
    counter("total_writes_processed", "total_writes_processed", "Writes to connections."),
    counter(
        "client_query_buffer_limit_disconnections",
        "client_query_buffer_limit_disconnections_total",
        "Clients whose requests were too large.",
    ),
    counter(
        "client_output_buffer_limit_disconnections",
        "client_output_buffer_limit_disconnections_total",
        "Clients that read too slowly.",
    ),
    counter(
        "io_threaded_reads_processed",
        "io_threaded_reads_processed",
        "Reads from connections, if more than one thread serves clients.",
    ),
    counter(
        "io_threaded_writes_processed",
        "io_threaded_writes_processed",
        "Writes to connections, if more than one thread serves clients.",
    ),
    counter(
        "reply_buffer_shrinks",
        "reply_buffer_shrinks_total",
        "Reply buffers that were made smaller.",
    ),
    counter(
        "reply_buffer_expands",
        "reply_buffer_expands_total",
        "Reply buffers that were made larger.",
    ),
    counter("acl_access_denied_auth", "acl_access_denied_auth_total", "Log-ins that were refused."),
    counter(
        "acl_access_denied_cmd",
        "acl_access_denied_cmd_total",
        "Commands that a user's rules have refused.",
    ),
    counter(
        "acl_access_denied_key",
        "acl_access_denied_key_total",
        "Keys that a user's rules have refused.",
    ),
    counter(
        "acl_access_denied_channel",
        "acl_access_denied_channel_total",
        "Channels that a user's rules have refused.",
    ),
    counter("acl_access_denied_tls_cert", "", "Certificates of clients that were refused."),
    counter("acl_access_denied_db", "", "Databases that a user's rules have refused."),
    counter("audit_log_lines", "audit_log_lines_total", "Lines of the audit log."),
    counter(
        "audit_log_dropped",
        "audit_log_dropped_total",
        "Lines that the audit log lacks: its disk is slow or full, or too much was refused.",
    ),
    gauge(
        "audit_log_failing",
        "audit_log_failing",
        "Whether the audit log could not be written at the last attempt.",
    ),
    counter(
        "eventloop_cycles",
        "eventloop_cycles_total",
        "Turns of the event loops of all threads.",
    ),
    counter(
        "eventloop_duration_sum",
        "eventloop_duration_sum_usec_total",
        "Microseconds that the turns of all threads took.",
    )
    .unit(Microseconds),
    counter(
        "eventloop_duration_cmd_sum",
        "eventloop_duration_cmd_sum_usec_total",
        "Microseconds that all threads ran commands.",
    )
    .unit(Microseconds),
    gauge(
        "instantaneous_eventloop_cycles_per_sec",
        "instantaneous_eventloop_cycles_per_sec",
        "Turns of the event loops each second.",
    )
    .unit(PerSecond),
    gauge(
        "instantaneous_eventloop_duration_usec",
        "instantaneous_eventloop_duration_usec",
        "Microseconds that a turn takes.",
    )
    .unit(Microseconds),
    counter(
        "io_coalesced_waits",
        "",
        "Waits that were prolonged so that more requests come at once.",
    ),
    counter("io_periods_yielding", "", "Periods in which threads left their processors to others."),
    gauge("tls_handshakes_waiting", "", "TLS handshakes that wait their turn."),
    counter("tls_handshakes_refused", "", "TLS handshakes refused because too many waited."),
];

pub(crate) static REPLICATION: [Row; 32] = [
    text("role", "Whether the server is a primary (master) or a replica (slave)."),
    text("master_host", "The primary's host."),
    text("master_port", "The primary's port."),
    // The exporter gives these the primary's address as labels; the writer knows.
    text("master_link_status", "Whether the replica is connected to the primary."),
    text("master_last_io_seconds_ago", "Seconds since something came from the primary.")
        .unit(Seconds),
    text("master_sync_in_progress", "Whether a snapshot comes from the primary."),
    text(
        "slave_repl_offset",
        "The position of the primary's stream up to which changes are carried out.",
    ),
    gauge(
        "slave_read_repl_offset",
        "",
        "The position of the primary's stream up to which changes have come.",
    ),
    gauge(
        "replicas_repl_buffer_size",
        "",
        "Bytes of the primary's stream that wait until the snapshot is loaded.",
    )
    .unit(Bytes),
    gauge(
        "replicas_repl_buffer_peak",
        "",
        "The most bytes that have waited until the snapshot was loaded.",
    )
    .unit(Bytes),
    gauge("master_sync_total_bytes", "", "Bytes of the primary's snapshot.").unit(Bytes),
    gauge("master_sync_read_bytes", "", "Bytes of the primary's snapshot that have come.")
        .unit(Bytes),
    gauge("master_sync_left_bytes", "", "Bytes of the primary's snapshot that are to come.")
        .unit(Bytes),
    gauge("master_sync_perc", "", "Percent of the primary's snapshot that has come.").unit(Percent),
    gauge("master_sync_last_io_seconds_ago", "", "Seconds since a part of the snapshot came.")
        .unit(Seconds),
    gauge(
        "master_link_down_since_seconds",
        "",
        "Seconds since the connection to the primary was lost.",
    )
    .unit(Seconds),
    gauge(
        "slave_priority",
        "slave_priority",
        "The order in which sentinels choose replicas: the lowest first, 0 never.",
    ),
    text("slave_read_only", "Whether the replica refuses writes."),
    gauge("replica_announced", "", "Whether sentinels are told of the replica."),
    gauge("connected_slaves", "connected_slaves", "Replicas that are connected."),
    gauge("min_slaves_good_slaves", "", "Replicas whose lag is at most min-replicas-max-lag."),
    gauge("replicas_waiting_psync", "", "Replicas that load a snapshot and wait for the stream."),
    text("master_failover_state", "How far FAILOVER is."),
    text("master_replid", "The identifier of the stream of changes."),
    text("master_replid2", "The identifier of the stream before it."),
    gauge("master_repl_offset", "master_repl_offset", "The position of the stream of changes."),
    gauge(
        "second_repl_offset",
        "second_repl_offset",
        "The position at which the stream before it ended; -1 if there was none.",
    ),
    gauge("repl_backlog_active", "repl_backlog_is_active", "Whether there is a backlog."),
    gauge("repl_backlog_size", "replication_backlog_bytes", "Bytes that the backlog may keep.")
        .unit(Bytes),
    gauge(
        "repl_backlog_first_byte_offset",
        "repl_backlog_first_byte_offset",
        "The position at which the backlog begins.",
    ),
    gauge("repl_backlog_histlen", "repl_backlog_history_bytes", "Bytes that the backlog keeps.")
        .unit(Bytes),
    gauge("cluster_enabled", "cluster_enabled", "Whether the server is a node of a cluster."),
];

pub(crate) static CPU: [Row; 7] = [
    counter("used_cpu_sys", "cpu_sys_seconds_total", "Seconds of processor time in the kernel.")
        .unit(Seconds),
    counter(
        "used_cpu_user",
        "cpu_user_seconds_total",
        "Seconds of processor time outside the kernel.",
    )
    .unit(Seconds),
    counter(
        "used_cpu_sys_children",
        "cpu_sys_children_seconds_total",
        "Seconds of processor time of child processes in the kernel.",
    )
    .unit(Seconds),
    counter(
        "used_cpu_user_children",
        "cpu_user_children_seconds_total",
        "Seconds of processor time of child processes outside the kernel.",
    )
    .unit(Seconds),
    counter(
        "used_cpu_sys_main_thread",
        "cpu_sys_main_thread_seconds_total",
        "Seconds of processor time in the kernel of the threads that serve clients.",
    )
    .unit(Seconds),
    counter(
        "used_cpu_user_main_thread",
        "cpu_user_main_thread_seconds_total",
        "Seconds outside the kernel of the threads that serve clients.",
    )
    .unit(Seconds),
    counter(
        "used_active_time_main_thread",
        "active_time_main_thread_seconds_total",
        "Seconds that the threads that serve clients have worked.",
    )
    .unit(Seconds),
];

/// Fields that this server does not write.
pub(crate) static ELSEWHERE: [Row; 9] = [
    gauge("client_longest_output_list", "client_longest_output_list", "Of Redis before 5."),
    gauge("client_biggest_input_buf", "client_biggest_input_buf", "Of Redis before 5."),
    counter("expired_subkeys", "expired_subkeys_total", "Fields of hashes that expired, in Redis."),
    gauge(
        "cluster_stats_messages_sent",
        "cluster_messages_sent_total",
        "Messages of the cluster's bus.",
    ),
    gauge(
        "cluster_stats_messages_received",
        "cluster_messages_received_total",
        "Messages of the cluster's bus.",
    ),
    gauge("server_threads", "server_threads_total", "Threads of KeyDB."),
    gauge("long_lock_waits", "long_lock_waits_total", "Long waits of KeyDB."),
    counter("cached_keys", "cached_keys_total", "Keys of KeyDB's cache."),
    gauge("aof_rewrite_buffer_length", "aof_rewrite_buffer_length", "Bytes that a rewrite lacks.")
        .unit(Bytes),
];

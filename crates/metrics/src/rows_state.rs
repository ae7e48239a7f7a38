//! Rows of INFO's sections that say what the server is and holds.

use crate::rows::Unit::{Bytes, Days, Microseconds, Milliseconds, Percent, Ratio, Seconds};
use crate::rows::{Row, counter, gauge, text};

pub(crate) static SERVER: [Row; 30] = [
    text("redis_version", "The version of Redis whose behaviour clients find."),
    text("server_name", "The product's name: dunlin."),
    text("valkey_version", "The version of Valkey whose behaviour clients find."),
    text("dunlin_version", "The server's own version."),
    text("redis_git_sha1", "The commit that it was built from."),
    text("redis_git_dirty", "Whether the sources differed from that commit."),
    text("redis_build_id", "An identifier of the build."),
    text("redis_mode", "Standalone, cluster or sentinel."),
    text("server_mode", "Standalone, cluster or sentinel."),
    text("arch_bits", "Width of a pointer in bits."),
    text("monotonic_clock", "The clock that durations are measured with."),
    text("multiplexing_api", "The name of the event loop: reactor."),
    gauge("io_threads", "", "Threads that serve clients."),
    gauge("io_threads_active", "io_threads_active", "Whether more than one thread serves clients."),
    text("tcp_port", "The port for clients."),
    text("server_time_usec", "The time of day in microseconds since 1970.").unit(Microseconds),
    text("uptime_in_days", "Days since the start.").unit(Days),
    // redis_exporter has both of its own accord, not as fields.
    gauge("hz", "hz", "Rounds of background work each second."),
    gauge(
        "configured_hz",
        "configured_hz",
        "Rounds of background work each second, as configured.",
    ),
    text("availability_zone", "The zone that the server is in, as configured."),
    text("lru_clock", "The clock of LRU eviction: seconds, in 24 bits."),
    text("os", "The operating system."),
    gauge("process_id", "process_id", "The process's number."),
    text("process_supervised", "Which supervisor is told when the server is ready."),
    text("run_id", "A random identifier of this start."),
    text("executable", "The program's path."),
    text("io_backend", "How the kernel is asked for input and output: io_uring or epoll."),
    gauge("uptime_in_seconds", "uptime_in_seconds", "Seconds since the start.").unit(Seconds),
    text("config_file", "The configuration file's path."),
    gauge("shutdown_in_milliseconds", "", "Milliseconds until the server stops at the latest.")
        .unit(Milliseconds),
];

pub(crate) static CLIENTS: [Row; 16] = [
    gauge("connected_clients", "connected_clients", "Connections of clients.").summed(),
    gauge("cluster_connections", "cluster_connections", "Connections of the cluster's bus."),
    gauge("maxclients", "max_clients", "Connections that there may be."),
    gauge(
        "client_recent_max_input_buffer",
        "client_recent_max_input_buffer_bytes",
        "Bytes of the largest request buffer in the last seconds.",
    )
    .unit(Bytes),
    gauge(
        "client_recent_max_output_buffer",
        "client_recent_max_output_buffer_bytes",
        "Bytes of the largest reply buffer in the last seconds.",
    )
    .unit(Bytes),
    gauge(
        "blocked_clients",
        "blocked_clients",
        "Clients that wait for a key, a replica or a pause.",
    )
    .summed(),
    gauge("tracking_clients", "tracking_clients", "Clients that have client-side caching on."),
    gauge("pubsub_clients", "pubsub_clients", "Clients that have subscribed to channels."),
    gauge("watching_clients", "watching_clients", "Clients that watch keys."),
    gauge(
        "clients_in_timeout_table",
        "clients_in_timeout_table",
        "Clients whose blocking command has a time limit.",
    ),
    gauge("total_watched_keys", "total_watched_keys", "Keys that clients watch for a transaction."),
    gauge("total_blocking_keys", "total_blocking_keys", "Keys that blocking commands wait for."),
    gauge(
        "total_blocking_keys_on_nokey",
        "total_blocking_keys_on_nokey",
        "Keys whose deletion wakes the clients that wait for them.",
    ),
    text("paused_reason", "Why clients are paused."),
    text("paused_actions", "What is paused."),
    gauge("paused_timeout_milliseconds", "", "Milliseconds until the pause ends.")
        .unit(Milliseconds),
];

pub(crate) static MEMORY: [Row; 58] = [
    gauge("used_memory", "memory_used_bytes", "Bytes that the allocator has given out.")
        .unit(Bytes)
        .summed(),
    text("used_memory_human", "used_memory, for people."),
    text("used_memory_rss_human", "used_memory_rss, for people."),
    gauge("used_memory_rss", "memory_used_rss_bytes", "Bytes of RAM that the process occupies.")
        .unit(Bytes)
        .summed(),
    text("total_system_memory_human", "total_system_memory, for people."),
    gauge("total_system_memory", "total_system_memory_bytes", "Bytes of RAM of the machine.")
        .unit(Bytes)
        .summed(),
    gauge(
        "used_memory_peak",
        "memory_used_peak_bytes",
        "The largest value that used_memory has had, in bytes.",
    )
    .unit(Bytes),
    text("used_memory_peak_human", "used_memory_peak, for people."),
    text("used_memory_peak_perc", "used_memory in percent of used_memory_peak.").unit(Percent),
    gauge(
        "used_memory_overhead",
        "memory_used_overhead_bytes",
        "Bytes that are not keys and values: tables, buffers, scripts.",
    )
    .unit(Bytes),
    gauge("used_memory_startup", "memory_used_startup_bytes", "Bytes that were used at the start.")
        .unit(Bytes),
    gauge("used_memory_dataset", "memory_used_dataset_bytes", "Bytes of keys and values.")
        .unit(Bytes)
        .summed(),
    text(
        "used_memory_dataset_perc",
        "used_memory_dataset in percent of what is used beyond the start.",
    )
    .unit(Percent),
    gauge(
        "allocator_allocated",
        "allocator_allocated_bytes",
        "Bytes that the allocator has given out.",
    )
    .unit(Bytes),
    gauge(
        "allocator_active",
        "allocator_active_bytes",
        "Bytes of pages that the allocator has in use.",
    )
    .unit(Bytes),
    gauge(
        "allocator_resident",
        "allocator_resident_bytes",
        "Bytes of RAM that the allocator occupies.",
    )
    .unit(Bytes),
    gauge(
        "allocator_muzzy",
        "allocator_muzzy_bytes",
        "Bytes that the allocator has offered back to the kernel.",
    )
    .unit(Bytes),
    gauge(
        "allocator_frag_ratio",
        "allocator_frag_ratio",
        "allocator_active divided by allocator_allocated.",
    )
    .unit(Ratio),
    gauge(
        "allocator_frag_bytes",
        "allocator_frag_bytes",
        "allocator_active minus allocator_allocated, in bytes.",
    )
    .unit(Bytes),
    gauge(
        "allocator_rss_ratio",
        "allocator_rss_ratio",
        "allocator_resident divided by allocator_active.",
    )
    .unit(Ratio),
    gauge(
        "allocator_rss_bytes",
        "allocator_rss_bytes",
        "allocator_resident minus allocator_active, in bytes.",
    )
    .unit(Bytes),
    gauge("rss_overhead_ratio", "", "used_memory_rss divided by allocator_resident.").unit(Ratio),
    gauge("rss_overhead_bytes", "", "used_memory_rss minus allocator_resident, in bytes.")
        .unit(Bytes),
    gauge(
        "used_memory_lua",
        "memory_used_lua_bytes",
        "Bytes of the interpreters that run scripts.",
    )
    .unit(Bytes),
    gauge(
        "used_memory_vm_eval",
        "memory_used_vm_eval_bytes",
        "Bytes of the interpreters that run scripts.",
    )
    .unit(Bytes),
    text("used_memory_lua_human", "used_memory_lua, for people."),
    gauge("used_memory_scripts_eval", "memory_used_scripts_eval_bytes", "Bytes of cached scripts.")
        .unit(Bytes),
    gauge("number_of_cached_scripts", "number_of_cached_scripts", "Scripts in the cache of EVAL."),
    gauge("number_of_functions", "number_of_functions", "Functions in libraries."),
    gauge("number_of_libraries", "number_of_libraries", "Libraries of functions."),
    gauge(
        "used_memory_vm_functions",
        "memory_used_vm_functions_bytes",
        "Bytes of the interpreters that run functions alone.",
    )
    .unit(Bytes),
    gauge("used_memory_vm_total", "memory_used_vm_total", "Bytes of all interpreters.").unit(Bytes),
    text("used_memory_vm_total_human", "used_memory_vm_total, for people."),
    gauge(
        "used_memory_functions",
        "memory_used_functions_bytes",
        "Bytes of libraries of functions.",
    )
    .unit(Bytes),
    gauge(
        "used_memory_scripts",
        "memory_used_scripts_bytes",
        "Bytes of cached scripts and of libraries of functions.",
    )
    .unit(Bytes),
    text("used_memory_scripts_human", "used_memory_scripts, for people."),
    gauge(
        "maxmemory",
        "memory_max_bytes",
        "Bytes that memory may take before keys are evicted or writes refused; 0 is no limit.",
    )
    .unit(Bytes)
    .summed(),
    text("maxmemory_human", "maxmemory, for people."),
    text("maxmemory_policy", "Which keys are evicted at maxmemory."),
    gauge(
        "mem_fragmentation_ratio",
        "mem_fragmentation_ratio",
        "used_memory_rss divided by used_memory.",
    )
    .unit(Ratio),
    gauge(
        "mem_fragmentation_bytes",
        "mem_fragmentation_bytes",
        "used_memory_rss minus used_memory, in bytes.",
    )
    .unit(Bytes),
    gauge(
        "mem_not_counted_for_evict",
        "mem_not_counted_for_eviction_bytes",
        "Bytes of buffers that maxmemory does not count.",
    )
    .unit(Bytes),
    gauge(
        "mem_total_replication_buffers",
        "mem_total_replication_buffers_bytes",
        "Bytes of the stream of changes that are kept in memory.",
    )
    .unit(Bytes),
    gauge(
        "mem_replication_backlog",
        "mem_replication_backlog_bytes",
        "Bytes of the backlog for replicas.",
    )
    .unit(Bytes),
    gauge(
        "mem_replicas_repl_buffer",
        "",
        "Bytes of the primary's stream that a replica keeps while it loads a snapshot.",
    )
    .unit(Bytes),
    gauge(
        "mem_clients_slaves",
        "mem_clients_slaves",
        "Bytes that wait for replicas beyond the backlog.",
    )
    .unit(Bytes),
    gauge("mem_clients_normal", "mem_clients_normal", "Bytes of the buffers of clients.")
        .unit(Bytes),
    gauge(
        "mem_aof_buffer",
        "mem_aof_buffer_bytes",
        "Bytes of changes that are not in the append-only file yet.",
    )
    .unit(Bytes),
    gauge("mem_cluster_links", "mem_cluster_links_bytes", "Bytes of the cluster's bus.")
        .unit(Bytes),
    text("mem_allocator", "The allocator."),
    gauge(
        "active_defrag_running",
        "active_defrag_running",
        "Percent of the time that defragmentation takes; 0 if it does not run.",
    )
    .unit(Percent),
    gauge("shared_field_lists", "", "Lists of field names that hashes share.").summed(),
    gauge("shared_field_bytes", "", "Bytes of these lists.").unit(Bytes).summed(),
    gauge("shared_field_hashes", "", "Hashes whose field names are in such a list.").summed(),
    gauge(
        "long_commands_holding_keys",
        "",
        "Long commands that hold keys, for which other commands wait.",
    ),
    gauge(
        "lazyfree_pending_objects",
        "lazyfree_pending_objects",
        "Values whose memory is still to be freed in the background.",
    ),
    gauge(
        "lazyfreed_objects",
        "lazyfreed_objects",
        "Values whose memory was freed in the background.",
    ),
    gauge(
        "mem_overhead_db_hashtable_rehashing",
        "mem_overhead_db_hashtable_rehashing_bytes",
        "Bytes of tables of keys that larger ones replace.",
    )
    .unit(Bytes),
];

pub(crate) static PERSISTENCE: [Row; 47] = [
    gauge("loading", "loading_dump_file", "Whether data are being loaded."),
    gauge(
        "async_loading",
        "async_loading",
        "Whether data are being loaded while the old ones are served.",
    ),
    gauge(
        "current_cow_peak",
        "",
        "The most bytes that writers have had to keep for the running snapshot.",
    )
    .unit(Bytes),
    gauge("current_cow_size", "", "Bytes that writers keep for the running snapshot.").unit(Bytes),
    gauge("current_cow_size_age", "", "Seconds since current_cow_size was taken.").unit(Seconds),
    gauge("current_fork_perc", "", "How far the running snapshot is, in percent.").unit(Percent),
    gauge("current_save_keys_processed", "", "Keys that are in the running snapshot by now."),
    gauge("current_save_keys_total", "", "Keys that the running snapshot will have in the end."),
    gauge(
        "rdb_changes_since_last_save",
        "rdb_changes_since_last_save",
        "Changes since the last snapshot.",
    ),
    gauge("rdb_bgsave_in_progress", "rdb_bgsave_in_progress", "Whether a snapshot is being taken."),
    gauge(
        "rdb_last_save_time",
        "rdb_last_save_timestamp_seconds",
        "When the last snapshot was taken, in seconds since 1970.",
    ),
    gauge(
        "rdb_last_bgsave_status",
        "rdb_last_bgsave_status",
        "Whether the last snapshot succeeded.",
    ),
    gauge(
        "rdb_last_bgsave_time_sec",
        "rdb_last_bgsave_duration_sec",
        "Seconds that the last snapshot took.",
    )
    .unit(Seconds),
    gauge(
        "rdb_current_bgsave_time_sec",
        "rdb_current_bgsave_duration_sec",
        "Seconds since the running snapshot began.",
    )
    .unit(Seconds),
    gauge("rdb_saves", "rdb_saves_total", "Snapshots since the start."),
    gauge(
        "rdb_last_cow_size",
        "rdb_last_cow_size_bytes",
        "The most bytes that writers have kept for the last snapshot.",
    )
    .unit(Bytes),
    gauge("snapshot_buffer_bytes", "", "Bytes that writers keep for the running snapshot.")
        .unit(Bytes),
    gauge("snapshot_buffer_limit", "", "The most bytes that writers may keep for a snapshot.")
        .unit(Bytes),
    gauge("snapshot_age_seconds", "", "Seconds since the last snapshot.").unit(Seconds),
    gauge("aof_enabled", "aof_enabled", "Whether there is an append-only file."),
    gauge(
        "aof_rewrite_in_progress",
        "aof_rewrite_in_progress",
        "Whether the append-only file is being rewritten.",
    ),
    gauge("aof_rewrite_scheduled", "aof_rewrite_scheduled", "Whether a rewrite is to come."),
    gauge(
        "aof_last_rewrite_time_sec",
        "aof_last_rewrite_duration_sec",
        "Seconds that the last rewrite took.",
    )
    .unit(Seconds),
    gauge(
        "aof_current_rewrite_time_sec",
        "aof_current_rewrite_duration_sec",
        "Seconds since the running rewrite began.",
    )
    .unit(Seconds),
    gauge(
        "aof_last_bgrewrite_status",
        "aof_last_bgrewrite_status",
        "Whether the last rewrite succeeded.",
    ),
    counter("aof_rewrites", "", "Rewrites of the append-only file."),
    gauge(
        "aof_rewrites_consecutive_failures",
        "",
        "Rewrites that have failed since the last that succeeded.",
    ),
    gauge(
        "aof_last_write_status",
        "aof_last_write_status",
        "Whether the append-only file can be written.",
    ),
    gauge(
        "aof_last_cow_size",
        "aof_last_cow_size_bytes",
        "The most bytes that writers have kept for the last rewrite.",
    )
    .unit(Bytes),
    gauge("aof_current_size", "aof_current_size_bytes", "Bytes of the append-only file.")
        .unit(Bytes),
    gauge(
        "aof_base_size",
        "aof_base_size_bytes",
        "Bytes of the append-only file after its last rewrite.",
    )
    .unit(Bytes),
    gauge(
        "aof_pending_rewrite",
        "aof_pending_rewrite",
        "Whether a rewrite waits until a snapshot is done.",
    ),
    gauge(
        "aof_buffer_length",
        "aof_buffer_length",
        "Bytes of changes that are not in the append-only file yet.",
    )
    .unit(Bytes),
    gauge(
        "aof_pending_bio_fsync",
        "aof_pending_bio_fsync",
        "fsyncs of the append-only file that wait.",
    ),
    gauge(
        "aof_delayed_fsync",
        "aof_delayed_fsync",
        "fsyncs that came late, because the one before had not ended.",
    ),
    counter(
        "aof_held_writes",
        "",
        "Times that writes waited, because the append-only file lagged by half a second.",
    ),
    gauge(
        "rdb_last_load_keys_expired",
        "rdb_last_load_expired_keys",
        "Keys that the last load left out, because they had expired.",
    ),
    gauge(
        "rdb_last_load_keys_loaded",
        "rdb_last_load_loaded_keys",
        "Keys that the last load has read.",
    ),
    gauge("rdb_last_load_unknown_skipped", "", "Unknown records that the last load has left out."),
    gauge("loading_start_time", "", "When the load began, in seconds since 1970."),
    gauge("loading_total_bytes", "", "Bytes that are to be loaded.").unit(Bytes),
    gauge("loading_rdb_used_mem", "", "Bytes of memory of the server that wrote the file.")
        .unit(Bytes),
    gauge("loading_loaded_bytes", "", "Bytes that are loaded.").unit(Bytes),
    gauge("loading_loaded_perc", "", "Percent that is loaded.").unit(Percent),
    gauge("loading_eta_seconds", "", "Seconds that the load will still take.").unit(Seconds),
    gauge(
        "module_fork_in_progress",
        "module_fork_in_progress",
        "Whether a module has a child process.",
    ),
    gauge(
        "module_fork_last_cow_size",
        "module_fork_last_cow_size",
        "Bytes that a module's last child has copied.",
    )
    .unit(Bytes),
];

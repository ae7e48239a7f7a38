//! `INFO [section …]`
//!
//! Sections and fields are those that monitoring systems read; the process's own facts come from
//! the host. Each field has a row in the crate `metrics`, without which it is no series, and behind
//! one address only the fields that `route/src/join.rs` names are sums.

use super::memory_report::Memory;
use engine::append_log::LogState;
use engine::clients::flag;
use engine::pause::{Actions, Purpose};
use engine::pubsub::Space;
use engine::routing::{About, Merge, Routing};
use engine::shedding::Overload;
use engine::stats::powers::Spread;
use engine::stats::{Counter, Durations, Sizes};
use engine::{Arg, ArgKind, Args, Command, Cx, DbIndex, Engine, Flags, Group, Outcome, View};
use std::fmt::Write as _;
use std::sync::atomic::Ordering::Relaxed;
use structs::field_names;
use structs::sync::lock;

/// `INFO`.
pub static INFO: Command = Command {
    name: "info",
    arity: -1,
    flags: Flags::WALKS.with(Flags::LOADING).with(Flags::STALE).with(Flags::OUTSIDE),
    group: Group::Server,
    categories: &["dangerous", "nodes"],
    since: "1.0.0",
    complexity: "O(1)",
    summary: "What the server is and does, in figures.",
    history: &[("7.0.0", "Takes several sections.")],
    tips: &["nondeterministic_output", "request_policy:all_shards", "response_policy:special"],
    args: &[Arg::new("section", ArgKind::String).optional().multiple()],
    routing: Routing::all(Merge::Info, About::Server),
    run: info,
    ..Command::ROW
};

type Section = (&'static str, fn(&Cx<'_>, &mut String));

/// The sections in their order; the ones after the first twelve are only shown when asked for.
const SECTIONS: [Section; 16] = [
    ("Server", server),
    ("Clients", clients),
    ("Memory", memory),
    ("Tier", super::tier_report::section),
    ("Persistence", persistence),
    ("Stats", stats),
    ("Replication", replication),
    ("CPU", cpu),
    ("Modules", super::module::section),
    ("Errorstats", errorstats),
    ("Cluster", |cx, out| {
        line(out, "cluster_enabled", u8::from(cx.view() == View::Node));
    }),
    ("Keyspace", keyspace),
    ("Commandstats", commandstats),
    ("Latencystats", latencystats),
    ("Sizestats", sizestats),
    ("Timings", timings),
];

/// Writes a line. What would break it is replaced: clients choose some names and values.
pub(super) fn line(out: &mut String, name: &str, value: impl std::fmt::Display) {
    let start = out.len();
    // Writing to a string cannot fail.
    let _ = write!(out, "{name}");
    clean(out, start, |c| matches!(c, '#' | ':'));
    out.push(':');
    let start = out.len();
    let _ = write!(out, "{value}");
    clean(out, start, |_| false);
    out.push_str("\r\n");
}

/// Replaces control characters from `start` on, and those that `is_special` names.
fn clean(out: &mut String, start: usize, is_special: impl Fn(char) -> bool) {
    let is_bad = |c: char| c.is_control() || is_special(c);
    if out[start..].contains(is_bad) {
        let cleaned = out[start..].replace(is_bad, "_");
        out.truncate(start);
        out.push_str(&cleaned);
    }
}

/// A name that a client has given, for a list of `name=value` pairs.
fn in_pairs(name: &str) -> String {
    name.replace([',', '='], "_")
}

fn info(cx: &mut Cx<'_>, args: Args<'_>) -> Outcome {
    let wanted: Vec<String> =
        args.from(1).iter().map(|w| String::from_utf8_lossy(w).to_ascii_lowercase()).collect();
    let has = |name: &str| wanted.iter().any(|w| w == name);
    let default = wanted.is_empty() || has("default");
    let all = has("all") || has("everything");
    let mut out = String::new();
    for (index, (name, write)) in SECTIONS.iter().enumerate() {
        let shown = all || (default && index < 12) || has(&name.to_ascii_lowercase());
        if shown {
            if !out.is_empty() {
                out.push_str("\r\n");
            }
            let _ = write!(out, "# {name}\r\n");
            write(cx, &mut out);
        }
    }
    cx.reply.verbatim("txt", out.as_bytes());
    Ok(())
}

/// Writes what INFO says, section by section, for a report about a crash. Sections that look at
/// stripes are last, and left out if the crashed thread has stopped the world.
pub fn report_info(engine: &'static Engine, write: &mut dyn FnMut(&str)) {
    const LOOK_AT_STRIPES: [&str; 4] = ["Clients", "Memory", "Persistence", "Keyspace"];
    Cx::of_process(engine, |cx| {
        let mut show = |looks: bool| {
            for (name, section) in &SECTIONS {
                if LOOK_AT_STRIPES.contains(name) == looks {
                    let mut out = format!("# {name}\r\n");
                    section(cx, &mut out);
                    write(&out.replace("\r\n", "\n"));
                }
            }
        };
        show(false);
        let began = engine.clock.wall();
        let is_late = || engine.clock.wall().0 - began.0 > 1000;
        if cx.thread.reader.enter_unless(is_late) {
            show(true);
            cx.thread.reader.leave();
        } else {
            write("Other sections cannot be had: a thread has stopped the world.\n");
        }
    });
}

fn facts(cx: &Cx<'_>, section: &str) -> Vec<(String, String)> {
    cx.engine.host().map_or_else(Vec::new, |host| host.facts(section))
}

fn server(cx: &Cx<'_>, out: &mut String) {
    let engine = cx.engine;
    line(out, "redis_version", super::REDIS_VERSION);
    line(out, "server_name", "dunlin");
    line(out, "valkey_version", engine::VALKEY_VERSION);
    line(out, "dunlin_version", env!("CARGO_PKG_VERSION"));
    line(out, "redis_git_dirty", 0);
    line(out, "redis_build_id", "0");
    line(out, "redis_mode", mode(cx));
    line(out, "server_mode", mode(cx));
    line(out, "arch_bits", 64);
    line(out, "monotonic_clock", "POSIX clock_gettime");
    line(out, "multiplexing_api", "reactor");
    line(out, "io_threads", engine.threads);
    line(out, "io_threads_active", u8::from(engine.threads > 1));
    line(out, "tcp_port", engine.config.port());
    line(out, "server_time_usec", cx.now().0 * 1000);
    line(out, "uptime_in_days", (cx.now().0 - engine.started_ms) / 86_400_000);
    line(out, "hz", engine.config.hz());
    line(out, "configured_hz", engine.config.hz());
    line(out, "availability_zone", engine.config.availability_zone().to_string_lossy());
    line(out, "lru_clock", (cx.now().0 / 1000) & 0xff_ffff);
    for (name, value) in facts(cx, "server") {
        line(out, &name, value);
    }
    if let Some(left_ms) = engine.last_wait.left_ms(cx.now()) {
        line(out, "shutdown_in_milliseconds", left_ms);
    }
}

fn clients(cx: &Cx<'_>, out: &mut String) {
    let engine = cx.engine;
    let all = engine.clients.all();
    let count = |bit: u64| all.iter().filter(|client| client.flags() & bit != 0).count();
    let connected = engine.clients.count();
    line(out, "connected_clients", connected.saturating_sub(count(flag::REPLICA)));
    line(out, "cluster_connections", 0);
    line(out, "maxclients", engine.config.maxclients());
    line(out, "client_recent_max_input_buffer", engine.stats.largest_query.get());
    line(out, "client_recent_max_output_buffer", engine.stats.largest_output.get());
    let pause = engine.pause.in_force(cx.now());
    let mut blocked = engine.stats.blocked_clients.load(Relaxed);
    if pause.is_some() {
        // With the end of the pause they are free, before their threads know.
        blocked += engine.stats.postponed_clients.load(Relaxed);
    }
    blocked += engine.last_wait.blocked(&engine.clients);
    line(out, "blocked_clients", blocked.max(0));
    line(out, "tracking_clients", count(flag::TRACKING));
    line(out, "pubsub_clients", count(flag::PUBSUB));
    let watching = all.iter().filter(|c| c.live.watched.load(Relaxed) > 0).count();
    line(out, "watching_clients", watching);
    line(out, "clients_in_timeout_table", count(flag::TIMED_WAIT));
    let keys = cx.db.count_interests();
    line(out, "total_watched_keys", keys.watched);
    line(out, "total_blocking_keys", keys.blocking);
    line(out, "total_blocking_keys_on_nokey", keys.blocking_on_deletion);
    let moves_slots = engine.membership.moves.any_paused();
    let reason = match pause.map(|pause| pause.purpose) {
        None if moves_slots => "slot_migration_in_progress",
        None => "none",
        Some(Purpose::Client) => "client_pause",
        Some(Purpose::Shutdown) => "shutdown_in_progress",
        Some(Purpose::Failover) => "failover_in_progress",
    };
    line(out, "paused_reason", reason);
    let actions = match pause.map(|pause| pause.actions) {
        None if moves_slots => "write",
        None => "none",
        Some(Actions::Writes) => "write",
        Some(Actions::All) => "all",
    };
    line(out, "paused_actions", actions);
    let left = pause.map_or(0, |pause| pause.until.left(cx.now()));
    line(out, "paused_timeout_milliseconds", left);
}

fn memory(cx: &Cx<'_>, out: &mut String) {
    let engine = cx.engine;
    let figures = Memory::now(cx);
    let rows = figures.rows(engine);
    // What MEMORY STATS has, too.
    let both = |out: &mut String, name: &str| {
        if let Some(row) = rows.find(name) {
            line(out, name, row.figure);
        }
    };
    both(out, "used_memory");
    line(out, "used_memory_human", human(figures.used as u64));
    for (name, value) in facts(cx, "memory") {
        if name == "used_memory_rss" {
            line(out, "used_memory_rss_human", human(figures.resident as u64));
        }
        if name == "total_system_memory" {
            line(out, "total_system_memory_human", human(value.parse().unwrap_or(0)));
        }
        line(out, &name, value);
    }
    both(out, "used_memory_peak");
    line(out, "used_memory_peak_human", human(figures.peak as u64));
    line(out, "used_memory_peak_perc", format!("{:.2}%", figures.peak_percent()));
    for name in ["used_memory_overhead", "used_memory_startup", "used_memory_dataset"] {
        both(out, name);
    }
    line(out, "used_memory_dataset_perc", format!("{:.2}%", figures.dataset_percent()));
    rows.of_allocator().for_each(|row| line(out, row.in_info, row.figure));
    scripts_memory(engine, out);
    line(out, "maxmemory", engine.config.maxmemory());
    line(out, "maxmemory_human", human(engine.config.maxmemory()));
    line(out, "maxmemory_policy", engine.config.maxmemory_policy().name());
    both(out, "mem_fragmentation_ratio");
    both(out, "mem_fragmentation_bytes");
    line(out, "mem_not_counted_for_evict", engine.unlimited_bytes());
    line(out, "mem_total_replication_buffers", figures.streams.total());
    for name in [
        "mem_replication_backlog",
        "mem_replicas_repl_buffer",
        "mem_clients_slaves",
        "mem_clients_normal",
        "mem_cluster_links",
        "mem_aof_buffer",
        "mem_overhead_db_hashtable_rehashing",
    ] {
        both(out, name);
    }
    line(out, "mem_allocator", "mimalloc");
    line(out, "active_defrag_running", engine.defrag.running_percent.load(Relaxed));
    let names = field_names::figures();
    line(out, "shared_field_lists", names.lists);
    line(out, "shared_field_bytes", names.bytes);
    line(out, "shared_field_hashes", names.hashes);
    line(out, "long_commands_holding_keys", engine.holds.holding());
    line(out, "lazyfree_pending_objects", engine.background.pending_objects());
    line(out, "lazyfreed_objects", engine.background.freed_objects());
}

fn scripts_memory(engine: &Engine, out: &mut String) {
    let (of_scripts, of_functions) = engine.interpreter_bytes();
    let (scripts, script_bytes, _) = engine.scripts.cache.figures();
    let libraries = engine.scripts.functions.all();
    let (library_count, function_count) = libraries.counts();
    let library_bytes = libraries.bytes();
    let both = (script_bytes + library_bytes) as u64;
    line(out, "used_memory_lua", of_scripts);
    line(out, "used_memory_vm_eval", of_scripts);
    line(out, "used_memory_lua_human", human(of_scripts));
    line(out, "used_memory_scripts_eval", script_bytes);
    line(out, "number_of_cached_scripts", scripts);
    line(out, "number_of_functions", function_count);
    line(out, "number_of_libraries", library_count);
    line(out, "used_memory_vm_functions", of_functions);
    line(out, "used_memory_vm_total", of_scripts + of_functions);
    line(out, "used_memory_vm_total_human", human(of_scripts + of_functions));
    line(out, "used_memory_functions", library_bytes);
    line(out, "used_memory_scripts", both);
    line(out, "used_memory_scripts_human", human(both));
}

/// A size for people: `1.50M`.
pub(crate) fn human(bytes: u64) -> String {
    let (mut number, mut unit) = (bytes as f64, "B");
    for next in ["K", "M", "G", "T", "P"] {
        if number < 1024.0 {
            break;
        }
        number /= 1024.0;
        unit = next;
    }
    if unit == "B" { format!("{bytes}B") } else { format!("{number:.2}{unit}") }
}

fn persistence(cx: &Cx<'_>, out: &mut String) {
    let progress = cx.engine.loading.progress(cx.now());
    line(out, "loading", u8::from(cx.engine.loading.is_on()));
    line(out, "async_loading", u8::from(cx.engine.loading.is_beside()));
    rdb(cx, out);
    append_log(cx, out);
    // Modules are none, and nothing forks.
    line(out, "module_fork_in_progress", 0);
    line(out, "module_fork_last_cow_size", 0);
    line(out, "rdb_last_load_keys_expired", cx.engine.loading.keys_expired.get());
    line(out, "rdb_last_load_keys_loaded", cx.engine.loading.keys_loaded.get());
    line(out, "rdb_last_load_unknown_skipped", cx.engine.loading.skipped.get());
    if let Some(progress) = progress {
        line(out, "loading_start_time", progress.started_ms / 1000);
        line(out, "loading_total_bytes", progress.total_bytes);
        let used = cx.engine.loading.rdb_used_bytes.load(Relaxed);
        line(out, "loading_rdb_used_mem", used);
        line(out, "loading_loaded_bytes", progress.loaded_bytes);
        line(out, "loading_loaded_perc", format!("{:.2}", progress.percent));
        line(out, "loading_eta_seconds", progress.eta_seconds);
    }
}

/// The snapshots' part of the section. There is no child whose memory could grow: what the server
/// calls `cow` is what writers have handed to a running snapshot and what is not written yet.
fn rdb(cx: &Cx<'_>, out: &mut String) {
    let state = &cx.engine.persistence;
    let running = state.running_seconds();
    let snapshot = cx.engine.snapshots.current();
    let of_snapshot = |get: fn(&keyspace::snapshot::Shared) -> u64| {
        snapshot.as_ref().map_or(0, |snapshot| get(snapshot))
    };
    let buffered = of_snapshot(|snapshot| snapshot.buffered_bytes() as u64);
    let peak = of_snapshot(|snapshot| snapshot.peak_bytes() as u64);
    let keys = of_snapshot(|snapshot| snapshot.keys());
    let total = match (&snapshot, state.keys_total()) {
        (None, _) => 0,
        // It has only just begun.
        (Some(_), 0) => {
            let dbs = cx.engine.keyspace.used_databases();
            dbs.map(|db| cx.db.key_count(db) as u64).sum()
        }
        (Some(_), total) => total.max(keys),
    };
    let percent = if total == 0 { 0.0 } else { keys as f64 * 100.0 / total as f64 };
    line(out, "current_cow_peak", peak);
    line(out, "current_cow_size", buffered);
    line(out, "current_cow_size_age", 0);
    line(out, "current_fork_perc", format!("{percent:.2}"));
    line(out, "current_save_keys_processed", keys);
    line(out, "current_save_keys_total", total);
    line(out, "rdb_changes_since_last_save", cx.engine.changes_since_save());
    // In Redis a snapshot for replicas is a save in the background, too.
    let is_saving = running.is_some() || cx.engine.replicas.primary().is_sending();
    line(out, "rdb_bgsave_in_progress", u8::from(is_saving));
    line(out, "rdb_last_save_time", state.last_save_s());
    line(out, "rdb_last_bgsave_status", if state.last_failed() { "err" } else { "ok" });
    line(out, "rdb_last_bgsave_time_sec", state.last_seconds());
    line(out, "rdb_current_bgsave_time_sec", running.unwrap_or(-1));
    line(out, "rdb_saves", state.saves());
    line(out, "rdb_last_cow_size", state.last_peak_bytes());
    line(out, "snapshot_buffer_bytes", buffered);
    line(
        out,
        "snapshot_buffer_limit",
        engine::persistence::snapshots::buffer_limit(&cx.engine.config),
    );
    line(out, "snapshot_age_seconds", cx.now().0 / 1000 - state.last_save_s());
}

/// Bytes that are in the journal and not yet in the append-only file; 0 if there is none.
pub(super) fn unwritten(engine: &Engine) -> u64 {
    let log = &engine.append_log;
    if log.state() == LogState::Off {
        return 0;
    }
    engine.journal.position().0.saturating_sub(log.written.load(Relaxed))
}

/// The append-only file's part of the section.
fn append_log(cx: &Cx<'_>, out: &mut String) {
    let engine = cx.engine;
    let (log, figures) = (&engine.append_log, &engine.append_log.figures);
    let is_on = log.state() != LogState::Off;
    let (is_rewriting, is_rewrite_to_come) = log.rewrites();
    let status = |failed: bool| if failed { "err" } else { "ok" };
    let now_s = cx.now().0 / 1000;
    let current = if is_rewriting { now_s - figures.rewrite_began_s.load(Relaxed) } else { -1 };
    line(out, "aof_enabled", u8::from(is_on));
    line(out, "aof_rewrite_in_progress", u8::from(is_rewriting));
    line(out, "aof_rewrite_scheduled", u8::from(is_rewrite_to_come));
    line(out, "aof_last_rewrite_time_sec", figures.last_rewrite_s.load(Relaxed));
    line(out, "aof_current_rewrite_time_sec", current);
    line(out, "aof_last_bgrewrite_status", status(figures.rewrite_failed.load(Relaxed)));
    let forgotten = figures.forgotten_rewrites.load(Relaxed);
    line(out, "aof_rewrites", figures.rewrites.load(Relaxed).saturating_sub(forgotten));
    line(out, "aof_rewrites_consecutive_failures", figures.consecutive_failures.load(Relaxed));
    line(out, "aof_last_write_status", status(log.is_broken()));
    line(out, "aof_last_cow_size", figures.last_cow_bytes.load(Relaxed));
    if is_on {
        line(out, "aof_current_size", figures.current_size.load(Relaxed));
        line(out, "aof_base_size", figures.base_size.load(Relaxed));
        line(out, "aof_pending_rewrite", u8::from(is_rewrite_to_come));
        line(out, "aof_buffer_length", unwritten(engine));
        line(out, "aof_pending_bio_fsync", figures.pending_fsyncs.load(Relaxed));
        line(out, "aof_delayed_fsync", figures.delayed_fsyncs.load(Relaxed));
        line(out, "aof_held_writes", figures.lags.load(Relaxed));
    }
}

fn total(engine: &Engine, counter: fn(&engine::stats::ThreadStats) -> &Counter) -> u64 {
    engine.thread_stats.iter().map(|stats| counter(stats).get()).sum()
}

/// Nanoseconds that all threads together have run commands.
fn command_ns(engine: &Engine) -> u64 {
    let commands = engine.thread_stats.iter().flat_map(|stats| &stats.by_command);
    commands.map(|command| command.nanoseconds.get()).sum()
}

#[expect(clippy::too_many_lines, reason = "a line for each field of the section")]
fn stats(cx: &Cx<'_>, out: &mut String) {
    let engine = cx.engine;
    let stats = &engine.stats;
    line(out, "total_connections_received", stats.connections.get());
    let traffic = engine.traffic();
    line(out, "total_commands_processed", traffic.commands);
    line(out, "instantaneous_ops_per_sec", engine.rates.commands_per_second());
    line(out, "total_net_input_bytes", traffic.net_in);
    line(out, "total_net_output_bytes", traffic.net_out);
    line(out, "total_net_repl_input_bytes", traffic.repl_in);
    line(out, "total_net_repl_output_bytes", traffic.repl_out);
    let kib = |bytes: u64| format!("{:.2}", bytes as f64 / 1024.0);
    line(out, "instantaneous_input_kbps", kib(engine.rates.net_in_per_second()));
    line(out, "instantaneous_output_kbps", kib(engine.rates.net_out_per_second()));
    line(out, "instantaneous_input_repl_kbps", kib(engine.rates.repl_in_per_second()));
    line(out, "instantaneous_output_repl_kbps", kib(engine.rates.repl_out_per_second()));
    line(out, "rejected_connections", stats.rejected_connections.get());
    line(out, "shed_requests", stats.shed_requests.get());
    line(out, "rate_limited_requests", stats.limited_requests.get());
    let shedding = &engine.shedding;
    line(out, "overloaded_threads", shedding.overloaded_threads());
    line(out, "overloaded_threads_turns", shedding.threads_over(Overload::Turns));
    line(out, "overloaded_threads_cpu", shedding.threads_over(Overload::Cpu));
    line(out, "overloaded_threads_queued_bytes", shedding.threads_over(Overload::QueuedBytes));
    let syncs = &cx.engine.replicas.figures;
    line(out, "sync_full", syncs.full.load(Relaxed));
    line(out, "sync_partial_ok", syncs.partial.load(Relaxed));
    line(out, "sync_partial_err", syncs.refused.load(Relaxed));
    line(out, "unconfirmed_writes", stats.unconfirmed_writes.get());
    line(out, "expired_keys", stats.expired.get());
    line(out, "expired_fields", stats.expired_fields.get());
    line(out, "expired_stale_perc", format!("{:.2}", engine.stale_share.percent()));
    line(out, "expired_time_cap_reached_count", stats.expire_cycles_cut_short.get());
    line(out, "expire_cycle_cpu_milliseconds", stats.expire_cycle_ms.get());
    line(out, "evicted_keys", stats.evicted.get());
    line(out, "evicted_clients", stats.evicted_clients.get());
    line(out, "evicted_scripts", cx.engine.scripts.cache.figures().2);
    let (total_ms, current_ms) = engine.over_limit.milliseconds(&engine.clock);
    line(out, "total_eviction_exceeded_time", total_ms);
    line(out, "current_eviction_exceeded_time", current_ms);
    line(out, "keyspace_hits", total(engine, |s| &s.hits));
    line(out, "keyspace_misses", total(engine, |s| &s.misses));
    line(out, "pubsub_channels", engine.pubsub.count(Space::Channels));
    line(out, "pubsub_patterns", engine.pubsub.count(Space::Patterns));
    line(out, "pubsubshard_channels", engine.pubsub.count(Space::ShardChannels));
    line(out, "latest_fork_usec", engine.persistence.cut_us());
    line(out, "total_forks", cx.engine.persistence.forks());
    let kept = cx.engine.host().map_or(0, |host| host.kept_connections());
    line(out, "migrate_cached_sockets", kept);
    line(out, "slave_expires_tracked_keys", engine.own_keys.len());
    let defrag = &engine.defrag;
    line(out, "active_defrag_hits", defrag.hits.get());
    line(out, "active_defrag_misses", defrag.misses.get());
    line(out, "active_defrag_key_hits", defrag.hits.get());
    line(out, "active_defrag_key_misses", defrag.seen.get().saturating_sub(defrag.hits.get()));
    line(out, "total_active_defrag_time", defrag.total_us.get() / 1000);
    line(out, "current_active_defrag_time", defrag.current_ms(engine.clock.wall()));
    line(out, "tracking_total_keys", engine.tracking.keys.load(Relaxed));
    line(out, "tracking_total_items", engine.tracking.items.load(Relaxed));
    line(out, "tracking_total_prefixes", engine.tracking.prefix_count());
    line(out, "unexpected_error_replies", engine.upstream.failures.load(Relaxed));
    line(out, "total_error_replies", stats.errors.get());
    line(out, "dump_payload_sanitizations", 0);
    line(out, "total_reads_processed", total(engine, |s| &s.reads));
    line(out, "total_writes_processed", total(engine, |s| &s.writes));
    // Every thread that serves clients reads and writes, so these are the sums as well.
    let is_shared = engine.threads > 1;
    let of_many = |counter| if is_shared { total(engine, counter) } else { 0 };
    line(out, "io_threaded_reads_processed", of_many(|s| &s.reads));
    line(out, "io_threaded_writes_processed", of_many(|s| &s.writes));
    line(out, "client_query_buffer_limit_disconnections", stats.query_buffer_disconnections.get());
    line(
        out,
        "client_output_buffer_limit_disconnections",
        stats.output_buffer_disconnections.get(),
    );
    // A reply buffer is as large as its reply; none is resized by the clock.
    line(out, "reply_buffer_shrinks", 0);
    line(out, "reply_buffer_expands", 0);
    line(out, "acl_access_denied_auth", stats.acl_denied_auth.get());
    line(out, "acl_access_denied_cmd", stats.acl_denied_command.get());
    line(out, "acl_access_denied_key", stats.acl_denied_key.get());
    line(out, "acl_access_denied_channel", stats.acl_denied_channel.get());
    line(out, "acl_access_denied_tls_cert", 0);
    line(out, "acl_access_denied_db", stats.acl_denied_database.get());
    line(out, "eventloop_cycles", traffic.turns);
    let command_us = command_ns(engine) / 1000;
    line(out, "eventloop_duration_cmd_sum", command_us);
    line(out, "instantaneous_eventloop_cycles_per_sec", engine.rates.turns_per_second());
    // What is measured of a turn is its commands; both figures start anew with CONFIG RESETSTAT.
    line(out, "instantaneous_eventloop_duration_usec", command_us / traffic.turns.max(1));
    for (name, value) in facts(cx, "stats") {
        line(out, &name, value);
    }
}

fn replication(cx: &Cx<'_>, out: &mut String) {
    let is_replica = cx.engine.upstream.is_replica();
    if cx.described_view() == View::OneServer {
        line(out, "role", "master");
        line(out, "cluster_copy_role", if is_replica { "replica" } else { "primary" });
        line(out, "connected_slaves", 0);
    } else {
        line(out, "role", if is_replica { "slave" } else { "master" });
        upstream(cx, out);
        replicas(cx, out);
    }
    line(out, "master_failover_state", cx.engine.failover.stage().name());
    let journal = &cx.engine.journal;
    let (history, position) = (journal.history(), journal.position().0);
    let (second, last) = match history.second {
        Some((id, last)) => (id.to_string(), last.0 as i64 + 1),
        None => ("0".repeat(40), -1),
    };
    line(out, "master_replid", history.id);
    line(out, "master_replid2", second);
    line(out, "master_repl_offset", position);
    line(out, "second_repl_offset", last);
    let epoch = cx.engine.epochs.last().epoch;
    if epoch > 0 {
        line(out, "stream_epoch", epoch);
    }
    let membership = cx.membership();
    let published = membership.as_deref();
    if let Some((published, shard)) = published.and_then(|it| Some((it, it.own_shard()?))) {
        line(out, "cluster_promotion_copies", shard.fence);
        line(out, "cluster_members", shard.members().count());
        let is_present = cx.engine.membership.is_coordinator_present();
        line(out, "cluster_coordinator", if is_present { "up" } else { "away" });
        line(out, "cluster_bus_tls", u8::from(published.bus.port_of(published.me).is_some()));
        let alive = published.view.alive.get(&published.me);
        let announces = alive.is_some_and(|at| at.value.bus_port > 0);
        line(out, "cluster_bus_announced", u8::from(announces));
        let unreached = cx.engine.membership.unreached();
        if !announces && !unreached.is_empty() {
            line(out, "cluster_bus_unreached", unreached);
        }
        let (files, writes) = cx.engine.membership.rescued();
        line(out, "cluster_rescue_files", files);
        line(out, "cluster_rescued_writes", writes);
        hashing(cx, out);
    }
    let kept = journal.kept_from();
    line(out, "repl_backlog_active", i32::from(kept.is_some()));
    line(out, "repl_backlog_size", cx.engine.config.repl_backlog_size());
    line(out, "repl_backlog_first_byte_offset", kept.map_or(0, |first| first.0 + 1));
    line(out, "repl_backlog_histlen", kept.map_or(0, |first| position.saturating_sub(first.0)));
}

/// The rules from keys to slots, if they are the database's own or change.
fn hashing(cx: &Cx<'_>, out: &mut String) {
    let membership = &&cx.engine.membership;
    let Some(published) = cx.membership().filter(|_| membership.has_rules()) else { return };
    line(out, "cluster_hashing_rules", published.view.topology.value.hashing.len());
    if let Some(next) = published.next() {
        line(out, "cluster_hashing_change", next.phase.name());
        line(out, "cluster_hashing_keys_moved", membership.rehash.moved());
        line(out, "cluster_hashing_obstacle", membership.rehash.obstacle());
    }
}

/// The primary, if there is one.
fn upstream(cx: &Cx<'_>, out: &mut String) {
    let (engine, now) = (cx.engine, cx.now());
    let link = engine.upstream.link().clone();
    let Some((host, port)) = link.primary else { return };
    let seconds_since =
        |at: Option<engine::Millis>| at.map_or(-1, |at| (now.0 - at.0).max(0) / 1000);
    let is_up = engine.upstream.is_link_up();
    let position = engine.journal.position().0;
    line(out, "master_host", host);
    line(out, "master_port", port);
    line(out, "master_link_status", if is_up { "up" } else { "down" });
    let heard = link.heard.filter(|_| is_up);
    line(out, "master_last_io_seconds_ago", seconds_since(heard));
    line(out, "master_sync_in_progress", u8::from(link.transfer.is_some()));
    let held = if engine::follow::is_held_by_clients(engine) { link.held_bytes } else { 0 };
    line(out, "slave_read_repl_offset", position + held);
    line(out, "slave_repl_offset", position);
    line(out, "replicas_repl_buffer_size", link.kept_bytes);
    line(out, "replicas_repl_buffer_peak", link.kept_peak);
    if let Some(transfer) = link.transfer {
        let total = transfer.total_bytes.unwrap_or(0);
        let read = transfer.read_bytes;
        let percent = if total == 0 { 0.0 } else { read as f64 / total as f64 * 100.0 };
        line(out, "master_sync_total_bytes", total);
        line(out, "master_sync_read_bytes", read);
        line(out, "master_sync_left_bytes", total as i64 - read as i64);
        line(out, "master_sync_perc", format!("{percent:.2}"));
        line(out, "master_sync_last_io_seconds_ago", seconds_since(Some(transfer.at)));
    }
    if !is_up {
        line(out, "master_link_down_since_seconds", seconds_since(link.down_since));
    }
    let config = &engine.config;
    line(out, "slave_priority", config.replica_priority());
    line(out, "slave_read_only", u8::from(config.replica_read_only()));
    line(out, "replica_announced", u8::from(config.replica_announced()));
}

/// The replicas, one a line.
fn replicas(cx: &Cx<'_>, out: &mut String) {
    let primary = cx.engine.replicas.primary();
    let config = &cx.engine.config;
    line(out, "connected_slaves", primary.replicas().count());
    if config.min_replicas_to_write() > 0 && config.min_replicas_max_lag() > 0 {
        line(out, "min_slaves_good_slaves", cx.engine.replicas.good());
    }
    for (number, link) in primary.replicas().enumerate() {
        let (ip, port, state) = (in_pairs(link.shown_ip()), link.facts.port, link.state());
        let (offset, lag) = (link.acknowledged().0, link.lag_s(cx.now()));
        let kind = link.connection_type();
        let text =
            format!("ip={ip},port={port},state={state},offset={offset},lag={lag},type={kind}");
        line(out, &format!("slave{number}"), text);
    }
    line(out, "replicas_waiting_psync", primary.waiting_for_main());
}

fn cpu(cx: &Cx<'_>, out: &mut String) {
    for (name, value) in facts(cx, "cpu") {
        line(out, &name, value);
    }
}

fn errorstats(cx: &Cx<'_>, out: &mut String) {
    let errors = lock(&cx.engine.errors);
    for (code, count) in errors.iter() {
        line(out, &format!("errorstat_{code}"), format!("count={count}"));
    }
}

fn keyspace(cx: &Cx<'_>, out: &mut String) {
    for DbIndex(db) in cx.engine.keyspace.used_databases() {
        let figures = cx.db.figures(DbIndex(db));
        let (keys, expires) = (figures.keys, figures.expiring);
        if keys > 0 {
            let (average, timed) = (figures.average_ttl_ms(), figures.with_field_times);
            line(
                out,
                &format!("db{db}"),
                format!(
                    "keys={keys},expires={expires},avg_ttl={average},\
                     keys_with_volatile_items={timed}"
                ),
            );
        }
    }
}

fn commandstats(cx: &Cx<'_>, out: &mut String) {
    for row in cx.engine.table.all() {
        let sum = |counter: fn(&engine::stats::CommandStats) -> u64| -> u64 {
            cx.engine.thread_stats.iter().map(|s| counter(&s.by_command[row.index])).sum()
        };
        let calls = sum(|s| s.calls.get());
        let (rejected, failed) = (sum(|s| s.rejected.get()), sum(|s| s.failed.get()));
        if calls + rejected + failed == 0 {
            continue;
        }
        let usec = sum(|s| s.nanoseconds.get()) as f64 / 1000.0;
        let per_call = if calls == 0 { 0.0 } else { usec / calls as f64 };
        let figures = format!(
            "calls={calls},usec={usec:.0},usec_per_call={per_call:.2},rejected_calls={rejected},\
             failed_calls={failed}"
        );
        line(out, &format!("cmdstat_{}", row.full_name), figures);
    }
}

fn latencystats(cx: &Cx<'_>, out: &mut String) {
    if !cx.engine.config.latency_tracking() {
        return;
    }
    let percentiles = cx.engine.config.latency_tracking_info_percentiles();
    for row in cx.engine.table.all() {
        let Some(durations) = Durations::of(&cx.engine.thread_stats, row.index) else { continue };
        let figures: Vec<String> = percentiles
            .iter()
            .map(|&percentile| {
                let bound_us = durations.percentile(percentile) as f64 / 1000.0;
                format!("p{percentile}={bound_us:.3}")
            })
            .collect();
        line(out, &format!("latency_percentiles_usec_{}", row.full_name), figures.join(","));
    }
}

/// Sizes of requests and replies by command.
fn sizestats(cx: &Cx<'_>, out: &mut String) {
    if !cx.engine.config.size_tracking() {
        return;
    }
    for row in cx.engine.table.all() {
        let Some(sizes) = Sizes::of(&cx.engine.thread_stats, row.index) else { continue };
        for (name, spread) in [("request", sizes.requests), ("reply", sizes.replies)] {
            let name = format!("{name}_bytes_{}", row.full_name);
            histogram(out, &name, ("bytes", spread.sum), &spread.counts);
        }
    }
}

/// Durations of what is no command.
fn timings(cx: &Cx<'_>, out: &mut String) {
    let tier = &cx.engine.tier;
    let of_tier = tier.get().map(|tier| (tier.figures().read_us, tier.read_latencies()));
    if let Some((us, counts)) = of_tier {
        histogram(out, "timing_tier_read", ("usec", us), &counts);
    }
    for (name, timing) in cx.engine.timings.all() {
        let Spread { sum, counts } = timing.spread();
        histogram(out, &format!("timing_{name}"), ("usec", sum), &counts);
    }
}

/// Writes how many values there were, their sum with its name, and how many were less than a power
/// of two. Powers that add nothing are left out, and a histogram without values is.
fn histogram(out: &mut String, name: &str, (of_sum, sum): (&str, u64), counts: &[u64]) {
    let calls: u64 = counts.iter().sum();
    if calls == 0 {
        return;
    }
    let mut figures = format!("calls={calls},{of_sum}={sum}");
    let mut below = 0;
    for (power, count) in counts.iter().enumerate().filter(|(_, count)| **count > 0) {
        below += count;
        // Writing to a string cannot fail.
        let _ = write!(figures, ",lt{}={below}", 2_u64 << power);
    }
    line(out, name, figures);
}

/// What the server is to clients.
pub(crate) fn mode(cx: &Cx<'_>) -> &'static str {
    if cx.view() == View::Node { "cluster" } else { "standalone" }
}

//! The series that redis_exporter makes of what a server answers: names, labels and values are the
//! exporter's, also where they follow no rule. What it asks for is [`Answers`].

use crate::go_number::shortest;
use crate::info::{Field, Fields, number, numbers, part};
use crate::rows::{self, Type};
use crate::text::{Exposition, Kind, Label};
use std::collections::BTreeMap;

/// The durations of a command's calls.
#[derive(Clone, Debug, Default)]
pub struct Durations {
    /// The command, with its subcommand.
    pub command: String,
    /// How many calls there were.
    pub calls: u64,
    /// Microseconds, and how many calls took at most so many; in order.
    pub buckets: Vec<(u64, u64)>,
}

/// A kind of event that took long.
#[derive(Clone, Debug, Default)]
pub struct Spike {
    /// The kind of event.
    pub event: String,
    /// When it was, in seconds since 1970.
    pub at: i64,
    /// How long it took.
    pub milliseconds: i64,
}

/// What a server has answered. What it refused is empty.
#[derive(Clone, Debug, Default)]
pub struct Answers {
    /// INFO.
    pub info: String,
    /// CLUSTER INFO, of a part of a cluster.
    pub cluster: String,
    /// CONFIG GET.
    pub config: Vec<(String, String)>,
    /// LATENCY LATEST.
    pub spikes: Vec<Spike>,
    /// LATENCY HISTOGRAM.
    pub durations: Vec<Durations>,
    /// SLOWLOG LEN.
    pub slow_length: Option<i64>,
    /// SLOWLOG GET: number and microseconds of the latest entry; zeroes if there is none.
    pub slow_last: Option<(i64, i64)>,
    /// COMMANDLOG LEN: the log's name in a series, and its length.
    pub logs: Vec<(&'static str, i64)>,
    /// Seconds since 1970.
    pub now: f64,
}

/// Writes the series of a server that has answered.
pub fn write(out: &mut Exposition, answers: &Answers) {
    let fields = Fields::parse(&answers.info);
    out.single("redis_up", Kind::Gauge, "Whether the server answers.", 1.0);
    single_fields(out, &fields);
    single_fields(out, &Fields::parse(&answers.cluster));
    facts(out, &fields, answers.now);
    instance(out, &fields);
    replication(out, &fields);
    databases(out, &fields, answers);
    errors(out, &fields);
    let totals = totals(&fields);
    commands(out, &totals);
    percentiles(out, &fields, &totals);
    durations(out, &totals, &answers.durations);
    configuration(out, &answers.config, &fields);
    logs(out, answers);
}

/// Writes what there is of a server that does not answer.
pub fn write_down(out: &mut Exposition) {
    out.single("redis_up", Kind::Gauge, "Whether the server answers.", 0.0);
}

/// Sections of which each field is several series, or one with labels.
const OF_MANY: [&str; 5] = ["Commandstats", "Latencystats", "Sizestats", "Errorstats", "Keyspace"];

fn single_fields(out: &mut Exposition, fields: &Fields<'_>) {
    for field in fields.all().filter(|field| !OF_MANY.contains(&field.section)) {
        let Some(value) = field.number() else { continue };
        match rows::find(field.name) {
            Some(row) if !row.series.is_empty() => {
                let kind = if row.kind == Type::Counter { Kind::Counter } else { Kind::Gauge };
                let value = if field.name == "latest_fork_usec" { value / 1e6 } else { value };
                out.single(&format!("redis_{}", row.series), kind, row.help, value);
            }
            // The exporter takes all of these.
            None if field.name.starts_with("cluster_") => {
                out.single(
                    &format!("redis_{}", field.name),
                    Kind::Gauge,
                    "Of CLUSTER INFO.",
                    value,
                );
            }
            _ => (),
        }
    }
}

/// What the exporter computes.
fn facts(out: &mut Exposition, fields: &Fields<'_>, now: f64) {
    if let Ok(uptime) = fields.text("uptime_in_seconds").parse::<f64>() {
        let help = "When the server started, in seconds since 1970.";
        out.single("redis_start_time_seconds", Kind::Gauge, help, now.floor() - uptime);
    }
    // The mixin makes it by a rule, and dashboards ask for it.
    if let Ok(ratio) = fields.text("mem_fragmentation_ratio").parse() {
        let help = "used_memory_rss for each used byte.";
        out.single("redis_memory_fragmentation_ratio", Kind::Gauge, help, ratio);
    }
}

fn instance(out: &mut Exposition, fields: &Fields<'_>) {
    const NAMES: [&str; 10] = [
        "role",
        "redis_version",
        "redis_build_id",
        "redis_mode",
        "os",
        "maxmemory_policy",
        "tcp_port",
        "run_id",
        "process_id",
        "master_replid",
    ];
    let mut labels: Vec<Label<'_>> = NAMES.map(|name| (name, fields.text(name))).to_vec();
    for name in ["valkey_version", "valkey_release_stage"] {
        labels.extend(fields.find(name).map(|value| (name, value)));
    }
    out.family("redis_instance_info", Kind::Gauge, "What the server is.").sample(&labels, 1.0);
    if fields.text("role") == "slave" {
        let labels = [
            ("master_host", fields.text("master_host")),
            ("master_port", fields.text("master_port")),
            ("read_only", fields.text("slave_read_only")),
        ];
        out.family("redis_slave_info", Kind::Gauge, "What the replica is.").sample(&labels, 1.0);
    }
}

fn replication(out: &mut Exposition, fields: &Fields<'_>) {
    let of_primary =
        [("master_host", fields.text("master_host")), ("master_port", fields.text("master_port"))];
    if let Some(status) = fields.find("master_link_status") {
        let is_up = f64::from(u8::from(status == "up"));
        let help = "Whether the primary is connected.";
        out.family("redis_master_link_up", Kind::Gauge, help).sample(&of_primary, is_up);
    }
    for name in ["master_last_io_seconds_ago", "master_sync_in_progress", "slave_repl_offset"] {
        let Some(value) = fields.find(name) else { continue };
        let help = rows::find(name).map_or("", |row| row.help);
        let value = value.parse().unwrap_or(0.0);
        out.family(&format!("redis_{name}"), Kind::Gauge, help).sample(&of_primary, value);
    }
    let is_replica = |field: &&Field<'_>| {
        field.name.strip_prefix("slave").is_some_and(|rest| rest.parse::<u32>().is_ok())
    };
    for (name, key, help) in [
        ("redis_connected_slave_offset_bytes", "offset", "The replica's position."),
        ("redis_connected_slave_lag_seconds", "lag", "Seconds since the replica was heard."),
    ] {
        let mut family = out.family(name, Kind::Gauge, help);
        for field in fields.of("Replication").filter(is_replica) {
            let of = |name| part(field.value, name).unwrap_or_default();
            let labels =
                [("slave_ip", of("ip")), ("slave_port", of("port")), ("slave_state", of("state"))];
            if let Some(value) =
                number(field.value, key).filter(|value| key != "lag" || *value >= 0.0)
            {
                family.sample(&labels, value);
            }
        }
    }
}

/// A database's line: keys, keys that expire, and two that are not everywhere. The exporter goes by
/// their places.
struct Database<'a> {
    name: &'a str,
    numbers: Vec<f64>,
}

fn databases(out: &mut Exposition, fields: &Fields<'_>, answers: &Answers) {
    let read = |field: &Field<'_>| -> Option<Vec<f64>> {
        field.value.split(',').map(|part| part.split_once('=')?.1.parse().ok()).collect()
    };
    let used: Vec<Database<'_>> = fields
        .of("Keyspace")
        .filter_map(|field| Some(Database { name: field.name, numbers: read(field)? }))
        .collect();
    let count = answers.config.iter().find(|(name, _)| name == "databases");
    let count: u32 = count.and_then(|(_, count)| count.parse().ok()).unwrap_or(16);
    let names: Vec<String> = (0..count).map(|number| format!("db{number}")).collect();
    let is_used = |name: &str| used.iter().any(|database| database.name == name);
    for (place, name, help) in [
        (0, "redis_db_keys", "Keys of the database."),
        (1, "redis_db_keys_expiring", "Keys of the database that expire."),
        (2, "redis_db_avg_ttl_seconds", "Seconds that keys have left on average."),
        (3, "redis_db_keys_cached", "The fourth number of the database's line."),
    ] {
        let mut family = out.family(name, Kind::Gauge, help);
        for database in &used {
            if let Some(value) = database.numbers.get(place) {
                let value = if place == 2 { value / 1000.0 } else { *value };
                family.sample(&[("db", database.name)], value);
            }
        }
        if place < 2 {
            for name in names.iter().filter(|name| !is_used(name)) {
                family.sample(&[("db", name)], 0.0);
            }
        }
    }
}

fn errors(out: &mut Exposition, fields: &Fields<'_>) {
    let mut family = out.family("redis_errors_total", Kind::Counter, "Errors by code.");
    for field in fields.of("Errorstats") {
        let code = field.name.strip_prefix("errorstat_");
        if let (Some(code), Some(count)) = (code, number(field.value, "count")) {
            family.sample(&[("err", code)], count);
        }
    }
}

/// Lines of commands: each with its command.
fn of_commands<'a>(
    fields: &'a Fields<'a>,
    section: &'a str,
    prefix: &'a str,
) -> impl Iterator<Item = (&'a str, &'a str)> {
    fields.of(section).filter_map(move |f| Some((f.name.strip_prefix(prefix)?, f.value)))
}

/// What a command's line in INFO says.
#[derive(Default)]
struct Totals<'a> {
    command: &'a str,
    calls: Option<f64>,
    microseconds: Option<f64>,
    rejected: Option<f64>,
    failed: Option<f64>,
}

/// Totals in the order of commands, so that a command and its subcommands, which stand beside each
/// other but for the letters below `|`, are found.
fn totals<'a>(fields: &'a Fields<'a>) -> Vec<Totals<'a>> {
    let read = |(command, line): (&'a str, &'a str)| {
        let mut totals = Totals { command, ..Totals::default() };
        for (name, number) in numbers(line) {
            match name {
                "calls" => totals.calls = Some(number),
                "usec" => totals.microseconds = Some(number),
                "rejected_calls" => totals.rejected = Some(number),
                "failed_calls" => totals.failed = Some(number),
                _ => (),
            }
        }
        totals
    };
    let mut all: Vec<Totals<'a>> =
        of_commands(fields, "Commandstats", "cmdstat_").map(read).collect();
    all.sort_by_key(|totals| totals.command);
    all
}

/// The totals of a command.
fn totals_of<'a, 'b>(totals: &'b [Totals<'a>], command: &str) -> Option<&'b Totals<'a>> {
    let number = totals.binary_search_by_key(&command, |totals| totals.command).ok()?;
    totals.get(number)
}

fn commands(out: &mut Exposition, totals: &[Totals<'_>]) {
    type Read = fn(&Totals<'_>) -> Option<f64>;
    let families: [(Read, &str, &str); 4] = [
        (|totals| totals.calls, "redis_commands_total", "Calls by command."),
        (
            |totals| Some(totals.microseconds? / 1e6),
            "redis_commands_duration_seconds_total",
            "Seconds that calls took.",
        ),
        (
            |totals| totals.rejected,
            "redis_commands_rejected_calls_total",
            "Calls that were refused.",
        ),
        (|totals| totals.failed, "redis_commands_failed_calls_total", "Calls that failed."),
    ];
    for (read, name, help) in families {
        let mut family = out.family(name, Kind::Counter, help);
        for totals in totals {
            if let Some(value) = read(totals) {
                family.sample(&[("cmd", totals.command)], value);
            }
        }
    }
}

fn percentiles(out: &mut Exposition, fields: &Fields<'_>, totals: &[Totals<'_>]) {
    let help = "Percentiles of the durations by command, in microseconds.";
    let mut family = out.family("redis_latency_percentiles_usec", Kind::Summary, help);
    // The same few for all commands.
    let mut quantiles: BTreeMap<&str, String> = BTreeMap::new();
    for (command, line) in of_commands(fields, "Latencystats", "latency_percentiles_usec_") {
        let Some(totals) = totals_of(totals, command) else { continue };
        let (Some(calls), Some(microseconds)) = (totals.calls, totals.microseconds) else {
            continue;
        };
        for (name, value) in numbers(line) {
            let Some(percentile) = name.get(1..).and_then(|number| number.parse().ok()) else {
                continue;
            };
            let quantile = quantiles.entry(name).or_insert_with(|| shortest(percentile));
            family.sample(&[("cmd", command), ("quantile", quantile)], value);
        }
        family.suffixed("_sum", &[("cmd", command)], microseconds);
        family.suffixed("_count", &[("cmd", command)], calls);
    }
}

fn durations(out: &mut Exposition, totals: &[Totals<'_>], all: &[Durations]) {
    let sum_of = |command: &str| -> f64 {
        let own = totals_of(totals, command).and_then(|totals| totals.microseconds).unwrap_or(0.0);
        let prefix = format!("{command}|");
        let from = totals.partition_point(|totals| totals.command < prefix.as_str());
        let below = totals.iter().skip(from).take_while(|t| t.command.starts_with(&prefix));
        own + below.filter_map(|totals| totals.microseconds).sum::<f64>()
    };
    let help = "Durations by command, in microseconds.";
    let mut family = out.family("redis_commands_latencies_usec", Kind::Histogram, help);
    // Powers of two, the same for all commands.
    let mut bounds: BTreeMap<u64, String> = BTreeMap::new();
    for durations in all {
        let command = durations.command.as_str();
        for (bound, count) in &durations.buckets {
            let bound = bounds.entry(*bound).or_insert_with(|| shortest(*bound as f64));
            family.suffixed("_bucket", &[("cmd", command), ("le", bound)], *count as f64);
        }
        family.suffixed("_bucket", &[("cmd", command), ("le", "+Inf")], durations.calls as f64);
        family.suffixed("_sum", &[("cmd", command)], sum_of(command));
        family.suffixed("_count", &[("cmd", command)], durations.calls as f64);
    }
}

/// Options that are series, and series that are options.
const OPTIONS: [(&str, &str); 10] = [
    ("io-threads", "config_io_threads"),
    ("maxclients", "config_maxclients"),
    ("maxmemory", "config_maxmemory"),
    ("repl-backlog-size", "config_repl_backlog_size"),
    ("commandlog-execution-slower-than", "commandlog_execution_slower_than"),
    ("commandlog-slow-execution-max-len", "commandlog_slow_execution_max_len"),
    ("commandlog-request-larger-than", "commandlog_request_larger_than"),
    ("commandlog-large-request-max-len", "commandlog_large_request_max_len"),
    ("commandlog-reply-larger-than", "commandlog_reply_larger_than"),
    ("commandlog-large-reply-max-len", "commandlog_large_reply_max_len"),
];

/// The option of three limits for each class of clients.
const BUFFER_LIMIT: &str = "client-output-buffer-limit";

/// The options that a server is asked for.
pub fn options() -> impl Iterator<Item = &'static str> {
    OPTIONS.iter().map(|(option, _)| *option).chain([BUFFER_LIMIT, "databases"])
}

fn configuration(out: &mut Exposition, config: &[(String, String)], fields: &Fields<'_>) {
    let value_of = |option: &str| config.iter().find(|(name, _)| name == option).map(|(_, v)| &**v);
    for (option, series) in OPTIONS {
        // A user that may not ask for options finds some of them in INFO.
        let value = value_of(option).or_else(|| fields.find(&option.replace('-', "_")));
        if let Some(value) = value.and_then(|value| value.parse().ok()) {
            let help = format!("The option {option}.");
            out.single(&format!("redis_{series}"), Kind::Gauge, &help, value);
        }
    }
    let words: Vec<&str> =
        value_of(BUFFER_LIMIT).map(|limits| limits.split(' ').collect()).unwrap_or_default();
    let name = "redis_config_client_output_buffer_limit_bytes";
    let mut family = out.family(name, Kind::Gauge, "Limits of reply buffers by class.");
    for class in words.chunks_exact(4) {
        for (place, limit) in [(1, "hard"), (2, "soft")] {
            if let Ok(bytes) = class[place].parse() {
                family.sample(&[("class", class[0]), ("limit", limit)], bytes);
            }
        }
    }
    let name = "redis_config_client_output_buffer_limit_overcome_seconds";
    let mut family = out.family(name, Kind::Gauge, "How long the soft limit may be exceeded.");
    for class in words.chunks_exact(4) {
        if let Ok(seconds) = class[3].parse() {
            family.sample(&[("class", class[0]), ("limit", "soft")], seconds);
        }
    }
}

fn logs(out: &mut Exposition, answers: &Answers) {
    if let Some(length) = answers.slow_length {
        let help = "Entries of the slow log.";
        out.single("redis_slowlog_length", Kind::Gauge, help, length as f64);
    }
    if let Some((number, microseconds)) = answers.slow_last {
        let help = "The number of the slow log's latest entry.";
        out.single("redis_slowlog_last_id", Kind::Gauge, help, number as f64);
        let (name, seconds) =
            ("redis_last_slow_execution_duration_seconds", microseconds as f64 / 1e6);
        out.single(name, Kind::Gauge, "How long the slow log's latest entry took.", seconds);
    }
    for (log, length) in &answers.logs {
        let name = format!("redis_commandlog_{log}_length");
        out.single(&name, Kind::Gauge, "Entries of the log.", *length as f64);
    }
    let mut family =
        out.family("redis_latency_spike_last", Kind::Gauge, "When the event last took long.");
    for spike in &answers.spikes {
        family.sample(&[("event_name", &spike.event)], spike.at as f64);
    }
    let name = "redis_latency_spike_duration_seconds";
    let mut family = out.family(name, Kind::Gauge, "How long the event took.");
    for spike in &answers.spikes {
        family.sample(&[("event_name", &spike.event)], spike.milliseconds as f64 / 1e3);
    }
}

//! The series beyond redis_exporter's, under `dunlin_`: every number of INFO that the exporter does
//! not read, durations in seconds with the same bounds everywhere, and the load of each thread.

use crate::exporter::Answers;
use crate::info::{Field, Fields};
use crate::rows::{self, Row, Type};
use crate::text::{Exposition, Family, Kind, Label};
use std::collections::BTreeMap;

/// Bounds of durations: microseconds, which LATENCY HISTOGRAM has among its own, and the label.
/// Each is a line for each command, so they are few.
const BOUNDS: [(u64, &str); 6] = [
    (16, "0.000016"),
    (132, "0.000132"),
    (1056, "0.001056"),
    (8454, "0.008454"),
    (67_633, "0.067633"),
    (541_065, "0.541065"),
];

/// What is timed apart from commands: its name in INFO, the series, and its help.
const TIMINGS: [(&str, &str, &str); 6] = [
    ("tier_read", "dunlin_tier_read_duration_seconds", "Durations of reads of the flash tier."),
    ("journal_write", "dunlin_journal_write_duration_seconds", "Durations of writes to the log."),
    ("journal_fsync", "dunlin_journal_fsync_duration_seconds", "Durations of fsyncs of the log."),
    (
        "commit_fsync",
        "dunlin_commit_fsync_wait_seconds",
        "How long replies waited for this server's disk; samples.",
    ),
    (
        "commit_quorum",
        "dunlin_commit_quorum_wait_seconds",
        "How long replies waited for a quorum; samples.",
    ),
    (
        "replica_ack",
        "dunlin_replica_acknowledgement_seconds",
        "From the question for acknowledgements to the first replica's answer; samples.",
    ),
];

/// Bounds of [`TIMINGS`]: powers of two of microseconds, as INFO has, and the label.
const POWERS: [(u64, &str); 9] = [
    (16, "0.000016"),
    (64, "0.000064"),
    (256, "0.000256"),
    (1024, "0.001024"),
    (4096, "0.004096"),
    (16_384, "0.016384"),
    (65_536, "0.065536"),
    (262_144, "0.262144"),
    (1_048_576, "1.048576"),
];

/// Bounds of sizes in bytes, and the label. Each is a line for each command, so they are few.
const SIZES: [(u64, &str); 6] = [
    (64, "64"),
    (1024, "1024"),
    (16_384, "16384"),
    (262_144, "262144"),
    (4_194_304, "4194304"),
    (67_108_864, "67108864"),
];

/// Sizes by command: the beginning of their names in INFO, the series, and its help.
const SIZES_OF: [(&str, &str, &str); 2] = [
    ("request_bytes_", "dunlin_command_request_size_bytes", "Sizes of requests by command."),
    ("reply_bytes_", "dunlin_command_reply_size_bytes", "Sizes of replies by command."),
];

/// Writes them. `threads` are names with seconds of processor time; what has the same name is added
/// up.
pub fn write(out: &mut Exposition, answers: &Answers, threads: &[(String, f64)]) {
    let fields = Fields::parse(&answers.info);
    let Some(version) = fields.find("dunlin_version") else { return };
    let help = "The server's version.";
    out.family("dunlin_build_info", Kind::Gauge, help).sample(&[("version", version)], 1.0);
    for field in fields.all() {
        own_field(out, field);
    }
    durations(out, answers, &fields);
    timings(out, &fields);
    sizes(out, &fields);
    let mut by_name: BTreeMap<&str, f64> = BTreeMap::new();
    for (name, seconds) in threads {
        *by_name.entry(name).or_default() += seconds;
    }
    let help = "Seconds of processor time by thread.";
    let mut family = out.family("dunlin_thread_cpu_seconds_total", Kind::Counter, help);
    for (name, seconds) in by_name {
        family.sample(&[("thread", name)], seconds);
    }
}

/// Returns the name of the series of a field's number; none for words.
pub(crate) fn series(row: &Row) -> Option<String> {
    let base = row.name.strip_prefix("total_").unwrap_or(row.name);
    match row.kind {
        Type::Text => None,
        _ if !row.series.is_empty() => Some(format!("redis_{}", row.series)),
        Type::Counter => Some(format!("dunlin_{base}_total")),
        Type::Gauge => Some(format!("dunlin_{}", row.name)),
    }
}

fn own_field(out: &mut Exposition, field: &Field<'_>) {
    // The exporter has written those that it knows.
    let row = rows::find(field.name).filter(|row| row.series.is_empty());
    let Some((row, name)) = row.and_then(|row| Some((row, series(row)?))) else { return };
    let Some(value) = field.number() else { return };
    let kind = if row.kind == Type::Counter { Kind::Counter } else { Kind::Gauge };
    out.single(&name, kind, row.help, value);
}

fn timings(out: &mut Exposition, fields: &Fields<'_>) {
    for (name, series, help) in TIMINGS {
        let Some(value) = fields.find(&format!("timing_{name}")) else { continue };
        let mut family = out.family(series, Kind::Histogram, help);
        histogram(&mut family, &[], value, &POWERS, ("usec", 1e6));
    }
}

fn sizes(out: &mut Exposition, fields: &Fields<'_>) {
    for (prefix, series, help) in SIZES_OF {
        let mut family = out.family(series, Kind::Histogram, help);
        for field in fields.of("Sizestats") {
            let Some(command) = field.name.strip_prefix(prefix) else { continue };
            histogram(&mut family, &[("cmd", command)], field.value, &SIZES, ("bytes", 1.0));
        }
    }
}

/// Writes a histogram of powers of two that INFO has: its bounds among the powers, and under which
/// name the sum of its values is, which is divided by `unit`.
fn histogram(
    family: &mut Family<'_>,
    labels: &[Label<'_>],
    value: &str,
    bounds: &[(u64, &str)],
    (of_sum, unit): (&str, f64),
) {
    let figures: BTreeMap<&str, f64> = crate::info::numbers(value).collect();
    let steps = figures.iter().filter_map(|(bound, calls)| {
        Some((bound.strip_prefix("lt")?.parse::<u64>().ok()?, *calls))
    });
    let steps: Vec<(u64, f64)> = steps.collect();
    let figure = |name: &str| figures.get(name).copied().unwrap_or(0.0);
    let mut bucket = |label: &str, calls: f64| {
        let labels: Vec<Label<'_>> = labels.iter().copied().chain([("le", label)]).collect();
        family.suffixed("_bucket", &labels, calls);
    };
    for (bound, label) in bounds {
        let below = steps.iter().filter(|(most, _)| most <= bound);
        bucket(label, below.map(|(_, calls)| *calls).fold(0.0, f64::max));
    }
    bucket("+Inf", figure("calls"));
    family.suffixed("_sum", labels, figure(of_sum) / unit);
    family.suffixed("_count", labels, figure("calls"));
}

fn durations(out: &mut Exposition, answers: &Answers, fields: &Fields<'_>) {
    let seconds: BTreeMap<&str, f64> = fields
        .of("Commandstats")
        .filter_map(|field| {
            let command = field.name.strip_prefix("cmdstat_")?;
            Some((command, crate::info::number(field.value, "usec")? / 1e6))
        })
        .collect();
    let help = "Durations by command.";
    let mut family = out.family("dunlin_command_duration_seconds", Kind::Histogram, help);
    for durations in &answers.durations {
        let command = durations.command.as_str();
        // A container command without calls of its own is the sum of others.
        let Some(sum) = seconds.get(command) else { continue };
        let mut buckets = durations.buckets.iter().peekable();
        let mut count = 0;
        for (bound, label) in BOUNDS {
            while let Some((_, more)) = buckets.next_if(|(most, _)| *most <= bound) {
                count = *more;
            }
            family.suffixed("_bucket", &[("cmd", command), ("le", label)], count as f64);
        }
        let calls = durations.calls as f64;
        family.suffixed("_bucket", &[("cmd", command), ("le", "+Inf")], calls);
        family.suffixed("_sum", &[("cmd", command)], *sum);
        family.suffixed("_count", &[("cmd", command)], calls);
    }
}

//! What a sample has: a row for each column, with how it is read.

use super::latency::{Group, Histograms};
use crate::info::Info;

/// What becomes of several samples in a coarser ring.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fold {
    /// Their mean.
    Mean,
    /// The largest.
    Max,
}

/// Two samples of INFO and of the latency histograms, and the seconds between them.
pub struct Rates<'a> {
    pub now: &'a Info,
    pub before: &'a Info,
    pub histograms: &'a Histograms,
    pub seconds: f64,
}

impl Rates<'_> {
    /// The growth of a counter in a second; 0 where it began anew.
    pub fn rate(&self, name: &str) -> f64 {
        ((self.now.number(name) - self.before.number(name)) / self.seconds).max(0.0)
    }
}

type Read = fn(&Rates<'_>) -> f64;

/// One value of a sample.
pub struct Column {
    pub name: &'static str,
    /// What it is in, for people: `1/s`, `bytes`, `us` …
    pub unit: &'static str,
    pub fold: Fold,
    pub read: Read,
}

const fn gauge(name: &'static str, unit: &'static str, read: Read) -> Column {
    Column { name, unit, fold: Fold::Mean, read }
}

const fn peak(name: &'static str, unit: &'static str, read: Read) -> Column {
    Column { name, unit, fold: Fold::Max, read }
}

/// All columns, in the order of a sample's values.
pub static COLUMNS: [Column; 39] = [
    gauge("commands", "1/s", |r| r.rate("total_commands_processed")),
    gauge("hits", "1/s", |r| r.rate("keyspace_hits")),
    gauge("misses", "1/s", |r| r.rate("keyspace_misses")),
    gauge("net_in", "bytes/s", |r| r.rate("total_net_input_bytes")),
    gauge("net_out", "bytes/s", |r| r.rate("total_net_output_bytes")),
    gauge("repl_in", "bytes/s", |r| r.rate("total_net_repl_input_bytes")),
    gauge("repl_out", "bytes/s", |r| r.rate("total_net_repl_output_bytes")),
    gauge("connections", "1/s", |r| r.rate("total_connections_received")),
    peak("rejected", "1/s", |r| r.rate("rejected_connections")),
    gauge("expired", "1/s", |r| r.rate("expired_keys")),
    peak("evicted", "1/s", |r| r.rate("evicted_keys")),
    gauge("errors", "1/s", |r| r.rate("total_error_replies")),
    gauge("clients", "", |r| r.now.number("connected_clients")),
    gauge("blocked", "", |r| r.now.number("blocked_clients")),
    gauge("memory", "bytes", |r| r.now.number("used_memory")),
    gauge("memory_rss", "bytes", |r| r.now.number("used_memory_rss")),
    gauge("memory_limit", "bytes", |r| r.now.number("maxmemory")),
    gauge("memory_dataset", "bytes", |r| r.now.number("used_memory_dataset")),
    gauge("keys", "", |r| r.now.sum_of_databases("keys")),
    gauge("expiring", "", |r| r.now.sum_of_databases("expires")),
    gauge("cpu_user", "cores", |r| r.rate("used_cpu_user")),
    gauge("cpu_sys", "cores", |r| r.rate("used_cpu_sys")),
    gauge("replicas", "", |r| r.now.number("connected_slaves")),
    peak("replica_lag", "s", replica_lag),
    gauge("replica_behind", "bytes", replica_behind),
    peak("delayed_syncs", "1/s", |r| r.rate("aof_delayed_fsync")),
    gauge("tier_bytes", "bytes", |r| r.now.number("tier_value_bytes")),
    gauge("tier_reads", "1/s", |r| r.rate("tier_reads")),
    gauge("tier_demotions", "1/s", |r| r.rate("tier_demotions")),
    peak("read_p50", "us", |r| r.histograms.percentile(Group::Read, 0.5)),
    peak("read_p99", "us", |r| r.histograms.percentile(Group::Read, 0.99)),
    peak("read_p999", "us", |r| r.histograms.percentile(Group::Read, 0.999)),
    peak("write_p50", "us", |r| r.histograms.percentile(Group::Write, 0.5)),
    peak("write_p99", "us", |r| r.histograms.percentile(Group::Write, 0.99)),
    peak("write_p999", "us", |r| r.histograms.percentile(Group::Write, 0.999)),
    peak("other_p50", "us", |r| r.histograms.percentile(Group::Other, 0.5)),
    peak("other_p99", "us", |r| r.histograms.percentile(Group::Other, 0.99)),
    peak("other_p999", "us", |r| r.histograms.percentile(Group::Other, 0.999)),
    peak("shed", "1/s", |r| r.rate("shed_requests")),
];

fn replica_lag(rates: &Rates<'_>) -> f64 {
    if rates.now.text("role") == "slave" {
        return rates.now.number("master_last_io_seconds_ago").max(0.0);
    }
    let replicas = rates.now.lines("slave").filter(|(_, line)| !line.text("state").is_empty());
    replicas.map(|(_, line)| line.number("lag")).fold(0.0, f64::max)
}

fn replica_behind(rates: &Rates<'_>) -> f64 {
    let end = rates.now.number("master_repl_offset");
    let replicas = rates.now.lines("slave").filter(|(_, line)| line.text("state") == "online");
    replicas.map(|(_, line)| (end - line.number("offset")).max(0.0)).fold(0.0, f64::max)
}

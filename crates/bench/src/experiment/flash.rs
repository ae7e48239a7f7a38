//! More data than RAM: Dunlin with all of it in RAM, with a flash tier under 30 % of it, and the
//! same with a replica.

use super::machines::{Machines, Used};
use super::servers::{Lab, Server, target};
use super::{Bench, PATIENCE};
use crate::generator::os;
use crate::measure::Measured;
use crate::report::document::{Latency, MemoryLine};
use serde_json::json;
use std::time::{Duration, Instant};

const VALUE_BYTES: u64 = 500;
const CLIENTS: u64 = 20;
const PIPELINE: u64 = 11;
const MIB: u64 = 1 << 20;

/// A server of the experiment; the replica lives as long as its primary.
struct Contender {
    name: String,
    server: Server,
    _replica: Option<Server>,
    /// What its memory is limited to, in bytes; 0: not at all.
    limit: u64,
    remark: &'static str,
}

/// The steps and what was published of each, in requests a second.
type Steps = [(&'static str, String, &'static str); 3];

pub(super) fn run(bench: &mut Bench<'_>) -> Result<(), String> {
    let keys = super::runs::scaled(75e6, bench.scale, 10_000);
    let steps = steps(bench, keys);
    if bench.is_cluster {
        return on_machines(bench, keys, &steps);
    }
    let limit = keys * VALUE_BYTES * 3 / 10;
    let mut base = None;
    // One after the other: each has the machine and the disk to itself.
    for start in [in_ram, with_tier, with_replica, reference] {
        let Some(contender) = start(&mut bench.lab, keys, limit)? else { continue };
        let rate = measure(bench, &contender, &steps)?;
        let of_base = base.filter(|_| contender.limit > 0).map(|base| rate * 100.0 / base);
        if let Some(percent) = of_base {
            let what = format!("mixed: {} beside all in RAM", contender.name);
            bench.row(&what, "%", None, &[percent], "");
        }
        base = base.or(Some(rate));
    }
    Ok(())
}

fn steps(bench: &mut Bench<'_>, keys: u64) -> Steps {
    let seconds = (600.0 * bench.scale).max(2.0);
    let (middle, half) = (keys / 2, (keys as f64 * 0.135) as u64);
    let deviation = 5_125_000.0 * bench.scale;
    let outstanding = CLIENTS * PIPELINE;
    let at_client_ms = outstanding as f64 / 130.0;
    bench.sizes = format!(
        "{keys} values of {VALUE_BYTES} bytes, the middle {} primed, each for at least 2 s, then {seconds:.0} s of 1:1, pipeline {PIPELINE}, \
         {CLIENTS} clients, gaussian with standard deviation {deviation:.0}. {outstanding} requests are outstanding all the time: at the published \
         130 000 requests/s each takes {at_client_ms:.1} ms as the client sees it, so \"below 1 ms\" is the server's own figure. Both are given",
        2 * half
    );
    let work =
        format!("-d {VALUE_BYTES} --random-data -c {CLIENTS} -P {PIPELINE} --key-prefix key:");
    let last = keys - 1;
    let fill = format!("--ratio 1:0 --key-pattern P:P --key-maximum {last} -n {keys} {work}");
    let prime = format!(
        "--ratio 0:1 --key-pattern P:P --key-minimum {} --key-maximum {} -n {} {work}",
        middle - half,
        middle + half,
        2 * half
    );
    let mixed = format!(
        "--ratio 1:1 --key-pattern G:G --key-stddev {deviation} --key-maximum {last} --duration {seconds} {work}"
    );
    [("fill", fill, "110 000"), ("prime", prime, "25 000"), ("mixed", mixed, "130 000")]
}

fn in_ram(lab: &mut Lab, _: u64, _: u64) -> Result<Option<Contender>, String> {
    let (name, remark) = ("Dunlin, all in RAM".to_owned(), "");
    let server = lab.dunlin(&[], None)?;
    Ok(Some(Contender { name, server, _replica: None, limit: 0, remark }))
}

fn tiered(lab: &mut Lab, keys: u64, limit: u64, more: &[&str]) -> Result<Server, String> {
    let segment_mib = (keys * VALUE_BYTES / MIB / 64).clamp(1, 64);
    let (segment, memory) = (format!("{segment_mib}mb"), limit.to_string());
    let tier = ["--maxmemory", &memory, "--tier-dir", "tier", "--tier-segment-size", &segment];
    lab.dunlin(&[&tier[..], more].concat(), None)
}

const LIMITED: &str = "RAM limited to 30 % of the data";

fn with_tier(lab: &mut Lab, keys: u64, limit: u64) -> Result<Option<Contender>, String> {
    let server = tiered(lab, keys, limit, &[])?;
    let name = "Dunlin, tier".to_owned();
    Ok(Some(Contender { name, server, _replica: None, limit, remark: LIMITED }))
}

fn with_replica(lab: &mut Lab, keys: u64, limit: u64) -> Result<Option<Contender>, String> {
    let server = tiered(lab, keys, limit, &["--repl-diskless-sync-delay", "0"])?;
    let port = server.port.to_string();
    let replica = tiered(lab, keys, limit, &["--replicaof", "127.0.0.1", &port])?;
    await_link(replica.port)?;
    let name = "Dunlin, tier, replica".to_owned();
    Ok(Some(Contender { name, server, _replica: Some(replica), limit, remark: LIMITED }))
}

fn reference(lab: &mut Lab, _: u64, limit: u64) -> Result<Option<Contender>, String> {
    let Some(server) = lab.reference(&[], None)? else { return Ok(None) };
    let name = lab.reference_name().unwrap_or("reference").to_owned();
    let is_limited = limit_memory(server.port, limit)?;
    let (limit, remark) =
        if is_limited { (limit, LIMITED) } else { (0, "no flash tier: all in RAM") };
    Ok(Some(Contender { name, server, _replica: None, limit, remark }))
}

/// Limits a server's memory if it has a tier below it; says whether it has.
fn limit_memory(port: u16, bytes: u64) -> Result<bool, String> {
    let refuse = |error: std::io::Error| format!("port {port}: {error}");
    let mut client = target(port).connect().map_err(refuse)?;
    let found = client.ask(&["CONFIG", "GET", "*flash*", "*tier*"]).map_err(refuse)?;
    let has_tier = !found.pairs().is_empty();
    if has_tier {
        client.ask(&["CONFIG", "SET", "maxmemory", &bytes.to_string()]).map_err(refuse)?;
    }
    Ok(has_tier)
}

fn await_link(port: u16) -> Result<(), String> {
    let refuse = |error: std::io::Error| format!("port {port}: {error}");
    let mut client = target(port).connect().map_err(refuse)?;
    let deadline = Instant::now() + PATIENCE;
    while !client.order(&["INFO", "replication"]).map_err(refuse)?.text().contains("link_status:up")
    {
        if os::interrupted() {
            return Err("interrupted".into());
        }
        if Instant::now() > deadline {
            return Err("the replica does not connect".into());
        }
        std::thread::sleep(Duration::from_millis(20));
    }
    Ok(())
}

/// The whole set-up: three machines, a database of two shards with a replica each that is made by
/// the API, and the three steps through its one address.
fn on_machines(bench: &mut Bench<'_>, keys: u64, steps: &Steps) -> Result<(), String> {
    // Of all copies together, as in the form: keys and values, a third more, and twice that.
    let whole = (keys * VALUE_BYTES * 4 / 3).max(256 * MIB) * 2;
    let machines = Machines::start(&mut bench.lab, whole)?;
    // Behind those of the machines: copies get this one and the next, on one host.
    let port = bench.lab.free_port();
    let seconds = machines.create(&json!({
        "name": "flash",
        "port": port,
        "memory_size": whole,
        "bigstore_ram_size": whole * 3 / 10,
        "replication": true,
        "shards_count": 2,
        "eviction_policy": "volatile-lru",
        "data_persistence": "disabled",
        "oss_cluster": false,
    }))?;
    let copies = machines.copies("flash")?;
    let remark = format!("{} copies on {} machines", copies.len(), machines.all.len());
    bench.row("the database is made", "s", None, &[seconds], &remark);
    for (step, line, published) in steps {
        let before = (machines.used(&copies)?, spent_by(&copies)?);
        let measured = bench.measure_long(port, line)?;
        let Some(measured) = measured.first() else { continue };
        let after = (machines.used(&copies)?, spent_by(&copies)?);
        let latency = Latency::new(&measured.total().latencies);
        let remark = format!("p99 {:.3} ms, p99.9 {:.3} ms", latency.p99, latency.p999);
        bench.row(step, "requests/s", Some(published), &[measured.rate()], &remark);
        let goal = (*step == "mixed").then_some("< 1");
        bench.row(&format!("{step}, at the client"), "ms, mean", goal, &[latency.mean], "");
        let inside: Vec<f64> = before.1.mean_ms_until(&after.1).into_iter().collect();
        let what = format!("{step}, in the servers");
        bench.row(&what, "ms, mean", goal, &inside, "in the command and waiting for flash");
        for ((machine, before), after) in machines.all.iter().zip(&before.0).zip(&after.0) {
            of_machine(
                bench,
                &format!("{step}, machine {}", machine.name),
                (before, after),
                measured,
            );
        }
    }
    Ok(())
}

/// Rows of what a machine did in a step.
fn of_machine(bench: &mut Bench<'_>, what: &str, (before, after): (&Used, &Used), of: &Measured) {
    let cpu = (after.sample.cpu_seconds - before.sample.cpu_seconds) * 100.0 / of.seconds;
    let network = |later: f64, earlier: f64| (later - earlier) / of.seconds / MIB as f64;
    let (got, sent) = (network(after.received, before.received), network(after.sent, before.sent));
    bench.row(&format!("{what}, CPU"), "% of a core", None, &[cpu], "node, copies, etcd");
    let memory = after.sample.rss_bytes as f64 / MIB as f64;
    bench.row(&format!("{what}, memory"), "MiB", None, &[memory], "");
    let remark = format!("{got:.1} received, {sent:.1} sent");
    bench.row(&format!("{what}, network"), "MiB/s", None, &[got + sent], &remark);
}

/// What all copies have spent.
fn spent_by(copies: &[(String, u16)]) -> Result<Spent, String> {
    let mut each = copies.iter().map(|(_, port)| Spent::of(*port));
    each.try_fold(Spent::default(), |sum, one| Ok(sum.with(&one?)))
}

/// All steps on one server; the rate of the last.
fn measure(bench: &mut Bench<'_>, one: &Contender, steps: &Steps) -> Result<f64, String> {
    let (port, name) = (one.server.port, &one.name);
    let mut memory = Vec::new();
    let mut rate = 0.0;
    for (step, line, published) in steps {
        let before = Spent::of(port)?;
        let measured = bench.measure_long(port, line)?;
        let Some(measured) = measured.first() else { continue };
        let spent = Spent::of(port)?;
        append_memory(&mut memory, measured);
        rate = measured.rate();
        let latency = Latency::new(&measured.total().latencies);
        let remark = format!("p99 {:.3} ms, p99.9 {:.3} ms", latency.p99, latency.p999);
        let said = [remark.as_str(), one.remark].into_iter().filter(|word| !word.is_empty());
        let remark = said.collect::<Vec<_>>().join("; ");
        bench.row(&format!("{step}: {name}"), "requests/s", Some(published), &[rate], &remark);
        if *step == "mixed" {
            bench.row(
                &format!("{step}: {name}, at the client"),
                "ms, mean",
                None,
                &[latency.mean],
                "",
            );
            let inside = before.mean_ms_until(&spent);
            let remark = "in the command and waiting for flash";
            let inside: Vec<f64> = inside.into_iter().collect();
            bench.row(
                &format!("{step}: {name}, in the server"),
                "ms, mean",
                Some("< 1"),
                &inside,
                remark,
            );
        }
    }
    if one.limit > 0 {
        let most = memory.iter().map(|&(_, bytes)| bytes).max().unwrap_or(0);
        let mib = |bytes: u64| bytes as f64 / MIB as f64;
        let remark = format!("the limit is {:.1} MiB", mib(one.limit));
        bench.row(&format!("RSS at the most: {name}"), "MiB", None, &[mib(most)], &remark);
        bench.memory.push(MemoryLine {
            server: name.clone(),
            limit_bytes: one.limit,
            readings: memory,
        });
    }
    Ok(rate)
}

/// Seconds since the first step began and resident bytes.
fn append_memory(memory: &mut Vec<(f64, u64)>, measured: &Measured) {
    let offset = memory.last().map_or(0.0, |&(at, _)| at);
    if let Some(cost) = &measured.server {
        memory.extend(cost.readings.iter().map(|&(at, _, rss)| (offset + at, rss)));
    }
}

/// What a server has spent on GET and SET since its start.
#[derive(Default)]
struct Spent {
    calls: f64,
    command_us: f64,
    waits: f64,
    reads: f64,
    read_us: f64,
}

impl Spent {
    fn of(port: u16) -> Result<Spent, String> {
        let refuse = |error: std::io::Error| format!("port {port}: {error}");
        let mut client = target(port).connect().map_err(refuse)?;
        // A copy tells of the database otherwise; a server that does not know this is no copy.
        client.ask(&["CLIENT", "CAPA", "cluster", "node"]).map_err(refuse)?;
        let text = client.order(&["INFO", "everything"]).map_err(refuse)?.text();
        Ok(Spent::parse(&text))
    }

    /// The sum of two servers.
    fn with(self, other: &Spent) -> Spent {
        Spent {
            calls: self.calls + other.calls,
            command_us: self.command_us + other.command_us,
            waits: self.waits + other.waits,
            reads: self.reads + other.reads,
            read_us: self.read_us + other.read_us,
        }
    }

    fn parse(text: &str) -> Spent {
        let field = |name: &str| -> f64 {
            let value = text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':'));
            value.and_then(|value| value.trim().parse().ok()).unwrap_or(0.0)
        };
        let (mut calls, mut command_us) = (0.0, 0.0);
        let commands = ["cmdstat_get:", "cmdstat_set:"];
        for line in text.lines() {
            let Some(figures) = commands.iter().find_map(|name| line.strip_prefix(name)) else {
                continue;
            };
            let of = |name: &str| -> f64 {
                let value = figures.split(',').find_map(|word| word.strip_prefix(name));
                value.and_then(|value| value.trim().parse().ok()).unwrap_or(0.0)
            };
            calls += of("calls=");
            command_us += of("usec=");
        }
        Spent {
            calls,
            command_us,
            waits: field("tier_waits"),
            reads: field("tier_reads") - field("tier_reads_from_buffers"),
            read_us: field("tier_read_usec"),
        }
    }

    /// The mean of a request between two moments: its time in the command, and waiting for values.
    fn mean_ms_until(&self, later: &Spent) -> Option<f64> {
        let calls = later.calls - self.calls;
        let reads = later.reads - self.reads;
        let read_us = if reads > 0.0 { (later.read_us - self.read_us) / reads } else { 0.0 };
        let waited_us = (later.waits - self.waits) * read_us;
        let spent_us = later.command_us - self.command_us + waited_us;
        (calls > 0.0).then_some(spent_us / calls / 1000.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_server_spends_time_in_commands_and_on_flash() {
        let text = |get: &str, set: &str, rest: &str| {
            let figures = "usec_per_call=1.00,rejected_calls=0";
            let lines = [
                format!("cmdstat_get:{get},{figures}"),
                format!("cmdstat_getdel:calls=9,usec=9,{figures}"),
                format!("cmdstat_set:{set},{figures}"),
                rest.to_owned(),
            ];
            lines.join("\r\n")
        };
        let before = Spent::parse(&text("calls=10,usec=10", "calls=10,usec=30", ""));
        let tier =
            "tier_waits:50\r\ntier_reads:120\r\ntier_reads_from_buffers:20\r\ntier_read_usec:20000";
        let after = Spent::parse(&text("calls=510,usec=1010", "calls=510,usec=1030", tier));
        // 1000 requests took 2000 us, and 50 of them waited for 200 us each.
        assert_eq!(before.mean_ms_until(&after), Some(0.012));
        assert_eq!(after.mean_ms_until(&after), None);
    }
}

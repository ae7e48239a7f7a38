//! Answers of a node as text: tables, and lines for what needs an operator.

use crate::hashing::Tried;
use crate::rest::wire::{Begun, Status};
use crate::settings::Wrong;
use crate::show::{
    CopyShown, DatabaseShown, EventShown, JobShown, MachineShown, PlanShown, RemovedShown,
};
use crate::standing::Standing;
use crate::tasks::manifest::date;
use process::memory::Bytes;
use serde::de::DeserializeOwned;
use serde_json::Value;
use std::io::Write as _;

/// Prints a value as JSON, or as text.
///
/// # Errors
/// It is not what was expected: the node has another version.
pub fn value<T: DeserializeOwned>(
    value: &Value,
    is_json: bool,
    text: fn(&T) -> String,
) -> Result<(), Wrong> {
    let text = match is_json {
        true => format!("{value:#}\n"),
        false => {
            let read = serde_json::from_value(value.clone());
            text(&read.map_err(|error| Wrong(format!("the node has another version: {error}")))?)
        }
    };
    // That nothing reads it is no failure.
    let _ = std::io::stdout().write_all(text.as_bytes());
    Ok(())
}

/// Rows in columns, the first row being their titles.
pub fn table(rows: &[Vec<String>]) -> String {
    let columns = rows.first().map_or(0, Vec::len);
    let width =
        |column: usize| rows.iter().map(|row| row[column].chars().count()).max().unwrap_or(0);
    let widths: Vec<usize> = (0..columns).map(width).collect();
    let line = |row: &Vec<String>| {
        let cells = row.iter().zip(&widths).map(|(cell, width)| format!("{cell:<width$}"));
        format!("{}\n", cells.collect::<Vec<_>>().join("  ").trim_end())
    };
    rows.iter().map(line).collect()
}

pub fn titles(words: &[&str]) -> Vec<String> {
    words.iter().map(|word| (*word).to_owned()).collect()
}

/// How the cluster is.
pub fn status(status: &Status) -> String {
    let alive = status.machines.iter().filter(|machine| machine.is_alive).count();
    let mut text = format!(
        "Cluster {}: {alive} of {} machines, etcd {} with {} member{}, {} database{}\n",
        status.cluster,
        status.machines.len(),
        status.etcd_version,
        status.etcd_members.len(),
        plural(status.etcd_members.len()),
        status.databases.len(),
        plural(status.databases.len()),
    );
    for problem in &status.problems {
        text += &format!("! {problem}\n");
    }
    if !status.machines.is_empty() {
        text += &format!("\n{}", machines(&status.machines));
    }
    if !status.databases.is_empty() {
        text += &format!("\n{}", databases(&status.databases));
    }
    if !status.jobs.is_empty() {
        text += &format!("\n{}", jobs(&status.jobs));
    }
    text
}

fn plural(count: usize) -> &'static str {
    if count == 1 { "" } else { "s" }
}

/// Machines as a table.
pub fn machines(machines: &[MachineShown]) -> String {
    let mut rows =
        vec![titles(&["MACHINE", "STATE", "HOST", "ZONE", "CORES", "MEMORY", "GIVEN", "COPIES"])];
    rows.extend(machines.iter().map(|it| {
        vec![
            it.name.clone(),
            match (it.is_alive, it.is_draining) {
                (false, _) => "down".into(),
                (true, true) => "draining".into(),
                (true, false) => "up".into(),
            },
            it.host.clone(),
            or_dash(&it.zone),
            it.cores.to_string(),
            Bytes(it.memory_bytes).to_string(),
            Bytes(it.used_bytes).to_string(),
            it.copies.to_string(),
        ]
    }));
    table(&rows)
}

fn or_dash(text: &str) -> String {
    if text.is_empty() { "-".into() } else { text.to_owned() }
}

/// Databases as a table.
pub fn databases(databases: &[DatabaseShown]) -> String {
    let mut rows =
        vec![titles(&["DATABASE", "STAGE", "PORT", "SHARDS", "REPLICAS", "MEMORY", "HEALTH"])];
    rows.extend(databases.iter().map(|it| {
        vec![
            it.name.clone(),
            it.stage.clone(),
            it.settings.port.to_string(),
            it.settings.shards.to_string(),
            it.settings.replicas.to_string(),
            Bytes(it.settings.memory_bytes).to_string(),
            it.health.clone(),
        ]
    }));
    table(&rows)
}

/// A database with its copies.
pub fn database(database: &DatabaseShown) -> String {
    let mut text = databases(std::slice::from_ref(database));
    let mut rows = vec![titles(&[
        "SHARD", "SLOTS", "ROLE", "MACHINE", "ADDRESS", "USED", "OPS/S", "LAG", "PROCESS", "COPY",
    ])];
    for shard in &database.shards {
        rows.extend(shard.copies.iter().map(|copy| {
            vec![
                shard.number.to_string(),
                shard.slots.clone(),
                copy.role.clone(),
                copy.machine.clone(),
                format!("{}:{}", copy.host, copy.port),
                if copy.answers { Bytes(copy.used_bytes).to_string() } else { "-".into() },
                if copy.answers { copy.commands_per_second.to_string() } else { "-".into() },
                copy.lag_bytes.map_or("-".into(), |bytes| Bytes(bytes).to_string()),
                process(copy),
                copy.id.clone(),
            ]
        }));
    }
    text += &format!("\n{}", table(&rows));
    for shard in database.shards.iter().filter(|shard| !shard.waiting.text.is_empty()) {
        text += &format!("! shard {} has no primary: {}\n", shard.number, shard.waiting.text);
        text += &table(&standings(&shard.waiting.copies));
    }
    for copy in database.shards.iter().flat_map(|shard| &shard.copies) {
        let notes = [&copy.note, &copy.disk_error, &copy.link_error, &copy.bus_error];
        for note in notes.into_iter().filter(|note| !note.is_empty()) {
            text += &format!("! copy {} on {}: {note}\n", copy.id, copy.machine);
        }
    }
    text
}

/// What the copies of a shard without a primary have.
fn standings(copies: &[Standing]) -> Vec<Vec<String>> {
    let mut rows =
        vec![titles(&["COPY", "MACHINE", "EPOCH", "OFFSET", "DATA", "IF IT LED, GIVEN UP"])];
    let number = |number: Option<u64>| number.map_or("-".into(), |number| number.to_string());
    rows.extend(copies.iter().map(|it| {
        vec![
            it.copy.clone(),
            it.machine.clone(),
            number(it.epoch),
            number(it.offset),
            it.data.clone(),
            or_dash(&it.given_up),
        ]
    }));
    rows
}

/// Keys with their tags, slots and shards, and how they spread.
pub fn tried(tried: &Tried) -> String {
    let mut rows = vec![titles(&["KEY", "RULE", "TAG", "SLOT", "SHARD"])];
    let dash = || "-".to_owned();
    rows.extend(tried.keys.iter().map(|it| {
        vec![
            it.key.escape_debug().to_string(),
            match it.rule {
                None => "none: refused".into(),
                Some(0) => "standard".into(),
                Some(number) => number.to_string(),
            },
            it.tag.as_ref().map_or_else(dash, |tag| tag.escape_debug().to_string()),
            it.slot.map_or_else(dash, |slot| slot.to_string()),
            it.shard.map_or_else(dash, |shard| shard.to_string()),
        ]
    }));
    let mut parts = vec![titles(&["SHARD", "KEYS", "SHARE"])];
    parts.extend(tried.parts.iter().map(|part| {
        vec![part.shard.to_string(), part.keys.to_string(), format!("{:.1} %", part.percent)]
    }));
    let mut text = format!("{}\n{}", table(&rows), table(&parts));
    text += &format!(
        "\n{} keys, {} different tags; the largest shard has {:.2} of the mean\n",
        tried.keys.len(),
        tried.tags,
        tried.skew
    );
    if tried.unmatched > 0 {
        let many = tried.unmatched;
        text += &format!("! {many} keys match no rule: requests for them would get an error\n");
    }
    text
}

fn process(copy: &CopyShown) -> String {
    let added = if copy.is_surge { ", added for a restart" } else { "" };
    match copy.restarts {
        0 => format!("{}{added}", copy.process),
        restarts => format!("{} ({restarts} restarts){added}", copy.process),
    }
}

/// Jobs as a table.
pub fn jobs(jobs: &[JobShown]) -> String {
    let mut rows = vec![titles(&["JOB", "KIND", "DATABASE", "STATE", "DONE", "MACHINE", "TEXT"])];
    rows.extend(jobs.iter().map(|it| {
        vec![
            it.id.clone(),
            it.kind.clone(),
            it.database.clone(),
            it.state.clone(),
            format!("{}%", it.percent),
            it.machine.clone(),
            or_dash(&it.text),
        ]
    }));
    table(&rows)
}

/// A line for a job.
pub fn progress(job: &JobShown) -> String {
    let JobShown { kind, database, state, percent, text, .. } = job;
    let time = job.ended_ms.saturating_sub(job.began_ms);
    match &**state {
        "done" => format!("{kind} {database}: done in {:.2} s\n", time as f64 / 1000.0),
        "running" if text.is_empty() => format!("{kind} {database}: {percent}%\n"),
        "running" => format!("{kind} {database}: {percent}%, {text}\n"),
        _ => format!("{kind} {database}: {state} {text}\n"),
    }
}

/// Events, a line each.
pub fn events(events: &[EventShown]) -> String {
    let mut rows = vec![titles(&["TIME (UTC)", "MACHINE", "EVENT"])];
    rows.extend(events.iter().map(|it| vec![time(it.at_ms), it.machine.clone(), it.text.clone()]));
    table(&rows)
}

/// A moment as people write it.
fn time(ms: u64) -> String {
    let seconds = ms / 1000;
    let (days, rest) = (seconds / 86400, seconds % 86400);
    let (year, month, day) = date(days);
    format!("{year}-{month:02}-{day:02} {:02}:{:02}:{:02}", rest / 3600, rest / 60 % 60, rest % 60)
}

/// What was begun, or would be.
pub fn begun(begun: &Begun) -> String {
    let mut text = begun.plan.as_ref().map_or(String::new(), plan);
    match &begun.job {
        Some(job) => text += &format!("Job {job}\n"),
        None => text += "Nothing was changed.\n",
    }
    text
}

fn plan(plan: &PlanShown) -> String {
    let mut text = String::new();
    if !plan.copies.is_empty() {
        let titled = ["DATABASE", "SHARD", "ROLE", "MACHINE", "ZONE", "ADDRESS", "MEMORY"];
        let skipped = usize::from(plan.copies.iter().all(|it| it.database.is_empty()));
        let mut rows = vec![titles(&titled[skipped..])];
        rows.extend(plan.copies.iter().map(|it| {
            let cells = [
                it.database.clone(),
                it.shard.to_string(),
                it.role.clone(),
                it.machine.clone(),
                or_dash(&it.zone),
                format!("{}:{}", it.host, it.port),
                Bytes(it.memory_bytes).to_string(),
            ];
            cells[skipped..].to_vec()
        }));
        text += &table(&rows);
    }
    for copy in &plan.removed {
        let RemovedShown { shard, machine, host, port, .. } = copy;
        text += &format!("A copy of shard {shard} goes from machine {machine} ({host}:{port})\n");
    }
    for it in &plan.moves {
        text += &format!(
            "{} slots with {} keys, about {}, move from shard {} to shard {}\n",
            it.slots,
            it.keys,
            Bytes(it.bytes),
            it.from,
            it.to
        );
    }
    if plan.bytes > 0 {
        let bytes = Bytes(plan.bytes);
        text += &format!("In all about {bytes} are sent; about {} minutes\n", plan.minutes);
    }
    text + &plan.warnings.iter().map(|warning| format!("! {warning}\n")).collect::<String>()
}

/// The users of a database.
pub fn users(database: &DatabaseShown) -> String {
    let mut rows = vec![titles(&["USER", "RULES"])];
    rows.extend(database.users.iter().map(|(name, rules)| vec![name.clone(), rules.join(" ")]));
    table(&rows)
}

/// A text for a URL's query.
pub fn encoded(text: &str) -> String {
    let byte = |byte: u8| match byte.is_ascii_alphanumeric() || b"-_.".contains(&byte) {
        true => char::from(byte).to_string(),
        false => format!("%{byte:02X}"),
    };
    text.bytes().map(byte).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn moments_are_dates() {
        assert_eq!(time(0), "1970-01-01 00:00:00");
        assert_eq!(time(951_782_400_000), "2000-02-29 00:00:00");
        assert_eq!(time(1_795_685_999_999), "2026-11-26 09:39:59");
    }

    #[test]
    fn columns_are_as_wide_as_their_longest_cell() {
        let rows = [titles(&["A", "B"]), titles(&["long", "x"]), titles(&["é", ""])];
        assert_eq!(table(&rows), "A     B\nlong  x\né\n");
    }

    #[test]
    fn queries_are_encoded() {
        assert_eq!(encoded("a-b c&d/é"), "a-b%20c%26d%2F%C3%A9");
    }
}

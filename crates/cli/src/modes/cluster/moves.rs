//! Moves slots: by a job of the servers (CLUSTER MIGRATESLOTS), or key by key (SETSLOT, MIGRATE).
//!
//! A Dunlin gets jobs: they move a slot at one moment, and go on if this program ends. Other servers
//! get them if `--cluster-use-atomic-slot-migration` asks for it.

use super::node::{Node, ranges};
use super::nodes::Cluster;
use super::plan::Move;
use super::{keys, say};
use crate::options::ClusterOptions;
use crate::session::emit;
use resp::Value;
use std::thread;
use std::time::{Duration, Instant};

/// How long a job may be missing in the list of its source.
const MISSING_JOB: Duration = Duration::from_secs(20);

/// What to print.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Show {
    /// A line for each slot, with a dot for each key.
    EachSlot,
    /// A mark for each slot.
    Marks,
}

/// Moves the slots of one source.
pub fn run(
    cluster: &mut Cluster,
    wanted: &ClusterOptions,
    one: &Move,
    show: Show,
) -> Result<(), String> {
    if wanted.use_jobs || cluster.nodes[one.from].is_dunlin && cluster.nodes[one.to].is_dunlin {
        by_job(cluster, one, show).map_err(|why| format!("Atomic slot migration failed: {why}"))?;
    } else {
        for &slot in &one.slots {
            slot_by_keys(cluster, wanted, slot, (one.from, one.to), show)?;
        }
    }
    if show == Show::Marks {
        say("");
    }
    Ok(())
}

/// Returns slots as jobs list them: `0-5460 7000-7000`.
pub fn shown(slots: &[u16]) -> String {
    let words: Vec<String> =
        ranges(slots).iter().map(|(first, last)| format!("{first}-{last}")).collect();
    words.join(" ")
}

/// Has the source move the slots, and waits.
fn by_job(cluster: &mut Cluster, one: &Move, show: Show) -> Result<(), String> {
    let ranges = ranges(&one.slots);
    let shown = shown(&one.slots);
    let target = cluster.nodes[one.to].id.clone();
    if show == Show::EachSlot {
        let (from, to) = (&cluster.nodes[one.from], &cluster.nodes[one.to]);
        emit(
            format!("Moving slot range {shown} from {from} to {to} via atomic slot migration")
                .as_bytes(),
        );
    }
    let mut words = vec!["CLUSTER".to_owned(), "MIGRATESLOTS".into(), "SLOTSRANGE".into()];
    for (first, last) in &ranges {
        words.extend([first.to_string(), last.to_string()]);
    }
    words.extend(["NODE".to_owned(), target]);
    let source = &mut cluster.nodes[one.from];
    source.ask(&words)?;
    let mut missing_since = None;
    loop {
        match state(source, &one.slots, &shown)? {
            JobState::Moved => break,
            JobState::UnderWay => missing_since = None,
            JobState::Missing => {
                let since = *missing_since.get_or_insert_with(Instant::now);
                if since.elapsed() > MISSING_JOB {
                    return Err(format!("{source} does not know the job any more"));
                }
            }
        }
        if show == Show::EachSlot {
            emit(b".");
        }
        thread::sleep(Duration::from_millis(100));
    }
    if show == Show::Marks {
        emit("#".repeat(one.slots.len()).as_bytes());
    } else {
        say("");
    }
    for &slot in &one.slots {
        cluster.nodes[one.from].note(slot, false);
        cluster.nodes[one.to].note(slot, true);
    }
    Ok(())
}

/// How far a job is.
enum JobState {
    Moved,
    UnderWay,
    /// The source does not list it; it may do so in a moment.
    Missing,
}

/// Looks how far the job of these slots is.
///
/// # Errors
/// Why the job ended before the source had given all slots.
fn state(source: &mut Node, slots: &[u16], shown: &str) -> Result<JobState, String> {
    // Asked before the slots are looked at: a job that ends meanwhile has moved them.
    let jobs = source.ask(&["CLUSTER", "GETSLOTMIGRATIONS"])?;
    source.look()?;
    if !slots.iter().any(|slot| source.has(*slot)) {
        return Ok(JobState::Moved);
    }
    let text =
        |job: &Value, name: &str| job.get(name).map(Value::text_or_error).unwrap_or_default();
    let created = |job: &&Value| job.get("create_time").and_then(Value::integer);
    let ours = jobs.items().iter();
    let job = ours.filter(|job| text(job, "slot_ranges") == shown).max_by_key(created);
    let Some(job) = job else { return Ok(JobState::Missing) };
    match text(job, "state").as_str() {
        "failed" => Err(text(job, "message")),
        "cancelled" | "canceled" => Err("Slot migration was cancelled".into()),
        "success" => Ok(JobState::Missing),
        _ => Ok(JobState::UnderWay),
    }
}

/// Moves a slot key by key, and tells all primaries.
pub fn slot_by_keys(
    cluster: &mut Cluster,
    wanted: &ClusterOptions,
    slot: u16,
    (from, to): (usize, usize),
    show: Show,
) -> Result<(), String> {
    let [source, target] = [from, to].map(|at| cluster.nodes[at].id.clone());
    begin_line(cluster, slot, (from, to), show);
    set(&mut cluster.nodes[to], slot, "IMPORTING", &source)?;
    set(&mut cluster.nodes[from], slot, "MIGRATING", &target)?;
    keys::migrate(cluster, wanted, slot, (from, to), show == Show::EachSlot)?;
    end_line(show);
    // The target first: if it dies before it knows that it is the owner, the slot has none.
    set(&mut cluster.nodes[to], slot, "NODE", &target)?;
    // A source that has given its last slot may have become a replica before it is told.
    let reply = cluster.nodes[from].ask_any(&setting(slot, "NODE", &target))?;
    const HARMLESS: [&str; 4] = [
        "ERR Please use SETSLOT only with masters.",
        "ERR Please use SETSLOT only with primaries.",
        "UNBLOCKED",
        "NOREPLICAS",
    ];
    if reply.is_error() && !HARMLESS.iter().any(|text| reply.text_or_error().starts_with(text)) {
        return Err(cluster.nodes[from].refused(&reply));
    }
    for at in cluster.primaries().into_iter().filter(|at| *at != from && *at != to) {
        set(&mut cluster.nodes[at], slot, "NODE", &target)?;
    }
    cluster.nodes[from].note(slot, false);
    cluster.nodes[to].note(slot, true);
    Ok(())
}

/// Moves the keys of a slot, and leaves the slot where it is.
pub fn keys_alone(
    cluster: &mut Cluster,
    wanted: &ClusterOptions,
    slot: u16,
    nodes: (usize, usize),
) -> Result<(), String> {
    begin_line(cluster, slot, nodes, Show::EachSlot);
    keys::migrate(cluster, wanted, slot, nodes, true)?;
    end_line(Show::EachSlot);
    Ok(())
}

fn begin_line(cluster: &Cluster, slot: u16, (from, to): (usize, usize), show: Show) {
    if show == Show::EachSlot {
        let (from, to) = (&cluster.nodes[from], &cluster.nodes[to]);
        emit(format!("Moving slot {slot} from {from} to {to}: ").as_bytes());
    }
}

fn end_line(show: Show) {
    match show {
        Show::EachSlot => say(""),
        Show::Marks => emit(b"#"),
    }
}

fn setting(slot: u16, state: &str, id: &str) -> [String; 5] {
    ["CLUSTER", "SETSLOT", &slot.to_string(), state, id].map(str::to_owned)
}

/// Sets the state of a slot at a node.
pub fn set(node: &mut Node, slot: u16, state: &str, id: &str) -> Result<(), String> {
    node.ask(&setting(slot, state, id)).map(drop)
}

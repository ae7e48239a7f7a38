//! `CLUSTER` subcommands that move slots with their keys: jobs in the topology, which the primary of the slots carries out.

use super::answers::{me, published};
use super::operate::operate;
use cluster::id::Id;
use cluster::slots::{COUNT, Slots};
use cluster::topology::Move;
use engine::membership::Request;
use engine::{Arg, ArgKind, Args, Command, Cx, Error, Flags, Group, Outcome};

/// `CLUSTER CANCELSLOTMIGRATIONS`.
pub static CLUSTER_CANCELSLOTMIGRATIONS: Command = Command {
    name: "cancelslotmigrations",
    arity: 2,
    flags: Flags::ADMIN.with(Flags::STALE).with(Flags::NO_ASYNC_LOADING),
    group: Group::Cluster,
    since: "9.0.0",
    complexity: "O(N), where N is the number of slot migration operations being cancelled.",
    summary: "Ends the moving of slots that is under way.",
    run: cancel,
    ..Command::ROW
};

/// `CLUSTER GETSLOTMIGRATIONS`.
pub static CLUSTER_GETSLOTMIGRATIONS: Command = Command {
    name: "getslotmigrations",
    arity: 2,
    flags: Flags::ADMIN.with(Flags::STALE).with(Flags::NO_ASYNC_LOADING),
    group: Group::Cluster,
    since: "9.0.0",
    complexity: "O(N), where N is the number of active slot import and export jobs.",
    summary: "Which slots are moving, or have moved lately.",
    run: list,
    ..Command::ROW
};

/// `CLUSTER MIGRATESLOTS`.
pub static CLUSTER_MIGRATESLOTS: Command = Command {
    name: "migrateslots",
    arity: -4,
    flags: Flags::ADMIN.with(Flags::STALE).with(Flags::NO_ASYNC_LOADING),
    group: Group::Cluster,
    since: "9.0.0",
    complexity: "O(N) where N is the total number of the slots between all start slot and end slot arguments.",
    summary: "Moves slots to other nodes.",
    args: &[Arg::block(
        "migration-group",
        &[
            Arg::token("slotsrange-token", "SLOTSRANGE"),
            Arg::block(
                "range",
                &[Arg::new("start-slot", ArgKind::Integer), Arg::new("end-slot", ArgKind::Integer)],
            )
            .multiple(),
            Arg::token("node-token", "NODE"),
            Arg::new("node-id", ArgKind::String),
        ],
    )
    .multiple()],
    run: migrate,
    ..Command::ROW
};

/// `CLUSTER SYNCSLOTS`.
pub static CLUSTER_SYNCSLOTS: Command = Command {
    name: "syncslots",
    arity: -3,
    flags: Flags::ADMIN.with(Flags::STALE).with(Flags::NO_ASYNC_LOADING).with(Flags::SYSCMD),
    group: Group::Cluster,
    since: "9.0.0",
    complexity: "Depends on subcommand.",
    summary: "What nodes send each other while slots move.",
    run: super::disabled,
    ..Command::ROW
};

fn cancel(cx: &mut Cx<'_>, _args: Args<'_>) -> Outcome {
    operate(cx, Request::CancelMoves)
}

fn migrate(cx: &mut Cx<'_>, args: Args<'_>) -> Outcome {
    me(cx)?;
    let jobs = read_jobs(args)?;
    operate(cx, Request::MigrateSlots(jobs))
}

/// Reads `SLOTSRANGE first last [first last …] NODE id`, once or more.
fn read_jobs(args: Args<'_>) -> Result<Vec<(Slots, Id)>, Error> {
    let (mut jobs, mut ranges, mut at) = (Vec::new(), Vec::new(), 2);
    while at < args.len() {
        if !args.is(at, "slotsrange") {
            return Err(Error::Syntax);
        }
        at += 1;
        let begin = ranges.len();
        while at < args.len() && !args.is(at, "node") {
            if at + 1 >= args.len() || args.is(at + 1, "node") {
                return Err(Error::Syntax);
            }
            let range = (slot(args, at)?, slot(args, at + 1)?);
            add_range(&mut ranges, range)?;
            at += 2;
        }
        if begin == ranges.len() || at + 1 >= args.len() {
            return Err(Error::Syntax);
        }
        let name = String::from_utf8_lossy(args[at + 1]);
        let node: Id =
            name.parse().map_err(|_| Error::format(format!("ERR Invalid node name: {name}")))?;
        let of_job = &ranges[begin..];
        let is_named =
            |slot: u16| of_job.iter().any(|&(first, last)| (first..=last).contains(&slot));
        jobs.push((Slots::from_fn(is_named), node));
        at += 2;
    }
    Ok(jobs)
}

fn add_range(ranges: &mut Vec<(u16, u16)>, (first, last): (u16, u16)) -> Result<(), Error> {
    if first > last {
        return Err(Error::format(format!(
            "ERR Start slot number {first} is greater than end slot number {last}."
        )));
    }
    let overlaps = |&&(other, end): &&(u16, u16)| first <= end && other <= last;
    if let Some((other, end)) = ranges.iter().find(overlaps) {
        return Err(Error::format(format!(
            "ERR Slot range {first}-{last} overlaps with previous range {other}-{end}."
        )));
    }
    ranges.push((first, last));
    Ok(())
}

fn slot(args: Args<'_>, at: usize) -> Result<u16, Error> {
    let number = args.integer(at).ok().and_then(|number| u16::try_from(number).ok());
    let number = number.filter(|&number| number < COUNT);
    number.ok_or(Error::text("ERR Invalid or out of range slot"))
}

/// What is told of a job.
struct Told<'a> {
    job: &'a Move,
    nodes: (Id, Id),
    until_s: u64,
    state: &'a str,
    message: &'a str,
    is_export: bool,
}

/// The jobs that are under way come first, then those that are over, the last one first.
fn list(cx: &mut Cx<'_>, _args: Args<'_>) -> Outcome {
    let published = published(cx)?;
    let topology = &published.view.topology.value;
    let own = published.own_shard().map(|shard| shard.id);
    let moves = &cx.engine.membership.moves;
    let (past, obstacle) = (moves.past(), moves.obstacle());
    let now_s = u64::try_from(cx.now().0 / 1000).unwrap_or(0);
    let is_own = |job: &&Move| Some(job.from) == own || Some(job.to) == own;
    let present = topology.moves.iter().filter(is_own).map(|job| {
        let is_export = Some(job.from) == own;
        let nodes = (topology.leader_of(job.from), topology.leader_of(job.to));
        let message = if is_export { &*obstacle } else { "" };
        Told { job, nodes, until_s: now_s, state: "streaming", message, is_export }
    });
    let past = past.iter().map(|past| {
        let is_export = Some(past.job.from) == own;
        let (job, nodes, until_s, state) = (&past.job, past.nodes, past.until_s, past.outcome);
        Told { job, nodes, until_s, state, message: "", is_export }
    });
    let all: Vec<Told<'_>> = present.chain(past).collect();
    cx.reply.array(all.len());
    all.iter().for_each(|told| write(cx, told));
    Ok(())
}

fn write(cx: &mut Cx<'_>, told: &Told<'_>) {
    let reply = &mut cx.reply;
    let ranges = told.job.slots.ranges().iter().map(|(first, last)| format!("{first}-{last}"));
    let texts = [
        ("name", told.job.id.to_string()),
        ("operation", if told.is_export { "EXPORT" } else { "IMPORT" }.to_owned()),
        ("slot_ranges", ranges.collect::<Vec<_>>().join(" ")),
        ("target_node", told.nodes.1.to_string()),
        ("source_node", told.nodes.0.to_string()),
    ];
    let times = [
        ("create_time", told.job.since_s),
        ("last_update_time", told.until_s),
        ("last_ack_time", told.until_s),
    ];
    reply.map(12);
    for (name, text) in texts {
        reply.bulk(name.as_bytes());
        reply.bulk(text.as_bytes());
    }
    for (name, time) in times {
        reply.bulk(name.as_bytes());
        reply.integer(time as i64);
    }
    for (name, text) in [("state", told.state), ("message", told.message)] {
        reply.bulk(name.as_bytes());
        reply.bulk(text.as_bytes());
    }
    for name in ["cow_size", "remaining_repl_size"] {
        reply.bulk(name.as_bytes());
        reply.integer(0);
    }
}

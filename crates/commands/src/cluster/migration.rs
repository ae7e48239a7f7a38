//! `CLUSTER` subcommands that move slots with their keys: jobs in the topology, which the primary
//! of the slots carries out.

use super::answers::published;
use super::operate::operate;
use super::slots::RANGE;
use cluster::id::Id;
use cluster::slots::{COUNT, Slots};
use cluster::topology::{Move, MovePhase};
use engine::membership::{Arrival, PastMove, Progress, Published, Request};
use engine::{Arg, ArgKind, Args, Command, Cx, Databases, Error, Flags, Group, Outcome};
use resp::Reply;
use structs::hashing::os_random;

/// `CLUSTER CANCELSLOTMIGRATIONS`.
pub static CLUSTER_CANCELSLOTMIGRATIONS: Command = Command {
    name: "cancelslotmigrations",
    arity: 2,
    flags: Flags::ADMIN.with(Flags::STALE).with(Flags::NO_ASYNC_LOADING).with(Flags::AUDITED),
    group: Group::Cluster,
    since: "9.0.0",
    complexity: "O(N) for N jobs that are cancelled",
    summary: "Ends the moving of slots that is under way.",
    databases: Databases::All,
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
    complexity: "O(N) for N jobs that run",
    summary: "Which slots are moving, or have moved lately.",
    run: list,
    ..Command::ROW
};

/// `CLUSTER MIGRATESLOTS`.
pub static CLUSTER_MIGRATESLOTS: Command = Command {
    name: "migrateslots",
    arity: -4,
    flags: Flags::ADMIN.with(Flags::STALE).with(Flags::NO_ASYNC_LOADING).with(Flags::AUDITED),
    group: Group::Cluster,
    since: "9.0.0",
    complexity: "O(N) for N slots in the ranges",
    summary: "Moves slots to other nodes.",
    args: &[Arg::block(
        "migration-group",
        &[
            Arg::token("slotsrange-token", "SLOTSRANGE"),
            RANGE.multiple(),
            Arg::token("node-token", "NODE"),
            Arg::new("node-id", ArgKind::String),
        ],
    )
    .multiple()],
    databases: Databases::All,
    run: migrate,
    ..Command::ROW
};

/// `CLUSTER MIGRATION`: the same jobs in other words, asked for at the target.
pub static CLUSTER_MIGRATION: Command = Command {
    name: "migration",
    arity: -4,
    categories: &["nodes"],
    flags: Flags::ADMIN.with(Flags::STALE).with(Flags::NO_ASYNC_LOADING).with(Flags::AUDITED),
    group: Group::Cluster,
    since: "8.4.0",
    complexity: "O(N) for N slots or jobs",
    summary: "Moves slots to this node, cancels that, or tells of it.",
    args: &[Arg::one_of(
        "subcommand",
        &[
            RANGE.after("IMPORT").multiple(),
            Arg::one_of(
                "cancel",
                &[Arg::new("job-id", ArgKind::String).after("ID"), Arg::token("all", "ALL")],
            )
            .after("CANCEL"),
            Arg::one_of(
                "status",
                &[Arg::new("job-id", ArgKind::String).after("ID"), Arg::token("all", "ALL")],
            )
            .after("STATUS"),
            Arg::block(
                "set",
                &[
                    Arg::one_of(
                        "jobs",
                        &[
                            Arg::new("job-id", ArgKind::String).after("ID"),
                            Arg::token("all", "ALL"),
                        ],
                    ),
                    Arg::new("bytes-per-second", ArgKind::Integer).after("RATE").optional(),
                    Arg::new("priority", ArgKind::Integer).after("PRIORITY").optional(),
                ],
            )
            .after("SET"),
        ],
    )],
    run: migration,
    ..Command::ROW
};

/// `CLUSTER SYNCSLOTS`.
pub static CLUSTER_SYNCSLOTS: Command = Command {
    name: "syncslots",
    arity: -3,
    categories: &["nodes"],
    flags: Flags::ADMIN.with(Flags::STALE).with(Flags::NO_ASYNC_LOADING).with(Flags::SYSCMD),
    group: Group::Cluster,
    since: "9.0.0",
    complexity: "That of the subcommand",
    summary: "What nodes send each other while slots move.",
    run: sync,
    ..Command::ROW
};

/// `CLUSTER SYNCSLOTS IMPORT job`: the connection brings a copy of the job's slots.
///
/// `CLUSTER SYNCSLOTS PREPARE copies`: the source is about to hand them over. Returns an error if
/// the copy was spoiled.
///
/// `CLUSTER SYNCSLOTS REVISION revision`: whether this node's clients see what the coordinator had
/// then.
fn sync(cx: &mut Cx<'_>, args: Args<'_>) -> Outcome {
    let published = published(cx)?;
    let moves = &cx.engine.membership.moves;
    if args.is(2, "import") && args.len() == 4 {
        return import(cx, &published, args);
    }
    if args.is(2, "prepare") {
        let now = cx.engine.clock.now();
        return match cx.session.import().is_some_and(|number| moves.prepare_import(number, now)) {
            true => {
                cx.reply.ok();
                Ok(())
            }
            false => Err(Error::text("ERR The copy of the slots is not whole")),
        };
    }
    if args.is(2, "revision") && args.len() == 4 {
        let is_shown = published.view.revision >= u64::try_from(args.integer(3)?).unwrap_or(0);
        cx.reply.integer(i64::from(is_shown));
        return Ok(());
    }
    Err(Error::Syntax)
}

fn import(cx: &mut Cx<'_>, published: &Published, args: Args<'_>) -> Outcome {
    if cx.in_transaction || cx.script.is_some() {
        return Err(Error::text("ERR A transaction or a script cannot bring a copy of slots"));
    }
    let name = String::from_utf8_lossy(args[3]);
    let job: Option<Id> = name.parse().ok();
    let topology = &published.view.topology.value;
    let found = topology.moves.iter().find(|other| Some(other.id) == job);
    let Some(job) = found.filter(|job| published.expects_copy(job.id)) else {
        return Err(Error::text("TRYAGAIN This node expects no copy of these slots"));
    };
    // Keys of these slots that are being dropped would go together with the copy.
    if topology.dropped_by(job.to, &job.slots).is_some() {
        return Err(Error::text("TRYAGAIN This node still drops what it had of these slots"));
    }
    match cx.begin_import(job.id, job.slots.clone()) {
        true => Ok(()),
        false => Err(Error::text("TRYAGAIN Another server is about to hand these slots over")),
    }
}

fn cancel(cx: &mut Cx<'_>, _args: Args<'_>) -> Outcome {
    operate(cx, Request::CancelMoves)
}

fn migrate(cx: &mut Cx<'_>, args: Args<'_>) -> Outcome {
    let published = published(cx)?;
    if !published.leads {
        return Err(Error::text("ERR Slot migration can only be used on primary nodes."));
    }
    let jobs = read_jobs(&published, args)?;
    operate(cx, Request::MigrateSlots(jobs))
}

/// `CLUSTER MIGRATION IMPORT start end [start end …]`, `CANCEL ID id|ALL`, `STATUS [ID id|ALL]`,
/// `SET ID id|ALL [RATE bytes] [PRIORITY number]`.
fn migration(cx: &mut Cx<'_>, args: Args<'_>) -> Outcome {
    let published = published(cx)?;
    if args.is(2, "import") {
        let mut ranges = Vec::new();
        let mut at = 3;
        while at < args.len() {
            if at + 1 == args.len() {
                return Err(Error::Arity("cluster|migration".into()));
            }
            let range = (slot(args, at)?, slot(args, at + 1)?);
            add_range(&mut ranges, range)?;
            at += 2;
        }
        let is_named =
            |slot: u16| ranges.iter().any(|&(first, last)| (first..=last).contains(&slot));
        let slots = Slots::from_fn(is_named);
        return operate(cx, Request::ImportSlots { slots, job: Id::draw(os_random) });
    }
    if args.is(2, "set") {
        return pace(cx, &published, args);
    }
    let only = match args.len() {
        4 if args.is(3, "all") => None,
        5 if args.is(3, "id") => Some(String::from_utf8_lossy(args[4]).into_owned()),
        _ => return Err(Error::Syntax),
    };
    let is_asked = |told: &Told| only.as_ref().is_none_or(|only| told.job.id.to_string() == *only);
    let mut told = all_jobs(cx, &published);
    told.retain(is_asked);
    if args.is(2, "status") {
        cx.reply.array(told.len());
        told.iter().for_each(|told| write_status(cx, told));
        return Ok(());
    }
    if !args.is(2, "cancel") {
        return Err(Error::Syntax);
    }
    let is_copying = |told: &&Told| told.job.phase() == MovePhase::Copying && told.until_s == 0;
    let names: Vec<Id> = told.iter().filter(is_copying).map(|told| told.job.id).collect();
    if names.is_empty() {
        cx.reply.integer(0);
        return Ok(());
    }
    operate(cx, Request::CancelJobs(names))
}

/// `CLUSTER MIGRATION SET ID id|ALL [RATE bytes-per-second] [PRIORITY number]`: jobs that are under
/// way, at their source or target.
fn pace(cx: &mut Cx<'_>, published: &Published, args: Args<'_>) -> Outcome {
    let (only, mut at) = match args.len() {
        5.. if args.is(3, "id") => (Some(String::from_utf8_lossy(args[4]).into_owned()), 5),
        4.. if args.is(3, "all") => (None, 4),
        _ => return Err(Error::Syntax),
    };
    let (mut rate, mut priority) = (None, None);
    while at + 1 < args.len() {
        if args.is(at, "rate") {
            let number = u64::try_from(args.integer(at + 1)?).ok();
            rate =
                Some(number.ok_or(Error::text("ERR RATE is bytes per second, or 0 for no limit"))?);
        } else if args.is(at, "priority") {
            let number = i32::try_from(args.integer(at + 1)?).ok();
            priority = Some(number.ok_or(Error::text("ERR PRIORITY is a number of 32 bits"))?);
        } else {
            return Err(Error::Syntax);
        }
        at += 2;
    }
    if at < args.len() || (rate, priority) == (None, None) {
        return Err(Error::Syntax);
    }
    let told = all_jobs(cx, published);
    let is_meant = |told: &&Told| {
        let is_copying = told.job.phase() == MovePhase::Copying && told.until_s == 0;
        is_copying && only.as_ref().is_none_or(|only| told.job.id.to_string() == *only)
    };
    let names: Vec<Id> = told.iter().filter(is_meant).map(|told| told.job.id).collect();
    if names.is_empty() {
        return Err(Error::text("ERR No such migration is under way"));
    }
    operate(cx, Request::PaceJobs { names, rate, priority })
}

/// Reads `SLOTSRANGE first last [first last …] NODE id`, once or more.
fn read_jobs(published: &Published, args: Args<'_>) -> Result<Vec<(Slots, Id)>, Error> {
    let (mut jobs, mut at) = (Vec::<(Slots, Id)>::new(), 2);
    while at < args.len() {
        // `valkey-cli --cluster-use-atomic-slot-migration` of Valkey 9.1 sends the zero at the end.
        if !args.is(at, "slotsrange") && !args.is(at, "slotsrange\0") {
            return Err(Error::Syntax);
        }
        at += 1;
        let mut ranges = Vec::new();
        while at < args.len() && args.integer(at).is_ok() {
            if at + 1 >= args.len() {
                return Err(Error::text("ERR No end slot for final slot range"));
            }
            let range = (slot(args, at)?, slot(args, at + 1)?);
            add_range(&mut ranges, range)?;
            at += 2;
        }
        if ranges.is_empty() {
            return Err(Error::text("ERR No slot ranges specified"));
        }
        let is_named =
            |slot: u16| ranges.iter().any(|&(first, last)| (first..=last).contains(&slot));
        let slots = Slots::from_fn(is_named);
        ensure_of_one_shard(published, &slots)?;
        if !args.is(at, "node") || at + 1 >= args.len() {
            return Err(Error::Syntax);
        }
        let name = String::from_utf8_lossy(args[at + 1]);
        let node: Id =
            name.parse().map_err(|_| Error::format(format!("ERR Invalid node name: {name}")))?;
        jobs.push((slots, node));
        at += 2;
    }
    let overlaps = |(number, (slots, _)): (usize, &(Slots, Id))| {
        jobs[..number].iter().any(|(before, _)| before.first_common(slots).is_some())
    };
    match jobs.iter().enumerate().any(overlaps) {
        true => Err(Error::text("ERR Slot ranges in migrations overlap")),
        false => Ok(jobs),
    }
}

/// # Errors
/// The slots are on several shards, or one of them is on none.
fn ensure_of_one_shard(published: &Published, slots: &Slots) -> Result<(), Error> {
    let mut first = None;
    for slot in slots.iter() {
        let Some(shard) = published.shard_of(slot) else {
            return Err(Error::format(format!("ERR Slot {slot} has no node served.")));
        };
        if *first.get_or_insert(shard) != shard {
            return Err(Error::text("ERR Requested slots span multiple shards"));
        }
    }
    Ok(())
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
struct Told {
    job: Move,
    nodes: (Id, Id),
    /// When it ended, in seconds since 1970. 0: it is under way.
    until_s: u64,
    state: &'static str,
    progress: Progress,
    is_export: bool,
}

/// The jobs that are under way come first, then those that are over, the last one first.
fn list(cx: &mut Cx<'_>, _args: Args<'_>) -> Outcome {
    let published = published(cx)?;
    let all = all_jobs(cx, &published);
    cx.reply.array(all.len());
    all.iter().for_each(|told| write(cx, told));
    Ok(())
}

fn all_jobs(cx: &Cx<'_>, published: &Published) -> Vec<Told> {
    let topology = &published.view.topology.value;
    let own = published.own_shard().map(|shard| shard.id);
    let moves = &cx.engine.membership.moves;
    let is_own = |job: &&Move| Some(job.from) == own || Some(job.to) == own;
    let present = topology.moves.iter().filter(is_own).map(|job| {
        let is_export = Some(job.from) == own;
        let nodes = (topology.leader_of(job.from), topology.leader_of(job.to));
        let progress = moves.progress(job.id);
        let state = match job.phase() {
            MovePhase::Copying if !published.leads => "occurring-on-primary",
            MovePhase::Copying if is_export && !progress.state.is_empty() => progress.state,
            MovePhase::Copying if is_export => "connecting",
            MovePhase::Copying => match moves.arrival(job.id) {
                None => "connecting",
                Some(Arrival::Begun) => "receiving-snapshot",
                Some(Arrival::Whole) => "waiting-for-paused",
                Some(Arrival::Prepared) => "failover-requested",
            },
            MovePhase::Trimming => "success",
            MovePhase::Clearing => "cancelled",
        };
        Told { job: job.clone(), nodes, until_s: 0, state, progress, is_export }
    });
    let max = cx.engine.config.cluster_slot_migration_log_max_len();
    let past = moves.past(max).into_iter().map(|past| {
        let is_export = Some(past.job.from) == own;
        let PastMove { job, nodes, until_s, outcome, progress } = past;
        Told { job, nodes, until_s, state: outcome, progress, is_export }
    });
    present.chain(past).collect()
}

fn ranges_of(told: &Told) -> String {
    let ranges = told.job.slots.ranges().iter().map(|(first, last)| format!("{first}-{last}"));
    ranges.collect::<Vec<_>>().join(" ")
}

/// What CLUSTER MIGRATION STATUS says of a job.
fn write_status(cx: &mut Cx<'_>, told: &Told) {
    let reply = &mut cx.reply;
    let progress = &told.progress;
    let state = match told.state {
        "success" => "completed",
        "cancelled" => "canceled",
        other => other,
    };
    let texts = [
        ("id", told.job.id.to_string()),
        ("slots", ranges_of(told)),
        ("source", told.nodes.0.to_string()),
        ("dest", told.nodes.1.to_string()),
        ("operation", if told.is_export { "migrate" } else { "import" }.to_owned()),
        ("state", state.to_owned()),
        ("last_error", progress.obstacle.clone()),
        ("retries", progress.retries.to_string()),
    ];
    let numbers = [
        ("create_time", told.job.since_s * 1000),
        ("start_time", told.job.since_s * 1000),
        ("end_time", told.until_s * 1000),
        ("write_pause_ms", progress.pause_ms),
        ("sent_bytes", progress.sent_bytes),
        ("rate", told.job.rate),
    ];
    reply.map(texts.len() + numbers.len() + 1);
    texts.iter().for_each(|(name, text)| write_text(reply, name, text));
    numbers.iter().for_each(|&(name, number)| write_number(reply, name, number));
    reply.bulk(b"priority");
    reply.integer(i64::from(told.job.priority));
}

fn write(cx: &mut Cx<'_>, told: &Told) {
    let now_s = u64::try_from(cx.now().0 / 1000).unwrap_or(0);
    let until_s = if told.until_s == 0 { now_s } else { told.until_s };
    let reply = &mut cx.reply;
    let texts = [
        ("name", told.job.id.to_string()),
        ("operation", if told.is_export { "EXPORT" } else { "IMPORT" }.to_owned()),
        ("slot_ranges", ranges_of(told)),
        ("target_node", told.nodes.1.to_string()),
        ("source_node", told.nodes.0.to_string()),
    ];
    let times = [
        ("create_time", told.job.since_s),
        ("last_update_time", until_s),
        ("last_ack_time", told.progress.answered_s),
    ];
    reply.map(12);
    texts.iter().for_each(|(name, text)| write_text(reply, name, text));
    times.iter().for_each(|&(name, number)| write_number(reply, name, number));
    // Its target does not tell a job that was cancelled from one that has failed, in Valkey.
    let state = match told.state {
        "cancelled" if !told.is_export && told.until_s > 0 => "failed",
        "cancelled" if !told.is_export => "clearing",
        other => other,
    };
    write_text(reply, "state", state);
    write_text(reply, "message", &told.progress.obstacle);
    write_number(reply, "cow_size", 0);
    write_number(reply, "remaining_repl_size", told.progress.lag_bytes);
}

fn write_text(reply: &mut Reply<'_>, name: &str, text: &str) {
    reply.bulk(name.as_bytes());
    reply.bulk(text.as_bytes());
}

fn write_number(reply: &mut Reply<'_>, name: &str, number: u64) {
    reply.bulk(name.as_bytes());
    reply.integer(number as i64);
}

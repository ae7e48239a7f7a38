//! `XINFO CONSUMERS|GROUPS|HELP|STREAM`

use super::{entries, ids, no_such_group};
use crate::table::wrong_subcommand;
use engine::{
    Arg, ArgKind, Args, Command, Cx, Db, Effort, Error, Flags, Group, KeyFlags, KeySpec, Outcome,
};
use resp::Reply;
use std::ops::ControlFlow;
use structs::stream::{self, Idempotency, Range, Stream, StreamId, UNKNOWN_READS};

/// `XINFO`.
pub static XINFO: Command = Command {
    name: "xinfo",
    arity: -2,
    flags: Flags::NONE,
    group: Group::Stream,
    since: "5.0.0",
    complexity: "That of the subcommand",
    summary: "The commands that look into a stream.",
    subcommands: &[&XINFO_CONSUMERS, &XINFO_GROUPS, &XINFO_HELP, &XINFO_STREAM],
    help: HELP,
    ..Command::ROW
};

/// `XINFO CONSUMERS`.
pub static XINFO_CONSUMERS: Command = Command {
    name: "consumers",
    arity: 4,
    flags: Flags::READONLY,
    keys: &[KeySpec::at(2, KeyFlags::RO.with(KeyFlags::ACCESS))],
    group: Group::Stream,
    since: "5.0.0",
    complexity: "O(1)",
    summary: "The consumers of a group.",
    history: &[("7.2.0", "The reply has `inactive`; `idle` counts from the last attempt.")],
    tips: &["nondeterministic_output"],
    args: &[Arg::key("key", 0), Arg::new("group", ArgKind::String)],
    run: xinfo_consumers,
    ..Command::ROW
};

/// `XINFO GROUPS`.
pub static XINFO_GROUPS: Command = Command {
    name: "groups",
    arity: 3,
    flags: Flags::READONLY,
    keys: &[KeySpec::at(2, KeyFlags::RO.with(KeyFlags::ACCESS))],
    group: Group::Stream,
    since: "5.0.0",
    complexity: "O(1)",
    summary: "The groups of a stream.",
    history: &[("7.0.0", "The reply has `entries-read` and `lag`.")],
    args: &[Arg::key("key", 0)],
    run: xinfo_groups,
    ..Command::ROW
};

/// `XINFO HELP`.
pub static XINFO_HELP: Command = Command {
    name: "help",
    arity: 2,
    flags: Flags::LOADING.with(Flags::STALE),
    group: Group::Stream,
    since: "5.0.0",
    complexity: "O(1)",
    summary: "Lists the subcommands.",
    run: crate::table::help,
    ..Command::ROW
};

/// `XINFO STREAM`.
pub static XINFO_STREAM: Command = Command {
    name: "stream",
    arity: -3,
    flags: Flags::READONLY,
    keys: &[KeySpec::at(2, KeyFlags::RO.with(KeyFlags::ACCESS))],
    group: Group::Stream,
    since: "5.0.0",
    complexity: "O(1)",
    effort: Effort::Estimate(effort),
    summary: "What is known about a stream.",
    history: &[
        ("6.0.0", "Takes `FULL`."),
        (
            "7.0.0",
            "The reply has `max-deleted-entry-id`, `entries-added`, `recorded-first-entry-id`, `entries-read` and `lag`.",
        ),
        ("7.2.0", "The reply has `active-time`; `seen-time` is that of the last attempt."),
    ],
    args: &[
        Arg::key("key", 0),
        Arg::block(
            "full-block",
            &[
                Arg::token("full", "FULL"),
                Arg::new("count", ArgKind::Integer).after("COUNT").optional(),
            ],
        )
        .optional(),
    ],
    run: xinfo_stream,
    ..Command::ROW
};

/// What HELP says.
const HELP: &[&str] = &[
    "CONSUMERS <key> <groupname>",
    "    Show consumers of <groupname>.",
    "GROUPS <key>",
    "    Show the stream consumer groups.",
    "STREAM <key> [FULL [COUNT <count>]",
    "    Show information about the stream.",
];

fn xinfo_consumers(cx: &mut Cx<'_>, args: Args<'_>) -> Outcome {
    let now = cx.now().0;
    let Cx { db, reply, .. } = cx;
    let stream = db.read::<Stream>(args.key(2))?.ok_or(Error::NoSuchKey)?;
    let group = stream.group(args[3]).ok_or_else(|| no_such_group(args[2], args[3]))?;
    reply.array(group.consumer_count());
    for consumer in group.consumers() {
        let inactive = match consumer.active_time {
            -1 => -1,
            time => now - time,
        };
        reply.map(4);
        reply.bulk(b"name");
        reply.bulk(&consumer.name);
        integer(reply, "pending", consumer.pending_count() as i64);
        integer(reply, "idle", (now - consumer.seen_time).max(0));
        integer(reply, "inactive", inactive);
    }
    Ok(())
}

fn xinfo_groups(cx: &mut Cx<'_>, args: Args<'_>) -> Outcome {
    let Cx { db, reply, .. } = cx;
    let stream = db.read::<Stream>(args.key(2))?.ok_or(Error::NoSuchKey)?;
    reply.array(stream.groups().len());
    for (name, group) in stream.groups() {
        reply.map(6);
        reply.bulk(b"name");
        reply.bulk(name);
        integer(reply, "consumers", group.consumer_count() as i64);
        integer(reply, "pending", group.pending_count() as i64);
        id(reply, "last-delivered-id", group.last_id);
        write_progress(reply, stream, group);
    }
    Ok(())
}

fn integer(reply: &mut Reply<'_>, name: &str, number: i64) {
    reply.bulk(name.as_bytes());
    reply.integer(number);
}

fn id(reply: &mut Reply<'_>, name: &str, id: StreamId) {
    reply.bulk(name.as_bytes());
    ids::write(reply, id);
}

/// `entries-read` and `lag`.
fn write_progress(reply: &mut Reply<'_>, stream: &Stream, group: &stream::Group) {
    reply.bulk(b"entries-read");
    match group.entries_read {
        UNKNOWN_READS => reply.null(),
        reads => reply.integer(reads),
    }
    reply.bulk(b"lag");
    match stream.counters().lag(group.last_id, group.entries_read) {
        Some(lag) => reply.integer(lag),
        None => reply.null(),
    }
}

/// `[FULL [COUNT count]]`: how many of each list are shown, 0 for all; `None` without FULL.
fn parse(args: Args<'_>) -> Result<Option<usize>, Option<Error>> {
    match args.len() {
        3 => Ok(None),
        4 if args.is(3, "full") => Ok(Some(10)),
        6 if args.is(3, "full") && args.is(4, "count") => {
            let count = args.integer(5).map_err(Some)?;
            Ok(Some(usize::try_from(count).unwrap_or(10)))
        }
        _ => Err(None),
    }
}

/// How much FULL shows.
fn effort(db: &Db<'_>, args: Args<'_>) -> usize {
    let Ok(Some(count)) = parse(args) else { return 0 };
    let most = if count == 0 { usize::MAX } else { count };
    let Some(stream) = db.lookup_no_effects(args.key(2)).and_then(|entry| entry.object::<Stream>())
    else {
        return 0;
    };
    let of_groups: usize = stream
        .groups()
        .map(|(_, group)| 2 * group.pending_count().min(most) + 10 * group.consumer_count())
        .sum();
    (stream.len().min(most) + of_groups).saturating_mul(6)
}

fn xinfo_stream(cx: &mut Cx<'_>, args: Args<'_>) -> Outcome {
    // A key that is not there is told of before options that are wrong.
    cx.db.read::<Stream>(args.key(2))?.ok_or(Error::NoSuchKey)?;
    let full =
        parse(args).map_err(|error| error.unwrap_or_else(|| wrong_subcommand("XINFO", args)))?;
    let Cx { db, reply, .. } = cx;
    let now_ms = db.now().0;
    let Some(stream) = db.object_for_write::<Stream>(args.key(2))? else { return Ok(()) };
    let idempotency = stream.idempotency();
    let shown = if idempotency.is_some() { 6 } else { 0 };
    reply.map(shown + if full.is_some() { 9 } else { 10 });
    let counters = stream.counters();
    integer(reply, "length", counters.length as i64);
    integer(reply, "radix-tree-keys", stream.block_count() as i64);
    integer(reply, "radix-tree-nodes", radix_nodes(stream) as i64);
    id(reply, "last-generated-id", counters.last_id);
    id(reply, "max-deleted-entry-id", counters.max_deleted_id);
    integer(reply, "entries-added", counters.entries_added as i64);
    id(reply, "recorded-first-entry-id", counters.first_id);
    if let Some(ids) = idempotency {
        write_idempotency(reply, ids, now_ms);
    }
    match full {
        None => write_summary(reply, stream),
        Some(0) => write_full(reply, stream, usize::MAX),
        Some(count) => write_full(reply, stream, count),
    }
    Ok(())
}

fn write_idempotency(reply: &mut Reply<'_>, ids: &Idempotency, now_ms: i64) {
    let (producers, messages) = ids.counts(now_ms);
    integer(reply, "idmp-duration", ids.duration_s.into());
    integer(reply, "idmp-maxsize", ids.max_ids.into());
    integer(reply, "pids-tracked", producers as i64);
    integer(reply, "iids-tracked", messages as i64);
    integer(reply, "iids-added", ids.added as i64);
    integer(reply, "iids-duplicates", ids.duplicates as i64);
}

fn write_summary(reply: &mut Reply<'_>, stream: &Stream) {
    integer(reply, "groups", stream.groups().len() as i64);
    for (name, is_last) in [("first-entry", false), ("last-entry", true)] {
        reply.bulk(name.as_bytes());
        let is_shown =
            stream.edge(is_last).is_some_and(|id| entries::write_if_there(reply, stream, id));
        if !is_shown {
            reply.null();
        }
    }
}

fn write_full(reply: &mut Reply<'_>, stream: &Stream, count: usize) {
    reply.bulk(b"entries");
    entries::write_range(reply, stream, Range::ALL, count);
    reply.bulk(b"groups");
    reply.array(stream.groups().len());
    for (name, group) in stream.groups() {
        reply.map(7);
        reply.bulk(b"name");
        reply.bulk(name);
        id(reply, "last-delivered-id", group.last_id);
        write_progress(reply, stream, group);
        integer(reply, "pel-count", group.pending_count() as i64);
        reply.bulk(b"pending");
        reply.array(group.pending_count().min(count));
        first(group, count, |pending| {
            reply.array(4);
            ids::write(reply, pending.id);
            reply.bulk(group.owner(pending));
            reply.integer(pending.time);
            reply.integer(pending.deliveries as i64);
        });
        reply.bulk(b"consumers");
        reply.array(group.consumer_count());
        group.consumers().for_each(|consumer| write_consumer(reply, group, consumer, count));
    }
}

/// The first few pending entries of a group.
fn first(group: &stream::Group, count: usize, mut show: impl FnMut(&stream::Pending)) {
    let mut shown = 0;
    group.walk(StreamId::MIN, i64::MAX, |pending| {
        if shown == count {
            return ControlFlow::Break(());
        }
        shown += 1;
        show(pending);
        ControlFlow::Continue(())
    });
}

fn write_consumer(
    reply: &mut Reply<'_>,
    group: &stream::Group,
    consumer: &stream::Consumer,
    count: usize,
) {
    reply.map(5);
    reply.bulk(b"name");
    reply.bulk(&consumer.name);
    integer(reply, "seen-time", consumer.seen_time);
    integer(reply, "active-time", consumer.active_time);
    integer(reply, "pel-count", consumer.pending_count() as i64);
    reply.bulk(b"pending");
    reply.array(consumer.pending_count().min(count));
    let mut shown = 0;
    consumer.walk(StreamId::MIN, i64::MAX, |id| {
        let Some(pending) = group.pending(id).filter(|_| shown < count) else {
            return ControlFlow::Break(());
        };
        shown += 1;
        reply.array(3);
        ids::write(reply, id);
        reply.integer(pending.time);
        reply.integer(pending.deliveries as i64);
        ControlFlow::Continue(())
    });
}

/// Blocks up to which the nodes of the reference implementation's radix tree are counted. Beyond,
/// their number is estimated: it would take long to find out, and tells users nothing.
const COUNTED: usize = 10_000;

/// The nodes that the reference implementation's radix tree would have.
fn radix_nodes(stream: &Stream) -> usize {
    let blocks = stream.block_count();
    if blocks > COUNTED {
        return 2 * blocks + blocks / 64;
    }
    let (mut tree, mut before) = (RadixNodes::default(), None);
    stream.for_each_block_id(|id| {
        let key = id.to_bytes();
        if let Some(before) = before.replace(key) {
            tree.branch(before.iter().zip(key).take_while(|&(&a, b)| a == b).count());
        }
    });
    if before.is_none() { 1 } else { tree.finish() }
}

/// Counts the nodes of a radix tree over sorted keys of 16 bytes, by where neighbours part.
#[derive(Default)]
struct RadixNodes {
    nodes: usize,
    /// Depths at which the way to the last key branches.
    branches: Vec<usize>,
    /// Where the last key parted from the one before.
    last: Option<usize>,
}

/// Bytes of a key.
const DEPTH: usize = 16;

impl RadixNodes {
    /// The next key parts from the last one here.
    fn branch(&mut self, depth: usize) {
        self.leaf(Some(depth));
        while self.branches.last().is_some_and(|&top| top > depth) {
            let top = self.branches.pop().unwrap_or(depth);
            let above = self.branches.last().map_or(depth, |&above| above.max(depth));
            self.node(Some(above), top);
        }
        if self.branches.last() != Some(&depth) {
            self.branches.push(depth);
        }
        self.last = Some(depth);
    }

    /// A branch at a depth, and what lies between it and the one above.
    fn node(&mut self, above: Option<usize>, depth: usize) {
        let between = above.map_or(depth, |above| depth - above - 1);
        self.nodes += 1 + usize::from(between > 0);
    }

    /// The end of the last key.
    fn leaf(&mut self, next: Option<usize>) {
        self.node(self.last.max(next), DEPTH);
    }

    fn finish(mut self) -> usize {
        self.leaf(None);
        while let Some(depth) = self.branches.pop() {
            self.node(self.branches.last().copied(), depth);
        }
        self.nodes
    }
}

//! `XPENDING key group [[IDLE min-idle-time] start end count [consumer]]`

use super::ids;
use super::xnack::NOBODY;
use engine::{
    Arg, ArgKind, Args, Command, Cx, Db, Effort, Error, Flags, Group, KeyFlags, KeySpec, Outcome,
};
use resp::Reply;
use std::ops::ControlFlow;
use structs::stream::{self, Stream, StreamId};

/// `XPENDING`.
pub static XPENDING: Command = Command {
    name: "xpending",
    arity: -3,
    flags: Flags::READONLY,
    keys: &[KeySpec::one(KeyFlags::RO.with(KeyFlags::ACCESS))],
    group: Group::Stream,
    since: "5.0.0",
    complexity: "O(N) for N entries that are looked at, or N consumers of a summary",
    effort: Effort::Estimate(asked),
    summary: "Entries that consumers have got and not acknowledged.",
    history: &[("6.2.0", "Takes `IDLE`; ends of ranges may be exclusive.")],
    tips: &["nondeterministic_output"],
    args: &[
        Arg::key("key", 0),
        Arg::new("group", ArgKind::String),
        Arg::block(
            "filters",
            &[
                Arg::new("min-idle-time", ArgKind::Integer).after("IDLE").optional().since("6.2.0"),
                Arg::new("start", ArgKind::String),
                Arg::new("end", ArgKind::String),
                Arg::new("count", ArgKind::Integer),
                Arg::new("consumer", ArgKind::String).optional(),
            ],
        )
        .optional(),
    ],
    run: xpending,
    ..Command::ROW
};

/// What is asked for, beyond a summary.
struct Filter<'a> {
    min_idle: i64,
    start: StreamId,
    end: StreamId,
    count: usize,
    consumer: Option<&'a [u8]>,
}

fn parse(args: Args<'_>) -> Result<Option<Filter<'_>>, Error> {
    if args.len() == 3 {
        return Ok(None);
    }
    if args.len() < 6 || args.len() > 9 {
        return Err(Error::Syntax);
    }
    let (mut at, mut min_idle) = (3, 0);
    if args.is(3, "idle") {
        min_idle = args.integer(4)?;
        if args.len() < 8 {
            return Err(Error::Syntax);
        }
        at = 5;
    }
    let count = usize::try_from(args.integer(at + 2)?).unwrap_or(0);
    let (start, end) = (ids::start(args[at])?, ids::end(args[at + 1])?);
    Ok(Some(Filter { min_idle, start, end, count, consumer: args.get(at + 3) }))
}

/// How many entries may be listed.
fn asked(_: &Db<'_>, args: Args<'_>) -> usize {
    parse(args).ok().flatten().map_or(0, |filter| filter.count.saturating_mul(8))
}

fn xpending(cx: &mut Cx<'_>, args: Args<'_>) -> Outcome {
    let filter = parse(args)?;
    let now = cx.now().0;
    let Cx { db, reply, .. } = cx;
    let stream = db.read::<Stream>(args.key(1))?;
    let Some(group) = stream.and_then(|stream| stream.group(args[2])) else {
        return Err(super::no_key_or_group(args[1], args[2]));
    };
    match filter {
        None => summary(reply, group),
        Some(filter) => list(reply, group, &filter, now),
    }
    Ok(())
}

fn summary(reply: &mut Reply<'_>, group: &stream::Group) {
    reply.array(4);
    reply.integer(group.pending_count() as i64);
    let Some((first, last)) = group.first_pending().zip(group.last_pending()) else {
        reply.null();
        reply.null();
        return reply.null_array();
    };
    ids::write(reply, first.id);
    ids::write(reply, last.id);
    let place = reply.deferred();
    let mut count = 0;
    for consumer in group.consumers().filter(|consumer| consumer.pending_count() > 0) {
        reply.array(2);
        reply.bulk(&consumer.name);
        reply.bulk_integer(consumer.pending_count() as i64);
        count += 1;
    }
    reply.finish_array(place, count);
}

fn list(reply: &mut Reply<'_>, group: &stream::Group, filter: &Filter<'_>, now: i64) {
    let bound = if filter.min_idle == 0 { i64::MAX } else { now.saturating_sub(filter.min_idle) };
    let place = reply.deferred();
    let mut count = 0;
    let mut show = |pending: &stream::Pending| {
        if count == filter.count || pending.id > filter.end {
            return ControlFlow::Break(());
        }
        reply.array(4);
        ids::write(reply, pending.id);
        let owner = group.owner(pending);
        reply.bulk(owner);
        let is_released = owner == NOBODY && pending.time == 0;
        reply.integer(if is_released { -1 } else { (now - pending.time).max(0) });
        reply.integer(pending.deliveries as i64);
        count += 1;
        ControlFlow::Continue(())
    };
    match filter.consumer {
        None => group.walk(filter.start, bound, show),
        Some(name) => {
            if let Some(consumer) = group.find_consumer(name).and_then(|at| group.consumer_at(at)) {
                consumer.walk(filter.start, bound, |id| {
                    group.pending(id).map_or(ControlFlow::Continue(()), &mut show)
                });
            }
        }
    }
    reply.finish_array(place, count);
}

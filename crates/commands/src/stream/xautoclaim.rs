//! `XAUTOCLAIM key group consumer min-idle-time start [COUNT count] [JUSTID]`

use super::{claim_effect, entries, ids};
use engine::{
    Arg, ArgKind, Args, Class, Command, Cx, Db, Effort, Error, Flags, Group, KeyFlags, KeySpec,
    Outcome, event,
};
use resp::Reply;
use structs::numbers::parse_i64;
use structs::stream::{Pending, Stream, StreamId};

/// `XAUTOCLAIM`.
pub static XAUTOCLAIM: Command = Command {
    name: "xautoclaim",
    arity: -6,
    flags: Flags::WRITE.with(Flags::FAST),
    keys: &[KeySpec::one(KeyFlags::RW.with(KeyFlags::DELETE))],
    group: Group::Stream,
    since: "6.2.0",
    complexity: "O(N) for a count of N",
    effort: Effort::Estimate(effort),
    summary: "Takes over entries that others have left lying, in steps.",
    history: &[("7.0.0", "The reply names pending entries that were gone and are forgotten.")],
    tips: &["nondeterministic_output"],
    args: &[
        Arg::key("key", 0),
        Arg::new("group", ArgKind::String),
        Arg::new("consumer", ArgKind::String),
        Arg::new("min-idle-time", ArgKind::String),
        Arg::new("start", ArgKind::String),
        Arg::new("count", ArgKind::Integer).after("COUNT").optional(),
        Arg::token("justid", "JUSTID").optional(),
    ],
    run: xautoclaim,
    ..Command::ROW
};

/// Pending entries that are looked at for each that may be claimed.
const ATTEMPTS: usize = 10;

struct XautoclaimOptions {
    min_idle: i64,
    start: StreamId,
    count: usize,
    just_id: bool,
}

fn parse(args: Args<'_>) -> Result<XautoclaimOptions, Error> {
    let min_idle = args.get(4).and_then(parse_i64);
    let min_idle =
        min_idle.ok_or(Error::text("ERR Invalid min-idle-time argument for XAUTOCLAIM"))?.max(0);
    let mut options =
        XautoclaimOptions { min_idle, start: ids::start(args[5])?, count: 100, just_id: false };
    let mut at = 6;
    while at < args.len() {
        if args.is(at, "count") && at + 1 < args.len() {
            let most = i64::MAX / 16;
            options.count = args.integer_in(at + 1, 1..=most, "COUNT must be > 0")? as usize;
            at += 1;
        } else if args.is(at, "justid") {
            options.just_id = true;
        } else {
            return Err(Error::Syntax);
        }
        at += 1;
    }
    Ok(options)
}

fn effort(db: &Db<'_>, args: Args<'_>) -> usize {
    let stream = db.lookup_no_effects(args.key(1)).and_then(|entry| entry.object::<Stream>());
    let pending = stream.and_then(|stream| stream.group(args[2]));
    let most = pending.map_or(0, structs::stream::Group::pending_count);
    parse(args).map_or(0, |options| options.count.min(most).saturating_mul(16))
}

/// What came of it.
#[derive(Default)]
struct Done {
    is_consumer_new: bool,
    claimed: Vec<StreamId>,
    dropped: Vec<Pending>,
    /// Where the next call is to begin.
    next: StreamId,
}

fn xautoclaim(cx: &mut Cx<'_>, args: Args<'_>) -> Outcome {
    let options = parse(args)?;
    let (key, name, now) = (args.key(1), args[2], cx.now().0);
    let is_there = cx.db.read::<Stream>(key)?.is_some_and(|stream| stream.group(name).is_some());
    if !is_there {
        return Err(super::no_key_or_group(args[1], name));
    }
    let Cx { db, reply, .. } = cx;
    let Some(stream) = db.write::<Stream>(key)? else { return Ok(()) };
    let done = claim(stream, name, args[3], &options, now);
    reply.array(3);
    ids::write(reply, done.next);
    write_claimed(reply, stream, &done.claimed, options.just_id);
    reply.array(done.dropped.len());
    done.dropped.iter().for_each(|pending| ids::write(reply, pending.id));
    report(cx, args, &done);
    Ok(())
}

fn write_claimed(reply: &mut Reply<'_>, stream: &Stream, claimed: &[StreamId], just_id: bool) {
    reply.array(claimed.len());
    for &id in claimed {
        if just_id {
            ids::write(reply, id);
        } else {
            entries::write_if_there(reply, stream, id);
        }
    }
}

fn claim(
    stream: &mut Stream,
    name: &[u8],
    consumer: &[u8],
    options: &XautoclaimOptions,
    now: i64,
) -> Done {
    let mut done = Done::default();
    let Some(group) = stream.group_mut(name) else { return done };
    let number = group.find_consumer(consumer).or_else(|| {
        done.is_consumer_new = true;
        group.create_consumer(consumer, now)
    });
    let Some(number) = number else { return done };
    if let Some(consumer) = group.consumer_at_mut(number) {
        consumer.seen_time = now;
    }
    let (mut from, mut attempts) = (Some(options.start), options.count.saturating_mul(ATTEMPTS));
    while attempts > 0 && done.claimed.len() + done.dropped.len() < options.count {
        let pending =
            stream.group(name).zip(from).and_then(|(group, from)| group.next_pending(from));
        let Some(&pending) = pending else { break };
        attempts -= 1;
        from = pending.id.next();
        let is_deleted = !stream.contains(pending.id);
        let Some(group) = stream.group_mut(name) else { break };
        if is_deleted {
            group.acknowledge(pending.id);
            done.dropped.push(pending);
        } else if options.min_idle == 0 || now - pending.time >= options.min_idle {
            let deliveries = pending.deliveries.wrapping_add(u64::from(!options.just_id));
            group.assign(pending.id, number, now, deliveries);
            if let Some(consumer) = group.consumer_at_mut(number) {
                consumer.active_time = now;
            }
            done.claimed.push(pending.id);
        }
    }
    let next = stream.group(name).zip(from).and_then(|(group, from)| group.next_pending(from));
    done.next = next.map_or(StreamId::MIN, |pending| pending.id);
    done
}

fn report(cx: &mut Cx<'_>, args: Args<'_>, done: &Done) {
    let (key, name) = (args.key(1), args[2]);
    if done.is_consumer_new {
        cx.db.notify(key, event(Class::STREAM, "xgroup-createconsumer"));
    }
    let changes = done.claimed.len() + done.dropped.len() + usize::from(done.is_consumer_new);
    cx.db.add_dirty(changes as u64);
    super::propagate_claims(cx, key, name, |p, group| {
        if done.is_consumer_new {
            p.command(&[b"XGROUP", b"CREATECONSUMER", key.bytes, name, args[3]]);
        }
        for pending in &done.dropped {
            claim_effect(p, key.bytes, name, group, pending);
        }
        for pending in done.claimed.iter().filter_map(|&id| group.pending(id)) {
            claim_effect(p, key.bytes, name, group, pending);
        }
    });
}

//! `XCLAIM key group consumer min-idle-time id [id …] [IDLE ms] [TIME ms] [RETRYCOUNT count]
//! [FORCE] [JUSTID] [LASTID id]`

use super::{claim_effect, entries, ids, last_id_effect};
use engine::{
    Arg, ArgKind, Args, Class, Command, Cx, Effort, Error, Flags, Group, KeyFlags, KeySpec,
    Outcome, event,
};
use structs::numbers::parse_i64;
use structs::stream::{Pending, Stream, StreamId};

/// `XCLAIM`.
pub static XCLAIM: Command = Command {
    name: "xclaim",
    arity: -6,
    flags: Flags::WRITE.with(Flags::FAST),
    keys: &[KeySpec::one(KeyFlags::RW.with(KeyFlags::UPDATE))],
    group: Group::Stream,
    since: "5.0.0",
    complexity: "O(M*log(N)) for M entries of a group with N pending ones",
    effort: Effort::Words(40),
    summary: "Takes over entries that were given to another consumer.",
    tips: &["nondeterministic_output"],
    args: &[
        Arg::key("key", 0),
        Arg::new("group", ArgKind::String),
        Arg::new("consumer", ArgKind::String),
        Arg::new("min-idle-time", ArgKind::String),
        Arg::new("id", ArgKind::String).multiple(),
        Arg::new("ms", ArgKind::Integer).after("IDLE").optional(),
        Arg::new("unix-time-milliseconds", ArgKind::UnixTime).after("TIME").optional(),
        Arg::new("count", ArgKind::Integer).after("RETRYCOUNT").optional(),
        Arg::token("force", "FORCE").optional(),
        Arg::token("justid", "JUSTID").optional(),
        Arg::new("lastid", ArgKind::String).after("LASTID").optional(),
    ],
    run: xclaim,
    ..Command::ROW
};

/// The options behind the IDs.
#[derive(Default)]
struct XclaimOptions {
    min_idle: i64,
    ids: Vec<StreamId>,
    /// When the entries are to have been delivered.
    time: Option<i64>,
    deliveries: Option<u64>,
    is_forced: bool,
    just_id: bool,
    last_id: StreamId,
}

fn integer(args: Args<'_>, at: usize, what: &str) -> Result<i64, Error> {
    args.get(at)
        .and_then(parse_i64)
        .ok_or_else(|| Error::format(format!("ERR Invalid {what} argument for XCLAIM")))
}

fn parse(args: Args<'_>, now: i64) -> Result<XclaimOptions, Error> {
    let min_idle = integer(args, 4, "min-idle-time")?.max(0);
    let mut options = XclaimOptions { min_idle, ..XclaimOptions::default() };
    let mut at = 5;
    while let Some(id) = args.get(at).and_then(|word| ids::strict(word, 0).ok()) {
        options.ids.push(id);
        at += 1;
    }
    while at < args.len() {
        let has_more = at + 1 < args.len();
        if args.is(at, "force") {
            options.is_forced = true;
        } else if args.is(at, "justid") {
            options.just_id = true;
        } else if has_more && args.is(at, "idle") {
            at += 1;
            options.time = Some(now.wrapping_sub(integer(args, at, "IDLE option")?));
        } else if has_more && args.is(at, "time") {
            at += 1;
            options.time = Some(integer(args, at, "TIME option")?);
        } else if has_more && args.is(at, "retrycount") {
            at += 1;
            options.deliveries = u64::try_from(integer(args, at, "RETRYCOUNT option")?).ok();
        } else if has_more && args.is(at, "lastid") {
            at += 1;
            options.last_id = ids::strict(args[at], 0)?;
        } else {
            let text = [b"ERR Unrecognized XCLAIM option '".as_slice(), args[at], b"'"].concat();
            return Err(Error::Bytes(text));
        }
        at += 1;
    }
    // A client's clock may be ahead of ours.
    options.time = options.time.map(|time| if time < 0 || time > now { now } else { time });
    Ok(options)
}

/// What has been claimed, or found to be gone.
#[derive(Default)]
struct Done {
    is_consumer_new: bool,
    claimed: Vec<StreamId>,
    /// As they were; the journal tells of them so that they go elsewhere, too.
    dropped: Vec<Pending>,
    moves_last_id: bool,
}

fn xclaim(cx: &mut Cx<'_>, args: Args<'_>) -> Outcome {
    let (key, name, now) = (args.key(1), args[2], cx.now().0);
    let is_there = cx.db.read::<Stream>(key)?.is_some_and(|stream| stream.group(name).is_some());
    if !is_there {
        return Err(super::no_key_or_group(args[1], name));
    }
    let options = parse(args, now)?;
    let Cx { db, reply, .. } = cx;
    let Some(stream) = db.write::<Stream>(key)? else { return Ok(()) };
    let mut done = Done::default();
    let place = reply.deferred();
    let consumer = begin(stream, name, args[3], &options, now, &mut done);
    let mut count = 0;
    for &id in consumer.is_some().then_some(&options.ids).into_iter().flatten() {
        let Some(number) = consumer else { break };
        if claim(stream, name, number, id, &options, now, &mut done) {
            if options.just_id {
                ids::write(reply, id);
            } else {
                entries::write_if_there(reply, stream, id);
            }
            count += 1;
        }
    }
    reply.finish_array(place, count);
    report(cx, args, &done);
    Ok(())
}

/// Finds or makes the consumer, and moves the group's last ID.
fn begin(
    stream: &mut Stream,
    name: &[u8],
    consumer: &[u8],
    options: &XclaimOptions,
    now: i64,
    done: &mut Done,
) -> Option<usize> {
    let group = stream.group_mut(name)?;
    if options.last_id > group.last_id {
        group.last_id = options.last_id;
        done.moves_last_id = true;
    }
    let number = group.find_consumer(consumer).or_else(|| {
        done.is_consumer_new = true;
        group.create_consumer(consumer, now)
    })?;
    group.consumer_at_mut(number)?.seen_time = now;
    Some(number)
}

/// Claims one entry; says whether it did.
fn claim(
    stream: &mut Stream,
    name: &[u8],
    number: usize,
    id: StreamId,
    options: &XclaimOptions,
    now: i64,
    done: &mut Done,
) -> bool {
    let is_deleted = !stream.contains(id);
    let Some(group) = stream.group_mut(name) else { return false };
    let old = group.pending(id).copied();
    if is_deleted {
        if let Some(old) = old {
            group.acknowledge(id);
            done.dropped.push(old);
        }
        return false;
    }
    let is_young = old.is_some_and(|old| options.min_idle > 0 && now - old.time < options.min_idle);
    if is_young || (old.is_none() && !options.is_forced) {
        return false;
    }
    let before = old.map_or(1, |old| old.deliveries);
    let again = if options.just_id { before } else { before.wrapping_add(1) };
    let deliveries = options.deliveries.unwrap_or(again);
    group.assign(id, number, options.time.unwrap_or(now), deliveries);
    if let Some(consumer) = group.consumer_at_mut(number) {
        consumer.active_time = now;
    }
    done.claimed.push(id);
    true
}

fn report(cx: &mut Cx<'_>, args: Args<'_>, done: &Done) {
    let (key, name) = (args.key(1), args[2]);
    if done.is_consumer_new {
        cx.db.notify(key, event(Class::STREAM, "xgroup-createconsumer"));
    }
    let entries = done.claimed.len() + done.dropped.len();
    let moves_alone = entries == 0 && done.moves_last_id;
    let changes = entries + usize::from(done.is_consumer_new) + usize::from(moves_alone);
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
        if moves_alone {
            last_id_effect(p, key.bytes, name, group.last_id, group.entries_read);
        }
    });
}

//! `XREADGROUP GROUP group consumer [COUNT count] [BLOCK milliseconds] [CLAIM min-idle] [NOACK]
//! STREAMS key [key …] id [id …]`
//!
//! `>` asks for entries that no consumer of the group has got; any other ID for those that are
//! pending at this consumer. With CLAIM, `>` first takes over entries that have been pending for so
//! long, the longest first; the reply then says of each entry how long that was and how often it
//! had been delivered.

use super::read_options::{self, StreamReadOptions, names_block};
use super::xread::{begin_key, effort, finish};
use super::{aside, entries, ids, last_id_effect};
use engine::blocking::TimeoutReply;
use engine::journal::Effect;
use engine::routing::Routing;
use engine::{
    Arg, ArgKind, Args, Begin, Class, Command, Cx, Effort, Error, Find, Flags, Group, Key,
    KeyFlags, KeySpec, Outcome, event,
};
use resp::Reply;
use std::collections::BTreeSet;
use std::ops::ControlFlow;
use structs::stream::{Delivery, Stream, StreamId};

/// `XREADGROUP`.
pub static XREADGROUP: Command = Command {
    name: "xreadgroup",
    arity: -7,
    flags: Flags::WRITE.with(Flags::BLOCKING).with(Flags::NOTICES_LOSS),
    keys: &[KeySpec::new(
        KeyFlags::RO.with(KeyFlags::ACCESS),
        Begin::Keyword("STREAMS", 4),
        Find::Range { last: -1, step: 1, limit: 2 },
    )],
    group: Group::Stream,
    since: "5.0.0",
    complexity: "O(N) for N entries in the reply; a client that waits is served by XADD",
    effort: Effort::Estimate(effort),
    summary: "Entries for a consumer of a group; can wait for some.",
    args: &[
        Arg::block(
            "group-block",
            &[Arg::new("group", ArgKind::String), Arg::new("consumer", ArgKind::String)],
        )
        .after("GROUP"),
        Arg::new("count", ArgKind::Integer).after("COUNT").optional(),
        Arg::new("milliseconds", ArgKind::Integer).after("BLOCK").optional(),
        Arg::token("noack", "NOACK").optional(),
        Arg::block(
            "streams",
            &[Arg::key("key", 0).multiple(), Arg::new("id", ArgKind::String).multiple()],
        )
        .after("STREAMS"),
    ],
    routing: Routing::USUAL.waits_if(names_block),
    run: xreadgroup,
    ..Command::ROW
};

/// What is asked of one stream.
#[derive(Clone, Copy)]
enum Wanted {
    /// `>`.
    New,
    /// What is pending at the consumer, after this ID.
    History(StreamId),
}

/// One stream's part of the request.
struct Part<'a> {
    key: Key<'a>,
    group: &'a [u8],
    consumer: &'a [u8],
    wanted: Wanted,
    count: usize,
    no_ack: bool,
    claim_idle: Option<i64>,
    now: i64,
}

/// What was done to a group, for the journal.
#[derive(Default)]
struct Done {
    is_consumer_new: bool,
    /// Entries that were delivered for the first time.
    delivered: Vec<StreamId>,
    /// Entries that were taken over, and how often they have been delivered.
    claimed: Vec<(StreamId, u64)>,
    /// Pending entries that were found to be deleted.
    dropped: Vec<StreamId>,
    entries: usize,
    last_id: StreamId,
    entries_read: i64,
}

fn xreadgroup(cx: &mut Cx<'_>, args: Args<'_>) -> Outcome {
    let options = read_options::parse(cx, args, true)?;
    let parts = parts(cx, args, &options)?;
    let place = cx.reply.deferred();
    let mut served = 0;
    for part in &parts {
        served += usize::from(serve(cx, part)?);
    }
    if served > 0 {
        finish(cx, place, served);
        return Ok(());
    }
    let Some(deadline) = options.block else {
        cx.reply.null_array();
        return Ok(());
    };
    let keys = &args.words()[options.keys_at..options.keys_at + options.keys];
    cx.block_or_fail(keys, deadline, TimeoutReply::NullArray)
}

/// What is asked of each stream; all of that is checked before any of it is done.
fn parts<'a>(
    cx: &mut Cx<'_>,
    args: Args<'a>,
    options: &StreamReadOptions<'a>,
) -> Result<Vec<Part<'a>>, Error> {
    let (group, consumer) = options.group.unwrap_or_default();
    let (now, mut parts) = (cx.now().0, Vec::with_capacity(options.keys));
    for index in 0..options.keys {
        let key = options.key(args, index);
        let stream = cx.db.read::<Stream>(key)?;
        if stream.and_then(|stream| stream.group(group)).is_none() {
            return Err(super::no_group([
                b"No such key '",
                key.bytes,
                b"' or consumer group '",
                group,
                b"' in XREADGROUP with GROUP option",
            ]));
        }
        let wanted = match options.id(args, index) {
            b">" => Wanted::New,
            b"$" => {
                return Err(Error::text(
                    "ERR The $ ID is meaningless in the context of XREADGROUP: you want to read \
                     the history of this consumer by specifying a proper ID, or use the > ID to \
                     get new messages. The $ ID would just return an empty result set.",
                ));
            }
            word => Wanted::History(ids::strict(word, 0)?),
        };
        let (no_ack, claim_idle) = (options.no_ack, options.claim_idle);
        let count = options.limit();
        parts.push(Part { key, group, consumer, wanted, count, no_ack, claim_idle, now });
    }
    Ok(parts)
}

/// Serves one stream; `false`, and nothing is written, if there is nothing to be had.
fn serve(cx: &mut Cx<'_>, part: &Part<'_>) -> Result<bool, Error> {
    let has_any = match part.wanted {
        Wanted::History(_) => true,
        Wanted::New => {
            cx.db.object_for_write::<Stream>(part.key)?.is_some_and(|s| has_any(s, part))
        }
    };
    if has_any {
        begin_key(cx, part.key.bytes);
    }
    let most = cx.db.size(part.key).min(part.count) as u64;
    let Cx { db, reply, .. } = cx;
    let done = aside::edit(db, part.key, most, |stream| {
        let mut done = Done::default();
        if let Some(number) = consumer_number(stream, part, &mut done)
            && has_any
        {
            let place = reply.deferred();
            match part.wanted {
                Wanted::History(after) => history(reply, stream, part, number, after, &mut done),
                Wanted::New => {
                    claim(reply, stream, part, number, &mut done);
                    deliver(reply, stream, part, number, &mut done);
                }
            }
            reply.finish_array(place, done.entries);
        }
        if let Some(group) = stream.group(part.group) {
            (done.last_id, done.entries_read) = (group.last_id, group.entries_read);
        }
        done
    })?;
    if let Some(done) = done {
        report(cx, part, &done, has_any);
    }
    Ok(has_any)
}

/// Whether there is an entry that the group has not read, or one to take over.
fn has_any(stream: &Stream, part: &Part<'_>) -> bool {
    let Some(group) = stream.group(part.group) else { return false };
    let has_idle = part.claim_idle.is_some_and(|idle| {
        group.oldest_pending().is_some_and(|oldest| oldest.time <= part.now.saturating_sub(idle))
    });
    has_idle || stream.edge(true).is_some_and(|last| last > group.last_id)
}

/// The consumer, which is made if there is none of this name.
fn consumer_number(stream: &mut Stream, part: &Part<'_>, done: &mut Done) -> Option<usize> {
    let group = stream.group_mut(part.group)?;
    let number = group.find_consumer(part.consumer).or_else(|| {
        done.is_consumer_new = true;
        group.create_consumer(part.consumer, part.now)
    })?;
    group.consumer_at_mut(number)?.seen_time = part.now;
    Some(number)
}

/// Writes what is pending at the consumer; that counts as another delivery.
fn history(
    reply: &mut Reply<'_>,
    stream: &mut Stream,
    part: &Part<'_>,
    number: usize,
    after: StreamId,
    done: &mut Done,
) {
    let mut pending = Vec::new();
    let consumer = stream.group(part.group).and_then(|group| group.consumer_at(number));
    if let Some((consumer, from)) = consumer.zip(after.next()) {
        consumer.walk(from, i64::MAX, |id| {
            if pending.len() == part.count {
                return ControlFlow::Break(());
            }
            pending.push(id);
            ControlFlow::Continue(())
        });
    }
    done.entries = pending.len();
    for id in pending {
        if entries::write_if_there(reply, stream, id) {
            if let Some(group) = stream.group_mut(part.group)
                && let Some(&old) = group.pending(id)
            {
                group.assign(id, number, part.now, old.deliveries.wrapping_add(1));
            }
        } else {
            reply.array(2);
            ids::write(reply, id);
            reply.null_array();
        }
    }
}

/// Takes over what has been pending for so long, the longest first.
fn claim(
    reply: &mut Reply<'_>,
    stream: &mut Stream,
    part: &Part<'_>,
    number: usize,
    done: &mut Done,
) {
    let Some(bound) = part.claim_idle.map(|idle| part.now.saturating_sub(idle)) else { return };
    // What is taken over at this very moment must not be taken over again.
    let mut seen = BTreeSet::new();
    while done.entries < part.count {
        let Some(group) = stream.group(part.group) else { return };
        let Some(&old) = group.oldest_pending().filter(|old| old.time <= bound) else { return };
        if !seen.insert(old.id) {
            return;
        }
        let shown = stream.get(old.id, |fields| {
            reply.array(4);
            entries::write_parts(reply, old.id, fields);
            reply.integer((part.now - old.time).max(0));
            reply.integer(old.deliveries as i64);
        });
        let Some(group) = stream.group_mut(part.group) else { return };
        if shown.is_none() {
            group.acknowledge(old.id);
            done.dropped.push(old.id);
            continue;
        }
        let deliveries = old.deliveries.wrapping_add(1);
        group.assign(old.id, number, part.now, deliveries);
        if let Some(consumer) = group.consumer_at_mut(number) {
            consumer.active_time = part.now;
        }
        done.claimed.push((old.id, deliveries));
        done.entries += 1;
    }
}

/// Delivers entries that the group has not read.
fn deliver(
    reply: &mut Reply<'_>,
    stream: &mut Stream,
    part: &Part<'_>,
    number: usize,
    done: &mut Done,
) {
    let (count, now) = (part.count.saturating_sub(done.entries), part.now);
    let delivery = Delivery { count, is_acknowledged: part.no_ack, now };
    let is_claim = part.claim_idle.is_some();
    let delivered = &mut done.delivered;
    done.entries += stream.deliver(part.group, number, delivery, |id, fields| {
        if is_claim {
            reply.array(4);
            entries::write_parts(reply, id, fields);
            reply.integer(0);
            reply.integer(0);
        } else {
            entries::write_entry(reply, id, fields);
        }
        delivered.push(id);
    });
}

/// Reports what was done: the journal repeats it without a clock.
fn report(cx: &mut Cx<'_>, part: &Part<'_>, done: &Done, is_served: bool) {
    if done.is_consumer_new {
        cx.db.notify(part.key, event(Class::STREAM, "xgroup-createconsumer"));
    }
    cx.db.add_dirty(u64::from(is_served) + u64::from(done.is_consumer_new));
    let (key, name) = (part.key.bytes, part.group);
    cx.db.propagate_as(|p| {
        if done.is_consumer_new {
            p.command(&[b"XGROUP", b"CREATECONSUMER", key, name, part.consumer]);
        }
        if !part.no_ack && !done.delivered.is_empty() {
            claim_effect(p, part, &done.delivered, 1);
        }
        for &(id, deliveries) in &done.claimed {
            claim_effect(p, part, &[id], deliveries);
        }
        if !done.dropped.is_empty() {
            claim_effect(p, part, &done.dropped, 0);
        }
        if !done.delivered.is_empty() {
            last_id_effect(p, key, name, done.last_id, done.entries_read);
        }
    });
}

/// The consumer has got these entries, so often. Those that are deleted cease to be pending.
fn claim_effect(p: &mut Effect<'_>, part: &Part<'_>, ids: &[StreamId], deliveries: u64) {
    p.begin(11 + ids.len());
    [b"XCLAIM", part.key.bytes, part.group, part.consumer, b"0"]
        .iter()
        .for_each(|word| p.word(word));
    ids.iter().for_each(|id| id.with_text(|text| p.word(text)));
    p.word(b"TIME");
    p.integer(part.now);
    p.word(b"RETRYCOUNT");
    p.integer(deliveries as i64);
    p.word(b"FORCE");
    p.word(b"JUSTID");
}

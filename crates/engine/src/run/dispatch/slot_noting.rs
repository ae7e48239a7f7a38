//! Notes which slot a request was for, and what it took (`cluster-slot-stats-enabled`).
//!
//! A transaction and a script are counted as a whole, by the slot of all their keys. What has keys
//! of several slots is not counted.

use crate::args::Args;
use crate::command::Flags;
use crate::cx::Cx;
use crate::engine::Engine;
use crate::pubsub::Space;
use crate::request_keys::RequestKeys;
use crate::slot_usage::{NestedSlots, Slots, Used};
use crate::table::Resolved;
use spec::keys::{for_each_shard_channel, has_shard_channels};
use structs::crc16::key_slot;

/// Bytes of MULTI and EXEC as clients send them.
const AROUND_QUEUE: u64 = (b"*1\r\n$5\r\nMULTI\r\n".len() + b"*1\r\n$4\r\nEXEC\r\n".len()) as u64;

/// Notes a command that has run.
#[cold]
pub(super) fn note(
    cx: &mut Cx<'_>,
    row: &Resolved,
    args: Args<'_>,
    nanoseconds: u64,
    reply: usize,
) {
    if !cx.engine.membership.is_on() {
        return;
    }
    let words = args.words();
    if cx.db.repeats_history() {
        return note_repeated(cx, row, words, nanoseconds);
    }
    if cx.in_transaction || cx.script.is_some() {
        let nested = &mut cx.nested_slots;
        add_slots(cx.engine, row, words, &mut nested.slots);
        if cx.script.is_none() {
            nested.bytes_in += bytes_of(words);
        }
        return;
    }
    let NestedSlots { mut slots, bytes_in: queued } = std::mem::take(&mut cx.nested_slots);
    add_slots(cx.engine, row, words, &mut slots);
    let bytes_in = match row.command.flags.has(Flags::RUNS_QUEUE) {
        true => AROUND_QUEUE + queued,
        false => bytes_of(words),
    };
    if let Slots::One(slot) = slots {
        let bytes_out =
            reply as u64 + bytes_to_replicas(cx, words) + bytes_to_listeners(cx, row, words);
        let used = Used { requests: 1, nanoseconds, bytes_in, bytes_out };
        cx.engine.slot_usage.add(slot, used);
    }
}

/// Notes a command of the stream that a replica follows. It is no client's request, and has no
/// reply.
fn note_repeated(cx: &Cx<'_>, row: &Resolved, words: &[&[u8]], nanoseconds: u64) {
    let is_message = row.command.flags.has(Flags::MAY_REPLICATE);
    let is_stream = cx.engine.upstream.is_replica() && !cx.engine.loading.is_on();
    if cx.script.is_some() || is_message || !is_stream {
        return;
    }
    let mut slots = Slots::None;
    add_slots(cx.engine, row, words, &mut slots);
    if let Slots::One(slot) = slots {
        let used = Used { requests: 0, nanoseconds, bytes_in: bytes_of(words), bytes_out: 0 };
        cx.engine.slot_usage.add(slot, used);
    }
}

/// Bytes of what replicas are sent because of a request.
fn bytes_to_replicas(cx: &Cx<'_>, words: &[&[u8]]) -> u64 {
    let effects = &cx.db.effects;
    let each = match () {
        () if effects.dirty == 0 => 0,
        () if effects.is_rewritten => effects.entry.stream_bytes() as u64,
        () => bytes_of(words),
    };
    each * cx.engine.replicas.count() as u64
}

/// Bytes of the messages to this node's clients that listen to a shard channel, if the request
/// publishes one.
fn bytes_to_listeners(cx: &Cx<'_>, row: &Resolved, words: &[&[u8]]) -> u64 {
    let &[_, channel, payload] = words else { return 0 };
    let command = row.command;
    let is_published = command.flags.has(Flags::MAY_REPLICATE) && has_shard_channels(command);
    match is_published {
        true => {
            let listeners = cx.receivers(Space::ShardChannels, channel) as u64;
            listeners * bytes_of(&[b"smessage", channel, payload])
        }
        false => 0,
    }
}

/// Notes a command that was blocked and is over.
#[cold]
pub(crate) fn note_blocked(
    engine: &Engine,
    row: &Resolved,
    words: &[&[u8]],
    nanoseconds: u64,
    reply: usize,
) {
    let mut slots = Slots::None;
    add_slots(engine, row, words, &mut slots);
    if let Slots::One(slot) = slots {
        let (bytes_in, bytes_out) = (bytes_of(words), reply as u64);
        let used = Used { requests: 1, nanoseconds, bytes_in, bytes_out };
        engine.slot_usage.add(slot, used);
    }
}

/// Adds the slots of a request's keys and shard channels.
fn add_slots(engine: &Engine, row: &Resolved, words: &[&[u8]], slots: &mut Slots) {
    let keys = RequestKeys::of(&engine.keyspace, row.command, words);
    let of_keys = keys.iter().filter_map(|key| key.slot(&engine.keyspace));
    of_keys.for_each(|slot| slots.add(slot.number()));
    // Words that do not fit the row have been refused.
    let _ = for_each_shard_channel(row.command, words, |at| slots.add(key_slot(words[at])));
}

/// Bytes of a request in the form in which clients send it.
fn bytes_of(words: &[&[u8]]) -> u64 {
    let head = |number: usize| 1 + number.checked_ilog10().unwrap_or(0) as usize + 1 + 2;
    let each = words.iter().map(|word| head(word.len()) + word.len() + 2);
    (head(words.len()) + each.sum::<usize>()) as u64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_are_those_of_the_protocol() {
        let words: [&[u8]; 3] = [b"SET", b"key", b"value"];
        assert_eq!(bytes_of(&words), 33);
        assert_eq!(bytes_of(&[b"blpop", b"key", b"0"]), 31);
        assert_eq!(bytes_of(&[b""]), b"*1\r\n$0\r\n\r\n".len() as u64);
        assert_eq!(bytes_of(&[b"updated_value"]), b"*1\r\n$13\r\nupdated_value\r\n".len() as u64);
        assert_eq!(AROUND_QUEUE, 15 + 14);
    }
}

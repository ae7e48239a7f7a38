//! Encodes streams as the commands that recreate them.
//!
//! These are XADD for each entry, XSETID for the counters, XGROUP CREATE for each group, and XGROUP
//! CREATECONSUMER or XCLAIM for each of its consumers. A pending entry that is deleted cannot be
//! recreated by commands, and is left out.

use super::command;
use resp::bulk::{push_bulk, push_header};
use std::collections::HashMap;
use std::ops::ControlFlow;
use structs::stream::{Counters, Idempotency, Part, StreamId, walk_block};

/// Parts of a stream that are needed later.
#[derive(Default)]
pub(super) struct StreamRecords {
    group: Vec<u8>,
    consumer: Vec<u8>,
    /// The delivery time of the group's pending entries, and the number of deliveries.
    pending: HashMap<StreamId, (i64, u64)>,
    /// The messages of producers that the stream remembers.
    idempotency: Option<Idempotency>,
}

fn text(id: StreamId) -> Vec<u8> {
    id.with_text(<[u8]>::to_vec)
}

fn digits(number: impl ToString) -> Vec<u8> {
    number.to_string().into_bytes()
}

impl StreamRecords {
    /// Appends the commands for a part of the stream at `key`.
    pub fn part(&mut self, key: &[u8], part: Part<'_>, out: &mut Vec<u8>) {
        match part {
            Part::Idempotency(bytes) => self.idempotency = Idempotency::from_bytes(bytes).ok(),
            Part::Block(id, bytes) => block(key, id, bytes, out),
            Part::Counters(counters, _) => set_id(key, &counters, out),
            Part::Group { name, last_id, entries_read, .. } => {
                self.group = name.to_vec();
                self.pending.clear();
                let (last_id, reads) = (text(last_id), digits(entries_read));
                let words: [&[u8]; 7] =
                    [b"XGROUP", b"CREATE", key, name, &last_id, b"ENTRIESREAD", &reads];
                command(out, &words);
            }
            Part::Pending(id, time, deliveries) => {
                self.pending.insert(id, (time, deliveries));
            }
            Part::Consumers(_) => {}
            Part::Consumer { name, pending, .. } => {
                self.consumer = name.to_vec();
                if pending == 0 {
                    command(out, &[b"XGROUP", b"CREATECONSUMER", key, &self.group, name]);
                }
            }
            Part::Own(id) => self.claim(key, id, out),
        }
    }

    /// Appends the commands that come after all parts.
    pub fn finish(&mut self, key: &[u8], out: &mut Vec<u8>) {
        let Some(ids) = self.idempotency.take() else { return };
        let (duration, count) = (digits(ids.duration_s), digits(ids.max_ids));
        command(out, &[b"XCFGSET", key, b"IDMP-DURATION", &duration, b"IDMP-MAXSIZE", &count]);
        ids.for_each(|producer, id, entry| {
            command(out, &[b"XIDMPRECORD", key, producer, id, &text(entry)]);
        });
    }

    fn claim(&self, key: &[u8], id: StreamId, out: &mut Vec<u8>) {
        let Some(&(time, deliveries)) = self.pending.get(&id) else { return };
        let (id, time, count) = (text(id), digits(time), digits(deliveries));
        let words: [&[u8]; 12] = [
            b"XCLAIM",
            key,
            &self.group,
            &self.consumer,
            b"0",
            &id,
            b"TIME",
            &time,
            b"RETRYCOUNT",
            &count,
            b"JUSTID",
            b"FORCE",
        ];
        command(out, &words);
    }
}

/// Appends XADD for each entry of a block.
fn block(key: &[u8], id: StreamId, bytes: &[u8], out: &mut Vec<u8>) {
    walk_block(id, bytes, |id, fields| {
        push_header(out, b'*', 3 + 2 * fields.len());
        push_bulk(out, b"XADD");
        push_bulk(out, key);
        push_bulk(out, &text(id));
        for (name, value) in fields {
            name.with_bytes(|bytes| push_bulk(out, bytes));
            value.with_bytes(|bytes| push_bulk(out, bytes));
        }
        ControlFlow::Continue(())
    })
    .expect("a snapshot's blocks are well-formed");
}

/// Appends the stream's counters. An empty stream has nothing else.
fn set_id(key: &[u8], counters: &Counters, out: &mut Vec<u8>) {
    if counters.length == 0 {
        command(out, &[b"XADD", key, b"MAXLEN", b"0", b"0-1", b"x", b"y"]);
    }
    let (last, added) = (text(counters.last_id), digits(counters.entries_added));
    let deleted = text(counters.max_deleted_id);
    let words: [&[u8]; 7] =
        [b"XSETID", key, &last, b"ENTRIESADDED", &added, b"MAXDELETEDID", &deleted];
    command(out, &words);
}

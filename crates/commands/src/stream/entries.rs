//! Entries in replies.

use super::ids;
use crate::list::write;
use resp::Reply;
use std::ops::ControlFlow;
use structs::stream::{Fields, Range, Stream, StreamId};

/// Writes the ID and the fields of an entry, as two elements of an array.
pub(super) fn write_parts(reply: &mut Reply<'_>, id: StreamId, fields: &mut Fields<'_, '_>) {
    ids::write(reply, id);
    reply.array(2 * fields.len());
    for (name, value) in fields {
        write(reply, name);
        write(reply, value);
    }
}

/// Writes an entry.
pub(super) fn write_entry(reply: &mut Reply<'_>, id: StreamId, fields: &mut Fields<'_, '_>) {
    reply.array(2);
    write_parts(reply, id, fields);
}

/// Writes the entry with this ID; `false`, and nothing is written, if there is none.
pub(super) fn write_if_there(reply: &mut Reply<'_>, stream: &Stream, id: StreamId) -> bool {
    stream.get(id, |fields| write_entry(reply, id, fields)).is_some()
}

/// Writes the array of the entries in a range, `count` at most.
pub(super) fn write_range(reply: &mut Reply<'_>, stream: &Stream, range: Range, count: usize) {
    let place = reply.deferred();
    let mut written = 0;
    stream.walk(range, |id, fields| {
        if written == count {
            return ControlFlow::Break(());
        }
        write_entry(reply, id, fields);
        written += 1;
        ControlFlow::Continue(())
    });
    reply.finish_array(place, written);
}

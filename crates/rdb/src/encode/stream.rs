//! Writing streams, part by part.

use super::Encoder;
use structs::stream::{Part, Parts, Stream, StreamId};

impl Encoder {
    /// A stream behind its type byte.
    pub(super) fn stream(&mut self, stream: &Stream) {
        self.length(stream.block_count() as u64);
        let mut parts = Parts::new(stream);
        while parts.show(|part| self.stream_part(part)) {}
    }

    /// A part of a stream as readers before Redis 7.2 know it
    /// ([`Kind::StreamListpacks2`](crate::Kind)): without when a consumer last got something.
    pub fn old_stream_part(&mut self, part: Part<'_>) {
        match part {
            Part::Consumer { name, seen_time, pending, .. } => {
                self.string(name);
                self.raw(&seen_time.to_le_bytes());
                self.length(pending as u64);
            }
            part => self.stream_part(part),
        }
    }

    /// A part of a stream; in front of the first stands the number of blocks.
    pub fn stream_part(&mut self, part: Part<'_>) {
        match part {
            // There is no place for it.
            Part::Idempotency(_) => {}
            Part::Block(id, bytes) => {
                self.string(&id.to_bytes());
                self.string(bytes);
            }
            Part::Counters(counters, groups) => {
                self.length(counters.length);
                self.id_lengths(counters.last_id);
                self.id_lengths(counters.first_id);
                self.id_lengths(counters.max_deleted_id);
                self.length(counters.entries_added);
                self.length(groups as u64);
            }
            Part::Group { name, last_id, entries_read, pending } => {
                self.string(name);
                self.id_lengths(last_id);
                // A count that is not known is -1, which takes all 64 bits.
                self.length(entries_read as u64);
                self.length(pending as u64);
            }
            Part::Pending(id, time, deliveries) => {
                self.raw(&id.to_bytes());
                self.raw(&time.to_le_bytes());
                self.length(deliveries);
            }
            Part::Consumers(count) => self.length(count as u64),
            Part::Consumer { name, seen_time, active_time, pending } => {
                self.string(name);
                self.raw(&seen_time.to_le_bytes());
                self.raw(&active_time.to_le_bytes());
                self.length(pending as u64);
            }
            Part::Own(id) => self.raw(&id.to_bytes()),
        }
    }

    fn id_lengths(&mut self, id: StreamId) {
        self.length(id.ms);
        self.length(id.seq);
    }
}

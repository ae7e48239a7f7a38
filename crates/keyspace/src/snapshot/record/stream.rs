//! Parts of streams as tokens.
//!
//! ```text
//!  STREAM  part u8 │ its numbers, 8 bytes each, and an ID as two of them │ name len u32 │ name
//! ```

use super::{STREAM, Tokens, Writer};
use structs::stream::{Counters, Part, StreamId};

const BLOCK: u8 = 0;
const COUNTERS: u8 = 1;
const GROUP: u8 = 2;
const PENDING: u8 = 3;
const CONSUMERS: u8 = 4;
const CONSUMER: u8 = 5;
const OWN: u8 = 6;
const IDEMPOTENCY: u8 = 7;

impl Writer<'_> {
    /// Appends a part of a stream.
    pub(crate) fn stream_part(&mut self, part: Part<'_>) {
        match part {
            Part::Idempotency(bytes) => self.begin(IDEMPOTENCY).tail(bytes),
            Part::Block(id, bytes) => {
                self.begin(BLOCK).id(id);
                self.tail(bytes);
            }
            Part::Counters(counters, groups) => {
                self.begin(COUNTERS).number(counters.length).id(counters.last_id);
                self.id(counters.first_id).id(counters.max_deleted_id);
                self.number(counters.entries_added).number(groups as u64);
            }
            Part::Group { name, last_id, entries_read, pending } => {
                self.begin(GROUP).id(last_id).number(entries_read as u64).number(pending as u64);
                self.tail(name);
            }
            Part::Pending(id, time, deliveries) => {
                self.begin(PENDING).id(id).number(time as u64).number(deliveries);
            }
            Part::Consumers(count) => {
                self.begin(CONSUMERS).number(count as u64);
            }
            Part::Consumer { name, seen_time, active_time, pending } => {
                self.begin(CONSUMER).number(seen_time as u64).number(active_time as u64);
                self.number(pending as u64);
                self.tail(name);
            }
            Part::Own(id) => {
                self.begin(OWN).id(id);
            }
        }
    }

    fn begin(&mut self, part: u8) -> &mut Self {
        self.0.extend_from_slice(&[STREAM, part]);
        self
    }

    fn number(&mut self, number: u64) -> &mut Self {
        self.0.extend_from_slice(&number.to_le_bytes());
        self
    }

    fn id(&mut self, id: StreamId) -> &mut Self {
        self.number(id.ms).number(id.seq)
    }
}

impl<'a> Tokens<'a> {
    fn number(&mut self) -> u64 {
        u64::from_le_bytes(self.array())
    }

    fn id(&mut self) -> StreamId {
        StreamId::new(self.number(), self.number())
    }

    /// Reads the part of a stream after its tag.
    pub(super) fn stream_part(&mut self) -> Part<'a> {
        let [part] = self.array();
        match part {
            BLOCK => Part::Block(self.id(), self.bytes()),
            COUNTERS => {
                let length = self.number();
                let (last_id, first_id, max_deleted_id) = (self.id(), self.id(), self.id());
                let entries_added = self.number();
                let counters =
                    Counters { length, first_id, last_id, max_deleted_id, entries_added };
                Part::Counters(counters, self.number() as usize)
            }
            GROUP => {
                let (last_id, entries_read) = (self.id(), self.number() as i64);
                let pending = self.number() as usize;
                Part::Group { name: self.bytes(), last_id, entries_read, pending }
            }
            PENDING => Part::Pending(self.id(), self.number() as i64, self.number()),
            CONSUMERS => Part::Consumers(self.number() as usize),
            CONSUMER => {
                let (seen_time, active_time) = (self.number() as i64, self.number() as i64);
                let pending = self.number() as usize;
                Part::Consumer { name: self.bytes(), seen_time, active_time, pending }
            }
            IDEMPOTENCY => Part::Idempotency(self.bytes()),
            _ => Part::Own(self.id()),
        }
    }
}

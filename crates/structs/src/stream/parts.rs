//! A stream in the parts that RDB files have, to take one from and to build one of.
//!
//! Both directions go one part at a time, so a stream of any size is written and read in pieces.
//! What is built is checked to the last element: blocks, their order, every count, and that the
//! groups' and the consumers' lists of pending entries agree.

use super::block::{Block, Fields};
use super::{Group, Inner, Stream, StreamId};
use crate::listpack::Listpack;
use std::ops::ControlFlow;
use std::sync::Arc;

/// A part of a stream, in the order of RDB files.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Part<'a> {
    /// Which messages of producers the stream has, if it notes them
    /// ([`Idempotency`](super::Idempotency)). RDB files have no place for it in a stream.
    Idempotency(&'a [u8]),
    /// A block: its ID and its listpack.
    Block(StreamId, &'a [u8]),
    /// What comes behind the blocks, with the number of groups.
    Counters(super::Counters, usize),
    /// A group, with the number of its pending entries.
    Group {
        /// Its name.
        name: &'a [u8],
        /// Its last ID.
        last_id: StreamId,
        /// How many entries it has read.
        entries_read: i64,
        /// Number of pending entries.
        pending: usize,
    },
    /// A pending entry of the group.
    Pending(StreamId, i64, u64),
    /// The number of the group's consumers, behind its pending entries.
    Consumers(usize),
    /// A consumer, with the number of its pending entries.
    Consumer {
        /// Its name.
        name: &'a [u8],
        /// When it last asked.
        seen_time: i64,
        /// When it last got an entry.
        active_time: i64,
        /// Number of pending entries.
        pending: usize,
    },
    /// An entry that is pending at the consumer.
    Own(StreamId),
}

/// What comes next.
enum Place {
    Idempotency,
    Block(StreamId),
    Counters,
    Group,
    /// From this ID on; nothing comes behind the last ID of all.
    Pending(Option<StreamId>),
    Consumer,
    Own(usize, StreamId),
}

/// The parts of a stream, which belongs to this alone: what it has shown is given up.
pub struct Parts {
    stream: Stream,
    place: Place,
    /// The group that is being shown.
    group: Arc<Group>,
    /// Numbers of its consumers that are to come, the next one last.
    consumers: Vec<usize>,
}

impl Parts {
    /// Those of a stream as it is now, however it changes later.
    pub fn new(stream: &Stream) -> Parts {
        let (place, group) = (Place::Idempotency, Arc::default());
        Parts { stream: stream.clone(), place, group, consumers: Vec::new() }
    }

    /// Number of blocks that have not been shown.
    pub fn block_count(&self) -> usize {
        self.stream.block_count()
    }

    /// Shows the next part; `false` if there is none.
    pub fn show(&mut self, show: impl FnOnce(Part<'_>)) -> bool {
        match self.place {
            Place::Idempotency => {
                self.place = Place::Block(StreamId::MIN);
                match self.stream.idempotency() {
                    None => return self.show(show),
                    Some(idempotency) => show(Part::Idempotency(&idempotency.to_bytes())),
                }
            }
            Place::Block(from) => return self.show_block(from, show),
            Place::Counters => {
                show(Part::Counters(*self.stream.counters(), self.stream.groups().len()));
                self.place = Place::Group;
            }
            Place::Group => return self.show_group(show),
            Place::Pending(from) => self.show_pending(from, show),
            Place::Consumer => return self.show_consumer(show),
            Place::Own(number, from) => return self.show_own(number, from, show),
        }
        true
    }

    fn show_block(&mut self, from: StreamId, show: impl FnOnce(Part<'_>)) -> bool {
        let blocks = &mut self.stream.0.blocks;
        let Some(placed) = blocks.first_from(from) else {
            self.place = Place::Counters;
            return self.show(show);
        };
        let id = placed.id;
        show(Part::Block(id, placed.block.as_bytes()));
        // Its memory is free once the stream itself has it no more.
        blocks.remove(id);
        self.place = id.next().map_or(Place::Counters, Place::Block);
        true
    }

    fn show_group(&mut self, show: impl FnOnce(Part<'_>)) -> bool {
        let Some((name, group)) = self.stream.0.groups.pop_first() else { return false };
        show(Part::Group {
            name: &name,
            last_id: group.last_id,
            entries_read: group.entries_read,
            pending: group.pending_count(),
        });
        self.consumers = group.consumer_numbers();
        self.consumers.reverse();
        self.group = group;
        self.place = Place::Pending(Some(StreamId::MIN));
        true
    }

    fn show_pending(&mut self, from: Option<StreamId>, show: impl FnOnce(Part<'_>)) {
        match from.and_then(|from| self.group.next_pending(from)) {
            Some(pending) => {
                show(Part::Pending(pending.id, pending.time, pending.deliveries));
                self.place = Place::Pending(pending.id.next());
            }
            None => {
                show(Part::Consumers(self.consumers.len()));
                self.place = Place::Consumer;
            }
        }
    }

    fn show_consumer(&mut self, show: impl FnOnce(Part<'_>)) -> bool {
        let number = self.consumers.pop();
        let Some((number, consumer)) =
            number.and_then(|number| Some((number, self.group.consumer_at(number)?)))
        else {
            self.place = Place::Group;
            return self.show(show);
        };
        show(Part::Consumer {
            name: &consumer.name,
            seen_time: consumer.seen_time,
            active_time: consumer.active_time,
            pending: consumer.pending_count(),
        });
        self.place = Place::Own(number, StreamId::MIN);
        true
    }

    fn show_own(&mut self, number: usize, from: StreamId, show: impl FnOnce(Part<'_>)) -> bool {
        let own = self.group.consumer_at(number).and_then(|consumer| consumer.next(from));
        let Some(id) = own else {
            self.place = Place::Consumer;
            return self.show(show);
        };
        show(Part::Own(id));
        self.place = id.next().map_or(Place::Consumer, |next| Place::Own(number, next));
        true
    }
}

/// What was to become a stream is none.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Malformed(pub &'static str);

/// Visits the entries of a block, which a [`Part`] has shown.
pub fn walk_block(
    id: StreamId,
    bytes: &[u8],
    mut visit: impl FnMut(StreamId, &mut Fields<'_, '_>) -> ControlFlow<()>,
) -> Result<(), Malformed> {
    let block = checked_block(id, bytes)?;
    let _ = block.walk(id, id, false, &mut visit);
    Ok(())
}

fn checked_block(id: StreamId, bytes: &[u8]) -> Result<Block, Malformed> {
    let pack = Listpack::from_bytes(bytes).ok();
    let block = pack.and_then(|pack| Block::from_listpack(pack, id));
    block.ok_or(Malformed("Stream listpack"))
}

/// A stream in the making; see the module's documentation.
#[derive(Default)]
pub struct StreamBuilder {
    inner: Inner,
    pub(super) last_id: Option<StreamId>,
    pub(super) live: u64,
    group: Option<(Box<[u8]>, Group)>,
    consumer: Option<usize>,
    /// Pending entries of the group that no consumer has claimed as its own.
    unowned: usize,
}

/// A consumer that pending entries have before their own is known.
const NO_CONSUMER: usize = u32::MAX as usize;

impl StreamBuilder {
    /// Adds a block behind those that there are.
    pub fn block(&mut self, id: StreamId, bytes: &[u8]) -> Result<(), Malformed> {
        let block = checked_block(id, bytes)?;
        if self.last_id.is_some_and(|last| id <= last) {
            return Err(Malformed("Stream listpacks out of order"));
        }
        // The reference implementation keeps blocks of deleted entries alone; here they go.
        self.last_id = block.last_id(id).or(Some(id));
        self.live += block.len();
        if block.len() > 0 {
            self.inner.blocks.push(id, block);
        }
        Ok(())
    }

    /// Sets the counters. An old file does not have those that are `None`: they are made up.
    pub fn counters(
        &mut self,
        length: u64,
        last_id: StreamId,
        later: Option<(StreamId, StreamId, u64)>,
    ) -> Result<(), Malformed> {
        if length != self.live || self.last_id.is_some_and(|last| last > last_id) {
            return Err(Malformed("Stream length or last ID inconsistent with its entries"));
        }
        let first_id = self.inner.blocks.edge(false, false).unwrap_or_default();
        let (_, max_deleted_id, entries_added) = later.unwrap_or((first_id, StreamId::MIN, length));
        self.inner.counters =
            super::Counters { length, first_id, last_id, max_deleted_id, entries_added };
        Ok(())
    }

    /// Begins a group.
    pub fn group(&mut self, name: &[u8], last_id: StreamId, reads: i64) -> Result<(), Malformed> {
        self.end_group()?;
        if self.inner.groups.contains_key(name) {
            return Err(Malformed("Duplicated consumer group name"));
        }
        self.group = Some((name.into(), Group::new(last_id, reads)));
        Ok(())
    }

    /// What is known of `entries-read` in a file that does not say.
    pub fn guess_reads(&self, last_id: StreamId) -> i64 {
        self.inner.counters.reads_up_to(last_id)
    }

    /// Adds a pending entry to the group.
    pub fn pending(&mut self, id: StreamId, time: i64, count: u64) -> Result<(), Malformed> {
        let (_, group) = self.group.as_mut().ok_or(Malformed("Stream PEL without a group"))?;
        if group.pending(id).is_some() {
            return Err(Malformed("Duplicated global PEL entry"));
        }
        group.assign(id, NO_CONSUMER, time, count);
        self.unowned += 1;
        Ok(())
    }

    /// Begins a consumer of the group.
    pub fn consumer(&mut self, name: &[u8], seen: i64, active: i64) -> Result<(), Malformed> {
        let (_, group) = self.group.as_mut().ok_or(Malformed("Stream consumer without a group"))?;
        let number = group.create_consumer(name, seen);
        let number = number.ok_or(Malformed("Duplicate consumer name"))?;
        if let Some(consumer) = group.consumer_at_mut(number) {
            consumer.active_time = active;
        }
        self.consumer = Some(number);
        Ok(())
    }

    /// Gives one of the group's pending entries to the consumer.
    pub fn own(&mut self, id: StreamId) -> Result<(), Malformed> {
        const WHAT: Malformed = Malformed("Consumer entry not found in group global PEL");
        let ((_, group), consumer) = self.group.as_mut().zip(self.consumer).ok_or(WHAT)?;
        let pending = *group.pending(id).ok_or(WHAT)?;
        if pending.consumer() != NO_CONSUMER {
            return Err(Malformed("Duplicated consumer PEL entry"));
        }
        group.assign(id, consumer, pending.time, pending.deliveries);
        self.unowned -= 1;
        Ok(())
    }

    /// The group is complete.
    fn end_group(&mut self) -> Result<(), Malformed> {
        if self.unowned > 0 {
            return Err(Malformed("NACK entry without a consumer"));
        }
        self.consumer = None;
        if let Some((name, group)) = self.group.take() {
            self.inner.groups.insert(name, Arc::new(group));
        }
        Ok(())
    }

    /// The stream, when all parts are there.
    pub fn finish(mut self) -> Result<Stream, Malformed> {
        self.end_group()?;
        Ok(Stream(Box::new(self.inner)))
    }
}

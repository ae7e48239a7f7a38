//! A group of consumers: how far it has read, and what was delivered and not yet acknowledged.
//!
//! An entry that was delivered is in two trees: in the group's with its consumer, time and number
//! of deliveries, and in its consumer's with its time alone. Both know the ages of what they hold,
//! so XPENDING with IDLE and claims by idle time skip what is too young.

use super::tree::{Item, Tree};
use super::{Counters, StreamId, UNKNOWN_READS};
use crate::size_class::block_size;
use std::collections::BTreeMap;
use std::ops::ControlFlow;

/// An entry that was delivered and not yet acknowledged.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Pending {
    /// The entry's ID; it may be deleted.
    pub id: StreamId,
    /// When it was last delivered.
    pub time: i64,
    /// How often it was delivered.
    pub deliveries: u64,
    /// The number of the consumer that has it, as [`Group::consumer_at`] takes it.
    consumer: u32,
}

impl Pending {
    /// The number of the consumer that has it.
    pub fn consumer(&self) -> usize {
        self.consumer as usize
    }
}

impl Item for Pending {
    fn id(&self) -> StreamId {
        self.id
    }
    fn time(&self) -> i64 {
        self.time
    }
}

/// The same in its consumer's tree.
#[derive(Clone, Copy)]
struct Own {
    id: StreamId,
    time: i64,
}

impl Item for Own {
    fn id(&self) -> StreamId {
        self.id
    }
    fn time(&self) -> i64 {
        self.time
    }
}

/// A consumer of a group.
#[derive(Clone)]
pub struct Consumer {
    /// Its name.
    pub name: Box<[u8]>,
    /// When it last asked for anything.
    pub seen_time: i64,
    /// When it last got an entry; -1 if it never did.
    pub active_time: i64,
    own: Tree<Own>,
}

impl Consumer {
    /// Bytes of its tree and of its name, here and in the map.
    fn bytes(&self) -> usize {
        self.own.allocated_bytes() + 2 * block_size(self.name.len())
    }

    /// Number of entries that are pending at it.
    pub fn pending_count(&self) -> usize {
        self.own.len()
    }

    /// The first ID that is pending at it from `from` on.
    pub fn next(&self, from: StreamId) -> Option<StreamId> {
        self.own.next(from, i64::MAX).map(|own| own.id)
    }

    /// The IDs that are pending at it from `from` on, and not delivered after `not_after`.
    pub fn walk(
        &self,
        from: StreamId,
        not_after: i64,
        mut visit: impl FnMut(StreamId) -> ControlFlow<()>,
    ) {
        self.own.walk_aged(from, not_after, |own| visit(own.id));
    }
}

/// See the module's documentation.
#[derive(Clone, Default)]
pub struct Group {
    /// Entries up to here were delivered.
    pub last_id: StreamId,
    /// How many entries it has read, [`UNKNOWN_READS`] if that is not known.
    pub entries_read: i64,
    pending: Tree<Pending>,
    /// By their numbers; a number that is free holds none.
    consumers: Vec<Option<Consumer>>,
    names: BTreeMap<Box<[u8]>, u32>,
    free: Vec<u32>,
    /// Bytes of the consumers' trees and names.
    consumer_bytes: usize,
}

impl Group {
    pub(super) fn new(last_id: StreamId, entries_read: i64) -> Group {
        Group { last_id, entries_read, ..Group::default() }
    }

    pub(super) fn allocated_bytes(&self) -> usize {
        /// A consumer's place in the map, by estimate.
        const PLACE: usize = 40;
        let numbers = block_size(self.consumers.capacity() * size_of::<Option<Consumer>>());
        let places = numbers + self.names.len() * PLACE;
        let own = block_size(2 * size_of::<usize>() + size_of::<Group>());
        own + self.pending.allocated_bytes() + self.consumer_bytes + places
    }

    /// Lets `change` rewrite what is pending at a consumer; `None` if there is no such consumer.
    fn change_own<R>(
        &mut self,
        number: usize,
        change: impl FnOnce(&mut Tree<Own>) -> R,
    ) -> Option<R> {
        let consumer = self.consumers.get_mut(number)?.as_mut()?;
        self.consumer_bytes -= consumer.own.allocated_bytes();
        let result = change(&mut consumer.own);
        self.consumer_bytes += consumer.own.allocated_bytes();
        Some(result)
    }

    pub(super) fn free_effort(&self) -> usize {
        self.pending.len() / 16 + 3 * self.names.len() + 1
    }

    // ---- consumers --------------------------------------------------------------------------

    /// Number of consumers.
    pub fn consumer_count(&self) -> usize {
        self.names.len()
    }

    /// The consumers in the order of their names.
    pub fn consumers(&self) -> impl Iterator<Item = &Consumer> {
        self.names.values().filter_map(|&number| self.consumer_at(number as usize))
    }

    /// The numbers of the consumers in the order of their names.
    pub(super) fn consumer_numbers(&self) -> Vec<usize> {
        self.names.values().map(|&number| number as usize).collect()
    }

    /// The number of a consumer.
    pub fn find_consumer(&self, name: &[u8]) -> Option<usize> {
        self.names.get(name).map(|&number| number as usize)
    }

    /// A consumer by its number.
    pub fn consumer_at(&self, number: usize) -> Option<&Consumer> {
        self.consumers.get(number)?.as_ref()
    }

    /// The same, to change its times.
    pub fn consumer_at_mut(&mut self, number: usize) -> Option<&mut Consumer> {
        self.consumers.get_mut(number)?.as_mut()
    }

    /// The name of the consumer that has an entry.
    pub fn owner(&self, pending: &Pending) -> &[u8] {
        self.consumer_at(pending.consumer()).map_or(b"", |consumer| &consumer.name)
    }

    /// Adds a consumer; `None` if there is one of this name.
    pub fn create_consumer(&mut self, name: &[u8], now: i64) -> Option<usize> {
        if self.names.contains_key(name) {
            return None;
        }
        let own = Tree::default();
        let consumer = Consumer { name: name.into(), seen_time: now, active_time: -1, own };
        let number = self.free.pop().unwrap_or_else(|| {
            self.consumers.push(None);
            self.consumers.len() as u32 - 1
        });
        self.consumer_bytes += consumer.bytes();
        self.consumers[number as usize] = Some(consumer);
        self.names.insert(name.into(), number);
        Some(number as usize)
    }

    /// Removes a consumer with all that is pending at it; how many entries that is.
    pub fn delete_consumer(&mut self, name: &[u8]) -> Option<usize> {
        let number = self.names.remove(name)?;
        let consumer = self.consumers.get_mut(number as usize)?.take()?;
        self.consumer_bytes -= consumer.bytes();
        self.free.push(number);
        consumer.own.for_each(|own| {
            self.pending.remove(own.id);
        });
        Some(consumer.own.len())
    }

    // ---- what is pending --------------------------------------------------------------------

    /// Number of entries that are pending.
    pub fn pending_count(&self) -> usize {
        self.pending.len()
    }

    /// An entry that is pending.
    pub fn pending(&self, id: StreamId) -> Option<&Pending> {
        self.pending.get(id)
    }

    /// The first that is pending.
    pub fn first_pending(&self) -> Option<&Pending> {
        self.pending.first()
    }

    /// The last that is pending.
    pub fn last_pending(&self) -> Option<&Pending> {
        self.pending.last()
    }

    /// The one that was delivered the longest time ago.
    pub fn oldest_pending(&self) -> Option<&Pending> {
        self.pending.oldest()
    }

    /// The entries that are pending from `from` on, and not delivered after `not_after`.
    pub fn walk<'a>(
        &'a self,
        from: StreamId,
        not_after: i64,
        visit: impl FnMut(&'a Pending) -> ControlFlow<()>,
    ) {
        self.pending.walk_aged(from, not_after, visit);
    }

    /// The first that is pending from `from` on.
    pub fn next_pending(&self, from: StreamId) -> Option<&Pending> {
        self.pending.next(from, i64::MAX)
    }

    /// Notes that an entry has been delivered to a consumer for the first time, or for the first
    /// time again if the group was set back.
    pub fn deliver(&mut self, id: StreamId, consumer: usize, now: i64) {
        self.assign(id, consumer, now, 1);
        if let Some(consumer) = self.consumer_at_mut(consumer) {
            consumer.active_time = now;
        }
    }

    /// Gives an entry to a consumer, whichever consumer has it.
    pub fn assign(&mut self, id: StreamId, consumer: usize, time: i64, deliveries: u64) {
        let new = Pending { id, time, deliveries, consumer: consumer as u32 };
        if let Some(old) = self.pending.insert(new)
            && old.consumer != new.consumer
        {
            self.change_own(old.consumer(), |own| own.remove(id));
        }
        self.change_own(consumer, |own| own.insert(Own { id, time }));
    }

    /// Takes an entry off the pending list; says whether it was there.
    pub fn acknowledge(&mut self, id: StreamId) -> bool {
        let Some(old) = self.pending.remove(id) else { return false };
        self.change_own(old.consumer(), |own| own.remove(id));
        true
    }

    /// The group reads on to this entry, which is above its last.
    pub fn advance(&mut self, id: StreamId, counters: &Counters) {
        let is_counted = self.entries_read != UNKNOWN_READS
            && self.last_id >= counters.first_id
            && !counters.has_gap_after(self.last_id);
        if is_counted {
            self.entries_read += 1;
        } else if counters.entries_added > 0 {
            self.entries_read = counters.reads_up_to(id);
        }
        self.last_id = id;
    }
}

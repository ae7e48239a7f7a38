//! A stream: entries in the order of their IDs, and the groups of consumers that read it.
//!
//! ```text
//!  Stream ─▶ Inner ─┬─ Blocks: tree of (ID, block) and the tail, which XADD fills
//!                   ├─ Counters: length, last ID, highest deleted ID, entries ever added …
//!                   ├─ idempotency: which messages of producers it has ([`Idempotency`])
//!                   └─ groups: name ─▶ Group ─┬─ pending: tree of (ID, consumer, time, deliveries)
//!                                             └─ consumers, each with a tree of its own IDs
//! ```
//!
//! Blocks hold the very bytes of RDB files ([`block`]), so saving and DUMP copy them and loading
//! checks them. Everything below `Inner` is shared by reference and copied when it is changed
//! ([`tree`]): a clone of a stream of any size costs as much as its list of groups. Snapshots, COPY
//! and commands that run long work on such clones, so no client waits for them.
//!
//! Costs: appending O(1) but for a new block, reading from an ID O(log n) and the entries,
//! acknowledging and claiming O(log n). See `docs/internals/streams.md`.

mod block;
mod blocks;
mod counters;
mod group;
mod id;
mod idempotency;
mod parts;
#[cfg(test)]
mod tests;
mod tree;
mod trim;

pub use block::{Fields, MAX_BYTES};
pub use counters::{Counters, UNKNOWN_READS};
pub use group::{Consumer, Group, Pending};
pub use id::{IdBuf, StreamId};
pub use idempotency::Idempotency;
pub use parts::{Malformed, Part, Parts, StreamBuilder, walk_block};
pub use trim::{References, Strategy, Trim};

use crate::size_class::block_size;
use blocks::Blocks;
use std::collections::BTreeMap;
use std::ops::ControlFlow;
use std::sync::Arc;

/// The thresholds at which a new block begins.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StreamLimits {
    /// Bytes of a block, 0 for no limit.
    pub max_bytes: usize,
    /// Entries of a block, 0 for no limit.
    pub max_entries: usize,
}

impl Default for StreamLimits {
    /// The defaults of the options.
    fn default() -> Self {
        StreamLimits { max_bytes: 4096, max_entries: 100 }
    }
}

/// Which entries, and in which direction.
#[derive(Clone, Copy, Debug)]
pub struct Range {
    /// The lowest ID.
    pub start: StreamId,
    /// The highest ID.
    pub end: StreamId,
    /// From the end to the start.
    pub is_reverse: bool,
}

impl Range {
    /// Everything, in order.
    pub const ALL: Range = Range::between(StreamId::MIN, StreamId::MAX);

    /// From one ID to another, in order.
    pub const fn between(start: StreamId, end: StreamId) -> Range {
        Range { start, end, is_reverse: false }
    }
}

/// Groups by their names.
type Groups = BTreeMap<Box<[u8]>, Arc<Group>>;

#[derive(Clone, Default)]
struct Inner {
    blocks: Blocks,
    counters: Counters,
    groups: Groups,
    idempotency: Option<Arc<Idempotency>>,
}

/// See the module's documentation.
#[derive(Clone)]
pub struct Stream(Box<Inner>);

impl Default for Stream {
    fn default() -> Self {
        Self::new()
    }
}

impl Stream {
    /// A stream to which nothing was ever added.
    pub fn new() -> Stream {
        Stream(Box::default())
    }

    /// Number of entries.
    pub fn len(&self) -> usize {
        self.0.counters.length as usize
    }

    /// Whether there is no entry; the key stays all the same.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The name OBJECT ENCODING gives it.
    pub fn encoding(&self) -> &'static str {
        "stream"
    }

    /// Its counters.
    pub fn counters(&self) -> &Counters {
        &self.0.counters
    }

    /// Number of blocks.
    pub fn block_count(&self) -> usize {
        self.0.blocks.len()
    }

    /// The IDs of its blocks, in order.
    pub fn for_each_block_id(&self, visit: impl FnMut(StreamId)) {
        self.0.blocks.for_each_id(visit);
    }

    /// Bytes allocated. Takes time in proportion to the number of groups, not to what they hold;
    /// the places of their names are estimated. What is shared with a copy counts whole.
    pub fn allocated_bytes(&self) -> usize {
        let groups = self.0.groups.iter();
        let groups: usize = groups.map(|(name, group)| name.len() + group.allocated_bytes()).sum();
        let ids = self.0.idempotency.as_ref().map_or(0, |ids| ids.allocated_bytes());
        block_size(size_of::<Inner>()) + self.0.blocks.allocated_bytes() + groups + ids
    }

    /// Roughly how many allocations freeing it takes.
    pub fn free_effort(&self) -> usize {
        let pending: usize = self.0.groups.values().map(|group| group.free_effort()).sum();
        let ids = self.0.idempotency.as_ref().map_or(0, |ids| ids.free_effort());
        2 * self.block_count() + pending + ids
    }

    // ---- entries ----------------------------------------------------------------------------

    /// Adds an entry, names and values in turn. Its ID must be above the last one.
    pub fn append(&mut self, id: StreamId, words: &[&[u8]], limits: &StreamLimits) {
        debug_assert!(id > self.0.counters.last_id);
        self.0.blocks.append(id, words, limits);
        let counters = &mut self.0.counters;
        counters.length += 1;
        counters.entries_added += 1;
        counters.last_id = id;
        if counters.length == 1 {
            counters.first_id = id;
        }
    }

    /// Visits entries in a range until the visitor breaks.
    pub fn walk(
        &self,
        range: Range,
        mut visit: impl FnMut(StreamId, &mut Fields<'_, '_>) -> ControlFlow<()>,
    ) {
        self.0.blocks.walk(range, false, &mut visit);
    }

    /// Shows the entry with this ID; `None` if there is none.
    pub fn get<R>(&self, id: StreamId, show: impl FnOnce(&mut Fields<'_, '_>) -> R) -> Option<R> {
        self.0.blocks.get(id, show)
    }

    /// Whether there is an entry with this ID.
    pub fn contains(&self, id: StreamId) -> bool {
        self.get(id, |_| ()).is_some()
    }

    /// The ID of the first entry, or of the last one.
    pub fn edge(&self, is_last: bool) -> Option<StreamId> {
        self.0.blocks.edge(is_last, false)
    }

    /// The ID of the first entry that there still is a trace of, deleted or not.
    pub fn first_trace(&self) -> Option<StreamId> {
        self.0.blocks.edge(false, true)
    }

    /// Deletes an entry; says whether it was there.
    pub fn delete(&mut self, id: StreamId) -> bool {
        if !self.0.blocks.delete(id) {
            return false;
        }
        let counters = &mut self.0.counters;
        counters.length -= 1;
        counters.note_deleted(id);
        if counters.length == 0 {
            counters.first_id = StreamId::MIN;
        } else if counters.first_id == id {
            counters.first_id = self.0.blocks.edge(false, false).unwrap_or_default();
        }
        true
    }

    /// XSETID: sets what the stream knows of its past.
    pub fn set_last_id(&mut self, last: StreamId, added: Option<u64>, max_deleted: StreamId) {
        let counters = &mut self.0.counters;
        counters.last_id = last;
        counters.entries_added = added.unwrap_or(counters.entries_added);
        if !max_deleted.is_zero() {
            counters.max_deleted_id = max_deleted;
        }
    }

    // ---- producers --------------------------------------------------------------------------

    /// Which messages of producers it has, if any was ever asked to be added once.
    pub fn idempotency(&self) -> Option<&Idempotency> {
        self.0.idempotency.as_deref()
    }

    /// The same to change it; it is made if there is none.
    pub fn idempotency_mut(&mut self) -> &mut Idempotency {
        Arc::make_mut(self.0.idempotency.get_or_insert_default())
    }

    /// Sets it to what a file has.
    pub fn set_idempotency(&mut self, idempotency: Idempotency) {
        self.0.idempotency = Some(Arc::new(idempotency));
    }

    // ---- groups -----------------------------------------------------------------------------

    /// The groups, in the order of their names.
    pub fn groups(&self) -> impl ExactSizeIterator<Item = (&[u8], &Group)> {
        self.0.groups.iter().map(|(name, group)| (&**name, &**group))
    }

    /// A group.
    pub fn group(&self, name: &[u8]) -> Option<&Group> {
        self.0.groups.get(name).map(|group| &**group)
    }

    /// A group, to change it.
    pub fn group_mut(&mut self, name: &[u8]) -> Option<&mut Group> {
        self.0.groups.get_mut(name).map(Arc::make_mut)
    }

    /// Adds a group that has read up to `last_id`; `false` if there is one of this name.
    pub fn create_group(&mut self, name: &[u8], last_id: StreamId, entries_read: i64) -> bool {
        let is_new = !self.0.groups.contains_key(name);
        if is_new {
            let group = Group::new(last_id, entries_read);
            self.0.groups.insert(name.into(), Arc::new(group));
        }
        is_new
    }

    /// A stream of nothing but a group, to be freed.
    pub fn of_group(group: Arc<Group>) -> Stream {
        let mut stream = Stream::new();
        stream.0.groups.insert(Box::default(), group);
        stream
    }

    /// Removes a group.
    pub fn destroy_group(&mut self, name: &[u8]) -> Option<Arc<Group>> {
        self.0.groups.remove(name)
    }

    /// Gives entries after a group's last ID, `count` at most, to a consumer: the group has read
    /// them, and they are pending unless `is_acknowledged`. Each is shown when that is done.
    pub fn deliver(
        &mut self,
        group: &[u8],
        consumer: usize,
        delivery: Delivery,
        mut show: impl FnMut(StreamId, &mut Fields<'_, '_>),
    ) -> usize {
        let Inner { blocks, counters, groups, .. } = &mut *self.0;
        let Some(group) = groups.get_mut(group).map(Arc::make_mut) else { return 0 };
        let Some(start) = group.last_id.next() else { return 0 };
        let mut delivered = 0;
        blocks.walk(Range::between(start, StreamId::MAX), false, &mut |id, fields| {
            if delivered == delivery.count {
                return ControlFlow::Break(());
            }
            group.advance(id, counters);
            if !delivery.is_acknowledged {
                group.deliver(id, consumer, delivery.now);
            }
            show(id, fields);
            delivered += 1;
            ControlFlow::Continue(())
        });
        delivered
    }

    /// Whether an entry is no group's business any more: each has read it, and none has it pending.
    pub fn is_acknowledged(&self, id: StreamId) -> bool {
        trim::is_acknowledged(&self.0.groups, id)
    }

    /// Drops an entry from the pending lists of all groups.
    pub fn forget(&mut self, id: StreamId) {
        trim::forget(&mut self.0.groups, id);
    }
}

/// How entries are given to a consumer.
#[derive(Clone, Copy, Debug)]
pub struct Delivery {
    /// At most so many.
    pub count: usize,
    /// They do not become pending (NOACK).
    pub is_acknowledged: bool,
    /// When.
    pub now: i64,
}

//! The blocks of a stream, in order: a tree of those that are full, and the tail.
//!
//! The tail stands apart because entries are added there and nowhere else.

use super::block::{Block, Fields, MAX_BYTES};
use super::tree::{self, Tree};
use super::{Range, StreamId, StreamLimits};
use crate::size_class::block_size;
use std::ops::ControlFlow;
use std::sync::Arc;

/// A block and its ID, which is that of its first entry.
#[derive(Clone)]
pub(super) struct Placed {
    pub id: StreamId,
    pub block: Arc<Block>,
}

impl tree::Item for Placed {
    fn id(&self) -> StreamId {
        self.id
    }
    fn time(&self) -> i64 {
        0
    }
}

/// See the module's documentation.
#[derive(Clone, Default)]
pub(super) struct Blocks {
    full: Tree<Placed>,
    tail: Option<Placed>,
    /// Bytes of all blocks.
    bytes: usize,
}

/// Bytes of a block besides its listpack.
const BLOCK_BYTES: usize = block_size(2 * size_of::<usize>() + size_of::<Block>());

type Visit<'v> = &'v mut dyn FnMut(&Placed) -> ControlFlow<()>;

impl Blocks {
    pub fn len(&self) -> usize {
        self.full.len() + usize::from(self.tail.is_some())
    }

    /// Bytes allocated, those of shared blocks included. Takes constant time.
    pub fn allocated_bytes(&self) -> usize {
        self.bytes + self.len() * BLOCK_BYTES + self.full.allocated_bytes()
    }

    // ---- adding -----------------------------------------------------------------------------

    /// Adds an entry behind all others.
    pub fn append(&mut self, id: StreamId, words: &[&[u8]], limits: &StreamLimits) {
        let Some(tail) = self.tail.as_mut().filter(|tail| has_room(&tail.block, words, limits))
        else {
            return self.begin(id, words);
        };
        self.bytes -= tail.block.allocated_bytes();
        let block = Arc::make_mut(&mut tail.block);
        block.append(tail.id, id, words);
        self.bytes += block.allocated_bytes();
    }

    /// Begins a block with an entry.
    fn begin(&mut self, id: StreamId, words: &[&[u8]]) {
        let mut reserved = 0;
        if let Some(mut tail) = self.tail.take() {
            self.bytes -= tail.block.allocated_bytes();
            let block = Arc::make_mut(&mut tail.block);
            block.seal();
            // Blocks of one stream are mostly alike.
            reserved = block.allocated_bytes();
            self.bytes += reserved;
            self.full.insert(tail);
        }
        self.push(id, Block::new(words, reserved));
    }

    /// Puts a block behind all others.
    pub fn push(&mut self, id: StreamId, block: Block) {
        self.bytes += block.allocated_bytes();
        if let Some(before) = self.tail.replace(Placed { id, block: Arc::new(block) }) {
            self.full.insert(before);
        }
    }

    // ---- reading ----------------------------------------------------------------------------

    /// The blocks from the one that may hold `from` on, in order.
    fn walk_blocks(&self, from: StreamId, visit: Visit<'_>) {
        let start = self.full.floor(from).map_or(from, |placed| placed.id);
        let mut flow = ControlFlow::Continue(());
        self.full.walk(start, |placed| {
            flow = visit(placed);
            flow
        });
        if flow.is_continue()
            && let Some(tail) = &self.tail
        {
            let _ = visit(tail);
        }
    }

    /// The blocks up to the one that may hold `to`, backwards.
    fn walk_blocks_back(&self, to: StreamId, visit: Visit<'_>) {
        if let Some(tail) = self.tail.as_ref().filter(|tail| tail.id <= to)
            && visit(tail).is_break()
        {
            return;
        }
        self.full.walk_back(to, visit);
    }

    /// Visits the entries of a range until the visitor breaks.
    pub fn walk(
        &self,
        range: Range,
        with_deleted: bool,
        visit: &mut impl FnMut(StreamId, &mut Fields<'_, '_>) -> ControlFlow<()>,
    ) {
        let Range { start, end, is_reverse } = range;
        if is_reverse {
            let mut visit = |id, fields: &mut Fields<'_, '_>| {
                if id < start { ControlFlow::Break(()) } else { visit(id, fields) }
            };
            return self.walk_blocks_back(end, &mut |placed| {
                placed.block.walk_back(placed.id, end, with_deleted, &mut visit)
            });
        }
        let mut visit = |id, fields: &mut Fields<'_, '_>| {
            if id > end { ControlFlow::Break(()) } else { visit(id, fields) }
        };
        if self.tail.as_ref().is_some_and(|tail| tail.id <= start)
            && let Some(tail) = &self.tail
        {
            // Most readers want what is new.
            let _ = tail.block.walk(tail.id, start, with_deleted, &mut visit);
            return;
        }
        self.walk_blocks(start, &mut |placed| {
            if placed.id > end {
                return ControlFlow::Break(());
            }
            placed.block.walk(placed.id, start, with_deleted, &mut visit)
        });
    }

    /// Shows the entry with this ID.
    pub fn get<R>(&self, id: StreamId, show: impl FnOnce(&mut Fields<'_, '_>) -> R) -> Option<R> {
        let (mut show, mut shown) = (Some(show), None);
        let placed = self.floor(id)?;
        let _ = placed.block.walk(placed.id, id, false, &mut |at, fields| {
            if at == id {
                shown = show.take().map(|show| show(fields));
            }
            ControlFlow::Break(())
        });
        shown
    }

    /// The block that may hold this ID.
    fn floor(&self, id: StreamId) -> Option<&Placed> {
        self.tail.as_ref().filter(|tail| tail.id <= id).or_else(|| self.full.floor(id))
    }

    /// The ID of the first entry, or of the last one.
    pub fn edge(&self, is_last: bool, with_deleted: bool) -> Option<StreamId> {
        let mut edge = None;
        let range = Range { is_reverse: is_last, ..Range::ALL };
        self.walk(range, with_deleted, &mut |id, _| {
            edge = Some(id);
            ControlFlow::Break(())
        });
        edge
    }

    /// The first block whose ID is not below this one.
    pub fn first_from(&self, id: StreamId) -> Option<&Placed> {
        let found = self.full.next(id, i64::MAX);
        found.or_else(|| self.tail.as_ref().filter(|tail| tail.id >= id))
    }

    pub fn for_each_id(&self, mut visit: impl FnMut(StreamId)) {
        self.for_each(|placed| visit(placed.id));
    }

    pub fn for_each(&self, mut visit: impl FnMut(&Placed)) {
        self.full.for_each(&mut visit);
        self.tail.iter().for_each(visit);
    }

    // ---- removing ---------------------------------------------------------------------------

    /// Deletes an entry; says whether it was there.
    pub fn delete(&mut self, id: StreamId) -> bool {
        let Some(placed) = self.floor(id) else { return false };
        self.delete_if(placed.id, |at| {
            if at > id { ControlFlow::Break(()) } else { ControlFlow::Continue(at == id) }
        }) > 0
    }

    /// Deletes those entries of a block that are chosen, and the block with the last of them; how
    /// many these were.
    pub fn delete_if(
        &mut self,
        block_id: StreamId,
        mut choose: impl FnMut(StreamId) -> ControlFlow<(), bool>,
    ) -> u64 {
        let bytes = &mut self.bytes;
        let mut change = |placed: &mut Placed| {
            *bytes -= placed.block.allocated_bytes();
            let block = Arc::make_mut(&mut placed.block);
            let deleted = block.delete_if(placed.id, &mut choose);
            *bytes += block.allocated_bytes();
            (deleted, block.len() == 0)
        };
        let changed = match &mut self.tail {
            Some(tail) if tail.id == block_id => Some(change(tail)),
            _ => self.full.update(block_id, change),
        };
        let Some((deleted, is_empty)) = changed else { return 0 };
        if is_empty {
            self.remove(block_id);
        }
        deleted
    }

    /// Removes a block.
    pub fn remove(&mut self, block_id: StreamId) {
        let removed = match &self.tail {
            Some(tail) if tail.id == block_id => self.tail.take(),
            _ => self.full.remove(block_id),
        };
        if let Some(removed) = removed {
            self.bytes -= removed.block.allocated_bytes();
        }
        if self.tail.is_none()
            && let Some(last) = self.full.last().map(|placed| placed.id)
        {
            self.tail = self.full.remove(last);
        }
    }
}

/// Whether an entry may be added to a block.
fn has_room(block: &Block, words: &[&[u8]], limits: &StreamLimits) -> bool {
    let max_bytes = match limits.max_bytes {
        0 => MAX_BYTES,
        bytes => bytes.min(MAX_BYTES),
    };
    let bytes: usize = words.iter().map(|word| word.len()).sum();
    block.as_bytes().len() + bytes < max_bytes
        && (limits.max_entries == 0 || block.total() < limits.max_entries as u64)
}

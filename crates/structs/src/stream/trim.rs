//! Trimming: deleting a stream's oldest entries, and what becomes of what groups know of them.

use super::{Group, Groups, Inner, Stream, StreamId};
use std::ops::ControlFlow;
use std::sync::Arc;

/// Which entries go.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Strategy {
    /// The oldest, until so many are left.
    MaxLength(u64),
    /// Those below an ID.
    MinId(StreamId),
}

/// What becomes of groups' references to entries that are deleted.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum References {
    /// They stay: a consumer that asks for its pending entries is told that they are gone.
    #[default]
    Keep,
    /// They go too.
    Delete,
    /// An entry stays unless every group has read and acknowledged it.
    Acknowledged,
}

/// What to trim.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Trim {
    /// Which entries go.
    pub strategy: Strategy,
    /// Only whole blocks.
    pub is_approximate: bool,
    /// Not more entries than this; 0 is no limit.
    pub limit: u64,
    /// What happens to references.
    pub references: References,
}

/// Whether every group has read the entry, and none has it pending.
pub(super) fn is_acknowledged(groups: &Groups, id: StreamId) -> bool {
    groups.values().all(|group| group.last_id >= id && group.pending(id).is_none())
}

/// Drops an entry from the pending lists of all groups.
pub(super) fn forget(groups: &mut Groups, id: StreamId) {
    for group in groups.values_mut().filter(|group| group.pending(id).is_some()) {
        Group::acknowledge(Arc::make_mut(group), id);
    }
}

impl Inner {
    /// Whether a whole block goes at once.
    fn takes_block(&self, trim: &Trim, id: StreamId, length: u64) -> bool {
        let Some(placed) = self.blocks.first_from(id).filter(|placed| placed.id == id) else {
            return false;
        };
        let is_below = match trim.strategy {
            Strategy::MaxLength(most) => length.saturating_sub(placed.block.len()) >= most,
            Strategy::MinId(least) => placed.block.last_id(id).is_none_or(|last| last < least),
        };
        is_below
            && (trim.references != References::Acknowledged || {
                let mut are_done = true;
                let _ = placed.block.walk(id, id, false, &mut |entry, _| {
                    are_done = is_acknowledged(&self.groups, entry);
                    if are_done { ControlFlow::Continue(()) } else { ControlFlow::Break(()) }
                });
                are_done
            })
    }

    /// Removes a whole block; how many entries it had.
    fn remove_block(&mut self, trim: &Trim, id: StreamId) -> u64 {
        let Some(placed) = self.blocks.first_from(id) else { return 0 };
        let block = Arc::clone(&placed.block);
        if trim.references == References::Acknowledged {
            self.counters.note_deleted(block.last_id(id).unwrap_or(id));
        }
        if trim.references == References::Delete && !self.groups.is_empty() {
            let _ = block.walk(id, id, false, &mut |entry, _| {
                forget(&mut self.groups, entry);
                ControlFlow::Continue(())
            });
        }
        self.blocks.remove(id);
        block.len()
    }

    /// Deletes single entries of a block; how many, and whether there may be more to do behind it.
    fn trim_within(&mut self, trim: &Trim, id: StreamId, length: u64) -> (u64, bool) {
        let Inner { blocks, groups, counters, .. } = self;
        let mut left = length;
        let mut is_over = false;
        let deleted = blocks.delete_if(id, |entry| {
            is_over = match trim.strategy {
                Strategy::MaxLength(most) => left <= most,
                Strategy::MinId(least) => entry >= least,
            };
            if is_over {
                return ControlFlow::Break(());
            }
            match trim.references {
                References::Keep => {}
                References::Delete => forget(groups, entry),
                References::Acknowledged if !is_acknowledged(groups, entry) => {
                    return ControlFlow::Continue(false);
                }
                // Those before it may stay, as where XDEL deletes.
                References::Acknowledged => counters.note_deleted(entry),
            }
            left -= 1;
            ControlFlow::Continue(true)
        });
        (deleted, !is_over)
    }
}

impl Stream {
    /// Deletes the oldest entries; how many.
    pub fn trim(&mut self, trim: &Trim) -> u64 {
        let inner = &mut *self.0;
        let (mut length, mut deleted) = (inner.counters.length, 0);
        let mut from = StreamId::MIN;
        while let Some(placed) = inner.blocks.first_from(from) {
            let (id, entries) = (placed.id, placed.block.len());
            if matches!(trim.strategy, Strategy::MaxLength(most) if length <= most)
                || (trim.limit > 0 && deleted + entries > trim.limit)
            {
                break;
            }
            let (gone, goes_on) = if inner.takes_block(trim, id, length) {
                (inner.remove_block(trim, id), true)
            } else if trim.is_approximate {
                break;
            } else {
                inner.trim_within(trim, id, length)
            };
            deleted += gone;
            length -= gone;
            let Some(next) = id.next().filter(|_| goes_on) else { break };
            from = next;
        }
        let counters = &mut inner.counters;
        counters.length = length;
        if length == 0 {
            counters.first_id = StreamId::MIN;
        } else if deleted > 0 {
            counters.first_id = inner.blocks.edge(false, false).unwrap_or_default();
        }
        deleted
    }

    /// About how many entries [`Stream::trim`] would have to look at.
    pub fn trim_effort(&self, trim: &Trim) -> u64 {
        let length = self.0.counters.length;
        let most = match trim.strategy {
            Strategy::MaxLength(most) => length.saturating_sub(most),
            // By the times of the first and last entries: good enough to tell much from little.
            Strategy::MinId(least) => {
                let (first, last) = (self.0.counters.first_id, self.0.counters.last_id);
                if least <= first {
                    0
                } else {
                    let span = last.ms.saturating_sub(first.ms).max(1) as f64;
                    let share = least.ms.saturating_sub(first.ms).max(1) as f64 / span;
                    (length as f64 * share.min(1.0)) as u64
                }
            }
        };
        if trim.limit > 0 { most.min(trim.limit) } else { most }
    }
}

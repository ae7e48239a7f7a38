//! A counted B+tree over the members of a sorted set, in the order of (score, member).
//!
//! ```text
//!  Inner, 2 KiB                              Leaf, 1 KiB
//!  ┌─────┬──────────────────────────────┐    ┌─────┬──────┬──────┬─────────────────────────┐
//!  │ len │ scores[63]   members[63]     │    │ len │ prev │ next │ scores[62]  members[62] │
//!  │     │ children[63] counts[63]      │    └─────┴──────┴──────┴─────────────────────────┘
//!  └─────┴──────────────────────────────┘
//! ```
//!
//! - A search compares scores, which lie side by side in the node; a member is looked at only where
//!   scores are equal. A million members are three levels above the leaves, and all but the last of
//!   those levels stay in the cache.
//! - `scores[i]`/`members[i]` of an inner node are those of the *first* entry under child `i`, for
//!   `i ≥ 1`. Entry 0 is never read: it may name a member that no longer exists.
//! - `counts[i]` is the number of entries under child `i`, so rank and selection are one descent.
//! - Leaves are linked: a range is one descent and then sequential.
//! - Nodes are at least a quarter full, except the first and the last of each level, which may run
//!   down to one entry: a queue that pushes at one end and pops at the other never shifts entries
//!   between leaves. Appending (or prepending) splits off an empty leaf instead of half, so sorted
//!   input fills leaves completely.
//!
//! The tree does not own the members. It reads those it holds, so a member must be removed before
//! it is freed.
//!
//! Cost: 16 bytes an entry at a fill of about 0.7. Rejected: a skiplist (a cache miss per step, and
//! pointers of 2.7 words a member), a B-tree with members in inner nodes too (no plain leaf walk),
//! storing a prefix of the member beside the score (pays only where many scores are equal).
#![allow(unsafe_code)] // Nodes are linked by raw pointers.

mod edit;
mod iter;
mod node;
mod path;
#[cfg(test)]
mod tests;

pub(crate) use iter::Iter;

use crate::give_way;
use crate::size_class::block_size;
use crate::zset::scored::ScoredPtr;
use node::{Inner, Leaf, Node};
use std::ops::Range;

/// The tree; see the module's documentation.
pub(crate) struct Tree {
    /// Null when the tree is empty, a [`Leaf`] when `height` is 0, else an [`Inner`].
    root: Node,
    /// Levels of inner nodes.
    height: usize,
    len: usize,
    /// Nodes of each kind, for the memory estimate.
    leaves: usize,
    inners: usize,
}

// SAFETY: the nodes belong to the tree; the members it points to belong to the owner of the tree,
// and are as mobile as it.
unsafe impl Send for Tree {}
// SAFETY: a shared tree is only read.
unsafe impl Sync for Tree {}

impl Tree {
    pub(crate) const fn new() -> Self {
        Self { root: Node::NULL, height: 0, len: 0, leaves: 0, inners: 0 }
    }

    /// Number of entries.
    #[inline]
    pub(crate) fn len(&self) -> usize {
        self.len
    }

    /// Bytes of all nodes.
    pub(crate) fn allocated_bytes(&self) -> usize {
        self.leaves * block_size(size_of::<Leaf>()) + self.inners * block_size(size_of::<Inner>())
    }

    /// Number of entries for which `before` holds. It must hold for a prefix of the order.
    pub(crate) fn count_while(&self, before: impl Fn(f64, ScoredPtr) -> bool) -> usize {
        if self.len == 0 {
            return 0;
        }
        let mut node = self.root;
        let mut count = 0;
        for _ in 0..self.height {
            // SAFETY: above the leaves, nodes are inner nodes.
            let inner = unsafe { node.inner() };
            let child = inner.partition(&before);
            count += inner.counts[..child].iter().sum::<usize>();
            node = inner.children[child];
        }
        // SAFETY: `height` levels down, nodes are leaves.
        count + unsafe { node.leaf() }.partition(&before)
    }

    /// Number of entries in front of the member, which must be there with this score.
    pub(crate) fn rank(&self, score: f64, member: &[u8]) -> usize {
        self.path_after(score, member).rank() - 1
    }

    /// Adds an entry that is not there yet. The member must live until it is removed.
    ///
    /// # Safety
    /// All members in the tree must live, and so must `member`, with `score` as its score.
    pub(crate) unsafe fn insert(&mut self, score: f64, member: ScoredPtr) {
        if self.root.is_null() {
            return self.start(score, member);
        }
        // SAFETY: the caller promises that it lives.
        let path = self.path_after(score, unsafe { member.member() });
        self.insert_at(&path, score, member);
    }

    /// Removes the entry of a member that is there with this score.
    ///
    /// # Safety
    /// All members in the tree must live.
    pub(crate) unsafe fn remove(&mut self, score: f64, member: ScoredPtr) {
        let path = self.path_to(score, member);
        self.remove_at(&path, 1, &mut |removed| debug_assert!(removed == member));
    }

    /// Moves a member from one score to another.
    ///
    /// # Safety
    /// All members in the tree must live.
    pub(crate) unsafe fn change_score(&mut self, old: f64, new: f64, member: ScoredPtr) {
        let path = self.path_to(old, member);
        if !self.change_in_place(&path, new) {
            self.remove_at(&path, 1, &mut |_| ());
            // SAFETY: the caller promises that members live.
            unsafe { self.insert(new, member) };
        }
    }

    /// Removes the entries of these ranks in order and hands each to `removed`, which may free it.
    pub(crate) fn remove_ranks(&mut self, ranks: Range<usize>, mut removed: impl FnMut(ScoredPtr)) {
        let mut left = ranks.len();
        while left > 0 {
            let path = self.path_at(ranks.start);
            left -= self.remove_at(&path, left, &mut removed);
        }
    }

    /// The entry at `rank`, which must be below the number of entries.
    pub(crate) fn get(&self, rank: usize) -> (f64, ScoredPtr) {
        let path = self.path_at(rank);
        let leaf = path.leaf();
        (leaf.scores[path.at], leaf.members[path.at])
    }

    /// The entries of these ranks.
    pub(crate) fn range(&self, ranks: Range<usize>) -> Iter<'_> {
        debug_assert!(ranks.is_empty() || ranks.end <= self.len);
        Iter::new(self, ranks)
    }

    /// Frees all nodes below and including `node`, which is `height` levels above the leaves.
    fn free(node: Node, height: usize) {
        if height == 0 {
            // SAFETY: a node at height 0 is a leaf, and is freed once.
            drop(unsafe { node.into_leaf() });
            return;
        }
        // SAFETY: a node above height 0 is an inner node, and is freed once.
        let inner = unsafe { node.into_inner() };
        for &child in &inner.children[..inner.len()] {
            Self::free(child, height - 1);
        }
        give_way::give_way();
    }
}

impl Drop for Tree {
    fn drop(&mut self) {
        if !self.root.is_null() {
            Self::free(self.root, self.height);
        }
    }
}

//! Walking ranks in either direction.
#![allow(unsafe_code)] // Dereferences nodes of the borrowed tree.

use super::node::Node;
use super::{ScoredPtr, Tree};
use std::iter::FusedIterator;
use std::ops::Range;

/// How many entries ahead members are fetched into the cache.
const AHEAD: usize = 8;

/// The entries of a range of ranks, in order or (from the back) in reverse.
#[derive(Clone)]
pub(crate) struct Iter<'a> {
    tree: &'a Tree,
    ranks: Range<usize>,
    /// The leaf of `ranks.start` and the index in it; null until first needed.
    front: (Node, usize),
    /// The leaf of `ranks.end - 1` and the index behind it; null until first needed.
    back: (Node, usize),
}

impl<'a> Iter<'a> {
    pub(super) fn new(tree: &'a Tree, ranks: Range<usize>) -> Self {
        Self { tree, ranks, front: (Node::NULL, 0), back: (Node::NULL, 0) }
    }
}

impl Iterator for Iter<'_> {
    type Item = (f64, ScoredPtr);

    #[inline]
    fn next(&mut self) -> Option<Self::Item> {
        if self.ranks.is_empty() {
            return None;
        }
        if self.front.0.is_null() {
            let path = self.tree.path_at(self.ranks.start);
            self.front = (path.leaf, path.at);
            for member in path.leaf().members[path.at..].iter().take(AHEAD) {
                member.prefetch();
            }
        }
        // SAFETY: a leaf of the borrowed tree.
        let mut leaf = unsafe { self.front.0.leaf() };
        if self.front.1 == leaf.len() {
            self.front = (leaf.next, 0);
            // SAFETY: the range is not at its end, so there is a next leaf.
            leaf = unsafe { leaf.next.leaf() };
        }
        let at = self.front.1;
        if let Some(member) = leaf.members.get(at + AHEAD) {
            member.prefetch();
        }
        self.front.1 += 1;
        self.ranks.start += 1;
        Some((leaf.scores[at], leaf.members[at]))
    }

    #[inline]
    fn size_hint(&self) -> (usize, Option<usize>) {
        (self.ranks.len(), Some(self.ranks.len()))
    }

    /// Skips in O(log n).
    fn nth(&mut self, n: usize) -> Option<Self::Item> {
        if n > 0 {
            self.ranks.start = self.ranks.start.saturating_add(n).min(self.ranks.end);
            self.front.0 = Node::NULL;
        }
        self.next()
    }
}

impl DoubleEndedIterator for Iter<'_> {
    #[inline]
    fn next_back(&mut self) -> Option<Self::Item> {
        if self.ranks.is_empty() {
            return None;
        }
        if self.back.0.is_null() {
            let path = self.tree.path_at(self.ranks.end - 1);
            self.back = (path.leaf, path.at + 1);
            for member in path.leaf().members[..path.at].iter().rev().take(AHEAD) {
                member.prefetch();
            }
        }
        // SAFETY: a leaf of the borrowed tree.
        let mut leaf = unsafe { self.back.0.leaf() };
        if self.back.1 == 0 {
            // SAFETY: the range is not at its end, so there is a leaf in front.
            let previous = unsafe { leaf.prev.leaf() };
            self.back = (leaf.prev, previous.len());
            leaf = previous;
        }
        let at = self.back.1 - 1;
        if let Some(ahead) = at.checked_sub(AHEAD) {
            leaf.members[ahead].prefetch();
        }
        self.back.1 = at;
        self.ranks.end -= 1;
        Some((leaf.scores[at], leaf.members[at]))
    }

    /// Skips in O(log n).
    fn nth_back(&mut self, n: usize) -> Option<Self::Item> {
        if n > 0 {
            self.ranks.end = self.ranks.end.saturating_sub(n).max(self.ranks.start);
            self.back.0 = Node::NULL;
        }
        self.next_back()
    }
}

impl ExactSizeIterator for Iter<'_> {}
impl FusedIterator for Iter<'_> {}

//! A descent from the root to an entry, remembered for the way back up.
#![allow(unsafe_code)] // Dereferences nodes of the borrowed tree.

use super::node::{Leaf, Node};
use super::{ScoredPtr, Tree};

/// Levels of inner nodes a tree can have. Nodes in the middle of a level have at least 15 entries,
/// so 15^12 entries would be needed for more.
const MAX_HEIGHT: usize = 12;

/// Bytes at the start of a node of either kind that hold what a search looks at. It would meet the
/// cache lines one after the other; asked for together they come together.
const SEARCHED: usize = 512;

/// The nodes from the root to an entry, and which child was taken in each.
///
/// Holds raw pointers: valid until the tree changes its shape.
pub(super) struct Path {
    steps: [Step; MAX_HEIGHT],
    height: usize,
    pub(super) leaf: Node,
    /// Index in the leaf; its length for the place behind its last entry.
    pub(super) at: usize,
}

#[derive(Clone, Copy)]
pub(super) struct Step {
    pub(super) node: Node,
    pub(super) child: usize,
}

impl Path {
    /// The inner nodes from the root down.
    #[inline]
    pub(super) fn steps(&self) -> &[Step] {
        &self.steps[..self.height]
    }

    #[inline]
    pub(super) fn leaf(&self) -> &Leaf {
        // SAFETY: paths end in a leaf, and are used while their tree is borrowed.
        unsafe { self.leaf.leaf() }
    }

    /// Number of entries in front of this place.
    pub(super) fn rank(&self) -> usize {
        self.steps().iter().fold(self.at, |rank, step| {
            // SAFETY: steps are inner nodes of the borrowed tree.
            let inner = unsafe { step.node.inner() };
            rank + inner.counts[..step.child].iter().sum::<usize>()
        })
    }
}

impl Tree {
    /// Descends by `choose`, which picks the child in an inner node; ends at index 0 of a leaf.
    #[inline]
    fn descend(&self, mut choose: impl FnMut(&super::Inner) -> usize) -> Path {
        let unset = Step { node: Node::NULL, child: 0 };
        let mut path =
            Path { steps: [unset; MAX_HEIGHT], height: self.height, leaf: self.root, at: 0 };
        for step in &mut path.steps[..self.height] {
            // SAFETY: the first `height` nodes of a descent are inner nodes.
            let inner = unsafe { path.leaf.inner() };
            let child = choose(inner);
            *step = Step { node: path.leaf, child };
            path.leaf = inner.children[child];
            path.leaf.prefetch(0, SEARCHED);
        }
        path
    }

    /// The place right behind (`score`, `member`), whether that is there or not. If it is there,
    /// its leaf is the path's.
    #[inline]
    pub(super) fn path_after(&self, score: f64, member: &[u8]) -> Path {
        let mut path = self.descend(|inner| inner.child_for(score, member));
        path.leaf.prefetch(SEARCHED, size_of::<Leaf>());
        path.at = path.leaf().upper_bound(score, member);
        path
    }

    /// The entry of a member that is there with this score.
    #[inline]
    pub(super) fn path_to(&self, score: f64, member: ScoredPtr) -> Path {
        // SAFETY: members in a tree live.
        let mut path = self.path_after(score, unsafe { member.member() });
        assert!(
            path.at > 0 && path.leaf().members[path.at - 1] == member,
            "a member is in the tree under the score it carries"
        );
        path.at -= 1;
        path
    }

    /// The entry at `rank`, which must be below the number of entries.
    pub(super) fn path_at(&self, rank: usize) -> Path {
        assert!(rank < self.len, "rank out of bounds");
        let mut left = rank;
        let mut path = self.descend(|inner| {
            let mut child = 0;
            while left >= inner.counts[child] {
                left -= inner.counts[child];
                child += 1;
            }
            child
        });
        path.at = left;
        path
    }
}

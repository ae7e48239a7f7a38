//! Changing the tree: splits on the way up after an insertion, merges after a removal.
#![allow(unsafe_code)] // Changes nodes of the exclusively borrowed tree.

use super::node::{
    Branch, INNER_CAPACITY, INNER_MERGED, INNER_MIN, Inner, LEAF_CAPACITY, LEAF_MERGED, LEAF_MIN,
    Leaf, Node,
};
use super::path::{Path, Step};
use super::{ScoredPtr, Tree};

/// How many pops ahead members are fetched into the cache.
const POPS_AHEAD: usize = 4;

impl Tree {
    /// The first entry of an empty tree.
    pub(super) fn start(&mut self, score: f64, member: ScoredPtr) {
        let mut leaf = Leaf::new();
        leaf.insert(0, score, member);
        self.root = leaf.into_node();
        self.leaves = 1;
        self.len = 1;
    }

    /// Inserts an entry at the place `path` leads to.
    pub(super) fn insert_at(&mut self, path: &Path, score: f64, member: ScoredPtr) {
        self.len += 1;
        for step in path.steps() {
            // SAFETY: steps are inner nodes of this tree, which is borrowed exclusively.
            unsafe { step.node.inner_mut() }.counts[step.child] += 1;
        }
        // SAFETY: the path ends in a leaf of this tree, which is borrowed exclusively.
        let leaf = unsafe { path.leaf.leaf_mut() };
        if leaf.len() < LEAF_CAPACITY {
            leaf.insert(path.at, score, member);
            return;
        }
        let (left, right) = self.split_leaf(path, score, member);
        // SAFETY: both are leaves of this tree, and `leaf` is no longer used.
        let (left_count, right_leaf) = unsafe { (left.leaf().len(), right.leaf()) };
        let left = Branch { score, member: ScoredPtr::NULL, child: left, count: left_count };
        let right = Branch {
            score: right_leaf.scores[0],
            member: right_leaf.members[0],
            child: right,
            count: right_leaf.len(),
        };
        self.replace_child(path.steps(), left, right);
    }

    /// Splits the full leaf of `path` and inserts the entry; returns both leaves in order.
    fn split_leaf(&mut self, path: &Path, score: f64, member: ScoredPtr) -> (Node, Node) {
        self.leaves += 1;
        // SAFETY: a leaf of this tree; the new leaf is another allocation.
        let leaf = unsafe { path.leaf.leaf_mut() };
        let mut added = Leaf::new();
        if path.at == 0 && leaf.prev.is_null() {
            // Prepending: the full leaf stays full.
            added.insert(0, score, member);
            added.next = path.leaf;
            leaf.prev = added.into_node();
            return (leaf.prev, path.leaf);
        }
        if path.at == LEAF_CAPACITY && leaf.next.is_null() {
            added.insert(0, score, member);
        } else {
            leaf.share(&mut added, LEAF_CAPACITY / 2);
            if path.at <= leaf.len() {
                leaf.insert(path.at, score, member);
            } else {
                added.insert(path.at - leaf.len(), score, member);
            }
        }
        added.prev = path.leaf;
        added.next = leaf.next;
        let added = added.into_node();
        if !leaf.next.is_null() {
            // SAFETY: the next leaf is neither of the two in use.
            unsafe { leaf.next.leaf_mut() }.prev = added;
        }
        leaf.next = added;
        (path.leaf, added)
    }

    /// Puts two nodes in the place of the child at the end of `steps`; what `left` has as first
    /// entry is what that child had.
    fn replace_child(&mut self, steps: &[Step], mut left: Branch, mut right: Branch) {
        for step in steps.iter().rev() {
            // SAFETY: an inner node of this tree; no other reference to it is in use.
            let inner = unsafe { step.node.inner_mut() };
            inner.children[step.child] = left.child;
            inner.counts[step.child] = left.count;
            let at = step.child + 1;
            if inner.len() < INNER_CAPACITY {
                inner.insert(at, right);
                return;
            }
            self.inners += 1;
            let mut added = Inner::new();
            inner.share(&mut added, INNER_CAPACITY / 2);
            if at <= inner.len() {
                inner.insert(at, right);
            } else {
                added.insert(at - inner.len(), right);
            }
            left.child = step.node;
            left.count = inner.total();
            right = Branch {
                score: added.scores[0],
                member: added.members[0],
                count: added.total(),
                child: added.into_node(),
            };
        }
        let mut root = Inner::new();
        root.insert(0, left);
        root.insert(1, right);
        self.inners += 1;
        self.root = root.into_node();
        self.height += 1;
    }

    /// Removes up to `count` entries at the place `path` leads to, as far as its leaf goes, and
    /// hands them to `removed`; returns their number.
    pub(super) fn remove_at(
        &mut self,
        path: &Path,
        count: usize,
        removed: &mut impl FnMut(ScoredPtr),
    ) -> usize {
        // SAFETY: the path ends in a leaf of this tree, which is borrowed exclusively.
        let leaf = unsafe { path.leaf.leaf_mut() };
        let count = count.min(leaf.len() - path.at);
        for &member in &leaf.members[path.at..path.at + count] {
            removed(member);
        }
        // A pop is likely followed by the next ones.
        let coming = match path.at {
            0 => count + POPS_AHEAD,
            at => at.saturating_sub(POPS_AHEAD),
        };
        if let Some(member) = leaf.members.get(coming) {
            member.prefetch();
        }
        leaf.remove(path.at, count);
        self.len -= count;
        for step in path.steps() {
            // SAFETY: steps are inner nodes of this tree, which is borrowed exclusively.
            unsafe { step.node.inner_mut() }.counts[step.child] -= count;
        }
        if leaf.len() == 0 {
            self.drop_leaf(path);
        } else {
            if path.at == 0 {
                Self::set_first(path.steps(), leaf.scores[0], leaf.members[0]);
            }
            // The ends of the level may run empty: see the module's documentation.
            if leaf.len() < LEAF_MIN && !leaf.prev.is_null() && !leaf.next.is_null() {
                self.refill_leaf(path.steps());
            }
        }
        count
    }

    /// Changes the score of the entry at `path` if that leaves it where it is.
    pub(super) fn change_in_place(&mut self, path: &Path, score: f64) -> bool {
        // SAFETY: the path ends in a leaf of this tree, which is borrowed exclusively.
        let leaf = unsafe { path.leaf.leaf_mut() };
        // Equal scores would need the members compared; those are left to the general case.
        let fits_left = match path.at.checked_sub(1) {
            Some(before) => leaf.scores[before] < score,
            None => leaf.prev.is_null(),
        };
        let fits_right = match path.at + 1 < leaf.len() {
            true => score < leaf.scores[path.at + 1],
            false => leaf.next.is_null(),
        };
        if !(fits_left && fits_right) {
            return false;
        }
        leaf.scores[path.at] = score;
        if path.at == 0 {
            Self::set_first(path.steps(), score, leaf.members[0]);
        }
        true
    }

    /// Records a new first entry for the child at the end of `steps`, where one is recorded.
    fn set_first(steps: &[Step], score: f64, member: ScoredPtr) {
        if let Some(step) = steps.iter().rev().find(|step| step.child > 0) {
            // SAFETY: an inner node of the tree that the caller borrows exclusively.
            unsafe { step.node.inner_mut() }.set_first(step.child, score, member);
        }
    }

    /// Removes the empty leaf of `path`.
    fn drop_leaf(&mut self, path: &Path) {
        // SAFETY: after it is unlinked here and below, nothing refers to the leaf.
        let leaf = unsafe { path.leaf.into_leaf() };
        self.leaves -= 1;
        // SAFETY: neighbours are leaves of this tree.
        unsafe {
            if !leaf.prev.is_null() {
                leaf.prev.leaf_mut().next = leaf.next;
            }
            if !leaf.next.is_null() {
                leaf.next.leaf_mut().prev = leaf.prev;
            }
        }
        self.remove_child(path.steps());
    }

    /// Forgets the child at the end of `steps`, which has been freed.
    fn remove_child(&mut self, steps: &[Step]) {
        let Some((step, above)) = steps.split_last() else {
            self.root = Node::NULL;
            self.height = 0;
            return;
        };
        // SAFETY: an inner node of this tree; no other reference to it is in use.
        let inner = unsafe { step.node.inner_mut() };
        inner.remove(step.child);
        if inner.len() == 0 {
            // SAFETY: the recursion removes the only reference to it.
            drop(unsafe { step.node.into_inner() });
            self.inners -= 1;
            return self.remove_child(above);
        }
        if step.child == 0 {
            // What was the second child's first entry is now the node's.
            Self::set_first(above, inner.scores[0], inner.members[0]);
        }
        self.refill_inner(steps);
    }

    /// Merges the leaf at the end of `steps` with a neighbour, or lets them share evenly.
    fn refill_leaf(&mut self, steps: &[Step]) {
        let Some((parent, left, right)) = Self::siblings(steps) else { return };
        // SAFETY: an inner node of this tree; no other reference to it is in use.
        let parent = unsafe { parent.inner_mut() };
        let (left_node, right_node) = (parent.children[left], parent.children[right]);
        // SAFETY: two different leaves of this tree, to which no other reference is in use.
        let (left_leaf, right_leaf) = unsafe { (left_node.leaf_mut(), right_node.leaf_mut()) };
        let sum = left_leaf.len() + right_leaf.len();
        if sum > LEAF_MERGED {
            left_leaf.share(right_leaf, sum / 2);
            parent.counts[left] = left_leaf.len();
            parent.counts[right] = right_leaf.len();
            parent.set_first(right, right_leaf.scores[0], right_leaf.members[0]);
            return;
        }
        left_leaf.share(right_leaf, sum);
        parent.counts[left] = sum;
        left_leaf.next = right_leaf.next;
        if !right_leaf.next.is_null() {
            // SAFETY: the leaf behind both.
            unsafe { right_leaf.next.leaf_mut() }.prev = left_node;
        }
        // SAFETY: unlinked from its neighbours, and from the parent in the lines below.
        drop(unsafe { right_node.into_leaf() });
        self.leaves -= 1;
        parent.remove(right);
        self.refill_inner(steps);
    }

    /// After the inner node that `steps` ends with has lost a child: shortens the tree, merges the
    /// node with a neighbour, or lets them share evenly.
    fn refill_inner(&mut self, steps: &[Step]) {
        let Some((step, above)) = steps.split_last() else { return };
        // SAFETY: an inner node of this tree.
        let len = unsafe { step.node.inner() }.len();
        if above.is_empty() {
            return self.shorten();
        }
        let is_first = above.iter().all(|step| step.child == 0);
        let is_last = above.iter().all(|step| {
            // SAFETY: an inner node of this tree.
            step.child + 1 == unsafe { step.node.inner() }.len()
        });
        if len >= INNER_MIN || is_first || is_last {
            return;
        }
        let Some((parent, left, right)) = Self::siblings(above) else { return };
        // SAFETY: an inner node of this tree; no other reference to it is in use.
        let parent = unsafe { parent.inner_mut() };
        let (left_node, right_node) = (parent.children[left], parent.children[right]);
        // SAFETY: two different inner nodes of this tree, to which no other reference is in use.
        let (left_inner, right_inner) = unsafe { (left_node.inner_mut(), right_node.inner_mut()) };
        // Only the parent knows the first entry under the right node's first child.
        right_inner.set_first(0, parent.scores[right], parent.members[right]);
        let sum = left_inner.len() + right_inner.len();
        if sum > INNER_MERGED {
            left_inner.share(right_inner, sum / 2);
            parent.counts[left] = left_inner.total();
            parent.counts[right] = right_inner.total();
            parent.set_first(right, right_inner.scores[0], right_inner.members[0]);
            return;
        }
        left_inner.share(right_inner, sum);
        parent.counts[left] += parent.counts[right];
        // SAFETY: its children have moved, and the parent forgets it in the lines below.
        drop(unsafe { right_node.into_inner() });
        self.inners -= 1;
        parent.remove(right);
        self.refill_inner(above);
    }

    /// Takes away roots with a single child.
    fn shorten(&mut self) {
        while self.height > 0 {
            // SAFETY: above height 0 the root is an inner node.
            let root = unsafe { self.root.inner() };
            if root.len() > 1 {
                return;
            }
            let child = root.children[0];
            // SAFETY: nothing refers to the old root any more.
            drop(unsafe { self.root.into_inner() });
            self.inners -= 1;
            self.root = child;
            self.height -= 1;
        }
    }

    /// The node at the end of `steps` and a neighbour: their parent, the left and the right index.
    fn siblings(steps: &[Step]) -> Option<(Node, usize, usize)> {
        let step = steps.last()?;
        // SAFETY: an inner node of the tree that the caller borrows exclusively.
        let len = unsafe { step.node.inner() }.len();
        if step.child + 1 < len {
            Some((step.node, step.child, step.child + 1))
        } else {
            Some((step.node, step.child.checked_sub(1)?, step.child))
        }
    }
}

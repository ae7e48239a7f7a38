//! The two kinds of nodes: parallel columns and how entries move in and between them.
#![allow(unsafe_code)] // Typed access to nodes behind one pointer type.

use crate::zset::scored::ScoredPtr;
use std::cmp::Ordering;
use std::ptr;

/// Entries a leaf holds: as many as fit in 1 KiB.
pub(super) const LEAF_CAPACITY: usize = 62;
/// Children an inner node holds: as many as fit in 2 KiB.
pub(super) const INNER_CAPACITY: usize = 63;
/// A node in the middle of its level is refilled below this.
pub(super) const LEAF_MIN: usize = LEAF_CAPACITY / 4;
pub(super) const INNER_MIN: usize = INNER_CAPACITY / 4;
/// Two neighbours are merged up to this sum; above it they share evenly. The gap to the capacity
/// keeps a merged node from being split again at once.
pub(super) const LEAF_MERGED: usize = LEAF_CAPACITY * 3 / 4;
pub(super) const INNER_MERGED: usize = INNER_CAPACITY * 3 / 4;

/// A pointer to either kind of node; the level it is found on tells which.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) struct Node(*mut u8);

#[repr(C)]
pub(super) struct Leaf {
    len: u16,
    pub(super) prev: Node,
    pub(super) next: Node,
    pub(super) scores: [f64; LEAF_CAPACITY],
    pub(super) members: [ScoredPtr; LEAF_CAPACITY],
}

#[repr(C)]
pub(super) struct Inner {
    len: u16,
    pub(super) scores: [f64; INNER_CAPACITY],
    pub(super) members: [ScoredPtr; INNER_CAPACITY],
    pub(super) children: [Node; INNER_CAPACITY],
    pub(super) counts: [usize; INNER_CAPACITY],
}

const _: () = assert!(size_of::<Leaf>() <= 1024 && size_of::<Inner>() <= 2048);

/// An inner node's entry: a child, its first entry and its number of entries.
#[derive(Clone, Copy)]
pub(super) struct Branch {
    pub(super) score: f64,
    pub(super) member: ScoredPtr,
    pub(super) child: Node,
    pub(super) count: usize,
}

impl Node {
    pub(super) const NULL: Self = Self(ptr::null_mut());

    #[inline]
    pub(super) fn is_null(self) -> bool {
        self.0.is_null()
    }

    /// Asks for the lines from `start` to `end` of the node; harmless whatever the pointer.
    #[inline]
    pub(super) fn prefetch(self, start: usize, end: usize) {
        for offset in (start..end).step_by(64) {
            ScoredPtr::prefetch_address(self.0.wrapping_add(offset));
        }
    }

    /// # Safety
    /// The node must be a leaf of a tree that is borrowed for as long as the result is used.
    #[inline]
    pub(super) unsafe fn leaf<'a>(self) -> &'a Leaf {
        // SAFETY: as the caller promises.
        unsafe { &*self.0.cast::<Leaf>() }
    }

    /// # Safety
    /// As for [`Node::leaf`], and no other reference to the node may be in use.
    #[inline]
    pub(super) unsafe fn leaf_mut<'a>(self) -> &'a mut Leaf {
        // SAFETY: as the caller promises.
        unsafe { &mut *self.0.cast::<Leaf>() }
    }

    /// # Safety
    /// As for [`Node::leaf`], for an inner node.
    #[inline]
    pub(super) unsafe fn inner<'a>(self) -> &'a Inner {
        // SAFETY: as the caller promises.
        unsafe { &*self.0.cast::<Inner>() }
    }

    /// # Safety
    /// As for [`Node::leaf_mut`], for an inner node.
    #[inline]
    pub(super) unsafe fn inner_mut<'a>(self) -> &'a mut Inner {
        // SAFETY: as the caller promises.
        unsafe { &mut *self.0.cast::<Inner>() }
    }

    /// # Safety
    /// The node must be a leaf that nothing refers to any more.
    pub(super) unsafe fn into_leaf(self) -> Box<Leaf> {
        // SAFETY: leaves are made by `Leaf::into_node`.
        unsafe { Box::from_raw(self.0.cast()) }
    }

    /// # Safety
    /// The node must be an inner node that nothing refers to any more.
    pub(super) unsafe fn into_inner(self) -> Box<Inner> {
        // SAFETY: inner nodes are made by `Inner::into_node`.
        unsafe { Box::from_raw(self.0.cast()) }
    }
}

/// The first index at which `before` does not hold.
#[inline]
fn partition(
    scores: &[f64],
    members: &[ScoredPtr],
    before: impl Fn(f64, ScoredPtr) -> bool,
) -> usize {
    let (mut low, mut high) = (0, scores.len());
    while low < high {
        let middle = (low + high) / 2;
        if before(scores[middle], members[middle]) {
            low = middle + 1;
        } else {
            high = middle;
        }
    }
    low
}

/// The first index whose entry comes after (`score`, `member`).
#[inline]
fn upper_bound(scores: &[f64], members: &[ScoredPtr], score: f64, member: &[u8]) -> usize {
    let start = scores.partition_point(|&other| other < score);
    if scores.get(start).is_none_or(|&other| other != score) {
        return start;
    }
    let same = scores[start..].partition_point(|&other| other == score);
    start
        + members[start..start + same].partition_point(|other| {
            // SAFETY: members in a tree live.
            unsafe { other.member() }.cmp(member) != Ordering::Greater
        })
}

/// Makes room at `at` in a column of `len` values and puts `value` there.
#[inline]
fn insert<T: Copy>(column: &mut [T], len: usize, at: usize, value: T) {
    column.copy_within(at..len, at + 1);
    column[at] = value;
}

/// Moves values between two neighbouring columns so that the left one has `target` of them.
fn share<T: Copy>(
    left: &mut [T],
    left_len: usize,
    right: &mut [T],
    right_len: usize,
    target: usize,
) {
    if left_len > target {
        let moved = left_len - target;
        right.copy_within(0..right_len, moved);
        right[..moved].copy_from_slice(&left[target..left_len]);
    } else {
        let moved = target - left_len;
        left[left_len..target].copy_from_slice(&right[..moved]);
        right.copy_within(moved..right_len, 0);
    }
}

impl Leaf {
    pub(super) fn new() -> Box<Self> {
        Box::new(Self {
            len: 0,
            prev: Node::NULL,
            next: Node::NULL,
            scores: [0.0; LEAF_CAPACITY],
            members: [ScoredPtr::NULL; LEAF_CAPACITY],
        })
    }

    pub(super) fn into_node(self: Box<Self>) -> Node {
        Node(Box::into_raw(self).cast())
    }

    #[inline]
    pub(super) fn len(&self) -> usize {
        usize::from(self.len)
    }

    fn set_len(&mut self, len: usize) {
        self.len = len as u16;
    }

    #[inline]
    pub(super) fn partition(&self, before: impl Fn(f64, ScoredPtr) -> bool) -> usize {
        partition(&self.scores[..self.len()], &self.members[..self.len()], before)
    }

    #[inline]
    pub(super) fn upper_bound(&self, score: f64, member: &[u8]) -> usize {
        upper_bound(&self.scores[..self.len()], &self.members[..self.len()], score, member)
    }

    #[inline]
    pub(super) fn insert(&mut self, at: usize, score: f64, member: ScoredPtr) {
        let len = self.len();
        insert(&mut self.scores, len, at, score);
        insert(&mut self.members, len, at, member);
        self.set_len(len + 1);
    }

    pub(super) fn remove(&mut self, at: usize, count: usize) {
        let len = self.len();
        self.scores.copy_within(at + count..len, at);
        self.members.copy_within(at + count..len, at);
        self.set_len(len - count);
    }

    /// Moves entries between this leaf and its right neighbour; this one then has `target`.
    pub(super) fn share(&mut self, right: &mut Self, target: usize) {
        let (left_len, right_len) = (self.len(), right.len());
        share(&mut self.scores, left_len, &mut right.scores, right_len, target);
        share(&mut self.members, left_len, &mut right.members, right_len, target);
        self.set_len(target);
        right.set_len(left_len + right_len - target);
    }
}

impl Inner {
    pub(super) fn new() -> Box<Self> {
        Box::new(Self {
            len: 0,
            scores: [0.0; INNER_CAPACITY],
            members: [ScoredPtr::NULL; INNER_CAPACITY],
            children: [Node::NULL; INNER_CAPACITY],
            counts: [0; INNER_CAPACITY],
        })
    }

    pub(super) fn into_node(self: Box<Self>) -> Node {
        Node(Box::into_raw(self).cast())
    }

    #[inline]
    pub(super) fn len(&self) -> usize {
        usize::from(self.len)
    }

    fn set_len(&mut self, len: usize) {
        self.len = len as u16;
    }

    /// The child in which the first entry lies that `before` does not hold for.
    #[inline]
    pub(super) fn partition(&self, before: impl Fn(f64, ScoredPtr) -> bool) -> usize {
        partition(&self.scores[1..self.len()], &self.members[1..self.len()], before)
    }

    /// The child in which (`score`, `member`) lies or belongs.
    #[inline]
    pub(super) fn child_for(&self, score: f64, member: &[u8]) -> usize {
        upper_bound(&self.scores[1..self.len()], &self.members[1..self.len()], score, member)
    }

    /// Number of entries below this node.
    pub(super) fn total(&self) -> usize {
        self.counts[..self.len()].iter().sum()
    }

    pub(super) fn insert(&mut self, at: usize, branch: Branch) {
        let len = self.len();
        insert(&mut self.scores, len, at, branch.score);
        insert(&mut self.members, len, at, branch.member);
        insert(&mut self.children, len, at, branch.child);
        insert(&mut self.counts, len, at, branch.count);
        self.set_len(len + 1);
    }

    pub(super) fn remove(&mut self, at: usize) {
        let len = self.len();
        self.scores.copy_within(at + 1..len, at);
        self.members.copy_within(at + 1..len, at);
        self.children.copy_within(at + 1..len, at);
        self.counts.copy_within(at + 1..len, at);
        self.set_len(len - 1);
    }

    /// Records the first entry under child `at`.
    pub(super) fn set_first(&mut self, at: usize, score: f64, member: ScoredPtr) {
        self.scores[at] = score;
        self.members[at] = member;
    }

    /// Moves children between this node and its right neighbour; this one then has `target`. The
    /// first entry under the right one's first child must be recorded before.
    pub(super) fn share(&mut self, right: &mut Self, target: usize) {
        let (left_len, right_len) = (self.len(), right.len());
        share(&mut self.scores, left_len, &mut right.scores, right_len, target);
        share(&mut self.members, left_len, &mut right.members, right_len, target);
        share(&mut self.children, left_len, &mut right.children, right_len, target);
        share(&mut self.counts, left_len, &mut right.counts, right_len, target);
        self.set_len(target);
        right.set_len(left_len + right_len - target);
    }
}

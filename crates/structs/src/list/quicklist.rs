//! A list too big for one listpack: a deque of them.
//!
//! ```text
//!   nodes: | listpack, count | listpack, count | plain element | listpack, count |
//! ```
//!
//! A node is a listpack of at most the configured size, with its number of elements, or one large
//! element alone. Nodes are two words in a ring buffer rather than a linked list: finding an index
//! reads 16 bytes a node from memory that is contiguous, at the price of moving two words a node
//! when one is inserted in the middle (a node is some 8 KiB, so that is 1/500 of the list).
//!
//! No node is ever empty. Neighbours may be less than full: they are merged when an insertion had
//! to split a node, but not after removals, as in Redis.

use super::limits::{ENTRY_OVERHEAD, ListLimits, Margin};
use super::nodes::Nodes;
use crate::blob::Blob;
use crate::listpack::{Element, Listpack, Needle};
use crate::size_class::block_size;
use std::ops::Range;

/// The left or the right end of a list.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum End {
    /// The end LPUSH and LPOP work at.
    Left,
    /// The end RPUSH and RPOP work at.
    Right,
}

#[derive(Clone)]
pub(super) enum Node {
    Packed { listpack: Listpack, count: u32 },
    Plain(Blob),
}

const _: () = assert!(size_of::<Node>() == 16);

impl Node {
    pub(super) fn packed(listpack: Listpack) -> Self {
        let count = listpack.count() as u32;
        Self::Packed { listpack, count }
    }

    pub(super) fn plain(element: &[u8]) -> Self {
        Self::Plain(Blob::new(element))
    }

    /// A node for `element`, with room for more if `limits` let it take more.
    fn new(element: &[u8], end: End, limits: &ListLimits) -> Self {
        if element.len() >= limits.plain_from {
            return Self::plain(element);
        }
        let room = if limits.node_count >= 64 { limits.node_bytes / 8 } else { 0 };
        let mut listpack = Listpack::with_capacity(room.max(element.len() + 16));
        match end {
            End::Left => listpack.push_front(element),
            End::Right => listpack.push_back(element),
        }
        Self::Packed { listpack, count: 1 }
    }

    #[inline]
    pub(super) fn count(&self) -> usize {
        match self {
            Self::Packed { count, .. } => *count as usize,
            Self::Plain(_) => 1,
        }
    }

    /// Bytes of its blocks. Takes constant time.
    #[inline]
    pub(super) fn allocated_bytes(&self) -> usize {
        match self {
            Self::Packed { listpack, .. } => listpack.allocated_bytes(),
            Self::Plain(bytes) => bytes.allocated_bytes(),
        }
    }

    /// Adds `element` at `index` if there is room.
    #[inline]
    fn try_insert(&mut self, index: usize, element: &[u8], limits: &ListLimits) -> bool {
        let Self::Packed { listpack, count } = self else { return false };
        if !limits.node_takes(listpack.bytes_len(), *count as usize, element.len()) {
            return false;
        }
        if index == 0 {
            listpack.push_front(element);
        } else if index == *count as usize {
            listpack.push_back(element);
        } else {
            let mut cursor = listpack.cursor_at_mut(index as i64).expect("index is in the node");
            cursor.insert_before(element);
        }
        *count += 1;
        true
    }

    /// Removes up to `max` elements that equal the needle, coming from `end`. The node may be left
    /// empty, which the caller has to clean up.
    fn remove(&mut self, end: End, needle: &Needle<'_>, max: usize) -> usize {
        match self {
            Self::Packed { listpack, count } => {
                let removed = remove_from(listpack, end, needle, max);
                *count -= removed as u32;
                removed
            }
            Self::Plain(bytes) if needle.matches(Element::Bytes(bytes)) => {
                *self = Self::Packed { listpack: Listpack::new(), count: 0 };
                1
            }
            Self::Plain(_) => 0,
        }
    }

    fn can_merge(&self, right: &Node, limits: &ListLimits) -> bool {
        match (self, right) {
            (
                Self::Packed { listpack: a, count: a_count },
                Self::Packed { listpack: b, count: b_count },
            ) => {
                // Two headers become one.
                let bytes = a.bytes_len() + b.bytes_len() - 7;
                !limits.exceeded_by(bytes, (a_count + b_count) as usize)
            }
            _ => false,
        }
    }
}

#[derive(Clone, Default)]
pub(super) struct Quicklist {
    pub(super) nodes: Nodes,
    pub(super) len: usize,
}

impl Quicklist {
    #[inline]
    pub(super) fn push(&mut self, end: End, element: &[u8], limits: &ListLimits) {
        self.len += 1;
        let was_added = self.nodes.change_end(end, |node| {
            let Node::Packed { listpack, count } = node else { return false };
            if !limits.node_takes(listpack.bytes_len(), *count as usize, element.len()) {
                return false;
            }
            *count += 1;
            match end {
                End::Left => listpack.push_front(element),
                End::Right => listpack.push_back(element),
            }
            true
        });
        if was_added != Some(true) {
            self.nodes.push(end, Node::new(element, end, limits));
        }
    }

    /// Removes the element at `end` after `read` has seen it.
    #[inline]
    pub(super) fn pop<R>(&mut self, end: End, read: impl FnOnce(Element<'_>) -> R) -> Option<R> {
        let (result, is_spent) = self.nodes.change_end(end, |node| match node {
            Node::Packed { listpack, count } => {
                let result = match end {
                    End::Left => listpack.pop_front(read),
                    End::Right => listpack.pop_back(read),
                };
                *count -= 1;
                (result, *count == 0)
            }
            Node::Plain(bytes) => (Some(read(Element::Bytes(bytes))), true),
        })?;
        self.len -= 1;
        if is_spent {
            self.nodes.pop(end);
        }
        result
    }

    /// Adds a node, which must not be empty, on the right.
    pub(super) fn append(&mut self, node: Node) {
        self.len += node.count();
        self.nodes.push(End::Right, node);
    }

    /// The only node's listpack, or an empty one if there is no node, provided that it is small
    /// enough to be a list's whole; the quicklist is then spent.
    pub(super) fn take_small(&mut self, limits: &ListLimits, margin: Margin) -> Option<Listpack> {
        if self.nodes.len() > 1 {
            return None;
        }
        let taken = self.nodes.change_end(End::Left, |node| match node {
            Node::Packed { listpack, count } => limits
                .allow_listpack(listpack.bytes_len(), *count as usize, margin)
                .then(|| std::mem::take(listpack)),
            Node::Plain(_) => None,
        });
        taken.unwrap_or_else(|| Some(Listpack::new()))
    }

    /// The node that holds `index`, and the index in it. `index` may be the length, which is
    /// behind the last element of the last node.
    pub(super) fn locate(&self, index: usize) -> (usize, usize) {
        if index <= self.len / 2 {
            let mut left = index;
            for (at, node) in self.nodes.iter().enumerate() {
                if left < node.count() {
                    return (at, left);
                }
                left -= node.count();
            }
        } else {
            // How many elements lie at and behind `index`.
            let mut right = self.len - index;
            for (at, node) in self.nodes.iter().enumerate().rev() {
                if right <= node.count() {
                    return (at, node.count() - right);
                }
                right -= node.count();
            }
        }
        unreachable!("the counts of the nodes add up to the length")
    }

    /// Adds `element` before what is now at `index`, which may be the length.
    pub(super) fn insert(&mut self, index: usize, element: &[u8], limits: &ListLimits) {
        let (at, inside) = self.locate(index);
        self.len += 1;
        if self.nodes.change(at, |node| node.try_insert(inside, element, limits)) {
            return;
        }
        if inside == 0 {
            return self.insert_between(at, element, limits);
        }
        if inside == self.nodes[at].count() {
            return self.insert_between(at + 1, element, limits);
        }
        self.split(at, inside);
        self.insert_between(at + 1, element, limits);
        // The split has left up to three small nodes here.
        let last = (at + 3).min(self.nodes.len() - 1);
        for right in (at.max(1)..=last).rev() {
            self.try_merge(right - 1, limits);
        }
    }

    /// Adds `element` between node `at - 1` and node `at`: to one of them, or as a node.
    fn insert_between(&mut self, at: usize, element: &[u8], limits: &ListLimits) {
        if at > 0 {
            let at_its_end = |left: &mut Node| left.try_insert(left.count(), element, limits);
            if self.nodes.change(at - 1, at_its_end) {
                return;
            }
        }
        if at < self.nodes.len()
            && self.nodes.change(at, |right| right.try_insert(0, element, limits))
        {
            return;
        }
        self.nodes.insert(at, Node::new(element, End::Right, limits));
    }

    /// Cuts node `at` in two before `index`, which is inside it.
    fn split(&mut self, at: usize, index: usize) {
        let right = self.nodes.change(at, |node| {
            let Node::Packed { listpack, count } = node else {
                unreachable!("a plain node has no inside")
            };
            let right_count = *count - index as u32;
            *count = index as u32;
            Node::Packed { listpack: listpack.split_off(index), count: right_count }
        });
        self.nodes.insert(at + 1, right);
    }

    /// Merges node `at` and the one behind it, if they fit into one.
    fn try_merge(&mut self, at: usize, limits: &ListLimits) {
        if !self.nodes[at].can_merge(&self.nodes[at + 1], limits) {
            return;
        }
        let Some(Node::Packed { listpack: right, count: right_count }) = self.nodes.remove(at + 1)
        else {
            unreachable!("only packed nodes can be merged")
        };
        self.nodes.change(at, |left| {
            if let Node::Packed { listpack, count } = left {
                listpack.append(&right);
                *count += right_count;
            }
        });
    }

    /// Puts `element` in the place of the one at `index`.
    pub(super) fn set(&mut self, index: usize, element: &[u8], limits: &ListLimits) {
        let (at, inside) = self.locate(index);
        let large = element.len() >= limits.plain_from;
        let is_set = self.nodes.change(at, |node| match node {
            Node::Packed { listpack, count } if !large => {
                // The old element's bytes are counted as if they stayed, to keep this simple.
                let bytes = listpack.bytes_len() + element.len() + ENTRY_OVERHEAD;
                let fits = !limits.exceeded_by(bytes, *count as usize);
                if fits {
                    let cursor = listpack.cursor_at_mut(inside as i64);
                    cursor.expect("the index is in the node").replace(element);
                }
                fits
            }
            Node::Plain(bytes) if large => {
                *bytes = Blob::new(element);
                true
            }
            _ => false,
        });
        if is_set {
            return;
        }
        if self.nodes[at].count() == 1 {
            self.nodes.change(at, |node| *node = Node::new(element, End::Right, limits));
        } else {
            self.delete_range(index, 1);
            self.insert(index, element, limits);
        }
    }

    /// Removes `count` elements, which must be there, from `index` on.
    pub(super) fn delete_range(&mut self, index: usize, count: usize) {
        if count == 0 {
            return;
        }
        let (mut at, mut inside) = self.locate(index);
        self.len -= count;
        let mut left = count;
        // A part of the first node, whole nodes, a part of the last.
        let mut whole: Option<Range<usize>> = None;
        while left > 0 {
            let here = left.min(self.nodes[at].count() - inside);
            let goes = self.nodes.change(at, |node| match node {
                Node::Packed { listpack, count } if here < *count as usize => {
                    listpack.delete_range(inside as i64, here);
                    *count -= here as u32;
                    false
                }
                _ => true,
            });
            if goes {
                whole.get_or_insert(at..at).end = at + 1;
            }
            left -= here;
            inside = 0;
            at += 1;
        }
        if let Some(whole) = whole {
            self.nodes.remove_range(whole);
        }
    }

    /// Removes up to `max` elements that equal the needle, coming from `end`; returns how many.
    pub(super) fn remove(&mut self, end: End, needle: &Needle<'_>, max: usize) -> usize {
        let mut removed = 0;
        let mut emptied = false;
        let count = self.nodes.len();
        for step in 0..count {
            if removed == max {
                break;
            }
            let at = if end == End::Left { step } else { count - 1 - step };
            self.nodes.change(at, |node| {
                removed += node.remove(end, needle, max - removed);
                emptied |= node.count() == 0;
            });
        }
        if emptied {
            self.nodes.remove_empty();
        }
        self.len -= removed;
        removed
    }

    /// Bytes allocated. Takes constant time.
    pub(super) fn allocated_bytes(&self) -> usize {
        block_size(size_of::<Self>()) + self.nodes.allocated_bytes()
    }
}

/// Removes up to `max` elements of a listpack that equal the needle, coming from `end`.
pub(super) fn remove_from(
    listpack: &mut Listpack,
    end: End,
    needle: &Needle<'_>,
    max: usize,
) -> usize {
    let mut removed = 0;
    let matches = |element: Option<Element<'_>>| element.map(|element| needle.matches(element));
    match end {
        End::Left => {
            let mut cursor = listpack.cursor_front_mut();
            while removed < max {
                match matches(cursor.element()) {
                    Some(true) => removed += cursor.delete(1),
                    Some(false) => cursor.move_next(),
                    None => break,
                }
            }
        }
        End::Right => {
            let mut cursor = listpack.cursor_end_mut();
            while removed < max && cursor.move_prev() {
                if matches(cursor.element()) == Some(true) {
                    removed += cursor.delete(1);
                }
            }
        }
    }
    removed
}

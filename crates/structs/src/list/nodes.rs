//! The nodes of a [quicklist](super::quicklist), and the bytes that they take.
//!
//! Nodes are changed through here and nowhere else, so their bytes are added up as they change and
//! nothing has to be walked to know them.

use super::quicklist::{End, Node};
use crate::size_class::block_size;
use std::collections::VecDeque;
use std::ops::{Deref, Range};

/// See the module's documentation. It is read like the deque that it is.
#[derive(Clone, Default)]
pub(super) struct Nodes {
    nodes: VecDeque<Node>,
    /// Bytes of what the nodes hold.
    bytes: usize,
}

impl Nodes {
    /// Bytes allocated. Takes constant time.
    pub(super) fn allocated_bytes(&self) -> usize {
        let ring = match self.nodes.capacity() {
            0 => 0,
            nodes => block_size(nodes * size_of::<Node>()),
        };
        ring + self.bytes
    }

    /// Lets `change` rewrite the node at an end; `None` if there is no node.
    #[inline]
    pub(super) fn change_end<R>(
        &mut self,
        end: End,
        change: impl FnOnce(&mut Node) -> R,
    ) -> Option<R> {
        let at = match end {
            End::Left => 0,
            End::Right => self.nodes.len().wrapping_sub(1),
        };
        let node = self.nodes.get_mut(at)?;
        Some(counted(&mut self.bytes, node, change))
    }

    /// Lets `change` rewrite the node at `at`, which is there.
    #[inline]
    pub(super) fn change<R>(&mut self, at: usize, change: impl FnOnce(&mut Node) -> R) -> R {
        counted(&mut self.bytes, &mut self.nodes[at], change)
    }

    #[inline]
    pub(super) fn push(&mut self, end: End, node: Node) {
        self.bytes += node.allocated_bytes();
        match end {
            End::Left => self.nodes.push_front(node),
            End::Right => self.nodes.push_back(node),
        }
    }

    /// Drops the node at an end.
    pub(super) fn pop(&mut self, end: End) {
        let node = match end {
            End::Left => self.nodes.pop_front(),
            End::Right => self.nodes.pop_back(),
        };
        self.bytes -= node.map_or(0, |node| node.allocated_bytes());
    }

    pub(super) fn insert(&mut self, at: usize, node: Node) {
        self.bytes += node.allocated_bytes();
        self.nodes.insert(at, node);
    }

    pub(super) fn remove(&mut self, at: usize) -> Option<Node> {
        let node = self.nodes.remove(at)?;
        self.bytes -= node.allocated_bytes();
        Some(node)
    }

    pub(super) fn remove_range(&mut self, range: Range<usize>) {
        for node in self.nodes.drain(range) {
            self.bytes -= node.allocated_bytes();
        }
    }

    /// Drops the nodes that are empty.
    pub(super) fn remove_empty(&mut self) {
        let bytes = &mut self.bytes;
        self.nodes.retain(|node| {
            let stays = node.count() > 0;
            *bytes -= if stays { 0 } else { node.allocated_bytes() };
            stays
        });
    }
}

/// Lets `change` rewrite a node and adds the difference to `bytes`.
#[inline]
fn counted<R>(bytes: &mut usize, node: &mut Node, change: impl FnOnce(&mut Node) -> R) -> R {
    let before = node.allocated_bytes();
    let result = change(node);
    *bytes = *bytes - before + node.allocated_bytes();
    result
}

impl Deref for Nodes {
    type Target = VecDeque<Node>;
    #[inline]
    fn deref(&self) -> &VecDeque<Node> {
        &self.nodes
    }
}

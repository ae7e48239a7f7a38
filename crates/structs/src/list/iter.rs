//! Walking a list.

use super::quicklist::Node;
use super::{List, View};
use crate::listpack::{self, Element, Run};
use std::collections::vec_deque;
use std::iter::FusedIterator;

/// Which way an [`Iter`] goes.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Direction {
    Left,
    Right,
}

/// The elements of a list from some index on, to the right or to the left.
///
/// `for_each` and the other internal iteration methods run a tight loop a node; prefer them.
#[derive(Clone)]
pub struct Iter<'a> {
    node: NodeIter<'a>,
    rest: vec_deque::Iter<'a, Node>,
    direction: Direction,
}

#[derive(Clone)]
enum NodeIter<'a> {
    Packed(listpack::Iter<'a>),
    Plain(&'a [u8]),
    Done,
}

impl<'a> NodeIter<'a> {
    /// The elements of `node` from `index` on.
    fn new(node: &'a Node, index: usize, direction: Direction) -> Self {
        match node {
            Node::Packed { listpack, .. } => Self::packed(listpack.run(), index, direction),
            Node::Plain(bytes) => Self::Plain(bytes),
        }
    }

    fn packed(run: Run<'a>, index: usize, direction: Direction) -> Self {
        let iter = if direction == Direction::Left {
            run.iter_up_to(index as i64)
        } else {
            run.iter_at(index as i64)
        };
        iter.map_or(Self::Done, Self::Packed)
    }

    /// All elements of `node`.
    #[inline]
    fn whole(node: &'a Node) -> Self {
        match node {
            Node::Packed { listpack, .. } => Self::Packed(listpack.iter()),
            Node::Plain(bytes) => Self::Plain(bytes),
        }
    }

    #[inline]
    fn next(&mut self, direction: Direction) -> Option<Element<'a>> {
        match self {
            Self::Packed(iter) if direction == Direction::Left => iter.next_back(),
            Self::Packed(iter) => iter.next(),
            Self::Plain(bytes) => {
                let element = Element::Bytes(bytes);
                *self = Self::Done;
                Some(element)
            }
            Self::Done => None,
        }
    }

    #[inline]
    fn fold<B>(self, direction: Direction, init: B, f: impl FnMut(B, Element<'a>) -> B) -> B {
        let mut f = f;
        match self {
            Self::Packed(iter) if direction == Direction::Left => iter.rfold(init, f),
            Self::Packed(iter) => iter.fold(init, f),
            Self::Plain(bytes) => f(init, Element::Bytes(bytes)),
            Self::Done => init,
        }
    }
}

impl<'a> Iter<'a> {
    /// The elements from `index` on, that one included; none if there is no such element.
    pub(super) fn new(list: &'a List, index: usize, direction: Direction) -> Self {
        let done = Self { node: NodeIter::Done, rest: Default::default(), direction };
        if index >= list.len() {
            return done;
        }
        match list.view() {
            View::Run(run) => Self { node: NodeIter::packed(run, index, direction), ..done },
            View::Quicklist(quicklist) => {
                let (at, inside) = quicklist.locate(index);
                let rest = if direction == Direction::Left {
                    quicklist.nodes.range(..at)
                } else {
                    quicklist.nodes.range(at + 1..)
                };
                let node = NodeIter::new(&quicklist.nodes[at], inside, direction);
                Self { node, rest, direction }
            }
        }
    }

    #[inline]
    fn next_node(&mut self) -> Option<&'a Node> {
        if self.direction == Direction::Left { self.rest.next_back() } else { self.rest.next() }
    }
}

impl<'a> Iterator for Iter<'a> {
    type Item = Element<'a>;

    #[inline]
    fn next(&mut self) -> Option<Element<'a>> {
        loop {
            if let Some(element) = self.node.next(self.direction) {
                return Some(element);
            }
            self.node = NodeIter::whole(self.next_node()?);
        }
    }

    #[inline]
    fn fold<B, F: FnMut(B, Element<'a>) -> B>(mut self, init: B, mut f: F) -> B {
        let node = std::mem::replace(&mut self.node, NodeIter::Done);
        let mut result = node.fold(self.direction, init, &mut f);
        while let Some(node) = self.next_node() {
            result = NodeIter::whole(node).fold(self.direction, result, &mut f);
        }
        result
    }
}

impl FusedIterator for Iter<'_> {}

/// See [`List::for_each_range`].
#[inline]
pub(super) fn for_each_range(
    list: &List,
    start: usize,
    count: usize,
    mut visit: impl FnMut(Element<'_>),
) {
    let count = count.min(list.len().saturating_sub(start));
    if count == 0 {
        return;
    }
    let quicklist = match list.view() {
        View::Run(run) => {
            if let Some(iter) = run.iter_at(start as i64) {
                iter.take(count).for_each(visit);
            }
            return;
        }
        View::Quicklist(quicklist) => quicklist,
    };
    let (at, mut inside) = quicklist.locate(start);
    let mut left = count;
    for node in quicklist.nodes.range(at..) {
        let here = left.min(node.count() - inside);
        match node {
            Node::Packed { listpack, .. } => {
                if let Some(iter) = listpack.iter_at(inside as i64) {
                    iter.take(here).for_each(&mut visit);
                }
            }
            Node::Plain(bytes) => visit(Element::Bytes(bytes)),
        }
        left -= here;
        inside = 0;
        if left == 0 {
            return;
        }
    }
}

//! A B-tree of items in the order of their IDs, which also knows the oldest time below each branch.
//!
//! ```text
//!   inner:  first │ oldest │ Arc ─▶ node      up to 64 of these
//!   leaf:   item, item, item …                 up to 64
//! ```
//!
//! - Search, insertion and removal cost O(log n). A search that asks for items of a certain age
//!   skips every branch whose oldest item is too young, so it costs O(log n) for each item it
//!   finds.
//! - Nodes are shared: a clone of the tree is one reference, and a change copies the nodes on its
//!   path that another holder shares. That is how a snapshot gets a whole stream in no time.
//! - An item that is added at the end of a full leaf begins a new one, so ascending IDs fill leaves
//!   completely. Removal joins a small node to its neighbour.
//!
//! Rejected: `BTreeMap` (no ages, a clone copies everything), a second index by time (24 bytes an
//! item more, and a search by ID and age costs O(n) in either index).

use super::StreamId;
use crate::size_class::block_size;
use std::ops::ControlFlow;
use std::sync::Arc;

/// Items of a leaf and branches of an inner node, at most.
const FANOUT: usize = 64;
/// A node with fewer than this many is joined to its neighbour if both fit half a node.
const SMALL: usize = FANOUT / 8;

/// What a tree holds.
pub trait Item: Clone {
    /// What it is sorted by.
    fn id(&self) -> StreamId;
    /// When it was last delivered; 0 where that means nothing.
    fn time(&self) -> i64;
}

#[derive(Clone)]
enum Node<T> {
    Leaf(Vec<T>),
    Inner(Vec<Branch<T>>),
}

#[derive(Clone)]
struct Branch<T> {
    /// Not above any ID below it; that of the first branch of a node is not looked at.
    first: StreamId,
    oldest: i64,
    node: Arc<Node<T>>,
}

/// See the module's documentation.
#[derive(Clone)]
pub struct Tree<T> {
    root: Arc<Node<T>>,
    len: usize,
    /// Bytes of all nodes, shared ones included.
    bytes: isize,
}

impl<T: Item> Default for Tree<T> {
    fn default() -> Self {
        let root = Node::Leaf(Vec::new());
        let bytes = root.bytes();
        Tree { root: Arc::new(root), len: 0, bytes }
    }
}

impl<T: Item> Branch<T> {
    /// A branch that is added to a tree of `bytes`.
    fn new(node: Node<T>, bytes: &mut isize) -> Branch<T> {
        *bytes += node.bytes();
        let (first, oldest) = (node.first(), node.oldest());
        Branch { first, oldest, node: Arc::new(node) }
    }
}

/// The place of an ID in a leaf: that of the item with it, or where it would be.
fn place<T: Item>(items: &[T], id: StreamId) -> Result<usize, usize> {
    match items.last() {
        Some(last) if last.id() < id => Err(items.len()),
        _ => items.binary_search_by_key(&id, Item::id),
    }
}

/// The branch that an ID belongs to.
fn branch<T>(branches: &[Branch<T>], id: StreamId) -> usize {
    branches.partition_point(|branch| branch.first <= id).saturating_sub(1)
}

/// Lets `change` rewrite a node, which is copied if it is shared, and adds the difference to
/// `bytes`, those of the node's tree.
fn rewrite<T: Item, R>(
    node: &mut Arc<Node<T>>,
    bytes: &mut isize,
    change: impl FnOnce(&mut Node<T>, &mut isize) -> R,
) -> R {
    *bytes -= node.bytes();
    let node = Arc::make_mut(node);
    let result = change(node, bytes);
    *bytes += node.bytes();
    result
}

impl<T: Item> Node<T> {
    /// Bytes of its own blocks, without what is below it.
    fn bytes(&self) -> isize {
        let entries = match self {
            Node::Leaf(items) => items.capacity() * size_of::<T>(),
            Node::Inner(branches) => branches.capacity() * size_of::<Branch<T>>(),
        };
        let counted = block_size(2 * size_of::<usize>() + size_of::<Self>());
        (counted + if entries == 0 { 0 } else { block_size(entries) }) as isize
    }

    fn first(&self) -> StreamId {
        match self {
            Node::Leaf(items) => items.first().map_or(StreamId::MIN, Item::id),
            Node::Inner(branches) => branches.first().map_or(StreamId::MIN, |branch| branch.first),
        }
    }

    fn oldest(&self) -> i64 {
        match self {
            Node::Leaf(items) => items.iter().map(Item::time).min(),
            Node::Inner(branches) => branches.iter().map(|branch| branch.oldest).min(),
        }
        .unwrap_or(i64::MAX)
    }

    fn len(&self) -> usize {
        match self {
            Node::Leaf(items) => items.len(),
            Node::Inner(branches) => branches.len(),
        }
    }

    /// Adds an item; what it replaces, and the branch that was split off.
    fn insert(&mut self, item: T, bytes: &mut isize) -> (Option<T>, Option<Branch<T>>) {
        match self {
            Node::Leaf(items) => match place(items, item.id()) {
                Ok(at) => (Some(std::mem::replace(&mut items[at], item)), None),
                Err(at) => {
                    let right = add(items, at, item);
                    (None, right.map(|right| Branch::new(Node::Leaf(right), bytes)))
                }
            },
            Node::Inner(branches) => {
                let at = branch(branches, item.id());
                let (id, time) = (item.id(), item.time());
                let below = &mut branches[at];
                let (replaced, new) =
                    rewrite(&mut below.node, bytes, |node, bytes| node.insert(item, bytes));
                below.first = below.first.min(id);
                if new.is_some() || replaced.is_some() {
                    below.oldest = below.node.oldest();
                } else {
                    below.oldest = below.oldest.min(time);
                }
                let Some(new) = new else { return (replaced, None) };
                let right = add(branches, at + 1, new);
                (replaced, right.map(|right| Branch::new(Node::Inner(right), bytes)))
            }
        }
    }

    fn remove(&mut self, id: StreamId, bytes: &mut isize) -> Option<T> {
        match self {
            Node::Leaf(items) => place(items, id).ok().map(|at| items.remove(at)),
            Node::Inner(branches) => {
                let at = branch(branches, id);
                let below = branches.get_mut(at)?;
                let removed =
                    rewrite(&mut below.node, bytes, |node, bytes| node.remove(id, bytes))?;
                if removed.time() <= below.oldest {
                    below.oldest = below.node.oldest();
                }
                if below.node.len() < SMALL {
                    join(branches, at, bytes);
                }
                Some(removed)
            }
        }
    }

    fn update<R>(
        &mut self,
        id: StreamId,
        bytes: &mut isize,
        change: impl FnOnce(&mut T) -> R,
    ) -> Option<R> {
        match self {
            Node::Leaf(items) => place(items, id).ok().map(|at| change(&mut items[at])),
            Node::Inner(branches) => {
                let at = branch(branches, id);
                let below = branches.get_mut(at)?;
                let result =
                    rewrite(&mut below.node, bytes, |node, bytes| node.update(id, bytes, change));
                below.oldest = below.node.oldest();
                result
            }
        }
    }

    fn walk<'a>(
        &'a self,
        from: StreamId,
        not_after: i64,
        visit: &mut impl FnMut(&'a T) -> ControlFlow<()>,
    ) -> ControlFlow<()> {
        match self {
            Node::Leaf(items) => {
                let start = place(items, from).unwrap_or_else(|at| at);
                items[start..].iter().filter(|item| item.time() <= not_after).try_for_each(visit)
            }
            Node::Inner(branches) => branches[branch(branches, from)..]
                .iter()
                .filter(|branch| branch.oldest <= not_after)
                .try_for_each(|branch| branch.node.walk(from, not_after, visit)),
        }
    }

    fn walk_back<'a>(
        &'a self,
        to: StreamId,
        visit: &mut impl FnMut(&'a T) -> ControlFlow<()>,
    ) -> ControlFlow<()> {
        match self {
            Node::Leaf(items) => {
                let end = place(items, to).map_or_else(|at| at, |at| at + 1);
                items[..end].iter().rev().try_for_each(visit)
            }
            Node::Inner(branches) => {
                let end = (branch(branches, to) + 1).min(branches.len());
                branches[..end].iter().rev().try_for_each(|branch| branch.node.walk_back(to, visit))
            }
        }
    }
}

/// Adds an entry at `at`. A full node is split first, so that none takes more than [`FANOUT`]
/// entries, which fill a block of the allocator; the right half is returned.
fn add<E>(entries: &mut Vec<E>, at: usize, new: E) -> Option<Vec<E>> {
    if entries.len() < FANOUT {
        if entries.len() == entries.capacity() {
            // The copy of a shared node has no room, and a vector would double it beyond what a
            // node takes.
            entries.reserve_exact(entries.len().max(4).min(FANOUT - entries.len()));
        }
        entries.insert(at, new);
        return None;
    }
    let mut right = Vec::with_capacity(FANOUT);
    if at == entries.len() {
        right.push(new);
        return Some(right);
    }
    let middle = entries.len() / 2;
    right.extend(entries.drain(middle..));
    match at.checked_sub(middle) {
        Some(at) if at > 0 => right.insert(at, new),
        _ => entries.insert(at, new),
    }
    Some(right)
}

/// Joins the small node at `at` to a neighbour that has room, or drops it if it is empty.
fn join<T: Item>(branches: &mut Vec<Branch<T>>, at: usize, bytes: &mut isize) {
    if branches[at].node.len() == 0 {
        *bytes -= branches[at].node.bytes();
        branches.remove(at);
        return;
    }
    let left = at.saturating_sub(usize::from(at + 1 == branches.len()));
    let Some([a, b]) = branches.get(left..left + 2) else { return };
    if a.node.len() + b.node.len() > FANOUT / 2 {
        return;
    }
    let b = branches.remove(left + 1);
    *bytes -= b.node.bytes();
    let a = &mut branches[left];
    rewrite(&mut a.node, bytes, |a, _| match (a, Arc::unwrap_or_clone(b.node)) {
        (Node::Leaf(items), Node::Leaf(mut more)) => items.append(&mut more),
        (Node::Inner(below), Node::Inner(mut more)) => below.append(&mut more),
        _ => unreachable!("all leaves are equally deep"),
    });
    a.oldest = a.oldest.min(b.oldest);
}

impl<T: Item> Tree<T> {
    /// Number of items.
    pub fn len(&self) -> usize {
        self.len
    }

    /// Adds an item; returns the one with the same ID, whose place it takes.
    pub fn insert(&mut self, item: T) -> Option<T> {
        let bytes = &mut self.bytes;
        let (replaced, new) =
            rewrite(&mut self.root, bytes, |root, bytes| root.insert(item, bytes));
        if let Some(new) = new {
            let empty = Arc::new(Node::Inner(Vec::with_capacity(4)));
            let old = std::mem::replace(&mut self.root, empty);
            let old = Branch { first: old.first(), oldest: old.oldest(), node: old };
            self.root = Arc::new(Node::Inner(vec![old, new]));
            self.bytes += self.root.bytes();
        }
        self.len += usize::from(replaced.is_none());
        replaced
    }

    /// Removes the item with this ID.
    pub fn remove(&mut self, id: StreamId) -> Option<T> {
        self.get(id)?;
        let bytes = &mut self.bytes;
        let removed = rewrite(&mut self.root, bytes, |root, bytes| root.remove(id, bytes))?;
        self.len -= 1;
        while let Node::Inner(branches) = &*self.root {
            let bytes = self.root.bytes();
            match &branches[..] {
                [] => {
                    self.root = Arc::new(Node::Leaf(Vec::new()));
                    self.bytes += self.root.bytes();
                }
                [only] => self.root = Arc::clone(&only.node),
                _ => break,
            }
            self.bytes -= bytes;
        }
        Some(removed)
    }

    /// Changes an item, though not its ID; `None` if it is not there.
    pub fn update<R>(&mut self, id: StreamId, change: impl FnOnce(&mut T) -> R) -> Option<R> {
        self.get(id)?;
        rewrite(&mut self.root, &mut self.bytes, |root, bytes| root.update(id, bytes, change))
    }

    /// The item with this ID.
    pub fn get(&self, id: StreamId) -> Option<&T> {
        let mut node = &*self.root;
        loop {
            match node {
                Node::Leaf(items) => return place(items, id).ok().map(|at| &items[at]),
                Node::Inner(branches) => node = &branches.get(branch(branches, id))?.node,
            }
        }
    }

    /// The first item.
    pub fn first(&self) -> Option<&T> {
        self.next(StreamId::MIN, i64::MAX)
    }

    /// The last item.
    pub fn last(&self) -> Option<&T> {
        self.floor(StreamId::MAX)
    }

    /// The first item from `from` on whose time is not after `not_after`.
    pub fn next(&self, from: StreamId, not_after: i64) -> Option<&T> {
        let mut found = None;
        self.walk_aged(from, not_after, |item| {
            found = Some(item);
            ControlFlow::Break(())
        });
        found
    }

    /// The last item up to `to`.
    pub fn floor(&self, to: StreamId) -> Option<&T> {
        let mut found = None;
        self.walk_back(to, |item| {
            found = Some(item);
            ControlFlow::Break(())
        });
        found
    }

    /// The item with the earliest time; of several the first.
    pub fn oldest(&self) -> Option<&T> {
        self.next(StreamId::MIN, self.root.oldest())
    }

    /// All items from `from` on, in order.
    pub fn walk<'a>(&'a self, from: StreamId, visit: impl FnMut(&'a T) -> ControlFlow<()>) {
        self.walk_aged(from, i64::MAX, visit);
    }

    /// The items from `from` on whose time is not after `not_after`, in order.
    pub fn walk_aged<'a>(
        &'a self,
        from: StreamId,
        not_after: i64,
        mut visit: impl FnMut(&'a T) -> ControlFlow<()>,
    ) {
        let _ = self.root.walk(from, not_after, &mut visit);
    }

    /// The items up to `to`, backwards.
    pub fn walk_back<'a>(&'a self, to: StreamId, mut visit: impl FnMut(&'a T) -> ControlFlow<()>) {
        let _ = self.root.walk_back(to, &mut visit);
    }

    /// All items, in order.
    pub fn for_each<'a>(&'a self, mut visit: impl FnMut(&'a T)) {
        self.walk(StreamId::MIN, |item| {
            visit(item);
            ControlFlow::Continue(())
        });
    }

    /// Bytes of all nodes, those that are shared included. Takes constant time.
    pub fn allocated_bytes(&self) -> usize {
        self.bytes as usize
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::random::Rng;
    use std::collections::BTreeMap;

    #[derive(Clone, Copy, PartialEq, Debug)]
    struct Timed(StreamId, i64);

    impl Item for Timed {
        fn id(&self) -> StreamId {
            self.0
        }
        fn time(&self) -> i64 {
            self.1
        }
    }

    fn check(tree: &Tree<Timed>, model: &BTreeMap<StreamId, i64>, rng: &mut Rng) {
        assert_eq!(tree.len(), model.len());
        let mut all = Vec::new();
        tree.for_each(|item| all.push((item.0, item.1)));
        assert!(all.iter().copied().eq(model.iter().map(|(&id, &time)| (id, time))));
        let id = StreamId::new(rng.next_u64() % 4000, 0);
        let bound = (rng.next_u64() % 1000) as i64;
        let aged = model.range(id..).find(|&(_, &time)| time <= bound);
        assert_eq!(tree.next(id, bound).map(|item| item.0), aged.map(|(&id, _)| id));
        assert_eq!(
            tree.floor(id).map(|item| item.0),
            model.range(..=id).next_back().map(|(&id, _)| id)
        );
        let oldest = model.iter().min_by_key(|&(&id, &time)| (time, id));
        assert_eq!(tree.oldest().map(|item| item.0), oldest.map(|(&id, _)| id));
        assert_eq!(tree.get(id).map(|item| item.1), model.get(&id).copied());
    }

    #[test]
    fn ascending_ids_cost_little_more_than_their_items() {
        let mut tree = Tree::default();
        for at in 0..100 * FANOUT as u64 {
            tree.insert(Timed(StreamId::new(at, 0), 0));
            if at % 1000 == 0 {
                // The next insertion copies the nodes that this holder shares.
                let shared = tree.clone();
                tree.insert(Timed(StreamId::new(at, 1), 0));
                drop(shared);
            }
        }
        let each = tree.allocated_bytes() as f64 / tree.len() as f64;
        assert!(each < size_of::<Timed>() as f64 + 2.0, "{each} bytes an item");
    }

    fn run(seed: u64, is_ascending: bool) {
        let mut rng = Rng::seeded(seed);
        let (mut tree, mut model) = (Tree::default(), BTreeMap::new());
        for step in 0..20_000u64 {
            // Grows, shrinks, and grows again.
            let grows = (step / 4000) % 2 == 0;
            let number = if is_ascending { step } else { rng.next_u64() % 4000 };
            let id = StreamId::new(number, 0);
            let time = (rng.next_u64() % 1000) as i64;
            match rng.next_u64() % 10 {
                0..=5 if grows => {
                    let replaced = tree.insert(Timed(id, time)).map(|item| item.1);
                    assert_eq!(replaced, model.insert(id, time));
                }
                6 | 7 => {
                    let changed = tree.update(id, |item| item.1 = time).is_some();
                    assert_eq!(changed, model.contains_key(&id));
                    model.entry(id).and_modify(|old| *old = time);
                }
                _ => {
                    let id = model.range(id..).next().map_or(id, |(&id, _)| id);
                    let id = if is_ascending { *model.keys().next().unwrap_or(&id) } else { id };
                    assert_eq!(tree.remove(id).map(|item| item.1), model.remove(&id));
                }
            }
            if step % 500 == 0 {
                check(&tree, &model, &mut rng);
            }
        }
        check(&tree, &model, &mut rng);
    }

    #[test]
    fn it_is_a_sorted_map_with_ages() {
        (1..4).for_each(|seed| run(seed, false));
        run(9, true);
    }

    #[test]
    fn a_clone_is_not_changed_by_what_follows() {
        let mut tree = Tree::default();
        for n in 0..5000 {
            tree.insert(Timed(StreamId::new(n, 0), n as i64));
        }
        let kept = tree.clone();
        for n in (0..5000).step_by(2) {
            tree.remove(StreamId::new(n, 0));
        }
        let mut numbers = Vec::new();
        kept.for_each(|item| numbers.push(item.1));
        assert!(numbers.into_iter().eq(0..5000));
        assert_eq!((kept.len(), tree.len()), (5000, 2500));
    }
}

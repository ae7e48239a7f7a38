//! The tree against a sorted vector, and a checker of its invariants.

use super::node::{INNER_CAPACITY, INNER_MIN, LEAF_CAPACITY, LEAF_MIN};
use super::*;
use crate::random::Rng;
use crate::zset::scored::Scored;
use proptest::prelude::*;
use std::cmp::Ordering;

/// Where a subtree lies in its level.
#[derive(Clone, Copy)]
struct Place {
    first: bool,
    last: bool,
}

struct Summary {
    len: usize,
    first: (f64, ScoredPtr),
}

impl Tree {
    /// Checks order, counts, recorded first entries, fill and links.
    pub(crate) fn assert_valid(&self) {
        if self.root.is_null() {
            assert_eq!((self.len, self.height, self.leaves, self.inners), (0, 0, 0, 0));
            return;
        }
        let mut leaves = Vec::new();
        let mut inners = 0;
        let place = Place { first: true, last: true };
        let root = Self::check(self.root, self.height, place, &mut leaves, &mut inners);
        assert_eq!(root.len, self.len);
        assert_eq!((leaves.len(), inners), (self.leaves, self.inners));
        let mut previous = Node::NULL;
        for (idx, &node) in leaves.iter().enumerate() {
            // SAFETY: `check` has listed only leaves.
            let leaf = unsafe { node.leaf() };
            assert!(leaf.prev == previous);
            assert!(leaf.next == leaves.get(idx + 1).copied().unwrap_or(Node::NULL));
            previous = node;
        }
        let entries: Vec<_> = self.range(0..self.len).collect();
        for pair in entries.windows(2) {
            let ((a, a_member), (b, b_member)) = (pair[0], pair[1]);
            // SAFETY: the model keeps the members alive.
            let members = unsafe { a_member.member().cmp(b_member.member()) };
            assert!(a < b || (a == b && members == Ordering::Less), "order");
        }
    }

    fn check(
        node: Node,
        height: usize,
        place: Place,
        leaves: &mut Vec<Node>,
        inners: &mut usize,
    ) -> Summary {
        if height == 0 {
            // SAFETY: height 0 is the level of leaves.
            let leaf = unsafe { node.leaf() };
            let edge = place.first || place.last;
            assert!(leaf.len() <= LEAF_CAPACITY);
            assert!(leaf.len() >= if edge { 1 } else { LEAF_MIN }, "leaf of {}", leaf.len());
            leaves.push(node);
            return Summary { len: leaf.len(), first: (leaf.scores[0], leaf.members[0]) };
        }
        *inners += 1;
        // SAFETY: above height 0 are inner nodes.
        let inner = unsafe { node.inner() };
        let edge = place.first || place.last;
        assert!(inner.len() <= INNER_CAPACITY);
        assert!(inner.len() >= if edge { 1 } else { INNER_MIN }, "inner of {}", inner.len());
        if place.first && place.last {
            assert!(inner.len() > 1, "a root has two children");
        }
        let mut summary: Option<Summary> = None;
        for at in 0..inner.len() {
            let child_place =
                Place { first: place.first && at == 0, last: place.last && at + 1 == inner.len() };
            let child = Self::check(inner.children[at], height - 1, child_place, leaves, inners);
            assert_eq!(child.len, inner.counts[at]);
            match &mut summary {
                None => summary = Some(child),
                Some(all) => {
                    assert_eq!(inner.scores[at], child.first.0);
                    assert!(inner.members[at] == child.first.1);
                    all.len += child.len;
                }
            }
        }
        summary.expect("inner nodes have children")
    }
}

/// A tree with its members and the same in a sorted vector.
#[derive(Default)]
struct Model {
    tree: Option<Tree>,
    sorted: Vec<Scored>,
}

impl Model {
    fn tree(&mut self) -> &mut Tree {
        self.tree.get_or_insert_with(Tree::new)
    }

    fn place(&self, score: f64, member: &[u8]) -> usize {
        self.sorted.partition_point(|other| {
            other.score() < score
                || (other.score() == score && crate::table::Item::key(other) < member)
        })
    }

    fn insert(&mut self, score: f64, member: &[u8]) {
        let at = self.place(score, member);
        let scored = Scored::new(member, score);
        // SAFETY: the model keeps the members alive.
        unsafe { self.tree().insert(score, scored.as_ptr()) };
        self.sorted.insert(at, scored);
    }

    fn remove(&mut self, at: usize) {
        let scored = self.sorted.remove(at);
        // SAFETY: the model keeps the members alive, this one until the end of the function.
        unsafe { self.tree().remove(scored.score(), scored.as_ptr()) };
    }

    fn change(&mut self, at: usize, score: f64) {
        let scored = self.sorted.remove(at);
        // SAFETY: the model keeps the members alive.
        unsafe {
            self.tree().change_score(scored.score(), score, scored.as_ptr());
            scored.as_ptr().set_score(score);
        }
        let at = self.place(score, crate::table::Item::key(&scored));
        self.sorted.insert(at, scored);
    }

    fn remove_ranks(&mut self, ranks: Range<usize>) {
        let gone: Vec<Scored> = self.sorted.drain(ranks.clone()).collect();
        let mut expected = gone.iter();
        self.tree().remove_ranks(ranks, |member| {
            assert!(expected.next().is_some_and(|scored| scored.as_ptr() == member));
        });
        assert!(expected.next().is_none());
    }

    fn check(&mut self) {
        let expected: Vec<_> =
            self.sorted.iter().map(|scored| (scored.score(), scored.as_ptr())).collect();
        let tree = self.tree();
        tree.assert_valid();
        assert!(tree.range(0..expected.len()).eq(expected.iter().copied()));
        assert!(tree.range(0..expected.len()).rev().eq(expected.iter().rev().copied()));
    }

    fn check_ranks(&mut self, rng: &mut Rng) {
        let len = self.sorted.len();
        for _ in 0..20.min(len) {
            let rank = rng.index(len);
            let (score, pointer) = (self.sorted[rank].score(), self.sorted[rank].as_ptr());
            let end = rank + rng.index(len - rank + 1);
            let expected: Vec<_> =
                self.sorted[rank..end].iter().map(|s| (s.score(), s.as_ptr())).collect();
            let below = self.sorted.partition_point(|scored| scored.score() < score);
            let tree = self.tree();
            assert!(tree.get(rank) == (score, pointer));
            // SAFETY: the model keeps the members alive.
            let member = unsafe { pointer.member() };
            assert_eq!(tree.rank(score, member), rank);
            assert_eq!(tree.count_while(|other, _| other < score), below);
            assert!(tree.range(rank..end).eq(expected.iter().copied()));
            let skipped = rng.index(4);
            assert!(tree.range(rank..end).skip(skipped).eq(expected.iter().skip(skipped).copied()));
            assert!(
                tree.range(rank..end).nth_back(skipped)
                    == expected.iter().copied().nth_back(skipped)
            );
        }
    }
}

/// Random changes that let the tree grow and then shrink, in several distributions of scores.
fn churn(seed: u64, steps: usize, distinct_scores: u64) {
    let mut rng = Rng::seeded(seed);
    let mut model = Model::default();
    for step in 0..steps {
        let score = rng.below(distinct_scores) as f64;
        let growing = step < steps / 2;
        let len = model.sorted.len();
        match rng.below(10) {
            0..5 if growing => model.insert(score, format!("m{step:06}").as_bytes()),
            0..5 if len > 0 => model.remove(rng.index(len)),
            5 if len > 0 => model.change(rng.index(len), score),
            6 if len > 0 => {
                // A small step, which often stays in place.
                let at = rng.index(len);
                let score = model.sorted[at].score();
                model.change(at, score + 1.0);
            }
            7 if len > 0 && step % 16 == 0 => {
                let start = rng.index(len);
                let most = (len - start).min(200);
                model.remove_ranks(start..start + rng.index(most + 1));
            }
            8 => model.insert(score, format!("n{step:06}").as_bytes()),
            _ if len > 0 && !growing => model.remove(if step % 2 == 0 { 0 } else { len - 1 }),
            _ => {}
        }
        if step % 256 == 0 {
            model.check();
            model.check_ranks(&mut rng);
        }
    }
    model.check();
    let len = model.sorted.len();
    model.remove_ranks(0..len);
    model.check();
}

const STEPS: usize = if cfg!(miri) { 600 } else { 20_000 };

#[test]
fn random_changes_with_many_scores() {
    churn(1, STEPS, 1 << 40);
}

#[test]
fn random_changes_with_few_scores() {
    churn(2, STEPS, 5);
}

#[test]
fn random_changes_with_one_score() {
    churn(3, STEPS, 1);
}

#[test]
fn sorted_input_fills_leaves() {
    let count = if cfg!(miri) { 300 } else { 50_000 };
    for descending in [false, true] {
        let mut model = Model::default();
        for n in 0..count {
            let score = if descending { (count - n) as f64 } else { n as f64 };
            model.insert(score, b"m");
        }
        model.check();
        let tree = model.tree();
        assert_eq!(tree.leaves, tree.len().div_ceil(LEAF_CAPACITY));
    }
}

#[test]
fn a_queue_does_not_move_entries_between_leaves() {
    let count = if cfg!(miri) { 300 } else { 20_000 };
    let mut model = Model::default();
    for n in 0..count {
        model.insert(n as f64, b"m");
        if n >= 200 {
            model.remove(0);
        }
        if n % 500 == 0 {
            model.check();
        }
    }
    assert!(model.tree().leaves <= 5);
    for n in 0..200 {
        let last = model.sorted.len() - 1;
        model.remove(if n % 2 == 0 { last } else { 0 });
        model.check();
    }
    assert_eq!(model.tree().allocated_bytes(), 0);
}

#[test]
fn thinning_out_merges_nodes() {
    let count = if cfg!(miri) { 400 } else { 50_000 };
    let mut model = Model::default();
    let mut rng = Rng::seeded(9);
    for n in 0..count {
        model.insert(rng.below(1 << 30) as f64, format!("{n}").as_bytes());
    }
    model.check();
    let full = model.tree().allocated_bytes();
    while model.sorted.len() > count / 50 {
        let at = rng.index(model.sorted.len());
        model.remove(at);
    }
    model.check();
    if !cfg!(miri) {
        assert!(
            model.tree().allocated_bytes() < full / 12,
            "{} of {full}",
            model.tree().allocated_bytes()
        );
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(if cfg!(miri) { 2 } else { 64 }))]

    #[test]
    fn any_seed(seed: u64, distinct in 1u64..2000) {
        churn(seed, if cfg!(miri) { 200 } else { 3000 }, distinct);
    }
}

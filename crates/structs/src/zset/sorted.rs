//! The big encoding: a tree in the order of scores and a hash table from member to score.
#![allow(unsafe_code)] // The tree refers to members that the table owns.

use super::Change;
use super::scored::{Scored, ScoredPtr};
use crate::btree::Tree;
use crate::hashing::hash;
use crate::size_class::block_size;
use crate::table::{Item, Table};
use crate::watched::Watched;
use std::ops::Range;

/// Tree and table over the same members.
///
/// Invariant: the tree holds exactly the members of the table, each under the score it carries.
/// That is what makes it sound to let the tree read members: they live in the table.
pub(super) struct Sorted {
    tree: Tree,
    table: Watched<Scored>,
}

/// The member behind a pointer that the tree of `_owner` gave.
#[inline]
fn member_of(_owner: &Sorted, member: ScoredPtr) -> &[u8] {
    // SAFETY: the tree's members live in the table of the same owner, which is borrowed.
    unsafe { member.member() }
}

impl Sorted {
    /// Slots of the table of members.
    pub(super) fn table_slots(&self) -> usize {
        self.table.slots()
    }

    pub(super) fn with_capacity(members: usize) -> Self {
        Self { tree: Tree::new(), table: Watched::with_capacity(members) }
    }

    #[inline]
    pub(super) fn len(&self) -> usize {
        self.tree.len()
    }

    pub(super) fn table(&self) -> &Watched<Scored> {
        &self.table
    }

    /// Bytes allocated. Takes constant time.
    pub(super) fn allocated_bytes(&self) -> usize {
        let own = block_size(size_of::<Self>()) - block_size(size_of::<Watched<Scored>>());
        own + self.tree.allocated_bytes() + self.table.allocated_bytes()
    }

    pub(super) fn table_order(&self) -> u64 {
        self.table.order()
    }

    #[inline]
    pub(super) fn score(&self, member: &[u8]) -> Option<f64> {
        self.table.get(hash(member), member).map(Scored::score)
    }

    pub(super) fn rank(&self, member: &[u8]) -> Option<(usize, f64)> {
        let score = self.score(member)?;
        Some((self.tree.rank(score, member), score))
    }

    /// See [`super::Zset::update`].
    pub(super) fn update(
        &mut self,
        member: &[u8],
        decide: impl FnOnce(Option<f64>) -> Option<f64>,
    ) -> Change {
        let hash = hash(member);
        let Some(present) = self.table.get(hash, member) else {
            let Some(score) = decide(None) else { return Change::Unchanged };
            self.insert_absent(hash, member, score);
            return Change::Added;
        };
        let (old, pointer) = (present.score(), present.as_ptr());
        match decide(Some(old)) {
            Some(new) if new != old => {
                self.table.before_change(hash);
                // SAFETY: the tree's members live in the table, and no other thread reads scores
                // meanwhile.
                unsafe {
                    self.tree.change_score(old, new, pointer);
                    pointer.set_score(new);
                }
                Change::Updated
            }
            _ => Change::Unchanged,
        }
    }

    /// Adds a member that is not there.
    pub(super) fn insert_absent(&mut self, hash: u64, member: &[u8], score: f64) {
        let scored = Scored::new(member, score);
        // SAFETY: the tree's members live in the table, and so will this one.
        unsafe { self.tree.insert(score, scored.as_ptr()) };
        self.table.insert_absent(hash, scored);
    }

    pub(super) fn remove(&mut self, member: &[u8]) -> Option<f64> {
        let hash = hash(member);
        let scored = self.table.occupied(hash, member)?.remove_hashed(hash);
        // SAFETY: the tree's members live in the table, this one until the end of the function.
        unsafe { self.tree.remove(scored.score(), scored.as_ptr()) };
        self.table.forget_retired();
        Some(scored.score())
    }

    /// Removes the members of these ranks in order; `visit` sees each before it goes.
    pub(super) fn remove_ranks(&mut self, ranks: Range<usize>, mut visit: impl FnMut(&[u8], f64)) {
        let table = &mut self.table;
        self.tree.remove_ranks(ranks, |pointer| {
            // SAFETY: the member lives in the table until the next lines remove it.
            let member = unsafe { pointer.member() };
            let hash = hash(member);
            let found = table.occupied(hash, member).expect("the table has the tree's members");
            let scored = found.remove_hashed(hash);
            visit(scored.key(), scored.score());
        });
        table.forget_retired();
    }

    /// Removes the member at `rank` after `read` has seen it. Made for one pop after the other at
    /// the same end: the next one's place in the table is fetched into the cache.
    pub(super) fn pop<R>(&mut self, rank: usize, read: impl FnOnce(&[u8], f64) -> R) -> Option<R> {
        let mut read = Some(read);
        let mut result = None;
        self.remove_ranks(rank..rank + 1, |member, score| {
            result = read.take().map(|read| read(member, score));
        });
        if let Some(last) = self.len().checked_sub(1) {
            let (next, _) = self.get(rank.min(last));
            // SAFETY: the table is borrowed, so its arrays are not freed meanwhile.
            unsafe { Table::prefetch(&*self.table, hash(next)) };
        }
        result
    }

    #[inline]
    pub(super) fn get(&self, rank: usize) -> (&[u8], f64) {
        let (score, member) = self.tree.get(rank);
        (member_of(self, member), score)
    }

    #[inline]
    pub(super) fn range(
        &self,
        ranks: Range<usize>,
    ) -> impl DoubleEndedIterator<Item = (&[u8], f64)> + ExactSizeIterator + Clone {
        self.tree.range(ranks).map(|(score, member)| (member_of(self, member), score))
    }

    #[inline]
    pub(super) fn count_while_score(&self, before: impl Fn(f64) -> bool) -> usize {
        self.tree.count_while(|score, _| before(score))
    }

    #[inline]
    pub(super) fn count_while_member(&self, before: impl Fn(&[u8]) -> bool) -> usize {
        self.tree.count_while(|_, member| before(member_of(self, member)))
    }

    #[cfg(test)]
    pub(super) fn assert_valid(&self) {
        self.tree.assert_valid();
        self.table.assert_valid();
        assert_eq!(self.tree.len(), self.table.len());
        for (score, pointer) in self.tree.range(0..self.tree.len()) {
            let member = member_of(self, pointer);
            let found = self.table.get(hash(member), member).expect("in both");
            assert!(found.as_ptr() == pointer);
            assert_eq!(found.score().to_bits(), score.to_bits());
        }
    }
}

impl Clone for Sorted {
    fn clone(&self) -> Self {
        let mut copy = Self::with_capacity(self.len());
        for (member, score) in self.range(0..self.len()) {
            copy.insert_absent(hash(member), member, score);
        }
        copy
    }
}

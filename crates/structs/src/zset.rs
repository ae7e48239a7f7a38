//! The sorted set: few short members in a listpack, others in a tree with a hash table beside it.
//!
//! Members are ordered by score and, where scores are equal, by their bytes. The thresholds are
//! Redis's ([`ZsetLimits`]), and a sorted set that has left the listpack goes back only when asked
//! ([`Zset::pack`]). OBJECT ENCODING calls the big encoding `skiplist` because clients know that
//! name; it is a counted B+tree (see the `btree` module) over members that are one allocation each,
//! score included.
//!
//! Every range, whatever its kind, is a range of ranks: [`Zset::ranks_by_score`] and
//! [`Zset::ranks_by_lex`] find it in O(log n), its length is ZCOUNT's answer, [`Zset::range`] walks
//! it from either end and [`Zset::remove_ranks`] removes it.
//!
//! Cost of the big encoding: lookup of a score O(1), everything else O(log n) plus the members
//! visited; about 35 bytes a member beside its own allocation of 12 bytes and its length.
//!
//! Scores are never NaN; the caller sees to that. -0 and 0 are equal; the big encoding keeps the
//! sign.

mod packed;
mod ranges;
pub(crate) mod scored;
mod sorted;
#[cfg(test)]
mod tests;

pub use ranges::{LexBound, LexRange, ScoreRange};

use crate::hashing::hash;
use crate::inline::{self, Extent, Inline};
use crate::listpack::{Element, Listpack, Malformed, Pairs, Run};
use crate::random::Rng;
use crate::sampling::select;
use crate::scan::scan_table;
use crate::table::{Item, Salted};
use sorted::Sorted;
use std::borrow::Cow;
use std::collections::HashSet;
use std::mem::{ManuallyDrop, MaybeUninit};
use std::ops::Range;

/// The thresholds of the small encoding, named as their options.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ZsetLimits {
    /// `zset-max-listpack-entries`
    pub max_listpack_entries: usize,
    /// `zset-max-listpack-value`, in bytes
    pub max_listpack_value: usize,
}

impl Default for ZsetLimits {
    fn default() -> Self {
        Self { max_listpack_entries: 128, max_listpack_value: 64 }
    }
}

/// What became of a member.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Change {
    /// It is new.
    Added,
    /// It was there with another score.
    Updated,
    /// It was there with that score, or nothing was to be done.
    Unchanged,
}

/// An end of the order.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Extreme {
    /// The lowest score.
    Min,
    /// The highest score.
    Max,
}

/// A sorted set; see the module's documentation.
pub struct Zset {
    repr: Repr,
}

enum Repr {
    Listpack(Listpack),
    Sorted(Box<Sorted>),
    Inline(Inline),
}

/// What a sorted set is, to read it.
enum View<'a> {
    Run(Run<'a>),
    Sorted(&'a Sorted),
}

const _: () = assert!(size_of::<Zset>() <= 16);

/// A sorted set in its serialized form.
pub enum ZsetContents<'a, I> {
    /// The bytes of a listpack of members and scores.
    Listpack(Cow<'a, [u8]>),
    /// The members with their scores, from the lowest to the highest.
    Sorted(I),
}

impl Default for Zset {
    fn default() -> Self {
        Self::new()
    }
}

impl Zset {
    /// An empty sorted set.
    pub fn new() -> Self {
        Self { repr: Repr::Listpack(Listpack::new()) }
    }

    /// An empty sorted set in the encoding that suits the number of members expected and the
    /// longest of them (0 where that is not known).
    pub fn with_capacity(members: usize, longest: usize, limits: &ZsetLimits) -> Self {
        let mut zset = Self::new();
        zset.will_grow(members, longest, limits);
        zset
    }

    /// Converts if a command is about to add more or longer members than the small encoding may
    /// hold. Commands that know it beforehand are expected to say so: OBJECT ENCODING tells.
    pub fn will_grow(&mut self, added: usize, longest: usize, limits: &ZsetLimits) {
        if matches!(self.repr, Repr::Listpack(_))
            && (added > limits.max_listpack_entries || longest > limits.max_listpack_value)
        {
            self.become_sorted(added);
        }
    }

    /// Takes the listpack of an RDB file or DUMP payload. It must not be empty, must be of pairs
    /// with a number in second place, and not have a member twice. Order is mended if need be.
    pub fn from_listpack(listpack: Listpack, limits: &ZsetLimits) -> Result<Self, Malformed> {
        let count = listpack.count();
        if count == 0 || !count.is_multiple_of(2) {
            return Err(Malformed);
        }
        let mut members = HashSet::with_capacity(count / 2);
        let mut last: Option<(f64, Vec<u8>)> = None;
        let mut ordered = true;
        for (member, score) in listpack.pairs() {
            let score = packed::parse_score(score).ok_or(Malformed)?;
            let member = member.to_vec();
            if let Some((last_score, last_member)) = &last {
                ordered &= *last_score < score || (*last_score == score && *last_member < member);
            }
            if !members.insert(member.clone()) {
                return Err(Malformed);
            }
            last = Some((score, member));
        }
        let mut zset = Self { repr: Repr::Listpack(listpack) };
        if count / 2 > limits.max_listpack_entries {
            zset.become_sorted(0);
        } else if !ordered {
            zset.become_sorted(0);
            zset.become_listpack();
        }
        Ok(zset)
    }

    #[inline]
    fn view(&self) -> View<'_> {
        match &self.repr {
            Repr::Listpack(listpack) => View::Run(listpack.run()),
            Repr::Sorted(sorted) => View::Sorted(sorted),
            Repr::Inline(inline) => View::Run(inline.entries()),
        }
    }

    /// Number of members.
    #[inline]
    pub fn len(&self) -> usize {
        match self.view() {
            View::Run(run) => run.count() / 2,
            View::Sorted(sorted) => sorted.len(),
        }
    }

    /// Whether there is no member.
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The name OBJECT ENCODING gives.
    pub fn encoding(&self) -> &'static str {
        match &self.repr {
            Repr::Listpack(_) | Repr::Inline(_) => "listpack",
            Repr::Sorted(_) => "skiplist",
        }
    }

    /// Slots of the hash table, if the sorted set has one.
    pub fn table_slots(&self) -> Option<usize> {
        match &self.repr {
            Repr::Sorted(sorted) => Some(sorted.table_slots()),
            _ => None,
        }
    }

    /// Bytes allocated for this sorted set, rounded as the allocator rounds them. Takes constant
    /// time.
    pub fn allocated_bytes(&self) -> usize {
        match &self.repr {
            Repr::Listpack(listpack) => listpack.allocated_bytes(),
            Repr::Sorted(sorted) => sorted.allocated_bytes(),
            Repr::Inline(_) => 0,
        }
    }

    /// What the order of a scan depends on, if the members are in a table
    /// ([`crate::table::in_order_of`]).
    pub fn table_order(&self) -> Option<u64> {
        match &self.repr {
            Repr::Sorted(sorted) => Some(sorted.table_order()),
            _ => None,
        }
    }

    // Members.

    /// The score of a member.
    #[inline]
    pub fn score(&self, member: &[u8]) -> Option<f64> {
        match self.view() {
            View::Run(run) => packed::score(run, member),
            View::Sorted(sorted) => sorted.score(member),
        }
    }

    /// The number of members in front of this one, and its score.
    pub fn rank(&self, member: &[u8]) -> Option<(usize, f64)> {
        match self.view() {
            View::Run(run) => packed::rank(run, member),
            View::Sorted(sorted) => sorted.rank(member),
        }
    }

    /// Adds a member or changes its score.
    pub fn insert(&mut self, member: &[u8], score: f64, limits: &ZsetLimits) -> Change {
        self.update(member, limits, |_| Some(score))
    }

    /// Lets `decide` choose the score of a member: it gets the present one (`None` if there is no
    /// such member) and returns the new one, or `None` to leave things as they are. All flags of
    /// ZADD, and ZINCRBY, are such decisions.
    pub fn update(
        &mut self,
        member: &[u8],
        limits: &ZsetLimits,
        decide: impl FnOnce(Option<f64>) -> Option<f64>,
    ) -> Change {
        let listpack = match &mut self.repr {
            Repr::Sorted(sorted) => return sorted.update(member, decide),
            Repr::Listpack(listpack) => listpack,
            Repr::Inline(_) => only_shown(),
        };
        let old = packed::score(listpack.run(), member);
        let Some(new) = decide(old) else { return Change::Unchanged };
        debug_assert!(!new.is_nan(), "a score is a number");
        if let Some(old) = old {
            if old == new {
                return Change::Unchanged;
            }
            packed::remove(listpack, member);
            packed::insert(listpack, member, new);
            return Change::Updated;
        }
        if listpack.count() / 2 < limits.max_listpack_entries
            && member.len() <= limits.max_listpack_value
            && listpack.has_room_for(member.len())
        {
            packed::insert(listpack, member, new);
        } else {
            self.become_sorted(1).insert_absent(hash(member), member, new);
        }
        Change::Added
    }

    /// Removes a member and returns its score.
    pub fn remove(&mut self, member: &[u8]) -> Option<f64> {
        match &mut self.repr {
            Repr::Listpack(listpack) => {
                let score = packed::score(listpack.run(), member)?;
                packed::remove(listpack, member);
                Some(score)
            }
            Repr::Sorted(sorted) => sorted.remove(member),
            Repr::Inline(_) => only_shown(),
        }
    }

    // Ranks.

    /// The member at `rank` with its score.
    pub fn get(&self, rank: usize) -> Option<(Element<'_>, f64)> {
        if rank >= self.len() {
            return None;
        }
        match self.view() {
            View::Run(run) => packed::pairs(run).nth(rank),
            View::Sorted(sorted) => {
                let (member, score) = sorted.get(rank);
                Some((Element::Bytes(member), score))
            }
        }
    }

    /// The ranks of the members with a score in `range`; empty where there are none.
    pub fn ranks_by_score(&self, range: &ScoreRange) -> Range<usize> {
        let (start, end) = match self.view() {
            View::Run(run) => (
                packed::count_while(run, |_, score| range.starts_after(score)),
                packed::count_while(run, |_, score| range.reaches(score)),
            ),
            View::Sorted(sorted) => (
                sorted.count_while_score(|score| range.starts_after(score)),
                sorted.count_while_score(|score| range.reaches(score)),
            ),
        };
        start..end.max(start)
    }

    /// The ranks of the members in `range`; empty where there are none.
    pub fn ranks_by_lex(&self, range: &LexRange<'_>) -> Range<usize> {
        let (start, end) = match self.view() {
            View::Run(run) => (
                packed::count_while(run, |member, _| {
                    member.with_bytes(|member| range.starts_after(member))
                }),
                packed::count_while(run, |member, _| {
                    member.with_bytes(|member| range.reaches(member))
                }),
            ),
            View::Sorted(sorted) => (
                sorted.count_while_member(|member| range.starts_after(member)),
                sorted.count_while_member(|member| range.reaches(member)),
            ),
        };
        start..end.max(start)
    }

    /// The members of these ranks with their scores, from either end. Ranks beyond the end are left
    /// out.
    pub fn range(
        &self,
        ranks: Range<usize>,
    ) -> impl DoubleEndedIterator<Item = (Element<'_>, f64)> + ExactSizeIterator {
        let len = self.len();
        let end = ranks.end.min(len);
        let start = ranks.start.min(end);
        match self.view() {
            View::Run(run) => {
                let mut pairs = run.pairs();
                if start > 0 {
                    pairs.nth(start - 1);
                }
                if end < len {
                    pairs.nth_back(len - end - 1);
                }
                Iter::Listpack { pairs, left: end - start }
            }
            View::Sorted(sorted) => Iter::Sorted(sorted.range(start..end)),
        }
    }

    /// All members with their scores, from the lowest to the highest.
    pub fn iter(&self) -> impl DoubleEndedIterator<Item = (Element<'_>, f64)> + ExactSizeIterator {
        self.range(0..self.len())
    }

    /// Removes the members of these ranks in order; `visit` sees each before it goes. Returns how
    /// many went.
    pub fn remove_ranks(
        &mut self,
        ranks: Range<usize>,
        mut visit: impl FnMut(Element<'_>, f64),
    ) -> usize {
        let end = ranks.end.min(self.len());
        let start = ranks.start.min(end);
        match &mut self.repr {
            Repr::Listpack(listpack) => {
                for (member, score) in packed::pairs(listpack.run()).skip(start).take(end - start) {
                    visit(member, score);
                }
                listpack.delete_range(2 * start as i64, 2 * (end - start));
            }
            Repr::Sorted(sorted) => sorted
                .remove_ranks(start..end, |member, score| visit(Element::Bytes(member), score)),
            Repr::Inline(_) => only_shown(),
        }
        end - start
    }

    /// Removes the member at an end after `read` has seen it; `None` if there is none.
    #[inline]
    pub fn pop<R>(&mut self, end: Extreme, read: impl FnOnce(Element<'_>, f64) -> R) -> Option<R> {
        let rank = match end {
            Extreme::Min => 0,
            Extreme::Max => self.len().checked_sub(1)?,
        };
        match &mut self.repr {
            Repr::Listpack(listpack) => {
                let (member, score) = packed::pairs(listpack.run()).nth(rank)?;
                let result = read(member, score);
                listpack.delete_range(2 * rank as i64, 2);
                Some(result)
            }
            Repr::Sorted(sorted) if sorted.len() > 0 => {
                sorted.pop(rank, |member, score| read(Element::Bytes(member), score))
            }
            Repr::Sorted(_) => None,
            Repr::Inline(_) => only_shown(),
        }
    }

    // Random members.

    /// A member chosen at random, each equally likely, with its score.
    pub fn random(&self, rng: &mut Rng) -> Option<(Element<'_>, f64)> {
        match self.len() {
            0 => None,
            len => self.get(rng.index(len)),
        }
    }

    /// Calls `visit` with `count` different members chosen at random, or with all if there are not
    /// more. Every selection is equally likely; its order is not random.
    pub fn sample_distinct(
        &self,
        count: usize,
        rng: &mut Rng,
        mut visit: impl FnMut(Element<'_>, f64),
    ) {
        let len = self.len();
        // With few of many it is faster to draw again when a member comes twice.
        if let Repr::Sorted(sorted) = &self.repr
            && count < len / 8
        {
            let mut seen = HashSet::with_capacity(count);
            while seen.len() < count {
                let rank = rng.index(len);
                if seen.insert(rank) {
                    let (member, score) = sorted.get(rank);
                    visit(Element::Bytes(member), score);
                }
            }
            return;
        }
        select(self.iter(), count, len, rng, |(member, score)| visit(member, score));
    }

    /// Calls `visit` with a member chosen at random, `count` times; members may come repeatedly.
    pub fn sample_repeated(
        &self,
        count: usize,
        rng: &mut Rng,
        mut visit: impl FnMut(Element<'_>, f64),
    ) {
        let listed: Vec<_> = match self.view() {
            View::Run(run) if count > 1 => packed::pairs(run).collect(),
            _ => Vec::new(),
        };
        for _ in 0..count {
            let pair = match listed.len() {
                0 => self.random(rng),
                len => Some(listed[rng.index(len)]),
            };
            let Some((member, score)) = pair else { return };
            visit(member, score);
        }
    }

    /// One step of ZSCAN: visits the members at `cursor` (0 at first) until about `count` have been
    /// seen, and returns the cursor to go on with, 0 at the end.
    ///
    /// A member that stays from the first step to the last is visited at least once, and exactly
    /// once unless the encoding changes meanwhile. A listpack is visited in one step.
    pub fn scan(&self, cursor: u64, count: usize, mut visit: impl FnMut(Element<'_>, f64)) -> u64 {
        match self.view() {
            View::Run(run) => {
                packed::pairs(run).for_each(|(member, score)| visit(member, score));
                0
            }
            View::Sorted(sorted) => {
                scan_table::<_, Salted>(sorted.table(), cursor, count, |item| {
                    visit(Element::Bytes(item.key()), item.score());
                })
            }
        }
    }

    /// The sorted set as RDB files have it.
    pub fn contents(
        &self,
    ) -> ZsetContents<'_, impl DoubleEndedIterator<Item = (&[u8], f64)> + ExactSizeIterator> {
        match &self.repr {
            Repr::Listpack(listpack) => ZsetContents::Listpack(Cow::Borrowed(listpack.as_bytes())),
            Repr::Sorted(sorted) => ZsetContents::Sorted(sorted.range(0..sorted.len())),
            Repr::Inline(inline) => {
                ZsetContents::Listpack(Cow::Owned(inline.to_listpack().as_bytes().to_vec()))
            }
        }
    }

    // Watching.

    /// Lets `take` see every member that is here now with its score, once and as they are now,
    /// while the sorted set goes on changing: see [`Zset::step_watch`]. `false` for a listpack.
    pub fn watch(&self, mut take: impl FnMut(&[u8], f64) + Send + 'static) -> bool {
        let Repr::Sorted(sorted) = &self.repr else { return false };
        sorted.table().watch(Box::new(move |item| take(item.key(), item.score())));
        true
    }

    /// Lets the watch see some more members; `false` if it has seen all.
    pub fn step_watch(&self) -> bool {
        matches!(&self.repr, Repr::Sorted(sorted) if sorted.table().step())
    }

    /// Lets changes of the sorted set show the watch so many groups of members more from now on, so
    /// that no thread has to step; how many they have not used of what they were allowed before.
    pub fn allow_watch(&self, groups: usize) -> usize {
        match &self.repr {
            Repr::Sorted(sorted) => sorted.table().allow(groups),
            _ => 0,
        }
    }

    /// Ends the watch before it has seen all.
    pub fn unwatch(&self) {
        if let Repr::Sorted(sorted) = &self.repr {
            sorted.table().unwatch();
        }
    }

    // In the block of its key.

    /// What the owner of a key has to know to keep the sorted set in the key's block; `None` if it
    /// is too big for that or empty.
    pub fn extent(&self) -> Option<Extent> {
        match &self.repr {
            Repr::Listpack(listpack) => Extent::of_listpack(listpack),
            _ => None,
        }
    }

    /// Writes members and scores, to be shown by [`Zset::show`].
    ///
    /// # Panics
    /// If `to` has another length than [`Zset::extent`] says.
    pub fn write_inline(&self, to: &mut [MaybeUninit<u8>]) {
        if let Repr::Listpack(listpack) = &self.repr {
            inline::copy(listpack.entries(), to);
        }
    }

    /// The sorted set that lies there, to be read. A clone of it has a block of its own.
    #[inline]
    pub fn show(inline: Inline) -> ManuallyDrop<Self> {
        ManuallyDrop::new(Self { repr: Repr::Inline(inline) })
    }

    // Conversion.

    /// Goes back to the small encoding where the limits allow it, as the commands do that store a
    /// result they could not foresee the size of.
    pub fn pack(&mut self, limits: &ZsetLimits) {
        let Repr::Sorted(sorted) = &self.repr else { return };
        if sorted.len() > limits.max_listpack_entries {
            return;
        }
        let mut bytes = 0;
        for (member, _) in sorted.range(0..sorted.len()) {
            if member.len() > limits.max_listpack_value {
                return;
            }
            bytes += member.len();
        }
        if Listpack::new().has_room_for(bytes) {
            self.become_listpack();
        }
    }

    /// Changes to the big encoding with room for `more` members.
    #[cold]
    fn become_sorted(&mut self, more: usize) -> &mut Sorted {
        let mut sorted = Box::new(Sorted::with_capacity(self.len() + more));
        if let Repr::Listpack(listpack) = &self.repr {
            for (member, score) in packed::pairs(listpack.run()) {
                member.with_bytes(|member| sorted.insert_absent(hash(member), member, score));
            }
        }
        self.repr = Repr::Sorted(sorted);
        match &mut self.repr {
            Repr::Sorted(sorted) => sorted,
            _ => unreachable!("just replaced"),
        }
    }

    /// Changes to the small encoding, whatever the limits.
    fn become_listpack(&mut self) {
        let mut listpack = Listpack::new();
        for (member, score) in self.iter() {
            member.with_bytes(|member| packed::insert(&mut listpack, member, score));
        }
        self.repr = Repr::Listpack(listpack);
    }

    /// Checks every invariant.
    #[cfg(test)]
    pub(crate) fn assert_valid(&self) {
        match &self.repr {
            Repr::Sorted(sorted) => sorted.assert_valid(),
            Repr::Listpack(listpack) => {
                let copy = Listpack::from_bytes(listpack.as_bytes()).expect("well-formed");
                assert!(copy.count().is_multiple_of(2));
                let pairs: Vec<_> =
                    packed::pairs(copy.run()).map(|(m, s)| (s, m.to_vec())).collect();
                assert!(pairs.is_sorted());
            }
            Repr::Inline(_) => {}
        }
    }
}

/// Panics. Nothing gives a sorted set out for changes that lies in the block of its key.
#[cold]
fn only_shown() -> ! {
    unreachable!("a sorted set was changed in the block of its key")
}

impl Clone for Zset {
    fn clone(&self) -> Self {
        let repr = match &self.repr {
            Repr::Listpack(listpack) => Repr::Listpack(listpack.clone()),
            Repr::Sorted(sorted) => Repr::Sorted(sorted.clone()),
            Repr::Inline(inline) => Repr::Listpack(inline.to_listpack()),
        };
        Self { repr }
    }
}

/// The iterator of both encodings.
enum Iter<'a, I> {
    Listpack { pairs: Pairs<'a>, left: usize },
    Sorted(I),
}

impl<'a, I> Iterator for Iter<'a, I>
where
    I: ExactSizeIterator<Item = (&'a [u8], f64)>,
{
    type Item = (Element<'a>, f64);

    #[inline]
    fn next(&mut self) -> Option<Self::Item> {
        match self {
            Self::Listpack { pairs, left } => {
                *left = left.checked_sub(1)?;
                let (member, score) = pairs.next()?;
                Some((member, packed::parse_score(score)?))
            }
            Self::Sorted(iter) => {
                iter.next().map(|(member, score)| (Element::Bytes(member), score))
            }
        }
    }

    fn nth(&mut self, n: usize) -> Option<Self::Item> {
        match self {
            Self::Listpack { .. } => {
                (0..n).try_for_each(|_| self.next().map(drop)).and(self.next())
            }
            Self::Sorted(iter) => {
                iter.nth(n).map(|(member, score)| (Element::Bytes(member), score))
            }
        }
    }

    #[inline]
    fn size_hint(&self) -> (usize, Option<usize>) {
        let left = match self {
            Self::Listpack { left, .. } => *left,
            Self::Sorted(iter) => iter.len(),
        };
        (left, Some(left))
    }
}

impl<'a, I> DoubleEndedIterator for Iter<'a, I>
where
    I: DoubleEndedIterator<Item = (&'a [u8], f64)> + ExactSizeIterator,
{
    #[inline]
    fn next_back(&mut self) -> Option<Self::Item> {
        match self {
            Self::Listpack { pairs, left } => {
                *left = left.checked_sub(1)?;
                let (member, score) = pairs.next_back()?;
                Some((member, packed::parse_score(score)?))
            }
            Self::Sorted(iter) => {
                iter.next_back().map(|(member, score)| (Element::Bytes(member), score))
            }
        }
    }
}

impl<'a, I> ExactSizeIterator for Iter<'a, I> where I: ExactSizeIterator<Item = (&'a [u8], f64)> {}

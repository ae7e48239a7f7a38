//! The set type: integers in an intset, few short members in a listpack, others in a hash table.
//!
//! The thresholds are Redis's ([`SetLimits`]) and so are the conversions, which go one way only:
//!
//! ```text
//!   intset ──▶ listpack ──▶ hash table
//!     └─────────────────────────▲
//! ```
//!
//! In the small encodings everything is O(n) of a bounded n (lookup in an intset is O(log n)); in
//! the table lookup, addition, removal and a random member are O(1), each with one hash
//! computation and one search. A member of the table is one allocation of its bytes and one of
//! length ([`member`]), reached by 8 bytes and a fingerprint in a slot.

mod member;
#[cfg(test)]
mod tests;

use crate::either::Either;
use crate::hashing::hash;
use crate::inline::{self, Extent, Form, Inline};
use crate::intset::{Ints, Intset};
use crate::listpack::{Element, Listpack, Malformed, Run};
use crate::numbers::{decimal_len, parse_i64};
use crate::random::Rng;
use crate::sampling::select;
use crate::scan::scan_table;
use crate::table::{Item, Salted};
use crate::watched::Watched;
use member::Member;
use std::borrow::Cow;
use std::collections::HashSet;
use std::mem::{ManuallyDrop, MaybeUninit};

/// The thresholds of the small encodings, named as their options.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SetLimits {
    /// `set-max-intset-entries`
    pub max_intset_entries: usize,
    /// `set-max-listpack-entries`
    pub max_listpack_entries: usize,
    /// `set-max-listpack-value`, in bytes
    pub max_listpack_value: usize,
}

impl Default for SetLimits {
    fn default() -> Self {
        Self { max_intset_entries: 512, max_listpack_entries: 128, max_listpack_value: 64 }
    }
}

impl SetLimits {
    /// An intset counts in 32 bits, and Redis stops at 2^30.
    fn intset_entries(&self) -> usize {
        self.max_intset_entries.min(1 << 30)
    }
}

/// A set of byte strings; see the module's documentation.
pub struct Set {
    repr: Repr,
}

enum Repr {
    Intset(Intset),
    Listpack(Listpack),
    Table(Box<Watched<Member>>),
    Inline(Inline),
}

/// What a set is, to read it.
enum View<'a> {
    Ints(Ints<'a>),
    Run(Run<'a>),
    Table(&'a Watched<Member>),
}

const _: () = assert!(size_of::<Set>() <= 16);

/// A set in its serialized form.
pub enum SetContents<'a, I> {
    /// The bytes of an intset.
    Intset(Cow<'a, [u8]>),
    /// The bytes of a listpack.
    Listpack(Cow<'a, [u8]>),
    /// The members.
    Table(I),
}

impl Set {
    /// An empty set in the encoding that suits `first`, the first member that is to come, and the
    /// number of members expected.
    pub fn new(first: &[u8], expected: usize, limits: &SetLimits) -> Self {
        let repr = if parse_i64(first).is_some() && expected <= limits.max_intset_entries {
            Repr::Intset(Intset::new())
        } else if expected <= limits.max_listpack_entries {
            Repr::Listpack(Listpack::new())
        } else {
            Repr::Table(Box::new(Watched::with_capacity(expected)))
        };
        Self { repr }
    }

    /// An empty set in the encoding that its first member can choose freely.
    pub fn empty() -> Self {
        Self { repr: Repr::Intset(Intset::new()) }
    }

    /// Converts if a command is about to add more members than the encoding may hold; `first` is
    /// the first of them, by which an empty set chooses one.
    pub fn will_grow(&mut self, first: &[u8], added: usize, limits: &SetLimits) {
        if self.is_empty() {
            *self = Self::new(first, added, limits);
            return;
        }
        let exceeded = match &self.repr {
            Repr::Intset(_) => added > limits.max_intset_entries,
            Repr::Listpack(_) => added > limits.max_listpack_entries,
            Repr::Table(_) => false,
            Repr::Inline(_) => only_shown(),
        };
        if exceeded {
            self.become_table(added);
        }
    }

    /// Takes the intset of an RDB file or DUMP payload.
    pub fn from_intset(intset: Intset, limits: &SetLimits) -> Self {
        let len = intset.len();
        let mut set = Self { repr: Repr::Intset(intset) };
        if len > limits.intset_entries() {
            set.become_table(len);
        }
        set
    }

    /// Takes the listpack of an RDB file or DUMP payload; it must not be empty or have a member
    /// twice.
    pub fn from_listpack(listpack: Listpack, limits: &SetLimits) -> Result<Self, Malformed> {
        let count = listpack.count();
        let distinct: HashSet<Vec<u8>> = listpack.iter().map(|member| member.to_vec()).collect();
        if count == 0 || distinct.len() != count {
            return Err(Malformed);
        }
        let mut set = Self { repr: Repr::Listpack(listpack) };
        if count > limits.max_listpack_entries {
            set.become_table(count);
        }
        Ok(set)
    }

    #[inline]
    fn view(&self) -> View<'_> {
        match &self.repr {
            Repr::Intset(intset) => View::Ints(intset.ints()),
            Repr::Listpack(listpack) => View::Run(listpack.run()),
            Repr::Table(table) => View::Table(table),
            Repr::Inline(inline) => match inline.ints() {
                Some(ints) => View::Ints(ints),
                None => View::Run(inline.entries()),
            },
        }
    }

    /// Number of members.
    #[inline]
    pub fn len(&self) -> usize {
        match self.view() {
            View::Ints(ints) => ints.len(),
            View::Run(run) => run.count(),
            View::Table(table) => table.len(),
        }
    }

    /// Whether there is no member.
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The name OBJECT ENCODING gives.
    pub fn encoding(&self) -> &'static str {
        match self.view() {
            View::Ints(_) => "intset",
            View::Run(_) => "listpack",
            View::Table(_) => "hashtable",
        }
    }

    /// Slots of the hash table, if the set is one.
    pub fn table_slots(&self) -> Option<usize> {
        match &self.repr {
            Repr::Table(table) => Some(table.slots()),
            _ => None,
        }
    }

    /// Bytes allocated for this set, rounded as the allocator rounds them. Takes constant time.
    pub fn allocated_bytes(&self) -> usize {
        match &self.repr {
            Repr::Intset(intset) => intset.allocated_bytes(),
            Repr::Listpack(listpack) => listpack.allocated_bytes(),
            Repr::Table(table) => table.allocated_bytes(),
            Repr::Inline(_) => 0,
        }
    }

    /// What the order of the members depends on, if they are in a table
    /// ([`crate::table::in_order_of`]).
    pub fn table_order(&self) -> Option<u64> {
        match &self.repr {
            Repr::Table(table) => Some(table.order()),
            _ => None,
        }
    }

    // Members.

    /// Whether `member` is one.
    #[inline]
    pub fn contains(&self, member: &[u8]) -> bool {
        match self.view() {
            View::Ints(ints) => parse_i64(member).is_some_and(|value| ints.contains(value)),
            View::Run(run) => run.find(member, 1).is_some(),
            View::Table(table) => table.get(hash(member), member).is_some(),
        }
    }

    /// Whether `member`, taken from another collection, is one.
    #[inline]
    pub fn contains_element(&self, member: Element<'_>) -> bool {
        match (self.view(), member) {
            (View::Ints(ints), Element::Int(value)) => ints.contains(value),
            _ => member.with_bytes(|member| self.contains(member)),
        }
    }

    /// Adds a member; false if it was one.
    #[inline]
    pub fn insert(&mut self, member: &[u8], limits: &SetLimits) -> bool {
        match &mut self.repr {
            Repr::Table(table) => insert_into(table, member),
            Repr::Listpack(listpack) => {
                if listpack.find(member, 1).is_some() {
                    return false;
                }
                if listpack.count() < limits.max_listpack_entries
                    && member.len() <= limits.max_listpack_value
                    && listpack.has_room_for(member.len())
                {
                    listpack.push_back(member);
                    return true;
                }
                self.become_table(1);
                self.insert(member, limits)
            }
            Repr::Intset(_) => match parse_i64(member) {
                Some(value) => self.insert_int(value, limits),
                None => {
                    self.leave_intset(member, limits);
                    self.insert(member, limits)
                }
            },
            Repr::Inline(_) => only_shown(),
        }
    }

    /// Adds a member taken from another collection; false if it was one.
    #[inline]
    pub fn insert_element(&mut self, member: Element<'_>, limits: &SetLimits) -> bool {
        match (&self.repr, member) {
            (Repr::Intset(_), Element::Int(value)) => self.insert_int(value, limits),
            _ => member.with_bytes(|member| self.insert(member, limits)),
        }
    }

    /// Adds an integer to what must be an intset.
    fn insert_int(&mut self, value: i64, limits: &SetLimits) -> bool {
        let Repr::Intset(intset) = &mut self.repr else { unreachable!("asked of an intset") };
        let added = intset.insert(value);
        if added && intset.len() > limits.intset_entries() {
            self.become_table(0);
        }
        added
    }

    /// Removes a member; false if it was none.
    #[inline]
    pub fn remove(&mut self, member: &[u8]) -> bool {
        match &mut self.repr {
            Repr::Table(table) => {
                let hash = hash(member);
                table.occupied(hash, member).map(|slot| slot.remove_hashed(hash)).is_some()
            }
            Repr::Listpack(listpack) => match listpack.find_mut(member, 1) {
                Some(mut cursor) => cursor.delete(1) > 0,
                None => false,
            },
            Repr::Intset(intset) => parse_i64(member).is_some_and(|value| intset.remove(value)),
            Repr::Inline(_) => only_shown(),
        }
    }

    // Random members.

    /// A member chosen at random, each equally likely.
    #[inline]
    pub fn random(&self, rng: &mut Rng) -> Option<Element<'_>> {
        if self.is_empty() {
            return None;
        }
        match self.view() {
            View::Ints(ints) => ints.get(rng.index(ints.len())).map(Element::Int),
            View::Run(run) => run.get(rng.index(run.count()) as i64),
            View::Table(table) => {
                table.sample(|| rng.next_u64()).map(|member| Element::Bytes(member.key()))
            }
        }
    }

    /// Removes a member chosen at random, each equally likely, after `read` has seen it.
    #[inline]
    pub fn pop_random<R>(
        &mut self,
        rng: &mut Rng,
        read: impl FnOnce(Element<'_>) -> R,
    ) -> Option<R> {
        if self.is_empty() {
            return None;
        }
        match &mut self.repr {
            Repr::Intset(intset) => {
                let value = intset.remove_at(rng.index(intset.len()));
                Some(read(Element::Int(value)))
            }
            Repr::Listpack(listpack) => {
                let index = rng.index(listpack.count());
                let mut cursor = listpack.cursor_at_mut(index as i64)?;
                let result = cursor.element().map(read);
                cursor.delete(1);
                result
            }
            Repr::Table(table) => {
                let member = member::take_sample(table, rng)?;
                Some(read(Element::Bytes(member.key())))
            }
            Repr::Inline(_) => only_shown(),
        }
    }

    /// Calls `visit` with `count` different members chosen at random, or with all if there are not
    /// more. Every selection is equally likely; its order is not random.
    pub fn sample_distinct(&self, count: usize, rng: &mut Rng, mut visit: impl FnMut(Element<'_>)) {
        let len = self.len();
        // With few of many it is faster to draw again when a member comes twice.
        if let Repr::Table(table) = &self.repr
            && count < len / 4
        {
            let mut seen = HashSet::with_capacity(count);
            while seen.len() < count {
                let Some(member) = table.sample(|| rng.next_u64()) else { return };
                if seen.insert(member.key().as_ptr()) {
                    visit(Element::Bytes(member.key()));
                }
            }
            return;
        }
        select(self.iter(), count, len, rng, visit);
    }

    /// Calls `visit` with a member chosen at random, `count` times; members may come repeatedly.
    pub fn sample_repeated(&self, count: usize, rng: &mut Rng, mut visit: impl FnMut(Element<'_>)) {
        let listed: Vec<Element<'_>> = match self.view() {
            View::Run(run) if count > 1 => run.iter().collect(),
            _ => Vec::new(),
        };
        for _ in 0..count {
            let member = match listed.len() {
                0 => self.random(rng),
                len => Some(listed[rng.index(len)]),
            };
            let Some(member) = member else { return };
            visit(member);
        }
    }

    // Iteration.

    /// All members, in no particular order.
    #[inline]
    pub fn iter(&self) -> impl Iterator<Item = Element<'_>> {
        match self.view() {
            View::Ints(ints) => Either::First(ints.iter().map(Element::Int)),
            View::Run(run) => Either::<_, _, _>::Second(run.iter()),
            View::Table(table) => {
                Either::Third(table.iter().map(|member| Element::Bytes(member.key())))
            }
        }
    }

    /// One step of SSCAN: visits the members at `cursor` (0 at first) until about `count` have
    /// been seen, and returns the cursor to go on with, 0 at the end.
    ///
    /// A member that stays in the set from the first step to the last is visited at least once, and
    /// exactly once unless the set changes its encoding meanwhile. A small encoding is visited in
    /// one step.
    pub fn scan(&self, cursor: u64, count: usize, mut visit: impl FnMut(Element<'_>)) -> u64 {
        match &self.repr {
            Repr::Table(table) => scan_table::<Member, Salted>(table, cursor, count, |member| {
                visit(Element::Bytes(member.key()))
            }),
            _ => {
                self.iter().for_each(visit);
                0
            }
        }
    }

    /// The set as RDB files have it.
    pub fn contents(&self) -> SetContents<'_, impl Iterator<Item = &[u8]>> {
        match &self.repr {
            Repr::Intset(intset) => SetContents::Intset(Cow::Borrowed(intset.as_bytes())),
            Repr::Listpack(listpack) => SetContents::Listpack(Cow::Borrowed(listpack.as_bytes())),
            Repr::Table(table) => SetContents::Table(table.iter().map(Member::key)),
            Repr::Inline(inline) => match inline.to_intset() {
                Some(intset) => SetContents::Intset(Cow::Owned(intset.as_bytes().to_vec())),
                None => SetContents::Listpack(Cow::Owned(inline.to_listpack().as_bytes().to_vec())),
            },
        }
    }

    // Watching.

    /// Lets `take` see every member that is here now, once, while the set goes on changing: see
    /// [`Set::step_watch`]. `false` for the small encodings.
    pub fn watch(&self, mut take: impl FnMut(&[u8]) + Send + 'static) -> bool {
        let Repr::Table(table) = &self.repr else { return false };
        table.watch(Box::new(move |member| take(member.key())));
        true
    }

    /// Lets the watch see some more members; `false` if it has seen all.
    pub fn step_watch(&self) -> bool {
        matches!(&self.repr, Repr::Table(table) if table.step())
    }

    /// Lets changes of the set show the watch so many groups of members more from now on, so that
    /// no thread has to step; how many they have not used of what they were allowed before.
    pub fn allow_watch(&self, groups: usize) -> usize {
        match &self.repr {
            Repr::Table(table) => table.allow(groups),
            _ => 0,
        }
    }

    /// Ends the watch before it has seen all.
    pub fn unwatch(&self) {
        if let Repr::Table(table) = &self.repr {
            table.unwatch();
        }
    }

    // In the block of its key.

    /// What the owner of a key has to know to keep the set in the key's block; `None` if it is too
    /// big for that or empty.
    pub fn extent(&self) -> Option<Extent> {
        match &self.repr {
            Repr::Intset(intset) => {
                let ints = intset.ints();
                Extent::new(Form::of_width(ints.width()), ints.len(), ints.as_bytes().len())
            }
            Repr::Listpack(listpack) => Extent::of_listpack(listpack),
            _ => None,
        }
    }

    /// Writes the members, to be shown by [`Set::show`].
    ///
    /// # Panics
    /// If `to` has another length than [`Set::extent`] says.
    pub fn write_inline(&self, to: &mut [MaybeUninit<u8>]) {
        let bytes = match &self.repr {
            Repr::Intset(intset) => intset.ints().as_bytes(),
            Repr::Listpack(listpack) => listpack.entries(),
            _ => return,
        };
        inline::copy(bytes, to);
    }

    /// The set that lies there, to be read. A clone of it has a block of its own.
    #[inline]
    pub fn show(inline: Inline) -> ManuallyDrop<Self> {
        ManuallyDrop::new(Self { repr: Repr::Inline(inline) })
    }

    // Conversion.

    /// Changes to a listpack, or if that would exceed its limits to a table, because `member`,
    /// which is no integer, is about to be added to an intset.
    #[cold]
    fn leave_intset(&mut self, member: &[u8], limits: &SetLimits) {
        let Repr::Intset(intset) = &self.repr else { return };
        let digits = |value: i64| decimal_len(value.unsigned_abs()) + usize::from(value < 0);
        // The longest integer is the smallest or the largest.
        let longest = [intset.min(), intset.max()].into_iter().flatten().map(digits).max();
        if intset.len() < limits.max_listpack_entries
            && member.len() <= limits.max_listpack_value
            && longest.unwrap_or(0) <= limits.max_listpack_value
        {
            let mut listpack = Listpack::with_capacity(intset.len() * 4);
            intset.iter().for_each(|value| listpack.push_back_int(value));
            listpack.shrink_to_fit();
            self.repr = Repr::Listpack(listpack);
        } else {
            self.become_table(1);
        }
    }

    /// Changes to a table with room for `more` members.
    #[cold]
    fn become_table(&mut self, more: usize) {
        let mut table = Box::new(Watched::with_capacity(self.len() + more));
        self.iter().for_each(|member| {
            member.with_bytes(|member| {
                table.insert_absent(hash(member), Member::new(member));
            });
        });
        self.repr = Repr::Table(table);
    }
}

/// Panics. Nothing gives a set out for changes that lies in the block of its key.
#[cold]
fn only_shown() -> ! {
    unreachable!("a set was changed in the block of its key")
}

/// Adds a member to a table; false if it was one.
#[inline]
fn insert_into(table: &mut Watched<Member>, member: &[u8]) -> bool {
    let hash = hash(member);
    if table.get(hash, member).is_some() {
        return false;
    }
    table.insert_absent(hash, Member::new(member));
    true
}

impl Clone for Set {
    fn clone(&self) -> Self {
        let repr = match &self.repr {
            Repr::Intset(intset) => Repr::Intset(intset.clone()),
            Repr::Listpack(listpack) => Repr::Listpack(listpack.clone()),
            Repr::Table(table) => {
                let mut copy = Box::new(Watched::with_capacity(table.len()));
                for member in table.iter() {
                    copy.insert_absent(hash(member.key()), Member::new(member.key()));
                }
                Repr::Table(copy)
            }
            Repr::Inline(inline) => match inline.to_intset() {
                Some(intset) => Repr::Intset(intset),
                None => Repr::Listpack(inline.to_listpack()),
            },
        };
        Self { repr }
    }
}

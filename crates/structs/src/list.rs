//! The list type: one listpack while it is small, a [`quicklist`] of them when it is not.
//!
//! The thresholds are Redis's ([`ListLimits`]) and so are the moments of conversion: a listpack
//! becomes a quicklist *before* an addition that would exceed the limit, and a quicklist that has
//! come down to a single node of at most half the limit becomes a listpack *after* a removal.
//!
//! Both ends are O(1). By index or value it is O(nodes + elements of one node) and O(n).
//!
//! `list-compress-depth` has no counterpart here: compressed inner nodes save RAM on lists that no
//! client reads, which the flash tier is for, and cost a decompression at every look inside.

mod iter;
mod limits;
mod nodes;
mod quicklist;
#[cfg(test)]
mod tests;

use crate::inline::{self, Extent, Inline};
use crate::listpack::{Element, Listpack, Needle, Run};
pub use iter::Iter;
pub use limits::ListLimits;
pub use quicklist::End;
use quicklist::{Node, Quicklist, remove_from};
use std::borrow::Cow;
use std::mem::{ManuallyDrop, MaybeUninit};
use std::ops::ControlFlow;

/// A list of byte strings; see the module's documentation.
pub struct List {
    repr: Repr,
}

enum Repr {
    Listpack(Listpack),
    Quicklist(Box<Quicklist>),
    Inline(Inline),
}

/// What a list is, to read it.
enum View<'a> {
    Run(Run<'a>),
    Quicklist(&'a Quicklist),
}

const _: () = assert!(size_of::<List>() <= 16);

/// A piece of a list in its serialized form.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Chunk<'a> {
    /// The bytes of a listpack, never an empty one.
    Packed(Cow<'a, [u8]>),
    /// A large element.
    Plain(&'a [u8]),
}

/// Where an element goes relative to another.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Side {
    /// To the left of it.
    Before,
    /// To the right of it.
    After,
}

impl Default for List {
    fn default() -> Self {
        Self::new()
    }
}

impl List {
    /// An empty list.
    pub fn new() -> Self {
        Self { repr: Repr::Listpack(Listpack::new()) }
    }

    #[inline]
    fn view(&self) -> View<'_> {
        match &self.repr {
            Repr::Listpack(listpack) => View::Run(listpack.run()),
            Repr::Quicklist(quicklist) => View::Quicklist(quicklist),
            Repr::Inline(inline) => View::Run(inline.entries()),
        }
    }

    /// Number of elements.
    #[inline]
    pub fn len(&self) -> usize {
        match &self.repr {
            Repr::Listpack(listpack) => listpack.count(),
            Repr::Quicklist(quicklist) => quicklist.len,
            Repr::Inline(inline) => inline.entries().count(),
        }
    }

    /// Whether there is no element.
    #[inline]
    pub fn is_empty(&self) -> bool {
        match self.view() {
            View::Run(run) => run.is_empty(),
            View::Quicklist(quicklist) => quicklist.len == 0,
        }
    }

    /// The name OBJECT ENCODING gives.
    pub fn encoding(&self) -> &'static str {
        match &self.repr {
            Repr::Listpack(_) | Repr::Inline(_) => "listpack",
            Repr::Quicklist(_) => "quicklist",
        }
    }

    /// Bytes allocated for this list, rounded as the allocator rounds them. Takes constant time.
    pub fn allocated_bytes(&self) -> usize {
        match &self.repr {
            Repr::Listpack(listpack) => listpack.allocated_bytes(),
            Repr::Quicklist(quicklist) => quicklist.allocated_bytes(),
            Repr::Inline(_) => 0,
        }
    }

    // Ends.

    /// Adds an element at one end.
    #[inline]
    pub fn push(&mut self, end: End, element: &[u8], limits: &ListLimits) {
        if let Repr::Listpack(listpack) = &mut self.repr {
            if !limits.exceeded_by(listpack.bytes_len() + element.len(), listpack.count() + 1) {
                return match end {
                    End::Left => listpack.push_front(element),
                    End::Right => listpack.push_back(element),
                };
            }
            self.become_quicklist();
        }
        if let Repr::Quicklist(quicklist) = &mut self.repr {
            quicklist.push(end, element, limits);
        }
    }

    /// Adds several elements at one end, one after the other; converts first if all of them
    /// together exceed the limit, as a command with several elements does.
    #[inline]
    pub fn push_all<'e>(
        &mut self,
        end: End,
        elements: impl Iterator<Item = &'e [u8]> + Clone,
        limits: &ListLimits,
    ) {
        if let Repr::Listpack(listpack) = &mut self.repr {
            let (mut bytes, mut count) = (listpack.bytes_len(), listpack.count());
            for element in elements.clone() {
                bytes += element.len();
                count += 1;
            }
            if !limits.exceeded_by(bytes, count) {
                return match end {
                    End::Left => elements.for_each(|element| listpack.push_front(element)),
                    End::Right => elements.for_each(|element| listpack.push_back(element)),
                };
            }
            self.become_quicklist();
        }
        if let Repr::Quicklist(quicklist) = &mut self.repr {
            elements.for_each(|element| quicklist.push(end, element, limits));
        }
    }

    /// The element at one end.
    #[inline]
    pub fn peek(&self, end: End) -> Option<Element<'_>> {
        match end {
            End::Left => self.iter().next(),
            End::Right => self.iter_back_from(self.len().checked_sub(1)?).next(),
        }
    }

    /// Removes the element at one end after `read` has seen it.
    #[inline]
    pub fn pop<R>(
        &mut self,
        end: End,
        limits: &ListLimits,
        read: impl FnOnce(Element<'_>) -> R,
    ) -> Option<R> {
        match &mut self.repr {
            Repr::Listpack(listpack) => match end {
                End::Left => listpack.pop_front(read),
                End::Right => listpack.pop_back(read),
            },
            Repr::Quicklist(quicklist) => {
                let result = quicklist.pop(end, read);
                if quicklist.nodes.len() <= 1 {
                    self.has_shrunk(limits);
                }
                result
            }
            Repr::Inline(_) => only_shown(),
        }
    }

    // By index or value.

    /// The element at `index`.
    pub fn get(&self, index: usize) -> Option<Element<'_>> {
        self.iter_from(index).next()
    }

    /// Puts an element in the place of the one at `index`; false if there is none. The encoding may
    /// change even then, as in Redis, which looks at the size first.
    pub fn set(&mut self, index: usize, element: &[u8], limits: &ListLimits) -> bool {
        self.will_grow(element, limits);
        if index >= self.len() {
            return false;
        }
        match &mut self.repr {
            Repr::Listpack(listpack) => {
                let cursor = listpack.cursor_at_mut(index as i64);
                cursor.expect("the index is below the length").replace(element);
            }
            Repr::Quicklist(quicklist) => quicklist.set(index, element, limits),
            Repr::Inline(_) => only_shown(),
        }
        self.has_shrunk(limits);
        true
    }

    /// Adds an element beside the leftmost one that equals `pivot`; false if there is none, even if
    /// that has changed the encoding ([`List::set`]).
    pub fn insert(
        &mut self,
        side: Side,
        pivot: &[u8],
        element: &[u8],
        limits: &ListLimits,
    ) -> bool {
        self.will_grow(element, limits);
        let needle = Needle::new(pivot);
        let Some(index) = self.iter().position(|found| needle.matches(found)) else {
            return false;
        };
        self.insert_at(index + usize::from(side == Side::After), element, limits);
        true
    }

    /// Adds an element in front of the one at `index`, or on the right if `index` is the length.
    fn insert_at(&mut self, index: usize, element: &[u8], limits: &ListLimits) {
        match &mut self.repr {
            Repr::Listpack(listpack) => match listpack.cursor_at_mut(index as i64) {
                Some(mut cursor) => cursor.insert_before(element),
                None => listpack.push_back(element),
            },
            Repr::Quicklist(quicklist) => quicklist.insert(index, element, limits),
            Repr::Inline(_) => only_shown(),
        }
    }

    /// Removes the first `max` elements that equal `value`, counted from `end`; returns how many.
    pub fn remove(&mut self, end: End, value: &[u8], max: usize, limits: &ListLimits) -> usize {
        let needle = Needle::new(value);
        let removed = match &mut self.repr {
            Repr::Listpack(listpack) => remove_from(listpack, end, &needle, max),
            Repr::Quicklist(quicklist) => quicklist.remove(end, &needle, max),
            Repr::Inline(_) => only_shown(),
        };
        if removed > 0 {
            self.has_shrunk(limits);
        }
        removed
    }

    /// Keeps `count` elements from `start` on, or as many as there are, and removes all others.
    pub fn trim(&mut self, start: usize, count: usize, limits: &ListLimits) {
        let len = self.len();
        let start = start.min(len);
        let end = start.saturating_add(count).min(len);
        self.delete_range(end, len - end);
        self.delete_range(0, start);
        self.has_shrunk(limits);
    }

    fn delete_range(&mut self, index: usize, count: usize) {
        match &mut self.repr {
            Repr::Listpack(listpack) => {
                listpack.delete_range(index as i64, count);
            }
            Repr::Quicklist(quicklist) => quicklist.delete_range(index, count),
            Repr::Inline(_) => only_shown(),
        }
    }

    /// Calls `found` with the index of every element that equals `value`, from `end` on, until it
    /// breaks or `max_compared` elements have been looked at. Indices count from the left.
    pub fn positions(
        &self,
        end: End,
        value: &[u8],
        max_compared: usize,
        mut found: impl FnMut(usize) -> ControlFlow<()>,
    ) {
        let needle = Needle::new(value);
        let len = self.len();
        let iter = match end {
            End::Left => self.iter(),
            End::Right if len == 0 => return,
            End::Right => self.iter_back_from(len - 1),
        };
        for (at, element) in iter.take(max_compared).enumerate() {
            if needle.matches(element) {
                let index = if end == End::Left { at } else { len - 1 - at };
                if found(index).is_break() {
                    return;
                }
            }
        }
    }

    // Iteration.

    /// All elements, from the left.
    pub fn iter(&self) -> Iter<'_> {
        self.iter_from(0)
    }

    /// The elements from `index` on to the right, that one included.
    pub fn iter_from(&self, index: usize) -> Iter<'_> {
        Iter::new(self, index, iter::Direction::Right)
    }

    /// The elements from `index` on to the left, that one included.
    pub fn iter_back_from(&self, index: usize) -> Iter<'_> {
        Iter::new(self, index, iter::Direction::Left)
    }

    /// Calls `visit` with `count` elements from `start` on, or as many as there are: the fastest
    /// way to read a range.
    #[inline]
    pub fn for_each_range(&self, start: usize, count: usize, visit: impl FnMut(Element<'_>)) {
        iter::for_each_range(self, start, count, visit);
    }

    // Serialized form.

    /// The list as its nodes lie in memory, which is how RDB files have it. Empty for an empty
    /// list.
    pub fn chunks(&self) -> impl Iterator<Item = Chunk<'_>> {
        (0..self.chunk_count()).map_while(|index| self.chunk(index))
    }

    /// How many chunks [`List::chunks`] gives.
    pub fn chunk_count(&self) -> usize {
        match &self.repr {
            Repr::Listpack(listpack) => usize::from(!listpack.is_empty()),
            Repr::Quicklist(quicklist) => quicklist.nodes.len(),
            Repr::Inline(_) => 1,
        }
    }

    /// One of [`List::chunks`], found at once.
    pub fn chunk(&self, index: usize) -> Option<Chunk<'_>> {
        let packed = |listpack| Chunk::Packed(Cow::Borrowed(Listpack::as_bytes(listpack)));
        match &self.repr {
            Repr::Listpack(listpack) => {
                (index == 0 && !listpack.is_empty()).then(|| packed(listpack))
            }
            Repr::Quicklist(quicklist) => quicklist.nodes.get(index).map(|node| match node {
                Node::Packed { listpack, .. } => packed(listpack),
                Node::Plain(bytes) => Chunk::Plain(bytes),
            }),
            Repr::Inline(inline) => (index == 0)
                .then(|| Chunk::Packed(Cow::Owned(inline.to_listpack().as_bytes().to_vec()))),
        }
    }

    /// A builder for a list that comes in pieces.
    pub fn builder() -> ListBuilder {
        ListBuilder { quicklist: Quicklist::default() }
    }

    // In the block of its key.

    /// What the owner of a key has to know to keep the list in the key's block; `None` if it is too
    /// big for that or empty.
    pub fn extent(&self) -> Option<Extent> {
        match &self.repr {
            Repr::Listpack(listpack) => Extent::of_listpack(listpack),
            _ => None,
        }
    }

    /// Writes the elements, to be shown by [`List::show`].
    ///
    /// # Panics
    /// If `to` has another length than [`List::extent`] says.
    pub fn write_inline(&self, to: &mut [MaybeUninit<u8>]) {
        if let Repr::Listpack(listpack) = &self.repr {
            inline::copy(listpack.entries(), to);
        }
    }

    /// The list that lies there, to be read. A clone of it has a block of its own.
    #[inline]
    pub fn show(inline: Inline) -> ManuallyDrop<Self> {
        ManuallyDrop::new(Self { repr: Repr::Inline(inline) })
    }

    // Conversion.

    /// Converts if one more element like this would exceed the limit.
    fn will_grow(&mut self, element: &[u8], limits: &ListLimits) {
        if let Repr::Listpack(listpack) = &self.repr
            && limits.exceeded_by(listpack.bytes_len() + element.len(), listpack.count() + 1)
        {
            self.become_quicklist();
        }
    }

    #[cold]
    fn become_quicklist(&mut self) {
        if let Repr::Listpack(listpack) = &mut self.repr {
            let mut quicklist = Quicklist::default();
            if !listpack.is_empty() {
                quicklist.append(Node::packed(std::mem::take(listpack)));
            }
            self.repr = Repr::Quicklist(Box::new(quicklist));
        }
    }

    /// Converts if what is left is small enough.
    fn has_shrunk(&mut self, limits: &ListLimits) {
        if let Repr::Quicklist(quicklist) = &mut self.repr
            && let Some(listpack) = quicklist.take_small(limits, limits::Margin::Half)
        {
            self.repr = Repr::Listpack(listpack);
        }
    }
}

impl Clone for List {
    fn clone(&self) -> Self {
        let repr = match &self.repr {
            Repr::Listpack(listpack) => Repr::Listpack(listpack.clone()),
            Repr::Quicklist(quicklist) => Repr::Quicklist(quicklist.clone()),
            Repr::Inline(inline) => Repr::Listpack(inline.to_listpack()),
        };
        Self { repr }
    }
}

/// Panics. Nothing gives a list out for changes that lies in the block of its key.
#[cold]
fn only_shown() -> ! {
    unreachable!("a list was changed in the block of its key")
}

/// Makes a list from serialized pieces.
pub struct ListBuilder {
    quicklist: Quicklist,
}

impl ListBuilder {
    /// Adds a listpack's elements on the right; nothing if it is empty.
    pub fn append_listpack(&mut self, listpack: Listpack) {
        if !listpack.is_empty() {
            self.quicklist.append(Node::packed(listpack));
        }
    }

    /// Adds one element on the right that is stored alone, whatever its length.
    pub fn append_plain(&mut self, element: &[u8]) {
        self.quicklist.append(Node::plain(element));
    }

    /// Adds one element on the right.
    pub fn append(&mut self, element: &[u8], limits: &ListLimits) {
        self.quicklist.push(End::Right, element, limits);
    }

    /// The list, in the encoding that its size asks for.
    pub fn finish(mut self, limits: &ListLimits) -> List {
        let repr = match self.quicklist.take_small(limits, limits::Margin::Full) {
            Some(listpack) => Repr::Listpack(listpack),
            None => Repr::Quicklist(Box::new(self.quicklist)),
        };
        List { repr }
    }
}

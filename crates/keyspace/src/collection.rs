//! The interface of values that are not strings, for the keyspace, snapshots and INFO.
//!
//! It is one trait, with one implementation per type in the files below this one. Commands work on
//! the types themselves (`structs`). This interface does what is independent of the type: it
//! measures, copies and frees a value, and writes it to a snapshot.

mod hash;
mod list;
mod module;
mod set;
mod stream;
mod zset;

use crate::kind::Value;
use crate::snapshot::record::{Form, Writer};
use std::borrow::Cow;
use std::mem::{ManuallyDrop, MaybeUninit};
use std::ops::ControlFlow;
use structs::inline::{Extent, Inline, Packing};

/// How the contents of a value lie in memory, and therefore how a snapshot takes them.
pub enum Layout<'a> {
    /// One block of bytes (a listpack, an intset).
    Block(Form, Cow<'a, [u8]>),
    /// A number of chunks ([`Collection::chunk`]).
    Chunks(Form, usize),
    /// [`Collection::len`] elements ([`Collection::visit`]), in a table that can be watched.
    Elements(Form),
    /// A number of parts, which copies of the value share ([`Collection::take_apart`]).
    Shared(Form, usize),
}

/// A copy of a value that is taken apart while the value itself changes.
pub trait TakeApart: Send {
    /// Appends the next part. Returns `false` if there is none.
    fn write_next(&mut self, to: &mut Writer<'_>) -> bool;
}

/// A chunk of a value.
#[derive(Clone)]
pub struct Chunk<'a> {
    /// Whether it is a listpack. Otherwise it is one element.
    pub is_packed: bool,
    /// Its bytes.
    pub bytes: Cow<'a, [u8]>,
}

/// One element of a value.
#[derive(Clone, Copy)]
pub enum Element<'a> {
    /// A member of a set.
    Member(&'a [u8]),
    /// A field, its value, and its expiry.
    Field(&'a [u8], &'a [u8], Option<i64>),
    /// A member and its score.
    Scored(&'a [u8], f64),
}

impl Element<'_> {
    /// Returns the member or the field.
    pub(crate) fn first_bytes(&self) -> &[u8] {
        match self {
            Element::Member(bytes) | Element::Field(bytes, ..) | Element::Scored(bytes, _) => bytes,
        }
    }

    /// Returns the bytes of its strings.
    pub(crate) fn bytes_len(self) -> usize {
        match self {
            Element::Member(bytes) | Element::Scored(bytes, _) => bytes.len(),
            Element::Field(field, value, _) => field.len() + value.len(),
        }
    }
}

/// Takes elements one after the other until it returns `Break`.
pub type Visit<'v> = &'v mut dyn FnMut(Element<'_>) -> ControlFlow<()>;

/// Takes the elements that a watch meets.
pub type Take = Box<dyn FnMut(Element<'_>) + Send>;

/// What each type but the string can do. The module's documentation describes it.
pub trait Collection: Send + Sync {
    /// Returns the name for OBJECT ENCODING.
    fn encoding(&self) -> &'static str;
    /// Returns the number of elements.
    fn len(&self) -> usize;
    /// Returns whether nothing is left, so that the key has to be removed.
    fn is_empty(&self) -> bool {
        self.len() == 0
    }
    /// Returns the bytes of its blocks.
    fn allocated_bytes(&self) -> usize;
    /// Returns the approximate number of deallocations that freeing it takes.
    fn free_effort(&self) -> usize;
    /// Returns a copy (COPY).
    fn duplicate(&self) -> Value;

    /// Returns the value on which, besides the elements, the order of a scan depends. If the same
    /// key's value is rebuilt, it is rebuilt in that order ([`structs::table::in_order_of`]), so
    /// that a scan stays correct.
    fn table_order(&self) -> Option<u64> {
        None
    }

    /// Returns what an entry has to know to keep the value in its own block, or `None` if the value
    /// is too big for that or never lies there.
    fn extent(&self) -> Option<Extent> {
        None
    }
    /// Returns how a value with an extent is written into an entry, which may be shorter.
    fn pack(&self) -> Option<Packing> {
        self.extent().map(Packing::from)
    }
    /// Writes the elements of a value with an extent to be kept in an entry.
    fn write_inline(&self, packing: Packing, to: &mut [MaybeUninit<u8>]) {
        let _ = (packing, to);
        unreachable!("it has no extent");
    }
    /// Returns a value that has been written so, to be read.
    fn show(inline: Inline) -> ManuallyDrop<Self>
    where
        Self: Sized,
    {
        let _ = inline;
        unreachable!("it has no extent");
    }

    /// Returns how its contents lie in memory.
    fn layout(&self) -> Layout<'_>;
    /// Returns a chunk by its index in constant time, if the layout is [`Layout::Chunks`].
    fn chunk(&self, index: usize) -> Option<Chunk<'_>> {
        let _ = index;
        None
    }
    /// Visits the elements, if the layout is [`Layout::Elements`].
    fn visit(&self, visit: Visit<'_>) {
        let _ = visit;
    }
    /// Begins a watch, which takes elements before they change (`structs/watched.rs`), if the
    /// layout is [`Layout::Elements`]. Returns whether it is.
    fn watch(&self, take: Take) -> bool {
        let _ = take;
        false
    }
    /// Takes the next cell of a watched value. Returns `false` if none is left.
    fn step_watch(&self) -> bool {
        false
    }
    /// Allows writers to take `cells` cells. Returns how many of the last allowance are left.
    fn allow_watch(&self, cells: usize) -> usize {
        let _ = cells;
        0
    }
    /// Returns a copy that can be taken apart, in constant time, if the layout is
    /// [`Layout::Shared`].
    fn take_apart(&self) -> Option<Box<dyn TakeApart>> {
        None
    }
    /// Ends the watch.
    fn unwatch(&self) {}
}

/// Visits each of `elements` until `visit` returns `Break`.
fn visit_all<'e>(elements: impl Iterator<Item = Element<'e>>, visit: Visit<'_>) {
    for element in elements {
        if visit(element).is_break() {
            return;
        }
    }
}

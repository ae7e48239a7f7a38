//! What the keyspace, snapshots and INFO need to know of a value that is no string.
//!
//! One trait, implemented once a type, in the files below this one. Commands work on the types
//! themselves (`structs`); this is what happens to a value without regard to its type: it is
//! measured, copied, freed, and written to a snapshot.

mod hash;
mod list;
mod set;
mod stream;
mod zset;

use crate::kind::Value;
use crate::snapshot::record::{Form, Writer};
use std::ops::ControlFlow;

/// How the contents of a value lie in memory, which is how a snapshot takes them.
pub enum Layout<'a> {
    /// One block of bytes (a listpack, an intset).
    Block(Form, &'a [u8]),
    /// So many chunks ([`Collection::chunk`]).
    Chunks(Form, usize),
    /// [`Collection::len`] elements ([`Collection::visit`]), in a table that can be watched.
    Elements(Form),
    /// So many parts, shared with copies of the value ([`Collection::take_apart`]).
    Shared(Form, usize),
}

/// A copy of a value that is taken apart while the value itself goes on changing.
pub trait TakeApart: Send {
    /// Appends the next part; `false` if there is none.
    fn write_next(&mut self, to: &mut Writer<'_>) -> bool;
}

/// A chunk of a value.
#[derive(Clone, Copy)]
pub struct Chunk<'a> {
    /// Whether it is a listpack; else it is one element alone.
    pub is_packed: bool,
    /// Its bytes.
    pub bytes: &'a [u8],
}

/// One element of a value.
#[derive(Clone, Copy)]
pub enum Element<'a> {
    /// A member of a set.
    Member(&'a [u8]),
    /// A field, its value, and when it expires.
    Field(&'a [u8], &'a [u8], Option<i64>),
    /// A member and its score.
    Scored(&'a [u8], f64),
}

impl Element<'_> {
    /// The member or the field.
    pub(crate) fn first_bytes(&self) -> &[u8] {
        match self {
            Element::Member(bytes) | Element::Field(bytes, ..) | Element::Scored(bytes, _) => bytes,
        }
    }

    /// Bytes of its strings.
    pub(crate) fn bytes_len(self) -> usize {
        match self {
            Element::Member(bytes) | Element::Scored(bytes, _) => bytes.len(),
            Element::Field(field, value, _) => field.len() + value.len(),
        }
    }
}

/// Takes elements one after the other until it breaks.
pub type Visit<'v> = &'v mut dyn FnMut(Element<'_>) -> ControlFlow<()>;

/// Takes the elements that a watch sees.
pub type Take = Box<dyn FnMut(Element<'_>) + Send>;

/// What every type other than the string can do; see the module's documentation.
pub trait Collection: Send + Sync {
    /// OBJECT ENCODING.
    fn encoding(&self) -> &'static str;
    /// Number of elements.
    fn len(&self) -> usize;
    /// Whether the key must go because nothing is left in it.
    fn is_empty(&self) -> bool {
        self.len() == 0
    }
    /// Bytes of its blocks.
    fn allocated_bytes(&self) -> usize;
    /// Roughly how many allocations freeing it takes.
    fn free_effort(&self) -> usize;
    /// A copy (COPY).
    fn duplicate(&self) -> Value;

    /// What the order in which a scan sees its elements depends on besides them: whoever makes the value anew under the
    /// same key does so in that order ([`structs::table::in_order_of`]).
    fn table_order(&self) -> Option<u64> {
        None
    }

    /// How its contents lie in memory.
    fn layout(&self) -> Layout<'_>;
    /// A chunk by its index, found at once, if the layout is [`Layout::Chunks`].
    fn chunk(&self, index: usize) -> Option<Chunk<'_>> {
        let _ = index;
        None
    }
    /// Visits the elements, if the layout is [`Layout::Elements`].
    fn visit(&self, visit: Visit<'_>) {
        let _ = visit;
    }
    /// Has elements taken before they change (`structs/watched.rs`), if the layout is
    /// [`Layout::Elements`]; says whether it is.
    fn watch(&self, take: Take) -> bool {
        let _ = take;
        false
    }
    /// Takes the next cell of a value that is watched; `false` if there is none left.
    fn step_watch(&self) -> bool {
        false
    }
    /// Allows writers to take so many cells; returns how many of the last allowance are left.
    fn allow_watch(&self, cells: usize) -> usize {
        let _ = cells;
        0
    }
    /// A copy to be taken apart, made at once, if the layout is [`Layout::Shared`].
    fn take_apart(&self) -> Option<Box<dyn TakeApart>> {
        None
    }
    /// Ends the watch.
    fn unwatch(&self) {}
}

/// Visits each of `elements` until one breaks.
fn visit_all<'e>(elements: impl Iterator<Item = Element<'e>>, visit: Visit<'_>) {
    for element in elements {
        if visit(element).is_break() {
            return;
        }
    }
}

//! Hashes as the keyspace sees them.

use super::{Collection, Element, Layout, Take, Visit, visit_all};
use crate::kind::Value;
use crate::snapshot::record::Form;
use std::mem::{ManuallyDrop, MaybeUninit};
use structs::hash::{Hash, HashContents};
use structs::inline::{Extent, Inline, Packing};

impl Collection for Hash {
    fn encoding(&self) -> &'static str {
        self.encoding()
    }
    fn len(&self) -> usize {
        self.len()
    }
    fn allocated_bytes(&self) -> usize {
        self.allocated_bytes()
    }
    fn free_effort(&self) -> usize {
        if self.table_slots().is_some() { self.len().max(1) } else { 1 }
    }
    fn duplicate(&self) -> Value {
        self.clone().into()
    }
    fn table_order(&self) -> Option<u64> {
        self.table_order()
    }
    fn extent(&self) -> Option<Extent> {
        self.extent()
    }
    fn pack(&self) -> Option<Packing> {
        self.pack()
    }
    fn write_inline(&self, packing: Packing, to: &mut [MaybeUninit<u8>]) {
        self.write_inline(packing, to);
    }
    fn show(inline: Inline) -> ManuallyDrop<Self> {
        Self::show(inline)
    }
    fn layout(&self) -> Layout<'_> {
        match self.contents() {
            HashContents::Listpack(bytes) => Layout::Block(Form::HashListpack, bytes),
            HashContents::Table(_) => Layout::Elements(Form::Hash),
            HashContents::Timed(_) => Layout::Elements(Form::TimedHash),
        }
    }
    fn visit(&self, visit: Visit<'_>) {
        match self.contents() {
            HashContents::Listpack(_) => {}
            HashContents::Table(fields) => visit_all(fields.map(element), visit),
            HashContents::Timed(fields) => visit_all(fields.map(element), visit),
        }
    }
    fn watch(&self, mut take: Take) -> bool {
        self.watch(move |field, value, expiry| take(Element::Field(field, value, expiry)))
    }
    fn step_watch(&self) -> bool {
        self.step_watch()
    }
    fn allow_watch(&self, cells: usize) -> usize {
        self.allow_watch(cells)
    }
    fn unwatch(&self) {
        self.unwatch();
    }
}

fn element<'e>((field, value, expiry): (&'e [u8], &'e [u8], Option<i64>)) -> Element<'e> {
    Element::Field(field, value, expiry)
}

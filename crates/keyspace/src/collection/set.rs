//! Sets as the keyspace sees them.

use super::{Collection, Element, Layout, Take, Visit, visit_all};
use crate::kind::Value;
use crate::snapshot::record::Form;
use std::mem::{ManuallyDrop, MaybeUninit};
use structs::inline::{Extent, Inline, Packing};
use structs::set::{Set, SetContents};

impl Collection for Set {
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
    fn write_inline(&self, _: Packing, to: &mut [MaybeUninit<u8>]) {
        self.write_inline(to);
    }
    fn show(inline: Inline) -> ManuallyDrop<Self> {
        Self::show(inline)
    }
    fn layout(&self) -> Layout<'_> {
        match self.contents() {
            SetContents::Intset(bytes) => Layout::Block(Form::SetIntset, bytes),
            SetContents::Listpack(bytes) => Layout::Block(Form::SetListpack, bytes),
            SetContents::Table(_) => Layout::Elements(Form::Set),
        }
    }
    fn visit(&self, visit: Visit<'_>) {
        if let SetContents::Table(elements) = self.contents() {
            visit_all(elements.map(Element::Member), visit);
        }
    }
    fn watch(&self, mut take: Take) -> bool {
        self.watch(move |member| take(Element::Member(member)))
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

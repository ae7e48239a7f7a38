//! Sorted sets as the keyspace sees them.

use super::{Collection, Element, Layout, Take, Visit, visit_all};
use crate::kind::Value;
use crate::snapshot::record::Form;
use std::mem::{ManuallyDrop, MaybeUninit};
use structs::inline::{Extent, Inline, Packing};
use structs::zset::{Zset, ZsetContents};

impl Collection for Zset {
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
            ZsetContents::Listpack(bytes) => Layout::Block(Form::ZsetListpack, bytes),
            ZsetContents::Sorted(_) => Layout::Elements(Form::Zset),
        }
    }
    fn visit(&self, visit: Visit<'_>) {
        if let ZsetContents::Sorted(elements) = self.contents() {
            // Visit them from the highest score down, so that a skiplist inserts at its head.
            let elements = elements.rev();
            visit_all(elements.map(|(member, score)| Element::Scored(member, score)), visit);
        }
    }
    fn watch(&self, mut take: Take) -> bool {
        self.watch(move |member, score| take(Element::Scored(member, score)))
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

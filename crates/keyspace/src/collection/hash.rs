//! Hashes as the keyspace sees them.

use super::{Collection, Element, Layout, Take, Visit, visit_all};
use crate::kind::Value;
use crate::snapshot::record::Form;
use structs::hash::{Hash, HashContents};

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
    fn layout(&self) -> Layout<'_> {
        match self.contents() {
            HashContents::Listpack(bytes) => Layout::Block(Form::HashListpack, bytes),
            HashContents::Table(_) => Layout::Elements(Form::Hash),
        }
    }
    fn visit(&self, visit: Visit<'_>) {
        if let HashContents::Table(elements) = self.contents() {
            visit_all(elements.map(|(field, value)| Element::Field(field, value)), visit);
        }
    }
    fn watch(&self, mut take: Take) -> bool {
        self.watch(move |field, value| take(Element::Field(field, value)))
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

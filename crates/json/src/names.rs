//! The names of a document's members, each stored once.
//!
//! ```text
//!   entries   │ start u32 │ uses u8, len u24 │ …       a name's number is its place here
//!   text      n a m e a g e c i t y …
//!   index     numbers + 1, open addressing; from 17 names on
//! ```
//!
//! A name has a count of its members, so that a document whose members come and go forgets the old
//! names. The count sticks at 255: such a name stays until the document is copied or loaded. The
//! bytes of forgotten names are reclaimed when they are half of the text.
#![allow(unsafe_code)]

use crate::slots::Slots;
use crate::thin::Thin;
use structs::hashing::hash;

/// The number of a name in its document.
pub(crate) type NameId = u32;

/// Names up to this many are searched one after the other.
const MAX_UNINDEXED: usize = 16;
/// Names and bytes of text that the first blocks have place for.
const FIRST_NAMES: usize = 12;
const FIRST_TEXT: usize = 88;
/// A count that is never lowered again.
const MANY: u32 = 255;
/// The longest name, in bytes.
pub(crate) const MAX_NAME_LEN: usize = (1 << 24) - 1;
/// The end of the list of unused entries.
const NO_ENTRY: u32 = u32::MAX;

#[derive(Clone, Copy)]
struct Entry {
    /// Where the text begins; of an unused entry the next unused one.
    start: u32,
    uses_and_len: u32,
}

impl Entry {
    fn uses(self) -> u32 {
        self.uses_and_len >> 24
    }

    fn len(self) -> usize {
        (self.uses_and_len & 0xff_ffff) as usize
    }
}

/// The names of a document.
pub(crate) struct Names {
    entries: Thin<Entry>,
    text: Thin<u8>,
    index: Slots,
    /// The first unused entry.
    unused: u32,
    /// Bytes of text that belong to no entry.
    dead_bytes: u32,
}

/// Places in the text have 32 bits.
const MAX_TEXT: usize = u32::MAX as usize;

impl Names {
    /// Returns a table without names and without blocks.
    pub(crate) const fn new() -> Names {
        Names {
            entries: Thin::new(),
            text: Thin::new(),
            index: Slots::none(),
            unused: NO_ENTRY,
            dead_bytes: 0,
        }
    }

    /// Returns the name with this number.
    pub(crate) fn text(&self, id: NameId) -> &str {
        let bytes = self.bytes(self.entries.as_slice()[id as usize]);
        // SAFETY: the bytes of an entry were copied from a `str` as a whole.
        unsafe { std::str::from_utf8_unchecked(bytes) }
    }

    fn bytes(&self, entry: Entry) -> &[u8] {
        &self.text.as_slice()[entry.start as usize..][..entry.len()]
    }

    /// Returns whether a member has this name, and the name this number.
    pub(crate) fn has(&self, id: NameId, name: &str) -> bool {
        let entry = self.entries.as_slice().get(id as usize);
        entry.is_some_and(|entry| self.is(*entry, name.as_bytes()))
    }

    fn is(&self, entry: Entry, name: &[u8]) -> bool {
        entry.uses() > 0 && entry.len() == name.len() && self.bytes(entry) == name
    }

    /// Returns the number of a name, if a member has it.
    pub(crate) fn find(&self, name: &str) -> Option<NameId> {
        let name = name.as_bytes();
        if self.index.len() == 0 {
            let mut entries = self.entries.as_slice().iter();
            return entries.position(|entry| self.is(*entry, name)).map(|at| at as u32);
        }
        let mut at = self.slot_of(name);
        loop {
            let id = self.index.get(at).checked_sub(1)?;
            let entry = self.entries.as_slice()[id as usize];
            if self.is(entry, name) {
                return Some(id);
            }
            at = (at + 1) & (self.index.len() - 1);
        }
    }

    fn slot_of(&self, name: &[u8]) -> usize {
        slot_in(self.index.len(), name)
    }

    /// Returns how many names have members.
    #[cfg(test)]
    pub(crate) fn in_use(&self) -> usize {
        self.entries.as_slice().iter().filter(|entry| entry.uses() > 0).count()
    }

    /// Returns the bytes of all names' text.
    pub(crate) fn text_len(&self) -> usize {
        self.text.len()
    }

    /// Returns whether names of so many bytes can be added.
    pub(crate) fn has_place(&self, bytes: usize) -> bool {
        self.text.len() + bytes <= MAX_TEXT
    }

    /// Returns the number of a name and counts one more member that has it.
    ///
    /// # Panics
    /// If the name is longer than [`MAX_NAME_LEN`], or all names are longer than 4 GiB.
    pub(crate) fn intern(&mut self, name: &str) -> NameId {
        if let Some(id) = self.find(name) {
            self.count(id);
            return id;
        }
        assert!(name.len() <= MAX_NAME_LEN, "long names are refused before");
        let start = self.text.len();
        if start == 0 {
            // Most documents have several names; what is too much is given back at the end.
            self.entries.reserve(FIRST_NAMES);
            self.text.reserve(FIRST_TEXT);
        }
        assert!(start + name.len() <= MAX_TEXT, "a document is shorter than 4 GiB");
        self.text.extend(name.as_bytes());
        let entry = Entry { start: start as u32, uses_and_len: 1 << 24 | name.len() as u32 };
        let id = if self.unused == NO_ENTRY {
            self.entries.push(entry);
            self.entries.len() as u32 - 1
        } else {
            let id = self.unused;
            let place = &mut self.entries.as_mut_slice()[id as usize];
            self.unused = std::mem::replace(place, entry).start;
            id
        };
        self.add_to_index(id);
        id
    }

    /// Counts one more member with a name that is there.
    pub(crate) fn count(&mut self, id: NameId) {
        let entry = &mut self.entries.as_mut_slice()[id as usize];
        if entry.uses() < MANY {
            entry.uses_and_len += 1 << 24;
        }
    }

    /// Counts one member less and forgets a name that no member has.
    pub(crate) fn release(&mut self, id: NameId) {
        let entry = self.entries.as_slice()[id as usize];
        debug_assert!(entry.uses() > 0, "the name is in use");
        if entry.uses() == MANY {
            return;
        }
        if entry.uses() > 1 {
            self.entries.as_mut_slice()[id as usize].uses_and_len -= 1 << 24;
            return;
        }
        self.remove_from_index(id);
        self.entries.as_mut_slice()[id as usize] = Entry { start: self.unused, uses_and_len: 0 };
        self.unused = id;
        self.dead_bytes += entry.len() as u32;
        if self.dead_bytes as usize * 2 > self.text.len() && self.dead_bytes > 64 {
            self.compact();
        }
    }

    /// Closes the gaps in the text.
    fn compact(&mut self) {
        let mut text = Vec::with_capacity(self.text.len() - self.dead_bytes as usize);
        for at in 0..self.entries.len() {
            let entry = self.entries.as_slice()[at];
            if entry.uses() > 0 {
                let start = text.len() as u32;
                text.extend_from_slice(self.bytes(entry));
                self.entries.as_mut_slice()[at].start = start;
            }
        }
        self.text = Thin::exact(text.into_iter());
        self.dead_bytes = 0;
    }

    fn add_to_index(&mut self, id: NameId) {
        let names = self.entries.len();
        if self.index.len() == 0 && names <= MAX_UNINDEXED {
            return;
        }
        if self.index.is_crowded(names) {
            self.index = Slots::free(names);
            for id in 0..names as u32 {
                if self.entries.as_slice()[id as usize].uses() > 0 {
                    self.place(id);
                }
            }
        } else {
            self.place(id);
        }
    }

    fn place(&mut self, id: NameId) {
        let mut at = self.slot_of(self.bytes(self.entries.as_slice()[id as usize]));
        let slots = self.index.len();
        while self.index.get(at) != 0 {
            at = (at + 1) & (slots - 1);
        }
        self.index.set(at, id + 1);
    }

    fn remove_from_index(&mut self, id: NameId) {
        let slots = self.index.len();
        if slots == 0 {
            return;
        }
        let mut hole = self.slot_of(self.bytes(self.entries.as_slice()[id as usize]));
        while self.index.get(hole) != id + 1 {
            hole = (hole + 1) & (slots - 1);
        }
        let mut index = std::mem::replace(&mut self.index, Slots::none());
        index.remove(hole, |number| {
            let entry = self.entries.as_slice()[number as usize - 1];
            slot_in(slots, self.bytes(entry))
        });
        self.index = index;
    }

    /// Gives back what was allocated ahead. Called when a document is complete.
    pub(crate) fn shrink(&mut self) {
        self.entries.shrink_to_fit();
        self.text.shrink_to_fit();
    }

    /// Returns the bytes of its blocks.
    pub(crate) fn memory(&self) -> usize {
        self.entries.memory() + self.text.memory() + self.index.memory()
    }
}

/// Returns the slot at which the search for a name begins.
fn slot_in(slots: usize, name: &[u8]) -> usize {
    (hash(name) >> 16) as usize & (slots - 1)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::HashMap;

    proptest! {
        #![proptest_config(crate::few_cases(256))]
        #[test]
        fn agrees_with_a_map(
            changes in proptest::collection::vec((any::<bool>(), 0u8..60), 0..300),
        ) {
            let mut names = Names::new();
            let mut model: HashMap<String, (NameId, usize)> = HashMap::new();
            for (add, number) in changes {
                let name = format!("name-{}{number}", "x".repeat(usize::from(number) % 7));
                if add {
                    let id = names.intern(&name);
                    let known = model.entry(name).or_insert((id, 0));
                    prop_assert_eq!(known.0, id);
                    known.1 += 1;
                } else if let Some((id, uses)) = model.get_mut(&name) {
                    names.release(*id);
                    *uses -= 1;
                    if *uses == 0 {
                        model.remove(&name);
                    }
                }
                for number in 0..60u8 {
                    let name = format!("name-{}{number}", "x".repeat(usize::from(number) % 7));
                    let known = model.get(&name).map(|known| known.0);
                    prop_assert_eq!(names.find(&name), known);
                    if let Some(id) = known {
                        prop_assert_eq!(names.text(id), name);
                    }
                }
            }
        }
    }

    #[test]
    fn a_name_of_very_many_members_stays() {
        let mut names = Names::new();
        for _ in 0..300 {
            names.intern("a");
        }
        for _ in 0..300 {
            names.release(0);
        }
        assert_eq!(names.find("a"), Some(0));
    }

    #[test]
    fn names_that_come_and_go_cost_nothing_in_the_end() {
        let mut names = Names::new();
        for number in 0..10_000 {
            let id = names.intern(&format!("member number {number}"));
            names.release(id);
        }
        assert!(names.memory() < 400, "{}", names.memory());
    }
}

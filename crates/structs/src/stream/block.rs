//! A block: some entries of a stream, packed into one listpack as RDB files have them.
//!
//! ```text
//!  count │ deleted │ fields │ name … name │ 0                       the master entry
//!  flags │ ms │ seq │ value … value │ words                         an entry with the same names
//!  flags │ ms │ seq │ fields │ name │ value … │ words               one with names of its own
//! ```
//!
//! - The block's master ID is the ID of its first entry; `ms` and `seq` are distances from there.
//! - `flags`: 1 the entry is deleted, 2 it has the names of the master entry.
//! - `words` is the number of elements in front of it that the entry takes, so that blocks can be
//!   walked backwards; the 0 ends such a walk.
//! - A deleted entry keeps its place until the last live one of its block goes.

use super::StreamId;
use crate::listpack::{Element, Iter, Listpack};
use crate::numbers::{INT_MAX_LEN, format_i64};
use std::ops::ControlFlow;

const DELETED: i64 = 1;
const SAME_NAMES: i64 = 2;
/// Elements of an entry besides its names and values: flags and both parts of the ID.
const FIXED: i64 = 3;
/// A block has at most so many bytes, whatever the options say.
pub const MAX_BYTES: usize = 1 << 30;
/// Room that is made for a block at first, at most.
const MAX_RESERVED: usize = 4096;

/// See the module's documentation. Its ID is kept beside it.
#[derive(Clone)]
pub(super) struct Block {
    pack: Listpack,
}

/// What stands in front of an entry's fields.
#[derive(Clone, Copy)]
struct Head {
    id: StreamId,
    is_deleted: bool,
    has_same_names: bool,
    fields: usize,
}

impl Head {
    /// Elements behind the head, `words` included.
    fn elements(&self) -> usize {
        if self.has_same_names { self.fields + 1 } else { 2 * self.fields + 1 }
    }

    /// Its fields, which are next in `entries`.
    fn fields_in<'i, 'a>(&self, names: &Iter<'a>, entries: &'i mut Iter<'a>) -> Fields<'i, 'a> {
        let names = self.has_same_names.then(|| names.clone());
        Fields { names, rest: entries, left: self.fields }
    }
}

/// The fields of an entry, each a name and a value.
pub struct Fields<'i, 'a> {
    /// Where they are those of the master entry.
    names: Option<Iter<'a>>,
    rest: &'i mut Iter<'a>,
    left: usize,
}

impl<'a> Iterator for Fields<'_, 'a> {
    type Item = (Element<'a>, Element<'a>);

    #[inline]
    fn next(&mut self) -> Option<Self::Item> {
        self.left = self.left.checked_sub(1)?;
        let name = match &mut self.names {
            Some(names) => names.next()?,
            None => self.rest.next()?,
        };
        Some((name, self.rest.next()?))
    }

    fn size_hint(&self) -> (usize, Option<usize>) {
        (self.left, Some(self.left))
    }
}

impl ExactSizeIterator for Fields<'_, '_> {}

fn int(element: Option<Element<'_>>) -> Option<i64> {
    element?.to_int()
}

/// The master entry: counts, and its names.
struct Master<'a> {
    count: i64,
    deleted: i64,
    fields: usize,
    names: Iter<'a>,
    /// What comes behind it.
    entries: Iter<'a>,
}

impl Block {
    /// A block of one entry, whose ID is the block's. It is likely to need `reserved` allocated
    /// bytes.
    pub fn new(words: &[&[u8]], reserved: usize) -> Block {
        let mut pack = Listpack::with_block(reserved.min(MAX_RESERVED));
        pack.push_back_int(1);
        pack.push_back_int(0);
        pack.push_back_int(words.len() as i64 / 2);
        words.iter().step_by(2).for_each(|name| pack.push_back(name));
        pack.push_back_int(0);
        let mut block = Block { pack };
        block.push(StreamId::MIN, StreamId::MIN, words, true);
        block
    }

    /// A block that was stored, with its counts of live and deleted entries; `None` if it is not
    /// well-formed, or its IDs do not ascend from `master` on.
    pub fn from_listpack(pack: Listpack, master: StreamId) -> Option<Block> {
        let block = Block { pack };
        block.is_sound(master).then_some(block)
    }

    /// The bytes that RDB files hold.
    pub fn as_bytes(&self) -> &[u8] {
        self.pack.as_bytes()
    }

    /// Bytes allocated.
    pub fn allocated_bytes(&self) -> usize {
        self.pack.allocated_bytes()
    }

    /// Gives back memory that is not used: nothing is added any more.
    pub fn seal(&mut self) {
        self.pack.shrink_to_fit();
    }

    fn master(&self) -> Option<Master<'_>> {
        let mut iter = self.pack.iter();
        let (count, deleted) = (int(iter.next())?, int(iter.next())?);
        let fields = usize::try_from(int(iter.next())?).ok()?;
        let names = iter.clone();
        for _ in 0..fields {
            iter.next()?;
        }
        (int(iter.next())? == 0).then_some(Master { count, deleted, fields, names, entries: iter })
    }

    /// Number of live entries.
    pub fn len(&self) -> u64 {
        int(self.pack.front()).map_or(0, |count| count as u64)
    }

    /// Number of entries, those that are deleted included.
    pub fn total(&self) -> u64 {
        let mut iter = self.pack.iter();
        let (count, deleted) = (int(iter.next()), int(iter.next()));
        count.unwrap_or(0) as u64 + deleted.unwrap_or(0) as u64
    }

    // ---- writing ----------------------------------------------------------------------------

    /// Adds an entry: its names and values in turn.
    pub fn append(&mut self, master_id: StreamId, id: StreamId, words: &[&[u8]]) {
        let has_same_names = self.has_names(words);
        let count = self.len() as i64 + 1;
        self.set_count(0, count);
        self.push(master_id, id, words, has_same_names);
    }

    fn has_names(&self, words: &[&[u8]]) -> bool {
        let mut iter = self.pack.iter();
        let fields = int(iter.nth(2));
        fields == Some(words.len() as i64 / 2)
            && words.iter().step_by(2).all(|&name| match iter.next() {
                Some(Element::Bytes(bytes)) => bytes == name,
                Some(element) => element == *name,
                None => false,
            })
    }

    fn push(&mut self, master_id: StreamId, id: StreamId, words: &[&[u8]], same_names: bool) {
        let (ms, seq) = id.distance_from(master_id);
        let fields = words.len() as i64 / 2;
        self.pack.push_back_int(if same_names { SAME_NAMES } else { 0 });
        self.pack.push_back_int(ms);
        self.pack.push_back_int(seq);
        if same_names {
            words.iter().skip(1).step_by(2).for_each(|value| self.pack.push_back(value));
            self.pack.push_back_int(FIXED + fields);
        } else {
            self.pack.push_back_int(fields);
            words.iter().for_each(|word| self.pack.push_back(word));
            self.pack.push_back_int(FIXED + 1 + 2 * fields);
        }
    }

    fn set_count(&mut self, index: i64, count: i64) {
        let mut digits = [0; INT_MAX_LEN];
        if let Some(mut cursor) = self.pack.cursor_at_mut(index) {
            cursor.replace(format_i64(&mut digits, count));
        }
    }

    /// Marks the live entries as deleted for which `choose` says so, from the first on until it
    /// breaks; how many these are.
    pub fn delete_if(
        &mut self,
        master_id: StreamId,
        mut choose: impl FnMut(StreamId) -> ControlFlow<(), bool>,
    ) -> u64 {
        let Some(master) = self.master() else { return 0 };
        let (count, deleted, names) = (master.count, master.deleted, master.fields);
        let mut at = 4 + names as i64;
        let mut entries = master.entries;
        let mut chosen = Vec::new();
        while let Some(head) = head(&mut entries, master_id, names) {
            if !head.is_deleted {
                match choose(head.id) {
                    ControlFlow::Break(()) => break,
                    ControlFlow::Continue(true) => chosen.push((at, head.has_same_names)),
                    ControlFlow::Continue(false) => {}
                }
            }
            let elements = head.elements();
            entries.nth(elements - 1);
            at += FIXED + i64::from(!head.has_same_names) + elements as i64;
        }
        self.mark(&chosen);
        let marked = chosen.len() as i64;
        if marked > 0 {
            self.set_count(0, count - marked);
            self.set_count(1, deleted + marked);
        }
        marked as u64
    }

    /// Marks entries, whose places ascend, as deleted. Flags take one byte whatever they are, so
    /// this moves nothing.
    fn mark(&mut self, chosen: &[(i64, bool)]) {
        let Some(&(first, _)) = chosen.first() else { return };
        let Some(mut cursor) = self.pack.cursor_at_mut(first) else { return };
        let mut here = first;
        for &(at, has_same_names) in chosen {
            while here < at {
                cursor.move_next();
                here += 1;
            }
            cursor.replace(if has_same_names { b"3" } else { b"1" });
        }
    }

    // ---- reading ----------------------------------------------------------------------------

    /// Visits the entries from `from` on, in order; deleted ones too if `with_deleted`.
    pub fn walk(
        &self,
        master_id: StreamId,
        from: StreamId,
        with_deleted: bool,
        visit: &mut impl FnMut(StreamId, &mut Fields<'_, '_>) -> ControlFlow<()>,
    ) -> ControlFlow<()> {
        let Some(Master { fields, names, mut entries, .. }) = self.master() else {
            return ControlFlow::Continue(());
        };
        while let Some(head) = head(&mut entries, master_id, fields) {
            if head.id < from || (head.is_deleted && !with_deleted) {
                entries.nth(head.elements() - 1);
                continue;
            }
            show(&head, &names, &mut entries, visit)?;
        }
        ControlFlow::Continue(())
    }

    /// Visits the entries up to `to`, backwards.
    pub fn walk_back(
        &self,
        master_id: StreamId,
        to: StreamId,
        with_deleted: bool,
        visit: &mut impl FnMut(StreamId, &mut Fields<'_, '_>) -> ControlFlow<()>,
    ) -> ControlFlow<()> {
        let Some(Master { fields, names, mut entries, .. }) = self.master() else {
            return ControlFlow::Continue(());
        };
        while let Some(words) = int(entries.next_back()) {
            let Some(mut entry) = entries.take_back(words as usize) else { break };
            let Some(head) = head(&mut entry, master_id, fields) else { break };
            if head.id <= to && (with_deleted || !head.is_deleted) {
                visit(head.id, &mut head.fields_in(&names, &mut entry))?;
            }
        }
        ControlFlow::Continue(())
    }

    /// The ID of the last entry, deleted or not; `None` if there is none at all.
    pub fn last_id(&self, master_id: StreamId) -> Option<StreamId> {
        let mut iter = self.pack.iter();
        let words = int(iter.next_back()).filter(|&words| words > 0)?;
        let mut entry = iter.take_back(words as usize)?;
        entry.next()?;
        Some(StreamId::at(master_id, int(entry.next())?, int(entry.next())?))
    }

    // ---- checking ---------------------------------------------------------------------------

    /// Whether every element is what its place says, all counts are true, and the IDs ascend.
    fn is_sound(&self, master_id: StreamId) -> bool {
        let Some(Master { count, deleted, fields, mut entries, .. }) = self.master() else {
            return false;
        };
        let (mut live, mut dead, mut last) = (0, 0, None);
        while entries.clone().next().is_some() {
            let Some(head) = head(&mut entries, master_id, fields) else { return false };
            let words = FIXED as usize
                + usize::from(!head.has_same_names)
                + head.elements().saturating_sub(1);
            // Neither can there be more fields than elements, nor may the sum overflow.
            if head.fields > self.pack.bytes_len() {
                return false;
            }
            let stated = int(entries.nth(head.elements() - 1));
            let follows = last.is_none_or(|last| head.id > last) && head.id >= master_id;
            if stated != Some(words as i64) || !follows {
                return false;
            }
            last = Some(head.id);
            if head.is_deleted { dead += 1 } else { live += 1 }
        }
        live == count && dead == deleted
    }
}

/// Reads the head of the next entry.
fn head(entries: &mut Iter<'_>, master_id: StreamId, names: usize) -> Option<Head> {
    let flags = int(entries.next())?;
    let (ms, seq) = (int(entries.next())?, int(entries.next())?);
    let has_same_names = flags & SAME_NAMES != 0;
    let fields = if has_same_names { names } else { usize::try_from(int(entries.next())?).ok()? };
    // What is stored may say anything; a sum of twice as many must not overflow.
    let id = StreamId::at(master_id, ms, seq);
    let is_deleted = flags & DELETED != 0;
    (fields < usize::MAX / 4).then_some(Head { id, is_deleted, has_same_names, fields })
}

/// Shows an entry to a visitor, and goes on behind it.
fn show<'a>(
    head: &Head,
    names: &Iter<'a>,
    entries: &mut Iter<'a>,
    visit: &mut impl FnMut(StreamId, &mut Fields<'_, '_>) -> ControlFlow<()>,
) -> ControlFlow<()> {
    let mut fields = head.fields_in(names, entries);
    let flow = visit(head.id, &mut fields);
    fields.by_ref().for_each(drop);
    // The number of its elements.
    entries.next();
    flow
}

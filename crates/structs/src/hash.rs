//! The hash type: few short fields in a listpack, others in a hash table.
//!
//! The thresholds are Redis's ([`HashLimits`]), and a hash that has become a table stays one.
//!
//! In a listpack fields and values alternate, and everything is O(n) of a bounded n. In the table
//! lookup, change and a random field are O(1), each with one hash computation and one search; a
//! field and its value are one allocation ([`field`]), reached by 8 bytes and a fingerprint in a
//! slot. A short listpack may lie in the block of its key ([`crate::inline`]); it is only read
//! there.
//!
//! A hash in which a field expires is a short array ([`few`]) or a table too, with the times in the
//! fields and an index over them ([`times`]); the index is gone with the last such field, and the
//! hash is a table from then on. Methods of [`Hash`] see all fields; those of [`Live`] see what has
//! not expired at a given time.

mod few;
mod field;
mod live;
mod saving;
#[cfg(test)]
mod tests;
mod timed;
mod times;

pub use live::Live;

use crate::either::Either;
use crate::field_names::{self, Names};
use crate::hashing::hash;
use crate::inline::{self, Extent, Form, Inline, Packing};
use crate::listpack::{Element, Listpack, Malformed, write_bare};
use crate::random::Rng;
use crate::sampling::select;
use crate::scan::scan_table;
use crate::table::{Item, Salted};
use crate::watched::Watched;
use few::Few;
use field::Field;
use std::borrow::Cow;
use std::collections::HashSet;
use std::mem::{ManuallyDrop, MaybeUninit};
use timed::Timed;

/// The thresholds of the small encoding, named as their options.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HashLimits {
    /// `hash-max-listpack-entries`
    pub max_listpack_entries: usize,
    /// `hash-max-listpack-value`, in bytes; holds for fields as well
    pub max_listpack_value: usize,
}

impl Default for HashLimits {
    fn default() -> Self {
        Self { max_listpack_entries: 512, max_listpack_value: 64 }
    }
}

/// A map from byte strings to byte strings; see the module's documentation.
pub struct Hash {
    repr: Repr,
}

enum Repr {
    Listpack(Listpack),
    Table(Box<Watched<Field>>),
    Few(Box<Few>),
    Timed(Box<Timed>),
    Inline(Inline),
}

/// What a hash is, to read it.
enum View<'a> {
    Listpack(&'a Listpack),
    Table(&'a Watched<Field>),
    Few(&'a [Field]),
    Inline(&'a Inline),
}

const _: () = assert!(size_of::<Hash>() <= 16);

/// A hash in its serialized form.
pub enum HashContents<'a, I> {
    /// The bytes of a listpack of fields and values.
    Listpack(Cow<'a, [u8]>),
    /// The fields with their values, none of which expires.
    Table(I),
    /// The fields with their values and times.
    Timed(I),
}

impl Default for Hash {
    fn default() -> Self {
        Self::new()
    }
}

impl Hash {
    #[inline]
    fn view(&self) -> View<'_> {
        match &self.repr {
            Repr::Listpack(listpack) => View::Listpack(listpack),
            Repr::Table(table) => View::Table(table),
            Repr::Few(few) => View::Few(few.fields()),
            Repr::Timed(timed) => View::Table(timed.table()),
            Repr::Inline(inline) => View::Inline(inline),
        }
    }

    /// An empty hash.
    pub fn new() -> Self {
        Self { repr: Repr::Listpack(Listpack::new()) }
    }

    /// An empty hash for so many fields that it will have to be a table.
    pub fn with_capacity(fields: usize, limits: &HashLimits) -> Self {
        let mut hash = Self::new();
        if fields > limits.max_listpack_entries {
            hash.become_table(fields);
        }
        hash
    }

    /// Takes the listpack of an RDB file or DUMP payload; it must be of pairs, not empty and not
    /// have a field twice.
    pub fn from_listpack(listpack: Listpack, limits: &HashLimits) -> Result<Self, Malformed> {
        let count = listpack.count();
        let distinct: HashSet<Vec<u8>> =
            listpack.pairs().map(|(field, _)| field.to_vec()).collect();
        if count == 0 || !count.is_multiple_of(2) || distinct.len() != count / 2 {
            return Err(Malformed);
        }
        let mut hash = Self { repr: Repr::Listpack(listpack) };
        if count / 2 > limits.max_listpack_entries {
            hash.become_table(count / 2);
        }
        Ok(hash)
    }

    /// Converts if a command is about to set more or longer fields and values than the small
    /// encoding may hold. `added` yields fields and values in turn.
    #[inline]
    pub fn will_grow<'e>(
        &mut self,
        added: impl ExactSizeIterator<Item = &'e [u8]>,
        limits: &HashLimits,
    ) {
        let Repr::Listpack(listpack) = &self.repr else { return };
        let fields = added.len() / 2;
        if fields > limits.max_listpack_entries {
            return self.become_table(fields);
        }
        let mut bytes = 0;
        for element in added {
            if element.len() > limits.max_listpack_value {
                return self.become_table(0);
            }
            bytes += element.len();
        }
        if !listpack.has_room_for(bytes) {
            self.become_table(0);
        }
    }

    /// Number of fields.
    #[inline]
    pub fn len(&self) -> usize {
        match self.view() {
            View::Listpack(listpack) => listpack.count() / 2,
            View::Table(table) => table.len(),
            View::Few(fields) => fields.len(),
            View::Inline(inline) => inline.count(),
        }
    }

    /// Whether there is no field.
    #[inline]
    pub fn is_empty(&self) -> bool {
        match self.view() {
            View::Listpack(listpack) => listpack.is_empty(),
            View::Table(table) => table.is_empty(),
            View::Few(fields) => fields.is_empty(),
            View::Inline(_) => false,
        }
    }

    /// The name OBJECT ENCODING gives.
    pub fn encoding(&self) -> &'static str {
        match self.view() {
            View::Listpack(_) | View::Inline(_) => "listpack",
            View::Table(_) | View::Few(_) => "hashtable",
        }
    }

    /// Slots of the hash table, if the hash is one inside.
    pub fn table_slots(&self) -> Option<usize> {
        match self.view() {
            View::Table(table) => Some(table.slots()),
            View::Listpack(_) | View::Few(_) | View::Inline(_) => None,
        }
    }

    /// Bytes allocated for this hash, rounded as the allocator rounds them. Takes constant time, or
    /// looks at a few fields.
    pub fn allocated_bytes(&self) -> usize {
        match &self.repr {
            Repr::Listpack(listpack) => listpack.allocated_bytes(),
            Repr::Table(table) => table.allocated_bytes(),
            Repr::Few(few) => few.allocated_bytes(),
            Repr::Timed(timed) => timed.allocated_bytes(),
            Repr::Inline(_) => 0,
        }
    }

    /// What the order of the fields depends on, if they are in a table
    /// ([`crate::table::in_order_of`]).
    pub fn table_order(&self) -> Option<u64> {
        match &self.repr {
            Repr::Table(table) => Some(table.order()),
            Repr::Timed(timed) => Some(timed.table().order()),
            Repr::Listpack(_) | Repr::Few(_) | Repr::Inline(_) => None,
        }
    }

    // Fields.

    /// The value of a field.
    #[inline]
    pub fn get(&self, field: &[u8]) -> Option<Element<'_>> {
        match self.view() {
            View::Listpack(listpack) => listpack.find_value(field),
            View::Table(table) => {
                table.get(hash(field), field).map(|field| Element::Bytes(field.value()))
            }
            View::Few(fields) => {
                few::find(fields, field).map(|field| Element::Bytes(field.value()))
            }
            View::Inline(inline) => inline.find_value(field),
        }
    }

    /// Whether there is such a field.
    #[inline]
    pub fn contains(&self, field: &[u8]) -> bool {
        match self.view() {
            View::Listpack(listpack) => listpack.find(field, 2).is_some(),
            View::Table(table) => table.get(hash(field), field).is_some(),
            View::Few(fields) => few::find(fields, field).is_some(),
            View::Inline(inline) => inline.find_value(field).is_some(),
        }
    }

    /// Sets a field, which does not expire then; true if it is new.
    #[inline]
    pub fn set(&mut self, field: &[u8], value: &[u8], limits: &HashLimits) -> bool {
        if let Repr::Listpack(listpack) = &mut self.repr {
            if allows(limits, listpack, field, value) {
                if let Some(mut cursor) = listpack.find_mut(field, 2) {
                    cursor.move_next();
                    cursor.replace(value);
                    return false;
                }
                self.append(field, value, limits);
                return true;
            }
            self.become_table(1);
        }
        if let Some(few) = self.few_for(field, value) {
            return few.set(field, value, None);
        }
        let table = match &mut self.repr {
            Repr::Table(table) => table,
            Repr::Listpack(_) => unreachable!("converted above"),
            Repr::Inline(_) => only_shown(),
            Repr::Few(_) | Repr::Timed(_) => return self.timed().set(field, value, None),
        };
        let hash = hash(field);
        if let Some(mut slot) = table.occupied(hash, field) {
            slot.update(|item| item.set_value(value));
            return false;
        }
        insert_absent(table, hash, field, value);
        true
    }

    /// Sets a field unless it exists; true if it did not.
    #[inline]
    pub fn set_if_absent(&mut self, field: &[u8], value: &[u8], limits: &HashLimits) -> bool {
        self.modify(field, limits, |old| if old.is_some() { Err(()) } else { Ok(value) }).is_ok()
    }

    /// Sets a field to what `change` makes of its present value; nothing happens if it fails.
    /// Returns whether the field is new; one that expires goes on to. One search does for both,
    /// except in a small hash that has to become a table.
    #[inline]
    pub fn modify<V: AsRef<[u8]>, E>(
        &mut self,
        field: &[u8],
        limits: &HashLimits,
        change: impl FnOnce(Option<Element<'_>>) -> Result<V, E>,
    ) -> Result<bool, E> {
        match &mut self.repr {
            Repr::Listpack(listpack) => {
                let found = listpack.find_mut(field, 2);
                let is_new = found.is_none();
                match found {
                    Some(mut cursor) => {
                        cursor.move_next();
                        let value = change(cursor.element())?;
                        let value = value.as_ref();
                        if value.len() <= limits.max_listpack_value {
                            cursor.replace(value);
                        } else {
                            self.set(field, value, limits);
                        }
                    }
                    None => {
                        let value = change(None)?;
                        let value = value.as_ref();
                        if allows(limits, listpack, field, value) {
                            self.append(field, value, limits);
                        } else {
                            self.set(field, value, limits);
                        }
                    }
                }
                Ok(is_new)
            }
            Repr::Few(few) => {
                let found = few::find(few.fields(), field);
                let (is_new, expiry) = (found.is_none(), found.and_then(Field::expiry));
                let value = change(found.map(|found| Element::Bytes(found.value())))?;
                match expiry {
                    Some(expiry) => self.set_timed(field, value.as_ref(), expiry),
                    None => self.set(field, value.as_ref(), limits),
                };
                Ok(is_new)
            }
            Repr::Table(_) | Repr::Timed(_) => {
                let table = self.table_mut().expect("it is one");
                let hash = hash(field);
                if let Some(mut slot) = table.occupied(hash, field) {
                    let value = change(Some(Element::Bytes(slot.get().value())))?;
                    slot.update(|item| item.set_value(value.as_ref()));
                    return Ok(false);
                }
                let value = change(None)?;
                insert_absent(table, hash, field, value.as_ref());
                Ok(true)
            }
            Repr::Inline(_) => only_shown(),
        }
    }

    /// Removes a field after `read` has seen its value; `None` if there is none.
    #[inline]
    pub fn remove_with<R>(
        &mut self,
        field: &[u8],
        read: impl FnOnce(Element<'_>) -> R,
    ) -> Option<R> {
        match &mut self.repr {
            Repr::Listpack(listpack) => {
                let mut cursor = listpack.find_mut(field, 2)?;
                cursor.move_next();
                let result = cursor.element().map(read);
                cursor.move_prev();
                cursor.delete(2);
                result
            }
            Repr::Table(table) => {
                let hash = hash(field);
                let item = table.occupied(hash, field)?.remove_hashed(hash);
                Some(read(Element::Bytes(item.value())))
            }
            Repr::Few(few) => Some(read(Element::Bytes(few.remove(field)?.value()))),
            Repr::Timed(timed) => Some(read(Element::Bytes(timed.remove(field)?.value()))),
            Repr::Inline(_) => only_shown(),
        }
    }

    /// Removes a field; false if there is none.
    #[inline]
    pub fn remove(&mut self, field: &[u8]) -> bool {
        self.remove_with(field, |_| ()).is_some()
    }

    // Random fields.

    /// A field chosen at random, each equally likely, with its value.
    #[inline]
    pub fn random(&self, rng: &mut Rng) -> Option<(Element<'_>, Element<'_>)> {
        if self.is_empty() {
            return None;
        }
        match self.view() {
            View::Listpack(listpack) => {
                let mut iter = listpack.iter_at(2 * rng.index(self.len()) as i64)?;
                Some((iter.next()?, iter.next()?))
            }
            View::Table(table) => table.sample(|| rng.next_u64()).map(as_pair),
            View::Few(fields) => fields.get(rng.index(fields.len())).map(as_pair),
            View::Inline(inline) => inline.pairs().nth(rng.index(inline.count())),
        }
    }

    /// Calls `visit` with `count` different fields chosen at random, or with all if there are not
    /// more. Every selection is equally likely; its order is not random.
    pub fn sample_distinct(
        &self,
        count: usize,
        rng: &mut Rng,
        mut visit: impl FnMut(Element<'_>, Element<'_>),
    ) {
        let len = self.len();
        // With few of many it is faster to draw again when a field comes twice.
        if let View::Table(table) = self.view()
            && count < len / 4
        {
            let mut seen = HashSet::with_capacity(count);
            while seen.len() < count {
                let Some(item) = table.sample(|| rng.next_u64()) else { return };
                if seen.insert(item.key().as_ptr()) {
                    visit(Element::Bytes(item.key()), Element::Bytes(item.value()));
                }
            }
            return;
        }
        select(self.iter(), count, len, rng, |(field, value)| visit(field, value));
    }

    /// Calls `visit` with a field chosen at random, `count` times; fields may come repeatedly.
    pub fn sample_repeated(
        &self,
        count: usize,
        rng: &mut Rng,
        mut visit: impl FnMut(Element<'_>, Element<'_>),
    ) {
        let listed: Vec<_> = match self.view() {
            View::Listpack(listpack) if count > 1 => listpack.pairs().collect(),
            View::Inline(inline) if count > 1 => inline.pairs().collect(),
            _ => Vec::new(),
        };
        for _ in 0..count {
            let pair = match listed.len() {
                0 => self.random(rng),
                len => Some(listed[rng.index(len)]),
            };
            let Some((field, value)) = pair else { return };
            visit(field, value);
        }
    }

    // Iteration.

    /// All fields with their values, in no particular order.
    #[inline]
    pub fn iter(&self) -> impl Iterator<Item = (Element<'_>, Element<'_>)> {
        match self.view() {
            View::Listpack(listpack) => Either::First(listpack.pairs()),
            View::Table(table) => Either::Second(table.iter().map(as_pair)),
            View::Few(fields) => Either::Third(fields.iter().map(as_pair)),
            View::Inline(inline) => Either::Fourth(inline.pairs()),
        }
    }

    /// One step of HSCAN: visits the fields at `cursor` (0 at first) until about `count` have been
    /// seen, and returns the cursor to go on with, 0 at the end.
    ///
    /// A field that stays in the hash from the first step to the last is visited at least once, and
    /// exactly once unless the hash changes its encoding meanwhile. A listpack is visited in one
    /// step.
    pub fn scan(
        &self,
        cursor: u64,
        count: usize,
        mut visit: impl FnMut(Element<'_>, Element<'_>),
    ) -> u64 {
        match self.view() {
            View::Listpack(listpack) => {
                listpack.pairs().for_each(|(field, value)| visit(field, value));
                0
            }
            View::Table(table) => scan_table::<Field, Salted>(table, cursor, count, |item| {
                visit(Element::Bytes(item.key()), Element::Bytes(item.value()));
            }),
            View::Few(fields) => {
                fields.iter().map(as_pair).for_each(|(field, value)| visit(field, value));
                0
            }
            View::Inline(inline) => {
                inline.pairs().for_each(|(field, value)| visit(field, value));
                0
            }
        }
    }

    // In the block of its key.

    /// What the owner of a key has to know to keep the hash in the key's block with its fields;
    /// `None` if it is too big for that or empty.
    pub fn extent(&self) -> Option<Extent> {
        match &self.repr {
            Repr::Listpack(listpack) if listpack.bytes_len() <= 2 * inline::MAX_BYTES => {
                Extent::new(Form::Pairs, listpack.count() / 2, listpack.bare_len()?)
            }
            _ => None,
        }
    }

    /// The same as it is best written, without the fields if they are in a list
    /// ([`crate::field_names`]).
    pub fn pack(&self) -> Option<Packing> {
        let extent = self.extent()?;
        let with_names = || {
            let Repr::Listpack(listpack) = &self.repr else { return None };
            let mut fields = Vec::with_capacity(extent.len());
            listpack.bare().step_by(2).for_each(|field| fields.extend_from_slice(field));
            let names = Names::of(&fields)?;
            Packing::of_values(names, listpack.count() / 2, extent.len() - fields.len())
        };
        let packing = if field_names::is_enabled() { with_names() } else { None };
        Some(packing.unwrap_or_else(|| extent.into()))
    }

    /// Writes the elements, to be shown by [`Hash::show`].
    ///
    /// # Panics
    /// If the packing is that of another hash, or has another length than `to`.
    pub fn write_inline(&self, packing: Packing, to: &mut [MaybeUninit<u8>]) {
        let Repr::Listpack(listpack) = &self.repr else { return };
        match packing.begin(to) {
            (to, false) => write_bare(listpack.bare(), to),
            (to, true) => write_bare(listpack.bare().skip(1).step_by(2), to),
        }
    }

    /// The hash that lies there, to be read. A clone of it has a block of its own.
    #[inline]
    pub fn show(inline: Inline) -> ManuallyDrop<Self> {
        ManuallyDrop::new(Self { repr: Repr::Inline(inline) })
    }

    // Conversion.

    /// Adds a field known to be absent to a listpack that allows it, and converts if it was one too
    /// many.
    #[inline]
    fn append(&mut self, field: &[u8], value: &[u8], limits: &HashLimits) {
        let Repr::Listpack(listpack) = &mut self.repr else { unreachable!("asked of a listpack") };
        listpack.push_back(field);
        listpack.push_back(value);
        if listpack.count() / 2 > limits.max_listpack_entries {
            self.become_table(0);
        }
    }

    /// Changes to a table with room for `more` fields.
    #[cold]
    fn become_table(&mut self, more: usize) {
        let mut table = Box::new(Watched::with_capacity(self.len() + more));
        for (field, value) in self.iter() {
            field.with_bytes(|field| {
                value.with_bytes(|value| insert_absent(&mut table, hash(field), field, value));
            });
        }
        self.repr = Repr::Table(table);
    }
}

/// Whether a listpack may take a field with this value, as far as their lengths go.
#[inline]
fn allows(limits: &HashLimits, listpack: &Listpack, field: &[u8], value: &[u8]) -> bool {
    field.len() <= limits.max_listpack_value
        && value.len() <= limits.max_listpack_value
        && listpack.has_room_for(field.len() + value.len())
}

/// Panics. Nothing gives a hash out for changes that lies in the block of its key.
#[cold]
fn only_shown() -> ! {
    unreachable!("a hash was changed in the block of its key")
}

#[inline]
fn as_pair(item: &Field) -> (Element<'_>, Element<'_>) {
    (Element::Bytes(item.key()), Element::Bytes(item.value()))
}

#[inline]
fn insert_absent(table: &mut Watched<Field>, hash: u64, field: &[u8], value: &[u8]) {
    table.insert_absent(hash, Field::new(field, value));
}

impl Clone for Hash {
    fn clone(&self) -> Self {
        let repr = match &self.repr {
            Repr::Listpack(listpack) => Repr::Listpack(listpack.clone()),
            Repr::Table(table) => {
                let mut copy = Box::new(Watched::with_capacity(table.len()));
                for item in table.iter() {
                    insert_absent(&mut copy, hash(item.key()), item.key(), item.value());
                }
                Repr::Table(copy)
            }
            Repr::Few(few) => Repr::Few(Box::new(few.duplicate())),
            Repr::Timed(timed) => Repr::Timed(timed.duplicate()),
            Repr::Inline(inline) => Repr::Listpack(inline.to_listpack()),
        };
        Self { repr }
    }
}

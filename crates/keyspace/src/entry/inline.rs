//! Small collections whose elements lie in the entry.
//!
//! ```text
//!  word │ klen u8 │ extent 3 B │ [copy] │ [expiry] │ key │ elements
//! ```
//!
//! A hash of five fields with 95 bytes of names, values and lengths and a key of 16 bytes is one
//! block of 128 bytes. With a block of its own it would be 40 and 128. The elements are those of
//! [`structs::inline`].
#![allow(unsafe_code)]

use super::*;
use std::mem::MaybeUninit;
use structs::inline::Inline;

/// The longest key of an entry with a collection in it.
pub(crate) const MAX_KEY: usize = u8::MAX as usize;

/// Where the extent stands.
const EXTENT: usize = 5;

/// Returns whether an entry with this word has its collection in its own block.
#[inline]
pub(super) fn is_inline(word: u32) -> bool {
    // No collection but such a one is wide.
    word & (WIDE | COLD) == WIDE && word & 15 << 24 > (Kind::HeapString as u32) << 24
}

impl Entry {
    /// Returns whether the value is a collection whose elements lie in the entry.
    #[inline]
    pub fn is_inline(&self) -> bool {
        is_inline(self.word())
    }

    /// Returns whether the value has to be made ready before it is changed
    /// ([`crate::StripeData::ready`]): it has a copy, or lies in the entry.
    #[inline]
    pub fn needs_preparation(&self) -> bool {
        let word = self.word();
        word & (COPIED | WIDE) != 0 && (self.is_copied() || is_inline(word))
    }

    /// Returns what is known of the elements, if they lie in the entry.
    #[inline]
    pub(super) fn extent(&self) -> Option<Extent> {
        // SAFETY: such an entry has the extent there.
        self.is_inline()
            .then(|| Extent::from_bytes(unsafe { self.at(EXTENT).cast::<[u8; 3]>().read() }))
    }

    /// Returns the elements, if they lie in the entry.
    #[inline]
    pub(super) fn shown(&self) -> Option<Inline> {
        let word = self.word();
        if !is_inline(word) {
            return None;
        }
        // SAFETY: such an entry has the extent there, and the elements behind the key. They do not
        // change: the entry is replaced instead.
        unsafe {
            let extent = Extent::from_bytes(self.at(EXTENT).cast::<[u8; 3]>().read());
            let at = self.at(Entry::key_offset(word) + self.at(4).read() as usize);
            Some(Inline::new(NonNull::new_unchecked(at), extent))
        }
    }

    /// Gives up what the elements refer to, if they lie in the entry. Out of line: strings are
    /// dropped far more often.
    ///
    /// # Safety
    /// Nothing may look at the elements any more.
    #[cold]
    #[inline(never)]
    pub(super) unsafe fn give_up_elements(&self) {
        if let Some(elements) = self.shown() {
            // SAFETY: the caller's contract.
            unsafe { elements.give_up() };
        }
    }

    /// Creates an entry with a collection, which lies in it if it is small.
    pub(crate) fn new_collection<T: Object>(
        key: &[u8],
        value: T,
        expiry: Option<Millis>,
        access: u32,
    ) -> Entry {
        match Entry::enclosing(key, T::KIND, &value, expiry, access) {
            Some(entry) => entry,
            None => Entry::new_object(key, value, expiry, access),
        }
    }

    /// Creates an entry with a copy of a collection in it, if it is small.
    fn enclosing(
        key: &[u8],
        kind: Kind,
        value: &dyn Collection,
        expiry: Option<Millis>,
        access: u32,
    ) -> Option<Entry> {
        let packing = if key.len() <= MAX_KEY { value.pack()? } else { return None };
        let extent = packing.extent();
        let entry = Entry::with_extent(key, kind, extent, expiry, access, None);
        value.write_inline(packing, entry.elements_mut(extent));
        Some(entry)
    }

    /// Allocates an entry for elements that are yet to be written, with a copy at a location.
    fn with_extent(
        key: &[u8],
        kind: Kind,
        extent: Extent,
        expiry: Option<Millis>,
        access: u32,
        copy: Option<ColdLocation>,
    ) -> Entry {
        let (is_copied, value_len) = (copy.is_some(), extent.len());
        let shape = Shape { is_inline: true, is_copied, value_len, ..Entry::plain(kind, key) };
        let entry = Entry::allocate(shape, key, expiry, access);
        entry.write_copy(copy);
        // SAFETY: an entry of this shape has the extent there.
        unsafe { entry.at(EXTENT).cast::<[u8; 3]>().write(extent.to_bytes()) };
        entry
    }

    /// Returns where the elements of a new entry are to be written.
    #[allow(clippy::mut_from_ref, reason = "the entry is new, and nothing else refers to it")]
    fn elements_mut(&self, extent: Extent) -> &mut [MaybeUninit<u8>] {
        let word = self.word();
        // SAFETY: the block has room for so many bytes behind the key.
        unsafe {
            let at = self.at(Entry::key_offset(word) + self.key_len(word));
            std::slice::from_raw_parts_mut(at.cast(), extent.len())
        }
    }

    /// Returns the same elements in another entry.
    pub(super) fn rebuilt_inline(
        &self,
        key: &[u8],
        expiry: Option<Millis>,
        access: u32,
        copy: Option<ColdLocation>,
    ) -> Entry {
        let collection = self.collection().expect("the elements are those of a collection");
        let extent = self.extent().filter(|_| key.len() <= MAX_KEY);
        let Some(extent) = extent else {
            return collection.duplicate().into_open_entry(key, expiry, access).with_copy(copy);
        };
        let new = Entry::with_extent(key, self.kind(), extent, expiry, access, copy);
        // SAFETY: this entry has as many bytes behind its key.
        let elements = unsafe {
            let at = self.at(Entry::key_offset(self.word()) + self.key_len(self.word()));
            std::slice::from_raw_parts(at.cast_const().cast(), extent.len())
        };
        new.elements_mut(extent).copy_from_slice(elements);
        self.shown().expect("they are in the entry").copied();
        new
    }

    /// Gives a collection that lies in the entry a block of its own, so that it can be changed. The
    /// entry moves, and has no copy afterwards.
    pub(crate) fn open(&mut self) {
        let value = match self.collection() {
            Some(collection) if self.is_inline() => collection.duplicate(),
            _ => return,
        };
        *self = value.into_open_entry(self.key(), self.expiry(), self.access());
    }

    /// Returns whether [`Entry::enclose`] would do something.
    pub fn can_be_enclosed(&self) -> bool {
        let has_extent = |value: &dyn Collection| value.extent().is_some();
        self.key().len() <= MAX_KEY && self.open_collection().is_some_and(has_extent)
    }

    /// Returns the collection, if it does not lie in the entry and may do so by its kind.
    fn open_collection(&self) -> Option<&dyn Collection> {
        if self.is_cold() || self.noted_time().is_some() {
            return None;
        }
        self.collection_apart()
    }

    /// Takes a small collection into the entry, which moves. Does nothing if it cannot.
    pub(crate) fn enclose(&mut self) {
        let Some(collection) = self.open_collection() else { return };
        let (expiry, access) = (self.expiry(), self.access());
        let new = Entry::enclosing(self.key(), self.kind(), collection, expiry, access);
        if let Some(new) = new {
            let copy = self.take_copy();
            *self = new.with_copy(copy);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use structs::hash::HashLimits;
    use structs::list::{End, List, ListLimits};

    fn hash(fields: u32) -> Hash {
        let mut hash = Hash::new();
        for number in 0..fields {
            let (field, value) = (format!("field{number}"), format!("value{number:06}"));
            hash.set(field.as_bytes(), value.as_bytes(), &HashLimits::default());
        }
        hash
    }

    fn assert_same(entry: &Entry, key: &[u8], expiry: Option<Millis>, model: &Hash) {
        assert_eq!((entry.key(), entry.expiry(), entry.access()), (key, expiry, 7));
        let found = entry.view::<Hash>().unwrap();
        assert_eq!(found.len(), model.len());
        for (field, value) in model.iter() {
            assert_eq!(found.get(&field.to_vec()), Some(value));
        }
        assert_eq!(entry.encoding(), "listpack");
        assert_eq!(entry.elements(), model.len());
    }

    #[test]
    fn a_small_hash_is_one_block_through_all_changes_of_its_entry() {
        let model = hash(5);
        let key = b"key:000000000012";
        let mut entry = Entry::new(key, model.clone().into(), None, 7);
        assert!(entry.is_inline());
        assert_eq!((entry.own_bytes(), entry.memory_usage()), (128, 128));
        assert_same(&entry, key, None, &model);
        entry.set_expiry(Some(Millis(5)));
        assert_same(&entry, key, Some(Millis(5)), &model);
        entry.set_expiry(Some(Millis(6)));
        let entry = entry.rekeyed(b"other");
        assert!(entry.is_inline());
        assert_same(&entry, b"other", Some(Millis(6)), &model);
        let mut entry = entry.rekeyed(&[b'k'; 256]);
        assert!(!entry.is_inline(), "its key is too long");
        assert_same(&entry, &[b'k'; 256], Some(Millis(6)), &model);
        entry.enclose();
        assert!(!entry.is_inline());
        let mut entry = entry.rekeyed(b"short");
        entry.enclose();
        assert!(entry.is_inline());
        entry.relocate(|_, _| true);
        assert_same(&entry, b"short", Some(Millis(6)), &model);
        entry.open();
        assert!(!entry.is_inline());
        assert_same(&entry, b"short", Some(Millis(6)), &model);
        assert!(entry.object_mut::<Hash>().unwrap().remove(b"field1"));
        entry.enclose();
        assert_eq!(entry.view::<Hash>().unwrap().len(), 4);
    }

    #[test]
    fn what_is_large_or_a_table_stays_apart() {
        assert!(!Entry::new(b"key", hash(200).into(), None, 0).is_inline());
        assert!(!Entry::new(b"key", hash(600).into(), None, 0).is_inline());
        assert!(!Entry::new_object(b"key", hash(5), None, 0).is_inline());
        let mut timed = hash(3);
        timed.set_expiry(b"field1", Some(1000));
        let mut entry = Entry::new(b"key", timed.into(), None, 0);
        entry.enclose();
        assert!(!entry.is_inline());
        assert!(!Entry::new_string(b"key", &[b'x'; 300], None, 0).is_inline());
    }

    #[test]
    #[should_panic(expected = "changed in the block of its key")]
    fn nothing_is_changed_in_the_entry() {
        let mut list = List::new();
        list.push(End::Left, b"x", &ListLimits::default());
        let _ = Entry::new(b"key", list.into(), None, 0).object_mut::<List>();
    }
}

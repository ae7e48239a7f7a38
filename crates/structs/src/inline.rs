//! Small collections that have no block of their own.
//!
//! The owner of a key stores their elements in the block that has the key, and three bytes about
//! them ([`Extent`]). Nothing is left out that the value needs and nothing is there twice: no
//! pointer, no capacity, no header, no end byte.
//!
//! ```text
//!   pairs      field │ value │ field …     of a hash, without backlens (listpack/compact.rs)
//!   values     list u16 │ value │ value …  of a hash whose fields are in a list (field_names.rs)
//!   entries    entry │ entry …             of a list, a set or a sorted set: a listpack's
//!   integers   i16, i32 or i64 …           of a set: an intset's
//! ```
//!
//! Such a value is only read. To be changed it is copied out ([`Clone`] of the collection), and it
//! is put back into its key's block when it has not been changed for a while: see
//! `docs/internals/keyspace.md`.
//!
//! [`Inline`] is what a collection has in memory while it is read from another block: an address
//! and the extent. `Hash::show` and its like make a collection of it.
#![allow(unsafe_code)] // Holds the address of bytes that another block owns.

use crate::field_names::Names;
use crate::intset::{Ints, Intset};
use crate::listpack::{self, Compact, Element, Listpack, Run};
use std::mem::{ManuallyDrop, MaybeUninit};
use std::ptr::NonNull;

/// The most bytes of elements that are kept in the block of a key. Beyond it the bytes saved are
/// few in a hundred, and copying the value in and out costs more.
pub const MAX_BYTES: usize = 1536;

/// The bits of [`Extent::to_bytes`] that hold the length.
const LEN_BITS: u32 = 11;
const _: () = assert!(MAX_BYTES < 1 << LEN_BITS);

/// How the elements lie.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub(crate) enum Form {
    /// Pairs without backlens.
    Pairs = 0,
    /// Entries of a listpack.
    Entries = 1,
    /// Integers of two bytes.
    Ints2 = 2,
    /// Integers of four bytes.
    Ints4 = 3,
    /// Integers of eight bytes.
    Ints8 = 4,
    /// The number of a list of names, and values without backlens.
    Values = 5,
}

/// Bytes of the number of a list.
const LIST: usize = size_of::<u16>();

impl Form {
    /// The form of integers of so many bytes.
    pub(crate) fn of_width(width: usize) -> Form {
        match width {
            2 => Form::Ints2,
            4 => Form::Ints4,
            _ => Form::Ints8,
        }
    }
}

/// What has to be known of the elements beside their bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Extent {
    len: u16,
    count: u8,
    form: Form,
}

impl Extent {
    /// `None` if there are too many bytes or elements, or none.
    pub(crate) fn new(form: Form, count: usize, len: usize) -> Option<Extent> {
        let count = u8::try_from(count).ok().filter(|&count| count > 0)?;
        (len <= MAX_BYTES).then_some(Extent { len: len as u16, count, form })
    }

    /// That of a listpack's entries.
    pub(crate) fn of_listpack(listpack: &Listpack) -> Option<Extent> {
        Extent::new(Form::Entries, listpack.count(), listpack.entries().len())
    }

    /// Number of bytes that the elements take.
    #[inline]
    #[expect(clippy::len_without_is_empty, reason = "an extent is never empty")]
    pub fn len(self) -> usize {
        usize::from(self.len)
    }

    /// The extent in three bytes.
    #[inline]
    pub fn to_bytes(self) -> [u8; 3] {
        let [low, high] = (self.len | (self.form as u16) << LEN_BITS).to_le_bytes();
        [self.count, low, high]
    }

    /// The extent that [`Extent::to_bytes`] gave these bytes for.
    ///
    /// # Panics
    /// If it did not.
    #[inline]
    pub fn from_bytes([count, low, high]: [u8; 3]) -> Extent {
        let bits = u16::from_le_bytes([low, high]);
        let form = match bits >> LEN_BITS {
            0 => Form::Pairs,
            1 => Form::Entries,
            2 => Form::Ints2,
            3 => Form::Ints4,
            4 => Form::Ints8,
            5 => Form::Values,
            _ => panic!("an inline collection has an unknown form"),
        };
        Extent { len: bits & ((1 << LEN_BITS) - 1), count, form }
    }
}

/// What is to be written into the block of a key.
pub struct Packing {
    extent: Extent,
    names: Option<Names>,
}

impl Packing {
    /// Values of so many bytes whose fields are in a list.
    pub(crate) fn of_values(names: Names, count: usize, len: usize) -> Option<Packing> {
        let extent = Extent::new(Form::Values, count, LIST + len)?;
        Some(Packing { extent, names: Some(names) })
    }

    /// What has to be known of the elements.
    pub fn extent(&self) -> Extent {
        self.extent
    }

    /// Writes the number of the list, if there is one, which belongs to the block then. Returns the
    /// room for the elements, and whether there was a list.
    pub(crate) fn begin(self, to: &mut [MaybeUninit<u8>]) -> (&mut [MaybeUninit<u8>], bool) {
        assert_eq!(to.len(), self.extent.len());
        let Some(names) = self.names else { return (to, false) };
        let (list, values) = to.split_at_mut(LIST);
        list.write_copy_of_slice(&names.into_id().to_le_bytes());
        (values, true)
    }
}

impl From<Extent> for Packing {
    fn from(extent: Extent) -> Packing {
        Packing { extent, names: None }
    }
}

/// Elements in a block that belongs to another value.
#[derive(Clone, Copy)]
pub struct Inline {
    at: NonNull<u8>,
    len: u16,
    count: u8,
    form: Form,
}

// SAFETY: it only leads to bytes that do not change as long as it is used.
unsafe impl Send for Inline {}
// SAFETY: as above.
unsafe impl Sync for Inline {}

impl Inline {
    /// # Safety
    /// At `at` there must be what a collection has written whose extent this is
    /// (`Hash::write_inline` and its like). It must stay there, unchanged, as long as the result or
    /// what is made of it is used.
    #[inline]
    pub unsafe fn new(at: NonNull<u8>, extent: Extent) -> Inline {
        let Extent { len, count, form } = extent;
        Inline { at, len, count, form }
    }

    /// Number of elements; a pair counts as two, but for a hash as one.
    #[inline]
    pub(crate) fn count(&self) -> usize {
        usize::from(self.count)
    }

    #[inline]
    fn end(&self) -> *const u8 {
        // SAFETY: the elements end behind `len` bytes, which are there.
        unsafe { self.at.as_ptr().cast_const().add(usize::from(self.len)) }
    }

    /// The pairs of a hash.
    #[inline]
    pub(crate) fn pairs(&self) -> Compact<'_> {
        if let Some(names) = self.names() {
            // SAFETY: the form says what is there, and the block has a reference to the list.
            return unsafe {
                Compact::apart(names.start(), self.at.as_ptr().add(LIST), self.end())
            };
        }
        assert!(self.form == Form::Pairs, "these elements are those of a hash");
        // SAFETY: the form says what is there.
        unsafe { Compact::new(self.at.as_ptr(), self.end()) }
    }

    /// The value of a field of a hash.
    #[inline]
    pub(crate) fn find_value(&self, field: &[u8]) -> Option<Element<'_>> {
        let at = self.at.as_ptr().cast_const();
        if let Some(names) = self.names() {
            let (fields, count) = (names.start(), self.count());
            // SAFETY: the form says what is there, and the block has a reference to the list.
            return unsafe { listpack::find_value_apart(fields, at.add(LIST), count, field) };
        }
        assert!(self.form == Form::Pairs, "these elements are those of a hash");
        // SAFETY: the form says what is there.
        unsafe { listpack::find_value(at, self.end(), field) }
    }

    /// The block's reference to a list of names, which stays the block's.
    #[inline]
    fn names(&self) -> Option<ManuallyDrop<Names>> {
        // SAFETY: the form says that the number is there. The block has the reference.
        (self.form == Form::Values).then(|| unsafe {
            let id = u16::from_le_bytes(self.at.cast::<[u8; LIST]>().read());
            ManuallyDrop::new(Names::from_id(id))
        })
    }

    /// Tells that the bytes are in one more block, so that both can be given up.
    pub fn copied(&self) {
        if let Some(names) = self.names() {
            std::mem::forget(Names::clone(&names));
        }
    }

    /// Gives up what the elements refer to.
    ///
    /// # Safety
    /// Nothing may look at these elements any more.
    pub unsafe fn give_up(self) {
        if let Some(names) = self.names() {
            drop(ManuallyDrop::into_inner(names));
        }
    }

    /// The entries of a list, a set or a sorted set.
    #[inline]
    pub(crate) fn entries(&self) -> Run<'_> {
        assert!(self.form == Form::Entries, "these elements are entries");
        // SAFETY: the form says what is there.
        unsafe { Run::new(self.at.as_ptr(), self.end(), self.count.into()) }
    }

    /// The integers of a set, if it is one of integers.
    #[inline]
    pub(crate) fn ints(&self) -> Option<Ints<'_>> {
        let width = match self.form {
            Form::Ints2 => 2,
            Form::Ints4 => 4,
            Form::Ints8 => 8,
            Form::Pairs | Form::Entries | Form::Values => return None,
        };
        // SAFETY: the form says what is there.
        Some(unsafe { Ints::new(self.at.as_ptr(), self.count(), width) })
    }

    /// The elements as a listpack.
    pub(crate) fn to_listpack(self) -> Listpack {
        let len = usize::from(self.len);
        let of_pairs = |len| Listpack::from_compact(self.pairs(), len, u16::from(self.count) * 2);
        match self.form {
            Form::Pairs => of_pairs(len),
            Form::Values => {
                of_pairs(len - LIST + self.names().map_or(0, |names| names.bytes().len()))
            }
            // SAFETY: the form says what is there.
            Form::Entries => unsafe { Listpack::from_entries(self.at, len, self.count.into()) },
            _ => panic!("integers are no listpack"),
        }
    }

    /// The integers as an intset.
    pub(crate) fn to_intset(self) -> Option<Intset> {
        self.ints().map(Intset::from_ints)
    }
}

/// Copies the elements of a collection to where they are to lie.
///
/// # Panics
/// If there is more or less room.
pub(crate) fn copy(elements: &[u8], to: &mut [MaybeUninit<u8>]) {
    assert_eq!(elements.len(), to.len());
    // SAFETY: there is room, and what is borrowed exclusively does not overlap.
    unsafe { to.as_mut_ptr().cast::<u8>().copy_from_nonoverlapping(elements.as_ptr(), to.len()) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::hash::{Hash, HashContents, HashLimits};
    use crate::list::{End, List, ListLimits};
    use crate::set::{Set, SetContents, SetLimits};
    use crate::zset::{Zset, ZsetContents, ZsetLimits};
    use proptest::prelude::*;

    /// Writes a collection and calls `check` with what is shown of the bytes.
    macro_rules! shown {
        ($type:ident, $value:expr, $check:expr) => {
            if let Some(extent) = $value.extent() {
                let extent = Extent::from_bytes(extent.to_bytes());
                // Elements may lie at any address.
                let mut bytes = vec![MaybeUninit::uninit(); extent.len() + 1];
                $value.write_inline(&mut bytes[1..]);
                let at = NonNull::from(&mut bytes[1..]).cast();
                // SAFETY: the bytes have just been written, and outlive what is shown of them.
                let shown = $type::show(unsafe { Inline::new(at, extent) });
                $check(&*shown);
                $check(&(*shown).clone());
            }
        };
    }

    /// Does the same for a hash as it is packed. Returns whether its fields were in a list.
    fn show_hash(hash: &Hash, check: impl Fn(&Hash)) -> bool {
        let Some(packing) = hash.pack() else { return false };
        let extent = Extent::from_bytes(packing.extent().to_bytes());
        let mut bytes = vec![MaybeUninit::uninit(); extent.len() + 1];
        hash.write_inline(packing, &mut bytes[1..]);
        let again = bytes.clone();
        // SAFETY: the bytes have just been written, and outlive what is shown of them.
        let [first, second] = [&bytes, &again]
            .map(|bytes| unsafe { Inline::new(NonNull::from(&bytes[1..]).cast(), extent) });
        first.copied();
        // SAFETY: nothing is shown of it any more.
        unsafe { first.give_up() };
        let shown = Hash::show(second);
        check(&shown);
        check(&(*shown).clone());
        // SAFETY: as above.
        unsafe { second.give_up() };
        extent.form == Form::Values
    }

    #[test]
    fn fields_that_hashes_share_take_no_room() {
        let limits = HashLimits::default();
        let mut hash = Hash::new();
        for number in 0..5 {
            hash.set(format!("shared-field{number}").as_bytes(), b"value", &limits);
        }
        hash.set(b"12345", b"678", &limits);
        let check = |shown: &Hash| {
            assert_eq!(shown.get(b"12345"), hash.get(b"12345"));
            assert_eq!(hash_bytes(shown), hash_bytes(&hash));
        };
        let mut packings = (0..1 << 20).filter_map(|_| hash.pack());
        let packing = packings.find(|packing| packing.extent().form == Form::Values);
        let packing = packing.expect("there is a list at last");
        assert_eq!(packing.extent().len(), LIST + 5 * 6 + 2);
        assert!(show_hash(&hash, check), "the packing has a reference to the list");
    }

    fn hash_bytes(hash: &Hash) -> Vec<u8> {
        let HashContents::Listpack(bytes) = hash.contents() else { panic!("it is no listpack") };
        bytes.into_owned()
    }

    fn set_bytes(set: &Set) -> Vec<u8> {
        match set.contents() {
            SetContents::Intset(bytes) | SetContents::Listpack(bytes) => bytes.into_owned(),
            SetContents::Table(_) => panic!("it is a table"),
        }
    }

    fn zset_bytes(zset: &Zset) -> Vec<u8> {
        let ZsetContents::Listpack(bytes) = zset.contents() else { panic!("it is no listpack") };
        bytes.into_owned()
    }

    fn config() -> ProptestConfig {
        ProptestConfig { failure_persistence: None, ..ProptestConfig::default() }
    }

    fn words() -> impl Strategy<Value = Vec<Vec<u8>>> {
        let word = prop_oneof![
            4 => proptest::collection::vec(any::<u8>(), 0..6),
            4 => any::<i16>().prop_map(|number| number.to_string().into_bytes()),
            2 => any::<i64>().prop_map(|number| number.to_string().into_bytes()),
            1 => proptest::collection::vec(any::<u8>(), 60..140),
        ];
        proptest::collection::vec(word, 1..if cfg!(miri) { 8 } else { 150 })
    }

    proptest! {
        #![proptest_config(config())]

        #[test]
        fn hashes_are_shown_as_they_are(words in words()) {
            let limits = HashLimits { max_listpack_value: 200, ..HashLimits::default() };
            let mut hash = Hash::new();
            words.iter().for_each(|word| { hash.set(word, &[word, &b"v"[..]].concat(), &limits); });
            let pairs = |hash: &Hash| -> Vec<_> {
                hash.iter().map(|(field, value)| (field.to_vec(), value.to_vec())).collect()
            };
            let check = |shown: &Hash| {
                assert_eq!(pairs(shown), pairs(&hash));
                assert_eq!((shown.len(), shown.is_empty()), (hash.len(), false));
                for word in &words {
                    assert_eq!(shown.get(word), hash.get(word));
                    assert_eq!(shown.expiry(word), Some(None));
                }
                assert!(!shown.contains(b"not there"));
                assert_eq!(hash_bytes(shown), hash_bytes(&hash));
            };
            // Its fields get a list when they have been met a few times.
            for _ in 0..10 {
                show_hash(&hash, check);
            }
            crate::field_names::collect();
        }

        #[test]
        fn lists_are_shown_as_they_are(words in words(), index in 0usize..150) {
            let mut list = List::new();
            words.iter().for_each(|word| list.push(End::Right, word, &ListLimits::default()));
            shown!(List, list, |shown: &List| {
                assert!(shown.iter().eq(list.iter()));
                assert!(shown.iter_back_from(index).eq(list.iter_back_from(index)));
                assert!(shown.iter_from(index).eq(list.iter_from(index)));
                assert_eq!(shown.peek(End::Right), list.peek(End::Right));
                assert_eq!(shown.len(), list.len());
                assert!(shown.chunks().eq(list.chunks()));
                assert_eq!(shown.chunk(0), list.chunk(0));
            });
        }

        #[test]
        fn sets_are_shown_as_they_are(words in words(), only_ints: bool) {
            let limits = SetLimits { max_listpack_value: 200, ..SetLimits::default() };
            let mut set = Set::empty();
            let is_int = |word: &[u8]| crate::numbers::parse_i64(word).is_some();
            for word in words.iter().filter(|word| !only_ints || is_int(word)) {
                set.insert(word, &limits);
            }
            shown!(Set, set, |shown: &Set| {
                assert!(shown.iter().eq(set.iter()));
                assert_eq!((shown.len(), shown.encoding()), (set.len(), set.encoding()));
                for word in &words {
                    assert_eq!(shown.contains(word), set.contains(word));
                }
                assert_eq!(set_bytes(shown), set_bytes(&set));
            });
        }

        #[test]
        fn sorted_sets_are_shown_as_they_are(
            words in words(),
            from in 0usize..100,
            to in 0usize..150,
        ) {
            let limits = ZsetLimits { max_listpack_value: 200, ..ZsetLimits::default() };
            let mut zset = Zset::new();
            for (at, word) in words.iter().enumerate() {
                zset.insert(word, at as f64 * 1.5, &limits);
            }
            shown!(Zset, zset, |shown: &Zset| {
                assert!(shown.range(from..to).eq(zset.range(from..to)));
                assert!(shown.range(from..to).rev().eq(zset.range(from..to).rev()));
                assert_eq!(shown.len(), zset.len());
                for word in &words {
                    assert_eq!(shown.score(word), zset.score(word));
                    assert_eq!(shown.rank(word), zset.rank(word));
                }
                assert_eq!(zset_bytes(shown), zset_bytes(&zset));
            });
        }
    }

    #[test]
    fn what_is_too_big_or_empty_has_no_extent() {
        assert!(List::new().extent().is_none());
        assert!(Set::empty().extent().is_none());
        let (mut list, mut hash) = (List::new(), Hash::new());
        list.push(End::Left, &[b'x'; MAX_BYTES], &ListLimits::default());
        assert!(list.extent().is_none());
        let limits = HashLimits { max_listpack_value: 1000, ..HashLimits::default() };
        hash.set(b"field", &[b'x'; 126], &limits);
        assert!(hash.extent().is_none(), "its backlen has two bytes");
        hash.set(b"field", &[b'x'; 125], &limits);
        assert!(hash.extent().is_some());
        for number in 0..256u32 {
            hash.set(&number.to_le_bytes(), b"", &limits);
        }
        assert!(hash.extent().is_none(), "there are more fields than a byte counts");
    }
}

//! Redis's intset: a sorted array of integers, all as wide as the widest needs.
//!
//! Small sets of integers live here; RDB files and DUMP payloads hold the very bytes. One
//! allocation, reached by one pointer:
//!
//! ```text
//!   handle ─▶ | capacity u64 | width u32 (2, 4 or 8) | length u32 | integer | integer | … | room |
//!                            └────────────────── the intset ─────────────────────────┘
//! ```
//!
//! Everything behind `capacity` is little endian and is the serialized form. The width only ever
//! grows, as in Redis. Integers are searched by [`Ints`], which need not lie in an intset.
//!
//! Cost: lookup O(log n), insertion and removal O(n) moves, bounded by the caller's limit on n.
#![allow(unsafe_code)] // Owns raw memory and views it as slices of three integer types.

/// Evaluates an expression with the type alias `W` standing for the set's integer type.
macro_rules! with_word {
    ($width:expr, $W:ident => $body:expr) => {
        match $width {
            2 => {
                type $W = i16;
                $body
            }
            4 => {
                type $W = i32;
                $body
            }
            _ => {
                type $W = i64;
                $body
            }
        }
    };
}

mod ints;

pub use ints::Ints;

use crate::listpack::Malformed;
use crate::size_class::block_size;
use std::alloc::{Layout, alloc, dealloc, handle_alloc_error, realloc};
use std::ptr::NonNull;

/// A set of integers; see the module's documentation.
pub struct Intset {
    memory: NonNull<Head>,
}

#[repr(C, align(8))]
struct Head {
    /// Bytes for integers.
    capacity: u64,
    width: u32,
    length: u32,
}

const HEAD: usize = size_of::<Head>();
/// The part of the head that is serialized.
const HEADER: usize = 8;
const _: () = assert!(HEAD == 16 && size_of::<Option<Intset>>() == size_of::<usize>());

// SAFETY: the allocation is owned and plain integers.
unsafe impl Send for Intset {}
// SAFETY: a shared intset is only read.
unsafe impl Sync for Intset {}

/// One of the three integer types.
trait Word: Copy {
    fn to_int(self) -> i64;
    fn from_int(value: i64) -> Self;
}

macro_rules! word {
    ($($type:ty),*) => {$(
        impl Word for $type {
            #[inline(always)]
            fn to_int(self) -> i64 {
                Self::from_le(self) as i64
            }
            #[inline(always)]
            fn from_int(value: i64) -> Self {
                (value as $type).to_le()
            }
        }
    )*};
}

word!(i16, i32, i64);

/// Bytes the smallest type for `value` has.
#[inline]
fn width_of(value: i64) -> usize {
    if i16::try_from(value).is_ok() {
        2
    } else if i32::try_from(value).is_ok() {
        4
    } else {
        8
    }
}

fn layout(capacity: usize) -> Layout {
    Layout::from_size_align(HEAD + capacity, align_of::<Head>()).expect("an intset's size")
}

impl Default for Intset {
    fn default() -> Self {
        Self::new()
    }
}

impl Intset {
    /// An empty set.
    pub fn new() -> Self {
        Self::allocate(16, 2)
    }

    fn allocate(capacity: usize, width: usize) -> Self {
        let layout = layout(capacity);
        // SAFETY: the layout is not empty and has room and alignment for the head.
        unsafe {
            let Some(memory) = NonNull::new(alloc(layout).cast::<Head>()) else {
                handle_alloc_error(layout)
            };
            let width = (width as u32).to_le();
            memory.write(Head { capacity: capacity as u64, width, length: 0 });
            Self { memory }
        }
    }

    /// Takes a set from bytes of any origin; all of it is checked. An empty set is malformed.
    pub fn from_bytes(bytes: &[u8]) -> Result<Self, Malformed> {
        let (header, integers) = bytes.split_first_chunk::<HEADER>().ok_or(Malformed)?;
        let [a, b, c, d, length @ ..] = *header;
        let width = u32::from_le_bytes([a, b, c, d]) as usize;
        let length = u32::from_le_bytes(length) as usize;
        if !matches!(width, 2 | 4 | 8) || length == 0 || integers.len() / width != length {
            return Err(Malformed);
        }
        if integers.len() % width != 0 {
            return Err(Malformed);
        }
        let set = Self::from_integers(width, length, integers);
        if with_word!(width, W => set.words::<W>().is_sorted_by(|a, b| a.to_int() < b.to_int())) {
            Ok(set)
        } else {
            Err(Malformed)
        }
    }

    /// Copies `length` integers of `width` bytes each.
    fn from_integers(width: usize, length: usize, integers: &[u8]) -> Self {
        let mut set = Self::allocate(integers.len().max(16), width);
        // SAFETY: the new allocation has room for the integers, and their number is as stated.
        unsafe {
            std::ptr::copy_nonoverlapping(integers.as_ptr(), set.integers(), integers.len());
            set.set_len(length);
        }
        set
    }

    #[inline]
    fn head(&self) -> &Head {
        // SAFETY: the head is written at allocation.
        unsafe { self.memory.as_ref() }
    }

    /// The integers, to be read.
    #[inline]
    pub fn ints(&self) -> Ints<'_> {
        // SAFETY: the integers are there, ascending.
        unsafe { Ints::new(self.integers(), self.len(), self.width()) }
    }

    /// Copies integers.
    pub(crate) fn from_ints(ints: Ints<'_>) -> Self {
        Self::from_integers(ints.width(), ints.len(), ints.as_bytes())
    }

    /// Where the integers are.
    #[inline]
    fn integers(&self) -> *mut u8 {
        // SAFETY: just behind the head, inside the allocation.
        unsafe { self.memory.as_ptr().cast::<u8>().add(HEAD) }
    }

    /// # Safety
    /// The first `length` integers must be initialized.
    #[inline]
    unsafe fn set_len(&mut self, length: usize) {
        // SAFETY: the head is written at allocation, and ours.
        unsafe { self.memory.as_mut().length = (length as u32).to_le() };
    }

    #[inline]
    fn width(&self) -> usize {
        u32::from_le(self.head().width) as usize
    }

    /// Number of members.
    #[inline]
    pub fn len(&self) -> usize {
        u32::from_le(self.head().length) as usize
    }

    /// Whether there is no member.
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The integers as they are stored.
    ///
    /// `W` must be the set's own type; a narrower one is harmless, for the assertion's sake.
    #[inline]
    fn words<W: Word>(&self) -> &[W] {
        assert!(size_of::<W>() <= self.width());
        // SAFETY: `length` integers of at least this size are initialized and aligned.
        unsafe { std::slice::from_raw_parts(self.integers().cast::<W>(), self.len()) }
    }

    /// The serialized form, as in RDB files.
    pub fn as_bytes(&self) -> &[u8] {
        let len = HEADER + self.len() * self.width();
        // SAFETY: width, length and the integers lie next to each other and are initialized.
        unsafe { std::slice::from_raw_parts(self.integers().sub(HEADER).cast_const(), len) }
    }

    /// Bytes allocated.
    pub fn allocated_bytes(&self) -> usize {
        block_size(HEAD + self.head().capacity as usize)
    }

    /// Whether `value` is a member.
    #[inline]
    pub fn contains(&self, value: i64) -> bool {
        self.ints().contains(value)
    }

    /// Adds `value`; false if it was there.
    pub fn insert(&mut self, value: i64) -> bool {
        if width_of(value) > self.width() {
            self.widen(width_of(value));
        }
        let Err(index) = self.ints().search(value) else { return false };
        let (len, width) = (self.len(), self.width());
        self.reserve((len + 1) * width);
        // SAFETY: there is room for one more; the tail moves up by one, and the gap is written.
        unsafe {
            let at = self.integers().add(index * width);
            std::ptr::copy(at, at.add(width), (len - index) * width);
            with_word!(width, W => at.cast::<W>().write(W::from_int(value)));
            self.set_len(len + 1);
        }
        true
    }

    /// Removes `value`; false if it was not there.
    pub fn remove(&mut self, value: i64) -> bool {
        match self.ints().search(value) {
            Ok(index) => {
                self.remove_at(index);
                true
            }
            Err(_) => false,
        }
    }

    /// Removes the member at `index`, in ascending order, and returns it.
    ///
    /// # Panics
    /// If there is no such member.
    pub fn remove_at(&mut self, index: usize) -> i64 {
        let value = self.get(index).expect("the index is below the length");
        let (len, width) = (self.len(), self.width());
        // SAFETY: the integers behind `index` move down by one.
        unsafe {
            let at = self.integers().add(index * width);
            std::ptr::copy(at.add(width), at, (len - index - 1) * width);
            self.set_len(len - 1);
        }
        let capacity = self.head().capacity as usize;
        if capacity >= 128 && (len - 1) * width * 4 < capacity {
            self.reallocate(capacity / 2);
        }
        value
    }

    /// The member at `index`, in ascending order.
    #[inline]
    pub fn get(&self, index: usize) -> Option<i64> {
        self.ints().get(index)
    }

    /// The smallest member.
    pub fn min(&self) -> Option<i64> {
        self.get(0)
    }

    /// The largest member.
    pub fn max(&self) -> Option<i64> {
        self.get(self.len().checked_sub(1)?)
    }

    /// The members, ascending.
    pub fn iter(&self) -> impl DoubleEndedIterator<Item = i64> + ExactSizeIterator + '_ {
        self.ints().iter()
    }

    /// Re-encodes every integer with `width` bytes, more than now.
    fn widen(&mut self, width: usize) {
        let (len, old_width) = (self.len(), self.width());
        // Room for the one that made it necessary as well.
        let mut wider = Self::allocate(((len + 1) * width).next_multiple_of(16), width);
        for index in 0..len {
            let value = with_word!(old_width, W => self.words::<W>()[index].to_int());
            // SAFETY: the new allocation has room for `len` integers of the new width.
            unsafe {
                with_word!(width, W => {
                    wider.integers().cast::<W>().add(index).write(W::from_int(value))
                });
            }
        }
        // SAFETY: the loop has initialized them.
        unsafe { wider.set_len(len) };
        *self = wider;
    }

    /// Makes room for `bytes` of integers.
    #[inline]
    fn reserve(&mut self, bytes: usize) {
        let capacity = self.head().capacity as usize;
        if bytes > capacity {
            // A quarter more each time: few moves, little waste.
            self.reallocate((bytes + bytes / 4).next_multiple_of(16));
        }
    }

    #[cold]
    fn reallocate(&mut self, capacity: usize) {
        let (old, new) = (layout(self.head().capacity as usize), layout(capacity));
        // SAFETY: pointer and layout are those of the present allocation, and the new size is not
        // zero; callers leave room for the integers that are there.
        unsafe {
            let moved = realloc(self.memory.as_ptr().cast(), old, new.size());
            let Some(memory) = NonNull::new(moved.cast::<Head>()) else { handle_alloc_error(new) };
            self.memory = memory;
            self.memory.as_mut().capacity = capacity as u64;
        }
    }
}

impl Clone for Intset {
    fn clone(&self) -> Self {
        Self::from_integers(self.width(), self.len(), &self.as_bytes()[HEADER..])
    }
}

impl Drop for Intset {
    fn drop(&mut self) {
        // SAFETY: allocated with this layout, and not used after.
        unsafe { dealloc(self.memory.as_ptr().cast(), layout(self.head().capacity as usize)) };
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::BTreeSet;

    fn check(set: &Intset, model: &BTreeSet<i64>) {
        assert_eq!(set.len(), model.len());
        assert!(set.iter().eq(model.iter().copied()));
        assert!(set.iter().rev().eq(model.iter().rev().copied()));
        assert_eq!(set.min(), model.first().copied());
        assert_eq!(set.max(), model.last().copied());
        assert!(set.allocated_bytes() <= 160 + 5 * set.as_bytes().len());
    }

    fn integer() -> impl Strategy<Value = i64> {
        prop_oneof![
            8 => -20i64..20,
            2 => -100_000i64..100_000,
            1 => any::<i64>(),
            1 => prop::sample::select(vec![-32768, 32767, -32769, 32768, i32::MIN as i64, i64::MIN])
        ]
    }

    proptest! {
        #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

        #[test]
        fn behaves_like_a_set(
            ops in proptest::collection::vec((0..4, integer()), 0..if cfg!(miri) { 20 } else { 200 }),
        ) {
            let (mut set, mut model) = (Intset::new(), BTreeSet::new());
            for (op, value) in ops {
                match op {
                    0 | 1 => assert_eq!(set.insert(value), model.insert(value)),
                    2 => assert_eq!(set.remove(value), model.remove(&value)),
                    _ => assert_eq!(set.contains(value), model.contains(&value)),
                }
                check(&set, &model);
                let copy = Intset::from_bytes(set.as_bytes());
                assert_eq!(copy.is_ok(), !set.is_empty());
                set = copy.unwrap_or(set).clone();
            }
        }

        #[test]
        fn never_accepts_what_it_cannot_walk(bytes in proptest::collection::vec(any::<u8>(), 0..80)) {
            let mut framed = [2u32 << (bytes.len() % 3), (bytes.len() / 2) as u32]
                .into_iter().flat_map(u32::to_le_bytes).collect::<Vec<_>>();
            framed.extend(&bytes);
            for bytes in [bytes, framed] {
                if let Ok(mut set) = Intset::from_bytes(&bytes) {
                    let members: BTreeSet<i64> = set.iter().collect();
                    check(&set, &members);
                    assert_eq!(set.as_bytes(), bytes);
                    set.insert(0);
                    assert!(set.contains(0));
                }
            }
        }
    }

    #[test]
    fn bytes_are_those_of_redis() {
        let mut set = Intset::new();
        for value in [3, -1, 2, 1, 2] {
            set.insert(value);
        }
        assert_eq!(set.as_bytes(), b"\x02\0\0\0\x04\0\0\0\xFF\xFF\x01\0\x02\0\x03\0");
        set.insert(70_000);
        assert_eq!(
            set.as_bytes(),
            b"\x04\0\0\0\x05\0\0\0\xFF\xFF\xFF\xFF\x01\0\0\0\x02\0\0\0\x03\0\0\0\x70\x11\x01\0"
        );
        // Removing the wide one does not make the others narrow again.
        set.remove(70_000);
        assert_eq!(set.as_bytes().len(), 8 + 4 * 4);
    }

    #[test]
    fn rejects_malformed_bytes() {
        for bytes in [
            &b""[..],
            b"\x02\0\0\0\0\0\0\0",
            b"\x02\0\0\0\x01\0\0\0",
            b"\x03\0\0\0\x01\0\0\0\x01\0\0",
            b"\x02\0\0\0\x02\0\0\0\x01\0\x01\0",
            b"\x02\0\0\0\x02\0\0\0\x02\0\x01\0",
            b"\x02\0\0\0\x01\0\0\0\x01\0\x01",
            b"\x02\0\0\0\xFF\xFF\xFF\xFF\x01\0",
        ] {
            assert!(Intset::from_bytes(bytes).is_err(), "{bytes:?}");
        }
    }
}

//! An entry: key, value, expiry and access bits in one block behind one pointer.
//!
//! ```text
//!  word (u32):  31 copied │ 30 cold │ 29 wide │ 28 expires │ 27-24 kind │ 23-0 access bits
//!
//!  a short string      word │ klen u8 │ vlen u8 │ [copy u64] │ [expiry i64] │ key │ value
//!  a longer one        word │ klen u32 │ vlen u32 │ [copy] │ [expiry] │ key │ value        (wide)
//!  number, big string  word │ klen u32 │ payload 8 B │ [copy] │ [expiry] │ key
//!  list, set, hash …   word │ klen u32 │ payload 16 B │ [copy] │ [expiry] │ key
//!  a small one         word │ klen u8 │ extent 3 B │ [copy] │ [expiry] │ key │ elements  (wide)
//! ```
//!
//! A small collection lies in the entry, without a header or an address ([`inline`]). It is only
//! read there: see [`StripeData::ready`](crate::StripeData::ready).
//!
//! A cold entry, whose value is not in RAM, has another layout ([`crate::cold`]). A *copied* entry
//! has its value in RAM and the location of the same value elsewhere (0 if the copy has been given
//! up).
//!
//! A 16-byte key with a 1-byte value takes a 24-byte block. A string value lies inside the entry
//! unless its own block wastes less (500 bytes: 544 instead of 640) or it is edited in place
//! (APPEND, SETBIT …). Numbers are stored as numbers, so INCR writes 8 bytes.
//!
//! Rejected: a separate value object (Redis's robj: 16 bytes and a cache miss more), a digest of
//! the key (the table's fingerprint suffices), and the expiry in the table only (one more miss for
//! each read of a volatile key).
#![allow(unsafe_code)]

mod change;
mod inline;
mod make;
mod string;
mod view;

pub(crate) use inline::MAX_KEY;
pub use string::StringRef;
pub use view::{CollectionView, Slots, View};

use crate::cold::{self, ColdLocation, ColdRef, Summary};
use crate::collection::Collection;
use crate::kind::{self, Kind, Object, Value, Whole};
use crate::memory::block_size;
use crate::types::{Key, Millis};
use rdb::module::Module;
use std::alloc::{Layout, alloc, dealloc, handle_alloc_error};
use std::mem::ManuallyDrop;
use std::ptr::NonNull;
use std::sync::atomic::{AtomicU32, Ordering::Relaxed};
use structs::hash::Hash;
use structs::heap_string::{self, HeapString};
use structs::inline::Extent;
use structs::table::{Item, in_order_of};

const EXPIRES: u32 = 1 << 28;
const WIDE: u32 = 1 << 29;
const COLD: u32 = kind::COLD << 24;
const COPIED: u32 = kind::COPIED << 24;
const ACCESS: u32 = (1 << 24) - 1;
/// Inline strings above this many bytes get their own block, whatever it wastes.
const INLINE_MAX: usize = 4096;

/// Bytes of a cold value of a module type that are taken for one element.
const MODULE_ELEMENT: usize = 32;

/// The offset of the key by the eight tag bits (kind, expires, wide, cold, copied).
const KEY_OFFSET: [u8; 256] = {
    let mut table = [0; 256];
    let mut tag = 0;
    while tag < 256 {
        let (kind, expires, wide) = (tag & 15, tag >> 4 & 1, tag >> 5 & 1);
        let copied = if tag & kind::COLD as usize == 0 { tag >> 7 } else { 0 };
        let header = if tag & kind::COLD as usize != 0 {
            if wide == 1 { 20 } else { 16 }
        } else if kind == Kind::InlineString as usize {
            if wide == 1 { 12 } else { 6 }
        } else if kind == Kind::Integer as usize || kind == Kind::HeapString as usize {
            16
        } else {
            if wide == 1 { 8 } else { 24 }
        };
        table[tag] = (header + 8 * expires + 8 * copied) as u8;
        tag += 1;
    }
    table
};

/// The entry. The module's documentation describes it.
#[repr(transparent)]
pub struct Entry(NonNull<u8>);

// SAFETY: it owns its block and its value, which are `Send`.
unsafe impl Send for Entry {}
// SAFETY: through `&self` only the access bits change, atomically.
unsafe impl Sync for Entry {}

// SAFETY: it is transparent over `NonNull<u8>`; nothing changes a key in place.
unsafe impl Item for Entry {
    const MAPS_ARRAYS: bool = true;
    #[inline]
    fn key(&self) -> &[u8] {
        Entry::key(self)
    }
}

/// The form of a new block.
#[derive(Clone, Copy)]
struct Shape {
    kind: Kind,
    wide: bool,
    is_cold: bool,
    is_copied: bool,
    is_inline: bool,
    key_len: usize,
    value_len: usize,
}

impl Shape {
    fn string(key_len: usize, value_len: usize, expires: bool) -> Shape {
        let wide = key_len > 255 || value_len > 255;
        let inline = Shape {
            kind: Kind::InlineString,
            wide,
            is_cold: false,
            is_copied: false,
            is_inline: false,
            key_len,
            value_len,
        };
        if value_len > INLINE_MAX {
            return Shape { kind: Kind::HeapString, ..inline };
        }
        if wide {
            let heap = Shape { kind: Kind::HeapString, ..inline };
            let apart = block_size(heap.size(expires)) + heap_string::block_for(value_len);
            // A second block costs a cache miss, so it has to save at least a sixteenth.
            if apart + apart / 16 < block_size(inline.size(expires)) {
                return heap;
            }
        }
        inline
    }
    fn tag(self, expires: bool) -> u32 {
        // Only inline strings and cold entries have a narrow form.
        let wide = self.wide && (self.is_cold || self.kind == Kind::InlineString) || self.is_inline;
        (self.kind as u32) << 24
            | if expires { EXPIRES } else { 0 }
            | if wide { WIDE } else { 0 }
            | if self.is_cold { COLD } else { 0 }
            | if self.is_copied { COPIED } else { 0 }
    }
    fn key_offset(self, expires: bool) -> usize {
        KEY_OFFSET[(self.tag(expires) >> 24) as usize] as usize
    }
    fn size(self, expires: bool) -> usize {
        let is_inline = self.kind == Kind::InlineString && !self.is_cold || self.is_inline;
        let value = if is_inline { self.value_len } else { 0 };
        self.key_offset(expires) + self.key_len + value
    }
}

fn layout(size: usize) -> Layout {
    Layout::from_size_align(block_size(size), 8).expect("an entry fits the address space")
}

impl Entry {
    /// # Safety
    /// `offset` must be within the block.
    #[inline]
    unsafe fn at(&self, offset: usize) -> *mut u8 {
        // SAFETY: the caller's contract.
        unsafe { self.0.as_ptr().add(offset) }
    }

    #[inline]
    fn payload<T>(&self) -> *mut T {
        // SAFETY: every kind with a payload has it at offset 8.
        unsafe { self.at(8).cast() }
    }

    #[inline]
    fn word(&self) -> u32 {
        // SAFETY: the word is initialised and aligned, and shared only as an atomic.
        unsafe { self.0.cast::<AtomicU32>().as_ref() }.load(Relaxed)
    }

    #[inline]
    fn is_narrow(word: u32) -> bool {
        word & (15 << 24 | WIDE) == 0
    }

    #[inline]
    fn key_offset(word: u32) -> usize {
        KEY_OFFSET[(word >> 24) as usize] as usize
    }

    #[inline]
    fn key_len(&self, word: u32) -> usize {
        // SAFETY: the length stands at offset 4 in one byte or in four; only a wide cold entry has
        // it behind its location.
        unsafe {
            if Entry::is_narrow(word) {
                self.at(4).read() as usize
            } else if word & (COLD | WIDE) == 0 {
                self.at(4).cast::<u32>().read() as usize
            } else if inline::is_inline(word) {
                self.at(4).read() as usize
            } else if word & COLD == 0 {
                self.at(4).cast::<u32>().read() as usize
            } else if word & WIDE == 0 {
                self.at(4).read() as usize
            } else {
                self.at(16).cast::<u32>().read() as usize
            }
        }
    }

    /// Returns the key.
    #[inline]
    pub fn key(&self) -> &[u8] {
        let word = self.word();
        // SAFETY: `key_len` bytes at `key_offset` are the key.
        unsafe { std::slice::from_raw_parts(self.at(Entry::key_offset(word)), self.key_len(word)) }
    }

    /// Returns the kind of the value.
    #[inline]
    pub fn kind(&self) -> Kind {
        Kind::from_number(self.word() >> 24 & 15)
    }

    /// Returns the kind of the value.
    ///
    /// # Panics
    /// If the entry is cold, so that nothing in RAM is taken for its value.
    #[inline]
    fn value_kind(&self) -> Kind {
        Kind::from_number(self.word() >> 24 & (15 | kind::COLD))
    }

    /// Returns whether the value is not in RAM. Everything that needs the value panics then, so
    /// callers check this first.
    #[inline]
    pub fn is_cold(&self) -> bool {
        self.word() & COLD != 0
    }

    /// Returns where the value is, if it is not in RAM.
    #[inline]
    pub fn cold(&self) -> Option<ColdRef> {
        if !self.is_cold() {
            return None;
        }
        // SAFETY: a cold entry has these fields.
        let (version, location) = unsafe { (self.at(6).read(), self.payload::<u64>().read()) };
        Some(ColdRef { version, location: ColdLocation(location) })
    }

    fn summary(&self) -> Summary {
        debug_assert!(self.is_cold(), "only cold entries have a summary");
        // SAFETY: a block has eight bytes at least.
        unsafe { Summary { size: self.at(5).read(), shape: self.at(7).read() } }
    }

    /// Returns where a copy of the value is, if the value is in RAM.
    #[inline]
    pub fn copy(&self) -> Option<ColdLocation> {
        // SAFETY: the entry has this field.
        let at = unsafe { self.copy_field()?.read_unaligned() };
        (at != 0).then_some(ColdLocation(at))
    }

    /// Returns whether the entry has a field for the location of a copy.
    #[inline]
    pub fn is_copied(&self) -> bool {
        self.word() & (COPIED | COLD) == COPIED
    }

    /// Returns the 8 bytes before key and expiry.
    #[inline]
    fn copy_field(&self) -> Option<*mut u64> {
        let word = self.word();
        let behind = if word & EXPIRES == 0 { 8 } else { 16 };
        // SAFETY: a copied entry has these bytes.
        self.is_copied().then(|| unsafe { self.at(Entry::key_offset(word) - behind).cast() })
    }

    fn write_copy(&self, copy: Option<ColdLocation>) {
        if let (Some(field), Some(ColdLocation(at))) = (self.copy_field(), copy) {
            // SAFETY: the entry has this field and is new.
            unsafe { field.write_unaligned(at) }
        }
    }

    /// Returns the copy, which does not belong to the entry any more.
    pub(crate) fn take_copy(&mut self) -> Option<ColdLocation> {
        let copy = self.copy();
        if let Some(field) = self.copy_field() {
            // SAFETY: the entry has this field and is borrowed exclusively.
            unsafe { field.write_unaligned(0) }
        }
        copy
    }

    /// Gives up the copy and the field for its location, because the value is about to change. The
    /// block may move.
    pub(crate) fn drop_copy(&mut self) {
        if !self.is_copied() {
            return;
        }
        if let Some(copy) = self.take_copy() {
            cold::release_copy(copy);
        }
        let old = std::mem::replace(self, Entry::placeholder());
        let (key, expiry, access) = (old.key().to_vec(), old.expiry(), old.access());
        *self = old.rebuilt_with(&key, expiry, access, None);
    }

    /// Returns the expiry.
    #[inline]
    pub fn expiry(&self) -> Option<Millis> {
        let word = self.word();
        if word & EXPIRES == 0 {
            return None;
        }
        // SAFETY: the expiry stands in the 8 bytes before the key.
        let at = unsafe { self.at(Entry::key_offset(word) - 8).cast::<i64>() };
        // SAFETY: as above.
        Some(Millis(unsafe { at.read_unaligned() }))
    }

    /// Returns whether the entry has expired.
    #[inline]
    pub fn is_expired(&self, now: Millis) -> bool {
        self.expiry().is_some_and(|at| at < now)
    }

    /// Returns the access bits ([`crate::access`]).
    #[inline]
    pub fn access(&self) -> u32 {
        self.word() & ACCESS
    }

    /// Sets the access bits.
    #[inline]
    pub fn set_access(&self, bits: u32) {
        let word = self.word() & !ACCESS | bits & ACCESS;
        // SAFETY: see `word`; the holder of the stripe's lock is the only writer.
        unsafe { self.0.cast::<AtomicU32>().as_ref() }.store(word, Relaxed);
    }

    /// Returns the value, if it is a string.
    #[inline(always)]
    pub fn string(&self) -> Option<StringRef<'_>> {
        let word = self.word();
        // SAFETY: each arm reads what its kind holds.
        unsafe {
            match Kind::from_number(word >> 24 & (15 | kind::COLD)) {
                Kind::InlineString => {
                    let start = Entry::key_offset(word) + self.key_len(word);
                    let len = self.inline_len(word);
                    Some(StringRef::Bytes(std::slice::from_raw_parts(self.at(start), len)))
                }
                Kind::Integer => Some(StringRef::Integer(self.payload::<i64>().read())),
                Kind::HeapString => Some(StringRef::Block(&*self.payload::<HeapString>())),
                _ => None,
            }
        }
    }

    #[inline]
    fn inline_len(&self, word: u32) -> usize {
        // SAFETY: only called for inline strings, which have the length here.
        unsafe {
            if word & WIDE == 0 {
                self.at(5).read() as usize
            } else {
                self.at(8).cast::<u32>().read() as usize
            }
        }
    }

    /// Returns the value, if it is a `T`.
    #[inline]
    pub fn object<T: Whole>(&self) -> Option<&T> {
        let is_one = self.value_kind() == T::KIND;
        assert!(!is_one || !self.is_inline(), "a value of this type has its own blocks");
        // SAFETY: an entry of `T`'s kind holds a `T`.
        is_one.then(|| unsafe { &*self.payload::<T>() })
    }

    /// Returns the value for changes, if it is a `T`.
    ///
    /// # Panics
    /// If the value lies in the entry ([`crate::StripeData::ready`]). In debug builds, if there is
    /// a copy, which would no longer be one.
    #[inline]
    pub fn object_mut<T: Object>(&mut self) -> Option<&mut T> {
        debug_assert!(self.copy().is_none(), "a value was changed of which there is a copy");
        self.payload_mut()
    }

    #[inline]
    fn payload_mut<T: Object>(&mut self) -> Option<&mut T> {
        let is_one = self.value_kind() == T::KIND;
        assert!(!is_one || !self.is_inline(), "a value was changed in the block of its key");
        // SAFETY: an entry of `T`'s kind that does not have its elements in it holds a `T`.
        is_one.then(|| unsafe { &mut *self.payload::<T>() })
    }

    /// Returns the value, if it is a hash in RAM with fields that expire.
    #[inline]
    pub(crate) fn timed_hash(&mut self) -> Option<&mut Hash> {
        if !Entry::may_be_timed(self.word()) {
            return None;
        }
        // The time noted there is no part of the value.
        self.payload_mut::<Hash>().filter(|hash| hash.is_timed())
    }

    /// Returns the time at which its stripe has listed it for expired fields.
    #[inline]
    pub(crate) fn noted_time(&self) -> Option<i64> {
        if !Entry::may_be_timed(self.word()) {
            return None;
        }
        // SAFETY: the entry holds a hash.
        unsafe { &*self.payload::<Hash>() }.noted_time()
    }

    /// Returns whether the value is a hash in RAM with a block of its own. Only such a hash has
    /// fields that expire.
    #[inline]
    fn may_be_timed(word: u32) -> bool {
        word & (15 << 24 | COLD | WIDE) == (Kind::Hash as u32) << 24
    }

    /// Forgets that time, because the stripe does not list the hash any more.
    pub(crate) fn forget_noted_time(&mut self) {
        if let Some(hash) = self.timed_hash() {
            hash.note_time(None);
        }
    }

    /// Returns the name of the type in replies of TYPE.
    pub fn type_name(&self) -> &'static str {
        match self.kind() {
            Kind::Module if self.is_cold() => self.summary().module_name(),
            Kind::Module => self.object::<Module>().map_or("module", |module| module.row().name),
            kind => kind.type_name(),
        }
    }

    /// Returns the name for OBJECT ENCODING.
    pub fn encoding(&self) -> &'static str {
        if self.is_cold() {
            return self.summary().encoding();
        }
        if let Some(collection) = self.collection() {
            return collection.encoding();
        }
        match self.kind() {
            Kind::Integer => "int",
            Kind::InlineString if self.would_be_embedded() => "embstr",
            _ => "raw",
        }
    }

    /// Returns whether Redis would store the string in the object itself, which OBJECT ENCODING
    /// shows as `embstr`. It would if header, expiry, key and value fit into two cache lines.
    fn would_be_embedded(&self) -> bool {
        let key_len = self.key().len();
        let key_header = if key_len < 32 { 2 } else { 4 };
        let expiry = if self.expiry().is_some() { 8 } else { 0 };
        let value_len = self.string().map_or(0, StringRef::len);
        9 + expiry + key_header + key_len + 4 + value_len <= 128
    }

    /// Returns the bytes of the entry's own block.
    pub fn own_bytes(&self) -> usize {
        let word = self.word();
        let value = if word >> 24 & (15 | kind::COLD) == Kind::InlineString as u32 {
            self.inline_len(word)
        } else {
            self.extent().map_or(0, Extent::len)
        };
        block_size(Entry::key_offset(word) + self.key_len(word) + value)
    }

    /// Returns the bytes of all its blocks in RAM, rounded as the allocator rounds them. Takes
    /// constant time, because collections count their bytes as they change; for a stream it takes
    /// time in proportion to its groups. Exact except for the names of a stream's groups and
    /// consumers, whose overhead is estimated. Shared data (a long string, a stream that is being
    /// copied) counts whole.
    pub fn memory_usage(&self) -> usize {
        if self.is_cold() {
            return self.own_bytes();
        }
        let apart = match self.collection() {
            Some(collection) => collection.allocated_bytes(),
            None => self.heap_string_ref().map_or(0, HeapString::allocated_bytes),
        };
        self.own_bytes() + apart
    }

    /// Returns the bytes of the value. For a cold entry it is an estimate of the bytes it would
    /// take.
    pub fn value_bytes(&self) -> usize {
        match self.cold() {
            Some(_) => self.summary().bytes(),
            None => {
                let inside = self.extent().map_or_else(|| self.string_len(), Extent::len);
                self.memory_usage() - self.own_bytes() + inside
            }
        }
    }

    fn heap_string_ref(&self) -> Option<&HeapString> {
        // SAFETY: an entry of this kind holds a `HeapString`.
        (self.value_kind() == Kind::HeapString).then(|| unsafe { &*self.payload::<HeapString>() })
    }

    /// Returns the number of elements of a collection, and 1 for a string. For a cold entry it is
    /// an estimate.
    pub fn elements(&self) -> usize {
        match self.cold() {
            Some(_) if self.kind() == Kind::Module => self.summary().bytes() / MODULE_ELEMENT,
            Some(_) => self.summary().elements(),
            None => self.collection().map_or(1, |collection| collection.len()),
        }
    }

    /// Returns the approximate number of deallocations that freeing it takes.
    pub fn free_effort(&self) -> usize {
        if self.is_cold() {
            return 1;
        }
        self.collection().map_or(1, |collection| collection.free_effort())
    }
}

impl Drop for Entry {
    fn drop(&mut self) {
        if let Some(cold) = self.cold() {
            cold::release(cold.location);
            // SAFETY: the value is not here, and the entry is not used any more.
            return unsafe { self.free_block() };
        }
        if let Some(copy) = self.copy() {
            cold::release_copy(copy);
        }
        // SAFETY: drops what the kind says the payload holds, once, and then its block.
        unsafe {
            match self.kind() {
                Kind::InlineString | Kind::Integer => {}
                Kind::HeapString => self.payload::<HeapString>().drop_in_place(),
                _ if self.is_inline() => self.give_up_elements(),
                kind => {
                    if let Some(value) = kind.collection(self.payload()) {
                        value.drop_in_place();
                    }
                }
            }
            self.free_block();
        }
    }
}

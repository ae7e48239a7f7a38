//! An entry: key, value, expiry and access bits in one block behind one pointer.
//!
//! ```text
//!  word (u32):  31 copied │ 30 cold │ 29 wide │ 28 expires │ 27-24 kind │ 23-0 access bits
//!
//!  a short string      word │ klen u8 │ vlen u8 │ [copy u64] │ [expiry i64] │ key │ value
//!  a longer one        word │ klen u32 │ vlen u32 │ [copy] │ [expiry] │ key │ value        (wide)
//!  number, big string  word │ klen u32 │ payload 8 B │ [copy] │ [expiry] │ key
//!  list, set, hash …   word │ klen u32 │ payload 16 B │ [copy] │ [expiry] │ key
//! ```
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

use crate::cold::{self, ColdLocation, ColdRef, Summary};
use crate::collection::Collection;
use crate::kind::{self, Kind, Object, Value};
use crate::memory::block_size;
use crate::types::{Key, Millis};
use rdb::module::Module;
use std::alloc::{Layout, alloc, dealloc, handle_alloc_error};
use std::mem::ManuallyDrop;
use std::ptr::NonNull;
use std::sync::atomic::{AtomicU32, Ordering::Relaxed};
use structs::hash::Hash;
use structs::heap_string::{self, HeapString};
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
            24
        };
        table[tag] = (header + 8 * expires + 8 * copied) as u8;
        tag += 1;
    }
    table
};

/// A string value as it is stored.
#[derive(Clone, Copy, Debug)]
pub enum StringRef<'a> {
    /// Bytes.
    Bytes(&'a [u8]),
    /// Bytes in their own block.
    Block(&'a HeapString),
    /// A number.
    Integer(i64),
}

impl<'a> StringRef<'a> {
    /// Returns the bytes, unless it is a number.
    #[inline]
    pub fn text(self) -> Option<&'a [u8]> {
        match self {
            StringRef::Bytes(bytes) => Some(bytes),
            StringRef::Block(block) => Some(block.as_slice()),
            StringRef::Integer(_) => None,
        }
    }

    /// Returns an owned string: another reference to a long one, a copy of others.
    pub fn to_heap_string(self) -> HeapString {
        match self {
            StringRef::Block(block) => block.clone(),
            _ => HeapString::from_bytes(self.bytes(&mut [0; structs::numbers::INT_MAX_LEN])),
        }
    }

    /// Returns the bytes. A number is written into `buf`.
    pub fn bytes<'b>(self, buf: &'b mut [u8; structs::numbers::INT_MAX_LEN]) -> &'b [u8]
    where
        'a: 'b,
    {
        match self {
            StringRef::Bytes(bytes) => bytes,
            StringRef::Block(block) => block.as_slice(),
            StringRef::Integer(number) => structs::numbers::format_i64(buf, number),
        }
    }

    /// Returns a copy of the bytes.
    pub fn to_vec(self) -> Vec<u8> {
        self.bytes(&mut [0; structs::numbers::INT_MAX_LEN]).to_vec()
    }

    /// Returns the length in bytes (STRLEN).
    #[inline]
    pub fn len(self) -> usize {
        match self {
            StringRef::Bytes(bytes) => bytes.len(),
            StringRef::Block(block) => block.len(),
            StringRef::Integer(number) => {
                usize::from(number < 0) + structs::numbers::decimal_len(number.unsigned_abs())
            }
        }
    }

    /// Returns whether it is the empty string.
    pub fn is_empty(self) -> bool {
        self.len() == 0
    }

    /// Returns the number that it is or spells, by the strict rule.
    pub fn integer(self) -> Option<i64> {
        match self {
            StringRef::Bytes(bytes) => structs::numbers::parse_i64(bytes),
            StringRef::Block(block) => structs::numbers::parse_i64(block.as_slice()),
            StringRef::Integer(number) => Some(number),
        }
    }
}

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
        let wide = self.wide && (self.is_cold || self.kind == Kind::InlineString);
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
        let is_inline = self.kind == Kind::InlineString && !self.is_cold;
        let value = if is_inline { self.value_len } else { 0 };
        self.key_offset(expires) + self.key_len + value
    }
}

fn layout(size: usize) -> Layout {
    Layout::from_size_align(block_size(size), 8).expect("an entry fits the address space")
}

impl Entry {
    // ---- making one -------------------------------------------------------------------------

    /// Creates a string. `value` is stored as a number if it spells one.
    pub fn new_string(key: &[u8], value: &[u8], expiry: Option<Millis>, access: u32) -> Entry {
        match structs::numbers::parse_i64(value) {
            Some(number) => Entry::new_integer(key, number, expiry, access),
            None => Entry::new_raw_string(key, value, expiry, access),
        }
    }

    /// Creates a string that stays text even if it spells a number (the result of INCRBYFLOAT).
    pub fn new_text(key: &[u8], value: &[u8], expiry: Option<Millis>, access: u32) -> Entry {
        Entry::new_raw_string(key, value, expiry, access)
    }

    fn new_raw_string(key: &[u8], value: &[u8], expiry: Option<Millis>, access: u32) -> Entry {
        Entry::new_copied_string(key, value, expiry, access, None)
    }

    /// Creates a string that is stored as text and has a copy at a location.
    pub(crate) fn new_copied_string(
        key: &[u8],
        value: &[u8],
        expiry: Option<Millis>,
        access: u32,
        copy: Option<ColdLocation>,
    ) -> Entry {
        let shape = Shape::string(key.len(), value.len(), expiry.is_some());
        let shape = Shape { is_copied: copy.is_some(), ..shape };
        let entry = Entry::allocate(shape, key, expiry, access);
        entry.write_copy(copy);
        if shape.kind == Kind::HeapString {
            let raw = HeapString::from_bytes(value).into_raw();
            // SAFETY: the payload of this kind is one pointer.
            unsafe { entry.payload::<NonNull<u8>>().write(raw) };
        } else {
            // SAFETY: `allocate` made room for the value behind the key.
            unsafe {
                let at = entry.at(shape.key_offset(expiry.is_some()) + key.len());
                at.copy_from_nonoverlapping(value.as_ptr(), value.len());
            }
        }
        entry
    }

    /// Creates a number.
    pub fn new_integer(key: &[u8], number: i64, expiry: Option<Millis>, access: u32) -> Entry {
        let entry = Entry::allocate(Entry::plain(Kind::Integer, key), key, expiry, access);
        // SAFETY: the payload of this kind is one i64.
        unsafe { entry.payload::<i64>().write(number) };
        entry
    }

    /// Creates a string in its own block.
    pub fn new_heap_string(
        key: &[u8],
        string: HeapString,
        expiry: Option<Millis>,
        access: u32,
    ) -> Entry {
        let entry = Entry::allocate(Entry::plain(Kind::HeapString, key), key, expiry, access);
        // SAFETY: the payload of this kind is one pointer.
        unsafe { entry.payload::<NonNull<u8>>().write(string.into_raw()) };
        entry
    }

    /// Creates a list, set, hash or sorted set.
    pub fn new_object<T: Object>(
        key: &[u8],
        value: T,
        expiry: Option<Millis>,
        access: u32,
    ) -> Entry {
        let entry = Entry::allocate(Entry::plain(T::KIND, key), key, expiry, access);
        // SAFETY: the payload of an object's kind has 16 bytes, aligned to 8.
        unsafe { entry.payload::<T>().write(value) };
        entry
    }

    /// Creates an entry with any value.
    pub fn new(key: &[u8], value: Value, expiry: Option<Millis>, access: u32) -> Entry {
        value.into_entry(key, expiry, access)
    }

    fn plain(kind: Kind, key: &[u8]) -> Shape {
        let key_len = key.len();
        Shape { kind, wide: false, is_cold: false, is_copied: false, key_len, value_len: 0 }
    }

    /// Returns the same entry without its value, which is stored at a location.
    ///
    /// # Panics
    /// If it is a number, which takes no more space than a location, or already cold.
    pub(crate) fn as_cold(&self, cold: ColdRef) -> Entry {
        let kind = self.value_kind();
        assert!(kind != Kind::Integer, "a number cannot be cold");
        let summary = match self.object::<Module>() {
            Some(module) => Summary::of_module(self.value_bytes(), module.row()),
            None => Summary::new(self.value_bytes(), self.encoding(), self.elements()),
        };
        cold::count();
        let new = Entry::new_cold(self.key(), kind, cold, summary, self.expiry(), self.access());
        new.set_credited(!self.is_copied());
        new
    }

    /// Returns whether the value of a cold entry was written after it had last been read back, so
    /// that its next use is at least the second one.
    pub fn is_credited(&self) -> bool {
        self.word() & (COPIED | COLD) == COPIED | COLD
    }

    fn set_credited(&self, is_credited: bool) {
        let word = if is_credited { self.word() | COPIED } else { self.word() & !COPIED };
        // SAFETY: see `word`; a cold entry's layout does not depend on this bit, and the caller is
        // the only writer.
        unsafe { self.0.cast::<AtomicU32>().as_ref() }.store(word, Relaxed);
    }

    /// Returns the same entry with a copy of its value at a location. The copy belongs to the entry
    /// from now on.
    pub(crate) fn with_copy(self, copy: Option<ColdLocation>) -> Entry {
        if copy.is_none() {
            return self;
        }
        let (key, expiry, access) = (self.key().to_vec(), self.expiry(), self.access());
        self.rebuilt_with(&key, expiry, access, copy)
    }

    fn string_len(&self) -> usize {
        if self.kind() == Kind::InlineString { self.string().map_or(0, StringRef::len) } else { 0 }
    }

    fn new_cold(
        key: &[u8],
        kind: Kind,
        cold: ColdRef,
        summary: Summary,
        expiry: Option<Millis>,
        access: u32,
    ) -> Entry {
        let wide = key.len() > 255;
        let shape = Shape { is_cold: true, wide, ..Entry::plain(kind, key) };
        let entry = Entry::allocate(shape, key, expiry, access);
        // SAFETY: these are the fields of a cold entry, all in front of its key.
        unsafe {
            entry.at(4).write(if wide { 0 } else { key.len() as u8 });
            entry.at(5).write(summary.size);
            entry.at(6).write(cold.version);
            entry.at(7).write(summary.shape);
            entry.payload::<u64>().write(cold.location.0);
            if wide {
                entry.at(16).cast::<u32>().write(key.len() as u32);
            }
        }
        entry
    }

    /// Allocates a block and writes everything but the value.
    #[inline]
    fn allocate(shape: Shape, key: &[u8], expiry: Option<Millis>, access: u32) -> Entry {
        assert!(key.len() <= u32::MAX as usize, "a key of more than 4 GiB");
        let expires = expiry.is_some();
        let layout = layout(shape.size(expires));
        let tag = shape.tag(expires);
        let offset = shape.key_offset(expires);
        // SAFETY: the layout is not empty, and every offset written is below its size.
        unsafe {
            let Some(at) = NonNull::new(alloc(layout)) else { handle_alloc_error(layout) };
            let entry = Entry(at);
            at.cast::<u32>().write(tag | access & ACCESS);
            if shape.is_cold {
                // The caller writes the rest.
            } else if shape.kind == Kind::InlineString && !shape.wide {
                entry.at(4).write(shape.key_len as u8);
                entry.at(5).write(shape.value_len as u8);
            } else {
                entry.at(4).cast::<u32>().write(shape.key_len as u32);
                if shape.kind == Kind::InlineString {
                    entry.at(8).cast::<u32>().write(shape.value_len as u32);
                }
            }
            if let Some(Millis(ms)) = expiry {
                entry.at(offset - 8).cast::<i64>().write_unaligned(ms);
            }
            entry.at(offset).copy_from_nonoverlapping(key.as_ptr(), key.len());
            entry
        }
    }

    // ---- the parts --------------------------------------------------------------------------

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
    #[inline]
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
    pub fn object<T: Object>(&self) -> Option<&T> {
        // SAFETY: an entry of `T`'s kind holds a `T`.
        (self.value_kind() == T::KIND).then(|| unsafe { &*self.payload::<T>() })
    }

    /// Returns the value for changes, if it is a `T`.
    ///
    /// # Panics
    /// In debug builds, if there is a copy, which would no longer be one.
    #[inline]
    pub fn object_mut<T: Object>(&mut self) -> Option<&mut T> {
        debug_assert!(self.copy().is_none(), "a value was changed of which there is a copy");
        self.payload_mut()
    }

    #[inline]
    fn payload_mut<T: Object>(&mut self) -> Option<&mut T> {
        // SAFETY: an entry of `T`'s kind holds a `T`.
        (self.value_kind() == T::KIND).then(|| unsafe { &mut *self.payload::<T>() })
    }

    /// Returns the value, if it is a hash in RAM with fields that expire.
    #[inline]
    pub(crate) fn timed_hash(&mut self) -> Option<&mut Hash> {
        if self.word() >> 24 & (15 | kind::COLD) != Kind::Hash as u32 {
            return None;
        }
        // The time noted there is no part of the value.
        self.payload_mut::<Hash>().filter(|hash| hash.is_timed())
    }

    /// Returns the time at which its stripe has listed it for expired fields.
    #[inline]
    pub(crate) fn noted_time(&self) -> Option<i64> {
        if self.word() >> 24 & (15 | kind::COLD) != Kind::Hash as u32 {
            return None;
        }
        self.object::<Hash>().and_then(Hash::noted_time)
    }

    /// Forgets that time, because the stripe does not list the hash any more.
    pub(crate) fn forget_noted_time(&mut self) {
        if let Some(hash) = self.timed_hash() {
            hash.note_time(None);
        }
    }

    /// Returns the value as a collection, for all types but the string.
    #[inline]
    pub fn collection(&self) -> Option<&dyn Collection> {
        // SAFETY: the payload holds what the kind says, as long as the entry is borrowed.
        self.value_kind().collection(self.payload()).map(|value| unsafe { &*value })
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
        let is_inline = word >> 24 & (15 | kind::COLD) == Kind::InlineString as u32;
        let value = if is_inline { self.inline_len(word) } else { 0 };
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
            None => self.memory_usage() - self.own_bytes() + self.string_len(),
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
            None => self.collection().map_or(1, Collection::len),
        }
    }

    /// Returns the approximate number of deallocations that freeing it takes.
    pub fn free_effort(&self) -> usize {
        if self.is_cold() {
            return 1;
        }
        self.collection().map_or(1, Collection::free_effort)
    }

    // ---- changing it ------------------------------------------------------------------------

    /// Overwrites the present string if `value` fits its block and the expiry may stay. Returns
    /// whether it did. The fast path of SET.
    #[inline]
    pub fn overwrite_string(&mut self, value: &[u8]) -> bool {
        let word = self.word();
        // A value with a copy gets another block, without a copy.
        if word >> 24 & (15 | kind::COLD | kind::COPIED) != Kind::InlineString as u32 {
            return self.kind() == Kind::Integer
                && structs::numbers::parse_i64(value).is_some_and(|n| self.overwrite_integer(n));
        }
        let key_len = self.key_len(word);
        let start = Entry::key_offset(word) + key_len;
        let old = self.inline_len(word);
        let wide = word & WIDE != 0;
        if value.len() != old {
            let fits = block_size(start + value.len()) == block_size(start + old);
            if !fits || wide != (key_len > 255 || value.len() > 255) {
                return false;
            }
        }
        if structs::numbers::parse_i64(value).is_some() {
            return false;
        }
        // SAFETY: the block has the size of `start + value.len()`, and the field is its length.
        unsafe {
            if wide {
                self.at(8).cast::<u32>().write(value.len() as u32);
            } else {
                self.at(5).write(value.len() as u8);
            }
            self.at(start).copy_from_nonoverlapping(value.as_ptr(), value.len());
        }
        true
    }

    /// Overwrites the present number. Returns `false` if the value is no number.
    #[inline]
    pub fn overwrite_integer(&mut self, number: i64) -> bool {
        let is_integer = self.kind() == Kind::Integer;
        if is_integer {
            // SAFETY: the payload of this kind is one i64.
            unsafe { self.payload::<i64>().write(number) };
        }
        is_integer
    }

    /// Returns the string in its own block, to edit it, or `None` if the value is no string.
    pub fn heap_string(&mut self) -> Option<&mut HeapString> {
        self.drop_copy();
        if self.value_kind() != Kind::HeapString {
            let bytes = self.string()?.to_vec();
            let string = HeapString::from_bytes(&bytes);
            let entry = Entry::new_heap_string(self.key(), string, self.expiry(), self.access());
            *self = entry;
        }
        // SAFETY: an entry of this kind holds a `HeapString`.
        Some(unsafe { &mut *self.payload::<HeapString>() })
    }

    /// Sets or clears the expiry. The block may move.
    pub fn set_expiry(&mut self, expiry: Option<Millis>) {
        match (self.expiry(), expiry) {
            (None, None) => {}
            (Some(_), Some(Millis(ms))) => {
                // SAFETY: the expiry stands in the 8 bytes before the key.
                unsafe {
                    let at = self.at(Entry::key_offset(self.word()) - 8).cast::<i64>();
                    at.write_unaligned(ms);
                }
            }
            _ => {
                let access = self.access();
                let old = std::mem::replace(self, Entry::placeholder());
                let key = old.key().to_vec();
                *self = old.rebuilt(&key, expiry, access);
            }
        }
    }

    /// Returns an entry that stands in for another one for a moment.
    fn placeholder() -> Entry {
        Entry::new_integer(b"", 0, None, 0)
    }

    /// Returns the same value under another key. The expiry stays.
    pub fn rekeyed(self, key: &[u8]) -> Entry {
        let (expiry, access) = (self.expiry(), self.access());
        if let Some(location) = self.location() {
            cold::renamed(location, Key::new(key).hash);
        }
        self.rebuilt(key, expiry, access)
    }

    /// Returns where the value is outside RAM, as the cold value or as a copy.
    pub(crate) fn location(&self) -> Option<ColdLocation> {
        self.cold().map(|cold| cold.location).or_else(|| self.copy())
    }

    /// Drops a cold entry whose location belongs to another entry now.
    pub(crate) fn forget_location(self) {
        assert!(self.is_cold(), "only cold entries have nothing else");
        cold::uncount();
        let this = ManuallyDrop::new(self);
        // SAFETY: the value is not here, and the entry is not used any more.
        unsafe { this.free_block() }
    }

    /// Sets the new location of a cold entry's value.
    pub(crate) fn set_cold_location(&mut self, location: ColdLocation) {
        assert!(self.is_cold(), "only cold entries have a location");
        // SAFETY: a cold entry has this field, and is borrowed exclusively.
        unsafe { self.payload::<u64>().write(location.0) }
    }

    fn rebuilt(mut self, key: &[u8], expiry: Option<Millis>, access: u32) -> Entry {
        let copy = self.take_copy();
        self.rebuilt_with(key, expiry, access, copy)
    }

    /// Returns its value in another block. Its present copy, if any, no longer belongs to it.
    fn rebuilt_with(
        mut self,
        key: &[u8],
        expiry: Option<Millis>,
        access: u32,
        copy: Option<ColdLocation>,
    ) -> Entry {
        if let Some(cold) = self.cold() {
            let new = Entry::new_cold(key, self.kind(), cold, self.summary(), expiry, access);
            new.set_credited(self.is_credited());
            let old = ManuallyDrop::new(self);
            // SAFETY: the old entry is gone, and its value belongs to the new one.
            unsafe { old.free_block() };
            return new;
        }
        match self.kind() {
            Kind::InlineString => {
                let bytes = self.string().map(StringRef::to_vec).unwrap_or_default();
                self.take_copy();
                Entry::new_copied_string(key, &bytes, expiry, access, copy)
            }
            kind => {
                let shape = Shape { is_copied: copy.is_some(), ..Entry::plain(kind, key) };
                let new = Entry::allocate(shape, key, expiry, access);
                new.write_copy(copy);
                let len = if kind.is_string() { 8 } else { 16 };
                let old = ManuallyDrop::new(self);
                // SAFETY: the payload moves to an entry of the same kind, and only the old block
                // is freed, not the value.
                unsafe {
                    new.payload::<u8>().copy_from_nonoverlapping(old.payload::<u8>(), len);
                    old.free_block();
                }
                new
            }
        }
    }

    /// Moves the entry to another block. A string's own block moves with it, and a collection is
    /// copied if `takes_along` returns true.
    pub(crate) fn relocate(&mut self, takes_along: impl Fn(&Entry, &dyn Collection) -> bool) {
        if !self.is_cold() {
            let fresh = self.collection().filter(|value| takes_along(self, *value));
            let again =
                |value: &dyn Collection| in_order_of(value.table_order(), || value.duplicate());
            if let Some(value) = fresh.map(again) {
                let copy = self.take_copy();
                let (key, expiry, access) = (self.key(), self.expiry(), self.access());
                *self = Entry::new(key, value, expiry, access).with_copy(copy);
                return;
            }
            if self.kind() == Kind::HeapString {
                // SAFETY: the payload of this kind is one string.
                unsafe { &mut *self.payload::<HeapString>() }.relocate();
            }
        }
        let layout = layout(self.own_bytes());
        // SAFETY: the block has this layout and holds no address of itself; its contents belong to
        // the new block from here on.
        unsafe {
            let Some(at) = NonNull::new(alloc(layout)) else { handle_alloc_error(layout) };
            at.copy_from_nonoverlapping(self.0, layout.size());
            dealloc(std::mem::replace(&mut self.0, at).as_ptr(), layout);
        }
    }

    /// Returns the own block of a string, unless it is shared.
    pub(crate) fn string_block(&self) -> Option<*const u8> {
        self.heap_string_ref()?.own_block()
    }

    /// Returns a copy under another key (COPY). A long string is shared.
    pub fn duplicate(&self, key: &[u8], expiry: Option<Millis>, access: u32) -> Entry {
        if let Some(collection) = self.collection() {
            return Entry::new(key, collection.duplicate(), expiry, access);
        }
        match self.string() {
            Some(StringRef::Block(block)) => {
                Entry::new_heap_string(key, block.clone(), expiry, access)
            }
            Some(StringRef::Integer(number)) => Entry::new_integer(key, number, expiry, access),
            Some(StringRef::Bytes(bytes)) => Entry::new_raw_string(key, bytes, expiry, access),
            None => unreachable!("a value is a string or a collection"),
        }
    }

    /// # Safety
    /// The entry must not be used afterwards, and its value must be dropped or moved.
    unsafe fn free_block(&self) {
        let size = self.own_bytes();
        // SAFETY: allocated with this layout.
        unsafe { dealloc(self.0.as_ptr(), layout(size)) };
    }

    /// Returns the block's address, for the index of expiring entries.
    pub(crate) fn address(&self) -> NonNull<u8> {
        self.0
    }

    /// Returns an alias of an entry, by its address.
    ///
    /// # Safety
    /// The entry must be alive, and the alias must not be dropped.
    pub(crate) unsafe fn alias(address: NonNull<u8>) -> ManuallyDrop<Entry> {
        ManuallyDrop::new(Entry(address))
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

//! Making entries.
#![allow(unsafe_code)]

use super::*;

impl Entry {
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

    pub(super) fn new_raw_string(
        key: &[u8],
        value: &[u8],
        expiry: Option<Millis>,
        access: u32,
    ) -> Entry {
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

    /// Creates a list, set, hash or sorted set that can be changed at once.
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

    pub(super) fn plain(kind: Kind, key: &[u8]) -> Shape {
        let key_len = key.len();
        Shape {
            kind,
            wide: false,
            is_cold: false,
            is_copied: false,
            is_inline: false,
            key_len,
            value_len: 0,
        }
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

    pub(super) fn set_credited(&self, is_credited: bool) {
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

    pub(super) fn string_len(&self) -> usize {
        if self.kind() == Kind::InlineString { self.string().map_or(0, StringRef::len) } else { 0 }
    }

    pub(super) fn new_cold(
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
    pub(super) fn allocate(shape: Shape, key: &[u8], expiry: Option<Millis>, access: u32) -> Entry {
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
            } else if shape.is_inline {
                // The caller writes the extent.
                entry.at(4).write(shape.key_len as u8);
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
}

//! Changing entries, in place or by another block.
#![allow(unsafe_code)]

use super::*;

impl Entry {
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
    pub(super) fn placeholder() -> Entry {
        Entry::new_integer(b"", 0, None, 0)
    }

    /// Returns the same value under another key. The expiry stays. A small collection is in the
    /// entry, which is another one in any case.
    pub fn rekeyed(self, key: &[u8]) -> Entry {
        let (expiry, access) = (self.expiry(), self.access());
        if let Some(location) = self.location() {
            cold::renamed(location, Key::new(key).hash);
        }
        let mut new = self.rebuilt(key, expiry, access);
        new.enclose();
        new
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

    pub(super) fn rebuilt(mut self, key: &[u8], expiry: Option<Millis>, access: u32) -> Entry {
        let copy = self.take_copy();
        self.rebuilt_with(key, expiry, access, copy)
    }

    /// Returns its value in another block. Its present copy, if any, no longer belongs to it.
    pub(super) fn rebuilt_with(
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
            _ if self.is_inline() => {
                self.take_copy();
                self.rebuilt_inline(key, expiry, access, copy)
            }
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
            let fresh = self.collection_apart().filter(|value| takes_along(self, *value));
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
    pub(super) unsafe fn free_block(&self) {
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

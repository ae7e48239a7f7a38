//! A growable byte string behind one pointer: the value of strings that do not fit an entry, and
//! what long replies and messages are made of.
//!
//! ```text
//!             ┌─────────┬──────────┬───────────────┐
//!   short     │ len u32 │ room u32 │ bytes …       │
//!             └─────────┴──────────┴───────────────┘
//!             ▲ the pointer
//!  ┌──────────┬─────────┬──────────┬───────────────┐
//!  │ count u64│ len u32 │ room u32 │ bytes …       │   long: room for 16 KiB or more
//!  └──────────┴─────────┴──────────┴───────────────┘
//! ```
//!
//! The header is in the block, so a 500-byte value takes one 512-byte block and its owner one
//! pointer. Strings are limited to 4 GiB − 1.
//!
//! A long string is *counted*: its clone is another reference to the same block, at any length for
//! the price of an addition. A block that has several owners does not change: the first change by
//! one of them makes a block of its own (`docs/internals/long-strings.md`).
#![allow(unsafe_code)]

use crate::mapping::advise_huge_pages;
use crate::size_class::block_size;
use std::alloc::{Layout, alloc, dealloc, handle_alloc_error, realloc};
use std::fmt;
use std::mem::MaybeUninit;
use std::ptr::NonNull;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering::*, fence};

/// Length and room.
const HEADER: usize = 8;
/// The count in front of them.
const COUNT: usize = 8;
/// Strings with so much room are worth asking the kernel for huge pages.
const LARGE: usize = 4 << 20;
/// Strings that may have huge pages. Pages that were asked for are a mapping of their own to the
/// kernel, of which a process has some 65 000.
const MAX_ADVISED: usize = 8192;
/// Large strings that there are.
static ADVISED: AtomicUsize = AtomicUsize::new(0);
/// Strings with so much room are counted; shorter ones are cheaper to copy than to count.
pub const COUNTED: usize = 16 << 10;

/// The string; see the module's documentation.
#[repr(transparent)]
pub struct HeapString(NonNull<u8>);

// SAFETY: owns its block, or shares one that does not change, with an atomic count.
unsafe impl Send for HeapString {}
// SAFETY: `&self` only reads and counts, atomically.
unsafe impl Sync for HeapString {}

/// Bytes in front of the content.
const fn head(room: usize) -> usize {
    if room < COUNTED { HEADER } else { COUNT + HEADER }
}

fn layout(room: usize) -> Layout {
    Layout::from_size_align(head(room) + room, 8).expect("a string of at most 4 GiB")
}

/// The room of the smallest block for `len` bytes.
const fn room_for(len: usize) -> usize {
    let room = block_size(HEADER + len) - HEADER;
    if room < COUNTED { room } else { block_size(COUNT + HEADER + len) - COUNT - HEADER }
}

/// The bytes of the block that `len` bytes of content need.
pub const fn block_for(len: usize) -> usize {
    let room = room_for(len);
    head(room) + room
}

/// Asks the kernel for huge pages for a block whose room was `before` and is `now`, if it is large
/// and there are not too many such.
///
/// # Safety
/// The block has `head` bytes and this room, and is the caller's.
#[inline]
unsafe fn advise(at: NonNull<u8>, head: usize, (before, now): (usize, usize)) {
    if before >= LARGE || now >= LARGE {
        count_large(before, now);
        if now >= LARGE && ADVISED.load(Relaxed) <= MAX_ADVISED {
            // SAFETY: the caller's contract.
            unsafe { advise_huge_pages(at, head + now) };
        }
    }
}

/// Counts a string that becomes large, or is large no more.
#[cold]
fn count_large(before: usize, now: usize) {
    match (before >= LARGE, now >= LARGE) {
        (false, true) => _ = ADVISED.fetch_add(1, Relaxed),
        (true, false) => _ = ADVISED.fetch_sub(1, Relaxed),
        _ => {}
    }
}

/// An empty string with this room; `None` if the memory cannot be had.
fn allocate(room: usize) -> Option<HeapString> {
    assert!(room <= u32::MAX as usize, "a string of more than 4 GiB");
    let head = head(room);
    // SAFETY: the layout is not empty; count and header are written before they are read.
    unsafe {
        let at = NonNull::new(alloc(layout(room)))?;
        advise(at, head, (0, room));
        if head > HEADER {
            at.cast::<u64>().write(1);
        }
        let at = at.add(head - HEADER);
        at.cast::<u32>().write(0);
        at.cast::<u32>().add(1).write(room as u32);
        Some(HeapString(at))
    }
}

impl HeapString {
    /// The longest string.
    pub const LONGEST: usize = (u32::MAX as usize) / 2;

    /// An empty string with room for `len` bytes.
    pub fn with_capacity(len: usize) -> HeapString {
        let room = room_for(len);
        allocate(room).unwrap_or_else(|| handle_alloc_error(layout(room)))
    }

    /// The same; `None` if the memory cannot be had.
    pub fn try_with_capacity(len: usize) -> Option<HeapString> {
        allocate(room_for(len))
    }

    /// A copy of `bytes`.
    pub fn from_bytes(bytes: &[u8]) -> HeapString {
        let mut string = HeapString::with_capacity(bytes.len());
        string.extend(bytes);
        string
    }

    fn header(&self, index: usize) -> usize {
        // SAFETY: both header fields are initialised.
        unsafe { self.0.cast::<u32>().add(index).read() as usize }
    }
    /// Only of a block with one owner.
    fn set_header(&mut self, index: usize, value: usize) {
        // SAFETY: the header belongs to us.
        unsafe { self.0.cast::<u32>().add(index).write(value as u32) }
    }

    fn room(&self) -> usize {
        self.header(1)
    }

    /// Where the block begins.
    fn block(&self) -> *mut u8 {
        // SAFETY: the block begins so far in front of the header.
        unsafe { self.0.as_ptr().sub(head(self.room()) - HEADER) }
    }

    /// Whether a clone is another reference.
    #[inline]
    pub fn is_counted(&self) -> bool {
        self.room() >= COUNTED
    }

    fn count(&self) -> &AtomicU64 {
        debug_assert!(self.is_counted());
        // SAFETY: a counted block begins with its count, which is only looked at as an atomic.
        unsafe { AtomicU64::from_ptr(self.block().cast()) }
    }

    /// Whether others refer to the same block.
    pub fn is_shared(&self) -> bool {
        // With the release in `drop`: what others have read comes before what we write.
        self.is_counted() && self.count().load(Acquire) != 1
    }

    /// Whether the two are one block.
    pub fn is_same_block(&self, other: &HeapString) -> bool {
        self.0 == other.0
    }

    /// Bytes of content.
    #[inline]
    pub fn len(&self) -> usize {
        self.header(0)
    }

    /// Whether there is no content.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Bytes of the block.
    pub fn allocated_bytes(&self) -> usize {
        head(self.room()) + self.room()
    }

    /// The content.
    #[inline]
    pub fn as_slice(&self) -> &[u8] {
        // SAFETY: `len` bytes behind the header are initialised.
        unsafe { std::slice::from_raw_parts(self.0.as_ptr().add(HEADER), self.len()) }
    }

    /// The content, to change it.
    pub fn as_mut_slice(&mut self) -> &mut [u8] {
        self.own(0);
        // SAFETY: as above, and the block is ours alone.
        unsafe { std::slice::from_raw_parts_mut(self.0.as_ptr().add(HEADER), self.len()) }
    }

    /// Makes the block ours alone, with room for `len` bytes in total, by a copy if it has to be.
    fn own(&mut self, len: usize) {
        if self.is_shared() {
            self.copy_to(room_for(len.max(self.len())));
        }
    }

    /// Moves the content to a new block.
    fn copy_to(&mut self, room: usize) {
        let mut copy = allocate(room).unwrap_or_else(|| handle_alloc_error(layout(room)));
        copy.extend(self.as_slice());
        *self = copy;
    }

    /// Makes room for `len` bytes in total; grows by a quarter at least, so that a string built
    /// by APPEND is not copied each time.
    pub fn reserve(&mut self, len: usize) {
        self.own(len);
        let room = self.room();
        if len <= room {
            return;
        }
        let wanted = len.max((room + room / 4).min(room + (1 << 20)));
        self.reallocate(room_for(wanted));
    }

    /// Of a block that is ours alone.
    fn reallocate(&mut self, room: usize) {
        assert!(room <= u32::MAX as usize, "a string of more than 4 GiB");
        let old = self.room();
        if head(old) != head(room) {
            return self.copy_to(room);
        }
        let head = head(room);
        // SAFETY: allocated with this layout; the new size is not zero, and what stands in front of
        // the header moves with it.
        let at = unsafe { realloc(self.block(), layout(old), head + room) };
        let Some(at) = NonNull::new(at) else { handle_alloc_error(layout(room)) };
        // SAFETY: the block is allocated and ours; the header stands so far behind its beginning.
        unsafe {
            advise(at, head, (old, room));
            self.0 = at.add(head - HEADER);
        }
        self.set_header(1, room);
    }

    /// Appends.
    pub fn extend(&mut self, bytes: &[u8]) {
        let len = self.len();
        self.reserve(len + bytes.len());
        // SAFETY: `reserve` made room, and `bytes` cannot overlap our exclusive block.
        unsafe {
            let end = self.0.as_ptr().add(HEADER + len);
            end.copy_from_nonoverlapping(bytes.as_ptr(), bytes.len());
        }
        self.set_header(0, len + bytes.len());
    }

    /// Returns the room behind the content, which [`HeapString::assume_extended`] makes content.
    pub fn spare(&mut self) -> &mut [MaybeUninit<u8>] {
        self.own(0);
        let (len, room) = (self.len(), self.room());
        // SAFETY: the block is ours alone and has `room` bytes behind the header; bytes that may be
        // uninitialised can be anything.
        unsafe {
            let end = self.0.as_ptr().add(HEADER + len);
            std::slice::from_raw_parts_mut(end.cast(), room - len)
        }
    }

    /// Makes the first `more` bytes of [`HeapString::spare`] content.
    ///
    /// # Safety
    /// They have been written since `spare` was called, and nothing else was done to the string.
    pub unsafe fn assume_extended(&mut self, more: usize) {
        let len = self.len() + more;
        assert!(len <= self.room(), "more content than room");
        self.set_header(0, len);
    }

    /// Makes the content `len` bytes long; new bytes are zero.
    pub fn resize(&mut self, len: usize) {
        let old = self.len();
        self.reserve(len.max(old));
        if len > old {
            // SAFETY: `reserve` made room.
            unsafe { self.0.as_ptr().add(HEADER + old).write_bytes(0, len - old) };
        }
        self.set_header(0, len);
    }

    /// Gives unused room back.
    pub fn shrink_to_fit(&mut self) {
        let room = room_for(self.len());
        if room < self.room() && !self.is_shared() {
            self.reallocate(room);
        }
    }

    /// Where the block begins that moves with the string; `None` if others may refer to it.
    pub fn own_block(&self) -> Option<*const u8> {
        (!self.is_counted()).then(|| self.block().cast_const())
    }

    /// Moves the content to another block of the same size, unless others may refer to it.
    pub fn relocate(&mut self) {
        if !self.is_counted() {
            self.copy_to(self.room());
        }
    }

    /// Gives up ownership; [`HeapString::from_raw`] takes it back.
    pub fn into_raw(self) -> NonNull<u8> {
        std::mem::ManuallyDrop::new(self).0
    }

    /// Takes ownership.
    ///
    /// # Safety
    /// `raw` must come from [`HeapString::into_raw`] and be used once.
    pub unsafe fn from_raw(raw: NonNull<u8>) -> HeapString {
        HeapString(raw)
    }
}

impl fmt::Debug for HeapString {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "HeapString({} bytes)", self.len())
    }
}

impl Clone for HeapString {
    fn clone(&self) -> Self {
        if !self.is_counted() {
            return HeapString::from_bytes(self.as_slice());
        }
        // The last reference cannot be dropped meanwhile: it is at least ours.
        self.count().fetch_add(1, Relaxed);
        HeapString(self.0)
    }
}

impl Drop for HeapString {
    fn drop(&mut self) {
        if self.is_counted() {
            if self.count().fetch_sub(1, Release) != 1 {
                return;
            }
            // What the others have read comes before the block is used for something else.
            fence(Acquire);
        }
        let room = self.room();
        if room >= LARGE {
            count_large(room, 0);
        }
        // SAFETY: allocated with this layout; no other owner is left.
        unsafe { dealloc(self.block(), layout(room)) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn agrees_with_a_vector(
            start in proptest::collection::vec(any::<u8>(), 0..80),
            ops in proptest::collection::vec((0u8..7, 0usize..300, any::<u8>()), 0..60),
            scale in prop_oneof![Just(1usize), Just(100)],
        ) {
            let mut string = HeapString::from_bytes(&start);
            let mut model = start;
            let mut clones: Vec<(HeapString, Vec<u8>)> = Vec::new();
            for (op, size, byte) in ops {
                let size = size * scale;
                clones.push((string.clone(), model.clone()));
                if clones.len() > 2 {
                    clones.remove(0);
                }
                match op {
                    0 | 1 => {
                        string.extend(&vec![byte; size]);
                        model.resize(model.len() + size, byte);
                    }
                    2 => {
                        // What is new is zero, even where there was something before.
                        string.resize(size);
                        model.resize(size, 0);
                    }
                    3 => string.reserve(size),
                    4 => string.shrink_to_fit(),
                    5 => {
                        if let Some(last) = string.as_mut_slice().last_mut() {
                            *last = byte;
                        }
                        if let Some(last) = model.last_mut() {
                            *last = byte;
                        }
                    }
                    _ => string = HeapString::from_bytes(string.as_slice()),
                }
                prop_assert_eq!(string.as_slice(), &model[..]);
                prop_assert_eq!((string.len(), string.is_empty()), (model.len(), model.is_empty()));
                prop_assert!(string.allocated_bytes() >= model.len());
                for (clone, model) in &clones {
                    prop_assert_eq!(clone.as_slice(), &model[..]);
                }
            }
        }
    }

    #[test]
    fn grows_shrinks_and_keeps_its_bytes() {
        let mut model = Vec::new();
        let mut string = HeapString::from_bytes(b"");
        for i in 0..2000u32 {
            let piece = vec![i as u8; (i % 17) as usize];
            model.extend_from_slice(&piece);
            string.extend(&piece);
        }
        assert_eq!(string.as_slice(), model);
        string.resize(10);
        model.resize(10, 0);
        string.resize(600);
        model.resize(600, 0);
        assert_eq!(string.as_slice(), model);
        string.shrink_to_fit();
        assert_eq!(string.as_slice(), model);
        assert_eq!(HeapString::from_bytes(&[0; 500]).allocated_bytes(), 512);
    }

    #[test]
    fn a_long_string_is_shared_until_it_is_changed() {
        let mut string = HeapString::from_bytes(&[7; COUNTED]);
        let clone = string.clone();
        assert!(string.is_same_block(&clone) && string.is_shared() && clone.is_shared());
        string.as_mut_slice()[0] = 1;
        assert!(!string.is_same_block(&clone) && !clone.is_shared());
        assert_eq!((string.as_slice()[0], clone.as_slice()[0]), (1, 7));
        let address = string.as_slice().as_ptr();
        string.as_mut_slice()[1] = 1;
        assert_eq!(string.as_slice().as_ptr(), address, "who is alone changes it in place");
        assert!(!HeapString::from_bytes(&[7; 1000]).is_counted());
    }

    #[test]
    fn threads_share_a_block() {
        let string = HeapString::from_bytes(&vec![3; 2 * COUNTED]);
        std::thread::scope(|scope| {
            for _ in 0..4 {
                let mut mine = string.clone();
                scope.spawn(move || {
                    for _ in 0..100 {
                        let other = mine.clone();
                        mine.as_mut_slice()[5] ^= 1;
                        assert_ne!(mine.as_slice(), other.as_slice());
                    }
                });
            }
        });
        assert!(!string.is_shared());
        assert!(string.as_slice().iter().all(|byte| *byte == 3));
    }
}

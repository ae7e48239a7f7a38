//! The allocation of a listpack: header access, gaps, growth and shrinking.
#![allow(unsafe_code)] // Manages raw memory; every function states what it relies on.

use super::{COUNT_UNKNOWN, HEADER, Listpack};
use crate::size_class::block_size;
use std::alloc::{Layout, alloc, dealloc, handle_alloc_error, realloc};
use std::ptr::NonNull;

/// What lies in front of the bytes. See the drawing in the parent module.
#[repr(C)]
struct Prefix {
    /// Bytes behind the prefix.
    capacity: u32,
    /// Where among them the listpack starts.
    start: u32,
}

const PREFIX: usize = size_of::<Prefix>();
const _: () = assert!(PREFIX == 8);

/// Allocations with less than this are not worth making smaller.
const SHRINK_MIN: usize = 96;

/// The capacity for a listpack that has just outgrown its own and now needs `bytes`.
fn grown_capacity(bytes: usize) -> usize {
    let needed = PREFIX + bytes;
    let class = block_size(needed);
    if needed < 512 {
        return class - PREFIX;
    }
    // From here on copying costs more than slack, but not past a power of two: the limits of list
    // nodes are just below one, and a full node must not hold twice its size.
    let roomy = block_size(needed + needed / 4);
    roomy.min(class.next_power_of_two()).max(class) - PREFIX
}

fn layout(capacity: usize) -> Layout {
    Layout::from_size_align(PREFIX + capacity, align_of::<u64>())
        .expect("a capacity of 32 bits is a valid layout")
}

impl Listpack {
    /// Memory for at least `bytes`, the start at 0 and everything else uninitialized; the caller
    /// fills in a complete listpack before anything else.
    pub(super) fn allocate(bytes: usize) -> Self {
        Self::allocate_exactly(block_size(PREFIX + bytes) - PREFIX)
    }

    /// An empty listpack that fills a block of the allocator of about so many bytes.
    pub fn with_block(bytes: usize) -> Self {
        Self::with_capacity(bytes.saturating_sub(PREFIX + HEADER + 1))
    }

    fn allocate_exactly(capacity: usize) -> Self {
        let layout = layout(capacity);
        let stored = u32::try_from(capacity).expect("a listpack is smaller than 4 GiB");
        // SAFETY: the layout is not empty, and has room and alignment for the prefix.
        unsafe {
            let Some(memory) = NonNull::new(alloc(layout)) else { handle_alloc_error(layout) };
            memory.cast::<Prefix>().write(Prefix { capacity: stored, start: 0 });
            Self { memory }
        }
    }

    #[inline]
    pub(super) fn capacity(&self) -> usize {
        // SAFETY: the prefix is written at allocation.
        unsafe { (*self.memory.cast::<Prefix>().as_ptr()).capacity as usize }
    }

    /// Bytes of the gap in front.
    #[inline]
    pub(super) fn start(&self) -> usize {
        // SAFETY: the prefix is written at allocation.
        unsafe { (*self.memory.cast::<Prefix>().as_ptr()).start as usize }
    }

    /// Bytes allocated.
    #[inline]
    pub fn allocated_bytes(&self) -> usize {
        block_size(PREFIX + self.capacity())
    }

    /// Address of the byte at `offset` from the listpack's start.
    #[inline(always)]
    pub(super) fn at(&self, offset: usize) -> *mut u8 {
        debug_assert!(self.start() + offset <= self.capacity());
        // SAFETY: inside the allocation, or just behind it.
        unsafe { self.memory.as_ptr().add(PREFIX + self.start() + offset) }
    }

    /// Moves the start and writes the header there.
    #[inline]
    pub(super) fn set_header(&mut self, start: usize, total: usize, count: u16) {
        debug_assert!(start + total <= self.capacity());
        // SAFETY: the prefix and the six bytes at `start` are inside the allocation.
        unsafe {
            (*self.memory.cast::<Prefix>().as_ptr()).start = start as u32;
            let header = self.at(0);
            header.cast::<[u8; 4]>().write((total as u32).to_le_bytes());
            header.add(4).cast::<[u8; 2]>().write(count.to_le_bytes());
        }
    }

    #[inline]
    pub(super) fn set_byte(&mut self, offset: usize, byte: u8) {
        debug_assert!(self.start() + offset < self.capacity());
        // SAFETY: inside the allocation, which is ours.
        unsafe { *self.at(offset) = byte };
    }

    /// The count as the header has it.
    #[inline]
    pub(super) fn header_count(&self) -> u16 {
        // SAFETY: the header is always complete.
        u16::from_le_bytes(unsafe { self.at(4).cast::<[u8; 2]>().read() })
    }

    /// Offset of the end byte.
    #[inline]
    pub(super) fn end(&self) -> usize {
        self.bytes_len() - 1
    }

    /// Counts entries that have been written.
    #[inline]
    pub(super) fn added(&mut self, count: u16) {
        let count = self.header_count().saturating_add(count);
        self.set_header(self.start(), self.bytes_len(), count);
    }

    /// Counts entries that have been cut out, and gives memory back if few are left.
    #[inline]
    pub(super) fn removed(&mut self, count: usize) {
        match self.header_count() {
            // Counting is put off until the bytes prove that the result will fit the header, so
            // that emptying a huge listpack does not count it again and again.
            COUNT_UNKNOWN if self.bytes_len() / 2 > COUNT_UNKNOWN as usize => {}
            COUNT_UNKNOWN => self.set_exact_count(),
            known => {
                let left = known - count as u16;
                self.set_header(self.start(), self.bytes_len(), left);
            }
        }
        self.shrink_if_sparse();
    }

    /// Counts the entries and puts their number into the header, if it fits.
    pub(super) fn set_exact_count(&mut self) {
        self.set_count(self.iter().count());
    }

    /// Puts the number of entries into the header, if it fits.
    pub(super) fn set_count(&mut self, count: usize) {
        let count = u16::try_from(count).unwrap_or(COUNT_UNKNOWN);
        self.set_header(self.start(), self.bytes_len(), count);
    }

    /// Makes a gap of at least `len` bytes in front.
    #[cold]
    pub(super) fn make_room_front(&mut self, len: usize) {
        let total = self.bytes_len();
        let spare = self.capacity() - total;
        if self.is_roomy(spare, len) {
            // Most of the gap behind comes to the front; a part stays for a push on the right.
            return self.slide_to(spare - (spare - len) / 4);
        }
        let capacity = grown_capacity(total + len);
        self.reallocate(capacity, capacity - total);
    }

    /// Makes a gap of at least `len` bytes behind.
    #[cold]
    pub(super) fn make_room_back(&mut self, len: usize) {
        let total = self.bytes_len();
        let spare = self.capacity() - total;
        if self.is_roomy(spare, len) {
            return self.slide_to((spare - len) / 4);
        }
        self.reallocate(grown_capacity(total + len), 0);
    }

    /// Whether the gap on the other side is big enough to pay for moving the bytes over: a move
    /// must buy room in proportion to its cost, or a queue in a full buffer would move it at
    /// every push.
    fn is_roomy(&self, spare: usize, len: usize) -> bool {
        spare >= len + self.bytes_len() / 4
    }

    /// Moves the listpack inside its allocation.
    fn slide_to(&mut self, start: usize) {
        let (total, count) = (self.bytes_len(), self.header_count());
        debug_assert!(start + total <= self.capacity());
        // SAFETY: source and target are inside the allocation; `copy` allows the overlap.
        unsafe {
            let target = self.memory.as_ptr().add(PREFIX + start);
            std::ptr::copy(self.at(0), target, total);
        }
        self.set_header(start, total, count);
    }

    /// Moves the listpack to `start` of an allocation of `capacity`.
    fn reallocate(&mut self, capacity: usize, start: usize) {
        let total = self.bytes_len();
        debug_assert!(start + total <= capacity);
        // To be smaller takes another block: the allocator leaves a block in its place while half
        // of it is used.
        if start == 0 && self.start() == 0 && capacity > self.capacity() {
            let stored = u32::try_from(capacity).expect("a listpack is smaller than 4 GiB");
            // SAFETY: the pointer and layout are those of the present allocation, the new size is
            // not zero and does not overflow; the old contents up to `total` fit.
            unsafe {
                let old = layout(self.capacity());
                let new = layout(capacity);
                let moved = realloc(self.memory.as_ptr(), old, new.size());
                self.memory = NonNull::new(moved).unwrap_or_else(|| handle_alloc_error(new));
                (*self.memory.cast::<Prefix>().as_ptr()).capacity = stored;
            }
            return;
        }
        let count = self.header_count();
        let mut new = Self::allocate_exactly(capacity);
        // SAFETY: the new allocation has room for `total` bytes at `start`.
        unsafe {
            let target = new.memory.as_ptr().add(PREFIX + start);
            std::ptr::copy_nonoverlapping(self.at(0), target, total);
        }
        new.set_header(start, total, count);
        *self = new;
    }

    /// Gives memory back when less than a quarter is used.
    #[inline]
    pub(super) fn shrink_if_sparse(&mut self) {
        let capacity = self.capacity();
        if capacity >= SHRINK_MIN && self.bytes_len() * 4 < capacity {
            self.shrink();
        }
    }

    #[cold]
    fn shrink(&mut self) {
        let total = self.bytes_len();
        let capacity = block_size(PREFIX + total + total / 4) - PREFIX;
        if capacity < self.capacity() {
            self.reallocate(capacity, 0);
        }
    }

    /// Gives back all the memory that is not used.
    pub fn shrink_to_fit(&mut self) {
        let capacity = block_size(PREFIX + self.bytes_len()) - PREFIX;
        if capacity < self.capacity() {
            self.reallocate(capacity, 0);
        }
    }

    /// Makes the `old` bytes at `offset` a hole of `new` bytes and returns its address. The total
    /// is updated, the count is not, and the bytes in the hole are for the caller to write.
    pub(super) fn resize_hole(&mut self, offset: usize, old: usize, new: usize) -> *mut u8 {
        let (total, count) = (self.bytes_len(), self.header_count());
        debug_assert!(offset >= HEADER && offset + old < total);
        if new > old {
            let extra = new - old;
            // The shorter side moves, if its gap allows.
            let behind = total - offset - old;
            if offset < behind && self.start() >= extra {
                let start = self.start() - extra;
                // SAFETY: the gap in front has `extra` bytes; the header is rewritten below.
                unsafe { std::ptr::copy(self.at(0), self.at(0).sub(extra), offset) };
                self.set_header(start, total + extra, count);
            } else {
                if self.capacity() - self.start() - total < extra {
                    self.make_room_back(extra);
                }
                let tail = self.at(offset + old);
                // SAFETY: the gap behind has `extra` bytes.
                unsafe { std::ptr::copy(tail, tail.add(extra), behind) };
                self.set_header(self.start(), total + extra, count);
            }
        } else if old > new {
            let less = old - new;
            let behind = total - offset - old;
            if offset < behind {
                let start = self.start() + less;
                // SAFETY: moves the front right by bytes that are given up.
                unsafe { std::ptr::copy(self.at(0), self.at(less), offset) };
                self.set_header(start, total - less, count);
            } else {
                // SAFETY: moves the tail left by bytes that are given up.
                unsafe { std::ptr::copy(self.at(offset + old), self.at(offset + new), behind) };
                self.set_header(self.start(), total - less, count);
            }
        }
        self.at(offset)
    }
}

impl Clone for Listpack {
    fn clone(&self) -> Self {
        Self::from_valid(self.as_bytes())
    }
}

impl Drop for Listpack {
    #[inline]
    fn drop(&mut self) {
        // SAFETY: allocated with this layout, and not used after.
        unsafe { dealloc(self.memory.as_ptr(), layout(self.capacity())) };
    }
}

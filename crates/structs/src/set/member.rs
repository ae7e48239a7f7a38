//! A member of a big set: its length and its bytes in one allocation.
//!
//! ```text
//!   handle ─▶ | len u8 (below 255) | bytes … |
//!   handle ─▶ | 255 | len u64 | bytes … |
//! ```
#![allow(unsafe_code)] // Owns raw memory.

use crate::hashing::hash;
use crate::random::Rng;
use crate::size_class::block_size;
use crate::table::Item;
use crate::watched::{Measured, Watched};
use std::alloc::{Layout, alloc, dealloc, handle_alloc_error};
use std::ptr::NonNull;

/// A member; see the module's documentation.
#[repr(transparent)]
pub(super) struct Member(NonNull<u8>);

/// The first byte that says the length is in the next eight.
const LONG: u8 = u8::MAX;
const LONG_HEAD: usize = 1 + size_of::<u64>();

// SAFETY: the allocation is owned and plain bytes.
unsafe impl Send for Member {}
// SAFETY: a shared member is only read.
unsafe impl Sync for Member {}

#[inline]
fn head(len: usize) -> usize {
    if len < LONG as usize { 1 } else { LONG_HEAD }
}

fn layout(len: usize) -> Layout {
    Layout::from_size_align(head(len) + len, 1).expect("bytes that fit into memory")
}

impl Member {
    #[inline]
    pub(super) fn new(bytes: &[u8]) -> Self {
        let len = bytes.len();
        let layout = layout(len);
        // SAFETY: the layout is not empty and has room for the head and the bytes.
        unsafe {
            let Some(memory) = NonNull::new(alloc(layout)) else { handle_alloc_error(layout) };
            if len < LONG as usize {
                memory.write(len as u8);
            } else {
                memory.write(LONG);
                memory.add(1).cast::<u64>().write_unaligned(len as u64);
            }
            let target = memory.as_ptr().add(head(len));
            std::ptr::copy_nonoverlapping(bytes.as_ptr(), target, len);
            Self(memory)
        }
    }
}

impl Measured for Member {
    #[inline]
    fn allocated_bytes(&self) -> usize {
        block_size(layout(self.key().len()).size())
    }
}

// SAFETY: transparent over `NonNull<u8>`, and the bytes never change.
unsafe impl Item for Member {
    #[inline]
    fn key(&self) -> &[u8] {
        // SAFETY: the head and that many bytes are written at allocation.
        unsafe {
            let short = self.0.read();
            let len = if short < LONG {
                short as usize
            } else {
                self.0.add(1).cast::<u64>().read_unaligned() as usize
            };
            std::slice::from_raw_parts(self.0.as_ptr().add(head(len)), len)
        }
    }
}

impl Drop for Member {
    #[inline]
    fn drop(&mut self) {
        // SAFETY: allocated with this layout, and not used after.
        unsafe { dealloc(self.0.as_ptr(), layout(self.key().len())) };
    }
}

/// Takes a member chosen at random out of the table, each being equally likely.
#[inline]
pub(super) fn take_sample(table: &mut Watched<Member>, rng: &mut Rng) -> Option<Member> {
    let key: *const [u8] = table.sample(|| rng.next_u64())?.key();
    // SAFETY: the bytes are the member's own allocation, which lives until the member is dropped,
    // and the search below neither drops nor changes a member.
    let key = unsafe { &*key };
    let hash = hash(key);
    table.occupied(hash, key).map(|slot| slot.remove_hashed(hash))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keeps_bytes_of_any_length() {
        for len in [0, 1, 16, 254, 255, 256, 70_000] {
            let bytes = vec![7; len];
            let member = Member::new(&bytes);
            assert_eq!(member.key(), bytes);
            assert_eq!(member.allocated_bytes(), block_size(len + if len < 255 { 1 } else { 9 }));
        }
    }
}

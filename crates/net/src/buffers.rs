//! The memory that sockets are read into: equal buffers, numbered, shared by all connections of a
//! thread, because a connection needs one only between the arrival of bytes and their being handled
//! in the same turn.
//!
//! Buffers come in chunks, mappings outside the allocator of which only what has been used takes
//! memory (the allocator's come in huge pages), added when a turn runs out of them and there are
//! connections enough to fill them: one that sends much is read in several turns instead, from
//! memory that stays in the cache. Neighbours are one cache line more than their size apart: at a
//! power of two every buffer's beginning would fall in the same few cache sets, and small requests
//! use nothing but beginnings.

use std::alloc::{Layout, handle_alloc_error};
use structs::mapping::Mapped;

/// Bytes in one buffer.
pub(super) const SIZE: usize = 16 << 10;
const STRIDE: usize = SIZE + 64;
/// Buffers in one chunk.
pub(super) const CHUNK: usize = 16;
/// What a chunk is, if it cannot be had.
const LAYOUT: Layout = Layout::new::<[u8; CHUNK * STRIDE]>();
/// The most buffers there may be.
pub(super) const MAX_BUFFERS: usize = 1024;

/// A buffer with bytes in it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Filled {
    pub id: u16,
    pub len: u32,
}

pub(super) struct Buffers {
    chunks: Vec<Mapped>,
}

impl Buffers {
    pub fn new() -> Self {
        Self { chunks: Vec::new() }
    }

    pub fn count(&self) -> usize {
        self.chunks.len() * CHUNK
    }

    /// Adds a chunk, and says which ids it brought. None when there are as many as there may be,
    /// or twice as many as connections, or memory is short.
    pub fn grow(&mut self, connections: usize) -> Option<std::ops::Range<u16>> {
        let first = self.count();
        if first >= MAX_BUFFERS.min(2 * connections.max(1)) {
            return None;
        }
        match Mapped::zeroed(CHUNK * STRIDE) {
            Some(chunk) => self.chunks.push(chunk),
            None if first > 0 => return None,
            // Without a single buffer nothing works.
            None => handle_alloc_error(LAYOUT),
        }
        Some(first as u16..(first + CHUNK) as u16)
    }

    /// The bytes that were received.
    #[inline]
    pub fn filled(&self, buf: Filled) -> &[u8] {
        let start = buf.id as usize % CHUNK * STRIDE;
        &self.chunks[buf.id as usize / CHUNK][start..start + buf.len as usize]
    }

    /// A whole buffer, to be received into.
    pub fn room(&mut self, id: u16) -> &mut [u8] {
        let start = id as usize % CHUNK * STRIDE;
        &mut self.chunks[id as usize / CHUNK][start..start + SIZE]
    }
}

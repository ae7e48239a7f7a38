//! Filters in chunks, as CF.SCANDUMP gives and CF.LOADCHUNK takes them.
//!
//! ```text
//!  cursor 1   header   items u64 │ buckets u64 │ removed u64 │ layers u64 │ bucket size u16
//!                      │ moves u16 │ expansion u16
//!                      then, if the highest bit of `layers` is set: seed u64, 0
//!  cursor n   a piece of the fingerprints of all layers, which ends in front of byte n - 1
//! ```
//!
//! Numbers are little-endian and not aligned. A piece does not reach into the next layer and has at
//! most 16 MiB. The header is written without a seed.

use super::{Cuckoo, HEAD_BYTES, LAYER_BYTES, MAX_BUCKET_SIZE, MAX_EXPANSION, layer_bytes};
use std::borrow::Cow;

const HEADER: usize = 38;
const SEED_BYTES: usize = 8;
const SEEDED: u64 = 1 << 63;
const PIECE: usize = 16 << 20;
/// The most layers of a filter from outside: servers can be told to allow more than the usual 32.
const MOST_LAYERS: u64 = 65_536;

/// Why a chunk cannot be loaded.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ChunkError {
    /// The bytes are no header, or the filter would be larger than the limit.
    Header,
    /// The cursor does not fit the bytes or the filter.
    Piece,
}

/// The numbers of a filter from outside.
pub(super) struct Numbers {
    pub(super) layers: u64,
    pub(super) buckets: u64,
    pub(super) items: u64,
    pub(super) deleted: u64,
    pub(super) bucket_size: u64,
    pub(super) max_iterations: u64,
    pub(super) expansion: u64,
}

impl Numbers {
    /// Returns a filter without layers and the bytes of each layer, if the numbers fit together and
    /// all have at most `limit` bytes.
    pub(super) fn check(&self, limit: usize) -> Option<(Cuckoo, Vec<usize>)> {
        let bucket_size = u16::try_from(self.bucket_size).ok()?;
        let expansion = u16::try_from(self.expansion).ok()?;
        let max_iterations = u16::try_from(self.max_iterations).ok()?;
        let is_sound = (1..=MAX_BUCKET_SIZE).contains(&bucket_size)
            && self.buckets.is_power_of_two()
            && (expansion == 0 || expansion.is_power_of_two())
            && expansion <= MAX_EXPANSION
            && (1..=if expansion == 0 { 1 } else { MOST_LAYERS }).contains(&self.layers)
            && max_iterations > 0
            // The count of removed items goes on from here.
            && i64::try_from(self.deleted).is_ok();
        if !is_sound {
            return None;
        }
        let mut sizes = Vec::new();
        let (mut all, mut space) = (HEAD_BYTES, 0_u64);
        for layer in 0..self.layers as usize {
            let bytes = layer_bytes(self.buckets, bucket_size, expansion, layer)?;
            all = all.checked_add(bytes)?.checked_add(LAYER_BYTES)?;
            space = space.checked_add(bytes as u64)?;
            if all > limit {
                return None;
            }
            sizes.push(bytes);
        }
        let filter = Cuckoo {
            layers: Vec::with_capacity(sizes.len()),
            buckets: self.buckets,
            items: self.items,
            deleted: self.deleted,
            bucket_size,
            max_iterations,
            expansion,
        };
        (self.items <= space).then_some((filter, sizes))
    }
}

impl Cuckoo {
    /// Returns the chunk at a cursor, 0 at first, and the cursor of the next; 0 and nothing at the
    /// end, or if the filter is empty.
    pub fn chunk(&self, cursor: u64) -> Option<(u64, Cow<'_, [u8]>)> {
        if cursor == 0 {
            return (self.items > 0).then(|| (1, self.header().into()));
        }
        let mut at = cursor - 1;
        for layer in &self.layers {
            let len = layer.len() as u64;
            if at < len {
                let piece = &layer[at as usize..];
                let piece = &piece[..piece.len().min(PIECE)];
                return Some((cursor + piece.len() as u64, piece.into()));
            }
            at -= len;
        }
        None
    }

    fn header(&self) -> Vec<u8> {
        let mut to = Vec::with_capacity(HEADER);
        for number in [self.items, self.buckets, self.deleted, self.layers.len() as u64] {
            to.extend(number.to_le_bytes());
        }
        for number in [self.bucket_size, self.max_iterations, self.expansion] {
            to.extend(number.to_le_bytes());
        }
        to
    }

    /// Makes a filter of a header. It is empty until its pieces are loaded.
    ///
    /// # Errors
    /// The header is damaged, has a seed, or is of a filter larger than `limit` bytes.
    pub fn from_header(header: &[u8], limit: usize) -> Result<Cuckoo, ChunkError> {
        let wide = |at: usize| {
            let bytes = header.get(at..)?.first_chunk()?;
            Some(u64::from_le_bytes(*bytes))
        };
        let short = |at: usize| {
            let bytes = header.get(at..)?.first_chunk()?;
            Some(u16::from_le_bytes(*bytes).into())
        };
        let numbers = || {
            let layers = wide(24)?;
            let is_seeded = layers & SEEDED != 0;
            let expected = HEADER + if is_seeded { SEED_BYTES } else { 0 };
            if header.len() != expected || is_seeded && wide(HEADER)? != 0 {
                return None;
            }
            Some(Numbers {
                layers: layers & !SEEDED,
                items: wide(0)?,
                buckets: wide(8)?,
                deleted: wide(16)?,
                bucket_size: short(32)?,
                max_iterations: short(34)?,
                expansion: short(36)?,
            })
        };
        let checked = numbers().and_then(|numbers| numbers.check(limit));
        let (mut filter, sizes) = checked.ok_or(ChunkError::Header)?;
        filter.layers.extend(sizes.into_iter().map(|bytes| vec![0; bytes].into_boxed_slice()));
        Ok(filter)
    }

    /// Loads a piece of fingerprints, with the cursor that came with it.
    ///
    /// # Errors
    /// It has no place in the filter. Nothing has changed.
    pub fn load_chunk(&mut self, cursor: i64, piece: &[u8]) -> Result<(), ChunkError> {
        let start = u64::try_from(cursor).ok().and_then(|end| end.checked_sub(piece.len() as u64));
        let mut at = start.and_then(|start| start.checked_sub(1)).ok_or(ChunkError::Piece)?;
        for layer in &mut self.layers {
            let len = layer.len() as u64;
            if at < len {
                let place = layer[at as usize..].get_mut(..piece.len()).ok_or(ChunkError::Piece)?;
                place.copy_from_slice(piece);
                return Ok(());
            }
            at -= len;
        }
        Err(ChunkError::Piece)
    }
}

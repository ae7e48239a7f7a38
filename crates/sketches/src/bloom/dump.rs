//! Filters in chunks, as BF.SCANDUMP gives and BF.LOADCHUNK takes them.
//!
//! ```text
//!  cursor 1   header   items u64 │ layers u32 │ flags u32 │ expansion u32
//!                      then each layer: bytes u64 │ bits u64 │ items u64 │ rate f64
//!                                       │ bits an item f64 │ hashes u32 │ capacity u64
//!                                       │ log2 of bits u8
//!                      then, if flag 31 is set: seed u64
//!  cursor n   a piece of the bits of all layers, which ends in front of byte n - 1
//! ```
//!
//! Numbers are little-endian and not aligned. A piece does not reach into the next layer and has at
//! most 16 MiB. The header is written without a seed, and one with a seed other than the usual one
//! is refused. Sources: RedisShake (`mbbloom.go`, MIT); cursors and the seed by the public tests of
//! RedisBloom.

use super::layer::{Layer, Shape};
use super::probes::SEED;
use super::{Bloom, Family, HEAD_BYTES, LAYER_BYTES, MAX_EXPANSION};

const HEADER: usize = 20;
const LAYER: usize = 53;
const SEED_BYTES: usize = 8;
/// Most bytes of a piece.
const PIECE: usize = 16 << 20;

/// Bits are not rounded up to a power of 2.
pub(crate) const NO_ROUND: u64 = 1;
/// Hashes have 64 bits.
pub(crate) const WIDE: u64 = 4;
/// The filter does not grow.
pub(crate) const FIXED: u64 = 8;
/// The header ends with the seed.
const SEEDED: u32 = 1 << 31;

/// Why a chunk cannot be loaded.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ChunkError {
    /// The bytes are no header, or the cursor does not fit them.
    Bad,
    /// The filter would be larger than the limit.
    TooLarge,
    /// The cursor is outside of the filter.
    NoLayer,
    /// The piece reaches beyond the layer that it begins in.
    TooLong,
}

impl Bloom {
    /// Returns the chunk at a cursor, 0 at first, and the cursor of the next; at the end 0 and
    /// nothing. A filter of Valkey's has no such form.
    pub fn chunk(&self, cursor: u64) -> Option<(u64, std::borrow::Cow<'_, [u8]>)> {
        if self.family != Family::Murmur {
            return None;
        }
        if cursor == 0 {
            return Some((1, self.header().into()));
        }
        let mut at = cursor - 1;
        for layer in &self.layers {
            let len = layer.bytes() as u64;
            if at < len {
                let piece = &layer.as_bytes()[at as usize..];
                let piece = &piece[..piece.len().min(PIECE)];
                return Some((cursor + piece.len() as u64, piece.into()));
            }
            at -= len;
        }
        Some((0, (&[][..]).into()))
    }

    fn header(&self) -> Vec<u8> {
        let mut to = Vec::with_capacity(HEADER + LAYER * self.layers.len());
        to.extend(self.items.to_le_bytes());
        to.extend((self.layers.len() as u32).to_le_bytes());
        to.extend((self.flags() as u32).to_le_bytes());
        to.extend(self.expansion.to_le_bytes());
        for layer in &self.layers {
            let shape = layer.shape();
            to.extend((layer.bytes() as u64).to_le_bytes());
            to.extend(shape.bits.to_le_bytes());
            to.extend(layer.len().to_le_bytes());
            to.extend(shape.rate.to_le_bytes());
            to.extend(shape.bits_per_item.to_le_bytes());
            to.extend(shape.hashes.to_le_bytes());
            to.extend(shape.capacity.to_le_bytes());
            to.push(shape.log2_bits);
        }
        to
    }

    pub(crate) fn flags(&self) -> u64 {
        let is_rounded = self.layers.iter().any(|layer| layer.shape().log2_bits > 0);
        WIDE | if is_rounded { 0 } else { NO_ROUND } | if self.is_fixed { FIXED } else { 0 }
    }

    /// Makes a filter of a header. Its bits are all 0 until their pieces are loaded.
    ///
    /// # Errors
    /// The header is damaged or of a filter larger than `limit` bytes.
    pub fn from_header(header: &[u8], limit: usize) -> Result<Bloom, ChunkError> {
        let mut from = Fields(header);
        let items = from.u64()?;
        let count = from.u32()? as usize;
        let flags = from.u32()?;
        let expansion = from.u32()?;
        let seed_len = if flags & SEEDED == 0 { 0 } else { SEED_BYTES };
        if count == 0 || Some(from.0.len()) != count.checked_mul(LAYER).map(|len| len + seed_len) {
            return Err(ChunkError::Bad);
        }
        let mut shapes = Vec::with_capacity(count);
        let mut bytes_of_all = HEAD_BYTES as u64;
        for _ in 0..count {
            let (bytes, bits, len) = (from.u64()?, from.u64()?, from.u64()?);
            let (rate, bits_per_item) = (from.f64()?, from.f64()?);
            let (hashes, capacity, log2_bits) = (from.u32()?, from.u64()?, from.u8()?);
            let shape = Shape { capacity, rate, bits_per_item, hashes, bits, log2_bits };
            if !shape.is_sound(bytes) || len > capacity {
                return Err(ChunkError::Bad);
            }
            bytes_of_all = bytes_of_all.saturating_add(bytes).saturating_add(LAYER_BYTES as u64);
            shapes.push((shape, bytes, len));
        }
        if bytes_of_all > limit as u64 {
            return Err(ChunkError::TooLarge);
        }
        if seed_len > 0 && from.u64()? != SEED {
            return Err(ChunkError::Bad);
        }
        let layers = shapes.into_iter().map(|(shape, bytes, len)| {
            let mut layer = Layer::sized(shape, bytes as usize);
            layer.set_items(len);
            layer
        });
        let flags = u64::from(flags & !SEEDED);
        Bloom::assemble(layers.collect(), items, flags, expansion.into()).ok_or(ChunkError::Bad)
    }

    /// Loads a piece of bits, with the cursor that came with it.
    ///
    /// # Errors
    /// It has no place in the filter. Nothing has changed.
    pub fn load_chunk(&mut self, cursor: i64, piece: &[u8]) -> Result<(), ChunkError> {
        let end = u64::try_from(cursor).ok().filter(|&end| end > 0 && !piece.is_empty());
        let start =
            end.and_then(|end| end.checked_sub(piece.len() as u64)).ok_or(ChunkError::Bad)?;
        let mut at = start.checked_sub(1).ok_or(ChunkError::NoLayer)?;
        for layer in &mut self.layers {
            let len = layer.bytes() as u64;
            if at < len {
                let place = &mut layer.as_mut_bytes()[at as usize..];
                place.get_mut(..piece.len()).ok_or(ChunkError::TooLong)?.copy_from_slice(piece);
                return Ok(());
            }
            at -= len;
        }
        Err(ChunkError::NoLayer)
    }

    /// Makes a filter of its layers, whose shapes are known to be sound, if all fits together.
    pub(crate) fn assemble(
        layers: Vec<Layer>,
        items: u64,
        flags: u64,
        expansion: u64,
    ) -> Option<Bloom> {
        let is_fixed = flags & FIXED != 0;
        let sum = layers.iter().try_fold(0_u64, |sum, layer| sum.checked_add(layer.len()));
        let expansion = u32::try_from(expansion).ok().filter(|&by| by <= MAX_EXPANSION)?;
        let is_sound = flags & !(NO_ROUND | WIDE | FIXED) == 0
            && flags & WIDE != 0
            && !layers.is_empty()
            && (is_fixed || expansion > 0)
            && sum == Some(items);
        is_sound.then_some(Bloom { layers, items, expansion, is_fixed, family: Family::Murmur })
    }
}

/// What is left of a header.
struct Fields<'a>(&'a [u8]);

impl Fields<'_> {
    fn array<const N: usize>(&mut self) -> Result<[u8; N], ChunkError> {
        let (field, rest) = self.0.split_first_chunk().ok_or(ChunkError::Bad)?;
        self.0 = rest;
        Ok(*field)
    }
    fn u8(&mut self) -> Result<u8, ChunkError> {
        self.array().map(|[byte]| byte)
    }
    fn u32(&mut self) -> Result<u32, ChunkError> {
        self.array().map(u32::from_le_bytes)
    }
    fn u64(&mut self) -> Result<u64, ChunkError> {
        self.array().map(u64::from_le_bytes)
    }
    fn f64(&mut self) -> Result<f64, ChunkError> {
        self.array().map(f64::from_le_bytes)
    }
}

//! Filters of Redis's in files: the payload of `MBbloom--`.
//!
//! ```text
//!  items │ layers │ flags │ expansion (from version 4)
//!  then each layer: capacity │ rate (double) │ hashes │ bits an item (double) │ bits
//!                   │ log2 of bits │ the bits (string) │ items
//!  seed (from version 5)
//! ```
//!
//! Numbers without a word are unsigned. Version 4 is written, which Redis has read for years.
//! Sources: RedisShake (`mbbloom.go`, MIT); version 5 by the public tests of RedisBloom. Refused
//! are filters with another seed than the usual one, and those with hashes of 32 bits, which old
//! modules wrote.

use super::Bloom;
use super::layer::{Layer, Shape};
use super::probes::SEED;
use rdb::Error;
use rdb::module::{Reader, Writer};

/// The name in files and in replies of TYPE.
pub const NAME: &str = "MBbloom--";
/// The version in files.
pub const VERSION: u16 = 4;
/// The versions that are read.
pub const READ_VERSIONS: &[u16] = &[2, 3, 4, 5];

const DAMAGED: Error = Error::Corrupt("a Bloom filter");
/// The least bytes of a layer in a file.
const LEAST_LAYER: usize = 30;

/// Writes a filter that is not of Valkey's family.
pub fn save(bloom: &Bloom, to: &mut Writer<'_>) {
    to.unsigned(bloom.items);
    to.unsigned(bloom.layers.len() as u64);
    to.unsigned(bloom.flags());
    to.unsigned(bloom.expansion.into());
    for layer in &bloom.layers {
        let shape = layer.shape();
        to.unsigned(shape.capacity);
        to.double(shape.rate);
        to.unsigned(shape.hashes.into());
        to.double(shape.bits_per_item);
        to.unsigned(shape.bits);
        to.unsigned(shape.log2_bits.into());
        to.string(layer.as_bytes());
        to.unsigned(layer.len());
    }
}

/// Reads a filter.
///
/// # Errors
/// The payload is damaged, or of a version or kind that is not known.
pub fn load(from: &mut Reader<'_, '_>, version: u16) -> Result<Bloom, Error> {
    if !READ_VERSIONS.contains(&version) {
        return Err(Error::Corrupt("a Bloom filter of an unknown version"));
    }
    let items = from.unsigned()?;
    let count = from.count(LEAST_LAYER)?;
    let flags = from.unsigned()?;
    if flags & super::dump::WIDE == 0 {
        return Err(Error::Corrupt("a Bloom filter with hashes of 32 bits"));
    }
    let expansion = if version >= 4 { from.unsigned()? } else { 2 };
    let mut layers = Vec::with_capacity(count);
    for _ in 0..count {
        layers.push(load_layer(from)?);
    }
    if version >= 5 && from.unsigned()? != SEED {
        return Err(Error::Corrupt("a Bloom filter with a seed of its own"));
    }
    Bloom::assemble(layers, items, flags, expansion).ok_or(DAMAGED)
}

fn load_layer(from: &mut Reader<'_, '_>) -> Result<Layer, Error> {
    let capacity = from.unsigned()?;
    let rate = from.double()?;
    let hashes = u32::try_from(from.unsigned()?).map_err(|_| DAMAGED)?;
    let bits_per_item = from.double()?;
    let bits = from.unsigned()?;
    let log2_bits = u8::try_from(from.unsigned()?).map_err(|_| DAMAGED)?;
    let bytes = from.string()?;
    let items = from.unsigned()?;
    let shape = Shape { capacity, rate, bits_per_item, hashes, bits, log2_bits };
    Layer::from_parts(shape, &bytes, items).ok_or(DAMAGED)
}

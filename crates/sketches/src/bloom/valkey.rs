//! Filters of Valkey's: the payload of `bloomfltr` in files, and that of BF.LOAD.
//!
//! ```text
//!  file, version 1      layers │ expansion │ rate (double) │ tightening (double) │ seed is random
//!                       then each layer: block (string) │ capacity; the last one also: items
//!  BF.LOAD, version 1   1 u8 │ expansion u32 │ rate f64 │ tightening f64
//!                       │ seed is random u8 │ layers u64
//!                       then each layer: bytes u64 │ block │ items i64 │ capacity i64
//!  block                1 u8 │ bytes of bits u64 │ hashes u32 │ seed 32 bytes │ bits
//! ```
//!
//! Numbers of BF.LOAD and blocks are little-endian. Sources: valkey-bloom (BSD) and the crate
//! `bloomfilter` (ISC), whose blocks these are.

use super::layer::{Layer, MOST_HASHES, Shape};
use super::{Bloom, Family, MAX_EXPANSION, Sip};
use rdb::Error;
use rdb::module::{Reader, Writer};

/// The name in files and in replies of TYPE.
pub const NAME: &str = "bloomfltr";
/// The version in files.
pub const VERSION: u16 = 1;

const DAMAGED: Error = Error::Corrupt("a Bloom filter");
const BLOCK_VERSION: u8 = 1;
const BLOCK_HEADER: usize = 1 + 8 + 4 + 32;
const LOAD_VERSION: u8 = 1;
/// The least bytes of a layer in a file.
const LEAST_LAYER: usize = BLOCK_HEADER + 4;

/// Why BF.LOAD refuses a payload.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum LoadError {
    /// It is damaged.
    Damaged,
    /// It is of another version.
    Version,
    /// The expansion is out of range.
    Expansion,
    /// A rate is out of range.
    Rate,
    /// The filter is larger than the limit.
    TooLarge,
}

/// Writes a filter of Valkey's family.
pub fn save(bloom: &Bloom, to: &mut Writer<'_>) {
    let Family::Sip(sip) = &bloom.family else { return };
    to.unsigned(bloom.layers.len() as u64);
    to.unsigned(bloom.expansion().unwrap_or(0).into());
    to.double(sip.rate);
    to.double(sip.tightening);
    to.unsigned(sip.is_seed_random.into());
    let last = bloom.layers.len() - 1;
    for (index, layer) in bloom.layers.iter().enumerate() {
        to.string(&block(layer, &sip.seed));
        to.unsigned(layer.capacity());
        if index == last {
            to.unsigned(layer.len());
        }
    }
}

fn block(layer: &Layer, seed: &[u8; 32]) -> Vec<u8> {
    let mut block = Vec::with_capacity(BLOCK_HEADER + layer.bytes());
    block.push(BLOCK_VERSION);
    block.extend((layer.bytes() as u64).to_le_bytes());
    block.extend(layer.hashes().to_le_bytes());
    block.extend(seed);
    block.extend_from_slice(layer.as_bytes());
    block
}

/// Reads a filter.
///
/// # Errors
/// The payload is damaged or of an unknown version.
pub fn load(from: &mut Reader<'_, '_>, version: u16) -> Result<Bloom, Error> {
    if version != VERSION {
        return Err(Error::Corrupt("a Bloom filter of an unknown version"));
    }
    let count = from.count(LEAST_LAYER)?;
    let expansion = u32::try_from(from.unsigned()?).map_err(|_| DAMAGED)?;
    let (rate, tightening) = (from.double()?, from.double()?);
    let is_seed_random = from.unsigned()? == 1;
    let mut parts =
        Parts { expansion, rate, tightening, is_seed_random, layers: Vec::new(), seed: None };
    for index in 0..count {
        let block = from.string()?;
        let capacity = from.unsigned()?;
        let items = if index + 1 == count { from.unsigned()? } else { capacity };
        parts.add(&block, capacity, items).map_err(|_| DAMAGED)?;
    }
    parts.finish().map_err(|_| DAMAGED)
}

/// Returns the payload of BF.LOAD, or `None` if the filter is not of Valkey's family.
#[cfg(test)]
pub(super) fn encode(bloom: &Bloom) -> Option<Vec<u8>> {
    let Family::Sip(sip) = &bloom.family else { return None };
    let mut to = vec![LOAD_VERSION];
    to.extend(bloom.expansion().unwrap_or(0).to_le_bytes());
    to.extend(sip.rate.to_le_bytes());
    to.extend(sip.tightening.to_le_bytes());
    to.push(sip.is_seed_random.into());
    to.extend((bloom.layers.len() as u64).to_le_bytes());
    for layer in &bloom.layers {
        let block = block(layer, &sip.seed);
        to.extend((block.len() as u64).to_le_bytes());
        to.extend(block);
        to.extend(layer.len().to_le_bytes());
        to.extend(layer.capacity().to_le_bytes());
    }
    Some(to)
}

/// Reads the payload of BF.LOAD.
///
/// # Errors
/// It is damaged, or the filter is larger than `limit` bytes.
pub fn decode(payload: &[u8], limit: usize) -> Result<Bloom, LoadError> {
    let mut from = Fields(payload);
    if from.array()? != [LOAD_VERSION] {
        return Err(LoadError::Version);
    }
    let expansion = u32::from_le_bytes(from.array()?);
    let rate = f64::from_le_bytes(from.array()?);
    let tightening = f64::from_le_bytes(from.array()?);
    let [is_random] = from.array()?;
    let count = u64::from_le_bytes(from.array()?);
    if is_random > 1 {
        return Err(LoadError::Damaged);
    }
    let is_seed_random = is_random == 1;
    let mut parts =
        Parts { expansion, rate, tightening, is_seed_random, layers: Vec::new(), seed: None };
    for _ in 0..count {
        let block = from.block()?;
        let items = u64::from_le_bytes(from.array()?);
        let capacity = u64::from_le_bytes(from.array()?);
        parts.add(block, capacity, items)?;
    }
    if !from.0.is_empty() {
        return Err(LoadError::Damaged);
    }
    let bloom = parts.finish()?;
    if bloom.reported_bytes() > limit { Err(LoadError::TooLarge) } else { Ok(bloom) }
}

/// A filter that is being read.
struct Parts {
    expansion: u32,
    rate: f64,
    tightening: f64,
    is_seed_random: bool,
    layers: Vec<Layer>,
    seed: Option<[u8; 32]>,
}

impl Parts {
    fn add(&mut self, block: &[u8], capacity: u64, items: u64) -> Result<(), LoadError> {
        let mut from = Fields(block);
        let [version] = from.array()?;
        let bytes = u64::from_le_bytes(from.array()?);
        let hashes = u32::from_le_bytes(from.array()?);
        let seed: [u8; 32] = from.array()?;
        let bits = from.0;
        if version != BLOCK_VERSION
            || bytes != bits.len() as u64
            || bits.is_empty()
            || self.seed.is_some_and(|known| known != seed)
            || hashes > MOST_HASHES
        {
            return Err(LoadError::Damaged);
        }
        self.seed = Some(seed);
        let power = i32::try_from(self.layers.len()).map_err(|_| LoadError::Damaged)?;
        let count = bytes * 8;
        let shape = Shape {
            capacity,
            rate: self.rate * self.tightening.powi(power),
            bits_per_item: count as f64 / capacity as f64,
            hashes,
            bits: count,
            log2_bits: 0,
        };
        self.layers.push(Layer::from_parts(shape, bits, items).ok_or(LoadError::Damaged)?);
        Ok(())
    }

    fn finish(self) -> Result<Bloom, LoadError> {
        if self.expansion > MAX_EXPANSION {
            return Err(LoadError::Expansion);
        }
        let is_rate = |rate: f64| rate > 0.0 && rate < 1.0;
        if !is_rate(self.rate) || !is_rate(self.tightening) {
            return Err(LoadError::Rate);
        }
        let seed = self.seed.ok_or(LoadError::Damaged)?;
        let items = self.layers.iter().try_fold(0_u64, |sum, layer| sum.checked_add(layer.len()));
        let sip = Sip {
            seed,
            is_seed_random: self.is_seed_random,
            rate: self.rate,
            tightening: self.tightening,
        };
        Ok(Bloom {
            layers: self.layers,
            items: items.ok_or(LoadError::Damaged)?,
            expansion: self.expansion,
            is_fixed: self.expansion == 0,
            family: Family::Sip(Box::new(sip)),
        })
    }
}

/// What is left of a payload.
struct Fields<'a>(&'a [u8]);

impl<'a> Fields<'a> {
    fn array<const N: usize>(&mut self) -> Result<[u8; N], LoadError> {
        let (field, rest) = self.0.split_first_chunk().ok_or(LoadError::Damaged)?;
        self.0 = rest;
        Ok(*field)
    }

    fn block(&mut self) -> Result<&'a [u8], LoadError> {
        let len = usize::try_from(u64::from_le_bytes(self.array()?)).unwrap_or(usize::MAX);
        let (block, rest) = self.0.split_at_checked(len).ok_or(LoadError::Damaged)?;
        self.0 = rest;
        Ok(block)
    }
}

//! One layer of a filter: an array of bits for a number of items.

use super::probes::Probes;
use std::f64::consts::LN_2;
use structs::table::prefetch;

/// Most bits that are tested for an item: what the smallest rate that is a number asks for.
pub(crate) const MOST_HASHES: u32 = 1100;

/// The dimensions of a layer.
#[derive(Clone, Copy, PartialEq, Debug)]
pub(crate) struct Shape {
    /// Items that it takes.
    pub(crate) capacity: u64,
    /// The rate of wrong yeses when it is full.
    pub(crate) rate: f64,
    /// Bits for each item, by the formula.
    pub(crate) bits_per_item: f64,
    /// Bits that are tested for an item.
    pub(crate) hashes: u32,
    /// Bits in all.
    pub(crate) bits: u64,
    /// The binary logarithm of `bits` if they were rounded up to a power of 2, else 0.
    pub(crate) log2_bits: u8,
}

impl Shape {
    /// Returns the dimensions of a layer of Redis's, or `None` if there are none.
    pub(crate) fn of_redis(capacity: u64, rate: f64) -> Option<Shape> {
        if capacity == 0 || !(rate > 0.0 && rate < 1.0) {
            return None;
        }
        let bits_per_item = -rate.ln() / (LN_2 * LN_2);
        let hashes = (LN_2 * bits_per_item).ceil() as u32;
        let bits = capacity as f64 * bits_per_item;
        if bits >= (1_u64 << 60) as f64 {
            return None;
        }
        // Rates near 1 ask for less than a bit.
        let bits = (bits as u64).max(1).next_multiple_of(64);
        Some(Shape { capacity, rate, bits_per_item, hashes: hashes.max(1), bits, log2_bits: 0 })
    }

    /// Returns the dimensions of a layer of Valkey's, or `None` if there are none.
    pub(crate) fn of_valkey(capacity: u64, rate: f64) -> Option<Shape> {
        if capacity == 0 || !(rate > f64::MIN_POSITIVE && rate < 1.0) {
            return None;
        }
        let bytes = (capacity as f64 * rate.ln() / (-8.0 * LN_2 * LN_2)).ceil();
        if bytes >= (1_u64 << 57) as f64 {
            return None;
        }
        let bits = (bytes as u64).max(1) * 8;
        let bits_per_item = bits as f64 / capacity as f64;
        let hashes = (bits_per_item * LN_2).round().clamp(1.0, f64::from(MOST_HASHES)) as u32;
        Some(Shape { capacity, rate, bits_per_item, hashes, bits, log2_bits: 0 })
    }

    /// Returns whether a layer from outside has dimensions that are safe to use, with `bytes` bytes
    /// of bits.
    pub(crate) fn is_sound(&self, bytes: u64) -> bool {
        let is_power = self.log2_bits == 0
            || self.log2_bits < 60 && self.bits == 1 << u32::from(self.log2_bits);
        self.capacity > 0
            && self.rate > 0.0
            && self.rate < 1.0
            && self.bits_per_item.is_finite()
            && self.bits_per_item > 0.0
            && (1..=MOST_HASHES).contains(&self.hashes)
            && self.bits > 0
            && bytes.checked_mul(8).is_some_and(|all| self.bits <= all && all - self.bits < 64)
            && is_power
    }
}

/// A layer.
#[derive(Clone, PartialEq, Debug)]
pub struct Layer {
    bits: Box<[u8]>,
    items: u64,
    shape: Shape,
}

impl Layer {
    /// Returns an empty layer.
    pub(crate) fn new(shape: Shape) -> Layer {
        let bytes = usize::try_from(shape.bits.div_ceil(8)).expect("the limit was checked before");
        Layer::sized(shape, bytes)
    }

    /// Returns an empty layer with so many bytes of bits, for a sound shape.
    pub(crate) fn sized(shape: Shape, bytes: usize) -> Layer {
        // The allocator gets zeroed pages from the kernel: a large layer costs what is used of it.
        Layer { bits: vec![0; bytes].into_boxed_slice(), items: 0, shape }
    }

    /// Returns a layer of what was read, if it is sound.
    pub(crate) fn from_parts(shape: Shape, bits: &[u8], items: u64) -> Option<Layer> {
        (shape.is_sound(bits.len() as u64) && items <= shape.capacity).then(|| Layer {
            bits: bits.into(),
            items,
            shape,
        })
    }

    /// Returns the number of items for which there is space.
    pub fn capacity(&self) -> u64 {
        self.shape.capacity
    }

    /// Returns the number of items in it.
    pub fn len(&self) -> u64 {
        self.items
    }

    /// Returns whether nothing was added to it.
    pub fn is_empty(&self) -> bool {
        self.items == 0
    }

    /// Returns the rate of wrong yeses when it is full.
    pub fn rate(&self) -> f64 {
        self.shape.rate
    }

    /// Returns how many bits are tested for an item.
    pub fn hashes(&self) -> u32 {
        self.shape.hashes
    }

    /// Returns the number of its bits.
    pub fn bits(&self) -> u64 {
        self.shape.bits
    }

    /// Returns the bytes of its bits.
    pub fn bytes(&self) -> usize {
        self.bits.len()
    }

    pub(crate) fn shape(&self) -> Shape {
        self.shape
    }

    pub(crate) fn as_bytes(&self) -> &[u8] {
        &self.bits
    }

    pub(crate) fn as_mut_bytes(&mut self) -> &mut [u8] {
        &mut self.bits
    }

    pub(crate) fn set_items(&mut self, items: u64) {
        self.items = items;
    }

    pub(crate) fn is_full(&self) -> bool {
        self.items >= self.shape.capacity
    }

    #[inline]
    pub(crate) fn contains(&self, probes: Probes) -> bool {
        (0..self.shape.hashes).all(|index| {
            let bit = probes.at(index) % self.shape.bits;
            self.bits[(bit >> 3) as usize] & 1 << (bit & 7) != 0
        })
    }

    pub(crate) fn add(&mut self, probes: Probes) {
        for index in 0..self.shape.hashes {
            let bit = probes.at(index) % self.shape.bits;
            self.bits[(bit >> 3) as usize] |= 1 << (bit & 7);
        }
        self.items += 1;
    }

    pub(crate) fn prefetch(&self, probes: Probes) {
        for index in 0..self.shape.hashes {
            let bit = probes.at(index) % self.shape.bits;
            prefetch(&raw const self.bits[(bit >> 3) as usize]);
        }
    }
}

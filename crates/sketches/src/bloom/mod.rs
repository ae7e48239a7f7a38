//! Bloom filters that grow: whether an item was added, with a bounded rate of wrong yeses.
//!
//! ```text
//!  Bloom ── layers ─┬─ oldest   capacity c        rate e/2   bits ▓▓▓▓
//!                   ├─          capacity c·x      rate e/4   bits ▓▓▓▓▓▓▓▓
//!                   └─ newest   capacity c·x·x    rate e/8   bits ▓▓░░░░░░░░░░░░░░
//! ```
//!
//! An item is looked for in every layer and added to the newest. When the newest has as many items
//! as its capacity, a layer is added that is larger by the factor `expansion` and whose error rate
//! is half of the last one's, so that the rates of all add up to less than what was asked for
//! (Almeida, Baquero, Preguiça, Hutchison: Scalable Bloom Filters, 2007). A filter that must not
//! grow has one layer with the full rate.
//!
//! A layer for `n` items at the rate `e` has `n · -ln e / ln² 2` bits, rounded up to 64, and tests
//! `⌈-log2 e⌉` of them. Which ones follows from two hashes of the item (Kirsch, Mitzenmacher: Less
//! Hashing, Same Performance, 2006), see [`Family`].
//!
//! Adding and testing costs a cache miss a bit once the filter is larger than the caches.
//! [`Bloom::add_all`] and [`Bloom::contains_all`] hash many items first and fetch their bits
//! together.
//!
//! Sources: the formulas of the papers and of libbloom (BSD); hashes, seeds and rounding as
//! RedisShake (MIT) and the public tests of RedisBloom show them.

mod dump;
pub mod file;
mod layer;
mod probes;
pub mod valkey;

#[cfg(test)]
mod tests;

pub use dump::ChunkError;
pub use layer::Layer;

use probes::Probes;

/// The largest capacity of the first layer.
pub const MAX_CAPACITY: u64 = 1 << 30;

/// The largest factor by which layers grow.
pub const MAX_EXPANSION: u32 = 32_768;

/// Bytes of a filter and of a layer beside its bits, as BF.INFO counts them on every platform.
const HEAD_BYTES: usize = 32;
const LAYER_BYTES: usize = 64;

/// Most bits that are fetched ahead.
const MOST_FETCHED: usize = 512;
/// Most items whose bits are fetched together.
const MOST_TOGETHER: usize = 32;
/// A filter of fewer bytes is in the caches anyway.
const FETCHED_FROM: usize = 128 << 10;

/// How a filter places items, and what belongs to that.
#[derive(Clone, PartialEq, Debug)]
pub enum Family {
    /// Redis's: MurmurHash64A with a fixed seed, then with the first hash as the seed.
    Murmur,
    /// Valkey's: SipHash-1-3 by two keys. Layers have the rates `rate · tightening ⁿ`.
    Sip(Box<Sip>),
}

/// What Valkey's filters have beside their layers.
#[derive(Clone, PartialEq, Debug)]
pub struct Sip {
    /// Both keys.
    pub seed: [u8; 32],
    /// Whether the keys were drawn by chance.
    pub is_seed_random: bool,
    /// The rate of the first layer.
    pub rate: f64,
    /// The factor from one layer's rate to the next one's.
    pub tightening: f64,
}

/// What a filter is created with.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct BloomOptions {
    /// Items that the first layer takes, from 1 to [`MAX_CAPACITY`].
    pub capacity: u64,
    /// The promised rate of wrong yeses, above 0 and below 1.
    pub rate: f64,
    /// How much larger the next layer is, up to [`MAX_EXPANSION`]; 0 if there may be none.
    pub expansion: u32,
}

impl Default for BloomOptions {
    fn default() -> Self {
        BloomOptions { capacity: 100, rate: 0.01, expansion: 2 }
    }
}

/// Why a filter cannot be created or take an item.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Error {
    /// Its only layer has as many items as its capacity.
    Full,
    /// It would be larger than the limit.
    TooLarge,
    /// The rate, halved for the next layer, is 0, or the next capacity has no number.
    Degenerate,
}

/// A Bloom filter.
#[derive(Clone, PartialEq, Debug)]
pub struct Bloom {
    layers: Vec<Layer>,
    items: u64,
    /// Kept for files if the filter does not grow.
    expansion: u32,
    is_fixed: bool,
    family: Family,
}

impl Bloom {
    /// Creates a filter of at most `limit` bytes.
    ///
    /// # Errors
    /// It would be larger, or the rate is too small for a number.
    pub fn new(options: BloomOptions, limit: usize) -> Result<Bloom, Error> {
        let is_fixed = options.expansion == 0;
        let rate = if is_fixed { options.rate } else { options.rate / 2.0 };
        let mut bloom = Bloom {
            layers: Vec::with_capacity(1),
            items: 0,
            expansion: options.expansion,
            is_fixed,
            family: Family::Murmur,
        };
        bloom.grow(options.capacity, rate, limit)?;
        Ok(bloom)
    }

    /// Returns whether the item was added, or another one that looks the same.
    pub fn contains(&self, item: &[u8]) -> bool {
        self.has(Probes::of(&self.family, item))
    }

    /// Tells of each item in turn whether it was added.
    pub fn contains_all(&self, items: &[&[u8]], mut tell: impl FnMut(bool)) {
        for together in items.chunks(self.together()) {
            let probes = self.fetch(together);
            probes.iter().take(together.len()).for_each(|&probes| tell(self.has(probes)));
        }
    }

    /// Adds an item. Returns whether it was new. The filter grows to at most `limit` bytes.
    ///
    /// # Errors
    /// It cannot take the item. Nothing has changed.
    pub fn add(&mut self, item: &[u8], limit: usize) -> Result<bool, Error> {
        self.add_at(Probes::of(&self.family, item), limit)
    }

    /// Adds items in turn and tells of each what [`Bloom::add`] returns. Ends with the first error.
    pub fn add_all(
        &mut self,
        items: &[&[u8]],
        limit: usize,
        mut tell: impl FnMut(Result<bool, Error>),
    ) {
        let mut rest = items;
        while !rest.is_empty() {
            let (together, others) = rest.split_at(self.together().min(rest.len()));
            rest = others;
            let probes = self.fetch(together);
            for &probes in probes.iter().take(together.len()) {
                let added = self.add_at(probes, limit);
                tell(added);
                if added.is_err() {
                    return;
                }
            }
        }
    }

    /// Returns the number of items that were added and were new.
    pub fn len(&self) -> u64 {
        self.items
    }

    /// Returns whether nothing was added.
    pub fn is_empty(&self) -> bool {
        self.items == 0
    }

    /// Returns the sum of the layers' capacities.
    pub fn capacity(&self) -> u64 {
        self.layers.iter().fold(0, |sum: u64, layer| sum.saturating_add(layer.capacity()))
    }

    /// Returns the layers, the oldest first. There is at least one.
    pub fn layers(&self) -> &[Layer] {
        &self.layers
    }

    /// Returns the factor by which the next layer is larger, or `None` if there may be none.
    pub fn expansion(&self) -> Option<u32> {
        (!self.is_fixed).then_some(self.expansion)
    }

    /// Returns how items are placed.
    pub fn family(&self) -> &Family {
        &self.family
    }

    /// Returns the size that BF.INFO reports: bits, 64 bytes a layer, 32 bytes.
    pub fn reported_bytes(&self) -> usize {
        HEAD_BYTES + self.layers.iter().map(|layer| LAYER_BYTES + layer.bytes()).sum::<usize>()
    }

    /// Returns the bytes of its blocks, those of the filter itself excepted.
    pub fn allocated_bytes(&self) -> usize {
        let layers = self.layers.capacity() * size_of::<Layer>();
        let sip = if matches!(self.family, Family::Sip(_)) { size_of::<Sip>() } else { 0 };
        layers + sip + self.layers.iter().map(Layer::bytes).sum::<usize>()
    }

    fn has(&self, probes: Probes) -> bool {
        self.layers.iter().rev().any(|layer| layer.contains(probes))
    }

    fn add_at(&mut self, probes: Probes, limit: usize) -> Result<bool, Error> {
        if self.has(probes) {
            return Ok(false);
        }
        let newest = self.newest();
        if newest.is_full() {
            if self.is_fixed {
                return Err(Error::Full);
            }
            let capacity = newest.capacity().checked_mul(self.expansion.into());
            let rate = self.next_rate();
            self.grow(capacity.ok_or(Error::Degenerate)?, rate, limit)?;
        }
        self.layers.last_mut().expect("a filter has a layer").add(probes);
        self.items += 1;
        Ok(true)
    }

    fn newest(&self) -> &Layer {
        self.layers.last().expect("a filter has a layer")
    }

    fn next_rate(&self) -> f64 {
        match &self.family {
            Family::Murmur => self.newest().rate() / 2.0,
            Family::Sip(sip) => {
                sip.rate * sip.tightening.powi(i32::try_from(self.layers.len()).unwrap_or(i32::MAX))
            }
        }
    }

    /// Adds a layer if the filter then has at most `limit` bytes.
    fn grow(&mut self, capacity: u64, rate: f64, limit: usize) -> Result<(), Error> {
        let shape = match self.family {
            Family::Murmur => layer::Shape::of_redis(capacity, rate),
            Family::Sip(_) => layer::Shape::of_valkey(capacity, rate),
        };
        let shape = shape.ok_or(Error::Degenerate)?;
        let bytes = usize::try_from(shape.bits / 8).unwrap_or(usize::MAX);
        let all = self.reported_bytes().saturating_add(LAYER_BYTES).saturating_add(bytes);
        if all > limit {
            return Err(Error::TooLarge);
        }
        self.layers.push(Layer::new(shape));
        Ok(())
    }

    /// Returns how many items are worth fetching together: 1 if the filter is small.
    fn together(&self) -> usize {
        let bytes: usize = self.layers.iter().map(Layer::bytes).sum();
        if bytes < FETCHED_FROM {
            return MOST_TOGETHER;
        }
        let tests = self.layers.iter().map(|layer| layer.hashes() as usize).sum::<usize>();
        (MOST_FETCHED / tests.max(1)).clamp(1, MOST_TOGETHER)
    }

    /// Hashes items, at most [`MOST_TOGETHER`], and fetches their bits if the filter is large.
    fn fetch(&self, items: &[&[u8]]) -> [Probes; MOST_TOGETHER] {
        let mut all = [Probes::default(); MOST_TOGETHER];
        let is_fetched = self.allocated_bytes() >= FETCHED_FROM && items.len() > 1;
        for (probes, item) in all.iter_mut().zip(items) {
            *probes = Probes::of(&self.family, item);
            if is_fetched {
                self.layers.iter().for_each(|layer| layer.prefetch(*probes));
            }
        }
        all
    }
}

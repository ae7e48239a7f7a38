//! Cuckoo filters: whether an item was added and not removed, with a bounded rate of wrong yeses
//! (Fan, Andersen, Kaminsky, Mitzenmacher: Cuckoo Filter: Practically Better Than Bloom, 2014).
//!
//! ```text
//!  a layer of 4 buckets of 2      item ── hash h ── fingerprint f = h mod 255 + 1
//!   │ 17   0 │                              first bucket  h mod 4
//!   │ 201 34 │ ◀── f or another             second bucket (h xor f · c) mod 4
//!   │  0   0 │
//!   │ 34   0 │ ◀── f or another
//! ```
//!
//! A fingerprint of 8 bits lies in one of two buckets. Each follows from the other and the
//! fingerprint, so one that is in the way can be moved to its other bucket. If all are full after
//! some moves, a layer is added that is larger by the factor `expansion`. The number of buckets is
//! a power of 2.
//!
//! The rate of wrong yeses is about `2 · bucket size · layers / 255`.
//!
//! Sources: the paper and its authors' program (Apache 2.0) for the constant; sizes, layers and
//! dumps by the public tests of RedisBloom.

mod dump;
pub mod file;

#[cfg(test)]
mod tests;

pub use dump::ChunkError;

use structs::murmur::murmur64a;
use structs::table::prefetch;

/// A filter with so many layers takes no more items.
pub const MAX_LAYERS: usize = 32;
/// The largest bucket.
pub const MAX_BUCKET_SIZE: u16 = 255;
/// The largest factor by which layers grow.
pub const MAX_EXPANSION: u16 = 32_768;

/// Spreads fingerprints, as in the authors' program.
const SPREAD: u64 = 0x5bd1_e995;
/// Bytes of a filter and of a layer beside its buckets, as CF.INFO counts them on every platform.
const HEAD_BYTES: usize = 40;
const LAYER_BYTES: usize = 16;
/// Most items whose buckets are fetched together.
const MOST_TOGETHER: usize = 32;
/// A filter of fewer bytes is in the caches anyway.
const FETCHED_FROM: usize = 128 << 10;

/// What a filter is created with.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct CuckooOptions {
    /// Items that the first layer has space for, at least two buckets.
    pub capacity: u64,
    /// Fingerprints in a bucket, from 1 to [`MAX_BUCKET_SIZE`].
    pub bucket_size: u16,
    /// The most moves for one item, at least 1.
    pub max_iterations: u16,
    /// How much larger the next layer is; 0 if there may be none. It is rounded up to a power of 2.
    pub expansion: u16,
}

impl Default for CuckooOptions {
    fn default() -> Self {
        CuckooOptions { capacity: 1024, bucket_size: 2, max_iterations: 20, expansion: 1 }
    }
}

/// Why a filter cannot be created or take an item.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Error {
    /// It is full and must not grow.
    Full,
    /// It has [`MAX_LAYERS`] layers.
    Exhausted,
    /// It would be larger than the limit.
    TooLarge,
}

/// A filter.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Cuckoo {
    /// The fingerprints of each layer, 0 where there is none.
    layers: Vec<Box<[u8]>>,
    /// Buckets of the first layer.
    buckets: u64,
    items: u64,
    deleted: u64,
    bucket_size: u16,
    max_iterations: u16,
    expansion: u16,
}

/// Where an item belongs.
#[derive(Clone, Copy)]
struct CuckooPlace {
    fingerprint: u8,
    first: u64,
    second: u64,
}

impl CuckooPlace {
    fn of(item: &[u8]) -> CuckooPlace {
        let first = murmur64a(item, 0);
        let fingerprint = (first % 255) as u8 + 1;
        CuckooPlace { fingerprint, first, second: other(fingerprint, first) }
    }
}

/// Returns the other bucket of a fingerprint.
fn other(fingerprint: u8, bucket: u64) -> u64 {
    bucket ^ u64::from(fingerprint).wrapping_mul(SPREAD)
}

impl Cuckoo {
    /// Creates a filter of at most `limit` bytes.
    ///
    /// # Errors
    /// It would be larger.
    pub fn new(options: CuckooOptions, limit: usize) -> Result<Cuckoo, Error> {
        let buckets = options.capacity / u64::from(options.bucket_size);
        let buckets = buckets.checked_next_power_of_two().ok_or(Error::TooLarge)?;
        let expansion = options.expansion.checked_next_power_of_two().unwrap_or(MAX_EXPANSION);
        let mut filter = Cuckoo {
            layers: Vec::with_capacity(1),
            buckets,
            items: 0,
            deleted: 0,
            bucket_size: options.bucket_size,
            max_iterations: options.max_iterations,
            expansion: if options.expansion == 0 { 0 } else { expansion },
        };
        filter.grow(limit)?;
        Ok(filter)
    }

    /// Adds an item, whether it is there or not. The filter grows to at most `limit` bytes.
    ///
    /// # Errors
    /// It cannot take the item. Nothing has changed.
    pub fn add(&mut self, item: &[u8], limit: usize) -> Result<(), Error> {
        // So does Redis, whatever space there is.
        if self.layers.len() >= MAX_LAYERS {
            return Err(Error::Exhausted);
        }
        let place = CuckooPlace::of(item);
        if !self.put_into_free(place) && !self.put_by_moving(place) {
            if self.expansion == 0 {
                return Err(Error::Full);
            }
            self.grow(limit)?;
            let is_put = self.put_into_free(place);
            debug_assert!(is_put, "a new layer is empty");
        }
        self.items += 1;
        Ok(())
    }

    /// Adds an item if it is not there. Returns whether it was not.
    ///
    /// # Errors
    /// As [`Cuckoo::add`].
    pub fn add_new(&mut self, item: &[u8], limit: usize) -> Result<bool, Error> {
        if self.contains(item) {
            return Ok(false);
        }
        self.add(item, limit).map(|()| true)
    }

    /// Removes an item once. Returns whether it was there.
    pub fn remove(&mut self, item: &[u8]) -> bool {
        let place = CuckooPlace::of(item);
        let size = usize::from(self.bucket_size);
        for layer in self.layers.iter_mut().rev() {
            for bucket in [place.first, place.second] {
                let at = start(bucket, layer.len(), size);
                let slots = &mut layer[at..at + size];
                if let Some(slot) = slots.iter_mut().find(|slot| **slot == place.fingerprint) {
                    *slot = 0;
                    self.items = self.items.saturating_sub(1);
                    self.deleted += 1;
                    return true;
                }
            }
        }
        false
    }

    /// Returns whether an item is there, or another one that looks the same.
    pub fn contains(&self, item: &[u8]) -> bool {
        self.has(CuckooPlace::of(item))
    }

    /// Tells of each item in turn whether it is there.
    pub fn contains_all(&self, items: &[&[u8]], mut tell: impl FnMut(bool)) {
        for together in items.chunks(MOST_TOGETHER) {
            self.fetch(together);
            together.iter().for_each(|item| tell(self.contains(item)));
        }
    }

    /// Fetches the buckets of items, at most 32, if the filter is large.
    pub fn fetch(&self, items: &[&[u8]]) {
        if items.len() < 2
            || self.layers.iter().map(|layer| layer.len()).sum::<usize>() < FETCHED_FROM
        {
            return;
        }
        for item in items.iter().take(MOST_TOGETHER) {
            let place = CuckooPlace::of(item);
            for layer in &self.layers {
                for bucket in [place.first, place.second] {
                    let size = usize::from(self.bucket_size);
                    prefetch(&raw const layer[start(bucket, layer.len(), size)]);
                }
            }
        }
    }

    /// Returns how often an item was added and not removed, or more.
    pub fn count(&self, item: &[u8]) -> u64 {
        let place = CuckooPlace::of(item);
        let size = usize::from(self.bucket_size);
        let mut count = 0;
        for layer in &self.layers {
            let starts = [place.first, place.second].map(|it| start(it, layer.len(), size));
            let buckets = if starts[0] == starts[1] { &starts[..1] } else { &starts[..] };
            for &at in buckets {
                let slots = &layer[at..at + size];
                count += slots.iter().filter(|slot| **slot == place.fingerprint).count() as u64;
            }
        }
        count
    }

    fn has(&self, place: CuckooPlace) -> bool {
        let size = usize::from(self.bucket_size);
        self.layers.iter().rev().any(|layer| {
            [place.first, place.second].iter().any(|&bucket| {
                layer[start(bucket, layer.len(), size)..][..size].contains(&place.fingerprint)
            })
        })
    }

    /// Puts a fingerprint where there is space, in the newest layer if possible.
    fn put_into_free(&mut self, place: CuckooPlace) -> bool {
        let size = usize::from(self.bucket_size);
        for layer in self.layers.iter_mut().rev() {
            for bucket in [place.first, place.second] {
                let at = start(bucket, layer.len(), size);
                let slots = &mut layer[at..at + size];
                if let Some(slot) = slots.iter_mut().find(|slot| **slot == 0) {
                    *slot = place.fingerprint;
                    return true;
                }
            }
        }
        false
    }

    /// Moves fingerprints of the newest layer to their other buckets until one finds space. If
    /// there are too many, all go back.
    fn put_by_moving(&mut self, place: CuckooPlace) -> bool {
        let size = usize::from(self.bucket_size);
        let Some(layer) = self.layers.last_mut() else { return false };
        let len = layer.len();
        let mask = (len / size) as u64 - 1;
        let mut fingerprint = place.fingerprint;
        let mut bucket = place.first & mask;
        let mut slot = 0;
        for _ in 0..self.max_iterations {
            std::mem::swap(&mut layer[start(bucket, len, size) + slot], &mut fingerprint);
            bucket = other(fingerprint, bucket) & mask;
            let slots = &mut layer[start(bucket, len, size)..][..size];
            if let Some(free) = slots.iter_mut().find(|slot| **slot == 0) {
                *free = fingerprint;
                return true;
            }
            slot = (slot + 1) % size;
        }
        // The other bucket of the last fingerprint is the one that it was in.
        for _ in 0..self.max_iterations {
            slot = (slot + size - 1) % size;
            bucket = other(fingerprint, bucket) & mask;
            std::mem::swap(&mut layer[start(bucket, len, size) + slot], &mut fingerprint);
        }
        false
    }

    /// Adds a layer if the filter then has at most `limit` bytes.
    fn grow(&mut self, limit: usize) -> Result<(), Error> {
        let bytes = layer_bytes(self.buckets, self.bucket_size, self.expansion, self.layers.len());
        let bytes = bytes.ok_or(Error::TooLarge)?;
        if self.reported_bytes().saturating_add(LAYER_BYTES).saturating_add(bytes) > limit {
            return Err(Error::TooLarge);
        }
        self.layers.push(vec![0; bytes].into_boxed_slice());
        Ok(())
    }

    /// Returns the number of items that are there.
    pub fn len(&self) -> u64 {
        self.items
    }

    /// Returns whether nothing is there.
    pub fn is_empty(&self) -> bool {
        self.items == 0
    }

    /// Returns how often an item was removed.
    pub fn deleted(&self) -> u64 {
        self.deleted
    }

    /// Returns the number of buckets of the first layer.
    pub fn buckets(&self) -> u64 {
        self.buckets
    }

    /// Returns the number of layers.
    pub fn layers(&self) -> usize {
        self.layers.len()
    }

    /// Returns how many fingerprints a bucket has space for.
    pub fn bucket_size(&self) -> u16 {
        self.bucket_size
    }

    /// Returns the most moves for one item.
    pub fn max_iterations(&self) -> u16 {
        self.max_iterations
    }

    /// Returns the factor by which the next layer is larger, 0 if there may be none.
    pub fn expansion(&self) -> u16 {
        self.expansion
    }

    /// Returns the size that CF.INFO reports.
    pub fn reported_bytes(&self) -> usize {
        HEAD_BYTES + self.layers.iter().map(|layer| LAYER_BYTES + layer.len()).sum::<usize>()
    }

    /// Returns the bytes of its blocks.
    pub fn allocated_bytes(&self) -> usize {
        let heads = self.layers.capacity() * size_of::<Box<[u8]>>();
        heads + self.layers.iter().map(|layer| layer.len()).sum::<usize>()
    }
}

/// Returns where a bucket begins in a layer of so many bytes, whose number of buckets is a power of
/// 2.
fn start(bucket: u64, bytes: usize, bucket_size: usize) -> usize {
    let mask = (bytes / bucket_size) as u64 - 1;
    (bucket & mask) as usize * bucket_size
}

/// Returns the bytes of a layer by its place, or `None` if there are too many for a number.
fn layer_bytes(buckets: u64, bucket_size: u16, expansion: u16, layer: usize) -> Option<usize> {
    let growth = u64::from(expansion).checked_pow(u32::try_from(layer).ok()?)?;
    let bytes = buckets.checked_mul(growth)?.checked_mul(bucket_size.into())?;
    usize::try_from(bytes).ok()
}

//! The most frequent items of a stream: HeavyKeeper (Gong and others: HeavyKeeper: An Accurate
//! Algorithm for Finding Top-k Elephant Flows, 2018).
//!
//! ```text
//!           width                                    heap of k
//!        ┌───────┬───────┬───────┐                     ┌─────┐
//!  row 0 │ fp, n │       │       │                     │ E 3 │  the least frequent
//!  row 1 │       │       │ fp, n │                    ┌┴─┬──┬┴┐
//!  row 2 │       │ fp, n │       │                    │A4│  │B3│
//!        └───────┴───────┴───────┘                    └──┘  └──┘
//! ```
//!
//! An item has a cell in each row. A cell counts the item whose fingerprint it has; any other
//! lowers the count with the probability `decay ^ n` and takes the cell over at 0. So frequent
//! items stay and rare ones are forgotten. An item whose count reaches that of the least one of the
//! heap replaces it.
//!
//! Chance comes from a state that is part of the value and of its payload, and powers are products,
//! which are the same on every machine: copies of a value that get the same requests stay the same.
//!
//! The payload `TopK-TYPE` in files, version 0 (numbers are little-endian in strings):
//!
//! ```text
//!  k │ width │ rows (unsigned) │ decay (double)
//!  cells (string), each: fingerprint u32 │ count u32
//!  heap (string), each: fingerprint u32 │ length u32 │ 8 bytes │ count u32 │ 4 bytes
//!  k items (strings), each followed by a zero byte
//!  (from version 1: a number that is added to the seeds, unsigned)
//! ```
//!
//! Redis has an address in the 8 bytes, which means nothing in a file. We keep the state of chance
//! in the first of them. Sources: the paper; hashes, order of the heap and payloads by the public
//! tests of RedisBloom and redis-py.

use rdb::Error;
use rdb::module::{Reader, Writer};
use structs::murmur::murmur2;
use structs::random::splitmix64_share;

/// The name in files and in replies of TYPE.
pub const NAME: &str = "TopK-TYPE";
/// The version in files.
pub const VERSION: u16 = 0;
/// The versions that are read.
pub const READ_VERSIONS: &[u16] = &[0, 1];
/// The most that an item can be counted at once.
pub const MAX_INCREMENT: u32 = 100_000;
/// The most rows: an item is hashed once for each.
pub const MAX_DEPTH: u64 = 1 << 16;

/// The seed of fingerprints.
const FINGERPRINT_SEED: u32 = 1919;
const CELL_BYTES: usize = 8;
const SLOT_BYTES: usize = 24;
const DAMAGED: Error = Error::Corrupt("a top-k sketch");

/// A sketch would take more than the limit.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct TooLarge;

#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
struct Cell {
    fingerprint: u32,
    count: u32,
}

/// A place of the heap. It is free if the count is 0.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
struct Slot {
    fingerprint: u32,
    count: u32,
    item: Box<[u8]>,
}

/// A sketch.
#[derive(Clone, PartialEq, Debug)]
pub struct TopK {
    cells: Box<[Cell]>,
    heap: Box<[Slot]>,
    width: usize,
    depth: usize,
    decay: f64,
    chance: u64,
}

impl TopK {
    /// Creates a sketch. No dimension is 0, and `decay` is above 0 and at most 1.
    ///
    /// # Errors
    /// It would take more than `limit` bytes, or there are too many rows.
    pub fn new(k: u64, width: u64, depth: u64, decay: f64, limit: usize) -> Result<TopK, TooLarge> {
        let cells = width.checked_mul(depth).ok_or(TooLarge)?;
        let bytes = cells.saturating_mul(CELL_BYTES as u64);
        let bytes = bytes.saturating_add(k.saturating_mul(size_of::<Slot>() as u64));
        if bytes > limit as u64 || depth > MAX_DEPTH {
            return Err(TooLarge);
        }
        Ok(TopK {
            cells: vec![Cell::default(); cells as usize].into(),
            heap: vec![Slot::default(); k as usize].into(),
            width: width as usize,
            depth: depth as usize,
            decay,
            chance: 0,
        })
    }

    /// Counts an item `by` times, at most [`MAX_INCREMENT`]. Returns the item that leaves the list
    /// for it.
    pub fn add(&mut self, item: &[u8], by: u32) -> Option<Box<[u8]>> {
        let fingerprint = murmur2(item, FINGERPRINT_SEED);
        let mut most = 0;
        for row in 0..self.depth {
            let at = self.cell(row, item);
            let cell = self.cells[at];
            let cell = if cell.count == 0 || cell.fingerprint == fingerprint {
                Cell { fingerprint, count: cell.count.saturating_add(by) }
            } else {
                self.wear(cell, fingerprint, by)
            };
            self.cells[at] = cell;
            if cell.fingerprint == fingerprint {
                most = most.max(cell.count);
            }
        }
        self.list(item, fingerprint, most)
    }

    /// Returns what another item that comes `by` times leaves of a cell.
    fn wear(&mut self, cell: Cell, fingerprint: u32, by: u32) -> Cell {
        let mut count = cell.count;
        let mut left = by;
        while left > 0 {
            let lowers = power(self.decay, count);
            let Some(tries) = tries_until(lowers, splitmix64_share(&mut self.chance), left) else {
                break;
            };
            count -= 1;
            if count == 0 {
                return Cell { fingerprint, count: left - tries + 1 };
            }
            left -= tries;
        }
        Cell { count, ..cell }
    }

    /// Puts an item with its count into the heap if it belongs there.
    fn list(&mut self, item: &[u8], fingerprint: u32, count: u32) -> Option<Box<[u8]>> {
        if count == 0 || count < self.heap[0].count {
            return None;
        }
        if let Some(at) = self.find(item, fingerprint) {
            self.heap[at].count = count;
            self.sink(at);
            return None;
        }
        let new = Slot { fingerprint, count, item: item.into() };
        let old = std::mem::replace(&mut self.heap[0], new);
        self.sink(0);
        (old.count > 0).then_some(old.item)
    }

    /// Moves a slot down as long as the less frequent one below it is not more frequent.
    fn sink(&mut self, mut at: usize) {
        loop {
            let left = 2 * at + 1;
            let Some(mut below) = self.heap.get(left).map(|slot| slot.count) else { return };
            let mut child = left;
            if let Some(right) = self.heap.get(left + 1).filter(|slot| slot.count < below) {
                (below, child) = (right.count, left + 1);
            }
            if below > self.heap[at].count {
                return;
            }
            self.heap.swap(at, child);
            at = child;
        }
    }

    fn find(&self, item: &[u8], fingerprint: u32) -> Option<usize> {
        self.heap.iter().position(|slot| {
            slot.count > 0 && slot.fingerprint == fingerprint && *slot.item == *item
        })
    }

    fn cell(&self, row: usize, item: &[u8]) -> usize {
        row * self.width + murmur2(item, row as u32) as usize % self.width
    }

    /// Returns whether an item is in the list.
    pub fn contains(&self, item: &[u8]) -> bool {
        self.find(item, murmur2(item, FINGERPRINT_SEED)).is_some()
    }

    /// Returns how often an item was counted, about.
    pub fn count(&self, item: &[u8]) -> u32 {
        let fingerprint = murmur2(item, FINGERPRINT_SEED);
        if let Some(at) = self.find(item, fingerprint) {
            return self.heap[at].count;
        }
        let cells = (0..self.depth).map(|row| self.cells[self.cell(row, item)]);
        let own = cells.filter(|cell| cell.fingerprint == fingerprint);
        own.map(|cell| cell.count).max().unwrap_or(0)
    }

    /// Returns the items of the list with their counts, the most frequent first.
    pub fn items(&self) -> Vec<(&[u8], u32)> {
        let used = self.heap.iter().filter(|slot| slot.count > 0);
        let mut items: Vec<_> = used.map(|slot| (&*slot.item, slot.count)).collect();
        items.sort_by_key(|&(_, count)| std::cmp::Reverse(count));
        items
    }

    /// Returns the length of the list.
    pub fn k(&self) -> usize {
        self.heap.len()
    }

    /// Returns the number of cells in a row.
    pub fn width(&self) -> usize {
        self.width
    }

    /// Returns the number of rows.
    pub fn depth(&self) -> usize {
        self.depth
    }

    /// Returns the base of the probability by which counts are lowered.
    pub fn decay(&self) -> f64 {
        self.decay
    }

    /// Returns the bytes of its blocks.
    pub fn allocated_bytes(&self) -> usize {
        let items = self.heap.iter().map(|slot| slot.item.len()).sum::<usize>();
        self.cells.len() * size_of::<Cell>() + self.heap.len() * size_of::<Slot>() + items
    }

    /// Writes the payload.
    pub fn save(&self, to: &mut Writer<'_>) {
        to.unsigned(self.heap.len() as u64);
        to.unsigned(self.width as u64);
        to.unsigned(self.depth as u64);
        to.double(self.decay);
        let mut cells = Vec::with_capacity(self.cells.len() * CELL_BYTES);
        for cell in &self.cells {
            cells.extend(cell.fingerprint.to_le_bytes());
            cells.extend(cell.count.to_le_bytes());
        }
        to.string(&cells);
        let mut heap = Vec::with_capacity(self.heap.len() * SLOT_BYTES);
        for (at, slot) in self.heap.iter().enumerate() {
            heap.extend(slot.fingerprint.to_le_bytes());
            heap.extend((slot.item.len() as u32).to_le_bytes());
            heap.extend(if at == 0 { self.chance } else { 0 }.to_le_bytes());
            heap.extend(slot.count.to_le_bytes());
            heap.extend([0; 4]);
        }
        to.string(&heap);
        for slot in &self.heap {
            to.string(&[&slot.item, &b"\0"[..]].concat());
        }
    }

    /// Reads a payload.
    ///
    /// # Errors
    /// It is damaged, of an unknown version or with a seed.
    pub fn load(from: &mut Reader<'_, '_>, version: u16) -> Result<TopK, Error> {
        if !READ_VERSIONS.contains(&version) {
            return Err(Error::Corrupt("a top-k sketch of an unknown version"));
        }
        let (k, width, depth) = (from.unsigned()?, from.unsigned()?, from.unsigned()?);
        let decay = from.double()?;
        let bytes = from.string()?;
        let (cells, rest) = bytes.as_chunks::<CELL_BYTES>();
        let is_sound = k > 0
            && width > 0
            && (1..=MAX_DEPTH).contains(&depth)
            && width.checked_mul(depth) == Some(cells.len() as u64)
            && rest.is_empty()
            && decay > 0.0
            && decay <= 1.0;
        if !is_sound {
            return Err(DAMAGED);
        }
        let word = |bytes: &[u8], at: usize| {
            let word = bytes[at..].first_chunk().expect("the length of the whole is fixed");
            u32::from_le_bytes(*word)
        };
        let cells = cells.iter().map(|c| Cell { fingerprint: word(c, 0), count: word(c, 4) });
        let cells = cells.collect();
        let slots = from.string()?;
        let (slots, rest) = slots.as_chunks::<SLOT_BYTES>();
        if !rest.is_empty() || k != slots.len() as u64 {
            return Err(DAMAGED);
        }
        let chance = u64::from(word(&slots[0], 8)) | u64::from(word(&slots[0], 12)) << 32;
        let mut heap = Vec::with_capacity(slots.len().min(from.remaining()));
        for slot in slots {
            let bytes = from.string()?;
            let (b"\0", item) =
                bytes.split_last_chunk::<1>().map(|(a, b)| (b, a)).ok_or(DAMAGED)?
            else {
                return Err(DAMAGED);
            };
            let count = word(slot, 16);
            let fingerprint = murmur2(item, FINGERPRINT_SEED);
            let used = Slot { fingerprint, count, item: item.into() };
            heap.push(if count == 0 { Slot::default() } else { used });
        }
        if version >= 1 && from.unsigned()? != 0 {
            return Err(Error::Corrupt("a top-k sketch with a seed"));
        }
        let (width, depth) = (width as usize, depth as usize);
        Ok(TopK { cells, heap: heap.into(), width, depth, decay, chance })
    }
}

/// Returns `base` to the power of `exponent`, by products alone.
fn power(base: f64, mut exponent: u32) -> f64 {
    let (mut result, mut square) = (1.0, base);
    while exponent > 0 {
        if exponent & 1 == 1 {
            result *= square;
        }
        square *= square;
        exponent >>= 1;
    }
    result
}

/// Returns how many tries it takes until one succeeds, each with the probability `succeeds`, or
/// `None` if none of `most` does. `drawn` is a number from 0 to 1.
fn tries_until(succeeds: f64, drawn: f64, most: u32) -> Option<u32> {
    let fails = 1.0 - succeeds;
    // The first count of tries that all fail with a probability of at most `drawn`.
    if power(fails, most) > drawn {
        return None;
    }
    let (mut low, mut high) = (1, most);
    while low < high {
        let middle = low + (high - low) / 2;
        if power(fails, middle) <= drawn {
            high = middle;
        } else {
            low = middle + 1;
        }
    }
    Some(low)
}

#[cfg(test)]
mod tests {
    use super::*;
    use rdb::{Compression, Decoder, Encoder};

    const LIMIT: usize = 1 << 24;

    fn topk(k: u64, width: u64, depth: u64, decay: f64) -> TopK {
        TopK::new(k, width, depth, decay, LIMIT).unwrap()
    }

    fn add(topk: &mut TopK, items: &str) -> Vec<String> {
        let text = |item: Option<Box<[u8]>>| match item {
            Some(item) => String::from_utf8(item.into_vec()).unwrap(),
            None => "-".to_owned(),
        };
        items.split_whitespace().map(|item| text(topk.add(item.as_bytes(), 1))).collect()
    }

    fn listed(topk: &TopK) -> String {
        let line =
            |(item, count): (&[u8], u32)| format!("{}:{count}", String::from_utf8_lossy(item));
        topk.items().into_iter().map(line).collect::<Vec<_>>().join(" ")
    }

    /// The replies that redis-py's tests expect.
    #[test]
    fn items_leave_in_the_order_of_redis() {
        let mut topk = topk(3, 50, 4, 0.9);
        let left = add(&mut topk, "A B C D E A A B C G D B D A E E 1").join(" ");
        assert_eq!(left, "- - - A C D - - E - B C - - - D -");
        let counts = ["A", "B", "C", "D", "E", "F", "G"].map(|item| topk.count(item.as_bytes()));
        assert_eq!(counts, [4, 3, 2, 3, 3, 0, 1]);
        assert_eq!(
            ["A", "B", "C", "E"].map(|it| topk.contains(it.as_bytes())),
            [true, true, false, true]
        );
        let mut full = self::topk(3, 50, 3, 0.9);
        add(&mut full, "A B C D E A A B C G D B D A E E");
        assert_eq!(listed(&full), "A:4 B:3 E:3");
        let mut counted = self::topk(3, 10, 3, 1.0);
        let by = [(&b"bar"[..], 3), (b"baz", 6), (b"42", 2), (b"42", 8)];
        assert!(by.into_iter().all(|(item, by)| counted.add(item, by).is_none()));
        assert_eq!(counted.add(b"xyzzy", 4).as_deref(), Some(&b"bar"[..]));
        let counts = [&b"bar"[..], b"baz", b"42", b"xyzzy", b"4"].map(|item| counted.count(item));
        assert_eq!(counts, [3, 6, 10, 4, 0]);
    }

    /// The replies that the public tests of RedisBloom expect.
    #[test]
    fn lists_are_those_of_redis() {
        let mut topk = topk(2, 50, 5, 0.9);
        add(&mut topk, "foo bar baz 42 foo bar baz foo baz 42 foo baz foo bar baz foo baz");
        assert_eq!(listed(&topk), "foo:6 baz:6");
        assert_eq!(add(&mut topk, "bar bar bar bar bar").join(" "), "- - foo - -");
        assert_eq!(listed(&topk), "bar:8 baz:6");
        let mut default = self::topk(3, 8, 7, 0.9);
        add(&mut default, "foo bar baz 42 foo bar baz foo baz 42 foo foo bar baz foo");
        assert_eq!(listed(&default), "foo:6 baz:4 bar:3");
        let mut empty = self::topk(3, 8, 7, 0.9);
        empty.add(b"", 1);
        assert_eq!(
            (empty.items(), empty.count(b""), empty.contains(b"")),
            (vec![(&b""[..], 1)], 1, true)
        );
        let mut tight = self::topk(1, 3, 3, 0.9);
        for (item, by) in [("bar", 300), ("baz", 600), ("42", 200), ("42", 80), ("xyzzy", 400)] {
            tight.add(item.as_bytes(), by);
        }
        assert!(tight.contains(b"baz"));
    }

    /// Returns the bytes of a number that is drawn as often as its rank says.
    fn skewed(count: u32) -> impl Iterator<Item = [u8; 4]> {
        let mut state = 7_u64;
        (0..count).map(move |_| {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            let share = (state >> 40) as f64 / (1_u64 << 24) as f64;
            ((1.0 / (share + 1e-5)) as u32).to_le_bytes()
        })
    }

    #[test]
    fn the_most_frequent_items_are_found() {
        let mut topk = topk(20, 2000, 5, 0.9);
        let mut counts = std::collections::HashMap::new();
        for item in skewed(200_000) {
            topk.add(&item, 1);
            *counts.entry(item).or_insert(0_u32) += 1;
        }
        let mut exact: Vec<_> = counts.iter().collect();
        exact.sort_by_key(|&(_, count)| std::cmp::Reverse(count));
        let found = exact[..20].iter().filter(|(item, _)| topk.contains(&item[..])).count();
        assert!(found >= 19, "{found}");
        for (item, count) in exact[..10].iter() {
            let ours = topk.count(&item[..]);
            assert!(ours <= **count && ours * 100 >= **count * 95, "{ours} of {count}");
        }
    }

    fn load(bytes: &[u8], version: u16) -> Result<TopK, Error> {
        TopK::load(&mut Reader::new(&mut Decoder::new(bytes)), version)
    }

    fn saved(topk: &TopK) -> Vec<u8> {
        let mut encoder = Encoder::new(Compression::Lzf);
        topk.save(&mut Writer::new(&mut encoder));
        encoder.into_bytes()
    }

    #[test]
    fn a_copy_goes_on_as_the_value_does() {
        let mut topk = topk(5, 10, 2, 0.9);
        skewed(1000).for_each(|item| drop(topk.add(&item, 3)));
        let bytes = saved(&topk);
        let mut copy = load(&bytes, 0).unwrap();
        assert!(copy == topk);
        for item in skewed(3000) {
            assert_eq!(copy.add(&item, 2), topk.add(&item, 2));
        }
        assert!(copy == topk);
        for cut in 0..bytes.len() {
            assert!(load(&bytes[..cut], 0).is_err());
        }
        for at in 0..bytes.len() {
            for flip in [1, 0x80, 0xff] {
                let mut damaged = bytes.clone();
                damaged[at] ^= flip;
                // It may still be a sketch. Then it has to be usable.
                if let Ok(mut topk) = load(&damaged, 0) {
                    topk.add(b"item", MAX_INCREMENT);
                    assert!(topk.items().len() <= 5);
                }
            }
        }
        assert!(load(&bytes, 2).is_err());
        let seeded = |seed: u8| [&bytes[..], &[2, seed]].concat();
        assert!(load(&seeded(0), 1).is_ok() && load(&seeded(1), 1).is_err());
    }

    #[test]
    fn dimensions_are_bounded() {
        let new = |k, width, depth| TopK::new(k, width, depth, 0.9, LIMIT).is_err();
        assert!(
            new(1, u64::MAX, 2) && new(u64::MAX, 1, 1) && new(1, 1 << 30, 1) && new(1, 1, 1 << 17)
        );
        assert!(!new(1000, 8, 7));
    }

    #[test]
    fn tries_are_as_many_as_chance_says() {
        let mut topk = topk(1, 1, 1, 0.9);
        let sum: u64 = (0..10_000)
            .map(|_| tries_until(0.1, splitmix64_share(&mut topk.chance), 1 << 20).unwrap() as u64)
            .sum();
        assert!((95_000..105_000).contains(&sum), "{sum}");
        assert_eq!((tries_until(1.0, 0.3, 5), tries_until(0.0, 0.3, 5)), (Some(1), None));
        assert_eq!((power(0.5, 0), power(0.5, 10)), (1.0, 1.0 / 1024.0));
    }
}

//! Count-min sketches: how often each item was counted, never too low (Cormode, Muthukrishnan: An
//! Improved Data Stream Summary, 2005).
//!
//! ```text
//!           width
//!        ┌───┬───┬───┬───┬───┐
//!  row 0 │   │   │ +n│   │   │   a row has one cell for an item, by a hash of its own
//!  row 1 │ +n│   │   │   │   │
//!  row 2 │   │   │   │   │ +n│   the answer is the least of an item's cells
//!        └───┴───┴───┴───┴───┘
//! ```
//!
//! With a width of `2 / e` and `log₂ 1/p` rows an answer is too high by at most `e` of all that was
//! counted, with the probability `1 - p`. Cells have 32 bits. A row's hash is MurmurHash2 with the
//! row's number as its seed.
//!
//! The payload `CMSk-TYPE` in files, all numbers unsigned:
//!
//! ```text
//!  width │ rows │ sum │ (from version 1: bytes of a cell, 4) │ the cells (string, little-endian)
//!  (from version 2: a number that is added to each row's seed)
//! ```
//!
//! Version 0 is written. Sources: the formulas of the paper; versions, cells and hashes by the
//! payloads and replies in the public tests of RedisBloom.

use rdb::Error;
use rdb::module::{Reader, Writer};
use structs::murmur::murmur2;
use structs::table::prefetch;

/// The name in files and in replies of TYPE.
pub const NAME: &str = "CMSk-TYPE";
/// The version in files.
pub const VERSION: u16 = 0;
/// The versions that are read.
pub const READ_VERSIONS: &[u16] = &[0, 1, 2];

const DAMAGED: Error = Error::Corrupt("a count-min sketch");
/// Bytes of a cell.
const CELL: usize = 4;
/// Most items whose cells are fetched together.
const MOST_TOGETHER: usize = 16;
/// A sketch of fewer cells is in the caches anyway.
const FETCHED_FROM: usize = 32 << 10;

/// Why a sketch cannot be created.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum DimensionError {
    /// A dimension is 0, or the number of cells has no number.
    Invalid,
    /// The cells would take more than the limit.
    TooLarge,
}

/// A count would leave its range.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Overflow;

/// A sketch.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Cms {
    cells: Box<[u32]>,
    width: usize,
    depth: usize,
    sum: i64,
}

impl Cms {
    /// Creates a sketch whose cells take at most `limit` bytes.
    ///
    /// # Errors
    /// A dimension is 0, or there would be more.
    pub fn new(width: u64, depth: u64, limit: usize) -> Result<Cms, DimensionError> {
        let cells = width.checked_mul(depth).filter(|&cells| cells > 0);
        let cells = cells.ok_or(DimensionError::Invalid)?;
        let bytes = cells.checked_mul(CELL as u64).ok_or(DimensionError::TooLarge)?;
        if bytes > limit as u64 {
            return Err(DimensionError::TooLarge);
        }
        let cells = vec![0; cells as usize].into_boxed_slice();
        Ok(Cms { cells, width: width as usize, depth: depth as usize, sum: 0 })
    }

    /// Returns the width and depth for a share `error` of all counts and a probability that it is
    /// exceeded, both above 0 and below 1.
    pub fn dimensions(error: f64, probability: f64) -> (u64, u64) {
        // A conversion to an integer saturates.
        ((2.0 / error).ceil() as u64, probability.log2().abs().ceil() as u64)
    }

    /// Returns the number of cells in a row.
    pub fn width(&self) -> usize {
        self.width
    }

    /// Returns the number of rows.
    pub fn depth(&self) -> usize {
        self.depth
    }

    /// Returns the sum of all increments.
    pub fn sum(&self) -> i64 {
        self.sum
    }

    /// Returns the bytes of its cells.
    pub fn allocated_bytes(&self) -> usize {
        self.cells.len() * CELL
    }

    /// Returns how often an item was counted, or more.
    pub fn query(&self, item: &[u8]) -> u32 {
        (0..self.depth).map(|row| self.cells[self.cell(row, item)]).min().unwrap_or(0)
    }

    /// Tells of each item in turn what [`Cms::query`] returns.
    pub fn query_all(&self, items: &[&[u8]], mut tell: impl FnMut(u32)) {
        for together in items.chunks(MOST_TOGETHER) {
            self.fetch(together);
            together.iter().for_each(|item| tell(self.query(item)));
        }
    }

    /// Counts an item `by` times. Returns what [`Cms::query`] now returns.
    ///
    /// # Errors
    /// A cell or the sum would leave its range. Nothing has changed.
    pub fn increment(&mut self, item: &[u8], by: u64) -> Result<u32, Overflow> {
        let sum = i64::try_from(by).ok().and_then(|by| self.sum.checked_add(by)).ok_or(Overflow)?;
        let most = (0..self.depth).map(|row| self.cells[self.cell(row, item)]).max().unwrap_or(0);
        u32::try_from(u64::from(most).saturating_add(by)).map_err(|_| Overflow)?;
        let mut least = u32::MAX;
        for row in 0..self.depth {
            let cell = self.cell(row, item);
            // The largest of them has space.
            self.cells[cell] += by as u32;
            least = least.min(self.cells[cell]);
        }
        self.sum = sum;
        Ok(least)
    }

    /// Fetches the cells of items.
    pub fn fetch(&self, items: &[&[u8]]) {
        if self.cells.len() < FETCHED_FROM || items.len() < 2 {
            return;
        }
        for item in items {
            for row in 0..self.depth {
                prefetch((&raw const self.cells[self.cell(row, item)]).cast());
            }
        }
    }

    /// Returns the weighted sum of sketches of the same dimensions.
    ///
    /// # Errors
    /// A cell or the sum would leave its range.
    ///
    /// # Panics
    /// If there is no sketch or dimensions differ.
    pub fn merge(sketches: &[(&Cms, i64)]) -> Result<Cms, Overflow> {
        let (first, _) = sketches.first().expect("there is a sketch");
        let is_same = |it: &Cms| (it.width, it.depth) == (first.width, first.depth);
        assert!(sketches.iter().all(|(it, _)| is_same(it)), "dimensions are the same");
        let weigh = |value: &dyn Fn(&Cms) -> i64| -> i128 {
            sketches.iter().map(|&(it, weight)| i128::from(value(it)) * i128::from(weight)).sum()
        };
        let sum =
            i64::try_from(weigh(&|it| it.sum)).ok().filter(|&sum| sum >= 0).ok_or(Overflow)?;
        let cell =
            |at: usize| u32::try_from(weigh(&|it| it.cells[at].into())).map_err(|_| Overflow);
        let cells = (0..first.cells.len()).map(cell).collect::<Result<Box<[u32]>, Overflow>>()?;
        Ok(Cms { cells, width: first.width, depth: first.depth, sum })
    }

    fn cell(&self, row: usize, item: &[u8]) -> usize {
        row * self.width + murmur2(item, row as u32) as usize % self.width
    }

    /// Writes the payload.
    pub fn save(&self, to: &mut Writer<'_>) {
        to.unsigned(self.width as u64);
        to.unsigned(self.depth as u64);
        to.unsigned(self.sum.cast_unsigned());
        let bytes: Vec<u8> = self.cells.iter().flat_map(|cell| cell.to_le_bytes()).collect();
        to.string(&bytes);
    }

    /// Reads a payload.
    ///
    /// # Errors
    /// It is damaged, or of an unknown version, or has another size of cells or a seed.
    pub fn load(from: &mut Reader<'_, '_>, version: u16) -> Result<Cms, Error> {
        if !READ_VERSIONS.contains(&version) {
            return Err(Error::Corrupt("a count-min sketch of an unknown version"));
        }
        let (width, depth) = (from.unsigned()?, from.unsigned()?);
        let sum = i64::try_from(from.unsigned()?).map_err(|_| DAMAGED)?;
        if version >= 1 && from.unsigned()? != CELL as u64 {
            return Err(Error::Corrupt("a count-min sketch whose cells have not 4 bytes"));
        }
        let bytes = from.string()?;
        if version >= 2 && from.unsigned()? != 0 {
            return Err(Error::Corrupt("a count-min sketch with a seed"));
        }
        let (cells, rest) = bytes.as_chunks::<CELL>();
        let count = width.checked_mul(depth).filter(|&count| count > 0);
        if !rest.is_empty() || count != Some(cells.len() as u64) {
            return Err(DAMAGED);
        }
        let cells = cells.iter().map(|cell| u32::from_le_bytes(*cell)).collect();
        Ok(Cms { cells, width: width as usize, depth: depth as usize, sum })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rdb::{Compression, Decoder, Encoder};

    const LIMIT: usize = 1 << 24;

    fn load(bytes: &[u8], version: u16) -> Result<Cms, Error> {
        Cms::load(&mut Reader::new(&mut Decoder::new(bytes)), version)
    }

    /// The counts of the public tests of RedisBloom, where items share cells.
    #[test]
    fn cells_are_those_of_redis() {
        let large = (1 << 31) - 1;
        let mut cms = Cms::new(5, 2, LIMIT).unwrap();
        let mut count = |by: [u64; 4]| {
            let items = [b"a", b"b", b"c", b"d"].into_iter().zip(by);
            items.map(|(item, by)| cms.increment(item, by)).collect::<Vec<_>>()
        };
        assert_eq!(count([large, 10, 7, 5]), [Ok(large as u32), Ok(10), Ok(17), Ok(5)]);
        assert_eq!(count([0, 0, 0, 0]), [Ok(large as u32), Ok(17), Ok(17), Ok(5)]);
        assert_eq!(count([large, 10, 7, 5]), [Ok(large as u32 * 2), Ok(27), Ok(34), Ok(10)]);
        assert_eq!(count([large, 10, 7, 5]), [Err(Overflow), Ok(44), Ok(51), Ok(15)]);
        assert_eq!(cms.sum(), 2 * (large as i64 + 22) + 22);
        assert_eq!(cms.increment(b"a", u64::MAX), Err(Overflow));
        assert_eq!(cms.query(b"a"), large as u32 * 2);
    }

    /// A payload of Redis's: `a` counted 7 times and `b` 3 times.
    #[test]
    fn a_payload_of_redis_is_read() {
        let payload = b"\x02\x14\x02\x05\x02\n\x05\xc34A\x90\x01\x00\x00\xe0-\x00\x00\x07\xa06\
            \x00\x03\xa0\x07\xe0\x03\x00\xe0\x03\x13\xc0'\xe03\x00\xe0\x03C\xe0\x03[\xe0c\x00\xc0w\
            \xe0\x03\x8b\xe0+\x00\xc0G\xe0\x07\x00\x80W\x01\x00\x00\x00";
        let cms = load(payload, 0).unwrap();
        assert_eq!((cms.width(), cms.depth(), cms.sum()), (20, 5, 10));
        assert_eq!((cms.query(b"a"), cms.query(b"b"), cms.query(b"c")), (7, 3, 0));
        let mut encoder = Encoder::new(Compression::Lzf);
        cms.save(&mut Writer::new(&mut encoder));
        let bytes = encoder.into_bytes();
        assert!(load(&bytes, 0).unwrap() == cms);
        for cut in 0..bytes.len() {
            assert!(load(&bytes[..cut], 0).is_err());
        }
        for at in 0..bytes.len() {
            let mut damaged = bytes.clone();
            damaged[at] ^= 0xff;
            if let Ok(mut cms) = load(&damaged, 0) {
                let _ = cms.increment(b"a", 1);
            }
        }
        assert!(load(&bytes, 3).is_err());
    }

    #[test]
    fn dimensions_are_bounded() {
        assert_eq!(Cms::dimensions(0.001, 0.01), (2000, 7));
        let new = |width, depth| Cms::new(width, depth, LIMIT).err();
        assert_eq!(new(1 << 33, 1 << 33), Some(DimensionError::Invalid));
        assert_eq!(new(0, 5), Some(DimensionError::Invalid));
        assert_eq!(new(1 << 32, 1 << 31), Some(DimensionError::TooLarge));
        assert_eq!(new(1 << 20, 5), Some(DimensionError::TooLarge));
        assert_eq!(new(1 << 22, 1), None);
    }

    #[test]
    fn sketches_are_added_and_taken_away() {
        let [mut a, mut b] = [0; 2].map(|_| Cms::new(1000, 5, LIMIT).unwrap());
        a.increment(b"x", 10).unwrap();
        b.increment(b"y", 3).unwrap();
        let both = Cms::merge(&[(&a, 2), (&b, 1)]).unwrap();
        assert_eq!((both.query(b"x"), both.query(b"y"), both.sum()), (20, 3, 23));
        let rest = Cms::merge(&[(&both, 1), (&b, -1)]).unwrap();
        assert_eq!((rest.query(b"x"), rest.query(b"y"), rest.sum()), (20, 0, 20));
        assert_eq!(Cms::merge(&[(&rest, 1), (&b, -1)]), Err(Overflow));
        assert_eq!(Cms::merge(&[(&a, i64::MAX), (&a, i64::MIN)]), Err(Overflow));
        let extreme = [(&a, -922_337_203_685_477_500), (&a, 922_337_203_685_477_502)];
        assert_eq!(Cms::merge(&extreme).unwrap().query(b"x"), 20);
    }

    #[test]
    fn answers_are_within_the_promise() {
        let (width, depth) = Cms::dimensions(0.001, 0.01);
        let mut cms = Cms::new(width, depth, LIMIT).unwrap();
        let items: Vec<String> = (0..100_000_u32).map(|number| number.to_string()).collect();
        for (number, item) in items.iter().enumerate() {
            cms.increment(item.as_bytes(), number as u64 % 10 + 1).unwrap();
        }
        let allowed = cms.sum() / 1000;
        let words: Vec<&[u8]> = items.iter().map(|item| item.as_bytes()).collect();
        let (mut number, mut wrong) = (0, 0);
        cms.query_all(&words, |count| {
            let truth = number % 10 + 1;
            assert!(i64::from(count) >= truth);
            wrong += u32::from(i64::from(count) - truth > allowed);
            number += 1;
        });
        assert!(wrong <= 1000, "{wrong}");
    }
}

//! t-digests: quantiles of many numbers, most exact at both ends (Dunning, Ertl: Computing
//! Extremely Accurate Quantiles Using t-Digests, 2019).
//!
//! ```text
//!  means    │ -3.1 │ -1.2 │ … │ 4.0 ║ 2.7 │ 0.3 │        room for 6 · compression + 10 nodes
//!  weights  │   1  │   7  │   │  1  ║  1  │  1  │
//!             └─── merged, sorted ───┘└ not yet merged
//! ```
//!
//! A number becomes a node of its own behind the merged ones. When there is no room, all nodes are
//! sorted, and neighbours are merged as long as a node covers no more than a share of the weight
//! that falls towards both ends. Between nodes answers are interpolated.
//!
//! Files have merged nodes only. So that a value goes on as its copy from a file does, each command
//! that changes it ends with [`TDigest::settle`]. Answers to readers come from [`TDigest::merged`].
//!
//! The payload `TDIS-TYPE` in files, version 0:
//!
//! ```text
//!  compression │ min │ max (doubles)
//!  room │ merged nodes │ other nodes, 0 │ compressions (unsigned)
//!  merged weight │ other weight, 0 (doubles) │ the means (doubles) │ the weights (doubles)
//! ```
//!
//! Sources: t-digest-c, the library of Redis's commands (MIT), for when nodes are merged and how
//! answers are interpolated; the payloads in the public tests of RedisBloom.

use rdb::Error;
use rdb::module::{Reader, Writer};
use std::borrow::Cow;
use std::f64::consts::PI;

/// The name in files and in replies of TYPE.
pub const NAME: &str = "TDIS-TYPE";
/// The version in files.
pub const VERSION: u16 = 0;
/// The versions that are read.
pub const READ_VERSIONS: &[u16] = &[0];

/// Bytes beside the nodes, as TDIGEST.INFO counts them on every platform.
const HEAD_BYTES: usize = 80;
const NODE_BYTES: usize = 16;
/// The least bytes of a node in a file.
const LEAST_NODE: usize = 18;
const DAMAGED: Error = Error::Corrupt("a t-digest");

/// Why a digest cannot be created or changed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum DigestError {
    /// Its nodes would take more than the limit.
    TooLarge,
    /// The weight would have no number.
    Overflow,
}

/// A number of values that are about the same.
#[derive(Clone, Copy, PartialEq, Debug)]
struct Node {
    mean: f64,
    weight: i64,
}

/// A digest.
#[derive(Clone, PartialEq, Debug)]
pub struct TDigest {
    nodes: Vec<Node>,
    /// How many nodes at the front are merged and sorted.
    merged: usize,
    room: usize,
    compression: u64,
    min: f64,
    max: f64,
    merged_weight: i64,
    other_weight: i64,
    compressions: u64,
}

impl TDigest {
    /// Creates an empty digest whose nodes take at most `limit` bytes. `compression` is not 0.
    ///
    /// # Errors
    /// There would be more.
    pub fn new(compression: u64, limit: usize) -> Result<TDigest, DigestError> {
        let room = compression.checked_mul(6).and_then(|nodes| nodes.checked_add(10));
        let room = room.and_then(|nodes| usize::try_from(nodes).ok()).unwrap_or(usize::MAX);
        // The weights of that many nodes have to add up.
        if room > i32::MAX as usize || room.saturating_mul(NODE_BYTES) > limit {
            return Err(DigestError::TooLarge);
        }
        Ok(TDigest {
            nodes: Vec::new(),
            merged: 0,
            room,
            compression,
            min: f64::MAX,
            max: -f64::MAX,
            merged_weight: 0,
            other_weight: 0,
            compressions: 0,
        })
    }

    /// Forgets all numbers.
    pub fn reset(&mut self) {
        self.nodes = Vec::new();
        (self.merged, self.merged_weight, self.other_weight, self.compressions) = (0, 0, 0, 0);
        (self.min, self.max) = (f64::MAX, -f64::MAX);
    }

    /// Adds a number, which is finite.
    ///
    /// # Errors
    /// There are as many as can be counted.
    pub fn add(&mut self, value: f64) -> Result<(), DigestError> {
        self.add_node(Node { mean: value, weight: 1 })
    }

    fn add_node(&mut self, node: Node) -> Result<(), DigestError> {
        let weight = self.weight().checked_add(node.weight).ok_or(DigestError::Overflow)?;
        debug_assert!(weight > 0 && node.mean.is_finite());
        if self.nodes.len() + 1 >= self.room {
            self.compress();
        }
        self.make_room();
        self.min = self.min.min(node.mean);
        self.max = self.max.max(node.mean);
        self.nodes.push(node);
        self.other_weight += node.weight;
        Ok(())
    }

    /// Takes memory for another node: a digest of few numbers stays small, a full one has no spare.
    fn make_room(&mut self) {
        if self.nodes.len() == self.nodes.capacity() {
            let wanted = (self.nodes.len() * 2).clamp(4, self.room.max(4));
            self.nodes.reserve_exact(wanted.saturating_sub(self.nodes.len()).max(1));
        }
    }

    /// Merges the nodes of digests into this one.
    ///
    /// # Errors
    /// The weight would have no number. The digest has changed.
    pub fn merge(&mut self, other: &TDigest) -> Result<(), DigestError> {
        self.compress();
        let other = other.merged();
        other.nodes.iter().try_for_each(|&node| self.add_node(node))?;
        // The ends of merged nodes are not seen in their means.
        if !other.nodes.is_empty() {
            self.min = self.min.min(other.min);
            self.max = self.max.max(other.max);
        }
        Ok(())
    }

    /// Merges all nodes, as the value in a file is.
    pub fn settle(&mut self) {
        self.compress();
    }

    /// Returns the digest with all nodes merged: itself, or a copy.
    pub fn merged(&self) -> Cow<'_, TDigest> {
        if self.merged == self.nodes.len() {
            return Cow::Borrowed(self);
        }
        let mut copy = self.clone();
        copy.compress();
        Cow::Owned(copy)
    }

    /// Sorts the nodes and merges neighbours.
    fn compress(&mut self) {
        if self.merged == self.nodes.len() {
            return;
        }
        // The order of equal ones stays: all copies of the value do the same.
        self.nodes.sort_by(|a, b| a.mean.total_cmp(&b.mean));
        let weight = self.weight();
        let total = weight as f64;
        if weight > 1 {
            let normalizer = self.compression as f64 / (2.0 * PI * total * total.ln());
            let mut before = 0.0;
            let mut last = 0;
            for index in 1..self.nodes.len() {
                let node = self.nodes[index];
                let kept = &mut self.nodes[last];
                let proposed = kept.weight as f64 + node.weight as f64;
                let size = proposed * normalizer;
                let (low, high) = (before / total, (before + proposed) / total);
                if size <= low * (1.0 - low) && size <= high * (1.0 - high) {
                    kept.weight += node.weight;
                    kept.mean += (node.mean - kept.mean) * node.weight as f64 / kept.weight as f64;
                } else {
                    before += kept.weight as f64;
                    last += 1;
                    self.nodes[last] = node;
                }
            }
            self.nodes.truncate(last + 1);
        }
        self.merged = self.nodes.len();
        (self.merged_weight, self.other_weight) = (weight, 0);
        self.compressions += 1;
    }

    /// Returns how many numbers were added.
    pub fn weight(&self) -> i64 {
        self.merged_weight + self.other_weight
    }

    /// Returns the least number, or NaN if there is none.
    pub fn min(&self) -> f64 {
        if self.nodes.is_empty() { f64::NAN } else { self.min }
    }

    /// Returns the largest number, or NaN if there is none.
    pub fn max(&self) -> f64 {
        if self.nodes.is_empty() { f64::NAN } else { self.max }
    }

    /// Returns the compression.
    pub fn compression(&self) -> u64 {
        self.compression
    }

    /// Returns for how many nodes there is room.
    pub fn room(&self) -> usize {
        self.room
    }

    /// Returns the numbers of merged nodes and of others.
    pub fn nodes(&self) -> (usize, usize) {
        (self.merged, self.nodes.len() - self.merged)
    }

    /// Returns the weights of merged nodes and of others.
    pub fn weights(&self) -> (i64, i64) {
        (self.merged_weight, self.other_weight)
    }

    /// Returns how often nodes were merged.
    pub fn compressions(&self) -> u64 {
        self.compressions
    }

    /// Returns the memory that TDIGEST.INFO reports: that of all nodes for which there is room.
    pub fn reported_bytes(&self) -> usize {
        HEAD_BYTES + self.room * NODE_BYTES
    }

    /// Returns the bytes of its nodes.
    pub fn allocated_bytes(&self) -> usize {
        self.nodes.capacity() * size_of::<Node>()
    }

    /// Returns the number below which the share `share` of all numbers is, from 0 to 1; NaN if
    /// there is no number. The digest is [merged](TDigest::merged).
    pub fn quantile(&self, share: f64) -> f64 {
        match *self.nodes {
            [] => f64::NAN,
            [only] => only.mean,
            _ => self.at(share * self.merged_weight as f64),
        }
    }

    /// Returns the number at this place in the order of all, if they were sorted. There are two
    /// nodes.
    fn at(&self, place: f64) -> f64 {
        let total = self.merged_weight as f64;
        let (first, last) = (self.nodes[0], self.nodes[self.nodes.len() - 1]);
        if place < 1.0 {
            return self.min;
        }
        let half = first.weight as f64 / 2.0;
        if first.weight > 1 && place < half {
            // One of the node's numbers is the least of all.
            let value = self.min + (place - 1.0) / (half - 1.0) * (first.mean - self.min);
            return value.clamp(self.min, self.max);
        }
        if place > total - 1.0 {
            return self.max;
        }
        let half = last.weight as f64 / 2.0;
        if last.weight > 1 && total - place <= half {
            let value = self.max - (total - place - 1.0) / (half - 1.0) * (self.max - last.mean);
            return value.clamp(self.min, self.max);
        }
        self.between_nodes(place).unwrap_or(self.max)
    }

    /// Interpolates between the nodes around a place. A node of one number is exactly there.
    fn between_nodes(&self, place: f64) -> Option<f64> {
        let mut before = self.nodes[0].weight as f64 / 2.0;
        for pair in self.nodes.windows(2) {
            let (left, right) = (pair[0], pair[1]);
            let both = (left.weight + right.weight) as f64 / 2.0;
            if before + both > place {
                let mut excluded = (0.0, 0.0);
                if left.weight == 1 {
                    if place - before < 0.5 {
                        return Some(left.mean);
                    }
                    excluded.0 = 0.5;
                }
                if right.weight == 1 {
                    if before + both - place <= 0.5 {
                        return Some(right.mean);
                    }
                    excluded.1 = 0.5;
                }
                let to_left = place - before - excluded.0;
                let to_right = before + both - place - excluded.1;
                let value = (left.mean * to_right + right.mean * to_left) / (to_left + to_right);
                return Some(value.clamp(left.mean, right.mean));
            }
            before += both;
        }
        None
    }

    /// Returns the share of numbers below `value`, and half of those that equal it; NaN if there is
    /// no number. The digest is [merged](TDigest::merged).
    pub fn cdf(&self, value: f64) -> f64 {
        if self.nodes.is_empty() || value.is_nan() {
            return f64::NAN;
        }
        if value < self.min {
            return 0.0;
        }
        if value > self.max {
            return 1.0;
        }
        if self.nodes.len() == 1 {
            let width = self.max - self.min;
            return if value - self.min <= width { 0.5 } else { (value - self.min) / width };
        }
        let total = self.merged_weight as f64;
        let (first, last) = (self.nodes[0], self.nodes[self.nodes.len() - 1]);
        if value < first.mean {
            if value == self.min {
                return 0.5 / total;
            }
            let part = (value - self.min) / (first.mean - self.min);
            return (1.0 + part * (first.weight as f64 / 2.0 - 1.0)) / total;
        }
        if value > last.mean {
            if value == self.max {
                return 1.0 - 0.5 / total;
            }
            let part = (self.max - value) / (self.max - last.mean);
            return 1.0 - (1.0 + part * (last.weight as f64 / 2.0 - 1.0)) / total;
        }
        self.weight_below(value).map_or(1.0 - 0.5 / total, |weight| weight / total)
    }

    /// Returns the weight below a value between the means of the first and last node, or `None` if
    /// it is the last node's alone.
    fn weight_below(&self, value: f64) -> Option<f64> {
        let mut before = 0.0;
        for (index, pair) in self.nodes.windows(2).enumerate() {
            let (left, right) = (pair[0], pair[1]);
            if left.mean == value {
                let equal = self.nodes[index..].iter().take_while(|node| node.mean == value);
                return Some(before + equal.map(|node| node.weight as f64).sum::<f64>() / 2.0);
            }
            if left.mean <= value && value < right.mean {
                let excluded = match (left.weight, right.weight) {
                    (1, 1) => return Some(before + 1.0),
                    (1, _) => (0.5, 0.0),
                    (_, 1) => (0.0, 0.5),
                    _ => (0.0, 0.0),
                };
                let both = (left.weight + right.weight) as f64 / 2.0 - excluded.0 - excluded.1;
                let base = before + left.weight as f64 / 2.0 + excluded.0;
                return Some(base + both * (value - left.mean) / (right.mean - left.mean));
            }
            before += left.weight as f64;
        }
        None
    }

    /// Returns the number of numbers below `value` and half of those that equal it: -1 if it is
    /// below all, the number of all if it is above all, -2 if there is none. The digest is
    /// [merged](TDigest::merged).
    pub fn rank(&self, value: f64) -> i64 {
        if self.nodes.is_empty() {
            return -2;
        }
        if value < self.min {
            return -1;
        }
        if value > self.max {
            return self.weight();
        }
        round_half_down(self.cdf(value) * self.weight() as f64)
    }

    /// The same as [`TDigest::rank`], counted from the largest number.
    pub fn reverse_rank(&self, value: f64) -> i64 {
        if self.nodes.is_empty() {
            return -2;
        }
        if value > self.max {
            return -1;
        }
        if value < self.min {
            return self.weight();
        }
        let total = self.weight() as f64;
        round_half_down(total - self.cdf(value) * total)
    }

    /// Returns the number of this rank: infinity beyond the last, NaN if there is none. The digest
    /// is [merged](TDigest::merged).
    pub fn by_rank(&self, rank: u64) -> f64 {
        self.number(i128::from(rank))
    }

    /// The same as [`TDigest::by_rank`], counted from the largest number.
    pub fn by_reverse_rank(&self, rank: u64) -> f64 {
        self.number(i128::from(self.weight()) - 1 - i128::from(rank))
    }

    fn number(&self, place: i128) -> f64 {
        let last = i128::from(self.weight()) - 1;
        match place {
            _ if self.nodes.is_empty() => f64::NAN,
            ..0 => f64::NEG_INFINITY,
            _ if place > last => f64::INFINITY,
            0 => self.min,
            _ if place == last => self.max,
            _ if self.nodes.len() == 1 => self.nodes[0].mean,
            _ => self.at(place as f64),
        }
    }

    /// Returns the mean of the numbers between two shares; NaN if there is none. The digest is
    /// [merged](TDigest::merged).
    pub fn trimmed_mean(&self, low: f64, high: f64) -> f64 {
        if let [only] = *self.nodes {
            return only.mean;
        }
        let total = self.merged_weight as f64;
        let (low, high) = ((total * low).floor(), (total * high).ceil());
        let (mut before, mut sum, mut count) = (0.0, 0.0, 0.0);
        for node in &self.nodes {
            let weight = node.weight as f64;
            let above_low = weight - (low - before).max(0.0).min(weight);
            let taken = above_low.min((high - before).max(0.0));
            before += weight;
            sum += node.mean * taken;
            count += taken;
            if before >= high {
                break;
            }
        }
        sum / count
    }

    /// Writes the payload.
    pub fn save(&self, to: &mut Writer<'_>) {
        let digest = self.merged();
        to.double(digest.compression as f64);
        to.double(digest.min);
        to.double(digest.max);
        to.unsigned(digest.room as u64);
        to.unsigned(digest.nodes.len() as u64);
        to.unsigned(0);
        to.unsigned(digest.compressions);
        to.double(digest.merged_weight as f64);
        to.double(0.0);
        digest.nodes.iter().for_each(|node| to.double(node.mean));
        digest.nodes.iter().for_each(|node| to.double(node.weight as f64));
    }

    /// Reads a payload.
    ///
    /// # Errors
    /// It is damaged or of an unknown version.
    pub fn load(from: &mut Reader<'_, '_>, version: u16) -> Result<TDigest, Error> {
        if !READ_VERSIONS.contains(&version) {
            return Err(Error::Corrupt("a t-digest of an unknown version"));
        }
        let (compression, min, max) = (from.double()?, from.double()?, from.double()?);
        if !(1.0..=f64::from(i32::MAX)).contains(&compression) || compression.fract() != 0.0 {
            return Err(DAMAGED);
        }
        let mut digest = TDigest::new(compression as u64, usize::MAX).map_err(|_| DAMAGED)?;
        let room = from.unsigned()?;
        let count = from.count(LEAST_NODE)?;
        let others = from.unsigned()?;
        digest.compressions = from.unsigned()?;
        let (weight, other_weight) = (from.double()?, from.double()?);
        if room != digest.room as u64 || count > digest.room {
            return Err(DAMAGED);
        }
        if (count, others) == (0, 1) && min == max && min.is_finite() {
            // Redis does not merge the first number, and leaves it out: it is both ends.
            digest.nodes.push(Node { mean: min, weight: whole(other_weight)? });
            (digest.merged, digest.merged_weight) = (1, digest.nodes[0].weight);
            (digest.min, digest.max) = (min, max);
            return Ok(digest);
        }
        if others != 0 || other_weight != 0.0 {
            return Err(DAMAGED);
        }
        let means = (0..count).map(|_| from.double()).collect::<Result<Vec<f64>, Error>>()?;
        for mean in means {
            digest.nodes.push(Node { mean, weight: whole(from.double()?)? });
        }
        digest.merged = count;
        let sum = digest.nodes.iter().try_fold(0_i64, |sum, node| sum.checked_add(node.weight));
        digest.merged_weight = sum.ok_or(DAMAGED)?;
        if digest.merged_weight as f64 != weight {
            return Err(DAMAGED);
        }
        if count > 0 {
            let is_sorted = digest.nodes.is_sorted_by(|a, b| a.mean <= b.mean);
            let ends = (digest.nodes[0].mean, digest.nodes[count - 1].mean);
            let is_sound = is_sorted && min <= ends.0 && ends.1 <= max;
            if !is_sound || !min.is_finite() || !max.is_finite() {
                return Err(DAMAGED);
            }
            (digest.min, digest.max) = (min, max);
        }
        Ok(digest)
    }
}

/// Returns the weight of a node in a file.
fn whole(weight: f64) -> Result<i64, Error> {
    let is_weight = (1.0..9.2e18).contains(&weight) && weight.fract() == 0.0;
    if is_weight { Ok(weight as i64) } else { Err(DAMAGED) }
}

/// Returns the nearest integer, the smaller of two.
fn round_half_down(number: f64) -> i64 {
    (number - 0.5).ceil() as i64
}

#[cfg(test)]
mod tests {
    use super::*;
    use rdb::{Compression, Decoder, Encoder};

    const LIMIT: usize = 1 << 20;

    fn digest(compression: u64, values: impl IntoIterator<Item = f64>) -> TDigest {
        let mut digest = TDigest::new(compression, LIMIT).unwrap();
        values.into_iter().for_each(|value| digest.add(value).unwrap());
        digest
    }

    fn load(bytes: &[u8]) -> Result<TDigest, Error> {
        TDigest::load(&mut Reader::new(&mut Decoder::new(bytes)), 0)
    }

    fn saved(digest: &TDigest) -> Vec<u8> {
        let mut encoder = Encoder::new(Compression::Lzf);
        digest.save(&mut Writer::new(&mut encoder));
        encoder.into_bytes()
    }

    #[test]
    fn the_only_number_that_redis_leaves_out_is_read() {
        let mut encoder = Encoder::new(Compression::Off);
        let mut to = Writer::new(&mut encoder);
        [100.0, 5.0, 5.0].into_iter().for_each(|number| to.double(number));
        [610, 0, 1, 0].into_iter().for_each(|number| to.unsigned(number));
        [0.0, 1.0].into_iter().for_each(|number| to.double(number));
        let digest = load(&encoder.into_bytes()).unwrap();
        assert_eq!((digest.weights(), digest.quantile(0.5)), ((1, 0), 5.0));
    }

    /// The figures of TDIGEST.INFO in the public tests of RedisBloom.
    #[test]
    fn nodes_are_merged_when_redis_does() {
        let digest = digest(100, (1..=10_000).map(f64::from));
        assert_eq!((digest.room(), digest.nodes()), (610, (51, 422)));
        assert_eq!((digest.weights(), digest.compressions()), ((9578, 422), 17));
        assert_eq!(digest.reported_bytes(), 9840);
        assert!(digest.allocated_bytes() <= 9760);
    }

    #[test]
    fn ranks_are_those_of_redis() {
        let repeated = [1, 2, 2, 3, 3, 3, 4, 4, 4, 4, 5, 5, 5, 5, 5];
        let digest = digest(1000, repeated.map(f64::from)).merged().into_owned();
        let ranks = (0..7).map(|value| digest.rank(value.into())).collect::<Vec<_>>();
        assert_eq!(ranks, [-1, 0, 2, 4, 8, 12, 15]);
        let ranks = (0..7).map(|value| digest.reverse_rank(value.into())).collect::<Vec<_>>();
        assert_eq!(ranks, [15, 14, 13, 10, 7, 2, -1]);
        let numbers = (0..16).map(|rank| digest.by_rank(rank)).collect::<Vec<_>>();
        assert_eq!(numbers[..15], repeated.map(f64::from));
        assert_eq!(numbers[15], f64::INFINITY);
        let numbers = (0..16).map(|rank| digest.by_reverse_rank(rank)).collect::<Vec<_>>();
        assert!(numbers.iter().rev().skip(1).zip(repeated).all(|(a, b)| *a == f64::from(b)));
        assert_eq!(numbers[15], f64::NEG_INFINITY);
        assert_eq!(digest.by_rank(u64::MAX), f64::INFINITY);
        let tens = self::digest(1000, [10.0, 20.0, 30.0, 40.0, 50.0, 60.0]);
        let ranks = (0..8).map(|value| tens.merged().rank(f64::from(value * 10)));
        assert_eq!(ranks.collect::<Vec<_>>(), [-1, 0, 1, 2, 3, 4, 5, 6]);
        let empty = self::digest(100, []);
        assert_eq!((empty.rank(1.0), empty.reverse_rank(1.0)), (-2, -2));
        assert!(
            empty.by_rank(0).is_nan() && empty.quantile(0.5).is_nan() && empty.cdf(0.0).is_nan()
        );
        assert!(
            empty.min().is_nan() && empty.max().is_nan() && empty.trimmed_mean(0.1, 0.9).is_nan()
        );
    }

    #[test]
    fn quantiles_and_means_are_those_of_redis() {
        let five = digest(100, (1..=5).map(f64::from)).merged().into_owned();
        assert_eq!([0.5, 0.8].map(|share| five.quantile(share)), [3.0, 5.0]);
        let nine = digest(100, (1..=9).map(f64::from)).merged().into_owned();
        assert_eq!((nine.trimmed_mean(0.1, 0.9), nine.trimmed_mean(0.4, 0.5)), (5.0, 4.5));
        assert_eq!((nine.cdf(1.0), nine.cdf(9.0)), (0.5 / 9.0, 8.5 / 9.0));
        assert_eq!((nine.cdf(0.9), nine.cdf(9.1), nine.cdf(4.5)), (0.0, 1.0, 4.0 / 9.0));
        let mut few = digest(500, [1.0; 9]);
        few.add(5.0).unwrap();
        let mean = |low, high| (few.merged().trimmed_mean(low, high) * 10.0).round();
        assert_eq!((mean(0.1, 0.9), mean(0.095, 0.905), mean(0.01, 0.99)), (10.0, 14.0, 14.0));
    }

    /// Returns numbers between 0 and 1 that look like chance.
    fn uniform(count: u64) -> impl Iterator<Item = f64> {
        let mut state = 1_u64;
        (0..count).map(move |_| {
            state = state
                .wrapping_mul(6_364_136_223_846_793_005)
                .wrapping_add(1_442_695_040_888_963_407);
            ((state >> 11) as f64 + 0.5) / (1_u64 << 53) as f64
        })
    }

    #[test]
    fn quantiles_are_near_the_exact_ones_of_five_distributions() {
        const COUNT: u64 = 100_000;
        type Shape = fn(f64) -> f64;
        let shapes: [(&str, Shape); 5] = [
            ("uniform", |u| u),
            ("exponential", |u| -u.ln()),
            ("logistic", |u| (u / (1.0 - u)).ln()),
            ("heavy tail", |u| u.powf(-0.8)),
            ("dense at 0", |u| u.powi(5)),
        ];
        for (name, shape) in shapes {
            let mut values: Vec<f64> = uniform(COUNT).map(shape).collect();
            let digest = digest(100, values.iter().copied()).merged().into_owned();
            values.sort_by(f64::total_cmp);
            for share in [0.0001, 0.001, 0.01, 0.1, 0.25, 0.5, 0.75, 0.9, 0.99, 0.999, 0.9999] {
                let answer = digest.quantile(share);
                let below = values.partition_point(|&value| value < answer) as f64 / COUNT as f64;
                // Half of the largest share of a node, which is smaller at both ends.
                let allowed = PI * (COUNT as f64).ln() / 100.0 * share * (1.0 - share) + 1e-4;
                assert!((below - share).abs() <= allowed, "{name} {share}: {below}");
                let cdf = digest.cdf(values[(share * COUNT as f64) as usize]);
                assert!((cdf - share).abs() <= allowed, "{name} cdf {share}: {cdf}");
            }
            assert_eq!((digest.quantile(0.0), digest.quantile(1.0)), (values[0], values[99_999]));
            let mean = values[10_000..90_000].iter().sum::<f64>() / 80_000.0;
            let answer = digest.trimmed_mean(0.1, 0.9);
            assert!((answer - mean).abs() <= 0.01 * mean.abs().max(0.1), "{name}: {answer} {mean}");
        }
    }

    #[test]
    fn a_settled_digest_goes_on_as_its_copy_from_a_file() {
        let mut digest = TDigest::new(100, LIMIT).unwrap();
        let mut copies = vec![digest.clone()];
        for (count, value) in uniform(20_000).map(|u| -u.ln()).enumerate() {
            for digest in copies.iter_mut().chain([&mut digest]) {
                digest.add(value).unwrap();
                digest.settle();
            }
            if count % 4000 == 700 {
                copies.push(load(&saved(&digest)).unwrap());
            }
        }
        assert_eq!(copies.len(), 6);
        assert!(copies.iter().all(|copy| *copy == digest));
        for share in [0.001, 0.01, 0.1, 0.5, 0.9, 0.99, 0.999] {
            // The exact share below the answer, by the distribution.
            let below = 1.0 - (-digest.quantile(share)).exp();
            let allowed = PI * 20_000_f64.ln() / 100.0 * share * (1.0 - share) + 1e-2;
            assert!((below - share).abs() <= allowed, "{share}: {below}");
        }
    }

    #[test]
    fn digests_are_merged() {
        let mut whole = digest(100, (0..5000).map(f64::from));
        whole.merge(&digest(200, (5000..10_000).map(f64::from))).unwrap();
        assert_eq!((whole.weight(), whole.min(), whole.max()), (10_000, 0.0, 9999.0));
        assert!((whole.merged().quantile(0.5) - 5000.0).abs() < 100.0);
        let mut many = digest(100, [1.0, 2.0]);
        let ends = (0..100).map(|_| many.merge(&many.clone())).find(Result::is_err);
        assert_eq!(ends, Some(Err(DigestError::Overflow)));
        assert_eq!(TDigest::new(u64::MAX, usize::MAX).err(), Some(DigestError::TooLarge));
        assert_eq!(TDigest::new(100_000, LIMIT).err(), Some(DigestError::TooLarge));
    }

    #[test]
    fn payloads_come_back_and_damage_does_no_harm() {
        for count in [0, 1, 2, 100, 10_000] {
            let digest = digest(100, (0..count).map(f64::from));
            let bytes = saved(&digest);
            let copy = load(&bytes).unwrap();
            assert_eq!(copy, *digest.merged());
            for cut in 0..bytes.len() {
                assert!(load(&bytes[..cut]).is_err());
            }
            for at in 0..bytes.len() {
                for flip in [1, 0x40, 0xff] {
                    let mut damaged = bytes.clone();
                    damaged[at] ^= flip;
                    // It may still be a digest. Then it has to be usable.
                    if let Ok(mut digest) = load(&damaged) {
                        let added = (0..700).map(|value| digest.add(f64::from(value)));
                        assert!(added.count() == 700);
                        digest.merged().quantile(0.5);
                    }
                }
            }
        }
    }

    proptest::proptest! {
        #[test]
        fn answers_lie_between_the_ends(
            values in proptest::collection::vec(-1e300_f64..1e300, 1..2000),
            share in 0.0..=1.0,
        ) {
            let digest = digest(10, values.iter().copied()).merged().into_owned();
            let answer = digest.quantile(share);
            assert!(digest.min() <= answer && answer <= digest.max());
            let cdf = digest.cdf(values[0]);
            assert!((0.0..=1.0).contains(&cdf));
            assert_eq!(load(&saved(&digest)), Ok(digest));
        }
    }
}

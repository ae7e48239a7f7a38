//! A series: chunks of samples that ascend in time, settings, labels, rules.
//!
//! Chunks are shared by copies of the series until one of them changes a chunk, so the copy that a
//! snapshot causes costs a pointer for each chunk.

use crate::Sample;
use crate::aggregate::{Aggregator, Around, Reduction};
use crate::buckets::Buckets;
use crate::chunk::Chunk;
use std::sync::Arc;
use structs::labels::Labels;

/// Chunks whose samples fall below half of the size are joined with the next by nothing: a chunk
/// that outgrows its size by so many eighths is split.
const SPLIT_EIGHTHS: usize = 10;

/// How samples are kept.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Encoding {
    /// As differences.
    Compressed,
    /// In 16 bytes each.
    Uncompressed,
}

/// What happens to a sample of a time that is there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Policy {
    /// It is an error.
    Block,
    /// The old one stays.
    First,
    /// The new one replaces it.
    Last,
    /// The smaller one stays.
    Min,
    /// The larger one stays.
    Max,
    /// They are added up.
    Sum,
}

const POLICIES: [(Policy, &str); 6] = [
    (Policy::Block, "block"),
    (Policy::Last, "last"),
    (Policy::First, "first"),
    (Policy::Min, "min"),
    (Policy::Max, "max"),
    (Policy::Sum, "sum"),
];

impl Policy {
    /// Returns the policy of a name, in any case.
    pub fn named(name: &[u8]) -> Option<Policy> {
        let is_it = |of: &&(Policy, &str)| of.1.as_bytes().eq_ignore_ascii_case(name);
        POLICIES.iter().find(is_it).map(|&(policy, _)| policy)
    }

    /// Returns the name, in lower case.
    pub fn name(self) -> &'static str {
        POLICIES[self.number()].1
    }

    pub(crate) fn number(self) -> usize {
        POLICIES.iter().position(|&(policy, _)| policy == self).unwrap_or(0)
    }

    pub(crate) fn numbered(number: u64) -> Option<Policy> {
        POLICIES.get(usize::try_from(number).ok()?).map(|&(policy, _)| policy)
    }

    /// Returns the value that stays of two.
    fn choose(self, old: f64, new: f64) -> Result<f64, AddError> {
        match self {
            Policy::Block => return Err(AddError::Blocked),
            Policy::First => return Ok(old),
            Policy::Last => return Ok(new),
            _ if old.is_nan() != new.is_nan() => return Err(AddError::NotComparable),
            _ => {}
        }
        Ok(match self {
            Policy::Min => old.min(new),
            Policy::Max => old.max(new),
            _ => old + new,
        })
    }
}

/// Which samples are too near to the last one to be kept.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Ignore {
    /// At most so many milliseconds later.
    pub max_time: u64,
    /// And at most so far in value.
    pub max_value: f64,
}

/// What a request says of a series.
#[derive(Clone, Debug, PartialEq)]
pub struct Settings {
    /// Milliseconds for which samples stay; 0: for good.
    pub retention: u64,
    /// How samples are kept.
    pub encoding: Encoding,
    /// Bytes of the samples of a chunk.
    pub chunk_size: usize,
    /// What happens to a sample of a time that is there.
    pub policy: Policy,
    /// Which samples are left out.
    pub ignore: Ignore,
}

/// A rule that reduces the samples to another series.
#[derive(Clone, Debug, PartialEq)]
pub struct Rule {
    /// The key of the other series.
    pub target: Box<[u8]>,
    /// How they are reduced.
    pub aggregator: Aggregator,
    /// What is reduced to one sample.
    pub buckets: Buckets,
    /// Samples up to here were there before the rule, and do not count in their bucket.
    pub after: Option<u64>,
}

/// Which samples of a bucket are reduced.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Counted {
    /// Those that came after the rule: of an open bucket, and of one that closes.
    SinceRule,
    /// All: of a closed bucket in which something has changed.
    All,
}

/// Why a sample is refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AddError {
    /// There is one of this time.
    Blocked,
    /// One of two values is no number, and they cannot be compared or added.
    NotComparable,
    /// It is older than the retention.
    TooOld,
    /// The sum is infinite.
    Infinite,
}

/// What adding a sample has done.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Added {
    /// It is the last one now. That before it was at this time.
    Appended(Option<u64>),
    /// It is among the others, or has replaced one.
    Inserted,
    /// Nothing: what was there stays.
    Unchanged,
    /// Nothing: it is too near to the last one.
    Ignored,
}

/// The figures of a chunk.
#[derive(Clone, Copy, Debug)]
pub struct ChunkFigures {
    /// The time of its first sample.
    pub first: u64,
    /// The time of its last sample.
    pub last: u64,
    /// How many samples it has.
    pub samples: usize,
    /// Bytes of the samples.
    pub bytes: usize,
}

/// A series.
#[derive(Clone, Debug)]
pub struct Series {
    pub(crate) settings: Settings,
    pub(crate) labels: Arc<Labels>,
    pub(crate) rules: Vec<Rule>,
    pub(crate) source: Option<Box<[u8]>>,
    /// In ascending order; each has a sample at least.
    pub(crate) chunks: Vec<Arc<Chunk>>,
    pub(crate) count: usize,
}

impl Series {
    /// Returns a series without samples.
    pub fn new(settings: Settings, labels: Labels) -> Series {
        let (rules, chunks) = (Vec::new(), Vec::new());
        Series { settings, labels: Arc::new(labels), rules, source: None, chunks, count: 0 }
    }

    /// Returns the settings.
    pub fn settings(&self) -> &Settings {
        &self.settings
    }

    /// Returns the settings to change them. What is there stays as it is.
    pub fn settings_mut(&mut self) -> &mut Settings {
        &mut self.settings
    }

    /// Returns the labels.
    pub fn labels(&self) -> &Arc<Labels> {
        &self.labels
    }

    /// Replaces the labels.
    pub fn set_labels(&mut self, labels: Labels) {
        self.labels = Arc::new(labels);
    }

    /// Returns the rules.
    pub fn rules(&self) -> &[Rule] {
        &self.rules
    }

    /// Returns the rules to change them.
    pub fn rules_mut(&mut self) -> &mut Vec<Rule> {
        &mut self.rules
    }

    /// Returns the key of the series that this one is made of.
    pub fn source(&self) -> Option<&[u8]> {
        self.source.as_deref()
    }

    /// Says of which series this one is made.
    pub fn set_source(&mut self, source: Option<&[u8]>) {
        self.source = source.map(Box::from);
    }

    /// Returns the number of samples, with those beyond the retention that are still there.
    pub fn count(&self) -> usize {
        self.count
    }

    /// Returns the first sample that counts.
    pub fn first(&self) -> Option<Sample> {
        let mut first = None;
        self.visit(0, u64::MAX, |sample| {
            first = Some(sample);
            false
        });
        first
    }

    /// Returns the last sample.
    pub fn last(&self) -> Option<Sample> {
        self.chunks.last().map(|chunk| chunk.last())
    }

    /// Returns the figures of each chunk.
    pub fn chunks(&self) -> impl ExactSizeIterator<Item = ChunkFigures> + '_ {
        self.chunks.iter().map(|chunk| ChunkFigures {
            first: chunk.first().time,
            last: chunk.last().time,
            samples: chunk.count(),
            bytes: chunk.bytes(),
        })
    }

    /// Returns the bytes of the blocks, without those of the struct.
    pub fn allocated_bytes(&self) -> usize {
        let chunks: usize = self.chunks.iter().map(|chunk| chunk.allocated_bytes()).sum();
        let pointers = self.chunks.capacity() * size_of::<Arc<Chunk>>();
        let rules = self.rules.iter().map(|rule| size_of::<Rule>() + rule.target.len());
        chunks + pointers + self.labels.allocated_bytes() + rules.sum::<usize>()
    }

    /// Returns the time before which samples do not count any more.
    pub fn floor(&self) -> u64 {
        let last = self.last().map_or(0, |sample| sample.time);
        if self.settings.retention == 0 { 0 } else { last.saturating_sub(self.settings.retention) }
    }

    /// Calls `visit` with the samples from one time to another, both included, in order, until it
    /// returns false.
    #[inline]
    pub fn visit(&self, from: u64, to: u64, mut visit: impl FnMut(Sample) -> bool) {
        let from = from.max(self.floor());
        let begin = self.chunks.partition_point(|chunk| chunk.last().time < from);
        for chunk in &self.chunks[begin..] {
            if chunk.first().time > to {
                return;
            }
            let goes_on = chunk.visit(|sample| match sample.time {
                time if time < from => true,
                time if time > to => false,
                _ => visit(sample),
            });
            if !goes_on {
                return;
            }
        }
    }

    /// Returns the number of samples from a time on, or `most` if there are more.
    pub fn count_from(&self, from: u64, most: usize) -> usize {
        let from = from.max(self.floor());
        let begin = self.chunks.partition_point(|chunk| chunk.last().time < from);
        let mut count = 0;
        for chunk in &self.chunks[begin..] {
            if count >= most {
                break;
            }
            if chunk.first().time >= from {
                count += chunk.count();
                continue;
            }
            chunk.visit(|sample| {
                count += usize::from(sample.time >= from);
                count < most
            });
        }
        count.min(most)
    }

    /// Calls `visit` as [`Series::visit`] does, in descending order.
    pub fn visit_reverse(&self, from: u64, to: u64, mut visit: impl FnMut(Sample) -> bool) {
        let from = from.max(self.floor());
        let end = self.chunks.partition_point(|chunk| chunk.first().time <= to);
        for chunk in self.chunks[..end].iter().rev() {
            if chunk.last().time < from {
                return;
            }
            for sample in chunk.samples().into_iter().rev() {
                if sample.time < from {
                    return;
                }
                if sample.time <= to && !visit(sample) {
                    return;
                }
            }
        }
    }

    /// Returns the last number before a time.
    pub fn number_before(&self, time: u64) -> Option<Sample> {
        let mut found = None;
        self.visit_reverse(0, time.checked_sub(1)?, |sample| {
            found = (!sample.value.is_nan()).then_some(sample);
            found.is_none()
        });
        found
    }

    /// Returns the first number behind a time.
    pub fn number_after(&self, time: u64) -> Option<Sample> {
        let mut found = None;
        self.visit(time.saturating_add(1), u64::MAX, |sample| {
            found = (!sample.value.is_nan()).then_some(sample);
            found.is_none()
        });
        found
    }

    /// Returns the value at a time.
    pub fn at(&self, time: u64) -> Option<f64> {
        let mut found = None;
        self.visit(time, time, |sample| {
            found = Some(sample.value);
            false
        });
        found
    }

    /// Returns whether a sample is too near to the last one to be kept.
    pub fn ignores(&self, sample: Sample) -> bool {
        let ignore = self.settings.ignore;
        let Some(last) = self.last() else { return false };
        self.source.is_none()
            && self.settings.policy == Policy::Last
            && sample.time >= last.time
            && (ignore.max_time > 0 || ignore.max_value > 0.0)
            && sample.time - last.time <= ignore.max_time
            && (sample.value - last.value).abs() <= ignore.max_value
    }

    /// Adds a sample.
    ///
    /// # Errors
    /// It is too old, or the policy refuses it.
    pub fn add(&mut self, sample: Sample, policy: Policy) -> Result<Added, AddError> {
        let last = self.last().map(|last| last.time);
        if last.is_none_or(|last| last < sample.time) {
            self.append(sample);
            self.trim();
            return Ok(Added::Appended(last));
        }
        if sample.time < self.floor() {
            return Err(AddError::TooOld);
        }
        let at = self.chunks.partition_point(|chunk| chunk.last().time < sample.time);
        let mut samples = self.chunks[at].samples();
        match samples.binary_search_by_key(&sample.time, |it| it.time) {
            Ok(place) => {
                let old = samples[place].value;
                let value = policy.choose(old, sample.value)?;
                if value.is_infinite() {
                    return Err(AddError::Infinite);
                }
                if value.to_bits() == old.to_bits() {
                    return Ok(Added::Unchanged);
                }
                samples[place].value = value;
            }
            Err(place) => {
                samples.insert(place, sample);
                self.count += 1;
            }
        }
        self.replace_chunk(at, &samples);
        Ok(Added::Inserted)
    }

    fn is_compressed(&self) -> bool {
        self.settings.encoding == Encoding::Compressed
    }

    /// Adds a sample that is later than the last.
    pub(crate) fn append(&mut self, sample: Sample) {
        self.count += 1;
        let is_compressed = self.is_compressed();
        if let Some(chunk) = self.chunks.last_mut() {
            if chunk.bytes() < self.settings.chunk_size {
                return Arc::make_mut(chunk).push(sample);
            }
            if let Some(chunk) = Arc::get_mut(chunk) {
                chunk.shrink();
            }
        }
        self.chunks.push(Arc::new(Chunk::new(sample, is_compressed)));
    }

    /// Puts samples into the place of a chunk: one, two if it has grown too large, or none.
    fn replace_chunk(&mut self, at: usize, samples: &[Sample]) {
        let is_compressed = self.is_compressed();
        let chunk = Chunk::of(samples, is_compressed);
        let is_large = |chunk: &Chunk| chunk.bytes() * 8 > self.settings.chunk_size * SPLIT_EIGHTHS;
        let parts = match chunk {
            Some(chunk) if samples.len() > 1 && is_large(&chunk) => {
                let (front, back) = samples.split_at(samples.len() / 2);
                vec![Chunk::of(front, is_compressed), Chunk::of(back, is_compressed)]
            }
            chunk => vec![chunk],
        };
        self.chunks.splice(at..=at, parts.into_iter().flatten().map(Arc::new));
    }

    /// Removes chunks whose samples do not count any more, nor for the open bucket of a rule.
    fn trim(&mut self) {
        let mut floor = self.floor();
        let Some(last) = self.last().filter(|_| floor > 0) else { return };
        for rule in &self.rules {
            floor = floor.min(rule.buckets.start(last.time));
        }
        let gone = self.chunks.partition_point(|chunk| chunk.last().time < floor);
        if gone > 0 {
            let count: usize = self.chunks.drain(..gone).map(|chunk| chunk.count()).sum();
            self.count -= count;
        }
    }

    /// Removes the samples from one time to another, both included. Returns their times.
    pub fn remove(&mut self, from: u64, to: u64) -> Vec<u64> {
        let from = from.max(self.floor());
        let mut removed = Vec::new();
        self.visit(from, to, |sample| {
            removed.push(sample.time);
            true
        });
        let begin = self.chunks.partition_point(|chunk| chunk.last().time < from);
        let mut at = begin;
        while at < self.chunks.len() && self.chunks[at].first().time <= to {
            let before = self.chunks.len();
            let mut samples = self.chunks[at].samples();
            samples.retain(|sample| !(from..=to).contains(&sample.time));
            self.replace_chunk(at, &samples);
            at += self.chunks.len() + 1 - before;
        }
        self.count -= removed.len();
        removed
    }

    /// Returns what a rule reduces the bucket of a time to, if any sample of it counts.
    pub fn reduced(&self, rule: &Rule, time: u64, counted: Counted) -> Option<Sample> {
        let (begin, end) = rule.buckets.of(time);
        let is_new = counted == Counted::SinceRule;
        let before = rule.after.filter(|after| is_new && (begin..end).contains(after));
        let from = before.map_or(begin, |after| after + 1);
        let mut reduction = Reduction::new(rule.aggregator);
        // The samples of the open bucket count, even if they are beyond the retention.
        let first = self.chunks.partition_point(|chunk| chunk.last().time < from);
        for chunk in &self.chunks[first..] {
            let goes_on = chunk.visit(|sample| {
                if (from..end).contains(&sample.time) {
                    reduction.add(sample);
                }
                sample.time < end
            });
            if !goes_on {
                break;
            }
        }
        if reduction.is_empty() {
            return None;
        }
        let mut around = Around { begin, end, ..Around::default() };
        if rule.aggregator == Aggregator::Twa {
            around.before = self.number_before(begin);
            around.after = self.number_after(end - 1);
        }
        Some(Sample { time: begin, value: reduction.value(&around) })
    }

    /// Returns what the open bucket of a rule is reduced to at present.
    pub fn open_bucket(&self, rule: &Rule) -> Option<Sample> {
        self.reduced(rule, self.last()?.time, Counted::SinceRule)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn samples_are_counted_from_any_time_up_to_any_number() {
        for encoding in [Encoding::Compressed, Encoding::Uncompressed] {
            for retention in [0, 400] {
                let (policy, ignore) = (Policy::Last, Ignore::default());
                let settings = Settings { retention, encoding, chunk_size: 64, policy, ignore };
                let mut series = Series::new(settings, Labels::default());
                assert_eq!(series.count_from(0, 5), 0);
                for at in 0..100 {
                    let sample = Sample { time: 10 * at, value: at as f64 / 3.0 };
                    series.add(sample, Policy::Last).expect("it is later than the last");
                }
                assert!(series.chunks().len() > 3);
                for from in 0..1010 {
                    let mut count = 0;
                    series.visit(from, u64::MAX, |_| {
                        count += 1;
                        true
                    });
                    for most in [1, 7, count, count + 1, usize::MAX] {
                        assert_eq!(series.count_from(from, most), count.min(most), "{from}");
                    }
                }
            }
        }
    }
}

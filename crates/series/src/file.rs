//! The payload of a series in RDB files and DUMP.
//!
//! ```text
//!  retention, chunk size, encoding, policy, ignored time, ignored value (double)
//!  labels:  count, then name and value (strings) of each
//!  source:  a string, empty without one
//!  rules:   count, then target (string), aggregator, duration, align, 0 or 1 + the time that the
//!           rule is after
//!  chunks:  count, then of each: form, count of samples, and
//!           plain   (form 2^64 - 2): a string of 16 bytes a sample, time and value
//!           packed  (form 2^64 - 1: Xor; else the digits of decimals): time and value of the first
//!                   sample, number of bits, a string of them
//! ```
//!
//! Numbers without a note are unsigned. The name is that of Redis's type, the version one that it
//! refuses. What Redis writes is read, too: `redis_file`.

use crate::Sample;
use crate::aggregate::Aggregator;
use crate::bits::Bits;
use crate::buckets::Buckets;
use crate::chunk::Chunk;
use crate::packed::Packed;
use crate::redis_file::{self, REDIS_VERSION};
use crate::series::{Encoding, Ignore, Policy, Rule, Series, Settings};
use rdb::Error;
use rdb::module::{Reader, Writer};
use std::sync::Arc;
use structs::labels::Labels;

/// The name of the type.
pub const NAME: &str = "TSDB-TYPE";
/// The version that is written.
pub const VERSION: u16 = 512;

const PLAIN: u64 = u64::MAX - 1;
const SAMPLE_BYTES: usize = 16;

impl Series {
    /// Writes the series.
    pub fn save(&self, to: &mut Writer<'_>) {
        let settings = &self.settings;
        to.unsigned(settings.retention);
        to.unsigned(settings.chunk_size as u64);
        to.unsigned(u64::from(settings.encoding == Encoding::Uncompressed));
        to.unsigned(settings.policy.number() as u64);
        to.unsigned(settings.ignore.max_time);
        to.double(settings.ignore.max_value);
        to.unsigned(self.labels.iter().count() as u64);
        for (name, value) in self.labels.iter() {
            to.string(name);
            to.string(value);
        }
        to.string(self.source().unwrap_or_default());
        to.unsigned(self.rules.len() as u64);
        for rule in &self.rules {
            to.string(&rule.target);
            to.unsigned(rule.aggregator.number() as u64);
            to.unsigned(rule.buckets.duration);
            to.unsigned(rule.buckets.align);
            to.unsigned(rule.after.map_or(0, |after| after + 1));
        }
        to.unsigned(self.chunks.len() as u64);
        self.chunks.iter().for_each(|chunk| save_chunk(chunk, to));
    }
}

fn save_chunk(chunk: &Chunk, to: &mut Writer<'_>) {
    match chunk {
        Chunk::Plain(samples) => {
            to.unsigned(PLAIN);
            to.unsigned(samples.len() as u64);
            let mut bytes = Vec::with_capacity(samples.len() * SAMPLE_BYTES);
            for sample in samples {
                bytes.extend_from_slice(&sample.time.to_le_bytes());
                bytes.extend_from_slice(&sample.value.to_le_bytes());
            }
            to.string(&bytes);
        }
        Chunk::Packed(packed) => {
            let (form, first, count, bits) = packed.parts();
            to.unsigned(form);
            to.unsigned(count as u64);
            to.unsigned(first.time);
            to.double(first.value);
            to.unsigned(bits.len() as u64);
            to.string(&bits.to_bytes());
        }
    }
}

/// Reads a series. The input may be hostile.
///
/// # Errors
/// It is none, or of another version.
pub fn load(from: &mut Reader<'_, '_>, version: u16) -> Result<Series, Error> {
    match version {
        VERSION => {}
        REDIS_VERSION => return redis_file::load(from),
        _ => return Err(Error::Corrupt("a series of another version")),
    }
    let corrupt = Error::Corrupt("a time series");
    let settings = load_settings(from)?;
    let mut labels = Vec::new();
    for _ in 0..from.count(2)? {
        labels.push((Box::from(&*from.string()?), Box::from(&*from.string()?)));
    }
    let mut series = Series::new(settings, Labels::new(labels));
    let source = from.string()?;
    series.set_source(Some(&*source).filter(|source| !source.is_empty()));
    for _ in 0..from.count(5)? {
        series.rules.push(load_rule(from)?);
    }
    for _ in 0..from.count(3)? {
        let chunk = load_chunk(from)?;
        if series.last().is_some_and(|last| last.time >= chunk.first().time) {
            return Err(corrupt);
        }
        series.count += chunk.count();
        series.chunks.push(Arc::new(chunk));
    }
    Ok(series)
}

fn load_settings(from: &mut Reader<'_, '_>) -> Result<Settings, Error> {
    let corrupt = || Error::Corrupt("the settings of a time series");
    let settings = Settings {
        retention: from.unsigned()?,
        chunk_size: usize::try_from(from.unsigned()?).map_err(|_| corrupt())?,
        encoding: match from.unsigned()? {
            0 => Encoding::Compressed,
            1 => Encoding::Uncompressed,
            _ => return Err(corrupt()),
        },
        policy: Policy::numbered(from.unsigned()?).ok_or_else(corrupt)?,
        ignore: Ignore { max_time: from.unsigned()?, max_value: from.double()? },
    };
    let is_sound = (48..=1 << 20).contains(&settings.chunk_size);
    is_sound.then_some(settings).ok_or_else(corrupt)
}

fn load_rule(from: &mut Reader<'_, '_>) -> Result<Rule, Error> {
    let corrupt = || Error::Corrupt("a rule of a time series");
    let rule = Rule {
        target: Box::from(&*from.string()?),
        aggregator: Aggregator::numbered(from.unsigned()?).ok_or_else(corrupt)?,
        buckets: Buckets { duration: from.unsigned()?, align: from.unsigned()? },
        after: from.unsigned()?.checked_sub(1),
    };
    let most = i64::MAX as u64;
    let Buckets { duration, align } = rule.buckets;
    let is_sound = (1..=most).contains(&duration)
        && align <= most
        && rule.after.is_none_or(|after| after <= most);
    is_sound.then_some(rule).ok_or_else(corrupt)
}

fn load_chunk(from: &mut Reader<'_, '_>) -> Result<Chunk, Error> {
    let corrupt = || Error::Corrupt("a chunk of a time series");
    let form = from.unsigned()?;
    let count = usize::try_from(from.unsigned()?).map_err(|_| corrupt())?;
    if form == PLAIN {
        let bytes = from.string()?;
        if count.checked_mul(SAMPLE_BYTES) != Some(bytes.len()) {
            return Err(corrupt());
        }
        let samples = bytes.chunks_exact(SAMPLE_BYTES).map(|bytes| {
            let number = |at: usize| {
                let mut number = [0; 8];
                number.copy_from_slice(&bytes[at..at + 8]);
                u64::from_le_bytes(number)
            };
            Sample { time: number(0), value: f64::from_bits(number(8)) }
        });
        return Chunk::plain(samples.collect()).ok_or_else(corrupt);
    }
    let first = Sample { time: from.unsigned()?, value: from.double()? };
    let len = usize::try_from(from.unsigned()?).map_err(|_| corrupt())?;
    let bits = Bits::from_bytes(&from.string()?, len).ok_or_else(corrupt)?;
    Packed::from_parts(form, first, count, bits).map(Chunk::Packed).ok_or_else(corrupt)
}

//! The payload of a series that Redis's module writes, version 8; it is read, not written.
//!
//! The layout was found by looking at what a running module writes for series that were made for
//! it, not by its sources. A test reads payloads of that module.
//!
//! ```text
//!  name of the key (string) │ retention │ chunk size │ 1 uncompressed, 2 compressed
//!  time and value (double) of the last sample │ samples │ policy, 0: none
//!  0, or 1 and the source (string) │ ignored time │ ignored value (double)
//!  labels:  count, then name and value (strings) of each
//!  rules:   count, then target (string), duration, align, aggregator, start of the open bucket,
//!           and what the aggregator has of it
//!  chunks:  count, then of each
//!           uncompressed  first time │ samples │ bytes │ a string: 16 bytes a sample, and more
//!           compressed    bytes │ samples │ bits │ first value, its bits │ first time │ what is
//!                         needed to append (five) │ a string of the bits, then anything
//!
//!  a compressed sample: 0, or 10, 110, 1110, 11110, 111110, 111111 and a number of 5, 8, 11, 15,
//!  32, 64 bits: how much larger its distance to the sample before is than the last distance; then
//!  0: the same value; 10 and the bits that differ, at the same place; 11, zeros before them (5
//!  bits), their count less one (6 bits), and they. The lowest bit comes first, in bytes and
//!  numbers.
//! ```

use crate::Sample;
use crate::aggregate::Aggregator;
use crate::buckets::Buckets;
use crate::packed::is_sample;
use crate::series::{Encoding, Ignore, Policy, Rule, Series, Settings};
use rdb::Error;
use rdb::module::Reader;
use structs::labels::Labels;

/// The version that is read.
pub const REDIS_VERSION: u16 = 8;

const DAMAGED: Error = Error::Corrupt("a time series of Redis");
const SAMPLE_BYTES: usize = 16;
/// The widths of differences of distances, by the ones before them.
const WIDTHS: [u32; 7] = [0, 5, 8, 11, 15, 32, 64];

/// The policies by their numbers.
const POLICIES: [Policy; 7] = [
    Policy::Block,
    Policy::Block,
    Policy::Last,
    Policy::First,
    Policy::Min,
    Policy::Max,
    Policy::Sum,
];

/// The aggregators by their numbers less one, and what a file has of an open bucket: doubles (d)
/// and numbers (u).
const AGGREGATORS: [(Aggregator, &[u8]); 13] = [
    (Aggregator::Min, b"dd"),
    (Aggregator::Max, b"dd"),
    (Aggregator::Sum, b"d"),
    (Aggregator::Avg, b"ddu"),
    (Aggregator::Count, b"d"),
    (Aggregator::First, b"du"),
    (Aggregator::Last, b"d"),
    (Aggregator::Range, b"dd"),
    (Aggregator::StdP, b"ddu"),
    (Aggregator::StdS, b"ddu"),
    (Aggregator::VarP, b"ddu"),
    (Aggregator::VarS, b"ddu"),
    (Aggregator::Twa, b"duduuuuuuu"),
];

/// Reads a series. The input may be hostile.
///
/// # Errors
/// It is none.
pub fn load(from: &mut Reader<'_, '_>) -> Result<Series, Error> {
    let _key = from.string()?;
    let retention = from.unsigned()?;
    let chunk_size = usize::try_from(from.unsigned()?).map_err(|_| DAMAGED)?;
    let encoding = match from.unsigned()? & 3 {
        1 => Encoding::Uncompressed,
        2 => Encoding::Compressed,
        _ => return Err(DAMAGED),
    };
    let _last = (from.unsigned()?, from.double()?);
    let _samples = from.unsigned()?;
    let policy = usize::try_from(from.unsigned()?).ok().and_then(|at| POLICIES.get(at).copied());
    let policy = policy.ok_or(DAMAGED)?;
    let source = match from.unsigned()? {
        0 => None,
        1 => Some(from.string()?),
        _ => return Err(DAMAGED),
    };
    let ignore = Ignore { max_time: from.unsigned()?, max_value: from.double()? };
    if !(48..=1 << 20).contains(&chunk_size) || ignore.max_value.is_nan() {
        return Err(DAMAGED);
    }
    let mut labels = Vec::new();
    for _ in 0..from.count(2)? {
        labels.push((Box::from(&*from.string()?), Box::from(&*from.string()?)));
    }
    let settings = Settings { retention, encoding, chunk_size, policy, ignore };
    let mut series = Series::new(settings, Labels::new(labels));
    series.set_source(source.as_deref());
    for _ in 0..from.count(5)? {
        series.rules.push(load_rule(from)?);
    }
    for _ in 0..from.count(3)? {
        load_chunk(&mut series, from)?;
    }
    Ok(series)
}

fn load_rule(from: &mut Reader<'_, '_>) -> Result<Rule, Error> {
    let target = Box::from(&*from.string()?);
    let buckets = Buckets { duration: from.unsigned()?, align: from.unsigned()? };
    let number = from.unsigned()?.checked_sub(1).and_then(|at| usize::try_from(at).ok());
    let &(aggregator, state) = number.and_then(|at| AGGREGATORS.get(at)).ok_or(DAMAGED)?;
    let _bucket = from.unsigned()?;
    for kind in state {
        // The open bucket is reduced again, from its samples.
        if *kind == b'd' {
            from.double()?;
        } else {
            from.unsigned()?;
        }
    }
    let most = i64::MAX as u64;
    let is_sound = (1..=most).contains(&buckets.duration) && buckets.align <= most;
    is_sound.then_some(Rule { target, aggregator, buckets, after: None }).ok_or(DAMAGED)
}

fn load_chunk(series: &mut Series, from: &mut Reader<'_, '_>) -> Result<(), Error> {
    let is_compressed = series.settings.encoding == Encoding::Compressed;
    let mut add = |sample: Sample| {
        let ascends = series.last().is_none_or(|last| last.time < sample.time);
        if !ascends || !is_sample(sample) {
            return Err(DAMAGED);
        }
        series.append(sample);
        Ok(())
    };
    if !is_compressed {
        let _first = from.unsigned()?;
        let count = usize::try_from(from.unsigned()?).map_err(|_| DAMAGED)?;
        let _bytes = from.unsigned()?;
        let bytes = from.string()?;
        let (samples, _) = bytes.as_chunks::<SAMPLE_BYTES>();
        let samples = samples.get(..count).ok_or(DAMAGED)?;
        return samples.iter().try_for_each(|sample| {
            let (halves, _) = sample.as_chunks::<8>();
            let value = f64::from_le_bytes(halves[1]);
            add(Sample { time: u64::from_le_bytes(halves[0]), value })
        });
    }
    let _bytes = from.unsigned()?;
    let count = from.unsigned()?;
    let len = usize::try_from(from.unsigned()?).map_err(|_| DAMAGED)?;
    let value = f64::from_bits(from.unsigned()?);
    let first = Sample { time: from.unsigned()?, value };
    for _ in 0..5 {
        from.unsigned()?;
    }
    let bytes = from.string()?;
    if len > bytes.len().saturating_mul(8) {
        return Err(DAMAGED);
    }
    let mut bits = Bits { bytes: &bytes, at: 0, len };
    if count > 0 {
        add(first)?;
        unpack(first, count - 1, &mut bits, add)?;
    }
    Ok(())
}

/// Hands `count` samples that follow the first one to `add`.
fn unpack(
    mut sample: Sample,
    count: u64,
    bits: &mut Bits<'_>,
    mut add: impl FnMut(Sample) -> Result<(), Error>,
) -> Result<(), Error> {
    let mut distance = 0_i64;
    // The bits of a value that may differ: how many, and how many there are below.
    let (mut width, mut below) = (0, 0);
    for _ in 0..count {
        let mut ones = 0;
        while ones < WIDTHS.len() - 1 && bits.read(1)? == 1 {
            ones += 1;
        }
        distance = distance.wrapping_add(bits.signed(WIDTHS[ones])?);
        sample.time = sample.time.wrapping_add_signed(distance);
        if bits.read(1)? == 1 {
            if bits.read(1)? == 1 {
                let above = bits.read(5)? as u32;
                width = bits.read(6)? as u32 + 1;
                below = 64_u32.checked_sub(above + width).ok_or(DAMAGED)?;
            } else if width == 0 {
                return Err(DAMAGED);
            }
            let difference = bits.read(width)? << below;
            sample.value = f64::from_bits(sample.value.to_bits() ^ difference);
        }
        add(sample)?;
    }
    Ok(())
}

/// Bits that are read from the lowest of the first byte on.
struct Bits<'a> {
    bytes: &'a [u8],
    at: usize,
    /// How many there are; the bytes have as many at least.
    len: usize,
}

impl Bits<'_> {
    /// Reads a number of so many bits, 64 at most.
    fn read(&mut self, count: u32) -> Result<u64, Error> {
        let end = self.at + count as usize;
        if end > self.len {
            return Err(DAMAGED);
        }
        let from = self.at / 8;
        let part = &self.bytes[from..self.bytes.len().min(from + 9)];
        let mut window = [0; 16];
        window[..part.len()].copy_from_slice(part);
        let number = u128::from_le_bytes(window) >> (self.at % 8);
        self.at = end;
        Ok((number & ((1 << count) - 1)) as u64)
    }

    /// Reads a number of so many bits in two's complement.
    fn signed(&mut self, count: u32) -> Result<i64, Error> {
        if count == 0 {
            return Ok(0);
        }
        let unused = 64 - count;
        Ok((self.read(count)? << unused).cast_signed() >> unused)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rdb::Decoder;

    /// Values of a running module (Redis 8.0, time series 1.12.2), as DUMP answers.
    const CASES: &str = include_str!("redis_file/payloads.txt");

    fn bytes(hex: &str) -> Vec<u8> {
        let digit = |at: usize| u8::from_str_radix(&hex[at..at + 2], 16).unwrap();
        (0..hex.len()).step_by(2).map(digit).collect()
    }

    fn read(payload: &[u8]) -> Result<Series, Error> {
        load(&mut Reader::new(&mut Decoder::new(payload)))
    }

    #[test]
    fn payloads_of_redis_are_read() {
        let mut cases = 0;
        for line in CASES.lines().filter(|line| !line.starts_with('#')) {
            let (payload, expected) = line.split_once(' ').unwrap();
            let payload = bytes(payload);
            let series = read(&payload).unwrap();
            let mut text = format!("{:?} {}", series.settings.policy, series.settings.retention);
            series.visit(0, u64::MAX, |sample| {
                text += &format!(" {}:{}", sample.time, sample.value);
                true
            });
            for rule in &series.rules {
                text += &format!(" {}({})", rule.aggregator.name(), rule.buckets.duration);
            }
            for (name, value) in series.labels().iter() {
                text += &format!(" {}={}", name.escape_ascii(), value.escape_ascii());
            }
            assert_eq!(text, expected);
            cases += 1;
            // The last byte is the mark of the end, which the caller reads.
            for cut in 0..(payload.len() - 1).min(400) {
                assert!(read(&payload[..cut]).is_err());
            }
            for at in 0..payload.len().min(400) {
                for mask in [1, 0x80, 0xff] {
                    let mut damaged = payload.clone();
                    damaged[at] ^= mask;
                    // An error or another series, no panic.
                    drop(read(&damaged));
                }
            }
        }
        assert!(cases >= 20, "{cases}");
    }
}

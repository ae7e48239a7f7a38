//! A histogram of latencies with an error of one part in 64.
//!
//! Sixty-four buckets for each doubling: microseconds below 64 are exact, anything above falls into
//! a bucket whose width is a 64th of its value.

const PER_DOUBLING: usize = 64;

/// Counts of latencies.
#[derive(Clone, Debug, Default)]
pub struct Histogram {
    counts: Vec<u64>,
    total: u64,
    longest_us: u64,
}

fn bucket(us: u64) -> usize {
    if us < PER_DOUBLING as u64 {
        return us as usize;
    }
    let exponent = us.ilog2() as usize - PER_DOUBLING.ilog2() as usize;
    exponent * PER_DOUBLING + (us >> exponent) as usize
}

/// The longest latency that falls into a bucket.
fn upper_us(bucket: usize) -> u64 {
    if bucket < PER_DOUBLING {
        return bucket as u64;
    }
    let exponent = bucket / PER_DOUBLING - 1;
    let mantissa = (bucket % PER_DOUBLING + PER_DOUBLING) as u64;
    ((mantissa + 1) << exponent) - 1
}

impl Histogram {
    /// Counts a latency.
    pub fn record(&mut self, us: u64) {
        let bucket = bucket(us);
        if bucket >= self.counts.len() {
            self.counts.resize(bucket + 1, 0);
        }
        self.counts[bucket] += 1;
        self.total += 1;
        self.longest_us = self.longest_us.max(us);
    }

    /// Adds another histogram's counts.
    pub fn merge(&mut self, other: &Histogram) {
        if other.counts.len() > self.counts.len() {
            self.counts.resize(other.counts.len(), 0);
        }
        for (mine, theirs) in self.counts.iter_mut().zip(&other.counts) {
            *mine += theirs;
        }
        self.total += other.total;
        self.longest_us = self.longest_us.max(other.longest_us);
    }

    /// How many were counted.
    pub fn total(&self) -> u64 {
        self.total
    }

    /// The longest of all, in microseconds.
    pub fn longest_us(&self) -> u64 {
        self.longest_us
    }

    /// The latency that a share of all do not exceed (0.999 for p99.9), in microseconds.
    pub fn quantile_us(&self, share: f64) -> u64 {
        let rank = (self.total as f64 * share).ceil().max(1.0) as u64;
        let mut seen = 0;
        for (bucket, count) in self.counts.iter().enumerate() {
            seen += count;
            if seen >= rank {
                return upper_us(bucket).min(self.longest_us);
            }
        }
        self.longest_us
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_latency_lies_in_its_bucket() {
        for us in (0..100_000).chain([1 << 30, (3 << 35) + 12345]) {
            let at = bucket(us);
            assert!(us <= upper_us(at), "{us}");
            assert!(at == 0 || us > upper_us(at - 1), "{us}");
        }
    }

    #[test]
    fn quantiles_are_ranks() {
        let mut histogram = Histogram::default();
        (1..=1000).for_each(|us| histogram.record(us));
        let mut other = Histogram::default();
        other.record(5000);
        histogram.merge(&other);
        assert_eq!(histogram.total(), 1001);
        let median = histogram.quantile_us(0.5);
        assert!((501..=509).contains(&median), "{median}");
        assert_eq!(histogram.quantile_us(1.0), 5000);
        assert!(histogram.quantile_us(0.999) <= 1008);
    }
}

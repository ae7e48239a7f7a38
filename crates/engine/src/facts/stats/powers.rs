//! Histograms whose buckets are the powers of two, of durations and of sizes.

use crate::stats::Counter;

/// Number of buckets; the last one has all that does not fit another.
pub const BUCKETS: usize = 32;

/// How often a value was how large. Bucket N has the values from 2^N to below 2^(N+1); 0 counts
/// into the first one.
#[derive(Default)]
pub struct Powers {
    sum: Counter,
    counts: [Counter; BUCKETS],
}

/// What a histogram has counted.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Spread {
    /// All values added up.
    pub sum: u64,
    /// How many values each bucket has.
    pub counts: [u64; BUCKETS],
}

impl Powers {
    #[inline]
    fn bucket(value: u64) -> usize {
        ((value | 1).ilog2() as usize).min(BUCKETS - 1)
    }

    /// Adds a value, from any thread.
    pub fn note(&self, value: u64) {
        self.sum.add(value);
        self.counts[Self::bucket(value)].add(1);
    }

    /// Adds a value, from the only thread that ever does.
    #[inline]
    pub fn note_own(&self, value: u64) {
        self.sum.add_own(value);
        self.counts[Self::bucket(value)].add_own(1);
    }

    /// Returns what was counted.
    pub fn spread(&self) -> Spread {
        Spread {
            sum: self.sum.get(),
            counts: std::array::from_fn(|bucket| self.counts[bucket].get()),
        }
    }

    /// Forgets all values.
    pub fn reset(&self) {
        self.sum.set(0);
        self.counts.iter().for_each(|count| count.set(0));
    }
}

impl Spread {
    /// Adds what another histogram has counted.
    pub fn add(&mut self, other: &Spread) {
        self.sum += other.sum;
        self.counts.iter_mut().zip(other.counts).for_each(|(sum, count)| *sum += count);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_go_to_the_power_of_two_below_them() {
        let powers = Powers::default();
        for value in [0, 1, 2, 3, 1024, 2047] {
            powers.note(value);
            powers.note_own(value);
        }
        powers.note_own(1 << 40);
        let mut spread = powers.spread();
        spread.add(&powers.spread());
        assert_eq!(spread.sum, 2 * (2 * 3077 + (1 << 40)));
        let counts = spread.counts;
        assert_eq!((counts[0], counts[1], counts[10], counts[BUCKETS - 1]), (8, 8, 8, 2));
        powers.reset();
        assert_eq!(powers.spread(), Spread::default());
    }
}

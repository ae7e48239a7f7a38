//! Which key comes next: the patterns of memtier_benchmark over a range of numbers.
//!
//! | letter | pattern |
//! |---|---|
//! | S | sequential: every client walks the whole range |
//! | P | parallel: the range is divided, every client walks its part |
//! | R | uniform |
//! | G | gaussian around a median, drawn again when outside of the range |
//! | Z | zipfian: the lowest key is the most popular |

use std::f64::consts::TAU;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use structs::random::Rng;

/// How numbers are drawn from a range.
#[derive(Clone, Debug)]
pub enum Pattern {
    /// Every client walks the whole range.
    Sequential,
    /// Every client walks its part of the range.
    Parallel,
    /// One walk that all clients share.
    Counting(Arc<AtomicU64>),
    /// Every number is as likely as any other.
    Uniform,
    /// Normally distributed.
    Gaussian {
        /// The most likely number.
        median: f64,
        /// The standard deviation, in keys.
        deviation: f64,
    },
    /// Popularity falls with the rank.
    Zipf(Zipf),
}

/// One client's walk through one operation's keys.
#[derive(Clone, Debug)]
pub struct Cursor {
    first: u64,
    last: u64,
    next: u64,
}

impl Cursor {
    /// For client `index` of `clients` that share the range `first..=last`.
    pub fn new(pattern: &Pattern, first: u64, last: u64, index: u64, clients: u64) -> Cursor {
        let (mut low, mut high) = (first, last);
        if matches!(pattern, Pattern::Parallel) {
            let count = u128::from(last - first) + 1;
            let part = |index: u64| (count * u128::from(index) / u128::from(clients)) as u64;
            low = first + part(index);
            // More clients than keys: some share.
            high = (first + part(index + 1)).max(low + 1).min(last + 1) - 1;
            low = low.min(high);
        }
        Cursor { first: low, last: high, next: low }
    }

    /// The lowest number and how many there are.
    #[inline]
    pub fn range(&self) -> (u64, u64) {
        (self.first, self.last - self.first + 1)
    }

    /// The next number.
    #[inline]
    pub fn draw(&mut self, pattern: &Pattern, rng: &mut Rng) -> u64 {
        match pattern {
            Pattern::Uniform => self.first + rng.below(self.last - self.first + 1),
            Pattern::Sequential | Pattern::Parallel => {
                let number = self.next;
                self.next = if number >= self.last { self.first } else { number + 1 };
                number
            }
            Pattern::Counting(count) => {
                self.first + count.fetch_add(1, Ordering::Relaxed) % (self.last - self.first + 1)
            }
            Pattern::Gaussian { median, deviation } => loop {
                // Box and Muller; the second number of the pair is not worth keeping.
                let radius = (-2.0 * (1.0 - rng.unit_f64()).ln()).sqrt();
                let number = median + deviation * radius * (TAU * rng.unit_f64()).cos();
                if number >= self.first as f64 && number < self.last as f64 + 1.0 {
                    break number as u64;
                }
            },
            Pattern::Zipf(zipf) => self.first + zipf.rank(rng) - 1,
        }
    }
}

/// Ranks `1..=count` with probability proportional to `rank^-exponent`, for any exponent above 0,
/// in constant time and space: rejection-inversion, after W. Hörmann and G. Derflinger, "Rejection-
/// inversion to generate variates from monotone discrete distributions", 1996.
#[derive(Clone, Debug, PartialEq)]
pub struct Zipf {
    exponent: f64,
    count: f64,
    /// The integral up to half a step after the last rank, and from half a step before the first.
    high: f64,
    low: f64,
    /// How close to a rank a point may be taken without a look.
    squeeze: f64,
}

impl Zipf {
    /// `count` ranks; `exponent` is above 0.
    pub fn new(count: u64, exponent: f64) -> Zipf {
        assert!(count > 0 && exponent > 0.0, "a distribution");
        let mut zipf = Zipf { exponent, count: count as f64, high: 0.0, low: 0.0, squeeze: 0.0 };
        zipf.low = zipf.integral(1.5) - 1.0;
        zipf.high = zipf.integral(zipf.count + 0.5);
        zipf.squeeze = 2.0 - zipf.inverse(zipf.integral(2.5) - zipf.weight(2.0));
        zipf
    }

    /// The next rank.
    pub fn rank(&self, rng: &mut Rng) -> u64 {
        loop {
            let area = self.high + rng.unit_f64() * (self.low - self.high);
            let point = self.inverse(area);
            let rank = point.round().clamp(1.0, self.count);
            if rank - point <= self.squeeze || area >= self.integral(rank + 0.5) - self.weight(rank)
            {
                return rank as u64;
            }
        }
    }

    fn weight(&self, rank: f64) -> f64 {
        (-self.exponent * rank.ln()).exp()
    }

    /// (x^(1-e) - 1) / (1-e), and its limit ln x at e = 1.
    fn integral(&self, x: f64) -> f64 {
        let log = x.ln();
        let power = (1.0 - self.exponent) * log;
        if power.abs() < 1e-8 { log * (1.0 + power / 2.0) } else { power.exp_m1() / power * log }
    }

    fn inverse(&self, area: f64) -> f64 {
        let power = (area * (1.0 - self.exponent)).max(-1.0);
        if power.abs() < 1e-8 {
            (area * (1.0 - power / 2.0)).exp()
        } else {
            (power.ln_1p() / power * area).exp()
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const DRAWS: usize = 200_000;

    fn draws(pattern: &Pattern, first: u64, last: u64) -> Vec<u64> {
        let mut rng = Rng::seeded(7);
        let mut cursor = Cursor::new(pattern, first, last, 0, 1);
        (0..DRAWS).map(|_| cursor.draw(pattern, &mut rng)).collect()
    }

    /// Pearson's chi-squared against the expected shares, as deviations from its own mean. Numbers
    /// are the same in every run, so this cannot fail by bad luck.
    #[track_caller]
    fn check_shares(numbers: &[u64], first: u64, shares: &[f64]) {
        let mut counts = vec![0.0; shares.len()];
        for &number in numbers {
            counts[(number - first) as usize] += 1.0;
        }
        let total: f64 = shares.iter().sum();
        let squared: f64 = counts
            .iter()
            .zip(shares)
            .map(|(&count, share)| {
                let expected = share / total * numbers.len() as f64;
                (count - expected) * (count - expected) / expected
            })
            .sum();
        let freedom = (shares.len() - 1) as f64;
        let deviations = (squared - freedom) / (2.0 * freedom).sqrt();
        assert!(deviations.abs() < 4.0, "{deviations} standard deviations off");
    }

    #[test]
    fn uniform() {
        check_shares(&draws(&Pattern::Uniform, 10, 109), 10, &[1.0; 100]);
        assert!(draws(&Pattern::Uniform, 5, 5).iter().all(|&number| number == 5));
    }

    #[test]
    fn zipf_follows_its_law_at_any_exponent() {
        for exponent in [0.2, 0.99, 1.0, 1.5, 4.9] {
            let shares: Vec<f64> = (1..=50).map(|rank| f64::from(rank).powf(-exponent)).collect();
            // Of the largest exponents the tail is too thin for the test.
            let shares = &shares[..if exponent > 4.0 { 8 } else { 50 }];
            let pattern = Pattern::Zipf(Zipf::new(shares.len() as u64, exponent));
            check_shares(&draws(&pattern, 100, 99 + shares.len() as u64), 100, shares);
        }
        let pattern = Pattern::Zipf(Zipf::new(1, 1.0));
        assert!(draws(&pattern, 3, 3).iter().all(|&number| number == 3));
    }

    #[test]
    fn gaussian() {
        let (median, deviation) = (500.0, 50.0);
        let numbers = draws(&Pattern::Gaussian { median, deviation }, 0, 999);
        let shares: Vec<f64> = (0..1000)
            .map(|number| (-0.5 * ((f64::from(number) + 0.5 - median) / deviation).powi(2)).exp())
            .collect();
        // Where a number is expected less than ten times, the test says nothing.
        let kept: Vec<u64> = numbers.iter().copied().filter(|n| (380..620).contains(n)).collect();
        check_shares(&kept, 380, &shares[380..620]);
        let outside = draws(&Pattern::Gaussian { median: 0.0, deviation: 100.0 }, 0, 9);
        assert!(outside.iter().all(|&number| number < 10));
    }

    #[test]
    fn walks() {
        let mut rng = Rng::seeded(1);
        let mut walk = |pattern: &Pattern, index, clients, count: usize| -> Vec<u64> {
            let mut cursor = Cursor::new(pattern, 1, 10, index, clients);
            (0..count).map(|_| cursor.draw(pattern, &mut rng)).collect()
        };
        assert_eq!(walk(&Pattern::Sequential, 1, 2, 12), [1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 1, 2]);
        assert_eq!(walk(&Pattern::Parallel, 0, 3, 4), [1, 2, 3, 1]);
        assert_eq!(walk(&Pattern::Parallel, 1, 3, 4), [4, 5, 6, 4]);
        assert_eq!(walk(&Pattern::Parallel, 2, 3, 5), [7, 8, 9, 10, 7]);
        let mut all: Vec<u64> = (0..25).flat_map(|i| walk(&Pattern::Parallel, i, 25, 1)).collect();
        all.dedup();
        assert_eq!(all, (1..=10).collect::<Vec<u64>>(), "with more clients than keys");
    }
}

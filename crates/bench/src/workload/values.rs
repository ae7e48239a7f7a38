//! What is written: values of the sizes and contents the options ask for.

use structs::random::Rng;

/// How long values are.
#[derive(Clone, Debug, PartialEq)]
pub enum Sizes {
    /// All the same, in bytes.
    Fixed(u64),
    /// Uniform between two sizes, both included.
    Range(u64, u64),
    /// Growing evenly with the key from the first size to the second (memtier's pattern `S`).
    Spread(u64, u64),
    /// Sizes, each with the sum of the weights up to its own.
    Weighted(Vec<(u64, u64)>),
}

impl Sizes {
    /// The longest there can be.
    pub fn largest(&self) -> u64 {
        match self {
            Sizes::Fixed(size) => *size,
            Sizes::Range(_, high) | Sizes::Spread(_, high) => *high,
            Sizes::Weighted(list) => list.iter().map(|&(size, _)| size).max().unwrap_or(0),
        }
    }

    /// From sizes and their weights.
    pub fn weighted(list: &[(u64, u64)]) -> Sizes {
        let mut sum = 0;
        let summed = list.iter().map(|&(size, weight)| {
            sum += weight;
            (size, sum)
        });
        Sizes::Weighted(summed.collect())
    }

    fn draw(&self, rng: &mut Rng, place: f64) -> u64 {
        match self {
            Sizes::Fixed(size) => *size,
            Sizes::Range(low, high) => low + rng.below(high - low + 1),
            Sizes::Spread(low, high) => low + ((high - low) as f64 * place) as u64,
            Sizes::Weighted(list) => {
                let total = list.last().map_or(1, |&(_, sum)| sum);
                let drawn = rng.below(total);
                list.iter().find(|&&(_, sum)| drawn < sum).map_or(0, |&(size, _)| size)
            }
        }
    }
}

/// What values consist of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Content {
    /// The letter x.
    Plain,
    /// Random bytes, different in every value.
    Random,
    /// A function of the key, so that a reader can tell whether it is right.
    OfKey,
}

/// Random bytes that values are cut from; a power of two, so that a hash finds a place.
const NOISE_BYTES: usize = 1 << 16;

/// Makes values.
#[derive(Clone, Debug)]
pub struct Values {
    /// How long.
    pub sizes: Sizes,
    /// Of what.
    pub content: Content,
    /// The range of keys that [`Sizes::Spread`] is about.
    keys: (u64, u64),
    noise: Vec<u8>,
}

impl Values {
    /// Values of `sizes` and `content` for keys in the range `first..=last`.
    pub fn new(sizes: Sizes, content: Content, first: u64, last: u64) -> Values {
        // The same in every run: a value can be checked by another run than the one that wrote it.
        let mut rng = Rng::seeded(0x6475_6e6c_696e);
        let length = match content {
            Content::Plain => 0,
            _ => NOISE_BYTES + sizes.largest() as usize,
        };
        let mut noise = vec![0; length];
        for byte in &mut noise {
            // Printable, so that a value can be read by people.
            *byte = b"0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ-_"
                [rng.below(64) as usize];
        }
        Values { sizes, content, keys: (first, last), noise }
    }

    /// The length, if all values have the same and the same content.
    pub fn constant(&self) -> Option<u64> {
        match (&self.sizes, self.content) {
            (&Sizes::Fixed(size), Content::Plain) => Some(size),
            _ => None,
        }
    }

    /// Appends a value for `key`.
    pub fn append(&self, out: &mut Vec<u8>, key: u64, rng: &mut Rng) {
        let place = self.place(key);
        match self.content {
            Content::Plain => {
                let size = self.sizes.draw(rng, place) as usize;
                out.resize(out.len() + size, b'x');
            }
            Content::Random => {
                let size = self.sizes.draw(rng, place) as usize;
                let start = rng.below(NOISE_BYTES as u64) as usize;
                out.extend_from_slice(&self.noise[start..start + size]);
            }
            Content::OfKey => {
                let mut own = Rng::seeded(key ^ 0x9e37_79b9_7f4a_7c15);
                let hash = own.next_u64();
                let size = self.sizes.draw(&mut own, place) as usize;
                // As much of the hash as fits tells keys apart, and noise fills the rest.
                let digits = size.min(16);
                for digit in 0..digits {
                    out.push(b"0123456789abcdef"[(hash >> (60 - 4 * digit)) as usize & 15]);
                }
                let start = hash as usize & (NOISE_BYTES - 1);
                out.extend_from_slice(&self.noise[start..start + size - digits]);
            }
        }
    }

    fn place(&self, key: u64) -> f64 {
        let (first, last) = self.keys;
        if last > first { key.saturating_sub(first) as f64 / (last - first) as f64 } else { 0.0 }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn value(values: &Values, key: u64, rng: &mut Rng) -> Vec<u8> {
        let mut out = Vec::new();
        values.append(&mut out, key, rng);
        out
    }

    #[test]
    fn values_of_keys_follow_from_the_key_alone() {
        let values = Values::new(Sizes::Range(0, 300), Content::OfKey, 0, 999);
        let (mut one, mut other) = (Rng::seeded(1), Rng::seeded(2));
        let mut seen = std::collections::HashSet::new();
        for key in 0..1000 {
            let first = value(&values, key, &mut one);
            assert_eq!(first, value(&values, key, &mut other));
            if first.len() >= 16 {
                assert!(seen.insert(first), "two keys have the same value");
            }
        }
    }

    #[test]
    fn sizes() {
        let mut rng = Rng::seeded(3);
        let mut lengths = |sizes: Sizes, content| -> Vec<usize> {
            let values = Values::new(sizes, content, 0, 99);
            (0..100).map(|key| value(&values, key, &mut rng).len()).collect()
        };
        assert!(lengths(Sizes::Fixed(7), Content::Random).iter().all(|&length| length == 7));
        let range = lengths(Sizes::Range(5, 8), Content::Plain);
        assert!(
            (5..=8).all(|size| range.contains(&size)) && range.iter().all(|l| (5..=8).contains(l))
        );
        let spread = lengths(Sizes::Spread(10, 109), Content::Plain);
        assert!(spread.is_sorted() && spread[0] == 10 && spread[99] == 109, "{spread:?}");
        let listed = lengths(Sizes::weighted(&[(1, 90), (50, 10)]), Content::OfKey);
        let long = listed.iter().filter(|&&length| length == 50).count();
        assert!((2..25).contains(&long) && listed.iter().all(|l| [1, 50].contains(l)), "{long}");
    }

    #[test]
    fn random_values_differ() {
        let values = Values::new(Sizes::Fixed(32), Content::Random, 0, 0);
        let mut rng = Rng::seeded(5);
        assert_ne!(value(&values, 0, &mut rng), value(&values, 0, &mut rng));
    }
}

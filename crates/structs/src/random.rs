//! A small, fast random number generator for sampling: random members, eviction candidates.
//!
//! wyrand: one addition, one 64×64 multiplication, 8 bytes of state, and it passes the usual
//! statistical batteries. Not for secrets. A generator is a plain value that its owner passes
//! around, so there is no thread-local state and a test can fix the seed.

/// Returns the next number that looks like chance and follows from a state in a value: splitmix64.
/// Values are in files and on replicas, so it stays as it is.
pub fn splitmix64(state: &mut u64) -> u64 {
    *state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let mut bits = *state;
    bits = (bits ^ bits >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    bits = (bits ^ bits >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
    bits ^ bits >> 31
}

/// Returns the next number of [`splitmix64`] as a share of 1, below 1.
pub fn splitmix64_share(state: &mut u64) -> f64 {
    (splitmix64(state) >> 11) as f64 / (1_u64 << 53) as f64
}

/// The generator; copy it to replay a sequence.
#[derive(Clone, Debug)]
pub struct Rng {
    state: u64,
}

impl Rng {
    /// A generator whose whole sequence follows from `seed`.
    pub const fn seeded(seed: u64) -> Self {
        Self { state: seed }
    }

    /// A generator seeded by the operating system (through the standard library's hash keys).
    pub fn from_entropy() -> Self {
        use std::hash::{BuildHasher, Hasher};
        Self::seeded(std::collections::hash_map::RandomState::new().build_hasher().finish())
    }

    /// 64 random bits.
    #[inline]
    pub fn next_u64(&mut self) -> u64 {
        self.state = self.state.wrapping_add(0xa076_1d64_78bd_642f);
        let product = u128::from(self.state) * u128::from(self.state ^ 0xe703_7ed1_a0b4_28db);
        product as u64 ^ (product >> 64) as u64
    }

    /// A number from 0 to `bound - 1`, each equally likely. `bound` must not be 0.
    #[inline]
    pub fn below(&mut self, bound: u64) -> u64 {
        debug_assert_ne!(bound, 0);
        // Lemire's method: the upper half of a product is uniform once the few lower halves that
        // occur once too often are rejected.
        let mut product = u128::from(self.next_u64()) * u128::from(bound);
        if (product as u64) < bound {
            let threshold = bound.wrapping_neg() % bound;
            while (product as u64) < threshold {
                product = u128::from(self.next_u64()) * u128::from(bound);
            }
        }
        (product >> 64) as u64
    }

    /// [`Rng::below`] for indices.
    #[inline]
    pub fn index(&mut self, len: usize) -> usize {
        self.below(len as u64) as usize
    }

    /// A number in [0, 1), a multiple of 2^-53.
    #[inline]
    pub fn unit_f64(&mut self) -> f64 {
        (self.next_u64() >> 11) as f64 / (1u64 << 53) as f64
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn same_seed_same_sequence() {
        let mut a = Rng::seeded(7);
        let mut b = a.clone();
        let first: Vec<u64> = (0..8).map(|_| a.next_u64()).collect();
        let second: Vec<u64> = (0..8).map(|_| b.next_u64()).collect();
        assert_eq!(first, second);
        assert_ne!(first, (0..8).map(|_| a.next_u64()).collect::<Vec<_>>());
        assert_ne!(Rng::from_entropy().next_u64(), Rng::from_entropy().next_u64());
    }

    #[test]
    fn bounded_numbers_are_uniform() {
        let mut rng = Rng::seeded(1);
        for bound in [1u64, 2, 3, 7, 10, 100] {
            let mut counts = vec![0u32; bound as usize];
            let rounds = 20_000 * bound;
            for _ in 0..rounds {
                counts[rng.index(bound as usize)] += 1;
            }
            // Five standard deviations around 20 000.
            assert!(counts.iter().all(|count| (19_290..20_710).contains(count)), "{counts:?}");
        }
        assert!((0..1000).all(|_| rng.below(u64::MAX) < u64::MAX));
        assert!((0..1000).map(|_| rng.unit_f64()).all(|x| (0.0..1.0).contains(&x)));
    }
}

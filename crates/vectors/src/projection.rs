//! Random projection to fewer dimensions: REDUCE.
//!
//! The matrix has 1 and -1, divided by the root of the output's dimensions. Its signs follow from
//! a seed, so it takes no memory, and a file has the seed alone.

use structs::random::splitmix64;

/// A projection.
#[derive(Clone, Copy, PartialEq, Debug)]
pub(crate) struct Projection {
    pub input: usize,
    pub seed: u64,
}

impl Projection {
    /// Returns the image of numbers, with so many dimensions.
    pub fn apply(self, numbers: &[f32], dim: usize) -> Vec<f32> {
        let scale = 1.0 / (dim as f32).sqrt();
        let row = |row: usize| {
            let mut state = self.seed ^ (row as u64).wrapping_mul(0xd6e8_feb8_6659_fd93);
            let mut sum = 0.0;
            for part in numbers.chunks(64) {
                let mut signs = splitmix64(&mut state);
                for &number in part {
                    sum += if signs & 1 == 1 { number } else { -number };
                    signs >>= 1;
                }
            }
            sum * scale
        };
        (0..dim).map(row).collect()
    }
}

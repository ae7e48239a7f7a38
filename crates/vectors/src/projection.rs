//! Random projection to fewer dimensions: REDUCE.
//!
//! The matrix has 1 and -1, divided by the root of the output's dimensions. Its signs follow from
//! a seed, so it takes no memory, and a file has the seed alone. A set that comes from Redis brings
//! its matrix.

use std::sync::Arc;
use structs::random::splitmix64;

/// A projection.
#[derive(Clone, PartialEq, Debug)]
pub(crate) struct Projection {
    pub input: usize,
    pub matrix: Matrix,
}

/// The matrix of a projection.
#[derive(Clone, PartialEq, Debug)]
pub(crate) enum Matrix {
    /// The signs follow from a seed.
    Seed(u64),
    /// As many rows as the output has dimensions, each with those of the input.
    Rows(Arc<[f32]>),
}

impl Projection {
    /// Returns the image of numbers, with so many dimensions.
    pub fn apply(&self, numbers: &[f32], dim: usize) -> Vec<f32> {
        match &self.matrix {
            Matrix::Seed(seed) => apply_signs(*seed, numbers, dim),
            Matrix::Rows(rows) => rows
                .chunks_exact(self.input)
                .map(|row| row.iter().zip(numbers).map(|(a, b)| a * b).sum())
                .collect(),
        }
    }

    /// Returns the bytes of its block.
    pub fn allocated_bytes(&self) -> usize {
        match &self.matrix {
            Matrix::Seed(_) => 0,
            Matrix::Rows(rows) => size_of_val(&**rows),
        }
    }
}

fn apply_signs(seed: u64, numbers: &[f32], dim: usize) -> Vec<f32> {
    let scale = 1.0 / (dim as f32).sqrt();
    let row = |row: usize| {
        let mut state = seed ^ (row as u64).wrapping_mul(0xd6e8_feb8_6659_fd93);
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

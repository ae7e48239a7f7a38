//! Vectors of length 1 in one of three forms, and their similarity.

use crate::distance;

/// The most dimensions of a vector.
pub const MAX_DIM: usize = 1 << 16;

/// The form in which a set has its vectors.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Quant {
    /// Floats of 4 bytes.
    F32,
    /// A byte for each dimension, as a share of the largest one.
    Q8,
    /// A bit for each dimension: its sign.
    Bin,
}

impl Quant {
    /// Returns the name in replies.
    pub fn name(self) -> &'static str {
        match self {
            Quant::F32 => "f32",
            Quant::Q8 => "int8",
            Quant::Bin => "bin",
        }
    }
}

/// A vector of length 1, or of zeros.
#[derive(Clone, PartialEq, Debug)]
pub enum Vector {
    /// Floats.
    F32(Box<[f32]>),
    /// Shares of the largest dimension, from -127 to 127, and this largest one.
    Q8(Box<[i8]>, f32),
    /// Signs: a bit is set for a positive number.
    Bin(Box<[u64]>),
}

impl Vector {
    /// Returns numbers as a vector with the length that they had.
    pub fn new(mut numbers: Vec<f32>, quant: Quant) -> (Vector, f32) {
        let squares: f64 = numbers.iter().map(|&x| f64::from(x) * f64::from(x)).sum();
        // By the length as it is kept, so that their product is what was given.
        let norm = squares.sqrt().min(f64::from(f32::MAX)) as f32;
        if norm > 0.0 {
            numbers.iter_mut().for_each(|x| *x /= norm);
        }
        (Vector::of_unit(numbers, quant), norm)
    }

    fn of_unit(numbers: Vec<f32>, quant: Quant) -> Vector {
        match quant {
            Quant::F32 => Vector::F32(numbers.into()),
            Quant::Q8 => {
                let largest = numbers.iter().fold(0.0_f32, |most, x| most.max(x.abs()));
                let scale = if largest > 0.0 { 127.0 / largest } else { 0.0 };
                let byte = |x: &f32| (x * scale).round().clamp(-127.0, 127.0) as i8;
                Vector::Q8(numbers.iter().map(byte).collect(), largest)
            }
            Quant::Bin => {
                let word = |bits: &[f32]| {
                    let set = bits.iter().enumerate().filter(|(_, x)| **x > 0.0);
                    set.fold(0_u64, |word, (at, _)| word | 1 << at)
                };
                Vector::Bin(numbers.chunks(64).map(word).collect())
            }
        }
    }

    /// Returns the numbers of the vector of length 1; of bits 1 and -1.
    pub fn numbers(&self, dim: usize) -> Vec<f32> {
        match self {
            Vector::F32(numbers) => numbers.to_vec(),
            Vector::Q8(bytes, largest) => {
                bytes.iter().map(|&byte| f32::from(byte) * largest / 127.0).collect()
            }
            Vector::Bin(words) => {
                let is_set = |at: usize| words[at / 64] >> (at % 64) & 1 == 1;
                (0..dim).map(|at| if is_set(at) { 1.0 } else { -1.0 }).collect()
            }
        }
    }

    /// Returns the cosine distance to a vector of the same form: 0 for the same direction, 2 for
    /// the opposite one.
    #[inline]
    pub fn distance(&self, other: &Vector, dim: usize) -> f32 {
        match (self, other) {
            (Vector::F32(a), Vector::F32(b)) => 1.0 - distance::dot_f32(a, b),
            (Vector::Q8(a, scale_a), Vector::Q8(b, scale_b)) => {
                let scale = scale_a * scale_b / (127.0 * 127.0);
                1.0 - distance::dot_i8(a, b) as f32 * scale
            }
            (Vector::Bin(a), Vector::Bin(b)) => 2.0 * distance::hamming(a, b) as f32 / dim as f32,
            _ => unreachable!("the vectors of a set have one form"),
        }
        .clamp(0.0, 2.0)
    }

    /// Returns the bytes that files and VEMB's RAW have: little-endian numbers.
    pub fn bytes(&self) -> Vec<u8> {
        match self {
            Vector::F32(numbers) => numbers.iter().flat_map(|x| x.to_le_bytes()).collect(),
            Vector::Q8(bytes, _) => bytes.iter().map(|byte| byte.cast_unsigned()).collect(),
            Vector::Bin(words) => words.iter().flat_map(|word| word.to_le_bytes()).collect(),
        }
    }

    /// Returns the largest dimension, of the form that has it beside.
    pub fn largest(&self) -> Option<f32> {
        if let Vector::Q8(_, largest) = self { Some(*largest) } else { None }
    }

    /// Returns what [`Vector::bytes`] and [`Vector::largest`] say as a vector, if it is one.
    pub fn from_bytes(bytes: &[u8], largest: f32, quant: Quant, dim: usize) -> Option<Vector> {
        let is_unit = |x: &f32| x.is_finite() && x.abs() <= 1.01;
        match quant {
            Quant::F32 => {
                let (chunks, rest) = bytes.as_chunks::<4>();
                let numbers: Box<[f32]> = chunks.iter().map(|x| f32::from_le_bytes(*x)).collect();
                let is_sound = rest.is_empty() && numbers.len() == dim;
                (is_sound && numbers.iter().all(is_unit)).then_some(Vector::F32(numbers))
            }
            Quant::Q8 => {
                let is_sound = bytes.len() == dim && is_unit(&largest) && largest >= 0.0;
                let numbers: Box<[i8]> = bytes.iter().map(|byte| byte.cast_signed()).collect();
                let is_sound = is_sound && !numbers.contains(&i8::MIN);
                is_sound.then_some(Vector::Q8(numbers, largest))
            }
            Quant::Bin => {
                let (chunks, rest) = bytes.as_chunks::<8>();
                let words: Box<[u64]> = chunks.iter().map(|x| u64::from_le_bytes(*x)).collect();
                let spare = words.len() * 64 - dim.min(words.len() * 64);
                let is_sound = rest.is_empty()
                    && words.len() == dim.div_ceil(64)
                    && words.last().is_some_and(|last| spare == 0 || last >> (64 - spare) == 0);
                is_sound.then_some(Vector::Bin(words))
            }
        }
    }

    /// Returns the bytes of its block.
    pub(crate) fn allocated_bytes(&self) -> usize {
        match self {
            Vector::F32(numbers) => size_of_val(&**numbers),
            Vector::Q8(bytes, _) => bytes.len(),
            Vector::Bin(words) => size_of_val(&**words),
        }
    }
}

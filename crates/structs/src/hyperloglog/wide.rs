//! Merging dense registers with AVX2: 32 registers at a time.
//!
//! ```text
//!  24 bytes    a0 b0 c0 a1 b1 c1 …          two loads of 12 bytes, one for each half
//!  spread      a0 b0 c0  0 a1 b1 c1  0 …    32 bits hold four registers of six bits
//!  moved       r0 r1 r2 r3 …                each field goes up by 2, 4 or 6 bits to a byte of its own
//! ```
//!
//! It takes a fifth of the time of [`super::dense::merge_words`], which does the rest of the
//! registers and all of them where the processor has no AVX2.
#![allow(unsafe_code)] // Loads and stores of 32 bytes; every one is checked to be inside its array.

use super::Registers;
use super::dense;
use std::arch::x86_64::{
    __m128i, __m256i, _mm_loadu_si128, _mm256_and_si256, _mm256_loadu_si256, _mm256_max_epu8,
    _mm256_or_si256, _mm256_set_m128i, _mm256_set1_epi32, _mm256_setr_epi8, _mm256_shuffle_epi8,
    _mm256_slli_epi32, _mm256_storeu_si256,
};

/// Registers of a step.
const STEP: usize = 32;
/// Their packed bytes.
const PACKED: usize = 24;
/// Bytes that a step loads: the second load begins in the middle and is 16 bytes long.
const LOADED: usize = PACKED / 2 + 16;

/// Raises registers to packed ones.
#[target_feature(enable = "avx2")]
pub fn merge(registers: &mut Registers, packed: &[u8]) {
    let spread = _mm256_setr_epi8(
        0, 1, 2, -1, 3, 4, 5, -1, 6, 7, 8, -1, 9, 10, 11, -1, //
        0, 1, 2, -1, 3, 4, 5, -1, 6, 7, 8, -1, 9, 10, 11, -1,
    );
    let field = |number: i32| _mm256_set1_epi32(0x3f << (6 * number));
    let (first, second, third, fourth) = (field(0), field(1), field(2), field(3));
    let (mut at, mut from) = (0, 0);
    while at + STEP <= registers.len() && from + LOADED <= packed.len() {
        // SAFETY: both loads end at `from + LOADED` at most, which is inside `packed`.
        let (low, high) = unsafe {
            let source = packed.as_ptr().add(from);
            let low = _mm_loadu_si128(source.cast::<__m128i>());
            (low, _mm_loadu_si128(source.add(PACKED / 2).cast::<__m128i>()))
        };
        let words = _mm256_shuffle_epi8(_mm256_set_m128i(high, low), spread);
        let lower = _mm256_or_si256(
            _mm256_and_si256(words, first),
            _mm256_slli_epi32::<2>(_mm256_and_si256(words, second)),
        );
        let upper = _mm256_or_si256(
            _mm256_slli_epi32::<4>(_mm256_and_si256(words, third)),
            _mm256_slli_epi32::<6>(_mm256_and_si256(words, fourth)),
        );
        let values = _mm256_or_si256(lower, upper);
        // SAFETY: the registers from `at` to `at + STEP` are inside the array.
        unsafe {
            let target = registers.as_mut_ptr().add(at).cast::<__m256i>();
            _mm256_storeu_si256(target, _mm256_max_epu8(_mm256_loadu_si256(target), values));
        }
        at += STEP;
        from += PACKED;
    }
    dense::merge_words(&mut registers[at..], &packed[from..]);
}

#[cfg(test)]
mod tests {
    use super::super::REGISTERS;
    use super::super::dense::{self, BYTES};
    use crate::random::Rng;

    #[test]
    fn equals_the_merge_of_words() {
        if !is_x86_feature_detected!("avx2") {
            return;
        }
        let mut rng = Rng::seeded(17);
        for _ in 0..50 {
            let packed: Vec<u8> = (0..BYTES).map(|_| rng.next_u64() as u8).collect();
            let before: Vec<u8> = (0..REGISTERS).map(|_| rng.next_u64() as u8 & 63).collect();
            let mut wide: super::Registers = before.clone().try_into().expect("as many");
            let mut words = wide;
            dense::merge_words(&mut words, &packed);
            // SAFETY: the processor has AVX2, as the test has asked.
            unsafe { super::merge(&mut wide, &packed) };
            assert!(wide == words);
            assert_eq!(wide[REGISTERS - 1], before[REGISTERS - 1].max(packed[BYTES - 1] >> 2));
        }
    }
}

//! Products and distances of vectors, by AVX2 where the machine has it.
//!
//! The fallback is plain Rust. Integer results are equal on every machine; sums of floats are
//! added in another order, so they agree within rounding.

/// Returns the scalar product of two vectors of equal length.
pub(crate) fn dot_f32(a: &[f32], b: &[f32]) -> f32 {
    #[cfg(target_arch = "x86_64")]
    if is_x86_64_v3() {
        #[allow(unsafe_code, reason = "the instructions are checked at run time")]
        // SAFETY: the machine has AVX2 and FMA.
        return unsafe { avx2::dot_f32(a, b) };
    }
    scalar::dot_f32(a, b)
}

/// Returns the scalar product of two vectors of equal length, at most 65536, without -128.
pub(crate) fn dot_i8(a: &[i8], b: &[i8]) -> i32 {
    #[cfg(target_arch = "x86_64")]
    if is_x86_64_v3() {
        #[allow(unsafe_code, reason = "the instructions are checked at run time")]
        // SAFETY: the machine has AVX2.
        return unsafe { avx2::dot_i8(a, b) };
    }
    scalar::dot_i8(a, b)
}

/// Returns the number of different bits of two vectors of equal length.
pub(crate) fn hamming(a: &[u64], b: &[u64]) -> u32 {
    #[cfg(target_arch = "x86_64")]
    if is_x86_64_v3() {
        #[allow(unsafe_code, reason = "the instructions are checked at run time")]
        // SAFETY: the machine has POPCNT.
        return unsafe { avx2::hamming(a, b) };
    }
    scalar::hamming(a, b)
}

#[cfg(target_arch = "x86_64")]
fn is_x86_64_v3() -> bool {
    // Miri has no such instructions.
    !cfg!(miri)
        && std::arch::is_x86_feature_detected!("avx2")
        && std::arch::is_x86_feature_detected!("fma")
        && std::arch::is_x86_feature_detected!("popcnt")
}

mod scalar {
    #[inline]
    pub fn dot_f32(a: &[f32], b: &[f32]) -> f32 {
        a.iter().zip(b).map(|(a, b)| a * b).sum()
    }

    #[inline]
    pub fn dot_i8(a: &[i8], b: &[i8]) -> i32 {
        a.iter().zip(b).map(|(&a, &b)| i32::from(a) * i32::from(b)).sum()
    }

    #[inline]
    pub fn hamming(a: &[u64], b: &[u64]) -> u32 {
        a.iter().zip(b).map(|(a, b)| (a ^ b).count_ones()).sum()
    }
}

#[cfg(target_arch = "x86_64")]
#[allow(unsafe_code, reason = "loads of whole registers from slices")]
mod avx2 {
    use super::scalar;
    use std::arch::x86_64::*;

    /// # Safety
    /// The machine has AVX2 and FMA.
    #[target_feature(enable = "avx2,fma")]
    pub unsafe fn dot_f32(a: &[f32], b: &[f32]) -> f32 {
        let (a, a_rest) = a.as_chunks::<8>();
        let (b, b_rest) = b.as_chunks::<8>();
        let mut sum = _mm256_setzero_ps();
        for (a, b) in a.iter().zip(b) {
            // SAFETY: each has 8 floats, and the loads need no alignment.
            let (a, b) = unsafe { (_mm256_loadu_ps(a.as_ptr()), _mm256_loadu_ps(b.as_ptr())) };
            sum = _mm256_fmadd_ps(a, b, sum);
        }
        let mut lanes = [0.0_f32; 8];
        // SAFETY: the array has 8 floats.
        unsafe { _mm256_storeu_ps(lanes.as_mut_ptr(), sum) };
        lanes.iter().sum::<f32>() + scalar::dot_f32(a_rest, b_rest)
    }

    /// # Safety
    /// The machine has AVX2.
    #[target_feature(enable = "avx2")]
    pub unsafe fn dot_i8(a: &[i8], b: &[i8]) -> i32 {
        let (a, a_rest) = a.as_chunks::<16>();
        let (b, b_rest) = b.as_chunks::<16>();
        let mut sum = _mm256_setzero_si256();
        for (a, b) in a.iter().zip(b) {
            // SAFETY: each has 16 bytes, and the loads need no alignment.
            let (a, b) =
                unsafe { (_mm_loadu_si128(a.as_ptr().cast()), _mm_loadu_si128(b.as_ptr().cast())) };
            let products = _mm256_madd_epi16(_mm256_cvtepi8_epi16(a), _mm256_cvtepi8_epi16(b));
            sum = _mm256_add_epi32(sum, products);
        }
        let mut lanes = [0_i32; 8];
        // SAFETY: the array has 8 numbers.
        unsafe { _mm256_storeu_si256(lanes.as_mut_ptr().cast(), sum) };
        lanes.iter().sum::<i32>() + scalar::dot_i8(a_rest, b_rest)
    }

    /// # Safety
    /// The machine has POPCNT.
    #[target_feature(enable = "popcnt")]
    pub unsafe fn hamming(a: &[u64], b: &[u64]) -> u32 {
        scalar::hamming(a, b)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn instructions_and_fallback_agree() {
        let mut state = 1_u64;
        for len in (0..70).chain([300, 768, 65_536]) {
            let mut draw = || structs::random::splitmix64(&mut state);
            let a: Vec<i8> = (0..len).map(|_| (draw() % 255) as i16 as i8).collect();
            let b: Vec<i8> = (0..len).map(|at| if at % 7 == 0 { 127 } else { -127 }).collect();
            assert_eq!(dot_i8(&a, &b), scalar::dot_i8(&a, &b));
            assert_eq!(dot_i8(&b, &b), len * 127 * 127);
            let floats = |of: &[i8]| of.iter().map(|&x| f32::from(x) / 127.0).collect::<Vec<_>>();
            let (c, d) = (floats(&a), floats(&b));
            let difference = dot_f32(&c, &d) - scalar::dot_f32(&c, &d);
            assert!(difference.abs() <= 1e-5 * (len as f32 + 1.0), "{difference} of {len}");
            let (e, f) = ([draw(), draw(), draw()], [draw(), draw(), draw()]);
            assert_eq!(hamming(&e, &f), scalar::hamming(&e, &f));
        }
    }
}

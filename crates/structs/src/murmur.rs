//! MurmurHash2, by which the formats of HyperLogLogs, filters and sketches place their elements.
//! Austin Appleby has put it into the public domain. The results are part of the formats.

/// The multiplier of [`murmur64a`].
pub const MULTIPLIER: u64 = 0xc6a4_a793_5bd1_e995;

/// Returns the hash of 64 bits of the variant for 64-bit machines, MurmurHash64A.
pub fn murmur64a(bytes: &[u8], seed: u64) -> u64 {
    const R: u32 = 47;
    let mut hash = seed ^ (bytes.len() as u64).wrapping_mul(MULTIPLIER);
    let (words, rest) = bytes.as_chunks::<8>();
    for word in words {
        let mut word = u64::from_le_bytes(*word).wrapping_mul(MULTIPLIER);
        word ^= word >> R;
        hash = (hash ^ word.wrapping_mul(MULTIPLIER)).wrapping_mul(MULTIPLIER);
    }
    if !rest.is_empty() {
        let mut last = [0; 8];
        last[..rest.len()].copy_from_slice(rest);
        hash = (hash ^ u64::from_le_bytes(last)).wrapping_mul(MULTIPLIER);
    }
    hash ^= hash >> R;
    hash = hash.wrapping_mul(MULTIPLIER);
    hash ^ hash >> R
}

/// Returns the hash of 32 bits, MurmurHash2.
pub fn murmur2(bytes: &[u8], seed: u32) -> u32 {
    const M: u32 = 0x5bd1_e995;
    // Lengths of 4 GiB and more wrap, as in the author's program.
    let mut hash = seed ^ bytes.len() as u32;
    let (words, rest) = bytes.as_chunks::<4>();
    for word in words {
        let mut word = u32::from_le_bytes(*word).wrapping_mul(M);
        word ^= word >> 24;
        hash = hash.wrapping_mul(M) ^ word.wrapping_mul(M);
    }
    if !rest.is_empty() {
        let mut last = [0; 4];
        last[..rest.len()].copy_from_slice(rest);
        hash = (hash ^ u32::from_le_bytes(last)).wrapping_mul(M);
    }
    hash = (hash ^ hash >> 13).wrapping_mul(M);
    hash ^ hash >> 15
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns the hashes of a text with the seeds 0 and [`MULTIPLIER`].
    fn both(text: &str) -> (u64, u64) {
        (murmur64a(text.as_bytes(), 0), murmur64a(text.as_bytes(), MULTIPLIER))
    }

    /// The expected values are those of the author's program.
    #[test]
    fn hashes_are_those_of_the_author() {
        assert_eq!(both(""), (0, 0x1ab1_1ea5_a7b2_c56e));
        assert_eq!(both("a"), (0x0717_17d2_d36b_6b11, 0x4292_cee2_27b9_150a));
        assert_eq!(both("hello"), (0x1e68_d17c_457b_f117, 0x5ba5_b8a5_9803_e699));
        assert_eq!(both("abcdefgh"), (0xafdb_0257_ff41_aa98, 0xd435_df7a_565a_8af1));
        let long = both("0123456789abcdefg");
        assert_eq!(long, (0x0b3d_8f28_dd9e_798f, 0x4d3e_0b66_ada9_c7a3));
    }

    #[test]
    fn short_hashes_are_those_of_the_author() {
        let both = |text: &str| (murmur2(text.as_bytes(), 0), murmur2(text.as_bytes(), 1919));
        assert_eq!(both(""), (0, 0x4a85_66e0));
        assert_eq!(both("a"), (0x9268_5f5e, 0xf23c_f517));
        assert_eq!(both("hello"), (0xe561_29cb, 0x234d_ad03));
        assert_eq!(both("abcdefgh"), (0x0422_87e6, 0x5347_9e6d));
        assert_eq!(both("0123456789abcdefg"), (0x6a2b_d297, 0x7e88_faee));
    }
}

//! CRC-64 as RDB files and DUMP payloads carry it: the polynomial of David T. Jones, reflected,
//! start and final value 0.

use crc_fast::CrcAlgorithm::Crc64Redis;
use crc_fast::{Digest, checksum_combine};

/// Continues the checksum `crc` (0 at the start) over `data`.
pub fn crc64(crc: u64, data: &[u8]) -> u64 {
    let mut digest = Digest::new_with_init_state(Crc64Redis, crc);
    digest.update(data);
    digest.finalize()
}

/// The checksum of two parts, from that of each and the second one's length in bytes: so parts can
/// be summed by different threads.
pub fn crc64_combine(first: u64, second: u64, second_len: u64) -> u64 {
    checksum_combine(Crc64Redis, first, second, second_len)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn check_value() {
        assert_eq!(crc64(0, b"123456789"), 0xe9c6_d914_c4b8_d9ca);
        assert_eq!(crc64(0, b""), 0);
    }

    #[test]
    fn long_parts_combine() {
        let data: Vec<u8> = (0..3_000_001u32).map(|at| (at.wrapping_mul(at) >> 7) as u8).collect();
        let (front, back) = data.split_at(1_234_567);
        let combined = crc64_combine(crc64(0, front), crc64(0, back), back.len() as u64);
        assert_eq!(combined, crc64(0, &data));
        assert_eq!(crc64_combine(7, 0, 0), 7);
    }

    proptest! {
        #[test]
        fn may_be_fed_in_parts(data in proptest::collection::vec(any::<u8>(), 0..100), at in 0usize..100) {
            let (front, back) = data.split_at(at.min(data.len()));
            prop_assert_eq!(crc64(crc64(0, front), back), crc64(0, &data));
            let bytewise = data.iter().fold(0, |crc, byte| crc64(crc, &[*byte]));
            prop_assert_eq!(bytewise, crc64(0, &data));
            let combined = crc64_combine(crc64(0, front), crc64(0, back), back.len() as u64);
            prop_assert_eq!(combined, crc64(0, &data));
        }
    }
}

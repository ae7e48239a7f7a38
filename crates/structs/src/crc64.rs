//! CRC-64 as RDB files and DUMP payloads carry it: the polynomial of David T. Jones, reflected,
//! start and final value 0.

use crc_fast::CrcAlgorithm::Crc64Redis;
use crc_fast::Digest;

/// Continues the checksum `crc` (0 at the start) over `data`.
pub fn crc64(crc: u64, data: &[u8]) -> u64 {
    let mut digest = Digest::new_with_init_state(Crc64Redis, crc);
    digest.update(data);
    digest.finalize()
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

    proptest! {
        #[test]
        fn may_be_fed_in_parts(data in proptest::collection::vec(any::<u8>(), 0..100), at in 0usize..100) {
            let (front, back) = data.split_at(at.min(data.len()));
            prop_assert_eq!(crc64(crc64(0, front), back), crc64(0, &data));
            let bytewise = data.iter().fold(0, |crc, byte| crc64(crc, &[*byte]));
            prop_assert_eq!(bytewise, crc64(0, &data));
        }
    }
}

//! CRC-32C (Castagnoli), which processors compute: the checksum of records that never leave the
//! machine.

use crc_fast::{CrcAlgorithm::Crc32Iscsi, Digest};

/// The checksum of some pieces, as if they were one.
pub fn crc32c(pieces: &[&[u8]]) -> u32 {
    let mut digest = Digest::new(Crc32Iscsi);
    pieces.iter().for_each(|piece| digest.update(piece));
    digest.finalize() as u32
}

#[cfg(test)]
mod tests {
    use super::crc32c;

    #[test]
    fn check_value() {
        assert_eq!(crc32c(&[b"123456789"]), 0xe306_9283);
        assert_eq!(crc32c(&[b"1234", b"", b"56789"]), 0xe306_9283);
    }
}

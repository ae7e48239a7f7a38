//! A record: a header and a payload, padded with zeros to a multiple of 16 bytes.
//!
//! ```text
//!  0           8       16            20         24      28     29  32
//! │ location  │ hash  │ generation  │ length   │ crc   │ kind │ 0 │ payload … │ 0 …
//! ```
//!
//! All numbers are little-endian. The header contains the record's own location and the generation
//! of its segment. So a record in a wrong place, or from an earlier use of the segment, is
//! detected. The checksum (CRC-32C) covers everything but itself and the padding. No record begins
//! with eight zeros: they mean that the next one is at the next multiple of 4096.

use crate::location::{Location, UNIT};
use structs::crc32c::crc32c;

/// Number of bytes before the payload.
pub(crate) const HEADER: usize = 32;
/// Offset of the checksum.
const CRC: usize = 24;

/// Why bytes are not the expected record.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Damage {
    /// There is another record, or none.
    NotTheRecord,
    /// The header is as expected. The checksum is wrong.
    Checksum,
}

/// A record as it was read.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Record<'b> {
    pub hash: u64,
    pub kind: u8,
    pub payload: &'b [u8],
}

/// Returns the length of a record with a payload of this length, in bytes.
pub(crate) fn len_of(payload: usize) -> usize {
    (HEADER + payload).next_multiple_of(UNIT)
}

/// Writes a record into `to`, which has exactly its length.
pub(crate) fn write(to: &mut [u8], location: Location, generation: u32, record: Record<'_>) {
    let payload = record.payload;
    debug_assert_eq!(to.len(), len_of(payload.len()));
    let (header, rest) = to.split_at_mut(HEADER);
    header.fill(0);
    header[..8].copy_from_slice(&location.to_bits().to_le_bytes());
    header[8..16].copy_from_slice(&record.hash.to_le_bytes());
    header[16..20].copy_from_slice(&generation.to_le_bytes());
    header[20..24].copy_from_slice(&(payload.len() as u32).to_le_bytes());
    header[28] = record.kind;
    let crc = checksum(header, payload);
    header[CRC..CRC + 4].copy_from_slice(&crc.to_le_bytes());
    rest[..payload.len()].copy_from_slice(payload);
    rest[payload.len()..].fill(0);
}

fn checksum(header: &[u8], payload: &[u8]) -> u32 {
    crc32c(&[&header[..CRC], &header[CRC + 4..], payload])
}

fn u64_at(bytes: &[u8], at: usize) -> u64 {
    u64::from_le_bytes(bytes[at..at + 8].try_into().expect("eight bytes are eight bytes"))
}

fn u32_at(bytes: &[u8], at: usize) -> u32 {
    u32::from_le_bytes(bytes[at..at + 4].try_into().expect("four bytes are four bytes"))
}

/// Returns the location that a record's header contains, or `None` if there are zeros or too few
/// bytes.
pub(crate) fn location_at(bytes: &[u8]) -> Option<Location> {
    let bits = bytes.get(..8).map(|bits| u64_at(bits, 0))?;
    (bits != 0).then(|| Location::from_bits(bits))
}

/// Parses the record at a location. `bytes` are all its bytes.
pub(crate) fn parse(
    bytes: &[u8],
    location: Location,
    generation: u32,
) -> Result<Record<'_>, Damage> {
    if bytes.len() != location.len() || bytes.len() < HEADER {
        return Err(Damage::NotTheRecord);
    }
    let (header, rest) = bytes.split_at(HEADER);
    let len = u32_at(header, 20) as usize;
    if u64_at(header, 0) != location.to_bits() || u32_at(header, 16) != generation {
        return Err(Damage::NotTheRecord);
    }
    let Some(payload) = rest.get(..len).filter(|_| len_of(len) == bytes.len()) else {
        return Err(Damage::Checksum);
    };
    if checksum(header, payload) != u32_at(header, CRC) {
        return Err(Damage::Checksum);
    }
    Ok(Record { hash: u64_at(header, 8), kind: header[28], payload })
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn written(payload: &[u8]) -> (Location, Vec<u8>) {
        let location = Location::new(3, 4096, len_of(payload.len()));
        let mut bytes = vec![0xff; len_of(payload.len())];
        write(&mut bytes, location, 7, Record { hash: 99, kind: 5, payload });
        (location, bytes)
    }

    #[test]
    fn another_record_is_told_from_this_one() {
        let (location, bytes) = written(b"value");
        let parsed = parse(&bytes, location, 7);
        assert_eq!(parsed, Ok(Record { hash: 99, kind: 5, payload: b"value" }));
        assert_eq!(parse(&bytes, location, 8), Err(Damage::NotTheRecord));
        let elsewhere = Location::new(3, 8192, bytes.len());
        assert_eq!(parse(&bytes, elsewhere, 7), Err(Damage::NotTheRecord));
        assert_eq!(parse(&bytes[..32], location, 7), Err(Damage::NotTheRecord));
        assert_eq!(location_at(&bytes), Some(location));
        assert_eq!(location_at(&[0; 16]), None);
        assert_eq!(location_at(b"short"), None);
    }

    proptest! {
        #[test]
        fn every_flipped_bit_is_found(payload in proptest::collection::vec(any::<u8>(), 0..200), bit in any::<usize>()) {
            let (location, mut bytes) = written(&payload);
            prop_assert_eq!(parse(&bytes, location, 7).map(|record| record.payload), Ok(&payload[..]));
            let bit = bit % ((HEADER + payload.len()) * 8);
            bytes[bit / 8] ^= 1 << (bit % 8);
            prop_assert!(parse(&bytes, location, 7).is_err());
        }
    }
}

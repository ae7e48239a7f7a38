//! DUMP payloads: a value between its type and a footer of version and checksum.

use crate::{
    Compression, Decoder, Encoder, Error, Limits, NEWEST_VERSION, Object, ObjectRef, VERSION,
};
use structs::crc64::crc64;

/// Bytes of version and checksum.
const FOOTER: usize = 10;

/// The payload of a value.
pub fn dump(object: ObjectRef<'_>, compression: Compression) -> Vec<u8> {
    let mut encoder = Encoder::new(compression);
    encoder.object(object);
    let mut payload = encoder.into_bytes();
    payload.extend_from_slice(&VERSION.to_le_bytes());
    let checksum = crc64(0, &payload);
    payload.extend_from_slice(&checksum.to_le_bytes());
    payload
}

/// The value of a payload. The type byte and everything behind it must be used up exactly.
pub fn restore(payload: &[u8], limits: &Limits) -> Result<Object, Error> {
    restore_body(verify(payload)?, limits)
}

/// The same without a look at version and checksum, for tests that make up payloads.
pub fn restore_unverified(payload: &[u8], limits: &Limits) -> Result<Object, Error> {
    let (body, _) = payload.split_last_chunk::<FOOTER>().ok_or(Error::Truncated)?;
    restore_body(body, limits)
}

fn restore_body(body: &[u8], limits: &Limits) -> Result<Object, Error> {
    let mut decoder = Decoder::new(body);
    let object = decoder.object(limits)?;
    if decoder.remaining().is_empty() { Ok(object) } else { Err(Error::Corrupt("trailing bytes")) }
}

/// Checks the footer of a payload and returns what is in front of it.
pub fn verify(payload: &[u8]) -> Result<&[u8], Error> {
    let (body, footer) = payload.split_last_chunk::<FOOTER>().ok_or(Error::Truncated)?;
    let [low, high, checksum @ ..] = *footer;
    let version = u16::from_le_bytes([low, high]);
    if version == 0 || version > NEWEST_VERSION {
        return Err(Error::Version(version));
    }
    if crc64(0, &payload[..payload.len() - checksum.len()]) != u64::from_le_bytes(checksum) {
        return Err(Error::Checksum);
    }
    Ok(body)
}

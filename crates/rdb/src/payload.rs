//! DUMP payloads: a value between its type and a footer of version and checksum.

use crate::{
    Compression, Decoder, Encoder, Error, Kind, Limits, NEWEST_VERSION, Object, ObjectRef,
    VALKEY_VERSION, VERSION,
};
use structs::crc64::crc64;

/// Bytes of version and checksum.
const FOOTER: usize = 10;

/// The payload of a value.
pub fn dump(object: ObjectRef<'_>, compression: Compression) -> Vec<u8> {
    let mut encoder = Encoder::new(compression);
    encoder.object(object);
    seal(encoder.into_bytes(), object.kind())
}

/// Makes a payload of a type byte and a value by adding the footer.
pub(crate) fn seal(mut payload: Vec<u8>, kind: Kind) -> Vec<u8> {
    payload.extend_from_slice(&version_of(kind).to_le_bytes());
    let checksum = crc64(0, &payload);
    payload.extend_from_slice(&checksum.to_le_bytes());
    payload
}

/// The version of files and payloads with values of this type.
pub(crate) fn version_of(kind: Kind) -> u16 {
    if kind == Kind::TimedHash { VALKEY_VERSION } else { VERSION }
}

/// The value of a payload. The type byte and everything behind it must be used up exactly.
pub fn restore(payload: &[u8], limits: &Limits) -> Result<Object, Error> {
    let body = verify(payload)?;
    restore_body(body, is_valkey(payload), limits)
}

/// The same without a look at version and checksum: these were looked at, or a test has made the
/// payload up.
pub fn restore_unverified(payload: &[u8], limits: &Limits) -> Result<Object, Error> {
    let (body, _) = payload.split_last_chunk::<FOOTER>().ok_or(Error::Truncated)?;
    restore_body(body, is_valkey(payload), limits)
}

/// Whether the version is one of Valkey's own.
fn is_valkey(payload: &[u8]) -> bool {
    let footer = payload.last_chunk::<FOOTER>();
    footer.is_some_and(|&[low, high, ..]| u16::from_le_bytes([low, high]) >= VALKEY_VERSION)
}

fn restore_body(body: &[u8], is_valkey: bool, limits: &Limits) -> Result<Object, Error> {
    let mut decoder = Decoder::new(body);
    let object = decoder.object(is_valkey, limits)?;
    if decoder.remaining().is_empty() { Ok(object) } else { Err(Error::Corrupt("trailing bytes")) }
}

/// Checks the footer of a payload and returns what is in front of it.
///
/// # Errors
/// The payload is too short, of a version that this one does not know, or damaged.
pub fn verify(payload: &[u8]) -> Result<&[u8], Error> {
    verify_up_to(payload, NEWEST_VERSION)
}

/// The same for a payload whose version may be newer (`rdb-version-check relaxed`); its value is
/// read if its form is known.
///
/// # Errors
/// The payload is too short, or damaged.
pub fn verify_relaxed(payload: &[u8]) -> Result<&[u8], Error> {
    verify_up_to(payload, u16::MAX)
}

fn verify_up_to(payload: &[u8], newest: u16) -> Result<&[u8], Error> {
    let (body, footer) = payload.split_last_chunk::<FOOTER>().ok_or(Error::Truncated)?;
    let [low, high, checksum @ ..] = *footer;
    let version = u16::from_le_bytes([low, high]);
    if version == 0 || version > newest {
        return Err(Error::Version(version));
    }
    if crc64(0, &payload[..payload.len() - checksum.len()]) != u64::from_le_bytes(checksum) {
        return Err(Error::Checksum);
    }
    Ok(body)
}

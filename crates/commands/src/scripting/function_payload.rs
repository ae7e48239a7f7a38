//! The payload of FUNCTION DUMP: libraries as an RDB file holds them, a version, a checksum.

use engine::Error;
use rdb::file::opcode::FUNCTION2;
use rdb::{Compression, Decoder, Encoder};
use structs::crc64::crc64;

/// The payload of these libraries.
pub(super) fn dump(sources: &[&[u8]], compression: Compression) -> Vec<u8> {
    let mut encoder = Encoder::new(compression);
    sources.iter().for_each(|source| encoder.function(source));
    let mut payload = encoder.into_bytes();
    payload.extend_from_slice(&rdb::VERSION.to_le_bytes());
    let checksum = crc64(0, &payload);
    payload.extend_from_slice(&checksum.to_le_bytes());
    payload
}

/// The libraries of a payload.
///
/// # Errors
/// It is none.
pub(super) fn restore(payload: &[u8]) -> Result<Vec<Vec<u8>>, Error> {
    let bad = |_| Error::text("ERR DUMP payload version or checksum are wrong");
    let body = rdb::verify(payload).map_err(bad)?;
    let mut decoder = Decoder::new(body);
    let mut sources = Vec::new();
    while let Some((&opcode, rest)) = decoder.remaining().split_first() {
        if opcode != FUNCTION2 {
            return Err(Error::text("ERR given type is not a function"));
        }
        decoder = Decoder::new(rest);
        let source = decoder.string();
        let source = source.map_err(|_| Error::text("ERR Failed loading library data"))?;
        sources.push(source.to_vec());
    }
    Ok(sources)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn libraries_survive_a_payload() {
        let sources: [&[u8]; 2] = [b"#!lua name=a\n", b"#!lua name=b\nreturn 1"];
        let payload = dump(&sources, Compression::Off);
        assert_eq!(restore(&payload), Ok(sources.map(<[u8]>::to_vec).to_vec()));
        assert_eq!(restore(&dump(&[], Compression::Off)), Ok(Vec::new()));
        for at in 0..payload.len() {
            let mut broken = payload.clone();
            broken[at] ^= 1;
            assert!(restore(&broken).is_err(), "byte {at}");
        }
    }
}

//! The zipmap, the small hash of Redis before 2.6; read only.
//!
//! ```text
//!  | fields (1), 254 and up: count them | field … | 0xFF |
//!
//!  field:  length: one byte, or 254 and u32 (little-endian)
//!          the field's bytes
//!          length of the value, likewise
//!          unused bytes behind the value (1)
//!          the value's bytes, the unused bytes
//! ```

use crate::Error;

const CORRUPT: Error = Error::Corrupt("Zipmap");
const LONG_LENGTH: u8 = 254;
const END: u8 = 255;

/// A field and its value.
type Pair<'a> = (&'a [u8], &'a [u8]);

/// The fields with their values.
pub(super) fn fields(bytes: &[u8]) -> Result<Vec<Pair<'_>>, Error> {
    let (&stated, rest) = bytes.split_first().ok_or(CORRUPT)?;
    let Some((&END, mut rest)) = rest.split_last() else { return Err(CORRUPT) };
    let mut fields = Vec::new();
    while !rest.is_empty() {
        let (field, value, after) = pair(rest).ok_or(CORRUPT)?;
        fields.push((field, value));
        rest = after;
    }
    // No server has ever written one without fields.
    let is_wrong = stated < LONG_LENGTH && usize::from(stated) != fields.len();
    if is_wrong || fields.is_empty() {
        return Err(CORRUPT);
    }
    Ok(fields)
}

fn pair(bytes: &[u8]) -> Option<(&[u8], &[u8], &[u8])> {
    let (length, rest) = length(bytes)?;
    let (field, rest) = rest.split_at_checked(length)?;
    let (length, rest) = self::length(rest)?;
    let (&unused, rest) = rest.split_first()?;
    let (value, rest) = rest.split_at_checked(length)?;
    let (_, rest) = rest.split_at_checked(usize::from(unused))?;
    Some((field, value, rest))
}

fn length(bytes: &[u8]) -> Option<(usize, &[u8])> {
    match *bytes {
        [LONG_LENGTH, a, b, c, d, ref rest @ ..] => {
            let length = u32::from_le_bytes([a, b, c, d]) as usize;
            // No server has ever written a short length in the long form.
            (length >= usize::from(LONG_LENGTH)).then_some((length, rest))
        }
        [LONG_LENGTH | END, ..] | [] => None,
        [length, ref rest @ ..] => Some((usize::from(length), rest)),
    }
}

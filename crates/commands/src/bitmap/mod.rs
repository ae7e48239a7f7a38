//! The commands of the group `bitmap`, one file each or a tight family.
//!
//! A bitmap is a string; bit 0 is the highest bit of its first byte.

mod bitcount;
mod bitfield;
mod bitop;
mod bitpos;
mod field;
mod range;
mod setbit;

use engine::{Command, Cx, Error};

/// The rows of this group.
pub static COMMANDS: &[&Command] = &[
    &bitfield::BITFIELD_RO,
    &bitfield::BITFIELD,
    &bitop::BITOP,
    &bitpos::BITPOS,
    &bitcount::BITCOUNT,
    &setbit::GETBIT,
    &setbit::SETBIT,
];

const BAD_OFFSET: Error = Error::text("ERR bit offset is not an integer or out of range");

/// The number of a bit that a string of the allowed size has; times `unit` if `#` precedes it
/// where `unit` is given.
fn parse_offset(cx: &Cx<'_>, word: &[u8], unit: Option<u32>) -> Result<u64, Error> {
    let (digits, factor) = match (word, unit) {
        ([b'#', digits @ ..], Some(bits)) => (digits, i64::from(bits)),
        _ => (word, 1),
    };
    let offset = structs::numbers::parse_i64(digits).and_then(|index| index.checked_mul(factor));
    let offset = offset.and_then(|offset| u64::try_from(offset).ok()).ok_or(BAD_OFFSET)?;
    if offset >> 3 < crate::string::most_bytes(cx) as u64 { Ok(offset) } else { Err(BAD_OFFSET) }
}

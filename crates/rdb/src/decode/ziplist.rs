//! The ziplist, the packed encoding up to Redis 6; read only.
//!
//! ```text
//!  | bytes u32 | offset of the last entry u32 | entries u16 | entry … | 0xFF |
//!
//!  entry:  length of the entry in front: one byte, or 0xFE and u32
//!          00LLLLLL                      string of up to 63 bytes
//!          01LLLLLL LLLLLLLL             string of up to 16383 bytes
//!          10?????? u32 (big-endian)     string
//!          C0 i16 · D0 i32 · E0 i64 · F0 i24 · FE i8     integers (little-endian)
//!          1111VVVV                      the integer V - 1, for V from 1 to 13
//! ```
//!
//! 65535 entries means "count them".

use crate::Error;
use structs::listpack::{Element, Listpack};

const CORRUPT: Error = Error::Corrupt("ziplist");
const HEADER: usize = 10;
const END: u8 = 0xff;
const LONG_PREVIOUS: u8 = 0xfe;
const COUNT_UNKNOWN: u16 = u16::MAX;

/// Longer ones are refused: they would not fit the listpack that takes their place.
const BYTES_MAX: usize = 1 << 30;

/// The elements of a ziplist, which is checked completely, as a listpack.
pub(super) fn to_listpack(bytes: &[u8]) -> Result<Listpack, Error> {
    let (header, rest) = bytes.split_first_chunk::<HEADER>().ok_or(CORRUPT)?;
    let [a, b, c, d, tail @ .., low, high] = *header;
    let Some((&END, entries)) = rest.split_last() else { return Err(CORRUPT) };
    if u32::from_le_bytes([a, b, c, d]) as usize != bytes.len() || bytes.len() > BYTES_MAX {
        return Err(CORRUPT);
    }
    let mut listpack = Listpack::with_capacity(entries.len());
    let mut left = entries;
    let mut count = 0usize;
    let mut previous = 0;
    let mut last = HEADER;
    while !left.is_empty() {
        let entry = Entry::read(left).ok_or(CORRUPT)?;
        if entry.previous != previous {
            return Err(CORRUPT);
        }
        listpack.push_back_element(entry.element);
        last = HEADER + entries.len() - left.len();
        previous = entry.len;
        left = &left[entry.len..];
        count += 1;
    }
    let stated = u16::from_le_bytes([low, high]);
    if u32::from_le_bytes(tail) as usize != last
        || (stated != COUNT_UNKNOWN && usize::from(stated) != count)
    {
        return Err(CORRUPT);
    }
    listpack.shrink_to_fit();
    Ok(listpack)
}

struct Entry<'a> {
    element: Element<'a>,
    /// What the entry says the one in front of it takes.
    previous: usize,
    len: usize,
}

impl<'a> Entry<'a> {
    /// The entry at the start of `bytes`; `None` if it is malformed or does not end in them.
    fn read(bytes: &'a [u8]) -> Option<Self> {
        let (previous, rest) = match *bytes {
            [LONG_PREVIOUS, a, b, c, d, ref rest @ ..] => {
                (u32::from_le_bytes([a, b, c, d]) as usize, rest)
            }
            [LONG_PREVIOUS | END, ..] | [] => return None,
            [previous, ref rest @ ..] => (usize::from(previous), rest),
        };
        let (element, rest) = Self::element(rest)?;
        Some(Self { element, previous, len: bytes.len() - rest.len() })
    }

    fn element(bytes: &'a [u8]) -> Option<(Element<'a>, &'a [u8])> {
        let (&first, rest) = bytes.split_first()?;
        let (length, rest) = match first >> 6 {
            0 => (usize::from(first), rest),
            1 => {
                let (&low, rest) = rest.split_first()?;
                (usize::from(first & 0x3f) << 8 | usize::from(low), rest)
            }
            2 => {
                let (length, rest) = rest.split_first_chunk()?;
                (u32::from_be_bytes(*length) as usize, rest)
            }
            _ => return Self::integer(first, rest),
        };
        let (string, rest) = rest.split_at_checked(length)?;
        Some((Element::Bytes(string), rest))
    }

    fn integer(first: u8, rest: &'a [u8]) -> Option<(Element<'a>, &'a [u8])> {
        let width = match first {
            0xc0 => 2,
            0xd0 => 4,
            0xe0 => 8,
            0xf0 => 3,
            0xfe => 1,
            0xf1..=0xfd => return Some((Element::Int(i64::from(first & 0xf) - 1), rest)),
            _ => return None,
        };
        let (bytes, rest) = rest.split_at_checked(width)?;
        // Into the upper bytes and back down, to extend the sign.
        let mut wide = [0; 8];
        wide[8 - width..].copy_from_slice(bytes);
        Some((Element::Int(i64::from_le_bytes(wide) >> (64 - 8 * width)), rest))
    }
}

//! One listpack entry: its encoding, its decoding and its length.
//!
//! ```text
//!   | tag (1 byte) | more length or integer bytes | payload | backlen (1..5) |
//!
//!   0xxxxxxx                     integer 0..=127
//!   10llllll  bytes              string of 0..=63 bytes
//!   110xxxxx  xxxxxxxx           13-bit signed integer, high bits first
//!   1110llll  llllllll bytes     string of 64..=4095 bytes, high bits first
//!   11110000  l*4 bytes          longer string, length little endian
//!   11110001..11110100           16-, 24-, 32-, 64-bit signed integer, little endian
//!   11111111                     end of the listpack (not an entry)
//! ```
//!
//! The backlen repeats the length of everything before it in groups of seven bits, most
//! significant group first, every group but the first marked with the high bit: it is read from
//! its last byte backwards, which is how a listpack is walked from the right.
//!
//! Decoding takes the two encodings nearly every entry has (short string, small integer) in two
//! predictable comparisons and leaves the rest to one out-of-line function; a jump table over
//! the tag was not faster and is worse when the branch target cache is cold.
#![allow(unsafe_code)] // Entries of a validated listpack are read without bounds checks.

use super::Element;
use crate::numbers::parse_i64;

/// The byte that ends a listpack.
pub(super) const EOF: u8 = 0xFF;

const TAG_STR6: u8 = 0x80;
const TAG_INT13: u8 = 0xC0;
const TAG_STR12: u8 = 0xE0;
const TAG_STR32: u8 = 0xF0;
const TAG_INT16: u8 = 0xF1;
const TAG_INT24: u8 = 0xF2;
const TAG_INT32: u8 = 0xF3;
const TAG_INT64: u8 = 0xF4;

/// Bytes the backlen of an entry of `len` bytes takes. The bounds are one short of the powers of
/// two from the second on: that is how Redis writes them, and so part of the format.
#[inline(always)]
pub(super) const fn backlen_size(len: usize) -> usize {
    if len <= 127 {
        1
    } else if len < 16_383 {
        2
    } else if len < 2_097_151 {
        3
    } else if len < 268_435_455 {
        4
    } else {
        5
    }
}

/// The backlen of an entry of `len` bytes, and how many of the array's bytes it takes.
#[inline]
pub(super) const fn encode_backlen(len: usize) -> ([u8; 5], usize) {
    let size = backlen_size(len);
    let mut bytes = [0; 5];
    let mut at = size;
    let mut rest = len;
    while at > 0 {
        at -= 1;
        let more = if at == 0 { 0 } else { 0x80 };
        bytes[at] = (rest & 0x7F) as u8 | more;
        rest >>= 7;
    }
    (bytes, size)
}

/// How an element will be stored, decided before any room is made for it.
pub(super) enum Encoded<'a> {
    /// As an integer: tag and value bytes, ready to copy.
    Int([u8; 9], usize),
    /// As a string.
    Str(&'a [u8]),
}

impl<'a> Encoded<'a> {
    /// Picks the encoding Redis would: an integer if and only if the bytes are the shortest
    /// decimal form of an `i64`.
    #[inline]
    pub(super) fn of_bytes(bytes: &'a [u8]) -> Self {
        match parse_i64(bytes) {
            Some(value) => Self::of_int(value),
            None => Self::Str(bytes),
        }
    }

    /// The smallest encoding that holds `value`.
    #[inline]
    pub(super) fn of_int(value: i64) -> Self {
        let mut out = [0; 9];
        let (tag, width) = match value {
            0..=127 => {
                out[0] = value as u8;
                return Self::Int(out, 1);
            }
            -4096..=4095 => {
                let bits = (value as u16) & 0x1FFF;
                out[0] = (bits >> 8) as u8 | TAG_INT13;
                out[1] = bits as u8;
                return Self::Int(out, 2);
            }
            -0x8000..=0x7FFF => (TAG_INT16, 2),
            -0x80_0000..=0x7F_FFFF => (TAG_INT24, 3),
            -0x8000_0000..=0x7FFF_FFFF => (TAG_INT32, 4),
            _ => (TAG_INT64, 8),
        };
        out[0] = tag;
        out[1..9].copy_from_slice(&value.to_le_bytes());
        Self::Int(out, 1 + width)
    }

    /// Re-encodes an element taken from another listpack.
    #[inline]
    pub(super) fn of_element(element: Element<'a>) -> Self {
        match element {
            Element::Bytes(bytes) => Self::of_bytes(bytes),
            Element::Int(value) => Self::of_int(value),
        }
    }

    /// Bytes before the backlen.
    #[inline]
    fn body_len(&self) -> usize {
        match self {
            Self::Int(_, len) => *len,
            Self::Str(bytes) => str_head(bytes.len()) + bytes.len(),
        }
    }

    /// Bytes of the whole entry.
    #[inline]
    pub(super) fn len(&self) -> usize {
        let body = self.body_len();
        body + backlen_size(body)
    }

    /// Writes the entry.
    ///
    /// # Safety
    /// `out` must be valid for writing `self.len()` bytes and not overlap the element.
    #[inline]
    pub(super) unsafe fn write(&self, out: *mut u8) {
        // SAFETY: the caller vouches for `len()` bytes: head, payload, backlen. The writes below
        // are exactly those, in that order.
        unsafe {
            let body = match self {
                Self::Int(bytes, len) => {
                    std::ptr::copy_nonoverlapping(bytes.as_ptr(), out, *len);
                    *len
                }
                Self::Str(bytes) => {
                    let len = bytes.len();
                    let head = str_head(len);
                    match head {
                        1 => *out = len as u8 | TAG_STR6,
                        2 => {
                            *out = (len >> 8) as u8 | TAG_STR12;
                            *out.add(1) = len as u8;
                        }
                        _ => {
                            *out = TAG_STR32;
                            out.add(1).cast::<[u8; 4]>().write((len as u32).to_le_bytes());
                        }
                    }
                    std::ptr::copy_nonoverlapping(bytes.as_ptr(), out.add(head), len);
                    head + len
                }
            };
            if body <= 127 {
                *out.add(body) = body as u8;
            } else {
                let (bytes, size) = encode_backlen(body);
                std::ptr::copy_nonoverlapping(bytes.as_ptr(), out.add(body), size);
            }
        }
    }
}

/// Bytes of tag and length in front of a string of `len` bytes.
#[inline(always)]
const fn str_head(len: usize) -> usize {
    if len < 64 {
        1
    } else if len < 4096 {
        2
    } else {
        5
    }
}

/// Decodes the entry at `at`: the element, and the bytes to the next entry.
///
/// # Safety
/// `at` must point at an entry (not the end byte) of a valid listpack that outlives `'a`.
#[inline(always)]
pub(super) unsafe fn decode<'a>(at: *const u8) -> (Element<'a>, usize) {
    // SAFETY: a valid entry has its tag here, and for a short string the payload right behind.
    unsafe {
        let tag = *at;
        if tag & 0xC0 == TAG_STR6 {
            let len = (tag & 0x3F) as usize;
            (Element::Bytes(std::slice::from_raw_parts(at.add(1), len)), len + 2)
        } else if tag < 0x80 {
            (Element::Int(tag as i64), 2)
        } else {
            decode_wide(at)
        }
    }
}

/// [`decode`] for everything but short strings and integers to 127.
#[inline(never)]
unsafe fn decode_wide<'a>(at: *const u8) -> (Element<'a>, usize) {
    // SAFETY: the tag of a valid entry says how many bytes follow it, and no arm reads more.
    unsafe {
        let tag = *at;
        let string = |head: usize, len: usize| {
            let bytes = std::slice::from_raw_parts(at.add(head), len);
            (Element::Bytes(bytes), head + len + backlen_size(head + len))
        };
        if tag & 0xF0 == TAG_STR12 {
            return string(2, ((tag & 0x0F) as usize) << 8 | *at.add(1) as usize);
        }
        if tag & 0xE0 == TAG_INT13 {
            let bits = ((tag & 0x1F) as i16) << 8 | *at.add(1) as i16;
            // Shifted up to the sign bit and back down, which extends the sign.
            return (Element::Int(((bits << 3) >> 3) as i64), 3);
        }
        match tag {
            TAG_STR32 => {
                let len = u32::from_le_bytes(at.add(1).cast::<[u8; 4]>().read());
                string(5, len as usize)
            }
            TAG_INT16 => {
                let value = i16::from_le_bytes(at.add(1).cast::<[u8; 2]>().read());
                (Element::Int(value as i64), 4)
            }
            TAG_INT24 => {
                let [a, b, c] = at.add(1).cast::<[u8; 3]>().read();
                let value = i32::from_le_bytes([0, a, b, c]) >> 8;
                (Element::Int(value as i64), 5)
            }
            TAG_INT32 => {
                let value = i32::from_le_bytes(at.add(1).cast::<[u8; 4]>().read());
                (Element::Int(value as i64), 6)
            }
            _ => {
                debug_assert_eq!(tag, TAG_INT64);
                let value = i64::from_le_bytes(at.add(1).cast::<[u8; 8]>().read());
                (Element::Int(value), 10)
            }
        }
    }
}

/// Bytes from the entry at `at` to the next one: [`decode`] without the element.
///
/// # Safety
/// As for [`decode`].
#[inline(always)]
pub(super) unsafe fn skip(at: *const u8) -> usize {
    // SAFETY: passed on to the caller.
    unsafe { decode(at).1 }
}

/// The start of the entry that ends at `end`.
///
/// # Safety
/// `end` must point behind an entry of a valid listpack, that is at the next entry or its end.
#[inline(always)]
pub(super) unsafe fn previous(end: *const u8) -> *const u8 {
    // SAFETY: every entry ends in its backlen, which leads to the entry's start.
    unsafe {
        let last = *end.sub(1);
        if last < 0x80 {
            return end.sub(1 + last as usize);
        }
        let mut len = 0;
        let mut shift = 0;
        let mut at = end.sub(1);
        loop {
            let byte = *at;
            len |= ((byte & 0x7F) as usize) << shift;
            if byte < 0x80 {
                return end.sub(len + backlen_size(len));
            }
            shift += 7;
            at = at.sub(1);
        }
    }
}

/// The length in bytes of the entry at the start of `bytes`, or `None` if there is no complete
/// and well-formed one. Reads nothing but `bytes`, whatever is in them.
#[inline]
pub(super) fn checked_len(bytes: &[u8]) -> Option<usize> {
    let tag = *bytes.first()?;
    let body = match tag {
        0x00..=0x7F => 1,
        0x80..=0xBF => 1 + (tag & 0x3F) as usize,
        0xC0..=0xDF => 2,
        0xE0..=0xEF => 2 + (((tag & 0x0F) as usize) << 8 | *bytes.get(1)? as usize),
        TAG_STR32 => {
            let len = u32::from_le_bytes(bytes.get(1..5)?.try_into().ok()?);
            5 + len as usize
        }
        TAG_INT16 => 3,
        TAG_INT24 => 4,
        TAG_INT32 => 5,
        TAG_INT64 => 9,
        _ => return None,
    };
    // Nearly every entry is so short, and comparing slices of any length is a call.
    if body <= 127 {
        return (usize::from(*bytes.get(body)?) == body).then_some(body + 1);
    }
    let (backlen, size) = encode_backlen(body);
    (bytes.get(body..body + size)? == &backlen[..size]).then_some(body + size)
}

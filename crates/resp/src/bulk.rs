//! Lengths and bulk strings, as requests and replies spell them: `$3\r\nSET\r\n`.
//!
//! A write that the journal gets has three of them at least, and a reply most times one. Each is
//! written with one look at the buffer's room and, where the length has one or two digits, as
//! nearly all have, with one store for the header.
#![allow(unsafe_code)]

use structs::numbers::{INT_MAX_LEN, format_u64};

/// Room for a header, whatever the length, and for the end of the line behind what it counts.
const ROOM: usize = 1 + INT_MAX_LEN + 4;

/// The lines of the numbers of one and two digits, as eight bytes of which the first is left free.
static LINES: [u64; 100] = {
    let mut lines = [0; 100];
    let mut number = 0;
    while number < lines.len() {
        let (tens, ones) = (b'0' + number as u8 / 10, b'0' + number as u8 % 10);
        lines[number] = u64::from_le_bytes(if number < 10 {
            [0, ones, b'\r', b'\n', 0, 0, 0, 0]
        } else {
            [0, tens, ones, b'\r', b'\n', 0, 0, 0]
        });
        number += 1;
    }
    lines
};

/// Appends the line in which `kind` is followed by a number, `$16` or `*3`.
#[inline]
pub fn push_header(out: &mut Vec<u8>, kind: u8, number: usize) {
    out.reserve(ROOM);
    // SAFETY: there is the room, and what is counted in has been written.
    unsafe {
        let len = write_header(out.as_mut_ptr().add(out.len()), kind, number);
        out.set_len(out.len() + len);
    }
}

/// Appends a bulk string.
#[inline]
pub fn push_bulk(out: &mut Vec<u8>, bytes: &[u8]) {
    out.reserve(ROOM + bytes.len());
    // SAFETY: there is room for the header, the bytes and their line's end, and these are what is
    // counted in. `bytes` is not in the buffer's free part, which no reference can reach.
    unsafe {
        let header = out.as_mut_ptr().add(out.len());
        let body = header.add(write_header(header, b'$', bytes.len()));
        body.copy_from_nonoverlapping(bytes.as_ptr(), bytes.len());
        let end = body.add(bytes.len());
        end.cast::<[u8; 2]>().write(*b"\r\n");
        out.set_len(end.add(2).offset_from_unsigned(out.as_ptr()));
    }
}

/// Appends a request.
pub fn push_request<W: AsRef<[u8]>>(out: &mut Vec<u8>, words: &[W]) {
    push_header(out, b'*', words.len());
    for word in words {
        push_bulk(out, word.as_ref());
    }
}

/// Writes a header and returns its length; what is written behind it is of no account.
///
/// # Safety
/// [`ROOM`] bytes may be written at `to`.
#[inline]
unsafe fn write_header(to: *mut u8, kind: u8, number: usize) -> usize {
    let Some(line) = LINES.get(number) else {
        // SAFETY: the caller's contract.
        return unsafe { write_long_header(to, kind, number) };
    };
    let line = line | u64::from(kind);
    // SAFETY: there is room for more than these eight.
    unsafe { to.cast::<[u8; 8]>().write(line.to_le_bytes()) };
    if number < 10 { 4 } else { 5 }
}

/// [`write_header`] for a number of any length.
///
/// # Safety
/// As for [`write_header`].
#[inline(never)]
unsafe fn write_long_header(to: *mut u8, kind: u8, number: usize) -> usize {
    let mut digits = [0; INT_MAX_LEN];
    let digits = format_u64(&mut digits, number as u64);
    // SAFETY: `ROOM` has place for the digits, what stands before them and the line's end.
    unsafe {
        to.write(kind);
        to.add(1).copy_from_nonoverlapping(digits.as_ptr(), digits.len());
        to.add(1 + digits.len()).cast::<[u8; 2]>().write(*b"\r\n");
    }
    digits.len() + 3
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[track_caller]
    fn check_header(number: usize) {
        let mut out = b"before".to_vec();
        push_header(&mut out, b'*', number);
        assert_eq!(out, format!("before*{number}\r\n").as_bytes());
    }

    #[test]
    fn headers_have_as_many_digits_as_their_numbers() {
        (0..2000).for_each(check_header);
        (0..64).map(|shift| usize::MAX >> shift).for_each(check_header);
    }

    proptest! {
        #[test]
        fn bulk_strings_stand_one_behind_the_other(
            strings in prop::collection::vec(prop::collection::vec(any::<u8>(), 0..300), 0..20),
            room in 0..100usize,
        ) {
            let mut out = Vec::with_capacity(room);
            let mut expected = Vec::new();
            for string in &strings {
                push_bulk(&mut out, string);
                expected.extend_from_slice(format!("${}\r\n", string.len()).as_bytes());
                expected.extend_from_slice(string);
                expected.extend_from_slice(b"\r\n");
            }
            prop_assert_eq!(out, expected);
        }
    }
}

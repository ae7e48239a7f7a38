//! Writing replies: one method for each RESP type, in the protocol that the client speaks.
//!
//! A `Reply` borrows the connection's output buffer and appends to it; nothing is allocated for a
//! reply of its own. Where RESP2 lacks a type, the method writes what Redis writes to RESP2
//! clients (a map becomes a flat array, a double a bulk string, a push an array).

use crate::bulk;
use crate::{Output, Part};
use std::ops::Range;
use structs::heap_string::HeapString;
use structs::numbers;

/// The protocol version a client asked for.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Protocol {
    /// Every client starts here.
    #[default]
    Resp2,
    /// After `HELLO 3`.
    Resp3,
}

/// A place in the reply where a length belongs that is not known yet.
#[derive(Debug)]
#[must_use = "an aggregate whose length is never set breaks the protocol"]
pub struct Deferred {
    at: usize,
}

/// A writer of replies; see the module's documentation.
pub struct Reply<'a> {
    out: &'a mut Output,
    protocol: Protocol,
}

impl<'a> Reply<'a> {
    /// Appends replies to `out`.
    pub fn new(out: &'a mut Output, protocol: Protocol) -> Reply<'a> {
        Reply { out, protocol }
    }

    /// The protocol replies are written in.
    #[inline]
    pub fn protocol(&self) -> Protocol {
        self.protocol
    }

    /// Switches the protocol for what follows (HELLO).
    pub fn set_protocol(&mut self, protocol: Protocol) {
        self.protocol = protocol;
    }

    /// Whether the client speaks RESP3.
    #[inline]
    pub fn is_resp3(&self) -> bool {
        self.protocol == Protocol::Resp3
    }

    /// Exchanges the output, the replies so far, with `other`.
    pub fn swap_output(&mut self, other: &mut Output) {
        std::mem::swap(self.out, other);
    }

    /// Bytes of output, earlier replies included.
    #[inline]
    pub fn len(&self) -> usize {
        self.out.len()
    }

    /// Whether there is no output.
    pub fn is_empty(&self) -> bool {
        self.out.is_empty()
    }

    /// Bytes for which the client answers, earlier replies included.
    #[inline]
    pub fn charge(&self) -> usize {
        if self.out.is_plain() { self.out.plain().len() } else { self.out.charge() }
    }

    /// The place where the next reply begins.
    #[inline]
    pub fn place(&self) -> usize {
        self.out.plain().len()
    }

    /// Bytes that were written since a place.
    #[inline]
    pub fn len_since(&self, place: usize) -> usize {
        self.out.len_since(place)
    }

    /// Drops what was written since a place.
    pub fn truncate(&mut self, place: usize) {
        self.out.truncate(place);
    }

    /// The first byte that was written since a place.
    pub fn first_since(&self, place: usize) -> Option<u8> {
        self.out.plain().get(place).copied()
    }

    /// What was written since a place, but for strings that are not copied.
    pub fn text_since(&self, place: usize) -> &[u8] {
        &self.out.plain()[place..]
    }

    /// Bytes that already are RESP.
    #[inline]
    pub fn raw(&mut self, bytes: &[u8]) {
        self.out.extend_from_slice(bytes);
    }

    #[inline]
    fn header(&mut self, kind: u8, number: usize) {
        bulk::push_header(self.out.plain_mut(), kind, number);
    }

    /// `+OK`.
    #[inline]
    pub fn ok(&mut self) {
        self.out.extend_from_slice(b"+OK\r\n");
    }

    /// A simple string; must not contain CR or LF.
    pub fn simple(&mut self, text: &str) {
        self.out.plain_mut().push(b'+');
        self.out.extend_from_slice(text.as_bytes());
        self.out.extend_from_slice(b"\r\n");
    }

    /// An error; `text` starts with its code (`ERR …`). Line breaks become spaces.
    pub fn error(&mut self, text: &str) {
        self.error_bytes(text.as_bytes());
    }

    /// An error whose text quotes bytes of the client.
    pub fn error_bytes(&mut self, text: &[u8]) {
        self.out.plain_mut().push(b'-');
        self.out
            .plain_mut()
            .extend(text.iter().map(|&b| if b == b'\r' || b == b'\n' { b' ' } else { b }));
        self.out.extend_from_slice(b"\r\n");
    }

    /// An integer.
    #[inline]
    pub fn integer(&mut self, number: i64) {
        match usize::try_from(number) {
            Ok(number) => self.header(b':', number),
            Err(_) => self.negative(number),
        }
    }

    fn negative(&mut self, number: i64) {
        self.out.plain_mut().push(b':');
        numbers::push_i64(self.out.plain_mut(), number);
        self.out.extend_from_slice(b"\r\n");
    }

    /// A bulk string.
    #[inline]
    pub fn bulk(&mut self, bytes: &[u8]) {
        bulk::push_bulk(self.out.plain_mut(), bytes);
    }

    /// A bulk string from a part of a string that is referred to if it is long.
    #[inline]
    pub fn bulk_of(&mut self, string: &HeapString, range: Range<usize>) {
        match Part::of(string, range.clone()) {
            Some(part) => self.bulk_part(part),
            None => self.bulk(&string.as_slice()[range]),
        }
    }

    #[inline(never)]
    fn bulk_part(&mut self, part: Part) {
        self.header(b'$', part.len());
        self.out.push_part(part);
        self.out.extend_from_slice(b"\r\n");
    }

    /// A bulk string with the digits of a number.
    #[inline]
    pub fn bulk_integer(&mut self, number: i64) {
        let mut digits = [0; numbers::INT_MAX_LEN];
        self.bulk(numbers::format_i64(&mut digits, number));
    }

    /// A bulk string, or null.
    #[inline]
    pub fn bulk_or_null(&mut self, bytes: Option<&[u8]>) {
        match bytes {
            Some(bytes) => self.bulk(bytes),
            None => self.null(),
        }
    }

    /// Null: `$-1` or `_`.
    #[inline]
    pub fn null(&mut self) {
        let null: &[u8] = if self.is_resp3() { b"_\r\n" } else { b"$-1\r\n" };
        self.out.extend_from_slice(null);
    }

    /// Null in the place of an array: `*-1` or `_`.
    pub fn null_array(&mut self) {
        let null: &[u8] = if self.is_resp3() { b"_\r\n" } else { b"*-1\r\n" };
        self.out.extend_from_slice(null);
    }

    /// The start of an array of `len` elements.
    #[inline]
    pub fn array(&mut self, len: usize) {
        self.header(b'*', len);
    }

    /// The start of a map of `pairs` keys and values; a flat array in RESP2.
    pub fn map(&mut self, pairs: usize) {
        if self.is_resp3() {
            self.header(b'%', pairs);
        } else {
            self.array(pairs * 2);
        }
    }

    /// The start of a set; an array in RESP2.
    pub fn set(&mut self, len: usize) {
        self.header(if self.is_resp3() { b'~' } else { b'*' }, len);
    }

    /// The start of an attribute; RESP3 only.
    pub fn attribute(&mut self, pairs: usize) {
        self.header(b'|', pairs);
    }

    /// The start of a push message; an array in RESP2.
    pub fn push(&mut self, len: usize) {
        self.header(if self.is_resp3() { b'>' } else { b'*' }, len);
    }

    /// A double; a bulk string in RESP2.
    pub fn double(&mut self, number: f64) {
        if self.is_resp3() {
            self.out.plain_mut().push(b',');
            numbers::push_f64(self.out.plain_mut(), number);
            self.out.extend_from_slice(b"\r\n");
        } else {
            let mut text = Vec::with_capacity(32);
            numbers::push_f64(&mut text, number);
            self.bulk(&text);
        }
    }

    /// A boolean; an integer in RESP2.
    pub fn boolean(&mut self, value: bool) {
        if self.is_resp3() {
            self.out.extend_from_slice(if value { b"#t\r\n" } else { b"#f\r\n" });
        } else {
            self.integer(i64::from(value));
        }
    }

    /// A big number given as digits; a bulk string in RESP2.
    pub fn big_number(&mut self, digits: &str) {
        if self.is_resp3() {
            self.out.plain_mut().push(b'(');
            self.out.extend_from_slice(digits.as_bytes());
            self.out.extend_from_slice(b"\r\n");
        } else {
            self.bulk(digits.as_bytes());
        }
    }

    /// A verbatim string with a three-letter format (`txt`, `mkd`); a bulk string in RESP2.
    pub fn verbatim(&mut self, format: &str, bytes: &[u8]) {
        debug_assert_eq!(format.len(), 3);
        if self.is_resp3() {
            self.header(b'=', bytes.len() + 4);
            self.out.extend_from_slice(format.as_bytes());
            self.out.plain_mut().push(b':');
            self.out.extend_from_slice(bytes);
            self.out.extend_from_slice(b"\r\n");
        } else {
            self.bulk(bytes);
        }
    }

    /// Starts an aggregate whose length is known only after its elements are written.
    pub fn deferred(&mut self) -> Deferred {
        Deferred { at: self.out.plain().len() }
    }

    fn finish(&mut self, place: Deferred, kind: u8, len: usize) {
        let start = self.out.plain().len();
        self.header(kind, len);
        let added = self.out.plain().len() - start;
        self.out.move_to(place.at, added);
    }

    /// Ends a deferred array of `len` elements.
    pub fn finish_array(&mut self, place: Deferred, len: usize) {
        self.finish(place, b'*', len);
    }

    /// Ends a deferred map of `pairs` keys and values.
    pub fn finish_map(&mut self, place: Deferred, pairs: usize) {
        if self.is_resp3() {
            self.finish(place, b'%', pairs);
        } else {
            self.finish(place, b'*', pairs * 2);
        }
    }

    /// Ends a deferred set of `len` elements.
    pub fn finish_set(&mut self, place: Deferred, len: usize) {
        self.finish(place, if self.is_resp3() { b'~' } else { b'*' }, len);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn written(protocol: Protocol, write: impl FnOnce(&mut Reply<'_>)) -> String {
        let mut buf = Output::default();
        write(&mut Reply::new(&mut buf, protocol));
        String::from_utf8(buf.into_bytes()).unwrap()
    }

    #[track_caller]
    fn check(write: impl Fn(&mut Reply<'_>), resp2: &str, resp3: &str) {
        assert_eq!(written(Protocol::Resp2, &write), resp2);
        assert_eq!(written(Protocol::Resp3, &write), resp3);
    }

    #[test]
    fn every_type_in_both_protocols() {
        check(|r| r.integer(-15), ":-15\r\n", ":-15\r\n");
        check(|r| r.integer(7), ":7\r\n", ":7\r\n");
        check(|r| r.bulk(b"hello world"), "$11\r\nhello world\r\n", "$11\r\nhello world\r\n");
        check(
            |r| r.bulk(&[b'x'; 100][..]),
            &format!("$100\r\n{}\r\n", "x".repeat(100)),
            &format!("$100\r\n{}\r\n", "x".repeat(100)),
        );
        check(|r| r.null(), "$-1\r\n", "_\r\n");
        check(|r| r.null_array(), "*-1\r\n", "_\r\n");
        check(|r| r.map(12), "*24\r\n", "%12\r\n");
        check(|r| r.set(2), "*2\r\n", "~2\r\n");
        check(|r| r.push(3), "*3\r\n", ">3\r\n");
        check(|r| r.double(1.5), "$3\r\n1.5\r\n", ",1.5\r\n");
        check(|r| r.boolean(true), ":1\r\n", "#t\r\n");
        check(|r| r.big_number("123"), "$3\r\n123\r\n", "(123\r\n");
        check(|r| r.verbatim("txt", b"hi"), "$2\r\nhi\r\n", "=6\r\ntxt:hi\r\n");
        check(|r| r.error("ERR a\r\nb"), "-ERR a  b\r\n", "-ERR a  b\r\n");
    }

    #[test]
    fn deferred_lengths_go_in_front() {
        let write = |r: &mut Reply<'_>| {
            r.ok();
            let outer = r.deferred();
            r.bulk(b"a");
            let inner = r.deferred();
            r.integer(1);
            r.finish_map(inner, 0);
            r.finish_array(outer, 20);
        };
        check(
            write,
            "+OK\r\n*20\r\n$1\r\na\r\n*0\r\n:1\r\n",
            "+OK\r\n*20\r\n$1\r\na\r\n%0\r\n:1\r\n",
        );
    }
}

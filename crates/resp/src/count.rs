//! Finds where replies end, without building them.
//!
//! A reply is a tree of elements, but to know its end it is enough to count: how many elements are
//! still to come, and how many bytes of the string under way. That is the whole state, so input may
//! stop at any byte and nothing is copied except a header line cut in two. What is looked at on the
//! way is the kind of the reply and the text of errors, at any depth: an error inside EXEC's array
//! is an error.
//!
//! RESP2 and RESP3. Attributes belong to the element after them; pushes are no replies and are
//! skipped.

use crate::token::ReplyLimits;
use std::fmt;

/// What a reply was.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// Anything but the following.
    Value,
    /// No value: `$-1`, `*-1` or `_`.
    Nil,
    /// An error, or an aggregate with one inside; [`ReplyCounter::error`] has its text.
    Error,
}

/// Input that is no RESP.
#[derive(Debug, PartialEq, Eq)]
pub struct Malformed(Vec<u8>);

impl fmt::Display for Malformed {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "the reply is no RESP: {:?}", String::from_utf8_lossy(&self.0))
    }
}

/// Error texts are kept up to here.
const ERROR_BYTES: usize = 200;

/// A header line is the length of something or a short text; beyond this it is no RESP.
const LINE_BYTES: usize = 64 * 1024;

/// The state between two pieces of input.
#[derive(Debug, Default)]
pub struct ReplyCounter {
    /// Elements still to come; 0 between replies.
    pending: u64,
    /// Bytes of the string under way still to come, its line end included.
    skip: u64,
    /// How many of the pending elements belong to an attribute: they say nothing of the reply.
    attribute: u64,
    /// The start of a header line whose end has not come.
    line: Vec<u8>,
    kind: Option<Kind>,
    push: bool,
    error: Vec<u8>,
}

impl ReplyCounter {
    /// Looks at input that follows what was looked at before: how much was used, and what the reply
    /// was that ended there. Without one all of the input was used.
    #[inline]
    pub fn next(&mut self, input: &[u8]) -> Result<(usize, Option<Kind>), Malformed> {
        if self.pending == 0
            && self.line.is_empty()
            && let Some((used, kind)) = whole(input)
        {
            return Ok((used, Some(kind)));
        }
        self.walk(input)
    }

    /// Counts up to `limit` whole replies of one kind that lie one behind the other: the kind, how
    /// many and their bytes. 0 says only that [`ReplyCounter::next`] has to look.
    #[inline]
    pub fn alike(&self, input: &[u8], limit: u32) -> (Kind, u32, usize) {
        let mut count = 0;
        let mut used = 0;
        let mut first = Kind::Value;
        let mut last = Header::default();
        if self.pending == 0 && self.line.is_empty() {
            while count < limit {
                let rest = &input[used..];
                if last.is_there_again(rest) {
                    used += last.reply;
                    count += 1;
                    continue;
                }
                let Some((length, kind)) = whole(rest) else { break };
                if count > 0 && kind != first {
                    break;
                }
                first = kind;
                last = Header::of(&rest[..length]);
                used += length;
                count += 1;
            }
        }
        (first, count, used)
    }

    /// The text of the last error, without the `-`.
    pub fn error(&self) -> &[u8] {
        &self.error
    }

    fn walk(&mut self, input: &[u8]) -> Result<(usize, Option<Kind>), Malformed> {
        let mut at = 0;
        loop {
            if self.skip > 0 {
                let rest = (input.len() - at) as u64;
                let taken = self.skip.min(rest);
                at += taken as usize;
                self.skip -= taken;
                if self.skip > 0 {
                    return Ok((at, None));
                }
            } else {
                let rest = &input[at..];
                let Some(end) = rest.iter().position(|&byte| byte == b'\n') else {
                    if self.line.len() + rest.len() > LINE_BYTES {
                        return Err(Malformed(rest[..rest.len().min(32)].to_vec()));
                    }
                    self.line.extend_from_slice(rest);
                    return Ok((input.len(), None));
                };
                at += end + 1;
                if self.pending == 0 {
                    (self.pending, self.attribute) = (1, 0);
                    (self.kind, self.push) = (None, false);
                }
                let string_follows = if self.line.is_empty() {
                    self.header(&rest[..end])?
                } else {
                    let mut line = std::mem::take(&mut self.line);
                    line.extend_from_slice(&rest[..end]);
                    let result = self.header(&line);
                    line.clear();
                    self.line = line;
                    result?
                };
                if string_follows {
                    continue;
                }
            }
            self.pending -= 1;
            self.attribute = self.attribute.saturating_sub(1);
            if self.pending == 0 && !self.push {
                return Ok((at, Some(self.kind.unwrap_or(Kind::Value))));
            }
        }
    }

    /// Takes in a header line without its `\n`; whether the bytes of a string follow.
    fn header(&mut self, line: &[u8]) -> Result<bool, Malformed> {
        let malformed = || Malformed(line[..line.len().min(32)].to_vec());
        let Some((&first, text)) = line
            .split_last()
            .and_then(|(&end, line)| if end == b'\r' { line.split_first() } else { None })
        else {
            return Err(malformed());
        };
        let top = self.kind.is_none() && self.attribute == 0;
        match first {
            b'+' | b':' | b',' | b'#' | b'(' => self.note(Kind::Value),
            b'_' => self.note(Kind::Nil),
            b'-' => self.note_error(text),
            b'$' | b'=' | b'!' | b'*' | b'~' | b'>' | b'%' | b'|' => {
                let Some(count) = signed(text) else { return Err(malformed()) };
                if count < 0 {
                    self.note(Kind::Nil);
                    return Ok(false);
                }
                let count = count.unsigned_abs();
                let most = match first {
                    b'$' | b'=' | b'!' => i64::MAX as u64 / 4,
                    _ => ReplyLimits::PEER.elements as u64,
                };
                // What is still to come of an aggregate may be one of its elements' elements.
                if count > most || self.pending > i64::MAX as u64 / 4 {
                    return Err(malformed());
                }
                match first {
                    b'$' | b'=' => {
                        self.note(Kind::Value);
                        self.skip = count + 2;
                        return Ok(true);
                    }
                    b'!' => {
                        self.note_error(b"(a blob error)");
                        self.skip = count + 2;
                        return Ok(true);
                    }
                    // The attribute itself is no element, so the one being counted is still to
                    // come.
                    b'|' => {
                        self.pending += 2 * count + 1;
                        self.attribute += 2 * count + 1;
                    }
                    b'%' => {
                        self.note(Kind::Value);
                        self.expect(2 * count);
                    }
                    kind => {
                        self.push |= top && kind == b'>';
                        self.note(Kind::Value);
                        self.expect(count);
                    }
                }
            }
            _ => return Err(malformed()),
        }
        Ok(false)
    }

    /// An aggregate's elements are to come.
    fn expect(&mut self, count: u64) {
        self.pending += count;
        if self.attribute > 0 {
            self.attribute += count;
        }
    }

    fn note(&mut self, kind: Kind) {
        if self.kind.is_none() && self.attribute == 0 {
            self.kind = Some(kind);
        }
    }

    fn note_error(&mut self, text: &[u8]) {
        if self.kind != Some(Kind::Error) {
            self.error.clear();
            self.error.extend_from_slice(&text[..text.len().min(ERROR_BYTES)]);
            self.kind = Some(Kind::Error);
        }
    }
}

/// The first line of a whole reply, which decides how long the reply is. Batches bring the same
/// reply again and again: one comparison of a word sees that.
#[derive(Default)]
struct Header {
    /// Its bytes, the first lowest, and which bits of a word they are; no bits: it is too long.
    bytes: u64,
    mask: u64,
    /// The length of the reply.
    reply: usize,
}

impl Header {
    /// Of a reply that [`whole`] has measured.
    #[inline]
    fn of(reply: &[u8]) -> Header {
        let Some(word) = reply.first_chunk() else { return Header::of_short(reply) };
        let bytes = u64::from_le_bytes(*word);
        // The lowest byte that is a line's end has the lowest bit set here.
        let ends = bytes ^ 0x0a0a_0a0a_0a0a_0a0a;
        let found = ends.wrapping_sub(0x0101_0101_0101_0101) & !ends & 0x8080_8080_8080_8080;
        if found == 0 {
            return Header::default();
        }
        let mask = found ^ found.wrapping_sub(1);
        Header { bytes: bytes & mask, mask, reply: reply.len() }
    }

    fn of_short(reply: &[u8]) -> Header {
        let mut padded = [0; 8];
        padded[..reply.len()].copy_from_slice(reply);
        Header { reply: reply.len(), ..Header::of(&padded) }
    }

    /// Whether the input begins with a whole reply that has this first line.
    #[inline]
    fn is_there_again(&self, input: &[u8]) -> bool {
        let Some(word) = input.first_chunk() else { return false };
        self.mask != 0
            && u64::from_le_bytes(*word) & self.mask == self.bytes
            && self.reply <= input.len()
    }
}

/// The length and kind of a `+…`, `:…` or `$…` reply that is there whole: nearly every reply there
/// is.
#[inline]
fn whole(input: &[u8]) -> Option<(usize, Kind)> {
    // Bytes are compared one by one: a comparison of slices is a call, dearer than all of this.
    match *input {
        [b'+', b'O', b'K', b'\r', b'\n', ..] => Some((5, Kind::Value)),
        [b'$', b'-', b'1', b'\r', b'\n', ..] => Some((5, Kind::Nil)),
        [b'+' | b':', ..] => Some((line_end(input)?, Kind::Value)),
        [b'$', ..] => {
            let mut length = 0;
            let mut at = 1;
            loop {
                let byte = *input.get(at)?;
                if byte == b'\r' {
                    break;
                }
                if !byte.is_ascii_digit() || at > 10 {
                    return None;
                }
                length = length * 10 + usize::from(byte - b'0');
                at += 1;
            }
            let end = at + 2 + length + 2;
            let whole = at > 1 && input.get(at + 1) == Some(&b'\n') && end <= input.len();
            whole.then_some((end, Kind::Value))
        }
        _ => None,
    }
}

#[inline]
fn line_end(input: &[u8]) -> Option<usize> {
    let end = input.iter().take(64).position(|&byte| byte == b'\n')?;
    (input[end - 1] == b'\r').then_some(end + 1)
}

fn signed(text: &[u8]) -> Option<i64> {
    std::str::from_utf8(text)
        .ok()?
        .parse()
        .ok()
        .filter(|&count: &i64| (-1..1 << 40).contains(&count))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::incoming::Incoming;
    use crate::value::Value;

    /// Returns the kinds of all replies in `input` as values say them.
    fn kinds_of_values(input: &[u8]) -> Vec<Kind> {
        fn has_error(value: &Value) -> bool {
            value.is_error() || value.items().iter().any(has_error)
        }
        let mut incoming = Incoming::new(ReplyLimits::PEER, input.len());
        incoming.buffer().extend_from_slice(input);
        let mut kinds = Vec::new();
        while let Some(value) = incoming.take().expect("it is RESP") {
            match value {
                Value::Push(_) => {}
                Value::Null => kinds.push(Kind::Nil),
                value if has_error(&value) => kinds.push(Kind::Error),
                _ => kinds.push(Kind::Value),
            }
        }
        kinds
    }

    /// The kinds of all replies in `input`, fed whole and cut at every byte.
    #[track_caller]
    fn check(input: &[u8], expected: &[Kind]) {
        assert_eq!(kinds_of_values(input), expected, "as values");
        for piece in 1..=input.len() {
            let mut counter = ReplyCounter::default();
            let mut kinds = Vec::new();
            for mut part in input.chunks(piece) {
                while !part.is_empty() {
                    let (used, kind) = counter.next(part).unwrap_or_else(|error| panic!("{error}"));
                    part = &part[used..];
                    kinds.extend(kind);
                }
            }
            assert_eq!(kinds, expected, "in pieces of {piece}");
        }
    }

    #[test]
    fn every_type_ends_where_it_ends() {
        use Kind::{Error, Nil, Value};
        check(b"+OK\r\n$3\r\nfoo\r\n:1\r\n", &[Value, Value, Value]);
        check(b"$-1\r\n*-1\r\n_\r\n", &[Nil, Nil, Nil]);
        check(b"$0\r\n\r\n*0\r\n%0\r\n", &[Value, Value, Value]);
        check(b"*2\r\n$1\r\na\r\n*2\r\n:1\r\n$-1\r\n+OK\r\n", &[Value, Value]);
        check(b"%2\r\n+a\r\n:1\r\n+b\r\n~2\r\n#t\r\n,1.5\r\n(123\r\n", &[Value, Value]);
        check(b"=7\r\ntxt:abc\r\n!5\r\nERR x\r\n", &[Value, Error]);
        check(b"-ERR no\r\n*2\r\n+OK\r\n-ERR inner\r\n+OK\r\n", &[Error, Error, Value]);
    }

    #[test]
    fn replies_alike_are_counted_together() {
        let counter = ReplyCounter::default();
        let input = b"+OK\r\n+OK\r\n:12\r\n$3\r\nabc\r\n$-1\r\n+OK\r\n$3\r\nab";
        assert_eq!(counter.alike(input, 9), (Kind::Value, 4, 24));
        assert_eq!(counter.alike(input, 2), (Kind::Value, 2, 10));
        assert_eq!(counter.alike(&input[24..], 9), (Kind::Nil, 1, 5));
        assert_eq!(counter.alike(&input[29..], 9), (Kind::Value, 1, 5));
        assert_eq!(counter.alike(&input[34..], 9).1, 0);
        assert_eq!(counter.alike(b"-ERR\r\n", 9).1, 0);
        // First lines of every length, and values that look like the end of one.
        let input = b":1\r\n:1\r\n:12345\r\n:123456\r\n:123456\r\n:1234567\r\n:1234567\r\n";
        assert_eq!(counter.alike(input, 9), (Kind::Value, 7, input.len()));
        let input = b"$2\r\n\n\n\r\n$2\r\n\r\n\r\n$2\r\n$2\r\n$0\r\n\r\n$0\r\n\r\n\
            $12\r\n$2\r\n$2\r\n$2\r\n\r\n";
        assert_eq!(counter.alike(input, 9), (Kind::Value, 6, input.len()));
        // What is left of a reply cut in two is not the start of one.
        let mut counter = ReplyCounter::default();
        assert_eq!(counter.next(b"$6\r\n+OK"), Ok((7, None)));
        assert_eq!(counter.alike(b"+OK\r\n", 9).1, 0);
        let mut counter = ReplyCounter::default();
        assert_eq!(counter.next(b"+ab"), Ok((3, None)));
        assert_eq!(counter.alike(b"+OK\r\n", 9).1, 0);
    }

    #[test]
    fn pushes_are_skipped_and_attributes_belong_to_what_follows() {
        check(b">2\r\n+invalidate\r\n*1\r\n+k\r\n+OK\r\n", &[Kind::Value]);
        check(b"|1\r\n+ttl\r\n:3\r\n$-1\r\n", &[Kind::Nil]);
        check(b"*2\r\n|1\r\n+a\r\n:1\r\n:2\r\n:3\r\n", &[Kind::Value]);
    }

    #[test]
    fn errors_keep_their_text() {
        let mut counter = ReplyCounter::default();
        assert_eq!(counter.next(b"-MOVED 1 a:1\r\n"), Ok((14, Some(Kind::Error))));
        assert_eq!(counter.error(), b"MOVED 1 a:1");
    }

    #[test]
    fn other_input_is_refused() {
        for input in [
            &b"HTTP/1.1 400\r\n"[..],
            b"$x\r\n",
            b"*-2\r\n",
            b"+OK\n",
            b"\r\n",
            b"$99999999999999\r\n",
        ] {
            assert!(ReplyCounter::default().next(input).is_err(), "{input:?}");
        }
        assert!(ReplyCounter::default().walk(&[b'a'; LINE_BYTES + 1]).is_err());
    }
}

//! What values look like from outside: where one ends, without a look at what is in it.
//!
//! Every type, those included that have no [`crate::Kind`], is a row of parts. A [`Walk`] steps
//! over a value with what has arrived of it, stops anywhere, even within a string, and goes on when
//! there is more; it never goes back, so a value costs the same however it is cut into pieces.

use crate::encode::{COMPRESSED, INT_8_BITS, INT_16_BITS, INT_32_BITS};
use crate::module::Mark;
use crate::{Decoder, Error, Length};

/// A part of a value.
pub(super) enum Part {
    /// A string in any form.
    String,
    /// A length, or a number written as one.
    Length,
    /// So many bytes.
    Bytes(u64),
    /// A double as text.
    TextDouble,
    /// A length, and then these parts as often as it says.
    Repeat(&'static [Part]),
    /// What a module wrote: marked values up to a mark of the end.
    Module,
}

use Part::{Bytes, Length as Number, Module, Repeat, String as Text, TextDouble};

/// A value type of any server's.
pub(super) struct Shape {
    /// What redis-check-rdb calls it.
    pub name: &'static str,
    /// `None`: where it ends only its own server knows.
    pub parts: Option<&'static [Part]>,
}

const ONE: Option<&[Part]> = Some(&[Text]);
const ELEMENTS: Option<&[Part]> = Some(&[Repeat(&[Text])]);
const PAIRS: Option<&[Part]> = Some(&[Repeat(&[Text, Text])]);
/// Id, time of the last delivery, number of deliveries.
const PENDING: Part = Repeat(&[Bytes(16 + 8), Number]);
/// An id within a consumer's own list.
const OWN_PENDING: Part = Repeat(&[Bytes(16)]);

/// A stream since Redis 7: also first id (2), highest deleted id (2), entries added; groups:
/// entries read. Consumers have times of so many bytes.
struct LaterStream<const TIMES: u64>;

impl<const TIMES: u64> LaterStream<TIMES> {
    const PARTS: Option<&'static [Part]> = Some(&[
        Repeat(&[Text, Text]),
        Number,
        Number,
        Number,
        Number,
        Number,
        Number,
        Number,
        Number,
        Repeat(&[
            Text,
            Number,
            Number,
            Number,
            PENDING,
            Repeat(&[Text, Bytes(TIMES), OWN_PENDING]),
        ]),
    ]);
}

/// Types of Redis, by their numbers.
static REDIS: [Shape; 26] = [
    Shape { name: "string", parts: ONE },
    Shape { name: "list-linked", parts: ELEMENTS },
    Shape { name: "set-hashtable", parts: ELEMENTS },
    Shape { name: "zset-v1", parts: Some(&[Repeat(&[Text, TextDouble])]) },
    Shape { name: "hash-hashtable", parts: PAIRS },
    Shape { name: "zset-v2", parts: Some(&[Repeat(&[Text, Bytes(8)])]) },
    Shape { name: "module-pre-release", parts: None },
    Shape { name: "module-value", parts: Some(&[Number, Module]) },
    Shape { name: "unknown", parts: None },
    Shape { name: "hash-zipmap", parts: ONE },
    Shape { name: "list-ziplist", parts: ONE },
    Shape { name: "set-intset", parts: ONE },
    Shape { name: "zset-ziplist", parts: ONE },
    Shape { name: "hash-ziplist", parts: ONE },
    Shape { name: "quicklist", parts: ELEMENTS },
    // Nodes; length, last id (2); groups: name, last id (2), pending, consumers: name, seen,
    // pending.
    Shape {
        name: "stream",
        parts: Some(&[
            Repeat(&[Text, Text]),
            Number,
            Number,
            Number,
            Repeat(&[Text, Number, Number, PENDING, Repeat(&[Text, Bytes(8), OWN_PENDING])]),
        ]),
    },
    Shape { name: "hash-listpack", parts: ONE },
    Shape { name: "zset-listpack", parts: ONE },
    Shape { name: "quicklist-v2", parts: Some(&[Repeat(&[Number, Text])]) },
    // Consumers: when they were seen.
    Shape { name: "stream-v2", parts: LaterStream::<8>::PARTS },
    Shape { name: "set-listpack", parts: ONE },
    // And when they were active.
    Shape { name: "stream-v3", parts: LaterStream::<16>::PARTS },
    // Hashes whose fields expire; from the release on the earliest expiry stands in front.
    Shape { name: "hash-hashtable-md-pre-release", parts: Some(&[Repeat(&[Number, Text, Text])]) },
    Shape { name: "hash-listpack-md-pre-release", parts: ONE },
    Shape { name: "hash-hashtable-md", parts: Some(&[Bytes(8), Repeat(&[Number, Text, Text])]) },
    Shape { name: "hash-listpack-md", parts: Some(&[Bytes(8), Text]) },
];

/// Valkey's own number 22: fields, values and expiries.
static VALKEY_HASH: Shape =
    Shape { name: "hash-volatile-items", parts: Some(&[Repeat(&[Text, Text, Bytes(8)])]) };
/// A number without a meaning when this was written.
static UNKNOWN: Shape = Shape { name: "unknown", parts: None };

/// The first number whose meaning depends on whose file it is.
const DIVERGED: u8 = 22;

/// The shape of a type in a file of Redis's or Valkey's.
pub(super) fn shape(kind: u8, is_valkey: bool) -> &'static Shape {
    match kind {
        DIVERGED if is_valkey => &VALKEY_HASH,
        DIVERGED.. if is_valkey => &UNKNOWN,
        _ => REDIS.get(usize::from(kind)).unwrap_or(&UNKNOWN),
    }
}

/// What redis-check-rdb calls a type that every server knows.
pub fn type_name(kind: u8) -> &'static str {
    shape(kind, false).name
}

/// Metadata of a module: its id, a mark, when it was written, and its data.
pub(super) static MODULE_AUX: &[Part] = &[Number, Number, Number, Module];
/// A slot that is being moved here: the job's name and ranges of slots.
pub(super) static SLOT_IMPORT: &[Part] = &[Text, Repeat(&[Number, Number])];

/// Deeper than any shape.
const DEPTH: usize = 4;

#[derive(Clone, Copy)]
struct Frame {
    parts: &'static [Part],
    next: usize,
    /// Rounds that are left, the current one included.
    rounds: u64,
}

/// How far a value has been stepped over.
pub(super) struct Walk {
    stack: [Frame; DEPTH],
    depth: usize,
    /// Bytes of the current part that have not arrived.
    pub pending: u64,
    /// Where the last whole element of the outermost repetition ended.
    pub boundary: usize,
    /// How many elements ended since this was last taken.
    pub elements: u64,
}

impl Walk {
    pub fn new(parts: &'static [Part]) -> Walk {
        let frame = Frame { parts, next: 0, rounds: 1 };
        let empty = Frame { parts: &[], next: 0, rounds: 0 };
        Walk { stack: [frame, empty, empty, empty], depth: 1, pending: 0, boundary: 0, elements: 0 }
    }

    /// Steps over `input` from `at`, which is moved, as far as it goes. True at the value's end.
    pub fn advance(&mut self, input: &[u8], at: &mut usize) -> Result<bool, Error> {
        loop {
            if self.pending > 0 {
                let there = (input.len() - *at) as u64;
                let taken = self.pending.min(there);
                *at += taken as usize;
                self.pending -= taken;
                if self.pending > 0 {
                    return Ok(false);
                }
            }
            let Some(top) = self.depth.checked_sub(1) else { return Ok(true) };
            let frame = &mut self.stack[top];
            if frame.next == frame.parts.len() {
                frame.rounds -= 1;
                frame.next = 0;
                if top == 1 {
                    self.boundary = *at;
                    self.elements += 1;
                }
                if frame.rounds == 0 {
                    self.depth -= 1;
                }
                continue;
            }
            let mut decoder = Decoder::new(&input[*at..]);
            match self.step(top, &mut decoder) {
                Ok(()) => *at = input.len() - decoder.remaining().len(),
                Err(Error::Truncated) => return Ok(false),
                Err(error) => return Err(error),
            }
        }
    }

    /// Steps over one part; after an error nothing has changed.
    fn step(&mut self, top: usize, decoder: &mut Decoder<'_>) -> Result<(), Error> {
        let frame = self.stack[top];
        match &frame.parts[frame.next] {
            Part::String => self.pending = string_head(decoder)?,
            Part::Length => drop(decoder.length()?),
            Part::Bytes(count) => self.pending = *count,
            Part::TextDouble => self.pending = text_double_head(decoder)?,
            Part::Repeat(parts) => {
                let rounds = decoder.length()?;
                if rounds > 0 {
                    assert!(self.depth < DEPTH, "no shape is this deep");
                    self.stack[self.depth] = Frame { parts, next: 0, rounds };
                    self.depth += 1;
                }
            }
            Part::Module => {
                let pending = match Mark::read(decoder)? {
                    Mark::End => {
                        self.stack[top].next += 1;
                        return Ok(());
                    }
                    Mark::Signed | Mark::Unsigned => decoder.length().map(|_| 0)?,
                    Mark::Float => 4,
                    Mark::Double => 8,
                    Mark::String => string_head(decoder)?,
                };
                self.pending = pending;
                return Ok(());
            }
        }
        self.stack[top].next += 1;
        Ok(())
    }
}

/// Reads what stands in front of a string's bytes, and tells how many these are.
pub(super) fn string_head(decoder: &mut Decoder<'_>) -> Result<u64, Error> {
    Ok(match decoder.length_or_special()? {
        Length::Plain(length) => length,
        Length::Special(INT_8_BITS) => 1,
        Length::Special(INT_16_BITS) => 2,
        Length::Special(INT_32_BITS) => 4,
        Length::Special(COMPRESSED) => {
            let compressed = decoder.length()?;
            decoder.length()?;
            compressed
        }
        Length::Special(_) => return Err(Error::Corrupt("string encoding")),
    })
}

/// Lengths of this many bytes and more stand for infinities and NaN.
const DOUBLE_NAN: u8 = 253;

fn text_double_head(decoder: &mut Decoder<'_>) -> Result<u64, Error> {
    let length = decoder.byte()?;
    Ok(if length < DOUBLE_NAN { u64::from(length) } else { 0 })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A shape for each number, and one that is known for each that is supported.
    #[test]
    fn supported_types_have_shapes() {
        for kind in 0..=255 {
            for is_valkey in [false, true] {
                if crate::Kind::in_dialect(kind, is_valkey).is_some() {
                    assert!(shape(kind, is_valkey).parts.is_some(), "{kind}");
                }
            }
        }
        assert_eq!(shape(22, true).name, "hash-volatile-items");
        assert_eq!(shape(22, false).name, "hash-hashtable-md-pre-release");
        assert_eq!(shape(23, true).name, "unknown");
    }

    fn walk(parts: &'static [Part], bytes: &[u8]) {
        for cut in 1..=bytes.len() {
            let mut walk = Walk::new(parts);
            let mut at = 0;
            let mut end = 0;
            loop {
                end = (end + cut).min(bytes.len());
                if walk.advance(&bytes[..end], &mut at).expect("sound") {
                    break;
                }
                assert!(end < bytes.len(), "ends with the bytes");
            }
            assert_eq!(at, bytes.len());
        }
    }

    #[test]
    fn a_walk_may_be_cut_anywhere() {
        walk(shape(0, false).parts.expect("known"), b"\x03abc");
        walk(shape(0, false).parts.expect("known"), b"\xc3\x02\x05ab");
        walk(shape(4, false).parts.expect("known"), b"\x02\x01a\xc0\x01\x01b\xc2\0\0\0\0");
        walk(shape(3, false).parts.expect("known"), b"\x03\x01a\x011\x01b\xff\x01c\xfe");
        walk(shape(5, false).parts.expect("known"), b"\x01\x01a12345678");
        walk(shape(18, false).parts.expect("known"), b"\x02\x01\x03abc\x02\x01d");
        walk(
            shape(7, false).parts.expect("known"),
            b"\x41\x00\x02\x07\x05\x01a\x04abcdefgh\x03abcd\0",
        );
        walk(shape(1, false).parts.expect("known"), b"\0");
    }

    #[test]
    fn elements_are_counted_where_they_end() {
        let mut walk = Walk::new(shape(4, false).parts.expect("known"));
        let mut at = 0;
        let bytes = b"\x02\x01a\x01b\x01c\x01";
        assert_eq!(walk.advance(bytes, &mut at), Ok(false));
        assert_eq!((walk.elements, walk.boundary, at), (1, 5, 8));
    }
}

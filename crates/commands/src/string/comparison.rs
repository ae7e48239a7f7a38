//! The comparisons that SET and DELEX share: `IFEQ value`, `IFNE value`, `IFDEQ digest`, `IFDNE
//! digest`.
//!
//! A digest is the 64-bit XXH3 of the value, sixteen hexadecimal digits in either case, so that a
//! client can compare with a value it has no copy of.

use engine::{Arg, ArgKind, Args, Error};
use twox_hash::XxHash3_64;

/// What the key's value is compared with.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Comparison<'a> {
    Equal(&'a [u8]),
    NotEqual(&'a [u8]),
    DigestEqual(u64),
    DigestNotEqual(u64),
}

/// IFNE, IFDEQ and IFDNE, as they are documented.
pub(super) const YOUNG: [Arg; 3] = [
    Arg::new("ifne-value", ArgKind::String).after("IFNE").since("8.4.0"),
    Arg::new("ifdeq-digest", ArgKind::String).after("IFDEQ").since("8.4.0"),
    Arg::new("ifdne-digest", ArgKind::String).after("IFDNE").since("8.4.0"),
];

/// The words that begin a comparison.
const NAMES: [&str; 4] = ["ifeq", "ifne", "ifdeq", "ifdne"];

/// Whether this word begins a comparison.
pub(super) fn is_comparison(word: &[u8]) -> bool {
    NAMES.iter().any(|name| word.eq_ignore_ascii_case(name.as_bytes()))
}

impl<'a> Comparison<'a> {
    /// Reads the comparison at word `at`; `None` if there is none.
    ///
    /// # Errors
    /// The digest is none.
    pub(super) fn parse(args: Args<'a>, at: usize) -> Result<Option<Comparison<'a>>, Error> {
        let Some(operand) = args.get(at + 1) else { return Ok(None) };
        Ok(if args.is(at, "ifeq") {
            Some(Comparison::Equal(operand))
        } else if args.is(at, "ifne") {
            Some(Comparison::NotEqual(operand))
        } else if args.is(at, "ifdeq") {
            Some(Comparison::DigestEqual(parse_digest(operand)?))
        } else if args.is(at, "ifdne") {
            Some(Comparison::DigestNotEqual(parse_digest(operand)?))
        } else {
            None
        })
    }

    /// Whether it holds for a value, or for the lack of one: nothing is unequal to everything.
    pub(super) fn holds(self, value: Option<&[u8]>) -> bool {
        match self {
            Comparison::Equal(wanted) => value == Some(wanted),
            Comparison::NotEqual(unwanted) => value != Some(unwanted),
            Comparison::DigestEqual(wanted) => value.map(digest) == Some(wanted),
            Comparison::DigestNotEqual(unwanted) => value.map(digest) != Some(unwanted),
        }
    }
}

/// The digest of a value.
pub(super) fn digest(value: &[u8]) -> u64 {
    XxHash3_64::oneshot(value)
}

fn parse_digest(text: &[u8]) -> Result<u64, Error> {
    let digits = std::str::from_utf8(text)
        .ok()
        .filter(|text| text.len() == DIGITS && text.bytes().all(|byte| byte.is_ascii_hexdigit()));
    digits
        .and_then(|digits| u64::from_str_radix(digits, 16).ok())
        .ok_or(Error::text("ERR must be exactly 16 hexadecimal characters"))
}

const DIGITS: usize = 16;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn digests_are_those_of_the_documentation() {
        assert_eq!(digest(b"Hello world"), 0xb6ac_b9d8_4a38_ff74);
        assert_eq!(parse_digest(b"B6acb9d84a38ff74").ok(), Some(0xb6ac_b9d8_4a38_ff74));
        assert!(parse_digest(b"+6acb9d84a38ff74").is_err());
        assert!(parse_digest(b"6acb9d84a38ff74").is_err());
    }

    #[test]
    fn nothing_is_unequal_to_everything() {
        assert!(Comparison::NotEqual(b"").holds(None));
        assert!(Comparison::DigestNotEqual(digest(b"")).holds(None));
        assert!(!Comparison::Equal(b"").holds(None));
        assert!(!Comparison::DigestEqual(digest(b"")).holds(None));
    }
}

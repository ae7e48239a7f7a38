//! The parts of a reply, one at a time: what each line of RESP2 and RESP3 says.
//!
//! [`next_token`] reads one part from the start of its input: a whole scalar, or the header of an
//! aggregate, whose elements are the next parts. It copies nothing and allocates nothing, so a
//! reader that turns a reply into values of its own (a script's, say) needs no tree in between:
//!
//! ```text
//!   *2\r\n   :1\r\n   $1\r\na\r\n        Array 2, Integer 1, Bulk "a"
//! ```
//!
//! Both protocols are read by the same function: their types do not overlap. Strings and aggregates
//! of unknown length (`$?`, `*?`), which no Redis server sends, are refused.

use structs::numbers;

/// Longest line in bytes: a header, a simple string, an error or a number.
pub const MAX_LINE: usize = 64 * 1024;

/// What a reply may ask of its reader. A reply beyond them is [invalid](InvalidReply).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ReplyLimits {
    /// Most aggregates inside each other.
    pub depth: usize,
    /// Longest bulk string in bytes.
    pub bulk_len: usize,
    /// Most elements of one aggregate; a map of so many pairs has twice as many.
    pub elements: usize,
}

impl ReplyLimits {
    /// For replies of another server: what Redis's own client library accepts, or more.
    pub const PEER: ReplyLimits =
        ReplyLimits { depth: 64, bulk_len: 512 << 20, elements: (1 << 31) - 1 };
}

/// The bytes are no reply, or one beyond the limits; the text says why. Nothing behind them can be
/// read: a connection is to be closed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct InvalidReply(pub &'static str);

impl std::fmt::Display for InvalidReply {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "invalid reply: {}", self.0)
    }
}

impl std::error::Error for InvalidReply {}

/// Why there is no token.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NoToken {
    /// At least so many more bytes have to come.
    Incomplete {
        /// A lower bound, never 0.
        missing: usize,
    },
    /// See there.
    Invalid(InvalidReply),
}

impl From<InvalidReply> for NoToken {
    fn from(invalid: InvalidReply) -> NoToken {
        NoToken::Invalid(invalid)
    }
}

/// The kinds of aggregates.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Aggregate {
    /// Values in order.
    Array,
    /// Keys and their values by turns.
    Map,
    /// Values without an order.
    Set,
    /// A message that answers no request.
    Push,
    /// Keys and values about the value that follows, which it is not an element beside.
    Attribute,
}

/// One part of a reply.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Token<'a> {
    /// `+OK`.
    Simple(&'a [u8]),
    /// `-ERR …`, or a bulk error: its text without the mark.
    Error(&'a [u8]),
    /// `:1`.
    Integer(i64),
    /// A string of any bytes.
    Bulk(&'a [u8]),
    /// A string and its format of three letters.
    Verbatim(&'a [u8], &'a [u8]),
    /// `$-1`, `*-1` or `_`.
    Null,
    /// `,1.5`: the number, and its text.
    Double(f64, &'a [u8]),
    /// `#t`.
    Boolean(bool),
    /// An integer of any length, as digits with or without a sign.
    BigNumber(&'a [u8]),
    /// The start of an aggregate, with the number of tokens of the next level that belong to it.
    Start(Aggregate, usize),
}

/// Reads the token at the start of `input`, and says how many bytes it takes.
///
/// # Errors
/// There is no whole token, or none that is valid.
pub fn next_token(input: &[u8], limits: ReplyLimits) -> Result<(Token<'_>, usize), NoToken> {
    let (line, at) = line(input)?;
    let text = &line[1..];
    let token = match line[0] {
        b'+' => Token::Simple(text),
        b'-' => Token::Error(text),
        b':' => Token::Integer(integer(text)?),
        b',' => Token::Double(double(text)?, text),
        b'#' => Token::Boolean(boolean(text)?),
        b'(' => Token::BigNumber(big_number(text)?),
        b'_' if text.is_empty() => Token::Null,
        b'$' | b'*' if text == b"-1" => Token::Null,
        b'$' | b'!' | b'=' => return string(input, line[0], text, at, limits),
        b'*' => Token::Start(Aggregate::Array, length(text, limits.elements)?),
        b'~' => Token::Start(Aggregate::Set, length(text, limits.elements)?),
        b'>' => Token::Start(Aggregate::Push, length(text, limits.elements)?),
        b'%' => Token::Start(Aggregate::Map, length(text, limits.elements)? * 2),
        b'|' => Token::Start(Aggregate::Attribute, length(text, limits.elements)? * 2),
        _ => return Err(InvalidReply("unknown type").into()),
    };
    Ok((token, at))
}

/// The first line, which has one byte at least, without its end; and where the next begins.
fn line(input: &[u8]) -> Result<(&[u8], usize), NoToken> {
    let searched = &input[..input.len().min(MAX_LINE + 2)];
    let Some(end) = searched.iter().position(|&byte| byte == b'\r' || byte == b'\n') else {
        return match searched.len() {
            len if len > MAX_LINE => Err(InvalidReply("line too long").into()),
            0 => Err(NoToken::Incomplete { missing: 3 }),
            _ => Err(NoToken::Incomplete { missing: 2 }),
        };
    };
    if end == 0 || input[end] == b'\n' {
        return Err(InvalidReply("line without a type or without a CR").into());
    }
    match input.get(end + 1) {
        None => Err(NoToken::Incomplete { missing: 1 }),
        Some(b'\n') => Ok((&input[..end], end + 2)),
        Some(_) => Err(InvalidReply("CR inside a line").into()),
    }
}

/// A string whose header, up to `at`, says that it has as many bytes as `text`.
fn string<'a>(
    input: &'a [u8],
    kind: u8,
    text: &[u8],
    at: usize,
    limits: ReplyLimits,
) -> Result<(Token<'a>, usize), NoToken> {
    let end = at + length(text, limits.bulk_len)?;
    let Some(body) = input.get(at..end) else {
        return Err(NoToken::Incomplete { missing: end + 2 - input.len() });
    };
    let mark = &input[end..input.len().min(end + 2)];
    if !b"\r\n".starts_with(mark) {
        return Err(InvalidReply("string longer than its length").into());
    }
    if mark.len() < 2 {
        return Err(NoToken::Incomplete { missing: 2 - mark.len() });
    }
    let token = match kind {
        b'$' => Token::Bulk(body),
        b'!' => Token::Error(body),
        _ => match body.split_at_checked(4) {
            Some((format, string)) if format[3] == b':' => Token::Verbatim(&format[..3], string),
            _ => return Err(InvalidReply("verbatim string without a format").into()),
        },
    };
    Ok((token, end + 2))
}

/// The header of a string, if `input` begins with one: its bytes, and those of the string.
pub(crate) fn string_header(
    input: &[u8],
    limits: ReplyLimits,
) -> Result<Option<(usize, usize)>, InvalidReply> {
    let Ok((line, at)) = line(input) else { return Ok(None) };
    match line[0] {
        b'$' | b'!' | b'=' => Ok(Some((at, length(&line[1..], limits.bulk_len)?))),
        _ => Ok(None),
    }
}

fn integer(text: &[u8]) -> Result<i64, InvalidReply> {
    // RESP allows a plus sign, which numbers of commands must not have.
    let digits = text.strip_prefix(b"+").filter(|rest| !rest.starts_with(b"-")).unwrap_or(text);
    numbers::parse_i64(digits).ok_or(InvalidReply("bad integer"))
}

fn length(text: &[u8], most: usize) -> Result<usize, InvalidReply> {
    let number = numbers::parse_u64(text).ok_or(InvalidReply("bad length"))?;
    let number = usize::try_from(number).ok().filter(|&number| number <= most);
    number.ok_or(InvalidReply("too long"))
}

fn double(text: &[u8]) -> Result<f64, InvalidReply> {
    if text.eq_ignore_ascii_case(b"nan") || text.eq_ignore_ascii_case(b"-nan") {
        return Ok(f64::NAN);
    }
    numbers::parse_f64(text).ok_or(InvalidReply("bad double"))
}

fn boolean(text: &[u8]) -> Result<bool, InvalidReply> {
    match text {
        b"t" => Ok(true),
        b"f" => Ok(false),
        _ => Err(InvalidReply("bad boolean")),
    }
}

fn big_number(text: &[u8]) -> Result<&[u8], InvalidReply> {
    let digits = text.strip_prefix(b"-").or_else(|| text.strip_prefix(b"+")).unwrap_or(text);
    let is_number = !digits.is_empty() && digits.iter().all(u8::is_ascii_digit);
    is_number.then_some(text).ok_or(InvalidReply("bad big number"))
}

#[cfg(test)]
mod tests {
    use super::*;

    const LIMITS: ReplyLimits = ReplyLimits { depth: 3, bulk_len: 10, elements: 5 };

    #[track_caller]
    fn check(input: &[u8], expected: Token<'_>) {
        assert_eq!(next_token(input, LIMITS), Ok((expected, input.len())));
        for len in 0..input.len() {
            let found = next_token(&input[..len], LIMITS);
            let Err(NoToken::Incomplete { missing }) = found else { panic!("{len}: {found:?}") };
            assert!((1..=input.len() - len).contains(&missing), "{len}: {missing} missing");
        }
    }

    #[track_caller]
    fn invalid(input: &[u8], why: &'static str) {
        assert_eq!(next_token(input, LIMITS), Err(NoToken::Invalid(InvalidReply(why))));
    }

    #[test]
    fn every_type_of_both_protocols() {
        check(b"+OK\r\n", Token::Simple(b"OK"));
        check(b"+\r\n", Token::Simple(b""));
        check(b"-ERR no\r\n", Token::Error(b"ERR no"));
        check(b"!6\r\nERR no\r\n", Token::Error(b"ERR no"));
        check(b":-15\r\n", Token::Integer(-15));
        check(b":+7\r\n", Token::Integer(7));
        check(b":9223372036854775807\r\n", Token::Integer(i64::MAX));
        check(b"$0\r\n\r\n", Token::Bulk(b""));
        check(b"$4\r\na\r\nb\r\n", Token::Bulk(b"a\r\nb"));
        check(b"=7\r\ntxt:abc\r\n", Token::Verbatim(b"txt", b"abc"));
        check(b"$-1\r\n", Token::Null);
        check(b"*-1\r\n", Token::Null);
        check(b"_\r\n", Token::Null);
        check(b",1.5\r\n", Token::Double(1.5, b"1.5"));
        check(b",-inf\r\n", Token::Double(f64::NEG_INFINITY, b"-inf"));
        check(b"#t\r\n", Token::Boolean(true));
        check(b"#f\r\n", Token::Boolean(false));
        check(b"(-12345678901234567890\r\n", Token::BigNumber(b"-12345678901234567890"));
        check(b"*2\r\n", Token::Start(Aggregate::Array, 2));
        check(b"~0\r\n", Token::Start(Aggregate::Set, 0));
        check(b">3\r\n", Token::Start(Aggregate::Push, 3));
        check(b"%2\r\n", Token::Start(Aggregate::Map, 4));
        check(b"|1\r\n", Token::Start(Aggregate::Attribute, 2));
    }

    #[test]
    fn a_double_may_be_no_number() {
        let found = next_token(b",nan\r\n", LIMITS).expect("a token");
        assert!(matches!(found, (Token::Double(number, _), 6) if number.is_nan()));
    }

    #[test]
    fn what_is_no_reply_is_refused() {
        invalid(b"\r\n", "line without a type or without a CR");
        invalid(b"+OK\n", "line without a type or without a CR");
        invalid(b"+O\rK\r\n", "CR inside a line");
        invalid(b"GET\r\n", "unknown type");
        invalid(b"_x\r\n", "unknown type");
        invalid(b":1.5\r\n", "bad integer");
        invalid(b":+-1\r\n", "bad integer");
        invalid(b":9223372036854775808\r\n", "bad integer");
        invalid(b",\r\n", "bad double");
        invalid(b"#x\r\n", "bad boolean");
        invalid(b"(-\r\n", "bad big number");
        invalid(b"(1.5\r\n", "bad big number");
        invalid(b"$-2\r\n", "bad length");
        invalid(b"$?\r\n", "bad length");
        invalid(b"*?\r\n", "bad length");
        invalid(b"%-1\r\n", "bad length");
        invalid(b"=-1\r\n", "bad length");
        invalid(b"$1\r\nab", "string longer than its length");
        invalid(b"$1\r\na\rb", "string longer than its length");
        invalid(b"=3\r\ntxt\r\n", "verbatim string without a format");
        invalid(b"=4\r\ntxt.\r\n", "verbatim string without a format");
    }

    #[test]
    fn limits_hold_before_the_bytes_have_come() {
        invalid(b"$11\r\n", "too long");
        invalid(b"*6\r\n", "too long");
        invalid(b"%6\r\n", "too long");
        invalid(b"$99999999999999999999\r\n", "bad length");
        let long = vec![b'+'; MAX_LINE + 1];
        invalid(&long, "line too long");
        assert!(matches!(next_token(&long[1..], LIMITS), Err(NoToken::Incomplete { missing: 2 })));
    }
}

//! Finding requests in what a client sent.
//!
//! A request is an array of bulk strings, or a line of words ("inline", for people with a
//! terminal). [`Parser::next`] yields its words as slices of the input, without a copy. A request
//! that is not complete is not an error: the parser remembers how far it came, so that a request
//! of a million words that arrives in a thousand pieces is not read a thousand times.
//!
//! Error texts are Redis's own, because client libraries and its test suite know them.

use std::ops::Range;
use structs::heap_string::HeapString;

/// Longest inline request and longest line of a header, in bytes.
pub const INLINE_LIMIT: usize = 64 * 1024;

/// Of a header or a word that something else follows than the end of its line.
const BAD_LINE_END: &str = "invalid CRLF in request";

/// What a client may send.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// Most words of one request.
    pub words: i64,
    /// Longest bulk string in bytes (`proto-max-bulk-len`).
    pub bulk_len: i64,
}

impl Limits {
    /// What a client may send that has not authenticated yet.
    pub const UNAUTHENTICATED: Limits = Limits { words: 10, bulk_len: 16384 };
}

/// What [`Parser::next`] found at the start of the input.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Parsed {
    /// A request; its words are in the parser. `consumed` bytes of the input belong to it.
    /// An empty request has no words and is to be ignored.
    Request {
        /// Bytes it took.
        consumed: usize,
    },
    /// Not a whole request; at least `missing` more bytes are needed.
    Incomplete {
        /// A lower bound of the bytes that have to come.
        missing: usize,
    },
    /// Not RESP. The text follows `Protocol error: `; the connection is to be closed.
    Error(String),
}

/// Words that a parser keeps room for between two requests.
pub const KEPT_WORDS: usize = 1024;

/// Words of so many bytes are received into blocks of their own: see [`Parser::supply`].
pub const LONG_WORD: usize = 64 << 10;

/// A word that is not in the input.
#[derive(Debug)]
pub struct LongWord {
    /// Where it would begin, relative to the request's first byte.
    at: usize,
    block: HeapString,
}

impl LongWord {
    /// The word.
    pub fn block(&self) -> &HeapString {
        &self.block
    }
}

/// The state of one connection's parser.
#[derive(Default, Debug)]
pub struct Parser {
    words: Vec<Range<usize>>,
    /// Words that a multi-bulk request still lacks; 0 when no request has begun.
    left: usize,
    /// Where the next header starts, relative to the request's first byte.
    at: usize,
    /// The length of the bulk whose header has been read but whose body has not.
    body: Option<usize>,
    owned: Vec<u8>,
    /// The words of the request that are not in the input, in order.
    long: Vec<LongWord>,
}

impl Parser {
    /// A parser for a new connection.
    pub fn new() -> Parser {
        Parser::default()
    }

    /// Whether a request has begun and is not complete.
    pub fn is_inside_request(&self) -> bool {
        self.left > 0
    }

    /// The word whose header is the last that was read, if it is long: where it begins, relative to
    /// the request's first byte, and its length.
    pub fn unfinished_long_word(&self) -> Option<(usize, usize)> {
        let len = self.body.filter(|len| (LONG_WORD..=HeapString::LONGEST).contains(len))?;
        (!self.has_long_word_at(self.at)).then_some((self.at, len))
    }

    /// Gives the parser the [unfinished word](Parser::unfinished_long_word): what has come of it is
    /// taken out of the input, which goes on with the end of its line.
    pub fn supply(&mut self, block: HeapString) {
        debug_assert_eq!(self.body, Some(block.len()));
        self.long.push(LongWord { at: self.at, block });
    }

    /// Whether the request at the start of the input has words that were supplied.
    #[inline]
    pub fn has_long_words(&self) -> bool {
        !self.long.is_empty()
    }

    /// Whether the word that begins there was supplied.
    fn has_long_word_at(&self, at: usize) -> bool {
        self.long.iter().any(|word| word.at == at)
    }

    /// Bytes of the words that were supplied.
    pub fn long_bytes(&self) -> usize {
        self.long.iter().map(|word| word.block.allocated_bytes()).sum()
    }

    /// Takes the words that were supplied.
    pub fn take_long_words(&mut self) -> Vec<LongWord> {
        std::mem::take(&mut self.long)
    }

    /// A parser that is to begin again with a request that has these words.
    pub fn with_long_words(long: Vec<LongWord>) -> Parser {
        Parser { long, ..Parser::default() }
    }

    /// The word that was found at a place of a request that begins with `input`.
    pub fn word<'a>(input: &'a [u8], long: &'a [LongWord], place: Range<usize>) -> &'a [u8] {
        let supplied = long.iter().find(|word| place.is_empty() && word.at == place.start);
        supplied.map_or_else(|| &input[place], |word| word.block.as_slice())
    }

    /// Words of the request so far, in bytes, for CLIENT LIST's `argv-mem`. Of a request of very
    /// many words, which arrives in many pieces, it is the bytes from the first to the last, with
    /// what separates them: this is asked for after every piece.
    pub fn pending_bytes(&self) -> usize {
        const COUNTED: usize = 64;
        match (self.words.first(), self.words.last()) {
            (Some(first), Some(last)) if self.words.len() > COUNTED && self.long.is_empty() => {
                last.end.saturating_sub(first.start)
            }
            _ => self.words.iter().map(|w| w.len()).sum(),
        }
    }

    /// Bytes of the unfinished request that need not be looked at again.
    pub fn parsed_bytes(&self) -> usize {
        if self.left > 0 { self.at } else { 0 }
    }

    /// Whether the request came as a line; its words then are in [`Parser::owned_words`].
    #[inline]
    pub fn is_inline(&self) -> bool {
        !self.owned.is_empty()
    }

    /// The words of the request that `next` found, as places in its input (or, for an inline
    /// request, in [`Parser::owned_words`]).
    #[inline]
    pub fn words(&self) -> &[Range<usize>] {
        &self.words
    }

    /// The unquoted words of an inline request, one behind the other.
    pub fn owned_words(&self) -> &[u8] {
        &self.owned
    }

    /// Gives the memory back that a request of very many words took, once it is done with.
    #[inline]
    pub fn shrink(&mut self) {
        if self.words.capacity() > KEPT_WORDS && self.left == 0 {
            self.words = Vec::new();
        }
    }

    /// Looks for a request at the start of `input`, which must start with the same bytes as at
    /// the last call if that returned `Incomplete`.
    #[inline]
    pub fn next(&mut self, input: &[u8], limits: Limits) -> Parsed {
        if self.left == 0 {
            self.words.clear();
            self.owned.clear();
            match input.first() {
                None => return Parsed::Incomplete { missing: 1 },
                Some(b'*') => {}
                Some(_) => return self.inline(input),
            }
            let (words, at) = match header(input, 1) {
                Header::Number(number, at) => (number, at),
                Header::Incomplete => return too_long(input, "too big mbulk count string"),
                Header::Invalid => return Parsed::Error("invalid multibulk length".into()),
                Header::BadLineEnd => return Parsed::Error(BAD_LINE_END.into()),
            };
            if words > limits.words.min(i64::from(i32::MAX)) {
                return Parsed::Error(
                    if limits.words == Limits::UNAUTHENTICATED.words {
                        "unauthenticated multibulk length"
                    } else {
                        "invalid multibulk length"
                    }
                    .into(),
                );
            }
            if words <= 0 {
                return Parsed::Request { consumed: at };
            }
            self.left = words as usize;
            self.at = at;
            self.body = None;
        }
        while self.left > 0 {
            let len = match self.body {
                Some(len) => len,
                None => match self.bulk_header(input, limits) {
                    Ok(len) => len,
                    Err(outcome) => return outcome,
                },
            };
            let is_supplied = self.has_long_word_at(self.at);
            let end = if is_supplied { self.at } else { self.at + len };
            // Until the word is complete, and if it is wrong: the error may be asked for again.
            self.body = Some(len);
            if input.len() < end + 2 {
                return Parsed::Incomplete { missing: end + 2 - input.len() };
            }
            if input[end..end + 2] != *b"\r\n" {
                return Parsed::Error(BAD_LINE_END.into());
            }
            self.body = None;
            self.words.push(self.at..end);
            self.at = end + 2;
            self.left -= 1;
        }
        Parsed::Request { consumed: self.at }
    }

    #[inline]
    fn bulk_header(&mut self, input: &[u8], limits: Limits) -> Result<usize, Parsed> {
        let rest = &input[self.at.min(input.len())..];
        match rest.first() {
            None => return Err(Parsed::Incomplete { missing: 1 }),
            Some(b'$') => {}
            Some(&other) => {
                return Err(Parsed::Error(format!("expected '$', got '{}'", char::from(other))));
            }
        }
        match header(rest, 1) {
            Header::Number(number, used) => {
                if number < 0 || number > limits.bulk_len {
                    let text = if number > limits.bulk_len
                        && limits.bulk_len == Limits::UNAUTHENTICATED.bulk_len
                    {
                        "unauthenticated bulk length"
                    } else {
                        "invalid bulk length"
                    };
                    return Err(Parsed::Error(text.into()));
                }
                self.at += used;
                Ok(number as usize)
            }
            Header::Incomplete => Err(too_long(rest, "too big bulk count string")),
            Header::Invalid => Err(Parsed::Error("invalid bulk length".into())),
            Header::BadLineEnd => Err(Parsed::Error(BAD_LINE_END.into())),
        }
    }

    fn inline(&mut self, input: &[u8]) -> Parsed {
        let Some(end) = input.iter().position(|&b| b == b'\n') else {
            if input.len() > INLINE_LIMIT {
                return Parsed::Error("too big inline request".into());
            }
            return Parsed::Incomplete { missing: 1 };
        };
        let line = input[..end].strip_suffix(b"\r").unwrap_or(&input[..end]);
        match split_words(line) {
            Some(words) => {
                for word in &words {
                    let start = self.owned.len();
                    self.owned.extend_from_slice(word);
                    self.words.push(start..self.owned.len());
                }
                if !words.is_empty() {
                    // A mark that the words are owned, even when all of them are empty.
                    self.owned.push(0);
                }
                Parsed::Request { consumed: end + 1 }
            }
            None => Parsed::Error("unbalanced quotes in request".into()),
        }
    }
}

fn too_long(input: &[u8], text: &str) -> Parsed {
    if input.len() > INLINE_LIMIT {
        return Parsed::Error(text.into());
    }
    Parsed::Incomplete { missing: 1 }
}

pub(crate) enum Header {
    Number(i64, usize),
    Incomplete,
    Invalid,
    BadLineEnd,
}

/// Reads `<number>\r\n` from `input[from..]`; yields the number and where the next byte is.
#[inline]
pub(crate) fn header(input: &[u8], from: usize) -> Header {
    // Nearly every length has one or two digits.
    if let [a @ b'0'..=b'9', b'\r', b'\n', ..] = input[from..] {
        return Header::Number(i64::from(a - b'0'), from + 3);
    }
    if let [a @ b'1'..=b'9', b @ b'0'..=b'9', b'\r', b'\n', ..] = input[from..] {
        return Header::Number(i64::from(a - b'0') * 10 + i64::from(b - b'0'), from + 4);
    }
    header_slow(input, from)
}

fn header_slow(input: &[u8], from: usize) -> Header {
    let window = &input[from..input.len().min(from + INLINE_LIMIT)];
    let Some(end) = window.iter().position(|&b| b == b'\r') else { return Header::Incomplete };
    if input.len() < from + end + 2 {
        return Header::Incomplete;
    }
    if input[from + end + 1] != b'\n' {
        return Header::BadLineEnd;
    }
    match structs::numbers::parse_i64(&window[..end]) {
        Some(number) => Header::Number(number, from + end + 2),
        None => Header::Invalid,
    }
}

/// Splits a line into words: blanks separate, `"…"` with C escapes and `'…'` quote, and a word may
/// have quoted and unquoted parts, as in Valkey 9.1. `None` when quotes are not balanced.
pub fn split_words(line: &[u8]) -> Option<Vec<Vec<u8>>> {
    let mut words = Vec::new();
    let mut rest = line;
    loop {
        let start = rest.iter().position(|b| !is_space(*b));
        let Some(start) = start.filter(|&s| rest[s] != 0) else { return Some(words) };
        rest = &rest[start..];
        let mut word = Vec::new();
        rest = split_word(rest, &mut word)?;
        words.push(word);
    }
}

fn split_word<'a>(mut rest: &'a [u8], word: &mut Vec<u8>) -> Option<&'a [u8]> {
    loop {
        match rest {
            [] | [0, ..] => return Some(&[]),
            [b, ..] if is_space(*b) => return Some(rest),
            [b'"', tail @ ..] => rest = double_quoted(tail, word)?,
            [b'\'', tail @ ..] => rest = single_quoted(tail, word)?,
            [b, tail @ ..] => {
                word.push(*b);
                rest = tail;
            }
        }
    }
}

fn double_quoted<'a>(mut rest: &'a [u8], word: &mut Vec<u8>) -> Option<&'a [u8]> {
    loop {
        match rest {
            [] => return None,
            [b'"', tail @ ..] => return Some(tail),
            [b'\\', b'x', h, l, tail @ ..] if h.is_ascii_hexdigit() && l.is_ascii_hexdigit() => {
                let digit = |b: u8| char::from(b).to_digit(16).unwrap_or(0) as u8;
                word.push(digit(*h) * 16 + digit(*l));
                rest = tail;
            }
            [b'\\', b, tail @ ..] => {
                word.push(match b {
                    b'n' => b'\n',
                    b'r' => b'\r',
                    b't' => b'\t',
                    b'b' => 8,
                    b'a' => 7,
                    other => *other,
                });
                rest = tail;
            }
            [b, tail @ ..] => {
                word.push(*b);
                rest = tail;
            }
        }
    }
}

fn single_quoted<'a>(mut rest: &'a [u8], word: &mut Vec<u8>) -> Option<&'a [u8]> {
    loop {
        match rest {
            [] => return None,
            [b'\\', b'\'', tail @ ..] => {
                word.push(b'\'');
                rest = tail;
            }
            [b'\'', tail @ ..] => return Some(tail),
            [b, tail @ ..] => {
                word.push(*b);
                rest = tail;
            }
        }
    }
}

fn is_space(b: u8) -> bool {
    matches!(b, b' ' | b'\t' | b'\n' | b'\r' | 0x0b | 0x0c)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_word_may_have_quoted_and_unquoted_parts() {
        for (line, word) in [
            ("foo\"bar baz\"", "foobar baz"),
            ("\"foo\"bar", "foobar"),
            ("\"a\"'b'c", "abc"),
            ("a\"\"", "a"),
        ] {
            assert_eq!(
                split_words(line.as_bytes()),
                Some(vec![word.as_bytes().to_vec()]),
                "{line}"
            );
        }
        assert_eq!(split_words(b"a\"b"), None);
    }

    const LIMITS: Limits = Limits { words: 1024 * 1024, bulk_len: 512 * 1024 * 1024 };

    fn words(parser: &Parser, input: &[u8]) -> Vec<Vec<u8>> {
        let source = if parser.is_inline() { parser.owned_words() } else { input };
        parser.words().iter().map(|w| source[w.clone()].to_vec()).collect()
    }

    /// Parses all requests of `input`, which arrives in two pieces.
    fn parse_split(input: &[u8], at: usize) -> Vec<Vec<Vec<u8>>> {
        let mut parser = Parser::new();
        let mut requests = Vec::new();
        let mut start = 0;
        for end in [at, input.len()] {
            while start < end {
                match parser.next(&input[start..end], LIMITS) {
                    Parsed::Request { consumed } => {
                        requests.push(words(&parser, &input[start..]));
                        start += consumed;
                    }
                    Parsed::Incomplete { missing } => {
                        assert!(missing >= 1 && (end < input.len()), "stuck at {start}");
                        break;
                    }
                    Parsed::Error(text) => panic!("{text}"),
                }
            }
        }
        requests
    }

    #[test]
    fn requests_cut_at_every_byte() {
        let input = b"*2\r\n$3\r\nGET\r\n$0\r\n\r\n*0\r\nset \"a b\" 'c'\r\n*1\r\n$12\r\nhello\r\nworld\r\n\r\nPING\n";
        let whole = parse_split(input, input.len());
        // The empty line between the last two is an empty request.
        assert_eq!(whole.len(), 6);
        assert_eq!(whole[0], [b"GET".to_vec(), vec![]]);
        assert_eq!(whole[2], [b"set".to_vec(), b"a b".to_vec(), b"c".to_vec()]);
        assert_eq!(whole[3], [b"hello\r\nworld".to_vec()]);
        for at in 0..input.len() {
            assert_eq!(parse_split(input, at), whole, "cut at {at}");
        }
    }

    #[track_caller]
    fn check_error(input: &[u8], limits: Limits, expected: &str) {
        assert_eq!(Parser::new().next(input, limits), Parsed::Error(expected.into()));
    }

    #[test]
    fn errors_have_the_known_texts() {
        check_error(b"*3\r\n$3\r\nSET\r\nfoo", LIMITS, "expected '$', got 'f'");
        check_error(b"*3000000000\r\n", LIMITS, "invalid multibulk length");
        check_error(b"*x\r\n", LIMITS, "invalid multibulk length");
        check_error(b"*1\r\n$-10\r\n", LIMITS, "invalid bulk length");
        check_error(b"*1\r\n$2000000000\r\n", LIMITS, "invalid bulk length");
        for input in [
            &b"*1\r\n$4\r\nPINGxx"[..],
            b"*1\r\n$4\r\nPING\rx",
            b"*1\r\n$4\r\nPINGx\n",
            b"*1\r\n$4\rxPING\r\n",
            b"*1\rx$4\r\nPING\r\n",
        ] {
            check_error(input, LIMITS, BAD_LINE_END);
        }
        check_error(b"set \"a\r\n", LIMITS, "unbalanced quotes in request");
        check_error(&vec![b'a'; 70_000], LIMITS, "too big inline request");
        let mut long = b"*".to_vec();
        long.extend(vec![b'1'; 70_000]);
        check_error(&long, LIMITS, "too big mbulk count string");
        check_error(b"*11\r\n", Limits::UNAUTHENTICATED, "unauthenticated multibulk length");
        check_error(b"*1\r\n$16385\r\n", Limits::UNAUTHENTICATED, "unauthenticated bulk length");
    }

    #[test]
    fn missing_bytes_of_a_body_are_announced() {
        let mut parser = Parser::new();
        assert_eq!(parser.next(b"*1\r\n$1000\r\nabc", LIMITS), Parsed::Incomplete { missing: 999 });
        assert!(parser.is_inside_request());
    }

    #[test]
    fn a_long_word_is_not_in_the_input() {
        let input = format!("*3\r\n$4\r\nMSET\r\n$0\r\n\r\n${LONG_WORD}\r\n");
        let mut parser = Parser::new();
        let begun = [input.as_bytes(), b"xx"].concat();
        let missing = LONG_WORD;
        assert_eq!(parser.next(&begun, LIMITS), Parsed::Incomplete { missing });
        assert_eq!(parser.unfinished_long_word(), Some((input.len(), LONG_WORD)));
        parser.supply(HeapString::from_bytes(&[b'x'; LONG_WORD]));
        let whole = [input.as_bytes(), b"\r\n*1\r\n"].concat();
        for _ in 0..2 {
            let found = parser.next(&whole, LIMITS);
            assert_eq!(found, Parsed::Request { consumed: input.len() + 2 });
            let places = parser.words().to_vec();
            let long = parser.take_long_words();
            let words: Vec<_> =
                places.into_iter().map(|place| Parser::word(&whole, &long, place)).collect();
            assert_eq!(words, [&b"MSET"[..], b"", &[b'x'; LONG_WORD]]);
            // As when the request could not run.
            parser = Parser::with_long_words(long);
        }
    }
}

//! A strict decoder of server replies, RESP2 and RESP3.
//!
//! It shares no code with the server on purpose: a mistake in the server's encoder must not be
//! forgiven by the same mistake here. Anything that a careful client could stumble over is an
//! error, not a guess: a type the negotiated protocol does not have, `$-1` under RESP3, a length
//! with leading zeros, a bare CR or LF in a line, text that does not end where its length says.

use std::fmt;

/// The protocol a connection has negotiated.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Protocol {
    /// RESP2, what every connection starts with.
    Resp2,
    /// RESP3, after `HELLO 3`.
    Resp3,
}

impl fmt::Display for Protocol {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str(match self {
            Protocol::Resp2 => "RESP2",
            Protocol::Resp3 => "RESP3",
        })
    }
}

/// One reply as it stood on the wire. Text is kept as the bytes received: a double is compared by
/// its spelling, as clients that print it would see it.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Reply {
    /// `+text`
    Simple(Vec<u8>),
    /// `-text` (and RESP3's `!` blob error)
    Error(Vec<u8>),
    /// `:number`
    Integer(i64),
    /// `$length`, text
    Bulk(Vec<u8>),
    /// RESP2's `$-1` and RESP3's `_`
    Nil,
    /// RESP2's `*-1`; RESP3 has no such thing
    NilArray,
    /// `*length`
    Array(Vec<Reply>),
    /// RESP3 `%length`
    Map(Vec<(Reply, Reply)>),
    /// RESP3 `~length`
    Set(Vec<Reply>),
    /// RESP3 `>length`
    Push(Vec<Reply>),
    /// RESP3 `,number`
    Double(Vec<u8>),
    /// RESP3 `#t` and `#f`
    Boolean(bool),
    /// RESP3 `(digits`
    BigNumber(Vec<u8>),
    /// RESP3 `=length`, a three letter format and a colon before the text
    Verbatim(Vec<u8>, Vec<u8>),
}

impl Reply {
    /// The text of a reply that has one.
    pub fn text(&self) -> Option<&[u8]> {
        match self {
            Reply::Simple(text) | Reply::Error(text) | Reply::Bulk(text) => Some(text),
            Reply::Double(text) | Reply::BigNumber(text) | Reply::Verbatim(_, text) => Some(text),
            _ => None,
        }
    }

    /// What it says, a number too; nothing if it is neither text nor a number.
    pub fn shown(&self) -> String {
        match self {
            Reply::Integer(number) => number.to_string(),
            _ => String::from_utf8_lossy(self.text().unwrap_or_default()).into_owned(),
        }
    }

    /// The number of an integer reply.
    pub fn integer(&self) -> Option<i64> {
        match self {
            Reply::Integer(number) => Some(*number),
            _ => None,
        }
    }

    /// The elements of an array, set or push.
    pub fn elements(&self) -> Option<&[Reply]> {
        match self {
            Reply::Array(items) | Reply::Set(items) | Reply::Push(items) => Some(items),
            _ => None,
        }
    }

    /// Whether this is an error reply.
    pub fn is_error(&self) -> bool {
        matches!(self, Reply::Error(_))
    }

    /// Whether this is a nil of either kind.
    pub fn is_nil(&self) -> bool {
        matches!(self, Reply::Nil | Reply::NilArray)
    }
}

/// Decodes the reply at the start of `bytes`: `Ok(None)` while it is incomplete, else the reply
/// and the bytes it took. An error says what is wrong with the bytes.
pub fn decode(bytes: &[u8], protocol: Protocol) -> Result<Option<(Reply, usize)>, String> {
    let mut cursor = Cursor { bytes, at: 0, protocol };
    match cursor.reply(0) {
        Ok(reply) => Ok(Some((reply, cursor.at))),
        Err(Stop::Incomplete) => Ok(None),
        Err(Stop::Invalid(why)) => {
            let around = &bytes[cursor.at.saturating_sub(20)..bytes.len().min(cursor.at + 40)];
            Err(format!(
                "invalid {protocol} at byte {}: {why}, near {:?}",
                cursor.at,
                String::from_utf8_lossy(around)
            ))
        }
    }
}

enum Stop {
    Incomplete,
    Invalid(String),
}

fn invalid<T>(why: impl Into<String>) -> Result<T, Stop> {
    Err(Stop::Invalid(why.into()))
}

struct Cursor<'a> {
    bytes: &'a [u8],
    at: usize,
    protocol: Protocol,
}

impl Cursor<'_> {
    fn reply(&mut self, depth: usize) -> Result<Reply, Stop> {
        if depth > 32 {
            return invalid("nested deeper than any reply");
        }
        let kind = *self.bytes.get(self.at).ok_or(Stop::Incomplete)?;
        let resp3 = self.protocol == Protocol::Resp3;
        if !resp3 && b"_%~>,#(=!|".contains(&kind) {
            return invalid(format!("type {:?} does not exist in RESP2", kind as char));
        }
        if kind == b'>' && depth > 0 {
            return invalid("a push inside another reply");
        }
        self.at += 1;
        match kind {
            b'+' => Ok(Reply::Simple(self.line()?.to_vec())),
            b'-' => Ok(Reply::Error(self.line()?.to_vec())),
            b':' => Ok(Reply::Integer(self.number()?)),
            b'$' => Ok(self.blob()?.map_or(Reply::Nil, Reply::Bulk)),
            b'!' => match self.blob()? {
                Some(text) => Ok(Reply::Error(text)),
                None => invalid("a blob error without text"),
            },
            b'*' => match self.length()? {
                Some(count) => Ok(Reply::Array(self.items(count, depth)?)),
                None => Ok(Reply::NilArray),
            },
            b'~' => Ok(Reply::Set(self.counted(depth)?)),
            b'>' => Ok(Reply::Push(self.counted(depth)?)),
            b'%' => {
                let Some(count) = self.length()? else { return invalid("a map of length -1") };
                let mut pairs = Vec::with_capacity(count.min(1024));
                for _ in 0..count {
                    pairs.push((self.reply(depth + 1)?, self.reply(depth + 1)?));
                }
                Ok(Reply::Map(pairs))
            }
            b'|' => invalid("an attribute, which no command sends"),
            b'_' => match self.line()? {
                b"" => Ok(Reply::Nil),
                _ => invalid("text after a null"),
            },
            b'#' => match self.line()? {
                b"t" => Ok(Reply::Boolean(true)),
                b"f" => Ok(Reply::Boolean(false)),
                _ => invalid("a boolean that is neither t nor f"),
            },
            b',' => {
                let text = self.line()?.to_vec();
                let readable = std::str::from_utf8(&text).is_ok_and(|text| {
                    ["inf", "-inf", "nan"].contains(&text)
                        || (text.parse::<f64>().is_ok()
                            && text.bytes().all(|byte| b"0123456789+-.eE".contains(&byte)))
                });
                if readable { Ok(Reply::Double(text)) } else { invalid("a malformed double") }
            }
            b'(' => {
                let text = self.line()?.to_vec();
                let digits = text.strip_prefix(b"-").unwrap_or(&text);
                if digits.is_empty() || !digits.iter().all(u8::is_ascii_digit) {
                    return invalid("a malformed big number");
                }
                Ok(Reply::BigNumber(text))
            }
            b'=' => match self.blob()? {
                Some(text) if text.len() >= 4 && text[3] == b':' => {
                    Ok(Reply::Verbatim(text[..3].to_vec(), text[4..].to_vec()))
                }
                _ => invalid("a verbatim string without its format"),
            },
            other => invalid(format!("unknown type {:?}", other as char)),
        }
    }

    /// The text up to the next CRLF, which must be the first CR or LF there is.
    fn line(&mut self) -> Result<&[u8], Stop> {
        let rest = &self.bytes[self.at..];
        let Some(end) = rest.iter().position(|byte| *byte == b'\r' || *byte == b'\n') else {
            return Err(Stop::Incomplete);
        };
        if rest[end] == b'\n' {
            return invalid("a bare LF in a line");
        }
        match rest.get(end + 1) {
            None => Err(Stop::Incomplete),
            Some(b'\n') => {
                self.at += end + 2;
                Ok(&rest[..end])
            }
            Some(_) => invalid("a bare CR in a line"),
        }
    }

    fn number(&mut self) -> Result<i64, Stop> {
        let line = self.line()?;
        let number = std::str::from_utf8(line).ok().and_then(|text| text.parse::<i64>().ok());
        match number {
            Some(number) if number.to_string().as_bytes() == line => Ok(number),
            _ => {
                let text = String::from_utf8_lossy(line).into_owned();
                invalid(format!("a number spelled {text:?}"))
            }
        }
    }

    /// A length: `None` is -1, which only RESP2 may send.
    fn length(&mut self) -> Result<Option<usize>, Stop> {
        match self.number()? {
            -1 if self.protocol == Protocol::Resp2 => Ok(None),
            -1 => invalid("a length of -1, which RESP3 replaced by the null type"),
            length => match usize::try_from(length) {
                Ok(length) => Ok(Some(length)),
                Err(_) => invalid(format!("a length of {length}")),
            },
        }
    }

    fn blob(&mut self) -> Result<Option<Vec<u8>>, Stop> {
        let Some(length) = self.length()? else { return Ok(None) };
        let rest = &self.bytes[self.at..];
        if rest.len() < length + 2 {
            return Err(Stop::Incomplete);
        }
        if &rest[length..length + 2] != b"\r\n" {
            return invalid("text that does not end where its length says");
        }
        self.at += length + 2;
        Ok(Some(rest[..length].to_vec()))
    }

    fn counted(&mut self, depth: usize) -> Result<Vec<Reply>, Stop> {
        match self.length()? {
            Some(count) => self.items(count, depth),
            None => invalid("a length of -1"),
        }
    }

    fn items(&mut self, count: usize, depth: usize) -> Result<Vec<Reply>, Stop> {
        let mut items = Vec::with_capacity(count.min(1024));
        for _ in 0..count {
            items.push(self.reply(depth + 1)?);
        }
        Ok(items)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn resp2(bytes: &[u8]) -> Result<Option<(Reply, usize)>, String> {
        decode(bytes, Protocol::Resp2)
    }

    fn resp3(bytes: &[u8]) -> Reply {
        let (reply, used) = decode(bytes, Protocol::Resp3).unwrap().unwrap();
        assert_eq!(used, bytes.len());
        reply
    }

    #[test]
    fn every_type_is_decoded() {
        assert_eq!(resp3(b"+OK\r\n"), Reply::Simple(b"OK".to_vec()));
        assert_eq!(resp3(b":-12\r\n"), Reply::Integer(-12));
        assert_eq!(resp3(b"$3\r\na\r\n\r\n"), Reply::Bulk(b"a\r\n".to_vec()));
        assert_eq!(resp3(b"_\r\n"), Reply::Nil);
        assert_eq!(resp3(b",1.5\r\n"), Reply::Double(b"1.5".to_vec()));
        assert_eq!(resp3(b"#t\r\n"), Reply::Boolean(true));
        assert_eq!(resp3(b"=7\r\ntxt:abc\r\n"), Reply::Verbatim(b"txt".into(), b"abc".into()));
        assert_eq!(resp3(b"~1\r\n:1\r\n"), Reply::Set(vec![Reply::Integer(1)]));
        assert_eq!(
            resp3(b"%1\r\n+a\r\n*0\r\n"),
            Reply::Map(vec![(Reply::Simple(b"a".to_vec()), Reply::Array(vec![]))])
        );
    }

    #[test]
    fn every_cut_is_incomplete() {
        let whole = b"*3\r\n$5\r\nhello\r\n:12\r\n*2\r\n+x\r\n-ERR y\r\n";
        for cut in 0..whole.len() {
            assert_eq!(resp2(&whole[..cut]), Ok(None), "cut at {cut}");
        }
        assert_eq!(resp2(whole).unwrap().unwrap().1, whole.len());
    }

    #[test]
    fn what_a_careful_client_would_stumble_over_is_refused() {
        for bytes in [
            &b"_\r\n"[..],
            b":01\r\n",
            b":+1\r\n",
            b"$-2\r\n",
            b"+a\rb\r\n",
            b"+a\nb\r\n",
            b"$1\r\nab\r\n",
            b"?\r\n",
        ] {
            assert!(resp2(bytes).is_err(), "{:?}", String::from_utf8_lossy(bytes));
        }
        for bytes in [&b"$-1\r\n"[..], b"*-1\r\n", b"#x\r\n", b",x\r\n", b"*1\r\n>0\r\n"] {
            assert!(decode(bytes, Protocol::Resp3).is_err());
        }
    }
}

//! `cjson.decode`.

use super::{Setting, get};
use crate::arguments;
use crate::lua::{Lua, Raise};
use std::borrow::Cow;
use std::ffi::c_int;

/// What a text consists of.
enum Token<'t> {
    ObjectBegin,
    ObjectEnd,
    ArrayBegin,
    ArrayEnd,
    String(Cow<'t, [u8]>),
    Number(f64),
    Boolean(bool),
    Null,
    Colon,
    Comma,
    End,
    /// What is wrong.
    Error(&'static str),
}

impl Token<'_> {
    /// Its name in messages.
    fn name(&self) -> &'static str {
        match self {
            Token::ObjectBegin => "T_OBJ_BEGIN",
            Token::ObjectEnd => "T_OBJ_END",
            Token::ArrayBegin => "T_ARR_BEGIN",
            Token::ArrayEnd => "T_ARR_END",
            Token::String(_) => "T_STRING",
            Token::Number(_) => "T_NUMBER",
            Token::Boolean(_) => "T_BOOLEAN",
            Token::Null => "T_NULL",
            Token::Colon => "T_COLON",
            Token::Comma => "T_COMMA",
            Token::End => "T_END",
            Token::Error(what) => what,
        }
    }
}

struct Decoder<'t> {
    lua: Lua,
    text: &'t [u8],
    at: usize,
    /// Where the current token began, or what is wrong in it is.
    start: usize,
    depth: i64,
    most_depth: i64,
    takes_invalid: bool,
}

pub(super) fn decode(lua: Lua) -> Result<c_int, Raise> {
    if lua.top() != 1 {
        return Err(Raise::argument(1, "expected 1 argument"));
    }
    let text = arguments::bytes(lua, 1)?;
    if matches!(text, [0, _, ..] | [_, 0, ..]) {
        return Err(Raise::message("JSON parser does not support UTF-16 or UTF-32"));
    }
    let most_depth = get(lua, Setting::DecodeDepth);
    let takes_invalid = get(lua, Setting::DecodeInvalid) != 0;
    let mut decoder = Decoder { lua, text, at: 0, start: 0, depth: 0, most_depth, takes_invalid };
    let first = decoder.token();
    decoder.value(first)?;
    match decoder.token() {
        Token::End => Ok(1),
        other => Err(decoder.expected("the end", &other)),
    }
}

impl<'t> Decoder<'t> {
    fn expected(&self, what: &str, found: &Token<'_>) -> Raise {
        let (found, at) = (found.name(), self.start + 1);
        Raise::message(format!("Expected {what} but found {found} at character {at}"))
    }

    /// Pushes the value that begins with this token.
    fn value(&mut self, token: Token<'t>) -> Result<(), Raise> {
        let lua = self.lua;
        lua.count(1)?;
        match token {
            Token::String(bytes) => lua.push_bytes(&bytes),
            Token::Number(number) => lua.push_number(number),
            Token::Boolean(value) => lua.push_boolean(value),
            Token::Null => lua.push_light(std::ptr::null_mut()),
            Token::ObjectBegin => self.object()?,
            Token::ArrayBegin => self.array()?,
            other => return Err(self.expected("value", &other)),
        }
        Ok(())
    }

    fn descend(&mut self) -> Result<(), Raise> {
        self.depth += 1;
        if self.depth <= self.most_depth && self.lua.has_room(8) {
            return Ok(());
        }
        let (depth, at) = (self.depth, self.start + 1);
        Err(Raise::message(format!(
            "Found too many nested data structures ({depth}) at character {at}"
        )))
    }

    fn object(&mut self) -> Result<(), Raise> {
        self.descend()?;
        self.lua.new_table(0, 0);
        let mut token = self.token();
        if matches!(token, Token::ObjectEnd) {
            self.depth -= 1;
            return Ok(());
        }
        loop {
            match &token {
                Token::String(key) => self.lua.push_bytes(key),
                other => return Err(self.expected("object key string", other)),
            }
            token = self.token();
            if !matches!(token, Token::Colon) {
                return Err(self.expected("colon", &token));
            }
            token = self.token();
            self.value(token)?;
            self.lua.raw_set(-3);
            token = self.token();
            match token {
                Token::ObjectEnd => break,
                Token::Comma => token = self.token(),
                other => return Err(self.expected("comma or object end", &other)),
            }
        }
        self.depth -= 1;
        Ok(())
    }

    fn array(&mut self) -> Result<(), Raise> {
        self.descend()?;
        self.lua.new_table(0, 0);
        let mut token = self.token();
        if matches!(token, Token::ArrayEnd) {
            self.depth -= 1;
            return Ok(());
        }
        for n in 1.. {
            self.value(token)?;
            self.lua.raw_set_at(-2, n);
            match self.token() {
                Token::ArrayEnd => break,
                Token::Comma => token = self.token(),
                other => return Err(self.expected("comma or array end", &other)),
            }
        }
        self.depth -= 1;
        Ok(())
    }

    // ---- tokens -------------------------------------------------------------------------

    fn token(&mut self) -> Token<'t> {
        while matches!(self.text.get(self.at), Some(b' ' | b'\t' | b'\n' | b'\r')) {
            self.at += 1;
        }
        self.start = self.at;
        let Some(&byte) = self.text.get(self.at) else { return Token::End };
        let single = match byte {
            b'{' => Token::ObjectBegin,
            b'}' => Token::ObjectEnd,
            b'[' => Token::ArrayBegin,
            b']' => Token::ArrayEnd,
            b':' => Token::Colon,
            b',' => Token::Comma,
            b'"' => return self.string(),
            _ => return self.word(),
        };
        self.at += 1;
        single
    }

    fn word(&mut self) -> Token<'t> {
        let rest = &self.text[self.at..];
        for (word, token) in [
            (&b"true"[..], Token::Boolean(true)),
            (b"false", Token::Boolean(false)),
            (b"null", Token::Null),
        ] {
            if rest.starts_with(word) {
                self.at += word.len();
                return token;
            }
        }
        let (number, len) = crate::numbers::parse_leading(rest);
        let begins_well = match rest {
            [b'-' | b'0'..=b'9', ..] => true,
            _ => self.takes_invalid && len > 0 && rest[0].is_ascii_alphabetic(),
        };
        if !begins_well {
            return Token::Error("invalid token");
        }
        if len == 0 || (!self.takes_invalid && is_invalid_number(&rest[..len])) {
            return Token::Error("invalid number");
        }
        self.at += len;
        Token::Number(number)
    }

    fn string(&mut self) -> Token<'t> {
        let text = self.text;
        let begin = self.at + 1;
        let mut at = begin;
        let mut owned: Option<Vec<u8>> = None;
        loop {
            match text.get(at) {
                None => {
                    self.start = at;
                    return Token::Error("unexpected end of string");
                }
                Some(b'"') => break,
                Some(b'\\') => {
                    let out = owned.get_or_insert_with(|| text[begin..at].to_vec());
                    match unescape(&text[at..], out) {
                        Ok(len) => at += len,
                        Err(what) => {
                            self.start = at;
                            return Token::Error(what);
                        }
                    }
                }
                Some(&byte) => {
                    if let Some(out) = &mut owned {
                        out.push(byte);
                    }
                    at += 1;
                }
            }
        }
        self.at = at + 1;
        Token::String(owned.map_or(Cow::Borrowed(&text[begin..at]), Cow::Owned))
    }
}

/// What strict JSON does not have: hexadecimal numbers, infinities, leading zeros.
fn is_invalid_number(text: &[u8]) -> bool {
    let digits = text.strip_prefix(b"-").unwrap_or(text);
    match digits {
        [b'0', b'0'..=b'9' | b'x' | b'X', ..] => true,
        [b'0'..=b'9', ..] => false,
        _ => true,
    }
}

/// Appends what an escape stands for; the bytes it takes.
fn unescape(text: &[u8], out: &mut Vec<u8>) -> Result<usize, &'static str> {
    let byte = match text.get(1) {
        Some(&byte @ (b'"' | b'\\' | b'/')) => byte,
        Some(b'b') => 8,
        Some(b't') => 9,
        Some(b'n') => 10,
        Some(b'f') => 12,
        Some(b'r') => 13,
        Some(b'u') => return unescape_unicode(text, out).ok_or("invalid unicode escape code"),
        _ => return Err("invalid escape code"),
    };
    out.push(byte);
    Ok(2)
}

fn unescape_unicode(text: &[u8], out: &mut Vec<u8>) -> Option<usize> {
    let code = |at: usize| {
        let digits = text.get(at..at + 6)?.strip_prefix(b"\\u")?;
        let digits = std::str::from_utf8(digits).ok()?;
        digits.bytes().all(|byte| byte.is_ascii_hexdigit()).then_some(())?;
        u32::from_str_radix(digits, 16).ok()
    };
    let first = code(0)?;
    let (code, len) = match first {
        // A low surrogate must follow a high one.
        0xdc00..=0xdfff => return None,
        0xd800..=0xdbff => {
            let second = code(6).filter(|second| (0xdc00..=0xdfff).contains(second))?;
            (0x1_0000 + ((first & 0x3ff) << 10 | second & 0x3ff), 12)
        }
        _ => (first, 6),
    };
    let character = char::from_u32(code)?;
    out.extend_from_slice(character.encode_utf8(&mut [0; 4]).as_bytes());
    Some(len)
}

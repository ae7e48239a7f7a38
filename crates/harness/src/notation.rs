//! The notation of replies in command scripts: reading expectations, writing replies.
//!
//! It is redis-cli's on the top level (`OK`, `"text"`, `(integer) 1`, `(nil)`, `(error) ERR …`)
//! and close to JSON inside arrays and maps, where integers are bare and errors are quoted. The
//! grammar is described for script authors in `tests/commands/README.md`.

use crate::expect::{Bindings, Expect, Number, Text};
use crate::reply::Reply;
use regex_lite::Regex;

/// Longest line the printer writes before it breaks an array into one line per element.
const LINE: usize = 100;

/// A reader over text, shared by expectations and request lines.
pub(crate) struct Scanner<'a> {
    pub(crate) text: &'a [u8],
    pub(crate) at: usize,
    names: &'a Bindings,
}

impl<'a> Scanner<'a> {
    pub(crate) fn new(text: &'a str, names: &'a Bindings) -> Scanner<'a> {
        Scanner { text: text.as_bytes(), at: 0, names }
    }

    pub(crate) fn peek(&self) -> Option<u8> {
        self.text.get(self.at).copied()
    }

    pub(crate) fn blanks(&mut self) {
        while self.peek().is_some_and(|byte| byte.is_ascii_whitespace()) {
            self.at += 1;
        }
    }

    fn take(&mut self, text: &str) -> bool {
        let found = self.text[self.at..].starts_with(text.as_bytes());
        if found {
            self.at += text.len();
        }
        found
    }

    fn until(&mut self, stop: impl Fn(u8) -> bool) -> String {
        let start = self.at;
        while self.peek().is_some_and(|byte| !stop(byte)) {
            self.at += 1;
        }
        String::from_utf8_lossy(&self.text[start..self.at]).into_owned()
    }

    fn rest(&mut self) -> String {
        self.until(|_| false)
    }

    /// `${…}` at the cursor: a bound name, or text repeated (`${x*100}`). `None` for a name that
    /// is not bound; the cursor is behind the brace in any case.
    fn substitution(&mut self) -> Result<Result<Vec<u8>, String>, String> {
        self.at += 2;
        let inside = self.until(|byte| byte == b'}');
        if !self.take("}") {
            return Err("${ without }".to_owned());
        }
        if let Some((text, count)) = inside.rsplit_once('*')
            && let Ok(count) = count.parse::<usize>()
        {
            return Ok(Ok(text.as_bytes().repeat(count)));
        }
        Ok(self.names.get(&inside).cloned().ok_or(inside))
    }

    /// `${…}` where an expectation may bind a name: the name, or else the repeated text.
    fn bound_name(&mut self) -> Result<Result<String, Vec<u8>>, String> {
        let inside = self.text[self.at..].iter().skip(2).take_while(|byte| **byte != b'}');
        let inside = String::from_utf8_lossy(&inside.copied().collect::<Vec<u8>>()).into_owned();
        let substituted = self.substitution()?;
        if self.names.contains_key(&inside) {
            Ok(Ok(inside))
        } else {
            Ok(match substituted {
                Ok(text) => Err(text),
                Err(name) => Ok(name),
            })
        }
    }

    /// A word in double quotes, with redis-cli's escapes and substitutions.
    pub(crate) fn double_quoted(&mut self) -> Result<Vec<u8>, String> {
        self.at += 1;
        let mut word = Vec::new();
        loop {
            match self.peek().ok_or("a quote that is not closed")? {
                b'"' => {
                    self.at += 1;
                    return Ok(word);
                }
                b'$' if self.text[self.at..].starts_with(b"${") => match self.substitution()? {
                    Ok(text) => word.extend(text),
                    Err(name) => return Err(format!("${{{name}}} is not bound")),
                },
                b'\\' => {
                    let escape = *self.text.get(self.at + 1).ok_or("a lone backslash")?;
                    self.at += 2;
                    word.push(match escape {
                        b'n' => b'\n',
                        b'r' => b'\r',
                        b't' => b'\t',
                        b'a' => 7,
                        b'b' => 8,
                        b'x' => {
                            let digits = self.text.get(self.at..self.at + 2);
                            let byte = digits
                                .and_then(|digits| std::str::from_utf8(digits).ok())
                                .and_then(|digits| u8::from_str_radix(digits, 16).ok())
                                .ok_or("\\x without two hexadecimal digits")?;
                            self.at += 2;
                            byte
                        }
                        other => other,
                    });
                }
                byte => {
                    word.push(byte);
                    self.at += 1;
                }
            }
        }
    }

    /// A word in single quotes: only `\'` is special.
    fn single_quoted(&mut self) -> Result<Vec<u8>, String> {
        self.at += 1;
        let mut word = Vec::new();
        loop {
            if self.take("\\'") {
                word.push(b'\'');
                continue;
            }
            let byte = self.peek().ok_or("a quote that is not closed")?;
            self.at += 1;
            if byte == b'\'' {
                return Ok(word);
            }
            word.push(byte);
        }
    }

    /// One word of a request; `${1..9}` as a whole word is several.
    fn word(&mut self, words: &mut Vec<Vec<u8>>) -> Result<(), String> {
        let mut word = Vec::new();
        if let Some(range) = self.range() {
            words.extend(range);
            return Ok(());
        }
        while let Some(byte) = self.peek().filter(|byte| !byte.is_ascii_whitespace()) {
            match byte {
                b'"' => word.extend(self.double_quoted()?),
                b'\'' => word.extend(self.single_quoted()?),
                b'$' if self.text[self.at..].starts_with(b"${") => match self.substitution()? {
                    Ok(text) => word.extend(text),
                    Err(name) => return Err(format!("${{{name}}} is not bound")),
                },
                byte => {
                    word.push(byte);
                    self.at += 1;
                }
            }
        }
        words.push(word);
        Ok(())
    }

    /// `${PREFIXa..b}` as a whole word: the numbers from a to b, each after the prefix.
    fn range(&mut self) -> Option<Vec<Vec<u8>>> {
        let start = self.at;
        let word = self.until(|byte| byte.is_ascii_whitespace());
        let found = word.strip_prefix("${").and_then(|word| word.strip_suffix('}'));
        let range = found.and_then(|word| word.split_once("..")).and_then(|(low, high)| {
            let digits = low.bytes().rev().take_while(u8::is_ascii_digit).count();
            let (prefix, low) = low.split_at(low.len() - digits);
            let (low, high) = (low.parse::<i64>().ok()?, high.parse::<i64>().ok()?);
            Some((low..=high).map(|number| format!("{prefix}{number}").into_bytes()).collect())
        });
        if range.is_none() {
            self.at = start;
        }
        range
    }

    fn pattern(&mut self) -> Result<Text, String> {
        self.blanks();
        if !self.take("/") {
            return Err("~ without /regular expression/".to_owned());
        }
        let mut source = String::new();
        loop {
            source += &self.until(|byte| byte == b'/');
            if !self.take("/") {
                return Err("a regular expression that is not closed".to_owned());
            }
            if !source.ends_with('\\') {
                break;
            }
            source.pop();
            source.push('/');
        }
        Regex::new(&source).map(Text::Pattern).map_err(|error| error.to_string())
    }

    /// Text inside arrays and after a tag: quoted, a pattern or a name.
    fn text(&mut self) -> Result<Text, String> {
        self.blanks();
        match self.peek() {
            Some(b'"') => Ok(Text::Exact(self.double_quoted()?)),
            Some(b'\'') => Ok(Text::Exact(self.single_quoted()?)),
            Some(b'~') => {
                self.at += 1;
                self.pattern()
            }
            Some(b'$') => match self.bound_name()? {
                Err(text) => Ok(Text::Exact(text)),
                Ok(name) => Ok(Text::Bound(name)),
            },
            _ => Err("expected \"text\", ~/pattern/ or ${name}".to_owned()),
        }
    }

    fn number(&mut self) -> Result<Number, String> {
        self.blanks();
        if self.peek() == Some(b'$') {
            return match self.bound_name()? {
                Ok(name) => Ok(Number::Bound(name)),
                Err(_) => Err("text in the place of a number".to_owned()),
            };
        }
        let text = self.until(|byte| !(byte.is_ascii_digit() || b"-.".contains(&byte)));
        let (low, high) = text.split_once("..").unwrap_or((&text, &text));
        match (low.parse(), high.parse()) {
            (Ok(low), Ok(high)) => Ok(Number::Between(low, high)),
            _ => Err(format!("{text:?} is not a number")),
        }
    }

    fn items(&mut self, close: &str) -> Result<(Vec<Expect>, bool), String> {
        let mut items = Vec::new();
        loop {
            self.blanks();
            if self.take(close) {
                return Ok((items, false));
            }
            if self.take("...") {
                self.blanks();
                return if self.take(close) {
                    Ok((items, true))
                } else {
                    Err("... that is not last".to_owned())
                };
            }
            items.push(self.value(false)?);
            self.blanks();
            if !self.take(",") && self.peek() != close.bytes().next() {
                return Err(format!("expected , or {close}"));
            }
        }
    }

    fn array(&mut self) -> Result<(Vec<Expect>, bool), String> {
        self.blanks();
        if self.take("[") { self.items("]") } else { Err("expected [".to_owned()) }
    }

    fn closed_array(&mut self) -> Result<Vec<Expect>, String> {
        match self.array()? {
            (items, false) => Ok(items),
            _ => Err("... is for arrays and maps only".to_owned()),
        }
    }

    fn map(&mut self) -> Result<Expect, String> {
        let mut pairs = Vec::new();
        loop {
            self.blanks();
            if self.take("}") {
                return Ok(Expect::Map { pairs, open: false });
            }
            if self.take("...") {
                self.blanks();
                return if self.take("}") {
                    Ok(Expect::Map { pairs, open: true })
                } else {
                    Err("... that is not last".to_owned())
                };
            }
            let key = self.value(false)?;
            self.blanks();
            if !self.take(":") {
                return Err("expected : after a key".to_owned());
            }
            pairs.push((key, self.value(false)?));
            self.blanks();
            if !self.take(",") && self.peek() != Some(b'}') {
                return Err("expected , or }".to_owned());
            }
        }
    }

    fn tagged(&mut self, top: bool) -> Result<Expect, String> {
        self.at += 1;
        let tag = self.until(|byte| byte == b')');
        if !self.take(")") {
            return Err("( without )".to_owned());
        }
        self.blanks();
        Ok(match tag.as_str() {
            "any" => Expect::Any,
            "nil" => Expect::Nil,
            "nil-array" => Expect::NilArray,
            "true" => Expect::Boolean(true),
            "false" => Expect::Boolean(false),
            "no reply" => Expect::NoReply,
            "nothing" => Expect::Nothing,
            "closed" => Expect::Closed,
            "empty array" => Expect::Array { items: Vec::new(), open: false },
            "integer" => Expect::Integer(self.number()?),
            "error" | "simple" => {
                let quoted = self.peek().is_none_or(|byte| b"\"'~$".contains(&byte));
                let text = if top && !quoted {
                    Text::Exact(self.rest().trim_end().as_bytes().to_vec())
                } else {
                    self.text()?
                };
                if tag == "error" { Expect::Error(text) } else { Expect::Simple(text) }
            }
            "double" | "big" => {
                let text = match self.peek() {
                    Some(b'~' | b'$' | b'"') => self.text()?,
                    _ => Text::Exact(
                        self.until(|byte| b",]}:".contains(&byte) || byte.is_ascii_whitespace())
                            .into_bytes(),
                    ),
                };
                if tag == "double" { Expect::Double(text) } else { Expect::BigNumber(text) }
            }
            "unordered" => Expect::Unordered(self.closed_array()?),
            "set" => Expect::Set(self.closed_array()?),
            "push" => Expect::Push(self.closed_array()?),
            "pairs" => {
                let mut pairs = Vec::new();
                let mut items = self.closed_array()?.into_iter();
                while let Some(key) = items.next() {
                    pairs.push((key, items.next().ok_or("a pair without its second half")?));
                }
                Expect::Pairs(pairs)
            }
            other => match other.strip_prefix("verbatim ") {
                Some(format) => Expect::Verbatim(format.as_bytes().to_vec(), self.text()?),
                None => return Err(format!("unknown type ({other})")),
            },
        })
    }

    fn value(&mut self, top: bool) -> Result<Expect, String> {
        self.blanks();
        match self.peek().ok_or("expected a reply")? {
            b'(' => self.tagged(top),
            b'"' | b'\'' | b'~' => Ok(Expect::Bulk(self.text()?)),
            b'[' => self.array().map(|(items, open)| Expect::Array { items, open }),
            b'{' => {
                self.at += 1;
                self.map()
            }
            b'$' if self.text[self.at..].starts_with(b"${") => match self.bound_name()? {
                Err(text) => Ok(Expect::Bulk(Text::Exact(text))),
                Ok(name) => Ok(Expect::Bound(name)),
            },
            byte if byte.is_ascii_digit() || byte == b'-' => Ok(Expect::Integer(self.number()?)),
            _ if top => {
                let line = self.rest();
                Ok(Expect::Simple(Text::Exact(line.trim_end().as_bytes().to_vec())))
            }
            _ => {
                let word = self.until(|byte| b",]}:".contains(&byte) || byte == b'\n');
                if word.is_empty() {
                    return Err("expected a reply".to_owned());
                }
                Ok(Expect::Simple(Text::Exact(word.trim_end().as_bytes().to_vec())))
            }
        }
    }
}

/// Reads one expectation; all of `text` must be it. Names that are bound already stand for their
/// text, others are bound when a reply is compared.
pub fn parse_expect(text: &str, names: &Bindings) -> Result<Expect, String> {
    let mut scanner = Scanner::new(text, names);
    let value = scanner.value(true)?;
    scanner.blanks();
    match scanner.peek() {
        None => Ok(value),
        Some(_) => Err(format!("{:?} after the reply", scanner.rest())),
    }
}

/// Reads a request: words split at white space, quoted as in redis-cli, names substituted.
pub fn parse_words(text: &str, names: &Bindings) -> Result<Vec<Vec<u8>>, String> {
    let mut scanner = Scanner::new(text, names);
    let mut words = Vec::new();
    loop {
        scanner.blanks();
        if scanner.peek().is_none() {
            return Ok(words);
        }
        scanner.word(&mut words)?;
    }
}

/// Writes a reply so that [`parse_expect`] reads an expectation it fulfils.
pub fn print(reply: &Reply) -> String {
    match reply {
        Reply::Integer(number) => format!("(integer) {number}"),
        Reply::Error(text) if plain_line(text) => format!("(error) {}", lossy(text)),
        Reply::Simple(text) if plain_line(text) && !looks_special(text) => lossy(text),
        other => {
            let line = inline(other);
            if line.len() <= LINE { line } else { broken(other, 0) }
        }
    }
}

fn lossy(text: &[u8]) -> String {
    String::from_utf8_lossy(text).into_owned()
}

/// Whether text can stand unquoted to the end of a line.
fn plain_line(text: &[u8]) -> bool {
    text.iter().all(|byte| (b' '..=b'~').contains(byte))
        && text.first().is_some_and(|byte| !b" \"'~$".contains(byte))
        && text.last() != Some(&b' ')
}

/// Whether a simple string's text would be read as something else.
fn looks_special(text: &[u8]) -> bool {
    let first = text.first().copied().unwrap_or(b' ');
    !first.is_ascii_alphabetic() || crate::script::is_step(&lossy(text))
}

fn quoted(text: &[u8]) -> String {
    if text.len() > 60
        && text.iter().all(|byte| *byte == text[0])
        && text[0].is_ascii_alphanumeric()
    {
        return format!("\"${{{}*{}}}\"", text[0] as char, text.len());
    }
    let mut line = String::from("\"");
    for (at, byte) in text.iter().enumerate() {
        match byte {
            b'"' | b'\\' => {
                line.push('\\');
                line.push(*byte as char);
            }
            b'\n' => line += "\\n",
            b'\r' => line += "\\r",
            b'\t' => line += "\\t",
            b'$' if text.get(at + 1) == Some(&b'{') => line += "\\$",
            b' '..=b'~' => line.push(*byte as char),
            _ => line += &format!("\\x{byte:02x}"),
        }
    }
    line + "\""
}

/// Writes a word of a request so that [`parse_words`] reads it back.
pub fn print_word(word: &[u8]) -> String {
    let plain = !word.is_empty()
        && word.iter().all(|byte| byte.is_ascii_graphic() && !b"\"'\\$".contains(byte));
    if plain && word.len() <= 60 { lossy(word) } else { quoted(word) }
}

/// The words before an aggregate's bracket, the brackets and the elements.
fn aggregate(reply: &Reply) -> Option<(&'static str, char, char)> {
    match reply {
        Reply::Array(_) => Some(("", '[', ']')),
        Reply::Set(_) => Some(("(set) ", '[', ']')),
        Reply::Push(_) => Some(("(push) ", '[', ']')),
        Reply::Map(_) => Some(("", '{', '}')),
        _ => None,
    }
}

fn elements(reply: &Reply, mut each: impl FnMut(&Reply) -> String) -> Vec<String> {
    match reply {
        Reply::Map(pairs) => {
            pairs.iter().map(|(key, value)| format!("{}: {}", inline(key), each(value))).collect()
        }
        other => other.elements().unwrap_or_default().iter().map(each).collect(),
    }
}

fn inline(reply: &Reply) -> String {
    if let Some((tag, open, close)) = aggregate(reply) {
        return format!("{tag}{open}{}{close}", elements(reply, inline).join(", "));
    }
    match reply {
        Reply::Simple(text)
            if plain_line(text)
                && !looks_special(text)
                && !text.iter().any(|b| b",]}:".contains(b)) =>
        {
            lossy(text)
        }
        Reply::Simple(text) => format!("(simple) {}", quoted(text)),
        Reply::Error(text) => format!("(error) {}", quoted(text)),
        Reply::Integer(number) => number.to_string(),
        Reply::Bulk(text) => quoted(text),
        Reply::Nil => "(nil)".to_owned(),
        Reply::NilArray => "(nil-array)".to_owned(),
        Reply::Boolean(true) => "(true)".to_owned(),
        Reply::Boolean(false) => "(false)".to_owned(),
        Reply::Double(text) => format!("(double) {}", lossy(text)),
        Reply::BigNumber(text) => format!("(big) {}", lossy(text)),
        Reply::Verbatim(format, text) => format!("(verbatim {}) {}", lossy(format), quoted(text)),
        Reply::Array(_) | Reply::Map(_) | Reply::Set(_) | Reply::Push(_) => String::new(),
    }
}

fn broken(reply: &Reply, depth: usize) -> String {
    let Some((tag, open, close)) = aggregate(reply) else { return inline(reply) };
    let indent = "  ".repeat(depth + 1);
    let lines = elements(reply, |item| {
        let line = inline(item);
        if line.len() + indent.len() <= LINE { line } else { broken(item, depth + 1) }
    });
    let lines: Vec<String> = lines.into_iter().map(|line| format!("{indent}{line},\n")).collect();
    format!("{tag}{open}\n{}{}{close}", lines.concat(), "  ".repeat(depth))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::reply::Protocol;

    #[test]
    fn what_is_printed_is_read_back_as_itself() {
        let text = |text: &str| Reply::Bulk(text.as_bytes().to_vec());
        let replies = [
            Reply::Simple(b"OK".to_vec()),
            Reply::Simple(b"Background saving, started".to_vec()),
            Reply::Simple(b"wait 20ms".to_vec()),
            Reply::Simple(b"".to_vec()),
            Reply::Error(b"ERR no such \"key\"".to_vec()),
            Reply::Integer(-5),
            text("a\"b\\c\r\n\x00${x}"),
            text(&"y".repeat(500)),
            Reply::Nil,
            Reply::Double(b"-inf".to_vec()),
            Reply::BigNumber(b"12345678901234567890".to_vec()),
            Reply::Verbatim(b"txt".to_vec(), b"x\ny".to_vec()),
            Reply::Array(vec![]),
            Reply::Array(vec![
                Reply::Simple(b"QUEUED".to_vec()),
                Reply::Error(b"ERR x, y".to_vec()),
                Reply::Double(b"1.5".to_vec()),
                Reply::Map(vec![(text("k"), Reply::Set(vec![Reply::Integer(1)]))]),
            ]),
            Reply::Array((0..40).map(|n| text(&format!("element {n}"))).collect()),
            Reply::Push(vec![text("message"), Reply::Boolean(true)]),
        ];
        for reply in replies {
            let printed = print(&reply);
            let expect = parse_expect(&printed, &Bindings::new()).unwrap();
            let holds = expect.holds(&reply, Protocol::Resp3, &mut Bindings::new());
            assert!(holds, "{printed}\n{expect:?}");
        }
    }

    #[test]
    fn requests_are_split_as_in_redis_cli() {
        let mut names = Bindings::new();
        names.insert("id".to_owned(), b"42".to_vec());
        let words = |line: &str| {
            let words = parse_words(line, &names).unwrap();
            words.iter().map(|word| lossy(word)).collect::<Vec<_>>()
        };
        assert_eq!(words(r#"SET "a b" 'c"d' "\x41\n""#), ["SET", "a b", "c\"d", "A\n"]);
        assert_eq!(words("SET k \"\""), ["SET", "k", ""]);
        assert_eq!(
            words("X ${id} a${id}b ${y*3} ${1..3} ${m9..10}"),
            ["X", "42", "a42b", "yyy", "1", "2", "3", "m9", "m10"]
        );
        assert!(parse_words("X ${other}", &names).is_err());
    }

    #[test]
    fn patterns_ranges_and_open_ends() {
        let holds = |expect: &str, reply: Reply| {
            let expect = parse_expect(expect, &Bindings::new()).unwrap();
            expect.holds(&reply, Protocol::Resp2, &mut Bindings::new())
        };
        assert!(holds("~ /^a\\/b$/", Reply::Bulk(b"a/b".to_vec())));
        assert!(holds("(error) ~/^ERR/", Reply::Error(b"ERR x".to_vec())));
        assert!(holds("(integer) 5..9", Reply::Integer(9)));
        assert!(!holds("5..9", Reply::Integer(10)));
        assert!(holds("[1, ...]", Reply::Array(vec![Reply::Integer(1), Reply::Nil])));
        assert!(holds("[1, ...]", Reply::Array(vec![Reply::Integer(1)])));
    }
}

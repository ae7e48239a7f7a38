//! Rust as a row of tokens, without comments. Enough of the language is known to tell comments,
//! strings, characters and lifetimes from each other.

/// What a token is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    Name,
    Text,
    Number,
    Sign,
}

/// A token: its text (a string's without quotes) and its line, from 1.
#[derive(Clone, Copy, Debug)]
pub struct Token {
    pub kind: Kind,
    pub text: &'static str,
    pub line: usize,
}

impl Token {
    /// Returns whether it is this name or sign.
    pub fn is(&self, text: &str) -> bool {
        self.kind != Kind::Text && self.text == text
    }
}

/// Reads a file. `::` is one token, every other sign is a character.
pub fn tokens(text: &'static str) -> Vec<Token> {
    let bytes = text.as_bytes();
    let (mut found, mut at, mut line) = (Vec::new(), 0, 1);
    while at < bytes.len() {
        let rest = &text[at..];
        let (kind, len) = match bytes[at] {
            byte if byte.is_ascii_whitespace() => (None, 1),
            b'/' if rest.starts_with("//") => (None, rest.find('\n').unwrap_or(rest.len())),
            b'/' if rest.starts_with("/*") => (None, comment(rest)),
            b'"' => (Some(Kind::Text), string(rest, 0)),
            b'r' | b'b' | b'c' if prefixed(rest).is_some() => {
                (Some(Kind::Text), prefixed(rest).unwrap())
            }
            b'\'' => quote(rest),
            byte if byte.is_ascii_digit() => (Some(Kind::Number), number(rest)),
            byte if byte == b'_' || byte.is_ascii_alphabetic() || byte >= 0x80 => {
                (Some(Kind::Name), name(rest))
            }
            _ if rest.starts_with("::") => (Some(Kind::Sign), 2),
            _ => (Some(Kind::Sign), 1),
        };
        if let Some(kind) = kind {
            let whole = &text[at..at + len];
            let text = if kind == Kind::Text { inside(whole) } else { whole };
            found.push(Token { kind, text, line });
        }
        line += bytes[at..at + len].iter().filter(|byte| **byte == b'\n').count();
        at += len;
    }
    found
}

/// Returns the length of a comment in stars, which may hold others.
fn comment(text: &str) -> usize {
    let (mut depth, mut at) = (0, 0);
    while at < text.len() {
        if text.as_bytes()[at..].starts_with(b"/*") {
            (depth, at) = (depth + 1, at + 2);
        } else if text.as_bytes()[at..].starts_with(b"*/") {
            (depth, at) = (depth - 1, at + 2);
            if depth == 0 {
                return at;
            }
        } else {
            at += 1;
        }
    }
    text.len()
}

/// Returns the length of a string with escapes, whose quote is at `from`.
fn string(text: &str, from: usize) -> usize {
    let bytes = text.as_bytes();
    let mut at = from + 1;
    while at < bytes.len() && bytes[at] != b'"' {
        at += if bytes[at] == b'\\' { 2 } else { 1 };
    }
    (at + 1).min(text.len())
}

/// Returns the length of a string behind `r`, `b` or `c`, if there is one.
fn prefixed(text: &str) -> Option<usize> {
    let letters = text.bytes().take_while(|byte| b"rbc".contains(byte)).count();
    let is_raw = text[..letters].contains('r');
    let hashes = text[letters..].bytes().take_while(|byte| *byte == b'#').count();
    let quote = letters + hashes;
    match text.as_bytes().get(quote)? {
        b'"' if is_raw => {
            let end = format!("\"{}", &text[letters..quote]);
            text[quote + 1..].find(&end).map(|len| quote + 1 + len + end.len())
        }
        b'"' if hashes == 0 && letters == 1 => Some(string(text, quote)),
        b'\'' if hashes == 0 && &text[..letters] == "b" => {
            Some(letters + character(&text[letters..])?)
        }
        _ => None,
    }
}

/// Returns the length of a character in quotes, if it is one.
fn character(text: &str) -> Option<usize> {
    let mut chars = text.char_indices().skip(1);
    let (_, first) = chars.next()?;
    if first == '\\' {
        chars.next()?;
        return chars.find(|(_, c)| *c == '\'').map(|(at, _)| at + 1);
    }
    chars.next().filter(|(_, c)| *c == '\'').map(|(at, _)| at + 1)
}

/// A character, or a lifetime, which is a sign here.
fn quote(text: &str) -> (Option<Kind>, usize) {
    match character(text) {
        Some(len) => (Some(Kind::Text), len),
        None => (Some(Kind::Sign), 1 + name(&text[1..])),
    }
}

fn name(text: &str) -> usize {
    text.find(|c: char| c != '_' && !c.is_alphanumeric()).unwrap_or(text.len())
}

/// Returns the length of a number. `1..2` and `1.max(2)` are three tokens and more.
fn number(text: &str) -> usize {
    let whole = name(text);
    match text[whole..].strip_prefix('.') {
        Some(rest) if rest.starts_with(|c: char| c.is_ascii_digit()) => whole + 1 + name(rest),
        _ => whole,
    }
}

/// Returns a string without prefix, hashes and quotes.
fn inside(whole: &'static str) -> &'static str {
    let text = whole.trim_start_matches(['r', 'b', 'c']).trim_matches('#');
    let quote = if text.starts_with('\'') { '\'' } else { '"' };
    text.strip_prefix(quote).and_then(|text| text.strip_suffix(quote)).unwrap_or(text)
}

#[test]
fn strings_characters_and_comments_are_told_apart() {
    let text = "fn a<'x>(c: &'x u8) { /* b /* c */ */ '\\'' 'd' b'\\\\' \"e // \\\" f\" \
                r#\"g\"h\"# // i\n j::k 1.5 2..3 }";
    let found: Vec<&str> = tokens(text).iter().map(|token| token.text).collect();
    let wanted = "fn a < 'x > ( c : & 'x u8 ) { \\' d \\\\ e·//·\\\"·f g\"h j :: k 1.5 2 . . 3 }";
    let wanted: Vec<String> = wanted.split(' ').map(|word| word.replace('·', " ")).collect();
    assert_eq!(found, wanted);
    assert_eq!(tokens(text).last().unwrap().line, 2);
}

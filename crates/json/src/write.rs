//! From a tree to text.

use crate::document::Document;
use crate::number::Number;
use crate::value::{Kind, Value};

/// What is between values. Empty parts make the most compact text.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Layout<'a> {
    /// Once for each level, at the start of a line.
    pub indent: &'a [u8],
    /// At the end of a line.
    pub newline: &'a [u8],
    /// Behind the colon of a member.
    pub space: &'a [u8],
}

impl Value<'_> {
    /// Appends the compact text.
    pub fn write(self, out: &mut Vec<u8>) {
        self.write_with(&Layout::default(), out);
    }

    /// Appends the text in a layout.
    pub fn write_with(self, layout: &Layout<'_>, out: &mut Vec<u8>) {
        self.write_at(layout, 0, out);
    }

    /// Appends the text in a layout, as that of a value at a level of other text.
    pub fn write_at(self, layout: &Layout<'_>, level: usize, out: &mut Vec<u8>) {
        match self.kind() {
            Kind::Null => out.extend_from_slice(b"null"),
            Kind::Bool(true) => out.extend_from_slice(b"true"),
            Kind::Bool(false) => out.extend_from_slice(b"false"),
            Kind::Int(int) => Number::Int(int).write(out),
            Kind::Uint(int) => Number::Uint(int).write(out),
            Kind::Double(double) => Number::Double(double).write(out),
            Kind::Str(text) => write_string(text, out),
            Kind::Array(array) => {
                out.push(b'[');
                for (at, element) in array.iter().enumerate() {
                    layout.line(at > 0, level + 1, out);
                    element.write_at(layout, level + 1, out);
                }
                layout.end(array.is_empty(), level, out);
                out.push(b']');
            }
            Kind::Object(object) => {
                out.push(b'{');
                for (at, (name, value)) in object.iter().enumerate() {
                    layout.line(at > 0, level + 1, out);
                    write_string(name, out);
                    out.push(b':');
                    if !layout.space.is_empty() {
                        out.extend_from_slice(layout.space);
                    }
                    value.write_at(layout, level + 1, out);
                }
                layout.end(object.is_empty(), level, out);
                out.push(b'}');
            }
        }
    }
}

impl Layout<'_> {
    /// Begins the line of a child.
    pub fn line(&self, behind_another: bool, level: usize, out: &mut Vec<u8>) {
        if behind_another {
            out.push(b',');
        }
        // Most text is compact, and has many lines.
        if !self.newline.is_empty() {
            out.extend_from_slice(self.newline);
        }
        if !self.indent.is_empty() {
            (0..level).for_each(|_| out.extend_from_slice(self.indent));
        }
    }

    /// Begins the line of a closing bracket.
    pub fn end(&self, is_empty: bool, level: usize, out: &mut Vec<u8>) {
        if !is_empty {
            self.line(false, level, out);
        }
    }
}

impl Document {
    /// Appends the compact text of the whole.
    pub fn write(&self, out: &mut Vec<u8>) {
        self.root().write(out);
    }
}

/// Appends a string with quotes and escapes.
pub fn write_string(text: &str, out: &mut Vec<u8>) {
    out.reserve(text.len() + 2);
    out.push(b'"');
    let mut rest = text.as_bytes();
    while let Some(plain) = first_escaped(rest) {
        out.extend_from_slice(&rest[..plain]);
        match rest[plain] {
            b'"' => out.extend_from_slice(b"\\\""),
            b'\\' => out.extend_from_slice(b"\\\\"),
            b'\n' => out.extend_from_slice(b"\\n"),
            b'\r' => out.extend_from_slice(b"\\r"),
            b'\t' => out.extend_from_slice(b"\\t"),
            0x08 => out.extend_from_slice(b"\\b"),
            0x0c => out.extend_from_slice(b"\\f"),
            control => {
                const HEX: &[u8; 16] = b"0123456789abcdef";
                out.extend_from_slice(b"\\u00");
                out.push(HEX[usize::from(control >> 4)]);
                out.push(HEX[usize::from(control & 15)]);
            }
        }
        rest = &rest[plain + 1..];
    }
    out.extend_from_slice(rest);
    out.push(b'"');
}

/// Returns the place of the first byte that is not written as it is.
#[inline]
fn first_escaped(bytes: &[u8]) -> Option<usize> {
    let mut at = 0;
    while let Some(word) = bytes[at..].first_chunk() {
        let found = escaped_in(u64::from_le_bytes(*word));
        if found != 0 {
            return Some(at + (found.trailing_zeros() / 8) as usize);
        }
        at += size_of::<u64>();
    }
    let is_escaped = |&byte: &u8| byte < 0x20 || byte == b'"' || byte == b'\\';
    bytes[at..].iter().position(is_escaped).map(|found| at + found)
}

/// Returns the highest bit of each byte that is a control character, a quote or a backslash. Bits
/// of bytes above the lowest of these may be set, too.
#[inline]
fn escaped_in(word: u64) -> u64 {
    const ONES: u64 = u64::MAX / 255;
    const HIGH: u64 = ONES << 7;
    let below = |limit: u8, word: u64| word.wrapping_sub(ONES * u64::from(limit)) & !word;
    let is = |byte: u8| below(1, word ^ (ONES * u64::from(byte)));
    (below(0x20, word) | is(b'"') | is(b'\\')) & HIGH
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Limits;
    use proptest::prelude::*;

    fn character() -> impl Strategy<Value = char> {
        prop_oneof![any::<char>(), prop::char::range('\0', '#'), Just('\\'), Just('x')]
    }

    proptest! {
        #![proptest_config(crate::few_cases(256))]
        #[test]
        fn what_is_escaped_is_found(text in prop::collection::vec(character(), 0..40)) {
            let text: String = text.into_iter().collect();
            let bytes = text.as_bytes();
            let is_escaped = |&byte: &u8| byte < 0x20 || byte == b'"' || byte == b'\\';
            prop_assert_eq!(first_escaped(bytes), bytes.iter().position(is_escaped));
            let mut out = Vec::new();
            write_string(&text, &mut out);
            prop_assert_eq!(serde_json::from_slice::<String>(&out).ok(), Some(text));
        }
    }

    fn laid_out(text: &str, layout: Layout<'_>) -> String {
        let document = Document::parse(text.as_bytes(), &Limits::default()).unwrap();
        let mut out = Vec::new();
        document.root().write_with(&layout, &mut out);
        String::from_utf8(out).unwrap()
    }

    #[test]
    fn layouts() {
        let text = r#"{"a":[1,{}],"b":[],"c":{"d":"e"}}"#;
        assert_eq!(laid_out(text, Layout::default()), text);
        assert_eq!(
            laid_out(text, Layout { indent: b"\t", newline: b"\n", space: b" " }),
            "{\n\t\"a\": [\n\t\t1,\n\t\t{}\n\t],\n\t\"b\": [],\n\
             \t\"c\": {\n\t\t\"d\": \"e\"\n\t}\n}"
        );
        assert_eq!(
            laid_out("[1,[2]]", Layout { indent: b"-", ..Layout::default() }),
            "[-1,-[--2-]]"
        );
    }

    #[test]
    fn strings_are_escaped() {
        let mut out = Vec::new();
        write_string("a\"\\/\u{8}\u{c}\n\r\t\u{0}\u{1f}\u{7f}é", &mut out);
        let expected = "\"a\\\"\\\\/\\b\\f\\n\\r\\t\\u0000\\u001f\u{7f}é\"";
        assert_eq!(String::from_utf8(out).unwrap(), expected);
    }
}

//! The ways to write a reply: for people, raw, CSV and JSON.

use crate::words::quote;
use resp::Value;

/// How replies are written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Format {
    /// Typed, indented, quoted.
    People,
    /// The bytes.
    Raw,
    /// Values divided by commas.
    Csv,
    /// JSON in UTF-8.
    Json,
    /// JSON in which strings are quoted as [`Format::People`] quotes them: ASCII only.
    QuotedJson,
}

/// A format with the delimiters of raw output.
#[derive(Clone, Debug)]
pub struct Style {
    /// The format.
    pub format: Format,
    /// Between elements of a raw reply.
    pub between_elements: Vec<u8>,
    /// After a raw reply.
    pub after_reply: Vec<u8>,
}

impl Style {
    /// Writes a reply and what comes after it.
    pub fn write(&self, reply: &Value) -> Vec<u8> {
        let mut out = Vec::new();
        match self.format {
            Format::People => people(&mut out, reply, b""),
            Format::Raw => {
                self.raw(&mut out, reply);
                out.extend(&self.after_reply);
            }
            Format::Csv => {
                csv(&mut out, reply);
                out.push(b'\n');
            }
            Format::Json | Format::QuotedJson => {
                json(&mut out, reply, self.format == Format::QuotedJson);
                out.push(b'\n');
            }
        }
        out
    }

    /// Writes a reply whose text has lines of its own (INFO), whatever the format is.
    pub fn write_text(&self, reply: &Value) -> Vec<u8> {
        let mut out = Vec::new();
        self.raw(&mut out, reply);
        out
    }

    fn raw(&self, out: &mut Vec<u8>, reply: &Value) {
        match reply {
            Value::Null => {}
            Value::Error(text) => {
                out.extend(text);
                out.push(b'\n');
            }
            Value::Integer(number) => out.extend(number.to_string().into_bytes()),
            Value::Boolean(value) => out.extend(if *value { &b"(true)"[..] } else { b"(false)" }),
            Value::Array(list) | Value::Set(list) | Value::Push(list) => {
                for (index, element) in list.iter().enumerate() {
                    if index > 0 {
                        out.extend(&self.between_elements);
                    }
                    self.raw(out, element);
                }
            }
            Value::Map(pairs) => {
                for (index, (key, value)) in pairs.iter().enumerate() {
                    if index > 0 {
                        out.extend(&self.between_elements);
                    }
                    self.raw(out, key);
                    out.push(b' ');
                    self.raw(out, value);
                }
            }
            Value::Simple(text)
            | Value::Bulk(text)
            | Value::Verbatim(text)
            | Value::Double(text)
            | Value::BigNumber(text) => out.extend(text),
        }
    }
}

/// Writes for people. `prefix` is the indentation of the lines after the first.
fn people(out: &mut Vec<u8>, reply: &Value, prefix: &[u8]) {
    match reply {
        Value::Error(text) => line(out, b"(error) ", text),
        Value::Simple(text) | Value::Verbatim(text) | Value::BigNumber(text) => {
            line(out, b"", text)
        }
        Value::Integer(number) => line(out, b"(integer) ", number.to_string().as_bytes()),
        Value::Double(text) => line(out, b"(double) ", text),
        Value::Bulk(text) => {
            quote(out, text);
            out.push(b'\n');
        }
        Value::Null => line(out, b"(nil)", b""),
        Value::Boolean(true) => line(out, b"(true)", b""),
        Value::Boolean(false) => line(out, b"(false)", b""),
        Value::Array(list) => numbered(out, list, prefix, ("(empty array)\n", ')'), people),
        Value::Push(list) => numbered(out, list, prefix, ("(empty push)\n", ')'), people),
        Value::Set(list) => numbered(out, list, prefix, ("(empty set)\n", '~'), people),
        Value::Map(pairs) => numbered(out, pairs, prefix, ("(empty hash)\n", '#'), pair),
    }
}

/// Writes a key and its value.
fn pair(out: &mut Vec<u8>, (key, value): &(Value, Value), prefix: &[u8]) {
    people(out, key, prefix);
    out.pop();
    out.extend(b" => ");
    if !value.items().is_empty() || !value.pairs().is_empty() {
        out.push(b'\n');
        out.extend(prefix);
    }
    people(out, value, prefix);
}

fn line(out: &mut Vec<u8>, label: &[u8], text: &[u8]) {
    out.extend(label);
    out.extend(text);
    out.push(b'\n');
}

/// Writes an aggregate, whose parts `write` writes: the text if it is empty, the mark after numbers.
fn numbered<T>(
    out: &mut Vec<u8>,
    list: &[T],
    prefix: &[u8],
    (empty, mark): (&str, char),
    write: fn(&mut Vec<u8>, &T, &[u8]),
) {
    if list.is_empty() {
        out.extend(empty.as_bytes());
        return;
    }
    let width = list.len().to_string().len();
    let mut inner = prefix.to_vec();
    inner.extend(std::iter::repeat_n(b' ', width + 2));
    for (index, item) in list.iter().enumerate() {
        // The first line is indented already, by what comes before the aggregate.
        if index > 0 {
            out.extend(prefix);
        }
        out.extend(format!("{:>width$}{mark} ", index + 1).into_bytes());
        write(out, item, &inner);
    }
}

fn csv(out: &mut Vec<u8>, reply: &Value) {
    match reply {
        Value::Error(text) => {
            out.extend(b"ERROR,");
            quote(out, text);
        }
        Value::Integer(number) => out.extend(number.to_string().into_bytes()),
        Value::Double(text) | Value::BigNumber(text) => out.extend(text),
        Value::Null => out.extend(b"NULL"),
        Value::Boolean(value) => out.extend(value.to_string().into_bytes()),
        Value::Simple(text) | Value::Bulk(text) | Value::Verbatim(text) => quote(out, text),
        Value::Array(list) | Value::Set(list) | Value::Push(list) => separated(out, list.iter()),
        Value::Map(pairs) => separated(out, pairs.iter().flat_map(|(key, value)| [key, value])),
    }
}

fn separated<'v>(out: &mut Vec<u8>, values: impl Iterator<Item = &'v Value>) {
    for (index, value) in values.enumerate() {
        if index > 0 {
            out.push(b',');
        }
        csv(out, value);
    }
}

fn json(out: &mut Vec<u8>, reply: &Value, quoted: bool) {
    match reply {
        Value::Error(text) => {
            out.extend(b"error:");
            json_string(out, text, quoted);
        }
        Value::Integer(number) => out.extend(number.to_string().into_bytes()),
        Value::Double(text) | Value::BigNumber(text) => out.extend(text),
        Value::Null => out.extend(b"null"),
        Value::Boolean(value) => out.extend(value.to_string().into_bytes()),
        Value::Simple(text) | Value::Bulk(text) | Value::Verbatim(text) => {
            json_string(out, text, quoted);
        }
        Value::Array(list) | Value::Set(list) | Value::Push(list) => {
            out.push(b'[');
            for (index, element) in list.iter().enumerate() {
                if index > 0 {
                    out.push(b',');
                }
                json(out, element, quoted);
            }
            out.push(b']');
        }
        Value::Map(pairs) => {
            out.push(b'{');
            for (index, (name, value)) in pairs.iter().enumerate() {
                if index > 0 {
                    out.push(b',');
                }
                let mut key = Vec::new();
                json(&mut key, name, quoted);
                if key.first() == Some(&b'"') || name.is_error() {
                    out.extend(key);
                } else {
                    out.push(b'"');
                    out.extend(key);
                    out.push(b'"');
                }
                out.push(b':');
                json(out, value, quoted);
            }
            out.push(b'}');
        }
    }
}

fn json_string(out: &mut Vec<u8>, text: &[u8], quoted: bool) {
    if quoted {
        let mut plain = Vec::new();
        quote(&mut plain, text);
        for byte in plain {
            if byte == b'\\' {
                out.push(b'\\');
            }
            out.push(byte);
        }
        return;
    }
    out.push(b'"');
    for &byte in text {
        match byte {
            b'\\' | b'"' => out.extend([b'\\', byte]),
            b'\n' => out.extend(b"\\n"),
            b'\x0c' => out.extend(b"\\f"),
            b'\r' => out.extend(b"\\r"),
            b'\t' => out.extend(b"\\t"),
            8 => out.extend(b"\\b"),
            0..=0x1f => out.extend(format!("\\u{byte:04x}").into_bytes()),
            _ => out.push(byte),
        }
    }
    out.push(b'"');
}

//! The ways to write a reply: for people, raw, CSV and JSON.

use crate::reply::Reply;
use crate::words::quote;

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
    pub fn write(&self, reply: &Reply) -> Vec<u8> {
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
    pub fn write_text(&self, reply: &Reply) -> Vec<u8> {
        let mut out = Vec::new();
        self.raw(&mut out, reply);
        out
    }

    fn raw(&self, out: &mut Vec<u8>, reply: &Reply) {
        match reply {
            Reply::Nil => {}
            Reply::Error(text) => {
                out.extend(text);
                out.push(b'\n');
            }
            Reply::Integer(number) => out.extend(number.to_string().into_bytes()),
            Reply::Bool(value) => out.extend(if *value { &b"(true)"[..] } else { b"(false)" }),
            Reply::Array(list) | Reply::Set(list) | Reply::Push(list) => {
                for (index, element) in list.iter().enumerate() {
                    if index > 0 {
                        out.extend(&self.between_elements);
                    }
                    self.raw(out, element);
                }
            }
            Reply::Map(list) => {
                for (index, pair) in list.chunks_exact(2).enumerate() {
                    if index > 0 {
                        out.extend(&self.between_elements);
                    }
                    self.raw(out, &pair[0]);
                    out.push(b' ');
                    self.raw(out, &pair[1]);
                }
            }
            other => out.extend(other.text().unwrap_or_default()),
        }
    }
}

/// Writes for people. `prefix` is the indentation of the lines after the first.
fn people(out: &mut Vec<u8>, reply: &Reply, prefix: &[u8]) {
    match reply {
        Reply::Error(text) => line(out, b"(error) ", text),
        Reply::Status(text) | Reply::Verbatim(text) | Reply::Big(text) => line(out, b"", text),
        Reply::Integer(number) => line(out, b"(integer) ", number.to_string().as_bytes()),
        Reply::Double(text) => line(out, b"(double) ", text),
        Reply::Text(text) => {
            quote(out, text);
            out.push(b'\n');
        }
        Reply::Nil => line(out, b"(nil)", b""),
        Reply::Bool(true) => line(out, b"(true)", b""),
        Reply::Bool(false) => line(out, b"(false)", b""),
        Reply::Array(list) => numbered(out, reply, list, prefix, ("(empty array)\n", ')', 1)),
        Reply::Push(list) => numbered(out, reply, list, prefix, ("(empty push)\n", ')', 1)),
        Reply::Set(list) => numbered(out, reply, list, prefix, ("(empty set)\n", '~', 1)),
        Reply::Map(list) => numbered(out, reply, list, prefix, ("(empty hash)\n", '#', 2)),
    }
}

fn line(out: &mut Vec<u8>, label: &[u8], text: &[u8]) {
    out.extend(label);
    out.extend(text);
    out.push(b'\n');
}

/// Writes an aggregate: the text if it is empty, the mark after numbers, how many elements a number
/// stands for.
fn numbered(
    out: &mut Vec<u8>,
    reply: &Reply,
    list: &[Reply],
    prefix: &[u8],
    (empty, mark, step): (&str, char, usize),
) {
    if list.is_empty() {
        out.extend(empty.as_bytes());
        return;
    }
    let width = (list.len() / step).to_string().len();
    let mut inner = prefix.to_vec();
    inner.extend(std::iter::repeat_n(b' ', width + 2));
    for (index, item) in list.chunks(step).enumerate() {
        // The first line is indented already, by what comes before the aggregate.
        if index > 0 {
            out.extend(prefix);
        }
        out.extend(format!("{:>width$}{mark} ", index + 1).into_bytes());
        people(out, &item[0], &inner);
        if let (Reply::Map(_), Some(value)) = (reply, item.get(1)) {
            out.pop();
            out.extend(b" => ");
            if value.elements().is_some_and(|elements| !elements.is_empty()) {
                out.push(b'\n');
                out.extend(&inner);
            }
            people(out, value, &inner);
        }
    }
}

fn csv(out: &mut Vec<u8>, reply: &Reply) {
    match reply {
        Reply::Error(text) => {
            out.extend(b"ERROR,");
            quote(out, text);
        }
        Reply::Integer(number) => out.extend(number.to_string().into_bytes()),
        Reply::Double(text) | Reply::Big(text) => out.extend(text),
        Reply::Nil => out.extend(b"NULL"),
        Reply::Bool(value) => out.extend(value.to_string().into_bytes()),
        Reply::Status(text) | Reply::Text(text) | Reply::Verbatim(text) => quote(out, text),
        Reply::Array(list) | Reply::Set(list) | Reply::Push(list) | Reply::Map(list) => {
            for (index, element) in list.iter().enumerate() {
                if index > 0 {
                    out.push(b',');
                }
                csv(out, element);
            }
        }
    }
}

fn json(out: &mut Vec<u8>, reply: &Reply, quoted: bool) {
    match reply {
        Reply::Error(text) => {
            out.extend(b"error:");
            json_string(out, text, quoted);
        }
        Reply::Integer(number) => out.extend(number.to_string().into_bytes()),
        Reply::Double(text) | Reply::Big(text) => out.extend(text),
        Reply::Nil => out.extend(b"null"),
        Reply::Bool(value) => out.extend(value.to_string().into_bytes()),
        Reply::Status(text) | Reply::Text(text) | Reply::Verbatim(text) => {
            json_string(out, text, quoted);
        }
        Reply::Array(list) | Reply::Set(list) | Reply::Push(list) => {
            out.push(b'[');
            for (index, element) in list.iter().enumerate() {
                if index > 0 {
                    out.push(b',');
                }
                json(out, element, quoted);
            }
            out.push(b']');
        }
        Reply::Map(list) => {
            out.push(b'{');
            for (index, pair) in list.chunks_exact(2).enumerate() {
                if index > 0 {
                    out.push(b',');
                }
                let mut key = Vec::new();
                json(&mut key, &pair[0], quoted);
                if key.first() == Some(&b'"') || pair[0].is_error() {
                    out.extend(key);
                } else {
                    out.push(b'"');
                    out.extend(key);
                    out.push(b'"');
                }
                out.push(b':');
                json(out, &pair[1], quoted);
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

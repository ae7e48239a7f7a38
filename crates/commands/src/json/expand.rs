//! Values as replies of RESP3 rather than as text (`FORMAT EXPAND`, `EXPAND1`), and what FORMAT
//! says.

use engine::{Args, Cx, Error};
use json::{Kind, Value};
use resp::Reply;

/// How a command gives values.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Format {
    /// As one text for all.
    String,
    /// As a text for each.
    Strings,
    /// As a reply for each, an array or an object as a text.
    Expand1,
    /// As a reply for each, down to the last value.
    Expand,
}

/// Reads the word behind FORMAT.
///
/// # Errors
/// It is no format, or the client speaks RESP2.
pub(super) fn format_at(cx: &Cx<'_>, args: Args<'_>, at: usize) -> Result<Format, Error> {
    let known = [
        ("string", Format::String),
        ("strings", Format::Strings),
        ("expand1", Format::Expand1),
        ("expand", Format::Expand),
    ];
    let format = known.iter().find(|(name, _)| args.is(at, name)).map(|(_, format)| *format);
    let format = format
        .ok_or(Error::text("ERR wrong FORMAT, expected STRING, STRINGS, EXPAND1 or EXPAND"))?;
    if !cx.reply.is_resp3() && format != Format::String {
        return Err(Error::text("ERR FORMAT argument is not supported on RESP2"));
    }
    Ok(format)
}

/// Writes one value.
pub(super) fn write(reply: &mut Reply<'_>, value: Value<'_>, format: Format) {
    match format {
        Format::String | Format::Strings => text(reply, value),
        Format::Expand1 if matches!(value.kind(), Kind::Array(_) | Kind::Object(_)) => {
            text(reply, value);
        }
        Format::Expand1 | Format::Expand => expand(reply, value),
    }
}

fn text(reply: &mut Reply<'_>, value: Value<'_>) {
    let mut text = Vec::new();
    value.write(&mut text);
    reply.bulk(&text);
}

fn expand(reply: &mut Reply<'_>, value: Value<'_>) {
    match value.kind() {
        Kind::Null => reply.null(),
        Kind::Bool(is_true) => reply.boolean(is_true),
        Kind::Int(number) => reply.integer(number),
        // No reply has such an integer.
        Kind::Uint(number) => reply.double(number as f64),
        Kind::Double(number) => reply.double(number),
        Kind::Str(string) => reply.bulk(string.as_bytes()),
        Kind::Array(array) => {
            reply.array(array.len());
            array.iter().for_each(|element| expand(reply, element));
        }
        Kind::Object(object) => {
            reply.map(object.len());
            for (name, member) in object.iter() {
                reply.bulk(name.as_bytes());
                expand(reply, member);
            }
        }
    }
}

//! `cjson.encode`.

use super::{INVALID_AS_NULL, Setting, get};
use crate::lua::{Lua, Raise, Type};
use crate::numbers::push_general;
use std::ffi::c_int;

/// The options that matter here.
struct EncodeOptions {
    sparse_convert: bool,
    sparse_ratio: i64,
    sparse_safe: i64,
    depth: i64,
    invalid: i64,
    precision: usize,
}

pub(super) fn encode(lua: Lua) -> Result<c_int, Raise> {
    if lua.top() != 1 {
        return Err(Raise::argument(1, "expected 1 argument"));
    }
    let options = EncodeOptions {
        sparse_convert: get(lua, Setting::SparseConvert) != 0,
        sparse_ratio: get(lua, Setting::SparseRatio),
        sparse_safe: get(lua, Setting::SparseSafe),
        depth: get(lua, Setting::EncodeDepth),
        invalid: get(lua, Setting::EncodeInvalid),
        precision: get(lua, Setting::Precision) as usize,
    };
    let mut out = Vec::new();
    value(lua, &options, 0, &mut out)?;
    lua.push_bytes(&out);
    Ok(1)
}

fn refuse(lua: Lua, index: c_int, why: &str) -> Raise {
    let name = lua.kind(index).name();
    Raise::message(format!("Cannot serialise {name}: {why}"))
}

/// Encodes the value on top.
fn value(lua: Lua, options: &EncodeOptions, depth: i64, out: &mut Vec<u8>) -> Result<(), Raise> {
    lua.count(1)?;
    match lua.kind(-1) {
        Type::String => {
            let bytes = lua.bytes(-1).unwrap_or_default();
            lua.count_bytes(bytes.len());
            string(bytes, out);
        }
        Type::Number => number(lua, options, out)?,
        Type::Boolean if lua.boolean(-1) => out.extend_from_slice(b"true"),
        Type::Boolean => out.extend_from_slice(b"false"),
        Type::Nil => out.extend_from_slice(b"null"),
        Type::LightUserdata if lua.light(-1).is_null() => out.extend_from_slice(b"null"),
        Type::Table => table(lua, options, depth + 1, out)?,
        _ => return Err(refuse(lua, -1, "type not supported")),
    }
    Ok(())
}

fn table(lua: Lua, options: &EncodeOptions, depth: i64, out: &mut Vec<u8>) -> Result<(), Raise> {
    if depth > options.depth || !lua.has_room(8) {
        return Err(Raise::message(format!("Cannot serialise, excessive nesting ({depth})")));
    }
    match array_len(lua, options)? {
        Some(len) => array(lua, options, depth, len, out),
        None => object(lua, options, depth, out),
    }
}

/// The length of the table on top as an array; `None` if it is to be an object.
fn array_len(lua: Lua, options: &EncodeOptions) -> Result<Option<i64>, Raise> {
    let (mut most, mut items) = (0i64, 0i64);
    lua.push_nil();
    while lua.next(-2) {
        lua.count(1)?;
        let key = if lua.kind(-2) == Type::Number { lua.number(-2) } else { 0.0 };
        // An array's keys are integers from one on.
        if key < 1.0 || key.fract() != 0.0 || key > 9e15 {
            lua.pop(2);
            return Ok(None);
        }
        most = most.max(key as i64);
        items += 1;
        lua.pop(1);
    }
    let is_sparse = options.sparse_ratio > 0
        && most > items.saturating_mul(options.sparse_ratio)
        && most > options.sparse_safe;
    if is_sparse {
        if !options.sparse_convert {
            return Err(refuse(lua, -1, "excessively sparse array"));
        }
        return Ok(None);
    }
    Ok((most > 0).then_some(most))
}

fn array(
    lua: Lua,
    options: &EncodeOptions,
    depth: i64,
    len: i64,
    out: &mut Vec<u8>,
) -> Result<(), Raise> {
    out.push(b'[');
    for n in 1..=len {
        if n > 1 {
            out.push(b',');
        }
        lua.push_number(n as f64);
        lua.raw_get(-2);
        value(lua, options, depth, out)?;
        lua.pop(1);
    }
    out.push(b']');
    Ok(())
}

fn object(lua: Lua, options: &EncodeOptions, depth: i64, out: &mut Vec<u8>) -> Result<(), Raise> {
    out.push(b'{');
    let mut is_first = true;
    lua.push_nil();
    while lua.next(-2) {
        if !std::mem::take(&mut is_first) {
            out.push(b',');
        }
        match lua.kind(-2) {
            Type::Number => {
                out.push(b'"');
                lua.copy(-2);
                number(lua, options, out)?;
                lua.pop(1);
                out.push(b'"');
            }
            Type::String => string(lua.bytes(-2).unwrap_or_default(), out),
            _ => return Err(refuse(lua, -3, "table key must be a number or string")),
        }
        out.push(b':');
        value(lua, options, depth, out)?;
        lua.pop(1);
    }
    out.push(b'}');
    Ok(())
}

fn number(lua: Lua, options: &EncodeOptions, out: &mut Vec<u8>) -> Result<(), Raise> {
    let number = lua.number(-1);
    if !number.is_finite() {
        match options.invalid {
            0 => return Err(refuse(lua, -1, "must not be NaN or Inf")),
            INVALID_AS_NULL => {
                out.extend_from_slice(b"null");
                return Ok(());
            }
            _ if number.is_nan() => {
                out.extend_from_slice(if number.is_sign_negative() { b"-nan" } else { b"nan" });
                return Ok(());
            }
            _ => {}
        }
    }
    push_general(out, number, options.precision);
    Ok(())
}

fn string(bytes: &[u8], out: &mut Vec<u8>) {
    out.reserve(bytes.len() + 2);
    out.push(b'"');
    for &byte in bytes {
        let short = match byte {
            b'"' | b'\\' | b'/' => byte,
            8 => b'b',
            9 => b't',
            10 => b'n',
            12 => b'f',
            13 => b'r',
            0..32 | 127 => {
                out.extend_from_slice(format!("\\u{byte:04x}").as_bytes());
                continue;
            }
            _ => {
                out.push(byte);
                continue;
            }
        };
        out.extend_from_slice(&[b'\\', short]);
    }
    out.push(b'"');
}

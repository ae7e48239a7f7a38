//! `cjson`: JSON, with the options, limits and errors of lua-cjson 2.1.
//!
//! An instance of the library is a table of functions that share a userdata-free configuration: a
//! table of numbers that is each function's second upvalue. It is not seen by scripts otherwise.

mod decode;
mod encode;

use crate::arguments;
use crate::lua::{Function, Lua, Raise, Type};
use std::ffi::c_int;

/// The options, by their places in the table.
#[derive(Clone, Copy)]
enum Setting {
    SparseConvert = 1,
    SparseRatio,
    SparseSafe,
    EncodeDepth,
    DecodeDepth,
    EncodeInvalid,
    DecodeInvalid,
    KeepBuffer,
    Precision,
}

/// Each option's value at first, in the order of their places.
const DEFAULTS: [f64; 9] = [0.0, 2.0, 10.0, 1000.0, 1000.0, 0.0, 1.0, 1.0, 14.0];

/// Numbers that JSON does not have are written as `null`.
const INVALID_AS_NULL: i64 = 2;

static FUNCTIONS: &[(&str, Function)] = &[
    ("encode", encode::encode),
    ("decode", decode::decode),
    ("encode_sparse_array", sparse_array),
    ("encode_max_depth", |lua| integer_option(lua, 1, Setting::EncodeDepth, 1, i32::MAX.into())),
    ("decode_max_depth", |lua| integer_option(lua, 1, Setting::DecodeDepth, 1, i32::MAX.into())),
    ("encode_number_precision", |lua| integer_option(lua, 1, Setting::Precision, 1, 14)),
    ("encode_keep_buffer", |lua| flag_option(lua, 1, Setting::KeepBuffer, false)),
    ("encode_invalid_numbers", |lua| flag_option(lua, 1, Setting::EncodeInvalid, true)),
    ("decode_invalid_numbers", |lua| flag_option(lua, 1, Setting::DecodeInvalid, false)),
    ("new", |lua| {
        push(lua);
        Ok(1)
    }),
];

/// Pushes an instance with the default options.
pub(crate) fn push(lua: Lua) {
    lua.new_table(0, FUNCTIONS.len() + 3);
    push_defaults(lua);
    for (name, function) in FUNCTIONS {
        lua.copy(-1);
        lua.push_function_with(*function, 1);
        lua.set_field(-3, name);
    }
    lua.pop(1);
    lua.push_light(std::ptr::null_mut());
    lua.set_field(-2, "null");
    lua.push("cjson");
    lua.set_field(-2, "_NAME");
    lua.push("2.1.0");
    lua.set_field(-2, "_VERSION");
}

fn push_defaults(lua: Lua) {
    lua.new_table(DEFAULTS.len(), 0);
    for (place, value) in (1..).zip(DEFAULTS) {
        lua.push_number(value);
        lua.raw_set_at(-2, place);
    }
}

fn get(lua: Lua, option: Setting) -> i64 {
    lua.raw_get_at(Lua::upvalue(2), option as c_int);
    let value = lua.number(-1) as i64;
    lua.pop(1);
    value
}

fn set(lua: Lua, option: Setting, value: i64) {
    lua.push_number(value as f64);
    lua.raw_set_at(Lua::upvalue(2), option as c_int);
}

/// Sets an option if there is an argument, and answers with its value.
fn integer_option(
    lua: Lua,
    index: c_int,
    option: Setting,
    least: i64,
    most: i64,
) -> Result<c_int, Raise> {
    if !matches!(lua.kind(index), Type::None | Type::Nil) {
        let value = arguments::integer(lua, index)?;
        if !(least..=most).contains(&value) {
            let text = format!("expected integer between {least} and {most}");
            return Err(Raise::argument(index, text));
        }
        set(lua, option, value);
    }
    lua.push_number(get(lua, option) as f64);
    Ok(1)
}

/// The same for `on`, `off` and, where that is a choice, `null`.
fn flag_option(lua: Lua, index: c_int, option: Setting, has_null: bool) -> Result<c_int, Raise> {
    match lua.kind(index) {
        Type::None | Type::Nil => {}
        Type::Boolean => set(lua, option, i64::from(lua.boolean(index))),
        _ => {
            let word = arguments::bytes(lua, index)?;
            let value = match word {
                b"off" => 0,
                b"on" => 1,
                b"null" if has_null => INVALID_AS_NULL,
                _ => {
                    let text = format!("invalid option '{}'", String::from_utf8_lossy(word));
                    return Err(Raise::argument(index, text));
                }
            };
            set(lua, option, value);
        }
    }
    match get(lua, option) {
        INVALID_AS_NULL => lua.push("null"),
        value => lua.push_boolean(value != 0),
    }
    Ok(1)
}

fn sparse_array(lua: Lua) -> Result<c_int, Raise> {
    lua.set_top(3);
    flag_option(lua, 1, Setting::SparseConvert, false)?;
    integer_option(lua, 2, Setting::SparseRatio, 0, i32::MAX.into())?;
    integer_option(lua, 3, Setting::SparseSafe, 0, i32::MAX.into())?;
    Ok(3)
}

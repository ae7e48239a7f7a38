//! The arguments of library functions, checked as Lua's own libraries check theirs.

use crate::lua::{Lua, Raise, Type};
use std::ffi::c_int;

/// 2^63.
const MAX_INTEGER: f64 = 9_223_372_036_854_775_808.0;

fn expected(lua: Lua, index: c_int, wanted: &str) -> Raise {
    let found = lua.kind(index).name();
    Raise::argument(index, format!("{wanted} expected, got {found}"))
}

/// A number, or a string that spells one.
pub(crate) fn number(lua: Lua, index: c_int) -> Result<f64, Raise> {
    if lua.is_number(index) { Ok(lua.number(index)) } else { Err(expected(lua, index, "number")) }
}

/// A number as C converts it to an integer.
pub(crate) fn integer(lua: Lua, index: c_int) -> Result<i64, Raise> {
    Ok(to_integer(number(lua, index)?))
}

/// The same with a default for what is missing.
pub(crate) fn integer_or(lua: Lua, index: c_int, default: i64) -> Result<i64, Raise> {
    match lua.kind(index) {
        Type::None | Type::Nil => Ok(default),
        _ => integer(lua, index),
    }
}

/// A string, or a number, which becomes one.
pub(crate) fn bytes<'b>(lua: Lua, index: c_int) -> Result<&'b [u8], Raise> {
    lua.bytes(index).ok_or_else(|| expected(lua, index, "string"))
}

/// What the machine makes of a double that is converted to an integer: what does not fit is the
/// least integer.
pub(crate) fn to_integer(number: f64) -> i64 {
    if number.is_nan() || !(-MAX_INTEGER..MAX_INTEGER).contains(&number) {
        i64::MIN
    } else {
        number as i64
    }
}

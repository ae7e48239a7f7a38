//! `bit`: operations on numbers taken as 32 bits, as of LuaJIT's library of this name.

use crate::arguments;
use crate::lua::{Function, Lua, Raise};
use std::ffi::c_int;

pub(crate) static FUNCTIONS: &[(&str, Function)] = &[
    ("tobit", |lua| unary(lua, |a| a)),
    ("bnot", |lua| unary(lua, |a| !a)),
    ("bswap", |lua| unary(lua, u32::swap_bytes)),
    ("band", |lua| fold(lua, |a, b| a & b)),
    ("bor", |lua| fold(lua, |a, b| a | b)),
    ("bxor", |lua| fold(lua, |a, b| a ^ b)),
    ("lshift", |lua| shift(lua, |a, by| a << by)),
    ("rshift", |lua| shift(lua, |a, by| a >> by)),
    ("arshift", |lua| shift(lua, |a, by| ((a as i32) >> by) as u32)),
    ("rol", |lua| shift(lua, u32::rotate_left)),
    ("ror", |lua| shift(lua, u32::rotate_right)),
    ("tohex", to_hex),
];

/// The low 32 bits of a number that is rounded to an integer.
fn bits(lua: Lua, index: c_int) -> Result<u32, Raise> {
    let number = arguments::number(lua, index)?;
    // 2^52 + 2^51: a sum with it has the integer in its low bits, rounded to even.
    Ok((number + 6_755_399_441_055_744.0).to_bits() as u32)
}

fn answer(lua: Lua, bits: u32) -> Result<c_int, Raise> {
    lua.push_number(f64::from(bits as i32));
    Ok(1)
}

fn unary(lua: Lua, operation: fn(u32) -> u32) -> Result<c_int, Raise> {
    answer(lua, operation(bits(lua, 1)?))
}

fn fold(lua: Lua, operation: fn(u32, u32) -> u32) -> Result<c_int, Raise> {
    let mut result = bits(lua, 1)?;
    for index in 2..=lua.top() {
        result = operation(result, bits(lua, index)?);
    }
    answer(lua, result)
}

fn shift(lua: Lua, operation: fn(u32, u32) -> u32) -> Result<c_int, Raise> {
    let (value, by) = (bits(lua, 1)?, bits(lua, 2)? & 31);
    answer(lua, operation(value, by))
}

/// `tohex(number [, digits])`; negative: in capitals. The least integer has no opposite
/// (CVE-2024-31449), and more than eight digits are not there.
fn to_hex(lua: Lua) -> Result<c_int, Raise> {
    let value = bits(lua, 1)?;
    let digits = if lua.top() < 2 { 8 } else { bits(lua, 2)? as i32 };
    let count = digits.unsigned_abs().min(8) as usize;
    let text = if digits < 0 { format!("{value:08X}") } else { format!("{value:08x}") };
    lua.push(&text[8 - count..]);
    Ok(1)
}

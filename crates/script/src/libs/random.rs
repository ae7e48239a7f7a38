//! `math.random` and `math.randomseed`: Lua's own use the process's generator, which all threads
//! share; these have one for each interpreter (splitmix64).

use crate::arguments;
use crate::lua::{Function, Lua, Raise};
use crate::shared::Shared;
use std::ffi::c_int;

static FUNCTIONS: &[(&str, Function)] = &[("random", random), ("randomseed", seed)];

/// Puts them in the place of Lua's own.
pub(crate) fn replace(lua: Lua) {
    lua.field(Lua::GLOBALS, "math");
    for (name, function) in FUNCTIONS {
        lua.push_function(*function);
        lua.set_field(-2, name);
    }
    lua.pop(1);
}

/// Returns the next number from 0 to below 1.
fn next(lua: Lua) -> f64 {
    const LIMIT: u64 = i32::MAX as u64;
    let shared = Shared::of(lua);
    let state = shared.random.get().wrapping_add(0x9e37_79b9_7f4a_7c15);
    shared.random.set(state);
    let mixed = (state ^ state >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let mixed = (mixed ^ mixed >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
    let bits = (mixed ^ mixed >> 31) >> 33;
    (bits % LIMIT) as f64 / LIMIT as f64
}

/// An integer argument, as C's `int`.
fn integer(lua: Lua, index: c_int) -> Result<f64, Raise> {
    Ok(f64::from(arguments::integer(lua, index)? as i32))
}

fn random(lua: Lua) -> Result<c_int, Raise> {
    let number = next(lua);
    let (least, most) = match lua.top() {
        0 => {
            lua.push_number(number);
            return Ok(1);
        }
        1 => (1.0, integer(lua, 1)?),
        2 => (integer(lua, 1)?, integer(lua, 2)?),
        _ => return Err(Raise::message("wrong number of arguments")),
    };
    if least > most {
        return Err(Raise::argument(lua.top(), "interval is empty"));
    }
    lua.push_number((number * (most - least + 1.0)).floor() + least);
    Ok(1)
}

fn seed(lua: Lua) -> Result<c_int, Raise> {
    let seed = arguments::integer(lua, 1)? as i32;
    Shared::of(lua).random.set(i64::from(seed) as u64);
    Ok(0)
}

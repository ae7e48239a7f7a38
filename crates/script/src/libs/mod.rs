//! The libraries that Redis adds to Lua's own.

pub(crate) mod bit;
pub(crate) mod cjson;
pub(crate) mod cmsgpack;
pub(crate) mod random;
pub(crate) mod structure;

use crate::lua::{Function, Lua};

/// Puts a library into a table of its own, which is left on the stack.
pub(crate) fn push(lua: Lua, functions: &[(&str, Function)]) {
    lua.new_table(0, functions.len());
    for (name, function) in functions {
        lua.push_function(*function);
        lua.set_field(-2, name);
    }
}

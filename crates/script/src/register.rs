//! `redis.register_function`, which a library calls while it is loaded.

use crate::api::refuse;
use crate::lua::{Lua, Raise, Type};
use crate::shared::Shared;
use crate::shebang::{ScriptFlags, is_name};
use std::ffi::c_int;

/// A function of a library.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct FunctionSpec {
    /// Its name.
    pub name: String,
    /// What it is said to do.
    pub description: Option<Vec<u8>>,
    /// What it says about itself.
    pub flags: ScriptFlags,
}

/// A library that is being loaded.
#[derive(Default)]
pub(crate) struct Registration {
    pub functions: Vec<FunctionSpec>,
}

/// The key in the registry of the table in which a library's functions are collected.
pub(crate) const CALLBACKS: &str = "callbacks";

/// `register_function(name, callback)` or `register_function{function_name=…, callback=…, …}`
pub(crate) fn register_function(lua: Lua) -> Result<c_int, Raise> {
    let refuse = |text: &str| Err(refuse(lua, text));
    let spec = match lua.top() {
        1 if lua.kind(1) == Type::Table => named(lua)?,
        1 => {
            return refuse(
                "calling server.register_function with a single argument is only applicable to \
                 Lua table (representing named arguments).",
            );
        }
        2 => positional(lua)?,
        _ => return refuse("wrong number of arguments to server.register_function"),
    };
    if !is_name(spec.name.as_bytes()) {
        return refuse(
            "Function names can only contain letters, numbers, or underscores(_) and must be at \
             least one character long",
        );
    }
    let mut registration = Shared::of(lua).registration.borrow_mut();
    let Some(registration) = registration.as_mut() else {
        return refuse("server.register_function can only be called on FUNCTION LOAD command");
    };
    if registration.functions.iter().any(|other| other.name == spec.name) {
        return refuse("Function already exists in the library");
    }
    // The callback is on top.
    lua.field(Lua::REGISTRY, CALLBACKS);
    lua.insert(-2);
    lua.set_field(-2, &spec.name);
    registration.functions.push(spec);
    Ok(0)
}

fn text(lua: Lua, index: c_int) -> Option<Vec<u8>> {
    lua.bytes(index).map(<[u8]>::to_vec)
}

fn name(lua: Lua, index: c_int) -> Result<String, Raise> {
    let bytes = text(lua, index).ok_or_else(|| {
        refuse(lua, "function_name argument given to server.register_function must be a string")
    })?;
    Ok(String::from_utf8_lossy(&bytes).into_owned())
}

fn positional(lua: Lua) -> Result<FunctionSpec, Raise> {
    let Some(bytes) = text(lua, 1) else {
        return Err(refuse(lua, "first argument to server.register_function must be a string"));
    };
    if lua.kind(2) != Type::Function {
        let text = "second argument to server.register_function must be a function";
        return Err(refuse(lua, text));
    }
    let name = String::from_utf8_lossy(&bytes).into_owned();
    Ok(FunctionSpec { name, description: None, flags: ScriptFlags::default() })
}

fn named(lua: Lua) -> Result<FunctionSpec, Raise> {
    let (mut function, mut description, mut flags) = (None, None, ScriptFlags::default());
    let mut has_callback = false;
    lua.push_nil();
    while lua.next(1) {
        let key = if lua.kind(-2) == Type::String { text(lua, -2) } else { None };
        match key.as_deref() {
            None => {
                let text = "named argument key given to server.register_function is not a string";
                return Err(refuse(lua, text));
            }
            Some(b"function_name") => function = Some(name(lua, -1)?),
            Some(b"description") => {
                description = Some(text(lua, -1).ok_or_else(|| {
                    refuse(
                        lua,
                        "description argument given to server.register_function must be a string",
                    )
                })?);
            }
            Some(b"callback") => {
                if lua.kind(-1) != Type::Function {
                    return Err(refuse(
                        lua,
                        "callback argument given to server.register_function must be a function",
                    ));
                }
                has_callback = true;
            }
            Some(b"flags") => flags = read_flags(lua)?,
            Some(_) => {
                return Err(refuse(lua, "unknown argument given to server.register_function"));
            }
        }
        lua.pop(1);
    }
    let Some(name) = function else {
        return Err(refuse(lua, "server.register_function must get a function name argument"));
    };
    if !has_callback {
        return Err(refuse(lua, "server.register_function must get a callback argument"));
    }
    lua.field(1, "callback");
    Ok(FunctionSpec { name, description, flags })
}

/// The flags in the table on top.
fn read_flags(lua: Lua) -> Result<ScriptFlags, Raise> {
    if lua.kind(-1) != Type::Table {
        let text = "flags argument to server.register_function must be a table representing \
                    function flags";
        return Err(refuse(lua, text));
    }
    let mut flags = ScriptFlags::default();
    for n in 1.. {
        lua.raw_get_at(-1, n);
        if lua.kind(-1) == Type::Nil {
            lua.pop(1);
            break;
        }
        let is_known =
            lua.kind(-1) == Type::String && lua.bytes(-1).is_some_and(|name| flags.add(name));
        if !is_known {
            return Err(refuse(lua, "unknown flag given"));
        }
        lua.pop(1);
    }
    Ok(flags)
}

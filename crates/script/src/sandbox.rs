//! The global variables of scripts: Redis's choice, all read-only.

use crate::api;
use crate::ffi;
use crate::host::Identity;
use crate::libs;
use crate::lua::{Function, Lua, Raise};
use std::ffi::c_int;

/// The key in the registry of the table that is the environment of libraries which are loaded.
pub(crate) const LOADING: &str = "loading";

/// Functions of Lua's basic library that scripts do not get: they reach files, or the environments
/// of other functions.
const LEFT_OUT: [&str; 6] = ["dofile", "loadfile", "print", "getfenv", "setfenv", "newproxy"];

/// Opens the libraries and closes everything for changes.
pub(crate) fn furnish(lua: Lua, identity: &Identity) {
    open_own(lua);
    libs::random::replace(lua);
    cjson(lua);
    cmsgpack(lua);
    open(lua, "bit", libs::bit::FUNCTIONS);
    open(lua, "struct", libs::structure::FUNCTIONS);
    open(lua, "os", &[("clock", clock)]);
    api::push(lua, identity);
    lua.copy(-1);
    lua.set_field(Lua::GLOBALS, "redis");
    lua.set_field(Lua::GLOBALS, "server");
    lua.push_function(api::annotate);
    lua.copy(-1);
    lua.set_field(Lua::GLOBALS, "__redis__err__handler");
    lua.set_field(Lua::GLOBALS, "__server__err__handler");
    guard_globals(lua);
    close(lua);
    lua.copy(Lua::GLOBALS);
    lua.set_readonly(-1, true);
    lua.pop(1);
    push_loading(lua, identity);
    lua.set_field(Lua::REGISTRY, LOADING);
}

#[allow(unsafe_code)]
fn open_own(lua: Lua) {
    for open in [ffi::dunlin_open_base, ffi::luaopen_table, ffi::luaopen_string, ffi::luaopen_math]
    {
        let top = lua.top();
        // SAFETY: a new interpreter; each registers its functions and leaves its table.
        unsafe { open(lua.raw()) };
        lua.set_top(top);
    }
    for name in LEFT_OUT {
        lua.push_nil();
        lua.set_field(Lua::GLOBALS, name);
    }
}

fn open(lua: Lua, name: &str, functions: &[(&str, Function)]) {
    libs::push(lua, functions);
    lua.set_field(Lua::GLOBALS, name);
}

fn cjson(lua: Lua) {
    libs::cjson::push(lua);
    lua.set_field(Lua::GLOBALS, "cjson");
}

fn cmsgpack(lua: Lua) {
    libs::push(lua, libs::cmsgpack::FUNCTIONS);
    for (name, text) in [
        ("_NAME", "cmsgpack"),
        ("_VERSION", "lua-cmsgpack 0.4.0"),
        ("_COPYRIGHT", "Copyright (C) 2012, Redis Ltd."),
        ("_DESCRIPTION", "MessagePack C implementation for Lua"),
    ] {
        lua.push(text);
        lua.set_field(-2, name);
    }
    lua.set_field(Lua::GLOBALS, "cmsgpack");
}

/// `os.clock`: seconds of processor time of this thread.
#[allow(unsafe_code)]
fn clock(lua: Lua) -> Result<c_int, Raise> {
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: the structure is there to be filled in.
    unsafe { libc::clock_gettime(libc::CLOCK_THREAD_CPUTIME_ID, &mut time) };
    lua.push_number(time.tv_sec as f64 + time.tv_nsec as f64 / 1e9);
    Ok(1)
}

/// A global variable that is not there is an error, not nil.
fn guard_globals(lua: Lua) {
    lua.copy(Lua::GLOBALS);
    push_guard(lua);
    lua.set_metatable(-2);
    lua.pop(1);
}

/// Pushes a read-only metatable whose `__index` raises an error.
fn push_guard(lua: Lua) {
    lua.new_table(0, 1);
    lua.push_function(refuse_unknown);
    lua.set_field(-2, "__index");
    lua.set_readonly(-1, true);
}

fn refuse_unknown(lua: Lua) -> Result<c_int, Raise> {
    let name = lua.bytes(2).map_or_else(String::new, |name| String::from_utf8_lossy(name).into());
    Err(Raise::message(format!("Script attempted to access nonexistent global variable '{name}'")))
}

/// Makes all libraries and the metatable of strings read-only.
fn close(lua: Lua) {
    lua.push_nil();
    while lua.next(Lua::GLOBALS) {
        if lua.kind(-1) == crate::lua::Type::Table {
            lua.copy(Lua::GLOBALS);
            let is_globals = lua.same(-1, -2);
            lua.pop(1);
            if !is_globals {
                lua.set_readonly(-1, true);
            }
        }
        lua.pop(1);
    }
    lua.push("");
    if lua.push_metatable(-1) {
        lua.set_readonly(-1, true);
        lua.pop(1);
    }
    lua.pop(1);
}

/// Pushes what libraries see while they are loaded: the interface to register functions, and no
/// other global variable.
fn push_loading(lua: Lua, identity: &Identity) {
    lua.new_table(0, 2);
    api::push_loading(lua, identity);
    push_guard(lua);
    lua.set_metatable(-2);
    lua.set_readonly(-1, true);
    lua.copy(-1);
    lua.set_field(-3, "redis");
    lua.set_field(-2, "server");
    push_guard(lua);
    lua.set_metatable(-2);
    lua.set_readonly(-1, true);
}

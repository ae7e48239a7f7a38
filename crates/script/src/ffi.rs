//! What of Lua's C interface is used; see the reference manual of Lua 5.1.
//!
//! Functions that can raise an error of Lua (other than for want of memory, which ends the process
//! here) are not called from Rust, since an error jumps over the frames in between.
#![allow(unsafe_code, missing_docs)]

use std::ffi::{c_char, c_int, c_void};

/// An interpreter or one of its coroutines.
#[repr(C)]
pub(crate) struct LuaState {
    _private: [u8; 0],
}

pub(crate) type CFunction = unsafe extern "C-unwind" fn(*mut LuaState) -> c_int;
pub(crate) type Hook = unsafe extern "C-unwind" fn(*mut LuaState, *mut Debug);
pub(crate) type Alloc =
    unsafe extern "C-unwind" fn(*mut c_void, *mut c_void, usize, usize) -> *mut c_void;

pub(crate) const REGISTRY: c_int = -10000;
pub(crate) const GLOBALS: c_int = -10002;
pub(crate) const fn upvalue(number: c_int) -> c_int {
    GLOBALS - number
}

pub(crate) const MASK_COUNT: c_int = 1 << 3;
pub(crate) const IDSIZE: usize = 60;

/// `lua_Debug`.
#[repr(C)]
pub(crate) struct Debug {
    pub event: c_int,
    pub name: *const c_char,
    pub namewhat: *const c_char,
    pub what: *const c_char,
    pub source: *const c_char,
    pub currentline: c_int,
    pub nups: c_int,
    pub linedefined: c_int,
    pub lastlinedefined: c_int,
    pub short_src: [c_char; IDSIZE],
    pub i_ci: c_int,
}

unsafe extern "C-unwind" {
    pub(crate) fn lua_newstate(alloc: Alloc, ud: *mut c_void) -> *mut LuaState;
    pub(crate) fn lua_close(l: *mut LuaState);
    pub(crate) fn lua_getallocf(l: *mut LuaState, ud: *mut *mut c_void) -> Alloc;
    pub(crate) fn lua_gettop(l: *mut LuaState) -> c_int;
    pub(crate) fn lua_settop(l: *mut LuaState, index: c_int);
    pub(crate) fn lua_pushvalue(l: *mut LuaState, index: c_int);
    pub(crate) fn lua_remove(l: *mut LuaState, index: c_int);
    pub(crate) fn lua_insert(l: *mut LuaState, index: c_int);
    pub(crate) fn lua_replace(l: *mut LuaState, index: c_int);
    pub(crate) fn lua_checkstack(l: *mut LuaState, extra: c_int) -> c_int;
    pub(crate) fn lua_type(l: *mut LuaState, index: c_int) -> c_int;
    pub(crate) fn lua_tonumber(l: *mut LuaState, index: c_int) -> f64;
    pub(crate) fn lua_isnumber(l: *mut LuaState, index: c_int) -> c_int;
    pub(crate) fn lua_toboolean(l: *mut LuaState, index: c_int) -> c_int;
    pub(crate) fn lua_tolstring(l: *mut LuaState, index: c_int, len: *mut usize) -> *const c_char;
    pub(crate) fn lua_touserdata(l: *mut LuaState, index: c_int) -> *mut c_void;
    pub(crate) fn lua_pushnil(l: *mut LuaState);
    pub(crate) fn lua_pushnumber(l: *mut LuaState, number: f64);
    pub(crate) fn lua_pushlstring(l: *mut LuaState, bytes: *const c_char, len: usize);
    pub(crate) fn lua_pushboolean(l: *mut LuaState, value: c_int);
    pub(crate) fn lua_pushlightuserdata(l: *mut LuaState, value: *mut c_void);
    pub(crate) fn lua_pushcclosure(l: *mut LuaState, function: CFunction, upvalues: c_int);
    pub(crate) fn lua_rawget(l: *mut LuaState, index: c_int);
    pub(crate) fn lua_rawgeti(l: *mut LuaState, index: c_int, n: c_int);
    pub(crate) fn lua_rawset(l: *mut LuaState, index: c_int);
    pub(crate) fn lua_rawseti(l: *mut LuaState, index: c_int, n: c_int);
    pub(crate) fn lua_createtable(l: *mut LuaState, array: c_int, hash: c_int);
    pub(crate) fn lua_setmetatable(l: *mut LuaState, index: c_int) -> c_int;
    pub(crate) fn lua_getmetatable(l: *mut LuaState, index: c_int) -> c_int;
    pub(crate) fn lua_pcall(l: *mut LuaState, args: c_int, results: c_int, handler: c_int)
    -> c_int;
    pub(crate) fn lua_next(l: *mut LuaState, index: c_int) -> c_int;
    pub(crate) fn lua_gc(l: *mut LuaState, what: c_int, data: c_int) -> c_int;
    pub(crate) fn lua_sethook(l: *mut LuaState, hook: Hook, mask: c_int, count: c_int) -> c_int;
    pub(crate) fn lua_getstack(l: *mut LuaState, level: c_int, ar: *mut Debug) -> c_int;
    pub(crate) fn lua_getinfo(l: *mut LuaState, what: *const c_char, ar: *mut Debug) -> c_int;
    pub(crate) fn luaL_loadbuffer(
        l: *mut LuaState,
        bytes: *const c_char,
        len: usize,
        name: *const c_char,
    ) -> c_int;
    pub(crate) fn lua_rawequal(l: *mut LuaState, a: c_int, b: c_int) -> c_int;
    pub(crate) fn lua_setfenv(l: *mut LuaState, index: c_int) -> c_int;

    pub(crate) fn luaopen_table(l: *mut LuaState) -> c_int;
    pub(crate) fn luaopen_string(l: *mut LuaState) -> c_int;
    pub(crate) fn luaopen_math(l: *mut LuaState) -> c_int;

    pub(crate) fn dunlin_open_base(l: *mut LuaState) -> c_int;
    pub(crate) fn dunlin_set_readonly(l: *mut LuaState, index: c_int, readonly: c_int);
    pub(crate) fn dunlin_set_globals_readonly(l: *mut LuaState, readonly: c_int);
    pub(crate) fn dunlin_is_readonly(l: *mut LuaState, index: c_int) -> c_int;
    pub(crate) fn dunlin_count(l: *mut LuaState, steps: c_int) -> c_int;
    pub(crate) fn dunlin_count_bytes(l: *mut LuaState, bytes: usize);
    pub(crate) fn dunlin_call(l: *mut LuaState) -> c_int;
    pub(crate) fn dunlin_hook(l: *mut LuaState, ar: *mut Debug);
}

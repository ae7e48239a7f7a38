//! Lua's stack, as safe as it can be made: a handle whose methods never raise an error of Lua.
//!
//! An index is positive from the bottom of the running function's stack, negative from its top. The
//! caller sees to it that the index is there and that pushes have room: Lua guarantees 20 slots to
//! each call, and [`Lua::has_room`] asks for more.
#![allow(unsafe_code)]

use crate::ffi;
use crate::ffi::{GLOBALS, LuaState};
use crate::shared::Shared;
use std::borrow::Cow;
use std::ffi::{CStr, CString, c_int, c_void};

/// A function that scripts can call: the number of its results, which are on top of the stack.
pub(crate) type Function = fn(Lua) -> Result<c_int, Raise>;

/// An error for the script that called.
#[derive(Debug)]
pub(crate) enum Raise {
    /// It is on top of the stack.
    Value,
    /// The host has stopped the script: an error that no protected call catches.
    Stop,
    /// A text; the place in the script is put before it.
    Message(Cow<'static, str>),
    /// Something is wrong with this argument.
    Argument(c_int, Cow<'static, str>),
}

impl Raise {
    /// A text.
    pub(crate) fn message(text: impl Into<Cow<'static, str>>) -> Raise {
        Raise::Message(text.into())
    }

    /// Something is wrong with an argument.
    pub(crate) fn argument(number: c_int, text: impl Into<Cow<'static, str>>) -> Raise {
        Raise::Argument(number, text.into())
    }
}

/// Bytes from which on a string's bytes count.
const LONG_STRING: usize = 256;

/// The types of values, in the order of Lua's numbers.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Type {
    None,
    Nil,
    Boolean,
    LightUserdata,
    Number,
    String,
    Table,
    Function,
    Userdata,
    Thread,
}

impl Type {
    /// As `type()` names it.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Type::None => "no value",
            Type::Nil => "nil",
            Type::Boolean => "boolean",
            Type::LightUserdata | Type::Userdata => "userdata",
            Type::Number => "number",
            Type::String => "string",
            Type::Table => "table",
            Type::Function => "function",
            Type::Thread => "thread",
        }
    }
}

/// Where a function of the call stack is.
pub(crate) struct Caller {
    /// The chunk's name.
    pub source: String,
    /// The line.
    pub line: c_int,
    /// Whether it is a function of Lua and not of C.
    pub is_lua: bool,
}

/// A handle of an interpreter's stack. It is valid as long as the interpreter lives.
#[derive(Clone, Copy)]
pub(crate) struct Lua(*mut LuaState);

impl Lua {
    pub(crate) fn new(state: *mut LuaState) -> Lua {
        Lua(state)
    }

    pub(crate) fn raw(self) -> *mut LuaState {
        self.0
    }

    // ---- the stack ----------------------------------------------------------------------

    pub(crate) fn top(self) -> c_int {
        // SAFETY: reads the stack's size.
        unsafe { ffi::lua_gettop(self.0) }
    }

    pub(crate) fn set_top(self, index: c_int) {
        // SAFETY: the caller names a place within the stack.
        unsafe { ffi::lua_settop(self.0, index) }
    }

    pub(crate) fn pop(self, count: c_int) {
        self.set_top(-count - 1);
    }

    pub(crate) fn copy(self, index: c_int) {
        // SAFETY: the caller names a place within the stack.
        unsafe { ffi::lua_pushvalue(self.0, index) }
    }

    pub(crate) fn remove(self, index: c_int) {
        // SAFETY: as above.
        unsafe { ffi::lua_remove(self.0, index) }
    }

    /// Moves the value on top to where `index` is, in place of what is there.
    pub(crate) fn replace(self, index: c_int) {
        // SAFETY: as above.
        unsafe { ffi::lua_replace(self.0, index) }
    }

    pub(crate) fn insert(self, index: c_int) {
        // SAFETY: as above.
        unsafe { ffi::lua_insert(self.0, index) }
    }

    /// Makes sure that so many values can be pushed, and that a function of ours may call itself:
    /// says no where Lua's stack or the thread's would become too large.
    pub(crate) fn has_room(self, values: c_int) -> bool {
        // SAFETY: grows the stack, or says no.
        let has_values = unsafe { ffi::lua_checkstack(self.0, values) != 0 };
        has_values && Shared::of(self).has_stack()
    }

    // ---- looking ------------------------------------------------------------------------

    pub(crate) fn kind(self, index: c_int) -> Type {
        // SAFETY: any index may be asked for.
        match unsafe { ffi::lua_type(self.0, index) } {
            -1 => Type::None,
            0 => Type::Nil,
            1 => Type::Boolean,
            2 => Type::LightUserdata,
            3 => Type::Number,
            4 => Type::String,
            5 => Type::Table,
            6 => Type::Function,
            7 => Type::Userdata,
            _ => Type::Thread,
        }
    }

    pub(crate) fn same(self, a: c_int, b: c_int) -> bool {
        // SAFETY: any indexes may be asked for.
        unsafe { ffi::lua_rawequal(self.0, a, b) != 0 }
    }

    pub(crate) fn is_number(self, index: c_int) -> bool {
        // SAFETY: any index may be asked for.
        unsafe { ffi::lua_isnumber(self.0, index) != 0 }
    }

    pub(crate) fn number(self, index: c_int) -> f64 {
        // SAFETY: any index may be asked for; 0 if it is no number.
        unsafe { ffi::lua_tonumber(self.0, index) }
    }

    pub(crate) fn boolean(self, index: c_int) -> bool {
        // SAFETY: any index may be asked for.
        unsafe { ffi::lua_toboolean(self.0, index) != 0 }
    }

    /// The bytes of a string, or of a number, which becomes a string in its place. They are there
    /// as long as the value is on the stack or otherwise reachable; the caller sees to that.
    #[inline]
    pub(crate) fn bytes<'b>(self, index: c_int) -> Option<&'b [u8]> {
        let mut len = 0;
        // SAFETY: any index may be asked for; null if it is neither.
        let bytes = unsafe { ffi::lua_tolstring(self.0, index, &mut len) };
        if bytes.is_null() {
            return None;
        }
        // SAFETY: Lua says where the string is, and keeps it while it is reachable.
        Some(unsafe { std::slice::from_raw_parts(bytes.cast(), len) })
    }

    pub(crate) fn light(self, index: c_int) -> *mut c_void {
        // SAFETY: any index may be asked for; null if it is no userdata.
        unsafe { ffi::lua_touserdata(self.0, index) }
    }

    /// The pointer that the allocator was given.
    pub(crate) fn allocator_data(self) -> *mut c_void {
        let mut data = std::ptr::null_mut();
        // SAFETY: writes the pointer to where we say.
        unsafe { ffi::lua_getallocf(self.0, &mut data) };
        data
    }

    /// The number of the current function's upvalue as an index.
    pub(crate) fn upvalue(number: c_int) -> c_int {
        ffi::upvalue(number)
    }

    // ---- pushing ------------------------------------------------------------------------

    pub(crate) fn push_nil(self) {
        // SAFETY: the caller has made room.
        unsafe { ffi::lua_pushnil(self.0) }
    }

    pub(crate) fn push_number(self, number: f64) {
        // SAFETY: as above.
        unsafe { ffi::lua_pushnumber(self.0, number) }
    }

    pub(crate) fn push_boolean(self, value: bool) {
        // SAFETY: as above.
        unsafe { ffi::lua_pushboolean(self.0, c_int::from(value)) }
    }

    #[inline]
    pub(crate) fn push_bytes(self, bytes: &[u8]) {
        // SAFETY: as above; the bytes are copied.
        unsafe { ffi::lua_pushlstring(self.0, bytes.as_ptr().cast(), bytes.len()) }
    }

    pub(crate) fn push(self, text: &str) {
        self.push_bytes(text.as_bytes());
    }

    pub(crate) fn push_light(self, value: *mut c_void) {
        // SAFETY: the caller has made room; nothing looks behind the pointer.
        unsafe { ffi::lua_pushlightuserdata(self.0, value) }
    }

    /// A function of ours. It takes `upvalues` values from the stack, which it finds from 2 on.
    pub(crate) fn push_function_with(self, function: Function, upvalues: c_int) {
        self.push_light(function as *mut c_void);
        self.insert(-1 - upvalues);
        // SAFETY: `dunlin_call` takes the first upvalue for a `Function`, which it is.
        unsafe { ffi::lua_pushcclosure(self.0, ffi::dunlin_call, upvalues + 1) }
    }

    pub(crate) fn push_function(self, function: Function) {
        self.push_function_with(function, 0);
    }

    // ---- tables -------------------------------------------------------------------------

    pub(crate) fn new_table(self, array: usize, hash: usize) {
        // More than this is not preallocated on the word of an input.
        let most = |size: usize| size.min(1 << 16) as c_int;
        // SAFETY: the caller has made room.
        unsafe { ffi::lua_createtable(self.0, most(array), most(hash)) }
    }

    /// Replaces the key on top by its value, without metamethods.
    pub(crate) fn raw_get(self, table: c_int) {
        // SAFETY: the caller names a table.
        unsafe { ffi::lua_rawget(self.0, table) }
    }

    pub(crate) fn raw_get_at(self, table: c_int, n: c_int) {
        // SAFETY: the caller names a table and has made room.
        unsafe { ffi::lua_rawgeti(self.0, table, n) }
    }

    /// Pushes a field of the table, without metamethods.
    pub(crate) fn field(self, table: c_int, name: &str) {
        let table = self.absolute(table);
        self.push(name);
        self.raw_get(table);
    }

    /// Sets a field of a table of ours, which is not read-only, to the value on top.
    pub(crate) fn set_field(self, table: c_int, name: &str) {
        let table = self.absolute(table);
        self.push(name);
        self.insert(-2);
        self.raw_set(table);
    }

    /// Sets the key below the top, which is neither nil nor NaN, to the value on top.
    pub(crate) fn raw_set(self, table: c_int) {
        // SAFETY: the table is ours and not read-only, so that nothing is raised.
        unsafe { ffi::lua_rawset(self.0, table) }
    }

    pub(crate) fn raw_set_at(self, table: c_int, n: c_int) {
        // SAFETY: as above.
        unsafe { ffi::lua_rawseti(self.0, table, n) }
    }

    /// Replaces the key on top by the next key and its value, or takes it away at the end.
    pub(crate) fn next(self, table: c_int) -> bool {
        // SAFETY: the key came from this table, so that nothing is raised.
        unsafe { ffi::lua_next(self.0, table) != 0 }
    }

    /// Makes the value on top the metatable of a table of ours.
    pub(crate) fn set_metatable(self, index: c_int) {
        // SAFETY: the table is ours and not read-only.
        unsafe { ffi::lua_setmetatable(self.0, index) };
    }

    pub(crate) fn push_metatable(self, index: c_int) -> bool {
        // SAFETY: any value may be asked for.
        unsafe { ffi::lua_getmetatable(self.0, index) != 0 }
    }

    pub(crate) fn set_readonly(self, index: c_int, readonly: bool) {
        // SAFETY: the caller names a table.
        unsafe { ffi::dunlin_set_readonly(self.0, index, c_int::from(readonly)) }
    }

    /// The same for the table of global variables.
    pub(crate) fn set_globals_readonly(self, readonly: bool) {
        // SAFETY: sets a flag of a table that is always there.
        unsafe { ffi::dunlin_set_globals_readonly(self.0, c_int::from(readonly)) }
    }

    pub(crate) fn is_readonly(self, index: c_int) -> bool {
        // SAFETY: any index may be asked for.
        unsafe { ffi::dunlin_is_readonly(self.0, index) != 0 }
    }

    /// Makes the table on top the environment of a function of Lua.
    pub(crate) fn set_environment(self, index: c_int) {
        // SAFETY: the caller names a function.
        unsafe { ffi::lua_setfenv(self.0, index) };
    }

    pub(crate) fn absolute(self, index: c_int) -> c_int {
        if index > 0 || index <= ffi::REGISTRY { index } else { self.top() + index + 1 }
    }

    /// The index of the table of global variables.
    pub(crate) const GLOBALS: c_int = GLOBALS;
    /// The index of the table that scripts do not see.
    pub(crate) const REGISTRY: c_int = ffi::REGISTRY;

    // ---- running ------------------------------------------------------------------------

    /// Compiles source and pushes its function, or the error.
    pub(crate) fn load(self, source: &[u8], name: &str) -> bool {
        let name = CString::new(name).unwrap_or_default();
        // SAFETY: both outlive the call, which catches errors by itself.
        unsafe {
            ffi::luaL_loadbuffer(self.0, source.as_ptr().cast(), source.len(), name.as_ptr()) == 0
        }
    }

    /// Calls the function below its arguments; `false`: the error is on top. `handler` is the index
    /// of a function that gets the error first, or 0.
    pub(crate) fn call(self, args: c_int, results: c_int, handler: c_int) -> bool {
        // SAFETY: the caller has pushed these; errors end here.
        unsafe { ffi::lua_pcall(self.0, args, results, handler) == 0 }
    }

    /// A function on the call stack: 0 is the current one.
    pub(crate) fn place(self, level: c_int) -> Option<Caller> {
        // SAFETY: a structure of numbers and pointers, which Lua fills in.
        let mut ar: ffi::Debug = unsafe { std::mem::zeroed() };
        // SAFETY: `ar` lives long enough, and is filled in by the first for the second.
        let found = unsafe {
            ffi::lua_getstack(self.0, level, &mut ar) != 0
                && ffi::lua_getinfo(self.0, c"nSl".as_ptr(), &mut ar) != 0
        };
        if !found {
            return None;
        }
        // SAFETY: Lua points to strings that end in NUL and outlive this function.
        let text = |text| unsafe { CStr::from_ptr(text) }.to_string_lossy().into_owned();
        let is_lua = text(ar.what) != "C";
        Some(Caller { source: text(ar.source), line: ar.currentline, is_lua })
    }

    /// Runs the hook every so many instructions.
    pub(crate) fn set_hook(self, instructions: c_int) {
        // SAFETY: the hook is a function of the glue.
        unsafe { ffi::lua_sethook(self.0, ffi::dunlin_hook, ffi::MASK_COUNT, instructions) };
    }

    /// Counts steps of a function of ours, of about the length of an instruction each. The host is
    /// asked now and then whether the script goes on.
    #[inline]
    pub(crate) fn count(self, steps: c_int) -> Result<(), Raise> {
        // SAFETY: counts, and calls `dunlin_tick`, which raises no error.
        if unsafe { ffi::dunlin_count(self.0, steps) } != 0 { Ok(()) } else { Err(Raise::Stop) }
    }

    /// Counts bytes that a function of ours works through at once: after many of them the next
    /// instruction asks the host whether the script goes on.
    #[inline]
    pub(crate) fn count_bytes(self, bytes: usize) {
        if bytes >= LONG_STRING {
            // SAFETY: counts.
            unsafe { ffi::dunlin_count_bytes(self.0, bytes) };
        }
    }

    /// Collects garbage: all of it, or for as long as `step` says.
    pub(crate) fn collect(self, step: Option<c_int>) {
        const COLLECT: c_int = 2;
        const STEP: c_int = 5;
        let (what, data) = step.map_or((COLLECT, 0), |step| (STEP, step));
        // SAFETY: there are no finalizers that could raise errors.
        unsafe { ffi::lua_gc(self.0, what, data) };
    }
}

/// Runs a [`Function`], for the glue.
///
/// # Safety
/// The first upvalue must be a `Function`.
#[unsafe(no_mangle)]
unsafe extern "C-unwind" fn dunlin_enter(state: *mut LuaState) -> c_int {
    let lua = Lua(state);
    let function = lua.light(Lua::upvalue(1));
    // SAFETY: `push_function_with` has put it there.
    let function: Function = unsafe { std::mem::transmute::<*mut c_void, Function>(function) };
    match function(lua) {
        Ok(results) => results,
        Err(raise) => {
            let (code, text) = match raise {
                Raise::Value => return -1,
                Raise::Stop => return -3,
                Raise::Message(text) => (-2, text),
                Raise::Argument(number, text) => (-4 - number, text),
            };
            lua.push(&text);
            code
        }
    }
}

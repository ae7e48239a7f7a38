//! A thread's interpreter: compiled scripts by their digests, libraries, and running them.

use crate::api;
use crate::ffi;
use crate::host::{Host, Identity};
use crate::lua::{Lua, Type};
use crate::memory;
use crate::register::{CALLBACKS, FunctionSpec, Registration};
use crate::result_to_resp;
use crate::sandbox;
use crate::shared::Shared;
use resp::Reply;
use std::collections::HashMap;
use std::ffi::c_int;

/// The digest that names a script.
pub type Sha = [u8; 20];

/// Instructions between two calls of [`Host::tick`].
const TICK: c_int = 100_000;
/// Runs between two steps of the collector, and how many KiB such a step is for. To compile
/// something counts as a run, too. The collector's own pace would let the memory of a script that
/// used much stand for long.
const RUNS_PER_STEP: u32 = 50;
const STEP_KIB: c_int = 50;
/// Bytes of a source from which on it is followed by a step of its own, of eight times its size.
const LONG_SOURCE: usize = 4096;
/// Compiled scripts that are kept; when there are more, all are compiled anew when they come.
const MAX_SCRIPTS: usize = 1000;

/// How a script has ended.
#[derive(Debug)]
pub enum Outcome {
    /// Its reply is written.
    Replied,
    /// With an error, which is the reply.
    Failed(Failure),
    /// The host has said so; where it was, as errors say it.
    Stopped(String),
}

/// A script's error.
#[derive(Debug)]
pub struct Failure {
    /// The text with its code.
    pub line: Vec<u8>,
    /// Whether the statistics of errors know of it already.
    pub is_counted: bool,
}

/// See the module's documentation.
pub struct Interpreter {
    lua: Lua,
    /// Freed after the interpreter.
    shared: *mut Shared,
    scripts: HashMap<Sha, c_int>,
    /// Indexes of the environments of libraries, by the numbers of these.
    libraries: HashMap<u64, c_int>,
    last_slot: c_int,
    /// Slots of the registry that are free again.
    free_slots: Vec<c_int>,
    /// Runs since the collector's last step.
    runs: u32,
    /// `KEYS` and `ARGV` are set.
    has_arguments: bool,
}

impl Interpreter {
    /// A new one.
    #[allow(unsafe_code)]
    pub fn new(identity: &Identity, seed: u64) -> Interpreter {
        let shared = Box::<Shared>::default();
        shared.random.set(seed);
        let shared = Box::into_raw(shared);
        // SAFETY: the allocator's data begins with its counter and lives as long as `self`.
        let state = unsafe { ffi::lua_newstate(memory::allocate, shared.cast()) };
        assert!(!state.is_null(), "the allocator does not fail");
        let lua = Lua::new(state);
        sandbox::furnish(lua, identity);
        lua.set_hook(TICK);
        Interpreter {
            lua,
            shared,
            scripts: HashMap::new(),
            libraries: HashMap::new(),
            last_slot: 0,
            free_slots: Vec::new(),
            runs: 0,
            has_arguments: false,
        }
    }

    #[allow(unsafe_code)]
    fn shared(&self) -> &Shared {
        // SAFETY: made in `new`, freed in `drop`.
        unsafe { &*self.shared }
    }

    /// Bytes that it uses.
    pub fn used_bytes(&self) -> usize {
        self.shared().used.bytes()
    }

    /// Whether a script is compiled.
    pub fn has(&self, sha: &Sha) -> bool {
        self.scripts.contains_key(sha)
    }

    /// Compiles a script.
    ///
    /// # Errors
    /// The text of the error reply.
    pub fn compile(&mut self, sha: Sha, code: &[u8]) -> Result<(), Vec<u8>> {
        if self.scripts.len() >= MAX_SCRIPTS {
            self.forget_scripts();
        }
        let is_compiled = self.lua.load(code, "@user_script");
        if !is_compiled {
            let error = self.take_message("ERR Error compiling script (new function): ");
            self.count_run(code.len());
            return Err(error);
        }
        let slot = self.keep();
        self.count_run(code.len());
        if let Some(old) = self.scripts.insert(sha, slot) {
            self.drop_slot(old);
        }
        Ok(())
    }

    /// Forgets all scripts (SCRIPT FLUSH).
    pub fn forget_scripts(&mut self) {
        for (_, slot) in std::mem::take(&mut self.scripts) {
            self.drop_slot(slot);
        }
        self.lua.collect(None);
    }

    /// Frees all that scripts have left behind.
    pub fn collect(&self) {
        self.lua.collect(None);
    }

    /// Moves the value on top into the registry.
    fn keep(&mut self) -> c_int {
        let slot = self.free_slots.pop().unwrap_or_else(|| {
            self.last_slot += 1;
            self.last_slot
        });
        self.lua.raw_set_at(Lua::REGISTRY, slot);
        slot
    }

    fn drop_slot(&mut self, slot: c_int) {
        self.lua.push_nil();
        self.lua.raw_set_at(Lua::REGISTRY, slot);
        self.free_slots.push(slot);
    }

    /// Takes a step of the collector now and then, and at once for what a long source has left
    /// behind.
    fn count_run(&mut self, source_bytes: usize) {
        self.runs += 1;
        if self.runs >= RUNS_PER_STEP || source_bytes > LONG_SOURCE {
            self.runs = 0;
            let kib = c_int::try_from(source_bytes / 128).unwrap_or(c_int::MAX);
            self.lua.collect(Some(STEP_KIB.max(kib)));
        }
    }

    /// The message on top, which is taken away, behind a prefix.
    fn take_message(&self, prefix: &str) -> Vec<u8> {
        let lua = self.lua;
        let message = if lua.kind(-1) == Type::Table {
            result_to_resp::text_field(lua, "err")
        } else {
            lua.bytes(-1).map(<[u8]>::to_vec)
        };
        lua.set_top(0);
        [prefix.as_bytes(), &message.unwrap_or_else(|| b"ERR unknown error".to_vec())].concat()
    }

    // ---- running ------------------------------------------------------------------------

    /// Runs a script that is [compiled](Interpreter::compile).
    pub fn eval(
        &mut self,
        sha: &Sha,
        keys: &[&[u8]],
        args: &[&[u8]],
        host: &mut dyn Host,
        reply: &mut Reply<'_>,
    ) -> Outcome {
        let lua = self.lua;
        let Some(&slot) = self.scripts.get(sha) else {
            return failed(b"NOSCRIPT No matching script.".to_vec());
        };
        lua.set_top(0);
        lua.push_function(api::annotate);
        lua.set_globals_readonly(false);
        push_list(lua, keys);
        lua.set_field(Lua::GLOBALS, "KEYS");
        push_list(lua, args);
        lua.set_field(Lua::GLOBALS, "ARGV");
        lua.set_globals_readonly(true);
        self.has_arguments = true;
        lua.raw_get_at(Lua::REGISTRY, slot);
        self.finish(0, host, reply)
    }

    /// Calls a function of a library that is [loaded](Interpreter::load).
    pub fn call(
        &mut self,
        library: u64,
        name: &str,
        keys: &[&[u8]],
        args: &[&[u8]],
        host: &mut dyn Host,
        reply: &mut Reply<'_>,
    ) -> Outcome {
        let lua = self.lua;
        let Some(&slot) = self.libraries.get(&library) else {
            return failed(b"ERR Function not found".to_vec());
        };
        self.hide_arguments();
        lua.set_top(0);
        lua.push_function(api::annotate);
        lua.raw_get_at(Lua::REGISTRY, slot);
        lua.field(-1, name);
        lua.remove(-2);
        push_list(lua, keys);
        push_list(lua, args);
        self.finish(2, host, reply)
    }

    /// A function has no global variables `KEYS` and `ARGV`.
    fn hide_arguments(&mut self) {
        if !std::mem::take(&mut self.has_arguments) {
            return;
        }
        let lua = self.lua;
        lua.set_globals_readonly(false);
        for name in ["KEYS", "ARGV"] {
            lua.push_nil();
            lua.set_field(Lua::GLOBALS, name);
        }
        lua.set_globals_readonly(true);
    }

    /// Calls the function below its arguments, above the handler, and turns its result into a
    /// reply.
    fn finish(&mut self, args: c_int, host: &mut dyn Host, reply: &mut Reply<'_>) -> Outcome {
        let lua = self.lua;
        let shared = self.shared();
        shared.is_resp3.set(false);
        let mut is_stopped = false;
        let mut watched = Watched { host, is_stopped: &mut is_stopped };
        let is_done = shared.with_host(&mut watched, || lua.call(args, 1, 1));
        shared.is_ending.set(false);
        let outcome = if is_stopped {
            Outcome::Stopped(place_of_error(lua))
        } else if !is_done {
            Outcome::Failed(failure(lua))
        } else if let Some(failure) = returned_error(lua) {
            Outcome::Failed(failure)
        } else {
            result_to_resp::write(lua, reply, shared.is_resp3.get());
            Outcome::Replied
        };
        lua.set_top(0);
        self.count_run(0);
        outcome
    }

    // ---- libraries ----------------------------------------------------------------------

    /// Loads a library under a number of the caller's.
    ///
    /// # Errors
    /// The text of the error reply.
    pub fn load(
        &mut self,
        library: u64,
        code: &[u8],
        host: &mut dyn Host,
    ) -> Result<Vec<FunctionSpec>, Vec<u8>> {
        let loaded = self.run_library(library, code, host);
        self.count_run(code.len());
        loaded
    }

    fn run_library(
        &mut self,
        library: u64,
        code: &[u8],
        host: &mut dyn Host,
    ) -> Result<Vec<FunctionSpec>, Vec<u8>> {
        let lua = self.lua;
        lua.set_top(0);
        lua.push_function(api::annotate);
        if !lua.load(code, "@user_function") {
            return Err(self.take_message("ERR Error compiling function: "));
        }
        // The environment: empty, and what it is asked for is looked up in what its metatable says.
        lua.new_table(0, 0);
        lua.new_table(0, 1);
        lua.field(Lua::REGISTRY, sandbox::LOADING);
        lua.set_field(-2, "__index");
        lua.copy(-1);
        lua.set_metatable(-3);
        lua.insert(1);
        lua.set_readonly(-1, true);
        lua.set_environment(-2);
        // 1: metatable, 2: handler, 3: the chunk.
        lua.new_table(0, 0);
        lua.set_field(Lua::REGISTRY, CALLBACKS);
        let shared = self.shared();
        *shared.registration.borrow_mut() = Some(Registration::default());
        let mut is_stopped = false;
        let mut watched = Watched { host, is_stopped: &mut is_stopped };
        let is_loaded = shared.with_host(&mut watched, || lua.call(0, 0, 2));
        shared.is_ending.set(false);
        let registration = shared.registration.borrow_mut().take().unwrap_or_default();
        if is_stopped {
            lua.set_top(0);
            return Err(b"ERR Error registering functions: FUNCTION LOAD timeout".to_vec());
        }
        if !is_loaded {
            return Err(load_error(&self.take_message("")));
        }
        if registration.functions.is_empty() {
            lua.set_top(0);
            return Err(b"ERR No functions registered".to_vec());
        }
        // From here on its functions see the global variables of scripts.
        lua.copy(Lua::GLOBALS);
        lua.set_field(1, "__index");
        lua.copy(1);
        lua.set_readonly(-1, true);
        lua.set_top(0);
        lua.field(Lua::REGISTRY, CALLBACKS);
        let slot = self.keep();
        self.unload(library);
        self.libraries.insert(library, slot);
        Ok(registration.functions)
    }

    /// Whether a library is loaded.
    pub fn has_library(&self, library: u64) -> bool {
        self.libraries.contains_key(&library)
    }

    /// Forgets a library.
    pub fn unload(&mut self, library: u64) {
        if let Some(slot) = self.libraries.remove(&library) {
            self.drop_slot(slot);
        }
    }

    /// Forgets all libraries but those that `stays` names.
    pub fn retain_libraries(&mut self, stays: impl Fn(u64) -> bool) {
        let gone: Vec<u64> = self.libraries.keys().copied().filter(|&id| !stays(id)).collect();
        gone.into_iter().for_each(|id| self.unload(id));
    }
}

// SAFETY: an interpreter owns its state and what it points to, reaches nothing of its thread, and
// is used through exclusive references alone.
#[allow(unsafe_code)]
unsafe impl Send for Interpreter {}

impl Drop for Interpreter {
    #[allow(unsafe_code)]
    fn drop(&mut self) {
        // SAFETY: made in `new`; nothing of the interpreter is used behind this.
        unsafe {
            ffi::lua_close(self.lua.raw());
            drop(Box::from_raw(self.shared));
        }
    }
}

/// A bad name is reported as such, anything else as what has happened while functions were
/// registered.
fn load_error(line: &[u8]) -> Vec<u8> {
    let is_about_name = line.starts_with(b"ERR Function names can only")
        || line.starts_with(b"ERR Function already exists");
    let prefix: &[u8] = if is_about_name { b"" } else { b"ERR Error registering functions: " };
    [prefix, line].concat()
}

fn failed(line: Vec<u8>) -> Outcome {
    Outcome::Failed(Failure { line, is_counted: false })
}

fn push_list(lua: Lua, words: &[&[u8]]) {
    lua.new_table(words.len(), 0);
    for (n, word) in (1..).zip(words) {
        lua.push_bytes(word);
        lua.raw_set_at(-2, n);
    }
}

/// The error on top, which the handler has made a table, with the place where it was raised.
fn failure(lua: Lua) -> Failure {
    if lua.kind(-1) != Type::Table {
        let line = lua.bytes(-1).unwrap_or_default();
        return Failure { line: [b"ERR ", line].concat(), is_counted: false };
    }
    let line = result_to_resp::text_field(lua, "err");
    let mut line = line.unwrap_or_else(|| b"ERR unknown error".to_vec());
    line.extend_from_slice(place_of_error(lua).as_bytes());
    Failure { line, is_counted: is_counted(lua) }
}

/// Where the error on top was raised, as it is added to its text.
fn place_of_error(lua: Lua) -> String {
    if lua.kind(-1) != Type::Table {
        return String::new();
    }
    let Some(source) = result_to_resp::text_field(lua, "source") else { return String::new() };
    lua.field(-1, "line");
    let line = lua.number(-1) as i64;
    lua.pop(1);
    format!(" script: on {}:{line}.", String::from_utf8_lossy(&source))
}

fn is_counted(lua: Lua) -> bool {
    lua.field(-1, "ignore_error_stats_update");
    let is_counted = lua.boolean(-1);
    lua.pop(1);
    is_counted
}

/// The error that a script has returned.
fn returned_error(lua: Lua) -> Option<Failure> {
    if lua.kind(-1) != Type::Table {
        return None;
    }
    let line = result_to_resp::text_field(lua, "err")?;
    Some(Failure { line, is_counted: is_counted(lua) })
}

/// A host that remembers whether it has stopped the script.
struct Watched<'h> {
    host: &'h mut dyn Host,
    is_stopped: &'h mut bool,
}

use crate::host::{LogLevel, ReplicateTo, Stop};

impl Watched<'_> {
    fn note<R>(&mut self, result: Result<R, Stop>) -> Result<R, Stop> {
        *self.is_stopped |= result.is_err();
        result
    }
}

impl Host for Watched<'_> {
    fn call(&mut self, words: &[&[u8]], is_resp3: bool, reply: &mut Vec<u8>) -> Result<(), Stop> {
        let result = self.host.call(words, is_resp3, reply);
        self.note(result)
    }
    fn may_run(&mut self, words: &[&[u8]]) -> Option<bool> {
        self.host.may_run(words)
    }
    fn log(&mut self, level: LogLevel, line: &[u8]) {
        self.host.log(level, line);
    }
    fn replicate_to(&mut self, to: ReplicateTo) {
        self.host.replicate_to(to);
    }
    fn tick(&mut self) -> Result<(), Stop> {
        let result = self.host.tick();
        self.note(result)
    }
}

/// Asks the host whether the script goes on, for the glue's hook.
#[allow(unsafe_code)]
#[unsafe(no_mangle)]
extern "C-unwind" fn dunlin_tick(state: *mut ffi::LuaState) -> c_int {
    let shared = Shared::of(Lua::new(state));
    let goes_on = shared.host(|host| host.tick().is_ok()).unwrap_or(true);
    c_int::from(goes_on)
}

/// Ends the script, for the glue.
#[allow(unsafe_code)]
#[unsafe(no_mangle)]
extern "C-unwind" fn dunlin_end(state: *mut ffi::LuaState) {
    Shared::of(Lua::new(state)).is_ending.set(true);
}

/// Returns whether the script was ended, for the glue's protected calls.
#[allow(unsafe_code)]
#[unsafe(no_mangle)]
extern "C-unwind" fn dunlin_is_ending(state: *mut ffi::LuaState) -> c_int {
    c_int::from(Shared::of(Lua::new(state)).is_ending.get())
}

#[cfg(test)]
mod steps;
#[cfg(test)]
mod tests;

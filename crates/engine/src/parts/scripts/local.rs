//! A thread's interpreters, one for scripts and one for functions, and the scripts that it has
//! looked up.

use super::Scripts;
use super::cache::Script;
use super::functions::Library;
use crate::stats::ThreadStats;
use script::{Host, Identity, Interpreter, Sha};
use std::collections::HashMap;
use std::sync::Arc;

/// What scripts are told.
const IDENTITY: Identity =
    Identity { name: "valkey", redis_version: "7.2.4", valkey_version: VALKEY_VERSION };

/// The version of Valkey that scripts and INFO name: commands and replies are those of it.
pub const VALKEY_VERSION: &str = "9.1.2";

/// Number of scripts below which those that are forgotten may stay.
const LEAST_PURGED: usize = 1000;

/// An interpreter for the calling thread.
pub(crate) fn new_interpreter() -> Box<Interpreter> {
    Box::new(Interpreter::new(&IDENTITY, structs::hashing::os_random()))
}

/// See the module.
#[derive(Default)]
pub struct Local {
    of_scripts: Option<Box<Interpreter>>,
    of_functions: Option<Box<Interpreter>>,
    generation: u64,
    scripts: HashMap<Sha, Arc<Script>>,
    /// Number of scripts from which on those that are forgotten are looked for.
    purge_at: usize,
    libraries_version: u64,
}

impl Local {
    /// Forgets the scripts and libraries that others have forgotten (SCRIPT FLUSH, FUNCTION
    /// DELETE).
    pub(crate) fn follow(&mut self, shared: &Scripts) {
        if self.libraries_version != shared.functions.version() {
            self.forget_libraries(shared);
        }
        let generation = shared.cache.generation();
        if generation != self.generation {
            self.scripts.clear();
            self.generation = generation;
            if let Some(interpreter) = &mut self.of_scripts {
                interpreter.forget_scripts();
            }
        }
    }

    /// Forgets the libraries that are not among those of all threads.
    pub(crate) fn forget_libraries(&mut self, shared: &Scripts) {
        self.libraries_version = shared.functions.version();
        let Some(interpreter) = &mut self.of_functions else { return };
        let all = shared.functions.all();
        let ids: Vec<u64> = all.iter().map(|library| library.id).collect();
        interpreter.retain_libraries(|id| ids.contains(&id));
    }

    /// Frees all that scripts have left behind in the interpreter.
    pub(crate) fn collect(&self) {
        for interpreter in [&self.of_scripts, &self.of_functions].into_iter().flatten() {
            interpreter.collect();
        }
    }

    /// The script of this digest.
    pub(crate) fn find(&mut self, shared: &Scripts, sha: &Sha) -> Option<Arc<Script>> {
        self.follow(shared);
        if let Some(script) = self.scripts.get(sha).filter(|script| !script.is_forgotten()) {
            return Some(Arc::clone(script));
        }
        let script = shared.cache.get(sha)?;
        if self.scripts.len() >= self.purge_at {
            self.scripts.retain(|_, script| !script.is_forgotten());
            self.purge_at = LEAST_PURGED.max(2 * self.scripts.len());
        }
        self.scripts.insert(*sha, Arc::clone(&script));
        Some(script)
    }

    /// The interpreter of scripts.
    pub(crate) fn of_scripts(&mut self) -> &mut Interpreter {
        self.of_scripts.get_or_insert_with(new_interpreter)
    }

    /// The interpreter of functions.
    pub(crate) fn of_functions(&mut self) -> &mut Interpreter {
        self.of_functions.get_or_insert_with(new_interpreter)
    }

    /// Compiles a script, unless that was done before.
    ///
    /// # Errors
    /// The error's line.
    pub(crate) fn prepare(&mut self, sha: &Sha, code: &[u8]) -> Result<(), Vec<u8>> {
        let interpreter = self.of_scripts();
        if interpreter.has(sha) { Ok(()) } else { interpreter.compile(*sha, code) }
    }

    /// Loads a library, unless that was done before, and forgets those that are gone.
    ///
    /// # Errors
    /// The error's line.
    pub(crate) fn prepare_library(
        &mut self,
        shared: &Scripts,
        library: &Library,
        host: &mut dyn Host,
    ) -> Result<(), Vec<u8>> {
        if self.libraries_version != shared.functions.version() {
            self.forget_libraries(shared);
        }
        let interpreter = self.of_functions();
        if interpreter.has_library(library.id) {
            return Ok(());
        }
        interpreter.load(library.id, library.code(), host).map(drop)
    }

    /// Notes what the interpreters use, for INFO.
    pub(crate) fn note_memory(&self, stats: &ThreadStats) {
        let used = |interpreter: &Option<Box<Interpreter>>| {
            interpreter.as_ref().map_or(0, |interpreter| interpreter.used_bytes()) as u64
        };
        stats.script_bytes.set(used(&self.of_scripts));
        stats.function_bytes.set(used(&self.of_functions));
    }
}

//! Compiles the source of libraries, for FUNCTION LOAD and for files.

use super::host::write_log;
use crate::clock::Ticks;
use crate::cx::Cx;
use crate::engine::Engine;
use crate::error::Error;
use crate::scripts::{Function, Learned, Library, LoadError, new_interpreter};
use script::shebang::parse_library;
use script::{Host, Interpreter, LogLevel, ReplicateTo, Stop};
use std::sync::Arc;
use std::time::Duration;
use structs::sync::lock;

/// Loading a client's library may take this long.
const TIMEOUT: Duration = Duration::from_millis(500);

/// How long the loading of a library may take.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum TimeLimit {
    /// Half a second: a client can try again.
    Limited,
    /// As long as it takes: it was accepted before, and comes from a file or from a primary.
    Unlimited,
}

impl Library {
    /// Reads, compiles and runs the text of a library in the interpreter of the calling thread. It
    /// is not added to the others. With `replaces` another one may have its name.
    ///
    /// # Errors
    /// What is wrong with it, as a client is told.
    pub fn make(cx: &mut Cx<'_>, source: &[u8], replaces: bool) -> Result<Library, Error> {
        let thread = cx.thread;
        let time_limit =
            if cx.db.effects.is_replay { TimeLimit::Unlimited } else { TimeLimit::Limited };
        let mut local = thread.scripts.borrow_mut();
        // This includes a library that was made and could not be added.
        local.forget_libraries(&cx.engine.scripts);
        let made = make(cx.engine, local.of_functions(), source, replaces, time_limit);
        local.note_memory(thread.stats());
        made
    }
}

/// Loads libraries that stand in a file, one after the other. It has an interpreter of its own.
pub struct LibraryLoader {
    engine: &'static Engine,
    interpreter: Option<Box<Interpreter>>,
    is_beside: bool,
}

impl LibraryLoader {
    /// Returns a loader, whose interpreter is made when it is needed. Where it loads beside the
    /// data set, present libraries do not matter.
    pub fn new(engine: &'static Engine, is_beside: bool) -> LibraryLoader {
        LibraryLoader { engine, interpreter: None, is_beside }
    }

    /// Adds the library of this source; with `replaces` in place of one of its name.
    ///
    /// # Errors
    /// What is wrong with it, as a client would be told.
    pub fn load(&mut self, source: &[u8], replaces: bool) -> Result<(), Error> {
        let interpreter = self.interpreter.get_or_insert_with(new_interpreter);
        let any_name = replaces || self.is_beside;
        let library = make(self.engine, interpreter, source, any_name, TimeLimit::Unlimited)?;
        let library = Arc::new(library);
        // Each thread compiles the library when it needs it.
        interpreter.unload(library.id);
        if self.is_beside {
            let beside = self.engine.loading.beside(&self.engine.keyspace);
            return lock(&beside.libraries).add(library, replaces).map_err(Error::from);
        }
        let functions = &self.engine.scripts.functions;
        functions.change(|all| all.add(Arc::clone(&library), replaces)).map_err(Error::from)
    }
}

fn make(
    engine: &Engine,
    interpreter: &mut Interpreter,
    source: &[u8],
    replaces: bool,
    time_limit: TimeLimit,
) -> Result<Library, Error> {
    let (name, code) =
        parse_library(source).map_err(|text| Error::format(format!("ERR {text}")))?;
    let code_at = source.len() - code.len();
    let functions = &engine.scripts.functions;
    if !replaces && functions.all().iter().any(|library| library.name == name) {
        return Err(LoadError::LibraryExists(name).into());
    }
    let id = functions.next_id();
    let mut host = LoadHost { engine, since: engine.clock.now(), time_limit };
    let specs = interpreter.load(id, code, &mut host).map_err(Error::Bytes)?;
    let function = |spec| Arc::new(Function { spec, learned: Learned::default() });
    let functions = specs.into_iter().map(function).collect();
    Ok(Library { id, name, source: Box::from(source), code_at, functions })
}

impl From<LoadError> for Error {
    fn from(error: LoadError) -> Error {
        Error::format(match error {
            LoadError::LibraryExists(name) => format!("ERR Library '{name}' already exists"),
            LoadError::FunctionExists(name) => format!("ERR Function {name} already exists"),
        })
    }
}

/// The host of a library while it is loaded: it runs no commands, and ends a load that takes too
/// long.
pub(super) struct LoadHost<'h> {
    engine: &'h Engine,
    since: Ticks,
    time_limit: TimeLimit,
}

impl<'h> LoadHost<'h> {
    /// Returns a host for a library that another thread has loaded before.
    pub fn patient(engine: &'h Engine) -> LoadHost<'h> {
        LoadHost { engine, since: engine.clock.now(), time_limit: TimeLimit::Unlimited }
    }
}

impl Host for LoadHost<'_> {
    fn call(&mut self, _: &[&[u8]], _: bool, _: &mut Vec<u8>) -> Result<(), Stop> {
        Err(Stop)
    }
    fn may_run(&mut self, _: &[&[u8]]) -> Option<bool> {
        None
    }
    fn log(&mut self, level: LogLevel, line: &[u8]) {
        write_log(self.engine, level, line);
    }
    fn replicate_to(&mut self, _: ReplicateTo) {}
    fn tick(&mut self) -> Result<(), Stop> {
        let is_over = self.time_limit == TimeLimit::Limited
            && self.engine.clock.elapsed(self.since) > TIMEOUT;
        if is_over { Err(Stop) } else { Ok(()) }
    }
}

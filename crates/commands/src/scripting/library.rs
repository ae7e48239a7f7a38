//! Making libraries of their source.

use engine::scripts::{Function, Learned, Library, LoadError, load_library};
use engine::{Cx, Engine, Error};
use script::shebang::parse_library;
use std::convert::Infallible;
use std::sync::Arc;

/// Reads, compiles and runs the text of a library. It is not added.
///
/// # Errors
/// What is wrong with it.
pub(super) fn make(
    cx: &mut Cx<'_>,
    source: &[u8],
    replaces: bool,
    is_limited: bool,
) -> Result<Library, Error> {
    let (name, code) =
        parse_library(source).map_err(|text| Error::format(format!("ERR {text}")))?;
    let code_at = source.len() - code.len();
    let functions = &cx.engine.scripts.functions;
    if !replaces && functions.all().iter().any(|library| library.name == name) {
        return Err(add_error(LoadError::LibraryExists(name)));
    }
    let id = functions.next_id();
    let specs = load_library(cx, id, code, is_limited)?;
    let function = |spec| Arc::new(Function { spec, learned: Learned::default() });
    let functions = specs.into_iter().map(function).collect();
    Ok(Library { id, name, source: Box::from(source), code_at, functions })
}

/// The text of a refusal.
pub(super) fn add_error(error: LoadError) -> Error {
    Error::format(match error {
        LoadError::LibraryExists(name) => format!("ERR Library '{name}' already exists"),
        LoadError::FunctionExists(name) => format!("ERR Function {name} already exists"),
    })
}

/// Forgets all libraries.
pub(super) fn forget_all(engine: &Engine) {
    let forgotten: Result<(), Infallible> = engine.scripts.functions.change(|all| {
        *all = Default::default();
        Ok(())
    });
    match forgotten {
        Ok(()) => {}
        Err(never) => match never {},
    }
}

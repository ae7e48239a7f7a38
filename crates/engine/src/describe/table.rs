//! The command table of the engine.

use crate::command::InPlace;
use crate::error::Error;
pub use spec::table::WorldUse;
use spec::{InvalidKeys, Unresolved};

/// A row with what can be worked out from it beforehand.
pub type Resolved = spec::Resolved<InPlace>;

/// The command of the request before.
pub type Recent = spec::Recent<InPlace>;

/// All commands.
pub type CommandTable = spec::CommandTable<InPlace>;

impl From<Unresolved> for Error {
    #[cold]
    fn from(why: Unresolved) -> Error {
        match why {
            Unresolved::Arity(name) => Error::Arity(name.into()),
            Unresolved::Unknown(text) => Error::Bytes(text),
        }
    }
}

impl From<InvalidKeys> for Error {
    fn from(_: InvalidKeys) -> Error {
        Error::text("ERR Invalid arguments specified for command")
    }
}

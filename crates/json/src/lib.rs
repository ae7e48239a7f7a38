//! JSON documents and paths into them. Knows no command and no client.
//!
//! [`Document`] is a value with everything in it; [`Value`] is a part of one, borrowed. A [`Path`] says
//! which parts, a [`Location`] which one. `docs/internals/json.md` has the design.

mod array;
mod document;
mod edit;
mod error;
mod floats;
pub mod location;
mod names;
mod node;
mod number;
mod object;
mod parse;
mod path;
mod thin;
mod value;
mod write;

pub use document::Document;
pub use error::{EditError, ParseError};
pub use floats::FloatType;
pub use location::Location;
pub use number::{NotFinite, Number};
pub use parse::{Limits, MAX_DEPTH};
pub use path::{EvalError, Found, MAX_PATH_LEN, MAX_RECURSIVE_STEPS, Path, PathError, Targets};
pub use value::{Array, Kind, Object, Value};
pub use write::{Layout, write_string};

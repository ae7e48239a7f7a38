//! JSON documents and paths into them. Knows no command and no client.
//!
//! [`Document`] is a value with everything in it; [`Value`] is a part of one, borrowed. A [`Path`]
//! says which parts, a [`Location`] which one. `docs/internals/json.md` has the design.

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
pub mod rdb;
mod slots;
mod thin;
mod value;
mod write;

pub use document::Document;
pub use error::{EditError, ParseError};
pub use location::Location;
pub use number::{FloatType, NotFinite, Number};
pub use parse::Limits;
pub use path::{EvalError, Found, MAX_PATH_LEN, MAX_RECURSIVE_STEPS, Path, PathError, Targets};
pub use value::{Array, Kind, Object, Value};
pub use write::{Layout, write_string};

/// Containers inside each other, at most.
pub const MAX_DEPTH: usize = 128;

/// So many cases of a property, few under Miri.
#[cfg(test)]
fn few_cases(cases: u32) -> proptest::test_runner::Config {
    proptest::test_runner::Config {
        cases: if cfg!(miri) { 4 } else { cases },
        failure_persistence: None,
        ..proptest::test_runner::Config::default()
    }
}

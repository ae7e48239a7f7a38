//! Rules of the house that no lint knows, as tests: they read the sources and say what to do
//! instead.
//!
//! | file | rule |
//! |---|---|
//! | `codes.rs` | each code word of an error is explained in `docs/errors.md` |
//! | `crates.rs` | a crate depends only on crates further down |
//! | `modules.rs` | a module uses only modules further down; circles become fewer |
//! | `methods.rs` | what calls which, where a type's methods are in several modules |
//! | `uncalled.rs` | a public item has a caller outside tests |
//! | `doubled.rs` | a constant is said once |
//! | `documents.rs` | links and paths in documents lead to something |
//! | `map.rs` | ARCHITECTURE.md has a line for each crate and each folder of the large ones |
//! | `lines.rs` | no line is longer than 100 characters |
//! | `engine.rs` | the engine names no command and reads no clock |
//! | `tests_places.rs` | black-box tests are modules of few programs |
//!
//! What does not hold yet is a line of a list in `lists/`. A line that is not needed any more fails
//! the test, too: `BLESS=1 cargo test -p tidy` removes it. Lists never grow that way; a new line is
//! written by hand, with a reason.
//!
//! The sources are read as tokens (`source.rs`), not as syntax: names and paths are enough for
//! these rules, and a parser of the whole language would be a dependency.

#![cfg(test)]
#![allow(clippy::unwrap_used)] // Everything here is a test.

mod codes;
mod crates;
mod documents;
mod doubled;
mod engine;
mod graph;
mod lines;
mod lists;
mod map;
mod methods;
mod modules;
mod source;
mod tests_places;
mod tokens;
mod uncalled;

//! Vector sets: named vectors, found by similarity. See `docs/internals/vectors.md`.
//!
//! - [`VectorSet`]: the graph, its changes and searches.
//! - [`Vector`], [`Quant`]: the forms of vectors.
//! - [`Filter`]: expressions over the attributes of elements.
//! - [`TYPE`]: the row of the type, with its payload.
//!
//! Payloads are hostile by assumption: they are checked before they are used.

mod checks;
mod distance;
mod filter;
mod graph;
mod names;
mod payload;
mod projection;
mod redis_payload;
#[cfg(test)]
mod tests;
mod vector;

pub use filter::{Filter, InvalidFilter};
pub use graph::{Found, MAX_LINKS, Search, VectorSet};
pub use payload::TYPE;
pub use vector::{MAX_DIM, Quant, Vector};

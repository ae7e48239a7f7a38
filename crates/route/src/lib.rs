//! Where a request goes, and how replies of several servers become one.
//!
//! The crate is pure: it has no socket, no clock and no thread. A command's row says how its
//! requests travel (`spec::routing`), [`plan`] makes a [`Plan`] of one request, [`join`] makes one
//! reply of many, [`cursor`] carries a server's number inside a SCAN cursor, [`link`] matches the
//! replies of one shared connection with the requests that were sent on it, and [`code`] has the
//! words in front of errors.
//!
//! A proxy is this crate without local data. A server of a cluster is this crate with its own slots
//! as one of the targets.

pub mod code;
pub mod cursor;
pub mod join;
pub mod link;
pub mod plan;
pub mod raw;
pub mod slots;

pub use join::Joining;
pub use link::Link;
pub use plan::{Piece, Placement, Plan, Request, plan};

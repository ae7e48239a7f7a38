//! Where a request goes, and how replies of several servers become one.
//!
//! The crate is pure: it has no socket, no clock and no thread. [`handling`] says how a command
//! travels, [`plan`] makes a [`Plan`] of one request, [`join`] makes one reply of many, [`cursor`]
//! carries a server's number inside a SCAN cursor, and [`link`] matches the replies of one shared
//! connection with the requests that were sent on it.
//!
//! A proxy is this crate without local data. A server of a cluster is this crate with its own slots
//! as one of the targets.

pub mod cursor;
pub mod handling;
pub mod join;
pub mod link;
pub mod plan;
pub mod raw;
pub mod slots;

pub use handling::{Handling, Local, Session, handling};
pub use join::{Joining, Merge};
pub use link::Link;
pub use plan::{Piece, Placement, Plan, Request, plan};

//! RESP2 and RESP3, as bytes: knows no command, no socket and no keyspace.
//!
//! [`parser`] finds requests in what a client sent, without copying; [`reply`] writes answers into
//! a connection's output buffer.

pub mod parser;
pub mod reply;

pub use parser::{Limits, Parsed, Parser};
pub use reply::{Deferred, Protocol, Reply};

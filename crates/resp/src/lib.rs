//! RESP2 and RESP3, as bytes: knows no command, no socket and no keyspace.
//!
//! [`parser`] finds requests in what a client sent, without copying, and [`plain`] does so for most
//! of them in less time; [`reply`] writes answers into a connection's output buffer, and [`bulk`]
//! what requests and answers have in common.

pub mod bulk;
pub mod parser;
pub mod plain;
pub mod reply;

pub use parser::{KEPT_WORDS, Limits, Parsed, Parser};
pub use plain::plain;
pub use reply::{Deferred, Protocol, Reply};

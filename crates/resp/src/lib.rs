//! RESP2 and RESP3, as bytes: knows no command, no socket and no keyspace.
//!
//! [`parser`] finds requests in what a client sent, without copying, and [`plain`] does so for most
//! of them in less time; [`reply`] writes answers into a connection's output buffer, and [`bulk`]
//! what requests and answers have in common. [`token`] and [`decode`] read the answers of others,
//! [`incoming`] from what has come to a client, as a [`value`]; [`count`] finds where they end and
//! which are errors, for a client that looks at nothing else.
//! [`passage`] follows a request that is too long to be kept, and [`http`] knows requests of HTTP.

pub mod bulk;
pub mod count;
pub mod decode;
pub mod http;
pub mod incoming;
pub mod parser;
pub mod passage;
pub mod plain;
pub mod reply;
pub mod token;
pub mod value;

pub use decode::{Passed, Scanned, Scanner, decode};
pub use incoming::Incoming;
pub use parser::{KEPT_WORDS, Limits, LongWord, Parsed, Parser};
pub use passage::Passage;
pub use plain::plain;
pub use reply::{Deferred, Protocol, Reply};
pub use structs::output::{Output, Part};
pub use token::{Aggregate, InvalidReply, NoToken, ReplyLimits, Token, next_token};
pub use value::Value;

//! What the rows of the command table say, without what runs them: names, numbers of words, flags,
//! keys, arguments, hints and documentation; finding a request's row and its keys.
//!
//! A server runs commands in place; a proxy sends them to others. Both know them from the same
//! rows: a [`Row`] is generic over its [`Runner`], and [`Row::described`] is a row without one.
//!
//! What must *not* be here: a context, a database, a reply, and anything that runs a command.

mod arg;
mod effort;
mod key_spec;
pub mod keys;
mod name;
mod recent;
pub mod routing;
mod row;
pub mod table;

pub use arg::{Arg, ArgKind};
pub use effort::Effort;
pub use key_spec::{Begin, Find, FindKeys, FindPrefixes, InvalidKeys, KeyFlags, KeySpec};
pub use recent::Recent;
pub use routing::{
    About, Applied, Gather, Groups, Local, Merge, Refusal, Routing, Session, Texts, Waits, Way,
};
pub use row::{
    Channels, Databases, FindWords, Flags, Group, NeedsWorld, NotRun, Row, Runner, ScriptName,
    Streamed,
};
pub use table::{CommandTable, Resolved, Unresolved};

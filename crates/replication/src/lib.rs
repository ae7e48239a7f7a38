//! What follows the journal, as state machines without I/O: the files of the append-only log, the
//! stream inside them, when to rewrite it, and the replication protocol.

mod commands;
pub mod failover;
pub mod manifest;
pub mod preallocation;
pub mod primary;
pub mod promise;
pub mod replica;
pub mod rewrite;
pub mod stream;
pub mod vote;
pub mod wire;

pub use commands::Commands;
pub use manifest::{Manifest, ManifestError};
pub use stream::{Corrupt, FileEnd, Item, NO_PLACE, StreamPlace, StreamReader};

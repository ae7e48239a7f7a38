//! Copies data from servers of Redis's protocol to others, and follows the writes.
//!
//! ```text
//!   follow    one transfer: several sources into one target, until it is told to end
//!   source    replication from one primary: its snapshot, then its stream
//!   locate    where the primaries are: a server, a Sentinel group, a Redis Cluster
//!   load      records of a snapshot as requests
//!   apply     requests of a stream at a target that has several shards
//!   target    connections to the shards of a target: pipelines, and what is confirmed
//!   place     redis://user:password@host:port
//! ```
//!
//! A source is never changed. The target belongs to the transfer: what the source does not have is
//! not there. See `docs/internals/transfer.md`.

pub mod apply;
pub mod follow;
pub mod load;
pub mod locate;
pub mod place;
pub mod source;
pub mod target;

//! The journal: one ordered log of effects in memory. The append-only file, replicas and replies
//! that wait until a write is safe all read it. It knows positions, bytes and readers, but no
//! command.
//!
//! | module | content |
//! |---|---|
//! | [`journal`] | positions, appending, kept bytes |
//! | [`reader`] | readers and what happens when one falls behind |
//! | [`history`] | the ids that name a position's history |
//! | [`backlog`] | which bytes are kept, and for how long without a replica |
//! | [`safe`] | up to which position a write has enough copies |
//! | [`entry`] | the encoding of one write |
//! | `stages` | entries that share a reservation |
//!
//! `docs/internals/journal.md` has the design.

pub mod aside;
pub mod backlog;
mod cells;
pub mod entry;
pub mod history;
pub mod journal;
pub mod reader;
pub mod safe;
mod segments;
mod stages;
#[cfg(test)]
mod tests;

pub use aside::Aside;
pub use entry::{Effect, Entry, push_select};
pub use history::{History, HistoryId};
pub use journal::{Journal, NotKept};
pub use reader::{Chunk, IfBehind, Limit, Reader};

/// A place in the journal: the number of bytes of the replication stream before it.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Default, Hash)]
pub struct JournalPos(pub u64);

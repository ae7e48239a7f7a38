//! What follows the journal, as state machines without I/O: the files of the append-only log, the
//! stream inside them, and when to rewrite it.

pub mod manifest;
pub mod preallocation;
pub mod rewrite;
pub mod stream;

pub use manifest::{Manifest, ManifestError};
pub use stream::{Corrupt, FileEnd, Item, StreamReader};

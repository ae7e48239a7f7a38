//! The data structures of the store: they know no command, no clock and no I/O.

pub mod hashing;
pub mod table;

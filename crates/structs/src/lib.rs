//! The data structures of the store: they know no command, no clock and no I/O.

pub mod blob;
pub mod crc16;
pub mod crc64;
pub mod glob;
pub mod hashing;
pub mod intset;
pub mod list;
pub mod listpack;
pub mod lzf;
pub mod numbers;
pub mod random;
pub mod table;

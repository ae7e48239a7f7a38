//! The data structures of the store: they know no command, no clock and no I/O.

pub mod blob;
mod btree;
pub mod cells;
pub mod crc16;
pub mod crc64;
mod either;
pub mod give_way;
pub mod glob;
pub mod hash;
pub mod hashing;
pub mod intset;
pub mod list;
pub mod listpack;
pub mod lzf;
pub mod mapping;
pub mod numbers;
pub mod random;
mod sampling;
mod scan;
pub mod set;
pub mod sha1;
pub mod size_class;
pub mod sync;
pub mod table;
mod watched;
pub mod zset;

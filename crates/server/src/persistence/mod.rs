//! The data set in files.

pub mod aof;
pub mod aof_records;
pub mod check;
mod direct;
pub mod incarnation;
pub mod load;
mod rdb_frame;
pub mod rdb_records;
pub mod save;
pub mod save_points;
pub mod shutdown;
pub mod snapshot_file;
pub mod temporaries;
pub mod tier;
mod unbuffered;
pub mod writable;

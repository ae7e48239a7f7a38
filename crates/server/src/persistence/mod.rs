//! The data set in files.

pub mod check;
pub mod load;
pub mod rdb_file;
pub mod rdb_records;
pub mod save;

//! `dunlin check`: checks files without a server.

mod aof;
mod rdb;

pub use aof::run_check_aof;
pub use rdb::{check_rdb, run_check_rdb, verify_rdb};

//! `dunlin check`: whether files are sound, without a server.

mod rdb;

pub use rdb::{check_rdb, run_check_rdb};

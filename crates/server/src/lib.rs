//! Assembles a server: its connections' handler, files, background threads, start and stop.

mod apply;
mod bus;
mod client_limits;
pub mod cluster;
mod defragment;
pub mod forward;
mod handler;
pub mod host;
pub mod inside;
mod listening;
mod peers;
pub mod persistence;
mod reclaim;
pub mod replication;
mod reports;
mod socket;
pub mod start;
mod title;
pub mod tls;

pub use commands::REDIS_VERSION;
use process::log;
pub use start::run;

//! The server: reactors, connections, files and the process around them. The only crate that does
//! I/O.

mod apply;
mod client_limits;
pub mod handler;
pub mod host;
mod listening;
pub mod net;
mod peers;
pub mod persistence;
pub mod process;
pub mod replication;
mod socket;
pub mod start;
pub mod tls;
mod unsupported;

pub use start::run;

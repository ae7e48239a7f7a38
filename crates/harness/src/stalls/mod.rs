//! What one client's long command does to the latency of everybody else.
//!
//! - [`histogram`] counts latencies;
//! - [`load`] is many connections that each send GET, wait for the answer and send the next;
//! - [`commander`] sends the long commands and reads their replies without looking at them;
//! - [`phases`] is the list of them.

pub mod commander;
pub mod histogram;
pub mod load;
pub mod phases;

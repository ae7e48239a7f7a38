//! What one client's long command does to the latency of everybody else.
//!
//! - [`histogram`] counts latencies;
//! - [`load`] is many connections that each send a request, wait for the answer and send the next;
//! - [`commander`] sends the long commands and reads their replies without looking at them;
//! - [`phases`] is the list of them, [`data`] what they work on.

pub mod commander;
pub mod data;
pub mod histogram;
pub mod load;
pub mod phases;

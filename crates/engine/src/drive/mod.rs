//! What drives an engine: the loop of a thread, repeated history, and what runs beside clients.

pub mod ahead;
pub mod batch;
pub mod defrag;
mod enclosing;
pub mod expire;
pub mod follow;
pub mod replay;
pub mod worker;

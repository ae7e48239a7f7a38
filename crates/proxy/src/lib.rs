//! `dunlin proxy`: one endpoint in front of servers that are not ours.
//!
//! [`config`] reads Twemproxy's file or our own, [`placement`] says which server has a key, [`hub`]
//! is a thread's clients and servers without their sockets, which [`driver`] adds. [`run`] puts it
//! together.

mod admin;
pub mod config;
pub mod driver;
pub mod hub;
mod metrics;
pub mod placement;
pub mod pool;
mod reload;
mod report;
pub mod run;
pub mod stats;
pub mod vocabulary;
mod watch;

pub use run::run;

//! `dunlin proxy`: one endpoint in front of servers that are not ours.
//!
//! [`config`] reads Twemproxy's file or our own, [`driver`] gives the reactor's connections to the
//! hubs of `forward`, `watch` asks sentinels and clusters for their servers, and [`run`] puts it
//! together.

mod admin;
pub mod config;
pub mod driver;
mod metrics;
pub mod policy;
mod reload;
mod report;
pub mod run;
mod watch;

pub use run::run;

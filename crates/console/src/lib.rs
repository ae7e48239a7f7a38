//! The admin port: health, metrics, the API and the console, over HTTP on threads of its own.
//!
//! ```text
//!   browser, Prometheus, kubelet
//!        │ HTTP
//!      web ─ app ─┬─ health
//!                 ├─ metrics ──────────────┐
//!                 ├─ api (routes, OpenAPI) ┼─ access ─ link ── RESP ── the server, by a Host
//!                 └─ assets                │
//!                    history, events ──────┘
//! ```
//!
//! The console is a client of the server: what a user sees and does goes through a connection that
//! has authenticated as that user. It runs inside a server (`admin-port`) and beside any other
//! (`dunlin console --url`); the difference is the [`host::Host`].

mod access;
mod analysis;
mod api;
mod app;
mod assets;
mod auth;
mod blob;
mod events;
mod health;
mod history;
pub mod host;
mod info;
mod jobs;
mod link;
mod metrics;
mod problems;
mod progress;
mod remote;
mod sampler;
mod target;

pub use metrics::scrape;
pub use remote::{authenticate, command, open, order, run};
pub use target::Target;

/// Samples over time, for another admin port.
pub mod samples {
    pub use crate::history::{Fold, History, Sample, Samples};
}

/// The page's files, for another admin port.
pub mod files {
    pub use crate::assets::{File, Shows, send, send_page};
}

use app::{App, Place};
use host::Host;
use std::sync::Arc;

/// Threads that serve HTTP.
const THREADS: usize = 2;

/// Starts the port. It is served until the process ends.
///
/// # Errors
/// The port cannot be opened, or the threads not be started; the text is for the operator.
pub fn start(host: Arc<dyn Host>, bind: &[String], port: u16) -> Result<(), String> {
    start_all(vec![host], bind, port)
}

/// Starts the port of several servers, of which there is at least one. It is served until the
/// process ends.
///
/// # Errors
/// As [`start`].
pub fn start_all(hosts: Vec<Arc<dyn Host>>, bind: &[String], port: u16) -> Result<(), String> {
    let listeners = web::bind(bind, port)?;
    let names: Arc<[String]> = match hosts.len() {
        1 => Arc::default(),
        _ => hosts.iter().map(|host| host.name()).collect(),
    };
    let place = |at| Place { at, names: Arc::clone(&names) };
    let mut apps = hosts.into_iter().enumerate().map(|(at, host)| App::at(host, place(at)));
    let first = apps.next().ok_or("there is no server to show")?;
    let others: Vec<Arc<App>> = apps.collect();
    let runtime = web::start(&first, THREADS, listeners, &app::router(&first, others.clone()))?;
    for app in [vec![first], others].concat() {
        runtime.spawn(sampler::run(app));
    }
    // The process ends without waiting for these threads.
    std::mem::forget(runtime);
    Ok(())
}

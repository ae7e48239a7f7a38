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
mod alerts;
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
mod tell;
mod webhook;

pub use metrics::scrape;
pub use remote::{authenticate, command, open, order, run};
pub use target::Target;

/// Problems that are told by HTTP, for another admin port.
pub mod telling {
    pub use crate::alerts::{Alert, Alerts, Notice, Sight, Status};
    pub use crate::events::Level;
    pub use crate::webhook::{Log, Webhook};
}

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
use webhook::Webhook;

/// Threads that serve HTTP.
const THREADS: usize = 2;

/// The port of a console.
pub struct Port<'a> {
    /// The addresses that it listens on.
    pub bind: &'a [String],
    /// Its number.
    pub number: u16,
    /// The URL that is told of problems; empty if none is.
    pub webhook: &'a str,
    /// Writes what goes wrong there into the log.
    pub log: webhook::Log,
}

/// Starts the port of servers, of which there is at least one. It is served until the process ends.
///
/// # Errors
/// The port cannot be opened, the webhook is none, or the threads cannot be started; the text is
/// for the operator.
pub fn start(hosts: Vec<Arc<dyn Host>>, port: &Port<'_>) -> Result<(), String> {
    let hook = match port.webhook {
        "" => None,
        url => Some(Webhook::start(url, port.log)?),
    };
    let listeners = web::bind(port.bind, port.number)?;
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
        if let Some(hook) = &hook {
            runtime.spawn(tell::run(Arc::clone(&app), hook.clone()));
        }
        runtime.spawn(sampler::run(app));
    }
    // The process ends without waiting for these threads.
    std::mem::forget(runtime);
    Ok(())
}

//! The admin port: health, metrics, the API and the console, over HTTP on threads of its own.
//!
//! ```text
//!   browser, Prometheus, kubelet
//!        │ HTTP
//!   listen ─ app ─┬─ health
//!                 ├─ metrics ──────────────┐
//!                 ├─ api (routes, OpenAPI) ┼─ access ─ link ── RESP ── the server, by a Host
//!                 └─ assets                │
//!                    history, events ──────┘
//! ```
//!
//! The console is a client of the server: what a user sees and does goes through a connection that has
//! authenticated as that user. It runs inside a server (`admin-port`) and beside any other
//! (`dunlin console --url`); the difference is the [`host::Host`].

mod access;
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
mod listen;
mod metrics;
mod problems;
mod remote;
mod reply;
mod sampler;

pub use remote::run;

use app::App;
use host::Host;
use std::sync::Arc;

/// Threads that serve HTTP.
const THREADS: usize = 2;

/// Starts the port. It is served until the process ends.
///
/// # Errors
/// The port cannot be opened, or the threads not be started; the text is for the operator.
pub fn start(host: Arc<dyn Host>, bind: &[String], port: u16) -> Result<(), String> {
    let listeners = listen::bind(bind, port)?;
    let beginner = Arc::clone(&host);
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(THREADS)
        .max_blocking_threads(THREADS)
        .thread_name("admin")
        .on_thread_start(move || beginner.begin_thread())
        .enable_all()
        .build()
        .map_err(|error| format!("Can't start the threads of the admin port: {error}"))?;
    let app = App::new(host);
    runtime.spawn(sampler::run(Arc::clone(&app)));
    for listener in listeners {
        if let Ok(address) = listener.local_addr() {
            app.host.log(&format!("Admin port: listening on {address}"));
        }
        runtime.spawn(listen::serve(listener, Arc::clone(&app), app::router(&app)));
    }
    // The process ends without waiting for these threads.
    std::mem::forget(runtime);
    Ok(())
}

//! HTTP for people and probes: ports, threads, TLS, and what holds for every request and answer.
//!
//! ```text
//!   listen   sockets, TLS, connections
//!   places   how many connections and requests there can be at a time
//!   gate     requests of foreign pages, limits of bodies
//!   audit    changes by requests, noted
//!   login    passwords, cookies, and a limit of guesses
//!   rest     routes with the types that describe them, and their document
//! ```
//!
//! The admin ports of a server, of a node and of the proxy are [`Site`]s with routes of their own.

mod audit;
mod gate;
mod listen;
pub mod login;
mod names;
mod places;
pub mod rest;

pub use audit::{Why, note_user};
pub use gate::{Probes, Read, SMALL_BODY, Unread, read};
pub use listen::bind;
pub use names::{COPY_METRICS, METRICS, is_trusted_name};

use axum::Router;
use axum::http::{HeaderValue, header};
use axum::middleware::from_fn_with_state;
use axum::response::Response;
use process::audit::Source;
use rustls::ServerConfig;
use std::net::{SocketAddr, TcpListener};
use std::sync::Arc;
use tokio::runtime::Runtime;

/// The connection that a request comes by: an extension of each.
#[derive(Clone, Copy, Debug)]
pub struct Peer {
    /// The address of the other side.
    pub address: SocketAddr,
    /// The address of this side.
    pub local: Option<SocketAddr>,
    /// The other side has shown a certificate, which was checked.
    pub has_certificate: bool,
}

/// What a port needs of its owner.
pub trait Site: Send + Sync + 'static {
    /// The certificates of the port, if it speaks TLS; asked for each connection.
    fn tls(&self) -> Option<Arc<ServerConfig>>;

    /// Paths that are answered whatever else is served.
    fn probes(&self) -> Probes;

    /// What the audit log calls the port; `None` if nothing can be changed by it.
    fn audited_as(&self) -> Option<Source> {
        None
    }

    /// Prepares a thread.
    fn begin_thread(&self) {}

    /// Writes a line into the log.
    fn log(&self, line: &str);
}

/// Threads that wait on behalf of requests there can be. They begin when they are needed.
const MAX_WAITING_THREADS: usize = 128;

/// Starts to serve `router` on open ports, with so many threads. It is served for as long as the
/// runtime exists.
///
/// # Errors
/// The threads cannot be started; the text is for the operator.
pub fn start<S: Site>(
    site: &Arc<S>,
    threads: usize,
    listeners: Vec<TcpListener>,
    router: &Router,
) -> Result<Runtime, String> {
    let beginner = Arc::clone(site);
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(threads)
        .max_blocking_threads(MAX_WAITING_THREADS)
        .thread_name("admin")
        .on_thread_start(move || beginner.begin_thread())
        .enable_all()
        .build()
        .map_err(|error| format!("Can't start the threads of the admin port: {error}"))?;
    let places = places::Places::new();
    let router = match site.audited_as().filter(|_| process::audit::is_on()) {
        Some(source) => router.clone().layer(from_fn_with_state(source, audit::note)),
        None => router.clone(),
    };
    let router = router.layer(from_fn_with_state(site.probes(), gate::pass));
    for listener in listeners {
        if let Ok(address) = listener.local_addr() {
            site.log(&format!("Admin port: listening on {address}"));
        }
        runtime.spawn(listen::serve(
            listener,
            Arc::clone(site),
            Arc::clone(&places),
            router.clone(),
        ));
    }
    Ok(runtime)
}

/// Gives an answer the headers that all have: none loads anything from elsewhere, is shown in a
/// foreign page, is taken for another type, or kept unless it says so.
pub fn secure(response: &mut Response) {
    let headers = response.headers_mut();
    for (name, value) in HEADERS {
        headers.insert(name, HeaderValue::from_static(value));
    }
    headers.entry(header::CACHE_CONTROL).or_insert(HeaderValue::from_static("no-store"));
}

const HEADERS: [(header::HeaderName, &str); 4] = [
    (
        header::CONTENT_SECURITY_POLICY,
        "default-src 'self'; frame-ancestors 'none'; base-uri 'none'; form-action 'self'",
    ),
    (header::X_CONTENT_TYPE_OPTIONS, "nosniff"),
    (header::X_FRAME_OPTIONS, "DENY"),
    (header::REFERRER_POLICY, "no-referrer"),
];

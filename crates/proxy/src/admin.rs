//! The admin port: probes, metrics, and a page with what there is. HTTP itself is [`web`]'s.

use crate::reload::Service;
use crate::{config, metrics};
use axum::Router;
use axum::extract::{Request, State};
use axum::http::{StatusCode, header};
use axum::middleware::{self, Next};
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use rustls::ServerConfig;
use std::sync::Arc;
use web::Peer;

/// Threads that serve HTTP.
const THREADS: usize = 1;

struct Admin {
    service: Arc<Service>,
    /// Whether all addresses may see what is not a probe.
    is_open: bool,
    /// Names under which it answers, with blanks between them.
    names: String,
    is_draining: fn() -> bool,
}

impl web::Site for Admin {
    fn tls(&self) -> Option<Arc<ServerConfig>> {
        None
    }

    fn probes(&self) -> web::Probes {
        &["/healthz", "/readyz", "/metrics"]
    }

    fn log(&self, line: &str) {
        (self.service.common.log)(line);
    }
}

/// Serves `address`, a host and a port, until the process ends.
///
/// # Errors
/// It cannot; the text is for the operator.
pub fn start(
    service: &Arc<Service>,
    config: &config::Admin,
    is_draining: fn() -> bool,
) -> Result<(), String> {
    let (address, is_open, names) = (&config.address, config.is_open, config.names.join(" "));
    let (host, port) = address.rsplit_once(':').ok_or("'admin' is a host and a port")?;
    let host = host.trim_start_matches('[').trim_end_matches(']').to_owned();
    let port = port.parse().map_err(|_| format!("'admin': {port} is no port"))?;
    let listeners = web::bind(&[host], port)?;
    let admin = Arc::new(Admin { service: service.clone(), is_open, names, is_draining });
    let router = Router::new()
        .route("/healthz", get(|| async { "ok\n" }))
        .route("/readyz", get(ready))
        .route("/metrics", get(expose))
        .route("/", get(page))
        .fallback(|| async { (StatusCode::NOT_FOUND, "Not found\n") })
        .layer(middleware::from_fn_with_state(admin.clone(), guard))
        .with_state(admin.clone());
    let runtime = web::start(&admin, THREADS, listeners, &router)?;
    // The process ends without waiting for these threads.
    std::mem::forget(runtime);
    Ok(())
}

const CLOSED: &str =
    "The admin port answers this only to the same machine, unless 'admin_open' is set.\n";

const FOREIGN: &str = "The admin port answers this only to an address, localhost or a name of 'admin_hosts' \
    in the URL, and /metrics to a name without a dot, too.\n";

/// Refuses others than the same machine what is not a probe, and pages elsewhere whose name leads
/// here. Gives every answer its headers.
async fn guard(State(admin): State<Arc<Admin>>, request: Request, next: Next) -> Response {
    let is_local =
        request.extensions().get::<Peer>().is_some_and(|peer| peer.address.ip().is_loopback());
    let path = request.uri().path();
    let is_probe = ["/healthz", "/readyz"].contains(&path);
    let mut response = if !is_probe && !is_local && !admin.is_open {
        (StatusCode::FORBIDDEN, CLOSED).into_response()
    } else if !is_probe && !web::is_trusted_name(request.headers(), path, &admin.names) {
        (StatusCode::FORBIDDEN, FOREIGN).into_response()
    } else {
        next.run(request).await
    };
    web::secure(&mut response);
    response
}

/// Every pool has a server that does not fail, and the proxy is not ending.
async fn ready(State(admin): State<Arc<Admin>>) -> (StatusCode, &'static str) {
    let is_ready = admin.service.common.pools().iter().all(|pool| pool.is_served());
    if is_ready && !(admin.is_draining)() {
        (StatusCode::OK, "ok\n")
    } else {
        (StatusCode::SERVICE_UNAVAILABLE, "not ready\n")
    }
}

async fn expose(State(admin): State<Arc<Admin>>) -> Response {
    let kind = [(header::CONTENT_TYPE, "text/plain; version=0.0.4; charset=utf-8")];
    (kind, metrics::exposition(&admin.service)).into_response()
}

async fn page(State(admin): State<Arc<Admin>>) -> Response {
    let kind = [(header::CONTENT_TYPE, "text/html; charset=utf-8"), (header::REFRESH, "2")];
    (kind, metrics::page(&admin.service)).into_response()
}

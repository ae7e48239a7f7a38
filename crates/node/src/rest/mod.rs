//! The admin port of a node: the interface below `/api/v1/cluster`, metrics, probes and the
//! console.
//!
//! ```text
//!   mod        ports, who is let in, errors
//!   routes     the table of routes, from which requests are answered and the OpenAPI document is
//!              made; `changes`, `bdbs` and `data` add theirs
//!   carry      how a request is planned, carried out once, and named
//!   changes    routes that change a database or a machine while it serves
//!   bdbs       databases with the fields of Redis Enterprise's API
//!   history    what databases and machines did, and how another machine joins
//!   session    who is let in, and browsers that log in
//!   targets    the copies of databases as the console shows a server
//!   work       work of requests that waits for others
//!   threads    what waits for etcd, copies and storages
//!   wire       what requests and answers carry
//!   metrics    what Prometheus reads; `targets` has the series of copies
//! ```

mod bdbs;
pub(crate) mod carry;
pub(crate) mod changes;
pub(crate) mod data;
mod history;
mod metrics;
pub(crate) mod routes;
mod session;
mod targets;
pub(crate) mod threads;
pub(crate) mod wire;
pub(crate) mod work;

use crate::figures::Figures;
use crate::shared::Shared;
use crate::store::Problem;
use axum::Router;
use axum::extract::{Request, State};
use axum::http::{StatusCode, header};
use axum::middleware::{self, Next};
use axum::response::{IntoResponse as _, Response};
use axum::routing::{any, get};
use client::Renewed;
use console::files::Shows;
use process::audit::Source;
use process::log;
use rustls::ServerConfig;
use session::Asked;
use std::net::TcpListener;
use std::sync::Arc;
use std::time::{Duration, Instant};
use targets::Targets;
use threads::{Threads, Waits};
use web::login::{Limiter, Tokens};
use web::rest::{
    ApiError, PREFIX, check_type, find, fingerprint, only_plans, only_reads, request_name, unread,
};
use web::{COPY_METRICS, METRICS, Peer};
use wire::Joining;

/// Threads that serve HTTP.
const THREADS: usize = 2;

/// The user of the interface.
pub const USER: &str = "admin";

/// What all requests share.
#[derive(Clone)]
pub struct Call {
    /// The node.
    pub shared: Arc<Shared>,
    /// What waits for others.
    pub threads: Threads,
    /// What databases and machines did.
    pub figures: Figures,
    /// How another machine joins.
    pub joining: Arc<Joining>,
    /// How the sender names the request: the same again begins nothing new. Perhaps empty.
    pub request_id: String,
    /// What is asked for: two requests that are the same have the same.
    pub what: String,
    /// Only plan it.
    pub dry_run: bool,
}

impl Call {
    /// The request's name, and what it asks for.
    pub fn request(&self) -> (&str, &str) {
        (&self.request_id, &self.what)
    }
}

/// The port.
struct Site {
    call: Call,
    password: Option<String>,
    /// Those of TLS, if the port speaks it.
    rules: Option<Renewed<ServerConfig>>,
    limiter: Limiter,
    /// Those of browsers that have logged in.
    tokens: Tokens,
    /// The copies that pages look at.
    targets: Targets,
    readiness: tokio::sync::Mutex<Option<Readiness>>,
}

/// Why the machine was not ready when it was looked at last, and when that began.
#[derive(Clone)]
struct Readiness {
    began: Instant,
    trouble: Option<String>,
}

impl web::Site for Site {
    fn tls(&self) -> Option<Arc<ServerConfig>> {
        self.rules.as_ref().map(Renewed::current)
    }

    fn probes(&self) -> web::Probes {
        &[PROBES[0], PROBES[1], PROBES[2], METRICS, COPY_METRICS]
    }

    fn audited_as(&self) -> Option<Source> {
        Some(Source::Node)
    }

    fn log(&self, line: &str) {
        log!(Notice, "{line}");
    }
}

impl From<Problem> for ApiError {
    fn from(problem: Problem) -> ApiError {
        let (status, code) = match &problem {
            Problem::Wrong(_) => (StatusCode::UNPROCESSABLE_ENTITY, "WRONG"),
            Problem::Missing(_) => (StatusCode::NOT_FOUND, "NOTFOUND"),
            Problem::Away(_) => (StatusCode::SERVICE_UNAVAILABLE, "AWAY"),
        };
        ApiError::new(status, code, problem.to_string())
    }
}

/// Serves a node on open ports, until the process ends.
///
/// # Errors
/// The threads cannot be started.
pub fn start(
    (shared, figures, joining): (Arc<Shared>, Figures, Joining),
    (password, rules): (Option<String>, Option<Renewed<ServerConfig>>),
    listeners: Vec<TcpListener>,
) -> Result<(), String> {
    let is_encrypted = rules.is_some();
    let (request_id, what, threads) = (String::new(), String::new(), Threads::default());
    let site = Arc::new(Site {
        call: Call {
            shared,
            threads,
            figures,
            joining: Arc::new(joining),
            request_id,
            what,
            dry_run: false,
        },
        password,
        rules,
        limiter: Limiter::default(),
        tokens: Tokens::new(session::COOKIE, is_encrypted),
        targets: Targets::default(),
        readiness: tokio::sync::Mutex::default(),
    });
    let runtime = web::start(&site, THREADS, listeners, &router(&site))?;
    // The process ends without waiting for these threads.
    std::mem::forget(runtime);
    Ok(())
}

/// Paths that say nothing but whether the node works, and are there for all.
const PROBES: [&str; 3] = ["/healthz", "/readyz", "/availability"];

fn router(site: &Arc<Site>) -> Router {
    Router::new()
        .route(PROBES[0], get(|| async { "ok\n" }))
        .route(PROBES[1], get(ready))
        .route(PROBES[2], get(availability))
        .route(METRICS, get(expose))
        .route(COPY_METRICS, get(expose_copies))
        .route("/api/v1/{*path}", any(answer))
        .route("/", get(page))
        .route("/assets/{*path}", get(asset))
        .fallback(|| async { (StatusCode::NOT_FOUND, "Not found\n") })
        .layer(middleware::from_fn_with_state(Arc::clone(site), guard))
        .with_state(Arc::clone(site))
}

/// Lets requests in whose user may make them.
async fn guard(State(site): State<Arc<Site>>, request: Request, next: Next) -> Response {
    let path = request.uri().path();
    let peer = request.extensions().get::<Peer>().map(|peer| peer.address.ip());
    let (headers, method) = (request.headers(), request.method());
    session::note_user(&site, request.extensions(), headers);
    let asked = Asked { headers, path, method, peer };
    let admitted = if PROBES.contains(&path) { Ok(()) } else { session::admit(&site, asked).await };
    match admitted {
        Ok(()) => next.run(request).await,
        Err(error) => session::refuse(&site, error, request.headers()),
    }
}

/// Answers a request for anything below the prefix.
async fn answer(State(site): State<Arc<Site>>, request: Request) -> Response {
    if targets::is_of_copy(request.uri().path()) {
        return targets::answer(&site, request).await;
    }
    match find_and_run(&site, request).await {
        Ok(response) => response,
        Err(error) => error.into_response(),
    }
}

async fn find_and_run(site: &Site, request: Request) -> Result<Response, ApiError> {
    let (parts, body) = request.into_parts();
    let path = parts.uri.path().strip_prefix(PREFIX).unwrap_or_default();
    if path == "/openapi.json" && only_reads(&parts.method) {
        let kind = [(header::CONTENT_TYPE, "application/json")];
        return Ok((kind, routes::document()).into_response());
    }
    if session::is_session(parts.uri.path()) {
        check_type(&parts)?;
        let read = web::read(&parts.extensions, body, web::SMALL_BODY).await;
        let read = read.map_err(|why| unread(&why, web::SMALL_BODY))?;
        return session::answer(site, &parts, &read.bytes).await;
    }
    let route = find(routes::routes(), path, &parts.method)?;
    check_type(&parts)?;
    let read = route.body(&parts, body).await?;
    let body = &read.bytes;
    let query = parts.uri.query().unwrap_or_default();
    let request_id = request_name(&parts.headers)?;
    // Reads have parameters of their own, and plan nothing.
    let dry_run = !only_reads(&parts.method) && only_plans(query)?;
    let what = if request_id.is_empty() { String::new() } else { fingerprint(route, body) };
    let call = Call { request_id, what, dry_run, ..site.call.clone() };
    (route.run)(call, query, body.clone()).await
}

/// How long etcd may take to answer a probe.
const PROBE: Duration = Duration::from_secs(1);

/// All copies of the machine are in step. Requests that come during a look share the next one.
async fn ready(State(site): State<Arc<Site>>) -> Response {
    let arrived = Instant::now();
    let mut last = site.readiness.lock().await;
    let fresh = last.clone().filter(|last| last.began >= arrived);
    let found = match fresh {
        Some(fresh) => fresh,
        None => {
            let began = Instant::now();
            let shared = Arc::clone(&site.call.shared);
            let look = move || Ok(crate::ready::trouble(&shared, &mut shared.store(PROBE)));
            match site.call.threads.run(Waits::Probe, look).await {
                Ok(trouble) => last.insert(Readiness { began, trouble }).clone(),
                Err(error) => return error.into_response(),
            }
        }
    };
    match found.trouble {
        None => (StatusCode::OK, "ok\n").into_response(),
        Some(why) => (StatusCode::SERVICE_UNAVAILABLE, format!("{why}\n")).into_response(),
    }
}

/// Whether a load balancer may send clients of a database to this machine.
async fn availability(State(site): State<Arc<Site>>, request: Request) -> Response {
    let query = request.uri().query().unwrap_or_default().to_owned();
    match routes::availability(site.call.clone(), &query).await {
        Ok(true) => (StatusCode::OK, "ok\n").into_response(),
        Ok(false) => (StatusCode::SERVICE_UNAVAILABLE, "not available\n").into_response(),
        Err(error) => error.into_response(),
    }
}

async fn expose(State(site): State<Arc<Site>>) -> Response {
    let kind = [(header::CONTENT_TYPE, ::metrics::text::CONTENT_TYPE)];
    (kind, metrics::expose(&site.call.shared)).into_response()
}

async fn expose_copies(State(site): State<Arc<Site>>) -> Response {
    let kind = [(header::CONTENT_TYPE, ::metrics::text::CONTENT_TYPE)];
    (kind, targets::expose(&site.call.shared).await).into_response()
}

async fn asset(
    axum::extract::Path(path): axum::extract::Path<String>,
    request: Request,
) -> Response {
    console::files::send(&path, request.headers())
}

async fn page(request: Request) -> Response {
    console::files::send_page(Shows::Cluster, request.headers())
}

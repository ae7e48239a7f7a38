//! What all requests share, the routes, and the rules that hold for every answer.

use crate::access::Access;
use crate::auth::{COOKIE, Session, Sessions};
use crate::events::Events;
use crate::history::History;
use crate::host::{Host, Peer};
use crate::jobs::Jobs;
use crate::sampler::Seen;
use crate::{api, assets, health, metrics};
use axum::Router;
use axum::extract::{Request, State};
use axum::http::StatusCode;
use axum::middleware::{self, Next};
use axum::response::{IntoResponse, Response};
use axum::routing::{any, get};
use process::audit::Source;
use rustls::ServerConfig;
use std::borrow::Cow;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};
use structs::sync::lock;
use tokio::sync::{Semaphore, watch};
use web::METRICS;
use web::login::Limiter;
use web::rest::only_reads;

/// What all requests share.
pub struct App {
    /// The server that is shown.
    pub host: Arc<dyn Host>,
    /// The server, for the console itself.
    pub watch: Access,
    /// Who is logged in.
    pub sessions: Sessions,
    /// Log-ins that failed.
    pub limiter: Limiter,
    /// What the server did.
    pub history: History,
    /// What happened when.
    pub events: Events,
    /// Work in the background.
    pub jobs: Jobs,
    /// The last look at the server.
    pub seen: watch::Sender<Arc<Seen>>,
    /// Places for streams.
    pub streams: Arc<Semaphore>,
    /// Which of the port's servers it is.
    pub place: Place,
    open: Mutex<Option<(Arc<Session>, Instant)>>,
}

/// Which of the servers of a port one is. The first is at the root, the others are below
/// [`FOLDER`].
#[derive(Clone, Default)]
pub struct Place {
    /// Its number, from 0.
    pub at: usize,
    /// The names of all servers; empty if there is only one.
    pub names: Arc<[String]>,
}

/// Streams that there can be at a time.
const MAX_STREAMS: usize = 64;
/// How long it is taken for granted that the default user needs no password.
const OPEN_TIME: Duration = Duration::from_secs(5);

impl App {
    /// For a port that shows `host`.
    pub fn new(host: Arc<dyn Host>) -> Arc<App> {
        App::at(host, Place::default())
    }

    /// For a port that shows `host` among others.
    pub fn at(host: Arc<dyn Host>, place: Place) -> Arc<App> {
        Arc::new(App {
            watch: Access::watching(&host),
            host,
            sessions: Sessions::default(),
            limiter: Limiter::default(),
            history: History::default(),
            events: Events::default(),
            jobs: Jobs::default(),
            seen: watch::Sender::new(Arc::default()),
            streams: Arc::new(Semaphore::new(MAX_STREAMS)),
            place,
            open: Mutex::default(),
        })
    }

    /// The cookie of browsers that have logged in to the server: each server has one of its own.
    pub fn cookie(&self) -> Cow<'static, str> {
        match self.place.at {
            0 => COOKIE.into(),
            at => format!("{COOKIE}-{at}").into(),
        }
    }

    /// The session of the default user, if it was seen lately that this one needs no password.
    pub fn open_session(&self) -> Option<Arc<Session>> {
        let open = lock(&self.open);
        open.as_ref()
            .filter(|(_, since)| since.elapsed() < OPEN_TIME)
            .map(|(session, _)| Arc::clone(session))
    }

    /// Returns whether a page has a stream open.
    pub fn has_streams(&self) -> bool {
        self.streams.available_permits() < MAX_STREAMS
    }

    /// Keeps the session of a default user that needs no password.
    pub fn keep_open_session(&self, session: &Arc<Session>) {
        *lock(&self.open) = Some((Arc::clone(session), Instant::now()));
    }
}

impl web::Site for App {
    fn tls(&self) -> Option<Arc<ServerConfig>> {
        self.host.tls()
    }

    fn probes(&self) -> web::Probes {
        &[PROBES[0], PROBES[1], METRICS]
    }

    fn audited_as(&self) -> Option<Source> {
        Some(Source::Console)
    }

    fn begin_thread(&self) {
        self.host.begin_thread();
    }

    fn log(&self, line: &str) {
        self.host.log(line);
    }
}

/// Paths that say nothing but whether the server works, and are there for all.
const PROBES: [&str; 2] = ["/healthz", "/readyz"];

/// What the paths of servers beyond the first begin with. A number follows.
const FOLDER: &str = "/server/";

/// All that the port answers: for a server, and for `others` below [`FOLDER`].
pub fn router(app: &Arc<App>, others: Vec<Arc<App>>) -> Router {
    let others: Others = others.into();
    let of_others = Router::new()
        .route(&format!("{FOLDER}{{*path}}"), any(answer_for_other))
        .with_state(others);
    Router::new()
        .route(PROBES[0], get(health::alive))
        .route(PROBES[1], get(health::ready))
        .route(METRICS, get(metrics::expose))
        .route("/api/v1/{*path}", any(api::answer))
        .route("/", get(assets::page))
        .route("/assets/{*path}", get(assets::file))
        .with_state(Arc::clone(app))
        .merge(of_others)
        .fallback(not_found)
        .layer(middleware::from_fn_with_state(Arc::clone(app), guard))
}

/// The servers beyond the first.
type Others = Arc<[Arc<App>]>;

/// Answers a request about a server beyond the first: for its page, a file of that, or its API.
async fn answer_for_other(State(others): State<Others>, request: Request) -> Response {
    let path = request.uri().path().to_owned();
    let rest = path.strip_prefix(FOLDER).and_then(|rest| rest.split_once('/'));
    let found = rest.and_then(|(number, rest)| {
        let at = number.parse::<usize>().ok()?.checked_sub(1)?;
        Some((others.get(at)?, rest))
    });
    let Some((app, rest)) = found else { return not_found().await.into_response() };
    if let Some(path) = rest.strip_prefix(API) {
        return api::answer_path(Arc::clone(app), path, request).await;
    }
    match (only_reads(request.method()), rest.strip_prefix("assets/")) {
        (true, Some(file)) => assets::send(file, request.headers()),
        (true, None) if rest.is_empty() => assets::page(request).await,
        _ => not_found().await.into_response(),
    }
}

/// What the paths of the API begin with, below those of a server.
const API: &str = "api/v1";

async fn not_found() -> (StatusCode, &'static str) {
    (StatusCode::NOT_FOUND, "Not found\n")
}

/// Why protected mode refuses a request.
const PROTECTED: &str = "Dunlin is in protected mode: the default user has no password, and this address \
is not of the same machine. Set a password (requirepass), let private networks in \
(protected-mode-private-networks), or turn protected-mode off.\n";

/// Why a client without a certificate is refused.
const NAMELESS: &str = "This server takes only clients with a certificate (tls-auth-clients). Probes of /healthz and \
/readyz need none.\n";

/// Applies protected mode, and asks for certificates.
async fn guard(State(app): State<Arc<App>>, request: Request, next: Next) -> Response {
    let peer = request.extensions().get::<Peer>().copied();
    let is_probe = PROBES.contains(&request.uri().path());
    let refusal = match peer {
        _ if is_probe => None,
        Some(peer) if app.host.demands_certificates() && !peer.has_certificate => Some(NAMELESS),
        Some(peer) if !app.host.refuses(peer) => None,
        _ => Some(PROTECTED),
    };
    match refusal {
        Some(why) => (StatusCode::FORBIDDEN, why).into_response(),
        None => next.run(request).await,
    }
}

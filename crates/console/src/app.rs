//! What all requests share, the routes, and the rules that hold for every answer.

use crate::access::Access;
use crate::auth::{Session, Sessions};
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
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};
use structs::sync::lock;
use tokio::sync::{Semaphore, watch};
use web::METRICS;
use web::login::Limiter;

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
    open: Mutex<Option<(Arc<Session>, Instant)>>,
}

/// Streams that there can be at a time.
const MAX_STREAMS: usize = 64;
/// How long it is taken for granted that the default user needs no password.
const OPEN_TIME: Duration = Duration::from_secs(5);

impl App {
    /// For a port that shows `host`.
    pub fn new(host: Arc<dyn Host>) -> Arc<App> {
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
            open: Mutex::default(),
        })
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

/// All that the port answers.
pub fn router(app: &Arc<App>) -> Router {
    Router::new()
        .route(PROBES[0], get(health::alive))
        .route(PROBES[1], get(health::ready))
        .route(METRICS, get(metrics::expose))
        .route("/api/v1/{*path}", any(api::answer))
        .route("/", get(assets::page))
        .route("/assets/{*path}", get(assets::file))
        .fallback(|| async { (StatusCode::NOT_FOUND, "Not found\n") })
        .layer(middleware::from_fn_with_state(Arc::clone(app), guard))
        .with_state(Arc::clone(app))
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

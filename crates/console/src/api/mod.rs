//! `/api/v1`: the table of routes, from which requests are answered and the OpenAPI document is
//! made.

mod clients;
mod commands;
mod configuration;
mod error;
mod events;
mod jobs;
mod keys;
mod now;
mod openapi;
mod replication;
mod session;
mod slow;
mod stream;
mod terminal;
mod users;

pub use error::{check, of_reply};
pub use keys::prefix_pattern;

use crate::app::App;
use crate::auth::Session;
use crate::host::Peer;
use axum::extract::{Request, State};
use axum::http::Method;
use axum::response::{IntoResponse as _, Response};
use std::sync::{Arc, OnceLock};
use web::rest::{ApiError, PREFIX, check_type, find, only_reads};

/// A request that is let in.
pub struct Call {
    /// What all requests share.
    pub app: Arc<App>,
    /// The user that makes it.
    pub session: Arc<Session>,
}

/// A route whose handler is given a [`Call`].
type Route = web::rest::Route<Call>;

/// All routes.
fn routes() -> &'static [Route] {
    static ROUTES: OnceLock<Vec<Route>> = OnceLock::new();
    ROUTES.get_or_init(|| {
        [
            session::routes(),
            now::routes(),
            keys::routes(),
            jobs::routes(),
            clients::routes(),
            slow::routes(),
            replication::routes(),
            configuration::routes(),
            users::routes(),
            commands::routes(),
            terminal::routes(),
            events::routes(),
            stream::routes(),
        ]
        .into_iter()
        .flatten()
        .collect()
    })
}

/// The OpenAPI document.
pub fn document() -> &'static str {
    static DOCUMENT: OnceLock<String> = OnceLock::new();
    DOCUMENT.get_or_init(|| format!("{:#}\n", openapi::document(routes())))
}

/// Answers a request for anything below the prefix.
pub async fn answer(State(app): State<Arc<App>>, request: Request) -> Response {
    let path = request.uri().path().strip_prefix(PREFIX).unwrap_or_default().to_owned();
    answer_path(app, &path, request).await
}

/// Answers a request for a path below the prefix, wherever the request found it.
pub async fn answer_path(app: Arc<App>, path: &str, request: Request) -> Response {
    match find_and_run(app, path, request).await {
        Ok(response) => response,
        Err(error) => error.into_response(),
    }
}

async fn find_and_run(app: Arc<App>, path: &str, request: Request) -> Result<Response, ApiError> {
    if path == "/openapi.json" && only_reads(request.method()) {
        return Ok(([("content-type", "application/json")], document()).into_response());
    }
    let route = find(routes(), path, request.method())?;
    let peer = request.extensions().get::<Peer>().map(|peer| peer.address.ip());
    let peer = peer.ok_or_else(ApiError::path)?;
    let (parts, body) = request.into_parts();
    check_type(&parts)?;
    if route.is_login {
        let body = route.body(&parts, body).await?;
        return session::log_in(app, peer, &parts, &body.bytes).await;
    }
    let session = session::of_request(&app, peer, &parts).await?;
    web::note_user(&parts.extensions, &session.user);
    if route.path == "/session" && route.method == Method::DELETE {
        return Ok(session::log_out(&app, &parts.headers));
    }
    let read = route.body(&parts, body).await?;
    let query = parts.uri.query().unwrap_or_default();
    (route.run)(Call { app, session }, query, read.bytes.clone()).await
}

/// The session of a request, if it is let in.
///
/// # Errors
/// It is not.
pub async fn session_of(app: &Arc<App>, request: Request) -> Result<Arc<Session>, ApiError> {
    let (parts, _) = request.into_parts();
    let peer =
        parts.extensions.get::<Peer>().map(|peer| peer.address.ip()).ok_or_else(ApiError::path)?;
    session::of_request(app, peer, &parts).await
}

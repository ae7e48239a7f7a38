//! Who makes a request, logging in and out, and what a user may do.

use super::error::check;
use super::{Call, Route};
use crate::app::App;
use crate::auth::Session;
use crate::link::Failure;
use crate::words;
use axum::http::request::Parts;
use axum::http::{HeaderMap, Method, header};
use axum::response::{IntoResponse as _, Response};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::net::IpAddr;
use std::sync::Arc;
use std::time::Instant;
use web::login::{self, Credentials};
use web::rest::{ApiError, Done, Nothing, json, only_reads};

pub fn routes() -> Vec<Route> {
    vec![
        Route::get("/session", "Who is logged in, and what that user may do", show),
        Route::post("/session", "Log in; gives a cookie and the token for changes", never).login(),
        Route::post("/session", "Log out", leave).by(Method::DELETE),
    ]
}

/// What a log-in needs. Without a name the default user is meant.
#[derive(Deserialize, JsonSchema)]
struct Login {
    /// An ACL user.
    #[serde(default)]
    user: String,
    /// The user's password.
    #[serde(default)]
    password: String,
}

/// A session.
#[derive(Serialize, JsonSchema)]
struct Shown {
    /// The ACL user.
    user: String,
    /// Whether it is a browser's, which a cookie leads to.
    kept: bool,
    /// To be sent in the header X-CSRF-Token with every request that is not a GET.
    csrf: String,
    /// The server that is shown, for people.
    server: String,
    /// All servers of the port, for people, if there are several. The first is at the port's root,
    /// others are at server/NUMBER/, counted from 1.
    servers: Vec<String>,
    /// Which of these it is, from 0.
    server_at: usize,
    /// For each command of the console: whether the user may run it.
    can: BTreeMap<&'static str, bool>,
}

/// The commands that the console offers buttons for.
const COMMANDS: [&str; 54] = [
    "info",
    "scan",
    "get",
    "getrange",
    "set",
    "unlink",
    "rename",
    "pexpire",
    "persist",
    "hset",
    "hdel",
    "rpush",
    "lset",
    "sadd",
    "srem",
    "zadd",
    "zrem",
    "xadd",
    "xdel",
    "client|list",
    "client|kill",
    "slowlog|get",
    "slowlog|reset",
    "commandlog|get",
    "latency|latest",
    "latency|reset",
    "config|get",
    "config|set",
    "config|rewrite",
    "config|resetstat",
    "failover",
    "replicaof",
    "acl|list",
    "acl|setuser",
    "acl|deluser",
    "acl|log",
    "acl|save",
    "bgsave",
    "bgrewriteaof",
    "monitor",
    "psubscribe",
    "memory|usage",
    "flushdb",
    "copy",
    "dump",
    "restore",
    "hpexpire",
    "hpersist",
    "json.set",
    "publish",
    "xack",
    "xclaim",
    "xgroup|create",
    "xgroup|destroy",
];

/// The session of a request: of its cookie, of its credentials, or of the default user. The server
/// is asked each time whether it accepts name and password still.
pub async fn of_request(
    app: &Arc<App>,
    peer: IpAddr,
    parts: &Parts,
) -> Result<Arc<Session>, ApiError> {
    let now = Instant::now();
    if let Some(credentials) = login::basic(&parts.headers) {
        web::note_user(&parts.extensions, &credentials.user);
        let known = app.sessions.of_program(&credentials, now);
        let session = authenticate(app, peer, &credentials, known).await?;
        app.sessions.keep_program(&credentials, Arc::clone(&session), now);
        return Ok(session);
    }
    let token = login::value_of(&parts.headers, &app.cookie());
    let found = token.and_then(|token| Some((token, app.sessions.find(token, now)?)));
    let Some((token, session)) = found else { return open_to_all(app, parts).await };
    if !only_reads(&parts.method) {
        let csrf = parts.headers.get("x-csrf-token").and_then(|text| text.to_str().ok());
        if !csrf.is_some_and(|csrf| session.accepts(csrf)) {
            return Err(ApiError::forged("The header X-CSRF-Token is missing or wrong"));
        }
    }
    if session.access.is_open() {
        open_to_all(app, parts).await?;
        return Ok(session);
    }
    match session.access.verify().await {
        Ok(()) => Ok(session),
        Err(failure) => {
            if let Failure::Refused(_) = &failure {
                app.sessions.end(token);
            }
            Err(failure.into())
        }
    }
}

/// The session of the default user, if that user needs no password.
async fn open_to_all(app: &Arc<App>, parts: &Parts) -> Result<Arc<Session>, ApiError> {
    let is_let_in = app.host.standing_user().is_some();
    if !is_let_in
        && !web::is_trusted_name(&parts.headers, parts.uri.path(), &app.host.trusted_names())
    {
        let message = "Without a password the console answers only to an address, localhost or a name \
                       of admin-hosts in the URL, and /metrics to a name without a dot, too";
        return Err(ApiError::new(axum::http::StatusCode::UNAUTHORIZED, "LOGIN", message));
    }
    if let Some(session) = app.open_session() {
        return Ok(session);
    }
    let session = Arc::new(Session::new(&app.host, None));
    let reply = session.access.run(words!["PING"]).await?;
    if reply.error().is_some_and(|text| text.starts_with("NOAUTH")) {
        return Err(ApiError::login());
    }
    app.keep_open_session(&session);
    Ok(session)
}

/// Returns the session of credentials that the server accepts: the known one, or a new one.
async fn authenticate(
    app: &Arc<App>,
    peer: IpAddr,
    credentials: &Credentials,
    known: Option<Arc<Session>>,
) -> Result<Arc<Session>, ApiError> {
    app.limiter.turn(peer, &credentials.user).await?;
    let new = || Arc::new(Session::new(&app.host, Some(credentials.clone())));
    let session = known.unwrap_or_else(new);
    match session.access.verify().await {
        Ok(()) => Ok(session),
        Err(Failure::Refused(why)) => {
            app.limiter.note_failure(peer, &credentials.user);
            app.sessions.forget_program(credentials);
            Err(ApiError::new(axum::http::StatusCode::UNAUTHORIZED, "WRONGPASS", why))
        }
        Err(failure) => Err(failure.into()),
    }
}

/// Answers `POST /session`.
pub async fn log_in(
    app: Arc<App>,
    peer: IpAddr,
    parts: &Parts,
    body: &[u8],
) -> Result<Response, ApiError> {
    let login: Login =
        serde_json::from_slice(body).map_err(|why| ApiError::bad(why.to_string()))?;
    let session = if login.user.is_empty() && login.password.is_empty() {
        open_to_all(&app, parts).await?;
        Arc::new(Session::new(&app.host, None))
    } else {
        let user = if login.user.is_empty() { "default".to_owned() } else { login.user };
        web::note_user(&parts.extensions, &user);
        authenticate(&app, peer, &Credentials { user, password: login.password }, None).await?
    };
    let token = app.sessions.add(Arc::clone(&session), Instant::now());
    let cookie = login::cookie(&app.cookie(), &token, app.host.tls().is_some());
    let mut response = json(&shown(&app, &session).await)?;
    response.headers_mut().insert(header::SET_COOKIE, cookie);
    Ok(response)
}

/// Answers `DELETE /session`.
pub fn log_out(app: &App, headers: &HeaderMap) -> Response {
    if let Some(token) = login::value_of(headers, &app.cookie()) {
        app.sessions.end(token);
    }
    let body = json(&Done::new()).unwrap_or_else(ApiError::into_response);
    ([(header::SET_COOKIE, login::clear(&app.cookie()))], body).into_response()
}

async fn never(_: Call, _: Login) -> Result<Shown, ApiError> {
    Err(ApiError::path())
}

async fn leave(_: Call, _: Nothing) -> Result<Done, ApiError> {
    Err(ApiError::path())
}

async fn show(call: Call, _: Nothing) -> Result<Shown, ApiError> {
    check(call.session.access.run(words!["PING"]).await?).or_else(|error| {
        // A user that may not even do that is logged in nevertheless.
        if error.code() == "NOPERM" { Ok(resp::Value::Null) } else { Err(error) }
    })?;
    Ok(shown(&call.app, &call.session).await)
}

async fn shown(app: &App, session: &Session) -> Shown {
    Shown {
        user: session.user.clone(),
        kept: session.is_kept(),
        csrf: session.csrf().to_owned(),
        server: app.host.name(),
        servers: app.place.names.to_vec(),
        server_at: app.place.at,
        can: permissions(app, &session.user).await,
    }
}

/// What a user may run. The question is the console's own, since the user may not be allowed to
/// ask; where it is not either, all is offered, and the server refuses.
async fn permissions(app: &App, user: &str) -> BTreeMap<&'static str, bool> {
    let requests: Vec<_> = COMMANDS
        .iter()
        .map(|name| {
            let mut request = words!["ACL", "DRYRUN", user];
            request.extend(name.split('|').map(Vec::from));
            // Enough for the arity of any of them.
            request
                .extend(["x", "0", "x", "x", "x"].map(Vec::from).into_iter().take(arguments(name)));
            request
        })
        .collect();
    let replies = app.watch.run_all(&requests).await.unwrap_or_default();
    let is_refused = |at: usize| {
        replies.get(at).is_some_and(|reply| {
            let text = reply.text();
            // Which keys a user may touch is seen when it touches them.
            text.contains("permissions to run") || text.contains("has no permissions to execute")
        })
    };
    COMMANDS.iter().enumerate().map(|(at, &name)| (name, !is_refused(at))).collect()
}

/// Arguments that make a call of a command complete.
fn arguments(name: &str) -> usize {
    match name {
        "info" | "slowlog|get" | "slowlog|reset" | "latency|latest" | "latency|reset"
        | "bgsave" | "config|rewrite" | "config|resetstat" | "failover" | "acl|list"
        | "acl|log" | "acl|save" | "bgrewriteaof" | "monitor" | "flushdb" | "client|list" => 0,
        "scan" | "get" | "unlink" | "persist" | "config|get" | "acl|setuser" | "acl|deluser"
        | "client|kill" | "psubscribe" | "memory|usage" | "dump" => 1,
        "set" | "rename" | "pexpire" | "hdel" | "rpush" | "sadd" | "srem" | "zrem" | "xdel"
        | "config|set" | "replicaof" | "commandlog|get" | "copy" | "publish" | "xgroup|destroy" => {
            2
        }
        "getrange" | "hset" | "lset" | "zadd" | "restore" | "json.set" | "xack"
        | "xgroup|create" => 3,
        "hpexpire" | "xclaim" => 5,
        _ => 4,
    }
}

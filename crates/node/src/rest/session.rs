//! Who may make requests: programs send the password each time, a browser logs in once and shows a
//! cookie from then on, with a secret that only the page knows where something is changed.

use super::{Site, USER};
use axum::http::request::Parts;
use axum::http::{Extensions, HeaderMap, HeaderValue, Method, StatusCode, header};
use axum::response::{IntoResponse as _, Response};
use serde::{Deserialize, Serialize};
use std::net::IpAddr;
use subtle::ConstantTimeEq as _;
use web::Peer;
use web::is_trusted_name;
use web::login::{basic, clear};
use web::rest::{ApiError, Done, PREFIX, json, only_reads};

/// The cookie of a browser that has logged in.
pub const COOKIE: &str = "dunlin-node";

/// Where browsers log in, below the prefix.
const PATH: &str = "/session";

/// The page and its files, which say nothing of the cluster.
fn is_of_page(path: &str) -> bool {
    path == "/" || path.starts_with("/assets/")
}

/// Returns whether a request is one of logging in or out, which need no log-in.
pub fn is_session(path: &str) -> bool {
    path.strip_prefix(PREFIX) == Some(PATH)
}

fn wrong() -> ApiError {
    let text = format!("The user is {USER}, and the password is the node's");
    ApiError::new(StatusCode::UNAUTHORIZED, "WRONGPASS", text)
}

/// What is looked at before a request is let in.
#[derive(Clone, Copy)]
pub struct Asked<'a> {
    /// Its headers.
    pub headers: &'a HeaderMap,
    /// Its path.
    pub path: &'a str,
    /// Its method.
    pub method: &'a Method,
    /// Where it comes from.
    pub peer: Option<IpAddr>,
}

/// Lets a request in.
///
/// # Errors
/// The password is missing or wrong, or the request may be of a page elsewhere.
pub async fn admit(site: &Site, asked: Asked<'_>) -> Result<(), ApiError> {
    let Asked { headers, path, method, peer } = asked;
    if is_of_page(path) || is_session(path) {
        return Ok(());
    }
    let Some(password) = &site.password else { return admit_without(headers, path) };
    let known = site.tokens.csrf_of(headers);
    if let Some(given) = basic(headers) {
        let pair = (&*given.user, &*given.password);
        let peer = peer.ok_or_else(ApiError::path)?;
        return check(site, peer, password, pair, known.is_some()).await;
    }
    let Some(csrf) = known else { return Err(ApiError::login()) };
    let given = headers.get("x-csrf-token").and_then(|text| text.to_str().ok());
    let is_right = given.is_some_and(|given| bool::from(given.as_bytes().ct_eq(csrf.as_bytes())));
    if is_right || only_reads(method) {
        return Ok(());
    }
    Err(ApiError::forged("The header X-CSRF-Token is missing or wrong"))
}

/// Notes for the audit log whose request this is, or whose it says to be.
pub fn note_user(site: &Site, extensions: &Extensions, headers: &HeaderMap) {
    if let Some(given) = basic(headers) {
        web::note_user(extensions, &given.user);
    } else if site.password.is_none() || site.tokens.csrf_of(headers).is_some() {
        web::note_user(extensions, USER);
    }
}

/// Lets a request in where there is no password.
fn admit_without(headers: &HeaderMap, path: &str) -> Result<(), ApiError> {
    // A page elsewhere could have a name of its own lead here.
    if is_trusted_name(headers, path, "") {
        return Ok(());
    }
    let text = "Without a password the node answers only to an address or localhost in the URL, \
                and /metrics to a name without a dot, too";
    Err(ApiError::new(StatusCode::UNAUTHORIZED, "LOGIN", text))
}

/// Compares a name and a password with the node's. Attempts of strangers wait for their turn.
async fn check(
    site: &Site,
    peer: IpAddr,
    password: &str,
    (user, given): (&str, &str),
    is_known: bool,
) -> Result<(), ApiError> {
    if !is_known {
        site.limiter.turn(peer, USER).await?;
    }
    if user == USER && bool::from(given.as_bytes().ct_eq(password.as_bytes())) {
        return Ok(());
    }
    site.limiter.note_failure(peer, USER);
    Err(wrong())
}

/// What a log-in needs.
#[derive(Deserialize)]
struct Login {
    #[serde(default)]
    user: String,
    #[serde(default)]
    password: String,
}

/// A log-in, as that at a server's port is described.
#[derive(Serialize)]
struct Shown<'a> {
    user: &'a str,
    kept: bool,
    csrf: &'a str,
    server: &'a str,
}

fn shown(site: &Site, csrf: &str) -> Result<Response, ApiError> {
    let server = &site.call.shared.cluster;
    json(&Shown { user: USER, kept: true, csrf, server })
}

/// Answers requests for the session: who is logged in, logging in and out.
///
/// # Errors
/// The password is wrong, or the method another.
pub async fn answer(site: &Site, parts: &Parts, body: &[u8]) -> Result<Response, ApiError> {
    let headers = &parts.headers;
    let known = site.tokens.csrf_of(headers);
    let Some(password) = &site.password else {
        admit_without(headers, parts.uri.path())?;
        return shown(site, "");
    };
    if only_reads(&parts.method) {
        return shown(site, &known.ok_or_else(ApiError::login)?);
    }
    let mut response = if parts.method == Method::DELETE {
        site.tokens.end(headers);
        let mut response = json(&Done::new())?;
        response.headers_mut().insert(header::SET_COOKIE, clear(COOKIE));
        response
    } else if parts.method == Method::POST {
        log_in(site, parts, body, password, known.is_some()).await?
    } else {
        return Err(ApiError::method(&["GET", "POST", "DELETE"]));
    };
    response.headers_mut().insert(header::CACHE_CONTROL, HeaderValue::from_static("no-store"));
    Ok(response)
}

async fn log_in(
    site: &Site,
    parts: &Parts,
    body: &[u8],
    password: &str,
    is_known: bool,
) -> Result<Response, ApiError> {
    let login: Login =
        serde_json::from_slice(body).map_err(|why| ApiError::bad(why.to_string()))?;
    let user = if login.user.is_empty() { USER } else { &login.user };
    web::note_user(&parts.extensions, user);
    let peer = parts.extensions.get::<Peer>().map(|peer| peer.address.ip());
    let peer = peer.ok_or_else(ApiError::path)?;
    check(site, peer, password, (user, &login.password), is_known).await?;
    let (cookie, csrf) = site.tokens.add();
    let mut response = shown(site, &csrf)?;
    response.headers_mut().insert(header::SET_COOKIE, cookie);
    Ok(response)
}

/// Returns the answer to a request that is not let in. Programs are told how to send the password;
/// a browser's page asks for it by itself.
pub fn refuse(site: &Site, error: ApiError, headers: &HeaderMap) -> Response {
    let mut response = error.into_response();
    let is_stream = headers.get(header::ACCEPT).is_some_and(|kind| kind == "text/event-stream");
    let is_of_page = headers.contains_key("x-csrf-token") || is_stream;
    if response.status() == StatusCode::UNAUTHORIZED && site.password.is_some() && !is_of_page {
        let scheme = HeaderValue::from_static("Basic realm=\"dunlin node\"");
        response.headers_mut().insert(header::WWW_AUTHENTICATE, scheme);
    }
    response
}

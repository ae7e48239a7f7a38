//! Server-sent events: the overview each second, messages of channels, and what MONITOR shows.

use super::now::{Now, may_watch};
use super::{Call, Route, check};
use crate::app::App;
use crate::link::Link;
use crate::words;
use axum::body::{Body, Bytes};
use axum::http::header;
use axum::response::{IntoResponse as _, Response};
use futures_util::stream;
use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::json;
use std::convert::Infallible;
use std::sync::Arc;
use std::time::{Duration, Instant};
use tokio::sync::OwnedSemaphorePermit;
use web::rest::{ApiError, Nothing};

pub fn routes() -> Vec<Route> {
    vec![
        Route::stream("/stream", "The overview, each second, as server-sent events", overview),
        Route::stream("/subscribe", "Messages of channels, as server-sent events", subscribe),
        Route::stream("/monitor", "What MONITOR shows, as server-sent events", monitor),
    ]
}

/// A browser notices that the server has gone at the latest after this time.
const HEARTBEAT: Duration = Duration::from_secs(10);

/// The longest time that a stream can be limited to: a day.
const MAX_LIMIT: Duration = Duration::from_secs(86_400);

fn respond<S>(events: S) -> Response
where
    S: stream::Stream<Item = Result<Bytes, Infallible>> + Send + 'static,
{
    ([(header::CONTENT_TYPE, "text/event-stream")], Body::from_stream(events)).into_response()
}

fn event(name: &str, data: &str) -> Bytes {
    format!("event: {name}\ndata: {data}\n\n").into()
}

/// A place for a stream; there are few, as each keeps a connection.
fn place(app: &App) -> Result<OwnedSemaphorePermit, ApiError> {
    Arc::clone(&app.streams).try_acquire_owned().map_err(|_| {
        let status = axum::http::StatusCode::SERVICE_UNAVAILABLE;
        ApiError::new(status, "LIMITED", "Too many pages are watching")
    })
}

async fn overview(call: Call, _: Nothing) -> Result<Response, ApiError> {
    may_watch(&call).await?;
    let place = place(&call.app)?;
    let mut seen = call.app.seen.subscribe();
    seen.mark_changed();
    Ok(respond(stream::unfold(
        (seen, call, place, 0_u32),
        |(mut seen, call, place, sent)| async move {
            seen.changed().await.ok()?;
            // The user's rules may have changed, or the user be gone.
            if sent % 30 == 29 {
                call.session.access.verify().await.ok()?;
                may_watch(&call).await.ok()?;
            }
            let document = Now::of(&seen.borrow_and_update().clone());
            let text = serde_json::to_string(&document).ok()?;
            Some((Ok(event("now", &text)), (seen, call, place, sent.wrapping_add(1))))
        },
    )))
}

/// Which channels.
#[derive(Deserialize, JsonSchema)]
struct Channels {
    /// A pattern of channels.
    pattern: String,
}

async fn subscribe(call: Call, channels: Channels) -> Result<Response, ApiError> {
    let request = vec![b"PSUBSCRIBE".to_vec(), channels.pattern.into_bytes()];
    begin(call, request, Limits::default()).await
}

async fn monitor(call: Call, limits: Limits) -> Result<Response, ApiError> {
    begin(call, words!["MONITOR"], limits).await
}

/// When a stream ends by itself.
#[derive(Default, Deserialize, JsonSchema)]
struct Limits {
    /// After so many messages; never if it is not given.
    most: Option<u64>,
    /// After so many milliseconds; never if it is not given.
    ms: Option<u64>,
}

/// Sends a request whose replies do not end, and shows each until a limit is reached.
async fn begin(call: Call, request: Vec<Vec<u8>>, limits: Limits) -> Result<Response, ApiError> {
    let place = place(&call.app)?;
    let mut link = call.session.access.open().await?;
    link.send(&[request]).await?;
    let first = tokio::time::timeout(HEARTBEAT, link.next());
    check(first.await.map_err(|_| crate::link::Failure::Late)??)?;
    let left = limits.most.unwrap_or(u64::MAX);
    let end = limits.ms.map(|ms| Instant::now() + Duration::from_millis(ms).min(MAX_LIMIT));
    let state = (link, call, place, left);
    Ok(respond(stream::unfold(state, move |(mut link, call, place, left)| async move {
        if left == 0 {
            return None;
        }
        let (bytes, count) = next_message(&mut link, end).await?;
        Some((Ok(bytes), (link, call, place, left - count)))
    })))
}

/// Waits for a message, and says by a comment that there is none yet. Returns the event and how
/// many messages it has; nothing at the end.
async fn next_message(link: &mut Link, end: Option<Instant>) -> Option<(Bytes, u64)> {
    let left = end.map(|end| end.saturating_duration_since(Instant::now()));
    if left.is_some_and(|left| left.is_zero()) {
        return None;
    }
    let patience = left.map_or(HEARTBEAT, |left| left.min(HEARTBEAT));
    match tokio::time::timeout(patience, link.next()).await {
        Err(_) => Some((Bytes::from_static(b": still here\n\n"), 0)),
        Ok(Err(_)) => None,
        Ok(Ok(reply)) => {
            let shown = super::terminal::shown(&reply);
            Some((event("message", &json!(shown).to_string()), 1))
        }
    }
}

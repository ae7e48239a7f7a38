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
use tokio::sync::{OwnedSemaphorePermit, mpsc};
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

/// Events that wait for a browser.
const MAX_WAITING: usize = 16;

/// How long a browser may take none of those that wait.
const UNREAD: Duration = Duration::from_secs(10);

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
    let (events, waiting) = mpsc::channel(MAX_WAITING);
    tokio::spawn(async move {
        relay(link, events, &limits).await;
        drop((call, place));
    });
    Ok(respond(stream::unfold(waiting, |mut waiting| async move {
        let bytes = waiting.recv().await?;
        Some((Ok(bytes), waiting))
    })))
}

/// Passes messages on until a limit is reached, the link is lost, or the browser has gone or does
/// not read. The server has the link no longer than that, whether the events are read or not.
async fn relay(mut link: Link, events: mpsc::Sender<Bytes>, limits: &Limits) {
    let end = limits.ms.map(|ms| Instant::now() + Duration::from_millis(ms).min(MAX_LIMIT));
    let mut left = limits.most.unwrap_or(u64::MAX);
    while left > 0 {
        let next = tokio::select! {
            next = next_message(&mut link, end) => next,
            () = events.closed() => return,
        };
        let Some((bytes, count)) = next else { return };
        let rest = end.map(|end| end.saturating_duration_since(Instant::now()));
        let patience = rest.map_or(UNREAD, |rest| rest.min(UNREAD));
        if events.send_timeout(bytes, patience).await.is_err() {
            return;
        }
        left -= count;
    }
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

#[cfg(test)]
mod tests {
    use super::*;
    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
    use tokio::time::timeout;

    const PATIENCE: Duration = Duration::from_secs(60);

    #[tokio::test]
    async fn a_limit_of_time_holds_for_a_browser_that_does_not_read() {
        let (ours, mut theirs) = tokio::io::duplex(1 << 10);
        let (events, mut waiting) = mpsc::channel(MAX_WAITING);
        let limits = Limits { most: None, ms: Some(50) };
        let task = async { relay(Link::new(Box::new(ours)), events, &limits).await };
        let server = async {
            // More than the channel takes. The write fails when the link is dropped.
            while theirs.write_all(b"+message\r\n").await.is_ok() {}
        };
        timeout(PATIENCE, async { tokio::join!(task, server) }).await.expect("the link ends");
        let mut count = 0;
        while let Some(bytes) = waiting.recv().await {
            assert_eq!(bytes, event("message", r#"{"type":"simple","value":"message"}"#));
            count += 1;
        }
        assert_eq!(count, MAX_WAITING, "what waited is still read");
    }

    #[tokio::test]
    async fn a_browser_that_goes_ends_the_link() {
        let (ours, mut theirs) = tokio::io::duplex(1 << 10);
        let (events, waiting) = mpsc::channel(MAX_WAITING);
        let task = tokio::spawn(async move {
            relay(Link::new(Box::new(ours)), events, &Limits::default()).await;
        });
        drop(waiting);
        let read = timeout(PATIENCE, theirs.read(&mut [0])).await.expect("the link ends");
        assert_eq!(read.expect("no error"), 0);
        task.await.expect("it ends");
    }
}

//! `/metrics`: what Prometheus reads. The request runs as the user whose credentials it carries; without any, as the
//! default user.
//!
//! The seam: [`write`] gets a text of INFO and makes the exposition of it.

use crate::api;
use crate::app::{App, Peer};
use crate::info::Info;
use axum::extract::{Request, State};
use axum::http::header;
use axum::response::{IntoResponse as _, Response};
use std::fmt::Write as _;
use std::sync::Arc;

/// Answers a scrape.
pub async fn expose(State(app): State<Arc<App>>, request: Request) -> Response {
    let peer = request.extensions().get::<Peer>().map(|peer| peer.0.ip());
    match api::info_of(&app, peer, request).await {
        Ok(text) => {
            let kind = [(header::CONTENT_TYPE, "text/plain; version=0.0.4; charset=utf-8")];
            (kind, write(&text)).into_response()
        }
        Err(error) => error.into_response(),
    }
}

/// Fields of INFO and their metrics: name, type.
const METRICS: [(&str, &str, &str); 12] = [
    ("uptime_in_seconds", "redis_uptime_in_seconds", "gauge"),
    ("connected_clients", "redis_connected_clients", "gauge"),
    ("blocked_clients", "redis_blocked_clients", "gauge"),
    ("used_memory", "redis_memory_used_bytes", "gauge"),
    ("used_memory_rss", "redis_memory_used_rss_bytes", "gauge"),
    ("maxmemory", "redis_memory_max_bytes", "gauge"),
    ("total_commands_processed", "redis_commands_processed_total", "counter"),
    ("keyspace_hits", "redis_keyspace_hits_total", "counter"),
    ("keyspace_misses", "redis_keyspace_misses_total", "counter"),
    ("expired_keys", "redis_expired_keys_total", "counter"),
    ("evicted_keys", "redis_evicted_keys_total", "counter"),
    ("connected_slaves", "redis_connected_slaves", "gauge"),
];

/// Makes the exposition of a reply to INFO.
fn write(text: &str) -> String {
    let info = Info::parse(text);
    let mut out = String::from("# TYPE redis_up gauge\nredis_up 1\n");
    for (field, name, kind) in METRICS {
        if let Some(value) = info.find(field) {
            // A string takes all.
            let _ = write!(out, "# TYPE {name} {kind}\n{name} {value}\n");
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fields_become_metrics() {
        let text = write("used_memory:5\r\n");
        assert!(
            text.ends_with("# TYPE redis_memory_used_bytes gauge\nredis_memory_used_bytes 5\n")
        );
    }
}

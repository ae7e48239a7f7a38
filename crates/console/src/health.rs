//! `/healthz` and `/readyz`: without a password, and with nothing in them but the answer.

use crate::app::App;
use axum::extract::State;
use axum::http::StatusCode;
use std::sync::Arc;

/// The process is alive and answers.
pub async fn alive() -> &'static str {
    "ok\n"
}

/// The server can do its work. Why it cannot is in no answer: the reader may be anyone.
pub async fn ready(State(app): State<Arc<App>>) -> (StatusCode, &'static str) {
    match app.host.readiness().await {
        Ok(()) => (StatusCode::OK, "ok\n"),
        Err(_) => (StatusCode::SERVICE_UNAVAILABLE, "not ready\n"),
    }
}

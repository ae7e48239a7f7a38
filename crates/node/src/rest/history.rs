//! The interface below `/api/v1/cluster` for what databases and machines did, and for how another
//! machine joins.

use super::Call;
use super::wire::Joining;
use crate::figures::Subject;
use axum::http::StatusCode;
use console::samples::Samples;
use schemars::JsonSchema;
use serde::Deserialize;
use web::rest::{ApiError, Nothing, Route};

/// The routes.
pub fn routes() -> Vec<Route<Call>> {
    vec![
        Route::get("/cluster/history", "Samples of a database or a machine", history),
        Route::get("/cluster/joining", "How another machine joins", joining),
    ]
}

/// Which samples.
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct Window {
    /// The database
    database: Option<String>,
    /// Or the machine
    machine: Option<String>,
    /// Seconds to look back, from 60 to 86400; 3600 if it is not given
    window: Option<u64>,
}

async fn history(call: Call, asked: Window) -> Result<Samples, ApiError> {
    let of = match (asked.database, asked.machine) {
        (Some(name), None) => Subject::Database(name),
        (None, Some(name)) => Subject::Machine(name),
        _ => return Err(ApiError::bad("Name either a database or a machine")),
    };
    let window = asked.window.unwrap_or(3600).clamp(60, 86_400);
    call.figures
        .window(&of, window)
        .ok_or_else(|| ApiError::new(StatusCode::NOT_FOUND, "NOTFOUND", call.figures.absence()))
}

async fn joining(call: Call, _: Nothing) -> Result<Joining, ApiError> {
    Ok(call.joining.as_ref().clone())
}

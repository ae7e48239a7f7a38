//! Work in the background.

use super::{Call, Route};
use crate::jobs::{Progress, Task};
use axum::http::{Method, StatusCode};
use schemars::JsonSchema;
use serde::Deserialize;
use std::sync::Arc;
use web::rest::{ApiError, Done, Nothing};

pub fn routes() -> Vec<Route> {
    vec![
        Route::get("/jobs", "The user's jobs and how they stand", list),
        Route::post(
            "/jobs",
            "Begin a job: count, sum or delete the keys of a prefix, find big or hot keys",
            begin,
        ),
        Route::post("/jobs", "Cancel a job", cancel).by(Method::DELETE),
    ]
}

async fn list(call: Call, _: Nothing) -> Result<Vec<Progress>, ApiError> {
    Ok(call.app.jobs.of(&call.session.user))
}

async fn begin(call: Call, task: Task) -> Result<Progress, ApiError> {
    call.app.jobs.begin(Arc::clone(&call.session), task).ok_or_else(|| {
        ApiError::new(StatusCode::TOO_MANY_REQUESTS, "LIMITED", "Too many jobs run: wait for one")
    })
}

/// A job.
#[derive(Deserialize, JsonSchema)]
struct Which {
    /// Its number.
    id: u64,
}

async fn cancel(call: Call, which: Which) -> Result<Done, ApiError> {
    if call.app.jobs.cancel(&call.session.user, which.id) {
        Ok(Done::new())
    } else {
        Err(ApiError::missing("job"))
    }
}

//! What happened when.

use super::now::may_watch;
use super::{Call, Route};
use crate::events::Event;
use schemars::JsonSchema;
use serde::Deserialize;
use web::rest::ApiError;

pub fn routes() -> Vec<Route> {
    vec![Route::get("/events", "What happened when, the latest last", list)]
}

/// Which events.
#[derive(Deserialize, JsonSchema)]
struct Since {
    /// Those with a higher id; all if it is not given.
    since: Option<u64>,
}

async fn list(call: Call, since: Since) -> Result<Vec<Event>, ApiError> {
    may_watch(&call).await?;
    Ok(call.app.events.since(since.since.unwrap_or(0)))
}

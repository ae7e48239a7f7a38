//! Who is connected.

use super::error::check;
use super::{Call, Route};
use crate::words;
use schemars::JsonSchema;
use serde::Deserialize;
use std::collections::BTreeMap;
use web::rest::{ApiError, Done, Nothing};

pub fn routes() -> Vec<Route> {
    vec![
        Route::get("/clients", "The lines of CLIENT LIST, field by field", list),
        Route::post("/clients/kill", "Close a client's connection", kill),
    ]
}

async fn list(call: Call, _: Nothing) -> Result<Vec<BTreeMap<String, String>>, ApiError> {
    let reply = check(call.session.access.run(words!["CLIENT", "LIST"]).await?)?;
    Ok(reply.text().lines().map(parse).collect())
}

fn parse(line: &str) -> BTreeMap<String, String> {
    let fields = line.split(' ').filter_map(|field| field.split_once('='));
    fields.map(|(name, value)| (name.to_owned(), value.to_owned())).collect()
}

/// A client.
#[derive(Deserialize, JsonSchema)]
struct Client {
    /// Its id.
    id: u64,
}

async fn kill(call: Call, client: Client) -> Result<Done, ApiError> {
    let request = words!["CLIENT", "KILL", "ID", client.id.to_string()];
    if check(call.session.access.run(request).await?)?.integer() == Some(0) {
        return Err(ApiError::missing("client"));
    }
    Ok(Done::new())
}

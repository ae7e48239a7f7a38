//! The overview: what is wrong, what goes on, and what went on.

use super::error::check;
use super::{Call, Route};
use crate::history::{COLUMNS, Group, Percentiles, Samples};
use crate::info::Info;
use crate::problems::{self, Problem};
use crate::progress::Progress;
use crate::sampler::Seen;
use crate::words;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use web::rest::{ApiError, Nothing};

pub fn routes() -> Vec<Route> {
    vec![
        Route::get("/now", "What is wrong and what goes on", now),
        Route::get("/history", "Samples of the last minute to day", history),
        Route::get("/info", "All fields of INFO by section", info),
    ]
}

/// The server at one moment.
#[derive(Serialize, JsonSchema)]
pub struct Now {
    /// Seconds since 1970.
    at: u64,
    /// What is wrong, worst first.
    problems: Vec<Problem>,
    /// The last sample: a value for each column of the history.
    values: BTreeMap<&'static str, f32>,
    /// Latencies in microseconds since the sample before, by group of commands.
    latencies: BTreeMap<&'static str, Percentiles>,
    /// Shares of a core that threads use, by their name.
    threads: BTreeMap<String, f64>,
    /// What takes long.
    progress: Vec<Progress>,
    /// Facts, as INFO gives them.
    facts: BTreeMap<&'static str, String>,
}

/// Fields of INFO that the overview shows.
const FACTS: [&str; 27] = [
    "server_name",
    "redis_version",
    "dunlin_version",
    "valkey_version",
    "role",
    "uptime_in_seconds",
    "tcp_port",
    "process_id",
    "os",
    "io_threads",
    "multiplexing_api",
    "maxmemory_policy",
    "maxclients",
    "connected_clients",
    "blocked_clients",
    "used_memory",
    "used_memory_peak",
    "used_memory_rss",
    "maxmemory",
    "rdb_last_save_time",
    "rdb_changes_since_last_save",
    "aof_enabled",
    "aof_current_size",
    "tier_enabled",
    "tier_value_bytes",
    "mem_fragmentation_ratio",
    "executable",
];

impl Now {
    /// The document of what was seen.
    pub fn of(seen: &Seen) -> Now {
        let info = &seen.info;
        let groups = [("read", Group::Read), ("write", Group::Write), ("other", Group::Other)];
        Now {
            at: seen.at,
            problems: problems::find(seen),
            values: COLUMNS
                .iter()
                .zip(&seen.values)
                .map(|(column, &value)| (column.name, value))
                .collect(),
            latencies: groups
                .into_iter()
                .map(|(name, group)| (name, seen.latencies.percentiles(group)))
                .collect(),
            threads: seen
                .threads
                .iter()
                .map(|thread| (thread.name.clone(), thread.seconds))
                .collect(),
            progress: seen.progress.clone(),
            facts: FACTS
                .into_iter()
                .filter(|name| !info.text(name).is_empty())
                .map(|name| (name, info.text(name).to_owned()))
                .collect(),
        }
    }
}

/// Refuses a user that may not ask for INFO: what the console knows comes from there.
pub async fn may_watch(call: &Call) -> Result<(), ApiError> {
    let reply = call.session.access.run(words!["INFO", "server"]).await?;
    match check(reply) {
        Err(error) if matches!(error.code(), "NOPERM" | "LOGIN") => Err(error),
        // A script that holds the server up is to be seen.
        _ => Ok(()),
    }
}

async fn now(call: Call, _: Nothing) -> Result<Now, ApiError> {
    may_watch(&call).await?;
    let seen = call.app.seen.borrow().clone();
    Ok(Now::of(&seen))
}

/// Which samples.
#[derive(Deserialize, JsonSchema)]
struct Window {
    /// Seconds to look back, from 60 to 86400; 300 if it is not given.
    window: Option<u64>,
}

async fn history(call: Call, window: Window) -> Result<Samples, ApiError> {
    may_watch(&call).await?;
    let window = window.window.unwrap_or(300).clamp(10, 86_400);
    let columns = COLUMNS.iter().map(|column| (column.name, column.unit));
    Ok(call.app.history.answer(window, crate::sampler::now(), columns))
}

/// A field of INFO.
#[derive(Serialize, JsonSchema)]
struct Field {
    /// Its section.
    section: String,
    /// Its name.
    name: String,
    /// Its value.
    value: String,
}

async fn info(call: Call, _: Nothing) -> Result<Vec<Field>, ApiError> {
    let reply = check(call.session.access.run(words!["INFO", "everything"]).await?)?;
    let info = Info::parse(&reply.text());
    let field = |(section, name, value): (&str, &str, &str)| Field {
        section: section.to_owned(),
        name: name.to_owned(),
        value: value.to_owned(),
    };
    Ok(info.all().map(field).collect())
}

//! What was slow: the logs of commands, the latency of commands and of events.

use super::error::check;
use super::{Call, Route};
use crate::blob::Blob;
use crate::info::Info;
use crate::words;
use resp::Value;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use web::rest::{ApiError, Done, Nothing};

pub fn routes() -> Vec<Route> {
    vec![
        Route::get("/slowlog", "Slow commands, or those with large requests or replies", list),
        Route::post("/slowlog/reset", "Forget the log of slow commands", reset),
        Route::get("/latency", "Events that held the server up", latency),
        Route::post("/latency/reset", "Forget these events", reset_latency),
        Route::get("/statistics", "Calls and latencies of each command", statistics),
    ]
}

/// Which log.
#[derive(Deserialize, JsonSchema)]
struct Kind {
    /// `slow`, `large-request` or `large-reply`; `slow` if it is not given.
    kind: Option<String>,
}

/// A command that was logged.
#[derive(Serialize, JsonSchema)]
struct Entry {
    /// Rises with each entry.
    id: i64,
    /// Seconds since 1970.
    at: i64,
    /// Microseconds that it ran, or bytes of its request or reply.
    amount: i64,
    /// The words of the request; long ones are cut by the server.
    words: Vec<Blob>,
    /// The client's address.
    address: String,
    /// The client's name.
    name: String,
}

async fn list(call: Call, kind: Kind) -> Result<Vec<Entry>, ApiError> {
    let request = match kind.kind.as_deref() {
        None | Some("slow") => words!["SLOWLOG", "GET", "128"],
        Some(kind @ ("large-request" | "large-reply")) => words!["COMMANDLOG", "GET", "128", kind],
        Some(_) => return Err(ApiError::bad("kind is slow, large-request or large-reply")),
    };
    let reply = check(call.session.access.run(request).await?)?;
    Ok(reply.items().iter().filter_map(entry).collect())
}

fn entry(reply: &Value) -> Option<Entry> {
    let [id, at, amount, words, rest @ ..] = reply.items() else { return None };
    let text = |at: usize| rest.get(at).map(Value::text).unwrap_or_default();
    Some(Entry {
        id: id.integer().unwrap_or(0),
        at: at.integer().unwrap_or(0),
        amount: amount.integer().unwrap_or(0),
        words: words.items().iter().filter_map(|word| word.bytes().map(Blob::from)).collect(),
        address: text(0),
        name: text(1),
    })
}

async fn reset(call: Call, kind: Kind) -> Result<Done, ApiError> {
    let request = match kind.kind {
        Some(kind) if kind != "slow" => words!["COMMANDLOG", "RESET", kind],
        _ => words!["SLOWLOG", "RESET"],
    };
    check(call.session.access.run(request).await?)?;
    Ok(Done::new())
}

/// An event of the latency monitor.
#[derive(Serialize, JsonSchema)]
struct LatencyEvent {
    /// Its name.
    name: String,
    /// When it was seen last, in seconds since 1970.
    at: i64,
    /// Milliseconds of the last one.
    last_ms: i64,
    /// Milliseconds of the longest one.
    max_ms: i64,
}

async fn latency(call: Call, _: Nothing) -> Result<Vec<LatencyEvent>, ApiError> {
    let reply = check(call.session.access.run(words!["LATENCY", "LATEST"]).await?)?;
    let event = |row: &Value| {
        let [name, at, last, max, ..] = row.items() else { return None };
        Some(LatencyEvent {
            name: name.text(),
            at: at.integer().unwrap_or(0),
            last_ms: last.integer().unwrap_or(0),
            max_ms: max.integer().unwrap_or(0),
        })
    };
    Ok(reply.items().iter().filter_map(event).collect())
}

async fn reset_latency(call: Call, _: Nothing) -> Result<Done, ApiError> {
    check(call.session.access.run(words!["LATENCY", "RESET"]).await?)?;
    Ok(Done::new())
}

/// What one command did since the server started.
#[derive(Serialize, JsonSchema)]
struct Statistics {
    /// The command.
    name: String,
    /// Its calls.
    calls: f64,
    /// Microseconds of all calls.
    usec: f64,
    /// Calls that were refused before they ran.
    rejected: f64,
    /// Calls that failed.
    failed: f64,
    /// Half of the calls took fewer microseconds.
    p50: f64,
    /// 99 of 100 did.
    p99: f64,
    /// 999 of 1000 did.
    p999: f64,
}

async fn statistics(call: Call, _: Nothing) -> Result<Vec<Statistics>, ApiError> {
    let request = words!["INFO", "commandstats", "latencystats"];
    let reply = check(call.session.access.run(request).await?)?;
    let info = Info::parse(&reply.text());
    let rows = info.lines("cmdstat_").map(|(name, line)| {
        let field = format!("latency_percentiles_usec_{name}");
        let latency = info.text(&field).to_owned();
        let percentile = |name: &str| {
            let part =
                latency.split(',').find_map(|part| part.strip_prefix(name)?.strip_prefix('='));
            part.and_then(|value| value.parse().ok()).unwrap_or(0.0)
        };
        Statistics {
            name: name.to_owned(),
            calls: line.number("calls"),
            usec: line.number("usec"),
            rejected: line.number("rejected_calls"),
            failed: line.number("failed_calls"),
            p50: percentile("p50"),
            p99: percentile("p99"),
            p999: percentile("p99.9"),
        }
    });
    Ok(rows.collect())
}

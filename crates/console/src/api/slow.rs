//! What was slow: the logs of commands, the latency of commands and of events.

use super::error::check;
use super::{Call, Route};
use crate::blob::Blob;
use crate::info::{Info, Parts};
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
    /// Bytes of a request on the average.
    request: f64,
    /// 99 of 100 requests had fewer bytes; a power of two.
    request_p99: f64,
    /// Bytes of a reply on the average.
    reply: f64,
    /// 99 of 100 replies had fewer bytes; a power of two.
    reply_p99: f64,
}

/// The average, and the power of two that 99 of 100 values are below, of a histogram of INFO
/// (`calls=3,bytes=90,lt32=2,lt64=3`).
fn sizes(histogram: Parts<'_>) -> (f64, f64) {
    let calls = histogram.number("calls");
    if calls == 0.0 {
        return (0.0, 0.0);
    }
    let bounds = histogram.numbers().filter_map(|(name, below)| {
        let bound = name.strip_prefix("lt")?.parse().ok()?;
        (below >= 0.99 * calls).then_some(bound)
    });
    (histogram.number("bytes") / calls, bounds.fold(f64::INFINITY, f64::min))
}

async fn statistics(call: Call, _: Nothing) -> Result<Vec<Statistics>, ApiError> {
    let request = words!["INFO", "commandstats", "latencystats", "sizestats"];
    let reply = check(call.session.access.run(request).await?)?;
    let info = Info::parse(&reply.text());
    let rows = info.lines("cmdstat_").map(|(name, line)| {
        let percentiles = info.parts(&format!("latency_percentiles_usec_{name}"));
        let (request, request_p99) = sizes(info.parts(&format!("request_bytes_{name}")));
        let (reply, reply_p99) = sizes(info.parts(&format!("reply_bytes_{name}")));
        Statistics {
            name: name.to_owned(),
            calls: line.number("calls"),
            usec: line.number("usec"),
            rejected: line.number("rejected_calls"),
            failed: line.number("failed_calls"),
            p50: percentiles.number("p50"),
            p99: percentiles.number("p99"),
            p999: percentiles.number("p99.9"),
            request,
            request_p99,
            reply,
            reply_p99,
        }
    });
    Ok(rows.collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_are_an_average_and_a_bound() {
        let info =
            Info::parse("request_bytes_set:calls=200,bytes=8000,lt32=197,lt64=199,lt4096=200");
        assert_eq!(sizes(info.parts("request_bytes_set")), (40.0, 64.0));
        assert_eq!(sizes(info.parts("reply_bytes_set")), (0.0, 0.0));
    }
}

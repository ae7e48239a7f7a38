//! The primary, its replicas, and changing who is which.

use super::error::check;
use super::{Call, Route};
use crate::info::Info;
use crate::words;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use web::rest::{ApiError, Done, Nothing};

pub fn routes() -> Vec<Route> {
    vec![
        Route::get("/replication", "The primary and the replicas of the server", show),
        Route::post(
            "/replication/failover",
            "Hand the role of the primary to a replica",
            fail_over,
        ),
        Route::post("/replication/abort", "Stop handing the role over", abort),
        Route::post(
            "/replication/follow",
            "Become a replica of another server, or a primary",
            follow,
        ),
    ]
}

/// The server's place.
#[derive(Serialize, JsonSchema)]
struct Place {
    /// `primary` or `replica`.
    role: &'static str,
    /// The id of the history.
    history: String,
    /// The position in it.
    offset: f64,
    /// The stage of a fail-over; `no-failover` if there is none.
    failover: String,
    /// Bytes that are kept for replicas that come back.
    backlog_bytes: f64,
    /// The server's primary, if it is a replica.
    primary: Option<Primary>,
    /// The server's replicas.
    replicas: Vec<Replica>,
}

/// The primary of a replica.
#[derive(Serialize, JsonSchema)]
struct Primary {
    /// Its address.
    address: String,
    /// Whether the link is up.
    is_up: bool,
    /// Whether the whole data set is being received.
    is_syncing: bool,
    /// Seconds since it was heard; negative if it was not.
    heard_s: f64,
}

/// A replica.
#[derive(Serialize, JsonSchema)]
struct Replica {
    /// Its host.
    host: String,
    /// Its port.
    port: u16,
    /// What it is doing; `online` if it gets the stream.
    state: String,
    /// The position that it has confirmed.
    offset: f64,
    /// Bytes that it is behind.
    behind_bytes: f64,
    /// Seconds since it was heard.
    lag_s: f64,
}

async fn show(call: Call, _: Nothing) -> Result<Place, ApiError> {
    let reply = check(call.session.access.run(words!["INFO", "replication"]).await?)?;
    Ok(place(&Info::parse(&reply.text())))
}

fn place(info: &Info) -> Place {
    let offset = info.number("master_repl_offset");
    let is_replica = info.text("role") == "slave";
    let replica = |(_, line): (&str, crate::info::Parts<'_>)| {
        (!line.text("state").is_empty()).then(|| Replica {
            host: line.text("ip").to_owned(),
            port: line.number("port") as u16,
            state: line.text("state").to_owned(),
            offset: line.number("offset"),
            behind_bytes: (offset - line.number("offset")).max(0.0),
            lag_s: line.number("lag"),
        })
    };
    Place {
        role: if is_replica { "replica" } else { "primary" },
        history: info.text("master_replid").to_owned(),
        offset,
        failover: info.text("master_failover_state").to_owned(),
        backlog_bytes: info.number("repl_backlog_histlen"),
        primary: is_replica.then(|| Primary {
            address: format!("{}:{}", info.text("master_host"), info.text("master_port")),
            is_up: info.text("master_link_status") == "up",
            is_syncing: info.is_on("master_sync_in_progress"),
            heard_s: info.number("master_last_io_seconds_ago"),
        }),
        replicas: info.lines("slave").filter_map(replica).collect(),
    }
}

/// Where the role goes.
#[derive(Deserialize, JsonSchema)]
struct Target {
    /// The replica's host; the one that is furthest if it is not given.
    host: Option<String>,
    /// The replica's port.
    port: Option<u16>,
    /// Milliseconds to wait for the replica; then the role stays. 10000 if it is not given.
    timeout_ms: Option<u64>,
}

async fn fail_over(call: Call, target: Target) -> Result<Done, ApiError> {
    let mut request = words!["FAILOVER"];
    if let (Some(host), Some(port)) = (target.host, target.port) {
        request.extend(words!["TO", host, port.to_string()]);
    }
    request.extend(words!["TIMEOUT", target.timeout_ms.unwrap_or(10_000).to_string()]);
    check(call.session.access.run(request).await?)?;
    Ok(Done::new())
}

async fn abort(call: Call, _: Nothing) -> Result<Done, ApiError> {
    check(call.session.access.run(words!["FAILOVER", "ABORT"]).await?)?;
    Ok(Done::new())
}

/// Another server; without it the server becomes a primary.
#[derive(Deserialize, JsonSchema)]
struct Follow {
    /// Its host.
    host: Option<String>,
    /// Its port.
    port: Option<u16>,
}

async fn follow(call: Call, primary: Follow) -> Result<Done, ApiError> {
    let request = match (primary.host, primary.port) {
        (Some(host), Some(port)) => words!["REPLICAOF", host, port.to_string()],
        (None, None) => words!["REPLICAOF", "NO", "ONE"],
        _ => return Err(ApiError::bad("host and port belong together")),
    };
    check(call.session.access.run(request).await?)?;
    Ok(Done::new())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn replicas_of_a_primary_are_read() {
        let info = Info::parse(
            "role:master\nmaster_repl_offset:100\nslave_read_only:1\nconnected_slaves:1\n\
             slave0:ip=10.0.0.1,port=6380,state=online,offset=90,lag=1\n",
        );
        let place = place(&info);
        assert_eq!((place.role, place.replicas.len()), ("primary", 1));
        assert_eq!(place.replicas[0].behind_bytes, 10.0);
        assert!(place.primary.is_none());
    }
}

//! `/metrics`: what Prometheus reads. The request runs as the user whose credentials it carries;
//! without any, as the default user. What that user may not ask is left out, but INFO, without
//! which there is nothing to say.

use crate::access::Access;
use crate::api;
use crate::app::App;
use crate::host::{Host, ThreadTime};
use crate::link::Words;
use crate::words;
use axum::extract::{Request, State};
use axum::http::header;
use axum::response::{IntoResponse as _, Response};
use metrics::exporter::{self, Answers, Durations, Spike};
use metrics::info::Fields;
use metrics::own;
use metrics::text::{CONTENT_TYPE, Exposition};
use resp::Value;
use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};
use web::rest::ApiError;

/// Answers a scrape.
pub async fn expose(State(app): State<Arc<App>>, request: Request) -> Response {
    let mut out = Exposition::default();
    match ask(&app, request).await {
        Ok(answers) => {
            exporter::write(&mut out, &answers);
            own::write(&mut out, &answers, &threads(app.host.threads()));
        }
        // The server that the console shows is gone; of itself it knows that it is there.
        Err(error) if error.is_of_gateway() => exporter::write_down(&mut out),
        Err(error) => return error.into_response(),
    }
    ([(header::CONTENT_TYPE, CONTENT_TYPE)], out.into_text()).into_response()
}

async fn ask(app: &Arc<App>, request: Request) -> Result<Answers, ApiError> {
    let session = api::session_of(app, request).await?;
    ask_as(&session.access).await
}

async fn ask_as(access: &Access) -> Result<Answers, ApiError> {
    let mut answers = read(access.run_all(&requests()).await?)?;
    // Of others it would be an error, which they would count.
    if answers.info.contains("cluster_enabled:1") {
        answers.cluster = access.run(words!["CLUSTER", "INFO"]).await?.text();
    }
    Ok(answers)
}

/// Returns the series of a server, for a port that is not the server's: `redis_up 0` if there is no
/// answer within `patience`. `threads` finds those of the server's process.
pub async fn scrape(
    host: Arc<dyn Host>,
    patience: Duration,
    threads: fn(u32) -> Vec<(String, f64)>,
) -> String {
    let access = Access::watching(&host);
    let mut out = Exposition::default();
    match tokio::time::timeout(patience, ask_as(&access)).await {
        Ok(Ok(answers)) => {
            exporter::write(&mut out, &answers);
            let process = Fields::parse(&answers.info).text("process_id").parse();
            own::write(&mut out, &answers, &process.map_or_else(|_| Vec::new(), threads));
        }
        Ok(Err(_)) | Err(_) => exporter::write_down(&mut out),
    }
    out.into_text()
}

fn threads(times: Vec<ThreadTime>) -> Vec<(String, f64)> {
    times.into_iter().map(|thread| (thread.name, thread.seconds)).collect()
}

/// Logs of COMMANDLOG, and their names in series.
const LOGS: [(&str, &str); 3] =
    [("slow", "slow"), ("large-request", "large_request"), ("large-reply", "large_reply")];

/// What a scrape asks. [`read`] takes the replies in this order.
fn requests() -> Vec<Words> {
    let mut options = words!["CONFIG", "GET"];
    options.extend(exporter::options().map(Vec::from));
    let first = [
        words!["INFO", "everything"],
        options,
        words!["LATENCY", "LATEST"],
        words!["LATENCY", "HISTOGRAM"],
        words!["SLOWLOG", "LEN"],
        words!["SLOWLOG", "GET", "1"],
    ];
    let lengths = LOGS.map(|(log, _)| words!["COMMANDLOG", "LEN", log]);
    first.into_iter().chain(lengths).collect()
}

fn read(replies: Vec<Value>) -> Result<Answers, ApiError> {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_secs_f64();
    let mut replies = replies.into_iter();
    let info = replies.next().unwrap_or(Value::Null);
    let mut answers = Answers { info: api::check(info)?.text(), now, ..Answers::default() };
    let mut next = || replies.next().unwrap_or(Value::Null);
    answers.config =
        next().pairs().into_iter().map(|(name, value)| (name.text(), value.text())).collect();
    answers.spikes = next().items().iter().filter_map(spike).collect();
    answers.durations = next().pairs().into_iter().map(durations).collect();
    answers.slow_length = integer(&next());
    let latest = next();
    if matches!(latest, Value::Array(_)) {
        let entry = latest.items().first().map_or(&[][..], Value::items);
        let part = |place: usize| entry.get(place).and_then(Value::integer).unwrap_or(0);
        answers.slow_last = Some((part(0), part(2)));
    }
    answers.logs = LOGS.iter().filter_map(|(_, name)| Some((*name, integer(&next())?))).collect();
    Ok(answers)
}

/// An integer, if it is one.
fn integer(reply: &Value) -> Option<i64> {
    matches!(reply, Value::Integer(_)).then(|| reply.integer()).flatten()
}

fn spike(reply: &Value) -> Option<Spike> {
    let [event, at, milliseconds, ..] = reply.items() else { return None };
    let (at, milliseconds) = (at.integer().unwrap_or(0), milliseconds.integer().unwrap_or(0));
    Some(Spike { event: event.text(), at, milliseconds })
}

fn durations((command, figures): (&Value, &Value)) -> Durations {
    let count = |reply: &Value| u64::try_from(reply.integer().unwrap_or(0)).unwrap_or(0);
    let buckets = figures.get("histogram_usec").map(Value::pairs).unwrap_or_default();
    Durations {
        command: command.text(),
        calls: figures.get("calls").map_or(0, count),
        buckets: buckets.iter().map(|(bound, calls)| (count(bound), count(calls))).collect(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn bulk(text: &str) -> Value {
        Value::Bulk(text.into())
    }

    #[test]
    fn what_a_user_may_not_ask_is_left_out() {
        let refusal = || Value::Error(b"NOPERM no".to_vec());
        let mut replies = vec![bulk("# Memory\r\nused_memory:5\r\n")];
        replies.extend((1..requests().len()).map(|_| refusal()));
        let mut out = Exposition::default();
        exporter::write(&mut out, &read(replies).unwrap());
        let text = out.into_text();
        assert!(text.contains("\nredis_memory_used_bytes 5\n"), "{text}");
        assert!(!text.contains("slowlog") && !text.contains("config"), "{text}");
        assert!(read(vec![refusal()]).is_err());
    }

    #[test]
    fn replies_of_both_protocols_are_read() {
        let histogram = Value::Map(vec![(
            bulk("get"),
            Value::Map(vec![
                (bulk("calls"), Value::Integer(3)),
                (bulk("histogram_usec"), Value::Array([1, 1, 2, 3].map(Value::Integer).to_vec())),
            ]),
        )]);
        let entry = Value::Array([7, 0, 2500].map(Value::Integer).to_vec());
        let replies = vec![
            bulk("# Server\r\n"),
            Value::Array(vec![bulk("maxmemory"), bulk("9")]),
            Value::Array(vec![Value::Array(vec![
                bulk("command"),
                Value::Integer(5),
                Value::Integer(20),
                Value::Integer(30),
            ])]),
            histogram,
            Value::Integer(1),
            Value::Array(vec![entry]),
            Value::Integer(4),
        ];
        let answers = read(replies).unwrap();
        assert_eq!(answers.config, [("maxmemory".to_owned(), "9".to_owned())]);
        assert_eq!((answers.spikes[0].at, answers.spikes[0].milliseconds), (5, 20));
        assert_eq!(answers.durations[0].buckets, [(1, 1), (2, 3)]);
        assert_eq!((answers.slow_length, answers.slow_last), (Some(1), Some((7, 2500))));
        assert_eq!(answers.logs, [("slow", 4)]);
    }
}

//! The command line: runs what a user writes, and shows replies with their types.

use super::{Call, Route};
use crate::blob::{Blob, MAX_SHOWN};
use crate::link::{Failure, Link, Words};
use resp::Value;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::time::{Duration, Instant};
use web::rest::ApiError;

/// How long a command may take, which may be one that waits.
const PATIENCE: Duration = Duration::from_secs(60);
/// Values of a reply that are shown.
const MAX_VALUES: usize = 10_000;

pub fn routes() -> Vec<Route> {
    vec![Route::post("/command", "Run a command on the session's own connection", run).of_value()]
}

/// A command, as a line or as words.
#[derive(Deserialize, JsonSchema)]
struct Line {
    /// As it is written for redis-cli, with quotes.
    line: Option<String>,
    /// The words, instead of a line.
    words: Option<Vec<Blob>>,
    /// The database, for a command that neither needs nor changes the session's connection.
    db: Option<u32>,
}

/// What the server replied.
#[derive(Serialize, JsonSchema)]
struct Outcome {
    /// The reply.
    reply: Shown,
    /// Messages that came before it.
    messages: Vec<Shown>,
    /// Microseconds until it came.
    usec: u64,
    /// The database that is selected.
    db: u32,
}

/// A value of a reply, with its type in RESP3.
#[derive(Serialize, JsonSchema)]
#[serde(tag = "type", content = "value", rename_all = "lowercase")]
pub enum Shown {
    /// A status.
    Simple(Blob),
    /// An error.
    Error(String),
    /// An integer, as digits: JavaScript has not all of them.
    Integer(String),
    /// A string.
    Bulk(Blob),
    /// A string with its format.
    Verbatim(Blob),
    /// Null.
    Null,
    /// A double, as it is written.
    Double(String),
    /// A boolean.
    Boolean(bool),
    /// An integer of any length.
    Number(String),
    /// Values in order.
    Array(Vec<Shown>),
    /// Keys with their values.
    Map(Vec<(Shown, Shown)>),
    /// Values without an order.
    Set(Vec<Shown>),
    /// A message.
    Push(Vec<Shown>),
    /// So many values are not shown.
    More(usize),
}

/// A reply, for a page.
pub fn shown(reply: &Value) -> Shown {
    let all = |values: &[Value]| {
        let mut list: Vec<Shown> = values.iter().take(MAX_VALUES).map(shown).collect();
        if values.len() > MAX_VALUES {
            list.push(Shown::More(values.len() - MAX_VALUES));
        }
        list
    };
    let blob = |bytes: &[u8]| Blob::cut(bytes, MAX_SHOWN);
    match reply {
        Value::Simple(text) => Shown::Simple(blob(text)),
        Value::Error(text) => Shown::Error(String::from_utf8_lossy(text).into_owned()),
        Value::Integer(number) => Shown::Integer(number.to_string()),
        Value::Bulk(text) => Shown::Bulk(blob(text)),
        Value::Verbatim(text) => Shown::Verbatim(blob(text)),
        Value::Null => Shown::Null,
        Value::Double(_) => Shown::Double(reply.text()),
        Value::Boolean(is_true) => Shown::Boolean(*is_true),
        Value::BigNumber(_) => Shown::Number(reply.text()),
        Value::Array(values) => Shown::Array(all(values)),
        Value::Set(values) => Shown::Set(all(values)),
        Value::Push(values) => Shown::Push(all(values)),
        Value::Map(pairs) => Shown::Map(
            pairs.iter().take(MAX_VALUES).map(|(key, value)| (shown(key), shown(value))).collect(),
        ),
    }
}

/// Commands whose replies do not end; they have pages of their own.
const ENDLESS: [&str; 6] = ["subscribe", "psubscribe", "ssubscribe", "monitor", "sync", "psync"];

async fn run(call: Call, line: Line) -> Result<Outcome, ApiError> {
    let words = match (line.line, line.words) {
        (Some(line), None) => config::split_words(line.as_bytes())
            .ok_or_else(|| ApiError::bad("A quote is not closed, or text follows it"))?,
        (None, Some(words)) => words.into_iter().map(|word| word.bytes).collect(),
        _ => return Err(ApiError::bad("either line or words")),
    };
    let Some(name) = words.first() else { return Err(ApiError::bad("there is no command")) };
    let name = String::from_utf8_lossy(name).to_ascii_lowercase();
    if ENDLESS.contains(&name.as_str()) {
        return Err(ApiError::bad(format!("{name} has a page of its own: it never ends")));
    }
    if let Some(db) = line.db {
        return run_apart(&call, db, words).await;
    }
    let db = selected(&name, &words);
    let mut place = call.session.terminal.lock().await;
    let mut link = match place.take() {
        Some(link) => link,
        None => call.session.access.open().await?,
    };
    let started = Instant::now();
    let replies = link.ask(&[words], PATIENCE).await?;
    let usec = started.elapsed().as_micros() as u64;
    let reply = replies.into_iter().next().ok_or(Failure::Unreadable("there is none"))?;
    if let (Some(db), None) = (db, reply.error()) {
        link.db = db;
    }
    let outcome = outcome(&mut link, &reply, usec);
    if !matches!(name.as_str(), "quit" | "reset") {
        *place = Some(link);
    }
    Ok(outcome)
}

/// Commands that change the state of a connection, which others of the user's requests share.
const STATEFUL: [&str; 13] = [
    "asking", "auth", "client", "discard", "exec", "hello", "multi", "quit", "readonly", "reset",
    "select", "unwatch", "watch",
];

/// Runs a command on any connection of the user's.
async fn run_apart(call: &Call, db: u32, words: Words) -> Result<Outcome, ApiError> {
    let name = String::from_utf8_lossy(&words[0]).to_ascii_lowercase();
    if STATEFUL.contains(&name.as_str()) {
        return Err(ApiError::bad(format!("{name} needs a connection of its own: leave db out")));
    }
    let started = Instant::now();
    let reply = call.session.access.run_in(db, words).await?;
    let usec = started.elapsed().as_micros() as u64;
    Ok(Outcome { reply: shown(&reply), messages: Vec::new(), usec, db })
}

fn outcome(link: &mut Link, reply: &Value, usec: u64) -> Outcome {
    let messages = std::mem::take(&mut link.pushes);
    Outcome {
        reply: shown(reply),
        messages: messages.iter().map(shown).collect(),
        usec,
        db: link.db,
    }
}

/// The database that a command selects.
fn selected(name: &str, words: &[Vec<u8>]) -> Option<u32> {
    let number = words.get(1).filter(|_| name == "select" && words.len() == 2)?;
    std::str::from_utf8(number).ok()?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn replies_keep_their_types() {
        let reply = Value::Map(vec![(Value::Bulk(b"a".to_vec()), Value::Set(vec![Value::Null]))]);
        let text = serde_json::to_string(&shown(&reply)).unwrap();
        let key = r#"{"type":"bulk","value":"a"}"#;
        let value = r#"{"type":"set","value":[{"type":"null"}]}"#;
        assert_eq!(text, format!(r#"{{"type":"map","value":[[{key},{value}]]}}"#));
    }

    #[test]
    fn long_replies_are_cut() {
        let Shown::Array(values) = shown(&Value::Array(vec![Value::Null; MAX_VALUES + 7])) else {
            panic!("an array")
        };
        assert!(matches!(values.last(), Some(Shown::More(7))));
    }
}

//! The table of commands, for completion.

use super::error::check;
use super::{Call, Route};
use crate::words;
use resp::Value;
use schemars::JsonSchema;
use serde::Serialize;
use web::rest::{ApiError, Nothing};

pub fn routes() -> Vec<Route> {
    vec![Route::get("/commands", "All commands with their arguments", list)]
}

/// A command.
#[derive(Serialize, JsonSchema)]
struct Command {
    /// Its name.
    name: String,
    /// What it does.
    summary: String,
    /// Its group.
    group: String,
    /// Its arguments, as the documentation writes them.
    arguments: String,
}

async fn list(call: Call, _: Nothing) -> Result<Vec<Command>, ApiError> {
    let reply = check(call.session.access.run(words!["COMMAND", "DOCS"]).await?)?;
    let mut commands = Vec::new();
    for (name, row) in reply.pairs() {
        commands.push(command(&name.text(), row));
        for (name, row) in row.get("subcommands").map(Value::pairs).unwrap_or_default() {
            commands.push(command(&name.text().replace('|', " "), row));
        }
    }
    commands.sort_by(|a, b| a.name.cmp(&b.name));
    Ok(commands)
}

fn command(name: &str, row: &Value) -> Command {
    let text = |name: &str| row.get(name).map(Value::text).unwrap_or_default();
    let arguments = row.get("arguments").map(Value::items).unwrap_or_default();
    Command {
        name: name.to_ascii_lowercase(),
        summary: text("summary"),
        group: text("group"),
        arguments: join(arguments, " "),
    }
}

fn join(arguments: &[Value], separator: &str) -> String {
    arguments.iter().map(argument).collect::<Vec<_>>().join(separator)
}

/// An argument as it is written: `[EX seconds]`, `key [key ...]`.
fn argument(row: &Value) -> String {
    let text = |name: &str| row.get(name).map(Value::text).unwrap_or_default();
    let flags = row.get("flags").map(Value::items).unwrap_or_default();
    let has = |flag: &str| flags.iter().any(|other| other.text() == flag);
    let inner = row.get("arguments").map(Value::items).unwrap_or_default();
    let token = text("token");
    let value = match text("type").as_str() {
        "pure-token" => String::new(),
        "oneof" => join(inner, "|"),
        "block" => join(inner, " "),
        _ => text("name"),
    };
    let mut written = [token, value].into_iter().filter(|part| !part.is_empty());
    let (first, second) = (written.next().unwrap_or_default(), written.next());
    let mut written = second.map_or(first.clone(), |second| format!("{first} {second}"));
    if has("multiple") {
        written = format!("{written} [{written} ...]");
    }
    if has("optional") { format!("[{written}]") } else { written }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn map(pairs: &[(&str, Value)]) -> Value {
        let pair = |(name, value): &(&str, Value)| (text(name), value.clone());
        Value::Map(pairs.iter().map(pair).collect())
    }

    fn text(text: &str) -> Value {
        Value::Bulk(text.into())
    }

    #[test]
    fn arguments_are_written_as_the_documentation_does() {
        let optional = Value::Set(vec![text("optional")]);
        let multiple = Value::Set(vec![text("multiple")]);
        let key = map(&[("name", text("key")), ("type", text("key")), ("flags", multiple)]);
        let seconds =
            map(&[("name", text("seconds")), ("token", text("EX")), ("type", text("integer"))]);
        let keep = map(&[
            ("name", text("keep")),
            ("token", text("KEEPTTL")),
            ("type", text("pure-token")),
        ]);
        let one = map(&[
            ("name", text("expiry")),
            ("type", text("oneof")),
            ("flags", optional),
            ("arguments", Value::Array(vec![seconds, keep])),
        ]);
        assert_eq!(join(&[key, one], " "), "key [key ...] [EX seconds|KEEPTTL]");
    }
}

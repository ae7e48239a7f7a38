//! The table of commands, for completion.

use super::error::check;
use super::route::{Nothing, Route};
use super::{ApiError, Call};
use crate::reply::Reply;
use crate::words;
use schemars::JsonSchema;
use serde::Serialize;

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
        for (name, row) in row.get("subcommands").map(Reply::pairs).unwrap_or_default() {
            commands.push(command(&name.text().replace('|', " "), row));
        }
    }
    commands.sort_by(|a, b| a.name.cmp(&b.name));
    Ok(commands)
}

fn command(name: &str, row: &Reply) -> Command {
    let text = |name: &str| row.get(name).map(Reply::text).unwrap_or_default();
    let arguments = row.get("arguments").map(Reply::items).unwrap_or_default();
    Command {
        name: name.to_ascii_lowercase(),
        summary: text("summary"),
        group: text("group"),
        arguments: join(arguments, " "),
    }
}

fn join(arguments: &[Reply], separator: &str) -> String {
    arguments.iter().map(argument).collect::<Vec<_>>().join(separator)
}

/// An argument as it is written: `[EX seconds]`, `key [key ...]`.
fn argument(row: &Reply) -> String {
    let text = |name: &str| row.get(name).map(Reply::text).unwrap_or_default();
    let flags = row.get("flags").map(Reply::items).unwrap_or_default();
    let has = |flag: &str| flags.iter().any(|other| other.text() == flag);
    let inner = row.get("arguments").map(Reply::items).unwrap_or_default();
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

    fn map(pairs: &[(&str, Reply)]) -> Reply {
        let pair = |(name, value): &(&str, Reply)| (text(name), value.clone());
        Reply::Map(pairs.iter().map(pair).collect())
    }

    fn text(text: &str) -> Reply {
        Reply::Bulk(text.into())
    }

    #[test]
    fn arguments_are_written_as_the_documentation_does() {
        let optional = Reply::Set(vec![text("optional")]);
        let multiple = Reply::Set(vec![text("multiple")]);
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
            ("arguments", Reply::Array(vec![seconds, keep])),
        ]);
        assert_eq!(join(&[key, one], " "), "key [key ...] [EX seconds|KEEPTTL]");
    }
}

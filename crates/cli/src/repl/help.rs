//! What is known about commands: asked from the server (COMMAND DOCS), for `help`, completion and
//! hints.

use crate::options::Options;
use crate::session::{Session, emit};
use resp::Value;

/// An argument as it is shown, and what it takes to recognise it.
#[derive(Clone, Debug, PartialEq)]
pub struct Argument {
    /// `[EX seconds|PX milliseconds]`
    pub shown: String,
    /// The words that may begin it: `EX`, `PX`; empty if any value may.
    pub tokens: Vec<String>,
    /// Whether it may be left out.
    pub optional: bool,
    /// Whether it may come again and again.
    pub multiple: bool,
    /// How many words it takes, counted once.
    pub words: usize,
}

/// A command or a subcommand.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Entry {
    /// In upper case: `CLIENT LIST`.
    pub name: String,
    /// Its arguments.
    pub arguments: Vec<Argument>,
    /// One sentence.
    pub summary: String,
    /// The version that brought it.
    pub since: String,
    /// Its group: `string`.
    pub group: String,
}

/// All of them.
#[derive(Clone, Debug, Default)]
pub struct Catalogue {
    entries: Vec<Entry>,
}

impl Catalogue {
    /// Asks the server. What it does not tell is missing.
    pub fn load(session: &mut Session) -> Catalogue {
        let Some(link) = &mut session.link else { return Catalogue::default() };
        let docs = match link.ask(&["COMMAND", "DOCS"]) {
            Ok(reply) if !reply.is_error() => reply,
            Ok(_) => return Catalogue::names(link.ask(&["COMMAND"]).ok()),
            Err(_) => {
                session.link = None;
                return Catalogue::default();
            }
        };
        let mut entries = Vec::new();
        for (name, docs) in docs.pairs() {
            entries.push(entry(name.text().to_uppercase(), docs, ""));
            let group = docs.get("group").map(Value::text).unwrap_or_default();
            let subcommands = docs.get("subcommands").map(Value::pairs).unwrap_or_default();
            for (name, docs) in subcommands {
                let name = name.text().to_uppercase().replacen('|', " ", 1);
                entries.push(entry(name, docs, &group));
            }
        }
        entries.sort_by(|a, b| a.name.cmp(&b.name));
        Catalogue { entries }
    }

    /// Of a server that has no documents: the names.
    fn names(reply: Option<Value>) -> Catalogue {
        let list = reply.as_ref().map(Value::items).unwrap_or_default().iter();
        let names = list.filter_map(|row| Some(row.items().first()?.text().to_uppercase()));
        let mut entries: Vec<_> = names.map(|name| Entry { name, ..Entry::default() }).collect();
        entries.sort_by(|a, b| a.name.cmp(&b.name));
        Catalogue { entries }
    }

    /// Whether nothing is known.
    pub fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    /// The groups, each once.
    fn groups(&self) -> Vec<&str> {
        let mut groups: Vec<_> = self.entries.iter().map(|entry| entry.group.as_str()).collect();
        groups.sort_unstable();
        groups.dedup();
        groups
    }

    /// What a line could be completed to.
    pub fn completions(&self, line: &str) -> Vec<String> {
        let lower = line.to_lowercase();
        if let Some(topic) = lower.strip_prefix("help ") {
            let topic = topic.trim_start();
            let groups = self.groups().into_iter().map(|group| format!("@{group}"));
            let names = self.entries.iter().map(|entry| entry.name.clone());
            return groups
                .chain(names)
                .filter(|known| known.to_lowercase().starts_with(topic))
                .map(|known| format!("help {known}"))
                .collect();
        }
        let fits = |entry: &&Entry| entry.name.to_lowercase().starts_with(&lower);
        self.entries.iter().filter(fits).map(|entry| entry.name.clone()).collect()
    }

    /// The arguments that are still missing from a line.
    pub fn hint(&self, line: &str) -> Option<String> {
        let words = crate::words::split(line.as_bytes())?;
        let words: Vec<String> =
            words.iter().map(|word| String::from_utf8_lossy(word).to_uppercase()).collect();
        let (entry, used) = self.find(&words)?;
        // A word that is being typed counts as soon as a space follows it.
        let complete = line.ends_with(' ');
        let given = &words[used..];
        let given = if complete { given } else { &given[..given.len().saturating_sub(1)] };
        if !complete && words.len() > used {
            return None;
        }
        let missing = missing(&entry.arguments, given);
        let hint = missing.join(" ");
        if hint.is_empty() {
            return None;
        }
        Some(if complete { hint } else { format!(" {hint}") })
    }

    /// The entry that words begin with, the longest name first, and how many words its name has.
    fn find(&self, words: &[String]) -> Option<(&Entry, usize)> {
        (1..=words.len().min(2)).rev().find_map(|count| {
            let name = words[..count].join(" ");
            Some((self.entries.iter().find(|entry| entry.name == name)?, count))
        })
    }

    /// Prints the help of a command, of a group (`@string`), or of help itself.
    pub fn print(&self, options: &Options, topic: &[Vec<u8>]) {
        if topic.is_empty() {
            emit(general(options).as_bytes());
            return;
        }
        if self.is_empty() {
            emit(b"The server that tells about commands cannot be asked.\n");
            return;
        }
        let words: Vec<String> =
            topic.iter().map(|word| String::from_utf8_lossy(word).to_uppercase()).collect();
        let topic = words.join(" ");
        let mut out = String::new();
        if let Some(group) = topic.strip_prefix('@') {
            let members = self.entries.iter();
            let members = members.filter(|entry| entry.group.eq_ignore_ascii_case(group));
            members.for_each(|entry| entry.write(&mut out, false));
        } else {
            let deeper = format!("{topic} ");
            let entries = self.entries.iter();
            entries
                .filter(|entry| entry.name == topic || entry.name.starts_with(&deeper))
                .for_each(|entry| entry.write(&mut out, true));
        }
        emit(format!("{out}\r\n").as_bytes());
    }
}

/// Prints the help of a topic, asking the server about it first.
pub fn print(session: &mut Session, topic: &[Vec<u8>]) {
    let catalogue = if topic.is_empty() { Catalogue::default() } else { Catalogue::load(session) };
    catalogue.print(&session.options, topic);
}

fn general(options: &Options) -> String {
    let (program, server) = (options.flavor.program(), options.flavor.server());
    let version = env!("CARGO_PKG_VERSION");
    let (_, preferences) = options.flavor.preferences();
    format!(
        "{program} {version}
To get help about {server} commands type:
      \"help @<group>\" to get a list of commands in <group>
      \"help <command>\" for help on <command>
      \"help <tab>\" to get a list of possible help topics
      \"quit\" to exit

To set {program} preferences:
      \":set hints\" enable online hints
      \":set nohints\" disable online hints
Set your preferences in ~/{preferences}
"
    )
}

impl Entry {
    fn write(&self, out: &mut String, with_group: bool) {
        let arguments: Vec<_> = self.arguments.iter().map(|part| part.shown.as_str()).collect();
        let arguments = arguments.join(" ");
        *out += &format!("\r\n  \x1b[1m{}\x1b[0m \x1b[90m{arguments}\x1b[0m\r\n", self.name);
        *out += &format!("  \x1b[33msummary:\x1b[0m {}\r\n", self.summary);
        *out += &format!("  \x1b[33msince:\x1b[0m {}\r\n", self.since);
        if with_group {
            *out += &format!("  \x1b[33mgroup:\x1b[0m {}\r\n", self.group);
        }
    }
}

fn entry(name: String, docs: &Value, group: &str) -> Entry {
    let text = |key: &str| docs.get(key).map(Value::text).unwrap_or_default();
    let arguments = docs.get("arguments").map(Value::items).unwrap_or_default();
    let own_group = text("group");
    Entry {
        name,
        arguments: arguments.iter().map(argument).collect(),
        summary: text("summary"),
        since: text("since"),
        group: if own_group.is_empty() { group.to_owned() } else { own_group },
    }
}

/// One argument of COMMAND DOCS.
fn argument(docs: &Value) -> Argument {
    let text = |key: &str| docs.get(key).map(Value::text).unwrap_or_default();
    let flags = docs.get("flags").map(Value::items).unwrap_or_default();
    let is = |flag: &str| flags.iter().any(|known| known.bytes() == Some(flag.as_bytes()));
    let parts = docs.get("arguments").map(Value::items).unwrap_or_default();
    let parts: Vec<Argument> = parts.iter().map(argument).collect();
    let shown: Vec<&str> = parts.iter().map(|part| part.shown.as_str()).collect();
    let (kind, token) = (text("type"), text("token"));
    let display = Some(text("display_text")).filter(|text| !text.is_empty());
    let (body, words) = match kind.as_str() {
        "pure-token" => (String::new(), 0),
        "oneof" => (shown.join("|"), parts.iter().map(|part| part.words).max().unwrap_or(1)),
        "block" => (shown.join(" "), parts.iter().map(|part| part.words).sum()),
        _ => (display.unwrap_or_else(|| text("name")), 1),
    };
    let has_token = docs.get("token").is_some();
    let quoted = if token.is_empty() { "\"\"".to_owned() } else { token.clone() };
    let once = match (has_token, body.is_empty()) {
        (true, true) => quoted.clone(),
        (true, false) => format!("{quoted} {body}"),
        (false, _) => body.clone(),
    };
    let shown = match (is("multiple"), is("multiple_token")) {
        (true, true) => format!("{once} [{once} ...]"),
        (true, false) => format!("{once} [{body} ...]"),
        (false, _) => once,
    };
    let tokens = match kind.as_str() {
        _ if has_token => vec![token],
        "oneof" if parts.iter().all(|part| !part.tokens.is_empty()) => {
            parts.iter().flat_map(|part| part.tokens.clone()).collect()
        }
        "block" => parts.first().map(|part| part.tokens.clone()).unwrap_or_default(),
        _ => Vec::new(),
    };
    Argument {
        shown: if is("optional") { format!("[{shown}]") } else { shown },
        tokens,
        optional: is("optional"),
        multiple: is("multiple"),
        words: words + usize::from(has_token),
    }
}

/// The arguments that given words leave open.
fn missing(arguments: &[Argument], given: &[String]) -> Vec<String> {
    let mut open: Vec<&Argument> = arguments.iter().collect();
    let mut at = 0;
    while at < given.len() {
        let word = &given[at];
        let named = open.iter().position(|argument| argument.tokens.contains(word));
        // A value goes to the first argument that any value may begin.
        let place = named.or_else(|| {
            let required = |argument: &&Argument| argument.tokens.is_empty();
            open.iter().position(required)
        });
        let Some(place) = place else { break };
        at += open[place].words.max(1);
        if open[place].multiple {
            // It may come again; what precedes it may not.
            open.drain(..place);
            if at >= given.len() {
                break;
            }
            let next = &given[at];
            if open.iter().skip(1).any(|argument| argument.tokens.contains(next)) {
                open.remove(0);
            }
        } else if named.is_some() && open[place].optional {
            open.remove(place);
        } else {
            open.drain(..=place);
        }
    }
    open.iter().map(|argument| argument.shown.clone()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn text(text: &str) -> Value {
        Value::Bulk(text.into())
    }

    fn docs(pairs: &[(&str, Value)]) -> Value {
        Value::Map(pairs.iter().map(|(key, value)| (text(key), value.clone())).collect())
    }

    fn value(name: &str) -> Value {
        docs(&[("name", text(name)), ("type", text("string")), ("display_text", text(name))])
    }

    fn set() -> Catalogue {
        let timed = |name: &str, token: &str| {
            docs(&[("name", text(name)), ("type", text("integer")), ("token", text(token))])
        };
        let optional = Value::Array(vec![Value::Simple(b"optional".to_vec())]);
        let expiry = docs(&[
            ("type", text("oneof")),
            ("flags", optional.clone()),
            ("arguments", Value::Array(vec![timed("seconds", "EX"), timed("ms", "PX")])),
        ]);
        let get =
            docs(&[("type", text("pure-token")), ("token", text("GET")), ("flags", optional)]);
        let arguments = Value::Array(vec![value("key"), value("value"), get, expiry]);
        let set = entry("SET".into(), &docs(&[("arguments", arguments)]), "string");
        Catalogue { entries: vec![set] }
    }

    #[test]
    fn arguments_are_shown_as_the_documentation_does() {
        let set = set();
        let shown: Vec<_> = set.entries[0].arguments.iter().map(|a| a.shown.as_str()).collect();
        assert_eq!(shown, ["key", "value", "[GET]", "[EX seconds|PX ms]"]);
    }

    #[test]
    fn hints_shrink_while_arguments_are_typed() {
        let set = set();
        let hint = |line: &str| set.hint(line);
        assert_eq!(hint("set").unwrap(), " key value [GET] [EX seconds|PX ms]");
        assert_eq!(hint("set ").unwrap(), "key value [GET] [EX seconds|PX ms]");
        assert_eq!(hint("set a ").unwrap(), "value [GET] [EX seconds|PX ms]");
        assert_eq!(hint("set a b ").unwrap(), "[GET] [EX seconds|PX ms]");
        assert_eq!(hint("set a b px 3 ").unwrap(), "[GET]");
        assert_eq!(hint("set a b get px 3 "), None);
        assert_eq!(hint("nothing "), None);
    }

    #[test]
    fn names_and_help_topics_are_completed() {
        let set = set();
        assert_eq!(set.completions("se"), ["SET"]);
        assert_eq!(set.completions("help @s"), ["help @string"]);
        assert_eq!(set.completions("help S"), ["help SET"]);
    }
}

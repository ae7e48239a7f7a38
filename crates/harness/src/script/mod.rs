//! Command scripts: plain-text files of requests and the replies they must get.
//!
//! This file reads them; [`run`] runs them, [`bless`] fills in the expectations from a reference
//! server. The format is described for authors in `tests/commands/README.md`.

pub mod behind;
pub mod bless;
pub mod run;
pub mod suite;

use crate::reply::Protocol;
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// A script, read but not yet interpreted: names are only known while it runs.
#[derive(Debug)]
pub struct Script {
    /// Where it was read from.
    pub path: PathBuf,
    /// The file's lines.
    pub lines: Vec<String>,
    /// `# server:` arguments; `Some` asks for a server of its own.
    pub server: Option<Vec<String>>,
    /// `# config:` lines of a configuration file; also asks for a server of its own.
    pub config: Option<String>,
    /// `# only: resp2` or `resp3`.
    pub only: Option<Protocol>,
    /// `# fails: reason`: the server under test is known to fail it.
    pub fails: Option<String>,
    /// What happens, in order.
    pub steps: Vec<Step>,
}

/// One step and what is expected of it.
#[derive(Debug)]
pub struct Step {
    /// Index of its line.
    pub line: usize,
    /// Runs under this protocol only.
    pub only: Option<Protocol>,
    /// What it does.
    pub action: Action,
    /// The replies that are expected, in order.
    pub expected: Vec<Expectation>,
    /// The lines the expectations stand in; empty, at the place where they would be, if none.
    pub expected_lines: Range<usize>,
}

/// One expected reply as it stands in the file.
#[derive(Debug)]
pub struct Expectation {
    /// `resp2:` or `resp3:` before it.
    pub only: Option<Protocol>,
    /// The notation; see [`crate::notation::parse_expect`].
    pub text: String,
}

/// What a step does, on which connection; the texts are as they stand in the file.
#[allow(missing_docs)]
#[derive(Debug, PartialEq)]
pub enum Action {
    /// `> REQUEST` and its replies
    Ask { client: String, request: String },
    /// `>? REQUEST`: asked again until the expected reply comes
    Retry { client: String, request: String },
    /// `>> REQUEST`: sent; waits until it blocks or is answered, reads nothing
    Send { client: String, request: String },
    /// `>raw "bytes"` and the replies
    Raw { client: String, bytes: String },
    /// `<`: reads what has been sent to the client
    Read { client: String },
    /// `NAME close`
    Close { client: String },
    /// `wait 20ms`
    Wait(Duration),
    /// `restart`
    Restart,
    /// `log ~/pattern/`: the server's log has or soon gets such a line
    Log { pattern: String },
}

/// Whether a line starts a step, as opposed to being an expectation.
pub fn is_step(line: &str) -> bool {
    parse_step(line).is_some()
}

fn protocol_prefix(line: &str) -> (Option<Protocol>, &str) {
    for (prefix, protocol) in [("resp2:", Protocol::Resp2), ("resp3:", Protocol::Resp3)] {
        if let Some(rest) = line.strip_prefix(prefix) {
            return (Some(protocol), rest.trim_start());
        }
    }
    (None, line)
}

fn parse_step(line: &str) -> Option<(Option<Protocol>, Action)> {
    let (only, line) = protocol_prefix(line);
    let line = line.trim_end();
    if line == "restart" {
        return Some((only, Action::Restart));
    }
    if let Some(pattern) = line.strip_prefix("log ") {
        let pattern = pattern.strip_prefix("~/")?.strip_suffix('/')?;
        return Some((only, Action::Log { pattern: pattern.to_owned() }));
    }
    if let Some(time) = line.strip_prefix("wait ") {
        return Some((only, Action::Wait(duration(time)?)));
    }
    let name = line.bytes().take_while(|b| b.is_ascii_lowercase() || b.is_ascii_digit()).count();
    let (name, rest) = line.split_at(name);
    let client = if name.is_empty() { "c1".to_owned() } else { name.to_owned() };
    if rest == " close" {
        return Some((only, Action::Close { client }));
    }
    if rest == "<" {
        return Some((only, Action::Read { client }));
    }
    let (mark, request) = rest.split_once(' ')?;
    let request = request.to_owned();
    let action = match mark {
        ">" => Action::Ask { client, request },
        ">?" => Action::Retry { client, request },
        ">>" => Action::Send { client, request },
        ">raw" => Action::Raw { client, bytes: request },
        _ => return None,
    };
    Some((only, action))
}

fn duration(text: &str) -> Option<Duration> {
    match text.strip_suffix("ms") {
        Some(number) => Some(Duration::from_millis(number.parse().ok()?)),
        None => Some(Duration::from_secs_f64(text.strip_suffix('s')?.parse().ok()?)),
    }
}

impl Script {
    /// Reads a script from its file.
    pub fn load(path: &Path) -> Result<Script, String> {
        let text = std::fs::read_to_string(path)
            .map_err(|error| format!("{}: {error}", path.display()))?;
        Script::parse(path, &text)
    }

    /// Reads a script from its text.
    pub fn parse(path: &Path, text: &str) -> Result<Script, String> {
        let lines: Vec<String> = text.lines().map(str::to_owned).collect();
        let mut script = Script {
            path: path.to_owned(),
            lines,
            server: None,
            config: None,
            only: None,
            fails: None,
            steps: Vec::new(),
        };
        let mut at = 0;
        while at < script.lines.len() {
            at = script.line(at).map_err(|why| format!("{}:{}: {why}", path.display(), at + 1))?;
        }
        Ok(script)
    }

    /// Whether it needs a server started for it alone.
    pub fn needs_own_server(&self) -> bool {
        self.server.is_some()
            || self.config.is_some()
            || self.steps.iter().any(|step| step.action == Action::Restart)
    }

    /// Reads the line at `at` and what belongs to it; returns the index of the next one.
    fn line(&mut self, at: usize) -> Result<usize, String> {
        let line = self.lines[at].clone();
        if let Some(comment) = line.strip_prefix('#') {
            if self.steps.is_empty() {
                self.directive(comment.trim())?;
            }
            return Ok(at + 1);
        }
        if line.trim().is_empty() {
            return Ok(at + 1);
        }
        let Some((only, action)) = parse_step(&line) else {
            return Err("neither a step nor a reply to one".to_owned());
        };
        let mut end = at + 1;
        let mut expected = Vec::new();
        while let Some(line) = self.lines.get(end) {
            if line.trim().is_empty() || line.starts_with('#') || is_step(line) {
                break;
            }
            let (only, first) = protocol_prefix(line);
            let mut text = first.to_owned();
            end += 1;
            while unclosed(&text) {
                let line = self.lines.get(end).ok_or("an array that is not closed")?;
                text = format!("{text}\n{line}");
                end += 1;
            }
            expected.push(Expectation { only, text });
        }
        let expected_lines = at + 1..end;
        self.steps.push(Step { line: at, only, action, expected, expected_lines });
        Ok(end)
    }

    fn directive(&mut self, comment: &str) -> Result<(), String> {
        if let Some(arguments) = comment.strip_prefix("server:") {
            let words = crate::notation::parse_words(arguments, &Default::default())?;
            let words = words.into_iter().map(|word| String::from_utf8_lossy(&word).into_owned());
            self.server.get_or_insert_default().extend(words);
        } else if let Some(line) = comment.strip_prefix("config:") {
            let config = self.config.get_or_insert_default();
            config.push_str(line.trim_start());
            config.push('\n');
        } else if let Some(reason) = comment.strip_prefix("fails:") {
            self.fails = Some(reason.trim().to_owned());
        } else if let Some(protocol) = comment.strip_prefix("only:") {
            self.only = match protocol.trim() {
                "resp2" => Some(Protocol::Resp2),
                "resp3" => Some(Protocol::Resp3),
                other => return Err(format!("# only: resp2 or resp3, not {other}")),
            };
        }
        Ok(())
    }
}

/// Whether an expectation that starts as an array or map goes on in the next line.
fn unclosed(text: &str) -> bool {
    let start = text.find(['[', '{']).unwrap_or(text.len());
    let tag = text[..start].trim_end();
    if !["", "(set)", "(push)", "(unordered)", "(pairs)"].contains(&tag) {
        return false;
    }
    let mut depth = 0i32;
    let mut bytes = text.bytes().peekable();
    while let Some(byte) = bytes.next() {
        match byte {
            b'[' | b'{' => depth += 1,
            b']' | b'}' => depth -= 1,
            b'"' | b'\'' => skip_quoted(&mut bytes, byte),
            b'~' if bytes.peek() == Some(&b'/') => {
                bytes.next();
                skip_quoted(&mut bytes, b'/');
            }
            _ => {}
        }
    }
    depth > 0
}

fn skip_quoted(bytes: &mut impl Iterator<Item = u8>, quote: u8) {
    while let Some(byte) = bytes.next() {
        match byte {
            b'\\' => {
                bytes.next();
            }
            byte if byte == quote => return,
            _ => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn steps_and_their_replies_are_told_apart() {
        let text = "\
# about SET
# server: --maxmemory 1mb --requirepass \"a b\"

> SET k v
OK
c2>> BLPOP l 0
c2<
[
  \"l\",
  \"]\",
]
resp2: (nil)
resp3: (error) ERR [ is not closed
# a comment
wait 20ms
resp3: > HELLO 3
c2 close
";
        let script = Script::parse(Path::new("x.test"), text).unwrap();
        assert_eq!(
            script.server.as_deref().unwrap(),
            ["--maxmemory", "1mb", "--requirepass", "a b"]
        );
        assert_eq!(script.steps.len(), 6);
        assert_eq!(script.steps[0].expected[0].text, "OK");
        assert_eq!(
            script.steps[1].action,
            Action::Send { client: "c2".into(), request: "BLPOP l 0".into() }
        );
        let replies = &script.steps[2].expected;
        assert_eq!(replies[0].text, "[\n  \"l\",\n  \"]\",\n]");
        assert_eq!(replies[1].only, Some(Protocol::Resp2));
        assert_eq!(replies[2].text, "(error) ERR [ is not closed");
        assert_eq!(script.steps[4].only, Some(Protocol::Resp3));
        assert!(Script::parse(Path::new("x.test"), "stray\n").is_err());
    }
}

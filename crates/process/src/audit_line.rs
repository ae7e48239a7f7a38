//! The text of one line of the audit log: an object of JSON, whatever the words of the request are.

use super::local_time::LocalTime;
use super::log_choices::TimestampFormat;
use super::log_line::{push_json_string, timestamp};
use std::fmt::Write as _;

/// Words of a request that are kept.
const MAX_WORDS: usize = 32;
/// Bytes of a word, a name or an error that are kept.
const MAX_BYTES: usize = 256;

/// The interface through which a change came.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Source {
    /// A connection of a server's clients.
    Server,
    /// The admin port of a node.
    Node,
    /// The admin port of a server, or `dunlin console`.
    Console,
}

impl Source {
    fn name(self) -> &'static str {
        match self {
            Source::Server => "server",
            Source::Node => "node",
            Source::Console => "console",
        }
    }
}

/// What became of a request.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Outcome<'a> {
    /// It was done.
    Done,
    /// It goes on, and its end is not known yet.
    Begun,
    /// It was refused, or failed: why.
    Refused(&'a [u8]),
}

/// A change, or an attempt at one.
#[derive(Clone, Copy, Debug)]
pub struct Entry<'a> {
    /// The interface.
    pub source: Source,
    /// The user; empty if the process acts by itself.
    pub user: &'a [u8],
    /// The address of the client; empty if there is none.
    pub address: &'a str,
    /// The client's number in CLIENT LIST, or 0.
    pub id: u64,
    /// The command, or the method and path of a request.
    pub action: &'a str,
    /// The other words of the request, without secrets.
    pub target: &'a [&'a [u8]],
    /// What became of it.
    pub outcome: Outcome<'a>,
}

/// Returns the line with its newline.
pub(super) fn render(entry: &Entry<'_>, instance: &str, time: &LocalTime) -> String {
    let mut out = String::with_capacity(320);
    let Entry { source, user, address, id, action, target, outcome } = *entry;
    // Writing to a String cannot fail.
    let _ = write!(
        out,
        "{{\"time\":\"{}\",\"source\":\"{}\",\"instance\":",
        timestamp(time, TimestampFormat::Iso8601),
        source.name()
    );
    push(&mut out, instance.as_bytes());
    out.push_str(",\"user\":");
    push(&mut out, user);
    out.push_str(",\"address\":");
    push(&mut out, address.as_bytes());
    let _ = write!(out, ",\"id\":{id},\"action\":");
    push(&mut out, action.as_bytes());
    out.push_str(",\"target\":[");
    let kept = if target.len() > MAX_WORDS { MAX_WORDS - 1 } else { target.len() };
    for (at, word) in target[..kept].iter().enumerate() {
        if at > 0 {
            out.push(',');
        }
        push(&mut out, word);
    }
    if kept < target.len() {
        let _ = write!(out, ",\"... ({} more arguments)\"", target.len() - kept);
    }
    out.push_str("],\"outcome\":");
    match outcome {
        Outcome::Done => out.push_str("\"ok\"}\n"),
        Outcome::Begun => out.push_str("\"begun\"}\n"),
        Outcome::Refused(why) => {
            out.push_str("\"refused\",\"why\":");
            push(&mut out, why);
            out.push_str("}\n");
        }
    }
    out
}

/// Appends a word as a string of JSON. Bytes that are no UTF-8 are shown as `\xNN`.
fn push(out: &mut String, word: &[u8]) {
    let (shown, rest) = word.split_at(word.len().min(MAX_BYTES));
    let mut text = String::with_capacity(shown.len());
    for chunk in shown.utf8_chunks() {
        text.push_str(chunk.valid());
        for byte in chunk.invalid() {
            let _ = write!(text, "\\x{byte:02x}");
        }
    }
    if !rest.is_empty() {
        let _ = write!(text, "... ({} more bytes)", rest.len());
    }
    push_json_string(out, &text);
}

#[cfg(test)]
mod tests {
    use super::*;

    fn entry<'a>(user: &'a [u8], target: &'a [&'a [u8]], outcome: Outcome<'a>) -> Entry<'a> {
        let (source, address, action) = (Source::Server, "10.0.0.7:1", "config|set");
        Entry { source, user, address, id: 7, action, target, outcome }
    }

    fn rendered(entry: &Entry<'_>) -> String {
        let line = render(entry, "6379", &LocalTime::now());
        let (time, rest) = line.split_at(r#"{"time":"2025-11-02T01:04:09.007-03:30""#.len());
        assert!(time.starts_with(r#"{"time":"20"#) && time.ends_with('"'), "{line}");
        rest.to_owned()
    }

    #[test]
    fn a_line_has_all_fields() {
        let shown = rendered(&entry(b"ops", &[b"maxmemory", b"4gb"], Outcome::Done));
        let expected = concat!(
            r#","source":"server","instance":"6379","user":"ops","address":"10.0.0.7:1","id":7,"#,
            r#""action":"config|set","target":["maxmemory","4gb"],"outcome":"ok"}"#,
            "\n"
        );
        assert_eq!(shown, expected);
        let shown = rendered(&entry(b"", &[], Outcome::Refused(b"NOPERM no")));
        assert!(shown.ends_with("\"target\":[],\"outcome\":\"refused\",\"why\":\"NOPERM no\"}\n"));
        assert!(rendered(&entry(b"", &[], Outcome::Begun)).ends_with("\"outcome\":\"begun\"}\n"));
    }

    #[test]
    fn hostile_words_stay_one_line_of_json() {
        let words: [&[u8]; 4] =
            [b"a\n\"b\\\r", b"\0\x1b\x7f", b"\xff\xfe\xc3", "é\u{2028}".as_bytes()];
        let shown = rendered(&entry(b"\xf0\n", &words, Outcome::Refused(b"why\n\xff")));
        assert_eq!(shown.matches('\n').count(), 1);
        assert!(shown.contains(r#""user":"\\xf0\n""#), "{shown}");
        assert!(shown.contains(r#"["a\n\"b\\\r","\u0000\u001b"#), "{shown}");
        assert!(shown.contains(r#""\\xff\\xfe\\xc3""#), "{shown}");
        assert!(shown.contains(r#""why":"why\n\\xff""#), "{shown}");
    }

    #[test]
    fn long_requests_are_shortened() {
        let long = vec![b'x'; 1 << 20];
        let words: Vec<&[u8]> = (0..1000).map(|_| &long[..]).collect();
        let shown = rendered(&entry(&long, &words, Outcome::Refused(&long)));
        assert!(shown.len() < 16 << 10, "{}", shown.len());
        assert!(shown.contains("... (1048320 more bytes)"));
        assert!(shown.contains("... (969 more arguments)"));
    }
}

//! Each code word in front of an error is explained in `docs/errors.md`, and no other.

use crate::source::{matches, read, sources};
use crate::tokens::{Kind, Token};
use std::collections::{BTreeMap, BTreeSet};

const PAGE: &str = "docs/errors.md";
/// What makes an error of a text, in crates whose errors go to clients.
const MAKERS: [&str; 4] = ["text", "format", "error", "push_error"];
const SPEAKERS: [&str; 8] =
    ["commands", "engine", "forward", "proxy", "replication", "route", "server", "net"];

/// Texts that begin with a word in capitals and are no errors, or errors of Redis without a code.
const NO_CODES: [&str; 11] = [
    "AOF",
    "AUX",
    "CLIENT",
    "DEBUG",
    "FAILOVER",
    "MASTER",
    "RDB",
    "REPLICAOF",
    "RESTORE",
    "STILL",
    "WITHCOUNT",
];

/// Code words, and the first place of each.
type Codes = BTreeMap<String, String>;

/// Returns the word in capitals that a text begins with, if a space or the end follows it.
fn first_word(text: &str) -> Option<&str> {
    let (word, _) = text.split_once(' ').unwrap_or((text, ""));
    let is_code = word.len() >= 3 && word.bytes().all(|byte| byte.is_ascii_uppercase());
    (is_code && !NO_CODES.contains(&word)).then_some(word)
}

/// Returns whether the text at a place becomes an error: `error("…")`, `Error::text("…")`,
/// `error(&format!("…"))`, `const BUSY: &str = "…"`, `"…".into()`.
fn becomes_an_error(tokens: &[Token], at: usize) -> bool {
    let is_argument = at > 1 && tokens[at - 1].is("(");
    let is_made = is_argument && MAKERS.contains(&tokens[at - 2].text);
    let is_constant = at > 3 && matches(tokens, at - 3, &["&", "str", "="]);
    let is_formatted = at > 2 && matches(tokens, at - 3, &["format", "!", "("]);
    is_made || is_constant || is_formatted || matches(tokens, at + 1, &[".", "into", "("])
}

/// Returns the code words of replies.
fn of_replies() -> Codes {
    let mut found = Codes::new();
    for source in sources().iter().filter(|source| SPEAKERS.contains(&source.package)) {
        for (at, token) in source.tokens.iter().enumerate() {
            if token.kind != Kind::Text {
                continue;
            }
            let line = token.text.strip_prefix('-');
            let code = match line {
                Some(line) => first_word(line.trim_end_matches("\\r\\n")),
                None if becomes_an_error(&source.tokens, at) => first_word(token.text),
                None => None,
            };
            if let Some(code) = code {
                let place = format!("{}:{}", source.path, token.line);
                found.entry(code.to_owned()).or_insert(place);
            }
        }
    }
    found
}

/// Returns the code words of answers over HTTP: those that stand beside a status.
fn of_answers() -> Codes {
    let mut found = Codes::new();
    for source in sources() {
        for words in source.tokens.windows(5) {
            let is_beside = words[0].is("StatusCode") && words[3].is(",");
            let is_code = words[4].kind == Kind::Text && is_beside;
            if let Some(code) = first_word(words[4].text).filter(|_| is_code) {
                let place = format!("{}:{}", source.path, words[4].line);
                found.entry(code.to_owned()).or_insert(place);
            }
        }
    }
    found
}

/// Returns the words in the first column of the tables below a heading of the page.
fn explained(heading: &str) -> BTreeSet<String> {
    let page = read(PAGE);
    let section = page.split("\n## ").find(|section| section.starts_with(heading));
    let lines = section.unwrap_or_default().lines();
    let cells = lines.filter_map(|line| line.strip_prefix("| `")?.split_once('`'));
    cells.map(|(word, _)| word.to_owned()).collect()
}

/// Returns the texts of all sources.
fn texts() -> impl Iterator<Item = &'static str> {
    let tokens = sources().iter().flat_map(|source| &source.tokens);
    tokens.filter(|token| token.kind == Kind::Text).map(|token| token.text)
}

fn check(heading: &str, used: &Codes) {
    let explained = explained(heading);
    let missing: Vec<_> = used.iter().filter(|(code, _)| !explained.contains(*code)).collect();
    assert!(missing.is_empty(), "{PAGE} does not explain these, below '{heading}': {missing:#?}");
    let said: BTreeSet<&str> =
        texts().filter_map(|text| first_word(text.strip_prefix('-').unwrap_or(text))).collect();
    let gone: Vec<&String> =
        explained.iter().filter(|code| !said.contains(code.as_str())).collect();
    assert!(gone.is_empty(), "{PAGE} explains what nothing says any more: {gone:?}");
}

#[test]
fn each_code_of_a_reply_is_explained() {
    check("Replies", &of_replies());
}

#[test]
fn each_code_of_the_rest_api_is_explained() {
    check("REST", &of_answers());
}

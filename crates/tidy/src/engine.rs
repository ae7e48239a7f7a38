//! The engine names no command: what it has to know of one is a flag or a function of the command's
//! row. And time comes from its clock alone.

use crate::lists;
use crate::source::{read, sources};
use crate::tokens::Kind;
use std::collections::BTreeSet;

/// Returns the names of all commands, without those of subcommands.
fn commands() -> BTreeSet<String> {
    let table = read("crates/commands/src/compatibility/commands.txt");
    let rows = table.lines().filter(|line| !line.starts_with('#'));
    let names = rows.filter_map(|line| line.split_whitespace().nth(1));
    names.filter_map(|name| name.split('|').next()).map(str::to_owned).collect()
}

#[test]
fn the_engine_names_no_command() {
    let commands = commands();
    assert!(commands.contains("getdel"), "the table of commands is read");
    let mut found = BTreeSet::new();
    for source in sources().iter().filter(|source| source.package == "engine") {
        for token in source.tokens.iter().filter(|token| token.kind == Kind::Text) {
            let text = token.text.to_ascii_lowercase();
            let is_word = !text.is_empty()
                && text.chars().all(|c| c.is_ascii_alphabetic() || "_|".contains(c));
            if is_word && text.split('|').next().is_some_and(|name| commands.contains(name)) {
                found.insert(format!("{} {text}", source.path));
            }
        }
    }
    lists::check(
        "command-words.txt",
        &found,
        "The engine names these commands. Make what it has to know a flag or a function of their \
         rows; if the word only \
         looks like a command, give it a line in crates/tidy/lists/command-words.txt.",
    );
}

#[test]
fn time_comes_from_the_engines_clock() {
    const CLOCK: &str = "crates/engine/src/facts/clock.rs";
    const READS: [[&str; 3]; 4] = [
        ["Instant", "::", "now"],
        ["SystemTime", "::", "now"],
        ["thread", "::", "sleep"],
        ["clock", "::", "now"],
    ];
    let mut wrong = Vec::new();
    for source in sources().iter().filter(|source| ["engine", "commands"].contains(&source.package))
    {
        for words in source.tokens.windows(3).filter(|_| source.path != CLOCK) {
            if READS.iter().any(|read| read.iter().zip(words).all(|(text, token)| token.is(text))) {
                wrong.push(format!("{}:{}", source.path, words[0].line));
            }
        }
    }
    assert!(
        wrong.is_empty(),
        "These read a clock or pause. Ask the engine's clock (engine/src/facts/clock.rs), which \
         tests can advance.\n{wrong:#?}"
    );
}

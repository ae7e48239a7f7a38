//! Public items have a caller outside tests. By name: an item counts as called if its name occurs
//! anywhere in the sources but where it is defined and re-exported. The compiler looks at what is
//! not public.

use crate::lists;
use crate::source::{Source, sources};
use crate::tokens::{Kind, Token};
use std::collections::BTreeSet;

/// Crates that only tests use.
const FOR_TESTS: [&str; 3] = ["harness", "rig", "tidy"];
const DEFINING: [&str; 9] =
    ["fn", "struct", "enum", "trait", "type", "static", "const", "union", "mod"];
const QUALIFIERS: [&str; 5] = ["const", "unsafe", "async", "extern", "mut"];

/// Returns the names that a file defines as public, and those it uses.
fn names(source: &Source) -> (Vec<&'static str>, Vec<&'static str>) {
    let (mut defined, mut used) = (Vec::new(), Vec::new());
    let tokens = &source.tokens;
    let mut at = 0;
    while at < tokens.len() {
        let token = tokens[at];
        if token.is("pub") && tokens.get(at + 1).is_some_and(|next| next.is("use")) {
            // A re-export calls nothing.
            at += tokens[at..].iter().position(|token| token.is(";")).unwrap_or(tokens.len() - at);
        } else if token.is("pub") {
            defined.extend(definition(&tokens[at + 1..]));
        } else if token.kind == Kind::Name && !is_defined(&tokens[..at]) {
            used.push(token.text);
        }
        at += 1;
    }
    (defined, used)
}

/// Returns the name of the item that begins here.
fn definition(tokens: &[Token]) -> Option<&'static str> {
    let mut last = "";
    for token in tokens.iter().take(6) {
        let is_keyword = DEFINING.contains(&token.text) || QUALIFIERS.contains(&token.text);
        if token.kind == Kind::Text && last == "extern" || is_keyword {
            last = token.text;
            continue;
        }
        return (DEFINING.contains(&last) && last != "mod" && token.kind == Kind::Name)
            .then_some(token.text);
    }
    None
}

/// Returns whether the name that follows is being defined.
fn is_defined(before: &[Token]) -> bool {
    before.last().is_some_and(|last| DEFINING.contains(&last.text) && last.kind == Kind::Name)
}

#[test]
fn public_items_have_callers() {
    let mut used: BTreeSet<&str> = BTreeSet::new();
    let mut defined: BTreeSet<(&str, &str)> = BTreeSet::new();
    for source in sources().iter().filter(|source| !FOR_TESTS.contains(&source.package)) {
        let (items, uses) = names(source);
        defined.extend(items.into_iter().map(|name| (source.package, name)));
        used.extend(uses);
    }
    let uncalled = defined.iter().filter(|(_, name)| !used.contains(name) && *name != "main");
    let found: BTreeSet<String> =
        uncalled.map(|(package, name)| format!("{package} {name}")).collect();
    lists::check(
        "uncalled.txt",
        &found,
        "No code but tests uses these public items. Connect them, delete them, or make them \
         private to their tests \
         (`#[cfg(test)]`).",
    );
}

//! A constant is said once. Texts of some length and large numbers that are equal in two files are
//! one constant, whatever they are called: a change of one of them breaks what the other is for.
//! Small numbers and powers of two are equal by chance.

use crate::lists;
use crate::source::{Source, sources};
use crate::tokens::{Kind, Token};
use std::collections::{BTreeMap, BTreeSet};

/// The harness sees servers as their clients do, and shares nothing with them.
const APART: [&str; 2] = ["harness", "tidy"];

const SHORTEST_TEXT: usize = 12;
const SMALLEST_NUMBER: u64 = 1000;

/// Returns the value of a constant if it is one literal that is not common. `tokens` follow its
/// name.
fn value(tokens: &[Token]) -> Option<&'static str> {
    let end = tokens.iter().position(|token| token.is(";"))?;
    let is_value = |token: &Token| token.is("=");
    let begin = tokens[..end].iter().position(is_value)? + 1;
    let [literal] = &tokens[begin..end] else { return None };
    let is_uncommon = match literal.kind {
        Kind::Text => literal.text.len() >= SHORTEST_TEXT,
        Kind::Number => number(literal.text)
            .is_some_and(|number| number >= SMALLEST_NUMBER && is_uneven(number)),
        _ => false,
    };
    is_uncommon.then_some(literal.text)
}

fn number(text: &str) -> Option<u64> {
    let text = text.replace('_', "");
    match text.strip_prefix("0x") {
        Some(digits) => u64::from_str_radix(digits, 16).ok(),
        None => text.parse().ok(),
    }
}

/// Returns whether a number is more than a power of ten or two.
fn is_uneven(number: u64) -> bool {
    let mut rest = number;
    while rest.is_multiple_of(10) {
        rest /= 10;
    }
    rest >= 100 && !number.is_power_of_two() && !(number + 1).is_power_of_two()
}

fn constants(source: &Source) -> Vec<(&'static str, &'static str)> {
    let tokens = &source.tokens;
    let mut found = Vec::new();
    for (at, token) in tokens.iter().enumerate() {
        let is_one = token.is("const") || token.is("static");
        let name = tokens.get(at + 1).filter(|name| is_one && name.kind == Kind::Name);
        if let Some(name) = name.filter(|_| tokens.get(at + 2).is_some_and(|it| it.is(":")))
            && let Some(value) = value(&tokens[at + 2..])
        {
            found.push((name.text, value));
        }
    }
    found
}

#[test]
fn constants_are_said_once() {
    let mut places: BTreeMap<&str, BTreeSet<String>> = BTreeMap::new();
    for source in sources().iter().filter(|source| !APART.contains(&source.package)) {
        for (name, value) in constants(source) {
            let place = format!("{} {name}", source.path);
            places.entry(value).or_default().insert(place);
        }
    }
    let doubled = places.into_values().filter(|places| {
        let files: BTreeSet<&str> =
            places.iter().filter_map(|place| place.split(' ').next()).collect();
        files.len() > 1
    });
    lists::check(
        "doubled.txt",
        &doubled.flatten().collect(),
        "These constants have the value of one in another file. Keep one, and use it in the other \
         places:",
    );
}

#[test]
fn common_numbers_are_no_doubles() {
    for common in ["0", "100", "1_000", "65536", "65_535", "50_000", "1 << 20"] {
        assert!(!number(common).is_some_and(|it| it >= SMALLEST_NUMBER && is_uneven(it)));
    }
    for uncommon in ["0x5bd1_e995", "16379", "12_345"] {
        assert!(number(uncommon).is_some_and(|it| it >= SMALLEST_NUMBER && is_uneven(it)));
    }
}

//! The lists of what does not hold yet, and how they shrink.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

/// Returns where a list is.
pub fn path(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("lists").join(name)
}

fn read(name: &str) -> String {
    fs::read_to_string(path(name)).unwrap_or_else(|why| panic!("lists/{name}: {why}"))
}

/// Returns the lines of `lists/NAME` without comments and empty ones.
pub fn lines(name: &str) -> Vec<String> {
    let text = read(name);
    text.lines()
        .filter(|line| !line.starts_with('#') && !line.trim().is_empty())
        .map(str::to_owned)
        .collect()
}

/// Compares what was found with the lines of a list. `advice` says what to do about a line that is
/// missing.
pub fn check(name: &str, found: &BTreeSet<String>, advice: &str) {
    let listed: BTreeSet<String> = lines(name).into_iter().collect();
    let needless: Vec<&String> = listed.difference(found).collect();
    if !needless.is_empty() && std::env::var_os("BLESS").is_some_and(|value| value != "0") {
        let kept = |line: &&str| !needless.iter().any(|needless| needless.as_str() == *line);
        let text: String =
            read(name).lines().filter(kept).map(|line| format!("{line}\n")).collect();
        fs::write(path(name), text).expect("the list can be written");
    } else {
        assert!(
            needless.is_empty(),
            "crates/tidy/lists/{name} excepts what does not occur any more; remove it (BLESS=1 \
             does): {needless:#?}"
        );
    }
    let new: Vec<&String> = found.difference(&listed).collect();
    assert!(new.is_empty(), "{advice}\n{new:#?}");
}

/// Compares numbers that may only fall with those of a list (`NAME NUMBER` on a line).
pub fn check_numbers(name: &str, found: &[(String, usize)], advice: &str) {
    let listed = lines(name);
    let most = |of: &str| {
        let line =
            listed.iter().filter_map(|line| line.split_once(' ')).find(|(name, _)| *name == of);
        line.map_or(0, |(_, number)| number.trim().parse::<usize>().expect("a number"))
    };
    let worse: Vec<String> = found
        .iter()
        .filter(|(of, number)| *number > most(of))
        .map(|(of, number)| format!("{of}: {number}, at most {}", most(of)))
        .collect();
    assert!(worse.is_empty(), "{advice}\n{worse:#?}");
    let number =
        |of: &str| found.iter().find(|(name, _)| name == of).map_or(0, |(_, number)| *number);
    let better: Vec<&String> = listed
        .iter()
        .filter(|line| line.split_once(' ').is_some_and(|(of, _)| number(of) < most(of)))
        .collect();
    if !better.is_empty() && std::env::var_os("BLESS").is_some_and(|value| value != "0") {
        let written = |line: &str| match line.split_once(' ') {
            Some((of, _)) if better.iter().any(|better| *better == line) => match number(of) {
                0 => String::new(),
                number => format!("{of} {number}\n"),
            },
            _ => format!("{line}\n"),
        };
        let text: String = read(name).lines().map(written).collect();
        fs::write(path(name), text).expect("the list can be written");
        return;
    }
    assert!(
        better.is_empty(),
        "there is less now than crates/tidy/lists/{name} allows; lower the numbers (BLESS=1 \
         does): {better:#?}"
    );
}

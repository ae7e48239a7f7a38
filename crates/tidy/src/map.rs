//! ARCHITECTURE.md has a line for each crate, and for each folder of the large ones: what it is,
//! where to begin reading, and what it must not do.

use crate::source::{files, packages, read, repository};
use std::collections::BTreeSet;

const PAGE: &str = "ARCHITECTURE.md";

/// The crates whose folders have lines.
const LARGE: [&str; 6] = ["console", "engine", "forward", "keyspace", "node", "server"];

/// Returns the rows of the table below a heading.
fn rows(page: &str, heading: &str) -> Vec<Vec<String>> {
    let section = page.split("\n## ").find(|section| section.starts_with(heading));
    let lines = section.unwrap_or_default().lines().filter(|line| line.starts_with("| `"));
    let cells = |line: &str| {
        let cells = line.trim_matches('|').split(" | ").map(str::trim);
        cells.map(str::to_owned).collect()
    };
    lines.map(cells).collect()
}

/// Compares the rows below a heading with what has to have one. `below` is where the files of a
/// name are.
fn check(heading: &str, expected: &BTreeSet<String>, below: impl Fn(&str) -> String) {
    let page = read(PAGE);
    let (mut wrong, mut named) = (Vec::new(), BTreeSet::new());
    for cells in rows(&page, heading) {
        let [name, what, begin, must_not] = &cells[..] else {
            wrong.push(format!("{cells:?} has not four cells"));
            continue;
        };
        let name = name.trim_matches('`');
        if !named.insert(name.to_owned()) {
            wrong.push(format!("{name} has two lines"));
        }
        let begin = begin.trim_matches('`');
        if begin.is_empty() || !repository().join(below(name)).join(begin).exists() {
            wrong.push(format!("{name}: there is no {begin} in {}", below(name)));
        }
        if what.is_empty() || must_not.is_empty() {
            wrong.push(format!("{name}: say what it is, and what it must not do"));
        }
    }
    let missing = expected.difference(&named).map(|name| format!("{name} has no line"));
    let gone = named.difference(expected).map(|name| format!("there is no {name} any more"));
    wrong.extend(missing.chain(gone));
    assert!(wrong.is_empty(), "Mend the table '{heading}' in {PAGE}: {wrong:#?}");
}

#[test]
fn each_crate_has_a_line() {
    let crates = packages().into_iter().collect();
    check("The crates", &crates, |name| format!("crates/{name}/src"));
}

#[test]
fn each_folder_of_the_large_crates_has_a_line() {
    let mut folders = BTreeSet::new();
    for package in LARGE {
        let root = format!("crates/{package}/src");
        let below = files(&root);
        let inner = below.iter().filter_map(|path| path.strip_prefix(&root)?.strip_prefix('/'));
        let inner = inner.filter_map(|path| path.split_once('/'));
        folders.extend(inner.map(|(folder, _)| format!("{package}/{folder}")));
    }
    assert!(folders.len() > 20, "the sources are not where they should be");
    check("The folders", &folders, |name| {
        let (package, folder) = name.split_once('/').unwrap_or_default();
        format!("crates/{package}/src/{folder}")
    });
}

//! The documents hold together: every relative link in them leads to a file, and to a heading of it
//! where it names one; files and folders that they name exist; pages are in their index,
//! dependencies have a line.

use crate::source::{files, packages, read, repository};
use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

/// Every Markdown file of the repository, but for what is built.
fn documents() -> Vec<PathBuf> {
    let documents = files("").into_iter().filter(|path| path.ends_with(".md"));
    documents.map(|path| repository().join(path)).collect()
}

/// The lines of a document without its code.
fn prose(text: &str) -> impl Iterator<Item = &str> {
    let mut in_code = false;
    text.lines().filter(move |line| {
        let is_fence = line.trim_start().starts_with("```");
        in_code ^= is_fence;
        !in_code && !is_fence
    })
}

/// The targets of a line's links: `[text](target)`.
fn targets(line: &str) -> impl Iterator<Item = &str> {
    line.split("](").skip(1).filter_map(|rest| rest.split(')').next())
}

/// The names by which the headings of a document can be linked to.
fn anchors(text: &str) -> BTreeSet<String> {
    prose(text)
        .filter_map(|line| line.strip_prefix('#'))
        .map(|heading| {
            let heading = heading.trim_start_matches('#').trim().to_lowercase();
            let kept = |c: &char| c.is_alphanumeric() || "- _".contains(*c);
            heading.chars().filter(kept).map(|c| if c == ' ' { '-' } else { c }).collect()
        })
        .collect()
}

/// Why a link of a document is dead, if it is.
fn fault(document: &Path, target: &str) -> Option<String> {
    let target = target.split_whitespace().next().unwrap_or_default();
    if target.contains("://") || target.starts_with("mailto:") {
        return None;
    }
    let (file, anchor) = target.split_once('#').unwrap_or((target, ""));
    let path = match file {
        "" => document.to_path_buf(),
        file => document.parent().unwrap_or(document).join(file),
    };
    if !path.exists() {
        return Some("there is no such file".into());
    }
    if anchor.is_empty() || path.extension().is_none_or(|extension| extension != "md") {
        return None;
    }
    let text = std::fs::read_to_string(&path).unwrap_or_default();
    (!anchors(&text).contains(anchor)).then(|| "there is no such heading".into())
}

#[test]
fn links_lead_somewhere() {
    let documents = documents();
    assert!(documents.len() > 10, "the documents are not where they should be");
    let mut dead = Vec::new();
    for document in &documents {
        let text = std::fs::read_to_string(document).unwrap();
        for target in prose(&text).flat_map(targets) {
            if let Some(why) = fault(document, target) {
                dead.push(format!("{}: ({target}): {why}", document.display()));
            }
        }
    }
    assert!(dead.is_empty(), "dead links:\n{}", dead.join("\n"));
}

/// Returns what a document names in code spans that is a path: it ends like a file of ours or with
/// a slash, or begins with one of our folders.
fn named_paths(text: &str) -> Vec<String> {
    const ENDINGS: [&str; 3] = [".rs", ".test", ".c"];
    const FOLDERS: [&str; 5] = ["crates/", "tests/", "docs/", "fuzz/", ".ci/"];
    let words = prose(text).flat_map(|line| line.split('`').skip(1).step_by(2));
    let is_path = |word: &str| {
        let is_ours = ENDINGS.iter().any(|ending| word.ends_with(ending))
            || FOLDERS.iter().any(|folder| word.starts_with(folder));
        // `CRATE` stands for any.
        let is_pattern = word
            .split('/')
            .any(|part| part.len() > 1 && part.chars().all(|c| c.is_ascii_uppercase()));
        is_ours
            && !is_pattern
            && word.chars().all(|c| c.is_ascii_alphanumeric() || "_/.-{},*".contains(c))
    };
    words.filter(|word| is_path(word)).flat_map(expanded).collect()
}

/// Returns the paths that one with `{a,b}` stands for.
fn expanded(path: &str) -> Vec<String> {
    match path.split_once('{').and_then(|(before, rest)| Some((before, rest.split_once('}')?))) {
        Some((before, (choices, after))) => choices
            .split(',')
            .flat_map(|choice| expanded(&format!("{before}{choice}{after}")))
            .collect(),
        None => vec![path.to_owned()],
    }
}

/// Returns whether a file or folder is what a document calls it. A file of a crate is named without
/// `crates` and `src`, and a star stands for anything.
fn is_named(path: &str, name: &str) -> bool {
    let name = name.trim_end_matches('/');
    let (first, rest) = name.split_once('/').unwrap_or(("", name));
    let path = format!("/{path}");
    [format!("/{name}"), format!("/{first}/src/{rest}")].iter().any(|end| {
        match end.split_once('*') {
            Some((before, after)) => path.contains(before) && path.ends_with(after),
            None => path.ends_with(end.as_str()),
        }
    })
}

#[test]
fn paths_that_documents_name_exist() {
    let mut all: BTreeSet<String> = files("").into_iter().collect();
    let folders: Vec<String> = all
        .iter()
        .flat_map(|path| {
            path.match_indices('/').map(|(at, _)| path[..at].to_owned()).collect::<Vec<_>>()
        })
        .collect();
    all.extend(folders);
    let mut missing = Vec::new();
    for document in documents() {
        let text = std::fs::read_to_string(&document).expect("it can be read");
        let place = document.strip_prefix(repository()).unwrap_or(&document).display().to_string();
        // What was, is told in the list of changes.
        if place == "CHANGELOG.md" {
            continue;
        }
        for name in named_paths(&text) {
            if !all.iter().any(|path| is_named(path, &name)) {
                missing.push(format!("{place}: {name}"));
            }
        }
    }
    assert!(
        missing.is_empty(),
        "These documents name files or folders that are not there. Name what took their \
         place.\n{missing:#?}"
    );
}

#[test]
fn paths_have_short_forms() {
    assert_eq!(expanded("a/{b,c}/{d,e}.rs").len(), 4);
    assert!(
        is_named("crates/net/src/cx.rs", "net/cx.rs") && is_named("crates/net/src/cx.rs", "cx.rs")
    );
    assert!(
        is_named("crates/net/tests/tls.rs", "net/tests/*.rs")
            && !is_named("crates/net/src/cx.rs", "x.rs")
    );
    let text = "see `net/cx.rs`, `crates/CRATE/x.rs`, `./test x`, `a b.rs` and `tests/tcl`\n\
                ```\n`no.rs`\n```\n";
    assert_eq!(named_paths(text), ["net/cx.rs", "tests/tcl"]);
}

/// Each page of the internals is in their index.
#[test]
fn every_internals_page_is_in_the_index() {
    let folder = repository().join("docs/internals");
    let index = std::fs::read_to_string(folder.join("README.md")).unwrap();
    for document in documents().iter().filter(|path| path.parent() == Some(&folder)) {
        let name = document.file_name().unwrap_or_default().to_string_lossy();
        assert!(name == "README.md" || index.contains(&format!("({name})")), "{name} is not in it");
    }
}

/// ARCHITECTURE.md says of every crate that is not ours what it is for.
#[test]
fn every_dependency_has_its_line() {
    let text = std::fs::read_to_string(repository().join("ARCHITECTURE.md")).unwrap();
    let (_, section) = text.split_once("## Dependencies").expect("the section is there");
    let listed: BTreeSet<&str> = section
        .lines()
        .filter_map(|line| line.strip_prefix('|')?.split('|').next())
        .flat_map(|names| names.split('`').skip(1).step_by(2))
        .collect();
    let own: BTreeSet<String> = packages().into_iter().collect();
    let mut used = BTreeSet::new();
    for name in &own {
        let manifest = read(&format!("crates/{name}/Cargo.toml"));
        let mut in_dependencies = false;
        for line in manifest.lines() {
            if line.starts_with('[') {
                in_dependencies = line.contains("dependencies");
            } else if in_dependencies
                && !line.starts_with('#')
                && let Some((name, _)) = line.split_once(['.', ' ', '='])
            {
                used.insert(name.to_owned());
            }
        }
    }
    let foreign: BTreeSet<&str> = used.difference(&own).map(String::as_str).collect();
    assert_eq!(listed, foreign, "listed in ARCHITECTURE.md, and used");
}

#[test]
fn headings_are_linked_to_as_they_are_rendered() {
    let names = anchors("# A `b`, c\n```\n# no\n```\n## CONFIG SET: d-e\n");
    assert_eq!(names.iter().map(String::as_str).collect::<Vec<_>>(), ["a-b-c", "config-set-d-e"]);
}

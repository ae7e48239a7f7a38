//! The documents hold together: every relative link in them leads to a file, and to a heading of
//! it where it names one.

use harness::server::repository;
use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

/// Every Markdown file of the repository, but for what is built.
fn documents() -> Vec<PathBuf> {
    fn visit(folder: &Path, found: &mut Vec<PathBuf>) {
        for entry in std::fs::read_dir(folder).into_iter().flatten().flatten() {
            let path = entry.path();
            let name = entry.file_name();
            let is_hidden = name.to_string_lossy().starts_with('.');
            if path.is_dir() && !is_hidden && name != "target" && name != "node_modules" {
                visit(&path, found);
            } else if path.extension().is_some_and(|extension| extension == "md") {
                found.push(path);
            }
        }
    }
    let mut found = Vec::new();
    visit(&repository(), &mut found);
    found.sort();
    found
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

/// Every file of source code, by its path in the repository.
fn sources() -> Vec<String> {
    fn visit(folder: &Path, found: &mut Vec<String>) {
        for entry in std::fs::read_dir(folder).into_iter().flatten().flatten() {
            let path = entry.path();
            if path.is_dir() {
                visit(&path, found);
            } else if path.extension().is_some_and(|extension| extension == "rs") {
                found.push(path.to_string_lossy().into_owned());
            }
        }
    }
    let mut found = Vec::new();
    visit(&repository().join("crates"), &mut found);
    found
}

/// The source files that a document names, as `file.rs` with or without folders.
fn named_sources(text: &str) -> impl Iterator<Item = &str> {
    let words = prose(text).flat_map(|line| line.split('`').skip(1).step_by(2));
    words.filter(|word| {
        word.ends_with(".rs")
            && word.chars().all(|c| c.is_ascii_alphanumeric() || "_/.-".contains(c))
    })
}

#[test]
fn source_files_that_documents_name_exist() {
    let sources = sources();
    let mut missing = Vec::new();
    for document in documents() {
        let text = std::fs::read_to_string(&document).expect("it can be read");
        for name in named_sources(&text) {
            // A file of a crate is named without `crates` and `src`.
            let (first, rest) = name.split_once('/').unwrap_or(("", name));
            let ends = [format!("/{name}"), format!("/{first}/src/{rest}")];
            if !sources.iter().any(|path| ends.iter().any(|end| path.ends_with(end))) {
                missing.push(format!("{}: {name}", document.display()));
            }
        }
    }
    assert!(missing.is_empty(), "{missing:#?}");
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
    let own: BTreeSet<String> = std::fs::read_dir(repository().join("crates"))
        .unwrap()
        .flatten()
        .map(|entry| entry.file_name().to_string_lossy().into_owned())
        .collect();
    let mut used = BTreeSet::new();
    for name in &own {
        let manifest = repository().join("crates").join(name).join("Cargo.toml");
        let manifest = std::fs::read_to_string(manifest).unwrap_or_default();
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

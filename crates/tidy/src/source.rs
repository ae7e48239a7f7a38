//! The sources of the workspace, without what is compiled for tests only.

use crate::tokens::{Kind, Token, tokens};
use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::OnceLock;

/// A file of a crate's `src`.
pub struct Source {
    /// From the root of the repository.
    pub path: String,
    pub package: &'static str,
    /// The path of its module in the crate: `["run", "dispatch"]`.
    pub module: Vec<&'static str>,
    /// Without what `#[cfg(test)]` stands before.
    pub tokens: Vec<Token>,
}

/// Returns the root of the repository.
pub fn repository() -> PathBuf {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    root.canonicalize().expect("the crate is in the repository")
}

/// Returns all files below a folder, from the root of the repository, but for what is built or
/// hidden.
pub fn files(folder: &str) -> Vec<String> {
    fn visit(root: &Path, folder: &Path, found: &mut Vec<String>) {
        for entry in fs::read_dir(folder).into_iter().flatten().flatten() {
            let (path, name) = (entry.path(), entry.file_name());
            let is_hidden = name.to_string_lossy().starts_with('.') && name != ".ci";
            if is_hidden || name == "target" || name == "node_modules" || name == "__pycache__" {
                continue;
            }
            if path.is_dir() {
                visit(root, &path, found);
            } else if let Ok(path) = path.strip_prefix(root) {
                found.push(path.to_string_lossy().into_owned());
            }
        }
    }
    let (root, mut found) = (repository(), Vec::new());
    visit(&root, &root.join(folder), &mut found);
    found.sort();
    found
}

/// Reads a file of the repository.
pub fn read(path: &str) -> String {
    fs::read_to_string(repository().join(path)).unwrap_or_else(|why| panic!("{path}: {why}"))
}

/// Returns the names of all crates.
pub fn packages() -> Vec<String> {
    let folders = fs::read_dir(repository().join("crates")).expect("there are crates");
    let mut names: Vec<String> = folders
        .flatten()
        .filter(|entry| entry.path().join("Cargo.toml").exists())
        .map(|entry| entry.file_name().to_string_lossy().into_owned())
        .collect();
    names.sort();
    names
}

/// Returns the sources of all crates.
pub fn sources() -> &'static [Source] {
    static SOURCES: OnceLock<Vec<Source>> = OnceLock::new();
    SOURCES.get_or_init(|| packages().iter().flat_map(|package| of_package(package)).collect())
}

fn of_package(package: &str) -> Vec<Source> {
    let folder = format!("crates/{package}/src/");
    let package: &'static str = package.to_owned().leak();
    let mut for_tests: BTreeSet<Vec<&str>> = BTreeSet::new();
    let mut found = Vec::new();
    for path in files(&folder) {
        let Some(inner) = path.strip_prefix(&folder).and_then(|inner| inner.strip_suffix(".rs"))
        else {
            continue;
        };
        let inner: &'static str = inner.to_owned().leak();
        let mut module: Vec<&str> = inner.split('/').collect();
        module.pop_if(|last| ["mod", "lib", "main"].contains(last));
        let (tokens, modules) = without_tests(&tokens(read(&path).leak()));
        for_tests.extend(modules.into_iter().map(|name| [&module[..], &[name]].concat()));
        found.push(Source { path, package, module, tokens });
    }
    found.retain(|source| {
        (1..=source.module.len()).all(|len| !for_tests.contains(&source.module[..len]))
    });
    found
}

/// Returns the tokens without the items for tests, and the modules for tests whose files are
/// elsewhere.
fn without_tests(tokens: &[Token]) -> (Vec<Token>, Vec<&'static str>) {
    let (mut kept, mut modules, mut at) = (Vec::new(), Vec::new(), 0);
    while at < tokens.len() {
        if !matches(tokens, at, &["#", "[", "cfg", "(", "test", ")", "]"]) {
            kept.push(tokens[at]);
            at += 1;
            continue;
        }
        let begin = at + 7;
        at = item_end(tokens, begin);
        let mut words = tokens[begin..at].iter().skip_while(|token| !token.is("mod"));
        if let (Some(_), Some(name)) = (words.next(), words.next())
            && tokens[at - 1].is(";")
        {
            modules.push(name.text);
        }
    }
    (kept, modules)
}

/// Returns whether these tokens begin here.
pub fn matches(tokens: &[Token], at: usize, wanted: &[&str]) -> bool {
    tokens.len() >= at + wanted.len()
        && wanted.iter().zip(&tokens[at..]).all(|(text, token)| token.is(text))
}

/// Returns where the item ends that begins here: behind its `;` or its closing brace.
fn item_end(tokens: &[Token], begin: usize) -> usize {
    const ITEMS: [&str; 13] = [
        "fn",
        "mod",
        "use",
        "impl",
        "struct",
        "enum",
        "const",
        "static",
        "type",
        "trait",
        "extern",
        "let",
        "macro_rules",
    ];
    let is_item = tokens[begin..].iter().take(12).any(|token| ITEMS.contains(&token.text));
    let mut depth = 0;
    for (at, token) in tokens.iter().enumerate().skip(begin) {
        if token.kind != Kind::Sign {
            continue;
        }
        match token.text {
            "(" | "[" | "{" => depth += 1,
            ")" | "]" | "}" => depth -= 1,
            _ => {}
        }
        // An attribute between the two ends with a bracket.
        if depth == 0 && (token.is(";") || token.is("}")) || depth < 0 {
            return at + 1;
        }
        if depth == 0 && token.is(",") && !is_item {
            // A field, a variant or an element of a list.
            return at + 1;
        }
    }
    tokens.len()
}

#[test]
fn items_for_tests_are_left_out() {
    let text =
        "mod a; #[cfg(test)] mod b; #[cfg(test)] #[path = \"x\"] mod c { fn d() { e; } } fn f() {}";
    let (kept, modules) = without_tests(&tokens(text));
    let kept: Vec<&str> = kept.iter().map(|token| token.text).collect();
    assert_eq!(kept.join(" "), "mod a ; fn f ( ) { }");
    assert_eq!(modules, ["b"]);
}

//! The modules of a crate and which uses which, read from paths: `crate::…`, `super::…`, `self::…`,
//! and those that begin with a child. A name that a module re-exports stands for the module it
//! comes from, and a re-export itself is no use. The root is a facade: what is defined there may be
//! used everywhere.

use crate::source::{Source, sources};
use crate::tokens::{Kind, Token};
use std::collections::{BTreeMap, BTreeSet};

type Path = Vec<&'static str>;

/// The modules of one crate.
pub struct Graph {
    modules: BTreeSet<Path>,
    /// What names in a module stand for.
    exports: BTreeMap<(Path, &'static str), Path>,
}

/// A use of a module by another.
#[derive(Debug)]
pub struct Arrow {
    pub from: Path,
    pub to: Path,
    pub file: &'static str,
    pub line: usize,
}

/// A path in the code: where it begins, and its names.
struct Found {
    words: Path,
    line: usize,
    is_export: bool,
    name: Option<&'static str>,
}

/// Returns the uses of modules in a crate.
pub fn arrows(package: &str) -> Vec<Arrow> {
    let files: Vec<&Source> = sources().iter().filter(|source| source.package == package).collect();
    let mut graph = Graph {
        modules: files.iter().map(|file| file.module.clone()).collect(),
        exports: BTreeMap::new(),
    };
    let read: Vec<(&Source, Vec<Found>)> =
        files.iter().map(|file| (*file, paths(&graph, &file.module, &file.tokens))).collect();
    for (file, found) in &read {
        for path in found.iter().filter(|path| path.is_export) {
            if let Some(name) = path.name {
                graph.exports.insert((file.module.clone(), name), path.words.clone());
            }
        }
    }
    let mut arrows = Vec::new();
    for (file, found) in &read {
        for path in found.iter().filter(|path| !path.is_export) {
            let to = graph.resolve(&path.words, 0);
            if !to.is_empty() && to != file.module {
                arrows.push(Arrow {
                    from: file.module.clone(),
                    to,
                    file: &file.path,
                    line: path.line,
                });
            }
        }
    }
    arrows
}

impl Graph {
    /// Returns the module that a path from the root leads to.
    fn resolve(&self, words: &[&'static str], depth: usize) -> Path {
        let mut at = Path::new();
        for (index, word) in words.iter().enumerate() {
            let child = [&at[..], &[*word]].concat();
            if self.modules.contains(&child) {
                at = child;
            } else if let Some(target) = self.exports.get(&(at.clone(), *word))
                && depth < 8
            {
                return self.resolve(&[&target[..], &words[index + 1..]].concat(), depth + 1);
            } else {
                break;
            }
        }
        at
    }
}

/// Returns the paths in a module's tokens, from the root.
fn paths(graph: &Graph, module: &Path, tokens: &[Token]) -> Vec<Found> {
    let (mut found, mut at) = (Vec::new(), 0);
    // Modules within the file, each with the depth of braces it ends at.
    let (mut inner, mut depth) = (Vec::<(&'static str, usize)>::new(), 0_usize);
    let mut is_export = false;
    while at < tokens.len() {
        let token = tokens[at];
        let here: Path =
            module.iter().copied().chain(inner.iter().map(|(name, _)| *name)).collect();
        if token.is("{") {
            depth += 1;
        } else if token.is("}") {
            depth = depth.saturating_sub(1);
            inner.pop_if(|(_, end)| *end == depth);
        } else if token.is("mod") && tokens.get(at + 2).is_some_and(|token| token.is("{")) {
            inner.push((tokens[at + 1].text, depth));
            (at, depth) = (at + 3, depth + 1);
            continue;
        } else if token.is("use") {
            is_export = is_exported(&tokens[..at]);
        } else if token.is(";") {
            is_export = false;
        }
        let is_inside = at > 0 && tokens[at - 1].is("::");
        if token.kind == Kind::Name
            && !is_inside
            && tokens.get(at + 1).is_some_and(|token| token.is("::"))
        {
            let begin = match token.text {
                "crate" => Some(Path::new()),
                "self" => Some(here.clone()),
                "super" => Some(here[..here.len().saturating_sub(1)].to_vec()),
                child if graph.modules.contains(&[&here[..], &[child]].concat()) => {
                    Some([&here[..], &[child]].concat())
                }
                _ => None,
            };
            if let Some(begin) = begin {
                at = tree(tokens, at + 2, begin, is_export, &mut found);
                continue;
            }
        }
        at += 1;
    }
    found
}

/// Returns whether `pub` or `pub(…)` stands before.
fn is_exported(before: &[Token]) -> bool {
    match before.last() {
        Some(last) if last.is("pub") => true,
        Some(last) if last.is(")") => {
            let open = before.iter().rposition(|token| token.is("("));
            open.is_some_and(|open| open > 0 && before[open - 1].is("pub"))
        }
        _ => false,
    }
}

/// Reads what follows `begin::`, groups in braces too. Returns where it ends.
fn tree(
    tokens: &[Token],
    mut at: usize,
    begin: Path,
    is_export: bool,
    found: &mut Vec<Found>,
) -> usize {
    let mut words = begin;
    loop {
        let Some(token) = tokens.get(at) else { return at };
        if token.is("{") {
            at += 1;
            while let Some(token) = tokens.get(at)
                && !token.is("}")
            {
                if token.is(",") {
                    at += 1;
                    continue;
                }
                let next = tree(tokens, at, words.clone(), is_export, found);
                at = next.max(at + 1);
            }
            return at + 1;
        }
        if token.kind != Kind::Name && !token.is("*") {
            found.push(Found { words, line: token.line, is_export, name: None });
            return at;
        }
        match token.text {
            "super" => {
                words.pop();
            }
            "self" | "*" => {}
            name => words.push(name),
        }
        at += 1;
        if tokens.get(at).is_some_and(|token| token.is("::")) {
            at += 1;
            continue;
        }
        let mut name = words.last().copied().filter(|_| token.text != "*");
        if is_export && tokens.get(at).is_some_and(|token| token.is("as")) {
            name = tokens.get(at + 1).map(|token| token.text);
            at += 2;
        }
        found.push(Found { words, line: token.line, is_export, name });
        return at;
    }
}

/// Returns the modules that reach themselves, in groups that reach each other. That a module uses
/// those inside it is what it is for, and counts for nothing: commands are listed by the module of
/// their group, which has what they share.
pub fn circles(arrows: &[Arrow]) -> Vec<Vec<String>> {
    let mut next: BTreeMap<&Path, BTreeSet<&Path>> = BTreeMap::new();
    for arrow in arrows.iter().filter(|arrow| !arrow.to.starts_with(&arrow.from)) {
        next.entry(&arrow.from).or_default().insert(&arrow.to);
    }
    let reach = |from: &Path| {
        let (mut seen, mut left) = (BTreeSet::<Path>::new(), vec![from]);
        while let Some(at) = left.pop() {
            for to in next.get(at).into_iter().flatten() {
                if seen.insert((*to).clone()) {
                    left.push(to);
                }
            }
        }
        seen
    };
    let reached: BTreeMap<Path, BTreeSet<Path>> =
        next.keys().map(|from| ((*from).clone(), reach(from))).collect();
    let mut groups: BTreeSet<Vec<String>> = BTreeSet::new();
    for (from, seen) in &reached {
        if seen.contains(from) {
            let group =
                seen.iter().filter(|to| reached.get(*to).is_some_and(|back| back.contains(from)));
            groups.insert(group.map(|path| path.join("/")).collect());
        }
    }
    groups.into_iter().collect()
}

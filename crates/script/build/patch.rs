//! Applies a unified diff, strictly: every line of it must be found where it says.
//!
//! The sources that are patched are pinned, so there is no search for a better place: a hunk that
//! does not fit is an error. A patch changes files; it neither makes nor removes any.

use std::path::Path;

/// Applies all of a patch to the files below `folder`.
///
/// # Errors
/// What does not fit, and where.
pub fn apply(patch: &str, folder: &Path) -> Result<(), String> {
    let mut lines = patch.lines().peekable();
    let mut is_empty = true;
    while let Some(line) = lines.next() {
        let Some(name) = line.strip_prefix("+++ ") else {
            // Whatever stands between the files is a comment.
            if line.starts_with("@@") {
                return Err(format!("a hunk without a file: {line}"));
            }
            continue;
        };
        let name = name.split('\t').next().unwrap_or_default().trim_end();
        let path = folder.join(name);
        let text = std::fs::read_to_string(&path).map_err(|error| format!("{name}: {error}"))?;
        let mut hunks = Vec::new();
        while let Some(head) = lines.next_if(|line| line.starts_with("@@ ")) {
            hunks.push(read_hunk(head, &mut lines).map_err(|error| format!("{name}: {error}"))?);
        }
        let patched = patch_text(&text, &hunks).map_err(|error| format!("{name}: {error}"))?;
        std::fs::write(&path, patched).map_err(|error| format!("{name}: {error}"))?;
        is_empty = false;
    }
    if is_empty { Err("it names no file".to_owned()) } else { Ok(()) }
}

/// A place of a file that changes.
pub struct Hunk<'p> {
    /// The first line that it is about, from 0 on.
    first: usize,
    /// Its lines with their marks: ` `, `-` or `+`.
    lines: Vec<(char, &'p str)>,
}

/// Reads `@@ -first,old +first,new @@` and the lines that it announces.
fn read_hunk<'p>(
    head: &str,
    lines: &mut impl Iterator<Item = &'p str>,
) -> Result<Hunk<'p>, String> {
    let bad = || format!("a bad head of a hunk: {head}");
    let mut words = head.split(' ');
    let mut range = |mark: char| {
        let word = words.find(|word| word.starts_with(mark))?;
        let (first, count) = word[1..].split_once(',').unwrap_or((&word[1..], "1"));
        Some((first.parse::<usize>().ok()?, count.parse::<usize>().ok()?))
    };
    let (first, old) = range('-').ok_or_else(bad)?;
    let (_, new) = range('+').ok_or_else(bad)?;
    if old == 0 || first == 0 {
        return Err(format!("a hunk without context: {head}"));
    }
    let mut hunk = Hunk { first: first - 1, lines: Vec::new() };
    let (mut old_left, mut new_left) = (old, new);
    while old_left > 0 || new_left > 0 {
        let line = lines.next().ok_or_else(|| format!("a hunk ends early: {head}"))?;
        // Editors take blanks off the ends of lines: an empty line is one of context.
        let (mark, text) = match line.chars().next() {
            Some(mark @ (' ' | '-' | '+')) => (mark, &line[1..]),
            None => (' ', ""),
            Some(_) => return Err(format!("not a line of a hunk: {line}")),
        };
        let (takes, gives) = (usize::from(mark != '+'), usize::from(mark != '-'));
        old_left = old_left.checked_sub(takes).ok_or_else(bad)?;
        new_left = new_left.checked_sub(gives).ok_or_else(bad)?;
        hunk.lines.push((mark, text));
    }
    Ok(hunk)
}

/// Returns the text with all hunks applied.
fn patch_text(text: &str, hunks: &[Hunk<'_>]) -> Result<String, String> {
    let old: Vec<&str> = text.lines().collect();
    let mut new: Vec<&str> = Vec::with_capacity(old.len());
    let mut at = 0;
    for hunk in hunks {
        let between = old.get(at..hunk.first);
        new.extend(between.ok_or_else(|| format!("no line {}", hunk.first + 1))?);
        at = hunk.first;
        for &(mark, line) in &hunk.lines {
            if mark != '+' {
                let found = old.get(at).copied().unwrap_or_default();
                if found.trim_end() != line.trim_end() {
                    return Err(format!("line {} is {found:?} and not {line:?}", at + 1));
                }
                at += 1;
            }
            match mark {
                '+' => new.push(line),
                ' ' => new.push(old[at - 1]),
                _ => {}
            }
        }
    }
    new.extend(&old[at..]);
    let mut patched = new.join("\n");
    patched.push('\n');
    Ok(patched)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn patched(text: &str, patch: &str) -> Result<String, String> {
        let mut lines = patch.lines();
        let mut hunks = Vec::new();
        while let Some(head) = lines.next() {
            hunks.push(read_hunk(head, &mut lines)?);
        }
        patch_text(text, &hunks)
    }

    #[test]
    fn hunks_change_lines() {
        let text = "a\nb\nc\nd\ne\n";
        assert_eq!(
            patched(text, "@@ -1,2 +1,3 @@\n a\n+x\n b\n@@ -4,2 +5,1 @@\n-d\n e"),
            Ok("a\nx\nb\nc\ne\n".to_owned())
        );
        assert_eq!(patched(text, "@@ -5 +5 @@\n-e\n+f"), Ok("a\nb\nc\nd\nf\n".to_owned()));
    }

    #[test]
    fn what_does_not_fit_is_an_error() {
        let text = "a\nb\nc\n";
        for patch in [
            "@@ -1,2 +1,3 @@\n a\n+x\n c",
            "@@ -2,2 +2,3 @@\n a\n+x\n b",
            "@@ -3,2 +3,2 @@\n c\n-d\n+e",
            "@@ -9,1 +9,1 @@\n-d\n+e",
            "@@ -1,2 +1,3 @@\n a\n+x",
            "@@ -1,1 +1,1 @@\n a\n+x\n b",
            "@@ -1 +1 @@\n*a",
            "@@ -0,0 +1 @@\n+a",
            "@@ one @@\n a",
        ] {
            assert!(patched(text, patch).is_err(), "{patch}");
        }
        assert!(apply("no file", Path::new("")).is_err());
        assert!(apply("@@ -1 +1 @@\n-a\n+b", Path::new("")).is_err());
        assert!(apply("--- a\n+++ no such file\n@@ -1 +1 @@\n-a\n+b", Path::new("")).is_err());
    }
}

//! The files a pattern of `include` stands for.

use std::ffi::OsStr;
use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use structs::glob;

/// The files that match, sorted by name; none is not an error, so that a directory of snippets may
/// be empty. `*`, `?` and `[` work in every component of the path and, as in a shell, do not match
/// a leading dot.
pub(crate) fn expand_pattern(dir: &Path, pattern: &[u8]) -> Vec<PathBuf> {
    let is_absolute = pattern.starts_with(b"/");
    let mut paths = vec![if is_absolute { PathBuf::from("/") } else { dir.to_path_buf() }];
    for component in pattern.split(|byte| *byte == b'/').filter(|part| !part.is_empty()) {
        paths = paths.iter().flat_map(|parent| children(parent, component)).collect();
    }
    paths
}

fn children(parent: &Path, pattern: &[u8]) -> Vec<PathBuf> {
    if !glob::is_pattern(pattern) {
        let path = parent.join(OsStr::from_bytes(pattern));
        return if path.exists() { vec![path] } else { Vec::new() };
    }
    let Ok(entries) = fs::read_dir(parent) else { return Vec::new() };
    let shows_hidden = pattern.starts_with(b".");
    let mut paths: Vec<PathBuf> = entries
        .flatten()
        .filter(|entry| {
            let name = entry.file_name();
            let name = name.as_bytes();
            (shows_hidden || !name.starts_with(b"."))
                && glob::matches(pattern, name, glob::Case::Sensitive)
        })
        .map(|entry| entry.path())
        .collect();
    paths.sort();
    paths
}

//! Paths of requests: parsed once, and kept by each thread for the next request.

use engine::Error;
use json::{Document, EvalError, Found, Location, Path};
use std::cell::RefCell;

/// Paths that a thread keeps.
const KEPT: usize = 64;
/// Longer paths are not kept.
const MAX_KEPT_LEN: usize = 256;

thread_local! {
    /// The last paths, the most recent at the end.
    static RECENT: RefCell<Vec<Path>> = const { RefCell::new(Vec::new()) };
}

/// Parses a path.
///
/// # Errors
/// It is none.
pub(super) fn path(text: &[u8]) -> Result<Path, Error> {
    let kept = RECENT.with_borrow_mut(|recent| {
        let at = recent.iter().rposition(|path| path.text().as_bytes() == text)?;
        let path = recent[at].clone();
        // A path that is in use wanders to the end, half of the way each time.
        let len = recent.len();
        recent.swap(at, (at + (len - at) / 2).min(len - 1));
        Some(path)
    });
    if let Some(path) = kept {
        return Ok(path);
    }
    let path = Path::parse(text).map_err(|error| Error::format(format!("ERR {error}")))?;
    // The text of a path may be another than what it was made of.
    if text.len() <= MAX_KEPT_LEN && path.text().as_bytes() == text {
        RECENT.with_borrow_mut(|recent| {
            if recent.len() == KEPT {
                recent.remove(0);
            }
            recent.push(path.clone());
        });
    }
    Ok(path)
}

/// Returns the path at a word of a request, or that of the root if the request ends before.
pub(super) fn path_at(args: engine::Args<'_>, at: usize) -> Result<Path, Error> {
    path(args.get(at).unwrap_or(super::ROOT))
}

/// Parses a path of a command that needs values of the document.
///
/// # Errors
/// It is none, or computes values.
pub(super) fn selection(text: &[u8]) -> Result<Path, Error> {
    let path = path(text)?;
    if path.is_projection() { Err(failed(EvalError::Projection)) } else { Ok(path) }
}

/// Returns the path at a word of a request as [`selection`] does, or that of the root if the
/// request ends before.
pub(super) fn selection_at(args: engine::Args<'_>, at: usize) -> Result<Path, Error> {
    selection(args.get(at).unwrap_or(super::ROOT))
}

fn failed(error: impl std::fmt::Display) -> Error {
    Error::format(format!("ERR {error}"))
}

/// Returns all matches.
pub(super) fn read<'d>(path: &Path, document: &'d Document) -> Result<Vec<Found<'d>>, Error> {
    path.read(document).map_err(failed)
}

/// Returns the first match.
pub(super) fn first<'d>(path: &Path, document: &'d Document) -> Result<Option<Found<'d>>, Error> {
    path.first(document).map_err(failed)
}

/// Returns where the matches are.
pub(super) fn locations(path: &Path, document: &Document) -> Result<Vec<Location>, Error> {
    path.locations(document).map_err(failed)
}

/// Returns what SET and MERGE change.
pub(super) fn targets<'p>(path: &'p Path, document: &Document) -> Result<json::Targets<'p>, Error> {
    path.targets(document).map_err(failed)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_are_kept_and_forgotten() {
        for round in 0..3 {
            for number in 0..100 {
                let text = format!("$.a{number}[{round}]");
                assert_eq!(path(text.as_bytes()).expect("a path").text(), text);
                assert_eq!(path(b"$.same").expect("a path").text(), "$.same");
            }
        }
        RECENT.with_borrow(|recent| {
            assert_eq!(recent.len(), KEPT);
            assert!(recent.iter().any(|path| path.text() == "$.same"));
        });
        assert!(path(b"$[").is_err());
    }
}

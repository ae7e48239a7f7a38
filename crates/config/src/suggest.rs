//! The name that was probably meant by one that does not exist.

use crate::spec::Spec;
use crate::table::OPTIONS;

/// Directives that are not options.
const DIRECTIVES: [&str; 4] = ["include", "rename-command", "user", "loadmodule"];

/// The directive whose name is closest to `name`, if it is close enough to be a misspelling.
pub(crate) fn closest(name: &[u8]) -> Option<&'static str> {
    let known = OPTIONS.iter().filter(|spec| !spec.is_hidden()).flat_map(Spec::names);
    known
        .chain(DIRECTIVES)
        .map(|known| (distance(name, known.as_bytes()), known))
        .filter(|&(distance, known)| distance > 0 && distance <= 1.max(known.len() / 4))
        .min_by_key(|&(distance, _)| distance)
        .map(|(_, known)| known)
}

/// How many characters must be inserted, removed, replaced or swapped with their neighbour to make
/// one name the other (the optimal string alignment distance). `-` and `_` count as the same.
fn distance(a: &[u8], b: &[u8]) -> usize {
    let same = |x: u8, y: u8| x == y || (b"-_".contains(&x) && b"-_".contains(&y));
    let mut before: Vec<usize> = Vec::new();
    let mut row: Vec<usize> = (0..=b.len()).collect();
    for i in 1..=a.len() {
        let mut next = vec![i];
        for j in 1..=b.len() {
            let replaced = row[j - 1] + usize::from(!same(a[i - 1], b[j - 1]));
            let mut least = replaced.min(row[j] + 1).min(next[j - 1] + 1);
            if i > 1 && j > 1 && same(a[i - 1], b[j - 2]) && same(a[i - 2], b[j - 1]) {
                least = least.min(before[j - 2] + 1);
            }
            next.push(least);
        }
        before = std::mem::replace(&mut row, next);
    }
    row[b.len()]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_distance_counts_edits() {
        for (a, b, expected) in [
            ("port", "port", 0),
            ("prot", "port", 1),
            ("por", "port", 1),
            ("maxmemroy", "maxmemory", 1),
            ("save", "dir", 4),
            ("", "dir", 3),
        ] {
            assert_eq!(distance(a.as_bytes(), b.as_bytes()), expected, "{a} {b}");
        }
    }

    #[test]
    fn only_a_misspelling_has_a_suggestion() {
        assert_eq!(closest(b"maxmemmory"), Some("maxmemory"));
        assert_eq!(closest(b"prot"), Some("port"));
        assert_eq!(closest(b"append-fsync"), Some("appendfsync"));
        assert_eq!(closest(b"max-memory-policy"), Some("maxmemory-policy"));
        assert_eq!(closest(b"inlcude"), Some("include"));
        assert_eq!(closest(b"nosuch"), None);
        // It exists: something else is wrong with its line.
        assert_eq!(closest(b"include"), None);
    }
}

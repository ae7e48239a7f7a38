//! The name that was probably meant by one that does not exist.

/// The name in `known` that is closest to `name`, if it is close enough to be a misspelling of it.
/// `None` if `name` is one of them: something else is wrong then.
pub fn closest<'a>(name: &[u8], known: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    let (least, known) = known
        .into_iter()
        .map(|known| (distance(name, known.as_bytes()), known))
        .filter(|&(distance, known)| distance <= 1.max(known.len() / 4))
        .min_by_key(|&(distance, _)| distance)?;
    (least > 0).then_some(known)
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
        let known = ["server", "bench", "check", "cli"];
        assert_eq!(closest(b"sever", known), Some("server"));
        assert_eq!(closest(b"bnech", known), Some("bench"));
        assert_eq!(closest(b"sentinel", known), None);
        assert_eq!(closest(b"server", known), None);
        assert_eq!(closest(b"", known), None);
        assert_eq!(closest(b"x", []), None);
    }
}

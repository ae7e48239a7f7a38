//! Choosing some of many, each with the same chance.

use crate::random::Rng;

/// Chooses `wanted` of `total` things that pass by one after the other.
///
/// Each is taken with the probability (still wanted / still to come), which makes every subset of
/// the right size equally likely, in one pass and without memory.
pub(crate) struct Selection {
    to_come: usize,
    wanted: usize,
}

impl Selection {
    pub(crate) fn new(wanted: usize, total: usize) -> Self {
        Self { to_come: total, wanted: wanted.min(total) }
    }

    /// Whether the next one is chosen.
    #[inline]
    pub(crate) fn takes_next(&mut self, rng: &mut Rng) -> bool {
        if self.wanted == 0 {
            return false;
        }
        let taken = rng.index(self.to_come) < self.wanted;
        self.to_come -= 1;
        self.wanted -= usize::from(taken);
        taken
    }

    /// Whether there is nothing more to choose.
    #[inline]
    pub(crate) fn is_done(&self) -> bool {
        self.wanted == 0
    }
}

/// Calls `visit` with `wanted` things of the `total` that `all` yields, all of them distinct.
pub(crate) fn select<T>(
    all: impl Iterator<Item = T>,
    wanted: usize,
    total: usize,
    rng: &mut Rng,
    mut visit: impl FnMut(T),
) {
    let mut selection = Selection::new(wanted, total);
    for thing in all {
        if selection.is_done() {
            return;
        }
        if selection.takes_next(rng) {
            visit(thing);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_pair_is_equally_likely() {
        let mut rng = Rng::seeded(1);
        let mut seen = std::collections::HashMap::new();
        for _ in 0..60_000 {
            let mut pair = Vec::new();
            select(0..5, 2, 5, &mut rng, |n| pair.push(n));
            *seen.entry(pair).or_insert(0) += 1;
        }
        assert_eq!(seen.len(), 10);
        assert!(seen.values().all(|&count| (5_600..6_400).contains(&count)), "{seen:?}");
    }

    #[test]
    fn wanting_too_much_gives_all() {
        let mut got = Vec::new();
        select(0..3, 9, 3, &mut Rng::seeded(1), |n| got.push(n));
        assert_eq!(got, [0, 1, 2]);
    }
}

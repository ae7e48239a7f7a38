//! Which slots go to which shard, so that shards carry the same. A pure function of what each slot
//! weighs.
//!
//! Shards that are to go, and those above the mean, give runs of slots away; those furthest below
//! the mean take them. Then single slots move from the heaviest shard to the lightest, as long as
//! that makes the heaviest lighter. Slots that stay are not touched, so what is moved is close to
//! the least that has to be.

use cluster::slots::{COUNT, Slots};

/// A kept shard may carry so much more than the mean before a plan moves slots, in thousandths.
const TOLERANCE: u128 = 30;

/// The most moves of single slots in a plan.
const MAX_SINGLE_MOVES: usize = 4096;

/// Slots that go from one shard to another; shards by their places in what was given.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Transfer {
    /// The shard that has them.
    pub from: usize,
    /// The shard that gets them.
    pub to: usize,
    /// The slots.
    pub slots: Slots,
}

/// A shard, as it will be when what moves already has arrived.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Part {
    /// Its slots.
    pub slots: Slots,
    /// It stays; all slots of one that does not are to go.
    pub stays: bool,
}

/// Returns the weights with a small amount added to each, so that empty slots are spread, too.
pub fn with_floor(weights: &[u64]) -> Vec<u64> {
    let total: u64 = weights.iter().fold(0, |sum, weight| sum.saturating_add(*weight));
    let floor = (total / u64::from(COUNT) / 1024).max(16);
    weights.iter().map(|weight| weight.saturating_add(floor)).collect()
}

/// Returns whether slots have to move whatever they weigh: a shard that is to go has some, or one
/// that stays has none.
pub fn is_needed(parts: &[Part]) -> bool {
    let has_none = |part: &Part| part.stays && part.slots.is_empty();
    let has_some = |part: &Part| !part.stays && !part.slots.is_empty();
    parts.iter().any(|part| has_none(part) || has_some(part))
}

/// Returns the transfers that make shards carry the same: none if they do so within [`TOLERANCE`].
/// `weights` has the weight of each slot.
pub fn plan(parts: &[Part], weights: &[u64]) -> Vec<Transfer> {
    let mut board = Board::new(parts, weights);
    if board.kept().next().is_none() {
        return Vec::new();
    }
    let heaviest = board.kept().map(|at| board.loads[at]).max().unwrap_or(0);
    let is_even = heaviest * 1000 <= board.mean * (1000 + TOLERANCE);
    if !is_needed(parts) && is_even && !board.has_crowded() {
        return Vec::new();
    }
    let mut free = board.give();
    // Neighbours stay together, so that ranges stay long.
    free.sort_unstable();
    for slot in free {
        let to = board.taker();
        board.put(slot, to);
    }
    board.even_out();
    board.transfers(parts)
}

/// A plan in the making.
struct Board<'a> {
    /// The shard of each slot.
    owners: Vec<Option<usize>>,
    /// For each shard, whether it stays.
    stays: Vec<bool>,
    weights: &'a [u64],
    /// The weight of each shard's slots.
    loads: Vec<u128>,
    /// For each shard, a slot of it that weighs more than `mean`. The shard keeps this slot and no
    /// other.
    alone: Vec<Option<usize>>,
    /// The weight that each shard without such a slot is to carry.
    mean: u128,
}

impl<'a> Board<'a> {
    fn new(parts: &[Part], weights: &'a [u64]) -> Board<'a> {
        let mut owners = vec![None; usize::from(COUNT)];
        let mut loads = vec![0; parts.len()];
        for (at, part) in parts.iter().enumerate() {
            for slot in part.slots.iter().map(usize::from) {
                owners[slot] = Some(at);
                loads[at] += u128::from(weights[slot]);
            }
        }
        let stays: Vec<bool> = parts.iter().map(|part| part.stays).collect();
        let mut board =
            Board { owners, stays, weights, loads, alone: vec![None; parts.len()], mean: 0 };
        board.set_apart(parts);
        board
    }

    /// Finds the slots that stay alone. Each of them lowers the mean of the other shards, above
    /// which there may be further such slots.
    fn set_apart(&mut self, parts: &[Part]) {
        let heaviest =
            |part: &Part| part.slots.iter().map(usize::from).max_by_key(|&slot| self.weights[slot]);
        let heaviest: Vec<Option<usize>> = parts.iter().map(heaviest).collect();
        let total: u128 = self.loads.iter().sum();
        loop {
            let alone: u128 = self.alone.iter().flatten().map(|&slot| self.weight(slot)).sum();
            self.mean = (total - alone) / (self.kept().count().max(1) as u128);
            let is_too_heavy =
                |at: &usize| heaviest[*at].is_some_and(|slot| self.weight(slot) > self.mean);
            let Some(at) = self.kept().find(is_too_heavy) else { return };
            self.alone[at] = heaviest[at];
        }
    }

    /// Returns the shards that stay and have no slot of that kind.
    fn kept(&self) -> impl Iterator<Item = usize> {
        (0..self.stays.len()).filter(|&at| self.stays[at] && self.alone[at].is_none())
    }

    /// Returns whether a shard has other slots beside one that is to stay alone.
    fn has_crowded(&self) -> bool {
        let crowded = |(at, slot): (usize, &Option<usize>)| {
            slot.is_some_and(|slot| self.loads[at] * 1000 > self.weight(slot) * (1000 + TOLERANCE))
        };
        self.alone.iter().enumerate().any(crowded)
    }

    fn weight(&self, slot: usize) -> u128 {
        u128::from(self.weights[slot])
    }

    /// Takes all slots from shards that go, and from the others what they have above the mean.
    /// Returns these slots.
    fn give(&mut self) -> Vec<usize> {
        let mut free = Vec::new();
        for slot in (0..self.owners.len()).rev() {
            let Some(owner) = self.owners[slot] else { continue };
            let weight = self.weight(slot);
            // A slot stays if the shard would be further below the mean without it than above it
            // now.
            let is_surplus = match self.alone[owner] {
                Some(alone) => slot != alone,
                None => self.loads[owner] >= self.mean + weight.div_ceil(2),
            };
            if !self.stays[owner] || is_surplus {
                self.loads[owner] -= weight;
                self.owners[slot] = None;
                free.push(slot);
            }
        }
        free
    }

    /// Returns the shard that takes the next slot. One shard takes all until it has its part, so
    /// that neighbours stay together.
    fn taker(&self) -> usize {
        let lacks = |at: &usize| self.loads[*at] < self.mean;
        let first = self.kept().find(lacks);
        let least = || self.kept().min_by_key(|&at| self.loads[at]);
        first.or_else(least).unwrap_or(0)
    }

    fn put(&mut self, slot: usize, to: usize) {
        self.owners[slot] = Some(to);
        self.loads[to] += self.weight(slot);
    }

    /// Moves single slots from the heaviest shard to the lightest, while that helps.
    fn even_out(&mut self) {
        for _ in 0..MAX_SINGLE_MOVES {
            let (Some(heavy), Some(light)) = (
                self.kept().max_by_key(|&at| self.loads[at]),
                self.kept().min_by_key(|&at| self.loads[at]),
            ) else {
                return;
            };
            let gap = self.loads[heavy] - self.loads[light];
            if gap * 1000 <= self.mean * TOLERANCE / 3 {
                return;
            }
            let of_heavy = (0..self.owners.len()).filter(|&slot| self.owners[slot] == Some(heavy));
            let fits = of_heavy.filter(|&slot| self.weight(slot) < gap);
            let best = fits.min_by_key(|&slot| self.weight(slot).abs_diff(gap / 2));
            let Some(slot) = best.filter(|&slot| self.weight(slot) > 0) else { return };
            self.loads[heavy] -= self.weight(slot);
            self.put(slot, light);
        }
    }

    fn transfers(&self, parts: &[Part]) -> Vec<Transfer> {
        let mut transfers = Vec::new();
        for (from, part) in parts.iter().enumerate() {
            for to in (0..parts.len()).filter(|&to| to != from) {
                let slots = Slots::from_fn(|slot| {
                    self.owners[usize::from(slot)] == Some(to) && part.slots.contains(slot)
                });
                if !slots.is_empty() {
                    transfers.push(Transfer { from, to, slots });
                }
            }
        }
        transfers
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn even(shards: usize) -> Vec<Part> {
        let begin = |shard: usize| usize::from(COUNT) * shard / shards;
        let slots = |shard: usize| {
            Slots::from_fn(|slot| (begin(shard)..begin(shard + 1)).contains(&usize::from(slot)))
        };
        (0..shards).map(|shard| Part { slots: slots(shard), stays: true }).collect()
    }

    fn after(parts: &[Part], transfers: &[Transfer]) -> Vec<Part> {
        let mut parts = parts.to_vec();
        for Transfer { from, to, slots } in transfers {
            assert_ne!(from, to);
            assert!(slots.without(&parts[*from].slots).is_empty(), "they were there");
            parts[*from].slots = parts[*from].slots.without(slots);
            parts[*to].slots = parts[*to].slots.with(slots);
        }
        parts
    }

    fn load(part: &Part, weights: &[u64]) -> u64 {
        part.slots.iter().map(|slot| weights[usize::from(slot)]).sum()
    }

    fn check(parts: &[Part], weights: &[u64]) -> Vec<Part> {
        let after = after(parts, &plan(parts, weights));
        let kept: Vec<u64> =
            after.iter().filter(|part| part.stays).map(|part| load(part, weights)).collect();
        let total: u64 = weights.iter().sum();
        assert_eq!(kept.iter().sum::<u64>(), total, "nothing is lost");
        let heaviest_slot = weights.iter().copied().max().unwrap_or(0);
        let mean = total / kept.len() as u64;
        let limit = (mean * 105 / 100).max(heaviest_slot + mean / 20);
        assert!(kept.iter().all(|load| *load <= limit), "{kept:?} {mean} {heaviest_slot}");
        assert_eq!(plan(&after, weights), [], "it is not moved to and fro");
        after
    }

    #[test]
    fn shards_come_and_go_in_any_number() {
        let weights = vec![100; usize::from(COUNT)];
        for (before, wanted) in [(3, 5), (5, 3), (4, 3), (1, 2), (5, 1), (1, 100), (100, 7)] {
            let mut parts = even(before);
            parts.iter_mut().skip(wanted).for_each(|part| part.stays = false);
            let new = Part { slots: Slots::default(), stays: true };
            parts.extend(std::iter::repeat_n(new, wanted.saturating_sub(before)));
            let transfers = plan(&parts, &weights);
            let moved: usize = transfers.iter().map(|it| it.slots.len()).sum();
            let least = usize::from(COUNT) * before.abs_diff(wanted) / before.max(wanted);
            assert!(moved <= least + 2 * parts.len(), "{before} to {wanted}: {moved} {least}");
            let after = check(&parts, &weights);
            let ranges: usize = after.iter().map(|part| part.slots.ranges().len()).sum();
            assert!(ranges <= 8 * before.max(wanted), "{before} to {wanted}: {ranges} ranges");
        }
    }

    #[test]
    fn what_counts_is_what_slots_weigh() {
        let mut weights = with_floor(&vec![0; usize::from(COUNT)]);
        weights[..1000].iter_mut().for_each(|weight| *weight = 1_000_000);
        check(&even(3), &weights);
        // One slot that nothing can make lighter stays where it is.
        weights[5] = 10_000_000_000;
        let after = check(&even(3), &weights);
        assert_eq!(after[0].slots.iter().collect::<Vec<_>>(), [5], "and the others are spread");
        assert!(load(&after[1], &weights).abs_diff(load(&after[2], &weights)) <= 20_000_000);
    }

    #[test]
    fn what_is_even_enough_stays() {
        let weights = vec![100; usize::from(COUNT)];
        assert_eq!(plan(&even(3), &weights), []);
        assert_eq!(plan(&[], &weights), []);
        let mut parts = even(1);
        parts[0].stays = false;
        assert_eq!(plan(&parts, &weights), [], "there is no shard that could take them");
    }

    #[test]
    fn any_weights_are_spread() {
        let mut state = 7u64;
        let mut draw = || {
            state = state
                .wrapping_mul(6_364_136_223_846_793_005)
                .wrapping_add(1_442_695_040_888_963_407);
            state >> 33
        };
        for _ in 0..24 {
            let (before, wanted, skew) = (draw() % 8 + 1, draw() % 8 + 1, draw() % 11 + 1);
            let weight = |_| 1 + (draw() % 1000) * (draw() % (1 << skew));
            let weights: Vec<u64> = (0..COUNT).map(weight).collect();
            let [before, wanted] =
                [before, wanted].map(|count| usize::try_from(count).unwrap_or(1));
            let mut parts = even(before);
            parts.iter_mut().skip(wanted).for_each(|part| part.stays = false);
            let new = Part { slots: Slots::default(), stays: true };
            parts.extend(std::iter::repeat_n(new, wanted.saturating_sub(before)));
            check(&parts, &weights);
        }
    }
}

//! A set of hash slots, kept as ranges: 16384 slots of one shard are one range, in memory and in
//! etcd.

use serde::{Deserialize, Serialize};

/// How many slots there are.
pub const COUNT: u16 = structs::crc16::SLOTS;

/// Ranges in ascending order, which neither overlap nor touch; the last slot of each is part of it.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
#[serde(try_from = "Vec<(u16, u16)>")]
pub struct Slots(Vec<(u16, u16)>);

impl Slots {
    /// Makes a set of the slots for which `contains` is true.
    pub fn from_fn(contains: impl Fn(u16) -> bool) -> Slots {
        let mut ranges: Vec<(u16, u16)> = Vec::new();
        for slot in (0..COUNT).filter(|&slot| contains(slot)) {
            match ranges.last_mut() {
                Some((_, last)) if *last + 1 == slot => *last = slot,
                _ => ranges.push((slot, slot)),
            }
        }
        Slots(ranges)
    }

    /// Returns the ranges, both ends included.
    pub fn ranges(&self) -> &[(u16, u16)] {
        &self.0
    }

    /// Returns how many slots there are.
    pub fn len(&self) -> usize {
        self.0.iter().map(|&(first, last)| usize::from(last - first) + 1).sum()
    }

    /// Returns whether there is none.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Returns whether `slot` is one of them.
    pub fn contains(&self, slot: u16) -> bool {
        let after = self.0.partition_point(|&(first, _)| first <= slot);
        after > 0 && slot <= self.0[after - 1].1
    }

    /// Returns the slots of both.
    pub fn with(&self, others: &Slots) -> Slots {
        Slots::from_fn(|slot| self.contains(slot) || others.contains(slot))
    }

    /// Returns the slots without `others`.
    pub fn without(&self, others: &Slots) -> Slots {
        Slots::from_fn(|slot| self.contains(slot) && !others.contains(slot))
    }

    /// Returns the slots that both have.
    pub fn within(&self, others: &Slots) -> Slots {
        Slots::from_fn(|slot| self.contains(slot) && others.contains(slot))
    }

    /// Returns the first slots, at most so many.
    pub fn first(&self, most: usize) -> Slots {
        let first: std::collections::BTreeSet<u16> = self.iter().take(most).collect();
        Slots::from_fn(|slot| first.contains(&slot))
    }

    /// Returns the slots, one after the other.
    pub fn iter(&self) -> impl Iterator<Item = u16> {
        self.0.iter().flat_map(|&(first, last)| first..=last)
    }

    /// Returns the first slot that both have.
    pub fn first_common(&self, others: &Slots) -> Option<u16> {
        let mut slots = self.0.iter().flat_map(|&(first, last)| first..=last);
        slots.find(|&slot| others.contains(slot))
    }
}

impl TryFrom<Vec<(u16, u16)>> for Slots {
    type Error = &'static str;

    fn try_from(ranges: Vec<(u16, u16)>) -> Result<Slots, &'static str> {
        let mut next = 0;
        for &(first, last) in &ranges {
            if first > last || last >= COUNT || first < next {
                return Err("ranges of slots are not in order");
            }
            next = last + 2;
        }
        Ok(Slots(ranges))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::BTreeSet;

    fn set(slots: &BTreeSet<u16>) -> Slots {
        Slots::from_fn(|slot| slots.contains(&slot))
    }

    #[test]
    fn ranges_that_are_not_in_order_are_refused() {
        for wrong in [vec![(2, 1)], vec![(0, 16384)], vec![(0, 5), (5, 6)], vec![(0, 5), (6, 7)]] {
            assert!(Slots::try_from(wrong).is_err());
        }
        assert_eq!(Slots::try_from(vec![(0, 16383)]).map(|all| all.len()), Ok(16384));
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(32))]
        #[test]
        fn a_set_is_what_a_set_of_numbers_is(
            a in prop::collection::btree_set(0..COUNT, 0..200),
            b in prop::collection::btree_set(0..COUNT, 0..200),
        ) {
            let (ours, theirs) = (set(&a), set(&b));
            prop_assert_eq!(ours.len(), a.len());
            prop_assert_eq!(ours.with(&theirs), set(&a.union(&b).copied().collect()));
            prop_assert_eq!(ours.without(&theirs), set(&a.difference(&b).copied().collect()));
            prop_assert_eq!(ours.first_common(&theirs), a.intersection(&b).next().copied());
            prop_assert!((0..COUNT).all(|slot| ours.contains(slot) == a.contains(&slot)));
            prop_assert_eq!(Slots::try_from(ours.ranges().to_vec()), Ok(ours));
        }
    }
}

//! Where a value is: the positions of the children on the way from the root.
//!
//! A location stays right as long as nothing before it, in the order of the document, is inserted
//! or removed. Several changes are therefore made from the last location to the first, children
//! before their parents: [`update_order`].

use std::cmp::Reverse;

/// The positions of children from the root down. The order is that of the document, a parent before
/// its children.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Location(Vec<u32>);

impl Location {
    /// Returns the location of the root.
    pub const fn root() -> Location {
        Location(Vec::new())
    }

    pub(crate) fn new(steps: Vec<u32>) -> Location {
        Location(steps)
    }

    /// Returns whether it is the root.
    pub fn is_root(&self) -> bool {
        self.0.is_empty()
    }

    /// Returns how many steps it is from the root.
    pub fn depth(&self) -> usize {
        self.0.len()
    }

    pub(crate) fn steps(&self) -> impl Iterator<Item = usize> + '_ {
        self.0.iter().map(|&step| step as usize)
    }

    /// Returns the parent and the position in it; nothing for the root.
    pub(crate) fn split(&self) -> Option<(Location, usize)> {
        let (&last, parent) = self.0.split_last()?;
        Some((Location(parent.to_vec()), last as usize))
    }

    /// Returns whether the other is this one or inside of it.
    pub fn contains(&self, other: &Location) -> bool {
        other.0.starts_with(&self.0)
    }
}

/// Sorts locations into the order of the document, and drops duplicates and those inside of
/// another.
pub fn outermost(locations: &mut Vec<Location>) {
    locations.sort_unstable();
    locations.dedup_by(|next, kept| kept.contains(next));
}

/// Returns the places of locations in the order in which they can be changed one after the other: a
/// change at one does not move those that follow.
pub fn update_order(locations: &[Location]) -> Vec<usize> {
    let mut order: Vec<usize> = (0..locations.len()).collect();
    order.sort_by_key(|&at| Reverse(&locations[at]));
    order
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn orders() {
        let location = |steps: &[u32]| Location::new(steps.to_vec());
        let mut all = vec![
            location(&[1]),
            location(&[0, 2, 1]),
            location(&[0]),
            location(&[1]),
            location(&[0, 3]),
            location(&[10]),
        ];
        assert_eq!(update_order(&all), [5, 0, 3, 4, 1, 2]);
        outermost(&mut all);
        assert_eq!(all, [location(&[0]), location(&[1]), location(&[10])]);
        let mut root = vec![location(&[4, 4]), Location::root()];
        outermost(&mut root);
        assert_eq!(root, [Location::root()]);
    }
}

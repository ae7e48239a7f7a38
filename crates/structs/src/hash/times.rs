//! When fields of a hash expire, ordered well enough to find those whose time has come.
//!
//! The time itself stands in the field ([`super::field`]). This is the index over it: the order of
//! hashes of the table is cut into equal parts of [`FIELDS_PER_PART`] fields or up to twice as
//! many, and a part has a *bound*, which no time in it is before. A binary tree over the bounds has
//! the lowest at its root:
//!
//! ```text
//!            bounds[1]                 the lowest of all
//!        [2]           [3]
//!     [4]    [5]    [6]    [7]         bounds of parts 0, 1, 2, 3
//! ```
//!
//! - A new time lowers the bounds from its part up to the root, as far as they are higher: O(log
//!   n).
//! - A time that goes (HDEL, HPERSIST, HSET) leaves the bounds as they are, which costs nothing;
//!   they are too low then, and that is found out when their time comes.
//! - A search for expired fields walks down to a part whose bound has passed, looks at its fields,
//!   and sets the bound to what is left there. Parts are taken from all over the order in turn: a
//!   table that is emptied from one end shrinks meanwhile, which crowds what is left at the other
//!   end into a few homes.
//! - When the table has outgrown the parts each becomes two with the same bound, and the reverse.
//!
//! Cost: 16 bytes for [`FIELDS_PER_PART`] fields, whether they expire or not, in hashes where any
//! does. Rejected: an ordered tree of pointers to fields (11 to 23 bytes for each that expires, and
//! work in every HDEL), a heap with lazy deletion (pointers to freed fields), and looking at fields
//! by chance (a field among millions is found late).

use crate::size_class::block_size;
use crate::table::ScanPosition;

/// Fields in a part, at least; with more a search reads more fields that stay.
const FIELDS_PER_PART: usize = 8;

/// The bound where nothing expires. A field may have this time, too.
const NEVER: i64 = i64::MAX;

/// See the module's documentation.
pub(super) struct Times {
    /// The tree; `[0]` is unused. Twice as many as parts, which are a power of two.
    bounds: Vec<i64>,
    /// Fields that expire.
    pub(super) fields: usize,
    /// Searches so far: its bits choose between two branches that are due, the lowest at the root.
    turn: usize,
}

impl Times {
    /// An index for a table of so many fields, none of which expires.
    pub(super) fn new(fields: usize) -> Times {
        let parts = (fields / FIELDS_PER_PART).next_power_of_two();
        Times { bounds: vec![NEVER; 2 * parts], fields: 0, turn: 0 }
    }

    fn parts(&self) -> usize {
        self.bounds.len() / 2
    }

    /// A time that no field expires before.
    #[inline]
    pub(super) fn bound(&self) -> i64 {
        self.bounds[1]
    }

    /// A field at this position expires from now on, or at another time.
    pub(super) fn note(&mut self, at: ScanPosition, time: i64) {
        let mut node = self.parts() + at.part(self.parts());
        while node > 0 && self.bounds[node] > time {
            self.bounds[node] = time;
            node /= 2;
        }
    }

    /// A part whose bound is before `time`; where there are several, far from the one before it.
    pub(super) fn due(&mut self, time: i64) -> Option<Part> {
        if self.bounds[1] >= time {
            return None;
        }
        let (mut node, mut turn) = (1, self.turn);
        self.turn = turn.wrapping_add(1);
        while node < self.parts() {
            // The bound of a node is the lower one of the two below it.
            let wanted = 2 * node + (turn & 1);
            node = if self.bounds[wanted] < time { wanted } else { wanted ^ 1 };
            turn >>= 1;
        }
        let (index, count) = (node - self.parts(), self.parts());
        Some(Part { index, count })
    }

    /// Sets a part's bound; `None`: nothing expires in it.
    pub(super) fn set(&mut self, part: Part, bound: Option<i64>) {
        let mut node = self.parts() + part.index;
        self.bounds[node] = bound.unwrap_or(NEVER);
        while node > 1 {
            node /= 2;
            self.bounds[node] = self.bounds[2 * node].min(self.bounds[2 * node + 1]);
        }
    }

    /// Adapts the parts to a table that has so many fields now.
    pub(super) fn fit(&mut self, fields: usize) {
        while fields > 2 * FIELDS_PER_PART * self.parts() {
            let leaves = self.bounds[self.parts()..].iter().flat_map(|&bound| [bound, bound]);
            self.bounds = over(leaves.collect());
        }
        while self.parts() > 1 && fields < FIELDS_PER_PART * self.parts() / 4 {
            let pairs = self.bounds[self.parts()..].chunks(2);
            self.bounds = over(pairs.map(|pair| pair[0].min(pair[1])).collect());
        }
    }

    /// Bytes allocated.
    pub(super) fn allocated_bytes(&self) -> usize {
        block_size(self.bounds.capacity() * size_of::<i64>())
    }
}

/// The tree over these leaves.
fn over(leaves: Vec<i64>) -> Vec<i64> {
    let parts = leaves.len();
    let mut bounds = Vec::with_capacity(2 * parts);
    bounds.resize(parts, NEVER);
    bounds.extend(leaves);
    for node in (1..parts).rev() {
        bounds[node] = bounds[2 * node].min(bounds[2 * node + 1]);
    }
    bounds
}

/// One of equal parts of the order of hashes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Part {
    index: usize,
    count: usize,
}

impl Part {
    /// Where it begins.
    pub(super) fn start(self) -> ScanPosition {
        ScanPosition::of_part(self.index, self.count).unwrap_or(ScanPosition::START)
    }

    /// Whether a position is in it.
    pub(super) fn has(self, at: ScanPosition) -> bool {
        at.part(self.count) == self.index
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn position(part: u64) -> ScanPosition {
        ScanPosition::from_bits48(part << 40)
    }

    #[test]
    fn finds_the_parts_that_are_due() {
        let mut times = Times::new(256 * FIELDS_PER_PART);
        assert_eq!((times.bound(), times.due(i64::MAX - 1)), (NEVER, None));
        for part in 0..256u64 {
            times.note(position(part), 1000 + (part as i64 * 37) % 256);
        }
        assert_eq!(times.bound(), 1000);
        let mut found = 0;
        while let Some(part) = times.due(1100) {
            found += 1;
            times.set(part, None);
        }
        assert_eq!((found, times.bound()), (100, 1100));
    }

    #[test]
    fn parts_that_are_due_are_taken_from_all_over() {
        let mut times = Times::new(256 * FIELDS_PER_PART);
        (0..256).for_each(|part| times.note(position(part), 5));
        for _ in 0..16 {
            let mut quarters = [0; 4];
            for _ in 0..16 {
                let part = times.due(6).expect("there are 256");
                quarters[part.index / 64] += 1;
                times.set(part, None);
            }
            assert_eq!(quarters, [4; 4]);
        }
        assert_eq!(times.due(6), None);
    }

    #[test]
    fn bounds_stay_bounds_when_parts_are_split_and_joined() {
        let mut times = Times::new(0);
        times.note(position(7), 5);
        let many = if cfg!(miri) { [2000, 5000] } else { [100_000, 1_000_000] };
        for fields in [10, many[0], 1000, many[1], 0] {
            times.fit(fields);
            assert_eq!(times.bound(), 5);
            let part = times.due(6).expect("the time has passed");
            assert!(part.start() <= position(7) || fields > 100);
            assert_eq!(times.due(5), None);
        }
    }
}

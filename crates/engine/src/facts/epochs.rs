//! The epoch in which the last entry of the stream was written.
//!
//! In a cluster each leadership begins with an entry that names its epoch
//! ([`replication::wire::epoch_entry`]). How far a copy's data goes is then (epoch of the last
//! entry, offset behind it), the order by which successors are chosen. Outside of a cluster the
//! epoch is 0 and costs nothing. `docs/internals/cluster.md` has the design.

use crate::journal::JournalPos;
use std::sync::Mutex;
use structs::sync::lock;

/// An epoch, and where its first entry ends.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Leadership {
    /// The epoch; 0: the stream is none of a cluster.
    pub epoch: u64,
    /// The position behind the entry that begins it, or behind which it is known to have begun.
    pub begins_at: JournalPos,
}

/// See the module's documentation.
#[derive(Default)]
pub struct Epochs {
    /// It is locked while the entry is appended, so that epoch and position agree.
    last: Mutex<Leadership>,
}

impl Epochs {
    /// Returns the leadership in which the last entry was written.
    pub fn last(&self) -> Leadership {
        *lock(&self.last)
    }

    /// Returns the same and the position at which the journal ends meanwhile.
    pub fn position(&self, end: impl FnOnce() -> JournalPos) -> (Leadership, JournalPos) {
        let last = lock(&self.last);
        (*last, end())
    }

    /// Begins an epoch. `append` appends the entry for it, and returns the position behind it.
    pub fn begin(&self, epoch: u64, append: impl FnOnce() -> JournalPos) -> Leadership {
        let mut last = lock(&self.last);
        *last = Leadership { epoch, begins_at: append() };
        *last
    }

    /// Notes that the data set was replaced by one that was written up to this epoch and ends at
    /// this position.
    pub fn replace(&self, epoch: u64, begins_at: JournalPos) {
        *lock(&self.last) = Leadership { epoch, begins_at };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn epoch_and_position_are_of_one_moment() {
        let epochs = Epochs::default();
        assert_eq!(epochs.last(), Leadership::default());
        let begun = epochs.begin(7, || JournalPos(50));
        assert_eq!(begun, Leadership { epoch: 7, begins_at: JournalPos(50) });
        assert_eq!(epochs.position(|| JournalPos(60)), (begun, JournalPos(60)));
        epochs.replace(0, JournalPos(9));
        assert_eq!(epochs.last(), Leadership { epoch: 0, begins_at: JournalPos(9) });
    }
}

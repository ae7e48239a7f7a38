//! How much of long output is sent, and of long words received, in a turn of the reactor.
//!
//! A socket takes several megabytes at once, and copying them takes a millisecond or so. What a
//! message to many subscribers, or long replies to many clients, would take in one turn is
//! therefore shared: a turn sends a megabyte, and once these are spent each further connection gets
//! a small piece, so that all of them go on. The rest follows when the socket takes more, which is
//! in the next turn.

/// Bytes of long output that are sent in a turn, and of long words that are received, by one
/// connection if no other has any.
const TURN: usize = 1 << 20;
/// Output of at most so many bytes is always sent at once; so much of longer output is sent
/// whatever others have sent in the turn.
pub(super) const PIECE: usize = 64 << 10;

/// What is left of a turn.
#[derive(Debug)]
pub(super) struct Budget(usize);

impl Budget {
    /// That of a whole turn.
    pub(super) const fn new() -> Budget {
        Budget(TURN)
    }

    /// How many bytes the next connection may move.
    pub(super) fn share(&self) -> usize {
        self.0.max(PIECE)
    }

    /// Records that so many bytes were moved.
    pub(super) fn spend(&mut self, bytes: usize) {
        self.0 = self.0.saturating_sub(bytes);
    }

    /// How many bytes a connection may send, of as many that it has.
    pub(super) fn take(&mut self, wanted: usize) -> usize {
        let share = wanted.min(self.share());
        self.spend(share);
        share
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_connection_gets_all_and_of_many_each_a_piece() {
        let mut budget = Budget::new();
        assert_eq!(budget.take(100 << 20), TURN);
        assert_eq!(budget.take(100 << 20), PIECE);
        assert_eq!(budget.take(100), 100);
        let mut budget = Budget::new();
        let sent: usize = (0..60).map(|_| budget.take(28 << 20)).sum();
        assert_eq!(sent, TURN + 59 * PIECE);
    }
}

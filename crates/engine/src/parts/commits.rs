//! Commit modes: which copies of a write must exist before its reply leaves, and for how long a
//! reply waits for them.
//!
//! A connection has a mode of its own (`CLIENT COMMIT-MODE`) or the server's (`commit-mode`). The
//! mode says at which [`Gate`] its replies wait; what the gate needs is in [`journal::safe`]. At
//! the gate of the quorum a position meets one of two ends: it is *confirmed* when enough replicas
//! have it, or *given up* when that took longer than `commit-timeout-ms`. The reply to a write that
//! is given up is replaced by an error; replies that only tell of such a write leave as they are.
//!
//! `docs/internals/commit-modes.md` has the design.

use config::CommitMode;
use journal::JournalPos;
use journal::safe::{Gate, Need};
use keyspace::Millis;
use std::collections::VecDeque;
use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};
use std::sync::{Mutex, MutexGuard};
use structs::sync::lock;

/// What has become of positions at the quorum's gate.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Verdict {
    /// Everything before it has the copies.
    pub confirmed: JournalPos,
    /// Nothing before it is waited for any longer.
    pub given_up: JournalPos,
    /// Counts how often all that waited was given up because the positions ended to mean anything.
    pub epoch: u64,
}

/// When positions are given up: a position counts from the first look after it was reached.
#[derive(Debug, Default)]
pub struct Deadlines {
    /// When the journal was seen to end where, in ascending order.
    seen: VecDeque<(Millis, JournalPos)>,
    /// The latest of these ends, also when it is given up.
    newest: JournalPos,
}

/// Looks at the journal within one timeout: that many entries are kept at most, and a position is
/// given up later than asked for by this fraction at most.
const LOOKS: i64 = 64;

impl Deadlines {
    /// The journal ends at `end` now. Returns up to where the time of positions is over. With a
    /// timeout of 0 it never is.
    pub fn look(&mut self, now: Millis, end: JournalPos, timeout_ms: u64) -> Option<JournalPos> {
        let timeout = i64::try_from(timeout_ms).unwrap_or(i64::MAX);
        if timeout == 0 {
            self.clear();
            return None;
        }
        let is_due = |(at, _): &&(Millis, JournalPos)| now.0.saturating_sub(at.0) >= timeout;
        let due = self.seen.iter().take_while(is_due).count();
        let over = self.seen.drain(..due).next_back().map(|(_, position)| position);
        let is_time = self.seen.back().is_none_or(|(at, _)| now.0 - at.0 >= timeout / LOOKS);
        if is_time && end > self.newest {
            self.seen.push_back((now, end));
            self.newest = end;
        }
        over
    }

    /// The positions of before mean nothing any more.
    pub fn clear(&mut self) {
        *self = Deadlines::default();
    }
}

/// See the module's documentation.
#[derive(Default)]
pub struct Commits {
    /// Sessions with a mode of their own, by gate.
    sessions: [AtomicUsize; 2],
    state: Mutex<CommitState>,
}

#[derive(Default)]
pub(crate) struct CommitState {
    /// What the quorum is at present, or was last.
    pub(crate) need: Need,
    /// Where the journal ended when replies ceased to wait, if they did.
    pub(crate) ended_at: Option<JournalPos>,
    pub(crate) verdict: Verdict,
    pub(crate) deadlines: Deadlines,
}

impl Commits {
    pub(crate) fn state(&self) -> MutexGuard<'_, CommitState> {
        lock(&self.state)
    }

    pub(crate) fn count(&self, mode: Option<CommitMode>) -> Option<&AtomicUsize> {
        gate_of(mode?).map(|gate| &self.sessions[gate as usize])
    }

    pub(crate) fn has_sessions_at(&self, gate: Gate) -> bool {
        self.sessions[gate as usize].load(SeqCst) > 0
    }
}

/// The gate at which replies wait in this mode.
pub(crate) fn gate_of(mode: CommitMode) -> Option<Gate> {
    match mode {
        CommitMode::Memory => None,
        CommitMode::Fsync => Some(Gate::Disk),
        CommitMode::Quorum => Some(Gate::Quorum),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_position_is_given_up_when_its_time_is_over() {
        let mut deadlines = Deadlines::default();
        let mut look =
            |ms: i64, end| deadlines.look(Millis(ms), JournalPos(end), 100).map(|over| over.0);
        assert_eq!(look(0, 10), None);
        assert_eq!(look(5, 20), None);
        assert_eq!(look(99, 20), None);
        assert_eq!(look(100, 30), Some(10));
        assert_eq!(look(104, 30), None);
        assert_eq!(look(105, 30), Some(20));
        assert_eq!(look(200, 30), Some(30));
        assert_eq!(look(900, 30), None, "it is given up once");
    }

    #[test]
    fn a_late_look_gives_up_no_young_position() {
        let mut deadlines = Deadlines::default();
        assert_eq!(deadlines.look(Millis(0), JournalPos(1), 100), None);
        // Nothing was looked at for long. What was written meanwhile may be young.
        let over = deadlines.look(Millis(1000), JournalPos(9), 100);
        assert_eq!(over, Some(JournalPos(1)));
        assert_eq!(deadlines.look(Millis(1099), JournalPos(9), 100), None);
        assert_eq!(deadlines.look(Millis(1100), JournalPos(9), 100), Some(JournalPos(9)));
    }

    #[test]
    fn few_looks_are_kept_and_a_timeout_of_0_is_none() {
        let mut deadlines = Deadlines::default();
        for ms in 0..100_000 {
            deadlines.look(Millis(ms), JournalPos(ms as u64), 10_000);
        }
        assert!(deadlines.seen.len() as i64 <= LOOKS + 1);
        assert_eq!(deadlines.look(Millis(900_000), JournalPos(1), 0), None);
        assert_eq!(deadlines.look(Millis(900_001), JournalPos(1), 10), None, "it begins anew");
    }
}

//! Commit modes: which copies of a write must exist before its reply leaves, and for how long a reply
//! waits for them.
//!
//! A connection has a mode of its own (`CLIENT COMMIT-MODE`) or the server's (`commit-mode`). The mode
//! says at which [`Gate`] its replies wait; what the gate needs is in [`journal::safe`]. At the gate of
//! the quorum a position meets one of two ends: it is *confirmed* when enough replicas have it, or
//! *given up* when that took longer than `commit-timeout-ms`. The reply to a write that is given up is
//! replaced by an error; replies that only tell of such a write leave as they are.
//!
//! `docs/internals/commit-modes.md` has the design.

use crate::engine::Engine;
use crate::session::Session;
pub use crate::session::WriteReply;
use config::{AppendFsync, CommitMode};
use journal::JournalPos;
use journal::safe::{Gate, Need};
use keyspace::Millis;
use std::collections::VecDeque;
use std::sync::atomic::{AtomicUsize, Ordering::*};
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

/// Looks at the journal within one timeout: that many entries are kept at most, and a position is given
/// up later than asked for by this fraction at most.
const LOOKS: i64 = 64;

impl Deadlines {
    /// The journal ends at `end` now. Returns up to where the time of positions is over. With a timeout
    /// of 0 it never is.
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
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    /// What the quorum is at present, or was last.
    need: Need,
    /// Where the journal ended when replies ceased to wait, if they did.
    ended_at: Option<JournalPos>,
    verdict: Verdict,
    deadlines: Deadlines,
}

impl Commits {
    fn state(&self) -> MutexGuard<'_, State> {
        lock(&self.state)
    }

    fn count(&self, mode: Option<CommitMode>) -> Option<&AtomicUsize> {
        gate_of(mode?).map(|gate| &self.sessions[gate as usize])
    }

    fn has_sessions_at(&self, gate: Gate) -> bool {
        self.sessions[gate as usize].load(SeqCst) > 0
    }
}

fn gate_of(mode: CommitMode) -> Option<Gate> {
    match mode {
        CommitMode::Memory => None,
        CommitMode::Fsync => Some(Gate::Disk),
        CommitMode::Quorum => Some(Gate::Quorum),
    }
}

impl Engine {
    /// Where a session's replies wait, if they do.
    pub fn gate_of(&self, session: &Session) -> Option<Gate> {
        let gate = match session.commit_mode {
            Some(mode) => gate_of(mode),
            None => match gate_of(self.config.commit_mode()) {
                None if self.config.appendfsync() == AppendFsync::Always => Some(Gate::Disk),
                gate => gate,
            },
        };
        gate.filter(|gate| self.safe.holds_at(*gate))
    }

    /// When the append-only file is forced to the disk: at once if a reply waits for that.
    pub fn fsync_policy(&self) -> AppendFsync {
        let is_wanted = self.config.commit_mode() == CommitMode::Fsync
            || self.commits.has_sessions_at(Gate::Disk);
        if is_wanted { AppendFsync::Always } else { self.config.appendfsync() }
    }

    /// Whether some connection's replies wait for a quorum.
    pub fn wants_quorum(&self) -> bool {
        self.config.commit_mode() == CommitMode::Quorum
            || self.commits.has_sessions_at(Gate::Quorum)
    }

    /// A session takes a mode, or the server's again.
    pub fn set_commit_mode(&self, session: &mut Session, mode: Option<CommitMode>) {
        let old = std::mem::replace(&mut session.commit_mode, mode);
        if let Some(count) = self.commits.count(mode) {
            count.fetch_add(1, SeqCst);
        }
        if let Some(count) = self.commits.count(old) {
            count.fetch_sub(1, SeqCst);
        }
        if old != mode {
            self.follow_commit_modes();
            if let Some(host) = self.host() {
                host.follow_fsync_policy();
            }
        }
    }

    /// The options or the sessions' modes have changed: has replies wait for a quorum, or not.
    pub fn follow_commit_modes(&self) {
        let is_wanted = self.wants_quorum();
        if is_wanted {
            // A write that is running may be missing. Its reply is not held, and what it did is part of
            // every state that is given a position, since that takes a stopped world.
            self.journal.keep();
        }
        let config = &self.config;
        let replicas = config.commit_quorum() as usize;
        let need = Need {
            disk: config.appendfsync() == AppendFsync::Always && self.safe.holds_at(Gate::Disk),
            replicas,
            replica_disks: if config.commit_quorum_fsync() { replicas } else { 0 },
        };
        let mut state = self.commits.state();
        let end = self.journal.position();
        if is_wanted {
            state.need = need;
            state.ended_at = None;
        } else if self.safe.holds_at(Gate::Quorum) {
            state.ended_at = Some(end);
        }
        self.safe.hold_replies(Gate::Quorum, is_wanted.then_some(need), end);
        drop(state);
        self.confirm_writes();
    }

    /// Whether a reply may wait for a quorum: one that has waited since the mode was another goes on.
    pub fn awaits_quorum(&self) -> bool {
        if self.safe.holds_at(Gate::Quorum) {
            return true;
        }
        let state = self.commits.state();
        let verdict = &state.verdict;
        state.ended_at.is_some_and(|end| end > verdict.confirmed.max(verdict.given_up))
    }

    /// A position has become safer: lets go of the replies that waited for it.
    pub(crate) fn confirm_writes(&self) {
        if self.awaits_quorum() {
            self.judge(|state| {
                let safe = self.safe.safe(state.need);
                state.verdict.confirmed = state.verdict.confirmed.max(safe);
            });
        }
    }

    /// Gives up the writes that have waited for longer than `commit-timeout-ms`. To be called every few
    /// milliseconds while [`Engine::awaits_quorum`].
    pub fn give_up_late_writes(&self, now: Millis) {
        let (end, timeout_ms) = (self.journal.position(), self.config.commit_timeout_ms());
        self.judge(|state| {
            if let Some(over) = state.deadlines.look(now, end, timeout_ms) {
                state.verdict.given_up = state.verdict.given_up.max(over);
            }
        });
    }

    /// This server becomes a replica, or the journal's positions are about to mean something else: nothing
    /// that waits can be confirmed any more, and what was confirmed says nothing of what follows.
    pub fn give_up_all_writes(&self) {
        self.judge(|state| {
            let epoch = state.verdict.epoch + 1;
            state.verdict = Verdict { epoch, ..Verdict::default() };
            state.ended_at = None;
            state.deadlines.clear();
        });
    }

    fn judge(&self, judge: impl FnOnce(&mut State)) {
        let mut state = self.commits.state();
        let before = state.verdict;
        judge(&mut state);
        // Under the lock, so that the host sees the verdicts in their order.
        if state.verdict != before
            && let Some(host) = self.host()
        {
            host.release_replies(state.verdict);
        }
    }

    /// What is confirmed and what is given up at present.
    pub fn verdict(&self) -> Verdict {
        self.commits.state().verdict
    }

    /// The error that takes the place of so many replies whose writes were given up, as a line of the
    /// protocol.
    pub fn count_unconfirmed(&self, replies: usize) -> Vec<u8> {
        self.stats.unconfirmed_writes.add(replies as u64);
        let needed = self.config.commit_quorum();
        let line = format!(
            "NOTCONFIRMED {needed} replicas have not confirmed the write in time. It may exist."
        );
        (0..replies).for_each(|_| self.count_error(line.as_bytes()));
        format!("-{line}\r\n").into_bytes()
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

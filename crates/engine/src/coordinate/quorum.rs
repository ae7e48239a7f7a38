//! Commit modes at work: which gate a session's replies wait at, and what becomes of positions there.
//! What is known of them is in [`crate::commits`].

use crate::commits::{State, Verdict, gate_of};
use crate::engine::Engine;
use crate::session::Session;
use config::{AppendFsync, CommitMode};
use journal::safe::{Gate, Need};
use keyspace::Millis;
use std::sync::atomic::Ordering::SeqCst;

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

    /// Whether some connection has asked that its replies wait for this server's disk.
    pub fn has_clients_that_wait_for_disk(&self) -> bool {
        self.commits.has_sessions_at(Gate::Disk)
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
        let replicas = self.votes.quorum(config.commit_quorum() as usize);
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

    /// In a cluster: how many copies, the primary among them, the coordinator knows to hold what a quorum has confirmed;
    /// 0: it knows of no quorum, so nothing can be confirmed by one. `commit-quorum` may ask for more.
    pub fn set_quorum(&self, copies: usize) {
        if self.votes.set_quorum(copies.checked_sub(1).unwrap_or(usize::MAX)) {
            self.follow_commit_modes();
        }
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

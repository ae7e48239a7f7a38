//! Applies commit modes: at which gate a session's replies wait, and when positions there are
//! confirmed or given up. The state is in [`crate::commits`].

use crate::commits::{CommitState, Verdict, gate_of};
use crate::engine::Engine;
use crate::mailbox::recheck_all;
use crate::session::Session;
use config::{AppendFsync, CommitMode};
use journal::safe::{Gate, Need};
use keyspace::Millis;
use std::sync::atomic::Ordering::SeqCst;

impl Engine {
    /// Returns the gate at which a session's replies wait, if they do.
    pub fn gate_of(&self, session: &Session) -> Option<Gate> {
        let gate = match session.commit_mode {
            Some(mode) => gate_of(mode),
            None => self.usual_gate(),
        };
        gate.filter(|gate| self.safe.holds_at(*gate))
    }

    /// Returns the gate of sessions that have not chosen one.
    fn usual_gate(&self) -> Option<Gate> {
        match gate_of(self.config.commit_mode()) {
            None if self.config.appendfsync() == AppendFsync::Always => Some(Gate::Disk),
            gate => gate,
        }
    }

    /// Returns when the append-only file is forced to the disk: at once if a reply waits for that.
    pub fn fsync_policy(&self) -> AppendFsync {
        let is_wanted = self.config.commit_mode() == CommitMode::Fsync
            || self.commits.has_sessions_at(Gate::Disk);
        if is_wanted { AppendFsync::Always } else { self.config.appendfsync() }
    }

    /// Returns whether writes have to wait for the append-only file, because too much of what
    /// clients were told is not in it.
    #[inline]
    pub fn is_log_behind(&self) -> bool {
        self.journal.is_full() || self.append_log.lags()
    }

    /// Looks whether the append-only file lags. Called by each thread of clients ten times a
    /// second.
    pub fn look_at_log(&self) {
        let is_told_before = self.usual_gate() != Some(Gate::Disk);
        if self.append_log.look(self.journal.position(), is_told_before, &self.clock) {
            recheck_all(&self.mailboxes);
        }
    }

    /// Returns whether some connection's replies wait for a quorum.
    pub fn wants_quorum(&self) -> bool {
        self.config.commit_mode() == CommitMode::Quorum
            || self.commits.has_sessions_at(Gate::Quorum)
    }

    /// Returns whether some connection has asked that its replies wait for this server's disk.
    pub fn has_clients_that_wait_for_disk(&self) -> bool {
        self.commits.has_sessions_at(Gate::Disk)
    }

    /// Sets a session's commit mode. `None` is the server's.
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

    /// Opens or closes the quorum's gate after a change of the options or of the sessions' modes.
    pub fn follow_commit_modes(&self) {
        let is_wanted = self.wants_quorum();
        if is_wanted {
            // A write that is running may be missing from the journal. Its reply does not wait. Its
            // effects are part of every state that gets a position, because that requires a stopped
            // world.
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

    /// Sets the number of copies, including the primary, that the cluster's coordinator requires
    /// for a quorum. With 0 it knows of no quorum, so nothing can be confirmed by one.
    /// `commit-quorum` may require more.
    pub fn set_quorum(&self, copies: usize) {
        if self.votes.set_quorum(copies.checked_sub(1).unwrap_or(usize::MAX)) {
            self.follow_commit_modes();
        }
    }

    /// Returns whether a reply may wait for a quorum. Replies that began to wait before the mode
    /// changed keep waiting.
    pub fn awaits_quorum(&self) -> bool {
        if self.safe.holds_at(Gate::Quorum) {
            return true;
        }
        let state = self.commits.state();
        let verdict = &state.verdict;
        state.ended_at.is_some_and(|end| end > verdict.confirmed.max(verdict.given_up))
    }

    /// Releases the replies that waited for a position which has become safer.
    pub(crate) fn confirm_writes(&self) {
        if self.awaits_quorum() {
            self.judge(|state| {
                let safe = self.safe.safe(state.need);
                state.verdict.confirmed = state.verdict.confirmed.max(safe);
                self.timings.commit_quorum.reached(state.verdict.confirmed);
            });
        }
    }

    /// Gives up the writes that have waited for longer than `commit-timeout-ms`. Called every few
    /// milliseconds while [`Engine::awaits_quorum`] returns true.
    pub fn give_up_late_writes(&self, now: Millis) {
        let (end, timeout_ms) = (self.journal.position(), self.config.commit_timeout_ms());
        self.judge(|state| {
            if let Some(over) = state.deadlines.look(now, end, timeout_ms) {
                state.verdict.given_up = state.verdict.given_up.max(over);
            }
        });
    }

    /// Gives up all waiting writes, because this server becomes a replica or the journal's
    /// positions are about to change their meaning. Earlier confirmations say nothing about later
    /// positions.
    pub fn give_up_all_writes(&self) {
        self.judge(|state| {
            let epoch = state.verdict.epoch + 1;
            state.verdict = Verdict { epoch, ..Verdict::default() };
            state.ended_at = None;
            state.deadlines.clear();
        });
        self.timings.forget_waits();
    }

    fn judge(&self, judge: impl FnOnce(&mut CommitState)) {
        let mut state = self.commits.state();
        let before = state.verdict;
        judge(&mut state);
        // Call the host under the lock, so that it gets the verdicts in their order.
        if state.verdict != before
            && let Some(host) = self.host()
        {
            host.release_replies(state.verdict);
        }
    }

    /// Returns the positions that are confirmed and given up at present.
    pub fn verdict(&self) -> Verdict {
        self.commits.state().verdict
    }

    /// Counts `replies` replies whose writes were given up. Returns the error that replaces each of
    /// them, as a line of the protocol.
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

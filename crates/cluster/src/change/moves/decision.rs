//! How the source of a job gives the slots away while their requests wait: it may let these go on
//! only when it knows whether the slots are its own.
//!
//! ```text
//!          answered "done"
//!  giving ─────────────────▶ given
//!    │ ▲                       ▲
//!    │ └───────────┐           │ the job is given
//!    ▼  other view │           │
//!  unsure ──read───┴───────────┘
//!    ▲ │ same view
//!    │ ▼
//!  fencing       a transaction that changes nothing: when it is made, the lost one never will be
//! ```
//!
//! Every call may fail and have taken effect, or take effect later. So only a later revision of the
//! topology says that the first transaction was made, or never will be. No timer ends the wait.

use super::Attempt;
use crate::coordinator::{Failure, Outcome, Revision, Transaction};
use crate::id::Id;
use crate::topology::{Move, MovePhase};
use crate::view::View;

/// Attempts to hand over while others change the cluster.
const ATTEMPTS: usize = 16;

/// What the source has to do next.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Next {
    /// Make this transaction, and call [`Decision::committed`].
    Commit(Transaction),
    /// Read the newest view, and call [`Decision::read`]; again and again if there is no answer.
    Read,
    /// The slots are the target's since this revision, and requests go on when clients see it.
    Given(Revision),
    /// This job's copy is not handed over, and never will be. Requests go on when clients see what
    /// was there at this revision.
    Kept(Revision),
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum State {
    Giving,
    Unsure,
    Fencing,
    Given(Revision),
}

/// See the head of this file.
#[derive(Clone, Debug)]
pub struct Decision {
    me: Id,
    job: Id,
    /// What the copy rests on.
    attempt: Attempt,
    /// The newest view, on which the next transaction rests.
    view: View,
    state: State,
    attempts: usize,
}

impl Decision {
    /// Begins a decision by the primary `me`, which has sent all of a job's copy.
    pub fn new(view: View, me: Id, job: Id, attempt: Attempt) -> Decision {
        Decision { me, job, attempt, view, state: State::Giving, attempts: 0 }
    }

    /// Returns what is to be done next.
    pub fn next(&self) -> Next {
        match self.state {
            State::Giving => match super::hand_over(&self.view, self.me, self.job, &self.attempt) {
                Some(transaction) if self.attempts < ATTEMPTS => Next::Commit(transaction),
                // The slots may have left this shard by other means.
                _ => Next::Kept(self.view.topology.revision),
            },
            State::Unsure => Next::Read,
            State::Fencing => Next::Commit(super::fence(&self.view)),
            State::Given(revision) => Next::Given(revision),
        }
    }

    /// Returns the newest view that it knows.
    pub fn view(&self) -> &View {
        &self.view
    }

    /// Notes how the transaction ended that [`Next::Commit`] had.
    pub fn committed(&mut self, outcome: Result<Outcome, Failure>) {
        self.state = match (self.state, outcome) {
            (State::Giving, Ok(Outcome::Done(revision))) => State::Given(revision),
            _ => State::Unsure,
        };
    }

    /// Notes the newest view.
    pub fn read(&mut self, view: View) {
        if view.topology.revision <= self.view.topology.revision {
            // What was sent may still arrive.
            self.state = State::Fencing;
            return;
        }
        let is_given = |job: &Move| job.id == self.job && job.phase() == MovePhase::Trimming;
        self.state = match view.topology.value.moves.iter().any(is_given) {
            true => State::Given(view.topology.revision),
            false => State::Giving,
        };
        self.attempts += 1;
        self.view = view;
    }
}

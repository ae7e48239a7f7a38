//! Acknowledgements in a cluster: what this copy says with its own, and which of the others' count.
//!
//! Outside of a cluster each replica counts, and nothing is said. In one, a primary counts only
//! acknowledgements of its present epoch, from copies that the topology lists as members with the
//! data that they still hold. A copy that has *frozen* an epoch acknowledges nothing more of it or
//! of an older one: so no write can be confirmed that its successor does not know.
//! `docs/internals/cluster.md` has the design.

use crate::epochs::{Epochs, Leadership};
use crate::journal::JournalPos;
use replication::primary::Link;
use replication::promise::{Promise, Question};
use replication::vote::{Vote, Voter};
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering::SeqCst};
use std::sync::{Mutex, OnceLock};
use structs::sync::lock;

/// Which acknowledgements a primary counts.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Rule {
    /// Those of this epoch which have its first entry.
    pub leadership: Leadership,
    /// Those of these copies, with these data.
    pub members: Vec<Voter>,
}

impl Rule {
    /// Whether an acknowledgement counts, if its copy is a member.
    pub(crate) fn is_present(&self, vote: &Vote, position: JournalPos) -> bool {
        vote.epoch == self.leadership.epoch && position >= self.leadership.begins_at
    }

    /// Whether an acknowledgement counts.
    pub fn counts(&self, vote: Option<(Vote, JournalPos)>) -> bool {
        vote.is_some_and(|(vote, position)| {
            self.is_present(&vote, position) && self.members.contains(&vote.voter)
        })
    }
}

/// How this copy acknowledges.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Voice {
    /// As a replica outside of a cluster.
    Plain,
    /// With this.
    Vote(Vote),
    /// Not at all.
    Silent,
}

/// What the host of a copy does for its data.
pub trait Keeper: Send + Sync {
    /// The data are about to be discarded for those of the primary: gives them another name.
    ///
    /// # Errors
    /// They must not be discarded.
    fn before_discard(&self) -> Result<(), String>;
    /// A primary asks for the promise not to take part in a promotion. Returns for how many
    /// milliseconds it is given.
    fn promise(&self, question: &Question) -> Option<u64>;
    /// A copy has given this primary such a promise.
    fn promised(&self, promise: &Promise);
}

/// See the module's documentation.
#[derive(Default)]
pub struct Votes {
    /// This copy, if it is one of a cluster.
    me: Mutex<Option<Voter>>,
    /// The greatest epoch that is frozen, plus one; 0: none is.
    frozen: AtomicU64,
    rule: Mutex<Option<Rule>>,
    /// The least number of replicas that a quorum has, whatever `commit-quorum` says.
    least: AtomicUsize,
    keeper: OnceLock<Box<dyn Keeper>>,
}

impl Votes {
    /// This server is a copy of a cluster, whose data this looks after. Called once, before it
    /// follows a primary.
    pub fn keep_by(&self, keeper: Box<dyn Keeper>) {
        assert!(self.keeper.set(keeper).is_ok(), "a copy has one keeper");
    }

    /// The data are about to be discarded for those of the primary. Nothing happens outside of a
    /// cluster.
    ///
    /// # Errors
    /// They must not be discarded.
    pub fn before_discard(&self) -> Result<(), String> {
        self.keeper.get().map_or(Ok(()), |keeper| keeper.before_discard())
    }

    /// The primary has asked in the stream, which this thread applies. Returns the answer.
    pub(crate) fn promise(&self, question: Question) -> Option<Promise> {
        let from = (*lock(&self.me))?.id;
        let ms = self.keeper.get()?.promise(&question)?;
        Some(Promise { from, epoch: question.epoch, sent: question.sent, ms })
    }

    /// A copy has answered.
    pub fn promised(&self, promise: &Promise) {
        if let Some(keeper) = self.keeper.get() {
            keeper.promised(promise);
        }
    }

    /// How many replicas a quorum has, if `configured` is what `commit-quorum` says.
    pub(crate) fn quorum(&self, configured: usize) -> usize {
        configured.max(self.least.load(SeqCst))
    }

    /// From now on a quorum has so many replicas at least; none is enough for [`usize::MAX`].
    pub(crate) fn set_quorum(&self, replicas: usize) -> bool {
        self.least.swap(replicas, SeqCst) != replicas
    }

    /// This server is this copy, and holds these data.
    pub fn identify(&self, me: Voter) {
        *lock(&self.me) = Some(me);
    }

    /// Acknowledges nothing more of this epoch or of older ones. That is never taken back. A
    /// position that is read later, by [`Epochs::position`], covers everything that was
    /// acknowledged.
    pub fn freeze(&self, epoch: u64) {
        self.frozen.fetch_max(epoch.saturating_add(1), SeqCst);
    }

    /// The greatest epoch that is frozen.
    pub fn frozen(&self) -> Option<u64> {
        self.frozen.load(SeqCst).checked_sub(1)
    }

    /// How to acknowledge a position that was read before this call.
    pub fn voice(&self, epochs: &Epochs) -> Voice {
        let Some(voter) = *lock(&self.me) else { return Voice::Plain };
        // The order matters: either the freeze is seen here, or the position that is read behind it
        // covers this one.
        let epoch = epochs.last().epoch;
        let is_frozen = self.frozen().is_some_and(|frozen| epoch <= frozen);
        match epoch {
            _ if is_frozen => Voice::Silent,
            0 => Voice::Plain,
            epoch => Voice::Vote(Vote { voter, epoch }),
        }
    }

    /// Whether a fail-over counts this replica. Outside of a cluster each counts.
    pub fn counts(&self, link: &Link) -> bool {
        self.rule().as_ref().is_none_or(|rule| rule.counts(link.vote))
    }

    /// The rule, held while it is applied.
    pub(crate) fn rule(&self) -> std::sync::MutexGuard<'_, Option<Rule>> {
        lock(&self.rule)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn voter(letter: u8, incarnation: u64) -> Voter {
        Voter { id: [letter; 40], incarnation }
    }

    #[test]
    fn only_members_with_their_data_in_the_present_epoch_count() {
        let leadership = Leadership { epoch: 7, begins_at: JournalPos(50) };
        let rule = Rule { leadership, members: vec![voter(b'a', 1), voter(b'b', 2)] };
        let counts = |voter, epoch, at| rule.counts(Some((Vote { voter, epoch }, JournalPos(at))));
        assert!(counts(voter(b'a', 1), 7, 50) && counts(voter(b'b', 2), 7, 90));
        assert!(!counts(voter(b'a', 1), 6, 90), "an older epoch");
        assert!(!counts(voter(b'a', 1), 8, 90), "another primary's epoch");
        assert!(!counts(voter(b'a', 1), 7, 49), "without the entry that begins the epoch");
        assert!(!counts(voter(b'a', 2), 7, 90), "other data");
        assert!(!counts(voter(b'c', 1), 7, 90), "no member");
        assert!(!rule.counts(Option::default()), "a replica outside of the cluster");
    }

    #[test]
    fn a_frozen_epoch_is_not_acknowledged_nor_is_an_older_one() {
        let (votes, epochs) = (Votes::default(), Epochs::default());
        assert_eq!(votes.voice(&epochs), Voice::Plain);
        let me = voter(b'a', 1);
        votes.identify(me);
        assert_eq!(votes.voice(&epochs), Voice::Plain, "the primary is in no cluster");
        epochs.replace(7, JournalPos(0));
        assert_eq!(votes.voice(&epochs), Voice::Vote(Vote { voter: me, epoch: 7 }));
        votes.freeze(7);
        assert_eq!(votes.voice(&epochs), Voice::Silent);
        votes.freeze(3);
        assert_eq!(votes.frozen(), Some(7), "a freeze is never taken back");
        epochs.replace(6, JournalPos(0));
        assert_eq!(votes.voice(&epochs), Voice::Silent);
        epochs.replace(8, JournalPos(0));
        assert_eq!(votes.voice(&epochs), Voice::Vote(Vote { voter: me, epoch: 8 }));
    }
}

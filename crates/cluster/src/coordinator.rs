//! The door to the coordinator: six calls, which etcd and the simulator answer.
//!
//! All of them may fail after they have taken effect. So what a failed [`Coordinator::commit`] did
//! is known only from a later read, and not even that read excludes that the transaction takes
//! effect afterwards: every transaction compares what it rests on.

use crate::Moment;
use std::fmt;

/// Counts the changes of all keys. Every transaction that changes something has a revision of its
/// own.
pub type Revision = u64;

/// Names a lease. The coordinator draws it.
pub type LeaseId = i64;

/// A key with its value.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Item {
    /// The key.
    pub key: String,
    /// The value.
    pub value: Vec<u8>,
    /// The revision of the last change of the key.
    pub revision: Revision,
}

/// What a read found.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Range {
    /// The keys with the prefix, in order.
    pub items: Vec<Item>,
    /// The revision that was read.
    pub revision: Revision,
}

/// A condition of a transaction: the key's last change has this revision. 0: the key does not
/// exist.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct Compare {
    /// The key.
    pub key: String,
    /// The revision of its last change.
    pub revision: Revision,
}

/// What a transaction does to a key.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub enum Change {
    /// Sets it.
    Put {
        /// The key.
        key: String,
        /// The value.
        value: Vec<u8>,
        /// The key goes when this lease ends. Without such a lease the transaction is a conflict.
        lease: Option<LeaseId>,
    },
    /// Removes it.
    Delete {
        /// The key.
        key: String,
    },
}

/// Changes that are made all at once if all conditions hold, and otherwise not at all.
#[derive(Clone, PartialEq, Eq, Hash, Debug, Default)]
pub struct Transaction {
    /// The conditions.
    pub compares: Vec<Compare>,
    /// The changes.
    pub changes: Vec<Change>,
}

/// How a transaction ended.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Outcome {
    /// It was made, with this revision.
    Done(Revision),
    /// A condition did not hold, or a lease is gone. Nothing was changed.
    Conflict,
}

/// What is asked about a lease.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum LeaseCall {
    /// A new one that lasts this long unless it is renewed.
    Grant(Moment),
    /// The full time again.
    Renew(LeaseId),
    /// Its end, now.
    Revoke(LeaseId),
}

/// The answer about a lease.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum LeaseReply {
    /// The lease lasts so long from some moment between the call and this reply.
    Held {
        /// Its name.
        id: LeaseId,
        /// How long, at least.
        ttl: Moment,
    },
    /// There is no such lease, or no longer.
    Gone,
}

/// What a watch saw.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Changes {
    /// The keys that changed, perhaps some of them several times.
    pub keys: Vec<String>,
    /// All changes up to this revision are in `keys`.
    pub revision: Revision,
}

/// A server of the coordinator.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Member {
    /// Its name.
    pub name: String,
    /// Where clients reach it.
    pub client_urls: Vec<String>,
}

/// How the coordinator is.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Health {
    /// The version of the server that answered.
    pub version: String,
    /// Whether it has a leader.
    pub has_leader: bool,
    /// The bytes of its database.
    pub size_bytes: u64,
}

/// Why a call failed.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Failure {
    /// No answer, or one that says that it cannot be done now. The call may have taken effect.
    Away(String),
    /// The changes since that revision are not kept any more: read everything again.
    Compacted(Revision),
    /// The coordinator is there, and a value at it cannot be read, or not be changed, by this
    /// version: go on with what is known, and say so.
    Unreadable(String),
}

impl fmt::Display for Failure {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Failure::Away(why) | Failure::Unreadable(why) => out.write_str(why),
            Failure::Compacted(revision) => {
                write!(out, "the changes since revision {revision} are not kept any more")
            }
        }
    }
}

/// The coordinator.
pub trait Coordinator {
    /// Returns the keys that begin with `prefix`, as they were at one revision: the given one or
    /// the newest. A read of the newest sees every transaction that was answered before the read
    /// began.
    fn range(&mut self, prefix: &str, at: Option<Revision>) -> Result<Range, Failure>;

    /// Makes a transaction.
    fn commit(&mut self, transaction: &Transaction) -> Result<Outcome, Failure>;

    /// Grants, renews or revokes a lease.
    fn lease(&mut self, call: LeaseCall) -> Result<LeaseReply, Failure>;

    /// Returns the changes of keys that begin with `prefix` from the revision `from` on. Waits for
    /// the first of them, at most so long.
    fn watch(&mut self, prefix: &str, from: Revision, wait: Moment) -> Result<Changes, Failure>;

    /// Returns the servers of the coordinator.
    fn members(&mut self) -> Result<Vec<Member>, Failure>;

    /// Returns how the server that answers is.
    fn health(&mut self) -> Result<Health, Failure>;
}

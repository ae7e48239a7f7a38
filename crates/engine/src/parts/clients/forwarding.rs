//! A client's requests that other nodes of a cluster answer (`docs/internals/forwarding.md`).
//!
//! The gate of a node adds them here. The client's thread takes them when the input has been looked
//! at, gives them to its hub, and says when they have been answered.

use crate::args::Args;
use cluster::id::Id;
use resp::bulk::{push_bulk, push_header};
use spec::Merge;

/// How a request travels.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Travel {
    /// All its keys are at the node that leads the shard of this slot.
    Slot(u16),
    /// To several nodes, this one perhaps among them.
    Several,
    /// It changes what later requests mean: nothing else of the client is under way meanwhile.
    Alone,
    /// The same of a transaction, which belongs to the node that leads the shard of this slot.
    Queue(u16),
    /// It may wait there without end. Nothing else of the client is under way.
    Waits,
    /// To the shards that the client has written to, where it waits for their replicas. Nothing
    /// else is under way.
    Acks,
    /// To other nodes, because it is about clients or what they wait for there. Nothing else is
    /// under way.
    Nodes {
        /// Which nodes.
        reach: Reach,
        /// How their replies are joined.
        merge: Merge,
        /// What is joined with them.
        own: Own,
    },
}

/// The nodes that a question about clients goes to. Of those that are not alive none.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reach {
    /// Those that lead a shard, this one among them: a client may wait there.
    Leaders,
    /// All but this one.
    Others,
    /// All.
    All,
}

/// What this node itself answers to a request that other nodes answer, too.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Own {
    /// Nothing: its answer comes as that of another node does, or the request is not for it.
    Nothing,
    /// A number.
    Count(u32),
    /// That it has no such client.
    NoSuchClient,
}

/// The shards that a client has written to, for WAIT.
#[derive(Default, Debug)]
pub struct WrittenShards {
    /// Since the last WAIT.
    since: Vec<Id>,
    /// Those that the last WAIT was about.
    before: Vec<Id>,
}

impl WrittenShards {
    /// The client writes to a shard.
    #[inline]
    pub fn note(&mut self, shard: Id) {
        if self.since.last() != Some(&shard) && !self.since.contains(&shard) {
            self.since.push(shard);
        }
    }

    /// A WAIT begins. Without a write since the last one it is about the same shards again.
    pub fn begin_wait(&mut self) {
        if !self.since.is_empty() {
            self.before = std::mem::take(&mut self.since);
        }
    }

    /// The shards that the last WAIT is about; none: the client has written nothing.
    pub fn awaited(&self) -> &[Id] {
        &self.before
    }
}

/// A request to forward.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Forward {
    /// The place in the output that its reply belongs to.
    pub place: usize,
    /// Where its bytes end.
    pub end: usize,
    /// Replies that come before its own, and that the client does not see.
    pub skipped: u32,
    /// Whether the client sees its reply.
    pub is_muted: bool,
    /// How it travels.
    pub travel: Travel,
}

/// See the module.
#[derive(Default, Debug)]
pub struct Forwarding {
    /// The requests of the present input.
    pub requests: Vec<Forward>,
    /// Their bytes, one behind the other.
    pub bytes: Vec<u8>,
    /// Requests without a reply.
    pub awaited: usize,
    /// Requests that would run here wait until all have been answered.
    pub holds_local: bool,
    /// All requests wait until all have been answered.
    pub holds_all: bool,
    /// What is awaited may take without end.
    pub is_blocked: bool,
    /// Keys are watched at another node.
    pub is_watching: bool,
}

impl Forwarding {
    /// Adds one of several requests that make one; `add` writes them.
    #[inline]
    pub(crate) fn add(&mut self, forward: Forward, add: impl FnOnce(&mut Vec<u8>)) {
        add(&mut self.bytes);
        self.awaited += 1;
        match forward.travel {
            Travel::Slot(_) => {}
            Travel::Several => self.holds_local = true,
            Travel::Alone | Travel::Queue(_) | Travel::Nodes { .. } => self.holds_all = true,
            Travel::Waits | Travel::Acks => (self.holds_all, self.is_blocked) = (true, true),
        }
        self.requests.push(Forward { end: self.bytes.len(), ..forward });
    }

    /// The client watches nothing any more, at the other node either.
    pub(crate) fn unwatch(&mut self) {
        if std::mem::take(&mut self.is_watching) {
            let travel = Travel::Alone;
            let one = Forward { place: usize::MAX, end: 0, skipped: 0, is_muted: true, travel };
            self.add(one, |out| out.extend_from_slice(route::raw::UNWATCH));
        }
    }

    /// A request has been answered. Returns whether it was the last.
    pub fn answered(&mut self) -> bool {
        self.awaited -= 1;
        if self.awaited == 0 {
            (self.holds_local, self.holds_all, self.is_blocked) = (false, false, false);
        }
        self.awaited == 0
    }
}

/// Appends a request of these words.
pub(crate) fn push_words(out: &mut Vec<u8>, words: &[&[u8]]) {
    push_header(out, b'*', words.len());
    words.iter().for_each(|word| push_bulk(out, word));
}

/// Appends a request, as it was sent if it can be.
#[inline]
pub(crate) fn push_request(out: &mut Vec<u8>, args: Args<'_>) {
    match args.sent() {
        [] => push_words(out, args.words()),
        sent => out.extend_from_slice(sent),
    }
}

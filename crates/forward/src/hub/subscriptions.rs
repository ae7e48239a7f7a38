//! What is subscribed to, by a client or for a node, on which connections, and which
//! confirmations have not come. [`pubsub`](super::pubsub) and [`listening`](super::listening)
//! work on it.

use crate::wire::Id;
use resp::Protocol;
use resp::bulk::{push_bulk, push_header};
use route::raw;
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::time::{Duration, Instant};

/// What a client is subscribed to.
#[derive(Debug, Default)]
pub struct Subscriptions {
    /// Channels, patterns and shard channels.
    pub(super) sets: [BTreeSet<Vec<u8>>; 3],
    /// The connections to servers.
    pub connections: Vec<Subscriber>,
    /// Confirmations that have not come; until then no request is taken.
    pub awaited: usize,
    /// What the client wants no more and does not have, or no more by then: it is told so after all
    /// that is awaited.
    pub(super) afterwards: Vec<Subscription>,
    /// Since when channels are without a server.
    pub lost_since: Option<Instant>,
    /// What was asked for again on a connection that is lost, and how often: each has to be
    /// confirmed.
    pub(super) owed: BTreeMap<Subscription, usize>,
}

/// What a client has asked for although it has it already: it is told so as often as it asks.
type Repeat = Option<Subscription>;

/// A set, and a channel or pattern of it.
pub type Subscription = (usize, Vec<u8>);

/// A connection of a client's subscriptions.
#[derive(Debug)]
pub struct Subscriber {
    /// The server's number.
    pub server: usize,
    /// The connection.
    pub id: Id,
    /// What was subscribed to on it, confirmed or not.
    pub channels: BTreeSet<Subscription>,
    /// What the client wants no more, not confirmed.
    pub leaving: BTreeSet<Subscription>,
    /// Confirmations that have not come, and which of them go to the client although nothing is
    /// new.
    pub awaited: VecDeque<Repeat>,
    /// Confirmations of what was subscribed to again. They come first.
    pub(super) restored: usize,
}

/// Subscriptions that are to be made again.
pub struct Restoring {
    /// The client.
    pub client: Id,
    /// Not before this.
    pub due: Instant,
    /// What it is to be subscribed to.
    pub channels: Vec<Subscription>,
}

/// Between two attempts to subscribe again.
pub const RESTORE_AFTER: Duration = Duration::from_millis(100);

/// After this time without a server the client is disconnected.
pub const RESTORE_WITHIN: Duration = Duration::from_secs(60);

/// What the end of a subscription on a connection means.
pub(super) enum Parting {
    /// The client wanted it.
    Asked,
    /// The server ends it by itself; whether there was one.
    Unasked(bool),
}

impl Subscriber {
    /// Notes that a subscription has ended here.
    pub(super) fn ended(&mut self, subscription: &Subscription) -> Parting {
        let is_known = self.channels.remove(subscription);
        if self.leaving.remove(subscription) { Parting::Asked } else { Parting::Unasked(is_known) }
    }
}

impl Subscriptions {
    /// Returns how many confirmations more than one are due for a channel that is subscribed to
    /// again.
    pub(super) fn take_owed(&mut self, kind: usize, channel: &[u8]) -> usize {
        self.owed.remove(&(kind, channel.to_vec())).unwrap_or(0)
    }

    /// Ends a subscription. Returns the confirmation, if there was one.
    pub fn end(&mut self, protocol: Protocol, kind: usize, channel: &[u8]) -> Option<Vec<u8>> {
        self.sets[kind]
            .remove(channel)
            .then(|| confirmation(protocol, UNSUBSCRIBE[kind], Some(channel), self.count(kind)))
    }

    /// Notes that a channel is subscribed to again. Returns whether it was not already.
    pub fn begin_again(&mut self, id: Id, kind: usize, channel: &[u8]) -> bool {
        let Some(known) = self.connection(id) else { return false };
        let is_new = known.channels.insert((kind, channel.to_vec()));
        known.restored += usize::from(is_new);
        is_new
    }

    /// A connection is lost: what was asked for again on it is confirmed when its server is there
    /// again.
    pub fn owe(&mut self, lost: &Subscriber) {
        for repeat in lost.awaited.iter().flatten() {
            if !lost.leaving.contains(repeat) {
                *self.owed.entry(repeat.clone()).or_default() += 1;
            }
        }
    }

    pub(super) fn connection(&mut self, id: Id) -> Option<&mut Subscriber> {
        self.connections.iter_mut().find(|known| known.id == id)
    }

    /// Returns how many of a kind count together.
    pub(super) fn count(&self, kind: usize) -> usize {
        if kind == 2 { self.sets[2].len() } else { self.sets[0].len() + self.sets[1].len() }
    }

    /// Returns how many channels, patterns and shard channels there are.
    pub fn counts(&self) -> [usize; 3] {
        [0, 1, 2].map(|kind| self.sets[kind].len())
    }

    /// Returns whether there is any.
    pub fn is_empty(&self) -> bool {
        self.sets.iter().all(BTreeSet::is_empty)
    }
}

/// Which set a command or a confirmation is about, by its first letter.
pub(super) fn kind_of(name: &[u8]) -> usize {
    match name.first().map(u8::to_ascii_lowercase) {
        Some(b'p') => 1,
        Some(b's') if name.len() > 1 && name[1].eq_ignore_ascii_case(&b's') => 2,
        Some(b's')
            if name.len() > 9
                && name[1].eq_ignore_ascii_case(&b'u')
                && name[2].eq_ignore_ascii_case(&b'n') =>
        {
            2
        }
        _ => 0,
    }
}

pub(super) const SUBSCRIBE: [&[u8]; 3] = [b"subscribe", b"psubscribe", b"ssubscribe"];

pub(super) const UNSUBSCRIBE: [&[u8]; 3] = [b"unsubscribe", b"punsubscribe", b"sunsubscribe"];

pub(super) fn confirmation(
    protocol: Protocol,
    name: &[u8],
    channel: Option<&[u8]>,
    count: usize,
) -> Vec<u8> {
    let mut out = Vec::new();
    push_header(&mut out, if protocol == Protocol::Resp3 { b'>' } else { b'*' }, 3);
    push_bulk(&mut out, name);
    match channel {
        Some(channel) => push_bulk(&mut out, channel),
        None => raw::push_null(&mut out, protocol),
    }
    raw::push_integer(&mut out, count as i64);
    out
}

/// A message for a client that speaks this protocol: it may have changed it since it subscribed.
pub(super) fn in_protocol(protocol: Protocol, message: &[u8]) -> Vec<u8> {
    let mut message = message.to_vec();
    match (protocol, message.first_mut()) {
        (Protocol::Resp2, Some(first @ b'>')) => *first = b'*',
        (Protocol::Resp3, Some(first @ b'*')) => *first = b'>',
        _ => {}
    }
    message
}

/// A connection.
pub(super) struct Ear {
    pub(super) server: usize,
    pub(super) id: Id,
    /// Confirmations that have not come.
    pub(super) awaited: usize,
}

/// What a hub listens to, and where.
#[derive(Default)]
pub struct Listening {
    pub(super) names: BTreeSet<Subscription>,
    pub(super) ears: Vec<Ear>,
}
